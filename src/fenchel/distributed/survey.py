"""The first pass: rows checked, columns measured, y summed up, and a sample of rows brought home.

Means and standard deviations of partitions are merged in pairs, about each other's means, with the digits that rounding
took from them; what comes out is that of one table in memory. Of y come its different values with their weights, and
where they are too many a share of each partition's, so that what travels does not grow with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..checks import finite, numeric, problem, table
from ..linalg.matrices import is_sparse
from ..linalg.moments import Moments, column_moments
from ..solvers.row_sample import SHARE
from .partitions import Block

MOST = 1 << 16  # different y that are kept, all partitions together
_EPS = np.finfo(float).eps


@dataclass(frozen=True)
class Asked:
    """What the first pass is asked for.

    where : who asks
    names : names of the columns of X
    keys : what rows have besides X, y and weight: exposure, trials, event
    fewest, largest : int
        Rows of each partition for the sample: one in ``SHARE``, within these.
    most : int
        Different y that a partition may send.
    """

    where: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    fewest: int
    largest: int
    most: int


@dataclass(frozen=True)
class Survey:
    """What the first pass found, of some partitions.

    n, weight : rows that were read, and the sum of their weights
    mean, rest, square, low, high : arrays (D,)
        Of the columns of X: the mean and what rounding took from it, the mean square about it, the range.
    y : array (k,) or (k, 1 + keys), or an array of words
        Different values, with those of ``keys`` beside them; ``y_weight`` what they weigh, ``y_rows`` their rows.
    total : array (2,)
        Mean of y and mean square about it, where y are numbers.
    cut : bool
        Whether y is a share of the values.
    sample : list of dict
        Rows by column, with ``stands``: for how many each stands.
    """

    n: int
    weight: float
    mean: np.ndarray
    rest: np.ndarray
    square: np.ndarray
    low: np.ndarray
    high: np.ndarray
    y: np.ndarray
    y_weight: np.ndarray
    y_rows: np.ndarray
    total: np.ndarray
    cut: bool
    sample: list[dict[str, Any]]

    def __add__(self, other: Survey) -> Survey:
        y, y_weight, y_rows = _merged_values(self, other)
        weighed = [each for each in (self, other) if each.weight > 0.0] or [self, other]
        columns = weighed[0] if len(weighed) == 1 else self._merged_columns(other)  # rows of weight 0 do not count
        return replace(
            columns,
            n=self.n + other.n,
            weight=self.weight + other.weight,
            y=y,
            y_weight=y_weight,
            y_rows=y_rows,
            cut=self.cut or other.cut,
            sample=[*self.sample, *other.sample],
        )

    def _merged_columns(self, other: Survey) -> Survey:
        """The moments of both; by how many rows they have where nothing has a weight."""
        a, b = (self.weight, other.weight) if self.weight > 0.0 else (self.n, other.n)
        share, away = b / (a + b), (other.mean - self.mean) + (other.rest - self.rest)
        mean = self.mean + share * away
        return replace(
            self,
            mean=mean,
            rest=(self.mean - mean) + share * away + self.rest,
            square=(1.0 - share) * self.square + share * other.square + share * (1.0 - share) * away * away,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
            total=_merged_total(self.total, other.total, share),
        )

    @property
    def moments(self) -> Moments:
        """Of all columns, as ``column_moments`` of one table."""
        one, sd = self.low == self.high, np.sqrt(self.square)
        constant = one | (sd <= 4.0 * _EPS * np.abs(self.mean))
        zero = np.zeros_like(self.mean)
        return Moments(
            np.where(one, self.low, self.mean), np.where(one, zero, sd), np.where(one, zero, self.rest), constant
        )


def survey(block: Block, asked: Asked) -> Survey:
    """The first pass over one partition."""
    where, place = asked.where, f"of partition {block.number}"
    X = matrix(where, block["X"], asked.names, block.number)
    w = weights_of(where, block.get("weight"), block.n, block.number)
    y = target(where, block["y"], block.number)
    rows = {key: block_vector(where, key, block[key], block.n, block.number) for key in asked.keys}
    if len(asked.names) != X.shape[1]:
        raise problem(where, f"X {place} has {X.shape[1]} columns", f"{len(asked.names)}, as the first has")
    mean, sd, rest, _ = column_moments(X, w)
    counted = X if w is None or not (w > 0.0).any() else X[w > 0.0]
    low, high = _range(counted)
    keyed = np.column_stack([y, *rows.values()]) if rows else y
    values, inverse = np.unique(keyed, axis=0 if rows else None, return_inverse=True)
    inverse, each = inverse.ravel(), np.ones(block.n) if w is None else w
    y_weight = np.bincount(inverse, weights=each, minlength=values.shape[0])
    y_rows = np.bincount(inverse, minlength=values.shape[0]).astype(float)
    cut, rng = values.shape[0] > asked.most, np.random.default_rng(block.number)
    if cut and y.dtype.kind not in "biuf":
        got = f"y {place} has {values.shape[0]} different labels"
        raise problem(where, got, f"{asked.most} at most", "For numbers use a regression.")
    if cut:
        keep = np.sort(rng.choice(values.shape[0], asked.most, replace=False))
        grow = y_weight.sum() / max(y_weight[keep].sum(), 1e-300)
        values, y_weight, y_rows = values[keep], grow * y_weight[keep], y_rows[keep]
    weight, total = float(each.sum()), np.zeros(2)
    if y.dtype.kind in "biuf":
        p = each / weight if weight > 0.0 else np.full(block.n, 1.0 / block.n)
        centre = float(p @ y)
        total = np.array([centre, float(p @ (y - centre) ** 2)])
    k = min(block.n, max(asked.fewest, min(asked.largest, block.n // SHARE)))
    keep = np.sort(rng.choice(block.n, k, replace=False))
    one = {"X": X[keep], "y": y[keep], "weight": None if w is None else w[keep], "stands": np.full(k, block.n / k)}
    one |= {key: value[keep] for key, value in rows.items()}
    square = sd * sd
    return Survey(block.n, weight, mean, rest, square, low, high, values, y_weight, y_rows, total, cut, [one])


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


def _merged_total(a: np.ndarray, b: np.ndarray, share: float) -> np.ndarray:
    away = b[0] - a[0]
    return np.array([a[0] + share * away, (1 - share) * a[1] + share * b[1] + share * (1 - share) * away * away])


def _merged_values(a: Survey, b: Survey) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    both = np.concatenate([a.y, b.y])
    values, inverse = np.unique(both, axis=0 if both.ndim == 2 else None, return_inverse=True)
    sums = [
        np.bincount(inverse.ravel(), weights=np.concatenate(pair), minlength=values.shape[0])
        for pair in ((a.y_weight, b.y_weight), (a.y_rows, b.y_rows))
    ]
    return values, sums[0], sums[1]
