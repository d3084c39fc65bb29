"""The levels of an effect: names of regions from the graph, regular times, sorted labels.

A level is any hashable value; 3 and 3.0 are the same one. Their order is that of the graph's nodes, or time's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import numeric, optional, problem
from ..gmrf import as_adjacency
from ..gmrf.graphs import edge_tuples

_SPARSEST = 100  # steps without data to a step with data: beyond it the numbers count something finer than steps


def values(column: Any) -> list[Any]:
    """A column as a list of plain values: dates as Timestamps, numbers as Python's own."""
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


def listed(where: str, name: Any, levels: Any) -> list[Any]:
    """The user's own levels, each once."""
    out = values(levels) if hasattr(levels, "dtype") else list(levels)
    if len(set(out)) < len(out):
        twice = next(level for i, level in enumerate(out) if level in out[:i])
        raise problem(where, f"levels[{name!r}] names {twice!r} twice", "each level once")
    return out


def shown(levels: list[Any]) -> str:
    """A few of them."""
    if len(levels) <= 4:
        return ", ".join(repr(level) for level in levels)
    return f"{levels[0]!r}, {levels[1]!r}, ..., {levels[-1]!r}"


def sort_of(value: Any) -> str | None:
    """Text, numbers, dates, or something else."""
    if isinstance(value, (str, bytes)):
        return "text"
    if isinstance(value, (Number, np.bool_)):
        return "numbers"
    return "dates" if hasattr(value, "isoformat") or hasattr(value, "to_timestamp") else None


def mismatch(name: Any, value: Any, levels: list[Any]) -> tuple[str, str] | None:
    """What the levels are and how to turn ``value`` into one, where all of them are of another sort; None elsewhere."""
    mine, theirs = sort_of(value), {sort_of(level) for level in levels}
    sort = next(iter(theirs)) if len(theirs) == 1 else None
    if mine is None or sort is None or mine == sort:
        return None
    cure = ""
    if sort == "text":
        cure = f"X[{name!r}]{'.astype(int)' if isinstance(value, float) and value == int(value) else ''}.astype(str)"
    elif mine == "text" and sort == "numbers":
        whole = all(isinstance(level, Number) and level == int(level) for level in levels)  # type: ignore[call-overload]
        cure = f"X[{name!r}].astype({'int' if whole else 'float'})"
    elif mine == "text":
        cure = f"pandas.to_datetime(X[{name!r}])"
    return sort, f"{cure} makes {sort} of it." if cure else ""


# -- graphs ----------------------------------------------------------------------------------------------
def graph_of(where: str, name: Any, graph: Any, levels: list[Any] | None, column: Any = ()) -> tuple[Any, list[Any]]:
    """The adjacency matrix and its nodes' names: the user's, the graph's own, or 0, 1, ...

    A name that is only ever a neighbour, and not in the ``column`` of the data, is warned of.
    """
    own: list[Any] | None = None
    _no_outlines(where, name, graph)
    pairs = edge_tuples(graph)
    numbered = pairs is not None and all(isinstance(end, Number) for edge in pairs for end in edge)
    if pairs is not None and (not numbered or (levels and all(isinstance(level, Number) for level in levels))):  # names
        graph = {level: [] for level in levels or ()}
        for a, b in pairs:
            graph.setdefault(a, []).append(b)
    if isinstance(graph, Mapping):  # name -> neighbours
        graph = {region: _neighbours(where, name, region, near) for region, near in graph.items()}
        own = list(dict.fromkeys([*graph, *(b for near in graph.values() for b in near)]))
        if levels is not None and set(own) != set(levels) and set(own) != set(range(len(own))):
            odd = next(level for level in [*own, *levels] if (level in own) != (level in levels))
            of, by = ("the graph", f"levels[{name!r}]") if odd in own else (f"levels[{name!r}]", "the graph")
            raise problem(where, f"{of} names {odd!r}, which {by} does not", "the same names in both")
        if levels is None:
            _warn_of_strangers(where, name, own, {*values(column), *(graph if pairs is None else ())})
        place = {node: i for i, node in enumerate(own)}
        edges = [(place[a], place[b]) for a, near in graph.items() for b in near]
        A = as_adjacency(edges or sp.csr_array((len(own), len(own))), len(own))
    elif hasattr(graph, "columns") and hasattr(graph, "index"):  # a pandas frame
        own = list(graph.index)
        if list(graph.columns) != own:
            raise problem(where, f"the adjacency of {name!r} has other columns than rows", "one order of names in both")
        A = as_adjacency(numeric(where, f"the adjacency of {name!r}", graph))
    else:
        for attribute in ("id_order", "unique_ids", "nodes"):  # libpysal's W and Graph, networkx
            if hasattr(graph, attribute):
                own = list(getattr(graph, attribute))
                break
        shape: tuple[int, ...] = np.shape(graph) if own is None else ()
        if levels is None and len(shape) == 2 and (pairs is not None or shape[1] == 2 != shape[0]):
            advice = f"levels={{{name!r}: range(n)}} says how many there are, and what they are called."
            raise problem(where, f"the graph of {name!r} is a list of {shape[0]} edges", "its nodes as well", advice)
        A = as_adjacency(graph, None if levels is None else len(levels))
    n = A.shape[0]
    if levels is not None and own is not None and set(levels) == set(own):  # the same names in another order
        levels = own
    if levels is not None and len(levels) != n:
        raise problem(where, f"levels[{name!r}] has {len(levels)} entries and the graph {n} nodes", "one name a node")
    return A, levels if levels is not None else own if own is not None else list(range(n))


