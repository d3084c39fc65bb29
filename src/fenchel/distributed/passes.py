"""The fit of partitioned rows: passes over them, each of which is one iteration.

    q, theta  ->  a pass: F, W' alpha, W' Lam W, W' H W  ->  the next q, theta (``approximation.py``)  ->  ...

A step is whole unless the elbo falls; then shorter ones are evaluated together, in one more pass. With many rows to a
weight a pass takes a share of the order of the posterior variance of eta off the error, so that four or five suffice
from the start that a sample of the rows gives. The certificate comes with every pass. Hyperparameters move with q, pass
by pass, so that learning costs hardly more passes than a fit.

A fit may have several stages: problems that differ in the prior, each started where the last one ended, while their
evidence rises. A variance for each weight ("ard") is ridge first, then width by width as in
``hyperparameters/weights.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ..files import searched
from ..hyperparameters.base import Found, Learned, SearchEnding, entries_at_bounds
from ..hyperparameters.weights import LOST
from ..likelihoods.base import Likelihood
from ..linalg.dense import NotPositiveDefinite
from ..solvers.base import Callback, Ending, Stopping, Trace
from .approximation import (
    Approximation,
    ApproximationStep,
    EvaluatedApproximation,
    Learning,
    PartitionedSolution,
    QuadraticModel,
    StepHistory,
)
from .checkpoint import Checkpoint, FitState
from .partitions import Sums
from .row_sums import Reader, evaluate

_SHORTER = ((0.5, 0.125), (0.03, 3e-3, 1e-4))  # lengths of the plain step that are evaluated together in one pass
_START = 1e4  # ratio of the first q's precision to the prior's; rows are then seen at the mean of q
GTOL = 1e-4  # nats a log unit: slopes of hyperparameters below it count as 0
_FLAT = 3  # passes without improvement after which a fit ends
_SAMPLE_TOL = 1e-7  # relative gap of the fit of a sample
_SAMPLE_PASSES = 60  # iterations of the same; it then starts the fit as it is
_MOST_PASSES = 200  # iterations of one stage; it then ends without converging
HELD_SLOPE = 1e-3  # nats a log unit: a larger slope at a bound means that the bound decides


class Reduces(Protocol):
    """What gives sums over rows: ``Partitions``, or ``InMemory`` for one of them."""

    def reduce(self, work: Callable[..., Any], *given: Any) -> Any: ...


@dataclass
class FitOutcome:
    """Where a fit ended; ``slopes`` are those left in what was learned."""

    point: EvaluatedApproximation
    ending: Ending
    n_iter: int
    trace: Trace
    slopes: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class PartitionedProblem:
    """A likelihood, a prior of the weights, and rows in partitions.

    Attributes
    ----------
    rows : Partitions
    reader : Reader
        Makes a design, y, weights and offsets of one partition.
    likelihood : Likelihood
        Without the parameters of its rows, which the reader adds.
    prior : PartitionedPrior
    learning : Learning
        Which hyperparameters are learned.
    score : callable, optional
        Of an ``FitOutcome``: the evidence by which this problem is compared with others.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from fenchel.distributed import Chunk, Partitions, PartitionedProblem, FitState, solve
    >>> from fenchel.distributed.precision import GroupedVariances
    >>> from fenchel.hyperparameters import WeightVariances
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.linalg.matrix_designs import array_design
    >>> from fenchel.solvers.base import Stopping
    >>> class Reader:
    ...     def chunks(self, block):
    ...         yield Chunk(array_design(block["X"]), Poisson(), block["y"])
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> y = np.round(np.exp(X @ [0.5, 1.0]))
    >>> rows = Partitions.of("mine", X=da.from_array(X, chunks=(300, 2)), y=y)
    >>> prior = GroupedVariances(WeightVariances(np.zeros((1, 2)), groups=[-1, -1]))  # fixed variances
    >>> task = PartitionedProblem(rows, Reader(), Poisson(), prior)
    >>> found = solve(task, FitState(task.first()), Stopping(1e-10, 50))
    >>> found.ending.reached, bool(abs(found.point.q.mean[1, 0] - 1.0) < 0.05)
    (True, True)
    """

    rows: Any
    reader: Reader
    likelihood: Likelihood
    prior: Any
    learning: Learning = Learning()  # noqa: RUF009
    score: Callable[[FitOutcome], float] | None = None

    def evaluated(self, trials: list[Approximation]) -> list[EvaluatedApproximation]:
        """What the rows say of each of them: one pass."""
        points, own = tuple(q.at() for q in trials), self.learning.own is not None
        found: Sums = self.rows.reduce(evaluate, self.reader, points, own)
        return [self.judged(q, found[str(k)]) for k, q in enumerate(trials)]

    def judged(self, q: Approximation, sums: Sums) -> EvaluatedApproximation:
        """q with the sums of a pass."""
        for key in ("gram", "curvature"):
            sums[key] = self.prior.unpacked(sums[key])
        return EvaluatedApproximation(q, sums, self.likelihood.objective, self.learning.log_prior(q))

    def restored(self, q: dict[str, np.ndarray], sums: dict[str, Any]) -> EvaluatedApproximation:
        """The iterate of a fit from its numbers: q and the sums of a pass there."""
        first = self.first()
        (L, C), gram = first.mean.shape, first.gram.shape
        own = (self.likelihood.theta.size,) if np.size(q["own"]) else (0,)
        expected = [(L, C), gram, first.theta.shape, own, (L, C), gram, (C, *gram)]
        given = [
            *(q[name] for name in ApproximationStep._fields),
            *(sums[name] for name in ("adjoint", "gram", "curvature")),
        ]
        if [np.asarray(value, dtype=np.float64).shape for value in given] != expected:
            raise ValueError("the numbers of a fit have another shape than its latents")
        place = Approximation(self.prior, q["theta"], q["own"], q["mean"], q["gram"])
        return EvaluatedApproximation(place, Sums(sums), self.likelihood.objective, self.learning.log_prior(place))

    def first(self) -> Approximation:
        """Where a fit begins without a better start: at the prior's mean, narrow."""
        theta, C = self.prior.theta, self.likelihood.n_predictors
        theta = np.clip(theta, *self.prior.bounds.T) if self.learning.theta else theta
        own = self.likelihood.theta if self.learning.own is not None else np.zeros(0)
        precision = self.prior.at(theta)
        mean = np.repeat(precision.centre[:, None], C, axis=1)
        return Approximation(self.prior, theta, own, mean, _START * precision.entries(C), precision)

    def learned(self, outcome: FitOutcome, tol: float, n: int) -> Learned:
        """Where ``n`` passes that learn theta beside q ended, as ``hyperparameters.learn`` returns it."""
        point, q, learning, family = outcome.point, outcome.point.q, self.learning, self.prior.family
        likelihood = self.likelihood.with_theta(q.own) if q.own.size else self.likelihood
        solution = PartitionedSolution(outcome, likelihood, tol, self.rows.passes[0])
        theta, cut, slopes = np.append(q.theta, q.own), q.theta.size, np.zeros(q.theta.size + q.own.size)
        objective, converged, ending = solution.elbo, solution.optimal, solution.ending
        at_bounds: dict[int, str] = {}
        held: tuple[int, ...] = ()
        if learning.at(q).size:
            bounds = np.tile([-np.inf, np.inf], (theta.size, 1))
            if learning.theta:
                slopes[:cut], bounds[:cut] = outcome.slopes[:cut], q.prior.bounds
            if learning.own is not None:
                slopes[cut:], bounds[cut:] = outcome.slopes[-q.own.size :], learning.own_bounds
            left, allowed = learning.rising(q, outcome.slopes), max(GTOL, point.rounding**0.5)
            names = [*family.names, *(likelihood.theta_names if q.own.size else [])]
            at_bounds, held = entries_at_bounds(bounds, theta, slopes, HELD_SLOPE)
            objective, converged = point.objective, solution.optimal and left <= allowed
            ending = SearchEnding(
                "converged" if converged else "fit" if not solution.optimal else "slope",
                "largest projected slope",
                left,
                allowed,
                search="learned with the latents, pass by pass",
                at_bounds={names[i]: side for i, side in at_bounds.items()},
                fit=solution.ending,
            )
        found = Found(theta, solution, objective, slopes, converged, ending, 1, n, at_bounds=at_bounds, held=held)
        return Learned(**vars(found), likelihood=likelihood, prior=family.at(q.theta))


