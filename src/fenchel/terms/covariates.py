"""Covariates: columns of a table, read as numbers or as factors.

    numbers, booleans (0 and 1)                      one column
    categories, text                                 a factor: one column for each level but the first
    dates, times, numbers written as text, mixtures  an error that says what to do

The levels of a factor are those in the data of the fit: a categorical has its own order, text is sorted. A new level
is an error. It is never read as the reference.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Self

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from ..inputs.frames import DataColumn, DataTable, Kind, is_date
from ..inputs.levels import present, shown
from .base import Term, TermRows

_MOST = 100  # levels of a factor: beyond it they are groups, which want an effect
_MISSING = "Fill in missing covariates first: NaN and inf have no place in X."


class Covariate(Term):
    """A covariate as a fixed effect: a number, or a factor with one column for each level but the first.

    Parameters
    ----------
    column : name of the column
    """

    def __init__(self, column: Hashable) -> None:
        self.column = self.name = column

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (self.column,)

    @property
    def single(self) -> bool:
        """A factor of one level, which is its reference."""
        return self.levels is not None and len(self.levels) < 2

    def read(self, table: DataTable, scale: float) -> Self:
        out, column = copy.copy(self), table.column(self.column)
        out.levels = _levels(column) if is_factor(column) else None
        levels = [None] if out.levels is None else out.levels[1:]
        out.fixed_names = [str(self.column) if level is None else f"{self.column}[{level}]" for level in levels]
        return out

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        column = table.column(self.column)
        fixed = self._numbers(column) if self.levels is None else self._indicators(column, self.levels)
        return TermRows(sp.csr_array((len(table), 0)), fixed)

    def _numbers(self, column: DataColumn) -> np.ndarray:
        if is_factor(column):
            raise problem(column.where, f"the covariate {self.column!r} holds text", "numbers, as in fit")
        return column.numbers(_MISSING)[:, None]

    def _indicators(self, column: DataColumn, levels: list[Hashable]) -> np.ndarray:
        out, place = np.zeros((len(column), len(levels))), {level: i for i, level in enumerate(levels)}
        for i, value in enumerate(column.values):
            if value not in place:
                got = f"X[{i}, {self.column!r}] = {value!r}"
                what = f"{got} was not seen in fit" if present(value) else f"{got} is missing"
                raise problem(column.where, what, f"one of {shown(levels)}")
            out[i, place[value]] = 1.0
        return out[:, 1:]


def _levels(column: DataColumn) -> list[Hashable]:
    """The levels of a factor, by what fit sees of it."""
    where, name, found = column.where, column.name, set(column.values)
    for i, value in enumerate(column.values):
        if not present(value):
            raise problem(where, f"X[{i}, {name!r}] is missing", "a level in every row", _MISSING)
    levels = sorted(found) if column.categories is None else [c for c in column.categories if c in found]
    if len(levels) > _MOST:
        got, advice = f"the covariate {name!r} has {len(levels)} levels", f"Make it a group, (1|{name})."
        raise problem(where, got, f"at most {_MOST}", advice)
    return levels


def is_factor(column: DataColumn) -> bool:
    """Whether a column is a factor; refuses what is neither a factor nor numbers."""
    where, name = column.where, column.name
    if column.kind in (Kind.CATEGORIES, Kind.NUMBERS, Kind.BOOLEANS):
        return column.kind is Kind.CATEGORIES
    if column.kind is Kind.DATES:
        word = str(column.data.dtype) if is_date(column.data) else "dates"
        advice = (
            f"Make it a term in time, rw1({name}), or a number: (X[{name!r}] - X[{name!r}].min()).dt.days "
            "for days, .dt.year for years, .dt.total_seconds() for durations."
        )
        raise problem(where, f"the covariate {name!r} holds {word}", "numbers or levels", advice)
    if column.kind is not Kind.TEXT:
        advice = f"Make it a group, (1|{name}), or encode it."
        raise problem(where, f"the covariate {name!r} is not numbers", "a number in every row, or text", advice)
    if all(_reads_as_number(value) for value in column.values if present(value)):
        got = f"the covariate {name!r} holds numbers written as text"
        advice = f'X[{name!r}].astype(float) makes numbers of them, .astype("category") a factor.'
        raise problem(where, got, "numbers or levels", advice)
    return True


def _reads_as_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
