"""Symbolic analysis of a sparse Cholesky factorisation, compiled by numba: tree, order, supernodes, positions.

Columns are in a postorder of the elimination tree and are grouped into supernodes: runs of w columns with the same r
rows below them. The panel of a supernode is (w + r) x w, and its rows have known positions in the parent's front.

``find_pairs`` finds the positions of pairs of entries of each design row in a pattern or in a factorisation's storage.
There ``add_pairs`` is x += W' diag(w) W, each pair once, and ``pair_forms`` is diag(W Z W').

Plain loops over plain arrays: for an assignment between slices numba compiles the formatting of its error message,
which takes longer than all of this file.
"""

from __future__ import annotations

import numpy as np

from .compiled import called_by_loops, compiled


@compiled
def elimination_tree(indptr, indices):
    """The parents (Liu's algorithm) for a symmetric matrix given by its full pattern; -1 at roots."""
    n = indptr.size - 1
    parent = np.full(n, -1, np.int64)
    ancestor = np.full(n, -1, np.int64)
    for j in range(n):
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            while i != -1 and i < j:
                following = ancestor[i]
                ancestor[i] = j
                if following == -1:
                    parent[i] = j
                i = following
    return parent


@compiled
def postorder(parent):
    """An order of the nodes with children before parents and contiguous subtrees."""
    n = parent.size
    head = np.full(n, -1, np.int64)
    following = np.full(n, -1, np.int64)
    for j in range(n - 1, -1, -1):
        if parent[j] != -1:
            following[j] = head[parent[j]]
            head[parent[j]] = j
    out = np.empty(n, np.int64)
    stack = np.empty(n, np.int64)
    k = 0
    for root in range(n):
        if parent[root] != -1:
            continue
        top = 0
        stack[0] = root
        while top >= 0:
            j = stack[top]
            child = head[j]
            if child == -1:
                out[k] = j
                k += 1
                top -= 1
            else:
                head[j] = following[child]
                top += 1
                stack[top] = child
    return out


