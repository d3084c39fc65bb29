"""Learn theta by its evidence: L-BFGS on elbo(theta) + log p(theta), every inner fit warm-started and certified.

The gradient is the envelope's, with nothing differentiated through the fit; its error is O(sqrt(gap)). So a fit far
from the optimum is run until that error is some hundredths of the slope found last, and near it, and for what is
returned, to ``tol``. theta holds the family's hyperparameters and then the likelihood's own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ..checks import Refusal, count, instance, numeric, problem, scalar
from ..inference import infer
from ..likelihoods.base import Likelihood
from ..linalg.arrays import to_numpy
from ..priors.base import Prior
from ..solvers.progress import reporting
from ..solvers.solution import Solution
from .base import Family

_FTOL = 2.2e-9  # relative progress below which a search ends: scipy's own, and scikit-learn's
_SHARE, _LOOSEST = 0.03, 1e-4  # an inner fit's error as a share of the slope, and its largest relative gap
_FLAT, _STRIDE = 0.05, 2.0  # directions the path hardly explored are not extrapolated, nor any s by more than this
_LIKELIHOOD_REACH = 10.0  # a likelihood's own parameters stay within this of where they start


@dataclass
class Learned:
    """What was learned.

    Attributes
    ----------
    theta : array
        The family's hyperparameters, then the likelihood's.
    likelihood, prior, solution : the model at theta, and its fit
    objective : float
        elbo + log p(theta).
    gradient : array
        Of the objective at theta.
    converged : bool
        The search ended at a point where no allowed direction rises any more, and the fit there is certified.
    status : str
    n_evaluations, n_newton : int
        Inner fits, and their iterations in all.
    restarts : list of (theta, objective)
        Where each start ended, the best first.
    """

    theta: np.ndarray
    likelihood: Likelihood
    prior: Prior
    solution: Solution
    objective: float
    gradient: np.ndarray
    converged: bool
    status: str
    n_evaluations: int
    n_newton: int
    restarts: list[tuple[np.ndarray, float]] = field(default_factory=list)


class Evidence:
    """elbo(theta) + log p(theta) and its gradient; keeps the last good fit as the next one's start."""

    def __init__(
        self,
        likelihood: Likelihood,
        family: Family,
        y: Any,
        *,
        weights: Any = None,
        tol: float = 1e-10,
        max_iter: int = 200,
        own: bool = True,
    ) -> None:
        instance("learn", "likelihood", likelihood, Likelihood, "Poisson()")
        instance("learn", "family", family, Family, "KernelCovariance(kernel, X)")
        self.likelihood, self.family, self.y, self.weights = likelihood, family, y, weights
        self.tol, self.max_iter = tol, max_iter
        self.n_family = family.theta.size
        self.start = np.concatenate([family.theta, likelihood.theta if own else np.zeros(0)])
        own_bounds = self.start[self.n_family :, None] + np.array([[-_LIKELIHOOD_REACH, _LIKELIHOOD_REACH]])
        self.bounds = np.concatenate([family.bounds.reshape(-1, 2), own_bounds.reshape(-1, 2)])
        self.last: Solution | None = None
        self.slope: float | None = None  # the largest slope found last; None asks for ``tol`` at once
        self.path: list[tuple[np.ndarray, np.ndarray]] = []  # the last thetas and their s
        self.n_evaluations = self.n_newton = 0

    def begin(self, solution: Solution | None) -> None:
        """Forget the path; the next fit starts at ``solution``, or cold."""
        self.last, self.path = solution, []

    def predicted(self, theta: np.ndarray) -> Any:
        """Where the next fit starts: s on the plane through the last few fits, seen as a function of theta.

        A warm start is wrong by the first order in the step; this one by the second, which saves a Newton iteration.
        """
        if self.last is None or len(self.path) < 2:
            return self.last
        (here, s), *earlier = self.path[::-1]
        steps = np.array([there - here for there, _ in earlier])
        moves = np.stack([old - s for _, old in earlier])
        along = np.linalg.pinv(steps, rcond=_FLAT).T @ (np.asarray(theta, dtype=np.float64) - here)
        shift = np.tensordot(along, moves, axes=1)
        return s + np.clip(shift, -_STRIDE, _STRIDE)

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, Likelihood]:
        """The family's part, and the likelihood at its own."""
        first, own = np.split(np.asarray(theta, dtype=np.float64), [self.n_family])
        return first, self.likelihood.with_theta(own) if own.size else self.likelihood

    def fit(self, theta: np.ndarray) -> Solution:
        """The inner fit at theta."""
        first, likelihood = self.split(theta)
        tol = self.tol
        if self.slope is not None and self.last is not None:
            scale = max(1.0, abs(self.last.elbo))
            tol = max(tol, min(_LOOSEST, _SHARE**2 * self.slope**2 / scale))
        prior, rest = self.family.at(first), {"weights": self.weights}
        self.solution = infer(likelihood, prior, self.y, "newton", tol, self.max_iter, self.predicted(theta), **rest)
        self.n_evaluations += 1
        self.n_newton += self.solution.n_iter
        if np.isfinite(self.solution.elbo):
            self.last = self.solution
            self.path = [*self.path[-theta.size :], (np.array(theta, dtype=np.float64), to_numpy(self.solution.s))]
        return self.solution

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""
        first = np.asarray(theta[: self.n_family], dtype=np.float64)
        sol = self.fit(theta)
        value, slope = self.family.log_prior(first)
        gradient = self.family.gradient(sol, first) + slope
        if theta.size > self.n_family:
            gradient = np.concatenate([gradient, sol.likelihood_gradient()])
        if self.slope is not None:
            inward = np.clip(theta + gradient, *self.bounds.T) - theta
            self.slope = float(np.abs(inward).max(initial=0.0))
        return sol.elbo + value, gradient


