"""Real targets with symmetric noise of a given scale, y = eta + b noise, and the quadratic bound on its loss.

    psi(eta) = psi0(u) + log b,  u = (eta - y)/b        u ~ N(a, v),  a = (h - y)/b,  v = rho/b^2

Noise with heavier tails than a Gaussian is super-Gaussian: psi0(u) = g(u^2) with g concave. Then g lies below its
tangents, and the best quadratic bound on the expected loss (the local variational method of Seeger and Nickisch) is g
at the mean square:

    f = g(x) + log b,   x = a^2 + v = E[u^2]          tangent at xi^2 = x, with xi optimised
    alpha = (h - y) lam,   lam = 2 g'(x)/b^2,   hh = lam + 4 (h-y)^2 g''/b^4,   hr = 2 (h-y) g''/b^4,   rr = g''/b^4

It is not convex in (h, rho). Where g(xi^2) is convex in xi (log-concave noise) it is convex in (m, chol V), as is
E[psi], and the strong-concavity certificate holds for both. One step to beta = alpha, lam = 2 g'/b^2 in the natural
parameters minimises a majoriser, so it cannot lower the bound.

Any f that depends on h, rho and b through a and v alone has df/dlog b = 1 - (h - y) alpha - rho lam.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from ..checks import positive, vector
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace
from .base import Likelihood, Rows, flat
from .bounds import Bound, DirectBound
from .parameters import Parameter, shown
from .ranges import log_noise_variance
from .sites import Loss
from .summaries import observed, per_row, quantile, spread

_POINT = 1e-20  # a variance, relative to the squared distance from the kink, below which a normal is a point


class SuperGaussian(DirectBound):
    """The best quadratic bound, g at the mean square."""

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        own = self.likelihood
        a, v = own._unit(h[:, 0], rho[:, 0], rows)
        g, slope, bend = own.unit_bound(a * a + v)
        lam, turn = 2.0 * slope, 2.0 * a * bend
        scaled: Loss = own._scaled(Loss(g, a * lam, lam, lam + 2.0 * a * turn, turn, bend), rows)
        return scaled


# the noise starts with half of the variance of y
SCALE = Parameter(
    "noise scale",
    "scale",
    bounds=lambda own, y: np.array(log_noise_variance(y, own.scale**2, robust=True)) / 2,
    start=lambda own, y, w: own.scale_of(y, w) / math.sqrt(2.0) / math.sqrt(own.unit_variance),
    word="noise",
)


class NoiseLikelihood(Likelihood):
    """y = eta + scale * noise: a subclass gives the loss of unit noise, its quadratic bound and its expectation."""

    noise = True
    heavy_tailed = False  # whether the spread of y is told by its quartiles
    parameters: tuple[Parameter, ...] = (SCALE,)

    def __init__(self, scale: float = 1.0, bound: str | type[Bound] = "exact") -> None:
        self._choose(bound)
        b = float(positive(self.name, "scale", vector(self.name, "scale", scale, 1)[0]))
        self.scale: Any = b  # (N,) where it has a predictor of its own

    # -- unit noise --------------------------------------------------------------------------------
    @abstractmethod
    def unit_loss(self, u: Array) -> tuple[Array, Array, Array]:
        """psi0(u), psi0'(u), psi0''(u) of unit noise."""

    @abstractmethod
    def unit_bound(self, x: Array) -> tuple[Array, Array, Array]:
        """g(x), g'(x), g''(x), with psi0(u) = g(u^2)."""

    @abstractmethod
    def unit_expectation(self, a: Array, v: Array) -> Loss:
        """E[psi0(u)], u ~ N(a, v), with its slopes and curvature in (a, v)."""

    @property
    @abstractmethod
    def unit_variance(self) -> float:
        """Of the noise at scale 1."""

    # -- the contract ------------------------------------------------------------------------------
    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows = {"y": np.where(np.isnan(y), 0.0, y)}
        return (
            rows if np.ndim(self.scale) == 0 else {**rows, "scale": vector(self.name, "scale", self.scale, y.shape[0])}
        )

    def _scale_of(self, rows: Rows) -> tuple[Any, Any]:
        """b and log b: a number, or one for each row."""
        if np.ndim(self.scale) == 0:
            return self.scale, math.log(self.scale)
        return rows["scale"], namespace(rows["scale"]).log(rows["scale"])

    def constant(self, rows: Rows) -> Array:
        return self._scale_of(rows)[1] + 0.0 * rows["y"]

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -self.derivatives(eta, rows)[0]

    def landmarks(self, rows: Rows) -> list[Array]:
        return [rows["y"]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        b, log_b = (x if np.ndim(x) == 0 else x[:, None] for x in self._scale_of(rows))
        psi, slope, bend = self.unit_loss((eta - rows["y"][:, None]) / b)
        return psi + log_b, slope / b, bend / b**2

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        a, v = self._unit(h[:, 0], rho[:, 0], rows)
        return self._scaled(self.unit_expectation(a, v), rows)

    def _unit(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, Array]:
        b = self._scale_of(rows)[0]
        return (h - rows["y"]) / b, rho / b**2

    def _scaled(self, unit: Loss, rows: Rows) -> Loss:
        b, log_b = self._scale_of(rows)
        return Loss(unit.value + log_b, unit.alpha / b, unit.lam / b**2, unit.hh / b**2, unit.hr / b**3, unit.rr / b**4)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        return self.gathered(rows["weight"] * self._scale_slope(h, rho, rows))

    def _scale_slope(self, h: Array, rho: Array, rows: Rows) -> Array:
        """df/dlog b of each row (N,)."""
        loss = self.objective.loss(h, rho, rows)
        return 1.0 - (h[:, 0] - rows["y"]) * loss.alpha - rho[:, 0] * loss.lam

    @classmethod
    def scale_of(cls, y: np.ndarray, weights: Any = None) -> float:
        return spread(*observed(y, weights), robust=cls.heavy_tailed)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return quantile(y, w, 0.5)

    # -- prediction --------------------------------------------------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return flat(h) + 0.0

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        rho = flat(rho)
        b = self.scale if np.ndim(self.scale) == 0 else asarray(self.scale, rho)
        return rho + b**2 * self.unit_variance

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows = namespace(h), self.rows_for(y, h)
        out = self.unit_log_predictive(*self._unit(h, rho, rows)) - self._scale_of(rows)[1]
        return xp.where(rows["weight"] > 0.0, out, xp.nan + xp.zeros_like(out))

    def unit_log_predictive(self, a: Array, v: Array) -> Array:
        """log E[exp(-psi0(u))], u ~ N(a, v); here by quadrature for a log-concave noise."""
        from ..linalg.quadrature import log_expect

        xp, least = namespace(a), _POINT * (1.0 + a * a)
        point = v < least  # too narrow to be found between a and the kink, and a point to all digits
        out = log_expect(lambda u, chunk: -self.unit_loss(u)[0], a, xp.where(point, least, v), [0.0 * a])
        return xp.where(point, -self.unit_loss(a)[0], out)

    @abstractmethod
    def unit_cdf(self, u: np.ndarray) -> np.ndarray:
        """P(noise <= u) at scale 1."""

    @abstractmethod
    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Noise of scale 1."""

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(self.unit_cdf((x - eta) / per_row(self.scale, eta.shape[0])[:, None]))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(eta + per_row(self.scale, eta.shape[0])[:, None] * self.unit_draw(rng, eta.shape))

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return x, self.scale

    def __repr__(self) -> str:
        return f"{self.name}({shown(self.scale, repr)}, bound={self.bound!r})"
