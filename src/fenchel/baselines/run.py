"""How a rival that climbs by L-BFGS is run and judged."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np

from ..solvers.base import Outcome, Stopping, relative
from ..solvers.quasi_newton import Landscape, descend
from .candidate import Candidate

P = TypeVar("P")


class Judged(Landscape[P]):
    """A landscape whose points can be laid before the judges."""

    @abstractmethod
    def judged(self, point: P) -> Candidate:
        """The q of a point."""


def climb(landscape: Judged[P], x: np.ndarray, memory: int, stopping: Stopping) -> Outcome:
    """L-BFGS with Wolfe steps until ``stopping`` ends it; the certificate is computed off the clock."""
    n, status, candidate = 0, None, None
    for n, (point, step) in enumerate(descend(landscape, x, memory, "wolfe")):
        with stopping.off_the_clock():
            candidate = landscape.judged(point)
            _ = candidate.gap
        status = stopping.record(n, candidate, step)
        if status is not None:
            break
    assert candidate is not None
    if status is None:
        status = (
            f"not converged: the line search stalled at {candidate.measure} {relative(candidate):.1e} > "
            f"{stopping.tol:.1e}"
        )
    return Outcome(candidate, status, stopping.reached(candidate), n, stopping.trace)
