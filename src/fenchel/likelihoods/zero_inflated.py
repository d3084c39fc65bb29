"""Zero-inflated Poisson: with probability pi the count is a structural 0, else Poisson with mean mu = E e^eta.

    p(0|eta) = pi + (1 - pi) e^{-mu},       p(y|eta) = (1 - pi) mu^y e^{-mu} / y!   for y > 0
    y > 0:   f = -y h + m - y log E + log y! - log(1 - pi),      m = E[mu] = E e^{h + rho/2}        exact
    y = 0:   f = G(m),   G(m) = -log(pi + (1 - pi) e^{-m})       >= E[G(mu)], as G is concave (Jensen)
    alpha = w m - y,   lam = w m >= 0,   w = G'(m) for y = 0 and 1 for y > 0

w is the probability that a zero is the Poisson's own; the same bound comes from a latent indicator whose probability is
optimised. -log p(0) levels off at -log pi, so neither p nor the bound is log-concave: the fit is a stationary point,
and another one may be better. There is no dual. The fit starts from the Poisson's (w = 1), whose f with -log(1 - pi)
bounds this one from above.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..checks import number, numeric, problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, special, to_numpy
from ..linalg.functions import sigmoid, softplus
from ..transforms import LOGIT
from .base import Rows, flat
from .bounds import Bounds, DirectBound
from .parameters import Parameter, shown
from .poisson import ExposedMean, Poisson, exposed_counts
from .sites import Loss
from .summaries import per_row

_SURE = 2000.0  # a mean from which a zero is structural whatever pi is: e^-2000 is 0


class ZeroMixture(DirectBound):
    """f = G(E[mu]) of a zero, by Jensen; the expectation itself of a count above it."""

    def _mean(self, h: Array, rho: Array, rows: Rows) -> Array:
        with np.errstate(over="ignore"):  # a trial may be far out; its value is then infinite
            return rows["exposure"] * namespace(h).exp(h[:, 0] + rho[:, 0] / 2)

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        y = rows["y"]
        value, _, lam, less = self.likelihood._of_mean(self._mean(h, rho, rows), y, rows["odds"])
        bend = lam - less
        value = value - y * h[:, 0] + self.likelihood.constant(rows)
        return Loss(value, lam - y, lam, bend, bend / 2, bend / 4)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        xp, y, pi, mean = namespace(h), rows["y"], rows["probability"], self._mean(h, rho, rows)
        w = self.likelihood._of_mean(mean, 0.0 * y, rows["odds"])[1]
        m = xp.where(mean < _SURE, mean, _SURE + xp.zeros_like(mean))
        # y = 0: dG = -pi (1 - pi) (1 - e^-m) / p(0) = -(1 - w) (1 - pi) (1 - e^-m);   y > 0: pi
        each = xp.where(y > 0.0, pi + xp.zeros_like(w), (1.0 - w) * (1.0 - pi) * xp.expm1(-m))
        return np.asarray(self.likelihood.gathered(rows["weight"] * each))


class ZeroInflatedPoisson(ExposedMean):
    """Counts with rate ``exposure * exp(eta)``, of which a share is zero for another reason.

    Parameters
    ----------
    probability : float
        Of a structural zero, in (0, 1). Learnable.
    exposure : float or array (N,), optional
        What the rate is relative to. 0 means unobserved.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import ZeroInflatedPoisson
    >>> ZeroInflatedPoisson(0.25, exposure=2.0).predictive_mean(np.array([0.0]), np.array([0.0]))
    array([1.5])
    """

    bound = "mixture"
    bounds: ClassVar[Bounds] = {"mixture": ZeroMixture}
    log_concave = False
    word, moves_eta = "zero-inflated-poisson", True
    parameters = (  # pi and 1 - pi down to 1e-8
        Parameter(
            "probability", "probability", LOGIT, bounds=lambda own, y: (-np.log(1e8), np.log(1e8)), weak=(-1.0, 3.0)
        ),
    )

    def __init__(self, probability: float = 0.1, exposure: ArrayLike | None = None) -> None:
        pi = numeric(self.name, "probability", probability)
        if pi.ndim != 0 or not 0.0 < float(pi) < 1.0:
            got = f"probability = {number(float(pi))}" if pi.ndim == 0 else f"probability has shape {pi.shape}"
            raise problem(
                self.name, f"{got} is not usable", "one number in (0, 1)", "Without structural zeros use Poisson."
            )
        self.probability: Any = float(pi)  # (N,) where it has a predictor of its own
        self.exposure = exposure

    def neighbour(self) -> Poisson:
        return Poisson(self.exposure)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        pi = per_row(self.probability, y.shape[0]) + 0.0
        odds = np.log1p(-pi) - np.log(pi)  # log((1 - pi)/pi)
        return {**exposed_counts(self.name, y, self.exposure), "probability": pi, "odds": odds}

    def constant(self, rows: Rows) -> Array:
        """What a count above zero has beyond -y eta + mu."""
        xp, y = namespace(rows["y"]), rows["y"]
        return special("gammaln", y + 1.0) - y * xp.log(rows["exposure"]) - xp.log1p(-rows["probability"])

    def _of_mean(self, mean: Array, y: Array, odds: Array) -> tuple[Array, Array, Array, Array]:
        """What psi has beyond -y eta and the constant, as a function of the mean: value, w, w m and w (1 - w) m^2."""
        xp = namespace(mean)
        zero = xp.where(y > 0.0, xp.zeros_like(mean), xp.ones_like(mean)) > 0.0
        m = xp.where(mean < _SURE, mean, _SURE + xp.zeros_like(mean))
        lean = odds - m
        # G - const = -log((pi + (1 - pi) e^-m)/(1 - pi)) = m - softplus(-lean), which tends to the log odds
        level = xp.where(lean > 0.0, m - softplus(-lean), odds - softplus(lean))
        w, rest = sigmoid(lean), sigmoid(-lean)
        return (
            xp.where(zero, level, mean),
            xp.where(zero, w, xp.ones_like(w)),
            xp.where(zero, w * m, mean),
            xp.where(zero, w * m * rest * m, xp.zeros_like(w)),
        )

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -self.derivatives(eta, rows)[0]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        y, exposure = rows["y"][:, None], rows["exposure"][:, None]
        with np.errstate(over="ignore"):
            value, _, slope, less = self._of_mean(
                exposure * namespace(eta).exp(eta), y + 0.0 * eta, rows["odds"][:, None] + 0.0 * eta
            )
        return value - y * eta + self.constant(rows)[:, None], slope - y, slope - less

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """E[psi] itself: closed for counts above zero, by panels for zeros."""
        xp, bound, zero = namespace(h), ZeroMixture(self).loss(h, rho, rows), rows["y"] == 0.0
        if not bool(xp.any(zero)):
            return bound
        all_zero = {**rows, "y": 0.0 * rows["y"]}
        panels = super().exact_loss(h, rho, all_zero)
        return Loss(*(xp.where(zero, getattr(panels, x), getattr(bound, x)) for x in Loss.__slots__))

    def landmarks(self, rows: Rows) -> list[Array]:
        """The mode of a count; for a zero, where the two causes are alike, and the bend on either side."""
        xp, y = namespace(rows["y"]), rows["y"]
        even = xp.where(y > 0.0, y + 0.5, xp.maximum(rows["odds"], 0.5 + xp.zeros_like(y)))
        at = xp.log(even / rows["exposure"])
        return [at, at - 1.0, at + 1.0]

    # -- prediction --------------------------------------------------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean = super().predictive_mean(h, rho)
        return (1.0 - self._pi(mean)) * mean

    def _pi(self, like: Array) -> Array:
        """pi of each row (N,)."""
        return asarray(per_row(self.probability, like.shape[0]) + 0.0, like)

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        # (1 - pi) (m + E[mu^2]) - (1 - pi)^2 m^2, with E[mu^2] = m^2 e^rho
        m, rho = super().predictive_mean(h, rho), flat(rho)
        pi = self._pi(rho)
        with np.errstate(over="ignore"):
            return (1.0 - pi) * (m + m**2 * (namespace(rho).expm1(rho) + pi))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return super()._level(y, w) - float(np.log1p(-np.mean(self.probability)))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        pi = per_row(self.probability, eta.shape[0])[:, None]
        return pi + (1.0 - pi) * super().cdf_inside(x, eta)

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        structural = rng.random(eta.shape) < per_row(self.probability, eta.shape[0])[:, None]
        return np.where(structural, 0.0, super().draw(eta, rng))

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows = namespace(h), self.rows_for(y, h)
        host = np.where(to_numpy(rows["weight"]) > 0.0, to_numpy(rows["y"]), np.nan)
        pi = self._pi(h)
        count = Poisson(self.exposure).predictive_log_density(host, h, rho) + xp.log1p(-pi)
        top = xp.maximum(count, xp.log(pi))
        either = top + xp.log(xp.exp(count - top) + pi * xp.exp(-top))
        return xp.where(rows["y"] > 0.0, count, either)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[ZeroInflatedPoisson, np.ndarray]:
        exposure = rng.gamma(2.0, 1.0, n) + 0.1
        y = rng.poisson(exposure * np.exp(rng.normal(size=n))).astype(float)
        return cls(0.3, exposure), np.where(rng.random(n) < 0.3, 0.0, y)

    def __repr__(self) -> str:
        given = "" if self.exposure is None else ", exposure=..."
        return f"ZeroInflatedPoisson({shown(self.probability)}{given})"
