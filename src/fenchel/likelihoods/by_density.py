"""What a likelihood that states its density alone can be asked: distribution function, moments and level, by summation.

    counts             F(x|eta) = sum_{k <= x} p(k|eta)
    other numbers      F(x|eta) = int p(y|eta) dy, over u with y = u, e^u or sigmoid(u)

For an integral the peak of the density in u is found, then how far one goes from it until the density has fallen by
sqrt(e): panels of sixteen nodes start there and double in width, so that heavy tails end. Slow, and for any density
with one peak; a likelihood that knows its own ``cdf``, ``mean_at`` and ``variance_at`` needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logit

from ..checks import problem
from ..linalg.arrays import ArrayLike
from ..linalg.functions import sigmoid

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


def _unknown(likelihood: Likelihood) -> Exception:
    return problem(
        likelihood.name,
        f"its distribution function is not known for support={likelihood.support!r}",
        "support 'real', 'count', 'positive', 'unit' or 'levels'",
        "Or give the likelihood cdf, mean_at and variance_at.",
    )


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
        raise _unknown(likelihood)
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
    of, density = SCALES[likelihood.support], _Density(likelihood, eta)
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


class _Density:
    """log p(y(u) | eta) dy/du of Q rows, at u (Q,) or (Q, ...); -inf where y leaves its support in doubles."""

    def __init__(self, likelihood: Likelihood, eta: np.ndarray) -> None:
        self.likelihood, self.eta = likelihood, eta

    def __call__(self, u: np.ndarray) -> np.ndarray:
        own, n = self.likelihood, u.size // self.eta.size
        y = np.asarray(SCALES[own.support](u)).ravel()
        inside = (
            np.isfinite(y)
            & ((own.support == "real") | (np.abs(u.ravel()) <= _LIMIT))
            & ((own.support == "real") | (y > 0.0))
            & ((own.support != "unit") | (y < 1.0))
        )
        rows = own if n == 1 else own.take(np.repeat(np.arange(self.eta.size), n))
        out = _log_density(rows, np.where(inside, y, 0.5), np.repeat(self.eta, n)) + _STRETCH[own.support](u).ravel()
        return np.where(inside & ~np.isnan(out), out, -np.inf).reshape(u.shape)
