"""The exact mode, for bounds without a dual: a coupled Newton method that falls back on natural gradients.

The unknowns are the sites (beta, lam) of q, the objective is the elbo P. The direction is Newton's in the marginals
(h, rho), by conjugate gradients whose first step is the natural gradient; a step takes one factorisation, which also
evaluates P. The start is the loosely computed optimum of the tightest convex bound, from which one to three steps
suffice at moderate variances. Its parts are ``CoupledStart``, ``CoupledDirection`` and ``CoupledSearch``;
many rows with few weights use ``row_steps.py``. A step is full unless P falls; where rounding or quadrature errors of
P exceed its changes, the certificate judges. If Newton's direction does not improve P, the natural gradient is
taken:

    lam <- (1-t) lam + t lam+,   b <- (1-t)(lam h - beta) + t (lam+ h - alpha+)
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..checks import Refusal
from ..linalg.arrays import Array, namespace
from ..linalg.dense import NotPositiveDefinite
from ..primal import LEAST_VARIANCE, PrimalPoint, from_marginals, natural_step, with_slopes
from ..priors.newton_systems import SiteStep, coupled_direction
from ..problem import DualPoint, Problem
from .base import ARMIJO, DEFAULT_TAKEN, SLOW, SLOW_STEPS, Accuracy, Outcome, Solver, Stopping, no_start, relative
from .newton import MirrorNewton
from .row_steps import RowSteps

NextPoint = tuple[PrimalPoint, float]  # the next point and its step


@dataclass(frozen=True)
class CoupledDirection:
    """Newton's direction of the ELBO in the sites (beta, lam)."""

    accuracy: Accuracy = field(default_factory=lambda: Accuracy(share=0.1))
    careful: float = 1e-6  # accuracy if the decrement itself has to judge

    def at(self, point: PrimalPoint, economical: bool) -> SiteStep | None:
        """Newton's step; None if the system is singular up to rounding, far from the optimum."""
        return self._solved(point, self.accuracy.at(point), economical)

    def carefully(self, point: PrimalPoint) -> SiteStep | None:
        """Newton's step, accurate enough for its decrement to be a certificate."""
        return self._solved(point, self.careful, False)

    def _solved(self, point: PrimalPoint, accuracy: float, economical: bool) -> SiteStep | None:
        try:
            return coupled_direction(point.factor, point.system(accuracy, economical))
        except NotPositiveDefinite:
            return None


@dataclass(frozen=True)
class CoupledSearch:
    """A search along Newton's direction of the ELBO in the sites."""

    armijo: float = ARMIJO
    rounding: float = 1e-11  # predicted increase, relative to |P|, below which the certificate judges
    floor: float = 0.1  # smallest share of each lam that a step may leave
    shortest: float = 2.0**-12

    def advance(self, problem: Problem, point: PrimalPoint, newton: SiteStep | None) -> NextPoint | None:
        """The next point along Newton's step, or along the natural gradient; None if neither increases P."""
        result = None if newton is None else self.along(problem, point, newton)
        return self.natural(problem, point) if result is None else result

    def along(self, problem: Problem, point: PrimalPoint, newton: SiteStep) -> NextPoint | None:
        """Backtrack until P increases; if the predicted increase is below rounding, until the gap decreases."""
        t, pulled = 1.0, problem.predictors.weights_of(newton.dbeta)
        by_gap = not newton.slope > max(self.rounding * max(1.0, abs(point.elbo)), point.blur)
        while t >= self.shortest:
            trial = self.moved(problem, point, newton, t, pulled)
            if by_gap:
                if np.isfinite(trial.elbo) and trial.shortfall < point.shortfall:
                    return trial, t
            elif trial.elbo >= point.elbo + self.armijo * t * newton.slope - self.rounding * abs(point.elbo):
                return trial, t
            del trial  # its memory is the next one's
            t /= 2
        return None

    def moved(
        self, problem: Problem, at: PrimalPoint, step: SiteStep, t: float, pulled: list[Array] | None
    ) -> PrimalPoint:
        """The point after t times the step; ``pulled`` are the weights of its dbeta."""
        lam = namespace(at.lam).maximum(at.lam + t * step.dlam, self.floor * at.lam)
        return PrimalPoint(problem, at.alpha + t * step.dbeta, lam, at.enough, None, at.moved(t, pulled))

    def natural(self, problem: Problem, point: PrimalPoint) -> NextPoint | None:
        """A natural gradient step in the natural parameters, which is feasible and increases P for some t > 0."""
        t = 1.0
        while t >= self.shortest:
            try:
                trial = natural_step(problem, point, t, point.enough)
            except NotPositiveDefinite:
                t /= 2
                continue
            if trial.elbo > point.elbo + max(self.rounding * abs(point.elbo), point.blur):
                return trial, t
            if point.blur > 0.0 and trial.elbo > point.elbo - point.blur and trial.shortfall < point.shortfall:
                return trial, t
            del trial
            t /= 2
        return None


