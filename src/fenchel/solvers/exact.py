"""The exact mode: natural gradients that end as a coupled Newton method, for bounds without a dual.

The search walks in the sites (beta, lam) of q and judges by the ELBO P. Its direction is Newton's in the marginals
(h, rho), by conjugate gradients whose first step is the natural gradient; one factorisation a step, the one that
evaluates P. It starts where a loosely solved dual of the tightest convex bound ends: from there one to three steps
suffice at moderate variances. Start, direction and search are of ``coupled_start.py``, ``directions.py`` and
``coupled_search.py``; many rows with few weights take the steps of ``row_steps.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..linalg.arrays import Array
from ..linalg.tolerances import SLOW, SLOW_STEPS
from ..primal import PrimalPoint
from ..priors.capabilities import weights_of
from ..priors.coupled import Step
from ..problem import Point, Problem
from .base import Outcome, Solver, Stopping, relative
from .coupled_search import CoupledSearch
from .coupled_start import CoupledStart
from .directions import CoupledDirection


@dataclass(frozen=True)
class CoupledNewton(Solver):
    """The solver of ``bound="exact"`` and of every other bound without a dual.

    Parameters
    ----------
    search : CoupledSearch
        How far a step goes.
    start : CoupledStart
        Where it begins.
    direction : CoupledDirection
        How exactly Newton's system is solved.
    little : float
        Of tol: a promised rise below this share is no reason to go on.
    settling : int
        Steps that may be taken where nothing but their decrement can judge.

    Examples
    --------
    >>> import numpy as np, fenchel
    >>> model = fenchel.BernoulliLogit("exact"), fenchel.DenseCovariance(np.eye(3)), [1, 0, 1]
    >>> fenchel.infer(*model, method=fenchel.CoupledNewton()).method
    'coupled newton'
    """

    name, needs_dual = "coupled newton", False

    search: CoupledSearch = field(default_factory=CoupledSearch)
    start: CoupledStart = field(default_factory=CoupledStart)
    direction: CoupledDirection = field(default_factory=CoupledDirection)
    little: float = 0.1
    settling: int = 8

    def solve(self, problem: Problem, start: Array | None, stopping: Stopping) -> Outcome:
        with np.errstate(all="ignore"):
            point, n, note = self.start.point(problem, start, stopping)
            ending, rows = None, self.start.rows
            if rows.serves(problem):
                point, ending, n = rows.run(problem, point, n, stopping)
            if ending is None:
                outcome = self.climb(problem, point, n, stopping)
            else:
                outcome = Outcome(point, ending, n, stopping.trace)
        outcome.ending = outcome.ending.noting(note)
        return outcome

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        return self.finish(problem, start, 0, stopping)

    def finish(self, problem: Problem, point: Point, n: int, stopping: Stopping) -> Outcome:
        """Go on from a point of the dual; its bound is as good as any other here, if it has one predictor a row."""
        if problem.likelihood.n_predictors > 1 or not np.isfinite(point.dual):
            return Outcome(point, stopping.stagnated(point), n, stopping.trace)
        here = PrimalPoint(problem, point.alpha, point.lam, stopping.tol, point.factor)
        better = self.search.natural(problem, here)  # h anew from the sites: alpha's last digit may move it far
        outcome = self.climb(problem, here if better is None else better[0], n, stopping)
        outcome.method = self.name
        if isinstance(outcome.point, PrimalPoint) and not outcome.converged:
            outcome.point.ceiling = point.dual + point.rounding
            known = stopping.reached(outcome.point)
            judged = stopping.ended(outcome.point, "converged") if known else outcome.ending
            outcome.ending = replace(judged, value=relative(outcome.point))
        return outcome

    def climb(self, problem: Problem, point: PrimalPoint, n: int, stopping: Stopping) -> Outcome:
        """From a point in the sites to where ``stopping`` ends it."""
        step, slow, flat, slowly = 0.0, 0, 0, False
        while (ending := stopping.record(n, point, step)) is None:
            before, newton = point.shortfall, self.direction.at(point, economical=slow < SLOW_STEPS)
            # nothing left to gain, says Newton twice running, and the certificate hardly falls: rounding fills it
            flat = flat + 1 if slowly and self.is_little(newton, point, stopping.tol) else 0
            hidden = slowly and point.shortfall <= point.resolution  # the rule of the expectations tells no more
            found = self.search.advance(problem, point, newton) if flat < 2 and not hidden else None
            if found is None:
                point, more = self.settled(problem, point)
                n += more
                ending = stopping.record(n, point, 1.0) or stopping.stagnated(point)
                break
            (point, step), n = found, n + 1
            slowly = point.shortfall > SLOW * before
            slow += slowly
        if ending.reached and not problem.bound.log_concave:
            doubt = f"; {problem.likelihood.name} is not log-concave, so another stationary point may be better"
            ending = stopping.ended(point, "stationary", advice=doubt)
        return Outcome(point, ending, n, stopping.trace)

    def is_little(self, newton: Step | None, point: PrimalPoint, tol: float) -> bool:
        """Whether what Newton's step promises is next to nothing."""
        return newton is not None and newton.slope <= self.little * tol * max(1.0, abs(point.elbo))

    def settled(self, problem: Problem, point: PrimalPoint) -> tuple[PrimalPoint, int]:
        """Where neither P nor the residuals can tell any more: whole Newton steps while their decrement falls.

        Rounding of P, and of residuals under a wide prior, hides the last digits; the decrement keeps them.
        """
        step, n = self.direction.carefully(point), 0
        while step is not None and n < self.settling:
            trial = self.search.moved(problem, point, step, 1.0, weights_of(problem.predictors, step.dbeta))
            ahead = self.direction.carefully(trial) if np.isfinite(trial.elbo) else None
            if ahead is None or not 0.0 <= ahead.slope < 0.5 * step.slope:
                break
            point, step, n = trial, ahead, n + 1
        if step is not None:
            point.settle(step)
        return point, n
