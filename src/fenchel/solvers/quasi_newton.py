"""L-BFGS on a landscape with walls: what the paper's solver and its rivals share.

    x <- x + delta d,   d = -H g,   delta <= (1 - eps) limit(x, d)

A search stays inside the walls and satisfies Armijo, and the (weak) Wolfe condition if asked, by bisection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ..linalg.tolerances import ARMIJO

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
        found = search.along(landscape, (x, point, g), d, first)
        if found is None and pairs:
            pairs.clear()  # once more, along the gradient
            continue
        if found is None:
            return
        (x_new, point, g_new), step = found
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
