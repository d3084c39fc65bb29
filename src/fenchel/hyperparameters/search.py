"""``Search``: maximise an objective over theta from one start, and certify the best fit.

Steps are Newton's (``TrustRegion``) if the curvature is known, else those of L-BFGS. Every inner fit starts from the
last one. Far from the optimum fits are loose (see ``evidence.py``); the result is fitted to ``tol``. A run of L-BFGS is
limited to a few log units; if it gives up because gaps of loose fits hide the slope, another run goes on with exact
fits.

``TrustRegion`` is a quadratic model of the objective within a box: the gradient at a point and a curvature
(``Objective.curvature``), corrected by the steps before: the smallest change, in units of the curvature, that explains
how the gradient changed along them. Its maximum within the bounds and a radius is a small bounded least-squares
problem. The rise that it predicts for a step also sets the accuracy of the fit at its end.
"""

from __future__ import annotations

import time
from typing import Generic, NamedTuple

import numpy as np
from scipy.optimize import lsq_linear, minimize

from ..checks import Refusal, problem
from ..solvers.base import Callback
from .base import Evaluated, F, Fit, Found, Objective, SearchEnding

GAP_SHARE = 0.02  # gap of the fit at the end of a step, relative to the predicted rise
CLEAR_SHARE = 0.1  # gap of the fit at the start of a step, relative to the predicted rise, up to which its slope counts
FIRST_RADIUS = 2.0  # log units: initial radius of the trust region
POOR_SHARE = 0.25  # actual over predicted rise below which the radius shrinks, and ``trust`` grows
GOOD_SHARE = 0.75  # actual over predicted rise above which the radius grows
CAUTIOUS_SHARE = 1.5  # actual over predicted rise above which ``trust`` grows: the curvature was far too large
TRUST_GROWTH = 10.0
MOST_TRUST = 1e6
LEAST_CURVATURE = 1e-8  # curvature relative to the largest one in directions without information
REMEMBERED_STEPS = 4
ROUNDING = 1e-12  # rise relative to |elbo| that counts as none
LOST_SLOPE = 1e-6  # slope (nats per log unit) relative to |elbo| up to which rounding may stop a search
FINER_TOL = 1e-3  # factor of tol for the fits of a search that stagnates with a slope
LITTLE_STEPS = 2  # Newton steps in a row that rise by no more than ``SearchOptions.rise``, after which a search may end
NEGLIGIBLE_RISE = 0.05  # predicted rise of a Newton step, in units of gtol^2, at which a search ends
NEAR_FIRST_STEP = 0.3  # log units: first step from a searched start, so that it stays near that peak
GAP_MARGIN = 10.0  # multiple of tol up to which an inner gap that is due to rounding is accepted
NO_SLOPE = "convergence: norm of projected gradient <= pgtol"  # the message of the optimiser


class Step(NamedTuple):
    """A step of theta, the decrease of the gradient along it, and the curvature at its start."""

    step: np.ndarray
    gradient_fall: np.ndarray
    curvature: np.ndarray


