"""Natural gradient steps of an ELBO without a dual, where rows are many and weights few.

    lam' = lam+(h, rho),    rho' = diag(W V' W') + c,    b' = lam' h - alpha+(h, rho')

One factorisation a step, and no system is solved beyond it. A step is Newton's in the means, with the variances of the
new sites in their place: what it misses of a mean is its share rho of the last error, and rho is small where rows are
many times the weights. From one point to the next the means take Newton's step by the old factor first, so that lam' is
that of where they will be. A step that lowers the elbo is shortened in (b, lam). ``CoupledNewton`` takes over where
short steps do not raise it either, or where steps do not converge as fast as that.

How much is missing is told by the decrement of the natural gradient, an upper bound on r' Vt r + d' (Vt o Vt) d / 2:

    d' (Vt o Vt) d <= sum_n rho_n d_n^2 / lam_n,    as the rows of (Vt o Vt) Lam sum to diag(Vt Lam Vt) <= rho

It steers; the certificate proves, and is asked for only where this says that it can succeed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..likelihoods.base import Likelihood, Rows
from ..linalg.arrays import Array, namespace
from ..linalg.dense import NotPositiveDefinite
from ..primal import PrimalPoint, natural_step, with_slopes
from ..problem import Problem
from .base import SLOW, Ending, Stopping
from .initial_point import is_tall, sampled

_PROVABLE = 1e-3  # of tol: what may be promised where a proof is tried; its bound is a thousand times that, or more
_ROUNDING = 1e-11  # of |elbo|: a fall below this is none
_SHORTEST = 2.0**-5  # share of a step; where a shorter one is needed CoupledNewton takes over
_WORTHWHILE = 0.1  # of what was promised: after such a rise steps go on, even where they promise little less
_LEVEL_ROWS = 4096  # of which the level is found
_LEVEL_STEPS = 6  # of Newton's method
_LEVEL_STEP = 2.0  # the longest, in units of eta


@dataclass(frozen=True)
class RowSteps:
    """Steps for many rows with few weights."""

    rows: int = 10_000  # from how many rows on
    share: int = 15  # rows for each weight; samples have 20 for each inducing point, and the level is a weight too
    rough: float = 0.1  # nats for each weight that the fit of a sample of the rows may leave

    def serves(self, problem: Problem) -> bool:
        """Whether the rows are many, see one weight vector, and have one best Gaussian."""
        n, weights = problem.active.size, problem.predictors.n_weights
        if not (n >= self.rows and weights is not None and problem.mt.shape[1] == 1):
            return False
        plain = problem.bound.log_concave and problem.bound.over_contrasts is None
        return plain and not problem.bound.convex and n >= self.share * weights

    def start(self, problem: Problem, steers: bool = False) -> tuple[PrimalPoint | None, int]:
        """A step from the fit of a sample of the rows, or from the level they share, and how many steps it took.

        None where it is not finite.
        """
        if not is_tall(problem):
            h = problem.mt + common_level(problem.likelihood, problem.rows, problem.mt)
            return self.step(problem, h, 0.0 * h, steers), 1
        few, predictors = sampled(problem), problem.predictors
        first, n = self.start(few, steers=True)
        if first is None:
            return None, 0
        tol = self.rough * (predictors.n_weights or 0) / float(namespace(few.weight).sum(few.weight))
        near, _, n = self.run(few, first, n, Stopping(tol, 30, steers=True))
        h = problem.mt - predictors.from_weights(near.weights or [])
        rho = 0.0 * h + float(namespace(h).mean(near.rho))
        return self.step(problem, h, rho, steers), n + 1

    def step(self, problem: Problem, h: Array, rho: Array, steers: bool) -> PrimalPoint | None:
        """The point one step from the marginals (h, rho); None if it is not finite.

        Its certificate is the cheap one, or none where it only ``steers``.
        """
        alpha, lam = problem.loss(h, rho).slopes
        try:
            factor = problem.predictors.at(lam)
        except NotPositiveDefinite:
            return None
        if not factor.nearly_uncoupled:
            alpha = problem.loss(h, factor.variance + problem.predictors.extra_variance).slopes[0]
        point = with_slopes(problem, lam * h - alpha, lam, factor, None if steers else np.inf)
        return point if np.isfinite(point.elbo) else None

    def promise(self, point: PrimalPoint) -> float:
        """What the natural gradient promises, at most, twice: nats."""
        xp, factor, d = namespace(point.h), point.factor, point.d
        assert point.weights is not None
        lam = xp.where(point.lam > 0.0, point.lam, xp.ones_like(point.lam))
        bent = 0.5 * float(xp.sum(factor.variance * d * d / lam))
        return factor.weights_decrement(point.weights, point.loss.slopes[0]) + bent

    def run(
        self, problem: Problem, point: PrimalPoint, n: int, stopping: Stopping
    ) -> tuple[PrimalPoint, Ending | None, int]:
        """From a point to where ``stopping`` ends it; without an ending where these steps can do no more."""
        before, risen, t = np.inf, 0.0, 1.0
        while True:
            promise, steers = self.promise(point), stopping.steers
            near = promise <= _PROVABLE * stopping.tol * max(1.0, abs(point.elbo))
            if not steers and (near or n >= stopping.max_iter):
                point.prove(stopping.tol)
            ending = stopping.record(n, point, t)
            if ending is not None:
                return point, ending, n
            move = point.factor.apply(point.r)  # Newton's step in the means by the factor at hand
            if (ending := stopping.steered(point, promise)) is not None:
                point.ahead = point.h + move
                return point, ending, n
            slow = promise > SLOW * before and risen < _WORTHWHILE * before
            result, t = (None, t) if slow else self.along(problem, point, move, steers)
            if result is None:
                point.prove(stopping.tol)
                return point, None, n
            risen, point, before, n = result.elbo - point.elbo, result, promise, n + 1

    def along(
        self, problem: Problem, point: PrimalPoint, move: Array, steers: bool
    ) -> tuple[PrimalPoint | None, float]:
        """The next point and its step: 1, or the longest of a few shorter ones that does not lower the elbo."""
        least, t = point.elbo - _ROUNDING * abs(point.elbo), 1.0
        result = self.step(problem, point.h + move, point.rho, steers)
        while result is None or not result.elbo >= least:
            t /= 2.0
            if t < _SHORTEST:
                return None, t
            with suppress(NotPositiveDefinite):
                result = natural_step(problem, point, t, None if steers else np.inf)
        return result, t


def common_level(likelihood: Likelihood, rows: Rows, mean: Array) -> float:
    """What eta is above its prior mean (N, 1) in all rows alike, by some thousand of them: Newton's for one number."""
    every, level = max(1, mean.shape[0] // _LEVEL_ROWS), 0.0
    rows, mean = {key: x[::every] for key, x in rows.items()}, mean[::every]
    xp, weight = namespace(mean), rows["weight"]
    for _ in range(_LEVEL_STEPS):
        slope, bend = (float(xp.sum(weight * x[:, 0])) for x in likelihood.derivatives(mean + level, rows)[1:])
        if not bend > 0.0:
            return 0.0
        level -= min(max(slope / bend, -_LEVEL_STEP), _LEVEL_STEP)
    return level
