"""What a sparse backend is: a pattern analysed once, and factorisations of matrices that have it.

    analyse      A -> order and structure of its factor            Analysis
    factor       values on that pattern -> log|A|                  Analysis.factor
    solve        A^-1 b, draws of N(0, A^-1)                       Factorisation.solve, sample
    inverse      A^-1 on the pattern, diag(W A^-1 W')              Factorisation.inverse_data, row_variances
    sandwich     A^-1 E A^-1 on the pattern: minus how A^-1        Factorisation.sandwich
                 changes with the values

``sparse.py`` is the backend, ``bordered.py`` one for groups beside a few effects that many rows share, ``chain.py`` one
for small systems, which compiles nothing, and ``constrained.py`` answers the same under linear constraints. Another
one (CHOLMOD, a device) stands in by giving an ``Analysis`` in ``analyse``.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from .arrays import ArrayLike


class Factorisation(Protocol):
    """A = L L' of a sparse symmetric positive definite matrix, or the covariance it becomes under constraints."""

    @property
    def n(self) -> int: ...

    @property
    def log_det(self) -> float: ...

    @property
    def log_det_rounding(self) -> float:
        """What rounding did to log|A|, as a root mean square."""

    @property
    def smallest_pivot(self) -> float:
        """min_i L_ii^2 / A_ii, in (0, 1]: 1 over it is the least that rounding is amplified by."""

    @property
    def symbolic(self) -> Analysis: ...

    def solve(self, b: ArrayLike) -> np.ndarray:
        """A^-1 b for b (n,) or (n, k)."""

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """Draws with covariance A^-1 from standard normal noise (n,) or (n, k)."""

    def inverse_data(self) -> np.ndarray:
        """A^-1 on the pattern, in the order of its entries."""

    def inverse_diagonal(self) -> np.ndarray:
        """diag(A^-1) (n,)."""

    def row_variances(self, W: Any, T: Any) -> np.ndarray:
        """diag(W A^-1 W'); T maps weights of the rows to the entries of W' diag(.) W on the pattern."""

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 on the pattern, for a symmetric E by its values there."""


class Analysis(Protocol):
    """What depends on the pattern of a csc array alone."""

    n: int
    indptr: np.ndarray
    indices: np.ndarray

    def same_pattern(self, A: ArrayLike) -> bool:
        """Whether A, a canonical csc array, has this pattern."""

    def factor(self, data: np.ndarray) -> Factorisation:
        """The factor of a matrix by its values on the pattern, taken as symmetric. Raises NotPositiveDefinite."""


class Stored(Analysis, Protocol):
    """An analysis whose factors keep A, its inverse and A^-1 E A^-1 in vectors of one layout.

    Attributes
    ----------
    nnz : length of such a vector
    everywhere : where each entry of the csc array stands in it; mirrored entries may share a place
    """

    nnz: int
    everywhere: np.ndarray

    def factor_of(self, x: np.ndarray) -> StoredFactorisation:
        """The factor of the values x (nnz,), whose memory it takes."""


@runtime_checkable
class StoredFactorisation(Factorisation, Protocol):
    """A factorisation that answers in the layout of its analysis. Where two places mirror each other both hold A^-1,
    and the later one is read of E."""

    def stored_inverse(self) -> np.ndarray:
        """A^-1 (nnz,); not to be written to."""

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 (nnz,) for E by its values e (nnz,), whose memory it takes."""


def analyse(A: ArrayLike) -> Analysis:
    """The analysis of A, a canonical symmetric csc array with both triangles: where the backend is chosen."""
    from .bordered import BorderedAnalysis
    from .chain import find_chain
    from .fringed import FringedAnalysis
    from .leaves import find_leaves
    from .sparse import SymbolicCholesky

    chain = find_chain(A)
    if chain is not None:
        return chain
    leaves = find_leaves(A)
    if leaves.obvious(A):
        return BorderedAnalysis(A, leaves.number)
    fronts = FringedAnalysis(A, leaves.number) if leaves.fringe(A) else SymbolicCholesky(A)
    return BorderedAnalysis(A, leaves.number) if leaves.cheaper_than(fronts.work) else fronts
