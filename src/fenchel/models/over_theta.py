"""Answers of a fitted model by fits at several theta: over all hyperparameters, or over the likelihood's own alone.

p(eta | y) = sum_k w_k p(eta | y, theta_k),     coefficients as reported and the likelihood of y those of each theta_k

Cutpoints, a share of extra zeros and the shape of a Weibull move eta: sds at their mode would be a tenth to a quarter
too small. A fit that does not integrate over all hyperparameters averages over these few, the others at their mode.
Extra zeros are fitted by Jensen's bound, which takes another tenth off: their marginals are corrected at every theta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..hyperparameters.integration import Integrated, integrate
from ..hyperparameters.integration.predictive import MixedPredictive
from ..marginals import Marginals, NormalMarginals
from ..priors.base import NewRows
from . import predictions, tables
from .marginal_tables import marginal_table
from .skewed import MixedSaid

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

_GRID = 2  # of the likelihood's own parameters that are averaged over on a lattice, which follows tails
_COMPOSITE = 5  # the most on a composite design
_MOST = 12  # the most that are averaged over
_TOL = 1e-6  # relative gap of a fit that is one of many
_CORRECTED = 2000  # rows: up to so many, a bound that is loose in eta (of extra zeros) is corrected at every point


def over_own(fit: FittedModel) -> Integrated | None:
    """The posterior over the likelihood's own parameters, the others held; None where they do not move eta."""
    n, likelihood = fit.found.likelihood.theta.size, fit.found.likelihood
    family = fit.model.sum.family()
    first = fit.theta.size - n
    free = [i for i in range(first, fit.theta.size) if i not in fit.found.at_bounds]
    d = len(free)
    if not likelihood.moves_eta or not 0 < d <= _MOST:
        return None
    loose, target = not likelihood.objective.log_concave, fit.model.target
    return integrate(
        target.likelihood,
        family,
        target.y,
        weights=target.weights,
        mode=fit.found,
        method="grid" if d <= _GRID else "ccd" if d <= _COMPOSITE else "star",
        evidence="corrected" if fit.answers is not None or (loose and fit.model.n_rows[1] <= _CORRECTED) else "elbo",
        hold=range(first),
        tol=_TOL,
    )


def views_of(fit: FittedModel) -> list[FittedModel]:
    """The model as fitted at each point."""
    from .fitted import FittedModel

    mixed = fit.mixed
    assert mixed is not None
    out: list[FittedModel] = []
    for theta, solution, part in zip(mixed.thetas, mixed.solutions, mixed.answers, strict=True):
        view = FittedModel.__new__(FittedModel)
        found = replace(fit.found, theta=theta, solution=solution, likelihood=solution.likelihood)
        answers = None if part is solution.posterior else part
        view.__dict__.update(model=fit.model, theta=theta, solution=solution, found=found, answers=answers, mixed=None)
        view.likelihood, view.shift = tables.reported(view)
        out.append(view)
    return out


def marginals(fit: FittedModel, rows: Callable[[FittedModel], NewRows]) -> Marginals:
    """Of eta at rows that are said of the fit at each theta."""
    if fit.mixed is None:
        return fit.posterior.at(**rows(fit))
    return fit.mixed.mixture([view.posterior.at(**rows(view)) for view in fit.views])


def coefficients(fit: FittedModel) -> pd.DataFrame:
    """Mean, sd, interval; the median of exp(coefficient) where it has a name."""
    names = tables.names_of(fit.model)
    if fit.posterior is not fit.solution.posterior and names:
        return marginal_table((None, names), marginals(fit, _coefficient_rows), fit.likelihood.ratio)
    mean, covariance = tables.fixed_moments(fit)
    moments = NormalMarginals(mean, np.maximum(np.diag(covariance), 0.0))
    return marginal_table((None, names), moments, fit.likelihood.ratio)


def _coefficient_rows(fit: FittedModel) -> NewRows:
    design, above = tables.fixed_rows(fit)
    return NewRows(design=design, offset=above)


def covariance(fit: FittedModel) -> pd.DataFrame:
    """Of the coefficients (p, p)."""
    import pandas as pd

    views, w = ([fit], np.ones(1)) if fit.mixed is None else (fit.views, fit.mixed.weights)
    means, covariances = (np.stack(each) for each in zip(*map(tables.fixed_moments, views), strict=True))
    off, names = means - w @ means, tables.names_of(fit.model)
    total = np.einsum("k,kij->ij", w, covariances) + (off * w[:, None]).T @ off
    return pd.DataFrame(total, index=names, columns=names)


def said(fit: FittedModel, where: predictions.Where, given: Mapping[str, Any], kind: str) -> predictions.OfY:
    """What the posterior says of y at rows; of ``kind`` "link", of eta as reported."""
    if fit.mixed is None:
        return predictions.said(fit, predictions.stated(fit, where, kind), given)
    places = [predictions.stated(view, predictions.again(view, where), kind) for view in fit.views]
    likelihoods = [predictions.likelihood_at(view, where, given) for view in fit.views]
    etas = [view.posterior.at(**place.new) for view, place in zip(fit.views, places, strict=True)]
    y = MixedPredictive(fit.mixed.weights, likelihoods, etas, fit.mixed.mixture(etas))
    return MixedSaid(y, fit.model.target.values)


def parts_of(fit: FittedModel, size: int, rng: np.random.Generator) -> list[tuple[FittedModel, np.ndarray]]:
    """Fits at one theta each, and which of ``size`` draws are theirs."""
    if fit.mixed is None:
        return [(fit, np.arange(size))]
    return list(zip(fit.views, fit.mixed.shared(size, rng), strict=True))


def drawn(
    fit: FittedModel, where: predictions.Where, size: int, rng: np.random.Generator, kind: str, given: Mapping[str, Any]
) -> np.ndarray:
    """Joint draws (size, M), of theta too."""
    if fit.mixed is None:
        return predictions.draws(fit, where, size, rng, kind, given)
    out = np.empty((size, where.there.size))
    for view, some in parts_of(fit, size, rng):
        if some.size:
            out[some] = predictions.draws(view, predictions.again(view, where), some.size, rng, kind, given)
    return out
