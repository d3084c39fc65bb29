"""Gaussian processes of rows in partitions, through M inducing points: each partition makes its own features.

    eta = mean + G u + e,   u ~ N(0, I),   e ~ N(0, diag c)          ``priors/inducing.py``

The points and the kernel travel to the partitions, and matrices of the size of the points come back. One pass at q and
theta brings what Newton's step in u needs (``passes.py``) and the slopes in theta at that q,

    slope = <A U', dK_NM> - 1/2 lam' d diag(K) - 1/2 <U B U', dK_MM>,    A = -alpha m' + Lam G (I - V),   B = G' A

so that each pass may move both: theta by Newton's steps within a trust region, as soon as q's own step promises little
beside that of theta. The curvature in theta, and how q goes with it, are those of a sample in memory
(``theta_response.py``). Where the next step of theta promises little, passes at that theta bring q to its optimum. The
last pass evaluates q after one more step, and what the points cost as in ``inducing_loss.py``: its quadratic form
alpha' (K - Q) alpha is an unbiased estimate from drawn rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..hyperparameters.base import Learned, SearchEnding
from ..hyperparameters.inducing_covariance import InducingCovariance
from ..hyperparameters.inducing_loss import ApproximationLoss
from ..hyperparameters.search import NEAR_FIRST_STEP, Step, TrustRegion
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
from .theta_response import SAMPLE_PASSES, SAMPLE_TOL, ThetaResponse, same_function, theta_response

THETA_PASSES = 20  # of the search for theta
MOST_PASSES = 100  # of the fit at one theta
SETTLED = 0.01  # of the rise that theta promises: q's own step may promise as much where slopes in theta are read
TWICE = 2.0  # times what q's step promises: where a theta stays below the best one even so, it is left
_SETTLED_TOL = 1e-9  # relative gap of a fit by passes whose Newton steps went too far
_NEAR = 1e-4  # log units: between two whitenings
DRAWS = 1000  # rows that the estimate of what the points cost is made of
_TINY = 1e-300


class InducingStart(NamedTuple):
    """What a sample of the rows says: the points, theta, and the likelihood's own parameters."""

    points: np.ndarray
    theta: np.ndarray
    own: np.ndarray


class ThetaPoint(NamedTuple):
    """theta as a pass at q sees it.

    ahead : q after Newton's step
    value : the objective that this step promises
    slope : of the best objective at theta
    """

    point: EvaluatedApproximation
    ahead: Approximation
    value: float
    slope: np.ndarray


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
    n_rows : int
        Of all partitions.
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
    n_rows: int
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
        """At the fit of the sample, each row counted once: its mean, and as much precision as all rows have."""
        columns, n = self.sample.columns, len(self.sample.columns["y"])
        share = n / self.n_rows
        task = self.at(start.theta)
        first = task.first()
        own = start.own if start.own.size else first.own
        first = Approximation(first.prior, start.theta, own, first.mean, first.gram, first.precision)
        once = replace(self.sample, columns=columns | {"weight": share * columns["weight"]})
        found = solve(replace(task, rows=once), FitState(first), Stopping(SAMPLE_TOL, SAMPLE_PASSES)).point
        if not np.isfinite(found.elbo):
            return FitState(first)
        q = found.q
        return FitState(Approximation(q.prior, q.theta, q.own, q.mean, q.gram / share))

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
        allowed = max(self.rise, 0.0)
        if found.converged and not remaining <= allowed:
            said = "the rise (nats) that another step of the hyperparameters promises is"
            ending = SearchEnding("max_iter", said, remaining, allowed, search=f"{n} passes", fit=found.ending)
            found = replace(found, ending=ending, converged=False)
        return replace(found, gradient=gradient), loss

    def best_theta(self, state: FitState) -> tuple[np.ndarray, FitState, float, int]:
        """The slopes at the best theta, q there, the nats that another step promises, and the passes that it took."""
        model, passes, before = TrustRegion(WhitenedWeights(self.family).bounds), self.rows.passes, self.rows.passes[0]
        best = self.settled(state.q, None, self.rise, state.elbo)
        if not np.isfinite(best.value):
            return best.slope, state, np.inf, passes[0] - before
        response, model.radius = theta_response(self.at, self.sample, best.point), NEAR_FIRST_STEP
        best = best._replace(slope=self.slopes(best.point, best.slope, response))
        while passes[0] - before < THETA_PASSES:
            theta = model.propose(best.ahead.theta, best.slope, response.curvature)
            if model.remaining_rise <= self.rise or not model.radius > 1e-12:
                break
            enough = max(SETTLED * model.promised_rise, 0.1 * self.rise)
            here = self.settled(response.moved(best.ahead, theta), response, enough, least=best.value)
            taken = Step(theta - best.ahead.theta, best.slope - here.slope, response.curvature)
            model.update(taken, here.value - best.value)
            best = here if here.value > best.value else best
        return best.slope, FitState(best.ahead), model.remaining_rise, passes[0] - before

    def settled(
        self,
        q: Approximation,
        response: ThetaResponse | None,
        enough: float,
        elbo: float | None = None,
        least: float = -np.inf,
    ) -> ThetaPoint:
        """theta of q after passes that leave ``enough`` nats to Newton's step of q, or show it to be below ``least``.

        ``elbo`` is what a checkpoint says of q.
        """
        task, last = self.at(q.theta), None
        while True:
            point, slope = with_slopes(task, q)
            if self.checkpoint is not None and elbo is not None:
                self.checkpoint.check_rows(elbo, point.elbo)
            elbo = None
            if not np.isfinite(point.elbo):
                return ThetaPoint(point, q, -np.inf, slope)
            if last is not None and point.objective < last.objective - last.rounding:  # Newton's step went too far
                stopping = Stopping(_SETTLED_TOL, MOST_PASSES, self.callback)
                q, last = solve(task, FitState(last.q), stopping).point.q, None
                continue
            if self.checkpoint is not None:
                self.checkpoint.save(FitState(q, elbo=point.elbo))
            model = QuadraticModel(point, self.learning)
            promise = model.promised_rise()
            try:
                ahead = self.learning.moved(q, model.step()[0])
            except NotPositiveDefinite:
                ahead, promise = q, 0.0
            if not promise > enough or point.objective + TWICE * promise < least:
                slope = slope if response is None else self.slopes(point, slope, response)
                return ThetaPoint(point, ahead, point.objective + promise, slope)
            q, last = ahead, point

    def slopes(self, point: EvaluatedApproximation, slope: np.ndarray, response: ThetaResponse) -> np.ndarray:
        """Of the best objective at theta: along the changes of q with it, to first order in what q is off its best."""
        model, q = QuadraticModel(point, self.learning), point.q
        out = slope.copy()
        for i, change in enumerate(response.changes):
            near = same_function(q, q.theta + _NEAR * np.eye(q.theta.size)[i]).place.plus(q.place, -1.0)
            out[i] += model.slope_along(change.plus(near, 1.0 / _NEAR))
        return out

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
