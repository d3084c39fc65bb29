"""Tables of any library, read once into a pandas frame, with the kind of each column.

    pandas                           unchanged
    polars, pyarrow, ...             every library that narwhals reads
    dict of columns, records, rows   columns by name
    arrays (``DataTable`` only)      columns are called 0, 1, ...

The user's index is stored separately for results and may have duplicates; rows are counted 0, 1, ... Columns that a
model uses become numpy's types: pandas' nullable numbers become doubles, with NaN where they are missing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ..checks import finite, first, optional, problem, refuse_device
from .levels import present, sort_of

Table = Any  # a data frame of any library, a dict of columns, records


class Kind(Enum):
    """The kind of values in a column."""

    NUMBERS = "numbers"
    BOOLEANS = "booleans"
    CATEGORIES = "categories"
    TEXT = "text"
    DATES = "dates"
    OUTLINES = "outlines"
    MIXED = "values of several kinds"


_NUMPY_KINDS = {
    **dict.fromkeys("iuf", Kind.NUMBERS),
    **dict.fromkeys("Mm", Kind.DATES),
    "b": Kind.BOOLEANS,
    "U": Kind.TEXT,
}
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")  # of pandas' ``infer_dtype``
_DATES = ("date", "datetime", "datetime64")
_OBJECTS = {
    **dict.fromkeys(["boolean", "empty"], Kind.NUMBERS),
    **dict.fromkeys([*_DATES, "time", "timedelta", "timedelta64", "period"], Kind.DATES),
    "string": Kind.TEXT,
}


# -- columns --------------------------------------------------------------------------------------
class DataColumn:
    """One column of a table.

    Attributes
    ----------
    where : str
        The caller's name, which begins every error message.
    name : hashable
    data : pandas Series
    categories : pandas Index or None
        The categories of a categorical column, in order.
    """

    def __init__(self, where: str, name: Hashable, data: Any) -> None:
        if not isinstance(data, pd.Series):
            data = pd.Series(data, dtype=object)
        self.where, self.name, self.data = where, name, native(data)
        self.categories = data.cat.categories if is_categorical(data) else None

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def values(self) -> list[Any]:
        """The values as Python objects: dates as Timestamps, numbers as int or float."""
        return self.data.tolist()

    @cached_property
    def kind(self) -> Kind:
        """The kind of the column, from its dtype, or from its values if the dtype is object."""
        word = str(self.data.dtype)
        if self.categories is not None:
            return Kind.CATEGORIES
        if word == "geometry":
            return Kind.OUTLINES
        if word.startswith("period"):
            return Kind.DATES
        if word != "object" and self.data.dtype.kind in _NUMPY_KINDS:
            return _NUMPY_KINDS[self.data.dtype.kind]
        return Kind.NUMBERS if _are_numbers(self.data) else _OBJECTS.get(_inferred_dtype(self.data), Kind.MIXED)

    def numbers(self, advice: str = "") -> np.ndarray:
        """The column (N,) as finite doubles; booleans become 0 and 1."""
        if self.kind not in (Kind.NUMBERS, Kind.BOOLEANS):
            got = f"the column {self.name!r} holds {self.kind.value}"
            raise problem(self.where, got, "numbers", advice)
        out = self.data.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
        return finite(self.where, f"X[{self.name!r}]", out, advice)


def _inferred_dtype(column: pd.Series) -> str:
    """pandas' ``infer_dtype`` of a column of objects, without missing values."""
    return pd.api.types.infer_dtype(column, skipna=True)


def _are_numbers(column: pd.Series) -> bool:
    """Whether all objects of a column are numbers, possibly of several types."""
    dtype = _inferred_dtype(column)
    several = dtype.startswith("mixed") and all(sort_of(value) == "numbers" for value in column if present(value))
    return dtype in _NUMBERS or several


