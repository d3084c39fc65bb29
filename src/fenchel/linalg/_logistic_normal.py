"""The functions of ``logistic_normal.py`` under narrow normals, compiled for vector instructions over rows.

With u = e^x: sigma = u / (1 + u), 1 - sigma = 1 / (1 + u), and log(1 + e^-|x|) = 2 atanh(v) with
v = less / (1 + large) <= 1/3, where less and large are the two probabilities: a polynomial of ten terms with error
5e-17. There are no branches and no cancellation, so that tails keep their digits. With evenly spaced nodes e^x is a
geometric progression.
"""

from __future__ import annotations

import numpy as np

from .compiled import called_by_loops, compiled

_BLOCK = 256  # number of rows whose sums fit in the first-level cache
_FAR = 690.0  # limit of |x| in e^x; the error is below 1e-299


@called_by_loops(error_model="numpy")
def _bend(tau, rest):
    """log(1 + e^-|x|) for sigma(x) = tau and 1 - sigma(x) = rest."""
    v = min(tau, rest) / (1.0 + max(tau, rest))
    t = v * v
    p = 0.08890381913056651  # atanh(v) / v on 0 <= t <= 1/9
    p = p * t + 0.04940394524382393
    p = p * t + 0.06795652742789947
    p = p * t + 0.07681838124445817
    p = p * t + 0.09091429900236955
    p = p * t + 0.11111095430673142
    p = p * t + 0.1428571455582858
    p = p * t + 0.199999999976438
    p = p * t + 0.33333333333341286
    p = p * t + 1.0
    return 2.0 * v * p


@compiled(error_model="numpy")
def following(h, rho, index, z, weight, out):
    """Sums of the seven functions times ``weight`` over the nodes h + sqrt(rho) z, into out (7, N), for rows ``index``.

    The nodes z must be evenly spaced.
    """
    near, u, ratio, sd = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    total = np.empty((7, _BLOCK))
    for start in range(0, index.size, _BLOCK):
        rows = index[start : start + _BLOCK]
        m = rows.size
        for i in range(m):
            near[i], sd[i] = h[rows[i]], np.sqrt(rho[rows[i]])
            u[i] = np.exp(min(max(near[i], -_FAR), _FAR) + sd[i] * z[0])
            ratio[i] = np.exp(sd[i] * (z[1] - z[0]))
        total[:] = 0.0
        for k in range(z.size):
            node, w = z[k], weight[k]
            for i in range(m):
                x = near[i] + sd[i] * node
                rest = 1.0 / (1.0 + u[i])
                tau = u[i] * rest
                u[i] *= ratio[i]
                bend, first = _bend(tau, rest), tau * rest
                total[0, i] += w * (max(x, 0.0) + bend)
                total[1, i] += w * (max(-x, 0.0) + bend)
                total[2, i] += w * tau
                total[3, i] += w * rest
                total[4, i] += w * first
                total[5, i] += w * first * (rest - tau)
                total[6, i] += w * first * (1.0 - 6.0 * first)
        for j in range(7):
            for i in range(m):
                out[j, rows[i]] = total[j, i]


@compiled(error_model="numpy")
def series(h, rho, index, out):
    """E[g] = g + rho/2 g'' + rho^2/8 g'''' + rho^3/48 g^(6) for the seven functions, into out (7, N)."""
    u, x, r = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    total = np.empty((7, _BLOCK))
    for start in range(0, index.size, _BLOCK):
        rows = index[start : start + _BLOCK]
        m = rows.size
        for i in range(m):
            x[i], r[i] = h[rows[i]], rho[rows[i]]
            u[i] = np.exp(min(max(x[i], -_FAR), _FAR))
        for i in range(m):
            rest = 1.0 / (1.0 + u[i])
            tau = u[i] * rest
            q, odd = tau * rest, rest - tau  # sigma' and 1 - 2 sigma
            d2, d3, d4 = q * odd, q * (1.0 - 6.0 * q), q * odd * (1.0 - 12.0 * q)
            d5, d6 = q * (1.0 - 30.0 * q + 120.0 * q * q), q * odd * (1.0 - 60.0 * q + 360.0 * q * q)
            d7 = q * (1.0 - 126.0 * q + 1680.0 * q * q - 5040.0 * q * q * q)
            d8 = q * odd * (1.0 - q * (252.0 - q * (5040.0 - q * 20160.0)))
            d9 = q * (1.0 - q * (510.0 - q * (17640.0 - q * (151200.0 - q * 362880.0))))
            d10 = q * odd * (1.0 - q * (1020.0 - q * (52920.0 - q * (604800.0 - q * 1814400.0))))
            d11 = 1.0 - q * (2046.0 - q * (168960.0 - q * (3160080.0 - q * (19958400.0 - q * 39916800.0))))
            a, b, c = r[i] / 2, r[i] * r[i] / 8, r[i] * r[i] * r[i] / 48
            e = c * r[i] / 8
            bend, lift, turn = _bend(tau, rest), a * q + b * d3 + c * d5, a * d2 + b * d4 + c * d6
            total[0, i] = max(x[i], 0.0) + bend + lift
            total[1, i] = max(-x[i], 0.0) + bend + lift
            total[2, i] = tau + turn
            total[3, i] = rest - turn
            total[4, i] = q + a * d3 + b * d5 + c * d7
            total[5, i] = d2 + a * d4 + b * d6 + c * d8 + e * d10
            total[6, i] = d3 + a * d5 + b * d7 + c * d9 + e * q * d11
        for j in range(7):
            for i in range(m):
                out[j, rows[i]] = total[j, i]
