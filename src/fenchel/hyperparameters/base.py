"""The contract of a family (a prior with hyperparameters), of the objective of a search, and the result of one.

    theta -> prior,    d elbo / d theta = sum_ij dP/dSigma_ij dSigma_ij/dtheta      (envelope: no derivative of the fit)

Kernels and Markov random fields are families, and learning, grids and integration use nothing but this class. theta is
free within ``bounds``; positive parameters enter by their logs.

An ``Objective`` has a value and a gradient at theta, and the fit that they came from: ``Evidence`` for a likelihood and
a family, ``factors/table_evidence.py`` for a table. A search returns theta, the fit there and how it ended (``Found``;
``Learned`` with the model).
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
    """A summand of eta with its own standard deviation.

    Attributes
    ----------
    latents : slice
        Its latents, which are a priori independent of all others.
    size : array (n_theta,)
        Direction of theta along which its log sd grows by 1 per unit.
    shapes : tuple of int
        Entries of theta that change its covariance in other ways: ranges, correlations.
    """

    latents: slice
    size: np.ndarray
    shapes: tuple[int, ...] = ()


class Family(Stated, ABC):
    """The contract of a prior with hyperparameters."""

    _log_prior: Callable[[np.ndarray], tuple[float, np.ndarray]] | None = None
    prunes: bool = False  # whether an entry at its lower bound means "no effect", a valid result

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
        """Names of the entries of theta, for tables."""

    @abstractmethod
    def at(self, theta: np.ndarray) -> Prior:
        """The prior at theta; what does not depend on theta (checks, symbolic analysis) is done once."""

    @abstractmethod
    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        """d elbo / d theta (n_theta,) from a solution fitted at theta to a small gap; its error is O(sqrt(gap))."""

    def curvature(self, solution: Solution, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """Approximation of -d2 elbo / d theta2 (n_theta, n_theta), positive semidefinite, from one fit; None without.

        ``gradient`` is the result of the method of that name. With the curvature a search needs fewer evaluations.
        """
        return None

    def is_answer(self, entry: int, side: str) -> bool:
        """Whether an entry of theta at a bound is a valid result, so that no warning is needed."""
        return self.prunes and side == "lower"

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient: the family's ``_log_prior``, or flat."""
        theta = np.asarray(theta, dtype=np.float64)
        return (0.0, np.zeros_like(theta)) if self._log_prior is None else self._log_prior(theta)

    def summands(self) -> Sequence[Summand]:
        """The summands of eta whose sds are learned, from which learning chooses its start; empty if not known."""
        return ()

    def start_by_moments(self, score: np.ndarray, curvature: np.ndarray) -> np.ndarray | None:
        """Start of theta for very many rows, by moments; None for the current theta.

        ``score`` and ``curvature`` (N,) are those of the log-likelihood of each row at the best common level.
        """
        return None

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """New rows at theta, for ``posterior.predict(family.new_rows(theta, table))``.

        The table depends on the family: inputs of a kernel, rows of a design, levels of fields.
        """
        raise problem(type(self).__name__, "this family has no method new_rows", "a family that has one")

    @classmethod
    @abstractmethod
    def example(cls, rng: np.random.Generator, n: int) -> Family:
        """A small family over n rows, for the contract tests."""


def offset_at(where: str, offset: Any, n: int) -> Any:
    """The offset of n new rows: a number, or (1, C) repeated to (n, C); an offset by row is known for the fit only."""
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


