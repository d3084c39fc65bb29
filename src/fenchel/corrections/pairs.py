"""The cluster expansion of log E_q prod exp gt_n: single sites, pairs by Mehler's formula, and triples as the error.

    log E ~ sum_n log z_n + sum_{n<m} log(1 + u_nm),     u_nm = sum_{k>=1} R_nm^k c_kn c_km
    p(x_i) ~ phi(x_i) prod_m f_m(x_i),                   f_m(x) = E[exp gt_m | x_i = x] / z_m

f_m is 1 + sum_k R^k c_km he_k(x); the site of x_i itself has f = exp gt / z. If the series in k does not converge fast,
a pair is integrated numerically. The error is the contribution of triples, to fourth order in their coefficients:

    U = sum over a, b, d >= 0 of R_nm^a R_np^b R_mp^d c_{a+b,n} c_{a+d,m} c_{b+d,p}
        sqrt((a+b)! (a+d)! (b+d)!) / (a! b! d!)
    triples ~ sum_{n<m<p} (U - u_nm u_np - u_nm u_mp - u_np u_mp)

Chains of two edges cost O(N^2), triangles two products of N x N matrices; with many sites the third site of a triangle
is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import comb, factorial, sqrt
from typing import NamedTuple

import numpy as np

from .sites import Block, Correlations, Sites, hermite

_TOL = 1e-8  # largest truncation error of the series of a pair; that of all pairs is at most 1e-5
_MARGINAL = 1e-6  # the same for a factor of a density; that of all factors is at most 1e-4
_SURE = 2.0  # nats of decay (two standard deviations) up to which the product of the other factors is used unchanged
_REACH = 14.0  # standard deviations that the grid of a marginal covers at least
_DEAD = 1e-13  # the grid also covers points where a site has a larger probability of its own
_SMALL = 40  # number of sites up to which every factor of a density is integrated numerically
_FAR = 6.0  # standard deviations beyond which a factor is constant
_FLOOR = 0.05  # a factor whose series gives less is integrated numerically
_MOST = 200_000  # most pairs that are integrated numerically
_NODES = 24  # Gauss-Hermite nodes
_TRIPLE_ORDER = 4  # order of the triples in the coefficients
WORK, ROUGH = 5e8, 1e7  # multiplications for triangles; the second is enough to decide whether they matter
_TRIANGLES = (((1, 1, 1), 1), ((2, 1, 1), 3), ((3, 1, 1), 3), ((1, 2, 2), 3), ((2, 2, 2), 1))  # (a, b, d), multiplicity


@dataclass(frozen=True)
class Pairs:
    """Sum of log(1 + u) over pairs, the truncation error of the series, and the smallest 1 + u."""

    total: float
    left_out: float
    smallest: float = 1.0


def tails_of(c: np.ndarray) -> np.ndarray:
    """max_{j >= k} |c_j| (n, K + 1)."""
    return np.ascontiguousarray(np.maximum.accumulate(np.abs(c)[:, ::-1], axis=1)[:, ::-1])


def gauss_hermite() -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return nodes, weights / weights.sum()


def pairs_of(sites: Sites, correlations: Correlations, label: np.ndarray | None = None) -> Pairs:
    """Sum over all pairs of sites; ``label`` (n,): clusters, whose internal pairs are left out."""
    from . import _kernels as kernels

    sums, n_listed, tails = np.array([0.0, 0.0, 1.0]), 0, tails_of(sites.c)
    label = np.arange(sites.log_z.size) if label is None else label
    tol = min(_TOL, 1e-5 / sites.log_z.size**2)
    listed, R_listed = np.empty((_MOST, 2), dtype=np.int64), np.empty(_MOST)
    for rows, R in correlations.between():
        places = R_listed[n_listed:], listed[n_listed:]
        R = np.ascontiguousarray(R)
        n_listed += kernels.pair_series(R, int(rows[0]), sites.c, tails, label, tol, sums, *places)
    out = np.empty(n_listed)
    if n_listed:
        x, every = _places(sites)
        low, step, tilted = float(sites.x[0]), sites.step, sites.tilted(every)
        kernels.pairs_direct(
            listed[:n_listed], R_listed[:n_listed], sites.gt, sites.log_z, low, step, x, tilted, *gauss_hermite(), out
        )
        out = np.maximum(out, 1e-12)
    total = float(sums[0] + np.log(out).sum())
    return Pairs(total, float(sums[1]), min(float(sums[2]), float(out.min()) if n_listed else 1.0))


def _places(sites: Sites) -> tuple[np.ndarray, int]:
    """The grid of marginals: every other point of the sites' grid, or every fourth of a finer one; and this stride."""
    every = 2 if sites.step > 0.1 else 4
    return np.ascontiguousarray(sites.x[::every]), every


Finish = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # R (T, n), x, log densities -> better ones


