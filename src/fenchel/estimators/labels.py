"""Targets of words and categories as the levels 0, 1, ...: in the order of an ordered categorical, two words sorted."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import first, holds, problem, refuse_device
from ..likelihoods import WORDS
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from ..terms.tables import present


def known(likelihood: Any) -> Likelihood | None:
    """What knows of the likelihood an estimator was given: that of its word, or itself; None of neither."""
    if isinstance(likelihood, str):
        return WORDS.get(likelihood)
    return likelihood if isinstance(likelihood, Likelihood) else None


def read_labels(where: str, likelihood: Any, y: Any) -> tuple[Any, np.ndarray | None]:
    """Words or categories as levels (N,), NaN where missing, and what the levels are; numbers as they are, and None.

    Categories that no row has are left out, unless there are two in all. Categories that are numbers in rising order
    are these numbers.
    """
    refuse_device(where, "y", y)
    own = known(likelihood)
    held = holds(y) if own is not None and own.support == "levels" and np.ndim(y) == 1 else None
    if own is None or held not in ("text", "categories"):
        return y, None
    if not isinstance(likelihood, str):
        advice = "Use y.cat.codes of an ordered categorical, or (y == word) of two words."
        raise problem(where, f"y holds {held} and likelihood = {likelihood!r}", "levels 0, 1, ...", advice)
    ranked = getattr(y.dtype, "ordered", None) if held == "categories" else None  # None: not pandas', so words
    if own.ordered and not ranked:
        advice = 'Give them one: y = pd.Categorical(y, categories=["low", "middle", "high"], ordered=True).'
        got = f'y holds {held} without an order, and likelihood="{likelihood}"'
        raise problem(where, got, "an ordered categorical, or numbers", advice)
    values = _objects(y)
    missing = np.array([not present(v) for v in values.tolist()], dtype=bool)
    words = np.unique(values[~missing].astype(str)) if ranked is None else np.asarray(y.dtype.categories)
    if ranked is None:
        values[~missing] = values[~missing].astype(str)
    if words.size != 2:
        seen = set(values[~missing].tolist())
        words = words[np.array([word in seen for word in words.tolist()], dtype=bool)]
    if words.dtype.kind in "biuf" and (np.diff(words) > 0).all():
        return np.where(missing, np.nan, np.where(missing, 0.0, values)).astype(np.float64), None
    return levels_of_words(where, words, values), words


def levels_of_words(where: str, words: np.ndarray, y: ArrayLike) -> np.ndarray:
    """The place of each entry among the words (N,), NaN where missing."""
    place = {word: float(k) for k, word in enumerate(words.tolist())}
    given = _objects(y).tolist()
    out = np.array([place.get(v, -1.0) if present(v) else np.nan for v in given])
    if (out < 0).any():
        got = f"y{first(out < 0)} = {given[int(np.argmax(out < 0))]!r} was not seen in fit"
        raise problem(where, got, f"one of {words.tolist()}")
    return out


def encoded(where: str, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Labels as 0, ..., K-1."""
    place = np.clip(np.searchsorted(classes, y), 0, classes.size - 1)
    unknown = ~np.isnan(y) & (classes[place] != y)
    if unknown.any():
        got = f"y[{int(np.argmax(unknown))}] = {y[unknown][0]:g} was not seen in fit"
        raise problem(where, got, f"one of {classes.tolist()}")
    return np.where(np.isnan(y), np.nan, place)


def _objects(y: ArrayLike) -> np.ndarray:
    """A copy of the entries as they are, None where masked."""
    out = np.array(np.ma.getdata(y) if np.ma.isMaskedArray(y) else y, dtype=object)
    if np.ma.isMaskedArray(y):
        out[np.ma.getmaskarray(y)] = None
    return out
