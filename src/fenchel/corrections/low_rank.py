"""Sites that move in few directions, R = L L' with L (n, q), q <= 4: the expectation itself, by a sum over a lattice.

    E prod exp gt_n = int phi(t) prod_n exp gt_n(L_n t) dt

Two or three latents, or two or three sites, are this. What is left is the error of the lattice, seen by leaving out
every other point of it. Moments of t give those of every eta and latent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .clusters import Clusters, densities
from .sites import Correlations, Sites

_MOST = 4  # directions
_SAME = 1e-9  # of a variance that the directions leave: none
_STEPS = (0.8, 0.4, 0.2, 0.1, 0.05)  # standard deviations of q
_COARSE = 12  # places on either side of a first look
_DEEP = 40.0  # nats below the top at which nothing counts
_SETTLED = 1e-5  # relative, between a lattice and every other point of it
_NEARLY = 4e-2  # the same that is still used, with its error
_PLACES = 1e6  # of a lattice
_WORK = 5e7  # places times sites


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
    reach = float(sites.x[-1])
    line = np.linspace(-reach, reach, 2 * _COARSE + 1)
    if not _affordable([line] * q, n):
        return None
    log_t, t = _looked([line] * q, sites, everyone)
    alive = t[log_t > log_t.max() - _DEEP]
    low, high = alive.min(axis=0) - reach / _COARSE, alive.max(axis=0) + reach / _COARSE
    found = None
    for step in _STEPS:
        lines = [step * np.arange(np.floor(a / step), np.ceil(b / step) + 1) for a, b in zip(low, high, strict=True)]
        if not _affordable(lines, n):
            break
        log_t, t = _looked(lines, sites, everyone)
        top = log_t.max()
        p = np.exp(log_t - top)
        mass = float(p.sum())
        every = tuple(slice(round(line[0] / step) % 2, None, 2) for line in lines)
        half = 2.0**q * float(p.reshape([line.size for line in lines])[every].sum())
        error = abs(half / mass - 1.0)
        total = float(top + np.log(mass) + q * np.log(step / np.sqrt(2.0 * np.pi)))
        mean = p @ t / mass
        found = LowRank(directions, total, error / 4.0, mean, ((t - mean).T * (p / mass)) @ (t - mean))
        if error <= _SETTLED:
            return found
    return found if found is not None and found.error <= _NEARLY / 4.0 else None


def _affordable(lines: list[np.ndarray], n: int) -> bool:
    places = float(np.prod([float(line.size) for line in lines]))
    return places <= _PLACES and places * n <= _WORK


def _looked(lines: list[np.ndarray], sites: Sites, everyone: Clusters) -> tuple[np.ndarray, np.ndarray]:
    """log of the integrand on a lattice, and its places (J, q)."""
    t = np.stack([axis.ravel() for axis in np.meshgrid(*lines, indexing="ij")], axis=1)
    return densities(sites, everyone, t, sloped=False)[0][0], t
