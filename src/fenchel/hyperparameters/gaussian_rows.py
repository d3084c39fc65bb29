"""Few Gaussian rows under a kernel: their evidence in closed form, and Newton's search for theta.

    y_j ~ N(mt, C),   C = K(theta) + diag(v / w),   j = 1, ..., J outputs of one kernel and one noise
    log p(y) = -1/2 sum_j r_j' A_j - J/2 log|2 pi C|,   A = C^-1 R
    gradient     sum_ij G_ij dC_ij/dtheta,   G = 1/2 (A A' - J C^-1)
    curvature    1/2 sum_j q_jk' C^-1 q_jl,   q_jk = dC/dtheta_k A_j

The curvature is the average information, the mean of the observed and of the expected one: products with vectors alone.
Newton's steps and those by slopes alone (``BySlopes``) may end at different peaks of the evidence: both are taken, and
the higher end counts (``highest``). A search with certified fits begins there, and goes on where a slope is left
(``quick_start``). Several outputs of one Gaussian process are learned by ``highest``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotri, dpotrs

from .. import gates
from ..linalg.arrays import is_numpy, to_numpy
from ..linalg.dense import NotPositiveDefinite, cholesky, log_det, symmetrised
from ..linalg.machine import one_thread
from .evidence import Evidence
from .kernel import KernelCovariance
from .search import maximum_in_box
from .site_rows import SiteRows, site_rows

LOG_2PI = math.log(2.0 * math.pi)
SLOPE_LEFT = 0.1  # of the slope at which a search ends: what is left where it begins, of rows of labels
MOST_HYPERPARAMETERS = 16  # of a kernel: each costs another kernel for the curvature
STEP = 1e-5  # of theta, in differences of kernels
FIRST_RADIUS = 1.0  # log units
LAST_RADIUS = 0.1  # log units: a step whose end is judged by a certified fit
LARGEST_RADIUS = 4.0
POOR_SHARE = 0.25  # of the promised rise: below it the radius shrinks
GOOD_SHARE = 0.75  # of the promised rise: above it the radius grows
ACCEPTED_SHARE = 0.1  # of the promised rise: below it a step is not taken
MOST_STEPS = 30
MOST_WALKED = 100  # steps by slopes
LEAST_SEEN = 1e-6  # of the curvature that was known along a step: below it a step says nothing
LEAST_KEPT = 0.2  # of that curvature, where a step shows less
MOST_STORED = 10  # steps of L-BFGS
SAME_PEAK = 0.75  # log units: a place nearer to another one is of its peak
LEAST_CURVATURE = 1e-6  # of the largest one
ROUNDING = 1e-11  # of |value|: a rise that is none
LEAST_NOISE = 1e-6  # of the largest variance: below it rounding moves the slopes, and fits judge every step


class Place(NamedTuple):
    """What was found at a theta: the value and its gradient, A = C^-1 R (N, J), C^-1 and the largest variance in C."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    A: np.ndarray
    Cinv: np.ndarray
    variance: float


