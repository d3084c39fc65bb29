"""What three sites together may add to the pairs: an estimate of the error, to fourth order in their coefficients.

    U = sum over edges a, b, d >= 0 of R_nm^a R_np^b R_mp^d sqrt((a+b)! (a+d)! (b+d)!) / (a! b! d!) c_{a+b,n} c_{a+d,m} c_{b+d,p}
    triples ~ sum_{n<m<p} (U - u_nm u_np - u_nm u_mp - u_np u_mp)

Chains of two edges need O(N^2), triangles two products of N x N matrices; with many sites the third is drawn at random.
"""  # noqa: E501

from __future__ import annotations

from math import comb, factorial, sqrt

import numpy as np

from .correlations import Block, Correlations
from .sites import Sites

_ORDER = 4
WORK, ROUGH = 5e8, 1e7  # multiplications spent on triangles; enough to tell whether they count
_TRIANGLES = (((1, 1, 1), 1), ((2, 1, 1), 3), ((3, 1, 1), 3), ((1, 2, 2), 3), ((2, 2, 2), 1))  # (a, b, d), how often


def triples_of(sites: Sites, correlations: Correlations, work: float = WORK) -> float:
    """|chains| + |triangles|, in nats; with less ``work`` than all triangles take, from some of them."""
    n = sites.log_z.size
    drawn = np.arange(n)
    if not correlations.in_blocks and n > (limit := max(16, int(work / n**2))):
        drawn = np.random.default_rng(0).choice(n, limit, replace=False)
    total = np.zeros(2)
    kept: list[Block] = []
    for block in correlations.between():
        if correlations.in_blocks:
            _, own, R = block
            total += _block(np.arange(own.size), R, R, sites.c[own], sites.c[own], 1.0)
        else:
            kept.append(block)
    if kept:
        with_drawn = np.concatenate([R[:, drawn] for _, _, R in kept])
        with_drawn[drawn, np.arange(drawn.size)] = 0.0
        for rows, _, R in kept:
            total += _block(rows, R, with_drawn, sites.c, sites.c[drawn], n / drawn.size)
    return float(np.abs(total).sum())


def triples_among(c: np.ndarray, R: np.ndarray) -> float:
    """The same of a few sites by their correlations (n, n)."""
    return float(np.abs(_block(np.arange(R.shape[0]), R, R, c, c, 1.0)).sum())


def _block(
    rows: np.ndarray, R: np.ndarray, drawn: np.ndarray, c: np.ndarray, third: np.ndarray, weight: float
) -> np.ndarray:
    """Chains with their middle in ``rows``, triangles with a corner there; R (rows, n), drawn (n, third ones)."""
    R, own = R.copy(), c[rows]
    R[np.arange(rows.size), rows] = 0.0
    if drawn.shape[0] == rows.size and drawn.shape[1] == rows.size and weight == 1.0:
        drawn = drawn.copy()
        np.fill_diagonal(drawn, 0.0)
    power = [np.ones((1, 1)), R]
    for _ in range(1, _ORDER):
        power.append(power[-1] * R)
    reach = [None, *(power[a] @ c[:, a] for a in range(1, _ORDER))]
    chains = 0.0
    for a in range(1, _ORDER):
        for b in range(1, _ORDER + 1 - a):
            middle = sqrt(comb(a + b, a)) * own[:, a + b] - own[:, a] * own[:, b]
            both = reach[a] * reach[b] - power[a + b] @ (c[:, a] * c[:, b])
            chains += 0.5 * float(np.sum(middle * both))
    squared = drawn * drawn
    made = {b: (D[rows] * third[:, 2 * b]) @ D.T for b, D in ((1, drawn), (2, squared))}
    triangles = 0.0
    for (a, b, d), times in _TRIANGLES:
        size = sqrt(factorial(a + b) * factorial(a + d) * factorial(b + d)) / (
            factorial(a) * factorial(b) * factorial(d)
        )
        ends = own[:, a + b] @ ((power[a] * made[b]) @ c[:, a + d])
        triangles += times * size / 6.0 * weight * float(ends)
    return np.array([chains, triangles])
