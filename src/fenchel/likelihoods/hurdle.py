"""Hurdle counts: 0 with probability pi, else a count above 0 (``truncated.py``) of a mean mu = E e^eta.

    p(0|eta) = pi,      p(y|eta) = (1 - pi) p0(y|eta) / (1 - p0(0|eta))   for y > 0

A zero says nothing of eta: such rows have no curvature and are set aside, and the rest is as log-concave as a
truncated count is. With the logit of pi as theta, dpsi/dtheta = pi - 1[y = 0].
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from ..checks import number, numeric, problem
from ..linalg.arrays import Array, ArrayLike, namespace
from ..transforms import LOGIT
from .base import Likelihood, Rows
from .bounds import Bounds, ExactExpectation
from .parameters import Parameter, shown
from .sites import Loss
from .summaries import per_row
from .tangents import Tangent
from .truncated import CountsAboveZero, TruncatedNegativeBinomial, TruncatedPoisson


def probability_of(where: str, value: ArrayLike, without: str) -> Any:
    """One number or one a row, each in (0, 1)."""
    pi = numeric(where, "probability", value)
    if pi.ndim > 1 or not ((pi > 0.0) & (pi < 1.0)).all():
        got = f"probability = {number(float(pi))}" if pi.ndim == 0 else "probability"
        raise problem(where, f"{got} is not usable", "numbers in (0, 1)", f"Without zeros of their own use {without}.")
    return float(pi) if pi.ndim == 0 else pi


def _share(cls: type[Likelihood], y: np.ndarray, w: np.ndarray) -> float:
    """Of zeros, half a row added to either side."""
    return float((w @ (y == 0.0) + 0.5) / (w.sum() + 1.0))


PROBABILITY = Parameter(  # pi and 1 - pi down to 1e-8
    "probability of 0",
    "probability",
    LOGIT,
    bounds=lambda own, y: (-np.log(1e8), np.log(1e8)),
    start=_share,
    weak=(-1.0, 3.0),
)


class HurdleExact(ExactExpectation):
    """E[psi], zeros set aside."""

    def is_flat(self, rows: Rows) -> Array:
        return rows["zero"] > 0.0

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        return np.asarray(self.likelihood.gathered(rows["weight"] * (rows["probability"] - rows["zero"])))


class HurdleTangent(Tangent):
    """E[psi~], zeros set aside."""

    def is_flat(self, rows: Rows) -> Array:
        return rows["zero"] > 0.0

    def theta_rows(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, ...]:
        (size,) = super().theta_rows(h, rho, rows)
        return size * (1.0 - rows["zero"]), rows["weight"] * (rows["probability"] - rows["zero"])


class Hurdle(CountsAboveZero):
    """What both hurdle families share, before the count above 0 that follows them among their bases."""

    least = 0
    probability: Any
    exposure: Any

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        zero, pi = y == 0.0, per_row(self.probability, y.shape[0]) + 0.0
        nothing = zero & (per_row(self.exposure, y.shape[0]) == 0.0)  # exposure 0 is unobserved
        rows = super().check(np.where(nothing, np.nan, np.where(zero, 1.0, y)))
        return {**rows, "zero": zero.astype(np.float64), "probability": pi}

    def constant(self, rows: Rows) -> Array:
        xp, pi, zero = namespace(rows["zero"]), rows["probability"], rows["zero"] > 0.0
        return xp.where(zero, -xp.log(pi), super().constant(rows) - xp.log1p(-pi))

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        xp, zero = namespace(eta), (rows["zero"] > 0.0)[:, None]
        psi, first, second = super().derivatives(eta, rows)
        none, lift = xp.zeros_like(eta), self._lift(rows)[:, None]
        return (
            xp.where(zero, -xp.log(rows["probability"])[:, None] + none, psi + lift),
            xp.where(zero, none, first),
            xp.where(zero, none, second),
        )

    def _lift(self, rows: Rows) -> Array:
        """What psi of a count has beyond the truncated density's, where that does not read ``constant``."""
        return 0.0 * rows["zero"]

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        xp, zero, loss = namespace(h), rows["zero"] > 0.0, super().exact_loss(h, rho, rows)
        none = xp.zeros_like(rows["zero"])
        each = {field.name: xp.where(zero, none, getattr(loss, field.name)) for field in fields(Loss)}
        return Loss(**{**each, "value": xp.where(zero, -xp.log(rows["probability"]), loss.value)})

    # -- prediction --------------------------------------------------------------------------------
    def _pi(self, eta: np.ndarray) -> np.ndarray:
        pi = per_row(self.probability, eta.shape[0])
        return pi if eta.ndim == 1 else pi[:, None]

    def mean_at(self, eta: np.ndarray) -> np.ndarray:
        eta = np.asarray(eta, dtype=np.float64)
        return (1.0 - self._pi(eta)) * super().mean_at(eta)

    def variance_at(self, eta: np.ndarray) -> np.ndarray:
        eta = np.asarray(eta, dtype=np.float64)
        pi, mean = self._pi(eta), super().mean_at(eta)
        return (1.0 - pi) * (super().variance_at(eta) + pi * mean**2)

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        pi = self._pi(eta)
        return pi + (1.0 - pi) * super().cdf_inside(x, eta)

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(eta.shape) < self._pi(eta), 0.0, super().draw(eta, rng))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        return super()._level(np.maximum(y, 1.0), np.where(y > 0.0, w, 0.0)) if (w * y).any() else 0.0


