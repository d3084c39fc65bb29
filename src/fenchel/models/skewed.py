"""Predictions by marginals that are not normal: what ``FittedModel.corrected`` says of y."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..hyperparameters.integration.predictive import MixedPredictive
from ..likelihoods.base import Likelihood
from .exceeding import Spread

if TYPE_CHECKING:
    from .fitted import Corrections


class Said:
    """What corrected marginals of eta say of y at some rows.

    Parameters
    ----------
    answers : Corrections
    new : mapping
        The rows, as ``posterior.predict`` takes them.
    likelihood : Likelihood
        With the rows' exposures or trials.
    values : array (K,) or None
        What the labels of y stand for.
    """

    def __init__(self, answers: Corrections, new: Any, likelihood: Likelihood, values: np.ndarray | None) -> None:
        self.eta, self.likelihood, self.values = answers.at(**new), likelihood, values
        self.y = self.eta.predictive(likelihood)
        spread = Spread([1.0], [likelihood], [self.eta], values)
        self.sd, self.above, self.log_density = spread.sd, spread.above, self.y.log_density

    @property
    def probabilities(self) -> np.ndarray:
        return np.asarray(self.y.probabilities)

    def mean(self, kind: str) -> np.ndarray:
        """E[eta] ("link") or E[y]."""
        if kind == "link":
            return np.asarray(self.eta.mean)
        return np.asarray(self.y.mean if self.values is None else self.probabilities @ self.values)

    def limits(self, kind: str, ends: np.ndarray) -> np.ndarray:
        """Quantiles (M, 2) of eta, of E[y | eta] or of y."""
        if kind == "outcome":
            out = np.asarray(self.y.quantile(ends))
            return out if self.values is None else self.values[out.astype(int)]
        eta = np.asarray(self.eta.quantile(ends))
        if kind == "link":
            return eta
        means = (
            self.likelihood.mean_at(eta) if self.values is None else self.likelihood.probabilities_at(eta) @ self.values
        )
        return np.sort(np.asarray(means), axis=1)


class MixedSaid:
    """What a mixture over the hyperparameters says of y at some rows; ``values`` as in ``Said``."""

    def __init__(self, y: MixedPredictive, values: np.ndarray | None) -> None:
        self.y, self.values = y, values
        spread = Spread(y.weights, y.likelihoods, y.etas, values)
        self.sd, self.above, self.log_density = spread.sd, spread.above, y.log_density

    @property
    def probabilities(self) -> np.ndarray:
        return np.asarray(self.y.probabilities)

    def mean(self, kind: str) -> np.ndarray:
        """E[eta] ("link") or E[y]."""
        if kind == "link":
            return np.asarray(self.y.eta.mean)
        return np.asarray(self.y.mean if self.values is None else self.probabilities @ self.values)

    def limits(self, kind: str, ends: np.ndarray) -> np.ndarray:
        """Quantiles (M, 2) of eta, of E[y | eta] or of y."""
        if kind == "link":
            return np.asarray(self.y.eta.quantile(ends))
        if kind == "mean":
            return np.asarray(self.y.mean_quantile(ends, self.values))
        out = np.asarray(self.y.quantile(ends))
        return out if self.values is None else self.values[out.astype(int)]
