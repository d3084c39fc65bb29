"""Sparse Cholesky factorisation that first eliminates leaves: small blocks of columns, unconnected to each other.

    A = [D B'; B C],    D of small blocks,    C - B D^-1 B' = L L'

Effects of the levels of a factor (or an intercept and slopes for each) give one leaf for each level. Examples are
students in a table of ratings, an effect for each row, or points conditioned on knots. One compiled pass eliminates the
leaves directly in the storage of the remaining matrix, called the rest. If leaves fill the rest it is dense
(``DenseRest``, factorised by LAPACK). Otherwise it has its own fill-reducing order (``supernodal.py``, by fronts).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from .dense import NotPositiveDefinite, cholesky, inverse_from, solve_lower, triangular_inverse
from .factorisation import StoredAnalysis, StoredFactorisation
from .machine import PARALLEL, note, on_every_core
from .row_pairs import RowPairs, places_in
from .supernodal import SymbolicCholesky

T = TypeVar("T")

_WIDEST = 8  # most columns of a leaf; plain loops handle the squares of leaves, so wider blocks stay in the rest
_FEW = 16  # rows of a rest up to which leaves are taken whatever the cost of other methods
_DENSE = 2.0  # cost of a multiplication among fronts relative to one of LAPACK
_FULL = 0.5  # share of a dense rest that leaves fill, or that rows span, from which it is taken at once
_TOUCHED = 32  # average number of neighbours of a row of the rest, from which its fill is examined
_HUBS = 0.25  # share of rows, those with most neighbours, that the examination of the bandwidth leaves out
_ALL_ROWS = 4000  # rows of a rest up to which all are examined; for more rows a sample
_SAMPLED = 256  # approximate number of rows in that sample
_MANY = 2000  # columns of a matrix from which leaves may be eliminated before fronts
_REACH = 48  # root mean square number of rows of leaves up to which they are eliminated before fronts
_MOST = 20_000  # most rows of a dense rest; larger ones do not fit in memory
_STRETCHES = 8  # number of parts into which many leaves are divided, each with its own copy of the rest
_CUT_LEAVES = 1 << 16  # number of leaves from which they are divided
_CUT_REST = 64  # rows of a rest up to which they are divided
_LARGE = 2048  # rows of a dense rest from which its factor and its inverse share one matrix

_inverting = RLock()  # no solves with a factor while its inverse replaces it


class Leaves(NamedTuple):
    """A choice of leaves: the leaf of each column (n,), -1 in the rest, and the cost of a factorisation."""

    number: np.ndarray
    n_border: int
    work: float  # approximate number of multiplications

    def fill_border(self, A: Any) -> bool:
        """Whether nearly all columns are leaves or leaves fill the rest, so that no other method is considered."""
        if 4 * self.n_border > 3 * self.number.size:
            return False
        if self.n_border <= max(_FEW, self.number.size**0.5):
            return True
        if self.n_border > _MOST:
            return False
        A = sp.csc_array((np.ones(A.nnz, dtype=np.float32), A.indices, A.indptr), shape=A.shape)
        border = np.flatnonzero(self.number < 0)
        A = sp.csr_array(A[border])
        B, C = A[:, np.flatnonzero(self.number >= 0)], A[:, border]
        few = np.arange(0, border.size, 1 + (border.size > _ALL_ROWS) * (border.size // _SAMPLED))
        if (B[few] @ B.T).nnz >= _FULL * few.size * border.size:
            return True
        return _tangled(sp.csr_array(B @ B.T + C))

    def precede_fronts(self, A: Any) -> bool:
        """Whether to eliminate leaves separately before fronts: many small columns with few neighbours each."""
        inside = self.number >= 0
        degree = np.diff(A.indptr)[inside].astype(np.float64)
        many = inside.size >= _MANY and 3 * self.n_border <= inside.size
        return bool(many and (degree**2).sum() <= _REACH**2 * degree.size)

    def cheaper_than(self, work: float) -> bool:
        """Whether leaves take less time than fronts with this number of multiplications."""
        return self.n_border <= _MOST and self.work <= _DENSE * work


def _tangled(A: Any) -> bool:
    """Whether A, the rest after eliminating leaves, fills up in any order, because its rows have distant neighbours.

    Rows with very many neighbours (an intercept) are left out. In the Cuthill-McKee order the neighbours of a row are
    near if A has the structure of a map. The quarter of the rows with most neighbours is also left out of this order:
    on a map in which few points have distant neighbours (``gmrf/vecchia.py``) they would be short cuts, and a matrix
    that fills up does so without them.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n, degree = A.shape[0], np.diff(A.indptr)
    keep = np.flatnonzero(degree <= n / 3)
    if 2 * keep.size < n or degree[keep].mean() < _TOUCHED:
        return 2 * keep.size < n
    keep = keep[np.argsort(degree[keep], kind="stable")[: int(np.ceil((1.0 - _HUBS) * keep.size))]]
    A = sp.csr_array(A[keep][:, keep])
    place = np.empty(keep.size, dtype=np.int64)
    place[reverse_cuthill_mckee(A, symmetric_mode=True)] = np.arange(keep.size)
    return bool(np.abs(np.repeat(place, np.diff(A.indptr)) - place[A.indices]).max(initial=0) >= _FULL * keep.size)