def _no_outlines(where: str, name: Any, graph: Any) -> None:
    """Refuse GeoJSON and geopandas frames: districts as they look, not who borders whom."""
    geojson = isinstance(graph, Mapping) and isinstance(graph.get("type"), str) and {*graph} & set(_GEOJSON)
    if geojson or hasattr(graph, "geometry"):
        got = f"the graph of {name!r} holds outlines, not neighbours"
        frame = "geopandas.GeoDataFrame.from_features(geojson)" if geojson else "frame"
        advice = f"libpysal.graph.Graph.build_contiguity({frame}.set_index(...)) finds who borders whom."
        raise problem(where, got, "{region: [its neighbours]} or an adjacency matrix", advice)


_GEOJSON = ("features", "geometry", "geometries", "coordinates")


def _neighbours(where: str, name: Any, region: Any, near: Any) -> list[Any]:
    got = f"in the graph of {name!r} the neighbours of {region!r} are {near!r}"
    if isinstance(near, (str, bytes)) or not isinstance(near, Iterable):
        raise problem(where, got, "a list of neighbours", "" if near is None else f"Write {{{region!r}: [{near!r}]}}.")
    out = list(near)  # an iterator can be read once
    for other in out:
        if not getattr(other, "__hash__", None) or not present(other):
            raise problem(where, f"in the graph of {name!r} a neighbour of {region!r} is {other!r}", "a region's name")
    return out


def _warn_of_strangers(where: str, name: Any, own: list[Any], known: set[Any]) -> None:
    strangers = [node for node in own if node not in known]
    if strangers:
        message = (
            f"{where}: the graph of {name!r} names {shown(strangers)} only beside others, and X[{name!r}] does not. If "
            f"it is no misspelling of another region, levels={{{name!r}: [...]}} with every region says so."
        )
        warnings.warn(message, UserWarning, stacklevel=2)


def counted_from_one(where: str, name: Any, column: Any, n: int) -> None:
    """Refuse ids of an unnamed graph that may be 1, ..., n as well as 0, ..., n-1; warn where that is less likely."""
    found = {v for v in values(column) if isinstance(v, (int, float)) and not isinstance(v, bool) and present(v)}
    if not found or min(found) < 1 or max(found) > n:  # 0 is among them; or a value that is unknown in any case
        return
    ways = f"levels={{{name!r}: range({n})}} or range(1, {n + 1})"
    what = f"the nodes of {name!r} have no names, and its ids are {min(found):g} to {max(found):g} without a 0"
    if min(found) == 1:
        raise problem(where, what, f"ids that say whether {n} nodes are counted from 0 or from 1", f"Say it: {ways}.")
    message = f"{where}: {what}: they are taken as counted from 0. To say how they are counted, {ways}."
    warnings.warn(message, UserWarning, stacklevel=2)


# -- time and labels -------------------------------------------------------------------------------------
def inferred(where: str, name: Any, column: Any, in_time: bool) -> list[Any]:
    """The levels of a column: every step from the first time to the last, or the labels in order."""
    categories = getattr(getattr(column, "dtype", None), "categories", None)
    if categories is not None:
        return list(categories)
    found = [value for value in dict.fromkeys(values(column)) if present(value)]
    if not found:
        raise problem(where, f"the column {name!r} is empty", "at least one level")
    if in_time:
        return _times(where, name, found)
    try:
        return sorted(found)
    except TypeError:  # labels of several kinds
        return sorted(found, key=lambda value: (str(type(value)), str(value)))


def _times(where: str, name: Any, found: list[Any]) -> list[Any]:
    advice = f"Say which times the effect steps through: levels={{{name!r}: ...}}."
    if all(isinstance(value, (bool, int, float)) for value in found):
        times = np.sort(np.array(found, dtype=np.float64))
        if (times == np.floor(times)).all() and np.ptp(times) < _SPARSEST * (100 + times.size):
            return list(range(int(times[0]), int(times[-1]) + 1))
        if _regular(np.diff(times)):
            return times.tolist()
        raise problem(where, f"the times {name!r} are not equally spaced", "a regular grid", advice)
    if hasattr(found[0], "ordinal") and hasattr(found[0], "freq"):  # pandas Periods
        return list(optional(where, "pandas").period_range(min(found), max(found)))
    if hasattr(found[0], "timestamp"):
        return _dates(where, name, optional(where, "pandas").DatetimeIndex(sorted(found)))
    got = f"the column {name!r} holds {found[0]!r}, which has no place in time"
    raise problem(where, got, "numbers or dates", advice)


