"""Mixtures of marginals: each unknown has sum_k w_k p_k, every p_k given by one that answers ``Marginals``.

P(unknown <= x) = sum_k w_k P_k(unknown <= x),   E, Var and the third moment by those of the parts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from scipy.special import logsumexp, ndtri

from ...linalg.arrays import Array, ArrayLike, to_numpy
from ...marginals import Levels, Marginals, at_each, probabilities

_TOL, _ROUNDS = 1e-9, 60  # of probabilities


class Mixture:
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

    def cdf(self, x: ArrayLike) -> Array:
        """P(unknown <= x), x a number, one for each unknown, or (1, G) or (N, G): G of them for each."""
        return at_each(x, self.mean, self._cdf)

    def _cdf(self, x: np.ndarray) -> np.ndarray:
        return self._average(lambda part: part.cdf(x))

    def density(self, x: ArrayLike) -> Array:
        """The density at x, given as in ``cdf``."""
        return at_each(x, self.mean, lambda at: self._average(lambda part: part.density(at)))

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

    def interval(self, level: float = 0.95) -> np.ndarray:
        """Lower and upper ends (..., 2) of the central interval of probability ``level``."""
        inside = float(probabilities("interval", level))
        return self.quantile([0.5 - inside / 2, 0.5 + inside / 2])

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self.parts)} posteriors"


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
    for _ in range(_ROUNDS):
        x = np.where(fb > fa, a - fa * (b - a) / np.where(fb > fa, fb - fa, 1.0), (a + b) / 2)
        x = np.clip(x, a, b)
        fx = off(x)
        if np.all((np.abs(fx) < _TOL) | (b - a <= 1e-14 * (1.0 + np.abs(a)))):
            break
        right = fx > 0.0
        fa, fb = (
            np.where(right, np.where(side > 0, fa / 2, fa), fx),
            np.where(right, fx, np.where(side < 0, fb / 2, fb)),
        )
        a, b, side = np.where(right, a, x), np.where(right, x, b), np.where(right, 1, -1)
    return x
