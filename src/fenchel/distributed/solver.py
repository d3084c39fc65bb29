"""The fit of partitioned rows: passes over them, each of which is one iteration.

    q, theta  ->  a pass: F, W' alpha, W' Lam W, W' H W  ->  the next q, theta (``approximation.py``)  ->  ...

A step is whole unless the elbo falls; then shorter ones are evaluated together, in one more pass. With many rows to a
weight a pass takes a share of the order of the posterior variance of eta off the error, so that four or five suffice
from the start that a sample of the rows gives. The certificate comes with every pass (``approximation.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..likelihoods.base import Likelihood
from ..linalg.dense import NotPositiveDefinite
from ..solvers.base import Stopping, Trace
from ..solvers.ending import Ending
from .approximation import Approximation, Iterate, Learning, QuadraticModel, Step, StepHistory
from .evaluation import Reader, evaluate
from .partitions import Sums
from .precision import PartitionedPrior

_SHORTER = ((1.0, 0.5, 0.125), (0.03, 3e-3, 1e-4))  # of the plain step, those of a row evaluated in one pass
_START = 1e4  # how much narrower than the prior the first q is: rows are then seen at its mean
GTOL = 1e-4  # nats for an e-fold of a hyperparameter
_FLAT = 3  # passes that may bring nothing


class Reduces(Protocol):
    """What gives sums over rows: ``Partitions``, or ``InMemory`` for one of them."""

    def reduce(self, work: Callable[..., Any], *given: Any) -> Any: ...


@dataclass
class Outcome:
    """Where a fit ended.

    slopes : array
        Those left in what was learned.
    """

    point: Iterate
    ending: Ending
    n_iter: int
    trace: Trace
    slopes: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass
class FitState:
    """Where a fit is: what a checkpoint keeps."""

    q: Approximation
    history: StepHistory = field(default_factory=StepHistory)
    n: int = 0
    elbo: float | None = None  # at q, where it is known


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

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from fenchel.distributed import Chunk, Partitions, PartitionedProblem, FitState, solve
    >>> from fenchel.distributed.precision import GroupedVariances
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.linalg.matrices import array_design
    >>> from fenchel.solvers.base import Stopping
    >>> class Reader:
    ...     def chunks(self, block):
    ...         yield Chunk(array_design(block["X"]), Poisson(), block["y"])
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> y = np.round(np.exp(X @ [0.5, 1.0]))
    >>> rows = Partitions.of("mine", X=da.from_array(X, chunks=(300, 2)), y=y)
    >>> prior = GroupedVariances([-1, -1], 1.0, 0.0)  # fixed variances
    >>> task = PartitionedProblem(rows, Reader(), Poisson(), prior)
    >>> found = solve(task, FitState(task.first()), Stopping(1e-10, 50))
    >>> found.ending.reached, bool(abs(found.point.q.mean[1, 0] - 1.0) < 0.05)
    (True, True)
    """

    rows: Reduces
    reader: Reader
    likelihood: Likelihood
    prior: PartitionedPrior
    learning: Learning = Learning()  # noqa: RUF009

    def evaluated(self, trials: list[Approximation]) -> list[Iterate]:
        """What the rows say of each of them: one pass."""
        points, own = tuple(q.at() for q in trials), self.learning.own is not None
        found: Sums = self.rows.reduce(evaluate, self.reader, points, own)
        out = []
        for k, q in enumerate(trials):
            sums: Sums = found[str(k)]
            for key in ("gram", "curvature"):
                sums[key] = self.prior.unpacked(sums[key])
            out.append(Iterate(q, sums, self.likelihood.objective, self.learning.log_prior(q)))
        return out

    def first(self) -> Approximation:
        """Where a fit begins without a better start: at the prior's mean, narrow."""
        theta, C = self.prior.theta, self.likelihood.n_predictors
        theta = np.clip(theta, *self.prior.bounds.T) if self.learning.theta else theta
        own = self.likelihood.theta if self.learning.own is not None else np.zeros(0)
        precision = self.prior.at(theta)
        mean = np.repeat(precision.centre[:, None], C, axis=1)
        return Approximation(self.prior, theta, own, mean, _START * precision.entries(C), precision)


def solve(
    task: PartitionedProblem,
    state: FitState,
    stopping: Stopping,
    gtol: float = GTOL,
    keep: Callable[[FitState], None] | None = None,
    same: Callable[[Iterate], None] | None = None,
) -> Outcome:
    """From ``state`` to where ``stopping`` ends it, and no slope in what is learned is above ``gtol``.

    ``keep`` hears of every step that was taken, ``same`` of the first point.
    """
    point, learning, length, flat = task.evaluated([state.q])[0], task.learning, 0.0, 0
    if same is not None:
        same(point)
    elif keep is not None:
        state.elbo = point.elbo
        keep(state)
    while True:
        ending = stopping.record(state.n, point, length)
        step, slopes = QuadraticModel(point, learning).step() if np.isfinite(point.elbo) else (None, np.zeros(0))
        settled = step is None or learning.rising(point.q, slopes) <= max(gtol, point.rounding**0.5)
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
        if keep is not None:
            keep(state)
    return Outcome(point, ending, state.n, stopping.trace, slopes)


def _next(task: PartitionedProblem, point: Iterate, history: StepHistory, plain: Step) -> tuple[Iterate, float] | None:
    """The next point and its step, or None where nothing improves."""
    bolder = history.extrapolated(point.q, plain)
    for first in (bolder, plain):
        q = None if first is None else _moved(task, point, first, 1.0)
        if q is not None:
            ahead = task.evaluated([q])[0]
            if _is_better(ahead, point):
                return ahead, 1.0
            if first is bolder:
                history.before.clear()
    for lengths in _SHORTER:
        trials = [(q, t) for t in lengths if t < 1.0 and (q := _moved(task, point, plain, t)) is not None]
        if not trials:
            continue
        found = task.evaluated([q for q, _ in trials])
        best = max(range(len(found)), key=lambda k: found[k].objective)
        if _is_better(found[best], point):
            history.before.clear()
            return found[best], trials[best][1]
    return None


def _moved(task: PartitionedProblem, point: Iterate, step: Step, t: float) -> Approximation | None:
    try:
        return task.learning.moved(point.q, step, t)
    except NotPositiveDefinite:
        return None


def _is_better(ahead: Iterate, point: Iterate) -> bool:
    """Whether the objective has not fallen, but for rounding, where nearness to the optimum may judge."""
    if not np.isfinite(ahead.elbo):
        return False
    return ahead.objective >= point.objective - (point.rounding if ahead.shortfall <= point.shortfall else 0.0)
