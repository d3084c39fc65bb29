"""The rows over which predictions are averaged: a reference grid, the cells of the data, or the rows of the data.

"equal"        every combination of levels counts the same; numbers at their mean (emmeans' reference grid)
"cells"        combinations of levels are weighted by their frequency in the cell; numbers at their mean
"population"   the rows of the data, with the requested columns changed
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
from .averages import typical_rows

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
    known = model.fixed.expression.factors
    claimed = {
        source for term in model.sum.effects for column in term.claims for source in model.compiled.sources_of(column)
    }
    for name in model.covariates:
        column = model.reduction.source(model, name)[name]
        if name in known:
            out[name] = list(known[name])
        elif column.dtype.kind == "b":
            out[name] = [False, True]
        elif name not in claimed and (column.dtype.kind not in "iuf" or column.nunique() == 2):
            out[name] = sorted(column.dropna().unique().tolist())
    return out


def values_of(fit: FitTables, where: str, name: Any, at: Mapping[Any, Any]) -> list[Any]:
    """The values of a column that get averages: those given, the levels, or some numbers."""
    if name in at:
        return list(dict.fromkeys(listed(at[name])))
    factors = levels_of_factors(fit)
    if name in factors:
        return factors[name]
    if name not in fit.model.covariates:
        known = ", ".join(repr(str(column)) for column in fit.model.covariates)
        raise problem(where, f"{name!r} is no covariate of the model", f"one of {known}")
    column = fit.model.reduction.source(fit.model, name)[name].dropna()
    seen = sorted(column.unique().tolist())
    if len(seen) <= _FEW or column.dtype.kind not in "iuf":
        return seen
    mean, sd = float(column.mean()), float(column.std())
    return [mean - sd, mean, mean + sd]


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
        if name not in fit.model.covariates:
            known = ", ".join(repr(str(column)) for column in fit.model.covariates)
            raise problem(where, f"at names {name!r}, which is no covariate of the model", f"one of {known}")
    cells = {**asked, **{name: values_of(fit, where, name, at) for name in by}}
    if weights == "population":
        frame = fit.model.frame if data is None else read_frame(where, data, "data").reset_index(drop=True)
        lacking = [name for name in by if name not in frame and name not in asked]
        if lacking:
            raise problem(where, f"data has no column {lacking[0]!r}, which by names", "it")
        rows = _population(frame, asked, held)
        needed = [name for name in fit.model.covariates if own or not only_groups(fit, name, regions=False)]
        rows = rows.dropna(subset=[name for name in needed if name in rows])
        if not len(rows):
            raise problem(where, "no row has all covariates", "at least one")
        return _grid(where, rows, cells)
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
    counts = fit.model.frame[named].value_counts().rename("n").reset_index()
    counts = counts[counts["n"] > 0]  # combinations of categories that occur
    rows = counts.merge(_crossed(rest), how="cross") if rest else counts
    return rows.drop(columns="n"), rows["n"].to_numpy(dtype=float)


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
