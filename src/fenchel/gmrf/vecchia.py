"""Vecchia's approximation of a Gaussian process: each point is conditioned on its nearest earlier points.

    p(f) = prod_i N(f_i; b_i' f_N(i), v_i),    b_i = K_NN^-1 k_Ni,  v_i = k_ii - k_iN b_i
    Q = sum_i w_i w_i' / v_i,    w_i = e_i - b_i                 sparse: pairs of points in a common set {i} + N(i)

Points are in a spread-out order (nets of decreasing radius, an approximate maximin order). The first points therefore
have distant neighbours and the last have near ones. With n - 1 neighbours it is exact. Kernels are stationary, with one
range for each column, the distance at which the correlation is about 0.14.

The factor of Q with the information of the data has about n^1.3 entries in the plane. With knots, the first K points of
the order, later points are conditioned on knots alone and are leaves of the factorisation, whose cost is then that of K
points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from ..kernel_profiles import PROFILES
from ..kernels import KERNELS
from ..linalg.machine import on_every_core
from ._point_loops import assembled, conditionals, net_order

Conditionals: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # neighbours -> weights, variances
Covariance: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
NUGGET = 1e-8  # of the variance, independent between points; without it smooth kernels are singular in doubles
_LEVELS = 60  # number of nets; from one to the next the distance of points is divided by 1.4
_NETS = 5  # most columns for which nets are made, since the cells around a point triple with each column
_BLOCK = 100_000  # number of points whose neighbours are searched at once
_SOME = 2000  # number of points at which the variance beyond the knots is measured
_SETS = 4  # number of neighbourhoods from which a new point chooses, if there are knots


def spread_order(Z: np.ndarray, most: int | None = None) -> np.ndarray:
    """A spread-out order (n,) of points in units of the ranges; with very many columns a random order.

    Only the first ``most`` points (default: all) are certain to be spread out.
    """
    n, d = Z.shape
    mixed = np.random.default_rng(0).permutation(n)
    if d > _NETS or n < 3:
        return mixed
    low, extent = Z.min(axis=0), float(np.ptp(Z, axis=0).max())
    if not extent:  # white noise: equal points are distinct
        return mixed
    X, most = np.ascontiguousarray((Z - low)[mixed]), n if most is None else most
    return np.asarray(mixed[net_order(X, _LEVELS, extent, np.sqrt(0.5), most)])


def previous_neighbours(Z: np.ndarray, m: int) -> np.ndarray:
    """The m nearest points among those before each, (n, m), nearest first; -1 if there are fewer."""
    n = len(Z)
    out = np.full((n, m), -1, dtype=np.int32)
    begin = 1
    while begin < n:
        end = min(max(2 * begin, m + 2), n)
        tree = cKDTree(Z[:end])
        for some in np.array_split(np.arange(begin, end), -(-(end - begin) // _BLOCK)):
            ask, k = some, min(2 * m + 2, end)
            while ask.size:
                candidates = tree.query(Z[ask], k)[1].reshape(ask.size, k)
                before = candidates < ask[:, None]
                enough = before.sum(axis=1) >= np.minimum(m, ask)
                rows, near = ask[enough], candidates[enough]
                rank = np.cumsum(before[enough], axis=1) - 1
                keep = before[enough] & (rank < m)
                i, j = np.nonzero(keep)
                out[rows[i], rank[i, j]] = near[i, j]
                ask, k = ask[~enough], min(2 * k, end)
        begin = end
    return out


def nearest(Z: np.ndarray, points: np.ndarray, m: int) -> np.ndarray:
    """The m nearest rows of Z for each point (N, m)."""
    tree, out = cKDTree(Z), np.empty((len(points), m), dtype=np.int32)
    for a in range(0, len(points), _BLOCK):
        out[a : a + _BLOCK] = tree.query(points[a : a + _BLOCK], m)[1].reshape(-1, m)
    return out


def around(Z: np.ndarray, points: np.ndarray, m: int) -> np.ndarray:
    """Rows of Z near each point and on all sides of it (N, k), padded with -1; Z is in a spread-out order.

    These are the m nearest of all rows, of the first quarter, of the first sixteenth and so on, whose points are
    further apart. Next to a gap the m nearest are all on one side, and predictions across the gap would have a step.
    """
    nearest_sets, size = [nearest(Z, points, m)], len(Z) // 4
    while size >= m:
        nearest_sets.append(nearest(Z[:size], points, m))
        size //= 4
    near = np.sort(np.hstack(nearest_sets), axis=1)
    near[:, 1:][near[:, 1:] == near[:, :-1]] = len(Z)  # in both sets
    near.sort(axis=1)
    near = near[:, : int((near < len(Z)).sum(axis=1).max(initial=m))]
    near[near == len(Z)] = -1
    return np.ascontiguousarray(near)


def _pattern(neighbours: np.ndarray) -> Any:
    """All pairs within a point and its neighbours, as a csc pattern."""
    n = len(neighbours)
    i, j = np.nonzero(neighbours >= 0)
    rows, columns = np.r_[np.arange(n), i].astype(np.int32), np.r_[np.arange(n), neighbours[i, j]].astype(np.int32)
    sets = sp.csr_array((np.ones(rows.size, dtype=bool), (rows, columns)), shape=(n, n))
    out = sp.csc_array(sets.T @ sets)
    out.sort_indices()
    return out


@dataclass(frozen=True)
class Neighbourhoods:
    """Points in order, the nearest earlier points of each, and the sparsity pattern of their precision.

    Attributes
    ----------
    X : array (n, d)
        The points in order.
    neighbours : int array (n, m)
    indptr, indices : the csc pattern of Q
    knots : int
        The number of points that others may be conditioned on.
    """

    X: np.ndarray
    neighbours: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    knots: int

    @classmethod
    def chosen(
        cls, X: np.ndarray, ranges: np.ndarray, m: int, knots: int | None = None, **own: Any
    ) -> tuple[Self, np.ndarray]:
        """Neighbourhoods of distinct points, with distances in ``ranges``, and their order; ``own``: for subclasses."""
        n = len(X)
        K = n if knots is None else min(knots, n)
        order = spread_order(X / ranges, K)
        if n > K:  # points after the knots in any order: use one in which near points are near in memory
            order[K:] = order[K:][cKDTree(X[order[K:]] / ranges).indices]
        Z = X[order] / ranges
        near = previous_neighbours(Z[:K], min(m, K - 1))
        if n > K:
            near = np.vstack([near, nearest(Z[:K], Z[K:], near.shape[1])])
        Q = _pattern(near)
        return cls(np.ascontiguousarray(X[order]), near, Q.indptr, Q.indices, K, **own), order

    @cached_property
    def _holders(self) -> tuple[np.ndarray, np.ndarray]:
        """The sets {i} + N(i) that contain each point: indptr, and i (m + 1) + the position in the set."""
        n = len(self.X)
        sets = np.column_stack([np.arange(n), self.neighbours])
        is_point = sets >= 0
        indptr = np.concatenate([[0], np.cumsum(is_point.sum(axis=1))])
        by_point = sp.csr_array((np.flatnonzero(is_point), sets[is_point], indptr), shape=(n, n)).tocsc()
        return by_point.indptr.astype(np.int64), by_point.data

    @cached_property
    def _mirrored(self) -> tuple[np.ndarray, np.ndarray]:
        """The entries of Q below the diagonal, and their transposed entries."""
        n, places = len(self.X), np.arange(self.indices.size)
        across = sp.csc_array((places, self.indices, self.indptr), shape=(n, n)).T.tocsc().data
        below = np.flatnonzero(self.indices > np.repeat(np.arange(n), np.diff(self.indptr)))
        return below, across[below]

    def values(
        self, weights: np.ndarray, variances: np.ndarray, d_weights: np.ndarray, d_variances: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The entries of Q and of its derivatives (q, entries), from the conditionals and their derivatives."""
        n, given = len(self.X), (*self._holders, self.neighbours, weights, variances, d_weights, d_variances)
        data, slopes = np.zeros(self.indices.size), np.zeros((len(d_variances), self.indices.size))
        some = lambda a, b: assembled(self.indptr, self.indices, *given, a, b, data, slopes)
        on_every_core(n, self.neighbours.shape[1] ** 2, some)
        below, above = self._mirrored
        for values in (data, *slopes):
            values[below] = values[above]
        return data, slopes

    def given(self, ranges: np.ndarray, points: np.ndarray, conditionals: Conditionals) -> tuple[Any, np.ndarray]:
        """Weights (N, n) of the points for values elsewhere, given those ``around``, and the conditional variances.

        With knots, a new point is conditioned on one of the nearest points and the neighbours of that point, whichever
        set gives the least variance. Their covariances are in the pattern of Q, so that rows cost no solve.
        """
        n, m = self.neighbours.shape
        Z, P = np.ascontiguousarray(self.X / ranges), np.ascontiguousarray(points / ranges)
        if self.knots == n:
            near = around(Z, P, m if m < n - 1 else n)
            weights, variances = conditionals(near)
        else:
            near = np.zeros((len(P), m + 1), np.int32)
            weights, variances = np.zeros((len(P), m + 1)), np.full(len(P), np.inf)
            for centre in nearest(Z, P, min(_SETS, n)).T:
                some = np.column_stack([centre, self.neighbours[centre]])
                w, v = conditionals(some)
                better = v < variances
                near[better], weights[better], variances[better] = some[better], w[better], v[better]
        is_point = near >= 0
        indptr = np.concatenate([[0], np.cumsum(is_point.sum(axis=1))])
        design = sp.csr_array((weights[is_point], near[is_point], indptr), shape=(len(P), n))
        design.sort_indices()
        return design, variances

    def rests_under(self, W: sp.csr_array, P: np.ndarray, covariance: Covariance, own: np.ndarray) -> np.ndarray:
        """The covariance (N, N) of f(P) - W z under a process, for weights W of the latents z = f(X) + noise.

        ``own`` (n,) is the variance of the noise.
        """
        used = np.unique(W.indices)
        Z, B = self.X[used], W[:, used]
        out = covariance(P, P)
        for a in range(0, used.size, _SOME):  # B K(Z, .), in blocks of columns of B
            some = slice(a, a + _SOME)
            first = np.asarray(B[:, some] @ covariance(Z[some], P))
            out += np.asarray((B @ covariance(Z, Z[some])) @ B[:, some].T) - first - first.T
        out += (B @ sp.diags_array(own[used]) @ B.T).toarray()
        return (out + out.T) / 2.0


