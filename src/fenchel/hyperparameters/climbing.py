"""Steps of theta where the curvature is known: Newton's within the bounds and a reach, mended by the way gone.

The model of the objective around a point is its slope and its curvature (``Objective.curvature``), with what that has
missed on the steps before: the smallest error, in units of the curvature, that explains how the slope fell along them.
Its top within the box is a bounded least-squares problem of a few unknowns. What the step promises also says how exact
the fit at its end must be: a share of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import lsq_linear

_SHARE = 0.02  # of the rise a step promises: the gap that the fit at its end may have
_REACH, _FURTHEST = 2.0, 4.0  # in e-folds: what the first step may do, and any
_CLEAR = 0.1  # of the rise a step promises: what the fit where it begins may have left, for its slope to count
_POOR, _GOOD = 0.25, 0.75  # of the promised rise: the reach shrinks below the one, and grows above the other
_LEAST = 1e-8  # of the largest curvature, in directions of which nothing is known: a step to the end of the reach
_TRUST = 10.0  # the most by which the curvature may be mended, either way
_STEPS = 4  # that are remembered


class Gone(NamedTuple):
    """A step, by how much the slope fell along it, and the curvature where it began."""

    step: np.ndarray
    fall: np.ndarray
    curvature: np.ndarray


class Climb:
    """The model of an objective along a way: where it promises the next point, and what it learns there."""

    def __init__(self, bounds: np.ndarray) -> None:
        self.bounds, self.reach = bounds, _REACH
        self.gone: list[Gone] = []
        self.promised = np.inf  # nats, of the last step
        self.left = np.inf  # nats, of a step that no failure has shortened

    def next(self, theta: np.ndarray, gradient: np.ndarray, curvature: np.ndarray) -> np.ndarray:
        """The top of the model within reach."""
        H = self.mended(curvature)
        step, self.promised = self._top(H, theta, gradient, self.reach)
        self.left = max(self.promised, self._top(H, theta, gradient, _FURTHEST)[1])
        return theta + step

    def _top(self, H: np.ndarray, theta: np.ndarray, gradient: np.ndarray, reach: float) -> tuple[np.ndarray, float]:
        """The step there, and what it promises."""
        low = np.maximum(self.bounds[:, 0] - theta, -reach)
        high = np.minimum(self.bounds[:, 1] - theta, reach)
        step = np.clip(bounded_top(H, gradient, low, high), low, high)
        return step, float(gradient @ step - 0.5 * step @ H @ step)

    @property
    def blur(self) -> float:
        """Nats that the fit at the end of the last step may leave."""
        return _SHARE * self.promised

    def learn(self, gone: Gone, rise: float, missing: float = 0.0) -> None:
        """What came of a step: ``rise`` is what the objective rose, ``missing`` what the fit where it began left, nats.

        A fit that left much beside what the step promised says nothing of the curvature: its slope is off by as much.
        """
        clear = missing <= _CLEAR * self.promised
        if clear and np.isfinite(gone.fall).all() and gone.step.any():
            self.gone = [*self.gone[-_STEPS + 1 :], gone]
        longest, share = float(np.abs(gone.step).max()), rise / self.promised
        if not share > _POOR:
            self.reach = 0.25 * longest
        elif share > _GOOD and longest > 0.99 * self.reach:
            self.reach = min(2.0 * self.reach, _FURTHEST)

    def mended(self, curvature: np.ndarray) -> np.ndarray:
        """The curvature with what it missed along the steps gone, within ``_TRUST`` of it, positive definite."""
        least = _LEAST * (1.0 + np.diag(curvature).max(initial=0.0))
        sizes, axes = np.linalg.eigh(curvature + least * np.eye(len(curvature)))
        root = np.sqrt(np.maximum(sizes, least))
        into, back = (axes * root).T, axes / root  # to units of the curvature, and a slope from them
        missed = np.zeros(curvature.shape)
        for step, fall, before in self.gone:
            u = into @ step
            v = back.T @ (fall - before @ step) - missed @ u
            u, v = u / np.linalg.norm(u), v / np.linalg.norm(u)
            missed += np.outer(v, u) + np.outer(u, v) - (v @ u) * np.outer(u, u)
        values, vectors = np.linalg.eigh(np.eye(len(missed)) + missed)
        unit = (vectors * np.clip(values, 1.0 / _TRUST, _TRUST)) @ vectors.T
        return np.asarray(into.T @ unit @ into)


def bounded_top(H: np.ndarray, gradient: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The p of low <= p <= high with the largest gradient' p - p' H p / 2, for a positive definite H."""
    free, out = high > low, np.zeros(gradient.size)
    if free.any():
        values, vectors = np.linalg.eigh(H[np.ix_(free, free)])
        root = np.sqrt(np.maximum(values, 1e-14 * max(values[-1], 1e-300)))
        A, b = (vectors * root).T, vectors.T @ gradient[free] / root
        out[free] = lsq_linear(A, b, (low[free], high[free]), method="bvls").x
    return out
