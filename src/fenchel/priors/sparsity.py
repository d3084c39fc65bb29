"""The pattern of a sparse prior, analysed once."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import ArrayLike
from ..linalg.bordered import BorderedAnalysis
from ..linalg.chain import ChainAnalysis
from ..linalg.factorisation import Analysis, Factorisation, Stored, StoredFactorisation, analyse
from ..linalg.pairs import FEW_PAIRS, RowPairs, pair_places
from ..linalg.sparse import SymbolicCholesky
from .constraints import Constraint
from .separate import Parts, Separate, labels

_FEW = 64  # rows that are solved for sooner than the inverse is computed on the pattern
_DEAR = 1e8  # multiplications of a factorisation that is worth doing once
_PAIRS = 2**22  # of latents that rows touch, looked up at a time


class Embedded:
    """The factor of Q seen on a larger pattern, whose other entries join latents that are independent under Q."""

    def __init__(self, own: Factorisation, data: np.ndarray, places: np.ndarray, union: Any) -> None:
        self.own, self.data, self.places, self.symbolic, self.n = own, data, places, union, own.n
        self.log_det, self.smallest_pivot = own.log_det, own.smallest_pivot

    def solve(self, b: ArrayLike) -> np.ndarray:
        """Q^-1 b."""
        return self.own.solve(b)

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """Draws with covariance Q^-1."""
        return self.own.sample(noise)

    def inverse_diagonal(self) -> np.ndarray:
        """diag(Q^-1) (n,)."""
        return self.own.inverse_diagonal()

    @property
    def log_det_rounding(self) -> float:
        return self.own.log_det_rounding

    def own_inverse(self) -> np.ndarray:
        """Q^-1 at the entries of Q."""
        return self.own.inverse_data()

    def inverse_data(self) -> np.ndarray:
        """Q^-1 on the larger pattern."""
        out = np.zeros(self.symbolic.indices.size)
        out[self.places] = self.own_inverse()
        return out

    def stored_inverse(self) -> np.ndarray:
        """Q^-1 laid out as factors on the larger pattern are; untouched memory where it is zero."""
        out = np.zeros(self.symbolic.nnz)
        out[self.symbolic.everywhere[self.places]] = self.own.inverse_data()
        return out

    def stored_sandwich(self, e: np.ndarray) -> np.ndarray:
        """Q^-1 E Q^-1 in that layout."""
        return self.symbolic.factor(self.data).stored_sandwich(e)

    def row_variances(self, W: Any, T: Any) -> np.ndarray:
        """diag(W Q^-1 W'), by the entries of Q's own pattern."""
        return np.asarray(T.T @ self.inverse_data())

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """Q^-1 E Q^-1 on the larger pattern: by a factor there, for E may join what Q does not."""
        return self.symbolic.factor(self.data).sandwich(data)


def row_products(W: Any, indptr: np.ndarray, indices: np.ndarray) -> tuple[Any, np.ndarray]:
    """T, from weights of the rows of W to the entries of W' diag(.) W on a pattern, and which rows have all of them.

    Row n of W touches the entries (i, j) for every pair of its columns. T is empty at rows that touch others.
    """
    per_row = np.diff(W.indptr).astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(per_row**2)])
    place, data, whole = pair_places(W, indptr, indices, ptr)
    if not whole.all():
        keep = np.repeat(whole, per_row**2)
        place, data = place[keep], data[keep]
        ptr = np.concatenate([[0], np.cumsum(np.where(whole, per_row**2, 0))])
    shape = (W.shape[0], indices.size)
    return sp.csr_array((data, place, ptr.astype(place.dtype)), shape=shape).T, whole


class Pattern:
    """The union of the patterns of Q and W'W, and the map T from lam to entries."""

    _maps: dict[str, Any]  # what is made of W, shared by the patterns of other values of Q
    joint: Analysis | None = None  # of a softmax's classes together, made when first needed
    _last: tuple[np.ndarray, weakref.ref[Factorisation]] | None = None  # the weights of the last factor, and it

    def __init__(self, Q: Any, W: Any, factor: Factorisation, constraint: Constraint | None) -> None:
        self.constraint, self.Q = constraint, Q
        self.n_rows, self.W = W.shape[0], W
        ones = sp.csr_array((np.ones(W.nnz), W.indices, W.indptr), shape=W.shape)
        union = sp.csc_array((np.ones(Q.nnz), Q.indices, Q.indptr), shape=Q.shape) + sp.csc_array(ones.T @ ones)
        union.sort_indices()
        if max(union.nnz, *union.shape) < 2**31:  # half of the memory, whatever the rows came with
            union.indices, union.indptr = union.indices.astype(np.int32), union.indptr.astype(np.int32)
        self.shape, self.indices, self.indptr = union.shape, union.indices, union.indptr
        self.own, self.closed = factor.symbolic, False  # of Q, and whether its components gain no entry in the union
        self.parts: Parts | None = None  # of a prior whose factor is dear
        if union.nnz == Q.nnz:  # the data add nothing to the pattern of Q: its analysis and its factor serve
            self.symbolic, self.q, self.base = factor.symbolic, Q.data, factor
            self.places = self.own_places = np.arange(Q.nnz)
        else:
            joined = Q if constraint is None or constraint.basis is None else abs(Q) + _together(constraint.basis)
            label = sp.csgraph.connected_components(joined, directed=False)[1]
            self.closed = int((label[union.indices] == label[self.owners]).sum()) == Q.nnz
            self.own_places = self._entries_of(Q)
            self.symbolic = analyse(union) if constraint is None else constraint.analyse(union)
            if self.closed and work_of(self.own) >= _DEAR and (label := labels(Q, constraint)).any():
                self.parts = Parts(Q, constraint, label)
            self._set(Q)
        self._maps = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None, "_maps": {}}

    @property
    def T(self) -> Any:
        """The map from weights of the rows to the entries of W' diag(.) W, made when first asked for."""
        if "T" not in self._maps:
            self._maps["T"] = self.products(self.W)[0]
        return self._maps["T"]

    @property
    def pairs(self) -> RowPairs | None:
        """The same straight to where the factorisation keeps the entries; None where it is another's, or held."""
        if "pairs" not in self._maps:
            symbolic: Any = self.symbolic
            own = self.constraint is None and isinstance(symbolic, SymbolicCholesky | BorderedAnalysis)
            if self.constraint is None and isinstance(symbolic, ChainAnalysis):  # the map of few needs no compiled loop
                own = int((np.diff(self.W.indptr).astype(np.int64) ** 2).sum()) > FEW_PAIRS
            self._maps["pairs"] = RowPairs(self.W, symbolic) if own else None
        return self._maps["pairs"]

    @property
    def owners(self) -> np.ndarray:
        """The column of each entry of the union."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def _set(self, Q: Any) -> None:
        """Take the values of Q. Raises NotPositiveDefinite."""
        self.Q = Q
        if not self.own.same_pattern(Q):
            self.q, self.places = self.entries(Q), self._entries_of(Q)
            self.base = self._made(self.q)
            return
        self.q, self.places = np.zeros(self.indices.size), self.own_places
        self.q[self.places] = Q.data
        self.base = self._made(self.q, prior=True)

    def products(self, W: Any) -> tuple[Any, np.ndarray]:
        """T, the map from weights of the rows of W to the entries of W' diag(.) W, and which rows have all of them."""
        return row_products(W, self.indptr, self.indices)

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
        out = object.__new__(Pattern)
        out.__dict__ = {**self.__dict__, "_last": None}
        if not _same(Q, self.Q):  # a search begins where the pattern was analysed
            out._set(Q)
        return out

    def restricted(self, rows: np.ndarray) -> Pattern:
        """The same pattern seen by fewer rows of W."""
        out = object.__new__(Pattern)
        maps = {"pairs": None if self.pairs is None else self.pairs.take(rows)}
        maps |= {"T": self._maps["T"][:, rows]} if "T" in self._maps else {}
        out.__dict__ = {**self.__dict__, "n_rows": rows.size, "W": self.W[rows], "_last": None, "_maps": maps}
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
        if self.pairs is None:
            return self._made(self.q + self.T @ weight)
        x = np.zeros(self.pairs.symbolic.nnz)
        x[self._at_prior(self.pairs.symbolic)] = self.Q.data
        return self.pairs.symbolic.factor_of(self.pairs.add(weight, x))

    def _at_prior(self, symbolic: Stored) -> np.ndarray:
        """Where the entries of Q stand in the factor's layout; kept, for they seldom change."""
        known = self._maps.get("prior")
        if known is None or known[0] is not self.places:
            known = self._maps["prior"] = self.places, symbolic.everywhere[self.places]
        return known[1]

    @property
    def steepness(self) -> float:
        """Multiplications of a factorisation for each entry of L; 0 where the backend does not say."""
        symbolic: Any = getattr(self.symbolic, "inner", self.symbolic)
        work = work_of(symbolic)
        return work / symbolic.nnz if work else 0.0

    def added(self, data: np.ndarray) -> Factorisation:
        """The factor of Q and of values on the pattern added to it, under the constraints."""
        return self._made(self.q + data)

    def _made(self, data: np.ndarray, prior: bool = False) -> Factorisation:
        """The factor of values on the union; of a ``prior`` by its own pattern, where that holds what is asked for."""
        if self.constraint is not None:
            data, nodes = data.copy(), self.constraint.nodes
            data[self._places(nodes, nodes)] += self.constraint.shift
        factor: Factorisation
        if prior and self.parts is not None:
            return Separate(self.parts.factor(self.Q.data), self.places, data, self.symbolic, self.constraint)
        if prior and self.closed:
            factor = Embedded(self.own.factor(data[self.places]), data, self.places, self.symbolic)
        else:
            factor = self.symbolic.factor(data)
        return factor if self.constraint is None else self.constraint.hold(factor)

    def diagonal(self, factor: Factorisation) -> np.ndarray:
        """diag(W V W') from the selected inverse."""
        if isinstance(factor, Embedded | Separate):  # laid out as factors are, a dense border would be zeros
            parts = factor.own_inverse(), self.Q.indices, self.Q.indptr
            return np.asarray((self.W @ sp.csc_array(parts, shape=self.Q.shape)).multiply(self.W).sum(axis=1))
        if self.pairs is not None and isinstance(factor, StoredFactorisation):
            return self.pairs.forms(factor.stored_inverse())
        return factor.row_variances(self.W, self.T)

    def hadamard(self, factor: Factorisation, v: np.ndarray) -> np.ndarray:
        """diag(W V E V W') for E = W' diag(v) W, from V E V on the pattern."""
        if self.pairs is not None and isinstance(factor, StoredFactorisation):
            return self.pairs.forms(factor.stored_sandwich(self.pairs.add(v, np.zeros(self.pairs.symbolic.nnz))))
        return self.T.T @ factor.sandwich(self.T @ v)

    def inverse_at_prior(self, factor: Factorisation) -> np.ndarray:
        """V at the entries of Q."""
        if isinstance(factor, Embedded | Separate) and factor.places is self.places:
            return factor.own_inverse()
        if self.pairs is not None and isinstance(factor, StoredFactorisation):
            return factor.stored_inverse()[self._at_prior(self.pairs.symbolic)]
        return factor.inverse_data()[self.places]

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
            some = W[a : a + step]
            T, whole = self.products(some)
            out[a : a + step] = factor.row_variances(some, T)
            solved.append(a + np.flatnonzero(~whole))
        rest = np.concatenate(solved)
        out[rest] = row_quadratic(factor, W[rest])
        return out


def work_of(analysis: Any) -> float:
    """Multiplications of a factorisation; 0 where the backend does not say."""
    symbolic: Any = getattr(analysis, "inner", analysis)
    known = isinstance(symbolic, SymbolicCholesky | BorderedAnalysis | ChainAnalysis)
    return float(symbolic.work) if known else 0.0


def _same(A: Any, B: Any) -> bool:
    """Whether two canonical csc arrays are equal, entry for entry."""
    return all(np.array_equal(getattr(A, part), getattr(B, part)) for part in ("indptr", "indices", "data"))


def _together(basis: Any) -> sp.csr_array:
    """Entries (i, j) of latents that a small constraint holds together."""
    return abs(basis) @ abs(basis).T


def row_quadratic(factor: Factorisation, W: Any, step: int = 256) -> np.ndarray:
    """diag(W A^-1 W') for any rows W, by solves with a few hundred right-hand sides at a time."""
    out = np.empty(W.shape[0])
    for i in range(0, W.shape[0], step):
        right = W[i : i + step].toarray().T
        out[i : i + step] = np.sum(right * factor.solve(right), axis=0)
    return out
