"""E' (E x) of a sparse E in CSR for several vectors at once, compiled: E is read once, and E x is never stored."""

from __future__ import annotations

import numpy as np

from .compiled import compiled


@compiled(fastmath=True)
def subtract_gram(indptr, indices, data, x, out):
    """Subtract E' (E x) from ``out``; x and out (n, m)."""
    m = x.shape[1]
    t = np.empty(m)
    for i in range(indptr.size - 1):
        t[:] = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            e, row = data[k], x[indices[k]]
            for q in range(m):
                t[q] += e * row[q]
        for k in range(indptr[i], indptr[i + 1]):
            e, row = data[k], out[indices[k]]
            for q in range(m):
                row[q] -= e * t[q]
