"""Mirror Newton: Newton's direction of the dual, walked in the coordinate s = k'(tau).

    ds = -(I + M J)^-1 (s - s*),    J = dtau/ds

Every s is feasible, so no boundary ever truncates a step; 5 to 10 iterations are typical. The direction is a
``MirrorDirection``; how far to go along it is a ``MirrorSearch``:

A step is whole unless it would move a coordinate beyond the likelihood's reach, where exp would overshoot. It need not
lower the dual at once: under a wide prior the curve tau(s) leaves the stiff directions of S, the dual rises, and the
next Newton step, exact in those directions, more than pays it back. After some steps without a new best the search
goes back to the best one and takes a careful step. Where the promised decrease is below rounding of the dual, the gap
judges: a sum of nonnegative terms, it keeps its digits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import gates
from ..checks import instance, scalar
from ..linalg.arrays import Array, namespace
from ..linalg.dense import NotPositiveDefinite
from ..priors.base import NewtonSystem
from ..problem import DualPoint, Problem
from .base import ARMIJO, PATIENCE, ROUNDING, SLOW, SLOW_STEPS, Accuracy, Finisher, Outcome, Solver, Stopping, relative
from .initial_point import ROUGH, is_tall, leaves_little, levelled, refined, sampled, smaller, start_of

_MOST = 0.9  # the share of its tau that a row may lose on a way that is straight

Found = tuple[DualPoint, float]  # the next point and its step


class MirrorWalk:
    """Where a run is: the point, the best one so far, and how it went lately."""

    def __init__(self, start: DualPoint, patience: int) -> None:
        self.point, self.best = start, start
        self.given_up: DualPoint | None = None  # the best point of a first attempt that stagnated
        self.n, self.step, self.slow, self.patience, self.most = 0, 0.0, 0, patience, patience

    def move(self, point: DualPoint, step: float) -> None:
        """On to the next point."""
        if point.gap > SLOW * self.point.gap:
            self.slow += 1
        elif self.slow < SLOW_STEPS:
            self.slow = max(0, self.slow - 1)
        better = point.dual <= self.best.dual or point.gap < self.best.gap
        self.best, self.patience = (point, self.most) if better else (self.best, self.patience - 1)
        self.point, self.step, self.n = point, step, self.n + 1

    def end(self, stopping: Stopping) -> DualPoint:
        """The point to return."""
        point = self.point
        if not stopping.reached(point) and self.best.dual < point.dual:
            point = self.best
        return self.given_up if self.given_up is not None and self.given_up.gap < point.gap else point


@dataclass(frozen=True)
class MirrorDirection:
    """Newton's direction of the dual in s."""

    accuracy: Accuracy = field(default_factory=Accuracy)

    def system(self, point: DualPoint, economical: bool = False) -> NewtonSystem:
        """Newton's system; a prior may use a cheaper curvature while that is ``economical``."""
        return point.newton_system(self.accuracy.at(point), economical)

    def along(self, point: DualPoint, system: NewtonSystem) -> tuple[Array, Array] | None:
        """(ds, dtau) of Newton's system; None where rounding defeats it, at a point too far out."""
        try:
            return point.factor.direction(system)
        except NotPositiveDefinite:
            return None

    def damped(self, point: DualPoint, system: NewtonSystem, share: float) -> tuple[Array, Array] | None:
        """(ds, dtau) of ((1 + mu) J^-1 + M) dtau = -g, 1 / (1 + mu) = share.

        It keeps the stiff directions of a wide prior whole and shortens the others; a short step shortens all alike.
        """
        slack = None if system.slack is None else share * system.slack
        return self.along(point, replace(system, spread=share * system.spread, slack=slack))


