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
