"""Leave-one-out prediction from the cavity of each observation: q without the observation's own site.

v = rho / (1 - lam rho),   mean = h + alpha v,   log p(y_n | the others) = log E[p(y_n | eta_n)] under N(mean, v)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, Seed, asarray
from ..posterior import Posterior
from .rows import RowScores


@dataclass(frozen=True, repr=False)
class LeaveOneOut(RowScores):
    """Leave-one-out predictions from the cavity, without a refit.

    log_density : log p(y_n | the others) (N,), NaN where y is unobserved or has weight 0
    mean, variance : of eta_n without y_n, (N,) or (N, C); variance is (N, C, C) for correlated predictors
    """

    log_density: Array
    mean: Array
    variance: Array


def leave_one_out(likelihood: Likelihood, posterior: Posterior, y: np.ndarray, rng: Seed = None) -> LeaveOneOut:
    """Leave-one-out predictive densities of y (N,), NaN where it does not count."""
    mean, variance = posterior.cavity()
    density = asarray(likelihood.predictive_log_density(y, mean, variance, rng), mean)
    one = mean.shape[1] == 1
    return LeaveOneOut(density, mean[:, 0] if one else mean, variance[:, 0] if one else variance)