class TrustRegion:
    """A quadratic model within a box, which proposes steps and is updated by their results."""

    def __init__(self, bounds: np.ndarray, step_limit: float = 4.0, trust: float = 10.0) -> None:
        self.bounds, self.step_limit, self.trust, self.radius = bounds, step_limit, trust, min(FIRST_RADIUS, step_limit)
        self.steps: list[Step] = []
        self.promised_rise = np.inf  # nats: predicted rise of the last step
        self.remaining_rise = np.inf  # nats: predicted rise of the longest step allowed

    def propose(self, theta: np.ndarray, gradient: np.ndarray, curvature: np.ndarray) -> np.ndarray:
        """The maximum of the model within the radius."""
        H = self.updated_curvature(curvature)
        step, self.promised_rise = self._maximum(H, theta, gradient, self.radius)
        self.remaining_rise = max(self.promised_rise, self._maximum(H, theta, gradient, self.step_limit)[1])
        return theta + step

    def _maximum(
        self, H: np.ndarray, theta: np.ndarray, gradient: np.ndarray, radius: float
    ) -> tuple[np.ndarray, float]:
        """The step to the maximum, and its predicted rise."""
        low = np.maximum(self.bounds[:, 0] - theta, -radius)
        high = np.minimum(self.bounds[:, 1] - theta, radius)
        step = np.clip(maximum_in_box(H, gradient, low, high), low, high)
        return step, float(gradient @ step - 0.5 * step @ H @ step)

    @property
    def allowed_gap(self) -> float:
        """The gap, in nats, that the fit at the end of the last step may have."""
        return GAP_SHARE * self.promised_rise

    def update(self, taken: Step, rise: float, missing: float = 0.0) -> None:
        """Update by the result of a step: the ``rise`` of the objective, and the gap ``missing`` at its start.

        A fit with a large gap relative to the predicted rise says nothing about the curvature, because its slope is
        inexact. If the curvature is far too large, each step is short and rises by twice the predicted amount; if it is
        far too small, a step rises by little of it, or falls. Then ``trust`` grows, so that the next curvature may be
        as small, or as large, as the observed changes of the slope.
        """
        clear = missing <= CLEAR_SHARE * self.promised_rise
        if clear and np.isfinite(taken.gradient_fall).all() and taken.step.any():
            self.steps = [*self.steps[-REMEMBERED_STEPS + 1 :], taken]
        longest, share = float(np.abs(taken.step).max()), rise / self.promised_rise
        if clear and not POOR_SHARE <= share <= CAUTIOUS_SHARE:
            self.trust = min(self.trust * TRUST_GROWTH, MOST_TRUST)
        if not share > POOR_SHARE:
            self.radius = 0.25 * longest
        elif share > GOOD_SHARE and longest > 0.99 * self.radius:
            self.radius = min(2.0 * self.radius, self.step_limit)

    def updated_curvature(self, curvature: np.ndarray) -> np.ndarray:
        """The curvature corrected by the changes of slope along the last steps, within the factor ``trust``."""
        least = LEAST_CURVATURE * (1.0 + np.diag(curvature).max(initial=0.0))
        sizes, axes = np.linalg.eigh(curvature + least * np.eye(len(curvature)))
        root = np.sqrt(np.maximum(sizes, least))
        into, back = (axes * root).T, axes / root  # maps to units of the curvature, and slopes back
        missed = np.zeros(curvature.shape)
        for step, gradient_fall, before in self.steps:
            u = into @ step
            v = back.T @ (gradient_fall - before @ step) - missed @ u
            u, v = u / np.linalg.norm(u), v / np.linalg.norm(u)
            missed += np.outer(v, u) + np.outer(u, v) - (v @ u) * np.outer(u, u)
        values, vectors = np.linalg.eigh(np.eye(len(missed)) + missed)
        unit = (vectors * np.clip(values, 1.0 / self.trust, self.trust)) @ vectors.T
        return np.asarray(into.T @ unit @ into)


