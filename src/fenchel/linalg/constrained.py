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

from .sparse import SparseCholesky


class ConstrainedCholesky:
    """What ``SparseCholesky`` answers, under constraints.

    Parameters
    ----------
    base : SparseCholesky
        Of A + delta E E'.
    U : array (n, m)
        [E, C']; the last ``n_constraints`` columns are C'.
    K : array (m,)
        -delta for each column of E, kappa for each of C'.
    """

    def __init__(self, base: SparseCholesky, U: np.ndarray, K: np.ndarray, n_constraints: int) -> None:
        self.base, self.U, self.n = base, U, base.n
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
    def symbolic(self) -> Any:
        return self.base.symbolic

    @property
    def log_det_rounding(self) -> float:
        """What rounding did to log|.|: that of the base."""
        return self.base.log_det_rounding

    def _correct(self, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return x - self.G @ (self.H @ (self.G.T @ b))

    def solve(self, b: Any) -> np.ndarray:
        """V b."""
        b = np.asarray(b, dtype=np.float64)
        return self._correct(self.base.solve(b), b)

    def correction(self, W: Any) -> np.ndarray:
        """diag(W G H G' W')."""
        WG = W @ self.G
        return np.sum((WG @ self.H) * WG, axis=1)

    def inverse_diagonal(self) -> np.ndarray:
        """diag V."""
        return self.base.inverse_diagonal() - np.sum((self.G @ self.H) * self.G, axis=1)

    def inverse_data(self) -> np.ndarray:
        """V on the pattern, in the order of ``SparseCholesky.inverse_data``."""
        S = self.base.symbolic
        columns = np.repeat(np.arange(S.n), np.diff(S.indptr))
        return self.base.inverse_data() - np.sum((self.G @ self.H)[S.indices] * self.G[columns], axis=1)

    def sample(self, noise: Any) -> np.ndarray:
        """Draws with covariance V from standard normal noise (n, k), by conditioning draws of the base."""
        x = self.base.sample(noise)
        columns = x.reshape(self.n, -1)
        inverse = np.linalg.inv(self._UG)
        values, vectors = np.linalg.eigh((inverse + inverse.T) / 2 - self.H)
        values = np.where(values > 1e-12 * np.abs(values).max(), values, 0.0)  # what the constraints fix does not move
        root = vectors * np.sqrt(values)
        # the part of x outside span(G) is right already and independent of U'x, whose own randomness, made standard
        # normal by its Cholesky factor, redraws the part inside
        seen = self.U.T @ columns
        fresh = np.linalg.solve(np.linalg.cholesky((self._UG + self._UG.T) / 2), seen)
        return (columns - self.G @ (inverse @ seen) + self.G @ (root @ fresh)).reshape(x.shape)
