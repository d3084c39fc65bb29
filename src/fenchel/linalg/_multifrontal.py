"""Numeric kernels of the sparse Cholesky factorisation, compiled by numba, for ``supernodal.py``.

A supernode is a dense panel (w + r) x w, factorised and updated by dense products. No wheel with a permissive licence
has a supernodal Cholesky factorisation with a selected inverse.

    factorise   bottom up: L11 L11' = F11, L21 = F21 L11^-T, and U = F22 - L21 L21' is added into the parent's front
    invert      top down: Y = L21 L11^-1, Z21 = -Z22 Y, Z11 = L11^-T L11^-1 - Y' Z21, with Z22 from the parent's front

The second is Takahashi's recursion in blocks: the inverse on the pattern of L, at about the cost of the first pass.

Wide fronts are computed in ``_fronts.py``. Products use ``np.dot(a, b, out)`` or BLAS there, and the rest are plain
loops: assignments between slices and temporary arrays double the time numba takes to compile this file.
"""

from __future__ import annotations

import numpy as np

from ._fronts import (
    WIDE,
    YES,
    eliminate_wide,
    invert_wide,
    lower_inverse,
    small_cholesky,
    subtract_square,
    times_triangle,
)
from .compiled import compiled

LONG = 32  # number of rows below a front from which positions in the parent are copied in runs


@compiled
def tallest(ptr):
    """The largest number of rows below a front, at least 1."""
    out = 1
    for k in range(ptr.size - 1):
        out = max(out, ptr[k + 1] - ptr[k])
    return out


@compiled
def find_runs(rel, runs):
    """For each position, the end of the run of consecutive positions that contains it."""
    r = rel.size
    for j in range(r - 1, -1, -1):
        runs[j] = runs[j + 1] if j + 1 < r and rel[j + 1] == rel[j] + 1 else j + 1


@compiled
def add_runs(V, rel, runs, inside, w, F, U):
    """The loops of ``extend_add`` for one child whose positions come in runs."""
    r = rel.size
    find_runs(rel, runs)
    for i in range(r):
        a, j = rel[i], 0
        while j <= i:
            if j < inside:
                e = min(runs[j], i + 1, inside)
                at = rel[j] - j
                for q in range(j, e):
                    F[a, at + q] += V[i, q]
            else:
                e = min(runs[j], i + 1)
                at = rel[j] - w - j
                for q in range(j, e):
                    U[a - w, at + q] += V[i, q]
            j = e


@compiled(inline="always")  # inlined, since calls for a chain's many small fronts would add a tenth of the time
def extend_add(child, next_child, ptr, relative, where, stack, floor, top, w, F, U, runs):
    """Add the children's updates, lower triangles on the stack, to the front [F, U]; returns where the first one
    begins.

    F has the first w columns of the front, U the rest. If all children are below ``floor``, they belong to other parts
    of the tree, and ``top`` is returned: their space stays unused.
    """
    base = top
    while child != -1:
        r = ptr[child + 1] - ptr[child]
        V = stack[where[child] : where[child] + r * r].reshape(r, r)
        if where[child] >= floor:
            base = min(base, where[child])
        rel = relative[ptr[child] : ptr[child + 1]]
        inside = 0
        while inside < r and rel[inside] < w:
            inside += 1
        if r >= LONG:
            add_runs(V, rel, runs, inside, w, F, U)
        else:
            for i in range(r):
                a = rel[i]
                for j in range(min(i + 1, inside)):
                    F[a, rel[j]] += V[i, j]
                for j in range(inside, i + 1):
                    U[a - w, rel[j] - w] += V[i, j]
        child = next_child[child]
    return base


@compiled
def gather(front, full, rel, runs, out, ld):
    """The lower triangle of rows and columns ``rel`` of a front, into ``out`` with rows ``ld`` apart."""
    find_runs(rel, runs)
    for i in range(rel.size):
        row, a, j = i * ld, rel[i] * full, 0
        while j <= i:
            e = min(runs[j], i + 1)
            at = a + rel[j] - j
            for q in range(j, e):
                out[row + q] = front[at + q]
            j = e


