"""What the count regressors share: exposure, predictive quantiles, and real targets taken with a warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..checks import first_value, problem, vector
from ..likelihoods import Poisson
from .base import LatentGaussianEstimator, levels_of
from .observations import announce_missing


class Counts(RegressorMixin, LatentGaussianEstimator):
    """Counts y ~ Poisson(exposure * exp(eta))."""

    _poisson: Poisson

    def _counts(self, y: np.ndarray, exposure: Any) -> Poisson:
        """Check the target; keep the likelihood."""
        name = type(self).__name__
        if (y < 0).any():
            raise problem(name, f"y{first_value(y < 0, y)} is negative", "counts 0, 1, 2, ...")
        integer = bool((y == np.floor(y)).all())
        if not integer:
            warnings.warn(
                f"{name}: y is not whole numbers everywhere; it is taken as a quasi-Poisson target, and elbo_ is then "
                "no log probability of the data.",
                UserWarning,
                stacklevel=3,
            )
        E = None if exposure is None else vector(name, "exposure", exposure, y.shape[0])
        return Poisson(E, integer=integer)

    def _exposed(self, h: np.ndarray, exposure: Any) -> np.ndarray:
        return vector(type(self).__name__, "exposure", 1.0 if exposure is None else exposure, h.shape[0])

    def predict(self, X: Any, exposure: Any = None) -> np.ndarray:
        """The expected count (M,), the posterior's uncertainty integrated out."""
        check_is_fitted(self)
        h, rho = self._predictors(X)
        return np.asarray(Poisson(self._exposed(h, exposure)).predictive_mean(h, rho))

    def predict_rate(self, X: Any, quantiles: Any = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Posterior quantiles of the rate exp(eta) itself, per unit of exposure: (M, Q)."""
        from scipy.special import ndtri

        check_is_fitted(self)
        h, rho = self._predictors(X)
        return np.asarray(np.exp(h[:, None] + np.sqrt(rho)[:, None] * ndtri(levels_of(type(self).__name__, quantiles))))

    def predict_quantiles(self, X: Any, quantiles: Any = (0.025, 0.5, 0.975), exposure: Any = None) -> np.ndarray:
        """Quantiles of the count that will be seen: (M, Q), whole numbers."""
        check_is_fitted(self)
        q = levels_of(type(self).__name__, quantiles)
        h, rho = self._predictors(X)
        E = self._exposed(h, exposure)
        return np.asarray(Poisson(E).predictive_quantile(q, h, rho))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, exposure: Any = None) -> np.ndarray:
        """Counts drawn from the posterior predictive distribution of each row: (M, n_samples)."""
        check_is_fitted(self)
        h, rho = self._predictors(X)
        E = self._exposed(h, exposure)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        return Poisson(E).predictive_draws(h, rho, int(n_samples), rng)

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """The mean log predictive density of the counts (larger is better); without exposure, each at exposure 1."""
        check_is_fitted(self)
        announce_missing(type(self).__name__, self._poisson, {"exposure": exposure})
        h, rho = self._predictors(X)
        y = vector(type(self).__name__, "y", y, h.shape[0])
        likelihood = Poisson(self._exposed(h, exposure), integer=False)
        density = np.asarray(likelihood.predictive_log_density(y, h, rho))
        return float(np.average(density, weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        tags.regressor_tags.poor_score = True  # the score is a log density, not R^2
        return tags
