"""Compiled passes over the pairs of entries of each row of a design, placed in the storage of a factorisation.

find    where each pair (i, j), i >= j in the row's order, stands: once for a pattern
below   the same for the lower triangle of a pattern, which is the storage itself
add     x += W' diag(w) W on the storage, each pair once
forms   diag(W Z W') from a symmetric Z on the storage: squares once, other pairs twice
"""

from __future__ import annotations

from .compiled import compiled


@compiled
def entry_of(indptr, indices, row, column):
    """Where (row, column) stands in a csc pattern, -1 where it does not."""
    low, high = indptr[column], indptr[column + 1] - 1
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low if low == high and indices[low] == row else -1


@compiled
def find(W_indptr, W_indices, indptr, indices, everywhere, ptr, place):
    """Fill ``place``; ``ptr`` counts pairs row by row. Of two mirrored places the later one, below a diagonal."""
    for n in range(W_indptr.size - 1):
        q = ptr[n]
        for a in range(W_indptr[n], W_indptr[n + 1]):
            i = W_indices[a]
            for b in range(W_indptr[n], a + 1):
                j = W_indices[b]
                if indptr[i + 1] - indptr[i] < indptr[j + 1] - indptr[j]:  # the shorter column is searched
                    place[q] = everywhere[entry_of(indptr, indices, j, i)]
                elif indptr[i + 1] - indptr[i] > indptr[j + 1] - indptr[j]:
                    place[q] = everywhere[entry_of(indptr, indices, i, j)]
                else:
                    first = everywhere[entry_of(indptr, indices, j, i)]
                    place[q] = max(first, everywhere[entry_of(indptr, indices, i, j)])
                q += 1


@compiled
def below(W_indptr, W_indices, indptr, indices, ptr, place):
    """Fill ``place`` by the csc pattern of a lower triangle; False where a pair is not in it. Columns of W ascend.

    Columns that every row has, fixed effects, come last, and stand at the end of each column of the pattern: there a
    pair is found beside the one before it, and others by bisection.
    """
    for n in range(W_indptr.size - 1):
        first, last = W_indptr[n], W_indptr[n + 1]
        for b in range(first, last):
            j = W_indices[b]
            start, end = indptr[j], indptr[j + 1] - 1
            for a in range(last - 1, b - 1, -1):
                i, low = W_indices[a], start
                if end >= low and indices[end] != i:
                    while low < end:
                        middle = (low + end) // 2
                        if indices[middle] < i:
                            low = middle + 1
                        else:
                            end = middle
                if end < start or indices[end] != i:
                    return False
                place[ptr[n] + (a - first) * (a - first + 1) // 2 + b - first] = end
                end -= 1
    return True


@compiled
def add(indptr, data, ptr, place, weight, x):
    """x += W' diag(weight) W."""
    for n in range(indptr.size - 1):
        w, q, first = weight[n], ptr[n], indptr[n]
        for a in range(first, indptr[n + 1]):
            c = w * data[a]
            for b in range(first, a + 1):
                x[place[q]] += c * data[b]
                q += 1


@compiled
def forms(indptr, data, ptr, place, z, start, stop, out):
    """diag(W Z W') of the rows ``start`` to ``stop``."""
    for n in range(start, stop):
        q, first, total = ptr[n], indptr[n], 0.0
        for a in range(first, indptr[n + 1]):
            s = 0.0
            for b in range(first, a):
                s += data[b] * z[place[q]]
                q += 1
            total += data[a] * (2.0 * s + data[a] * z[place[q]])
            q += 1
        out[n] = total
