"""BLAS and LAPACK for compiled loops: products that add to what is there and that leave out what a triangle does.

Matrices lie row by row in flat arrays: the first entry is that of the array given, ``ld`` entries lie between rows, and
only lower triangles are read or written. Row by row is the transpose of what BLAS knows, and a lower triangle of it the
upper one. The functions are those that scipy brings. Machine code kept on disk names them, and where they stand is
looked up in every process, before it is loaded: hence the symbols.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import types
from numba.extending import get_cython_function_address

from .compiled import compiled

_WORD, _SIZE, _REAL = (types.CPointer(kind) for kind in (types.uint8, types.int32, types.float64))
_U, _T, _N, _L, _R = (np.uint8(ord(letter)) for letter in "UTNLR")

NO, YES = np.uint8(0), np.uint8(1)  # flags: a literal True or 1 is a type of its own, compiled anew


def _named(name: str, *arguments: Any) -> Any:
    """scipy's function of that name, for compiled loops to call."""
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
    """C := alpha A B + beta C for A (m, k) and B (k, n); the first or second is given as its transpose, if so said."""
    word = np.array([_T if first else _N, _T if second else _N], np.uint8)
    size = np.array([n, m, k, ldb, lda, ldc], np.int32)
    real = np.array([alpha, beta])
    _dgemm(
        word[1:].ctypes, word.ctypes, size.ctypes, size[1:].ctypes, size[2:].ctypes, real.ctypes, b.ctypes,
        size[3:].ctypes, a.ctypes, size[4:].ctypes, real[1:].ctypes, c.ctypes, size[5:].ctypes,
    )  # fmt: skip


@compiled
def add_symmetric_product(r, w, alpha, s, lds, first, b, ldb, beta, c, ldc):
    """C := alpha S B + beta C for B, C (r, w) and a symmetric S (r, r), or alpha B S for S (w, w) if not ``first``."""
    word = np.array([_R if first else _L, _U], np.uint8)
    size = np.array([w, r, lds, ldb, ldc], np.int32)
    real = np.array([alpha, beta])
    _dsymm(
        word.ctypes, word[1:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes, s.ctypes, size[2:].ctypes, b.ctypes,
        size[3:].ctypes, real[1:].ctypes, c.ctypes, size[4:].ctypes,
    )  # fmt: skip


@compiled
def subtract_square(r, w, b, ldb, c, ldc):
    """C := C - B B' for B (r, w), in the lower triangle."""
    word = np.array([_U, _T], np.uint8)
    size = np.array([r, w, ldb, ldc], np.int32)
    real = np.array([-1.0, 1.0])
    _dsyrk(
        word.ctypes, word[1:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes, b.ctypes, size[2:].ctypes,
        real[1:].ctypes, c.ctypes, size[3:].ctypes,
    )  # fmt: skip


@compiled
def subtract_both(r, w, a, lda, b, ldb, c, ldc):
    """C := C - A B' - B A' for A, B (r, w), in the lower triangle."""
    word = np.array([_U, _T], np.uint8)
    size = np.array([r, w, lda, ldb, ldc], np.int32)
    real = np.array([-1.0, 1.0])
    _dsyr2k(
        word.ctypes, word[1:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes, a.ctypes, size[2:].ctypes, b.ctypes,
        size[3:].ctypes, real[1:].ctypes, c.ctypes, size[4:].ctypes,
    )  # fmt: skip


@compiled
def times_triangle(r, w, alpha, t, ldt, transposed, b, ldb):
    """B := alpha B T for B (r, w) and a lower triangle T, or its transpose."""
    word = np.array([_L, _U, _T if transposed else _N, _N], np.uint8)
    size = np.array([w, r, ldt, ldb], np.int32)
    real = np.array([alpha])
    _dtrmm(
        word.ctypes, word[1:].ctypes, word[2:].ctypes, word[3:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes,
        t.ctypes, size[2:].ctypes, b.ctypes, size[3:].ctypes,
    )  # fmt: skip


@compiled
def triangle_times(w, n, alpha, t, ldt, transposed, b, ldb):
    """B := alpha T B for a lower triangle T, or its transpose, and B (w, n)."""
    word = np.array([_R, _U, _T if transposed else _N, _N], np.uint8)
    size = np.array([n, w, ldt, ldb], np.int32)
    real = np.array([alpha])
    _dtrmm(
        word.ctypes, word[1:].ctypes, word[2:].ctypes, word[3:].ctypes, size.ctypes, size[1:].ctypes, real.ctypes,
        t.ctypes, size[2:].ctypes, b.ctypes, size[3:].ctypes,
    )  # fmt: skip


@compiled
def triangle_square(w, t, ldt):
    """T := T' T of a lower triangle, in the lower triangle."""
    word = np.array([_U], np.uint8)
    size = np.array([w, ldt, 0], np.int32)
    _dlauum(word.ctypes, size.ctypes, t.ctypes, size[1:].ctypes, size[2:].ctypes)
