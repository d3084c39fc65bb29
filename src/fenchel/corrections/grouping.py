"""Clusters of sites that are strongly correlated under q: rows of a subject, of a family, of neighbours.

    R_cc = A A' + E,     x_n = A_n t + sigma_n e_n,     t ~ N(0, I) of one or two dimensions

They are the connected parts of the graph |R| > threshold. A part that is too large, or that two dimensions do not
describe, is cut by a higher threshold; sites that no threshold brings together stay alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

_THRESHOLDS = (0.3, 0.5, 0.7, 0.85)  # of a correlation
_LARGEST = 64  # sites of a cluster
_DIMENSIONS = (1, 2)
_RESIDUAL = 0.1  # of a correlation, root mean square of what t leaves: above, two dimensions, or the cluster is cut
_ALIKE = 0.9999  # of a loading: sigma stays positive
_ROUNDS = 30  # of the loadings' iteration


@dataclass(frozen=True)
class Clusters:
    """Clusters of one dimension q of t: their sites one cluster after the other, with loadings (m, q).

    ``r`` are the correlations of e in the upper triangles, one cluster after the other.
    """

    start: np.ndarray
    site: np.ndarray
    loading: np.ndarray
    r: np.ndarray

    @property
    def dimension(self) -> int:
        return int(self.loading.shape[1])

    @property
    def size(self) -> np.ndarray:
        return np.diff(self.start)


def clusters_of(R: np.ndarray) -> list[Clusters]:
    """The clusters of the sites with correlations R (n, n), by their dimension."""
    free, found = np.arange(R.shape[0]), {q: list[tuple[np.ndarray, ...]]() for q in _DIMENSIONS}
    for threshold in _THRESHOLDS:
        accepted = []
        for index in _parts(R, free, threshold):
            blocks = R[index[:, :, None], index[:, None, :]]
            left = np.ones(index.shape[0], dtype=bool)
            for q in _DIMENSIONS:
                A, r, rest = _loadings(blocks[left], q)
                good = rest <= _RESIDUAL
                which = np.flatnonzero(left)[good]
                found[q].append((index[which], A[good], r[good]))
                accepted.append(index[which].ravel())
                left[which] = False
        free = np.setdiff1d(free, np.concatenate(accepted)) if accepted else free
    return [_joined(parts) for parts in found.values() if any(index.size for index, *_ in parts)]


def labels_of(clusters: list[Clusters], n: int) -> np.ndarray:
    """A number for each site (n,), 0, 1, ...: the same within a cluster; sites alone have one of their own."""
    label, used = n + np.arange(n), 0
    for some in clusters:
        label[some.site] = used + np.repeat(np.arange(some.size.size), some.size)
        used += some.size.size
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


def _joined(parts: list[tuple[np.ndarray, ...]]) -> Clusters:
    size = np.concatenate([np.full(index.shape[0], index.shape[1]) for index, _, _ in parts])
    site = np.concatenate([index.ravel() for index, _, _ in parts])
    loading = np.concatenate([A.reshape(-1, A.shape[2]) for _, A, _ in parts])
    r = np.concatenate([r.ravel() for _, _, r in parts])
    return Clusters(np.concatenate([[0], np.cumsum(size)]), site, loading, r)
