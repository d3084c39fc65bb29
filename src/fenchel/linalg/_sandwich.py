"""A^-1 E A^-1 on the pattern of L, for a symmetric E on the pattern of A: minus the derivative of the selected inverse.

Two passes over the fronts of ``_multifrontal.py``, with Y = L21 L11^-1 and Sigma = (L11 L11')^-1 of each supernode:

    reduce      bottom up: E22 - E21 Y' - Y E21' + Y E11 Y' is added into the parent's front
    sandwich    top down, from P22 and Z22 = (A^-1)_22 of the parent's front, dY = (E21 - Y E11) Sigma:
                P21 = Z22 dY - P22 Y,    P11 = Sigma E11 Sigma - dY' Z22 Y - Y' Z22 dY + Y' P22 Y

About the cost of a factorisation and of two selected inverses' products.
"""

from __future__ import annotations

import numpy as np

from ._multifrontal import extend_add, tallest
from .compiled import compiled


@compiled
def reduce(start, ptr, panel, parent, relative, x, inverse, inverse_ptr, up_peak, e):
    """Assemble the fronts of E in the panels e, in place: E11 (full) and E21 of each supernode."""
    m = start.size - 1
    stack = np.empty(max(1, up_peak))
    runs = np.empty(tallest(ptr), np.int64)
    where = np.zeros(m, np.int64)
    first_child = np.full(m, -1, np.int64)
    next_child = np.full(m, -1, np.int64)
    scratch = np.empty(1)
    top = 0
    for k in range(m):
        w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
        F = e[panel[k] : panel[k] + (w + r) * w].reshape(w + r, w)
        U = stack[top : top + r * r].reshape(r, r)
        for i in range(r):
            for j in range(r):
                U[i, j] = 0.0
        base = extend_add(first_child[k], next_child, ptr, relative, where, stack, 0, top, w, F, U, runs)
        for i in range(w):
            for j in range(i + 1, w):
                F[i, j] = F[j, i]
        if r > 0:
            need = 2 * r * w + r * r
            if scratch.size < need:
                scratch = np.empty(2 * need)
            Y = scratch[: r * w].reshape(r, w)
            T = scratch[r * w : 2 * r * w].reshape(r, w)
            L21 = x[panel[k] + w * w : panel[k] + (w + r) * w].reshape(r, w)
            np.dot(L21, inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w), Y)
            np.dot(Y, F[:w], T)
            for i in range(r):
                for j in range(w):
                    T[i, j] = F[w + i, j] - 0.5 * T[i, j]
            if r * w < 64:
                for i in range(r):
                    for j in range(i + 1):
                        s = 0.0
                        for q in range(w):
                            s += T[i, q] * Y[j, q] + Y[i, q] * T[j, q]
                        U[i, j] -= s
            else:
                G = scratch[2 * r * w : need].reshape(r, r)
                np.dot(T, Y.T, G)
                for i in range(r):
                    for j in range(i + 1):
                        U[i, j] -= G[i, j] + G[j, i]
        if base < top:
            for q in range(r * r):
                stack[base + q] = stack[top + q]
        where[k] = base
        top = base + r * r
        if parent[k] != -1:
            next_child[k] = first_child[parent[k]]
            first_child[parent[k]] = k


@compiled
def panels(w, r, F, L21, Linv, z, Z22, P22, scratch, out):
    """P11 and P21 of one supernode into ``out`` (w + r, w); F holds E11 and E21, z the panel of the inverse."""
    squares, sides = scratch[: 2 * w * w], scratch[2 * w * w :]
    sigma, inner = squares[: w * w].reshape(w, w), squares[w * w :].reshape(w, w)
    np.dot(Linv.T, Linv, sigma)
    np.dot(sigma, F[:w], inner)
    np.dot(inner, sigma, out[:w])
    if r == 0:
        return
    Y = sides[: r * w].reshape(r, w)
    R = sides[r * w : 2 * r * w].reshape(r, w)
    dY = sides[2 * r * w : 3 * r * w].reshape(r, w)
    np.dot(L21, Linv, Y)
    np.dot(Y, F[:w], dY)
    for i in range(r):
        for j in range(w):
            R[i, j] = F[w + i, j] - dY[i, j]
    np.dot(R, sigma, dY)
    np.dot(P22, Y, R)
    np.dot(Y.T, R, inner)
    for i in range(w):
        for j in range(w):
            out[i, j] += inner[i, j]
    np.dot(dY.T, z[w:], inner)  # z21 = -Z22 Y
    for i in range(w):
        for j in range(w):
            out[i, j] += inner[i, j] + inner[j, i]
    np.dot(Z22, dY, Y)
    for i in range(r):
        for j in range(w):
            out[w + i, j] = Y[i, j] - R[i, j]


@compiled
def sandwich(start, ptr, panel, parent, relative, children, x, inverse, inverse_ptr, down_peak, z, e):
    """A^-1 E A^-1 as panels laid out like x; z is the inverse there, e what ``reduce`` made of E."""
    m = start.size - 1
    out = np.empty(x.size)
    stacks = np.empty((2, max(1, down_peak)))
    where = np.zeros(m, np.int64)
    ends = np.zeros(m, np.int64)
    scratch = np.empty(1)
    for k in range(m - 1, -1, -1):
        w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
        size, up, base = w + r, parent[k], 0
        if up != -1:
            base = ends[up]
        need = 2 * w * w + 3 * r * w + 2 * r * r
        if scratch.size < need:
            scratch = np.empty(2 * need)
        here = slice(panel[k], panel[k] + size * w)
        F, Z, P = e[here].reshape(size, w), z[here].reshape(size, w), out[here].reshape(size, w)
        L21 = x[panel[k] + w * w : panel[k] + size * w].reshape(r, w)
        Linv = inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w)
        at = 2 * w * w + 3 * r * w
        Z22 = scratch[at : at + r * r].reshape(r, r)
        P22 = scratch[at + r * r : at + 2 * r * r].reshape(r, r)
        if r > 0:
            full = start[up + 1] - start[up] + ptr[up + 1] - ptr[up]
            first = stacks[0, where[up] : where[up] + full * full].reshape(full, full)
            second = stacks[1, where[up] : where[up] + full * full].reshape(full, full)
            rel = relative[ptr[k] : ptr[k + 1]]
            for i in range(r):
                a = rel[i]
                for j in range(r):
                    Z22[i, j] = first[a, rel[j]]
                    P22[i, j] = second[a, rel[j]]
        panels(w, r, F, L21, Linv, Z, Z22, P22, scratch[:at], P)
        if children[k] > 0:
            first = stacks[0, base : base + size * size].reshape(size, size)
            second = stacks[1, base : base + size * size].reshape(size, size)
            for i in range(size):
                for j in range(w):
                    first[i, j], second[i, j] = Z[i, j], P[i, j]
            for i in range(r):
                for j in range(w):
                    first[j, w + i], second[j, w + i] = Z[w + i, j], P[w + i, j]
                for j in range(r):
                    first[w + i, w + j], second[w + i, w + j] = Z22[i, j], P22[i, j]
            where[k] = base
            ends[k] = base + size * size
    return out
