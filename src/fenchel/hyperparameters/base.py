"""The contract of a family: a prior with hyperparameters.

    theta -> prior,    d elbo / d theta = sum_ij dP/dSigma_ij dSigma_ij/dtheta      (envelope: nothing through the fit)

Kernels and Markov-random-field builders alike are families: learning, grids and integration over theta are written
against this class alone. theta is unconstrained up to ``bounds``; positive parameters enter by their logs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import numeric, problem
from ..files import Stated
from ..priors.base import NewRows, Prior
from ..solvers.solution import Solution


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
