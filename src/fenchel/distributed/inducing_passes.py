"""Gaussian processes of rows in partitions, through M inducing points: each partition makes its own features.

    eta = mean + G u + e,   u ~ N(0, I),   e ~ N(0, diag c)          ``priors/inducing.py``

The points and the kernel travel to the partitions, and matrices of the size of the points come back. At given theta the
fit is that of a linear model (``passes.py``). The slopes in theta are one more pass at its end. theta takes Newton's
steps within a trust region, with the curvature that a sample of the rows has. What the points cost is bounded as in
``inducing_loss.py``: its quadratic form alpha' (K - Q) alpha is an unbiased estimate from drawn rows, in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..cross_kernels import cross, variances
from ..hyperparameters.base import Learned
from ..hyperparameters.inducing_covariance import (
    InducingCovariance,
    point_slopes,
    products_at_optimum,
    row_slopes,
)
from ..hyperparameters.inducing_loss import ApproximationLoss
from ..hyperparameters.search import Step, TrustRegion
from ..likelihoods.base import Likelihood
from ..linalg.dense import NotPositiveDefinite
from ..linalg.machine import one_thread
from ..linalg.matrix_designs import Dense
from ..marginals import NormalMarginals
from ..priors.base import NewRows
from ..priors.inducing import FeatureRows, InducingPoints
from ..solvers.base import Callback, Stopping
from .approximation import Approximation, Learning
from .checkpoint import Checkpoint, FitState
from .linear_rows import LinearTable
from .partitions import Block, Sums
from .passes import FitOutcome, PartitionedProblem, solve
from .precision import PartitionedPrior, WeightPosterior, WeightPrecision
from .row_sums import At, Chunk, RowLosses, row_losses

MOST_STEPS = 12  # of theta
MOST_PASSES = 100  # of the fit at one theta
DRAWS = 1000  # rows that the estimate of what the points cost is made of
_SLOPE_TOL = 1e-9  # relative gap of a fit whose slopes lead to the next theta: they are off by the root of it
_SAMPLE_TOL = 1e-7  # relative gap of the fit of a sample, where all rows begin
_TINY = 1e-300


class WhitenedWeights(PartitionedPrior):
    """u ~ N(0, I) at every theta, which the features depend on. ``family`` holds the points and no other rows."""

    def __init__(self, family: InducingCovariance) -> None:
        self.family, self.theta, self.bounds = family, family.theta, family.bounds
        self.n_weights = len(family.points) + family.trend.size

    def at(self, theta: np.ndarray) -> WeightPrecision:
        return WeightPrecision(np.zeros(self.n_weights), np.ones(self.n_weights))

    def gradient(self, q: Approximation) -> np.ndarray:
        return np.zeros(q.theta.size)

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        return self.family.log_prior(theta)

    def posterior(self, q: Approximation) -> InducingWeightPosterior:
        return InducingWeightPosterior(q.mean, q.factor.spread)

    def unpacked(self, values: np.ndarray) -> np.ndarray:
        return 0.5 * (values + np.swapaxes(values, -1, -2))


class InducingWeightPosterior(WeightPosterior):
    """q(u), which also answers for eta at new rows."""

    def predict_mean(self, new: NewRows) -> np.ndarray:
        """(n,) or (n, C)."""
        return _shaped(np.asarray(new.design) @ self._mean + np.asarray(new.offset))

    def at(self, new: NewRows) -> NormalMarginals:
        """eta at new rows."""
        G = np.asarray(new.design)
        rho = np.stack([np.sum((G @ T) ** 2, axis=1) for T in self._roots], axis=1)
        rho = rho + np.reshape(np.asarray(new.extra_variance), (-1, 1))
        return NormalMarginals(self.predict_mean(new), _shaped(rho))


def _shaped(x: np.ndarray) -> np.ndarray:
    return np.asarray(x[:, 0] if x.shape[1] == 1 else x)


@dataclass(frozen=True)
class InducingReader:
    """Rows of a partition as features of the points.

    features : FeatureRows
        Of no rows: the kernel, the points and U.
    mean : array (1, C)
    labels : array or None
        What y are called, sorted: y is then their places.
    """

    table: LinearTable
    features: FeatureRows
    mean: np.ndarray
    likelihood: Likelihood
    labels: np.ndarray | None = None

    def inputs(self, block: Block) -> Iterator[tuple[np.ndarray, Chunk]]:
        """X of some rows, and these as a fit takes them."""
        for X, own, y, w in self.table.parts(block, self.likelihood, self.labels, self.features.shape[1]):
            G = self.features.at(X)[:]
            c = np.asarray(self.features.remainder(G, X))
            yield X, Chunk(Dense(G), own, y, w, self.mean, c)

    def chunks(self, block: Block) -> Iterator[Chunk]:
        for _, chunk in self.inputs(block):
            yield chunk


def kernel_slopes(block: Block, reader: InducingReader, at: At) -> Sums:
    """The rows' part of the slopes in theta, of one partition."""
    unexplained = [np.eye(len(T)) - T @ T.T for T in at.roots]
    total: Any = 0.0
    with np.errstate(all="ignore"), one_thread():
        for X, chunk in reader.inputs(block):
            local = row_losses(chunk, at)

            def adjoint(G: Any, local: RowLosses = local) -> Any:
                A = -(local.alpha @ at.mean.T)
                for lam, rest in zip(local.lam.T, unexplained, strict=True):
                    A += lam[:, None] * (G @ rest)
                return A

            total = total + row_slopes(reader.features, X, adjoint, local.lam.sum(axis=1))[0]
    return Sums(slopes=total)


