"""Compiled passes over the leaves of a bordered matrix; ``bordered.py`` is the door to them.

A leaf is a block of w columns that touches r rows of the border and no other leaf. The flat vector x holds its square
(w x w) and its panel (r x w); the border is a matrix C valid in its lower triangle, and the rows of a leaf are sorted.
Passes that take ``first`` and ``last`` visit a stretch of the leaves.

    eliminate   L11 L11' = D, L21 = B L11^-T, C -= L21 L21'; the square becomes L11^-1
    selected    Y = L21 L11^-1, Z21 = -Z22 Y, Z11 = L11^-T L11^-1 + Y' Z22 Y
    reduce      the change E of A, reduced to the border: C = E22 - E21 Y' - Y E21' + Y E11 Y'
    sandwich    A^-1 E A^-1 on the leaves from that of the border, P22
"""

from __future__ import annotations

import numpy as np

from ._fronts import lower_inverse, small_cholesky
from .compiled import compiled


@compiled
def factor_leaf(D, B, scratch, line):
    """L11 L11' = D and L21 = B L11^-T of one leaf in place, L11^-1 where D was; the first bad pivot, or -1."""
    w = D.shape[0]
    bad = small_cholesky(D)
    if bad >= 0:
        return bad
    inverse = scratch[: w * w].reshape(w, w)
    lower_inverse(D, inverse)
    for i in range(w):
        for j in range(w):
            D[i, j] = inverse[i, j]
    for i in range(B.shape[0]):
        for j in range(w):
            line[j] = B[i, j]
        for j in range(w):
            s = 0.0
            for p in range(j + 1):
                s += line[p] * D[j, p]
            B[i, j] = s
    return -1


@compiled
def eliminate(first, last, start, ptr, rows, square, panel, x, C):
    """Eliminate the leaves in place and their share from the border. Bad column or -1."""
    widest = 0
    for k in range(first, last):
        widest = max(widest, start[k + 1] - start[k])
    scratch = np.empty(widest * widest)
    line = np.empty(widest)
    for k in range(first, last):
        w, r, at, q = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], ptr[k]
        if w == 1:
            d = x[square[k]]
            if not d > 0.0:
                return start[k]
            d = 1.0 / np.sqrt(d)
            x[square[k]] = d
            for i in range(r):
                b = x[at + i] * d
                x[at + i] = b
                here = rows[q + i]
                for j in range(i + 1):
                    C[here, rows[q + j]] -= b * x[at + j]
            continue
        D, B = x[square[k] : square[k] + w * w].reshape(w, w), x[at : at + r * w].reshape(r, w)
        bad = factor_leaf(D, B, scratch, line)
        if bad >= 0:
            return start[k] + bad
        for i in range(r):
            here = rows[q + i]
            for j in range(i + 1):
                s = 0.0
                for p in range(w):
                    s += B[i, p] * B[j, p]
                C[here, rows[q + j]] -= s
    return -1


@compiled
def times_border(rows, Z, Y, first, r, w, T):
    """T = Z22 Y of one leaf whose rows begin at ``rows[first]``; Z by its lower triangle."""
    if w == 1:
        for i in range(r):
            line, y, s = Z[rows[first + i]], Y[i, 0], 0.0
            for j in range(i):
                z = line[rows[first + j]]
                s += z * Y[j, 0]
                T[j, 0] += z * y
            T[i, 0] = s + line[rows[first + i]] * y
        return
    for i in range(r):
        for j in range(w):
            T[i, j] = 0.0
    for i in range(r):
        here = rows[first + i]
        for j in range(i):
            z = Z[here, rows[first + j]]
            for p in range(w):
                T[i, p] += z * Y[j, p]
                T[j, p] += z * Y[i, p]
        z = Z[here, here]
        for p in range(w):
            T[i, p] += z * Y[i, p]


@compiled
def gram(D, out):
    """L^-T L^-1 from D = L^-1."""
    w = D.shape[0]
    for i in range(w):
        for j in range(w):
            s = 0.0
            for p in range(max(i, j), w):
                s += D[p, i] * D[p, j]
            out[i, j] = s


@compiled
def regression(x, square, panel, r, w, Y):
    """Y = L21 L11^-1 of one leaf."""
    for i in range(r):
        for j in range(w):
            s = 0.0
            for p in range(j, w):
                s += x[panel + i * w + p] * x[square + p * w + j]
            Y[i, j] = s


