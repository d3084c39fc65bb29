"""Numeric kernels of the sparse Cholesky factorisation, compiled by numba; ``sparse.py`` is the door to them.

A supernode is a dense panel (w + r) x w, factorised and updated by dense products. No permissive wheel has a supernodal
Cholesky with a selected inverse, hence these pages.

    factorise   bottom up: L11 L11' = F11, L21 = F21 L11^-T, and U = F22 - L21 L21' is added into the parent's front
    invert      top down: Y = L21 L11^-1, Z21 = -Z22 Y, Z11 = L11^-T L11^-1 - Y' Z21, Z22 read from the parent's front

The second is Takahashi's recursion in blocks: the inverse on the pattern of L, at about the cost of the first.

Products go through ``np.dot(a, b, out)`` and everything else is a plain loop: slices assigned to slices and arrays made
on the way doubled the time numba takes to compile this file.
"""

from __future__ import annotations

import numpy as np

from .compiled import compiled


@compiled
def small_cholesky(A):
    """L of A = L L' in the lower triangle of A; returns the first bad pivot, or -1."""
    w = A.shape[0]
    for j in range(w):
        d = A[j, j]
        for k in range(j):
            d -= A[j, k] * A[j, k]
        if not d > 0.0:
            return j
        d = np.sqrt(d)
        A[j, j] = d
        for i in range(j + 1, w):
            s = A[i, j]
            for k in range(j):
                s -= A[i, k] * A[j, k]
            A[i, j] = s / d
    return -1


@compiled
def lower_inverse(L, out):
    """L^-1 of a lower triangle into the square ``out``, zeros above; whole rows at a time, as they lie in memory."""
    w = L.shape[0]
    for i in range(w):
        for j in range(w):
            out[i, j] = 0.0
        for k in range(i):
            c = L[i, k]
            for j in range(k + 1):
                out[i, j] -= c * out[k, j]
        d = 1.0 / L[i, i]
        for j in range(i):
            out[i, j] *= d
        out[i, i] = d


@compiled(inline="always")  # a call for each of a chain's many small fronts would cost a tenth
def extend_add(child, next_child, ptr, relative, where, stack, top, w, F, U):
    """Add the children's updates, lower triangles on the stack, into the front [F, U]; where the first of them stood.

    F are its first w columns, U is what stays below and beside them. Returns ``top`` where there is no child.
    """
    base = top
    while child != -1:
        r = ptr[child + 1] - ptr[child]
        V = stack[where[child] : where[child] + r * r].reshape(r, r)
        base = min(base, where[child])
        rel = relative[ptr[child] : ptr[child + 1]]
        inside = 0
        while inside < r and rel[inside] < w:
            inside += 1
        for i in range(r):
            a = rel[i]
            for j in range(min(i + 1, inside)):
                F[a, rel[j]] += V[i, j]
            for j in range(inside, i + 1):
                U[a - w, rel[j] - w] += V[i, j]
        child = next_child[child]
    return base


