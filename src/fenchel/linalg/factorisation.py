"""The contract of a sparse backend: a pattern is analysed once, and every matrix with that pattern is factorised.

    analyse        A -> order and structure of its factor           ``analyse(A, constraint)``
    factor         values on the pattern -> log|A|                  ``Analysis.factor``
    solve          A^-1 b, draws of N(0, A^-1)                      ``Factorisation.solve``, ``sample``
    variances      diag(W A^-1 W') of the rows of a design          ``Factorisation.row_variances``
    inverse        A^-1 on the pattern                              ``Factorisation.inverse_data``
    sandwich       A^-1 E A^-1 on the pattern, which is minus the   ``Factorisation.sandwich``
                   derivative of A^-1 as A moves by E

A backend is one module with one ``Analysis`` and one ``Factorisation``; ``analyse`` below chooses among them. A backend
that keeps A, A^-1 and A^-1 E A^-1 in flat vectors of one layout subclasses ``StoredAnalysis`` and
``StoredFactorisation``, which answer most of the contract. A backend that approximates (by conjugate gradients and
random probes, say) states its ``errors``; it may leave out ``inverse_data`` and ``sandwich``.
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

EPS = 2.0**-53  # error of one rounding to double precision, relative
SMALL_PIVOT = 1e-3  # of the diagonal of A; pivots above it amplify rounding by so little that nobody computes how much


class Errors(NamedTuple):
    """How far the answers of a backend may be off, beyond rounding; all zero for an exact factorisation.

    Attributes
    ----------
    log_det : standard error of log|A|
    solve : relative residual |A x - b| / |b| at which a solve stops
    variance : relative standard error of ``row_variances`` and ``inverse_diagonal``
    """

    log_det: float = 0.0
    solve: float = 0.0
    variance: float = 0.0


class Analysis(ABC):
    """What depends on the pattern of a csc array alone.

    Attributes
    ----------
    n, indptr, indices : the pattern
    nnz : int
        Entries of the factor.
    work : float
        Multiplications of a factorisation, about.
    stores_pairs : bool
        Whether products of rows of a design are added straight into the layout of the factor (``pairs.RowPairs``).
    compiled : bool
        Whether a factorisation needs loops compiled by numba.
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
        """The factor of a matrix by its values on the pattern, taken as symmetric. Raises NotPositiveDefinite."""

    def same_pattern(self, A: Any) -> bool:
        """Whether A, a canonical csc array, has this pattern."""
        return np.array_equal(A.indptr, self.indptr) and np.array_equal(A.indices, self.indices)

    @property
    def columns(self) -> np.ndarray:
        """The column of each entry of the pattern."""
        return np.repeat(np.arange(self.n), np.diff(self.indptr))

    @property
    def diagonal_entries(self) -> np.ndarray:
        """Which entry of the pattern is the diagonal of each column."""
        return np.flatnonzero(self.indices == self.columns)


class Factorisation(ABC):
    """A = L L' of a sparse symmetric positive definite matrix, or the covariance it becomes under constraints.

    Attributes
    ----------
    n : int
    symbolic : Analysis
    log_det : float
    log_det_rounding : float
        What rounding did to log|A|, as a root mean square.
    smallest_pivot : float
        min_i L_ii^2 / A_ii, in (0, 1]: 1 over it is the least that rounding is amplified by.
    errors : Errors
        Of a backend that approximates.
    definite : bool
        Whether A is positive definite on what constraints leave free; without constraints it could not be factorised.
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
        """A^-1 on the pattern, in the order of its entries."""
        raise NotImplementedError(f"{type(self).__name__} has no inverse on the pattern")

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 on the pattern, for a symmetric E by its values there."""
        raise NotImplementedError(f"{type(self).__name__} has no derivative of the inverse")

    def inverse_diagonal(self) -> np.ndarray:
        """diag(A^-1) (n,)."""
        return self.inverse_data()[self.symbolic.diagonal_entries]

    def inverse_at(self, entries: np.ndarray) -> np.ndarray:
        """A^-1 at some entries of the pattern, by their numbers."""
        return self.inverse_data()[entries]

    def row_variances(self, rows: DesignRows) -> np.ndarray:
        """diag(W A^-1 W') for the rows of a design W whose pairs of columns lie in the pattern."""
        return np.asarray(rows.products.T @ self.inverse_data())

    def row_sandwich(self, rows: DesignRows, v: np.ndarray) -> np.ndarray:
        """diag(W A^-1 E A^-1 W') for E = W' diag(v) W."""
        return np.asarray(rows.products.T @ self.sandwich(rows.products @ v))


