"""Entries of a sparse factor counted column by column, compiled, and given up where they are too many."""

from __future__ import annotations

import numpy as np

from .compiled import compiled


@compiled
def counts_up_to(indptr, indices, parent, most):
    """Entries of each column of the factor of a csc pattern with the elimination tree ``parent``; whether all are in.

    Row by row, each entry of the factor is visited once; after ``most`` of them it stops.
    """
    n = parent.size
    count = np.ones(n, np.int64)
    mark = np.full(n, -1, np.int64)
    total = n
    for i in range(n):
        mark[i] = i
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            while j < i and mark[j] != i:
                mark[j] = i
                count[j] += 1
                total += 1
                j = parent[j]
                if j < 0:
                    break
        if total > most:
            return count, False
    return count, True
