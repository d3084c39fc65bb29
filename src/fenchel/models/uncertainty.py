"""How well hyperparameters are known: theta ~ N(theta*, H^-1), H the curvature of the evidence, by differences of its
exact gradient, and what that means on the user's scale.
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
_DRAWS = 512  # of a fixed net


def theta_covariance(fit: FittedModel) -> np.ndarray:
    """(n, n) of all entries of theta; rows of entries that ended at a bound are 0."""
    model, target, theta = fit.model, fit.model.target, fit.theta
    evidence = Evidence(fit.found.likelihood, model.sum.family(), target.y, weights=target.weights, tol=1e-13, own=True)
    free = [i for i in range(theta.size) if i not in fit.found.at_bounds]
    out = np.zeros((theta.size, theta.size))
    if not free:
        return out
    evidence.last, rows = fit.solution, []
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


def spread(fit: FittedModel, ask: Callable[[np.ndarray], list[float]], level: float = 0.95) -> np.ndarray:
    """Lower and upper ends (k, 2) of what is asked of theta; NaN where theta has no spread."""
    C = fit.theta_covariance
    live = np.flatnonzero(np.diag(C) > 0.0)
    if not live.size:
        return np.full((len(ask(fit.theta)), 2), np.nan)
    L = np.linalg.cholesky(C[np.ix_(live, live)])
    u = qmc.Halton(live.size, scramble=False).random(_DRAWS + 1)[1:]  # the first point is 0
    draws = np.tile(fit.theta, (_DRAWS, 1))
    draws[:, live] += ndtri(u) @ L.T
    with np.errstate(over="ignore"):
        values = np.array([ask(draw) for draw in draws])
    ends = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0).T
    return np.where((ends[:, 1] > ends[:, 0])[:, None], ends, np.nan)
