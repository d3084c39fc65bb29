"""Estimators whose hyperparameters are integrated out: y at new rows as a mixture over theta."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..hyperparameters import Family, Learned, Normal, independent
from ..hyperparameters.integration import Integrated, Mixture, integrate
from ..inputs.observations import Target
from ..marginals import NormalMarginals
from ..predictive import Predictive
from .latent import Latent

_WEAK = 2.0  # sd of the log of a hyperparameter that has no prior, about where it starts


def with_prior(family: Family) -> Family:
    """The family, each entry of theta N(start, 2^2) where it states no prior: a flat one has no integral."""
    if family._log_prior is None:
        family._log_prior = independent({i: Normal(float(start), _WEAK) for i, start in enumerate(family.theta)})
    return family


def integrated(target: Target, family: Family, found: Learned, weights: Any, own: bool, method: Any) -> Integrated:
    """The posterior over theta too, about what was learned."""
    word = "auto" if method is True else method
    options = {"weights": weights, "learn_likelihood": own, "mode": found, "method": word}
    return integrate(target.likelihood, family, target.y, **options)


def mixed(posterior: Integrated, target: Target, latent: Latent, table: Any, rows: dict[str, Any]) -> Predictive:
    """y at the rows of a table."""
    etas = [
        part.at(latent.new_rows(theta, table)) for part, theta in zip(posterior.answers, posterior.thetas, strict=True)
    ]
    n = np.shape(etas[0].mean)[0]
    own = [target.likelihood_at(likelihood, n, rows) for likelihood in posterior.likelihoods]
    together = Mixture(posterior.weights, etas)
    return Predictive.mixture(posterior.weights, own, etas, together, target.values, target.labels)


def reported_moments(new: Predictive, shifts: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of eta as reported, which each theta has ``shifts`` above eta as fitted."""
    parts = [NormalMarginals(part.h + shift, part.rho) for part, shift in zip(new.parts, shifts, strict=True)]
    both = Mixture([part.weight for part in new.parts], parts)
    return both.mean, both.variance
