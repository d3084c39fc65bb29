"""The mode of an objective over theta: its curvature, the widths on either side, and the entries at bounds.

    H_ij = (g_j(0) - g_j(s e_i)) / s                              i != j, made symmetric; error O(s)
    H_ii = (4 g_i(0) + 2 g_i(s) - 6 (f(s e_i) - f(0)) / s) / s    of the cubic through both ends; error O(s^2)

f and its exact gradient g are evaluated once for each entry of theta that is not held. Two more evaluations for each,
three sds to either side, give ``Coordinates`` u in which the posterior is nearly standard normal:

    theta_i(u) = centre_i + scale_i t_i(psi_i),   psi = mix u,   (scale mix) (scale mix)' = H^-1
    t(v) = v (1 + s(-v) g_-(v) + s(v) g_+(v)),    s(v) = (1 + v / r) / 2,    r = sqrt(4 + v^2)
    g(v) = c (r / 2 - 1)  for c > 0,              c v^2 / r^2  for c < 0

scale holds the sds from H, and t_i has slope 1 at 0. A side of a hyperparameter on which the density falls more
slowly than a normal's is stretched (c > 0: a tail that is exponential in theta, as that of the log of an sd near 0,
becomes normal), one on which it falls faster is shortened, so that the same points suit both. t is smooth and changes
over no less than 2 sds, as sums over a regular grid need. Tables, the integration over theta, remarks and both engines
use this result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .base import entries_at_bounds, free_entries

_OVER = 4.0  # square of the number of sds over which t changes its slope
_LEAST = -0.55  # least c; below it t would not be monotone
_MOST = 4.0  # largest c
_REACH = 40.0  # sds on either side that the table for the inverse of t covers
_TABLE = 16001  # entries of that table
STEP = 0.1  # log units: step of the differences
STEP_SDS = 0.3  # sds: longest step if a curvature is known beforehand
CORRECTED = 0.25  # largest relative change of a difference of slopes by the cubic, since values have gaps
FLATTEST = 0.02  # least curvature of a direction; its sd is then 7 log units
PROBE = 3.0  # sds from the mode at which the fall of the objective is measured
LEAST_PROBE = 0.3  # sds to a bound below which nothing is measured
LEAST_FALL = 0.02  # nats: least fall that is measured
SLOPE = 1e-3  # nats per log unit above which the objective rises beyond a bound


@dataclass(frozen=True)
class Coordinates:
    """Coordinates u of theta in which a posterior is nearly standard normal.

    Attributes
    ----------
    centre : array (n,)
        theta at u = 0.
    free : sequence of int (d)
        The entries of theta that vary.
    scale : array (d,);  mix : array (d, d) with rows of length 1
    below, above : arrays (d,)
        c of each free entry for psi < 0 and psi > 0.
    """

    centre: np.ndarray
    free: Sequence[int]
    scale: np.ndarray
    mix: np.ndarray
    below: np.ndarray
    above: np.ndarray

    @classmethod
    def straight(cls, centre: np.ndarray, free: Sequence[int], root: np.ndarray) -> Coordinates:
        """Linear coordinates, t(v) = v, with root root' = H^-1 (d, d)."""
        scale, none = np.sqrt((root**2).sum(axis=1)), np.zeros(len(free))
        return cls(centre, free, scale, root / scale[:, None], none, none)

    def bent(self, below: np.ndarray, above: np.ndarray) -> Coordinates:
        """Coordinates with t through two points (v, t) of each entry: (d, 2), ``below`` < 0 and ``above`` > 0."""
        each = [np.array([_bend_of(abs(v), abs(t)) for v, t in side]) for side in (below, above)]
        return replace(self, below=each[0], above=each[1])

    @property
    def stretch(self) -> np.ndarray:
        """c of the longer side of each free entry (d,): 0 for a normal, positive for a longer tail."""
        return np.maximum(self.below, self.above)

    @property
    def dimension(self) -> int:
        return len(self.free)

    def _bend(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """t(v) and its slope."""
        root = np.sqrt(_OVER + v * v)
        side, turn = (1.0 + v / root) / 2, 0.5 * _OVER / root**3
        (g0, s0), (g1, s1) = (_stretch(v, root, c) for c in (self.below, self.above))
        g = (1.0 - side) * g0 + side * g1
        return v * (1.0 + g), 1.0 + g + v * ((1.0 - side) * s0 + side * s1 + turn * (g1 - g0))

    def theta(self, u: np.ndarray) -> np.ndarray:
        """theta (..., n) at u (..., d)."""
        out = np.array(np.broadcast_to(self.centre, (*u.shape[:-1], self.centre.size)))
        out[..., list(self.free)] += self.scale * self._bend(u @ self.mix.T)[0]
        return out

    def log_jacobian(self, u: np.ndarray) -> np.ndarray:
        """log |d theta / du| over the free entries (...)."""
        return np.asarray(np.log(self._bend(u @ self.mix.T)[1]).sum(axis=-1) + self.log_volume)

    @cached_property
    def log_volume(self) -> float:
        """log |d theta / du| at the centre."""
        return float(np.linalg.slogdet(self.mix)[1] + np.log(self.scale).sum())

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        v = np.sinh(np.linspace(-np.arcsinh(_REACH), np.arcsinh(_REACH), _TABLE))
        return v, self._bend(np.repeat(v[:, None], self.dimension, axis=1))[0]

    def u(self, theta: np.ndarray) -> np.ndarray:
        """u (..., d) of theta (..., n), limited to the range of the table."""
        t = (theta - self.centre)[..., list(self.free)] / self.scale
        v, table = self._table
        psi = np.stack([np.interp(t[..., k], table[:, k], v) for k in range(self.dimension)], axis=-1)
        return np.asarray(psi @ np.linalg.inv(self.mix).T)


def _stretch(u: np.ndarray, root: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """g and its slope."""
    slow = c > 0.0
    half = np.sqrt(_OVER)
    value = np.where(slow, root / half - 1.0, u * u / root**2)
    return c * value, c * np.where(slow, u / (half * root), 2.0 * _OVER * u / root**4)


def _bend_of(u: float, t: float) -> float:
    """c such that t(u) = t on one side; u and t are positive."""
    more = t / u - 1.0
    c = more / (np.sqrt(1.0 + u * u / _OVER) - 1.0) if more > 0.0 else more * (_OVER + u * u) / u**2
    return float(np.clip(c, _LEAST, _MOST))


class Evaluation(NamedTuple):
    """The value and gradient of an objective at one theta, and a number from the fit there."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    asked: float = 0.0


Evaluate = Callable[[list[np.ndarray]], Sequence[Evaluation]]


@dataclass(frozen=True)
class Mode:
    """The mode of an objective over theta, with its curvature.

    Attributes
    ----------
    theta, gradient : array (n,)
    value : float
    bounds : array (n, 2)
    free : list of int (d)
        The entries that are neither at a bound nor held by the caller.
    curvature : array (d, d)
        H of the free entries, its eigenvalues at least ``FLATTEST``.
    moves : array (n,)
        The derivative of the number ``ask`` with respect to each entry; 0 without it.
    at_bounds : dict of int to str
        The entries at a bound, "lower" or "upper".
    held : tuple of int
        Those of them at which the objective rises beyond the bound.
    """

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    bounds: np.ndarray
    free: list[int]
    curvature: np.ndarray
    moves: np.ndarray
    at_bounds: dict[int, str] = field(default_factory=dict)
    held: tuple[int, ...] = ()

    @property
    def directions(self) -> np.ndarray:
        """Eigenvectors (d, d) of the curvature, each with the length of its sd: E E' = H^-1."""
        values, vectors = np.linalg.eigh(self.curvature)
        return vectors / np.sqrt(values)

    @property
    def covariance(self) -> np.ndarray:
        """H^-1 as a covariance of theta (n, n); 0 for entries that are not free."""
        out = np.zeros((self.theta.size, self.theta.size))
        out[np.ix_(self.free, self.free)] = self.directions @ self.directions.T
        return out

    def coordinates(self, values_at: Callable[[list[np.ndarray]], Sequence[float]]) -> Coordinates:
        """Coordinates in which the density is nearly standard normal, also some sds from the mode.

        The density is evaluated with each free entry at ``PROBE`` sds on either side, or close to a bound, and the
        others at their conditional means under H. The coordinates are such that it has fallen there as a normal
        density. A slope at theta is subtracted, since another objective may have been maximised.
        """
        straight = Coordinates.straight(self.theta, self.free, self.directions)
        sides = [(k, sign) for k in range(len(self.free)) for sign in (-1.0, 1.0)]
        probes = {side: side[1] * self._room(straight, *side) for side in sides}
        probes = {side: z for side, z in probes.items() if abs(z) > LEAST_PROBE}
        thetas = [straight.theta(z * straight.mix[k]) for (k, _), z in probes.items()]
        ends = {side: (side[1], side[1]) for side in sides}
        for (side, z), theta, value in zip(probes.items(), thetas, values_at(thetas), strict=True):
            fall = self.value + float(self.gradient @ (theta - self.theta)) - value
            ends[side] = (side[1] * np.sqrt(2.0 * max(fall, LEAST_FALL)), z)
        below, above = (np.array([ends[side] for side in sides if side[1] == sign]) for sign in (-1.0, 1.0))
        return straight.bent(below, above)

    def _room(self, straight: Coordinates, k: int, sign: float) -> float:
        """The distance to a bound in sds of an entry, up to ``PROBE``."""
        way = straight.theta(sign * straight.mix[k]) - self.theta
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(way > 0.0, self.bounds[:, 1] - self.theta, self.bounds[:, 0] - self.theta) / way
        return float(min(PROBE, 0.999 * np.where(way == 0.0, np.inf, left).min(initial=np.inf)))


def mode_of(
    objective: Any,
    theta: np.ndarray,
    *,
    hold: Collection[int] = (),
    ask: Callable[[Any], float] | None = None,
    guess: np.ndarray | None = None,
    evaluate: Evaluate | None = None,
) -> Mode:
    """The mode of an objective and its curvature, by one evaluation for each free entry of theta.

    Parameters
    ----------
    objective : Objective
        Or any object with ``bounds`` that returns a value and a gradient at theta and has a ``solution`` there.
    theta : array (n,)
        The end of a search.
    hold : collection of int
        Entries that are not varied.
    ask : callable, optional
        Returns a number from the fit at each theta; its derivative is ``Mode.moves``.
    guess : array (n, n), optional
        A curvature that is known beforehand; steps are then at most ``STEP_SDS`` sds.
    evaluate : callable, optional
        Evaluates several theta at once. Default: ``objective``, one after the other.
    """
    if evaluate is None:

        def evaluate(thetas: list[np.ndarray]) -> list[Evaluation]:
            return [_evaluated(objective, each, ask) for each in thetas]

    bounds, n = objective.bounds, theta.size
    (start,) = evaluate([theta])
    at_bounds, held = entries_at_bounds(bounds, theta, start.gradient, SLOPE)
    free = free_entries(bounds, {*at_bounds, *hold})
    sizes = np.full(n, STEP)
    if guess is not None:
        sizes = np.minimum(STEP, STEP_SDS / np.sqrt(np.maximum(np.diag(guess), 1.0)))
    steps = np.where(theta - sizes >= bounds[:, 0], -sizes, sizes)[free]
    around = evaluate([theta + step * np.eye(n)[i] for i, step in zip(free, steps, strict=True)])
    H, moves = np.zeros((len(free), len(free))), np.zeros(n)
    for k, (i, step, there) in enumerate(zip(free, steps, around, strict=True)):
        H[k] = (start.gradient - there.gradient)[free] / step
        H[k, k] = _of_cubic(H[k, k], step, (start.value, start.gradient[i]), (there.value, there.gradient[i]))
        moves[i] = (there.asked - start.asked) / step
    values, vectors = np.linalg.eigh((H + H.T) / 2.0)
    H = (vectors * np.maximum(values, FLATTEST)) @ vectors.T
    return Mode(theta, float(start.value), start.gradient, bounds, free, H, moves, at_bounds, held)


def _evaluated(objective: Any, theta: np.ndarray, ask: Callable[[Any], float] | None) -> Evaluation:
    value, gradient = objective(theta)
    return Evaluation(theta, value, gradient, 0.0 if ask is None else ask(objective.solution))


def _of_cubic(difference: float, step: float, start: tuple[float, float], end: tuple[float, float]) -> float:
    """-f'' at the start, of the cubic with these values and slopes; near the difference of the slopes.

    Where no value is known it is that difference.
    """
    curvature = (4.0 * start[1] + 2.0 * end[1] - 6.0 * (end[0] - start[0]) / step) / step
    change = CORRECTED * abs(difference)
    return float(np.clip(curvature, difference - change, difference + change)) if np.isfinite(curvature) else difference
