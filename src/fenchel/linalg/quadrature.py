"""Expectations under N(h, rho), at any mean and any variance.

    expect(g, h, rho, kinks)          E[g(eta)]
    log_expect(log_g, h, rho, kinks)  log E[exp log_g(eta)],  log_g log-concave

Gauss-Hermite fails when sqrt(rho) is large against the scale 1 on which a logistic bends. So the line is cut
into panels at the mean and around every kink (the places where g bends), and each panel gets its own
Gauss-Legendre rule: a panel is either short, or g is smooth on it and only the normal density has to be
resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from .arrays import Array, asarray, is_numpy, namespace

_NODES = 48
_REACH = 10.0  # standard deviations beyond which the normal density is below 1e-22
_OFFSETS = (-40.0, -8.0, 0.0, 8.0, 40.0)  # a logistic is its asymptote to 1e-17 beyond 40
_POINT = 1e-200  # a variance below this is a point mass
_NARROWEST = 1e-24  # relative to 1 + h^2: a normal narrower than this is one number to rounding
_CHUNK, _FEW = 8192, 256  # rows at a time: with panels of nodes few enough to stay in cache


@cache
def _legendre(n: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return (nodes + 1.0) / 2.0, weights / 2.0


@cache
def _hermite(n: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


def _panels(lo: Array, hi: Array, centre: Array, kinks: Sequence[Array]) -> tuple[Array, Array]:
    """Nodes and weights (N, M) of the rule on [lo, hi] cut at the centre and around the kinks."""
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
    """log N(t; 0, rho). Nodes are distances t from the mean, so that a small rho loses no digits."""
    xp = namespace(t)
    return -0.5 * t**2 / rho - 0.5 * xp.log(2.0 * np.pi * rho)


def _in_chunks(one: Callable[..., Array], h: Array, rho: Array, kinks: Sequence[Array], few: bool = True) -> Array:
    """Run ``one`` on slices of rows, so that the nodes never fill the memory."""
    xp, n = namespace(h), h.shape[0]
    kinks = [kink + 0.0 * h for kink in kinks]
    step = _FEW if few and is_numpy(h) else _CHUNK
    if n <= step:
        return one(slice(0, n), h, rho, kinks)
    parts = []
    for i in range(0, n, step):
        rows = slice(i, min(n, i + step))
        parts.append(one(rows, h[rows], rho[rows], [kink[rows] for kink in kinks]))
    return xp.concat(parts, axis=-1)


def expect(g: Callable[[Array, slice], Array], h: Array, rho: Array, kinks: Sequence[Array] = ()) -> Array:
    """E[g(eta)] for eta ~ N(h, rho), rowwise. h, rho: (N,); g(eta, rows) takes (n, M) nodes of ``rows``.

    g may grow polynomially. It may return (..., n, M); the last axis is integrated.
    """

    def one(rows: slice, h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
        xp = namespace(h)
        rho = xp.where(rho > _POINT, rho, _POINT + xp.zeros_like(rho))
        reach = _REACH * xp.sqrt(rho)
        t, weights = _panels(-reach, reach, 0.0 * h, [kink - h for kink in kinks])
        density = weights * xp.exp(_log_normal(t, rho[:, None]))
        return xp.sum(g(h[:, None] + t, rows) * density, axis=-1)

    return _in_chunks(one, h, rho, kinks)


def log_expect(log_g: Callable[[Array, slice], Array], h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
    """log E[exp log_g(eta)] for eta ~ N(h, rho) and a log-concave exp log_g, rowwise; accurate far in the tails."""
    return tilted_moments(log_g, h, rho, kinks)[0, :]


def tilted_moments(log_g: Callable[[Array, slice], Array], h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
    """log Z, mean - h and variance (3, N) of N(eta; h, rho) exp log_g(eta) / Z, rowwise; accurate far in the tails.

    ``kinks`` holds points near which log_g peaks or bends. The interval is widened until it holds the mass of the
    product, wherever the likelihood pulls it, and zooms then fit it closely.
    """

    def one(rows: slice, h: Array, rho: Array, kinks: Sequence[Array]) -> Array:
        xp = namespace(h)
        given = rho
        point = rho <= _NARROWEST * (1.0 + h * h)  # eta = h to rounding
        rho = xp.where(point, xp.ones_like(rho), rho)
        kinks = [kink - h for kink in kinks]

        def joint(t: Array) -> Array:
            with np.errstate(over="ignore", invalid="ignore"):  # a density may vanish faster than floats can say
                value = log_g(h[:, None] + t, rows) + _log_normal(t, rho[:, None])
            return xp.where(xp.isnan(value), -xp.inf + xp.zeros_like(value), value)

        hi = _REACH * xp.sqrt(rho)
        lo = -hi
        for kink in kinks:
            lo, hi = xp.minimum(lo, kink), xp.maximum(hi, kink)
        for _ in range(60):  # widen until the mass, wherever the likelihood pulls it, lies inside
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
            left = xp.min(xp.where(alive, index, 64.0 + xp.zeros_like(value)), axis=1) - 1.0
            right = xp.max(xp.where(alive, index, xp.zeros_like(value)), axis=1) + 1.0
            step = (hi - lo) / 64.0
            peak = lo + step * xp.astype(xp.argmax(value, axis=1), xp.float64)
            new_lo = lo + step * xp.where(left > 0.0, left, xp.zeros_like(left))
            new_hi = lo + step * xp.where(right < 64.0, right, 64.0 + xp.zeros_like(right))
            lo, hi = new_lo, new_hi
        nodes, weights = _panels(lo, hi, peak, kinks)
        value = joint(nodes)
        top = xp.max(value, axis=1, keepdims=True)
        lost = xp.isinf(top)  # the two densities do not meet within the range of floats
        top = xp.where(lost, xp.zeros_like(top), top)
        mass = weights * xp.exp(value - top)
        total = xp.sum(mass, axis=1)
        share = mass / xp.where(total > 0.0, total, xp.ones_like(total))[:, None]
        mean = xp.sum(share * nodes, axis=1)
        with np.errstate(divide="ignore"):
            out = xp.stack([top[:, 0] + xp.log(total), mean, xp.sum(share * (nodes - mean[:, None]) ** 2, axis=1)])
        if not bool(xp.any(point)):
            return out
        zero = xp.zeros_like(h)
        at = xp.stack([log_g(h[:, None], rows)[:, 0], zero, xp.where(point, given, zero)])
        return xp.where(point[None, :], at, out)

    return _in_chunks(one, h, rho, kinks)
