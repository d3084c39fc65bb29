"""How well hyperparameters are known, by the evidence about its mode theta*, and what that means on the user's scale.

    theta = theta* + sum_k s_k v_k z_k,    H = sum_k v_k v_k' / s_k^2

H is the curvature, by differences of the exact gradient. Each z_k is normal, with one width on either side of the mode:
1 / sqrt(fall), where the evidence falls by that much at z_k = -+sqrt(2), and by 1 under a normal. A log sd has the
longer tail to the left where data hardly tell an effect from none, and to the right where groups are few.
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
_REACH = np.sqrt(2.0)  # where a normal has fallen by 1
_FALLS = (0.1, 10.0)  # what is believed of a fall there
_LEAST = 0.2  # a bound nearer than this share of the way says nothing of the width
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


def evidence_of(fit: FittedModel) -> Evidence:
    """As a function of theta, starting where the fit stands."""
    if fit.evidence is not None:
        return fit.evidence
    target, family = fit.model.target, fit.model.sum.family()
    out = Evidence(fit.found.likelihood, family, target.y, weights=target.weights, tol=1e-13, own=True)
    out.begin(fit.solution)
    return out


def curvature(fit: FittedModel, ask: Callable[[Solution], float] | None = None) -> Known:
    """How well theta is known, and how something asked of the fit at each theta moves with it."""
    theta, evidence = fit.theta, evidence_of(fit)
    free = [i for i in range(theta.size) if i not in fit.found.at_bounds]
    out, moves = np.zeros((theta.size, theta.size)), np.zeros(theta.size)
    if not free:
        return Known(out, moves)
    rows = []
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


def two_sided(fit: FittedModel) -> tuple[np.ndarray, np.ndarray]:
    """Directions s_k v_k (n, k) of theta, and the widths (2, k) of z_k below and above the mode."""
    C = fit.known.covariance
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


def spread(
    fit: FittedModel,
    ask: Callable[[np.ndarray, float], list[float]],
    shift_sd: float = 0.0,
    level: float = 0.95,
) -> np.ndarray:
    """Lower and upper ends (k, 2) of what is asked of theta and of a shift; NaN where they have no spread.

    The shift is what moves with theta by ``fit.known.moves`` and has the sd ``shift_sd`` given theta.
    """
    A, widths = two_sided(fit)
    if not A.shape[1]:
        return np.full((len(ask(fit.theta, 0.0)), 2), np.nan)
    z = ndtri(qmc.Halton(A.shape[1] + 1, scramble=False).random(_DRAWS + 1)[1:])  # the first point is 0
    own = z[:, :-1]
    draws = fit.theta + np.where(own < 0.0, *(width * own for width in widths)) @ A.T
    draws = np.clip(draws, *evidence_of(fit).bounds.T)
    shifts = (draws - fit.theta) @ fit.known.moves + shift_sd * z[:, -1]
    with np.errstate(over="ignore"):
        values = np.array([ask(draw, float(shift)) for draw, shift in zip(draws, shifts, strict=True)])
    ends = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2], axis=0).T
    return np.where((ends[:, 1] > ends[:, 0])[:, None], ends, np.nan)
