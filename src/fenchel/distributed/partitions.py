"""Rows in partitions: aligned columns of Dask collections, read a partition at a time, and sums over all of them.

A partitioned problem is described by what its rows have, by name, and by a function of one partition that answers with
what is added up. The function and what it is given travel to the rows; of the rows nothing travels back but its answer.

    >>> import dask.array as da, numpy as np
    >>> from fenchel.distributed import Partitions, Sums
    >>> rows = Partitions.of("mine", X=da.ones((10, 3), chunks=(4, 3)), y=np.arange(10.0))
    >>> def moments(block, power):
    ...     return Sums(n=block.n, total=float((block["y"] ** power).sum()))
    >>> rows.reduce(moments, 2)
    {'n': 10, 'total': 285.0}

A pass is one call of ``reduce``. Partitions hold no state between passes, so a partition whose worker is lost is read
and asked again, by itself, wherever Dask sees fit. Answers are added in pairs along a tree whose shape depends on how
many partitions there are and on nothing else, in one order whoever did the work. Whatever Dask is configured with does
it: the threads of this process, or a ``distributed.Client``, where a lost worker's tasks are repeated by another. A
table in memory is one partition (``InMemory``), and answers the same.

A column is a Dask array (dense, or with scipy.sparse blocks; unknown chunk sizes are fine), a Dask dataframe or series,
a list of delayed blocks, or, beside one of those, a plain array or a number, which is cut as the others are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..checks import optional, problem
from ..files import Stated, is_loading
from ..linalg.machine import cores, empty, side_by_side

_FAN = 8  # answers that one task adds; more make another level of the tree
_LOST = ("FutureCancelledError", "KilledWorker", "CommClosedError", "SchedulerClosedError", "ClosedClientError")
Work = Callable[..., Any]  # (block, *given) -> what is added up


class Sums(dict[Any, Any]):
    """Named sums. ``a + b`` adds what both have, key by key; what is None or missing in one is the other's.

    Examples
    --------
    >>> from fenchel.distributed import Sums
    >>> Sums(n=2, value=1.0) + Sums(n=3, value=0.5)
    {'n': 5, 'value': 1.5}
    """

    def __add__(self, other: Sums) -> Sums:
        out = Sums(self)
        for key, value in other.items():
            mine = out.get(key)
            out[key] = value if mine is None else mine if value is None else _sum_of(mine, value)
        return out


def _sum_of(one: Any, other: Any) -> Any:
    """Their sum; of large arrays in memory that was used before."""
    if type(one) is np.ndarray and type(other) is np.ndarray and one.shape == other.shape:
        return np.add(one, other, out=empty(*one.shape)) if one.dtype == other.dtype == np.float64 else one + other
    return one + other


class RowsElsewhere(Stated):
    """In the place of a Dask collection, in the call of a fit that is loaded: its rows are not in the file."""


class Block(dict[str, Any]):
    """The rows of one partition: its columns by name, as Dask holds them (numpy, pandas or scipy.sparse), or None.

    number : int
        Which partition it is.
    n : int
        How many rows it has.
    start : int
        Where its first row stands in the partition.
    """

    number: int
    n: int
    start: int = 0

    def stretches(self, rows: int) -> Iterator[Block]:
        """Its rows, at most so many at a time."""
        whole = {name: (_has_rows(x), _by_place(x)) for name, x in self.items()}
        for i in range(0, self.n, rows):
            j = min(self.n, i + rows)
            out = Block({name: x[i:j] if cut else x for name, (cut, x) in whole.items()})
            out.number, out.n, out.start = self.number, j - i, self.start + i
            yield out


@dataclass(frozen=True)
class Partitions:
    """Aligned columns in partitions. ``of`` makes one of what a user brings.

    Attributes
    ----------
    where : str
        Who asks, for sentences.
    parts : dict of str to list
        A delayed block for each partition, by column; None where a column was not given.
    names : dict of str to list
        The columns' names of the dataframes among them.
    kept : Path or None
        Where the checkpoint is, for the sentence of a cluster that goes away.
    """

    where: str
    parts: dict[str, list[Any]]
    names: dict[str, list[Any]] = field(default_factory=dict)
    kept: Path | None = None
    passes: list[int] = field(default_factory=lambda: [0])  # how often the rows were read

    @classmethod
    def of(cls, where: str, **columns: Any) -> Self:
        """From collections, by the name of what each is; at least one is of Dask's."""
        if is_loading():
            return cls(where, {})
        dask = optional(where, "dask")
        names = {name: list(x.columns) for name, x in columns.items() if _is_frame(x)}
        columns = columns | _side_by_side(columns)
        lead = next((name for name, x in columns.items() if is_partitioned(x)), None)
        if lead is None:
            raise problem(where, "nothing given is a collection of Dask's", "a Dask array or dataframe")
        sizes = next((known for x in columns.values() if (known := _sizes(x)) is not None), None)
        if sizes is None and any(_has_rows(x) and not is_partitioned(x) for x in columns.values()):
            first = _cut(where, lead, columns[lead], None)
            sizes = computed(where, [dask.delayed(rows_of)(part) for part in first])  # to cut a plain array by
        parts = {name: _cut(where, name, x, sizes) for name, x in columns.items() if _has_rows(x)}
        count = len(parts[lead])
        for name, part in parts.items():
            if len(part) != count:
                got = f"{name} has {len(part)} partitions and {lead} has {count}"
                raise problem(where, got, "partitions that hold the same rows", "Repartition one like the other.")
        for name, x in columns.items():
            parts.setdefault(name, [x] * count)  # None, or one number for all rows
        return cls(where, parts, names)

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return len(next(iter(self.parts.values())))

    def reduce(self, work: Work, *given: Any) -> Any:
        """The sum over all partitions of ``work(block, *given)``; an empty partition is not asked. One pass."""
        dask = optional(self.where, "dask")
        self.passes[0] += 1
        task, joined = dask.delayed(_asked, pure=False), dask.delayed(added, pure=False)
        shared = dask.delayed(given, pure=False, traverse=False)
        level = []
        for i in range(self.count):
            columns = {name: part[i] for name, part in self.parts.items()}
            level.append(task(work, self.where, i, columns, shared))
        while len(level) > 1:
            level = [joined(level[i : i + _FAN]) for i in range(0, len(level), _FAN)]
        out = computed(self.where, level[0], self.kept)
        if out is None:
            raise problem(self.where, "no partition has a row", "one row or more")
        return out


