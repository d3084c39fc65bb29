"""Which rows stand for the others: pivoted Cholesky that picks the largest w_n c_n, c = diag(K - Q) of those picked.

    w_n = lam_n + alpha_n^2 at the last fit: what the bound on the loss adds up, to first order; 1 before any fit

The pivots are those of the greedy rule, one by one, but the remainders of all rows are brought up to date a block of
pivots at a time: c only falls, so the best of the rows with the largest scores is the best of all while it is above
every score outside of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cross_kernels import cross, variances
from ..linalg.arrays import Array, asarray, is_numpy, namespace, to_numpy
from ..linalg.dense import asarray_index
from ..linalg.machine import over_rows

BLOCK = 64  # pivots between two passes over the rows
SHORTLIST = 512  # rows with the largest scores, among which a block is picked
LEAST = 1e-9  # of the largest variance: a remainder below this is a row that the pivots explain
CANDIDATES_BYTES = 1.0 * 2**30  # of the rows of Cholesky's factor: of more rows a sample is looked at
DEVICE_BYTES = 8.0 * 2**30  # the same on a device


def choose_rows(
    kernel: Any, X: Array, n: int, weights: np.ndarray | None = None, rng: np.random.Generator | None = None
) -> np.ndarray:
    """The numbers of at most n rows of X, the most useful first; fewer where they explain every row (duplicates).

    Where X lives on a device, Cholesky's factor of all rows does too; the shortlists come to the host.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.priors.pivots import choose_rows
    >>> X = np.repeat(np.linspace(0.0, 1.0, 3), 4)[:, None]
    >>> X[choose_rows(RBF(0.3), X, 10), 0].tolist()
    [0.0, 1.0, 0.5]
    """
    total = X.shape[0]
    n = min(n, total)
    w = np.ones(total) if weights is None else np.asarray(weights, dtype=np.float64)
    few = max(2 * n, int((CANDIDATES_BYTES if is_numpy(X) else DEVICE_BYTES) / (8.0 * max(1, n))))
    if total > few:
        drawn = np.sort((rng or np.random.default_rng(0)).choice(total, few, replace=False))
        return np.asarray(drawn[choose_rows(kernel, X[asarray_index(drawn, X)], n, w[drawn])])
    white = variances(kernel, X[:1])[0] - cross(kernel, X[:1], X[:1])[0, 0]
    c = np.maximum(to_numpy(variances(kernel, X) - white), 0.0)
    least = LEAST * float(c.max(initial=0.0))
    G = np.empty((total, n)) if is_numpy(X) else namespace(X).empty((total, n), dtype=X.dtype, device=X.device)
    picked = np.empty(0, dtype=int)
    while picked.size < n:
        new = _block(kernel, X, w, c, G[:, : picked.size], least, min(BLOCK, n - picked.size))
        if new.size == 0:
            break
        c = _extend(kernel, X, G, c, picked.size, new)
        picked = np.concatenate([picked, new])
    return picked


def _block(kernel: Any, X: Array, w: np.ndarray, c: np.ndarray, G: Array, least: float, most: int) -> np.ndarray:
    """The next pivots, as many as are certain without a pass over all rows."""
    score = np.where(c > least, w * c, -1.0)
    size = min(SHORTLIST, score.size)
    few = np.argpartition(-score, size - 1)[:size]
    few = few[score[few] >= 0.0]
    few = few[np.argsort(-score[few], kind="stable")]
    outside = -1.0
    if few.size == size < score.size:
        rest = score.copy()
        rest[few] = -1.0
        outside = float(rest.max())
    if few.size == 0:
        return few
    left = _left(kernel, X, G, few)
    own, picked = c[few].copy(), list[int]()
    F = np.zeros((few.size, min(most, few.size)))
    for k in range(F.shape[1]):
        value = np.where(own > least, w[few] * own, -1.0)
        i = int(np.argmax(value))
        if value[i] < 0.0 or (picked and value[i] < outside):
            break
        F[:, k] = (left[:, i] - F[:, :k] @ F[i, :k]) / np.sqrt(own[i])
        own = np.maximum(own - F[:, k] ** 2, 0.0)
        own[i] = 0.0
        picked.append(i)
    return np.asarray(few[picked])


def _left(kernel: Any, X: Array, G: Array, rows: np.ndarray) -> np.ndarray:
    """The covariance of a few rows that the pivots before do not explain, on the host."""
    at = asarray_index(rows, X)
    few, own = X[at], G[at]
    return to_numpy(cross(kernel, few, few) - own @ own.T)


def _extend(kernel: Any, X: Array, G: Array, c: np.ndarray, done: int, new: np.ndarray) -> np.ndarray:
    """The columns of Cholesky's factor for new pivots; returns what is left of c."""
    m, at = new.size, asarray_index(new, X)
    left = _left(kernel, X, G[:, :done], new)
    left[np.diag_indices(m)] *= 1.0 + 1e-12
    try:
        U = np.linalg.inv(np.linalg.cholesky(left)).T
    except np.linalg.LinAlgError:  # pivots that explain each other but for rounding
        values, vectors = np.linalg.eigh(left)
        U = vectors / np.sqrt(np.maximum(values, 1e-12 * values.max()))
    pivots, at_pivots, xp = X[at], G[at, :done], namespace(X)
    width, V = done + m, asarray(U, X)

    def one(some: slice) -> np.ndarray:
        part = cross(kernel, X[some, :], pivots)
        part -= G[some, :done] @ at_pivots.T
        own = part @ V
        G[some, done:width] = own
        return to_numpy(xp.sum(own * own, axis=1))

    out = np.maximum(c - np.concatenate(over_rows(X.shape[0], width, one, is_numpy(X))), 0.0)
    out[new] = 0.0
    return out
