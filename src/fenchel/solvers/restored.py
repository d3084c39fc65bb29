"""A fit made again from its numbers: q evaluated once at the sites where the solver ended, no solver run.

kept_numbers(solution)  ->  sites (alpha, lam), s, and the certificate      restored(problem, numbers)  ->  Solution
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linalg.arrays import Array, asarray, to_numpy
from ..posterior import Posterior
from ..primal import PrimalPoint
from ..priors.capabilities import weights_of
from ..problem import Problem
from .base import Outcome, Trace
from .solution import Solution

_CERTIFICATE = ("elbo", "rounding", "quadrature", "certificate", "log_evidence", "optimal")
_RUN = ("tol", "n_iter", "method")


def kept_numbers(solution: Solution) -> dict[str, Any]:
    """What a file keeps of a fit."""
    gap = solution.gap - solution.rounding - solution.quadrature
    weights = None if solution.likelihood.objective.over_contrasts is not None else solution.posterior.weights
    return {
        **{name: getattr(solution, name) for name in (*_CERTIFICATE, *_RUN)},
        "gap": gap,
        "ending": solution._ran,
        "trace": np.array(solution.trace._rows),
        **{name: to_numpy(getattr(solution, name)) for name in ("s", "alpha", "lam")},
        "weights": None if weights is None else [to_numpy(u) for u in weights],
    }


def restored(problem: Problem, numbers: dict[str, Any]) -> Solution:
    """The fit of a problem from what ``kept_numbers`` gave."""
    method, trace = str(numbers["method"]), Trace.of(numbers["trace"])
    outcome = Outcome(RestoredPoint(problem, numbers), numbers["ending"], int(numbers["n_iter"]), trace, method)
    return Solution(problem, outcome, method, float(numbers["tol"]))


class RestoredPoint:
    """The iterate at which a fit ended, with the certificate that it had there."""

    measure = "relative gap"

    def __init__(self, problem: Problem, numbers: dict[str, Any]) -> None:
        n, active = problem.n_observations, problem.active
        each = {name: np.asarray(numbers[name], dtype=np.float64) for name in ("s", "alpha", "lam")}
        width = problem.mt.shape[1]
        if any(x.ndim != 2 or len(x) != n for x in each.values()):
            raise ValueError("the numbers of a fit have another shape than its rows")
        if each["alpha"].shape != (n, width) or each["lam"].shape != (n, width):
            raise ValueError("the sites of a fit have another shape than its rows")
        s, alpha, lam = (asarray(x[active], problem.weight) for x in each.values())
        fixed = problem.fixed_alpha
        alpha = alpha - asarray(to_numpy(fixed)[active], problem.weight)
        self._point = PrimalPoint(problem, alpha, lam, None, weights=_active_weights(problem, numbers["weights"]))
        self.s, self.alpha, self.lam = s, alpha, lam
        self.elbo, self.gap = float(numbers["elbo"]), float(numbers["gap"])
        self.rounding, self.quadrature = float(numbers["rounding"]), float(numbers["quadrature"])
        self.certificate, self.log_evidence = str(numbers["certificate"]), float(numbers["log_evidence"])
        self.shortfall = 0.0 if numbers["optimal"] else np.inf

    @property
    def dual(self) -> float:
        """The upper bound."""
        return self.elbo + self.gap

    def posterior(self) -> Posterior:
        """q(z) at this point."""
        return self._point.posterior()


def _active_weights(problem: Problem, weights: Any) -> list[Array] | None:
    """X' alpha of the active rows, from those of all rows."""
    if weights is None:
        return None
    given = [asarray(np.asarray(u, dtype=np.float64), problem.weight) for u in weights]
    own = weights_of(problem.all_predictors, problem.fixed_alpha) or []
    if [u.shape for u in own] != [u.shape for u in given]:
        raise ValueError("the weights of a fit have another shape than its features")
    return [u - v for u, v in zip(given, own, strict=True)]
