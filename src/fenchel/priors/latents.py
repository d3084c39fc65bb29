"""The Gaussian z ~ N(mu, Sigma) and the rows W through which it is seen.

Sigma is a vector (independent latents) or a full matrix; rows are

    None           every latent is its own predictor (W = I)
    index array    W = I[index]
    matrix         a dense W (numpy, torch, ...) or a scipy sparse one

so that nothing is ever multiplied by an identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linalg import rows as row_passes
from ..linalg.arrays import Array, asarray, namespace, to_numpy
from ..linalg.dense import asarray_index, semidefinite_root, solve_lower
from ..linalg.standardized import Standardized, is_sparse

Rows = Any


def is_index(W: Any) -> bool:
    return isinstance(W, np.ndarray) and W.ndim == 1


class Latents:
    """mu (L,), Sigma as a vector (L,) or a matrix (L, L)."""

    def __init__(self, mean: Array, Sigma: Array) -> None:
        self.mean, self.Sigma = mean, Sigma
        self.n = Sigma.shape[0]
        self.diagonal_only = Sigma.ndim == 1
        self._root: Array | None = None

    # -- rows --------------------------------------------------------------------------------------
    def n_rows(self, W: Rows) -> int:
        return self.n if W is None else int(W.shape[0])

    def subset(self, W: Rows, keep: np.ndarray) -> Rows:
        """Fewer rows of W."""
        if W is None:
            return keep
        if is_index(W) or is_sparse(W) or isinstance(W, np.ndarray | Standardized):
            return W[keep]
        return namespace(W).take(W, asarray_index(keep, W), axis=0)

    def multiply(self, W: Rows, z: Array) -> Array:
        """W z for z (L,) or (L, M)."""
        if W is None:
            return z
        if is_index(W):
            return namespace(z).take(z, asarray_index(W, z), axis=0)
        return row_passes.times(W, z)

    def adjoint(self, W: Rows, a: Array) -> Array:
        """W' a for a (R,)."""
        if W is None:
            return a
        if is_index(W):
            out = np.zeros(self.n)
            np.add.at(out, W, to_numpy(a))
            return asarray(out, a)
        return row_passes.adjoint(W, a)

    def pull_back(self, W: Rows, G: Array) -> Array:
        """W' G W (L, L) for a symmetric G (R, R)."""
        if W is None:
            return G
        if is_index(W):
            out = np.zeros((self.n, self.n))
            out[np.ix_(W, W)] = to_numpy(G)
            return asarray(out, G)
        return W.T @ (W.T @ G).T

    # -- covariance --------------------------------------------------------------------------------
    def covariance_times(self, v: Array) -> Array:
        """Sigma v for v (L,)."""
        return self.Sigma * v if self.diagonal_only else self.Sigma @ v

    def cross(self, W: Rows) -> Array:
        """W Sigma (R, L): the covariance of W z with z."""
        if self.diagonal_only:
            if W is None or is_index(W):
                xp = namespace(self.Sigma)
                eye = xp.eye(self.n, dtype=xp.float64) * self.Sigma[None, :]
                return self.multiply(W, eye)
            dense = W.toarray() if is_sparse(W) else W
            return dense * self.Sigma[None, :]
        return self.multiply(W, self.Sigma)

    def between(self, W1: Rows, W2: Rows) -> Array:
        """W1 Sigma W2' (R1, R2)."""
        left = self.cross(W1)
        if W2 is None:
            return left
        if is_index(W2):
            return namespace(left).take(left, asarray_index(W2, left), axis=1)
        return (W2 @ left.T).T if is_sparse(W2) else left @ W2.T

    def diagonal(self, W: Rows) -> Array:
        """diag(W Sigma W')."""
        xp = namespace(self.Sigma)
        own = self.Sigma if self.diagonal_only else xp.linalg.diagonal(self.Sigma)
        if W is None or is_index(W):
            return self.multiply(W, own)
        return row_passes.row_norms(W, self.Sigma) if self.diagonal_only else row_passes.row_products(W, self.Sigma)

    # -- whitening: z = mu + R u, u ~ N(0, I) ------------------------------------------------------
    @property
    def root(self) -> Array:
        """R with R R' = Sigma: a vector of standard deviations, or a matrix (L, r)."""
        if self._root is None:
            xp = namespace(self.Sigma)
            self._root = xp.sqrt(self.Sigma) if self.diagonal_only else semidefinite_root(self.Sigma)
        return self._root

    def whiten(self, W: Rows) -> Array:
        """X = W R (R rows, r): the features of the whitened latents. Sparse stays sparse under a diagonal Sigma."""
        R = self.root
        if R.ndim == 2:
            return self.multiply(W, R)
        if W is None or is_index(W):
            xp = namespace(R)
            return self.multiply(W, xp.eye(self.n, dtype=xp.float64) * R[None, :])
        return W.multiply(R[None, :]).tocsr() if is_sparse(W) else W * R[None, :]

    def whiten_cross(self, cross: Array) -> Array:
        """X* with X* u = the part of eta* that the latents explain, from Cov(eta*, z) (M, L)."""
        R, xp = self.root, namespace(cross)
        if R.ndim == 1:
            return cross / xp.where(R > 0.0, R, xp.ones_like(R))[None, :]
        if R.shape[0] == R.shape[1] and not bool(xp.any(xp.triu(R, k=1) != 0.0)):
            return solve_lower(R, cross.T).T
        return cross @ (R / xp.sum(R * R, axis=0)[None, :])  # eigenvectors: R'R is diagonal

    def color(self, u: Array) -> Array:
        """R u for u (r, M)."""
        return self.root[:, None] * u if self.root.ndim == 1 else self.root @ u
