"""Laplace noise: p(y|eta) = exp(-|y - eta|/b) / (2b), the loss of median regression.

    psi0(u) = |u| + log 2,   u = (eta - y)/b ~ N(a, v)
    "exact"           E|u| = a erf(a / sqrt(2v)) + 2 sqrt(v) phi(a/sqrt(v))     (a folded normal)
                      E[psi0'] = erf(a / sqrt(2v)),   E[psi0''] = 2 N(a; 0, v): a kink is a point mass of curvature
    "super-gaussian"  f = xi + log 2,   xi^2 = a^2 + v

Neither has a convex dual, both have the strong-concavity certificate. lam grows like 1/sqrt(v) as v falls at a = 0: a
posterior does not shrink onto the kink.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from ..linalg.arrays import Array, namespace, special
from .bounds import Bounds, ExactExpectation
from .logistic_noise import LogisticNoise
from .sites import Loss
from .super_gaussian import NoiseLikelihood, SuperGaussian

_POINT = 1e-100  # of v and x, below which a kink looks no different
_FAR = 40.0  # standard deviations at which the normal density is 0 in double precision


class LaplaceNoise(NoiseLikelihood):
    """Real-valued targets with double-exponential noise: robust, with the median at eta.

    Parameters
    ----------
    scale : float
        b, above 0; the standard deviation of the noise is sqrt(2) b. Learned as theta = [log b].
    bound : {"exact", "super-gaussian"}
        The expectation itself, in closed form, or the best quadratic bound on it.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import LaplaceNoise
    >>> LaplaceNoise(0.5).predictive_variance(np.array([0.0]), np.array([1.0]))
    array([1.5])
    """

    bounds: ClassVar[Bounds] = {"exact": ExactExpectation, "super-gaussian": SuperGaussian}
    word, heavy_tailed = "laplace", True

    def neighbour(self) -> LogisticNoise:
        """log(2 cosh(u/2)) 2 is |u| with its corner rounded: logistic noise of the same scale."""
        return LogisticNoise(self.scale, "tilted")

    def unit_loss(self, u: Array) -> tuple[Array, Array, Array]:
        """The kink carries all the curvature: psi0'' is 0 wherever it is a number."""
        xp = namespace(u)
        return xp.abs(u) + math.log(2.0), xp.sign(u), xp.zeros_like(u)

    def unit_bound(self, x: Array) -> tuple[Array, Array, Array]:
        xp = namespace(x)
        x = xp.maximum(x, _POINT + xp.zeros_like(x))
        xi = xp.sqrt(x)
        return xi + math.log(2.0), 0.5 / xi, -0.25 / (x * xi)

    def unit_expectation(self, a: Array, v: Array) -> Loss:
        xp = namespace(a)
        v = xp.maximum(v, _POINT + xp.zeros_like(v))
        sd = xp.sqrt(v)
        z = xp.minimum(xp.maximum(a / sd, -_FAR + xp.zeros_like(a)), _FAR + xp.zeros_like(a))
        slope = special("erf", z / math.sqrt(2.0))
        bend = math.sqrt(2.0 / math.pi) * xp.exp(-0.5 * z * z) / sd
        value = a * slope + bend * v + math.log(2.0)
        return Loss(value, slope, bend, bend, -0.5 * bend * z / sd, 0.25 * bend * (z * z - 1.0) / v)

    @property
    def unit_variance(self) -> float:
        return 2.0

    def unit_log_predictive(self, a: Array, v: Array) -> Array:
        """Two half-lines: E[e^{-u}; u > 0] = e^{v/2 - a} Phi(a/sd - sd), and its mirror image.

        Where the argument of Phi is negative e^{v/2 - a} Phi is e^{-a^2/2v} erfcx/2, which does not cancel.
        """
        xp = namespace(a)
        v = xp.maximum(v, _POINT + xp.zeros_like(v))
        sd = xp.sqrt(v)
        sides = []
        for side in (a, -a):
            x = sd - side / sd
            inside = xp.where(x > 0.0, x, xp.zeros_like(x))
            outside = xp.where(x > 0.0, xp.zeros_like(x), x)
            with np.errstate(over="ignore"):
                near = xp.log(special("erfcx", inside / math.sqrt(2.0)) / 2.0) - 0.5 * (side / sd) ** 2
            sides.append(xp.where(x > 0.0, near, 0.5 * v - side + special("log_ndtr", -outside)))
        top, low = xp.maximum(*sides), xp.minimum(*sides)
        return top + xp.log1p(xp.exp(low - top)) - math.log(2.0)

    def unit_cdf(self, u: np.ndarray) -> np.ndarray:
        return np.where(u < 0.0, 0.5 * np.exp(-np.abs(u)), 1.0 - 0.5 * np.exp(-np.abs(u)))

    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.laplace(size=shape)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[LaplaceNoise, np.ndarray]:
        scale = float(rng.gamma(2.0, 0.5) + 0.2)
        return cls(scale, str(rng.choice(list(cls.bounds)))), rng.normal(size=n) + rng.laplace(size=n) * scale
