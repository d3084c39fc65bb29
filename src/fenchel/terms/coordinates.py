"""Columns of coordinates, and what a user should know of them and of times: rows far from the others, degrees."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

import numpy as np

from ..gmrf.bulk import Bulk, bulk_of, gaps
from ..inputs.frames import DataColumn, DataTable, Kind

_DEGREES = ({"lon", "long", "lng", "longitude"}, {"lat", "latitude"})
_INSTEAD = {  # what to write over a column that holds something else
    Kind.TEXT: "A level for each of them is (1|g).",
    Kind.CATEGORIES: "A level for each of them is (1|g).",
    Kind.DATES: "rw1() and rw2() are smooth in time and take dates.",
}
_UNITS = 100.0  # times that one axis spans another, from which they may be in two units
_GLOBAL = 60.0  # degrees that coordinates span, from which no plane holds them
_STRAY = 0.1  # share of the rows above which times far from the others are another campaign, not a slip
_SKEWED = 0.95  # of a degree of latitude that one of longitude is, below which the two are different units


def numbers_of(table: DataTable, names: Sequence[Hashable]) -> np.ndarray:
    """Columns of numbers (N, d)."""
    columns = [table.column(name) for name in names]
    return np.stack([column.numbers(_INSTEAD.get(column.kind, "")) for column in columns], axis=1)


def coordinate_remarks(inputs: Sequence[Hashable], X: np.ndarray, bulk: Bulk, places: np.ndarray) -> list[str]:
    """Sentences about coordinates (N, d) that have one range; ``places`` (N,) are the numbers of the rows."""
    out = [far_rows(inputs, X, bulk, places), two_units(inputs, bulk), degrees(inputs, X[~bulk.far])]
    return [sentence for sentence in out if sentence is not None]


def spans_of(
    inputs: Sequence[Hashable], X: np.ndarray, shared: bool, places: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """How wide the bulk of coordinates (N, d) is, in all where one range is ``shared`` or by column, and remarks."""
    if shared:
        bulk = bulk_of(X)
        return np.array([bulk.extent]), coordinate_remarks(inputs, X, bulk, places)
    columns = [(name, X[:, [j]]) for j, name in enumerate(inputs)]
    bulks = [bulk_of(x) for _, x in columns]
    far = [far_rows([name], x, bulk, places) for (name, x), bulk in zip(columns, bulks, strict=True)]
    return np.array([bulk.extent for bulk in bulks]), [sentence for sentence in far if sentence is not None]


def far_rows(inputs: Sequence[Hashable], X: np.ndarray, bulk: Bulk, places: np.ndarray) -> str | None:
    """Which rows are far from the others; None where none is."""
    far = np.flatnonzero(bulk.far)
    if not far.size:
        return None
    low, high = X[~bulk.far].min(axis=0), X[~bulk.far].max(axis=0)
    gap, extent = gaps(X, low, high), float((high - low).max())
    i = int(np.argmax(gap))
    at = ", ".join(f"{name} = {value:.6g}" for name, value in zip(inputs, X[i], strict=True))
    times = f"{gap[i] / extent:.4g}"
    others = f"the other {len(X) - far.size} rows are wide ({extent:.3g})"
    check = "Check for a missing-value code or another unit"
    if far.size == 1:
        return f"row {places[i]} ({at}) lies {times} times as far away as {others}. {check}"
    least = f"{gap[far].min() / extent:.4g}"
    reach = f"{far.size} rows lie {least} to {times} times as far away as {others}"
    return f"{reach}, furthest row {places[i]} ({at}). {check}"


def far_times(column: DataColumn, places: np.ndarray) -> list[str]:
    """A sentence about a few rows whose time, a number, is far from all others; empty where there are none."""
    if column.kind is not Kind.NUMBERS:
        return []
    times = np.array([np.nan if value is None else value for value in column.values], dtype=np.float64)
    there = np.isfinite(times)
    X = times[there, None]
    if not len(X):
        return []
    bulk = bulk_of(X)
    sentence = far_rows([column.name], X, bulk, places[there]) if bulk.far.mean() <= _STRAY else None
    return [] if sentence is None else [sentence]


def two_units(inputs: Sequence[Hashable], bulk: Bulk) -> str | None:
    """Whether one axis spans so much more than another that their units may differ; None where it does not."""
    spans = bulk.high - bulk.low
    a, b = int(np.argmax(spans)), int(np.argmin(spans))
    if not spans[b] or spans[a] < _UNITS * spans[b]:
        return None
    return (
        f"{inputs[a]} spans {spans[a]:.3g} and {inputs[b]} {spans[b]:.3g}, but one range is learned for both. "
        "Check that they are in one unit"
    )


def degrees(inputs: Sequence[Hashable], X: np.ndarray) -> str | None:
    """What is wrong with coordinates that look like degrees, by their names and values; None where they do not."""
    if len(inputs) != 2:
        return None
    words = [{part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", str(name))} for name in inputs]
    order = next((o for o in ([0, 1], [1, 0]) if all(words[k] & _DEGREES[j] for j, k in enumerate(o))), None)
    if order is None:
        return None
    longitude, latitude = X[:, order[0]], X[:, order[1]]
    if np.abs(longitude).max() > 360.0 or np.abs(latitude).max() > 90.0:
        return None
    span = max(float(np.ptp(longitude)), float(np.ptp(latitude)))
    if span > _GLOBAL:
        return (
            f"the coordinates look like degrees and span {span:.0f} of them. Distances in a plane are not those along "
            "great circles: -180 and 180 are one meridian, and degrees of longitude shrink towards the poles"
        )
    middle = float(latitude.mean())
    share = float(np.cos(np.radians(middle)))
    if share > _SKEWED:
        return None
    return (
        f"the coordinates look like degrees. At latitude {middle:.0f} one of longitude is {share:.2f} of one of "
        "latitude, so that the range has no one unit: project them to kilometres first"
    )
