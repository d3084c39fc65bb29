"""The words of terms: what a formula calls each of them, said once.

A term class declares its ``word`` and how a formula writes it (``Term.over``, ``Term.needs``, ``Term.in_time``,
``Term.partitioned``, ``Term.r_names``). The grammar, the compiler, models of partitions and messages read ``WORDS``.
"""

from __future__ import annotations

from typing import TypeVar

from ..checks import problem
from .base import Term

T = TypeVar("T", bound=type[Term])
WORDS: dict[str, type[Term]] = {}


def register(kind: T) -> T:
    """Make a term known by its word to every formula; also a decorator of a class.

    Examples
    --------
    >>> from fenchel.terms import IID, WORDS, register
    >>> @register
    ... class Plots(IID):
    ...     word = "plots"
    >>> WORDS.pop("plots").__name__  # unknown again
    'Plots'
    """
    word = kind.word
    if word is None or not word.isidentifier():
        raise problem("register", f"the word of {kind.__name__} is {word!r}", 'a name such as "cyclic"')
    known = WORDS.get(word, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):  # a notebook cell may run twice
        raise problem("register", f"{word}() is {known.__name__} already", "another word")
    WORDS[word] = kind
    return kind


def named_in_r(name: str) -> str | None:
    """What to write in place of a function of R that is a term here; None where it is none."""
    word = next((word for word, kind in WORDS.items() if name in kind.r_names), None)
    return None if word is None else f"It is {word}(...) here."
