"""A whole fit of linear weights to partitioned rows: a start from a sample, the passes, what is learned, a checkpoint.

    fixed variances, or one for all that are learned        one run of ``solver.py``
    a variance for each ("ard")                             ridge first, then width by width as in ``relevance.py``

theta moves with q, pass by pass, so that learning costs hardly more passes than a fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..hyperparameters.learned import Found, Learned
from ..hyperparameters.relevance import LOST, WIDTHS, Relevance, Spread, width_evidence
from ..likelihoods.base import Likelihood
from ..linalg.dense import NotPositiveDefinite
from ..solvers.base import Stopping
from .approximation import Approximation, Step
from .checkpoint import Checkpoint
from .evaluation import Reader
from .learned import learned
from .partitions import Partitions
from .precision import GroupedVariances
from .solution import PartitionedSolution
from .solver import FitState, Outcome, PartitionedProblem, Reduces, solve
from .steps import Learning, StepHistory

_ROUGH, _ROUGH_PASSES = 1e-7, 60  # of the fit of a sample
_MOST = 200  # passes of one run
Tried = dict[int, tuple[float, Approximation]]  # stage -> its evidence, and q where it ended


@dataclass(frozen=True)
class Identity:
    """What tells one fit's checkpoint from another's: settings by name, and numbers measured of the rows."""

    settings: dict[str, Any]
    measured: np.ndarray


@dataclass
class Fitting:
    """A fit to be run once.

    Attributes
    ----------
    rows, reader, likelihood, prior, learning : the problem
    sample : rows in memory that stand for all, with a reader that knows for how many; None begins at the prior
    tol : relative gap
    checkpoint, identity : where the iterate is kept, and whose it is
    """

    rows: Partitions
    reader: Reader
    likelihood: Likelihood
    prior: GroupedVariances
    learning: Learning
    tol: float
    sample: tuple[Reduces, Reader] | None = None
    checkpoint: Checkpoint | None = None
    identity: Identity | None = None
    n_passes: int = 0

    def run(self) -> Learned:
        """The fit, as ``learn`` returns one."""
        stages = self._stages()
        at, walk, tried, told = self._resumed(stages)
        outcome: Outcome | None = None
        ended = 0
        for k in range(at, len(stages)):
            task, same = self._task(stages[k]), None if told is None else self._same(told)
            begin = FitState(self._carried(task, k, outcome)) if walk is None else walk
            walk = told = None
            outcome = solve(task, begin, Stopping(self.tol, _MOST), keep=self._keep(k, tried), same=same)
            self.n_passes, ended = self.n_passes + outcome.n_iter, k
            if k > 0:
                value = width_evidence(stages[k].prior.family, self._found(stages[k], outcome), WIDTHS[k - 1])
                tried[k] = value, outcome.point.q
                if value < tried[_best(tried)][0] - LOST:
                    break
        if tried and _best(tried) != ended:
            ended = _best(tried)
            outcome = solve(self._task(stages[ended]), FitState(tried[ended][1]), Stopping(self.tol, _MOST))
        assert outcome is not None
        found = self._found(stages[ended], outcome)
        if not tried:
            return found
        evidence = {WIDTHS[k - 1]: value for k, (value, _) in tried.items()}
        return Relevance(**vars(found), width=WIDTHS[ended - 1], evidence=evidence)

    # -- stages ------------------------------------------------------------------------------------
    def _stages(self) -> list[_Stage]:
        """One for a fit; for relevance ridge, and one for each width."""
        if not (self.learning.theta and self.prior.family.n_groups > 1):
            return [_Stage(self.prior, self.learning)]
        family = self.prior.family
        later = replace(self.learning, own=None)  # the likelihood's own parameters are ridge's
        wide = [self.prior.with_family(family.with_log_prior(Spread(width))) for width in WIDTHS]
        return [_Stage(self.prior.with_family(family.shared()), self.learning), *(_Stage(p, later) for p in wide)]

    def _task(self, stage: _Stage) -> PartitionedProblem:
        return PartitionedProblem(self.rows, self.reader, self.likelihood, stage.prior, stage.learning)

    def _carried(self, task: PartitionedProblem, k: int, last: Outcome | None) -> Approximation:
        """Where a stage begins: the first at the fit of the sample, the others where the last one ended."""
        if k == 0 or last is None:
            return self._sampled(task)
        q, theta = last.point.q, last.point.q.theta
        theta = np.full(task.prior.theta.size, theta[0]) if theta.size != task.prior.theta.size else theta
        return Approximation(task.prior, theta, q.own, q.mean, q.gram)

    def _sampled(self, task: PartitionedProblem) -> Approximation:
        first = task.first()
        if self.sample is None:
            return first
        few = replace(task, rows=self.sample[0], reader=self.sample[1])
        try:
            with np.errstate(all="ignore"):
                found = solve(few, FitState(first), Stopping(_ROUGH, _ROUGH_PASSES))
        except NotPositiveDefinite:
            return first
        return found.point.q if np.isfinite(found.point.elbo) else first

    # -- the file ----------------------------------------------------------------------------------
    def _keep(self, k: int, tried: Tried) -> Any:
        file, identity = self.checkpoint, self.identity
        if file is None or identity is None:
            return None

        def keep(walk: FitState) -> None:
            arrays = [identity.measured, *_arrays(walk.q)]
            for move in (each for pair in walk.history.before for each in pair):
                arrays += [move.mean, move.gram, move.theta, move.own]
            for _, q in tried.values():
                arrays += _arrays(q)
            content = {
                "settings": identity.settings,
                "stage": k,
                "n": walk.n,
                "elbo": walk.elbo,
                "remembered": len(walk.history.before),
                "tried": [[j, value] for j, (value, _) in tried.items()],
                "passes": self.n_passes,
            }
            file.write(content, arrays)

        return keep

    def _resumed(self, stages: list[_Stage]) -> tuple[int, FitState | None, Tried, float | None]:
        """Where the checkpoint left off: stage, walk, the widths tried, and the elbo it was told."""
        if self.checkpoint is None or self.identity is None or (old := self.checkpoint.read()) is None:
            return 0, None, {}, None
        content, arrays = old
        self.checkpoint.check(content, self.identity.settings, self.identity.measured, arrays[0] if arrays else None)
        rest = iter(arrays[1:])
        try:
            k, n, told = int(content["stage"]), int(content["n"]), float(content["elbo"])
            q = _weights(stages[k].prior, rest)
            pairs = [(Step(*_four(rest)), Step(*_four(rest))) for _ in range(int(content["remembered"]))]
            tried = {int(j): (float(v), _weights(stages[int(j)].prior, rest)) for j, v in content["tried"]}
            self.n_passes = int(content["passes"])
        except (KeyError, IndexError, TypeError, ValueError, StopIteration, NotPositiveDefinite):
            raise self.checkpoint.of_another("what it holds is not of this shape") from None
        return k, FitState(q, StepHistory(pairs), n, told), tried, told

    def _same(self, told: float) -> Any:
        file = self.checkpoint
        assert file is not None
        return lambda point: file.same_rows(told, point.elbo)

    # -- what comes back ---------------------------------------------------------------------------
    def _found(self, stage: _Stage, outcome: Outcome) -> Learned:
        q, learning = outcome.point.q, stage.learning
        likelihood = self.likelihood.with_theta(q.own) if q.own.size else self.likelihood
        solution = PartitionedSolution(outcome, likelihood, self.tol, self.rows.passes[0])
        prior = stage.prior.family.at(q.theta)
        theta = np.append(q.theta, q.own)
        n = max(1, self.n_passes)
        if not (learning.theta or learning.own is not None):
            where = Found(theta, solution, solution.elbo, np.zeros(0), solution.optimal, solution.ending, 1, n)
            return Learned(**vars(where), likelihood=likelihood, prior=prior)
        slopes, bounds = np.zeros(theta.size), np.tile([-np.inf, np.inf], (theta.size, 1))
        if learning.theta:
            slopes[: q.theta.size], bounds[: q.theta.size] = outcome.slopes[: q.theta.size], q.prior.bounds
        if learning.own is not None:
            slopes[q.theta.size :], bounds[q.theta.size :] = outcome.slopes[-q.own.size :], learning.own_bounds
        at, names = (theta, slopes, bounds), list(stage.prior.family.names)
        return learned(outcome, learning, at, solution, prior, likelihood, names, "weights", n)


@dataclass(frozen=True)
class _Stage:
    prior: GroupedVariances
    learning: Learning


def _best(tried: Tried) -> int:
    """The stage of the largest evidence."""
    return max(tried, key=lambda k: tried[k][0])


def _arrays(q: Approximation) -> list[np.ndarray]:
    return [q.mean, q.gram, q.theta, q.own]


def _four(arrays: Any) -> list[np.ndarray]:
    return [np.asarray(next(arrays), dtype=np.float64) for _ in range(4)]


def _weights(prior: GroupedVariances, arrays: Any) -> Approximation:
    mean, gram, theta, own = _four(arrays)
    return Approximation(prior, theta, own, mean, gram)
