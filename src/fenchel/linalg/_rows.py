"""Passes over the rows of a sparse X in CSR, compiled: pairs of entries of a row, and nothing else, are visited.

pairs      [X, 1]' diag(w) [X, 1] in N k^2/2 products for k entries a row: above the diagonal, and its last row
forms      [x, 1]' Q [x, 1] of each row, for a symmetric Q, in as many

subtract_gram, row_inner and coupling_squares are of a precision's coupling E: E' (E x) of several vectors at once, for
which E is read once and E x never stored.

The indices of a row rise.
"""

from __future__ import annotations

import numpy as np

from .compiled import compiled


@compiled
def pairs(indptr, indices, data, weight, start, stop, out):
    """Add the pairs of the rows ``start`` to ``stop`` to ``out`` (D + 1, D + 1), each once."""
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
    """Below the diagonal what stands above it, in tiles that stay in cache."""
    n, tile = G.shape[0], 32
    for i in range(0, n, tile):
        for j in range(i, n, tile):
            for k in range(i, min(n, i + tile)):
                for m in range(max(j, k + 1), min(n, j + tile)):
                    G[m, k] = G[k, m]


@compiled
def forms(indptr, indices, data, Q, start, stop, out):
    """[x, 1]' Q [x, 1] of the rows ``start`` to ``stop``; the least of them relative to what was added up."""
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
