"""Gaussian noise: y ~ N(eta, v).

f(h, rho) = (y - h)^2 / (2v) + rho / (2v) + log(2 pi v)/2      exact: GP regression in one step
c_h = 0,  a_h = 1,  lam = 1/v (constant),  phi(s) = (s - y)^2/(2v),  k(tau) = v tau^2/2 + y tau

With phi around y nothing of the size of y^2 is ever added and taken away: years or Julian days keep their digits.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..checks import numeric, positive, vector
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, special, to_numpy
from .base import Likelihood, Rows, flat
from .bounds import Bounds, ConvexBound
from .parameters import Parameter
from .potentials import Quadratic
from .ranges import log_noise_variance
from .sites import Loss, Site
from .summaries import mean, observed, per_row, spread


class GaussianSite(ConvexBound):
    """The expectation itself, which is convex: nothing is lost."""

    conjugate = True

    def signs(self, rows: Rows) -> Array:
        return 1.0 + 0.0 * rows["weight"][:, None]

    def site(self, s: Array, rows: Rows) -> Site:
        v, y = rows["variance"][:, None], rows["y"][:, None]
        tau, k, spread = Quadratic.evaluate(s - y, v)
        zero = 0.0 * s
        return Site(tau, tau, 1.0 / v + zero, zero, zero, (k + y * tau)[:, 0], spread)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        return Quadratic.coordinate(tau, rows["variance"][:, None]) + rows["y"][:, None]

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        return Quadratic.divergence(s_hat, s, rows["variance"][:, None])[:, 0]

    def reach(self, rows: Rows) -> float:
        return float("inf")

    def start(self, rows: Rows, shrink: float) -> Array:
        return rows["y"][:, None]  # alpha = 0


class Gaussian(Likelihood):
    """Real-valued targets with known noise variance.

    Parameters
    ----------
    variance : float or array (N,)
        Noise variance v, above 0. Learnable where it is one number.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Gaussian
    >>> Gaussian(0.5).predictive_variance(np.array([0.0]), np.array([1.0]))
    array([1.5])
    """

    bound = "none"
    bounds: ClassVar[Bounds] = {"none": GaussianSite}
    word, aliases, noise = "gaussian", ("normal",), True
    parameters = (
        Parameter(
            "noise variance",
            "variance",
            bounds=lambda own, y: log_noise_variance(y, float(own.variance)),
            start=lambda own, y, w: (own.scale_of(y, w) / np.sqrt(2.0)) ** 2,  # half of the variance of y
            word="noise",
            shown="sd",
            power=2.0,
            weak=(None, 6.0),
            formula=("dispersion", "log sd"),
        ),
    )

    def __init__(self, variance: ArrayLike = 1.0) -> None:
        positive("Gaussian", "variance", numeric("Gaussian", "variance", variance))
        self.variance = variance

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        v = vector(self.name, "variance", self.variance, y.shape[0])
        return {"y": np.where(np.isnan(y), 0.0, y), "variance": v}

    def constant(self, rows: Rows) -> Array:
        return 0.5 * namespace(rows["y"]).log(2 * np.pi * rows["variance"])

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -self.derivatives(eta, rows)[0]

    def landmarks(self, rows: Rows) -> list[Array]:
        return [rows["y"]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, v, error = namespace(eta), rows["variance"][:, None], eta - rows["y"][:, None]
        return error**2 / (2 * v) + 0.5 * xp.log(2 * np.pi * v), error / v, 1.0 / v + 0.0 * eta

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        psi, first, second = (x[:, 0] for x in self.derivatives(h, rows))
        return Loss(psi + second * rho[:, 0] / 2, first, second, second, 0.0 * second, 0.0 * second)

    def readable(self) -> list[tuple[str, str, float]]:
        if self.of_rows:
            return super().readable()
        v = [float(np.asarray(self.variance))] if np.ndim(self.variance) == 0 else []
        return [("noise", word, x) for each in v for word, x in (("variance", each), ("sd", float(np.sqrt(each))))]

    @classmethod
    def scale_of(cls, y: np.ndarray, weights: Any = None) -> float:
        return spread(*observed(y, weights))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return mean(y, w)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        if not self.learned:
            return np.zeros(0)
        slope = 0.5 - ((rows["y"] - h[:, 0]) ** 2 + rho[:, 0]) / (2 * rows["variance"])
        return self.gathered(rows["weight"] * slope)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return flat(h) + 0.0

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        rho = flat(rho)
        return rho + asarray(vector(self.name, "variance", self.variance, rho.shape[0]), rho)

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, v = flat(h), self.predictive_variance(h, rho)
        xp, rows = namespace(h), self.rows_for(y, h)
        out = -0.5 * (rows["y"] - h) ** 2 / v - 0.5 * xp.log(2 * np.pi * v)
        return xp.where(rows["weight"] > 0.0, out, xp.nan + xp.zeros_like(out))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return to_numpy(special("ndtr", (x - eta) / self._sd(eta)))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return eta + self._sd(eta) * rng.standard_normal(eta.shape)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return x, self._sd(x[:, None])[:, 0]

    def _sd(self, eta: np.ndarray) -> np.ndarray:
        return np.sqrt(per_row(self.variance, eta.shape[0]))[:, None]

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        h, sd = to_numpy(flat(h)), np.sqrt(to_numpy(self.predictive_variance(h, rho)))
        return h[:, None] + sd[:, None] * special("ndtri", np.atleast_1d(np.asarray(q, dtype=np.float64)))[None, :]

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Gaussian, np.ndarray]:
        return cls(float(rng.gamma(2.0, 0.5) + 0.1)), rng.normal(size=n)

    def __repr__(self) -> str:
        return f"Gaussian({self.variance!r})" if np.ndim(self.variance) == 0 else "Gaussian(...)"
