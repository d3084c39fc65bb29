"""A quadratic model of an objective within a box: Newton's steps of theta, and what they say of the curvature.

The model around a point is the gradient there and a curvature (``Objective.curvature``), corrected by the steps before:
the smallest change, in units of the curvature, that explains how the gradient changed along them. Its maximum within
the bounds and a radius is a bounded least-squares problem of a few unknowns. The rise that a step promises also says
how exact the fit at its end must be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import lsq_linear

GAP_SHARE = 0.02  # of the promised rise: the gap that the fit at the end of a step may have
CLEAR_SHARE = 0.1  # of the promised rise: what the fit where a step began may have left, for its slope to count
FIRST_RADIUS = 2.0  # log units
POOR_SHARE = 0.25  # of the promised rise: below it the radius shrinks
GOOD_SHARE = 0.75  # of the promised rise: above it the radius grows
LEAST_CURVATURE = 1e-8  # of the largest one, in directions of which nothing is known
REMEMBERED_STEPS = 4


class Step(NamedTuple):
    """A step of theta, the fall of the gradient along it, and the curvature where it began."""

    step: np.ndarray
    gradient_fall: np.ndarray
    curvature: np.ndarray


class TrustRegion:
    """A quadratic model within a box: it proposes a step, and is updated by what came of it."""

    def __init__(self, bounds: np.ndarray, step_limit: float = 4.0, trust: float = 10.0) -> None:
        self.bounds, self.step_limit, self.trust, self.radius = bounds, step_limit, trust, min(FIRST_RADIUS, step_limit)
        self.steps: list[Step] = []
        self.promised_rise = np.inf  # nats, of the last step
        self.remaining_rise = np.inf  # nats, of a step that no failure has shortened

    def propose(self, theta: np.ndarray, gradient: np.ndarray, curvature: np.ndarray) -> np.ndarray:
        """The maximum of the model within the radius."""
        H = self.updated_curvature(curvature)
        step, self.promised_rise = self._maximum(H, theta, gradient, self.radius)
        self.remaining_rise = max(self.promised_rise, self._maximum(H, theta, gradient, self.step_limit)[1])
        return theta + step

    def _maximum(
        self, H: np.ndarray, theta: np.ndarray, gradient: np.ndarray, radius: float
    ) -> tuple[np.ndarray, float]:
        """The step to the maximum, and the rise that it promises."""
        low = np.maximum(self.bounds[:, 0] - theta, -radius)
        high = np.minimum(self.bounds[:, 1] - theta, radius)
        step = np.clip(maximum_in_box(H, gradient, low, high), low, high)
        return step, float(gradient @ step - 0.5 * step @ H @ step)

    @property
    def allowed_gap(self) -> float:
        """Nats that the fit at the end of the last step may leave."""
        return GAP_SHARE * self.promised_rise

    def update(self, taken: Step, rise: float, missing: float = 0.0) -> None:
        """What came of a step: ``rise`` is how much the objective rose, ``missing`` what the fit where it began left.

        A fit that left much beside what the step promised says nothing of the curvature: its slope is off by as much.
        """
        clear = missing <= CLEAR_SHARE * self.promised_rise
        if clear and np.isfinite(taken.gradient_fall).all() and taken.step.any():
            self.steps = [*self.steps[-REMEMBERED_STEPS + 1 :], taken]
        longest, share = float(np.abs(taken.step).max()), rise / self.promised_rise
        if not share > POOR_SHARE:
            self.radius = 0.25 * longest
        elif share > GOOD_SHARE and longest > 0.99 * self.radius:
            self.radius = min(2.0 * self.radius, self.step_limit)

    def updated_curvature(self, curvature: np.ndarray) -> np.ndarray:
        """The curvature with what it missed along the last steps, within ``trust`` of it, positive definite."""
        least = LEAST_CURVATURE * (1.0 + np.diag(curvature).max(initial=0.0))
        sizes, axes = np.linalg.eigh(curvature + least * np.eye(len(curvature)))
        root = np.sqrt(np.maximum(sizes, least))
        into, back = (axes * root).T, axes / root  # to units of the curvature, and a slope from them
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
