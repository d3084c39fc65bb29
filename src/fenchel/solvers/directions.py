"""Newton's directions, of the dual and of the ELBO, solved the more exactly the nearer the optimum is.

dual   ds = -(I + M J)^-1 (s - s*)
ELBO   the coupled system in (h, rho); see ``priors/newton_systems.py``
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..linalg.arrays import Array
from ..linalg.dense import NotPositiveDefinite
from ..primal import PrimalPoint
from ..priors.base import NewtonSystem
from ..priors.newton_systems import Step, coupled_direction
from ..problem import Point
from .base import Iterate, relative


@dataclass(frozen=True)
class Accuracy:
    """The relative residual at which Newton's system counts as solved: share * sqrt(relative gap), within limits."""

    share: float = 1.0
    loosest: float = 0.1  # looser ones cost more steps than they save
    tightest: float = 1e-9  # below, the products with the curvature are rounding

    def at(self, point: Iterate) -> float:
        return min(self.loosest, max(self.tightest, self.share * relative(point) ** 0.5))


@dataclass(frozen=True)
class MirrorDirection:
    """Newton's direction of the dual in s."""

    accuracy: Accuracy = Accuracy()

    def system(self, point: Point, economical: bool = False) -> NewtonSystem:
        """Newton's system; a prior may use a cheaper curvature while that is ``economical``."""
        return point.newton_system(self.accuracy.at(point), economical)

    def along(self, point: Point, system: NewtonSystem) -> tuple[Array, Array] | None:
        """(ds, dtau) of Newton's system; None where rounding defeats it, at a point too far out."""
        try:
            return point.factor.direction(system)
        except NotPositiveDefinite:
            return None

    def damped(self, point: Point, system: NewtonSystem, share: float) -> tuple[Array, Array] | None:
        """(ds, dtau) of ((1 + mu) J^-1 + M) dtau = -g, 1 / (1 + mu) = share.

        It keeps the stiff directions of a wide prior whole and shortens the others; a short step shortens all alike.
        """
        slack = None if system.slack is None else share * system.slack
        return self.along(point, replace(system, spread=share * system.spread, slack=slack))


@dataclass(frozen=True)
class CoupledDirection:
    """Newton's direction of the ELBO in the sites (beta, lam)."""

    accuracy: Accuracy = Accuracy(share=0.1)
    careful: float = 1e-6  # accuracy where nothing else can judge, so that the decrement is known

    def at(self, point: PrimalPoint, economical: bool) -> Step | None:
        """Newton's step from here; None where rounding defeats it, at a point too far out."""
        return self._solved(point, self.accuracy.at(point), economical)

    def carefully(self, point: PrimalPoint) -> Step | None:
        """The same, exact enough for its decrement to be a certificate."""
        return self._solved(point, self.careful, False)

    def _solved(self, point: PrimalPoint, accuracy: float, economical: bool) -> Step | None:
        try:
            return coupled_direction(point.factor, point.system(accuracy, economical))
        except NotPositiveDefinite:
            return None
