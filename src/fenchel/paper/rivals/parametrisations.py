"""Ways to write the covariance of q as a flat vector: a factor, a band of one, or the matrix itself.

With eta = mt + F x, x ~ N(0, P^-1) a priori and V = Cov_q[x], a part gives

    rho = diag(F V F'),    KL_V = 1/2 (tr(P V) - log|P V| - r),    their slopes, and a root of V
    factor  V = C C':   dKL/dC + ... = P C - diag(1/C_ii) + F' Lam F C  on C's pattern,   Lam = 2 df/drho
    matrix  V:          1/2 (P - V^-1 + F' Lam F)

-KL is strongly concave in (u, C) in the metric of P, and f is convex in them, so the squared slope in that metric
bounds how much any other member of the family could gain (the mean's share is added by the caller).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.linalg.blas import dgemm, dsyrk, dtrmm


class Part(ABC):
    """One block's covariance. ``size`` numbers; ``state`` is what an evaluation leaves behind."""

    size: int

    @abstractmethod
    def start(self, lam: np.ndarray) -> np.ndarray:
        """The vector of V = (P + F' Lam F)^-1, or of its nearest relative in the family."""

    @abstractmethod
    def at(self, x: np.ndarray) -> tuple[np.ndarray, float, Any] | None:
        """rho (rows,), KL_V, state; None where V is not positive definite."""

    @abstractmethod
    def slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        """d(KL_V + sum f)/dx, with lam = 2 df/drho (rows,)."""

    @abstractmethod
    def shortfall(self, state: Any, lam: np.ndarray) -> float:
        """The strong-concavity bound's share of this covariance."""

    @abstractmethod
    def root(self, state: Any) -> np.ndarray:
        """U with V = U U'."""

    def positive(self, x: np.ndarray) -> np.ndarray:
        """Which entries must stay above zero."""
        return np.zeros(self.size, dtype=bool)


class FullFactor(Part):
    """A lower triangular C in whitened latents: F = X, P = I."""

    def __init__(self, X: np.ndarray) -> None:
        self.X, self.r = np.asfortranarray(X), X.shape[1]  # the order BLAS takes without a copy
        self.lower = np.tril_indices(self.r)
        self.size = self.lower[0].size
        self.diagonal = self.lower[0] == self.lower[1]

    def positive(self, x: np.ndarray) -> np.ndarray:
        return self.diagonal

    def start(self, lam: np.ndarray) -> np.ndarray:
        return np.linalg.cholesky(_posterior(self.X, lam))[self.lower]

    def at(self, x: np.ndarray) -> tuple[np.ndarray, float, Any]:
        C = np.zeros((self.r, self.r), order="F")
        C[self.lower] = x
        FC = dtrmm(1.0, C, self.X, side=1, lower=1)
        kl = 0.5 * (float(x @ x) - self.r) - float(np.log(np.diag(C)).sum())
        return np.einsum("ij,ij->i", FC, FC), kl, (C, FC)

    def _slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        C, FC = state
        G = dgemm(1.0, self.X, np.asfortranarray(lam[:, None] * FC), beta=1.0, c=C, trans_a=1)
        G[np.diag_indices(self.r)] -= 1.0 / np.diag(C)
        return G[self.lower]

    def slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        return self._slope(state, lam)

    def shortfall(self, state: Any, lam: np.ndarray) -> float:
        g = self._slope(state, lam)
        return 0.5 * float(g @ g)

    def root(self, state: Any) -> np.ndarray:
        return np.asarray(state[0])


