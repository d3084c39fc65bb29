"""The centre of an integration: from the mode of the elbo to that of the corrected evidence.

The curvature is that of ``mode_of``. The same fits give the slope of what the correction adds, so that each of
Newton's steps to the mode of the corrected evidence costs one fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..coordinates import Coordinates
from ..learned import Learned
from ..mode import Evaluation, Mode, mode_of
from .points import Fitter, Point

LONGEST_STEP = 1.0  # sds
SHORTEST_STEP = 0.15  # sds: one that is not worth a fit
MOST_STEPS = 3
NEAR_MODE = 0.3  # sds between both modes, up to which widths are read off the elbo


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


def centred(fitter: Fitter, learned: Learned, free: list[int], beyond: bool) -> Centre:
    """From the mode of the elbo, over the entries ``free``; ``beyond``: to that of the corrected evidence."""
    fitter.evidence.begin(learned.solution)
    (here,) = fitter.at([learned.theta], sloped=True)
    beyond = beyond and here.usable
    fitter.evidence.begin(here.solution)
    around: list[Point] = []

    def evaluate(thetas: list[np.ndarray]) -> list[Evaluation]:
        around[:] = fitter.at(thetas, sloped=True)
        return [Evaluation(p.theta, p.plain, p.slope, p.gain - here.gain) for p in around]

    held = set(range(learned.theta.size)) - set(free)
    mode = mode_of(fitter.evidence, learned.theta, hold=held, evaluate=evaluate)
    fitter.start_from([*around, here])
    peak = here.theta
    if beyond:
        here, peak = _climbed(fitter, here, mode)
    away = float(np.linalg.norm(mode.directions.T @ here.slope[mode.free]))  # sds to the mode of the elbo
    beyond = beyond and away > NEAR_MODE
    points: list[Point] = []

    def values_at(thetas: list[np.ndarray]) -> list[float]:
        points[:] = fitter.at(thetas, plain=not beyond)
        corrected = beyond and all(point.usable for point in points)
        return [value_of(point, corrected) - value_of(here, corrected) for point in points]

    left = np.zeros(here.theta.size) if beyond else here.slope
    mode = replace(mode, theta=here.theta, value=0.0, gradient=left)
    return Centre(mode.coordinates(values_at), [here, *points], peak)


def _climbed(fitter: Fitter, here: Point, mode: Mode) -> tuple[Point, np.ndarray]:
    """Newton's steps to where the slope of the elbo and that of the correction cancel: the last fit, and the peak."""
    (low, high), free, root = fitter.evidence.bounds.T, mode.free, mode.directions
    # no ``Search``: the slope of the correction is known at the start alone, and stays
    gains = np.where(np.isfinite(mode.moves), mode.moves, 0.0)
    for _ in range(MOST_STEPS):
        z = root.T @ (here.slope + gains)[free]
        size = float(np.linalg.norm(z))
        theta = here.theta.copy()
        theta[free] += root @ (z * min(1.0, LONGEST_STEP / max(size, SHORTEST_STEP)))
        if not ((theta > low) & (theta < high)).all():
            break
        if size < SHORTEST_STEP:
            return here, theta
        (there,) = fitter.at([theta], sloped=True)
        if not value_of(there, True) > value_of(here, True):
            break
        here = there
    return here, here.theta
