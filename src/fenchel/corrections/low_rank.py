"""Sites that move in few directions, R = L L' with L (n, q), q <= 4: the expectation itself, by a sum over a lattice.

    E prod exp gt_n = int phi(t) prod_n exp gt_n(L_n t) dt

Two or three latents, or two or three sites, are this. What is left is the error of the lattice, seen by leaving out
every other point of it. Only places near those that count at a first, coarse look are summed, and four directions end
at an error of 1e-2 of every other point: that of all points was 1e-7 in that case. Moments of t give those of every eta
and latent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import maximum_filter

from .clusters import Clusters, densities
from .sites import Correlations, Sites

_MOST = 4  # directions
_SAME = 1e-9  # of a variance that the directions leave: none
_STEPS = (0.8, 0.4, 0.2, 0.1, 0.05)  # standard deviations of q
_COARSE = (12, 12, 12, 7)  # places on either side of a first look, by the number of directions
_DEEP = (40.0, 40.0, 40.0, 12.0)  # nats below the top at which a place and its neighbours count for nothing
_SETTLED = (1e-5, 1e-5, 1e-5, 1e-2)  # relative, between a lattice and every other point of it, by directions
_NEARLY = 4e-2  # the same that is still used, with its error
_PLACES = 2e6  # of a lattice
_WORK = 5e7  # places that count, times sites


@dataclass(frozen=True)
class Directions:
    """R = L L': loadings L (n, q), and sites (q,) whose rows of L are a triangle."""

    loading: np.ndarray
    pivot: np.ndarray

    def of(self, R: np.ndarray) -> np.ndarray:
        """The loadings (T, q) of targets by their correlations with the sites R (T, n)."""
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
        """E[x] and sd(x) (T,) of targets with correlations R (T, n) with the sites."""
        g = self.directions.of(R)
        moved = self.covariance - np.eye(self.mean.size)
        return g @ self.mean, np.sqrt(np.maximum(1.0 + np.sum((g @ moved) * g, axis=1), 1e-12))


def low_rank(sites: Sites, correlations: Correlations) -> LowRank | None:
    """The integral of all sites; None where it is not to be had."""
    directions = directions_of(correlations.groups.n, lambda k: correlations.of_sites(np.array([k]))[0])
    return None if directions is None else _integrated(sites, directions)


def directions_of(n: int, row: Callable[[int], np.ndarray], most: int = _MOST) -> Directions | None:
    """By a Cholesky factor of R with pivots, from its rows (n,); None where it has more than ``most`` directions."""
    left, L, pivot = np.ones(n), np.zeros((n, 0)), np.empty(0, dtype=np.int64)
    while left.max() > _SAME:
        if pivot.size == most:
            return None
        k = int(np.argmax(left))
        column = (row(k) - L @ L[k]) / np.sqrt(left[k])
        L, pivot = np.column_stack([L, column]), np.append(pivot, k)
        left = np.maximum(left - column**2, 0.0)
        left[pivot] = 0.0
    return Directions(L, pivot)


def _integrated(sites: Sites, directions: Directions) -> LowRank | None:
    """The integral over the places where the integrand lives, by finer lattices until nothing moves."""
    n, q = directions.loading.shape
    everyone = Clusters(np.arange(n)[None], directions.loading[None], np.empty((1, 0)))
    reach, half = float(sites.x[-1]), _COARSE[q - 1]
    line = np.linspace(-reach, reach, 2 * half + 1)
    if float(line.size) ** q * n > _WORK:
        return None
    log_t = densities(sites, everyone, _product([line] * q), sloped=False)[0][0]
    alive = (log_t > log_t.max() - _DEEP[q - 1]).reshape([line.size] * q)
    alive = maximum_filter(alive, size=3, mode="constant")  # with the neighbours of each place
    ends = [line[np.flatnonzero(alive.any(axis=tuple(k for k in range(q) if k != i)))[[0, -1]]] for i in range(q)]
    found = None
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
        error = abs(coarser / mass - 1.0)  # of every other point; that of all falls as exp(-c / step^2)
        total = float(top + np.log(mass) + q * np.log(step / np.sqrt(2.0 * np.pi)))
        t, p = t[counts], p[counts]
        mean = p @ t / mass
        found = LowRank(directions, total, error / 4.0, mean, ((t - mean).T * (p / mass)) @ (t - mean))
        if error <= _SETTLED[q - 1]:
            return found
    return found if found is not None and found.error <= _NEARLY / 4.0 else None


def _product(lines: list[np.ndarray]) -> np.ndarray:
    """The places (J, q) of a lattice."""
    return np.stack([axis.ravel() for axis in np.meshgrid(*lines, indexing="ij")], axis=1)
