"""The best exponents: the least of the bounds that the inequality allows.

    minimise  sum_c phi_c(w_c),   phi(w) = w L(1/w),     over M(w) >= 0 (``margins.py``), w = 1/p

phi is convex (a perspective of the cumulant function L) and M is linear in w, so there is one best w. With the barrier,

    F = sum phi - mu log|M| - nu sum log(w - lowest),     nu = mu / 20,     phi' = L - p L',     phi'' = p^3 L'',

Newton's steps go down F while mu falls; at the minimum for mu the bound is at most mu times the rank of M above the
best one. Any w with M(w) > 0 is a bound: an early end costs width, never truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..linalg.dense import NotPositiveDefinite
from .margins import Cone, Margin
from .tilted_moments import Moments, TiltedMoments

_FALL = 12.0  # factor by which mu falls
_CENTRED = 0.5  # squared decrement of Newton's step, in units of mu, at which mu falls
_HALVINGS = 40
_EDGE = 0.05  # of mu: weight of the barrier at the lowest w
_KEPT = 0.1  # share of the distance to the lowest w that a step leaves


@dataclass(frozen=True)
class Exponents:
    """w = 1/p (n,), how far the bound may be above the best one, and Newton's steps that it took."""

    w: np.ndarray
    excess: float
    steps: int
    centred: bool


class _Point:
    """F at one w."""

    def __init__(self, w: np.ndarray, moments: TiltedMoments, cone: Cone) -> None:
        self.w = w
        self.margin: Margin = cone.at(w)
        self.moments: Moments = moments.at(1.0 / w)
        self.bound = float(w @ self.moments.log_mean)
        self.room = w - cone.lowest

    def value(self, mu: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            out = self.bound - mu * (self.margin.log_det + _EDGE * float(np.log(self.room).sum()))
        return out if np.isfinite(out) else np.inf


def best_exponents(
    moments: TiltedMoments, cone: Cone, floor: float, share: float = 2e-3, max_steps: int = 60
) -> Exponents:
    """Exponents whose bound is above the best by some ``share`` of its width: what it is above ``floor``.

    Parameters
    ----------
    floor : float
        sum_c E gt_c under q: no bound is lower.
    """
    w = _start(moments, cone)
    moments.place(1.0 / w)
    point = _Point(w, moments, cone)
    mu = _first_mu(point)
    steps, centred = 0, False
    size = cone.size + _EDGE * cone.lowest.size
    while steps < max_steps:
        point, decrement = _newton_step(point, moments, cone, mu)
        steps += 1
        excess = mu * size
        centred = decrement <= _CENTRED * mu
        if centred:
            if excess <= share * max(point.bound - floor, 1e-9):
                break
            mu /= _FALL
            moments.place(1.0 / point.w)
            point = _Point(point.w, moments, cone)
    return Exponents(point.w, mu * size, steps, centred)


def _start(moments: TiltedMoments, cone: Cone) -> np.ndarray:
    """A feasible w, well inside: from the lowest one towards 1, which a site by itself could have."""
    share = 1.0
    for _ in range(_HALVINGS):
        w = cone.lowest + share * np.maximum(1.0 - cone.lowest, 1e-12)
        try:
            cone.at(w)
        except NotPositiveDefinite:
            share /= 2.0
            continue
        return np.asarray(cone.lowest + 0.5 * share * np.maximum(1.0 - cone.lowest, 1e-12))
    raise NotPositiveDefinite("no exponents at which the integrals are finite are allowed")


def _first_mu(point: _Point) -> float:
    """mu for which the start is nearly the minimum."""
    m, p = point.moments, 1.0 / point.w
    slope = np.maximum(p * m.mean - m.log_mean, 0.0)
    return float(max(slope.sum() / point.margin.slopes.sum(), 1e-12))


def _newton_step(point: _Point, moments: TiltedMoments, cone: Cone, mu: float) -> tuple[_Point, float]:
    """The next point, and the squared decrement of the step to it."""
    m, p = point.moments, 1.0 / point.w
    room, edge = point.room, _EDGE * mu / point.room
    gradient = m.log_mean - p * m.mean + mu * point.margin.slopes - edge
    step = -point.margin.newton(p**3 * m.variance + edge / room, mu, gradient)
    decrement = float(-gradient @ step)
    with np.errstate(divide="ignore"):
        t = float(min(1.0, (1.0 - _KEPT) * np.min(np.where(step < 0.0, room / -step, np.inf), initial=np.inf)))
    here = point.value(mu)
    for _ in range(_HALVINGS):
        try:
            there = _Point(point.w + t * step, moments, cone)
        except NotPositiveDefinite:
            t /= 2.0
            continue
        if there.value(mu) <= here - 0.01 * t * decrement + 1e-13 * abs(here):
            return there, decrement
        t /= 2.0
    return point, 0.0
