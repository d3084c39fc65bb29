"""Zero-inflated and hurdle counts. p0 is the density of the base: Poisson or negative binomial.

    zero-inflated   p(0|eta) = pi + (1 - pi) e^{-g},   g = -log p0(0|eta);     p(y|eta) = (1 - pi) p0(y|eta)   for y > 0
    y > 0:          f = E[psi0] - log(1 - pi)                                                          the base's
    y = 0:          f = G(E[g]),   G(x) = -log(pi + (1 - pi) e^{-x})    >= E[G(g)], as G is concave (Jensen)

Let w = G'(E[g]) be the probability that a zero comes from the count and is not an extra zero. Every slope of a zero is
then w times that of g. The same bound results from a latent indicator whose probability is optimised. -log p(0) tends
to -log pi, so neither p nor the bound is log-concave: the fit is a stationary point, and another one may be better.
There is no dual. The fit starts from a Poisson fit (w = 1).

    hurdle          p(0|eta) = pi,      p(y|eta) = (1 - pi) p0(y|eta) / (1 - p0(0|eta))   for y > 0

A zero carries no information on eta: such rows have no curvature and are left out. The other rows are as log-concave as
truncated counts. With the logit of pi as theta, dpsi/dtheta = pi - 1[y = 0].
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..checks import first_value, numeric, problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, to_numpy
from ..transforms import LOGIT
from .base import Likelihood, Rows, flat
from .bounds import Bounds, DirectBound, Loss, combined
from .modified import ModifiedCounts, Truncated
from .parameters import Parameter, per_row
from .poisson import ExposedMean, Poisson

PROBABILITY_BOUNDS = np.array([[-np.log(1e8), np.log(1e8)]])  # of a logit: pi and 1 - pi down to 1e-8


class OwnProbability(ModifiedCounts):
    """A modifier of counts that gives 0 a separate probability: one number, or one for each row."""

    probability: Any

    def _choose_probability(self, value: ArrayLike) -> None:
        pi = numeric(self.name, "probability", value)
        bad = ~((pi > 0.0) & (pi < 1.0))
        if pi.ndim > 1 or bad.any():
            got = f" has shape {pi.shape}" if pi.ndim > 1 else f"{first_value(bad, pi)} is not usable"
            expected = "one number in (0, 1), or one for each row"
            raise problem(self.name, f"probability{got}", expected, f"Without zeros of their own use {self.base!r}.")
        self.probability = float(pi) if pi.ndim == 0 else pi

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        return {**super().check(y), "probability": self._probabilities(y.shape[0])}

    def _probabilities(self, n: int) -> np.ndarray:
        return per_row(self.probability, n) + 0.0

    def _pi(self, like: Any) -> Any:
        """pi of each row, of the shape of ``like``, (N,) or (N, M), or to broadcast with it."""
        pi = asarray(self._probabilities(like.shape[0]), like)
        return pi if like.ndim == 1 else pi[:, None]

    @property
    def counts(self) -> Any:
        """The likelihood of the counts that are not zeros of their own."""
        return self.base

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        pi = self._pi(eta)
        return np.asarray(pi + (1.0 - pi) * self.counts.cdf_inside(x, eta))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(eta.shape) < self._pi(eta), 0.0, self.counts.draw(eta, rng))

    def _variance(self, mean: Any, variance: Any) -> Any:
        """Of y, from the mean and variance of its counts, all (N,) or (N, M)."""
        pi = self._pi(mean)
        return (1.0 - pi) * (variance + pi * mean**2)


def _level_off(g: Array, odds: Array) -> tuple[Array, Array, Array]:
    """G(g) + log(1 - pi), w and 1 - w; odds = log((1 - pi)/pi)."""
    xp = namespace(g)
    lean = odds - g
    own, e = lean > 0.0, xp.exp(-xp.abs(lean))
    most = 1.0 / (1.0 + e)
    least = e * most
    return xp.where(own, g, odds) - xp.log1p(e), xp.where(own, most, least), xp.where(own, least, most)


class ZeroMixture(DirectBound):
    """f = G(E[g]) for a zero, by Jensen's inequality; the bound of the base for a positive count."""

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        xp, zero = namespace(h), rows["count"] == 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # slopes of zeros that are none of the count's do not count
            base = self.likelihood.base.row_loss(h, rho, rows)
        level, w, rest = _level_off(base.value, rows["odds"])
        w, rest = xp.where(zero, w, 1.0), xp.where(zero, rest, 0.0)
        alpha, half = base.alpha, base.lam / 2
        with np.errstate(over="ignore", invalid="ignore"):
            lean, bend = rest * alpha, (base.hh, base.hr, base.rr)
            slopes = [alpha, base.lam, bend[0] - lean * alpha, bend[1] - lean * half, bend[2] - rest * half * half]
            slopes = [w * x for x in slopes]
        if not bool(xp.all(w > 0.0)):  # slopes of g may be infinite where no zero is the count's own
            slopes = [xp.where(w > 0.0, x, 0.0) for x in slopes]
        return Loss(xp.where(zero, level, base.value) + rows["lift"], *slopes)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        own, xp, zero, pi = self.likelihood, namespace(h), rows["count"] == 0.0, rows["probability"]
        g = own.base.row_loss(h, rho, rows).value
        _, w, rest = _level_off(g, rows["odds"])
        of_base = [xp.where(zero, w * x, x) for x in own.base.row_theta(h, rho, rows)]
        share = xp.where(zero, rest * (1.0 - pi) * xp.expm1(-g), pi)
        return np.asarray(own.gathered(*(rows["weight"] * x for x in (*of_base, share))))


