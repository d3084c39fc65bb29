"""Compiled loops over a graph of latents: colours far apart, the nearest seed of each node, sums over pairs."""

import numpy as np

from ..linalg.compiled import compiled


@compiled
def colours(indptr, indices, apart):
    """A colour for each node such that nodes of one colour are more than ``apart`` edges from each other: greedy."""
    n = indptr.shape[0] - 1
    colour = np.full(n, -1, dtype=np.int64)
    seen = np.full(n, -1, dtype=np.int64)
    used = np.full(n + 1, -1, dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    for v in range(n):
        queue[0] = v
        seen[v] = v
        head, tail = 0, 1
        for _ in range(apart):
            end = tail
            while head < end:
                w = queue[head]
                head += 1
                for e in range(indptr[w], indptr[w + 1]):
                    o = indices[e]
                    if seen[o] != v:
                        seen[o] = v
                        queue[tail] = o
                        tail += 1
                        if colour[o] >= 0:
                            used[colour[o]] = v
            if head == tail:
                break
        c = 0
        while used[c] == v:
            c += 1
        colour[v] = c
    return colour


@compiled
def nearest(indptr, indices, seeds, reach, label, queue):
    """label: the seed (its number) nearest to each node within ``reach`` edges, -1 elsewhere."""
    label[:] = -1
    tail = 0
    for s in range(seeds.shape[0]):
        label[seeds[s]] = s
        queue[tail] = seeds[s]
        tail += 1
    head = 0
    for _ in range(reach):
        end = tail
        while head < end:
            w = queue[head]
            head += 1
            for e in range(indptr[w], indptr[w + 1]):
                o = indices[e]
                if label[o] < 0:
                    label[o] = label[w]
                    queue[tail] = o
                    tail += 1


@compiled(fastmath=True)
def site_sums(label, home, indptr, indices, data, z, sign, seeds, scale, c, sums, out):
    """Adds to sums [log(1 + u), terms left out] of every site with its nearest seed, and R^k c_k of the seed to out.

    z are the solved seeds: the covariance of a site with its own is its row of W (indptr, indices, data) times z.
    """
    K, terms = c.shape[1], out.shape[1]
    for m in range(home.shape[0]):
        s = label[home[m]] if home[m] >= 0 else -1
        if s < 0 or seeds[s] == m:
            continue
        n = seeds[s]
        r = 0.0
        for e in range(indptr[m], indptr[m + 1]):
            r += data[e] * z[indices[e]]
        r *= sign[s] * scale[m] * scale[n]
        r = min(1.0, max(-1.0, r))
        p, u = 1.0, 0.0
        for k in range(1, K):
            p *= r
            u += p * c[n, k] * c[m, k]
            if k < terms:
                out[m, k] += p * c[n, k]
            if abs(p) < 1e-6 and k >= 3:
                break
        sums[1] += abs(p * c[n, K - 1] * c[m, K - 1])
        sums[0] += np.log1p(max(u, -0.9))


@compiled(fastmath=True)
def latent_sums(label, cov, sign, seeds, scale, latent_scale, c, out):
    """The same sums R^k c_k for latents."""
    for v in range(label.shape[0]):
        s = label[v]
        if s < 0:
            continue
        n = seeds[s]
        r = sign[s] * cov[v] * scale[n] * latent_scale[v]
        r = min(1.0, max(-1.0, r))
        p = 1.0
        for k in range(1, out.shape[1]):
            p *= r
            out[v, k] += p * c[n, k]
