"""The contract of a sparse backend: a pattern is analysed once, then any matrix with that pattern is factorised.

    analyse        A -> order and structure of its factor           ``analyse(A, constraint)``
    factor         values on the pattern -> factor, log|A|          ``Analysis.factor``
    solve          A^-1 b, draws of N(0, A^-1)                      ``Factorisation.solve``, ``sample``
    variances      diag(W A^-1 W') for the rows of a design         ``Factorisation.row_variances``
    inverse        A^-1 on the pattern                              ``Factorisation.inverse_data``
    sandwich       A^-1 E A^-1 on the pattern, which is minus the   ``Factorisation.sandwich``
                   derivative of A^-1 in the direction E

A backend is one module with one ``Analysis`` and one ``Factorisation``; ``analyse`` below chooses a backend. A backend
that stores A, A^-1 and A^-1 E A^-1 in vectors of one layout subclasses ``StoredAnalysis`` and ``StoredFactorisation``,
which implement most of the contract. An approximate backend (such as conjugate gradients with random probes) reports
its ``errors``; it may omit ``inverse_data`` and ``sandwich``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from .arrays import ArrayLike
from .machine import note
from .matrix_designs import checked_indices

if TYPE_CHECKING:
    from .constrained import Constraint
    from .row_pairs import DesignRows

EPS = 2.0**-53  # relative error of one rounding to double precision
SMALL_PIVOT = 1e-3  # of the diagonal of A; with larger pivots rounding errors are negligible and not computed


class Errors(NamedTuple):
    """Errors of a backend's results beyond rounding; all zero for an exact factorisation.

    Attributes
    ----------
    log_det : standard error of log|A|
    solve : relative residual |A x - b| / |b| at which a solve ends
    variance : relative standard error of ``row_variances`` and ``inverse_diagonal``
    """

    log_det: float = 0.0
    solve: float = 0.0
    variance: float = 0.0


class Analysis(ABC):
    """The part of a factorisation that depends only on the pattern of a csc array.

    Attributes
    ----------
    n, indptr, indices : size and csc pattern
    nnz : int
        Number of entries of the factor.
    work : float
        Approximate number of multiplications of a factorisation.
    stores_pairs : bool
        Whether products of entries of design rows are added directly in the factor's layout (``row_pairs.RowPairs``).
    compiled : bool
        Whether a factorisation uses loops compiled by numba.
    """

    n: int
    indptr: np.ndarray
    indices: np.ndarray
    nnz: int
    work: float
    stores_pairs = False
    compiled = True

    @abstractmethod
    def factor(self, data: np.ndarray) -> Factorisation:
        """The factor of a symmetric matrix from its values on the pattern. Raises NotPositiveDefinite."""

    def same_pattern(self, A: Any) -> bool:
        """Whether A, a canonical csc array, has this pattern."""
        return np.array_equal(A.indptr, self.indptr) and np.array_equal(A.indices, self.indices)

    @property
    def columns(self) -> np.ndarray:
        """The column of each entry in the pattern."""
        return np.repeat(np.arange(self.n), np.diff(self.indptr))

    @property
    def diagonal_entries(self) -> np.ndarray:
        """For each column, the index of its diagonal entry in the pattern."""
        return np.flatnonzero(self.indices == self.columns)


class Factorisation(ABC):
    """A = L L' for a sparse symmetric positive definite matrix, or its covariance under constraints.

    Attributes
    ----------
    n : int
    symbolic : Analysis
    log_det : float
    log_det_rounding : float
        Root mean square rounding error of log|A|.
    smallest_pivot : float
        min_i L_ii^2 / A_ii, in (0, 1]; rounding errors are amplified at least by its reciprocal.
    errors : Errors
        Errors of an approximate backend.
    definite : bool
        Whether A is positive definite on the null space of constraints; without constraints always true.
    """

    n: int
    symbolic: Any
    log_det: float
    smallest_pivot: float
    log_det_rounding: float
    errors = Errors()
    definite: bool = True

    @abstractmethod
    def solve(self, b: ArrayLike) -> np.ndarray:
        """A^-1 b for b (n,) or (n, k)."""

    @abstractmethod
    def sample(self, noise: ArrayLike) -> np.ndarray:
        """Draws with covariance A^-1 from standard normal noise (n,) or (n, k)."""

    def inverse_data(self) -> np.ndarray:
        """A^-1 on the pattern, in the order of the pattern's entries."""
        raise NotImplementedError(f"{type(self).__name__} has no inverse on the pattern")

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 on the pattern, for a symmetric E given by its values there."""
        raise NotImplementedError(f"{type(self).__name__} has no derivative of the inverse")

    def inverse_diagonal(self) -> np.ndarray:
        """The diagonal of A^-1 (n,)."""
        return self.inverse_data()[self.symbolic.diagonal_entries]

    def inverse_at(self, entries: np.ndarray) -> np.ndarray:
        """A^-1 at some entries of the pattern, given by their indices."""
        return self.inverse_data()[entries]

    def row_variances(self, rows: DesignRows) -> np.ndarray:
        """diag(W A^-1 W') for the rows of a design W whose pairs of columns are in the pattern."""
        return np.asarray(rows.products.T @ self.inverse_data())

    def row_sandwich(self, rows: DesignRows, v: np.ndarray) -> np.ndarray:
        """diag(W A^-1 E A^-1 W') for E = W' diag(v) W."""
        return np.asarray(rows.products.T @ self.sandwich(rows.products @ v))


class StoredAnalysis(Analysis):
    """An analysis whose factors store A, its inverse and A^-1 E A^-1 in vectors of one layout.

    Attributes
    ----------
    nnz : length of such a vector
    everywhere : position of each csc entry in such a vector; mirrored entries may share a position
    diagonal : position of the diagonal entry of each column
    in_place : whether the inverse replaces the factor in memory
    """

    everywhere: np.ndarray
    diagonal: np.ndarray
    stores_pairs = True
    in_place = False

    @abstractmethod
    def factor_of(self, x: np.ndarray) -> StoredFactorisation:
        """The factor of the values x (nnz,), in the memory of x."""

    def factor(self, data: np.ndarray) -> StoredFactorisation:
        return self.factor_of(self.laid_out(data))

    def laid_out(self, data: np.ndarray) -> np.ndarray:
        """Values on the pattern, in the layout (nnz,)."""
        out = np.zeros(self.nnz)
        out[self.everywhere] = data
        return out


class StoredFactorisation(Factorisation):
    """A factorisation whose results are in the layout of its analysis.

    If two positions mirror each other, both hold A^-1, and of E the later one is read.

    Subclasses implement ``_factorise``, ``_invert``, ``_solve`` and ``stored_sandwich``.
    """

    _selected: np.ndarray | None = None  # A^-1 in the layout, after the first request

    def __init__(self, symbolic: Any, x: np.ndarray) -> None:
        """``x`` (nnz,) has A in the layout and becomes the factor."""
        self.symbolic, self.n, self._x = symbolic, symbolic.n, x
        self._diagonal = x[symbolic.diagonal]
        self._pivots = self._factorise(x)

    @abstractmethod
    def _factorise(self, x: np.ndarray) -> np.ndarray:
        """Factorise x in place; returns the diagonal of L by columns of A. Raises NotPositiveDefinite."""

    @abstractmethod
    def _solve(self, b: np.ndarray, both: bool) -> np.ndarray:
        """A^-1 b for b (n, k) if ``both``, else L^-T b."""

    @abstractmethod
    def _invert(self, z: np.ndarray) -> None:
        """Write A^-1 into z (nnz,), which is the memory of the factor if the analysis is ``in_place``."""

    @abstractmethod
    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 (nnz,) for E given by its values e (nnz,), in the memory of e."""

    @cached_property
    def log_det(self) -> float:  # type: ignore[override]
        """The log determinant log |A|."""
        return 2.0 * float(np.log(self._pivots).sum())

    @cached_property
    def smallest_pivot(self) -> float:  # type: ignore[override]
        return float((self._pivots**2 / self._diagonal).min())

    @cached_property
    def log_det_rounding(self) -> float:  # type: ignore[override]
        """eps |diag(A^-1) o diag(A)|.

        Without small pivots it is below any tolerance, and the inverse is not computed for it.
        """
        if self._selected is None and self.smallest_pivot > SMALL_PIVOT:
            return EPS * self.n**0.5 / self.smallest_pivot
        each = self.inverse_diagonal() * self._diagonal
        return EPS * float(np.sqrt(np.sum(each * each)))

    def solve(self, b: ArrayLike) -> np.ndarray:
        return self._solve(checked_columns(b, self.n), True).reshape(np.shape(b))

    def sample(self, noise: ArrayLike) -> np.ndarray:
        return self._solve(checked_columns(noise, self.n), False).reshape(np.shape(noise))

    def stored_inverse(self) -> np.ndarray:
        """A^-1 (nnz,), computed at the first request; read only."""
        if self._selected is None:
            note(inverses=1)
            z = self._x if self.symbolic.in_place else np.empty(self.symbolic.nnz)
            self._invert(z)
            self._selected = z
        return self._selected

    def inverse_data(self) -> np.ndarray:
        return self.inverse_at(np.s_[:])

    def inverse_diagonal(self) -> np.ndarray:
        return self.stored_inverse()[self.symbolic.diagonal]

    def inverse_at(self, entries: Any) -> np.ndarray:
        return self.stored_inverse()[self.symbolic.everywhere[entries]]

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        S = self.symbolic
        return self.stored_sandwich(S.laid_out(data))[S.everywhere]

    def row_variances(self, rows: DesignRows) -> np.ndarray:
        pairs = rows.pairs(self.symbolic)
        return super().row_variances(rows) if pairs is None else pairs.forms(self.stored_inverse())

    def row_sandwich(self, rows: DesignRows, v: np.ndarray) -> np.ndarray:
        pairs = rows.pairs(self.symbolic)
        if pairs is None:
            return super().row_sandwich(rows, v)
        return pairs.forms(self.stored_sandwich(pairs.add(v, np.zeros(self.symbolic.nnz))))


def checked_columns(b: ArrayLike, n: int) -> np.ndarray:
    """Right-hand sides b (n,) or (n, k) as (n, k)."""
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
    out = sp.csc_array(checked_indices("SparseCholesky", "A", A)).astype(np.float64)
    if out.shape[0] != out.shape[1] or out.shape[0] == 0:
        raise problem("SparseCholesky", f"A has shape {out.shape}", "a square matrix")
    out.sum_duplicates()
    if not np.isfinite(out.data).all():
        raise problem("SparseCholesky", "A holds entries that are not finite", "finite numbers")
    columns = np.repeat(np.arange(out.shape[0]), np.diff(out.indptr))
    has_diagonal = np.zeros(out.shape[0], dtype=bool)
    has_diagonal[columns[out.indices == columns]] = True
    empty = np.flatnonzero(~has_diagonal)
    if empty.size:  # such as nodes without neighbours, whose pivots are zero unless constrained
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


def analyse(A: Any, constraint: Constraint | None = None) -> Analysis:
    """The analysis of A, a canonical symmetric csc array with both triangles, by the backend that is chosen here.

    With a ``constraint`` its factors are covariances of N(0, A^-1) given C x = 0.
    """
    from .chain import find_chain
    from .constrained import BasisAnalysis, ConditionedAnalysis
    from .leaves import LeafAnalysis, find_leaves
    from .supernodal import SymbolicCholesky

    if constraint is not None and len(constraint.C):
        return ConditionedAnalysis(A, constraint)
    if constraint is not None and constraint.basis is not None:
        return BasisAnalysis(A, constraint.basis)
    chain = find_chain(A)
    if chain is not None:
        return chain
    leaves = find_leaves(A)
    if leaves.fill_border(A):
        return LeafAnalysis(A, leaves.number)
    fronts = LeafAnalysis(A, leaves.number, by_fronts=True) if leaves.precede_fronts(A) else SymbolicCholesky(A)
    return LeafAnalysis(A, leaves.number) if leaves.cheaper_than(fronts.work) else fronts
