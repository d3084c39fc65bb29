"""Compiled passes over leaves before a sparse rest; ``fringed.py`` is the door to them.

As in ``_bordered.py``, but what leaves add to the rest C or read of it stands in a flat vector: ``place`` has, leaf by
leaf from ``pairs`` on, where (i, j) of its rows is, i >= j row by row.

    eliminate   L11 L11' = D, L21 = B L11^-T, C -= L21 L21'; the square becomes L11^-1
    selected    Y = L21 L11^-1, Z21 = -Z22 Y, Z11 = L11^-T L11^-1 + Y' Z22 Y
    reduce      the change E of A, reduced to the rest: C = E22 - E21 Y' - Y E21' + Y E11 Y'
    sandwich    A^-1 E A^-1 on the leaves from that of the rest, P22
"""

from __future__ import annotations

import numpy as np

from ._bordered import factor_leaf, gram, regression
from .compiled import compiled


@compiled
def largest(start, ptr, first, last):
    """The most columns of a leaf, and the most rows."""
    widest, tallest = 1, 1
    for k in range(first, last):
        widest, tallest = max(widest, start[k + 1] - start[k]), max(tallest, ptr[k + 1] - ptr[k])
    return widest, tallest


@compiled
def eliminate(start, ptr, square, panel, pairs, place, x, C):
    """Eliminate the leaves in place and their share from the rest. Bad column or -1."""
    widest, _ = largest(start, ptr, 0, start.size - 1)
    scratch, line = np.empty(widest * widest), np.empty(widest)
    for k in range(start.size - 1):
        w, r, at, q = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], pairs[k]
        if w == 1:
            d = x[square[k]]
            if not d > 0.0:
                return start[k]
            d = 1.0 / np.sqrt(d)
            x[square[k]] = d
            for i in range(r):
                b = x[at + i] * d
                x[at + i] = b
                for j in range(i + 1):
                    C[place[q]] -= b * x[at + j]
                    q += 1
            continue
        D, B = x[square[k] : square[k] + w * w].reshape(w, w), x[at : at + r * w].reshape(r, w)
        bad = factor_leaf(D, B, scratch, line)
        if bad >= 0:
            return start[k] + bad
        for i in range(r):
            for j in range(i + 1):
                s = 0.0
                for p in range(w):
                    s += B[i, p] * B[j, p]
                C[place[q]] -= s
                q += 1
    return -1


@compiled
def times_rest(place, q, Z, Y, r, w, T):
    """T = Z22 Y of one leaf whose pairs begin at ``place[q]``."""
    for i in range(r):
        for p in range(w):
            T[i, p] = 0.0
        for j in range(i):
            z = Z[place[q]]
            q += 1
            for p in range(w):
                T[i, p] += z * Y[j, p]
                T[j, p] += z * Y[i, p]
        z = Z[place[q]]
        q += 1
        for p in range(w):
            T[i, p] += z * Y[i, p]


@compiled
def selected(first, last, start, ptr, square, panel, pairs, place, x, Z, z):
    """The inverse on the squares and panels of some leaves, into z, from that of the rest."""
    widest, tallest = largest(start, ptr, first, last)
    scratch = np.empty((2, widest * tallest))
    T = scratch[0]
    for k in range(first, last):
        w, r, at, q = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], pairs[k]
        if w == 1:
            d = x[square[k]]
            inner = d * d
            for i in range(r):
                y, s = x[at + i] * d, 0.0
                for j in range(i):
                    c = Z[place[q]]
                    q += 1
                    s += c * x[at + j]
                    T[j] += c * y
                T[i] = s * d + Z[place[q]] * y
                q += 1
            for i in range(r):
                z[at + i] = -T[i]
                inner += x[at + i] * d * T[i]
            z[square[k]] = inner
            continue
        y, t = scratch[1, : r * w].reshape(r, w), T[: r * w].reshape(r, w)
        regression(x, square[k], at, r, w, y)
        times_rest(place, q, Z, y, r, w, t)
        out = z[square[k] : square[k] + w * w].reshape(w, w)
        gram(x[square[k] : square[k] + w * w].reshape(w, w), out)
        for i in range(r):
            for j in range(w):
                z[at + i * w + j] = -t[i, j]
                for p in range(w):
                    out[p, j] += y[i, p] * t[i, j]


@compiled
def reduce(start, ptr, square, panel, pairs, place, Y, e, C):
    """C = E22 - E21 Y' - Y E21' + Y E11 Y'; e is E laid out as x is, its squares by their lower triangles."""
    widest, tallest = largest(start, ptr, 0, start.size - 1)
    scratch = np.empty(widest * tallest)
    first = panel[0]
    for k in range(start.size - 1):
        w, r, at, q = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], pairs[k]
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
            for j in range(i + 1):
                s = 0.0
                for p in range(w):
                    s += T[i, p] * y[j, p] + y[i, p] * T[j, p]
                C[place[q]] -= s
                q += 1


@compiled
def sandwich(first, last, start, ptr, square, panel, pairs, place, x, Y, Z, P, e):
    """A^-1 E A^-1 on the squares and panels of some leaves, in place of E; Z and P are A^-1 and it on the rest."""
    widest, tallest = largest(start, ptr, first, last)
    panels, squares = np.empty((5, widest * tallest)), np.empty((2, widest * widest))
    for k in range(first, last):
        w, r, at, q = start[k + 1] - start[k], ptr[k + 1] - ptr[k], panel[k], pairs[k]
        y = Y[at - panel[0] : at - panel[0] + r * w].reshape(r, w)
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
        times_rest(place, q, Z, y, r, w, T)
        times_rest(place, q, P, y, r, w, U)
        times_rest(place, q, Z, dY, r, w, G)
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
