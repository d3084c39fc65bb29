"""The variance of a softmax's coefficients by Laplace's evidence, for models too large for exact expectations.

    log p(y | theta) ~ log p(y | h) - 1/2 beta' S beta - 1/2 log|B|      at the mode, h = mt - S beta
    beta = df/dh and lam_kl = p_k p_l of the contrasts eta_k - eta_l, as in ``likelihoods/softmax_exact.py``

Every theta costs a few factorisations of all coefficients together and no expectation. It is no bound: the fit that
follows, at this theta, has the elbo and its certificate.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from ..likelihoods.base import Likelihood, Targets
from ..linalg.arrays import Array
from ..linalg.dense import NotPositiveDefinite
from ..priors.base import Factor
from ..priors.prior_capabilities import HasWeights, SolvesForWeights, Weights
from ..problem import Problem
from .base import Family

_STEPS = 50  # of Newton's method
_SHORTEST = 1e-6  # share of a step
_RISE = 1e-6  # nats: Newton's method ends after a step that rises by less
_EXACT = 0.01  # of log variance: how exactly its best value is asked for


class Laplace:
    """Laplace's evidence as a function of one hyperparameter; each mode is found from the last one."""

    def __init__(self, likelihood: Likelihood, family: Family, y: Targets) -> None:
        self.likelihood, self.family, self.y = likelihood.changed(bound="exact"), family, y
        self.h: Array | None = None

    def evidence(self, theta: float) -> float:
        """log p(y | theta) + log p(theta), about."""
        at = np.array([theta])
        task = Problem(self.likelihood, self.family.at(at), self.y)
        try:
            value, self.h, factor = _mode(task, task.mt if self.h is None else self.h)
        except NotPositiveDefinite:
            return -np.inf
        return value + task.shift - 0.5 * factor.log_det + self.family.log_prior(at)[0]


def _mode(task: Problem, h: Array) -> tuple[float, Array, Factor]:
    """log p(y | h) - 1/2 beta' S beta at the mode, the contrasts h there, and the factor of its curvature."""
    predictors, bound, w = task.predictors, task.bound.over_contrasts, task.weight
    assert isinstance(predictors, HasWeights)
    assert bound is not None
    weights: Weights | None = None
    value, rise = -np.inf, np.inf
    for _ in range(_STEPS):
        loss = bound.at_mean(h, task.rows)
        lam = w[:, None] * loss.lam
        factor = predictors.at(lam)
        if rise < _RISE:
            break
        assert isinstance(factor, SolvesForWeights)
        target, before, t = factor.weights(lam * (h - task.mt) - w[:, None] * loss.alpha), value, 1.0
        while t > _SHORTEST:
            trial = target if weights is None else [a + t * (b - a) for a, b in zip(weights, target, strict=True)]
            h = task.mt + predictors.from_weights(trial)
            value = -float(np.sum(w * bound.at_mean(h, task.rows).value)) - 0.5 * predictors.weights_norm(trial)
            if weights is None or value >= before:
                break
            t /= 2
        weights, rise = trial, value - before
    return value, h, factor


def laplace_theta(likelihood: Likelihood, family: Family, y: Targets) -> np.ndarray:
    """The one hyperparameter of a family where Laplace's evidence is largest within its bounds."""
    # no ``Search``: the slope of Laplace's evidence is not known, and there is one entry
    laplace = Laplace(likelihood, family, y)
    found = minimize_scalar(
        lambda theta: -laplace.evidence(theta), bounds=family.bounds[0], method="bounded", options={"xatol": _EXACT}
    )
    return np.array([found.x])