def solve(
    task: PartitionedProblem, state: FitState, stopping: Stopping, checkpoint: Checkpoint | None = None
) -> FitOutcome:
    """From ``state`` to where ``stopping`` ends it, and no slope in what is learned is above ``GTOL``.

    The checkpoint keeps every step that was taken.
    """
    point, learning, length, flat = task.evaluated([state.q])[0], task.learning, 0.0, 0
    if checkpoint is not None and state.elbo is not None:
        checkpoint.check_rows(state.elbo, point.elbo)
    elif checkpoint is not None:
        state.elbo = point.elbo
        checkpoint.save(state)
    while True:
        ending = stopping.record(state.n, point, length)
        step, slopes = QuadraticModel(point, learning).step() if np.isfinite(point.elbo) else (None, np.zeros(0))
        settled = step is None or learning.rising(point.q, slopes) <= max(GTOL, point.rounding**0.5)
        if ending is not None and (ending.code != "converged" or settled):
            break
        found = None if step is None or flat >= _FLAT else _next(task, point, state.history, step)
        if found is None:
            ending = ending or stopping.stagnated(point)
            break
        (ahead, length), before = found, point
        risen = ahead.objective > before.objective + before.rounding or ahead.shortfall < 0.9 * before.shortfall
        flat = 0 if risen else flat + 1
        point, state.q, state.n, state.elbo = ahead, ahead.q, state.n + 1, ahead.elbo
        if checkpoint is not None:
            checkpoint.save(state)
    return FitOutcome(point, ending, state.n, stopping.trace, slopes)


