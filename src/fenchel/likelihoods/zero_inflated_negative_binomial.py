"""Zero-inflated negative binomial: with probability pi a structural 0, else a negative binomial of mean mu = E e^eta.

    p(0|eta) = pi + (1 - pi) e^{-g},   g = r log(1 + mu/r);      p(y|eta) = (1 - pi) p_NB(y|eta)   for y > 0
    y > 0:   f = E[psi_NB] - log(1 - pi)                                                           exact
    y = 0:   f = G(E[g]),   G(x) = -log(pi + (1 - pi) e^{-x})     >= E[G(g)], as G is concave (Jensen)

As for the zero-inflated Poisson neither p nor the bound is log-concave: the fit is a stationary point. With
t = log mu/r, psi_NB = y softplus(-t) + r softplus(t) + const, whose expectations are those of a logistic. With
w = G'(E[g]), the probability that a zero is the count's own, every slope of a zero is w times that of g.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc

from ..checks import numeric, positive, problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, to_numpy
from ..linalg.functions import sigmoid, softplus
from ..linalg.logistic import FIRST, MINUS, PLUS, REST, SECOND, TAU, THIRD, logistic_moments
from .base import Rows, flat
from .bounds import Bounds, DirectBound
from .by_density import MOST
from .gamma_ratios import log_choose
from .hurdle import probability_of
from .negative_binomial import NegativeBinomial, log_rising_slope
from .parameters import Parameter, shown
from .poisson import ExposedMean, Poisson, exposed_counts
from .sites import Loss
from .summaries import per_row
from .zero_inflated import ZeroInflatedPoisson


class ZeroMixtureOf(DirectBound):
    """f = G(E[g]) of a zero, by Jensen; the expectation itself of a count above it."""

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        xp, y = namespace(h), rows["y"]
        zero, base = y == 0.0, self.likelihood._base(h, rho, rows)
        level, w, rest = self.likelihood._zero(base.value, rows["odds"])
        lift, bend = -xp.log1p(-rows["probability"]), -w * rest
        half = base.lam / 2
        return Loss(
            xp.where(zero, level, base.value) + lift,
            xp.where(zero, w * base.alpha, base.alpha),
            xp.where(zero, w * base.lam, base.lam),
            xp.where(zero, w * base.hh + bend * base.alpha**2, base.hh),
            xp.where(zero, w * base.hr + bend * base.alpha * half, base.hr),
            xp.where(zero, w * base.rr + bend * half**2, base.rr),
        )

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        xp, y, pi, own = namespace(h), rows["y"], rows["probability"], self.likelihood
        base = own._base(h, rho, rows)
        g = rows["size"] * logistic_moments(h[:, 0] - rows["centre"], rho[:, 0])[PLUS, :]
        _, w, rest = own._zero(g, rows["odds"])
        zero = y == 0.0
        size = xp.where(zero, w * (g - base.alpha), g - base.alpha - rows["slope"])
        share = xp.where(zero, rest * (1.0 - pi) * xp.expm1(-g), pi)
        return np.asarray(own.gathered(rows["weight"] * size, rows["weight"] * share))


class ZeroInflatedNegativeBinomial(ExposedMean):
    """Overdispersed counts with mean ``exposure * exp(eta)``, of which a share is zero for another reason.

    Parameters
    ----------
    size : float
        r, above 0; the variance of the counts is ``mean + mean**2 / size``. Learnable.
    probability : float
        Of a structural zero, in (0, 1). Learnable.
    exposure : float or array (N,), optional
        What the mean is relative to. 0 means unobserved.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import ZeroInflatedNegativeBinomial
    >>> ZeroInflatedNegativeBinomial(2.0, 0.25, exposure=2.0).predictive_mean(np.array([0.0]), np.array([0.0]))
    array([1.5])
    """

    bound = "mixture"
    bounds: ClassVar[Bounds] = {"mixture": ZeroMixtureOf}
    log_concave = False
    word, moves_eta = "zero-inflated-negative-binomial", True
    parameters: tuple[Parameter, ...] = (*NegativeBinomial.parameters, *ZeroInflatedPoisson.parameters)

    def __init__(self, size: float = 1.0, probability: float = 0.1, exposure: ArrayLike | None = None) -> None:
        r = positive(self.name, "size", numeric(self.name, "size", size))
        if r.ndim:
            raise problem(self.name, f"size has shape {r.shape}", "one number for all rows")
        self.size: Any = float(r)  # (N,) where it has a predictor of its own, as has
        self.probability: Any = probability_of(self.name, probability, "NegativeBinomial")
        self.exposure = exposure

    def neighbour(self) -> Poisson:
        return Poisson(self.exposure)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows, n = exposed_counts(self.name, y, self.exposure), y.shape[0]
        r, pi, count = per_row(self.size, n) + 0.0, per_row(self.probability, n) + 0.0, rows["y"]
        return {
            **rows,
            "size": r,
            "centre": np.log(r) - np.log(rows["exposure"]),
            "choices": log_choose(r, count),
            "slope": log_rising_slope(r, count),
            "probability": pi,
            "odds": np.log1p(-pi) - np.log(pi),
        }

    def constant(self, rows: Rows) -> Array:
        return -rows["choices"] - namespace(rows["y"]).log1p(-rows["probability"])

    def _base(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """E[psi_NB] with its slopes."""
        m, y, r = logistic_moments(h[:, 0] - rows["centre"], rho[:, 0]), rows["y"], rows["size"]
        n, lam = y + r, (y + r) * m[FIRST, :]
        value = y * m[MINUS, :] + r * m[PLUS, :] - rows["choices"]
        return Loss(value, r * m[TAU, :] - y * m[REST, :], lam, lam, n * m[SECOND, :] / 2, n * m[THIRD, :] / 4)

    @staticmethod
    def _zero(g: Array, odds: Array) -> tuple[Array, Array, Array]:
        """G(g) + log(1 - pi), w and 1 - w."""
        xp, lean = namespace(g), odds - g
        level = xp.where(lean > 0.0, g - softplus(-lean), odds - softplus(lean))
        return level, sigmoid(lean), sigmoid(-lean)

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, y, r = namespace(eta), rows["y"][:, None], rows["size"][:, None]
        t = eta - rows["centre"][:, None]
        up, down = sigmoid(t), sigmoid(-t)
        value = y * softplus(-t) + r * softplus(t) - rows["choices"][:, None]
        first, second = r * up - y * down, (y + r) * up * down
        level, w, rest = self._zero(value, rows["odds"][:, None] + 0.0 * t)
        zero, lift = y + 0.0 * t == 0.0, -xp.log1p(-rows["probability"])[:, None]
        return (
            xp.where(zero, level, value) + lift,
            xp.where(zero, w * first, first),
            xp.where(zero, w * second - w * rest * first**2, second),
        )

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -self.derivatives(eta, rows)[0]

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """E[psi] itself: that of a logistic for counts above zero, by panels for zeros."""
        xp, bound, zero = namespace(h), ZeroMixtureOf(self).loss(h, rho, rows), rows["y"] == 0.0
        if not bool(xp.any(zero)):
            return bound
        panels = super().exact_loss(h, rho, rows)
        return Loss(*(xp.where(zero, getattr(panels, x.name), getattr(bound, x.name)) for x in fields(Loss)))

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, y = namespace(rows["y"]), rows["y"]
        even = xp.where(y > 0.0, y + 0.5, xp.maximum(rows["odds"], 0.5 + xp.zeros_like(y)))
        return [xp.log(even / rows["exposure"]), rows["centre"]]

    # -- prediction --------------------------------------------------------------------------------
    def _pi(self, like: Array) -> Array:
        return asarray(per_row(self.probability, like.shape[0]) + 0.0, like)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean = super().predictive_mean(h, rho)
        return (1.0 - self._pi(mean)) * mean

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        # (1 - pi) (m + E[mu^2] (1 + 1/r)) - (1 - pi)^2 m^2, with E[mu^2] = m^2 e^rho
        m, rho = super().predictive_mean(h, rho), flat(rho)
        xp, pi = namespace(rho), self._pi(rho)
        r = asarray(per_row(self.size, rho.shape[0]) + 0.0, rho)
        with np.errstate(over="ignore"):
            return (1.0 - pi) * (m + m**2 * (xp.expm1(rho) + xp.exp(rho) / r + pi))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return super()._level(y, w) - float(np.log1p(-np.mean(self.probability)))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        r, pi = (per_row(v, eta.shape[0])[:, None] for v in (self.size, self.probability))
        return np.asarray(pi + (1.0 - pi) * betainc(r, x + 1.0, r / (r + self._rate_at(eta))))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        r, pi = (per_row(v, eta.shape[0])[:, None] for v in (self.size, self.probability))
        count = rng.poisson(np.minimum(self._rate_at(eta) * rng.gamma(r, 1.0 / r, eta.shape), MOST)) + 0.0
        return np.where(rng.random(eta.shape) < pi, 0.0, count)

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows, pi = namespace(h), self.rows_for(y, h), self._pi(h)
        host = np.where(to_numpy(rows["weight"]) > 0.0, to_numpy(rows["y"]), np.nan)
        plain = NegativeBinomial(1.0, self.exposure).changed(size=self.size)
        count = plain.predictive_log_density(host, h, rho) + xp.log1p(-pi)
        top = xp.maximum(count, xp.log(pi))
        either = top + xp.log(xp.exp(count - top) + pi * xp.exp(-top))
        return xp.where(rows["y"] > 0.0, count, either)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[ZeroInflatedNegativeBinomial, np.ndarray]:
        own = cls(float(rng.gamma(3.0, 1.0) + 0.5), 0.3, rng.gamma(2.0, 1.0, n) + 0.1)
        return own, own.draw(0.5 * rng.normal(size=(n, 1)), rng)[:, 0]

    def __repr__(self) -> str:
        given = "" if self.exposure is None else ", exposure=..."
        return f"{self.name}({shown(self.size)}, {shown(self.probability)}{given})"
