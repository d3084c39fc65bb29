"""Counts above 0: a base's density p0 of counts, given that they are not 0.

    p(y|eta) = p0(y|eta) / (1 - p0(0|eta)),      y = 1, 2, ...
    psi      = psi0 + log(1 - p0(0|eta)) = c e^eta + rest

The base states c (``growth``), the rest with its slopes (``rest_above_zero``) and the side on which psi has an
inflection (``bends_above_zero``), if any. Without one the expectation is exact, c e^eta in closed form; with one psi is
continued by its tangent there (``tangents.py``).
"""

from __future__ import annotations

import numpy as np

from ..checks import first_value, problem
from ..linalg.arrays import Array, ArrayLike, namespace
from ..linalg.grouped import expect_near
from .base import Rows
from .bounds import Bounds, ExactExpectation
from .growth import STRIP, grown_loss
from .modified import ModifiedCounts
from .poisson import ExposedMean, Poisson
from .sites import Loss
from .summaries import per_row
from .tangents import Tangent, TangentLikelihood


class CountsAbove(Poisson):
    """Where a fit of truncated counts starts: the Poisson of the same rows, from alpha = 0."""

    def landmarks(self, rows: Rows) -> list[Array]:
        return [namespace(rows["count"]).log(rows["count"] / rows["exposure"])]


class Truncated(ModifiedCounts, TangentLikelihood):
    """Counts 1, 2, ... of a base whose zeros are not seen.

    Parameters
    ----------
    base : Poisson, NegativeBinomial or NegativeBinomial1
        Of the counts with their zeros, its exposure and its overdispersion included.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Poisson, Truncated
    >>> Truncated(Poisson()).mean_at(np.array([0.0])).round(4)
    array([1.582])
    """

    prefix = "truncated"
    least = 1
    _strip = STRIP

    def __init__(self, base: ExposedMean) -> None:
        super().__init__(base)
        if not hasattr(base, "rest_above_zero"):
            raise problem("Truncated", f"{base!r} does not say what it is above 0", "a base with rest_above_zero()")
        self.log_concave = base.bends_above_zero is None
        self.bound = "exact" if self.log_concave else "tangent"
        self._narrow = base.narrow_above_zero

    @property
    def bounds(self) -> Bounds:  # type: ignore[override]
        return {"exact": ExactExpectation} if self.log_concave else {"tangent": Tangent}

    def neighbour(self) -> Poisson:
        return CountsAbove(self.base.exposure)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        zero = y == 0.0
        if zero.any():
            word = self.base.word
            advice = f'With zeros use family="hurdle-{word}", "zero-inflated-{word}" or "{word}".'
            raise problem(self.name, f"y{first_value(zero, y)} is not above 0", "counts 1, 2, ..., or NaN", advice)
        rows = super().check(y)
        rows["count"] = np.maximum(rows["count"], 1.0)  # of unobserved rows
        if self.log_concave:
            return rows
        none, side = np.full(y.shape, np.inf), self.base.bends_above_zero
        return {**rows, "left": -none, "right": none, side: self.base.inflections_above_zero(rows)}

    def constant(self, rows: Rows) -> Array:
        return self.base.row_constant(rows)

    def growth(self, rows: Rows) -> Array | None:
        return self.base.growth(rows)

    def theta_growth(self, rows: Rows) -> Array | None:
        return self.base.theta_growth(rows)

    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        return self.base.theta_above_zero(eta, rows)

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        rest, c = self.base.rest_above_zero(eta, rows), self.base.growth(rows)
        if c is None:
            return rest
        with np.errstate(over="ignore"):
            grown = c[:, None] * namespace(eta).exp(eta)
        return rest[0] + grown, rest[1] + grown, rest[2] + grown

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        c = self.base.growth(rows)
        if c is None:
            return super().exact_loss(h, rho, rows)
        marks = [-namespace(h).log(c)] if self.log_concave else self.landmarks(rows)
        return grown_loss(
            c,
            self.base.rest_above_zero,
            lambda g: expect_near(g, h[:, 0], rho[:, 0], marks, STRIP),
            h,
            rho,
            rows,
            convex=self.log_concave,
        )

    def landmarks(self, rows: Rows) -> list[Array]:
        xp = namespace(rows["count"])
        marks = [xp.log((rows["count"] - 0.5) / rows["exposure"]), -xp.log(rows["exposure"])]
        if self.log_concave:
            return marks
        bend, at = rows[self.base.bends_above_zero], self.base.landmarks(rows)[0]
        return [*marks, at, xp.where(xp.isinf(bend), at, bend)]

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """log mu whose truncated mean is the mean of y, by Newton on a convex function; of a Poisson."""
        exposure = per_row(self.base.exposure, y.shape[0])
        mean = max(float(w @ y) / max(float(w.sum()), 1e-300), 1.0 + 1e-6)
        mu = mean
        for _ in range(100):
            k = mu / np.expm1(min(mu, 700.0))
            mu = max(mu + (mean - mu - k) / max((mu + k) * (1.0 - k) / mu, 1e-8), mu / 4)
        return float(np.log(mu) - np.log(max(float(w @ exposure) / max(float(w.sum()), 1e-300), 1e-300)))

    # -- prediction --------------------------------------------------------------------------------
    def _seen(self, eta: np.ndarray) -> np.ndarray:
        """1 - p0(0|eta) at eta (N, M)."""
        return np.asarray(-np.expm1(-np.maximum(self.base.zero_at(eta), 1e-300)))

    def _moments(self, eta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """E[y|eta] and Var[y|eta]: with m and v those of the base, m / seen and its product with v/m + m - m/seen."""
        eta = np.asarray(eta, dtype=np.float64)
        at = eta[:, None] if eta.ndim == 1 else eta
        base, seen = np.maximum(self.base.mean_at(at), 1e-300), self._seen(at)
        mean = base / seen
        variance = mean * np.maximum(self.base.variance_at(at) / base + base - mean, 0.0)
        return mean.reshape(eta.shape), variance.reshape(eta.shape)

    def mean_at(self, eta: np.ndarray) -> np.ndarray:
        return self._moments(eta)[0]

    def variance_at(self, eta: np.ndarray) -> np.ndarray:
        return self._moments(eta)[1]

    def cdf_inside(self, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
        above = self.base.above(np.maximum(x, 0.0), eta)
        return np.where(np.asarray(x) < 1.0, 0.0, 1.0 - above / self._seen(eta))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self.base.draw_above_zero(eta, rng))
