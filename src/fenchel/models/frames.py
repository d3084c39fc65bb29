"""Data frames as users bring them: pandas', what narwhals reads (polars, pyarrow, ...), dicts and records of columns.

Inside, a frame is pandas' with rows counted 0, 1, ...: the user's index is kept apart for the answers, and may repeat
itself. Columns that a model uses become plain: pandas' nullable numbers are numpy's, with NaN where they are missing.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import first, optional, problem, refuse_device
from ..terms.tables import present

if TYPE_CHECKING:
    import pandas as pd

Table = Any  # a data frame of any library, a dict of columns, records


@dataclass(frozen=True)
class Dropped:
    """The rows that a fit left out.

    Attributes
    ----------
    n : int
        Of ``family="cox"`` people, not pieces of their durations.
    columns : dict
        How many rows each column is missing in, of those that the model uses.
    """

    n: int
    columns: Mapping[Hashable, int]


def read_frame(where: str, data: Table, name: str = "data") -> pd.DataFrame:
    """Data as a pandas frame; the caller's own is not changed."""
    pd = optional(where, "pandas")
    if isinstance(data, pd.DataFrame):
        return data
    if isinstance(data, pd.Series):
        return data.to_frame().T.infer_objects()  # one row, as frame.iloc[3] gives it
    records = getattr(getattr(data, "dtype", None), "names", None)
    if isinstance(data, Mapping) or records:
        return _of_columns(where, name, {key: data[key] for key in records or data})
    if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data):
        return pd.DataFrame.from_records(list(data))
    import narwhals as nw

    if type(data).__name__ == "RecordBatch":  # a piece of an arrow table
        data = optional(where, "pyarrow").Table.from_batches([data])
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, nw.DataFrame):
        got = f"{name} is a {type(data).__name__}"
        raise problem(where, got, "a data frame (pandas, polars, ...) or a dict of columns", "Columns need names.")
    return pd.DataFrame({column: _of_series(frame[column]) for column in frame.columns})


def _of_columns(where: str, name: str, columns: Mapping[Hashable, Any]) -> pd.DataFrame:
    pd = optional(where, "pandas")
    for key, column in columns.items():
        refuse_device(where, f"{name}[{key!r}]", column)
    sizes = {np.shape(column)[0] for column in columns.values() if np.ndim(column)}
    if len(sizes) > 1:
        raise problem(where, f"the columns of {name} have {sorted(sizes)} rows", "as many in each column")
    wide = [key for key, column in columns.items() if np.ndim(column) > 1]
    if wide:
        raise problem(
            where, f"the column {wide[0]!r} of {name} has shape {np.shape(columns[wide[0]])}", "one dimension"
        )
    plain = {key: getattr(column, "array", column) for key, column in columns.items()}  # no alignment by an index
    return pd.DataFrame(plain, index=None if sizes else [0])


def _of_series(series: Any) -> Any:
    """A narwhals column as pandas takes it: words in the order of their categories, dates as dates."""
    import narwhals as nw
    import pandas as pd

    if series.dtype in (nw.Categorical, nw.Enum):
        return pd.Categorical(series.to_list(), categories=_categories(series))
    return pd.Series(series.to_list() if series.dtype.is_temporal() else series.to_numpy())


def _categories(series: Any) -> list[Any]:
    """Of a narwhals column: as an Enum or an arrow dictionary lists them, else in the order in which they come."""
    import narwhals as nw

    if series.dtype == nw.Enum:
        return list(series.dtype.categories)
    native = series.to_native()
    if hasattr(native, "unify_dictionaries") and native.num_chunks:
        return list(native.unify_dictionaries().chunk(0).dictionary.to_pylist())
    return [value for value in dict.fromkeys(series.to_list()) if value is not None]


def column_of(where: str, frame: pd.DataFrame, name: Hashable) -> pd.Series:
    """One column, made plain; or the sentence that says which there are."""
    pd = optional(where, "pandas")
    if name not in frame.columns:
        raise problem(where, *unknown(frame, name))
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise problem(where, f"the data have the column {name!r} twice", "each name once")
    kind = getattr(column.dtype, "kind", "O")
    if isinstance(column.dtype, np.dtype) and not column.dtype.isnative:  # pandas' hash tables want this machine's
        column = column.astype(column.dtype.newbyteorder("="))
    if hasattr(column.dtype, "categories"):
        return column
    if str(column.dtype).startswith("string"):  # which formulaic does not take for text
        column = column.astype(object).where(column.notna(), None)
    if not isinstance(column.dtype, np.dtype) and kind in "biuf":
        whole = kind == "b" and not column.isna().any()
        return column.astype("bool") if whole else pd.Series(column.to_numpy(np.float64, na_value=np.nan), column.index)
    if kind == "c":
        raise problem(where, f"the column {name!r} holds complex numbers", "numbers, text, dates or booleans")
    if kind == "O" and pd.api.types.infer_dtype(column, skipna=True) != "string":
        odd = next((type(value).__name__ for value in column if type(value).__hash__ is None), None)
        if odd is not None:
            raise problem(where, f"the column {name!r} holds a {odd}", "one number, text or date in each row")
        found = {type(value) for value in column if present(value)}
        if found and found <= {int, float, np.float64, np.int64, Decimal}:
            return column.astype(np.float64)
        if found and found <= {datetime.date, datetime.datetime, pd.Timestamp}:
            return pd.to_datetime(column)
        if found and found <= {bool, np.bool_}:
            return column.astype(np.float64 if column.isna().any() else bool)
    return column


def unknown(frame: pd.DataFrame, name: Hashable) -> tuple[str, str, str]:
    """What is wrong, what was expected and what to try, of a column that is not there."""
    names = [str(column) for column in frame.columns]
    near = get_close_matches(str(name), names, 1)
    shown = ", ".join(repr(k) for k in names[:8]) + (", ..." if len(names) > 8 else "")
    return f"there is no column {name!r}", f"one of {shown}", f"Did you mean {near[0]!r}?" if near else ""


def used(where: str, frame: pd.DataFrame, names: Iterable[Hashable]) -> pd.DataFrame:
    """The columns that a model uses, plain, with rows counted from 0."""
    pd = optional(where, "pandas")
    columns = {name: column_of(where, frame, name).reset_index(drop=True) for name in dict.fromkeys(names)}
    return pd.DataFrame(columns, index=pd.RangeIndex(len(frame)))


def missing(where: str, frame: pd.DataFrame, names: Iterable[Hashable]) -> dict[Hashable, np.ndarray]:
    """Where each of the columns is missing (N,), those that are nowhere left out; refuses infinite numbers."""
    out = {}
    for name in dict.fromkeys(names):
        column = frame[name]
        bad = np.asarray(column.isna(), dtype=bool)
        if getattr(column.dtype, "kind", "O") == "f":
            far = np.isinf(np.asarray(column, dtype=np.float64))
            if far.any():
                raise problem(where, f"the column {name!r} is infinite in row {first(far)}", "finite numbers, or NaN")
        if bad.any():
            out[name] = bad
    return out


def is_date(column: pd.Series) -> bool:
    """Dates, times, periods or durations."""
    return getattr(column.dtype, "kind", "O") in "Mm" or str(column.dtype).startswith("period")
