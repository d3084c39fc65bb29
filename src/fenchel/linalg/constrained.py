"""A sparse Gaussian held to linear constraints C x = 0, its precision possibly singular on what they fix.

The covariance is that of N(0, A^-1) given C x = 0, where only A + C' C need be positive definite. What is factorised is
A_b = A + delta E E' (E marks one node for each constraint; none when A is proper). With U = [E, C'] and
K = diag(-delta, kappa), A_b + U K U' = A + kappa C' C, and everything is A_b^-1 minus a correction of low rank:

    V = A_b^-1 - G H G',   G = A_b^-1 U,   M = (K^-1 + U' G)^-1,   H = M + T R^-1 T'
    T = I_C - M (U' G)_C,  R = C (A + kappa C' C)^-1 C',   log|.| = log|A_b| + log|I + K U' G| + log|R|

Differences of this log-determinant are log|B|: exact for any delta and kappa, and nothing is made proper by a jitter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .arrays import ArrayLike
from .factorisation import Analysis, Factorisation

_ENTRIES = 2048  # of the pattern, corrected at a time


class ConstrainedCholesky:
    """A ``Factorisation`` under constraints.

    Parameters
    ----------
    base : Factorisation
        Of A + delta E E'.
    U : array (n, m)
        [E, C']; the last ``n_constraints`` columns are C'.
    K : array (m,)
        -delta for each column of E, kappa for each of C'.
    """

    def __init__(self, base: Factorisation, U: np.ndarray, K: np.ndarray, n_constraints: int) -> None:
        self.base, self.U, self.n = base, U, base.n
        self._C = U[:, U.shape[1] - n_constraints :]
        alone = np.count_nonzero(self._C, axis=0) == 1
        self._pinned = np.flatnonzero(self._C[:, alone].any(axis=1))  # held at 0 by a constraint of their own
        self._project = np.linalg.inv(self._C.T @ self._C)
        self.G = base.solve(U)
        self._UG = U.T @ self.G
        M = np.linalg.inv(np.diag(1.0 / K) + self._UG)
        last = slice(U.shape[1] - n_constraints, U.shape[1])
        T = np.eye(U.shape[1])[:, last] - M @ self._UG[:, last]
        R = (self._UG @ T)[last]
        self.H = M + T @ np.linalg.solve(R, T.T)
        self.H = (self.H + self.H.T) / 2
        sign, first = np.linalg.slogdet(np.eye(K.size) + K[:, None] * self._UG)
        sign_R, second = np.linalg.slogdet(R)
        self.proper = bool(sign > 0 and sign_R > 0 and np.isfinite(first + second))
        self.log_det = base.log_det + first + second

    @property
    def symbolic(self) -> Analysis:
        return self.base.symbolic

    @property
    def smallest_pivot(self) -> float:
        return self.base.smallest_pivot

    @property
    def log_det_rounding(self) -> float:
        """What rounding did to log|.|: that of the base."""
        return self.base.log_det_rounding

    def _correct(self, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return x - self.G @ (self.H @ (self.G.T @ b))

    def _projected(self, x: np.ndarray) -> np.ndarray:
        """x without its part along the constraints, on which V vanishes: there A_b^-1 is large and only cancels."""
        x = x - self._C @ (self._project @ (self._C.T @ x))
        x[self._pinned] = 0.0
        return x

    def solve(self, b: ArrayLike) -> np.ndarray:
        """V b."""
        b = self._projected(np.asarray(b, dtype=np.float64))
        return self._projected(self._correct(self.base.solve(b), b))

    def row_variances(self, W: Any, T: Any) -> np.ndarray:
        """diag(W V W'), T the map from the rows' weights to the entries of W' diag(.) W on the pattern."""
        if self._pinned.size:  # entry by entry, where those that are 0 can be
            return T.T @ self.inverse_data()
        WG = W @ self.G
        return T.T @ self.base.inverse_data() - np.sum((WG @ self.H) * WG, axis=1)

    def inverse_diagonal(self) -> np.ndarray:
        """diag V."""
        out = self.base.inverse_diagonal() - np.sum((self.G @ self.H) * self.G, axis=1)
        out[self._pinned] = 0.0
        return out

    def inverse_data(self) -> np.ndarray:
        """V on the pattern, in the order of ``SparseCholesky.inverse_data``."""
        return self._cleared(self._minus_products(np.array(self.base.inverse_data()), self.G @ self.H))

    @property
    def _columns(self) -> np.ndarray:
        S = self.base.symbolic
        return np.repeat(np.arange(S.n), np.diff(S.indptr))

    def _minus_products(self, out: np.ndarray, N: np.ndarray, both: bool = False) -> np.ndarray:
        """``out`` less N G' on the pattern, and less G N' if both are meant."""
        rows, columns = self.base.symbolic.indices, self._columns
        for a in range(0, out.size, _ENTRIES):  # what stays in cache
            i, j = rows[a : a + _ENTRIES], columns[a : a + _ENTRIES]
            out[a : a + _ENTRIES] -= np.einsum("ij,ij->i", N[i], self.G[j])
            if both:
                out[a : a + _ENTRIES] -= np.einsum("ij,ij->i", self.G[i], N[j])
        return out

    def _cleared(self, out: np.ndarray) -> np.ndarray:
        """Values on the pattern, 0 at what a constraint of its own holds."""
        if self._pinned.size:
            held = np.isin(np.arange(self.n), self._pinned)
            out[held[self.base.symbolic.indices] | held[self._columns]] = 0.0
        return out

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """V E V on the pattern, E by its values there: with F = A_b^-1 E G, M = H G' E G H and N = F H - G M / 2,

        V E V = A_b^-1 E A_b^-1 - N G' - G N'.
        """
        S = self.base.symbolic
        E = sp.csc_array((data, S.indices, S.indptr), shape=(S.n, S.n))
        EG = E @ self.G
        N = (self.base.solve(EG) - 0.5 * self.G @ (self.H @ (self.G.T @ EG))) @ self.H
        return self._cleared(self._minus_products(self.base.sandwich(data), N, both=True))

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """Draws with covariance V from standard normal noise (n, k), by conditioning draws of the base."""
        x = self.base.sample(noise)
        columns = x.reshape(self.n, -1)
        U, G, UG, H = self._independent()
        inverse = np.linalg.inv(UG)
        values, vectors = np.linalg.eigh((inverse + inverse.T) / 2 - H)
        values = np.where(values > 1e-12 * np.abs(values).max(), values, 0.0)  # what the constraints fix does not move
        root = vectors * np.sqrt(values)
        # the part of x outside span(G) is right already and independent of U'x, whose own randomness, made standard
        # normal by its Cholesky factor, redraws the part inside
        seen = U.T @ columns
        fresh = np.linalg.solve(np.linalg.cholesky((UG + UG.T) / 2), seen)
        return self._projected(columns - G @ (inverse @ seen) + G @ (root @ fresh)).reshape(x.shape)

    def _independent(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """U, G, U'G and H with columns of U that say the same (a pinned node's own and its constraint's) only once."""
        _, R, order = scipy.linalg.qr(self.U, mode="economic", pivoting=True)
        size = np.abs(np.diag(R))
        keep = np.sort(order[: int((size > 1e-10 * size[0]).sum())])
        if keep.size == self.U.shape[1]:
            return self.U, self.G, self._UG, self.H
        T = np.linalg.lstsq(self.U[:, keep], self.U, rcond=None)[0]
        return self.U[:, keep], self.G[:, keep], self._UG[np.ix_(keep, keep)], T @ self.H @ T.T
