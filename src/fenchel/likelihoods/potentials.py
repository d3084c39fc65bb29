"""The potentials phi(s) that likelihoods are made of, with everything about their conjugates k(tau).

    Exponential   phi = c e^s          tau = c e^s         k = tau (s - 1)
    Softplus      phi = log(1 + e^s)   tau = sigmoid(s)    k = tau log tau + (1-tau) log(1-tau)
    Quadratic     phi = s^2 / (2 v)    tau = s / v         k = v tau^2 / 2

and the tilted curve lam = tau (1 - tau) over a softplus or a softmax: its inner maximum over tau.
All functions are elementwise; ``s`` may have any shape its parameters broadcast against.
"""

from __future__ import annotations

from ..linalg.arrays import Array, namespace
from ..linalg.functions import (
    expm1_minus,
    wright_omega_log,
)

_CLOSE = 0.01  # a distance up to which six cumulants give a divergence to 1e-12
_SMALL = 0.1  # a variance up to which the tilted maximum is a quick contraction


class Exponential:
    """phi(s) = c e^s, c > 0: Poisson, stochastic volatility, Gamma."""

    @staticmethod
    def evaluate(s: Array, c: Array) -> tuple[Array, Array, Array]:
        """tau, k and dtau/ds."""
        tau = c * namespace(s).exp(s)
        return tau, tau * (s - 1.0), tau

    @staticmethod
    def coordinate(tau: Array, c: Array) -> Array:
        return namespace(tau).log(tau / c)

    @staticmethod
    def divergence(s_hat: Array, s: Array, c: Array) -> Array:
        return c * namespace(s).exp(s) * expm1_minus(s_hat - s)


class Softplus:
    """phi(s) = log(1 + e^s): the logistic family. Parameter-free; shifts are taken before the call."""

    @staticmethod
    def evaluate(s: Array) -> tuple[Array, Array, Array, Array]:
        """tau, 1 - tau (each exact in its tail), k and dtau/ds, from one exponential and one logarithm."""
        xp = namespace(s)
        size = xp.abs(s)
        e = xp.exp(-size)
        large = 1.0 / (1.0 + e)
        small = e * large
        up = s >= 0.0
        if not bool(xp.all(size < xp.inf)):  # an open-ended level of an ordinal: tau = k = 0
            size = xp.where(size < xp.inf, size, xp.zeros_like(s))
        k = -(xp.log1p(e) + small * size)  # -x log x of both: log(large) = -log1p(e), log(small) = -size - log1p(e)
        return xp.where(up, large, small), xp.where(up, small, large), k, small * large

    @staticmethod
    def coordinate(tau: Array) -> Array:
        xp = namespace(tau)
        return xp.log(tau) - xp.log1p(-tau)

    @staticmethod
    def divergence(s_hat: Array, s: Array) -> Array:
        """``log_mean_exp_excess`` for two classes, without an axis of length two."""
        xp = namespace(s)
        e = xp.exp(-xp.abs(s))
        large = 1.0 / (1.0 + e)
        small = e * large
        lead = xp.where(s >= 0.0, small - large, large - small)  # 1 - 2 tau
        delta = s_hat - s
        top = xp.abs(delta)
        if not bool(xp.any(top >= _CLOSE)):  # the first cumulants of a coin
            v = small * large
            fourth, fifth = 1.0 - 6.0 * v, lead * (1.0 - 12.0 * v)
            series = lead / 3 + delta * (fourth / 12 + delta * (fifth / 60 + delta * (1.0 - 30.0 * v * fourth) / 360))
            return v * delta * delta * (0.5 + 0.5 * delta * series)
        p, q = xp.where(s >= 0.0, large, small), xp.where(s >= 0.0, small, large)
        up, down = q * delta, -p * delta  # centred: p up + q down = 0
        if not bool(xp.any(top >= 1.0)):
            return xp.log1p(p * expm1_minus(up) + q * expm1_minus(down))
        none = xp.zeros_like(delta)
        near = top < 1.0
        close = xp.log1p(p * expm1_minus(xp.where(near, up, none)) + q * expm1_minus(xp.where(near, down, none)))
        top = xp.maximum(up, down)
        total = p * xp.exp(up - top) + q * xp.exp(down - top)
        tiny = 5e-324  # p underflowed where the exponent is largest: the excess is then below rounding of `top`
        return xp.where(near, close, top + xp.log(xp.where(total > 0.0, total, tiny + none)))