def find_leaves(A: Any) -> Leaves:
    """Find leaves of A, a canonical csc array.

    Columns with the same neighbours form a block. Unconnected blocks are chosen greedily, those with few neighbours
    first; or else from the longest run of columns that are not connected, such as the levels of a factor. The choice
    that leaves the smaller rest is returned.
    """
    from . import _leaves as kernels

    n, degree = A.shape[0], np.diff(A.indptr)
    mark = np.random.default_rng(0).integers(0, 2**63, n, dtype=np.uint64)
    members, first = kernels.twins(A.indptr, A.indices, mark)
    width = np.diff(first)
    block = np.empty(n, dtype=np.int64)
    block[members] = np.repeat(np.arange(width.size), width)
    reach, wide = degree[members[first[:-1]]], width > _WIDEST
    run = kernels.runs(A.indptr, A.indices, block, members, first)
    length = np.bincount(run, weights=width)[run]
    choices = []
    for keys in ((reach, wide), (reach, run, -length, wide)):
        taken = kernels.independent(A.indptr, A.indices, block, members, first, np.lexsort(keys)) == 1
        choices.append(taken & ~wide)
        if n - int(width[choices[0]].sum()) <= _FEW:
            break
    best = max(choices, key=lambda taken: int(width[taken].sum()))
    rest = n - int(width[best].sum())
    work = float((width[best] * reach[best].astype(np.float64) ** 2).sum()) + rest**3 / 3.0
    return Leaves(np.where(best, np.cumsum(best) - 1, -1)[block], rest, work)


