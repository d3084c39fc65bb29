"""What eta is: X read into a family of priors, and eta at new rows.

Half of an estimator; ``target.py`` is the other. A latent makes its family, says how its hyperparameters are learned,
and gives the mean and variance of eta at new rows, a block of them at a time where whole ones would not fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..hyperparameters import Family, Learned, learn
from ..linalg.arrays import Array
from ..posterior import Posterior
from ..priors.base import NewRows
from .target import Target

Moments = tuple[np.ndarray, np.ndarray]


class Latent(ABC):
    """A family of priors for the rows of a fit, and what it says of others."""

    @abstractmethod
    def family(self) -> Family:
        """The prior of eta at the rows of the fit, with hyperparameters; a new one at every call."""

    @abstractmethod
    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """Where to predict; theta may go on with the likelihood's own parameters."""

    def learn(self, target: Target, family: Family, own: bool, **options: Any) -> Learned:
        """Learn the hyperparameters, and with ``own`` those of the likelihood."""
        return learn(target.likelihood, family, target.y, learn_likelihood=own, **options)

    def blocks(self, table: Any) -> Iterable[Any]:
        """New rows, as many at a time as may be looked at together."""
        return [table]

    def moments(self, posterior: Posterior, theta: np.ndarray, table: Any, mean_only: bool = False) -> Moments:
        """Mean and variance of eta at new rows, (M,) or (M, C); with ``mean_only`` the variance is left 0."""
        parts: list[tuple[Array, Array]] = []
        for rows in self.blocks(table):
            new = self.new_rows(theta, rows)
            if mean_only:
                h = posterior.predict_mean(design=new.design, cross=new.cross, mean=new.mean, offset=new.offset)
                parts.append((h, np.zeros_like(h)))
            else:
                parts.append(posterior.predict(**new))
        h, rho = parts[0] if len(parts) == 1 else (np.concatenate(each) for each in zip(*parts, strict=True))
        return np.asarray(h), np.asarray(rho)
