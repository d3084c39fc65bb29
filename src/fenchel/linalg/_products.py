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


@compiled(fastmath=True)
def row_inner(indptr, indices, data, left, right, out):
    """Add up (A left)_nk (A right)_nk over k for each row n of A: out (N,); left and right (L, m)."""
    m = left.shape[1]
    s, t = np.empty(m), np.empty(m)
    for n in range(indptr.size - 1):
        s[:] = 0.0
        t[:] = 0.0
        for k in range(indptr[n], indptr[n + 1]):
            a, j = data[k], indices[k]
            first, second = left[j], right[j]
            for q in range(m):
                s[q] += a * first[q]
                t[q] += a * second[q]
        total = 0.0
        for q in range(m):
            total += s[q] * t[q]
        out[n] = total


@compiled
def coupling_squares(indptr, indices, data, back_ptr, back, back_data, off_ptr, off, off_data, block):
    """The sum of squares of the entries of F - E' E that join different blocks, E by rows and by columns.

    ``block`` (n,) says which block a column belongs to, ``off`` is F by rows.
    """
    n = block.size
    row = np.zeros(n)
    seen = np.empty(n, np.int64)
    total = 0.0
    for j in range(n):
        count = 0
        for k in range(off_ptr[j], off_ptr[j + 1]):
            c = off[k]
            if row[c] == 0.0:
                seen[count] = c
                count += 1
            row[c] += off_data[k]
        for k in range(back_ptr[j], back_ptr[j + 1]):
            i, e = back[k], back_data[k]
            for q in range(indptr[i], indptr[i + 1]):
                c = indices[q]
                if row[c] == 0.0:
                    if count == n:  # entries that cancelled to 0 and came back: once around
                        count = 0
                        for r in range(n):
                            if row[r] != 0.0:
                                seen[count] = r
                                count += 1
                    seen[count] = c
                    count += 1
                row[c] -= e * data[q]
        for k in range(count):
            c = seen[k]
            if block[c] != block[j]:
                total += row[c] * row[c]
            row[c] = 0.0
    return total
