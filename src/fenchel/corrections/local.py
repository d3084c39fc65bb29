"""Pairs of very many sites under a sparse prior: neighbours in its graph, a few solves for all of them.

Columns of Vt die out with distance. Seeds that are far apart share one solve, V W' (sum of +-e_n), and every site reads
its covariance with the seed nearest to it. Colours of the graph (more than three reaches apart, so that what other
seeds add, at random signs, is small) make each site a seed once. How far to reach is read off a few columns solved by
themselves, which also say what is left beyond and what other seeds did: the mean of the first is added, times N, and
its standard error and the size of the second are part of the error.
Latents that touch a good part of all rows (an intercept, a covariate) are no neighbours: what a pair shares through
them alone is left out; it is about 1/N of a correlation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..linalg.factorisation import Factorisation
from .pairs import triples_among
from .sites import Correlations

TERMS = 5  # he_0, ..., he_4 of a log density
_PROBES = 12  # columns solved by themselves
_ENOUGH = 0.01  # of the pairs' sum that may lie beyond the reach
_NOTHING = 1e-6  # of a correlation
_SOLVES = 96  # at most, for all sites
_PATCH = 200  # sites of a patch
_AT_ONCE = 8  # right sides of a solve, at least,
_HELD = 1 << 16  # and as many as make so many numbers


@dataclass(frozen=True)
class Neighbours:
    """sum of log(1 + u) over pairs, its standard error; sums of R^k c_k (n, TERMS) and (L, TERMS)."""

    total: float
    error: float
    of_sites: np.ndarray
    of_latents: np.ndarray


class Graph:
    """The latents but for those that touch very many others, and the home of each site among them."""

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
        self.home[rows[some][::-1]] = self.W.indices[some][::-1]  # the first of each row
        at, inverse = np.unique(self.home, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        counts = np.bincount(inverse, minlength=at.size)
        self.rank = np.empty(n, dtype=np.int64)  # among the sites of one home
        self.rank[order] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)

    def distances(self, start: int, most: int) -> np.ndarray:
        """Edges from a node, ``most`` + 1 beyond."""
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
    """The pairs of sites with Hermite coefficients c (n, K)."""
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
    for i in range(0, graph.hubs.size, _AT_ONCE):  # latents that touch very many rows: with all sites
        hubs = graph.hubs[i : i + _AT_ONCE]
        b = np.zeros((L, hubs.size))
        b[hubs, np.arange(hubs.size)] = 1.0
        R = np.asarray(graph.W @ part.solve(b)) * scale[:, None] * latent_scale[hubs]
        power = np.ones_like(R)
        for k in range(1, TERMS):
            power *= R
            of_latents[hubs, k] = c[:, k] @ power
    far = beyond[:, reach] / 2.0  # each pair is seen from both of its ends
    total = 0.5 * float(sums[0]) + n * float(far.mean())
    off = (within[:, reach] - np.sum(c[probes, 1:TERMS] * of_sites[probes, 1:], axis=1)) / 2.0  # what other seeds did
    error = 0.5 * float(sums[1]) + _ENOUGH * abs(total) + n * abs(float(off.mean()))
    error += n * float(far.std(ddof=1) + off.std(ddof=1)) / float(np.sqrt(far.size))
    return Neighbours(total, error, of_sites, of_latents)


def _seeds(graph: Graph, colour: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sites of one colour and rank, set after set, with random signs; where each set starts, and the end."""
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
    """What triples may add, from one patch of neighbouring sites, times how many such patches there are.

    Its covariance is that of the latents around it by themselves, those farther away held where they are.
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
    """Some sites, sums of log(1 + u) of them with all others beyond each reach (probes, reaches), and of u within it.

    The latter of the first terms of u, which sums over neighbours have too.
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
    """How far neighbours reach, and colours more than three times that apart, in at most ``_SOLVES`` solves."""
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
