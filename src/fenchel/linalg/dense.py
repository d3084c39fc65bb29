"""Dense symmetric factorisations for numpy and other array libraries.

numpy arrays use LAPACK in place (scipy has no public in-place trtri and lauum, hence the low-level calls). Arrays of
torch, cupy and other array-API libraries stay on their device and are also changed in place (``device_blocks.py``). A
symmetric or triangular matrix is always stored in its *lower* triangle; entries above the diagonal are arbitrary.

    cholesky(A)             A = L L'                 1/3 N^3 flops
    triangular_inverse(L)   L^-1                     1/3
    inverse_from(Linv)      A^-1 = L^-T L^-1         1/3

A C-ordered matrix is the transpose of what Fortran sees, so LAPACK gets "upper" for our lower triangles.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .. import gates
from . import device_blocks
from .arrays import Array, is_numpy, library_of, namespace, to_numpy
from .machine import note, one_thread


class NotPositiveDefinite(ArithmeticError):
    """Raised when a Cholesky factorisation meets a pivot that is not positive."""


QR_ENTRIES = 1_000_000  # most entries of X for ``root_by_rows``, which costs four products X' X and a copy
_BLOCK = 32768  # entries of a block for elementwise work, so that it and its operands fit in the cache


@lru_cache(maxsize=64)
def _row_blocks(n: int) -> tuple[tuple[int, int], ...]:
    """Row ranges (i0, i1) that divide the lower triangle into blocks of about _BLOCK entries or fewer."""
    out, i0 = [], 0
    while i0 < n:
        i1 = min(n, i0 + max(4, _BLOCK // max(i0 + 1, 256)))
        out.append((i0, i1))
        i0 = i1
    return tuple(out)


@lru_cache(maxsize=8)
def _lower(n: int) -> np.ndarray:
    """A mask that is True on and below the diagonal, for a small n."""
    return np.tri(n, dtype=bool)


def empty_square(n: int, like: Array) -> Array:
    """An uninitialised N x N matrix."""
    if is_numpy(like):
        return np.empty((n, n))
    xp = namespace(like)
    return xp.empty((n, n), dtype=xp.float64, device=like.device)


def cholesky(A: Array) -> Array:
    """L with A = L L', in the memory of A for numpy and torch. Raises NotPositiveDefinite."""
    note(factorisations=1)
    if is_numpy(A):
        from scipy.linalg.lapack import dpotrf

        out, info = dpotrf(A.T, lower=0, overwrite_a=1, clean=0)
        if info != 0:
            raise NotPositiveDefinite(f"pivot {info} of {A.shape[0]} is not positive")
        return out.T
    if library_of(A) == "torch":
        L, pivot = device_blocks.torch_cholesky(A)
        if pivot:
            raise NotPositiveDefinite(f"pivot {pivot} of {A.shape[0]} is not positive")
        return L
    xp = namespace(A)
    try:
        L = xp.linalg.cholesky(A)  # reads only the lower triangle, in every library
    except Exception as error:  # each library has its own class of error
        raise NotPositiveDefinite(str(error)) from None
    if not bool(xp.all(xp.isfinite(xp.linalg.diagonal(L)))):
        raise NotPositiveDefinite("a pivot is not positive")
    return L


def log_det(L: Array) -> float:
    """The log determinant log |L L'|."""
    if is_numpy(L):
        return 2.0 * float(np.log(np.diagonal(L)).sum())
    xp = namespace(L)
    return 2.0 * float(xp.sum(xp.log(xp.linalg.diagonal(L))))


def triangular_inverse(L: Array) -> Array:
    """L^-1, in the memory of L."""
    if is_numpy(L):
        from scipy.linalg.lapack import dtrtri

        return dtrtri(L.T, lower=0, overwrite_c=1)[0].T
    device_blocks.invert_lower(L, 0, L.shape[0])
    return L


