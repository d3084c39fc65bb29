"""Mirror Newton: Newton's direction of the dual, walked in the coordinate s = k'(tau).

    ds = -(I + M J)^-1 (s - s*),    J = dtau/ds

Every s is feasible, so no boundary ever truncates a step; 5 to 10 iterations are typical. The direction is of
``directions.py``, how far to go along it of ``mirror_search.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..checks import instance, scalar
from ..linalg.arrays import Array
from ..priors.capabilities import HasFewWeights
from ..problem import Point, Problem
from .base import Finisher, Outcome, Solver, Stopping, relative
from .directions import MirrorDirection
from .initial_point import levelled
from .mirror_search import Found, MirrorSearch, Walk
from .row_sample import is_tall, refined, sampled, start_of


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
        if is_tall(problem):
            with np.errstate(all="ignore"):
                s = self.sampled_start(problem) if start is None else start
                point = None if s is None else problem.at(s)
                if point is not None and np.isfinite(point.dual):
                    return self.run(problem, point, stopping)
        return super().solve(problem, start, stopping)

    def sampled_start(self, problem: Problem) -> Array | None:
        """From the fit of fewer rows, good to a fraction of what their fewness costs anyway; None if that fails."""
        few, predictors = sampled(problem), problem.predictors
        assert isinstance(predictors, HasFewWeights)
        rough = Stopping(0.1 * predictors.n_weights / problem.active.size, 30)
        found = self.solve(few, None, rough)
        return refined(problem, start_of(problem, few, found.point.alpha)) if found.converged else None

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        walk = Walk(start, self.search.patience)
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

    def next(self, problem: Problem, walk: Walk) -> Found | None:
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
