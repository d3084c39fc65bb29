"""The first pass over a table in partitions: what its columns hold, summed up so that they are read as in memory.

Of each column come the cells that are not missing: how many, their mean and spread, and their different values with how
often each was seen; of real numbers, of which there may be as many as rows, some values stand for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..checks import problem
from ..distributed import Block, Partitions
from ..likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Poisson
from ..likelihoods.cumulative import Cumulative
from .cells import Cells, split
from .columns import Column, Table, codes_of, is_frame
from .kinds import begun, levels_of, wanted, word_of
from .reading import numbers, readings, sample

_MOST, _KEPT = 4096, 64  # different values of a column that are counted; of more, how many stand for all
_KNOWN = (BernoulliLogit, Poisson, Gaussian, MultinomialLogit, Cumulative)  # begun from what the first pass brings


@dataclass(frozen=True)
class Seen:
    """The cells of one column that are not missing, in some partitions.

    n, holes : how many there are, and how many are missing
    mean, square, low, high : of numbers; the mean square is about the mean
    values, counts : the different values, sorted where they are numbers
    cut : whether some values stand for more
    """

    cells: Cells
    n: int
    holes: int
    mean: float
    square: float
    low: float
    high: float
    values: np.ndarray
    counts: np.ndarray
    cut: bool = False

    @property
    def sd(self) -> float:
        """Standard deviation of the cells."""
        return float(np.sqrt(self.square)) if self.low < self.high else 0.0

    def __add__(self, other: Seen) -> Seen:
        if not self.n or not other.n:
            found = self if self.n else other
            return replace(found, holes=self.holes + other.holes)
        if self.cells.is_number != other.cells.is_number:
            return self._as_labels() + other._as_labels()
        n = self.n + other.n
        share, away = other.n / n, other.mean - self.mean
        values, counts = _counted(np.concatenate([self.values, other.values]), np.r_[self.counts, other.counts])
        cells = self.cells
        if cells.declared is not None and other.cells.declared is not None:  # in the order of the first that has them
            more = [label for label in other.cells.declared if label not in cells.declared]
            whole = list(getattr(cells.dtype, "categories", ()))
            order = {label: k for k, label in enumerate([*whole, *other.cells.declared])}
            cells = replace(cells, declared=tuple(sorted([*cells.declared, *more], key=lambda label: order[label])))
        return Seen(
            cells,
            n,
            self.holes + other.holes,
            self.mean + share * away,
            (1.0 - share) * self.square + share * other.square + share * (1.0 - share) * away * away,
            min(self.low, other.low),
            max(self.high, other.high),
            values,
            counts,
            self.cut or other.cut,
        )._thinned()

    def _as_labels(self) -> Seen:
        return replace(self, cells=replace(self.cells, seen=np.zeros(0, object)), values=self.values.astype(object))

    def _thinned(self) -> Seen:
        """Not more values than stand for a column of numbers; labels are all kept."""
        if self.values.size <= _MOST or not self.cells.is_number:
            return self
        keep = np.unique(np.linspace(0, self.values.size - 1, _KEPT).astype(int))
        odd = np.flatnonzero(self.values != np.floor(self.values))[:1]
        keep = np.union1d(keep, odd)
        return replace(self, values=self.values[keep], counts=self.counts[keep], cut=True)

    def column(self, where: str) -> Cells:
        """The column as it is read: its different values, with what they say of all cells."""
        if self.values.size > _MOST and not self.cells.is_number:
            got = f"column {self.cells.name!r} has more than {_MOST} different labels"
            raise problem(where, got, "labels that repeat", "Leave it out, or group them.")
        numbering = self.cut and self.high - self.low == self.n - 1 and 2.0 * self.mean == self.low + self.high
        several = self.n if numbering else self.values.size
        missing = np.array([self.holes > 0])
        return replace(self.cells, missing=missing, seen=self.values, count=self.n, average=self.mean, distinct=several)


def _counted(values: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different values, with how often each was seen."""
    if values.dtype.kind in "biuf":
        found, place = np.unique(values, return_inverse=True)
        return found, np.bincount(place, weights=counts, minlength=found.size)
    told: dict[Any, float] = {}
    for value, n in zip(values.tolist(), counts.tolist(), strict=True):
        told[value] = told.get(value, 0.0) + n
    out = np.empty(len(told), dtype=object)
    out[:] = list(told)
    return out, np.array(list(told.values()))


