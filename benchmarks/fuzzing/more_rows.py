"""Rows of truncated, hurdle, overdispersed and zero-inflated counts, interval durations and Tweedie amounts.

What grows like e^eta has its expectation in closed form; the rest, and densities continued by their tangents beyond
their inflections, are integrated on panels as in ``integrals.py``. With x = log mu, t = log(mu / size):

    truncated Poisson             psi = -y x + mu + log(1 - e^-mu) + log y!
    truncated negative binomial   psi = y softplus(-t) + w + log(1 - e^-w) - log C,      w = size softplus(t)
    negative binomial 1           psi = r log(1 + a) - R(r, y) - y log(a/(1+a)) + log y!,   r = mu / a
    beta-binomial                 psi = R(phi, n) - R(phi mu, y) - R(phi (1-mu), n - y) - log C(n, y)

with R(r, k) = log r (r + 1) ... (r + k - 1), summed term by term.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal as D
from functools import cache
from typing import Any

import mpmath
import numpy as np

from .decimals import ONE, ZERO
from .integrals import LD, Parts, expectation, logistic_parts
from .pieces import Row, exponential, lgamma, linear, logistic, times, total

Own = Callable[..., D]  # a parameter of the row by name
STEPS = np.arange(-4.0, 6.5, 0.5)  # ends of panels about a place where log(1 - e^-mu) bends
FLAT = -25.0  # log of a mean below which two terms of a series have all digits


# -- log(1 - e^-mu) --------------------------------------------------------------------------------
def above_zero_parts(x: Any) -> tuple[Any, Any, Any]:
    """log(1 - e^-mu), mu = e^x, and its derivatives: k = mu/(e^mu - 1), and k (1 - mu - k)."""
    mu = np.exp(np.clip(x, LD(-60), LD(9)))
    k = mu / np.expm1(mu)
    term, lean = mu * mu / 2, np.zeros_like(mu)  # mu expm1(mu) - (expm1(mu) - mu) = sum (n-1) mu^n/n!
    for n in range(2, 28):
        lean = lean + (n - 1) * term
        term = term * mu / (n + 1)
    second = np.where(mu < 1, -k * lean / np.expm1(mu), k * (1 - mu - k))
    tiny = x < -50
    return np.where(tiny, x - mu / 2, np.log(-np.expm1(-mu))), np.where(tiny, 1 - mu / 2, k), second


def above_zero(h: D, rho: D) -> Row:
    """E[log(1 - e^-mu)], log mu ~ N(h, rho)."""
    return expectation(above_zero_parts, h, rho, [0.0], STEPS)


def truncated_poisson(own: Own, y: D, h: D, rho: D) -> Row:
    c = own("exposure")
    rate = exponential(-y, 1, c, lgamma(y + 1) - y * c.ln(), h, rho)
    return total(rate, above_zero(h + c.ln(), rho))


def hurdle(truncated: Any) -> Any:
    def row(own: Own, y: D, h: D, rho: D) -> Row:
        pi = own("probability")
        if y == 0:
            return linear(ZERO, h, -pi.ln())
        return total(truncated(own, y, h, rho), linear(ZERO, h, -(1 - pi).ln()))

    return row


# -- densities continued by their tangents ---------------------------------------------------------
def continued(parts: Parts, left: float, right: float) -> Parts:
    """psi between its inflections, and its tangents beyond."""

    def tangent(x: Any) -> tuple[Any, Any, Any]:
        inside = np.clip(x, LD(left), LD(right))
        psi, first, second = parts(inside)
        return psi + first * (x - inside), first, np.where(x == inside, second, 0)

    return tangent


def crossing(up: Callable[[Any], bool], low: float, high: float) -> float:
    """Where a condition that is false at ``low`` and true at ``high`` begins to hold."""
    a, b = LD(low), LD(high)
    for _ in range(90):
        middle = (a + b) / 2
        a, b = (a, middle) if up(middle) else (middle, b)
    return float((a + b) / 2)


def truncated_parts(y: int, size: float) -> Parts:
    """In t = log(mu / size), without the constant."""
    r = LD(size)

    def parts(t: Any) -> tuple[Any, Any, Any]:
        plus, s, bend = logistic_parts(t)
        minus, rest, _ = logistic_parts(-t)
        w = np.maximum(r * plus, LD(1e-300))
        seen = -np.expm1(-w)
        small = t < FLAT - max(np.log(size), 0.0)
        e = np.exp(np.minimum(t, 0))
        value = y * minus + np.where(small, np.log(r) + t - e / 2 + w / 2, w + np.log(seen))
        pull = np.where(small, 1 + (r - 1) / 2 * e, r * s / seen)
        turn = np.where(small, (r - 1) / 2 * e, pull * (rest - r * s * np.exp(-w) / seen))
        return value, pull - y * rest, y * bend + turn

    return parts


@cache
def truncated_inflection(y: int, size: float) -> float:
    """t where psi'' = 0: for sizes below 1, on the right."""
    if size >= 1.0:
        return np.inf
    r = LD(size)

    def falls(u: Any) -> bool:  # the sign of psi'' in u = log(1 + mu/size)
        w, seen = np.exp(-r * u), -np.expm1(-r * u)
        return bool(y + r / seen < r * r * w * np.expm1(u) / seen**2)

    if not falls(LD(1e4)):
        return np.inf
    u = LD(crossing(falls, 1e-3, 1e4))
    return float(u + np.log(-np.expm1(-u)))


def truncated_negative_binomial(own: Own, y: D, h: D, rho: D) -> Row:
    r, size, k = own("size"), float(own("size")), int(y)
    right = truncated_inflection(k, size)
    parts = continued(truncated_parts(k, size), -np.inf, right)
    cuts = np.r_[STEPS, STEPS - max(np.log(size), 0.0), right]
    const = lgamma(r) + lgamma(y + 1) - lgamma(y + r)
    at = h - (r / own("exposure")).ln()
    return total(linear(ZERO, h, const), expectation(parts, at, rho, [0.0], cuts[np.isfinite(cuts)]))


def rising(x: Any, k: int) -> tuple[Any, Any, Any]:
    """R(e^x, k) and its first two derivatives in x."""
    x = np.asarray(x, dtype=LD)
    r, inverse = np.exp(np.minimum(x, 0)), np.exp(-np.maximum(x, 0))
    value, first, second = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for j in range(k):
        share = r / (r + j * inverse) if j else np.ones_like(r)  # e^x / (e^x + j)
        value = value + (x if j == 0 else np.where(x > 0, x + np.log1p(j * inverse), np.log(r + j)))
        first, second = first + share, second + share * (1 - share)
    return value, first, second


@cache
def proportional_inflection(y: int, a: float) -> float:
    """log r where log(1 + a) = sum_{0 < j < y} j/(r + j)^2."""
    j, most = np.arange(1, y).astype(LD), np.log1p(LD(a))

    def rises(x: Any) -> bool:
        return bool(most > (j / (np.exp(x) + j) ** 2).sum())

    return -np.inf if rises(LD(-60)) else crossing(rises, -60.0, 60.0)


def negative_binomial_1(own: Own, y: D, h: D, rho: D) -> Row:
    """In x = log r. Beyond the inflection the tangent, less the e^x whose expectation is in closed form."""
    a, k = own("dispersion"), int(y)
    rate = (1 + a).ln()
    left, slope = proportional_inflection(k, float(a)), np.log1p(LD(float(a)))

    def parts(x: Any) -> tuple[Any, Any, Any]:
        at = np.maximum(x, LD(left))
        value, first, second = rising(at, k)
        beyond = x < at
        corner, less = slope * np.exp(np.where(beyond, at, 0)), slope * np.exp(np.where(beyond, x, 0))
        step = np.where(beyond, x - at, 0)
        return (
            np.where(beyond, corner * (1 + step) - less, 0) - value - first * step,
            np.where(beyond, corner - less, 0) - first,
            np.where(beyond, -less, -second),
        )

    at = h + (own("exposure") / a).ln()
    const = lgamma(y + 1) - y * (a / (1 + a)).ln()
    grown = exponential(ZERO, 1, rate * own("exposure") / a, const, h, rho)
    cuts = np.r_[np.arange(-8.0, 9.0), left]
    return total(grown, expectation(parts, at, rho, [0.0], cuts[np.isfinite(cuts)]))


def beta_binomial_parts(y: int, n: int, phi: float) -> Parts:
    """-R(phi mu, y) - R(phi (1 - mu), n - y)."""
    log_phi = np.log(LD(phi))

    def parts(x: Any) -> tuple[Any, Any, Any]:
        plus, mu, bend = logistic_parts(x)
        minus, rest, _ = logistic_parts(-x)
        x0, x1, x2 = rising(log_phi - minus, y)
        z0, z1, z2 = rising(log_phi - plus, n - y)
        return -x0 - z0, z1 * mu - x1 * rest, (x1 + z1) * bend - x2 * rest**2 - z2 * mu**2

    return parts


@cache
def beta_binomial_inflections(y: int, n: int, phi: float) -> tuple[float, float]:
    """Ends of the interval in which psi''/(mu (1 - mu)), concave in mu, is positive."""
    up, down = (np.arange(1, m).astype(LD) for m in (y, n - y))

    def convex(x: Any) -> Any:
        mu, rest = (logistic_parts(LD(1) * v)[1][..., None] for v in (x, -x))
        lost = ((1 + phi / up) / (1 + mu * phi / up) ** 2).sum(axis=-1)
        return n - lost - ((1 + phi / down) / (1 + rest * phi / down) ** 2).sum(axis=-1) > 0

    far = 39.0 + abs(np.log(phi))
    grid = np.linspace(-far, far, 4001)
    inside = np.flatnonzero(convex(grid))
    if not inside.size:
        raise ArithmeticError("no place where a beta-binomial is log-concave")
    first, last = inside[0], inside[-1]
    left = -np.inf if first == 0 else crossing(convex, grid[first - 1], grid[first])
    right = np.inf if last == 4000 else crossing(lambda x: not convex(x), grid[last], grid[last + 1])
    return left, right


def beta_binomial(own: Own, y: D, h: D, rho: D) -> Row:
    n, phi = own("trials"), own("precision")
    k, m, p = int(y), int(n), float(phi)
    left, right = beta_binomial_inflections(k, m, p)
    parts = continued(beta_binomial_parts(k, m, p), left, right)
    choose = lgamma(n + 1) - lgamma(y + 1) - lgamma(n - y + 1)
    const = lgamma(phi + n) - lgamma(phi) - choose
    cuts = np.r_[np.arange(-33.0, 34.0), left, right]
    return total(linear(ZERO, h, const), expectation(parts, h, rho, [0.0], cuts[np.isfinite(cuts)]))


# -- the others ------------------------------------------------------------------------------------
def zero_inflated_negative_binomial(own: Own, y: D, h: D, rho: D) -> Row:
    """Exact for y > 0; for y = 0 the concave G(m) = -log(pi + (1 - pi) e^-m) at the mean m of size softplus(t)."""
    r, pi, c = own("size"), own("probability"), (own("size") / own("exposure")).ln()
    unit = logistic("exact", h - c, rho)
    if y > 0:
        const = y * c + lgamma(r) + lgamma(y + 1) - lgamma(y + r) - (1 - pi).ln()
        return total(linear(-y, h, const), times(y + r, unit))
    m, m_h, m_r, m_hh, m_hr, m_rr = times(r, unit)
    e = (1 - pi) * (-m).exp()
    w = e / (pi + e)
    bend = -w * (1 - w)
    return (
        -(pi + e).ln(),
        w * m_h,
        w * m_r,
        w * m_hh + bend * m_h * m_h,
        w * m_hr + bend * m_h * m_r,
        w * m_rr + bend * m_r * m_r,
    )


def interval_weibull(own: Own, y: D, h: D, rho: D) -> Row:
    """An event at y = upper, none before y (upper = inf), or one between the two."""
    k, upper = own("shape"), own("upper", float(y))
    A = (k * y.ln()).exp() if y > 0 else ZERO
    if upper == y:
        return exponential(-ONE, 1, A, -(k.ln() + (k - 1) * y.ln()), h, rho)
    waited = exponential(ZERO, 1, A, ZERO, h, rho)
    if not upper.is_finite():
        return waited
    between = (k * upper.ln()).exp() - A
    return total(waited, times(-ONE, above_zero(h + between.ln(), rho)))


def tweedie(own: Own, y: D, h: D, rho: D) -> Row:
    p, phi, c = own("power"), own("dispersion"), own("exposure")
    out = linear(ZERO, h, -log_series(float(y), float(phi), float(p)) if y > 0 else ZERO)
    for k, factor in ((1 - p, y / (phi * (p - 1))), (2 - p, 1 / (phi * (2 - p)))):
        e = factor * (k * (c.ln() + h) + k * k * rho / 2).exp()  # E[factor mu^k]
        out = total(out, (e, k * e, k * k * e / 2, k * k * e, k**3 * e / 2, k**4 * e / 4))
    return out


@cache
def log_series(y: float, phi: float, p: float) -> D:
    """log of 1/y sum_j z^j / (j! Gamma(j c)), c = (2 - p)/(p - 1), summed from its largest term."""
    with mpmath.workdps(60):
        y_, phi_, p_ = mpmath.mpf(y), mpmath.mpf(phi), mpmath.mpf(p)
        c = (2 - p_) / (p_ - 1)
        log_z = c * mpmath.log(y_ / (p_ - 1)) - (1 + c) * mpmath.log(phi_) - mpmath.log(2 - p_)

        def term(j: int) -> Any:
            return j * log_z - mpmath.loggamma(j + 1) - mpmath.loggamma(j * c)

        middle = max(1, int(y_ ** (2 - p_) / (phi_ * (2 - p_))))
        top, sums = term(middle), mpmath.mpf(1)
        for step in (1, -1):
            j = middle + step
            while j > 0:
                part = mpmath.exp(term(j) - top)
                sums += part
                if part < sums * mpmath.mpf(10) ** -55 and part < 1:
                    break
                j += step
        return D(mpmath.nstr(top + mpmath.log(sums) - mpmath.log(y_), 60))


MORE_ROWS: dict[str, Callable[[Own, D, D, D], Row]] = {
    "TruncatedPoisson": truncated_poisson,
    "HurdlePoisson": hurdle(truncated_poisson),
    "TruncatedNegativeBinomial": truncated_negative_binomial,
    "HurdleNegativeBinomial": hurdle(truncated_negative_binomial),
    "NegativeBinomial1": negative_binomial_1,
    "BetaBinomial": beta_binomial,
    "ZeroInflatedNegativeBinomial": zero_inflated_negative_binomial,
    "IntervalExponential": interval_weibull,
    "IntervalWeibull": interval_weibull,
    "Tweedie": tweedie,
}
