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
from .lattice_moments import LatticeMoments
from .margins import Cone, Margin
from .tilted_moments import Cumulants, SiteRemainders, TiltedMoments

_FALL = 12.0  # factor by which mu falls
_CENTRED = 0.5  # squared decrement of Newton's step, in units of mu, at which mu falls
_HALVINGS = 40
_INSIDE = 0.8  # of the largest share of its profile that is allowed: where the search starts,
_NEAR = 1.5  # known up to this factor,
_TRIALS = 12  # or after so many trials
_EXAGGERATION = 0.8  # power of the ratio by which a start is improved
_KNOWN = 1e-9  # nats below which a width is nothing
_EDGE = 0.05  # of mu: weight of the barrier at the lowest w
_SHRINKS = (0.0, 1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)  # of w towards its lowest, tried until it is proved
_UNPROVED = 1e-6  # the same where rounding leaves no proof
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


def best_exponents(moments: TiltedMoments, cone: Cone, floor: float, share: float = 0.01) -> Exponents:
    """Exponents after which a fall of mu gains no more than a ``share`` of the width, which is above ``floor``.

    Parameters
    ----------
    floor : float
        sum_c E gt_c under q: no bound is lower.
    """
    point = _placed(_scaled(cone, cone.profile), moments, cone)
    gain = _possible_gain(point, cone)
    if gain <= share * max(point.bound - floor, _KNOWN):
        return Exponents(point.w, gain, 0)
    point = _improved(point, moments, cone)
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


def _improved(point: _Point, moments: TiltedMoments, cone: Cone) -> _Point:
    """A start well inside what is allowed: more for sites that ask for more than their share.

    At the best w the slopes of phi and of the barrier are proportional; the ratio of the two says who should have more.
    """
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
    overlap = float(np.sum(room / cone.profile)) / cone.size  # sites to a direction, each with what it may have alone
    share = 0.5 / max(longest, overlap)
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


def _possible_gain(point: _Point, cone: Cone) -> float:
    """No exponents give a bound that is lower by more: phi is convex, and tr(M^-1 (M(w) - M(w'))) at most the rank.

    sum -phi'_c (w'_c - w_c) <= max_c (-phi'_c / slope_c) sum slope_c (w'_c - lowest_c)
    """
    m, p = point.moments, 1.0 / point.w
    slope = np.maximum(p * m.mean - m.log_mean, 0.0)
    steepest = float(np.max(slope / point.margin.slopes, initial=0.0))
    return steepest * (cone.size + float(point.margin.slopes @ point.room)) - float(slope @ point.room)


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


# -- the bound ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SiteBound:
    """An upper bound of log E prod_c exp gt_c, in nats.

    Attributes
    ----------
    value : float
        sum_c w_c (L_c(1/w_c) + its error).
    w : array (n,)
        1/p.
    error : float
        What was added for the integrals.
    gain : float
        What the last stage of the search for exponents gained.
    proved : bool
        Whether the exponents are allowed in exact arithmetic; else in double precision only.
    """

    value: float
    w: np.ndarray
    error: float
    gain: float
    proved: bool


def bound_sites(sites: SiteRemainders, cone: Cone, floor: float) -> SiteBound:
    """The upper bound of sites of any kind: functions of a standard normal each, and which exponents they may have.

    Parameters
    ----------
    sites : SiteRemainders
    cone : Cone
        Of the directions that the sites see.
    floor : float
        sum_c E gt_c under q, below which no bound is.
    """
    if sites.n == 0:
        return SiteBound(0.0, np.zeros(0), 0.0, 0.0, True)
    few = sites.dimension <= 3
    moments = TiltedMoments(sites) if few else LatticeMoments(sites)
    try:
        best = best_exponents(moments, cone, floor)
    except NotPositiveDefinite:
        return SiteBound(np.inf, np.zeros(sites.n), 0.0, np.inf, False)
    w, proved = _proved(cone, best.w)
    value, error = moments.certified(1.0 / w)
    lost = float(w @ error)
    return SiteBound(float(w @ value) + lost, w, lost, best.gain, proved)


def _proved(cone: Cone, w: np.ndarray) -> tuple[np.ndarray, bool]:
    """w moved towards its lowest until it is proved to be allowed."""
    for t in _SHRINKS:
        there = cone.lowest + (1.0 - t) * (w - cone.lowest)
        if cone.proves(there):
            return there, True
    return cone.lowest + (1.0 - _UNPROVED) * (w - cone.lowest), False
