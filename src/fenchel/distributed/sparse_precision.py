"""The precision of sparse latents: z ~ N(0, Q(theta)^-1), with Q, K and all that rows send on the pattern of Q and A'A.

Rows need V on the pattern alone: every pair of latents that a row touches is in it. What travels is of the size of the
pattern's lower triangle, whatever the rows. Without a dual the bound of ``primal.py``, tr E V E Q^-1, is at most
(1 + tr Q^-1 K) tr E V E V, for Q^-1 <= (1 + tr Q^-1 K) V.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..linalg.dense import NotPositiveDefinite
from ..linalg.design import Design
from ..linalg.pairs import TrianglePairs
from ..linalg.sparse import symmetric_csc
from ..posterior import Posterior
from ..priors.sparse import SparsePrecision
from ..priors.sparsity import Pattern
from .precision import PartitionedPrior, Precision, PrecisionFactor, Solve

if TYPE_CHECKING:
    from .approximation import Approximation


class PatternDesign(Design):
    """Rows A (n, L), sparse, columns ascending. Matrices over the latents are symmetric, and given by their values on
    the lower triangle of a csc pattern.
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
    both : of every entry of the pattern, which of the triangle's it equals
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        n = indptr.size - 1
        owners = np.repeat(np.arange(n), np.diff(indptr))
        self.lower = np.flatnonzero(indices >= owners)
        each = np.bincount(owners[self.lower], minlength=n)
        self.indptr = np.concatenate([[0], np.cumsum(each)]).astype(indptr.dtype)
        self.indices = indices[self.lower]
        place = np.arange(self.lower.size, dtype=np.int64)
        self.both = np.empty(indices.size, dtype=np.int64)
        self.both[self.lower] = place
        upper = np.flatnonzero(indices < owners)  # by columns; the triangle's by rows are in the same order
        below = np.flatnonzero(self.indices > owners[self.lower])
        order = np.lexsort((owners[self.lower][below], self.indices[below]))
        self.both[upper] = place[below][order]


class LatentFactor(PrecisionFactor):
    """Q + K, one predictor: K (1, nnz) by its values on the pattern."""

    def __init__(self, pattern: Pattern, triangle: Triangle, gram: np.ndarray) -> None:
        self.pattern, self.triangle, self.gram = pattern, triangle, gram[0]
        self.own = pattern.added(self.gram)
        self.V = self.own.inverse_data()
        self.log_det = self.own.log_det - pattern.base.log_det
        self.trace = float(self.gram @ self.V)

    @property
    def log_det_rounding(self) -> float:
        return float(np.hypot(self.own.log_det_rounding, self.pattern.base.log_det_rounding))

    @property
    def spread(self) -> np.ndarray:
        return self.V[None, self.triangle.lower]

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


class LatentPrecision(Precision):
    """Q at given hyperparameters, on its pattern."""

    def __init__(self, pattern: Pattern, triangle: Triangle) -> None:
        self.pattern, self.triangle = pattern, triangle
        self.centre = np.zeros(pattern.shape[0])

    def times(self, mean: np.ndarray) -> np.ndarray:
        return np.asarray(self.pattern.Q @ mean)

    def norm(self, mean: np.ndarray) -> float:
        return float(mean[:, 0] @ (self.pattern.Q @ mean[:, 0]))

    def residual(self, mean: np.ndarray, adjoint: np.ndarray) -> float:
        r = self.times(mean)[:, 0] + adjoint[:, 0]
        return float(r @ self.pattern.base.solve(r))

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
        self.build, self.constraints = family.build, family.constraints
        self.theta, self.bounds, self._log_prior = family.theta, family.bounds, family.log_prior
        first = SparsePrecision(family.build(family.theta)[0], design=touched, constraints=family.constraints)
        self.pattern = first.pattern

    @cached_property
    def triangle(self) -> Triangle:
        """What of the pattern travels."""
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
        P, nothing = q.factor.pattern, sp.csr_array((1, q.mean.shape[0]))
        matrix = P.matrix(P.q + q.gram[0])
        return Posterior.of_prior(
            SparsePrecision(matrix, mean=q.mean[:, 0], design=nothing, constraints=self.constraints)
        )

    def unpacked(self, values: np.ndarray) -> np.ndarray:
        return values[..., self.triangle.both]
