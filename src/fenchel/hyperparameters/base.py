"""The contract of a family, a prior with hyperparameters; and what a search for them maximises and returns.

    theta -> prior,    d elbo / d theta = sum_ij dP/dSigma_ij dSigma_ij/dtheta      (envelope: nothing through the fit)

Kernels and Markov-random-field builders alike are families: learning, grids and integration over theta are written
against this class alone. theta is unconstrained up to ``bounds``; positive parameters enter by their logs.

An ``Objective`` is a value and its slopes at theta, within bounds, with the fit that they came from. ``Evidence`` is
that of a likelihood and a family; that of a table (``factors/table_evidence.py``) fits its rows by themselves. A search
returns theta, the model and the fit there, and how it ended (``Found``, ``Learned``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from ..checks import numeric, problem
from ..files import Stated, Stored
from ..likelihoods.base import Likelihood
from ..priors.base import NewRows, Prior
from ..solvers.base import Ending
from ..solvers.solution import Solution, kept_numbers


@dataclass(frozen=True)
class Summand:
    """A part of eta with a size of its own.

    Attributes
    ----------
    latents : slice
        Its latents, independent a priori of all others.
    size : array (n_theta,)
        The direction of theta along which its sd grows by the factor e a unit.
    shapes : tuple of int
        The entries of theta that change its covariance otherwise: ranges, correlations.
    """

    latents: slice
    size: np.ndarray
    shapes: tuple[int, ...] = ()


class Family(Stated, ABC):
    """A prior with hyperparameters."""

    _log_prior: Callable[[np.ndarray], tuple[float, np.ndarray]] | None = None
    prunes: bool = False  # whether a lower bound means "no effect", an answer rather than an obstacle

    @property
    @abstractmethod
    def theta(self) -> np.ndarray:
        """The current hyperparameters (n_theta,)."""

    @property
    @abstractmethod
    def bounds(self) -> np.ndarray:
        """Lower and upper bounds (n_theta, 2)."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What each entry of theta is, for tables."""

    @abstractmethod
    def at(self, theta: np.ndarray) -> Prior:
        """The prior at theta; what does not depend on theta (checks, symbolic analysis) is done once."""

    @abstractmethod
    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        """d elbo / d theta (n_theta,) from a solution fitted at theta to a small gap; its error is O(sqrt(gap))."""

    def curvature(self, solution: Solution, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """-d2 elbo / d theta2 (n_theta, n_theta), positive semidefinite, as far as one fit tells; None where nothing.

        ``gradient`` is what ``gradient`` returned. Large fits are learned in fewer evaluations with it.
        """
        return None

    def is_answer(self, entry: int, side: str) -> bool:
        """Whether an entry of theta at a bound is an answer rather than an obstacle."""
        return self.prunes and side == "lower"

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient: the family's ``_log_prior``, or flat."""
        theta = np.asarray(theta, dtype=np.float64)
        return (0.0, np.zeros_like(theta)) if self._log_prior is None else self._log_prior(theta)

    def summands(self) -> Sequence[Summand]:
        """The parts of eta whose sizes are learned, at ``theta``: learning chooses where it starts by them.

        None where they are not known: learning then starts where the family stands.
        """
        return ()

    def start_by_moments(self, score: np.ndarray, curvature: np.ndarray) -> np.ndarray | None:
        """theta where learning from very many rows starts; None: where the family stands.

        ``score`` and ``curvature`` (N,) are of the log-likelihood of each row, where all have the best level in common.
        """
        return None

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """Where to predict at theta: new rows as ``posterior.predict(family.new_rows(theta, table))`` takes them.

        What a table is, each family says: inputs of a kernel, rows of a design, levels of fields.
        """
        raise problem(type(self).__name__, "it does not say what new rows are", "a family with new_rows")

    @classmethod
    @abstractmethod
    def example(cls, rng: np.random.Generator, n: int) -> Family:
        """A small family over n rows: the contract tests run on it."""


def offset_at(where: str, offset: Any, n: int) -> Any:
    """The offset of n new rows: a number, or (1, C) as (n, C). An offset of each row is known of the fit alone."""
    value = np.asarray(offset, dtype=np.float64)
    if value.ndim == 0:
        return offset
    if value.ndim == 2 and value.shape[0] == 1:
        return np.broadcast_to(value, (n, value.shape[1]))
    raise problem(
        where,
        f"the rows of the fit have an offset each, of shape {value.shape}",
        "one offset for all rows",
        "Use posterior.predict with an offset of the new rows.",
    )


def log_bounds(where: str, bounds: Any) -> np.ndarray:
    """The logs (1, 2) of a pair of positive numbers, the lower one first."""
    pair = numeric(where, "bounds", bounds)
    if pair.shape != (2,) or not 0.0 < pair[0] <= pair[1] < np.inf:
        got = f"bounds = {pair.tolist()}" if pair.size <= 2 else f"bounds has shape {pair.shape}"
        raise problem(where, got, "two finite numbers above 0, the smaller one first")
    return np.asarray(np.log(pair)[None, :])


# -- What a search maximises, and what it returns ------------------------------------------------
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
    """What was learned: where the search ended, with the likelihood and the prior there.

    ``correction`` is ``solution.corrected()`` where the search computed it.
    """

    solution: Solution = field(kw_only=False)
    likelihood: Likelihood
    prior: Prior
    correction: Any = field(default=None, repr=False, compare=False)

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


def free_entries(bounds: np.ndarray, held: Collection[int]) -> list[int]:
    """The entries of theta that are not held and that bounds leave room to move."""
    return [i for i, (low, high) in enumerate(bounds) if i not in held and high - low > _AT]
