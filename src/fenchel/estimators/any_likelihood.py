"""Regressions of any likelihood: y and the rows' own parameters in, predictions of y out."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..checks import numeric, problem
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
    """A likelihood by name or as it is, its rows' parameters as keywords."""

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
        """Fit, and learn the kernel or the variance of the coefficients, and the likelihood's own parameters.

        Parameters
        ----------
        X : array (N, D); scipy sparse too for a linear model, and a Dask array or dataframe
        y : array (N,)
            Numbers of the likelihood's kind; levels and labels may be any numbers, taken in their order. Levels may be
            an ordered categorical of pandas, and two labels any two words: ``classes_`` are then the categories (of
            levels, those that rows have), and ``predict`` is the mean of their places 0, 1, ...
        sample_weight : array (N,), optional
            Multiplies each row's log-likelihood; 2 is the row seen twice, 0 leaves it out.
        exposure : array (N,), optional
            "poisson", "negative-binomial", "zero-inflated-poisson": what each count is relative to. Default: 1.
        trials : array (N,)
            "binomial": how many of whom y are the successes.
        event : array (N,), optional
            "exponential", "weibull": 1 where the event happened at y, 0 where it had not by then. Default: 1.
        checkpoint : path, optional
            Of a fit to a Dask collection: a file in which the iterate is kept, and from which the same call goes on.
        """
        name, rows = type(self).__name__, {"exposure": exposure, "trials": trials, "event": event}
        if in_partitions(name, X, checkpoint):
            return self._fit_partitions(X, y, sample_weight, checkpoint, **rows)
        y, words = read_labels(name, self.likelihood, y)
        X, y = validate_data(self, X, y, **self._accepted, y_numeric=True, multi_output=self._several_outputs)
        return self._fit_rows(X, numeric(name, "y", y), weights_of(sample_weight, X), rows, words)

    _several_outputs = False  # whether y may have several columns

    def _likelihood_of(self, y: np.ndarray) -> Any:
        """The likelihood that was asked for, by name or as it is."""
        return self.likelihood

    def _fit_rows(self, X: Any, y: np.ndarray, weights: Any, rows: dict[str, Any], words: Any) -> Self:
        """Fit one y, once it is numbers."""
        name, given = type(self).__name__, self._likelihood_of(y)
        learned = self.learn_likelihood and self.optimizer is not None
        target = read_observations(name, given, self.bound, y, rows, weights, self._centred, learned, words)
        if target.labels is not None:
            self.classes_ = target.labels
        if not learned and isinstance(given, str):
            warn_unstated(name, self.likelihood, target.likelihood)
        return self._fit(X, target, weights)

    def _read_partitions(self, values: ValueCounts) -> tuple[Target, np.ndarray | None]:
        """The target of rows in partitions, from the different values of y."""
        name = type(self).__name__
        target, words = partitions_target(
            name, self.likelihood, self.bound, values, self._centred, self.learn_likelihood
        )
        if target.labels is not None:
            self.classes_ = target.labels
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
        """The mean of y (M,), the posterior's uncertainty integrated out; of labels, the mean of their values.

        Parameters
        ----------
        X : array (M, D)
        return_std : bool
            Also the standard deviation (M,) of the y that will be seen, noise included.
        return_cov : bool
            Also the joint covariance (M, M) of the y that will be seen, where y is eta and noise.
        exposure, trials : float or array (M,), optional
            Default: 1.
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
    """Parameters of a likelihood given by name that are not learned, either: they stay where learning would start."""
    kept = ", ".join(f"{name} = {value:.3g}" for _, name, value in likelihood.readable())
    if kept:
        warnings.warn(
            f"{where}: nothing is learned, and likelihood={word!r} does not state its own parameters: they are a guess "
            f"from y, {kept}. Give a likelihood with its values, such as likelihood=fenchel.{likelihood.name}(...), or "
            "the likelihood_ of another fit.",
            UserWarning,
            stacklevel=3,
        )