def loss_sums(block: Block, reader: InducingReader, at: At, drawn: np.ndarray) -> Sums:
    """What the bound on the cost of the points adds up over the rows of one partition; ``drawn`` are inputs (n, D).

    spreads : sum of lam c, or without a dual of lam (2 c - v log(1 + c / v)), v = rho - c
    adjoint : G' alpha;   products : K(drawn, X) alpha;   noise : alpha_n^2 times white noise of the kernel
    """
    kernel, dual = reader.features.kernel, reader.likelihood.objective.convex
    out = Sums()
    with np.errstate(all="ignore"), one_thread():
        for X, chunk in reader.inputs(block):
            local, c = row_losses(chunk, at), np.asarray(chunk.extra_variance)[:, None]
            v = np.maximum(local.rho - c, _TINY)
            each = c if dual else 2.0 * c - v * np.log1p(c / v)
            out = out + Sums(
                spreads=float(np.sum(local.lam * each)),
                adjoint=np.asarray(chunk.design.adjoint(local.alpha)),
                products=np.asarray(cross(kernel, drawn, X)) @ local.alpha,
                noise=_white(kernel, X[:1]) * float(np.sum(local.alpha**2)),
            )
    return out


def _white(kernel: Any, x: np.ndarray) -> float:
    """The variance of a row that it shares with no other, itself seen again included."""
    return max(0.0, float(variances(kernel, x)[0] - cross(kernel, x, x)[0, 0]))


class InducingStart(NamedTuple):
    """What a sample of the rows says: the points, theta, its curvature, and the likelihood's own parameters."""

    points: np.ndarray
    theta: np.ndarray
    curvature: np.ndarray
    own: np.ndarray


