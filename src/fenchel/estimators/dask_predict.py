"""Predictions at the rows of a Dask collection: lazily, a partition at a time, by the same methods as in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..checks import optional, problem
from ..distributed import Block, Partitions, Sums, is_dask

F = TypeVar("F", bound=Callable[..., Any])


def by_partition(method: F) -> F:
    """A method of (X, ...) that answers a Dask collection with a Dask array, or several, not yet computed.

    Arguments that are collections of Dask's too, such as an exposure, are cut as X is.
    """

    @wraps(method)
    def lazily(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if not is_dask(X):
            return method(self, X, *args, **options)
        check_is_fitted(self)
        return _mapped(self, method, X, args, options)

    return lazily  # type: ignore[return-value]


def _mapped(estimator: Any, method: Callable[..., Any], X: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    name = type(estimator).__name__
    asked = signature(method).bind(estimator, X, *args, **options).arguments
    if method.__name__ == "predict" and asked.get("return_cov"):
        raise problem(name, "return_cov of a collection of Dask's, whose rows come in parts", "a table in memory")
    dask, da = optional(name, "dask"), optional(name, "dask.array")
    of_rows = {key: x for key, x in options.items() if is_dask(x) or (np.ndim(x) > 0 and key in ("exposure", "trials"))}
    rest = {key: x for key, x in options.items() if key not in of_rows}
    rows = Partitions.of(name, X=X, **of_rows)
    small = dask.delayed(unheld(estimator), pure=False)
    like = method(estimator, _row_like(estimator, X), *args, **dict.fromkeys(of_rows, 1.0), **rest)  # columns checked
    several = isinstance(like, tuple)
    known = X.chunks[0] if hasattr(X, "chunks") else [np.nan] * rows.count
    parts = []
    for i, n in enumerate(known):
        block = {key: part[i] for key, part in rows.parts.items()}
        task = dask.delayed(_one, pure=False, nout=len(like) if several else None)
        parts.append((n, task(small, method.__name__, block, args, rest)))

    def array(place: int | None, shown: np.ndarray) -> Any:
        picked = [(n, part if place is None else part[place]) for n, part in parts]
        each = [da.from_delayed(part, (n, *shown.shape[1:]), dtype=shown.dtype) for n, part in picked]
        return da.concatenate(each, axis=0, allow_unknown_chunksizes=True)

    return tuple(array(k, np.asarray(x)) for k, x in enumerate(like)) if several else array(None, np.asarray(like))


def _one(estimator: Any, method: str, block: dict[str, Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The answer of one partition; of no rows, none."""
    X = block.pop("X")
    given = {key: np.asarray(x) if np.ndim(x) else x for key, x in block.items()}
    if X.shape[0] == 0:
        like = getattr(estimator, method)(_row_like(estimator, X), *args, **options)
        return tuple(x[:0] for x in like) if isinstance(like, tuple) else like[:0]
    return getattr(estimator, method)(X, *args, **given, **options)


def score_partitions(estimator: Any, X: Any, y: Any, sample_weight: Any, rows: dict[str, Any]) -> float:
    """The mean log predictive density of partitioned rows: one pass."""
    name, given = type(estimator).__name__, {key: x for key, x in rows.items() if x is not None}
    parts = Partitions.of(name, X=X, y=y, weight=sample_weight, **given)
    found: Sums = parts.reduce(_scored, unheld(estimator), tuple(given))
    if not found["weight"] > 0.0:
        raise problem(name, "every y is NaN or has weight 0", "at least one observed row")
    return float(found["density"] / found["weight"])


def _scored(block: Block, estimator: Any, keys: tuple[str, ...]) -> Sums:
    given = {key: np.asarray(block[key]) if np.ndim(block[key]) else block[key] for key in keys}
    density = estimator._target.log_density(estimator._predictive(block["X"], **given), np.asarray(block["y"]))
    weight = np.ones(block.n) if block["weight"] is None else np.asarray(block["weight"], dtype=np.float64)
    seen = ~np.isnan(density) & (weight > 0.0)
    return Sums(density=float(weight[seen] @ density[seen]), weight=float(weight[seen].sum()))


def _row_like(estimator: Any, X: Any) -> Any:
    """A row of zeros with as many columns as X has, named as they are."""
    shape: Any = getattr(X, "shape", ())
    if hasattr(X, "columns") and len(shape) == 2:
        row = np.zeros((1, len(X.columns)))
        return optional("predict", "pandas").DataFrame(row, columns=list(X.columns))
    if len(shape) != 2:
        return np.zeros(1)  # which the method refuses as it does in memory
    return np.zeros((1, int(estimator.n_features_in_ if shape[1] != shape[1] else shape[1])))


def unheld(estimator: Any) -> Any:
    """The estimator without the rows of its fit, where prediction needs the posterior of the weights alone."""
    latent: Any = getattr(estimator, "_latent", None)
    if getattr(latent, "roots", None) is None:
        return estimator
    out = copy.copy(estimator)
    out._latent = copy.copy(latent)
    out._latent.design = latent.design.take(slice(0, 0))
    out.solution_, out._weights = _NoRows(), None
    return out


class _NoRows:
    """Stands where a solution would hold the rows of a fit."""

    posterior = None
