"""A logistic under a normal: E of softplus and of its derivatives, to 1e-12 at any mean and variance.

    sigma = sigmoid(eta),  eta ~ N(h, rho):   E[softplus(eta)], E[sigma], E[sigma'], E[sigma''], E[sigma''']

The trapezoidal rule is exponentially accurate for functions analytic in a strip, and sigma has its poles at +-i pi: a
spacing of 0.5 leaves exp(-2 pi^2 / 0.5) = 7e-18. Where the normal is narrow (rho < 1) the nodes follow it. Where it is
wide they stay at the origin, the same for all rows: what softplus has beyond a compact part is a smooth kink with a
closed expectation,

    softplus(x) = R_c(x) + (a remainder of order e^-|x|),   R_c(x) = x Phi(x/c) + c phi(x/c),   E[R_c(eta)] = R_b(h)

with b^2 = c^2 + rho, so one matrix of normal densities times one table of remainders gives everything. A variance below
1e-3 needs no nodes at all: three terms of the Taylor series, whose coefficients are polynomials in sigma. One below
0.02 needs the seven nodes of Gauss and Hermite; of many rows, compiled loops sum the nodes that follow faster. Rows so
far in a tail that their mass lies beyond the table are left to panel quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import erfc, ndtr

from .arrays import Array, is_numpy, namespace
from .functions import sigmoid
from .quadrature import expect

_SERIES = 1e-3  # a variance up to which the series serves
_GAUSS, _NODES = 0.02, 7  # a variance up to which Gauss and Hermite's nodes serve: n! (rho / pi^2)^n = 7e-16
_FOLLOWED = ((0.25, 0.75, 8.25), (1.0, 0.5, 9.0))  # variance up to which, spacing in standard deviations, reach in them
_SPACING, _REACH, _KINK = 0.5, 38.0, 1.7  # of the nodes that stay; c of the smooth kink
_COMPILED = 512  # rows from which nodes that follow are summed by a compiled loop
_ALL_COMPILED = 4096  # rows from which everything narrow is
_CHUNK, _FEW = 4096, 256  # rows at a time, without nodes and with them: their functions stay in cache

PLUS, MINUS, TAU, REST, FIRST, SECOND, THIRD = range(7)


def logistic_moments(h: Array, rho: Array) -> Array:
    """E of softplus(eta), softplus(-eta), sigma, 1 - sigma, sigma', sigma'', sigma''' (7, N), exact in their tails."""
    if not (is_numpy(h) and is_numpy(rho)):
        return _by_panels(h, rho)
    out, widest = np.empty((7, h.shape[0])), float(np.max(rho, initial=0.0))
    many, lower = h.shape[0] >= _ALL_COMPILED, _SERIES
    if many:
        _series_into(out, h, rho, rho <= _SERIES)
    else:
        _fill(out, rho <= _SERIES, lambda i: _by_series(h[i], rho[i]), _CHUNK)
        _fill(out, (rho > _SERIES) & (rho <= _GAUSS), lambda i: _by_gauss(h[i], np.sqrt(rho[i])), _CHUNK)
        lower = _GAUSS
    for upper, spacing, reach in _FOLLOWED:
        if widest <= lower:
            return out
        follow, rule = (rho > lower) & (rho <= upper), _nodes(spacing, reach)
        if many or np.count_nonzero(follow) >= _COMPILED:
            _following_into(out, h, rho, follow, *rule)
        else:
            _fill(out, follow, lambda i, rule=rule: _by_following(h[i], rho[i], *rule))
        lower = upper
    wide = ~(rho <= lower)  # NaN too
    far = np.abs(h) - rho + 7.0 * np.sqrt(rho) > _REACH  # the mass of e^-|x| N(x; h, rho) leaves the table
    _fill(out, wide & ~far, lambda i: _by_table(h[i], rho[i]))
    _fill(out, wide & far, lambda i: _by_panels(h[i], rho[i]))
    return out


def _fill(out: np.ndarray, where: np.ndarray, values: Callable[..., Array], step: int = _FEW) -> None:
    index = where.nonzero()[0]
    for i in range(0, index.size, step):
        part = index[i : i + step]
        out[:, part] = values(part)


def _all_of(x: Array) -> list[Array]:
    """The seven functions at x, from one exponential."""
    xp = namespace(x)
    e = xp.exp(-xp.abs(x))
    bend, small = xp.log1p(e), e / (1.0 + e)
    large = 1.0 - small
    up = x > 0.0
    tau, rest = xp.where(up, large, small), xp.where(up, small, large)
    first = small * large
    zero = xp.zeros_like(x)
    return [
        xp.where(up, x, zero) + bend,
        xp.where(up, zero, -x) + bend,
        tau,
        rest,
        first,
        first * (rest - tau),
        first * (1.0 - 6.0 * first),
    ]


def _by_panels(h: Array, rho: Array) -> Array:
    xp = namespace(h)
    return expect(lambda eta, chunk: xp.stack(_all_of(eta)), h, rho, [0.0 * h])


def _by_series(h: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """E[g] = g + rho/2 g'' + rho^2/8 g'''' + rho^3/48 g^(6), derivatives of sigma up to the eighth."""
    out = np.stack(_all_of(h))
    q, odd = out[FIRST], out[REST] - out[TAU]  # sigma' and 1 - 2 sigma
    d1, d2, d3 = q, out[SECOND], out[THIRD]
    d4 = q * odd * (1.0 - 12.0 * q)
    d5 = q * (1.0 - 30.0 * q + 120.0 * q * q)
    d6 = q * odd * (1.0 - 60.0 * q + 360.0 * q * q)
    d7 = q * (1.0 - 126.0 * q + 1680.0 * q * q - 5040.0 * q**3)
    a, b, c = rho / 2, rho * rho / 8, rho**3 / 48
    lift, turn = a * d1 + b * d3 + c * d5, a * d2 + b * d4 + c * d6
    out[PLUS] += lift
    out[MINUS] += lift
    out[TAU] += turn
    out[REST] -= turn
    out[FIRST] = d1 + a * d3 + b * d5 + c * d7
    out[SECOND] = d2 + a * d4 + b * d6
    out[THIRD] = d3 + a * d5 + b * d7
    return out


def _series_into(out: np.ndarray, h: np.ndarray, rho: np.ndarray, where: np.ndarray) -> None:
    """The same for the rows ``where``, by a compiled loop."""
    from ._logistic import series

    series(h, rho, np.flatnonzero(where), out)


@cache
def _nodes(spacing: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Evenly spaced nodes in standard deviations, and their weights."""
    z = np.arange(-reach, reach + spacing / 2, spacing)
    weight = spacing / np.sqrt(2.0 * np.pi) * np.exp(-0.5 * z * z)
    return z, weight / weight.sum()


def _by_following(h: np.ndarray, rho: np.ndarray, z: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.stack([g @ weight for g in _all_of(h[:, None] + np.sqrt(rho)[:, None] * z)])


def _following_into(
    out: np.ndarray, h: np.ndarray, rho: np.ndarray, where: np.ndarray, z: np.ndarray, weight: np.ndarray
) -> None:
    """The same for the rows ``where``, by a compiled loop."""
    from ._logistic import following

    following(h, rho, np.flatnonzero(where), z, weight, out)


def _by_gauss(h: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """One node after the other: there are few, and many rows."""
    out = np.zeros((7, h.shape[0]))
    for node, w in zip(*_hermite(), strict=True):
        for total, g in zip(out, _all_of(h + node * sd), strict=True):
            total += w * g
    return out


@cache
def _hermite() -> tuple[np.ndarray, np.ndarray]:
    z, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    return z, weight / weight.sum()


@cache
def _table() -> tuple[np.ndarray, np.ndarray]:
    """Nodes (M,) and what the seven functions have beyond their kinks there (M, 5)."""
    x = np.arange(-_REACH, _REACH + _SPACING / 2, _SPACING)
    size, c = np.abs(x), _KINK
    tail = 0.5 * erfc(size / c / np.sqrt(2.0))  # Phi(-|x|/c)
    # R_c(x) - max(x, 0) = c phi(x/c) - |x| Phi(-|x|/c)
    smooth = c * np.exp(-0.5 * (x / c) ** 2) / np.sqrt(2.0 * np.pi) - size * tail
    softened = np.log1p(np.exp(-size)) - smooth
    turned = np.where(x > 0.0, -1.0, 1.0) * (sigmoid(-size) - tail)  # sigma - Phi(x/c), odd
    rest = _all_of(x)[FIRST:]
    return x, _SPACING * np.stack([softened, np.where(x == 0.0, 0.0, turned), *rest], axis=1)


def _by_table(h: np.ndarray, rho: np.ndarray) -> np.ndarray:
    x, table = _table()
    sd = np.sqrt(rho)
    t = (x - h[:, None]) / sd[:, None]
    density = np.exp(-0.5 * t * t)
    density /= (np.sqrt(2.0 * np.pi) * sd)[:, None]
    beyond = (density @ table).T
    spread = np.sqrt(_KINK**2 + rho)
    u = h / spread
    bump = spread * np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)
    up, down = ndtr(u), ndtr(-u)
    return np.stack(
        [
            h * up + bump + beyond[0],
            bump - h * down + beyond[0],
            up + beyond[1],
            down - beyond[1],
            *beyond[2:],
        ]
    )
