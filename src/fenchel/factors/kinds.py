"""The likelihood of a column: by the word a user has for it, as it was given, or as its cells were read.

A word is looked up once. What comes of it is a class, that begins from the cells (``begun``), or a likelihood as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from .. import likelihoods
from ..checks import choice, problem
from ..likelihoods import BernoulliLogit, MultinomialLogit, Ordinal
from ..likelihoods.base import Likelihood
from .reading import Cells, Reading, Wanted, listed, word

Kind = type[Likelihood] | Likelihood
_COMMON = ("bernoulli", "poisson", "multinomial", "ordinal", "gaussian")


def words() -> dict[str, Kind]:
    """What a column may be called: no likelihood whose trials are not in it, or that says nothing of its mean."""
    known: dict[str, Kind] = {
        word: own if own.called else type(own)
        for word, own in likelihoods.WORDS.items()
        if not (own.needs or own.of_variance)
    }
    known["multinomial"] = MultinomialLogit
    return {word: known[word] for word in (*_COMMON, *known)}


def wanted(likelihood: Any, names: list[Any], where: str) -> list[Wanted]:
    """A likelihood or its class for each column, None for "auto"."""
    if isinstance(likelihood, (str, Likelihood)):
        return [_named(where, "likelihood", likelihood)] * len(names)
    if isinstance(likelihood, Mapping):
        given: dict[Any, Any] = {}
        for key, word in likelihood.items():
            place = isinstance(key, (int, np.integer)) and key not in names and -len(names) <= key < len(names)
            given[names[key] if place else key] = word
        strange = [key for key in given if key not in names]
        if strange:
            raise problem(where, f"likelihood names a column {strange[0]!r}", f"some of {listed(names)}")
        words = [given.get(name, "auto") for name in names]
    else:
        try:
            words = list(likelihood)
        except TypeError:
            got = f"likelihood = {likelihood!r}"
            raise problem(where, got, "a word, a list with one for each column, or a dict by column") from None
        if len(words) != len(names):
            raise problem(where, f"{len(words)} likelihoods meet {len(names)} columns", "one for each column")
    return [_named(where, f"likelihood of column {name!r}", word) for name, word in zip(names, words)]


def _named(where: str, what: str, word: Any) -> Wanted:
    if isinstance(word, Likelihood):
        rows = [key for key, value in word.row_values.items() if np.ndim(value)]
        if rows:
            raise problem(where, f"{what} has its {rows[0]} by row", "one number: a table may get other rows")
        return word
    choice(where, what, word, ("auto", *words()), "Or give a Likelihood.")
    return words().get(word)


def levels_of(cells: Cells, reading: Reading, where: str) -> tuple[Kind, tuple[Any, ...]]:
    """The likelihood of a column, or its class, with the levels in order: none for numbers."""
    name, seen, kind = cells.name, cells.seen, reading.kind
    if kind is not None and kind.support != "levels":
        if not cells.is_number:
            got, expected = f"column {name!r} is not numbers", f"numbers for {word_of(kind)!r}"
            raise problem(where, got, expected, 'Try "multinomial".')
        return kind, ()
    known = 2 if seen.dtype.kind == "b" else None if kind is None else _n_levels(kind)
    if kind is not None and known and cells.is_number and np.isin(seen, np.arange(known)).all():
        return kind, tuple(np.arange(known).astype(seen.dtype).tolist())  # though some may not have been seen
    levels = cells.declared if cells.declared is not None else _levels(cells, where)
    if kind is None:  # text or categories: two levels or more
        kind = BernoulliLogit if len(levels) == 2 else Ordinal if cells.ordered else MultinomialLogit
        if cells.declared is None and len(levels) == seen.size > 10:
            advice = "Leave it out, or make it the index; or ask for it with likelihood."
            raise problem(where, f"column {name!r} has a level of its own in every row", "levels that repeat", advice)
    if len(levels) < 2:
        got = f"column {name!r} has one level only, {word(levels[0])}"
        raise problem(where, got, "at least two levels", "A constant says nothing about the factors: leave it out.")
    if _n_levels(kind) not in (None, len(levels)):
        got, wanted = f"column {name!r} has {len(levels)} levels", _n_levels(kind)
        expected = f'{"two" if wanted == 2 else wanted} for "{word_of(kind)}"'
        raise problem(where, got, expected, 'Try "multinomial", or "poisson" for counts.')
    if kind.ordered and not (cells.is_number or cells.declared is not None):
        advice = "Give the order: pandas.Categorical(x, categories=[...], ordered=True), or numbers."
        got = f"column {name!r} is text, whose order is not known"
        raise problem(where, got, f'an order for "{word_of(kind)}"', advice)
    return kind, tuple(levels)


def _n_levels(kind: Kind) -> int | None:
    """How many levels it has, if that is said: a class may begin with any number where they are ordered."""
    return None if isinstance(kind, type) and (kind.ordered or kind is MultinomialLogit) else kind.n_levels


def word_of(kind: Kind) -> str:
    cls = kind if isinstance(kind, type) else type(kind)
    own = None if isinstance(kind, type) else kind.word
    return own or next((word for word, known in words().items() if known is cls), cls.__name__)


def is_softmax(own: Likelihood) -> bool:
    """Whether the levels share a normalisation, with predictors for all but the last: categories, be they two."""
    return own.objective.coupled


def begun(kind: Kind, seen: np.ndarray, n_levels: int, bound: str) -> Likelihood:
    """The likelihood where learning from the cells that are seen begins."""
    if kind is MultinomialLogit:
        return MultinomialLogit(n_levels, bound="log-sum")
    pattern = next((own for own in likelihoods.WORDS.values() if kind is own or kind is type(own)), None)
    if pattern is None:
        return kind  # type: ignore[return-value]  # a likelihood as it is
    bound = bound if bound in pattern.bounds else "best"
    return pattern.starting(seen, bound=bound) if pattern.parameters else _plain(pattern, bound)


@cache
def _plain(pattern: Likelihood, bound: str) -> Likelihood:
    """Columns without parameters of their own share one."""
    return pattern.starting(np.zeros(0), bound=bound)


def _levels(cells: Cells, where: str) -> tuple[Any, ...]:
    """Distinct labels, sorted where they can be."""
    if cells.is_number:
        if not np.isfinite(cells.seen.astype(np.float64)).all():
            raise problem(where, f"column {cells.name!r} has an infinite cell", "finite numbers")
        return tuple(np.unique(cells.seen).tolist())
    try:
        found = list(set(cells.seen.tolist()))
    except TypeError:
        odd = next(cell for cell in cells.seen if not hasattr(cell, "__hash__") or cell.__hash__ is None)
        got = f"column {cells.name!r} has a {type(odd).__name__} in a cell"
        raise problem(where, got, "numbers or labels such as text") from None
    try:
        return tuple(sorted(found))
    except TypeError:
        return tuple(sorted(found, key=lambda level: (type(level).__name__, str(level))))
