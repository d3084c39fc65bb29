"""A table taken apart: each column with its missing cells marked and the others as numbers, bools or objects.

Pandas columns are read by their dtype; arrays by theirs, and objects that are all numbers are numbers. A cell is
missing when it is NaN, None, NA or masked. Dates are refused. In a sparse matrix a zero is a zero, not a hole.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np

from ..checks import problem
from ..linalg.arrays import ArrayLike

_DATES = "Turn dates into numbers, for example days since the first, or leave the column out."
_DATED = (date, time, timedelta, np.datetime64, np.timedelta64)  # a pandas Timestamp is a date


@dataclass(frozen=True)
class Cells:
    """A column as it came: ``seen`` holds the cells that are not missing, of a numeric or bool dtype, or objects."""

    name: Any
    missing: np.ndarray
    seen: np.ndarray
    declared: tuple[Any, ...] | None = None  # the categories of a pandas column, in their order
    dtype: Any = None  # of a pandas column
    ordered: bool = False  # whether the categories are

    @property
    def is_number(self) -> bool:
        return self.declared is None and self.seen.dtype.kind in "biuf"


def unmasked(X: ArrayLike) -> Any:
    """A masked array with NaN or None in its masked cells; anything else as it is."""
    if not isinstance(X, np.ma.MaskedArray):
        return X
    number = X.dtype.kind in "biuf"
    out = np.array(X.data, dtype=np.float64 if number else object)
    out[np.ma.getmaskarray(X)] = np.nan if number else None
    return out if np.ma.getmaskarray(X).any() else np.array(X.data)


def is_frame(X: ArrayLike) -> bool:
    """A pandas table, told without importing pandas."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def split(X: Any, where: str) -> list[Cells]:
    """The columns as they came."""
    if is_frame(X):
        if 0 in X.shape:
            raise problem(where, f"X has shape {X.shape}", "a table of at least one row and one column")
        if not X.columns.is_unique:
            twice = X.columns[X.columns.duplicated()][0]
            raise problem(where, f"X has two columns {twice!r}", "a name for each column")
        return [_series(name, X.iloc[:, d], where) for d, name in enumerate(X.columns)]
    if hasattr(X, "tocsc"):
        X = X.toarray()
    X = unmasked(X)
    array = np.asarray(X)
    if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
        array = np.asarray(X, dtype=object)  # numbers beside text stay numbers
    if array.ndim != 2 or 0 in array.shape:
        raise problem(where, f"X has shape {array.shape}", "a table of at least one row and one column")
    if array.dtype.kind not in "biufOUS":
        advice = _DATES if array.dtype.kind in "mM" else ""
        raise problem(where, f"X has dtype {array.dtype}", "numbers, text or objects", advice)
    return [_array(f"x{d}", array[:, d], where) for d in range(array.shape[1])]


def _array(name: Any, cells: np.ndarray, where: str) -> Cells:
    if cells.dtype.kind == "f":
        missing = np.isnan(cells)
    elif cells.dtype.kind == "O":
        missing = _is_missing(cells)
    else:
        missing = np.zeros(cells.size, dtype=bool)
    seen = cells[~missing]
    if seen.dtype.kind in "US":
        seen = seen.astype(object)
    if seen.dtype.kind == "O" and seen.size:
        seen = _plain(seen)
        dated = [cell for cell in seen if isinstance(cell, _DATED)] if seen.dtype.kind in "OmM" else []
        if dated or seen.dtype.kind in "mM":
            raise problem(where, f"column {name!r} has dates, such as {dated[0]}", "numbers or labels", _DATES)
    return Cells(name, missing, seen)


def _plain(seen: np.ndarray) -> np.ndarray:
    """Objects that are all numbers as numbers, others as they are."""
    if not isinstance(seen[0], (bool, int, float, np.generic, Number)):
        return seen
    if any(isinstance(cell, Decimal) for cell in seen):
        seen = np.array([float(cell) if isinstance(cell, Decimal) else cell for cell in seen], dtype=object)
    try:
        found = np.array(seen.tolist())
    except ValueError:  # a list beside numbers
        return seen
    return found if found.dtype.kind in "biuf" and found.ndim == 1 else seen


def _is_missing(cells: np.ndarray) -> np.ndarray:
    """NaN, None and, where pandas is in use, NA."""
    if "pandas" in sys.modules:
        return np.asarray(sys.modules["pandas"].isna(cells), dtype=bool)
    nothing: Any = None
    return np.asarray((cells == nothing) | (cells != cells), dtype=bool)


def _series(name: Any, column: Any, where: str) -> Cells:
    """A pandas column by its dtype."""
    from pandas.api import types

    missing = column.isna().to_numpy(dtype=bool)
    seen, dtype = column[~missing], column.dtype
    if hasattr(dtype, "categories"):
        known = dtype.categories
        used = known[np.unique(seen.cat.codes.to_numpy())]  # categories no cell has would have no estimate
        return Cells(name, missing, _objects(seen), tuple(used.tolist()), dtype, bool(dtype.ordered))
    if types.is_bool_dtype(dtype):
        return Cells(name, missing, seen.to_numpy(dtype=bool), dtype=dtype)
    if types.is_integer_dtype(dtype):
        return Cells(name, missing, seen.to_numpy(dtype=np.int64), dtype=dtype)
    if types.is_float_dtype(dtype):
        return Cells(name, missing, seen.to_numpy(dtype=np.float64), dtype=dtype)
    if types.is_object_dtype(dtype) or types.is_string_dtype(dtype):
        inside = _array(name, _objects(seen), where)
        return Cells(name, missing, inside.seen, dtype=dtype)
    raise problem(where, f"column {name!r} has dtype {dtype}", "bool, category, text, integer or float", _DATES)


def _objects(series: Any) -> np.ndarray:
    return np.asarray(series.astype(object).to_numpy(), dtype=object)


def word(value: ArrayLike) -> str:
    """A value in a sentence."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def listed(names: Any) -> str:
    """The first few of many."""
    words = [repr(name) for name in names]
    return ", ".join(words[:8]) + (f", ... ({len(words)} in all)" if len(words) > 8 else "")
