"""Sparse latents fitted to rows in partitions: the passes of ``fenchel.distributed`` on the pattern of Q and A'A.

    eta = A z + offset,   z ~ N(0, Q(theta)^-1),   q(z) = N(m, V),   V^-1 = Q + K
    a pass: F, A' alpha, K+ = A' Lam A, H = A' (d2f/dh2) A         matrices by their values on one pattern
    KL[q || p] = 1/2 (log|Q + K| - log|Q| - tr K V + m' Q m)
    D - P = 1/2 r' Q^-1 r + 1/2 (tr V E - log|Q + K+| + log|Q + K|),      r = Q m + A' alpha,  E = K+ - K

Without a dual the second term is 1/2 tr E V E Q^-1 (``primal.py``), which (1 + tr Q^-1 K) tr E V E V bounds, for
Q^-1 <= (1 + tr Q^-1 K) V. Rows need V on the pattern alone: every pair of latents that a row touches is in it. What
travels is of the size of the pattern's lower triangle, whatever the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from ..distributed.evaluation import At, evaluate
from ..distributed.solver import PartitionedProblem
from ..distributed.steps import Learning, Move
from ..distributed.sums import Sums
from ..linalg.dense import NotPositiveDefinite
from ..linalg.design import Design
from ..linalg.factorisation import Factorisation
from ..linalg.pairs import TrianglePairs
from ..linalg.sparse import symmetric_csc
from ..priors.base import EPS
from ..priors.sparse import SparsePrecision
from ..priors.sparsity import Pattern

Log = Callable[[np.ndarray], tuple[float, np.ndarray]]

_START = 1e4  # how much narrower than the prior the first q is: rows are then seen at its mean
_ARM, _STRIDE = 4.0, 2.0  # e-folds that theta, and the likelihood's own parameters, may go in one pass
_SUMS, _LOG_DET = 4.0, 8.0  # root mean squares of rounding allowed for, as in ``rounding.py``


class PatternDesign(Design):
    """Rows A (n, L), sparse, columns ascending; matrices over the latents are symmetric and vectors of their values on
    the lower triangle of a pattern, given as a csc matrix has it.
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


@dataclass(frozen=True)
class SparsePrior:
    """z ~ N(0, Q(theta)^-1) on a pattern that also holds A'A.

    Attributes
    ----------
    build : theta -> Q and its derivatives
    theta, bounds : where it starts and may lie
    log_prior : of theta, with its gradient
    pattern : Pattern, at ``theta``
    """

    build: Callable[[np.ndarray], tuple[Any, list[Any]]]
    theta: np.ndarray
    bounds: np.ndarray
    log_prior: Log
    pattern: Pattern

    @classmethod
    def of(cls, family: Any, touched: sp.csr_array) -> SparsePrior:
        """Of a ``StackedField``; ``touched`` has a row for each set of latents that rows of the data touch together."""
        prior = SparsePrecision(family.build(family.theta)[0], design=touched, constraints=family.constraints)
        return cls(family.build, family.theta, family.bounds, family.log_prior, prior.pattern)

    @cached_property
    def triangle(self) -> Triangle:
        """What of the pattern travels."""
        return Triangle(self.pattern.indptr, self.pattern.indices)

    def at(self, theta: np.ndarray) -> Pattern:
        """The pattern with the values of Q. Raises NotPositiveDefinite."""
        return self.pattern.reweighted(symmetric_csc(self.build(theta)[0]))

    def gradient(self, theta: np.ndarray, prior: np.ndarray, V: np.ndarray, m: np.ndarray) -> np.ndarray:
        """d(-KL)/d theta: 1/2 tr (Q^-1 - V - m m') dQ, by values on the pattern."""
        P = self.pattern
        inner = 0.5 * (prior - V - m[P.indices] * m[P.owners])
        return np.array([float(P.entries(slope) @ inner) for slope in self.build(theta)[1]])


class LatentQ:
    """q(z) = N(m, (Q + K)^-1) at given hyperparameters. Raises NotPositiveDefinite."""

    def __init__(
        self, prior: SparsePrior, theta: np.ndarray, own: np.ndarray, mean: np.ndarray, gram: np.ndarray
    ) -> None:
        self.prior, self.theta, self.own, self.mean, self.gram = prior, theta, own, mean, gram
        self.pattern = prior.at(theta)
        self.factor: Factorisation = self.pattern.added(gram[0])
        self.V = self.factor.inverse_data()
        self.log_det = self.factor.log_det - self.pattern.base.log_det
        self.norm = float(mean[:, 0] @ (self.pattern.Q @ mean[:, 0]))
        self.kl = 0.5 * (self.log_det - float(gram[0] @ self.V) + self.norm)

    def at(self) -> At:
        """Where rows are to be evaluated."""
        return At(self.mean, self.V[None, self.prior.triangle.lower], self.own)

    def flat(self, move: Move) -> np.ndarray:
        """A move in units of q's own spread."""
        P, sd = self.pattern, np.sqrt(self.factor.inverse_diagonal())
        size = np.sqrt(self.mean.shape[0] / 2.0)
        K = move.gram[0] * sd[P.indices] * sd[P.owners] / np.sqrt(2.0)
        return np.concatenate([move.mean[:, 0] / np.maximum(sd, 1e-300), K, size * move.theta, size * move.own])


