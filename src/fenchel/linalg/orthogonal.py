"""Roots of I + X' diag(lam) X by orthogonal factorisation of its rows: no number is squared, half as many digits go.

(Lam^1/2 X; I) = Q R,    L = R'         errors of eps sqrt(cond), where a Cholesky factorisation has eps cond
"""

from __future__ import annotations

import numpy as np

AT_MOST = 1_000_000  # entries of X: it takes some four times a product X' X, and a copy


def root_by_rows(X: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """L lower triangular with L L' = I + X' diag(lam) X, for X (N, L) and lam (N,) >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.linalg.orthogonal import root_by_rows
    >>> L = root_by_rows(np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]]), np.full(2, 1e14))
    >>> round(2.0 * float(np.log(np.diagonal(L)).sum()), 6)  # log(4e14 + 1e10) = log|I + X' Lam X|
    33.622511
    """
    n = X.shape[1]
    R = np.asarray(np.linalg.qr(np.vstack([np.sqrt(lam)[:, None] * X, np.eye(n)]), mode="r"))
    return np.ascontiguousarray((R * np.where(np.diagonal(R) < 0.0, -1.0, 1.0)[:, None]).T)
