"""The centre of an integration and the coordinates about it: the mode, its curvature, and how far each side reaches.

H by differences of the exact gradient of the elbo, a fit for each entry of theta; the same fits give the slope of what
the correction adds, and Newton's steps lead from the mode of the elbo to that of the corrected evidence, each at the
price of one fit. Two more for each entry, at +-3 of its sds, say how far the density reaches on either side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..learned import Learned
from .coordinates import Coordinates
from .points import Fitter, Point

_STEP = 0.15  # in e-folds
_FLATTEST = 0.02  # curvatures below it say that a direction is unknown; its sd is then 7 e-folds
_FAR, _NEAR, _STEPS = 1.0, 0.15, 3  # sds: the longest of Newton's steps, and one that is not worth a fit; their number
_PROBE, _ROOM = 3.0, 0.3  # sds: where widths are read off, and the least of them
_AWAY = 0.3  # sds: the mode of the elbo is near


@dataclass(frozen=True)
class Centre:
    """Where points are laid about.

    Attributes
    ----------
    coordinates : Coordinates
    points : list of Point
        The centre, then the fits that the widths were read off.
    peak : array (n,)
        Where the density is largest: a last Newton step from the centre, too short to be worth a fit.
    """

    coordinates: Coordinates
    points: list[Point]
    peak: np.ndarray


def value_of(point: Point, beyond: bool) -> float:
    """The log density of theta at a point, up to p(y)."""
    return point.plain + (point.gain if beyond else 0.0)


def centred(fitter: Fitter, mode: Learned, free: list[int], beyond: bool) -> Centre:
    """From the mode of the elbo, over the entries ``free``; ``beyond``: to that of the corrected evidence."""
    bounds = fitter.evidence.bounds
    fitter.evidence.begin(mode.solution)
    (here,) = fitter.at([mode.theta], sloped=True)
    beyond = beyond and here.usable
    fitter.evidence.begin(here.solution)
    steps = np.where(mode.theta + _STEP <= bounds[:, 1], _STEP, -_STEP)[free]
    moved = [here.theta + step * np.eye(here.theta.size)[i] for i, step in zip(free, steps, strict=True)]
    around = fitter.at(moved, sloped=True)
    fitter.start_from([*around, here])
    slope = _slope(here, free)
    H = np.array([(slope - _slope(p, free)) / s for p, s in zip(around, steps, strict=True)])
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    root = vectors / np.sqrt(np.maximum(values, _FLATTEST))
    peak = here.theta
    if beyond:
        gains = np.array([(p.gain - here.gain) / s for p, s in zip(around, steps, strict=True)])
        here, peak = _climbed(fitter, here, root, np.where(np.isfinite(gains), gains, 0.0), free)
    away = float(np.linalg.norm(root.T @ _slope(here, free)))  # sds to the mode of the elbo
    straight = Coordinates.straight(here.theta, free, root)
    coordinates, points = _widths(fitter, straight, here, beyond and away > _AWAY)
    return Centre(coordinates, points, peak)


def _slope(point: Point, free: list[int]) -> np.ndarray:
    assert point.gradient is not None
    return point.gradient[free]


def _climbed(
    fitter: Fitter, here: Point, root: np.ndarray, gains: np.ndarray, free: list[int]
) -> tuple[Point, np.ndarray]:
    """Newton's steps to where the slope of the elbo and that of the correction cancel: the last fit, and the peak."""
    bounds = fitter.evidence.bounds
    for _ in range(_STEPS):
        z = root.T @ (_slope(here, free) + gains)
        size = float(np.linalg.norm(z))
        theta = here.theta.copy()
        theta[free] += root @ (z * min(1.0, _FAR / max(size, _NEAR)))
        if not ((theta > bounds[:, 0]) & (theta < bounds[:, 1])).all():
            break
        if size < _NEAR:
            return here, theta
        (there,) = fitter.at([theta], sloped=True)
        if not value_of(there, True) > value_of(here, True):
            break
        here = there
    return here, here.theta


def _widths(fitter: Fitter, straight: Coordinates, here: Point, beyond: bool) -> tuple[Coordinates, list[Point]]:
    """Coordinates bent so that the density has fallen as a normal's would where it was probed.

    Each entry is moved by some of its sds, and the others with it as H has them follow. The fall is that of the elbo
    where its mode is near; else, ``beyond``, that of the corrected evidence.
    """
    bounds, ways = fitter.evidence.bounds, [(k, sign) for k in range(straight.dimension) for sign in (-1.0, 1.0)]
    reach = {way: _room(straight, *way, bounds) for way in ways}
    probes = [(k, sign * z) for (k, sign), z in reach.items() if z > _ROOM]
    points = fitter.at([straight.theta(z * straight.mix[k]) for k, z in probes], plain=not beyond)
    beyond = beyond and all(point.usable for point in points)
    ends = {way: (way[1], way[1]) for way in ways}
    for (k, z), point in zip(probes, points, strict=True):
        fallen = value_of(here, beyond) - value_of(point, beyond)
        ends[k, np.sign(z)] = (np.sign(z) * np.sqrt(2.0 * max(fallen, 0.02)), z)
    below, above = (np.array([end for way, end in ends.items() if way[1] == sign]) for sign in (-1.0, 1.0))
    return straight.bent(below, above), [here, *points]


def _room(straight: Coordinates, k: int, sign: float, bounds: np.ndarray) -> float:
    """How far one may go within the bounds, in sds of an entry."""
    way = straight.theta(sign * straight.mix[k]) - straight.centre
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(way > 0.0, bounds[:, 1] - straight.centre, bounds[:, 0] - straight.centre) / way
    return float(min(_PROBE, np.where(way == 0.0, np.inf, left).min(initial=np.inf) * 0.999))
