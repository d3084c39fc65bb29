"""How well hyperparameters are known, by the evidence about its mode theta*, and what that means on the user's scale.

    theta = theta* + sum_k s_k v_k z_k,    H = sum_k v_k v_k' / s_k^2

H is the curvature, by differences of the exact gradient. Each z_k is normal, with one width on either side of the mode:
1 / sqrt(fall), where the evidence falls by that much at z_k = -+sqrt(2), and by 1 under a normal. A log sd has the
longer tail to the left where data hardly tell an effect from none, and to the right where groups are few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from ..hyperparameters.evidence import Evidence

if TYPE_CHECKING:
    from .fitted import FittedModel

_STEP = 0.1  # in e-folds: the gradient is exact to sqrt(gap), and a curvature is O(1)
_FLATTEST = 1e-2  # curvatures below this say that a direction is unknown; its sd is then 10 e-folds
_REACH = np.sqrt(2.0)  # where a normal has fallen by 1
_FALLS = (0.1, 10.0)  # what is believed of a fall there
_LEAST = 0.2  # a bound nearer than this share of the way says nothing of the width
_DRAWS = 512  # of a fixed net


def evidence_of(fit: FittedModel) -> Evidence:
    """As a function of theta, starting where the fit stands."""
    target, family = fit.model.target, fit.model.sum.family()
    out = Evidence(fit.found.likelihood, family, target.y, weights=target.weights, tol=1e-13, own=True)
    out.last = fit.solution
    return out


def theta_covariance(fit: FittedModel) -> np.ndarray:
    """(n, n) of all entries of theta; rows of entries that ended at a bound are 0."""
    theta = fit.theta
    evidence = evidence_of(fit)
    free = [i for i in range(theta.size) if i not in fit.found.at_bounds]
    out = np.zeros((theta.size, theta.size))
    if not free:
        return out
    rows = []
    for i in free:
        step = np.zeros(theta.size)
        step[i] = _STEP
        ends = [np.clip(theta + sign * step, *evidence.bounds.T) for sign in (1.0, -1.0)]
        above, below = (evidence(end)[1][free] for end in ends)
        rows.append((below - above) / (ends[0] - ends[1])[i])
    H = (np.array(rows) + np.array(rows).T) / 2
    values, vectors = np.linalg.eigh(H)
    out[np.ix_(free, free)] = (vectors / np.maximum(values, _FLATTEST)) @ vectors.T
    return out


def two_sided(fit: FittedModel) -> tuple[np.ndarray, np.ndarray]:
    """Directions s_k v_k (n, k) of theta, and the widths (2, k) of z_k below and above the mode."""
    C = fit.theta_covariance
    values, vectors = np.linalg.eigh(C)
    live = values > 1e-12 * values.max(initial=0.0)
    A = vectors[:, live] * np.sqrt(values[live])
    evidence = evidence_of(fit)
    top, slope = evidence(fit.theta)  # a slope is left where it was another evidence that was maximised
    widths = np.ones((2, A.shape[1]))
    for k in range(A.shape[1]):
        for side, sign in enumerate((-1.0, 1.0)):
            step = _REACH * sign * A[:, k]
            end = np.clip(fit.theta + step, *evidence.bounds.T)
            share = float(step @ (end - fit.theta) / (step @ step))  # of the way that the bounds leave
            if share > _LEAST:
                fall = (top + slope @ (end - fit.theta) - evidence(end)[0]) / share**2
                widths[side, k] = np.clip(fall, *_FALLS) ** -0.5
    return A, widths


def spread(fit: FittedModel, ask: Callable[[np.ndarray], list[float]], level: float = 0.95) -> np.ndarray:
    """Lower and upper ends (k, 2) of what is asked of theta; NaN where theta has no spread."""
    A, widths = two_sided(fit)
    if not A.shape[1]:
        return np.full((len(ask(fit.theta)), 2), np.nan)
    z = ndtri(qmc.Halton(A.shape[1], scramble=False).random(_DRAWS + 1)[1:])  # the first point is 0
    draws = fit.theta + np.where(z < 0.0, *(width * z for width in widths)) @ A.T
    with np.errstate(over="ignore"):
        values = np.array([ask(draw) for draw in draws])
    ends = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0).T
    return np.where((ends[:, 1] > ends[:, 0])[:, None], ends, np.nan)
