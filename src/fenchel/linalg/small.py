"""Many small symmetric matrices, each stored as its lower triangle in one row of a table.

    packed (R, T), T = L (L + 1) / 2:   entry (i, j), j <= i, at i (i + 1) / 2 + j

Sums over outer products of the rows of a matrix W (P, L) become matrix products. With pairs(W) (P, T), the packed
W_p W_p', lam @ pairs(W) is W' diag(lam_r) W for each r, and V @ doubled(pairs(W))' is W_p' V_r W_p.
"""

from __future__ import annotations

import numpy as np


def size_of(T: int) -> int:
    """L, from T = L (L + 1) / 2."""
    return int((np.sqrt(8.0 * T + 1.0) - 1.0) / 2.0 + 0.5)


def pairs(W: np.ndarray) -> np.ndarray:
    """The packed outer products W_p W_p' (P, T)."""
    i, j = np.tril_indices(W.shape[1])
    return np.ascontiguousarray(W[:, i] * W[:, j])


def doubled(table: np.ndarray) -> np.ndarray:
    """The table with off-diagonal entries doubled, so that sums over a triangle are sums over the matrix."""
    i, j = np.tril_indices(size_of(table.shape[1]))
    return np.ascontiguousarray(table * np.where(i == j, 1.0, 2.0))


def unpack(table: np.ndarray) -> np.ndarray:
    """From packed (R, T) to full matrices (R, L, L)."""
    L = size_of(table.shape[1])
    i, j = np.tril_indices(L)
    out = np.empty((table.shape[0], L, L))
    out[:, i, j] = table
    out[:, j, i] = table
    return out


def packed(M: np.ndarray) -> np.ndarray:
    """From symmetric or lower triangular matrices (R, L, L) to packed (R, T)."""
    i, j = np.tril_indices(M.shape[-1])
    return np.ascontiguousarray(M[:, i, j])


def inverses(A: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """(I + A_r)^-1 for packed A (R, T), log|I + A_r|, and the number that are not positive definite (NaN)."""
    M = np.moveaxis(unpack(A), 0, -1)
    diagonal = np.arange(M.shape[0])
    M[diagonal, diagonal] += 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        C = cholesky(M)
        log_det = 2.0 * np.log(C[diagonal, diagonal]).sum(axis=0)
        out = inverse_of(C)
    return packed(np.moveaxis(out, -1, 0)), log_det, int(np.isnan(log_det).sum())


def multiply(V: np.ndarray, b: np.ndarray) -> np.ndarray:
    """V_r b_r for packed V (R, T) and b (R, L)."""
    return (unpack(V) @ b[:, :, None])[:, :, 0]


def sandwich(V: np.ndarray, G: np.ndarray) -> np.ndarray:
    """V_r G_r V_r, for packed matrices."""
    M = unpack(V)
    return packed(M @ unpack(G) @ M)


# -- matrices (L, L, R), the last axis theirs: loops over entries, all matrices at once --------------------
def cholesky(M: np.ndarray) -> np.ndarray:
    """The lower Cholesky factor of each matrix, in place; NaN if it does not exist."""
    for k in range(M.shape[0]):
        M[k:, k] /= np.sqrt(M[k, k])
        M[k + 1 :, k + 1 :] -= M[k + 1 :, None, k] * M[None, k + 1 :, k]
    return M


def triangle_inverse(C: np.ndarray) -> np.ndarray:
    """The inverse of each lower triangle; entries above the diagonal are ignored."""
    D = np.zeros_like(C)
    for i in range(C.shape[0]):
        D[i, i] = 1.0 / C[i, i]
        D[i, :i] = -np.sum(C[i, :i, None] * D[:i, :i], axis=0) * D[i, i]
    return D


def inverse_of(C: np.ndarray) -> np.ndarray:
    """(C C')^-1, with no array larger than C."""
    D = triangle_inverse(C)
    out = np.zeros_like(C)
    for k in range(C.shape[0]):
        row = D[k, : k + 1]
        out[: k + 1, : k + 1] += row[:, None] * row
    return out


def solve(C: np.ndarray, r: np.ndarray) -> np.ndarray:
    """(C C')^-1 r, in place, for r (L, R)."""
    N = r.shape[0]
    for i in range(N):
        r[i] /= C[i, i]
        r[i + 1 :] -= C[i + 1 :, i] * r[i]
    for i in range(N - 1, -1, -1):
        r[i] /= C[i, i]
        r[:i] -= C[i, :i] * r[i]
    return r
