"""Preconditioned conjugate gradients for one or many right-hand sides, and quadratures from their coefficients.

``conjugate_gradients`` and ``minimal_residuals`` solve (P + F) x = b, where P^-1 and F are cheap to apply. Each search
direction is a combination of vectors z = P^-1 r, so that (P + F) z = r + F z needs neither P nor its factor. P^-1 may
be singular (a softmax with symmetric latents), which scipy's cg does not support.

``solve_columns`` solves for many right-hand sides and returns their coefficients:

    solve C x = b,    M ~ C the preconditioner,    until |b - C x|_{M^-1} <= tol |b|_{M^-1}

The coefficients a_j and b_j of a column are those of Lanczos' method on K = M^-1/2 C M^-1/2 from z = M^-1/2 b. They
give its tridiagonal matrix T, T_jj = 1/a_j + b_{j-1}/a_{j-1} and T_{j,j+1} = sqrt(b_j)/a_j, and T gives quadratures:

    z' f(K) z = |z|^2 sum_j w_j f(t_j) + error,     t_j the eigenvalues of T,
                                                    w_j the squares of the first entries of its eigenvectors
    f = log:  Gauss' rule is an upper bound;  Gauss-Radau with a node a <= least eigenvalue of K a lower bound

    tr K = n, tr K^2 <= n mu, a <= K:   0 >= log det K >= n (p log a + (1 - p) log t),   two points with these moments

C and M are used only through products. Iterations are done for all columns together until the last one has converged;
a converged column no longer changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from .arrays import Array, inner, namespace

_GROWTH = 1e4  # factor of growth of the squared residual over its minimum at which conjugate gradients stop

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class KrylovSolution:
    """The result of ``solve_columns``.

    Attributes
    ----------
    x : array (n, m)
    steps, ratios : arrays (k, m)
        Coefficients a_j and b_j of each iteration.
    counts : int array (m,)
        The number of iterations of each column.
    size : array (m,)
        b' M^-1 b.
    """

    x: np.ndarray
    steps: np.ndarray
    ratios: np.ndarray
    counts: np.ndarray
    size: np.ndarray

    @property
    def iterations(self) -> int:
        """The number of iterations of the slowest column."""
        return int(self.counts.max(initial=0))


def solve_columns(
    apply: Function, precondition: Function, b: np.ndarray, tol: float, max_iter: int, start: np.ndarray | None = None
) -> KrylovSolution:
    """Solve C x = b for each column of b (n, m).

    Parameters
    ----------
    apply, precondition : callable
        x -> C x and r -> M^-1 r, for arrays (n, m).
    tol : float
        The residual's M^-1 norm relative to that of b.
    max_iter : int
    start : array (n, m), optional
        Starting point; the coefficients are then those of its residual.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.diag([1.0, 2.0, 4.0])
    >>> found = solve_columns(lambda x: C @ x, lambda r: r, np.ones((3, 1)), 1e-12, 10)
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
        live = live & (curvature > 0.0)  # negative only by rounding, where no progress is possible
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
    return KrylovSolution(x, np.reshape(steps, shape), np.reshape(ratios, shape), counts, size)


@dataclass(frozen=True)
class Tridiagonal:
    """T of one vector: its diagonal (k,), its off-diagonal (k - 1,), the next off-diagonal entry, and |z|^2."""

    diagonal: np.ndarray
    beside: np.ndarray
    following: float
    size: float

    def gauss(self, f: Function) -> float:
        """|z|^2 e_1' f(T) e_1."""
        return self.size * _rule(self.diagonal, self.beside, f)

    def radau(self, f: Function, node: float) -> float:
        """The same quadrature with a prescribed node below all eigenvalues of T."""
        if self.following <= 0.0:
            return self.gauss(f)
        pivot = self.diagonal[0] - node  # the last pivot of T - node
        for d, e in zip(self.diagonal[1:], self.beside, strict=True):
            pivot = d - node - e * e / pivot
        last = node + self.following**2 / pivot
        return self.size * _rule(np.r_[self.diagonal, last], np.r_[self.beside, self.following], f)


