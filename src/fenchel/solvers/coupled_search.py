"""How far the coupled Newton method goes along its direction, and the natural gradient where that leads nowhere.

    lam <- (1-t) lam + t lam+,   b <- (1-t)(lam h - beta) + t (lam+ h - alpha+)          the natural gradient

A step is whole unless P falls; where P cannot tell any more, by rounding or by the rule of its expectations, the
certificate judges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..linalg.arrays import Array, namespace
from ..linalg.dense import NotPositiveDefinite
from ..linalg.tolerances import ARMIJO
from ..primal import PrimalPoint
from ..priors.base import Factor
from ..priors.capabilities import HasWeights, SolvesForWeights, weights_of
from ..priors.coupled import Step
from ..problem import Problem

Found = tuple[PrimalPoint, float]  # the next point and its step


@dataclass(frozen=True)
class CoupledSearch:
    """A search along Newton's direction of the ELBO in the sites."""

    armijo: float = ARMIJO
    rounding: float = 1e-11  # of |P|: promised rises below this are judged by the certificate
    floor: float = 0.1  # a step leaves at least this share of each lam
    shortest: float = 2.0**-12

    def advance(self, problem: Problem, point: PrimalPoint, newton: Step | None) -> Found | None:
        """The next point along Newton's step, or along the natural gradient; None when neither rises."""
        found = None if newton is None else self.along(problem, point, newton)
        return self.natural(problem, point) if found is None else found

    def along(self, problem: Problem, point: PrimalPoint, newton: Step) -> Found | None:
        """Backtrack until P rises; where the promised rise is below rounding, until the certificate falls."""
        t, pulled = 1.0, weights_of(problem.predictors, newton.dbeta)
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

    def moved(self, problem: Problem, at: PrimalPoint, step: Step, t: float, pulled: list[Array] | None) -> PrimalPoint:
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


def with_slopes(problem: Problem, b: Array, lam: Array, factor: Factor, enough: float | None) -> PrimalPoint:
    """The point with the natural parameters (b, lam) of its sites: beta = lam m - b."""
    site = b - lam * problem.mt
    if isinstance(factor, SolvesForWeights) and isinstance(problem.predictors, HasWeights):
        weights = [-u for u in factor.weights(site)]
        fall = problem.predictors.from_weights(weights)
        return PrimalPoint(problem, lam * (problem.mt - fall) - b, lam, enough, factor, weights, fall)
    return PrimalPoint(problem, lam * (problem.mt + factor.apply(site)) - b, lam, enough, factor)
