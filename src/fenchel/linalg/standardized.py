"""A design with centred and scaled columns and a column of ones, [(X - 1 shift') diag(1/scale), 1]; X is not copied.

    Z = [X, 1] K,    K = [diag(1/scale)  0]      Z u = [X, 1] (K u),    Z' a = K' [X, 1]' a
                         [-shift'/scale  1]      Z' diag(w) Z = K' ([X, 1]' diag(w) [X, 1]) K

so that one pass over X, dense or sparse, is enough. This loses (shift/scale)^2 units in the last place. A column far
from zero is therefore shifted before products: block by block if X is dense, in a copy if it is sparse (where only a
nearly full column can be far from zero).

``column_moments`` computes the weighted means and standard deviations in two passes: the mean, then squares about it.
Columns are divided by a power of two near their largest entry, so that nothing overflows or underflows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .arrays import Array, to_numpy
from .design import Design
from .machine import blocks, on_every_core
from .matrix_designs import Dense, Matrix, Sparse, is_sparse

_FAR = 100.0  # in sds from zero: largest shift for which K is applied after products, with a loss of four digits
_ROWS = 64  # rows of an L x L matrix changed at a time, within the cache
_HUGE = 1e60  # entries above this, or below its reciprocal, are scaled before products


class ColumnMoments(NamedTuple):
    """Moments of D columns.

    Attributes
    ----------
    mean, sd : array (D,)
    rest : array (D,)
        Rounding errors of the means, which matter for columns many standard deviations from zero.
    constant : array (D,) of bool
        Whether a column is constant up to rounding.
    """

    mean: np.ndarray
    sd: np.ndarray
    rest: np.ndarray
    constant: np.ndarray


def column_moments(X: Any, weights: np.ndarray | None = None) -> ColumnMoments:
    """Moments of the rows of X (N, D) with weights; rows of weight 0 do not count."""
    if weights is not None and (weights <= 0.0).any() and (weights > 0.0).any():
        X, weights = X[weights > 0.0], weights[weights > 0.0]
    n = X.shape[0]
    w = np.full(n, 1.0 / n) if weights is None or not weights.any() else weights / weights.sum()
    one = _sparse if is_sparse(X) else _dense
    return one(X, w)


def _unit(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The power of two within a factor of two of the largest entry; 1 for zeros."""
    size = np.maximum(np.abs(low), np.abs(high))
    return np.ldexp(1.0, np.clip(np.frexp(size)[1], -1000, 1000) * (size > 0.0))


def _finished(
    mean: np.ndarray, rest: np.ndarray, square: np.ndarray, low: np.ndarray, high: np.ndarray, unit: np.ndarray
) -> ColumnMoments:
    one, sd = low == high, np.sqrt(np.maximum(square - rest**2, 0.0))
    constant = one | (sd <= 4.0 * np.finfo(float).eps * np.abs(mean))
    return ColumnMoments(
        np.where(one, low, mean * unit), np.where(one, 0.0, sd * unit), np.where(one, 0.0, rest * unit), constant
    )


