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
from ..hyperparameters.learned import Learned
from ..marginals import Marginals, NormalMarginals
from ..predictive import Predictive
from ..priors.base import NewRows
from . import predictions, tables
from .marginal_tables import marginal_table

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .model import Model

_THETAS = 8192  # draws of theta by which a table of hyperparameters is read off
_GRID = 2  # of the likelihood's own parameters that are averaged over on a lattice, which follows tails
_COMPOSITE = 5  # the most on a composite design
_MOST = 12  # the most that are averaged over
_TOL = 1e-6  # relative gap of a fit that is one of many
_CORRECTED = 2000  # rows: up to so many, a bound that is loose in eta (of extra zeros) is corrected at every point


def integrated(model: Model, found: Learned, method: str, **options: Any) -> FittedModel:
    """The model with its hyperparameters integrated out, about what was learned."""
    from .fitted import FittedModel

    target, family = model.target, model.sum.family()
    own: dict[str, Any] = {"weights": target.weights, "mode": found, "method": method}
    return FittedModel(model, found, integrate(target.likelihood, family, target.y, **own, **options))


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
        found = replace(fit.found, theta=theta, solution=solution, likelihood=solution.likelihood)
        answers: Any = None if part is solution.posterior else part
        out.append(FittedModel(fit.model, found, answers=answers, at_theta=True))
    return out


def hyperparameters(fit: FittedModel, mixed: Integrated) -> pd.DataFrame:
    """The posterior of what the table of an integrated fit shows: mean, sd, median, interval, and its mode."""
    levels = _level_at_points(fit)
    at = None if levels is None else float(mixed.theta.between(mixed.thetas, levels, mixed.theta.peak[None])[0, 0])
    rows = tables.described_theta(fit, mixed.theta.peak, at)
    if not rows:
        return tables.hyperparameters(fit)

    def ask(theta: np.ndarray, level: float | None = None) -> list[float]:
        return [row[2] for row in tables.described_theta(fit, theta, level)]

    if levels is None:
        found = mixed.theta.of(ask, size=_THETAS)
    else:  # cutpoints at x = 0 have the uncertainty of the coefficients
        found = mixed.theta.beside(ask, mixed.thetas, levels, size=_THETAS)
    lower, middle, upper = found.quantile([0.025, 0.5, 0.975]).T
    moments = {"mean": found.mean, "sd": found.sd, "median": middle}
    return tables.parameter_frame(rows, **moments, lower=lower, upper=upper)


def _level_at_points(fit: FittedModel) -> np.ndarray | None:
    """What cutpoints at x = 0 are above those as fitted at each point, mean and sd (K, 2); None without them."""
    if not (fit.model.ordered and fit.model.sum.fixed_names):
        return None
    answers = [view.solution if view.answers is None else view.answers for view in fit.views]
    return np.array([tables.level_of_ordered(fit, each) for each in answers])


def marginals(fit: FittedModel, rows: Callable[[FittedModel], NewRows]) -> Marginals:
    """Of eta at rows that are said of the fit at each theta."""
    if fit.mixed is None:
        return fit.posterior.at(rows(fit))
    return fit.mixed.mixture([view.posterior.at(rows(view)) for view in fit.views])


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


def predictive(fit: FittedModel, where: predictions.Where, given: Mapping[str, Any], kind: str) -> Predictive:
    """y at rows under the posterior; of ``kind`` "link", eta as reported."""
    if fit.mixed is None:
        return predictions.predictive(fit, predictions.stated(fit, where, kind), given)
    places = [predictions.stated(view, predictions.again(view, where), kind) for view in fit.views]
    likelihoods = [predictions.likelihood_at(view, where, given) for view in fit.views]
    etas = [view.posterior.at(place.new) for view, place in zip(fit.views, places, strict=True)]
    together = fit.mixed.mixture(etas)
    return Predictive.mixture(fit.mixed.weights, likelihoods, etas, together, fit.model.target.values)


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
