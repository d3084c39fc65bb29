"""Constraints C x = 0 that hold a sparse prior, checked, and its factor under them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ..checks import choice, finite, numeric, problem
from ..linalg.constrained import Constraint
from ..linalg.constraint_bases import split_local
from ..linalg.dense import NotPositiveDefinite
from ..linalg.factorisation import SMALL_PIVOT, Factorisation, analyse
from ..linalg.matrix_designs import checked_indices
from ..linalg.supernodal import symmetric_csc

_APART = 1e-6  # of the square of a row of length 1 outside the span of others, above which rows are independent
_NOISE = 100.0  # of the rounding in x'Qx: singular matrices stay below 1, proper ones with 1e-10 on top are above 1e4


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


def checked_constraints(Q: Any, constraints: Any) -> sp.csr_array:
    """C (k, L), its rows scaled to length 1 and independent."""
    L = Q.shape[0]
    if isinstance(constraints, str):
        choice("SparsePrecision", "constraints", constraints, ("sum-to-zero",))
        C = _sums(Q)
    elif sp.issparse(constraints):
        C = sp.csr_array(checked_indices("SparsePrecision", "constraints", constraints)).astype(np.float64)
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
