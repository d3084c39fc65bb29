"""Learn theta without a factor: find the root of the gradient of the evidence, estimated by fixed probes.

    d elbo / d theta = 1/2 tr[(Q^-1 - V - m m') dQ] + d log p / d theta,     V by probes

The same probes are used at every theta, so that the gradient is a smooth function. Its root is found by quasi-Newton
steps, starting with the information of the prior, 1/2 tr(Q^-1 dQ_i Q^-1 dQ_j). The curvature H at the root, by
differences of gradients, gives the covariance of theta, H^-1, and its error by the probes, H^-1 G H^-1, where G is the
variance of the gradient over probes. If the last step and fit leave e nats, 2 e H^-1 is added.

If one factorisation costs more than a whole fit without one, the same search with few probes finds a start for a fit
with a factor (``near``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import Refusal, count, numeric, problem, scalar
from ..files import searched
from ..gmrf.stack import StackedField
from ..hyperparameters.base import Evaluated, Found, Objective
from ..hyperparameters.mode import Mode, mode_of
from ..hyperparameters.search import Search, SearchOptions
from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, ArrayLike
from ..problem import DualPoint, Problem
from ..solvers.base import Callback, Ending, Outcome, Solver, Stopping, reporting
from .certificate import Certified, certify
from .probed_fit import WHERE, State, Task, fit, restored
from .probed_posterior import IterativeFit, SearchResult

RISE = 1e-3  # nats: the search ends when the predicted gain of a step is smaller
FINEST = 1e-6  # nats: smallest tolerance of inner fits and of the last steps
_LOOSEST = 1e-6  # nats for each row: largest tolerance of an inner fit
_LAST = 4  # steps with the curvature at the root
_STEP_LIMIT = 1.5  # log units: longest step of a hyperparameter
_TRUST = 1000.0  # largest ratio of the information of the prior to the curvature
_FAR = 1e-3  # relative residual of the probes' solves, far from the root
_NEAR = 1e-6  # the same near the root
_FAR_BLUR = 0.02  # nats: with a larger tolerance of the fit theta is far from the root
_SLOPE = 1e-6  # nats for each log unit: so small that searches end by the predicted gain instead
_START_PROBES = 8  # probes for the start of a fit with a factor
_START_STEPS = 30  # most steps of theta for such a start


@dataclass
class Slope:
    """The gradient of the evidence at one theta: its value, the family's part by each probe, and the fit.

    It has the attributes that a search reads from a fit; the certificate is computed once, at the end.
    """

    theta: np.ndarray
    value: np.ndarray
    each: np.ndarray
    state: State
    information: np.ndarray
    elbo, gap, rounding, tol, optimal = np.nan, np.inf, 0.0, 0.0, True
    ending = Ending("converged", "what a step of theta promises", 0.0, RISE)

    def judged_by(self, tol: float) -> Slope:
        return self


class ProbedEvidence(Objective[Found]):
    """The evidence by fixed probes as an objective, where each fit starts from the last one.

    Only gradients are computed. A value is the previous value plus the mean of both gradients times the step.
    """

    tol = 0.0
    solution: Slope

    def __init__(self, task: Task, z: np.ndarray) -> None:
        self.task, self.z, self.n_family = task, z, task.family.theta.size
        self.last: State | None = None
        self.here: Evaluated | None = None  # the last evaluation
        self.H: np.ndarray | None = None  # the curvature at the root, when it is known
        self.n_solves = 0

    @property
    def bounds(self) -> np.ndarray:
        return self.task.bounds

    @property
    def names(self) -> list[str]:
        return [*self.task.family.names, *self.task.likelihood.theta_names]

    def begin(self, solution: Slope | None) -> None:
        self.last = None if solution is None else solution.state

    def curvature(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        return self.solution.information if self.H is None else self.H

    def learned(self, best: Evaluated, found: Found) -> Found:
        return found

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        here = self.here
        if here is None or not np.array_equal(theta, here.theta):
            self.solution = slope = self._slope(theta)
            value = (
                0.0 if here is None else here.value + 0.5 * float((theta - here.theta) @ (slope.value + here.gradient))
            )
            self.here = here = Evaluated(value, np.array(theta), slope.value, slope, None)
        return here.value, here.gradient

    def _slope(self, theta: np.ndarray) -> Slope:
        """Fit at theta and compute the gradient."""
        task = self.task
        first, own = np.split(theta, [self.n_family])
        likelihood = task.likelihood.with_theta(own) if own.size else task.likelihood
        Q, slopes = task.layout.prior(first)
        blur = 0.0 if self.allowed_gap is None else np.inf if self.last is None else self.allowed_gap
        enough = max(FINEST, min(_LOOSEST * task.n_observed, blur))
        self.last = state = fit(task, likelihood, Q, self.z, enough, self.last, _FAR if blur > _FAR_BLUR else _NEAR)
        self.n_evaluations, self.n_solves = self.n_evaluations + 1, self.n_solves + state.solves
        value, each = state.gradients(slopes)
        total = value + task.family.log_prior(first)[1]
        if own.size:
            total = np.append(total, _own_slope(state) + likelihood.log_prior(own)[1])
        return Slope(np.array(theta), total, each, state, self._information(Q, slopes, own.size))

    def _information(self, Q: list[np.ndarray], slopes: list[tuple[int, np.ndarray]], n_own: int) -> np.ndarray:
        """Information if the latents were observed, and 1/2 for each row for the likelihood's own theta."""
        solved = [(place, np.linalg.solve(Q[place], dQ)) for place, dQ in slopes]
        out = np.eye(len(slopes) + n_own) * 0.5 * self.task.n_observed
        for i, (a, A) in enumerate(solved):
            for j, (b, B) in enumerate(solved):
                out[i, j] = 0.5 * float((A * np.swapaxes(B, -1, -2)).sum()) if a == b else 0.0
        return out + 1e-3 * np.eye(len(slopes) + n_own)