class ZeroInflated(OwnProbability):
    """Zero-inflated counts: an extra zero with probability pi, and a count of the base otherwise.

    Parameters
    ----------
    base : Poisson, NegativeBinomial or NegativeBinomial1
        Distribution of the counts, with its exposure and its overdispersion.
    probability : float or array (N,)
        pi, the probability of an extra (structural) zero, in (0, 1). Learnable if it is one number.

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
    others: ClassVar[dict[str, tuple[str, ...]]] = {  # of pscl, and of R-INLA
        "poisson": ("zip", "zeroinflatedpoisson1"),
        "negative-binomial": ("zinb", "zeroinflatednbinomial1"),
    }
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
        xp = namespace(eta)
        psi, first, second = self.base.row_derivatives(eta, rows)
        zero = rows["count"][:, None] + 0.0 * eta == 0.0
        level, w, rest = _level_off(psi, rows["odds"][:, None] + 0.0 * eta)
        some = zero & (w > 0.0)
        slope, bend = xp.where(some, first, 0.0), xp.where(some, second, 0.0)
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
        count = count._replace(value=count.value + rows["lift"])
        return combined(lambda of_zero, of_count: xp.where(zero, of_zero, of_count), panels, count)

    def landmarks(self, rows: Rows) -> list[Array]:
        """The mode of a count; for a zero, where the two causes are alike, and the bend on either side."""
        xp, y = namespace(rows["count"]), rows["count"]
        even = xp.where(y > 0.0, y + 0.5, xp.clip(rows["odds"], 0.5, None))
        at = xp.log(even / rows["exposure"])
        return [at, at - 1.0, at + 1.0, *self.base.landmarks(rows)[:1]]

    # -- prediction --------------------------------------------------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean = self.base.predictive_mean(h, rho)
        return (1.0 - self._pi(mean)) * mean

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean, variance = self.base.predictive_mean(h, rho), self.base.predictive_variance(h, rho)
        mixed: Array = self._variance(mean, variance)
        return mixed

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return float(self.base._level(y, w)) - float(np.log1p(-np.mean(self.probability)))

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        xp, rows, pi = namespace(h), self.rows_for(y, h), self._pi(h)
        host = np.where(to_numpy(rows["weight"]) > 0.0, to_numpy(rows["count"]), np.nan)
        count = self.base.predictive_log_density(host, h, rho) + xp.log1p(-pi)
        top = xp.maximum(count, xp.log(pi))
        either = top + xp.log(xp.exp(count - top) + pi * xp.exp(-top))
        return xp.where(rows["count"] > 0.0, count, either)


def _share(own: Likelihood, y: np.ndarray, w: np.ndarray) -> float:
    """Of zeros, half a row added to either side."""
    return float((w @ (y == 0.0) + 0.5) / (w.sum() + 1.0))


class HurdleBound(DirectBound):
    """The bound of the truncated base; zeros are left out."""

    @property
    def log_concave(self) -> bool:
        return bool(self.likelihood.counts.objective.log_concave)

    def is_flat(self, rows: Rows) -> Array:
        return rows["zero"] > 0.0

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        loss: Loss = self.likelihood.beside_zeros(self.likelihood.counts.objective.loss(h, rho, rows), rows)
        return loss

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        some, base = 1.0 - rows["zero"], self.likelihood.counts
        of_base = [some * x for x in base.objective.theta_rows(h, rho, rows)] if base.parameters else []
        slopes = (*of_base, rows["probability"] - rows["zero"])
        return np.asarray(self.likelihood.gathered(*(rows["weight"] * x for x in slopes)))


class Hurdle(OwnProbability):
    """Hurdle counts: 0 with probability pi, and a count of the base that is truncated at 0 otherwise.

    Parameters
    ----------
    base : Poisson, NegativeBinomial or NegativeBinomial1
        Distribution of the counts before truncation, with its exposure and its overdispersion.
    probability : float or array (N,)
        pi, the probability of a zero, in (0, 1). Learnable if it is one number.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Hurdle, Poisson
    >>> Hurdle(Poisson(), 0.5).mean_at(np.array([0.0])).round(4)
    array([0.791])
    """

    prefix = "hurdle"
    others: ClassVar[dict[str, tuple[str, ...]]] = {  # of R-INLA
        "poisson": ("zeroinflatedpoisson0",),
        "negative-binomial": ("zeroinflatednbinomial0",),
    }
    own = (Parameter("probability of 0", "probability", LOGIT, PROBABILITY_BOUNDS, start=_share, weak=(-1.0, 3.0)),)

    def __init__(self, base: ExposedMean, probability: ArrayLike = 0.5) -> None:
        super().__init__(base)
        counts = self.counts
        self.bound, self.log_concave, self.above_zero = counts.bound, counts.log_concave, counts.word
        self._choose_probability(probability)

    @cached_property
    def counts(self) -> Truncated:
        """Those above 0."""
        return Truncated(self.base).changed(called=self.called)

    @property
    def bounds(self) -> Bounds:  # type: ignore[override]
        return {self.bound: HurdleBound}

    def neighbour(self) -> Poisson:
        near: Poisson = self.counts.neighbour()
        return near

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        zero = y == 0.0
        nothing = zero & (per_row(self.counts.exposure, y.shape[0]) == 0.0)  # exposure 0 is unobserved
        rows = self.counts.check(np.where(nothing, np.nan, np.where(zero, 1.0, y)))
        rows["probability"] = self._probabilities(y.shape[0])
        return {**rows, "zero": zero.astype(np.float64)}

    def constant(self, rows: Rows) -> Array:
        return self._beside_zeros(self.counts.constant(rows), rows)

    @staticmethod
    def _beside_zeros(psi: Array, rows: Rows) -> Array:
        """-log pi of a zero, and psi - log(1 - pi) of a truncated count; psi is (N,) or (N, M)."""
        xp, zero, pi = namespace(psi), rows["zero"] > 0.0, rows["probability"]
        if psi.ndim > 1:
            zero, pi = zero[:, None], pi[:, None]
        return xp.where(zero, -xp.log(pi), psi - xp.log1p(-pi))

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, zero = namespace(eta), (rows["zero"] > 0.0)[:, None]
        psi, first, second = self.counts.derivatives(eta, rows)
        return self._beside_zeros(psi, rows), xp.where(zero, 0.0, first), xp.where(zero, 0.0, second)

    def beside_zeros(self, loss: Loss, rows: Rows) -> Loss:
        """The loss of truncated counts, with zeros beside them."""
        xp, zero = namespace(rows["zero"]), rows["zero"] > 0.0
        flat = combined(lambda x: xp.where(zero, 0.0, x), loss)
        return flat._replace(value=self._beside_zeros(loss.value, rows))

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        return self.beside_zeros(self.counts.exact_loss(h, rho, rows), rows)

    def landmarks(self, rows: Rows) -> list[Array]:
        marks: list[Array] = self.counts.landmarks(rows)
        return marks

    # -- prediction --------------------------------------------------------------------------------
    def mean_at(self, eta: np.ndarray) -> np.ndarray:
        mean = self.counts.mean_at(eta)
        return np.asarray((1.0 - self._pi(mean)) * mean)

    def variance_at(self, eta: np.ndarray) -> np.ndarray:
        return np.asarray(self._variance(self.counts.mean_at(eta), self.counts.variance_at(eta)))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return float(self.counts._level(np.maximum(y, 1.0), np.where(y > 0.0, w, 0.0))) if (w * y).any() else 0.0
