"""Criteria and predictive checks over the rows of the data; NaN for rows that were dropped or are unobserved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..checks import problem
from ..criticism import (
    InformationCriterion,
    KFold,
    LeaveGroupOut,
    correlated_rows,
    k_fold,
    leave_group_out,
    leave_group_out_over,
    waic,
)
from ..linalg.arrays import Seed, to_numpy
from ..plots import plot_bars, plot_density, plot_pit, plot_reliability, plot_rootogram, plot_survival
from ..row_scores import LeaveOneOut, Pit
from .capabilities import answers
from .durations import happened, plot_groups

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from .fitted import FittedModel

# -- Posterior predictive checks: the data and data sets drawn from the fitted model ---------------
_SETS = 100  # data sets that are drawn
_CELLS = 20_000_000  # numbers in all data sets; with very many rows fewer sets are drawn
WORDS = {
    "survival": "The share that lasts longer: of the data by Kaplan and Meier, and the middle 95 % of data sets that "
    "the fitted model makes.",
    "groups": "The share that lasts longer in groups of rows: of the data by Kaplan and Meier with a 95 % band, and "
    "dashed what the model says of these rows on average.",
    "reliability": "Rows of about equal probability together: the share of successes in the data, against what the "
    "model says, and the middle 95 % of data sets that it makes.",
    "bars": "How often each level occurs, and the middle 95 % of data sets that the fitted model makes.",
    "rootogram": "How often each count occurs, and the middle 95 % of data sets that the fitted model makes.",
    "density": "The density of the data, and of 50 data sets that the fitted model makes.",
    "pit": "The probability that the model, without a row, gives to less than was seen there: even where predictions "
    "are right, within the band but for one bar in 20.",
}  # what each kind shows


def kinds_of(fit: FittedModel) -> tuple[str, ...]:
    """The kinds of checks for the response, the default first."""
    return *_suited(fit), *(["pit"] if answers(fit, "loo") else [])


def _suited(fit: FittedModel) -> tuple[str, ...]:
    likelihood, labels = fit.model.target.likelihood, fit.model.target.labels
    if not answers(fit, "predict"):  # a hazard, and no mean of a row
        return ("groups",)
    if likelihood.durations:
        return "survival", "groups", "density"
    if labels is not None:
        return ("reliability", "bars") if len(labels) == 2 else ("bars",)
    if "trials" in likelihood.row_parameters:
        return "reliability", "rootogram"
    return ("rootogram", "density") if likelihood.support == "count" else ("density",)


def plot_check(fit: FittedModel, kind: str | None = None, ax: Axes | None = None, by: Any = None) -> Axes:
    """Plot the data and data sets of the model, by the check ``kind`` or the default for the response."""
    known = kinds_of(fit)
    kind = "groups" if by is not None and kind is None and "groups" in known else kind
    if by is not None and kind != "groups":
        raise problem("plot_check", f"by = {by!r}", 'kind="groups" of durations')
    if kind is not None and kind not in known:
        word = fit.model.target.likelihood.word or "this"
        raise problem("plot_check", f"kind = {kind!r} of a {word} response", f"one of {', '.join(map(repr, known))}")
    kind, target, name = kind or known[0], fit.model.target, fit.model.response.name
    if kind == "pit":
        below, upto = pit(fit)
        return plot_pit(upto, below, ax)
    if kind == "groups":
        return plot_groups(fit, by, ax)
    seen = target.seen > 0.0
    if kind == "reliability" and target.labels is None:  # shares of trials, not of rows
        return _of_trials(fit, seen, ax)
    y = target.y[seen]
    y = y if target.values is None else target.values[y.astype(int)]
    sets = int(np.clip(_CELLS // max(1, len(fit.model.data_index)), 20, _SETS))
    made = fit.sample(None, sets, 0, kind="outcome")[:, fit.model.kept][:, seen]
    if kind == "survival":
        return plot_survival(y, happened(fit.model), made, ax, xlabel=name)
    if kind == "rootogram":
        return plot_rootogram(y, made, ax, xlabel=name)
    if kind == "density":
        return plot_density(y, made, ax, xlabel=name, positive=target.likelihood.support == "positive")
    assert target.values is not None
    assert target.labels is not None
    if kind == "bars":
        return plot_bars(y, made, target.values, target.labels, ax, xlabel=name)
    p = fit.predict(kind="probability").to_numpy()[fit.model.kept][seen, 1]
    out = plot_reliability(p, y == target.values[1], 1.0, ax, made=made == target.values[1])
    out.set_ylabel(f"share of {name} = {target.labels[1]}")
    return out


def _of_trials(fit: FittedModel, seen: np.ndarray, ax: Axes | None) -> Axes:
    target = fit.model.target
    trials = fit.model.row_values("trials")
    p = fit.predict(trials=1.0).to_numpy()[fit.model.kept][seen]
    made = fit.sample(None, _SETS, 0, kind="outcome")[:, fit.model.kept][:, seen]
    return plot_reliability(p, target.y[seen], 1.0 if trials is None else trials[seen], ax, made=made)


# --------------------------------------------------------------------------------------------------
R = TypeVar("R", LeaveOneOut, InformationCriterion, LeaveGroupOut, KFold)


def over_rows(fit: FittedModel, result: R, *names: str) -> R:
    """The same result with some fields expanded to all rows of the data."""
    n, kept = len(fit.model.data_index), fit.model.kept
    out: dict[str, Any] = {}
    for name in names:
        values: np.ndarray = np.asarray(to_numpy(getattr(result, name)))
        blank = {"b": False, "i": -1}.get(values.dtype.kind, np.nan)
        out[name] = np.full((n, *values.shape[1:]), blank, dtype=values.dtype)
        out[name][kept] = values
    return replace(result, **out)


def over_data(fit: FittedModel, values: np.ndarray, name: str) -> pd.Series:
    """Values (N,) of the rows of the fit as a series over all rows of the data, NaN for dropped rows."""
    import pandas as pd

    out = np.full(len(fit.model.data_index), np.nan)
    out[fit.model.kept] = values
    return pd.Series(out, index=fit.model.data_index, name=name)


def loo(fit: FittedModel, corrected: bool) -> LeaveOneOut:
    """Leave-one-out scores, over the hyperparameters if they are integrated out; or from corrected marginals."""
    better = fit.answers
    if corrected and fit.integrated is None:
        better = fit.solution.corrected()
        if not better.leaves_one_out:
            raise problem("loo", f"corrected marginals are not there: {better.status}", "loo(), by the cavity")
    if better is not None and better.leaves_one_out and fit.integrated is None:
        return over_rows(fit, better.loo(), "log_density", "mean", "variance", "pit", "pit_below", "trusted")
    result = fit.solution if fit.integrated is None else fit.integrated
    return over_rows(fit, result.loo(), "log_density", "mean", "variance")


def pit(fit: FittedModel) -> Pit:
    """Probability integral transforms of the rows under leave-one-out prediction."""
    if fit.integrated is not None:
        return fit.integrated.pit()
    if fit.answers is not None and fit.answers.leaves_one_out:
        result: LeaveOneOut = fit.answers.loo()
    else:
        result = fit.solution.loo()
    return result.pit_stretches(fit.found.likelihood, fit.solution.y)


def information(fit: FittedModel) -> InformationCriterion:
    """WAIC, over the hyperparameters if they are integrated out."""
    mixed = fit.integrated
    alone = fit.solution.posterior if fit.answers is None else fit.answers
    parts = () if mixed is None else tuple(zip(mixed.weights, mixed.likelihoods, mixed.answers, strict=True))
    result = waic(fit.found.likelihood, alone if mixed is None else mixed, fit.solution.y, parts)
    return over_rows(fit, result, "log_density", "penalty", "flagged")


def groups_left_out(fit: FittedModel, by: Any, **options: Any) -> LeaveGroupOut:
    """Leave-group-out; groups are a column, an array over the rows of the data, or a number of correlation levels."""
    model = fit.model
    levels = np.ndim(by) == 0 and np.asarray(by).dtype.kind in "iu"
    groups: Any = correlated_rows(fit.solution.posterior, int(by)) if levels else groups_of(fit, "leave_group_out", by)
    options["weights"] = model.target.weights
    if fit.integrated is not None:
        del options["joint"]  # the mixture always needs it
        out = leave_group_out_over(fit.integrated, groups, **options)
    else:
        out = leave_group_out(fit.solution, groups, prior=fit.found.prior, **options)
    rows = replace(out, groups=tuple(model.kept[members] for members in out.groups))
    return over_rows(fit, rows, "log_density", "mean", "variance")


def folds(fit: FittedModel, k: Any, by: Any, learn: bool, rng: Seed, **run: Any) -> KFold:
    """K-fold cross-validation by refits, with hyperparameters learned (or integrated) again, or kept."""
    model = fit.model
    method = None if fit.integrated is None or not learn else fit.integrated.method
    groups = None if by is None else groups_of(fit, "k_fold", by)
    given = k if np.ndim(k) == 0 and np.asarray(k).dtype.kind != "U" else groups_of(fit, "k_fold", k)
    prior = model.sum.family() if learn else fit.found.prior
    likelihood = model.target.likelihood if learn else fit.found.likelihood
    options: dict[str, Any] = {"weights": model.target.weights, "groups": groups, "rng": rng, **run}
    options["integrated"] = "auto" if method == "none" else method
    return over_rows(
        fit, k_fold(likelihood, prior, model.target.y, given, **options), "log_density", "mean", "variance", "folds"
    )


def groups_of(fit: FittedModel, where: str, by: Any) -> np.ndarray:
    """The group number of each row of the fit, from a column or an array over the data."""
    return np.unique(group_labels(fit, where, by), return_inverse=True)[1]


def group_labels(fit: FittedModel, where: str, by: Any) -> np.ndarray:
    """The label of each row of the fit, from a column or an array over the data."""
    model = fit.model
    by = model.reduction.labels(model, by)
    if isinstance(by, str):
        if by not in model.frame:
            got = f"there is no column {by!r} among those that the model uses"
            raise problem(where, got, "one of them, or an array over the rows of the data")
        return np.asarray(model.frame[by].astype(str))
    labels = np.asarray(by)
    if labels.shape != model.data_index.shape:
        raise problem(where, f"labels of shape {labels.shape}", f"a column's name, or {model.data_index.shape}")
    return labels[model.kept].astype(str)
