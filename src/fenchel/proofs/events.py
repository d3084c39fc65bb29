"""Bounds on probabilities of events under the posterior, from those under q and a bound on KL(q || posterior).

    d(a || b) = a log(a / b) + (1 - a) log((1 - a) / (1 - b)) <= KL(q || posterior),      a = q(A),  b = P(A | y)

holds for every event A by the data processing inequality for relative entropy. The solutions b form an interval, which
is searched on the logit scale. With b = a + s, d = a f(s / a) + (1 - a) f(-s / (1 - a)), f(x) = x - log(1 + x), is
accurate for small KL and for a near 0 and 1; far from a the logarithms are computed directly.
"""

from __future__ import annotations

import numpy as np

_HALVINGS = 80  # of the bisection
_FARTHEST = 800.0  # largest shift of a logit
_SERIES = 1e-2  # smaller |x|: x - log(1 + x) is computed as a series
_TERMS = 9  # terms of the series
_ROUNDING = 16.0 * np.finfo(float).eps


def probability_bounds(
    probability: np.ndarray | float, kl: float, complement: np.ndarray | float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds on P(A | y).

    Parameters
    ----------
    probability : array
        q(A).
    kl : float
        Upper bound on KL(q || posterior).
    complement : array, optional
        1 - q(A), if it is known more accurately than by subtraction.

    Examples
    --------
    >>> from fenchel.proofs.events import probability_bounds
    >>> low, high = probability_bounds(0.95, 0.1)
    >>> round(float(low), 3), round(float(high), 3)
    (0.794, 0.997)
    """
    a = np.asarray(probability, dtype=np.float64)
    rest = 1.0 - a if complement is None else np.asarray(complement, dtype=np.float64)
    a, rest = np.broadcast_arrays(a, rest)
    if not kl < np.inf:
        return np.zeros(a.shape), np.ones(a.shape)
    kl = max(kl, 0.0) * (1.0 + 1e-12)
    with np.errstate(over="ignore", invalid="ignore"):
        down = a * np.exp(-_shift(rest, a, kl))
        low = np.where(rest <= 0.0, np.exp(-kl), down / (down + rest))
        high = np.where(a <= 0.0, -np.expm1(-kl), a / (a + rest * np.exp(-_shift(a, rest, kl))))
    low = np.where(a <= 0.0, 0.0, low * (1.0 - _ROUNDING))
    high = np.where(rest <= 0.0, 1.0, high * (1.0 + _ROUNDING))
    return np.clip(low, 0.0, a), np.clip(high, a, 1.0)


def _shift(a: np.ndarray, rest: np.ndarray, kl: float) -> np.ndarray:
    """Largest allowed difference between the logits of b and a, rounded up."""
    inner, outer = np.zeros(a.shape), np.full(a.shape, _FARTHEST)
    for _ in range(_HALVINGS):
        middle = 0.5 * (inner + outer)
        inside = binary_entropy(a, rest, middle) <= kl
        inner, outer = np.where(inside, middle, inner), np.where(inside, outer, middle)
    return outer


def binary_entropy(a: np.ndarray, rest: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """d(a || b) where b has the logit of a plus ``shift`` >= 0."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        odds = np.expm1(np.minimum(shift, 700.0))
        scale = 1.0 + a * odds
        near = a * _excess(rest * odds / scale) + rest * _excess(-a * odds / scale)
        kept = np.log(a + rest * np.exp(-shift))  # log a / b; log (1 - a) / (1 - b) is this and the shift
        far = a * kept + rest * (shift + kept)
    out = np.where(a * odds < 0.5, near, far)
    return np.where(np.isnan(out), np.inf, out)


def _excess(x: np.ndarray) -> np.ndarray:
    """x - log(1 + x) >= 0."""
    small = np.abs(x) < _SERIES
    z = np.where(small, x, 0.0)
    series = sum((-1.0) ** k * z**k / k for k in range(2, _TERMS))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(small, series, x - np.log1p(np.where(small, 0.0, x)))