# -- The objective and the result of a search ----------------------------------------------------
@dataclass(frozen=True)
class SearchEnding(Ending):
    """How a search for hyperparameters ended: its largest slope within the bounds, and the ending of the fit there.

    Attributes
    ----------
    code : {"converged", "max_iter", "slope", "fit"}
        "slope": no step improves the objective although its slope is above tol; "fit": the inner fit did not converge.
    search : str
        The message of the optimiser.
    at_bounds : dict of str to {"lower", "upper"}
        The hyperparameters that ended at a bound.
    fit : Ending
        The ending of the inner fit.
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
    """The result of a search for hyperparameters.

    Attributes
    ----------
    theta : array (n_theta,)
        The hyperparameters of the family, then the parameters of the likelihood.
    solution : Solution
        The fit at theta.
    objective : float
        elbo + log p(theta), or the corrected evidence + log p(theta).
    gradient : array (n_theta,)
        Gradient of the objective at theta.
    converged : bool
        Whether no slope within the bounds exceeds ``gtol``, and the gap of the fit is below ``tol``, or so small that
        it changes no slope by ``gtol``; the ending says which.
    ending : Ending
        A ``SearchEnding``, or the ending of the fit if there was no search; ``status`` is its sentence.
    n_evaluations, n_newton : int
        Number of inner fits, and of all their iterations.
    n_factorisations, n_inverses, n_products : int
        Their linear algebra, as in ``Trace``; counted by ``learn``.
    restarts : list of (theta, objective)
        The end of each start, the best first.
    at_bounds : dict of int to {"lower", "upper"}
        The entries of theta that ended at a bound.
    held : tuple of int
        Those of them at which the objective still rises beyond the bound.
    maximises : {"elbo", "corrected"}
        The evidence that theta maximises.
    doubt : str
        If the corrected evidence is unreliable at theta: the reason, and which evidence is used. Else empty.
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
    """The result of ``learn``: the end of the search, with the likelihood and the prior at theta.

    ``correction`` is ``solution.corrected()``, if the search computed it.
    """

    solution: Solution = field(kw_only=False)
    likelihood: Likelihood
    prior: Prior
    correction: Any = field(default=None, repr=False, compare=False)

    def numbers(self) -> dict[str, Any]:
        """The numbers that a file stores; the likelihood and the prior follow from theta."""
        own = {f.name: getattr(self, f.name) for f in fields(Found) if f.name != "solution"}
        return {**own, "solution": kept_numbers(self.solution)}


F = TypeVar("F", bound=Found)

_AT = 1e-4  # distance from a bound below which theta counts as at it


class Fit(Protocol):
    """The part of a fit at theta that a search uses: its certificate, and how it ended."""

    elbo: float
    gap: float
    rounding: float
    tol: float
    optimal: bool
    ending: Ending

    def judged_by(self, tol: float) -> Self: ...


class Evaluated(NamedTuple):
    """The objective at a theta: its value, gradient and fit."""

    value: float
    theta: np.ndarray
    gradient: np.ndarray
    solution: Any  # a Fit, of the type that the objective makes
    prior: Prior | None


class Objective(ABC, Generic[F]):
    """The contract of a function of theta that ``Search`` maximises, with a result of type F."""

    tol: float  # relative gap of the fits
    solution: Fit  # the last fit
    prior: Prior | None = None  # the prior at the last theta
    allowed_gap: float | None = None  # gap, in nats, at which the next fit may end; None: that of ``tol``
    limit: tuple[np.ndarray, float] | None = None  # theta where rounding last ended a fit, and twice the gap there
    n_evaluations: int = 0
    n_newton: int = 0

    @property
    @abstractmethod
    def bounds(self) -> np.ndarray:
        """Lower and upper bounds (n_theta, 2)."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Names of the entries of theta."""

    @abstractmethod
    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""

    @abstractmethod
    def begin(self, solution: Any) -> None:
        """Start the next fit at ``solution``, or without a warm start."""

    @abstractmethod
    def learned(self, best: Evaluated, found: Found) -> F:
        """The result of a search, with the model at its theta."""

    def curvature(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """Approximation of -d2/dtheta2 from the last fit, positive definite; None if only slopes are known."""
        return None

    def reachable(self, theta: np.ndarray) -> float:
        """The relative gap that a fit at theta can reach."""
        return self.tol

    def largest_slope(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """The largest slope within the bounds."""
        low, high = self.bounds.T
        inside = np.minimum(np.maximum(theta + gradient, low), high)
        return float(np.abs(inside - theta).max(initial=0.0))

    def at_bounds(self, theta: np.ndarray, gradient: np.ndarray, gtol: float) -> tuple[dict[int, str], tuple[int, ...]]:
        """The entries at a bound, and those at which the objective rises beyond it; equal bounds do not count."""
        return entries_at_bounds(self.bounds, theta, gradient, gtol)


def entries_at_bounds(
    bounds: np.ndarray, theta: np.ndarray, gradient: np.ndarray, gtol: float
) -> tuple[dict[int, str], tuple[int, ...]]:
    """The entries of theta at a bound, and those of them at which the objective rises beyond it."""
    out: dict[int, str] = {}
    for i, (low, high) in enumerate(bounds):
        if high - low > _AT and not low + _AT < theta[i] < high - _AT:
            out[i] = "lower" if theta[i] <= low + _AT else "upper"
    return out, tuple(i for i, side in out.items() if gradient[i] * (1 if side == "upper" else -1) > gtol)


def free_entries(bounds: np.ndarray, held: Collection[int]) -> list[int]:
    """The entries of theta that are not held and that bounds leave room to move."""
    return [i for i, (low, high) in enumerate(bounds) if i not in held and high - low > _AT]
