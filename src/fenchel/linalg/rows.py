"""Passes over the rows of a tall matrix X (N, L): a cacheful of rows at a time, on every core.

    times(X, u)     X u               adjoint(X, a)        X' a                gram(X, w)   X' diag(w) X
    row_norms(X, v) rowsum(X^2 v)     row_squares(X, U)    rowsum((X U)^2)     row_products(X, Q)   rowsum((X Q) o X)

Each core walks a stretch of rows with BLAS held to one thread: on blocks that fit in cache BLAS's own threads wait for
each other longer than they work, ten times longer on a busy machine. No temporary is as large as X.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from .arrays import Array, asarray, is_numpy, namespace
from .threads import libraries as _blas
from .threads import one_thread

_CACHE = 1 << 16  # entries of a block: it and a copy of it stay in the second-level cache
_FEWEST = 256  # rows of a block: fewer do not repay the call
_ELEMENTWISE = 8192  # rows of a block for elementwise work
_LARGE = 1 << 22  # entries of a block where the library has its own ways
_SMALL = 1 << 12  # entries up to which BLAS keeps to one thread by itself
_PARALLEL = 1 << 20  # entries from which threads are worth starting

T = TypeVar("T")


def is_sparse(X: Any) -> bool:
    return hasattr(X, "tocsr")


class WithOnes:
    """[X, 1] of a numpy X (N, L - 1), without a copy of it: a linear model with an intercept."""

    ndim = 2

    def __init__(self, X: np.ndarray) -> None:
        self.X, self.shape = X, (X.shape[0], X.shape[1] + 1)

    def __getitem__(self, rows: Any) -> WithOnes:
        return WithOnes(self.X[rows])

    def toarray(self) -> np.ndarray:
        return np.concatenate([self.X, np.ones((self.shape[0], 1))], axis=1)


def block_rows(width: int) -> int:
    """How many rows of that many entries make a block."""
    return max(_FEWEST, _CACHE // max(1, width))


def on_every_core(n: int, width: int, stretch: Callable[[int, int], T]) -> list[T]:
    """stretch(i, j) for stretches of rows that cover 0..n, in order: as many as BLAS may use threads."""
    if n * width < _SMALL:
        return [stretch(0, n)]
    from concurrent.futures import ThreadPoolExecutor

    blas = _blas()
    cores = max((library["num_threads"] for library in blas.info()), default=1)
    with one_thread():
        if cores == 1 or n * width < _PARALLEL:
            return [stretch(0, n)]
        edges = [n * c // cores for c in range(cores + 1)]
        contexts = [copy_context() for _ in range(cores)]  # numpy's errstate lives there
        with ThreadPoolExecutor(cores) as pool:
            return list(pool.map(lambda context, i, j: context.run(stretch, i, j), contexts, edges[:-1], edges[1:]))


def in_blocks(n: int, one: Callable[[slice], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Arrays over n rows that ``one`` computes for a slice of them, a block at a time so that its temporaries stay in
    cache and no fresh memory is asked for; None stays None. numpy only."""
    if n <= _ELEMENTWISE:
        return one(slice(0, n))
    first = one(slice(0, _ELEMENTWISE))
    out = {id(x): np.empty((n, *x.shape[1:])) for x in first if x is not None}  # twice the same stays one array

    def stretch(start: int, stop: int) -> None:
        for i in range(start, stop, _ELEMENTWISE):
            block = slice(i, min(stop, i + _ELEMENTWISE))
            for x, part in zip(first, one(block), strict=True):
                if x is not None:
                    out[id(x)][block] = part

    on_every_core(n, _PARALLEL, stretch)
    return tuple(None if x is None else out[id(x)] for x in first)


def _rowwise(
    X: np.ndarray, one: Callable[[np.ndarray, np.ndarray, np.ndarray], Any], width: int | None = None
) -> np.ndarray:
    """A vector (N,) that ``one(block, scratch, out)`` fills block by block; scratch is as wide as X unless told."""
    n, width = X.shape[0], X.shape[1] if width is None else width
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
    if isinstance(X, WithOnes):
        return times(X.X, u[:-1]) + u[-1]
    if not is_numpy(X) or u.ndim != 1:
        return X @ u
    return _rowwise(X, lambda block, scratch, out: np.matmul(block, u, out=out))


def adjoint(X: Any, a: Array) -> Array:
    """X' a for a (N,)."""
    if isinstance(X, WithOnes):
        return np.append(adjoint(X.X, a), a.sum())
    if not is_numpy(X):
        return X.T @ a
    n, width = X.shape
    step = block_rows(width)

    def stretch(start: int, stop: int) -> np.ndarray:
        total = np.zeros(width)
        for i in range(start, stop, step):
            j = min(stop, i + step)
            total += X[i:j].T @ a[i:j]
        return total

    parts = on_every_core(n, width, stretch)
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def gram(X: Any, weight: Array) -> Array:
    """X' diag(weight) X as a full L x L matrix; X dense, scipy sparse or WithOnes. Weights may be negative."""
    if is_sparse(X):
        return (X.T @ scaled_rows(X, weight)).toarray()
    if not isinstance(X, np.ndarray | WithOnes):
        return namespace(X).matrix_transpose(X) @ (X * asarray(weight, X)[:, None])
    if (weight < 0.0).any():  # X' diag(w) X is that of the positive weights less that of the others
        return gram(X, np.maximum(weight, 0.0)) - gram(X, np.maximum(-weight, 0.0))
    values, (n, width) = X.X if isinstance(X, WithOnes) else X, X.shape
    D, step, root = values.shape[1], block_rows(width), np.sqrt(weight)

    def stretch(start: int, stop: int) -> np.ndarray:
        total = np.zeros((width, width))
        scratch = np.empty((min(step, stop - start), D))
        for i in range(start, stop, step):
            j = min(stop, i + step)
            block = np.multiply(values[i:j], root[i:j, None], out=scratch[: j - i])
            total[:D, :D] += block.T @ block  # a matrix by itself is half the work
            total[D:, :D] += root[i:j] @ block
        total[:D, D:], total[D:, D:] = total[D:, :D].T, weight[start:stop].sum()
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
    if not isinstance(X, np.ndarray | WithOnes):
        return _blocks(X, lambda part: namespace(U).sum((part @ U) ** 2, axis=1))
    values = X if isinstance(X, np.ndarray) else X.X
    parts, D = _columns(U), values.shape[1]

    def one(block: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
        for i, j, part in parts:
            np.matmul(block[:, : part.shape[0]], part[:D], out=scratch[:, i:j])
        for last in U[D:]:
            i = int(np.flatnonzero(last)[0]) if last.any() else 0
            scratch[:, i:] += last[i:]
        np.einsum("ij,ij->i", scratch, scratch, out=out)

    return _rowwise(values, one, U.shape[1])


def _columns(U: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """U in a few stripes of columns, those of a triangular one without the zeros below: a third of the work less."""
    n = U.shape[1]
    if n < 4 or np.tril(U, -1).any():
        return [(0, n, U)]
    edges = [n * c // 4 for c in range(5)]
    return [(i, j, np.ascontiguousarray(U[:j, i:j])) for i, j in pairwise(edges)]


def row_products(X: Any, Q: Array) -> Array:
    """rowsum((X Q) o X)."""
    if isinstance(X, WithOnes):
        return row_products(X.X, Q[:-1, :-1]) + times(X.X, Q[:-1, -1] + Q[-1, :-1]) + Q[-1, -1]
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
    if isinstance(X, WithOnes):
        return row_norms(X.X, v[:-1]) + v[-1]
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
