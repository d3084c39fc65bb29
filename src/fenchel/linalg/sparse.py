"""Sparse Cholesky factorisation with the selected inverse.

    A = P' L L' P,    log|A|,    A^-1 b,    L^-T P b (samples),    diag(A^-1) and A^-1 on the pattern of A

The fill-reducing order and the symbolic analysis depend on the pattern only and are done once; ``refactor`` reuses them
for new values. Everything is numba and numpy: no compiler, no GPL library, one wheel.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from . import parallel_tree
from .arrays import ArrayLike
from .dense import NotPositiveDefinite
from .tally import note

EPS = 2.0**-53  # of one rounding to double precision
HARMLESS = 1e-3  # pivots above this share of the diagonal amplify no rounding to speak of


def fill_reducing_order(A: Any) -> np.ndarray:
    """A permutation under which the factor of A stays sparse: METIS where ``pymetis`` is there, else minimum degree.

    scipy has no ordering to call, so SuperLU's is read off an incomplete factorisation of a matrix with this pattern,
    where all is dropped that costs time. Rows that touch a good part of all others (an intercept, a covariate) go last:
    minimum degree takes quadratic time over them.
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
    return np.asarray(pymetis.nested_dissection(xadj=off.indptr, adjncy=off.indices)[0])  # before 2025


class SymbolicCholesky:
    """What depends on the pattern alone. Made once, used for every matrix with that pattern.

    Attributes
    ----------
    n, nnz : size and number of stored entries of L (the zeros that pay for wider panels included)
    """

    def __init__(self, A: Any, order: np.ndarray | None = None) -> None:
        from . import _symbolic as kernels

        A = symmetric_csc(A)
        self.n, self.indptr, self.indices = A.shape[0], A.indptr.copy(), A.indices.copy()
        order = fill_reducing_order(A) if order is None else np.asarray(order, dtype=np.int64)
        numbered = sp.csc_array((np.arange(1, A.nnz + 1), A.indices, A.indptr), shape=A.shape)

        def permuted(order: np.ndarray) -> Any:
            out = numbered[order][:, order].tocsc()
            out.sort_indices()
            return out

        B = permuted(order)
        parent = kernels.elimination_tree(B.indptr, B.indices)
        order = order[kernels.postorder(parent)]
        B = permuted(order)
        parent = kernels.elimination_tree(B.indptr, B.indices)
        count = kernels.column_counts(B.indptr, B.indices, parent)
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
        self.parent, self.relative, self.children, self.up_peak, self.down_peak = kernels.relations(
            self.start, self.ptr, self.rows
        )
        place = kernels.positions(self.start, self.ptr, self.rows, self.panel, B.indptr, B.indices)
        lower = place >= 0
        self.target, self.source = place[lower], B.data[lower] - 1  # entry of the panels, entry of A.data
        mirror = numbered.T.tocsc()
        mirror.sort_indices()
        self.everywhere = np.empty(A.nnz, dtype=np.int64)  # entry of the panels for every entry of A.data
        self.everywhere[mirror.data[self.source] - 1] = self.target
        self.everywhere[self.source] = self.target
        columns = np.repeat(np.arange(self.n), np.diff(B.indptr))
        self.diagonal = np.empty(self.n, dtype=np.int64)
        on = lower & (B.indices == columns)
        self.diagonal[columns[on]] = place[on]
        self.nnz = int(self.panel[-1])
        self.work = float(((width + below) ** 3.0 - below**3.0).sum() / 3.0)  # multiplications, about

    def verify(self) -> None:
        """Raise ValueError where this is not the analysis of its own pattern and order: compiled loops rely on it."""
        A = sp.csc_array((np.ones(self.indices.size), self.indices, self.indptr), shape=(self.n, self.n))
        A.check_format(full_check=True)
        if self.order.shape != (self.n,) or not np.array_equal(np.sort(self.order), np.arange(self.n)):
            raise ValueError("the order of an analysis is no permutation")
        for name, value in vars(SymbolicCholesky(A, self.order)).items():
            own = vars(self)[name]
            if np.asarray(own).dtype != np.asarray(value).dtype or not np.array_equal(own, value):
                raise ValueError(f"the {name} of an analysis are not those of its pattern")

    def same_pattern(self, A: Any) -> bool:
        return np.array_equal(A.indptr, self.indptr) and np.array_equal(A.indices, self.indices)

    def factor(self, data: np.ndarray) -> SparseCholesky:
        """The factor from values alone, in the order of the csc array analysed; taken as symmetric and finite."""
        return self.factor_of(self.laid_out(data))

    def laid_out(self, data: np.ndarray) -> np.ndarray:
        """Values on the pattern as panels (nnz,)."""
        x = np.zeros(self.nnz)
        x[self.target] = data[self.source]
        return x

    def factor_of(self, x: np.ndarray) -> SparseCholesky:
        """The factor of a matrix by its panels x, whose memory it takes."""
        out = object.__new__(SparseCholesky)
        out.symbolic = self
        out._factorise(x)
        return out


