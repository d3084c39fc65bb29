"""Tests of residuals beside those of data that the model makes.

No hyperparameter is fitted again: y* is drawn from the fitted model, its latents are fitted at the same
hyperparameters, and the statistic of y* is computed as that of y is. References so have the dependence of rows of a
group.

    p_value      the rank of the data among the data sets of the model, test by test
    p_adjusted   the share of these sets of which any test is as far out as this one is (Westfall and Young's largest):
                 |statistic - median| in units of the 97.5 % quantile of that side; of one-sided tests, which are sums
                 of squares, of the root
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from ..checks import count, problem
from ..inference import infer
from ..linalg.arrays import to_numpy
from ..row_scores import LeaveOneOut
from ..solvers.solution import Solution
from ..tasks import Jobs, run_tasks
from .reference_grid import levels_of_factors, listed
from .residuals import is_censored, moments
from .row_criteria import groups_of

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

_EDGE = 1e-12
_TOL = 1e-6  # relative gap of a fit that is one of many
_A_LEVEL = 5  # rows to a level on average, from which on spreads of levels are compared
_FIRST, _ALL = 99, 199  # data sets for an alarm: where none of the first finds a test rare, no more are made
_JUMP = 1.5  # units of the distances of tests that one jump is at most
_OF_SPREAD = "uniformity", "dispersion", "outliers"  # no alarms if all counts are 0 or 1
_WORTH_MORE = 0.1  # adjusted p-value among the first up to which more are made


class RowResiduals(NamedTuple):
    """What statistics are computed of: residuals of the observed rows of one data set, from the others."""

    pearson: np.ndarray  # (y - E y) / sd y; of censored durations the normal quantile of the middle of the stretch
    below: np.ndarray
    upto: np.ndarray
    y: np.ndarray


Statistic = Callable[[RowResiduals], float]
Tests = Mapping[str, tuple[Statistic, bool]]  # what is computed, and whether small values count against the model too


def counts_events(fit: FittedModel) -> bool:
    """Whether all counts are 0 or 1, as in pieces of time that end with the event.

    There the length of a piece depends on y. The likelihood is right, but y given the length is not Poisson: neither
    the spread of (y - E y) / sd y, which is 1 / sd y at an event in a short piece, nor the PIT tests the model.
    """
    y = fit.model.target.y[fit.model.target.seen > 0.0]
    return fit.found.likelihood.support == "count" and bool((y <= 1.0).all())


def row_residuals(fit: FittedModel, y: np.ndarray, solution: Solution) -> RowResiduals:
    """Of y (N,) over the rows of the fit, each predicted from the others by a fit at the hyperparameters."""
    likelihood, seen = fit.found.likelihood, fit.model.target.seen > 0.0
    mean, variance = (to_numpy(each)[:, 0] for each in solution.posterior.cavity())
    found = LeaveOneOut(np.full(y.shape, np.nan), mean, variance)
    below, upto = (end[seen] for end in found.pit_stretches(likelihood, y))
    if is_censored(likelihood):
        z = ndtri(np.clip((below + upto) / 2, _EDGE, 1.0 - _EDGE))
    else:
        value, expected, spread = moments(likelihood, fit.model.target.values, y, mean, np.maximum(variance, 0.0))
        z = ((value - expected) / np.sqrt(np.maximum(spread, 1.0) if counts_events(fit) else spread))[seen]
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


class SpreadAlong:
    """The correlation of the size of residuals with a column: a spread that changes along it."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = (x - x.mean()) / max(float(x.std()), _EDGE)

    def __call__(self, score: RowResiduals) -> float:
        size = np.abs(score.pearson)
        return float((self.x * (size - size.mean())).mean() / max(float(size.std()), _EDGE))


class SpreadBetween:
    """The share of the variance of the size of residuals that lies between levels."""

    def __init__(self, codes: np.ndarray) -> None:
        self.codes, self.n = codes, np.bincount(codes)

    def __call__(self, score: RowResiduals) -> float:
        size = np.abs(score.pearson)
        means = np.bincount(self.codes, size) / self.n
        return float((self.n * (means - size.mean()) ** 2).sum() / max(float(size.size * size.var()), _EDGE))


class LagCorrelation:
    """The correlation of neighbours among residuals in an order."""

    def __init__(self, order: np.ndarray, follows: np.ndarray) -> None:
        self.order, self.follows = order, follows

    def __call__(self, score: RowResiduals) -> float:
        z = score.pearson[self.order]
        pairs = (z[1:] * z[:-1])[self.follows]
        return float(pairs.mean() / (z**2).mean())


