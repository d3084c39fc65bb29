"""The pattern of a sparse prior, analysed once, and the factor of the prior itself.

A = Q + W' diag(lam) W has the union of the patterns of Q and W'W. The prior is factorised on its own pattern, part by
part where its parts are independent, and not at all where a part only changed its scale:

    Q = diag(Q_1, Q_2, ...),   Q_i = c L L'  where L L' was factorised before:   Q_i^-1 = (L L')^-1 / c

A part is made of components of Q, with what holds them. Sizes of effects are what a search moves most, and the factor
of the largest part is then made once.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .. import gates
from ..checks import problem
from ..linalg.arrays import ArrayLike
from ..linalg.constrained import Constraint
from ..linalg.constraint_bases import split_local
from ..linalg.dense import NotPositiveDefinite
from ..linalg.factorisation import EPS, SMALL_PIVOT, Analysis, Factorisation, StoredAnalysis, analyse
from ..linalg.row_pairs import DesignRows, WideRows, full_columns, places_in, products_pattern
from .latent_priors import checked_constraints

_NOISE = 100.0  # of the rounding in x'Qx: singular matrices stay below 1, proper ones with 1e-10 on top are above 1e4
_SAME = 1e-13  # by how much, relatively, the ratios of entries may differ that are one number
_SHARED = 0.5  # of new rows: a column that more of them touch is solved for, where there are not too many of these
_MOST_SHARED = 64  # columns
_PAIRS = 2**22  # pairs of latents that rows touch, looked up at a time


def constrained(Q: Any, constraints: Any) -> tuple[Constraint | None, Factorisation]:
    """The constraint, if there is one, and the prior's factor under it. Raises NotPositiveDefinite."""
    if constraints is None:
        factor = analyse(Q).factor(Q.data)
        if is_singular(Q, factor):  # an intrinsic precision may factorise by luck
            raise NotPositiveDefinite("it is singular to rounding")
        return None, factor
    given = checked_constraints(Q, constraints)
    basis, C = split_local(given, Q)
    held = Constraint(C, np.zeros(0, dtype=int), float(Q.diagonal().mean()), basis, given)
    analysis: Any = analyse(Q, held)  # conditioned on C, where it has rows
    unfixed = NotPositiveDefinite("the constraints do not fix its null space")
    try:
        factor = analysis.factor(Q.data)
        if not is_singular(Q, factor.base if len(C) else factor):
            return held, factor
    except (NotPositiveDefinite, np.linalg.LinAlgError):
        pass
    if not len(C):
        raise unfixed
    analysis = analysis.with_nodes(_telling(C))
    try:
        factor = analysis.factor(Q.data)
    except (NotPositiveDefinite, np.linalg.LinAlgError):
        raise unfixed from None
    if not factor.proper or is_singular(Q, factor):
        raise unfixed
    return analysis.constraint, factor


def _telling(C: np.ndarray) -> np.ndarray:
    """A node for each constraint, such that C there tells them apart."""
    if ((C != 0.0).sum(axis=0) <= 1).all():  # the heaviest node of each
        return np.abs(C).argmax(axis=1)
    return np.asarray(scipy.linalg.qr(C, mode="r", pivoting=True)[1][: C.shape[0]])


def is_singular(Q: Any, factor: Factorisation) -> bool:
    """Whether some x, within the constraints, has x' Q x below the rounding of its own terms.

    Inverse iteration finds it. A pivot of a singular matrix may come out far above zero by rounding, and where depends
    on the scale of Q; this does not. A matrix without small pivots is spared the solves.
    """
    if factor.smallest_pivot > SMALL_PIVOT:
        return False
    x = np.random.default_rng(0).standard_normal(Q.shape[0])
    for _ in range(2):
        x = factor.solve(x)
        x /= np.abs(x).max()
    return not float(x @ (Q @ x)) > _NOISE * np.finfo(float).eps * float(np.abs(x) @ (abs(Q) @ np.abs(x)))


