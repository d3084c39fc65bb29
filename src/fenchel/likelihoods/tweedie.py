"""Tweedie amounts, 0 or above: mean mu = E e^eta, variance phi mu^p, 1 < p < 2: a Poisson number of gamma jumps.

    psi = y mu^{1-p}/(phi (p-1)) + mu^{2-p}/(phi (2-p)) - log a(y),      a(0) = 1
    a(y) = 1/y sum_{j >= 1} W_j,   log W_j = j log z - log j! - log Gamma(j c),   c = (2-p)/(p-1)
    log z = c (log y - log(p-1)) - (1 + c) log phi - log(2-p)

psi is a sum of two exponentials of eta, so it is convex. E[e^{k eta}] = e^{k h + k^2 rho/2} gives its expectation in
closed form, with a strong-concavity certificate. The series is summed about its largest term. The number of jumps is
Poisson with mean mu^{2-p}/(phi (2-p)), and each jump is Gamma(c) times phi (p-1) mu^{p-1}.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma, gammainc, gammaln

from ..checks import first_value, number, numeric, positive, problem, vector
from ..linalg.arrays import Array, ArrayLike, namespace
from ..linalg.functions import stirling
from ..transforms import Between
from .base import Rows
from .bounds import Loss
from .links import LogLink
from .numerical import LARGEST, MOST
from .parameters import Parameter, mean, per_row
from .poisson import Poisson

_TERMS = 2_000_000  # of the series at a time
_MOST = 1e8  # jumps: beyond, Stirling's formula has the sum to 1e-9


def _start(own: Tweedie, y: np.ndarray, w: np.ndarray) -> float:
    """Half of the variance of y at power 1.5."""
    centre = max(mean(y, w), 1e-150)
    spread = float(np.average((y - centre) ** 2, weights=w))
    return float(np.clip(spread / centre**1.5 / 2, 1e-100, 1e100)) if spread > 0.0 else 1.0


class Tweedie(LogLink):
    """Amounts of at least 0 with mean ``exposure * exp(eta)`` and variance ``dispersion * mean**power``.

    Parameters
    ----------
    dispersion : float
        phi, above 0. Learnable.
    power : float
        p, strictly between 1 (Poisson) and 2 (gamma). Learnable.
    exposure : float or array (N,), optional
        A known factor of the mean, such as a duration or an area.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Tweedie
    >>> Tweedie(2.0, 1.5).predictive_variance(np.array([0.0]), np.array([0.0]))
    array([2.])
    """

    word, aliases, support, ratio, atom = "tweedie", ("tw",), "positive", "mean_ratio", True
    row_parameters = ("exposure",)
    parameters = (
        Parameter("dispersion", "dispersion", start=_start),
        Parameter("power", "power", Between(1.0, 2.0), bounds=(1.01, 1.99), weak=(0.0, 1.8)),  # nearly uniform
    )

    def __init__(self, dispersion: float = 1.0, power: float = 1.5, exposure: ArrayLike | None = None) -> None:
        phi, p = numeric(self.name, "dispersion", dispersion), numeric(self.name, "power", power)
        if phi.ndim or p.ndim:
            raise problem(self.name, f"dispersion has shape {phi.shape}, power {p.shape}", "one number for all rows")
        if not 1.0 < float(p) < 2.0:
            advice = "For a power of 1 use Poisson, for 2 Gamma."
            raise problem(self.name, f"power = {number(float(p))}", "a number between 1 and 2", advice)
        self.dispersion, self.power = float(positive(self.name, "dispersion", phi)), float(p)
        self.exposure = exposure

    def neighbour(self) -> Poisson:
        return Poisson(self.exposure, integer=False)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        bad = y < 0.0
        if bad.any():
            got = f"y{first_value(bad, y)} is negative"
            raise problem(
                self.name, got, "amounts of 0 or more, or NaN for unobserved", "For real numbers use Gaussian."
            )
        exposure = vector(self.name, "exposure", 1.0 if self.exposure is None else self.exposure, y.shape[0])
        small = ~(np.isfinite(exposure) & (exposure > 0.0)) & ~np.isnan(y)
        if small.any():
            got = f"exposure{first_value(small, exposure)} is not usable"
            raise problem(self.name, got, "finite numbers above 0")
        count, back = np.unique(np.where(np.isnan(y), 0.0, y), return_inverse=True)
        log_a, jumps, slope = (x[back] for x in _series(count, self.dispersion, self.power))
        seen = ~np.isnan(y)
        y = np.where(seen, y, 0.0)
        return {
            "y": y,
            "count": y,  # its neighbour's
            "floor": np.asarray(stirling(y)),
            "exposure": np.where(seen, exposure, 1.0),
            "log_a": log_a,
            "jumps": jumps,
            "slope": slope,
        }

    def constant(self, rows: Rows) -> Array:
        return -rows["log_a"]

    def _terms(self, rows: Rows) -> tuple[tuple[float, Array], tuple[float, Array]]:
        """(k, factor) of the two exponentials e^{k eta}."""
        xp, p, phi = namespace(rows["y"]), self.power, self.dispersion
        log_E = xp.log(rows["exposure"])
        first = rows["y"] * xp.exp((1.0 - p) * log_E) / (phi * (p - 1.0))
        return (1.0 - p, first), (2.0 - p, xp.exp((2.0 - p) * log_E) / (phi * (2.0 - p)))

    def _expected_terms(self, h: Array, rho: Array, rows: Rows) -> tuple[tuple[float, Array], tuple[float, Array]]:
        """(k, E[factor e^{k eta}]) of the two, under N(h, rho), each (N,)."""
        (k1, A), (k2, B) = self._terms(rows)
        xp = namespace(h)
        with np.errstate(over="ignore"):
            return (k1, A * xp.exp(k1 * h + k1**2 * rho / 2)), (k2, B * xp.exp(k2 * h + k2**2 * rho / 2))

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        (k1, A), (k2, B) = self._terms(rows)
        xp = namespace(eta)
        with np.errstate(over="ignore"):
            a, b = A[:, None] * xp.exp(k1 * eta), B[:, None] * xp.exp(k2 * eta)
        return a + b + self.constant(rows)[:, None], k1 * a + k2 * b, k1**2 * a + k2**2 * b

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        (k1, a), (k2, b) = self._expected_terms(h[:, 0], rho[:, 0], rows)
        lam = k1**2 * a + k2**2 * b
        value = a + b + self.constant(rows)
        return Loss(value, k1 * a + k2 * b, lam, lam, (k1**3 * a + k2**3 * b) / 2, (k1**4 * a + k2**4 * b) / 4)

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        h, rho, p = h[:, 0], rho[:, 0], self.power
        (k1, a), (k2, b) = self._expected_terms(h, rho, rows)
        log_mu = h + namespace(h).log(rows["exposure"])
        # E[eta e^{k eta}] = (h + k rho) E[e^{k eta}]
        of_a, of_b = 1.0 / (p - 1.0) + log_mu + k1 * rho, 1.0 / (2.0 - p) - log_mu - k2 * rho
        by_dispersion = rows["jumps"] / (p - 1.0) - a - b  # 1 + c = 1/(p-1)
        by_power = (b * of_b - a * of_a - rows["slope"]) * ((p - 1.0) * (2.0 - p))
        return self.gathered(rows["weight"] * by_dispersion, rows["weight"] * by_power)

    def landmarks(self, rows: Rows) -> list[Array]:
        xp = namespace(rows["y"])
        some = xp.where(rows["y"] > 0.0, rows["y"], 1.0)
        return [xp.log(some) - xp.log(rows["exposure"])]

    # -- prediction --------------------------------------------------------------------------------
    def mean_level(self, n: int) -> np.ndarray:
        return per_row(self.exposure, n)

    def variance_terms(self, n: int) -> list[tuple[Any, float]]:
        return [(self.dispersion, self.power)]

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        out = np.asarray(super().predictive_quantile(q, h, rho))
        return np.where(out < 1e-200, 0.0, out)

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        total = float(w @ y) / max(float(w @ per_row(self.exposure, y.shape[0])), 1e-300)
        return float(np.log(total)) if total > 0.0 else 0.0

    def _jumps(self, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Their mean number, their scale, and their shape c."""
        p, phi = self.power, self.dispersion
        log_mu = np.minimum(eta, LARGEST) + np.log(per_row(self.exposure, eta.shape[0]))[:, None]
        number = np.exp((2.0 - p) * log_mu) / (phi * (2.0 - p))
        return np.minimum(number, MOST), phi * (p - 1.0) * np.exp((p - 1.0) * log_mu), (2.0 - p) / (p - 1.0)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        rate, scale, c = self._jumps(eta)
        total = np.exp(-rate)
        rate = np.minimum(rate, _MOST)
        low, high = (float(f(rate, initial=start)) for f, start in ((np.min, _MOST), (np.max, 0.0)))
        for j in range(max(1, int(low - 9.0 * low**0.5 - 12.0)), int(high + 9.0 * high**0.5 + 14.0)):
            weight = np.exp(j * np.log(rate + 1e-300) - rate - gammaln(j + 1.0))
            seen = weight > 1e-17
            total[seen] += weight[seen] * gammainc(j * c, x[seen] / scale[seen])
        return np.minimum(total, 1.0)

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        rate, scale, c = self._jumps(eta)
        number = rng.poisson(rate)
        return np.where(number > 0, scale * rng.gamma(np.maximum(number, 1) * c), 0.0)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return np.log(np.maximum(x, 1e-300)) - np.log(per_row(self.exposure, x.shape[0])), 1.0

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Tweedie, np.ndarray]:
        own = cls(float(rng.gamma(3.0, 0.3) + 0.2), float(rng.uniform(1.2, 1.7)), rng.gamma(2.0, 1.0, n) + 0.3)
        return own, own.draw(0.5 * rng.normal(size=(n, 1)), rng)[:, 0]