def _own_slope(state: State) -> np.ndarray:
    """d elbo / d(the likelihood's own theta)."""
    return np.asarray(state.likelihood.theta_gradient(state.h[:, None], state.rho[:, None], state.data))


def _own_spread(state: State) -> np.ndarray:
    """The derivative of ``_own_slope`` in the weight of each probe (k, m)."""
    h, rho, m = state.h[:, None], state.rho, state.probed.m
    if not state.likelihood.theta.size:
        return np.zeros((0, m))
    value, each = _own_slope(state), []
    left, right = state.system.lift(state.probed.delta), state.system.lift(state.probed.u)
    whole, middle = state.task.rows.whole, state.rho - state.system.blocked_variance
    for k in range(m):
        off = (whole @ left[:, k]) * (whole @ right[:, k]) - middle
        share = min(0.1, 0.5 / max(1e-12, float((-off / rho).max(initial=0.0))))
        moved = np.asarray(state.likelihood.theta_gradient(h, (rho + share * off)[:, None], state.data))
        each.append((moved - value) / share)
    return np.stack(each, axis=1)


@dataclass
class Searched:
    """The end of the search for theta: the gradient, the mode, and the predicted gain of a further step in nats."""

    slope: Slope
    mode: Mode | None
    rise: float

    @property
    def settled(self) -> bool:
        return self.rise <= RISE

    def result(self, objective: ProbedEvidence) -> SearchResult:
        """theta with its covariance, and the covariance of its error by the probes and by the end of the search."""
        theta, mode = self.slope.theta, self.mode
        covariance = np.zeros((theta.size,) * 2) if mode is None else mode.covariance
        each = self.slope.each
        noise = np.atleast_2d(np.cov(each)) / each.shape[1] if theta.size else covariance
        error = covariance @ noise @ covariance + 2.0 * (self.rise + FINEST) * covariance
        at_bounds, held = ({}, ()) if mode is None else (mode.at_bounds, mode.held)
        counts = objective.n_evaluations, objective.n_solves
        return SearchResult(theta, covariance, error, self.rise, self.settled, *counts, at_bounds, held)