def maximum_in_box(H: np.ndarray, gradient: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The p of low <= p <= high with the largest gradient' p - p' H p / 2, for a positive definite H."""
    free, out = high > low, np.zeros(gradient.size)
    if free.any():
        values, vectors = np.linalg.eigh(H[np.ix_(free, free)])
        root = np.sqrt(np.maximum(values, 1e-14 * max(values[-1], 1e-300)))
        A, b = (vectors * root).T, vectors.T @ gradient[free] / root
        out[free] = lsq_linear(A, b, (low[free], high[free]), method="bvls").x
    return out


def _wall(theta: np.ndarray, best: Evaluated, scale: float) -> tuple[float, np.ndarray]:
    """Value and slope for a theta that cannot be evaluated: they lead back to the best point."""
    away = theta - best.theta
    steep = 10.0 * (1.0 + float(np.abs(best.gradient).sum())) / max(float(np.linalg.norm(away)), 1e-12)
    return scale * (-best.value + 0.5 * steep * float(away @ away)), scale * steep * away


def _missing(fit: Fit) -> float:
    """The remaining gap, in nats, of a fit that only steers the search; 0 for others."""
    return fit.ending.value * max(1.0, abs(fit.elbo)) if fit.ending.code == "steered" else 0.0


class _Arrived(Exception):
    """Ends a run of L-BFGS at a point without slope."""


class SearchOptions(NamedTuple):
    """Options of a search.

    step_limit : log units; limit of a run of L-BFGS or of a Newton step, which must not jump over a maximum
    max_runs : number of runs of L-BFGS in a row that may give up
    ftol : rise of one step, relative to |objective|, at which a run gives up; by default rounding
    memory : number of steps that L-BFGS stores
    accepts_flat : whether a run that ends by ``ftol`` or ``rise`` counts as converged, whatever its slope
    trust : factor by which a curvature may be wrong, in either direction; it grows where steps show more
    rise : rise of a Newton step, in nats, predicted or of the last ones, at which it ends; by default that of ``gtol``
    """

    step_limit: float = 4.0
    max_runs: int = 6
    ftol: float = 1e-15
    memory: int = 10
    accepts_flat: bool = False
    rise: float | None = None
    trust: float = 10.0


class Search(Generic[F]):
    """A search for theta from one start, to be ``run`` once; ``trace`` has the best value after each step."""

    def __init__(
        self,
        evidence: Objective[F],
        max_iter: int,
        gtol: float,
        report: Callback | None,
        options: SearchOptions | None = None,
    ) -> None:
        self.evidence, self.max_iter, self.gtol, self.report = evidence, max_iter, gtol, report
        self.options, self.trace = options or SearchOptions(), list[float]()
        self.best: Evaluated | None = None
        self.model: TrustRegion | None = None  # of Newton steps
        self.scale = 1.0  # factor of the objective that the optimiser minimises
        self.walking = False  # whether an optimiser is running
        self.is_evaluated = True  # whether the last theta could be evaluated
        self.n_steps, self.message = 0, "nothing to learn"
        self.allowed = gtol  # the largest slope at which the search has converged
        self.first = 1.0  # log units: length of the first step
        self.remaining = np.inf  # nats: predicted rise of a further Newton step
        self.began = time.perf_counter()

    @property
    def known(self) -> Evaluated:
        """The best point, once there is one."""
        assert self.best is not None
        return self.best

    @property
    def noise(self) -> float:
        """Quadrature error of the objective, in nats."""
        return float(getattr(self.known.solution, "quadrature", 0.0))

    def run(self, start: np.ndarray | Evaluated) -> F:
        """Search from ``start`` until no slope within the bounds remains, or the objective rises no more."""
        evidence, rounds, tol = self.evidence, 0, self.evidence.tol
        if isinstance(start, Evaluated):
            self.best, start, self.first = start, start.theta, NEAR_FIRST_STEP
        evidence.begin(None if self.best is None else self.best.solution)
        evidence.allowed_gap, evidence.limit = 0.0, None
        theta = start
        before, slope = self.negative(start)
        self.trace.append(self.known.value)
        if start.size and evidence.largest_slope(start, self.known.gradient) <= self.gtol:
            rounds, self.message = self.options.max_runs, NO_SLOPE  # the start is the maximum
        while start.size and rounds < self.options.max_runs and self.n_steps < self.max_iter:
            near = self.run_once(theta, slope)
            if near is None:
                loose = evidence.allowed_gap is not None
                self.certify()
                if not (loose and self.options.accepts_flat):
                    break
                # a gap changes the slope: the predicted rise is computed again at the slope of the certified fit
                before, theta, slope = -self.known.value, self.known.theta, self.known.gradient
                continue
            if (
                np.any((self.known.theta == near) & (self.known.theta != evidence.bounds.T))
                and -self.known.value < before
            ):
                before, theta, slope = -self.known.value, self.known.theta, self.known.gradient
                continue  # the run ended at its limit: go on from there
            exact, rounds = evidence.allowed_gap is None, rounds + 1
            self.certify()
            risen, theta, slope = before + self.known.value, self.known.theta, self.known.gradient
            rounding = self.known.solution.rounding
            ended_flat = exact and self.options.accepts_flat  # another run would gain no more than the last step
            if evidence.largest_slope(theta, slope) <= (self.allowed if ended_flat else self.gtol):
                break
            if self.noise > 0.0 and risen <= self.noise:  # below the quadrature error
                self.allowed = max(self.gtol, evidence.largest_slope(theta, slope))
                break
            if exact and risen <= max(ROUNDING * abs(before), rounding):  # no further rise with exact fits
                self.allowed = max(self.gtol, LOST_SLOPE * abs(before), rounding**0.5)  # its rise is lost in rounding
                coarse = evidence.tol == tol and rounding < tol * max(1.0, abs(before))
                if evidence.largest_slope(theta, slope) <= self.allowed or not coarse:
                    break
                evidence.tol *= FINER_TOL  # or in the gaps of fits within tol: try once more with finer ones
            before = -self.known.value
        evidence.tol = tol
        evidence.limit = None  # the result is fitted to tol
        self.certify()
        return self.learned()

    def run_once(self, theta: np.ndarray, slope: np.ndarray) -> np.ndarray | None:
        """One run of L-BFGS within ``step_limit`` of theta; the box (2, n_theta), or None if it reached the maximum."""
        self.evidence.solution = self.known.solution  # the last fit may belong to another theta
        curvature = self.evidence.curvature(theta, self.known.gradient)
        if curvature is not None:
            return None if self.climb(curvature) else self.evidence.bounds.T
        # in a box L-BFGS-B takes its first step to a corner; scaling the objective limits it to one log unit
        limit = self.options.step_limit
        self.scale = self.first / max(1.0, float(np.linalg.norm(slope))) if np.isfinite(limit) else 1.0
        near = np.clip(np.stack([theta - limit, theta + limit], axis=1), *self.evidence.bounds.T[:, :, None])
        settings = {
            "maxiter": self.max_iter - self.n_steps,
            "gtol": self.scale * self.gtol,
            "ftol": max(self.options.ftol, self.noise / max(1.0, abs(self.known.value))),
            "maxcor": self.options.memory,
            "maxfun": 20 * self.max_iter,
        }
        self.message, success, taken, self.walking = NO_SLOPE, True, len(self.trace), True
        try:
            found = minimize(
                self.negative, theta, jac=True, method="L-BFGS-B", bounds=near, callback=self._step, options=settings
            )
            self.message, success = found.message.lower().rstrip(": "), bool(found.success)
            self.n_steps += int(found.nit)
        except _Arrived:
            self._step(self.known.theta)
            self.n_steps += len(self.trace) - taken
        self.scale, self.walking = 1.0, False
        if self.options.accepts_flat:
            left = self.evidence.largest_slope(self.known.theta, self.known.gradient)
            steep = LOST_SLOPE * max(1.0, abs(self.known.value))  # its line search failed at the rounding level
            self.allowed = max(self.gtol, left if success or left <= steep else 0.0)
        return near.T

    def climb(self, curvature: np.ndarray | None) -> bool:
        """Newton steps from the best point; whether they end with a negligible predicted rise.

        With curvature 1 a slope of gtol is gtol^2 / 2 below the maximum. With a larger curvature a slope that is larger
        by its square root is as close, in nats and in sds of theta. Steps that converge as fast as these can reach less
        at little cost. With a ``rise`` in the options they also end where the last ones rose by no more, and the next
        promises no more within the radius: a curvature may promise of longer steps what does not come.
        """
        evidence = self.evidence
        if self.model is None:
            self.model = TrustRegion(evidence.bounds, self.options.step_limit, self.options.trust)
        model, little = self.model, 0
        model.radius = max(model.radius, NEAR_FIRST_STEP)
        enough = NEGLIGIBLE_RISE * self.gtol**2 if self.options.rise is None else self.options.rise
        while self.n_steps < self.max_iter and curvature is not None:
            here, self.message = self.known, NO_SLOPE
            if evidence.largest_slope(here.theta, here.gradient) <= self.gtol:
                return False
            there = model.propose(here.theta, here.gradient, curvature)
            self.remaining = model.remaining_rise
            done = self.options.rise is not None and little >= LITTLE_STEPS and model.promised_rise <= enough
            if done or model.remaining_rise <= enough:
                sharpest = float(np.diag(model.updated_curvature(curvature)).max())
                steep = 2.0 * sharpest**0.5  # twice, since the fit may still be refined
                flat = evidence.largest_slope(here.theta, here.gradient) if self.options.accepts_flat else 0.0
                self.allowed = max(self.gtol * max(1.0, steep), here.solution.rounding**0.5, flat)
                self.message = "what Newton's step promises is next to nothing"
                return True
            if evidence.allowed_gap is not None:
                evidence.allowed_gap = model.allowed_gap
            value, slope = self.negative(there)
            self.n_steps += 1
            self._step(there)
            taken = Step(there - here.theta, slope + here.gradient, curvature)
            model.update(taken, -value - here.value, _missing(here.solution) if self.is_evaluated else np.inf)
            little = little + 1 if here.value <= -value <= here.value + enough else 0
            if self.known is not here:
                curvature = evidence.curvature(there, -slope)
            elif not model.radius > ROUNDING:
                self.message = "no step rises"
                return False
        self.message = f"{self.n_steps} steps taken"
        return False

    def _step(self, theta: np.ndarray) -> None:
        self.trace.append(self.known.value)

    def negative(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The function that the optimiser minimises, with its gradient; the best point is stored."""
        best, evidence = self.best, self.evidence
        self.is_evaluated = True
        if best is not None and np.array_equal(theta, best.theta):  # the start, asked for again by the optimiser
            return -self.scale * best.value, -self.scale * best.gradient
        self.is_evaluated = False
        try:
            value, gradient = evidence(theta)
        except ValueError:  # overflow in double precision
            if best is None:
                raise
            return _wall(theta, best, self.scale)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            if best is None:
                raise self._no_start(value, gradient)
            return _wall(theta, best, self.scale)
        self.is_evaluated = True
        as_good = best is not None and self._as_good(value, theta, gradient, best)
        if best is None or value > best.value or as_good:
            self.best = Evaluated(value, np.array(theta), gradient, evidence.solution, evidence.prior)
        self._tell(value, gradient)
        if as_good and self.walking:
            raise _Arrived  # a line search would go on because of the gaps of the fits
        return -self.scale * value, -self.scale * gradient

    def _as_good(self, value: float, theta: np.ndarray, gradient: np.ndarray, best: Evaluated) -> bool:
        """Whether this point has no slope while the best one has, and the best one is not better within the errors.

        The errors are the gaps and rounding of both fits, and the slope times the distance.
        """
        here = self.evidence.largest_slope(theta, gradient)
        there = self.evidence.largest_slope(best.theta, best.gradient)
        doubt = self.evidence.solution.gap + best.solution.gap + here * float(np.abs(theta - best.theta).sum())
        doubt += ROUNDING * abs(best.value)
        return bool(np.isfinite(doubt) and best.value - doubt < value <= best.value and here <= self.gtol < there)

    def _no_start(self, value: float, gradient: np.ndarray) -> Refusal:
        slope = np.abs(gradient).max(initial=0.0)
        return problem(
            "learn",
            f"the evidence or its gradient is not finite at the start: {value}, largest slope {slope:.1e}",
            "a start, covariates and a prior mean on the scale of the data",
            f"The fit there: {self.evidence.solution.ending.sentence}. Rescale the inputs, or give theta.",
        )

    def _tell(self, value: float, gradient: np.ndarray) -> None:
        fit = self.evidence.solution
        if self.report is not None:
            self.report(
                {
                    "iteration": self.evidence.n_evaluations,
                    "seconds": time.perf_counter() - self.began,
                    "elbo": value,
                    "elbo_upper": fit.elbo + fit.gap,
                    "gap": fit.gap,
                    "step": float(np.abs(gradient).max(initial=0.0)),
                }
            )

    def certify(self) -> None:
        """Refit the best point to ``tol``, or as far as rounding allows, so that its slope is exact."""
        evidence, solution = self.evidence, self.known.solution
        theta, evidence.allowed_gap = self.known.theta, None
        tol = evidence.reachable(theta)
        short = solution.gap - solution.rounding - self.noise  # rounding and noise cannot be reduced
        enough = max(tol * max(1.0, abs(solution.elbo)), self.noise)
        if solution.tol > tol if np.isinf(solution.gap) else short > enough:
            evidence.begin(solution)
            before, self.best = self.best, None
            try:
                self.negative(theta)
            finally:
                self.best = self.best or before

    def learned(self) -> F:
        """The result of the search at the best point."""
        value, theta, gradient, solution, _ = self.known
        evidence, gtol = self.evidence, self.gtol
        solution = solution.judged_by(evidence.tol)
        slope = evidence.largest_slope(theta, gradient)
        nearly = (
            solution.gap <= GAP_MARGIN * evidence.tol * max(1.0, abs(solution.elbo)) and 2.0 * solution.gap <= gtol**2
        )
        converged = bool(slope <= self.allowed and (solution.optimal or nearly))
        code = "max_iter" if self.n_steps >= self.max_iter else "slope" if slope > self.allowed else "fit"
        at_bounds, held = evidence.at_bounds(theta, gradient, gtol)
        ending = SearchEnding(
            "converged" if converged else code,
            "largest projected slope",
            slope,
            self.allowed,
            search=self.message,
            at_bounds={evidence.names[i]: side for i, side in at_bounds.items()},
            fit=solution.ending,
        )
        found = Found(theta, solution, float(value), gradient, converged, ending, at_bounds=at_bounds, held=held)
        return evidence.learned(self.known, found)
