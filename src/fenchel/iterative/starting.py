"""Where a fit with a factor begins: theta and the marginals of eta, found without one by a few probes.

Where one factorisation costs more than a whole fit by conjugate gradients, a search that begins at that fit's end needs
two or three evaluations instead of ten, and the first of them begins where its answer is, up to the probes' noise.
What is returned, and its certificate, are those of the fit with a factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import Refusal
from ..gmrf.stack import StackedField
from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, ArrayLike
from ..problem import Point, Problem
from ..solvers.base import Outcome, Solver, Stopping, reporting
from .learning import RISE, ProbedEvidence, approach
from .task import Task

_PROBES = 8
_STEPS = 30  # of theta


@dataclass(frozen=True)
class Near:
    """What is known beforehand: theta, and mean and variance of eta at every row (N,); unobserved ones anything."""

    theta: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    @property
    def posterior(self) -> Near:
        """Itself, as a ``Solution`` has one: what a problem reads a start from."""
        return self


def near(
    likelihood: Likelihood,
    family: StackedField,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    random_state: Any = 0,
    progress: bool = False,
) -> Near | None:
    """A fit by a few probes, hyperparameters learned, without a certificate; None where that cannot be done."""
    rng = np.random.default_rng(random_state)
    try:
        task = Task(likelihood, family, y, weights, names)
        objective = ProbedEvidence(task, rng.choice([-1.0, 1.0], size=(task.layout.sizes[1], _PROBES)))
        start = np.concatenate([family.theta, likelihood.theta])
        with reporting(progress, "looking for a start without a factor", None) as draw, np.errstate(all="ignore"):
            search = approach(objective, start, _STEPS, draw)
    except (Refusal, ArithmeticError, np.linalg.LinAlgError):  # a start is no more than help
        return None
    theta, state = search.known.theta, search.known.solution.state
    inside = np.all((theta > task.bounds[:, 0]) & (theta < task.bounds[:, 1]))
    if not (search.remaining <= RISE and state.settled and inside):  # at a bound a search is better begun away from it
        return None
    mean, variance = np.zeros(task.targets.y.shape[0]), np.ones(task.targets.y.shape[0])
    mean[task.keep], variance[task.keep] = state.h, state.rho
    return Near(theta, mean, variance)


class BegunNear(Solver):
    """Another solver, whose runs without a start begin at marginals known beforehand."""

    def __init__(self, solver: Solver, near: Near) -> None:
        self.solver, self.near, self.name, self.needs_dual = solver, near, solver.name, solver.needs_dual

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        return self.solver.run(problem, start, stopping)

    def solve(self, problem: Problem, start: Array | None, stopping: Stopping) -> Outcome:
        return self.solver.solve(problem, problem.start_from(self.near) if start is None else start, stopping)
