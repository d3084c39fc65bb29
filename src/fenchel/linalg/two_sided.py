"""A^-1 C A^-1 for a dense symmetric C, in its memory, from a factor A = F D F' with unit diagonal of F.

    M = F^-1 C F^-T,    P = F^-T (D^-1 M D^-1) F^-1

Each step takes n^3 flops, by halves and using symmetry throughout; two products with A^-1 would take 4 n^3 together.
BLAS is called on parts of both matrices in place. scipy's wrappers would copy each part, so its library is called by
address, with leading dimensions. In Fortran's order symmetric and triangular matrices are stored on and below the
diagonal.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

_LEAF = 128  # rows that are handled without halving: twice the flops, for a small part of the work


@cache
def _routine(name: str) -> tuple[Callable[..., None], type]:
    """A routine of scipy's BLAS and its integer type, from the capsule that scipy publishes."""
    from scipy.linalg import cython_blas

    named, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    named.restype, named.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = cython_blas.__pyx_capi__[name]
    signature = named(capsule)
    arguments = signature.count(b",") + 1
    address = pointer(capsule, signature)
    whole = ctypes.c_int if b" int *" in signature else ctypes.c_int64
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address), whole


def _call(name: str, letters: str, *arguments: int | float | np.ndarray) -> None:
    """Call a routine with integers, numbers and matrices as in Fortran; each matrix is followed by its leading
    dimension.

    Matrices are parts of arrays in Fortran's order.
    """
    routine, whole = _routine(name)
    kept: list[ctypes.c_char | ctypes._SimpleCData] = [ctypes.c_char(letter.encode()) for letter in letters]
    given = [ctypes.addressof(one) for one in kept]
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            given.append(argument.ctypes.data)
            kept.append(whole(max(1, argument.strides[1] // 8)))
        else:
            kept.append(whole(argument) if isinstance(argument, int) else ctypes.c_double(argument))
        given.append(ctypes.addressof(kept[-1]))
    routine(*given)


def _solve(F: np.ndarray, B: np.ndarray, how: str) -> None:
    """B <- F^-1 B ("LN"), F^-T B ("LT"), B F^-1 ("RN") or B F^-T ("RT")."""
    _call("dtrsm", how[0] + "L" + how[1] + "U", *B.shape, 1.0, F, B)


def _halves(C: np.ndarray) -> int:
    """The index at which C is divided."""
    return C.shape[0] // 2


def _inwards(F: np.ndarray, C: np.ndarray, scratch: np.ndarray) -> None:
    """C <- F^-1 C F^-T."""
    if C.shape[0] <= _LEAF:
        _filled(C)
        _solve(F, C, "LN")
        return _solve(F, C, "RT")
    j = _halves(C)
    F11, F21, F22 = F[:j, :j], F[j:, :j], F[j:, j:]
    C11, C21, C22 = C[:j, :j], C[j:, :j], C[j:, j:]
    _inwards(F11, C11, scratch)
    half = scratch[: C21.size].reshape(C21.shape, order="F")
    _call("dsymm", "RL", *C21.shape, 0.5, C11, F21, 0.0, half)  # 1/2 F21 M11
    _solve(F11, C21, "RT")
    C21 -= half
    _call("dsyr2k", "LN", C22.shape[0], j, -1.0, C21, F21, 1.0, C22)
    C21 -= half
    _solve(F22, C21, "LN")
    _inwards(F22, C22, scratch)


def _outwards(F: np.ndarray, C: np.ndarray, scratch: np.ndarray) -> None:
    """C <- F^-T C F^-1."""
    if C.shape[0] <= _LEAF:
        _filled(C)
        _solve(F, C, "LT")
        return _solve(F, C, "RN")
    j = _halves(C)
    F11, F21, F22 = F[:j, :j], F[j:, :j], F[j:, j:]
    C11, C21, C22 = C[:j, :j], C[j:, :j], C[j:, j:]
    _outwards(F22, C22, scratch)
    half = scratch[: C21.size].reshape(C21.shape, order="F")
    _call("dsymm", "LL", *C21.shape, 0.5, C22, F21, 0.0, half)  # 1/2 P22 F21
    _solve(F22, C21, "LT")
    C21 -= half
    _call("dsyr2k", "LT", j, C21.shape[0], -1.0, C21, F21, 1.0, C11)
    C21 -= half
    _solve(F11, C21, "RN")
    _outwards(F11, C11, scratch)


def _filled(C: np.ndarray) -> None:
    """Copy what is below the diagonal above it."""
    C[:] = np.tril(C) + np.tril(C, -1).T


def two_sided(F: np.ndarray, pivots: np.ndarray, C: np.ndarray) -> None:
    """C <- A^-1 C A^-1 on and below the diagonal, where A = F diag(pivots) F'.

    Parameters
    ----------
    F, C : arrays (n, n) in Fortran's order
        F is read below the diagonal, C on and below it.
    pivots : array (n,)
    """
    n = C.shape[0]
    scratch = np.empty((n - n // 2) * (n // 2) if n > _LEAF else 0)
    _inwards(F, C, scratch)
    over = 1.0 / pivots
    for j in range(n):
        C[j:, j] *= over[j:] * over[j]
    _outwards(F, C, scratch)
