"""Values of a statement as json and arrays, and back.

    null, true, 3, 0.5, "text"                      themselves
    ["list", ...], ["dict", [key, value], ...]      containers; so are tuple, set and frozenset
    ["array", 3]                                    array 3 of the archive, which no other value uses
    ["made", word, [argument, ...], {option: ...}, [result of a search, ...]]       a statement
    ["frame", ...], ["sparse", ...], ["Timestamp", ...]                             tables, matrices and dates

A file is a tree: no value refers to another, so that none can be made twice or hold itself.
"""

from __future__ import annotations

import datetime
import math
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from .archive import KINDS
from .statements import SharedRows, Statement, cannot_save, made, statement_of

Json = Any
_CONTAINERS: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_FLOATS = ("nan", "inf", "-inf")  # that json lacks
_SPARSE = {kind.__name__: kind for kind in (sp.csr_array, sp.csc_array, sp.coo_array, sp.dia_array)}
_MATRICES = {"csr_matrix": "csr_array", "csc_matrix": "csc_array", "coo_matrix": "coo_array", "dia_matrix": "dia_array"}
_KERNELS = (  # of scikit-learn, each made of its get_params
    *("CompoundKernel", "ConstantKernel", "DotProduct", "ExpSineSquared", "Exponentiation", "Matern", "Product", "RBF"),
    *("RationalQuadratic", "Sum", "WhiteKernel"),
)
_KERNEL_MODULE = "sklearn.gaussian_process.kernels"
_ZONE = re.compile(  # Europe/Berlin, UTC+01:00; dateutil/... would be the path of a file
    r"(?!dateutil)[A-Za-z][\w+-]*(/[\w+-]+){0,2}|UTC[+-]\d\d:\d\d(:\d\d)?|pytz\.FixedOffset\(-?\d+\)", re.ASCII
)
_DTYPE = re.compile(  # of columns, by pandas' names
    r"object|bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)|(datetime|timedelta)64\[\w+\]"
    r"|(Int|UInt)(8|16|32|64)|Float(32|64)|boolean|str|string(\[\w+\])?|[\w ]{1,20}(\[\w+\])?\[pyarrow\]"
    r"|interval\[[\w, -]+\]|Sparse\[\w+, [\w.-]+\]",
    re.ASCII,
)
_FREQUENCY = re.compile(r"[\w-]{1,20}", re.ASCII)


