"""Compiled loops of Vecchia's approximation: an order by nets, conditionals on neighbours, and the sum of them."""

from __future__ import annotations

import numpy as np

from ..linalg.compiled import compiled


@compiled
def _bucket(cell, mask):
    h = np.uint64(1469598103934665603)
    for k in range(cell.size):
        h = (h ^ np.uint64(cell[k])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(29)
    return np.int64(h & np.uint64(mask))


@compiled
def net_order(X, levels, radius, shrink):
    """An order in which every beginning is spread out: nets of points apart by radius, radius * shrink, ...

    A point joins the first net in which no point of it or of those before is nearer than that net's radius; points that
    share a bucket of the table without being near only cost a look.
    """
    n, d = X.shape
    size = 1
    while size < 2 * n:
        size *= 2
    order, taken = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    count, cell, near = 0, np.empty(d, dtype=np.int64), np.empty(d, dtype=np.int64)
    steps = 3**d
    for _ in range(levels):
        if count == n:
            break
        head, link = np.full(size, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
        for k in range(count):
            i = order[k]
            for j in range(d):
                cell[j] = np.int64(np.floor(X[i, j] / radius))
            b = _bucket(cell, size - 1)
            link[i] = head[b]
            head[b] = i
        for i in range(n):
            if taken[i]:
                continue
            for j in range(d):
                cell[j] = np.int64(np.floor(X[i, j] / radius))
            free = True
            for s in range(steps):
                rest = s
                for j in range(d):
                    near[j] = cell[j] + rest % 3 - 1
                    rest //= 3
                k = head[_bucket(near, size - 1)]
                while k >= 0:
                    gap = 0.0
                    for j in range(d):
                        gap += (X[i, j] - X[k, j]) ** 2
                    if gap < radius * radius:
                        free = False
                        break
                    k = link[k]
                if not free:
                    break
            if free:
                taken[i] = True
                order[count] = i
                count += 1
                b = _bucket(cell, size - 1)
                link[i] = head[b]
                head[b] = i
        radius *= shrink
    for i in range(n):
        if not taken[i]:
            order[count] = i
            count += 1
    return order


@compiled
def correlation(kind, r2):
    """c and dc/d(r^2) at squared distances in ranges; kinds 1, 2, 3 are Matern 1/2, 3/2, 5/2, and 0 is the RBF."""
    if kind == 0:
        c = np.exp(-2.0 * r2)
        return c, -2.0 * c
    if kind == 1:
        x = 2.0 * np.sqrt(r2)
        e = np.exp(-x)
        return e, -2.0 * e / max(x, 1e-150)
    if kind == 2:
        x = np.sqrt(12.0 * r2)
        e = np.exp(-x)
        return (1.0 + x) * e, -6.0 * e
    x = np.sqrt(20.0 * r2)
    e = np.exp(-x)
    return (1.0 + x + x * x / 3.0) * e, -10.0 / 3.0 * (1.0 + x) * e


@compiled
def _factorise(K, k):
    """The lower Cholesky factor of the leading k rows, in place."""
    for a in range(k):
        for b in range(a + 1):
            total = K[a, b]
            for c in range(b):
                total -= K[a, c] * K[b, c]
            if a == b:
                K[a, a] = np.sqrt(total) if total > 0.0 else 1e-150
            else:
                K[a, b] = total / K[b, b]


@compiled
def _solve(L, k, x):
    for a in range(k):
        for c in range(a):
            x[a] -= L[a, c] * x[c]
        x[a] /= L[a, a]
    for a in range(k - 1, -1, -1):
        for c in range(a + 1, k):
            x[a] -= L[c, a] * x[c]
        x[a] /= L[a, a]


@compiled
def conditionals(kind, nugget, Z, points, neighbours, slopes):
    """Weights (n, m) of neighbours and the variance (n,) they leave, at sd 1, and derivatives in the log ranges.

    Z (N, d) are inputs in ranges; ``points`` (n, d) condition on rows of Z, ``neighbours`` (n, m), -1 for none. With
    ``slopes`` the derivatives are (d, n, m) and (d, n); dr^2/dlog range_j = -2 (difference_j / range_j)^2.
    """
    n, m = neighbours.shape
    d = Z.shape[1]
    q = d if slopes else 0
    weights, left = np.zeros((n, m)), np.ones(n)
    d_weights, d_left = np.zeros((q, n, m)), np.zeros((q, n))
    K, D, c = np.empty((m, m)), np.empty((m, m)), np.empty(m)
    g, x = np.empty(m), np.empty(m)
    for i in range(n):
        k = 0
        while k < m and neighbours[i, k] >= 0:
            k += 1
        for a in range(k):
            p = neighbours[i, a]
            r2 = 0.0
            for j in range(d):
                r2 += (points[i, j] - Z[p, j]) ** 2
            c[a], g[a] = correlation(kind, r2)
            x[a] = c[a]
            for b in range(a):
                r2 = 0.0
                for j in range(d):
                    r2 += (Z[p, j] - Z[neighbours[i, b], j]) ** 2
                K[a, b], D[a, b] = correlation(kind, r2)
            K[a, a] = 1.0 + nugget
        _factorise(K, k)
        _solve(K, k, x)
        v = 1.0 + nugget
        for a in range(k):
            weights[i, a] = x[a]
            v -= x[a] * c[a]
        left[i] = max(v, 0.5 * nugget + 1e-14)
        for j in range(q):
            total = 0.0
            for a in range(k):  # y = dc - dK weights
                pa = neighbours[i, a]
                y = -2.0 * g[a] * (points[i, j] - Z[pa, j]) ** 2
                total -= 2.0 * weights[i, a] * y
                for b in range(k):
                    if b == a:
                        continue
                    slope = D[a, b] if b < a else D[b, a]
                    dK = -2.0 * slope * (Z[pa, j] - Z[neighbours[i, b], j]) ** 2
                    y -= dK * weights[i, b]
                    total += weights[i, a] * dK * weights[i, b]
                x[a] = y
            _solve(K, k, x)
            for a in range(k):
                d_weights[j, i, a] = x[a]
            d_left[j, i] = total
    return weights, left, d_weights, d_left


@compiled
def clique_pattern(neighbours):
    """Rows and columns of every pair within {i} and its neighbours, both triangles."""
    n, m = neighbours.shape
    total = 0
    for i in range(n):
        k = 1
        while k <= m and neighbours[i, k - 1] >= 0:
            k += 1
        total += k * k
    rows, columns, at = np.empty(total, dtype=np.int32), np.empty(total, dtype=np.int32), 0
    for i in range(n):
        for a in range(m + 1):
            ia = i if a == 0 else neighbours[i, a - 1]
            if ia < 0:
                break
            for b in range(m + 1):
                ib = i if b == 0 else neighbours[i, b - 1]
                if ib < 0:
                    break
                rows[at], columns[at] = ia, ib
                at += 1
    return rows, columns


@compiled
def _entry(indptr, indices, row, column):
    low, high = indptr[column], indptr[column + 1] - 1
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def assembled(indptr, indices, neighbours, weights, left, d_weights, d_left):
    """Entries of Q = sum_i w w' / v, w = (1, -weights), on a pattern, and of its derivatives (q, entries)."""
    n, m = neighbours.shape
    q = d_left.shape[0]
    data, slopes = np.zeros(indices.size), np.zeros((indices.size, q))
    w, at = np.empty(m + 1), np.empty(m + 1, dtype=np.int64)
    dw = np.zeros((q, m + 1))
    for i in range(n):
        k, w[0], at[0], v = 1, 1.0, i, left[i]
        while k <= m and neighbours[i, k - 1] >= 0:
            w[k], at[k] = -weights[i, k - 1], neighbours[i, k - 1]
            for j in range(q):
                dw[j, k] = -d_weights[j, i, k - 1]
            k += 1
        for a in range(k):
            for b in range(a + 1):
                one, other = _entry(indptr, indices, at[a], at[b]), _entry(indptr, indices, at[b], at[a])
                value = w[a] * w[b] / v
                data[one] += value
                if one != other:
                    data[other] += value
                for j in range(q):
                    slope = (dw[j, a] * w[b] + w[a] * dw[j, b] - value * d_left[j, i]) / v
                    slopes[one, j] += slope
                    if one != other:
                        slopes[other, j] += slope
    return data, slopes.T
