"""Sparse Cholesky factorisation by leaves: small blocks of columns that touch a rest, and not each other.

    A = [D B'; B C],    D of small blocks,    C - B D^-1 B' = L L'

A grouping with one effect a level (or an intercept and slopes) makes one leaf a level: the students of a table of
ratings, an effect for every row, points that condition on knots. One compiled pass eliminates them straight into the
storage of the rest. The rest is a dense matrix where they fill it (``DenseRest``, factorised by LAPACK), or has an
order of its own in which it stays sparse (``supernodal.py``, by fronts).
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

_WIDEST = 8  # columns of a leaf; wider blocks are left to the rest, since plain loops handle the squares of leaves
_FEW = 16  # rows of a rest; with fewer leaves are taken whatever anything else would cost
_DENSE = 2.0  # multiplications of LAPACK that cost as much as one among fronts
_FULL = 0.5  # share of a dense rest that leaves fill, or over which its rows reach, from which it is taken at once
_TOUCHED = 32  # rows of a rest that each row touches on average, from which it is asked whether it fills up
_HUBS = 0.25  # share of its rows, those that touch most, that are left out when it is asked how far the others reach
_ALL_ROWS = 4000  # rows of a rest of which all are looked at; of more rows a sample is
_SAMPLED = 256  # rows of that sample, about
_MANY = 2000  # columns of a matrix from which leaves may be eliminated before fronts
_REACH = 48  # rows that leaves may touch, as a root mean square, if they are eliminated before fronts
_MOST = 20_000  # rows of a dense rest; more do not fit into memory
_STRETCHES = 8  # into which many leaves are cut, each with a rest of its own to add to
_CUT_LEAVES = 1 << 16  # leaves from which they are cut
_CUT_REST = 64  # rows of a rest up to which they are cut
_LARGE = 2048  # rows of a dense rest from which its factor and its inverse share one matrix

_inverting = RLock()  # a factor is not solved with while its inverse takes its place


class Leaves(NamedTuple):
    """A choice of leaves: the number of each column's (n,), -1 in the border, and what a factorisation would cost."""

    number: np.ndarray
    n_border: int
    work: float  # multiplications, about

    def fill_border(self, A: Any) -> bool:
        """Whether no other factorisation need be looked at: nearly all columns are leaves, or they fill the border."""
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
        """Whether they are best eliminated on their own before fronts: many small columns that touch few rows each."""
        inside = self.number >= 0
        degree = np.diff(A.indptr)[inside].astype(np.float64)
        many = inside.size >= _MANY and 3 * self.n_border <= inside.size
        return bool(many and (degree**2).sum() <= _REACH**2 * degree.size)

    def cheaper_than(self, work: float) -> bool:
        """Whether it takes less time than fronts with so many multiplications."""
        return self.n_border <= _MOST and self.work <= _DENSE * work


def _tangled(A: Any) -> bool:
    """Whether A, a border as leaves leave it, fills up in any order: each row touches many, however they are ordered.

    Rows that touch a good part of all others (an intercept) are left out; the order is that of Cuthill and McKee, in
    which a row reaches not far where A has the structure of a map. A quarter of the rows is left out of it, those that
    touch most: on a map where few points are neighbours of far ones (``gmrf/vecchia.py``) they would be short cuts, and
    what fills up does so without them.
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
    """Leaves of A, a canonical csc array.

    Columns with the same neighbours make a block. Blocks that touch no other are taken greedily, those with few
    neighbours first, or those of the longest run of columns that do not touch, as the levels of a grouping are;
    whatever leaves the smaller border.
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
    found = []
    for keys in ((reach, wide), (reach, run, -length, wide)):
        taken = kernels.independent(A.indptr, A.indices, block, members, first, np.lexsort(keys)) == 1
        found.append(taken & ~wide)
        if n - int(width[found[0]].sum()) <= _FEW:
            break
    best = max(found, key=lambda taken: int(width[taken].sum()))
    rest = n - int(width[best].sum())
    work = float((width[best] * reach[best].astype(np.float64) ** 2).sum()) + rest**3 / 3.0
    return Leaves(np.where(best, np.cumsum(best) - 1, -1)[block], rest, work)


