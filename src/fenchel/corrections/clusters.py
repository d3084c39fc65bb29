"""Clusters of sites that are strongly correlated under q (rows of a subject, of a family), integrated as they stand.

    R_cc = A A' + E,     x_n = A_n t + sigma_n e_n,     t ~ N(0, I) of one or two dimensions
    log E_c = log int phi(t) prod_n z_n(t) prod_{n<m} (1 + u_nm(t)) dt,     z_n(t) = E_e exp gt_n(A_n t + sigma_n e)

Clusters are the connected parts of the graph |R| > threshold. A part that is too large, or that two dimensions do not
describe, is cut by a higher threshold; sites that no threshold brings together stay alone. u_nm(t) = sum_k r_nm^k
c_kn(t) c_km(t) are the pairs of e given t. A shift d of the means of its x changes a cluster by

    log E_c(d) ~ log E_c + g'd + d'K d / 2,     g_n = E[z_n' / z_n],     K = E[z'' / z] - g g'

with averages over t given the cluster's own data. So clusters whose sites have the correlations B with each other add,
to second order in B,

    sum_{c<c'} g_c'B g_c' + tr(B K_c' B'K_c) / 2 + (g_c'B K_c'B'g_c + g_c''B'K_c B g_c') / 2

beyond what their rows have by themselves: g_n = c_1n, K_nn = sqrt 2 c_2n - c_1n^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from .sites import Sites, hermite

_THRESHOLDS = (0.3, 0.5, 0.7, 0.85)  # of a correlation
_LARGEST = 64  # sites of a cluster
_DIMENSIONS = (1, 2)
_RESIDUAL = 0.1  # of a correlation, root mean square of what t leaves: above, two dimensions, or the cluster is cut
_ALIKE = 0.9999  # of a loading: sigma stays positive
_ROUNDS = 30  # of the loadings' iteration
_STEP = {1: 0.25, 2: 0.5}  # of t, in standard deviations
_REACH = {1: 14.0, 2: 8.0}  # of t
_ORDER = 6  # Hermite coefficients of e
_NODES = 16  # of e
_LEAST = 60.0  # nats below the top at which a place of t is passed over
_BLOCK = 1 << 23  # numbers held at a time


@dataclass(frozen=True)
class Clusters:
    """Clusters of as many sites each, s, whose t have the same dimension q.

    Attributes
    ----------
    site : int array (m, s)
    loading : array (m, s, q)
        A.
    r : array (m, s (s - 1) / 2)
        The correlations of e, by the upper triangle; (m, 0) where all are 0.
    """

    site: np.ndarray
    loading: np.ndarray
    r: np.ndarray

    def take(self, which: slice) -> Clusters:
        return Clusters(self.site[which], self.loading[which], self.r[which])


def clusters_of(R: np.ndarray) -> list[Clusters]:
    """The clusters of the sites with correlations R (n, n), by their size and dimension."""
    free = np.arange(R.shape[0])
    found: list[Clusters] = []
    for threshold in _THRESHOLDS:
        for index in _parts(R, free, threshold):
            blocks = R[index[:, :, None], index[:, None, :]]
            left = np.arange(index.shape[0])
            for q in _DIMENSIONS:
                A, r, rest = _loadings(blocks[left], q)
                good = rest <= _RESIDUAL
                if good.any():
                    found.append(Clusters(index[left[good]], A[good], r[good]))
                left = left[~good]
        for some in found:
            free = np.setdiff1d(free, some.site)
    return found


def labels_of(clusters: list[Clusters], n: int) -> np.ndarray:
    """A number for each site (n,), 0, 1, ...: the same within a cluster; sites alone have one of their own."""
    label, used = n + np.arange(n), 0
    for some in clusters:
        m = some.site.shape[0]
        label[some.site] = used + np.arange(m)[:, None]
        used += m
    return np.unique(label, return_inverse=True)[1]


def _parts(R: np.ndarray, free: np.ndarray, threshold: float) -> Iterator[np.ndarray]:
    """Connected parts of the free sites, those of one size together: (how many, size)."""
    near = np.abs(R if free.size == R.shape[0] else R[np.ix_(free, free)]) > threshold
    linked = np.count_nonzero(near, axis=1) > 1  # with another site than itself
    if not linked.any():
        return
    free = free[linked]
    _, part = connected_components(sp.csr_array(near[np.ix_(linked, linked)]), directed=False)
    order, count = np.argsort(part, kind="stable"), np.bincount(part)
    start = np.cumsum(count) - count
    for size in np.unique(count[(count > 1) & (count <= _LARGEST)]):
        yield free[order[start[count == size][:, None] + np.arange(size)]]


def _loadings(R: np.ndarray, q: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A (m, s, q) of blocks R (m, s, s); correlations of e (m, pairs); root mean square of E beside its diagonal.

    Principal axes with the diagonal of E iterated leave the least of E. Where what they leave is no covariance,
    principal components, which always leave one.
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
        own = np.minimum(np.sum(axes * axes, axis=2), _ALIKE)
        if np.max(np.abs(own - shared[:, diagonal, diagonal])) < 1e-4:
            break
        shared[:, diagonal, diagonal] = own
    valid = np.max(np.abs(_rest(R, axes)[1]), axis=1) <= 1.0
    A = np.where(valid[:, None, None], axes, components)
    E, r = _rest(R, A)
    return A, np.clip(r, -1.0, 1.0), np.sqrt(np.mean(E * E, axis=1))


def _leading(R: np.ndarray, q: int) -> np.ndarray:
    """A (m, s, q) by the q largest eigenvalues; no row is longer than a loading may be."""
    values, vectors = np.linalg.eigh(R)
    A = vectors[:, :, -q:] * np.sqrt(np.maximum(values[:, None, -q:], 0.0))
    longest = np.sqrt(np.max(np.sum(A * A, axis=2), axis=1))
    return np.asarray(A * np.minimum(1.0, np.sqrt(_ALIKE) / np.maximum(longest, 1e-300))[:, None, None])


def _rest(R: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E = R - A A' beside its diagonal (m, pairs), and as correlations."""
    row, column = np.triu_indices(R.shape[1], 1)
    sigma = np.sqrt(1.0 - np.sum(A * A, axis=2))
    E = (R - A @ A.transpose(0, 2, 1))[:, row, column]
    return E, E / (sigma[:, row] * sigma[:, column])


