"""Learn theta by its evidence: L-BFGS on elbo(theta) + log p(theta), every inner fit warm-started and certified.

Far from the optimum fits are loose (see ``evidence.py``); what is returned is fitted to ``tol``. theta holds the
family's hyperparameters and then the likelihood's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ..checks import Refusal, count, numeric, problem, scalar
from ..likelihoods.base import Likelihood
from ..priors.base import Prior
from ..solvers.ending import Ending
from ..solvers.progress import reporting
from ..solvers.solution import Solution
from .base import Family
from .evidence import Evidence

_FTOL = 1e-15  # the slope ends a search, not slow progress: that one is all rounding
_NOTHING = 1e-12  # of |elbo|: a rise that is rounding
_STEEP = 1e-6  # of |elbo|: a slope, in nats an e-fold, along which a search may be stopped by that
_ARM = 4.0  # in e-folds: how far one search may go; a quadratic model of the far side of a hill steps over it
_ROUNDS = 6  # searches in a row, each from where the last gave up
_DRAWN = 10.0  # random starts lie within this of the likelihood's own parameters: their bounds are far wider
_HAIR = 10.0  # an inner gap that rounding leaves this far above tol is no failure of learning


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
        precision ends before, to a gap that moves no slope by ``gtol``; the ending says which.
    ending : Ending
        A ``SearchEnding``, or the fit's own where nothing was searched; ``status`` is its sentence.
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
    ending: Ending
    n_evaluations: int
    n_newton: int
    restarts: list[tuple[np.ndarray, float]] = field(default_factory=list)
    at_bounds: dict[int, str] = field(default_factory=dict)
    held: tuple[int, ...] = ()

    @property
    def status(self) -> str:
        return self.ending.sentence


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

    theta, message, n_steps, rounds, allowed = start, "nothing to learn", 0, 0, gtol
    before, slope = negative(theta)
    while start.size and rounds < _ROUNDS and n_steps < max_iter:
        # a box makes L-BFGS-B take its first step whole, to a corner: scaled to one e-fold, it begins sensibly
        scale = 1.0 / max(1.0, float(np.linalg.norm(slope)))
        options = {"maxiter": max_iter - n_steps, "gtol": scale * gtol, "ftol": _FTOL, "maxfun": 20 * max_iter}
        near = np.clip(np.stack([theta - _ARM, theta + _ARM], axis=1), *evidence.bounds.T[:, :, None])
        found = minimize(negative, theta, jac=True, method="L-BFGS-B", bounds=near, options=options)
        message, n_steps, scale = found.message.lower(), n_steps + int(found.nit), 1.0
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
    code = "max_iter" if n_steps >= max_iter else "slope" if slope_left > allowed else "fit"
    at_bounds, held = evidence.at_bounds(theta, gradient, gtol)
    ending = SearchEnding(
        "converged" if converged else code,
        "largest projected slope",
        slope_left,
        allowed,
        search=message,
        at_bounds={evidence.names[i]: side for i, side in at_bounds.items()},
        fit=solution.ending,
    )
    prior = evidence.family.at(first)
    return Learned(theta, likelihood, prior, solution, value, gradient, converged, ending, 0, 0, [], at_bounds, held)
