"""What the regressors of any likelihood share: predictive distributions of y.

The rows' own parameters (exposure, trials, event) come with every call and default to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..checks import problem
from ..inputs.observations import announce_missing, known
from ..likelihoods import WORDS
from ..linalg.arrays import ArrayLike
from .base import LatentGaussianEstimator, levels_of
from .dask_rows import by_partition


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
    """The predictive distribution of y, as methods."""

    likelihood: Any
    classes_: np.ndarray

    @available_if(_has("predict_proba", "labels", lambda own: own.support == "levels"))
    @by_partition
    def predict_proba(self, X: Any) -> np.ndarray:
        """P(y = k | X, data) of labels: (M, K), columns as ``classes_``."""
        return self._predictive(X).probabilities

    @by_partition
    def predict_rate(self, X: Any, quantiles: ArrayLike = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Posterior quantiles (M, Q) of E[y | eta] itself, at exposure 1 and one trial: without the noise of y."""
        return self._predictive(X).mean_quantile(levels_of(type(self).__name__, quantiles))

    @by_partition
    def predict_quantiles(
        self,
        X: Any,
        quantiles: ArrayLike = (0.025, 0.5, 0.975),
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> np.ndarray:
        """Quantiles of the y that will be seen: (M, Q)."""
        return self._quantiles(X, quantiles, exposure=exposure, trials=trials)

    @available_if(_has("predict_survival", "durations", lambda own: own.durations))
    @by_partition
    def predict_survival(self, X: Any, times: Any) -> np.ndarray:
        """P(T > t | X, data) of durations: (M,) for one time, (M, T) for several."""
        return self._predictive(X).survival(times)

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> np.ndarray:
        """Joint draws of the posterior predictive distribution: (M, n_samples), each column one draw of all rows."""
        return self._joint_draws(X, n_samples, random_state, exposure=exposure, trials=trials)

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        event: ArrayLike | None = None,
    ) -> float:
        """The mean log predictive density of y (larger is better); rows with y = NaN do not count.

        The density of a censored row is the probability to last longer. Exposure, trials and event that fit was given
        are needed here too: without them exposure 1, one trial and an event that happened are assumed, with a warning.
        """
        check_is_fitted(self)
        rows = {"exposure": exposure, "trials": trials, "event": event}
        announce_missing(type(self).__name__, self._fitted, rows)
        return self._score(X, y, sample_weight, **rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # the score is a log density, not R^2
        return tags
