"""What learning returns: theta, the model and the fit there, and how the search ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..files import Stored
from ..likelihoods.base import Likelihood
from ..priors.base import Prior
from ..solvers.base import Ending
from ..solvers.solution import Solution


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
