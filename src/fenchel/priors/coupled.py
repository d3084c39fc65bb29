"""Newton's step for a bound without a dual, in the marginals (h, rho) of q and in its sites (beta, lam).

With F the curvature of f at each observation and residuals r = beta - alpha+, d = lam - lam+, Newton's step solves

    ( Vt^-1 + (f_hh - lam)   f_hr                         ) (dh  )   (r  )
    ( f_hr                   (2 Vt o Vt)^-1 + f_rr        ) (drho) = (d/2)

by conjugate gradients: blockdiag(Vt, 2 Vt o Vt) is at hand and preconditions it, and what remains is diagonal. It needs
no factorisation of its own. Its first iterate is the natural gradient. Where P is not concave in (h, rho) the search
meets negative curvature and stops there: what it has found rises all the same. Then

    dbeta = -S^-1 dh = -(Vt^-1 - Lam) dh,     dlam = -(Vt o Vt)^-1 drho
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..linalg.arrays import Array, namespace
from ..linalg.cg import conjugate_gradients, minimal_residuals
from .base import Factor

_ROUNDS = 20  # of a system that is not symmetric: its rule of points makes more of them worth little


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
class Step:
    """A direction in the sites, what it does to the marginals, and how fast P rises along it.

    At Newton's step the slope is the squared decrement: twice what a quadratic model says is missing.
    """

    dbeta: Array
    dlam: Array
    dh: Array
    drho: Array
    slope: float
    unsolved: float  # relative residual of the system the step solves


def coupled_direction(factor: Factor, system: CoupledSystem) -> Step:
    """Newton's step; the natural gradient where the very first curvature met is not positive."""
    xp = namespace(system.r)
    right = xp.concat([system.r, system.d / 2], axis=1)
    if system.economical and factor.nearly_uncoupled:  # the natural gradient is Newton's step to O(rho)
        dh = factor.apply(system.r)
        drho = factor.variance**2 * system.d
        slope = float(xp.sum(system.r * dh + 0.5 * system.d * drho))
        bent = 2.0 * system.curvature(dh, drho)[1]  # where lam+ will be once h has moved
        return Step(system.lam * dh - system.r, bent - system.d, dh, drho, slope, 1.0)
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
    return Step(system.lam * dh - image[:, :P], -2.0 * image[:, P:], dh, drho, slope, unsolved)
