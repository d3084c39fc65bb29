"""The paper's solver: quasi-Newton in tau, every step kept inside the domain of the conjugates.

    delta = (1 - eps) min(delta_0, min_n lam_n / |d_n|, ...)       over every constraint of the domain

then Armijo or Wolfe on the dual as if it were unconstrained, because the conjugates are barriers. It solves
well-conditioned problems; where it stalls it says so, with the true gap. A symmetric softmax lives on sum tau = 1, so
its last class is eliminated. The iteration itself is ``descend``, which the rivals share: L-BFGS on a ``Landscape``
with walls,

    x <- x + delta d,   d = -H g,   delta <= (1 - eps) limit(x, d)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ..checks import choice
from ..linalg.arrays import Array, asarray, to_numpy
from ..problem import DualPoint, Problem
from .base import ARMIJO, Outcome, Solver, Stopping

P = TypeVar("P")
Pairs = deque[tuple[np.ndarray, np.ndarray]]


class Landscape(ABC, Generic[P]):
    """A smooth function of a flat vector, inside walls. ``P`` is what one evaluation leaves behind."""

    @abstractmethod
    def at(self, x: np.ndarray) -> P:
        """Evaluate at x, which is inside."""

    @abstractmethod
    def value(self, point: P) -> float:
        """The function to be made small; +inf where it does not exist."""

    @abstractmethod
    def gradient(self, point: P) -> np.ndarray:
        """Its gradient in x."""

    def inside(self, x: np.ndarray) -> bool:
        """Whether x is strictly inside the walls."""
        return True

    def limit(self, x: np.ndarray, d: np.ndarray) -> float:
        """The step along d at which the first wall is met."""
        return np.inf


Place = tuple[np.ndarray, P, np.ndarray]  # x, its point, its gradient


@dataclass(frozen=True)
class WalledSearch:
    """Bisection to a step inside the walls that satisfies Armijo and, unless it is None, the (weak) Wolfe condition."""

    armijo: float = ARMIJO
    wolfe: float | None = 0.9  # share of the slope that may be left: loose, as suits quasi-Newton directions
    margin: float = 1e-2  # the paper's epsilon: how far from the boundary a truncated step ends
    trials: int = 40

    def along(
        self, landscape: Landscape[P], here: Place[P], d: np.ndarray, first: float
    ) -> tuple[Place[P], float] | None:
        """The place a step along d leads to, and the step; None where d does not descend."""
        x, point, g = here
        slope = float(g @ d)
        if not slope < 0.0:
            return None
        start, limit = landscape.value(point), (1.0 - self.margin) * landscape.limit(x, d)
        lo, hi, step = 0.0, np.inf, min(first, limit)
        best = None
        for _ in range(self.trials):
            trial_x = x + step * d
            # rounding can put a feasible step on the boundary, where the gradient is infinite
            trial = landscape.at(trial_x) if landscape.inside(trial_x) else None
            if trial is None or not landscape.value(trial) <= start + self.armijo * step * slope:
                hi = step
            else:
                trial_g = landscape.gradient(trial)
                best = (trial_x, trial, trial_g), step
                if self.wolfe is None or trial_g @ d >= self.wolfe * slope or step >= limit:
                    return best
                lo = step
            step = (lo + hi) / 2 if np.isfinite(hi) else min(2.0 * step, limit)
        return best


def descend(
    landscape: Landscape[P], x: np.ndarray, memory: int = 20, search: WalledSearch | None = None
) -> Iterator[tuple[P, float]]:
    """Every iterate as (point, step), the start first with step 0. Ends where no step lowers the value any more."""
    search = search or WalledSearch()
    point, pairs = landscape.at(x), deque[tuple[np.ndarray, np.ndarray]](maxlen=memory)
    yield point, 0.0
    g = landscape.gradient(point)
    while True:
        d = -two_loop(g, pairs)
        first = 1.0 if pairs else min(1.0, 1.0 / max(1e-300, float(np.abs(g).max())))
        result = search.along(landscape, (x, point, g), d, first)
        if result is None and pairs:
            pairs.clear()  # once more, along the gradient
            continue
        if result is None:
            return
        (x_new, point, g_new), step = result
        dx, dg = x_new - x, g_new - g
        if dx @ dg > 1e-12 * np.sqrt((dx @ dx) * (dg @ dg)):
            pairs.append((dx, dg))
        x, g = x_new, g_new
        yield point, step


def two_loop(g: np.ndarray, pairs: Pairs) -> np.ndarray:
    """H g by the L-BFGS two-loop recursion."""
    q, stack = g.copy(), []
    for dx, dg in reversed(pairs):
        r = 1.0 / (dx @ dg)
        a = r * (dx @ q)
        q -= a * dg
        stack.append((a, r, dx, dg))
    if pairs:
        dx, dg = pairs[-1]
        q *= (dx @ dg) / (dg @ dg)
    for a, r, dx, dg in reversed(stack):
        q += (a - r * (dg @ q)) * dx
    return q


_SEARCHES = {"wolfe": WalledSearch(), "armijo": WalledSearch(wolfe=None)}


@dataclass(frozen=True)
class FeasibleLBFGS(Solver):
    """L-BFGS with feasible steps.

    Parameters
    ----------
    memory : int
        Pairs kept.
    line_search : {"wolfe", "armijo"} or WalledSearch
    """

    name = "lbfgs"

    memory: int = 20
    line_search: str | WalledSearch = "wolfe"

    def __post_init__(self) -> None:
        if not isinstance(self.line_search, WalledSearch):
            choice("FeasibleLBFGS", "line_search", self.line_search, tuple(_SEARCHES))

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        space, given = DualSpace(problem), self.line_search
        search = _SEARCHES[given] if isinstance(given, str) else given
        x = space.of(start.s)
        if not space.inside(x):
            x = space.of(problem.default_start())
        point, n, ending = start, 0, None
        for n, (point, step) in enumerate(descend(space, x, self.memory, search)):
            ending = stopping.record(n, point, step)
            if ending is not None:
                break
        if ending is None:
            ending = stopping.ended(point, "stalled", "the line search stalled", "; use method='newton'")
        if ending.code == "max_iter":
            ending = ending.advising(", or use method='newton'")
        return Outcome(point, ending, n, stopping.trace)


class DualSpace(Landscape[DualPoint]):
    """tau as a flat vector of free variables, with the constraints of the domain.

    Dead potentials (a lowest level's lower edge) have no variable; a symmetric softmax has K - 1 an observation.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.domain = problem, problem.dual.domain_of(problem.rows)
        s = problem.dual.start(problem.rows, 1.0)
        live = to_numpy(problem.dual.site(s, problem.rows).spread) > 0.0
        if self.domain.exactly:
            live[:, -1] = False
        self.live, self.shape = live, live.shape
        self.weight = np.broadcast_to(to_numpy(problem.weight)[:, None], live.shape)
        self.lower, self.upper = (
            np.broadcast_to(to_numpy(bound), live.shape)[live] for bound in (self.domain.lower, self.domain.upper)
        )
        self.total = np.broadcast_to(to_numpy(self.domain.total), live.shape[:1])
        self.observation = np.nonzero(live)[0]

    def of(self, s: Array) -> np.ndarray:
        return to_numpy(self.problem.dual.site(s, self.problem.rows).tau)[self.live]

    def _sums(self, x: np.ndarray) -> np.ndarray:
        return np.bincount(self.observation, weights=x, minlength=self.shape[0])

    def inside(self, x: np.ndarray) -> bool:
        return bool((x > self.lower).all() and (x < self.upper).all() and (self._sums(x) < self.total).all())

    def at(self, x: np.ndarray) -> DualPoint:
        dual, rows = self.problem.dual, self.problem.rows
        tau = np.zeros(self.shape)
        tau[self.live] = x
        if self.domain.exactly:
            tau[:, -1] = 1.0 - self._sums(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            s = to_numpy(dual.coordinate(asarray(tau, self.problem.weight), rows))
        dead = ~self.live
        if self.domain.exactly:
            dead[:, -1] = False
        s = np.where(dead, to_numpy(dual.start(rows, 1.0)), s)
        return self.problem.at(asarray(s, self.problem.weight))

    def value(self, point: DualPoint) -> float:
        return point.dual

    def gradient(self, point: DualPoint) -> np.ndarray:
        g = self.weight * to_numpy(point.g)
        if self.domain.exactly:
            g = g - g[:, -1:]
        return g[self.live]

    def limit(self, x: np.ndarray, d: np.ndarray) -> float:
        """The step at which the first constraint becomes active."""
        with np.errstate(divide="ignore", invalid="ignore"):
            down = np.where(d < 0, (x - self.lower) / -d, np.inf)
            up = np.where(d > 0, (self.upper - x) / d, np.inf)
            total = self._sums(d)
            out = np.where(total > 0, (self.total - self._sums(x)) / total, np.inf)
        return float(min(down.min(initial=np.inf), up.min(initial=np.inf), out.min(initial=np.inf)))
