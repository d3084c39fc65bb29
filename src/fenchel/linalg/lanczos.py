"""Quadratures for z' log(K) z by Lanczos' method, and bounds on log det K from its moments.

    z' f(K) z = |z|^2 sum_j w_j f(t_j) + error,     T = tridiagonal of Lanczos from z,  t_j its eigenvalues,
                                                    w_j the squares of the first entries of its eigenvectors
    f = log:  Gauss' rule lies above;  Gauss and Radau's, with a node a <= least eigenvalue of K, below

    tr K = n, tr K^2 <= n mu, a <= K:   0 >= log det K >= n (p log a + (1 - p) log t),   two points with these moments

``tridiagonals`` has T of several vectors by the coefficients of conjugate gradients (``krylov.py``):
T_jj = 1/a_j + b_{j-1}/a_{j-1},  T_{j,j+1} = sqrt(b_j)/a_j.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from .krylov import Solved

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Tridiagonal:
    """T of one vector: its diagonal (k,), the entries beside it (k - 1,), what would follow, and |z|^2."""

    diagonal: np.ndarray
    beside: np.ndarray
    following: float
    size: float

    def gauss(self, f: Function) -> float:
        """|z|^2 e_1' f(T) e_1."""
        return self.size * _rule(self.diagonal, self.beside, f)

    def radau(self, f: Function, node: float) -> float:
        """The same with a node where one is prescribed, below every eigenvalue of T."""
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


def tridiagonals(found: Solved) -> list[Tridiagonal]:
    """T of every column of a solve that began at 0, whose M^-1 norm is |z|^2."""
    out = []
    for j, k in enumerate(found.counts):
        if k == 0:  # b = 0, or a preconditioner that solves it before the first step
            out.append(Tridiagonal(np.ones(1), np.zeros(0), 0.0, float(found.size[j])))
            continue
        a, b = found.steps[:k, j], np.maximum(found.ratios[:k, j], 0.0)
        diagonal = 1.0 / a
        diagonal[1:] += b[:-1] / a[:-1]
        off = np.sqrt(b) / a
        out.append(Tridiagonal(diagonal, off[:-1], float(off[-1]), float(found.size[j])))
    return out


def log_det_bounds(n: int, squares: float, lowest: float) -> tuple[float, float]:
    """Bounds of log det K for a symmetric K (n, n) with tr K = n.

    Parameters
    ----------
    squares : float
        At least tr K^2, the sum of the squares of its entries.
    lowest : float
        At most its least eigenvalue, above 0.

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
    # log t lies above its interpolant of degree 2 through a (once) and t (twice): equal to it at these two points
    other = (second - lowest) / (1.0 - lowest)
    share = (other - 1.0) / (other - lowest)
    return n * (share * np.log(lowest) + (1.0 - share) * np.log(other)), 0.0
