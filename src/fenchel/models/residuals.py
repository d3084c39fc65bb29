"""Residuals of a fitted model, and tests of them beside data that the model makes.

    quantile     ndtri(u),  u = P(y <= y_n | the others), drawn evenly within its jump where y is discrete or censored
    pearson      (y_n - E[y_n | the others]) / sd[y_n | the others]
    deviance     sign(y_n - E y_n) sqrt(2 (max_eta log p(y_n | eta) - log p(y_n | eta_n)))
    response     y_n - E[y_n | the others]

The tests fit no hyperparameter again: y* is drawn from the fitted model, its latents are fitted at the same
hyperparameters, and the statistic of y* is computed as that of y is. References so have the dependence that rows of one
group have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from ..checks import choice, count, problem
from ..inference import infer
from ..likelihoods.base import Likelihood
from ..linalg.arrays import to_numpy
from ..row_scores import LeaveOneOut, pit_by
from ..solvers.solution import Solution
from ..tasks import run_tasks
from . import predictions
from .reference_grid import listed
from .row_criteria import groups_of, over_data, pit

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

KINDS = ("quantile", "uniform", "pearson", "deviance", "response")
_EDGE = 1e-12  # probability: quantile residuals stay finite
_REACH = 40.0  # how far from eta the eta is looked for that makes y most likely, in units of the scale of eta
_SHRINKS = 80  # steps of the search for it, each of which leaves 0.62 of an interval
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_TOL = 1e-6  # relative gap of a fit that is one of many


# -- residuals ----------------------------------------------------------------------------------------------
def residuals(fit: FittedModel, kind: str, leave_one_out: bool, rng: Any) -> pd.Series:
    """One residual for each row of the data, NaN where the row was left out or y is missing."""
    choice("residuals", "kind", kind, KINDS)
    if kind in ("quantile", "uniform"):
        u = uniform_residuals(fit, leave_one_out, rng)
        values = u if kind == "uniform" else ndtri(np.clip(u, _EDGE, 1.0 - _EDGE))
    else:
        if is_censored(fit):
            got = f"kind = {kind!r} of durations of which some had not ended, or are known between two ends"
            raise problem("residuals", got, 'kind="quantile"')
        values = _from_mean(fit, kind, leave_one_out)
    return over_data(fit, values, kind)


def uniform_residuals(fit: FittedModel, leave_one_out: bool, rng: Any) -> np.ndarray:
    """P(y <= y_n) of each row of the fit, drawn within its stretch."""
    if leave_one_out:
        below, upto = pit(fit)
    else:
        y = predictions.predictive(fit, predictions.read_rows(fit), "outcome")
        below, upto = pit_by(y.cdf, fit.found.likelihood, fit.solution.y)
    return np.asarray(below + (upto - below) * np.random.default_rng(rng).random(below.shape))


def is_censored(fit: FittedModel) -> bool:
    """Whether some durations are not known exactly."""
    event, upper = (fit.found.likelihood.row_values.get(name) for name in ("event", "upper"))
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
    """The mean of eta of each row of the fit, from the others or from all."""
    return np.asarray(to_numpy(fit.loo().mean)[fit.model.kept] if leave_one_out else to_numpy(fit.posterior.mean))


def observed_moments(fit: FittedModel, leave_one_out: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y, E[y] and sd[y] (N,) of the rows of the fit, NaN where y is missing.

    From the others: of the prediction, what is unknown of eta included. From all: at the mean of eta, as R has them.
    """
    target, likelihood = fit.model.target, fit.found.likelihood
    if leave_one_out:
        found = fit.loo()
        h, rho = (to_numpy(each)[fit.model.kept] for each in (found.mean, found.variance))
    else:
        h, rho = _eta(fit, False), np.zeros(target.y.shape)
    y, mean, variance = moments(likelihood, target.values, target.y, h, rho)
    return np.where(target.seen > 0.0, y, np.nan), mean, np.sqrt(variance)


