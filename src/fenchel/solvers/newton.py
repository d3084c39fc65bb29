"""Mirror Newton: Newton's method for the dual, with steps in the mirror coordinate s = k'(tau).

    ds = -(I + M J)^-1 (s - s*),    J = dtau/ds

Every s is feasible, so no boundary ever truncates a step; 5 to 10 iterations are typical. The direction is a
``MirrorDirection``, and a ``MirrorSearch`` chooses the length of a step:

A step is full unless it would move a coordinate beyond the reach of the likelihood, where exp overflows. It need not
decrease the dual at once: under a wide prior the curve tau(s) leaves the stiff directions of S, the dual rises, and
the next Newton step, exact in those directions, decreases it by more. After some steps without a new best point the
search returns to the best one and takes a step that decreases the dual. If the predicted decrease is below the
rounding of the dual, steps are judged by the gap, which as a sum of nonnegative terms is accurate.
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

_MOST = 0.9  # share of its tau that a row may lose in a step along a straight line

NextPoint = tuple[DualPoint, float]  # the next point and its step


class MirrorWalk:
    """The state of a run: the current point, the best one, and recent progress."""

    def __init__(self, start: DualPoint, patience: int) -> None:
        self.point, self.best = start, start
        self.given_up: DualPoint | None = None  # the best point of a first attempt that stagnated
        self.n, self.step, self.slow, self.patience, self.most = 0, 0.0, 0, patience, patience

    def move(self, point: DualPoint, step: float) -> None:
        """Go to the next point."""
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
        """Newton's system; with ``economical`` a prior may use a cheaper curvature."""
        return point.newton_system(self.accuracy.at(point), economical)

    def along(self, point: DualPoint, system: NewtonSystem) -> tuple[Array, Array] | None:
        """(ds, dtau) of Newton's system; None if it is singular up to rounding, far from the optimum."""
        try:
            return point.factor.direction(system)
        except NotPositiveDefinite:
            return None

    def damped(self, point: DualPoint, system: NewtonSystem, share: float) -> tuple[Array, Array] | None:
        """(ds, dtau) of ((1 + mu) J^-1 + M) dtau = -g, 1 / (1 + mu) = share.

        Damping keeps the stiff directions of a wide prior and shortens the others; a shorter step would shorten all.
        """
        slack = None if system.slack is None else share * system.slack
        return self.along(point, replace(system, spread=share * system.spread, slack=slack))


@dataclass(frozen=True)
class MirrorSearch:
    """A search along Newton's direction of the dual."""

    armijo: float = ARMIJO
    rounding: float = ROUNDING  # predicted decrease, relative to |dual|, below which the gap judges
    patience: int = PATIENCE  # steps without a new best point before the search returns to it
    shortest: float = 1 / 16  # careful steps shorter than this are damped instead
    dampings: int = 13  # number of dampings, each four times as strong as the one before
    lengths: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25, 0.0625, 1e-3, 1e-6)  # tried if the gap judges

    def advance(self, problem: Problem, walk: MirrorWalk, direction: MirrorDirection, reach: Any) -> NextPoint | None:
        """One iteration: the next point and its step length, or None if no step improves on this point."""
        point, best = walk.point, walk.best
        system = direction.system(point, economical=walk.slow < SLOW_STEPS)
        result = direction.along(point, system)
        if result is None:
            return None if point is best else self.careful(problem, best, direction)
        ds, dtau = result
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

    def by_gap(self, problem: Problem, point: DualPoint, ds: Array) -> NextPoint | None:
        """If the dual is flat up to rounding: the longest step that decreases the gap, or the dual after all.

        The second happens if a start has given a class a probability of 1e-20 instead of 1e-2: its slope vanishes, and
        only a long step reaches the curvature again.
        """
        rounding = 0.1 * self.rounding * max(1.0, abs(point.dual))
        for step in self.lengths:
            trial = problem.at(moved(problem, point.s, step * ds))
            if trial.dual < point.dual - rounding or (trial.dual < float("inf") and trial.gap < point.gap):
                return trial, step
            del trial
        return None

    def careful(self, problem: Problem, point: DualPoint, direction: MirrorDirection) -> NextPoint | None:
        """A step that decreases the dual: Armijo along Newton's direction, then along increasingly damped ones.

        The reported step of a damped one is the remaining share of J.
        """
        system = direction.system(point)
        result = direction.along(point, system)
        if result is None:
            return None
        ds, dtau = result
        slope, step = float(namespace(ds).sum(point.g * dtau)), 1.0
        while step >= self.shortest:
            trial = problem.at(point.s + step * ds)
            if trial.dual <= point.dual + self.armijo * step * slope:
                return trial, step
            del trial  # its memory is the next one's
            step /= 2
        for power in range(1, self.dampings + 1):
            share = 4.0**-power
            result = direction.damped(point, system, share)
            if result is None:
                continue
            ds, dtau = result
            trial = problem.at(point.s + share * ds)
            if trial.dual <= point.dual + self.armijo * float(namespace(ds).sum(point.g * dtau)):
                return trial, share
            del trial
        return None


