"""What a search for theta maximises (``Objective``), and what it returns (``Found``, ``Learned``).

An objective is a value and its slopes at theta, within bounds, with the fit that they came from. ``Evidence`` is that
of a likelihood and a family; that of a table (``factors/table_evidence.py``) fits its rows by themselves. A search
returns theta, the model and the fit there, and how it ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from ..files import Stored
from ..likelihoods.base import Likelihood
from ..priors.base import Prior
from ..solvers.base import Ending
from ..solvers.solution import Solution, kept_numbers


@dataclass(frozen=True)
class SearchEnding(Ending):
    """How a search for hyperparameters ended: by its largest slope within the bounds, and by the fit there.

    Attributes
    ----------
    code : "converged"; "max_iter", "slope" (nothing rises any more, but the slope is left) or "fit" (the inner one)
    search : str
        What the optimiser said.
    at_bounds : dict of str to str
        The hyperparameters that ended at a bound, by name: "lower" or "upper".
    fit : Ending
        Of the inner fit.
    """

    search: str = ""
    at_bounds: Mapping[str, str] = field(default_factory=dict)
    fit: Ending | None = None

    @property
    def sentence(self) -> str:
        sign = "<=" if self.value <= self.tol else ">"
        bounds = "".join(f"{name} is at its {side} bound; " for name, side in self.at_bounds.items())
        inner = "" if self.fit is None else f"inner fit: {self.fit.sentence}"
        return f"{self.word}: {self.measure} {self.value:.1e} {sign} {self.tol:.1e}; {self.search}; {bounds}{inner}"


@dataclass
class Found(Stored):
    """Where a search ended.

    Attributes
    ----------
    theta : array
        The family's hyperparameters, then the likelihood's.
    solution : the fit at theta
    objective : float
        elbo + log p(theta), or the corrected evidence in the elbo's place.
    gradient : array
        Of the objective at theta.
    converged : bool
        No slope within the bounds exceeds ``gtol``, and the fit there is certified to ``tol``, or, where double
        precision ends before, to a gap that moves no slope by ``gtol``; the ending says which.
    ending : Ending
        A ``SearchEnding``, or the fit's own where nothing was searched; ``status`` is its sentence.
    n_evaluations, n_newton : int
        Inner fits, and their iterations in all.
    n_factorisations, n_inverses, n_products : int
        The linear algebra of all of them together, as in ``Trace``; of a search by ``learn``.
    restarts : list of (theta, objective)
        Where each start ended, the best first.
    at_bounds : dict of int to str
        The entries of theta that ended at a bound, "lower" or "upper".
    held : tuple of int
        Those of them where the objective still rises beyond the bound: the bound decides them, not the data.
    maximises : "elbo" or "corrected"
        Which evidence theta is the mode of.
    doubt : str
        Where the corrected evidence was asked for and is not to be trusted there: why, and which evidence is used.
    """

    theta: np.ndarray
    solution: Any
    objective: float
    gradient: np.ndarray
    converged: bool
    ending: Ending
    n_evaluations: int = 0
    n_newton: int = 0
    n_factorisations: int = 0
    n_inverses: int = 0
    n_products: int = 0
    restarts: list[tuple[np.ndarray, float]] = field(default_factory=list)
    at_bounds: dict[int, str] = field(default_factory=dict)
    held: tuple[int, ...] = ()
    maximises: str = "elbo"
    doubt: str = ""

    @property
    def status(self) -> str:
        return self.ending.sentence


@dataclass(kw_only=True)
class Learned(Found):
    """What was learned: where the search ended, with the likelihood and the prior there."""

    solution: Solution = field(kw_only=False)
    likelihood: Likelihood
    prior: Prior

    def numbers(self) -> dict[str, Any]:
        """What a file keeps of the search: all but the likelihood and the prior, which follow from theta."""
        own = {f.name: getattr(self, f.name) for f in fields(Found) if f.name != "solution"}
        return {**own, "solution": kept_numbers(self.solution)}


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
