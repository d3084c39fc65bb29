"""What a sparse factorisation would cost, before any is made: by the pattern alone, in a given order.

The order is a guess (independent leaves first, then by the number of neighbours), so the cost is one that can be had:
an order found at length may cost less, by a small factor where everything is joined to everything else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp


class Cost(NamedTuple):
    """Of one factorisation: bytes of the factor, and multiplications."""

    memory: float
    work: float


def factor_cost(A: sp.csc_array, leaves: np.ndarray, most: float) -> Cost:
    """The cost of a factor of a symmetric A (n, n), both triangles stored, ``leaves`` (n,) eliminated first.

    Where it takes more than ``most`` bytes, how many more is not counted: both costs are infinite.
    """
    from . import _symbolic as kernels
    from ._counts import counts_up_to

    degree = np.diff(A.indptr)
    order = np.lexsort((degree, ~leaves))
    for _ in range(2):  # the second time in postorder
        B = sp.csc_array(A[order][:, order])
        B.sort_indices()
        parent = kernels.elimination_tree(B.indptr, B.indices)
        post = kernels.postorder(parent)
        if np.array_equal(post, np.arange(post.size)):
            break
        order = order[post]
    found, whole = counts_up_to(B.indptr, B.indices, parent, int(most / 8.0))
    count = found.astype(np.float64)
    return Cost(8.0 * float(count.sum()), 0.5 * float((count**2).sum())) if whole else Cost(np.inf, np.inf)
