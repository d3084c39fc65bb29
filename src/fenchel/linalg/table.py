"""All rows of a table by ``_table.row``, with what they add up to: the evidence and its slopes.

elbo_r = D_r - gap_r,    dP/dW_q = -sum_r (alpha m + lam V W_q) = -sum_r (alpha - lam W_q'm) m - second_q W_q,
dP/dmt_q = -sum_r alpha,   second_q = sum_r lam (V + m m'),   m = -u
dP/dlog v = sum_r [((y - h)^2 + rho) / (2 v) - 1/2],   dP/dcutpoint: tau of its potential, and of a level's width
"""

from __future__ import annotations

from math import exp, expm1, inf, log

import numpy as np
from numba import njit

from ._cells import COUNT, ORDERED, REAL, SOFTMAX, ends
from ._cells import sites as cell_sites
from ._table import evaluate, row


@njit(cache=True, nogil=True, error_model="numpy")
def _begin(y, kind, first, levels, mt, cuts, c, s):  # pragma: no cover - compiled
    """A start between alpha = 0 (c = 0, but for what has no such s) and the prior's mean (c = 1)."""
    for j in range(kind.size):
        q, what = first[j], kind[j]
        if np.isnan(y[j]):
            for i in range(q, first[j + 1]):
                s[i] = 0.0
        elif what == REAL:
            s[q] = y[j] + c * (mt[q] - y[j])
        elif what == COUNT:
            s[q] = (1.0 - c) * log(y[j] + 0.5) + c * mt[q]
        elif what == SOFTMAX:
            stop, label, top, total = first[j + 1], int(y[j]), 0.0, 0.0
            for i in range(q, stop):
                top = max(top, mt[i])
            for i in range(q, stop):
                total += exp(mt[i] - top)
            total += exp(-top)
            rest = c * exp(-top) / total + (1.0 - c if label == stop - q else 0.0)
            for i in range(q, stop):
                p = c * exp(mt[i] - top) / total + (1.0 - c if label == i - q else 0.0)
                s[i] = log(max(p, 1e-30)) - log(max(rest, 1e-30))
        elif what < ORDERED:
            tau = y[j] + c * (1.0 / (1.0 + exp(-mt[q])) - y[j])
            tau = min(max(tau, 1e-12), 1.0 - 1e-12)
            s[q] = log(tau / (1.0 - tau))
        else:
            lo, hi = ends(cuts[j], int(y[j]), levels[j] - 1)
            both = hi - lo < inf
            for i in range(2):
                shift = hi if i == 0 else -lo
                x = mt[q] - hi if i == 0 else lo - mt[q]
                tau = 0.25 if both else c / (1.0 + exp(-x))
                tau = min(max(tau, 1e-12), 1.0 - 1e-12)
                s[q + i] = log(tau / (1.0 - tau)) + shift if abs(shift) < inf else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def solve(
    values, s, cold, kind, first, levels, mt, variance, cuts, W, table, tol, most, mean, V, elbo, gap
):  # pragma: no cover - compiled
    """Every row from s (R, Q), or from a start of its own: mean (R, L), V (R, T), elbo and gap (R,) are filled in.

    ``tol`` (R,) is the gap each row is solved to. Returns the largest number of iterations and the sums of the header:
    slopes in W without its second term (Q, L), in mt (Q,), second (Q, T), in log v (D,), in the cutpoints with both
    open ends (D, K + 1).
    """
    (R, D), (Q, L) = values.shape, W.shape
    T = L * (L + 1) // 2
    N = L + T
    work, X, B = np.zeros((18, Q)), np.zeros((Q, L)), np.zeros((Q, N))
    H, r, u, A = np.zeros((N, N)), np.zeros(2 * N), np.zeros(L), np.zeros(T)
    C, root = np.zeros((L, L)), np.zeros((L, L))
    slope_W, slope_b, second = np.zeros((Q, L)), np.zeros(Q), np.zeros((Q, T))
    slope_v, slope_cut, longest = np.zeros(D), np.zeros((D, cuts.shape[1] + 2)), 0
    moments = np.zeros(T)
    for n in range(R):
        y = values[n]
        best, c = inf, 1.0
        for q in range(Q):
            work[0, q] = s[n, q]
        while cold:
            _begin(y, kind, first, levels, mt, cuts, c, work[0])
            value, _ = evaluate(y, kind, first, levels, mt, variance, cuts, W, table, work, u, A, C, root, False)
            if not value < best or c < 1e-4:
                break
            best, c = value, c / 4.0
            for q in range(Q):
                s[n, q] = work[0, q]
        if cold and best < inf:
            for q in range(Q):
                work[0, q] = s[n, q]
        dual, own, steps = row(
            y, kind, first, levels, mt, variance, cuts, W, table, work, X, B, H, r, u, A, C, root, tol[n], most
        )
        for q in range(Q):
            s[n, q] = work[0, q]
        longest = max(longest, steps)
        elbo[n], gap[n] = dual - own, own
        t = 0
        for i in range(L):
            mean[n, i] = -u[i]
            for k in range(i + 1):
                x = 0.0
                for m in range(i, L):
                    x += root[m, i] * root[m, k]
                V[n, t] = x
                moments[t] = x + u[i] * u[k]
                t += 1
        for j in range(D):
            if np.isnan(y[j]):
                continue
            for q in range(first[j], first[j + 1]):
                lam, pull = work[3, q], work[2, q]
                slope_b[q] -= pull
                pull -= lam * (work[8, q] - mt[q])
                for i in range(L):
                    slope_W[q, i] -= pull * mean[n, i]
                for t in range(T):
                    second[q, t] += lam * moments[t]
            q = first[j]
            if kind[j] == REAL:
                x = y[j] - work[8, q]
                slope_v[j] += 0.5 * (x * x + work[7, q]) / variance[j] - 0.5
            elif kind[j] >= ORDERED:
                level = int(y[j])
                lo, hi = ends(cuts[j], level, levels[j] - 1)
                both = 1.0 / expm1(min(hi - lo, 700.0)) if hi - lo < inf else 0.0
                slope_cut[j, level + 1] += work[1, q] + both
                slope_cut[j, level] -= work[1, q + 1] + both
    return longest, slope_W, slope_b, second, slope_v, slope_cut


@njit(cache=True, nogil=True, error_model="numpy")
def sites(values, s, kind, first, levels, mt, variance, cuts):  # pragma: no cover - compiled
    """alpha and lam (R, Q) at s, 0 where a cell is missing."""
    R, Q = s.shape
    alpha, lam, work = np.zeros((R, Q)), np.zeros((R, Q)), np.zeros((18, Q))
    for n in range(R):
        work[:] = 0.0
        work[0, :] = s[n]
        cell_sites(values[n], kind, first, levels, mt, variance, cuts, work)
        alpha[n], lam[n] = work[2], work[3]
    return alpha, lam