class FullMatrix(Part):
    """V itself, in whitened latents; off-diagonal entries times sqrt(2), so that lengths are Frobenius norms."""

    def __init__(self, X: np.ndarray) -> None:
        self.X, self.r = np.asfortranarray(X), X.shape[1]  # the order BLAS takes without a copy
        self.lower = np.tril_indices(self.r)
        self.size = self.lower[0].size
        self.scale = np.where(self.lower[0] == self.lower[1], 1.0, np.sqrt(2.0))

    def start(self, lam: np.ndarray) -> np.ndarray:
        return _posterior(self.X, lam)[self.lower] * self.scale

    def at(self, x: np.ndarray) -> tuple[np.ndarray, float, Any] | None:
        V = np.zeros((self.r, self.r), order="F")
        V[self.lower] = x / self.scale
        C, info = lapack.dpotrf(V, lower=1, clean=1)
        if info != 0:
            return None
        FC = dtrmm(1.0, C, self.X, side=1, lower=1)
        kl = 0.5 * (float(np.trace(V)) - self.r) - float(np.log(np.diag(C)).sum())
        return np.einsum("ij,ij->i", FC, FC), kl, C

    def _half(self, C: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """dP/dV with its sign turned, symmetric."""
        inverse, _ = lapack.dpotri(C, lower=1)
        root = np.asfortranarray(np.sqrt(lam)[:, None] * self.X)
        half = dsyrk(0.5, root, beta=-0.5, c=inverse, trans=1, lower=1, overwrite_c=1)
        half = np.tril(half) + np.tril(half, -1).T
        half[np.diag_indices(self.r)] += 0.5
        return np.asarray(half)

    def slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        return self._half(state, lam)[self.lower] * self.scale

    def shortfall(self, state: Any, lam: np.ndarray) -> float:
        G = np.tril(2.0 * self._half(state, lam) @ state)
        return 0.5 * float(np.sum(G * G))

    def root(self, state: Any) -> np.ndarray:
        return np.asarray(state)


class BandFactor(Part):
    """C with C_ij = 0 unless 0 <= i - j <= width, in the latents z themselves: F = W, P = Sigma^-1.

    width 0 is mean field. Rows are scaled to a P with unit diagonal, so that all variables are of order one. Held as
    diagonals: c[k, j] = C[j + k, j].
    """

    def __init__(self, W: np.ndarray | None, P: np.ndarray, R: np.ndarray, width: int) -> None:
        r = P.shape[0]
        self.r, self.width, self.R = r, min(width, r - 1), R
        self.scale = 1.0 / np.sqrt(np.diag(P))
        self.P = P * self.scale[:, None] * self.scale[None, :]
        self.log_det_P = -2.0 * float(np.log(np.diag(R) / self.scale).sum())
        self.W = W  # None: every latent is a row
        index = np.arange(r)
        self.live = index[None, :] + np.arange(self.width + 1)[:, None] < r
        self.size = int(self.live.sum())

    def positive(self, x: np.ndarray) -> np.ndarray:
        out = np.zeros(self.live.shape, dtype=bool)
        out[0] = True
        return out[self.live]

    def start(self, lam: np.ndarray) -> np.ndarray:
        weight = lam if self.W is None else (self.W**2).T @ lam
        c = np.zeros(self.live.shape)
        c[0] = 1.0 / np.sqrt(1.0 + self.scale**2 * weight)
        return c[self.live]

    def _times(self, c: np.ndarray) -> np.ndarray:
        """P C on the pattern, as diagonals: (P C)[j+k, j] = sum_l P[j+k, j+l] C[j+l, j]."""
        out = np.zeros_like(c)
        for k in range(self.width + 1):
            for m in range(self.width + 1):
                top = self.r - max(k, m)
                out[k, :top] += np.diagonal(self.P, m - k)[min(k, m) : min(k, m) + top] * c[m, :top]
        return out

    def _seen(self, c: np.ndarray) -> np.ndarray:
        """W C (rows, r) for a given W."""
        assert self.W is not None
        out = np.zeros((self.W.shape[0], self.r))
        for k in range(self.width + 1):
            out[:, : self.r - k] += (self.W * self.scale[None, :])[:, k:] * c[k, : self.r - k]
        return out

    def at(self, x: np.ndarray) -> tuple[np.ndarray, float, Any]:
        c = np.zeros(self.live.shape)
        c[self.live] = x
        Pc = self._times(c)
        if self.W is None:
            seen, rho = None, np.zeros(self.r)
            for k in range(self.width + 1):
                rho[k:] += c[k, : self.r - k] ** 2
            rho *= self.scale**2
        else:
            seen = self._seen(c)
            rho = np.einsum("ij,ij->i", seen, seen)
        kl = 0.5 * (float(np.sum(c * Pc)) - self.r - self.log_det_P) - float(np.log(c[0]).sum())
        return rho, kl, (c, Pc, seen)

    def _slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        c, Pc, seen = state
        G = Pc.copy()
        if seen is None:
            for k in range(self.width + 1):
                G[k, : self.r - k] += (self.scale**2 * lam)[k:] * c[k, : self.r - k]
        else:
            assert self.W is not None
            scaled = self.W * self.scale[None, :]
            weighted = lam[:, None] * seen
            for k in range(self.width + 1):
                G[k, : self.r - k] += np.einsum("ij,ij->j", scaled[:, k:], weighted[:, : self.r - k])
        G[0] -= 1.0 / c[0]
        return G

    def slope(self, state: Any, lam: np.ndarray) -> np.ndarray:
        return self._slope(state, lam)[self.live]

    def shortfall(self, state: Any, lam: np.ndarray) -> float:
        """1/2 sum_j G_j' (P_jj)^-1 G_j, P_jj the square block of P on column j's pattern."""
        G, total, b = self._slope(state, lam), 0.0, self.width + 1
        G = np.where(self.live, G, 0.0)
        whole = self.r - b + 1
        blocks = np.lib.stride_tricks.sliding_window_view(self.P, (b, b))[np.arange(whole), np.arange(whole)]
        columns = G[:, :whole].T[:, :, None]
        total += 0.5 * float(np.sum(columns * np.linalg.solve(blocks, columns)))
        for j in range(whole, self.r):  # the last, shorter columns
            g = G[: self.r - j, j]
            total += 0.5 * float(g @ np.linalg.solve(self.P[j:, j:], g))
        return total

    def root(self, state: Any) -> np.ndarray:
        from scipy.linalg import solve_triangular

        c, C = state[0], np.zeros((self.r, self.r))
        for k in range(self.width + 1):
            C[np.arange(k, self.r), np.arange(self.r - k)] = c[k, : self.r - k]
        return np.asarray(solve_triangular(self.R, self.scale[:, None] * C, lower=True))


def _posterior(X: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """(I + X' Lam X)^-1."""
    return np.asarray(np.linalg.inv(np.eye(X.shape[1]) + X.T @ (lam[:, None] * X)))
