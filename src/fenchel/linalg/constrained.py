"""A sparse Gaussian under linear constraints C x = 0; its precision may be singular in constrained directions.

The covariance V is that of N(0, A^-1) given C x = 0. A small number of constraints over any latents is handled by
conditioning, for which only A + C' C must be positive definite. The factorised matrix is A_b = A + delta E E'. E marks
one node for each constraint, and has no columns if A is proper. With U = [E, C'] and K = diag(-delta, kappa),
A_b + U K U' = A + kappa C' C, and all results are A_b^-1 minus a correction of low rank:

    V = A_b^-1 - G H G',   G = A_b^-1 U,   M = (K^-1 + U' G)^-1,   H = M + T R^-1 T'
    T = I_C - M (U' G)_C,  R = C (A + kappa C' C)^-1 C',   log|.| = log|A_b| + log|I + K U' G| + log|R|

This log-determinant is that of A on the null space of C, for any delta and kappa; there is no jitter.

Thousands of constraints over few latents each are eliminated by a sparse basis B of the null space of C. Each of its
columns involves few latents, which are near each other in the graph of A (``constraint_bases.py``):

    x = B w,   V = B (B' A B)^-1 B',   log|B' A B|,   C B = 0

With T_B the sparse map from the entries of A to those of B' A B, the entries of V on the pattern of A are T_B' z, where
z is the selected inverse.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .arrays import ArrayLike
from .factorisation import Analysis, Factorisation, analyse, checked_columns
from .row_pairs import DesignRows, ordered_pairs, places_in

_ENTRIES = 2048  # entries of the pattern corrected at a time, within the cache


@dataclass(frozen=True)
class Constraint:
    """Linear constraints on L latents.

    Attributes
    ----------
    C : array (k, L)
        The constraints handled by conditioning.
    nodes : array (k,) or (0,)
        The nodes at which ``scale`` is added to the diagonal of a singular matrix before its factorisation.
    scale : float
        The scale of the entries of that matrix, for delta and kappa.
    basis : csr array (L, r) or None
        A basis of the null space of the other constraints, which are many and small.
    given : csr array, optional
        All constraints, as rows of length 1.
    """

    C: np.ndarray
    nodes: np.ndarray
    scale: float
    basis: Any = None
    given: Any = None

    def repeated(self, copies: int) -> Constraint:
        """The same constraints on each of several copies of the latents."""
        L, eye = self.C.shape[1], np.eye(copies)
        nodes = (L * np.arange(copies)[:, None] + self.nodes).ravel()
        basis = None if self.basis is None else sp.kron(sp.eye_array(copies), self.basis, "csr")
        return Constraint(np.kron(eye, self.C), nodes, self.scale, basis)

    @property
    def n_free(self) -> int:
        """The dimension of the null space of all constraints."""
        return int((self.C.shape[1] if self.basis is None else self.basis.shape[1]) - len(self.C))

    def within(self, nodes: np.ndarray) -> Constraint:
        """The constraints on these latents, which no constraint joins to others."""
        C, here = self.C[:, nodes], np.isin(self.nodes, nodes)
        basis = self.basis
        if basis is not None:
            basis = sp.csr_array(basis[nodes])
            basis = sp.csr_array(basis[:, np.flatnonzero(np.bincount(basis.indices, minlength=basis.shape[1]))])
            basis.sort_indices()
            basis = None if basis.shape[0] == basis.shape[1] else basis  # none of these latents is constrained by it
        place = np.searchsorted(nodes, self.nodes[here])
        return replace(self, C=C[np.abs(C).sum(axis=1) > 0.0], nodes=place, basis=basis)

    def links(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Pairs of latents joined by constraints: each latent with the first of its constraint or basis column."""
        out = []
        for C in (self.C, *([] if self.basis is None else [self.basis.T])):
            rows = sp.csr_array(C)
            count = np.diff(rows.indptr)
            some = rows.indptr[:-1][count > 0]
            out.append((np.repeat(rows.indices[some], count[count > 0]), rows.indices))
        return out


class HeldAnalysis(Analysis):
    """The analysis of A under constraints, through the analysis of another matrix, whose cost it has."""

    def __init__(self, A: Any, inner: Analysis) -> None:
        self.n, self.indptr, self.indices = A.shape[0], A.indptr.copy(), A.indices.copy()
        self.inner, self.nnz, self.work, self.compiled = inner, inner.nnz, inner.work, inner.compiled


class ConditionedAnalysis(HeldAnalysis):
    """An analysis whose factors of A are conditioned on C x = 0."""

    def __init__(self, A: Any, constraint: Constraint) -> None:
        super().__init__(A, analyse(A, replace(constraint, C=constraint.C[:0])))
        self.constraint = constraint

    def with_nodes(self, nodes: np.ndarray) -> ConditionedAnalysis:
        """The same analysis for singular matrices, which are made regular at these nodes."""
        out = copy.copy(self)
        out.constraint = replace(self.constraint, nodes=nodes)
        return out

    def factor(self, data: np.ndarray) -> ConditionedCholesky:
        C, nodes, scale = self.constraint.C, self.constraint.nodes, self.constraint.scale
        if nodes.size:
            data = data.copy()
            data[self.diagonal_entries[nodes]] += scale
        E = np.zeros((self.n, nodes.size))
        E[nodes, np.arange(nodes.size)] = 1.0
        K = np.repeat([-scale, scale], [nodes.size, len(C)])
        return ConditionedCholesky(self, self.inner.factor(data), np.hstack([E, C.T]), K, len(C))