def log_densities(
    sites: Sites, blocks: Iterable[Block], size: int, finish: Finish | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The grid x (M,) and log densities (size, M) of unknowns, from blocks of their correlations with the sites."""
    from . import _kernels as kernels

    x, every = _places(sites)
    alive = np.abs(x[(sites.tilted(every) > _DEAD).any(axis=0)]).max()
    x = np.ascontiguousarray(x[np.abs(x) <= max(_REACH, alive + 1.0)])
    he, tails, low, step = hermite(np.clip(x, -_FAR, _FAR)), tails_of(sites.c), float(sites.x[0]), sites.step
    ends, tol = np.abs(hermite(np.array([_FAR]))[:, 0]), min(_MARGINAL, 1e-4 / sites.log_z.size)
    tol = -tol if sites.log_z.size <= _SMALL else tol
    nodes, weights = gauss_hermite()
    out = np.zeros((size, x.size))
    sites_given = sites.gt, sites.log_z, low, step
    for targets, R in blocks:
        part, own = np.empty((2, targets.size, x.size))
        R = np.ascontiguousarray(R)
        kernels.log_factors(R, sites.c, tails, he, ends, *sites_given, x, nodes, weights, tol, own, part, _FLOOR)
        log_p = held(x, own - 0.5 * x * x, part)
        out[targets] = log_p if finish is None else finish(R, x, log_p)
    return x, out


def held(x: np.ndarray, own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """own + others (T, M), where ``others`` is held constant beyond the point where it offsets half the decay of own.

    The product of the f_m neglects the dependence of the other sites given x, so that far out it may grow faster than
    ``own`` decays.
    """
    at, rows = own.argmax(axis=1), np.arange(own.shape[0])
    decay = own[rows, at][:, None] - own
    lost = (others - others[rows, at][:, None] > 0.5 * decay) & (decay > _SURE)
    if not lost.any():
        return own + others
    place = np.arange(x.size)
    right = np.where(lost & (place > at[:, None]), place, x.size).min(axis=1) - 1
    left = np.where(lost & (place < at[:, None]), place, -1).max(axis=1) + 1
    return np.asarray(own + np.take_along_axis(others, np.clip(place, left[:, None], right[:, None]), axis=1))


class Triples(NamedTuple):
    """|chains| + |triangles|, in nats, and the sum of absolute values over the orders (a, b, d), which may cancel."""

    total: float
    orders: float

    @classmethod
    def of(cls, orders: np.ndarray) -> Triples:
        chains, triangles = np.split(orders, [-len(_TRIANGLES)])
        return cls(float(abs(chains.sum()) + abs(triangles.sum())), float(np.abs(orders).sum()))


def triples_of(
    sites: Sites, correlations: Correlations, work: float = WORK, label: np.ndarray | None = None
) -> Triples:
    """The contribution of triples of sites; from a sample of them if all triangles take more than ``work``.

    ``label`` (n,): clusters of sites, within which correlations are ignored.
    """
    n, c = sites.log_z.size, sites.c
    label = np.arange(n) if label is None else label
    limit = max(16, int(work / n**2))
    drawn = np.arange(n) if n <= limit else np.random.default_rng(0).choice(n, limit, replace=False)
    blocks = [(rows, _apart(R, label[rows], label)) for rows, R in correlations.between()]
    with_drawn = np.concatenate([R[:, drawn] for _, R in blocks])
    weight = n / drawn.size
    orders = [_block(R, (with_drawn[rows], with_drawn), c[rows], c, c[drawn], weight) for rows, R in blocks]
    return Triples.of(np.sum(orders, axis=0))


def triples_among(c: np.ndarray, R: np.ndarray) -> float:
    """The contribution of triples among a few sites with correlations R (n, n)."""
    label = np.arange(R.shape[0])
    apart = _apart(R, label, label)
    return Triples.of(_block(apart, (apart, apart), c, c, c, 1.0)).total


def _apart(R: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """R with 0 for pairs of sites of one label."""
    return np.where(rows[:, None] == columns, 0.0, R)


def _block(
    R: np.ndarray,
    drawn: tuple[np.ndarray, np.ndarray],
    own: np.ndarray,
    c: np.ndarray,
    third: np.ndarray,
    weight: float,
) -> np.ndarray:
    """Chains with their middle in some rows and triangles with a corner there, for each order.

    R (rows, n); ``drawn``: correlations of these rows, and of all sites, with the sampled third sites.
    own, c, third: coefficients of the rows, of all sites, and of the third sites.
    """
    of_rows, every = drawn
    power = [np.ones((1, 1)), R]
    for _ in range(1, _TRIPLE_ORDER):
        power.append(power[-1] * R)
    reach = [None, *(power[a] @ c[:, a] for a in range(1, _TRIPLE_ORDER))]
    orders = []
    for a in range(1, _TRIPLE_ORDER):
        for b in range(1, _TRIPLE_ORDER + 1 - a):
            middle = sqrt(comb(a + b, a)) * own[:, a + b] - own[:, a] * own[:, b]
            both = reach[a] * reach[b] - power[a + b] @ (c[:, a] * c[:, b])
            orders.append(0.5 * float(np.sum(middle * both)))
    made = {b: (of_rows**b * third[:, 2 * b]) @ (every**b).T for b in (1, 2)}
    for (a, b, d), times in _TRIANGLES:
        size = sqrt(factorial(a + b) * factorial(a + d) * factorial(b + d)) / (
            factorial(a) * factorial(b) * factorial(d)
        )
        ends = own[:, a + b] @ ((power[a] * made[b]) @ c[:, a + d])
        orders.append(times * size / 6.0 * weight * float(ends))
    return np.array(orders)
