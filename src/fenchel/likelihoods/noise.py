"""Real targets with symmetric noise, y = eta + b noise: normal noise, logistic noise, or noise with a loss of its own.

    psi(eta) = psi0(u) + log b,  u = (eta - y)/b        u ~ N(a, v),  a = (h - y)/b,  v = rho/b^2

    Gaussian    psi0 = u^2/2 + log(2 pi)/2       f = (a^2 + v)/2 + log(2 pi)/2 + log b, exact and convex
    Logistic    psi0 = softplus(u) + softplus(-u) = 2 log(2 cosh(u/2))

Noise with heavier tails than a Gaussian is super-Gaussian: psi0(u) = g(u^2) with g concave. Then g lies below its
tangents, and the best quadratic bound on the expected loss (the local variational method of Seeger and Nickisch) is g
at the mean square:

    "super-gaussian"   f = g(x) + log b,   x = a^2 + v = E[u^2]          tangent at xi^2 = x, with xi optimised
    alpha = (h - y) lam,   lam = 2 g'(x)/b^2,   hh = lam + 4 (h-y)^2 g''/b^4,   hr = 2 (h-y) g''/b^4,   rr = g''/b^4

It is not convex in (h, rho). Where g(xi^2) is convex in xi (log-concave noise) it is convex in (m, chol V), as is
E[psi], and the strong-concavity certificate holds for both. One step to beta = alpha, lam = 2 g'/b^2 in the natural
parameters minimises a majoriser, so it cannot lower the bound.

Logistic noise also has the bounds "log-sum" and "tilted", with a dual: two potentials on one predictor, as for ordinal
levels, with a_h = 1, -1, tau in (0, 1/b) and phi_1(s) = log(1 + e^{(s-y)/b}), phi_2(s) = log(1 + e^{(s+y)/b}).

Any f that depends on h, rho and b through a and v alone has df/dlog b = 1 - (h - y) alpha - rho lam.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from ..checks import numeric, positive, vector
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, special, to_numpy
from ..linalg.functions import log_cosh_slopes, logistic_parts, sigmoid
from ..linalg.logistic_normal import FIRST, MINUS, PLUS, REST, SECOND, TAU, THIRD, logistic_moments
from ..linalg.quadrature import log_expect
from .base import Likelihood, Rows, flat
from .bounds import Bound, Bounds, DirectBound, ExactExpectation, ExactSite, Loss, Site
from .parameters import Parameter, log_noise_variance, mean, observed, quantile, spread
from .softplus_bounds import LogSumLogit, Softpluses, TiltedLogit

_POINT = 1e-20  # a variance, relative to the squared distance from the kink, below which a normal is a point
_HALF_LOG = 0.5 * math.log(2.0 * math.pi)


class SuperGaussian(DirectBound):
    """The best quadratic bound, g at the mean square."""

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        own = self.likelihood
        a, v = own.standardised(h[:, 0], rho[:, 0], rows)
        g, slope, bend = own.unit_bound(a * a + v)
        lam, turn = 2.0 * slope, 2.0 * a * bend
        scaled: Loss = own.scaled_loss(Loss(g, a * lam, lam, lam + 2.0 * a * turn, turn, bend), rows)
        return scaled


class GaussianSite(ExactSite):
    """phi(s) = (s - y)^2/(2v), tau = (s - y)/v, k(tau) = v tau^2/2 + y tau, lam = 1/v.

    Writing phi about y avoids numbers of the size of y^2, so that large targets such as Julian days keep their digits.
    """

    conjugate = True

    def signs(self, rows: Rows) -> Array:
        return 1.0 + 0.0 * rows["weight"][:, None]

    def site(self, s: Array, rows: Rows) -> Site:
        v, y = rows["variance"][:, None], rows["y"][:, None]
        tau, zero = (s - y) / v, 0.0 * s
        k = v * tau * tau / 2 + y * tau
        return Site(tau, tau, 1.0 / v + zero, zero, zero, k[:, 0], 1.0 / v + zero)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        return rows["variance"][:, None] * tau + rows["y"][:, None]

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        return (s_hat - s)[:, 0] ** 2 / (2.0 * rows["variance"])

    def reach(self, rows: Rows) -> float:
        return float("inf")

    def start(self, rows: Rows, shrink: float) -> Array:
        return rows["y"][:, None]  # alpha = 0


# the noise starts with half of the variance of y
SCALE = Parameter(
    "noise scale",
    "scale",
    bounds=lambda own, y, w: np.array(log_noise_variance(y, w, own.scale**2, robust=True)) / 2,
    start=lambda own, y, w: own.scale_of(y, w) / math.sqrt(2.0) / math.sqrt(own.unit_variance),
    word="noise",
)


class NoiseLikelihood(Likelihood):
    """y = eta + scale * noise. A subclass gives the loss of unit noise, its quadratic bound and its expectation."""

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

    def unit_bound(self, x: Array) -> tuple[Array, Array, Array]:
        """g(x), g'(x), g''(x), with psi0(u) = g(u^2): for the bound "super-gaussian"."""
        raise NotImplementedError(f"{self.name} does not implement unit_bound().")

    @abstractmethod
    def unit_expectation(self, a: Array, v: Array) -> Loss:
        """E[psi0(u)], u ~ N(a, v), with its slopes and curvature in (a, v)."""

    @property
    @abstractmethod
    def unit_variance(self) -> float:
        """Of the noise at scale 1."""

    @abstractmethod
    def unit_cdf(self, u: np.ndarray) -> np.ndarray:
        """P(noise <= u) at scale 1."""

    @abstractmethod
    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Noise of scale 1."""

    def unit_log_predictive(self, a: Array, v: Array) -> Array:
        """log E[exp(-psi0(u))], u ~ N(a, v); here by quadrature for a log-concave noise."""
        xp, least = namespace(a), _POINT * (1.0 + a * a)
        point = v < least  # too narrow to be found between a and the kink, and a point to all digits
        out = log_expect(lambda u, chunk: -self.unit_loss(u)[0], a, xp.where(point, least, v), [0.0 * a])
        return xp.where(point, -self.unit_loss(a)[0], out)

    # -- the contract ------------------------------------------------------------------------------
    def scales(self, n: int) -> np.ndarray:
        """b of each of n rows (n,)."""
        return vector(self.name, "scale", self.scale, n)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows = {"y": np.where(np.isnan(y), 0.0, y)}
        return rows if np.ndim(self.scale) == 0 else {**rows, "scale": self.scales(y.shape[0])}

    def _scale_in(self, rows: Rows) -> tuple[Any, Any]:
        """b and log b: a number, or one for each row."""
        if np.ndim(self.scale) == 0:
            return self.scale, math.log(self.scale)
        return rows["scale"], namespace(rows["scale"]).log(rows["scale"])

    def constant(self, rows: Rows) -> Array:
        return self._scale_in(rows)[1] + 0.0 * rows["y"]

    def landmarks(self, rows: Rows) -> list[Array]:
        return [rows["y"]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        b, log_b = (x if np.ndim(x) == 0 else x[:, None] for x in self._scale_in(rows))
        psi, slope, bend = self.unit_loss((eta - rows["y"][:, None]) / b)
        return psi + log_b, slope / b, bend / b**2

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        return self.scaled_loss(self.unit_expectation(*self.standardised(h[:, 0], rho[:, 0], rows)), rows)

    def standardised(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, Array]:
        """a and v."""
        b = self._scale_in(rows)[0]
        return (h - rows["y"]) / b, rho / b**2

    def scaled_loss(self, unit: Loss, rows: Rows) -> Loss:
        """The loss in (h, rho) from the one of unit noise in (a, v)."""
        b, log_b = self._scale_in(rows)
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
        return rho + asarray(self.scales(rho.shape[0]) ** 2 * self.unit_variance, rho)

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        rows = self.rows_for(y, h)
        out = self.unit_log_predictive(*self.standardised(h, rho, rows)) - self._scale_in(rows)[1]
        return namespace(h).where(rows["weight"] > 0.0, out, np.nan)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(self.unit_cdf((x - eta) / self.scales(eta.shape[0])[:, None]))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(eta + self.scales(eta.shape[0])[:, None] * self.unit_draw(rng, eta.shape))

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return x, self.scales(x.shape[0])

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Likelihood, np.ndarray]:
        scale = float(rng.gamma(2.0, 0.5) + 0.2)
        own = cls(scale, str(rng.choice(list(cls.bounds))))
        return own, rng.normal(size=n) + scale * own.unit_draw(rng, (n,))


class Gaussian(NoiseLikelihood):
    """Real-valued targets with normal noise: y ~ N(eta, variance).

    Parameters
    ----------
    variance : float or array (N,)
        Noise variance v, above 0. Learnable if it is one number.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Gaussian
    >>> Gaussian(0.5).predictive_variance(np.array([0.0]), np.array([1.0]))
    array([1.5])
    """

    bound = "none"
    bounds: ClassVar[Bounds] = {"none": GaussianSite}
    word, aliases, unit_variance, rows_hold_parameters = "gaussian", ("normal",), 1.0, True
    parameters = (
        Parameter(
            "noise variance",
            "variance",
            bounds=lambda own, y, w: log_noise_variance(y, w, float(own.variance)),
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

    def scales(self, n: int) -> np.ndarray:
        return np.sqrt(vector(self.name, "variance", self.variance, n))

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        v = vector(self.name, "variance", self.variance, y.shape[0])
        return {"y": np.where(np.isnan(y), 0.0, y), "variance": v}

    def _scale_in(self, rows: Rows) -> tuple[Array, Array]:
        xp, v = namespace(rows["variance"]), rows["variance"]
        return xp.sqrt(v), 0.5 * xp.log(v)

    def constant(self, rows: Rows) -> Array:
        return super().constant(rows) + _HALF_LOG

    def unit_loss(self, u: Array) -> tuple[Array, Array, Array]:
        return u * u / 2 + _HALF_LOG, u, 1.0 + 0.0 * u

    def unit_expectation(self, a: Array, v: Array) -> Loss:
        one, zero = 1.0 + 0.0 * a, 0.0 * a
        return Loss((a * a + v) / 2 + _HALF_LOG, a, one, one, zero, zero)

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """By the variance itself, without roots: every step of a fit asks for it."""
        lam, off = 1.0 / rows["variance"], h[:, 0] - rows["y"]
        value = (off * off + rho[:, 0]) * lam / 2 - 0.5 * namespace(h).log(lam) + _HALF_LOG
        zero = 0.0 * lam
        return Loss(value, off * lam, lam, lam, zero, zero)

    def unit_log_predictive(self, a: Array, v: Array) -> Array:
        return -0.5 * (a * a / (1.0 + v) + namespace(a).log1p(v)) - _HALF_LOG

    def unit_cdf(self, u: np.ndarray) -> np.ndarray:
        return to_numpy(special("ndtr", u))

    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal(shape)

    def readable(self) -> list[tuple[str, str, float]]:
        if self.of_rows:
            return super().readable()
        v = [float(np.asarray(self.variance))] if np.ndim(self.variance) == 0 else []
        return [("noise", word, x) for each in v for word, x in (("variance", each), ("sd", float(np.sqrt(each))))]

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return mean(y, w)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        """In log v = 2 log b."""
        slopes = [rows["weight"] * self._scale_slope(h, rho, rows) / 2] if self.learned else []
        return self.gathered(*slopes)

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        h, sd = to_numpy(flat(h)), np.sqrt(to_numpy(self.predictive_variance(h, rho)))
        return h[:, None] + sd[:, None] * special("ndtri", np.atleast_1d(np.asarray(q, dtype=np.float64)))[None, :]

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Gaussian, np.ndarray]:
        return cls(float(rng.gamma(2.0, 0.5) + 0.1)), rng.normal(size=n)


class LogisticNoise(NoiseLikelihood):
    """Real-valued targets with logistic noise: nearly normal at the centre, with slightly heavier tails.

    Parameters
    ----------
    scale : float
        b, above 0; the standard deviation of the noise is pi b / sqrt(3). Learnable, as theta = [log b].
    bound : {"exact", "tilted", "log-sum", "super-gaussian"}
        "exact" integrates the log-likelihood of a row numerically. "tilted" and "log-sum" have a convex dual.
        "super-gaussian" is the best quadratic bound.

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
    word, unit_variance = "logistic", math.pi**2 / 3

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
        plus, minus, up, down = logistic_parts(u)
        return plus + minus, up - down, 2.0 * up * down

    def unit_bound(self, x: Array) -> tuple[Array, Array, Array]:
        xp = namespace(x)
        xi = xp.sqrt(x)
        slope, bend = log_cosh_slopes(x)
        return xi + 2.0 * xp.log1p(xp.exp(-xi)), 2.0 * slope, 2.0 * bend

    def unit_expectation(self, a: Array, v: Array) -> Loss:
        m = logistic_moments(a, v)
        lam = 2.0 * m[FIRST, :]
        return Loss(m[PLUS, :] + m[MINUS, :], m[TAU, :] - m[REST, :], lam, lam, m[SECOND, :], m[THIRD, :] / 2)

    def unit_cdf(self, u: np.ndarray) -> np.ndarray:
        return to_numpy(sigmoid(u))

    def unit_draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return rng.logistic(size=shape)