class ConditionedCholesky(Factorisation):
    """A ``Factorisation`` conditioned on a small number of constraints.

    Parameters
    ----------
    base : Factorisation
        The factorisation of A + delta E E'.
    U : array (n, m)
        [E, C']; the last ``n_constraints`` columns are C'.
    K : array (m,)
        -delta for each column of E, kappa for each of C'.
    """

    def __init__(self, symbolic: Analysis, base: Factorisation, U: np.ndarray, K: np.ndarray, n_constraints: int):
        self.symbolic, self.base, self.U, self.n = symbolic, base, U, base.n
        self._C = U[:, U.shape[1] - n_constraints :]
        alone = np.count_nonzero(self._C, axis=0) == 1
        self._pinned = np.flatnonzero(self._C[:, alone].any(axis=1))  # latents fixed at 0 by a constraint
        self._project = np.linalg.inv(self._C.T @ self._C)
        self.G = base.solve(U)
        self._UG = U.T @ self.G
        # inertia: A is positive definite on C x = 0 if this matrix has one negative eigenvalue for each column of E
        bordered = np.diag(np.where(K < 0.0, 1.0 / K, 0.0)) + (self._UG + self._UG.T) / 2
        self.definite = int((np.linalg.eigvalsh(bordered) < 0.0).sum()) == int((K < 0.0).sum())
        M = np.linalg.inv(np.diag(1.0 / K) + self._UG)
        last = slice(U.shape[1] - n_constraints, U.shape[1])
        T = np.eye(U.shape[1])[:, last] - M @ self._UG[:, last]
        R = (self._UG @ T)[last]
        self.H = M + T @ np.linalg.solve(R, T.T)
        self.H = (self.H + self.H.T) / 2
        sign, first = np.linalg.slogdet(np.eye(K.size) + K[:, None] * self._UG)
        sign_R, second = np.linalg.slogdet(R)
        self.proper = bool(sign > 0 and sign_R > 0 and np.isfinite(first + second))
        self.log_det, self.smallest_pivot = base.log_det + first + second, base.smallest_pivot

    @property
    def log_det_rounding(self) -> float:  # type: ignore[override]
        """The rounding error of the base factorisation."""
        return self.base.log_det_rounding

    def _correct(self, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        return x - self.G @ (self.H @ (self.G.T @ b))

    def _projected(self, x: np.ndarray) -> np.ndarray:
        """x without its part along the constraints, where V is 0 and A_b^-1 large, so that only rounding remains."""
        x = x - self._C @ (self._project @ (self._C.T @ x))
        x[self._pinned] = 0.0
        return x

    def solve(self, b: ArrayLike) -> np.ndarray:
        """The product V b."""
        b = self._projected(np.asarray(b, dtype=np.float64))
        return self._projected(self._correct(self.base.solve(b), b))

    def row_variances(self, rows: DesignRows) -> np.ndarray:
        if self._pinned.size:  # by entries, so that latents fixed at 0 have exactly 0
            return super().row_variances(rows)
        WG = rows.W @ self.G
        return rows.products.T @ self.base.inverse_data() - np.sum((WG @ self.H) * WG, axis=1)

    def inverse_diagonal(self) -> np.ndarray:
        """The diagonal of V."""
        out = self.base.inverse_diagonal() - np.sum((self.G @ self.H) * self.G, axis=1)
        out[self._pinned] = 0.0
        return out

    def inverse_data(self) -> np.ndarray:
        """The entries of V on the pattern."""
        return self._cleared(self._minus_products(np.array(self.base.inverse_data()), self.G @ self.H))

    def _minus_products(self, out: np.ndarray, N: np.ndarray, both: bool = False) -> np.ndarray:
        """``out`` minus N G' on the pattern; with ``both`` also minus G N'."""
        rows, columns = self.symbolic.indices, self.symbolic.columns
        for a in range(0, out.size, _ENTRIES):  # blocks that fit in the cache
            i, j = rows[a : a + _ENTRIES], columns[a : a + _ENTRIES]
            out[a : a + _ENTRIES] -= np.einsum("ij,ij->i", N[i], self.G[j])
            if both:
                out[a : a + _ENTRIES] -= np.einsum("ij,ij->i", self.G[i], N[j])
        return out

    def _cleared(self, out: np.ndarray) -> np.ndarray:
        """Values on the pattern, with zeros for latents that are fixed at 0."""
        if self._pinned.size:
            fixed = np.isin(np.arange(self.n), self._pinned)
            out[fixed[self.symbolic.indices] | fixed[self.symbolic.columns]] = 0.0
        return out

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """V E V on the pattern, from E's values there. With F = A_b^-1 E G, M = H G' E G H and N = F H - G M / 2,

        V E V = A_b^-1 E A_b^-1 - N G' - G N'.
        """
        S = self.symbolic
        E = sp.csc_array((data, S.indices, S.indptr), shape=(S.n, S.n))
        EG = E @ self.G
        N = (self.base.solve(EG) - 0.5 * self.G @ (self.H @ (self.G.T @ EG))) @ self.H
        return self._cleared(self._minus_products(self.base.sandwich(data), N, both=True))

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """Draws with covariance V from standard normal noise (n, k), obtained by conditioning draws of the base."""
        x = self.base.sample(noise)
        columns = x.reshape(self.n, -1)
        U, G, UG, H = self._independent()
        inverse = np.linalg.inv(UG)
        values, vectors = np.linalg.eigh((inverse + inverse.T) / 2 - H)
        values = np.where(values > 1e-12 * np.abs(values).max(), values, 0.0)  # constrained directions do not vary
        root = vectors * np.sqrt(values)
        # the part of x outside span(G) is correct and independent of U'x, whose variation, standardised by its Cholesky
        # factor, serves as noise for a new draw of the part inside
        seen = U.T @ columns
        fresh = np.linalg.solve(np.linalg.cholesky((UG + UG.T) / 2), seen)
        return self._projected(columns - G @ (inverse @ seen) + G @ (root @ fresh)).reshape(x.shape)

    def _independent(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """U, G, U'G and H without duplicate columns of U, such as a pinned node's own column and its constraint's."""
        _, R, order = scipy.linalg.qr(self.U, mode="economic", pivoting=True)
        size = np.abs(np.diag(R))
        keep = np.sort(order[: int((size > 1e-10 * size[0]).sum())])
        if keep.size == self.U.shape[1]:
            return self.U, self.G, self._UG, self.H
        T = np.linalg.lstsq(self.U[:, keep], self.U, rcond=None)[0]
        return self.U[:, keep], self.G[:, keep], self._UG[np.ix_(keep, keep)], T @ self.H @ T.T


class BasisAnalysis(HeldAnalysis):
    """An analysis whose factors are those of B' A B, for x = B w."""

    def __init__(self, A: Any, basis: Any) -> None:
        self.basis = basis
        ones = sp.csr_array((np.ones(basis.nnz), basis.indices, basis.indptr), shape=basis.shape)
        pattern = sp.csc_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
        inner = sp.csc_array(ones.T @ pattern @ ones)
        inner.sort_indices()
        super().__init__(A, analyse(inner))
        self.map = self._products(inner, self.columns)

    def _products(self, inner: Any, columns: np.ndarray) -> Any:
        """T_B: entry (i, j) of A contributes B_ia B_jb times itself to entry (a, b) of B' A B, for all a and b."""
        basis = self.basis
        start, count = basis.indptr, np.diff(basis.indptr)
        ends = (start[self.indices], count[self.indices], start[columns], count[columns])
        entry, first, second = ordered_pairs(*ends)
        place, _ = places_in(inner.indptr, inner.indices, basis.indices[first], basis.indices[second])
        value = basis.data[first] * basis.data[second]
        return sp.csr_array((value, (place, entry)), shape=(inner.nnz, self.indices.size))

    def factor(self, data: np.ndarray) -> BasisCholesky:
        return BasisCholesky(self, self.inner.factor(self.map @ data))


class BasisCholesky(Factorisation):
    """The covariance of x = B w from a ``Factorisation`` of B' A B."""

    def __init__(self, symbolic: BasisAnalysis, inner: Factorisation) -> None:
        self.symbolic, self.inner, self.n = symbolic, inner, symbolic.n
        self.log_det, self.smallest_pivot = inner.log_det, inner.smallest_pivot
        self.definite = inner.definite

    @property
    def log_det_rounding(self) -> float:  # type: ignore[override]
        return self.inner.log_det_rounding

    def solve(self, b: ArrayLike) -> np.ndarray:
        """The product V b for b (n,) or (n, k)."""
        B = self.symbolic.basis
        return (B @ self.inner.solve(B.T @ checked_columns(b, self.n))).reshape(np.shape(b))

    def sample(self, noise: ArrayLike) -> np.ndarray:
        """Draws with covariance V from standard normal noise (n,) or (n, k), of which some is not used."""
        B = self.symbolic.basis
        return (B @ self.inner.sample(checked_columns(noise, self.n)[: B.shape[1]])).reshape(np.shape(noise))

    def inverse_data(self) -> np.ndarray:
        """The entries of V on the pattern."""
        return np.asarray(self.symbolic.map.T @ self.inner.inverse_data())

    def sandwich(self, data: np.ndarray) -> np.ndarray:
        """V E V on the pattern, from E's values there."""
        T = self.symbolic.map
        return np.asarray(T.T @ self.inner.sandwich(T @ data))
