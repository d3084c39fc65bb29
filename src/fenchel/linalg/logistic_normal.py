"""A logistic under a normal: E of softplus and of its derivatives, to 1e-12 at any mean and variance.

    sigma = sigmoid(eta),  eta ~ N(h, rho):   E[softplus(eta)], E[sigma], E[sigma'], E[sigma''], E[sigma''']

The trapezoidal rule is exponentially accurate for functions analytic in a strip, and sigma has its poles at +-i pi: a
spacing of 0.5 leaves exp(-2 pi^2 / 0.5) = 7e-18. Where the normal is narrow (rho < 1) the nodes follow it. Where it is
wide they stay at the origin, the same for all rows: what softplus has beyond a compact part is a smooth kink with a
closed expectation,

    softplus(x) = R_c(x) + (a remainder of order e^-|x|),   R_c(x) = x Phi(x/c) + c phi(x/c),   E[R_c(eta)] = R_b(h)

with b^2 = c^2 + rho, so one matrix of normal densities times one table of remainders gives everything. Compiled loops
sum the nodes of many rows, and where the variance is below 1e-3 three terms of the Taylor series, whose coefficients
are polynomials in sigma. Few rows whose variances all exceed 0.15 share one table, of half the spacing where one of
them is below 1. Rows so far in a tail that their mass lies beyond the table are left to panel quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import erfc, ndtr

from .arrays import Array, is_numpy, namespace
from .functions import logistic_parts, sigmoid
from .quadrature import expect

_SERIES = 1e-3  # a variance up to which the series serves
_FOLLOWED = ((0.25, 0.75, 8.25), (1.0, 0.5, 9.0))  # variance up to which, spacing in standard deviations, reach in them
_SPACING = 0.5  # of the nodes that stay
_FINE = 0.15, 0.25  # variance from which a table serves few rows, and the spacing of its nodes
_SEEN = 9.0  # sds from the mean within which a normal has density
_ROOT_2PI = float(np.sqrt(2.0 * np.pi))
_REACH = 38.0  # |x| up to which there are such nodes
_KINK = 1.7  # c of the smooth kink
_COMPILED = 512  # rows from which narrow normals are summed by compiled loops
_FEW = 256  # rows at a time: the functions at their nodes stay in cache

PLUS, MINUS, TAU, REST, FIRST, SECOND, THIRD = range(7)


def logistic_moments(h: Array, rho: Array) -> Array:
    """E of softplus(eta), softplus(-eta), sigma, 1 - sigma, sigma', sigma'', sigma''' (7, N), exact in their tails."""
    if not (is_numpy(h) and is_numpy(rho)):
        return _by_panels(h, rho)
    out, lower = np.empty((7, h.shape[0])), -np.inf
    many = h.shape[0] >= _COMPILED
    if many:
        from ._logistic_normal import following, series

        series(h, rho, np.flatnonzero(rho <= _SERIES), out)
        lower = _SERIES
    elif h.shape[0] and rho.min() > _FINE[0] and (np.abs(h) - rho + 7.0 * np.sqrt(rho)).max() <= _REACH:
        return _by_table(h, rho, _SPACING if rho.min() > _FOLLOWED[-1][0] else _FINE[1])
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
    wide = ~(rho <= lower)  # NaN too
    far = np.abs(h) - rho + 7.0 * np.sqrt(rho) > _REACH  # the mass of e^-|x| N(x; h, rho) leaves the table
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
    """Nodes (M,) and what the seven functions have beyond their kinks there (M, 5)."""
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
