"""The value of an expression at the rows of a table, node by node.

Operands of arithmetic are numbers and columns: no text is repeated, no two columns are multiplied out into a table, no
whole number grows without end. What is asked of a transform is plain and small.
"""

from __future__ import annotations

import ast
import datetime
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from inspect import signature
from typing import Any

import numpy as np

from .expressions import BARE, BUILTINS, CONSTANTS, LARGEST_BITS, UFUNCS, NotAllowed, Reading, bounded

MOST_COLUMNS = 4096  # that a transform may be asked for: levels, and of splines and polynomials df times degree
MOST_DIGITS = 300  # of round()

_OF_ONE = ("poly", "bs", "cc", "cr", "cs", "hashed", "lag")  # transforms of one column

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class ExpressionValue:
    """What an expression is at the rows of a table.

    Parameters
    ----------
    columns : mapping
        Of the table, by name.
    variables : mapping
        Plain values that the expression may name beside columns.
    state : dict
        Of formulaic's transforms, by the text of the call: means, knots. Filled where it is empty.
    spec, metadata : of formulaic, which its transforms are given.
    """

    def __init__(
        self,
        columns: Mapping[Any, Any],
        variables: Mapping[str, Any],
        state: dict[str, Any],
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.columns, self.variables, self.state = columns, variables, state
        self.spec, self.metadata = spec, metadata or {}

    def of(self, reading: Reading) -> Any:
        """The value of an expression."""
        return self._value(reading.tree, reading.columns)

    def _value(self, node: Any, names: Mapping[str, str]) -> Any:
        """The value of a node, by its type."""
        value = _VALUES.get(type(node))
        if value is None:
            raise NotAllowed(f"it has a {type(node).__name__.lower()}")
        return value(self, node, names)

    def _values(self, nodes: Sequence[Any], names: Mapping[str, str]) -> list[Any]:
        return [self._value(node, names) for node in nodes]

    def _mapping(self, node: ast.Dict, names: Mapping[str, str]) -> dict[Any, Any]:
        return dict(zip(self._values(node.keys, names), self._values(node.values, names), strict=True))

    def _chosen(self, node: ast.IfExp, names: Mapping[str, str]) -> Any:
        return self._value(node.body if self._value(node.test, names) else node.orelse, names)

    def _named(self, name: str) -> Any:
        if name in self.columns:
            return self.columns[name]
        if name in self.variables:
            result = self.variables[name]
            if not is_plain(result):
                raise NotAllowed(f"it uses {name!r}, which is no number")
            return result
        raise NameError(f"name {name!r} is not defined")

    def _compared(self, node: ast.Compare, names: Mapping[str, str]) -> Any:
        left, out = self._value(node.left, names), True
        for sign, right_node in zip(node.ops, node.comparators, strict=True):
            right = self._value(right_node, names)
            check_shapes(left, right)
            one = _COMPARED[type(sign)](left, right)
            out = one if out is True else out and one
            left = right
        return out

    def _joined(self, node: ast.BoolOp, names: Mapping[str, str]) -> Any:
        for part in node.values[:-1]:
            value = self._value(part, names)
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return self._value(node.values[-1], names)

    def _called(self, node: ast.Call, names: Mapping[str, str]) -> Any:
        args = self._values(node.args, names)
        given = {str(word.arg): self._value(word.value, names) for word in node.keywords}
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if node.func.value.id == "contr":  # type: ignore[attr-defined]
                _check_sizes(dict(enumerate(args)) | given)  # type: ignore[arg-type]
                return _contrasts(name)(*args, **given)
            return _by_numpy(getattr(np, name), name, args, given)
        name = node.func.id  # type: ignore[attr-defined]
        if name in BARE or name in UFUNCS:
            return _by_numpy(BARE.get(name) or _formulaic(name), name, args, given)
        if name in BUILTINS:
            return _by_python(name, args)
        return self._transformed(node, name, args, given)

    def _transformed(self, node: ast.Call, name: str, args: list[Any], given: dict[str, Any]) -> Any:
        """One of formulaic's transforms, with the state that it keeps."""
        func = _formulaic(name)
        if name in _OF_ONE and any(np.ndim(value) > 1 for value in (*args, *given.values())):
            raise NotAllowed(f"it gives {name} several columns")
        _check_sizes(signature(func).bind_partial(*args, **given).arguments)
        if not getattr(func, "__is_stateful_transform__", False):
            return func(*args, **given)
        key = ast.unparse(node).replace("\n", " ").replace('"', r"\\\\" + '"')  # formulaic's own, also in older files
        kept = self.state.setdefault(key, {})
        if type(kept) is not dict or not is_plain(kept) or _count(kept) > MOST_COLUMNS:
            raise NotAllowed(f"what it knows of {key[:40]} is not what {name} keeps")
        given |= {"_state": kept, "_spec": self.spec, "_metadata": self.metadata.get(key), "_context": None}
        return func(*args, **given)


_VALUES: dict[type[ast.AST], Callable[[ExpressionValue, Any, Mapping[str, str]], Any]] = {
    ast.Constant: lambda at, node, names: node.value,
    ast.Name: lambda at, node, names: at._named(names.get(node.id, node.id)),
    ast.Attribute: lambda at, node, names: CONSTANTS[node.attr] if node.value.id == "np" else _contrasts(node.attr),
    ast.BinOp: lambda at, node, names: _combined(node.op, *at._values([node.left, node.right], names)),
    ast.UnaryOp: lambda at, node, names: bounded(_UNARY[type(node.op)](_number(at._value(node.operand, names)))),
    ast.Compare: ExpressionValue._compared,
    ast.BoolOp: ExpressionValue._joined,
    ast.IfExp: ExpressionValue._chosen,
    ast.List: lambda at, node, names: at._values(node.elts, names),
    ast.Tuple: lambda at, node, names: tuple(at._values(node.elts, names)),
    ast.Dict: ExpressionValue._mapping,
    ast.Call: ExpressionValue._called,
}


def _formulaic(name: str) -> Any:
    from formulaic.transforms import TRANSFORMS as THEIRS

    return THEIRS[name]


def _contrasts(name: str) -> Any:
    return getattr(_formulaic("contr"), name)


def _combined(sign: ast.operator, left: Any, right: Any) -> Any:
    """Two values by an operator; text only where it is added to a column of text."""
    word = isinstance(left, str) or isinstance(right, str)
    if not (isinstance(sign, ast.Add) and word and (np.ndim(left) or np.ndim(right))):
        objects = isinstance(sign, ast.Add)
        left, right = _number(left, objects), _number(right, objects)
    check_shapes(left, right)
    whole = type(left) in (int, bool) and type(right) in (int, bool)
    if isinstance(sign, ast.Pow) and whole and abs(int(left)).bit_length() * max(int(right), 0) > LARGEST_BITS:
        raise NotAllowed("it has a whole number that is too large")
    if not whole:
        _machine(left)
        _machine(right)
    return bounded(_BINARY[type(sign)](left, right))


def _number(value: Any, objects: bool = False) -> Any:
    """A number, an array of numbers, a date or a span of time; ``objects``: or an array of text."""
    if isinstance(value, (bool, int, float, datetime.date, datetime.timedelta)):
        return value
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind is None or (kind in "OSUV" and not objects):
        raise NotAllowed(f"it computes with {'text' if kind or isinstance(value, str) else type(value).__name__}")
    return value


def _machine(value: Any) -> None:
    """Refuse a whole number that an array would keep as an object of Python's."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise NotAllowed("it has a whole number that is too large")


def check_shapes(*values: Any) -> None:
    """Refuse arrays that would be multiplied out into a larger one."""
    shapes = [np.shape(value) for value in values if hasattr(value, "shape")]
    if shapes and math.prod(np.broadcast_shapes(*shapes)) > max(math.prod(shape) for shape in shapes):
        raise NotAllowed("it makes a table of two columns")


def _by_numpy(func: Any, name: str, args: list[Any], given: dict[str, Any]) -> Any:
    most = {"where": 3, "clip": 3, "round": 2}.get(name)
    if most is not None and (len(args) > most or (name == "where" and len(args) < most)):
        raise NotAllowed(f"it gives np.{name} {len(args)} arguments")
    for value in (*args, *given.values()):
        if not (name == "where" and isinstance(value, str)):
            _machine(_number(value, objects=name == "where"))
    check_shapes(*args, *given.values())
    return func(*args, **given)


def _by_python(name: str, args: list[Any]) -> Any:
    if name == "len" and len(args) == 1:
        return len(args[0])
    if name in ("min", "max"):
        args = [*args[0]] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        if len(args) == 1:
            return BUILTINS[name](_number(args[0], objects=True))
    args = [_number(value) for value in args]
    if name == "round" and len(args) == 2 and not (type(args[1]) is int and abs(args[1]) <= MOST_DIGITS):
        raise NotAllowed(f"it rounds to more than {MOST_DIGITS} digits")
    return bounded(BUILTINS[name](*args))


def _check_sizes(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of a transform that are functions, or that ask for more columns than memory has."""
    degree = max(1.0, _asked(arguments.get("degree", 1.0)))
    for name, value in arguments.items():
        if callable(value) and getattr(value, "__module__", "") != "formulaic.transforms.contrasts":
            raise NotAllowed("it gives a function as an argument")
        times = degree if name in ("df", "knots", "degree") else 1.0
        if name in ("df", "knots", "degree", "levels", "constraints") and not _asked(value) * times <= MOST_COLUMNS:
            raise NotAllowed(f"it asks for more than {MOST_COLUMNS} columns")


def _asked(value: Any) -> float:
    """The number itself, or how many there are in a list; 0 where nothing is asked for."""
    if value is None or isinstance(value, str):
        return 0.0
    return float(value) if np.ndim(value) == 0 and not isinstance(value, Sized) else float(np.size(value))


def _count(value: Any) -> int:
    """How many numbers there are in a value."""
    if type(value) is dict:
        return sum(map(_count, value.values()))
    if type(value) in (list, tuple):
        return sum(map(_count, value))
    return int(np.size(value))


def is_plain(value: Any) -> bool:
    """A number, text, date, array or data frame, or a list of these: what an expression may name beside columns."""
    if value is None or type(value) in (bool, int, float, str, datetime.date, datetime.datetime, datetime.timedelta):
        return True
    if type(value) in (list, tuple, set, frozenset):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    if isinstance(value, np.generic) or type(value) is np.ndarray:
        return value.dtype.kind in "biufmMSU"
    pd = sys.modules.get("pandas")
    kinds = () if pd is None else (pd.Series, pd.DataFrame, pd.Index, pd.Timestamp, pd.Timedelta, pd.Period)
    return type(value) in kinds or (pd is not None and (value is pd.NaT or value is pd.NA))
