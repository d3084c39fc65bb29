"""Designs that are matrices: dense in numpy, dense in another array library (such as on a device), or scipy sparse.

Dense and sparse designs on the host also compute with [W, 1], the matrix with a column of ones, in the same pass; they
are the basis of ``standardized.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import finite, numeric, problem
from .arrays import Array, ArrayLike, asarray, is_numpy, namespace, to_numpy
from .dense import asarray_index
from .design import HOST, Design
from .machine import PARALLEL, block_rows, blocks, empty, on_every_core

_LARGE = 1 << 24  # entries of a block if the library's own products are used

_CANCELS = 1e-6  # relative to the sum of squares: a form below this has lost too many digits to cross terms


def as_design(W: Any, like: Array | None = None, where: str = "design", name: str = "design") -> Design:
    """A design from a user's W, checked to be finite, in the library and on the device of ``like``, or where W is."""
    if isinstance(W, Design):
        for values in W.entries():
            finite(where, name, values)
        if like is None or is_numpy(like) or not is_numpy(W.like):
            return W
        return Device(asarray(W.toarray(), like))
    host = namespace(W) is np
    like = (HOST if host else W) if like is None else like
    if is_sparse(W):
        X = sp.csr_array(checked_indices(where, name, W)).astype(np.float64, copy=False)
        finite(where, f"{name}.data", X.data)
        return Sparse(X) if is_numpy(like) else Device(asarray(X.toarray(), like))
    if is_numpy(like):
        return Dense(finite(where, name, numeric(where, name, W if host else to_numpy(W))))
    return Device(asarray(finite(where, name, numeric(where, name, W)) if host else W, like))


def array_design(X: Array) -> Design:
    """An array of this package, which needs no check."""
    return Dense(X) if is_numpy(X) else Device(X)


def is_sparse(X: ArrayLike) -> bool:
    return bool(sp.issparse(X))


def checked_indices(where: str, name: str, A: Any) -> Any:
    """A scipy sparse matrix whose indices are checked to be within its shape, as compiled loops do not check them."""
    if A.format in ("csr", "csc", "bsr"):  # scipy checks other formats
        try:
            A.check_format(full_check=True)
        except ValueError as error:
            raise problem(where, f"{name} has indices beyond its shape ({error})", "a valid scipy matrix") from None
    return A


class Matrix(Design):
    """A matrix on the host, also with a column of ones."""

    X: Any

    @abstractmethod
    def bordered(self, weight: np.ndarray) -> np.ndarray:
        """[W, 1]' diag(weight) [W, 1]."""

    @abstractmethod
    def row_squares(self, U: Array, last: np.ndarray | None = None) -> Array:
        """rowsum((W U + 1 last')^2)."""

    def bordered_variances(self, U: Array, last: np.ndarray, Q: Callable[[], np.ndarray]) -> Array:
        """The same, or [w, 1]' Q [w, 1] with Q = [U; last] [U; last]' if that costs less and loses no digits."""
        return self.row_squares(U, last)

    @abstractmethod
    def bordered_products(self, Q: np.ndarray) -> np.ndarray:
        """[w, 1]' Q [w, 1] for each row, with Q (L + 1, L + 1)."""

    def gram(self, weight: Array) -> Array:
        return self.bordered(to_numpy(weight))[:-1, :-1]