# -- to json ------------------------------------------------------------------------------------------------
class Encoder:
    """Makes json of values, and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._inside: list[int] = []  # ids of what is being written

    def value(self, x: Any, where: str) -> Json:
        """A value as json; ``where`` is its place, for messages."""
        if x is None or type(x) in (bool, int, str):
            return x
        if type(x) is float:
            return x if math.isfinite(x) else [str(x)]
        if id(x) in self._inside:
            raise cannot_save(x, where)
        self._inside.append(id(x))
        out = self._node(x, where)
        self._inside.pop()
        return out

    def values(self, xs: Any, where: str) -> list[Json]:
        """Several values."""
        return [self.value(x, f"{where}[{i}]") for i, x in enumerate(xs)]

    def array(self, x: Any) -> int:
        """The place of an array among the arrays."""
        self.arrays.append(np.asarray(x))
        return len(self.arrays) - 1

    def _node(self, x: Any, where: str) -> Json:
        kind = type(x)
        word = kind.__name__
        if isinstance(x, Statement):
            return self._statement(x, where)
        if isinstance(x, SharedRows):
            return self.value(x.table(), where)
        if _CONTAINERS.get(word) is kind:
            return [word, *self.values(sorted(x, key=repr) if word in ("set", "frozenset") else x, where)]
        if isinstance(x, dict):
            return ["dict", *([self.value(k, where), self.value(v, f"{where}[{k!r}]")] for k, v in x.items())]
        if isinstance(x, np.ndarray):
            return self._array(x, where)
        if isinstance(x, np.generic) and x.dtype.kind in KINDS:
            return ["scalar", self.array(x)]
        if kind is range:
            return ["range", x.start, x.stop, x.step]
        statement = statement_of(x)
        if statement is not None:
            return self._statement(statement, where)
        if kind.__module__ == _KERNEL_MODULE and word in _KERNELS:
            return ["kernel", word, self.value(x.get_params(deep=False), where)]
        if sp.issparse(x):
            return self._sparse(x, where)
        if hasattr(x, "__geo_interface__"):  # outlines of geopandas and shapely, as GeoJSON
            return self.value(x.__geo_interface__, where)
        if kind.__module__ == "datetime" and getattr(x, "tzinfo", None) is None:
            return self._calendar(x, where)
        out = self._of_pandas(x, where)
        if out is None:
            raise cannot_save(x, where)
        return out

    def _statement(self, x: Statement, where: str) -> Json:
        options = {name: self.value(value, f"{where}.{name}") for name, value in x.options.items()}
        found = [self.value(each, where) for each in x.found]
        return ["made", x.word, self.values(x.arguments, where), options, found]

    def _array(self, x: np.ndarray, where: str) -> Json:
        if np.ma.isMaskedArray(x):
            return ["masked", self._array(x.data, where), self.array(np.ma.getmaskarray(x))]
        if x.dtype.kind in KINDS:
            return ["array", self.array(x)]
        if x.dtype.kind != "O":
            raise cannot_save(x, where)
        return ["objects", list(x.shape), self.values(x.ravel().tolist(), where)]

    def _sparse(self, x: Any, where: str) -> Json:
        name = _MATRICES.get(type(x).__name__, type(x).__name__)
        x = x if name in _SPARSE else x.tocsr()
        name = name if name in _SPARSE else "csr_array"
        parts = {"dia_array": ("data", "offsets"), "coo_array": ("data", "row", "col")}
        return ["sparse", name, list(x.shape), *(self.array(getattr(x, p)) for p in parts.get(name, _COMPRESSED))]

    def _calendar(self, x: Any, where: str) -> Json:
        if type(x) is datetime.timedelta:
            return ["timedelta", x.days, x.seconds, x.microseconds]
        if type(x) not in (datetime.datetime, datetime.date):
            raise cannot_save(x, where)
        return [type(x).__name__, x.isoformat()]

    def _of_pandas(self, x: Any, where: str) -> Json | None:
        pd = sys.modules.get("pandas")
        if pd is None:
            return None
        if x is pd.NaT or x is pd.NA:
            return ["missing", "NaT" if x is pd.NaT else "NA"]
        if isinstance(x, (pd.Timestamp, pd.Timedelta)):
            zone = None if getattr(x, "tz", None) is None else str(x.tz)
            return [type(x).__name__, self.array(x.to_numpy()), zone]
        if isinstance(x, pd.Period):
            return ["period", x.ordinal, x.freqstr]
        if isinstance(x, pd.DataFrame):
            columns = [self._column(x.iloc[:, i].array, f"{where}[{name!r}]") for i, name in enumerate(x.columns)]
            return ["frame", self.value(x.columns, where), self.value(x.index, where), columns]
        if isinstance(x, pd.Series):
            return ["series", self._column(x.array, where), self.value(x.index, where), self.value(x.name, where)]
        if isinstance(x, pd.MultiIndex):
            levels = [self._column(x.get_level_values(k).array, where) for k in range(x.nlevels)]
            return ["levels", levels, self.values(x.names, where)]
        if isinstance(x, pd.RangeIndex):
            return ["counter", x.start, x.stop, x.step, self.value(x.name, where)]
        if isinstance(x, pd.Index):
            return ["index", self._column(x.array, where), self.value(x.name, where)]
        if isinstance(x, pd.api.extensions.ExtensionArray):
            return self._column(x, where)
        if hasattr(x, "to_pandas"):  # a table of polars or pyarrow
            return self.value(x.to_pandas(), where)
        return None

    def _column(self, x: Any, where: str) -> Json:
        """A column of a table: an extension array of pandas."""
        dtype = str(x.dtype)
        if dtype == "category":
            return ["categorical", self.array(x.codes), self.value(x.categories, where), bool(x.ordered)]
        if dtype.startswith("period["):
            return ["periods", self.array(x.asi8), x.freqstr]
        if dtype.startswith("datetime64[") and getattr(x, "tz", None) is not None:
            return ["moments", self.array(x.asi8.view(f"M8[{x.unit}]")), str(x.tz)]
        if isinstance(x.dtype, np.dtype) or type(x).__name__ == "NumpyExtensionArray":
            return ["column", self.value(np.asarray(x), where), None]
        if not _DTYPE.fullmatch(dtype):
            raise cannot_save(x, where)
        return ["column", self.value(np.asarray(x, dtype=object), where), dtype]


_COMPRESSED = "data", "indices", "indptr"


# -- from json ----------------------------------------------------------------------------------------------
class Decoder:
    """Makes values of json. Whatever is not as ``Encoder`` writes it is a ValueError, TypeError or KeyError."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self._arrays: list[np.ndarray | None] = list(arrays)
        self.size = sum(array.nbytes for array in arrays)

    def value(self, node: Json) -> Any:
        """The value of a node."""
        if type(node) is not list:
            if type(node) is dict:
                raise ValueError("it has an object of json where a value is")
            return node
        if node and node[0] in _FLOATS and len(node) == 1:
            return float(node[0])
        word, *parts = node
        builder = BUILDERS.get(word) if type(word) is str else None
        if builder is None:
            raise ValueError(f"it names {str(word)[:60]!r}")
        return builder(self, *parts)

    def values(self, nodes: Json) -> list[Any]:
        """The values of several nodes."""
        if type(nodes) is not list:
            raise ValueError("it has something else where a list is")
        return [self.value(node) for node in nodes]

    def array(self, i: Json) -> np.ndarray:
        """An array of the archive, which nothing else has taken."""
        if type(i) is not int or not 0 <= i < len(self._arrays):
            raise ValueError(f"there is no array {str(i)[:20]}")
        out, self._arrays[i] = self._arrays[i], None
        if out is None:
            raise ValueError(f"two values are array {i}")
        return out

    def length(self, n: Json) -> int:
        """A length that is no more than the file has bytes: what is made of it is no larger than the file."""
        if type(n) is not int or not 0 <= n <= max(self.size, 10_000):
            raise ValueError(f"a length of {str(n)[:20]}")
        return n


