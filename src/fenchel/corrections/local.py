"""Pairs of very many sites under a sparse prior: neighbours in its graph, with few linear solves for all of them.

Columns of Vt decay with distance in the graph. Seeds that are far apart share one solve, V W' (sum of +-e_n), and every
site reads its covariance with the nearest seed. A colouring of the graph makes each site a seed once; seeds of one
colour are more than three times the reach apart and have random signs, so that other seeds add little. A few columns,
each solved separately, give the reach, the sum beyond the reach, and the contribution of other seeds. The mean sum
beyond the reach is added, times N; its standard error and the contribution of other seeds are part of the error.
Latents that touch a large part of all rows (an intercept, a covariate) do not make neighbours. The correlation that a
pair has only through them is neglected; it is about 1/N.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..linalg.factorisation import Factorisation
from .pairs import triples_among
from .sites import Correlations

TERMS = 5  # he_0, ..., he_4 of a log density
_PROBES = 12  # columns that are solved separately
_ENOUGH = 0.01  # largest share of the pairs' sum beyond the reach
_NOTHING = 1e-6  # correlations below are neglected
_SOLVES = 96  # most solves for all sites
_PATCH = 200  # sites of a patch
_AT_ONCE = 8  # fewest right-hand sides of a solve;
_HELD = 1 << 16  # more are used up to so many numbers


@dataclass(frozen=True)
class Neighbours:
    """Sum of log(1 + u) over pairs, its error, and sums of R^k c_k of sites (n, TERMS) and latents (L, TERMS)."""

    total: float
    error: float
    of_sites: np.ndarray
    of_latents: np.ndarray


class Graph:
    """The graph of the latents without hubs, which touch very many others, and the home latent of each site."""

    def __init__(self, correlations: Correlations) -> None:
        n, covariances = correlations.groups.n, correlations.covariances
        P = covariances.pattern
        L = P.shape[0]
        degree = np.diff(P.indptr)
        local = degree <= max(16.0, 10.0 * np.sqrt(L))
        A = sp.csr_array((np.ones(P.indices.size), P.indices, P.indptr), shape=(L, L))
        if not local.all():
            keep = sp.diags_array(local.astype(np.float64))
            A = sp.csr_array(keep @ A @ keep)
            A.eliminate_zeros()
        self.hubs = np.flatnonzero(~local)
        self.indptr, self.indices = A.indptr.astype(np.int64), A.indices.astype(np.int64)
        self.W = sp.csr_array(covariances.design)
        rows = np.repeat(np.arange(n), np.diff(self.W.indptr))
        some = local[self.W.indices] & (self.W.data != 0.0)
        self.home = np.full(n, -1, dtype=np.int64)
        self.home[rows[some][::-1]] = self.W.indices[some][::-1]  # the first such latent of each row
        at, inverse = np.unique(self.home, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        counts = np.bincount(inverse, minlength=at.size)
        self.rank = np.empty(n, dtype=np.int64)  # among the sites of one home
        self.rank[order] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)

    def distances(self, start: int, most: int) -> np.ndarray:
        """Distances in edges from a node; ``most`` + 1 for those farther away."""
        out = np.full(self.indptr.size - 1, most + 1)
        out[start], front = 0, np.array([start])
        for d in range(1, most + 1):
            around = np.concatenate([self.indices[self.indptr[v] : self.indptr[v + 1]] for v in front])
            front = np.unique(around[out[around] > d])
            if not front.size:
                break
            out[front] = d
        return out


def neighbours(correlations: Correlations, c: np.ndarray) -> Neighbours:
    """Sum over the pairs of neighbouring sites with Hermite coefficients c (n, K)."""
    from . import _kernels as kernels

    graph, part, scale = Graph(correlations), correlations.covariances.part, correlations.scale
    variance = part.inverse_diagonal()
    latent_scale = np.where(variance > 0.0, 1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0)), 0.0)
    probes, beyond, within = _probed(graph, part, scale, c)
    reach, colour = _reach(graph, beyond)
    n, L = scale.size, variance.size
    sums, of_sites, of_latents = np.zeros(2), np.zeros((n, TERMS)), np.zeros((L, TERMS))
    label, queue = np.empty(L, dtype=np.int64), np.empty(L, dtype=np.int64)
    seeds, sign, start = _seeds(graph, colour)
    of_set = np.repeat(np.arange(start.size - 1), np.diff(start))
    right = sp.csc_array(graph.W.T @ sp.csr_array((sign, (seeds, of_set)), shape=(n, start.size - 1)))
    at_once = max(_AT_ONCE, _HELD // L)
    rows = graph.home, graph.W.indptr, graph.W.indices, graph.W.data
    for i in range(0, start.size - 1, at_once):
        z = np.ascontiguousarray(part.solve(right[:, i : i + at_once].toarray()).T)
        for j in range(z.shape[0]):
            own = slice(start[i + j], start[i + j + 1])
            kernels.nearest(graph.indptr, graph.indices, graph.home[seeds[own]], reach, label, queue)
            kernels.site_sums(label, *rows, z[j], sign[own], seeds[own], scale, c, sums, of_sites)
            kernels.latent_sums(label, z[j], sign[own], seeds[own], scale, latent_scale, c, of_latents)
    for i in range(0, graph.hubs.size, _AT_ONCE):  # hubs: from their correlations with all sites
        hubs = graph.hubs[i : i + _AT_ONCE]
        b = np.zeros((L, hubs.size))
        b[hubs, np.arange(hubs.size)] = 1.0
        R = np.asarray(graph.W @ part.solve(b)) * scale[:, None] * latent_scale[hubs]
        power = np.ones_like(R)
        for k in range(1, TERMS):
            power *= R
            of_latents[hubs, k] = c[:, k] @ power
    far = beyond[:, reach] / 2.0  # each pair is counted from both ends
    total = 0.5 * float(sums[0]) + n * float(far.mean())
    off = (within[:, reach] - np.sum(c[probes, 1:TERMS] * of_sites[probes, 1:], axis=1)) / 2.0  # error by other seeds
    error = 0.5 * float(sums[1]) + _ENOUGH * abs(total) + n * abs(float(off.mean()))
    error += n * float(far.std(ddof=1) + off.std(ddof=1)) / float(np.sqrt(far.size))
    return Neighbours(total, error, of_sites, of_latents)


def _seeds(graph: Graph, colour: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sets of sites of one colour and rank, one after the other, with random signs; and the start of each set."""
    seen = np.flatnonzero(graph.home >= 0)
    key = colour[graph.home[seen]] * (graph.rank.max() + 1) + graph.rank[seen]
    order = np.argsort(key, kind="stable")
    size = np.bincount(np.unique(key, return_inverse=True)[1])
    start = np.concatenate([[0], np.cumsum(size)])
    sign, rng = np.ones(seen.size), np.random.default_rng(0)
    for k in np.flatnonzero(size > 1):
        sign[start[k] : start[k + 1]] = rng.permutation(np.where(np.arange(size[k]) % 2, -1.0, 1.0))
    return seen[order], sign, start


