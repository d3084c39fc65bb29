"""Gamma functions and their ratios, for densities of counts: any array library, no cancellation for large arguments.

    rising(log r, y)    L = log Gamma(r + y) - log Gamma(r),   dL/dlog r,   d2L/d(log r)^2
    log_choose(r, y)    log Gamma(r + y) / (Gamma(r) y!)
    choices(n, y)       log of the binomial coefficient

Below r = 20 from eight steps of the recurrences, above it from Stirling's series, whose leading terms are combined.
"""

from __future__ import annotations

import math
from typing import Any

from ..linalg.arrays import Array, namespace, special

_STIRLING = 20.0  # an argument from which Stirling's series is exact to rounding
_LARGEST = 700.0  # the largest number whose exponential is one


def gamma_functions(z: Array) -> tuple[Array, Array, Array]:
    """log Gamma, digamma and trigamma at z >= 1, from eight steps of their recurrences and their series at z + 8."""
    xp = namespace(z)
    product, first = z, 1.0 / z
    second = first * first
    for k in range(1, 8):
        step = 1.0 / (z + k)
        product, first, second = product * (z + k), first + step, second + step * step
    Z = z + 8.0
    i, log = 1.0 / Z, xp.log(Z)
    u = i * i
    s2 = 1 / 6 - u * (1 / 30 - u * (1 / 42 - u * (1 / 30 - u * (5 / 66 - u * (691 / 2730 - u * 7 / 6)))))
    log_gamma = (Z - 0.5) * log - Z + 0.5 * math.log(2.0 * math.pi) + stirling_rest(Z) - xp.log(product)
    return log_gamma, log + digamma_rest(Z) - first, i * (1.0 + 0.5 * i + u * s2) + second


def stirling_rest(x: Any) -> Any:
    """What log Gamma(x) has beyond (x - 1/2) log x - x + log(2 pi)/2, from x = 8 on."""
    u = 1.0 / (x * x)
    return (1 / 12 - u * (1 / 360 - u * (1 / 1260 - u * (1 / 1680 - u * (1 / 1188 - u * 691 / 360360))))) / x


def digamma_rest(x: Any) -> Any:
    """digamma(x) - log x, from x = 8 on."""
    u = 1.0 / (x * x)
    series = 1 / 12 - u * (1 / 120 - u * (1 / 252 - u * (1 / 240 - u * (1 / 132 - u * 691 / 32760))))
    return -0.5 / x - u * series


def _trigamma_rest(x: Any) -> Any:
    """trigamma(x) - 1/x, from x = 8 on."""
    u = 1.0 / (x * x)
    s2 = 1 / 6 - u * (1 / 30 - u * (1 / 42 - u * (1 / 30 - u * (5 / 66 - u * (691 / 2730 - u * 7 / 6)))))
    return u * (0.5 + s2 / x)


def rising(log_r: Array, y: Array) -> tuple[Array, Array, Array]:
    """log Gamma(r + y) - log Gamma(r) and its first two derivatives in log r, y >= 0 broadcast against log r."""
    xp = namespace(log_r)
    r = xp.exp(xp.minimum(log_r, _LARGEST + xp.zeros_like(log_r)))
    y = y + 0.0 * r
    near, some = r < _STIRLING, y > 0.0
    if bool(xp.all(near)):
        found = _close(log_r, r, y, some)
    elif not bool(xp.any(near)):
        found = _away(log_r, r, y)
    else:
        close = _close(log_r, xp.where(near, r, 1.0 + 0.0 * r), y, some)
        away = _away(log_r, xp.where(near, _STIRLING + 0.0 * r, r), y)
        found = tuple(xp.where(near, a, b) for a, b in zip(close, away, strict=True))
    none = xp.zeros_like(r)
    value, first, second = (xp.where(some, x, none) for x in found)
    return value, first, second


def _close(log_r: Array, r: Array, y: Array, some: Array) -> tuple[Array, ...]:
    """The same for a small r, where y > 0: log Gamma(x) = log Gamma(1 + x) - log x."""
    xp = namespace(r)
    g1, d1, t1 = gamma_functions(1.0 + r + y)
    g0, d0, t0 = gamma_functions(1.0 + r)
    total = xp.where(some, r + y, 1.0 + 0.0 * y)
    pull = r * (d1 - d0)
    return g1 - g0 - xp.log(total) + log_r, pull + y / total, pull + r * r * (t1 - t0) - y * r / total**2


def _away(log_r: Array, R: Array, y: Array) -> tuple[Array, ...]:
    """The same for a large r: the leading terms of Stirling's series in one."""
    xp = namespace(R)
    lead, rest = R * xp.log1p(y / R), R * (digamma_rest(R + y) - digamma_rest(R))
    bend = (R / (R + y)) * (R * (R + y) * (_trigamma_rest(R + y) - _trigamma_rest(R)))
    return (
        y * log_r + lead + (y - 0.5) * xp.log1p(y / R) - y + stirling_rest(R + y) - stirling_rest(R),
        lead + rest,
        lead - y * (R / (R + y)) + rest + bend,
    )


def log_choose(r: Array, y: Array) -> Array:
    """log Gamma(r + y) / (Gamma(r) y!), r > 0 and y >= 0 of one shape: to rounding of its own size.

    Where one of r and y + 1 is below 20 its log Gamma is small, and the other two are combined by Stirling's series.
    """
    xp, z = namespace(r), y + 1.0
    limit = _STIRLING + 0.0 * r
    R, Z = xp.maximum(r, limit), xp.maximum(z, limit)
    half_log = 0.5 * math.log(2.0 * math.pi)
    large_r = y * xp.log(R) + (R + y - 0.5) * xp.log1p(y / R) - y + stirling_rest(R + y) - stirling_rest(R)
    m = r - 1.0
    large_y = m * xp.log(Z) + (Z + m - 0.5) * xp.log1p(m / Z) - m + stirling_rest(Z + m) - stirling_rest(Z)
    leading = (R - 0.5) * xp.log1p(y / R) + y * xp.log1p((R - 1.0) / Z) - 0.5 * xp.log(Z) + 1.0 - half_log
    both = leading + stirling_rest(R + y) - stirling_rest(R) - stirling_rest(Z)
    neither = special("gammaln", r + y) - special("gammaln", r) - special("gammaln", z)
    small_y = xp.where(r < limit, neither, large_r - special("gammaln", z))
    return xp.where(z < limit, small_y, xp.where(r < limit, large_y - special("gammaln", r), both))


def choices(n: Array, y: Array) -> Array:
    """log n! / (y! (n - y)!)."""
    return log_choose(n - y + 1.0, y)
