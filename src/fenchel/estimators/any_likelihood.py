"""The base class of regressors with any likelihood: fit and predict, with the parameters of rows as keywords."""

from __future__ import annotations

import re
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..checks import Refusal, callers_line, numeric, problem
from ..distributed.row_sums import ValueCounts
from ..files import stated
from ..inputs.observations import Target, read_labels, read_observations
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from .base import validate_data, weights_of
from .counts import Regression
from .dask_rows import by_partition, in_partitions, partitions_target


@dataclass(eq=False, repr=False)
class AnyLikelihood(Regression):
    """Base class of regressors whose likelihood is a name or a ``Likelihood``."""

    likelihood: Any = "gaussian"
    _: KW_ONLY
    bound: str = "best"
    learn_likelihood: bool = True

    @stated("checkpoint")
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        event: ArrayLike | None = None,
        checkpoint: Any = None,
    ) -> Self:
        """Fit the regressor; learn its kernel or prior variance, and the parameters of the likelihood.

        Parameters
        ----------
        X : array or data frame (N, D)
            A linear model also takes scipy sparse matrices. Dask arrays and dataframes are fitted by passes.
        y : array (N,)
            Numbers that the likelihood allows. Labels and ordered levels may be any numbers, in their order, an ordered
            categorical of pandas, or two words; ``classes_`` lists them. ``predict`` of words is the mean of their
            places 0, 1, ... in ``classes_``.
        sample_weight : array (N,), optional
            Multiplies the log-likelihood of each row: 2 counts the row twice, 0 leaves it out.
        exposure : array (N,), default 1
            For "poisson", "negative-binomial" and "zero-inflated-poisson": what each count is relative to.
        trials : array (N,)
            For "binomial": the number of trials, of which y are successes.
        event : array (N,), default 1
            For "exponential" and "weibull": 1 if the event happened at y, 0 if the row is censored there.
        checkpoint : path, optional
            For Dask collections: file in which the state of the fit is kept, from which the same call resumes.

        Returns
        -------
        self
        """
        name, rows = type(self).__name__, {"exposure": exposure, "trials": trials, "event": event}
        if in_partitions(name, X, checkpoint):
            return self._fit_partitions(X, y, sample_weight, checkpoint, **rows)
        y, words = read_labels(name, self.likelihood, y)
        X, y = validate_data(self, X, y, **self._accepted, y_numeric=True, multi_output=self._several_outputs)
        return self._fit_rows(X, numeric(name, "y", y), weights_of(sample_weight, X), rows, words)

    _several_outputs = False  # whether y may have several columns

    def _likelihood_of(self, y: np.ndarray) -> Any:
        """The likelihood for this y, a name or a ``Likelihood``."""
        return self.likelihood

    def _fit_rows(self, X: Any, y: np.ndarray, weights: Any, rows: dict[str, Any], words: Any) -> Self:
        """Fit y after it has been turned into numbers."""
        name, given = type(self).__name__, self._likelihood_of(y)
        learned = self.learn_likelihood and self.optimizer is not None
        try:
            target = read_observations(name, given, self.bound, y, rows, weights, self._centred, learned, words)
        except Refusal as refusal:  # estimators take no NaN
            raise Refusal(re.sub(",? or NaN for unobserved", "", str(refusal))) from None
        self._keep_labels(target)
        if not learned and isinstance(given, str):
            warn_unstated(name, self.likelihood, target.likelihood)
        return self._fit(X, target, weights)

    def _keep_labels(self, target: Target) -> None:
        """Set ``classes_``, or remove that of an earlier fit with another likelihood."""
        self.__dict__.pop("classes_", None)
        if target.labels is not None:
            self.classes_ = target.labels

    def _read_partitions(self, values: ValueCounts) -> tuple[Target, np.ndarray | None]:
        """The target of a Dask collection, from the different values of y."""
        name = type(self).__name__
        target, words = partitions_target(
            name, self.likelihood, self.bound, values, self._centred, self.learn_likelihood
        )
        self._keep_labels(target)
        return target, target.values if words is None else words

    @by_partition
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> Any:
        """Predictive mean of y, with the uncertainty of eta integrated out; for labels the mean of their values.

        Parameters
        ----------
        X : array (M, D)
        return_std : bool, default False
            Also return the predictive standard deviation of y, noise included.
        return_cov : bool, default False
            Also return the predictive covariance (M, M) of y, noise included, if y is eta plus noise.
        exposure, trials : float or array (M,), default 1

        Returns
        -------
        mean : array (M,), or (mean, sd), or (mean, covariance)
        """
        check_is_fitted(self)
        wide = return_std or return_cov
        new = self._predictive(X, not wide and self.likelihood_.noise, exposure=exposure, trials=trials)
        if not return_cov:
            return (new.mean, np.sqrt(new.variance)) if return_std else new.mean
        name = type(self).__name__
        if return_std:
            raise problem(name, "return_std and return_cov", "one of them")
        if not self.likelihood_.noise:
            got = f"return_cov and likelihood={self.likelihood!r}"
            raise problem(name, got, "noise about eta, such as likelihood='gaussian'", "sample_y draws rows jointly.")
        covariance = self._joint_covariance(X)
        np.fill_diagonal(covariance, new.variance)
        return new.mean, covariance


def warn_unstated(where: str, word: str, likelihood: Likelihood) -> None:
    """Warn of a likelihood given by name whose parameters are not learned: they stay at their starting values."""
    kept = ", ".join(f"{name} = {value:.3g}" for _, name, value in likelihood.readable())
    if kept:
        warnings.warn(
            f"{where}: nothing is learned, and likelihood={word!r} does not state its own parameters: they are a guess "
            f"from y, {kept}. State them, as in likelihood=fenchel.{likelihood.name}(...), or give the likelihood_ of "
            "another fit.",
            UserWarning,
            stacklevel=callers_line(),
        )
