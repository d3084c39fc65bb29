"""The best exponents: minimise the upper bound over all exponents that the inequality allows.

    minimise  sum_c phi_c(w_c),   phi(w) = w L(1/w),     over M(w) >= 0 (``margins.py``), w = 1/p

phi is convex (a perspective of the cumulant function L) and M is linear in w, so the minimum is unique. With a barrier,

    F = sum phi - mu log|M| - nu sum log(w - lowest),     nu = mu / 20,     phi' = L - p L',     phi'' = p^3 L'',

Newton's method minimises F for decreasing mu. At the minimum for mu the bound exceeds the best one by at most mu times
the rank of M. Every w with M(w) > 0 gives a valid bound, so an early end makes the bound wider but not wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..linalg.dense import NotPositiveDefinite
from .lattice_moments import LatticeMoments
from .margins import Cone, Margin
from .tilted_moments import Cumulants, SiteRemainders, TiltedMoments

_FALL = 12.0  # factor by which mu decreases
_CENTRED = 0.5  # mu decreases when the squared decrement of Newton's step is below this multiple of mu
_HALVINGS = 40  # most halvings of a step
_INSIDE = 0.8  # the search starts at this share of the largest allowed multiple of the profile,
_NEAR = 1.5  # which is determined up to this factor,
_TRIALS = 12  # or as well as so many trials allow
_EXAGGERATION = 0.8  # power of the ratio by which a start is improved
_KNOWN = 1e-9  # nats: smaller widths are not reduced
_EDGE = 0.05  # weight of the barrier at the lowest w, relative to mu
_SHRINKS = (0.0, 1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)  # shifts of w to its lowest, tried until it is proved
_UNPROVED = 1e-6  # the same shift if none is proved
_KEPT = 0.1  # share of the distance to the lowest w that remains after a step


@dataclass(frozen=True)
class Exponents:
    """w = 1/p (n,), the gain by the last decrease of mu (nats; infinite after an early end), and the Newton steps."""

    w: np.ndarray
    gain: float
    steps: int


class _Point:
    """The objective F at one w."""

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
    """Search for exponents until a decrease of mu gains at most a ``share`` of the width above ``floor``.

    Parameters
    ----------
    floor : float
        sum_c E gt_c under q, below which no upper bound can be.
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
    """The point at w, with new grids for its integrals."""
    moments.place(1.0 / w)
    return _Point(w, moments, cone)


def _improved(point: _Point, moments: TiltedMoments, cone: Cone) -> _Point:
    """Improve the start: raise w of sites with a large ratio of the slope of phi to that of the barrier.

    At the best w the two slopes are proportional.
    """
    for _ in range(cone.repeats):
        m, p = point.moments, 1.0 / point.w
        ratio = np.maximum(p * m.mean - m.log_mean, 0.0) / point.margin.slopes
        middle = float(np.median(ratio))
        if not middle > 0.0:
            break
        room = point.room * np.clip(ratio / middle, 1e-3, 1e3) ** _EXAGGERATION
        new = _placed(_scaled(cone, room), moments, cone)
        if not new.bound < point.bound:
            break
        point = new
    return point


def _scaled(cone: Cone, room: np.ndarray) -> np.ndarray:
    """w on the ray from the lowest w along ``room``, near the boundary of the cone."""
    low, high, longest = 0.0, np.inf, float(np.max(room / cone.profile))
    if not longest > 0.0:
        raise NotPositiveDefinite("no exponents above the lowest are distinguishable in double precision")
    overlap = float(np.sum(room / cone.profile)) / cone.size  # about the number of sites for each direction
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
    raise NotPositiveDefinite("no allowed exponents have finite integrals")


def _first_mu(point: _Point) -> float:
    """The mu for which the start is nearly the minimum."""
    m, p = point.moments, 1.0 / point.w
    slope = np.maximum(p * m.mean - m.log_mean, 0.0)
    return float(max(slope.sum() / point.margin.slopes.sum(), 1e-12))


def _possible_gain(point: _Point, cone: Cone) -> float:
    """Upper bound on the gain by any other exponents: phi is convex, and tr(M^-1 (M(w) - M(w'))) at most the rank.

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
    except NotPositiveDefinite:  # rounding prevents further improvement
        return point, 0.0
    decrement = float(-gradient @ step)
    with np.errstate(divide="ignore"):
        t = float(min(1.0, (1.0 - _KEPT) * np.min(np.where(step < 0.0, room / -step, np.inf), initial=np.inf)))
    here = point.value(mu)
    for _ in range(_HALVINGS):
        try:
            new = _Point(point.w + t * step, moments, cone)
        except NotPositiveDefinite:
            t /= 2.0
            continue
        if new.value(mu) <= here - 0.01 * t * decrement + 1e-13 * abs(here):
            return new, decrement
        t /= 2.0
    return point, 0.0


# -- the bound ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SiteBound:
    """An upper bound on log E prod_c exp gt_c, in nats.

    Attributes
    ----------
    value : float
        sum_c w_c (L_c(1/w_c) + its error).
    w : array (n,)
        1/p.
    error : float
        Amount added for the errors of the integrals.
    gain : float
        Gain by the last stage of the search for exponents.
    proved : bool
        Whether the exponents are proved to be allowed in exact arithmetic; otherwise only in double precision.
    """

    value: float
    w: np.ndarray
    error: float
    gain: float
    proved: bool


def bound_sites(sites: SiteRemainders, cone: Cone, floor: float) -> SiteBound:
    """The upper bound for sites of any kind.

    Parameters
    ----------
    sites : SiteRemainders
        Functions of standard normal variables.
    cone : Cone
        The exponents that they may have.
    floor : float
        sum_c E gt_c under q, below which no upper bound can be.
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
    """Shift w towards its lowest value until it is proved to be allowed."""
    for t in _SHRINKS:
        moved = cone.lowest + (1.0 - t) * (w - cone.lowest)
        if cone.proves(moved):
            return moved, True
    return cone.lowest + (1.0 - _UNPROVED) * (w - cone.lowest), False
