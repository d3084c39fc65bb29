"""Dense symmetric matrices on a device, in place, by halves and by blocks of rows of the lower triangle.

``dense.py`` has these functions for numpy and calls this module for other arrays. No temporary is as large as the
matrix, of which a device may hold three or four. A symmetric or triangular matrix is stored in its lower triangle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

from .arrays import Array, library_of, namespace

LEAF = 2048  # rows up to which the recursions by halves call the library
_BLOCK = 1 << 25  # entries of a block: 256 MiB
_STRIPES = 8  # number of stripes in products with a triangle, which take 9/16 of the work of a full matrix

Block = Callable[[slice, slice], Array]  # the entries in a range of rows and columns of a matrix


def row_blocks(n: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows (i, j) that divide the lower triangle into blocks of at most _BLOCK entries, (j - i) j each."""
    i = 0
    while i < n:
        j = min(n, max(i + 1, int(0.5 * (i + (i * i + 4.0 * _BLOCK) ** 0.5))))
        yield i, j
        i = j


def _stripes(n: int) -> list[tuple[int, int]]:
    """A few ranges of rows of equal length; one range up to the size of a leaf."""
    edges = [n * c // _STRIPES for c in range(_STRIPES + 1)] if n > LEAF else [0, n]
    return list(pairwise(edges))


def identity(n: int, like: Array) -> Array:
    """I (N, N) on the device of ``like``."""
    xp = namespace(like)
    return xp.eye(n, dtype=xp.float64, device=like.device)


# -- factorisations ------------------------------------------------------------------------------------
def torch_cholesky(A: Any) -> tuple[Array, int]:
    """L in the memory of A, with zeros above the diagonal, and the number of a pivot that is not positive, or 0.

    The columns of A' are the rows of A, so that the upper factor of A' is L in the memory of A.
    """
    import torch

    A = A.contiguous()
    info = torch.zeros((), dtype=torch.int32, device=A.device)
    upper = A.mT
    torch.linalg.cholesky_ex(upper, upper=True, out=(upper, info))
    return A, int(info)


def solve_lower(L: Array, b: Array, transposed: bool) -> Array:
    """L^-1 b or L^-T b for b (N, M), by each library's own function, since the array API has no triangular solve."""
    xp, library = namespace(L), library_of(L)
    T = xp.matrix_transpose(L) if transposed else L
    if library == "torch":
        import torch

        return torch.linalg.solve_triangular(T, b, upper=transposed)
    if library == "cupy":
        from cupyx.scipy.linalg import solve_triangular

        return solve_triangular(T, b, lower=not transposed)
    return xp.linalg.solve(xp.triu(T) if transposed else xp.tril(T), b)


def invert_lower(A: Array, i: int, k: int) -> None:
    """[[A, 0], [C, B]]^-1 = [[A^-1, 0], [-B^-1 C A^-1, B^-1]], by halves, as devices are fast at matrix products."""
    xp = namespace(A)
    if k - i <= LEAF:
        A[i:k, i:k] = solve_lower(A[i:k, i:k], identity(k - i, A), False)
        return
    j = (i + k) // 2
    invert_lower(A, i, j)
    invert_lower(A, j, k)
    left = multiply_lower(A[i:j, i:j], xp.matrix_transpose(A[j:k, i:j]), transposed=True)
    A[j:k, i:j] = -multiply_lower(A[j:k, j:k], xp.matrix_transpose(left), transposed=False)


def gram_lower(A: Array, i: int, k: int) -> None:
    """T := T' T, lower triangle, for a lower-triangular T = [[A, 0], [C, B]]: A'A + C'C, B'C and B'B."""
    xp = namespace(A)
    if k - i <= LEAF:
        T = xp.tril(A[i:k, i:k])
        A[i:k, i:k] = xp.matrix_transpose(T) @ T
        return
    j = (i + k) // 2
    gram_lower(A, i, j)
    C = A[j:k, i:j]
    for a, b in _stripes(j - i):
        own = A[i + a : i + b, i : i + b]
        own += xp.matrix_transpose(C[:, a:b]) @ C[:, :b]
    A[j:k, i:j] = multiply_lower(A[j:k, j:k], C, transposed=True)
    gram_lower(A, j, k)


# -- products ------------------------------------------------------------------------------------------
def multiply_lower(T: Array, b: Array, transposed: bool) -> Array:
    """T b or T' b for a lower-triangular T and b (N,) or (N, M)."""
    xp, n = namespace(T), T.shape[0]
    out = xp.empty(b.shape, dtype=xp.float64, device=b.device)
    for i, j in _stripes(n):
        own = xp.tril(T[i:j, i:j])
        part = (xp.matrix_transpose(own) if transposed else own) @ b[i:j, ...]
        if transposed and j < n:
            part += xp.matrix_transpose(T[j:, i:j]) @ b[j:, ...]
        elif i and not transposed:
            part += T[i:j, :i] @ b[:i, ...]
        out[i:j, ...] = part
    return out


def multiply_symmetric(n: int, b: Array, block: Block) -> Array:
    """A b for a symmetric A (N, N), whose blocks on and below the diagonal ``block`` returns."""
    xp, out = namespace(b), 0.0 * b
    for i, j in row_blocks(n):
        rows = slice(i, j)
        corner = block(rows, rows)
        here = (xp.tril(corner) + xp.matrix_transpose(xp.tril(corner, k=-1))) @ b[rows, ...]
        if i:
            left = block(rows, slice(0, i))
            here = here + left @ b[:i, ...]
            before = out[:i, ...]
            before += xp.matrix_transpose(left) @ b[rows, ...]
        out[rows, ...] = here
    return out


def column_squares(T: Array) -> Array:
    """sum_i T_in^2 for a lower-triangular T."""
    xp, out = namespace(T), 0.0 * namespace(T).linalg.diagonal(T)  # entries above the diagonal are not used
    for i, j in row_blocks(T.shape[0]):
        before = out[:j]
        before += xp.sum(xp.tril(T[i:j, :j], k=i) ** 2, axis=0)
    return out


def symmetrised(A: Array) -> Array:
    """The full matrix of a lower triangle, as a new array."""
    xp = namespace(A)
    out = xp.tril(A)
    for i, j in row_blocks(A.shape[0]):
        out[:i, i:j] = xp.matrix_transpose(out[i:j, :i])
        corner = out[i:j, i:j]
        corner += xp.matrix_transpose(xp.tril(corner, k=-1))
    return out


# -- entry by entry, into the lower triangle of ``out`` ------------------------------------------------
def scale_into(out: Array, A: Array, a: Array) -> Array:
    """diag(a) A diag(a); ``out`` may be A itself."""
    for i, j in row_blocks(A.shape[0]):
        out[i:j, :j] = _scaled(A, a, a, i, j)
    return out


def add_scaled(A: Array, B: Array, a: Array) -> Array:
    """A + diag(a) B diag(a), in place in A."""
    for i, j in row_blocks(A.shape[0]):
        part = A[i:j, :j]
        part += _scaled(B, a, a, i, j)
    return A


def _scaled(A: Array, left: Array, right: Array, i: int, j: int) -> Array:
    """Rows i to j of diag(left) A diag(right), on and below the diagonal, as a new array."""
    block = A[i:j, :j] * right[None, :j]
    block *= left[i:j, None]
    return block


def hadamard_into(out: Array, S: Array, left: Array, right: Array, Binv: Array, u: Array, v: Array) -> Array:
    """left_i S_ij right_j + 1/2 u_i v_j Binv_ij^2; ``out`` may be Binv itself."""
    for i, j in row_blocks(S.shape[0]):
        square = _scaled(Binv, 0.5 * u, v, i, j)
        square *= Binv[i:j, :j]
        square += _scaled(S, left, right, i, j)
        out[i:j, :j] = square
    return out


def add_to_diagonal(A: Array, values: Array) -> Array:
    """A + diag(values), in place."""
    if library_of(A) == "torch":
        cast(Any, A).diagonal().add_(values)
        return A
    for i in range(0, A.shape[0], LEAF):  # the array API cannot assign to a diagonal
        j = min(A.shape[0], i + LEAF)
        corner = A[i:j, i:j]
        corner += identity(j - i, A) * values[None, i:j]
    return A


def set_diagonal(A: Array, values: Array) -> Array:
    """A with its diagonal replaced, in place."""
    if library_of(A) == "torch":
        cast(Any, A).diagonal().copy_(values)
        return A
    for i in range(0, A.shape[0], LEAF):
        j = min(A.shape[0], i + LEAF)
        A[i:j, i:j] = namespace(A).where(identity(j - i, A) > 0.0, values[None, i:j], A[i:j, i:j])
    return A


def asymmetry(A: Array) -> float:
    """max |A - A'|; NaN or inf if an entry is not finite."""
    xp, worst = namespace(A), 0.0 * A[0, 0]
    for i, j in row_blocks(A.shape[0]):
        here = xp.max(xp.abs(A[i:j, :j] - xp.matrix_transpose(A[:j, i:j])))
        worst = here if bool(xp.isnan(here)) else xp.maximum(worst, here)
    return float(worst)
