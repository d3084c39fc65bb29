"""Poisson counts: p(y|eta) = (E e^eta)^y exp(-E e^eta) / y!

f(h, rho) = -y h + E exp(h + rho/2) - y log E + log y!        exact: a closed form, so no bound is needed
c_h = -y,  a_h = 1,  lam = tau,  phi(s) = E e^s,  k(tau) = tau log(tau/E) - tau      (tab:fenchelDual)
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from scipy.special import pdtr, pdtrc

from ..checks import counts, first, first_value, number, problem, vector
from ..linalg.arrays import Array, ArrayLike, namespace, special
from ..linalg.functions import log_above_zero, stirling
from .base import Rows
from .bounds import Loss
from .exponential_family import ExponentialLikelihood
from .links import LogLink
from .numerical import LARGEST, MOST
from .parameters import per_row


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


class ExposedMean(LogLink):
    """Counts with mean exposure * e^eta: the common base of the Poisson and the negative binomials.

    ``rows["count"]`` is y. Modifiers (``modified.py``) use more methods. They give the loss of a row, whatever its
    weight, and the probability of 0, at eta (N, M):

        row_loss, row_theta, row_derivatives, row_constant     f, df/dtheta, psi and its slopes, the constant of psi
        growth, rest                     psi = growth e^eta + rest
        log_zero(eta, rows)              log(-log p(0|eta)) with its first two slopes
        theta_slope_pairs(eta, rows, slope, bend)     dpsi/dtheta and dlog(-log p(0))/dtheta, each with its slope in
                                         eta, from the slopes of log_zero
        zero_at(eta)                     -log p(0|eta)
        draw_above_zero(eta, rng)        one y > 0 for each eta
    """

    # eta - rows["centre"] between which -log p(y|y > 0) has its inflection, the inner end first; None where it has none
    bend_above_zero: tuple[float, float] | None = None
    narrow_above_zero: float = 1.0  # a variance up to which its expectation needs no panels about where it bends

    exposure: Any
    support: str = "count"
    ratio: str | None = "relative_risk"
    row_parameters: tuple[str, ...] = ("exposure",)
    size: Any = math.inf  # of the noise beyond the Poisson's

    def mean_level(self, n: int) -> np.ndarray:
        return vector(self.name, "exposure", 1.0 if self.exposure is None else self.exposure, n)

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

    def rest(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """psi less c e^eta, with its first two slopes, at eta (N, M)."""
        return self.row_derivatives(eta, rows)

    def log_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array | None, Array | None]:
        """log(-log p(0|eta)) with its first two slopes in eta (N, M): None where they are 1 and 0."""
        raise NotImplementedError(f"{self.name} does not implement log_zero(); counts above 0 need it.")

    def rest_above_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """-log p(y|y > 0, eta) less c e^eta, with its first two slopes."""
        value, first, second = self.rest(eta, rows)
        log_g, slope, bend = self.log_zero(eta, rows)
        above, rise, turn = log_above_zero(log_g)
        if slope is None:
            return value + above, first + rise, second + turn
        return value + above, first + rise * slope, second + turn * slope**2 + rise * bend

    def above(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """P(y > x|eta)."""
        return 1.0 - self.cdf_inside(x, eta)


class Poisson(ExposedMean, ExponentialLikelihood):
    """Counts with mean ``exposure * exp(eta)``.

    Parameters
    ----------
    exposure : float or array (N,), optional
        A known factor of the mean: an expected count, person-years or an area. 0 means unobserved.
    integer : bool
        Whether y must be whole numbers. ``False`` accepts any y >= 0 (weighted or averaged counts). It uses a
        quasi-likelihood with Gamma(y + 1) in place of y!, so the evidence is not a probability of the data.

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

    def variance_terms(self, n: int) -> list[tuple[Any, float]]:
        return [(1.0, 1.0)]

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(pdtr(x, self._rate_at(eta)))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(self._rate_at(eta)) + 0.0

    # -- a row as a whole, and a count of 0
    def row_theta(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, ...]:
        return ()

    def growth(self, rows: Rows) -> Array:
        return rows["exposure"]

    def rest(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        y = rows["count"][:, None]
        return self.constant(rows)[:, None] - y * eta, -y, 0.0 * y

    def log_zero(self, eta: Array, rows: Rows) -> tuple[Array, Array | None, Array | None]:
        return eta + namespace(eta).log(rows["exposure"])[:, None], None, None

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
