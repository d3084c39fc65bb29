"""Rows that are contrasts of several predictors: row (n, p) of the design is sum_k D[p, k] w_nk in the latents of k.

    W = [D[p, k] w_k[n]]  (N P, C L),   rows observation by observation,   latents class by class
    W' diag(a) W has the blocks  w_k' diag(b_kl) w_l,   b_n = D' diag(a_n) D  (C x C)

Each of the C predictors has a design of its own, often one and the same; nothing of size N P x C L is formed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .arrays import Array, to_numpy
from .design import Design

_NUMBERS = 1 << 22  # of a temporary


class Contrasts(Design):
    """Contrasts D (P, C) of the predictors that C designs (N, L) make of their own latents; numpy only."""

    def __init__(self, designs: Sequence[Design], D: np.ndarray) -> None:
        self.designs, self.D = list(designs), D
        self.P, self.C = D.shape
        self.n, self.L = self.designs[0].shape
        self.shape = (self.n * self.P, self.C * self.L)
        self.squares = (D[:, :, None] * D[:, None, :]).reshape(self.P, -1)  # (P, C^2): entries of d_p d_p'
        self.shared = all(W is self.designs[0] for W in self.designs)

    def parts(self, u: Array) -> list[np.ndarray]:
        """u (C L, ...) of each class."""
        return np.split(to_numpy(u), self.C)

    def times(self, u: Array) -> Array:
        eta = np.stack([to_numpy(W.times(x)) for W, x in zip(self.designs, self.parts(u), strict=True)], axis=1)
        return np.matmul(self.D, eta.reshape(self.n, self.C, -1)).reshape(self.shape[0], *eta.shape[2:])

    def adjoint(self, a: Array) -> Array:
        a = to_numpy(a)
        each = np.matmul(self.D.T, a.reshape(self.n, self.P, -1))
        parts = [W.adjoint(np.ascontiguousarray(each[:, k])) for k, W in enumerate(self.designs)]
        return np.concatenate(parts, axis=0).reshape(self.shape[1], *a.shape[1:])

    def blocks(self, weight: Array) -> np.ndarray:
        """D' diag(weight_n) D of each observation (N, C, C)."""
        return (to_numpy(weight).reshape(self.n, self.P) @ self.squares).reshape(self.n, self.C, self.C)

    def gram(self, weight: Array) -> Array:
        b, out = self.blocks(weight), np.empty((self.C, self.L, self.C, self.L))
        for k, W in enumerate(self.designs):
            for m in range(k + 1):
                # off the diagonal weights are mostly negative, and a design is quickest with positive ones
                sign = -1.0 if m < k else 1.0
                out[k, :, m, :] = sign * to_numpy(W.between(np.ascontiguousarray(sign * b[:, k, m]), self.designs[m]))
                if m < k:
                    out[m, :, k, :] = out[k, :, m, :].T
        return out.reshape(self.shape[1], self.shape[1])

    def _contrasted(self, covariance: np.ndarray) -> np.ndarray:
        """d_p' covariance_n d_p (N P,)."""
        return (covariance.reshape(self.n, -1) @ self.squares.T).reshape(-1)

    def covariances(self, U: Array) -> np.ndarray:
        """The covariance U U' gives to the C predictors of each observation (N, C, C)."""
        out, each = np.zeros((self.n, self.C, self.C)), self.parts(U)
        step = max(1, _NUMBERS // (self.n * self.C))
        for i in range(0, each[0].shape[1], step):
            parts = zip(self.designs, each, strict=True)
            half = np.stack([to_numpy(W.times(np.ascontiguousarray(x[:, i : i + step]))) for W, x in parts], axis=1)
            out += half @ half.transpose(0, 2, 1)
        return out

    def row_squares(self, U: Array) -> Array:
        return self._contrasted(self.covariances(U))

    def row_products(self, Q: Array) -> Array:
        out, blocks = np.empty((self.n, self.C, self.C)), to_numpy(Q).reshape(self.C, self.L, self.C, self.L)
        for k, W in enumerate(self.designs):
            for m in range(k + 1):
                block = np.ascontiguousarray(blocks[k, :, m, :])
                if self.shared:
                    out[:, k, m] = W.row_products(block)
                else:
                    out[:, k, m] = np.einsum("nl,nl->n", to_numpy(W.times(block)), to_numpy(self.designs[m].toarray()))
                out[:, m, k] = out[:, k, m]  # Q is symmetric
        return self._contrasted(out)

    def row_norms(self, v: Array) -> Array:
        each = np.stack([to_numpy(W.row_norms(x)) for W, x in zip(self.designs, self.parts(v), strict=True)], axis=1)
        return (each @ (self.D**2).T).reshape(-1)

    def take(self, rows: np.ndarray) -> Contrasts:
        """Whole observations: ``rows`` are all of theirs."""
        keep = np.asarray(rows)[:: self.P] // self.P
        made = {id(W): W.take(keep) for W in self.designs}
        return Contrasts([made[id(W)] for W in self.designs], self.D)

    def toarray(self) -> Array:
        return self.csr().toarray()

    def csr(self) -> sp.csr_array:
        return contrast_rows([W.csr() for W in self.designs], self.D)


def contrast_rows(designs: Sequence[sp.csr_array], D: np.ndarray) -> sp.csr_array:
    """The same as one sparse matrix (N P, C L)."""
    n, C = designs[0].shape[0], D.shape[1]
    stacked = sp.block_diag(designs, format="csr")  # class by class
    order = (np.arange(C)[None, :] * n + np.arange(n)[:, None]).reshape(-1)
    out = sp.csr_array(sp.kron(sp.eye_array(n), sp.csr_array(D), format="csr") @ stacked[order])
    out.sort_indices()
    return out


def block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Vectors one after the other, or matrices along a diagonal."""
    if all(block.ndim == 1 for block in blocks):
        return np.concatenate(blocks)
    return np.asarray(scipy.linalg.block_diag(*[np.diag(b) if b.ndim == 1 else b for b in blocks]))
