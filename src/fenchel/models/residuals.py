"""Residuals of a fitted model.

quantile     ndtri(u),  u = P(y <= y_n | the others), drawn evenly within its jump where y is discrete or censored
pearson      (y_n - E[y_n | the others]) / sd[y_n | the others]
deviance     sign(y_n - E y_n) sqrt(2 (max_eta log p(y_n | eta) - log p(y_n | eta_n)))
response     y_n - E[y_n | the others]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from ..checks import choice, problem
from ..likelihoods.base import Likelihood
from ..linalg.arrays import to_numpy
from ..row_scores import pit_by
from . import predictions
from .row_criteria import over_data, pit

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

KINDS = ("quantile", "uniform", "pearson", "deviance", "response")
_EDGE = 1e-12  # distance from 0 and 1 at which probabilities are clipped, so that quantile residuals are finite
_REACH = 40.0  # distance from eta, in units of its scale, within which the most likely eta is searched
_SHRINKS = 80  # steps of golden section for it, each of which leaves 0.62 of the interval
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


def residuals(fit: FittedModel, kind: str, leave_one_out: bool, rng: Any) -> pd.Series:
    """Residuals of the rows of the data, NaN if the row was dropped or y is missing."""
    choice("residuals", "kind", kind, KINDS)
    if kind in ("quantile", "uniform"):
        u = uniform_residuals(fit, leave_one_out, rng)
        values = u if kind == "uniform" else ndtri(np.clip(u, _EDGE, 1.0 - _EDGE))
    else:
        if is_censored(fit.found.likelihood):
            got = f"kind = {kind!r} of durations of which some had not ended, or are known between two ends"
            raise problem("residuals", got, 'kind="quantile"')
        values = _from_mean(fit, kind, leave_one_out)
    return over_data(fit, values, kind)


def uniform_residuals(fit: FittedModel, leave_one_out: bool, rng: Any) -> np.ndarray:
    """P(y <= y_n) of each row of the fit, with a random number within its interval."""
    if leave_one_out:
        below, upto = pit(fit)
    else:
        y = predictions.predictive(fit, predictions.read_rows(fit), "outcome")
        below, upto = pit_by(y.cdf, fit.found.likelihood, fit.solution.y)
    return np.asarray(below + (upto - below) * np.random.default_rng(rng).random(below.shape))


def is_censored(likelihood: Likelihood) -> bool:
    """Whether some durations are not known exactly."""
    event, upper = (likelihood.row_values.get(name) for name in ("event", "upper"))
    return upper is not None or (event is not None and bool((np.asarray(event) <= 0.0).any()))


def _from_mean(fit: FittedModel, kind: str, leave_one_out: bool) -> np.ndarray:
    """Pearson's, deviance and response residuals of the rows of the fit."""
    y, mean, sd = observed_moments(fit, leave_one_out)
    if kind == "response":
        return y - (mean if leave_one_out else fit.predict().to_numpy()[fit.model.kept])
    if kind == "pearson":
        return (y - mean) / sd
    likelihood, eta = fit.found.likelihood, _eta(fit, leave_one_out)
    if likelihood.of_variance:
        raise problem("residuals", 'kind = "deviance" where eta is a log variance', 'kind="quantile"')
    return np.sign(y - mean) * np.sqrt(deviance(likelihood, fit.solution.y, eta, fit.model.target.scale))


def _eta(fit: FittedModel, leave_one_out: bool) -> np.ndarray:
    """Posterior mean of eta at each row of the fit, given the other rows or all rows."""
    return np.asarray(to_numpy(fit.loo().mean)[fit.model.kept] if leave_one_out else to_numpy(fit.posterior.mean))


def observed_moments(fit: FittedModel, leave_one_out: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, E[y] and sd[y] (N,) of the rows of the fit, NaN where y is missing.

    Given the other rows: of the prediction, with the uncertainty of eta. Given all: at the mean of eta, as in R.
    """
    target, likelihood = fit.model.target, fit.found.likelihood
    if leave_one_out:
        result = fit.loo()
        h, rho = (to_numpy(each)[fit.model.kept] for each in (result.mean, result.variance))
    else:
        h, rho = _eta(fit, False), np.zeros(target.y.shape)
    y, mean, variance = moments(likelihood, target.values, target.y, h, rho)
    return np.where(target.seen > 0.0, y, np.nan), mean, np.sqrt(variance)


def moments(
    likelihood: Likelihood, values: np.ndarray | None, y: np.ndarray, h: np.ndarray, rho: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y as a number (labels by their values), and its mean and variance for eta ~ N(h, rho)."""
    if values is None and likelihood.support != "levels":
        mean, variance = (np.asarray(f(h, rho)) for f in (likelihood.predictive_mean, likelihood.predictive_variance))
        return y, mean, variance
    p = np.asarray(likelihood.predictive_probabilities(h, rho))
    values = np.arange(p.shape[1], dtype=np.float64) if values is None else values
    mean = p @ values
    known = values[np.where(np.isnan(y), 0, y).astype(int)]
    return np.where(np.isnan(y), np.nan, known), mean, ((values - mean[:, None]) ** 2 * p).sum(axis=1)


def deviance(likelihood: Likelihood, y: np.ndarray, eta: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """2 (max over eta of log p(y | eta) - log p(y | eta)) of each row (N,), by golden section about eta.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.models.residuals import deviance
    >>> deviance(Poisson(), np.array([3.0]), np.array([0.0])).round(4)  # 2 (3 log 3 - 2)
    array([2.5917])
    """
    rows = likelihood.prepare(y)

    def log_p(at: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.nan_to_num(np.asarray(likelihood.log_density(at[:, None], rows))[:, 0], nan=-np.inf)

    low, high = eta - _REACH * scale, eta + _REACH * scale
    if likelihood.noise:  # eta is on the scale of y
        low, high = np.fmin(eta, y), np.fmax(eta, y)
    for _ in range(_SHRINKS):
        step = _GOLDEN * (high - low)
        falls = log_p(high - step) > log_p(low + step)
        low, high = np.where(falls, low, high - step), np.where(falls, low + step, high)
    best = np.maximum.reduce([log_p(low), log_p(high), log_p(eta)])
    return np.where(rows["weight"] > 0.0, 2.0 * (best - log_p(eta)), np.nan)