def _next(
    task: PartitionedProblem, point: EvaluatedApproximation, history: StepHistory, plain: ApproximationStep
) -> tuple[EvaluatedApproximation, float] | None:
    """The next point and its step, or None where nothing improves."""
    extrapolated = history.extrapolated(point.q, plain)
    attempts = [] if extrapolated is None else [(extrapolated, (1.0,))]
    for step, lengths in [*attempts, (plain, (1.0,)), *((plain, shorter) for shorter in _SHORTER)]:
        trials = []
        for t in lengths:
            try:
                trials.append((task.learning.moved(point.q, step, t), t))
            except NotPositiveDefinite:
                continue
        if not trials:
            continue
        found = task.evaluated([q for q, _ in trials])
        best = max(range(len(found)), key=lambda k: found[k].objective)
        better = is_better(found[best], point)
        if (step is extrapolated and not better) or (better and lengths[0] < 1.0):
            history.before.clear()  # these steps say little of the next
        if better:
            return found[best], trials[best][1]
    return None


def is_better(ahead: EvaluatedApproximation, point: EvaluatedApproximation) -> bool:
    """Whether the objective has not fallen, but for rounding, where nearness to the optimum may judge."""
    if not np.isfinite(ahead.elbo):
        return False
    return ahead.objective >= point.objective - (point.rounding if ahead.shortfall <= point.shortfall else 0.0)


@dataclass
class PartitionedFit:
    """A fit to be run once.

    Attributes
    ----------
    stages : problems that are solved one after the other
    tol : relative gap
    sample : rows in memory that stand for all, in which a fit begins; None begins at the prior
    checkpoint : where the iterate is kept
    callback : hears of every pass
    """

    stages: list[PartitionedProblem]
    tol: float
    sample: Reduces | None = None
    checkpoint: Checkpoint | None = None
    callback: Callback | None = None

    def run(self) -> tuple[FitOutcome, FitState]:
        """Where the best stage ended; the state names it, with the evidence of each stage that was judged."""
        return searched("partitions", self._run, self._numbers, self._restored)

    def _numbers(self, result: tuple[FitOutcome, FitState]) -> dict[str, Any]:
        """What a file keeps: q, the sums of the last pass, and how the fit ended."""
        outcome, state = result
        return {
            "q": outcome.point.q.place._asdict(),
            "sums": outcome.point.sums,
            "ending": outcome.ending,
            "n_iter": outcome.n_iter,
            "trace": np.array(outcome.trace._rows),
            "slopes": outcome.slopes,
            "stage": state.stage,
            "n_before": state.n_before,
            "tried": {k: value for k, (value, _) in state.tried.items()},
            "passes": self.stages[0].rows.passes[0],
        }

    def _restored(self, numbers: dict[str, Any]) -> tuple[FitOutcome, FitState]:
        """The same from what ``_numbers`` gave, without a pass."""
        task = self.stages[int(numbers["stage"])]
        task.rows.passes[0] = int(numbers["passes"])
        point = task.restored(numbers["q"], numbers["sums"])
        end = Trace.of(numbers["trace"]), np.asarray(numbers["slopes"], dtype=np.float64)
        outcome = FitOutcome(point, numbers["ending"], int(numbers["n_iter"]), *end)
        tried = {int(k): (float(value), point.q) for k, value in numbers["tried"].items()}
        before = int(numbers["n_before"])
        return outcome, FitState(point.q, stage=int(numbers["stage"]), tried=tried, n_before=before)

    def _run(self) -> tuple[FitOutcome, FitState]:
        state = None if self.checkpoint is None else self.checkpoint.resume([stage.prior for stage in self.stages])
        state = state or FitState(self._start())
        while True:
            task, k = self.stages[state.stage], state.stage
            outcome = solve(task, state, Stopping(self.tol, _MOST_PASSES, self.callback), self.checkpoint)
            passes = state.n_before + outcome.n_iter
            worse = False
            if task.score is not None:
                state.tried[k] = task.score(outcome), outcome.point.q
                worse = state.tried[k][0] < state.tried[state.best][0] - LOST
            if worse or k + 1 == len(self.stages):
                break
            q, prior = outcome.point.q, self.stages[k + 1].prior
            theta = q.theta if q.theta.size == prior.theta.size else np.full(prior.theta.size, q.theta[0])
            begun = Approximation(prior, theta, q.own, q.mean, q.gram)
            state = FitState(begun, stage=k + 1, tried=state.tried, n_before=passes)
        if state.tried and state.best != k:
            best = FitState(state.tried[state.best][1], stage=state.best, tried=state.tried)
            outcome, state = solve(self.stages[best.stage], best, Stopping(self.tol, _MOST_PASSES)), best
        state.n_before = passes
        return outcome, state

    def _start(self) -> Approximation:
        """Where the first stage begins: at the fit of the sample."""
        task = self.stages[0]
        first = task.first()
        if self.sample is None:
            return first
        try:
            with np.errstate(all="ignore"):
                stopping = Stopping(_SAMPLE_TOL, _SAMPLE_PASSES)
                found = solve(replace(task, rows=self.sample), FitState(first), stopping)
        except NotPositiveDefinite:
            return first
        return found.point.q if np.isfinite(found.point.elbo) else first
