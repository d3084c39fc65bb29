"""Expectations under N(h, rho) row by row, each row by the cheapest rule that serves it. numpy; else ``quadrature``.

Narrow normals: the trapezoidal rule at nodes that follow them, exponentially accurate for an analytic g. Wide ones:
Gauss-Legendre panels between cuts, where panels of no width cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .arrays import Array, is_numpy, to_numpy
from .quadrature import expect

# of the trapezoidal rule: variance up to which, spacing in standard deviations, reach in them
_FOLLOWED = ((0.25, 0.75, 8.25), (1.0, 0.5, 9.0), (4.0, 0.25, 9.0), (16.0, 0.125, 9.0))
# of the panels: psi grows like a square, so that all of E[psi] may lie many standard deviations from the mean
_REACH, _NODES = 14.0, 30  # their rounding; 24 leave 6e-11 of a square
_OFFSETS = (-1e8, -1e6, -1e4, -400.0, -40.0, -8.0, 0.0, 8.0, 40.0, 400.0, 1e4, 1e6, 1e8)
_POINT = 1e-150  # a standard deviation below this is a point
_ROWS = 1024  # rows at a time

Integrand = Callable[[Array, Any], Array]  # (nodes (n, M), which rows they belong to) -> (..., n, M)


def in_groups(n: int, groups: Iterable[tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]]) -> np.ndarray:
    """(..., n) from rules for groups of rows: each rule(index) returns (..., len(index)). numpy only."""
    out = np.empty(n)
    for where, rule in groups:
        mine = np.flatnonzero(where)
        for i in range(0, mine.size, _ROWS):
            index = mine[i : i + _ROWS]
            part = rule(index)
            if part.ndim != out.ndim:
                out = np.empty((*part.shape[:-1], n))
            out[..., index] = part
    return out


def expect_between(g: Integrand, h: np.ndarray, rho: np.ndarray, cuts: Iterable[np.ndarray]) -> np.ndarray:
    """E[g(eta)] by Gauss-Legendre on every panel between the cuts (N,); a panel of no width costs nothing."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    sd = np.maximum(np.sqrt(rho), _POINT)
    ends = [np.full_like(h, end) for end in (-_REACH, 0.0, _REACH)]
    edges = np.stack([*ends, *(np.clip((cut - h) / sd, -_REACH, _REACH) for cut in cuts)], axis=1)
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
    """E[g(eta)] under N(h, rho) for a g analytic within ``strip`` of the real line; g(eta, index) is (..., n, M)."""
    if not (is_numpy(h) and is_numpy(rho)):
        return expect(g, h, rho, kinks)

    def followed(spacing: float, reach: float) -> Callable[[np.ndarray], np.ndarray]:
        z = np.arange(-reach, reach + spacing / 2, spacing)
        weight = np.exp(-0.5 * z * z)
        weight /= weight.sum()
        return lambda index: to_numpy(g(h[index, None] + np.sqrt(rho[index, None]) * z, index)) @ weight

    def panels(index: np.ndarray) -> np.ndarray:
        cuts = [to_numpy(kink)[index] + offset for kink in kinks for offset in _OFFSETS]
        return expect_between(lambda eta, part: g(eta, index[part]), h[index], rho[index], cuts)

    groups, lower = [], -np.inf
    for upper, spacing, reach in _FOLLOWED:
        groups.append(((rho > lower) & (rho <= upper), followed(spacing * min(1.0, strip / 2.8), reach)))
        lower = upper
    return in_groups(h.shape[0], [*groups, (~(rho <= lower), panels)])
