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


def minimal_residuals(
    solve: Callable[[Array], Array],
    remainder: Callable[[Array], Array],
    b: Array,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array, Array, float]:
    """The same where F need not be symmetric: GMRES, its residuals least in the norm of P^-1."""
    xp, start = namespace(b), solve(b)
    first = float(xp.sum(b * start)) ** 0.5
    x = Fx = xp.zeros_like(b)
    if not 0.0 < first < float("inf"):
        return x, Fx, b, 0.0
    basis, solved, images = [b / first], [start / first], []
    H, y = np.zeros((max_iter + 1, max_iter)), np.asarray([])
    left = 1.0
    for k in range(max_iter):
        images.append(remainder(solved[k]))
        w = basis[k] + images[k]
        z = solve(w)
        for _ in range(2):  # once more for what rounding left
            for j in range(k + 1):
                share = float(xp.sum(basis[j] * z))
                H[j, k] += share
                w, z = w - share * basis[j], z - share * solved[j]
        norm = float(xp.sum(w * z))
        if not (np.isfinite(norm) and np.isfinite(H[: k + 1, k]).all()):
            break
        H[k + 1, k] = norm = max(0.0, norm) ** 0.5
        right = np.zeros(k + 2)
        right[0] = first
        y = np.linalg.lstsq(H[: k + 2, : k + 1], right, rcond=None)[0]
        left = float(np.linalg.norm(right - H[: k + 2, : k + 1] @ y)) / first
        if left <= tol or norm <= 1e-14 * first:
            break
        basis.append(w / norm)
        solved.append(z / norm)
    inside = xp.zeros_like(b)
    for j, share in enumerate(y):
        x, Fx, inside = x + share * solved[j], Fx + share * images[j], inside + share * basis[j]
    return x, Fx, b - inside - Fx, left
