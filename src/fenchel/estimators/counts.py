"""What the count regressors share: exposure, and real targets taken with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..checks import first_value, numeric, problem, vector
from ..distributed.row_sums import ValueCounts
from ..files import stated
from ..inputs.observations import Target, announce_missing, known
from ..likelihoods import WORDS, Poisson
from ..linalg.arrays import ArrayLike
from .base import LatentGaussianEstimator, levels_of, validate_data, weights_of
from .dask_rows import by_partition, in_partitions


# -- What the regressors of any likelihood share: predictive distributions of y --------------------
# The rows' own parameters (exposure, trials, event) come with every call and default to 1.
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


# -- Counts ----------------------------------------------------------------------------------------
class Counts(Regression):
    """Counts y ~ Poisson(exposure * exp(eta))."""

    likelihood = "poisson"

    @stated("checkpoint")
    def fit(self, X: Any, y: Any, exposure: Any = None, sample_weight: Any = None, *, checkpoint: Any = None) -> Self:
        """Fit, and learn the kernel, or the variance of the coefficients.

        Parameters
        ----------
        X : array (N, D); scipy sparse too for a linear model, and a Dask array or dataframe
        y : counts (N,)
            Real numbers >= 0 are taken, with a warning.
        exposure : array (N,), optional
            What each count is relative to: expected counts, person-years, area. Default: 1.
        sample_weight : array (N,), optional
        checkpoint : path, optional
            Of a fit to a Dask collection: a file in which the iterate is kept, and from which the same call goes on.
        """
        if in_partitions(type(self).__name__, X, checkpoint):
            return self._fit_partitions(X, y, sample_weight, checkpoint, exposure=exposure)
        X, y = validate_data(self, X, y, **self._accepted, y_numeric=True)
        weights = weights_of(sample_weight, X)
        return self._fit(X, read_counts(type(self).__name__, y, exposure, weights), weights)

    def _read_partitions(self, values: ValueCounts) -> tuple[Target, None]:
        """The target of rows in partitions, from their different counts."""
        name = type(self).__name__
        y = numeric(name, "y", values.y)
        if y.min() < 0.0:
            raise problem(name, f"y of some partition has {y.min():g}, which is negative", "counts 0, 1, 2, ...")
        return read_counts(name, y, values.beside.get("exposure"), values.weight), None

    @by_partition
    def predict(self, X: Any, exposure: ArrayLike | None = None, return_std: bool = False) -> Any:
        """The expected count (M,), the posterior's uncertainty integrated out; also the sd of the count to be seen."""
        new = self._predictive(X, exposure=exposure)
        return (new.mean, np.sqrt(new.variance)) if return_std else new.mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def read_counts(where: str, y: ArrayLike, exposure: ArrayLike | None, weights: Any) -> Target:
    """Counts, or real numbers >= 0 with a warning, and what they are relative to."""
    y = np.asarray(y, dtype=np.float64)
    if (y < 0).any():
        raise problem(where, f"y{first_value(y < 0, y)} is negative", "counts 0, 1, 2, ...")
    integer = bool((y == np.floor(y)).all())
    if not integer:
        warnings.warn(
            f"{where}: y is not whole numbers everywhere; it is taken as a quasi-Poisson target, and elbo_ is then "
            "no log probability of the data.",
            UserWarning,
            stacklevel=3,
        )
    found = Poisson(None if exposure is None else vector(where, "exposure", exposure, y.shape[0]), integer=integer)
    return Target(where, found, y, found.level(y, weights))
