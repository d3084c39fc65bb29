"""The contract of a prior: all observations together, through one factorisation.

A ``Prior`` is what a user makes: z ~ N(mu, Sigma), eta = W z + offset. Bound to a data set it becomes ``Predictors``,
and ``Predictors.at(lam)`` is one ``Factor`` that answers everything: log|B|, rho, the Newton direction, products,
certificates, gradients, predictions, samples. With S = W Sigma W', Lam = diag(lam):

    B = I + Lam^1/2 S Lam^1/2,    Vt = W V W' = (S^-1 + Lam)^-1,    V = (Sigma^-1 + W' Lam W)^-1      eq:Vstar

A prior of one's own needs ``Predictors.variance``, ``apply``, ``at`` and ``restrict``, and ``Factor.log_det``,
``variance``, ``apply`` and ``sample``: the abstract ones. Everything else follows from these, its latents being its
predictors; a prior that knows a quicker or a more exact way overrides it. What only some priors can answer is None,
or refused, by default.

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
EPS = 2.0**-53  # of one rounding to double precision
_STEP = 2e-3  # of the largest change of log rho, in a difference: its error, extrapolated once, is 1e-11


class Factor(ABC):
    """One factorisation of the posterior precision at given lam."""

    predictors: Predictors
    lam: Array  # (N, C)
    log_det: float  # log |B|
    own_latents: bool = False  # whether the latents are others than the predictors
    definite: bool = True  # whether the posterior precision is positive definite on what constraints leave free
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
        """What rounding did to log|B|, as a root mean square: eps |diag(A^-1) o diag(A)| of the matrix A factorised.

        A Cholesky factor is exact for a matrix whose entries are off by about eps sqrt(A_ii A_jj).
        """
        each = self.cavity * (1.0 + self.lam * self.predictors.variance)
        return EPS * float(np.sqrt(float(namespace(each).sum(each * each))))

    def direction(self, system: NewtonSystem) -> tuple[Array, Array]:
        """ds and dtau (N, P) of Newton's step. May use up the factor's memory; it comes back when asked for."""
        return iterated(self, system, OtherWeights(self, system), system.economical)

    def hadamard(self, v: Array) -> Array:
        """(Vt o Vt) v for v (N, C): -d rho(lam + e v)/de at e = 0, by extrapolated differences accurate to 1e-11."""
        xp, rho = namespace(v), self.variance
        v = xp.where(rho > 0.0, v, xp.zeros_like(v))  # a row that constraints hold fast neither moves nor is moved
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
        """Whether rho is so small that the exact mode's means and variances hardly steer each other."""
        return False

    @contextmanager
    def products(self, economical: bool = False) -> Iterator[tuple[Product, Product]]:
        """v -> Vt v and v -> (Vt o Vt) v for v (N, C), while the context lasts; may use up the factor's memory.

        ``economical`` allows diag(Vt)^2 in place of Vt o Vt where that is much cheaper.
        """
        yield self.apply, self.hadamard

    def certificate(self, residual: Array, d: Array) -> float:
        """At least 1/2 r' S r + 1/2 d' (Vt o S) d, the strong-concavity bound of the exact mode. r, d: (N, C).

        This is its cheap form, 1/2 (sum |d| sqrt(rho S_nn))^2 for the last term.
        """
        xp = namespace(d)
        with np.errstate(over="ignore", invalid="ignore"):  # far out it may be infinite
            spread = float(xp.sum(xp.abs(d) * xp.sqrt(self.variance * self.predictors.variance)))
            return 0.5 * float(xp.sum(residual * self.predictors.apply(residual))) + 0.5 * spread * spread

    def weights(self, v: Array) -> Weights | None:
        """u of each block with Vt v = X u; None where only products with Vt are known."""
        return None

    def weights_decrement(self, weights: Weights, alpha: Array) -> float:
        """g' V g for g = Sigma^-1 u - X' alpha: what the means may still gain, twice; 0 where weights cannot tell."""
        return 0.0

    # -- derivatives of the evidence ---------------------------------------------------------------
    def covariance_adjoint(self, adjoints: list[Array]) -> list[Array] | None:
        """dP/dSigma of each block (L, L) at the optimum: 1/2 (a a' - W' Lam^1/2 B^-1 Lam^1/2 W), a = W' alpha.

        None where the latents are the predictors, and Vt says it.
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

        For ``everyone`` with their alpha and lam (N, C), of whom this factor has seen those with a lam; m as latents.
        """
        got = f"{type(self.predictors).__name__} has no design of its own"
        raise problem("posterior.adjoint", got, "a prior with one")

    # -- after the fit -----------------------------------------------------------------------------
    def row_covariances(self, sites: np.ndarray) -> RowCovariances:
        """Covariances under q of rows, new rows and latents with some rows of this factor, its sites (n,)."""
        return self.covariances(self, sites)

    def latent_variance(self) -> Array:
        """diag V: (L,) for one block, (L, C) for several; of a factor with latents of its own."""
        raise NotImplementedError

    def sample_latents(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of z - m: (size, L) for one block, (size, L, C) for several; of a factor with latents of its own."""
        raise NotImplementedError

    def latent_covariance(self) -> list[Array]:
        """V of each block (L, L), where the latents are few enough for a full matrix."""
        raise problem(
            "posterior.latent_covariance",
            "the covariance of sparse latents is a full matrix",
            "a DenseCovariance or Features prior",
            "Use posterior.latent_variance, or posterior.sample_latents for joint draws.",
        )

    def joint_reduction(self, cross: Array) -> Array:
        """What the data take off the joint covariance (M, M) of new rows, from Cov(eta*, z) (M, L)."""
        got = f"{type(self).__name__} with {self.predictors.n_predictors} predictors an observation"
        raise problem("posterior.predict_covariance", got, "a DenseCovariance prior and one predictor")

    def covariance(self) -> list[Array]:
        """Vt, full: (N, N) of each block."""
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
    """A prior bound to N observations of C predictors."""

    mt: Array  # (N, C)  W mu + offset
    extra_variance: Array | float = 0.0  # c (N, C): variance of eta that the latents do not explain; q leaves it
    correlated: bool = False  # whether the predictors of one observation are, a priori
    small: bool = False  # whether its matrices are so small that BLAS does better on one thread
    default_mean: float | None = None  # the prior mean of every eta, where it is one number
    negative_sites: bool = False  # whether ``at`` takes lam < 0 where the posterior precision stays positive definite
    draws_of: str = "eta"  # what draws of its posterior are made of: "eta", or "weights", "rows", "latents" of its kind

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
        """The factorisation at lam (N, C) >= 0. Raises NotPositiveDefinite when rounding defeats it."""

    @abstractmethod
    def restrict(self, keep: np.ndarray) -> Predictors:
        """The same prior seen by fewer observations (their indices)."""

    def through_rows(self, n: int) -> Predictors | None:
        """An approximation by n of the rows that is good enough to start from, if there is one."""
        return None

    @property
    def has_extra_variance(self) -> bool:
        return np.ndim(self.extra_variance) > 0

    def proves_definite(self, lam: Array) -> bool:
        """Whether Sigma^-1 + W' Lam W is positive definite in exact arithmetic, for lam (N, C) of any sign."""
        raise NotImplementedError(f"{type(self).__name__} does not take negative sites")

    def row_covariance(self, rows: np.ndarray) -> np.ndarray:
        """S of some rows (n, n), of one predictor an observation."""
        whole = self.at(0.0 * self.mt).covariance()[0]
        return np.asarray(to_numpy(whole)[np.ix_(rows, rows)])

    def lines(self, same: float = SAME_LINE) -> Lines:
        """Observations that see the latents along one line, in groups; ``same``: how nearly."""
        return Lines.labelled(np.arange(self.n_observations))

    # -- weights: predictors whose latents are at hand have some -----------------------------------------
    @property
    def n_weights(self) -> int | None:
        """Weights of all blocks where they are few, so that a sample of many rows knows them nearly as well."""
        return None

    def weights_of(self, alpha: Array) -> Weights | None:
        """u with S alpha = X u; None where only S is known.

        Few features: X = W R, u = X' alpha. A sparse precision: X = W, u = Q^-1 W' alpha. Under a wide prior u keeps
        the digits that a sum over alpha cancels.
        """
        return None

    def from_weights(self, weights: Weights) -> Array:
        """X u (N, C)."""
        raise NotImplementedError

    def weights_norm(self, weights: Weights) -> float:
        """alpha' S alpha of the alpha behind u: u' u for few features, u' Q u for a sparse precision."""
        raise NotImplementedError

    # -- products and their rounding -------------------------------------------------------------------

    def quadratic(self, alpha: Array, S_alpha: Array) -> float:
        """alpha' S alpha."""
        return float(namespace(alpha).sum(alpha * S_alpha))

    def quadratic_rounding(self, alpha: Array, quadratic: float) -> float:
        """What rounding did to alpha' S alpha, as a root mean square: eps sum alpha^2 S."""
        return EPS * float(namespace(alpha).sum(alpha * alpha * self.variance))

    def mean_rounding(self, alpha: Array) -> Array | None:
        """What rounding of alpha does to S alpha (N, C), a root mean square; None where that is not cheaply known."""
        return None

    def variance_of(self, rows: np.ndarray, factor: Any, lam: Array) -> Array:
        """diag(W V W') of some observations (M, C) under a factor fitted to others; ``lam`` of all, 0 at these."""
        rho = self.at(lam).variance
        these: Array = namespace(rho).take(rho, asarray_index(rows, rho), axis=0)
        return these

    # -- latents: the predictors themselves, unless a prior knows others -------------------------------
    def as_latents(self, x: Array) -> Array:
        """(..., N, C) in the shape of latents: (..., N), (..., N*C) for correlated predictors, else as it is."""
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

        From the weights of alpha where they are known more exactly than alpha itself.
        """
        return self.as_latents(self.apply(alpha))


@dataclass(frozen=True, slots=True)
class NewRows:
    """Where to predict: rows of W, or a covariance with the latents z and the prior's moments there.

    ``posterior.at(new)`` and ``posterior.predict(new)`` take it: ``posterior.at(family.new_rows(theta, X))``. Users may
    name its fields instead: ``posterior.at(design=...)``.
    """

    design: Any = None  # (M, L)
    cross: Any = None  # (M, L) or (C, M, L): Cov(eta*, z)
    variance: Any = None  # (M,) or (M, C): Var(eta*) a priori; needed with cross
    mean: Any = None  # (M,) or (M, C): E[eta*] a priori, with cross
    offset: Any = 0.0
    extra_variance: Any = 0.0  # (M,) or (M, C): variance of eta* beyond what the latents explain
    mean_only: bool = False  # no variance is wanted, and none is computed


@runtime_checkable
class PredictsNewRows(Protocol):
    """Predictors that know their latents, and so what any new row sees of them."""

    def predict(
        self, factor: Any, alpha: Array, new: NewRows, weights: Weights | None = None
    ) -> tuple[Array, Array | None]:
        """Mean and variance (M, C) of W* z + offset* at new rows; None for a variance that was not wanted."""


class Prior(ABC):
    """z ~ N(mu, Sigma), eta = W z + offset."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows of W."""

    @abstractmethod
    def bind(self, n_observations: int, n_predictors: int, coupled: bool) -> Predictors:
        """Meet N observations of C predictors; ``coupled`` when the likelihood couples those of one observation."""

    @property
    def like(self) -> Array:
        """Any array of the prior: where it lives, the whole computation lives."""
        return HOST

    @classmethod
    def example(cls, rng: np.random.Generator, n: int, n_predictors: int) -> list[Prior]:
        """Small priors of every shape this class supports: the contract tests run on them."""
        return []


# -- How the evidence changes with the prior -----------------------------------------------------
@dataclass(frozen=True)
class PriorAdjoint:
    """The derivatives of P in the prior, at the optimum of q; each is computed when it is read, and not kept.

        dP/dmu = -W' alpha,    dP/dSigma = 1/2 (W' alpha alpha' W - W' Lam^1/2 B^-1 Lam^1/2 W),    dP/dc = -lam/2
        dP/dQ = 1/2 (Sigma - V - (m-mu)(m-mu)'),    dP/dW = -alpha m' - Lam W V

    By the envelope theorem nothing is differentiated through the fit. Its error is the square root of the gap.
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
    def precision(self) -> list[Any]:
        """dP/dQ of each block on its pattern: dP/dtheta is the sum of its products with dQ/dtheta, entry by entry.

        Under constraints the precision is free on their complement only; what dQ does beyond it does not count.
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
        """dP/dc (N, C), c the variance of eta that the latents do not explain."""
        return -0.5 * self.sites[1]