def native(column: pd.Series) -> pd.Series:
    """The column in this machine's byte order, which pandas' hash tables require."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and not dtype.isnative:
        return column.astype(dtype.newbyteorder("="))
    return column


def is_categorical(column: pd.Series) -> bool:
    """Whether a column is a pandas categorical."""
    return isinstance(column.dtype, pd.CategoricalDtype)


def is_date(column: pd.Series) -> bool:
    """Whether a column has dates, times, periods or durations."""
    return column.dtype.kind in "Mm" or str(column.dtype).startswith("period")


def is_number(column: pd.Series) -> bool:
    """Whether a column has a numeric dtype other than bool."""
    return not is_categorical(column) and column.dtype.kind in "iuf"


# -- tables ---------------------------------------------------------------------------------------
class DataTable:
    """Columns by name; error messages begin with ``where``.

    Parameters
    ----------
    where : str
        The caller's name, which begins every error message.
    source : anything that ``read_frame`` reads, or an array (N, D)
    weights : array (N,), optional
        Frequency weight of each row, used by means and projections over rows; default: 1.
    places : array (N,), optional
        The position of each row in the user's data, if some rows were left out; default: 0, 1, ...

    Attributes
    ----------
    source : pandas DataFrame
    """

    def __init__(
        self,
        where: str,
        source: Table,
        weights: np.ndarray | None = None,
        places: np.ndarray | None = None,
    ) -> None:
        unnamed = isinstance(source, np.ndarray) and source.dtype.names is None
        self.where = where
        self.source = pd.DataFrame(source) if unnamed else read_frame(where, source, "X")
        self.weights = weights if weights is not None and weights.any() else None
        self.places = np.arange(len(self)) if places is None else places
        self._columns: dict[Hashable, DataColumn] = {}

    def __len__(self) -> int:
        return len(self.source)

    @property
    def names(self) -> list[Hashable]:
        """The names of the columns."""
        return list(self.source.columns)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """The weighted mean over the rows of values (N, ...)."""
        return np.asarray(np.average(values, axis=0, weights=self.weights))

    def weighted(self, values: np.ndarray) -> np.ndarray:
        """Values (N, p) times the square root of each row's weight, for least squares over the rows."""
        return values if self.weights is None else np.sqrt(self.weights)[:, None] * values

    def column(self, name: Hashable) -> DataColumn:
        """Return one column, or raise an error that lists the columns."""
        if name not in self._columns:
            if self.names.count(name) > 1:
                raise problem(self.where, f"X has the column {name!r} twice", "each name once")
            if name not in self.names:
                names = ", ".join(map(repr, self.names[:8])) + (", ..." if len(self.names) > 8 else "")
                got = f"X has no column {name!r}: it has {names}"
                raise problem(self.where, got, "every column that the model uses")
            self._columns[name] = DataColumn(self.where, name, self.source[name])
        return self._columns[name]


def read_frame(where: str, data: Table, name: str = "data") -> pd.DataFrame:
    """The data as a pandas frame; the user's data are not changed."""
    import narwhals as nw

    match data:
        case pd.DataFrame():
            return data
        case pd.Series():
            return data.to_frame().T.infer_objects()  # one row, such as frame.iloc[3]
        case Mapping():
            return _of_columns(where, name, data)
        case [Mapping(), *_]:
            return pd.DataFrame.from_records(list(data))
    refuse_device(where, name, data)
    records = getattr(getattr(data, "dtype", None), "names", None)
    if records:
        return _of_columns(where, name, {key: data[key] for key in records})
    if type(data).__name__ == "RecordBatch":  # a batch of an arrow table
        data = optional(where, "pyarrow").Table.from_batches([data])
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, nw.DataFrame):
        got = f"{name} is a {type(data).__name__}"
        expected = "a data frame (pandas, polars, ...) or a dict of columns"
        raise problem(where, got, expected, "Columns need names.")
    return pd.DataFrame({column: _of_series(frame[column]) for column in frame.columns})


def column_names(table: Table) -> list[Hashable]:
    """The names of the columns of a frame, a dict or records; empty for an array."""
    if isinstance(table, Mapping):
        return list(table)
    names = table.dtype.names if isinstance(table, np.ndarray) else getattr(table, "columns", None)
    return [] if names is None else list(names)


def _of_columns(where: str, name: str, columns: Mapping[Hashable, Any]) -> pd.DataFrame:
    """A dict of columns as a frame; rows are matched by position, not by the index of a column."""
    plain = {}
    for key, column in columns.items():
        refuse_device(where, f"{name}[{key!r}]", column)
        if np.ndim(column) > 1:
            got = f"the column {key!r} of {name} has shape {np.shape(column)}"
            raise problem(where, got, "one dimension")
        plain[key] = column.array if isinstance(column, (pd.Series, pd.Index)) else column
    sizes = {len(column) for column in plain.values() if np.ndim(column)}
    if len(sizes) > 1:
        got = f"the columns of {name} have {sorted(sizes)} rows"
        raise problem(where, got, "as many in each column")
    return pd.DataFrame(plain, index=None if sizes else [0])


