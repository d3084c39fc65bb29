"""What a search maximises: a value and its slopes at theta, within bounds, with the fit that they came from.

``Evidence`` is the one of a likelihood and a family; a table's (``factors/learning.py``) fits its rows by themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from ..priors.base import Prior
from ..solvers.base import Ending
from .learned import Found

F = TypeVar("F", bound=Found)

_AT = 1e-4  # nearer to a bound than this, theta is at it


class Fit(Protocol):
    """What a search reads of a fit at theta: its certificate, and how it ended."""

    elbo: float
    gap: float
    rounding: float
    tol: float
    optimal: bool
    ending: Ending

    def judged_by(self, tol: float) -> Self: ...


class Evaluated(NamedTuple):
    """A theta that was evaluated, and what was found there."""

    value: float
    theta: np.ndarray
    gradient: np.ndarray
    solution: Any  # a Fit; the objective that made it knows more of it
    prior: Prior | None


class Objective(ABC, Generic[F]):
    """A function of theta to be maximised by ``Search``, which finds an F."""

    tol: float  # relative gap of the fits
    solution: Fit  # the last one
    prior: Prior | None = None  # at the last theta
    allowed_gap: float | None = None  # nats that the next fit may leave; None asks for ``tol`` at once
    limit: tuple[np.ndarray, float] | None = None  # where rounding last ended a fit, and twice its gap there
    n_evaluations: int = 0
    n_newton: int = 0

    @property
    @abstractmethod
    def bounds(self) -> np.ndarray:
        """(n_theta, 2)."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Of the entries of theta."""

    @abstractmethod
    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""

    @abstractmethod
    def begin(self, solution: Any) -> None:
        """Forget the path; the next fit starts at ``solution``, or cold."""

    @abstractmethod
    def learned(self, best: Evaluated, found: Found) -> F:
        """What a search found, with the model there."""

    def curvature(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """-d2/dtheta2 as far as the last fit, at theta, tells, positive definite; None where only slopes are known."""
        return None

    def reachable(self, theta: np.ndarray) -> float:
        """The relative gap that may be asked of a fit there."""
        return self.tol

    def largest_slope(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """The largest slope within the bounds."""
        return float(np.abs(np.clip(theta + gradient, *self.bounds.T) - theta).max(initial=0.0))

    def at_bounds(self, theta: np.ndarray, gradient: np.ndarray, gtol: float) -> tuple[dict[int, str], tuple[int, ...]]:
        """Which entries are at a bound, and which of them would go on beyond it. Equal bounds are no choice."""
        return entries_at_bounds(self.bounds, theta, gradient, gtol)


def entries_at_bounds(
    bounds: np.ndarray, theta: np.ndarray, gradient: np.ndarray, gtol: float
) -> tuple[dict[int, str], tuple[int, ...]]:
    """Which entries of theta are at a bound, and which of them would go on beyond it."""
    out: dict[int, str] = {}
    for i, (low, high) in enumerate(bounds):
        if high - low > _AT and not low + _AT < theta[i] < high - _AT:
            out[i] = "lower" if theta[i] <= low + _AT else "upper"
    return out, tuple(i for i, side in out.items() if gradient[i] * (1 if side == "upper" else -1) > gtol)
