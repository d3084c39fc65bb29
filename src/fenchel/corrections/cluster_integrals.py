"""The expectation of each cluster by quadrature over what its sites share, and pairs of clusters after that.

    log E_c = log int phi(t) prod_n z_n(t) prod_{n<m} (1 + u_nm(t)) dt,     z_n(t) = E_e exp gt_n(A_n t + sigma_n e)

u_nm(t) = sum_k r_nm^k c_kn(t) c_km(t) are the pairs of e given t. A shift d of the means of its x changes it by

    log E_c(d) ~ log E_c + g'd + d'K d / 2,     g_n = E[z_n' / z_n],     K = E[z'' / z] - g g'

with averages over t given the cluster's own data. So clusters whose sites have the correlations B with each other add,
to second order in B,

    sum_{c<c'} g_c'B g_c' + tr(B K_c' B'K_c) / 2 + (g_c'B K_c'B'g_c + g_c''B'K_c B g_c') / 2

beyond what their rows have by themselves: g_n = c_1n, K_nn = sqrt 2 c_2n - c_1n^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from .grouping import Clusters
from .sites import Sites, hermite

_STEP = {1: 0.25, 2: 0.5}  # of t, in standard deviations
_REACH = {1: 14.0, 2: 8.0}  # of t
_ORDER = 6  # Hermite coefficients of e
_NODES = 16  # of e
_LEAST = 60.0  # nats below the top at which a place of t is passed over
_BLOCK = 1 << 23  # numbers held at a time


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
        total, pairs = total + float(log_e.sum()), pairs + float(two.sum())
        g[some.site], alone[some.site] = mean, False
        entries.append(K)
    rest = np.flatnonzero(alone)
    entries.append((own_K[rest], rest, rest))
    value, row, column = (np.concatenate([entry[i] for entry in entries]) for i in range(3))
    K = sp.csr_array((value, (row, column)), shape=(n, n))
    return ClusterTerms(total, pairs, label, g, K, own_g, own_K)


Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # values, rows, columns


def _integrated(sites: Sites, clusters: Clusters) -> tuple[np.ndarray, np.ndarray, np.ndarray, Entries]:
    """log E_c less log z_n (clusters,), log(1 + u) of their pairs, g of their sites, K."""
    q = clusters.dimension
    line = _STEP[q] * np.arange(-round(_REACH[q] / _STEP[q]), round(_REACH[q] / _STEP[q]) + 1)
    t = np.stack([axis.ravel() for axis in np.meshgrid(*[line] * q, indexing="ij")], axis=1)
    cell = q * np.log(_STEP[q] / np.sqrt(2.0 * np.pi))
    log_e, g, two = np.empty(clusters.size.size), np.empty(clusters.site.size), []
    values = np.empty(int(np.sum(clusters.size**2)))
    at_once = max(1, int(_BLOCK / (t.shape[0] * clusters.size.mean())))
    squares = np.concatenate([[0], np.cumsum(clusters.size**2)])
    for i in range(0, clusters.size.size, at_once):
        j = min(i + at_once, clusters.size.size)
        log_t, both, score, bend = densities(sites, _some(clusters, i, j), t)
        two.append(np.log(np.maximum(both, 1e-300)) + cell)
        top = log_t.max(axis=1, keepdims=True)
        p = np.exp(log_t - top)
        mass = p.sum(axis=1)
        log_e[i:j] = top[:, 0] + np.log(mass) + cell
        rows = slice(clusters.start[i], clusters.start[j])
        g[rows], values[squares[i] : squares[j]] = _moments(p / mass[:, None], score, bend, clusters.size[i:j])
    cluster = np.repeat(np.arange(clusters.size.size), clusters.size**2)
    place = np.arange(values.size) - squares[cluster]
    row, column = np.divmod(place, clusters.size[cluster])
    first = clusters.start[cluster]
    return log_e, np.concatenate(two), g, (values, clusters.site[first + row], clusters.site[first + column])


def _moments(p: np.ndarray, score: np.ndarray, bend: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """g (members,), and K (members of a cluster squared) flat; clusters of one size together."""
    start, squares = np.cumsum(size) - size, np.cumsum(size**2) - size**2
    g, K = np.empty(score.shape[0]), np.empty(int(np.sum(size**2)))
    for s in np.unique(size):
        which = np.flatnonzero(size == s)
        rows = start[which][:, None] + np.arange(s)
        mine, weight = score[rows], p[which][:, None, :]
        mean = np.sum(mine * weight, axis=2)
        both = (mine * weight) @ mine.transpose(0, 2, 1)
        both[:, np.arange(s), np.arange(s)] = np.sum(bend[rows] * weight, axis=2)
        g[rows] = mean
        K[squares[which][:, None] + np.arange(s * s)] = (both - mean[:, :, None] * mean[:, None, :]).reshape(-1, s * s)
    return g, K


def _some(clusters: Clusters, i: int, j: int) -> Clusters:
    """Clusters i, ..., j - 1."""
    rows = slice(clusters.start[i], clusters.start[j])
    pairs = np.concatenate([[0], np.cumsum(clusters.size * (clusters.size - 1) // 2)])
    start = clusters.start[i : j + 1] - clusters.start[i]
    return Clusters(start, clusters.site[rows], clusters.loading[rows], clusters.r[pairs[i] : pairs[j]])


def densities(
    sites: Sites, clusters: Clusters, t: np.ndarray, sloped: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """log prod z_n(t) prod (1 + u) - t't/2 of clusters (clusters, J) at t (J, q), and the same of their pairs, summed.

    ``sloped``: with scores and bends (members, J).
    """
    from . import _kernels as kernels

    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    he = np.ascontiguousarray(hermite(nodes, _ORDER) * (weights / weights.sum()))
    log_t, two = np.empty((clusters.size.size, t.shape[0])), np.zeros(clusters.r.size)
    score, bend = np.zeros((2, clusters.site.size if sloped else 0, t.shape[0]))
    kernels.cluster_densities(
        clusters.start,
        clusters.site,
        np.ascontiguousarray(clusters.loading),
        clusters.r,
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
    return log_t, two, score, bend