def inverse_from(Linv: Array) -> Array:
    """(L L')^-1 = L^-T L^-1, in the memory of Linv."""
    if is_numpy(Linv):
        from scipy.linalg.lapack import dlauum

        with one_thread(Linv.shape[0] < gates.LAUUM_ALONE):
            return dlauum(Linv.T, lower=0, overwrite_c=1)[0].T
    device_blocks.gram_lower(Linv, 0, Linv.shape[0])
    return Linv


def solve_lower(L: Array, b: Array, transposed: bool = False) -> Array:
    """L^-1 b or L^-T b for b (N,) or (N, M)."""
    if is_numpy(L):
        from scipy.linalg.lapack import dtrtrs

        return dtrtrs(L.T, b, lower=0, trans=0 if transposed else 1)[0]
    out = device_blocks.solve_lower(L, b[:, None] if b.ndim == 1 else b, transposed)
    return out[:, 0] if b.ndim == 1 else out


def solve_cholesky(L: Array, b: Array) -> Array:
    """(L L')^-1 b."""
    return solve_lower(L, solve_lower(L, b), transposed=True)


def multiply_lower(T: Array, b: Array, transposed: bool = False) -> Array:
    """T b or T' b for a lower-triangular T and b (N,) or (N, M)."""
    if is_numpy(T):
        from scipy.linalg.blas import dtrmm, dtrmv

        trans = 0 if transposed else 1
        if b.ndim == 1:
            return dtrmv(T.T, b, lower=0, trans=trans)
        return dtrmm(1.0, T.T, b, lower=0, trans_a=trans)
    return device_blocks.multiply_lower(T, b, transposed)


def multiply_symmetric(A: Array, b: Array) -> Array:
    """A b for a symmetric A stored in its lower triangle, and b (N,).

    Not by numpy's ``@``: numpy and scipy each bring a BLAS library, and idle threads of one slow down the next
    factorisation of the other (by 1.7 on two cores). All work of an iteration therefore uses one library.
    """
    if is_numpy(A):
        from scipy.linalg.blas import dsymv

        return dsymv(1.0, A.T, b, lower=0)
    return device_blocks.multiply_symmetric(A.shape[0], b, lambda rows, columns: A[rows, columns])


def symmetrised(A: Array) -> Array:
    """The full symmetric matrix from its lower triangle, as a new array."""
    if is_numpy(A):
        if A.shape[0] <= gates.WHOLE_MATRIX:
            return np.where(_lower(A.shape[0]), A, A.T)
        out = np.array(A)
        for i0, i1 in _row_blocks(A.shape[0]):
            out[:i0, i0:i1] = out[i0:i1, :i0].T
            square = out[i0:i1, i0:i1]
            square[:] = np.tril(square) + np.tril(square, -1).T
        return out
    return device_blocks.symmetrised(A)


def column_squares(T: Array) -> Array:
    """sum_i T_in^2 for a lower-triangular T: the diagonal of T' T."""
    if not is_numpy(T):
        return device_blocks.column_squares(T)
    n = T.shape[0]
    if n <= gates.WHOLE_MATRIX:
        low = np.where(_lower(n), T, 0.0)
        return np.einsum("ij,ij->j", low, low)
    out = np.zeros(n)
    for i0, i1 in _row_blocks(n):
        out[:i0] += np.einsum("ij,ij->j", T[i0:i1, :i0], T[i0:i1, :i0])
        out[i0:i1] += (np.tril(T[i0:i1, i0:i1]) ** 2).sum(axis=0)
    return out


def scaled_plus_identity(S: Array, a: Array, out: Array) -> Array:
    """I + diag(a) S diag(a), lower triangle, into ``out``."""
    if not (is_numpy(S) and is_numpy(out)):
        return device_blocks.add_to_diagonal(device_blocks.scale_into(out, S, a), 1.0 + 0.0 * a)
    for i0, i1 in _row_blocks(S.shape[0]):
        block = out[i0:i1, :i1]
        np.multiply(S[i0:i1, :i1], a[:i1], out=block)
        block *= a[i0:i1, None]
    out.flat[:: S.shape[0] + 1] += 1.0
    return out