class StoredAnalysis(Analysis):
    """An analysis whose factors keep A, its inverse and A^-1 E A^-1 in vectors of one layout.

    Attributes
    ----------
    nnz : length of such a vector
    everywhere : where each entry of the csc array stands in it; mirrored entries may share a place
    diagonal : where the diagonal of each column stands in it
    in_place : whether the inverse takes the memory of the factor
    """

    everywhere: np.ndarray
    diagonal: np.ndarray
    stores_pairs = True
    in_place = False

    @abstractmethod
    def factor_of(self, x: np.ndarray) -> StoredFactorisation:
        """The factor of the values x (nnz,), whose memory it takes."""

    def factor(self, data: np.ndarray) -> StoredFactorisation:
        return self.factor_of(self.laid_out(data))

    def laid_out(self, data: np.ndarray) -> np.ndarray:
        """Values on the pattern in the layout (nnz,)."""
        out = np.zeros(self.nnz)
        out[self.everywhere] = data
        return out


class StoredFactorisation(Factorisation):
    """A factorisation that answers in the layout of its analysis.

    Where two places mirror each other both hold A^-1, and the later one is read of E.

    Subclasses implement ``_factorise``, ``_invert``, ``_solve`` and ``stored_sandwich``.
    """

    _selected: np.ndarray | None = None  # A^-1 in the layout, once it was asked for

    def __init__(self, symbolic: Any, x: np.ndarray) -> None:
        """``x`` (nnz,) holds A in the layout; it becomes the factor."""
        self.symbolic, self.n, self._x = symbolic, symbolic.n, x
        self._diagonal = x[symbolic.diagonal]
        self._pivots = self._factorise(x)

    @abstractmethod
    def _factorise(self, x: np.ndarray) -> np.ndarray:
        """Factorise x in place; the diagonal of L by columns of A. Raises NotPositiveDefinite."""

    @abstractmethod
    def _solve(self, b: np.ndarray, both: bool) -> np.ndarray:
        """A^-1 b for b (n, k) if ``both``, else L^-T b."""

    @abstractmethod
    def _invert(self, z: np.ndarray) -> None:
        """Write A^-1 into z (nnz,), which is the memory of the factor where the analysis says ``in_place``."""

    @abstractmethod
    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 (nnz,) for E by its values e (nnz,), whose memory it takes."""

    @cached_property
    def log_det(self) -> float:  # type: ignore[override]
        """log |A|."""
        return 2.0 * float(np.log(self._pivots).sum())

    @cached_property
    def smallest_pivot(self) -> float:  # type: ignore[override]
        return float((self._pivots**2 / self._diagonal).min())

    @cached_property
    def log_det_rounding(self) -> float:  # type: ignore[override]
        """eps |diag(A^-1) o diag(A)|.

        Where no pivot is small it is below any tolerance, and the inverse is not computed for it.
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
        """A^-1 (nnz,), computed when it is first asked for; not to be written to."""
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
    if empty.size:  # a node without neighbours, say: its pivot is zero unless a constraint holds it
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
    """The analysis of A, a canonical symmetric csc array with both triangles: where the backend is chosen.

    Under a ``constraint`` its factors are covariances of N(0, A^-1) given C x = 0.
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
