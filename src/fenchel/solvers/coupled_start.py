"""Where the coupled Newton method begins: at the optimum of a dual nearby, solved loosely, or at the user's start."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..checks import Refusal
from ..linalg.arrays import Array, namespace
from ..linalg.dense import NotPositiveDefinite
from ..primal import PrimalPoint, from_marginals
from ..priors.capabilities import HasFewWeights
from ..problem import Problem
from .base import DEFAULT_TAKEN, Stopping, no_start
from .coupled_search import with_slopes
from .newton import MirrorNewton
from .row_steps import RowSteps


@dataclass(frozen=True)
class CoupledStart:
    """A first point for bounds without a dual."""

    rows: RowSteps = field(default_factory=RowSteps)  # where rows are many and weights few
    dual: MirrorNewton = field(default_factory=MirrorNewton)  # solves the dual of a convex bound nearby
    loose: float = 1e-2  # relative gap of that dual: its optimum is no nearer to this bound's
    steps: int = 25  # iterations it may cost
    worth: float = 1e3  # nats an observation: a start whose certificate is wider is held against the default one

    def point(self, problem: Problem, start: Array | None, stopping: Stopping) -> tuple[PrimalPoint, int, str]:
        """The first point, the iterations it took, and a note if the user's start was not worth having."""
        if start is None:
            return (*self.default(problem, stopping), "")
        point = self.stepped(problem, start, stopping)
        n = int(point is not None)
        if point is None:
            point = from_marginals(problem, start, stopping.tol)
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
        if not isinstance(problem.predictors, HasFewWeights):
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
