"""A whole fit of partitioned rows: a start, the passes of one stage or of several, a checkpoint, what was learned.

A stage is a prior and what is learned under it. Hyperparameters move with q, pass by pass, so that learning costs
hardly more passes than a fit. Several stages are tried one after the other, each from where the last one ended, while
their evidence rises: a variance for each weight ("ard") is ridge first, then width by width as in ``relevance.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ..hyperparameters.learned import Found, Learned, SearchEnding
from ..hyperparameters.objective import entries_at_bounds
from ..hyperparameters.relevance import LOST
from ..likelihoods.base import Likelihood
from ..linalg.dense import NotPositiveDefinite
from ..priors.base import Prior
from ..solvers.base import Callback, Stopping
from .approximation import Approximation, Learning
from .checkpoint import Checkpoint, Tried
from .evaluation import Reader
from .partitions import Partitions
from .precision import PartitionedPrior
from .solver import GTOL, FitState, Outcome, PartitionedProblem, Reduces, solve

_SAMPLE_TOL = 1e-7  # relative gap of the fit of a sample
_SAMPLE_PASSES = 60
_MOST_PASSES = 200  # of one stage
_HELD_SLOPE = 1e-3  # nats for an e-fold: a slope that a bound holds up


@dataclass(frozen=True)
class Stage:
    """A prior, what is learned under it, and by what its end is judged among others."""

    prior: PartitionedPrior
    learning: Learning
    score: Callable[[Outcome], float] | None = None


@dataclass
class PartitionedFit:
    """A fit to be run once.

    Attributes
    ----------
    rows, reader, likelihood, stages : the problem
    tol : relative gap
    sample : rows in memory that stand for all, in which a fit begins; None begins at the prior
    checkpoint : where the iterate is kept
    callback : hears of every pass
    n_passes : steps taken, of all stages
    """

    rows: Partitions
    reader: Reader
    likelihood: Likelihood
    stages: list[Stage]
    tol: float
    sample: Reduces | None = None
    checkpoint: Checkpoint | None = None
    callback: Callback | None = None
    n_passes: int = 0

    def run(self) -> tuple[Outcome, int, dict[int, float]]:
        """Where the best stage ended, which it is, and the evidence of each stage that was judged."""
        resumed = None if self.checkpoint is None else self.checkpoint.resume([stage.prior for stage in self.stages])
        first, state, tried = 0, cast(FitState | None, None), cast(Tried, {})
        if resumed is not None:
            first, state, tried, self.n_passes = resumed
        outcome: Outcome | None = None
        for k in range(first, len(self.stages)):
            task, told = self._task(k), None if state is None else state.elbo
            state = state or FitState(self._start(task, outcome))
            outcome, ended, state = self._solved(task, state, k, tried, told), k, None
            self.n_passes += outcome.n_iter
            score = self.stages[k].score
            if score is not None:
                tried[k] = score(outcome), outcome.point.q
                if tried[k][0] < tried[_best(tried)][0] - LOST:
                    break
        assert outcome is not None
        if tried and _best(tried) != ended:
            ended = _best(tried)
            outcome = solve(self._task(ended), FitState(tried[ended][1]), Stopping(self.tol, _MOST_PASSES))
        return outcome, ended, {k: value for k, (value, _) in tried.items()}

    def _solved(self, task: PartitionedProblem, state: FitState, k: int, tried: Tried, told: float | None) -> Outcome:
        file, passes, stopping = self.checkpoint, self.n_passes, Stopping(self.tol, _MOST_PASSES, self.callback)
        if file is None:
            return solve(task, state, stopping)
        same = None if told is None else lambda point: file.same_rows(told, point.elbo)
        return solve(task, state, stopping, keep=lambda now: file.save(now, k, tried, passes), same=same)

    def _task(self, k: int) -> PartitionedProblem:
        stage = self.stages[k]
        return PartitionedProblem(self.rows, self.reader, self.likelihood, stage.prior, stage.learning)

    def _start(self, task: PartitionedProblem, last: Outcome | None) -> Approximation:
        """Where a stage begins: the first at the fit of the sample, the others where the last one ended."""
        if last is not None:
            q, n = last.point.q, task.prior.theta.size
            theta = np.full(n, q.theta[0]) if q.theta.size != n else q.theta
            return Approximation(task.prior, theta, q.own, q.mean, q.gram)
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


def _best(tried: Tried) -> int:
    """The stage of the largest evidence."""
    return max(tried, key=lambda k: tried[k][0])


def learned(outcome: Outcome, learning: Learning, solution: Any, prior: Prior, names: list[str], n: int) -> Learned:
    """What passes that learn theta beside q came to, in ``n`` of them, as ``hyperparameters.learn`` says it."""
    point, q, likelihood = outcome.point, outcome.point.q, solution.likelihood
    theta, cut = np.append(q.theta, q.own), q.theta.size
    if not learning.at(q).size:
        found = Found(theta, solution, solution.elbo, np.zeros(0), solution.optimal, solution.ending, 1, n)
        return Learned(**vars(found), likelihood=likelihood, prior=prior)
    slopes, bounds = np.zeros(theta.size), np.tile([-np.inf, np.inf], (theta.size, 1))
    if learning.theta:
        slopes[:cut], bounds[:cut] = outcome.slopes[:cut], q.prior.bounds
    if learning.own is not None:
        slopes[cut:], bounds[cut:] = outcome.slopes[-q.own.size :], learning.own_bounds
    left, allowed = learning.rising(q, outcome.slopes), max(GTOL, point.rounding**0.5)
    named = [*names, *(likelihood.theta_names if q.own.size else [])]
    at_bounds, held = entries_at_bounds(bounds, theta, slopes, _HELD_SLOPE)
    converged = solution.optimal and left <= allowed
    ending = SearchEnding(
        "converged" if converged else "fit" if not solution.optimal else "slope",
        "largest projected slope",
        left,
        allowed,
        search="learned with the latents, pass by pass",
        at_bounds={named[i]: side for i, side in at_bounds.items()},
        fit=solution.ending,
    )
    found = Found(theta, solution, point.objective, slopes, converged, ending, 1, n)
    found.at_bounds, found.held = at_bounds, held
    return Learned(**vars(found), likelihood=likelihood, prior=prior)