@dataclass(frozen=True)
class Survey:
    """What the first pass found: rows of each partition by its number, and every column."""

    sizes: dict[int, int]
    columns: list[Seen]

    def __add__(self, other: Survey) -> Survey:
        both = zip(self.columns, other.columns, strict=True)
        return Survey(self.sizes | other.sizes, [a + b for a, b in both])

    @property
    def n_rows(self) -> int:
        """Of all partitions."""
        return sum(self.sizes.values())

    def places(self, rows: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Of each partition that has some of these rows: which of ``rows`` they are, and where they stand in it."""
        out, first = {}, 0
        for number in sorted(self.sizes):
            inside = np.flatnonzero((rows >= first) & (rows < first + self.sizes[number]))
            if inside.size:
                out[number] = inside, rows[inside] - first
            first += self.sizes[number]
        return out


def survey(block: Block, where: str, width: int) -> Survey:
    """The first pass over one partition."""
    columns = split(block["X"], where)
    if len(columns) != width:
        got = f"partition {block.number} has {len(columns)} columns"
        raise problem(where, got, f"{width}, as the others have")
    return Survey({block.number: block.n}, [_seen(part, where) for part in columns])


def _seen(part: Cells, where: str) -> Seen:
    light, n = replace(part, missing=part.missing[:0], seen=part.seen[:0]), part.seen.size
    about = (0.0, 0.0, 0.0, 0.0)
    if part.is_number and n:
        y = part.seen.astype(np.float64)
        if not np.isfinite(y).all():
            got = f"column {part.name!r} holds {y[~np.isfinite(y)][0]}"
            raise problem(where, got, "finite numbers, or NaN for a missing cell")
        about = float(y.mean()), float(y.var()), float(y.min()), float(y.max())
    try:
        values, counts = _counted(part.seen, np.ones(n))
    except TypeError:
        raise problem(where, f"column {part.name!r} has cells that are not labels", "numbers or text") from None
    return Seen(light, n, int(part.missing.sum()), *about, values, counts)._thinned()


def rows_at(block: Block, wanted: dict[int, tuple[np.ndarray, np.ndarray]]) -> list[tuple[np.ndarray, Any]]:
    """Some rows of a partition as they came, with which they are."""
    if block.number not in wanted:
        return []
    which, where = wanted[block.number]
    X = block["X"]
    return [(which, X.iloc[where] if is_frame(X) else X.tocsr()[where].toarray() if hasattr(X, "tocsr") else X[where])]


def read_partitions(rows: Partitions, likelihood: Any, bound: str, width: int) -> tuple[Table, Survey]:
    """Understand a table in partitions, as ``columns.read`` does in memory: one pass, or two where evidence decides."""
    where = rows.where
    found: Survey = rows.reduce(survey, where, width)
    cells = [seen.column(where) for seen in found.columns]
    asked = wanted(likelihood, [part.name for part in cells], where)

    def looked() -> list[tuple[np.ndarray, bool]]:
        parts = rows.reduce(rows_at, found.places(sample(found.n_rows)))
        one = _stacked([part for _, part in sorted(parts, key=lambda pair: int(pair[0][0]))])
        some = split(one, where)
        return [numbers(part, np.arange(part.missing.size), known.seen) for part, known in zip(some, cells)]

    read = readings(cells, asked, where, looked)
    named = [levels_of(part, reading, where) for part, reading in zip(cells, read)]
    for part, (kind, _) in zip(cells, named):
        cls = kind if isinstance(kind, type) else type(kind)
        if not issubclass(cls, _KNOWN):
            expected = "bernoulli, poisson, multinomial, ordinal or gaussian"
            raise problem(where, f"column {part.name!r} in partitions is {word_of(kind)}", expected)
    if bound == "exact" and any(word_of(kind) == "multinomial" for kind, _ in named):
        bound = "tilted"
    columns = []
    for part, seen, reading, (kind, levels) in zip(cells, found.columns, read, named):
        values, counts = _starting(part, seen, kind, levels, where)
        own = begun(kind, values, len(levels), bound, counts)
        columns.append(Column(part.name, own, levels, part.dtype, reading.why, reading.guessed))
    frame = "X" in rows.names
    return Table(tuple(columns), np.zeros((0, len(columns))), frame), found


def _starting(part: Cells, seen: Seen, kind: Any, levels: tuple[Any, ...], where: str) -> tuple[np.ndarray, Any]:
    """Values with weights that a likelihood begins from as from all cells."""
    if levels:
        return codes_of(part, levels, where), seen.counts
    if isinstance(kind, type) and issubclass(kind, Gaussian):
        return seen.mean + seen.sd * np.array([-1.0, 1.0]), np.array([0.5, 0.5]) * seen.n
    return part.seen.astype(np.float64), seen.counts


def _stacked(parts: list[Any]) -> Any:
    if is_frame(parts[0]):
        from pandas import concat

        return concat(parts, ignore_index=True)
    return np.concatenate(parts)
