"""Fits of linear models to Dask collections by passes over the rows, and lazy predictions of them.

The first pass over the rows measures the columns, collects the different values of y and draws a sample of rows;
``distributed/linear_rows.py`` does the rest. Predictions are lazy, by partition, with the same methods as in memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import signature
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..checks import holds, numeric, optional, problem
from ..distributed import (
    Block,
    Checkpoint,
    InMemory,
    Learning,
    PartitionedProblem,
    Partitions,
    Sums,
    computed,
    is_dask,
    is_partitioned,
)
from ..distributed.linear_rows import MOST_VALUES, LinearReader, LinearTable, fit_weights, joined, survey
from ..distributed.partitions import RowsElsewhere
from ..distributed.precision import GroupedVariances
from ..distributed.row_sums import TableMoments, ValueCounts
from ..files import searched
from ..inputs.observations import Target, known, read_labels, read_observations

if TYPE_CHECKING:
    from .linear import LinearModel

F = TypeVar("F", bound=Callable[..., Any])
_FEWEST = 4096  # rows of a sample; a smaller table is its own sample
_LARGEST = 65536  # rows of a sample
_NUMBERS = 1 << 23  # largest number of entries of a sample, which limits the rows of wide tables
ROW_DEFAULTS = {"trials": 1.0}


def in_partitions(where: str, X: Any, checkpoint: Any) -> bool:
    """Whether X is a Dask collection; a checkpoint is refused if it is not."""
    if isinstance(X, RowsElsewhere):
        return True
    if checkpoint is not None and not is_partitioned(X):
        got = "checkpoint with a table in memory"
        raise problem(where, got, "a Dask array or dataframe", "A fit in memory takes seconds: leave it out.")
    return is_partitioned(X)


def partitions_target(
    where: str, likelihood: Any, bound: str, values: ValueCounts, centred: bool, learned: bool
) -> tuple[Target, np.ndarray | None]:
    """The target of any likelihood from the different values of y, and the names of its levels."""
    own = known(likelihood)
    rows_own = {} if own is None else own.row_values
    for key in (key for key, value in rows_own.items() if np.ndim(value) > 0):
        got = f"{own!r} holds {key} of its own, and rows are in partitions"
        raise problem(where, got, f"fit(X, y, {key}=...)", "Give it as a Dask array, cut as X is.")
    y, w, moments = values.y, values.weight, values.moments
    if y.dtype.kind not in "biuf" and own is not None and own.ordered:
        got = f"y holds {holds(y) or 'words'} in partitions, and their order is not known"
        raise problem(where, got, "numbers", "Give levels as numbers: y.cat.codes of an ordered categorical.")
    y, words = read_labels(where, likelihood, y)
    y = numeric(where, "y", y)
    if values.cut and moments is not None and own is not None and own.noise:
        # rescale the stored values to the mean and standard deviation of all values
        centre = np.average(y, weights=w)
        sd = float(np.sqrt(np.average((y - centre) ** 2, weights=w)))
        y = moments.mean[0] + (y - centre) * (float(np.sqrt(moments.covariance[0, 0])) / sd if sd > 0.0 else 1.0)
    twice = {key: np.tile(value, 2) for key, value in values.beside.items()}  # so that several rows share a value
    y, w = np.tile(y, 2), np.tile(w / 2, 2)
    target = read_observations(where, likelihood, bound, y, twice, w, centred, learned, words)
    return replace(target, weights=w), words


# -- the fit ------------------------------------------------------------------------------------------------
def fit_partitioned(estimator: LinearModel, X: Any, y: Any, weight: Any, checkpoint: Any, **beside: Any) -> None:
    """Fit a linear model to a Dask collection; ``estimator._read_partitions`` makes the target."""
    where = type(estimator).__name__
    if y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    beside = {key: value for key, value in beside.items() if value is not None}
    rows = Partitions.of(where, X=X, y=y, weight=weight, **beside)
    file = None if checkpoint is None else Checkpoint(where, checkpoint)
    rows = replace(rows, kept=None if file is None else file.path)
    table = LinearTable(where, column_names(estimator, rows, X), tuple(beside))
    sums = run_survey(rows, table)
    columns: TableMoments = sums["columns"]
    target, labels = estimator._read_partitions(sums["values"])
    likelihood, D = target.likelihood, len(table.names)
    if likelihood.row_parameters:  # readers add them
        likelihood = likelihood.with_rows(**{key: ROW_DEFAULTS.get(key) for key in likelihood.row_parameters})
    target = replace(target, likelihood=likelihood)
    own = estimator.learn_likelihood and likelihood.theta.size > 0
    latent, mean = estimator._latent_of(columns.columns(), np.zeros((1, D)), target, own)
    latent.settled = True  # there are more rows than weights, although none are in memory here
    reader = LinearReader(table, latent.columns, latent.constant, latent.groups.size > D, likelihood, labels)
    theta = bool((estimator.learn_variance or own) and latent.groups.max(initial=-1) >= 0)
    learning = Learning.of(theta, likelihood if own else None, target.y, target.weights)
    if file is not None:
        file.describe(fit_settings(estimator, table, target), measured_numbers(sums))
    task = PartitionedProblem(rows, reader, likelihood, GroupedVariances(latent.family()), learning)
    few = InMemory(where, joined(sums["sample"])) if "sample" in sums else None
    learned = fit_weights(task, tol=estimator._inner_tol(), sample=few, checkpoint=file)
    estimator._take(learned, target, latent, mean)


def run_survey(rows: Partitions, table: LinearTable, least: int | None = None) -> Sums:
    """The first pass over the rows; its sample has about ``least`` rows, if given. Weights must not sum to 1."""
    fewest, most = (_FEWEST, max(_FEWEST, _NUMBERS // len(table.names))) if least is None else (least, least)

    def measured() -> Sums:
        largest = max(fewest, min(_LARGEST, most))
        sample = -(-fewest // rows.count), -(-largest // rows.count)
        sums: Sums = rows.reduce(survey, table, sample, max(64, MOST_VALUES // rows.count))
        return sums

    def numbers(sums: Sums) -> dict[str, Any]:
        return {name: value for name, value in sums.items() if name != "sample"}

    sums = searched("survey", measured, numbers, Sums)
    weight = sums["columns"].weight
    if not weight > 0.0:
        raise problem(table.where, "sample_weight is 0 in every row of every partition", "one row or more that counts")
    if sums["n"] > 1 and abs(weight - 1.0) <= 1e-6:
        got = "sample_weight sums to 1 over all partitions, and weights say how often a row was seen"
        raise problem(table.where, got, "numbers of rows", f"Shares times {sums['n']}, the number of rows, are.")
    return sums


def column_names(estimator: Any, rows: Partitions, X: Any) -> tuple[str, ...]:
    """The names of the columns of X; sets ``n_features_in_`` and ``feature_names_in_`` as scikit-learn does."""
    where = type(estimator).__name__

    def columns() -> tuple[int, list[Any] | None]:
        named = rows.names.get("X")
        shape = (0, len(named)) if named is not None else getattr(X, "shape", (0, np.nan))
        if len(shape) != 2:
            raise problem(where, f"X has {len(shape)} dimension{'s' * (len(shape) != 1)}", "rows and columns")
        if shape[1] != shape[1]:  # NaN: not known before the first partition is read
            shape = computed(where, optional(where, "dask").delayed(np.shape)(rows.parts["X"][0]))
        return int(shape[1]), named

    kept = ("n_columns", "names")
    n, named = searched(
        "columns", columns, lambda sums: dict(zip(kept, sums, strict=True)), lambda own: tuple(own[k] for k in kept)
    )
    if n == 0:
        raise problem(where, "X has no columns", "one feature or more")
    estimator.n_features_in_ = n
    if named is not None and all(isinstance(name, str) for name in named):
        estimator.feature_names_in_ = np.asarray(named, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return tuple(estimator._columns())


def fit_settings(estimator: Any, table: LinearTable, target: Target) -> dict[str, Any]:
    """The settings that a checkpoint must have in common with the fit, as text; the tolerance may differ."""
    params = {key: value for key, value in estimator.get_params(deep=False).items() if key not in ("tol", "progress")}
    text = {key: repr(value.tolist() if isinstance(value, np.ndarray) else value) for key, value in params.items()}
    classes = None if target.labels is None else [str(label) for label in target.labels.tolist()]
    columns = {"columns": list(table.names), "rows": list(table.keys), "classes": classes}
    return {"estimator": table.where, **text, **columns}


def measured_numbers(sums: Sums) -> np.ndarray:
    """Numbers by which a checkpoint recognises its table."""
    columns, y = sums["columns"], sums["values"].moments
    mean, sd, _, _ = columns.columns()
    total = np.zeros(2) if y is None else np.array([y.mean[0], y.covariance[0, 0]])
    return np.concatenate([[sums["n"], columns.weight], mean, sd, total])


# -- predictions --------------------------------------------------------------------------------------------
def by_partition(method: F) -> F:
    """Decorator of a method of (X, ...): for a Dask collection it returns lazy Dask arrays.

    Other arguments that are Dask collections, such as an exposure, must have the partitions of X.
    """

    @wraps(method)
    def wrapped(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if not is_dask(X):
            return method(self, X, *args, **options)
        check_is_fitted(self)
        return _mapped(self, method, X, args, options)

    return wrapped  # type: ignore[return-value]


def _mapped(estimator: Any, method: Callable[..., Any], X: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    name = type(estimator).__name__
    given = signature(method).bind(estimator, X, *args, **options).arguments
    if method.__name__ == "predict" and given.get("return_cov"):
        raise problem(name, "return_cov of a collection of Dask's, whose rows come in parts", "a table in memory")
    dask, da = optional(name, "dask"), optional(name, "dask.array")
    of_rows = {key: x for key, x in options.items() if is_dask(x) or (np.ndim(x) > 0 and key in ("exposure", "trials"))}
    rest = {key: x for key, x in options.items() if key not in of_rows}
    rows = Partitions.of(name, X=X, **of_rows)
    one_row = _row_like(estimator, X)
    like = method(estimator, one_row, *args, **dict.fromkeys(of_rows, 1.0), **rest)  # columns are checked at once
    several = isinstance(like, tuple)
    answers = [np.asarray(x) for x in (like if several else (like,))]
    none = tuple(x[:0] for x in answers)
    small = dask.delayed(without_rows(estimator), pure=False)
    task = dask.delayed(_of_block, pure=False, nout=len(answers))
    sizes = X.chunks[0] if hasattr(X, "chunks") else [np.nan] * rows.count
    parts = []
    for i in range(rows.count):
        block = {key: part[i] for key, part in rows.parts.items()}
        parts.append(task(small, method.__name__, block, args, rest, none))
    arrays = []
    for k, shown in enumerate(answers):
        each = []
        for n, part in zip(sizes, parts, strict=True):
            each.append(da.from_delayed(part[k], (n, *shown.shape[1:]), dtype=shown.dtype))
        arrays.append(da.concatenate(each, axis=0, allow_unknown_chunksizes=True))
    return tuple(arrays) if several else arrays[0]


def _of_block(
    estimator: Any, method: str, block: dict[str, Any], args: tuple[Any, ...], options: dict[str, Any], none: Any
) -> tuple[Any, ...]:
    """The results of a method for one partition; ``none`` if it has no rows."""
    X = block.pop("X")
    if X.shape[0] == 0:
        return tuple(none)
    given = {key: np.asarray(x) if np.ndim(x) else x for key, x in block.items()}
    answer = getattr(estimator, method)(X, *args, **given, **options)
    return answer if isinstance(answer, tuple) else (answer,)


def score_partitions(estimator: Any, X: Any, y: Any, sample_weight: Any, rows: dict[str, Any]) -> float:
    """Mean log predictive density of a Dask collection, in one pass."""
    name, given = type(estimator).__name__, {key: x for key, x in rows.items() if x is not None}
    parts = Partitions.of(name, X=X, y=y, weight=sample_weight, **given)
    sums: Sums = parts.reduce(_scored, without_rows(estimator), tuple(given))
    if not sums["weight"] > 0.0:
        raise problem(name, "every y is NaN or has weight 0", "at least one observed row")
    return float(sums["density"] / sums["weight"])


def _scored(block: Block, estimator: Any, keys: tuple[str, ...]) -> Sums:
    given = {key: np.asarray(block[key]) if np.ndim(block[key]) else block[key] for key in keys}
    density = estimator._target.log_density(estimator._predictive(block["X"], **given), np.asarray(block["y"]))
    weight = np.ones(block.n) if block["weight"] is None else np.asarray(block["weight"], dtype=np.float64)
    seen = ~np.isnan(density) & (weight > 0.0)
    return Sums(density=float(weight[seen] @ density[seen]), weight=float(weight[seen].sum()))


def _row_like(estimator: Any, X: Any) -> Any:
    """A row of zeros (and known levels) with the columns of X, by which a method shows the form of its result."""
    shape: Any = getattr(X, "shape", ())
    if len(shape) != 2:
        return np.zeros(1)  # refused by the method, with the message for arrays in memory
    if hasattr(X, "columns"):
        zeros = np.zeros((1, len(X.columns)))
        row = optional("predict", "pandas").DataFrame(zeros, columns=list(X.columns))
    else:
        row = np.zeros((1, int(estimator.n_features_in_ if shape[1] != shape[1] else shape[1])))
    levels = estimator._levels
    return row if levels is None or row.shape[1] <= max(levels.places) else levels.put_first(row)


def without_rows(estimator: Any) -> Any:
    """A copy of the estimator without the rows of its fit, if prediction only needs the posterior of the weights."""
    latent = estimator._latent
    if latent.roots is None:
        return estimator
    out = copy.copy(estimator)
    out._latent = copy.copy(latent)
    out._latent.design = latent.design.take(slice(0, 0))
    out.solution_, out._weights = SimpleNamespace(posterior=None), None
    return out
