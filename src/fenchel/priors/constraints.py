"""Constraints C x = 0 that hold a sparse prior, as a user gives them, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import choice, finite, numeric, problem
from ..linalg.dense import NotPositiveDefinite
from ..linalg.factorisation import analyse, symmetric_csc
from ..linalg.matrix_designs import checked_indices

_APART = 1e-6  # of the square of a row of length 1 outside the span of others, above which rows are independent


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
