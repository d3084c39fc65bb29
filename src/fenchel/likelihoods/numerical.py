"""The distribution of y computed numerically: for a likelihood that states only its density, and quantiles for all.

    counts             F(x|eta) = sum_{k <= x} p(k|eta)
    other numbers      F(x|eta) = int p(y|eta) dy, over u with y = u, e^u or sigmoid(u)

An integral starts from the peak of the density in u and from the distance at which the density has fallen by sqrt(e).
Panels of sixteen nodes start there and double in width, which also covers heavy tails. This is slow, and it works for
any density with one peak. A likelihood with its own ``cdf``, ``mean_at`` and ``variance_at`` does not need it.

    quantiles          P(y <= x) = E[F(x | eta)] = level,    eta ~ N(h, rho)

F as a function of eta falls or rises near one place over some width, the likelihood's ``kink(x)``. The panels of the
quadrature are placed there, in units of the width. A quantile is found by the secant method on the scale of ndtri P, on
which P is nearly linear, within a shrinking bracket. Where eta is not normal, ``below`` is P and (h, rho) its moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logit, ndtri

from ..checks import problem
from ..linalg.arrays import Array, ArrayLike, to_numpy
from ..linalg.functions import sigmoid
from ..linalg.quadrature import expect

if TYPE_CHECKING:
    from .base import Likelihood

LARGEST = 700.0  # the largest number whose exponential is one
MOST = 1e15  # a count beyond this is beyond doubles
_TERMS = 100_000  # of a sum over counts
_LIMIT = 200.0  # of log y or logit y: what checks of y let pass, and farther than any density goes
_CHUNK = 4096  # integrals at a time, of 500 nodes each
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_SIDE = np.concatenate([[0.5], 2.0 ** np.arange(0, 14)])
_OUT = np.concatenate([-_SIDE[::-1], [0.0], _SIDE])  # ends of the panels about the peak, in units of its width
_GRID = np.concatenate([-(2.0 ** np.arange(30, -6, -1)), [0.0], 2.0 ** np.arange(-5, 31)])  # where a peak is sought
SCALES: dict[str, Callable[[Any], Any]] = {
    "real": lambda u: u,
    "positive": lambda u: np.exp(np.clip(u, -LARGEST, LARGEST)),
    "unit": sigmoid,
}
LINKS: dict[str, Callable[[Any], Any]] = {"real": lambda x: x, "positive": np.log, "unit": logit}
_STRETCH: dict[str, Callable[[Any], Any]] = {  # log dy/du
    "real": lambda u: 0.0 * u,
    "positive": lambda u: np.clip(u, -LARGEST, LARGEST),
    "unit": lambda u: -np.abs(u) - 2.0 * np.log1p(np.exp(-np.abs(u))),
}
Below = Callable[[np.ndarray], np.ndarray]  # x (N,) -> P(y <= x), where eta has other marginals than normal ones
_FAR = (float(ndtri(1e-300)), float(ndtri(1.0 - 1e-16)))


def cdf(likelihood: Likelihood, x: ArrayLike, eta: np.ndarray) -> np.ndarray:
    """P(y <= x | eta), x broadcast against eta (N, M)."""
    eta, x = np.broadcast_arrays(np.asarray(eta, dtype=np.float64), x)
    each = likelihood.take(np.repeat(np.arange(eta.shape[0]), eta.shape[1]))
    with np.errstate(all="ignore"):
        if likelihood.support == "count":
            out = _sum(each, x.ravel(), eta.ravel())[0]
        else:
            to, t = LINKS[_scale(likelihood)](x.ravel()), eta.ravel()
            some = [slice(i, i + _CHUNK) for i in range(0, t.size, _CHUNK)]
            out = np.concatenate([_integrate(each.take(part), t[part], to[part])[0] for part in some])
            none = _at_zero(each, t)
            out = none + (1.0 - none) * out
    return np.clip(out, 0.0, 1.0).reshape(eta.shape)


def moments(likelihood: Likelihood, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[y|eta] and Var[y|eta], each like eta (N,)."""
    with np.errstate(all="ignore"):
        if likelihood.support == "count":
            _, first, second = _sum(likelihood, np.full(eta.shape, np.inf), eta)
        else:
            _scale(likelihood)
            some = 1.0 - _at_zero(likelihood, eta)
            _, first, second = some * _integrate(likelihood, eta, np.full(eta.shape, np.inf))
    return first, second - first**2


