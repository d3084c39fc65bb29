"""The base classes of the regressors: predictive distributions of y, and Poisson counts with their exposure."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..checks import callers_line, first_value, numeric, problem, vector
from ..distributed.row_sums import ValueCounts
from ..files import stated
from ..inputs.observations import Target, announce_missing, known
from ..likelihoods import WORDS, Poisson
from ..linalg.arrays import ArrayLike
from .base import LatentGaussianEstimator, levels_of, validate_data, weights_of
from .dask_rows import by_partition, in_partitions


# -- Regressors of any likelihood ------------------------------------------------------------------
# Parameters of rows (exposure, trials, event) are given at every call and default to 1.
def _has(method: str, what: str, holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A check for ``available_if``: the method exists only if the likelihood of the estimator satisfies ``holds``."""

    def check(estimator: Any) -> bool:
        given = estimator.likelihood
        likelihood = known(given)
        if likelihood is not None and holds(likelihood):
            return True
        words = " or ".join(f'"{word}"' for word, cls in WORDS.items() if holds(cls))
        got = f"{method}() needs {what}, and likelihood={given!r} has none"
        raise AttributeError(str(problem(type(estimator).__name__, got, words)))

    return check


class Regression(RegressorMixin, LatentGaussianEstimator):
    """Base class of the regressors: methods for the predictive distribution of y."""

    likelihood: Any
    classes_: np.ndarray

    @available_if(_has("predict_proba", "labels", lambda likelihood: likelihood.support == "levels"))
    @by_partition
    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities (M, K) of labels or ordered levels, with columns in the order of ``classes_``."""
        return self._predictive(X).probabilities

    @by_partition
    def predict_rate(self, X: Any, quantiles: ArrayLike = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Posterior quantiles (M, Q) of the mean E[y | eta], without the noise of y, at exposure 1 and one trial."""
        return self._predictive(X).mean_quantile(levels_of(type(self).__name__, quantiles))

    @by_partition
    def predict_quantiles(
        self,
        X: Any,
        quantiles: ArrayLike = (0.025, 0.5, 0.975),
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> np.ndarray:
        """Predictive quantiles (M, Q) of y, noise included.

        Parameters
        ----------
        X : array (M, D)
        quantiles : array (Q,), default (0.025, 0.5, 0.975)
            Numbers between 0 and 1.
        exposure, trials : float or array (M,), default 1
        """
        return self._quantiles(X, quantiles, exposure=exposure, trials=trials)

    @available_if(_has("predict_survival", "durations", lambda likelihood: likelihood.durations))
    @by_partition
    def predict_survival(self, X: Any, times: Any) -> np.ndarray:
        """Survival probability P(T > t | X, data) of durations: array (M,) for one time t, (M, T) for T times."""
        return self._predictive(X).survival(times)

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> np.ndarray:
        """Draw y (M, n_samples) from the posterior predictive distribution; each column is a joint draw of all rows."""
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
        """Mean log predictive density of y, in nats (larger is better); rows with y = NaN do not count.

        The density of a censored row is its probability of lasting longer. Exposure, trials and event that were given
        to ``fit`` are needed here too; if one is missing its default of 1 is used, with a warning.
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
    """Base class of the Poisson regressors: y ~ Poisson(exposure * exp(eta))."""

    likelihood = "poisson"

    @stated("checkpoint")
    def fit(self, X: Any, y: Any, exposure: Any = None, sample_weight: Any = None, *, checkpoint: Any = None) -> Self:
        """Fit the regressor, and learn its kernel or the prior variance of its coefficients.

        Parameters
        ----------
        X : array or data frame (N, D)
            A linear model also takes scipy sparse matrices. Dask arrays and dataframes are fitted by passes.
        y : array (N,)
            Counts 0, 1, 2, ...; real numbers >= 0 are accepted with a warning.
        exposure : array (N,), default 1
            What each count is relative to: expected counts, person-years, area.
        sample_weight : array (N,), optional
            Multiplies the log-likelihood of each row: 2 counts the row twice, 0 leaves it out.
        checkpoint : path, optional
            For Dask collections: file in which the state of the fit is kept, from which the same call resumes.

        Returns
        -------
        self
        """
        if in_partitions(type(self).__name__, X, checkpoint):
            return self._fit_partitions(X, y, sample_weight, checkpoint, exposure=exposure)
        X, y = validate_data(self, X, y, **self._accepted, y_numeric=True)
        weights = weights_of(sample_weight, X)
        return self._fit(X, read_counts(type(self).__name__, y, exposure, weights), weights)

    def _read_partitions(self, values: ValueCounts) -> tuple[Target, None]:
        """The target of a Dask collection, from its different counts."""
        name = type(self).__name__
        y = numeric(name, "y", values.y)
        if y.min() < 0.0:
            raise problem(name, f"y of some partition has {y.min():g}, which is negative", "counts 0, 1, 2, ...")
        return read_counts(name, y, values.beside.get("exposure"), values.weight), None

    @by_partition
    def predict(self, X: Any, exposure: ArrayLike | None = None, return_std: bool = False) -> Any:
        """Predictive mean of the counts, with the uncertainty of the rate integrated out.

        Parameters
        ----------
        X : array (M, D)
        exposure : float or array (M,), default 1
        return_std : bool, default False
            Also return the predictive standard deviation of the counts.

        Returns
        -------
        mean : array (M,), or (mean, sd) with ``return_std``
        """
        new = self._predictive(X, exposure=exposure)
        return (new.mean, np.sqrt(new.variance)) if return_std else new.mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def read_counts(where: str, y: ArrayLike, exposure: ArrayLike | None, weights: Any) -> Target:
    """The Poisson target of counts (real numbers >= 0 with a warning) and their exposure."""
    y = np.asarray(y, dtype=np.float64)
    if (y < 0).any():
        raise problem(where, f"y{first_value(y < 0, y)} is negative", "counts 0, 1, 2, ...")
    integer = bool((y == np.floor(y)).all())
    if not integer:
        warnings.warn(
            f"{where}: y is not whole numbers everywhere; it is taken as a quasi-Poisson target, so elbo_ does not "
            "bound the log probability of the data.",
            UserWarning,
            stacklevel=callers_line(),
        )
    likelihood = Poisson(None if exposure is None else vector(where, "exposure", exposure, y.shape[0]), integer=integer)
    return Target(where, likelihood, y, likelihood.level(y, weights))