@compiled
def column_counts(indptr, indices, parent, most):
    """The number of entries of each column of L with its diagonal, and whether all are counted.

    Each row walks through its subtree once, O(nnz L); the count stops after ``most`` entries.
    """
    n = parent.size
    count = np.ones(n, np.int64)
    mark = np.full(n, -1, np.int64)
    total = n
    for i in range(n):
        mark[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            if j >= i:
                continue
            while mark[j] != i:
                mark[j] = i
                count[j] += 1
                total += 1
                j = parent[j]
        if total > most:
            return count, False
    return count, True


@compiled
def fundamental_supernodes(parent, count):
    """First columns of the runs of columns whose patterns are nested, followed by n."""
    n = parent.size
    start = np.empty(n + 1, np.int64)
    k = 0
    for j in range(n):
        if j == 0 or parent[j - 1] != j or count[j] != count[j - 1] - 1:
            start[k] = j
            k += 1
    start[k] = n
    return start[: k + 1]


@compiled
def worth_merging(width, zeros, size):
    """Whether storing zeros is cheaper than another small panel."""
    if width <= 8:
        return zeros <= 0.6 * size
    if width <= 32:
        return zeros <= 0.25 * size
    return zeros <= 0.08 * size


@compiled
def supernodes(indptr, indices, start, total):
    """Merge fundamental supernodes if it pays; returns first columns, row pointers and rows below, unsorted.

    ``total`` bounds the number of rows of all fundamental supernodes. The caller sorts the rows, since compiling a sort
    in numba takes most of a second.
    """
    n = indptr.size - 1
    m = start.size - 1
    rows = np.empty(total, np.int64)
    rows_start = np.zeros(m + 1, np.int64)
    lowest = np.full(m, n, np.int64)  # lowest row below each
    mark = np.full(n, -1, np.int64)
    owner = np.empty(n, np.int64)
    for k in range(m):
        owner[start[k] : start[k + 1]] = k
    child_head = np.full(m, -1, np.int64)
    child_next = np.full(m, -1, np.int64)
    for k in range(m):
        a, b = start[k], start[k + 1]
        p = rows_start[k]
        for j in range(a, b):
            mark[j] = k
        for j in range(a, b):
            for q in range(indptr[j], indptr[j + 1]):
                i = indices[q]
                if i >= b and mark[i] != k:
                    mark[i] = k
                    rows[p] = i
                    p += 1
        c = child_head[k]
        while c != -1:
            for q in range(rows_start[c], rows_start[c + 1]):
                i = rows[q]
                if i >= b and mark[i] != k:
                    mark[i] = k
                    rows[p] = i
                    p += 1
            c = child_next[c]
        rows_start[k + 1] = p
        for q in range(rows_start[k], p):
            lowest[k] = min(lowest[k], rows[q])
        if p > rows_start[k]:
            up = owner[lowest[k]]
            child_next[k] = child_head[up]
            child_head[up] = k
    # a supernode may absorb the previous one if that is its child: their union has the parent's rows
    first = np.empty(m, np.int64)
    source = np.empty(m, np.int64)
    exact = np.empty(m, np.float64)
    top = -1
    for k in range(m):
        w, r = start[k + 1] - start[k], rows_start[k + 1] - rows_start[k]
        a, true = start[k], w * (w + 1) / 2.0 + w * r
        while top >= 0:
            c = source[top]
            if lowest[c] >= start[k + 1]:  # no rows below, or only in a later supernode
                break
            width = start[k + 1] - first[top]
            size = width * (width + 1) / 2.0 + width * r
            if not worth_merging(width, size - true - exact[top], size):
                break
            true += exact[top]
            a = first[top]
            top -= 1
        top += 1
        first[top], source[top], exact[top] = a, k, true
    count = top + 1
    out_start = np.empty(count + 1, np.int64)
    out_ptr = np.zeros(count + 1, np.int64)
    for k in range(count):
        out_start[k] = first[k]
        out_ptr[k + 1] = out_ptr[k] + rows_start[source[k] + 1] - rows_start[source[k]]
    out_start[count] = n
    out_rows = np.empty(out_ptr[count], np.int64)
    for k in range(count):
        for q in range(out_ptr[k + 1] - out_ptr[k]):
            out_rows[out_ptr[k] + q] = rows[rows_start[source[k]] + q]
    return out_start, out_ptr, out_rows


@compiled
def relations(start, ptr, rows):
    """The parent of each supernode, the positions of its rows in the parent's front, and its number of children."""
    m = start.size - 1
    n = start[m]
    owner = np.empty(n, np.int64)
    for k in range(m):
        owner[start[k] : start[k + 1]] = k
    parent = np.full(m, -1, np.int64)
    relative = np.empty(rows.size, np.int64)
    children = np.zeros(m, np.int64)
    for k in range(m):
        if ptr[k + 1] == ptr[k]:
            continue
        up = owner[rows[ptr[k]]]
        parent[k] = up
        children[up] += 1
        width, q = start[up + 1] - start[up], ptr[up]
        for p in range(ptr[k], ptr[k + 1]):
            i = rows[p]
            if i < start[up + 1]:
                relative[p] = i - start[up]
            else:
                while rows[q] < i:
                    q += 1
                relative[p] = width + q - ptr[up]
    return parent, relative, children


@compiled
def subtrees(parent, work):
    """For each supernode the first of its descendants, which come just before it, and the work of the whole subtree."""
    m = parent.size
    first = np.empty(m, np.int64)
    total = np.zeros(m)
    for k in range(m):
        first[k] = k
    for k in range(m):
        total[k] += work[k]
        if parent[k] != -1:
            total[parent[k]] += total[k]
            first[parent[k]] = min(first[parent[k]], first[k])
    return first, total


@compiled
def stack_sizes(nodes, owner, start, ptr, parent):
    """The stack sizes for updates and for fronts of the inverse, in a part of the tree."""
    top, up_peak, down_peak = 0, 0, 0
    pending = np.zeros(parent.size, np.int64)
    for k in nodes:
        r = ptr[k + 1] - ptr[k]
        up_peak = max(up_peak, top + r * r)
        top += r * r - pending[k]
        if parent[k] != -1 and owner[parent[k]] == owner[k]:
            pending[parent[k]] += r * r
    depth = np.zeros(parent.size, np.int64)
    for k in nodes[::-1]:
        size = start[k + 1] - start[k] + ptr[k + 1] - ptr[k]
        depth[k] = size * size
        if parent[k] != -1 and owner[parent[k]] == owner[k]:
            depth[k] += depth[parent[k]]
        down_peak = max(down_peak, depth[k])
    return up_peak, down_peak


@compiled
def positions(start, ptr, rows, panel, indptr, indices):
    """The position in the panels of each entry of the lower triangle; -1 above the diagonal."""
    out = np.full(indices.size, -1, np.int64)
    m = start.size - 1
    for k in range(m):
        w = start[k + 1] - start[k]
        for j in range(start[k], start[k + 1]):
            for p in range(indptr[j], indptr[j + 1]):
                i = indices[p]
                if i < j:
                    continue
                local = i - start[k]
                if i >= start[k + 1]:  # bisection
                    low, high = ptr[k], ptr[k + 1] - 1
                    while low < high:
                        middle = (low + high) // 2
                        if rows[middle] < i:
                            low = middle + 1
                        else:
                            high = middle
                    local = w + low - ptr[k]
                out[p] = panel[k] + local * w + (j - start[k])
    return out


# -- pairs of entries of the rows of a design --------------------------------------------------------------
@called_by_loops
def entry_of(indptr, indices, row, column):
    """The position of (row, column) in a csc pattern; -1 if it is not there."""
    low, high = indptr[column], indptr[column + 1] - 1
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low if low == high and indices[low] == row else -1


@compiled
def find_pairs(W_indptr, W_indices, indptr, indices, everywhere, ptr, place):
    """Fill ``place``; ``ptr`` counts pairs by row. Of two mirrored positions the one below the diagonal is taken."""
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
def find_pairs_below(W_indptr, W_indices, indptr, indices, ptr, place):
    """Fill ``place`` from the csc pattern of a lower triangle; False if a pair is missing. Columns of W ascend.

    Columns in every row (fixed effects) come last, at the end of each column of the pattern. A pair there is next to
    the previous pair; other pairs are found by bisection.
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
def add_pairs(indptr, data, ptr, place, weight, x):
    """x += W' diag(weight) W."""
    for n in range(indptr.size - 1):
        w, q, first = weight[n], ptr[n], indptr[n]
        for a in range(first, indptr[n + 1]):
            c = w * data[a]
            for b in range(first, a + 1):
                x[place[q]] += c * data[b]
                q += 1


@compiled
def pair_forms(indptr, data, ptr, place, z, start, stop, out):
    """diag(W Z W') for rows ``start`` to ``stop``."""
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


@compiled
def pair_places(W_indptr, W_indices, W_data, indptr, indices, ptr, place, product):
    """For each ordered pair (i, j) of entries of each row of W, its position in a csc pattern, and the product.

    ``ptr`` counts pairs by row. Returns the rows whose pairs are all in the pattern.
    """
    n = W_indptr.size - 1
    whole = np.ones(n, np.bool_)
    for row in range(n):
        p = ptr[row]
        for a in range(W_indptr[row], W_indptr[row + 1]):
            for b in range(W_indptr[row], W_indptr[row + 1]):
                position = entry_of(indptr, indices, W_indices[a], W_indices[b])
                if position < 0:
                    whole[row] = False
                place[p] = max(position, 0)
                product[p] = W_data[a] * W_data[b]
                p += 1
    return whole