def learn(
    likelihood: Likelihood,
    family: Family,
    y: Any,
    *,
    theta: Any = None,
    weights: Any = None,
    learn_likelihood: bool = True,
    n_restarts: int = 0,
    rng: Any = None,
    tol: float = 1e-10,
    max_iter: int = 100,
    gtol: float = 1e-3,
    progress: bool = False,
    callback: Callable[[dict[str, float]], Any] | None = None,
) -> Learned:
    """Maximise the evidence bound over hyperparameters.

    Parameters
    ----------
    likelihood, family, y, weights
        The model; ``family`` is a prior with hyperparameters (``KernelCovariance``, ``WeightVariances``, ``gmrf``...).
    theta : array, optional
        Where to start; default: where the family and the likelihood stand.
    learn_likelihood : bool
        Whether the likelihood's own parameters (a variance, cutpoints) are learned too.
    n_restarts : int
        Further starts, drawn uniformly within the (finite) bounds with ``rng``.
    tol : float
        Relative gap of the inner fits.
    max_iter : int
        Iterations of the search, each start.
    gtol : float
        It ends where no slope within the bounds exceeds this, in nats for an e-fold of a hyperparameter.
    progress : bool
        Draw a live line.
    callback : callable, optional
        Hears each evaluation as a dict (iteration, seconds, elbo, gap, step).

    Returns
    -------
    Learned

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.hyperparameters import KernelCovariance, learn
    >>> from fenchel.likelihoods import Poisson
    >>> x = np.linspace(0, 6, 30)
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x)))
    >>> found = learn(Poisson(), KernelCovariance(1.0 * RBF(1.0), x[:, None], mean=1.0), counts)
    >>> found.converged
    True
    """
    evidence = Evidence(likelihood, family, y, weights=weights, tol=tol, own=learn_likelihood)
    lower, upper = evidence.bounds.T
    first = evidence.start if theta is None else numeric("learn", "theta", theta)
    n_restarts, max_iter = count("learn", "n_restarts", n_restarts), count("learn", "max_iter", max_iter)
    gtol = scalar("learn", "gtol", gtol, 0.0)
    if callback is not None and not callable(callback):
        raise problem("learn", f"callback is a {type(callback).__name__}", "a function of a trace row, or None")
    if first.shape != evidence.start.shape or not np.isfinite(first).all():
        got = f"theta has shape {first.shape}"
        raise problem(
            "learn", got, f"{evidence.start.size} finite numbers: {', '.join(family.names)}, then the likelihood's"
        )
    starts = [np.clip(first, lower, upper)]
    if n_restarts:
        if not np.isfinite(evidence.bounds).all():
            raise problem("learn", "n_restarts needs finite bounds", "bounds on every hyperparameter")
        starts += list(np.random.default_rng(rng).uniform(lower, upper, size=(n_restarts, lower.size)))
    with reporting(progress, f"learning {first.size} hyperparameters", callback) as report:
        ends = [_climb(evidence, starts[0], max_iter, gtol, report)]
        for start in starts[1:]:
            with suppress(Refusal):  # a random start beyond double precision is none
                ends.append(_climb(evidence, start, max_iter, gtol, report))
    ends.sort(key=lambda end: -end.objective)
    best = ends[0]
    best.n_evaluations, best.n_newton = evidence.n_evaluations, evidence.n_newton
    best.restarts = [(end.theta, end.objective) for end in ends]
    return best