@dataclass
class InducingPasses:
    """A process of partitioned rows.

    Attributes
    ----------
    rows : Partitions
    table : LinearTable
    family : InducingCovariance
        With the points, and no other rows.
    likelihood, labels : as of ``InducingReader``
    mean : array (1, C)
    own_bounds : array or None
        Where own parameters of the likelihood are learned: of y, their bounds are read from it.
    sample : dict
        Rows in memory that stand for all: X, y, weight, and what else rows have.
    tol : relative gap
    rise : nats that a further step of theta may promise
    """

    rows: Any
    table: LinearTable
    family: InducingCovariance
    likelihood: Likelihood
    labels: np.ndarray | None
    mean: np.ndarray
    learning: Learning
    sample: Any
    tol: float
    rise: float
    checkpoint: Checkpoint | None = None
    callback: Callback | None = None

    def at(self, theta: np.ndarray) -> PartitionedProblem:
        """The fit at theta."""
        prior: InducingPoints = self.family.at(theta)
        reader = InducingReader(self.table, prior.rows, self.mean, self.likelihood, self.labels)
        return PartitionedProblem(self.rows, reader, self.likelihood, WhitenedWeights(self.family), self.learning)

    def begin(self, theta: np.ndarray, own: np.ndarray) -> FitState:
        """At the fit of the sample."""
        task = self.at(theta)
        first = task.first()
        own = own if own.size else first.own
        first = Approximation(first.prior, theta, own, first.mean, first.gram, first.precision)
        few = replace(task, rows=self.sample)
        found = solve(few, FitState(first), Stopping(_SAMPLE_TOL, MOST_PASSES))
        return FitState(found.point.q if np.isfinite(found.point.elbo) else first)

    def run(self, start: InducingStart, learn_theta: bool) -> tuple[Learned, FitOutcome, PartitionedProblem]:
        """The best theta, and the fit there."""
        prior = WhitenedWeights(self.family)
        state = None if self.checkpoint is None else self.checkpoint.resume([prior])
        state = state or self.begin(start.theta, start.own)
        model, n = TrustRegion(prior.bounds), 0
        best: tuple[PartitionedProblem, FitOutcome, np.ndarray] | None = None
        remaining = 0.0
        for step in range(MOST_STEPS + 1):
            task, tol = self.at(state.q.theta), self.tol
            tol = min(tol, _SLOPE_TOL) if learn_theta else tol
            outcome = solve(task, state, Stopping(tol, MOST_PASSES, self.callback), self.checkpoint)
            n += outcome.n_iter
            if not learn_theta:
                best = task, outcome, np.zeros(start.theta.size)
                break
            slope = self.slopes(task, outcome)
            if best is not None:
                here, before = best[1].point, best[2]
                taken = Step(outcome.point.q.theta - here.q.theta, before - slope, start.curvature)
                model.update(taken, outcome.point.objective - here.objective)
            if best is None or outcome.point.objective > best[1].point.objective:
                best = task, outcome, slope
            q = best[1].point.q
            ahead = model.propose(q.theta, best[2], start.curvature)
            remaining = model.remaining_rise
            if remaining <= self.rise or step == MOST_STEPS or not model.radius > 1e-12:
                break
            state = FitState(self.carried(q, ahead))
        assert best is not None
        task, outcome, slope = best
        found = task.learned(outcome, self.tol, n)
        gradient = np.concatenate([slope, found.gradient[slope.size :]])
        converged = bool(found.converged and remaining <= max(self.rise, 0.0))
        return replace(found, gradient=gradient, converged=converged), outcome, task

    def carried(self, q: Approximation, theta: np.ndarray) -> Approximation:
        """q at another theta: the function at the points as it was, not its whitened weights."""
        U, ahead = (np.asarray(self.family.at(at).rows.U) for at in (q.theta, theta))
        M = len(U)
        T, back = np.eye(q.mean.shape[0]), np.eye(q.mean.shape[0])
        T[:M, :M] = U.T @ np.linalg.inv(ahead).T  # u before = T u after
        back[:M, :M] = ahead.T @ np.linalg.inv(U).T
        try:
            return Approximation(q.prior, theta, q.own, back @ q.mean, T.T @ q.gram @ T)
        except NotPositiveDefinite:
            return Approximation(q.prior, theta, q.own, q.mean, q.gram)

    def slopes(self, task: PartitionedProblem, outcome: FitOutcome) -> np.ndarray:
        """Of the objective in theta, where q is the best: one pass."""
        q, reader = outcome.point.q, task.reader
        prior, at = self.family.at(q.theta), q.at()
        left = [(c, c, np.eye(len(T)) - T @ T.T) for c, T in enumerate(at.roots)]
        total: Sums = self.rows.reduce(kernel_slopes, reader, at)
        B = products_at_optimum(at.mean, left, len(self.family.points))
        own = point_slopes(prior, B)
        return np.asarray(total["slopes"] + own + self.family.log_prior(q.theta)[1])

    def loss(self, task: PartitionedProblem, outcome: FitOutcome, rng: np.random.Generator) -> ApproximationLoss:
        """What the points cost: one pass.

        Rows are drawn from the sample by |alpha| sqrt(c), and each row of the sample stands for several: the standard
        error has a part of both.
        """
        q, reader, point = outcome.point.q, task.reader, outcome.point
        M, at, gap = len(self.family.points), q.at(), max(0.0, point.shortfall)
        if point.certificate == "stationarity":
            return ApproximationLoss.unknown(M, gap, "none")
        block = Block(self.sample.columns)
        block.number, block.n = 0, len(self.sample.columns["y"])
        parts = [(X, chunk, row_losses(chunk, at)) for X, chunk in reader.inputs(block)]  # type: ignore[attr-defined]
        X, G, alpha, c = (
            np.concatenate(each)
            for each in zip(*((X, k.design.toarray(), own.alpha, k.extra_variance) for X, k, own in parts), strict=True)
        )
        size = np.abs(alpha).sum(axis=1) * np.sqrt(c)
        p = (size + 1e-12 * size.mean() + _TINY) / (size + 1e-12 * size.mean() + _TINY).sum()
        some = rng.choice(len(p), DRAWS, p=p)
        sums: Sums = self.rows.reduce(loss_sums, reader, at, X[some])
        left = sums["products"] - G[some, :M] @ sums["adjoint"][:M]  # R alpha, but for white noise
        each = np.sum(alpha[some] * left, axis=1) / p[some]
        total = max(0.0, float(each.mean()) + sums["noise"])
        second = max(0.0, float(np.mean(each**2 * p[some])) - float(each.mean()) ** 2 / len(p))
        error = float(np.sqrt(each.var(ddof=1) / DRAWS + second))
        means, spreads = 0.5 * total, 0.5 * sums["spreads"]
        return ApproximationLoss(means + spreads + gap, 0.5 * error, means, spreads, gap, point.certificate, M)
