"""Mixtures of marginals: each unknown has sum_k w_k p_k, every p_k given by one that answers ``Marginals``.

P(unknown <= x) = sum_k w_k P_k(unknown <= x),   E, Var and the third moment by those of the parts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.spatial import cKDTree
from scipy.special import logsumexp, ndtri

from ...linalg.arrays import Array, ArrayLike, to_numpy
from ...marginals import Levels, MarginalAnswers, Marginals, probabilities
from .theta import LogDensity

TOL = 1e-9  # of probabilities, on the scale of normal quantiles
MAX_ROUNDS = 60  # of false positions
FINER = {1: 4, 2: 2}  # places along each direction for one of the lattice, by the number of directions
LEAST_SHARE = 1e-4  # the share of a place that is mixed
SMOOTH_STEP = 0.7  # of log sd, or of means in sds, between points whose mixture is smooth enough


class Mixture(MarginalAnswers):
    """Marginals as a mixture of others, in numpy.

    Parameters
    ----------
    weights : array (K,) of sum 1
    parts : sequence of Marginals (K), all of the same unknowns

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters.integration import Mixture
    >>> from fenchel.marginals import NormalMarginals
    >>> parts = [NormalMarginals(np.array([m]), np.ones(1)) for m in (-2.0, 2.0)]
    >>> both = Mixture([0.5, 0.5], parts)
    >>> both.variance, both.quantile(0.5).round(6) + 0.0
    (array([5.]), array([0.]))
    """

    def __init__(self, weights: ArrayLike, parts: Sequence[Marginals]) -> None:
        self.weights, self.parts = np.asarray(weights, dtype=np.float64), list(parts)

    def _average(self, ask: Callable[[Marginals], Array]) -> np.ndarray:
        """sum_k w_k of what each part answers."""
        total = self.weights[0] * to_numpy(ask(self.parts[0]))
        for w, part in zip(self.weights[1:], self.parts[1:], strict=True):
            total = total + w * to_numpy(ask(part))
        return np.asarray(total)

    @cached_property
    def mean(self) -> np.ndarray:
        """Means."""
        return self._average(lambda part: part.mean)

    @cached_property
    def variance(self) -> np.ndarray:
        """Variances: of the parts, and between their means."""
        mean = self.mean
        return self._average(lambda part: to_numpy(part.variance) + (to_numpy(part.mean) - mean) ** 2)

    @property
    def _unknowns_like(self) -> np.ndarray:
        return self.mean

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(self.variance)

    @property
    def skewness(self) -> np.ndarray:
        """Third standardised moments; 0 for an unknown without variance."""
        mean, variance = self.mean, self.variance

        def third(part: Marginals) -> np.ndarray:
            off, v = to_numpy(part.mean) - mean, to_numpy(part.variance)
            return np.asarray(to_numpy(part.skewness) * v**1.5 + 3.0 * off * v + off**3)

        return self._average(third) / np.where(variance > 0.0, variance, np.inf) ** 1.5

    def _cdf(self, x: np.ndarray) -> np.ndarray:
        return np.minimum(self._average(lambda part: part.cdf(x)), 1.0)  # weights sum to 1 but for rounding

    def _density(self, x: np.ndarray) -> np.ndarray:
        return self._average(lambda part: part.density(x))

    def quantile(self, q: Levels) -> np.ndarray:
        """Quantiles: the shape of ``mean`` for one q, with an axis of Q at the end for Q of them."""
        levels = probabilities("quantile", q)
        if len(self.parts) == 1:
            return to_numpy(self.parts[0].quantile(q))
        each = np.stack([to_numpy(part.quantile(np.atleast_1d(levels))) for part in self.parts])
        found = [
            crossing(self._cdf, each[..., j].min(axis=0), each[..., j].max(axis=0), float(level))
            for j, level in enumerate(np.atleast_1d(levels))
        ]
        return found[0] if levels.ndim == 0 else np.stack(found, axis=-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self.parts)} posteriors"


@dataclass(frozen=True)
class Rescaled(MarginalAnswers):
    """Marginals shifted and scaled: each unknown is ``mean`` + ``scale`` (own - its mean)."""

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
class FinerLattice:
    """Places between the K points of a lattice: marginals at places half as far apart, from those of the points.

    p(x) = sum_j v_j p_k(m_k + s_k (x - m_j) / s_j) s_k / s_j,     k = k(j) the point nearest to place j
    m_j = sum_k B_jk m_k,   log s_j = sum_k B_jk log s_k,          B a cubic through all points

    v_j is the interpolated density of theta at place j. Where an sd of groups may vanish, effects at neighbouring
    points have sds that differ by a factor of three: their mixture has steps, and the ends of its intervals are off
    by a third of an sd. Means and variances stay those of the points, which a lattice has right.

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
    def of(cls, density: LogDensity, thetas: np.ndarray) -> FinerLattice | None:
        """Of the points at ``thetas`` of a lattice; None where there are too few, or too many directions."""
        u = density.coordinates.u(thetas)
        K, d = u.shape
        if d not in FINER or (d + 1) * (d + 2) // 2 + 1 > K:
            return None
        tree = cKDTree(u)
        apart = float(tree.query(u, k=2)[0][:, 1].min())
        steps = [np.array(way) * apart / FINER[d] for way in product(range(-FINER[d], FINER[d] + 1), repeat=d)]
        places = np.unique(np.round(np.concatenate([u + step for step in steps]), 6), axis=0)
        log_v = density.at_u(places)
        v = np.exp(log_v - logsumexp(log_v))
        places, v = places[v > LEAST_SHARE], v[v > LEAST_SHARE]
        through = RBFInterpolator(u, np.eye(K), kernel="cubic", degree=1)(places)
        return cls(v / v.sum(), np.asarray(tree.query(places)[1]), np.asarray(through))

    def parts(self, parts: Sequence[Marginals]) -> list[Rescaled] | None:
        """Marginals at the places, from those at the points; None where these are near enough to one another."""
        mean = np.stack([to_numpy(part.mean) for part in parts])
        sd = np.stack([to_numpy(part.sd) for part in parts])
        if mean.ndim != 2 or not (sd > 0.0).all() or self._smooth(mean, sd):
            return None
        means, sds = self.through @ mean, np.exp(self.through @ np.log(sd))
        low, high = sd.min(axis=0), sd.max(axis=0)
        sds = np.clip(sds, 0.5 * low, 2.0 * high)
        return [Rescaled(parts[k], means[j], sds[j] / sd[k]) for j, k in enumerate(self.nearest)]

    def _smooth(self, mean: np.ndarray, sd: np.ndarray) -> bool:
        """Whether every unknown is nearly the same at the points next to one another along B's strongest rows."""
        near = self.through @ mean - mean[self.nearest], np.log(sd[self.nearest]) - self.through @ np.log(sd)
        moved = np.abs(near[0]) / sd[self.nearest]
        return bool(max(moved.max(initial=0.0), np.abs(near[1]).max(initial=0.0)) < SMOOTH_STEP / 2)


