"""A^-1 E A^-1 on the pattern of L, for a symmetric E on the pattern of A: minus the derivative of the selected inverse.

Two passes over the fronts of ``_multifrontal.py``, with Y = L21 L11^-1 and Sigma = (L11 L11')^-1 of each supernode:

    reduce      bottom up: E22 - E21 Y' - Y E21' + Y E11 Y' is added into the parent's front
    sandwich    top down, from P22 and Z22 = (A^-1)_22 of the parent's front, dY = (E21 - Y E11) Sigma:
                P21 = Z22 dY - P22 Y,    P11 = Sigma E11 Sigma + dY' Z21 - Y' P21

The cost is about that of two factorisations and two selected inverses.
"""

from __future__ import annotations

import numpy as np

from ._fronts import WIDE, mirror, reduce_wide, sandwich_wide, subtract_both
from ._multifrontal import extend_add, gather, links, tallest
from .compiled import compiled


@compiled
def reduce(start, ptr, panel, parent, relative, x, inverse, inverse_ptr, stack, e):
    """Assemble the fronts of E in the panels e, in place: E11 (full) and E21 - Y E11 of each supernode."""
    m = start.size - 1
    runs = np.empty(tallest(ptr), np.int64)
    where = np.zeros(m, np.int64)
    first_child, next_child = links(parent)
    scratch = np.empty(1)
    top = 0
    for k in range(m):
        w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
        F = e[panel[k] : panel[k] + (w + r) * w].reshape(w + r, w)
        U = stack[top : top + r * r].reshape(r, r)
        for i in range(r):
            for j in range(i + 1):
                U[i, j] = 0.0
        base = extend_add(first_child[k], next_child, ptr, relative, where, stack, 0, top, w, F, U, runs)
        if scratch.size < 3 * r * w:
            scratch = np.empty(6 * r * w)
        if w >= WIDE:
            reduce_wide(w, r, x[panel[k] :], inverse[inverse_ptr[k] :], e[panel[k] :], stack[top:], scratch)
        else:
            for i in range(w):
                for j in range(i + 1, w):
                    F[i, j] = F[j, i]
            Y = scratch[: r * w].reshape(r, w)
            T = scratch[r * w : 2 * r * w].reshape(r, w)
            L21 = x[panel[k] + w * w : panel[k] + (w + r) * w].reshape(r, w)
            if r > 0:
                np.dot(L21, inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w), Y)
                np.dot(Y, F[:w], T)
            for i in range(r):
                for j in range(w):
                    s = T[i, j]
                    T[i, j] = F[w + i, j] - 0.5 * s
                    F[w + i, j] -= s
            if r * w < 64:
                for i in range(r):
                    for j in range(i + 1):
                        s = 0.0
                        for q in range(w):
                            s += T[i, q] * Y[j, q] + Y[i, q] * T[j, q]
                        U[i, j] -= s
            else:
                subtract_both(r, w, scratch[r * w :], w, scratch, w, stack[top:], r)
        if base < top:
            for i in range(r):
                for q in range(i * r, i * r + i + 1):
                    stack[base + q] = stack[top + q]
        where[k] = base
        top = base + r * r


@compiled
def panels(w, r, F, L21, Linv, z, Z22, P22, scratch, out):
    """P11 and P21 of one narrow front into ``out``; F is its panel of E, z that of the inverse; Z22, P22 are full."""
    sigma = scratch[: w * w].reshape(w, w)
    inner = scratch[w * w : 2 * w * w].reshape(w, w)
    sides = scratch[2 * w * w :]
    np.dot(Linv.T, Linv, sigma)
    np.dot(F[:w], sigma, inner)
    np.dot(sigma, inner, out[:w])
    if r == 0:
        return
    Y = sides[: r * w].reshape(r, w)
    dY = sides[r * w : 2 * r * w].reshape(r, w)
    side = sides[2 * r * w : 3 * r * w].reshape(r, w)
    np.dot(L21, Linv, Y)
    np.dot(F[w:], sigma, dY)
    np.dot(P22, Y, side)
    np.dot(Z22, dY, out[w:])
    for i in range(r):
        for j in range(w):
            out[w + i, j] -= side[i, j]
    np.dot(dY.T, z[w:], inner)  # z21 = -Z22 Y; the rest is in -Y' P21
    np.dot(Y.T, out[w:], sigma)
    for i in range(w):
        for j in range(w):
            out[i, j] += inner[i, j] - sigma[i, j]


@compiled
def sandwich(start, ptr, panel, parent, relative, children, x, inverse, inverse_ptr, stacks, z, e, out):
    """A^-1 E A^-1 as panels ``out`` in the layout of x; z is the inverse, e the result of ``reduce``."""
    m = start.size - 1
    runs = np.empty(tallest(ptr), np.int64)
    where = np.zeros(m, np.int64)
    scratch = np.empty(1)
    for k in range(m - 1, -1, -1):
        w, r = start[k + 1] - start[k], ptr[k + 1] - ptr[k]
        size, up, base, full = w + r, parent[k], 0, 0
        if up != -1:
            full = start[up + 1] - start[up] + ptr[up + 1] - ptr[up]
            base = where[up] + full * full
        at = 2 * w * w + 3 * r * w
        if scratch.size < at + 2 * r * r:
            scratch = np.empty(2 * (at + 2 * r * r))
        here, last = panel[k], panel[k] + size * w
        ld = r
        Z22, P22 = scratch[at : at + r * r], scratch[at + r * r : at + 2 * r * r]
        if children[k] > 0 and w >= WIDE:  # in the fronts that the children read
            ld = size
            Z22, P22 = stacks[0, base + w * size + w :], stacks[1, base + w * size + w :]
        if r > 0:
            rel = relative[ptr[k] : ptr[k + 1]]
            gather(stacks[0, where[up] :], full, rel, runs, Z22, ld)
            gather(stacks[1, where[up] :], full, rel, runs, P22, ld)
        if w >= WIDE:
            sandwich_wide(
                w, r, x[here:], inverse[inverse_ptr[k] :], e[here:], z[here:], Z22, P22, ld, scratch, out[here:]
            )
        else:
            mirror(r, Z22)
            mirror(r, P22)
            panels(
                w, r, e[here:last].reshape(size, w), x[here + w * w : last].reshape(r, w),
                inverse[inverse_ptr[k] : inverse_ptr[k] + w * w].reshape(w, w), z[here:last].reshape(size, w),
                Z22.reshape(r, r), P22.reshape(r, r), scratch[:at], out[here:last].reshape(size, w),
            )  # fmt: skip
        if children[k] > 0:
            first = stacks[0, base : base + size * size].reshape(size, size)
            second = stacks[1, base : base + size * size].reshape(size, size)
            for i in range(size):
                for j in range(min(i + 1, w)):
                    first[i, j], second[i, j] = z[here + i * w + j], out[here + i * w + j]
            if w < WIDE:
                for i in range(r):
                    for j in range(i + 1):
                        first[w + i, w + j], second[w + i, w + j] = Z22[i * r + j], P22[i * r + j]
            where[k] = base
