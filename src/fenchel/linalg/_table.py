"""The rows of a table, each a small dual problem of its own, solved one after another; compiled by numba.

A row has z ~ N(0, I), L of them, and potentials q = 1..Q with eta_q = W_q' z + mt_q. With A = I + sum lam_q W_q W_q',
V = A^-1, u = sum alpha_q W_q, h_q = mt_q - W_q' u and rho_q = W_q' V W_q, its dual and its slope in s are

    D = |u|^2 / 2 - sum mt_q alpha_q - 1/2 log|A| + sum k_q - const,      g_q = s_q - a_q h_q - lam'_q rho_q / 2

and Newton's system (J^-1 + extra + M) dtau = -g has M = B B' of low rank, B = [a W, lam' F / sqrt 2], F F' = Vt o Vt by
the packed pairs of X = D W_q, D'D = V: with Jt = (J^-1 + extra)^-1 it is solved in I + B' Jt B, L + L (L + 1) / 2
wide; or, cheaper, with diag(rho^2) for Vt o Vt, which leaves L. Potentials of a column, by ``kind``:

    0 logistic, log-sum bound    tau = sigma(s), lam = tau             3 real number   tau = s / v, lam = 1 / v
    1 logistic, tilted bound     tau = sigma(s), lam = tau (1 - tau)   4 softmax, K - 1 potentials, the last class is 0
    2 count                      tau = lam = e^s                       5, 6 ordered levels: two logistic potentials on
                                                                       one predictor, log-sum and tilted

All in one loop (the potentials themselves in ``_cells.py``) because arrays of a few numbers a row spend their time in
the calls.
"""

from __future__ import annotations

from math import exp, inf, log, log1p, sqrt

import numpy as np

from ._blas import YES
from ._cells import COUNT, LOGISTIC, ORDERED, ORDERED_TILTED, REAL, SOFTMAX, TILTED, coin, ends, rise, sites, tilted
from .compiled import called_by_loops
from .tolerances import ARMIJO, PATIENCE, REACH, ROUNDING, SLOW, SLOW_STEPS


@called_by_loops(error_model="numpy", fastmath={"reassoc", "contract"})
def _dual(y, kind, first, value, W, table, work, u, A, C, D):  # pragma: no cover - compiled
    """D of a row from its sites (``value``: their sum); u, C (the factor of I + A) and D = C^-1 in place."""
    L = W.shape[1]
    for i in range(L):
        u[i] = 0.0
    for t in range(A.size):
        A[t] = 0.0
    for j in range(kind.size):
        if np.isnan(y[j]):
            continue
        for q in range(first[j], first[j + 1]):
            a, b = work[2, q], work[3, q]
            for i in range(L):
                u[i] += a * W[q, i]
            for t in range(A.size):
                A[t] += b * table[q, t]
    if not abs(value) < inf:
        return inf
    t = 0
    for i in range(L):
        for j in range(i + 1):
            x = A[t] + (1.0 if i == j else 0.0)
            t += 1
            for k in range(j):
                x -= C[i, k] * C[j, k]
            if i == j:
                if not 0.0 < x < inf:
                    return inf
                C[i, i] = sqrt(x)
                value -= 0.5 * log(x)
            else:
                C[i, j] = x / C[j, j]
    for j in range(L):
        D[j, j] = 1.0 / C[j, j]
        for i in range(j + 1, L):
            x = 0.0
            for k in range(j, i):
                x -= C[i, k] * D[k, j]
            D[i, j] = x / C[i, i]
    for i in range(L):
        value += 0.5 * u[i] * u[i]
    return value if abs(value) < inf else inf