@dataclass(frozen=True)
class MirrorSearch:
    """A search along Newton's direction of the dual."""

    armijo: float = ARMIJO
    rounding: float = ROUNDING  # of |dual|: predicted decreases below this are judged by the gap
    patience: int = PATIENCE  # steps without a new best before the search goes back
    shortest: float = 1 / 16  # careful steps shorter than this are damped instead
    dampings: int = 13  # each four times as strong as the one before
    lengths: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25, 0.0625, 1e-3, 1e-6)  # tried where the gap judges

    def advance(self, problem: Problem, walk: MirrorWalk, direction: MirrorDirection, reach: Any) -> Found | None:
        """One iteration: the next point and its step, or None when nothing improves on this one."""
        point, best = walk.point, walk.best
        system = direction.system(point, economical=walk.slow < SLOW_STEPS)
        found = direction.along(point, system)
        if found is None:
            return None if point is best else self.careful(problem, best, direction)
        ds, dtau = found
        slope = float(namespace(ds).sum(point.g * dtau))
        if not -slope > self.rounding * max(1.0, abs(point.dual)):
            return self.by_gap(problem, point, ds)
        move = bounded(system, ds, reach)
        trial = problem.at(moved(problem, point.s, move))
        predicted = float(namespace(ds).sum(point.g * system.forward(move)))
        if trial.dual <= best.dual - self.armijo * abs(predicted):
            return trial, 1.0
        if walk.patience > 0 and trial.dual < float("inf"):
            return trial, 1.0
        del trial
        return self.careful(problem, best, direction)

    def by_gap(self, problem: Problem, point: DualPoint, ds: Array) -> Found | None:
        """Where the dual is flat to rounding: the longest step that shrinks the gap, or lowers the dual after all.

        The second happens when a start has pushed some class to a probability of 1e-20 that deserves 1e-2: its slope
        vanishes, and only a long step meets the curvature again.
        """
        rounding = 0.1 * self.rounding * max(1.0, abs(point.dual))
        for step in self.lengths:
            trial = problem.at(moved(problem, point.s, step * ds))
            if trial.dual < point.dual - rounding or (trial.dual < float("inf") and trial.gap < point.gap):
                return trial, step
            del trial
        return None

    def careful(self, problem: Problem, point: DualPoint, direction: MirrorDirection) -> Found | None:
        """A step that lowers the dual: Armijo along Newton's direction, then along ever more damped ones.

        The step reported is then the share of J that was left.
        """
        system = direction.system(point)
        found = direction.along(point, system)
        if found is None:
            return None
        ds, dtau = found
        slope, step = float(namespace(ds).sum(point.g * dtau)), 1.0
        while step >= self.shortest:
            trial = problem.at(point.s + step * ds)
            if trial.dual <= point.dual + self.armijo * step * slope:
                return trial, step
            del trial  # its memory is the next one's
            step /= 2
        for power in range(1, self.dampings + 1):
            share = 4.0**-power
            found = direction.damped(point, system, share)
            if found is None:
                continue
            ds, dtau = found
            trial = problem.at(point.s + share * ds)
            if trial.dual <= point.dual + self.armijo * float(namespace(ds).sum(point.g * dtau)):
                return trial, share
            del trial
        return None


def moved(problem: Problem, s: Array, ds: Array) -> Array:
    """s + ds; with many rows, where S is stiffest, tau goes straight if it can, and S alpha as foreseen.

    Where it cannot for rows that would lose nearly all of their tau, they go less far.
    """
    if problem.active.size < gates.MANY_ROWS:
        return s + ds
    for step in (ds, namespace(ds).maximum(ds, 0.0 * ds - _MOST)):
        there = problem.straight(s, step)
        if there is not None:
            return there
    return s + ds


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