class SparseCholesky:
    """A = P' L L' P of a sparse symmetric positive definite matrix.

    Parameters
    ----------
    A : scipy sparse (n, n)
        Symmetric, with both triangles stored.
    symbolic : SymbolicCholesky, optional
        The analysis of a matrix with the same pattern, to reuse.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fenchel.linalg import SparseCholesky
    >>> A = sp.diags_array([2.5 * np.ones(4), -np.ones(3), -np.ones(3)], offsets=[0, 1, -1])
    >>> factor = SparseCholesky(A)
    >>> bool(np.allclose(factor.inverse_diagonal(), np.diag(np.linalg.inv(A.toarray()))))
    True
    """

    def __init__(self, A: ArrayLike, symbolic: SymbolicCholesky | None = None) -> None:
        self.symbolic = SymbolicCholesky(A) if symbolic is None else symbolic
        self._factorise(self.symbolic.laid_out(self._checked(A).data))

    def verify(self) -> None:
        """Raise ValueError where its arrays are not of the sizes that the analysis asks for."""
        S = self.symbolic
        if type(S) is not SymbolicCholesky:
            raise ValueError("the analysis of a factor is none")
        sizes = [(self._x, S.nnz), (self._inverse, S.inverse_ptr[-1]), (self._diagonal, S.n)]
        sizes += [] if self._z is None else [(self._z, S.nnz)]
        if not all(type(x) is np.ndarray and x.dtype == np.float64 and x.shape == (n,) for x, n in sizes):
            raise ValueError("the arrays of a factor are not of the sizes of its analysis")

    def refactor(self, A: ArrayLike) -> SparseCholesky:
        """The factor of another matrix with the same pattern, without a second analysis."""
        return self.symbolic.factor(self._checked(A).data)

    def _checked(self, A: Any) -> Any:
        A, S = symmetric_csc(A), self.symbolic
        if not S.same_pattern(A):
            raise problem(
                "SparseCholesky",
                f"the matrix has {A.nnz} entries in another pattern than the {S.indices.size} analysed",
                "the pattern of the first matrix, zeros stored where needed",
                "Make a new SparseCholesky for a new pattern.",
            )
        return A

    def _factorise(self, x: np.ndarray) -> None:
        note(factorisations=1)
        S = self.symbolic
        self._x, self._inverse = x, np.empty(S.inverse_ptr[-1])
        self._z: np.ndarray | None = None
        self._diagonal = self._x[S.diagonal]
        bad = parallel_tree.factorise(S, self._x, self._inverse)
        if bad >= 0:
            raise NotPositiveDefinite(f"the pivot of row {S.order[bad]} is not positive")

    @property
    def n(self) -> int:
        return self.symbolic.n

    @property
    def log_det(self) -> float:
        """log |A|."""
        return 2.0 * float(np.log(self._x[self.symbolic.diagonal]).sum())

    @cached_property
    def smallest_pivot(self) -> float:
        """min_i L_ii^2 / A_ii, in (0, 1]: 1 over it is the least that rounding is amplified by."""
        return float((self._x[self.symbolic.diagonal] ** 2 / self._diagonal).min())

    @cached_property
    def log_det_rounding(self) -> float:
        """What rounding did to log|A|, as a root mean square: eps |diag(A^-1) o diag(A)|.

        Where no pivot is small it is below any tolerance, and the selected inverse is not computed for it.
        """
        if self._z is None and self.smallest_pivot > HARMLESS:
            return EPS * self.n**0.5 / self.smallest_pivot
        each = self._selected[self.symbolic.diagonal] * self._diagonal
        return EPS * float(np.sqrt(np.sum(each * each)))

    def solve(self, b: ArrayLike) -> np.ndarray:
        """A^-1 b for b (n,) or (n, k)."""
        out = parallel_tree.solve(self.symbolic, self._x, self._inverse, checked_columns(b, self.n), forward=True)
        return out.reshape(np.shape(b))

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """P' L^-T noise: draws with covariance A^-1 from standard normal noise (n,) or (n, k)."""
        out = parallel_tree.solve(self.symbolic, self._x, self._inverse, checked_columns(noise, self.n), forward=False)
        return out.reshape(np.shape(noise))

    # -- the selected inverse --------------------------------------------------------------------------
    @property
    def _selected(self) -> np.ndarray:
        """The inverse on the pattern of L, as panels; computed when first asked for."""
        if self._z is None:
            note(inverses=1)
            self._z = parallel_tree.invert(self.symbolic, self._x, self._inverse)
        return self._z

    def row_variances(self, W: Any, T: Any) -> np.ndarray:
        """diag(W A^-1 W'), T the map from the rows' weights to the entries of W' diag(.) W on the pattern."""
        return np.asarray(T.T @ self.inverse_data())

    def inverse_diagonal(self) -> np.ndarray:
        """diag(A^-1) (n,)."""
        return self._selected[self.symbolic.diagonal][self.symbolic.inverse_order]

    def selected_inverse(self) -> Any:
        """A^-1 on the pattern of A, as a symmetric csc array; the entries elsewhere are not zero, only not computed."""
        S = self.symbolic
        return sp.csc_array((self.inverse_data(), S.indices.copy(), S.indptr.copy()), shape=(S.n, S.n))

    def inverse_data(self) -> np.ndarray:
        """The values of ``selected_inverse``, in the order of the csc array first given."""
        return self._selected[self.symbolic.everywhere]

    def stored_inverse(self) -> np.ndarray:
        """A^-1 on the pattern of L, as panels."""
        return self._selected

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 on the pattern of A, for a symmetric E by its values there, in the order of ``inverse_data``.

        It is minus the derivative of ``inverse_data`` as the values of A move by E.
        """
        return self.stored_sandwich(self.symbolic.laid_out(data))[self.symbolic.everywhere]

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """The same as panels, of E by its panels, whose memory is taken."""
        from . import _sandwich as kernels

        note(products=1)
        S, z = self.symbolic, self._selected
        tree = S.start, S.ptr, S.panel, S.parent, S.relative
        out, lower = np.empty(S.nnz), (self._x, self._inverse, S.inverse_ptr)
        with parallel_tree.alone(S):
            kernels.reduce(*tree, *lower, np.empty(max(1, S.up_peak)), e)
            kernels.sandwich(*tree, S.children, *lower, np.empty((2, max(1, S.down_peak))), z, e, out)
        return out

    def lower(self) -> Any:
        """L of the permuted matrix A[order][:, order], as a csc array: for looking at, not for speed."""
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


def checked_columns(b: ArrayLike, n: int) -> np.ndarray:
    """Right sides b (n,) or (n, k) as (n, k)."""
    b = np.asarray(b, dtype=np.float64)
    if b.shape[0] != n or b.ndim > 2:
        raise problem("SparseCholesky", f"b has shape {b.shape}", f"({n},) or ({n}, k)")
    return b.reshape(n, -1)


def symmetric_csc(A: ArrayLike) -> Any:
    """A as a canonical float64 csc array with a stored diagonal, checked to be square, finite and symmetric."""
    if not hasattr(A, "tocsc"):
        raise problem(
            "SparseCholesky", f"A is a {type(A).__name__}", "a scipy sparse matrix", "Use scipy.sparse.csc_array(A)."
        )
    out = sp.csc_array(A).astype(np.float64)
    if out.shape[0] != out.shape[1] or out.shape[0] == 0:
        raise problem("SparseCholesky", f"A has shape {out.shape}", "a square matrix")
    if out is A or np.shares_memory(out.data, getattr(A, "data", np.empty(0))):
        out = out.copy()
    out.sum_duplicates()
    out.sort_indices()
    if not np.isfinite(out.data).all():
        raise problem("SparseCholesky", "A holds entries that are not finite", "finite numbers")
    columns = np.repeat(np.arange(out.shape[0]), np.diff(out.indptr))
    stored = np.zeros(out.shape[0], dtype=bool)
    stored[columns[out.indices == columns]] = True
    if not stored.all():  # a node without neighbours, say: its pivot is zero unless a constraint holds it
        empty = np.flatnonzero(~stored)
        places = np.r_[out.indices, empty], np.r_[columns, empty]
        out = sp.csc_array((np.r_[out.data, np.zeros(empty.size)], places), shape=out.shape)
        out.sort_indices()
    mirror = out.T.tocsc()
    mirror.sort_indices()
    same = np.array_equal(mirror.indptr, out.indptr) and np.array_equal(mirror.indices, out.indices)
    if not same or np.abs(mirror.data - out.data).max() > 1e-10 * np.abs(out.data).max():
        raise problem(
            "SparseCholesky",
            "A is not symmetric",
            "both triangles stored, equal to each other",
            "Use A + A.T - diag(A) if only one triangle is stored.",
        )
    return out