@called_by_loops(error_model="numpy", fastmath={"reassoc", "contract"})
def _seen(y, kind, first, levels, mt, variance, cuts, W, table, work, u, D, V):  # pragma: no cover - compiled
    """rho, h and the slope g of every potential; returns the gap of the row. V, packed, has its off-diagonal twice."""
    L, gap, t = W.shape[1], 0.0, 0
    for i in range(L):
        for k in range(i + 1):
            x = 0.0
            for m in range(i, L):
                x += D[m, i] * D[m, k]
            V[t] = x if i == k else 2.0 * x
            t += 1
    for j in range(kind.size):
        if np.isnan(y[j]):
            continue
        what, start, stop = kind[j], first[j], first[j + 1]
        lo, hi = 0.0, 0.0
        if what >= ORDERED:
            lo, hi = ends(cuts[j], int(y[j]), levels[j] - 1)
        for q in range(start, stop):
            h, rho = mt[q], 0.0
            for t in range(V.size):
                rho += V[t] * table[q, t]
            for i in range(L):
                h -= u[i] * W[q, i]
            sign = -1.0 if what >= ORDERED and q > start else 1.0
            work[7, q], work[8, q] = rho, h
            work[9, q] = work[0, q] - sign * h - 0.5 * work[4, q] * rho  # g
            if what == SOFTMAX:
                continue
            if what == REAL:
                gap += 0.5 * work[9, q] * work[9, q] / variance[j]
                continue
            if what == COUNT:
                gap += work[1, q] * rise(-work[9, q])
                continue
            shift = 0.0 if what < ORDERED else (-lo if q > start else hi)
            if not abs(shift) < inf:
                work[9, q] = 0.0
                continue
            if what in (LOGISTIC, ORDERED):
                gap += coin(work[1, q], -work[9, q])
            else:
                s, tau, spread = work[0, q] - shift, work[1, q], work[5, q]
                step = (sign * h - shift - s - 0.5 * rho * (2.0 * tau - 1.0)) / (1.0 + rho * spread)
                if abs(step) < 1e-4:  # Newton's first step to the maximum leaves its square, the gap the square of that
                    move = spread * step * (1.0 + 0.5 * (1.0 - 2.0 * tau) * step)
                else:
                    step = tilted(sign * h - shift, rho, s) - s
                    move = 1.0 / (1.0 + exp(-s - step)) - tau
                gap += coin(tau, step) + 0.5 * rho * move * move
        if what == SOFTMAX:
            mean, top, small, total = 0.0, -inf, 0.0, 0.0
            for q in range(start, stop):
                mean -= work[1, q] * work[9, q]
            for q in range(start, stop):
                top = max(top, -work[9, q] - mean)
                small += work[1, q] * rise(-work[9, q] - mean)
            top, rest = max(top, -mean), work[6, start]
            small += rest * rise(-mean)
            if top < 1.0:
                gap += log1p(small)
            else:
                for q in range(start, stop):
                    total += work[1, q] * exp(-work[9, q] - mean - top)
                total += rest * exp(-mean - top)
                gap += top + log(max(total, 5e-324))
    return gap if gap == gap else inf


