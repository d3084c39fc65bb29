"""X = W R of one block, N rows and few columns: R is folded into what meets X, so that W is never copied.

X u = W (R u),    X' a = R (W' a),    X' diag(w) X = R (W' diag(w) W) R,    for a diagonal R

A full R (correlated weights) and rows that are no matrix (W = I, an index) are multiplied out once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linalg import rows
from ..linalg.arrays import Array, namespace
from ..linalg.dense import asarray_index
from ..linalg.standardized import Standardized, is_sparse
from .latents import Latents, is_index


class Tall:
    """Features of whitened weights: a matrix W (N, L) and the standard deviations of its columns, or None for ones."""

    def __init__(self, W: Any, scale: Array | None = None) -> None:
        self.W, self.scale = W, scale
        self.shape = (int(W.shape[0]), int(W.shape[1]))

    @classmethod
    def whitened(cls, z: Latents, W: Any) -> Tall:
        if z.diagonal_only and W is not None and not is_index(W):
            return cls(W, z.root)
        return cls(z.whiten(W))

    def take(self, keep: np.ndarray) -> Tall:
        """Fewer rows."""
        W = self.W
        plain = is_sparse(W) or isinstance(W, np.ndarray | Standardized)
        return Tall(W[keep] if plain else namespace(W).take(W, asarray_index(keep, W), axis=0), self.scale)

    def _scaled(self, u: Array) -> Array:
        """R u for u (L,) or (L, M)."""
        if self.scale is None:
            return u
        return self.scale * u if u.ndim == 1 else self.scale[:, None] * u

    def both_scaled(self, G: Array) -> Array:
        """R G R."""
        return G if self.scale is None else self.scale[:, None] * G * self.scale[None, :]

    def times(self, u: Array) -> Array:
        """X u for u (L,) or (L, M)."""
        return rows.times(self.W, self._scaled(u))

    def adjoint(self, a: Array) -> Array:
        """X' a for a (N,)."""
        return self._scaled(rows.adjoint(self.W, a))

    def gram(self, w: Array) -> Array:
        """X' diag(w) X."""
        return self.both_scaled(rows.gram(self.W, w))

    def between(self, w: Array, other: Tall) -> Array:
        """X' diag(w) Y for the features Y of another block."""
        if other.W is self.W:
            G = rows.gram(self.W, w)
        elif is_sparse(other.W):
            G = self.W.T @ rows.scaled_rows(other.W, w)
            G = G.toarray() if is_sparse(G) else G
        else:
            G = self.W.T @ (other.W * w[:, None])
        left = G if self.scale is None else self.scale[:, None] * G
        return left if other.scale is None else left * other.scale[None, :]

    def row_squares(self, U: Array) -> Array:
        """rowsum((X U)^2)."""
        return rows.row_squares(self.W, self._scaled(U))

    def row_products(self, Q: Array) -> Array:
        """rowsum((X Q) o X)."""
        return rows.row_products(self.W, self.both_scaled(Q))

    def summed(self, weight: Array, n: int) -> Array:
        """diag(weight) X with the rows of each of n observations added up (n, L)."""
        xp = namespace(weight)
        if isinstance(self.W, Standardized):
            return Tall(self.W.toarray(), self.scale).summed(weight, n)
        Z = rows.scaled_rows(self.W, weight).toarray() if is_sparse(self.W) else self.W * weight[:, None]
        Z = xp.sum(xp.reshape(Z, (n, -1, self.shape[1])), axis=1)
        return Z if self.scale is None else Z * self.scale[None, :]
