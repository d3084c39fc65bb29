"""What three sites together may add to the pairs: an estimate of the error, to fourth order in their coefficients.

    U = sum over edges a, b, d >= 0 of R_nm^a R_np^b R_mp^d sqrt((a+b)! (a+d)! (b+d)!) / (a! b! d!) c_{a+b,n} c_{a+d,m} c_{b+d,p}
    triples ~ sum_{n<m<p} (U - u_nm u_np - u_nm u_mp - u_np u_mp)

Chains of two edges need O(N^2), triangles two products of N x N matrices; with many sites the third is drawn at random.
"""  # noqa: E501

from __future__ import annotations

from math import comb, factorial, sqrt

import numpy as np

from .correlations import Correlations
from .sites import Sites

_ORDER = 4
WORK, ROUGH = 5e8, 1e7  # multiplications spent on triangles; enough to tell whether they count
_TRIANGLES = (((1, 1, 1), 1), ((2, 1, 1), 3), ((3, 1, 1), 3), ((1, 2, 2), 3), ((2, 2, 2), 1))  # (a, b, d), how often


def triples_of(sites: Sites, correlations: Correlations, work: float = WORK, label: np.ndarray | None = None) -> float:
    """|chains| + |triangles|, in nats; with less ``work`` than all triangles take, from some of them.

    ``label`` (n,): clusters of sites; correlations within them do not count.
    """
    n = sites.log_z.size
    label = np.arange(n) if label is None else label
    drawn = np.arange(n)
    if not correlations.in_blocks and n > (limit := max(16, int(work / n**2))):
        drawn = np.random.default_rng(0).choice(n, limit, replace=False)
    total = np.zeros(2)
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for block in correlations.between():
        if correlations.in_blocks:
            _, own, R = block
            total += _block(_apart(R, label[own], label[own]), None, sites.c[own], sites.c[own], sites.c[own], 1.0)
        else:
            rows, _, R = block
            kept.append((rows, _apart(R, label[rows], label)))
    if kept:
        with_drawn = np.concatenate([R[:, drawn] for _, R in kept])
        for rows, R in kept:
            mine = with_drawn[rows], with_drawn
            total += _block(R, mine, sites.c[rows], sites.c, sites.c[drawn], n / drawn.size)
    return float(np.abs(total).sum())


def triples_among(c: np.ndarray, R: np.ndarray) -> float:
    """The same of a few sites by their correlations (n, n)."""
    label = np.arange(R.shape[0])
    return float(np.abs(_block(_apart(R, label, label), None, c, c, c, 1.0)).sum())


def _apart(R: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """R without what sites of one label share."""
    return np.where(rows[:, None] == columns, 0.0, R)


def _block(
    R: np.ndarray,
    drawn: tuple[np.ndarray, np.ndarray] | None,
    own: np.ndarray,
    c: np.ndarray,
    third: np.ndarray,
    weight: float,
) -> np.ndarray:
    """Chains with their middle in some rows, triangles with a corner there.

    R (rows, n); ``drawn``: correlations of these rows, and of all sites, with the third ones, None where all are all.
    own, c, third: coefficients of the rows, of all sites, of the third ones.
    """
    mine, every = (R, R) if drawn is None else drawn
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
    made = {b: (mine**b * third[:, 2 * b]) @ (every**b).T for b in (1, 2)}
    triangles = 0.0
    for (a, b, d), times in _TRIANGLES:
        size = sqrt(factorial(a + b) * factorial(a + d) * factorial(b + d)) / (
            factorial(a) * factorial(b) * factorial(d)
        )
        ends = own[:, a + b] @ ((power[a] * made[b]) @ c[:, a + d])
        triangles += times * size / 6.0 * weight * float(ends)
    return np.array([chains, triangles])
