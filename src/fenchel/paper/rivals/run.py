"""How a rival that climbs by L-BFGS is run and judged."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np

from ...problem import Point
from ...solvers.base import Outcome, Stopping
from ...solvers.quasi_newton import Landscape, descend
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


def starts(point: Point) -> list[tuple[np.ndarray, np.ndarray]]:
    """(alpha, lam) a primal method may begin at: a good start of the dual can be a poor q.

    The dual's start; the prior's mean with its variances; nearly the prior itself; and, when observations without
    curvature (returns of zero) pull the mean, a common alpha that pulls as much the other way.
    """
    alpha, lam = np.asarray(point.alpha), np.asarray(point.lam)
    out = [(alpha, lam), (0.0 * alpha, lam), (0.0 * alpha, 1e-3 * lam)]
    pull = np.asarray(point.problem.fixed_alpha).sum(axis=0)
    if pull.any():
        out.append((0.0 * alpha - pull / alpha.shape[0], lam))
    return out


def climb(landscape: Judged[P], point: Point, memory: int, stopping: Stopping) -> Outcome:
    """L-BFGS with Wolfe steps until ``stopping`` ends it; the certificate is computed off the clock.

    It begins at the best of ``starts``.
    """
    x = min((landscape.start(*pair) for pair in starts(point)), key=lambda x: landscape.value(landscape.at(x)))
    n, ending, candidate = 0, None, None
    for n, (place, step) in enumerate(descend(landscape, x, memory)):
        with stopping.off_the_clock():
            candidate = landscape.judged(place)
            _ = candidate.gap
        ending = stopping.record(n, candidate, step)
        if ending is not None:
            break
    assert candidate is not None
    if ending is None:
        ending = stopping.ended(candidate, "stalled", "the line search stalled")
    return Outcome(candidate, ending, n, stopping.trace)
