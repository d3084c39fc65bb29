"""Compiled loops over pairs of sites: Mehler's series if it converges fast, else numerical integration.

    u_nm = sum_k R_nm^k c_kn c_km                         the series of one pair
    f_m(x) = E[exp gt_m(x_m) | x] / z_m                   = 1 + sum_k R^k c_km he_k(x), or by Gauss-Hermite over x_m | x

he_k are Hermite polynomials of norm 1 under N(0, 1). ``gt`` is known on an even grid and interpolated by cubics.

For very many sites under a sparse prior: colours of a graph that are far apart, the nearest seed of each node, and sums
over pairs of neighbours.
"""

import numpy as np

from ..linalg.compiled import compiled


@compiled(fastmath=True)
def pair_series(R, first, c, tails, label, tol, sums, worst, listed):
    """Sum of log(1 + u) over pairs (first + i, m), m > first + i, with different labels.

    Pairs whose series does not converge fast are listed instead. sums: [sum, absolute last terms, smallest 1 + u];
    worst: R of the listed pairs. Returns the number of listed pairs.
    """
    n, K = c.shape
    found = 0
    for i in range(R.shape[0]):
        a = first + i
        for m in range(a + 1, n):
            if label[m] == label[a]:
                continue
            r = R[i, m]
            p, u, k = 1.0, 0.0, 1
            left = abs(r) * tails[a, 1] * tails[m, 1]
            while k < K and left > tol:
                p *= r
                u += p * c[a, k] * c[m, k]
                k += 1
                if k < K:
                    left = abs(p * r) * tails[a, k] * tails[m, k]
                else:
                    left = abs(p) * tails[a, K - 1] * tails[m, K - 1]
            if (left > tol or u <= -0.5) and found < listed.shape[0]:
                listed[found, 0] = a
                listed[found, 1] = m
                worst[found] = r
                found += 1
                continue
            if left > tol:
                sums[1] += left
            if 1.0 + u < sums[2]:
                sums[2] = 1.0 + u
            sums[0] += np.log1p(max(u, -0.99))
    return found


@compiled
def interpolated(gt, low, step, y):
    """Value at y by a cubic through the four nodes of the grid around it; linear beyond the ends."""
    M = gt.shape[0]
    t = (y - low) / step
    if t <= 1.0:
        return gt[1] + (t - 1.0) * (gt[1] - gt[0])
    if t >= M - 2.0:
        return gt[M - 2] + (t - (M - 2.0)) * (gt[M - 1] - gt[M - 2])
    j = int(t)
    s = t - j
    a, b, d, e = gt[j - 1], gt[j], gt[j + 1], gt[j + 2]
    if a < -200.0 or b < -200.0 or d < -200.0 or e < -200.0:
        return b + s * (d - b) if (b > -1e300 and d > -1e300) else min(b, d)
    near = 0.5 * (s - 2.0) * ((s - 1.0) * (s + 1.0) * b - s * (s + 1.0) * d)
    return near + s * (s - 1.0) * ((s + 1.0) * e - (s - 2.0) * a) / 6.0


@compiled
def log_factor_direct(gt, log_z, low, step, r, x, nodes, weights, out):
    """log f at points x by Gauss-Hermite quadrature over x_m given x, which is N(r x, 1 - r^2)."""
    width = np.sqrt(max(0.0, 1.0 - r * r))
    for j in range(x.shape[0]):
        if width < 1e-4:
            out[j] = interpolated(gt, low, step, r * x[j]) - log_z
            continue
        total = 0.0
        for q in range(nodes.shape[0]):
            total += weights[q] * np.exp(interpolated(gt, low, step, r * x[j] + width * nodes[q]) - log_z)
        out[j] = np.log(max(total, 1e-300))


@compiled
def pairs_direct(listed, R, gt, log_z, low, step, x, tilted, nodes, weights, out):
    """1 + u of the listed pairs: the average of f_m over the tilted distribution of n on the points x."""
    f = np.empty(x.shape[0])
    for p in range(listed.shape[0]):
        a, m = listed[p, 0], listed[p, 1]
        log_factor_direct(gt[m], log_z[m], low, step, R[p], x, nodes, weights, f)
        total = 0.0
        for j in range(x.shape[0]):
            total += tilted[a, j] * np.exp(f[j])
        out[p] = total