def _statement(decoder: Decoder, word: Json, arguments: Json, options: Json, found: Json) -> Any:
    if type(word) is not str or type(options) is not dict or type(found) is not list:
        raise ValueError("a statement is odd")
    results = decoder.values(found)
    if not all(type(each) is dict for each in results):
        raise ValueError("a result of a search is odd")
    given = {name: decoder.value(node) for name, node in options.items()}
    return made(Statement(word, tuple(decoder.values(arguments)), given, results))


def _dict(decoder: Decoder, *pairs: Json) -> dict[Any, Any]:
    return {decoder.value(key): decoder.value(value) for key, value in pairs}


def _range(decoder: Decoder, start: Json, stop: Json, step: Json) -> range:
    if not all(type(each) is int for each in (start, stop, step)):
        raise ValueError("a range of something else")
    out = range(start, stop, step)
    decoder.length(len(out))
    return out


def _objects(decoder: Decoder, shape: Json, values: Json) -> np.ndarray:
    items = decoder.values(values)
    if not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) != len(items):
        raise ValueError("an array of an odd shape")
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out.reshape(shape)


def _kernel(decoder: Decoder, name: Json, options: Json) -> Any:
    if name not in _KERNELS:
        raise ValueError(f"there is no kernel {str(name)[:40]!r}")
    from sklearn.gaussian_process import kernels

    return getattr(kernels, name)(**decoder.value(options))


def _sparse(decoder: Decoder, name: Json, shape: Json, *arrays: Json) -> Any:
    parts, size = [decoder.array(i) for i in arrays], tuple(map(decoder.length, shape))
    if len(size) != 2:
        raise ValueError("a matrix of an odd shape")
    kind = _SPARSE[name]
    if name == "dia_array":
        return kind((parts[0], parts[1]), shape=size)
    if name == "coo_array":
        return kind((parts[0], (parts[1], parts[2])), shape=size)
    out = kind((parts[0], parts[1], parts[2]), shape=size, copy=False)
    out.check_format(full_check=True)
    return out


def _pandas() -> Any:
    import pandas as pd

    return pd


def _zone(text: Json) -> str:
    """The name of a time zone; a path to a file of one is refused."""
    if type(text) is not str or not _ZONE.fullmatch(text):
        raise ValueError(f"there is no time zone {str(text)[:40]!r}")
    return text


def _timestamp(decoder: Decoder, i: Json, zone: Json) -> Any:
    out = _pandas().Timestamp(decoder.array(i).reshape(())[()])
    return out if zone is None else out.tz_localize("UTC").tz_convert(_zone(zone))


