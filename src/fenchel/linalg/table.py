"""All rows of a table by ``_table.row``, with the slopes of the evidence in what belongs to single columns:

elbo_r = D_r - gap_r,    dP/dlog v = sum_r [((y - h)^2 + rho) / (2 v) - 1/2],
dP/dcutpoint: tau of its potential, and what the width of a level adds
"""

from __future__ import annotations

from math import exp, expm1, inf, log

import numpy as np

from ._blas import NO
from ._cells import COUNT, ORDERED, REAL, SOFTMAX, ends
from ._table import evaluate, row
from .compiled import called_by_loops, compiled


@called_by_loops(error_model="numpy")
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


@compiled(error_model="numpy")
def solve(
    values, s, cold, kind, first, levels, mt, variance, cuts, W, table, tol, most, mean, V, alpha, lam, elbo, gap
):  # pragma: no cover - compiled
    """Every row from s (R, Q), or from a start of its own: mean (R, L), V (R, T), alpha and lam (R, Q), elbo, gap (R,).

    They are filled in, s with where it ended; alpha and lam are 0 where a cell is missing. ``tol`` (R,) is the gap each
    row is solved to. Returns the largest number of iterations and the slopes of the header: in log v (D,), and in the
    cutpoints with both open ends (D, K + 1).
    """
    (R, D), (Q, L) = values.shape, W.shape
    T = L * (L + 1) // 2
    N = L + T
    work, X, B = np.zeros((18, Q)), np.zeros((Q, L)), np.zeros((Q, N))
    H, r, u, A = np.zeros((N, N)), np.zeros(2 * N), np.zeros(L), np.zeros(T)
    C, root = np.zeros((L, L)), np.zeros((L, L))
    slope_v, slope_cut, longest = np.zeros(D), np.zeros((D, cuts.shape[1] + 2)), 0
    for n in range(R):
        y = values[n]
        best, c = inf, 1.0
        for q in range(Q):
            work[0, q] = s[n, q]
        while cold:
            _begin(y, kind, first, levels, mt, cuts, c, work[0])
            value, _ = evaluate(y, kind, first, levels, mt, variance, cuts, W, table, work, u, A, C, root, NO)
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
                t += 1
        for j in range(D):
            seen = not np.isnan(y[j])
            for q in range(first[j], first[j + 1]):
                alpha[n, q], lam[n, q] = (work[2, q], work[3, q]) if seen else (0.0, 0.0)
            if not seen:
                continue
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
    return longest, slope_v, slope_cut