def hadamard_curvature(S: Array, left: Array, right: Array, Binv: Array, u: Array, v: Array, out: Array) -> Array:
    """left_i S_ij right_j + 1/2 u_i v_j Binv_ij^2, lower triangle, into ``out``.

    ``out`` may be Binv itself. The square of the posterior covariance enters Newton's matrix through Binv, whose
    off-diagonal entries are those of -Lam^1/2 Vt Lam^1/2. The caller sets the diagonal.
    """
    if not (is_numpy(S) and is_numpy(Binv) and is_numpy(out)):
        return device_blocks.hadamard_into(out, S, left, right, Binv, u, v)
    half = 0.5 * u
    blocks = _row_blocks(S.shape[0])
    scratch = np.empty(max((i1 - i0) * i1 for i0, i1 in blocks))
    for i0, i1 in blocks:
        square, block = Binv[i0:i1, :i1], out[i0:i1, :i1]
        np.multiply(square, square, out=block)
        block *= v[:i1]
        block *= half[i0:i1, None]
        prior = scratch[: (i1 - i0) * i1].reshape(i1 - i0, i1)
        np.multiply(S[i0:i1, :i1], right[:i1], out=prior)
        prior *= left[i0:i1, None]
        block += prior
    return out


def set_diagonal(A: Array, values: Array) -> Array:
    """A with its diagonal replaced, in place."""
    if is_numpy(A):
        A.flat[:: A.shape[0] + 1] = values
        return A
    return device_blocks.set_diagonal(A, values)


def diagonal_of(A: Array) -> Array:
    """The diagonal of A, as a new array."""
    return np.diagonal(A).copy() if is_numpy(A) else namespace(A).linalg.diagonal(A)


def diagonal_matrix(values: Array) -> Array:
    """diag(values) as a full matrix."""
    if is_numpy(values):
        return np.diag(values)
    xp = namespace(values)
    return xp.eye(values.shape[0], dtype=xp.float64, device=values.device) * values[None, :]


def scale_symmetric(A: Array, a: Array) -> Array:
    """diag(a) A diag(a), lower triangle, in place."""
    if not is_numpy(A):
        return device_blocks.scale_into(A, A, a)
    for i0, i1 in _row_blocks(A.shape[0]):
        block = A[i0:i1, :i1]
        block *= a[:i1]
        block *= a[i0:i1, None]
    return A


def add_lower(A: Array, B: Array) -> Array:
    """A + B, lower triangle, in place in A."""
    if not is_numpy(A):
        A += B
        return A
    for i0, i1 in _row_blocks(A.shape[0]):
        A[i0:i1, :i1] += B[i0:i1, :i1]
    return A


def add_scaled(A: Array, B: Array, a: Array) -> Array:
    """A + diag(a) B diag(a), lower triangle, in place in A."""
    if not is_numpy(A):
        return device_blocks.add_scaled(A, B, a)
    for i0, i1 in _row_blocks(A.shape[0]):
        block = B[i0:i1, :i1] * a[:i1]
        block *= a[i0:i1, None]
        A[i0:i1, :i1] += block
    return A


def multiply_hadamard(A: Array, B: Array, b: Array) -> Array:
    """(A o B) b for symmetric A and B valid in their lower triangles, without forming A o B."""
    if not is_numpy(A):
        n = A.shape[0]
        return device_blocks.multiply_symmetric(n, b, lambda rows, columns: A[rows, columns] * B[rows, columns])
    if A.shape[0] <= gates.WHOLE_MATRIX:
        with np.errstate(all="ignore"):  # entries above the diagonal are arbitrary and not used
            return multiply_symmetric(A * B, b)
    from scipy.linalg.blas import dgemv

    out = np.zeros(A.shape[0])
    for i0, i1 in _row_blocks(A.shape[0]):
        product = A[i0:i1, :i1] * B[i0:i1, :i1]
        corner = np.tril(product[:, i0:])
        out[i0:i1] += (corner + np.tril(corner, -1).T) @ b[i0:i1]
        if i0:
            left = np.ascontiguousarray(product[:, :i0])
            out[i0:i1] += dgemv(1.0, left.T, b[:i0], trans=1)
            out[:i0] += dgemv(1.0, left.T, b[i0:i1])
    return out


