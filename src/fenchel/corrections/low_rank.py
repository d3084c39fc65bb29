"""Sites with few directions, R = L L' with L (n, q), q <= 4: the expectation by a sum over a lattice.

    E prod exp gt_n = int phi(t) prod_n exp gt_n(L_n t) dt

Models with two or three latents, or with two or three sites, are of this kind. The only error is that of the lattice,
estimated by leaving out every other point. Only points near those that are not negligible on a first, coarse lattice
are summed. With four directions the refinement ends when every other point gives an error of 1e-2; the error of all
points was then measured as 1e-7. Moments of t give those of every eta and latent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import maximum_filter

from .clusters import Clusters, densities
from .sites import Correlations, Sites

_MOST = 4  # most directions
_SAME = 1e-9  # share of a variance that is left by the directions and treated as 0
_STEPS = (0.8, 0.4, 0.2, 0.1, 0.05)  # steps of the lattice in standard deviations of q, tried in turn
_COARSE = (12, 12, 12, 7)  # points on either side of the first coarse lattice, by the number of directions
_DEEP = (40.0, 40.0, 40.0, 12.0)  # nats below the maximum at which a point and its neighbours are negligible
_SETTLED = (1e-5, 1e-5, 1e-5, 1e-2)  # relative change from every other point at which the refinement ends
_NEARLY = 4e-2  # largest relative change with which the result is used at all
_PLACES = 2e6  # most points of a lattice
_WORK = 5e7  # most evaluated points times sites


@dataclass(frozen=True)
class Directions:
    """R = L L': loadings L (n, q), and pivot sites (q,) whose rows of L form a triangular matrix."""

    loading: np.ndarray
    pivot: np.ndarray

    def of(self, R: np.ndarray) -> np.ndarray:
        """The loadings (T, q) of targets that have correlations R (T, n) with the sites."""
        return np.asarray(np.linalg.solve(self.loading[self.pivot], R[:, self.pivot].T).T)


@dataclass(frozen=True)
class LowRank:
    """log E prod exp gt / z_n with its error, and the mean (q,) and covariance (q, q) of t."""

    directions: Directions
    total: float
    error: float
    mean: np.ndarray
    covariance: np.ndarray

    def moments(self, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E[x] (T,) and sd(x) (T,) of targets that have correlations R (T, n) with the sites."""
        g = self.directions.of(R)
        moved = self.covariance - np.eye(self.mean.size)
        return g @ self.mean, np.sqrt(np.maximum(1.0 + np.sum((g @ moved) * g, axis=1), 1e-12))


def low_rank(sites: Sites, correlations: Correlations) -> LowRank | None:
    """The integral over all sites; None if there are too many directions or the lattice is too large."""
    directions = directions_of(correlations.groups.n, lambda k: correlations.of_sites(np.array([k]))[0])
    return None if directions is None else _integrated(sites, directions)


def directions_of(n: int, row: Callable[[int], np.ndarray], most: int = _MOST) -> Directions | None:
    """Pivoted Cholesky factor of R from its rows (n,); None if R has more than ``most`` directions."""
    residual, L, pivot = np.ones(n), np.zeros((n, 0)), np.empty(0, dtype=np.int64)
    while residual.max() > _SAME:
        if pivot.size == most:
            return None
        k = int(np.argmax(residual))
        column = (row(k) - L @ L[k]) / np.sqrt(residual[k])
        L, pivot = np.column_stack([L, column]), np.append(pivot, k)
        residual = np.maximum(residual - column**2, 0.0)
        residual[pivot] = 0.0
    return Directions(L, pivot)


def _integrated(sites: Sites, directions: Directions) -> LowRank | None:
    """The integral over the points that are not negligible, by finer and finer lattices until it is constant."""
    n, q = directions.loading.shape
    everyone = Clusters(np.arange(n)[None], directions.loading[None], np.empty((1, 0)))
    reach, half = float(sites.x[-1]), _COARSE[q - 1]
    line = np.linspace(-reach, reach, 2 * half + 1)
    if float(line.size) ** q * n > _WORK:
        return None
    log_t = densities(sites, everyone, _product([line] * q), sloped=False)[0][0]
    alive = (log_t > log_t.max() - _DEEP[q - 1]).reshape([line.size] * q)
    alive = maximum_filter(alive, size=3, mode="constant")  # include the neighbours of each point
    ends = [line[np.flatnonzero(alive.any(axis=tuple(k for k in range(q) if k != i)))[[0, -1]]] for i in range(q)]
    best = None
    for step in _STEPS:
        lines = [step * np.arange(np.ceil(a / step), np.floor(b / step) + 1) for a, b in ends]
        if np.prod([float(line.size) for line in lines]) > _PLACES:
            break
        t = _product(lines)
        counts = alive[tuple(np.rint((t + reach) * (half / reach)).astype(int).T)]
        if counts.sum() * n > _WORK:
            break
        log_t = np.full(len(t), -np.inf)
        log_t[counts] = densities(sites, everyone, t[counts], sloped=False)[0][0]
        top = log_t.max()
        p = np.exp(log_t - top)
        mass = float(p.sum())
        every = tuple(slice(round(line[0] / step) % 2, None, 2) for line in lines)
        coarser = 2.0**q * float(p.reshape([line.size for line in lines])[every].sum())
        error = abs(coarser / mass - 1.0)  # of every other point; the error of all is far smaller
        total = float(top + np.log(mass) + q * np.log(step / np.sqrt(2.0 * np.pi)))
        t, p = t[counts], p[counts]
        mean = p @ t / mass
        best = LowRank(directions, total, error / 4.0, mean, ((t - mean).T * (p / mass)) @ (t - mean))
        if error <= _SETTLED[q - 1]:
            return best
    return best if best is not None and best.error <= _NEARLY / 4.0 else None


def _product(lines: list[np.ndarray]) -> np.ndarray:
    """The points (J, q) of a lattice."""
    return np.stack([axis.ravel() for axis in np.meshgrid(*lines, indexing="ij")], axis=1)
