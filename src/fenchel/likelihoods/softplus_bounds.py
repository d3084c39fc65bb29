"""Bounds of losses that are sums of softpluses: the logit, the cumulative logit, logistic noise, negative binomials.

    -log p = c_h eta + sum_p softplus(u_p) + const,   u_p = (a_p eta - shift_p) / b        one or two potentials
    phi_p(s) = log(1 + e^u),   u = (s - shift_p)/b,   tau = sigmoid(u)/b,   k(tau) = that of a coin, with tau shift_p

    "log-sum"  lam = sum tau/b                     s_hat = a_p h + rho/(2b)
    "tilted"   lam = sum tau (1/b - tau)           the tightest tilt of each softplus
    "bohning"  lam = sum 1/(4 b^2)                 s_hat = a_p h

A likelihood says what c_h, a_p, shift_p and b are (``Softpluses``) and where its sites start.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..linalg.arrays import Array, namespace
from ..linalg.functions import sigmoid
from .bounds import ConvexBound, is_short
from .potentials import Softplus, tilted_logit_maximiser
from .prediction import Rows
from .sites import Domain, Site

if TYPE_CHECKING:
    from .base import Likelihood

Curve = tuple[Array, Array, Array]


@dataclass(frozen=True, slots=True)
class Softpluses:
    """The potentials of some rows.

    y : (N,) with c_h = -y for one potential (a = 1); None for two (a = 1, -1) with c_h = 0
    shift : (N, P), +inf where a potential is dead; None for 0
    dead : (N, P) of bool, or None where none is
    """

    y: Array | None
    shift: Array | None = None
    dead: Array | None = None


class SoftplusBound(ConvexBound):
    """Everything but the curve lam(tau)."""

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
        return Softpluses(of.y, xp.where(of.dead, xp.zeros_like(of.shift), of.shift), of.dead)

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
            shift = of.shift if of.dead is None else xp.where(of.dead, xp.zeros_like(of.shift), of.shift)
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
        inner = xp.where(of.dead, 0.5 + xp.zeros_like(tau), t)
        return xp.where(of.dead, xp.zeros_like(tau), self._outer(Softplus.coordinate(inner), of.shift))

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        xp, of = namespace(s), self._live(rows)
        each = Softplus.divergence(self._inner(s_hat, of.shift), self._inner(s, of.shift))
        if of.dead is not None:
            each = xp.where(of.dead, xp.zeros_like(each), each)
        return each[:, 0] if each.shape[1] == 1 else xp.sum(each, axis=1)

    def gap_bound(self, g: Array, rho: Array, rows: Rows) -> Array | None:
        # k'' = 1 / (tau (1 - tau)) >= 4
        return g[:, 0] ** 2 / 8.0 if len(self.layout) == 1 else None

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
        shift, b = self._live(rows).shift, self.scale
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

    def gap_bound(self, g: Array, rho: Array, rows: Rows) -> Array | None:
        # k'' >= 4, and -lam''/2 = 1
        return g[:, 0] ** 2 / (8.0 + 2.0 * rho[:, 0]) if len(self.layout) == 1 else None