@dataclass(frozen=True)
class ClusterTerms:
    """Sums of log E_c / prod z_n and of the pairs in clusters; g (n,), K (n, n) of all sites, and of rows alone."""

    total: float
    pairs: float
    label: np.ndarray  # (n,) 0, 1, ...
    g: np.ndarray
    K: sp.csr_array
    own_g: np.ndarray
    own_K: np.ndarray

    def between(self, R: np.ndarray) -> tuple[float, float]:
        """What pairs of clusters add beyond the pairs of their rows, and what three in a chain may add."""
        B = np.where(self.label[:, None] == self.label, 0.0, R)
        reach = sp.csr_array((self.g, (self.label, np.arange(self.label.size)))) @ B  # (clusters, n)
        Bg, KB = B @ self.g, self.K @ B
        pairs = 0.5 * float(np.sum(reach.T * (self.K @ reach.T)))
        mine = 0.5 * float(self.g @ Bg) + 0.25 * float(np.einsum("ij,ji->", KB, KB)) + pairs
        chains = 0.5 * float(Bg @ (self.K @ Bg)) - pairs
        own, K, square = self.own_g, self.own_K, B * B
        rows = 0.5 * float(own @ B @ own) + 0.25 * float(K @ square @ K) + 0.5 * float((own * own) @ square @ K)
        return mine - rows, chains

    def bends(self, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What log densities of targets with correlations R (T, n) gain along x and (x^2 - 1) / 2 (T,) each.

        Rows given a target that is what they share are independent, so that their product stands: a cluster counts
        by what the target leaves of it.
        """
        order = np.argsort(self.label, kind="stable")
        start = np.searchsorted(self.label[order], np.arange(self.label.max() + 1))
        near = np.maximum.reduceat((R * R)[:, order], start, axis=1)
        left = ((1.0 - np.minimum(near, 1.0)) ** 2)[:, self.label]
        half = np.sqrt(left) * R
        first = (left * R) @ (self.g - self.own_g)
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
    """log E_c less log z_n (m,), the sum of log(1 + u) of their pairs, g (m, s) and K (m, s, s)."""
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
    """log prod z_n(t) prod (1 + u) - t't/2 of clusters (m, J) at t (J, q), and the same of their pairs, summed.

    ``sloped``: with scores and bends (m, s, J).
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
        _LEAST,
        log_t,
        score,
        bend,
        two,
    )
    return log_t, two, score.reshape(-1, s, J), bend.reshape(-1, s, J)
