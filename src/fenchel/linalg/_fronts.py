"""Dense computations of one wide front, by BLAS on triangles, for ``_multifrontal.py`` and ``_sandwich.py``.

Matrices are stored by rows in flat arrays: an argument begins at the matrix's first entry, rows are ``ld`` entries
apart, and only lower triangles are read or written. BLAS sees the transpose, so that a lower triangle is an upper one
there. The functions are scipy's. Machine code in the cache refers to them by symbols, whose addresses are looked up in
each process before the code is loaded.

Panels F are (w + r, w), inverses of diagonal blocks (w, w) and updates (r, r). Products are added to the output, and
nothing above a diagonal is computed: the number of multiplications is about that of the front, at the speed of large
products. For narrow fronts plain loops, which call no function, are faster.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import types
from numba.extending import get_cython_function_address

from .compiled import compiled

WIDE = 32  # number of columns from which BLAS is faster than plain loops
STRIPE = 256  # rows or columns of a product that one thread computes
HALVED = 512  # number of columns from which a triangle is divided in halves
_STEP = 48  # columns of a block that plain loops factorise
BLOCK = 2 * _STEP * _STEP  # entries of the workspace for such a block
_TILE = 32  # rows and columns of the square tiles that are copied
_ROWS = 96  # rows computed at a time, if only the lower triangle of a product is needed

_WORD, _SIZE, _REAL = (types.CPointer(kind) for kind in (types.uint8, types.int32, types.float64))
_U, _T, _N, _L, _R = (np.uint8(ord(letter)) for letter in "UTNLR")

NO, YES = np.uint8(0), np.uint8(1)  # flags; a literal True or 1 has its own type and would compile again


def _named(name: str, *arguments: Any) -> Any:
    """scipy's function of that name, callable from compiled loops."""
    room = "cython_lapack" if name == "dlauum" else "cython_blas"
    llvm.add_symbol(f"fenchel_{name}", get_cython_function_address(f"scipy.linalg.{room}", name))
    return types.ExternalFunction(f"fenchel_{name}", types.void(*arguments))


_matrix = _REAL, _SIZE
_dgemm = _named("dgemm", _WORD, _WORD, _SIZE, _SIZE, _SIZE, _REAL, *_matrix, *_matrix, _REAL, *_matrix)
_dsymm = _named("dsymm", _WORD, _WORD, _SIZE, _SIZE, _REAL, *_matrix, *_matrix, _REAL, *_matrix)
_dsyrk = _named("dsyrk", _WORD, _WORD, _SIZE, _SIZE, _REAL, *_matrix, _REAL, *_matrix)
_dsyr2k = _named("dsyr2k", _WORD, _WORD, _SIZE, _SIZE, _REAL, *_matrix, *_matrix, _REAL, *_matrix)
_dtrmm = _named("dtrmm", _WORD, _WORD, _WORD, _WORD, _SIZE, _SIZE, _REAL, *_matrix, *_matrix)
_dlauum = _named("dlauum", _WORD, _SIZE, *_matrix, _SIZE)


@compiled
def add_product(m, n, k, alpha, a, lda, first, b, ldb, second, beta, c, ldc):
    """C := alpha A B + beta C for A (m, k) and B (k, n); ``first`` and ``second``: A or B is given transposed."""
    word = np.array([_T if first else _N, _T if second else _N], np.uint8)
    size = np.array([n, m, k, ldb, lda, ldc], np.int32)
    real = np.array([alpha, beta])
    _dgemm(
        word[1:].ctypes, word.ctypes, size.ctypes, size[1:].ctypes, size[2:].ctypes, real.ctypes, b.ctypes,
        size[3:].ctypes, a.ctypes, size[4:].ctypes, real[1:].ctypes, c.ctypes, size[5:].ctypes,
    )  # fmt: skip


