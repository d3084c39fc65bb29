"""The precision of q(z) = N(m, V): V^-1 = P + K, the prior's P at theta and what rows have added to it, K.

A fit by passes needs three answers, each a contract below: the prior gives P at theta, P gives P + K, and the factor of
P + K gives its log determinant and V. There are two kinds.

    independent weights   P = diag(1/sd^2), K dense:  I + R K R = L L' with R = diag(sd),  U = L^-T,  V = (R U)(R U)'
    sparse latents        P = Q(theta); K and all that rows send lie on the pattern of Q and A'A

Rows of sparse latents need V on the pattern alone, since every pair of latents that a row touches is in it. Without a
dual the bound of ``primal.py``, tr E V E Q^-1, is at most (1 + tr Q^-1 K) tr E V E V, for Q^-1 <= (1 + tr Q^-1 K) V.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky, solve_triangular

from ..hyperparameters.weights import WeightVariances
from ..linalg.arrays import to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..linalg.design import Design
from ..linalg.factorisation import symmetric_csc
from ..linalg.row_pairs import TrianglePairs
from ..marginals import NormalMarginals
from ..posterior import Posterior
from ..priors.base import EPS
from ..priors.sparse import SparsePrecision
from ..priors.sparsity import Pattern

if TYPE_CHECKING:
    from .approximation import Approximation

Solve = Callable[[np.ndarray], np.ndarray]
CURVATURE_FLOOR = 1e-3  # the least curvature of the rows, in units of the prior's; smaller ones are raised to it
POLISHED = 20  # hyperparameters of independent weights; the search for more of them ends without Newton steps


# -- the contracts ------------------------------------------------------------------------------------------
class PrecisionFactor(ABC):
    """A factor of P + K, for each predictor.

    log_det : log|P + K| - log|P|, summed over predictors
    trace : tr K V
    log_det_rounding : how far rounding may have moved ``log_det``, as a root mean square
    spread : V in the form that ``Design.row_squares`` takes
    """

    log_det: float
    trace: float
    log_det_rounding: Any
    spread: Any

    @abstractmethod
    def divergence(self, change: np.ndarray, convex: bool) -> float:
        """The gap that a change E of K makes: tr V E - log|P + K + E| + log|P + K|.

        Without a dual (``convex`` is False) it is a bound on tr E V E P^-1. Never negative; infinite where P + K + E
        is not positive definite.
        """

    @abstractmethod
    def scaled(self, mean: np.ndarray, gram: np.ndarray) -> np.ndarray:
        """Changes of the mean and of K in units of q's own spread, one vector."""


class PriorPrecision(ABC):
    """P at given hyperparameters. Means and adjoints are (L, C): C predictors with the same prior.

    centre : the prior's mean mu (L,)
    """

    centre: np.ndarray

    @abstractmethod
    def times(self, mean: np.ndarray) -> np.ndarray:
        """P (m - mu), (L, C)."""

    @abstractmethod
    def solve(self, right: np.ndarray) -> np.ndarray:
        """P^-1 r, (L, C)."""

    @abstractmethod
    def entries(self, n_predictors: int) -> np.ndarray:
        """P in the form of K."""

    @abstractmethod
    def plus(self, gram: np.ndarray) -> PrecisionFactor:
        """P + K. Raises NotPositiveDefinite."""

    @abstractmethod
    def solver(self, curvature: np.ndarray, gram: np.ndarray) -> Solve:
        """(P + H)^-1 on vectors (C L,) or (C L, k), predictor by predictor.

        Where P + H is not positive definite it is replaced by a matrix that is; ``gram``, what rows would add to the
        precision, is one for sparse latents.
        """

    def norm(self, mean: np.ndarray) -> float:
        """(m - mu)' P (m - mu)."""
        return float(np.sum((mean - self.centre[:, None]) * self.times(mean)))

    def residual(self, mean: np.ndarray, adjoint: np.ndarray) -> float:
        """r' P^-1 r of r = P (m - mu) + W' alpha."""
        r = self.times(mean) + adjoint
        return float(np.sum(r * self.solve(r)))