@dataclass(frozen=True)
class InMemory:
    """Rows in this process's memory, one partition: a sample of them, say.

    Attributes
    ----------
    pieces : int
        Into how many stretches they are cut, which the cores work on side by side.
    """

    where: str
    columns: dict[str, Any]
    pieces: int = 1

    def reduce(self, work: Work, *given: Any) -> Any:
        """``work(block, *given)`` of the rows."""
        if self.pieces == 1:
            return _asked(work, self.where, 0, self.columns, given)
        whole = Block(self.columns)
        whole.number, whole.n = 0, max(rows_of(x) for x in self.columns.values() if _has_rows(x))
        parts = whole.stretches(-(-whole.n // self.pieces))  # each knows where it starts
        return added(side_by_side([partial(work, part, *given) for part in parts], cores()))


def rows_of(column: Any) -> int:
    """How many rows a block has."""
    return int(np.shape(column)[0])


def _asked(work: Work, where: str, number: int, columns: Mapping[str, Any], given: tuple[Any, ...]) -> Any:
    """``work`` of one partition; the columns must have the same rows."""
    block = Block(columns)
    sizes = {name: rows_of(x) for name, x in columns.items() if _has_rows(x)}
    if len(set(sizes.values())) > 1:
        (first, n), (other, m) = next((a, b) for a in sizes.items() for b in sizes.items() if a[1] != b[1])
        got = f"in partition {number} {first} has {n} rows and {other} has {m}"
        raise problem(where, got, "partitions that hold the same rows", "Repartition one like the other.")
    block.number, block.n = number, next(iter(sizes.values()))
    return work(block, *given) if block.n else None


def added(parts: list[Any]) -> Any:
    """Answers added by halves, so that rounding grows with the logarithm of how many there are."""
    left = [part for part in parts if part is not None]
    while len(left) > 1:
        pairs = [left[i : i + 2] for i in range(0, len(left), 2)]
        left = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return left[0] if left else None


# -- columns ------------------------------------------------------------------------------------------------
def is_dask(value: object) -> bool:
    """Whether it is a collection of Dask's, told without importing Dask."""
    return any(cls.__module__.partition(".")[0] == "dask" for cls in type(value).__mro__) and hasattr(value, "dask")


def _is_frame(x: Any) -> bool:
    return is_dask(x) and hasattr(x, "columns") and x.ndim == 2  # a series of Dask's has columns too


def is_partitioned(x: Any) -> bool:
    """Whether it is in partitions: a collection of Dask's, or a list of delayed blocks."""
    return is_dask(x) or (isinstance(x, list | tuple) and bool(x) and all(is_dask(part) for part in x))


def _has_rows(x: Any) -> bool:
    """Whether it is more than one number for all rows."""
    return isinstance(x, list | tuple) or np.ndim(x) > 0


def _by_place(x: Any) -> Any:
    """What cuts rows of x by their places, also of a table of pandas or a sparse matrix of any format."""
    return x.tocsr() if hasattr(x, "tocsr") else getattr(x, "iloc", x)


def _side_by_side(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The dataframes and series among the columns as delayed blocks of one frame, where they can be put side by side.

    Each on its own would be read by itself, and narrow ones in fewer partitions than wide ones.
    """
    frames = {name: x for name, x in columns.items() if is_dask(x) and hasattr(x, "loc")}
    lead = next((name for name, x in frames.items() if _is_frame(x)), None)
    if lead is None or len(frames) < 2:
        return {}
    narrow = {}
    for name, x in frames.items():
        if _is_frame(x) and name != lead:
            if len(x.columns) != 1:
                return {}
            x = x[x.columns[0]]
        narrow[name] = x
    whole = narrow.pop(lead)
    added = {name: f"__fenchel_{name}" for name in narrow}
    try:
        parts = whole.assign(**{added[name]: x for name, x in narrow.items()}).to_delayed()
    except (ValueError, NotImplementedError):  # of other sources, whose rows nothing aligns
        return {name: list(x.to_delayed(optimize_graph=False)) for name, x in frames.items()}
    pick = optional("Partitions", "dask").delayed(_picked, pure=True)
    wanted = {lead: list(whole.columns)} | added
    return {name: [pick(part, what) for part in parts] for name, what in wanted.items()}


def _picked(frame: Any, what: Any) -> Any:
    return frame[what]


def _sizes(x: Any) -> list[int] | None:
    """The rows of each partition, where they are known."""
    chunks = getattr(x, "chunks", None) if is_dask(x) else None
    if not chunks or any(n != n for n in chunks[0]):
        return None
    return [int(n) for n in chunks[0]]


def _cut(where: str, name: str, x: Any, sizes: list[int] | None) -> list[Any]:
    """A delayed block for each partition; a plain array is cut by ``sizes``."""
    if not is_dask(x):
        return list(x) if is_partitioned(x) else _split(where, name, x, sizes or [])
    if not hasattr(x, "to_delayed"):
        raise problem(where, f"{name} is a {type(x).__name__} of Dask's", "a Dask array, dataframe or series")
    if not hasattr(x, "chunks"):
        return list(x.to_delayed())
    if x.ndim > 2:
        raise problem(where, f"{name} has {x.ndim} dimensions", "rows and columns")
    if x.ndim == 2 and len(x.chunks[1]) > 1:
        x = x.rechunk({1: -1})
    own = _sizes(x)
    if own is not None and sizes is not None and own != sizes:
        _check_rows(where, name, sum(own), sizes)
        x = x.rechunk({0: tuple(sizes)})
    return list(x.to_delayed().ravel())


def _split(where: str, name: str, x: Any, sizes: list[int]) -> list[Any]:
    _check_rows(where, name, rows_of(x), sizes)
    rows = np.asarray(x) if isinstance(x, list | tuple) else _by_place(x)
    return [rows[i:j] for i, j in pairwise(np.cumsum([0, *sizes]))]


def _check_rows(where: str, name: str, n: int, sizes: list[int]) -> None:
    if n != sum(sizes):
        raise problem(where, f"{name} has {n} rows", f"{sum(sizes)}, as the others have")


# -- the failures of a cluster ------------------------------------------------------------------------------
class Interrupted(RuntimeError):
    """The cluster was lost in the middle of a fit: what was written of it is whole, and the same call goes on."""


def computed(where: str, value: Any, kept: Path | None = None) -> Any:
    """The result of a delayed value; a cluster that cannot be reached is a sentence."""
    dask = optional(where, "dask")
    try:
        return dask.compute(value)[0]
    except (Exception, asyncio.CancelledError) as error:
        if not _of_cluster(error):
            raise
        message = str(error).strip().splitlines()
        why = f"{type(error).__name__}: {message[0][:160]}" if message else type(error).__name__
        if type(error).__name__ == "KilledWorker":
            what = f"a partition was lost with every worker that held it ({why})"
            advice = "Their memory is the usual reason: use smaller partitions, or workers with more of it."
        else:
            what, advice = f"the scheduler cannot be reached ({why})", "Start it again and call fit again."
        if kept is not None and kept.exists():
            advice += f" The fit so far is in {kept}: the same call goes on from there."
        raise Interrupted(f"{where}: {what}. {advice}") from error


def _of_cluster(error: BaseException) -> bool:
    """Whether it is the cluster's and not a task's: cancelled, lost, or of a connection that the last frame made."""
    if isinstance(error, CancelledError | asyncio.CancelledError) or type(error).__name__ in _LOST:
        return True
    if not isinstance(error, OSError | TimeoutError):
        return False
    trace, module = error.__traceback__, ""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return module.partition(".")[0] in ("distributed", "tornado", "asyncio")
