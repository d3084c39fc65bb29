"""Passes over the rows of a sparse X in CSR, compiled: pairs of entries of a row, and nothing else, are visited.

pairs      [X, 1]' diag(w) [X, 1] in N k^2/2 products for k entries a row: above the diagonal, and its last row
forms      [x, 1]' Q [x, 1] of each row, for a symmetric Q, in as many

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
