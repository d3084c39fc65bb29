"""Nodes and arrays of a file as objects again: what ``graph.Encoder`` made, checked before anything uses it.

Every node is made once. Objects are begun empty and given their attributes, so that parts may refer back to the whole;
they are checked when all of them are whole. Functions, tables of pandas' and parts within parts are held to the lists
of ``trusted.py``, and whatever is odd is an exception.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from . import foreign, trusted
from .attributes import recomputed
from .evaluating import is_plain
from .graph import SEQUENCES

Json = Any
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_APART = 8  # times the memory of an array's entries, at most, where they stand apart
_MODULUS = (1 << 61) - 1  # by which Python hashes whole numbers
_PATHS, _PATHS_A_NODE, _KERNEL_PATHS = 100_000, 1000, 2000  # at most, from a node to all that is inside
_LONG = 1 << 16  # numbers of a range that stands for a list
_SPARE, _TIMES = 1 << 24, 16  # bytes that may be made of a file, and how many times its own beyond


class Decoder:
    """Makes an object of nodes and arrays. Whatever is odd is a ValueError, TypeError, KeyError or the like."""

    def __init__(self, nodes: Any, arrays: list[np.ndarray]) -> None:
        if not isinstance(nodes, list):
            raise ValueError("it has no nodes")
        self.nodes, self.arrays = nodes, arrays
        self._made: dict[int, Any] = {}
        self._open: set[int] = set()
        self._taken: set[int] = set()
        self._into: Any = None
        self._filled: list[tuple[str, Any]] = []  # objects, to be checked when all are whole
        self._paths: dict[int, int] = {}  # how many nodes one comes upon who follows every reference of a node
        self._passed = [0]
        self._tables: set[int] = set()  # nodes that are tables of pandas', or lists of them
        self._with_table = [False]
        self.size = sum(x.nbytes for x in arrays) + 64 * len(nodes)
        self._left = _SPARE + _TIMES * self.size

    def spend(self, n_bytes: int) -> None:
        """Count what is copied or looked through: a file may ask for the same again and again."""
        self._left -= n_bytes
        if self._left < 0:
            raise ValueError("it asks for far more memory than it has bytes")

    def root(self, v: Json, into: Any = None) -> Any:
        """The object of the file, checked; ``into``: the object that it is to become."""
        self._into = into
        out = self.value(v)
        for key, made in self._filled:
            if trusted.verified(type(made)):
                self.spend(sum(x.nbytes for x in made.__dict__.values() if isinstance(x, np.ndarray)))
            trusted.check_object(key, made)
        return out

    def check_length(self, n: int) -> None:
        """Refuse the length of rows or columns that are not in the file, and that no file of this size has."""
        if n > _SPARE + 64 * self.size:
            raise ValueError("a length without end")

    def value(self, v: Json, attribute: str | None = None) -> Any:
        """What a plain value or a reference stands for; ``attribute``: the name of the attribute that it is to be."""
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
            self._passed.append(1)
            self._with_table.append(False)
            self._made[only] = self._build(only)
            self._open.discard(only)
            self._count_paths(only)
            self._note_table(only)
        self._passed[-1] += self._paths.get(only, 1)
        if only in self._tables:
            self._with_table[-1] = True
            if attribute is not None:
                trusted.check_table(attribute)
        found = self._made[only]
        if only in self._open and trusted.verified(type(found)):  # it is looked through before what refers to it
            raise ValueError(f"node {only} is part of itself")
        if isinstance(found, trusted.CALLED):
            trusted.check_callable(attribute, found)
        return found

    def _count_paths(self, place: int) -> None:
        """Refuse parts that are doubled again and again: what goes through them, as a sum of kernels does, would not
        end."""
        self._paths[place] = paths = self._passed.pop()
        kernel = str(self.nodes[place][1]).startswith(trusted.KERNELS)
        if paths > (_KERNEL_PATHS if kernel else _PATHS + _PATHS_A_NODE * len(self.nodes)):
            raise ValueError("its parts are inside each other again and again")

    def _note_table(self, place: int) -> None:
        """Remember a table, and a list that has one; of objects their attributes are looked at one by one."""
        inside, word, made = self._with_table.pop(), self.nodes[place][0], self._made[place]
        long = type(made) is range and len(made) > _LONG + self.size  # of the rows of a table, and of nothing else
        if word in foreign.TABLES or long or (inside and word not in ("object", "text")):
            self._tables.add(place)

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
        if word in SEQUENCES:
            made = self.values(*rest)
            return SEQUENCES[word](made if word == "tuple" else map(_key, made))
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
                out[_key(self.value(key))] = self.value(value)
        else:
            self._made[place] = out = self._begun(word, rest)
            cls, (key, attributes, slots) = type(out), rest
            given = [(_text(name), value) for name, value in _list(attributes or [])]
            again = recomputed(cls) if trusted.verified(cls) else ()
            given = [(name, value) for name, value in given if name not in again or self._is_number(value)]
            names = {name for name, _ in given}
            for name, value in given:
                out.__dict__[trusted.check_attribute(cls, name)] = self.value(value, name)
            for name, value in _list(slots or []):
                trusted.slot_of(cls, _text(name)).__set__(out, self.value(value, name))
            if len(names | {name for name, _ in slots or []}) < len(given) + len(slots or []):
                raise ValueError(f"{cls.__name__} has an attribute twice")
            self._filled.append((key, out))
        return out

    def _is_number(self, v: Json) -> bool:
        if type(v) is not list or len(v) != 1 or type(v[0]) is not int or not 0 <= v[0] < len(self.nodes):
            return type(v) in (int, float)
        return _list(self.nodes[v[0]])[:1] == ["scalar"]

    def _begun(self, word: str, rest: list[Json]) -> Any:
        """An object without its attributes; of ``rest`` its class, attributes and slots stay."""
        cls, into = trusted.object_of(rest[0]), self._into
        if issubclass(cls, str) is not (word == "text"):
            raise ValueError(f"{rest[0]} is filled in another way")
        if word == "text":
            return str.__new__(cls, _text(rest.pop(1)))
        self._into = None
        return into if type(into) is cls else object.__new__(cls)


def _key(made: Any) -> Any:
    """A key of a dict or a member of a set: not one of many whole numbers that Python takes for the same."""
    if type(made) is int and abs(made) >= _MODULUS:
        raise ValueError("a key that is too large")
    return made


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
    if not all(map(is_plain, made)):
        raise ValueError("an array of objects")
    if not all(type(n) is int and n >= 0 for n in _list(shape)) or math.prod(shape) != len(made):
        raise ValueError("an array of another size than its entries")
    out = np.empty(len(made), dtype=object)
    out[:] = made
    return out.reshape(shape)


def _range(decoder: Decoder, ends: Json) -> range:
    out = range(*(n for n in _list(ends) if type(n) is int))
    decoder.check_length(len(out))
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
    function, given, named = decoder.value(func, "size"), decoder.value(args), decoder.value(keywords)
    plain = type(given) is tuple and type(named) is dict and is_plain((given, named))
    if not (isinstance(function, FunctionType) and plain):
        raise ValueError("a partial function of something else")
    return functools.partial(function, *given, **named)


_BUILDERS: dict[str, Callable[..., Any]] = {
    "array": _spread,
    "objects": _objects,
    "scalar": lambda decoder, i: decoder.array(i).reshape(())[()],
    "bytes": lambda decoder, i: decoder.array(i).tobytes(),
    "slice": lambda decoder, ends: slice(*decoder.values(ends)),
    "range": _range,
    "partial": _partial,
    "method": lambda decoder, owner, name: trusted.method_of(decoder.value(owner), name),
    "class": lambda decoder, key: trusted.function_of(key),
    "function": lambda decoder, key: trusted.function_of(key),
    "enum": _enum,
    "named": _named,
}
