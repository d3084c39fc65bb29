"""What a model needs to know of rows that are out of memory: two passes over partitions, before the first fit.

    sketch     the columns, rows that show every level and every extreme, means of numbers, what is missing
    measure    y by its values, means and covariances of fixed columns and slopes, which latents rows touch together
               (``partition_reader.py``, by the parts of ``distributed/survey.py``)

Answers are of the size of the levels; they are added partition by partition, in order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..distributed import Block
from ..distributed.survey import ValueCounts
from ..inputs.frames import missing, used

if TYPE_CHECKING:
    import pandas as pd

MOST_VALUES = 100_000  # different values of y, or of x with knots at its quantiles, that are counted one by one
SOME = 64  # different values of x that are enough for a basis on equal steps


# -- the first pass -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TableRequest:
    """What the first pass looks for.

    Attributes
    ----------
    names : the columns that the model uses
    needed : those of them without which a row is left out
    keys : columns, or several together, of which every value is to be seen
    counted : columns of numbers of which every value is to be seen, and which have no more than ``MOST_VALUES``
    some : columns of numbers of which ``SOME`` values are to be seen
    weights : the column that says how often a row was seen, if there is one
    """

    names: tuple[Hashable, ...]
    needed: tuple[Hashable, ...]
    keys: tuple[tuple[Hashable, ...], ...]
    counted: tuple[Hashable, ...] = ()
    some: tuple[Hashable, ...] = ()
    weights: Hashable = None


@dataclass(frozen=True)
class TableSketch:
    """What the first pass found.

    Attributes
    ----------
    n, kept : rows, and those in which nothing is missing
    lost : how many rows each column is missing in
    sketch : rows that have every value of the keys, and the lowest and highest of every number; categories as values
    categories : of categorical columns, in the order in which partitions have them, with whether they are ordered
    means : of columns of numbers over the rows that are kept, by their weights
    weight : the sum of the weights
    """

    n: int
    kept: int
    lost: dict[Hashable, int]
    sketch: pd.DataFrame
    categories: dict[Hashable, tuple[list[Any], bool]]
    means: dict[Hashable, float]
    weight: float
    request: TableRequest = field(repr=False)

    def __add__(self, other: TableSketch) -> TableSketch:
        import pandas as pd

        lost = {k: self.lost.get(k, 0) + other.lost.get(k, 0) for k in (*self.lost, *other.lost)}
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        means = {}
        for k in dict.fromkeys((*self.means, *other.means)):
            a, b = self.means.get(k, 0.0), other.means.get(k, 0.0)
            means[k] = a + share * (b - a) if self.weight and other.weight else (a if self.weight else b)
        categories = dict(self.categories)
        for name, (words, ordered) in other.categories.items():
            mine = categories.get(name, ([], ordered))[0]
            categories[name] = [*mine, *(word for word in words if word not in set(mine))], ordered
        parts = [part for part in (self.sketch, other.sketch) if len(part)]
        both = pd.concat([part.astype(object) for part in parts], ignore_index=True) if parts else self.sketch
        both = _sketch_rows(both, self.request, [name for name in means if name in both])
        return TableSketch(
            self.n + other.n, self.kept + other.kept, lost, both, categories, means, weight, self.request
        )


def sketch(block: Block, request: TableRequest) -> TableSketch:
    """The first pass over one partition."""
    frame = used("Model", block["table"], request.names)
    bad = missing("Model", frame, request.needed)
    lost = np.zeros(len(frame), dtype=bool)
    for each in bad.values():
        lost |= each
    frame = frame[~lost].reset_index(drop=True)
    kinds = {name: frame[name].dtype for name in request.names}
    categories = {n: (list(k.categories), bool(k.ordered)) for n, k in kinds.items() if hasattr(k, "categories")}
    numbers = [name for name, kind in kinds.items() if getattr(kind, "kind", "O") in "biuf"]
    w = np.ones(len(frame)) if request.weights is None else np.asarray(frame[request.weights], dtype=np.float64)
    weight = float(w.sum())
    means = {name: _mean(frame[name].to_numpy(np.float64, na_value=np.nan), w) if weight else 0.0 for name in numbers}
    counts = {name: int(each.sum()) for name, each in bad.items()}
    rows = _sketch_rows(frame, request, numbers).astype(object)
    return TableSketch(len(lost), len(frame), counts, rows, categories, means, weight, request)


def _mean(x: np.ndarray, weights: np.ndarray) -> float:
    """The mean of what is there."""
    there = np.isfinite(x) & (weights > 0.0)
    return float(np.average(x[there], weights=weights[there])) if there.any() else 0.0


def _sketch_rows(frame: pd.DataFrame, request: TableRequest, numbers: Sequence[Hashable]) -> pd.DataFrame:
    """The first row of every value of the keys, and those where a number is lowest and highest."""
    keep = np.zeros(len(frame), dtype=bool)
    keep[:2] = True
    for key in request.keys:
        keep |= ~np.asarray(frame.duplicated(list(key)))
    for name in (*request.counted, *request.some):
        first = np.flatnonzero(~np.asarray(frame.duplicated([name])))
        if name in request.counted and first.size > MOST_VALUES:
            got = (
                f"s({name}) has knots at the quantiles of {name!r}, which has more than {MOST_VALUES} different values"
            )
            raise problem("Model", got, "fewer", f's({name}, bs="ps") has equal steps, or round {name!r}.')
        keep[first if name in request.counted else first[:SOME]] = True
    for name in numbers:
        values = np.asarray(frame[name], dtype=np.float64)
        if np.isfinite(values).any():
            keep[[int(np.nanargmin(values)), int(np.nanargmax(values))]] = True
    return frame[keep].reset_index(drop=True)


# -- the second pass ----------------------------------------------------------------------------------------
def rows_for_all(
    values: ValueCounts, family: Any, rows: Sequence[str]
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Few rows that stand for all: y, what they have beside it, and weights."""
    moments = values.moments
    assert moments is not None
    if family == "gaussian":  # whose level and scale are the mean and the standard deviation
        centre, sd = float(moments.mean[0]), float(np.sqrt(moments.covariance[0, 0]))
        return np.array([centre - sd, centre + sd]), {}, np.full(2, moments.weight / 2.0)
    if values.at is None:
        got = f"y has more than {values.limit} different values and family = {family!r}"
        advice = "Labels, counts and the Gaussian family fit tables of any length."
        raise problem("Model", got, "fewer in a table that is out of memory", advice)
    return values.y, values.beside | ({"exposure": values.average} if "exposure" in rows else {}), values.weight
