"""Things of pandas, scipy and the calendar in a file: their numbers as arrays, made again by their own constructors."""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from .decoding import Decoder
    from .graph import Encoder

Json = Any
_ZONE = re.compile(  # Europe/Berlin, UTC+01:00; dateutil/... would be the path of a file
    r"(?!dateutil)[A-Za-z][\w+-]*(/[\w+-]+){0,2}|UTC[+-]\d\d:\d\d(:\d\d)?|pytz\.FixedOffset\(-?\d+\)", re.ASCII
)
_DTYPE = re.compile(  # of columns, by pandas' names
    r"object|bool|u?int(8|16|32|64)|float(16|32|64|128)|complex(64|128)|(datetime|timedelta)64\[\w+\]|[<>|=]?[SU]\d+"
    r"|(Int|UInt)(8|16|32|64)|Float(32|64)|boolean|category|str|string(\[\w+\])?|[\w ]{1,20}(\[\w+\])?\[pyarrow\]"
    r"|(period|interval)\[[\w, -]+\]|Sparse\[\w+, [\w.-]+\]|datetime64\[\w+, (?P<zone>[^\]]+)\]",
    re.ASCII,
)
TABLES = ("frame", "series", "index", "indices", "column", "categorical", "ordinals")  # nodes of pandas' tables
_SPARSE = {
    kind.__name__: kind
    for kind in (sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix, sp.coo_array, sp.dia_array)
}


def encoded(encoder: Encoder, x: Any, where: str) -> Json | None:
    """The node of such a thing, or None of another."""
    if isinstance(x, np.dtype):
        return ["dtype", x.str] if x.kind in "biufcmMSU" else ["dtype", "O"] if x.kind == "O" else None
    name = type(x).__name__
    if sp.issparse(x) and name in _SPARSE:
        parts = {"dia_array": ("data", "offsets"), "coo_array": ("data", "row", "col")}
        arrays = [encoder.array(np.asarray(getattr(x, p))) for p in parts.get(name, ("data", "indices", "indptr"))]
        return ["sparse", name, list(x.shape), arrays, bool(getattr(x, "has_sorted_indices", True))]
    if isinstance(x, (datetime.datetime, datetime.date, datetime.timedelta)) and type(x).__module__ == "datetime":
        return _calendar(x)
    pd = sys.modules.get("pandas")
    return None if pd is None else _of_pandas(pd, encoder, x, where)


def _calendar(x: Any) -> Json | None:
    if isinstance(x, datetime.timedelta):
        return ["timedelta", x.days, x.seconds, x.microseconds]
    if isinstance(x, datetime.datetime):
        return None if x.tzinfo is not None else ["datetime", x.isoformat()]
    return ["date", x.isoformat()]


def _of_pandas(pd: Any, encoder: Encoder, x: Any, where: str) -> Json | None:
    if isinstance(x, (pd.Timestamp, pd.Timedelta)):
        zone = None if getattr(x, "tz", None) is None else str(x.tz)
        return ["moment", type(x).__name__, encoder.array(np.asarray(x.to_numpy())), zone]
    if isinstance(x, pd.Period):
        return ["period", x.ordinal, x.freqstr]
    if x is pd.NaT or x is pd.NA:
        return ["missing", "NaT" if x is pd.NaT else "NA"]
    if isinstance(x, pd.DataFrame) and type(x) is pd.DataFrame:
        columns = [encoder.value(x[name].array, f"{where}[{name!r}]") for name in x.columns]
        return ["frame", encoder.value(x.columns, where), encoder.value(x.index, where), columns]
    if type(x) is pd.Series:
        values = encoder.value(x.array, where)
        return ["series", values, encoder.value(x.index, where), encoder.value(x.name, where)]
    if type(x) is pd.RangeIndex:
        return ["index", encoder.value(range(x.start, x.stop, x.step), where), encoder.value(x.name, where)]
    if type(x) is pd.MultiIndex:
        levels = [encoder.value(x.get_level_values(k).array, where) for k in range(x.nlevels)]
        return ["indices", levels, encoder.values(x.names, where)]
    if isinstance(x, pd.Index):
        return ["index", encoder.value(x.array, where), encoder.value(x.name, where)]
    if isinstance(x, pd.api.extensions.ExtensionArray):
        return _column(pd, encoder, x, where)
    if isinstance(x, pd.CategoricalDtype):
        labels = x.categories  # as an array: a dtype stands where a table may not
        return ["categories", encoder.value(np.asarray(labels), where), bool(x.ordered), str(labels.dtype)]
    if isinstance(x, pd.api.extensions.ExtensionDtype):
        return ["pandas-dtype", str(x)]
    return None


