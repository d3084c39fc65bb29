"""How well hyperparameters are known: theta ~ N(theta*, H^-1), H the curvature of the evidence, by differences of its
exact gradient, and what that means on the user's scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from ..hyperparameters.evidence import Evidence
from ..solvers.solution import Solution

if TYPE_CHECKING:
    from .fitted import FittedModel

_STEP = 0.1  # in e-folds: the gradient is exact to sqrt(gap), and a curvature is O(1)
_FLATTEST = 1e-2  # curvatures below this say that a direction is unknown; its sd is then 10 e-folds
_DRAWS = 512  # of a fixed net


@dataclass(frozen=True)
class Known:
    """What the curvature of the evidence says.

    Attributes
    ----------
    covariance : array (n, n)
        Of all entries of theta; rows of entries that ended at a bound are 0.
    moves : array (n,)
        By how much what was asked of the fit moves with each entry; 0 where nothing was asked.
    """

    covariance: np.ndarray
    moves: np.ndarray


def curvature(fit: FittedModel, ask: Callable[[Solution], float] | None = None) -> Known:
    """How well theta is known, and how something asked of the fit at each theta moves with it."""
    model, target, theta = fit.model, fit.model.target, fit.theta
    evidence = Evidence(fit.found.likelihood, model.sum.family(), target.y, weights=target.weights, tol=1e-13, own=True)
    free = [i for i in range(theta.size) if i not in fit.found.at_bounds]
    out, moves = np.zeros((theta.size, theta.size)), np.zeros(theta.size)
    if not free:
        return Known(out, moves)
    evidence.last, rows = fit.solution, []
    for i in free:
        step = np.zeros(theta.size)
        step[i] = _STEP
        ends = [np.clip(theta + sign * step, *evidence.bounds.T) for sign in (1.0, -1.0)]
        slopes, asked = [], []
        for end in ends:
            slopes.append(evidence(end)[1][free])
            asked.append(0.0 if ask is None else ask(evidence.solution))
        width = (ends[0] - ends[1])[i]
        rows.append((slopes[1] - slopes[0]) / width)
        moves[i] = (asked[0] - asked[1]) / width
    H = (np.array(rows) + np.array(rows).T) / 2
    values, vectors = np.linalg.eigh(H)
    out[np.ix_(free, free)] = (vectors / np.maximum(values, _FLATTEST)) @ vectors.T
    return Known(out, moves)


def spread(
    fit: FittedModel,
    ask: Callable[[np.ndarray, float], list[float]],
    shift_sd: float = 0.0,
    level: float = 0.95,
) -> np.ndarray:
    """Lower and upper ends (k, 2) of what is asked of theta and of a shift; NaN where they have no spread.

    The shift is what moves with theta by ``fit.known.moves`` and has the sd ``shift_sd`` given theta.
    """
    C = fit.known.covariance
    live = np.flatnonzero(np.diag(C) > 0.0)
    if not live.size:
        return np.full((len(ask(fit.theta, 0.0)), 2), np.nan)
    L = np.linalg.cholesky(C[np.ix_(live, live)])
    u = ndtri(qmc.Halton(live.size + 1, scramble=False).random(_DRAWS + 1)[1:])  # the first point is 0
    draws = np.tile(fit.theta, (_DRAWS, 1))
    draws[:, live] += u[:, : live.size] @ L.T
    shifts = (draws - fit.theta) @ fit.known.moves + shift_sd * u[:, -1]
    with np.errstate(over="ignore"):
        values = np.array([ask(draw, float(shift)) for draw, shift in zip(draws, shifts, strict=True)])
    ends = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0).T
    return np.where((ends[:, 1] > ends[:, 0])[:, None], ends, np.nan)
