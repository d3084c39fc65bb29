"""Negative binomial counts of mean mu = E e^eta and size r: Poisson counts of a gamma rate, variance mu + mu^2 / r.

    p(y|eta) = Gamma(y+r) / (Gamma(r) y!) (r/(r+mu))^r (mu/(r+mu))^y

``NegativeBinomial``: r is the same at every eta.

    psi = y softplus(-t) + r softplus(t) - log Gamma(y+r)/(Gamma(r) y!),      t = eta - c,  c = log(r/E)

This is a logit likelihood at eta - c for the fraction y/(y+r) with weight y+r. Its bounds are in ``binomial.py``, with
phi(s) = log(1 + e^{s-c}) and k(tau) = tau log tau + (1-tau) log(1-tau) + c tau. With n = y + r trials and a fraction p,

    f(h, rho) = n [-p h + Phi(h - c, rho)] + y c - log Gamma(y+r)/(Gamma(r) y!),      Phi >= E[softplus(t)]
    df/dlog r = -df/dh + r Phi - r (digamma(y+r) - digamma(r))

As r -> inf this becomes the Poisson distribution. For large r, Stirling's series gives the ratio of Gamma functions
without cancellation.

``NegativeBinomial1``: r = mu / a, so that the variance is in proportion to the mean, (1 + a) mu.

    psi   = r log(1 + a) - log Gamma(y + r)/Gamma(r) - y log(a/(1+a)) + log y!
    psi'' = r [log(1 + a) - sum_{0 < j < y} j/(r + j)^2]

The bracket increases in r, so psi has at most one inflection, on the left, where mu is far below y. Beyond it the bound
replaces psi by its tangent (``tangents.py``), which makes the fitted problem log-concave. As a -> 0 this becomes the
Poisson distribution. With psi' the slope in eta, dpsi/dlog a = (r + y) a/(1+a) - y - psi'.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc

from ..checks import numeric, positive, problem
from ..linalg.arrays import Array, ArrayLike, namespace, special
from ..linalg.functions import log_choose, log_rising, logistic_parts, rising
from ..linalg.logistic_normal import FIRST, MINUS, PLUS, REST, SECOND, TAU, THIRD, logistic_moments
from ..linalg.quadrature import expect_near
from .base import Rows
from .binomial import LogitLikelihood
from .bounds import Bound, Bounds, ExactExpectation, Loss, combined, expected_loss
from .numerical import MOST
from .parameters import Parameter, mean, per_row
from .poisson import ExposedMean, Poisson, exposed_counts
from .softplus_bounds import LogSumLogit, Softpluses, TiltedLogit
from .tangents import TangentLikelihood, inflection

SlopePairs = tuple[tuple[Array, Array], tuple[Array, Array]]
_LOWEST = -60.0  # log r down to which the inflection is sought
_HIGHEST = 60.0  # log r from which it is sought
_TINY = -30.0  # t below which softplus(t) is e^t (1 - e^t/2)


class GammaPoisson(ExposedMean):
    """Poisson counts whose rate is gamma distributed: mean mu and variance mu + mu^2 / r at eta, with size r."""

    def means_and_sizes(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mu and r at eta (N, M)."""
        raise NotImplementedError

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        mu, r = self.means_and_sizes(eta)
        return np.asarray(betainc(r, x + 1.0, r / (r + mu)))

    def above(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        mu, r = self.means_and_sizes(eta)
        return np.asarray(betainc(x + 1.0, r, mu / (r + mu)))

    def zero_at(self, eta: np.ndarray) -> np.ndarray:
        mu, r = self.means_and_sizes(eta)
        return np.asarray(r * np.log1p(mu / r))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        mu, r = self.means_and_sizes(eta)
        return rng.poisson(np.minimum(mu * rng.gamma(r, 1.0 / r, eta.shape), MOST)) + 0.0

    def draw_above_zero(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The first arrival in [0, 1], given that there is one, and the arrivals after it."""
        mu, r = self.means_and_sizes(eta)
        x = np.maximum(mu, 1e-300) / r
        seen = -np.expm1(-r * np.log1p(x))
        first = np.clip(np.expm1(-np.log1p(-rng.random(eta.shape) * seen) / r) / x, 0.0, 1.0)
        rate = rng.gamma(r + 1.0, size=eta.shape) / (1.0 / x + first)
        return 1.0 + rng.poisson(np.minimum(rate * (1.0 - first), MOST))


class NegativeBinomial(GammaPoisson, LogitLikelihood):
    """Overdispersed counts with mean ``exposure * exp(eta)`` and variance ``mean + mean**2 / size``.

    Parameters
    ----------
    size : float
        r, above 0; a large size is nearly a Poisson distribution. Learnable.
    exposure : float or array (N,), optional
        A known factor of the mean: an expected count, person-years or an area. 0 means unobserved.
    bound : {"best", "log-sum", "tilted", "exact"}
        "exact" integrates the log-likelihood of a row numerically, with a strong-concavity certificate, and "best"
        means "exact". "log-sum" (the paper's) and "tilted" (tighter) are convex problems with a duality gap.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import NegativeBinomial
    >>> NegativeBinomial(2.0).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([1.5])
    """

    # a quadratic bound of y + r logistics is loose: its lam grows with r
    bounds: ClassVar[Bounds] = {
        "log-sum": LogSumLogit,
        "tilted": TiltedLogit,
        "exact": ExactExpectation,
    }
    word = "negative-binomial"
    aliases = (
        *("nb", "nb2", "nbinom", "nbinom2", "negbin", "negbinomial", "negativebinomial2"),
        "nbinomial",  # of R-INLA, whose nbinomial2 is another model
    )
    bend_above_zero = (-7.0, 600.0)
    # up to where the largest count has a millionth more variance than a Poisson's
    parameters = (
        Parameter(
            "size",
            "size",
            bounds=lambda own, y, w: np.log([1e-5, 1e6 * float(y.max(initial=1.0))]),
            weak=(1.0, 3.0),  # 0.008 to 970 in 95 of 100
            formula=("dispersion", "log size"),
        ),
    )

    def __init__(self, size: float = 1.0, exposure: ArrayLike | None = None, bound: str | type[Bound] = "best") -> None:
        super().__init__(bound)
        r = numeric(self.name, "size", size)
        if r.ndim != 0:
            raise problem(self.name, f"size has shape {r.shape}", "one number for all rows")
        self.size: Any = float(positive(self.name, "size", r))  # (N,) where it has a predictor of its own
        self.exposure = exposure

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows, r = exposed_counts(self.name, y, self.exposure), per_row(self.size, y.shape[0]) + 0.0
        count, n = rows["count"], rows["count"] + r
        limit = log_rising(r, count) - special("gammaln", count + 1.0)  # the log choices less y log r
        return {
            **rows,
            "y": count / n,
            "trials": n,
            "size": r,
            "centre": np.log(r) - np.log(rows["exposure"]),
            "constant": -(limit + count * np.log(rows["exposure"])) / n,
            "choices": log_choose(r, count),
            "slope": rising(np.log(r), count)[1],  # r (digamma(y + r) - digamma(r))
            "weight": rows["weight"] * n,
        }

    # -- the logit, moved by c: s and h are measured from 0, the logit's from c ---------------------
    def softpluses(self, rows: Rows) -> Softpluses:
        return Softpluses(rows["y"], rows["centre"][:, None])

    def start(self, rows: Rows, shrink: float) -> Array:
        return super().start(rows, shrink) + rows["centre"][:, None]

    def constant(self, rows: Rows) -> Array:
        return rows["constant"]

    def landmarks(self, rows: Rows) -> list[Array]:
        return [rows["centre"] + 0.0, self.start(rows, 0.5)[:, 0]]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        n = rows["trials"][:, None]
        psi, first, second = self.row_derivatives(eta, rows)
        return psi / n, first / n, second / n

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -self.row_derivatives(eta, rows)[0]

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        return combined(lambda x: x / rows["trials"], self.row_loss(h, rho, rows))

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        n, loss = rows["trials"], self.objective.loss(h, rho, rows)
        softened = loss.value - rows["constant"] + rows["y"] * h[:, 0]  # Phi
        each = rows["size"] * softened - n * loss.alpha - rows["slope"]
        return self.gathered(rows["weight"] / n * each)

    # -- a row as a whole: psi = y softplus(-t) + r softplus(t) - log choices -----------------------
    def row_constant(self, rows: Rows) -> Array:
        return -rows["choices"]

    def row_derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        y, r, t = rows["count"][:, None], rows["size"][:, None], eta - rows["centre"][:, None]
        plus, minus, up, down = logistic_parts(t)
        return y * minus + r * plus - rows["choices"][:, None], r * up - y * down, (y + r) * up * down

    def row_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        m, y, r = logistic_moments(h[:, 0] - rows["centre"], rho[:, 0]), rows["count"], rows["size"]
        n, lam = y + r, (y + r) * m[FIRST, :]
        value = y * m[MINUS, :] + r * m[PLUS, :] - rows["choices"]
        return Loss(value, r * m[TAU, :] - y * m[REST, :], lam, lam, n * m[SECOND, :] / 2, n * m[THIRD, :] / 4)

    def row_theta(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, ...]:
        m, y, r = logistic_moments(h[:, 0] - rows["centre"], rho[:, 0]), rows["count"], rows["size"]
        return (r * (m[PLUS, :] - m[TAU, :]) + y * m[REST, :] - rows["slope"],)

    # -- a count of 0: -log p(0) = r softplus(t) ----------------------------------------------------
    def log_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, t = namespace(eta), eta - rows["centre"][:, None]
        plus, _, s, rest = logistic_parts(t)
        tiny = t < _TINY
        u = xp.where(tiny, 1.0, plus)
        log_u = xp.where(tiny, t - s / 2, xp.log(u))
        first = xp.where(tiny, 1.0 - s / 2, s / u)
        second = xp.where(tiny, -s / 2, first * (rest - first))
        return xp.log(rows["size"])[:, None] + log_u, first, second

    def rest_above_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """In closed form, for half of the time: psi + log(1 - e^-w), w = r softplus(t)."""
        xp, r, y = namespace(eta), rows["size"][:, None], rows["count"][:, None]
        t = eta - rows["centre"][:, None]
        plus, minus, s, rest = logistic_parts(t)
        tiny, w = t < _TINY, xp.clip(r * plus, 1e-300, None)
        seen = -xp.expm1(-w)
        log_seen = xp.where(tiny, xp.log(r) + t - w / 2, xp.log(seen))
        psi = y * minus + w + log_seen - rows["choices"][:, None]
        pull = xp.where(tiny, 1.0 + (r - 1.0) / 2 * s, r * s / seen)
        bend = pull * (rest - xp.where(tiny, 1.0 - (r + 1.0) / 2 * s, r * s * xp.exp(-w) / seen))
        return psi, pull - y * rest, y * s * rest + bend

    def theta_slope_pairs(self, eta: Array, rows: Rows, slope: Array, bend: Array) -> SlopePairs:
        """t falls as log r rises: dpsi/dlog r = r softplus(t) - slope - psi', and dlog g/dlog r = 1 - dlog g/deta."""
        y, r, t = rows["count"][:, None], rows["size"][:, None], eta - rows["centre"][:, None]
        plus, _, up, down = logistic_parts(t)
        own = r * plus - rows["slope"][:, None] - r * up + y * down
        return (own, r * up - (y + r) * up * down), (1.0 - slope, -bend)

    # -- prediction --------------------------------------------------------------------------------
    def variance_terms(self, n: int) -> list[tuple[Any, float]]:
        return [(1.0, 1.0), (1.0 / per_row(self.size, n), 2.0)]

    def means_and_sizes(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._rate_at(eta), per_row(self.size, eta.shape[0])[:, None]

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[NegativeBinomial, np.ndarray]:
        exposure, size = rng.gamma(2.0, 1.0, n) + 0.1, float(rng.gamma(3.0, 1.0) + 0.2)
        mean = exposure * np.exp(rng.normal(size=n))
        y = rng.negative_binomial(size, size / (size + mean)).astype(float)
        return cls(size, exposure, str(rng.choice(list(cls.bounds)))), y


def _start(own: NegativeBinomial1, y: np.ndarray, w: np.ndarray) -> float:
    """Half of what the variance of y is above its mean, relative to it: the rest is left to eta."""
    centre = max(mean(y, w), 1e-8)
    return float(np.clip((np.average((y - centre) ** 2, weights=w) / centre - 1.0) / 2, 0.1, 1e3))


class NegativeBinomial1(GammaPoisson, TangentLikelihood):
    """Overdispersed counts with mean ``exposure * exp(eta)`` and variance ``mean * (1 + dispersion)``.

    Parameters
    ----------
    dispersion : float or array (N,)
        a, above 0; a small dispersion is nearly a Poisson distribution. Learnable if it is one number.
    exposure : float or array (N,), optional
        A known factor of the mean: an expected count, person-years or an area. 0 means unobserved.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import NegativeBinomial1
    >>> NegativeBinomial1(0.5).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([1.5])
    """

    word, aliases = "negative-binomial-1", ("nb1", "nbinom1")
    bend_above_zero, narrow_above_zero = (_HIGHEST, _LOWEST), 0.25
    parameters = (
        Parameter(
            "dispersion",
            "dispersion",
            bounds=(1e-6, 1e6),
            start=_start,
            weak=(0.0, 3.0),
            formula=("dispersion", "log dispersion"),
        ),
    )

    def __init__(self, dispersion: ArrayLike = 1.0, exposure: ArrayLike | None = None) -> None:
        a = positive(self.name, "dispersion", numeric(self.name, "dispersion", dispersion))
        self.dispersion, self.exposure = float(a) if a.ndim == 0 else a, exposure

    def neighbour(self) -> Poisson:
        return Poisson(self.exposure)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows = exposed_counts(self.name, y, self.exposure)
        a = per_row(self.dispersion, y.shape[0]) + 0.0
        centre = np.log(a) - np.log(rows["exposure"])  # log r = eta - centre
        (count, growth), back = np.unique(np.stack([rows["count"], np.log1p(a)]), axis=1, return_inverse=True)
        ends = np.full(count.shape, _HIGHEST), np.full(count.shape, _LOWEST)
        left = inflection(*ends, lambda log_r: np.exp(log_r) * growth - rising(log_r, count)[2])[back.ravel()]
        return {**rows, "dispersion": a, "centre": centre, "left": left + centre, "right": np.full(y.shape, np.inf)}

    def constant(self, rows: Rows) -> Array:
        xp, y, a = namespace(rows["y"]), rows["y"], rows["dispersion"]
        return special("gammaln", y + 1.0) - y * (xp.log(a) - xp.log1p(a))

    def growth(self, rows: Rows) -> Array:
        xp = namespace(rows["centre"])
        return xp.exp(-rows["centre"]) * xp.log1p(rows["dispersion"])

    def theta_growth(self, rows: Rows) -> Array:
        xp, a = namespace(rows["centre"]), rows["dispersion"]
        return xp.exp(-rows["centre"]) * (a / (1.0 + a) - xp.log1p(a))

    def rest(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """What psi has beyond r log(1 + a)."""
        value, first, second = rising(eta - rows["centre"][:, None], rows["y"][:, None])
        return self.constant(rows)[:, None] - value, -first, -second

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        with np.errstate(over="ignore"):  # a trial may be far out
            rate = self.growth(rows)[:, None] * namespace(eta).exp(eta)
        value, first, second = self.rest(eta, rows)
        return rate + value, rate + first, rate + second

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        marks = self.landmarks(rows)
        return expected_loss(
            self.rest, lambda g: expect_near(g, h[:, 0], rho[:, 0], marks), h, rho, rows, self.growth(rows)
        )

    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        a, y = rows["dispersion"][:, None], rows["y"][:, None]
        _, first, second = self.derivatives(eta, rows)
        with np.errstate(over="ignore"):
            r = namespace(eta).exp(eta - rows["centre"][:, None])
        return (r + y) * (a / (1.0 + a)) - y - first, r * (a / (1.0 + a)) - second

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, at = namespace(rows["y"]), namespace(rows["y"]).log((rows["y"] + 0.5) / rows["exposure"])
        return [at, xp.where(xp.isinf(rows["left"]), at, rows["left"]), rows["centre"]]

    # -- a count of 0: -log p(0) = r log(1 + a) -----------------------------------------------------
    def log_zero(self, eta: Array, rows: Rows) -> tuple[Array, None, None]:
        return eta + namespace(eta).log(self.growth(rows))[:, None], None, None

    def theta_slope_pairs(self, eta: Array, rows: Rows, slope: None, bend: None) -> SlopePairs:
        a = rows["dispersion"]
        moved = (a / (1.0 + a) / namespace(a).log1p(a) - 1.0)[:, None]  # dlog(r log(1 + a))/dlog a
        return self._theta_slope(eta, rows), (moved + 0.0 * eta, 0.0 * eta)

    # -- prediction --------------------------------------------------------------------------------
    def variance_terms(self, n: int) -> list[tuple[Any, float]]:
        return [(1.0 + per_row(self.dispersion, n), 1.0)]

    def means_and_sizes(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mu = np.maximum(self._rate_at(eta), 1e-300)
        return mu, mu / per_row(self.dispersion, eta.shape[0])[:, None]

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[NegativeBinomial1, np.ndarray]:
        exposure, a = rng.gamma(2.0, 1.0, n) + 0.1, float(rng.gamma(2.0, 0.5) + 0.3)
        r = exposure * np.exp(rng.normal(0.0, 0.5, n)) / a
        return cls(a, exposure), rng.negative_binomial(r, 1.0 / (1.0 + a)).astype(float)
