"""Columns of whole numbers whose dtype does not decide their meaning: counts, ordered levels, or codes of categories.

Each possible reading of a column gives a regression of it on the other columns' first two principal components F.
Readings are compared by Schwarz's criterion: log likelihood minus half the logarithm of n for each parameter.

    counts              negative binomial, log mean F w + b; Poisson if there are more than 12 values and no 0
    real numbers        normal, mean F w + b, if some are negative or there are more than 12 values
    ordered levels      P(y <= k) = sigmoid(b_k - F w)
    categories          softmax of F W + b; levels and categories only with at most 12 values

Pulse, blood pressure and age are whole numbers with many values, never 0, which vary more or less than counts would.
They are read as counts only if the Poisson likelihood of their fit is better than the normal, and even then as a guess.
Otherwise counts have few parameters for many values. Levels have one parameter for each value, which pays if values end
abruptly (1 to 5) or vary less than counts. Categories have K - 1 for each component, which pays if order does not
matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.sparse import issparse
from scipy.special import log_softmax, logit

from ..checks import problem
from ..inputs.frames import DataColumn, Kind
from ..likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, NegativeBinomial, Ordinal, Poisson
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike

# -- The columns of a table ------------------------------------------------------------------------
_DATES = "Turn dates into numbers, for example days since the first, or leave the column out."


@dataclass(frozen=True)
class RawColumn:
    """A column as given; ``seen`` has the cells that are not missing, with a numeric or bool dtype or as objects."""

    name: Any
    missing: np.ndarray
    seen: np.ndarray
    declared: tuple[Any, ...] | None = None  # the categories of a pandas column, in order
    dtype: Any = None  # the dtype of a pandas column
    ordered: bool = False  # whether the categories are ordered

    @property
    def is_number(self) -> bool:
        return self.declared is None and self.seen.dtype.kind in "biuf"


def is_frame(X: Any) -> bool:
    """Whether X is a pandas data frame."""
    return isinstance(X, pd.DataFrame)


def plain_array(X: Any) -> Any:
    """An array, a list of rows or a sparse matrix as an array: masked cells are None or NaN, text is objects."""
    if issparse(X):  # a zero of a sparse matrix is not a missing cell
        return X.toarray()
    mask = np.ma.getmaskarray(X) if np.ma.isMaskedArray(X) else None
    array = np.asarray(X)  # includes values under a mask
    if array.dtype.kind in "US":
        array = np.asarray(X, dtype=object)  # numbers in a table with text stay numbers
    if mask is not None and mask.any():
        array = array.astype(np.float64 if array.dtype.kind in "biuf" else object)
        array[mask] = np.nan if array.dtype.kind == "f" else None
    return array


def split(X: Any, where: str) -> list[RawColumn]:
    """The columns of a pandas data frame, an array, a list of rows or a sparse matrix, without conversion.

    Missing cells are NaN, None, NA or masked. Dates are refused.
    """
    table = X if is_frame(X) else plain_array(X)
    if table.ndim != 2 or 0 in table.shape:
        raise problem(where, f"X has shape {table.shape}", "a table of at least one row and one column")
    if is_frame(X):
        if not X.columns.is_unique:
            twice = X.columns[X.columns.duplicated()][0]
            raise problem(where, f"X has two columns {twice!r}", "a name for each column")
        return [_cells(where, name, X.iloc[:, d], X.dtypes.iloc[d]) for d, name in enumerate(X.columns)]
    if table.dtype.kind not in "biufO":
        advice = _DATES if table.dtype.kind in "mM" else ""
        raise problem(where, f"X has dtype {table.dtype}", "numbers, text or objects", advice)
    return [_cells(where, f"x{d}", pd.Series(table[:, d]), None) for d in range(table.shape[1])]


def _cells(where: str, name: Any, series: pd.Series, dtype: Any) -> RawColumn:
    """One column; ``dtype`` is None if X has no dtype for each column."""
    column = DataColumn(where, name, series)
    missing = column.data.isna().to_numpy(dtype=bool)
    seen = column.data[~missing]
    if column.categories is not None:
        used = column.categories[np.unique(seen.cat.codes.to_numpy())]  # a category without cells has no estimate
        ordered = bool(seen.cat.ordered)
        return RawColumn(name, missing, _objects(seen), tuple(used.tolist()), dtype, ordered)
    if column.kind in (Kind.DATES, Kind.OUTLINES):
        such = f", such as {seen.iloc[0]}" if len(seen) else ""
        got = f"column {name!r} holds {column.kind.value}{such}"
        raise problem(where, got, "numbers, text, categories or booleans", _DATES)
    numbers = column.kind in (Kind.NUMBERS, Kind.BOOLEANS)
    if numbers or (column.kind is Kind.MIXED and all(isinstance(cell, Number) for cell in seen)):
        values = _numbers(seen)
        if values.dtype.kind in "biuf":
            return RawColumn(name, missing, values, dtype=dtype)
    return RawColumn(name, missing, _objects(seen), dtype=dtype)


def _numbers(seen: pd.Series) -> np.ndarray:
    """Numbers or booleans of any pandas dtype as numpy's."""
    kind = seen.dtype.kind
    if kind in "iu":
        return seen.to_numpy(dtype=np.int64)
    if kind in "bf":
        return seen.to_numpy(dtype=np.float64 if kind == "f" else bool)
    values = np.array(seen.tolist())
    return values.astype(np.float64) if values.dtype == object else values  # Decimals


