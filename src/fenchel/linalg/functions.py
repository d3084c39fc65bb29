"""Elementwise functions without overflow, cancellation or division by zero, in any array library.

Limits are applied by ``clip``, because ``maximum`` and ``minimum`` of torch refuse Python numbers, and array-api-compat
before version 1.16 passes them on.

    rising(log r, y)    L = log Gamma(r + y) - log Gamma(r),   dL/dlog r,   d2L/d(log r)^2
    log_rising(r, y)    log Gamma(r + y) - log Gamma(r) - y log r
    log_choose(r, y)    log Gamma(r + y) / (Gamma(r) y!)
    choices(n, y)       log of the binomial coefficient

For the last four, r below 20 is raised by eight steps of the recurrences of the Gamma functions. Above 20 Stirling's
series is used with its leading terms combined.
"""

from __future__ import annotations

import math
from typing import Any

from .arrays import Array, namespace, special

ABOVE_ZERO_STRIP = 1.4  # log(1 - e^-mu) is analytic in this strip around the real line of log mu (below pi/2)
_STIRLING = 20.0  # argument from which Stirling's series is exact to rounding
_LARGEST = 700.0  # largest number whose exponential is finite
_SURE = 700.0  # mean from which the probability of a count of zero is 0 in doubles


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), exact to rounding in both tails."""
    xp = namespace(x)
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    xp = namespace(x)
    return xp.where(x > 0, x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))


def logistic_parts(x: Array) -> tuple[Array, Array, Array, Array]:
    """softplus(x), softplus(-x), sigmoid(x) and sigmoid(-x) from one exponential, exact in both tails."""
    xp = namespace(x)
    e = xp.exp(-xp.abs(x))
    bend, large = xp.log1p(e), 1.0 / (1.0 + e)
    small, up = e * large, x > 0.0
    return (
        xp.where(up, x, 0.0) + bend,
        xp.where(up, 0.0, -x) + bend,
        xp.where(up, large, small),
        xp.where(up, small, large),
    )


def expm1_minus(x: Array) -> Array:
    """exp(x) - 1 - x >= 0, the Bregman divergence of exp; by its series if the difference cancels."""
    xp = namespace(x)
    small = xp.abs(x) < 0.03
    u = xp.where(small, x, 0.0)
    series = u * u / 2 * (1 + u / 3 * (1 + u / 4 * (1 + u / 5 * (1 + u / 6 * (1 + u / 7)))))
    return series if bool(xp.all(small)) else xp.where(small, series, xp.expm1(x) - x)


def log_mean_exp_excess(p: Array, delta: Array) -> Array:
    """log sum_k p_k exp(delta_k) - sum_k p_k delta_k over the last axis, for p on the simplex.

    This is the Bregman divergence of log-sum-exp. With delta centred at its p-mean it is
    log1p(sum_k p_k (exp(delta_k) - 1 - delta_k)), in which all terms are nonnegative.
    """
    xp = namespace(delta)
    centred = delta - xp.sum(p * delta, axis=-1, keepdims=True)
    top = xp.max(centred, axis=-1, keepdims=True)
    if bool(xp.all(top < 1.0)):
        return xp.log1p(xp.sum(p * expm1_minus(centred), axis=-1))
    near = xp.where(top < 1.0, centred, 0.0)
    small = xp.log1p(xp.sum(p * expm1_minus(near), axis=-1))
    total = xp.sum(p * xp.exp(centred - top), axis=-1)
    top = top[..., 0]
    tiny = 5e-324  # p underflowed where centred is largest: the excess is below the rounding error of `top`
    large = top + xp.log(xp.where(total > 0, total, tiny + xp.zeros_like(total)))
    return xp.where(top < 1.0, small, large)


def wright_omega_log(z: Array) -> Array:
    """The solution u of u + exp(u) = z. Newton's method from the right does not overshoot (convex, increasing)."""
    xp = namespace(z)
    u = xp.where(z > 1.0, xp.log(xp.where(z > 1.0, z, 1.0)), z)
    for _ in range(8):
        e = xp.exp(u)
        u = u - (u + e - z) / (1.0 + e)
    return u


