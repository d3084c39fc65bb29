"""Compiled loops over pairs of rows."""

from __future__ import annotations

import numpy as np

from .compiled import compiled


@compiled(fastmath=True)
def squared_distances(X: np.ndarray, Zt: np.ndarray, out: np.ndarray) -> None:
    """out_ij = sum_d (X_id - Zt_dj)^2 for X (n, D) and the transposed other rows Zt (D, m), both contiguous."""
    n, D = X.shape
    for i in range(n):
        row = out[i]
        x = X[i, 0] if D else 0.0
        for j in range(row.size):
            away = x - Zt[0, j]
            row[j] = away * away
        for d in range(1, D):
            x = X[i, d]
            for j in range(row.size):
                away = x - Zt[d, j]
                row[j] += away * away
