"""Linear models of rows in partitions: how a partition becomes rows, the first pass over them, and the fit.

Columns are standardised as ``linalg/standardized.py`` does; y is numbers, or the places of its labels. The first pass
measures the columns, counts the different values of y, and brings a sample of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import finite, first_value, numeric, problem, vector
from ..hyperparameters.base import Learned
from ..hyperparameters.weights import WIDTHS, Relevance, Spread, width_evidence
from ..likelihoods.base import Likelihood
from ..linalg.matrix_designs import is_sparse
from ..linalg.standardized import Standardized, column_moments
from ..solvers.initial_point import SHARE
from .partitions import Block, Sums, added
from .passes import PartitionedFit, PartitionedProblem
from .precision import GroupedVariances
from .row_sums import Chunk, TableMoments, ValueCounts, chunk_rows

_READ = 1 << 20  # entries of the rows that are read at a time
MOST_VALUES = 1 << 16  # different values of y that are kept, all partitions together; of more a share is drawn


@dataclass(frozen=True)
class LinearTable:
    """The columns of a table in partitions.

    where : who asks, for messages
    names : the columns of X
    keys : what rows have besides X, y and weight: exposure, trials, event
    """

    where: str
    names: tuple[str, ...]
    keys: tuple[str, ...]

    def read(self, block: Block, checked: bool = False) -> tuple[Any, np.ndarray, np.ndarray | None, dict[str, Any]]:
        """X (float64 or CSR), y, weights or None, and the other columns of a partition.

        X must be finite, unless an earlier pass has ``checked`` that.
        """
        where, place, n = self.where, f"of partition {block.number}", block.n
        if is_sparse(block["X"]):
            X = sp.csr_array(block["X"], dtype=np.float64)
        else:
            X = np.ascontiguousarray(numeric(where, f"X {place}", block["X"]))
        if X.ndim != 2 or X.shape[1] != len(self.names):
            raise problem(where, f"X {place} has shape {X.shape}", f"{len(self.names)} columns, as the first has")
        if not checked:
            entries, start = (X.data, 0) if is_sparse(X) else (X, block.start)
            finite(where, f"X {place}", entries, "Fill or drop missing values first.", start)
        weight = block.get("weight")
        if weight is not None:
            weight = self._vector(f"sample_weight {place}", weight, n, block.start)
            if (weight < 0.0).any():
                bad = first_value(weight < 0.0, weight, block.start)
                raise problem(where, f"sample_weight {place}{bad}", "numbers >= 0")
        rows = {key: self._vector(f"{key} {place}", block[key], n, block.start) for key in self.keys}
        return X, self._target(f"y {place}", block["y"], block.start), weight, rows

    def parts(
        self, block: Block, likelihood: Likelihood, labels: np.ndarray | None, width: int
    ) -> Iterator[tuple[Any, Likelihood, np.ndarray, np.ndarray | None]]:
        """X, the likelihood with its rows' own parameters, y and weights of some rows at a time, of that many columns.

        With ``labels``, sorted, y are their places.
        """
        step = chunk_rows(width)
        for some in block.stretches(step * -(-self.rows_at_once // step)):
            X, y, w, rows = self.read(some, checked=True)
            if labels is not None:
                y = np.clip(np.searchsorted(labels, y), 0, labels.size - 1)
            for i in range(0, some.n, step):
                part = slice(i, min(some.n, i + step))
                own = likelihood.with_rows(**{k: v[part] for k, v in rows.items()}) if rows else likelihood
                yield X[part], own, np.asarray(y[part], dtype=np.float64), None if w is None else w[part]

    @property
    def rows_at_once(self) -> int:
        """How many rows are read at a time: a partition may be large."""
        return max(1, _READ // max(1, len(self.names)))

    def _vector(self, name: str, value: Any, n: int, start: int) -> np.ndarray:
        """One finite number a row, the first of which is row ``start`` of the partition."""
        out = numeric(self.where, name, value)
        out = out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out
        return finite(self.where, name, vector(self.where, name, out, n), start=start)

    def _target(self, name: str, y: Any, start: int) -> np.ndarray:
        """y as numbers or words, none of them missing."""
        values = np.asarray(y)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1:
            raise problem(self.where, f"{name} has shape {values.shape}", "one value a row")
        missing = np.zeros(values.size, dtype=bool)
        if values.dtype.kind == "O":
            missing = np.array([value is None for value in values]) | (values != values)
        elif values.dtype.kind == "f":
            missing = ~np.isfinite(values)
        if missing.any():
            i = int(np.argmax(missing))
            paired = " A series of Dask's stands beside a dataframe by its index." if hasattr(y, "index") else ""
            advice = f"Drop rows whose y is not known; they have nothing to tell.{paired}"
            raise problem(self.where, f"{name} has {values[i]} in row {start + i}", "values that are known", advice)
        if values.dtype.kind != "O":
            return values
        values = np.asarray(values.tolist())
        return values.astype(np.float64 if values.dtype.kind in "biuf" else str)


def survey(block: Block, table: LinearTable, sample: tuple[int, int], most: int) -> Sums:
    """The first pass over one partition: n, ``TableMoments`` of the columns, ``ValueCounts`` of y, and a sample.

    At most ``most`` different y are sent. The sample is a list of rows by column, one in ``SHARE`` within the limits
    ``sample``, each with the weight of the rows that it stands for.
    """
    n, rng = block.n, np.random.default_rng(block.number)
    k = min(n, max(sample[0], min(sample[1], n // SHARE)))
    keep, totals, parts = np.sort(rng.choice(n, k, replace=False)), [], []
    for part in block.stretches(table.rows_at_once):
        X, y, w, rows = table.read(part)
        each = np.ones(part.n) if w is None else w
        totals.append(Sums(n=part.n, columns=_moments(X, w), values=ValueCounts.of(y, rows, each)))
        here = keep[(keep >= part.start) & (keep < part.start + part.n)] - part.start
        some = {"X": X[here], "y": y[here], "weight": each[here] * (n / k)}
        parts.append(some | {key: value[here] for key, value in rows.items()})
    total = added(totals)
    values: ValueCounts = total["values"]
    if y.dtype.kind not in "biuf" and values.y.size > most:
        got = f"y of partition {block.number} has {values.y.size} different labels"
        raise problem(table.where, got, f"{most} at most", "For numbers use a regression.")
    return Sums(total | {"values": values.thinned(most, rng), "sample": [joined(parts)]})


def _moments(X: Any, w: np.ndarray | None) -> TableMoments:
    """Of the columns, without their products."""
    mean, sd, rest, _ = column_moments(X, w)
    weight = float(X.shape[0]) if w is None else float(w.sum())
    seen = X if w is None or not (w > 0.0).any() else X[w > 0.0]
    ends = [seen.min(axis=0), seen.max(axis=0)]
    low, high = (np.asarray(x.toarray() if is_sparse(x) else x, dtype=np.float64).ravel() for x in ends)
    return TableMoments(weight, mean, weight * sd * sd, low, high, rest)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The samples of partitions as one block."""
    out: dict[str, Any] = {key: [part[key] for part in parts] for key in parts[0]}
    sparse = any(is_sparse(x) for x in out["X"])
    X = sp.csr_array(sp.vstack(out.pop("X"))) if sparse else np.concatenate(out.pop("X"))
    return {"X": X} | {key: np.concatenate(each) for key, each in out.items()}


