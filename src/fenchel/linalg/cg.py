"""Preconditioned conjugate gradients when the operator is a preconditioner plus a remainder.

Solve (P + F) x = b where P^-1 is cheap to apply and F is cheap to multiply with. Because every search
direction is a combination of vectors z = P^-1 r, the product (P + F) z = r + F z needs neither P nor its
factor: P^-1 may be singular (a softmax with symmetric latents), which scipy's cg could not be told.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arrays import Array, namespace

_GROWTH = 1e4  # of the squared residual over its lowest so far: conjugate gradients may wander, but not that far


def conjugate_gradients(
    solve: Callable[[Array], Array],
    remainder: Callable[[Array], Array],
    b: Array,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array, Array, float]:
    """x, F x, the residual b - (P + F) x, and the factor by which its P^-1 norm has fallen.

    ``solve`` applies P^-1, ``remainder`` applies F. Stops when the norm has fallen by ``tol``; also when it grows again
    (rounding has made the operator indefinite), so that the caller can see it in the last value and go another way.
    """
    xp = namespace(b)
    r, z = b, solve(b)
    x = Fx = p = Fp = Ap = xp.zeros_like(b)
    rz, ratio = float(xp.sum(r * z)), 0.0
    first = lowest = rz
    for _ in range(max_iter):
        if not tol * tol * first < rz < _GROWTH * lowest:
            break
        Fz = remainder(z)
        p, Fp, Ap = z + ratio * p, Fz + ratio * Fp, r + Fz + ratio * Ap
        with np.errstate(over="ignore", invalid="ignore"):
            curvature = float(xp.sum(p * Ap))
        if not 0.0 < curvature < float("inf"):
            break
        step = rz / curvature
        x, Fx, r = x + step * p, Fx + step * Fp, r - step * Ap
        z = solve(r)
        rz, before = float(xp.sum(r * z)), rz
        ratio, lowest = rz / before, min(rz, lowest)
    return x, Fx, r, (abs(rz) / first) ** 0.5 if first > 0.0 else 0.0
