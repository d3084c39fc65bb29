"""Tables as users bring them: a frame, an array, records or a dict of columns; each column by name, with its kind.

    numbers, booleans          as they are (pandas' nullable columns too)
    categories, text           levels
    dates                      dates, times, periods, durations
    outlines                   the geometry of a geopandas frame
    mixed                      anything else

Values come out plain: dates as Timestamps, numbers as Python's own. The columns of an array are named 0, 1, ...
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import Enum
from functools import cached_property
from numbers import Number
from typing import Any

import numpy as np

from ..checks import finite, first, optional, problem, refuse_device


class Kind(Enum):
    """What a column holds."""

    NUMBERS = "numbers"
    BOOLEANS = "booleans"
    CATEGORIES = "categories"
    TEXT = "text"
    DATES = "dates"
    OUTLINES = "outlines"
    MIXED = "values of several kinds"


class DataColumn:
    """One column of a table."""

    def __init__(self, where: str, name: Hashable, data: Any) -> None:
        dtype = getattr(data, "dtype", None)
        if isinstance(dtype, np.dtype) and not dtype.isnative:  # pandas' hash tables want this machine's bytes
            data = data.astype(dtype.newbyteorder("="))
        self.where, self.name, self.data = where, name, data
        self.dtype = getattr(data, "dtype", None)
        self.categories = getattr(self.dtype, "categories", None)  # pandas': all it may hold, in order

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def values(self) -> list[Any]:
        return values(self.data)

    @cached_property
    def declared(self) -> Kind | None:
        """What its type says it holds; None where only the values can tell."""
        word, kind = str(self.dtype), getattr(self.dtype, "kind", "O")
        if self.categories is not None:
            return Kind.CATEGORIES
        if word == "geometry":
            return Kind.OUTLINES
        if kind in "Mm" or word.lower().startswith(("period", "date", "duration", "time")):
            return Kind.DATES
        if kind in "biuf" and not word.startswith("string"):
            return Kind.BOOLEANS if kind == "b" else Kind.NUMBERS
        return None

    @cached_property
    def kind(self) -> Kind:
        if self.declared is not None:
            return self.declared
        kinds = {type(value) for value in self.values if present(value)}
        if all(issubclass(k, (Number, np.bool_)) and not issubclass(k, complex) for k in kinds):
            return Kind.NUMBERS
        if all(issubclass(k, str) for k in kinds):
            return Kind.TEXT
        if any(hasattr(k, "isoformat") or hasattr(k, "to_timestamp") or hasattr(k, "total_seconds") for k in kinds):
            return Kind.DATES
        return Kind.MIXED

    def numbers(self, advice: str = "") -> np.ndarray:
        """The column (N,) as finite doubles; 0 and 1 of booleans."""
        if self.kind not in (Kind.NUMBERS, Kind.BOOLEANS):
            raise problem(self.where, f"the column {self.name!r} holds {self.kind.value}", "numbers", advice)
        if str(self.dtype) == "boolean" or hasattr(self.data, "isna"):  # pandas' nullable columns too
            out = self.data.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            out = np.asarray(self.data, dtype=np.float64)
        return finite(self.where, f"X[{self.name!r}]", out, advice)


class DataTable:
    """Columns by name, for messages of ``where``.

    Parameters
    ----------
    where : str
        Who asks: the first word of every message.
    source : frame, array (N, D), structured array, or dict of columns
    weights : array (N,), optional
        How often each row was seen; default: once. Means, scales and projections over rows follow them.
    places : array (N,), optional
        Where each row stands in the user's data, of which some rows were left out; default: 0, 1, ...
    """

    def __init__(
        self,
        where: str,
        source: Any,
        weights: np.ndarray | None = None,
        places: np.ndarray | None = None,
    ) -> None:
        source = plain(where, source)
        self.where, self.source, self.framed = where, source, keyed(source) or hasattr(source, "columns")
        own = source if keyed(source) else source.columns if self.framed else range(source.shape[1])
        self.names: list[Any] = list(own)
        lengths = {len(part) for part in source.values()} if keyed(source) else {source.shape[0]}
        if len(lengths) != 1:
            raise problem(where, f"the columns of X have {sorted(lengths)} rows", "as many in each column")
        self.n_rows = int(lengths.pop())
        self.weights = weights if weights is not None and weights.any() else None
        self.places = np.arange(self.n_rows) if places is None else places
        self._columns: dict[Any, DataColumn] = {}

    def __len__(self) -> int:
        return self.n_rows

    def mean(self, values: np.ndarray) -> np.ndarray:
        """The mean of values (N, ...) over the rows, by their weights."""
        return np.asarray(np.average(values, axis=0, weights=self.weights))

    def weighted(self, values: np.ndarray) -> np.ndarray:
        """Values (N, p) times the root of each row's weight, for least squares over the rows."""
        return values if self.weights is None else np.sqrt(self.weights)[:, None] * values

    def column(self, name: Hashable) -> DataColumn:
        """One column, or the sentence that says which there are."""
        if name in self._columns:
            return self._columns[name]
        if self.names.count(name) > 1:
            raise problem(self.where, f"X has the column {name!r} twice", "each name once")
        if name not in self.names:
            names = ", ".join(repr(k) for k in self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            advice = "" if self.framed else "The columns of an array are numbers; a pandas frame has names."
            got = f"X has no column {name!r}: it has {names}"
            raise problem(self.where, got, "every column that the model uses", advice)
        data = self.source[name] if self.framed else self.source[:, name]
        self._columns[name] = DataColumn(self.where, name, data)
        return self._columns[name]


def keyed(source: Any) -> bool:
    """Whether a table is a dict of columns; scipy's dictionary of keys is a matrix."""
    return isinstance(source, Mapping) and not hasattr(source, "shape")


def plain(where: str, source: Any) -> Any:
    """A table itself, a structured array as a frame; refuses masks and arrays on other devices."""
    for part in source.values() if keyed(source) else [source]:
        refuse_device(where, "X", part)
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            got = f"X{first(np.ma.getmaskarray(part))} is masked"
            raise problem(where, got, "values", "Only y may be unobserved; drop the row.")
    records = getattr(getattr(source, "dtype", None), "names", None)
    return optional(where, "pandas").DataFrame.from_records(source) if records else source


def values(column: Any) -> list[Any]:
    """A column as a list of plain values: dates as Timestamps, numbers as Python's own."""
    if isinstance(column, list):
        return column
    if hasattr(column, "to_list"):  # pandas and polars
        return list(column.to_list())
    array = np.asarray(column)
    if array.dtype.kind == "M":
        return list(optional("dates", "pandas").DatetimeIndex(array))
    return array.tolist() if array.ndim == 1 else [row.item() for row in array.ravel()]


def present(value: Any) -> bool:
    """Neither None, NaN, NaT, pandas' NA nor infinite."""
    if value is None or type(value).__name__ == "NAType":  # NA == NA has no truth
        return False
    return bool(value == value) and not (isinstance(value, float) and np.isinf(value))


def sort_of(value: Any) -> str | None:
    """Text, numbers, dates, or something else."""
    if isinstance(value, (str, bytes)):
        return "text"
    if isinstance(value, (Number, np.bool_)):
        return "numbers"
    return "dates" if hasattr(value, "isoformat") or hasattr(value, "to_timestamp") else None


def shown(levels: list[Any]) -> str:
    """A few of them."""
    if len(levels) <= 4:
        return ", ".join(repr(level) for level in levels)
    return f"{levels[0]!r}, {levels[1]!r}, ..., {levels[-1]!r}"
