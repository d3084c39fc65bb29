"""Compiled loops over points: winding numbers, distances, and Vecchia's approximation."""

from __future__ import annotations

import numpy as np

from ..linalg.compiled import compiled


@compiled
def windings(points, a, b):
    """The winding number (N,) around each point of directed segments a -> b (E, 2) that form closed rings."""
    out = np.zeros(points.shape[0], dtype=np.int64)
    for n in range(points.shape[0]):
        x, y, total = points[n, 0], points[n, 1], 0
        for e in range(a.shape[0]):
            up = a[e, 1] <= y
            if up != (b[e, 1] <= y):
                side = (b[e, 0] - a[e, 0]) * (y - a[e, 1]) - (x - a[e, 0]) * (b[e, 1] - a[e, 1])
                if up and side > 0.0:
                    total += 1
                elif not up and side < 0.0:
                    total -= 1
        out[n] = total
    return out


@compiled
def nearest_segment(points, a, b):
    """For each point the nearest segment, the position of the nearest place along it (0 to 1), and the distance."""
    n = points.shape[0]
    index, share, distance = np.zeros(n, dtype=np.int64), np.zeros(n), np.full(n, np.inf)
    for i in range(n):
        best = np.inf
        for e in range(a.shape[0]):
            dx, dy = b[e, 0] - a[e, 0], b[e, 1] - a[e, 1]
            px, py = points[i, 0] - a[e, 0], points[i, 1] - a[e, 1]
            length = dx * dx + dy * dy
            t = 0.0 if length == 0.0 else min(max((px * dx + py * dy) / length, 0.0), 1.0)
            ex, ey = px - t * dx, py - t * dy
            d = ex * ex + ey * ey
            if d < best:
                best, index[i], share[i] = d, e, t
        distance[i] = np.sqrt(best)
    return index, share, distance