def _series(y: np.ndarray, phi: float, p: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log a(y), the mean of j under W, and d log a/dp; all 0 for y = 0."""
    out, c = np.zeros((3, y.size)), (2.0 - p) / (p - 1.0)
    c_slope = -1.0 / (p - 1.0) ** 2
    positive_y = np.where(y > 0.0, y, 1.0)
    with np.errstate(over="ignore"):
        every = positive_y ** (2.0 - p) / (phi * (2.0 - p))  # where the terms are largest
    many = (y > 0.0) & ~(every < _MOST)
    if many.any():  # Stirling's formula for the whole sum
        log_y, K = np.log(y[many]), every[many] / (p - 1.0)
        out[0, many] = K - 0.5 * (np.log(2.0 * np.pi * phi) + p * log_y)
        out[1, many] = every[many] + (p - 1.0) / 2
        out[2, many] = K * (1.0 / (2.0 - p) - 1.0 / (p - 1.0) - log_y) - 0.5 * log_y
    for_y = np.flatnonzero((y > 0.0) & ~many)
    top = np.maximum(every[for_y], 1.0)
    half = np.ceil(10.0 * np.sqrt(top / (1.0 + c)) + 20.0)
    order = np.argsort(half)
    i = 0
    while i < order.size:
        stop = i + 1
        while stop < order.size and (stop + 1 - i) * (2 * half[order[stop]] + 1) <= _TERMS:
            stop += 1
        some = order[i:stop]
        at, width = for_y[some], int(half[some].max())
        j = np.maximum(np.round(top[some])[:, None] + np.arange(-width, width + 1), 0.0)
        log_y = np.log(y[at])[:, None]
        log_z = c * (log_y - np.log(p - 1.0)) - (1.0 + c) * np.log(phi) - np.log(2.0 - p)
        J = np.maximum(j, 1.0)
        log_W = np.where(j > 0.0, J * log_z - gammaln(J + 1.0) - gammaln(J * c), -np.inf)
        peak = log_W.max(axis=1, keepdims=True)
        W = np.exp(log_W - peak)
        total = W.sum(axis=1)
        z_slope = c_slope * (log_y - np.log(p - 1.0) - np.log(phi)) - c / (p - 1.0) + 1.0 / (2.0 - p)
        out[0, at] = peak[:, 0] + np.log(total) - log_y[:, 0]
        out[1, at] = (W * J).sum(axis=1) / total
        out[2, at] = (W * J * (z_slope - c_slope * digamma(J * c))).sum(axis=1) / total
        i = stop
    return out[0], out[1], out[2]
