"""How the evidence changes with the prior: P's derivative in mu, Sigma or Q, W and c, at the optimum of q.

By the envelope theorem nothing is differentiated through the fit. Its error is the square root of the gap: fit to a
small tol first.

    dP/dmu = -W' alpha,    dP/dSigma = 1/2 (W' alpha alpha' W - W' Lam^1/2 B^-1 Lam^1/2 W),    dP/dc = -lam/2
    dP/dQ = 1/2 (Sigma - V - (m-mu)(m-mu)'),    dP/dW = -alpha m' - Lam W V
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from ..linalg.arrays import Array, asarray, to_numpy
from .base import Factor, Predictors, Weights


@dataclass(frozen=True)
class PriorAdjoint:
    """The derivatives of a fit in its prior; each is computed when it is read, and not kept.

    One array for each block: one where predictors share their latents, C where they have latents of their own.
    """

    predictors: Predictors  # of all observations
    factor: Factor  # of those in ``active``
    active: np.ndarray
    sites: tuple[Array, Array]  # alpha, lam of all observations (N, C)
    find_weights: Callable[[], Weights | None]

    @property
    def mean(self) -> list[Array]:
        """dP/dmu of each block (L,)."""
        return [-a for a in self.predictors.adjoints(self.sites[0])]

    @property
    def covariance(self) -> list[Array]:
        """dP/dSigma of each block (L, L): dP/dtheta = sum_ij G_ij dSigma_ij/dtheta."""
        adjoints = self.predictors.adjoints(self.sites[0])
        found = self.factor.covariance_adjoint(adjoints)
        return [self._by_products(adjoints)] if found is None else found

    def _by_products(self, adjoints: list[Array]) -> Array:
        """1/2 (alpha alpha' - Lam + Lam Vt Lam) of any prior, whose latents are its predictors."""
        if len(adjoints) > 1:
            wanted = "one, or a covariance_adjoint of the factor"
            raise problem("posterior.adjoint", "several predictors an observation", wanted)
        a, lam = to_numpy(adjoints[0]), to_numpy(self.predictors.as_latents(self.sites[1]))
        out, some = 0.5 * (np.outer(a, a) - np.diag(lam)), np.ix_(self.active, self.active)
        live = lam[self.active]
        out[some] += 0.5 * live[:, None] * to_numpy(self.factor.covariance()[0]) * live
        return asarray(out, adjoints[0])

    @property
    def precision(self) -> list[sp.csc_array]:
        """dP/dQ of each block on its pattern: dP/dtheta is the sum of its products with dQ/dtheta, entry by entry.

        Under constraints the precision is free on their complement only; what dQ does beyond it does not count.
        """
        return self.factor.precision_adjoint(self.predictors.adjoints(self.sites[0]))

    def precision_curvature(self, slopes: list[sp.csc_array]) -> tuple[np.ndarray, np.ndarray]:
        """1/2 h_i' (Sigma - V) h_j (k, k) and 1/2 (m-mu)' h_i (k,) for h_i = dQ_i (m-mu), dQ_i on the pattern of Q.

        The first is the average information of the Gaussian observations that have the weights lam. Summed over blocks.
        """
        return self.factor.precision_curvature(self.predictors.adjoints(self.sites[0]), slopes)

    @property
    def design(self) -> list[Array | sp.csr_array]:
        """dP/dW of each block (R, L), on the pattern of a sparse W; rows that share features are summed."""
        mean = self.predictors.latent_mean() - self.predictors.latent_shift(self.sites[0], self.find_weights())
        return self.factor.design_adjoint(self.predictors, *self.sites, mean)

    @property
    def extra(self) -> Array:
        """dP/dc (N, C), c the variance of eta that the latents do not explain."""
        return -0.5 * self.sites[1]