def log_cosh_slopes(x: Array) -> tuple[Array, Array]:
    """First and second derivative of g(x) = log(2 cosh(sqrt(x)/2)) in x >= 0: tanh(xi/2) / (4 xi), and its derivative.

    Below xi = 0.5, where the closed forms cancel, from their series.
    """
    xp = namespace(x)
    small = x < 0.25
    u = xp.where(small, x, 0.0) / 4
    # tanh(v)/v as a function of u = v^2, and its derivative
    series = 1.0 - u / 3 + 2 * u**2 / 15 - 17 * u**3 / 315 + 62 * u**4 / 2835 - 1382 * u**5 / 155925
    slope = -1.0 / 3 + 4 * u / 15 - 17 * u**2 / 105 + 248 * u**3 / 2835 - 1382 * u**4 / 31185
    series, slope = series + 21844 * u**6 / 6081075, slope + 43688 * u**5 / 2027025
    large = xp.where(small, 1.0, x)
    xi = xp.sqrt(large)
    t = xp.tanh(xi / 2)
    first = t / (4 * xi)
    second = ((1.0 - t * t) / 2 - t / xi) / (8 * large)
    return xp.where(small, series / 8, first), xp.where(small, slope / 32, second)


def stirling(x: Array) -> Array:
    """log x! - x log x + x for x >= 0, without cancellation for large x."""
    xp = namespace(x)
    large = x > 100.0
    far, near = xp.where(large, x, 100.0), xp.where(large, 0.0 * x, x)
    series = 0.5 * xp.log(2 * math.pi * far) + 1 / (12 * far) - 1 / (360 * far**3) + 1 / (1260 * far**5)
    entropy = near * xp.log(xp.where(near > 0.0, near, 1.0))
    return xp.where(large, series, special("gammaln", near + 1.0) - entropy + near)


def log_above_zero(log_mu: Array) -> tuple[Array, Array, Array]:
    """log(1 - e^-mu), log probability that a Poisson count is above 0, and its first two derivatives in log mu."""
    xp = namespace(log_mu)
    small = log_mu < -30.0  # approximately log mu - mu/2
    mu = xp.exp(xp.clip(xp.where(small, -30.0, log_mu), None, math.log(_SURE)))
    rest = xp.expm1(mu)
    k = mu / rest
    bend = k * (expm1_minus(mu) / rest - mu)
    tiny = xp.exp(xp.where(small, log_mu, -30.0)) / 2
    return (
        xp.where(small, log_mu - tiny, xp.log(-xp.expm1(-mu))),
        xp.where(small, 1.0 - tiny, k),
        xp.where(small, -tiny, bend),
    )


def gamma_functions(z: Array) -> tuple[Array, Array, Array]:
    """log Gamma, digamma and trigamma at z >= 1, by eight steps of the recurrences and the series at z + 8."""
    xp = namespace(z)
    product, first = z, 1.0 / z
    second = first * first
    for k in range(1, 8):
        step = 1.0 / (z + k)
        product, first, second = product * (z + k), first + step, second + step * step
    Z = z + 8.0
    log = xp.log(Z)
    log_gamma = (Z - 0.5) * log - Z + 0.5 * math.log(2.0 * math.pi) + stirling_rest(Z) - xp.log(product)
    return log_gamma, log + digamma_rest(Z) - first, 1.0 / Z + _trigamma_rest(Z) + second


def stirling_rest(x: Any) -> Any:
    """log Gamma(x) minus (x - 1/2) log x - x + log(2 pi)/2, for x >= 8."""
    u = 1.0 / (x * x)
    return (1 / 12 - u * (1 / 360 - u * (1 / 1260 - u * (1 / 1680 - u * (1 / 1188 - u * 691 / 360360))))) / x


def digamma_rest(x: Any) -> Any:
    """digamma(x) - log x, for x >= 8."""
    u = 1.0 / (x * x)
    series = 1 / 12 - u * (1 / 120 - u * (1 / 252 - u * (1 / 240 - u * (1 / 132 - u * 691 / 32760))))
    return -0.5 / x - u * series


def _trigamma_rest(x: Any) -> Any:
    """trigamma(x) - 1/x, for x >= 8."""
    u = 1.0 / (x * x)
    s2 = 1 / 6 - u * (1 / 30 - u * (1 / 42 - u * (1 / 30 - u * (5 / 66 - u * (691 / 2730 - u * 7 / 6)))))
    return u * (0.5 + s2 / x)


