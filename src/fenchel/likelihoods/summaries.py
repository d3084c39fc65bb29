"""What a weighted sample says of itself before anything is fitted: its mean, its middle, its spread."""

from __future__ import annotations

import numpy as np

from ..linalg.arrays import ArrayLike

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
    """Of the rows with their weights: the middle of where the cumulative weight passes ``level``."""
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