def multiply_squared(A: Array, b: Array) -> Array:
    """(A o A) b."""
    return multiply_hadamard(A, A, b)


def asymmetry(A: Array) -> float:
    """max |A - A'|; NaN or inf if an entry is not finite. Computed by tiles, so that A' is read in the cache."""
    if not is_numpy(A):
        return device_blocks.asymmetry(A)
    worst, step = 0.0, 256
    for i in range(0, A.shape[0], step):
        for j in range(0, i + 1, step):
            tile = A[i : i + step, j : j + step] - A[j : j + step, i : i + step].T
            worst = np.maximum(worst, np.abs(tile).max())  # np.maximum keeps NaN
    return float(worst)


def is_positive_semidefinite(A: Array, out: Array, eps: float = 2.2e-16) -> bool:
    """Whether A is a covariance matrix up to rounding, by a Cholesky factorisation of A + rounding I in ``out``."""
    xp = namespace(A)
    # the size of negative eigenvalues that rounding alone may produce
    shift = 8.0 * A.shape[0] * eps * float(xp.max(xp.linalg.diagonal(A)))
    if shift <= 0.0:
        return shift == 0.0 and not bool(xp.any(A != 0.0))
    if is_numpy(A) and is_numpy(out):
        np.copyto(out, A)
        out.flat[:: A.shape[0] + 1] += shift
    else:
        out[:, :] = A
        out = device_blocks.add_to_diagonal(out, shift + 0.0 * xp.linalg.diagonal(A))
    try:
        cholesky(out)
    except NotPositiveDefinite:
        return False
    return True


def smallest_eigenvalue(A: Array) -> float:
    """The smallest eigenvalue, for the error message about a matrix that is no covariance."""
    import scipy.linalg

    return float(scipy.linalg.eigvalsh(to_numpy(A), subset_by_index=[0, 0])[0])


def semidefinite_root(A: Array) -> Array:
    """R (N, r) with R R' = A for a positive semidefinite A: Cholesky, or eigenvectors if that fails."""
    xp = namespace(A)
    try:
        return xp.tril(cholesky(xp.asarray(A, copy=True)))
    except NotPositiveDefinite:
        values, vectors = xp.linalg.eigh(symmetrised(A))
        keep = to_numpy(values) > 0.0
        if not keep.any():
            return xp.zeros((A.shape[0], 1), dtype=xp.float64) if is_numpy(A) else 0.0 * vectors[:, :1]
        index = asarray_index(np.flatnonzero(keep), A)
        return xp.take(vectors, index, axis=1) * xp.sqrt(xp.take(values, index))[None, :]


def asarray_index(index: np.ndarray, like: Array) -> Array:
    """An integer index in the library and on the device of ``like``."""
    if is_numpy(like):
        return index
    xp = namespace(like)
    return xp.asarray(np.ascontiguousarray(index, dtype=np.int64), device=like.device)


def root_by_rows(X: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """The lower triangular L with L L' = I + X' diag(lam) X, for X (N, L) and lam (N,) >= 0.

    From (Lam^1/2 X; I) = Q R with L = R'. Since no number is squared, errors are eps sqrt(cond) instead of the eps cond
    of a Cholesky factorisation.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.linalg.dense import root_by_rows
    >>> L = root_by_rows(np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]]), np.full(2, 1e14))
    >>> round(2.0 * float(np.log(np.diagonal(L)).sum()), 6)  # log(4e14 + 1e10) = log|I + X' Lam X|
    33.622511
    """
    n = X.shape[1]
    R = np.asarray(np.linalg.qr(np.vstack([np.sqrt(lam)[:, None] * X, np.eye(n)]), mode="r"))
    return np.ascontiguousarray((R * np.where(np.diagonal(R) < 0.0, -1.0, 1.0)[:, None]).T)
