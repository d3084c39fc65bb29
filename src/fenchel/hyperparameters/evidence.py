"""The evidence of theta: elbo(theta) + log p(theta) and its gradient, each fit starting where the last ones point.

The gradient is the envelope's, with nothing differentiated through the fit; its error is O(sqrt(gap)). So a fit far
from the optimum is run until that error is some hundredths of the slope found last, and near it to ``tol``.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..checks import instance
from ..inference import check_limits, fitted, solver_for
from ..likelihoods.base import Likelihood
from ..likelihoods.targets import Targets
from ..linalg.arrays import ArrayLike
from ..linalg.threads import one_thread
from ..linalg.tolerances import MANY_ROWS
from ..priors.base import Prior
from ..problem import Problem
from ..solvers.base import Callback, Solver
from ..solvers.solution import Solution
from .base import Family
from .learned import Found, Learned
from .objective import Objective, Reached
from .starts import Path

_NEAR = 0.3  # in e-folds: where a fit stagnated, its neighbours will
_SHARE, _LOOSEST = 0.03, 1e-4  # an inner fit's error as a share of the slope, and its largest relative gap
_BLUR, _FINE = 1e-7, 1e-9  # nats: a gap in which slopes worth having are lost, and one in which none is
_MANY = MANY_ROWS
_FIRST = 1e-6  # relative gap of the first fit of many rows, which is far from where theta ends
_STEP = 1e-4  # of theta, in differences of gradients


class Evidence(Objective[Learned]):
    """elbo(theta) + log p(theta) and its gradient; keeps the last good fit as the next one's start."""

    solution: Solution
    prior: Prior

    def __init__(
        self,
        likelihood: Likelihood,
        family: Family,
        y: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        tol: float = 1e-10,
        max_iter: int = 200,
        own: bool = True,
        progress: bool = False,
        method: str | Solver = "newton",
    ) -> None:
        instance("learn", "likelihood", likelihood, Likelihood, "Poisson()")
        instance("learn", "family", family, Family, "KernelCovariance(kernel, X)")
        self.likelihood, self.family = likelihood, family
        self.solver, self.targets = solver_for(likelihood, method), Targets(likelihood, y, weights)
        check_limits(tol, max_iter)
        self.tol, self.max_iter, self.progress = tol, max_iter, progress
        self.on_iteration: Callback | None = None  # hears the iterations of every fit
        first = family.theta
        self.n_family = first.size
        self.start = np.concatenate([first, likelihood.theta if own else np.zeros(0)])
        self.path = Path()
        self.climbs = self.is_large and likelihood.objective.log_concave  # by Newton's steps, as far as is known

    @property
    def last(self) -> Solution | None:
        """The last good fit."""
        return self.path.last

    @property
    def is_large(self) -> bool:
        """Whether fits cost more than what is asked of one beside its gradient."""
        return len(self.targets.y) >= _MANY

    @cached_property
    def bounds(self) -> np.ndarray:
        return np.concatenate([self.family.bounds.reshape(-1, 2), self._own_bounds()])

    def _own_bounds(self) -> np.ndarray:
        """Of the likelihood's own parameters: as it reads them off the data, with where they start inside."""
        own = self.start[self.n_family :]
        if own.size == 0:
            return np.zeros((0, 2))
        seen = self.targets.rows_of(self.likelihood)["weight"] > 0.0
        bounds = self.likelihood.theta_bounds(np.where(seen, self.targets.y, np.nan))
        return np.stack([np.minimum(bounds[:, 0], own), np.maximum(bounds[:, 1], own)], axis=1)

    @property
    def names(self) -> list[str]:
        return [*self.family.names, *(self.likelihood.theta_names if self.start.size > self.n_family else [])]

    def begin(self, solution: Solution | None) -> None:
        self.path = Path(solution)

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, Likelihood]:
        """The family's part, and the likelihood at its own."""
        first, own = np.split(np.asarray(theta, dtype=np.float64), [self.n_family])
        return first, self.likelihood.with_theta(own) if own.size else self.likelihood

    def reachable(self, theta: np.ndarray) -> float:
        """``tol``, or near a point where rounding ended a fit before it, what that one reached: not asked for again."""
        if self.limit is None or np.abs(self.limit[0] - theta).max(initial=0.0) > _NEAR:
            return self.tol
        return max(self.tol, self.limit[1])

    def _fine(self, likelihood: Likelihood) -> float:
        """A relative gap that costs nothing: one Newton step, exact for Gaussian noise and by the start's factor.

        A start accepted as it is would leave a gap that blurs the evidence by more than the last steps of theta change.
        """
        scale = 1.0 if self.last is None else max(1.0, abs(self.last.elbo))
        if self.last is None or not likelihood.objective.conjugate or self.tol * scale < _BLUR:
            return np.inf
        return max(_FINE, 10.0 * self.last.rounding) / scale

    def fit(self, theta: np.ndarray) -> Solution:
        """The inner fit at theta."""
        first, likelihood = self.split(theta)
        tol = self.reachable(theta)
        if self.blur is not None and self.last is not None:
            tol = max(tol, min(_LOOSEST, self.blur / max(1.0, abs(self.last.elbo))))
        elif self.blur is not None and self.is_large:
            tol = max(tol, _FIRST)
        self.prior = self.family.at(first)
        task = Problem(likelihood, self.prior, self.targets)
        start = self.path.start(theta, task)
        fine = min(tol, self._fine(likelihood))
        report, steers = (self.progress, self.on_iteration), tol > self.tol and self.climbs
        self.solution = fitted(task, self.solver, fine, self.max_iter, start, *report, steers)
        if fine < tol and not self.solution.optimal:
            self.solution = self.solution.judged_by(tol)
        self.n_evaluations += 1
        self.n_newton += self.solution.n_iter
        stuck = not self.solution.optimal and self.solution.ending.code != "steered"
        if stuck and np.isfinite(self.solution.gap):
            self.limit = (np.array(theta), min(_LOOSEST, 2.0 * self.solution.gap / max(1.0, abs(self.solution.elbo))))
        if np.isfinite(self.solution.elbo):
            self.path = self.path.onto(theta, self.solution)
        return self.solution

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient: the family's, and of the likelihood's own parameters."""
        first, own = np.split(np.asarray(theta, dtype=np.float64), [self.n_family])
        parts = [self.family.log_prior(first), *([self.likelihood.log_prior(own)] if own.size else [])]
        return sum(value for value, _ in parts), np.concatenate([slope for _, slope in parts])

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        with one_thread(self.last is not None and self.last.posterior._all.small, ours=True):
            return self._evaluated(theta)

    def _evaluated(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        first = np.asarray(theta[: self.n_family], dtype=np.float64)
        sol = self.fit(theta)
        value, slope = self.log_prior(theta)
        own = sol.likelihood_gradient() if theta.size > self.n_family else np.zeros(0)
        gradient = np.concatenate([self.family.gradient(sol, first), own]) + slope
        if self.blur is not None:
            self.blur = _SHARE**2 * self.rising(theta, gradient) ** 2
        return sol.elbo + value, gradient

    def curvature(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """That of the family at the last fit, of the likelihood's own parameters at fixed q, and of log p(theta).

        None with few rows, whose fits cost nothing, where the family does not say, and where a fit may end at one of
        several stationary points: long steps of theta change from one to another.
        """
        if not self.climbs:
            return None
        n, slope = self.n_family, self.log_prior(theta)[1]
        family = self.family.curvature(self.solution, theta[:n], gradient[:n] - slope[:n])
        if family is None:
            self.climbs = False
            return None
        out = np.zeros((theta.size, theta.size))
        out[:n, :n] = family
        for i, step in enumerate(_STEP * np.eye(theta.size)):  # of what is known by its slopes, by their differences
            ahead, behind = (self.log_prior(theta + side)[1][i] for side in (step, -step))
            out[i, i] += max(0.0, (behind - ahead) / (2.0 * _STEP))
            if i >= n:
                out[i, n:] += (self._own_slope(theta - step) - self._own_slope(theta + step)) / (2.0 * _STEP)
        out = (out + out.T) / 2.0
        return out if np.isfinite(out).all() else None

    def _own_slope(self, theta: np.ndarray) -> np.ndarray:
        """The slope along the likelihood's own parameters at theta, with q as it is."""
        _, likelihood = self.split(theta)
        post = self.solution.posterior
        h, rho = (x if x.ndim == 2 else x[:, None] for x in (post.mean, post.variance))
        return likelihood.theta_gradient(h, rho, self.targets.rows_of(likelihood))

    def learned(self, best: Reached, found: Found) -> Learned:
        assert best.prior is not None
        return Learned(**vars(found), likelihood=self.split(best.theta)[1], prior=best.prior)
