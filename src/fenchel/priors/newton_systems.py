"""Newton's systems, and their solution by conjugate gradients from a cheaper curvature.

Of the dual, over all potentials (``NewtonSystem``):

(J^-1 + M + diag(extra)) dtau = -g,     M_{np,mq} = a_p a_q S_nm + 1/2 slope_np slope_mq Vt_nm^2
J = diag(spread) - spread spread'/(slack + sum spread),     ds = J^-1 dtau

Of a bound without a dual, in the marginals (h, rho) of q and in its sites (beta, lam) (``CoupledSystem``).
With F the curvature of f at each observation and residuals r = beta - alpha+, d = lam - lam+, Newton's step solves

    ( Vt^-1 + (f_hh - lam)   f_hr                         ) (dh  )   (r  )
    ( f_hr                   (2 Vt o Vt)^-1 + f_rr        ) (drho) = (d/2)

by conjugate gradients: blockdiag(Vt, 2 Vt o Vt) is at hand and preconditions it, and what remains is diagonal. It needs
no factorisation of its own. Its first iterate is the natural gradient. Where P is not concave in (h, rho) the search
meets negative curvature and stops there: what it has found rises all the same. Then

    dbeta = -S^-1 dh = -(Vt^-1 - Lam) dh,     dlam = -(Vt o Vt)^-1 drho
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..checks import problem
from ..linalg.arrays import Array, namespace
from ..linalg.krylov import conjugate_gradients, minimal_residuals

if TYPE_CHECKING:
    from .base import Factor

_STEPS = 200  # of conjugate gradients for the potentials
_ROUNDS = 20  # of a system that is not symmetric: its rule of points makes more of them worth little


@dataclass(frozen=True, slots=True)
class NewtonSystem:
    """Newton's system in the potentials, everything weighted."""

    g: Array  # (N, P)  s - s*, the gradient in tau
    signs: Array  # (N, P)  a_h
    slope: Array  # (N, P)  lam'
    extra: Array  # (N, P)  -1/2 lam'' rho, never negative
    spread: Array  # (N, P)
    slack: Array | None  # (N,) or None
    layout: tuple[int, ...]  # the predictor of each potential
    accuracy: float = 1e-8  # relative residual asked of an iterative solve; direct ones ignore it
    economical: bool = False  # a cheaper curvature will do: the last steps converged well enough

    @property
    def plain(self) -> bool:
        """Whether ds = dtau / spread in every row."""
        return self.slack is None and bool(namespace(self.spread).all(self.spread > 0.0))

    def forward(self, v: Array) -> Array:
        """J v."""
        out = self.spread * v
        if self.slack is None:
            return out
        xp = namespace(v)
        total = self.slack + xp.sum(self.spread, axis=1)
        return out - self.spread * (xp.sum(out, axis=1) / xp.where(total > 0.0, total, xp.ones_like(total)))[:, None]

    def to_predictors(self, x: Array) -> Array:
        """Potentials (N, P) summed into their predictors (N, C)."""
        C = max(self.layout) + 1
        if self.layout == tuple(range(C)):
            return x
        columns = [sum((x[:, p] for p, k in enumerate(self.layout) if k == c), 0.0 * x[:, 0]) for c in range(C)]
        return namespace(x).stack(columns, axis=1)

    def to_potentials(self, x: Array) -> Array:
        """Predictors (N, C) repeated for their potentials (N, P)."""
        if self.layout == tuple(range(x.shape[1])):
            return x
        return namespace(x).stack([x[:, c] for c in self.layout], axis=1)

    def curvature(self, factor: Factor, v: Array) -> Array:
        """a S a' v: the part of M by which h moves with alpha."""
        return self.signs * self.to_potentials(factor.predictors.apply(self.to_predictors(self.signs * v)))

    def bend(self, factor: Factor, v: Array) -> Array:
        """1/2 slope (Vt o Vt) slope' v: the part of M by which rho moves with lam."""
        return 0.5 * self.slope * self.to_potentials(factor.hadamard(self.to_predictors(self.slope * v)))

    def mirror(self, dtau: Array, ds: Array) -> Array:
        """ds = J^-1 dtau without the cancellation of ds = -g - M dtau under a wide prior.

        dtau / spread is exact row by row; ``ds``, that other form, serves where spread underflowed, and for the common
        shift of potentials that share a normalisation without slack.
        """
        xp = namespace(dtau)
        live = self.spread > 0.0
        ratio = dtau / xp.where(live, self.spread, xp.ones_like(dtau))
        if self.slack is not None:  # J^-1 = diag(1/spread) + 1 1'/slack
            total = xp.sum(self.spread, axis=1)
            apart = xp.where(live, self.spread * (ds - ratio), xp.zeros_like(ds))
            open_ = self.slack > 1e-6 * total
            direct = xp.sum(dtau, axis=1) / xp.where(open_, self.slack, xp.ones_like(total))
            indirect = xp.sum(apart, axis=1) / xp.where(total > 0.0, total, xp.ones_like(total))
            ratio = ratio + xp.where(open_, direct, indirect)[:, None]
        return xp.where(live, ratio, ds)