class GaussianRows:
    """log p(y | theta) + log p(theta) of Gaussian rows; those of weight 0 are left out.

    Parameters
    ----------
    evidence : Evidence
        Of one output: its family is a ``KernelCovariance``; its bounds and its prior of theta are taken.
    residuals : array (N, J), optional
        y less its prior mean, of several outputs. Default: that of the evidence.
    """

    def __init__(self, evidence: Evidence, family: KernelCovariance, residuals: np.ndarray | None = None) -> None:
        self.evidence, self.n_family = evidence, evidence.n_family
        self.learns_noise = evidence.start.size > self.n_family
        rows = {key: to_numpy(x) for key, x in evidence.targets.rows_of(evidence.likelihood).items()}
        if residuals is None:
            prior = family.at(evidence.start[: self.n_family])
            mt = to_numpy(prior.bind(len(rows["y"]), 1, False).mt)[:, 0]
            residuals = (rows["y"] - mt)[:, None]
        seen = np.flatnonzero(rows["weight"])
        self.residuals, self.weight, self.variance = residuals[seen], rows["weight"][seen], rows["variance"][seen]
        self.family = family if seen.size == len(rows["weight"]) else family.at_rows(seen)
        self.weighted = bool(np.any(self.weight != 1.0))
        self.n_evaluations = 0

    def _noise(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """v of each row, and v / w."""
        v = np.full(len(self.weight), math.exp(theta[self.n_family])) if self.learns_noise else self.variance
        return v, v / self.weight

    def at(self, theta: np.ndarray) -> Place:
        """Evaluate; ``ValueError`` where C is not positive definite in double precision."""
        first, (v, noise), R = theta[: self.n_family], self._noise(theta), self.residuals
        N, J = R.shape
        K = np.asarray(self.family.matrix(first))
        C = K.copy()
        C.reshape(-1)[:: N + 1] += noise
        variance = float(C.diagonal().max())
        self.n_evaluations += 1
        try:
            L = np.asarray(cholesky(C))
        except NotPositiveDefinite as error:
            raise ValueError(str(error)) from None
        A = np.asarray(dpotrs(L.T, R, lower=0)[0])
        copies = 0.0
        if self.weighted:  # a row of weight w is w rows: N(y; eta, v / w) but for a factor
            copies = float(np.sum((self.weight - 1.0) * (np.log(v) + LOG_2PI) + np.log(self.weight)))
        value = -0.5 * (float((R * A).sum()) + J * (log_det(L) + N * LOG_2PI + copies))
        Cinv = np.asarray(symmetrised(dpotri(L.T, lower=0, overwrite_c=1)[0].T))
        G = A @ A.T
        G -= J * Cinv if J > 1 else Cinv
        G *= 0.5
        gradient = self.family.contracted(first, G, K)
        if self.learns_noise:
            slope = float(G.diagonal() @ noise) - 0.5 * J * float((self.weight - 1.0).sum())
            gradient = np.concatenate([gradient, [slope]])
        of_prior, pull = self.evidence.log_prior(theta)
        return Place(theta, value + of_prior, gradient + pull, A, Cinv, variance)

    def is_clear(self, place: Place) -> bool:
        """Whether rounding is far below what the noise adds to C."""
        least = self._noise(place.theta)[1].min()
        return bool(least > LEAST_NOISE * (place.variance - least))

    def curvature(self, place: Place) -> np.ndarray:
        """The average information (n_theta, n_theta)."""
        first, A, noise = place.theta[: self.n_family], place.A, self._noise(place.theta)[1]
        before = self.residuals - noise[:, None] * A  # K A
        steps = np.diag(np.where(first + STEP > self.family.bounds[:, 1], -STEP, STEP))  # no kernel beyond its bounds
        along = [(self.family.matrix(first + step) @ A - before) / step.sum() for step in steps]
        along += [noise[:, None] * A] if self.learns_noise else []
        q = np.stack(along)
        return np.asarray(0.5 * q.reshape(len(q), -1) @ (place.Cinv @ q).reshape(len(q), -1).T)


def newton_step(rows: GaussianRows | BySlopes, here: Any, radius: float) -> tuple[np.ndarray, float]:
    """The end of Newton's step from a place, within the bounds and a radius, and the rise that it promises."""
    (low, high), gradient, H = rows.evidence.bounds.T, here.gradient, rows.curvature(here)
    ahead = np.minimum(np.maximum(here.theta + gradient, low), high)
    free = (ahead != here.theta) & (high > low)  # what the slope moves
    values, vectors = np.linalg.eigh(H[free][:, free])
    values = np.maximum(values, LEAST_CURVATURE * (1.0 + values.max(initial=0.0)))  # empty where all are at bounds
    step = np.zeros(gradient.size)
    step[free] = vectors @ ((vectors.T @ gradient[free]) / values)
    step *= min(1.0, radius / max(float(np.abs(step).max()), radius))
    end = np.minimum(np.maximum(here.theta + step, low), high)
    if (end != here.theta + step).any():  # the model's maximum within the bounds
        away, near = np.maximum(low - here.theta, -radius), np.minimum(high - here.theta, radius)
        end = np.clip(here.theta + maximum_in_box(H, gradient, away, near), low, high)
    step = end - here.theta
    return end, float(gradient @ step - 0.5 * step @ H @ step)


class BySlopes:
    """Few rows, of labels or Gaussian, with the curvature in theta that the slopes of the last places show.

    It is that of the BFGS formula, once what was known is scaled down where the last step shows less (Oren and
    Luenberger). The larger the variance is, the less the evidence bends, by orders of magnitude on the way to the best
    theta. ``limited``: that of L-BFGS, which begins at the scale of the last step, and goes farther where little bends.
    """

    def __init__(self, rows: GaussianRows | SiteRows, limited: bool = False) -> None:
        self.rows, self.evidence, self.limited = rows, rows.evidence, limited
        self._before: Any = None  # the last place
        self._steps: list[tuple[np.ndarray, np.ndarray]] = []  # the last ones, and how the gradient fell along them

    def at(self, theta: np.ndarray) -> Any:
        """Evaluate; ``ValueError`` where that fails."""
        place = self.rows.at(theta)
        self._see(place)
        return place

    def curvature(self, place: Any) -> np.ndarray:
        """That of minus the evidence (n_theta, n_theta) about the last places; positive definite."""
        if self._before is None:
            self._see(place)
        return self._H

    def _see(self, place: Any) -> None:
        before, self._before = self._before, place
        if before is None:  # a first step of one log unit at most
            self._H = max(1.0, float(np.linalg.norm(place.gradient))) * np.eye(place.theta.size)
            return
        step, fall = place.theta - before.theta, before.gradient - place.gradient
        seen, known = float(step @ fall), float(step @ self._H @ step)
        if not seen > LEAST_SEEN * known > 0.0:
            return
        if not self.limited:
            self._H = _bfgs(min(1.0, max(seen / known, LEAST_KEPT)) * self._H, step, fall)
            return
        self._steps = [*self._steps[1 - MOST_STORED :], (step, fall)]
        self._H = float(fall @ fall) / seen * np.eye(step.size)
        for pair in self._steps:
            self._H = _bfgs(self._H, *pair)


def _bfgs(H: np.ndarray, step: np.ndarray, fall: np.ndarray) -> np.ndarray:
    """H after the BFGS formula: along ``step`` the gradient falls by ``fall``."""
    along = H @ step
    return H - along[:, None] * (along / (step @ along)) + fall[:, None] * (fall / (step @ fall))


def climb(
    rows: GaussianRows | BySlopes,
    theta: np.ndarray,
    gtol: float,
    begun: Any = None,
    most: int = MOST_STEPS,
    loose: float = 0.0,
    until: Callable[[Any], bool] = lambda place: False,
) -> Any:
    """Newton's steps within the bounds and a radius, until no slope above ``gtol`` is left or nothing rises.

    ``begun`` is what was found at theta, where that is known. It ends at a slope of ``loose`` too, where the next step
    promises no more than loose^2 nats: along flat directions, which promise more, it goes on. It ends at a place of
    which ``until`` is true.
    """
    radius, here = FIRST_RADIUS, begun or rows.at(np.clip(theta, *rows.evidence.bounds.T))
    for _ in range(most):
        slope = rows.evidence.largest_slope(here.theta, here.gradient)
        if slope <= gtol or until(here):
            break
        end, promised = newton_step(rows, here, radius)
        if slope <= loose and promised <= loose**2:
            break
        try:
            there = rows.at(end)
            rise = there.value - here.value if np.isfinite(there.value) else -np.inf
        except ValueError:  # beyond double precision
            rise = -np.inf
        length = float(np.abs(end - here.theta).max())
        if rise > max(ACCEPTED_SHARE * promised, -ROUNDING * abs(here.value)):
            here = there
            radius = min(2.0 * radius, LARGEST_RADIUS) if rise > GOOD_SHARE * promised else radius
        elif promised <= ROUNDING * abs(here.value):
            break
        if not rise > POOR_SHARE * promised:
            radius = 0.25 * length
    return here


def highest(rows: GaussianRows, theta: np.ndarray, gtol: float, most: int = MOST_WALKED) -> Place:
    """Where Newton's steps end, or steps by slopes that do not come near it, the higher; on from there if need be."""
    begun = rows.at(np.clip(theta, *rows.evidence.bounds.T))
    found = climb(rows, theta, gtol, begun, min(most, MOST_STEPS))
    is_near = lambda place: float(np.abs(place.theta - found.theta).max()) < SAME_PEAK
    other = climb(BySlopes(rows, limited=True), theta, gtol, begun, most, until=is_near)
    best = max(found, other, key=lambda place: place.value)
    end: Place = climb(BySlopes(rows, limited=True), best.theta, gtol, best, most)
    return end


def gaussian_rows(evidence: Evidence) -> GaussianRows | None:
    """Of few Gaussian rows under a kernel of few hyperparameters; None of others."""
    family, likelihood = evidence.family, evidence.likelihood
    few = evidence.n_family <= MOST_HYPERPARAMETERS and not evidence.is_large and evidence.start.size > 0
    if not (few and likelihood.objective.conjugate and type(family) is KernelCovariance and family.design is None):
        return None
    seen = is_numpy(family.X) and bool(np.any(evidence.targets.rows_of(likelihood)["weight"] > 0.0))
    return GaussianRows(evidence, family) if seen else None


def quick_climb(evidence: Evidence, theta: np.ndarray, gtol: float, most: int = MOST_WALKED) -> Place | None:
    """Where ``highest`` ends; None where rows are others, or rounding decides there."""
    rows = gaussian_rows(evidence)
    if rows is None:
        return None
    try:
        with np.errstate(all="ignore"), one_thread():
            found = highest(rows, theta, gtol, most)
    except ValueError:  # beyond double precision
        return None
    evidence.n_evaluations += rows.n_evaluations
    return found if rows.is_clear(found) else None


def quick_start(evidence: Evidence, theta: np.ndarray, gtol: float, max_iter: int = MOST_WALKED) -> np.ndarray:
    """Where a search that would begin at theta may begin, with slope to spare, and its first fit.

    Rows of labels are searched by slopes alone; nothing judges the last step but the fit that is certified.
    """
    sites = site_rows(evidence)
    if sites is not None:
        try:
            with np.errstate(all="ignore"), one_thread(len(sites.weight) <= gates.ONE_THREAD_ROWS):
                by_slopes = BySlopes(sites)
                end = climb(by_slopes, theta, SLOPE_LEFT * gtol, most=max_iter, loose=gtol)
                ahead = newton_step(by_slopes, end, LAST_RADIUS)[0]
                evidence.first_start, theta = sites.coordinates(ahead), ahead
        except ValueError:  # beyond double precision, or left to the search
            pass
        evidence.n_evaluations += sites.n_evaluations
        evidence.n_newton += sites.n_newton
        return theta
    found = quick_climb(evidence, theta, 0.5 * gtol, min(max_iter, MOST_WALKED))
    if found is None:
        return theta
    likelihood = evidence.split(found.theta)[1]
    rows, dual = evidence.targets.rows_of(likelihood), likelihood.objective.dual
    y, w, variance = (to_numpy(rows[name]) for name in ("y", "weight", "variance"))
    seen, h = w > 0.0, np.zeros((len(w), 1))
    h[seen, 0] = y[seen] - variance[seen] / w[seen] * found.A[:, 0]  # y - noise C^-1 r
    evidence.first_start = dual.maximiser(h, 0.0 * h, dual.start(rows, 1.0), rows)
    return found.theta
