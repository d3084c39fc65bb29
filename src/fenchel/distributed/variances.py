"""The prior of linear weights in groups with learned variances, as partitioned fits take it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..hyperparameters.weights import WeightVariances


class GroupedVariances:
    """z_l ~ N(mean_l, v_{g(l)}), theta = log v: a ``WeightPrior`` of the groups of a ``WeightVariances``.

    Parameters
    ----------
    groups, variance, mean : arrays (L,)
        As in ``WeightVariances``.
    **options : of ``WeightVariances``
    """

    def __init__(self, groups: Any, variance: Any, mean: Any, **options: Any) -> None:
        self.family = WeightVariances(np.zeros((1, len(groups))), groups, variance, mean, **options)
        self.mean = np.broadcast_to(np.asarray(mean, dtype=np.float64), (len(groups),))

    @classmethod
    def of(cls, family: WeightVariances, mean: np.ndarray) -> GroupedVariances:
        """The same of a family that there is already."""
        out = cls.__new__(cls)
        out.family, out.mean = family, mean
        return out

    @property
    def theta(self) -> np.ndarray:
        return self.family.theta if self.family.n_groups else np.zeros(0)

    @property
    def bounds(self) -> np.ndarray:
        return self.family.bounds.reshape(-1, 2)

    def at(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.mean, np.sqrt(self.family.variances_at(theta))

    def gradient(self, theta: np.ndarray, second: np.ndarray, n_predictors: int) -> np.ndarray:
        family, v = self.family, self.family.variances_at(theta)
        each, live = 0.5 * (np.diag(second) / v - n_predictors), family.groups >= 0
        return np.bincount(family.groups[live], weights=each[live], minlength=family.n_groups).astype(np.float64)

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        return self.family.log_prior(theta)
