"""Bounds of losses that are sums of softpluses: the logit, the cumulative logit, logistic noise, negative binomials.

    -log p = c_h eta + sum_p softplus(u_p) + const,   u_p = (a_p eta - shift_p) / b        one or two potentials
    phi_p(s) = log(1 + e^u),   u = (s - shift_p)/b,   tau = sigmoid(u)/b,   k(tau) = that of a coin, with tau shift_p

    "log-sum"  lam = sum tau/b                     s_hat = a_p h + rho/(2b)
    "tilted"   lam = sum tau (1/b - tau)           the tightest tilt of each softplus
    "bohning"  lam = sum 1/(4 b^2)                 s_hat = a_p h

A likelihood gives c_h, a_p, shift_p and b (``Softpluses``) and a starting point of its sites.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..linalg.arrays import Array, namespace
from ..linalg.functions import expm1_minus, sigmoid, wright_omega_log
from .bounds import ConvexBound, Domain, Site, is_short
from .outcomes import Rows

if TYPE_CHECKING:
    from .base import Likelihood

Curve = tuple[Array, Array, Array]
_CLOSE = 0.01  # a distance up to which six cumulants give a divergence to 1e-12
_SMALL = 0.1  # a variance up to which the tilted maximum is a quick contraction


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
            size = xp.where(size < xp.inf, size, 0.0)
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


@dataclass(frozen=True, slots=True)
class Softpluses:
    """The potentials of some rows.

    y : (N,) with c_h = -y for one potential (a = 1); None for two (a = 1, -1) with c_h = 0
    shift : (N, P), +inf where a potential is absent; None for 0
    dead : (N, P) of bool, true where a potential is absent; None if none is
    """

    y: Array | None
    shift: Array | None = None
    dead: Array | None = None


class SoftplusBound(ConvexBound):
    """A bound of softpluses without its curve lam(tau), which subclasses give."""

    @abstractmethod
    def curve(self, t: Array, rest: Array, spread: Array) -> Curve:
        """lam, lam' and lam'' of each potential at t = sigmoid(u), rest = 1 - t and spread = t (1 - t), for b = 1."""

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__(likelihood)
        self.layout, self.scale = (0,) * self.likelihood.n_softpluses, float(self.likelihood.softplus_scale)  # P, b
        self.domain = Domain(lower=0.0, upper=1.0 / self.scale)

    def start(self, rows: Rows, shrink: float) -> Array:
        return self.likelihood.start(rows, shrink)

    def signs(self, rows: Rows) -> Array:
        one = 1.0 + 0.0 * rows["weight"]
        return one[:, None] if len(self.layout) == 1 else namespace(one).stack([one, -one], axis=1)

    def _seen(self, h: Array, rows: Rows) -> Array:
        """a_p h (N, P)."""
        return h if len(self.layout) == 1 else self.signs(rows) * h

    def _live(self, rows: Rows) -> Softpluses:
        """The potentials with 0 for the shift of dead ones."""
        of: Softpluses = self.likelihood.softpluses(rows)
        if of.dead is None or of.shift is None:
            return of
        xp = namespace(of.shift)
        return Softpluses(of.y, xp.where(of.dead, 0.0, of.shift), of.dead)

    def _inner(self, s: Array, shift: Array | None) -> Array:
        """u."""
        u = s if shift is None else s - shift
        return u if self.scale == 1.0 else u / self.scale

    def _outer(self, u: Array, shift: Array | None) -> Array:
        """s."""
        s = u if self.scale == 1.0 else self.scale * u
        return s if shift is None else s + shift

    def site(self, s: Array, rows: Rows) -> Site:
        xp, b, of = namespace(s), self.scale, self.likelihood.softpluses(rows)
        t, rest, k, spread = Softplus.evaluate(self._inner(s, of.shift))
        if of.shift is not None:
            shift = of.shift if of.dead is None else xp.where(of.dead, 0.0, of.shift)
            k = k + t * (shift if b == 1.0 else shift / b)
        lam, slope, bend = self.curve(t, rest, spread)
        if of.y is not None:
            y = of.y[:, None]
            alpha, k = t * (1.0 - y) - rest * y, k[:, 0]  # tau - y, exact in both tails
        else:
            alpha, lam, k = t[:, :1] - t[:, 1:], lam[:, :1] + lam[:, 1:], xp.sum(k, axis=1)
        if b == 1.0:
            return Site(t, alpha, lam, slope, bend, k, spread)
        return Site(t / b, alpha / b, lam / b**2, slope / b, bend, k, spread / b**2)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        xp, of = namespace(tau), self._live(rows)
        t = tau if self.scale == 1.0 else self.scale * tau
        if of.dead is None:
            return self._outer(Softplus.coordinate(t), of.shift)
        inner = xp.where(of.dead, 0.5, t)
        return xp.where(of.dead, 0.0, self._outer(Softplus.coordinate(inner), of.shift))

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        xp, of = namespace(s), self._live(rows)
        s_hat = s_hat if of.dead is None else xp.where(of.dead, s, s_hat)
        each = Softplus.divergence(self._inner(s_hat, of.shift), self._inner(s, of.shift))
        return each[:, 0] if each.shape[1] == 1 else xp.sum(each, axis=1)

    def gap_bound(self, g: Array, rho: Array, rows: Rows) -> Array | None:
        # k'' = b^2 / (t (1 - t)) >= 4 b^2, and -lam''/2 = 1 of a curved lam
        xp, of = namespace(g), self.likelihood.softpluses(rows)
        square = g * g if of.dead is None else xp.where(of.dead, 0.0, g * g)
        return xp.sum(square, axis=1) / (8.0 * self.scale**2 + (2.0 * rho[:, 0] if self.curved else 0.0))

    def reach(self, rows: Rows) -> float:
        return 4.0 * self.scale

    def straight(self, s: Array, ds: Array, rows: Rows) -> Array | None:
        if len(self.layout) > 1 or not is_short(ds):
            return None
        xp, shift = namespace(s), self.likelihood.softpluses(rows).shift
        u = self._inner(s, shift)
        return s + xp.log1p(sigmoid(-u) * ds) - xp.log1p(-sigmoid(u) * ds)


