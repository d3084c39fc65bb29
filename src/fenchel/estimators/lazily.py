"""Predictions at the rows of a Dask collection: lazily, a partition at a time, by the same methods as in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
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
    dask, da = optional(name, "dask"), optional(name, "dask.array")
    of_rows = {key: x for key, x in options.items() if is_dask(x) or (np.ndim(x) > 0 and key in ("exposure", "trials"))}
    rest = {key: x for key, x in options.items() if key not in of_rows}
    rows = Partitions.of(name, X=X, **of_rows)
    small, D = dask.delayed(unheld(estimator), pure=False), int(estimator.n_features_in_)
    like = method(estimator, _one_row(estimator, D), *args, **dict.fromkeys(of_rows, 1.0), **rest)
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
        like = getattr(estimator, method)(_one_row(estimator, int(estimator.n_features_in_)), *args, **options)
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


def _one_row(estimator: Any, D: int) -> Any:
    """A row of zeros, or of holes where cells may be anything, named as the columns of the fit are."""
    names, row = getattr(estimator, "feature_names_in_", None), np.full((1, D), getattr(estimator, "_blank", 0.0))
    return row if names is None else optional("predict", "pandas").DataFrame(row, columns=names)


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
