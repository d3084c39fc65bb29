"""The posterior of theta: its log density between the points that were fitted, marginals, and draws.

    log p(theta(u) | y) + log |d theta / du| = -|u|^2 / 2 + r(u),    r quadratic and radial functions through the points

r is small and smooth in coordinates in which the posterior is nearly normal, and taken as constant beyond the points,
so that the tails are those of the coordinates. Integrals are sums over a fine lattice of u, or over a net in more than
two dimensions. ``ThetaPosterior`` has the marginals of theta, of anything that theta says, and joints of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from ...corrections.grids import GridAnswers, MarginalGrid
from ...linalg.arrays import Array, Seed
from ...marginals import Levels, probabilities
from ..mode import Coordinates
from .designs import log_normal
from .response_surface import DEGREE, ResponseSurface

_SMOOTH = 1e-6  # of the values: rounding between points that are close together
_WIDE = 1.25  # sd of the net's draws
_FINE = {1: 0.02, 2: 0.08}  # spacings of lattices
_TAIL = 6.5  # how far beyond the centre, in u
_AROUND = 1.25  # of a point, in u: the farthest that anything between points is from one
_NET = 1 << 14
_PLACES = 1 << 12  # of the net, where two densities are compared


class LogDensity:
    """The interpolated log density of theta.

    Attributes
    ----------
    coordinates : Coordinates
    log_total : float
        log of its integral: the evidence.

    ``slopes`` (K, d) of the log density of u make r a polynomial of ``degree`` (``response_surface.py``).
    """

    def __init__(
        self,
        coordinates: Coordinates,
        u: np.ndarray,
        values: np.ndarray,
        bounds: np.ndarray,
        slopes: np.ndarray | None = None,
        degree: int = DEGREE,
    ) -> None:
        self.coordinates, self.bounds, self.degree = coordinates, bounds, degree
        first = np.sort(np.unique(np.round(u, 6), axis=0, return_index=True)[1])
        u, values = u[first], values[first]
        self._slopes = None if slopes is None else slopes[first] + u
        rest = values + coordinates.log_jacobian(u) + 0.5 * (u * u).sum(axis=1)
        self.level = float(rest.max())
        self.low, self.high = u.min(axis=0), u.max(axis=0)
        self._u, self._rest = u, rest - self.level
        self._cells: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def resolved(self) -> bool:
        """Whether the points are near enough for a function between them."""
        return self._cells is None

    def match(self, u: np.ndarray, shares: np.ndarray) -> None:
        """Give the places nearest to each of the points u (K, d) its share (K,) of the whole: where points are too far
        apart for a function between them, draws then say what a sum over the points says.
        """
        self._cells = u, shares
        self.__dict__.pop("_weighted", None)

    @cached_property
    def _through(self) -> Any:
        if self._slopes is not None:
            return ResponseSurface(self._u, self._rest, self._slopes, self.degree)
        m, d = self._u.shape
        degree = 2 if m >= (d + 1) * (d + 2) // 2 + 2 else 1 if m > d + 1 else 0
        return RBFInterpolator(self._u, self._rest, kernel="cubic", degree=degree, smoothing=_SMOOTH)

    def at_u(self, u: np.ndarray, free: bool = False) -> np.ndarray:
        """log of the density of u (m,) at u (m, d), up to log p(y); ``free``: with r beyond the points as it runs."""
        rest = self._through(u if free or self._slopes is not None else self._near(u))
        inside = self._inside(self.coordinates.theta(u))
        return np.where(inside, self.level + np.minimum(rest, 3.0) - 0.5 * (u * u).sum(axis=1), -np.inf)

    def _near(self, u: np.ndarray) -> np.ndarray:
        """u itself, or the place on its way to the nearest point where points are no longer around."""
        apart, which = self._tree.query(u)
        nearest = self._u[which]
        return np.asarray(nearest + (u - nearest) * np.minimum(1.0, _AROUND / np.maximum(apart, _AROUND))[:, None])

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self._u)

    def _inside(self, theta: np.ndarray) -> np.ndarray:
        return np.asarray(((theta >= self.bounds[:, 0]) & (theta <= self.bounds[:, 1])).all(axis=-1))

    def __call__(self, theta: np.ndarray) -> np.ndarray:
        """log p(theta | y) over the free entries (m,) at theta (m, n)."""
        u = self.coordinates.u(theta)
        return self.at_u(u) - self.coordinates.log_jacobian(u) - self.log_total

    @cached_property
    def _net(self) -> tuple[np.ndarray, np.ndarray]:
        """u (m, d) and the log of what each stands for of an integral."""
        d = self.coordinates.dimension
        if d in _FINE:
            ends = np.maximum(self.high, 0.0) + _TAIL / 2, np.minimum(self.low, 0.0) - _TAIL / 2
            axes = [np.arange(low, high, _FINE[d]) for low, high in zip(ends[1], ends[0], strict=True)]
            u = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
            return u, np.full(len(u), d * np.log(_FINE[d]))
        return self._spread(d)

    def _spread(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws of a net: half about the centre, half about the points, as many as each has of the density."""
        near = self._rest - 0.5 * (self._u**2).sum(axis=1)
        share = np.exp(near - logsumexp(near))
        net = qmc.Sobol(d + 1, scramble=True, rng=0).random(_NET)
        e, half = ndtri(net[:, :d]), net[:, d] < 0.5
        which = np.minimum(np.searchsorted(np.cumsum(share), 2.0 * net[:, d] - 1.0), share.size - 1)
        u = np.where(half[:, None], _WIDE * e, self._u[which] + e)
        about = np.exp(-0.5 * cdist(u, self._u, "sqeuclidean")) @ (share * (2.0 * np.pi) ** (-0.5 * d))
        wide = np.exp(log_normal(u / _WIDE) - d * np.log(_WIDE))
        return u, -np.log(0.5 * (wide + about)) - np.log(_NET)

    @property
    def points(self) -> np.ndarray:
        """The u (K, d) that it goes through."""
        return self._u

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Some u (m, d) where the density may be large, and the log of what each stands for."""
        u, log_mass = self._net
        few = slice(None, None, max(1, len(u) // _PLACES))
        return u[few], log_mass[few]

    @property
    def weighted_u(self) -> tuple[np.ndarray, np.ndarray]:
        """u (m, d) and weights of sum 1 (m,)."""
        return self._weighted[:2]

    @cached_property
    def _weighted(self) -> tuple[np.ndarray, np.ndarray, float]:
        u, log_mass = self._net
        log_w = self.at_u(u) + log_mass
        total = float(logsumexp(log_w))
        w = np.exp(log_w - total)
        if self._cells is not None:
            points, shares = self._cells
            cell = cKDTree(points).query(u)[1]
            w *= (shares / np.maximum(np.bincount(cell, w, len(shares)), 1e-300))[cell]
        kept = w > 1e-9 / len(w)
        return u[kept], w[kept] / w[kept].sum(), total

    @property
    def log_total(self) -> float:
        return self._weighted[2]

    @property
    def draws(self) -> tuple[np.ndarray, np.ndarray]:
        """thetas (m, n) and weights of sum 1 (m,)."""
        u, w, _ = self._weighted
        return self.coordinates.theta(u), w


_GRID = np.linspace(-8.0, 8.0, 161)  # of a marginal, in its sds
_OTHERS = 512  # places of the other entries: of a net
_LINE = np.linspace(-9.0, 9.0, 121)  # the same where there is one other entry, in its sds


class Values:
    """Unknowns as weighted points: what ``ThetaPosterior.of`` returns.

    values : array (m, k);  weights : array (m,) of sum 1
    """

    def __init__(self, values: np.ndarray, weights: np.ndarray) -> None:
        self.values, self.weights = values, weights

    @cached_property
    def mean(self) -> np.ndarray:
        """Means (k,)."""
        return np.asarray(self.weights @ self.values)

    @cached_property
    def variance(self) -> np.ndarray:
        """Variances (k,)."""
        return np.asarray(self.weights @ (self.values - self.mean) ** 2)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations (k,)."""
        return np.sqrt(self.variance)

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Values in order (m, k), and the probabilities below the middle of each."""
        order = np.argsort(self.values, axis=0)
        w = self.weights[order]
        return np.take_along_axis(self.values, order, axis=0), np.cumsum(w, axis=0) - 0.5 * w

    def quantile(self, q: Levels) -> np.ndarray:
        """Quantiles: (k,) for one q, (k, Q) for Q of them."""
        levels, (x, below) = probabilities("quantile", q), self._sorted
        out = np.array([np.interp(np.atleast_1d(levels), below[:, j], x[:, j]) for j in range(x.shape[1])])
        out = out.reshape(x.shape[1], -1)
        return out[:, 0] if levels.ndim == 0 else out

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Lower and upper ends (k, 2) of the central interval of probability ``level``."""
        inside = float(probabilities("interval", level))
        return self.quantile([0.5 - inside / 2, 0.5 + inside / 2])