@compiled
def factorise(start, ptr, panel, parent, relative, x, inverse, inverse_ptr, up_peak):
    """Factorise the panels x in place; the inverses of their diagonal blocks go to ``inverse``. Bad column or -1."""
    m = start.size - 1
    stack = np.empty(max(1, up_peak))
    where = np.zeros(m, np.int64)
    first_child = np.full(m, -1, np.int64)
    next_child = np.full(m, -1, np.int64)
    scratch = np.empty(1)
    top = 0
    for k in range(m):
        w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
        F = x[panel[k] : panel[k] + (w + r) * w].reshape(w + r, w)
        U = stack[top : top + r * r].reshape(r, r)
        for i in range(r):
            for j in range(r):
                U[i, j] = 0.0
        base = extend_add(first_child[k], next_child, ptr, relative, where, stack, top, w, F, U)
        D = F[:w]
        if w > 48:
            for i in range(w):
                for j in range(i + 1, w):
                    D[i, j] = D[j, i]
            bad = blocked_cholesky(D)
        else:
            bad = small_cholesky(D)
        if bad >= 0:
            return start[k] + bad
        Linv = inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w)
        lower_inverse(D, Linv)
        for i in range(w):
            for j in range(i + 1, w):
                D[i, j] = 0.0
        if r > 0:
            B = F[w:]
            if w == 1:
                d = Linv[0, 0]
                for i in range(r):
                    B[i, 0] *= d
                for i in range(r):
                    b = B[i, 0]
                    for j in range(i + 1):
                        U[i, j] -= b * B[j, 0]
            else:
                need = r * w + r * r
                if scratch.size < need:
                    scratch = np.empty(2 * need)
                T = scratch[: r * w].reshape(r, w)
                for i in range(r):
                    for j in range(w):
                        T[i, j] = B[i, j]
                np.dot(T, Linv.T, B)
                if r * w < 64:
                    for i in range(r):
                        for j in range(i + 1):
                            s = 0.0
                            for q in range(w):
                                s += B[i, q] * B[j, q]
                            U[i, j] -= s
                else:
                    G = scratch[r * w : r * w + r * r].reshape(r, r)
                    np.dot(B, B.T, G)
                    for i in range(r):
                        for j in range(i + 1):
                            U[i, j] -= G[i, j]
        if base < top:  # the children are used up: move this update down to where they stood
            for q in range(r * r):
                stack[base + q] = stack[top + q]
        where[k] = base
        top = base + r * r
        if parent[k] != -1:
            next_child[k] = first_child[parent[k]]
            first_child[parent[k]] = k
    return -1


@compiled
def blocked_cholesky(A):
    """Cholesky of a full symmetric A by blocks of 48 columns, lower triangle in place."""
    w = A.shape[0]
    step = 48
    block, inverse = np.empty(step * step), np.empty(step * step)
    below, update = np.empty(2 * w * step), np.empty(w * step)
    for a in range(0, w, step):
        b = min(w, a + step)
        k, r = b - a, w - b
        D = block[: k * k].reshape(k, k)
        for i in range(k):
            for j in range(k):
                D[i, j] = A[a + i, a + j]
        bad = small_cholesky(D)
        if bad >= 0:
            return a + bad
        for i in range(k):
            for j in range(i + 1):
                A[a + i, a + j] = D[i, j]
        if r == 0:
            break
        inv = inverse[: k * k].reshape(k, k)
        lower_inverse(D, inv)
        B = below[: r * k].reshape(r, k)
        P = below[r * k : 2 * r * k].reshape(r, k)
        for i in range(r):
            for j in range(k):
                B[i, j] = A[b + i, a + j]
        np.dot(B, inv.T, P)
        for i in range(r):
            for j in range(k):
                A[b + i, a + j] = P[i, j]
        for c in range(0, r, step):
            e = min(r, c + step)
            G = update[: (r - c) * (e - c)].reshape(r - c, e - c)
            np.dot(P[c:], P[c:e].T, G)
            for i in range(r - c):
                for j in range(e - c):
                    A[b + c + i, b + c + j] -= G[i, j]
    return -1