class PartitionedPrior(ABC):
    """z ~ N(mu, P(theta)^-1): a prior whose hyperparameters may be learned.

    theta : where they start
    bounds : array (n_theta, 2)
    polished : the search for at most so many hyperparameters ends with Newton steps
    """

    theta: np.ndarray
    bounds: np.ndarray
    polished: int = 0

    @abstractmethod
    def at(self, theta: np.ndarray) -> Any:
        """The ``PriorPrecision`` at theta. Raises NotPositiveDefinite."""

    @abstractmethod
    def gradient(self, q: Approximation) -> np.ndarray:
        """d(-KL)/d theta at q."""

    @abstractmethod
    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient."""

    @abstractmethod
    def posterior(self, q: Approximation) -> Any:
        """q as a fit returns it."""

    @abstractmethod
    def unpacked(self, values: np.ndarray) -> np.ndarray:
        """A matrix as rows send it, in the form of K."""


# -- independent weights ------------------------------------------------------------------------------------
class WeightPosterior:
    """q(z) of the weights: the mean (L, C), and roots T (C, L, L) with T T' the covariance."""

    def __init__(self, mean: np.ndarray, roots: np.ndarray) -> None:
        self._mean, self._roots = mean, roots

    @property
    def latent_mean(self) -> np.ndarray:
        """(L,), or (L, C) for several predictors."""
        return _shaped(self._mean)

    @property
    def latent_variance(self) -> np.ndarray:
        """(L,), or (L, C)."""
        return _shaped(np.sum(self._roots**2, axis=2).T)

    def latents(self) -> NormalMarginals:
        """The marginals of the weights."""
        return NormalMarginals(self.latent_mean, self.latent_variance)

    def latent_covariance(self) -> np.ndarray:
        """(L, L), or (C, L, L)."""
        V = self._roots @ np.swapaxes(self._roots, 1, 2)
        return np.asarray(V[0] if V.shape[0] == 1 else V)

    def sample_latents(self, size: int, rng: np.random.Generator | int | None = None) -> np.ndarray:
        """Joint draws of the weights: (size, L), or (size, L, C)."""
        e = np.random.default_rng(rng).standard_normal((size, self._mean.shape[0], self._mean.shape[1]))
        return _shaped(self._mean + np.einsum("clk,skc->slc", self._roots, e))


def _shaped(x: np.ndarray) -> np.ndarray:
    return x[..., 0] if x.shape[-1] == 1 else x


class GroupedFactor(PrecisionFactor):
    """P + K of independent weights: K (C, L, L). ``spread`` T (C, L, L) has T T' = V."""

    def __init__(self, sd: np.ndarray, gram: np.ndarray) -> None:
        self.sd, eye = sd, np.eye(sd.size)
        self.inner = self._whitened(gram) + eye
        self.log_det, roots = 0.0, []
        for block in self.inner:
            try:
                lower = cholesky(block, lower=True)
            except (np.linalg.LinAlgError, ValueError):
                raise NotPositiveDefinite from None
            roots.append(solve_triangular(lower, eye, lower=True, trans="T"))
            self.log_det += 2.0 * float(np.sum(np.log(np.diag(lower))))
        self.U = np.stack(roots)
        self.trace = float(sd.size * len(roots) - np.sum(self.U * self.U))
        self.spread = sd[:, None] * self.U

    def _whitened(self, gram: np.ndarray) -> np.ndarray:
        return np.asarray(gram * np.outer(self.sd, self.sd))

    @property
    def log_det_rounding(self) -> float:
        each = np.sum(self.U * self.U, axis=2) * np.diagonal(self.inner, axis1=1, axis2=2)
        return float(EPS * np.sqrt(np.sum(each * each)))

    def divergence(self, change: np.ndarray, convex: bool) -> float:
        pairs = list(zip(self.U, self._whitened(change), strict=True))
        if not convex:
            return float(sum(np.sum((U.T @ E) ** 2) for U, E in pairs))
        d = np.concatenate([np.linalg.eigvalsh(U.T @ E @ U) for U, E in pairs])
        with np.errstate(invalid="ignore", divide="ignore"):
            total = float(np.sum(d - np.log1p(d)))
        return total if total == total else np.inf

    def sandwich(self, one: np.ndarray, other: np.ndarray) -> float:
        """tr E V F V of two changes E and F of K."""
        pairs = zip(self.spread, one, other, strict=True)
        return float(sum(np.sum((T.T @ E @ T) * (T.T @ F @ T)) for T, E, F in pairs))

    def scaled(self, mean: np.ndarray, gram: np.ndarray) -> np.ndarray:
        parts = []
        for T, dm, dK in zip(self.spread, mean.T, gram, strict=True):
            parts += [np.linalg.lstsq(T, dm, rcond=None)[0], (T.T @ dK @ T).ravel() / np.sqrt(2.0)]
        return np.concatenate(parts)


