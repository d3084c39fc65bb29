"""Estimators whose hyperparameters are integrated out: y at new rows as a mixture over theta.

``MixedRows`` stands where a likelihood stands in a ``Predictive``: it has been told what eta is of each theta, and
answers for y whatever moments it is asked with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..hyperparameters import Family, Learned, Normal, independent
from ..hyperparameters.integration import Integrated, Mixture, integrate
from ..hyperparameters.integration.predictive import MixedPredictive
from ..linalg.arrays import ArrayLike, to_numpy
from ..marginals import NormalMarginals
from .latent import Latent
from .target import Predictive, Target

_WEAK = 2.0  # sd of the log of a hyperparameter that has no prior, about where it starts


def with_prior(family: Family) -> Family:
    """The family, each entry of theta N(start, 2^2) where it states no prior: a flat one has no integral."""
    if family._log_prior is None:
        family._log_prior = independent({i: Normal(float(start), _WEAK) for i, start in enumerate(family.theta)})
    return family


def integrated(target: Target, family: Family, found: Learned, weights: Any, own: bool, method: Any) -> Integrated:
    """The posterior over theta too, about what was learned."""
    word = "auto" if method is True else method
    options = {"weights": weights, "learn_likelihood": own, "mode": found, "method": word}
    return integrate(target.likelihood, family, target.y, **options)


class MixedRows:
    """y at rows whose eta is a mixture over theta; the moments of eta that are passed along are not needed."""

    def __init__(self, found: MixedPredictive) -> None:
        self.found = found

    def reported_moments(self, shifts: list[float]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of eta as reported, which each theta has above eta as fitted."""
        parts = [
            NormalMarginals(to_numpy(eta.mean) + shift, to_numpy(eta.variance))
            for eta, shift in zip(self.found.etas, shifts, strict=True)
        ]
        both = Mixture(self.found.weights, parts)
        return both.mean, both.variance

    def predictive_probabilities(self, h: Any, rho: Any) -> np.ndarray:
        """P(y = k) (M, K)."""
        return self.found.probabilities

    def predictive_mean(self, h: Any, rho: Any) -> np.ndarray:
        """E[y] (M,)."""
        return self.found.mean

    def predictive_variance(self, h: Any, rho: Any) -> np.ndarray:
        """Var[y] (M,)."""
        return self.found.variance

    def predictive_log_density(self, y: ArrayLike, h: Any, rho: Any) -> np.ndarray:
        """log p(y) (M,)."""
        return self.found.log_density(y)

    def predictive_quantile(self, levels: np.ndarray, h: Any, rho: Any) -> np.ndarray:
        """Quantiles of y (M, Q)."""
        return self.found.quantile(np.atleast_1d(levels))

    def predictive_survival(self, times: Any, h: Any, rho: Any) -> np.ndarray:
        """P(T > t): (M,) or (M, T)."""
        likelihoods: list[Any] = list(self.found.likelihoods)
        parts = zip(self.found.weights, likelihoods, self.found.etas, strict=True)
        each = (w * np.asarray(own.predictive_survival(times, eta.mean, eta.variance)) for w, own, eta in parts)
        return np.asarray(sum(each))

    def rates(self, levels: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Quantiles (M, Q) of E[y | eta, theta]."""
        return self.found.mean_quantile(levels, values)


def mixed(posterior: Integrated, target: Target, latent: Latent, table: Any, rows: dict[str, Any]) -> Predictive:
    """y at the rows of a table."""
    etas = [
        part.at(**latent.new_rows(theta, table))
        for part, theta in zip(posterior.answers, posterior.thetas, strict=True)
    ]
    own = [
        target.at(likelihood, to_numpy(eta.mean), to_numpy(eta.variance), rows).likelihood
        for likelihood, eta in zip(posterior.likelihoods, etas, strict=True)
    ]
    found = MixedPredictive(posterior.weights, own, etas)
    return Predictive(MixedRows(found), found.eta.mean, found.eta.variance)
