"""The fit of partitioned rows: passes over them, each of which is one iteration.

    q, theta  ->  a pass: F, W' alpha, W' Lam W, W' H W  ->  the next q, theta (``steps.py``)  ->  ...

A step is whole unless the elbo falls; then shorter ones are evaluated together, in one more pass. With many rows to a
weight a pass takes a share of the order of the posterior variance of eta off the error, so that four or five suffice
from the start that a sample of the rows gives. The certificate comes with every pass (``weights.py``).
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
from .evaluation import Reader, evaluate
from .steps import Learning, Move, Path, moved, step
from .sums import Sums
from .weights import Evaluated, WeightPrior, Weights

_SHORTER = ((1.0, 0.5, 0.125), (0.03, 3e-3, 1e-4))  # of the plain step, those of a row evaluated in one pass
_START = 1e4  # how much narrower than the prior the first q is: rows are then seen at its mean
GTOL = 1e-4  # nats for an e-fold of a hyperparameter
_FLAT = 3  # passes that may bring nothing


class Reduces(Protocol):
    """What gives sums over rows: ``Partitions``, or ``Held`` for rows in memory."""

    def reduce(self, work: Callable[..., Any], *given: Any) -> Any: ...


@dataclass
class Outcome:
    """Where a fit ended.

    slopes : array
        Those left in what was learned.
    """

    point: Evaluated
    ending: Ending
    n_iter: int
    trace: Trace
    slopes: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass
class Walk:
    """Where a fit is: what a checkpoint keeps."""

    q: Weights
    path: Path = field(default_factory=Path)
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
    prior : WeightPrior
    learning : Learning
        Which hyperparameters are learned.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from fenchel.distributed import Chunk, Partitions, PartitionedProblem, Walk, solve
    >>> from fenchel.distributed.variances import GroupedVariances
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
    >>> found = solve(task, Walk(task.first()), Stopping(1e-10, 50))
    >>> found.ending.reached, bool(abs(found.point.q.mean[1, 0] - 1.0) < 0.05)
    (True, True)
    """

    rows: Reduces
    reader: Reader
    likelihood: Likelihood
    prior: WeightPrior
    learning: Learning = Learning()  # noqa: RUF009

    def evaluated(self, trials: list[Weights]) -> list[Evaluated]:
        """What the rows say of each of them: one pass."""
        said: Sums = self.rows.reduce(
            evaluate, self.reader, tuple(q.at() for q in trials), self.learning.own is not None
        )
        bound = self.likelihood.objective
        return [
            Evaluated(q, said[str(k)], bound.convex, bound.log_concave, self.learning.log_prior(q))
            for k, q in enumerate(trials)
        ]

    def step(self, point: Evaluated) -> tuple[Move, np.ndarray]:
        """The step from a point, and the slopes left in what is learned."""
        return step(point, self.learning)

    def moved(self, q: Weights, move: Move) -> Weights:
        """q after a move. Raises NotPositiveDefinite."""
        return moved(q, move, self.learning)

    def first(self) -> Weights:
        """Where a fit begins without a better start: at the prior's mean, narrow."""
        theta = self.prior.theta
        if self.learning.theta:
            theta = np.clip(theta, *self.prior.bounds.T)
        mu, R = self.prior.at(theta)
        C, own = self.likelihood.n_predictors, self.likelihood.theta if self.learning.own is not None else np.zeros(0)
        precision = np.diag(R**-2.0) if R.ndim == 1 else np.linalg.inv(R @ R.T)
        gram = np.repeat(_START * precision[None], C, axis=0)
        return Weights(self.prior, theta, own, np.repeat(mu[:, None], C, axis=1), gram)


def solve(
    task: PartitionedProblem,
    walk: Walk,
    stopping: Stopping,
    gtol: float = GTOL,
    keep: Callable[[Walk], None] | None = None,
    same: Callable[[Evaluated], None] | None = None,
) -> Outcome:
    """From where ``walk`` is to where ``stopping`` ends it, and no slope in what is learned is above ``gtol``.

    ``keep`` hears of every step that was taken, ``same`` of the first point.
    """
    point, learning, length, flat = task.evaluated([walk.q])[0], task.learning, 0.0, 0
    if same is not None:
        same(point)
    elif keep is not None:
        walk.elbo = point.elbo
        keep(walk)
    while True:
        ending = stopping.record(walk.n, point, length)
        move, slopes = task.step(point) if np.isfinite(point.elbo) else (None, np.zeros(0))
        settled = learning.rising(point.q, slopes) <= max(gtol, point.rounding**0.5) if move is not None else True
        if ending is not None and (ending.code != "converged" or settled):
            break
        found = None if move is None or flat >= _FLAT else _next(task, point, walk.path, move)
        if found is None:
            ending = ending or stopping.stagnated(point)
            break
        (ahead, length), before = found, point
        risen = ahead.objective > before.objective + before.rounding or ahead.shortfall < 0.9 * before.shortfall
        flat = 0 if risen else flat + 1
        point, walk.q, walk.n, walk.elbo = ahead, ahead.q, walk.n + 1, ahead.elbo
        if keep is not None:
            keep(walk)
    return Outcome(point, ending, walk.n, stopping.trace, slopes)


def _next(task: PartitionedProblem, point: Evaluated, path: Path, plain: Move) -> tuple[Evaluated, float] | None:
    """The next point and its step, or None where nothing improves."""
    bolder = path.extrapolated(point, plain)
    for first in (bolder, plain):
        q = None if first is None else _there(task, point, first, 1.0)
        if q is not None:
            ahead = task.evaluated([q])[0]
            if _is_better(ahead, point):
                return ahead, 1.0
            if first is bolder:
                path.before.clear()
    for lengths in _SHORTER:
        trials = [(q, t) for t in lengths if t < 1.0 and (q := _there(task, point, plain, t)) is not None]
        if not trials:
            continue
        found = task.evaluated([q for q, _ in trials])
        best = max(range(len(found)), key=lambda k: found[k].objective)
        if _is_better(found[best], point):
            path.before.clear()
            return found[best], trials[best][1]
    return None


def _there(task: PartitionedProblem, point: Evaluated, move: Move, t: float) -> Weights | None:
    try:
        return task.moved(point.q, move.scaled(t))
    except NotPositiveDefinite:
        return None


def _is_better(ahead: Evaluated, point: Evaluated) -> bool:
    """Whether the objective has not fallen, but for rounding, where nearness to the optimum may judge."""
    if not np.isfinite(ahead.elbo):
        return False
    return ahead.objective >= point.objective - (point.rounding if ahead.shortfall <= point.shortfall else 0.0)