def moments(
    likelihood: Likelihood, values: np.ndarray | None, y: np.ndarray, h: np.ndarray, rho: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y as a number, with its mean and variance where eta ~ N(h, rho); labels by their values."""
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


# -- tests --------------------------------------------------------------------------------------------------
class RowResiduals(NamedTuple):
    """What statistics are computed of: residuals of the observed rows of one data set, from the others."""

    pearson: np.ndarray  # (y - E y) / sd y; of censored durations the normal quantile of the middle of the stretch
    below: np.ndarray
    upto: np.ndarray
    y: np.ndarray


Statistic = Callable[[RowResiduals], float]


def row_residuals(fit: FittedModel, y: np.ndarray, solution: Solution) -> RowResiduals:
    """Of y (N,) over the rows of the fit, each predicted from the others by a fit at the hyperparameters."""
    likelihood, seen = fit.found.likelihood, fit.model.target.seen > 0.0
    mean, variance = (to_numpy(each)[:, 0] for each in solution.posterior.cavity())
    found = LeaveOneOut(np.full(y.shape, np.nan), mean, variance)
    below, upto = (end[seen] for end in found.pit_stretches(likelihood, y))
    if is_censored(fit):
        z = ndtri(np.clip((below + upto) / 2, _EDGE, 1.0 - _EDGE))
    else:
        value, expected, spread = moments(likelihood, fit.model.target.values, y, mean, np.maximum(variance, 0.0))
        z = ((value - expected) / np.sqrt(spread))[seen]
    return RowResiduals(z, below, upto, y[seen])


def uniform_distance(score: RowResiduals) -> float:
    """Kolmogorov's distance of the shares of rows below each level from the level, rows spread over their stretch."""
    at = np.linspace(0.0, 1.0, 201)[1:-1]
    wide = np.maximum(score.upto - score.below, _EDGE)
    share = np.clip((at[:, None] - score.below) / wide, 0.0, 1.0).mean(axis=1)
    return float(np.abs(share - at).max())


class SquareAgainst:
    """How far residuals follow a column: squared sums of them with the column, over the groups or of all rows.

    One group is a score test of the column in the fixed part, several of its slopes by group.
    """

    def __init__(self, x: np.ndarray, groups: np.ndarray | None = None) -> None:
        codes = np.zeros(x.size, dtype=int) if groups is None else np.unique(groups, return_inverse=True)[1]
        n = np.bincount(codes)
        self.codes, self.x = codes, x - (np.bincount(codes, x) / n)[codes]
        self.scale = np.sqrt(np.maximum(np.bincount(codes, self.x**2), _EDGE))

    def __call__(self, score: RowResiduals) -> float:
        return float(((np.bincount(self.codes, score.pearson * self.x) / self.scale) ** 2).mean())


class LagCorrelation:
    """The correlation of neighbours among residuals in an order."""

    def __init__(self, order: np.ndarray, follows: np.ndarray) -> None:
        self.order, self.follows = order, follows

    def __call__(self, score: RowResiduals) -> float:
        z = score.pearson[self.order]
        pairs = (z[1:] * z[:-1])[self.follows]
        return float(pairs.mean() / (z**2).mean())


def statistics_of(fit: FittedModel, by: Any, order: Any) -> dict[str, tuple[Statistic, bool]]:
    """The tests of a fit by name: what is computed, and whether small values count against the model too."""
    model, likelihood = fit.model, fit.found.likelihood
    seen = model.target.seen > 0.0
    out: dict[str, tuple[Statistic, bool]] = {
        "uniformity": (uniform_distance, False),
        "dispersion": (lambda score: float((score.pearson**2).mean()), True),
        "outliers": (lambda score: float((np.abs(score.pearson) > 3.0).mean()), False),
    }
    if likelihood.support == "count":
        out["zeros"] = lambda score: float((score.y == 0.0).sum()), True
    tail = model.sum.columns.tail(model.sum.X, model.sum.intercept)[seen]
    latents = to_numpy(fit.solution.posterior.latent_mean)
    eta = tail @ latents[latents.size - tail.shape[1] :]
    if np.unique(eta).size > 2:
        out["link"] = SquareAgainst(_curved(eta)), False
    groups = {str(name): _codes(fit, name)[seen] for name in _group_columns(fit, by)}
    for name in number_columns(fit):
        x = model.frame[name].to_numpy(dtype=np.float64)[seen]
        out[f"curve of {name}"] = SquareAgainst(_curved(x)), False
        for group, codes in groups.items():
            if np.unique(np.stack([codes, x]), axis=1).shape[1] > np.unique(codes).size:  # it varies within groups
                out[f"slope of {name} by {group}"] = SquareAgainst(x, codes), False
    lag = _lag(fit, order, seen)
    if lag is not None:
        out["autocorrelation"] = lag, True
    return out


def _curved(x: np.ndarray) -> np.ndarray:
    """The square of a column, less what a line explains of it."""
    z = (x - x.mean()) / max(float(x.std()), _EDGE)
    design = np.stack([np.ones_like(z), z], axis=1)
    return np.asarray(z**2 - design @ np.linalg.lstsq(design, z**2, rcond=None)[0])


def number_columns(fit: FittedModel) -> list[str]:
    """The covariates that are numbers and vary, the columns of groups aside."""
    frame, groups = fit.model.frame, {str(name) for name in _group_columns(fit, None)}
    names = [str(name) for name in fit.model.covariates if name in frame and str(name) not in groups]
    return [name for name in names if frame[name].dtype.kind in "iuf" and frame[name].nunique() > 2]


def _group_columns(fit: FittedModel, by: Any) -> list[Any]:
    """The columns of groups: those asked for, or those of effects of groups."""
    if by is not None:
        return listed(by)
    terms = [term for term in fit.model.sum.effects if term.of_groups]
    sources = [s for term in terms for name in term.group_columns for s in fit.model.compiled.sources_of(name)]
    return [name for name in dict.fromkeys(sources) if name in fit.model.frame]


def _codes(fit: FittedModel, name: Any) -> np.ndarray:
    return groups_of(fit, "residual_tests", name)


def time_columns(fit: FittedModel) -> list[Any]:
    """The columns that series run along."""
    terms = [term for term in fit.model.sum.effects if term.in_time]
    return [name for term in terms for name in term.columns if name in fit.model.frame]


def _lag(fit: FittedModel, order: Any, seen: np.ndarray) -> LagCorrelation | None:
    """Neighbours in time: in the column asked for, or that of a series in the model; those of one group alone."""
    if order is None:
        known = time_columns(fit)
        order = known[0] if known else None
    if order is None:
        return None
    if order not in fit.model.frame:
        raise problem("residual_tests", f"there is no column {order!r} among those that the model uses", "one of them")
    when, groups = fit.model.frame[order].to_numpy()[seen], np.zeros(int(seen.sum()), dtype=int)
    for name in _group_columns(fit, None):
        if name != order:
            groups = np.unique(np.stack([groups, _codes(fit, name)[seen]]), axis=1, return_inverse=True)[1].ravel()
    places = np.lexsort([when, groups])
    same = np.diff(groups[places]) == 0
    return LagCorrelation(places, same) if same.sum() > 2 else None


def residual_tests(
    fit: FittedModel, size: int, by: Any, order: Any, rng: Any, n_jobs: Any, progress: bool
) -> pd.DataFrame:
    """The statistics of the data beside those of ``size`` data sets that the model makes."""
    import pandas as pd

    size = count("residual_tests", "size", size, 19)
    tests = statistics_of(fit, by, order)
    seeds = np.random.default_rng(rng).integers(0, 2**63, size).tolist()
    of_data = row_residuals(fit, fit.solution.y, fit.solution)
    made = run_tasks(_one_set, seeds, (fit, tests), where="residual_tests", n_jobs=n_jobs, progress=progress)
    rows = []
    for j, (name, (statistic, two_sided)) in enumerate(tests.items()):
        reference = np.array([one[j] for one in made])
        value = statistic(of_data)
        above = (1 + (reference >= value).sum()) / (size + 1)
        below = (1 + (reference <= value).sum()) / (size + 1)
        p = min(1.0, 2.0 * min(above, below)) if two_sided else above
        rows.append((name, value, float(reference.mean()), *np.quantile(reference, [0.025, 0.975]), p))
    columns = ["test", "statistic", "expected", "lower", "upper", "p_value"]
    return pd.DataFrame(rows, columns=columns).set_index("test")


def _one_set(shared: tuple[FittedModel, Mapping[str, tuple[Statistic, bool]]], seed: int) -> list[float]:
    """The statistics of one data set that the model makes, its latents fitted at the same hyperparameters."""
    fit, tests = shared
    likelihood, target, rng = fit.found.likelihood, fit.model.target, np.random.default_rng(seed)
    eta = to_numpy(fit.solution.posterior.sample(1, rng))[0]
    y = np.asarray(likelihood.lenient().draw(eta[:, None], rng), dtype=np.float64)[:, 0]
    y = np.where(target.seen > 0.0, y, np.nan)
    again = infer(likelihood, fit.found.prior, y, tol=_TOL, weights=target.weights, start=fit.solution)
    found = row_residuals(fit, y, again)
    return [statistic(found) for statistic, _ in tests.values()]
