"""Coordinates in which the posterior of theta is nearly standard normal.

    theta_i(u) = centre_i + scale_i t_i(psi_i),   psi = mix u,   (scale mix) (scale mix)' = H^-1
    t(v) = v (1 + s(-v) g_-(v) + s(v) g_+(v)),    s(v) = (1 + v / r) / 2,    r = sqrt(4 + v^2)
    g(v) = c (r / 2 - 1)  for c > 0,              c v^2 / r^2  for c < 0

H is the curvature at the centre, scale the sds that it gives, and t_i has slope 1 at 0. A side of a hyperparameter on
which the density falls more slowly than a normal's is stretched (c > 0: a tail that is exponential in theta, as that of
the log of a variance near 0, becomes normal), one on which it falls faster is shortened, so that the same points serve
both. t is smooth, with nothing that changes over less than 2 sds, as sums over even points ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

_OVER = 4.0  # the square of how many sds t changes its slope over
_LEAST = -0.55  # of c; below it t would turn back
_MOST = 4.0  # of c
_REACH = 40.0  # sds that the table which inverts t goes to either side
_TABLE = 16001  # entries of it


@dataclass(frozen=True)
class Coordinates:
    """theta as a function of u.

    Attributes
    ----------
    centre : array (n,)
        theta where u = 0.
    free : sequence of int (d)
        The entries that move.
    scale : array (d,);  mix : array (d, d) with rows of length 1
    below, above : arrays (d,)
        c of each free entry for psi < 0 and for psi > 0.
    """

    centre: np.ndarray
    free: Sequence[int]
    scale: np.ndarray
    mix: np.ndarray
    below: np.ndarray
    above: np.ndarray

    @classmethod
    def straight(cls, centre: np.ndarray, free: Sequence[int], root: np.ndarray) -> Coordinates:
        """With t(v) = v; root root' = H^-1 (d, d)."""
        scale, none = np.sqrt((root**2).sum(axis=1)), np.zeros(len(free))
        return cls(centre, free, scale, root / scale[:, None], none, none)

    def bent(self, below: np.ndarray, above: np.ndarray) -> Coordinates:
        """With t through two places of each entry: (d, 2) of (v, t), v and t < 0 in ``below`` and > 0 in ``above``."""
        each = [np.array([_bend_of(abs(v), abs(t)) for v, t in side]) for side in (below, above)]
        return replace(self, below=each[0], above=each[1])

    @property
    def stretch(self) -> np.ndarray:
        """c of the longer side of each free entry (d,): 0 for a normal, above 0 for a longer tail."""
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
        """(..., n) at u (..., d)."""
        out = np.array(np.broadcast_to(self.centre, (*u.shape[:-1], self.centre.size)))
        out[..., list(self.free)] += self.scale * self._bend(u @ self.mix.T)[0]
        return out

    def log_jacobian(self, u: np.ndarray) -> np.ndarray:
        """log |d theta / du| over the free entries (...)."""
        return np.asarray(np.log(self._bend(u @ self.mix.T)[1]).sum(axis=-1) + self.log_volume)

    @cached_property
    def log_volume(self) -> float:
        """That at the centre."""
        return float(np.linalg.slogdet(self.mix)[1] + np.log(self.scale).sum())

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        v = np.sinh(np.linspace(-np.arcsinh(_REACH), np.arcsinh(_REACH), _TABLE))
        return v, self._bend(np.repeat(v[:, None], self.dimension, axis=1))[0]

    def u(self, theta: np.ndarray) -> np.ndarray:
        """(..., d) of theta (..., n); far out it stops."""
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
    """c with which t(u) = t on one side, if that side were alone; both above 0."""
    more = t / u - 1.0
    c = more / (np.sqrt(1.0 + u * u / _OVER) - 1.0) if more > 0.0 else more * (_OVER + u * u) / u**2
    return float(np.clip(c, _LEAST, _MOST))