@compiled
def selected(first, last, start, ptr, rows, square, panel, x, Z, z):
    """The inverse on the squares and panels of the leaves, into z, from that of the border."""
    widest, tallest = 0, 0
    for k in range(first, last):
        widest, tallest = max(widest, start[k + 1] - start[k]), max(tallest, ptr[k + 1] - ptr[k])
    scratch = np.empty((2, max(1, widest * tallest)))
    T = scratch[0]
    for k in range(first, last):
        w, r, at, q = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], ptr[k]
        if w == 1:  # the same without views of arrays: there may be millions of leaves with a row or two
            d = x[square[k]]
            inner = d * d
            for i in range(r):
                here, y, s = rows[q + i], x[at + i] * d, 0.0
                for j in range(i):
                    c = Z[here, rows[q + j]]
                    s += c * x[at + j]
                    T[j] += c * y
                T[i] = s * d + Z[here, here] * y
            for i in range(r):
                z[at + i] = -T[i]
                inner += x[at + i] * d * T[i]
            z[square[k]] = inner
            continue
        y, t = scratch[1, : r * w].reshape(r, w), T[: r * w].reshape(r, w)
        regression(x, square[k], at, r, w, y)
        times_border(rows, Z, y, q, r, w, t)
        out = z[square[k] : square[k] + w * w].reshape(w, w)
        gram(x[square[k] : square[k] + w * w].reshape(w, w), out)
        for i in range(r):
            for j in range(w):
                z[at + i * w + j] = -t[i, j]
                for p in range(w):
                    out[p, j] += y[i, p] * t[i, j]


@compiled
def regressions(start, ptr, square, panel, x):
    """Y = L21 L11^-1 of every leaf, laid out as the panels are."""
    first = panel[0]
    Y = np.empty(panel[panel.size - 1] - first)
    for k in range(start.size - 1):
        w, r, at = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k]
        regression(x, square[k], at, r, w, Y[at - first : at - first + r * w].reshape(r, w))
    return Y


@compiled
def mirror(C):
    """The lower triangle of C copied above the diagonal, a block of columns at a time."""
    n = C.shape[0]
    for a in range(0, n, 32):
        for i in range(a, n):
            for j in range(a, min(a + 32, i)):
                C[j, i] = C[i, j]


@compiled
def pack(L, Z):
    """L' above the diagonal of Z, its rows divided by the pivots, a block of columns at a time."""
    n = L.shape[0]
    for a in range(0, n, 32):
        for i in range(a, n):
            for j in range(a, min(a + 32, i)):
                Z[j, i] = L[i, j] / L[j, j]


@compiled
def reduce_one(rows, first, r, at, before, Y, d, e, C):
    """The share of a leaf of one column: d is its E11, its panel begins at ``at``, its regressions at ``before``."""
    for i in range(r):
        y, here = Y[before + i], rows[first + i]
        t = e[at + i] - 0.5 * y * d
        for j in range(i + 1):
            other = Y[before + j]
            C[here, rows[first + j]] -= t * other + y * (e[at + j] - 0.5 * other * d)


@compiled
def reduce(start, ptr, rows, square, panel, Y, e, C):
    """C = E22 - E21 Y' - Y E21' + Y E11 Y', the lower triangle; e is E laid out as x is, its squares by theirs."""
    widest, tallest = 0, 0
    for k in range(start.size - 1):
        widest, tallest = max(widest, start[k + 1] - start[k]), max(tallest, ptr[k + 1] - ptr[k])
    scratch = np.empty(max(1, widest * tallest))
    first = panel[0]
    for k in range(start.size - 1):
        w, r, at, q = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], ptr[k]
        if w == 1:
            reduce_one(rows, q, r, at, at - first, Y, e[square[k]], e, C)
            continue
        y = Y[at - first : at - first + r * w].reshape(r, w)
        D = e[square[k] : square[k] + w * w].reshape(w, w)
        T = scratch[: r * w].reshape(r, w)
        for i in range(w):
            for j in range(i):
                D[j, i] = D[i, j]
        for i in range(r):
            for j in range(w):
                s = 0.0
                for p in range(w):
                    s += y[i, p] * D[p, j]
                T[i, j] = e[at + i * w + j] - 0.5 * s
        for i in range(r):
            here = rows[q + i]
            for j in range(i + 1):
                s = 0.0
                for p in range(w):
                    s += T[i, p] * y[j, p] + y[i, p] * T[j, p]
                C[here, rows[q + j]] -= s


@compiled
def sandwich_one(rows, first, r, at, before, Y, sigma, d, Z, P, e, panels):
    """The panel of a leaf of one column in place of its E21, and its square, from d, its E11; sigma is its D^-1."""
    T, U, G, dY = panels[0], panels[1], panels[2], panels[3]
    for i in range(r):
        y, here = Y[before + i], rows[first + i]
        move = (e[at + i] - y * d) * sigma
        dY[i] = move
        s, t, u = 0.0, 0.0, 0.0
        for j in range(i):
            z, p, other = Z[here, rows[first + j]], P[here, rows[first + j]], Y[before + j]
            s += z * other
            t += p * other
            u += z * dY[j]
            T[j] += z * y
            U[j] += p * y
            G[j] += z * move
        z, p = Z[here, here], P[here, here]
        T[i], U[i], G[i] = s + z * y, t + p * y, u + z * move
    out = sigma * d * sigma
    for i in range(r):
        e[at + i] = G[i] - U[i]
        out += Y[before + i] * U[i] - 2.0 * dY[i] * T[i]
    return out


