"""``infer``: the fit of a latent Gaussian model given by a likelihood, a prior and targets y."""

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
    """Fit a Gaussian q(z) = N(m, V) to the posterior of a latent Gaussian model, with a certificate of convergence.

    The model is z ~ N(mu, Sigma), eta = W z + offset, y_n ~ p(y_n | eta_n).

    Parameters
    ----------
    likelihood : Likelihood
        p(y | eta), from ``fenchel.likelihoods`` or your own.
    prior : Prior
        The prior of z and the design W, from ``fenchel.priors``.
    y : array (N,)
        Targets; NaN marks an unobserved one.
    method : {"newton", "lbfgs"} or Solver, default "newton"
        "newton": Newton's method in mirror coordinates, or in (beta, lam) for a bound without a dual such as "exact".
        "lbfgs": the feasible L-BFGS method of the paper.
    tol : float, default 1e-8
        Relative gap at which the fit stops: ``gap <= tol * max(1, |elbo|)``. With 0 it runs until rounding stops it.
    max_iter : int, default 200
        Largest number of iterations.
    start : Solution or array (N, P), optional
        Starting point: the fit of a similar problem, or mirror coordinates s (for a bound without a dual the mean and
        the log variance of each eta). Any finite numbers are feasible.
    progress : bool, default False
        Show a progress line.
    weights : array (N,), optional
        Multiplies the log-likelihood of each observation; one of weight 0 is unobserved.
    callback : callable, optional
        Called with each row of the trace (a dict); the fit stops if it returns a true value.

    Returns
    -------
    Solution
        The posterior with its bounds, their gap and the trace of the fit.

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
    """Refuse a negative or infinite tolerance, and a number of iterations that is not one."""
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
    """Solve a problem. With ``steers`` the fit only steers a search over theta, and needs no proof."""

    def run() -> Solution:
        with reporting(progress, f"{solver.name} on {task.n_observations} observations", callback) as report:
            first = None if start is None else task.start_from(start)
            with one_thread(task.predictors.small, ours=True), counting():
                outcome = solver.solve(task, first, Stopping(tol, max_iter, report, steers=steers))
        return Solution(task, outcome, solver.name, tol)

    return searched("fit", run, kept_numbers, lambda numbers: restored(task, numbers))


def solver_for(likelihood: Likelihood, method: str | Solver) -> Solver:
    """The solver for ``method``; "newton" is the coupled Newton method if the likelihood's bound has no dual."""
    if not isinstance(method, Solver):
        choice("infer", "method", method, tuple(_METHODS))
        method = _EXACT if method == "newton" and not likelihood.objective.convex else _METHODS[method]
    if method.needs_dual and not likelihood.objective.convex:
        raise problem(
            "infer",
            f"{method.name} minimises the dual, and {likelihood!r} has none",
            'method="newton"',
            'Or use a bound with a dual, such as "tilted".' if "tilted" in likelihood.bounds else "",
        )
    return method