def learn(
    likelihood: Likelihood,
    family: StackedField,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    theta: Any = None,
    learn_theta: bool = True,
    n_probes: int = 32,
    random_state: Any = 0,
    tol: float = 1e-4,
    level: float = 0.99,
    max_iter: int = 50,
    progress: bool = False,
) -> IterativeFit:
    """Fit a sum of terms without a factor of its precision, learn its hyperparameters, and certify it by intervals.

    Parameters
    ----------
    likelihood : Likelihood
        A log-concave likelihood with one predictor for each observation.
    family : StackedField
        Effects of groups and fixed effects, made by ``gmrf.stack``.
    y, weights : arrays (N,)
        y is NaN for unobserved rows.
    names : sequence of str, optional
        Names of the terms, for messages.
    theta : array, optional
        Start: the family's hyperparameters, then the likelihood's own. Default: their present values.
    learn_theta : bool, default True
        Whether to learn theta; if False, the fit is at theta.
    n_probes : int, default 32
        Number of vectors of random signs, a multiple of 4. As many are used for the certificate. Errors decrease with
        the square root of this number.
    random_state : int or Generator, default 0
        Seed of the probes; the same seed gives the same answer.
    tol : float, default 1e-4
        The fit has converged if the upper end of the gap is below tol max(1, |elbo|).
    level : float, default 0.99
        Probability of the intervals.
    max_iter : int, default 50
        Most steps of theta.
    progress : bool, default False
        Whether to show progress.

    Returns
    -------
    IterativeFit

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel import gmrf
    >>> from fenchel.iterative import learn
    >>> from fenchel.likelihoods import Poisson
    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.integers(0, 200, 3000), rng.integers(0, 150, 3000)
    >>> y = rng.poisson(np.exp(0.5 * rng.normal(size=200)[a] + 0.3 * rng.normal(size=150)[b]))
    >>> found = learn(Poisson(), gmrf.stack([(gmrf.iid(200), a), (gmrf.iid(150), b)]), y)
    >>> found.converged, bool(found.gap.upper < 1.0)
    (True, True)
    """
    n_probes = count(WHERE, "n_probes", n_probes, 8)
    if n_probes % 4:
        raise problem(WHERE, f"n_probes = {n_probes}", "a multiple of 4", "The certificate takes them in four groups.")
    tol, level = scalar(WHERE, "tol", tol, 0.0, 0.1), scalar(WHERE, "level", level, 0.5, 1.0)
    began, task = time.perf_counter(), Task(likelihood, family, y, weights, names)
    start = task.theta if theta is None else numeric(WHERE, "theta", theta)
    if start.shape != task.theta.shape or not np.isfinite(start).all():
        raise problem(WHERE, f"theta has shape {start.shape}", f"{task.theta.size} finite numbers")

    def search() -> IterativeFit:
        rng = np.random.default_rng(random_state)
        z, check = (rng.choice([-1.0, 1.0], size=(task.layout.sizes[1], n_probes)) for _ in range(2))
        objective = ProbedEvidence(task, z)
        with reporting(progress, f"learning {start.size} hyperparameters", None) as draw:
            end = _find_root(objective, start, max_iter if learn_theta and start.size else 0, draw)
        last = end.slope
        last.each = np.vstack([last.each, _own_spread(last.state)])
        enough = 1e-4 * tol * max(1.0, float(np.abs(last.state.loss.value).sum()))
        certified = certify(last.state, check, level, enough)
        return IterativeFit(task, certified, end.result(objective), tol, n_probes, time.perf_counter() - began)

    def restore(numbers: dict[str, Any]) -> IterativeFit:
        state = restored(task, numbers["found"].theta, **numbers["state"])
        certified = Certified(state, **numbers["certified"])
        return IterativeFit(task, certified, numbers["found"], tol, n_probes, float(numbers["seconds"]))

    return searched("iterative", search, IterativeFit.numbers, restore)


