"""The Gaussian z ~ N(mu, Sigma) seen through the rows of a design W: what needs Sigma and W together.

Sigma is a vector (independent latents) or a full matrix.
"""

from __future__ import annotations

from functools import cached_property

from ..linalg.arrays import Array, namespace
from ..linalg.dense import diagonal_matrix, diagonal_of, semidefinite_root, solve_lower
from ..linalg.design import Design, Scaled
from ..linalg.matrices import array_design
from .rebuildable import Made, array_of


class Latents:
    """mu (L,), Sigma as a vector (L,) or a matrix (L, L), which may be one that is made again when it is asked for."""

    def __init__(self, mean: Array, Sigma: Array | Made) -> None:
        self.mean, self.given = mean, Sigma
        self.n = mean.shape[0]
        self.diagonal_only = array_of(Sigma).ndim == 1

    @property
    def Sigma(self) -> Array:
        """The covariance as it was given."""
        return array_of(self.given)

    # -- covariance --------------------------------------------------------------------------------
    def covariance(self) -> Array:
        """Sigma as a matrix (L, L)."""
        return diagonal_matrix(self.Sigma) if self.diagonal_only else self.Sigma

    def variance(self) -> Array:
        """diag Sigma (L,)."""
        return self.Sigma if self.diagonal_only else diagonal_of(self.Sigma)

    def covariance_times(self, v: Array) -> Array:
        """Sigma v for v (L,)."""
        return self.Sigma * v if self.diagonal_only else self.Sigma @ v

    def cross(self, W: Design) -> Array:
        """W Sigma (R, L): the covariance of W z with z."""
        return W.toarray() * self.Sigma[None, :] if self.diagonal_only else W.times(self.Sigma)

    def between(self, W1: Design, W2: Design) -> Array:
        """W1 Sigma W2' (R1, R2)."""
        return W2.beside(self.cross(W1))

    def diagonal(self, W: Design) -> Array:
        """diag(W Sigma W')."""
        return W.row_norms(self.Sigma) if self.diagonal_only else W.row_products(self.Sigma)

    # -- whitening: z = mu + R u, u ~ N(0, I) ------------------------------------------------------
    @cached_property
    def root(self) -> Array:
        """R with R R' = Sigma: a vector of standard deviations, or a matrix (L, r)."""
        return namespace(self.Sigma).sqrt(self.Sigma) if self.diagonal_only else semidefinite_root(self.Sigma)

    def whiten(self, W: Design) -> Scaled:
        """X = W R, the features of the whitened latents: W itself with its columns scaled, or multiplied out."""
        R = self.root
        if R.ndim == 1:
            return Scaled(W, R)
        return Scaled(array_design(W.times(R)), namespace(R).ones_like(R[0, :]))

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