@compiled
def links(parent):
    """The first child of each supernode and the next child of the same parent, last child first; -1 for none."""
    first_child = np.full(parent.size, -1, np.int64)
    next_child = np.full(parent.size, -1, np.int64)
    for k in range(parent.size):
        if parent[k] != -1:
            next_child[k] = first_child[parent[k]]
            first_child[parent[k]] = k
    return first_child, next_child


@compiled
def assemble(k, start, ptr, panel, first_child, next_child, relative, x, stack, floor, where):
    """Assemble the front of a supernode from its entries and its children's updates; its update goes on the stack."""
    w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
    F = x[panel[k] : panel[k] + (w + r) * w].reshape(w + r, w)
    U = stack[floor : floor + r * r].reshape(r, r)
    for i in range(r):
        for j in range(i + 1):
            U[i, j] = 0.0
    runs = np.empty(tallest(ptr), np.int64)
    extend_add(first_child[k], next_child, ptr, relative, where, stack, floor, floor, w, F, U, runs)
    where[k] = floor


@compiled
def read_front(k, start, ptr, parent, relative, stack, floor, where):
    """Copy Z22 of a supernode from the parent's front into its own, on the stack from ``floor``."""
    w, r, up = start[k + 1] - start[k], ptr[k + 1] - ptr[k], parent[k]
    where[k] = floor
    if r > 0:
        full = start[up + 1] - start[up] + ptr[up + 1] - ptr[up]
        rel = relative[ptr[k] : ptr[k + 1]]
        gather(stack[where[up] :], full, rel, np.empty(r, np.int64), stack[floor + w * (w + r) + w :], w + r)


@compiled
def write_front(w, size, panel, front):
    """Write the first columns of a front of the inverse from its panel; lower triangle."""
    for i in range(size):
        for j in range(min(i + 1, w)):
            front[i * size + j] = panel[i * w + j]


@compiled
def factorise(
    nodes, start, ptr, panel, first_child, next_child, relative, x, inverse, inverse_ptr, stack, floor, where
):
    """Factorise the panels x of these supernodes in place; inverses of their diagonal blocks go to ``inverse``.

    Updates are put on the stack from ``floor``, at positions stored in ``where``. Returns a bad column, or -1.
    """
    runs = np.empty(tallest(ptr), np.int64)
    top = floor
    for k in nodes:
        w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
        F = x[panel[k] : panel[k] + (w + r) * w].reshape(w + r, w)
        U = stack[top : top + r * r].reshape(r, r)
        for i in range(r):
            for j in range(i + 1):
                U[i, j] = 0.0
        base = extend_add(first_child[k], next_child, ptr, relative, where, stack, floor, top, w, F, U, runs)
        if w >= WIDE:
            bad = eliminate_wide(w, r, x[panel[k] :], inverse[inverse_ptr[k] :], stack[top:])
        else:
            bad = small_cholesky(F[:w])
        if bad >= 0:
            return start[k] + bad
        if w < WIDE:
            Linv = inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w)
            lower_inverse(F[:w], Linv)
            for i in range(w):
                for j in range(i + 1, w):
                    F[i, j] = 0.0
            B = F[w:]
            if r * w < 64:
                for i in range(r):
                    for j in range(w - 1, -1, -1):
                        s = 0.0
                        for q in range(j + 1):
                            s += B[i, q] * Linv[j, q]
                        B[i, j] = s
                for i in range(r):
                    for j in range(i + 1):
                        s = 0.0
                        for q in range(w):
                            s += B[i, q] * B[j, q]
                        U[i, j] -= s
            else:
                times_triangle(r, w, 1.0, inverse[inverse_ptr[k] :], w, YES, x[panel[k] + w * w :], w)
                subtract_square(r, w, x[panel[k] + w * w :], w, stack[top:], r)
        if base < top:  # move this update to the space of the children, which are no longer needed
            for i in range(r):
                for q in range(i * r, i * r + i + 1):
                    stack[base + q] = stack[top + q]
        where[k] = base
        top = base + r * r
    return -1


