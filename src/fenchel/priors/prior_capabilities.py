"""What only some priors can answer: each is a protocol, asked for by name, ``isinstance(factor, HasDesignAdjoint)``.

A prior has a capability by having its methods; nothing is registered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from ..linalg.arrays import Array, asarray, to_numpy
from .base import Factor, NewRows, Predictors

Weights = list[Array]  # u of each block, with S alpha = X u


# -- of predictors -------------------------------------------------------------------------------------
@runtime_checkable
class HasWeights(Protocol):
    """Predictors whose latents are at hand: S alpha = X u.

    Few features: X = W R, u = X' alpha. A sparse precision: X = W, u = Q^-1 W' alpha. Under a wide prior u keeps the
    digits that a sum over alpha cancels.
    """

    def weights_of(self, alpha: Array) -> Weights:
        """u with S alpha = X u."""

    def from_weights(self, weights: Weights) -> Array:
        """X u (N, C)."""

    def weights_norm(self, weights: Weights) -> float:
        """alpha' S alpha of the alpha behind u: u' u for few features, u' Q u for a sparse precision."""

    def shifts_of(self, weights: Weights) -> list[Array]:
        """Sigma W' alpha of each block (L,), which moves the mean of z."""


@runtime_checkable
class HasFewWeights(HasWeights, Protocol):
    """Few weights and many rows: a sample of the rows knows them nearly as well."""

    @property
    def n_weights(self) -> int:
        """Weights of all blocks."""

    def apply_from(self, others: Predictors, alpha: Array) -> Array:
        """The covariance of these rows with those of others, times alpha."""


@runtime_checkable
class PredictsNewRows(Protocol):
    """Predictors that know their latents, and so what any new row sees of them."""

    def predict(
        self, factor: Factor, alpha: Array, new: NewRows, weights: Weights | None = None
    ) -> tuple[Array, Array | None]:
        """Mean and variance (M, C) of W* z + offset* at new rows; None for a variance that was not wanted."""


# -- of a factor ---------------------------------------------------------------------------------------
@runtime_checkable
class SolvesForWeights(Protocol):
    """A factor that finds the weights of ``HasWeights`` directly."""

    def weights(self, v: Array) -> Weights:
        """u of each block with Vt v = X u."""

    def weights_decrement(self, weights: Weights, alpha: Array) -> float:
        """g' V g for g = Sigma^-1 u - X' alpha: what the means may still gain, twice, from the weights themselves."""


@runtime_checkable
class HasCovarianceAdjoint(Protocol):
    """A factor that can be differentiated in a dense prior covariance."""

    def covariance_adjoint(self, adjoints: list[Array]) -> list[Array]:
        """dP/dSigma of each block (L, L) at the optimum: 1/2 (a a' - W' Lam^1/2 B^-1 Lam^1/2 W), a = W' alpha."""


@runtime_checkable
class HasPrecisionAdjoint(Protocol):
    """A factor that can be differentiated in a sparse prior precision."""

    def precision_adjoint(self, adjoints: list[Array]) -> list[sp.csc_array]:
        """dP/dQ of each block on its pattern: 1/2 (Sigma - V - (m-mu)(m-mu)')."""

    def precision_curvature(self, adjoints: list[Array], slopes: list[sp.csc_array]) -> tuple[np.ndarray, np.ndarray]:
        """1/2 h_i' (Sigma - V) h_j and 1/2 (m-mu)' h_i for h_i = dQ_i (m-mu), summed over blocks."""


@runtime_checkable
class HasDesignAdjoint(Protocol):
    """A factor that can be differentiated in its design."""

    def design_adjoint(self, everyone: Predictors, alpha: Array, lam: Array, mean: Array) -> list[Array | sp.csr_array]:
        """dP/dW of each block (R, L), on the pattern of a sparse W: -alpha m' - Lam W V.

        For ``everyone`` with their alpha and lam (N, C), of whom this factor has seen those with a lam; m as latents.
        """


def weights_of(predictors: Predictors, alpha: Array) -> Weights | None:
    """The weights of alpha where the latents are at hand; None where only S is."""
    return predictors.weights_of(alpha) if isinstance(predictors, HasWeights) else None


def solved_weights(factor: Factor, v: Array) -> Weights | None:
    """u with Vt v = X u where the latents are at hand."""
    return factor.weights(v) if isinstance(factor, SolvesForWeights) else None


# -- How the evidence changes with the prior: P's derivative in mu, Sigma or Q, W and c, at the optimum of q ---
# By the envelope theorem nothing is differentiated through the fit. Its error is the square root of the gap: fit to a
# small tol first.
#
#     dP/dmu = -W' alpha,    dP/dSigma = 1/2 (W' alpha alpha' W - W' Lam^1/2 B^-1 Lam^1/2 W),    dP/dc = -lam/2
#     dP/dQ = 1/2 (Sigma - V - (m-mu)(m-mu)'),    dP/dW = -alpha m' - Lam W V
_WHERE = "posterior.adjoint"


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
        factor, adjoints = self.factor, self.predictors.adjoints(self.sites[0])
        if isinstance(factor, HasCovarianceAdjoint):
            return factor.covariance_adjoint(adjoints)
        if isinstance(factor, HasPrecisionAdjoint):
            raise problem(_WHERE, "a sparse prior has no dense covariance to differentiate", "its precision")
        return [self._by_products(adjoints)]

    def _by_products(self, adjoints: list[Array]) -> Array:
        """1/2 (alpha alpha' - Lam + Lam Vt Lam) of any prior, whose latents are its predictors."""
        if len(adjoints) > 1:
            raise problem(_WHERE, "several predictors an observation", "one, or a covariance_adjoint of the factor")
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
        if not isinstance(self.factor, HasPrecisionAdjoint):
            raise problem(_WHERE, "the prior is not a SparsePrecision", "one", "Read the covariance's instead.")
        return self.factor.precision_adjoint(self.predictors.adjoints(self.sites[0]))

    def precision_curvature(self, slopes: list[sp.csc_array]) -> tuple[np.ndarray, np.ndarray]:
        """1/2 h_i' (Sigma - V) h_j (k, k) and 1/2 (m-mu)' h_i (k,) for h_i = dQ_i (m-mu), dQ_i on the pattern of Q.

        The first is the average information of the Gaussian observations that have the weights lam. Summed over blocks.
        """
        if not isinstance(self.factor, HasPrecisionAdjoint):
            raise problem(_WHERE, "the prior is not a SparsePrecision", "one")
        return self.factor.precision_curvature(self.predictors.adjoints(self.sites[0]), slopes)

    @property
    def design(self) -> list[Array | sp.csr_array]:
        """dP/dW of each block (R, L), on the pattern of a sparse W; rows that share features are summed."""
        if not isinstance(self.factor, HasDesignAdjoint):
            raise problem(_WHERE, f"{type(self.predictors).__name__} has no design of its own", "a prior with one")
        mean = self.predictors.latent_mean() - self.predictors.latent_shift(self.sites[0], self.find_weights())
        return self.factor.design_adjoint(self.predictors, *self.sites, mean)

    @property
    def extra(self) -> Array:
        """dP/dc (N, C), c the variance of eta that the latents do not explain."""
        return -0.5 * self.sites[1]
