"""Objects as a list of nodes, each plain json with references to others; ``decoding.py`` is the way back.

    null, true, 3, 0.5, "text"      themselves            ["nan"], ["inf"], ["-inf"]      floats that json lacks
    [7]                             node 7                ["object", class, attributes, slots], ["array", 3], ...

A node is written once however often it is referred to, so that what was one object is one again.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from types import MethodType
from typing import Any

import numpy as np

from ..checks import problem
from . import foreign, trusted
from .archive import KINDS
from .attributes import declared

Json = Any
SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class Encoder:
    """Makes nodes and arrays of an object."""

    def __init__(self) -> None:
        self.nodes: list[Json] = []
        self.arrays: list[np.ndarray] = []
        self._place: dict[Any, int] = {}
        self._kept: list[Any] = []  # an id is only that of one object while it lives
        self._attribute = ""  # the one that is being written

    def value(self, x: Any, where: str) -> Json:
        """A plain value as it is, anything else as a reference; ``where`` is its place, for sentences."""
        if x is None or type(x) in (bool, int, str):
            return x
        if type(x) is float:
            return x if math.isfinite(x) else [str(x)]
        key = _memory(x) if type(x) is np.ndarray and x.size else id(x)
        if key not in self._place:
            self._place[key] = place = len(self.nodes)
            self._kept.append(x)
            self.nodes.append(None)
            self.nodes[place] = self._node(x, where)
        return [self._place[key]]

    def values(self, xs: Any, where: str) -> list[Json]:
        """Several of them."""
        return [self.value(x, f"{where}[{i}]") for i, x in enumerate(xs)]

    def array(self, x: np.ndarray) -> int:
        """The place of an array among the arrays."""
        self.arrays.append(x)
        return len(self.arrays) - 1

    def _node(self, x: Any, where: str) -> Json:
        kind = type(x)
        for word, sequence in SEQUENCES.items():
            if kind is sequence:  # sets in an order of their own: the same bytes for the same fit
                return [word, self.values(sorted(x, key=repr) if kind in (set, frozenset) else x, where)]
        if kind is dict:
            return ["dict", [[self.value(k, where), self.value(v, f"{where}[{k!r}]")] for k, v in x.items()]]
        if kind is np.ndarray and x.dtype.kind in KINDS:
            return ["array", self.array(x), *_strides(x)]
        if kind is np.ndarray and x.dtype.kind == "O":
            return ["objects", list(x.shape), self.values(x.ravel().tolist(), where)]
        if isinstance(x, np.generic) and x.dtype.kind in KINDS:
            return ["scalar", self.array(np.asarray(x))]
        if kind is bytes:
            return ["bytes", self.array(np.frombuffer(x, dtype=np.uint8))]
        if kind is slice:
            return ["slice", self.values((x.start, x.stop, x.step), where)]
        if kind is range:
            return ["range", [x.start, x.stop, x.step]]
        found = foreign.encoded(self, x, where)
        if found is not None and found[0] in foreign.TABLES and self._attribute not in trusted.TABLES:
            raise _cannot(x, where)
        return self._object(x, where) if found is None else found

    def _object(self, x: Any, where: str) -> Json:
        if isinstance(x, trusted.CALLED):
            return self._called(x, where)
        key = trusted.key_of(type(x))
        if key is None:
            raise _cannot(x, where)
        if isinstance(x, enum.Enum):
            return ["enum", key, x.name]
        if isinstance(x, tuple):
            return ["named", key, self.values(x, where)]
        trusted.check_object(key, x)
        plain = getattr(x, "_plain_state", None)  # of Stored, whose __getstate__ is this very encoding
        state: Any = x.__getstate__() if plain is None else plain()
        if isinstance(state, list):  # of a frozen dataclass with slots: its fields in order
            state = None, dict(zip([field.name for field in dataclasses.fields(x)], state, strict=True))
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        if attributes is not None:
            attributes = {k: v for k, v in attributes.items() if k != "_sklearn_version"}
        for name in (*(attributes or ()), *(slots or ())):
            if name not in declared(type(x)):
                got = f"{where} has an attribute {name!r} that {type(x).__name__} does not declare"
                raise problem("save", got, "attributes of its own", f"Remove it, or declare it: {name}: Any = None.")
        parts = [self._attributes(part, where) for part in (attributes, slots)]
        return ["text", key, str(x), *parts] if isinstance(x, str) else ["object", key, *parts]

    def _called(self, x: Any, where: str) -> Json:
        """A function, where an attribute may be one; ``where`` ends with its name."""
        if not trusted.may_be_called(where.rpartition(".")[2], x):
            raise _cannot(x, where)
        if isinstance(x, functools.partial):
            return ["partial", *(self.value(part, where) for part in (x.func, x.args, dict(x.keywords)))]
        if isinstance(x, MethodType):
            return ["method", self.value(x.__self__, where), x.__name__]
        return ["class" if isinstance(x, type) else "function", f"{x.__module__}:{x.__qualname__}"]

    def _attributes(self, state: dict[str, Any] | None, where: str) -> Json:
        if state is None:
            return None
        outer, out = self._attribute, []
        for name, value in state.items():
            self._attribute = name
            out.append([name, self.value(value, f"{where}.{name}")])
        self._attribute = outer
        return out


def _memory(x: np.ndarray) -> tuple[Any, ...]:
    """What two views of the same numbers share."""
    return x.ctypes.data, x.shape, x.strides, x.dtype.str


def _strides(x: np.ndarray) -> list[list[int]]:
    """How far apart the entries of an array are that is neither in rows nor in columns: sums round by that."""
    if x.flags.c_contiguous or x.flags.f_contiguous or not x.size:
        return []
    return [[step // x.itemsize for step in x.strides]]


def _cannot(x: Any, where: str) -> Exception:
    function = callable(x) and hasattr(x, "__name__")
    own = "function" if function else type(x).__name__
    what = f"the {own}" if where == own else f"the {own} {where}"
    got = f"{what} cannot be saved" + (f": it is of {type(x).__module__}" if not callable(x) else "")
    advice = "Make a column of what a function gives, or keep the model with pickle."
    if type(x).__module__.split(".")[0] == "sklearn":
        advice = "skops.io.dump saves it, and skops.io.load(path, trusted=fenchel.files.TRUSTED) loads it."
    return problem("save", got, "parts of fenchel, numbers, text and data frames", advice)
