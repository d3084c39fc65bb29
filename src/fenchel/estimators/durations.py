"""Weibull durations in units of a typical one: hazard (k/u) (t/u)^{k-1} e^eta, survival S(t|eta) = exp(-(t/u)^k e^eta).

    log p(t) = log p_Weibull(t/u) - event log u

With the plain hazard k t^{k-1} e^eta the level of eta is about -k log t: it moves with the shape k and with the unit of
time, and a prior mean chosen for one shape is wrong for the next. In units u of total time an event it is near 0.
A fit is done so, and reported as ``Weibull`` has it: the user's eta is eta - k log u.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..likelihoods import Weibull
from ..likelihoods.base import Rows
from ..linalg.arrays import Array


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
    >>> from fenchel.estimators.durations import WeibullInUnits
    >>> WeibullInUnits(2.0, unit=10.0).predictive_quantile(0.5, np.array([0.0]), np.array([0.0])).round(3)
    array([8.326])
    """

    def __init__(self, shape: float = 1.0, event: Any = None, unit: float = 1.0) -> None:
        super().__init__(shape, event)
        self.unit = unit

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        Weibull(1.0, self.event).check(y)  # what it refuses is said in the units of y
        return super().check(y / self.unit)

    def constant(self, rows: Rows) -> Array:
        return super().constant(rows) + rows["event"] * float(np.log(self.unit))

    def with_theta(self, theta: np.ndarray) -> WeibullInUnits:
        return WeibullInUnits(float(np.exp(theta[0])), self.event, self.unit)

    @property
    def shift(self) -> float:
        """What eta of the plain hazard, shape * t**(shape - 1) * exp(eta), is above this one."""
        return -self.shape * float(np.log(self.unit))

    def plain(self) -> Weibull:
        """The same with the hazard that ``Weibull`` has, in the units of y."""
        return Weibull(self.shape, self.event)

    def predictive_mean(self, h: Array, rho: Array, rng: Any = None) -> Array:
        return self.unit * super().predictive_mean(h, rho, rng)

    def predictive_survival(self, t: Any, h: Array, rho: Array) -> Array:
        return super().predictive_survival(np.asarray(t, dtype=np.float64) / self.unit, h, rho)

    def predictive_quantile(self, q: Any, h: Array, rho: Array) -> Array:
        return self.unit * super().predictive_quantile(q, h, rho)

    def __repr__(self) -> str:
        return f"WeibullInUnits({self.shape!r}, unit={self.unit!r})"
