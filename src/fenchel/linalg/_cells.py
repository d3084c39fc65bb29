"""The potentials of a table's cells, one at a time, compiled by numba for ``_table.py``: see there for the kinds.

They are the formulas of ``likelihoods/``, where they are explained: tau(s), k(tau), lam(tau) and the divergences.
"""

from __future__ import annotations

from math import exp, expm1, inf, lgamma, log, log1p, pi

import numpy as np

from .compiled import called_by_loops

LOGISTIC, TILTED, COUNT, REAL, SOFTMAX, ORDERED, ORDERED_TILTED = range(7)


@called_by_loops(error_model="numpy")
def rise(x):  # pragma: no cover - compiled
    """exp(x) - 1 - x."""
    if abs(x) < 0.03:
        return x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7)))))
    return expm1(x) - x


@called_by_loops(error_model="numpy")
def coin(tau, delta):  # pragma: no cover - compiled
    """log(1 - tau + tau e^delta) - tau delta >= 0: the Bregman divergence of log(1 + e^s)."""
    if abs(delta) < 0.01:  # its first six cumulants
        v, lead = tau * (1.0 - tau), 1.0 - 2.0 * tau
        fourth, fifth = 1.0 - 6.0 * v, lead * (1.0 - 12.0 * v)
        series = lead / 3 + delta * (fourth / 12 + delta * (fifth / 60 + delta * (1.0 - 30.0 * v * fourth) / 360))
        return v * delta * delta * (0.5 + 0.5 * delta * series)
    up, down = (1.0 - tau) * delta, -tau * delta
    top = max(up, down)
    if top < 1.0:
        return log1p(tau * rise(up) + (1.0 - tau) * rise(down))
    total = tau * exp(up - top) + (1.0 - tau) * exp(down - top)
    return top + log(max(total, 5e-324))


@called_by_loops(error_model="numpy")
def tilted(h, rho, near):  # pragma: no cover - compiled
    """s with s + rho/2 tanh(s/2) = h, by Newton from the left of a concave function (of |h|)."""
    size, half = abs(h), rho / 2
    least = max(size / (1.0 + half / 2), size - half)
    s = max(-near if h < 0.0 else near, least)
    for _ in range(60):
        e = exp(-s)
        t = (1.0 - e) / (1.0 + e)
        step = (size - s - half * t) / (1.0 + half / 2 * (1.0 - t * t))
        s = max(s + step, least)
        if not abs(step) > 1e-8 * (1.0 + s):
            break
    return -s if h < 0.0 else s


@called_by_loops(error_model="numpy")
def ends(cuts, level, top):  # pragma: no cover - compiled
    """Lower and upper cutpoint of a level, infinite at the outer ones."""
    return (-inf if level == 0 else cuts[level - 1]), (inf if level == top else cuts[level])


@called_by_loops(error_model="numpy")
def site(q, x, shift, tilted, work):  # pragma: no cover - compiled
    """A logistic potential at s = x with log(1 + e^{s - shift}); returns k. Rows of work: see ``row``."""
    if not abs(shift) < inf:  # the open end of an ordered level: no potential
        work[1, q], work[2, q], work[3, q], work[4, q], work[5, q] = 0.0, 0.0, 0.0, 0.0, 0.0
        return 0.0
    x -= shift
    size = abs(x)
    e = exp(-size)
    large = 1.0 / (1.0 + e)
    small = e * large
    tau, rest = (large, small) if x >= 0.0 else (small, large)
    work[1, q] = tau
    work[3, q] = small * large if tilted else tau
    work[4, q] = rest - tau if tilted else 1.0
    work[5, q] = small * large
    return -(log1p(e) + small * size) + tau * shift


@called_by_loops(error_model="numpy")
def sites(y, kind, first, levels, mt, variance, cuts, work):  # pragma: no cover - compiled
    """Every potential of a row at s = work[0]: tau, alpha, lam, lam', spread; sum of k - mt alpha - const."""
    value = 0.0
    for j in range(kind.size):
        if np.isnan(y[j]):
            continue
        q, what = first[j], kind[j]
        if what in (LOGISTIC, TILTED):
            k = site(q, work[0, q], 0.0, what == TILTED, work)
            work[2, q] = work[1, q] - y[j]
            value += k - mt[q] * work[2, q]
        elif what == COUNT:
            tau = exp(work[0, q])
            work[1, q], work[2, q], work[3, q], work[4, q], work[5, q] = tau, tau - y[j], tau, 1.0, tau
            value += tau * (work[0, q] - 1.0) - mt[q] * work[2, q] - lgamma(y[j] + 1.0)
        elif what == REAL:
            v, a, b = variance[j], work[0, q] - mt[q], y[j] - mt[q]
            work[1, q], work[2, q] = work[0, q] / v, (work[0, q] - y[j]) / v
            work[3, q], work[4, q], work[5, q] = 1.0 / v, 0.0, 1.0 / v
            value += 0.5 * (a * a - b * b) / v - 0.5 * log(2.0 * pi * v)
        elif what == SOFTMAX:
            last, label = first[j + 1], int(y[j])
            top, total, k = 0.0, 0.0, 0.0
            for i in range(q, last):
                top = max(top, work[0, i])
            for i in range(q, last):
                work[1, i] = exp(work[0, i] - top)
                total += work[1, i]
            rest = exp(-top)
            total += rest
            level = top + log(total)
            for i in range(q, last):
                p = work[1, i] / total
                k += p * (work[0, i] - level)
                work[1, i], work[2, i], work[3, i] = p, p - (1.0 if label == i - q else 0.0), p
                work[4, i], work[5, i] = 1.0, p
                k -= mt[i] * work[2, i]
            work[6, q] = rest / total  # the slack
            value += k - rest / total * level
        else:
            lo, hi = ends(cuts[j], int(y[j]), levels[j] - 1)
            k = site(q, work[0, q], hi, what == ORDERED_TILTED, work)
            k += site(q + 1, work[0, q + 1], -lo, what == ORDERED_TILTED, work)
            work[2, q], work[2, q + 1] = work[1, q], -work[1, q + 1]
            value += k - mt[q] * (work[2, q] + work[2, q + 1])
            if hi - lo < inf:
                value += log(-expm1(lo - hi))
    return value
