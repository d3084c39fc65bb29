"""What passes that learn theta beside q come to, as ``hyperparameters.learn`` says it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..hyperparameters.learned import Found, Learned, SearchEnding
from ..hyperparameters.objective import entries_at_bounds
from ..likelihoods.base import Likelihood
from .solver import GTOL, Outcome
from .steps import Learning

_WIDE = 1e-3  # nats for an e-fold: a slope that a bound holds up


def learned(
    outcome: Outcome,
    learning: Learning,
    at: tuple[np.ndarray, np.ndarray, np.ndarray],
    solution: Any,
    prior: Any,
    likelihood: Likelihood,
    names: list[str],
    what: str,
    n: int,
) -> Learned:
    """``at`` are theta, the slopes and the bounds there; ``what`` it was learned with, in ``n`` passes."""
    (theta, slopes, bounds), point = at, outcome.point
    left, allowed = learning.rising(point.q, outcome.slopes), max(GTOL, point.rounding**0.5)
    named = [*names, *(likelihood.theta_names if point.q.own.size else [])]
    at_bounds, held = entries_at_bounds(bounds, theta, slopes, _WIDE)
    converged = solution.optimal and left <= allowed
    ending = SearchEnding(
        "converged" if converged else "fit" if not solution.optimal else "slope",
        "largest projected slope",
        left,
        allowed,
        search=f"learned with the {what}, pass by pass",
        at_bounds={named[i]: side for i, side in at_bounds.items()},
        fit=solution.ending,
    )
    found = Found(theta, solution, point.objective, slopes, converged, ending, 1, n)
    found.at_bounds, found.held = at_bounds, held
    return Learned(**vars(found), likelihood=likelihood, prior=prior)