def patch_triples(correlations: Correlations, c: np.ndarray) -> float:
    """Estimate the contribution of triples from one patch of neighbouring sites, times the number of such patches.

    The covariance of the patch is that of the latents around it, given the latents farther away.
    """
    graph, factor = Graph(correlations), correlations.covariances.factor
    P = factor.pattern
    seen = np.flatnonzero(graph.home >= 0)
    away = graph.distances(int(graph.home[seen[seen.size // 2]]), 4 * _PATCH)
    some = seen[np.argsort(away[graph.home[seen]], kind="stable")[:_PATCH]]
    around = np.sort(np.argsort(away, kind="stable")[: 8 * _PATCH])
    around = around[np.isin(around, graph.hubs, invert=True)]
    A = sp.csr_array(P.matrix(P.q))[around][:, around]
    W = factor.W[:, around]
    A = (A + W.T @ (sp.diags_array(factor.lam[:, 0]) @ W)).toarray()
    near = graph.W[some][:, around].toarray()
    V = near @ np.linalg.solve(A, near.T)
    scale = 1.0 / np.sqrt(np.maximum(np.diagonal(V), 1e-300))
    return triples_among(c[some], np.clip(V * scale * scale[:, None], -1.0, 1.0)) * correlations.groups.n / some.size


def _probed(
    graph: Graph, part: Factorisation, scale: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sampled sites with their sums of log(1 + u) beyond each reach (probes, reaches), and sums of u within it.

    The sums within use only the first terms of u, like the sums over neighbours.
    """
    n, most = scale.size, _SOLVES // 2
    probes = np.random.default_rng(0).choice(np.flatnonzero(graph.home >= 0), _PROBES, replace=n < _PROBES)
    z = part.solve(graph.W[probes].T.toarray())
    R = np.clip(np.asarray(graph.W @ z) * scale[:, None] * scale[probes], -1.0, 1.0)
    beyond, within = np.empty((2, probes.size, most + 1))
    for j, site in enumerate(probes):
        near = np.flatnonzero((np.abs(R[:, j]) > _NOTHING) & (np.arange(n) != site))
        u, p = np.zeros(near.size), np.ones(near.size)
        for k in range(1, c.shape[1]):
            p = p * R[near, j]
            u += p * c[near, k] * c[site, k]
            if k == TERMS - 1:
                first = u.copy()
        home = graph.home[near]
        at = np.where(home >= 0, graph.distances(int(graph.home[site]), most)[home], most + 1)
        shells = np.bincount(at, weights=np.log1p(np.maximum(u, -0.9)), minlength=most + 2)
        beyond[j] = np.cumsum(shells[::-1])[::-1][1:]  # reach 0, 1, ..., most
        within[j] = np.cumsum(np.bincount(at, weights=first, minlength=most + 2))[:-1]
    return probes, beyond, within


def _reach(graph: Graph, beyond: np.ndarray) -> tuple[int, np.ndarray]:
    """The reach of neighbours, and a colouring with more than three times this distance, for few solves."""
    from . import _kernels as kernels

    left, whole = np.abs(beyond.mean(axis=0)), np.abs(beyond[:, 0].mean()) + 1e-300
    enough = np.flatnonzero(left <= _ENOUGH * whole)
    reach = int(enough[0]) if enough.size else beyond.shape[1] - 1
    reach, most = max(1, reach), int(graph.rank.max()) + 1
    while True:
        colour = kernels.colours(graph.indptr, graph.indices, 3 * reach)
        if reach == 1 or (colour.max() + 1) * most <= _SOLVES:
            return reach, colour
        reach = max(1, int(reach * 0.7))