class LeafAnalysis(StoredAnalysis):
    """Which columns are leaves, and where every entry goes.

    Attributes
    ----------
    rest : StoredAnalysis
        Of what the leaves leave, whose storage follows theirs.
    size : int
        Entries of the squares and panels of the leaves.
    """

    def __init__(self, A: Any, leaf: np.ndarray, by_fronts: bool = False) -> None:
        """``leaf`` (n,) is the number of each column's leaf, -1 in the rest."""
        from . import _leaves as kernels

        self.n, self.indptr, self.indices = A.shape[0], A.indptr.copy(), A.indices.copy()
        leaf = leaf.astype(np.int64)
        inside = np.flatnonzero(leaf >= 0)
        inside = inside[np.argsort(leaf[inside], kind="stable")]
        self.order, self.n_leaves = np.concatenate([inside, np.flatnonzero(leaf < 0)]), inside.size
        place = np.empty(self.n, dtype=np.int64)
        place[self.order] = np.arange(self.n)  # of each column among the leaves' columns, then in the rest
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
        self.pairs: RowPairs | None = None  # where pairs of the rows of a leaf stand in a sparse rest
        if by_fronts:
            self._analyse_rest()
        else:
            self.rest = DenseRestAnalysis(r)
        self.nnz = self.size + self.rest.nnz
        self.work = 0.5 * float((width * below.astype(np.float64) ** 2).sum()) + self.rest.work
        if by_fronts and self.nnz < 2**31:  # half of the memory that millions of points take
            self.everywhere = self.everywhere.astype(np.int32)
        self.diagonal = self.everywhere[self.diagonal_entries]

    def _analyse_rest(self) -> None:
        """The analysis of the rest as the leaves leave it, by fronts, and where its own entries stand."""
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
        """What the compiled passes ask for: the leaves, and where pairs of their rows stand in the rest."""
        pairs, place = (self.ptr, None) if self.pairs is None else (self.pairs.ptr, self.pairs.place)
        return self.start, self.ptr, self.rows, self.square, self.panel, pairs, place, self.n_rest

    def in_stretches(self, work: Callable[[int, int], T]) -> list[T]:
        """work(first, last) for stretches that cover the leaves, on every core; the pattern alone says which.

        Many leaves before a small rest are cut: each stretch has a rest of its own to add to, and the sums of these are
        the same however many cores there are.
        """
        m = self.start.size - 1
        pieces = _STRETCHES if m >= _CUT_LEAVES and self.n_rest <= _CUT_REST else 1
        edges = [m * p // pieces for p in range(pieces + 1)]
        if pieces == 1:
            return [work(0, m)]
        done = on_every_core(pieces, PARALLEL, lambda i, j: [work(*edges[p : p + 2]) for p in range(i, j)])
        return [part for stretch in done for part in stretch]

    def on_every_core(self, work: Callable[[int, int], Any]) -> None:
        """work(first, last) for stretches of leaves, each of which writes to its own alone."""
        m, below = self.start.size - 1, np.diff(self.ptr)
        on_every_core(m, int(below @ below) // max(1, m) + 1, work)

    @property
    def in_place(self) -> bool:  # type: ignore[override]
        return self.rest.in_place

    def factor_of(self, x: np.ndarray) -> LeafCholesky:
        return LeafCholesky(self, x)


class LeafCholesky(StoredFactorisation):
    """A = L L' by leaves before a rest. x (nnz,) holds squares, panels and the storage of the rest."""

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
        """A turn of this thread, where the inverse takes the place of the factor."""
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
        """Y = L21 L11^-1 of the leaves on the rest."""
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
    """A dense matrix (r, r) as the rest of others, row by row; its lower triangle is read."""

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

    Above the diagonal of the inverse stands L, its columns divided by the pivots. A large matrix has one memory for
    both, and the inverse takes the factor's place.
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

        U, pivot = self._selected.reshape(self.n, self.n).T, self._pivots[:, None]  # Fortran sees a unit lower triangle
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
        """By solves from either side. Fortran sees the transposes: L below the diagonal, and C once it is mirrored."""
        from ._leaf_passes import copy_above
        from .two_sided import two_sided

        note(products=1)
        C, one = e.reshape(self.n, self.n), np.ones(self.n)
        if C.size:
            copy_above(C, one)
            two_sided(self.stored_inverse().reshape(self.n, self.n).T, self._pivots**2, C.T)
            copy_above(C.T, one)
        return e
