"""What the estimators of any likelihood share: targets in, predictive distributions out.

    E[y], Var[y], P(y <= x), log p(y)      under y ~ p(y | eta), eta ~ N(h, rho): the posterior's uncertainty is in all

A subclass says what eta is at new rows (``_predictors``); the rows' own parameters (exposure, trials, event) come with
every call and default to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..checks import problem, vector
from ..likelihoods import WORDS
from ..likelihoods.base import Likelihood
from ..likelihoods.prediction import mean_quantiles
from .base import LatentGaussianEstimator, levels_of
from .labels import levels_of_words
from .observations import Observations, announce_missing, at_rows, encoded, known


def _has(method: str, what: str, holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether the estimator's likelihood is one of those; without it the method does not exist."""

    def check(estimator: Any) -> bool:
        given = estimator.likelihood
        own = known(given)
        if own is not None and holds(own):
            return True
        words = " or ".join(f'"{word}"' for word, cls in WORDS.items() if holds(cls))
        got = f"{method}() asks for {what}, and likelihood={given!r} has none"
        raise AttributeError(str(problem(type(estimator).__name__, got, words)))

    return check


class Regression(RegressorMixin, LatentGaussianEstimator):
    """The likelihood's side: targets in, predictive distributions out."""

    likelihood: Any
    classes_: np.ndarray
    _observations: Observations
    _words: np.ndarray | None

    def _responds(self, found: Observations, words: np.ndarray | None) -> np.ndarray:
        """Keep the likelihood of the training rows, and what its levels are called; y as it takes it."""
        self._observations, self._words = found, words
        if found.classes is not None:
            self.classes_ = found.classes if words is None else words
        return found.y

    def _moments(self, X: Any, **rows: Any) -> tuple[Likelihood, np.ndarray, np.ndarray]:
        """The likelihood at new rows, and the mean and variance of eta there."""
        check_is_fitted(self)
        h, rho = self._predictors(X)
        return at_rows(type(self).__name__, self._fitted, h.shape[0], rows), h, rho

    def _moments_for_mean(self, X: Any, **rows: Any) -> tuple[Likelihood, np.ndarray, np.ndarray]:
        """The same where the mean of y alone is wanted: under noise about eta it is eta's, whatever the variance."""
        check_is_fitted(self)
        if not self.likelihood_.noise:
            return self._moments(X, **rows)
        h = self._latent_mean(X)
        return at_rows(type(self).__name__, self._fitted, h.shape[0], rows), h, np.zeros_like(h)

    def _labels(self, levels: np.ndarray) -> np.ndarray:
        return levels if self._observations.classes is None else self.classes_[levels.astype(int)]

    def _mean_of(self, moments: tuple[Likelihood, np.ndarray, np.ndarray], with_std: bool) -> Any:
        """The mean of y (M,), its standard deviation if asked for; of labels their values, of words their places."""
        likelihood, h, rho = moments
        if self._observations.classes is not None:
            p = np.asarray(likelihood.predictive_probabilities(h, rho))
            values = self._observations.classes
            mean = p @ values
            return (mean, np.sqrt(np.maximum(p @ values**2 - mean**2, 0.0))) if with_std else mean
        mean = np.asarray(likelihood.predictive_mean(h, rho))
        return (mean, np.sqrt(np.asarray(likelihood.predictive_variance(h, rho)))) if with_std else mean

    @available_if(_has("predict_proba", "labels", lambda own: own.support == "levels"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """P(y = k | X, data) of labels: (M, K), columns as ``classes_``."""
        likelihood, h, rho = self._moments(X)
        return np.asarray(likelihood.predictive_probabilities(h, rho))

    def predict_rate(self, X: Any, quantiles: Any = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Posterior quantiles (M, Q) of E[y | eta] itself, at exposure 1 and one trial: without the noise of y."""
        likelihood, h, rho = self._moments(X)
        return mean_quantiles(likelihood, h, rho, levels_of(type(self).__name__, quantiles), self._observations.classes)

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.025, 0.5, 0.975), exposure: Any = None, trials: Any = None
    ) -> np.ndarray:
        """Quantiles of the y that will be seen: (M, Q)."""
        likelihood, h, rho = self._moments(X, exposure=exposure, trials=trials)
        levels = levels_of(type(self).__name__, quantiles)
        return self._labels(np.asarray(likelihood.predictive_quantile(levels, h, rho)))

    @available_if(_has("predict_survival", "durations", lambda own: own.durations))
    def predict_survival(self, X: Any, times: Any) -> np.ndarray:
        """P(T > t | X, data) of durations: (M,) for one time, (M, T) for several."""
        likelihood, h, rho = self._moments(X)
        return np.asarray(likelihood.predictive_survival(times, h, rho))  # type: ignore[attr-defined]

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, exposure: Any = None, trials: Any = None
    ) -> np.ndarray:
        """Draws from the posterior predictive distribution of each row on its own: (M, n_samples)."""
        likelihood, h, rho = self._moments(X, exposure=exposure, trials=trials)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        return self._labels(likelihood.predictive_draws(h, rho, int(n_samples), rng))

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, trials: Any = None, event: Any = None
    ) -> float:
        """The mean log predictive density of y (larger is better); rows with y = NaN do not count.

        The density of a censored row is the probability to last longer. Exposure, trials and event that fit was given
        are needed here too: without them exposure 1, one trial and an event that happened are assumed, with a warning.
        """
        name, rows = type(self).__name__, {"exposure": exposure, "trials": trials, "event": event}
        likelihood, h, rho = self._moments(X, **rows)
        columns = {key: getattr(self, key, None) for key in rows}  # where an estimator finds what is not given
        announce_missing(name, self._fitted, {k: columns[k] if v is None else v for k, v in rows.items()})
        y = self._scored(y if self._words is None else levels_of_words(name, self._words, y), h.shape[0])
        y = y if self._observations.classes is None else encoded(name, self._observations.classes, y)
        density = np.asarray(likelihood.predictive_log_density(y, h, rho))
        seen = ~np.isnan(density)
        weights = None if sample_weight is None else vector(name, "sample_weight", sample_weight, y.size)
        return float(np.average(density[seen], weights=None if weights is None else weights[seen]))

    def _scored(self, y: Any, n: int) -> np.ndarray:
        return vector(type(self).__name__, "y", y, n, missing=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # the score is a log density, not R^2
        return tags