@compiled(fastmath=True)
def log_factors(R, c, tails, he, ends, gt, log_z, low, step, x, nodes, weights, tol, own, out, floor):
    """Sum over sites m of log f_m(x) for targets (T, M) with correlations R (T, n); ``own`` has the target's own site.

    The series is used if its truncation error is below tol where |he_k| is of order one, and f is above the floor.
    Factors within 0.01 of 1 even at the far ends (|he_k| there: ``ends``) are added up by their coefficients; ``he`` is
    constant beyond these ends. With a negative tol every factor is integrated numerically.
    """
    T, n = R.shape
    K, M = he.shape
    prod, f = np.empty(M), np.empty(M)
    small, mine = np.empty(K), np.empty(K)
    for t in range(T):
        for j in range(M):
            prod[j] = 1.0
            out[t, j] = 0.0
            own[t, j] = 0.0
        for k in range(K):
            small[k] = 0.0
        since = 0
        for m in range(n):
            r = R[t, m]
            if 1.0 - abs(r) < 1e-9:
                log_factor_direct(gt[m], log_z[m], low, step, r, x, nodes, weights, f)
                for j in range(M):
                    own[t, j] += f[j]
                continue
            left, p, k = abs(r) * tails[m, 1], 1.0, 1
            if left <= abs(tol) * 0.01:
                continue
            size = 0.0
            while k < K and left > tol:
                p *= r
                mine[k] = p * c[m, k]
                size += abs(mine[k]) * ends[k]
                k += 1
                left = abs(p * r) * tails[m, k] if k < K else 1.0
            if left <= tol and size < 0.01:
                for q in range(1, k):
                    small[q] += mine[q]
                continue
            for j in range(M):
                f[j] = 1.0
            for q in range(1, k):
                a = mine[q]
                for j in range(M):
                    f[j] += a * he[q, j]
            least = f[0]
            for j in range(M):
                least = min(least, f[j])
            if left > tol or least < floor:
                log_factor_direct(gt[m], log_z[m], low, step, r, x, nodes, weights, f)
                for j in range(M):
                    out[t, j] += f[j]
                continue
            for j in range(M):
                prod[j] *= f[j]
            since += 1
            if since == 4:
                for j in range(M):
                    out[t, j] += np.log(prod[j])
                    prod[j] = 1.0
                since = 0
        for q in range(1, K):
            if small[q] != 0.0:
                for j in range(M):
                    out[t, j] += small[q] * he[q, j]
        for j in range(M):
            out[t, j] += np.log(prod[j])


@compiled
def cluster_densities(start, member, loading, r, gt, log_z, low, step, t, nodes, he, least, log_t, score, bend, two):
    """log_t (clusters, J): log [prod_n z_n(t) prod_{n<m} (1 + u_nm(t))] - t't/2 of each cluster at points t (J, q).

    The members (start, member) have x_n = loading_n . t + sigma_n e_n; r are the correlations of e, pair after pair,
    empty if they are 0. ``score`` and ``bend`` (members, J), unless empty: z_n' / z_n and z_n'' / z_n, 0 if sigma is 0.
    ``two`` (like r): sums over t of phi z_n z_m (1 + u_nm), not normalised. ``he`` (K, Q): polynomials times weights at
    the nodes. Points more than ``least`` nats below the maximum, computed without e, are skipped.
    """
    J, q = t.shape
    K = he.shape[0]
    pair = 0
    for c in range(start.shape[0] - 1):
        a, b = start[c], start[c + 1]
        coefficient = np.empty((b - a, K))
        rough = np.empty(J)
        for j in range(J):
            total = 0.0
            for k in range(q):
                total -= 0.5 * t[j, k] * t[j, k]
            for n in range(a, b):
                y = 0.0
                for k in range(q):
                    y += loading[n, k] * t[j, k]
                total += interpolated(gt[member[n]], low, step, y) - log_z[member[n]]
            rough[j] = total
        top = rough.max()
        for j in range(J):
            log_t[c, j] = rough[j]
            if rough[j] < top - least:
                continue
            total = 0.0
            smooth = False
            for k in range(q):
                total -= 0.5 * t[j, k] * t[j, k]
            phi = total
            for n in range(a, b):
                m = member[n]
                y, left = 0.0, 1.0
                for k in range(q):
                    y += loading[n, k] * t[j, k]
                    left -= loading[n, k] * loading[n, k]
                if left < 1e-8:
                    total += interpolated(gt[m], low, step, y) - log_z[m]
                    coefficient[n - a] = 0.0
                    continue
                smooth = True
                width = np.sqrt(left)
                for k in range(K):
                    coefficient[n - a, k] = 0.0
                for p in range(nodes.shape[0]):
                    f = np.exp(interpolated(gt[m], low, step, y + width * nodes[p]) - log_z[m])
                    for k in range(K):
                        coefficient[n - a, k] += he[k, p] * f
                z = max(coefficient[n - a, 0], 1e-300)
                for k in range(1, K):
                    coefficient[n - a, k] /= z
                coefficient[n - a, 0] = np.log(z)
                total += coefficient[n - a, 0]
                if score.shape[0] > 0:
                    score[n, j] = coefficient[n - a, 1] / width
                    bend[n, j] = np.sqrt(2.0) * coefficient[n - a, 2] / left
            if smooth and r.shape[0] > 0:
                at = pair
                for n in range(b - a):
                    for m in range(n + 1, b - a):
                        u, power = 0.0, 1.0
                        for k in range(1, K):
                            power *= r[at]
                            u += power * coefficient[n, k] * coefficient[m, k]
                        u = max(u, -0.95)
                        total += np.log1p(u)
                        two[at] += np.exp(phi + coefficient[n, 0] + coefficient[m, 0]) * (1.0 + u)
                        at += 1
            log_t[c, j] = total
        pair += (b - a) * (b - a - 1) // 2


@compiled
def colours(indptr, indices, apart):
    """Greedy colouring such that nodes of one colour are more than ``apart`` edges from each other."""
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
    """Compute ``label``: the index of the nearest seed of each node within ``reach`` edges, else -1."""
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
    """Add log(1 + u) and the truncation error of every site with its nearest seed to sums, and R^k c_k to out.

    z is the solution for the seeds: the covariance of a site with its seed is its row of W (indptr, indices, data)
    times z.
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
    """Add the same sums R^k c_k for latents."""
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
