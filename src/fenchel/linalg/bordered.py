"""Sparse Cholesky factorisation of a matrix that is leaves and a border: groups beside effects that many rows share.

    A = [D B'; B C],    D of small blocks,    C - B D^-1 B' = L L' dense

A grouping with one effect a level (or an intercept and slopes) makes one block a level, and no two of them touch: the
students of a table of ratings, an effect for every row. They are eliminated by one compiled pass straight into the
dense matrix of the rest, which LAPACK factorises and inverts. Answers as ``sparse.py`` does; ``leaves.py``
finds them and says what they cost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from .arrays import ArrayLike
from .dense import (
    NotPositiveDefinite,
    cholesky,
    inverse_from,
    solve_lower,
    triangular_inverse,
)
from .rows import PARALLEL, on_every_core
from .sparse import EPS, HARMLESS, checked_columns
from .tally import note

T = TypeVar("T")

_MANY, _FEW, _STRETCHES = 1 << 16, 64, 8  # leaves and rows of a border from which, and into how many, leaves are cut
_LARGE = 2048  # rows of a border whose factor and inverse share one matrix
_inverting = RLock()  # a factor that its inverse is just taking the place of is not solved with


def _turn(large: bool) -> AbstractContextManager[Any]:
    return _inverting if large else nullcontext()


class BorderedAnalysis:
    """Which columns are leaves, and where every entry goes. Made once, used for every matrix with that pattern.

    Attributes
    ----------
    n, nnz : size and number of stored entries of the factor
    n_border : rows of the dense part
    work : multiplications of a factorisation, about
    """

    def __init__(self, A: Any, leaf: np.ndarray) -> None:
        """``leaf`` (n,) is the number of each column's leaf, -1 in the border."""
        from . import _leaves as kernels

        self.n, self.indptr, self.indices = A.shape[0], A.indptr.copy(), A.indices.copy()
        leaf = leaf.astype(np.int64)
        inside = np.flatnonzero(leaf >= 0)
        inside = inside[np.argsort(leaf[inside], kind="stable")]
        border = np.flatnonzero(leaf < 0)
        self.order, self.n_leaves = np.concatenate([inside, border]), inside.size
        self.n_border = r = border.size
        place = np.empty(self.n, dtype=np.int64)
        place[self.order] = np.arange(self.n)  # of each column among the leaves' columns, then in the border
        width = np.bincount(leaf[inside]).astype(np.int64)
        self.start = np.concatenate([[0], np.cumsum(width)])
        heads = inside[self.start[:-1]]
        pattern = self.indptr, self.indices, leaf, place
        self.ptr, self.rows = kernels.below(*pattern, heads, self.n_leaves)
        below = np.diff(self.ptr)
        total = int((width * width).sum())
        self.square = np.concatenate([[0], np.cumsum(width * width)])
        self.panel = total + np.concatenate([[0], np.cumsum(width * below)])
        self.size = int(self.panel[-1])  # of the leaves' part; the border's r x r follows it
        self.nnz = self.size + r * r
        self.work = 0.5 * float((width * below.astype(np.float64) ** 2).sum()) + r**3 / 6.0
        self.everywhere = kernels.places(*pattern, self.start, self.square, self.panel, self.n_leaves, self.size, r)
        columns = np.repeat(np.arange(self.n), np.diff(self.indptr))
        on = self.indices == columns
        self.diagonal = np.empty(self.n, dtype=np.int64)  # where it stands
        self.diagonal[columns[on]] = self.everywhere[on]
        self.pivot = self.diagonal[self.order]

    def __getstate__(self) -> dict[str, Any]:
        kept = ("n", "n_leaves", "indptr", "indices", "order", "start")  # the rest follows from them
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.verify()

    def verify(self) -> None:
        """Make it anew from its pattern and leaves; ValueError where these are none: compiled loops rely on it."""
        A = sp.csc_array((np.ones(self.indices.size), self.indices, self.indptr), shape=(self.n, self.n))
        A.check_format(full_check=True)
        if self.order.shape != (self.n,) or not np.array_equal(np.sort(self.order), np.arange(self.n)):
            raise ValueError("the order of an analysis is no permutation")
        width, leaf = np.diff(self.start), np.full(self.n, -1)
        if (width < 1).any() or self.start[0] != 0 or not 0 <= self.start[-1] == self.n_leaves <= self.n:
            raise ValueError("the leaves of an analysis are none")
        leaf[self.order[: self.n_leaves]] = np.repeat(np.arange(width.size), width)
        owner, row = np.repeat(leaf, np.diff(self.indptr)), leaf[self.indices]
        apart = np.array_equal(owner[(owner >= 0) & (row >= 0)], row[(owner >= 0) & (row >= 0)])
        again = self.made_anew(A, leaf)
        if not apart or again.everywhere.min() < 0 or again.everywhere.max() >= again.nnz:
            raise ValueError("the leaves of an analysis are none")
        if not np.array_equal(self.order, again.order):
            raise ValueError("the order of an analysis is not that of its leaves")
        self.__dict__.update(vars(again))

    def made_anew(self, A: Any, leaf: np.ndarray) -> BorderedAnalysis:
        """The analysis of A with these leaves, as this one was made."""
        return BorderedAnalysis(A, leaf)

    def same_pattern(self, A: Any) -> bool:
        return np.array_equal(A.indptr, self.indptr) and np.array_equal(A.indices, self.indices)

    def laid_out(self, data: np.ndarray) -> np.ndarray:
        """Values on the pattern as squares, panels and the border's matrix (nnz,)."""
        out = np.zeros(self.nnz)
        out[self.everywhere] = data
        return out

    def border(self, x: np.ndarray) -> np.ndarray:
        """The border's matrix among such values."""
        return x[self.size :].reshape(self.n_border, self.n_border)

    def over_leaves(self, work: Callable[[int, int], T]) -> list[T]:
        """work(first, last) for stretches that cover the leaves, on every core; which ones is the pattern's matter.

        Many leaves with a small border are cut: each stretch has a border of its own to add to, and the sums of these
        are the same however many cores there are.
        """
        m = self.start.size - 1
        pieces = _STRETCHES if m >= _MANY and self.n_border <= _FEW else 1
        edges = [m * p // pieces for p in range(pieces + 1)]
        if pieces == 1:
            return [work(0, m)]
        done = on_every_core(pieces, PARALLEL, lambda i, j: [work(*edges[p : p + 2]) for p in range(i, j)])
        return [part for stretch in done for part in stretch]

    def factor(self, data: np.ndarray) -> BorderedCholesky:
        """The factor from values alone, in the order of the csc array analysed; taken as symmetric and finite."""
        return BorderedCholesky(self, self.laid_out(data))

    def factor_of(self, x: np.ndarray) -> BorderedCholesky:
        """The factor of a matrix by its squares, panels and border, whose memory it takes."""
        return BorderedCholesky(self, x)


class BorderedCholesky:
    """A = L L' by leaves and a dense border; a ``StoredFactorisation``.

    x (nnz,) holds A as squares, panels and the border, each symmetric part by its lower triangle at least; it becomes
    the factor. Above the diagonal of the border's inverse stands its L, columns divided by the pivots; a large border
    has one matrix for both, and the inverse takes the factor's place.
    """

    def __init__(self, symbolic: BorderedAnalysis, x: np.ndarray) -> None:
        from . import _bordered as kernels

        self.symbolic, self.n = symbolic, symbolic.n
        self._diagonal = x[symbolic.pivot]  # the leaves' first
        C = symbolic.border(x)

        def eliminate(first: int, last: int) -> tuple[int, np.ndarray]:
            own = C if first == 0 else np.zeros_like(C)
            return kernels.eliminate(first, last, *self._leaves, x, own), own

        for bad, own in symbolic.over_leaves(eliminate):
            if own is not C:
                C += own
            if bad < 0:
                continue
            raise NotPositiveDefinite(f"the pivot of row {symbolic.order[bad]} is not positive")
        if C.size == 0:
            note(factorisations=1)
        elif not np.shares_memory(L := cholesky(C), x):
            C[:] = L
        self._x, self._z, self._pivots = x, None, x[symbolic.pivot]  # the diagonal of L
        self._pivots[: symbolic.n_leaves] = 1.0 / self._pivots[: symbolic.n_leaves]

    _z: np.ndarray | None
    _L: Any  # this and the next of files of older formats, which ``verify`` translates
    _selected: Any

    def verify(self) -> None:
        """Raise ValueError where its arrays are not of the sizes that the analysis asks for."""
        S = self.symbolic
        if type(S) is not BorderedAnalysis:
            raise ValueError("the analysis of a factor is none")
        packed = self._z is not None and S.n_border > _LARGE
        sizes = [(self._x, (S.size if packed else S.nnz,)), (self._diagonal, (S.n,)), (self._pivots, (S.n,))]
        sizes += [] if self._z is None else [(self._z, (S.nnz,))]
        known = {"_regressions": (S.size - int(S.panel[0]),)}
        sizes += [(self.__dict__[name], shape) for name, shape in known.items() if name in self.__dict__]
        if not all(type(x) is np.ndarray and x.dtype == np.float64 and x.shape == shape for x, shape in sizes):
            raise ValueError("the arrays of a factor are not of the sizes of its analysis")
        if self._z is not None and not packed:  # files of older formats have nothing above the diagonal there
            from . import _bordered as kernels

            self._z = self._z.copy()
            kernels.pack(S.border(self._x), S.border(self._z))

    @property
    def _leaves(self) -> tuple[np.ndarray, ...]:
        S = self.symbolic
        return S.start, S.ptr, S.rows, S.square, S.panel

    @cached_property
    def log_det(self) -> float:
        """log |A|."""
        return 2.0 * float(np.log(self._pivots).sum())

    @cached_property
    def smallest_pivot(self) -> float:
        """min_i L_ii^2 / A_ii, in (0, 1]: 1 over it is the least that rounding is amplified by."""
        return float((self._pivots**2 / self._diagonal).min())

    @cached_property
    def log_det_rounding(self) -> float:
        """What rounding did to log|A|, as a root mean square: eps |diag(A^-1) o diag(A)|."""
        if self._z is None and self.smallest_pivot > HARMLESS:
            return EPS * self.n**0.5 / self.smallest_pivot
        each = self.stored_inverse()[self.symbolic.pivot] * self._diagonal
        return EPS * float(np.sqrt(np.sum(each * each)))

    def _apply(self, b: ArrayLike, both: bool) -> np.ndarray:
        with _turn(self.symbolic.n_border > _LARGE and self._z is None):
            return self._applied(checked_columns(b, self.n), both).reshape(np.shape(b))

    def _applied(self, columns: np.ndarray, both: bool) -> np.ndarray:
        from . import _bordered as kernels

        S, x, z = self.symbolic, self._x, self._z
        order = S.order if both else np.arange(self.n)
        y, border = np.empty((S.n_leaves, columns.shape[1])), columns[order[S.n_leaves :]]

        def forward(first: int, last: int) -> np.ndarray:
            own = border if first == 0 else np.zeros_like(border)
            kernels.forward(first, last, *self._leaves, x, order, columns, y, own, both)
            return own

        border = sum(S.over_leaves(forward)[1:], border)
        if border.size:
            border = self._over_border(x, z, border, both)
        out = np.empty_like(columns)
        S.over_leaves(lambda first, last: kernels.backward(first, last, *self._leaves, x, S.order, y, border, out))
        out[S.order[S.n_leaves :]] = border
        return out

    def _over_border(self, x: np.ndarray, z: np.ndarray | None, b: np.ndarray, both: bool) -> np.ndarray:
        """L^-T b of the border, after L^-1 if ``both``."""
        S = self.symbolic
        if x.size == S.nnz:
            L = S.border(x)
            seen = solve_lower(L, b) if both else b
            return np.ascontiguousarray(solve_lower(L, seen, transposed=True))
        assert z is not None
        from scipy.linalg.blas import dtrsm

        U, pivot = S.border(z).T, self._pivots[S.n_leaves :, None]  # Fortran sees a unit lower triangle
        seen = dtrsm(1.0, U, b, lower=1, diag=1) / pivot if both else b
        return np.ascontiguousarray(dtrsm(1.0, U, seen / pivot, lower=1, trans_a=1, diag=1))

    def solve(self, b: ArrayLike) -> np.ndarray:
        """A^-1 b for b (n,) or (n, k)."""
        return self._apply(b, True)

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """L^-T noise: draws with covariance A^-1 from standard normal noise (n,) or (n, k)."""
        return self._apply(noise, False)

    # -- the selected inverse --------------------------------------------------------------------------
    @cached_property
    def _regressions(self) -> np.ndarray:
        """Y = L21 L11^-1 of the leaves on the border."""
        from . import _bordered as kernels

        S = self.symbolic
        return kernels.regressions(S.start, S.ptr, S.square, S.panel, self._x)

    def stored_inverse(self) -> np.ndarray:
        """The inverse, laid out as x was; computed when first asked for."""
        from . import _bordered as kernels

        S = self.symbolic
        if self._z is not None:
            return self._z
        large = S.n_border > _LARGE
        with _turn(large):
            if self._z is not None:  # by another thread, meanwhile
                return self._z
            note(inverses=1)
            x = self._x
            z = x if large else x.copy()
            x = x[: S.size].copy() if large else x
            Z = S.border(z)
            if Z.size:
                kernels.pack(Z, Z)
                inverse = inverse_from(triangular_inverse(Z))
                if not np.shares_memory(inverse, z):
                    np.copyto(Z, inverse, where=np.tri(S.n_border, dtype=bool))
            S.over_leaves(lambda first, last: kernels.selected(first, last, *self._leaves, x, Z, z))
            self._x, self._z = x, z
        return z

    def inverse_data(self) -> np.ndarray:
        """A^-1 on the pattern, in the order of the csc array analysed."""
        return self.stored_inverse()[self.symbolic.everywhere]

    def inverse_diagonal(self) -> np.ndarray:
        """diag(A^-1) (n,)."""
        return self.stored_inverse()[self.symbolic.diagonal]

    def row_variances(self, W: Any, T: Any) -> np.ndarray:
        """diag(W A^-1 W'), T the map from the rows' weights to the entries of W' diag(.) W on the pattern."""
        return np.asarray(T.T @ self.inverse_data())

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """A^-1 E A^-1 on the pattern, E by its values there."""
        return self.stored_sandwich(self.symbolic.laid_out(data))[self.symbolic.everywhere]

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """The same laid out as x was, in the memory of E; over the border by solves from either side."""
        from . import _bordered as kernels
        from .two_sided import two_sided

        note(products=1)
        S, z, Y = self.symbolic, self.stored_inverse(), self._regressions
        Z, C = S.border(z), S.border(e)
        kernels.reduce(*self._leaves, Y, e, C)
        if C.size:  # what Fortran sees is the transpose: the factor below the diagonal, and C once it is mirrored
            kernels.mirror(C)
            two_sided(Z.T, self._pivots[S.n_leaves :] ** 2, C.T)
            kernels.mirror(C.T)
        kernels.sandwich(*self._leaves, self._x, Y, Z, C, e)
        return e
