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
from typing import ClassVar

import numpy as np

from ..linalg.arrays import Array, namespace, to_numpy
from ..linalg.functions import log_cosh_slopes, sigmoid, softplus
from ..linalg.logistic import FIRST, MINUS, PLUS, REST, SECOND, TAU, THIRD, logistic_moments
from .base import Rows
from .bounds import Bounds, ExactExpectation
from .sites import Loss
from .softplus_bounds import LogSumLogit, Softpluses, TiltedLogit
from .super_gaussian import NoiseLikelihood, SuperGaussian


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

    bounds: ClassVar[Bounds] = {
        "exact": ExactExpectation,
        "tilted": TiltedLogit,
        "log-sum": LogSumLogit,
        "super-gaussian": SuperGaussian,
    }
    n_softpluses = 2
    word = "logistic"

    # -- the dual ----------------------------------------------------------------------------------
    @property
    def softplus_scale(self) -> float:
        return self.scale

    def softpluses(self, rows: Rows) -> Softpluses:
        return Softpluses(None, self.start(rows, 1.0))

    def start(self, rows: Rows, shrink: float) -> Array:
        return namespace(rows["y"]).stack([rows["y"], -rows["y"]], axis=1)  # both tau = 1/2b, so that alpha = 0

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
        return to_numpy(sigmoid(u))

    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.logistic(size=shape)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[LogisticNoise, np.ndarray]:
        scale = float(rng.gamma(2.0, 0.3) + 0.2)
        return cls(scale, str(rng.choice(list(cls.bounds)))), rng.normal(size=n) + rng.logistic(size=n) * scale
