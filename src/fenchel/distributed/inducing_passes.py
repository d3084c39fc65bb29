"""Gaussian processes of rows in partitions, through M inducing points: each partition makes its own features.

    eta = mean + G u + e,   u ~ N(0, I),   e ~ N(0, diag c)          ``priors/inducing.py``

The points and the kernel travel to the partitions, and matrices of the size of the points come back. One pass at q and
theta brings what Newton's step in u needs (``passes.py``) and the slopes in theta at that q,

    slope = <A U', dK_NM> - 1/2 lam' d diag(K) - 1/2 <U B U', dK_MM>,    A = -alpha m' + Lam G (I - V),   B = G' A

so that each pass may move both. Where they move to is found in memory (``theta_surrogate.py``). Where the next step of theta
promises little, passes at that theta bring q to its optimum. The last pass evaluates q after one more step, and what the
points cost as in ``inducing_loss.py``: its quadratic form alpha' (K - Q) alpha is an unbiased estimate from drawn rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..hyperparameters.base import Learned
from ..hyperparameters.inducing_covariance import InducingCovariance
from ..hyperparameters.inducing_loss import ApproximationLoss
from ..likelihoods.base import Likelihood
from ..linalg.dense import NotPositiveDefinite
from ..priors.inducing import InducingPoints
from ..solvers.base import Callback, Stopping
from .approximation import Approximation, EvaluatedApproximation, Learning, QuadraticModel
from .checkpoint import Checkpoint, FitState
from .inducing_row_sums import InducingReader, WhitenedWeights, inducing_sums, with_slopes
from .linear_rows import LinearTable
from .partitions import Block, InMemory, Sums
from .passes import FitOutcome, PartitionedProblem, is_better, solve
from .row_sums import row_losses
from .theta_surrogate import SAMPLE_PASSES, SAMPLE_TOL, ThetaSurrogate

THETA_PASSES = 30  # of the search for theta
MOST_PASSES = 100  # of the fit at one theta
FIRST_RADIUS = 2.0  # log units: how far theta goes between two passes
LEAST_RADIUS = 1e-3  # log units: where a search ends whose steps fail
UNSURE = 0.02  # of the rise that q's own step promises: theta's promise may be off by as much
DRAWS = 1000  # rows that the estimate of what the points cost is made of
_TINY = 1e-300


class InducingStart(NamedTuple):
    """What a sample of the rows says: the points, theta, and the likelihood's own parameters."""

    points: np.ndarray
    theta: np.ndarray
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
    learning : Learning
        Of the likelihood's own parameters.
    sample : InMemory
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
    sample: InMemory
    tol: float
    rise: float
    checkpoint: Checkpoint | None = None
    callback: Callback | None = None

    def at(self, theta: np.ndarray) -> PartitionedProblem:
        """The fit at theta."""
        prior: InducingPoints = self.family.at(theta)
        reader = InducingReader(self.table, prior.rows, self.mean, self.likelihood, self.labels)
        return PartitionedProblem(self.rows, reader, self.likelihood, WhitenedWeights(self.family), self.learning)

    def begin(self, start: InducingStart) -> FitState:
        """At the fit of the sample."""
        task = replace(self.at(start.theta), rows=self.sample)
        first = task.first()
        own = start.own if start.own.size else first.own
        first = Approximation(first.prior, start.theta, own, first.mean, first.gram, first.precision)
        found = solve(task, FitState(first), Stopping(SAMPLE_TOL, SAMPLE_PASSES))
        return FitState(found.point.q if np.isfinite(found.point.elbo) else first)

    def run(self, start: InducingStart, learn_theta: bool) -> tuple[Learned, ApproximationLoss]:
        """The best theta with the fit there, and what the points cost."""
        prior = WhitenedWeights(self.family)
        state = None if self.checkpoint is None else self.checkpoint.resume([prior])
        state = state or self.begin(start)
        slope, remaining, n = np.zeros(start.theta.size), 0.0, 0
        if learn_theta:
            slope, state, remaining, n = self.best_theta(state)
        task = self.at(state.q.theta)
        stopping = Stopping(self.tol, MOST_PASSES, self.callback)
        outcome, loss = self.finished(task, solve(task, state, stopping, self.checkpoint), stopping)
        found = task.learned(outcome, self.tol, n + outcome.n_iter)
        gradient = np.concatenate([slope, found.gradient[slope.size :]])
        converged = bool(found.converged and remaining <= max(self.rise, 0.0))
        return replace(found, gradient=gradient, converged=converged), loss

    def best_theta(self, state: FitState) -> tuple[np.ndarray, FitState, float, int]:
        """The slopes at the best theta, q there, the nats that another step promises, and the passes that it took."""
        best: ThetaSurrogate | None = None
        q, curvature, radius, n = state.q, None, FIRST_RADIUS, 0
        slope, remaining, ahead = np.zeros(q.theta.size), np.inf, q
        for n in range(1, THETA_PASSES + 1):
            point, there = with_slopes(self.at(q.theta), q)
            if self.checkpoint is not None and n == 1 and state.elbo is not None:
                self.checkpoint.check_rows(state.elbo, point.elbo)
            if best is None or point.objective >= best.point.objective - point.rounding:
                if not np.isfinite(point.elbo):
                    break
                best = ThetaSurrogate(self.at, self.sample, point, there)
                curvature = best.curvature() if curvature is None else curvature
                radius = min(FIRST_RADIUS, 2.0 * radius)
                if self.checkpoint is not None:
                    self.checkpoint.save(FitState(q, elbo=point.elbo))
            else:
                radius = 0.25 * min(radius, float(np.abs(q.theta - best.point.q.theta).max()))
            found = best.maximum(curvature, radius, self.rise)
            slope, ahead = best.start.slope, best.start.q
            remaining = found.value - best.start.value
            promise = remaining + UNSURE * max(0.0, best.start.value - best.point.objective)
            if promise <= self.rise or radius < LEAST_RADIUS:
                break
            q = found.q
        return slope, FitState(ahead), remaining, n

    def finished(
        self, task: PartitionedProblem, outcome: FitOutcome, stopping: Stopping
    ) -> tuple[FitOutcome, ApproximationLoss]:
        """The fit after one more step, and what the points cost: one pass, or two where that step is worse."""
        point = outcome.point
        if point.certificate == "stationarity":
            return outcome, ApproximationLoss.unknown(len(self.family.points), max(0.0, point.shortfall), "none")
        try:
            ahead = self.learning.moved(point.q, QuadraticModel(point, self.learning).step()[0])
        except NotPositiveDefinite:
            ahead = point.q
        further, loss = self.with_loss(task, ahead, np.random.default_rng(0))
        if not is_better(further, point):
            return outcome, self.with_loss(task, point.q, np.random.default_rng(0))[1]
        n = outcome.n_iter + 1
        ending = stopping.record(n, further, 1.0) or outcome.ending
        return replace(outcome, point=further, n_iter=n, ending=ending), loss

    def with_loss(
        self, task: PartitionedProblem, q: Approximation, rng: np.random.Generator
    ) -> tuple[EvaluatedApproximation, ApproximationLoss]:
        """What the rows say of q, and what the points cost: one pass.

        Rows are drawn from the sample by |alpha| sqrt(c), and each row of the sample stands for several: the standard
        error has a part of both.
        """
        reader: Any = task.reader
        M, at = len(self.family.points), q.at()
        block = Block(self.sample.columns)
        block.number, block.n = 0, len(self.sample.columns["y"])
        parts = [(X, chunk, row_losses(chunk, at)) for X, _, chunk in reader.inputs(block)]
        X, G, alpha, c = (
            np.concatenate(each)
            for each in zip(*((X, k.design.toarray(), own.alpha, k.extra_variance) for X, k, own in parts), strict=True)
        )
        size = np.abs(alpha).sum(axis=1) * np.sqrt(c)
        p = (size + 1e-12 * size.mean() + _TINY) / (size + 1e-12 * size.mean() + _TINY).sum()
        some = rng.choice(len(p), DRAWS, p=p)
        sums: Sums = self.rows.reduce(inducing_sums, reader, at, self.learning.own is not None, False, X[some])
        products, noise, spreads = (sums.pop(key) for key in ("products", "noise", "spreads"))
        point = task.judged(q, sums)
        left = products - G[some, :M] @ sums["adjoint"][:M]  # R alpha, but for white noise
        each = np.sum(alpha[some] * left, axis=1) / p[some]
        total = max(0.0, float(each.mean()) + noise)
        second = max(0.0, float(np.mean(each**2 * p[some])) - float(each.mean()) ** 2 / len(p))
        error = float(np.sqrt(each.var(ddof=1) / DRAWS + second))
        means, gap = 0.5 * total, max(0.0, point.shortfall)
        cost = means + 0.5 * spreads
        loss = ApproximationLoss(cost + gap, 0.5 * error, means, 0.5 * spreads, gap, point.certificate, M)
        return point, loss