def rising(log_r: Array, y: Array) -> tuple[Array, Array, Array]:
    """log Gamma(r + y) - log Gamma(r) and its first two derivatives in log r; y >= 0 is broadcast against log r."""
    xp = namespace(log_r)
    r = xp.exp(xp.clip(log_r, None, _LARGEST))
    y = y + 0.0 * r
    near, some = r < _STIRLING, y > 0.0
    if bool(xp.all(near)):
        values = _close(log_r, r, y, some)
    elif not bool(xp.any(near)):
        values = _away(log_r, r, y)
    else:
        close = _close(log_r, xp.where(near, r, 1.0), y, some)
        away = _away(log_r, xp.where(near, _STIRLING, r), y)
        values = tuple(xp.where(near, a, b) for a, b in zip(close, away, strict=True))
    value, first, second = (xp.where(some, x, 0.0) for x in values)
    return value, first, second


def _close(log_r: Array, r: Array, y: Array, some: Array) -> tuple[Array, ...]:
    """``rising`` for small r and y > 0: log Gamma(x) = log Gamma(1 + x) - log x."""
    xp = namespace(r)
    g1, d1, t1 = gamma_functions(1.0 + r + y)
    g0, d0, t0 = gamma_functions(1.0 + r)
    total = xp.where(some, r + y, 1.0)
    pull = r * (d1 - d0)
    return g1 - g0 - xp.log(total) + log_r, pull + y / total, pull + r * r * (t1 - t0) - y * r / total**2


def _away(log_r: Array, R: Array, y: Array) -> tuple[Array, ...]:
    """``rising`` for large r: the leading terms of Stirling's series combined."""
    xp = namespace(R)
    lead, rest = R * xp.log1p(y / R), R * (digamma_rest(R + y) - digamma_rest(R))
    bend = (R / (R + y)) * (R * (R + y) * (_trigamma_rest(R + y) - _trigamma_rest(R)))
    return (
        y * log_r + lead + (y - 0.5) * xp.log1p(y / R) - y + stirling_rest(R + y) - stirling_rest(R),
        lead + rest,
        lead - y * (R / (R + y)) + rest + bend,
    )


def _rising_rest(R: Array, y: Array) -> Array:
    """log Gamma(R + y) - log Gamma(R) - y log R for large R."""
    return (R + y - 0.5) * namespace(R).log1p(y / R) - y + stirling_rest(R + y) - stirling_rest(R)


def log_rising(r: Array, y: Array) -> Array:
    """log Gamma(r + y) - log Gamma(r) - y log r, without cancellation for large r."""
    xp = namespace(r)
    R = xp.clip(r, _STIRLING, None)
    close = special("gammaln", r + y) - special("gammaln", r) - y * xp.log(r)
    return xp.where(r < _STIRLING, close, _rising_rest(R, y))


def log_choose(r: Array, y: Array) -> Array:
    """log Gamma(r + y) / (Gamma(r) y!) for r > 0 and y >= 0 of the same shape, to relative rounding error.

    If r or y + 1 is below 20, its log Gamma is small, and the other two terms are combined in Stirling's series.
    """
    xp, z = namespace(r), y + 1.0
    R, Z = xp.clip(r, _STIRLING, None), xp.clip(z, _STIRLING, None)
    half_log = 0.5 * math.log(2.0 * math.pi)
    large_r = y * xp.log(R) + _rising_rest(R, y)
    m = r - 1.0
    large_y = m * xp.log(Z) + _rising_rest(Z, m)
    leading = (R - 0.5) * xp.log1p(y / R) + y * xp.log1p((R - 1.0) / Z) - 0.5 * xp.log(Z) + 1.0 - half_log
    both = leading + stirling_rest(R + y) - stirling_rest(R) - stirling_rest(Z)
    neither = special("gammaln", r + y) - special("gammaln", r) - special("gammaln", z)
    small_y = xp.where(r < _STIRLING, neither, large_r - special("gammaln", z))
    return xp.where(z < _STIRLING, small_y, xp.where(r < _STIRLING, large_y - special("gammaln", r), both))


def choices(n: Array, y: Array) -> Array:
    """log n! / (y! (n - y)!)."""
    return log_choose(n - y + 1.0, y)
