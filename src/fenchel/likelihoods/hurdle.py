"""Hurdle counts: 0 with probability pi, else a count above 0 (``truncated.py``) of a base's density p0.

    p(0|eta) = pi,      p(y|eta) = (1 - pi) p0(y|eta) / (1 - p0(0|eta))   for y > 0

A zero says nothing of eta: such rows have no curvature and are set aside, and the rest is as log-concave as a
truncated count is. With the logit of pi as theta, dpsi/dtheta = pi - 1[y = 0].
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from ..linalg.arrays import Array, ArrayLike, namespace
from ..transforms import LOGIT
from .base import Likelihood, Rows
from .bounds import Bounds, DirectBound
from .modified import PROBABILITY_BOUNDS, OwnProbability
from .parameters import Parameter, shown
from .poisson import ExposedMean, Poisson
from .sites import Loss
from .summaries import per_row
from .truncated import Truncated


def _share(own: Likelihood, y: np.ndarray, w: np.ndarray) -> float:
    """Of zeros, half a row added to either side."""
    return float((w @ (y == 0.0) + 0.5) / (w.sum() + 1.0))


class HurdleBound(DirectBound):
    """That of the truncated base, zeros set aside."""

    @property
    def log_concave(self) -> bool:
        return bool(self.likelihood.base.objective.log_concave)

    def is_flat(self, rows: Rows) -> Array:
        return rows["zero"] > 0.0

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        loss: Loss = self.likelihood.beside_zeros(self.likelihood.base.objective.loss(h, rho, rows), rows)
        return loss

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        some, base = 1.0 - rows["zero"], self.likelihood.base
        of_base = [some * x for x in base.objective.theta_rows(h, rho, rows)] if base.parameters else []
        slopes = (*of_base, rows["probability"] - rows["zero"])
        return np.asarray(self.likelihood.gathered(*(rows["weight"] * x for x in slopes)))


class Hurdle(OwnProbability):
    """Counts that are 0 with a probability of their own, and a truncated count else.

    Parameters
    ----------
    base : Poisson, NegativeBinomial or NegativeBinomial1
        Of the counts before they are truncated, its exposure and its overdispersion included.
    probability : float or array (N,)
        Of a zero, in (0, 1). Learnable where it is one number.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Hurdle, Poisson
    >>> Hurdle(Poisson(), 0.5).mean_at(np.array([0.0])).round(4)
    array([0.791])
    """

    prefix = "hurdle"
    own = (Parameter("probability of 0", "probability", LOGIT, PROBABILITY_BOUNDS, start=_share, weak=(-1.0, 3.0)),)

    def __init__(self, base: ExposedMean, probability: ArrayLike = 0.5) -> None:
        super().__init__(base)
        self.base = Truncated(base).changed(called=self.called)
        self.bound, self.log_concave, self.above_zero = self.base.bound, self.base.log_concave, self.base.word
        self._choose_probability(probability)

    @property
    def bounds(self) -> Bounds:  # type: ignore[override]
        return {self.base.bound: HurdleBound}

    def neighbour(self) -> Poisson:
        near: Poisson = self.base.neighbour()
        return near

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        zero = y == 0.0
        nothing = zero & (per_row(self.base.exposure, y.shape[0]) == 0.0)  # exposure 0 is unobserved
        rows = super().check(np.where(nothing, np.nan, np.where(zero, 1.0, y)))
        return {**rows, "zero": zero.astype(np.float64)}

    def constant(self, rows: Rows) -> Array:
        xp, pi, zero = namespace(rows["zero"]), rows["probability"], rows["zero"] > 0.0
        return xp.where(zero, -xp.log(pi), self.base.constant(rows) - xp.log1p(-pi))

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, zero, pi = namespace(eta), (rows["zero"] > 0.0)[:, None], rows["probability"][:, None]
        psi, first, second = self.base.derivatives(eta, rows)
        none = xp.zeros_like(eta)
        value = xp.where(zero, -xp.log(pi) + none, psi - xp.log1p(-pi))
        return value, xp.where(zero, none, first), xp.where(zero, none, second)

    def beside_zeros(self, loss: Loss, rows: Rows) -> Loss:
        """That of truncated counts, with zeros beside them."""
        xp, zero, pi = namespace(rows["zero"]), rows["zero"] > 0.0, rows["probability"]
        none = xp.zeros_like(rows["zero"])
        each = {field.name: xp.where(zero, none, getattr(loss, field.name)) for field in fields(Loss)}
        return Loss(**{**each, "value": xp.where(zero, -xp.log(pi), loss.value - xp.log1p(-pi))})

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        return self.beside_zeros(self.base.exact_loss(h, rho, rows), rows)

    def theta_slopes(self, eta: Array, rows: Rows) -> Array:
        xp, zero = namespace(eta), rows["zero"][:, None]
        of_base = [(1.0 - zero) * self.base.theta_slopes(eta, rows)[0, ...]] if self.base.parameters else []
        return xp.stack([*of_base, rows["probability"][:, None] - zero + 0.0 * eta])

    def landmarks(self, rows: Rows) -> list[Array]:
        marks: list[Array] = self.base.landmarks(rows)
        return marks

    # -- prediction --------------------------------------------------------------------------------
    def mean_at(self, eta: np.ndarray) -> np.ndarray:
        eta = np.asarray(eta, dtype=np.float64)
        return np.asarray((1.0 - self._pi(eta)) * self.base.mean_at(eta))

    def variance_at(self, eta: np.ndarray) -> np.ndarray:
        eta = np.asarray(eta, dtype=np.float64)
        pi, mean = self._pi(eta), self.base.mean_at(eta)
        return np.asarray((1.0 - pi) * (self.base.variance_at(eta) + pi * mean**2))

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        pi = self._pi(eta)
        return np.asarray(pi + (1.0 - pi) * self.base.cdf_inside(x, eta))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(eta.shape) < self._pi(eta), 0.0, self.base.draw(eta, rng))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return float(self.base._level(np.maximum(y, 1.0), np.where(y > 0.0, w, 0.0))) if (w * y).any() else 0.0

    def __repr__(self) -> str:
        return f"Hurdle({self.base.base!r}, {shown(self.probability)})"
