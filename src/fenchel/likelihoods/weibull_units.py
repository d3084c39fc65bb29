"""Weibull durations in units of a typical one: hazard (k/u) (t/u)^{k-1} e^eta, survival S(t|eta) = exp(-(t/u)^k e^eta).

    log p(t) = log p_Weibull(t/u) - event log u

With the plain hazard k t^{k-1} e^eta the level of eta is about -k log t: it moves with the shape k and with the unit of
time, and a prior mean chosen for one shape is wrong for the next. In units u of total time an event it is near 0.
A fit is done so, and reported as ``Weibull`` has it: the user's eta is eta - k log u.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linalg.arrays import Array, ArrayLike, Seed
from .base import Likelihood, Rows
from .survival import Weibull


class WeibullInUnits(Weibull):
    """``Weibull`` of t / unit, with the density of t.

    Parameters
    ----------
    shape, event : as in ``Weibull``
    unit : float
        u, in the units of y.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods.weibull_units import WeibullInUnits
    >>> WeibullInUnits(2.0, unit=10.0).predictive_quantile(0.5, np.array([0.0]), np.array([0.0])).round(3)
    array([8.326])
    """

    def __init__(self, shape: float = 1.0, event: ArrayLike | None = None, unit: float = 1.0) -> None:
        super().__init__(shape, event)
        self.unit = unit

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        Weibull(1.0, self.event).check(y)  # what it refuses is said in the units of y
        return super().check(y / self.unit)

    def constant(self, rows: Rows) -> Array:
        return super().constant(rows) + rows["event"] * float(np.log(self.unit))

    def in_units(self, y: np.ndarray, weights: ArrayLike | None = None) -> Likelihood:
        return self

    def reported(self) -> tuple[Likelihood, float]:
        """``Weibull``, whose eta is that of the hazard shape * t**(shape - 1) * exp(eta), t in the units of y."""
        return Weibull(self.shape, self.event), -self.shape * float(np.log(self.unit))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return super()._level(y / self.unit, w)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        return super().cdf_inside(np.asarray(x) / self.unit, eta)

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.unit * super().draw(eta, rng)

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        return super().kink(x / self.unit)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return self.unit * super().predictive_mean(h, rho, rng)

    def predictive_survival(self, t: ArrayLike, h: Array, rho: Array) -> Array:
        return super().predictive_survival(np.asarray(t, dtype=np.float64) / self.unit, h, rho)

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        return self.unit * super().predictive_quantile(q, h, rho)

    def __repr__(self) -> str:
        return f"WeibullInUnits({self.shape!r}, unit={self.unit!r})"
