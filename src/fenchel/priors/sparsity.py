"""The pattern of a sparse prior, analysed once."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..linalg.constrained import Constraint
from ..linalg.factorisation import Analysis, Factorisation, analyse
from ..linalg.pairs import DesignRows
from .separate import Parts, Separate, components

_FEW = 64  # rows up to which solves are faster than the inverse on the pattern
_PAIRS = 2**22  # pairs of latents that rows touch, looked up at a time


class Pattern:
    """The union of the patterns of Q and W'W, and the rows of W beside it.

    Attributes
    ----------
    Q : csc array (L, L)
        The precision of the prior.
    base : Factorisation
        Of Q, under the constraints.
    symbolic : Analysis
        Of the union.
    q : array
        Q on the union.
    places : array
        Where the entries of Q stand in the union.
    rows : DesignRows
    shared : dict
        What others keep for all values of Q; left out of files.
    """

    base: Factorisation
    shared: dict[str, Any]
    joint: Analysis | None = None  # of a softmax's classes together, made when first needed
    parts: Parts | None = None  # of Q, where its components gain no entry in the union
    _last: tuple[np.ndarray, weakref.ref[Factorisation]] | None = None  # the weights of the last factor, and it

    def __init__(self, Q: Any, W: Any, factor: Factorisation, constraint: Constraint | None) -> None:
        self.constraint, self.Q, self.shared = constraint, Q, {}
        ones = sp.csr_array((np.ones(W.nnz), W.indices, W.indptr), shape=W.shape)
        union = sp.csc_array((np.ones(Q.nnz), Q.indices, Q.indptr), shape=Q.shape) + sp.csc_array(ones.T @ ones)
        union.sort_indices()
        if max(union.nnz, *union.shape) < 2**31:  # half of the memory, whatever the rows came with
            union.indices, union.indptr = union.indices.astype(np.int32), union.indptr.astype(np.int32)
        self.shape, self.indices, self.indptr = union.shape, union.indices, union.indptr
        self.rows = DesignRows(W, self.indptr, self.indices)
        self.own = factor.symbolic
        if union.nnz == Q.nnz:  # the data add nothing to the pattern of Q: its analysis and its factor serve
            self.symbolic, self.q, self.base = factor.symbolic, Q.data, factor
            self.places = self.own_places = np.arange(Q.nnz)
            return
        self.own_places = self._entries_of(Q)
        self.symbolic = analyse(union, constraint)
        component = components(Q, constraint)
        if int((component[union.indices] == component[self.owners]).sum()) == Q.nnz:
            self.parts = Parts(Q, constraint, component, self.own)
        self._set(Q)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None, "shared": {}}

    @property
    def owners(self) -> np.ndarray:
        """The column of each entry of the union."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def _set(self, Q: Any) -> None:
        """Take the values of Q. Raises NotPositiveDefinite."""
        self.Q, self._last = Q, None
        known = self.own.same_pattern(Q)
        self.places = self.own_places if known else self._entries_of(Q)
        self.q = np.zeros(self.indices.size)
        self.q[self.places] = Q.data
        if known and self.parts is not None:
            self.base = Separate(self.parts.factor(Q.data), Q, self.places, self.symbolic)
        else:
            self.base = self.symbolic.factor(self.q)

    def _places(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Where the entries (row, column) stand in the union: a csc array is sorted by column, then row."""
        L = self.shape[0]
        keys = self.owners * L + self.indices
        found = np.searchsorted(keys, columns.astype(np.int64) * L + rows)
        return found.astype(np.int32) if keys.size < 2**31 else found

    def _entries_of(self, Q: Any) -> np.ndarray:
        """Where the entries of Q, a canonical csc array, stand in the union."""
        return self._places(Q.indices, np.repeat(np.arange(Q.shape[0]), np.diff(Q.indptr)))

    def entries(self, B: Any) -> np.ndarray:
        """The values of B, whose pattern lies in the union, in the union's order."""
        coo, out = sp.coo_array(B), np.zeros(self.indices.size)
        out[self._places(coo.row, coo.col)] = coo.data
        return out

    def matrix(self, data: np.ndarray) -> sp.csc_array:
        """The matrix with these values on the pattern."""
        return sp.csc_array((data, self.indices, self.indptr), shape=self.shape)

    def reweighted(self, Q: Any) -> Pattern:
        """The same pattern with other values of Q. Raises NotPositiveDefinite."""
        out = copy.copy(self)
        out.__dict__.update(shared=self.shared, _last=None)
        if not _same(Q, self.Q):  # a search begins where the pattern was analysed
            out._set(Q)
        return out

    def restricted(self, rows: np.ndarray) -> Pattern:
        """The same pattern seen by fewer rows of W."""
        out = copy.copy(self)
        self.rows.pairs(self.symbolic)  # found once for all restrictions
        out.__dict__.update(rows=self.rows.take(rows), shared={}, _last=None)
        return out

    def factor(self, weight: np.ndarray) -> Factorisation:
        """Q + W' diag(weight) W, under the constraints; the last one made, if it is still in use and of these weights.

        A Gaussian likelihood asks for the same at its start, for Newton's step and where that ends.
        """
        last = self._last
        found = None if last is None or not np.array_equal(last[0], weight) else last[1]()
        if found is None:
            found = self._weighted(weight)
            self._last = np.array(weight), weakref.ref(found)
        return found

    def _weighted(self, weight: np.ndarray) -> Factorisation:
        """A new factor of Q + W' diag(weight) W."""
        pairs = self.rows.pairs(self.symbolic)
        if pairs is None:
            return self.symbolic.factor(self.q + self.rows.products @ weight)
        return pairs.symbolic.factor_of(pairs.add(weight, pairs.symbolic.laid_out(self.q)))

    @property
    def steepness(self) -> float:
        """Multiplications of a factorisation for each entry of L."""
        return self.symbolic.work / self.symbolic.nnz

    def added(self, data: np.ndarray) -> Factorisation:
        """The factor of Q and of values on the pattern added to it, under the constraints."""
        return self.symbolic.factor(self.q + data)

    def quadratic(self, factor: Factorisation, W: Any) -> np.ndarray:
        """diag(W V W') of any rows: from the selected inverse where they are many and it holds their entries.

        Then the time grows with the rows; a solve for each takes as long as there are latents.
        """
        out, solved = np.empty(W.shape[0]), [np.arange(0)]
        widest = int(np.diff(W.indptr).max(initial=1)) ** 2
        if W.shape[0] <= _FEW or widest > self.indices.size:
            return row_quadratic(factor, W)
        step = max(1, _PAIRS // widest)
        for a in range(0, W.shape[0], step):
            some = DesignRows(W[a : a + step], self.indptr, self.indices, by_pairs=False)
            out[a : a + step] = factor.row_variances(some)
            solved.append(a + np.flatnonzero(~some.complete))
        rest = np.concatenate(solved)
        out[rest] = row_quadratic(factor, W[rest])
        return out


def _same(A: Any, B: Any) -> bool:
    """Whether two canonical csc arrays are equal, entry for entry."""
    same = np.array_equal
    return same(A.indptr, B.indptr) and same(A.indices, B.indices) and same(A.data, B.data)


def row_quadratic(factor: Factorisation, W: Any, step: int = 256) -> np.ndarray:
    """diag(W A^-1 W') for any rows W, by solves with a few hundred right-hand sides at a time."""
    out = np.empty(W.shape[0])
    for i in range(0, W.shape[0], step):
        right = W[i : i + step].toarray().T
        out[i : i + step] = np.sum(right * factor.solve(right), axis=0)
    return out