def _dates(where: str, name: Any, dates: Any) -> list[Any]:
    """Every step from the first date to the last: whole months, or the shortest gap where all are its multiples."""
    pd = optional(where, "pandas")
    ends = len(set(dates.day)) > 1 and bool(dates.is_month_end.all())
    whole = ends or len(set(dates.day)) == 1  # months, quarters, years
    months = np.diff(np.asarray(12 * dates.year + dates.month, dtype=np.int64))
    gaps, filled = np.diff(dates.asi8), dates
    if _regular(gaps.astype(np.float64)) or (whole and _regular(months.astype(np.float64))):
        return list(dates)
    first_to_last = f"X[{name!r}].min(), X[{name!r}].max()"
    if whole and (months > 0).all():
        steps = range(0, int(months.sum()) + 1, int(np.gcd.reduce(months)))
        later = [dates[0] + (pd.offsets.MonthEnd(k) if ends else pd.DateOffset(months=k)) for k in steps[1:]]
        filled = pd.DatetimeIndex([dates[0], *later])
    elif (gaps % gaps.min() == 0).all() and gaps.sum() < _SPARSEST * (100 + dates.size) * gaps.min():
        step = (dates[1:] - dates[:-1]).min()
        filled = pd.date_range(dates[0], dates[-1], freq=step)
        if step == pd.Timedelta(days=1) and (dates.day_of_week < 5).all() and (filled.day_of_week >= 5).sum() > 1:
            got = f"the dates {name!r} have gaps, and none is a Saturday or Sunday"
            advice = f"levels={{{name!r}: pandas.bdate_range({first_to_last})}}, or date_range, says which."
            raise problem(where, got, "working days or all days", advice)
    if filled is dates or not dates.isin(filled).all():  # no step at all, or other times of day
        advice = f"levels={{{name!r}: pandas.date_range({first_to_last}, freq=...)}} says the step, such as 'D' or 'h'."
        raise problem(where, f"the dates {name!r} are not equally spaced", "a regular calendar", advice)
    return list(filled)


def _regular(gaps: np.ndarray) -> bool:
    return gaps.size == 0 or bool(np.ptp(gaps) <= 1e-6 * gaps.max())


# -- a single series -------------------------------------------------------------------------------------
def times_of(where: str, X: Any) -> np.ndarray:
    """Times (N,), numbers or datetime64, from a vector, a column or a frame of one column."""
    out = np.asarray(X)
    out = out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out
    if out.ndim != 1:
        raise problem(where, f"X has shape {out.shape}", "times (N,) or (N, 1)", "Several series are several fits.")
    if out.dtype.kind not in "biufM":
        pd = optional(where, "pandas")
        dates = [date.to_timestamp() if hasattr(date, "to_timestamp") else date for date in out]  # Periods too
        try:
            out = np.asarray(pd.to_datetime(dates, utc=True).tz_localize(None))
        except (TypeError, ValueError):
            raise problem(where, f"X[0] = {out[0]!r} is no time", "numbers or dates") from None
    bad = np.isnat(out) if out.dtype.kind == "M" else ~np.isfinite(out.astype(np.float64))
    if bad.any():
        raise problem(where, f"X[{int(np.argmax(bad))}] is missing", "a time in every row")
    return out


def increasing(where: str, times: np.ndarray) -> None:
    """Refuse times that stand still or go back."""
    late = np.flatnonzero(~(times[1:] > times[:-1]))
    if late.size:
        i = int(late[0]) + 1
        got = f"X[{i}] = {times[i]} does not come after X[{i - 1}] = {times[i - 1]}"
        raise problem(where, got, "increasing times", "Sort the rows; a missing return is a row with NaN.")


def steps_of(where: str, known: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The step of each time, 0 the first known one; beyond the known ones on a regular grid only."""
    if (times.dtype.kind == "M") != (known.dtype.kind == "M"):
        raise problem(where, f"X holds {times.dtype} and fit had {known.dtype}", "the same kind of time")
    place = np.clip(np.searchsorted(known, times), 0, known.size - 1)
    beyond = known[place] != times
    if not beyond.any():
        return place
    gaps = np.diff(known)
    step = ((times - known[0]) / gaps[0]).astype(np.float64)
    if not _regular((gaps / gaps[0]).astype(np.float64)) or (np.abs(step - np.round(step)) > 1e-6).any():
        advice = "Use forecast(steps) for what comes after the last return."
        raise problem(where, f"X holds {times[beyond][0]}, which is no time of the fit", "times of the fit", advice)
    return np.round(step).astype(np.int64)
