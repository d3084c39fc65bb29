"""Objects as a list of nodes, each plain json with references to others, and back.

    null, true, 3, 0.5, "text"      themselves            ["nan"], ["inf"], ["-inf"]      floats that json lacks
    [7]                             node 7                ["object", class, attributes, slots], ["array", 3], ...

A node is written once however often it is referred to, so that what was one object is one again.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from ..checks import problem
from . import foreign, trusted
from .archive import KINDS
from .older import MOVED, name_now

Json = Any
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_APART = 8  # times the memory of an array's entries, at most, where they stand apart
_SPARE, _TIMES = 1 << 24, 16  # bytes that may be made of a file, and how many times its own beyond


class Encoder:
    """Makes nodes and arrays of an object."""

    def __init__(self) -> None:
        self.nodes: list[Json] = []
        self.arrays: list[np.ndarray] = []
        self._place: dict[Any, int] = {}
        self._kept: list[Any] = []  # an id is only that of one object while it lives

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
        for word, sequence in _SEQUENCES.items():
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
        return self._object(x, where) if found is None else found

    def _object(self, x: Any, where: str) -> Json:
        if isinstance(x, functools.partial):
            given = [self.value(part, where) for part in (x.func, x.args, dict(x.keywords))]
            return ["partial", *given]
        if isinstance(x, MethodType):
            trusted.method_of(x.__self__, x.__name__)
            return ["method", self.value(x.__self__, where), x.__name__]
        named = x if isinstance(x, (type, FunctionType)) else type(x)
        key = trusted.key_of(named)
        if key is None:
            raise _cannot(x, where)
        if named is x:
            return ["class" if isinstance(x, type) else "function", key]
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
        parts = [self._attributes(part, where) for part in (attributes, slots)]
        return ["text", key, str(x), *parts] if isinstance(x, str) else ["object", key, *parts]

    def _attributes(self, state: dict[str, Any] | None, where: str) -> Json:
        return None if state is None else [[k, self.value(v, f"{where}.{k}")] for k, v in state.items()]


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


class Decoder:
    """Makes an object of nodes and arrays. Whatever is odd is a ValueError, TypeError, KeyError or the like."""

    def __init__(self, nodes: Any, arrays: list[np.ndarray], version: int) -> None:
        if not isinstance(nodes, list):
            raise ValueError("it has no nodes")
        self.nodes, self.arrays, self.version = nodes, arrays, version
        self._made: dict[int, Any] = {}
        self._open: set[int] = set()
        self._taken: set[int] = set()
        self._into: Any = None
        self.size = sum(x.nbytes for x in arrays) + 64 * len(nodes)
        self._left = _SPARE + _TIMES * self.size

    def spend(self, n_bytes: int) -> None:
        """Count what is copied or looked through: a file may ask for the same again and again."""
        self._left -= n_bytes
        if self._left < 0:
            raise ValueError("it asks for far more memory than it has bytes")

    def value(self, v: Json, into: Any = None) -> Any:
        """What a plain value or a reference stands for; ``into``: the object that it is to become."""
        self._into = into
        if v is None or type(v) in (bool, int, float, str):
            return v
        (only,) = _list(v)
        if type(only) is str:
            return _FLOATS[only]
        if type(only) is not int or not 0 <= only < len(self.nodes):
            raise ValueError(f"there is no node {str(only)[:20]}")
        if only not in self._made:
            if only in self._open:
                raise ValueError(f"node {only} is part of itself")
            self._open.add(only)
            self._made[only] = self._build(only)
            self._open.discard(only)
        return self._made[only]

    def values(self, vs: Json) -> list[Any]:
        """Several of them."""
        return [self.value(v) for v in _list(vs)]

    def array(self, i: Json) -> np.ndarray:
        """One of the arrays."""
        if type(i) is not int or not 0 <= i < len(self.arrays):
            raise ValueError(f"there is no array {str(i)[:20]}")
        if i in self._taken:
            raise ValueError(f"array {i} is part of two things")
        self._taken.add(i)
        return self.arrays[i]

    def _build(self, place: int) -> Any:
        word, *rest = _list(self.nodes[place])
        if word in ("list", "dict", "object", "text"):  # these may refer back to themselves
            return self._shell(place, word, rest)
        if word in _SEQUENCES:
            return _SEQUENCES[word](self.values(*rest))
        build: Callable[..., Any] | None = _BUILDERS.get(word)
        if build is None:
            build = foreign.BUILDERS[word]
        return build(self, *rest)

    def _shell(self, place: int, word: str, rest: list[Json]) -> Any:
        if word == "list":
            out: Any = []
            self._made[place] = out
            out += self.values(*rest)
        elif word == "dict":
            out = {}
            self._made[place] = out
            for key, value in _list(*rest):
                out[self.value(key)] = self.value(value)
        else:
            if type(rest[0]) is str:
                rest[0] = MOVED.get(rest[0], rest[0])
            cls = trusted.class_of(rest[0])
            if word == "text":
                if not issubclass(cls, str) or type(rest[1]) is not str:
                    raise ValueError(f"{rest[0]} is no text")
                out = str.__new__(cls, rest.pop(1))
            else:
                out = self._into if type(self._into) is cls else object.__new__(cls)
                self._into = None
            self._made[place] = out
            _, attributes, slots = rest
            key = rest[0]
            for name, value in _list(attributes or []):
                now = name_now(key, _text(name), self.version)
                out.__dict__[trusted.check_attribute(key, now)] = self.value(value)
            for name, value in _list(slots or []):
                _slot(cls, trusted.check_attribute(key, _text(name))).__set__(out, self.value(value))
            if trusted.verified(cls):
                self.spend(sum(x.nbytes for x in out.__dict__.values() if isinstance(x, np.ndarray)))
            trusted.check_object(key, out)
        return out


def _slot(cls: type, name: str) -> Any:
    found = getattr(cls, name)
    if type(found).__name__ != "member_descriptor":
        raise ValueError(f"{name!r} is no slot")
    return found


def _list(v: Json) -> list[Json]:
    if type(v) is not list:
        raise ValueError("its nodes are not as they should be")
    return v


def _text(v: Json) -> str:
    if type(v) is not str:
        raise ValueError("a name is no text")
    return v


def _spread(decoder: Decoder, i: Json, strides: Json = None) -> np.ndarray:
    """An array with its entries as far apart as they were."""
    x = decoder.array(i)
    if strides is None:
        return x
    if len(_list(strides)) != x.ndim or not all(type(step) is int and step > 0 for step in strides):
        return x  # a view backwards, or one that repeats itself: its numbers alone
    total = 1 + sum((n - 1) * step for n, step in zip(x.shape, strides, strict=True))
    if not 0 < total <= _APART * x.size:
        return x
    decoder.spend(total * x.itemsize)
    out = np.lib.stride_tricks.as_strided(
        np.zeros(total, dtype=x.dtype), x.shape, [step * x.itemsize for step in strides]
    )
    out[...] = x
    if not np.array_equal(out, x, equal_nan=x.dtype.kind in "fcmM"):
        raise ValueError("entries of an array stand upon each other")
    return out


def _objects(decoder: Decoder, shape: Json, values: Json) -> np.ndarray:
    made = decoder.values(values)
    if not all(type(n) is int and n >= 0 for n in _list(shape)) or math.prod(shape) != len(made):
        raise ValueError("an array of another size than its entries")
    out = np.empty(len(made), dtype=object)
    out[:] = made
    return out.reshape(shape)


def _range(decoder: Decoder, ends: Json) -> range:
    out = range(*(n for n in _list(ends) if type(n) is int))
    if len(out) > _SPARE + 64 * decoder.size:  # of the rows of a table, whose columns the file has
        raise ValueError("a range without end")
    return out


def _enum(decoder: Decoder, key: Json, name: Json) -> Any:
    cls = trusted.class_of(key)
    if not issubclass(cls, enum.Enum):
        raise ValueError(f"{key} is no enumeration")
    return cls[_text(name)]


def _named(decoder: Decoder, key: Json, values: Json) -> Any:
    cls, made = trusted.class_of(key), decoder.values(values)
    if not issubclass(cls, tuple) or len(getattr(cls, "_fields", ())) != len(made):
        raise ValueError(f"{key} is another tuple")
    return tuple.__new__(cls, made)


def _partial(decoder: Decoder, func: Json, args: Json, keywords: Json) -> Any:
    function, named = decoder.value(func), decoder.value(keywords)
    if not (isinstance(function, (FunctionType, MethodType, type)) and type(named) is dict):
        raise ValueError("a partial function of something else")
    return functools.partial(function, *decoder.value(args), **named)


_BUILDERS: dict[str, Callable[..., Any]] = {
    "array": _spread,
    "objects": _objects,
    "scalar": lambda decoder, i: decoder.array(i).reshape(())[()],
    "bytes": lambda decoder, i: decoder.array(i).tobytes(),
    "slice": lambda decoder, ends: slice(*decoder.values(ends)),
    "range": _range,
    "partial": _partial,
    "method": lambda decoder, owner, name: trusted.method_of(decoder.value(owner), name),
    "class": lambda decoder, key: trusted.class_of(key),
    "function": lambda decoder, key: trusted.function_of(key),
    "enum": _enum,
    "named": _named,
}