@dataclass(frozen=True)
class CoupledStart:
    """The start for bounds without a dual: the optimum of a similar convex bound, or the user's start."""

    rows: RowSteps = field(default_factory=RowSteps)  # for many rows and few weights
    dual: MirrorNewton = field(default_factory=MirrorNewton)  # solves the dual of the convex bound
    loose: float = 1e-2  # relative gap of that dual; the optima of both bounds differ by more
    steps: int = 25  # largest number of its iterations
    worth: float = 1e3  # gap in nats per observation above which a start is compared with the default one

    def point(self, problem: Problem, start: Array | None, stopping: Stopping) -> tuple[PrimalPoint, int, str]:
        """The first point, its iterations, and a note if the user's start was rejected."""
        if start is None:
            return (*self.default(problem, stopping), "")
        try:
            point = self.stepped(problem, start, stopping)
            n = int(point is not None)
            if point is None:
                point = from_marginals(problem, start, stopping.tol)
        except NotPositiveDefinite:  # variances of contrasts that belong to no covariance
            return (*self.default(problem, stopping), DEFAULT_TAKEN)
        if point.enough is None or point.shortfall < self.worth * problem.active.size:
            return point, n, ""
        other, n = self.default(problem, stopping)
        if point.elbo >= other.elbo:
            return point, n, ""
        return other, n, DEFAULT_TAKEN

    def stepped(self, problem: Problem, start: Array, stopping: Stopping) -> PrimalPoint | None:
        """A full natural gradient step from marginals (h, log rho) if the latents are few weights; else None.

        The slopes at h are not used as a start: many rows multiply the error of X' beta. The step solves for the
        weights, and is Newton's up to O(rho).
        """
        if problem.predictors.n_weights is None:
            return None
        h = start[:, : start.shape[1] // 2]
        if self.rows.serves(problem):
            return self.rows.step(problem, h, namespace(start).exp(start[:, h.shape[1] :]), stopping.steers)
        alpha, lam = problem.loss(h, namespace(start).exp(start[:, h.shape[1] :])).slopes
        try:
            factor = problem.predictors.at(lam)
        except NotPositiveDefinite:
            return None
        point = with_slopes(problem, lam * h - alpha, lam, factor, stopping.tol)
        return point if np.isfinite(point.elbo) else None

    def default(self, problem: Problem, stopping: Stopping) -> tuple[PrimalPoint, int]:
        """The dual's optimum, to one percent; without a dual, the prior."""
        if self.rows.serves(problem):
            first, n = self.rows.start(problem, stopping.steers)
            if first is not None:
                return first, n
        near = problem.relaxed()
        if near is not None:
            result = self.dual.solve(near, None, Stopping(self.loose, min(self.steps, stopping.max_iter)))
            point = self._translated(problem, result.point, stopping)
            if not result.converged:  # a dual that is hard itself need not be the better start
                with suppress(Refusal):
                    point = max(point, self.prior(problem, stopping), key=lambda p: p.elbo)
            if np.isfinite(point.elbo):
                return point, result.n_iter
        return self.prior(problem, stopping), 0

    def _translated(self, problem: Problem, result: Any, stopping: Stopping) -> PrimalPoint:
        """The point with the sites of the dual.

        Over contrasts, its mean with the curvature at its marginals, or a natural gradient step from these: under a
        wide prior the second is better, as the slopes of a loose fit are no mean there.
        """
        bound = problem.bound.over_contrasts
        if bound is None:
            return PrimalPoint(problem, result.alpha, result.lam, stopping.tol, result.factor)
        h, rho = result.h @ bound.contrasts.T, result.rho @ (bound.contrasts**2).T
        alpha, lam = bound.slopes_of_contrasts(result.alpha, problem.rows), problem.loss(h, rho).slopes[1]
        point = PrimalPoint(problem, alpha, lam, stopping.tol)
        s = np.concatenate([h, np.log(rho)], axis=1)
        other = self.stepped(problem, s, stopping) or from_marginals(problem, s, stopping.tol)
        return max(point, other, key=lambda p: p.elbo)

    def prior(self, problem: Problem, stopping: Stopping) -> PrimalPoint:
        """The prior's mean, with the curvature the likelihood has there."""
        xp, variance = namespace(problem.mt), problem.predictors.variance
        for most in (1.0, 1e-2, 1e-4, 0.0):
            rho = xp.where(variance > most, most + xp.zeros_like(variance), variance)
            lam = problem.loss(problem.mt, rho).slopes[1]
            point = PrimalPoint(problem, 0.0 * lam, lam, stopping.tol)
            if np.isfinite(point.elbo):
                return point
        raise no_start(problem, lam)


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
    >>> fenchel.infer(*model, method=fenchel.solvers.CoupledNewton()).method
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

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        return self.finish(problem, start, 0, stopping)

    def finish(self, problem: Problem, point: DualPoint, n: int, stopping: Stopping) -> Outcome:
        """Go on from a point of the dual; its bound is as good as any other here, if it has one predictor a row."""
        if problem.likelihood.n_predictors > 1 or not np.isfinite(point.dual):
            return Outcome(point, stopping.stagnated(point), n, stopping.trace)
        here = PrimalPoint(problem, point.alpha, point.lam, stopping.tol, point.factor)
        natural = self.search.natural(problem, here)
        starts = [here, *([] if natural is None else [natural[0]]), *self._as_named(problem, point, stopping)]
        outcome = self.climb(problem, max(starts, key=lambda start: start.elbo), n, stopping)
        outcome.method = self.name
        if isinstance(outcome.point, PrimalPoint) and not outcome.converged:
            outcome.point.ceiling = point.dual + point.rounding
            known = stopping.reached(outcome.point)
            judged = stopping.ended(outcome.point, "converged") if known else outcome.ending
            outcome.ending = replace(judged, value=relative(outcome.point))
        return outcome

    def _as_named(self, problem: Problem, point: DualPoint, stopping: Stopping) -> list[PrimalPoint]:
        """A step from the means that s names: S alpha may be far from them, moved by the last digit of alpha."""
        if point.s.shape != point.h.shape or not np.isfinite(point.gap):
            return []
        xp = namespace(point.s)
        h = point.h + problem.dual.signs(problem.rows) * point.g
        marginals = xp.concat([h, xp.log(xp.maximum(point.rho, LEAST_VARIANCE + 0.0 * h))], axis=1)
        return [self.start.stepped(problem, marginals, stopping) or from_marginals(problem, marginals, stopping.tol)]

    def climb(self, problem: Problem, point: PrimalPoint, n: int, stopping: Stopping) -> Outcome:
        """From a point in the sites to where ``stopping`` ends it."""
        step, slow, flat, slowly = 0.0, 0, 0, False
        while (ending := stopping.record(n, point, step)) is None:
            before, newton = point.shortfall, self.direction.at(point, economical=slow < SLOW_STEPS)
            # nothing left to gain, says Newton twice running, and the certificate hardly falls: rounding fills it
            flat = flat + 1 if slowly and self.is_little(newton, point, stopping.tol) else 0
            hidden = slowly and point.shortfall <= point.resolution  # the rule of the expectations tells no more
            result = self.search.advance(problem, point, newton) if flat < 2 and not hidden else None
            if result is None:
                point, more = self.settled(problem, point)
                n += more
                ending = stopping.record(n, point, 1.0) or stopping.stagnated(point)
                break
            (point, step), n = result, n + 1
            slowly = point.shortfall > SLOW * before
            slow += slowly
        if ending.reached and not problem.bound.log_concave:
            doubt = f"; {problem.likelihood.name} is not log-concave, so another stationary point may be better"
            ending = stopping.ended(point, "stationary", advice=doubt)
        return Outcome(point, ending, n, stopping.trace)

    def is_little(self, newton: SiteStep | None, point: PrimalPoint, tol: float) -> bool:
        """Whether what Newton's step promises is next to nothing."""
        return newton is not None and newton.slope <= self.little * tol * max(1.0, abs(point.elbo))

    def settled(self, problem: Problem, point: PrimalPoint) -> tuple[PrimalPoint, int]:
        """Where neither P nor the residuals can tell any more: whole Newton steps while their decrement falls.

        Rounding of P, and of residuals under a wide prior, hides the last digits; the decrement keeps them.
        """
        step, n = self.direction.carefully(point), 0
        while step is not None and n < self.settling:
            trial = self.search.moved(problem, point, step, 1.0, problem.predictors.weights_of(step.dbeta))
            ahead = self.direction.carefully(trial) if np.isfinite(trial.elbo) else None
            if ahead is None or not 0.0 <= ahead.slope < 0.5 * step.slope:
                break
            point, step, n = trial, ahead, n + 1
        if step is not None:
            point.settle(step)
        return point, n