@dataclass(frozen=True)
class Vecchia(Neighbourhoods):
    """The precision of a process at points; theta = (log sd, log ranges).

    Attributes
    ----------
    nu : float
        Smoothness of the Matern kernel: 0.5, 1.5, 2.5, or infinite for the squared exponential.
    shared : bool
        Whether all columns have one range.
    """

    nu: float
    shared: bool

    @classmethod
    def of(
        cls, X: np.ndarray, ranges: np.ndarray, m: int, kernel: str, shared: bool, knots: int | None = None
    ) -> tuple[Vecchia, np.ndarray]:
        """From distinct points and the ranges that define distance; also returns the order of the points."""
        return cls.chosen(X, ranges, m, knots, nu=KERNELS[kernel], shared=shared)

    def ranges(self, theta: np.ndarray) -> np.ndarray:
        """The range along each column (d,)."""
        return np.asarray(np.exp(np.broadcast_to(theta[1:], (self.X.shape[1],))))

    def _conditionals(self, Z: np.ndarray, points: np.ndarray, neighbours: np.ndarray, q: int) -> tuple[Any, ...]:
        (n, m), zeros = neighbours.shape, lambda *shape: np.zeros(shape)
        out = zeros(n, m), zeros(n), zeros(q, n, m), zeros(q, n)
        kind = 0 if np.isinf(self.nu) else int(self.nu + 0.5)  # the compiled loop's number of the kernel
        one = lambda a, b: conditionals(kind, NUGGET, Z, points, neighbours, a, b, self.shared, *out)
        on_every_core(n, m * m, one)
        return out

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        Z, n = np.ascontiguousarray(self.X / self.ranges(theta)), len(self.X)
        conditionals = self._conditionals(Z, Z, self.neighbours, 1 if self.shared else Z.shape[1])
        data, slopes = self.values(*conditionals)
        k = float(np.exp(-2.0 * theta[0]))
        matrix = lambda values: sp.csc_array((values, self.indices, self.indptr), shape=(n, n))
        data *= k
        slopes *= k
        return matrix(data), [matrix(-2.0 * data), *(matrix(slope) for slope in slopes)]

    def beyond_knots(self, theta: np.ndarray) -> float:
        """The average share of variance at the other points that the knots do not explain, from a sample of these."""
        n = len(self.X)
        if self.knots == n:
            return 0.0
        Z = np.ascontiguousarray(self.X / self.ranges(theta))
        some = np.unique(np.linspace(self.knots, n - 1, _SOME).astype(int))
        return float(self._conditionals(Z, Z[some], np.ascontiguousarray(self.neighbours[some]), 0)[1].mean())

    def at(self, theta: np.ndarray, points: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """``given`` at theta, with conditional variances at sd 1."""
        ranges = self.ranges(theta)
        Z, P = np.ascontiguousarray(self.X / ranges), np.ascontiguousarray(points / ranges)
        return self.given(ranges, points, lambda near: self._conditionals(Z, P, near, 0)[:2])

    def rests(self, theta: np.ndarray, points: np.ndarray) -> np.ndarray:
        """The covariance (N, N) of f(points) - W f(X) under the process itself at sd 1, with W from ``at``.

        Its diagonal is the conditional variance without the nugget of the points themselves.
        """
        lengths, profile = self.ranges(theta) / 2.0, PROFILES[self.nu]
        R = lambda A, C: np.asarray(profile.value(cdist(A / lengths, C / lengths, "sqeuclidean")))
        return self.rests_under(self.at(theta, points)[0], points, R, np.full(len(self.X), NUGGET))
