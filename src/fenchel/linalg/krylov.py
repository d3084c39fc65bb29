"""Preconditioned conjugate gradients for many right sides at once, each with its own steps.

    solve C x = b,    M ~ C the preconditioner,    stop where |b - C x|_{M^-1} <= tol |b|_{M^-1}

The steps a_j and ratios b_j of a column are Lanczos' method on K = M^-1/2 C M^-1/2 from M^-1/2 b: they are kept, and
``lanczos.py`` makes quadratures of them. C and M are met through products alone. Columns are worked on together until
the last has converged; one that has is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Product = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Solved:
    """What conjugate gradients found.

    Attributes
    ----------
    x : array (n, m)
    residual : array (n, m)
        b - C x, as the recursion has it.
    steps, ratios : arrays (k, m)
        a_j and b_j of each iteration.
    counts : int array (m,)
        How many of them belong to each column.
    relative : array (m,)
        |residual|_{M^-1} / |b|_{M^-1} at the end.
    size : array (m,)
        b' M^-1 b.
    """

    x: np.ndarray
    residual: np.ndarray
    steps: np.ndarray
    ratios: np.ndarray
    counts: np.ndarray
    relative: np.ndarray
    size: np.ndarray

    @property
    def iterations(self) -> int:
        """Of the slowest column."""
        return int(self.counts.max(initial=0))


def conjugate_gradients(
    apply: Product, precondition: Product, b: np.ndarray, tol: float, max_iter: int, start: np.ndarray | None = None
) -> Solved:
    """Solve C x = b for every column of b (n, m).

    Parameters
    ----------
    apply, precondition : callable
        x -> C x and r -> M^-1 r, for arrays (n, m).
    tol : float
        The residual's M^-1 norm relative to that of b.
    max_iter : int
    start : array (n, m), optional
        Where to begin; the coefficients are then those of its residual.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.diag([1.0, 2.0, 4.0])
    >>> found = conjugate_gradients(lambda x: C @ x, lambda r: r, np.ones((3, 1)), 1e-12, 10)
    >>> found.x.ravel().round(6), found.iterations
    (array([1.  , 0.5 , 0.25]), 3)
    """
    m = b.shape[1]
    x, r = (np.zeros_like(b), b.copy()) if start is None else (start.copy(), b - apply(start))
    z = precondition(r)
    rz = np.einsum("nm,nm->m", r, z)
    size = rz if start is None else np.einsum("nm,nm->m", b, precondition(b))
    goal = tol * tol * size
    p, live = z.copy(), rz > goal
    steps: list[np.ndarray] = []
    ratios: list[np.ndarray] = []
    counts = np.zeros(m, dtype=np.int64)
    while live.any() and len(steps) < max_iter:
        Cp = apply(p)
        curvature = np.einsum("nm,nm->m", p, Cp)
        live = live & (curvature > 0.0)  # rounding alone makes it negative: nothing is to be gained there
        step = np.where(live, rz / np.where(live, curvature, 1.0), 0.0)
        x += step * p
        r -= step * Cp
        z = precondition(r)
        new = np.einsum("nm,nm->m", r, z)
        ratio = np.where(live, new / np.where(live, rz, 1.0), 0.0)
        steps.append(step)
        ratios.append(ratio)
        counts += live
        rz = np.where(live, new, rz)
        live = live & (rz > goal)
        p *= ratio
        p += z
    shape = (len(steps), m)
    relative = np.sqrt(rz / np.where(size > 0.0, size, 1.0))
    return Solved(x, r, np.reshape(steps, shape), np.reshape(ratios, shape), counts, relative, size)