@dataclass(frozen=True)
class LinearReader:
    """Rows of a partition as a fit takes them: columns standardised, y as the likelihood has it.

    table : LinearTable
    columns : (shift, what rounding took from it, unit), arrays (D,)
    constant : array (D,) of bool
        Columns of which nothing is left.
    ones : bool
        Whether there is an intercept.
    labels : array or None
        What y are called, sorted: y is then their places.
    """

    table: LinearTable
    columns: tuple[np.ndarray, np.ndarray, np.ndarray]
    constant: np.ndarray
    ones: bool
    likelihood: Likelihood
    labels: np.ndarray | None = None

    def chunks(self, block: Block) -> Iterator[Chunk]:
        shift, rest, unit = self.columns
        for X, own, y, w in self.table.parts(block, self.likelihood, self.labels, shift.size):
            design = Standardized(X, shift, unit, self.ones, rest)
            design.drop(self.constant)
            yield Chunk(design, own, y, w)


def fit_weights(problem: PartitionedProblem, **run: Any) -> Learned:
    """Fit a problem whose prior is a ``GroupedVariances``; ``run`` are the settings of ``PartitionedFit``.

    Where each weight has a variance, ridge comes first and then every width of ``hyperparameters/weights.py``.
    """
    family, tol, learning = problem.prior.family, run["tol"], problem.learning

    def stage(width: float) -> PartitionedProblem:
        wide = family.with_log_prior(Spread(width))
        own = replace(learning, own=None)  # the likelihood's own parameters are ridge's
        out = replace(problem, prior=GroupedVariances(wide), learning=own)
        return replace(out, score=lambda outcome: width_evidence(wide, out.learned(outcome, tol, 1), width))

    stages = [problem]
    if learning.theta and family.n_groups > 1:
        ridge = replace(problem, prior=GroupedVariances(family.shared()))
        stages = [ridge, *(stage(width) for width in WIDTHS)]
    outcome, state = PartitionedFit(stages, **run).run()
    found = stages[state.stage].learned(outcome, tol, max(1, state.n_before))
    if not state.tried:
        return found
    evidence = {WIDTHS[k - 1]: value for k, (value, _) in state.tried.items()}
    return Relevance(**vars(found), width=WIDTHS[state.stage - 1], evidence=evidence)
