"""Probability integral transforms: where each y lies in its prediction from the others, uniform if that is right.

    PIT_n = P(y <= y_n | the others)                              continuous y
    from P(y < y_n | the others) to P(y <= y_n | the others)      counts and levels, spread evenly over that stretch
    from P(y <= t | the others) to 1                              a duration that had not ended at t

Spreading the mass of a row over its stretch keeps the histogram free of chance of its own, and even if the prediction
is right (Czado, Gneiting and Held 2009).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..checks import count, numeric, problem
from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, to_numpy
from ..linalg.quadrature import expect
from .loo import LeaveOneOut

_NARROW = 1e-9  # stretches shorter than this are points


class Pit(NamedTuple):
    """The ends of each row's stretch (N,), NaN where y is unobserved; equal for a continuous y."""

    below: np.ndarray
    upto: np.ndarray


def seen_between(likelihood: Likelihood, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What was seen of each row (N,): y in (a, b], or y = a = b where it was seen itself; infinite ends are open."""
    if likelihood.support in ("count", "levels"):
        return np.where(y > 0.0, y - 1.0, -np.inf), y
    if likelihood.atom:
        return np.where(y > 0.0, y, -np.inf), y
    event, upper = (getattr(likelihood, name, None) for name in ("event", "upper"))
    if upper is not None:
        return y, np.broadcast_to(np.asarray(upper, dtype=np.float64), y.shape)
    if event is not None:
        happened = np.broadcast_to(np.asarray(event, dtype=np.float64), y.shape) > 0.0
        return y, np.where(happened, y, np.inf)
    return y, y


def pit_by(cdf: Callable[[np.ndarray], np.ndarray], likelihood: Likelihood, y: np.ndarray) -> Pit:
    """From P(y <= x | the others) of all rows as a function of x (N,); y is NaN where it does not count."""
    seen = ~np.isnan(y)
    at = np.where(seen, y, 1.0)
    ends = []
    for x in seen_between(likelihood, at):
        p = np.clip(np.asarray(cdf(np.where(np.isfinite(x), x, at))), 0.0, 1.0)
        ends.append(np.where(seen, np.where(np.isfinite(x), p, np.where(x > 0.0, 1.0, 0.0)), np.nan))
    return Pit(*ends)


def cavity_pit(likelihood: Likelihood, found: LeaveOneOut, y: np.ndarray) -> Pit:
    """Under the normal eta of a leave-one-out prediction."""
    h, rho = to_numpy(found.mean), np.maximum(to_numpy(found.variance), 0.0)
    if h.ndim > 1:
        raise problem("cavity_pit", f"{likelihood.name} has several predictors an observation", "one")

    def cdf(x: np.ndarray) -> np.ndarray:
        def given(eta: Array, rows: slice) -> Array:
            return likelihood.take(rows).cdf(x[rows, None], to_numpy(eta))

        return np.asarray(expect(given, h, rho))

    return pit_by(cdf, likelihood, y)


def pit_counts(below: np.ndarray, upto: np.ndarray, bins: int) -> np.ndarray:
    """What each row (N,) has in each of as many even bins between 0 and 1: (N, bins), of sum 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.criteria.pit import pit_counts
    >>> pit_counts(np.array([0.1, 0.5]), np.array([0.1, 1.0]), 4)
    array([[1. , 0. , 0. , 0. ],
           [0. , 0. , 0.5, 0.5]])
    """
    bins = count("pit_counts", "bins", bins, 2)
    low, high = (numeric("pit_counts", "below, upto", end) for end in (below, upto))
    if low.shape != high.shape or low.ndim != 1 or not low.size:
        raise problem("pit_counts", f"below {low.shape} and upto {high.shape}", "as many of both, (N,)")
    if not ((low >= 0.0) & (low <= high + _NARROW) & (high <= 1.0)).all():
        raise problem("pit_counts", "a stretch outside of 0 and 1", "0 <= below <= upto <= 1")
    edges, width = np.linspace(0.0, 1.0, bins + 1), high - low
    point = width < _NARROW
    share = np.clip((edges - low[:, None]) / np.where(point, 1.0, width)[:, None], 0.0, 1.0)
    alone = np.minimum((high * bins).astype(int), bins - 1)[:, None] < np.arange(bins + 1)
    return np.diff(np.where(point[:, None], alone, share), axis=1)
