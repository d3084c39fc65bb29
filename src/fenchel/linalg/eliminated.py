"""A sparse Gaussian under many constraints: x = B w by a sparse basis of what they leave free.

    V = B (B' A B)^-1 B',   log|B' A B|,   C B = 0

``bases.py`` finds B, whose columns touch few latents near each other in the graph of A. With T_B the sparse map from
the entries of A to those of B' A B, the entries of V on the pattern of A are T_B' z, z the selected inverse.
Conditioning (``constrained.py``) carries a few constraints over any latents; this carries thousands. Answers as
``sparse.py`` does, in the latents x.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .arrays import ArrayLike
from .factorisation import Analysis, Factorisation, analyse
from .sparse import checked_columns


def analyse_free(A: Any, basis: Any = None) -> Analysis:
    """The analysis of A, a canonical csc array, on what a basis of ``split_local`` leaves free."""
    return analyse(A) if basis is None else EliminatedAnalysis(A, basis)


class EliminatedAnalysis:
    """What depends on the patterns of A and of the basis alone."""

    def __init__(self, A: Any, basis: Any) -> None:
        self.n, self.indptr, self.indices, self.basis = A.shape[0], A.indptr.copy(), A.indices.copy(), basis
        ones = sp.csr_array((np.ones(basis.nnz), basis.indices, basis.indptr), shape=basis.shape)
        pattern = sp.csc_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
        inner = sp.csc_array(ones.T @ pattern @ ones)
        inner.sort_indices()
        self.inner = analyse(inner)
        columns = np.repeat(np.arange(self.n), np.diff(self.indptr))
        self.map = self._products(inner, columns)
        on = self.indices == columns
        self.diagonal = np.empty(self.n, dtype=np.int64)
        self.diagonal[columns[on]] = np.flatnonzero(on)

    def _products(self, inner: Any, columns: np.ndarray) -> Any:
        """T_B: entry (i, j) of A goes to (a, b) of B' A B times B_ia B_jb, for all a and b that i and j touch."""
        basis, m = self.basis, inner.shape[0]
        count = np.diff(basis.indptr).astype(np.int64)
        pairs = count[self.indices] * count[columns]
        entry = np.repeat(np.arange(self.indices.size), pairs)
        within = np.arange(entry.size) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        wide = np.maximum(count[columns][entry], 1)
        first = basis.indptr[self.indices[entry]] + within // wide
        second = basis.indptr[columns[entry]] + within % wide
        keys = np.repeat(np.arange(m, dtype=np.int64), np.diff(inner.indptr)) * m + inner.indices
        place = np.searchsorted(keys, basis.indices[second].astype(np.int64) * m + basis.indices[first])
        value = basis.data[first] * basis.data[second]
        return sp.csr_array((value, (place, entry)), shape=(inner.nnz, self.indices.size))

    def same_pattern(self, A: Any) -> bool:
        return np.array_equal(A.indptr, self.indptr) and np.array_equal(A.indices, self.indices)

    def factor(self, data: np.ndarray) -> Eliminated:
        """The factor of a matrix by its values on the pattern, taken as symmetric. Raises NotPositiveDefinite."""
        return Eliminated(self, self.inner.factor(self.map @ data))


class Eliminated:
    """A ``Factorisation`` of B' A B that answers in x = B w."""

    def __init__(self, symbolic: EliminatedAnalysis, inner: Factorisation) -> None:
        self.symbolic, self.inner, self.n = symbolic, inner, symbolic.n
        self.log_det, self.smallest_pivot = inner.log_det, inner.smallest_pivot

    @property
    def log_det_rounding(self) -> float:
        return self.inner.log_det_rounding

    def solve(self, b: ArrayLike) -> np.ndarray:
        """V b for b (n,) or (n, k)."""
        B = self.symbolic.basis
        return (B @ self.inner.solve(B.T @ checked_columns(b, self.n))).reshape(np.shape(b))

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """Draws with covariance V from standard normal noise (n,) or (n, k), of which some is not needed."""
        B = self.symbolic.basis
        return (B @ self.inner.sample(checked_columns(noise, self.n)[: B.shape[1]])).reshape(np.shape(noise))

    def inverse_data(self) -> np.ndarray:
        """V on the pattern."""
        return np.asarray(self.symbolic.map.T @ self.inner.inverse_data())

    def inverse_diagonal(self) -> np.ndarray:
        """diag V (n,)."""
        return self.inverse_data()[self.symbolic.diagonal]

    def row_variances(self, W: Any, T: Any) -> np.ndarray:
        """diag(W V W'), T the map from the rows' weights to the entries of W' diag(.) W on the pattern."""
        return np.asarray(T.T @ self.inverse_data())

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """V E V on the pattern, E by its values there."""
        T = self.symbolic.map
        return np.asarray(T.T @ self.inner.sandwich(T @ data))
