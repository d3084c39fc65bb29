"""y itself under a mixture over theta: every part has a likelihood of its own, eta normal or not.

E[y] = sum_k w_k E_k[y],   P(y <= x) = sum_k w_k P_k(y <= x),   log p(y) = log sum_k w_k p_k(y)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logsumexp

from ...corrections.draws import WeightedMarginals
from ...corrections.grids import GridAnswers
from ...corrections.predictive import Asked, Predictive
from ...likelihoods.base import Likelihood
from ...likelihoods.prediction import levels_at, quantile_of
from ...linalg.arrays import ArrayLike, to_numpy
from ...linalg.quadrature import expect
from ...marginals import Levels, Marginals, NormalMarginals, probabilities
from .mixture import Mixture

_EVEN = 200  # quantiles of a part that stand for it


class NormalPredictive:
    """y at N rows where eta is normal: the same answers as ``corrections.Predictive``."""

    def __init__(self, likelihood: Likelihood, eta: Marginals) -> None:
        self.likelihood = likelihood
        self.h, self.rho = to_numpy(eta.mean), np.maximum(to_numpy(eta.variance), 0.0)
        if isinstance(eta, NormalMarginals) and likelihood.n_predictors > 1:
            self.rho = to_numpy(eta.spread)

    def average(self, ask: Asked) -> np.ndarray:
        """E[ask(eta)] of each row: ask answers (..., n, M), this is (..., N)."""
        own = self.likelihood
        return np.asarray(expect(lambda eta, rows: ask(own.take(rows), to_numpy(eta), rows), self.h, self.rho))

    @property
    def mean(self) -> np.ndarray:
        """E[y] (N,)."""
        return np.asarray(self.likelihood.predictive_mean(self.h, self.rho))

    @property
    def variance(self) -> np.ndarray:
        """Var[y] (N,)."""
        return np.asarray(self.likelihood.predictive_variance(self.h, self.rho))

    @property
    def probabilities(self) -> np.ndarray:
        """P(y = k) (N, K)."""
        return np.asarray(self.likelihood.predictive_probabilities(self.h, self.rho))

    def cdf(self, x: ArrayLike) -> np.ndarray:
        """P(y <= x) (N,)."""
        at = np.broadcast_to(np.asarray(x, dtype=np.float64), self.h.shape)
        return self.average(lambda own, eta, rows: own.cdf(at[rows, None], eta))

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """log p(y) (N,), NaN where y is."""
        return np.asarray(self.likelihood.predictive_log_density(y, self.h, self.rho))


class MixedPredictive:
    """y at N rows under a mixture.

    Parameters
    ----------
    weights : array (K,) of sum 1
    likelihoods, etas : sequences (K)
        Of each part.
    eta : Mixture, optional
        Of all of them; default: of ``etas`` as they are.
    """

    def __init__(
        self,
        weights: np.ndarray,
        likelihoods: Sequence[Likelihood],
        etas: Sequence[Marginals],
        eta: Mixture | None = None,
    ) -> None:
        self.weights, self.likelihoods = weights, list(likelihoods)
        self.etas, self.eta = list(etas), Mixture(weights, etas) if eta is None else eta
        self.parts = [predictive_of(own, eta) for own, eta in zip(self.likelihoods, etas, strict=True)]

    def _average(self, ask: Callable[[Predictive | NormalPredictive], np.ndarray]) -> np.ndarray:
        return np.asarray(sum(w * ask(part) for w, part in zip(self.weights, self.parts, strict=True)))

    @property
    def mean(self) -> np.ndarray:
        """E[y] (N,); of levels, their mean place."""
        return self._average(lambda part: part.mean)

    @property
    def variance(self) -> np.ndarray:
        """Var[y] (N,)."""
        mean = self.mean
        return self._average(lambda part: part.variance + (part.mean - mean) ** 2)

    @property
    def probabilities(self) -> np.ndarray:
        """P(y = k) of labels and levels (N, K)."""
        return self._average(lambda part: part.probabilities)

    def cdf(self, x: ArrayLike) -> np.ndarray:
        """P(y <= x) (N,), x a number or one for each row."""
        return self._average(lambda part: part.cdf(x))

    def quantile(self, q: Levels) -> np.ndarray:
        """Quantiles of y: (N,) for one q, (N, Q) for Q of them; whole numbers of counts, places of levels."""
        levels, likelihood = probabilities("predictive.quantile", q), self.likelihoods[0]
        if likelihood.support == "levels":
            out = levels_at(np.cumsum(self.probabilities, axis=1), np.atleast_1d(levels))
        else:
            h, rho = self.eta.mean, self.eta.variance
            each = [quantile_of(likelihood, h, rho, level, self.cdf) for level in np.atleast_1d(levels)]
            out = np.stack(each, axis=1)
        return out[:, 0] if levels.ndim == 0 else out

    def log_density(self, y: ArrayLike) -> np.ndarray:
        """log p(y) (N,), NaN where y is."""
        each = np.stack([part.log_density(y) for part in self.parts])
        return np.asarray(logsumexp(each, axis=0, b=self.weights[:, None]))

    def mean_quantile(self, q: Levels, values: np.ndarray | None = None) -> np.ndarray:
        """Quantiles of E[y | eta, theta] itself: (N,) or (N, Q). ``values`` are what levels of y stand for.

        From as many quantiles of eta of each part, taken as equally likely.
        """
        levels = np.atleast_1d(probabilities("predictive.mean_quantile", q))
        even = (np.arange(_EVEN) + 0.5) / _EVEN
        each = [
            self._mean(own, to_numpy(eta.quantile(even)), values)
            for own, eta in zip(self.likelihoods, self.etas, strict=True)
        ]
        x, w = np.concatenate(each, axis=1), np.repeat(self.weights / _EVEN, _EVEN)
        order = np.argsort(x, axis=1)
        x, below = np.take_along_axis(x, order, axis=1), np.cumsum(w[order], axis=1) - 0.5 * w[order]
        out = np.array([np.interp(levels, b, v) for b, v in zip(below, x, strict=True)])
        return out[:, 0] if np.ndim(q) == 0 else out

    @staticmethod
    def _mean(likelihood: Likelihood, eta: np.ndarray, values: np.ndarray | None) -> np.ndarray:
        return np.asarray(likelihood.mean_at(eta) if values is None else likelihood.probabilities_at(eta) @ values)


def predictive_of(likelihood: Likelihood, eta: Marginals) -> Predictive | NormalPredictive:
    """y of one part: by the nodes of its marginals, or by those of a normal."""
    if isinstance(eta, GridAnswers | WeightedMarginals) and likelihood.n_predictors == 1:
        return Predictive(likelihood, eta)
    return NormalPredictive(likelihood, eta)
