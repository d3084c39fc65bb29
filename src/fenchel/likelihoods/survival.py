"""Durations, right-censored, under proportional hazards: hazard k t^{k-1} e^eta, survival S(t|eta) = exp(-t^k e^eta).

    -log p = -event (eta + log k + (k-1) log t) + t^k e^eta        event: 1 if it happened at t, 0 if censored at t
    f(h, rho) = -event h + t^k exp(h + rho/2) - event (log k + (k-1) log t)      exact: no bound is needed
    c_h = -event,  a_h = 1,  lam = tau,  phi(s) = t^k e^s,  k*(tau) = tau log(tau/t^k) - tau

k is the shape. The hazard is constant for k = 1 (Exponential), rises for k > 1, falls for k < 1. Under q the survival
depends only on x = eta + k log t, x ~ N(m, rho), m = h + k log t: S(t) = E[exp(-e^x)].

The level of eta is about -k log t. It depends on the shape and on the unit of time, so a prior mean right for one shape
is wrong for another. If the unit of time is u = (total time) / (number of events), the level is near 0. A Weibull fit
therefore uses t/u in place of t, with log p(t) = log p(t/u) - event log u. Results are reported for u = 1, where eta is
lower by k log u.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..checks import first, first_value, number, numeric, positive, problem, vector
from ..linalg.arrays import Array, ArrayLike, asarray, namespace
from ..linalg.quadrature import log_expect
from .base import Likelihood, Rows, flat
from .exponential_family import ExponentialLikelihood
from .links import LogLink
from .numerical import LARGEST
from .parameters import Parameter, log_noise_variance, observed, per_row

RANGE = 650.0  # |k log t| up to which t^k leaves room for e^s in double precision
_POINT = 1e-20  # a variance, relative to m^2, below which a normal is a point


def check_durations(name: str, y: np.ndarray, at_once: np.ndarray, also: str) -> None:
    """Refuse negative durations, and events ``at_once``, at time 0; ``also`` is the argument that says they are."""
    negative = y < 0.0
    if negative.any():
        got = f"y{first_value(negative, y)} is a negative duration"
        raise problem(name, got, "times of 0 or more, or NaN for unobserved", "Count time from the row's own start.")
    if at_once.any():
        place = first(at_once)
        raise problem(
            name,
            f"y{place} = 0 while {also.format(place)}: an event at time 0",
            "an event after a time above 0",
            "Give the time in finer units, or half of the smallest one.",
        )


def check_powers(name: str, y: np.ndarray, log_t: np.ndarray, shape: float) -> None:
    """Refuse durations of which t^shape leaves double precision; log_t (N,) is the log of the longest time of a row."""
    far = np.abs(shape * log_t) > RANGE
    if far.any():
        raise problem(
            name,
            f"y{first_value(far, y)} to the power {number(shape)} leaves double precision",
            f"|shape log y| at most {number(RANGE)}",
            "Divide the durations by a typical one.",
        )


class ProportionalHazards(LogLink, ExponentialLikelihood):
    """Common base of Exponential and Weibull: the target is a duration, and ``event`` says whether it ended."""

    row_parameters = ("event",)
    support, ratio, durations = "positive", "hazard_ratio", True
    shape: float = 1.0
    unit: float = 1.0  # of time, in the units of y
    event: Any = None

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        event = vector(self.name, "event", 1.0 if self.event is None else self.event, y.shape[0])
        bad = ~np.isin(event, (0.0, 1.0)) & ~np.isnan(y)
        if bad.any():
            got = f"event{first_value(bad, event)} is neither 0 nor 1"
            coded = set(np.unique(event[~np.isnan(y)])) <= {1.0, 2.0}
            advice = "Where 1 is censored and 2 an event, as R may code it, give a column with 1 less." if coded else ""
            raise problem(self.name, got, "1 where the event happened and 0 where the row is censored", advice)
        check_durations(self.name, y, (y == 0.0) & (event == 1.0), "event{} = 1")
        observed = y > 0.0  # a duration of 0, censored, says nothing; NaN is unobserved
        t = np.where(observed, y / self.unit, 1.0)
        check_powers(self.name, y, np.log(t), self.shape)
        return {"y": t, "event": np.where(observed, event, 0.0), "weight": observed.astype(np.float64)}

    def linear(self, rows: Rows) -> Array:
        return -rows["event"]

    def rate(self, rows: Rows) -> Array:
        return rows["y"] ** self.shape

    def constant(self, rows: Rows) -> Array:
        log_t = namespace(rows["y"]).log(rows["y"])
        return -rows["event"] * (math.log(self.shape) + (self.shape - 1.0) * log_t - math.log(self.unit))

    def landmarks(self, rows: Rows) -> list[Array]:
        # as for a Poisson count of events: from above Newton contracts
        xp = namespace(rows["y"])
        return [xp.log(rows["event"] + 0.5) - self.shape * xp.log(rows["y"])]

    # -- prediction --------------------------------------------------------------------------------
    @property
    def mean_rate(self) -> float:  # type: ignore[override]
        """The mean of the uncensored duration T is Gamma(1 + 1/k) e^{-eta/k}."""
        return -1.0 / self.shape

    def mean_level(self, n: int) -> np.ndarray:
        return np.full(n, self.unit * math.exp(math.lgamma(1.0 + 1.0 / self.shape)))

    def variance_terms(self, n: int) -> list[tuple[Any, float]]:
        excess = math.lgamma(1.0 + 2.0 / self.shape) - 2.0 * math.lgamma(1.0 + 1.0 / self.shape)
        return [(float(np.expm1(excess)), 2.0)]

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """Events by the time at risk; half an event where there are none."""
        events = float(w @ per_row(self.event, y.shape[0]))
        return float(np.log(max(events, 0.5) / max(float(w @ y) / self.unit, 1e-300)))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return -np.expm1(-((np.asarray(x) / self.unit) ** self.shape) * np.exp(np.minimum(eta, LARGEST)))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self.unit * (rng.exponential(size=eta.shape) * np.exp(-eta)) ** (1.0 / self.shape))

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return -self.shape * np.log(x / self.unit), 1.0

    def predictive_survival(self, t: ArrayLike, h: Array, rho: Array) -> Array:
        """P(T > t), averaged over eta ~ N(h, rho).

        Parameters
        ----------
        t : float or array (T,)
            Times >= 0.
        h, rho : array (N,)

        Returns
        -------
        array (N,) for one time, (N, T) for several.
        """
        times = numeric(self.name, "t", t)
        bad = ~((times >= 0.0) & np.isfinite(times))
        if times.ndim > 1 or bad.any():
            got = f"t has shape {times.shape}" if times.ndim > 1 else f"t{first_value(bad, times)} is not a time"
            raise problem(self.name, got, "one time or a vector of times, each finite and >= 0")
        h, rho = flat(h), flat(rho)
        with np.errstate(divide="ignore"):
            log_t = np.maximum(np.log(np.atleast_1d(times) / self.unit), -1e9)  # S(0) = 1
        m = h[:, None] + self.shape * asarray(log_t, h)[None, :]
        out = _survival(m, rho[:, None] + 0.0 * m)
        return out[:, 0] if times.ndim == 0 else out

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        """The time by which the event happens with probability q, averaged over eta ~ N(h, rho); 1/2 is the median.

        Parameters
        ----------
        q : float or array (Q,)
            Probabilities between 0 and 1.
        h, rho : array (N,)

        Returns
        -------
        array (N,) for one probability, (N, Q) for several.
        """
        levels = numeric(self.name, "q", q)
        bad = ~((levels > 0.0) & (levels < 1.0))
        if levels.ndim > 1 or bad.any():
            got = f"q has shape {levels.shape}" if levels.ndim > 1 else f"q{first_value(bad, levels)} is no probability"
            raise problem(self.name, got, "one number or a vector of them, each between 0 and 1")
        t = super().predictive_quantile(levels, h, rho)
        return t[:, 0] if levels.ndim == 0 else t


def _survival(m: Array, rho: Array) -> Array:
    """E[exp(-e^x)], x ~ N(m, rho), both (N, T): accurate where next to nothing is left."""
    xp, shape = namespace(m), m.shape
    m, rho = xp.reshape(m, (-1,)), xp.reshape(rho, (-1,))
    least = _POINT * (1.0 + m * m)
    out = log_expect(lambda x, chunk: -xp.exp(x), m, xp.maximum(rho, least), [0.0 * m])
    with np.errstate(over="ignore"):
        log_S = xp.where(rho < least, -xp.exp(m), xp.clip(out, None, 0.0))
    return xp.reshape(xp.exp(log_S), shape)


class Exponential(ProportionalHazards):
    """Durations with a constant hazard ``exp(eta)``, right-censored where ``event`` is 0.

    Parameters
    ----------
    event : array (N,) of 0/1 or bool, optional
        1 if the event happened at y, 0 if y is the time of the last observation. Default: all happened.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Exponential
    >>> Exponential(event=[1, 0]).predictive_survival(1.0, np.array([0.0]), np.array([0.0])).round(4)
    array([0.3679])
    """

    word, aliases = "exponential", ("exponentialsurv",)

    def __init__(self, event: ArrayLike | None = None) -> None:
        self.event = event

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Exponential, np.ndarray]:
        return cls((rng.random(n) < 0.7).astype(float)), rng.exponential(np.exp(rng.normal(size=n)))


def _shape_bounds(own: Weibull, y: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """1/k^2 is near the noise variance of log t."""
    with np.errstate(divide="ignore"):
        lower, _ = log_noise_variance(np.log(y), w, own.shape**-2.0)
    return math.log(1e-4), -lower / 2


class Weibull(ProportionalHazards):
    """Durations with hazard ``shape * t**(shape - 1) * exp(eta)``, right-censored where ``event`` is 0.

    Parameters
    ----------
    shape : float
        k, above 0: the hazard rises with time if k > 1 and falls if k < 1. Learnable, as theta = [log k].
    event : array (N,) of 0/1 or bool, optional
        1 if the event happened at y, 0 if y is the time of the last observation. Default: all happened.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Weibull
    >>> Weibull(shape=2.0).predictive_quantile(0.5, np.array([0.0]), np.array([0.0])).round(4)
    array([0.8326])
    """

    word: str | None = "weibull"
    aliases = ("weibullsurv",)
    moves_eta = True
    parameters: tuple[Parameter, ...] = (Parameter("shape", "shape", bounds=_shape_bounds, weak=(0.0, 3.0)),)

    def __init__(self, shape: float = 1.0, event: ArrayLike | None = None) -> None:
        self.shape = float(positive(self.name, "shape", vector(self.name, "shape", shape, 1)[0]))
        self.event = event

    def in_units(self, y: np.ndarray, weights: Any = None) -> Likelihood:
        """The same durations in units of total time an event."""
        t, w = observed(y, weights)
        unit = float(w @ t) / max(float(w @ np.nan_to_num(per_row(self.event, t.shape[0]))), 0.5)
        return self.changed(unit=unit) if self.unit == 1.0 and unit > 0.0 else self

    def reported(self) -> tuple[Likelihood, float]:
        return self.changed(unit=1.0), -self.shape * math.log(self.unit)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        xp = namespace(h)
        power = self.shape * xp.log(rows["y"])  # k log t
        slope = power * xp.exp(power + h[:, 0] + rho[:, 0] / 2) - rows["event"] * (1.0 + power)
        return self.gathered(rows["weight"] * slope)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Weibull, np.ndarray]:
        shape, event = float(rng.gamma(4.0, 0.4) + 0.3), (rng.random(n) < 0.7).astype(float)
        return cls(shape, event), (rng.exponential(size=n) * np.exp(rng.normal(size=n))) ** (1.0 / shape)
