"""Counts above 0: a Poisson or a negative binomial of mean mu = E e^eta, given that it is not 0.

    p(y|eta) = p0(y|eta) / (1 - p0(0|eta)),      y = 1, 2, ...
    Poisson              psi = -y eta + mu + log(1 - e^-mu) + const: log-concave, as an exponential family in eta
    negative binomial    psi = psi0 + log(1 - e^{-r u}),   u = log(1 + mu/r)

With s = mu/(r + mu), psi' of the second is r s/(1 - e^{-ru}) - y (1 - s): it increases in eta for r >= 1. For r < 1 its
slope, as a multiple of s e^-u, is y + r/(1 - w) - r^2 w (e^u - 1)/(1 - w)^2 with w = e^{-ru}, which falls in u: one
inflection, on the right, beyond which psi is continued by its tangent (``tangents.py``). There
dpsi/dlog r = r u/(1 - e^{-ru}) - r (digamma(y+r) - digamma(r)) - psi'.

A draw is the first arrival in [0, 1], given that there is one, and the arrivals after it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc, pdtrc

from ..checks import first_value, numeric, positive, problem
from ..linalg.arrays import Array, ArrayLike, namespace, special
from ..linalg.functions import expm1_minus, sigmoid, softplus
from ..linalg.grouped import expect_near
from .base import Rows
from .bounds import Bounds, ExactExpectation
from .by_density import MOST
from .gamma_ratios import log_choose
from .growth import grown_loss
from .negative_binomial import log_rising_slope
from .parameters import Parameter, shown
from .poisson import ExposedMean, Poisson, exposed_counts
from .sites import Loss
from .summaries import per_row
from .tangents import TangentLikelihood

STRIP = 1.4  # log(1 - e^-mu) is analytic within pi/2 of the real line of log mu
_SURE = 700.0  # a mean from which a zero is impossible in doubles


def log_above_zero(eta: Array, exposure: Array) -> tuple[Array, Array, Array]:
    """log(1 - e^-mu), mu = exposure e^eta, and its first two derivatives in eta (N, M)."""
    xp = namespace(eta)
    log_mu = eta + xp.log(exposure)[:, None]
    small = log_mu < -30.0  # where it is log mu - mu/2
    mu = xp.exp(xp.minimum(xp.where(small, -30.0 + 0.0 * eta, log_mu), float(np.log(_SURE)) + 0.0 * eta))
    rest = xp.expm1(mu)
    k = mu / rest
    bend = k * (expm1_minus(mu) / rest - mu)
    tiny = xp.exp(xp.where(small, log_mu, -30.0 + 0.0 * eta)) / 2
    return (
        xp.where(small, log_mu - tiny, xp.log(-xp.expm1(-mu))),
        xp.where(small, 1.0 - tiny, k),
        xp.where(small, -tiny, bend),
    )


class CountsAbove(Poisson):
    """Where a fit of truncated counts starts: the Poisson of the same rows, from alpha = 0."""

    def landmarks(self, rows: Rows) -> list[Array]:
        return [namespace(rows["y"]).log(rows["y"] / rows["exposure"])]


class CountsAboveZero(ExposedMean):
    """What both share: y is 1 or more."""

    least = 1

    def neighbour(self) -> Poisson:
        return CountsAbove(self.exposure)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        zero = y == 0.0
        if zero.any():
            advice = (
                'With zeros use family="hurdle-poisson", "zero-inflated-poisson", or the family without "truncated".'
            )
            raise problem(self.name, f"y{first_value(zero, y)} is not above 0", "counts 1, 2, ..., or NaN", advice)
        rows = exposed_counts(self.name, y, self.exposure)
        return {**rows, "y": np.maximum(rows["y"], 1.0)}

    def landmarks(self, rows: Rows) -> list[Array]:
        return [
            namespace(rows["y"]).log((rows["y"] - 0.5) / rows["exposure"]),
            -namespace(rows["y"]).log(rows["exposure"]),
        ]

    # those of a mean in closed form do not hold
    def predictive_mean(self, h: Array, rho: Array, rng: Any = None) -> Array:
        return super(ExposedMean, self).predictive_mean(h, rho)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """log mu whose truncated mean is the mean of y, by Newton on a convex function; of a Poisson."""
        exposure = per_row(self.exposure, y.shape[0])
        mean = max(float(w @ y) / max(float(w.sum()), 1e-300), 1.0 + 1e-6)
        mu = mean
        for _ in range(100):
            k = mu / np.expm1(mu)
            mu = max(mu + (mean - mu - k) / max((mu + k) * (1.0 - k) / mu, 1e-8), mu / 4)
        return float(np.log(mu) - np.log(max(float(w @ exposure) / max(float(w.sum()), 1e-300), 1e-300)))


class TruncatedPoisson(CountsAboveZero):
    """Counts 1, 2, ... of a Poisson with rate ``exposure * exp(eta)`` whose zeros are not seen.

    Parameters
    ----------
    exposure : float or array (N,), optional
        What the rate is relative to. 0 means unobserved.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import TruncatedPoisson
    >>> TruncatedPoisson().mean_at(np.array([0.0])).round(4)
    array([1.582])
    """

    word = "truncated-poisson"
    bounds: ClassVar[Bounds] = {"exact": ExactExpectation}

    def __init__(self, exposure: ArrayLike | None = None) -> None:
        self.exposure = exposure

    def constant(self, rows: Rows) -> Array:
        xp = namespace(rows["y"])
        return special("gammaln", rows["y"] + 1.0) - rows["y"] * xp.log(rows["exposure"])

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -self.derivatives(eta, rows)[0]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        y = rows["y"][:, None]
        with np.errstate(over="ignore"):
            mu = rows["exposure"][:, None] * namespace(eta).exp(eta)
        value, first, second = log_above_zero(eta, rows["exposure"])
        return mu - y * eta + value + self.constant(rows)[:, None], mu - y + first, mu + second

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """E[mu] in closed form, the rest by a trapezoidal rule or panels."""

        def rest(eta: Array, own: Rows) -> tuple[Array, Array, Array]:
            value, first, second = log_above_zero(eta, own["exposure"])
            y = own["y"][:, None]
            return value - y * eta + self.constant(own)[:, None], first - y, second

        marks = self.landmarks(rows)[1:]
        return grown_loss(
            rows["exposure"], rest, lambda g: expect_near(g, h[:, 0], rho[:, 0], marks, STRIP), h, rho, rows
        )

    # -- prediction --------------------------------------------------------------------------------
    def mean_at(self, eta: np.ndarray) -> np.ndarray:
        mu = self._rates(eta)
        return np.asarray(mu / -np.expm1(-mu))

    def variance_at(self, eta: np.ndarray) -> np.ndarray:
        mu = self._rates(eta)
        k = mu / np.expm1(np.minimum(mu, _SURE))
        return np.asarray((mu + k) * (expm1_minus(np.minimum(mu, _SURE)) / np.expm1(np.minimum(mu, _SURE))))

    def _rates(self, eta: ArrayLike) -> np.ndarray:
        """mu at eta (N,) or (N, M), not 0."""
        eta = np.asarray(eta, dtype=np.float64)
        flat = self._rate_at(eta[:, None])[:, 0] if eta.ndim == 1 else self._rate_at(eta)
        return np.maximum(flat, 1e-300)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        mu = self._rates(eta)
        return np.where(np.asarray(x) < 1.0, 0.0, 1.0 - pdtrc(np.maximum(x, 0.0), mu) / -np.expm1(-mu))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        mu = self._rates(eta)
        first = -np.log1p(rng.random(eta.shape) * np.expm1(-mu))
        return 1.0 + rng.poisson(np.maximum(mu - first, 0.0))

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[TruncatedPoisson, np.ndarray]:
        own = cls(rng.gamma(2.0, 1.0, n) + 0.1)
        return own, own.draw(rng.normal(size=(n, 1)), rng)[:, 0]

    def __repr__(self) -> str:
        return f"{self.name}({'' if self.exposure is None else 'exposure=...'})"


class TruncatedNegativeBinomial(CountsAboveZero, TangentLikelihood):
    """Counts 1, 2, ... of a negative binomial with mean ``exposure * exp(eta)`` whose zeros are not seen.

    Parameters
    ----------
    size : float or array (N,)
        r, above 0; the variance with zeros is ``mean + mean**2 / size``. Learnable where it is one number.
    exposure : float or array (N,), optional
        What the mean is relative to. 0 means unobserved.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import TruncatedNegativeBinomial
    >>> TruncatedNegativeBinomial(1.0).mean_at(np.array([0.0]))
    array([2.])
    """

    word = "truncated-negative-binomial"
    _strip = STRIP
    parameters: tuple[Parameter, ...] = (
        Parameter(
            "size",
            "size",
            bounds=lambda own, y: np.log([1e-5, 1e6 * float(np.nanmax(y, initial=1.0))]),
            weak=(1.0, 3.0),
        ),
    )

    def __init__(self, size: ArrayLike = 1.0, exposure: ArrayLike | None = None) -> None:
        r = positive(self.name, "size", numeric(self.name, "size", size))
        self.size, self.exposure = float(r) if r.ndim == 0 else r, exposure

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows = super().check(y)
        r, count = per_row(self.size, y.shape[0]) + 0.0, rows["y"]
        centre = np.log(r) - np.log(rows["exposure"])
        (sizes, counts), back = np.unique(np.stack([r, count]), axis=1, return_inverse=True)
        right = _inflections(sizes, counts)[back.ravel()] + centre
        return {
            **rows,
            "size": r,
            "centre": centre,
            "choices": log_choose(r, count),
            "slope": log_rising_slope(r, count),
            "left": np.full(y.shape, -np.inf),
            "right": right,
        }

    def constant(self, rows: Rows) -> Array:
        return -rows["choices"]

    def _parts(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array, Array, Array]:
        """t, r u, 1 - e^{-ru} and s, 1 - s at eta."""
        xp, t = namespace(eta), eta - rows["centre"][:, None]
        w = xp.maximum(rows["size"][:, None] * softplus(t), 1e-300 + 0.0 * t)
        return t, w, -xp.expm1(-w), sigmoid(t), sigmoid(-t)

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, r, y = namespace(eta), rows["size"][:, None], rows["y"][:, None]
        t, w, seen, s, rest = self._parts(eta, rows)
        # log(1 - e^-w) is log r + t - w/2 where e^t is tiny
        log_seen = xp.where(t < -30.0, xp.log(r) + t - w / 2, xp.log(seen))
        psi = y * softplus(-t) + w + log_seen - rows["choices"][:, None]
        pull = xp.where(t < -30.0, 1.0 + (r - 1.0) / 2 * s, r * s / seen)
        bend = pull * (rest - xp.where(t < -30.0, 1.0 - (r + 1.0) / 2 * s, r * s * xp.exp(-w) / seen))
        return psi, pull - y * rest, y * s * rest + bend

    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        xp, r = namespace(eta), rows["size"][:, None]
        _, w, seen, s, _ = self._parts(eta, rows)
        _, first, second = self.derivatives(eta, rows)
        k = w * xp.exp(-w) / seen
        tiny = w < 1e-8
        g = xp.where(tiny, 1.0 + w / 2, w / seen)
        slope = xp.where(tiny, 0.5 + 0.0 * w, (1.0 - k) / seen)
        return g - rows["slope"][:, None] - first, r * s * slope - second

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, marks = namespace(rows["y"]), super().landmarks(rows)
        return [*marks, rows["centre"], xp.where(xp.isinf(rows["right"]), rows["centre"], rows["right"])]

    # -- prediction --------------------------------------------------------------------------------
    def _given(self, eta: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """mu, r and 1 - p0(0) at eta (N,) or (N, M)."""
        eta = np.asarray(eta, dtype=np.float64)
        mu = self._rate_at(eta[:, None])[:, 0] if eta.ndim == 1 else self._rate_at(eta)
        r = per_row(self.size, eta.shape[0])
        r, mu = r if eta.ndim == 1 else r[:, None], np.maximum(mu, 1e-300)
        return mu, r, -np.expm1(-r * np.log1p(mu / r))

    def mean_at(self, eta: np.ndarray) -> np.ndarray:
        mu, _, seen = self._given(eta)
        return np.asarray(mu / seen)

    def variance_at(self, eta: np.ndarray) -> np.ndarray:
        mu, r, seen = self._given(eta)
        return np.asarray(np.maximum(mu / seen * (1.0 + mu + mu / r - mu / seen), 0.0))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        mu, r, seen = self._given(eta)
        above = betainc(np.maximum(x, 0.0) + 1.0, r, mu / (r + mu))
        return np.where(np.asarray(x) < 1.0, 0.0, 1.0 - above / seen)

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        mu, r, seen = self._given(eta)
        x = mu / r
        first = np.clip(np.expm1(-np.log1p(-rng.random(eta.shape) * seen) / r) / x, 0.0, 1.0)
        rate = rng.gamma(r + 1.0, size=eta.shape) / (1.0 / x + first)
        return 1.0 + rng.poisson(np.minimum(rate * (1.0 - first), MOST))

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[TruncatedNegativeBinomial, np.ndarray]:
        own = cls(float(rng.gamma(2.0, 0.6) + 0.2), rng.gamma(2.0, 1.0, n) + 0.1)
        return own, own.draw(rng.normal(size=(n, 1)), rng)[:, 0]

    def __repr__(self) -> str:
        return f"{self.name}({shown(self.size)}{'' if self.exposure is None else ', exposure=...'})"


def _inflections(r: np.ndarray, y: np.ndarray) -> np.ndarray:
    """t = log mu/r where psi'' = 0, by bisection in u = log(1 + e^t); inf where it is positive throughout."""

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