@dataclass
class PrecisionPart:
    """Some latents, and the last factor of their precision."""

    nodes: Any  # which latents they are: an index into all of them
    places: Any  # which entries of Q are theirs
    n_free: int  # dimension that constraints leave free, as which its log-determinant scales
    analysis: Analysis
    remembers: bool  # whether a factor is kept for values that only change their scale
    known: tuple[np.ndarray, Factorisation] | None = None  # values and their factor

    def __getstate__(self) -> dict[str, Any]:
        """Without the factor, which is made again."""
        return {**self.__dict__, "known": None}

    def factor(self, data: np.ndarray) -> tuple[Factorisation, float]:
        """A factor, and what to multiply its matrix with. Raises NotPositiveDefinite."""
        known = self.known  # read once: another thread may replace it
        if known is not None and (scale := _ratio(data, known[0])) is not None:
            return known[1], scale
        factor = self.analysis.factor(data)
        if self.remembers:
            self.known = data, factor
        return factor, 1.0


def _ratio(data: np.ndarray, before: np.ndarray) -> float | None:
    """c > 0 with data = c before, entry for entry; None where there is none."""
    live = before != 0.0
    if data[~live].any():
        return None
    with np.errstate(all="ignore"):
        ratio = data[live] / before[live]
    low, high = (float(ratio.min()), float(ratio.max())) if ratio.size else (np.nan, np.nan)
    return (low + high) / 2.0 if low > 0.0 and high - low <= _SAME * high < np.inf else None


def components(Q: Any, constraint: Constraint | None) -> np.ndarray:
    """The component of each latent in the graph of Q, joined by what constraints hold together."""
    links = [sp.coo_array(Q).coords, *([] if constraint is None else constraint.links())]
    i, j = (np.concatenate(ends) for ends in zip(*links, strict=True))
    graph = sp.csr_array((np.ones(i.size, dtype=np.int8), (i, j)), shape=Q.shape)
    return np.asarray(sp.csgraph.connected_components(graph, directed=False)[1])


class Parts:
    """The analysis of all parts: large components are one each, all others together.

    Where a factorisation of all of Q costs little there is one part, analysed as ``own``.
    """

    def __init__(self, Q: Any, constraint: Constraint | None, component: np.ndarray, own: Analysis) -> None:
        large = np.bincount(component) >= gates.PART_LATENTS
        number = np.where(large, np.cumsum(large) - 1, int(large.sum()))
        label = np.unique(number[component], return_inverse=True)[1]
        if own.work < gates.PARTS_APART or not label.any():
            n_free = own.n if constraint is None else constraint.n_free
            self.parts = [PrecisionPart(np.s_[:], np.s_[:], n_free, own, remembers=False)]
            return
        self.parts = []
        for part in range(int(label.max()) + 1):
            nodes = np.flatnonzero(label == part)
            inner = sp.csc_array(Q[nodes][:, nodes])
            inner.sort_indices()
            held = None if constraint is None else constraint.within(nodes)
            n_free = nodes.size if held is None else held.n_free
            places = np.flatnonzero(label[own.columns] == part)
            self.parts.append(PrecisionPart(nodes, places, n_free, analyse(inner, held), remembers=True))

    def factor(self, data: np.ndarray) -> list[tuple[PrecisionPart, Factorisation, float]]:
        """Of each part by the values of Q: a factor and its scale. Raises NotPositiveDefinite."""
        return [(part, *part.factor(data[part.places])) for part in self.parts]


