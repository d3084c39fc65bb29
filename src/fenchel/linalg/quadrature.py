"""Expectations under N(h, rho) for any mean and any variance.

    expect(g, h, rho, kinks)          E[g(eta)]
    log_expect(log_g, h, rho, kinks)  log E[exp log_g(eta)],  log_g log-concave

Gauss-Hermite quadrature fails if sqrt(rho) is large relative to 1, the scale on which a logistic function bends. The
line is therefore divided into panels at the mean and around each kink (the places where g bends), each with a
Gauss-Legendre rule. A panel is short, or g is smooth on it and only the normal density needs to be resolved.

    expect_near(g, h, rho, kinks)     E[g(eta)], g analytic: in numpy each row by the cheapest sufficient rule
    expect_between(g, h, rho, cuts)   E[g(eta)] by panels between the cuts; empty panels cost nothing

For narrow normals the trapezoidal rule with nodes centred at the mean converges exponentially if g is analytic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from .arrays import Array, asarray, is_numpy, namespace, to_numpy

_NODES = 48  # Gauss-Legendre nodes on each panel
_REACH = 10.0  # standard deviations beyond which the normal density is below 1e-22
_OFFSETS = (-40.0, -8.0, 0.0, 8.0, 40.0)  # beyond 40 a logistic equals its asymptote to 1e-17
_POINT = 1e-200  # variances below this are point masses
_NARROWEST = 1e-24  # relative to 1 + h^2: narrower normals are a single number up to rounding
_CHUNK = 8192  # rows at a time in other array libraries
_FEW = 256  # rows at a time in numpy, so that panels of nodes fit in the cache
# the trapezoidal rule of ``expect_near``: largest variance, spacing and range in standard deviations
_FOLLOWED = ((0.25, 0.75, 8.25), (1.0, 0.5, 9.0), (4.0, 0.25, 9.0), (16.0, 0.125, 9.0))
# the panels of ``expect_between``: psi grows like a square, so that the mass of E[psi] may be many sds from the mean
_FAR_REACH = 14.0  # standard deviations
_FEWER_NODES = 30  # exact to rounding; 24 nodes have error 6e-11 for a square
_FAR_OFFSETS = (-1e8, -1e6, -1e4, -400.0, -40.0, -8.0, 0.0, 8.0, 40.0, 400.0, 1e4, 1e6, 1e8)
_POINT_SD = 1e-150  # standard deviations below this are points
_GROUP = 1024  # rows of one rule at a time

Integrand = Callable[[Array, Any], Array]  # (nodes (n, M), indices of their rows) -> (..., n, M)


@cache
def _legendre(n: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return (nodes + 1.0) / 2.0, weights / 2.0


def _panels(lo: Array, hi: Array, centre: Array, kinks: Sequence[Array]) -> tuple[Array, Array]:
    """Nodes and weights (N, M) of the rule on [lo, hi], divided at the centre and around the kinks."""
    xp = namespace(lo)
    cuts = [lo, hi, centre] + [kink + offset for kink in kinks for offset in _OFFSETS]
    edges = xp.stack([xp.minimum(xp.maximum(cut + 0.0 * lo, lo), hi) for cut in cuts], axis=1)
    edges = xp.sort(edges, axis=1)
    width = edges[:, 1:] - edges[:, :-1]
    x, w = (asarray(a, lo) for a in _legendre(_NODES))
    nodes = edges[:, :-1, None] + width[:, :, None] * x[None, None, :]
    weights = width[:, :, None] * w[None, None, :]
    n = lo.shape[0]
    return xp.reshape(nodes, (n, -1)), xp.reshape(weights, (n, -1))


def _log_normal(t: Array, rho: Array) -> Array:
    """log N(t; 0, rho). Nodes are given as distances t from the mean, so that small rho loses no digits."""
    xp = namespace(t)
    return -0.5 * t**2 / rho - 0.5 * xp.log(2.0 * np.pi * rho)


def _in_chunks(one: Callable[..., Array], h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
    """Apply ``one`` to slices of rows, to limit the memory of nodes."""
    xp, n = namespace(h), h.shape[0]
    kinks = [kink + 0.0 * h for kink in kinks]
    step = _FEW if is_numpy(h) else _CHUNK
    if n <= step:
        return one(slice(0, n), h, rho, kinks)
    parts = []
    for i in range(0, n, step):
        rows = slice(i, min(n, i + step))
        parts.append(one(rows, h[rows], rho[rows], [kink[rows] for kink in kinks]))
    return xp.concat(parts, axis=-1)


def expect(g: Callable[[Array, slice], Array], h: Array, rho: Array, kinks: Sequence[Array] = ()) -> Array:
    """E[g(eta)] for eta ~ N(h, rho), for each row of h, rho (N,); g(eta, rows) takes nodes (n, M) of ``rows``.

    g may grow polynomially. It may return (..., n, M); the last axis is integrated.
    """

    def one(rows: slice, h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
        xp = namespace(h)
        rho = xp.where(rho > _POINT, rho, _POINT)
        reach = _REACH * xp.sqrt(rho)
        t, weights = _panels(-reach, reach, 0.0 * h, [kink - h for kink in kinks])
        density = weights * xp.exp(_log_normal(t, rho[:, None]))
        return xp.sum(g(h[:, None] + t, rows) * density, axis=-1)

    return _in_chunks(one, h, rho, kinks)


def log_expect(log_g: Callable[[Array, slice], Array], h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
    """log E[exp log_g(eta)] for eta ~ N(h, rho) and a log-concave exp log_g, by row; accurate far in the tails."""
    return tilted_moments(log_g, h, rho, kinks)[0, :]


def tilted_moments(log_g: Callable[[Array, slice], Array], h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
    """log Z, mean - h and variance (3, N) of N(eta; h, rho) exp log_g(eta) / Z, by row; accurate far in the tails.

    ``kinks`` are points near which log_g peaks or bends. The interval is widened until it contains the mass of the
    product, wherever the likelihood moves it, and is then narrowed to fit closely.
    """

    def one(rows: slice, h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
        xp = namespace(h)
        given = rho
        point = rho <= _NARROWEST * (1.0 + h * h)  # eta = h up to rounding
        rho = xp.where(point, 1.0, rho)
        kinks = [kink - h for kink in kinks]

        def joint(t: Array) -> Array:
            with np.errstate(over="ignore", invalid="ignore"):  # a density may underflow
                value = log_g(h[:, None] + t, rows) + _log_normal(t, rho[:, None])
            return xp.where(xp.isnan(value), -xp.inf, value)

        hi = _REACH * xp.sqrt(rho)
        lo = -hi
        for kink in kinks:
            lo, hi = xp.minimum(lo, kink), xp.maximum(hi, kink)
        for _ in range(60):  # widen until the mass, wherever the likelihood moves it, is inside
            ends = joint(xp.stack([lo, (lo + hi) / 2, hi], axis=1))
            alive = ends > xp.max(ends, axis=1, keepdims=True) - 50.0
            if not bool(xp.any(alive[:, 0] | alive[:, 2])):
                break
            width = hi - lo
            lo, hi = xp.where(alive[:, 0], lo - width, lo), xp.where(alive[:, 2], hi + width, hi)
        grid = asarray(np.linspace(0.0, 1.0, 65), h)[None, :]
        index = asarray(np.arange(65.0), h)[None, :]
        for _ in range(8):
            value = joint(lo[:, None] + (hi - lo)[:, None] * grid)
            top = xp.max(value, axis=1, keepdims=True)
            alive = value > top - 50.0
            left = xp.min(xp.where(alive, index, 64.0), axis=1) - 1.0
            right = xp.max(xp.where(alive, index, 0.0), axis=1) + 1.0
            step = (hi - lo) / 64.0
            peak = lo + step * xp.astype(xp.argmax(value, axis=1), xp.float64)
            new_lo = lo + step * xp.where(left > 0.0, left, 0.0)
            new_hi = lo + step * xp.where(right < 64.0, right, 64.0)
            lo, hi = new_lo, new_hi
        nodes, weights = _panels(lo, hi, peak, kinks)
        value = joint(nodes)
        top = xp.max(value, axis=1, keepdims=True)
        lost = xp.isinf(top)  # both densities underflow everywhere
        top = xp.where(lost, 0.0, top)
        mass = weights * xp.exp(value - top)
        total = xp.sum(mass, axis=1)
        share = mass / xp.where(total > 0.0, total, 1.0)[:, None]
        mean = xp.sum(share * nodes, axis=1)
        with np.errstate(divide="ignore"):
            out = xp.stack([top[:, 0] + xp.log(total), mean, xp.sum(share * (nodes - mean[:, None]) ** 2, axis=1)])
        if not bool(xp.any(point)):
            return out
        zero = xp.zeros_like(h)
        at = xp.stack([log_g(h[:, None], rows)[:, 0], zero, xp.where(point, given, zero)])
        return xp.where(point[None, :], at, out)

    return _in_chunks(one, h, rho, kinks)


def in_groups(n: int, groups: Iterable[tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]]) -> np.ndarray:
    """(..., n) from rules for groups of rows, where rule(index) returns (..., len(index)). numpy only."""
    out = np.empty(n)
    for where, rule in groups:
        rows = np.flatnonzero(where)
        for i in range(0, rows.size, _GROUP):
            index = rows[i : i + _GROUP]
            part = rule(index)
            if part.ndim != out.ndim:
                out = np.empty((*part.shape[:-1], n))
            out[..., index] = part
    return out


def expect_between(g: Integrand, h: np.ndarray, rho: np.ndarray, cuts: Iterable[np.ndarray]) -> np.ndarray:
    """E[g(eta)] by Gauss-Legendre on each panel between the cuts (N,); empty panels cost nothing."""
    x, w = np.polynomial.legendre.leggauss(_FEWER_NODES)
    sd = np.maximum(np.sqrt(rho), _POINT_SD)
    ends = [np.full_like(h, end) for end in (-_FAR_REACH, 0.0, _FAR_REACH)]
    edges = np.stack([*ends, *(np.clip((cut - h) / sd, -_FAR_REACH, _FAR_REACH) for cut in cuts)], axis=1)
    edges.sort(axis=1)
    half = np.diff(edges, axis=1) / 2
    row, panel = np.nonzero(half)
    half = half[row, panel][:, None]
    z = edges[row, panel][:, None] + half * (1.0 + x)
    weight = half * w * np.exp(-0.5 * z * z)
    first = np.searchsorted(row, np.arange(h.size))
    mass = np.add.reduceat(weight.sum(axis=-1), first)
    sums = np.add.reduceat(
        np.einsum("...ij,ij->...i", g(h[row, None] + sd[row, None] * z, row), weight), first, axis=-1
    )
    return sums / mass


def expect_near(g: Integrand, h: Array, rho: Array, kinks: list[Array], strip: float = 2.8) -> Array:
    """E[g(eta)] under N(h, rho) for g analytic within ``strip`` of the real line; g(eta, index) is (..., n, M)."""
    if not (is_numpy(h) and is_numpy(rho)):
        return expect(g, h, rho, kinks)

    def followed(spacing: float, reach: float) -> Callable[[np.ndarray], np.ndarray]:
        z = np.arange(-reach, reach + spacing / 2, spacing)
        weight = np.exp(-0.5 * z * z)
        weight /= weight.sum()
        return lambda index: to_numpy(g(h[index, None] + np.sqrt(rho[index, None]) * z, index)) @ weight

    def panels(index: np.ndarray) -> np.ndarray:
        cuts = [to_numpy(kink)[index] + offset for kink in kinks for offset in _FAR_OFFSETS]
        return expect_between(lambda eta, part: g(eta, index[part]), h[index], rho[index], cuts)

    groups, lower = [], -np.inf
    for upper, spacing, reach in _FOLLOWED:
        groups.append(((rho > lower) & (rho <= upper), followed(spacing * min(1.0, strip / 2.8), reach)))
        lower = upper
    return in_groups(h.shape[0], [*groups, (~(rho <= lower), panels)])
