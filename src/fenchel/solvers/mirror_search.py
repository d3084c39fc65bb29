"""How far mirror Newton goes along its direction: whole steps on trust, careful ones when trust is spent.

A step is whole unless it would move a coordinate beyond the likelihood's reach, where exp would overshoot. It need not
lower the dual at once: under a wide prior the curve tau(s) leaves the stiff directions of S, the dual rises, and the
next Newton step, exact in those directions, more than pays it back. After some steps without a new best the search goes
back to the best one and takes a careful step. Where the promised decrease is below rounding of the dual, the gap
judges: a sum of nonnegative terms, it keeps its digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..linalg.arrays import Array, namespace
from ..linalg.tolerances import ARMIJO, MANY_ROWS, PATIENCE, ROUNDING, SLOW, SLOW_STEPS
from ..priors.base import NewtonSystem
from ..problem import Point, Problem
from .base import Stopping
from .directions import MirrorDirection

_MOST = 0.9  # the share of its tau that a row may lose on a way that is straight

Found = tuple[Point, float]  # the next point and its step


class Walk:
    """Where a run is: the point, the best one so far, and how it went lately."""

    def __init__(self, start: Point, patience: int) -> None:
        self.point, self.best = start, start
        self.given_up: Point | None = None  # the best point of a first attempt that stagnated
        self.n, self.step, self.slow, self.patience, self.most = 0, 0.0, 0, patience, patience

    def move(self, point: Point, step: float) -> None:
        """On to the next point."""
        if point.gap > SLOW * self.point.gap:
            self.slow += 1
        elif self.slow < SLOW_STEPS:
            self.slow = max(0, self.slow - 1)
        better = point.dual <= self.best.dual or point.gap < self.best.gap
        self.best, self.patience = (point, self.most) if better else (self.best, self.patience - 1)
        self.point, self.step, self.n = point, step, self.n + 1

    def end(self, stopping: Stopping) -> Point:
        """The point to return."""
        point = self.point
        if not stopping.reached(point) and self.best.dual < point.dual:
            point = self.best
        return self.given_up if self.given_up is not None and self.given_up.gap < point.gap else point


@dataclass(frozen=True)
class MirrorSearch:
    """A search along Newton's direction of the dual."""

    armijo: float = ARMIJO
    rounding: float = ROUNDING  # of |dual|: predicted decreases below this are judged by the gap
    patience: int = PATIENCE  # steps without a new best before the search goes back
    shortest: float = 1 / 16  # careful steps shorter than this are damped instead
    dampings: int = 13  # each four times as strong as the one before
    lengths: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25, 0.0625, 1e-3, 1e-6)  # tried where the gap judges

    def advance(self, problem: Problem, walk: Walk, direction: MirrorDirection, reach: Any) -> Found | None:
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

    def by_gap(self, problem: Problem, point: Point, ds: Array) -> Found | None:
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

    def careful(self, problem: Problem, point: Point, direction: MirrorDirection) -> Found | None:
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
    if problem.active.size < MANY_ROWS:
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