class LogSumLogit(SoftplusBound):
    """lam = tau/b: the paper's."""

    def curve(self, t: Array, rest: Array, spread: Array) -> Curve:
        xp = namespace(t)
        return t, xp.ones_like(t), xp.zeros_like(t)

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        return self._seen(h, rows) + rho / (2.0 * self.scale)


class BohningLogit(SoftplusBound):
    """lam = 1/4: a constant curvature."""

    def curve(self, t: Array, rest: Array, spread: Array) -> Curve:
        xp = namespace(t)
        return 0.25 * xp.ones_like(t), xp.zeros_like(t), xp.zeros_like(t)

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        return self._seen(h, rows) + 0.0 * rho


class TiltedLogit(SoftplusBound):
    """lam = tau (1/b - tau): the tightest of the tilted bounds (Saul, Jaakkola and Jordan; Knowles and Minka)."""

    curved = True

    def curve(self, t: Array, rest: Array, spread: Array) -> Curve:
        return spread, rest - t, -2.0 * namespace(t).ones_like(t)

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        of, b = self._live(rows), self.scale
        shift, rho = of.shift, rho if of.dead is None else namespace(rho).where(of.dead, 0.0, rho)
        centre, near = self._inner(self._seen(h, rows), shift), self._inner(s, shift)
        return self._outer(tilted_logit_maximiser(centre, rho if b == 1.0 else rho / b**2, near), shift)

    def curve_gap(self, tau_hat: Array, tau: Array) -> Array:
        return (tau_hat - tau) ** 2

    def gap(self, s: Array, h: Array, rho: Array, rows: Rows) -> Array:
        s_hat = self.maximiser(h, rho, s, rows)
        shift, b = self.likelihood.softpluses(rows).shift, self.scale
        moved = sigmoid(self._inner(s_hat, shift)) - sigmoid(self._inner(s, shift))
        bend = moved[:, 0] ** 2 if moved.shape[1] == 1 else namespace(s).sum(moved**2, axis=1)
        return self.divergence(s_hat, s, rows) + bend * rho[:, 0] / (2.0 * b**2)


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
    rho = xp.where(rho > 1e-200, rho, 1e-200)
    log_rho = xp.log(rho)
    base = log_rho + h + rho / 2
    A = xp.max(h - rho / 2, axis=-1, keepdims=True)
    if reference:
        A = xp.where(A > 0.0, A, 0.0)
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
        top = xp.where(top > 0.0, top, 0.0) if reference else top
        e = xp.exp(s - top)
        total = xp.sum(e, axis=-1, keepdims=True) + (xp.exp(-top) if reference else 0.0)
        before, s = s, h + (0.5 - e / total) * rho
        if not bool(xp.any(xp.abs(s - before) > 1e-15 * (1.0 + xp.abs(s)))):
            break
    return s
