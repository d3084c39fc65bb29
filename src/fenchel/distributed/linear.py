"""Rows of a partition for a linear model: checked, surveyed in a first pass, and made ready for a fit.

Columns are standardised as ``linalg/standardized.py`` does, y is numbers or the places of its labels. The first pass
measures the columns, counts the different values of y, and brings a sample of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import finite, numeric, problem, table
from ..likelihoods.base import Likelihood
from ..linalg.matrices import is_sparse
from ..linalg.moments import column_moments
from ..linalg.standardized import Standardized
from ..solvers.row_sample import SHARE
from .evaluation import Chunk, chunk_rows
from .partitions import Block, Sums
from .survey import Moments, ValueCounts

MOST_VALUES = 1 << 16  # different y that are kept, all partitions together


def survey(
    block: Block, where: str, names: tuple[str, ...], keys: tuple[str, ...], sample: tuple[int, int], most: int
) -> Sums:
    """The first pass over one partition: n, ``Moments`` of the columns, ``ValueCounts`` of y, and a sample.

    ``keys`` is what rows have besides X, y and weight; at most so many different y are sent. The sample is a list of
    rows by column, one in ``SHARE`` within the limits ``sample``, each weighing the rows that it stands for.
    """
    place, n = f"of partition {block.number}", block.n
    X = matrix(where, block["X"], names, block.number)
    w = weights_of(where, block.get("weight"), n, block.number)
    y = target(where, block["y"], block.number)
    rows = {key: block_vector(where, key, block[key], n, block.number) for key in keys}
    if len(names) != X.shape[1]:
        raise problem(where, f"X {place} has {X.shape[1]} columns", f"{len(names)}, as the first has")
    each, rng = np.ones(n) if w is None else w, np.random.default_rng(block.number)
    values = ValueCounts.of(y, rows, each)
    if y.dtype.kind not in "biuf" and values.y.size > most:
        got = f"y {place} has {values.y.size} different labels"
        raise problem(where, got, f"{most} at most", "For numbers use a regression.")
    values = values.thinned(most, rng)
    k = min(n, max(sample[0], min(sample[1], n // SHARE)))
    keep = np.sort(rng.choice(n, k, replace=False))
    some = {"X": X[keep], "y": y[keep], "weight": each[keep] * (n / k)}
    some |= {key: value[keep] for key, value in rows.items()}
    return Sums(n=n, columns=_moments(X, w), values=values, sample=[some])


def _moments(X: Any, w: np.ndarray | None) -> Moments:
    """Of the columns, without their products."""
    mean, sd, rest, _ = column_moments(X, w)
    weight = float(X.shape[0]) if w is None else float(w.sum())
    low, high = _range(X if w is None or not (w > 0.0).any() else X[w > 0.0])
    return Moments(weight, mean, weight * sd * sd, low, high, rest)


@dataclass(frozen=True)
class LinearReader:
    """Rows of a partition as a fit takes them: columns standardised, y as the likelihood has it.

    columns : (shift, what rounding took from it, unit), arrays (D,)
    constant : array (D,) of bool
        Columns of which nothing is left.
    ones : bool
        Whether there is an intercept.
    keys : what rows have besides: exposure, trials, event
    labels : array or None
        What y are called, sorted: it is then their places.
    """

    where: str
    names: tuple[str, ...]
    columns: tuple[np.ndarray, np.ndarray, np.ndarray]
    constant: np.ndarray
    ones: bool
    likelihood: Likelihood
    keys: tuple[str, ...]
    labels: np.ndarray | None = None

    def chunks(self, block: Block) -> Iterator[Chunk]:
        number, (shift, rest, unit) = block.number, self.columns
        X = matrix(self.where, block["X"], self.names, number, checked=True)
        y, w = self.levels(target(self.where, block["y"], number)), block.get("weight")
        w = weights_of(self.where, w, block.n, number)
        rows = {key: block_vector(self.where, key, block[key], block.n, number) for key in self.keys}
        step = chunk_rows(X.shape[1])
        for i in range(0, block.n, step):
            part = slice(i, min(block.n, i + step))
            design = Standardized(X[part], shift, unit, self.ones, rest)
            design.drop(self.constant)
            own = self.likelihood.with_rows(**{k: v[part] for k, v in rows.items()}) if rows else self.likelihood
            yield Chunk(design, own, y[part], None if w is None else w[part])

    def levels(self, y: np.ndarray) -> np.ndarray:
        """y as the likelihood takes it."""
        if self.labels is None:
            return np.asarray(y, dtype=np.float64)
        place = np.searchsorted(self.labels, y)
        return np.clip(place, 0, self.labels.size - 1).astype(np.float64)


# -- a partition as it came, checked ------------------------------------------------------------------------
def matrix(where: str, X: Any, names: tuple[str, ...], number: int, checked: bool = False) -> Any:
    """The X of a partition as numbers, float64 or CSR; finite, which the first pass has ``checked``."""
    called = f"X of partition {number}"
    if is_sparse(X):
        import scipy.sparse as sp

        X = sp.csr_array(X, dtype=np.float64)
        if not checked:
            finite(where, f"the stored entries of {called}", X.data)
        return X
    X = numeric(where, called, table(where, X, called) if hasattr(X, "columns") and not checked else X)
    if X.ndim != 2:
        raise problem(where, f"{called} has shape {X.shape}", "rows and columns")
    if not checked and not np.isfinite(X).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(X))[0])
        name = names[column] if column < len(names) else column
        got = f"{called} has {X[row, column]:g} in row {row}, column {name!r}"
        raise problem(where, got, "finite numbers", "Fill or drop missing values first.")
    return np.ascontiguousarray(X)


def target(where: str, y: Any, number: int) -> np.ndarray:
    """The y of a partition: numbers or words, none of them missing."""
    called = f"y of partition {number}"
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise problem(where, f"{called} has shape {values.shape}", "one value a row")
    kind = values.dtype.kind
    if kind == "O":
        missing = np.array([v is None or v != v for v in values.tolist()], dtype=bool)
    else:
        missing = ~np.isfinite(values) if kind in "fc" else np.zeros(values.size, dtype=bool)
    if missing.any():
        i = int(np.argmax(missing))
        paired = " A series of Dask's stands beside a dataframe by its index." if hasattr(y, "index") else ""
        advice = f"Drop rows whose y is not known; they have nothing to tell.{paired}"
        raise problem(where, f"{called} has {values[i]} in row {i}", "values that are known", advice)
    if kind == "O":
        if all(isinstance(v, int | float | bool | np.number | np.bool_) for v in values.tolist()):
            return values.astype(np.float64)
        return values.astype(str)
    return values


def weights_of(where: str, weight: Any, n: int, number: int) -> np.ndarray | None:
    """The weights of a partition, checked."""
    if weight is None:
        return None
    w = block_vector(where, "sample_weight", weight, n, number)
    if not ((w >= 0.0) & np.isfinite(w)).all():
        i = int(np.argmax(~((w >= 0.0) & np.isfinite(w))))
        raise problem(where, f"sample_weight of partition {number} has {w[i]:g} in row {i}", "finite numbers >= 0")
    return w


def block_vector(where: str, name: str, value: Any, n: int, number: int) -> np.ndarray:
    """One number a row of a partition."""
    out = numeric(where, f"{name} of partition {number}", value)
    out = out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out
    out = np.full(n, float(out)) if out.ndim == 0 else out
    if out.shape != (n,):
        raise problem(where, f"{name} of partition {number} has shape {out.shape}", f"({n},): one number a row")
    if not np.isfinite(out).all():
        i = int(np.argmax(~np.isfinite(out)))
        raise problem(where, f"{name} of partition {number} has {out[i]:g} in row {i}", "finite numbers")
    return out


def _range(X: Any) -> tuple[np.ndarray, np.ndarray]:
    if not is_sparse(X):
        return X.min(axis=0), X.max(axis=0)
    low, high = (np.asarray(x.toarray(), dtype=np.float64).ravel() for x in (X.min(axis=0), X.max(axis=0)))
    return low, high