def moved(problem: Problem, s: Array, ds: Array) -> Array:
    """s + ds; with many rows, where S is stiffest, a straight step in tau if it is feasible.

    If rows would lose nearly all of their tau, their step is shortened first.
    """
    if problem.active.size < gates.MANY_ROWS:
        return s + ds
    for step in (ds, namespace(ds).maximum(ds, 0.0 * ds - _MOST)):
        straight_s = problem.straight(s, step)
        if straight_s is not None:
            return straight_s
    return s + ds


def bounded(system: NewtonSystem, ds: Array, reach: Any) -> Array:
    """ds with every coordinate limited to ``reach``; for a softmax, relative to the mean over the classes."""
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
    """The default solver: Newton's method for the dual in mirror coordinates.

    Parameters
    ----------
    search : MirrorSearch
        Chooses the length of a step.
    reach : float, optional
        Largest change of a coordinate of s in one step. Default: that of the likelihood.
    finish : CoupledNewton or other Finisher, optional
        Solver that goes on where the search stagnates. If lam times the prior variance is huge (counts of a billion,
        noise of 1e-12) the spacing of floating-point numbers at s changes h = mt - S alpha by many standard deviations;
        a solver with other coordinates does not have this limit.
    direction : MirrorDirection
        Solves Newton's system, to an accuracy that it chooses.
    hope : float
        A run that stagnates with a relative gap above this restarts once at the default start.
    late, blurred : int, float
        After ``late`` iterations a gap below ``blurred`` times the effect of the spacing of s is left to ``finish``.

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
        """A start from a fit of a sample of the rows, to an accuracy below its sampling error; None if that fails."""
        few = sampled(problem)
        rough = Stopping(0.1 * (problem.predictors.n_weights or 0) / problem.active.size, 30)
        result = self.solve(few, None, rough)
        return refined(problem, start_of(problem, few, result.point.alpha)) if result.converged else None

    def smaller_start(self, problem: Problem) -> Array | None:
        """A start from the fit through few rows of a covariance; None if there is none, it fails, or it is far away."""
        few = smaller(problem)
        if few is None:
            return None
        result = self.solve(few, None, Stopping(ROUGH, 30))
        return result.point.s if result.converged and leaves_little(problem, few, result.point.s) else None

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        walk = MirrorWalk(start, self.search.patience)
        del start  # frees its memory for the first trial
        while (ending := stopping.record(walk.n, walk.point, walk.step)) is None:
            result = self.next(problem, walk)
            if result is None:
                ending = stopping.stagnated(walk.point)
                further = None if self.finish is None else self.finish.finish(problem, walk.best, walk.n, stopping)
                if further is not None and (further.converged or further.point.elbo > walk.best.elbo):
                    return replace(further, method=f"{self.name}, then {further.method}")
                break
            walk.move(*result)
        return Outcome(walk.end(stopping), ending, walk.n, stopping.trace)

    def next(self, problem: Problem, walk: MirrorWalk) -> NextPoint | None:
        """The next point and its step length; None if this search makes no further progress."""
        point = walk.point
        if self.finish is not None and walk.n >= self.late and point.gap <= self.blurred * point.blur:
            return None
        reach = problem.dual.reach(problem.rows) if self.reach is None else self.reach
        result = self.search.advance(problem, walk, self.direction, reach)
        if result is None and walk.given_up is None and relative(walk.best) > self.hope:
            walk.given_up = walk.best  # the start was saturated, without curvature: restart at the default one
            walk.best = problem.at(levelled(problem, problem.default_start()))
            result = walk.best, 0.0
        return result
