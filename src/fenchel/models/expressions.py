"""Expressions of a formula that files and command lines may hold: arithmetic, numpy, formulaic's transforms.

    text  ->  read(text), a tree of which every node is on a list  ->  evaluating.ExpressionValue, at the rows

The tree that is checked here is the tree that is evaluated, and Python's eval has no part in it. A name is a column or
a plain value, never a function; a function is one of the tables below, called by its name. Lengths, depths, whole
numbers and the sizes of arrays are bounded, so that every expression ends.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

LONGEST = 5000  # characters of an expression
DEEPEST = 100  # nodes from its root to a leaf
LARGEST_BITS = 512  # of a whole number
ALLOWED = "arithmetic, comparisons, np.log and its like, and formulaic's own transforms (C, poly, bs, scale, ...)"

# numpy's that a formula may call without np., as R and brms do; log, log2, log10 and exp are formulaic's own
BARE = {"sqrt": np.sqrt, "log1p": np.log1p, "expm1": np.expm1, "sin": np.sin, "cos": np.cos}
CONSTANTS = {"pi": np.pi, "e": np.e, "nan": np.nan, "inf": np.inf}  # np.pi
CONTRASTS = ("helmert", "poly", "sum", "treatment", "SAS", "diff", "custom")  # contr.sum
BUILTINS: dict[str, Any] = {
    "abs": abs,
    "min": min,
    "max": max,
    "round": round,
    "int": int,
    "float": float,
    "bool": bool,
    "len": len,
}
TRANSFORMS = (  # formulaic's by name
    *("bs", "cc", "cr", "cs", "center", "lag", "poly", "scale", "standardize", "C", "I", "hashed", "exp10"),
    *("Treatment", "Poly", "Sum", "Helmert", "Diff"),
)
UFUNCS = ("log", "log10", "log2", "exp", "exp2")  # formulaic's names of numpy's
_KEYWORDS = {"where": (), "clip": ("a_min", "a_max", "min", "max"), "round": ("decimals",)}  # of numpy's functions
_NOT_GIVEN = ("hash_func",)  # arguments of transforms that would be functions

_SIGNS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr),
    *(ast.UAdd, ast.USub, ast.Invert, ast.Not),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
Keywords = tuple[str, ...] | None  # of a function: those it may be given, None for any


class NotAllowed(ValueError):
    """An expression that is more than arithmetic, or too long; the text says what is in it."""


@dataclass(frozen=True)
class Reading:
    """An expression that may be evaluated.

    Attributes
    ----------
    tree : ast.expr
    columns : mapping
        Identifiers of the tree that stand for names in backticks, and those names.
    """

    tree: ast.expr
    columns: Mapping[str, str]

    def names(self) -> list[str]:
        """The columns and values that it reads, as the user calls them."""
        functions = {id(call.func) for call in self._nodes(ast.Call)}
        functions |= {id(dotted.value) for dotted in self._nodes(ast.Attribute)}
        result = [name.id for name in self._nodes(ast.Name) if id(name) not in functions]
        return list(dict.fromkeys(self.columns.get(name, name) for name in result))

    def called(self) -> list[str]:
        """The functions that it calls: "np.log", "scale"."""
        return list(dict.fromkeys(ast.unparse(call.func) for call in self._nodes(ast.Call)))

    def attributes(self) -> list[str]:
        """What it names with a dot and does not call: "np.pi", "contr.sum"."""
        called = {id(call.func) for call in self._nodes(ast.Call)}
        result = [dotted for dotted in self._nodes(ast.Attribute) if id(dotted) not in called]
        return list(dict.fromkeys(map(ast.unparse, result)))

    def _nodes(self, kind: type[ast.AST]) -> list[Any]:
        """The nodes of one kind."""
        return [node for node in ast.walk(self.tree) if type(node) is kind]


# -- reading ------------------------------------------------------------------------------------------------
def read(text: Any) -> Reading:
    """The expression of a text, or NotAllowed where it is more than arithmetic.

    Examples
    --------
    >>> from fenchel.models.expressions import read
    >>> read("np.log(`body mass` + 1)").names()
    ['body mass']
    """
    if type(text) is not str:
        raise NotAllowed("it is no text")
    if len(text) > LONGEST:
        raise NotAllowed(f"it has {len(text)} characters, more than {LONGEST}")
    return _read(text)


@lru_cache(maxsize=256)
def _read(text: str) -> Reading:
    plain, columns = without_backticks(text)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotAllowed("it cannot be read") from None
    _check(tree)
    return Reading(tree, columns)


_PIECES = re.compile(r"(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`)", re.DOTALL)


def without_backticks(text: str) -> tuple[str, dict[str, str]]:
    """The text with an identifier in the place of every name in backticks, and which name each of them stands for."""
    pieces = _PIECES.split(text)
    taken, columns = set(re.findall(r"\w+", "".join(p for p in pieces if p[:1] != "`"))), {}
    known: dict[str, str] = {}
    for k, piece in enumerate(pieces):
        if piece[:1] == "`" and len(piece) > 2:
            name = piece[1:-1]
            if name not in known:
                word = name if name.isidentifier() else re.sub(r"\W", "_", name)
                word = f"_{word}" if not word.isidentifier() else word
                while (word != name and word in taken) or keyword.iskeyword(word) or word in columns:
                    word += "_"
                known[name], columns[word] = word, name
            pieces[k] = f" {known[name]} "
    return "".join(pieces), columns


def _check(root: ast.expr) -> None:
    """Refuse a tree that has anything which is not on the list."""
    level: list[ast.expr] = [root]
    for _ in range(DEEPEST):
        level = [child for node in level for child in _checked(node)]
        if not level:
            return
    raise NotAllowed(f"it is nested more than {DEEPEST} deep")


def _checked(node: ast.expr) -> list[ast.expr]:
    """The parts of a node that is allowed."""
    parts = _PARTS.get(type(node))
    if parts is None:
        raise _odd(node)
    return parts(node)


def _odd(node: ast.AST) -> NotAllowed:
    return NotAllowed(f"it has a {type(node).__name__.lower()}")


def _constant(node: ast.Constant) -> list[ast.expr]:
    if type(node.value) not in (bool, int, float, str, type(None)):
        raise NotAllowed(f"it has a {type(node.value).__name__}")
    bounded(node.value)
    return []


def _attribute(node: ast.Attribute) -> list[ast.expr]:
    if not _dotted(node, CONSTANTS, "np") and not _dotted(node, CONTRASTS, "contr"):
        raise NotAllowed(f"it uses {_shown(node)}")
    return []


def _signed(signs: Sequence[ast.AST], parts: list[ast.expr]) -> list[ast.expr]:
    """The parts of a node whose operators are allowed."""
    for sign in signs:
        if type(sign) not in _SIGNS:
            raise _odd(sign)
    return parts


def _dict(node: ast.Dict) -> list[ast.expr]:
    keys = [key for key in node.keys if key is not None]
    if len(keys) < len(node.keys):
        raise NotAllowed("it unpacks arguments")
    return [*keys, *node.values]


def _call(node: ast.Call) -> list[ast.expr]:
    keywords = [word.arg or "**" for word in node.keywords]
    if "**" in keywords or ast.Starred in map(type, node.args):
        raise NotAllowed("it unpacks arguments")
    allowed = _KEYWORDS_OF.get(type(node.func), _no_function)(node.func, len(node.args))
    for word in keywords:
        if word.startswith("_") or word in _NOT_GIVEN if allowed is None else word not in allowed:
            raise NotAllowed(f"it gives {_shown(node.func)} the argument {word[:40]}")
    return [*node.args, *(word.value for word in node.keywords)]


def _no_function(func: ast.expr, n: int) -> Keywords:
    raise NotAllowed(f"it calls {_shown(func)}")


def _dotted_keywords(func: ast.Attribute, n: int) -> Keywords:
    """The keywords that contr.sum or np.log may be given with n arguments; None for any."""
    if _dotted(func, CONTRASTS, "contr"):
        return None
    if _dotted(func, _KEYWORDS, "np"):
        return _KEYWORDS[func.attr]
    if not (_dotted(func, None, "np") and _is_ufunc(func.attr)):
        raise NotAllowed(f"it uses {_shown(func)}")
    if n != getattr(np, func.attr).nin:
        raise NotAllowed(f"it gives {_shown(func)} {n} arguments")
    return ()


def _bare_keywords(func: ast.Name, n: int) -> Keywords:
    """The same of a function without a dot."""
    if func.id in TRANSFORMS:
        return None
    if func.id not in {*UFUNCS, *BUILTINS, *BARE}:
        raise NotAllowed(f"it calls {func.id[:40]}")
    if func.id not in BUILTINS and n != 1:
        raise NotAllowed(f"it gives {func.id} {n} arguments")
    return ()


_KEYWORDS_OF: dict[type[ast.AST], Callable[[Any, int], Keywords]] = {
    ast.Attribute: _dotted_keywords,
    ast.Name: _bare_keywords,
}
_PARTS: dict[type[ast.AST], Callable[[Any], list[ast.expr]]] = {  # what a node may be, and its parts
    ast.Constant: _constant,
    ast.Name: lambda node: [],
    ast.Attribute: _attribute,
    ast.BinOp: lambda node: _signed([node.op], [node.left, node.right]),
    ast.UnaryOp: lambda node: _signed([node.op], [node.operand]),
    ast.Compare: lambda node: _signed(node.ops, [node.left, *node.comparators]),
    ast.BoolOp: lambda node: node.values,
    ast.IfExp: lambda node: [node.test, node.body, node.orelse],
    ast.List: lambda node: node.elts,
    ast.Tuple: lambda node: node.elts,
    ast.Dict: _dict,
    ast.Call: _call,
}


def _dotted(node: ast.Attribute, names: Any, of: str) -> bool:
    """Whether a node is ``of.name`` with one of the names, or any."""
    return type(node.value) is ast.Name and node.value.id == of and (names is None or node.attr in names)


def _is_ufunc(name: str) -> bool:
    result = None if name.startswith("_") else getattr(np, name, None)
    return type(result) is np.ufunc and result.nout == 1


def _shown(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:60]
    except RecursionError:  # it is not known yet how deep it is
        return "something nested"


def bounded(value: Any) -> Any:
    """A value whose whole number, if it is one, is not too long."""
    if type(value) is int and value.bit_length() > LARGEST_BITS:
        raise NotAllowed("it has a whole number that is too large")
    if type(value) is complex:
        raise NotAllowed("it has a complex number")
    return value
