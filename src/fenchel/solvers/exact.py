"""The exact mode: natural gradients that end as a coupled Newton method, for bounds without a dual.

The search walks in the sites (beta, lam) of q and judges by the ELBO P. Its direction is Newton's in the marginals
(h, rho), by conjugate gradients whose first step is the natural gradient; one factorisation a step, the one that
evaluates P. It starts where a loosely solved dual of the tightest convex bound ends: from there one to three steps
suffice at moderate variances. Its parts: ``CoupledStart``, ``CoupledSearch`` and ``CoupledDirection``; many rows with
few weights take the steps of ``row_steps.py``. A step is whole unless P falls; where P cannot tell any more, by
rounding or by the rule of its expectations, the certificate judges. Where Newton's direction leads nowhere, the natural
gradient is taken:

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
from ..primal import LEAST_VARIANCE, PrimalPoint, from_marginals, with_slopes
from ..priors.newton_systems import SiteStep, coupled_direction
from ..problem import DualPoint, Problem
from .base import ARMIJO, DEFAULT_TAKEN, SLOW, SLOW_STEPS, Accuracy, Outcome, Solver, Stopping, no_start, relative
from .newton import MirrorNewton
from .row_steps import RowSteps

Found = tuple[PrimalPoint, float]  # the next point and its step


@dataclass(frozen=True)
class CoupledDirection:
    """Newton's direction of the ELBO in the sites (beta, lam)."""

    accuracy: Accuracy = field(default_factory=lambda: Accuracy(share=0.1))
    careful: float = 1e-6  # accuracy where nothing else can judge, so that the decrement is known

    def at(self, point: PrimalPoint, economical: bool) -> SiteStep | None:
        """Newton's step from here; None where rounding defeats it, at a point too far out."""
        return self._solved(point, self.accuracy.at(point), economical)

    def carefully(self, point: PrimalPoint) -> SiteStep | None:
        """The same, exact enough for its decrement to be a certificate."""
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
    rounding: float = 1e-11  # of |P|: promised rises below this are judged by the certificate
    floor: float = 0.1  # a step leaves at least this share of each lam
    shortest: float = 2.0**-12

    def advance(self, problem: Problem, point: PrimalPoint, newton: SiteStep | None) -> Found | None:
        """The next point along Newton's step, or along the natural gradient; None when neither rises."""
        found = None if newton is None else self.along(problem, point, newton)
        return self.natural(problem, point) if found is None else found

    def along(self, problem: Problem, point: PrimalPoint, newton: SiteStep) -> Found | None:
        """Backtrack until P rises; where the promised rise is below rounding, until the certificate falls."""
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
        """The point t steps on; ``pulled`` are the weights of the step's dbeta."""
        lam = namespace(at.lam).maximum(at.lam + t * step.dlam, self.floor * at.lam)
        return PrimalPoint(problem, at.alpha + t * step.dbeta, lam, at.enough, None, at.moved(t, pulled))

    def natural(self, problem: Problem, point: PrimalPoint) -> Found | None:
        """The natural gradient in the natural parameters, which keeps every step feasible: it rises for some t > 0."""
        t, loss, h = 1.0, point.loss, point.h
        alpha, target = loss.slopes
        while t >= self.shortest:
            lam = (1.0 - t) * point.lam + t * target
            b = (1.0 - t) * (point.lam * h - point.alpha) + t * (target * h - alpha)
            try:
                factor = problem.predictors.at(lam)
            except NotPositiveDefinite:
                t /= 2
                continue
            trial = with_slopes(problem, b, lam, factor, point.enough)
            if trial.elbo > point.elbo + max(self.rounding * abs(point.elbo), point.blur):
                return trial, t
            if point.blur > 0.0 and trial.elbo > point.elbo - point.blur and trial.shortfall < point.shortfall:
                return trial, t
            del trial, factor
            t /= 2
        return None


@dataclass(frozen=True)
class CoupledStart:
    """A first point for bounds without a dual: the optimum of a dual nearby, solved loosely, or the user's start."""

    rows: RowSteps = field(default_factory=RowSteps)  # where rows are many and weights few
    dual: MirrorNewton = field(default_factory=MirrorNewton)  # solves the dual of a convex bound nearby
    loose: float = 1e-2  # relative gap of that dual: its optimum is no nearer to this bound's
    steps: int = 25  # iterations it may cost
    worth: float = 1e3  # nats an observation: a start whose certificate is wider is held against the default one

    def point(self, problem: Problem, start: Array | None, stopping: Stopping) -> tuple[PrimalPoint, int, str]:
        """The first point, the iterations it took, and a note if the user's start was not worth having."""
        if start is None:
            return (*self.default(problem, stopping), "")
        try:
            point = self.stepped(problem, start, stopping)
            n = int(point is not None)
            if point is None:
                point = from_marginals(problem, start, stopping.tol)
        except NotPositiveDefinite:  # variances of contrasts that no covariance has
            return (*self.default(problem, stopping), DEFAULT_TAKEN)
        if point.enough is None or point.shortfall < self.worth * problem.active.size:
            return point, n, ""
        other, n = self.default(problem, stopping)
        if point.elbo >= other.elbo:
            return point, n, ""
        return other, n, DEFAULT_TAKEN

    def stepped(self, problem: Problem, start: Array, stopping: Stopping) -> PrimalPoint | None:
        """A whole natural gradient step from marginals (h, log rho), where the latents are few weights; else None.

        The slopes at h are no start there: many rows multiply what they miss of X' beta, and h is lost. The step solves
        for the weights, and is Newton's but for O(rho).
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
            found = self.dual.solve(near, None, Stopping(self.loose, min(self.steps, stopping.max_iter)))
            point = self._translated(problem, found.point, stopping)
            if not found.converged:  # a dual that is hard itself need not be the better start
                with suppress(Refusal):
                    point = max(point, self.prior(problem, stopping), key=lambda p: p.elbo)
            if np.isfinite(point.elbo):
                return point, found.n_iter
        return self.prior(problem, stopping), 0

    def _translated(self, problem: Problem, found: Any, stopping: Stopping) -> PrimalPoint:
        """The point with the sites of the dual.

        Over contrasts, its mean with the curvature at its marginals, or a natural gradient step from these: under a
        wide prior the second is better, as the slopes of a loose fit are no mean there.
        """
        bound = problem.bound.over_contrasts
        if bound is None:
            return PrimalPoint(problem, found.alpha, found.lam, stopping.tol, found.factor)
        h, rho = found.h @ bound.contrasts.T, found.rho @ (bound.contrasts**2).T
        alpha, lam = bound.slopes_of_contrasts(found.alpha, problem.rows), problem.loss(h, rho).slopes[1]
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