@compiled
def add_symmetric_product(r, w, alpha, s, lds, first, b, ldb, beta, c, ldc):
    """C := alpha S B + beta C for B, C (r, w) and symmetric S (r, r); not ``first``: alpha B S for S (w, w)."""
    word = np.array([_R if first else _L, _U], np.uint8)
    size = np.array([w, r, lds, ldb, ldc], np.int32)
    real = np.array([alpha, beta])
    _dsymm(
        word.ctypes, word[1:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes, s.ctypes, size[2:].ctypes, b.ctypes,
        size[3:].ctypes, real[1:].ctypes, c.ctypes, size[4:].ctypes,
    )  # fmt: skip


@compiled
def subtract_square(r, w, b, ldb, c, ldc):
    """C := C - B B' for B (r, w); lower triangle."""
    word = np.array([_U, _T], np.uint8)
    size = np.array([r, w, ldb, ldc], np.int32)
    real = np.array([-1.0, 1.0])
    _dsyrk(
        word.ctypes, word[1:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes, b.ctypes, size[2:].ctypes,
        real[1:].ctypes, c.ctypes, size[3:].ctypes,
    )  # fmt: skip


@compiled
def subtract_both(r, w, a, lda, b, ldb, c, ldc):
    """C := C - A B' - B A' for A, B (r, w); lower triangle."""
    word = np.array([_U, _T], np.uint8)
    size = np.array([r, w, lda, ldb, ldc], np.int32)
    real = np.array([-1.0, 1.0])
    _dsyr2k(
        word.ctypes, word[1:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes, a.ctypes, size[2:].ctypes, b.ctypes,
        size[3:].ctypes, real[1:].ctypes, c.ctypes, size[4:].ctypes,
    )  # fmt: skip


@compiled
def times_triangle(r, w, alpha, t, ldt, transposed, b, ldb):
    """B := alpha B T for B (r, w) and a lower triangle T or its transpose."""
    word = np.array([_L, _U, _T if transposed else _N, _N], np.uint8)
    size = np.array([w, r, ldt, ldb], np.int32)
    real = np.array([alpha])
    _dtrmm(
        word.ctypes, word[1:].ctypes, word[2:].ctypes, word[3:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes,
        t.ctypes, size[2:].ctypes, b.ctypes, size[3:].ctypes,
    )  # fmt: skip


@compiled
def triangle_times(w, n, alpha, t, ldt, transposed, b, ldb):
    """B := alpha T B for B (w, n) and a lower triangle T or its transpose."""
    word = np.array([_R, _U, _T if transposed else _N, _N], np.uint8)
    size = np.array([n, w, ldt, ldb], np.int32)
    real = np.array([alpha])
    _dtrmm(
        word.ctypes, word[1:].ctypes, word[2:].ctypes, word[3:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes,
        t.ctypes, size[2:].ctypes, b.ctypes, size[3:].ctypes,
    )  # fmt: skip


@compiled
def triangle_square(w, t, ldt):
    """T := T' T for a lower triangle T; lower triangle."""
    word = np.array([_U], np.uint8)
    size = np.array([w, ldt, 0], np.int32)
    _dlauum(word.ctypes, size.ctypes, t.ctypes, size[1:].ctypes, size[2:].ctypes)


# -- plain loops -----------------------------------------------------------------------------------------
@compiled
def small_cholesky(A):
    """L with A = L L', in the lower triangle of A; returns the index of the first bad pivot, or -1."""
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
    """L^-1 of a lower triangle, in the square ``out`` with zeros above; whole rows at a time, as they are stored."""
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


@compiled
def block_cholesky(k, a, lda, inverse, ldi, block):
    """L of a small block in place, and L^-1 in ``inverse``; returns the first bad pivot, or -1.

    ``block`` is a workspace of 2 k^2. It holds the block transposed, so that updates run along rows in memory.
    """
    T = block[: k * k].reshape(k, k)
    for i in range(k):
        for j in range(i + 1):
            T[j, i] = a[i * lda + j]
    for j in range(k):
        d = T[j, j]
        if not d > 0.0:
            return j
        d = np.sqrt(d)
        T[j, j] = d
        for i in range(j + 1, k):
            T[j, i] /= d
        for i in range(j + 1, k):
            c = T[j, i]
            for q in range(i, k):
                T[i, q] -= c * T[j, q]
    V = block[k * k : 2 * k * k].reshape(k, k)
    lower_inverse(T.T, V)
    for i in range(k):
        for j in range(i + 1):
            a[i * lda + j] = T[j, i]
            inverse[i * ldi + j] = V[i, j]
    return -1


# -- stripes: what several threads may do at once, from row or column i on -----------------------------------------
@compiled
def rows_times(i, r, w, t, ldt, transposed, b, ldb):
    """A stripe of the rows of B := B T for B (r, w)."""
    times_triangle(min(STRIPE, r - i), w, 1.0, t, ldt, transposed, b[i * ldb :], ldb)


@compiled
def columns_times(i, n, w, alpha, t, ldt, transposed, b, ldb):
    """A stripe of the columns of B := alpha T B for B (w, n)."""
    triangle_times(w, min(STRIPE, n - i), alpha, t, ldt, transposed, b[i:], ldb)


@compiled
def rows_square(i, r, w, b, ldb, c, ldc):
    """A stripe of the rows of C := C - B B' for B (r, w); lower triangle."""
    k = min(STRIPE, r - i)
    if i > 0:
        add_product(k, i, w, -1.0, b[i * ldb :], ldb, NO, b, ldb, YES, 1.0, c[i * ldc :], ldc)
    subtract_square(k, w, b[i * ldb :], ldb, c[i * ldc + i :], ldc)


@compiled
def columns_symmetric(i, r, w, s, lds, b, c):
    """A stripe of the columns of C := -S B for B, C (r, w)."""
    add_symmetric_product(r, min(STRIPE, w - i), -1.0, s, lds, YES, b[i:], w, 0.0, c[i:], w)


@compiled
def rows_lower(i, r, w, alpha, a, lda, b, ldb, c, ldc):
    """A stripe of the rows of C := C + alpha A' B for A, B (r, w); lower triangle, the upper one is overwritten."""
    e = min(w, i + STRIPE)
    for s in range(i, e, _ROWS):
        t = min(e, s + _ROWS)
        add_product(t - s, t, r, alpha, a[s:], lda, YES, b, ldb, NO, 1.0, c[s * ldc :], ldc)


# -- fronts: ``parallel_tree.py`` does the same, stripes on several threads -----------------------------------
@compiled
def wide_cholesky(w, a, lda, inverse, ldi, block):
    """L of a symmetric matrix (w, w) from its lower triangle, in place, and L^-1; returns the first bad pivot, or -1.

    By halves: L11, L21 = A21 L11^-T, then L22 from A22 - L21 L21'. The lower left block of L^-1 is -L22^-1 L21 L11^-1.
    """
    if w <= _STEP:
        return block_cholesky(w, a, lda, inverse, ldi, block)
    h = w // 2
    r = w - h
    bad = wide_cholesky(h, a, lda, inverse, ldi, block)
    if bad >= 0:
        return bad
    for i in range(0, r, STRIPE):
        rows_times(i, r, h, inverse, ldi, YES, a[h * lda :], lda)
    for i in range(0, r, STRIPE):
        rows_square(i, r, h, a[h * lda :], lda, a[h * lda + h :], lda)
    bad = wide_cholesky(r, a[h * lda + h :], lda, inverse[h * ldi + h :], ldi, block)
    if bad >= 0:
        return h + bad
    for i in range(h, w):
        for j in range(h):
            inverse[i * ldi + j] = a[i * lda + j]
    for i in range(0, r, STRIPE):
        rows_times(i, r, h, inverse, ldi, NO, inverse[h * ldi :], ldi)
    for i in range(0, h, STRIPE):
        columns_times(i, h, r, -1.0, inverse[h * ldi + h :], ldi, NO, inverse[h * ldi :], ldi)
    return -1


@compiled
def wide_square(w, t, ld):
    """T := T' T for a lower triangle T; lower triangle, by halves if it is large."""
    if w <= HALVED:
        triangle_square(w, t, ld)
        return 0
    h = w // 2
    r = w - h
    wide_square(h, t, ld)
    for i in range(0, h, STRIPE):
        rows_lower(i, r, h, 1.0, t[h * ld :], ld, t[h * ld :], ld, t, ld)
    for i in range(0, h, STRIPE):
        columns_times(i, h, r, 1.0, t[h * ld + h :], ld, YES, t[h * ld :], ld)
    wide_square(r, t[h * ld + h :], ld)
    return 0


@compiled
def clear_above(w, a, b):
    """Set the entries above the diagonals of two squares to zero."""
    for i in range(w):
        for j in range(i + 1, w):
            a[i * w + j] = 0.0
            b[i * w + j] = 0.0


@compiled
def copy_lower(w, a, b):
    """Copy the lower triangle of one square into another."""
    for i in range(w):
        for j in range(i + 1):
            b[i * w + j] = a[i * w + j]


@compiled
def eliminate_wide(w, r, F, inverse, U):
    """L11, L21 in place of the front's panel, L11^-1, and U := U - L21 L21'; returns the first bad pivot, or -1."""
    clear_above(w, F, inverse)
    bad = wide_cholesky(w, F, w, inverse, w, np.empty(BLOCK))
    if bad < 0:
        for i in range(0, r, STRIPE):
            rows_times(i, r, w, inverse, w, YES, F[w * w :], w)
        for i in range(0, r, STRIPE):
            rows_square(i, r, w, F[w * w :], w, U, r)
    return bad


@compiled
def add_lower(w, r, alpha, a, b, c):
    """C := C + alpha A' B for A, B (r, w); lower triangle, the upper one is overwritten."""
    for i in range(0, w, STRIPE):
        rows_lower(i, r, w, alpha, a, w, b, w, c, w)


@compiled
def mirror(w, a):
    """Copy the lower triangle of a square above its diagonal, in tiles that fit in the cache."""
    for s in range(0, w, _TILE):
        for t in range(0, s + 1, _TILE):
            for i in range(s, min(w, s + _TILE)):
                for j in range(t, min(i, t + _TILE)):
                    a[j * w + i] = a[i * w + j]


@compiled
def invert_wide(w, r, F, inverse, Z22, ld, Y, out):
    """Z11 and Z21 of the front into the panel ``out``, from Z22 (lower triangle, rows ``ld`` apart); Y is r w."""
    copy_lower(w, inverse, out)
    wide_square(w, out, w)
    if r > 0:
        for q in range(r * w):
            Y[q] = F[w * w + q]
        for i in range(0, r, STRIPE):
            rows_times(i, r, w, inverse, w, NO, Y, w)
        for i in range(0, w, STRIPE):
            columns_symmetric(i, r, w, Z22, ld, Y, out[w * w :])
        add_lower(w, r, -1.0, Y, out[w * w :], out)
    mirror(w, out)


@compiled
def reduce_wide(w, r, F, inverse, E, U, scratch):
    """U := U - T Y' - Y T' with Y = L21 L11^-1, T = E21 - Y E11 / 2; E21 := E21 - Y E11; scratch is 2 r w."""
    mirror(w, E)
    if r > 0:
        Y, T = scratch, scratch[r * w :]
        for q in range(r * w):
            Y[q] = F[w * w + q]
            T[q] = E[w * w + q]
        times_triangle(r, w, 1.0, inverse, w, NO, Y, w)
        add_symmetric_product(r, w, -1.0, E, w, NO, Y, w, 1.0, E[w * w :], w)
        for q in range(r * w):
            T[q] = 0.5 * (T[q] + E[w * w + q])
        subtract_both(r, w, T, w, Y, w, U, r)


@compiled
def sandwich_wide(w, r, F, inverse, E, Z, Z22, P22, ld, scratch, out):
    """P11 and P21 of the front into the panel ``out``, from E after ``reduce_wide``; scratch is 2 r w.

    With dY = (E21 - Y E11) Sigma, P21 = Z22 dY - P22 Y and P11 = Sigma E11 Sigma + dY' Z21 - Y' P21.
    """
    for q in range(w * w):
        out[q] = E[q]
    for step in range(2):  # first L11^-1 E11 L11^-T, then L11^-T (...) L11^-1
        triangle_times(w, w, 1.0, inverse, w, step == 1, out, w)
        times_triangle(w, w, 1.0, inverse, w, step == 0, out, w)
    if r > 0:
        Y, dY = scratch, scratch[r * w :]
        for q in range(r * w):
            Y[q] = F[w * w + q]
            dY[q] = E[w * w + q]
        times_triangle(r, w, 1.0, inverse, w, NO, Y, w)
        times_triangle(r, w, 1.0, inverse, w, YES, dY, w)
        times_triangle(r, w, 1.0, inverse, w, NO, dY, w)
        add_symmetric_product(r, w, 1.0, Z22, ld, YES, dY, w, 0.0, out[w * w :], w)
        add_symmetric_product(r, w, -1.0, P22, ld, YES, Y, w, 1.0, out[w * w :], w)
        add_lower(w, r, 1.0, dY, Z[w * w :], out)
        add_lower(w, r, -1.0, Y, out[w * w :], out)
    mirror(w, out)
