"""Gamma: positive targets with mean e^eta and shape k, p(y|eta) = (k/e^eta)^k y^{k-1} exp(-k y e^-eta) / Gamma(k).

    f(h, rho) = k h + k y exp(-h + rho/2) - k log k - (k-1) log y + log Gamma(k)        exact, no bound needed
    c_h = k,  a_h = -1,  lam = tau,  phi(s) = k y e^s,  k*(tau) = tau log(tau/(k y)) - tau

The variance of y is e^{2 eta}/k: a constant coefficient of variation 1/sqrt(k). k = 1 is the exponential distribution.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gammainc

from ..checks import first_value, positive, problem, vector
from ..linalg.arrays import Array, Seed, asarray, namespace, special
from .base import Rows, flat
from .by_density import LARGEST
from .parameters import Parameter, shown
from .ranges import log_noise_variance
from .scalar import ExponentialLikelihood
from .summaries import mean, per_row


class Gamma(ExponentialLikelihood):
    """Positive targets with mean ``exp(eta)``: amounts, durations without censoring, concentrations.

    Parameters
    ----------
    shape : float
        k, above 0: one over the squared coefficient of variation. Learned as theta = [log k].

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Gamma
    >>> Gamma(shape=4.0).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([0.25])
    """

    sign = -1.0
    word, support, ratio = "gamma", "positive", "mean_ratio"
    # 1/k is near the noise variance of log y
    parameters = (
        Parameter(
            "shape",
            "shape",
            bounds=lambda own, y: (math.log(1e-4), -log_noise_variance(np.log(y), 1.0 / own.shape)[0]),
            weak=(1.0, 3.0),
            formula=("dispersion", "log shape"),
        ),
    )

    def __init__(self, shape: float = 1.0) -> None:
        k = float(positive(self.name, "shape", vector(self.name, "shape", shape, 1)[0]))
        self.shape: Any = k  # (N,) where it has a predictor of its own

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        bad = y <= 0.0
        if bad.any():
            raise problem(
                self.name,
                f"y{first_value(bad, y)} is not above 0",
                "positive numbers, or NaN for unobserved",
                "For counts use Poisson; for real-valued targets use Gaussian.",
            )
        return {"y": np.where(np.isnan(y), 1.0, y), "shape": vector(self.name, "shape", self.shape, y.shape[0])}

    def linear(self, rows: Rows) -> Array:
        return rows["shape"] + 0.0

    def rate(self, rows: Rows) -> Array:
        return rows["shape"] * rows["y"]

    def constant(self, rows: Rows) -> Array:
        xp, k = namespace(rows["y"]), rows["shape"]
        return special("gammaln", k) - k * xp.log(k) - (k - 1.0) * xp.log(rows["y"])

    def landmarks(self, rows: Rows) -> list[Array]:
        return [namespace(rows["y"]).log(rows["y"])]

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        xp, y, k = namespace(h), rows["y"], rows["shape"]
        away = h[:, 0] - xp.log(y)
        # log k - digamma(k) is near 1/(2k); what is left of the row is 0 where e^h = y and rho = 0
        each = xp.exp(-away + rho[:, 0] / 2) - 1.0 + away
        pull = special("digamma", k) - xp.log(k)
        return self.gathered(rows["weight"] * (k * (each + pull)))

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        with np.errstate(over="ignore"):  # a mean can be infinite
            return namespace(h).exp(h + rho / 2)

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        """E[e^{2 eta}]/k + Var[e^eta]."""
        mean, rho = self.predictive_mean(h, rho), flat(rho)
        xp = namespace(rho)
        with np.errstate(over="ignore"):
            return mean**2 * (xp.exp(rho) / asarray(per_row(self.shape, rho.shape[0]) + 0.0, rho) + xp.expm1(rho))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return math.log(mean(y, w))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        k = per_row(self.shape, eta.shape[0])[:, None]
        return np.asarray(gammainc(k, k * x * np.exp(np.minimum(-eta, LARGEST))))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        k = per_row(self.shape, eta.shape[0])[:, None]
        return np.exp(eta) * rng.gamma(k, 1.0 / k, eta.shape)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return np.log(x), np.minimum(1.0, per_row(self.shape, x.shape[0]) ** -0.5)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Gamma, np.ndarray]:
        shape = float(rng.gamma(2.0, 1.0) + 0.3)
        return cls(shape), rng.gamma(shape, np.exp(rng.normal(size=n)) / shape)

    def __repr__(self) -> str:
        return f"Gamma({shown(self.shape, repr)})"
