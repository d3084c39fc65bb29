"""Negative binomial counts of mean mu = E e^eta and size r: variance mu + mu^2 / r.

    p(y|eta) = Gamma(y+r) / (Gamma(r) y!) (r/(r+mu))^r (mu/(r+mu))^y
    psi = y softplus(-t) + r softplus(t) - log Gamma(y+r)/(Gamma(r) y!),      t = eta - c,  c = log(r/E)

So it is the logit at eta - c of a fraction y/(y+r) with weight y+r: the bounds are those of ``bernoulli.py``, with
phi(s) = log(1 + e^{s-c}) and k(tau) = tau log tau + (1-tau) log(1-tau) + c tau. With n = y + r trials and a fraction p,

    f(h, rho) = n [-p h + Phi(h - c, rho)] + y c - log Gamma(y+r)/(Gamma(r) y!),      Phi >= E[softplus(t)]
    df/dlog r = -df/dh + r Phi - r (digamma(y+r) - digamma(r))

r -> inf is the Poisson. The ratio of Gamma functions comes from Stirling's series where r is large, so the limit is
reached without cancellation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc

from ..checks import numeric, positive, problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, special, to_numpy
from ..linalg.functions import sigmoid, softplus
from ..linalg.logistic import FIRST, MINUS, PLUS, REST, SECOND, TAU, THIRD, logistic_moments
from .base import Rows, flat
from .bernoulli import LogitLikelihood
from .bounds import Bound, Bounds, ExactExpectation
from .by_density import MOST
from .gamma_ratios import digamma_rest, log_choose, stirling_rest
from .parameters import Parameter, shown
from .poisson import ExposedMean, exposed_counts
from .sites import Loss
from .softplus_bounds import LogSumLogit, Softpluses, TiltedLogit
from .summaries import per_row

_STIRLING = 20.0  # a size from which Stirling's series is exact to rounding


def log_rising(r: ArrayLike, y: np.ndarray) -> np.ndarray:
    """log Gamma(r + y) - log Gamma(r) - y log r."""
    r = np.asarray(r, dtype=np.float64)
    near, R = r < _STIRLING, np.maximum(r, _STIRLING)
    close = special("gammaln", r + y) - special("gammaln", r) - y * np.log(r)
    away = (R + y - 0.5) * np.log1p(y / R) - y + stirling_rest(R + y) - stirling_rest(R)
    return np.where(near, to_numpy(close), away)


def log_rising_slope(r: ArrayLike, y: np.ndarray) -> np.ndarray:
    """r (digamma(r + y) - digamma(r)): the slope of log Gamma(r + y) - log Gamma(r) in log r."""
    r = np.asarray(r, dtype=np.float64)
    near, R = r < _STIRLING, np.maximum(r, _STIRLING)
    close = r * (special("digamma", r + y) - special("digamma", r))
    away = R * (np.log1p(y / R) + digamma_rest(R + y) - digamma_rest(R))
    return np.where(near, to_numpy(close), away)


class GammaPoisson(ExposedMean):
    """Poisson counts of a gamma rate: of mean mu and size r at eta, with variance mu + mu^2 / r."""

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
        Above 0; the larger, the nearer to a Poisson. Learnable.
    exposure : float or array (N,), optional
        Expected counts, person-years, area: what the mean is relative to. 0 means unobserved.
    bound : {"best", "log-sum", "tilted", "exact"}
        The paper's bound, the tighter one (each one convex problem with a duality gap), or no bound at all (with a
        strong-concavity certificate).

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
    aliases = ("nb", "nb2", "nbinom", "nbinom2", "negbin", "negbinomial", "negativebinomial2")
    bends_above_zero = "right"
    # up to where the largest count has a millionth more variance than a Poisson's
    parameters = (
        Parameter(
            "size",
            "size",
            bounds=lambda own, y: np.log([1e-5, 1e6 * float(np.nanmax(y, initial=1.0))]),
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
            "slope": log_rising_slope(r, count),
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

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        loss = self.row_loss(h, rho, rows)
        return Loss(*(getattr(loss, field) / rows["trials"] for field in Loss.__slots__))

    # -- a row as a whole: psi = y softplus(-t) + r softplus(t) - log choices, t = eta - c ----------
    def row_constant(self, rows: Rows) -> Array:
        return -rows["choices"]

    def row_derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        y, r, t = rows["count"][:, None], rows["size"][:, None], eta - rows["centre"][:, None]
        up, down = sigmoid(t), sigmoid(-t)
        value = y * softplus(-t) + r * softplus(t) - rows["choices"][:, None]
        return value, r * up - y * down, (y + r) * up * down

    def row_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        m, y, r = logistic_moments(h[:, 0] - rows["centre"], rho[:, 0]), rows["count"], rows["size"]
        n, lam = y + r, (y + r) * m[FIRST, :]
        value = y * m[MINUS, :] + r * m[PLUS, :] - rows["choices"]
        return Loss(value, r * m[TAU, :] - y * m[REST, :], lam, lam, n * m[SECOND, :] / 2, n * m[THIRD, :] / 4)

    def row_theta(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, ...]:
        m, y, r = logistic_moments(h[:, 0] - rows["centre"], rho[:, 0]), rows["count"], rows["size"]
        return (r * (m[PLUS, :] - m[TAU, :]) + y * m[REST, :] - rows["slope"],)

    # -- its own parameter -------------------------------------------------------------------------
    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        n, loss = rows["trials"], self.objective.loss(h, rho, rows)
        softened = loss.value - rows["constant"] + rows["y"] * h[:, 0]  # Phi
        each = rows["size"] * softened - n * loss.alpha - rows["slope"]
        return self.gathered(rows["weight"] / n * each)

    # -- the likelihood itself ---------------------------------------------------------------------
    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -rows["trials"][:, None] * self.derivatives(eta, rows)[0]

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        # E[mu] + E[mu^2]/r + Var[mu], with E[mu^2] = E[mu]^2 e^rho
        mean, rho = self.predictive_mean(h, rho), flat(rho)
        xp = namespace(rho)
        with np.errstate(over="ignore"):
            size = asarray(per_row(self.size, rho.shape[0]) + 0.0, rho)
            return mean + mean**2 * (xp.exp(rho) / size + xp.expm1(rho))

    def means_and_sizes(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._rate_at(eta), per_row(self.size, eta.shape[0])[:, None]

    # -- above 0: psi + log(1 - e^-w), w = r u, u = softplus(t) -------------------------------------
    def rest_above_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, r, y = namespace(eta), rows["size"][:, None], rows["count"][:, None]
        t, w, seen = self._seen(eta, rows)
        s, rest, tiny = sigmoid(t), sigmoid(-t), t < -30.0
        # log(1 - e^-w) is log r + t - w/2 where e^t is tiny
        log_seen = xp.where(tiny, xp.log(r) + t - w / 2, xp.log(seen))
        psi = y * softplus(-t) + w + log_seen - rows["choices"][:, None]
        pull = xp.where(tiny, 1.0 + (r - 1.0) / 2 * s, r * s / seen)
        bend = pull * (rest - xp.where(tiny, 1.0 - (r + 1.0) / 2 * s, r * s * xp.exp(-w) / seen))
        return psi, pull - y * rest, y * s * rest + bend

    @staticmethod
    def _seen(eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """t, w and 1 - e^-w at eta."""
        xp, t = namespace(eta), eta - rows["centre"][:, None]
        w = xp.maximum(rows["size"][:, None] * softplus(t), 1e-300 + 0.0 * t)
        return t, w, -xp.expm1(-w)

    def theta_above_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        """dpsi/dlog r = w / (1 - e^-w) - r (digamma(y + r) - digamma(r)) - psi'."""
        xp, r = namespace(eta), rows["size"][:, None]
        t, w, seen = self._seen(eta, rows)
        _, first, second = self.rest_above_zero(eta, rows)
        tiny = w < 1e-8
        g = xp.where(tiny, 1.0 + w / 2, w / seen)
        slope = xp.where(tiny, 0.5 + 0.0 * w, (1.0 - w * xp.exp(-w) / seen) / seen)
        return g - rows["slope"][:, None] - first, r * sigmoid(t) * slope - second

    def inflections_above_zero(self, rows: Rows) -> np.ndarray:
        (sizes, counts), back = np.unique(np.stack([rows["size"], rows["count"]]), axis=1, return_inverse=True)
        return np.asarray(_inflections(sizes, counts)[back.ravel()] + rows["centre"])

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[NegativeBinomial, np.ndarray]:
        exposure, size = rng.gamma(2.0, 1.0, n) + 0.1, float(rng.gamma(3.0, 1.0) + 0.2)
        mean = exposure * np.exp(rng.normal(size=n))
        y = rng.negative_binomial(size, size / (size + mean)).astype(float)
        return cls(size, exposure, str(rng.choice(list(cls.bounds)))), y

    def __repr__(self) -> str:
        given = "" if self.exposure is None else "exposure=..., "
        return f"NegativeBinomial({shown(self.size)}, {given}bound={self.bound!r})"


def _inflections(r: np.ndarray, y: np.ndarray) -> np.ndarray:
    """t = log mu/r where psi'' of a count above 0 is 0, by bisection in u = log(1 + e^t); inf where it is positive.

    psi' = r s/(1 - e^{-ru}) - y (1 - s), s = mu/(r + mu), increases in eta for r >= 1. For r < 1 its slope, as a
    multiple of s e^-u, is y + r/(1 - w) - r^2 w (e^u - 1)/(1 - w)^2 with w = e^{-ru}, which falls in u: one inflection.
    """

    def falls(u: np.ndarray) -> np.ndarray:
        w = np.exp(-r * u)
        seen = -np.expm1(-r * u)
        return y + r / seen < r * r * w * np.expm1(u) / seen**2

    low, high = np.full(r.shape, 1e-3), np.full(r.shape, 600.0)
    some = (r < 1.0) & falls(high)
    for _ in range(60):
        middle = (low + high) / 2
        down = falls(middle)
        low, high = np.where(down, low, middle), np.where(down, middle, high)
    with np.errstate(over="ignore"):
        return np.where(some, low + np.log(-np.expm1(-low)), np.inf)
