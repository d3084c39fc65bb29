"""Logistic noise: p(y|eta) = sigma'(u)/b, u = (eta - y)/b; tails like Laplace noise, round at the centre.

    psi0(u) = log(1 + e^u) + log(1 + e^-u) = 2 log(2 cosh(u/2)),   u ~ N(a, v)
    "exact"           f = E[softplus(u)] + E[softplus(-u)] + log b
    "super-gaussian"  f = 2 log(2 cosh(xi/2)) + log b,   xi^2 = a^2 + v
    "log-sum"         f = log(1 + e^{a + v/2}) + log(1 + e^{-a + v/2}) + log b
    "tilted"          the tightest tilt of each logarithm

The last two have a dual: two potentials on one predictor, as for ordinal levels, with a_h = 1, -1 and tau in (0, 1/b),

    phi_1(s) = log(1 + e^{(s-y)/b}),  phi_2(s) = log(1 + e^{(s+y)/b}),   tau = sigma(.)/b
    log-sum: lam = (tau_1 + tau_2)/b      tilted: lam = sum tau (1/b - tau)
"""

from __future__ import annotations

import math

import numpy as np

from ..linalg.arrays import Array, namespace
from ..linalg.functions import log_cosh_slopes, sigmoid, softplus
from ..linalg.logistic import FIRST, MINUS, PLUS, REST, SECOND, TAU, THIRD, logistic_moments
from .base import Rows
from .potentials import Softplus, tilted_logit_maximiser
from .sites import Domain, Loss, Site
from .super_gaussian import NoiseLikelihood


class LogisticNoise(NoiseLikelihood):
    """Real-valued targets with logistic noise: nearly Gaussian at the centre, robust in the tails.

    Parameters
    ----------
    scale : float
        b, above 0; the standard deviation of the noise is pi b / sqrt(3). Learned as theta = [log b].
    bound : {"exact", "tilted", "log-sum", "super-gaussian"}
        The expectation itself, two bounds with a convex dual, or the best quadratic bound.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import LogisticNoise
    >>> LogisticNoise().predictive_log_density([0.0], np.array([0.0]), np.array([0.0])).round(6)  # log 1/4
    array([-1.386294])
    """

    bounds = ("exact", "tilted", "log-sum", "super-gaussian")
    layout = (0, 0)
    word = "logistic"

    def relaxed(self) -> LogisticNoise:
        return self if self.convex else LogisticNoise(self.scale, "tilted")

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return Domain(lower=0.0, upper=1.0 / self.scale)

    # -- the dual ----------------------------------------------------------------------------------
    def signs(self, rows: Rows) -> Array:
        xp, one = namespace(rows["y"]), 1.0 + 0.0 * rows["y"]
        return xp.stack([one, -one], axis=1)

    def _inner(self, s: Array, rows: Rows) -> Array:
        """What the softplus sees: (s_1 - y)/b and (s_2 + y)/b."""
        return (s - self.signs(rows) * rows["y"][:, None]) / self.scale

    def site(self, s: Array, rows: Rows) -> Site:
        xp, b = namespace(s), self.scale
        inner = self._inner(s, rows)
        t, rest, k, spread = Softplus.evaluate(inner)
        k = k + t * (s / b - inner)
        if self.bound == "log-sum":
            lam, slope, bend = t / b**2, (1.0 / b) * xp.ones_like(s), xp.zeros_like(s)
        else:
            lam, slope, bend = spread / b**2, (rest - t) / b, -2.0 * xp.ones_like(s)
        alpha, lam = (t[:, :1] - t[:, 1:]) / b, lam[:, :1] + lam[:, 1:]
        return Site(t / b, alpha, lam, slope, bend, xp.sum(k, axis=1), spread / b**2)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        return self.scale * Softplus.coordinate(self.scale * tau) + self.signs(rows) * rows["y"][:, None]

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        each = Softplus.divergence(self._inner(s_hat, rows), self._inner(s, rows))
        return namespace(s).sum(each, axis=1)

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        b, signs = self.scale, self.signs(rows)
        if self.bound == "log-sum":
            return signs * h + rho / (2.0 * b)
        inner = tilted_logit_maximiser(self._inner(signs * h, rows), rho / b**2)
        return b * inner + signs * rows["y"][:, None]

    def curve_gap(self, tau_hat: Array, tau: Array) -> Array | None:
        return (tau_hat - tau) ** 2 if self.bound == "tilted" else None

    def reach(self, rows: Rows) -> float:
        return 4.0 * self.scale

    def start(self, rows: Rows, shrink: float) -> Array:
        return self.signs(rows) * rows["y"][:, None]  # both tau = 1/2b, so that alpha = 0

    # -- unit noise --------------------------------------------------------------------------------
    def unit_loss(self, u: Array) -> tuple[Array, Array, Array]:
        up, down = sigmoid(u), sigmoid(-u)
        return softplus(u) + softplus(-u), up - down, 2.0 * up * down

    def unit_bound(self, x: Array) -> tuple[Array, Array, Array]:
        xp = namespace(x)
        xi = xp.sqrt(x)
        slope, bend = log_cosh_slopes(x)
        return xi + 2.0 * xp.log1p(xp.exp(-xi)), 2.0 * slope, 2.0 * bend

    def unit_expectation(self, a: Array, v: Array) -> Loss:
        m = logistic_moments(a, v)
        lam = 2.0 * m[FIRST, :]
        return Loss(m[PLUS, :] + m[MINUS, :], m[TAU, :] - m[REST, :], lam, lam, m[SECOND, :], m[THIRD, :] / 2)

    @property
    def unit_variance(self) -> float:
        return math.pi**2 / 3

    def unit_cdf(self, u: np.ndarray) -> np.ndarray:
        return sigmoid(u)

    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.logistic(size=shape)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[LogisticNoise, np.ndarray]:
        scale = float(rng.gamma(2.0, 0.3) + 0.2)
        return cls(scale, str(rng.choice(cls.bounds))), rng.normal(size=n) + rng.logistic(size=n) * scale