class EvaluatedLatents:
    """q with what the rows said of it; attributes as of ``distributed.weights.Evaluated``."""

    measure = "relative gap"

    def __init__(self, q: LatentQ, said: Sums, convex: bool, log_concave: bool, log_prior: float) -> None:
        self.q, self.said, self.convex = q, said, convex
        self.elbo = -q.kl - said["value"]
        self.elbo = self.elbo if np.isfinite(self.elbo) else -np.inf
        self.objective = self.elbo + log_prior
        self.certificate = "duality" if convex else "strong-concavity" if log_concave else "stationarity"
        if self.certificate == "stationarity":
            self.measure = "relative distance from stationarity"
        self.gap = self.shortfall if log_concave or convex else np.inf
        self.dual = self.elbo + self.gap if np.isfinite(self.elbo) else np.inf
        self.log_evidence = self.elbo

    @cached_property
    def shortfall(self) -> float:
        """What is missing to the best q, or a bound on it."""
        if not np.isfinite(self.elbo):
            return np.inf
        q, P = self.q, self.q.pattern
        r, E = P.Q @ q.mean[:, 0] + self.said["adjoint"][:, 0], self.said["gram"][0] - q.gram[0]
        total = float(r @ P.base.solve(r))
        try:
            if self.convex:
                total += max(0.0, float(q.V @ E) - P.added(self.said["gram"][0]).log_det + q.factor.log_det)
            else:
                wide = 1.0 + float(q.gram[0] @ P.base.inverse_data())
                total += max(0.0, wide * float(E @ q.factor.sandwich(E)))
        except NotPositiveDefinite:
            return np.inf
        return 0.5 * total if total == total else np.inf

    @property
    def rounding(self) -> float:
        """How far rounding may have moved the elbo, as in ``rounding.py``."""
        if not np.isfinite(self.elbo):
            return np.inf
        sums = EPS * (float(self.said["square"]) + self.elbo**2 + self.q.norm**2) ** 0.5
        parts = self.q.factor.log_det_rounding**2 + self.q.pattern.base.log_det_rounding**2
        return float(_SUMS * sums + _LOG_DET * parts**0.5)


@dataclass(frozen=True)
class LatentProblem(PartitionedProblem):
    """A likelihood, a sparse prior, and rows in partitions; ``prior`` is a ``SparsePrior``."""

    def evaluated(self, trials: list[Any]) -> list[Any]:
        points = tuple(q.at() for q in trials)
        said: Sums = self.rows.reduce(evaluate, self.reader, points, self.learning.own is not None)
        prior: Any = self.prior
        both, bound = prior.triangle.both, self.likelihood.objective
        each = [said[str(k)] for k in range(len(trials))]
        each = [Sums(part | {key: part[key][..., both] for key in ("gram", "curvature")}) for part in each]
        return [
            EvaluatedLatents(q, part, bound.convex, bound.log_concave, self.learning.log_prior(q))
            for q, part in zip(trials, each, strict=True)
        ]

    def first(self) -> Any:
        prior: Any = self.prior
        own = self.likelihood.theta if self.learning.own is not None else np.zeros(0)
        Q = prior.pattern.entries(prior.pattern.Q)
        return LatentQ(prior, prior.theta, own, np.zeros((prior.pattern.shape[0], 1)), _START * Q[None])

    def step(self, point: Any) -> tuple[Move, np.ndarray]:
        q, rows = point.q, StandIn(point, self.learning)
        theta, slopes = rows.best() if self.learning.theta and q.theta.size else (q.theta, np.zeros(0))
        dm, own = rows.moved(theta)
        slopes = slopes if self.learning.own is None else np.append(slopes, rows.own_slope)
        return Move(dm[:, None], point.said["gram"] - q.gram, theta - q.theta, own), slopes

    def moved(self, q: Any, move: Move) -> Any:
        theta, own = q.theta + move.theta, q.own + move.own
        theta = np.clip(theta, *q.prior.bounds.T) if theta.size else theta
        own = own if self.learning.own is None else np.clip(own, *self.learning.own_bounds.T)
        return LatentQ(q.prior, theta, own, q.mean + move.mean, q.gram + move.gram)