def _dense(X: np.ndarray, w: np.ndarray) -> ColumnMoments:
    n, width = X.shape

    def range_of(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        parts = [(X[some].min(axis=0), X[some].max(axis=0)) for some in blocks(start, stop, width)]
        return np.min([p[0] for p in parts], axis=0), np.max([p[1] for p in parts], axis=0)

    ranges = on_every_core(n, width, range_of)
    low, high = np.min([r[0] for r in ranges], axis=0), np.max([r[1] for r in ranges], axis=0)
    unit = _unit(low, high)

    def sums(start: int, stop: int) -> np.ndarray:
        """Sums of departures from the middle, whose mean loses no digits"""
        return sum((w[some] @ (X[some] / unit - middle) for some in blocks(start, stop, width)), np.zeros(width))

    def powers(start: int, stop: int) -> np.ndarray:
        total = np.zeros((2, width))
        for some in blocks(start, stop, width):
            away = X[some] / unit - mean
            total += w[some] @ away, w[some] @ np.square(away, out=away)
        return total

    middle = 0.5 * (low / unit) + 0.5 * (high / unit)
    mean = middle + np.sum(on_every_core(n, width, sums), axis=0)
    rest, square = np.sum(on_every_core(n, width, powers), axis=0)
    return _finished(mean, rest, square, low, high, unit)


def _sparse(X: Any, w: np.ndarray) -> ColumnMoments:
    import scipy.sparse as sp

    X = sp.csr_array(X)
    if not X.has_canonical_format:  # a square needs an entry in one piece
        X = X.copy()
        X.sum_duplicates()
    low, high = (np.asarray(x.toarray(), dtype=np.float64).ravel() for x in (X.min(axis=0), X.max(axis=0)))
    unit, each, column, D = _unit(low, high), np.repeat(w, np.diff(X.indptr)), X.indices, X.shape[1]
    x = X.data / unit[column]
    full = np.bincount(column, minlength=D) == X.shape[0]
    zeros = np.where(full, 0.0, np.maximum(1.0 - np.bincount(column, weights=each, minlength=D), 0.0))
    mean = np.bincount(column, weights=each * x, minlength=D)
    away = x - mean[column]
    rest = np.bincount(column, weights=each * away, minlength=D) - zeros * mean
    square = np.bincount(column, weights=each * away**2, minlength=D) + zeros * mean**2
    return _finished(mean, rest, square, low, high, unit)


class Shifted:
    """(X - 1 shift') diag(1/scale) for a numpy X; blocks of rows are computed on request."""

    def __init__(self, X: np.ndarray, shift: np.ndarray, scale: np.ndarray) -> None:
        self.X, self.shift, self.scale, self.shape = X, shift, scale, X.shape

    def __getitem__(self, rows: Any) -> np.ndarray:
        out = np.subtract(self.X[rows], self.shift)
        out /= self.scale
        return out


class Standardized(Design):
    """[(X - 1 shift') diag(1/scale), 1], with or without the column of ones.

    Parameters
    ----------
    X : array (N, D) or scipy sparse
    shift, scale : array (D,) or float
    ones : bool
        Whether a column of ones follows.
    rest : array (D,) or float
        Rounding error of the shift.
    """

    def __init__(self, X: Any, shift: Any = 0.0, scale: Any = 1.0, ones: bool = True, rest: Any = 0.0) -> None:
        D = X.shape[1]
        shift, scale, rest = (np.broadcast_to(np.asarray(x, dtype=np.float64), (D,)) for x in (shift, scale, rest))
        self.shape, self.ones = (X.shape[0], D + ones), ones
        far = np.abs(shift) > _FAR * scale
        odd = far | (scale > _HUGE) | (scale < 1.0 / _HUGE)
        if odd.any() and is_sparse(X):
            first = np.where(odd, scale, 1.0)
            X = _shifted(X, np.where(far, shift, 0.0), first)
            shift, rest, scale = np.where(far, 0.0, shift) / first, rest / first, scale / first
        elif odd.any():
            X, shift, rest, scale = Shifted(X, shift, scale), np.zeros(D), rest / scale, np.ones(D)
        self.X: Matrix = Sparse(X) if is_sparse(X) else Dense(X)
        self.shift, self.inverse = shift + rest, 1.0 / scale

    def drop(self, columns: np.ndarray) -> None:
        """Set columns to exactly 0: constant columns, of which only rounding errors remain."""
        self.inverse = np.where(columns, 0.0, self.inverse)

    def take(self, rows: Any) -> Standardized:
        out = copy.copy(self)
        out.X = self.X.take(rows)  # type: ignore[assignment]
        out.shape = (out.X.shape[0], self.shape[1])
        return out

    def entries(self) -> Iterator[np.ndarray]:
        return self.X.entries()

    def toarray(self) -> np.ndarray:
        X, D = self.X.toarray(), self.shift.size
        out = np.empty(self.shape)
        np.subtract(X, self.shift, out=out[:, :D])
        out[:, :D] *= self.inverse
        out[:, D:] = 1.0
        return out

    def multiplied_out(self) -> Dense:
        return Dense(self.toarray())

    def times(self, u: Array) -> Array:
        top, last = self.into(to_numpy(u))
        return self.X.times(top) + last

    def adjoint(self, a: Array) -> Array:
        return self.back(np.concatenate([self.X.adjoint(a), np.sum(a, axis=0, keepdims=True)]))

    def gram(self, weight: Array) -> Array:
        """K' G K for G = [X, 1]' diag(w) [X, 1], in the memory of G: a change of rank two and a scaling."""
        G, D, shift, inverse = self.X.bordered(to_numpy(weight)), self.shift.size, self.shift, self.inverse
        border = G[:D, D] - 0.5 * G[D, D] * shift
        for i in range(0, D, _ROWS):
            rows, block = slice(i, min(D, i + _ROWS)), G[i : i + _ROWS, :D][: D - i]
            block -= shift[rows, None] * border
            block -= border[rows, None] * shift
            block *= inverse[rows, None] * inverse
        if not self.ones:
            return np.ascontiguousarray(G[:D, :D])
        G[:D, D] = G[D, :D] = inverse * (G[:D, D] - G[D, D] * shift)
        return G

    def row_squares(self, U: Array) -> Array:
        return self.X.row_squares(*self.into(to_numpy(U)))

    def row_variances(self, U: Array, Q: Callable[[], Array]) -> Array:
        return self.X.bordered_variances(*self.into(to_numpy(U)), lambda: self._both_into(to_numpy(Q())))

    def row_products(self, Q: Array) -> Array:
        return self.X.bordered_products(self._both_into(to_numpy(Q)))

    def _both_into(self, Q: np.ndarray) -> np.ndarray:
        """K Q K' (D + 1, D + 1)."""
        D, shift, out = self.shift.size, self.shift, np.zeros((self.shift.size + 1, self.shift.size + 1))
        for i in range(0, D, _ROWS):
            j = min(D, i + _ROWS)
            np.multiply(Q[i:j, :D], self.inverse[i:j, None] * self.inverse, out=out[i:j, :D])
        left, right, corner = -(shift @ out[:D, :D]), -(out[:D, :D] @ shift), 0.0
        corner = -float(right @ shift)
        if self.ones:
            row, column = self.inverse * Q[D, :D], self.inverse * Q[:D, D]
            corner += float(Q[D, D] - shift @ row - shift @ column)
            left, right = left + row, right + column
        out[D, :D], out[:D, D], out[D, D] = left, right, corner
        return out

    def row_norms(self, v: Array) -> Array:
        D, m = self.shift.size, self.shift
        each = self.inverse**2 * v[:D]
        out = self.X.row_norms(each) - 2.0 * self.X.times(m * each)
        return np.maximum(out + m @ (m * each), 0.0) + np.sum(v[D:])  # rounding may make a square negative

    def into(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """K u for u (L,) or (L, M): the rows for columns of X, and the last row."""
        D = self.shift.size
        top = (self.inverse if u.ndim == 1 else self.inverse[:, None]) * u[:D]
        return top, u[D:].sum(axis=0) - self.shift @ top

    def back(self, r: np.ndarray) -> np.ndarray:
        """K' r for r (D + 1,) or (D + 1, M)."""
        D = self.shift.size
        inverse, shift = (self.inverse, self.shift) if r.ndim == 1 else (self.inverse[:, None], self.shift[:, None])
        return np.concatenate([inverse * (r[:D] - shift * r[D]), r[D : self.shape[1]]])


def _shifted(X: Any, shift: np.ndarray, scale: np.ndarray) -> Any:
    """(X - 1 shift') diag(1/scale) in CSR, for few nonzero shifts."""
    import scipy.sparse as sp

    n, columns = X.shape[0], np.flatnonzero(shift)
    place = np.tile(columns, n), columns.size * np.arange(n + 1)
    out = sp.csr_array(X) - sp.csr_array((np.tile(shift[columns], n), *place), shape=X.shape)
    out = sp.csr_array(out)
    out.data /= scale[out.indices]
    return out


# -- Rows that are contrasts of several predictors: row (n, p) of the design is sum_k D[p, k] w_nk in the latents of k
# W = [D[p, k] w_k[n]]  (N P, C L),   rows ordered by observation,   latents ordered by class
#     W' diag(a) W has the blocks  w_k' diag(b_kl) w_l,   b_n = D' diag(a_n) D  (C x C)
#
# Each of the C predictors has its own design; often all are the same. No array of size
# N P x C L is formed.
_NUMBERS = 1 << 22  # entries of a temporary


class Contrasts(Design):
    """Contrasts D (P, C) of C predictors, each with a design (N, L) and its own latents; numpy only."""

    def __init__(self, designs: Sequence[Design], D: np.ndarray) -> None:
        self.designs, self.D = list(designs), D
        self.P, self.C = D.shape
        self.n, self.L = self.designs[0].shape
        self.shape = (self.n * self.P, self.C * self.L)
        self.squares = (D[:, :, None] * D[:, None, :]).reshape(self.P, -1)  # (P, C^2): entries of d_p d_p'
        self.shared = all(W is self.designs[0] for W in self.designs)

    def parts(self, u: Array) -> list[np.ndarray]:
        """u (C L, ...) divided by class."""
        return np.split(to_numpy(u), self.C)

    def times(self, u: Array) -> Array:
        eta = np.stack([to_numpy(W.times(x)) for W, x in zip(self.designs, self.parts(u), strict=True)], axis=1)
        return np.matmul(self.D, eta.reshape(self.n, self.C, -1)).reshape(self.shape[0], *eta.shape[2:])

    def adjoint(self, a: Array) -> Array:
        a = to_numpy(a)
        each = np.matmul(self.D.T, a.reshape(self.n, self.P, -1))
        parts = [W.adjoint(np.ascontiguousarray(each[:, k])) for k, W in enumerate(self.designs)]
        return np.concatenate(parts, axis=0).reshape(self.shape[1], *a.shape[1:])

    def blocks(self, weight: Array) -> np.ndarray:
        """D' diag(weight_n) D for each observation (N, C, C)."""
        return (to_numpy(weight).reshape(self.n, self.P) @ self.squares).reshape(self.n, self.C, self.C)

    def gram(self, weight: Array) -> Array:
        b, out = self.blocks(weight), np.empty((self.C, self.L, self.C, self.L))
        for k, W in enumerate(self.designs):
            for m in range(k + 1):
                # weights off the diagonal are mostly negative, and designs are fastest with positive ones
                sign = -1.0 if m < k else 1.0
                out[k, :, m, :] = sign * to_numpy(W.between(np.ascontiguousarray(sign * b[:, k, m]), self.designs[m]))
                if m < k:
                    out[m, :, k, :] = out[k, :, m, :].T
        return out.reshape(self.shape[1], self.shape[1])

    def _contrasted(self, covariance: np.ndarray) -> np.ndarray:
        """d_p' covariance_n d_p (N P,)."""
        return (covariance.reshape(self.n, -1) @ self.squares.T).reshape(-1)

    def covariances(self, U: Array) -> np.ndarray:
        """The covariance (N, C, C) of the C predictors of each observation under U U'."""
        out, each = np.zeros((self.n, self.C, self.C)), self.parts(U)
        step = max(1, _NUMBERS // (self.n * self.C))
        for i in range(0, each[0].shape[1], step):
            parts = zip(self.designs, each, strict=True)
            half = np.stack([to_numpy(W.times(np.ascontiguousarray(x[:, i : i + step]))) for W, x in parts], axis=1)
            out += half @ half.transpose(0, 2, 1)
        return out

    def row_squares(self, U: Array) -> Array:
        return self._contrasted(self.covariances(U))

    def row_products(self, Q: Array) -> Array:
        out, blocks = np.empty((self.n, self.C, self.C)), to_numpy(Q).reshape(self.C, self.L, self.C, self.L)
        for k, W in enumerate(self.designs):
            for m in range(k + 1):
                block = np.ascontiguousarray(blocks[k, :, m, :])
                if self.shared:
                    out[:, k, m] = W.row_products(block)
                else:
                    out[:, k, m] = np.einsum("nl,nl->n", to_numpy(W.times(block)), to_numpy(self.designs[m].toarray()))
                out[:, m, k] = out[:, k, m]  # Q is symmetric
        return self._contrasted(out)

    def row_norms(self, v: Array) -> Array:
        each = np.stack([to_numpy(W.row_norms(x)) for W, x in zip(self.designs, self.parts(v), strict=True)], axis=1)
        return (each @ (self.D**2).T).reshape(-1)

    def take(self, rows: np.ndarray) -> Contrasts:
        """Selected observations; ``rows`` must have all rows of each."""
        keep = np.asarray(rows)[:: self.P] // self.P
        taken = {id(W): W.take(keep) for W in self.designs}
        return Contrasts([taken[id(W)] for W in self.designs], self.D)

    def toarray(self) -> Array:
        return self.csr().toarray()

    def csr(self) -> sp.csr_array:
        return contrast_rows([W.csr() for W in self.designs], self.D)


def contrast_rows(designs: Sequence[sp.csr_array], D: np.ndarray) -> sp.csr_array:
    """The same as one sparse matrix (N P, C L)."""
    n, C = designs[0].shape[0], D.shape[1]
    stacked = sp.block_diag(designs, format="csr")  # ordered by class
    order = (np.arange(C)[None, :] * n + np.arange(n)[:, None]).reshape(-1)
    out = sp.csr_array(sp.kron(sp.eye_array(n), sp.csr_array(D), format="csr") @ stacked[order])
    out.sort_indices()
    return out


def block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenated vectors, or a block-diagonal matrix."""
    if all(block.ndim == 1 for block in blocks):
        return np.concatenate(blocks)
    return np.asarray(scipy.linalg.block_diag(*[np.diag(b) if b.ndim == 1 else b for b in blocks]))
