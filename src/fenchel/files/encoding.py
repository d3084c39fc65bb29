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
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from .archive import KINDS
from .statements import Statement, cannot_save, made, statement_of

Json = Any
_CONTAINERS: dict[str, type] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_FLOATS = ("nan", "inf", "-inf")  # that json lacks
_SPARSE = {"csr_array": sp.csr_array, "csc_array": sp.csc_array}
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
        """A value that is no number and no text: by its class or the nearest above it that has an entry."""
        for kind in type(x).__mro__:
            encode = _ENCODERS.get((kind.__module__.partition(".")[0], kind.__name__))
            if encode is not None:
                return encode(self, x, where)
        statement = statement_of(x)
        if statement is not None:
            return self._statement(statement, where)
        if sp.issparse(x):
            return self._sparse(x, where)
        if hasattr(x, "__geo_interface__"):  # outlines, as GeoJSON
            return self.value(x.__geo_interface__, where)
        if hasattr(x, "to_pandas"):  # a table of polars or pyarrow
            return self.value(x.to_pandas(), where)
        raise cannot_save(x, where)

    def _statement(self, x: Statement, where: str) -> Json:
        options = {name: self.value(value, f"{where}.{name}") for name, value in x.options.items()}
        found = [self.value(each, where) for each in x.found]
        return ["made", x.word, self.values(x.arguments, where), options, found]

    def _container(self, x: Any, where: str) -> Json:
        word, items = type(x).__name__, list(x)
        if type(x) is not _CONTAINERS.get(word):  # a named tuple is more than its items
            raise cannot_save(x, where)
        return [word, *self.values(sorted(items, key=repr) if word in ("set", "frozenset") else items, where)]

    def _dict(self, x: dict[Any, Any], where: str) -> Json:
        return ["dict", *([self.value(k, where), self.value(v, f"{where}[{k!r}]")] for k, v in x.items())]

    def _array(self, x: np.ndarray, where: str) -> Json:
        if np.ma.isMaskedArray(x):
            return ["masked", self._array(x.data, where), self.array(np.ma.getmaskarray(x))]
        if x.dtype.kind in KINDS:
            return ["array", self.array(x)]
        if x.dtype.kind != "O":
            raise cannot_save(x, where)
        return ["objects", list(x.shape), self.values(x.ravel().tolist(), where)]

    def _scalar(self, x: np.generic, where: str) -> Json:
        if x.dtype.kind not in KINDS:
            raise cannot_save(x, where)
        return ["scalar", self.array(x)]

    def _kernel(self, x: Any, where: str) -> Json:
        word = type(x).__name__
        statement = statement_of(x)
        if statement is not None:
            return self._statement(statement, where)
        if word not in _KERNELS or type(x).__module__ != _KERNEL_MODULE:
            raise cannot_save(x, where)
        return ["kernel", word, self.value(x.get_params(deep=False), where)]

    def _sparse(self, x: Any, where: str) -> Json:
        """By columns where it is so kept; every other form by rows."""
        name = "csc_array" if x.format == "csc" else "csr_array"
        x = _SPARSE[name](x)
        return ["sparse", name, list(x.shape), *map(self.array, (x.data, x.indices, x.indptr))]

    def _calendar(self, x: Any, where: str) -> Json:
        if type(x) is not datetime.date and (type(x) is not datetime.datetime or x.tzinfo is not None):
            raise cannot_save(x, where)
        return [type(x).__name__, x.isoformat()]

    # -- of pandas ---------------------------------------------------------------------------------
    def _timestamp(self, x: Any, where: str) -> Json:
        return ["Timestamp", self.array(x.to_numpy()), None if x.tz is None else str(x.tz)]

    def _frame(self, x: Any, where: str) -> Json:
        columns = [self._column(x.iloc[:, i].array, f"{where}[{name!r}]") for i, name in enumerate(x.columns)]
        return ["frame", self.value(x.columns, where), self.value(x.index, where), columns]

    def _series(self, x: Any, where: str) -> Json:
        return ["series", self._column(x.array, where), self.value(x.index, where), self.value(x.name, where)]

    def _levels(self, x: Any, where: str) -> Json:
        levels = [self._column(x.get_level_values(k).array, where) for k in range(x.nlevels)]
        return ["levels", levels, self.values(x.names, where)]

    def _column(self, x: Any, where: str) -> Json:
        """A column of a table: an extension array of pandas."""
        kind, dtype = type(x).__name__, str(x.dtype)
        if kind == "Categorical":
            return ["categorical", self.array(x.codes), self.value(x.categories, where), bool(x.ordered)]
        if kind == "PeriodArray":
            return ["periods", self.array(x.asi8), x.freqstr]
        if kind == "DatetimeArray" and x.tz is not None:
            return ["moments", self.array(x.asi8.view(f"M8[{x.unit}]")), str(x.tz)]
        if kind in ("NumpyExtensionArray", "DatetimeArray", "TimedeltaArray"):
            return ["column", self.value(np.asarray(x), where), None]
        if not _DTYPE.fullmatch(dtype):
            raise cannot_save(x, where)
        return ["column", self.value(np.asarray(x, dtype=object), where), dtype]


_ENCODERS: dict[tuple[str, str], Callable[[Encoder, Any, str], Json]] = {  # by package and name of a class
    ("fenchel", "Statement"): Encoder._statement,
    ("fenchel", "SharedRows"): lambda to, x, where: to.value(x.table(), where),
    **{("builtins", word): Encoder._container for word in _CONTAINERS},
    ("builtins", "dict"): Encoder._dict,
    ("builtins", "range"): lambda to, x, where: ["range", x.start, x.stop, x.step],
    ("numpy", "ndarray"): Encoder._array,
    ("numpy", "generic"): Encoder._scalar,
    ("sklearn", "Kernel"): Encoder._kernel,
    ("geopandas", "GeoDataFrame"): lambda to, x, where: to.value(x.__geo_interface__, where),
    ("geopandas", "GeoSeries"): lambda to, x, where: to.value(x.__geo_interface__, where),
    ("datetime", "timedelta"): lambda to, x, where: ["timedelta", x.days, x.seconds, x.microseconds],
    ("datetime", "date"): Encoder._calendar,
    ("pandas", "NaTType"): lambda to, x, where: ["missing", "NaT"],
    ("pandas", "NAType"): lambda to, x, where: ["missing", "NA"],
    ("pandas", "Timestamp"): Encoder._timestamp,
    ("pandas", "Timedelta"): lambda to, x, where: ["Timedelta", to.array(x.to_numpy()), None],
    ("pandas", "Period"): lambda to, x, where: ["period", x.ordinal, x.freqstr],
    ("pandas", "DataFrame"): Encoder._frame,
    ("pandas", "Series"): Encoder._series,
    ("pandas", "MultiIndex"): Encoder._levels,
    ("pandas", "RangeIndex"): lambda to, x, where: ["counter", x.start, x.stop, x.step, to.value(x.name, where)],
    ("pandas", "Index"): lambda to, x, where: ["index", to._column(x.array, where), to.value(x.name, where)],
    ("pandas", "ExtensionArray"): Encoder._column,
}


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
    data, indices, starts = (decoder.array(i) for i in arrays)
    size = tuple(map(decoder.length, shape))
    if len(size) != 2:
        raise ValueError("a matrix of an odd shape")
    out = _SPARSE[name]((data, indices, starts), shape=size, copy=False)
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
