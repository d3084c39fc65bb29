"""A mixture between the points of a lattice: marginals at places half as far apart, from those of the points.

    p(x) = sum_j v_j p_k(m_k + s_k (x - m_j) / s_j) s_k / s_j,     k = k(j) the point nearest to place j
    m_j = sum_k B_jk m_k,   log s_j = sum_k B_jk log s_k,          B a cubic through all points

v_j is the interpolated density of theta at place j. Where an sd of groups may vanish, neighbouring points of a lattice
have effects whose sds differ by a factor of three: their mixture has steps, and the ends of its intervals are off by a
third of an sd. Means and variances stay those of the points, which a lattice has right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from ...linalg.arrays import Array, ArrayLike, to_numpy
from ...marginals import Levels, Marginals
from .density import LogDensity

_FINER = {1: 4, 2: 2}  # places along each direction for one of the lattice, by the number of directions
_LEAST = 1e-4  # the share of a place that is mixed
_STEP = 0.7  # of log sd or of means in sds between points, below which their mixture is smooth enough


@dataclass(frozen=True)
class Moved:
    """Marginals moved and stretched: each unknown is ``mean`` + ``scale`` (own - its mean)."""

    own: Marginals
    mean: np.ndarray
    scale: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        return np.asarray(self.scale**2 * to_numpy(self.own.variance))

    @property
    def sd(self) -> np.ndarray:
        return np.asarray(self.scale * to_numpy(self.own.sd))

    @property
    def skewness(self) -> np.ndarray:
        return np.asarray(to_numpy(self.own.skewness))

    def _back(self, x: ArrayLike) -> np.ndarray:
        return np.asarray(to_numpy(self.own.mean) + (np.asarray(x) - self.mean) / self.scale)

    def cdf(self, x: ArrayLike) -> Array:
        return self.own.cdf(self._back(x))

    def density(self, x: ArrayLike) -> Array:
        return to_numpy(self.own.density(self._back(x))) / self.scale

    def quantile(self, q: Levels) -> np.ndarray:
        many = (..., None) if np.ndim(q) else ...
        own, mean = to_numpy(self.own.quantile(q)), to_numpy(self.own.mean)
        return np.asarray(self.mean[many] + self.scale[many] * (own - mean[many]))

    def interval(self, level: float = 0.95) -> np.ndarray:
        return self.quantile([0.5 - level / 2, 0.5 + level / 2])


@dataclass(frozen=True)
class Between:
    """Places between K points.

    Attributes
    ----------
    weights : array (J,) of sum 1
    nearest : array of int (J,)
        The point that is nearest to each place.
    through : array (J, K)
        What values at the points are at the places.
    """

    weights: np.ndarray
    nearest: np.ndarray
    through: np.ndarray

    @classmethod
    def of(cls, density: LogDensity, thetas: np.ndarray) -> Between | None:
        """Of the points at ``thetas`` of a lattice; None where there are too few, or too many directions."""
        u = density.coordinates.u(thetas)
        K, d = u.shape
        if d not in _FINER or (d + 1) * (d + 2) // 2 + 1 > K:
            return None
        tree = cKDTree(u)
        apart = float(tree.query(u, k=2)[0][:, 1].min())
        steps = [np.array(way) * apart / _FINER[d] for way in product(range(-_FINER[d], _FINER[d] + 1), repeat=d)]
        places = np.unique(np.round(np.concatenate([u + step for step in steps]), 6), axis=0)
        log_v = density.at_u(places)
        v = np.exp(log_v - logsumexp(log_v))
        places, v = places[v > _LEAST], v[v > _LEAST]
        through = RBFInterpolator(u, np.eye(K), kernel="cubic", degree=1)(places)
        return cls(v / v.sum(), np.asarray(tree.query(places)[1]), np.asarray(through))

    def parts(self, parts: Sequence[Marginals]) -> list[Moved] | None:
        """Marginals at the places, from those at the points; None where these are near enough to one another."""
        mean = np.stack([to_numpy(part.mean) for part in parts])
        sd = np.stack([to_numpy(part.sd) for part in parts])
        if mean.ndim != 2 or not (sd > 0.0).all() or self._smooth(mean, sd):
            return None
        means, sds = self.through @ mean, np.exp(self.through @ np.log(sd))
        low, high = sd.min(axis=0), sd.max(axis=0)
        sds = np.clip(sds, 0.5 * low, 2.0 * high)
        return [Moved(parts[k], means[j], sds[j] / sd[k]) for j, k in enumerate(self.nearest)]

    def _smooth(self, mean: np.ndarray, sd: np.ndarray) -> bool:
        """Whether every unknown is nearly the same at the points next to one another along B's strongest rows."""
        near = self.through @ mean - mean[self.nearest], np.log(sd[self.nearest]) - self.through @ np.log(sd)
        moved = np.abs(near[0]) / sd[self.nearest]
        return bool(max(moved.max(initial=0.0), np.abs(near[1]).max(initial=0.0)) < _STEP / 2)
