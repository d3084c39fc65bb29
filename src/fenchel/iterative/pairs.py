"""A' Lam B of two sparse designs over the same rows, on a pattern that is found once.

Each row n brings the products a_i b_j of its entries; where they land is kept, so that another lam costs one pass.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


class Pairs:
    """The products of the entries of A (N, k) and B (N, l), row by row, and where they land in A' Lam B.

    Attributes
    ----------
    row : int array
        Of each product.
    left, right : int arrays
        The entries of A and B that it is made of.
    where : int array
        Its entry of the csr pattern (``indptr``, ``indices``).
    """

    def __init__(self, A: sp.csr_array, B: sp.csr_array) -> None:
        self.shape = (A.shape[1], B.shape[1])
        a, b = np.diff(A.indptr), np.diff(B.indptr)
        each = a * b
        self.row = np.repeat(np.arange(A.shape[0], dtype=np.int32), each)
        inside = np.arange(each.sum(), dtype=np.int64) - np.repeat(np.cumsum(each) - each, each)
        wide = np.repeat(np.maximum(b, 1), each)
        self.left = (np.repeat(A.indptr[:-1], each) + inside // wide).astype(np.int32)
        self.right = (np.repeat(B.indptr[:-1], each) + inside % wide).astype(np.int32)
        key = A.indices[self.left].astype(np.int64) * B.shape[1] + B.indices[self.right]
        entries, where = np.unique(key, return_inverse=True)
        self.where = where.astype(np.int32)
        rows, self.indices = np.divmod(entries, max(B.shape[1], 1))
        self.indices = self.indices.astype(np.int32)
        self.indptr = np.searchsorted(rows, np.arange(A.shape[1] + 1)).astype(np.int32)
        product = A.data[self.left] * B.data[self.right]
        self.product = None if (product == 1.0).all() else product

    def gram(self, lam: np.ndarray) -> sp.csr_array:
        """A' diag(lam) B."""
        weight = lam[self.row]
        if self.product is not None:
            weight *= self.product
        data = np.bincount(self.where, weight, minlength=self.indices.size)
        return sp.csr_array((data, self.indices, self.indptr), shape=self.shape)

    def form(self, entries: np.ndarray, left: np.ndarray, right: np.ndarray, n: int) -> np.ndarray:
        """a_n' W b_n of each row (n,), W on this pattern with ``entries``, a and b by the data of their designs."""
        value = entries[self.where]
        value *= left[self.left]
        value *= right[self.right]
        return np.bincount(self.row, value, minlength=n)
