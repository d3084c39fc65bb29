"""The evidence of theta, elbo(theta) + log p(theta), and its gradient; each fit starts where the last ones point.

The gradient is the envelope's, with nothing differentiated through the fit; its error is O(sqrt(gap)). So a fit far
from the optimum is run until that error is some hundredths of the slope found last, and near it to ``tol``.

``CorrectedEvidence`` goes beyond the Gaussian: elbo + correction + log p(theta), with

    d log p(y|theta) / dtheta ~ d elbo / dtheta + d correction / dtheta

The second part has no envelope. It is that of a line through corrections at d + 1 points (``CorrectionModel``): smooth
and small beside the elbo, a correction needs no more. Groups that are integrated out have exact slopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import gates
from ..checks import instance
from ..corrections.collapsed import Collapsed
from ..corrections.corrected import correct
from ..inference import check_limits, fitted, solver_for
from ..likelihoods.base import Likelihood, Targets
from ..linalg.arrays import Array, ArrayLike, asarray, to_numpy
from ..linalg.machine import one_thread
from ..priors.base import Prior
from ..problem import Problem
from ..solvers.base import Callback, Solver
from ..solvers.solution import Solution, restored
from .base import Evaluated, Family, Found, Learned, Objective
from .correction_model import CorrectionModel
from .mode import Coordinates

if TYPE_CHECKING:
    from ..corrections.corrected import Corrected
    from ..corrections.importance import ImportanceSample
    from ..corrections.interpolated import Interpolated


_NEAR = 0.3  # log units: where a fit stagnated, its neighbours will
_SLOPE_SHARE = 0.03  # of the slope: the error that an inner fit may leave in it
_LOOSEST = 1e-4  # relative gap of an inner fit, at most
_HIDING_GAP = 1e-7  # nats: a gap that hides slopes worth having
_FINE_GAP = 1e-9  # nats: a gap that hides none
_FIRST = 1e-6  # relative gap of the first fit of many rows, which is far from where theta ends
_STEP = 1e-4  # of theta, in differences of gradients
SETTLED_SHARE = 0.03  # of the rise from one fit to the next: what a fit that only steers may have left undone
FLAT_DIRECTION = 0.05  # of the longest step: directions less explored are not extrapolated
LONGEST_SHIFT = 2.0  # of any s by extrapolation
STEP_TO_SLOPE = 0.05  # e-folds: how far the points are from theta at which the slope of the correction is read off


class WarmStarts(NamedTuple):
    """Where the fit at a new theta starts: on the plane through the last few fits, seen as a function of theta.

    A warm start is wrong by the first order in the step of theta; this one by the second, which saves a
    Newton iteration. With few rows the plane is one of s. Many rows add up in alpha, of which a wide prior
    makes much: there it is one of the sites' own tau, in which alpha is affine, so that sums of alpha that
    are nearly zero in all fits stay so.

    last : the last good fit
    points : theta and s of as many fits as theta has entries, and one more
    """

    last: Solution | None = None
    points: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def extended(self, theta: np.ndarray, solution: Solution) -> WarmStarts:
        """With the fit at theta."""
        point = np.array(theta, dtype=np.float64), to_numpy(solution.s)
        before = self.points[-theta.size :] if self._is_settled(solution) else ()
        return WarmStarts(solution, (*before, point))

    def _is_settled(self, solution: Solution) -> bool:
        """Whether the last fit left little undone beside its distance to the next, which theta then explains."""
        last = self.last
        if last is None or last.ending.code != "steered":
            return True
        return last.ending.value * max(1.0, abs(last.elbo)) <= SETTLED_SHARE * abs(solution.elbo - last.elbo)

    def start(self, theta: np.ndarray, task: Problem) -> Solution | Array | None:
        """Of the fit of ``task`` at theta: an s, the last fit where there is no plane yet, None where there is none."""
        if self.last is None or len(self.points) < 2:
            return self.last
        (here, s), *earlier = self.points[::-1]
        steps, others = np.array([there - here for there, _ in earlier]), [old for _, old in earlier]
        shares = np.linalg.pinv(steps, rcond=FLAT_DIRECTION).T @ (np.asarray(theta, dtype=np.float64) - here)
        if task.bound.convex and task.n_observations >= gates.MANY_ROWS:
            there = _combined(task, s, others, shares)
            return self.last if there is None else there
        shift = np.tensordot(shares, np.stack([old - s for old in others]), axes=1)
        return s + np.clip(shift, -LONGEST_SHIFT, LONGEST_SHIFT)


def _combined(task: Problem, s: Array, others: Sequence[Array], shares: np.ndarray) -> Array | None:
    """s where tau has gone from that of ``s`` by shares of the ways to the others, or part of the way.

    None near a boundary, or where potentials share a normalisation.
    """
    rows, s = task.all_rows, asarray(s, task.weight)
    here = task.site(s, rows)
    if here.slack is not None:
        return None
    way = 0.0 * here.tau
    for share, other in zip(shares, others, strict=True):
        way = way + float(share) * (task.site(asarray(other, task.weight), rows).tau - here.tau)
    for part in (1.0, 0.5, 0.25, 0.125):
        there = task.dual.straight(s, part * way / here.spread, rows)
        if there is not None:
            return there
    return None


class Evidence(Objective[Learned]):
    """elbo(theta) + log p(theta) and its gradient; keeps the last good fit as the next one's start."""

    solution: Solution
    prior: Prior
    known_curvature: np.ndarray | None = None  # (n_theta, n_theta), where it was found before: of a sample of the rows
    first_start: Any = None  # of the first fit, as ``Problem.start_from`` takes it

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
        self.warm = WarmStarts()
        self.climbs = self.is_large and likelihood.objective.log_concave  # by Newton's steps, as far as is known

    @property
    def last(self) -> Solution | None:
        """The last good fit."""
        return self.warm.last

    @property
    def is_large(self) -> bool:
        """Whether fits cost more than what is asked of one beside its gradient."""
        return len(self.targets.y) >= gates.MANY_ROWS

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
        self.warm = WarmStarts(solution)

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
        if self.last is None or not likelihood.objective.conjugate or self.tol * scale < _HIDING_GAP:
            return np.inf
        return max(_FINE_GAP, 10.0 * self.last.rounding) / scale

    def fit(self, theta: np.ndarray) -> Solution:
        """The inner fit at theta."""
        first, likelihood = self.split(theta)
        tol = self.reachable(theta)
        if self.allowed_gap is not None and self.last is not None:
            tol = max(tol, min(_LOOSEST, self.allowed_gap / max(1.0, abs(self.last.elbo))))
        elif self.allowed_gap is not None and self.is_large:
            tol = max(tol, _FIRST)
        self.prior = self.family.at(first)
        task = Problem(likelihood, self.prior, self.targets)
        start = self.first_start if self.last is None else self.warm.start(theta, task)
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
            self.warm = self.warm.extended(theta, self.solution)
        return self.solution

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient: the family's, and of the likelihood's own parameters."""
        first, own = np.split(np.asarray(theta, dtype=np.float64), [self.n_family])
        parts = [self.family.log_prior(first), *([self.likelihood.log_prior(own)] if own.size else [])]
        return sum(value for value, _ in parts), np.concatenate([slope for _, slope in parts])

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        with one_thread(self.last is not None and self.last.posterior.predictors.small, ours=True):
            return self._evaluated(theta)

    def _evaluated(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        first = np.asarray(theta[: self.n_family], dtype=np.float64)
        sol = self.fit(theta)
        value, slope = self.log_prior(theta)
        own = sol.likelihood_gradient() if theta.size > self.n_family else np.zeros(0)
        gradient = np.concatenate([self.family.gradient(sol, first), own]) + slope
        if self.allowed_gap is not None:
            self.allowed_gap = _SLOPE_SHARE**2 * self.largest_slope(theta, gradient) ** 2
        return sol.elbo + value, gradient

    def curvature(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """That of the family at the last fit, of the likelihood's own parameters at fixed q, and of log p(theta).

        None with few rows, whose fits cost nothing, where the family does not say, and where a fit may end at one of
        several stationary points: long steps of theta change from one to another.
        """
        if self.known_curvature is not None:
            return self.known_curvature
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

    def restored(self, numbers: dict[str, Any]) -> Learned:
        """What ``learn`` found, from what ``Learned.numbers`` gave."""
        theta = np.asarray(numbers["theta"], dtype=np.float64)
        if theta.shape != self.start.shape or not np.isfinite(theta).all():
            raise ValueError("theta has another shape than the hyperparameters")
        first, likelihood = self.split(theta)
        self.family.at(self.start[: self.n_family])  # a sparse factor is analysed where learning starts
        prior = self.family.at(first)
        solution = restored(Problem(likelihood, prior, self.targets), numbers["solution"])
        others = {name: value for name, value in numbers.items() if name not in ("of", "theta", "solution")}
        return Learned(theta=theta, solution=solution, likelihood=likelihood, prior=prior, **others)

    def learned(self, best: Evaluated, found: Found) -> Learned:
        assert best.prior is not None
        return Learned(**vars(found), likelihood=self.split(best.theta)[1], prior=best.prior)


def doubt_of(found: Corrected | Collapsed | Interpolated | ImportanceSample) -> str:
    """What a user should know of a corrected evidence first, as a sentence; empty where it is trusted."""
    if not found.nearer:
        return not_used(found.status)
    if not found.trusted:
        return f"the corrected evidence may be off by {found.log_evidence_se:.2g} nats: {found.status}"
    return ""


def not_used(why: str) -> str:
    """The sentence where theta is by the elbo though the corrected evidence was asked for."""
    return f"sds of terms are the elbo's and may be too small, as the corrected evidence does not hold: {why}"


class CorrectedEvidence(Evidence):
    """An ``Evidence`` whose value has the correction in it.

    Where the correction has exact slopes (groups integrated out) they are used. Elsewhere ``about`` reads a model of it
    off the points about one theta, and its slopes are those of the model.
    """

    model: CorrectionModel | None = None
    known: Sequence[tuple[np.ndarray, Any]] = ()  # the last corrections with exact slopes

    def about(self, theta: np.ndarray, found: Any) -> bool:
        """Be ready for a search from theta, where the correction is ``found``; whether its slopes are exact.

        The fit at theta was the last one.
        """
        self.model, exact = None, found.as_solution() is not None
        if exact:
            self.known = [(theta.copy(), found)]
            return True
        known = [(theta, self._gain(found))]
        free = [i for i in range(theta.size) if self.bounds[i, 1] > self.bounds[i, 0]]
        for i in free:
            there, (low, high) = theta.copy(), self.bounds[i]
            there[i] += STEP_TO_SLOPE if theta[i] + STEP_TO_SLOPE <= high else -min(STEP_TO_SLOPE, theta[i] - low)
            self.allowed_gap = None  # a loose fit's correction would be another function of theta
            known.append((there, self._gain(correct(self.fit(there), True, found.like))))
        thetas, gains = (np.array(each) for each in zip(*known, strict=True))
        at = Coordinates.straight(theta, free, STEP_TO_SLOPE * np.eye(len(free)))
        self.model = CorrectionModel(at, thetas[np.isfinite(gains)], gains[np.isfinite(gains)])
        return False

    def correction_at(self, theta: np.ndarray) -> Any:
        """One of the last corrections, where it was at theta."""
        return next((found for at, found in self.known if np.array_equal(at, theta)), None)

    @staticmethod
    def _gain(found: Any) -> float:
        """log p(y) less the elbo; not a number where the elbo is as near."""
        return float(found.log_evidence - found.elbo) if found.nearer else np.nan

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        if self.model is not None:
            value, gradient = super().__call__(theta)
            return value + float(self.model(theta[None])[0]), gradient + self.model.slope(theta)
        self.allowed_gap = None
        solution, (value, slope) = self.fit(theta), self.log_prior(theta)
        found = self.correction_at(theta)
        if found is None:
            found = correct(solution, True, self.known[0][1].like)
            self.known = [self.known[0], *self.known[1:][-2:], (theta.copy(), found)]
        exact: Any = found.as_solution()
        if exact is None or not found.nearer:
            return np.nan, slope
        own = exact.likelihood_gradient() if theta.size > self.n_family else np.zeros(0)
        gradient = self.family.gradient(exact, np.asarray(theta[: self.n_family], dtype=np.float64))
        return found.log_evidence + value, np.concatenate([gradient, own]) + slope
