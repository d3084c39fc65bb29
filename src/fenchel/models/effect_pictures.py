"""``plot_effect``: predictions along a column with bands, and the rows of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..plots import plot_effect_curves
from .marginal_means import Question, means
from .reference_grid import ReferenceGrid, has_levels, levels_of_factors, only_groups, values_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .fit_tables import FitTables

_PLACES = 60  # points of a curve
_CURVES = 7  # largest number of curves, which colours distinguish
_POINTS = 3000  # rows of the data that are drawn; of more, a sample
_HELD = 4  # number of other columns that a title names
_WORDS = {"mean": "mean of", "link": "eta of", "outcome": ""}


def plot_effect(fit: FitTables, name: Any, question: Question, rows: bool, ax: Axes | None) -> Axes:
    """Plot predictions along a column, with a curve for each value of ``question.by``."""
    values, numbers = _places(fit, name, question)
    values = list(dict.fromkeys(values))  # a constant column has one value
    question = replace(question, at={**question.at, name: values})
    table = means(fit, [name], question)
    curves = table[list(question.by)].drop_duplicates() if question.by else table.iloc[:1, :0]
    if len(curves) > _CURVES:
        raise problem(question.where, f"{len(curves)} curves", f"at most {_CURVES}", "at= names fewer values of by.")
    shape = len(values), len(curves)  # the values of by vary fastest
    middle, low, high = (table[c].to_numpy().reshape(shape).T for c in ("estimate", "conf_low", "conf_high"))
    names = [", ".join(f"{column} = {_text(value)}" for column, value in row.items()) for _, row in curves.iterrows()]
    grid = question.grid(fit, {name: values})
    of_trials = question.scale == "mean" and fit.model.row_values("trials") is not None
    word = "share of" if of_trials else _WORDS[question.scale]
    return plot_effect_curves(
        values if numbers else list(map(str, values)),  # levels may be numbers
        middle,
        low,
        high,
        names,
        ax,
        points=_points(fit, name, question, curves) if rows and numbers and question.scale != "link" else None,
        xlabel=str(name),
        ylabel=f"{word} {fit.model.reduction.outcome(fit.model)[0]}".strip(),
        title=_held(fit, (name, *question.by), grid, question.groups),
    )


def _places(fit: FitTables, name: Any, question: Question) -> tuple[list[Any], bool]:
    """The values of the column at which predictions are drawn, and whether they are numbers."""
    values = values_of(fit, question.where, name, question.at)
    column = fit.model.reduction.data_rows(fit.model)[0][name]
    numbers = column.dtype.kind in "iuf" and name not in fit.model.fixed.expression.factors
    if not numbers or name in question.at or name in levels_of_factors(fit) or has_levels(fit, name):
        return values, numbers
    return np.linspace(float(column.min()), float(column.max()), _PLACES).tolist(), True


def _points(fit: FitTables, name: Any, question: Question, curves: Any) -> tuple[Any, Any, Any] | None:
    """The observed rows: x, y per trial and exposure, and the curve of each; None for durations."""
    model = fit.model
    target, frame = model.target, model.frame
    y = np.asarray(target.y, dtype=np.float64)
    if y.ndim != 1 or len(y) != len(frame) or "event" in target.likelihood.row_parameters:
        return None
    if target.values is not None:
        y = np.where(np.isfinite(y), target.values[np.nan_to_num(y).astype(int)], np.nan)
    for word in ("exposure", "trials"):
        each = model.row_values(word)
        y = y if each is None else y / each
    which = np.zeros(len(frame), dtype=int)
    if question.by:
        which[:] = -1
        for k, (_, row) in enumerate(curves.iterrows()):
            which[np.logical_and.reduce([frame[column] == value for column, value in row.items()])] = k
    known = np.flatnonzero(np.isfinite(y) & (which >= 0))
    if known.size > _POINTS:
        known = np.sort(np.random.default_rng(0).choice(known, _POINTS, replace=False))
    return frame[name].to_numpy(dtype=float)[known], y[known], which[known]


def _held(fit: FitTables, asked: Sequence[Any], grid: ReferenceGrid, groups: str) -> str:
    """A title: the values of the other columns, and the treatment of groups."""
    others = [c for c in fit.model.covariates if c not in asked and c in grid.frame]
    of_groups = [column for column in others if only_groups(fit, column, regions=False)]
    others = [column for column in others if column not in of_groups]
    out = [{"centre": "groups at 0", "population": "over groups", "own": "own groups"}[groups]] if of_groups else []
    for column in others[:_HELD]:
        seen = grid.frame[column].unique()
        out.append(f"{column} = {_text(seen[0])}" if len(seen) == 1 else f"averaged over {column}")
    return ", ".join([*out, *(["..."] if len(others) > _HELD else [])])


def _text(value: Any) -> str:
    return f"{value:.4g}" if np.asarray(value).dtype.kind == "f" else str(value)
