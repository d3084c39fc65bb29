"""``Evidence``: elbo(theta) + log p(theta) and its gradient, with warm starts extrapolated from the last fits.

By the envelope theorem the fit itself is not differentiated; the error of the gradient is O(sqrt(gap)). A fit far
from the optimum runs until that error is a few hundredths of the last slope, and near the optimum to ``tol``.

``CorrectedEvidence`` is elbo + correction + log p(theta), with

    d log p(y|theta) / dtheta ~ d elbo / dtheta + d correction / dtheta

The second part has no envelope theorem. It is the slope of a plane through corrections at d + 1 points
(``CorrectionModel``), which suffices for a small smooth correction. Groups that are integrated out have exact slopes.
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


_NEAR = 0.3  # log units within which fits stagnate if one did
_SLOPE_SHARE = 0.03  # relative error of the slope that an inner fit may cause
_LOOSEST = 1e-4  # largest relative gap of an inner fit
_HIDING_GAP = 1e-7  # nats: gap above which relevant slopes are inexact
_FINE_GAP = 1e-9  # nats: gap below which no relevant slope is inexact
_FIRST = 1e-6  # relative gap of the first fit of many rows, far from the final theta
_STEP = 1e-4  # step of theta in differences of gradients
SETTLED_SHARE = 0.03  # gap of a steering fit relative to the rise between fits up to which it is extrapolated
FLAT_DIRECTION = 0.05  # directions explored by less than this share of the longest step are not extrapolated
LONGEST_SHIFT = 2.0  # largest change of an entry of s by extrapolation
_DIFFERENCE = 0.05  # log units: between two slopes that tell the curvature
STEP_TO_SLOPE = 0.05  # log units between theta and the points that give the slope of the correction


class WarmStarts(NamedTuple):
    """The start of the fit at a new theta, on the plane through the last fits as a function of theta.

    A plain warm start has an error of first order in the step of theta, this one of second order, which saves a Newton
    iteration. With few rows the plane is in s. With many rows it is in tau, in which alpha is affine, so that sums of
    alpha that are nearly zero in all fits stay so; a wide prior would multiply their errors.

    last : the last good fit
    points : theta and s of the last n_theta + 1 fits
    """

    last: Solution | None = None
    points: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def extended(self, theta: np.ndarray, solution: Solution) -> WarmStarts:
        """The warm starts with the fit at theta added."""
        point = np.array(theta, dtype=np.float64), to_numpy(solution.s)
        before = self.points[-theta.size :] if self._is_settled(solution) else ()
        return WarmStarts(solution, (*before, point))

    def _is_settled(self, solution: Solution) -> bool:
        """Whether the gap of the last fit is small relative to the distance to the next one."""
        last = self.last
        if last is None or last.ending.code != "steered":
            return True
        return last.ending.value * max(1.0, abs(last.elbo)) <= SETTLED_SHARE * abs(solution.elbo - last.elbo)

    def start(self, theta: np.ndarray, task: Problem) -> Solution | Array | None:
        """The start of a fit at theta: an s, the last fit if there is no plane yet, or None."""
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
    """s at tau plus a combination of its differences to the others, or part of that step.

    None near a boundary, or if potentials share a normalisation.
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
    """The objective elbo(theta) + log p(theta), with its gradient; the last good fit starts the next one."""

    solution: Solution
    prior: Prior
    known_curvature: np.ndarray | None = None  # (n_theta, n_theta), if a sample of the rows has given one
    first_start: Any = None  # start of the first fit, for ``Problem.start_from``

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
        self.on_iteration: Callback | None = None  # called at the iterations of every fit
        first = family.theta
        self.n_family = first.size
        self.start = np.concatenate([first, likelihood.theta if own else np.zeros(0)])
        self.warm = WarmStarts()
        self.climbs = self.is_large and likelihood.objective.log_concave  # whether to use Newton steps

    @property
    def last(self) -> Solution | None:
        """The last good fit."""
        return self.warm.last

    @property
    def is_large(self) -> bool:
        """Whether a fit costs more than the curvature that it can give."""
        return len(self.targets.y) >= gates.MANY_ROWS

    @cached_property
    def bounds(self) -> np.ndarray:
        return np.concatenate([self.family.bounds.reshape(-1, 2), self._own_bounds()])

    def _own_bounds(self) -> np.ndarray:
        """Bounds of the parameters of the likelihood, from the data, widened to contain their start."""
        own = self.start[self.n_family :]
        if own.size == 0:
            return np.zeros((0, 2))
        bounds = self.likelihood.theta_bounds(self.targets.y, self.targets.rows_of(self.likelihood)["weight"])
        return np.stack([np.minimum(bounds[:, 0], own), np.maximum(bounds[:, 1], own)], axis=1)

    @property
    def names(self) -> list[str]:
        return [*self.family.names, *(self.likelihood.theta_names if self.start.size > self.n_family else [])]

    def begin(self, solution: Solution | None) -> None:
        self.warm = WarmStarts(solution)

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, Likelihood]:
        """The entries of the family, and the likelihood at the other entries."""
        theta = np.asarray(theta, dtype=np.float64)
        first, own = theta[: self.n_family], theta[self.n_family :]
        return first, self.likelihood.with_theta(own) if own.size else self.likelihood

    def reachable(self, theta: np.ndarray) -> float:
        """``tol``, or the gap that a fit close to theta reached before rounding ended it."""
        if self.limit is None or np.abs(self.limit[0] - theta).max(initial=0.0) > _NEAR:
            return self.tol
        return max(self.tol, self.limit[1])

    def _fine(self, likelihood: Likelihood) -> float:
        """The relative gap if one Newton step is exact: for Gaussian noise.

        A start that is accepted as it is would have a gap larger than the changes of the evidence in the last steps.
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
        """log p(theta) and its gradient: that of the family plus that of the likelihood's parameters."""
        value, slope = self.family.log_prior(theta[: self.n_family])
        if theta.size == self.n_family:
            return value, slope
        of_own, own_slope = self.likelihood.log_prior(theta[self.n_family :])
        return value + of_own, np.concatenate([slope, own_slope])

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
        """Curvature of the family at the last fit, of the likelihood's parameters at fixed q, and of log p(theta).

        None with few rows, if the family has none, and if a fit may end at one of several stationary points,
        between which long steps of theta would jump.
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
        for i, step in enumerate(_STEP * np.eye(theta.size)):  # by differences of gradients
            ahead, behind = (self.log_prior(theta + side)[1][i] for side in (step, -step))
            out[i, i] += max(0.0, (behind - ahead) / (2.0 * _STEP))
            if i >= n:
                out[i, n:] += (self._own_slope(theta - step) - self._own_slope(theta + step)) / (2.0 * _STEP)
        out = (out + out.T) / 2.0
        return out if np.isfinite(out).all() else None

    def _own_slope(self, theta: np.ndarray) -> np.ndarray:
        """The gradient with respect to the parameters of the likelihood at fixed q."""
        _, likelihood = self.split(theta)
        post = self.solution.posterior
        h, rho = (x if x.ndim == 2 else x[:, None] for x in (post.mean, post.variance))
        return likelihood.theta_gradient(h, rho, self.targets.rows_of(likelihood))

    def restored(self, numbers: dict[str, Any]) -> Learned:
        """The result of ``learn`` from the result of ``Learned.numbers``."""
        theta = np.asarray(numbers["theta"], dtype=np.float64)
        if theta.shape != self.start.shape or not np.isfinite(theta).all():
            raise ValueError("theta has another shape than the hyperparameters")
        first, likelihood = self.split(theta)
        self.family.at(self.start[: self.n_family])  # a sparse factor is analysed at the start of learning
        prior = self.family.at(first)
        solution = restored(Problem(likelihood, prior, self.targets), numbers["solution"])
        others = {name: value for name, value in numbers.items() if name not in ("of", "theta", "solution")}
        return Learned(theta=theta, solution=solution, likelihood=likelihood, prior=prior, **others)

    def learned(self, best: Evaluated, found: Found) -> Learned:
        assert best.prior is not None
        return Learned(**vars(found), likelihood=self.split(best.theta)[1], prior=best.prior)


def curvature_by_slopes(evidence: Evidence, found: Learned) -> np.ndarray:
    """-d2 objective / d theta2 where a search ended, by differences of slopes, positive semidefinite."""
    theta, (low, high) = found.theta, evidence.bounds.T
    evidence.begin(found.solution)
    evidence.allowed_gap = None
    rows = []
    for i in range(theta.size):
        there = theta.copy()
        there[i] += _DIFFERENCE if theta[i] + _DIFFERENCE <= high[i] else -min(_DIFFERENCE, theta[i] - low[i])
        step = there[i] - theta[i]
        rows.append((found.gradient - evidence(there)[1]) / step if step else np.zeros(theta.size))
    values, vectors = np.linalg.eigh(0.5 * (np.array(rows) + np.array(rows).T))
    return np.asarray((vectors * np.abs(values)) @ vectors.T)


def doubt_of(found: Corrected | Collapsed | Interpolated | ImportanceSample) -> str:
    """A sentence on why a corrected evidence is unreliable; empty if it is not."""
    if not found.nearer:
        return not_used(found.status)
    if not found.trusted:
        return f"the corrected evidence may be off by {found.log_evidence_se:.2g} nats: {found.status}"
    return ""


def not_used(why: str) -> str:
    """The sentence for a theta that maximises the elbo although the corrected evidence was requested."""
    return f"sds of terms come from the elbo and may be too small; the corrected evidence is not reliable here: {why}"


class CorrectedEvidence(Evidence):
    """The corrected evidence, elbo + correction + log p(theta).

    If the correction has exact slopes (groups integrated out) they are used. Else ``about`` makes a model of it from
    the corrections at points about a theta, whose slopes are used.
    """

    model: CorrectionModel | None = None
    known: Sequence[tuple[np.ndarray, Any]] = ()  # the last corrections with exact slopes

    def about(self, theta: np.ndarray, found: Any) -> bool:
        """Prepare a search from theta, whose correction is ``found``; returns whether its slopes are exact.

        The last fit must be that at theta.
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
            self.allowed_gap = None  # the correction of a loose fit would be a different function of theta
            known.append((there, self._gain(correct(self.fit(there), True, found.like))))
        thetas, gains = (np.array(each) for each in zip(*known, strict=True))
        at = Coordinates.straight(theta, free, STEP_TO_SLOPE * np.eye(len(free)))
        self.model = CorrectionModel(at, thetas[np.isfinite(gains)], gains[np.isfinite(gains)])
        return False

    def correction_at(self, theta: np.ndarray) -> Any:
        """The correction at theta, if it is one of the last ones."""
        return next((found for at, found in self.known if np.array_equal(at, theta)), None)

    @staticmethod
    def _gain(found: Any) -> float:
        """Corrected log p(y) minus the elbo; NaN if the correction is no improvement."""
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