def _frequency(text: Json) -> str:
    if type(text) is not str or not _FREQUENCY.fullmatch(text):
        raise ValueError("a period of something else")
    return text


def _period(decoder: Decoder, ordinal: Json, freq: Json) -> Any:
    if type(ordinal) is not int:
        raise ValueError("a period of something else")
    return _pandas().Period(ordinal=ordinal, freq=_frequency(freq))


def _column(decoder: Decoder, values: Json, dtype: Json) -> Any:
    given = decoder.value(values)
    if type(given) is not np.ndarray or given.ndim != 1:
        raise ValueError("a column is no array")
    if dtype is not None and (type(dtype) is not str or not _DTYPE.fullmatch(dtype)):
        raise ValueError(f"there is no dtype {str(dtype)[:40]!r}")
    return _pandas().array(given, dtype=given.dtype if dtype is None else dtype)


def _categorical(decoder: Decoder, codes: Json, categories: Json, ordered: Json) -> Any:
    return _pandas().Categorical.from_codes(decoder.array(codes), decoder.value(categories), ordered=bool(ordered))


def _periods(decoder: Decoder, i: Json, freq: Json) -> Any:
    pd = _pandas()
    return pd.arrays.PeriodArray(decoder.array(i), dtype=pd.PeriodDtype(_frequency(freq)))


def _moments(decoder: Decoder, i: Json, zone: Json) -> Any:
    return _pandas().DatetimeIndex(decoder.array(i)).tz_localize("UTC").tz_convert(_zone(zone)).array


def _columns(decoder: Decoder, nodes: Json, rows: Any) -> list[Any]:
    """Columns of one length."""
    out = decoder.values(nodes)
    if any(getattr(one, "ndim", None) != 1 or len(one) != len(rows) for one in out):
        raise ValueError("a table whose columns differ in length")
    return out


def _frame(decoder: Decoder, columns: Json, index: Json, values: Json) -> Any:
    names, rows = decoder.value(columns), decoder.value(index)
    out = _pandas().DataFrame(dict(enumerate(_columns(decoder, values, rows))), index=rows, copy=False)
    return out.set_axis(names, axis=1)


def _series(decoder: Decoder, values: Json, index: Json, name: Json) -> Any:
    rows = decoder.value(index)
    (column,) = _columns(decoder, [values], rows)
    return _pandas().Series(column, index=rows, name=decoder.value(name))


def _counter(decoder: Decoder, start: Json, stop: Json, step: Json, name: Json) -> Any:
    return _pandas().RangeIndex(_range(decoder, start, stop, step), name=decoder.value(name))


def _levels(decoder: Decoder, levels: Json, names: Json) -> Any:
    first = decoder.value(levels[0])
    return _pandas().MultiIndex.from_arrays([first, *_columns(decoder, levels[1:], first)], names=decoder.values(names))


BUILDERS: dict[str, Callable[..., Any]] = {
    **{word: lambda decoder, *nodes, kind=kind: kind(map(decoder.value, nodes)) for word, kind in _CONTAINERS.items()},
    "dict": _dict,
    "array": lambda decoder, i: decoder.array(i),
    "scalar": lambda decoder, i: decoder.array(i).reshape(())[()],
    "objects": _objects,
    "masked": lambda decoder, values, i: np.ma.array(decoder.value(values), mask=decoder.array(i)),
    "range": _range,
    "made": _statement,
    "kernel": _kernel,
    "sparse": _sparse,
    "timedelta": lambda decoder, *parts: datetime.timedelta(*parts),
    "datetime": lambda decoder, text: datetime.datetime.fromisoformat(text),
    "date": lambda decoder, text: datetime.date.fromisoformat(text),
    "Timestamp": _timestamp,
    "Timedelta": lambda decoder, i, zone: _pandas().Timedelta(decoder.array(i).reshape(())[()]),
    "period": _period,
    "missing": lambda decoder, word: _pandas().NaT if word == "NaT" else _pandas().NA,
    "frame": _frame,
    "series": _series,
    "counter": _counter,
    "index": lambda decoder, values, name: _pandas().Index(decoder.value(values), name=decoder.value(name)),
    "levels": _levels,
    "column": _column,
    "categorical": _categorical,
    "periods": _periods,
    "moments": _moments,
}
