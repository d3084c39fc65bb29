"""The log likelihood of a fitted model at its estimates, as packages of R define it.

    marginal       log p(y | b, theta): effects integrated out, coefficients at their means and hyperparameters at their
                   values. Degrees of freedom: the coefficients and the hyperparameters, as ``lme4::logLik`` has them.
    conditional    log p(y | eta, theta) at the mean of eta. Degrees of freedom: the trace of V Lam, what the data
                   decide of eta, and the likelihood's own hyperparameters.

Under flat priors the estimate is nearly that of maximum likelihood: with few groups ours, like REML's, has the larger
variances, and its log likelihood is a little below the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..checks import choice
from ..gmrf.stack import StackedField
from ..inference import infer
from ..inputs.fixed_columns import Columns
from ..linalg.arrays import to_numpy
from . import tables

if TYPE_CHECKING:
    from .fitted import FittedModel


@dataclass(frozen=True)
class LogLikelihood:
    """A log likelihood with its degrees of freedom; ``float`` gives its value.

    Attributes
    ----------
    value : float
    df : float
        Degrees of freedom, as R counts them.
    nobs : int
    kind : "marginal" or "conditional"
    """

    value: float
    df: float
    nobs: int
    kind: str

    @property
    def aic(self) -> float:
        """-2 value + 2 df."""
        return -2.0 * self.value + 2.0 * self.df

    @property
    def bic(self) -> float:
        """-2 value + log(nobs) df."""
        return -2.0 * self.value + float(np.log(self.nobs)) * self.df

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        df = f"{self.df:.4g}" if self.kind == "conditional" else f"{self.df:.0f}"
        return f"'log Lik.' {self.value:.4f} (df={df}), {self.kind}, at the estimate"


def log_likelihood(fit: FittedModel, kind: str) -> LogLikelihood:
    """Marginal or conditional, summed over the parts of a fit."""
    choice("log_likelihood", "kind", kind, ("marginal", "conditional"))
    if fit.parts:
        each = [log_likelihood(part, kind) for part in fit.parts.values()]
        nobs = max(part.nobs for part in each)
        return LogLikelihood(sum(p.value for p in each), sum(p.df for p in each), nobs, kind)
    nobs = fit.model.n_rows[1]
    if kind == "conditional":
        posterior = fit.solution.posterior
        df = float(np.sum(to_numpy(posterior.lam)[:, 0] * to_numpy(posterior.variance)))
        return LogLikelihood(_at(fit, to_numpy(posterior.mean)), df + fit.found.likelihood.theta.size, nobs, kind)
    df = len(tables.names_of(fit.model)) + fit.theta.size
    return LogLikelihood(_marginal(fit), float(df), nobs, kind)


def _at(fit: FittedModel, eta: np.ndarray) -> float:
    """log p(y | eta) (N,), weighted."""
    rows, weight = fit.found.likelihood.prepare(fit.solution.y), fit.model.target.seen
    each = np.asarray(fit.found.likelihood.log_density(eta[:, None], rows))[:, 0]
    return float(np.sum(np.where(weight > 0.0, weight * each, 0.0)))


def _marginal(fit: FittedModel) -> float:
    """log p(y | b, theta): the evidence of the model with its fixed part as a known offset of eta."""
    model = fit.model
    sum_, n = model.sum, len(model.kept)
    tail = sum_.columns.tail(sum_.X, sum_.intercept)
    latents = to_numpy(fit.solution.posterior.latent_mean)
    known = sum_.offset + tail @ latents[latents.size - tail.shape[1] :]
    if not sum_.effects:
        return _at(fit, np.broadcast_to(known, (n,)))
    designs = [rows.design for term, rows in zip(sum_.terms, sum_.training, strict=True) if term.n_latents]
    parts = list(zip(sum_.family().parts, designs, strict=True))
    empty = np.zeros((n, 0))
    family = StackedField(parts, empty, Columns.of("log_likelihood", empty, []), False, 1.0, offset=known)
    own = fit.theta[: fit.theta.size - fit.found.likelihood.theta.size]
    result = infer(fit.found.likelihood, family.at(own), model.target.y, weights=model.target.weights)
    return float(result.elbo if fit.found.likelihood.objective.conjugate else result.corrected().log_evidence)