class Separate(Factorisation):
    """A ``Factorisation`` of independent parts, seen on a pattern that holds that of Q.

    Parameters
    ----------
    made : list of (part, factor, scale)
    Q : csc array
        The matrix that was factorised.
    places : array
        Where the entries of Q stand in the larger pattern.
    symbolic : Analysis
        Of the larger pattern.
    """

    def __init__(
        self, made: list[tuple[PrecisionPart, Factorisation, float]], Q: Any, places: np.ndarray, symbolic: Analysis
    ) -> None:
        self.made, self.Q, self.places, self.symbolic, self.n = made, Q, places, symbolic, symbolic.n
        self.log_det = float(sum(factor.log_det + part.n_free * np.log(scale) for part, factor, scale in made))
        self.smallest_pivot = min(factor.smallest_pivot for _, factor, _ in made)

    @property
    def log_det_rounding(self) -> float:  # type: ignore[override]
        return float(np.sqrt(sum(factor.log_det_rounding**2 for _, factor, _ in self.made)))

    def solve(self, b: ArrayLike) -> np.ndarray:
        b = np.asarray(b, dtype=np.float64)
        out = np.empty(b.shape)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.solve(b[part.nodes]) / scale
        return out

    def sample(self, noise: ArrayLike) -> np.ndarray:
        noise = np.asarray(noise, dtype=np.float64)
        out = np.empty(noise.shape)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.sample(noise[part.nodes]) / np.sqrt(scale)
        return out

    def inverse_diagonal(self) -> np.ndarray:
        out = np.empty(self.n)
        for part, factor, scale in self.made:
            out[part.nodes] = factor.inverse_diagonal() / scale
        return out

    def _own_inverse(self) -> np.ndarray:
        """Q^-1 at the entries of Q."""
        out = np.empty(self.places.size)
        for part, factor, scale in self.made:
            out[part.places] = factor.inverse_data() / scale
        return out

    def inverse_data(self) -> np.ndarray:
        """Q^-1 on the pattern, 0 where parts meet."""
        out = np.zeros(self.symbolic.indices.size)
        out[self.places] = self._own_inverse()
        return out

    def inverse_at(self, entries: np.ndarray) -> np.ndarray:
        return self._own_inverse() if entries is self.places else super().inverse_at(entries)

    def row_variances(self, rows: DesignRows) -> np.ndarray:
        """By the entries of Q alone."""
        own = sp.csc_array((self._own_inverse(), self.Q.indices, self.Q.indptr), shape=self.Q.shape)
        return np.asarray((rows.W @ own).multiply(rows.W).sum(axis=1))

    def _whole(self) -> Factorisation:
        """The factor on the larger pattern: a change E of Q may join the parts."""
        data = np.zeros(self.symbolic.indices.size)
        data[self.places] = self.Q.data
        return self.symbolic.factor(data)

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        return self._whole().sandwich(data)

    def row_sandwich(self, rows: DesignRows, v: np.ndarray) -> np.ndarray:
        return self._whole().row_sandwich(rows, v)


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
        full = full_columns(W)
        union = sp.csc_array((np.ones(Q.nnz), Q.indices, Q.indptr), shape=Q.shape) + products_pattern(W, full)
        union.sort_indices()
        if max(union.nnz, *union.shape) < 2**31:  # half of the memory, whatever the rows came with
            union.indices, union.indptr = union.indices.astype(np.int32), union.indptr.astype(np.int32)
        self.shape, self.indices, self.indptr = union.shape, union.indices, union.indptr
        where, self.own = (self.indptr, self.indices), factor.symbolic
        self.rows = WideRows(W, *where, full) if full.size else DesignRows(W, *where)
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
        """Where the entries (row, column) stand in the union."""
        result, missing = places_in(self.indptr, self.indices, rows, columns)
        if missing.any():
            row, column = int(rows[missing][0]), int(columns[missing][0])
            raise problem(
                "SparsePrecision.reweighted",
                f"precision[{row}, {column}] is an entry that the pattern analysed does not have",
                "values on the pattern of the first precision, zeros stored where needed",
                "Make a new SparsePrecision for a new pattern.",
            )
        return result.astype(np.int32) if self.indices.size < 2**31 else result

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

    def with_rows(self, rows: DesignRows) -> Pattern:
        """The same pattern with other rows of the design."""
        out = copy.copy(self)
        out.__dict__.update(rows=rows, shared={}, _last=None)
        return out

    def restricted(self, rows: np.ndarray) -> Pattern:
        """The same pattern seen by fewer rows of W."""
        self.rows.pairs(self.symbolic)  # found once for all restrictions
        return self.with_rows(self.rows.take(rows))

    def factor(self, weight: np.ndarray) -> Factorisation:
        """Q + W' diag(weight) W, under the constraints; the last one made, if it is still in use and of these weights.

        A Gaussian likelihood asks for the same at its start, for Newton's step and where that ends.
        """
        last = self._last
        result = None if last is None or not np.array_equal(last[0], weight) else last[1]()
        if result is None:
            result = self._weighted(weight)
            self._last = np.array(weight), weakref.ref(result)
        return result

    def lowered_factor(self, weight: np.ndarray) -> Factorisation:
        """A factor of A = Q + W' diag(weight) W less what rounding can do: n eps sqrt(A_ii A_jj) in each entry of L."""
        symbolic, data = self.symbolic, self.q + self.rows.products @ weight
        data[symbolic.diagonal_entries] *= 1.0 - (symbolic.n + 8.0) * EPS * (2.0 * symbolic.nnz) ** 0.5
        return symbolic.factor(data)

    def _weighted(self, weight: np.ndarray) -> Factorisation:
        """A new factor of Q + W' diag(weight) W."""
        pairs = self.rows.pairs(self.symbolic)
        if pairs is None:
            return self.symbolic.factor(self.q + self.rows.products @ weight)
        x = np.zeros(pairs.symbolic.nnz)
        x[self._stored_places(pairs.symbolic)] = self.Q.data
        return pairs.symbolic.factor_of(pairs.add(weight, x))

    def _stored_places(self, symbolic: StoredAnalysis) -> np.ndarray:
        """Where the entries of Q stand in the layout of the factor; kept until Q has other entries."""
        known = self.shared.get("stored places")
        if known is None or known[0] is not self.places:
            known = self.shared["stored places"] = self.places, symbolic.everywhere[self.places]
        return known[1]

    @property
    def steepness(self) -> float:
        """Multiplications of a factorisation for each entry of L, leaves included: a solve passes over them as well."""
        return self.symbolic.work / self.symbolic.nnz

    def added(self, data: np.ndarray) -> Factorisation:
        """The factor of Q and of values on the pattern added to it, under the constraints."""
        return self.symbolic.factor(self.q + data)

    def quadratic(self, factor: Factorisation, W: Any) -> np.ndarray:
        """diag(W V W') of any rows: from the selected inverse where they are many and it holds their entries.

        Then the time grows with the rows; a solve for each takes as long as there are latents. Columns that most rows
        share, such as an intercept, are solved for once each: a latent without data has no entry beside them.
        """
        if W.shape[0] <= gates.SOLVED_ROWS:
            return row_quadratic(factor, W)
        shared = np.flatnonzero(np.bincount(W.indices, minlength=W.shape[1]) > _SHARED * W.shape[0])
        if not 0 < shared.size <= _MOST_SHARED + self.rows.n_full:
            return self._by_pairs(factor, W)
        F, one = W[:, shared], np.zeros((W.shape[1], shared.size))
        one[shared, np.arange(shared.size)] = 1.0
        V = factor.solve(one)
        own = np.ones(W.shape[1])
        own[shared] = 0.0
        N = sp.csr_array(W @ sp.diags_array(own))
        N.eliminate_zeros()
        both = 2.0 * (N @ V) + F @ V[shared]
        return self._by_pairs(factor, N) + np.asarray(F.multiply(both).sum(axis=1)).ravel()

    def _by_pairs(self, factor: Factorisation, W: Any) -> np.ndarray:
        """The same by the selected inverse, and by solves of the rows that have entries outside of it."""
        out, solved = np.empty(W.shape[0]), [np.arange(0)]
        widest = int(np.diff(W.indptr).max(initial=1)) ** 2
        if widest > self.indices.size:
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
