"""Summaries of a weighted sample before anything is fitted: mean, quantiles, spread, and the range of a noise variance.

    a noise variance v     FLOOR * spread(y) <= v <= CEILING * largest(y)^2

Below the floor 1 + S/v keeps fewer than six digits of its 1 in double precision, for S of the size of the data; nor can
the noise be below the rounding of y itself. The ceiling is beyond what y can be. ``spread`` is the variance, or from
the quartiles where the tails are heavy: one outlier of 1e10 must not hide noise of 1.
"""

from __future__ import annotations

import numpy as np

from ..linalg.arrays import ArrayLike

FLOOR = 1e-10  # of a noise variance, relative to the variance of y
CEILING = 1e3  # of a noise variance, relative to the square of the largest y
_NORMAL_QUARTILES = 1.3489795003921634  # their distance under N(0, 1)


def observed(y: ArrayLike, weights: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """y with 0 and weights with 0 where y is NaN."""
    y = np.asarray(y, dtype=np.float64)
    return np.nan_to_num(y), np.where(np.isnan(y), 0.0, 1.0 if weights is None else weights)


def per_row(value: object, n: int) -> np.ndarray:
    """A number, a vector, or None for 1, as (n,)."""
    return np.broadcast_to(np.asarray(1.0 if value is None else value, dtype=np.float64), (n,))


def mean(y: np.ndarray, w: np.ndarray) -> float:
    """The weighted mean."""
    return float(np.average(y, weights=w))


def quantile(y: np.ndarray, w: np.ndarray, level: float) -> float:
    """The weighted quantile: the middle of where the cumulative weight passes ``level``."""
    order = np.argsort(y, kind="stable")
    total = np.cumsum(w[order])
    left, right = (np.searchsorted(total, level * total[-1], side=side) for side in ("left", "right"))
    return float((y[order[left]] + y[order[min(int(right), y.size - 1)]]) / 2)


def spread(y: np.ndarray, w: np.ndarray, robust: bool = False) -> float:
    """The standard deviation; by the quartiles if ``robust``; where y is constant its size, or 1 for zeros."""
    quartiles = quantile(y, w, 0.75) - quantile(y, w, 0.25) if robust else 0.0
    if quartiles > 0.0:
        return quartiles / _NORMAL_QUARTILES
    centre = mean(y, w)
    sd = float(np.sqrt(np.average((y - centre) ** 2, weights=w)))
    return sd if sd > 1e-12 * abs(centre) else abs(centre) or 1.0  # in the units of y even where it has no spread


def log_noise_variance(y: np.ndarray, start: float, robust: bool = False) -> tuple[float, float]:
    """Bounds of log v for targets y, NaN where unobserved; about ``start`` where y has no spread.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods.samples import log_noise_variance
    >>> np.exp(log_noise_variance(np.array([0.0, 2.0, np.nan]), 1.0))
    array([1.e-10, 4.e+03])
    """
    seen = y[np.isfinite(y)]
    largest = float(np.abs(seen).max(initial=0.0))
    typical = float(np.median(np.abs(seen))) if robust and seen.size else largest
    rounding = (np.finfo(np.float64).eps * typical) ** 2
    with np.errstate(over="ignore"):
        spread = float(np.var(seen)) if seen.size else 0.0
        if robust and seen.size:
            middle = float(np.subtract(*np.quantile(seen, [0.75, 0.25]))) / _NORMAL_QUARTILES
            spread = middle**2 if middle > 0.0 else spread
    if not rounding < spread < np.inf:  # constant, or beyond squares
        spread = start
    with np.errstate(divide="ignore"):
        highest = max(2.0 * np.log(largest), np.log(spread))  # the square itself may overflow
    return float(np.log(max(FLOOR * spread, rounding))), float(np.log(CEILING) + highest)
