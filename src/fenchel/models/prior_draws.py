"""What the priors of a model make of y, before there are data: draws of hyperparameters, latents and y.

theta ~ p(theta),  z ~ p(z | theta),  y ~ p(y | z, theta)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..checks import count, problem
from ..hyperparameters.priors import Normal, distribution
from ..likelihoods.base import Likelihood
from ..linalg.arrays import to_numpy
from ..posterior import Posterior

if TYPE_CHECKING:
    from .model import Model

_OWN = 0.5  # sd of a prior of a likelihood's parameter, on its learning scale, where the model has none
_FARTHEST = 1e12  # data beyond this are not fitted


# -- one data set -------------------------------------------------------------------------------------------
class Drawn(NamedTuple):
    """One data set: the latents, eta (N,) and y (N,), NaN where the model's own y is unobserved."""

    latents: np.ndarray
    eta: np.ndarray
    y: np.ndarray


def prior_at(model: Model, likelihood: Likelihood, theta: np.ndarray) -> Posterior:
    """The prior of the latents at theta, which data sets of the same parameters share."""
    prior = model.sum.family().at(theta[: theta.size - likelihood.theta.size])
    return Posterior.of_prior(prior, model.target.y.size)


def draw_data(
    where: str,
    model: Model,
    likelihood: Likelihood,
    theta: np.ndarray,
    rng: np.random.Generator,
    fixed: Any = None,
    prior: Posterior | None = None,
) -> Drawn:
    """Latents from their prior at theta, the last of them at ``fixed`` where given, and y from these."""
    n_own = likelihood.theta.size
    truth = likelihood.with_theta(theta[theta.size - n_own :]) if n_own else likelihood
    nothing = prior_at(model, likelihood, theta) if prior is None else prior
    z = to_numpy(nothing.sample_latents(1, rng))[0]
    if fixed is not None:
        z[z.size - fixed.size :] = fixed
    everyone: Any = nothing.predictors
    eta = to_numpy(everyone.mt)[:, 0] + to_numpy(everyone.designs[0].times(z - to_numpy(nothing.latent_mean)))
    y = np.asarray(truth.lenient().draw(eta[:, None], rng), dtype=np.float64)[:, 0]
    if not (np.isfinite(y).all() and np.abs(y).max(initial=0.0) < _FARTHEST):
        if fixed is not None:
            raise problem(where, "the stated parameters make data beyond 1e12", "coefficients nearer to 0")
        raise problem(where, "the priors made data beyond 1e12", "tighter ones", "Model(..., fixed_sd=1).")
    return Drawn(z, eta, np.where(model.target.seen > 0.0, y, np.nan))


# -- the prior ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ThetaPrior:
    """Of theta: the distribution function of each entry on a grid, and the likelihood with proper priors of its own."""

    tables: list[tuple[np.ndarray, np.ndarray]]
    likelihood: Likelihood

    @classmethod
    def of(cls, where: str, model: Model) -> ThetaPrior:
        """Of a model whose hyperparameters have proper priors."""
        refuse_reduced(where, model)
        likelihood, tables_ = _proper(where, model), []
        for term in model.sum.effects:
            for h in term.hyperparameters:
                if h.prior is None:
                    got, cure = (
                        f"{h.name!r} of {term.name} has a flat prior",
                        f"priors={{{str(term.name)!r}: PC(sd=1)}}.",
                    )
                    raise problem(where, got, "a proper one to draw from", cure)
                tables_.append(distribution(h.prior, h.bounds))
        bounds = likelihood.theta_bounds(model.target.y, model.target.weights)
        priors = [entry.prior for entry in likelihood.entries()]
        tables_ += [distribution(prior, (float(b[0]), float(b[1]))) for prior, b in zip(priors, bounds, strict=True)]
        return cls(tables_, likelihood)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return np.array([np.interp(rng.random(), total, at) for at, total in self.tables])


def refuse_reduced(where: str, model: Model) -> None:
    """Refuse a model of several likelihoods or predictors."""
    if model.others or model.reduction.name:
        raise problem(where, f"a model of {model.reduction.name}", "a model of one likelihood and one predictor")


def _proper(where: str, model: Model) -> Likelihood:
    """The likelihood with priors about where its parameters start, but for those that were stated."""
    likelihood = model.target.likelihood
    for p in likelihood.learned:
        if np.ndim(p.of(likelihood)):
            got = f"{likelihood.name} learns several numbers as its {p.name}"
            raise problem(where, got, "a likelihood whose parameters are one number each")
    priors: list[Any] = []
    for name, entry, start in zip(model.own_priors.names, likelihood.entries(), likelihood.theta, strict=True):
        stated = name in model.own_priors.stated
        if stated and entry.prior is None:
            raise problem(where, f"{name!r} has a flat prior", "a proper one to draw from")
        priors.append(entry.prior if stated else Normal(float(start), _OWN))
    return likelihood.with_priors(priors) if priors else likelihood


def prior_predictive(model: Model, n: int, rng: Any) -> np.ndarray:
    """Draws of y (n, N) from the priors; labels are the numbers that they stand for."""
    n, rng = count("prior_predictive", "n", n, 1), np.random.default_rng(rng)
    prior = ThetaPrior.of("prior_predictive", model)
    each = [draw_data("prior_predictive", model, prior.likelihood, prior.draw(rng), rng).y for _ in range(n)]
    return over_data(model, np.stack(each))


def over_data(model: Model, y: np.ndarray) -> np.ndarray:
    """y (n, N) of the rows of a model over all rows of the data, labels by their values."""
    values = model.target.values
    if values is not None:
        there = ~np.isnan(y)
        y = np.where(there, values[np.where(there, y, 0.0).astype(int)], np.nan)
    out = np.full((len(y), len(model.data_index)), np.nan)
    out[:, model.kept] = y
    return out
