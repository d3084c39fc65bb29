"""The mean of y, or eta, as an unknown: its standard deviation, and the probability that it exceeds a threshold.

    m(eta) = E[y | eta],    sd = sqrt(E[(m - l)^2] - E[m - l]^2)
    P(m > c) = P(eta > m^-1(c)),    m being monotone in eta

Both are of the marginals of eta at each row, without draws; l is a value near m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..corrections.predictive import Predictive
from ..hyperparameters.integration.predictive import NormalPredictive, predictive_of
from ..likelihoods.base import Likelihood
from ..linalg.arrays import to_numpy
from ..marginals import Marginals

_REACH = 12.0  # sds of eta on either side of its mean, beyond which nothing of it is left
_HALVINGS = 60  # of that stretch: to the last digits of a threshold of eta


def mean_given_eta(likelihood: Likelihood, eta: np.ndarray, values: np.ndarray | None) -> np.ndarray:
    """E[y | eta], like eta; ``values`` are what the levels of y stand for."""
    return np.asarray(likelihood.mean_at(eta) if values is None else likelihood.probabilities_at(eta) @ values)


def mean_moments(
    part: Predictive | NormalPredictive, values: np.ndarray | None, level: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """E[m - level] and E[(m - level)^2] (N,)."""

    def both(own: Likelihood, eta: np.ndarray, rows: slice) -> np.ndarray:
        above = mean_given_eta(own, eta, values) - level[rows, None]
        return np.stack([above, above * above])

    first, second = part.average(both)
    return first, second


def mean_above(likelihood: Likelihood, eta: Marginals, threshold: float, values: np.ndarray | None) -> np.ndarray:
    """P(m > threshold) (N,)."""
    middle, reach = to_numpy(eta.mean), _REACH * to_numpy(eta.sd)
    low, high = middle - reach, middle + reach
    at_low, at_high = (mean_given_eta(likelihood, end, values) for end in (low, high))
    rises = at_high >= at_low
    for _ in range(_HALVINGS):
        half = 0.5 * (low + high)
        beyond = (mean_given_eta(likelihood, half, values) > threshold) == rises
        low, high = np.where(beyond, low, half), np.where(beyond, half, high)
    below = to_numpy(eta.cdf(0.5 * (low + high)))
    out = np.where(rises, 1.0 - below, below)
    out = np.where(np.minimum(at_low, at_high) > threshold, 1.0, out)
    return np.where(np.maximum(at_low, at_high) <= threshold, 0.0, out)


@dataclass(frozen=True)
class Spread:
    """What weighted parts, a likelihood and marginals of eta each, say of a row: one part where theta is fixed.

    Attributes
    ----------
    weights : sequence (K,) of sum 1
    likelihoods, etas : sequences (K)
    values : array or None
        What the levels of y stand for.
    """

    weights: Sequence[float] | np.ndarray
    likelihoods: Sequence[Likelihood]
    etas: Sequence[Marginals]
    values: np.ndarray | None

    def sd(self, kind: str) -> np.ndarray:
        """Of eta ("link"), of E[y | eta] ("mean") or of y ("outcome")."""
        level = self._level(kind)
        first, second = sum(
            w * np.stack(self._moments(kind, own, eta, level))
            for w, own, eta in zip(self.weights, self.likelihoods, self.etas, strict=True)
        )
        return np.sqrt(np.maximum(second - first**2, 0.0))

    def _level(self, kind: str) -> np.ndarray:
        """A value near all of them (N,): moments about it keep their digits where a mean is large beside its sd."""
        eta = to_numpy(self.etas[0].mean)
        level = eta if kind == "link" else mean_given_eta(self.likelihoods[0], eta[:, None], self.values)[:, 0]
        return np.where(np.isfinite(level), level, 0.0)

    def _moments(self, kind: str, own: Likelihood, eta: Marginals, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first two moments about ``level``."""
        if kind == "link":
            above = to_numpy(eta.mean) - level
            return above, to_numpy(eta.variance) + above**2
        y = predictive_of(own, eta)
        if kind == "mean":
            return mean_moments(y, self.values, level)
        if self.values is not None:
            p, above = np.asarray(y.probabilities), self.values - level[:, None]
            return np.sum(p * above, axis=1), np.sum(p * above**2, axis=1)
        above = y.mean - level
        return above, y.variance + above**2

    def above(self, kind: str, threshold: float) -> np.ndarray:
        """P(... > threshold) of the same."""
        parts = zip(self.weights, self.likelihoods, self.etas, strict=True)
        return np.asarray(sum(w * self._above(kind, own, eta, threshold) for w, own, eta in parts))

    def _above(self, kind: str, own: Likelihood, eta: Marginals, threshold: float) -> np.ndarray:
        if kind == "link":
            return 1.0 - to_numpy(eta.cdf(threshold))
        if kind == "mean":
            return mean_above(own, eta, threshold, self.values)
        y = predictive_of(own, eta)
        if self.values is not None:
            return np.asarray(np.asarray(y.probabilities) @ (self.values > threshold))
        return 1.0 - np.asarray(y.cdf(threshold))
