"""Passes over the rows of a tall dense X (N, L) in numpy: a cacheful of rows at a time, on every core.

    times(X, u)     X u              adjoint(X, a)       X' a               bordered(X, w)      [X, 1]' diag(w) [X, 1]
    row_norms(X, v) rowsum(X^2 v)    row_squares(X, U)   rowsum((X U)^2)    row_products(X, Q)  rowsum((X Q) o X)

X is an array, or makes blocks of rows when they are asked for (``DenseRows``). ``matrix_designs.py`` has others.

Each core walks a stretch of rows with BLAS held to one thread: on blocks that fit in cache BLAS's own threads wait for
each other longer than they work, ten times longer on a busy machine. No temporary is as large as X.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np

from .machine import cores, one_thread, side_by_side

_CACHE = 1 << 16  # entries of a block: it and a copy of it stay in the second-level cache
_FEWEST = 256  # rows of a block: fewer do not repay the call
_ELEMENTWISE = 8192  # rows of a block for elementwise work
_SMALL = 1 << 12  # entries up to which BLAS keeps to one thread by itself
PARALLEL = 1 << 20  # entries from which threads are worth starting

T = TypeVar("T")


class DenseRows(Protocol):
    """Rows of a dense matrix: a slice of them is a numpy array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


def block_rows(width: int) -> int:
    """How many rows of that many entries make a block."""
    return max(_FEWEST, _CACHE // max(1, width))


def on_every_core(n: int, width: int, stretch: Callable[[int, int], T]) -> list[T]:
    """stretch(i, j) for stretches of rows that cover 0..n, in order: as many as BLAS may use threads."""
    if n * width < _SMALL:
        return [stretch(0, n)]
    if n * width < PARALLEL:
        with one_thread():
            return [stretch(0, n)]
    parts = cores()
    edges = [n * c // parts for c in range(parts + 1)]
    return side_by_side([partial(stretch, i, j) for i, j in pairwise(edges)], parts)


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

    on_every_core(n, PARALLEL, stretch)
    return tuple(None if x is None else out[id(x)] for x in first)


def _rowwise(
    X: DenseRows, one: Callable[[np.ndarray, np.ndarray, np.ndarray], Any], width: int | None = None
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


def times(X: DenseRows, u: np.ndarray) -> np.ndarray:
    """X u for u (L,) or (L, M)."""
    if u.ndim == 1:
        return _rowwise(X, lambda block, scratch, out: np.matmul(block, u, out=out))
    if isinstance(X, np.ndarray):
        return np.asarray(X @ u)
    step = block_rows(X.shape[1])
    return np.concatenate([X[i : i + step] @ u for i in range(0, X.shape[0], step)])


def adjoint(X: DenseRows, a: np.ndarray) -> np.ndarray:
    """X' a for a (N,) or (N, M)."""
    if a.ndim == 2 and isinstance(X, np.ndarray):
        return np.asarray(X.T @ a)
    n, width = X.shape
    step = block_rows(width)

    def stretch(start: int, stop: int) -> np.ndarray:
        total = np.zeros((width, *a.shape[1:]))
        for i in range(start, stop, step):
            j = min(stop, i + step)
            total += X[i:j].T @ a[i:j]
        return total

    parts = on_every_core(n, width, stretch)
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def bordered(X: DenseRows, weight: np.ndarray) -> np.ndarray:
    """[X, 1]' diag(weight) [X, 1]. Weights may be negative."""
    n, D = X.shape
    if (weight < 0.0).any():  # X' diag(w) X is that of the positive weights less that of the others
        return bordered(X, np.maximum(weight, 0.0)) - bordered(X, np.maximum(-weight, 0.0))
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


def row_squares(X: DenseRows, U: np.ndarray, last: np.ndarray | None = None) -> np.ndarray:
    """rowsum((X U + 1 last')^2)."""
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


def row_products(X: DenseRows, Q: np.ndarray) -> np.ndarray:
    """rowsum((X Q) o X)."""

    def one(block: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
        np.matmul(block, Q, out=scratch)
        np.einsum("ij,ij->i", scratch, block, out=out)

    return _rowwise(X, one)


def row_norms(X: DenseRows, v: np.ndarray) -> np.ndarray:
    """rowsum(X^2 v)."""
    return _rowwise(X, lambda block, scratch, out: np.matmul(np.multiply(block, block, out=scratch), v, out=out))
