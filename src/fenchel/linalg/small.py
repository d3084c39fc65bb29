"""Many small symmetric matrices at once, each as its lower triangle in one row of a table.

    packed (R, T), T = L (L + 1) / 2:   entry (i, j), j <= i, at i (i + 1) / 2 + j

Sums over outer products of the rows of a matrix W (P, L) are then matrix products with one table of them: with
pairs(W) (P, T) the packed W_p W_p', lam @ pairs(W) holds W' diag(lam_r) W of every r, and V @ doubled(pairs(W))' holds
W_p' V_r W_p. Compiled, because LAPACK called on stacks of 10 x 10 matrices spends its time in the calls.
"""

from __future__ import annotations

import numpy as np

from .compiled import compiled


def size_of(T: int) -> int:
    """L of T = L (L + 1) / 2."""
    return int((np.sqrt(8.0 * T + 1.0) - 1.0) / 2.0 + 0.5)


def pairs(W: np.ndarray) -> np.ndarray:
    """The packed outer products W_p W_p' (P, T)."""
    i, j = np.tril_indices(W.shape[1])
    return np.ascontiguousarray(W[:, i] * W[:, j])


def doubled(table: np.ndarray) -> np.ndarray:
    """Off-diagonal entries twice: sums over a triangle become sums over the matrix."""
    i, j = np.tril_indices(size_of(table.shape[1]))
    return np.ascontiguousarray(table * np.where(i == j, 1.0, 2.0))


def unpack(table: np.ndarray) -> np.ndarray:
    """(R, T) -> (R, L, L)."""
    L = size_of(table.shape[1])
    i, j = np.tril_indices(L)
    out = np.empty((table.shape[0], L, L))
    out[:, i, j] = table
    out[:, j, i] = table
    return out


@compiled
def factorise(A: np.ndarray, L: int, inverse: bool) -> tuple[np.ndarray, int]:  # pragma: no cover - compiled
    """I + A_r -> its Cholesky factor, or its inverse, in place; log-determinants, and how many failed."""
    R = A.shape[0]
    log_det = np.zeros(R)
    failed = 0
    C, D = np.zeros((L, L)), np.zeros((L, L))
    for r in range(R):
        good = True
        t = 0
        for i in range(L):
            for j in range(i + 1):
                x = A[r, t]
                t += 1
                if i == j:
                    x += 1.0
                for k in range(j):
                    x -= C[i, k] * C[j, k]
                if i == j:
                    if not x > 0.0:
                        good = False
                        x = 1.0
                    C[i, i] = np.sqrt(x)
                    log_det[r] += np.log(x)
                else:
                    C[i, j] = x / C[j, j]
        if not good:
            failed += 1
        t = 0
        if not inverse:
            for i in range(L):
                for j in range(i + 1):
                    A[r, t] = C[i, j]
                    t += 1
            continue
        for j in range(L):  # D = C^-1, lower
            D[j, j] = 1.0 / C[j, j]
            for i in range(j + 1, L):
                x = 0.0
                for k in range(j, i):
                    x -= C[i, k] * D[k, j]
                D[i, j] = x / C[i, i]
        for i in range(L):
            for j in range(i + 1):
                x = 0.0
                for k in range(i, L):
                    x += D[k, i] * D[k, j]
                A[r, t] = x
                t += 1
    return log_det, failed


@compiled
def solve(C: np.ndarray, b: np.ndarray) -> None:  # pragma: no cover - compiled
    """(C_r C_r')^-1 b_r in place, C packed factors (R, T), b (R, L)."""
    R, L = b.shape
    for r in range(R):
        for i in range(L):
            x = b[r, i]
            t = i * (i + 1) // 2
            for k in range(i):
                x -= C[r, t + k] * b[r, k]
            b[r, i] = x / C[r, t + i]
        for i in range(L - 1, -1, -1):
            x = b[r, i]
            for k in range(i + 1, L):
                x -= C[r, k * (k + 1) // 2 + i] * b[r, k]
            b[r, i] = x / C[r, i * (i + 1) // 2 + i]


@compiled
def multiply(V: np.ndarray, b: np.ndarray) -> np.ndarray:  # pragma: no cover - compiled
    """V_r b_r for packed V (R, T) and b (R, L)."""
    R, L = b.shape
    out = np.zeros((R, L))
    for r in range(R):
        t = 0
        for i in range(L):
            for j in range(i):
                out[r, i] += V[r, t] * b[r, j]
                out[r, j] += V[r, t] * b[r, i]
                t += 1
            out[r, i] += V[r, t] * b[r, i]
            t += 1
    return out


@compiled
def sandwich(V: np.ndarray, G: np.ndarray, L: int) -> np.ndarray:  # pragma: no cover - compiled
    """V_r G_r V_r, all packed."""
    R = V.shape[0]
    out = np.empty_like(V)
    A, B, X = np.zeros((L, L)), np.zeros((L, L)), np.zeros((L, L))
    for r in range(R):
        t = 0
        for i in range(L):
            for j in range(i + 1):
                A[i, j] = A[j, i] = V[r, t]
                B[i, j] = B[j, i] = G[r, t]
                t += 1
        for i in range(L):
            for j in range(L):
                x = 0.0
                for k in range(L):
                    x += A[i, k] * B[k, j]
                X[i, j] = x
        t = 0
        for i in range(L):
            for j in range(i + 1):
                x = 0.0
                for k in range(L):
                    x += X[i, k] * A[k, j]
                out[r, t] = x
                t += 1
    return out
