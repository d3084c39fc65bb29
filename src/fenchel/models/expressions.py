"""Expressions of a formula that files and command lines may hold: arithmetic, numpy, formulaic's transforms.

    text  ->  read(text), a tree of which every node is on a list  ->  evaluating.Evaluation, its value at the rows

The tree that is checked here is the tree that is evaluated, and Python's eval has no part in it. A name is a column or
a plain value, never a function; a function is one of the tables below, called by its name. Lengths, depths, whole
numbers and the sizes of arrays are bounded, so that every expression ends.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping
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
_INNER = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.List, ast.Tuple, ast.Dict)


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
        inside = [node for node in ast.walk(self.tree) if isinstance(node, (ast.Call, ast.Attribute))]
        functions = {id(node.func) for node in inside if isinstance(node, ast.Call)}
        functions |= {id(node.value) for node in inside if isinstance(node, ast.Attribute)}
        found = [n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and id(n) not in functions]
        return list(dict.fromkeys(self.columns.get(name, name) for name in found))

    def called(self) -> list[str]:
        """The functions that it calls: "np.log", "scale"."""
        calls = [node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return list(dict.fromkeys(map(ast.unparse, calls)))

    def attributes(self) -> list[str]:
        """What it names with a dot and does not call: "np.pi", "contr.sum"."""
        called = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.Attribute) and id(n) not in called]
        return list(dict.fromkeys(map(ast.unparse, found)))


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
    if isinstance(node, ast.Constant):
        if type(node.value) not in (bool, int, float, str, type(None)):
            raise NotAllowed(f"it has a {type(node.value).__name__}")
        bounded(node.value)
        return []
    if isinstance(node, ast.Name):
        return []
    if isinstance(node, ast.Attribute):
        if not _dotted(node, CONSTANTS, "np") and not _dotted(node, CONTRASTS, "contr"):
            raise NotAllowed(f"it uses {_shown(node)}")
        return []
    if not isinstance(node, _INNER):
        raise NotAllowed(f"it has a {type(node).__name__.lower()}")
    operators: list[ast.AST] = []
    if isinstance(node, (ast.BinOp, ast.UnaryOp)):
        operators = [node.op]
    elif isinstance(node, ast.Compare):
        operators = list(node.ops)
    for sign in operators:
        if not isinstance(sign, _SIGNS):
            raise NotAllowed(f"it has a {type(sign).__name__.lower()}")
    if isinstance(node, ast.Call):
        return _checked_call(node)
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Dict) and None in node.keys:
        raise NotAllowed("it unpacks arguments")
    return [child for child in children if isinstance(child, ast.expr)]


def _checked_call(node: ast.Call) -> list[ast.expr]:
    func = node.func
    keywords = [word.arg for word in node.keywords]
    if any(word is None for word in keywords) or any(isinstance(arg, ast.Starred) for arg in node.args):
        raise NotAllowed("it unpacks arguments")
    if isinstance(func, ast.Attribute):
        own = _dotted(func, CONTRASTS, "contr") or _dotted(func, _KEYWORDS, "np")
        if not own and not (_dotted(func, None, "np") and _is_ufunc(func.attr)):
            raise NotAllowed(f"it uses {_shown(func)}")
        of_numpy = func.value.id == "np"  # type: ignore[attr-defined]
        ufunc = of_numpy and _is_ufunc(func.attr)
        allowed = () if ufunc else _KEYWORDS[func.attr] if of_numpy else None
        if ufunc and len(node.args) != getattr(np, func.attr).nin:
            raise NotAllowed(f"it gives {_shown(func)} {len(node.args)} arguments")
    elif isinstance(func, ast.Name):
        if func.id not in {*TRANSFORMS, *UFUNCS, *BUILTINS, *BARE}:
            raise NotAllowed(f"it calls {func.id[:40]}")
        allowed = None if func.id in TRANSFORMS else ()
        if (func.id in UFUNCS or func.id in BARE) and len(node.args) != 1:
            raise NotAllowed(f"it gives {func.id} {len(node.args)} arguments")
    else:
        raise NotAllowed(f"it calls {_shown(func)}")
    for word in keywords:
        odd = word.startswith("_") or word in _NOT_GIVEN if allowed is None else word not in allowed  # type: ignore[union-attr]
        if odd:
            raise NotAllowed(f"it gives {_shown(func)} the argument {str(word)[:40]}")
    return [*node.args, *(word.value for word in node.keywords)]


def _dotted(node: ast.Attribute, names: Any, of: str) -> bool:
    """Whether a node is ``of.name`` with one of the names, or any."""
    return isinstance(node.value, ast.Name) and node.value.id == of and (names is None or node.attr in names)


def _is_ufunc(name: str) -> bool:
    found = None if name.startswith("_") else getattr(np, name, None)
    return isinstance(found, np.ufunc) and found.nout == 1


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