class Quadratic:
    """phi(s) = s^2 / (2 v): the Gaussian."""

    @staticmethod
    def evaluate(s: Array, v: Array) -> tuple[Array, Array, Array]:
        tau = s / v
        return tau, v * tau * tau / 2, 1.0 / v + 0.0 * s

    @staticmethod
    def coordinate(tau: Array, v: Array) -> Array:
        return v * tau

    @staticmethod
    def divergence(s_hat: Array, s: Array, v: Array) -> Array:
        return (s_hat - s) ** 2 / (2.0 * v)


def tilted_logit_maximiser(h: Array, rho: Array, near: Array | None = None) -> Array:
    """s with s = h + (1 - 2 sigmoid(s)) rho/2, that is s + rho/2 tanh(s/2) = h: ``tilted_maximiser`` for two classes.

    Odd in h, and concave for s > 0: Newton's first step lands left of the root wherever it begins (``near``, if given),
    a lower bound catches it there, and from then on it climbs to the root and never passes it.
    """
    xp = namespace(h)
    size, half = xp.abs(h), rho / 2
    least = xp.maximum(size / (1.0 + half / 2), size - half)
    s = least if near is None else xp.maximum(xp.where(h < 0.0, -near, near), least)
    for _ in range(60):
        e = xp.exp(-s)
        t = (1.0 - e) / (1.0 + e)
        step = (size - s - half * t) / (1.0 + half / 2 * (1.0 - t * t))
        s = xp.maximum(s + step, least)
        if not bool(xp.any(xp.abs(step) > 1e-8 * (1.0 + s))):  # the next step would be the square of this one
            break
    return xp.where(h < 0.0, -s, s)


def tilted_maximiser(h: Array, rho: Array, reference: bool) -> Array:
    """s with s_c = h_c + (1 - 2 tau_c) rho_c / 2 and tau = softmax(s), over the last axis.

    With ``reference`` one more class has h = rho = 0. Given the log-normaliser A every class solves
    log tau + rho tau = h + rho/2 - A on its own (a Wright omega), and A solves sum tau = 1, the root of a
    convex decreasing function: Newton from its left converges from anywhere, monotonically.
    """
    xp = namespace(h)
    if not bool(xp.any(rho > _SMALL)):
        return _contract(h, rho, reference)
    rho = xp.where(rho > 1e-200, rho, 1e-200 + xp.zeros_like(rho))
    log_rho = xp.log(rho)
    base = log_rho + h + rho / 2
    A = xp.max(h - rho / 2, axis=-1, keepdims=True)
    if reference:
        A = xp.where(A > 0.0, A, xp.zeros_like(A))
    u = base - A
    for _ in range(60):
        u = wright_omega_log(base - A)
        tau = xp.exp(u - log_rho)
        bend = tau / (1.0 + rho * tau)
        excess = xp.sum(tau, axis=-1, keepdims=True) - 1.0
        slope = xp.sum(bend, axis=-1, keepdims=True)
        if reference:
            rest = xp.exp(-A)
            excess, slope = excess + rest, slope + rest
        step = excess / slope
        A = A + step
        if not bool(xp.any(xp.abs(step) > 1e-15 * (1.0 + xp.abs(A)))):
            break
    return A + wright_omega_log(base - A) - log_rho


def _contract(h: Array, rho: Array, reference: bool) -> Array:
    """The same for a small rho, by s <- h + (1 - 2 softmax(s)) rho/2: every step is rho/2 of the one before."""
    xp, s = namespace(h), h
    for _ in range(60):
        top = xp.max(s, axis=-1, keepdims=True)
        top = xp.where(top > 0.0, top, xp.zeros_like(top)) if reference else top
        e = xp.exp(s - top)
        total = xp.sum(e, axis=-1, keepdims=True) + (xp.exp(-top) if reference else 0.0)
        before, s = s, h + (0.5 - e / total) * rho
        if not bool(xp.any(xp.abs(s - before) > 1e-15 * (1.0 + xp.abs(s)))):
            break
    return s