def _climb(evidence: Evidence, start: np.ndarray, max_iter: int, gtol: float, report: Any) -> Learned:
    import time

    began = time.perf_counter()
    lower, upper = evidence.bounds.T
    best: tuple[float, np.ndarray, np.ndarray, Solution] | None = None
    evidence.begin(None)
    evidence.slope, scale = 0.0, 1.0

    def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        if best is not None and np.array_equal(theta, best[1]):  # the start, asked for again by the search
            return -scale * best[0], -scale * best[2]
        try:
            value, gradient = evidence(theta)
            good = bool(np.isfinite(value) and np.isfinite(gradient).all())
        except ValueError:  # beyond double precision: a wall, told to the search as a slope back to the last good point
            good = False
            if best is None:
                raise
        if not good:
            if best is None:
                raise problem(
                    "learn",
                    f"the evidence or its gradient is not finite at the start, theta = {np.round(theta, 3).tolist()}",
                    "a start, covariates and a prior mean on the scale of the data",
                    "Rescale the inputs, for example with sklearn.preprocessing.StandardScaler, or give theta.",
                )
            away = theta - best[1]
            steep = 10.0 * (1.0 + float(np.abs(best[2]).sum())) / max(float(np.linalg.norm(away)), 1e-12)
            return scale * (-best[0] + 0.5 * steep * float(away @ away)), scale * steep * away
        if best is None or value > best[0]:
            best = (value, np.array(theta), gradient, evidence.solution)
        if report is not None:
            sol = evidence.solution
            report(
                {
                    "iteration": evidence.n_evaluations,
                    "seconds": time.perf_counter() - began,
                    "elbo": value,
                    "elbo_upper": sol.elbo_upper,
                    "gap": sol.gap,
                    "step": float(np.abs(gradient).max(initial=0.0)),
                }
            )
        return -scale * value, -scale * gradient

    if start.size == 0:
        negative(start)
        message, success = "nothing to learn", True
    else:
        # a box makes L-BFGS-B take its first step whole, to a corner: scaled to one e-fold, it begins sensibly
        scale = 1.0 / max(1.0, float(np.linalg.norm(negative(start)[1])))
        options = {"maxiter": max_iter, "gtol": scale * gtol, "ftol": _FTOL, "maxfun": 20 * max_iter}
        found = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=evidence.bounds, options=options)
        if found.status == 2 and best is not None:  # its search failed: where a loose fit's error is felt, fit exactly
            evidence.slope = None
            evidence.begin(best[3])
            theta, best = best[1], None
            found = minimize(negative, theta, jac=True, method="L-BFGS-B", bounds=evidence.bounds, options=options)
        message, success = str(found.message), bool(found.success)
    assert best is not None
    value, theta, gradient, solution = best
    allowed = evidence.tol * max(1.0, abs(solution.elbo))
    loose = solution.tol > evidence.tol if np.isinf(solution.gap) else solution.gap > allowed
    if loose:  # what is returned is certified
        evidence.slope = None
        evidence.begin(solution)
        value, gradient = evidence(theta)
        solution = evidence.solution
    solution = solution.judged_by(evidence.tol)
    first, likelihood = evidence.split(theta)
    projected = np.clip(theta + gradient, lower, upper) - theta
    slope = float(np.abs(projected).max(initial=0.0))
    converged = success and solution.converged
    status = (
        f"{'converged' if converged else 'not converged'}: largest projected slope {slope:.1e}; {message.lower()}; "
        f"inner fit: {solution.status}"
    )
    return Learned(theta, likelihood, evidence.family.at(first), solution, value, gradient, converged, status, 0, 0)
