"""Where the fit at a new theta starts: on the plane through the last few fits, seen as a function of theta.

A warm start is wrong by the first order in the step of theta; this one by the second, which saves a Newton iteration.
With few rows the plane is one of s. Many rows add up in alpha, of which a wide prior makes much: there it is one of the
sites' own tau, in which alpha is affine, and what the fits have in common (sums of alpha next to zero) stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..linalg.arrays import Array, asarray, to_numpy
from ..linalg.tolerances import MANY_ROWS
from ..problem import Problem
from ..solvers.solution import Solution

_SETTLED = 0.03  # of the rise from one fit to the next: what a fit that only steers may have left undone
_FLAT, _STRIDE = 0.05, 2.0  # directions the path hardly explored are not extrapolated, nor any s by more than this


class Path(NamedTuple):
    """The fits on the way of theta: the last one, and theta and s of as many as theta has entries and one more."""

    last: Solution | None = None
    points: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def onto(self, theta: np.ndarray, solution: Solution) -> Path:
        """With the fit at theta."""
        point = np.array(theta, dtype=np.float64), to_numpy(solution.s)
        before = self.points[-theta.size :] if self._is_settled(solution) else ()
        return Path(solution, (*before, point))

    def _is_settled(self, solution: Solution) -> bool:
        """Whether what the last fit left undone is little beside the way to the next one, which theta then explains."""
        last = self.last
        if last is None or last.ending.code != "steered":
            return True
        return last.ending.value * max(1.0, abs(last.elbo)) <= _SETTLED * abs(solution.elbo - last.elbo)

    def start(self, theta: np.ndarray, task: Problem) -> Solution | Array | None:
        """Of the fit of ``task`` at theta: an s, the last fit where there is no plane yet, None where there is none."""
        if self.last is None or len(self.points) < 2:
            return self.last
        (here, s), *earlier = self.points[::-1]
        steps, others = np.array([there - here for there, _ in earlier]), [old for _, old in earlier]
        shares = np.linalg.pinv(steps, rcond=_FLAT).T @ (np.asarray(theta, dtype=np.float64) - here)
        if task.bound.convex and task.n_observations >= MANY_ROWS:
            there = combined(task, s, others, shares)
            return self.last if there is None else there
        shift = np.tensordot(shares, np.stack([old - s for old in others]), axes=1)
        return s + np.clip(shift, -_STRIDE, _STRIDE)


def combined(task: Problem, s: Array, others: Sequence[Array], shares: np.ndarray) -> Array | None:
    """s where tau has gone from that of ``s`` by shares of the ways to the others, or part of the way.

    None near a boundary, or where potentials share a normalisation.
    """
    rows, s = task.all_rows, asarray(s, task.weight)
    here = task.site(s, rows)
    if here.slack is not None:
        return None
    way = 0.0 * here.tau
    for share, other in zip(shares, others, strict=True):
        way = way + float(share) * (task.site(asarray(other, task.weight), rows).tau - here.tau)
    for part in (1.0, 0.5, 0.25, 0.125):
        there = task.dual.straight(s, part * way / here.spread, rows)
        if there is not None:
            return there
    return None
