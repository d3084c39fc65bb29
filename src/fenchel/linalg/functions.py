"""Small elementwise functions that must not overflow, cancel or divide by zero."""

from __future__ import annotations

import math

from .arrays import Array, namespace, special


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), exact to rounding in both tails."""
    xp = namespace(x)
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    xp = namespace(x)
    return xp.where(x > 0, x, xp.zeros_like(x)) + xp.log1p(xp.exp(-xp.abs(x)))


def expm1_minus(x: Array) -> Array:
    """exp(x) - 1 - x >= 0: the Bregman divergence of exp, by its series where the difference cancels."""
    xp = namespace(x)
    small = xp.abs(x) < 0.03
    u = xp.where(small, x, xp.zeros_like(x))
    series = u * u / 2 * (1 + u / 3 * (1 + u / 4 * (1 + u / 5 * (1 + u / 6 * (1 + u / 7)))))
    return xp.where(small, series, xp.expm1(x) - x)


def log_mean_exp_excess(p: Array, delta: Array) -> Array:
    """log sum_k p_k exp(delta_k) - sum_k p_k delta_k over the last axis, p on the simplex.

    The Bregman divergence of log-sum-exp, as one nonnegative number: with delta centred at its p-mean it is
    log1p(sum_k p_k (exp(delta_k) - 1 - delta_k)), every term of which is nonnegative.
    """
    xp = namespace(delta)
    centred = delta - xp.sum(p * delta, axis=-1, keepdims=True)
    top = xp.max(centred, axis=-1, keepdims=True)
    near = xp.where(top < 1.0, centred, xp.zeros_like(centred))
    small = xp.log1p(xp.sum(p * expm1_minus(near), axis=-1))
    total = xp.sum(p * xp.exp(centred - top), axis=-1)
    top = top[..., 0]
    tiny = 5e-324  # p underflowed where centred is largest: the excess is then below rounding of `top`
    large = top + xp.log(xp.where(total > 0, total, tiny + xp.zeros_like(total)))
    return xp.where(top < 1.0, small, large)


def wright_omega_log(z: Array) -> Array:
    """u with u + exp(u) = z. Newton from the right of a convex increasing function never overshoots."""
    xp = namespace(z)
    u = xp.where(z > 1.0, xp.log(xp.where(z > 1.0, z, xp.ones_like(z))), z)
    for _ in range(8):
        e = xp.exp(u)
        u = u - (u + e - z) / (1.0 + e)
    return u


def log_cosh_slopes(x: Array) -> tuple[Array, Array]:
    """First and second derivative of g(x) = log(2 cosh(sqrt(x)/2)) in x >= 0: tanh(xi/2) / (4 xi) and its slope.

    By their series below xi = 0.5, where the closed forms cancel.
    """
    xp = namespace(x)
    small = x < 0.25
    u = xp.where(small, x, xp.zeros_like(x)) / 4
    # tanh(v)/v in v^2 = u, its slope
    series = 1.0 - u / 3 + 2 * u**2 / 15 - 17 * u**3 / 315 + 62 * u**4 / 2835 - 1382 * u**5 / 155925
    slope = -1.0 / 3 + 4 * u / 15 - 17 * u**2 / 105 + 248 * u**3 / 2835 - 1382 * u**4 / 31185
    series, slope = series + 21844 * u**6 / 6081075, slope + 43688 * u**5 / 2027025
    large = xp.where(small, xp.ones_like(x), x)
    xi = xp.sqrt(large)
    t = xp.tanh(xi / 2)
    first = t / (4 * xi)
    second = ((1.0 - t * t) / 2 - t / xi) / (8 * large)
    return xp.where(small, series / 8, first), xp.where(small, slope / 32, second)


def stirling(x: Array) -> Array:
    """log x! - x log x + x for x >= 0, without the cancellation of a large x."""
    xp = namespace(x)
    large = x > 100.0
    far, near = xp.where(large, x, 100.0 + 0.0 * x), xp.where(large, 0.0 * x, x)
    series = 0.5 * xp.log(2 * math.pi * far) + 1 / (12 * far) - 1 / (360 * far**3) + 1 / (1260 * far**5)
    entropy = near * xp.log(xp.where(near > 0.0, near, xp.ones_like(near)))
    return xp.where(large, series, special("gammaln", near + 1.0) - entropy + near)