def approach(objective: ProbedEvidence, start: np.ndarray, max_iter: int, draw: Callback | None) -> Search[Found]:
    """Search until the predicted gain of a step is below ``RISE``."""
    search = Search(objective, max_iter, _SLOPE, draw, SearchOptions(step_limit=_STEP_LIMIT, rise=RISE, trust=_TRUST))
    search.run(np.clip(start, *objective.bounds.T))
    return search


def _find_root(objective: ProbedEvidence, start: np.ndarray, max_iter: int, draw: Callback | None) -> Searched:
    """Find the root of the gradient, first with the information of the prior and then with the curvature."""
    if not max_iter:
        objective(np.clip(start, *objective.bounds.T))
        return Searched(objective.solution, None, 0.0)
    search = approach(objective, start, max_iter, draw)
    here: Slope = search.known.solution
    mode = mode_of(objective, here.theta, guess=here.information)
    objective.H = here.information.copy()
    objective.H[mode.free] = objective.H[:, mode.free] = 0.0
    objective.H[np.ix_(mode.free, mode.free)] = mode.curvature
    objective.here = search.known
    last = Search(objective, _LAST, _SLOPE, draw, SearchOptions(step_limit=_STEP_LIMIT, rise=FINEST))
    last.run(search.known)
    return Searched(last.known.solution, mode, last.remaining)


# -- the start of a fit with a factor -------------------------------------------------------------------------
@dataclass(frozen=True)
class Near:
    """A start: theta, and mean and variance of eta (N,), which are arbitrary for unobserved rows."""

    theta: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    @property
    def posterior(self) -> Near:
        """This object, because a problem reads its start from the posterior of a ``Solution``."""
        return self


def near(
    likelihood: Likelihood,
    family: StackedField,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    random_state: Any = 0,
    progress: bool = False,
) -> Near | None:
    """A start for a fit with a factor, from a search with few probes and no certificate; None if this fails.

    A search from this start needs two or three evaluations instead of ten, and has the same result.
    """
    rng = np.random.default_rng(random_state)
    try:
        task = Task(likelihood, family, y, weights, names)
        objective = ProbedEvidence(task, rng.choice([-1.0, 1.0], size=(task.layout.sizes[1], _START_PROBES)))
        with reporting(progress, "looking for a start without a factor", None) as draw, np.errstate(all="ignore"):
            search = approach(objective, task.theta, _START_STEPS, draw)
    except (Refusal, ArithmeticError, np.linalg.LinAlgError):  # the fit with a factor works without a start
        return None
    theta, state = search.known.theta, search.known.solution.state
    inside = np.all((theta > task.bounds[:, 0]) & (theta < task.bounds[:, 1]))
    if not (search.remaining <= RISE and state.settled and inside):  # a search should not start at a bound
        return None
    mean, variance = np.zeros(task.targets.y.shape[0]), np.ones(task.targets.y.shape[0])
    mean[task.keep], variance[task.keep] = state.h, state.rho
    return Near(theta, mean, variance)


class BegunNear(Solver):
    """A solver that starts from known marginals if no other start is given."""

    def __init__(self, solver: Solver, near: Near) -> None:
        self.solver, self.near, self.name, self.needs_dual = solver, near, solver.name, solver.needs_dual

    def run(self, problem: Problem, start: DualPoint, stopping: Stopping) -> Outcome:
        return self.solver.run(problem, start, stopping)

    def solve(self, problem: Problem, start: Array | None, stopping: Stopping) -> Outcome:
        return self.solver.solve(problem, problem.start_from(self.near) if start is None else start, stopping)
