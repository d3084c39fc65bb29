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
from .tilted_moments import Cumulants, TiltedMoments

_FALL = 12.0  # factor by which mu falls
_CENTRED = 0.5  # squared decrement of Newton's step, in units of mu, at which mu falls
_HALVINGS = 40
_INSIDE = 0.8  # of the largest share of its profile that is allowed: where the search starts,
_NEAR = 1.5  # known up to this factor,
_TRIALS = 12  # or after so many trials
_EXAGGERATION = 0.8  # power of the ratio by which a start is improved
_KNOWN = 1e-9  # nats below which a width is nothing
_EDGE = 0.05  # of mu: weight of the barrier at the lowest w
_KEPT = 0.1  # share of the distance to the lowest w that a step leaves


@dataclass(frozen=True)
class Exponents:
    """w = 1/p (n,), what the last fall of mu gained (nats; infinite after an early end), and Newton's steps."""

    w: np.ndarray
    gain: float
    steps: int


class _Point:
    """F at one w."""

    def __init__(self, w: np.ndarray, moments: TiltedMoments, cone: Cone) -> None:
        self.w = w
        self.margin: Margin = cone.at(w)
        self.moments: Cumulants = moments.at(1.0 / w)
        self.bound = float(w @ self.moments.log_mean)
        self.room = w - cone.lowest

    def value(self, mu: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            out = self.bound - mu * (self.margin.log_det + _EDGE * float(np.log(self.room).sum()))
        return out if np.isfinite(out) else np.inf


def best_exponents(
    moments: TiltedMoments, cone: Cone, floor: float, share: float = 0.01, start: np.ndarray | None = None
) -> Exponents:
    """Exponents after which a fall of mu gains no more than a ``share`` of the width, which is above ``floor``.

    Parameters
    ----------
    floor : float
        sum_c E gt_c under q: no bound is lower.
    start : array (n,), optional
        A w that is allowed, and good.
    """
    point = _start(moments, cone) if start is None else _placed(start, moments, cone)
    mu, before, steps, gain = _first_mu(point), np.inf, 0, np.inf
    while steps < cone.max_steps:
        point, decrement = _newton_step(point, moments, cone, mu)
        steps += 1
        if decrement > _CENTRED * mu:
            continue
        gain, before = before - point.bound, point.bound
        if gain <= share * max(point.bound - floor, _KNOWN):
            break
        mu /= _FALL
        point = _placed(point.w, moments, cone)
    return Exponents(point.w, gain, steps)


def _placed(w: np.ndarray, moments: TiltedMoments, cone: Cone) -> _Point:
    """The point at w, its integrals on grids of its own."""
    moments.place(1.0 / w)
    return _Point(w, moments, cone)


def _start(moments: TiltedMoments, cone: Cone) -> _Point:
    """A feasible w, well inside: what a site by itself may have, then more for sites that ask for more.

    At the best w the slopes of phi and of the barrier are proportional; the ratio of the two says who should have more.
    """
    point = _placed(_scaled(cone, cone.profile), moments, cone)
    for _ in range(cone.repeats):
        m, p = point.moments, 1.0 / point.w
        asked = np.maximum(p * m.mean - m.log_mean, 0.0) / point.margin.slopes
        middle = float(np.median(asked))
        if not middle > 0.0:
            break
        room = point.room * np.clip(asked / middle, 1e-3, 1e3) ** _EXAGGERATION
        new = _placed(_scaled(cone, room), moments, cone)
        if not new.bound < point.bound:
            break
        point = new
    return point


def _scaled(cone: Cone, room: np.ndarray) -> np.ndarray:
    """w along a ray from the lowest one, near the end of what is allowed."""
    low, high, longest = 0.0, np.inf, float(np.max(room / cone.profile))
    if not longest > 0.0:
        raise NotPositiveDefinite("double precision leaves no room above the lowest exponents")
    share = 0.5 / longest
    for trial in range(_HALVINGS):
        try:
            cone.at(cone.lowest + share * room)
            low = share
        except NotPositiveDefinite:
            high = share
        if low > 0.0 and (high < _NEAR * low or trial > _TRIALS):
            return np.asarray(cone.lowest + _INSIDE * low * room)
        if low == 0.0:
            share = high / 4.0
        else:
            share = 2.0 * low if high == np.inf else float(np.sqrt(low * high))
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
    try:
        step = -point.margin.newton(p**3 * m.variance + edge / room, mu, gradient)
    except NotPositiveDefinite:  # rounding: this is as near as it comes
        return point, 0.0
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
