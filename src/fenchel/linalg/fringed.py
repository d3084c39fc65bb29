"""Sparse Cholesky factorisation of a matrix that is leaves and a sparse rest: points that condition on knots.

    A = [D B'; B C],    D of small blocks,    C - B D^-1 B' = L L' by fronts

As ``bordered.py``, but the rest has an order of its own in which it stays sparse. The leaves are eliminated by one
compiled pass straight into the storage of its factor: a front for each of a million points would take longer, and so
would an order of all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .bordered import BorderedAnalysis, BorderedCholesky
from .dense import NotPositiveDefinite
from .pairs import RowPairs
from .rows import on_every_core
from .sparse import SymbolicCholesky


class FringedAnalysis(BorderedAnalysis):
    """Which columns are leaves, where every entry goes, and the analysis of the rest.

    Attributes
    ----------
    inner : SymbolicCholesky
        Of the rest as the leaves leave it.
    pairs : RowPairs
        Where pairs of the rows that a leaf touches stand in its storage.
    work : multiplications, about
    """

    def __init__(self, A: Any, leaf: np.ndarray, inner: SymbolicCholesky | None = None) -> None:
        """``inner`` is the analysis of the same rest, if it has been made."""
        super().__init__(A, leaf)
        r = self.n_border
        touched = sp.csr_array(
            (np.ones(self.rows.size, dtype=np.float32), self.rows, self.ptr), shape=(self.ptr.size - 1, r)
        )
        high, low = np.divmod(self.everywhere[self.everywhere >= self.size] - self.size, r)  # the rest's own entries
        own = sp.csc_array((np.ones(high.size, dtype=np.float32), (high, low)), shape=(r, r))
        rest = sp.csc_array(touched.T @ touched + own + own.T)
        rest.sort_indices()
        if inner is not None and not inner.same_pattern(rest):
            raise ValueError("the analysis of the rest is another's")
        self.inner = SymbolicCholesky(rest) if inner is None else inner
        self.pairs = RowPairs(touched, self.inner)
        keys = np.repeat(np.arange(r, dtype=np.int64), np.diff(rest.indptr)) * r + rest.indices
        places = self.size + self.inner.everywhere[np.searchsorted(keys, low * r + high)]
        self.everywhere[self.everywhere >= self.size] = places
        self.nnz = self.size + self.inner.nnz
        if self.nnz < 2**31:  # half of the memory that millions of points take
            self.everywhere = self.everywhere.astype(np.int32)
        self.diagonal = self.everywhere[_diagonal(self.indptr, self.indices)]
        self.pivot = self.diagonal[self.order]
        self.work = float(self.pairs.ptr[-1]) + self.inner.work

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "inner": self.inner}

    def made_anew(self, A: Any, leaf: np.ndarray) -> FringedAnalysis:
        if type(self.inner) is not SymbolicCholesky:
            raise ValueError("the analysis of the rest is none")
        return FringedAnalysis(A, leaf, self.inner)

    def border(self, x: np.ndarray) -> np.ndarray:
        """The rest among values (nnz,), as its own storage."""
        return x[self.size :]

    def factor(self, data: np.ndarray) -> FringedCholesky:
        """The factor from values alone, in the order of the csc array analysed; taken as symmetric and finite."""
        return FringedCholesky(self, self.laid_out(data))

    def factor_of(self, x: np.ndarray) -> FringedCholesky:
        """The factor of a matrix by its squares, panels and rest, whose memory it takes."""
        return FringedCholesky(self, x)


class FringedCholesky(BorderedCholesky):
    """A = L L' by leaves and fronts; a ``StoredFactorisation``.

    x (nnz,) holds A as squares, panels and the storage of the rest; it becomes the factor.
    """

    symbolic: FringedAnalysis

    def __init__(self, symbolic: FringedAnalysis, x: np.ndarray) -> None:
        from . import _fringed as kernels

        S = self.symbolic = symbolic
        self.n, self._z = S.n, None
        self._diagonal = x[S.pivot]  # the leaves' first
        bad = kernels.eliminate(*self._fringe, x, S.border(x))
        if bad >= 0:
            raise NotPositiveDefinite(f"the pivot of row {S.order[bad]} is not positive")
        try:
            self._inner = S.inner.factor_of(S.border(x))
        except NotPositiveDefinite:
            raise NotPositiveDefinite("a pivot behind the leaves is not positive") from None
        self._x = x[: S.size]
        pivots = S.border(x)[S.inner.diagonal][S.inner.inverse_order]
        self._pivots = np.concatenate([1.0 / x[S.pivot[: S.n_leaves]], pivots])  # the diagonal of L

    def verify(self) -> None:
        """Raise ValueError where its arrays are not of the sizes that the analysis asks for."""
        S = self.symbolic
        if type(S) is not FringedAnalysis or self._inner.symbolic is not S.inner:
            raise ValueError("the analysis of a factor is none")
        sizes = [(self._x, S.size), (self._diagonal, S.n), (self._pivots, S.n)]
        sizes += [] if self._z is None else [(self._z, S.nnz)]
        if "_regressions" in self.__dict__:
            sizes += [(self._regressions, S.size - int(S.panel[0]))]
        if not all(type(x) is np.ndarray and x.dtype == np.float64 and x.shape == (n,) for x, n in sizes):
            raise ValueError("the arrays of a factor are not of the sizes of its analysis")

    @property
    def _fringe(self) -> tuple[np.ndarray, ...]:
        S = self.symbolic
        return S.start, S.ptr, S.square, S.panel, S.pairs.ptr, S.pairs.place

    def _over_leaves(self, work: Any) -> None:
        """work(first, last) for stretches of leaves, each of which writes to its own, on every core."""
        S = self.symbolic
        m = S.start.size - 1
        on_every_core(m, int(S.pairs.ptr[-1]) // max(1, m) + 1, work)

    def _over_border(self, x: np.ndarray, z: np.ndarray | None, b: np.ndarray, both: bool) -> np.ndarray:
        return self._inner.solve(b) if both else self._inner.sample(b)

    def stored_inverse(self) -> np.ndarray:
        """The inverse, laid out as x was; computed when first asked for."""
        from . import _fringed as kernels

        if self._z is None:
            S, z = self.symbolic, np.empty(self.symbolic.nnz)
            Z = S.border(z)
            Z[:] = self._inner.stored_inverse()
            self._inner._z = Z  # one copy is enough
            self._over_leaves(lambda first, last: kernels.selected(first, last, *self._fringe, self._x, Z, z))
            self._z = z
        return self._z

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 laid out as x was, in the memory of E."""
        from . import _fringed as kernels

        S, z, Y = self.symbolic, self.stored_inverse(), self._regressions
        C = S.border(e)
        kernels.reduce(*self._fringe, Y, e, C)
        C[:] = self._inner.stored_sandwich(C)
        parts = self._x, Y, S.border(z), C, e
        self._over_leaves(lambda first, last: kernels.sandwich(first, last, *self._fringe, *parts))
        return e


def _diagonal(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Which entries of a csc pattern are its diagonal."""
    return np.flatnonzero(indices == np.repeat(np.arange(indptr.size - 1), np.diff(indptr)))