@compiled
def sandwich(start, ptr, rows, square, panel, x, Y, Z, P, e):
    """A^-1 E A^-1 on the squares and panels of the leaves, in place of E; Z and P are A^-1 and it on the border."""
    widest, tallest = 1, 1
    for k in range(start.size - 1):
        widest, tallest = max(widest, start[k + 1] - start[k]), max(tallest, ptr[k + 1] - ptr[k])
    panels, squares = np.empty((5, widest * tallest)), np.empty((2, widest * widest))
    first = panel[0]
    for k in range(start.size - 1):
        w, r, at, q = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], square[k]
        if w == 1:
            e[q] = sandwich_one(rows, ptr[k], r, at, at - first, Y, x[q] * x[q], e[q], Z, P, e, panels)
            continue
        y = Y[at - first : at - first + r * w].reshape(r, w)
        D = e[square[k] : square[k] + w * w].reshape(w, w)
        T, U, G = panels[0, : r * w].reshape(r, w), panels[1, : r * w].reshape(r, w), panels[2, : r * w].reshape(r, w)
        R, dY = panels[3, : r * w].reshape(r, w), panels[4, : r * w].reshape(r, w)
        sigma, left = squares[0, : w * w].reshape(w, w), squares[1, : w * w].reshape(w, w)
        gram(x[square[k] : square[k] + w * w].reshape(w, w), sigma)
        for i in range(r):  # dY = (E21 - Y E11) Sigma
            for j in range(w):
                s = e[at + i * w + j]
                for p in range(w):
                    s -= y[i, p] * D[p, j]
                R[i, j] = s
            for j in range(w):
                s = 0.0
                for p in range(w):
                    s += R[i, p] * sigma[p, j]
                dY[i, j] = s
        times_border(rows, Z, y, ptr[k], r, w, T)
        times_border(rows, P, y, ptr[k], r, w, U)
        times_border(rows, Z, dY, ptr[k], r, w, G)
        for i in range(w):
            for j in range(w):
                s = 0.0
                for p in range(w):
                    s += D[i, p] * sigma[p, j]
                left[i, j] = s
        for i in range(w):
            for j in range(w):
                s = 0.0
                for p in range(w):
                    s += sigma[i, p] * left[p, j]
                D[i, j] = s
        for i in range(r):
            for j in range(w):
                e[at + i * w + j] = G[i, j] - U[i, j]
                for p in range(w):
                    D[p, j] += y[i, p] * U[i, j] - dY[i, p] * T[i, j] - T[i, p] * dY[i, j]


@compiled
def forward(first, last, start, ptr, rows, square, panel, x, order, b, y, border, both):
    """y <- L^-1 b over the leaves, their share taken from the border's right sides; y <- b alone unless ``both``."""
    columns = b.shape[1]
    for k in range(first, last):
        a, w, r, at, q = start[k], start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], ptr[k]
        for c in range(columns):
            if not both:
                for i in range(w):
                    y[a + i, c] = b[order[a + i], c]
            elif w == 1:
                s = x[square[k]] * b[order[a], c]
                y[a, c] = s
                for i in range(r):
                    border[rows[q + i], c] -= x[at + i] * s
            else:
                for i in range(w):
                    s = 0.0
                    for p in range(i + 1):
                        s += x[square[k] + i * w + p] * b[order[a + p], c]
                    y[a + i, c] = s
                for i in range(r):
                    s = 0.0
                    for p in range(w):
                        s += x[at + i * w + p] * y[a + p, c]
                    border[rows[q + i], c] -= s


@compiled
def backward(first, last, start, ptr, rows, square, panel, x, order, y, border, out):
    """out <- L^-T (y - L21' border) over the leaves, each column where it came from."""
    columns = y.shape[1]
    for k in range(first, last):
        a, w, r, at, q = start[k], start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], ptr[k]
        for c in range(columns):
            if w == 1:
                s = y[a, c]
                for i in range(r):
                    s -= x[at + i] * border[rows[q + i], c]
                out[order[a], c] = s * x[square[k]]
                continue
            for p in range(w):
                s = y[a + p, c]
                for i in range(r):
                    s -= x[at + i * w + p] * border[rows[q + i], c]
                y[a + p, c] = s
            for i in range(w):
                s = 0.0
                for p in range(i, w):
                    s += x[square[k] + p * w + i] * y[a + p, c]
                out[order[a + i], c] = s
