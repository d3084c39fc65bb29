"""Weighted means and standard deviations of the columns of a table, dense or sparse, at any scale.

Two passes: the mean, then squares about it. Columns are divided by a power of two near their largest entry, so that
nothing over- or underflows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .matrices import is_sparse
from .rows import block_rows, on_every_core


class Moments(NamedTuple):
    """Of D columns.

    Attributes
    ----------
    mean, sd : array (D,)
    rest : array (D,)
        What rounding took from the mean: all of its digits, where a column is 1e10 standard deviations from zero.
    constant : array (D,) of bool
        Whether a column is one number, up to rounding.
    """

    mean: np.ndarray
    sd: np.ndarray
    rest: np.ndarray
    constant: np.ndarray


def column_moments(X: Any, weights: np.ndarray | None = None) -> Moments:
    """Of the rows of X (N, D) with their weights; rows of weight 0 do not count."""
    if weights is not None and (weights <= 0.0).any() and (weights > 0.0).any():
        X, weights = X[weights > 0.0], weights[weights > 0.0]
    n = X.shape[0]
    w = np.full(n, 1.0 / n) if weights is None or not weights.any() else weights / weights.sum()
    one = _sparse if is_sparse(X) else _dense
    return one(X, w)


def _unit(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A power of two within a factor of two of the largest entry; 1 for zeros."""
    size = np.maximum(np.abs(low), np.abs(high))
    return np.ldexp(1.0, np.clip(np.frexp(size)[1], -1000, 1000) * (size > 0.0))


def _finished(
    mean: np.ndarray, rest: np.ndarray, square: np.ndarray, low: np.ndarray, high: np.ndarray, unit: np.ndarray
) -> Moments:
    one, sd = low == high, np.sqrt(np.maximum(square - rest**2, 0.0))
    constant = one | (sd <= 4.0 * np.finfo(float).eps * np.abs(mean))
    return Moments(
        np.where(one, low, mean * unit), np.where(one, 0.0, sd * unit), np.where(one, 0.0, rest * unit), constant
    )


def _dense(X: np.ndarray, w: np.ndarray) -> Moments:
    n, width = X.shape
    step = block_rows(width)

    def blocks(start: int, stop: int) -> Any:
        return ((i, min(stop, i + step)) for i in range(start, stop, step))

    def range_of(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        parts = [(X[i:j].min(axis=0), X[i:j].max(axis=0)) for i, j in blocks(start, stop)]
        return np.min([p[0] for p in parts], axis=0), np.max([p[1] for p in parts], axis=0)

    ranges = on_every_core(n, width, range_of)
    low, high = np.min([r[0] for r in ranges], axis=0), np.max([r[1] for r in ranges], axis=0)
    unit = _unit(low, high)

    def sums(start: int, stop: int) -> np.ndarray:
        """Of the departures from the middle, whose mean loses no digits."""
        return sum((w[i:j] @ (X[i:j] / unit - middle) for i, j in blocks(start, stop)), np.zeros(width))

    def powers(start: int, stop: int) -> np.ndarray:
        total = np.zeros((2, width))
        for i, j in blocks(start, stop):
            away = X[i:j] / unit - mean
            total += w[i:j] @ away, w[i:j] @ np.square(away, out=away)
        return total

    middle = 0.5 * (low / unit) + 0.5 * (high / unit)
    mean = middle + np.sum(on_every_core(n, width, sums), axis=0)
    rest, square = np.sum(on_every_core(n, width, powers), axis=0)
    return _finished(mean, rest, square, low, high, unit)


def _sparse(X: Any, w: np.ndarray) -> Moments:
    import scipy.sparse as sp

    X = sp.csr_array(X)
    if not X.has_canonical_format:  # an entry in two pieces has no square of its own
        X = X.copy()
        X.sum_duplicates()
    low, high = (np.asarray(x.toarray(), dtype=np.float64).ravel() for x in (X.min(axis=0), X.max(axis=0)))
    unit, each, column, D = _unit(low, high), np.repeat(w, np.diff(X.indptr)), X.indices, X.shape[1]
    x = X.data / unit[column]
    full = np.bincount(column, minlength=D) == X.shape[0]
    zeros = np.where(full, 0.0, np.maximum(1.0 - np.bincount(column, weights=each, minlength=D), 0.0))
    mean = np.bincount(column, weights=each * x, minlength=D)
    away = x - mean[column]
    rest = np.bincount(column, weights=each * away, minlength=D) - zeros * mean
    square = np.bincount(column, weights=each * away**2, minlength=D) + zeros * mean**2
    return _finished(mean, rest, square, low, high, unit)
