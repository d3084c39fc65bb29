"""Rows of a Gaussian process given its values at M points: the design and an extra variance depend on theta.

    eta_n = sum_k A_nk z_k + e_n,    A = K_NM (K_MM + nugget)^-1,    e_n ~ N(0, c_n),    c = diag(K - A K_MN)

z are the values at the points, whose precision is ``gmrf.series.Process``. Learning takes no information from e. With
L L' the covariance of z and U = L^-T, the features of ``priors/inducing.py`` are G = A L and their weights u = U' z.
The slopes in theta are then those of ``InducingCovariance``; the other latents of a stack enter through Cov(eta, u):

    d elbo = <D, dG> - 1/2 lam' d diag(K),    D = -alpha E[u]' + Lam (G - Cov(eta, u))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..hyperparameters.inducing_covariance import feature_slopes
from ..linalg.arrays import Array, to_numpy
from ..linalg.row_pairs import without_columns
from ..priors.inducing import InducingPoints
from ..solvers.solution import Solution
from .base import MovingRows
from .series import NUGGET, Process


@dataclass(frozen=True)
class InducingRows(MovingRows):
    """Rows X (N, d) of a process that is approximated by its values at the points of ``process``."""

    X: np.ndarray
    process: Process

    def prior(self, theta: np.ndarray, X: np.ndarray | None = None) -> InducingPoints:
        """The process alone at theta, as features of its points, at X (default: the rows)."""
        kernel = self.process.kernel(theta)
        return InducingPoints(kernel, self.X if X is None else X, self.process.points, jitter=NUGGET)

    def at(self, theta: np.ndarray, X: np.ndarray | None = None) -> tuple[sp.csr_array, np.ndarray]:
        """The design A (N, M) and the variance c (N,), at X (default: the rows)."""
        prior = self.prior(theta, X)
        A = np.asarray(prior.design.toarray()) @ to_numpy(prior.rows.U).T
        N, M = A.shape
        indices = np.tile(np.arange(M, dtype=np.int32), N)
        indptr = M * np.arange(N + 1, dtype=np.int64)
        return sp.csr_array((A.ravel(), indices, indptr), shape=(N, M)), np.asarray(prior.extra_variance)

    def slopes(self, solution: Solution, theta: np.ndarray, latents: slice) -> np.ndarray:
        """The gradient d elbo / d theta at the fit of a stack in which z are the latents ``latents``."""
        prior, post = self.prior(theta), solution.posterior
        factor: Any = post.factor.parts[0]  # type: ignore[attr-defined]  # of a SparsePrecision
        W = post.predictors.W  # type: ignore[attr-defined]
        U = to_numpy(prior.rows.U)
        weights = np.zeros((W.shape[1], U.shape[1]))
        weights[latents] = U
        mean = U.T @ np.asarray(post.latent_mean)[latents]
        between = factor.solve(weights)  # Cov(z, u) for all latents
        feature_covariance, others = U.T @ between[latents], without_columns(W, np.arange(latents.start, latents.stop))
        alpha, lam = to_numpy(post.alpha)[:, 0], to_numpy(post.lam)[:, 0]

        def adjoint(some: slice, G: Array) -> Array:
            return -alpha[some, None] * mean + lam[some, None] * (G - G @ feature_covariance - others[some] @ between)

        slopes = feature_slopes(prior, adjoint, lam)
        return np.concatenate([[2.0 * slopes[0]], slopes[1:]])  # of the log sd; the kernel has log sd^2