@called_by_loops(error_model="numpy", fastmath={"reassoc", "contract"})
def _newton(y, kind, first, W, table, work, D, X, B, A, H, r, whole):  # pragma: no cover - compiled
    """ds (row 12) and dtau (row 11) of Newton's system; g'dtau, or NaN where it cannot be solved.

    ``whole``: with Vt o Vt, in L + T dimensions; else with diag(rho^2), in L.
    """
    L = W.shape[1]
    N = L + L * (L + 1) // 2 if whole else L
    for i in range(N):
        r[i] = 0.0
        for k in range(i + 1):
            H[i, k] = 1.0 if i == k else 0.0
    half = sqrt(0.5)
    for t in range(A.size):
        A[t] = 0.0
    for j in range(kind.size):
        if np.isnan(y[j]):
            continue
        what, start, stop = kind[j], first[j], first[j + 1]
        soft = what == SOFTMAX
        total, lead = (work[6, start] if soft else 0.0), 0.0
        for q in range(start, stop):
            bend = work[7, q] if what in (TILTED, ORDERED_TILTED) else 0.0
            slope = work[4, q]
            if not whole:
                bend += 0.5 * slope * slope * work[7, q] * work[7, q]
            d = work[5, q] / (1.0 + work[5, q] * bend)
            work[10, q], work[13, q] = d, bend
            total += d
            lead += d * work[9, q]
            sign = -1.0 if what >= ORDERED and q > start else 1.0
            for i in range(L):
                B[q, i] = sign * W[q, i]
            if whole:
                for i in range(L):
                    x = 0.0
                    for k in range(i + 1):
                        x += D[i, k] * W[q, k]
                    X[q, i] = x
                t = L
                for i in range(L):
                    for k in range(i):
                        B[q, t] = slope * X[q, i] * X[q, k]
                        t += 1
                    B[q, t] = half * slope * X[q, i] * X[q, i]
                    t += 1
        shared = soft and total > 0.0
        if shared:
            for i in range(N):
                z = 0.0
                for q in range(start, stop):
                    z += work[10, q] * B[q, i]
                r[N + i] = z
            for i in range(N):
                for k in range(i + 1):
                    H[i, k] -= r[N + i] * r[N + k] / total
        for q in range(start, stop):
            d = work[10, q]
            work[11, q] = -d * (work[9, q] - (lead / total if shared else 0.0))  # Jt (-g)
            for i in range(N):
                r[i] += work[11, q] * B[q, i]
            if whole:
                for i in range(N):
                    x = d * B[q, i]
                    for k in range(i + 1):
                        H[i, k] += x * B[q, k]
            else:
                for t in range(A.size):
                    A[t] += d * table[q, t]
        work[14, start] = total
    for i in range(N):
        for k in range(i + 1):
            x = H[i, k] + (0.0 if whole else A[i * (i + 1) // 2 + k])
            for m in range(k):
                x -= H[i, m] * H[k, m]
            if i == k:
                if not x > 0.0:
                    return np.nan
                H[i, i] = sqrt(x)
            else:
                H[i, k] = x / H[k, k]
        x = r[i]
        for k in range(i):
            x -= H[i, k] * r[k]
        r[i] = x / H[i, i]
    for i in range(N - 1, -1, -1):
        x = r[i]
        for k in range(i + 1, N):
            x -= H[k, i] * r[k]
        r[i] = x / H[i, i]
    slope = 0.0
    for j in range(kind.size):
        if np.isnan(y[j]):
            continue
        start, stop = first[j], first[j + 1]
        lead, total = 0.0, work[14, start]
        for q in range(start, stop):
            x = 0.0
            for i in range(N):
                x += B[q, i] * r[i]
            work[12, q] = x
            lead += work[10, q] * x
        shared = kind[j] == SOFTMAX and total > 0.0
        for q in range(start, stop):
            x = work[12, q]
            work[11, q] -= work[10, q] * (x - (lead / total if shared else 0.0))
            work[12, q] = -work[9, q] - x - work[13, q] * work[11, q]
            slope += work[9, q] * work[11, q]
    return slope


@called_by_loops(error_model="numpy")
def _bounded(y, kind, first, work):  # pragma: no cover - compiled
    """ds with every coordinate's move held to its reach; in a softmax, its move relative to the mean of all classes."""
    for j in range(kind.size):
        if np.isnan(y[j]) or kind[j] == REAL:
            continue
        start, stop = first[j], first[j + 1]
        mean, ref = 0.0, 0.0
        if kind[j] == SOFTMAX:
            for q in range(start, stop):
                mean += work[5, q] * work[12, q]
            ref = min(max(-mean, -REACH), REACH)
        for q in range(start, stop):
            work[12, q] = min(max(work[12, q] - mean, -REACH), REACH) - ref


@called_by_loops(error_model="numpy")
def evaluate(
    y, kind, first, levels, mt, variance, cuts, W, table, work, u, A, C, D, gaps
):  # pragma: no cover - compiled
    """Dual and, where asked for, gap of a row at s = work[0]; ``work``, u, D and A (V, packed) belong to it."""
    value = sites(y, kind, first, levels, mt, variance, cuts, work)
    dual = _dual(y, kind, first, value, W, table, work, u, A, C, D)
    if dual == inf or not gaps:
        return dual, inf
    return dual, _seen(y, kind, first, levels, mt, variance, cuts, W, table, work, u, D, A)


@called_by_loops(error_model="numpy")
def row(
    y, kind, first, levels, mt, variance, cuts, W, table, work, X, B, H, r, u, A, C, D, tol, most
):  # pragma: no cover - compiled
    """Solve one row from s = work[0]: dual, gap and iterations. On return ``work`` and u, D hold its solution.

    Rows of work: 0 s, 1 tau, 2 alpha, 3 lam, 4 lam', 5 spread, 6 slack, 7 rho, 8 h, 9 g, 10 to 14 of ``_newton``, 15
    the last s, 16 the best, 17 the step. A step is whole and need not lower the dual at once; after some without a new
    best the search goes back to it and takes a careful one. Where the promise is below rounding, the gap judges.
    """
    dual, gap, before, old, best, best_gap = inf, inf, inf, inf, inf, inf
    patience, slow, n, slope, step = PATIENCE, 0, 0, 0.0, 0.0  # step 0: at a point, about to leave it
    flat, careful, whole, final, Q = False, False, W.shape[1] <= 3, False, W.shape[0]
    while True:
        dual, gap = evaluate(y, kind, first, levels, mt, variance, cuts, W, table, work, u, A, C, D, YES)
        if step > 0.0:
            if flat or careful:
                least = ARMIJO * step * slope if careful else -0.1 * ROUNDING * max(1.0, abs(before))
                taken = dual < inf and (gap < old or dual < before + least)
            else:
                taken = dual < inf and (dual <= best or gap < best_gap or patience > 0)
            if not taken:
                step *= 0.5 if step > 0.1 else 0.1
                if (flat or careful or dual == inf) and step > 1e-7:
                    for q in range(Q):
                        work[0, q] = work[15, q] + step * work[17, q]
                    continue
                final = final or flat or careful
                careful, step = True, 0.0
                for q in range(Q):
                    work[0, q] = work[16, q]
                continue
            careful = False
            slow = slow + 1 if gap > SLOW * old else slow
            whole = whole or slow >= SLOW_STEPS
        if dual <= best or gap < best_gap:
            best, best_gap, patience = dual, gap, PATIENCE
            for q in range(Q):
                work[16, q] = work[0, q]
        else:
            patience -= 1
        if final or n >= most or dual == inf or gap <= tol:
            return dual, gap, n
        slope = _newton(y, kind, first, W, table, work, D, X, B, A, H, r, whole)
        if slope != slope:
            if whole:
                return dual, gap, n
            whole, step = True, 0.0
            continue
        n += 1
        flat = not -slope > ROUNDING * max(1.0, abs(dual))
        if not flat:
            _bounded(y, kind, first, work)
        before, old, step = dual, gap, 1.0
        for q in range(Q):
            work[15, q], work[17, q] = work[0, q], work[12, q]
            work[0, q] += work[12, q]
