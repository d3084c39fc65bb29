"""Stochastic volatility: y ~ N(0, e^eta), eta the log-variance.

    f(h, rho) = h/2 + (y^2/2) exp(-h + rho/2) + log(2 pi)/2        exact, no bound needed
    c_h = 1/2,  a_h = -1,  lam = tau,  phi(s) = (y^2/2) e^s,  k(tau) = tau log(2 tau/y^2) - tau

In s nothing is divided by y^2 (the paper's conjugate is): y = 0 has tau = lam = 0 and only its slope 1/2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..linalg.arrays import Array, namespace
from .base import Rows, flat
from .scalar import ExponentialLikelihood


class StochasticVolatility(ExponentialLikelihood):
    """Mean-zero returns whose log-variance is the predictor.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import StochasticVolatility
    >>> StochasticVolatility().predictive_variance(np.array([0.0]), np.array([0.0]))
    array([1.])
    """

    sign = -1.0

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": np.where(np.isnan(y), 1.0, y)}

    def linear(self, rows: Rows) -> Array:
        return 0.5 + 0.0 * rows["y"]

    def rate(self, rows: Rows) -> Array:
        return rows["y"] ** 2 / 2

    def constant(self, rows: Rows) -> Array:
        return 0.5 * math.log(2 * math.pi) + 0.0 * rows["y"]

    def start(self, rows: Rows, shrink: float) -> Array:
        return -self._log_square(rows)[:, None]  # tau = 1/2, so that alpha = 0

    def log_density(self, eta: Array, rows: Rows) -> Array:
        xp, rate = namespace(eta), self.rate(rows)[:, None]
        bend = xp.where(rate > 0.0, rate * xp.exp(-eta), xp.zeros_like(eta))  # 0 * inf is 0 here: y = 0
        return -0.5 * math.log(2 * math.pi) - eta / 2 - bend

    def landmarks(self, rows: Rows) -> list[Array]:
        return [self._log_square(rows)]

    @staticmethod
    def _log_square(rows: Rows) -> Array:
        """log y^2, the most likely eta; 0 where y = 0 and the likelihood has no mode."""
        xp, square = namespace(rows["y"]), rows["y"] ** 2
        return xp.log(xp.where(square > 0.0, square, xp.ones_like(square)))

    def predictive_mean(self, h: Array, rho: Array, rng: Any = None) -> Array:
        return 0.0 * flat(h)

    def predictive_variance(self, h: Array, rho: Array, rng: Any = None) -> Array:
        h, rho = flat(h), flat(rho)
        with np.errstate(over="ignore"):
            return namespace(h).exp(h + rho / 2)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[StochasticVolatility, np.ndarray]:
        return cls(), rng.normal(size=n) * np.exp(rng.normal(size=n) / 2)
