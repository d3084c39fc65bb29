"""Mirror Newton: Newton's direction of the dual, walked in the coordinate s = k'(tau).

    ds = -(I + M J)^-1 (s - s*),    J = dtau/ds

Every s is feasible, so no boundary ever truncates a step; 5 to 10 iterations are typical. The search is Armijo on the
dual from step 1 (from twice the last step after a shorter one). Where the decrease it promises is below rounding of the
dual, the gap, which is computed as a sum of nonnegative terms and keeps its digits, judges instead.
"""

from __future__ import annotations

from ..linalg.arrays import Array, namespace
from ..problem import Point, Problem
from .base import Outcome, Solver, Stopping, relative

_ARMIJO = 1e-4
_ROUNDING = 1e-10  # of |dual|: predicted decreases below this are judged by the gap
_HALVINGS = 45


class MirrorNewton(Solver):
    """The default solver."""

    name = "newton"

    def run(self, problem: Problem, start: Point, stopping: Stopping) -> Outcome:
        point, n, step, restarted = start, 0, 0.0, False
        del start  # its memory is the first trial's
        while True:
            status = stopping.record(n, point, step)
            if status is not None:
                break
            system = point.newton_system(accuracy=min(0.1, max(1e-9, relative(point) ** 0.5)))
            ds, dtau = point.factor.direction(system)
            slope = float(namespace(ds).sum(point.g * dtau))
            found = search(problem, point, ds, slope, min(1.0, 2.0 * step) if n else 1.0)
            if found is None and not restarted and relative(point) > 1e-3:
                restarted = True  # a start so saturated that its curvature vanished: begin where curvature is
                found = problem.at(problem.default_start()), 0.0
            if found is None:
                status = (
                    f"not converged: stagnated at relative gap {relative(point):.1e} > {stopping.tol:.1e}, the limit "
                    "of double precision for this problem; ask for a larger tol or rescale the prior"
                )
                break
            (point, step), n = found, n + 1
        return Outcome(point, status, stopping.reached(point), n, stopping.trace)


def search(problem: Problem, point: Point, ds: Array, slope: float, step: float) -> tuple[Point, float] | None:
    """The next point and its step, tried from ``step`` down, or None when no step improves on this one."""
    if -slope > _ROUNDING * max(1.0, abs(point.dual)):
        for _ in range(_HALVINGS):
            trial = problem.at(point.s + step * ds)
            if trial.dual <= point.dual + _ARMIJO * step * slope:
                return trial, step
            del trial  # its memory is the next one's
            step /= 2
        return None
    step = 1.0
    for _ in range(8):
        trial = problem.at(point.s + step * ds)
        if trial.dual < float("inf") and trial.gap < point.gap:
            return trial, step
        del trial
        step /= 4
    return None