def _of_series(series: Any) -> Any:
    """A narwhals column as a pandas Series: categoricals keep the order of their categories, dates stay dates."""
    import narwhals as nw

    if series.dtype in (nw.Categorical, nw.Enum):
        return pd.Categorical(series.to_list(), categories=_categories(series))
    return pd.Series(series.to_list() if series.dtype.is_temporal() else series.to_numpy())


def _categories(series: Any) -> list[Any]:
    """The categories of a narwhals column, as an Enum or an arrow dictionary lists them, else as they appear."""
    import narwhals as nw

    if series.dtype == nw.Enum:
        return list(series.dtype.categories)
    native = series.to_native()
    if series.implementation.is_pyarrow() and native.num_chunks:
        return list(native.unify_dictionaries().chunk(0).dictionary.to_pylist())
    return [value for value in dict.fromkeys(series.to_list()) if value is not None]


# -- the columns that a model uses ----------------------------------------------------------------
@dataclass(frozen=True)
class Dropped:
    """The rows that a fit left out.

    Attributes
    ----------
    n : int
        With ``family="cox"`` the number of people, not of the pieces of their durations.
    columns : dict
        For each column that the model uses, the number of rows in which it is missing.
    """

    n: int
    columns: Mapping[Hashable, int]


def column_of(where: str, frame: pd.DataFrame, name: Hashable) -> pd.Series:
    """Return one column as a plain type, or raise an error that lists the columns."""
    if name not in frame.columns:
        raise problem(where, *unknown(frame, name))
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise problem(where, f"the data have the column {name!r} twice", "each name once")
    column = native(column)
    kind = column.dtype.kind
    if is_categorical(column):
        return column
    if str(column.dtype).startswith("string"):  # formulaic does not treat this dtype as text
        column = column.astype(object).where(column.notna(), None)
    elif kind == "c":
        got = f"the column {name!r} holds complex numbers"
        raise problem(where, got, "numbers, text, dates or booleans")
    elif not isinstance(column.dtype, np.dtype) and kind in "biuf":  # pandas' nullable columns
        if kind == "b" and not column.isna().any():
            return column.astype("bool")
        return pd.Series(column.to_numpy(np.float64, na_value=np.nan), column.index)
    return _plain_objects(where, name, column) if column.dtype == object else column


def _plain_objects(where: str, name: Hashable, column: pd.Series) -> pd.Series:
    """Convert a column of objects to numbers, booleans or dates if all its values are of that kind."""
    dtype = _inferred_dtype(column)
    if _are_numbers(column) or (dtype == "boolean" and column.isna().any()):
        return column.where(column.notna(), np.nan).astype(np.float64)
    if dtype == "boolean":
        return column.astype(bool)
    if dtype in _DATES:
        return pd.to_datetime(column)
    odd = [type(value).__name__ for value in column if type(value).__hash__ is None]
    if dtype != "string" and odd:
        got = f"the column {name!r} holds a {odd[0]}"
        raise problem(where, got, "one number, text or date in each row")
    return column


def unknown(frame: pd.DataFrame, name: Hashable) -> tuple[str, str, str]:
    """For a column that does not exist: the error, what was expected, and advice."""
    names = [str(column) for column in frame.columns]
    near = get_close_matches(str(name), names, 1)
    shown = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
    advice = f"Did you mean {near[0]!r}?" if near else ""
    return f"there is no column {name!r}", f"one of {shown}", advice


def used(where: str, frame: pd.DataFrame, names: Iterable[Hashable]) -> pd.DataFrame:
    """The columns that a model uses, as plain types, with rows counted from 0."""
    columns = {name: column_of(where, frame, name).reset_index(drop=True) for name in dict.fromkeys(names)}
    return pd.DataFrame(columns, index=pd.RangeIndex(len(frame)))


def missing(where: str, frame: pd.DataFrame, names: Iterable[Hashable]) -> dict[Hashable, np.ndarray]:
    """For each column with missing values, where they are (N,); refuses infinite numbers."""
    out = {}
    for name in dict.fromkeys(names):
        column = frame[name]
        bad = np.asarray(column.isna(), dtype=bool)
        if column.dtype.kind == "f":
            far = np.isinf(np.asarray(column, dtype=np.float64))
            if far.any():
                got = f"the column {name!r} is infinite in row {first(far)}"
                raise problem(where, got, "finite numbers, or NaN")
        if bad.any():
            out[name] = bad
    return out
