"""Criteria of a fitted model over the rows of its data: NaN for those that were left out or are unobserved."""

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
from ..row_scores import LeaveOneOut, Pit

if TYPE_CHECKING:
    from .fitted import FittedModel

R = TypeVar("R", LeaveOneOut, InformationCriterion, LeaveGroupOut, KFold)


def over_rows(fit: FittedModel, found: R, *names: str) -> R:
    """The same with some fields over all rows of the data."""
    n, kept = len(fit.model.data_index), fit.model.kept
    out: dict[str, Any] = {}
    for name in names:
        values: np.ndarray = np.asarray(to_numpy(getattr(found, name)))
        blank = {"b": False, "i": -1}.get(values.dtype.kind, np.nan)
        out[name] = np.full((n, *values.shape[1:]), blank, dtype=values.dtype)
        out[name][kept] = values
    return replace(found, **out)


def loo(fit: FittedModel, corrected: bool) -> LeaveOneOut:
    """Leave-one-out, over the hyperparameters too where they are integrated out; or from corrected marginals."""
    better = fit.answers
    if corrected and fit.integrated is None:
        better = fit.solution.corrected()
        if not better.leaves_one_out:
            raise problem("loo", f"corrected marginals are not there: {better.status}", "loo(), by the cavity")
    if better is not None and better.leaves_one_out and fit.integrated is None:
        return over_rows(fit, better.loo(), "log_density", "mean", "variance", "pit", "pit_below", "trusted")
    found = fit.solution if fit.integrated is None else fit.integrated
    return over_rows(fit, found.loo(), "log_density", "mean", "variance")


def pit(fit: FittedModel) -> Pit:
    """Where each y of the fit lies in its leave-one-out prediction."""
    if fit.integrated is not None:
        return fit.integrated.pit()
    if fit.answers is not None and fit.answers.leaves_one_out:
        found: LeaveOneOut = fit.answers.loo()
    else:
        found = fit.solution.loo()
    return found.pit_stretches(fit.found.likelihood, fit.solution.y)


def information(fit: FittedModel) -> InformationCriterion:
    """WAIC, over the hyperparameters too where they are integrated out."""
    mixed = fit.integrated
    alone = fit.solution.posterior if fit.answers is None else fit.answers
    parts = () if mixed is None else tuple(zip(mixed.weights, mixed.likelihoods, mixed.answers, strict=True))
    found = waic(fit.found.likelihood, alone if mixed is None else mixed, fit.solution.y, parts)
    return over_rows(fit, found, "log_density", "penalty", "flagged")


def groups_left_out(fit: FittedModel, by: Any, **options: Any) -> LeaveGroupOut:
    """By a column, an array over the rows of the data, or a number of levels of correlation."""
    model = fit.model
    levels = np.ndim(by) == 0 and np.asarray(by).dtype.kind in "iu"
    groups: Any = correlated_rows(fit.solution.posterior, int(by)) if levels else _column(fit, "leave_group_out", by)
    options["weights"] = model.target.weights
    if fit.integrated is not None:
        del options["joint"]  # which the mixture needs in any case
        out = leave_group_out_over(fit.integrated, groups, **options)
    else:
        out = leave_group_out(fit.solution, groups, prior=fit.found.prior, **options)
    rows = replace(out, groups=tuple(model.kept[members] for members in out.groups))
    return over_rows(fit, rows, "log_density", "mean", "variance")


def folds(fit: FittedModel, k: Any, by: Any, learn: bool, rng: Seed, **run: Any) -> KFold:
    """By refits, with hyperparameters learned or integrated over anew, or as they are."""
    model = fit.model
    method = None if fit.integrated is None or not learn else fit.integrated.method
    groups = None if by is None else _column(fit, "k_fold", by)
    given = k if np.ndim(k) == 0 and np.asarray(k).dtype.kind != "U" else _column(fit, "k_fold", k)
    prior = model.sum.family() if learn else fit.found.prior
    likelihood = model.target.likelihood if learn else fit.found.likelihood
    options: dict[str, Any] = {"weights": model.target.weights, "groups": groups, "rng": rng, **run}
    options["integrated"] = "auto" if method == "none" else method
    return over_rows(
        fit, k_fold(likelihood, prior, model.target.y, given, **options), "log_density", "mean", "variance", "folds"
    )


def _column(fit: FittedModel, where: str, by: Any) -> np.ndarray:
    """One label a row of the fit, by the name of a column or from an array over the data."""
    model = fit.model
    by = model.reduction.labels(model, by)
    if isinstance(by, str):
        if by not in model.frame:
            got = f"there is no column {by!r} among those that the model uses"
            raise problem(where, got, "one of them, or an array over the rows of the data")
        return np.unique(np.asarray(model.frame[by].astype(str)), return_inverse=True)[1]
    labels = np.asarray(by)
    if labels.shape != model.data_index.shape:
        raise problem(where, f"labels of shape {labels.shape}", f"a column's name, or {model.data_index.shape}")
    return np.unique(labels[model.kept].astype(str), return_inverse=True)[1]
