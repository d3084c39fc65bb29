"""How a partition of a table becomes rows of a model: its frame, y and design, read as the fit's own rows are."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import numeric, problem
from ..distributed import Block, Chunk, Sums
from ..distributed.precision import PatternDesign
from ..distributed.survey import LatentSets, Moments, ValueCounts
from ..inputs.frames import column_of, missing, used
from ..inputs.observations import encoded, levels_of_words, weight_seen
from ..likelihoods.base import Likelihood
from ..terms import DataTable, Grouped, Smooth, SumOfTerms
from ..terms.base import Rows
from ..terms.smooths import numbers_of
from . import partition_survey
from .fixed import Expression, FixedPart
from .response import Response, Target, as_labels, checked_weights

if TYPE_CHECKING:
    import pandas as pd

    from .compiler import Compiled
    from .specified import FixedPriors

_PAIRS = 1 << 21  # of latents that rows touch, looked up at a time


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
        return ValueCounts.of(
            self.plain[seen], rows, weights[seen], rows.pop("exposure", None), partition_survey.MOST_VALUES
        )


@dataclass(frozen=True)
class PartitionReader:
    """What travels to the partitions: the parts of a compiled model that make rows of a frame.

    Attributes
    ----------
    names, needed : columns, and those without which a row is left out
    kinds : of each column, its categories with whether they are ordered, or whether it is a number
    response, target, compiled, offsets, sum, level, priors : of the model
    pattern : (indptr, indices) of the lower triangle of Q and A'A, once it is known
    """

    names: tuple[Hashable, ...]
    needed: tuple[Hashable, ...]
    kinds: dict[Hashable, Any]
    response: Response
    target: Target
    compiled: Compiled
    offsets: list[Expression]
    sum: SumOfTerms
    level: float = 0.0
    priors: FixedPriors | None = None
    pattern: tuple[np.ndarray, np.ndarray] | None = None

    def frame(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows in which nothing is missing, plain."""
        frame = typed(used("Model", table, self.names), self.kinds)
        lost = np.zeros(len(frame), dtype=bool)
        for each in missing("Model", frame, self.needed).values():
            lost |= each
        return frame[~lost].reset_index(drop=True)

    def observed(self, frame: pd.DataFrame) -> ObservedRows:
        """The response of the rows of a frame."""
        raw, target = as_labels(self.response.family, self.response.values(frame)), self.target
        raw = raw.astype(float) if target.words is None and hasattr(raw.dtype, "categories") else raw
        if target.words is not None:
            plain = levels_of_words("Model", target.words, raw)
        else:
            plain = numeric("Model", f"the response {self.response.name!r}", raw, missing=True)
        if np.isinf(plain).any():
            raise problem(
                "Model", f"the response {self.response.name!r} is infinite in a row", "finite numbers, or NaN"
            )
        y = plain if target.values is None else encoded("Model", target.values, plain)
        rows = self.response.rows(frame)
        weights = checked_weights(rows.pop("weights", None), whole=False)
        if "failures" in rows:
            rows["trials"] = np.where(np.isnan(y), 0.0, y + rows.pop("failures"))
        likelihood = target.likelihood.with_rows(**rows) if rows else target.likelihood
        return ObservedRows(likelihood, y, plain, rows, weights)

    def table(self, frame: pd.DataFrame) -> DataTable:
        return DataTable("Model", self.compiled.extended(frame))

    def offset(self, frame: pd.DataFrame) -> np.ndarray:
        """The sum of the formula's offsets (n,)."""
        total = np.zeros(len(frame))
        for expression in self.offsets:
            total += expression.evaluate(frame)[:, 0]
        return total

    # -- passes ------------------------------------------------------------------------------------
    def chunks(self, block: Block) -> Iterator[Chunk]:
        """The rows of a partition, ready for a fit."""
        frame = self.frame(block["table"])
        if not len(frame) or self.pattern is None or self.priors is None:
            return
        table, here = self.table(frame), self.observed(frame)
        rows = [term.rows(table) for term in self.sum.terms]
        X = self.sum._fixed(rows, len(frame))
        A = whole_tail(self.sum, rows, X)
        offset = self.level + self.offset(frame) + self.priors.offset(X)
        step = max(1, _PAIRS // max(1, int(np.diff(A.indptr).max()) ** 2))
        if step >= len(frame):
            yield Chunk(PatternDesign(A, *self.pattern), here.likelihood, here.y, here.weights, offset)
            return
        for i in range(0, len(frame), step):
            part = slice(i, i + step)
            at = np.arange(len(frame))[part]
            weights = None if here.weights is None else here.weights[part]
            design = PatternDesign(A[part], *self.pattern)
            yield Chunk(design, here.likelihood.take(at), here.y[part], weights, offset[part])


def whole_tail(sum_: SumOfTerms, rows: list[Rows], X: np.ndarray) -> sp.csr_array:
    """The design of rows; of the fixed effects every entry is stored, zeros too."""
    blocks = [sp.csr_array(r.design) for term, r in zip(sum_.terms, rows, strict=True) if term.n_latents]
    tail = sum_.columns.tail(X, sum_.intercept)
    n, p = tail.shape
    whole = sp.csr_array((tail.ravel(), np.tile(np.arange(p, dtype=np.int32), n), p * np.arange(n + 1)), shape=(n, p))
    return _beside([*blocks, whole])


def _beside(blocks: list[sp.csr_array]) -> sp.csr_array:
    """Blocks side by side, columns ascending; those with as many entries in every row by whole columns of these."""
    n, widths = blocks[0].shape[0], [block.shape[1] for block in blocks]
    for block in blocks:
        block.sort_indices()
    each = [block.nnz // max(1, n) for block in blocks]
    if not all(np.array_equal(b.indptr, k * np.arange(n + 1)) for b, k in zip(blocks, each, strict=True)):
        return sp.csr_array(sp.hstack(blocks, format="csr"))
    kind = np.int32 if sum(widths) < 2**31 and n * sum(each) < 2**31 else np.int64
    indices, data, k = np.empty((n, sum(each)), dtype=kind), np.empty((n, sum(each))), 0
    for block, start, count in zip(blocks, np.cumsum([0, *widths]), each, strict=False):
        indices[:, k : k + count] = block.indices.reshape(n, count) + start
        data[:, k : k + count] = block.data.reshape(n, count)
        k += count
    indptr = np.arange(0, n * k + 1, max(1, k), dtype=kind) if k else np.zeros(n + 1, dtype=kind)
    return sp.csr_array((data.ravel(), indices.ravel(), indptr), shape=(n, sum(widths)))


def measure(block: Block, reading: PartitionReader) -> Sums | None:
    """The second pass over one partition."""
    frame = reading.frame(block["table"])
    if not len(frame):
        return None
    here, table = reading.observed(frame), reading.table(frame)
    here.likelihood.prepare(here.y)  # refuses a target that is not one
    seen, rows = here.seen, [term.rows(table) for term in reading.sum.terms]
    fixed = next(term for term in reading.sum.terms if isinstance(term, FixedPart))
    raw = fixed.expression.evaluate(fixed.moved(frame))
    others = [r.fixed for term, r in zip(reading.sum.terms, rows, strict=True) if term.n_latents]
    slopes, by, counts, curves = {}, {}, {}, {}
    for term, mine in zip(reading.sum.terms, rows, strict=True):
        if isinstance(term, Grouped):
            slopes[str(term.name)] = Moments.of(term._slopes(table)[0], here.weights)
        elif isinstance(term, Smooth):
            x = numbers_of(table, term.inputs)
            curves[str(term.name)] = Moments.of(np.hstack([x, term.penalised(term._units(x))]), here.weights)
        elif getattr(term, "by", None) is not None:
            by[str(term.name)] = Moments.of(table.column(term.by).numbers()[:, None] ** 2, here.weights)  # type: ignore[attr-defined]
        if term.n_latents and mine.codes is not None:
            counts[str(term.name)] = np.bincount(mine.codes[seen > 0.0], minlength=len(term.levels or ()))
    blocks = [r.design for term, r in zip(reading.sum.terms, rows, strict=True) if term.n_latents]
    effects = sp.csr_array(sp.hstack([sp.csr_array((len(frame), 0)), *blocks], format="csr"))
    return Sums(
        n=len(frame),
        n_seen=int((seen > 0.0).sum()),
        weight=float(seen.sum()),
        offset=float(seen @ reading.offset(frame)),
        values=here.values(),
        plain=Moments.of(raw, here.weights),
        fixed=Moments.of(np.hstack([raw, *others]), seen),
        slopes=Sums(slopes),
        by=Sums(by),
        curves=Sums(curves),
        counts=Sums(counts),
        touched=LatentSets.of(effects),
    )


def typed(frame: pd.DataFrame, kinds: dict[Hashable, Any]) -> pd.DataFrame:
    """Columns of the same kinds in every partition: the same categories, numbers where others have numbers."""
    import pandas as pd

    out = {}
    for name, kind in kinds.items():
        column = frame[name]
        if isinstance(kind, tuple):
            out[name] = pd.Series(pd.Categorical(column, categories=kind[0], ordered=kind[1]), index=column.index)
        elif kind == "number" and getattr(column.dtype, "kind", "O") not in "iuf":
            out[name] = pd.Series(column.to_numpy(np.float64, na_value=np.nan), index=column.index)
    return frame.assign(**out) if out else frame  # type: ignore[arg-type]


def read_kinds(sketch: pd.DataFrame, categories: dict[Hashable, tuple[list[Any], bool]]) -> tuple[pd.DataFrame, Any]:
    """The sketch with columns of their kinds, and these."""
    kinds: dict[Hashable, Any] = dict(categories)
    for name in sketch.columns:
        if name not in categories:
            column = column_of("Model", sketch, name)
            kind = getattr(column.dtype, "kind", "O")
            found = {type(value) for value in sketch[name] if value is not None and value == value}
            booleans = {bool, np.bool_}
            if kind in "iuf" or (found and found <= {*booleans, int, float, np.float64} and not found <= booleans):
                kinds[name] = "number"
    plain = used("Model", sketch.infer_objects(), sketch.columns)
    return typed(plain, kinds), kinds