def _objects(series: pd.Series) -> np.ndarray:
    return np.asarray(series.astype(object).to_numpy(), dtype=object)


def word(value: ArrayLike) -> str:
    """A value as text for a message."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def listed(names: Any) -> str:
    """The first few names, for a message."""
    words = [repr(name) for name in names]
    return ", ".join(words[:8]) + (f", ... ({len(words)} in all)" if len(words) > 8 else "")


# -- Columns as numbers ----------------------------------------------------------------------------
MOST_LEVELS, ROWS_A_LEVEL = 12, 3  # most distinct values, and least cells for each, for which levels are considered
_ROWS, _COMPONENTS = 2000, 2  # rows that are used, and number of components
_CLEAR = 5.0  # nats by which the best reading must exceed the next in order not to be a guess
_LARGE = 100.0  # mean from which whole numbers are treated as real ones
_RIDGE = 0.01  # keeps coefficients finite if levels are separated
_WORDS: dict[type[Likelihood], str] = {
    Poisson: "counts",
    Gaussian: "real numbers",
    Ordinal: "ordered levels",
    MultinomialLogit: "categories",
    BernoulliLogit: "two levels",
}
Wanted = type[Likelihood] | Likelihood | None  # an object, or a class with parameters from the cells; None for "auto"


class ColumnReading(NamedTuple):
    """The likelihood of a column (None: as its levels imply), the reason, and whether it is a guess."""

    kind: Wanted
    why: str
    guessed: bool = False


def readings(cells: list[RawColumn], wanted: list[Wanted], where: str) -> list[ColumnReading]:
    """The reading of each column: as the user says, by its dtype, or by evidence."""
    for part in cells:
        if part.seen.size == 0:
            raise problem(
                where, f"column {part.name!r} has no data", "at least one cell that is not missing", "Leave it out."
            )
    decided = [
        _guess(part, where) if kind is None else ColumnReading(kind, "as asked for")
        for part, kind in zip(cells, wanted)
    ]
    if all(decided):
        return [reading for reading in decided if reading]
    rows = sample(cells[0].missing.size)
    some = [numbers(part, rows) for part in cells]
    blocks = [block(*one) for one in some]

    def judged(j: int) -> ColumnReading:
        y, _ = some[j]
        seen = ~np.isnan(y)
        return judge(y[seen], components(blocks, j)[seen])

    return [reading or judged(j) for j, reading in enumerate(decided)]


def numbers(cells: RawColumn, rows: np.ndarray) -> tuple[np.ndarray, bool]:
    """A column as numbers, NaN for missing cells, and whether they are indices of levels."""
    y = np.full(cells.missing.size, np.nan)
    labels = np.unique(cells.seen.astype(str)) if not cells.is_number else None
    y[~cells.missing] = cells.seen if labels is None else np.searchsorted(labels, cells.seen.astype(str))
    y = y[rows]
    return y, np.unique(y[~np.isnan(y)]).size <= MOST_LEVELS


def _guess(cells: RawColumn, where: str) -> ColumnReading | None:
    """The reading from dtype and values; None if evidence must decide."""
    seen, name = cells.seen, cells.name
    if not cells.is_number:
        if cells.declared is not None:
            return ColumnReading(None, "ordered categories" if cells.ordered else "categories")
        _refuse_digits(cells, where)
        return ColumnReading(None, "text")
    if seen.dtype.kind == "b":
        return ColumnReading(BernoulliLogit, "bool")
    if np.isin(seen, (0, 1)).all():
        return ColumnReading(BernoulliLogit, "0 and 1 only")
    values = np.unique(seen)
    K, n = values.size, seen.size
    judged = is_judged(cells, K)
    if not (np.isfinite(seen).all() and (seen == np.floor(seen)).all()):
        return ColumnReading(Gaussian, "real numbers")
    holes = bool(cells.missing.any())  # pandas turns integers with missing cells into floats
    if seen.dtype.kind == "f" and not holes:
        few = judged and K <= MOST_LEVELS
        return ColumnReading(Gaussian, f"numbers of a float dtype{', though whole and few' if few else ''}", few)
    if K == n > 10 and values[-1] - values[0] == n - 1:
        advice = "Leave it out, or make it the index; or ask for it with likelihood."
        raise problem(
            where,
            f"column {name!r} counts the rows, {int(values[0])} to {int(values[-1])}",
            "data, not row numbers",
            advice,
        )
    if K == 1 and n > 1:
        got = f"column {name!r} has one value only, {word(values[0])}"
        raise problem(where, got, "values that differ", "A constant says nothing about the factors: leave it out.")
    return None if judged else plain(cells)


def _refuse_digits(cells: RawColumn, where: str) -> None:
    """Refuse text that is all numbers, the result of an earlier error in reading."""
    try:
        numbers = [float(cell) for cell in cells.seen if isinstance(cell, str)]
    except ValueError:
        return
    if numbers and len(numbers) == cells.seen.size:
        advice = "Use pandas.to_numeric for numbers, or astype('category') for labels; or ask for it with likelihood."
        got = f"column {cells.name!r} is numbers kept as text, such as {word(cells.seen[0])}"
        raise problem(where, got, "numbers, or labels that are not", advice)


# -- by evidence ---------------------------------------------------------------------------------------
def plain(cells: RawColumn) -> ColumnReading:
    """The reading of whole numbers with too few cells for evidence, or so large that it does not matter."""
    low, high = int(cells.seen.min()), int(cells.seen.max())
    span = f"whole numbers from {low} to {high}"
    if low < 0:
        return ColumnReading(Gaussian, f"{span}, some of them negative")
    if cells.seen.mean() >= _LARGE:
        return ColumnReading(Gaussian, f"{span}: so large that they are as good as real", True)
    return ColumnReading(Poisson, f"{span}, too few cells to tell what they are", True)


def is_judged(cells: RawColumn, K: int) -> bool:
    """Whether there are enough cells to compare readings of a column with K distinct values."""
    clear = K > MOST_LEVELS and (cells.seen.min() < 0 or cells.seen.mean() >= _LARGE)
    return bool(cells.seen.size >= ROWS_A_LEVEL * min(K, MOST_LEVELS) and not clear)


def judge(y: np.ndarray, F: np.ndarray) -> ColumnReading:
    """Compare readings of a column of whole numbers y (n,), given components F (n, q) of the other columns."""
    values, codes = np.unique(y, return_inverse=True)
    n, K, q = y.size, values.size, F.shape[1]
    ones, price = np.hstack([F, np.ones((n, 1))]), 0.5 * np.log(n)
    evidence: dict[type[Likelihood], float] = {}
    if values[0] >= 0:
        measured = K > MOST_LEVELS and values[0] > 0
        start, counts = (
            np.r_[np.zeros(q), np.log(y.mean())],
            Poisson() if measured else NegativeBinomial(5.0, bound="log-sum"),
        )
        evidence[Poisson] = _scalar(counts, y, ones, start, (-4.0, 12.0)) - (q + 1 + counts.theta.size) * price
    if values[0] < 0 or K > MOST_LEVELS:  # densities, integrated over cells of width one
        start = np.r_[np.zeros(q), y.mean()]
        evidence[Gaussian] = _scalar(Gaussian(float(y.var())), y, ones, start, (-12.0, 24.0)) - (q + 2) * price
    if K <= MOST_LEVELS:
        share = np.cumsum(np.bincount(codes))[:-1] / n
        ordered = _scalar(Ordinal(logit(share), bound="log-sum"), codes.astype(float), F, np.zeros(q), (-12.0, 12.0))
        evidence[BernoulliLogit if K == 2 else Ordinal] = ordered - (K - 1 + q) * price
    if 2 < K <= MOST_LEVELS:
        evidence[MultinomialLogit] = _softmax(codes, ones, K) - (K - 1) * (q + 1) * price
    best, second = sorted(evidence, key=lambda kind: -evidence[kind])[:2]
    lead = evidence[best] - evidence[second]
    why = f"{K} whole numbers from {int(values[0])} to {int(values[-1])}: {_WORDS[best]} by {lead:.1f} nats against "
    without_zero = best is Poisson and values[0] > 0  # counts are usually 0 somewhere, measured quantities are not
    return ColumnReading(best, why + _WORDS[second], bool(lead < _CLEAR) or without_zero)


def components(blocks: list[np.ndarray], j: int) -> np.ndarray:
    """Scores (R, q) of the rows on the first components of all blocks (R, .) except the j-th."""
    others = [block for i, block in enumerate(blocks) if i != j and block.shape[1]]
    if not others:
        return np.zeros((blocks[j].shape[0], 0))
    Z = np.hstack(others)
    roots, vectors = np.linalg.eigh(Z.T @ Z)
    keep = roots > 1e-9 * max(roots[-1], 1e-300)
    F = Z @ vectors[:, keep][:, ::-1][:, :_COMPONENTS]
    return F / np.maximum(F.std(axis=0), 1e-300)


def block(values: np.ndarray, few: bool) -> np.ndarray:
    """A column as standardised numbers, 0 for missing cells; with few distinct values an indicator of each."""
    seen = ~np.isnan(values)
    if not seen.any():
        return np.zeros((values.size, 0))
    Z = (values[:, None] == np.unique(values[seen])).astype(float) if few else values[:, None]
    Z = np.where(seen[:, None], Z - Z[seen].mean(axis=0), 0.0)
    return Z / max(float(np.sqrt((Z * Z).sum(axis=1).mean())), 1e-300)


def sample(n: int) -> np.ndarray:
    """The rows that are used: all of a short table, a fixed sample of a long one."""
    return np.arange(n) if n <= _ROWS else np.sort(np.random.default_rng(0).choice(n, _ROWS, replace=False))


# -- regressions ---------------------------------------------------------------------------------------
def _scalar(first: Likelihood, y: np.ndarray, F: np.ndarray, w: np.ndarray, reach: tuple[float, float]) -> float:
    """The largest log likelihood over w and the likelihood's own parameters theta, limited to ``reach``."""
    none, q = np.zeros((y.size, 1)), w.size

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        own, eta = first.with_theta(x[q:]), (F @ x[:q])[:, None]
        rows = own.prepare(y)
        slope = own.derivatives(eta, rows)[1]
        theta = own.theta_gradient(eta, none, rows)
        value = 0.5 * _RIDGE * float(x[:q] @ x[:q]) - float(np.sum(own.log_density(eta, rows)))
        return value, np.concatenate([F.T @ slope[:, 0] + _RIDGE * x[:q], -theta])

    x = np.concatenate([w, np.clip(first.theta, *reach)])
    return -_least(loss, x, [(None, None)] * q + [reach] * first.theta.size)


def _softmax(codes: np.ndarray, F: np.ndarray, K: int) -> float:
    """The largest log likelihood of a multinomial regression."""
    hot, q = np.eye(K)[codes], F.shape[1]

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        W = x.reshape(q, K)
        log_p = log_softmax(F @ W, axis=1)
        value = -float(np.sum(log_p * hot)) + 0.5 * _RIDGE * float(x @ x)
        return value, (F.T @ (np.exp(log_p) - hot)).ravel() + _RIDGE * x

    return -_least(loss, np.zeros(q * K), None)


def _least(loss: Any, x: np.ndarray, bounds: Any) -> float:
    with np.errstate(all="ignore"):
        result = minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60, "ftol": 1e-7})
    return float(result.fun)
