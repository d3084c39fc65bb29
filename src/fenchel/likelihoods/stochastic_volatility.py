"""Stochastic volatility: y ~ N(0, e^eta), eta the log-variance.

    f(h, rho) = h/2 + (y^2/2) exp(-h + rho/2) + log(2 pi)/2        exact, no bound needed
    c_h = 1/2,  a_h = -1,  lam = tau,  phi(s) = (y^2/2) e^s,  k(tau) = tau log(2 tau/y^2) - tau

In s nothing is divided by y^2 (the paper's conjugate is): y = 0 has tau = lam = 0 and only its slope 1/2.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from ..linalg.arrays import Array, ArrayLike, Seed, namespace, to_numpy
from ..linalg.quadrature import expect
from .base import Rows, flat
from .by_density import LARGEST
from .scalar import ExponentialLikelihood
from .summaries import mean


class StochasticVolatility(ExponentialLikelihood):
    """Mean-zero returns whose log-variance is the predictor.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import StochasticVolatility
    >>> StochasticVolatility().predictive_variance(np.array([0.0]), np.array([0.0]))
    array([1.])
    """

    word, aliases, of_variance = "stochastic-volatility", ("stochvol",), True
    sign = -1.0

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": np.where(np.isnan(y), 1.0, y)}

    def linear(self, rows: Rows) -> Array:
        return 0.5 + 0.0 * rows["y"]

    def rate(self, rows: Rows) -> Array:
        return rows["y"] ** 2 / 2

    def constant(self, rows: Rows) -> Array:
        return 0.5 * math.log(2 * math.pi) + 0.0 * rows["y"]

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

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return namespace(h).zeros_like(flat(h))

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        with np.errstate(over="ignore"):
            return namespace(h).exp(h + rho / 2)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return math.log(mean(y**2, w))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr(x * np.exp(np.minimum(-eta / 2, LARGEST))))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.exp(eta / 2) * rng.standard_normal(eta.shape)

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        h, rho, levels = to_numpy(flat(h)), to_numpy(flat(rho)), np.atleast_1d(np.asarray(q, dtype=np.float64))
        return np.stack([return_quantile(h, rho, level) for level in levels], axis=1)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[StochasticVolatility, np.ndarray]:
        return cls(), rng.normal(size=n) * np.exp(rng.normal(size=n) / 2)


def return_quantile(h: np.ndarray, rho: np.ndarray, level: float) -> np.ndarray:
    """The level-quantile of N(0, e^eta), eta ~ N(h, rho): bisection on E[Phi(x e^{-(eta-h)/2})] in log x."""
    if level == 0.5:
        return np.zeros_like(h)
    tail = max(level, 1.0 - level)
    centre = np.full_like(h, np.log(ndtri(tail)))
    reach = 5.0 * np.sqrt(rho) + 1.0
    low, high = centre - reach, centre + reach
    for _ in range(50):
        x = (low + high) / 2

        def g(eta: Array, rows: slice, x: np.ndarray = x) -> np.ndarray:
            return np.asarray(ndtr(np.exp(np.minimum(x[rows, None] - to_numpy(eta) / 2, 700.0))))

        enough = np.asarray(expect(g, 0.0 * h, rho, [2.0 * x])) >= tail
        high, low = np.where(enough, x, high), np.where(enough, low, x)
    return np.sign(level - 0.5) * np.exp((low + high) / 2 + h / 2)
