"""Compiled passes that eliminate leaves before the remaining columns; ``leaves.py`` calls them.

A leaf is a block of w columns with nonzeros in r remaining rows and in no other leaf. The flat vector x stores its
square (w x w) and its panel (r x w) with sorted rows. C, the matrix of the remaining columns, is a flat vector, too.
The position in it of each pair (i, j) of a leaf's rows is in ``place``. If C is dense with ``ld`` columns, ``place`` is
None and the position follows from the rows; numba compiles these loops separately.

    eliminate   L11 L11' = D, L21 = B L11^-T, C -= L21 L21'; the square becomes L11^-1
    selected    Y = L21 L11^-1, Z21 = -Z22 Y, Z11 = L11^-T L11^-1 + Y' Z22 Y
    reduce      a symmetric E, reduced to the remaining columns: C = E22 - E21 Y' - Y E21' + Y E11 Y'
    sandwich    A^-1 E A^-1 on the leaves from that of the remaining columns, P22

Passes with arguments ``first`` and ``last`` visit the leaves of this range.
"""

from __future__ import annotations

import numpy as np

from ._fronts import lower_inverse, small_cholesky
from .compiled import called_by_loops, compiled

_TILE = 32  # columns of a dense C that are copied at a time, within the cache


@called_by_loops
def entry(place, p, line, rows, j):
    """Position in C of pair number p; in a dense C, the start ``line`` of its row plus the column rows[j]."""
    if place is None:
        return line + rows[j]
    return place[p]


@called_by_loops
def largest(start, ptr, first, last):
    """The largest number of entries of a square, and of a panel."""
    square, panel = 1, 1
    for k in range(first, last):
        w = start[k + 1] - start[k]
        square, panel = max(square, w * w), max(panel, w * (ptr[k + 1] - ptr[k]))
    return square, panel


@called_by_loops
def factor_leaf(x, square, at, w, r, scratch):
    """Replace D by L11^-1 and B by L21 = B L11^-T for one leaf; returns the first bad pivot, or -1."""
    D, inverse = x[square : square + w * w].reshape(w, w), scratch[: w * w].reshape(w, w)
    bad = small_cholesky(D)
    if bad >= 0:
        return bad
    lower_inverse(D, inverse)
    for i in range(w):
        for j in range(w):
            D[i, j] = inverse[i, j]
    for i in range(r):
        row = at + i * w
        for j in range(w - 1, -1, -1):
            s = 0.0
            for c in range(j + 1):
                s += x[row + c] * D[j, c]
            x[row + j] = s
    return -1


@compiled
def eliminate(first, last, start, ptr, rows, square, panel, pairs, place, ld, x, C):
    """Eliminate leaves in place and subtract their contributions from C; returns a bad column, or -1."""
    scratch = np.empty(largest(start, ptr, first, last)[0])
    for k in range(first, last):
        w, q, at, p = start[k + 1] - start[k], ptr[k], panel[k], pairs[k]
        r = ptr[k + 1] - q
        if w == 1:  # a fast path, since there may be millions of leaves with one or two rows
            d = x[square[k]]
            if not d > 0.0:
                return start[k]
            d = 1.0 / np.sqrt(d)
            x[square[k]] = d
            for i in range(r):
                line = rows[q + i] * ld
                b = x[at + i] * d
                x[at + i] = b
                for j in range(i + 1):
                    C[entry(place, p, line, rows, q + j)] -= b * x[at + j]
                    p += 1
            continue
        bad = factor_leaf(x, square[k], at, w, r, scratch)
        if bad >= 0:
            return start[k] + bad
        for i in range(r):
            line = rows[q + i] * ld
            for j in range(i + 1):
                s = 0.0
                for c in range(w):
                    s += x[at + i * w + c] * x[at + j * w + c]
                C[entry(place, p, line, rows, q + j)] -= s
                p += 1
    return -1


@called_by_loops
def times_rest(place, p, rows, q, ld, Z, Y, y, r, w, T):
    """T = Z22 Y for one leaf whose rows begin at q, pairs at p and Y at y."""
    if w == 1:
        for i in range(r):
            line = rows[q + i] * ld
            own, s = Y[y + i], 0.0
            for j in range(i):
                z = Z[entry(place, p, line, rows, q + j)]
                p += 1
                s += z * Y[y + j]
                T[j] += z * own
            T[i] = s + Z[entry(place, p, line, rows, q + i)] * own
            p += 1
        return
    for i in range(r):
        line = rows[q + i] * ld
        for c in range(w):
            T[i * w + c] = 0.0
        for j in range(i):
            z = Z[entry(place, p, line, rows, q + j)]
            p += 1
            for c in range(w):
                T[i * w + c] += z * Y[y + j * w + c]
                T[j * w + c] += z * Y[y + i * w + c]
        z = Z[entry(place, p, line, rows, q + i)]
        p += 1
        for c in range(w):
            T[i * w + c] += z * Y[y + i * w + c]


