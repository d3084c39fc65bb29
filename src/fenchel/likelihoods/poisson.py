"""Poisson counts: p(y|eta) = (E e^eta)^y exp(-E e^eta) / y!

f(h, rho) = -y h + E exp(h + rho/2) - y log E + log y!        exact, no bound needed
c_h = -y,  a_h = 1,  lam = tau,  phi(s) = E e^s,  k(tau) = tau log(tau/E) - tau      (tab:fenchelDual)
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from scipy.special import pdtr, pdtrc

from ..checks import counts, first, first_value, number, problem, vector
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, special
from ..linalg.functions import stirling
from .base import Likelihood, Rows, flat
from .by_density import LARGEST, MOST
from .growth import log_above_zero
from .scalar import ExponentialLikelihood
from .sites import Loss
from .summaries import per_row


def exposed_counts(where: str, y: np.ndarray, exposure: ArrayLike, integer: bool = True) -> dict[str, np.ndarray]:
    """Rows of counts with an exposure; exposure 0 is an unobserved row."""
    if integer:
        counts(where, "y", y, "For real-valued targets use Gaussian.")
    elif (y < 0.0).any():
        raise problem(where, f"y{first_value(y < 0.0, y)} is negative", "numbers >= 0, or NaN for unobserved")
    exposure = vector(where, "exposure", 1.0 if exposure is None else exposure, y.shape[0])
    bad = ~(np.isfinite(exposure) & (exposure >= 0.0)) & ~np.isnan(y)
    if bad.any():
        raise problem(where, f"exposure{first_value(bad, exposure)} is not usable", "finite numbers >= 0")
    impossible = (exposure == 0.0) & (y > 0.0)
    if impossible.any():
        place = first(impossible)
        raise problem(
            where,
            f"exposure{place} = 0 while y{place} = {number(y[impossible][0])} is a count above 0",
            "y = 0 or NaN wherever exposure is 0",
            "Give the exposure, or leave the row out (for infer: y = NaN there).",
        )
    observed = (exposure > 0.0) & ~np.isnan(y)
    count = np.where(observed, y, 0.0)
    return {
        "y": count,
        "count": count,
        "floor": stirling(count),
        "exposure": np.where(observed, exposure, 1.0),
        "weight": observed.astype(np.float64),
    }


class ExposedMean(Likelihood):
    """Counts of mean exposure * e^eta: what the Poisson and its relatives share.

    ``rows["count"]`` is y. Modifiers (``modified.py``) ask more of them: a row as a whole, whatever its weight counts,
    and, to be truncated, at rows or at eta (N, M)

        rest_above_zero(eta, rows)       -log p(y|y > 0, eta) less c e^eta, with its first two slopes
        theta_above_zero(eta, rows)      its slope in theta, and that one's slope in eta
        inflections_above_zero(rows)     where it bends over (N,), infinite where it does not
        zero_at(eta)                     -log p(0|eta)
        draw_above_zero(eta, rng)        one y > 0 for each eta
    """

    bends_above_zero: str | None = None  # "left", "right": where -log p(y|y > 0) has an inflection, if it has one
    narrow_above_zero: float = 1.0  # a variance up to which its expectation needs no panels about where it bends

    exposure: Any
    support: str = "count"
    ratio: str | None = "relative_risk"
    row_parameters: tuple[str, ...] = ("exposure",)
    size: Any = math.inf  # of the noise beyond the Poisson's

    def _exposure_like(self, h: Array) -> Array:
        exposure = 1.0 if self.exposure is None else self.exposure
        return asarray(vector(self.name, "exposure", exposure, h.shape[0]), h)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        h, rho = flat(h), flat(rho)
        with np.errstate(over="ignore"):  # a mean can be infinite
            return self._exposure_like(h) * namespace(h).exp(h + rho / 2)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """Half a count where there are none."""
        exposure = np.nan_to_num(per_row(self.exposure, y.shape[0]))
        return float(np.log(max(float(w @ y), 0.5) / max(float(w @ exposure), 1e-300)))

    def _rate_at(self, eta: np.ndarray) -> np.ndarray:
        """exposure * e^eta at eta (N, M), within doubles."""
        return np.minimum(per_row(self.exposure, eta.shape[0])[:, None] * np.exp(np.minimum(eta, LARGEST)), MOST)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        exposure = np.maximum(per_row(self.exposure, x.shape[0]), 1e-300)
        width = np.minimum(1.0, np.maximum(np.minimum(x, self.size), 1.0) ** -0.5)
        return np.log(np.maximum(x, 0.5) / exposure), width

    # -- a row as a whole --------------------------------------------------------------------------
    def row_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """f with its slopes and curvature."""
        return self.objective.loss(h, rho, rows)

    def row_theta(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, ...]:
        """df/dtheta (N,), a parameter at a time."""
        return self.objective.theta_rows(h, rho, rows)

    def row_derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """psi, psi', psi'' at eta (N, M)."""
        return self.derivatives(eta, rows)

    def row_constant(self, rows: Rows) -> Array:
        """What psi has beyond what depends on eta (N,)."""
        return self.constant(rows)

    # -- counts above 0 ----------------------------------------------------------------------------
    def growth(self, rows: Rows) -> Array | None:
        """c where psi grows like c e^eta (N,); None where it grows like eta."""
        return None

    def theta_growth(self, rows: Rows) -> Array | None:
        """The same of dpsi/dtheta."""
        return None

    def above(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """P(y > x|eta)."""
        return 1.0 - self.cdf_inside(x, eta)


class Poisson(ExposedMean, ExponentialLikelihood):
    """Counts with rate ``exposure * exp(eta)``.

    Parameters
    ----------
    exposure : float or array (N,), optional
        Expected counts, person-years, area: what the rate is relative to. 0 means unobserved.
    integer : bool
        Whether y must be whole numbers. ``False`` takes any y >= 0 (weighted or averaged counts): a quasi-likelihood
        with Gamma(y + 1) for y!, whose evidence is no probability of the data.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Poisson
    >>> Poisson(exposure=2.0).predictive_mean(np.array([0.0]), np.array([0.0]))
    array([2.])
    """

    word = "poisson"

    def __init__(self, exposure: ArrayLike | None = None, integer: bool = True) -> None:
        self.exposure, self.integer = exposure, integer

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        return exposed_counts(self.name, y, self.exposure, self.integer)

    def lenient(self) -> Self:
        return self.changed(integer=False)

    def linear(self, rows: Rows) -> Array:
        return -rows["count"]

    def rate(self, rows: Rows) -> Array:
        return rows["exposure"]

    def constant(self, rows: Rows) -> Array:
        y = rows["count"]
        return special("gammaln", y + 1.0) - y * namespace(y).log(rows["exposure"])

    def floor(self, rows: Rows) -> Array:
        return rows["floor"]

    def landmarks(self, rows: Rows) -> list[Array]:
        # from below, a count of 0 would overshoot through exp; from above Newton contracts
        return [namespace(rows["count"]).log((rows["count"] + 0.5) / rows["exposure"])]

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        mean, rho = self.predictive_mean(h, rho), flat(rho)
        with np.errstate(over="ignore"):
            return mean + mean**2 * namespace(rho).expm1(rho)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(pdtr(x, self._rate_at(eta)))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(self._rate_at(eta)) + 0.0

    # -- above 0: psi = mu - y eta + log(1 - e^-mu) + const is log-concave, an exponential family in eta
    def row_theta(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, ...]:
        return ()

    def growth(self, rows: Rows) -> Array:
        return rows["exposure"]

    def rest_above_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        value, first, second = log_above_zero(eta, rows["exposure"])
        y = rows["count"][:, None]
        return value - y * eta + self.constant(rows)[:, None], first - y, second

    def zero_at(self, eta: np.ndarray) -> np.ndarray:
        return self._rate_at(eta)

    def above(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(pdtrc(x, np.maximum(self._rate_at(eta), 1e-300)))

    def draw_above_zero(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The first arrival in [0, 1], given that there is one, and the arrivals after it."""
        mu = np.maximum(self._rate_at(eta), 1e-300)
        first = -np.log1p(rng.random(eta.shape) * np.expm1(-mu))
        return 1.0 + rng.poisson(np.maximum(mu - first, 0.0))

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Poisson, np.ndarray]:
        exposure = rng.gamma(2.0, 1.0, n) + 0.1
        return cls(exposure), rng.poisson(exposure * np.exp(rng.normal(size=n))).astype(float)

    def __repr__(self) -> str:
        return "Poisson()" if self.exposure is None else "Poisson(exposure=...)"
