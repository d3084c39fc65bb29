"""Which attributes a file may give an object: those that the class declares, and never a method or property.

A class declares what its annotations and slots name, and what its own code assigns (``self.x = ...``), its bases
included. The code is read from its compiled functions, not run. What a class assigns by other ways, such as
``setattr``, it names in an annotation.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import cache, cached_property, partial
from inspect import get_annotations, getattr_static, ismemberdescriptor
from types import CodeType
from typing import Any

_OF_SKLEARN = {"n_features_in_", "feature_names_in_"}  # which its functions assign to an estimator
_STORE, _MORE = dis.opmap["STORE_ATTR"], dis.opmap["EXTENDED_ARG"]
_WRAPPERS = (classmethod, staticmethod, property, cached_property, partial)


def declared(cls: type) -> frozenset[str]:
    """The attributes that an object of a class may have in a file."""
    return _declared(cls)


@cache
def _declared(cls: Any) -> frozenset[str]:
    names = frozenset().union(*(_own(base) for base in cls.__mro__[:-1]))
    return frozenset(name for name in names if not name.startswith("__") and not _is_behaviour(cls, name))


def recomputed(cls: type) -> frozenset[str]:
    """The attributes of a class that are computed from others when they are first asked for."""
    return frozenset(name for name in declared(cls) if isinstance(getattr_static(cls, name, None), cached_property))


@cache
def _own(base: type) -> frozenset[str]:
    """What a class names and assigns, its bases aside."""
    own = vars(base)
    names = {word for word, kind in get_annotations(base).items() if "ClassVar" not in str(kind)}
    slots = own.get("__slots__", ())
    names |= {slots} if isinstance(slots, str) else set(slots)
    names |= {word for thing in own.values() for code in _codes(thing) for word in _assigned(code)}
    names |= {word for word, thing in own.items() if isinstance(thing, cached_property)}
    return frozenset(names | _OF_SKLEARN if base.__module__ == "sklearn.base" else names)


def _is_behaviour(cls: type, name: str) -> bool:
    """Whether the class answers to the name by a function, a property, or anything else that is called."""
    found = getattr_static(cls, name, None)
    if ismemberdescriptor(found) or isinstance(found, cached_property):
        return False
    return callable(found) or hasattr(type(found), "__get__")


def _codes(thing: Any) -> Iterator[CodeType]:
    """The compiled functions behind an entry of a class."""
    for part in ("__func__", "fget", "fset", "func", "__wrapped__"):
        inner = getattr(thing, part, None) if isinstance(thing, _WRAPPERS) or part == "__wrapped__" else None
        if inner is not None:
            yield from _codes(inner)
    code = getattr(thing, "__code__", None)
    if isinstance(code, CodeType):
        yield from _nested(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _assigned(code: CodeType) -> set[str]:
    """The attributes that a function assigns, of whatever object."""
    out, steps, more = set(), code.co_code, 0
    for i in range(0, len(steps), 2):  # an instruction and its argument, a byte each
        argument = more | steps[i + 1]
        more = argument << 8 if steps[i] == _MORE else 0
        if steps[i] == _STORE:
            out.add(code.co_names[argument])
    return out
