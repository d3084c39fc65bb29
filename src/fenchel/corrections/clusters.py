"""Clusters of sites that are strongly correlated under q (rows of a subject, of a family), integrated jointly.

    R_cc = A A' + E,     x_n = A_n t + sigma_n e_n,     t ~ N(0, I) of one or two dimensions
    log E_c = log int phi(t) prod_n z_n(t) prod_{n<m} (1 + u_nm(t)) dt,     z_n(t) = E_e exp gt_n(A_n t + sigma_n e)

Clusters are the connected components of the graph |R| > threshold. A component that is too large, or that two
dimensions do not describe, is split by a higher threshold; sites that no threshold joins stay single. u_nm(t) = sum_k
r_nm^k c_kn(t) c_km(t) are the pair terms of e given t. A shift d of the means of its x changes a cluster by

    log E_c(d) ~ log E_c + g'd + d'K d / 2,     g_n = E[z_n' / z_n],     K = E[z'' / z] - g g'

with averages over t given the cluster's own data. Hence clusters whose sites have the cross-correlations B add, to
second order in B,

    sum_{c<c'} g_c'B g_c' + tr(B K_c' B'K_c) / 2 + (g_c'B K_c'B'g_c + g_c''B'K_c B g_c') / 2

beyond the terms of single rows, for which g_n = c_1n and K_nn = sqrt 2 c_2n - c_1n^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from .sites import Sites, hermite

_THRESHOLDS = (0.3, 0.5, 0.7, 0.85)  # correlations above which two sites are joined, tried in turn
_LARGEST = 64  # most sites of a cluster
_DIMENSIONS = (1, 2)  # dimensions of t, tried in turn
_RESIDUAL = 0.1  # largest root mean square of the residual correlations E that a dimension of t may leave
_LONGEST = 0.9999  # largest squared length of a loading, so that sigma stays positive
_ROUNDS = 30  # most iterations of the loadings
_STEP = {1: 0.25, 2: 0.5}  # step of the lattice of t in standard deviations, by dimension
_REACH = {1: 14.0, 2: 8.0}  # half width of the lattice of t, by dimension
_ORDER = 6  # number of Hermite coefficients of e
_NODES = 16  # Gauss-Hermite nodes for e
_DEEPEST = 60.0  # lattice points so many nats below the maximum are skipped
_BLOCK = 1 << 23  # numbers in memory at a time


@dataclass(frozen=True)
class Clusters:
    """Clusters with the same number of sites s and the same dimension q of t.

    Attributes
    ----------
    site : int array (m, s)
    loading : array (m, s, q)
        The matrix A of each cluster.
    r : array (m, s (s - 1) / 2)
        The correlations of e, in the order of the upper triangle; (m, 0) if all are 0.
    """

    site: np.ndarray
    loading: np.ndarray
    r: np.ndarray

    def take(self, which: slice) -> Clusters:
        return Clusters(self.site[which], self.loading[which], self.r[which])


def clusters_of(R: np.ndarray) -> list[Clusters]:
    """Find the clusters of sites with correlations R (n, n); those of one size and dimension are stored together."""
    free = np.arange(R.shape[0])
    clusters: list[Clusters] = []
    for threshold in _THRESHOLDS:
        for index in _components(R, free, threshold):
            blocks = R[index[:, :, None], index[:, None, :]]
            undescribed = np.arange(index.shape[0])
            for q in _DIMENSIONS:
                A, r, residual = _loadings(blocks[undescribed], q)
                good = residual <= _RESIDUAL
                if good.any():
                    clusters.append(Clusters(index[undescribed[good]], A[good], r[good]))
                undescribed = undescribed[~good]
        for some in clusters:
            free = np.setdiff1d(free, some.site)
    return clusters


def labels_of(clusters: list[Clusters], n: int) -> np.ndarray:
    """A label 0, 1, ... for each site (n,): equal within a cluster; each single site has its own."""
    label, used = n + np.arange(n), 0
    for some in clusters:
        m = some.site.shape[0]
        label[some.site] = used + np.arange(m)[:, None]
        used += m
    return np.unique(label, return_inverse=True)[1]


def _components(R: np.ndarray, free: np.ndarray, threshold: float) -> Iterator[np.ndarray]:
    """Connected components of the free sites, those of one size as one array (number, size)."""
    near = np.abs(R if free.size == R.shape[0] else R[np.ix_(free, free)]) > threshold
    linked = np.count_nonzero(near, axis=1) > 1  # linked to a site other than itself
    if not linked.any():
        return
    free = free[linked]
    _, part = connected_components(sp.csr_array(near[np.ix_(linked, linked)]), directed=False)
    order, count = np.argsort(part, kind="stable"), np.bincount(part)
    start = np.cumsum(count) - count
    for size in np.unique(count[(count > 1) & (count <= _LARGEST)]):
        yield free[order[start[count == size][:, None] + np.arange(size)]]


def _loadings(R: np.ndarray, q: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factor blocks R (m, s, s): A (m, s, q), correlations of e (m, pairs), root mean square of off-diagonal E.

    Principal axis factoring, which iterates the diagonal of E, makes E smallest. If its residual is not a covariance,
    principal components are used, whose residual always is one.
    """
    m, s, _ = R.shape
    if m == 0:
        return np.empty((0, s, q)), np.empty((0, s * (s - 1) // 2)), np.empty(0)
    diagonal = np.arange(s)
    components = _leading(R, q)
    shared = R.copy()
    shared[:, diagonal, diagonal] = np.max(np.abs(R - np.eye(s)), axis=2)
    for _ in range(_ROUNDS):
        axes = _leading(shared, q)
        own = np.minimum(np.sum(axes * axes, axis=2), _LONGEST)
        if np.max(np.abs(own - shared[:, diagonal, diagonal])) < 1e-4:
            break
        shared[:, diagonal, diagonal] = own
    valid = np.max(np.abs(_residual(R, axes)[1]), axis=1) <= 1.0
    A = np.where(valid[:, None, None], axes, components)
    E, r = _residual(R, A)
    return A, np.clip(r, -1.0, 1.0), np.sqrt(np.mean(E * E, axis=1))


def _leading(R: np.ndarray, q: int) -> np.ndarray:
    """A (m, s, q) from the q largest eigenvalues, scaled so that no row is longer than a loading may be."""
    values, vectors = np.linalg.eigh(R)
    A = vectors[:, :, -q:] * np.sqrt(np.maximum(values[:, None, -q:], 0.0))
    longest = np.sqrt(np.max(np.sum(A * A, axis=2), axis=1))
    return np.asarray(A * np.minimum(1.0, np.sqrt(_LONGEST) / np.maximum(longest, 1e-300))[:, None, None])


def _residual(R: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The off-diagonal entries (m, pairs) of E = R - A A', as covariances and as correlations."""
    row, column = np.triu_indices(R.shape[1], 1)
    sigma = np.sqrt(1.0 - np.sum(A * A, axis=2))
    E = (R - A @ A.transpose(0, 2, 1))[:, row, column]
    return E, E / (sigma[:, row] * sigma[:, column])


@dataclass(frozen=True)
class ClusterTerms:
    """The integrals of all clusters.

    total : sum over clusters of log E_c / prod z_n
    pairs : sum of log(1 + u) over the pairs within clusters
    label : (n,) cluster of each site, 0, 1, ...
    g, K : (n,), (n, n) the derivatives of the module docstring for all sites
    own_g, own_K : (n,) the same of single rows
    """

    total: float
    pairs: float
    label: np.ndarray
    g: np.ndarray
    K: sp.csr_array
    own_g: np.ndarray
    own_K: np.ndarray

    def between(self, R: np.ndarray) -> tuple[float, float]:
        """The contribution of pairs of clusters beyond the pairs of their rows, and an estimate for chains of three."""
        B = np.where(self.label[:, None] == self.label, 0.0, R)
        reach = sp.csr_array((self.g, (self.label, np.arange(self.label.size)))) @ B  # (clusters, n)
        Bg, KB = B @ self.g, self.K @ B
        pairs = 0.5 * float(np.sum(reach.T * (self.K @ reach.T)))
        joint = 0.5 * float(self.g @ Bg) + 0.25 * float(np.einsum("ij,ji->", KB, KB)) + pairs
        chains = 0.5 * float(Bg @ (self.K @ Bg)) - pairs
        own, K, square = self.own_g, self.own_K, B * B
        rows = 0.5 * float(own @ B @ own) + 0.25 * float(K @ square @ K) + 0.5 * float((own * own) @ square @ K)
        return joint - rows, chains

    def bends(self, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Corrections (T,), (T,) to log densities of targets: coefficients of x and of (x^2 - 1) / 2.

        R (T, n) has the correlations of the targets with the sites. If a target is the effect that the rows of a
        cluster share, the rows are independent given it and their product needs no correction; so a cluster is
        weighted by the share of its variance that the target does not explain.
        """
        order = np.argsort(self.label, kind="stable")
        start = np.searchsorted(self.label[order], np.arange(self.label.max() + 1))
        near = np.maximum.reduceat((R * R)[:, order], start, axis=1)
        unexplained = ((1.0 - np.minimum(near, 1.0)) ** 2)[:, self.label]
        half = np.sqrt(unexplained) * R
        first = (unexplained * R) @ (self.g - self.own_g)
        second = np.sum(half * (self.K @ half.T).T, axis=1) - (half * half) @ self.own_K
        return first, second


def cluster_terms(sites: Sites, clusters: list[Clusters], label: np.ndarray) -> ClusterTerms:
    """The integrals of all clusters."""
    n, total, pairs = sites.log_z.size, 0.0, 0.0
    own_g = sites.c[:, 1].copy()
    own_K = np.sqrt(2.0) * sites.c[:, 2] - own_g**2
    g, alone, entries = own_g.copy(), np.ones(n, dtype=bool), []
    for some in clusters:
        log_e, two, mean, K = _integrated(sites, some)
        total, pairs = total + float(log_e.sum()), pairs + two
        g[some.site], alone[some.site] = mean, False
        row, column = np.broadcast_arrays(some.site[:, :, None], some.site[:, None, :])
        entries.append((K.ravel(), row.ravel(), column.ravel()))
    rest = np.flatnonzero(alone)
    entries.append((own_K[rest], rest, rest))
    value, row, column = (np.concatenate([entry[i] for entry in entries]) for i in range(3))
    whole = sp.csr_array((value, (row, column)), shape=(n, n))
    return ClusterTerms(total, pairs, label, g, whole, own_g, own_K)


def _integrated(sites: Sites, clusters: Clusters) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    """Integrate clusters over a lattice of t.

    Returns log E_c - sum log z_n (m,), the sum of log(1 + u) over the pairs in clusters, g (m, s) and K (m, s, s).
    """
    m, s, q = clusters.loading.shape
    line = _STEP[q] * np.arange(-round(_REACH[q] / _STEP[q]), round(_REACH[q] / _STEP[q]) + 1)
    t = np.stack([axis.ravel() for axis in np.meshgrid(*[line] * q, indexing="ij")], axis=1)
    cell = q * np.log(_STEP[q] / np.sqrt(2.0 * np.pi))
    log_e, pairs, g, K = np.empty(m), 0.0, np.empty((m, s)), np.empty((m, s, s))
    diagonal = np.arange(s)
    at_once = max(1, _BLOCK // (t.shape[0] * s))
    for i in range(0, m, at_once):
        part = slice(i, i + at_once)
        log_t, both, score, bend = densities(sites, clusters.take(part), t)
        pairs += float(np.sum(np.log(np.maximum(both, 1e-300)) + cell))
        top = log_t.max(axis=1, keepdims=True)
        p = np.exp(log_t - top)
        mass = p.sum(axis=1, keepdims=True)
        log_e[part] = (top + np.log(mass))[:, 0] + cell
        weight = (p / mass)[:, None, :]
        mean = np.sum(score * weight, axis=2)
        second = (score * weight) @ score.transpose(0, 2, 1)
        second[:, diagonal, diagonal] = np.sum(bend * weight, axis=2)
        g[part], K[part] = mean, second - mean[:, :, None] * mean[:, None, :]
    return log_e, pairs, g, K


def densities(
    sites: Sites, clusters: Clusters, t: np.ndarray, sloped: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """log [prod z_n(t) prod (1 + u)] - t't/2 of clusters (m, J) at t (J, q), and the sums of pairs over t.

    ``sloped``: also return z_n'/z_n and z_n''/z_n (m, s, J), ``score`` and ``bend``.
    """
    from . import _kernels as kernels

    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    he = np.ascontiguousarray(hermite(nodes, _ORDER) * (weights / weights.sum()))
    (m, s, q), J = clusters.loading.shape, t.shape[0]
    log_t, two = np.empty((m, J)), np.zeros(clusters.r.size)
    score, bend = np.zeros((2, m * s if sloped else 0, J))
    kernels.cluster_densities(
        s * np.arange(m + 1),
        clusters.site.ravel(),
        np.ascontiguousarray(clusters.loading.reshape(-1, q)),
        clusters.r.ravel(),
        sites.gt,
        sites.log_z,
        float(sites.x[0]),
        sites.step,
        np.ascontiguousarray(t),
        nodes,
        he,
        _DEEPEST,
        log_t,
        score,
        bend,
        two,
    )
    return log_t, two, score.reshape(-1, s, J), bend.reshape(-1, s, J)