class ThetaPosterior(GridAnswers):
    """The hyperparameters given y: itself the marginals of theta, on the scale on which it is learned.

    Attributes
    ----------
    names : list of str
        Of the entries of theta.
    mode : array (n,)
        About which it was integrated.
    peak : array (n,)
        Where the density that was integrated is largest.
    free : list of int
        The entries that were integrated over; the others are held at a bound.
    """

    def __init__(
        self,
        names: Sequence[str],
        mode: np.ndarray,
        free: Sequence[int],
        density: LogDensity | None,
        peak: np.ndarray | None = None,
    ) -> None:
        self.names, self.mode, self.free, self._log_density = list(names), mode, list(free), density
        self.peak = mode if peak is None else peak

    @property
    def log_density(self) -> LogDensity | None:
        """As a function of theta; None where nothing was integrated over."""
        return self._log_density

    @cached_property
    def _draws(self) -> tuple[np.ndarray, np.ndarray]:
        if self._log_density is None:
            return self.mode[None, :], np.ones(1)
        return self._log_density.draws

    def of(self, ask: Callable[[np.ndarray], Any], size: int = 4096) -> Values:
        """The posterior of what is asked of theta (n,): one number or several, such as an sd, a range, a ratio."""
        thetas, w = self._thinned(size)
        values = np.array([np.atleast_1d(np.asarray(ask(theta), dtype=np.float64)) for theta in thetas])
        return Values(values, w)

    def beside(
        self, ask: Callable[[np.ndarray, float], Any], points: np.ndarray, moments: np.ndarray, size: int = 4096
    ) -> Values:
        """The posterior of what is asked of theta and of one unknown that is normal given theta.

        ``moments`` (K, 2) are its mean and sd at ``points`` (K, n), and a smooth function of theta between them.
        """
        thetas, w = self._thinned(size)
        at = self.between(points, moments, thetas)
        even = (np.random.default_rng(0).permutation(len(thetas)) + 0.5) / len(thetas)
        z = ndtri(even)
        unknown = at[:, 0] + np.maximum(at[:, 1], 0.0) * z
        values = np.array([ask(theta, float(x)) for theta, x in zip(thetas, unknown, strict=True)], dtype=np.float64)
        return Values(values, w)

    def between(self, points: np.ndarray, values: np.ndarray, thetas: np.ndarray) -> np.ndarray:
        """Values (m, k) at thetas (m, n) of smooth functions of theta that have ``values`` (K, k) at ``points``."""
        if len(points) <= len(self.free) + 1:
            return np.tile(values[0], (len(thetas), 1))
        through = RBFInterpolator(self.u(points), values, kernel="linear", degree=1)
        return np.asarray(through(self.u(thetas)))

    def _thinned(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """At most about ``size`` thetas (m, n) and their weights of sum 1."""
        thetas, w = self._draws
        if len(w) > size:  # as many as asked for, evenly by their weights
            order = np.lexsort(thetas.T[::-1])
            ends = np.cumsum(w[order])
            pick = order[np.minimum(np.searchsorted(ends, (np.arange(size) + 0.5) / size), len(w) - 1)]
            kept, counts = np.unique(pick, return_counts=True)
            thetas, w = thetas[kept], counts / size
        return thetas, w

    def u(self, theta: np.ndarray) -> np.ndarray:
        """Where thetas (m, n) are in coordinates in which the posterior is nearly standard normal (m, free entries)."""
        return np.zeros((len(theta), 0)) if self._log_density is None else self._log_density.coordinates.u(theta)

    def sample(self, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Draws of theta (size, n)."""
        thetas, w = self._draws
        return thetas[np.random.default_rng(rng).choice(len(w), size=size, p=w)]

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of theta (n, n); 0 for entries that are held."""
        thetas, w = self._draws
        off = thetas - w @ thetas
        return np.asarray((off * w[:, None]).T @ off)

    # -- marginals by quadrature -------------------------------------------------------------------
    @cached_property
    def _grid(self) -> MarginalGrid:
        thetas, w = self._draws
        mean, sd, x = w @ thetas, np.sqrt(np.diag(self.covariance)), _GRID
        centre, scale, logs = mean.copy(), np.zeros(mean.size), np.zeros((mean.size, x.size))
        for i in self.free:  # a density that a bound cuts off is taken up to the bound: no curve goes through a cliff
            assert self._log_density is not None
            low, high = np.clip(mean[i] + sd[i] * x[[0, -1]], *self._log_density.bounds[i])
            scale[i] = (high - low) / (x[-1] - x[0])
            centre[i] = low - scale[i] * x[0]
            logs[i] = self._along([i], (centre[i] + scale[i] * x)[:, None].clip(low, high))
        return MarginalGrid(centre, scale, x, logs)

    @property
    def _like(self) -> Array:
        return self.mode

    def _along(self, some: list[int], at: np.ndarray) -> np.ndarray:
        """log of the density of some entries (m,) where they have the values ``at`` (m, len(some))."""
        density, rest = self._log_density, [i for i in self.free if i not in some]
        assert density is not None
        out = np.full(len(at), -np.inf)
        C, mean = self.covariance, self._draws[1] @ self._draws[0]
        if not rest:
            thetas = np.tile(self.mode, (len(at), 1))
            thetas[:, some] = at
            return np.maximum(density(thetas), -100.0 + np.max(density(thetas)))
        gain = np.linalg.solve(C[np.ix_(some, some)], C[np.ix_(some, rest)])
        left = C[np.ix_(rest, rest)] - C[np.ix_(rest, some)] @ gain
        L = 1.3 * np.linalg.cholesky(left + 1e-12 * np.trace(left) * np.eye(len(rest)))
        e = _LINE[:, None] if len(rest) == 1 else ndtri(qmc.Sobol(len(rest), scramble=True, rng=0).random(_OTHERS))
        shrink = np.zeros(len(e)) if len(rest) == 1 else 0.5 * (e * e).sum(axis=1)
        thetas = np.tile(self.mode, (len(e), 1))
        for j, value in enumerate(at):
            thetas[:, some] = value
            thetas[:, rest] = mean[rest] + (value - mean[some]) @ gain + e @ L.T
            out[j] = logsumexp(density(thetas) + shrink)
        out += float(np.log(np.diag(L)).sum())
        out += np.log(_LINE[1] - _LINE[0]) if len(rest) == 1 else 0.5 * len(rest) * np.log(2 * np.pi) - np.log(_OTHERS)
        return np.maximum(out, out.max() - 100.0)

    def to_frame(self) -> Any:
        """Mean, sd and 95 % interval of every entry of theta."""
        import pandas as pd

        ends = self.interval()
        columns = {"mean": self.mean, "sd": self.sd, "lower": ends[:, 0], "upper": ends[:, 1]}
        return pd.DataFrame(columns, index=self.names)

    def __repr__(self) -> str:
        return f"ThetaPosterior({', '.join(self.names)})"
