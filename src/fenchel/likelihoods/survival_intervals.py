"""Durations known up to an interval, under proportional hazards: S(t|eta) = exp(-(t/u)^k e^eta).

    a = b          it ended at a:              psi = A e^eta - eta - log k - (k-1) log(a/u) + log u,     A = (a/u)^k
    a < b = inf    still waiting at a:         psi = A e^eta
    a < b          it ended between a and b:   psi = A e^eta - log(1 - e^{-D e^eta}),                    D = (b/u)^k - A

a = 0 is an event before b. log(1 - e^-mu) is concave in log mu, so every row is log-concave: the expectation is exact,
A e^eta in closed form and the rest by quadrature, with a strong-concavity certificate. u is a unit of time, as in
``weibull_units.py``. dD/dlog k = k ((b/u)^k log(b/u) - A log(a/u)), and dpsi/dlog k follows.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..checks import first, first_value, number, problem, vector
from ..linalg.arrays import Array, ArrayLike, namespace
from ..linalg.grouped import expect_near
from .base import Likelihood, Rows
from .bounds import Bounds, ExactExpectation
from .growth import grown_loss
from .sites import Loss
from .summaries import observed
from .survival import Exponential, Weibull
from .truncated import STRIP, log_above_zero
from .weibull_units import WeibullInUnits

_RANGE = 650.0  # |k log t| up to which t^k leaves room for e^eta in double precision


class IntervalWeibull(WeibullInUnits):
    """Durations with hazard ``shape * t**(shape - 1) * exp(eta)`` that ended between y and ``upper``.

    Parameters
    ----------
    shape : float
        k, above 0. Learned as theta = [log k].
    upper : float or array (N,), optional
        Where it had ended: y itself for an event at y, inf where it had not ended yet. y = 0 is an event before
        ``upper``. Default: y, every event was seen.
    unit : float
        Of time; see ``WeibullInUnits``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import IntervalWeibull
    >>> likelihood = IntervalWeibull(1.0, upper=[2.0, np.inf, 1.0])
    >>> likelihood.log_density(np.zeros((3, 1)), likelihood.prepare([1.0, 1.0, 1.0]))[:, 0].round(4)
    array([-1.4587, -1.    , -1.    ])
    """

    word: str | None = None
    row_parameters = ("upper",)
    bound = "exact"
    bounds: ClassVar[Bounds] = {"exact": ExactExpectation}

    def __init__(self, shape: float = 1.0, upper: ArrayLike | None = None, unit: float = 1.0) -> None:
        super().__init__(shape, None, unit)
        self.upper = upper

    def neighbour(self) -> Weibull:
        """Every interval's event at its middle: it reads ``y`` and ``event``."""
        return Weibull(self.shape)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        b = y if self.upper is None else vector(self.name, "upper", self.upper, y.shape[0])
        seen = ~np.isnan(y)
        with np.errstate(invalid="ignore"):
            negative, turned = seen & (y < 0.0), seen & ~(b >= y)
            never = seen & (y == 0.0) & (b == 0.0)
        if negative.any():
            got = f"y{first_value(negative, y)} is a negative duration"
            raise problem(self.name, got, "times of 0 or more, or NaN", "Count time from the row's own start.")
        if turned.any():
            got = f"upper{first_value(turned, b)} is below y{first_value(turned, y)}"
            raise problem(self.name, got, "y <= upper, inf where it had not ended", "Check the order of the columns.")
        if never.any():
            got = f"y{first(never)} = upper{first(never)} = 0: it ended as it began"
            raise problem(self.name, got, "an event after a time above 0", "Give the time in finer units.")
        said = seen & ~((y == 0.0) & np.isinf(b))  # between 0 and forever says nothing
        low, high = np.where(said, y, 1.0) / self.unit, np.where(said, b, np.inf) / self.unit
        event, within = said & (low == high), said & (low < high) & np.isfinite(high)
        log_low = np.log(np.where(low > 0.0, low, 1.0))
        log_high = np.log(np.where(within, high, 1.0))
        far = np.maximum(np.abs(log_low), np.abs(log_high)) * self.shape > _RANGE
        if far.any():
            got = f"y{first_value(far, y)} to the power {number(self.shape)} leaves double precision"
            raise problem(self.name, got, f"|shape log y| at most {number(_RANGE)}", "Divide by a typical duration.")
        A = np.where(low > 0.0, np.exp(self.shape * log_low), 0.0)
        ratio = np.where(low > 0.0, np.expm1(self.shape * (log_high - log_low)), 0.0)
        D = np.where(within, np.where(low > 0.0, A * ratio, np.exp(self.shape * log_high)), 1.0)
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
        k = self.shape
        return -rows["exact"] * (float(np.log(k)) + (k - 1.0) * rows["log_low"] - float(np.log(self.unit)))

    def _rest(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """What psi has beyond A e^eta."""
        exact, within = rows["exact"][:, None], rows["within"][:, None]
        value, slope, bend = log_above_zero(eta, rows["exposure"])
        return self.constant(rows)[:, None] - exact * eta - within * value, -exact - within * slope, -within * bend

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        with np.errstate(over="ignore"):
            rate = rows["base"][:, None] * namespace(eta).exp(eta)
        value, slope, bend = self._rest(eta, rows)
        return rate + value, rate + slope, rate + bend

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -self.derivatives(eta, rows)[0]

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        marks = [-namespace(h).log(rows["exposure"])]
        return grown_loss(
            rows["base"], self._rest, lambda g: expect_near(g, h[:, 0], rho[:, 0], marks, STRIP), h, rho, rows
        )

    def theta_slopes(self, eta: Array, rows: Rows) -> Array:
        xp = namespace(eta)
        slope = rows["within"][:, None] * log_above_zero(eta, rows["exposure"])[1]
        return self._shape_slope(xp.exp(eta), slope, rows, 1)[None, ...]

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        if not self.learned:
            return np.zeros(0)
        xp, loss = namespace(h), self.exact_loss(h, rho, rows)
        grown = xp.exp(h[:, 0] + rho[:, 0] / 2)
        slope = rows["base"] * grown - rows["exact"] - loss.alpha  # E of the slope of log(1 - e^-mu)
        return self.gathered(rows["weight"] * self._shape_slope(grown, slope, rows, 0))

    def _shape_slope(self, grown: Array, slope: Array, rows: Rows, axes: int) -> Array:
        """dpsi/dlog k from e^eta and the slope of log(1 - e^-mu)."""
        k = self.shape
        parts = (
            k * rows["base"] * rows["log_low"],
            rows["exact"] * (1.0 + k * rows["log_low"]),
            k * rows["pull"] / rows["exposure"],
        )
        rise, seen, moved = (x[:, None] if axes else x for x in parts)
        return rise * grown - seen - moved * slope

    def landmarks(self, rows: Rows) -> list[Array]:
        xp = namespace(rows["y"])
        return [xp.log(rows["event"] + 0.5) - self.shape * xp.log(rows["y"]), -xp.log(rows["exposure"])]

    # -- where it starts ---------------------------------------------------------------------------
    def _totals(self, y: np.ndarray, w: np.ndarray) -> tuple[float, float]:
        rows = self.prepare(np.where(w > 0.0, y, np.nan))
        w = w * rows["weight"]
        return float(w @ rows["event"]), float(w @ rows["y"])

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        events, time = self._totals(y, w)
        return float(np.log(max(events, 0.5) / max(time, 1e-300)))

    def in_units(self, y: np.ndarray, weights: Any = None) -> Likelihood:
        events, time = self._totals(*observed(y, weights))
        unit = time / max(events, 0.5) * self.unit
        return self.changed(unit=unit if unit > 0.0 else 1.0)

    def reported(self) -> tuple[Likelihood, float]:
        return self.changed(unit=1.0), -self.shape * float(np.log(self.unit))

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[IntervalWeibull, np.ndarray]:
        shape = float(rng.gamma(4.0, 0.4) + 0.3) if cls.parameters else 1.0
        t = (rng.exponential(size=n) * np.exp(rng.normal(size=n))) ** (1.0 / shape)
        kind = rng.integers(0, 4, n)
        lower = np.where(kind == 0, t, np.where(kind == 3, 0.0, t * rng.uniform(0.3, 0.9, n)))
        upper = np.where(kind == 0, t, np.where(kind == 1, np.inf, t * rng.uniform(1.1, 2.0, n)))
        return (cls(shape, upper) if cls.parameters else cls(upper=upper)), lower

    def __repr__(self) -> str:
        return f"{self.name}({number(self.shape)}{'' if self.upper is None else ', upper=...'})"


class IntervalExponential(IntervalWeibull):
    """Durations with a constant hazard ``exp(eta)`` that ended between y and ``upper``.

    Parameters
    ----------
    upper : float or array (N,), optional
        As in ``IntervalWeibull``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import IntervalExponential
    >>> IntervalExponential(upper=[np.inf]).predictive_survival(1.0, np.array([0.0]), np.array([0.0])).round(4)
    array([0.3679])
    """

    parameters = ()

    def __init__(self, upper: ArrayLike | None = None) -> None:
        super().__init__(1.0, upper)

    def in_units(self, y: np.ndarray, weights: Any = None) -> Likelihood:
        return self


Weibull.intervals, Exponential.intervals = IntervalWeibull, IntervalExponential
