"""Compiled sums over the nodes of groups, for likelihoods that consist of elementary terms (``ElementaryTerms``).

    t_m prop. to weight_m N(u_m) prod_j p(y_j | eta_jm),      eta_jm = base_j + a_j' step_m,    u_m = centre + step_m

One pass computes log t and the derivatives of all rows of a group. The factors 1 + e^-|x| of the rows are multiplied,
so that one logarithm replaces one for each softplus.
"""

import numpy as np

from ..linalg.compiled import called_by_loops, compiled

MANY = 500  # factors, each below 2, whose product does not overflow


@called_by_loops
def _softplus_row(weight, sign, shift, base, a, step, log_t, first, product, in_product):
    """Subtract weight softplus(sign (eta - shift)) from log t and its derivative from ``first``."""
    d = step.shape[1]
    for m in range(step.shape[0]):
        eta = base + a[0] * step[m, 0]
        if d == 2:
            eta += a[1] * step[m, 1]
        x = sign * (eta - shift)
        e = np.exp(-abs(x))
        large = 1.0 / (1.0 + e)
        if x > 0.0:
            log_t[m] -= weight * x
            first[m] -= weight * sign * large
        else:
            first[m] -= weight * sign * e * large
        if in_product:
            product[m] *= 1.0 + e
        else:
            log_t[m] -= weight * np.log1p(e)


@compiled
def tilt(
    start, base, A, weight, constant, linear, rate, sign, up, high, down, low,
    centre, step, log_weight, P, mu, log_norm,
    log_g, mean, second, pull, share_out,
):  # fmt: skip
    """Compute log g (K, S), E[step] (K, S, d), E[step step'] (K, S, d, d), E[l'] (n, S) and shares (K, S, M).

    ``pull`` is not computed if it has no rows, nor ``share_out`` if it has no nodes.
    """
    K, S = log_g.shape
    M, d = step.shape[1], step.shape[2]
    most = 1
    for k in range(K):
        most = max(most, start[k + 1] - start[k])
    log_t, product, share = np.empty(M), np.empty(M), np.empty(M)
    first = np.empty((most, M))
    slopes, shares = pull.shape[0] > 0, share_out.shape[2] > 0
    for k in range(K):
        begin, end = start[k], start[k + 1]
        for s in range(S):
            for m in range(M):
                x = centre[k, s, 0] + step[k, m, 0] - mu[k, 0]
                square = P[k, 0, 0] * x * x
                if d == 2:
                    y = centre[k, s, 1] + step[k, m, 1] - mu[k, 1]
                    square += 2.0 * P[k, 0, 1] * x * y + P[k, 1, 1] * y * y
                log_t[m] = log_weight[k, m] + log_norm[k] - 0.5 * square
                product[m] = 1.0
            factors = 0
            for j in range(begin, end):
                w, b, row = weight[j], base[j, s], first[j - begin]
                slope = linear[j]
                for m in range(M):
                    eta = b + A[j, 0] * step[k, m, 0]
                    if d == 2:
                        eta += A[j, 1] * step[k, m, 1]
                    log_t[m] -= w * (constant[j] + slope * eta)
                    row[m] = -w * slope
                if rate[j] > 0.0:
                    for m in range(M):
                        eta = b + A[j, 0] * step[k, m, 0]
                        if d == 2:
                            eta += A[j, 1] * step[k, m, 1]
                        e = w * rate[j] * np.exp(sign * eta)
                        log_t[m] -= e
                        row[m] -= sign * e
                if up[j] > 0.0:
                    one = w * up[j] == 1.0
                    factors += one
                    _softplus_row(w * up[j], 1.0, high[j], b, A[j], step[k], log_t, row, product, one)
                if down[j] > 0.0:
                    one = w * down[j] == 1.0
                    factors += one
                    _softplus_row(w * down[j], -1.0, low[j], b, A[j], step[k], log_t, row, product, one)
                if factors >= MANY or j == end - 1:
                    for m in range(M):
                        log_t[m] -= np.log(product[m])
                        product[m] = 1.0
                    factors = 0
            top = -np.inf
            for m in range(M):
                top = max(top, log_t[m])
            mass = 0.0
            for m in range(M):
                share[m] = np.exp(log_t[m] - top)
                mass += share[m]
            log_g[k, s] = top + np.log(mass)
            for m in range(M):
                share[m] /= mass
            for i in range(d):
                total = 0.0
                for m in range(M):
                    total += share[m] * step[k, m, i]
                mean[k, s, i] = total
                for other in range(i + 1):
                    total = 0.0
                    for m in range(M):
                        total += share[m] * step[k, m, i] * step[k, m, other]
                    second[k, s, i, other] = total
                    second[k, s, other, i] = total
            if slopes:
                for j in range(begin, end):
                    total = 0.0
                    for m in range(M):
                        if share[m] > 0.0:
                            total += share[m] * first[j - begin, m]
                    pull[j, s] = total
            if shares:
                share_out[k, s] = share
