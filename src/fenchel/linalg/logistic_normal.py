"""Expectations of softplus and its derivatives under a normal, to 1e-12 at any mean and variance.

    sigma = sigmoid(eta),  eta ~ N(h, rho):   E[softplus(eta)], E[sigma], E[sigma'], E[sigma''], E[sigma''']

The trapezoidal rule converges exponentially for functions analytic in a strip. sigma has its poles at +-i pi, so that a
spacing of 0.5 has error exp(-2 pi^2 / 0.5) = 7e-18. For a narrow normal (rho < 1) the nodes are centred at its mean.
For a wide one they are at the origin, the same for all rows: softplus is a compact remainder plus a smooth kink R_c
with a closed expectation,

    softplus(x) = R_c(x) + (a remainder of order e^-|x|),   R_c(x) = x Phi(x/c) + c phi(x/c),   E[R_c(eta)] = R_b(h)

with b^2 = c^2 + rho, so that one matrix of normal densities times one table of remainders gives all results. Compiled
loops sum the nodes of many rows, and below a variance of 1e-3 three terms of the Taylor series, whose coefficients are
polynomials in sigma. Few rows with variances above 0.15 share one table, whose spacing d follows the least variance:
the error is of order exp(pi^2 / (2 rho) - 2 pi^2 / d), everywhere as at a variance of 1. Rows so far in a tail that
their mass is outside the table use quadrature by panels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import erfc, ndtr

from .arrays import Array, is_numpy, namespace
from .functions import logistic_parts, sigmoid
from .quadrature import expect

_SERIES = 1e-3  # largest variance for the series
_FOLLOWED = ((0.25, 0.75, 8.25), (1.0, 0.5, 9.0))  # largest variance, spacing and range of nodes in standard deviations
_SPACING = 0.5  # spacing of fixed nodes
_FINE = ((1.0, 0.5), (0.5, 0.44), (0.25, 0.36), (0.15, 0.29))  # a few rows: least variance, spacing of a table's nodes
_SEEN = 9.0  # sds from the mean beyond which a normal density is negligible
_ROOT_2PI = float(np.sqrt(2.0 * np.pi))
_REACH = 38.0  # largest |x| of the fixed nodes
_KINK = 1.7  # c of the smooth kink
_COMPILED = 512  # number of rows from which narrow normals are summed by compiled loops
_FEW = 256  # rows at a time, so that functions at their nodes fit in the cache

PLUS, MINUS, TAU, REST, FIRST, SECOND, THIRD = range(7)


def logistic_moments(h: Array, rho: Array) -> Array:
    """E of softplus(eta), softplus(-eta), sigma, 1 - sigma, sigma', sigma'', sigma''' (7, N), exact in the tails."""
    if not (is_numpy(h) and is_numpy(rho)):
        return _by_panels(h, rho)
    many = h.shape[0] >= _COMPILED
    lowest = rho.min() if 0 < h.shape[0] < _COMPILED else 0.0
    if lowest > _FINE[-1][0] and (np.abs(h) - rho + 7.0 * np.sqrt(rho)).max() <= _REACH:
        return _by_table(h, rho, next(spacing for least, spacing in _FINE if lowest > least))
    out, lower = np.empty((7, h.shape[0])), -np.inf
    if many:
        from ._logistic_normal import following, series

        series(h, rho, np.flatnonzero(rho <= _SERIES), out)
        lower = _SERIES
    widest = float(np.max(rho, initial=0.0))
    for upper, spacing, reach in _FOLLOWED:
        if widest <= lower:
            return out
        follow, rule = (rho > lower) & (rho <= upper), _nodes(spacing, reach)
        if many:
            following(h, rho, np.flatnonzero(follow), *rule, out)
        else:
            _fill(out, follow, lambda i, rule=rule: _by_following(h[i], rho[i], *rule))
        lower = upper
    wide = ~(rho <= lower)  # true for NaN as well
    far = np.abs(h) - rho + 7.0 * np.sqrt(rho) > _REACH  # the mass of e^-|x| N(x; h, rho) is outside the table
    _fill(out, wide & ~far, lambda i: _by_table(h[i], rho[i]))
    _fill(out, wide & far, lambda i: _by_panels(h[i], rho[i]))
    return out


def _fill(out: np.ndarray, where: np.ndarray, values: Callable[..., Array]) -> None:
    index = where.nonzero()[0]
    for i in range(0, index.size, _FEW):
        part = index[i : i + _FEW]
        out[:, part] = values(part)


def _all_of(x: Array) -> list[Array]:
    """The seven functions at x, from one exponential."""
    plus, minus, tau, rest = logistic_parts(x)
    first = tau * rest
    return [plus, minus, tau, rest, first, first * (rest - tau), first * (1.0 - 6.0 * first)]


def _by_panels(h: Array, rho: Array) -> Array:
    xp = namespace(h)
    return expect(lambda eta, chunk: xp.stack(_all_of(eta)), h, rho, [0.0 * h])


@cache
def _nodes(spacing: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Evenly spaced nodes in standard deviations, and their weights."""
    z = np.arange(-reach, reach + spacing / 2, spacing)
    weight = spacing / np.sqrt(2.0 * np.pi) * np.exp(-0.5 * z * z)
    return z, weight / weight.sum()


def _by_following(h: np.ndarray, rho: np.ndarray, z: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.stack([g @ weight for g in _all_of(h[:, None] + np.sqrt(rho)[:, None] * z)])


@cache
def _table(spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (M,) and the remainders (M, 5) of the functions without their kinks at these nodes."""
    half = spacing * np.arange(1, int(_REACH / spacing) + 1)
    x = np.concatenate([-half[::-1], [0.0], half])
    size, c = np.abs(x), _KINK
    tail = 0.5 * erfc(size / c / np.sqrt(2.0))  # Phi(-|x|/c)
    # R_c(x) - max(x, 0) = c phi(x/c) - |x| Phi(-|x|/c)
    smooth = c * np.exp(-0.5 * (x / c) ** 2) / np.sqrt(2.0 * np.pi) - size * tail
    softened = np.log1p(np.exp(-size)) - smooth
    turned = np.where(x > 0.0, -1.0, 1.0) * (sigmoid(-size) - tail)  # sigma - Phi(x/c), odd
    rest = _all_of(x)[FIRST:]
    return x, spacing * np.stack([softened, np.where(x == 0.0, 0.0, turned), *rest], axis=1)


def _by_table(h: np.ndarray, rho: np.ndarray, spacing: float = _SPACING) -> np.ndarray:
    x, table = _table(spacing)
    sd = np.sqrt(rho)
    far = float((np.abs(h) + _SEEN * sd).max())  # nodes beyond have no density
    if far < _REACH:
        middle, reach = len(x) // 2, int(far / spacing) + 1
        nodes = slice(max(0, middle - reach), middle + reach + 1)
        x, table = x[nodes], table[nodes]
    density = x - h[:, None]
    density *= density
    density *= (-0.5 / rho)[:, None]
    np.exp(density, out=density)
    out = np.empty((7, len(h)))
    beyond = (density @ table).T
    beyond /= _ROOT_2PI * sd
    spread = np.sqrt(_KINK**2 + rho)
    u = h / spread
    bump = spread / _ROOT_2PI * np.exp(-0.5 * u * u)
    up, down = ndtr(u), ndtr(-u)
    bump += beyond[0]
    out[PLUS], out[MINUS] = h * up + bump, bump - h * down
    out[TAU], out[REST] = up + beyond[1], down - beyond[1]
    out[FIRST:] = beyond[2:]
    return out
