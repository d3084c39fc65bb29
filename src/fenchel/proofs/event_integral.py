"""The probability that a linear combination of few latents lies in a range, as a ratio of integrals.

    P(low < s < high | y) = int_low^high m(s) ds / int m(s) ds,      m(s) = phi(s) E[exp r(s w + B t)],  t ~ N(0, I)

s = w'x is the combination in units of q, and B a basis of its orthogonal complement. The inner expectation is a sum
over a lattice (``latent_integral.py``); the outer integrals use Gauss-Legendre rules on panels that end at low and
high. Each integral has lower and upper limits, whose ratios bound the probability, because the likelihood times the
indicator of the event is a likelihood too. The error of a panel is the difference between rules of eight and five
nodes; panels are halved while it is larger than the error of the inner sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .latent_integral import Integrand, SameDensities, expected_points, first_radius, first_step, integrate_latents

_RULES = tuple(np.polynomial.legendre.leggauss(n) for n in (8, 5))  # of a panel; the first gives the value
_NODES = np.concatenate([x for x, _ in _RULES])
_SETTLED = 1e-6  # allowed difference of the rules of a panel, relative to the whole integral
_MORE_PANELS = 2  # largest factor on the number of panels,
_MORE_POINTS = 64  # or this factor in one dimension, where a node costs one point
_PANEL = 2.5  # largest width of a panel, in sds of q
_REACH = 6.5  # half width of the outer integral, in sds of q
_NEAR = 3.0  # nats below the maximum beyond which inner sums may be less accurate
_ROUGH = 0.3  # nats: the lowest accuracy of an inner sum
_RETRIES = 8.0  # work for an inner sum, relative to one lattice, to recentre it at the posterior


@dataclass(frozen=True)
class Slice(SameDensities):
    """The integrand on the hyperplane w'x = s, in coordinates of the basis."""

    w: np.ndarray
    basis: np.ndarray
    s: float

    @property
    def dimension(self) -> int:
        return self.basis.shape[1]

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        return self.integrand.log_ratio(self.s * self.w + x @ self.basis.T)


def panels_of(low: float, high: float) -> list[tuple[float, float, bool]]:
    """Panels (start, end, whether inside of (low, high)) that cover the real line up to the reach."""
    cuts = sorted({-_REACH, _REACH, *(c for c in (low, high) if -_REACH < c < _REACH)})
    out = []
    for a, b in pairwise(cuts):
        edges = np.linspace(a, b, int(np.ceil((b - a) / _PANEL)) + 1)
        out += [(float(p), float(q), low <= p and q <= high) for p, q in pairwise(edges)]
    return out


def needed_width(s: float, width: float) -> float:
    """The accuracy, in nats, that the sum at s needs; it is lower far out, where the density is small."""
    return float(min(width * np.exp(max(0.5 * s * s - _NEAR, 0.0)), _ROUGH))


def range_cost(integrand: Integrand, low: float, high: float, width: float) -> float:
    """Approximate number of row densities that ``range_bounds`` needs."""
    d = integrand.dimension - 1
    if not d:
        return len(panels_of(low, high)) * _NODES.size * integrand.densities
    middles = [0.5 * (start + end) for start, end, _ in panels_of(low, high)]
    steps = [first_step(d, needed_width(s, width)) for s in middles]
    return sum(_NODES.size * expected_points(d, step, first_radius(d)) for step in steps) * integrand.densities


def nodes_of(start: float, end: float) -> np.ndarray:
    """The nodes (M,) of both rules on a panel."""
    return np.asarray(0.5 * (start + end) + 0.5 * (end - start) * _NODES)


@dataclass(frozen=True)
class _Panel:
    """A panel: log m (M,) at the nodes of both rules, factors to its lower and upper limits, whether it is inside."""

    start: float
    end: float
    inside: bool
    log_m: np.ndarray
    less: np.ndarray
    more: np.ndarray

    @property
    def nodes(self) -> np.ndarray:
        return nodes_of(self.start, self.end)

    def integrals(self, top: float) -> tuple[float, float, float]:
        """Lower and upper limits of the integral, and the difference of the rules, in units of exp(top)."""
        m, half, n = np.exp(self.log_m - top), 0.5 * (self.end - self.start), _RULES[0][0].size
        weight = half * _RULES[0][1]
        apart = abs(float(weight @ m[:n]) - half * float(_RULES[1][1] @ m[n:]))
        least, largest = (float(weight @ (m * factor)[:n]) for factor in (self.less, self.more))
        return max(least - apart, 0.0), largest + apart, apart

    def unsettled(self, top: float, whole: float) -> bool:
        """Whether the difference of the rules is larger than the error of the inner sums."""
        least, largest, apart = self.integrals(top)
        return apart > max(_SETTLED * whole, 0.5 * (largest - least) - apart)