def level(likelihood: Likelihood, y: np.ndarray, w: np.ndarray) -> float:
    """The one eta that makes all rows most likely: the largest sum of w log p(y|eta)."""
    seen = np.flatnonzero(w > 0.0)
    if seen.size == 0:
        return 0.0
    own = likelihood.take(seen)
    rows, w = own.prepare(y[seen]), w[seen]

    def total(eta: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            each = [float(w @ own.log_density(np.full((w.size, 1), t), rows)[:, 0]) for t in eta]
        return np.where(np.isnan(each), -np.inf, each)

    marks = [float(np.quantile(mark, q)) for mark in own.landmarks(rows) for q in (0.0, 0.5, 1.0)]
    grid = np.unique(np.concatenate([_GRID, marks, [m + t for m in marks for t in (-1.0, 1.0)]]))
    return float(_peak(total, grid[None, :], total(grid)[None, :], 60)[0])


def _scale(likelihood: Likelihood) -> str:
    if likelihood.support not in SCALES or likelihood.n_predictors > 1:
        raise problem(
            likelihood.name,
            f"its distribution function is not known for support={likelihood.support!r}",
            "support 'real', 'count', 'positive', 'unit' or 'levels'",
            "Or give the likelihood cdf, mean_at and variance_at.",
        )
    return likelihood.support


def _peak(f: Callable[[np.ndarray], np.ndarray], grid: np.ndarray, values: np.ndarray, rounds: int) -> np.ndarray:
    """Where f, of one peak, is largest (Q,): the best of a grid (Q, G), then golden sections between its neighbours."""
    values = np.where(np.isnan(values), -np.inf, values)
    best, rows = np.argmax(values, axis=1), np.arange(grid.shape[0])
    low, high = grid[rows, np.maximum(best - 1, 0)], grid[rows, np.minimum(best + 1, grid.shape[1] - 1)]
    golden = (np.sqrt(5.0) - 1.0) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    f_left, f_right = f(left), f(right)
    for _ in range(rounds):
        down = f_left >= f_right
        low, high = np.where(down, low, left), np.where(down, right, high)
        new = np.where(down, high - golden * (high - low), low + golden * (high - low))
        f_new = f(new)
        left, right = np.where(down, new, right), np.where(down, left, new)
        f_left, f_right = np.where(down, f_new, f_right), np.where(down, f_left, f_new)
    return (low + high) / 2


def _log_density(likelihood: Likelihood, y: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """log p(y|eta), each (Q,), at rows that ``likelihood`` holds."""
    return np.asarray(likelihood.log_density(eta[:, None], likelihood.prepare(y))[:, 0])


def _at_zero(likelihood: Likelihood, eta: np.ndarray) -> np.ndarray:
    """P(y = 0 | eta), like eta (Q,), of a density that has mass there."""
    return np.exp(_log_density(likelihood, np.zeros(eta.shape), eta)) if likelihood.atom else np.zeros(eta.shape)


def _sum(likelihood: Likelihood, x: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """sum p, sum k p and sum k^2 p over counts k <= x; x = inf until the rest is too small to see."""
    total, first, second = np.zeros(eta.shape), np.zeros(eta.shape), np.zeros(eta.shape)
    least = likelihood.least
    going = x >= least
    for k in range(least, _TERMS):
        p = np.where(going, np.exp(_log_density(likelihood, np.where(going, float(k), float(least)), eta)), 0.0)
        total, first, second = total + p, first + k * p, second + k * k * p
        ended = (total > 1.0 - 1e-12) | ((total > 1.0 - 1e-9) & (k * k * p < 1e-14 * second))
        going = going & (k + 1 <= x) & ~ended
        if not going.any():
            return total, first, second
    got = f"a sum over its counts has not ended after {_TERMS} terms"
    raise problem(likelihood.name, got, "counts far below that, or a cdf of its own")


def _integrate(likelihood: Likelihood, eta: np.ndarray, to: np.ndarray) -> np.ndarray:
    """int p, int y p and int y^2 p over u up to ``to``, each divided by int p over all u: (3, Q)."""
    of = SCALES[likelihood.support]

    def density(u: np.ndarray) -> np.ndarray:
        """log p(y(u) | eta) dy/du at u (Q,) or (Q, ...); -inf where y leaves its support in doubles."""
        n = u.size // eta.size
        y = np.asarray(of(u)).ravel()
        inside = np.isfinite(y)
        if likelihood.support != "real":
            inside = inside & (np.abs(u.ravel()) <= _LIMIT) & (y > 0.0)
        if likelihood.support == "unit":
            inside = inside & (y < 1.0)
        own = likelihood if n == 1 else likelihood.take(np.repeat(np.arange(eta.size), n))
        out = _log_density(own, np.where(inside, y, 0.5), np.repeat(eta, n)) + _STRETCH[own.support](u).ravel()
        return np.where(inside & ~np.isnan(out), out, -np.inf).reshape(u.shape)

    limit = np.inf if likelihood.support == "real" else _LIMIT
    centre = eta if likelihood.noise else 0.0 * eta
    grid = np.clip(centre[:, None] + _GRID, -limit, limit)
    c = _peak(density, grid, density(grid), 24)
    top, low, high = density(c), np.full(c.shape, -40.0), np.full(c.shape, 40.0)  # of the log of the width
    for _ in range(20):
        width = (low + high) / 2
        near = np.minimum(density(c + np.exp(width)), density(c - np.exp(width))) > top - 0.5
        low, high = np.where(near, width, low), np.where(near, high, width)
    edges = c[:, None] + np.exp(low)[:, None] * _OUT

    def panels(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The three integrals between low and high (Q, n), over e^top."""
        half = (high - low)[..., None] / 2
        u = (low + high)[..., None] / 2 + half * _NODES
        p = half * _WEIGHTS * np.exp(density(u) - top[:, None, None])
        y = np.where(p > 0.0, of(u), 0.0)
        return np.stack([p.sum(axis=-1), (y * p).sum(axis=-1), (y * y * p).sum(axis=-1)])

    each = panels(edges[:, :-1], edges[:, 1:])
    passed = edges[:, 1:] <= to[:, None]
    last = np.minimum(passed.sum(axis=1), edges.shape[1] - 2)[:, None]  # the panel that ``to`` cuts
    start = np.take_along_axis(edges, last, axis=1)
    stop = np.clip(to[:, None], start, np.take_along_axis(edges, last + 1, axis=1))
    cut = np.where(passed.all(axis=1), 0.0, panels(start, stop)[:, :, 0])
    return ((each * passed).sum(axis=-1) + cut) / each[0].sum(axis=-1)


def _probability(likelihood: Likelihood, x: np.ndarray, h: np.ndarray, rho: np.ndarray) -> np.ndarray:
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


def quantile_of(
    likelihood: Any, h: np.ndarray, rho: np.ndarray, level: ArrayLike, below: Below | None = None
) -> np.ndarray:
    """One quantile of each row (N,); ``below`` is P(y <= x) where eta is not normal."""
    search = _count_quantile if likelihood.support == "count" else _real_quantile
    return search(likelihood, h, rho, level, below or (lambda x: _probability(likelihood, x, h, rho)))


def _count_quantile(
    likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, level: ArrayLike, below: Below
) -> np.ndarray:
    """The smallest k with P(y <= k) >= level (N,), sought in log(k + 1)."""
    target = ndtri(level)
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


def _real_quantile(
    likelihood: Likelihood, h: np.ndarray, rho: np.ndarray, level: ArrayLike, below: Below
) -> np.ndarray:
    """x with P(y <= x) = level (N,), sought in x, log x or logit x."""
    of, target, space = SCALES[likelihood.support], ndtri(level), likelihood.support

    def off(u: np.ndarray) -> np.ndarray:
        return _probit(below(of(u)))

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
        near, ends = high - low <= 1e-11 * (step + np.abs(low)), (of(low), of(high))
        if space != "real":  # where doubles end the quantile is 0
            near = near | (ends[1] < 1e-290) | (ends[0] == ends[1])
        return near | (ends[0] > 1.0 - 1e-14) if space == "unit" else near

    low, high = _bracketed(off, target, (low, high), between, done)
    return np.asarray(of((low + high) / 2))


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