def _column(pd: Any, encoder: Encoder, x: Any, where: str) -> Json:
    dtype = x.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = encoder.array(np.asarray(x.codes))
        return ["categorical", codes, encoder.value(dtype.categories, where), bool(x.ordered)]
    if isinstance(dtype, pd.PeriodDtype):
        return ["ordinals", encoder.array(np.asarray(x.asi8)), str(dtype)]
    if isinstance(dtype, pd.DatetimeTZDtype):
        return ["ordinals", encoder.array(np.asarray(x.asi8)), str(dtype)]
    if isinstance(dtype, np.dtype):
        return ["column", encoder.value(np.asarray(x), where), None]
    return ["column", encoder.value(np.asarray(x, dtype=object), where), str(dtype)]


# -- back ---------------------------------------------------------------------------------------------------
def _pandas() -> Any:
    import pandas as pd

    return pd


def _zone(text: Json) -> str:
    """The name of a time zone; a path to a file of one is refused."""
    if type(text) is not str or not _ZONE.fullmatch(text):
        raise ValueError(f"there is no time zone {str(text)[:40]!r}")
    return text


def _dtype_name(text: Json) -> str:
    """The name of one of pandas' dtypes."""
    found = _DTYPE.fullmatch(text) if type(text) is str else None
    if found is None:
        raise ValueError(f"there is no dtype {str(text)[:40]!r}")
    if found["zone"] is not None:
        _zone(found["zone"])
    return found[0]


def _numpy_dtype(decoder: Decoder, text: Json) -> np.dtype[Any]:
    if type(text) is not str or not re.fullmatch(r"O|[<>|=]?[biufcmMSU]\d*(\[\w+\])?", text):
        raise ValueError(f"there is no dtype {str(text)[:40]!r}")
    return np.dtype(text)


def _period(decoder: Decoder, ordinal: Json, freq: Json) -> Any:
    if type(ordinal) is not int or type(freq) is not str or len(freq) > 20:
        raise ValueError("a period of something else")
    return _pandas().Period(ordinal=ordinal, freq=freq)


def _sparse(decoder: Decoder, name: str, shape: Json, arrays: Json, in_order: Json) -> Any:
    kind, parts, size = _SPARSE[name], [decoder.array(i) for i in arrays], tuple(shape)
    if len(size) != 2 or not all(type(n) is int and n >= 0 for n in size):
        raise ValueError("a matrix of an odd shape")
    decoder.check_length(max(size))
    if name == "dia_array":
        return kind((parts[0], parts[1]), shape=size)
    if name == "coo_array":
        return kind((parts[0], (parts[1], parts[2])), shape=size)
    out = kind((parts[0], parts[1], parts[2]), shape=size, copy=False)
    out.check_format(full_check=True)
    out.has_sorted_indices = bool(in_order) and out.has_sorted_indices
    return out


def _moment(decoder: Decoder, kind: Json, i: Json, zone: Json) -> Any:
    pd, value = _pandas(), decoder.array(i).reshape(())[()]
    if kind == "Timedelta":
        return pd.Timedelta(value)
    out = pd.Timestamp(value)
    return out if zone is None else out.tz_localize("UTC").tz_convert(_zone(zone))


