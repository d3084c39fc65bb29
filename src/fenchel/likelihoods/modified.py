"""A likelihood made of another one: parts add, and a new base works with every modifier.

    ZeroInflated(base), Hurdle(base), Truncated(base)      of counts (``poisson.ExposedMean``)
    Interval(base)                                         of durations (``survival.ProportionalHazards``)

The base's parameters are parameters of the whole, its own come behind them; so are the parameters of its rows:
``likelihood.size`` of a zero-inflated negative binomial is its base's. Rows are the base's with some of its own.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ..checks import number, numeric, problem
from ..linalg.arrays import ArrayLike, asarray
from .base import Likelihood
from .negative_binomial import NegativeBinomial
from .negative_binomial_1 import NegativeBinomial1
from .parameters import Parameter
from .poisson import ExposedMean, Poisson
from .summaries import observed, per_row

PROBABILITY_BOUNDS = np.array([[-np.log(1e8), np.log(1e8)]])  # of a logit: pi and 1 - pi down to 1e-8


class Modified(Likelihood):
    """A base and what a modifier adds to it.

    Attributes
    ----------
    base : Likelihood
    own : the parameters that come behind those of the base
    prefix : of the word of the whole
    shorter : what the whole is called besides, by the word of the base
    """

    prefix = ""
    shorter: ClassVar[dict[str, str]] = {}
    own: tuple[Parameter, ...] = ()

    def __init__(self, base: Any) -> None:
        self.called = type(self).__name__ + type(base).__name__
        self.base = base.changed(called=self.called)
        self.row_parameters = base.row_parameters
        self.word, self.needs = f"{self.prefix}-{base.word}" if base.word else None, base.needs
        start = self.prefix.replace("-", "")
        others = (self.shorter[base.word],) if base.word in self.shorter else ()
        self.aliases = (*(start + alias for alias in base.aliases), *others)

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base!r})"


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

    def log_density(self, eta: Any, rows: Any) -> Any:
        return -self.derivatives(eta, rows)[0]

    def kink(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        place: tuple[np.ndarray, Any] = self.base.kink(x)
        return place

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Likelihood, np.ndarray]:
        exposure, own = rng.gamma(2.0, 1.0, n) + 0.1, float(rng.gamma(2.0, 0.6) + 0.2)
        bases = (Poisson(exposure), NegativeBinomial(own, exposure), NegativeBinomial1(own, exposure))
        made = cls(bases[rng.integers(3)])
        return made, made.draw(0.5 * rng.normal(size=(n, 1)), rng)[:, 0]


class OwnProbability(ModifiedCounts):
    """A modifier of counts that gives 0 a probability of its own, which may have one number a row."""

    probability: Any

    def _choose_probability(self, value: ArrayLike) -> None:
        pi = numeric(self.name, "probability", value)
        if pi.ndim > 1 or not ((pi > 0.0) & (pi < 1.0)).all():
            got = f"probability = {number(float(pi))}" if pi.ndim == 0 else "probability"
            advice = f"Without zeros of their own use {self.base!r}."
            raise problem(self.name, f"{got} is not usable", "one number in (0, 1)", advice)
        self.probability = float(pi) if pi.ndim == 0 else pi

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        return {**super().check(y), "probability": per_row(self.probability, y.shape[0]) + 0.0}

    def _pi(self, like: Any) -> Any:
        """pi of each row, of the shape of ``like``, (N,) or (N, M), or to broadcast with it."""
        pi = asarray(per_row(self.probability, like.shape[0]) + 0.0, like)
        return pi if like.ndim == 1 else pi[:, None]