def without(weights: np.ndarray, log_density: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights of K parts given all data but some of it, and the log density of that: (K, ...) and (...).

    ``log_density`` (K, ...) is that of what is left out given the rest, under each part:
    w_k(rest) prop. to w_k / p_k(left out | rest), and p(left out | rest) is the harmonic mean of them.
    """
    log_w = np.log(weights).reshape(-1, *[1] * (log_density.ndim - 1)) - log_density
    total = logsumexp(log_w, axis=0)
    return np.exp(log_w - total), np.asarray(-total)


def mixed_moments(share: np.ndarray, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of a mixture of N unknowns each with shares of its own (K, N).

    ``means`` (K, N) or (K, N, C), ``variances`` alike or (K, N, C, C).
    """
    w = share.reshape(*share.shape, *[1] * (means.ndim - 2))
    mean = (w * means).sum(axis=0)
    w, off = share.reshape(*share.shape, *[1] * (variances.ndim - 2)), means - mean
    between = off**2 if variances.ndim == means.ndim else off[..., :, None] * off[..., None, :]
    return mean, (w * (variances + between)).sum(axis=0)


def crossing(below: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, level: float) -> np.ndarray:
    """Where continuous distribution functions reach a level, each within its bracket.

    False positions on the scale of ndtri, on which they are nearly lines; the end that stays is halved (Illinois).
    """
    want, a, b = float(ndtri(level)), low.astype(np.float64), high.astype(np.float64)

    def off(x: np.ndarray) -> np.ndarray:
        return np.asarray(ndtri(np.clip(below(x), 1e-300, 1.0 - 1e-16)) - want)

    fa, fb = off(a), off(b)
    x, side = a, np.zeros(a.shape)
    for _ in range(MAX_ROUNDS):
        x = np.where(fb > fa, a - fa * (b - a) / np.where(fb > fa, fb - fa, 1.0), (a + b) / 2)
        x = np.clip(x, a, b)
        fx = off(x)
        if np.all((np.abs(fx) < TOL) | (b - a <= 1e-14 * (1.0 + np.abs(a)))):
            break
        right = fx > 0.0
        fa, fb = (
            np.where(right, np.where(side > 0, fa / 2, fa), fx),
            np.where(right, fx, np.where(side < 0, fb / 2, fb)),
        )
        a, b, side = np.where(right, a, x), np.where(right, x, b), np.where(right, 1, -1)
    return x