class LeafAnalysis(StoredAnalysis):
    """The columns that are leaves, and the position of each entry.

    Attributes
    ----------
    rest : StoredAnalysis
        The analysis of the rest, whose storage follows that of the leaves.
    size : int
        Number of entries of the squares and panels of leaves.
    """

    def __init__(self, A: Any, leaf: np.ndarray, by_fronts: bool = False) -> None:
        """``leaf`` (n,) is the leaf of each column, -1 in the rest."""
        from . import _leaves as kernels

        self.n, self.indptr, self.indices = A.shape[0], A.indptr.copy(), A.indices.copy()
        leaf = leaf.astype(np.int64)
        inside = np.flatnonzero(leaf >= 0)
        inside = inside[np.argsort(leaf[inside], kind="stable")]
        self.order, self.n_leaves = np.concatenate([inside, np.flatnonzero(leaf < 0)]), inside.size
        place = np.empty(self.n, dtype=np.int64)
        place[self.order] = np.arange(self.n)  # position of each column: first the columns of leaves, then the rest
        width = np.bincount(leaf[inside]).astype(np.int64)
        self.start = np.concatenate([[0], np.cumsum(width)])
        pattern = self.indptr, self.indices, leaf, place
        self.ptr, self.rows = kernels.below(*pattern, inside[self.start[:-1]], self.n_leaves)
        below = np.diff(self.ptr)
        self.square = np.concatenate([[0], np.cumsum(width * width)])
        self.panel = self.square[-1] + np.concatenate([[0], np.cumsum(width * below)])
        self.size = int(self.panel[-1])
        self.n_rest = r = self.n - self.n_leaves
        self.everywhere = kernels.places(*pattern, self.start, self.square, self.panel, self.n_leaves, self.size, r)
        self.rest: SymbolicCholesky | DenseRestAnalysis
        self.pairs: RowPairs | None = None  # positions of pairs of a leaf's rows in a sparse rest
        if by_fronts:
            self._analyse_rest()
        else:
            self.rest = DenseRestAnalysis(r)
        self.nnz = self.size + self.rest.nnz
        self.work = 0.5 * float((width * below.astype(np.float64) ** 2).sum()) + self.rest.work
        if by_fronts and self.nnz < 2**31:  # half the memory if there are millions of points
            self.everywhere = self.everywhere.astype(np.int32)
        self.diagonal = self.everywhere[self.diagonal_entries]

    def _analyse_rest(self) -> None:
        """Analyse the rest after elimination of leaves, by fronts, and find the positions of its own entries."""
        r, outside = self.n_rest, self.everywhere >= self.size
        count = np.ones(self.rows.size, dtype=np.float32)
        touched = sp.csr_array((count, self.rows, self.ptr), shape=(self.ptr.size - 1, r))
        high, low = np.divmod(self.everywhere[outside] - self.size, r)
        own = sp.csc_array((np.ones(high.size, dtype=np.float32), (high, low)), shape=(r, r))
        pattern = sp.csc_array(touched.T @ touched + own + own.T)
        pattern.sort_indices()
        self.rest = SymbolicCholesky(pattern)
        self.pairs = RowPairs(touched, self.rest)
        place, _ = places_in(pattern.indptr, pattern.indices, high, low)
        self.everywhere[outside] = self.size + self.rest.everywhere[place]

    @property
    def layout(self) -> tuple[Any, ...]:
        """The arguments of the compiled passes: the leaves, and positions of pairs of their rows in the rest."""
        pairs, place = (self.ptr, None) if self.pairs is None else (self.pairs.ptr, self.pairs.place)
        return self.start, self.ptr, self.rows, self.square, self.panel, pairs, place, self.n_rest

    def in_stretches(self, work: Callable[[int, int], T]) -> list[T]:
        """work(first, last) for ranges that cover all leaves, on all cores; the ranges depend on the pattern only.

        Many leaves with a small rest are divided into ranges, each with its own copy of the rest. The sum of the copies
        does not depend on the number of cores.
        """
        m = self.start.size - 1
        pieces = _STRETCHES if m >= _CUT_LEAVES and self.n_rest <= _CUT_REST else 1
        edges = [m * p // pieces for p in range(pieces + 1)]
        if pieces == 1:
            return [work(0, m)]
        done = on_every_core(pieces, PARALLEL, lambda i, j: [work(*edges[p : p + 2]) for p in range(i, j)])
        return [part for stretch in done for part in stretch]

    def on_every_core(self, work: Callable[[int, int], Any]) -> None:
        """work(first, last) for ranges of leaves, each of which writes only to its own memory."""
        m, below = self.start.size - 1, np.diff(self.ptr)
        on_every_core(m, int(below @ below) // max(1, m) + 1, work)

    @property
    def in_place(self) -> bool:  # type: ignore[override]
        return self.rest.in_place

    def factor_of(self, x: np.ndarray) -> LeafCholesky:
        return LeafCholesky(self, x)


class LeafCholesky(StoredFactorisation):
    """A = L L' with leaves first. x (nnz,) has squares, panels and the storage of the rest."""

    symbolic: LeafAnalysis

    def _factorise(self, x: np.ndarray) -> np.ndarray:
        from . import _leaf_passes as kernels

        S, C = self.symbolic, x[self.symbolic.size :]

        def eliminate(first: int, last: int) -> tuple[int, np.ndarray]:
            own = C if first == 0 else np.zeros_like(C)
            return kernels.eliminate(first, last, *S.layout, x, own), own

        for bad, own in S.in_stretches(eliminate):
            if bad >= 0:
                raise NotPositiveDefinite(f"the pivot of row {S.order[bad]} is not positive")
            if own is not C:
                C += own
        try:
            self.rest = S.rest.factor_of(C)
        except NotPositiveDefinite:
            raise NotPositiveDefinite("a pivot behind the leaves is not positive") from None
        out = 1.0 / x[S.diagonal]
        out[S.order[S.n_leaves :]] = self.rest._pivots
        return out

    def _alone(self) -> AbstractContextManager[Any]:
        """A lock for this thread, if the inverse replaces the factor."""
        return _inverting if self._selected is None and self.symbolic.in_place else nullcontext()

    def _solve(self, b: np.ndarray, both: bool) -> np.ndarray:
        from . import _leaf_passes as kernels

        S = self.symbolic
        order = S.order if both else np.arange(self.n)
        y, rest = np.empty((S.n_leaves, b.shape[1])), b[order[S.n_leaves :]]
        with self._alone():
            leaves = *S.layout[:5], self._x

            def forward(first: int, last: int) -> np.ndarray:
                own = rest if first == 0 else np.zeros_like(rest)
                kernels.forward(first, last, *leaves, order, b, y, own, both)
                return own

            rest = sum(S.in_stretches(forward)[1:], rest)
            rest = self.rest._solve(rest, both) if rest.size else rest
            out = np.empty(b.shape)
            S.in_stretches(lambda first, last: kernels.backward(first, last, *leaves, S.order, y, rest, out))
        out[S.order[S.n_leaves :]] = rest
        return out

    @cached_property
    def _regressions(self) -> np.ndarray:
        """Y = L21 L11^-1, the regressions of leaves on the rest."""
        from . import _leaf_passes as kernels

        S = self.symbolic
        return kernels.regressions(S.start, S.ptr, S.square, S.panel, self._x)

    def stored_inverse(self) -> np.ndarray:
        with self._alone():
            return super().stored_inverse()

    def _invert(self, z: np.ndarray) -> None:
        from . import _leaf_passes as kernels

        S, x, Z = self.symbolic, self._x, z[self.symbolic.size :]
        x = x[: S.size].copy() if S.in_place else x
        self.rest._invert(Z)
        self.rest._selected, self._x = Z, x
        S.on_every_core(lambda first, last: kernels.selected(first, last, *S.layout, x, Z, z))

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        from . import _leaf_passes as kernels

        S, z, Y, C = self.symbolic, self.stored_inverse(), self._regressions, e[self.symbolic.size :]
        kernels.reduce(*S.layout, Y, e, C)
        C[:] = self.rest.stored_sandwich(C)
        rest = z[S.size :]
        S.on_every_core(lambda first, last: kernels.sandwich(first, last, *S.layout, self._x, Y, rest, C, e))
        return e


class DenseRestAnalysis(StoredAnalysis):
    """A dense matrix (r, r), stored by rows, as the rest of another matrix; its lower triangle is used."""

    def __init__(self, r: int) -> None:
        self.n, self.nnz, self.work = r, r * r, r**3 / 6.0
        self.diagonal = np.arange(r) * (r + 1)

    @property
    def in_place(self) -> bool:  # type: ignore[override]
        return self.n > _LARGE

    def factor_of(self, x: np.ndarray) -> DenseRest:
        return DenseRest(self, x)


class DenseRest(StoredFactorisation):
    """L of a dense matrix by LAPACK.

    Above the diagonal of the inverse is L, with columns divided by the pivots. For a large matrix the inverse replaces
    the factor in memory.
    """

    def _factorise(self, x: np.ndarray) -> np.ndarray:
        C = x.reshape(self.n, self.n)
        if C.size == 0:
            note(factorisations=1)
        elif not np.shares_memory(L := cholesky(C), C):
            C[:] = L
        return np.diagonal(C).copy()

    def _solve(self, b: np.ndarray, both: bool) -> np.ndarray:
        if self._selected is None or not self.symbolic.in_place:
            L = self._x.reshape(self.n, self.n)
            seen = solve_lower(L, b) if both else b
            return np.ascontiguousarray(solve_lower(L, seen, transposed=True))
        from scipy.linalg.blas import dtrsm

        U, pivot = self._selected.reshape(self.n, self.n).T, self._pivots[:, None]  # a unit lower triangle for Fortran
        b = dtrsm(1.0, U, b, lower=1, diag=1) / pivot if both else b
        return np.ascontiguousarray(dtrsm(1.0, U, b / pivot, lower=1, trans_a=1, diag=1))

    def _invert(self, z: np.ndarray) -> None:
        from ._leaf_passes import copy_above

        if not self.symbolic.in_place:
            z[:] = self._x
        Z = z.reshape(self.n, self.n)
        if Z.size:
            copy_above(Z, self._pivots)
            inverse = inverse_from(triangular_inverse(Z))
            if not np.shares_memory(inverse, Z):
                np.copyto(Z, inverse, where=np.tri(self.n, dtype=bool))

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """Solves from both sides. Fortran sees the transposes: L below the diagonal, and C after mirroring."""
        from ._leaf_passes import copy_above
        from .two_sided import two_sided

        note(products=1)
        C, one = e.reshape(self.n, self.n), np.ones(self.n)
        if C.size:
            copy_above(C, one)
            two_sided(self.stored_inverse().reshape(self.n, self.n).T, self._pivots**2, C.T)
            copy_above(C.T, one)
        return e
