"""Standard deviations and correlations as hyperparameters, with their default priors.

    deviation        theta = log(sd * unit),                    P(sd * unit > scale) = 0.01, exponential
    partial          theta = 2 atanh z,                         p(z) ~ (1 - z^2)^(power - 1)

A correlation matrix of d rows by its partial correlations z_ij given rows before j (j < i), each with the power
eta + (d - 2 - j) / 2, has the LKJ density |C|^(eta - 1); eta = 1 is uniform over all correlation matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial as bound_to
from typing import Any

import numpy as np
from scipy.special import betaln

from ..hyperparameters.priors import PCDeviation, ScalarPrior, Scale
from ..transforms import CORRELATION, Transform
from .base import START_SD, Hyperparameter

_REACH = 6.0  # bounds of a log sd, in e-folds either way


@dataclass(frozen=True)
class LogInUnits(Transform):
    """theta = log(x unit): an sd in the user's units, learned in those of a scaled column."""

    unit: float = 1.0

    def forward(self, x: Any) -> np.ndarray:
        return np.log(np.atleast_1d(np.asarray(x, dtype=np.float64) * self.unit))

    def inverse(self, theta: np.ndarray) -> float:
        return float(np.exp(theta[0])) / self.unit

    def slope(self, x: Any) -> float:
        return float(x)

    def names(self, name: str, n: int) -> list[str]:
        return [f"log {name}"]


@dataclass(frozen=True)
class PartialCorrelation(ScalarPrior):
    """p(z) ~ (1 - z^2)^(power - 1) on (-1, 1), for theta = 2 atanh z; power 1 is uniform in z."""

    power: float = 1.0

    def in_words(self, scale: Scale) -> str:
        if self.power == 1.0:
            return "uniform on (-1, 1)"
        return f"density (1 - r^2)^{self.power - 1.0:g} of r on (-1, 1)"

    def __call__(self, theta: float) -> tuple[float, float]:
        z = np.tanh(theta / 2)
        log_free = -2.0 * np.logaddexp(theta / 2, -theta / 2) + np.log(4.0)  # log(1 - z^2)
        b = self.power
        return float(b * (log_free - np.log(4.0)) - betaln(b, b)), float(-b * z)


def _pc(unit: float, u: float, a: float) -> PCDeviation:
    return PCDeviation(u * unit, a)


def deviation(name: str, scale: float, start: float | None = None, unit: float = 1.0) -> Hyperparameter:
    """An sd whose value times ``unit`` is an effect's typical sd; it starts at half of ``scale``.

    The prior is P(sd unit > scale) = 0.01. ``start`` is the sd in the user's units.
    """
    begin = float(np.log(START_SD * scale if start is None else start * unit))
    centre = float(np.log(scale))
    bounds = min(centre - _REACH, begin), max(centre + _REACH, begin)
    return Hyperparameter(name, LogInUnits(unit), begin, bounds, PCDeviation(scale, 0.01), bound_to(_pc, unit))


def level_sd(name: str, scale: float, log_sd: float, spread: float = 1.0) -> Hyperparameter:
    """theta = log sd of a field that has typical variance ``spread`` at sd 1; shown is the typical sd of the effect.

    It starts at ``log_sd``; the prior is P(typical sd > scale) = 0.01.
    """
    unit = 1.0 / float(np.sqrt(spread))
    return deviation(name, scale * unit, float(np.exp(log_sd)) / unit, unit)


def partial(name: str, power: float = 1.0) -> Hyperparameter:
    """A partial correlation, starting at 0."""
    return Hyperparameter(name, CORRELATION, 0.0, (-9.0, 9.0), PartialCorrelation(power))
