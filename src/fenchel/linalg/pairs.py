"""Pairs of entries of each row of a sparse design W, placed in the storage of a factorisation.

    x += W' diag(w) W        diag(W Z W')

In place of a sparse map from the rows to the entries of W'W: each pair once instead of twice, straight to where the
factorisation keeps it, and products of the design's entries taken on the way instead of stored.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from .factorisation import Stored
from .rows import on_every_core

FEW_PAIRS = 2**19  # of columns that rows touch, found by numpy: more are worth a compiled loop


class RowPairs:
    """W (N, L), a csr array whose pairs all lie in the pattern that was analysed."""

    def __init__(self, W: Any, symbolic: Stored) -> None:
        from . import _pairs as kernels

        if not W.has_canonical_format:  # a column twice in a row would be a pair of its own
            W = W.copy()
            W.sum_duplicates()
        self.W, self.symbolic = W, symbolic
        self.ptr = _counted(W)
        self.place = np.empty(self.ptr[-1], dtype=np.int32 if symbolic.nnz < 2**31 else np.int64)
        pattern = symbolic.indptr, symbolic.indices, symbolic.everywhere
        kernels.find(W.indptr, W.indices, *pattern, self.ptr, self.place)

    def take(self, rows: np.ndarray) -> RowPairs:
        """The same of some rows."""
        out = copy.copy(self)
        out.W = self.W[rows]
        out.ptr = _counted(out.W)
        first = np.repeat(self.ptr[rows] - out.ptr[:-1], np.diff(out.ptr))
        out.place = self.place[np.arange(out.ptr[-1]) + first]
        return out

    def add(self, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
        """x += W' diag(weight) W on the storage, in place."""
        from . import _pairs as kernels

        kernels.add(self.W.indptr, self.W.data, self.ptr, self.place, np.asarray(weight, dtype=np.float64), x)
        return x

    def forms(self, z: np.ndarray) -> np.ndarray:
        """diag(W Z W') (N,), Z by its values on the storage."""
        from . import _pairs as kernels

        W, out = self.W, np.empty(self.W.shape[0])

        def stretch(start: int, stop: int) -> None:
            kernels.forms(W.indptr, W.data, self.ptr, self.place, z, start, stop, out)

        on_every_core(W.shape[0], max(1, self.place.size // max(1, W.shape[0])), stretch)
        return out


class TrianglePairs(RowPairs):
    """The same on the lower triangle of a csc pattern, whose values are the storage; columns of W ascend."""

    def __init__(self, W: Any, indptr: np.ndarray, indices: np.ndarray) -> None:
        from . import _pairs as kernels

        self.W, self.ptr = W, _counted(W)
        self.place = np.empty(self.ptr[-1], dtype=np.int32 if indices.size < 2**31 else np.int64)
        if not kernels.below(W.indptr, W.indices, indptr, indices, self.ptr, self.place):
            raise IndexError("a row has a pair of columns that is not in the pattern")


def _counted(W: Any) -> np.ndarray:
    """Where the pairs of each row begin."""
    each = np.diff(W.indptr).astype(np.int64)
    return np.concatenate([[0], np.cumsum(each * (each + 1) // 2)])


def pair_places(
    W: Any, indptr: np.ndarray, indices: np.ndarray, ptr: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every ordered pair of entries of each row of W: where it stands in a csc pattern, and the product of the two.

    ``ptr`` counts pairs row by row. The third answer is which rows have all of their pairs in the pattern.
    """
    size = int(ptr[-1])
    kind = np.int32 if max(size, indices.size) < 2**31 else np.int64
    if size > FEW_PAIRS:
        from ._symbolic import pair_places as compiled_places

        place, data = np.empty(size, dtype=kind), np.empty(size)
        return place, data, compiled_places(W.indptr, W.indices, W.data, indptr, indices, ptr, place, data)
    n, each = indptr.size - 1, np.diff(W.indptr)
    row = np.repeat(np.arange(each.size), each.astype(np.int64) ** 2)
    within = np.arange(size) - ptr[row]
    first, second = W.indptr[row] + within // each[row], W.indptr[row] + within % each[row]
    keys = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr)) * n + indices  # sorted, as a csc pattern is
    key = W.indices[second].astype(np.int64) * n + W.indices[first]
    found = np.minimum(np.searchsorted(keys, key), max(keys.size - 1, 0))
    missing = keys[found] != key if keys.size else np.ones(size, dtype=bool)
    whole = np.bincount(row[missing], minlength=each.size) == 0
    return found.astype(kind), W.data[first] * W.data[second], whole
