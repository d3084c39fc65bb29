"""Zero-inflated counts: with probability pi a structural 0, else a count of the base's density p0.

    p(0|eta) = pi + (1 - pi) e^{-g},   g = -log p0(0|eta);       p(y|eta) = (1 - pi) p0(y|eta)   for y > 0
    y > 0:   f = E[psi0] - log(1 - pi)                                                           the base's
    y = 0:   f = G(E[g]),   G(x) = -log(pi + (1 - pi) e^{-x})    >= E[G(g)], as G is concave (Jensen)

With w = G'(E[g]), the probability that a zero is the count's own, every slope of a zero is w times that of g; the same
bound comes from a latent indicator whose probability is optimised. -log p(0) levels off at -log pi, so neither p nor
the bound is log-concave: the fit is a stationary point, and another one may be better. There is no dual. The fit
starts from a Poisson's (w = 1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from ..linalg.arrays import Array, ArrayLike, Seed, namespace, to_numpy
from ..transforms import LOGIT
from .base import Rows, flat
from .bounds import Bounds, DirectBound
from .modified import PROBABILITY_BOUNDS, OwnProbability
from .parameters import Parameter, shown
from .poisson import ExposedMean, Poisson
from .sites import Loss


def _level_off(g: Array, odds: Array) -> tuple[Array, Array, Array]:
    """G(g) + log(1 - pi), w and 1 - w; odds = log((1 - pi)/pi)."""
    xp = namespace(g)
    lean = odds - g
    own, e = lean > 0.0, xp.exp(-xp.abs(lean))
    most = 1.0 / (1.0 + e)
    least = e * most
    return xp.where(own, g, odds) - xp.log1p(e), xp.where(own, most, least), xp.where(own, least, most)


class ZeroMixture(DirectBound):
    """f = G(E[g]) of a zero, by Jensen; that of the base of a count above it."""

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        xp, zero = namespace(h), rows["count"] == 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # slopes of zeros that are none of the count's do not count
            base = self.likelihood.base.row_loss(h, rho, rows)
        level, w, rest = _level_off(base.value, rows["odds"])
        w, rest = xp.where(zero, w, xp.ones_like(w)), xp.where(zero, rest, xp.zeros_like(w))
        alpha, half = base.alpha, base.lam / 2
        with np.errstate(over="ignore", invalid="ignore"):
            lean, bend = rest * alpha, (base.hh, base.hr, base.rr)
            slopes = [alpha, base.lam, bend[0] - lean * alpha, bend[1] - lean * half, bend[2] - rest * half * half]
            slopes = [w * x for x in slopes]
        if not bool(xp.all(w > 0.0)):  # slopes of g may be infinite where no zero is the count's own
            slopes = [xp.where(w > 0.0, x, xp.zeros_like(w)) for x in slopes]
        return Loss(xp.where(zero, level, base.value) + rows["lift"], *slopes)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        own, xp, zero, pi = self.likelihood, namespace(h), rows["count"] == 0.0, rows["probability"]
        g = own.base.row_loss(h, rho, rows).value
        _, w, rest = _level_off(g, rows["odds"])
        of_base = [xp.where(zero, w * x, x) for x in own.base.row_theta(h, rho, rows)]
        share = xp.where(zero, rest * (1.0 - pi) * xp.expm1(-g), pi)
        return np.asarray(own.gathered(*(rows["weight"] * x for x in (*of_base, share))))


class ZeroInflated(OwnProbability):
    """Counts of which a share is zero for another reason.

    Parameters
    ----------
    base : Poisson, NegativeBinomial or NegativeBinomial1
        Of the counts, its exposure and its overdispersion included.
    probability : float or array (N,)
        Of a structural zero, in (0, 1). Learnable where it is one number.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Poisson, ZeroInflated
    >>> ZeroInflated(Poisson(exposure=2.0), 0.25).predictive_mean(np.array([0.0]), np.array([0.0]))
    array([1.5])
    """

    prefix = "zero-inflated"
    moves_eta = True
    bound = "mixture"
    bounds: ClassVar[Bounds] = {"mixture": ZeroMixture}
    log_concave = False
    shorter: ClassVar[dict[str, str]] = {"poisson": "zip", "negative-binomial": "zinb"}
    own = (
        Parameter(
            "probability",
            "probability",
            LOGIT,
            bounds=PROBABILITY_BOUNDS,
            weak=(-1.0, 3.0),
            formula=("zero", "logit of a zero"),
        ),
    )

    def __init__(self, base: ExposedMean, probability: ArrayLike = 0.1) -> None:
        super().__init__(base)
        self._choose_probability(probability)

    def neighbour(self) -> Poisson:
        return Poisson(self.base.exposure)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows = super().check(y)
        lift = -np.log1p(-rows["probability"])
        return {**rows, "lift": lift, "odds": -lift - np.log(rows["probability"])}

    def constant(self, rows: Rows) -> Array:
        return self.base.row_constant(rows) + rows["lift"]

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, none = namespace(eta), 0.0 * eta
        psi, first, second = self.base.row_derivatives(eta, rows)
        zero = rows["count"][:, None] + none == 0.0
        level, w, rest = _level_off(psi, rows["odds"][:, None] + none)
        some = zero & (w > 0.0)
        slope, bend = xp.where(some, first, none), xp.where(some, second, none)
        return (
            xp.where(zero, level, psi) + rows["lift"][:, None],
            xp.where(zero, w * slope, first),
            xp.where(zero, w * bend - w * rest * slope * slope, second),
        )

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """E[psi] itself: the base's for counts above zero, by panels for zeros."""
        xp, zero, base = namespace(h), rows["count"] == 0.0, self.base
        panels = super().exact_loss(h, rho, rows)
        count = (base.row_loss if base.log_concave else base.exact_loss)(h, rho, rows)
        count = replace(count, value=count.value + rows["lift"])
        return Loss(*(xp.where(zero, getattr(panels, x), getattr(count, x)) for x in Loss.__slots__))

    def landmarks(self, rows: Rows) -> list[Array]:
        """The mode of a count; for a zero, where the two causes are alike, and the bend on either side."""
        xp, y = namespace(rows["count"]), rows["count"]
        even = xp.where(y > 0.0, y + 0.5, xp.maximum(rows["odds"], 0.5 + xp.zeros_like(y)))
        at = xp.log(even / rows["exposure"])
        return [at, at - 1.0, at + 1.0, *self.base.landmarks(rows)[:1]]

    # -- prediction --------------------------------------------------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean = self.base.predictive_mean(h, rho)
        return (1.0 - self._pi(mean)) * mean

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean, variance = self.base.predictive_mean(h, rho), self.base.predictive_variance(h, rho)
        pi = self._pi(mean)
        return (1.0 - pi) * (variance + pi * mean**2)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return float(self.base._level(y, w)) - float(np.log1p(-np.mean(self.probability)))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        pi = self._pi(eta)
        return np.asarray(pi + (1.0 - pi) * self.base.cdf_inside(x, eta))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(eta.shape) < self._pi(eta), 0.0, self.base.draw(eta, rng))

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows, pi = namespace(h), self.rows_for(y, h), self._pi(h)
        host = np.where(to_numpy(rows["weight"]) > 0.0, to_numpy(rows["count"]), np.nan)
        count = self.base.predictive_log_density(host, h, rho) + xp.log1p(-pi)
        top = xp.maximum(count, xp.log(pi))
        either = top + xp.log(xp.exp(count - top) + pi * xp.exp(-top))
        return xp.where(rows["count"] > 0.0, count, either)

    def __repr__(self) -> str:
        return f"ZeroInflated({self.base!r}, {shown(self.probability)})"
