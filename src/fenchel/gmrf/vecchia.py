"""Vecchia's approximation of a Gaussian process: each point given its nearest among those before it.

    p(f) = prod_i N(f_i; b_i' f_N(i), v_i),    b_i = K_NN^-1 k_Ni,  v_i = k_ii - k_iN b_i
    Q = sum_i w_i w_i' / v_i,    w_i = e_i - b_i                 sparse: pairs that condition on one another

Points come in an order whose beginnings are spread out (nets of decreasing radius, an approximate maximin order), so
that neighbours reach far for the first and near for the last. With n - 1 neighbours it is exact. Kernels are
stationary, with a range of their own along each column, where the correlation is about 0.14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from ._vecchia import assembled, clique_pattern, conditionals, net_order

KERNELS = {"matern12": 1, "matern32": 2, "matern52": 3, "rbf": 0}
NUGGET = 1e-8  # of the variance, independent of point to point: smooth kernels have no digits left without it
_NETS = 5  # columns up to which nets are made: each doubles the cells around a point by three


def spread_order(Z: np.ndarray) -> np.ndarray:
    """An order (n,) of points in ranges whose beginnings are spread out; of very many columns a random one."""
    n, d = Z.shape
    mixed = np.random.default_rng(0).permutation(n)
    if d > _NETS or n < 3:
        return mixed
    low, extent = Z.min(axis=0), float(np.ptp(Z, axis=0).max())
    return np.asarray(mixed[net_order(np.ascontiguousarray((Z - low)[mixed]), 60, extent, np.sqrt(0.5))])


def previous_neighbours(Z: np.ndarray, m: int) -> np.ndarray:
    """The m nearest among the points before each, (n, m), nearest first, -1 where there are fewer."""
    n = len(Z)
    out = np.full((n, m), -1, dtype=np.int64)
    begin = 1
    while begin < n:
        end = min(max(2 * begin, m + 2), n)
        tree, ask, k = cKDTree(Z[:end]), np.arange(begin, end), min(2 * m + 2, end)
        while ask.size:
            found = tree.query(Z[ask], k)[1].reshape(ask.size, k)
            before = found < ask[:, None]
            enough = before.sum(axis=1) >= np.minimum(m, ask)
            rows, near = ask[enough], found[enough]
            rank = np.cumsum(before[enough], axis=1) - 1
            keep = before[enough] & (rank < m)
            i, j = np.nonzero(keep)
            out[rows[i], rank[i, j]] = near[i, j]
            ask, k = ask[~enough], min(2 * k, end)
        begin = end
    return out


def _pattern(near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """indptr and indices of Q."""
    rows, columns = clique_pattern(near)
    pattern = sp.csc_array((np.ones(rows.size, dtype=np.int8), (rows, columns)), shape=(len(near), len(near)))
    pattern.sort_indices()
    return pattern.indptr, pattern.indices


@dataclass(frozen=True)
class Vecchia:
    """The precision of a process at points; theta = (log sd, log ranges).

    Attributes
    ----------
    X : array (n, d)
        In order.
    neighbours : int array (n, m)
    kind : int
        Of ``KERNELS``.
    shared : bool
        One range for all columns.
    indptr, indices : of Q
    """

    X: np.ndarray
    neighbours: np.ndarray
    kind: int
    shared: bool
    indptr: np.ndarray
    indices: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, ranges: np.ndarray, m: int, kernel: str, shared: bool) -> tuple[Vecchia, np.ndarray]:
        """From distinct points and the ranges in which neighbours are near; and the order."""
        order = spread_order(X / ranges)
        near = previous_neighbours(X[order] / ranges, min(m, len(X) - 1))
        return cls(np.ascontiguousarray(X[order]), near, KERNELS[kernel], shared, *_pattern(near)), order

    def verify(self) -> None:
        """Raise ValueError where points, neighbours and pattern do not belong together: compiled loops rely on it."""
        n, near = len(self.X), self.neighbours
        if self.X.ndim != 2 or near.ndim != 2 or near.dtype != np.int64 or len(near) != n or near.shape[1] > n:
            raise ValueError("the neighbours of points are none")
        if near.size and (near.min() < -1 or (near >= np.arange(n)[:, None]).any()):
            raise ValueError("a neighbour of a point does not come before it")
        if self.kind not in KERNELS.values():
            raise ValueError("a kernel that there is not")
        for own, found in zip((self.indptr, self.indices), _pattern(near), strict=True):
            if own.dtype != found.dtype or not np.array_equal(own, found):
                raise ValueError("the pattern of neighbours is not theirs")

    def ranges(self, theta: np.ndarray) -> np.ndarray:
        """Along each column (d,)."""
        return np.asarray(np.exp(np.broadcast_to(theta[1:], (self.X.shape[1],))))

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        Z, n = np.ascontiguousarray(self.X / self.ranges(theta)), len(self.X)
        found = conditionals(self.kind, NUGGET, Z, Z, self.neighbours, True)
        data, slopes = assembled(self.indptr, self.indices, self.neighbours, *found)
        k = float(np.exp(-2.0 * theta[0]))
        each = [slopes.sum(axis=0)] if self.shared else list(slopes)
        matrix = lambda values: sp.csc_array((k * values, self.indices, self.indptr), shape=(n, n))
        return matrix(data), [matrix(-2.0 * data), *(matrix(slope) for slope in each)]

    def at(self, theta: np.ndarray, points: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Weights (N, n) of the points for values elsewhere, given the nearest, and the variance left at sd 1."""
        ranges, m = self.ranges(theta), self.neighbours.shape[1]
        Z, P = np.ascontiguousarray(self.X / ranges), np.ascontiguousarray(points / ranges)
        near = cKDTree(Z).query(P, m)[1].reshape(len(P), m).astype(np.int64)
        weights, left, _, _ = conditionals(self.kind, NUGGET, Z, P, near, False)
        rows = np.repeat(np.arange(len(P)), m)
        return sp.csr_array((weights.ravel(), (rows, near.ravel())), shape=(len(P), len(Z))), left
