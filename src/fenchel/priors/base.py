"""The west wing's contract: all observations together, through one factorisation.

A ``Prior`` is what a user makes: z ~ N(mu, Sigma), eta = W z + offset. Bound to a data set it becomes ``Predictors``,
and ``Predictors.at(lam)`` is one ``Factor`` that answers everything: log|B|, rho, the Newton direction, products,
certificates, gradients, predictions, samples. With S = W Sigma W', Lam = diag(lam):

    B = I + Lam^1/2 S Lam^1/2,    Vt = W V W' = (S^-1 + Lam)^-1,    V = (Sigma^-1 + W' Lam W)^-1      eq:Vstar

Shapes. N observations with C predictors: mt, alpha, lam, rho are (N, C); potentials are (N, P). Predictors of one
observation are independent a priori (C blocks) or correlated (one block of N*C rows, observation by observation).
The structure of the curvature is the prior's business, so the prior solves Newton's system.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..linalg.arrays import Array, namespace
from ..linalg.design import Design

Product = Callable[[Array], Array]
EPS = 2.0**-53  # of one rounding to double precision


@dataclass(frozen=True, slots=True)
class NewtonSystem:
    """(J^-1 + M + diag(extra)) dtau = -g in the potentials, everything weighted.

    M_{np,mq} = a_p a_q S_nm + 1/2 slope_np slope_mq Vt_nm^2;  J = diag(spread) - spread spread'/(slack + sum spread).
    """

    g: Array  # (N, P)  s - s*, the gradient in tau
    signs: Array  # (N, P)  a_h
    slope: Array  # (N, P)  lam'
    extra: Array  # (N, P)  -1/2 lam'' rho, never negative
    spread: Array  # (N, P)
    slack: Array | None  # (N,) or None
    layout: tuple[int, ...]  # the predictor of each potential
    accuracy: float = 1e-8  # relative residual asked of an iterative solve; direct ones ignore it
    economical: bool = False  # a cheaper curvature will do: the last steps converged well enough

    def forward(self, v: Array) -> Array:
        """J v."""
        out = self.spread * v
        if self.slack is None:
            return out
        xp = namespace(v)
        total = self.slack + xp.sum(self.spread, axis=1)
        return out - self.spread * (xp.sum(out, axis=1) / xp.where(total > 0.0, total, xp.ones_like(total)))[:, None]


class Factor(ABC):
    """One factorisation of the posterior precision at given lam."""

    log_det: float  # log |B|

    @property
    @abstractmethod
    def variance(self) -> Array:
        """diag(W V W') (N, C)."""

    @property
    @abstractmethod
    def cavity(self) -> Array:
        """1 - lam diag(W V W') (N, C), without cancellation where that is possible."""

    @abstractmethod
    def apply(self, v: Array) -> Array:
        """Vt v for v (N, C): h from b is mt + Vt (b - lam mt)."""

    @property
    @abstractmethod
    def log_det_rounding(self) -> float:
        """What rounding did to log|B|, as a root mean square: eps |diag(A^-1) o diag(A)| of the matrix A factorised.

        A Cholesky factor is exact for a matrix whose entries are off by about eps sqrt(A_ii A_jj).
        """

    @abstractmethod
    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        """ds and dtau (N, P) of Newton's step. May use up the factor's memory; it comes back when asked for."""

    @abstractmethod
    def curvature_product(self, system: NewtonSystem, v: Array) -> Array:
        """M v (N, P), without ``extra``."""

    def weights_decrement(self, weights: list[Array], alpha: Array) -> float:
        """g' V g for g = Sigma^-1 u - X' alpha: what the means may still gain, twice, from the weights themselves."""
        return 0.0

    def weights(self, v: Array) -> list[Array] | None:
        """u of each block with Vt v = X u (``Predictors.weights_of``); None where only S is at hand."""
        return None

    @property
    def nearly_uncoupled(self) -> bool:
        """Whether rho is so small that the exact mode's means and variances hardly steer each other."""
        return False

    @contextmanager
    def products(self, economical: bool = False) -> Iterator[tuple[Product, Product]]:
        """v -> Vt v and v -> (Vt o Vt) v for v (N, C), while the context lasts; may use up the factor's memory.

        ``economical`` allows diag(Vt)^2 in place of Vt o Vt where that is much cheaper.
        """
        yield self.apply, self.hadamard

    @abstractmethod
    def hadamard(self, v: Array) -> Array:
        """(Vt o Vt) v for v (N, C)."""

    @abstractmethod
    def certificate(self, residual: Array, d: Array) -> float:
        """1/2 r' S r + 1/2 d' (Vt o S) d: the strong-concavity bound of the exact mode. r, d: (N, C)."""

    @abstractmethod
    def gradient_covariance(self, adjoints: Sequence[Array]) -> list[Array]:
        """dP/dSigma of each block (L, L) at the optimum: 1/2 (a a' - W' Lam^1/2 B^-1 Lam^1/2 W), a = W' alpha."""

    @abstractmethod
    def latent_variance(self) -> Array:
        """diag V: (L,) for one block, (L, C) for several."""

    @abstractmethod
    def variance_at(self, designs: Sequence[Design]) -> Array:
        """diag(W* V W*') (M, C) for new rows of W, one design for each block."""

    @abstractmethod
    def reduction(self, cross: Sequence[Array]) -> Array:
        """How much the data reduce the variance of new predictors (M, C), from Cov(eta*, z) (M, L) of each block."""

    @abstractmethod
    def observation_covariance(self) -> Array:
        """Cov[eta_n] of each observation (N, C, C), for correlated predictors."""

    @abstractmethod
    def covariance(self) -> list[Array]:
        """Vt of each block, full (R, R)."""

    @abstractmethod
    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of W (z - m): (size, N, C)."""

    @abstractmethod
    def sample_latents(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of z - m: (size, L) for one block, (size, L, C) for several."""


class Predictors(ABC):
    """A prior bound to N observations of C predictors."""

    n_observations: int
    n_predictors: int
    mt: Array  # (N, C)  W mu + offset
    extra_variance: Array | float = 0.0  # c: (N, C), for inducing points
    correlated: bool = False  # whether the predictors of one observation are, a priori
    small: bool = False  # whether its matrices are so small that BLAS does better on one thread

    @property
    @abstractmethod
    def variance(self) -> Array:
        """diag S (N, C)."""

    @abstractmethod
    def apply(self, alpha: Array) -> Array:
        """S alpha (N, C)."""

    def quadratic(self, alpha: Array, S_alpha: Array) -> float:
        """alpha' S alpha."""
        return float(namespace(alpha).sum(alpha * S_alpha))

    def quadratic_rounding(self, alpha: Array, quadratic: float) -> float:
        """What rounding did to alpha' S alpha, as a root mean square: eps sum alpha^2 S."""
        return EPS * float(namespace(alpha).sum(alpha * alpha * self.variance))

    def mean_rounding(self, alpha: Array) -> Array | None:
        """What rounding of alpha does to S alpha (N, C), a root mean square; None where that is not cheaply known."""
        return None

    def weights_of(self, alpha: Array) -> list[Array] | None:
        """u of each block with S alpha = X u, where the latents are at hand; None where only S is.

        Few features: X = W R, u = X' alpha. A sparse precision: X = W, u = Q^-1 W' alpha. Under a wide prior u keeps
        the digits that a sum over alpha cancels.
        """
        return None

    def from_weights(self, weights: list[Array]) -> Array:
        """X u (N, C) of such weights."""
        raise NotImplementedError("these predictors have no weights of their own")

    def weights_norm(self, weights: list[Array]) -> float:
        """alpha' S alpha of the alpha behind such weights: u' u."""
        return float(sum(namespace(u).sum(u * u) for u in weights))

    @abstractmethod
    def at(self, lam: Array) -> Factor:
        """The factorisation at lam (N, C) >= 0. Raises NotPositiveDefinite when rounding defeats it."""

    @abstractmethod
    def restrict(self, keep: np.ndarray) -> Predictors:
        """The same prior seen by fewer observations (their indices)."""

    @abstractmethod
    def variance_of(self, factor: Factor) -> Array:
        """Posterior variance of these rows (N, C) under a factor fitted to others."""

    @abstractmethod
    def adjoints(self, alpha: Array) -> list[Array]:
        """W' alpha of each block (L,)."""

    @abstractmethod
    def latent_shift(self, alpha: Array, weights: list[Array] | None = None) -> Array:
        """Sigma W' alpha: (L,) or (L, C). The posterior mean of z is mu minus this (eq:mstar).

        From the weights of alpha where they are known more exactly than alpha itself.
        """

    @abstractmethod
    def latent_mean(self) -> Array:
        """mu: (L,) or (L, C)."""

    @abstractmethod
    def predict(
        self, factor: Factor, alpha: Array, new: NewRows, weights: list[Array] | None = None
    ) -> tuple[Array, Array | None]:
        """Mean and variance (M, C) of W* z + offset* at new rows; None for a variance that was not wanted."""


@dataclass(frozen=True, slots=True)
class NewRows:
    """Where to predict: rows of W, or a covariance with the latents z and the prior's moments there."""

    design: Any = None  # (M, L)
    cross: Any = None  # (M, L) or (C, M, L): Cov(eta*, z)
    variance: Any = None  # (M,) or (M, C): Var(eta*) a priori; needed with cross
    mean: Any = None  # (M,) or (M, C): E[eta*] a priori, with cross
    offset: Any = 0.0
    mean_only: bool = False  # no variance is wanted, and none is computed


class Prior(ABC):
    """z ~ N(mu, Sigma), eta = W z + offset."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows of W."""

    @property
    @abstractmethod
    def like(self) -> Array:
        """Any array of the prior: where it lives, the whole computation lives."""

    @abstractmethod
    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> Predictors:
        """Meet N observations of C predictors; ``coupled`` when the likelihood couples those of one observation."""

    @classmethod
    @abstractmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        """Small priors of every shape this class supports: the contract tests run on them."""
