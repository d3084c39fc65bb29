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

from .arrays import Array, asarray, namespace
from .standardized import Shifted, Standardized, is_sparse
from .threads import libraries as _blas
from .threads import one_thread

_CACHE = 1 << 16  # entries of a block: it and a copy of it stay in the second-level cache
_FEWEST = 256  # rows of a block: fewer do not repay the call
_ELEMENTWISE = 8192  # rows of a block for elementwise work
_LARGE = 1 << 22  # entries of a block where the library has its own ways
_SMALL = 1 << 12  # entries up to which BLAS keeps to one thread by itself
_PARALLEL = 1 << 20  # entries from which threads are worth starting
_CANCELS = 1e-6  # of the squares added up: a form below this has lost too many digits to the cross terms

T = TypeVar("T")


def block_rows(width: int) -> int:
    """How many rows of that many entries make a block."""
    return max(_FEWEST, _CACHE // max(1, width))


def on_every_core(n: int, width: int, stretch: Callable[[int, int], T]) -> list[T]:
    """stretch(i, j) for stretches of rows that cover 0..n, in order: as many as BLAS may use threads."""
    if n * width < _SMALL:
        return [stretch(0, n)]
    # counting threads costs more than a small product
    cores = 1 if n * width < _PARALLEL else max((library["num_threads"] for library in _blas().info()), default=1)
    with one_thread():
        if cores == 1:
            return [stretch(0, n)]
        from concurrent.futures import ThreadPoolExecutor

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
    X: np.ndarray | Shifted, one: Callable[[np.ndarray, np.ndarray, np.ndarray], Any], width: int | None = None
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


def _host(X: Any) -> bool:
    """Whether X gives blocks of rows as numpy arrays."""
    return isinstance(X, np.ndarray | Shifted)


def times(X: Any, u: Array) -> Array:
    """X u for u (L,) or (L, M)."""
    if isinstance(X, Standardized):
        top, last = X.into(u)
        return times(X.X, top) + last
    if isinstance(X, Shifted) and u.ndim != 1:
        step = block_rows(X.shape[1])
        return np.concatenate([X[i : i + step] @ u for i in range(0, X.shape[0], step)])
    if not _host(X) or u.ndim != 1:
        return X @ u
    return _rowwise(X, lambda block, scratch, out: np.matmul(block, u, out=out))


def adjoint(X: Any, a: Array) -> Array:
    """X' a for a (N,)."""
    if isinstance(X, Standardized):
        return X.back(np.append(adjoint(X.X, a), a.sum()))
    if not _host(X):
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
    """X' diag(weight) X as a full L x L matrix; X dense, scipy sparse or Standardized. Weights may be negative."""
    if isinstance(X, Standardized):
        return X.back(X.back(_bordered(X.X, weight)).T)
    if is_sparse(X):
        return _pairs(X, weight)[:-1, :-1]
    if not _host(X):
        return namespace(X).matrix_transpose(X) @ (X * asarray(weight, X)[:, None])
    return _bordered(X, weight)[:-1, :-1]


def _bordered(X: Any, weight: np.ndarray) -> np.ndarray:
    """[X, 1]' diag(weight) [X, 1]."""
    n, D = X.shape
    if is_sparse(X):
        return _pairs(X, weight)
    if (weight < 0.0).any():  # X' diag(w) X is that of the positive weights less that of the others
        return _bordered(X, np.maximum(weight, 0.0)) - _bordered(X, np.maximum(-weight, 0.0))
    step, root = block_rows(D), np.sqrt(weight)

    def stretch(start: int, stop: int) -> np.ndarray:
        total = np.zeros((D + 1, D + 1))
        scratch = np.empty((min(step, stop - start), D))
        for i in range(start, stop, step):
            j = min(stop, i + step)
            block = np.multiply(X[i:j], root[i:j, None], out=scratch[: j - i])
            total[:D, :D] += block.T @ block  # a matrix by itself is half the work
            total[D, :D] += root[i:j] @ block
        total[:D, D], total[D, D] = total[D, :D], weight[start:stop].sum()
        return total

    parts = on_every_core(n, D, stretch)
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def _pairs(X: Any, weight: np.ndarray) -> np.ndarray:
    """[X, 1]' diag(weight) [X, 1] of a sparse X."""
    from ._rows import pairs

    (n, D), X, weight = X.shape, canonical(X), np.ascontiguousarray(weight, dtype=np.float64)

    def stretch(start: int, stop: int) -> np.ndarray:
        total = np.zeros((D + 1, D + 1))
        pairs(X.indptr, X.indices, X.data, weight, start, stop, total)
        return total

    G = np.sum(on_every_core(n, _per_row(X) ** 2, stretch), axis=0)
    return G + G.T - np.diag(np.diag(G))


def _forms(X: Any, Q: np.ndarray) -> tuple[np.ndarray, float]:
    """[x, 1]' Q [x, 1] of every row of a sparse X, and the least relative to the squares in it."""
    from ._rows import forms

    out, X, Q = np.empty(X.shape[0]), canonical(X), np.ascontiguousarray(0.5 * (Q + Q.T))

    def stretch(start: int, stop: int) -> float:
        return float(forms(X.indptr, X.indices, X.data, Q, start, stop, out))

    return out, min(on_every_core(out.size, _per_row(X) ** 2, stretch))


def _per_row(X: Any) -> int:
    return 1 + X.nnz // max(1, X.shape[0])


def canonical(X: Any) -> Any:
    """X in CSR with every entry in one piece."""
    X = X.tocsr()
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def scaled_rows(X: Any, weight: np.ndarray) -> Any:
    """diag(weight) X for a sparse X in CSR."""
    out = X.tocsr().copy()
    out.data = out.data * np.repeat(weight, np.diff(out.indptr))
    return out


def row_squares(X: Any, U: Array) -> Array:
    """rowsum((X U)^2)."""
    last = None
    if isinstance(X, Standardized):
        U, last = X.into(U)
        X = X.X
    if is_sparse(X):
        return _sparse_squares(X, U, np.zeros(U.shape[1]) if last is None else last)
    if not _host(X):
        return _blocks(X, lambda part: namespace(U).sum((part @ U) ** 2, axis=1))
    parts = _columns(U)

    def one(block: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
        for i, j, part in parts:
            np.matmul(block[:, : part.shape[0]], part, out=scratch[:, i:j])
        if last is not None:
            scratch += last
        np.einsum("ij,ij->i", scratch, scratch, out=out)

    return _rowwise(X, one, U.shape[1])


def _columns(U: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """U in a few stripes of columns, those of a triangular one without the zeros below: a third of the work less."""
    n = U.shape[1]
    if n < 4 or np.tril(U, -1).any():
        return [(0, n, U)]
    edges = [n * c // 4 for c in range(5)]
    return [(i, j, np.ascontiguousarray(U[:j, i:j])) for i, j in pairwise(edges)]


def _sparse_squares(X: Any, U: np.ndarray, last: np.ndarray) -> np.ndarray:
    """rowsum((X U + 1 last')^2), by x' U U' x where that is less work and nothing cancels in it."""
    if _per_row(X) < U.shape[1] and X.nnz > _PARALLEL:
        V = np.vstack([U, last])
        out, least = _forms(X, V @ V.T)
        if least > _CANCELS:
            return out
    return _blocks(X.tocsr(), lambda part: _squares(part @ U + last))


def row_products(X: Any, Q: Array) -> Array:
    """rowsum((X Q) o X)."""
    if isinstance(X, Standardized):
        Q = np.vstack(X.into(np.vstack(X.into(Q)).T))  # K Q K', transposed: the answer is the same
        if is_sparse(X.X):
            return _forms(X.X, Q)[0]
        return row_products(X.X, Q[:-1, :-1]) + times(X.X, Q[:-1, -1] + Q[-1, :-1]) + Q[-1, -1]
    if is_sparse(X):
        return _forms(X, np.pad(Q, ((0, 1), (0, 1))))[0]
    if not _host(X):
        return _blocks(X, lambda part: namespace(part).sum((part @ Q) * part, axis=1))

    def one(block: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
        np.matmul(block, Q, out=scratch)
        np.einsum("ij,ij->i", scratch, block, out=out)

    return _rowwise(X, one)


def row_norms(X: Any, v: Array) -> Array:
    """rowsum(X^2 v)."""
    if isinstance(X, Standardized):
        D, m = X.shift.size, X.shift
        each = X.inverse**2 * v[:D]
        out = row_norms(X.X, each) - 2.0 * times(X.X, m * each)
        return np.maximum(out + m @ (m * each), 0.0) + v[D:].sum()  # a square that rounding took below 0
    if is_sparse(X):
        return np.asarray(X.multiply(X) @ v)
    if not _host(X):
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
