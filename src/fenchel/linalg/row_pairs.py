"""The rows of a sparse design W with a factorisation: products of pairs of their entries, on the pattern.

    W' diag(w) W        diag(W Z W')

``DesignRows`` stores them as a sparse map T from weights of the rows to the entries of W'W. For a factorisation with
its own layout ``RowPairs`` has each pair once instead of twice, adds it directly at its position in that layout, and
computes products of entries of W when needed. ``WideRows`` have many columns that are nonzero in every row, such as the
features of a process: their products are those of dense matrices.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import gates
from .factorisation import Analysis, StoredAnalysis
from .machine import blocks, on_every_core
from .matrix_designs import Dense


class RowPairs:
    """W (N, L), a csr array; all pairs of its rows are in the analysed pattern."""

    def __init__(self, W: Any, symbolic: StoredAnalysis) -> None:
        from . import _symbolic as kernels

        if not W.has_canonical_format:  # a duplicate column in a row would count as a pair
            W = W.copy()
            W.sum_duplicates()
        self.W, self.symbolic = W, symbolic
        self.ptr = _starts_of_pairs(W)
        self.place = np.empty(self.ptr[-1], dtype=_kind(symbolic.nnz))
        pattern = symbolic.indptr, symbolic.indices, symbolic.everywhere
        kernels.find_pairs(W.indptr, W.indices, *pattern, self.ptr, self.place)

    def take(self, rows: np.ndarray) -> RowPairs:
        """The same for selected rows."""
        out = copy.copy(self)
        out.W = self.W[rows]
        out.ptr = _starts_of_pairs(out.W)
        first = np.repeat(self.ptr[rows] - out.ptr[:-1], np.diff(out.ptr))
        out.place = self.place[np.arange(out.ptr[-1]) + first]
        return out

    def add(self, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
        """x += W' diag(weight) W in the layout, in place."""
        from . import _symbolic as kernels

        kernels.add_pairs(self.W.indptr, self.W.data, self.ptr, self.place, np.asarray(weight, dtype=np.float64), x)
        return x

    def forms(self, z: np.ndarray) -> np.ndarray:
        """diag(W Z W') (N,), for Z given by its values in the layout."""
        from . import _symbolic as kernels

        W, out = self.W, np.empty(self.W.shape[0])

        def stretch(start: int, stop: int) -> None:
            kernels.pair_forms(W.indptr, W.data, self.ptr, self.place, z, start, stop, out)

        on_every_core(W.shape[0], max(1, self.place.size // max(1, W.shape[0])), stretch)
        return out


class TrianglePairs(RowPairs):
    """The same for the lower triangle of a csc pattern, whose values are the layout; columns of W ascend."""

    def __init__(self, W: Any, indptr: np.ndarray, indices: np.ndarray) -> None:
        from . import _symbolic as kernels

        self.W, self.ptr = W, _starts_of_pairs(W)
        self.place = np.empty(self.ptr[-1], dtype=_kind(indices.size))
        if not kernels.find_pairs_below(W.indptr, W.indices, indptr, indices, self.ptr, self.place):
            raise IndexError("a row has a pair of columns that is not in the pattern")


def _starts_of_pairs(W: Any) -> np.ndarray:
    """The index of the first pair of each row."""
    each = np.diff(W.indptr).astype(np.int64)
    return np.concatenate([[0], np.cumsum(each * (each + 1) // 2)])


def _kind(size: int) -> Any:
    """An integer type for numbers up to ``size``."""
    return np.int32 if size < 2**31 else np.int64


class DesignRows:
    """The rows of a design W (N, L), csr, and a csc pattern that contains their pairs of columns.

    Attributes
    ----------
    by_pairs : bool
        Whether there are many rows, used often, so that finding ``RowPairs`` pays.
    """

    _pairs: RowPairs | None = None
    n_full: int = 0  # number of columns treated as those of a dense matrix

    def __init__(self, W: Any, indptr: np.ndarray, indices: np.ndarray, by_pairs: bool = True) -> None:
        self.W, self.indptr, self.indices, self.by_pairs = W, indptr, indices, by_pairs

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("W", "indptr", "indices", "by_pairs")}

    @cached_property
    def _mapped(self) -> tuple[Any, np.ndarray]:
        return row_products(self.W, self.indptr, self.indices)

    @property
    def products(self) -> Any:
        """T, the map from weights of the rows to the entries of W' diag(.) W; empty for rows not ``complete``."""
        return self._mapped[0]

    @property
    def complete(self) -> np.ndarray:
        """Whether all pairs of each row are in the pattern."""
        return self._mapped[1]

    def pairs(self, symbolic: Analysis) -> RowPairs | None:
        """The pairs in the layout of an analysis; None if the map T is used."""
        if not self.by_pairs or not symbolic.stores_pairs:
            return None
        if not symbolic.compiled and int((np.diff(self.W.indptr).astype(np.int64) ** 2).sum()) <= gates.NUMPY_PAIRS:
            return None
        if self._pairs is None or self._pairs.symbolic is not symbolic:
            assert isinstance(symbolic, StoredAnalysis)
            self._pairs = RowPairs(self.W, symbolic)
        return self._pairs

    def with_values(self, W: Any) -> DesignRows:
        """The same rows with other values of W on the same pattern."""
        return DesignRows(W, self.indptr, self.indices, self.by_pairs)

    def take(self, rows: np.ndarray) -> DesignRows:
        """Selected rows."""
        out = DesignRows(self.W[rows], self.indptr, self.indices, self.by_pairs)
        if self._pairs is not None:
            out._pairs = self._pairs.take(rows)
        if "_mapped" in self.__dict__:
            out.__dict__["_mapped"] = self.products[:, rows], self.complete[rows]
        return out


class WideRows(DesignRows):
    """Rows of W = [S, G] in some order of columns, with G (N, M) dense; all pairs with columns of G are in the pattern.

    Attributes
    ----------
    full : int array (M,)
        The columns of G, ascending.
    """

    def __init__(self, W: Any, indptr: np.ndarray, indices: np.ndarray, full: np.ndarray) -> None:
        super().__init__(W, indptr, indices, by_pairs=False)
        self.full, n = full, indptr.size - 1
        self.n_full, every = full.size, np.arange(n)
        self.below = indptr[full] + every[:, None]  # (n, M): position of the pair of a latent and a column of G
        ahead = places_in(indptr, indices, np.tile(full, n), np.repeat(every, full.size))[0]
        self.mirrored = ahead.reshape(n, full.size)
        self._set(W)

    def __getstate__(self) -> dict[str, Any]:
        names = ("W", "indptr", "indices", "by_pairs", "full", "n_full", "below", "mirrored", "S", "G")
        return {name: self.__dict__[name] for name in names}

    def _set(self, W: Any) -> None:
        """Replace the rows, or their values."""
        self.W, self.S = W, without_columns(W, self.full)
        self.G = Dense(W[:, self.full].toarray())

    def with_values(self, W: Any) -> WideRows:
        """Other rows on the same pattern."""
        out = copy.copy(self)
        out.__dict__.pop("_mapped", None)
        out._set(W)
        return out

    def take(self, rows: np.ndarray) -> WideRows:
        return self.with_values(self.W[rows])

    @cached_property
    def _mapped(self) -> tuple[Any, np.ndarray]:
        return row_products(self.S, self.indptr, self.indices)

    @property
    def products(self) -> WideProducts:
        """The map T; it is not kept here, because it refers to these rows."""
        return WideProducts(self, self._mapped[0])


class WideProducts:
    """The map from weights of wide rows to the entries of W' diag(.) W, and its transpose."""

    def __init__(self, rows: WideRows, sparse: Any, transposed: bool = False) -> None:
        self.rows, self.sparse, self.transposed = rows, sparse, transposed

    @property
    def T(self) -> WideProducts:
        return WideProducts(self.rows, self.sparse, not self.transposed)

    def __matmul__(self, values: np.ndarray) -> np.ndarray:
        return self._forms(values) if self.transposed else self._products(values)

    def _products(self, weight: np.ndarray) -> np.ndarray:
        """W' diag(weight) W on the pattern."""
        rows, G = self.rows, self.rows.G
        out = np.asarray(self.sparse @ weight)
        both = np.zeros(rows.below.shape)
        for some in blocks(0, *G.shape):
            both += rows.S[some].T @ (weight[some, None] * G.X[some])
        both[rows.full] = G.gram(weight)
        out[rows.below] = out[rows.mirrored] = both
        return out

    def _forms(self, data: np.ndarray) -> np.ndarray:
        """diag(W Z W') (N,), for a symmetric Z given by its values on the pattern."""
        rows, G = self.rows, self.rows.G
        both = np.asarray(data)[rows.below]
        out = np.asarray(self.sparse.T @ data) + G.row_products(both[rows.full])
        for some in blocks(0, *G.shape):
            out[some] += 2.0 * np.sum((rows.S[some] @ both) * G.X[some], axis=1)
        return out


def full_columns(W: Any) -> np.ndarray:
    """The columns of a csr array with an entry in each row, if there are many of them; otherwise none."""
    full = np.flatnonzero(np.bincount(W.indices, minlength=W.shape[1]) == W.shape[0])
    return full if full.size >= gates.DENSE_COLUMNS else full[:0]


def without_columns(W: Any, columns: np.ndarray) -> sp.csr_array:
    """A csr array with the entries of some columns removed."""
    gone = np.zeros(W.shape[1], dtype=bool)
    gone[columns] = True
    keep = ~gone[W.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[W.indptr].astype(W.indptr.dtype)
    return sp.csr_array((W.data[keep], W.indices[keep], indptr), shape=W.shape)


def products_pattern(W: Any, full: np.ndarray) -> sp.csc_array:
    """The pattern of W'W; columns with an entry in every row are paired with every latent."""
    S, n = without_columns(W, full), W.shape[1]
    ones = sp.csr_array((np.ones(S.nnz), S.indices, S.indptr), shape=S.shape)
    meet = np.tile(np.arange(n), full.size), np.repeat(full, n)
    block = sp.csc_array((np.ones(meet[0].size), meet), shape=(n, n))
    return sp.csc_array(ones.T @ ones) + block + block.T


def row_products(W: Any, indptr: np.ndarray, indices: np.ndarray) -> tuple[Any, np.ndarray]:
    """T, from weights of the rows of W to the entries of W' diag(.) W on a pattern, and which rows are complete.

    Row n of W contributes to the entries (i, j) for all pairs of its columns. T is empty for rows with pairs outside
    the pattern.
    """
    per_row = np.diff(W.indptr).astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(per_row**2)])
    place, data, whole = pair_places(W, indptr, indices, ptr)
    if not whole.all():
        keep = np.repeat(whole, per_row**2)
        place, data = place[keep], data[keep]
        ptr = np.concatenate([[0], np.cumsum(np.where(whole, per_row**2, 0))])
    shape = (W.shape[0], indices.size)
    return sp.csr_array((data, place, ptr.astype(place.dtype)), shape=shape).T, whole


def pair_places(
    W: Any, indptr: np.ndarray, indices: np.ndarray, ptr: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each ordered pair of entries of each row of W, its position in a csc pattern, and the product.

    ``ptr`` counts pairs by row. The third result says which rows have all of their pairs in the pattern.
    """
    size = int(ptr[-1])
    kind = _kind(max(size, indices.size))
    if size > gates.NUMPY_PAIRS:
        from ._symbolic import pair_places as compiled_places

        place, data = np.empty(size, dtype=kind), np.empty(size)
        return place, data, compiled_places(W.indptr, W.indices, W.data, indptr, indices, ptr, place, data)
    start, count = W.indptr[:-1], np.diff(W.indptr)
    row, first, second = ordered_pairs(start, count, start, count)
    position, missing = places_in(indptr, indices, W.indices[first], W.indices[second])
    whole = np.bincount(row[missing], minlength=count.size) == 0
    return position.astype(kind), W.data[first] * W.data[second], whole


def ordered_pairs(
    start: np.ndarray, count: np.ndarray, other_start: np.ndarray, other_count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs of entries of row n of one matrix and row n of another: n, and the indices of both entries."""
    each = count.astype(np.int64) * other_count
    row = np.repeat(np.arange(each.size), each)
    within = np.arange(row.size) - (np.cumsum(each) - each)[row]
    wide = other_count[row]
    return row, start[row] + within // wide, other_start[row] + within % wide


def places_in(
    indptr: np.ndarray, indices: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of entries (row, column) in a square csc pattern, sorted by column and row; and which are missing."""
    n = indptr.size - 1
    keys = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr)) * n + indices
    wanted = columns.astype(np.int64) * n + rows
    position = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
    return position, keys[position] != wanted if keys.size else np.ones(wanted.size, dtype=bool)
