"""What the count regressors share: exposure, and real targets taken with a warning."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from ..checks import first_value, numeric, problem, vector
from ..distributed.survey import ValueCounts
from ..inputs.observations import Target
from ..likelihoods import Poisson
from ..linalg.arrays import ArrayLike
from .any_likelihood import Regression
from .base import validate_data, weights_of
from .dask_rows import by_partition, in_partitions


class Counts(Regression):
    """Counts y ~ Poisson(exposure * exp(eta))."""

    likelihood = "poisson"

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
    def predict(self, X: Any, exposure: ArrayLike | None = None) -> np.ndarray:
        """The expected count (M,), the posterior's uncertainty integrated out."""
        return self._predictive(X, exposure=exposure).mean

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