class Dense(Matrix):
    """A numpy array (R, L), or an object that computes rows block by block (``standardized.Shifted``).

    Each pass takes blocks of rows that fit in the cache, on all cores, and no temporary is as large as X.
    """

    def __init__(self, X: Any) -> None:
        self.X, self.shape = X, tuple(X.shape)

    def _rowwise(self, one: Callable[[np.ndarray, np.ndarray, np.ndarray], Any], width: int) -> np.ndarray:
        """A vector (R,) that ``one(block, scratch, out)`` computes block by block; scratch has ``width`` columns."""
        out = np.empty(self.shape[0])

        def stretch(start: int, stop: int) -> None:
            scratch = empty(min(block_rows(width), stop - start), width)
            for some in blocks(start, stop, width):
                one(self.X[some], scratch[: some.stop - some.start], out[some])

        on_every_core(out.size, width, stretch)
        return out

    def _summed(self, stretch: Callable[[int, int], np.ndarray]) -> np.ndarray:
        """The sum over ranges of rows."""
        parts = on_every_core(self.shape[0], self.shape[1], stretch)
        return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)

    def times(self, u: Array) -> Array:
        u, (n, L) = to_numpy(u), self.shape
        if u.ndim == 1:
            return self._rowwise(lambda block, scratch, out: np.matmul(block, u, out=out), L)
        if is_numpy(self.X):
            return np.asarray(self.X @ u)
        return np.concatenate([self.X[some] @ u for some in blocks(0, n, L)])

    def adjoint(self, a: Array) -> Array:
        a, L = to_numpy(a), self.shape[1]
        if a.ndim == 2 and is_numpy(self.X):
            return np.asarray(self.X.T @ a)

        def stretch(start: int, stop: int) -> np.ndarray:
            total = np.zeros((L, *a.shape[1:]))
            for some in blocks(start, stop, L):
                total += self.X[some].T @ a[some]
            return total

        return self._summed(stretch)

    def bordered(self, weight: np.ndarray) -> np.ndarray:
        if (weight < 0.0).any():  # X' diag(w) X for positive weights minus that for the others
            return self.bordered(np.maximum(weight, 0.0)) - self.bordered(np.maximum(-weight, 0.0))
        L, root = self.shape[1], np.sqrt(weight)

        def stretch(start: int, stop: int) -> np.ndarray:
            total, square, scratch = empty(L + 1, L + 1), empty(L, L), empty(min(block_rows(L), stop - start), L)
            total[:] = 0.0
            for some in blocks(start, stop, L):
                block = np.multiply(self.X[some], root[some, None], out=scratch[: some.stop - some.start])
                total[:L, :L] += np.matmul(block.T, block, out=square)  # half the work: a matrix with itself
                total[L, :L] += root[some] @ block
            total[:L, L], total[L, L] = total[L, :L], weight[start:stop].sum()
            return total

        return self._summed(stretch)

    def row_squares(self, U: Array, last: np.ndarray | None = None) -> Array:
        U = to_numpy(U)
        parts = stripes(U)

        def one(block: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
            for i, j, part in parts:
                np.matmul(block[:, : part.shape[0]], part, out=scratch[:, i:j])
            if last is not None:
                scratch += last
            np.einsum("ij,ij->i", scratch, scratch, out=out)

        return self._rowwise(one, U.shape[1])

    def row_products(self, Q: Array) -> Array:
        Q = to_numpy(Q)

        def one(block: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> None:
            np.matmul(block, Q, out=scratch)
            np.einsum("ij,ij->i", scratch, block, out=out)

        return self._rowwise(one, self.shape[1])

    def bordered_products(self, Q: np.ndarray) -> np.ndarray:
        return np.asarray(self.row_products(Q[:-1, :-1]) + self.times(Q[:-1, -1] + Q[-1, :-1]) + Q[-1, -1])

    def row_norms(self, v: Array) -> Array:
        v = to_numpy(v)
        return self._rowwise(
            lambda block, scratch, out: np.matmul(np.multiply(block, block, out=scratch), v, out=out), self.shape[1]
        )

    def beside(self, A: Array) -> Array:
        return A @ self.X.T if is_numpy(self.X) else super().beside(A)

    def take(self, rows: Any) -> Dense:
        return Dense(self.X[rows])

    def toarray(self) -> np.ndarray:
        return np.asarray(self.X[:])

    def entries(self) -> Iterator[np.ndarray]:
        yield self.X if is_numpy(self.X) else self.X.X


def stripes(U: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """U in a few blocks of columns; those of a triangular U without zeros below, which saves a third of the work."""
    n = U.shape[1]
    ends = list(pairwise(n * c // 4 for c in range(5)))
    if n < 4 or any(U[j:, i:j].any() for i, j in ends):
        return [(0, n, U)]
    return [(i, j, U[:j, i:j]) for i, j in ends]


class Sparse(Matrix):
    """A scipy sparse matrix in CSR, without duplicate entries."""

    def __init__(self, X: Any) -> None:
        X = X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        self.X, self.shape = X, X.shape

    def host_rows(self) -> Any:
        return sp.csr_array(self.X)

    def times(self, u: Array) -> Array:
        return self.X @ u

    def adjoint(self, a: Array) -> Array:
        return self.X.T @ a

    def bordered(self, weight: np.ndarray) -> np.ndarray:
        from ._rows import mirror, pairs

        (n, D), X, weight = self.shape, self.X, np.ascontiguousarray(weight, dtype=np.float64)

        def stretch(start: int, stop: int) -> np.ndarray:
            total = np.zeros((D + 1, D + 1))
            pairs(X.indptr, X.indices, X.data, weight, start, stop, total)
            return total

        G, *others = on_every_core(n, self._per_row**2, stretch)
        for other in others:
            G += other
        G[:D, D] = G[D, :D]
        mirror(G)
        return G

    def _forms(self, Q: np.ndarray) -> tuple[np.ndarray, float]:
        """[w, 1]' Q [w, 1] for each row and a symmetric Q, and the smallest relative to the squares in it."""
        from ._rows import forms

        X, out, Q = self.X, np.empty(self.shape[0]), np.ascontiguousarray(Q)

        def stretch(start: int, stop: int) -> float:
            return float(forms(X.indptr, X.indices, X.data, Q, start, stop, out))

        return out, min(on_every_core(out.size, self._per_row**2, stretch))

    @property
    def _per_row(self) -> int:
        return 1 + self.X.nnz // max(1, self.shape[0])

    def row_squares(self, U: Array, last: np.ndarray | None = None) -> Array:
        """By w' U U' w if that is less work and nothing cancels."""
        last = np.zeros(U.shape[1]) if last is None else last

        def product() -> np.ndarray:
            V = np.vstack([U, last])
            return V @ V.T

        return self.bordered_variances(U, last, product)

    def row_variances(self, U: Array, Q: Callable[[], Array]) -> Array:
        return self.bordered_variances(U, np.zeros(U.shape[1]), lambda: np.pad(Q(), ((0, 1), (0, 1))))

    def bordered_variances(self, U: Array, last: np.ndarray, Q: Callable[[], np.ndarray]) -> Array:
        if self._per_row < U.shape[1] and self.X.nnz * U.shape[1] > PARALLEL:
            out, least = self._forms(Q())
            if least > _CANCELS:
                return out

        def squares(part: Any) -> np.ndarray:
            half = part @ U + last
            return np.einsum("ij,ij->i", half, half)

        return _blocks(self.X, squares)

    def row_products(self, Q: Array) -> Array:
        return self.bordered_products(np.pad(Q, ((0, 1), (0, 1))))

    def bordered_products(self, Q: np.ndarray) -> np.ndarray:
        return self._forms(0.5 * (Q + Q.T))[0]

    def row_norms(self, v: Array) -> Array:
        X = self.X
        return np.asarray(sp.csr_array((X.data * X.data, X.indices, X.indptr), shape=X.shape) @ v)

    def take(self, rows: Any) -> Sparse:
        return Sparse(self.X[rows])

    def toarray(self) -> np.ndarray:
        return np.asarray(self.X.toarray())

    def csr(self) -> sp.csr_array:
        return self.X

    def entries(self) -> Iterator[np.ndarray]:
        yield self.X.data


class Device(Design):
    """An array of another library, with its own products, in large blocks if a temporary would be as large as W."""

    def __init__(self, X: Array) -> None:
        self.X, self.like, self.shape = X, X, tuple(X.shape)

    def times(self, u: Array) -> Array:
        return self.X @ u

    def adjoint(self, a: Array) -> Array:
        return self.X.T @ a

    def gram(self, weight: Array) -> Array:
        w, step = asarray(weight, self.X), max(1, _LARGE // max(1, self.shape[1]))
        parts = (slice(i, min(i + step, self.shape[0])) for i in range(0, self.shape[0], step))
        return sum(self.X[some, :].T @ (self.X[some, :] * w[some, None]) for some in parts)  # type: ignore[return-value]

    def row_squares(self, U: Array) -> Array:
        return _blocks(self.X, lambda part: namespace(part).sum((part @ U) ** 2, axis=1))

    def row_products(self, Q: Array) -> Array:
        return _blocks(self.X, lambda part: namespace(part).sum((part @ Q) * part, axis=1))

    def beside(self, A: Array) -> Array:
        return A @ self.X.T

    def row_norms(self, v: Array) -> Array:
        return (self.X * self.X) @ v

    def take(self, rows: np.ndarray) -> Device:
        return Device(namespace(self.X).take(self.X, asarray_index(rows, self.X), axis=0))

    def toarray(self) -> Array:
        return self.X


def _blocks(X: Any, one: Callable[[Any], Array]) -> Array:
    """``one`` for large blocks of rows, if X is sparse (and its products are not) or on a device."""
    step = max(1, _LARGE // max(1, X.shape[1]))
    if X.shape[0] <= step:
        return one(X)
    parts = [one(X[i : i + step]) for i in range(0, X.shape[0], step)]
    return namespace(parts[0]).concat(parts)
