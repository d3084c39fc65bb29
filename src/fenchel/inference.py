"""``infer``: likelihood, prior and y in, a certified fit out."""

from __future__ import annotations

from numbers import Integral, Real

from .checks import choice, instance, problem
from .files import searched, stated
from .likelihoods.base import Likelihood
from .linalg.arrays import ArrayLike
from .linalg.machine import counting, one_thread
from .priors.base import Prior
from .problem import Problem
from .solvers.base import Callback, Solver, Stopping, reporting
from .solvers.exact import CoupledNewton
from .solvers.lbfgs import FeasibleLBFGS
from .solvers.newton import MirrorNewton
from .solvers.solution import Solution, kept_numbers, restored

_EXACT = CoupledNewton()
_METHODS: dict[str, Solver] = {"newton": MirrorNewton(finish=_EXACT), "lbfgs": FeasibleLBFGS()}


@stated("method", "max_iter", "start", "progress", "callback")
def infer(
    likelihood: Likelihood,
    prior: Prior,
    y: ArrayLike,
    method: str | Solver = "newton",
    tol: float = 1e-8,
    max_iter: int = 200,
    start: ArrayLike | Solution | None = None,
    progress: bool = False,
    *,
    weights: ArrayLike | None = None,
    callback: Callback | None = None,
) -> Solution:
    """Fit q(z) = N(m, V) to the posterior of a latent Gaussian model, with a proof of convergence.

    Parameters
    ----------
    likelihood : Likelihood
        p(y | eta), from ``fenchel.likelihoods`` or your own.
    prior : Prior
        z ~ N(mu, Sigma), eta = W z + offset, from ``fenchel.priors``.
    y : array (N,)
        Targets; NaN where unobserved.
    method : {"newton", "lbfgs"} or Solver
        Mirror Newton (for a bound without a dual, such as "exact", the coupled Newton method of the exact mode), the
        paper's feasible L-BFGS, or a solver of your own.
    tol : float
        Relative gap: stop at ``gap <= tol * max(1, |elbo|)``. 0 runs until rounding stops it.
    max_iter : int
    start : Solution or array (N, P), optional
        Where to begin: a fit of a similar problem, or mirror coordinates s (mean and log variance of each eta for a
        bound without a dual). Any finite numbers are feasible.
    progress : bool
        Draw a live line.
    weights : array (N,), optional
        Multiplies each observation's log-likelihood; 0 is unobserved.
    callback : callable, optional
        Called with each trace row (a dict); a true answer stops the run.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import numpy as np
    >>> import fenchel
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.priors import DenseCovariance
    >>> x = np.linspace(0, 3, 20)
    >>> K = np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)
    >>> sol = fenchel.infer(Poisson(), DenseCovariance(K), np.round(3 + 2 * np.sin(3 * x)))
    >>> sol.converged, bool(sol.gap < 1e-6)
    (True, True)
    """
    instance("infer", "likelihood", likelihood, Likelihood, "Poisson()")
    instance("infer", "prior", prior, Prior, "DenseCovariance(K)")
    solver = solver_for(likelihood, method)
    if callback is not None and not callable(callback):
        raise problem("infer", f"callback is a {type(callback).__name__}", "a function of a trace row, or None")
    check_limits(tol, max_iter)
    return fitted(Problem(likelihood, prior, y, weights), solver, tol, max_iter, start, progress, callback)


def check_limits(tol: float, max_iter: int) -> None:
    """Refuse a tolerance or a number of iterations that is none."""
    if not (isinstance(tol, Real) and 0.0 <= tol <= 1e300 and isinstance(max_iter, Integral) and max_iter >= 0):
        raise problem("infer", f"tol = {tol!r}, max_iter = {max_iter!r}", "a number tol >= 0, an integer max_iter >= 0")


def fitted(
    task: Problem,
    solver: Solver,
    tol: float,
    max_iter: int,
    start: ArrayLike | Solution | None = None,
    progress: bool = False,
    callback: Callback | None = None,
    steers: bool = False,
) -> Solution:
    """The solution of a problem that has been set up; one that ``steers`` a search need not be proved."""

    def run() -> Solution:
        with reporting(progress, f"{solver.name} on {task.n_observations} observations", callback) as report:
            first = None if start is None else task.start_from(start)
            with one_thread(task.predictors.small, ours=True), counting():
                outcome = solver.solve(task, first, Stopping(tol, max_iter, report, steers=steers))
        return Solution(task, outcome, solver.name, tol)

    return searched("fit", run, kept_numbers, lambda numbers: restored(task, numbers))


def solver_for(likelihood: Likelihood, method: str | Solver) -> Solver:
    """The solver asked for; "newton" is the exact mode's where there is no dual."""
    if not isinstance(method, Solver):
        choice("infer", "method", method, tuple(_METHODS))
        method = _EXACT if method == "newton" and not likelihood.objective.convex else _METHODS[method]
    if method.needs_dual and not likelihood.objective.convex:
        raise problem(
            "infer",
            f"{method.name} walks on the dual, and {likelihood!r} has none",
            'method="newton"',
            'Or use a bound with a dual, such as "tilted".' if "tilted" in likelihood.bounds else "",
        )
    return method