class WeightPrecision(PriorPrecision):
    """P = diag(1/sd^2) of independent weights with means ``centre`` (L,)."""

    def __init__(self, centre: np.ndarray, sd: np.ndarray) -> None:
        self.centre, self.sd = centre, sd

    def times(self, mean: np.ndarray) -> np.ndarray:
        return (mean - self.centre[:, None]) / self.sd[:, None] ** 2

    def solve(self, right: np.ndarray) -> np.ndarray:
        return right * self.sd[:, None] ** 2

    def entries(self, n_predictors: int) -> np.ndarray:
        return np.repeat(np.diag(self.sd**-2.0)[None], n_predictors, axis=0)

    def plus(self, gram: np.ndarray) -> GroupedFactor:
        return GroupedFactor(self.sd, gram)

    def solver(self, curvature: np.ndarray, gram: np.ndarray) -> Solve:
        C, L = curvature.shape[0], self.sd.size
        R = np.tile(self.sd, C)
        H = np.transpose(curvature, (0, 2, 1, 3)).reshape(C * L, C * L)
        values, vectors = np.linalg.eigh(np.eye(C * L) + R[:, None] * H * R)
        values = np.where(values > CURVATURE_FLOOR, values, np.maximum(np.abs(values), CURVATURE_FLOOR))
        vectors = R[:, None] * vectors
        return lambda b: vectors @ ((vectors.T @ b).T / values).T


class GroupedVariances(PartitionedPrior):
    """z_l ~ N(mean_l, v_{g(l)}), theta = log v: the independent weights of a ``WeightVariances``, without its rows."""

    polished = POLISHED

    def __init__(self, family: WeightVariances) -> None:
        self.family, self.theta, self.bounds = family, family.theta, family.bounds
        self.mean = np.broadcast_to(to_numpy(family.base.mean), family.groups.shape)

    def at(self, theta: np.ndarray) -> WeightPrecision:
        return WeightPrecision(self.mean, np.sqrt(self.family.variances_at(theta)))

    def gradient(self, q: Approximation) -> np.ndarray:
        return self.family.gradient(q, q.theta)  # type: ignore[arg-type]  # it reads the posterior alone

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        return self.family.log_prior(theta)

    def posterior(self, q: Approximation) -> WeightPosterior:
        return WeightPosterior(q.mean, q.factor.spread)

    def unpacked(self, values: np.ndarray) -> np.ndarray:
        return 0.5 * (values + np.swapaxes(values, -1, -2))


# -- sparse latents -----------------------------------------------------------------------------------------
class PatternDesign(Design):
    """Rows A (n, L), sparse, columns ascending.

    Matrices over the latents are symmetric, and given by their values on the lower triangle of a csc pattern.
    """

    def __init__(self, A: sp.csr_array, indptr: np.ndarray, indices: np.ndarray) -> None:
        self.A, self.shape, self.pattern = A, A.shape, (indptr, indices)
        self.pairs = TrianglePairs(A, indptr, indices)

    def times(self, u: Any) -> Any:
        return self.A @ u

    def adjoint(self, a: Any) -> Any:
        return self.A.T @ a

    def gram(self, weight: Any) -> Any:
        """A' diag(weight) A."""
        return self.pairs.add(np.ascontiguousarray(weight), np.zeros(self.pattern[1].size))

    def row_squares(self, U: Any) -> Any:
        """diag(A V A'), V by its values."""
        return self.pairs.forms(U)

    def row_products(self, Q: Any) -> Any:
        return self.row_squares(Q)

    def take(self, rows: np.ndarray) -> PatternDesign:
        return PatternDesign(self.A[rows], *self.pattern)

    def toarray(self) -> Any:
        return self.A.toarray()


