"""Durations known up to an interval, under proportional hazards: S(t|eta) = exp(-(t/u)^k e^eta).

    a = b          it ended at a:              psi = A e^eta - eta - log k - (k-1) log(a/u) + log u,     A = (a/u)^k
    a < b = inf    still waiting at a:         psi = A e^eta
    a < b          it ended between a and b:   psi = A e^eta - log(1 - e^{-D e^eta}),                    D = (b/u)^k - A

a = 0 is an event before b. log(1 - e^-mu) is concave in log mu, so every row is log-concave and the fit has a
strong-concavity certificate. The expectation of A e^eta has a closed form, and the rest is computed by quadrature. The
shape k and the unit of time u are those of the base. dD/dlog k = k ((b/u)^k log(b/u) - A log(a/u)) gives dpsi/dlog k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import first_value, problem, vector
from ..linalg.arrays import Array, ArrayLike, Seed, namespace
from ..linalg.functions import ABOVE_ZERO_STRIP, log_above_zero
from ..linalg.quadrature import Integrand, expect_near
from .base import Likelihood, Rows
from .bounds import Loss, expected_loss
from .modified import Modified
from .parameters import observed
from .survival import Exponential, ProportionalHazards, Weibull, check_durations, check_powers


class Interval(Modified):
    """Interval-censored durations: the event happened between y and ``upper``.

    Parameters
    ----------
    base : Weibull or Exponential
        Distribution of the durations.
    upper : float or array (N,), optional
        End of the interval: y for an event at y, inf if no event was seen until y. y = 0 is an event before ``upper``.
        Default: y, so that every event was seen.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Exponential, Interval
    >>> likelihood = Interval(Exponential(), upper=[2.0, np.inf, 1.0])
    >>> likelihood.log_density(np.zeros((3, 1)), likelihood.prepare([1.0, 1.0, 1.0]))[:, 0].round(4)
    array([-1.4587, -1.    , -1.    ])
    """

    support, ratio, durations = "positive", "hazard_ratio", True

    def __init__(self, base: ProportionalHazards, upper: ArrayLike | None = None) -> None:
        if not isinstance(base, ProportionalHazards):
            raise problem("Interval", f"base is {base!r}", "durations: Weibull(), Exponential()")
        super().__init__(base)
        self.row_parameters, self.upper, self.word, self.aliases = ("upper",), upper, None, ()
        self.moves_eta = base.moves_eta

    def neighbour(self) -> Likelihood:
        """Every interval's event at its middle: it reads ``y`` and ``event``."""
        base: Likelihood = self.base
        return base

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        b = y if self.upper is None else vector(self.name, "upper", self.upper, y.shape[0])
        seen, k, unit = ~np.isnan(y), self.base.shape, self.base.unit
        check_durations(self.name, y, (y == 0.0) & (b == 0.0), "upper{} = 0")
        turned = seen & ~(b >= y)
        if turned.any():
            got = f"upper{first_value(turned, b)} is below y{first_value(turned, y)}"
            raise problem(self.name, got, "y <= upper, inf where it had not ended", "Check the order of the columns.")
        said = seen & ~((y == 0.0) & np.isinf(b))  # between 0 and forever says nothing
        low, high = np.where(said, y, 1.0) / unit, np.where(said, b, np.inf) / unit
        event, within = said & (low == high), said & (low < high) & np.isfinite(high)
        log_low = np.log(np.where(low > 0.0, low, 1.0))
        log_high = np.log(np.where(within, high, 1.0))
        check_powers(self.name, y, np.maximum(np.abs(log_low), np.abs(log_high)), k)
        A = np.where(low > 0.0, np.exp(k * log_low), 0.0)
        ratio = np.where(low > 0.0, np.expm1(k * (log_high - log_low)), 0.0)
        D = np.where(within, np.where(low > 0.0, A * ratio, np.exp(k * log_high)), 1.0)
        pull = np.where(within, (A + D) * log_high - A * log_low, 0.0)  # dD/dk
        middle = np.where(within, (low + np.where(within, high, low)) / 2, np.where(low > 0.0, low, 1.0))
        return {
            "y": middle,
            "event": (event | within).astype(np.float64),
            "exact": event.astype(np.float64),
            "within": within.astype(np.float64),
            "base": A,
            "exposure": np.maximum(D, 1e-300),
            "log_low": log_low,
            "pull": pull,
            "weight": said.astype(np.float64),
        }

    def constant(self, rows: Rows) -> Array:
        k, unit = self.base.shape, self.base.unit
        return -rows["exact"] * (float(np.log(k)) + (k - 1.0) * rows["log_low"] - float(np.log(unit)))

    @staticmethod
    def _within(eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """log(1 - e^{-D e^eta}) and its first two slopes."""
        return log_above_zero(eta + namespace(eta).log(rows["exposure"])[:, None])

    def _rest(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """What psi has beyond A e^eta."""
        exact, within = rows["exact"][:, None], rows["within"][:, None]
        value, slope, bend = self._within(eta, rows)
        return self.constant(rows)[:, None] - exact * eta - within * value, -exact - within * slope, -within * bend

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        with np.errstate(over="ignore"):
            rate = rows["base"][:, None] * namespace(eta).exp(eta)
        value, slope, bend = self._rest(eta, rows)
        return rate + value, rate + slope, rate + bend

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        marks = [-namespace(h).log(rows["exposure"])]

        def expected(g: Integrand) -> Array:
            return expect_near(g, h[:, 0], rho[:, 0], marks, ABOVE_ZERO_STRIP)

        return expected_loss(self._rest, expected, h, rho, rows, rows["base"], convex=True)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        if not self.learned:
            return np.zeros(0)
        grown = namespace(h).exp(h[:, 0] + rho[:, 0] / 2)
        slope = rows["base"] * grown - rows["exact"] - self.exact_loss(h, rho, rows).alpha  # E[d log(1 - e^-mu)/deta]
        k, log_low = self.base.shape, rows["log_low"]
        of_ends = k * rows["base"] * log_low * grown - k * rows["pull"] / rows["exposure"] * slope
        return self.gathered(rows["weight"] * (of_ends - rows["exact"] * (1.0 + k * log_low)))

    def landmarks(self, rows: Rows) -> list[Array]:
        return [*self.base.landmarks(rows), -namespace(rows["y"]).log(rows["exposure"])]

    # -- where it starts ---------------------------------------------------------------------------
    def starting(self, y: np.ndarray, weights: Any = None, bound: str = "best", **rows: Any) -> Interval:
        return Interval(self.base.starting(y, weights), **rows)

    def _totals(self, y: np.ndarray, w: np.ndarray) -> tuple[float, float]:
        """Events and time, in units."""
        rows = self.prepare(np.where(w > 0.0, y, np.nan))
        w = w * rows["weight"]
        return float(w @ rows["event"]), float(w @ rows["y"])

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        events, time = self._totals(y, w)
        return float(np.log(max(events, 0.5) / max(time, 1e-300)))

    def in_units(self, y: np.ndarray, weights: Any = None) -> Likelihood:
        events, time = self._totals(*observed(y, weights))
        unit = time / max(events, 0.5) * self.base.unit
        return self._of_base(unit if unit > 0.0 else 1.0) if self.parameters else self

    def reported(self) -> tuple[Likelihood, float]:
        return self._of_base(1.0), float(self.base.reported()[1])

    def _of_base(self, unit: float) -> Interval:
        return self.changed(base=self.base.changed(unit=unit))

    # -- prediction: that of durations without an interval -----------------------------------------
    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return self.base.predictive_mean(h, rho)

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return self.base.predictive_variance(h, rho)

    def predictive_survival(self, t: ArrayLike, h: Array, rho: Array) -> Array:
        return self.base.predictive_survival(t, h, rho)

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        return self.base.predictive_quantile(q, h, rho)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return np.asarray(self.base.cdf_inside(x, eta))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self.base.draw(eta, rng))

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        place: tuple[np.ndarray, Any] = self.base.kink(x)
        return place

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Interval, np.ndarray]:
        shape = float(rng.gamma(4.0, 0.4) + 0.3)
        base: ProportionalHazards = Weibull(shape) if rng.random() < 0.5 else Exponential()
        t = (rng.exponential(size=n) * np.exp(rng.normal(size=n))) ** (1.0 / base.shape)
        kind = rng.integers(0, 4, n)
        lower = np.where(kind == 0, t, np.where(kind == 3, 0.0, t * rng.uniform(0.3, 0.9, n)))
        upper = np.where(kind == 0, t, np.where(kind == 1, np.inf, t * rng.uniform(1.1, 2.0, n)))
        return cls(base, upper), lower