@compiled
def invert(start, ptr, panel, parent, relative, children, x, inverse, inverse_ptr, down_peak):
    """The inverse on the pattern of L, as panels laid out like x."""
    m = start.size - 1
    z = np.empty(x.size)
    stack = np.empty(max(1, down_peak))
    where = np.zeros(m, np.int64)
    ends = np.zeros(m, np.int64)
    scratch = np.empty(1)
    Z22 = scratch.reshape(1, 1)
    for k in range(m - 1, -1, -1):
        w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
        size = w + r
        up = parent[k]
        base = 0
        if up != -1:
            base = ends[up]
        F = x[panel[k] : panel[k] + size * w].reshape(size, w)
        Linv = inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w)
        out = z[panel[k] : panel[k] + size * w].reshape(size, w)
        need = 2 * w * w + 2 * r * w + r * r
        if scratch.size < need:
            scratch = np.empty(2 * need)
        Z11 = scratch[: w * w].reshape(w, w)
        np.dot(Linv.T, Linv, Z11)
        if r > 0:
            at = w * w
            inner = scratch[at : at + w * w].reshape(w, w)
            at += w * w
            Y = scratch[at : at + r * w].reshape(r, w)
            at += r * w
            Z21 = scratch[at : at + r * w].reshape(r, w)
            at += r * w
            Z22 = scratch[at : at + r * r].reshape(r, r)
            full = start[up + 1] - start[up] + ptr[up + 1] - ptr[up]
            P = stack[where[up] : where[up] + full * full].reshape(full, full)
            rel = relative[ptr[k] : ptr[k + 1]]
            for i in range(r):
                a = rel[i]
                for j in range(r):
                    Z22[i, j] = P[a, rel[j]]
            np.dot(F[w:], Linv, Y)
            np.dot(Z22, Y, Z21)
            np.dot(Y.T, Z21, inner)
            for i in range(w):
                for j in range(w):
                    Z11[i, j] += inner[i, j]
            for i in range(r):
                for j in range(w):
                    out[w + i, j] = -Z21[i, j]
        for i in range(w):
            for j in range(w):
                out[i, j] = Z11[i, j]
        if children[k] > 0:
            Q = stack[base : base + size * size].reshape(size, size)
            for i in range(size):
                for j in range(w):
                    Q[i, j] = out[i, j]
            for i in range(r):
                for j in range(w):
                    Q[j, w + i] = out[w + i, j]
                for j in range(r):
                    Q[w + i, w + j] = Z22[i, j]
            where[k] = base
            ends[k] = base + size * size
    return z


@compiled
def solve_panels(start, ptr, rows, panel, x, inverse, inverse_ptr, b, forward, backward):
    """L^-1 b and then L^-T b, as asked, for b (n, k), in place."""
    m, columns = start.size - 1, b.shape[1]
    tallest = 0
    for k in range(m):
        tallest = max(tallest, start[k + 1] - start[k] + ptr[k + 1] - ptr[k])
    scratch = np.empty(2 * tallest * columns)
    if forward:
        for k in range(m):
            a = start[k]
            w, r = start[k + 1] - a, ptr[k + 1] - ptr[k]
            Linv = inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w)
            y = scratch[: w * columns].reshape(w, columns)
            np.dot(Linv, b[a : a + w], y)
            for i in range(w):
                for j in range(columns):
                    b[a + i, j] = y[i, j]
            if r > 0:
                F = x[panel[k] + w * w : panel[k] + (w + r) * w].reshape(r, w)
                t = scratch[w * columns : (w + r) * columns].reshape(r, columns)
                np.dot(F, y, t)
                for i in range(r):
                    row = rows[ptr[k] + i]
                    for j in range(columns):
                        b[row, j] -= t[i, j]
    if backward:
        for k in range(m - 1, -1, -1):
            a = start[k]
            w, r = start[k + 1] - a, ptr[k + 1] - ptr[k]
            Linv = inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w)
            y = scratch[: w * columns].reshape(w, columns)
            for i in range(w):
                for j in range(columns):
                    y[i, j] = 0.0
            if r > 0:
                F = x[panel[k] + w * w : panel[k] + (w + r) * w].reshape(r, w)
                t = scratch[w * columns : (w + r) * columns].reshape(r, columns)
                for i in range(r):
                    row = rows[ptr[k] + i]
                    for j in range(columns):
                        t[i, j] = b[row, j]
                np.dot(F.T, t, y)
            for i in range(w):
                for j in range(columns):
                    y[i, j] = b[a + i, j] - y[i, j]
            np.dot(Linv.T, y, b[a : a + w])
