"""Noise with heavy tails: Laplace's and Student's t.

Laplace: p(y|eta) = exp(-|u|) / (2b), u = (eta - y)/b, the loss of median regression.

    "exact"            E|u| = a erf(a / sqrt(2v)) + 2 sqrt(v) phi(a/sqrt(v)), a folded normal
                       E[psi0'] = erf(a / sqrt(2v)),   E[psi0''] = 2 N(a; 0, v): a kink is a point mass of curvature
    "super-gaussian"   f = xi + log 2,   xi^2 = a^2 + v

Student's t: p(y|eta) proportional to (1 + u^2/nu)^{-(nu+1)/2} / b, u = (eta - y)/b, nu degrees of freedom.

    "super-gaussian"   f = (nu+1)/2 log(1 + x/nu) + const,   x = E[u^2] = a^2 + v
                       lam = (nu+1)/(nu + x)/b^2: the weight of iteratively reweighted least squares

-log p is not convex in eta: far from y it is flat, so an outlier has little influence. The price is that the bound may
have several stationary points. A fit finds one of them, by steps that never lower the bound, from a robust start
(logistic noise of the same curvature at its centre). Its certificate is "stationarity" and its gap is infinite, since
nothing bounds how much better another Gaussian could be.

Predictions use that the noise is a scale mixture of normals, noise^2 = 1/w with w ~ Gamma(nu/2, rate nu/2):

    E[p(y|eta)] = int N(y; h, rho + b^2/w) Gamma(w) dw,    l = log w: the trapezium is exponentially accurate
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, stdtr

from ..checks import number, positive, problem, vector
from ..linalg.arrays import Array, Seed, asarray, namespace, special
from ..linalg.functions import rising
from ..linalg.quadrature import expect
from ..transforms import LogAbove
from .base import Rows
from .bounds import Bound, Bounds, ExactExpectation, Loss, expected_loss
from .noise import SCALE, LogisticNoise, NoiseLikelihood, SuperGaussian
from .parameters import Parameter

_KINK_POINT = 1e-100  # of v and x, below which the kink of Laplace noise looks no different
_FAR = 40.0  # standard deviations at which the normal density is 0 in double precision
_SPACING = 0.1  # of the trapezium in log w
_NEGLIGIBLE = 45.0  # nats below the largest term at which a term is left out
_NODES = 2_000_000  # at a time


class LaplaceNoise(NoiseLikelihood):
    """Real-valued targets with double-exponential noise: eta is the median of y, and outliers have little influence.

    No bound has a convex dual. The curvature lam grows like 1/sqrt(v) as v falls at a = 0.

    Parameters
    ----------
    scale : float
        b, above 0; the standard deviation of the noise is sqrt(2) b. Learnable, as theta = [log b].
    bound : {"exact", "super-gaussian"}
        The expectation of the log-likelihood in closed form, or the best quadratic bound on it.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import LaplaceNoise
    >>> LaplaceNoise(0.5).predictive_variance(np.array([0.0]), np.array([1.0]))
    array([1.5])
    """

    smooth = False
    bounds: ClassVar[Bounds] = {"exact": ExactExpectation, "super-gaussian": SuperGaussian}
    word, heavy_tailed, unit_variance = "laplace", True, 2.0

    def neighbour(self) -> LogisticNoise:
        """log(2 cosh(u/2)) 2 is |u| with its corner rounded: logistic noise of the same scale."""
        return LogisticNoise(self.scale, "tilted")

    def unit_loss(self, u: Array) -> tuple[Array, Array, Array]:
        """The kink carries all the curvature: psi0'' is 0 wherever it is a number."""
        xp = namespace(u)
        return xp.abs(u) + math.log(2.0), xp.sign(u), xp.zeros_like(u)

    def unit_bound(self, x: Array) -> tuple[Array, Array, Array]:
        xp = namespace(x)
        x = xp.clip(x, _KINK_POINT, None)
        xi = xp.sqrt(x)
        return xi + math.log(2.0), 0.5 / xi, -0.25 / (x * xi)

    def unit_expectation(self, a: Array, v: Array) -> Loss:
        xp = namespace(a)
        v = xp.clip(v, _KINK_POINT, None)
        sd = xp.sqrt(v)
        z = xp.clip(a / sd, -_FAR, _FAR)
        slope = special("erf", z / math.sqrt(2.0))
        bend = math.sqrt(2.0 / math.pi) * xp.exp(-0.5 * z * z) / sd
        value = a * slope + bend * v + math.log(2.0)
        return Loss(value, slope, bend, bend, -0.5 * bend * z / sd, 0.25 * bend * (z * z - 1.0) / v)

    def unit_log_predictive(self, a: Array, v: Array) -> Array:
        """Two half-lines: E[e^{-u}; u > 0] = e^{v/2 - a} Phi(a/sd - sd), and its mirror image.

        Where the argument of Phi is negative e^{v/2 - a} Phi is e^{-a^2/2v} erfcx/2, which does not cancel.
        """
        xp = namespace(a)
        v = xp.clip(v, _KINK_POINT, None)
        sd = xp.sqrt(v)
        sides = []
        for side in (a, -a):
            x = sd - side / sd
            with np.errstate(over="ignore"):
                inside = special("erfcx", xp.clip(x, 0.0, None) / math.sqrt(2.0))
                near = xp.log(inside / 2.0) - 0.5 * (side / sd) ** 2
            sides.append(xp.where(x > 0.0, near, 0.5 * v - side + special("log_ndtr", -xp.clip(x, None, 0.0))))
        top, low = xp.maximum(*sides), xp.minimum(*sides)
        return top + xp.log1p(xp.exp(low - top)) - math.log(2.0)

    def unit_cdf(self, u: np.ndarray) -> np.ndarray:
        tail = 0.5 * np.exp(-np.abs(u))
        return np.where(u < 0.0, tail, 1.0 - tail)

    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.laplace(size=shape)


class StudentT(NoiseLikelihood):
    """Real-valued targets with Student's t noise, y = eta + scale * t: far outliers have nearly no influence.

    The likelihood is not log-concave: a fit is a stationary point, and another one may be better.

    Parameters
    ----------
    df : float
        Degrees of freedom nu, above 0. The mean of y exists above 1, and its variance above 2.
    scale : float
        b, above 0. Learnable.
    learn_df : bool
        Whether nu is learned as well, as log(nu - 1) before log b in theta. Then ``df`` must be above 1.
    bound : {"super-gaussian"}

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import StudentT
    >>> StudentT(df=4.0).predictive_variance(np.array([0.0]), np.array([1.0]))
    array([3.])
    """

    bounds: ClassVar[Bounds] = {"super-gaussian": SuperGaussian}
    log_concave = False
    word, aliases, heavy_tailed = "student-t", ("t", "student", "scat"), True
    # nu from Cauchy's to where nothing tells it from a normal
    parameters = (
        Parameter("degrees of freedom", "df", LogAbove(1.0), (1.0 + 1e-3, 1.0 + 1e6), weak=(2.0, 2.0)),
        replace(SCALE, formula=("dispersion", "log sd")),
    )

    def __init__(
        self, df: float = 4.0, scale: float = 1.0, learn_df: bool = False, bound: str | type[Bound] = "super-gaussian"
    ) -> None:
        super().__init__(scale, bound)
        self.df = float(positive(self.name, "df", vector(self.name, "df", df, 1)[0]))
        if self.df < 1e-3:
            raise problem(self.name, f"df = {number(self.df)}", "0.001 or more degrees of freedom")
        if learn_df and self.df <= 1.0:
            raise problem(
                self.name, f"df = {self.df:g} with learn_df=True", "df above 1", "Learn the scale alone for a Cauchy."
            )
        self.learn_df = learn_df

    def neighbour(self) -> LogisticNoise:
        """Logistic noise with the same curvature at its centre: (nu+1)/nu against 1/2."""
        scale = float(np.exp(np.mean(np.log(self.scale))))
        return LogisticNoise(scale * math.sqrt(self.df / (2.0 * (self.df + 1.0))), "tilted")

    # -- unit noise --------------------------------------------------------------------------------
    def _gamma_ratio(self) -> tuple[float, float]:
        """log Gamma((nu+1)/2) - log Gamma(nu/2), and its slope in log nu."""
        value, slope, _ = rising(np.log(np.asarray(self.df / 2)), np.asarray(0.5))
        return float(value), float(slope)

    @property
    def _log_normaliser(self) -> float:
        return self._gamma_ratio()[0] - 0.5 * math.log(self.df * math.pi)

    def unit_loss(self, u: Array) -> tuple[Array, Array, Array]:
        nu, x = self.df, u * u
        psi = (nu + 1.0) / 2 * namespace(u).log1p(x / nu) - self._log_normaliser
        return psi, (nu + 1.0) * u / (nu + x), (nu + 1.0) * (nu - x) / (nu + x) ** 2

    def unit_bound(self, x: Array) -> tuple[Array, Array, Array]:
        nu = self.df
        g = (nu + 1.0) / 2 * namespace(x).log1p(x / nu) - self._log_normaliser
        slope = (nu + 1.0) / (2.0 * (nu + x))
        return g, slope, -slope / (nu + x)

    def unit_expectation(self, a: Array, v: Array) -> Loss:
        """E[psi0] itself, for comparison: its E[psi0''] may be negative, so it is no bound to fit with."""
        far = 8.0 * 40.0  # a logarithm needs panels that grow with the distance
        marks = [0.0 * a, far + 0.0 * a, -far + 0.0 * a]
        return expected_loss(
            lambda u, rows: self.unit_loss(u), lambda g: expect(g, a, v, marks), a[:, None], v[:, None], {}
        )

    @property
    def unit_variance(self) -> float:
        if self.df > 2.0:
            return self.df / (self.df - 2.0)
        return math.inf if self.df > 1.0 else math.nan

    # -- its own parameters ------------------------------------------------------------------------
    @property
    def learned(self) -> tuple[Parameter, ...]:
        return self.parameters if self.learn_df else self.parameters[1:]

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        scale = rows["weight"] * self._scale_slope(h, rho, rows)
        if not self.learn_df:
            return self.gathered(scale)
        xp, nu = namespace(h), self.df
        a, v = self.standardised(h[:, 0], rho[:, 0], rows)
        x = a * a + v
        base = (0.5 - self._gamma_ratio()[1]) / nu
        slope = 0.5 * xp.log1p(x / nu) - (nu + 1.0) / 2 * x / (nu * (nu + x)) + base
        return self.gathered((nu - 1.0) * rows["weight"] * slope, scale)

    # -- prediction --------------------------------------------------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean = super().predictive_mean(h, rho, rng)
        return mean if self.df > 1.0 else mean + math.nan

    def unit_log_predictive(self, a: Array, v: Array) -> Array:
        xp, nu = namespace(a), self.df
        # right: where nu/2 (l + 1 - e^l) is negligible; left: below the outlier's own weight, (nu+1) / (a^2 + v + nu)
        spread = a * a + v  # may overflow: such rows have density 0
        widest = float(xp.max(xp.where(xp.isfinite(spread), spread, 0.0))) + nu
        upper = math.log1p(3.0 * math.sqrt(_NEGLIGIBLE / nu) + 3.0 * _NEGLIGIBLE / nu)
        lower = -math.log(widest / nu) - 2.0 * _NEGLIGIBLE / (nu + 1.0) - 3.0 * math.sqrt(_NEGLIGIBLE / nu)
        n = math.ceil((upper - lower) / min(_SPACING, 0.35 * math.sqrt(2.0 / nu)))
        nodes = np.linspace(lower, upper, n + 1)
        half = nu / 2
        weight = half * (nodes + 1.0 - np.exp(nodes)) + math.log((upper - lower) / n)
        weight = weight - (gammaln(half) - half * math.log(half) + half)  # of Gamma(w) dw in l
        log_weight, inverse = asarray(weight, a)[None, :], asarray(np.exp(-nodes), a)[None, :]
        parts, rows = [], max(1, _NODES // (n + 1))
        for i in range(0, a.shape[0], rows):
            some = slice(i, min(i + rows, a.shape[0]))
            square, spread = a[some, None] ** 2, v[some, None] + inverse
            term = log_weight - 0.5 * xp.log(2.0 * math.pi * spread) - 0.5 * square / spread
            top = xp.max(term, axis=1, keepdims=True)
            parts.append(top[:, 0] + xp.log(xp.sum(xp.exp(term - top), axis=1)))
        return xp.concat(parts)

    def unit_cdf(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(stdtr(self.df, u))

    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_t(self.df, shape)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[StudentT, np.ndarray]:
        df, scale = float(rng.gamma(4.0, 1.0) + 1.5), float(rng.gamma(2.0, 0.5) + 0.2)
        return cls(df, scale, bool(rng.integers(2))), rng.normal(size=n) + rng.standard_t(df, n) * scale
