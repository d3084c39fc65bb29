"""Compiled passes over the rows of a sparse X in CSR that visit only pairs of entries of a row.

pairs      [X, 1]' diag(w) [X, 1]: the upper triangle and the last row, N k^2/2 products for k entries in a row
forms      [x, 1]' Q [x, 1] for each row and a symmetric Q, with as many products

subtract_gram, row_inner and coupling_squares compute with the coupling E of a precision: E' (E x) for several vectors
reads E once and does not store E x.

The indices of each row are sorted.
"""

from __future__ import annotations

import numpy as np

from .compiled import compiled


@compiled
def pairs(indptr, indices, data, weight, start, stop, out):
    """Add the pairs of rows ``start`` to ``stop`` to ``out`` (D + 1, D + 1), each pair once."""
    D = out.shape[0] - 1
    edge = out[D]
    for n in range(start, stop):
        w = weight[n]
        end = indptr[n + 1]
        for i in range(indptr[n], end):
            x = w * data[i]
            line = out[indices[i]]
            for j in range(i, end):
                line[indices[j]] += x * data[j]
            edge[indices[i]] += x
        edge[D] += w


@compiled
def mirror(G):
    """Copy what is above the diagonal below it, in tiles that fit in the cache."""
    n, tile = G.shape[0], 32
    for i in range(0, n, tile):
        for j in range(i, n, tile):
            for k in range(i, min(n, i + tile)):
                for m in range(max(j, k + 1), min(n, j + tile)):
                    G[m, k] = G[k, m]


@compiled
def forms(indptr, indices, data, Q, start, stop, out):
    """[x, 1]' Q [x, 1] for rows ``start`` to ``stop``; returns the smallest relative to the sum of absolute terms."""
    D = Q.shape[0] - 1
    edge = Q[D]
    least = np.inf
    for n in range(start, stop):
        end = indptr[n + 1]
        total, size = edge[D], abs(edge[D])
        for i in range(indptr[n], end):
            line, x = Q[indices[i]], data[i]
            own = x * line[indices[i]]
            part = edge[indices[i]]
            for j in range(i + 1, end):
                part += line[indices[j]] * data[j]
            total += x * (own + 2.0 * part)
            size += abs(x * own)
        out[n] = total
        if total < least * size:
            least = total / size
    return least


@compiled(fastmath=True)
def subtract_gram(indptr, indices, data, x, out):
    """Subtract E' (E x) from ``out`` for x and out (n, m)."""
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
    """out_n = sum_k (A left)_nk (A right)_nk for each row n of A: out (N,); left and right (L, m)."""
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
    """The sum of squares of entries of F - E' E that join different blocks, for E by rows and by columns.

    ``block`` (n,) is the block of each column, and ``off`` is F by rows.
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
                    if count == n:  # an entry that cancelled to 0 and reappeared: a full cycle
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