@compiled
def invert(
    nodes, owner, start, ptr, panel, parent, relative, children, x, inverse, inverse_ptr, stack, floor, keep, where, z
):
    """The inverse on the pattern of L, as panels z in the layout of x, for these supernodes in reverse order.

    Fronts of the inverse (lower triangles) are put on the stack from ``floor``, at positions stored in ``where``.
    Parents with another ``owner`` are already done. With ``keep`` no front replaces another.
    """
    runs = np.empty(tallest(ptr), np.int64)
    scratch = np.empty(1)
    top = floor
    for k in nodes[::-1]:
        w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
        size = w + r
        up = parent[k]
        base, full = floor, 0
        if up != -1:
            full = start[up + 1] - start[up] + ptr[up + 1] - ptr[up]
            if owner[up] == owner[k]:
                base = where[up] + full * full
        if keep:
            base = top
        out = z[panel[k] : panel[k] + size * w].reshape(size, w)
        at = w * w + r * w
        if scratch.size < at + r * r:
            scratch = np.empty(2 * (at + r * r))
        here, ld = scratch[at : at + r * r], r
        if w >= WIDE and children[k] > 0:  # in the front that the children read
            here, ld = stack[base + w * size + w :], size
        if r > 0:
            front, rel = stack[where[up] :], relative[ptr[k] : ptr[k + 1]]
            if r >= LONG:
                gather(front, full, rel, runs, here, ld)
            else:
                for i in range(r):
                    a = rel[i] * full
                    for j in range(i + 1):
                        here[i * ld + j] = front[a + rel[j]]
        if w >= WIDE:
            invert_wide(w, r, x[panel[k] :], inverse[inverse_ptr[k] :], here, ld, scratch, z[panel[k] :])
        else:
            Linv = inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w)
            np.dot(Linv.T, Linv, out[:w])
            if r > 0:
                Z22 = here.reshape(r, r)
                for i in range(r):
                    for j in range(i):
                        Z22[j, i] = Z22[i, j]
                inner = scratch[: w * w].reshape(w, w)
                Y = scratch[w * w : at].reshape(r, w)
                np.dot(x[panel[k] + w * w : panel[k] + size * w].reshape(r, w), Linv, Y)
                np.dot(Z22, Y, out[w:])
                np.dot(Y.T, out[w:], inner)
                for i in range(w):
                    for j in range(w):
                        out[i, j] += inner[i, j]
                for i in range(w, size):
                    for j in range(w):
                        out[i, j] = -out[i, j]
        if children[k] > 0:
            Q = stack[base : base + size * size].reshape(size, size)
            for i in range(size):
                for j in range(min(i + 1, w)):
                    Q[i, j] = out[i, j]
            if w < WIDE:
                for i in range(r):
                    for j in range(i + 1):
                        Q[w + i, w + j] = here[i * r + j]
            where[k] = base
            top = base + size * size


@compiled
def solve_panels(start, ptr, rows, panel, x, inverse, inverse_ptr, b, forward, backward):
    """L^-1 b if ``forward``, then L^-T b if ``backward``, for b (n, k), in place."""
    m, columns = start.size - 1, b.shape[1]
    most = 0
    for k in range(m):
        most = max(most, start[k + 1] - start[k] + ptr[k + 1] - ptr[k])
    scratch = np.empty(2 * most * columns)
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
                np.dot(F, b[a : a + w], t)
                for i in range(r):
                    row = rows[ptr[k] + i]
                    for j in range(columns):
                        b[row, j] -= t[i, j]
    if backward:
        for k in range(m - 1, -1, -1):
            a = start[k]
            w, r = start[k + 1] - a, ptr[k + 1] - ptr[k]
            t = scratch[w * columns : (w + r) * columns].reshape(r, columns)
            for i in range(r):
                row = rows[ptr[k] + i]
                for j in range(columns):
                    t[i, j] = b[row, j]
            Linv = inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w)
            y = scratch[: w * columns].reshape(w, columns)
            for i in range(w):
                for j in range(columns):
                    y[i, j] = 0.0
            if r > 0:
                np.dot(x[panel[k] + w * w : panel[k] + (w + r) * w].reshape(r, w).T, t, y)
            for i in range(w):
                for j in range(columns):
                    y[i, j] = b[a + i, j] - y[i, j]
            np.dot(Linv.T, y, b[a : a + w])
