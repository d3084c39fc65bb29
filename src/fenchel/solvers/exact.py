"""The exact mode: natural gradients that end as a coupled Newton method, for bounds without a dual.

The search walks in the sites (beta, lam) of q and judges by the ELBO P. Its direction is Newton's in the marginals
(h, rho), by conjugate gradients whose first step is the natural gradient; one factorisation a step, the one that
evaluates P. A step is whole unless P falls; where P cannot tell any more, the certificate judges. It starts where a
loosely solved dual of the tightest convex bound ends: from there one to three steps suffice at moderate variances.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ..checks import Refusal
from ..linalg.arrays import Array, namespace
from ..linalg.dense import NotPositiveDefinite
from ..primal import PrimalPoint, from_marginals
from ..priors.base import Factor
from ..priors.coupled import Step, coupled_direction
from ..problem import Point, Problem
from .base import Outcome, Solver, Stopping, no_start, relative
from .newton import MirrorNewton

_LOOSE, _DUAL_STEPS = 1e-2, 25  # relative gap of the dual it starts from, and the iterations that may cost
_WORTH = 1e3  # nats an observation: a start whose certificate is wider is held against the default one
_ARMIJO = 1e-4
_ROUNDING = 1e-11  # of |P|: promised rises below this are judged by the certificate
_FLOOR = 0.1  # a step leaves at least this share of each lam
_SHORTEST = 2.0**-12
_LITTLE = 0.1  # of tol: a promised rise below this share is no reason to go on
_CAREFUL, _SETTLING = 1e-6, 8  # accuracy of Newton's system where nothing else can judge, and the steps this may take


class CoupledNewton(Solver):
    """The solver of ``bound="exact"`` and of every other bound without a dual."""

    name, needs_dual = "coupled newton", False

    def solve(self, problem: Problem, start: Array | None, stopping: Stopping) -> Outcome:
        with np.errstate(all="ignore"):
            point, n, note = self.begin(problem, start, stopping)
            outcome = self.climb(problem, point, n, stopping)
        if note:
            outcome.status = f"{outcome.status} ({note})"
        return outcome

    def run(self, problem: Problem, start: Any, stopping: Stopping) -> Outcome:
        return self.solve(problem, None, stopping)

    def finish(self, problem: Problem, point: Point, n: int, stopping: Stopping) -> Outcome:
        """Go on from a point of the dual; its bound is as good as any other here, if it has one predictor a row."""
        if problem.likelihood.n_predictors > 1 or not np.isfinite(point.dual):
            return Outcome(point, stopping.stagnated(point), False, n, stopping.trace)
        here = PrimalPoint(problem, point.alpha, point.lam, stopping.tol, point.factor)
        better = self.natural(problem, here)  # h anew from the sites: where alpha's last digit moves it, h is no start
        outcome = self.climb(problem, here if better is None else better[0], n, stopping)
        if isinstance(outcome.point, PrimalPoint) and not outcome.converged:
            outcome.point.ceiling = point.dual + point.rounding
            outcome.converged = stopping.reached(outcome.point)
            outcome.status = stopping.verdict(outcome.point) or stopping.stagnated(outcome.point)
        return outcome

    # -- where to begin ----------------------------------------------------------------------------
    def begin(self, problem: Problem, start: Array | None, stopping: Stopping) -> tuple[PrimalPoint, int, str]:
        """The first point, the iterations it took, and a note if the user's start was not worth having."""
        if start is None:
            return (*self.default(problem, stopping), "")
        point = self.stepped(problem, start, stopping)
        n = int(point is not None)
        if point is None:
            point = from_marginals(problem, start, stopping.tol)
        if point.shortfall < _WORTH * problem.active.size:
            return point, n, ""
        other, n = self.default(problem, stopping)
        if point.elbo >= other.elbo:
            return point, n, ""
        return other, n, "the start was worse than the default, which was taken instead"

    def stepped(self, problem: Problem, start: Array, stopping: Stopping) -> PrimalPoint | None:
        """A whole natural gradient step from marginals (h, log rho), where the latents are few weights; else None.

        The slopes at h are no start there: many rows multiply what they miss of X' beta, and h is lost. The step solves
        for the weights, and is Newton's but for O(rho).
        """
        if not hasattr(problem.predictors, "n_weights"):
            return None
        h = start[:, :1]
        loss = problem.loss(h, namespace(start).exp(start[:, 1:]))
        lam = loss.lam[:, None]
        try:
            factor = problem.predictors.at(lam)
        except NotPositiveDefinite:
            return None
        point = self.with_slopes(problem, lam * h - loss.alpha[:, None], lam, factor, stopping.tol)
        return point if np.isfinite(point.elbo) else None

    @staticmethod
    def with_slopes(problem: Problem, b: Array, lam: Array, factor: Factor, enough: float) -> PrimalPoint:
        """The point with the natural parameters (b, lam) of its sites: beta = lam m - b."""
        site = b - lam * problem.mt
        weights = factor.weights(site)
        rise = factor.apply(site) if weights is None else problem.predictors.from_weights(weights)
        weights = None if weights is None else [-u for u in weights]
        return PrimalPoint(problem, lam * (problem.mt + rise) - b, lam, enough, factor, weights)

    def default(self, problem: Problem, stopping: Stopping) -> tuple[PrimalPoint, int]:
        """The dual's optimum, to one percent; without a dual, the prior."""
        near = problem.relaxed()
        if near is not None:
            found = MirrorNewton().solve(near, None, Stopping(_LOOSE, min(_DUAL_STEPS, stopping.max_iter)))
            point = PrimalPoint(problem, found.point.alpha, found.point.lam, stopping.tol, found.point.factor)  # type: ignore[attr-defined]
            if not found.converged:  # a dual that is hard itself need not be the better start
                with suppress(Refusal):
                    point = max(point, self.prior_start(problem, stopping), key=lambda p: p.elbo)
            if np.isfinite(point.elbo):
                return point, found.n_iter
        return self.prior_start(problem, stopping), 0

    def prior_start(self, problem: Problem, stopping: Stopping) -> PrimalPoint:
        """The prior's mean, with the curvature the likelihood has there."""
        xp, variance = namespace(problem.mt), problem.predictors.variance
        for most in (1.0, 1e-2, 1e-4, 0.0):
            rho = xp.where(variance > most, most + xp.zeros_like(variance), variance)
            lam = problem.loss(problem.mt, rho).lam[:, None]
            point = PrimalPoint(problem, 0.0 * lam, lam, stopping.tol)
            if np.isfinite(point.elbo):
                return point
        raise no_start(problem, lam)

    # -- the climb ---------------------------------------------------------------------------------
    def climb(self, problem: Problem, point: PrimalPoint, n: int, stopping: Stopping) -> Outcome:
        step, slow, flat, slowly = 0.0, 0, 0, False
        while True:
            status = stopping.record(n, point, step)
            if status is not None:
                break
            before = point.shortfall
            accuracy = min(0.1, max(1e-9, 0.1 * relative(point) ** 0.5))
            newton = newton_step(point, accuracy, economical=slow < 2)
            # nothing left to gain, says Newton twice running, and the certificate hardly falls: rounding fills it
            little = newton is not None and newton.slope <= _LITTLE * stopping.tol * max(1.0, abs(point.elbo))
            flat, found = flat + 1 if little and slowly else 0, None
            if flat < 2:
                found = None if newton is None else self.search(problem, point, newton)
                found = self.natural(problem, point) if found is None else found
            if found is None:
                point, more = self.settled(problem, point)
                n += more
                status = stopping.record(n, point, 1.0) or stopping.stagnated(point)
                break
            (point, step), n = found, n + 1
            slowly = point.shortfall > 0.3 * before
            slow += slowly
        if stopping.reached(point) and not problem.bound.log_concave:
            status = (
                f"stationary: {point.measure} {relative(point):.1e} <= {stopping.tol:.1e}; {problem.likelihood.name} "
                "is not log-concave, so another stationary point may be better"
            )
        return Outcome(point, status, stopping.reached(point), n, stopping.trace)

    def search(self, problem: Problem, point: PrimalPoint, newton: Step) -> tuple[PrimalPoint, float] | None:
        """Backtrack until P rises; where the promised rise is below rounding, until the certificate falls."""
        t, pulled = 1.0, problem.predictors.weights_of(newton.dbeta)
        by_gap = not newton.slope > _ROUNDING * max(1.0, abs(point.elbo))
        while t >= _SHORTEST:
            trial = moved(problem, point, newton, t, pulled)
            if by_gap:
                if np.isfinite(trial.elbo) and trial.shortfall < point.shortfall:
                    return trial, t
            elif trial.elbo >= point.elbo + _ARMIJO * t * newton.slope - _ROUNDING * abs(point.elbo):
                return trial, t
            del trial  # its memory is the next one's
            t /= 2
        return None

    def natural(self, problem: Problem, point: PrimalPoint) -> tuple[PrimalPoint, float] | None:
        """The natural gradient in the natural parameters, which keeps every step feasible: it rises for some t > 0."""
        t, loss, h = 1.0, point.loss, point.h
        alpha, target = loss.alpha[:, None], loss.lam[:, None]
        while t >= _SHORTEST:
            lam = (1.0 - t) * point.lam + t * target
            b = (1.0 - t) * (point.lam * h - point.alpha) + t * (target * h - alpha)
            try:
                factor = problem.predictors.at(lam)
            except NotPositiveDefinite:
                t /= 2
                continue
            trial = self.with_slopes(problem, b, lam, factor, point.enough)
            if trial.elbo > point.elbo + _ROUNDING * abs(point.elbo):
                return trial, t
            del trial, factor
            t /= 2
        return None

    def settled(self, problem: Problem, point: PrimalPoint) -> tuple[PrimalPoint, int]:
        """Where neither P nor the residuals can tell any more: whole Newton steps while their decrement falls.

        Rounding of P, and of residuals under a wide prior, hides the last digits; the decrement keeps them.
        """
        step, n = newton_step(point, _CAREFUL, economical=False), 0
        while step is not None and n < _SETTLING:
            trial = moved(problem, point, step, 1.0, problem.predictors.weights_of(step.dbeta))
            ahead = newton_step(trial, _CAREFUL, economical=False) if np.isfinite(trial.elbo) else None
            if ahead is None or not 0.0 <= ahead.slope < 0.5 * step.slope:
                break
            point, step, n = trial, ahead, n + 1
        if step is not None:
            point.settle(step)
        return point, n


def newton_step(point: PrimalPoint, accuracy: float, economical: bool) -> Step | None:
    """Newton's step from here; None where rounding defeats it, at a point too far out."""
    try:
        return coupled_direction(point.factor, point.system(accuracy, economical))
    except NotPositiveDefinite:
        return None


def moved(problem: Problem, point: PrimalPoint, step: Step, t: float, pulled: list[Array] | None) -> PrimalPoint:
    """The point t steps on; ``pulled`` are the weights of the step's dbeta."""
    lam = namespace(point.lam).maximum(point.lam + t * step.dlam, _FLOOR * point.lam)
    return PrimalPoint(problem, point.alpha + t * step.dbeta, lam, point.enough, None, point.moved(t, pulled))
