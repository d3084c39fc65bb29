"""The methods with which the paper is compared, on the same problem, from the same start and timed alike.

Each takes the same ``(likelihood, prior, y)`` as ``infer`` and returns the same ``Solution``. Its elbo is the value of
the same float64 objective at its own q; the time of this evaluation is not counted. They use dense latents on the
host. Options of ``infer`` are passed on; all other options are those of the method's class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...inference import infer
from ...solvers.base import Solver
from ...solvers.solution import Solution
from .laplace_ep import EP, LaplaceSolver
from .mean_and_covariance import Primal, banded_primal
from .mean_and_lam import CoordinateAscent, OpperArchambeau

_OF_INFER = ("start", "progress", "weights", "callback")


def _method(solver: Callable[..., Solver], max_iter: int, **fixed: Any) -> Callable[..., Solution]:
    """A function with the call of ``infer`` for one solver and its own limit of iterations."""

    def run(
        likelihood: Any, prior: Any, y: Any, *, tol: float = 1e-8, max_iter: int = max_iter, **options: Any
    ) -> Solution:
        passed = {name: options.pop(name) for name in _OF_INFER if name in options}
        method = solver(**fixed, **options)
        return infer(likelihood, prior, y, method, tol, max_iter, **passed)

    run.__doc__ = solver.__doc__
    return run


laplace = _method(LaplaceSolver, 200)
ep = _method(EP, 200)
coordinate_ascent = _method(CoordinateAscent, 1000)
opper_archambeau = _method(OpperArchambeau, 10_000)
primal_full = _method(Primal, 10_000, covariance="matrix")
primal_cholesky = _method(banded_primal, 10_000)
mean_field = _method(Primal, 10_000, covariance=0)

__all__ = [
    "coordinate_ascent",
    "ep",
    "laplace",
    "mean_field",
    "opper_archambeau",
    "primal_cholesky",
    "primal_full",
]
