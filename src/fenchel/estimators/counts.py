"""What the count regressors share: exposure, and real targets taken with a warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..checks import first_value, problem, vector
from ..likelihoods import Poisson
from .any_likelihood import Regression
from .observations import Observations


class Counts(Regression):
    """Counts y ~ Poisson(exposure * exp(eta))."""

    likelihood = "poisson"
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
        found = Poisson(E, integer=integer)
        self._responds(Observations(found, y, 0.0, 1.0, None), None)
        return found

    def predict(self, X: Any, exposure: Any = None) -> np.ndarray:
        """The expected count (M,), the posterior's uncertainty integrated out."""
        return np.asarray(self._mean_of(self._moments(X, exposure=exposure), with_std=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