class CheapCurvature(ABC):
    """J^-1 + rest + a S a', rest = extra + diagonal, which can be inverted: 1/2 diag(slope^2 rho^2) is the diagonal.

    With Jt = (J^-1 + rest)^-1, again diagonal minus rank one for each observation, its inverse is Jt - Jt a Z a' Jt,
    Z = X H^-1 X' and H = Sigma^-1 + X' a' Jt a X.
    """

    def __init__(self, factor: Factor, system: NewtonSystem) -> None:
        self.system, self.signs = system, system.signs
        self.diagonal = 0.5 * system.slope**2 * system.to_potentials(factor.variance) ** 2
        self.rest = system.extra + self.diagonal
        self.d = system.spread / (1.0 + system.spread * self.rest)
        self.total = None if system.slack is None else system.slack + namespace(self.d).sum(self.d, axis=1)

    @abstractmethod
    def inside(self, x: Array) -> Array:
        """Z x for x (N, C)."""

    def _J(self, x: Array) -> Array:
        """Jt x."""
        out = self.d * x
        if self.total is None:
            return out
        xp = namespace(x)
        total = xp.where(self.total > 0.0, self.total, xp.ones_like(self.total))
        return out - self.d * (xp.sum(out, axis=1) / total)[:, None]

    def solve(self, r: Array) -> Array:
        """Its inverse times r (N, P)."""
        system, Jr = self.system, self._J(r)
        inner = self.inside(system.to_predictors(self.signs * Jr))
        return Jr - self._J(self.signs * system.to_potentials(inner))


class OtherWeights(CheapCurvature):
    """Of any factor, by one more factorisation of the same kind: Z is Vt at the weights a' Jt a, Jt diagonal."""

    def __init__(self, factor: Factor, system: NewtonSystem) -> None:
        if system.slack is not None:
            raise problem(
                type(factor).__name__,
                "the potentials of an observation share a normalisation (a softmax)",
                "a direction of the factor's own",
                "Write Factor.direction, or use DenseCovariance, Features or SparsePrecision.",
            )
        super().__init__(factor, system)
        self.factor = factor.predictors.at(system.to_predictors(self.signs**2 * self.d))

    def inside(self, x: Array) -> Array:
        return self.factor.apply(x)


def iterated(factor: Factor, system: NewtonSystem, cheap: Any, direct: bool) -> tuple[Array, Array]:
    """ds and dtau: by the cheap curvature alone if ``direct``, or by conjugate gradients that begin with it."""
    if direct:
        dtau = cheap.solve(-system.g)
        left = Fx = 0.0 * dtau
    else:
        dtau, Fx, left, _ = conjugate_gradients(
            cheap.solve,
            lambda z: system.bend(factor, z) - cheap.diagonal * z,
            -system.g,
            system.accuracy,
            max_iter=_STEPS,
        )
    if system.plain:
        return dtau / system.spread, dtau
    S_dtau = system.curvature(factor, dtau)
    return system.mirror(dtau, -system.g - left - cheap.rest * dtau - S_dtau - Fx), dtau


@dataclass(frozen=True, slots=True)
class CoupledSystem:
    """Everything weighted; all (N, 1), or (N, P) of contrasts."""

    r: Array  # beta - alpha+
    d: Array  # lam - lam+
    lam: Array
    curvature: Callable[[Array, Array], tuple[Array, Array]]  # (f_hh - lam) dh + f_hr drho, f_hr dh + f_rr drho
    accuracy: float = 1e-8
    economical: bool = False
    symmetric: bool = True  # whether the curvature is; that of a rule of points need not be


@dataclass(frozen=True, slots=True)
class SiteStep:
    """A direction in the sites, what it does to the marginals, and how fast P rises along it.

    At Newton's step the slope is the squared decrement: twice what a quadratic model says is missing.
    """

    dbeta: Array
    dlam: Array
    dh: Array
    drho: Array
    slope: float
    unsolved: float  # relative residual of the system the step solves


def coupled_direction(factor: Factor, system: CoupledSystem) -> SiteStep:
    """Newton's step; the natural gradient where the very first curvature met is not positive."""
    xp = namespace(system.r)
    right = xp.concat([system.r, system.d / 2], axis=1)
    if system.economical and factor.nearly_uncoupled:  # the natural gradient is Newton's step to O(rho)
        dh = factor.apply(system.r)
        drho = factor.variance**2 * system.d
        slope = float(xp.sum(system.r * dh + 0.5 * system.d * drho))
        bent = 2.0 * system.curvature(dh, drho)[1]  # where lam+ will be once h has moved
        return SiteStep(system.lam * dh - system.r, bent - system.d, dh, drho, slope, 1.0)
    P = system.r.shape[1]
    with factor.products(system.economical) as (times, times_squared):

        def solve(v: Array) -> Array:
            return xp.concat([times(v[:, :P]), 2.0 * times_squared(v[:, P:])], axis=1)

        def remainder(x: Array) -> Array:
            return xp.concat(system.curvature(x[:, :P], x[:, P:]), axis=1)

        if system.symmetric:
            x, Fx, left, unsolved = conjugate_gradients(solve, remainder, right, system.accuracy, max_iter=100)
        else:
            x, Fx, left, unsolved = minimal_residuals(solve, remainder, right, system.accuracy, max_iter=_ROUNDS)
        if bool(xp.any(right != 0.0)) and not bool(xp.any(x != 0.0)):
            x, Fx, left, unsolved = solve(right), 0.0 * right, 0.0 * right, 1.0
    image = right - Fx - left  # (Vt^-1 dh, (2 Vt o Vt)^-1 drho)
    slope = float(xp.sum(right * x))
    dh, drho = x[:, :P], x[:, P:]
    return SiteStep(system.lam * dh - image[:, :P], -2.0 * image[:, P:], dh, drho, slope, unsolved)
