"""Passes over the rows of a tall matrix X (N, L): a cacheful of rows at a time, on every core.

    times(X, u)     X u               adjoint(X, a)        X' a                gram(X, w)   X' diag(w) X
    row_norms(X, v) rowsum(X^2 v)     row_squares(X, U)    rowsum((X U)^2)     row_products(X, Q)   rowsum((X Q) o X)

Each core walks a stretch of rows with BLAS held to one thread: on blocks that fit in cache BLAS's own threads wait for
each other longer than they work, ten times longer on a busy machine. No temporary is as large as X.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np

from .arrays import Array, asarray, is_numpy, namespace

_CACHE = 1 << 16  # entries of a block: it and a copy of it stay in the second-level cache
_FEWEST = 256  # rows of a block: fewer do not repay the call
_LARGE = 1 << 22  # entries of a block where the library has its own ways
_PARALLEL = 1 << 20  # entries from which threads are worth starting

T = TypeVar("T")


def is_sparse(X: Any) -> bool:
    return hasattr(X, "tocsr")


def block_rows(width: int) -> int:
    """How many rows of that many entries make a block."""
    return max(_FEWEST, _CACHE // max(1, width))


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def on_every_core(n: int, width: int, stretch: Callable[[int, int], T]) -> list[T]:
    """stretch(i, j) for stretches of rows that cover 0..n, in order: as many as BLAS may use threads."""
    if n * width < _PARALLEL:
        return [stretch(0, n)]
    from concurrent.futures import ThreadPoolExecutor

    blas = _blas()
    cores = max((library["num_threads"] for library in blas.info()), default=1)
    with blas.limit(limits=1):
        if cores == 1:
            return [stretch(0, n)]
        edges = [n * c // cores for c in range(cores + 1)]
        with ThreadPoolExecutor(cores) as pool:
            return list(pool.map(stretch, edges[:-1], edges[1:]))


def _rowwise(X: np.ndarray, one: Callable[[np.ndarray, np.ndarray, np.ndarray], Any]) -> np.ndarray:
    """A vector (N,) that ``one(block, scratch, out)`` fills block by block."""
    n, width = X.shape
    out, step = np.empty(n), block_rows(width)

    def stretch(start: int, stop: int) -> None:
        scratch = np.empty((min(step, stop - start), width))
        for i in range(start, stop, step):
            j = min(stop, i + step)
            one(X[i:j], scratch[: j - i], out[i:j])

    on_every_core(n, width, stretch)
    return out


def times(X: Any, u: Array) -> Array:
    """X u for u (L,) or (L, M)."""
    if not is_numpy(X) or u.ndim != 1:
        return X @ u
    return _rowwise(X, lambda block, scratch, out: np.matmul(block, u, out=out))


def adjoint(X: Any, a: Array) -> Array:
    """X' a for a (N,)."""
    if not is_numpy(X):
        return X.T @ a
    step = block_rows(X.shape[1])

    def stretch(start: int, stop: int) -> np.ndarray:
        total = np.zeros(X.shape[1])
        for i in range(start, stop, step):
            j = min(stop, i + step)
            total += X[i:j].T @ a[i:j]
        return total

    parts = on_every_core(*X.shape, stretch)
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def gram(X: Any, weight: Array) -> Array:
    """X' diag(weight) X as a full L x L matrix; X dense or scipy sparse. Weights may be negative."""
    if is_sparse(X):
        return (X.T @ scaled_rows(X, weight)).toarray()
    if not is_numpy(X):
        return namespace(X).matrix_transpose(X) @ (X * asarray(weight, X)[:, None])
    n, width = X.shape
    step = block_rows(width)
    square = not bool((weight < 0.0).any())
    factor = np.sqrt(weight) if square else weight

    def stretch(start: int, stop: int) -> np.ndarray:
        total = np.zeros((width, width))
        scratch = np.empty((min(step, stop - start), width))
        for i in range(start, stop, step):
            j = min(stop, i + step)
            block = np.multiply(X[i:j], factor[i:j, None], out=scratch[: j - i])
            total += (block if square else X[i:j]).T @ block  # a matrix by itself is half the work
        return total

    parts = on_every_core(n, width, stretch)
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def scaled_rows(X: Any, weight: np.ndarray) -> Any:
    """diag(weight) X for a sparse X in CSR."""
    out = X.tocsr().copy()
    out.data = out.data * np.repeat(weight, np.diff(out.indptr))
    return out


def row_squares(X: Any, U: Array) -> Array:
    """rowsum((X U)^2)."""
    if is_sparse(X):
        return _blocks(X.tocsr(), lambda part: _squares(part @ U))
    if not is_numpy(X):
        return _blocks(X, lambda part: namespace(U).sum((part @ U) ** 2, axis=1))
    if U.shape[0] != U.shape[1]:
        return _squares(X @ U)

    def one(block: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
        np.matmul(block, U, out=scratch)
        np.einsum("ij,ij->i", scratch, scratch, out=out)

    return _rowwise(X, one)


def row_products(X: Any, Q: Array) -> Array:
    """rowsum((X Q) o X)."""
    if is_sparse(X):
        return _blocks(X.tocsr(), lambda part: np.asarray(part.multiply(part @ Q).sum(axis=1)).ravel())
    if not is_numpy(X):
        return _blocks(X, lambda part: namespace(part).sum((part @ Q) * part, axis=1))

    def one(block: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
        np.matmul(block, Q, out=scratch)
        np.einsum("ij,ij->i", scratch, block, out=out)

    return _rowwise(X, one)


def row_norms(X: Any, v: Array) -> Array:
    """rowsum(X^2 v)."""
    if is_sparse(X):
        return np.asarray(X.multiply(X) @ v)
    if not is_numpy(X):
        return (X * X) @ v
    return _rowwise(X, lambda block, scratch, out: np.matmul(np.multiply(block, block, out=scratch), v, out=out))


def _squares(half: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", half, half)


def _blocks(X: Any, one: Callable[[Any], Array]) -> Array:
    """``one`` of large blocks of rows, where X is sparse (and its products are not) or lives on a device."""
    step = max(1, _LARGE // max(1, X.shape[1]))
    if X.shape[0] <= step:
        return one(X)
    parts = [one(X[i : i + step]) for i in range(0, X.shape[0], step)]
    return namespace(parts[0]).concat(parts)
