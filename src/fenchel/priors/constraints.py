"""Constraints C x = 0 that hold a sparse prior, checked, and its factor under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ..checks import choice, finite, numeric, problem
from ..linalg.bases import split_local
from ..linalg.constrained import ConstrainedCholesky
from ..linalg.dense import NotPositiveDefinite
from ..linalg.eliminated import analyse_free
from ..linalg.factorisation import Analysis, Factorisation, analyse
from ..linalg.sparse import symmetric_csc

_HARMLESS = 1e-3  # pivots above this share of the diagonal: no direction is nearly flat
_APART = 1e-6  # of the square of a row of length 1 that is outside the span of others: they are independent
_NOISE = 100.0  # of the rounding in x'Qx: singular matrices stay below 1, proper ones with 1e-10 on top are above 1e4


@dataclass(frozen=True)
class Constraint:
    """C (k, L), and what is added to Q so that it can be factorised: ``shift`` on its diagonal at ``nodes``.

    ``basis`` (L, r) is of what further constraints leave free, many and small ones: the factor is of that already.
    ``given`` are all of them, as rows of length 1.
    """

    C: np.ndarray
    nodes: np.ndarray
    shift: float
    kappa: float
    basis: Any = None
    given: Any = None

    def analyse(self, A: Any, copies: int = 1) -> Analysis:
        """The analysis of A on what the basis leaves free; ``copies`` of the latents side by side for a softmax."""
        basis = self.basis if copies == 1 or self.basis is None else sp.kron(sp.eye_array(copies), self.basis, "csr")
        return analyse_free(A, basis)

    def hold(self, base: Factorisation, copies: int = 1) -> Factorisation:
        """The factor under the constraints; ``copies`` of the latents side by side for a softmax."""
        if not len(self.C):
            return base
        E = np.zeros((self.C.shape[1], self.nodes.size))
        E[self.nodes, np.arange(self.nodes.size)] = 1.0
        eye = np.eye(copies)
        U = np.hstack([np.kron(eye, E), np.kron(eye, self.C.T)])
        k = copies * self.C.shape[0]
        K = np.r_[np.full(copies * self.nodes.size, -self.shift), np.full(k, self.kappa)]
        return ConstrainedCholesky(base, U, K, k)


def constrained(Q: Any, constraints: Any) -> tuple[Constraint | None, Factorisation]:
    """The constraint, if there is one, and the prior's factor under it. Raises NotPositiveDefinite."""
    if constraints is None:
        return None, solid(Q, analyse(Q))
    scale = float(Q.diagonal().mean())
    given = checked_constraints(Q, constraints)
    basis, C = split_local(given, Q)
    analysis = analyse_free(Q, basis)
    try:
        free = Constraint(C, np.zeros(0, dtype=int), 0.0, scale, basis, given)
        return free, free.hold(solid(Q, analysis))
    except (NotPositiveDefinite, np.linalg.LinAlgError):
        if not len(C):
            raise NotPositiveDefinite("the constraints do not fix its null space") from None
        nodes = _telling(C)
        held = Constraint(C, nodes, scale, scale, basis, given)
        base = Q.copy()
        base.setdiag(Q.diagonal() + scale * np.isin(np.arange(Q.shape[0]), nodes))
        try:
            factor = held.hold(analysis.factor(symmetric_csc(base).data))
        except (NotPositiveDefinite, np.linalg.LinAlgError):
            raise NotPositiveDefinite("the constraints do not fix its null space") from None
        if not getattr(factor, "proper", True) or is_singular(Q, factor):
            raise NotPositiveDefinite("the constraints do not fix its null space") from None
        return held, factor


def _telling(C: np.ndarray) -> np.ndarray:
    """A node for each constraint, such that C there tells them apart."""
    if ((C != 0.0).sum(axis=0) <= 1).all():  # the heaviest node of each
        return np.abs(C).argmax(axis=1)
    return np.asarray(scipy.linalg.qr(C, mode="r", pivoting=True)[1][: C.shape[0]])


def solid(Q: Any, analysis: Analysis) -> Factorisation:
    """The factor of a precision that is not singular to rounding; an intrinsic one may factorise by luck."""
    factor = analysis.factor(Q.data)
    if is_singular(Q, factor):
        raise NotPositiveDefinite("it is singular to rounding")
    return factor


def is_singular(Q: Any, factor: Factorisation) -> bool:
    """Whether some x, within the constraints, has x' Q x below the rounding of its own terms.

    Inverse iteration finds it. A pivot of a singular matrix may come out far above zero by rounding, and where depends
    on the scale of Q; this does not. A matrix without small pivots is spared the solves.
    """
    if factor.smallest_pivot > _HARMLESS:
        return False
    x = np.random.default_rng(0).standard_normal(Q.shape[0])
    for _ in range(2):
        x = factor.solve(x)
        x /= np.abs(x).max()
    return not float(x @ (Q @ x)) > _NOISE * np.finfo(float).eps * float(np.abs(x) @ (abs(Q) @ np.abs(x)))


def checked_constraints(Q: Any, constraints: Any) -> sp.csr_array:
    """C (k, L), its rows scaled to length 1 and independent."""
    L = Q.shape[0]
    if isinstance(constraints, str):
        choice("SparsePrecision", "constraints", constraints, ("sum-to-zero",))
        C = _sums(Q)
    elif sp.issparse(constraints):
        C = sp.csr_array(constraints).astype(np.float64)
        finite("SparsePrecision", "constraints", C.data)
    else:
        dense = np.atleast_2d(numeric("SparsePrecision", "constraints", constraints))
        C = sp.csr_array(finite("SparsePrecision", "constraints", dense)) if dense.ndim == 2 else dense
    if C.ndim != 2 or C.shape[1] != L or not _independent(C := _unit_rows(C)):
        raise problem(
            "SparsePrecision", f"constraints of shape {C.shape}", f"(k, {L}), its rows independent of each other"
        )
    return C


def _sums(Q: Any) -> sp.csr_array:
    """A row for each connected component of Q.

    Where every latent stands alone, as under a diagonal precision, they sum to zero together: a sum of one would hold
    each of them at 0.
    """
    parts, label = sp.csgraph.connected_components(Q, directed=False)
    if parts == label.size and (Q.diagonal() > 0.0).all():
        parts, label = 1, np.zeros_like(label)
    return sp.csr_array((np.ones(label.size), (label, np.arange(label.size))), shape=(parts, label.size))


def _unit_rows(C: sp.csr_array) -> sp.csr_array:
    """Each row divided by its length, of which a row of zeros has none; by its largest entry first, for squares."""
    for size in (lambda values: np.abs(values).max(initial=0.0), np.linalg.norm):
        each = np.array([size(values) for values in np.split(C.data, C.indptr[1:-1])])
        C = sp.csr_array(
            (C.data / np.repeat(np.where(each > 0.0, each, 1.0), np.diff(C.indptr)), C.indices, C.indptr), C.shape
        )
    C.eliminate_zeros()
    return C


def _independent(C: sp.csr_array) -> bool:
    """Whether rows of length 1 are: by C C' where that says so beyond doubt, else by their singular values."""
    if (np.diff(C.indptr) == 0).any():
        return False
    products = symmetric_csc(C @ C.T)
    if products.nnz == C.shape[0]:  # no two share a latent
        return True
    try:
        if analyse(products).factor(products.data).smallest_pivot > _APART:
            return True
    except NotPositiveDefinite:
        pass
    return int(np.linalg.matrix_rank(C.toarray())) == C.shape[0]
