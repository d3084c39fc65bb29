"""What only some priors can answer: each is a protocol, asked for by name, ``isinstance(factor, HasDesignAdjoint)``.

A prior has a capability by having its methods; nothing is registered.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import Array
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
