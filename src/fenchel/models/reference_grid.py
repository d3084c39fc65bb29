"""The rows over which predictions are averaged: a reference grid, the cells of the data, or the rows of the data.

"equal"        every combination of levels counts the same; numbers at their mean (emmeans' reference grid)
"cells"        combinations of levels are weighted by their frequency in the cell; numbers at their mean
"population"   the rows of the data, with the requested columns changed

A row counts as often as weights= of the model says.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import choice, problem
from ..inputs.frames import Table, read_frame
from .averages import repeated_variance, typical_rows

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables

WEIGHTS = "equal", "cells", "population"
_FEW = 10  # values of a number up to which each gets a row; with more, the mean and one sd on either side


@dataclass(frozen=True)
class ReferenceGrid:
    """Rows that are predicted, and how they are averaged.

    Attributes
    ----------
    frame : data frame (M rows)
    cells : data frame (K rows)
        The values to which each average belongs, with a column for each requested one.
    average : sparse array (K, M)
        Rows sum to 1.
    """

    frame: pd.DataFrame
    cells: pd.DataFrame
    average: sp.csr_array


def levels_of_factors(fit: FitTables) -> dict[Any, list[Any]]:
    """The levels of each covariate that is a factor, boolean, has two values, or selects a curve."""
    model, out = fit.model, dict[Any, list[Any]]()
    known, (frame, _) = model.fixed.expression.factors, model.reduction.data_rows(model)
    claimed = {
        source for term in model.sum.effects for column in term.claims for source in model.compiled.sources_of(column)
    }
    for name in model.covariates:
        column = frame[name]
        if name in known:
            out[name] = list(known[name])
        elif column.dtype.kind == "b":
            out[name] = [False, True]
        elif name not in claimed and (column.dtype.kind not in "iuf" or column.nunique() == 2):
            out[name] = sorted(column.dropna().unique().tolist())
    return out


def values_of(fit: FitTables, where: str, name: Any, at: Mapping[Any, Any]) -> list[Any]:
    """The values of a column that get averages: those given, the levels, or some numbers."""
    _check_covariate(fit, where, name, f"{name!r} is")
    if name in at:
        return list(dict.fromkeys(listed(at[name])))
    factors = levels_of_factors(fit)
    if name in factors:
        return factors[name]
    frame, often = fit.model.reduction.data_rows(fit.model)
    column = frame[name]
    values = sorted(column.unique().tolist())
    if len(values) <= _FEW or column.dtype.kind not in "iuf" or has_levels(fit, name):
        return values
    mean = float(np.average(column, weights=often))
    sd = repeated_variance(column.to_numpy(dtype=np.float64), often) ** 0.5
    return [mean - sd, mean, mean + sd]


def _check_covariate(fit: FitTables, where: str, name: Any, named: str) -> None:
    if name not in fit.model.covariates:
        known = ", ".join(repr(str(column)) for column in fit.model.covariates)
        raise problem(where, f"{named} no covariate of the model", f"one of {known}" if known else "a model with one")


def has_levels(fit: FitTables, name: Any) -> bool:
    """Whether a column takes its values only: a factor, or the column of a term over levels."""
    terms = [term for term in fit.model.sum.effects if term.over_levels and not term.continuous]
    sources = {source for term in terms for column in term.claims for source in fit.model.compiled.sources_of(column)}
    return name in fit.model.fixed.expression.factors or name in sources


def listed(values: Any) -> list[Any]:
    """One value, or several, as a list."""
    return list(values) if np.ndim(values) == 1 else [values]


def _crossed(values: Mapping[Any, Sequence[Any]]) -> pd.DataFrame:
    """All combinations of the values, with the last column varying fastest."""
    import pandas as pd

    rows = list(itertools.product(*values.values()))
    return pd.DataFrame(rows, range(len(rows)), columns=list(values))


def only_groups(fit: FitTables, name: Any, regions: bool = True) -> bool:
    """Whether a column is used for groups (or regions) only."""
    fixed = name in fit.model.fixed.expression.names
    terms = [term for term in fit.model.sum.effects if name in term.columns]
    over = [t for t in terms if name in t.group_columns and (t.of_groups or (regions and t.over_regions))]
    return not fixed and bool(over) and len(over) == len(terms)


def grid(
    fit: FitTables,
    where: str,
    asked: Mapping[Any, Sequence[Any]],
    by: Sequence[Any],
    at: Mapping[Any, Any],
    weights: str,
    data: Table = None,
    own: bool = True,
) -> ReferenceGrid:
    """The grid for the values ``asked`` of some columns and for those of ``by``; ``at`` fixes other columns.

    ``own``: rows need their groups; else a row whose group is missing counts as well.
    """
    choice(where, "weights", weights, WEIGHTS)
    held = {name: listed(value) for name, value in at.items() if name not in asked and name not in by}
    for name in held:
        _check_covariate(fit, where, name, f"at names {name!r}, which is")
    cells = {**asked, **{name: values_of(fit, where, name, at) for name in by}}
    if weights == "population":
        frame, seen = fit.model.reduction.data_rows(fit.model)
        if data is not None:
            frame = read_frame(where, data, "data").reset_index(drop=True)
            seen = np.ones(len(frame))
        lacking = [name for name in by if name not in frame and name not in asked]
        if lacking:
            raise problem(where, f"data has no column {lacking[0]!r}, which by names", "it")
        rows = _population(frame, asked, held)
        needed = [name for name in fit.model.covariates if own or not only_groups(fit, name, regions=False)]
        there = rows[[name for name in needed if name in rows]].notna().all(axis=1).to_numpy()
        if not there.any():
            raise problem(where, "no row has all covariates", "at least one")
        return _grid(where, rows[there], cells, np.tile(seen, len(rows) // len(frame))[there])
    others = {name: levels for name, levels in levels_of_factors(fit).items() if name not in cells and name not in held}
    if weights == "equal":
        return _grid(where, typical_rows(fit, _crossed({**cells, **others, **held})), cells)
    rows, each = _observed(fit, cells, others, held)
    return _grid(where, typical_rows(fit, rows), cells, each)


def _observed(
    fit: FitTables, cells: Mapping[Any, Any], others: Mapping[Any, Any], held: Mapping[Any, Any]
) -> tuple[pd.DataFrame, np.ndarray]:
    """Cells crossed with combinations of the other factors, weighted by how often the data have both together."""
    factors = levels_of_factors(fit)
    named = [name for name in (*cells, *others) if name in factors]
    rest = {**{name: values for name, values in cells.items() if name not in named}, **held}
    if not named:
        rows = _crossed(rest)
        return rows, np.ones(len(rows))
    frame, seen = fit.model.reduction.data_rows(fit.model)
    first, which = frame[named].drop_duplicates(), frame.groupby(named, sort=False, observed=True).ngroup()
    rows, others_too = (first.merge(_crossed(rest), how="cross") if rest else first), len(_crossed(rest))
    return rows, np.repeat(np.bincount(which, seen), others_too)


def _population(
    frame: pd.DataFrame, asked: Mapping[Any, Sequence[Any]], held: Mapping[Any, Sequence[Any]]
) -> pd.DataFrame:
    """The rows of the data with the requested columns changed."""
    import pandas as pd

    values = {str(name): each for name, each in {**asked, **held}.items()}
    changes = (dict(zip(values, change, strict=True)) for change in itertools.product(*values.values()))
    return pd.concat([frame.assign(**change) for change in changes], ignore_index=True)


def _grid(
    where: str, rows: pd.DataFrame, cells: Mapping[Any, Sequence[Any]], each: np.ndarray | None = None
) -> ReferenceGrid:
    """Rows averaged within their cells, each with its weight."""
    each, table = np.ones(len(rows)) if each is None else each, _crossed(cells)
    place = {key: k for k, key in enumerate(itertools.product(*cells.values()))}
    of = np.array([place.get(key, -1) for key in zip(*(rows[name].tolist() for name in cells), strict=True)], dtype=int)
    of = of if cells else np.zeros(len(rows), dtype=int)
    there = of >= 0
    if not there.any():
        raise problem(where, "no row of the data is in any of the cells", "values that the data have")
    rows, of, each = rows[there].reset_index(drop=True), of[there], each[there]
    total = np.bincount(of, each, minlength=len(table))
    average = sp.csr_array((each / total[of], (of, np.arange(of.size))), shape=(len(table), of.size))
    return ReferenceGrid(rows, table, average)
