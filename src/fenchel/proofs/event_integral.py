"""The probability of a range of one sum of few latents, as a ratio of integrals.

    P(low < s < high | y) = int_low^high m(s) ds / int m(s) ds,      m(s) = phi(s) E[exp r(s w + B t)],  t ~ N(0, I)

s = w'x is the sum in units of q, B a basis of all that is orthogonal to it. The inner expectation is a sum over a
lattice (``latent_integral.py``), the outer integrals are Gauss and Legendre's on panels that end at low and high. Each
has its error on either side, and the ratio of a smallest to a largest value bounds the probability: the likelihood
times the indicator of the event is a likelihood as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .latent_integral import Integrand, SameDensities, expected_points, first_radius, first_step, integrate_latents

_NODES = 8  # of a panel
_PANEL = 2.5  # sds of q, at most
_REACH = 6.5  # sds of q to either side
_NEAR = 3.0  # nats below the top, from which on less is enough
_ROUGH = 0.3  # nats
_RETRIES = 8.0  # times the work of one sum, where the first is not about the posterior
_RULE = 1e-7  # relative error of a panel, of a smooth log-concave density: added


@dataclass(frozen=True)
class Slice(SameDensities):
    """The integrand over all that is orthogonal to w, at s."""

    w: np.ndarray
    basis: np.ndarray
    s: float

    @property
    def dimension(self) -> int:
        return self.basis.shape[1]

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        return self.integrand.log_ratio(self.s * self.w + x @ self.basis.T)


def panels_of(low: float, high: float) -> list[tuple[float, float, bool]]:
    """Panels that cover the line to both sides, and whether each lies between low and high."""
    cuts = sorted({-_REACH, _REACH, *(c for c in (low, high) if -_REACH < c < _REACH)})
    out = []
    for a, b in pairwise(cuts):
        edges = np.linspace(a, b, int(np.ceil((b - a) / _PANEL)) + 1)
        out += [(float(p), float(q), low <= p and q <= high) for p, q in pairwise(edges)]
    return out


def needed_width(s: float, width: float) -> float:
    """What the sum at s aims at: far out, where next to nothing lies, less is enough."""
    return float(min(width * np.exp(max(0.5 * s * s - _NEAR, 0.0)), _ROUGH))


def range_cost(integrand: Integrand, low: float, high: float, width: float) -> float:
    """Densities of rows that ``range_bounds`` needs, about."""
    d = integrand.dimension - 1
    if not d:
        return len(panels_of(low, high)) * _NODES * integrand.densities
    middles = [0.5 * (start + end) for start, end, _ in panels_of(low, high)]
    steps = [first_step(d, needed_width(s, width)) for s in middles]
    return sum(_NODES * expected_points(d, step, first_radius(d)) for step in steps) * integrand.densities


def range_bounds(integrand: Integrand, w: np.ndarray, low: float, high: float, width: float) -> tuple[float, float]:
    """Bounds of P(low < w'x < high | y), w of norm 1; ``width`` is what the inner sums aim at."""
    d = integrand.dimension
    basis = np.linalg.svd(w[None], full_matrices=True)[2][1:].T
    x, weight = np.polynomial.legendre.leggauss(_NODES)
    parts: list[tuple[float, float, float, bool]] = []  # log of the largest value, relative lower and upper sums
    for start, end, inside in panels_of(low, high):
        s = 0.5 * (start + end) + 0.5 * (end - start) * x
        sums = [_marginal(Slice(integrand, w, basis, float(at)), d - 1, needed_width(float(at), width)) for at in s]
        log_m = np.array([one[0] for one in sums]) - 0.5 * s * s + np.log(0.5 * (end - start) * weight)
        top = float(log_m.max())
        value = np.exp(log_m - top)
        fewer, more = (value @ np.array([one[k] for one in sums]) for k in (1, 2))
        parts.append((top, float(fewer) * (1.0 - _RULE), float(more) * (1.0 + _RULE), inside))
    most = max(top for top, *_ in parts)
    slack = float(np.exp(2.0 * integrand.error))
    in_low, in_high, out_low, out_high = 0.0, 0.0, 0.0, 0.0
    for top, fewer, more, inside in parts:
        scale = float(np.exp(top - most))
        if inside:
            in_low, in_high = in_low + scale * fewer / slack, in_high + scale * more * slack
        else:
            out_low, out_high = out_low + scale * fewer / slack, out_high + scale * more * slack
    beyond = _outside(parts, most)
    in_high += beyond * (low == -np.inf or high == np.inf)
    out_high += beyond
    return in_low / (in_low + out_high), in_high / (in_high + out_low)


def _marginal(part: Slice, d: int, width: float) -> tuple[float, float, float]:
    """log E exp r at one s, and the factors to a smaller and a larger value."""
    if d == 0:
        return float(part.log_ratio(np.zeros((1, 0)))[0]), 1.0, 1.0
    once = expected_points(d, first_step(d, width), first_radius(d)) * part.densities
    found = integrate_latents(part, width, _RETRIES * once)
    assert found is not None
    return found.log_evidence, 1.0 - min(found.halves, 0.5), 1.0 + found.halves + found.tail


def _outside(parts: list[tuple[float, float, float, bool]], most: float) -> float:
    """What lies beyond the last panels: the density is log-concave, and falls on at the rate it has fallen at."""
    out = 0.0
    for top, _, more, _ in (parts[0], parts[-1]):
        fallen = max(most - top, 1e-9)
        out += float(np.exp(top - most)) * more * _REACH / fallen
    return out
