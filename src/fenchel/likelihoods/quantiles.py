"""Quantiles of y when eta ~ N(h, rho), row by row, of any likelihood that has a distribution function F.

    P(y <= x) = E[F(x | eta)]

F as a function of eta falls or rises about one place over some width, the likelihood's ``kink(x)``: the panels of the
quadrature are laid there, in units of the width. A quantile is sought by secants on the scale of ndtri P, on which P is
nearly straight, within a bracket that shrinks. Where eta is not normal, ``below`` is P and (h, rho) its moments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from ..linalg.arrays import Array, ArrayLike, to_numpy
from ..linalg.quadrature import expect
from .by_density import LINKS, MOST, SCALES

if TYPE_CHECKING:
    from .base import Likelihood

Below = Callable[[np.ndarray], np.ndarray]  # x (N,) -> P(y <= x), where eta has other marginals than normal ones
_FAR = (float(ndtri(1e-300)), float(ndtri(1.0 - 1e-16)))


def probability(likelihood: Likelihood, x: np.ndarray, h: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """P(y <= x) of each row (N,)."""
    if not rho.any():
        with np.errstate(all="ignore"):
            return likelihood.cdf(x[:, None], h[:, None])[:, 0]
    place, width = likelihood.kink(x)
    w = np.broadcast_to(width, h.shape)

    def g(eta: Array, rows: slice) -> np.ndarray:
        return np.asarray(likelihood.take(rows).cdf(x[rows, None], to_numpy(eta) * w[rows, None]))

    with np.errstate(all="ignore"):
        return np.asarray(expect(g, h / w, rho / w**2, [place / w]))


def count_quantile(
    likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, level: ArrayLike, below: Below | None = None
) -> np.ndarray:
    """The smallest k with P(y <= k) >= level (N,), sought in log(k + 1)."""
    target, below = ndtri(level), below or partial(_normal, likelihood, h, rho)
    reach = np.sqrt(rho) * np.maximum(target, 0.0)
    with np.errstate(over="ignore"):
        mean = np.maximum(likelihood.mean_at(h + reach), likelihood.mean_at(h - reach))
    low, high = np.full_like(h, -1.0), np.minimum(np.ceil(2.0 * np.nan_to_num(mean, posinf=MOST) + 20.0), MOST)
    for _ in range(60):
        short = (below(high) < level) & (high < MOST)
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, np.minimum(2.0 * high, MOST), high)

    def between(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
        a, b = np.log(low + 1.5), np.log(high + 1.5)
        return np.maximum(np.clip(np.round(np.exp(a + share * (b - a)) - 1.5), low + 1.0, high - 1.0), 0.0)

    def off(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0.0, _FAR[0], _probit(below(np.maximum(x, 0.0))))

    return _bracketed(off, target, (low, high), between, lambda low, high: high - low <= 1.0)[1]


def real_quantile(
    likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, level: ArrayLike, below: Below | None = None
) -> np.ndarray:
    """x with P(y <= x) = level (N,), sought in x, log x or logit x."""
    of, target, space = SCALES[likelihood.support], ndtri(level), likelihood.support
    probability_of = below or partial(_normal, likelihood, h, rho)

    def off(u: np.ndarray) -> np.ndarray:
        return _probit(probability_of(of(u)))

    middle = LINKS[space](likelihood.mean_at(h))
    middle = np.where(np.isfinite(middle), middle, 0.0)
    step = np.sqrt(rho) + np.broadcast_to(likelihood.kink(of(middle))[1], h.shape)
    low, high = middle - step, middle + step
    for _ in range(60):
        over, under = off(low) > target, off(high) < target
        if not (over | under).any():
            break
        width = high - low
        low, high = np.where(over, low - width, low), np.where(under, high + width, high)

    def between(low: np.ndarray, high: np.ndarray, share: np.ndarray) -> np.ndarray:
        return low + np.clip(share, 1e-3, 1.0 - 1e-3) * (high - low)

    def done(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        near, ends = high - low <= 1e-9 * (step + np.abs(low)), (of(low), of(high))
        if space != "real":  # where doubles end the quantile is 0
            near = near | (ends[1] < 1e-290) | (ends[0] == ends[1])
        return near | (ends[0] > 1.0 - 1e-14) if space == "unit" else near

    low, high = _bracketed(off, target, (low, high), between, done)
    return np.asarray(of((low + high) / 2))


def _normal(likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, x: np.ndarray) -> np.ndarray:
    return probability(likelihood, x, h, rho)


def _probit(p: np.ndarray) -> np.ndarray:
    return np.clip(ndtri(np.clip(p, 0.0, 1.0)), *_FAR)


def _bracketed(
    f: Callable[[np.ndarray], np.ndarray],
    target: Any,
    ends: tuple[np.ndarray, np.ndarray],
    between: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    done: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Shrink brackets of f = target, f rising, by secants; where one end stands still its f is halved (Illinois).

    ``between(low, high, share)`` is the point a share of the way. f(high) >= target and f(low) < target throughout.
    """
    low, high = ends
    f_low, f_high = f(low) - target, f(high) - target
    last = np.full(low.shape, 2)  # which end moved last: neither
    for i in range(200):
        if done(low, high).all():
            break
        with np.errstate(all="ignore"):
            share = -f_low / (f_high - f_low)
        share = np.where(np.isfinite(share) & (i % 5 != 4), share, 0.5)  # now and then a plain half
        x = between(low, high, share)
        value = f(x) - target
        up = value >= 0.0
        again, last = up == last, up
        high, low = np.where(up, x, high), np.where(up, low, x)
        f_low, f_high = np.where(up, f_low, value), np.where(up, value, f_high)
        f_low, f_high = np.where(again & up, f_low / 2, f_low), np.where(again & ~up, f_high / 2, f_high)
    return low, high