def statistics_of(fit: FittedModel, by: Any, order: Any) -> Tests:
    """The tests of a fit by name."""
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
    posterior = fit.solution.posterior
    latents, eta = (to_numpy(each) for each in (posterior.latent_mean, posterior.mean))
    fixed, fitted = tail @ latents[latents.size - tail.shape[1] :], eta.reshape(seen.size)[seen]
    if np.unique(fixed).size > 2:
        out["link"] = SquareAgainst(_curved(fixed)), False
    if np.ptp(fitted) > _EDGE * max(1.0, float(np.abs(fitted).max())):
        out["spread along fitted"] = SpreadAlong(fitted), True
    groups = {str(name): _codes(fit, name)[seen] for name in _group_columns(fit, by)}
    for name in number_columns(fit):
        x = model.frame[name].to_numpy(dtype=np.float64)[seen]
        out[f"curve of {name}"] = SquareAgainst(_curved(x)), False
        out[f"spread along {'column ' * (name == 'fitted')}{name}"] = SpreadAlong(x), True
        for group, codes in groups.items():
            if np.unique(np.stack([codes, x]), axis=1).shape[1] > np.unique(codes).size:  # it varies within groups
                out[f"slope of {name} by {group}"] = SquareAgainst(x, codes), False
    factors = {str(name): name for name in levels_of_factors(fit) if name in model.frame}
    levels = {name: _codes(fit, factors[name])[seen] for name in factors} | groups
    for name, each in levels.items():
        codes = np.unique(each, return_inverse=True)[1]
        if 1 < codes.max(initial=0) + 1 <= codes.size / _A_LEVEL:
            out[f"spread by {name}"] = SpreadBetween(codes), False
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
    """The covariates that are numbers and vary, the columns of groups and factors aside."""
    frame, others = fit.model.frame, {*_group_columns(fit, None), *fit.model.fixed.expression.factors}
    names = [str(name) for name in fit.model.covariates if name in frame and name not in others]
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
    fit: FittedModel, size: int, by: Any, order: Any, rng: Any, n_jobs: Jobs, progress: bool
) -> pd.DataFrame:
    """The statistics of the data beside those of ``size`` data sets that the model makes."""
    size = count("residual_tests", "size", size, 19)
    tests = statistics_of(fit, by, order)
    return _table(fit, tests, _of_model(fit, tests, _seeds(rng, size), n_jobs, progress))


def rare_tests(fit: FittedModel) -> pd.DataFrame:
    """The same for an alarm: more data sets are made where the first find a test rare."""
    tests, seeds = statistics_of(fit, None, None), _seeds(0, _ALL)
    if counts_events(fit):
        tests = {name: test for name, test in tests.items() if name not in _OF_SPREAD}
    made = _of_model(fit, tests, seeds[:_FIRST])
    found = _table(fit, tests, made)
    if found["p_adjusted"].min() > _WORTH_MORE:
        return found
    return _table(fit, tests, np.concatenate([made, _of_model(fit, tests, seeds[_FIRST:])]))


def _seeds(rng: Any, size: int) -> list[int]:
    return np.random.default_rng(rng).integers(0, 2**63, size).tolist()


def _of_model(
    fit: FittedModel, tests: Tests, seeds: Sequence[int], n_jobs: Jobs = None, progress: bool = False
) -> np.ndarray:
    """Statistics (sets, tests) of data sets that the model makes."""
    made = run_tasks(_one_set, seeds, (fit, tests), where="residual_tests", n_jobs=n_jobs, progress=progress)
    return np.array(made)


def _table(fit: FittedModel, tests: Tests, made: np.ndarray) -> pd.DataFrame:
    """A row for each test."""
    import pandas as pd

    of_data = row_residuals(fit, fit.solution.y, fit.solution)
    values = np.array([statistic(of_data) for statistic, _ in tests.values()])
    two_sided = np.array([both for _, both in tests.values()])
    above, below = (1 + (made >= values).sum(axis=0), 1 + (made <= values).sum(axis=0))
    above, below = above / (1 + len(made)), below / (1 + len(made))
    p = np.where(two_sided, np.minimum(1.0, 2.0 * np.minimum(above, below)), above)
    lower, upper = np.quantile(made, [0.025, 0.975], axis=0)
    columns = {"statistic": values, "expected": made.mean(axis=0), "lower": lower, "upper": upper, "p_value": p}
    far = _distances(np.vstack([values, made]), two_sided)
    adjusted = (far.max(axis=1)[:, None] >= far[0]).mean(axis=0)
    return pd.DataFrame({**columns, "p_adjusted": adjusted}, index=pd.Index(list(tests), name="test"))


def _distances(every: np.ndarray, two_sided: np.ndarray) -> np.ndarray:
    """How far out each test of each data set (sets, tests) is, comparable between tests."""
    on_scale = np.where(two_sided, every, np.sqrt(np.maximum(every, 0.0)))
    away = on_scale - np.median(on_scale, axis=0)
    return np.where((away < 0.0) & two_sided, _in_units(-away), _in_units(away))


def _in_units(away: np.ndarray) -> np.ndarray:
    """Distances to one side over their 97.5 % quantile; where these jump, a jump is no more than so many units."""
    jump = np.min(away, axis=0, where=away > 0.0, initial=np.inf) / _JUMP
    unit = np.maximum(np.quantile(away, 0.975, axis=0), np.where(np.isfinite(jump), jump, 1.0))
    return away / unit


def _one_set(shared: tuple[FittedModel, Tests], seed: int) -> list[float]:
    """The statistics of one data set that the model makes, its latents fitted at the same hyperparameters."""
    fit, tests = shared
    likelihood, target, rng = fit.found.likelihood, fit.model.target, np.random.default_rng(seed)
    eta = to_numpy(fit.solution.posterior.sample(1, rng))[0]
    y = np.asarray(likelihood.lenient().draw(eta[:, None], rng), dtype=np.float64)[:, 0]
    y = np.where(target.seen > 0.0, y, np.nan)
    again = infer(likelihood, fit.found.prior, y, tol=_TOL, weights=target.weights, start=fit.solution)
    found = row_residuals(fit, y, again)
    return [statistic(found) for statistic, _ in tests.values()]
