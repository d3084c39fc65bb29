"""Compiled passes that find the leaves of a sparse matrix and the positions of its entries; ``leaves.py`` calls them.

twins         columns with the same neighbours, from a hash table and then by comparison of entries
independent   blocks that are not connected to any block taken before
runs          sequences of blocks that are not connected to each other
places        position of each entry among squares, panels and the rest
"""

from __future__ import annotations

import numpy as np

from .compiled import called_by_loops, compiled


@called_by_loops
def same_rows(indptr, indices, a, b):
    """Whether columns a and b have the same rows."""
    count = indptr[a + 1] - indptr[a]
    if indptr[b + 1] - indptr[b] != count:
        return False
    p = 0
    while p < count and indices[indptr[a] + p] == indices[indptr[b] + p]:
        p += 1
    return p == count


@compiled
def twins(indptr, indices, mark):
    """Group columns by their pattern; returns all columns, group by group by first column, and where groups begin.

    ``mark`` (n,) has a random number for each row; the hash of a column is the sum over its rows.
    """
    n = indptr.size - 1
    size = 1
    while size < 2 * n:
        size *= 2
    table = np.full(size, -1, np.int64)
    head, group = np.empty(n, np.int64), np.empty(n, np.int64)
    hashes = np.empty(n, np.uint64)
    m = 0
    for j in range(n):
        total = np.uint64(0)
        for p in range(indptr[j], indptr[j + 1]):
            total += mark[indices[p]]
        slot = np.int64(total & np.uint64(size - 1))
        while table[slot] != -1:
            k = table[slot]
            if hashes[k] == total and same_rows(indptr, indices, head[k], j):
                break
            slot = (slot + 1) & (size - 1)
        if table[slot] == -1:
            table[slot], head[m], hashes[m] = m, j, total
            m += 1
        group[j] = table[slot]
    first = np.zeros(m + 1, np.int64)
    for j in range(n):
        first[group[j] + 1] += 1
    for k in range(m):
        first[k + 1] += first[k]
    members, at = np.empty(n, np.int64), first[:m].copy()
    for j in range(n):
        members[at[group[j]]] = j
        at[group[j]] += 1
    return members, first


@compiled
def independent(indptr, indices, block, members, first, order):
    """Take blocks in ``order``; 1 for each that is connected to none taken before, 0 for the others."""
    m = first.size - 1
    state = np.full(m, -1, np.int8)
    for t in range(m):
        k = order[t]
        if state[k] != -1:
            continue
        state[k] = 1
        j = members[first[k]]
        for p in range(indptr[j], indptr[j + 1]):
            other = block[indices[p]]
            if other != k:
                state[other] = 0
    return state


@compiled
def runs(indptr, indices, block, members, first):
    """The run of each block, in the order of first columns: a run ends before a block connected to another in it."""
    m = first.size - 1
    out = np.empty(m, np.int64)
    began, run = 0, 0
    for k in range(m):
        j = members[first[k]]
        for p in range(indptr[j], indptr[j + 1]):
            other = block[indices[p]]
            if began <= other < k:
                began, run = k, run + 1
                break
        out[k] = run
    return out


@compiled
def below(indptr, indices, leaf, place, heads, n_leaves):
    """Pointers and sorted remaining rows of each leaf, from its first column."""
    m = heads.size
    ptr = np.zeros(m + 1, np.int64)
    for k in range(m):
        ptr[k + 1] = ptr[k]
        for p in range(indptr[heads[k]], indptr[heads[k] + 1]):
            ptr[k + 1] += leaf[indices[p]] < 0
    rows = np.empty(ptr[m], np.int64)
    for k in range(m):
        q = ptr[k]
        for p in range(indptr[heads[k]], indptr[heads[k] + 1]):
            i = indices[p]
            if leaf[i] < 0:
                rows[q] = place[i] - n_leaves  # csc rows ascend, and so do their positions
                q += 1
    return ptr, rows


@compiled
def places(indptr, indices, leaf, place, start, square, panel, n_leaves, size, n_border):
    """Position of each entry of A.data: in squares, panels, or the lower triangle of the remaining matrix."""
    out = np.empty(indices.size, np.int64)
    seen = np.zeros(indptr.size - 1, np.int64)  # rows of each leaf column visited so far; both orders ascend
    for j in range(indptr.size - 1):
        k, at = leaf[j], place[j]
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            if k >= 0:
                w = start[k + 1] - start[k]
                if leaf[i] >= 0:  # both are in one square
                    out[p] = square[k] + (place[i] - start[k]) * w + at - start[k]
                else:
                    out[p] = panel[k] + seen[j] * w + at - start[k]
                    seen[j] += 1
            elif leaf[i] < 0:
                low, high = min(at, place[i]) - n_leaves, max(at, place[i]) - n_leaves
                out[p] = size + high * n_border + low
    for j in range(indptr.size - 1):
        seen[j] = 0
    for j in range(indptr.size - 1):
        if leaf[j] >= 0:
            continue
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            k = leaf[i]
            if k >= 0:
                out[p] = panel[k] + seen[i] * (start[k + 1] - start[k]) + place[i] - start[k]
                seen[i] += 1
    return out