def _categorical(decoder: Decoder, codes: Json, categories: Json, ordered: Json) -> Any:
    pd = _pandas()
    return pd.Categorical.from_codes(decoder.array(codes), decoder.value(categories), ordered=bool(ordered))


def _categories(decoder: Decoder, values: Json, ordered: Json, dtype: Json = None) -> Any:
    pd, labels = _pandas(), decoder.value(values)
    if dtype is not None:  # files of before had an index here
        labels = pd.Index(labels, dtype=_dtype_name(dtype))
    return pd.CategoricalDtype(labels, bool(ordered))


def _ordinals(decoder: Decoder, i: Json, dtype: Json) -> Any:
    pd, values, name = _pandas(), decoder.array(i), _dtype_name(dtype)
    if name.startswith("period"):
        return pd.arrays.PeriodArray(values, dtype=pd.PeriodDtype(name[7:-1]))
    made = pd.DatetimeTZDtype.construct_from_string(name)
    return pd.DatetimeIndex(values.view(f"M8[{made.unit}]")).tz_localize("UTC").tz_convert(made.tz).array


def _filled(decoder: Decoder, values: Json, dtype: Json) -> Any:
    made = decoder.value(values)
    if not isinstance(made, np.ndarray) or made.ndim != 1:
        raise ValueError("a column is no array")
    decoder.spend(made.nbytes)
    pd = _pandas()
    return pd.array(made, dtype=made.dtype if dtype is None else _dtype_name(dtype))


def _frame(decoder: Decoder, columns: Json, index: Json, values: Json) -> Any:
    pd, names, rows = _pandas(), decoder.value(columns), decoder.value(index)
    made = decoder.values(values)
    if len(made) != len(names) or any(not _is_column(pd, one) or len(one) != len(rows) for one in made):
        raise ValueError("a table whose columns differ in length")
    decoder.spend(sum(one.nbytes for one in made))
    out = pd.DataFrame(dict(enumerate(made)), index=rows, copy=False)
    return out.set_axis(names, axis=1)


def _index(decoder: Decoder, values: Json, name: Json) -> Any:
    return _pandas().Index(decoder.value(values), name=decoder.value(name))


def _series(decoder: Decoder, values: Json, index: Json, name: Json) -> Any:
    pd, column, rows = _pandas(), decoder.value(values), decoder.value(index)
    if not _is_column(pd, column) or len(column) != len(rows):
        raise ValueError("a column whose rows differ in number")
    return pd.Series(column, index=rows, name=decoder.value(name))


def _is_column(pd: Any, x: Any) -> bool:
    return isinstance(x, (np.ndarray, pd.api.extensions.ExtensionArray)) and x.ndim == 1


def _levels(decoder: Decoder, levels: Json, names: Json) -> Any:
    pd, made = _pandas(), decoder.values(levels)
    if not all(_is_column(pd, one) for one in made):
        raise ValueError("an index of something else")
    decoder.spend(4 * sum(one.nbytes for one in made))
    return pd.MultiIndex.from_arrays(made, names=decoder.values(names))


BUILDERS: dict[str, Callable[..., Any]] = {
    "dtype": _numpy_dtype,
    "sparse": _sparse,
    "timedelta": lambda decoder, *parts: datetime.timedelta(*parts),
    "datetime": lambda decoder, text: datetime.datetime.fromisoformat(text),
    "date": lambda decoder, text: datetime.date.fromisoformat(text),
    "moment": _moment,
    "period": _period,
    "missing": lambda decoder, word: _pandas().NaT if word == "NaT" else _pandas().NA,
    "frame": _frame,
    "series": _series,
    "index": _index,
    "indices": _levels,
    "column": _filled,
    "categorical": _categorical,
    "ordinals": _ordinals,
    "categories": _categories,
    "pandas-dtype": lambda decoder, text: _pandas().api.types.pandas_dtype(_dtype_name(text)),
}