@dataclass(frozen=True)
class MirrorNewton(Solver):
    """The default solver.

    Parameters
    ----------
    search : MirrorSearch
        How far a step goes.
    reach : float, optional
        How far one step may move a coordinate of s; default: as far as the likelihood says.
    finish : CoupledNewton or other Finisher, optional
        Goes on where the search stagnates. A point is named by s, and where lam times the prior variance is huge
        (counts of a billion, noise of 1e-12) the spacing of floating-point numbers at s moves h = mt - S alpha by many
        standard deviations; a search that names its points otherwise is not bound by that.
    direction : MirrorDirection
        How exactly Newton's system is solved.
    hope : float
        A relative gap above this is no matter of rounding: begin again, once, rather than give up.
    late, blurred : int, float
        After ``late`` iterations, a gap within ``blurred`` times what the spacing of s makes is left to ``finish``.

    Examples
    --------
    >>> import numpy as np, fenchel
    >>> from fenchel.solvers import CoupledNewton, MirrorNewton, MirrorSearch
    >>> solver = MirrorNewton(MirrorSearch(patience=2), reach=2.0, finish=CoupledNewton())
    >>> fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(3)), [1, 0, 9], solver).converged
    True
    """

    name = "newton"

    search: MirrorSearch = field(default_factory=MirrorSearch)
    reach: float | None = None
    finish: Finisher | None = None
    direction: MirrorDirection = field(default_factory=MirrorDirection)
    hope: float = 1e-9
    late: int = 12
    blurred: float = 100.0

    def __post_init__(self) -> None:
        instance("MirrorNewton", "search", self.search, MirrorSearch, "MirrorSearch()")
        if self.reach is not None:
            scalar("MirrorNewton", "reach", self.reach, 0.0)
        if self.finish is not None:
            instance("MirrorNewton", "finish", self.finish, Finisher, "CoupledNewton()")

    def solve(self, problem: Problem, start: Array | None, stopping: Stopping) -> Outcome:
        with np.errstate(all="ignore"):
            s = start if is_tall(problem) else None
            if start is None:
                s = self.sampled_start(problem) if is_tall(problem) else self.smaller_start(problem)
            point = None if s is None else problem.at(s)
            if point is not None and np.isfinite(point.dual):
                return self.run(problem, point, stopping)
        return super().solve(problem, start, stopping)

    def sampled_start(self, problem: Problem) -> Array | None:
        """From the fit of fewer rows, good to a fraction of what their fewness costs anyway; None if that fails."""
        few = sampled(problem)
        rough = Stopping(0.1 * (problem.predictors.n_weights or 0) / problem.active.size, 30)
        found = self.solve(few, None, rough)
        return refined(problem, start_of(problem, few, found.point.alpha)) if found.converged else None

    def smaller_start(self, problem: Problem) -> Array | None:
        """From the fit through few rows of a covariance; None where there is none, it fails, or it is far away."""
        few = smaller(problem)
        if few is None:
            return None
        found = self.solve(few, None, Stopping(ROUGH, 30))
        return found.point.s if found.converged and leaves_little(problem, few, found.point.s) else None

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        walk = MirrorWalk(start, self.search.patience)
        del start  # its memory is the first trial's
        while (ending := stopping.record(walk.n, walk.point, walk.step)) is None:
            found = self.next(problem, walk)
            if found is None:
                ending = stopping.stagnated(walk.point)
                further = None if self.finish is None else self.finish.finish(problem, walk.best, walk.n, stopping)
                if further is not None and (further.converged or further.point.elbo > walk.best.elbo):
                    return replace(further, method=f"{self.name}, then {further.method}")
                break
            walk.move(*found)
        return Outcome(walk.end(stopping), ending, walk.n, stopping.trace)

    def next(self, problem: Problem, walk: MirrorWalk) -> Found | None:
        """The next point and its step; None where this search can do no more."""
        point = walk.point
        if self.finish is not None and walk.n >= self.late and point.gap <= self.blurred * point.blur:
            return None
        reach = problem.dual.reach(problem.rows) if self.reach is None else self.reach
        found = self.search.advance(problem, walk, self.direction, reach)
        if found is None and walk.given_up is None and relative(walk.best) > self.hope:
            walk.given_up = walk.best  # a start so saturated that its curvature vanished: begin where it is
            walk.best = problem.at(levelled(problem, problem.default_start()))
            found = walk.best, 0.0
        return found