class HurdlePoisson(Hurdle, TruncatedPoisson):
    """Counts that are 0 with a probability of their own, and a truncated Poisson of rate ``exposure * exp(eta)`` else.

    Parameters
    ----------
    probability : float or array (N,)
        Of a zero, in (0, 1). Learnable where it is one number.
    exposure : float or array (N,), optional
        What the rate is relative to. 0 means unobserved.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import HurdlePoisson
    >>> HurdlePoisson(0.5).mean_at(np.array([0.0])).round(4)
    array([0.791])
    """

    word = "hurdle-poisson"
    bounds: ClassVar[Bounds] = {"exact": HurdleExact}
    parameters = (PROBABILITY,)

    def __init__(self, probability: ArrayLike = 0.5, exposure: ArrayLike | None = None) -> None:
        super().__init__(exposure)
        self.probability = probability_of(self.name, probability, "TruncatedPoisson")

    def theta_slopes(self, eta: Array, rows: Rows) -> Array:
        return (rows["probability"] - rows["zero"])[None, :, None] + 0.0 * eta[None, ...]

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[HurdlePoisson, np.ndarray]:
        own = cls(0.3, rng.gamma(2.0, 1.0, n) + 0.1)
        return own, own.draw(rng.normal(size=(n, 1)), rng)[:, 0]

    def __repr__(self) -> str:
        return f"{self.name}({shown(self.probability)}{'' if self.exposure is None else ', exposure=...'})"


class HurdleNegativeBinomial(Hurdle, TruncatedNegativeBinomial):
    """Counts that are 0 with a probability of their own, and a truncated negative binomial else.

    Parameters
    ----------
    size : float or array (N,)
        r of the negative binomial, as in ``TruncatedNegativeBinomial``. Learnable where it is one number.
    probability : float or array (N,)
        Of a zero, in (0, 1). Learnable where it is one number.
    exposure : float or array (N,), optional
        What the mean is relative to. 0 means unobserved.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import HurdleNegativeBinomial
    >>> HurdleNegativeBinomial(1.0, 0.5).mean_at(np.array([0.0]))
    array([1.])
    """

    word = "hurdle-negative-binomial"
    bounds: ClassVar[Bounds] = {"tangent": HurdleTangent}
    parameters = (*TruncatedNegativeBinomial.parameters, PROBABILITY)

    def __init__(self, size: ArrayLike = 1.0, probability: ArrayLike = 0.5, exposure: ArrayLike | None = None) -> None:
        super().__init__(size, exposure)
        self.probability = probability_of(self.name, probability, "TruncatedNegativeBinomial")

    def _lift(self, rows: Rows) -> Array:
        return -namespace(rows["zero"]).log1p(-rows["probability"])

    def theta_slopes(self, eta: Array, rows: Rows) -> Array:
        xp, zero = namespace(eta), rows["zero"][:, None]
        size = (1.0 - zero) * super().theta_slopes(eta, rows)[0, ...]
        return xp.stack([size, rows["probability"][:, None] - zero + 0.0 * eta])

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[HurdleNegativeBinomial, np.ndarray]:
        own = cls(float(rng.gamma(2.0, 0.6) + 0.2), 0.3, rng.gamma(2.0, 1.0, n) + 0.1)
        return own, own.draw(rng.normal(size=(n, 1)), rng)[:, 0]

    def __repr__(self) -> str:
        given = "" if self.exposure is None else ", exposure=..."
        return f"{self.name}({shown(self.size)}, {shown(self.probability)}{given})"