class Triangle:
    """The lower triangle of a symmetric csc pattern: what travels between partitions and a fit.

    Attributes
    ----------
    indptr, indices : of the triangle
    lower : which entries of the pattern are in it
    both : for every entry of the pattern, the entry of the triangle that it equals
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        n = indptr.size - 1
        owners = np.repeat(np.arange(n), np.diff(indptr))
        self.lower = np.flatnonzero(indices >= owners)
        place = np.arange(self.lower.size, dtype=np.int64)
        numbered = sp.csc_array((place + 1, (indices[self.lower], owners[self.lower])), shape=(n, n))
        self.indptr, self.indices = numbered.indptr.astype(indptr.dtype), indices[self.lower]
        mirrored = numbered + sp.triu(numbered.T, 1, format="csc")
        self.both = mirrored.data[np.lexsort((mirrored.indices, np.repeat(np.arange(n), np.diff(mirrored.indptr))))] - 1


class LatentFactor(PrecisionFactor):
    """Q + K, one predictor: K (1, nnz) by its values on the pattern."""

    def __init__(self, pattern: Pattern, triangle: Triangle, gram: np.ndarray) -> None:
        self.pattern, self.gram = pattern, gram[0]
        self.own = pattern.added(self.gram)
        self.V = self.own.inverse_data()
        self.spread = self.V[None, triangle.lower]
        self.log_det = self.own.log_det - pattern.base.log_det
        self.trace = float(self.gram @ self.V)

    @property
    def log_det_rounding(self) -> float:
        return float(np.hypot(self.own.log_det_rounding, self.pattern.base.log_det_rounding))

    def divergence(self, change: np.ndarray, convex: bool) -> float:
        P, E = self.pattern, change[0]
        try:
            if convex:
                total = float(self.V @ E) - P.added(self.gram + E).log_det + self.own.log_det
            else:
                wide = 1.0 + float(self.gram @ P.base.inverse_data())
                total = wide * float(E @ self.own.sandwich(E))
        except NotPositiveDefinite:
            return np.inf
        return max(0.0, total)

    def scaled(self, mean: np.ndarray, gram: np.ndarray) -> np.ndarray:
        P, sd = self.pattern, np.sqrt(self.own.inverse_diagonal())
        K = gram[0] * sd[P.indices] * sd[P.owners] / np.sqrt(2.0)
        return np.concatenate([mean[:, 0] / np.maximum(sd, 1e-300), K])


class LatentPrecision(PriorPrecision):
    """Q at given hyperparameters, on its pattern."""

    def __init__(self, pattern: Pattern, triangle: Triangle) -> None:
        self.pattern, self.triangle = pattern, triangle
        self.centre = np.zeros(pattern.shape[0])

    def times(self, mean: np.ndarray) -> np.ndarray:
        return np.asarray(self.pattern.Q @ mean)

    def solve(self, right: np.ndarray) -> np.ndarray:
        return self.pattern.base.solve(right[:, 0])[:, None]

    def entries(self, n_predictors: int) -> np.ndarray:
        return self.pattern.entries(self.pattern.Q)[None]

    def plus(self, gram: np.ndarray) -> LatentFactor:
        return LatentFactor(self.pattern, self.triangle, gram)

    def solver(self, curvature: np.ndarray, gram: np.ndarray) -> Solve:
        try:
            return self.pattern.added(curvature[0, 0]).solve
        except NotPositiveDefinite:
            return self.pattern.added(gram[0]).solve


class SparsePrior(PartitionedPrior):
    """z ~ N(0, Q(theta)^-1) on a pattern that also holds A'A.

    Parameters
    ----------
    family : StackedField
        Q(theta) with its derivatives, bounds, prior and constraints.
    touched : csr array
        A row for each set of latents that rows of the data touch together.
    """

    def __init__(self, family: Any, touched: sp.csr_array) -> None:
        self.family, self.build, self.constraints = family, family.build, family.constraints
        self.theta, self.bounds, self._log_prior = family.theta, family.bounds, family.log_prior
        Q = family.build(family.theta)[0]
        self.pattern = SparsePrecision(Q, design=touched, constraints=self.constraints).pattern

    @cached_property
    def triangle(self) -> Triangle:
        """The entries of the pattern that travel."""
        return Triangle(self.pattern.indptr, self.pattern.indices)

    def at(self, theta: np.ndarray) -> LatentPrecision:
        return LatentPrecision(self.pattern.reweighted(symmetric_csc(self.build(theta)[0])), self.triangle)

    def gradient(self, q: Approximation) -> np.ndarray:
        """1/2 tr (Q^-1 - V - m m') dQ, by values on the pattern."""
        P, m = q.factor.pattern, q.mean[:, 0]
        inner = 0.5 * (P.base.inverse_data() - q.factor.V - m[P.indices] * m[P.owners])
        return np.array([float(P.entries(slope) @ inner) for slope in self.build(q.theta)[1]])

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        return self._log_prior(theta)

    def posterior(self, q: Approximation) -> Posterior:
        P, no_rows = q.factor.pattern, sp.csr_array((1, q.mean.shape[0]))
        matrix = P.matrix(P.q + q.gram[0])
        prior = SparsePrecision(matrix, mean=q.mean[:, 0], design=no_rows, constraints=self.constraints)
        return Posterior.of_prior(prior)

    def unpacked(self, values: np.ndarray) -> np.ndarray:
        return values[..., self.triangle.both]
