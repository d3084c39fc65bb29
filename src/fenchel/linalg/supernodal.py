"""Sparse Cholesky factorisation by fronts (multifrontal), with the selected inverse.

    A = P' L L' P,    log|A|,    A^-1 b,    L^-T P b (samples),    diag(A^-1) and A^-1 on the pattern of A

The fill-reducing order and the symbolic analysis depend only on the pattern and are computed once; ``refactor`` reuses
them for new values. All code is numba and numpy: no compiler and no GPL library is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from . import parallel_tree
from .arrays import ArrayLike
from .dense import NotPositiveDefinite
from .factorisation import StoredAnalysis, StoredFactorisation, symmetric_csc
from .machine import note


def fill_reducing_order(A: Any) -> np.ndarray:
    """A permutation that keeps the factor of A sparse: METIS if ``pymetis`` is installed, else minimum degree.

    scipy has no function for orderings. SuperLU's is therefore read from an incomplete factorisation of a matrix with
    the same pattern, which drops all entries that cost time. Rows with very many neighbours (an intercept, a covariate)
    come last, since minimum degree takes quadratic time for them.
    """
    n = A.shape[0]
    if n <= 2:
        return np.arange(n)
    full = np.diff(A.indptr) > max(16.0, 10.0 * np.sqrt(n))
    if full.any() and not full.all():
        rest = np.flatnonzero(~full)
        inner = sp.csc_array(A[rest][:, rest])
        inner.sort_indices()
        return np.concatenate([rest[fill_reducing_order(inner)], np.flatnonzero(full)])
    try:
        import pymetis
    except ImportError:
        from scipy.sparse.linalg import spilu

        pattern = sp.csc_array((np.full(A.nnz, -1e-3), A.indices, A.indptr), shape=A.shape)
        pattern.setdiag(np.diff(A.indptr) + 1.0)
        how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        lu = spilu(pattern.tocsc(), drop_tol=0.5, fill_factor=1.0, drop_rule="basic", **how)
        return np.argsort(lu.perm_c)
    off = sp.csr_array(A - sp.diags_array(A.diagonal()))
    off.eliminate_zeros()
    if hasattr(pymetis, "CSRAdjacency"):
        return np.asarray(pymetis.nested_dissection(pymetis.CSRAdjacency(off.indptr, off.indices))[0])
    return np.asarray(pymetis.nested_dissection(xadj=off.indptr, adjncy=off.indices)[0])  # pymetis before 2025


class SymbolicCholesky(StoredAnalysis):
    """The symbolic analysis of a pattern, used for each matrix with that pattern.

    Attributes
    ----------
    n, nnz : size, and number of stored entries of L, including zeros that make panels wider
    """

    def __init__(self, A: Any, order: np.ndarray | None = None) -> None:
        from . import _symbolic as kernels

        A = symmetric_csc(A)
        self.n, self.indptr, self.indices = A.shape[0], A.indptr.copy(), A.indices.copy()
        order = fill_reducing_order(A) if order is None else np.asarray(order, dtype=np.int64)
        numbered = sp.csc_array((np.arange(1, A.nnz + 1), A.indices, A.indptr), shape=A.shape)
        order = order[kernels.postorder(elimination_tree(numbered, order)[0])]
        parent, B = elimination_tree(numbered, order)
        count = kernels.column_counts(B.indptr, B.indices, parent, np.iinfo(np.int64).max)[0]
        first = kernels.fundamental_supernodes(parent, count)
        rows_bound = int((count[first[1:] - 1] - 1).sum())
        self.order, self.inverse_order = order, np.argsort(order)
        self.start, self.ptr, rows = kernels.supernodes(B.indptr, B.indices, first, rows_bound)
        below_each = sp.csr_array((rows, rows, self.ptr), shape=(self.ptr.size - 1, self.n))
        below_each.sort_indices()
        self.rows = below_each.indices.astype(np.int64)
        width, below = np.diff(self.start), np.diff(self.ptr)
        self.panel = np.concatenate([[0], np.cumsum((width + below) * width)])
        self.inverse_ptr = np.concatenate([[0], np.cumsum(width * width)])
        self.parent, self.relative, self.children = kernels.relations(self.start, self.ptr, self.rows)
        m = self.parent.size
        whole = np.arange(m), np.zeros(m, dtype=np.int64)
        self.up_peak, self.down_peak = kernels.stack_sizes(*whole, self.start, self.ptr, self.parent)
        place = kernels.positions(self.start, self.ptr, self.rows, self.panel, B.indptr, B.indices)
        lower = place >= 0
        target, source = place[lower], B.data[lower] - 1  # entry of the panels, entry of A.data
        mirror = numbered.T.tocsc()
        mirror.sort_indices()
        self.everywhere = np.empty(A.nnz, dtype=np.int64)
        self.everywhere[mirror.data[source] - 1] = target
        self.everywhere[source] = target
        self.diagonal = self.everywhere[self.diagonal_entries]
        self.nnz = int(self.panel[-1])
        self.work = float(((width + below) ** 3.0 - below**3.0).sum() / 3.0)

    def factor_of(self, x: np.ndarray) -> SparseCholesky:
        return SparseCholesky.from_panels(self, x)


def elimination_tree(A: Any, order: np.ndarray) -> tuple[np.ndarray, Any]:
    """The elimination tree of A in this order, and A in this order."""
    from . import _symbolic as kernels

    B = sp.csc_array(A[order][:, order])
    B.sort_indices()
    return kernels.elimination_tree(B.indptr, B.indices), B


class SparseCholesky(StoredFactorisation):
    """A = P' L L' P for a sparse symmetric positive definite matrix.

    Parameters
    ----------
    A : scipy sparse (n, n)
        Symmetric, with both triangles stored.
    symbolic : SymbolicCholesky, optional
        The analysis of a matrix with the same pattern.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fenchel.linalg import SparseCholesky
    >>> A = sp.diags_array([2.5 * np.ones(4), -np.ones(3), -np.ones(3)], offsets=[0, 1, -1])
    >>> factor = SparseCholesky(A)
    >>> bool(np.allclose(factor.inverse_diagonal(), np.diag(np.linalg.inv(A.toarray()))))
    True
    """

    symbolic: SymbolicCholesky

    def __init__(self, A: ArrayLike, symbolic: SymbolicCholesky | None = None) -> None:
        symbolic = SymbolicCholesky(A) if symbolic is None else symbolic
        super().__init__(symbolic, symbolic.laid_out(values_on(symbolic, A)))

    @classmethod
    def from_panels(cls, symbolic: SymbolicCholesky, x: np.ndarray) -> SparseCholesky:
        """The factor of a matrix given by its panels."""
        out = object.__new__(cls)
        StoredFactorisation.__init__(out, symbolic, x)
        return out

    def refactor(self, A: ArrayLike) -> SparseCholesky:
        """The factor of another matrix with the same pattern, without a second analysis."""
        return self.symbolic.factor_of(self.symbolic.laid_out(values_on(self.symbolic, A)))

    def _factorise(self, x: np.ndarray) -> np.ndarray:
        note(factorisations=1)
        S = self.symbolic
        self._inverse = np.empty(S.inverse_ptr[-1])  # inverses of the diagonal blocks of L
        bad = parallel_tree.factorise(S, x, self._inverse)
        if bad >= 0:
            raise NotPositiveDefinite(f"the pivot of row {S.order[bad]} is not positive")
        return x[S.diagonal]

    def _solve(self, b: np.ndarray, both: bool) -> np.ndarray:
        return parallel_tree.solve(self.symbolic, self._x, self._inverse, b, forward=both)

    def _invert(self, z: np.ndarray) -> None:
        parallel_tree.invert(self.symbolic, self._x, self._inverse, z)

    def selected_inverse(self) -> Any:
        """A^-1 on the pattern of A, as a symmetric csc array; other entries are not zero, but not computed."""
        S = self.symbolic
        return sp.csc_array((self.inverse_data(), S.indices.copy(), S.indptr.copy()), shape=(S.n, S.n))

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        from . import _sandwich as kernels

        note(products=1)
        S, z = self.symbolic, self.stored_inverse()
        tree = S.start, S.ptr, S.panel, S.parent, S.relative
        out, lower = np.empty(S.nnz), (self._x, self._inverse, S.inverse_ptr)
        with parallel_tree.alone(S):
            kernels.reduce(*tree, *lower, np.empty(max(1, S.up_peak)), e)
            kernels.sandwich(*tree, S.children, *lower, np.empty((2, max(1, S.down_peak))), z, e, out)
        return out

    def lower(self) -> Any:
        """L of the permuted matrix A[order][:, order], as a csc array; for inspection, not for speed."""
        S = self.symbolic
        blocks = []
        for k in range(S.start.size - 1):
            a, e = int(S.start[k]), int(S.start[k + 1])
            index = np.concatenate([np.arange(a, e), S.rows[S.ptr[k] : S.ptr[k + 1]]])
            panel = self._x[S.panel[k] : S.panel[k + 1]].reshape(index.size, e - a)
            r, c = np.nonzero(panel)
            blocks.append((index[r], c + a, panel[r, c]))
        rows, columns, values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return sp.csc_array((values, (rows, columns)), shape=(S.n, S.n))


class Cost(NamedTuple):
    """The cost of one factorisation: bytes of the factor, and multiplications."""

    memory: float
    work: float


def factor_cost(A: sp.csc_array, leaves: np.ndarray, most: float) -> Cost:
    """The cost of a factor of a symmetric A (n, n), with both triangles stored, if ``leaves`` (n,) come first.

    The order is a guess (leaves, then by number of neighbours). A better order may cost less, but only by a small
    factor if everything is connected to everything else. Beyond ``most`` bytes counting stops, and both costs are
    infinite.
    """
    from . import _symbolic as kernels

    order = np.lexsort((np.diff(A.indptr), ~leaves))
    order = order[kernels.postorder(elimination_tree(A, order)[0])]
    parent, B = elimination_tree(A, order)
    counts, whole = kernels.column_counts(B.indptr, B.indices, parent, int(most / 8.0))
    count = counts.astype(np.float64)
    return Cost(8.0 * float(count.sum()), 0.5 * float((count**2).sum())) if whole else Cost(np.inf, np.inf)


def values_on(symbolic: SymbolicCholesky, A: ArrayLike) -> np.ndarray:
    """The values of A, checked to have the analysed pattern."""
    checked = symmetric_csc(A)
    if not symbolic.same_pattern(checked):
        raise problem(
            "SparseCholesky",
            f"the matrix has {checked.nnz} entries in another pattern than the {symbolic.indices.size} analysed",
            "the pattern of the first matrix, zeros stored where needed",
            "Make a new SparseCholesky for a new pattern.",
        )
    return np.asarray(checked.data)
