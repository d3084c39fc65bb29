"""Mirror Newton: Newton's direction of the dual, walked in the coordinate s = k'(tau).

    ds = -(I + M J)^-1 (s - s*),    J = dtau/ds

Every s is feasible, so no boundary ever truncates a step; 5 to 10 iterations are typical. A step is whole unless it
would move a coordinate beyond the likelihood's reach, where exp would overshoot. It need not lower the dual at once:
under a wide prior the curve tau(s) leaves the stiff directions of S, the dual rises, and the next Newton step, exact in
those directions, more than pays it back. After eight steps without a new best the search goes back to the best one and
takes a careful step. Where the promised decrease is below rounding of the dual, the gap judges: a sum of nonnegative
terms, it keeps its digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..linalg.arrays import Array, namespace
from ..linalg.dense import NotPositiveDefinite
from ..priors.base import NewtonSystem
from ..problem import Point, Problem
from .base import Outcome, Solver, Stopping, relative
from .thinned import is_tall, refined, start_of, thinned

_ARMIJO = 1e-4
_ROUNDING = 1e-10  # of |dual|: predicted decreases below this are judged by the gap
_PATIENCE = 8  # steps without a new best before the search goes back
_HOPE = 1e-9  # a relative gap above this is no matter of rounding: begin again rather than give up
_LATE, _BLURRED = 12, 100.0  # iterations after which a gap within this of what the spacing of s makes is left at that
_SHORTEST = 1 / 16  # careful steps shorter than this are damped instead


class MirrorNewton(Solver):
    """The default solver.

    Parameters
    ----------
    finish : callable (problem, point, n, stopping) -> Outcome, optional
        Goes on where the search stagnates. A point is named by s, and where lam times the prior variance is huge
        (counts of a billion, noise of 1e-12) the spacing of floating-point numbers at s moves h = mt - S alpha by many
        standard deviations; a search that names its points otherwise is not bound by that.
    """

    name = "newton"

    def __init__(self, finish: Callable[[Problem, Point, int, Stopping], Outcome] | None = None) -> None:
        self.finish = finish

    def solve(self, problem: Problem, start: Array | None, stopping: Stopping) -> Outcome:
        if is_tall(problem):
            with np.errstate(all="ignore"):
                s = self.thinned_start(problem) if start is None else start
                point = None if s is None else problem.at(s)
                if point is not None and np.isfinite(point.dual):
                    return self.run(problem, point, stopping)
        return super().solve(problem, start, stopping)

    def thinned_start(self, problem: Problem) -> Array | None:
        """From the fit of fewer rows, good to a fraction of what their fewness costs anyway; None if that fails."""
        few, predictors = thinned(problem), cast(Any, problem.predictors)
        rough = Stopping(0.1 * predictors.n_weights / problem.active.size, 30)
        found = self.solve(few, None, rough)
        return refined(problem, start_of(problem, few, found.point.alpha)) if found.converged else None

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        point, best, n, step, patience, restarted = start, start, 0, 0.0, _PATIENCE, False
        slow, given_up = 0, None
        del start  # its memory is the first trial's
        while True:
            status = stopping.record(n, point, step)
            if status is not None:
                break
            before = point.gap
            blurred = self.finish is not None and n >= _LATE and point.gap <= _BLURRED * point.blur
            found = None if blurred else advance(problem, point, best, patience, slow < 2)
            if found is None and not blurred and not restarted and relative(best) > _HOPE:
                restarted, given_up = True, best  # a start so saturated that its curvature vanished: begin where it is
                found = problem.at(problem.default_start()), 0.0
                best = found[0]
            if found is None:
                status = stopping.stagnated(point)
                further = None if self.finish is None else self.finish(problem, best, n, stopping)
                if further is not None and (further.converged or further.point.elbo > best.elbo):
                    return further
                break
            (point, step), n = found, n + 1
            slow = slow + 1 if point.gap > 0.3 * before else max(0, slow - 1) if slow < 2 else slow
            better = point.dual <= best.dual or point.gap < best.gap
            best, patience = (point, _PATIENCE) if better else (best, patience - 1)
        if not stopping.reached(point) and best.dual < point.dual:
            point = best
        if given_up is not None and given_up.gap < point.gap:
            point = given_up
        return Outcome(point, status, stopping.reached(point), n, stopping.trace)


def advance(problem: Problem, point: Point, best: Point, patience: int, economical: bool) -> tuple[Point, float] | None:
    """One iteration: the next point and its step, or None when nothing improves on this one."""
    system = newton_system(point, economical)
    found = direction(point, system)
    if found is None:
        return None if point is best else careful(problem, best)
    ds, dtau = found
    slope = float(namespace(ds).sum(point.g * dtau))
    if not -slope > _ROUNDING * max(1.0, abs(point.dual)):
        return search_by_gap(problem, point, ds)
    move = bounded(system, ds, problem.dual.reach(problem.rows))
    trial = problem.at(moved(problem, point.s, move))
    predicted = float(namespace(ds).sum(point.g * system.forward(move)))
    if trial.dual <= best.dual - _ARMIJO * abs(predicted) or (patience > 0 and trial.dual < float("inf")):
        return trial, 1.0
    del trial
    return careful(problem, best)


def newton_system(point: Point, economical: bool = False) -> NewtonSystem:
    """Newton's system, to be solved the more exactly the nearer the optimum is.

    A prior may use a cheaper curvature while that is ``economical``: until two steps have not cut the gap to a third.
    """
    return point.newton_system(min(0.1, max(1e-9, relative(point) ** 0.5)), economical)


def direction(point: Point, system: NewtonSystem) -> tuple[Array, Array] | None:
    """(ds, dtau) of Newton's system; None where rounding defeats it, at a point too far out."""
    try:
        return point.factor.direction(system)
    except NotPositiveDefinite:
        return None


