"""How a partition of a table becomes rows of a model, and the two passes over partitions before the first fit.

    sketch     the columns, rows that show every level and every extreme, means of numbers, what is missing
    measure    y by its values, means and covariances of fixed columns and of what terms ask for, which latents rows
               touch together

A fit then reads the rows of each partition as it reads those of a table in memory. Answers are of the size of the
levels; they are added partition by partition, in order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import numeric, problem
from ..distributed import Block, Chunk, Sums
from ..distributed.precision import PatternDesign
from ..distributed.row_sums import LatentSets, TableMoments, ValueCounts
from ..files import Stated
from ..inputs.frames import is_categorical, missing, used
from ..inputs.observations import encoded, levels_of_words, weight_seen
from ..likelihoods.base import Likelihood
from ..terms import DataTable, SumOfTerms
from ..terms.base import TermRows
from .fixed import FixedPart
from .model_matrix import Expression
from .response import Response, Target, as_labels, checked_weights

if TYPE_CHECKING:
    import pandas as pd

    from .compiler import Compiled
    from .stated_priors import FixedPriors

MOST_VALUES = 100_000  # different values of y, or of x with knots at its quantiles; a table with more is refused
SOME = 64  # different values of x that are enough for a basis on equal steps
_PAIRS = 1 << 21  # pairs of latents that rows touch, looked up at a time; more rows are read in parts


# -- the first pass -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TableRequest(Stated):
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

    def complete(self, table: pd.DataFrame, kinds: dict[Hashable, Any] | None = None) -> tuple[pd.DataFrame, Sums]:
        """The rows in which nothing is missing, plain, and in how many rows each column is missing."""
        frame = used("Model", table, self.names)
        frame = frame if kinds is None else typed(frame, kinds)
        lost, counts = np.zeros(len(frame), dtype=bool), Sums()
        for name, each in missing("Model", frame, self.needed).items():
            lost |= each
            counts[name] = int(each.sum())
        return frame[~lost].reset_index(drop=True), counts


@dataclass(frozen=True)
class TableSketch(Stated):
    """Some rows of a table, and the categories of its columns.

    Attributes
    ----------
    request : TableRequest
    rows : frame
        Every value of the keys, and the lowest and highest of every number; categories as values.
    categories : of categorical columns, in the order in which partitions have them, with whether they are ordered
    numbers : the columns of numbers
    """

    request: TableRequest
    rows: pd.DataFrame
    categories: dict[Hashable, tuple[list[Any], bool]]
    numbers: tuple[Hashable, ...]

    def __add__(self, other: TableSketch) -> TableSketch:
        import pandas as pd

        categories = dict(self.categories)
        for name, (words, ordered) in other.categories.items():
            known = categories.get(name, ([], ordered))[0]
            categories[name] = list(dict.fromkeys([*known, *words])), ordered
        numbers = tuple(dict.fromkeys((*self.numbers, *other.numbers)))
        parts = [part.rows.astype(object) for part in (self, other) if len(part.rows)]
        both = pd.concat(parts, ignore_index=True) if parts else self.rows
        return TableSketch(self.request, both, categories, numbers).thinned()

    def thinned(self) -> TableSketch:
        """The first row of every value of the keys, and those where a number is lowest and highest."""
        frame, request = self.rows, self.request
        keep = np.zeros(len(frame), dtype=bool)
        keep[:2] = True
        for key in request.keys:
            keep |= ~np.asarray(frame.duplicated(list(key)))
        for name in request.counted:
            first = ~np.asarray(frame.duplicated([name]))
            if first.sum() > MOST_VALUES:
                knots = f"s({name}) has knots at the quantiles of {name!r}"
                got = f"{knots}, which has more than {MOST_VALUES} different values"
                raise problem("Model", got, "fewer", f's({name}, bs="ps") has equal steps, or round {name!r}.')
            keep |= first
        for name in request.some:
            keep[np.flatnonzero(~np.asarray(frame.duplicated([name])))[:SOME]] = True
        for name in self.numbers:
            values = np.asarray(frame[name], dtype=np.float64)
            if np.isfinite(values).any():
                keep[[int(np.nanargmin(values)), int(np.nanargmax(values))]] = True
        rows = frame[keep].reset_index(drop=True).astype(object)
        return TableSketch(request, rows, self.categories, self.numbers)


def sketch(block: Block, request: TableRequest) -> Sums:
    """The first pass over one partition: its ``TableSketch``, and sums.

    n, kept : rows, and those in which nothing is missing
    lost : in how many rows each column is missing
    weight, totals : the sum of the weights of the rows kept, and those of their numbers, weighted
    """
    frame, lost = request.complete(block["table"])
    w = np.ones(len(frame)) if request.weights is None else np.asarray(frame[request.weights], dtype=np.float64)
    categories, totals = {}, Sums()
    for name in request.names:
        column = frame[name]
        if is_categorical(column):
            categories[name] = list(column.cat.categories), bool(column.cat.ordered)
        elif column.dtype.kind in "biuf":
            totals[name] = float(w @ np.nan_to_num(column.to_numpy(np.float64, na_value=np.nan)))
    rows = TableSketch(request, frame, categories, tuple(totals)).thinned()
    return Sums(n=block.n, kept=len(frame), lost=lost, weight=float(w.sum()), totals=totals, sketch=rows)


def read_kinds(sketch: TableSketch) -> tuple[pd.DataFrame, dict[Hashable, Any]]:
    """The rows of a sketch with columns of their kinds, and these: categories with their order, or "number"."""
    kinds: dict[Hashable, Any] = dict(sketch.categories)
    plain = used("Model", sketch.rows.infer_objects(), sketch.rows.columns)
    for name in plain.columns:
        types = {type(value) for value in sketch.rows[name].dropna()}
        numbers = all(issubclass(kind, int | float | np.number | np.bool_) for kind in types)
        if name not in kinds and types and numbers and not types <= {bool, np.bool_}:
            kinds[name] = "number"
    return typed(plain, kinds), kinds


def typed(frame: pd.DataFrame, kinds: dict[Hashable, Any]) -> pd.DataFrame:
    """Columns of the same kinds in every partition: the same categories, numbers where others have numbers."""
    import pandas as pd

    out = {}
    for name, kind in kinds.items():
        column = frame[name]
        if kind != "number":
            out[name] = pd.Series(pd.Categorical(column, categories=kind[0], ordered=kind[1]), index=column.index)
        elif column.dtype.kind not in "iuf":
            out[name] = pd.Series(column.to_numpy(np.float64, na_value=np.nan), index=column.index)
    return frame.assign(**out) if out else frame  # type: ignore[arg-type]


# -- rows ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ObservedRows:
    """The response of some rows: y as its likelihood takes it, y before labels are counted, and weights."""

    likelihood: Likelihood
    y: np.ndarray
    plain: np.ndarray
    rows: dict[str, np.ndarray]
    weights: np.ndarray | None

    @property
    def seen(self) -> np.ndarray:
        return weight_seen(self.likelihood, self.y, self.weights)

    def values(self) -> ValueCounts:
        """The different values of y, over rows that have a weight; an exposure is averaged in each of them."""
        weights = np.where(np.isnan(self.y), 0.0, 1.0 if self.weights is None else self.weights)
        seen = weights > 0.0
        rows = {key: value[seen] for key, value in self.rows.items()}
        exposure = rows.pop("exposure", None)
        return ValueCounts.of(self.plain[seen], rows, weights[seen], exposure, MOST_VALUES)


@dataclass(frozen=True)
class PartitionReader:
    """What travels to the partitions: the parts of a compiled model that make rows of a frame.

    Attributes
    ----------
    request : TableRequest
    kinds : of each column, its categories with whether they are ordered, or whether it is a number
    response, target, compiled, offsets, sum, level, priors : of the model
    pattern : (indptr, indices) of the lower triangle of Q and A'A, once it is known
    """

    request: TableRequest
    kinds: dict[Hashable, Any]
    response: Response
    target: Target
    compiled: Compiled
    offsets: list[Expression]
    sum: SumOfTerms
    level: float = 0.0
    priors: FixedPriors | None = None
    pattern: tuple[np.ndarray, np.ndarray] | None = None

    def read(self, block: Block) -> tuple[pd.DataFrame, ObservedRows, DataTable, list[TermRows]] | None:
        """The complete rows of a partition: as a frame, their response, as terms read them, and those of each term.

        None where no row is complete.
        """
        frame, _ = self.request.complete(block["table"], self.kinds)
        if not len(frame):
            return None
        table = DataTable("Model", self.compiled.extended(frame))
        return frame, self._observed(frame), table, [term.rows(table) for term in self.sum.terms]

    def _observed(self, frame: pd.DataFrame) -> ObservedRows:
        """The response of the rows of a frame."""
        raw, target = as_labels(self.response.values(frame)), self.target
        name = f"the response {self.response.name!r}"
        if target.words is not None:
            plain = levels_of_words("Model", target.words, raw)
        else:
            raw = raw.astype(float) if is_categorical(raw) else raw
            plain = numeric("Model", name, raw, missing=True)
        if np.isinf(plain).any():
            raise problem("Model", f"{name} is infinite in a row", "finite numbers, or NaN")
        y = plain if target.values is None else encoded("Model", target.values, plain)
        rows = self.response.rows(frame)
        weights = checked_weights(rows.pop("weights", None), whole=False)
        if "failures" in rows:
            rows["trials"] = np.where(np.isnan(y), 0.0, y + rows.pop("failures"))
        likelihood = target.likelihood.with_rows(**rows) if rows else target.likelihood
        return ObservedRows(likelihood, y, plain, rows, weights)

    def offset(self, frame: pd.DataFrame) -> np.ndarray:
        """The sum of the formula's offsets (n,)."""
        return sum((expression.evaluate(frame)[:, 0] for expression in self.offsets), np.zeros(len(frame)))

    def effects(self, rows: list[TermRows], last: Any) -> sp.csr_array:
        """The designs of the terms that have latents, side by side, before ``last``."""
        blocks = [r.design for term, r in zip(self.sum.terms, rows, strict=True) if term.n_latents]
        out = sp.csr_array(sp.hstack([*blocks, last], format="csr"))
        out.sort_indices()
        return out

    def chunks(self, block: Block) -> Iterator[Chunk]:
        """The rows of a partition, ready for a fit; every entry of the fixed effects is stored, zeros too."""
        found = self.read(block)
        if found is None or self.pattern is None or self.priors is None:
            return
        frame, here, _, rows = found
        X = self.sum._fixed(rows, len(frame))
        tail = self.sum.columns.tail(X, self.sum.intercept)
        n, p = tail.shape
        columns, ends = np.tile(np.arange(p, dtype=np.int32), n), (p * np.arange(n + 1)).astype(np.int32)
        A = self.effects(rows, sp.csr_array((tail.ravel(), columns, ends), shape=(n, p)))
        offset = self.level + self.offset(frame) + self.priors.offset(X)
        step = max(1, _PAIRS // max(1, int(np.diff(A.indptr).max()) ** 2))
        for i in range(0, n, step):
            part = slice(i, min(n, i + step))
            likelihood = here.likelihood if step >= n else here.likelihood.take(np.arange(n)[part])
            weights = None if here.weights is None else here.weights[part]
            yield Chunk(PatternDesign(A[part], *self.pattern), likelihood, here.y[part], weights, offset[part])


# -- the second pass ----------------------------------------------------------------------------------------
def measure(block: Block, reader: PartitionReader) -> Sums | None:
    """The second pass over one partition."""
    found = reader.read(block)
    if found is None:
        return None
    frame, here, table, rows = found
    here.likelihood.prepare(here.y)  # refuses a target that is not one
    seen, terms = here.seen, reader.sum.terms
    fixed = FixedPart.among(terms)
    raw = fixed.expression.evaluate(fixed.moved(frame))
    moments, counts, others = Sums(), Sums(), []
    for term, own in zip(terms, rows, strict=True):
        columns = term.survey_columns(table)
        if columns is not None:
            moments[str(term.name)] = TableMoments.of(columns, here.weights)
        if term.n_latents:
            others.append(own.fixed)
            if own.codes is not None:
                counts[str(term.name)] = np.bincount(own.codes[seen > 0.0], minlength=len(term.levels or ()))
    return Sums(
        n=len(frame),
        n_seen=int((seen > 0.0).sum()),
        weight=float(seen.sum()),
        offset=float(seen @ reader.offset(frame)),
        values=here.values(),
        plain=TableMoments.of(raw, here.weights),
        fixed=TableMoments.of(np.hstack([raw, *others]), seen),
        moments=moments,
        counts=counts,
        touched=LatentSets.of(reader.effects(rows, sp.csr_array((len(frame), 0)))),
    )


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
