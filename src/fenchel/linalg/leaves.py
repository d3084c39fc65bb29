"""Which columns of a sparse matrix are leaves: small blocks that touch a border and not each other.

The levels of a grouping with one effect each (or an intercept and slopes), an effect for every row. ``bordered.py``
factorises a matrix by them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

_WIDEST = 8  # columns of a leaf: its square is handled by plain loops
_FEW = 16  # rows of a border that is worth it whatever the rest costs
_DENSE = 2.0  # multiplications of LAPACK that cost as much as one among fronts
_FULL = 0.5  # share of a border that leaves must fill, or over which its rows must reach, to be taken at once
_TOUCHED = 32  # rows of a border that each of them touches, on average, if it is to fill up
_HUBS = 0.25  # of its rows, those that touch most, without which it is looked how far the others reach
_DENSEST, _SAMPLED = 4000, 256  # rows of a border up to which all of them are looked at, and about how many of more
_MANY, _REACH = 2000, 48  # columns of a matrix, and rows that a leaf touches, of leaves eliminated before fronts
_MOST = 20_000  # rows of a border: more do not fit as a dense matrix


class Leaves(NamedTuple):
    """A choice of leaves: the number of each column's (n,), -1 in the border, and what a factorisation would cost."""

    number: np.ndarray
    n_border: int
    work: float  # multiplications, about

    def obvious(self, A: Any) -> bool:
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
        few = np.arange(0, border.size, 1 + (border.size > _DENSEST) * (border.size // _SAMPLED))
        if (B[few] @ B.T).nnz >= _FULL * few.size * border.size:
            return True
        return _tangled(sp.csr_array(B @ B.T + C))

    def fringe(self, A: Any) -> bool:
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