def moved(problem: Problem, s: Array, ds: Array) -> Array:
    """s + ds; with very many rows, where S is stiffest, tau goes straight if it can, and S alpha as foreseen."""
    there = problem.straight(s, ds) if is_tall(problem) else None
    return s + ds if there is None else there


def bounded(system: NewtonSystem, ds: Array, reach: Any) -> Array:
    """ds with every coordinate's move held to ``reach``; in a softmax, its move relative to the mean of all classes."""
    xp = namespace(ds)
    if system.slack is None:
        return xp.clip(ds, -reach, reach)
    total = system.slack + xp.sum(system.spread, axis=1)
    mean = (xp.sum(system.spread * ds, axis=1) / xp.where(total > 0.0, total, xp.ones_like(total)))[:, None]
    held = xp.clip(ds - mean, -reach, reach)
    reference = xp.clip(0.0 * ds - mean, -reach, reach)  # a reference class stays at s = 0
    return held - xp.where(system.slack[:, None] > 0.0, reference, 0.0 * ds - mean)


def search_by_gap(problem: Problem, point: Point, ds: Array) -> tuple[Point, float] | None:
    """Where the dual is flat to rounding: the longest of some steps that shrinks the gap, or lowers the dual after all.

    The second happens when a start has pushed some class to a probability of 1e-20 that deserves 1e-2: its slope
    vanishes, and only a long step meets the curvature again.
    """
    rounding = 0.1 * _ROUNDING * max(1.0, abs(point.dual))
    for step in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25, 0.0625, 1e-3, 1e-6):
        trial = problem.at(moved(problem, point.s, step * ds))
        if trial.dual < point.dual - rounding or (trial.dual < float("inf") and trial.gap < point.gap):
            return trial, step
        del trial
    return None


def careful(problem: Problem, point: Point) -> tuple[Point, float] | None:
    """A step that lowers the dual: Armijo along Newton's direction, then along ever more damped ones.

    Damping solves ((1 + mu) J^-1 + M) dtau = -g: it keeps the stiff directions of a wide prior whole and shortens the
    others, where a short step shortens all alike. The step reported is then 1 / (1 + mu).
    """
    system = newton_system(point)
    found = direction(point, system)
    if found is None:
        return None
    ds, dtau = found
    slope, step = float(namespace(ds).sum(point.g * dtau)), 1.0
    while step >= _SHORTEST:
        trial = problem.at(point.s + step * ds)
        if trial.dual <= point.dual + _ARMIJO * step * slope:
            return trial, step
        del trial  # its memory is the next one's
        step /= 2
    for power in range(1, 14):
        share = 4.0**-power
        slack = None if system.slack is None else share * system.slack
        found = direction(point, replace(system, spread=share * system.spread, slack=slack))
        if found is None:
            continue
        ds, dtau = found
        trial = problem.at(point.s + share * ds)
        if trial.dual <= point.dual + _ARMIJO * float(namespace(ds).sum(point.g * dtau)):
            return trial, share
        del trial
    return None