class StandIn:
    """The parabola in the means that stands for the rows seen from q, and constant K+ in the precision.

    dm and do are changes of the means and of the likelihood's own parameters, X is how A' alpha moves with the latter:

        J = max_{dm, do} [ -1/2 (m + dm)' Q (m + dm) - dm' a - 1/2 dm' H dm + do' g - 1/2 do' C do - do' X dm ]
            - 1/2 log|Q + K+| + 1/2 log|Q| + log p(theta)
    """

    def __init__(self, point: EvaluatedLatents, learning: Learning) -> None:
        self.q, said, self.learning = point.q, point.said, learning
        self.m, self.a = self.q.mean[:, 0], said["adjoint"][:, 0]
        self.H, self.K = said["curvature"][0, 0], said["gram"][0]
        self.own_slope, self.X = np.zeros(self.q.own.size), np.zeros((0, self.m.size))
        self.C = np.zeros((0, 0))
        if learning.own is not None:
            self.own_slope = said["own_slope"] + learning.own.log_prior(self.q.own)[1]
            self.X, self.C = said["own_cross"], _definite(said["own_curvature"])

    def _solver(self, pattern: Pattern) -> Callable[[np.ndarray], np.ndarray]:
        """(Q + H)^-1, or with K+ in the place of H where rows bend the wrong way."""
        try:
            return pattern.added(self.H).solve
        except NotPositiveDefinite:
            return pattern.added(self.K).solve

    def solved(self, pattern: Pattern, held: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, float]:
        """dm, do and the value of the parabola there; do as it is ``held``, where it is."""
        solve, r = self._solver(pattern), pattern.Q @ self.m + self.a
        do = held
        if do is None:
            S = self.C - self.X @ solve(self.X.T) if self.C.size else self.C
            S = S if self.C.size == 0 or np.linalg.eigvalsh(S)[0] > 0.0 else self.C
            do = np.linalg.solve(S, self.own_slope + self.X @ solve(r)) if self.C.size else np.zeros(0)
        dm = -solve(r + self.X.T @ do)
        after = self.m + dm
        value = -0.5 * float(after @ (pattern.Q @ after)) - float(dm @ self.a)
        value += float(do @ (self.own_slope - self.X @ dm)) - 0.5 * float(do @ self.C @ do)
        return dm, do, value - 0.5 * float(dm @ (pattern.matrix(self.H) @ dm))

    def value(self, theta: np.ndarray, held: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """J and its slopes."""
        prior = self.q.prior
        pattern = prior.at(theta)
        dm, _, value = self.solved(pattern, held)
        there = pattern.added(self.K)
        log_prior, slope = prior.log_prior(theta)
        J = value - 0.5 * (there.log_det - pattern.base.log_det) + log_prior
        gradient = prior.gradient(theta, pattern.base.inverse_data(), there.inverse_data(), self.m + dm)
        return J, gradient + slope

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """The best theta within an arm's length, and the slopes at the present one, q as it is."""
        q, bounds = self.q, self.q.prior.bounds
        log_slope = q.prior.log_prior(q.theta)[1]
        slopes = q.prior.gradient(q.theta, q.pattern.base.inverse_data(), q.V, self.m) + log_slope
        try:
            ahead = self.value(q.theta)[1]
        except NotPositiveDefinite:
            return q.theta, slopes
        near = np.clip(np.stack([q.theta - _ARM, q.theta + _ARM], axis=1), *bounds.T[:, :, None])
        scale = 1.0 / max(1.0, float(np.linalg.norm(ahead)))  # its first step is then one e-fold at most

        def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
            J, gradient = self.value(theta)
            return -scale * J, -scale * gradient

        options = {"ftol": 1e-15, "gtol": 1e-9 * scale, "maxiter": 100}
        found = minimize(negative, q.theta, jac=True, method="L-BFGS-B", bounds=near, options=options)
        return np.asarray(found.x), slopes

    def moved(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """dm, and how the likelihood's own parameters move with it, within their bounds."""
        pattern, q = self.q.prior.at(theta), self.q
        dm, own, _ = self.solved(pattern)
        if self.learning.own is None:
            return dm, own
        held = np.clip(own, -_STRIDE, _STRIDE)
        held = np.clip(q.own + held, *self.learning.own_bounds.T) - q.own
        return (dm, own) if np.array_equal(held, own) else (self.solved(pattern, held)[0], held)


def _definite(C: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(0.5 * (C + C.T))
    size = np.maximum(np.abs(values), 1e-12 * max(1.0, float(np.abs(values).max(initial=0.0))))
    return np.asarray((vectors * size) @ vectors.T)