@called_by_loops
def gram(x, square, w, out, at):
    """L11^-T L11^-1 of one leaf, into a square of ``out``."""
    for i in range(w):
        for j in range(w):
            s = 0.0
            for c in range(max(i, j), w):
                s += x[square + c * w + i] * x[square + c * w + j]
            out[at + i * w + j] = s


@called_by_loops
def regression(x, square, panel, r, w, Y, y):
    """Y = L21 L11^-1 of one leaf, into Y at position y."""
    for i in range(r):
        for j in range(w):
            s = 0.0
            for c in range(j, w):
                s += x[panel + i * w + c] * x[square + c * w + j]
            Y[y + i * w + j] = s


@compiled
def regressions(start, ptr, square, panel, x):
    """Y of all leaves, in the layout of the panels."""
    first = panel[0]
    Y = np.empty(panel[panel.size - 1] - first)
    for k in range(start.size - 1):
        regression(x, square[k], panel[k], ptr[k + 1] - ptr[k], start[k + 1] - start[k], Y, panel[k] - first)
    return Y


@compiled
def selected(first, last, start, ptr, rows, square, panel, pairs, place, ld, x, Z, z):
    """The inverse on squares and panels of leaves, into z, from that of the remaining columns."""
    size = largest(start, ptr, first, last)[1]
    Y, T = np.empty(size), np.empty(size)
    for k in range(first, last):
        w, r, at, own = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], square[k]
        if w == 1:  # a fast path, since there may be millions of leaves with one or two rows
            q, p, d = ptr[k], pairs[k], x[own]
            for i in range(r):
                line = rows[q + i] * ld
                y, t = x[at + i] * d, 0.0
                for j in range(i):
                    c = Z[entry(place, p, line, rows, q + j)]
                    p += 1
                    t += c * x[at + j]
                    T[j] += c * y
                T[i] = t * d + Z[entry(place, p, line, rows, q + i)] * y
                p += 1
            s = d * d
            for i in range(r):
                z[at + i] = -T[i]
                s += x[at + i] * d * T[i]
            z[own] = s
            continue
        regression(x, own, at, r, w, Y, 0)
        times_rest(place, pairs[k], rows, ptr[k], ld, Z, Y, 0, r, w, T)
        gram(x, own, w, z, own)
        for i in range(0, r * w, w):
            for j in range(w):
                z[at + i + j] = -T[i + j]
                for c in range(w):
                    z[own + c * w + j] += Y[i + c] * T[i + j]


@compiled
def reduce(start, ptr, rows, square, panel, pairs, place, ld, Y, e, C):
    """C = E22 - E21 Y' - Y E21' + Y E11 Y'; e stores E in the layout of x, with lower triangles of squares."""
    T = np.empty(largest(start, ptr, 0, start.size - 1)[1])
    for k in range(start.size - 1):
        w, q, at, p, own = start[k + 1] - start[k], ptr[k], panel[k], pairs[k], square[k]
        r, y = ptr[k + 1] - q, at - panel[0]
        if w == 1:
            d = e[own]
            for i in range(r):
                line = rows[q + i] * ld
                b = Y[y + i]
                t = e[at + i] - 0.5 * b * d
                T[i] = t
                for j in range(i + 1):
                    C[entry(place, p, line, rows, q + j)] -= t * Y[y + j] + b * T[j]
                    p += 1
            continue
        for i in range(w):
            for j in range(i):
                e[own + j * w + i] = e[own + i * w + j]
        for i in range(0, r * w, w):  # T = E21 - Y E11 / 2
            for j in range(w):
                s = 0.0
                for c in range(w):
                    s += Y[y + i + c] * e[own + c * w + j]
                T[i + j] = e[at + i + j] - 0.5 * s
        for i in range(r):
            line = rows[q + i] * ld
            for j in range(i + 1):
                s = 0.0
                for c in range(w):
                    s += T[i * w + c] * Y[y + j * w + c] + Y[y + i * w + c] * T[j * w + c]
                C[entry(place, p, line, rows, q + j)] -= s
                p += 1


