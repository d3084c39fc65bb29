"""How a rival that climbs by L-BFGS is run and judged."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np

from ..problem import Point
from ..solvers.base import Outcome, Stopping, relative
from ..solvers.quasi_newton import Landscape, descend
from .candidate import Candidate

P = TypeVar("P")


class Judged(Landscape[P]):
    """A landscape whose points can be laid before the judges."""

    @abstractmethod
    def judged(self, point: P) -> Candidate:
        """The q of a point."""

    @abstractmethod
    def start(self, alpha: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """x of m = mu - Sigma W' alpha and V = (Sigma^-1 + W' Lam W)^-1, or what is nearest."""


def climb(landscape: Judged[P], point: Point, memory: int, stopping: Stopping) -> Outcome:
    """L-BFGS with Wolfe steps until ``stopping`` ends it; the certificate is computed off the clock.

    A good start of the dual can be a poor q. The method begins at the best of the dual's start, of the prior's mean
    with the dual's variances, and of the prior itself (almost: lam 1e-3 of the start's).
    """
    alpha, lam = np.asarray(point.alpha), np.asarray(point.lam)
    starts = [landscape.start(*pair) for pair in ((alpha, lam), (0.0 * alpha, lam), (0.0 * alpha, 1e-3 * lam))]
    x = min(starts, key=lambda x: landscape.value(landscape.at(x)))
    n, status, candidate = 0, None, None
    for n, (place, step) in enumerate(descend(landscape, x, memory, "wolfe")):
        with stopping.off_the_clock():
            candidate = landscape.judged(place)
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
