"""Negative binomial counts of mean mu = E e^eta whose variance is in proportion to it: (1 + a) mu.

    p(y|eta) = Gamma(y + r) / (Gamma(r) y!) (1/(1+a))^r (a/(1+a))^y,      r = mu / a
    psi      = r log(1 + a) - log Gamma(y + r)/Gamma(r) - y log(a/(1+a)) + log y!
    psi''    = r [log(1 + a) - sum_{0 < j < y} j/(r + j)^2]

The bracket increases in r, so psi has one inflection at most, on the left, where mu is far below y: there it is
continued by its tangent (``tangents.py``), which makes what is fitted log-concave. a -> 0 is the Poisson. With psi'
the slope in eta, dpsi/dlog a = (r + y) a/(1+a) - y - psi'.
"""

from __future__ import annotations

import numpy as np

from ..checks import numeric, positive
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, special, to_numpy
from ..linalg.grouped import expect_near
from .base import Rows, flat
from .by_density import LARGEST
from .gamma_ratios import rising
from .growth import grown_loss, log_above_zero
from .negative_binomial import GammaPoisson
from .parameters import Parameter, shown
from .poisson import Poisson, exposed_counts
from .sites import Loss
from .summaries import mean, per_row
from .tangents import TangentLikelihood

_LOWEST, _HIGHEST = -60.0, 60.0  # of log r, where the inflection is sought


def _start(own: NegativeBinomial1, y: np.ndarray, w: np.ndarray) -> float:
    """Half of what the variance of y is above its mean, relative to it: the rest is left to eta."""
    centre = max(mean(y, w), 1e-8)
    return float(np.clip((np.average((y - centre) ** 2, weights=w) / centre - 1.0) / 2, 0.1, 1e3))