@compiled
def sandwich(first, last, start, ptr, rows, square, panel, pairs, place, ld, x, Y, Z, P, e):
    """A^-1 E A^-1 on squares and panels of leaves, replacing E; Z and P are A^-1 and A^-1 E A^-1 on the rest.

    With Sigma = D^-1 and dY = (E21 - Y E11) Sigma the panel is Z22 dY - P22 Y, and the square
    Sigma E11 Sigma + Y' P22 Y - dY' Z22 Y - Y' Z22 dY.
    """
    own, size = largest(start, ptr, first, last)
    T, U, G, dY = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    sigma, left, line = np.empty(own), np.empty(own), np.empty(own)
    for k in range(first, last):
        w, q, at, p, own = start[k + 1] - start[k], ptr[k], panel[k], pairs[k], square[k]
        r, y = ptr[k + 1] - q, at - panel[0]
        if w == 1:
            d = x[own] * x[own]
            for i in range(r):
                dY[i] = (e[at + i] - Y[y + i] * e[own]) * d
            s = d * e[own] * d
            times_rest(place, p, rows, q, ld, Z, Y, y, r, w, T)
            times_rest(place, p, rows, q, ld, P, Y, y, r, w, U)
            times_rest(place, p, rows, q, ld, Z, dY, 0, r, w, G)
            for i in range(r):
                e[at + i] = G[i] - U[i]
                s += Y[y + i] * U[i] - 2.0 * dY[i] * T[i]
            e[own] = s
            continue
        gram(x, own, w, sigma, 0)
        for i in range(0, r * w, w):
            for j in range(w):
                s = e[at + i + j]
                for c in range(w):
                    s -= Y[y + i + c] * e[own + c * w + j]
                line[j] = s
            for j in range(w):
                s = 0.0
                for c in range(w):
                    s += line[c] * sigma[c * w + j]
                dY[i + j] = s
        times_rest(place, p, rows, q, ld, Z, Y, y, r, w, T)
        times_rest(place, p, rows, q, ld, P, Y, y, r, w, U)
        times_rest(place, p, rows, q, ld, Z, dY, 0, r, w, G)
        for i in range(w):
            for j in range(w):
                s = 0.0
                for c in range(w):
                    s += e[own + i * w + c] * sigma[c * w + j]
                left[i * w + j] = s
        for i in range(w):
            for j in range(w):
                s = 0.0
                for c in range(w):
                    s += sigma[i * w + c] * left[c * w + j]
                e[own + i * w + j] = s
        for i in range(0, r * w, w):
            for j in range(w):
                e[at + i + j] = G[i + j] - U[i + j]
                for c in range(w):
                    e[own + c * w + j] += Y[y + i + c] * U[i + j] - dY[i + c] * T[i + j] - T[i + c] * dY[i + j]


@compiled
def forward(first, last, start, ptr, rows, square, panel, x, order, b, y, rest, both):
    """y <- L^-1 b for leaves, updating the right sides of the rest; without ``both`` only y <- b."""
    columns = b.shape[1]
    for k in range(first, last):
        a, w, at, q, own = start[k], start[k + 1] - start[k], panel[k], ptr[k], square[k]
        for c in range(columns):
            if not both:
                for i in range(w):
                    y[a + i, c] = b[order[a + i], c]
            elif w == 1:
                s = x[own] * b[order[a], c]
                y[a, c] = s
                for i in range(ptr[k + 1] - q):
                    rest[rows[q + i], c] -= x[at + i] * s
            else:
                for i in range(w):
                    s = 0.0
                    for j in range(i + 1):
                        s += x[own + i * w + j] * b[order[a + j], c]
                    y[a + i, c] = s
                for i in range(ptr[k + 1] - q):
                    s = 0.0
                    for j in range(w):
                        s += x[at + i * w + j] * y[a + j, c]
                    rest[rows[q + i], c] -= s


@compiled
def backward(first, last, start, ptr, rows, square, panel, x, order, y, rest, out):
    """out <- L^-T (y - L21' rest) for leaves, in the original order of columns."""
    columns = y.shape[1]
    for k in range(first, last):
        a, w, at, q, own = start[k], start[k + 1] - start[k], panel[k], ptr[k], square[k]
        for c in range(columns):
            if w == 1:
                s = y[a, c]
                for i in range(ptr[k + 1] - q):
                    s -= x[at + i] * rest[rows[q + i], c]
                out[order[a], c] = s * x[own]
                continue
            for j in range(w):
                s = y[a + j, c]
                for i in range(ptr[k + 1] - q):
                    s -= x[at + i * w + j] * rest[rows[q + i], c]
                y[a + j, c] = s
            for i in range(w):
                s = 0.0
                for j in range(i, w):
                    s += x[own + j * w + i] * y[a + j, c]
                out[order[a + i], c] = s


@compiled
def copy_above(A, scale):
    """Copy what is below the diagonal of a dense C, with columns divided by ``scale``, above it."""
    n = A.shape[0]
    for a in range(0, n, _TILE):
        for i in range(a, n):
            for j in range(a, min(a + _TILE, i)):
                A[j, i] = A[i, j] / scale[j]
