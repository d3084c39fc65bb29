"""Terms in time: random walks, autoregressions, seasons.

A random walk of second order is held free of a slope, a seasonal effect of what repeats exactly: both come back as
fixed effects unless ``trend=False``, so that a trend or a season in the data is never lost. Beyond the levels of a fit
each goes on as its ``recursion`` says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from .. import gmrf
from ..checks import problem
from ..gmrf import MarkovField
from ..hyperparameters.priors import Normal
from ..inputs.frames import DataColumn
from .base import Hyperparameter, Term, correlation
from .grouped import LevelTerm
from .sizes import level_sd
from .time import IntegratedWiener, OrnsteinUhlenbeck, Wiener, irregular


class RW1(LevelTerm):
    """A random walk, neighbours in time differing by N(0, 1/k)."""

    word, partitioned, in_time = "rw1", True, True
    builder, least = staticmethod(gmrf.rw1), 2

    @classmethod
    def serving(cls, columns: Sequence[DataColumn | None]) -> type[Term]:
        return Wiener if irregular(columns) else cls

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        return np.ones(1), float(np.exp(2.0 * theta[0]))


class RW2(LevelTerm):
    """A random walk of second order, and its linear trend as a fixed effect."""

    word, partitioned, in_time = "rw2", True, True
    builder, least = staticmethod(gmrf.rw2), 3

    def __init__(self, column: Hashable = None, *, trend: bool = True, **options: Any) -> None:
        super().__init__(column, **options)
        self.trend = trend

    @classmethod
    def serving(cls, columns: Sequence[DataColumn | None]) -> type[Term]:
        return IntegratedWiener if irregular(columns) else cls

    def free(self) -> tuple[list[str], np.ndarray]:
        return ([f"{self.name} (slope)"], np.asarray(self.made.constraints)[1:].T) if self.trend else super().free()

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        return np.array([2.0, -1.0]), float(np.exp(2.0 * theta[0]))

    def free_at(self, steps: np.ndarray) -> np.ndarray:
        return (steps - (len(self.levels) - 1) / 2)[:, None] if self.trend else super().free_at(steps)


class Seasonal(LevelTerm):
    """Effects whose sums over a period are N(0, 1/k), and what repeats exactly as fixed effects."""

    word, partitioned, in_time = "seasonal", True, True

    def __init__(self, column: Hashable = None, period: int = 12, *, trend: bool = True, **options: Any) -> None:
        super().__init__(column, **options)
        if not (isinstance(period, (int, np.integer)) and period >= 2):
            raise problem("Seasonal", f"period = {period!r}", "a period >= 2")
        self.period, self.trend, self.least = period, trend, int(period) + 1

    def field(self, **start: Any) -> MarkovField:
        return gmrf.seasonal(len(self.levels), self.period, **start)

    def free(self) -> tuple[list[str], np.ndarray]:
        C = np.asarray(self.made.constraints)
        return ([f"{self.name} (season {i})" for i in range(C.shape[0])], C.T) if self.trend else super().free()

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        return -np.ones(self.period - 1), float(np.exp(2.0 * theta[0]))

    def free_at(self, steps: np.ndarray) -> np.ndarray:
        return self.freed[steps % self.period] if self.trend else super().free_at(steps)


class AR1(LevelTerm):
    """A stationary autoregression with its marginal variance and the correlation phi of neighbours."""

    word, partitioned, in_time = "ar1", True, True
    r_names = "corAR1", "ou"
    builder, least = staticmethod(gmrf.ar1), 2
    options, standard = ("phi", "variance"), True

    @classmethod
    def serving(cls, columns: Sequence[DataColumn | None]) -> type[Term]:
        return OrnsteinUhlenbeck if irregular(columns) else cls

    def starts(self, k: float) -> dict[str, Any]:
        return {"variance": 1.0 / k}

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return level_sd("sd", scale, theta[0]), correlation("phi", theta[1], Normal(2.0, 1.5))

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        phi = np.tanh(theta[1] / 2)
        return np.array([phi]), float(np.exp(2.0 * theta[0]) * (1.0 - phi * phi))
