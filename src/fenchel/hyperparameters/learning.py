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

_FTOL = 1e-15  # the slope ends a search, not slow progress: that one is all rounding
_NOTHING = 1e-12  # of |elbo|: a rise that is rounding
_STEEP = 1e-6  # of |elbo|: a slope, in nats an e-fold, along which a search may be stopped by that
_AT = 1e-4  # nearer to a bound than this, theta is at it
_NEAR = 0.3  # in e-folds: where a fit stagnated, its neighbours will
_ARM = 4.0  # in e-folds: how far one search may go; a quadratic model of the far side of a hill steps over it
_ROUNDS = 6  # searches in a row, each from where the last gave up
_SHARE, _LOOSEST = 0.03, 1e-4  # an inner fit's error as a share of the slope, and its largest relative gap
_FLAT, _STRIDE = 0.05, 2.0  # directions the path hardly explored are not extrapolated, nor any s by more than this
_DRAWN = 10.0  # random starts lie within this of the likelihood's own parameters: their bounds are far wider
_HAIR = 10.0  # an inner gap that rounding leaves this far above tol is no failure of learning


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
        No slope within the bounds exceeds ``gtol``, and the fit there is certified to ``tol``, or, where double
        precision ends before, to a gap that moves no slope by ``gtol``; the status says which.
    status : str
    n_evaluations, n_newton : int
        Inner fits, and their iterations in all.
    restarts : list of (theta, objective)
        Where each start ended, the best first.
    at_bounds : dict of int to str
        The entries of theta that ended at a bound, "lower" or "upper".
    held : tuple of int
        Those of them where the objective still rises beyond the bound: the bound decides them, not the data.
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
    at_bounds: dict[int, str] = field(default_factory=dict)
    held: tuple[int, ...] = ()


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
        progress: bool = False,
    ) -> None:
        instance("learn", "likelihood", likelihood, Likelihood, "Poisson()")
        instance("learn", "family", family, Family, "KernelCovariance(kernel, X)")
        self.likelihood, self.family, self.y, self.weights = likelihood, family, y, weights
        self.tol, self.max_iter, self.progress = tol, max_iter, progress
        self.on_iteration: Callable[[dict[str, float]], Any] | None = None  # hears the iterations of every fit
        self.n_family = family.theta.size
        self.start = np.concatenate([family.theta, likelihood.theta if own else np.zeros(0)])
        self.bounds = np.concatenate([family.bounds.reshape(-1, 2), self._own_bounds()])
        self.last: Solution | None = None
        self.slope: float | None = None  # the largest slope found last; None asks for ``tol`` at once
        self.limit: tuple[np.ndarray, float] | None = None  # where rounding last ended a fit, and twice its gap there
        self.path: list[tuple[np.ndarray, np.ndarray]] = []  # the last thetas and their s
        self.n_evaluations = self.n_newton = 0

    def _own_bounds(self) -> np.ndarray:
        """Of the likelihood's own parameters: as it reads them off the data, with where they start inside."""
        own = self.start[self.n_family :]
        if own.size == 0:
            return np.zeros((0, 2))
        seen = self.likelihood.prepare(self.y, self.weights)["weight"] > 0.0
        bounds = self.likelihood.theta_bounds(np.where(seen, np.asarray(self.y, dtype=np.float64), np.nan))
        return np.stack([np.minimum(bounds[:, 0], own), np.maximum(bounds[:, 1], own)], axis=1)

    def rising(self, theta: np.ndarray, gradient: np.ndarray) -> float:
        """The largest slope within the bounds."""
        return float(np.abs(np.clip(theta + gradient, *self.bounds.T) - theta).max(initial=0.0))

    def at_bounds(self, theta: np.ndarray, gradient: np.ndarray, gtol: float) -> tuple[dict[int, str], tuple[int, ...]]:
        """Which entries are at a bound, and which of them would go on beyond it. Equal bounds are no choice."""
        out: dict[int, str] = {}
        for i, (low, high) in enumerate(self.bounds):
            if high - low > _AT and not low + _AT < theta[i] < high - _AT:
                out[i] = "lower" if theta[i] <= low + _AT else "upper"
        return out, tuple(i for i, side in out.items() if gradient[i] * (1 if side == "upper" else -1) > gtol)

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

    def reachable(self, theta: np.ndarray) -> float:
        """``tol``, or near a point where rounding ended a fit before it, what that one reached: not asked for again."""
        if self.limit is None or np.abs(self.limit[0] - theta).max(initial=0.0) > _NEAR:
            return self.tol
        return max(self.tol, self.limit[1])

    def fit(self, theta: np.ndarray) -> Solution:
        """The inner fit at theta."""
        first, likelihood = self.split(theta)
        tol = self.reachable(theta)
        if self.slope is not None and self.last is not None:
            scale = max(1.0, abs(self.last.elbo))
            tol = max(tol, min(_LOOSEST, _SHARE**2 * self.slope**2 / scale))
        prior, rest = self.family.at(first), {"weights": self.weights, "callback": self.on_iteration}
        start, seen = self.predicted(theta), self.progress
        self.solution = infer(likelihood, prior, self.y, "newton", tol, self.max_iter, start, seen, **rest)
        self.n_evaluations += 1
        self.n_newton += self.solution.n_iter
        if not self.solution.optimal and np.isfinite(self.solution.gap):
            self.limit = (np.array(theta), min(_LOOSEST, 2.0 * self.solution.gap / max(1.0, abs(self.solution.elbo))))
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
            self.slope = self.rising(theta, gradient)
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
        Further starts, drawn uniformly within the (finite) bounds with ``rng``; the likelihood's own parameters within
        a factor of e^10 of where they start.
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
        reach = np.where(np.arange(first.size) < evidence.n_family, np.inf, _DRAWN)
        low, high = np.maximum(lower, starts[0] - reach), np.minimum(upper, starts[0] + reach)
        starts += list(np.random.default_rng(rng).uniform(low, high, size=(n_restarts, lower.size)))
    with reporting(progress, f"learning {first.size} hyperparameters", None) as draw:

        def report(row: dict[str, float]) -> None:
            for listener in (draw, callback):
                if listener is not None:
                    listener(row)

        if draw is not None:  # a fit of many rows takes minutes: its iterations show too, numbered by the evaluation
            evidence.on_iteration = lambda row: draw({**row, "iteration": evidence.n_evaluations + 1.0})
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
    best: tuple[float, np.ndarray, np.ndarray, Solution] | None = None
    evidence.begin(None)
    evidence.slope, evidence.limit, scale = 0.0, None, 1.0

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
        if not good and best is None:
            slope = np.abs(gradient).max(initial=0.0)
            raise problem(
                "learn",
                f"the evidence or its gradient is not finite at the start: {value}, largest slope {slope:.1e}",
                "a start, covariates and a prior mean on the scale of the data",
                f"The fit there: {evidence.solution.status}. Rescale the inputs, or give theta.",
            )
        if not good and best is not None:
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

    def certify() -> None:
        """Refit the best point exactly, or as far as rounding allows, unless it is: its slope is then no estimate."""
        nonlocal best
        evidence.slope = None
        assert best is not None
        _, theta, _, solution = best
        tol = evidence.reachable(theta)
        short = solution.gap - solution.rounding  # no fit gets below its rounding
        if solution.tol > tol if np.isinf(solution.gap) else short > tol * max(1.0, abs(solution.elbo)):
            evidence.begin(solution)
            best = None
            negative(theta)

    theta, message, n_steps, rounds, allowed = start, "; nothing to learn", 0, 0, gtol
    before, slope = negative(theta)
    while start.size and rounds < _ROUNDS and n_steps < max_iter:
        # a box makes L-BFGS-B take its first step whole, to a corner: scaled to one e-fold, it begins sensibly
        scale = 1.0 / max(1.0, float(np.linalg.norm(slope)))
        options = {"maxiter": max_iter - n_steps, "gtol": scale * gtol, "ftol": _FTOL, "maxfun": 20 * max_iter}
        near = np.clip(np.stack([theta - _ARM, theta + _ARM], axis=1), *evidence.bounds.T[:, :, None])
        found = minimize(negative, theta, jac=True, method="L-BFGS-B", bounds=near, options=options)
        message, n_steps, scale = f"; {found.message.lower()}", n_steps + int(found.nit), 1.0
        assert best is not None
        if np.any((best[1] == near.T) & (best[1] != evidence.bounds.T)) and -best[0] < before:
            before, theta, slope = -best[0], best[1], best[2]  # at the arm's end: go on from there
            continue
        exact, rounds = evidence.slope is None, rounds + 1
        certify()
        risen, theta, slope, rounding = before + best[0], best[1], best[2], best[3].rounding
        if evidence.rising(theta, slope) <= gtol:
            break
        if exact and risen <= max(_NOTHING * abs(before), rounding):  # not even exact fits rise any more
            allowed = max(gtol, _STEEP * abs(before), rounding**0.5)  # a slope whose rise is lost in rounding
            break
        before = -best[0]
    evidence.limit = None  # what is returned was asked for all of tol
    certify()
    assert best is not None
    value, theta, gradient, solution = best
    solution = solution.judged_by(evidence.tol)
    first, likelihood = evidence.split(theta)
    slope_left = evidence.rising(theta, gradient)
    rounded = solution.gap <= _HAIR * evidence.tol * max(1.0, abs(solution.elbo)) and 2.0 * solution.gap <= gtol**2
    converged = slope_left <= allowed and (solution.optimal or rounded)
    out = Learned(theta, likelihood, evidence.family.at(first), solution, value, gradient, converged, "", 0, 0)
    out.at_bounds, out.held = evidence.at_bounds(theta, gradient, gtol)
    out.status = (
        f"{'converged' if converged else 'not converged'}: largest projected slope {slope_left:.1e} "
        f"{'<=' if slope_left <= allowed else '>'} {allowed:.1e}{message}; {_said(evidence, out.at_bounds)}"
        f"inner fit: {solution.status}"
    )
    return out


def _said(evidence: Evidence, at_bounds: dict[int, str]) -> str:
    """The parameters at a bound, for the status."""
    names = [*evidence.family.names, *(f"{evidence.likelihood.name}.theta[{i}]" for i in range(evidence.start.size))]
    return "".join(f"{names[i]} is at its {side} bound; " for i, side in at_bounds.items())