def _rule(diagonal: np.ndarray, beside: np.ndarray, f: Function) -> float:
    t, U = scipy.linalg.eigh_tridiagonal(diagonal, beside) if diagonal.size > 1 else (diagonal, np.ones((1, 1)))
    return float(U[0] ** 2 @ f(np.maximum(t, np.finfo(float).tiny)))


def tridiagonals(solution: KrylovSolution) -> list[Tridiagonal]:
    """T for each column of a solve that began at 0; |z|^2 is the squared M^-1 norm of the column."""
    out = []
    for j, k in enumerate(solution.counts):
        if k == 0:  # b = 0, or solved by the preconditioner before the first step
            out.append(Tridiagonal(np.ones(1), np.zeros(0), 0.0, float(solution.size[j])))
            continue
        a, b = solution.steps[:k, j], np.maximum(solution.ratios[:k, j], 0.0)
        diagonal = 1.0 / a
        diagonal[1:] += b[:-1] / a[:-1]
        off = np.sqrt(b) / a
        out.append(Tridiagonal(diagonal, off[:-1], float(off[-1]), float(solution.size[j])))
    return out


def log_det_bounds(n: int, squares: float, lowest: float) -> tuple[float, float]:
    """Bounds of log det K for a symmetric K (n, n) with tr K = n.

    Parameters
    ----------
    squares : float
        Upper bound of tr K^2, the sum of squares of its entries.
    lowest : float
        Positive lower bound of the least eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> low, high = log_det_bounds(2, (K**2).sum(), 0.4)
    >>> bool(low <= np.linalg.slogdet(K)[1] <= high)
    True
    """
    if n == 0:
        return 0.0, 0.0
    second = max(squares / n, 1.0)
    if lowest >= 1.0 or second == 1.0:
        return 0.0, 0.0
    # log t is above its quadratic interpolant through a (once) and t (twice), with equality at these two points
    other = (second - lowest) / (1.0 - lowest)
    share = (other - 1.0) / (other - lowest)
    return n * (share * np.log(lowest) + (1.0 - share) * np.log(other)), 0.0


def conjugate_gradients(
    solve: Callable[[Array], Array],
    remainder: Callable[[Array], Array],
    b: Array,
    tol: float,
    max_iter: int,
    solved: Array | None = None,
) -> tuple[Array, Array, Array, float]:
    """x, F x, the residual b - (P + F) x, and the reduction of its P^-1 norm.

    ``solve`` applies P^-1 and ``remainder`` applies F; ``solved`` is P^-1 b where it is known. Stops when the norm is
    reduced by ``tol``, or when it grows because rounding makes the operator indefinite; the caller sees this from the
    reduction and uses another method.
    """
    r, z = b, solve(b) if solved is None else solved
    x = Fx = p = Fp = Ap = 0.0 * b
    rz, ratio = inner(r, z), 0.0
    first = lowest = rz
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(max_iter):
            if not tol * tol * first < rz < _GROWTH * lowest:
                break
            Fz = remainder(z)
            p, Fp, Ap = z + ratio * p, Fz + ratio * Fp, r + Fz + ratio * Ap
            curvature = inner(p, Ap)
            if not 0.0 < curvature < float("inf"):
                break
            step = rz / curvature
            x, Fx, r = x + step * p, Fx + step * Fp, r - step * Ap
            z = solve(r)
            rz, before = inner(r, z), rz
            ratio, lowest = rz / before, min(rz, lowest)
    return x, Fx, r, (abs(rz) / first) ** 0.5 if first > 0.0 else 0.0


def minimal_residuals(
    solve: Callable[[Array], Array],
    remainder: Callable[[Array], Array],
    b: Array,
    tol: float,
    max_iter: int,
) -> tuple[Array, Array, Array, float]:
    """The same for F that need not be symmetric: GMRES, which minimises the P^-1 norm of residuals."""
    xp, start = namespace(b), solve(b)
    first = max(0.0, inner(b, start)) ** 0.5
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
        for _ in range(2):  # a second time for rounding errors
            for j in range(k + 1):
                share = inner(basis[j], z)
                H[j, k] += share
                w, z = w - share * basis[j], z - share * solved[j]
        norm = inner(w, z)
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
