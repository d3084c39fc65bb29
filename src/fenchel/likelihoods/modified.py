"""A likelihood that modifies another one, its base. Every base works with every modifier.

    Truncated(base)                      counts above 0 (base: ``poisson.ExposedMean``)
    ZeroInflated(base), Hurdle(base)     counts: ``extra_zeros.py``
    Interval(base)                       durations (base: ``survival.ProportionalHazards``): ``interval.py``

The parameters are those of the base, followed by those of the modifier. The same holds for arrays of the rows:
``likelihood.size`` of a zero-inflated negative binomial is that of its base.

Truncated counts have the density p0 of the base, given that they are not 0:

    p(y|eta) = p0(y|eta) / (1 - p0(0|eta)),      y = 1, 2, ...
    psi      = psi0 + log(1 - e^-g),             g = -log p0(0|eta)

The base states psi0 = c e^eta + rest (``growth``, ``rest``), log g with its slopes (``log_zero``), and an interval in
which psi has an inflection (``bend_above_zero``), if any. Without an inflection the expectation is exact, with c e^eta
in closed form. With one, the bound replaces psi by its tangent beyond it (``tangents.py``).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ..checks import first_value, problem
from ..linalg.arrays import Array, ArrayLike, namespace
from ..linalg.functions import ABOVE_ZERO_STRIP, log_above_zero
from ..linalg.quadrature import Integrand, expect_near
from .base import Likelihood, Rows, slice_rows
from .bounds import Bounds, ExactExpectation, Loss, expected_loss
from .negative_binomial import NegativeBinomial, NegativeBinomial1
from .parameters import Parameter, observed, per_row
from .poisson import ExposedMean, Poisson
from .tangents import Tangent, TangentLikelihood, inflection


class Modified(Likelihood):
    """Base class of the modifiers.

    Attributes
    ----------
    base : Likelihood
    own : parameters of the modifier, which follow those of the base
    prefix : prefix of the ``word`` of the modified likelihood
    others : other names of the modified likelihood, by the word of the base
    """

    prefix = ""
    others: ClassVar[dict[str, tuple[str, ...]]] = {}
    own: tuple[Parameter, ...] = ()

    def __init__(self, base: Any) -> None:
        self.called = type(self).__name__ + type(base).__name__
        self.base, self.smooth = base.changed(called=self.called), base.smooth
        self.row_parameters = base.row_parameters
        self.word, self.needs = f"{self.prefix}-{base.word}" if base.word else None, base.needs
        start = self.prefix.replace("-", "")
        self.aliases = (*(start + alias for alias in base.aliases), *self.others.get(base.word, ()))

    @property
    def parameters(self) -> tuple[Parameter, ...]:  # type: ignore[override]
        """Those of the base, and its own."""
        return (*self.base.parameters, *self.own)

    def _is_of_base(self, key: str) -> bool:
        base = self.__dict__.get("base")
        return base is not None and (key in base.row_parameters or any(key == p.attribute for p in base.parameters))

    def __getattr__(self, key: str) -> Any:
        if self._is_of_base(key):
            return getattr(self.base, key)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {key!r}")

    def changed(self, **attributes: Any) -> Self:
        of_base = {key: attributes.pop(key) for key in list(attributes) if self._is_of_base(key)}
        if "parameters" in attributes:
            every, n = attributes.pop("parameters"), len(self.base.parameters)
            of_base["parameters"], attributes["own"] = every[:n], every[n:]
        if "called" in attributes:
            of_base["called"] = attributes["called"]
        return super().changed(**attributes, **({"base": self.base.changed(**of_base)} if of_base else {}))

    def starting(self, y: np.ndarray, weights: Any = None, bound: str = "best", **rows: Any) -> Self:
        seen, w = observed(y, weights)
        given = {p.attribute: p.start(self, seen, w) for p in self.own if p.start is not None}
        base = self.base.starting(y, weights, **rows).changed(called=self.called)
        return self.changed(base=base, **given)


class ModifiedCounts(Modified):
    """A modifier of counts."""

    support, ratio = "count", "relative_risk"

    def __init__(self, base: ExposedMean) -> None:
        if not isinstance(base, ExposedMean):
            expected = "counts with an exposure: Poisson(), NegativeBinomial(), NegativeBinomial1()"
            raise problem(type(self).__name__, f"base is {base!r}", expected)
        super().__init__(base)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        rows = dict(self.base.check(y))
        rows.pop("trials", None)  # a row counts once
        return {**rows, "weight": (rows["weight"] > 0.0).astype(np.float64)}

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        place: tuple[np.ndarray, Any] = self.base.kink(x)
        return place

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Likelihood, np.ndarray]:
        exposure, own = rng.gamma(2.0, 1.0, n) + 0.1, float(rng.gamma(2.0, 0.6) + 0.2)
        bases = (Poisson(exposure), NegativeBinomial(own, exposure), NegativeBinomial1(own, exposure))
        made = cls(bases[rng.integers(3)])
        return made, made.draw(0.5 * rng.normal(size=(n, 1)), rng)[:, 0]


class CountsAbove(Poisson):
    """Starting point of a fit of truncated counts: the Poisson likelihood of the same rows, from alpha = 0."""

    def landmarks(self, rows: Rows) -> list[Array]:
        return [namespace(rows["count"]).log(rows["count"] / rows["exposure"])]


class Truncated(ModifiedCounts, TangentLikelihood):
    """Counts 1, 2, ... where zeros cannot be observed: the base given that y > 0.

    Parameters
    ----------
    base : Poisson, NegativeBinomial or NegativeBinomial1
        Distribution of the counts before truncation, with its exposure and its overdispersion.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods import Poisson, Truncated
    >>> Truncated(Poisson()).mean_at(np.array([0.0])).round(4)
    array([1.582])
    """

    prefix = "truncated"
    least = 1
    _strip = ABOVE_ZERO_STRIP

    def __init__(self, base: ExposedMean) -> None:
        super().__init__(base)
        if type(base).log_zero is ExposedMean.log_zero:
            raise problem("Truncated", f"{base!r} does not say what a count of 0 is", "a base with log_zero()")
        self.log_concave = base.bend_above_zero is None
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
        none = np.full(y.shape, np.inf)
        return {**rows, "left": -none, "right": none, self._side: self._inflections(rows)}

    @property
    def _side(self) -> str:
        """On which psi has its inflection."""
        inside, outside = self.base.bend_above_zero
        return "left" if outside < inside else "right"

    def _inflections(self, rows: Rows) -> np.ndarray:
        """Measured from rows["centre"] they depend on the count and the base's own parameters alone."""
        keys = np.stack([rows["count"], *(rows[p.attribute] for p in self.base.parameters)])
        _, index, back = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        some = slice_rows(rows, index)

        def bend(t: np.ndarray) -> np.ndarray:
            eta = np.atleast_2d(t).T + some["centre"][:, None]
            return np.asarray(self.derivatives(eta, some)[2]).T.reshape(t.shape)

        inside, outside = (np.full(index.shape, end) for end in self.base.bend_above_zero)
        with np.errstate(over="ignore"):
            return inflection(inside, outside, bend)[back.ravel()] + rows["centre"]

    def constant(self, rows: Rows) -> Array:
        return self.base.row_constant(rows)

    def growth(self, rows: Rows) -> Array | None:
        return self.base.growth(rows)

    def theta_growth(self, rows: Rows) -> Array | None:
        return self.base.theta_growth(rows)

    def _theta_slope(self, eta: Array, rows: Rows) -> tuple[Array, Array]:
        log_g, slope, bend = self.base.log_zero(eta, rows)
        (value, its), (moved, move) = self.base.theta_slope_pairs(eta, rows, slope, bend)
        _, rise, turn = log_above_zero(log_g)
        steep = turn if slope is None else turn * slope
        return value + rise * moved, its + steep * moved + rise * move

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

        def expected(g: Integrand) -> Array:
            return expect_near(g, h[:, 0], rho[:, 0], marks, ABOVE_ZERO_STRIP)

        return expected_loss(self.base.rest_above_zero, expected, h, rho, rows, c, convex=self.log_concave)

    def landmarks(self, rows: Rows) -> list[Array]:
        xp = namespace(rows["count"])
        marks = [xp.log((rows["count"] - 0.5) / rows["exposure"]), -xp.log(rows["exposure"])]
        if self.log_concave:
            return marks
        bend, at = rows[self._side], self.base.landmarks(rows)[0]
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