class NegativeBinomial1(GammaPoisson, TangentLikelihood):
    """Overdispersed counts with mean ``exposure * exp(eta)`` and variance ``mean * (1 + dispersion)``.

    Parameters
    ----------
    dispersion : float or array (N,)
        a, above 0; the smaller, the nearer to a Poisson. Learnable where it is one number.
    exposure : float or array (N,), optional
        Expected counts, person-years, area: what the mean is relative to. 0 means unobserved.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import NegativeBinomial1
    >>> NegativeBinomial1(0.5).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([1.5])
    """

    word, aliases = "negative-binomial-1", ("nb1", "nbinom1")
    bends_above_zero, narrow_above_zero = "left", 0.25
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
        base = np.log(rows["exposure"]) - np.log(a)  # log r = eta + base
        left = self._bends(rows["y"], a, False) - base
        return {**rows, "dispersion": a, "base": base, "left": left, "right": np.full(y.shape, np.inf)}

    def constant(self, rows: Rows) -> Array:
        xp, y, a = namespace(rows["y"]), rows["y"], rows["dispersion"]
        return special("gammaln", y + 1.0) - y * (xp.log(a) - xp.log1p(a))

    def growth(self, rows: Rows) -> Array:
        xp = namespace(rows["base"])
        return xp.exp(rows["base"]) * xp.log1p(rows["dispersion"])

    def theta_growth(self, rows: Rows) -> Array:
        xp, a = namespace(rows["base"]), rows["dispersion"]
        return xp.exp(rows["base"]) * (a / (1.0 + a) - xp.log1p(a))

    def _rest(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """What psi has beyond r log(1 + a)."""
        value, first, second = rising(eta + rows["base"][:, None], rows["y"][:, None])
        return self.constant(rows)[:, None] - value, -first, -second

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        with np.errstate(over="ignore"):  # a trial may be far out
            rate = self.growth(rows)[:, None] * namespace(eta).exp(eta)
        value, first, second = self._rest(eta, rows)
        return rate + value, rate + first, rate + second

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        marks = self.landmarks(rows)
        return grown_loss(
            self.growth(rows),
            self._rest,
            lambda g: expect_near(g, h[:, 0], rho[:, 0], marks),
            h,
            rho,
            rows,
            convex=False,
        )

    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        a, y = rows["dispersion"][:, None], rows["y"][:, None]
        _, first, second = self.derivatives(eta, rows)
        with np.errstate(over="ignore"):
            r = namespace(eta).exp(eta + rows["base"][:, None])
        return (r + y) * (a / (1.0 + a)) - y - first, r * (a / (1.0 + a)) - second

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, at = namespace(rows["y"]), namespace(rows["y"]).log((rows["y"] + 0.5) / rows["exposure"])
        return [at, xp.where(xp.isinf(rows["left"]), at, rows["left"]), -rows["base"]]

    # -- prediction --------------------------------------------------------------------------------
    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean, rho = self.predictive_mean(h, rho), flat(rho)
        a = asarray(per_row(self.dispersion, rho.shape[0]) + 0.0, rho)
        with np.errstate(over="ignore"):
            return (1.0 + a) * mean + mean**2 * namespace(rho).expm1(rho)

    def means_and_sizes(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mu = np.maximum(self._rate_at(eta), 1e-300)
        return mu, mu / per_row(self.dispersion, eta.shape[0])[:, None]

    # -- above 0: psi + log(1 - e^-q), q = r log(1 + a) ---------------------------------------------
    def rest_above_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        less = log_above_zero(eta, self.growth(rows))
        return tuple(x + y for x, y in zip(self._rest(eta, rows), less, strict=True))  # type: ignore[return-value]

    def theta_above_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        a = rows["dispersion"]
        moved = (a / (1.0 + a) / namespace(a).log1p(a) - 1.0)[:, None]  # dlog q/dlog a
        slope, its = self._theta_slope(eta, rows)
        _, first, second = log_above_zero(eta, self.growth(rows))
        return slope + moved * first, its + moved * second

    def inflections_above_zero(self, rows: Rows) -> np.ndarray:
        return self._bends(rows["count"], rows["dispersion"], True) - rows["base"]

    @staticmethod
    def _bends(y: Array, a: Array, above: bool) -> np.ndarray:
        """log r at the inflection of each row."""
        (counts, bend), back = np.unique(np.stack([to_numpy(y), np.log1p(to_numpy(a))]), axis=1, return_inverse=True)
        return np.asarray(_inflections(counts, bend, above)[back.ravel()])

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[NegativeBinomial1, np.ndarray]:
        exposure, a = rng.gamma(2.0, 1.0, n) + 0.1, float(rng.gamma(2.0, 0.5) + 0.3)
        r = exposure * np.exp(rng.normal(0.0, 0.5, n)) / a
        return cls(a, exposure), rng.negative_binomial(r, 1.0 / (1.0 + a)).astype(float)

    def __repr__(self) -> str:
        return f"NegativeBinomial1({shown(self.dispersion)}{'' if self.exposure is None else ', exposure=...'})"


def _inflections(y: np.ndarray, log1p_a: np.ndarray, above: bool) -> np.ndarray:
    """log r where psi'' = 0, by bisection; -inf where it is positive throughout. ``above``: of a count above 0.

    With q = r log(1 + a) the latter has the second slope of log(1 - e^-q) too; over q it rises from -1/2 to 0.
    """

    def rises(log_r: np.ndarray) -> np.ndarray:
        """Whether psi''/r > 0; d2L/d(log r)^2 is r times the sum."""
        less = log_above_zero(log_r[:, None], log1p_a)[2][:, 0] if above else 0.0
        return np.exp(np.minimum(log_r, LARGEST)) * log1p_a + less > rising(log_r, y)[2]

    low, high = np.full(y.shape, _LOWEST), np.full(y.shape, _HIGHEST)
    some = ~rises(low)
    for _ in range(60):
        middle = (low + high) / 2
        up = rises(middle)
        low, high = np.where(up, low, middle), np.where(up, middle, high)
    return np.where(some, high, -np.inf)
