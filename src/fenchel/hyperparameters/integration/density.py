"""The log density of theta between the points where it was evaluated, and the marginals that follow from it.

log p(theta(u) | y) + log |d theta / du| = -|u|^2 / 2 + r(u),    r a quadratic and radial functions through all points

r is small and smooth in coordinates in which the posterior is nearly normal, and taken as constant beyond the points,
so that the tails are those of the coordinates. Integrals are sums over a fine lattice of u, or over a net in more than
two dimensions.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.spatial import cKDTree
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from ..coordinates import Coordinates
from .designs import log_normal

_SMOOTH = 1e-6  # of the values: rounding between points that are close together
_WIDE = 1.25  # sd of the net's draws
_FINE = {1: 0.02, 2: 0.08}  # spacings of lattices
_TAIL = 6.5  # how far beyond the centre, in u
_AROUND = 1.25  # of a point, in u: the farthest that anything between points is from one
_NET = 1 << 14
_DERIVED = ("_through", "_tree", "_net", "_weighted")  # from the points


class LogDensity:
    """The interpolated log density of theta.

    Attributes
    ----------
    coordinates : Coordinates
    log_total : float
        log of its integral: the evidence.
    """

    def __init__(self, coordinates: Coordinates, u: np.ndarray, values: np.ndarray, bounds: np.ndarray) -> None:
        self.coordinates, self.bounds = coordinates, bounds
        _, first = np.unique(np.round(u, 6), axis=0, return_index=True)
        u, values = u[np.sort(first)], values[np.sort(first)]
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
        m, d = self._u.shape
        degree = 2 if m >= (d + 1) * (d + 2) // 2 + 2 else 1 if m > d + 1 else 0
        return RBFInterpolator(self._u, self._rest, kernel="cubic", degree=degree, smoothing=_SMOOTH)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made again from the points."""
        return {key: value for key, value in self.__dict__.items() if key not in _DERIVED}

    def at_u(self, u: np.ndarray, free: bool = False) -> np.ndarray:
        """log of the density of u (m,) at u (m, d), up to log p(y); ``free``: with r beyond the points as it runs."""
        rest = self._through(u if free else self._near(u))
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
        about = log_normal(u[:, None, :] - self._u[None]) + np.log(np.maximum(share, 1e-300))
        wide = log_normal(u / _WIDE) - d * np.log(_WIDE)
        return u, -np.logaddexp(wide + np.log(0.5), logsumexp(about, axis=1) + np.log(0.5)) - np.log(_NET)

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
