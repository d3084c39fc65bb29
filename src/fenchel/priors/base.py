"""The contract of a prior, of the prior bound to data, and of its factorisation.

A ``Prior`` is what a user makes: z ~ N(mu, Sigma), eta = W z + offset. Bound to a data set it becomes ``Predictors``,
and ``Predictors.at(lam)`` is a ``Factor``, from which everything is computed: log|B|, rho, Newton's direction,
products, certificates, gradients, predictions, samples. With S = W Sigma W', Lam = diag(lam):

    B = I + Lam^1/2 S Lam^1/2,    Vt = W V W' = (S^-1 + Lam)^-1,    V = (Sigma^-1 + W' Lam W)^-1      eq:Vstar

A new prior needs the abstract methods ``Predictors.variance``, ``apply``, ``at`` and ``restrict``, and
``Factor.log_det``, ``variance``, ``apply`` and ``sample``. Everything else follows from these, with the predictors as
latents; a prior with a faster or more accurate way overrides it. What only some priors can compute is None or refused
by default.

Shapes. N observations with C predictors: mt, alpha, lam, rho are (N, C); potentials are (N, P). Predictors of one
observation are independent a priori (C blocks) or correlated (one block of N*C rows, observation by observation).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..checks import problem
from ..linalg.arrays import Array, asarray, namespace, to_numpy
from ..linalg.dense import asarray_index
from ..linalg.design import HOST
from .newton_systems import NewtonSystem as NewtonSystem  # part of the contract: what ``Factor.direction`` is given
from .newton_systems import OtherWeights, iterated
from .row_covariances import SAME_LINE, Lines, RowCovariances

Product = Callable[[Array], Array]
Weights = list[Array]  # u of each block, with S alpha = X u
EPS = 2.0**-53  # relative error of one rounding to double precision
_STEP = 2e-3  # largest change of log rho in a difference, whose error is 1e-11 after one extrapolation


class Factor(ABC):
    """The contract of a factorisation of the posterior precision at given lam."""

    predictors: Predictors
    lam: Array  # (N, C)
    log_det: float  # log |B|
    own_latents: bool = False  # whether the latents differ from the predictors
    definite: bool = True  # whether the posterior precision is positive definite under the constraints
    covariances: type[RowCovariances] = RowCovariances  # how covariances of rows under q are computed

    @property
    @abstractmethod
    def variance(self) -> Array:
        """diag(W V W') (N, C)."""

    @abstractmethod
    def apply(self, v: Array) -> Array:
        """Vt v for v (N, C): h from b is mt + Vt (b - lam mt)."""

    @abstractmethod
    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of W (z - m): (size, N, C)."""

    # -- Newton ------------------------------------------------------------------------------------
    @property
    def cavity(self) -> Array:
        """1 - lam diag(W V W') (N, C), without cancellation where that is possible."""
        return 1.0 - self.lam * self.variance

    @property
    def log_det_rounding(self) -> float:
        """Root mean square rounding error of log|B|: eps |diag(A^-1) o diag(A)| for the factorised matrix A.

        A Cholesky factor is exact for a matrix whose entries differ from A by about eps sqrt(A_ii A_jj).
        """
        each = self.cavity * (1.0 + self.lam * self.predictors.variance)
        return EPS * float(np.sqrt(float(namespace(each).sum(each * each))))

    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        """ds and dtau (N, P) of Newton's step. It may overwrite the factor, which is computed again if needed."""
        return iterated(self, system, OtherWeights(self, system), system.economical)

    def hadamard(self, v: Array) -> Array:
        """(Vt o Vt) v for v (N, C): -d rho(lam + e v)/de at e = 0, by extrapolated differences accurate to 1e-11."""
        xp, rho = namespace(v), self.variance
        v = xp.where(rho > 0.0, v, xp.zeros_like(v))  # rows that constraints fix have no part in it
        scale = float(xp.max(xp.abs(v * rho)))
        if scale == 0.0:
            return 0.0 * v

        def slope(e: float) -> Array:
            up, down = (self.predictors.at(self.lam + sign * e * v).variance for sign in (1.0, -1.0))
            return (down - up) / (2.0 * e)

        e = _STEP / scale
        return (4.0 * slope(e / 2) - slope(e)) / 3.0

    @property
    def nearly_uncoupled(self) -> bool:
        """Whether rho is so small that means and variances hardly depend on each other in the exact mode."""
        return False

    @contextmanager
    def products(self, economical: bool = False) -> Iterator[tuple[Product, Product]]:
        """v -> Vt v and v -> (Vt o Vt) v for v (N, C), within the context; they may overwrite the factor.

        ``economical`` allows diag(Vt)^2 in place of Vt o Vt if that is much cheaper.
        """
        yield self.apply, self.hadamard

    def certificate(self, residual: Array, d: Array) -> float:
        """At least 1/2 r' S r + 1/2 d' (Vt o S) d, the strong-concavity bound of the exact mode. r, d: (N, C).

        This default is a cheap bound, with 1/2 (sum |d| sqrt(rho S_nn))^2 for the last term.
        """
        xp = namespace(d)
        with np.errstate(over="ignore", invalid="ignore"):  # far from the optimum it may be infinite
            spread = float(xp.sum(xp.abs(d) * xp.sqrt(self.variance * self.predictors.variance)))
            return 0.5 * float(xp.sum(residual * self.predictors.apply(residual))) + 0.5 * spread * spread

    def weights(self, v: Array) -> Weights | None:
        """u of each block with Vt v = X u; None if only products with Vt are known."""
        return None

    def weights_decrement(self, weights: Weights, alpha: Array) -> float:
        """g' V g for g = Sigma^-1 u - X' alpha: twice the possible gain from the means; 0 without weights."""
        return 0.0

    # -- derivatives of the evidence ---------------------------------------------------------------
    def covariance_adjoint(self, adjoints: list[Array]) -> list[Array] | None:
        """dP/dSigma of each block (L, L) at the optimum: 1/2 (a a' - W' Lam^1/2 B^-1 Lam^1/2 W), a = W' alpha.

        None if the latents are the predictors; it then follows from Vt.
        """
        if self.own_latents:
            got = "a sparse prior has no dense covariance to differentiate"
            raise problem("posterior.adjoint", got, "its precision")
        return None

    def precision_adjoint(self, adjoints: list[Array]) -> list[Any]:
        """dP/dQ of each block on its pattern: 1/2 (Sigma - V - (m-mu)(m-mu)')."""
        raise _no_precision()

    def precision_curvature(self, adjoints: list[Array], slopes: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """1/2 h_i' (Sigma - V) h_j and 1/2 (m-mu)' h_i for h_i = dQ_i (m-mu), summed over blocks."""
        raise _no_precision()

    def design_adjoint(self, everyone: Any, alpha: Array, lam: Array, mean: Array) -> list[Any]:
        """dP/dW of each block (R, L), on the pattern of a sparse W: -alpha m' - Lam W V.

        ``everyone``: the predictors of all N observations with alpha and lam (N, C); this factor has the active ones.
        """
        got = f"{type(self.predictors).__name__} has no design of its own"
        raise problem("posterior.adjoint", got, "a prior with one")

    # -- after the fit -----------------------------------------------------------------------------
    def row_covariances(self, sites: np.ndarray) -> RowCovariances:
        """Covariances under q of rows, new rows and latents with some rows of this factor, its sites (n,)."""
        return self.covariances(self, sites)

    def latent_variance(self) -> Array:
        """diag V: (L,) for one block, (L, C) for several; only if ``own_latents``."""
        raise NotImplementedError

    def sample_latents(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of z - m: (size, L) for one block, (size, L, C) for several; only if ``own_latents``."""
        raise NotImplementedError

    def latent_covariance(self) -> list[Array]:
        """V of each block (L, L), if there are few enough latents for a full matrix."""
        raise problem(
            "posterior.latent_covariance",
            "the covariance of sparse latents is a full matrix",
            "a DenseCovariance or Features prior",
            "Use posterior.latent_variance, or posterior.sample_latents for joint draws.",
        )

    def joint_reduction(self, cross: Array) -> Array:
        """The reduction by the data of the covariance (M, M) of new rows, from Cov(eta*, z) (M, L)."""
        got = f"{type(self).__name__} with {self.predictors.n_predictors} predictors an observation"
        raise problem("posterior.predict_covariance", got, "a DenseCovariance prior and one predictor")

    def covariance(self) -> list[Array]:
        """The full matrix Vt (N, N) of each block."""
        n, C = self.lam.shape
        joint = self.predictors.correlated
        blocks: list[Array] = []
        for group in [tuple(range(C))] if joint else [(c,) for c in range(C)]:
            columns = []
            for k in range(n * len(group)):
                unit = np.zeros((n, C))
                unit[k // len(group), group[k % len(group)]] = 1.0
                seen = self.apply(asarray(unit, self.lam))
                columns.append(namespace(seen).reshape(seen if joint else seen[:, group[0]], (-1,)))
            blocks.append(namespace(self.lam).stack(columns, axis=1))
        return blocks

    def observation_covariance(self) -> Array:
        """Cov[eta_n] of each observation (N, C, C), for correlated predictors."""
        (n, C), xp = self.lam.shape, namespace(self.lam)
        V = xp.reshape(self.covariance()[0], (n, C, n, C))
        own: Array = xp.stack([V[i, :, i, :] for i in range(n)], axis=0)
        return own


def _no_precision() -> Exception:
    got, advice = "the prior is not a SparsePrecision", "Read the covariance's instead."
    return problem("posterior.adjoint", got, "one", advice)


class Predictors(ABC):
    """The contract of a prior that is bound to N observations of C predictors."""

    mt: Array  # (N, C)  W mu + offset
    extra_variance: Array | float = 0.0  # c (N, C): prior variance of eta that the latents do not explain
    correlated: bool = False  # whether the predictors of one observation are correlated a priori
    small: bool = False  # whether its matrices are so small that BLAS is faster on one thread
    default_mean: float | None = None  # the prior mean of every eta, if it is one number
    negative_sites: bool = False  # whether ``at`` accepts lam < 0 if the posterior precision is positive definite
    draws_of: str = "eta"  # the unknowns that posterior draws are made of: "eta", "weights", "rows" or "latents"

    @cached_property
    def n_observations(self) -> int:
        return int(self.mt.shape[0])

    @cached_property
    def n_predictors(self) -> int:
        return int(self.mt.shape[1])

    @property
    @abstractmethod
    def variance(self) -> Array:
        """diag S (N, C)."""

    @abstractmethod
    def apply(self, alpha: Array) -> Array:
        """S alpha (N, C)."""

    @abstractmethod
    def at(self, lam: Array) -> Factor:
        """The factorisation at lam (N, C) >= 0; NotPositiveDefinite if it is singular up to rounding."""

    @abstractmethod
    def restrict(self, keep: np.ndarray) -> Predictors:
        """The same prior for the observations with indices ``keep``."""

    def through_rows(self, n: int) -> Predictors | None:
        """An approximation through n of the rows from which a fit can start; None if there is none."""
        return None

    @property
    def has_extra_variance(self) -> bool:
        return np.ndim(self.extra_variance) > 0

    def proves_definite(self, lam: Array) -> bool:
        """Whether Sigma^-1 + W' Lam W is positive definite in exact arithmetic, for lam (N, C) of any sign."""
        raise NotImplementedError(f"{type(self).__name__} does not take negative sites")

    def row_covariance(self, rows: np.ndarray) -> np.ndarray:
        """S of some rows (n, n), for one predictor per observation."""
        whole = self.at(0.0 * self.mt).covariance()[0]
        return np.asarray(to_numpy(whole)[np.ix_(rows, rows)])

    def lines(self, same: float = SAME_LINE) -> Lines:
        """Groups of observations whose rows of W are proportional up to the tolerance ``same``."""
        return Lines.labelled(np.arange(self.n_observations))

    # -- weights u with S alpha = X u, for predictors that know their latents ----------------------------
    @property
    def n_weights(self) -> int | None:
        """Number of weights of all blocks if they are few, so that a sample of many rows determines them; else None."""
        return None

    def weights_of(self, alpha: Array) -> Weights | None:
        """u with S alpha = X u; None if only S is known.

        Few features: X = W R, u = X' alpha. A sparse precision: X = W, u = Q^-1 W' alpha. Under a wide prior u is more
        accurate than sums over alpha, which cancel.
        """
        return None

    def from_weights(self, weights: Weights) -> Array:
        """X u (N, C)."""
        raise NotImplementedError

    def weights_norm(self, weights: Weights) -> float:
        """alpha' S alpha from u: u' u for few features, u' Q u for a sparse precision."""
        raise NotImplementedError

    # -- products and their rounding -------------------------------------------------------------------

    def quadratic(self, alpha: Array, S_alpha: Array) -> float:
        """alpha' S alpha."""
        return float(namespace(alpha).sum(alpha * S_alpha))

    def quadratic_rounding(self, alpha: Array, quadratic: float) -> float:
        """Root mean square rounding error of alpha' S alpha: eps sum alpha^2 S."""
        return EPS * float(namespace(alpha).sum(alpha * alpha * self.variance))

    def mean_rounding(self, alpha: Array) -> Array | None:
        """Root mean square error (N, C) of S alpha from the rounding of alpha; None if it is expensive to compute."""
        return None

    def variance_of(self, rows: np.ndarray, factor: Any, lam: Array) -> Array:
        """diag(W V W') (M, C) of some observations under a factor of the others; ``lam`` (N, C) is 0 at these."""
        rho = self.at(lam).variance
        these: Array = namespace(rho).take(rho, asarray_index(rows, rho), axis=0)
        return these

    # -- latents: by default the predictors themselves -------------------------------------------------
    def as_latents(self, x: Array) -> Array:
        """Reshape (..., N, C) to latents: (..., N), (..., N * C) for correlated predictors, else unchanged."""
        one, shape = self.n_predictors == 1, tuple(x.shape[:-2])
        return namespace(x).reshape(x, (*shape, -1)) if one or self.correlated else x

    def adjoints(self, alpha: Array) -> list[Array]:
        """W' alpha of each block (L,)."""
        flat = self.as_latents(alpha)
        return [flat] if flat.ndim == 1 else [flat[:, c] for c in range(flat.shape[1])]

    def latent_mean(self) -> Array:
        """mu: (L,) or (L, C)."""
        return self.as_latents(self.mt)

    def latent_shift(self, alpha: Array, weights: Weights | None = None) -> Array:
        """Sigma W' alpha: (L,) or (L, C). The posterior mean of z is mu minus this (eq:mstar).

        It is computed from ``weights``, if they are known more accurately than alpha.
        """
        return self.as_latents(self.apply(alpha))


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows to predict: rows of W, or their prior covariance with the latents and prior moments.

    ``posterior.at(new)`` and ``posterior.predict(new)`` take one, such as ``family.new_rows(theta, X)``, or its fields:
    ``posterior.at(design=...)``.
    """

    design: Any = None  # (M, L)
    cross: Any = None  # (M, L) or (C, M, L): Cov(eta*, z)
    variance: Any = None  # (M,) or (M, C): Var(eta*) a priori; needed with cross
    mean: Any = None  # (M,) or (M, C): E[eta*] a priori, with cross
    offset: Any = 0.0
    extra_variance: Any = 0.0  # (M,) or (M, C): variance of eta* beyond what the latents explain
    mean_only: bool = False  # whether the variance is not computed


@runtime_checkable
class PredictsNewRows(Protocol):
    """Predictors that know their latents, and can therefore predict any new row."""

    def predict(
        self, factor: Any, alpha: Array, new: NewRows, weights: Weights | None = None
    ) -> tuple[Array, Array | None]:
        """Mean and variance (M, C) of W* z + offset* at new rows; the variance is None with ``mean_only``."""


class Prior(ABC):
    """The contract of a prior z ~ N(mu, Sigma), eta = W z + offset."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows of W."""

    @abstractmethod
    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> Predictors:
        """Bind to N observations of C predictors; ``coupled``: the likelihood couples those of one observation."""

    @property
    def like(self) -> Array:
        """An array of the prior; the whole computation uses its library and device."""
        return HOST

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        """Small priors of every shape that this class supports, for the contract tests."""
        return []


# -- Derivatives of the elbo with respect to the prior -------------------------------------------
@dataclass(frozen=True)
class PriorAdjoint:
    """The derivatives of the elbo P with respect to the prior, at the optimum; each is computed when it is read.

        dP/dmu = -W' alpha,    dP/dSigma = 1/2 (W' alpha alpha' W - W' Lam^1/2 B^-1 Lam^1/2 W),    dP/dc = -lam/2
        dP/dQ = 1/2 (Sigma - V - (m-mu)(m-mu)'),    dP/dW = -alpha m' - Lam W V

    By the envelope theorem the fit itself is not differentiated. The error is of the order of the square root of the
    gap. There is one array for each block: one block if predictors share their latents, C if each has its own.
    """

    predictors: Predictors  # all observations
    factor: Factor  # the observations in ``active``
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
        """1/2 (alpha alpha' - Lam + Lam Vt Lam), for a prior whose latents are its predictors."""
        if len(adjoints) > 1:
            wanted = "one, or a covariance_adjoint of the factor"
            raise problem("posterior.adjoint", "several predictors an observation", wanted)
        a, lam = to_numpy(adjoints[0]), to_numpy(self.predictors.as_latents(self.sites[1]))
        out, some = 0.5 * (np.outer(a, a) - np.diag(lam)), np.ix_(self.active, self.active)
        live = lam[self.active]
        out[some] += 0.5 * live[:, None] * to_numpy(self.factor.covariance()[0]) * live
        return asarray(out, adjoints[0])

    @property
    def precision(self) -> list[Any]:
        """dP/dQ of each block on its pattern: dP/dtheta is the sum of its products with dQ/dtheta, entry by entry.

        Under constraints only the part of dQ on their complement counts.
        """
        return self.factor.precision_adjoint(self.predictors.adjoints(self.sites[0]))

    def precision_curvature(self, slopes: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """1/2 h_i' (Sigma - V) h_j (k, k) and 1/2 (m-mu)' h_i (k,) for h_i = dQ_i (m-mu), dQ_i on the pattern of Q.

        The first is the average information of the Gaussian observations that have the weights lam. Summed over blocks.
        """
        return self.factor.precision_curvature(self.predictors.adjoints(self.sites[0]), slopes)

    @property
    def design(self) -> list[Any]:
        """dP/dW of each block (R, L), on the pattern of a sparse W; rows that share features are summed."""
        mean = self.predictors.latent_mean() - self.predictors.latent_shift(self.sites[0], self.find_weights())
        return self.factor.design_adjoint(self.predictors, *self.sites, mean)

    @property
    def extra(self) -> Array:
        """dP/dc (N, C), for the variance c of eta that the latents do not explain."""
        return -0.5 * self.sites[1]