def range_bounds(integrand: Integrand, w: np.ndarray, low: float, high: float, width: float) -> tuple[float, float]:
    """Bounds on P(low < w'x < high | y) with |w| = 1; ``width`` is the accuracy of the inner sums in nats."""
    d = integrand.dimension
    basis = np.linalg.svd(w[None], full_matrices=True)[2][1:].T

    def panel(start: float, end: float, inside: bool) -> _Panel:
        s = nodes_of(start, end)
        sums = [_marginal(Slice(integrand, w, basis, float(at)), d - 1, needed_width(float(at), width)) for at in s]
        log_m, less, more = np.array(sums).T
        return _Panel(start, end, inside, log_m - 0.5 * s * s, less, more)

    panels = [panel(*each) for each in panels_of(low, high)]
    most = (_MORE_PANELS if d > 1 else _MORE_POINTS) * len(panels)
    while True:
        top = max(float(each.log_m.max()) for each in panels)
        whole = sum(each.integrals(top)[1] for each in panels)
        unsettled = [each.unsettled(top, whole) for each in panels]
        if not any(unsettled) or len(panels) + sum(unsettled) > most:
            break
        panels = [
            part
            for each, halved in zip(panels, unsettled, strict=True)
            for part in (_halves(each, panel) if halved else [each])
        ]
    slack = float(np.exp(2.0 * integrand.error))
    sums = {inside: np.zeros(2) for inside in (True, False)}
    for each in panels:
        least, largest, _ = each.integrals(top)
        sums[each.inside] += least / slack, largest * slack
    beyond = _outside(panels, top) * slack
    (in_low, in_high), (out_low, out_high) = sums[True], sums[False]
    in_high += beyond if low < -_REACH or high > _REACH else 0.0
    out_high += beyond
    if not np.isfinite(in_high + out_high):
        return 0.0, 1.0
    return float(in_low / (in_low + out_high)), float(in_high / (in_high + out_low))


def _halves(each: _Panel, panel: Callable[[float, float, bool], _Panel]) -> list[_Panel]:
    middle = 0.5 * (each.start + each.end)
    return [panel(each.start, middle, each.inside), panel(middle, each.end, each.inside)]


def _marginal(part: Slice, d: int, width: float) -> tuple[float, float, float]:
    """log E exp r at one s, and the factors to its lower and upper limits."""
    if d == 0:
        return float(part.log_ratio(np.zeros((1, 0)))[0]), 1.0, 1.0
    once = expected_points(d, first_step(d, width), first_radius(d)) * part.densities
    integral = integrate_latents(part, width, _RETRIES * once)
    assert integral is not None
    if not np.isfinite(integral.width):
        return integral.log_evidence, 0.0, np.inf
    return integral.log_evidence, 1.0 - integral.halves, 1.0 + integral.halves + integral.tail


def _outside(panels: list[_Panel], top: float) -> float:
    """Upper bound on the integral beyond the last nodes; infinite if the density has not decreased there.

    The density is log-concave, so that it continues to decrease at least at its average rate so far.
    """
    s = np.concatenate([each.nodes for each in panels])
    with np.errstate(divide="ignore"):
        least = np.concatenate([each.log_m + np.log(each.less) for each in panels]) - top
        largest = np.concatenate([each.log_m + np.log(each.more) for each in panels]) - top
    highest, out = int(np.argmax(least)), 0.0
    for last in (int(np.argmin(s)), int(np.argmax(s))):
        fallen = least[highest] - largest[last]
        out += float(np.exp(largest[last]) * abs(s[last] - s[highest]) / fallen) if fallen > 0.0 else np.inf
    return out