@compiled
def _bucket(cell, mask):
    h = np.uint64(1469598103934665603)
    for k in range(cell.size):
        h = (h ^ np.uint64(cell[k])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(29)
    return np.int64(h & np.uint64(mask))


@compiled
def net_order(X, levels, radius, shrink, most):
    """A spread-out order of points: nets whose points are at least radius, radius * shrink, ... apart.

    The order is spread out up to the first ``most`` points; the others may follow in any order. A point joins the first
    net in which no earlier point is nearer than the radius of that net. Points in the same bucket of the hash table
    that are not near cost one comparison.
    """
    n, d = X.shape
    size = 1
    while size < 2 * n:
        size *= 2
    order, taken = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    count, cell, near = 0, np.empty(d, dtype=np.int64), np.empty(d, dtype=np.int64)
    steps = 3**d
    for _ in range(levels):
        if count >= most:
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
    """The correlation c and dc/d(r^2) at squared scaled distances; kinds: 0 RBF, 1, 2, 3 Matern 1/2, 3/2, 5/2."""
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
    """Replace the leading k rows by their lower Cholesky factor."""
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
def _square(P, p, Z, z, j):
    """(P_pj - Z_zj)^2; summed over all columns if j is -1."""
    if j >= 0:
        return (P[p, j] - Z[z, j]) ** 2
    total = 0.0
    for k in range(Z.shape[1]):
        total += (P[p, k] - Z[z, k]) ** 2
    return total


@compiled
def conditionals(kind, nugget, Z, points, neighbours, begin, end, shared, weights, variances, d_weights, d_variances):
    """Weights (n, m) of neighbours and conditional variances (n,) at sd 1, with derivatives in the log ranges.

    Z (N, d) are inputs divided by the ranges; ``points`` (n, d) are conditioned on the rows ``neighbours`` (n, m) of Z,
    -1 for none. The last four arrays are filled for points from ``begin`` to ``end``; the derivatives (q, n, m) and (q,
    n) are those of each range, or of one ``shared`` range; dr^2/dlog range_j = -2 (difference_j / range_j)^2.
    """
    m, q = neighbours.shape[1], d_variances.shape[0]
    K, D, c = np.empty((m, m)), np.empty((m, m)), np.empty(m)
    g, x = np.empty(m), np.empty(m)
    for i in range(begin, end):
        k = 0
        while k < m and neighbours[i, k] >= 0:
            k += 1
        for a in range(k):
            p = np.int64(neighbours[i, a])  # one integer type, to compile only once
            c[a], g[a] = correlation(kind, _square(points, i, Z, p, -1))
            x[a] = c[a]
            for b in range(a):
                K[a, b], D[a, b] = correlation(kind, _square(Z, p, Z, np.int64(neighbours[i, b]), -1))
            K[a, a] = 1.0 + nugget
        _factorise(K, k)
        _solve(K, k, x)
        v = 1.0 + nugget
        for a in range(k):
            weights[i, a] = x[a]
            v -= x[a] * c[a]
        variances[i] = max(v, 0.5 * nugget + 1e-14)
        for j in range(q):
            column = -1 if shared else j
            total = 0.0
            for a in range(k):  # y = dc - dK weights
                x[a] = -2.0 * g[a] * _square(points, i, Z, np.int64(neighbours[i, a]), column)
                total -= 2.0 * weights[i, a] * x[a]
            for a in range(k):
                for b in range(a):
                    p, r = np.int64(neighbours[i, a]), np.int64(neighbours[i, b])
                    dK = -2.0 * D[a, b] * _square(Z, p, Z, r, column)
                    x[a] -= dK * weights[i, b]
                    x[b] -= dK * weights[i, a]
                    total += 2.0 * weights[i, a] * dK * weights[i, b]
            _solve(K, k, x)
            for a in range(k):
                d_weights[j, i, a] = x[a]
            d_variances[j, i] = total


@compiled
def assembled(
    indptr, indices, start, item, neighbours, weights, variances, d_weights, d_variances, begin, end, data, slopes
):
    """The entries of Q = sum_i w w' / v, w = (1, -weights), on a pattern, and of its derivatives (q, entries).

    Fills the upper triangle in columns ``begin`` to ``end``; each entry sums over the sets that contain its point.
    """
    n, m = neighbours.shape
    q, place = d_variances.shape[0], np.zeros(n, dtype=np.int64)
    for column in range(begin, end):
        for e in range(indptr[column], indptr[column + 1]):
            place[indices[e]] = e
        for t in range(start[column], start[column + 1]):
            i, a = item[t] // (m + 1), item[t] % (m + 1)
            v, wa = variances[i], 1.0 if a == 0 else -weights[i, a - 1]
            for b in range(m + 1):
                p = i if b == 0 else neighbours[i, b - 1]
                if p < 0:
                    break
                if p > column:
                    continue
                e, wb = place[p], 1.0 if b == 0 else -weights[i, b - 1]
                value = wa * wb / v
                data[e] += value
                for j in range(q):
                    da = 0.0 if a == 0 else -d_weights[j, i, a - 1]
                    db = 0.0 if b == 0 else -d_weights[j, i, b - 1]
                    slopes[j, e] += (da * wb + wa * db - value * d_variances[j, i]) / v


@compiled
def gathered(indptr, indices, data, sets, weights, begin, end, out):
    """sum_b G_ab w_b over the points a, b of each set (n, p), for sets ``begin`` to ``end``.

    G is a symmetric csc matrix with sorted rows, 0 outside of its pattern; -1 in ``sets`` means no point.
    """
    p = sets.shape[1]
    for i in range(begin, end):
        for a in range(p):
            out[i, a] = 0.0
        for b in range(p):
            column = np.int64(sets[i, b])
            if column < 0:
                continue
            for a in range(p):
                row, low, high = np.int64(sets[i, a]), np.int64(indptr[column]), np.int64(indptr[column + 1])
                while low < high:
                    middle = (low + high) // 2
                    if indices[middle] < row:
                        low = middle + 1
                    else:
                        high = middle
                if row >= 0 and low < indptr[column + 1] and indices[low] == row:
                    out[i, a] += data[low] * weights[i, b]
