"""Transforms between a parameter in the user's units and theta, the unbounded scale on which it is learned.

theta = forward(x),   x = inverse(theta)
LogAbove(a)   log (x - a)                        x > a; LOG is a = 0
Between       log(x - a) - log(b - x)            a < x < b; LOGIT is 0 to 1, CORRELATION -1 to 1: 2 atanh x
Steps         b_1, log(b_2 - b_1), ...           increasing b_1, ..., b_K
OfRows        b with D b = log x / power, or logit x    one x for each row, by a linear predictor
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .linalg.arrays import ArrayLike

_LARGEST = 170.0  # largest linear predictor of a log; a variance is the square of its exponential


class Transform(ABC):
    """The contract of a transform between a parameter x, a number or a vector, and theta (k,)."""

    @abstractmethod
    def forward(self, x: ArrayLike) -> np.ndarray:
        """theta (k,)."""

    @abstractmethod
    def inverse(self, theta: np.ndarray) -> Any:
        """x: a float, or an array for a vector."""

    @abstractmethod
    def slope(self, x: ArrayLike) -> Any:
        """dx/dtheta at x, entry by entry of theta."""

    of_rows = False  # whether x has one number for each row, by a linear predictor

    def take(self, index: Any) -> Transform:
        """The transform for some of the rows."""
        return self

    def coefficients(self, x: ArrayLike) -> list[tuple[str, str, float]]:
        """(owner, column, coefficient) of a linear predictor; empty without one."""
        return []

    def takes(self, x: ArrayLike) -> bool:
        """Whether x can be learned: a number, or a vector if the transform is for vectors."""
        return np.ndim(x) == 0

    def gather(self, slopes: np.ndarray) -> np.ndarray:
        """The gradient in theta (k,) of a sum over rows, from the slope (N,) of each row in its own parameter."""
        return np.atleast_1d(np.sum(slopes))

    @abstractmethod
    def names(self, name: str, n: int) -> list[str]:
        """Names of the n entries of theta, for a parameter with this name."""


@dataclass(frozen=True)
class LogAbove(Transform):
    """theta = log(x - least)."""

    least: float = 0.0

    def forward(self, x: ArrayLike) -> np.ndarray:
        return np.log(np.atleast_1d(np.asarray(x, dtype=np.float64) - self.least))

    def inverse(self, theta: np.ndarray) -> float:
        return self.least + float(np.exp(theta[0]))

    def slope(self, x: Any) -> float:
        return float(x) - self.least

    def names(self, name: str, n: int) -> list[str]:
        return [f"log ({name} - {self.least:g})" if self.least else f"log {name}"]


@dataclass(frozen=True)
class Between(Transform):
    """theta = the logit of (x - low) / (high - low)."""

    low: float
    high: float
    label: str = ""  # name of theta, with {} for that of the parameter

    def forward(self, x: Any) -> np.ndarray:
        return np.atleast_1d(np.log(x - self.low) - np.log(self.high - x))

    def inverse(self, theta: np.ndarray) -> float:
        e = float(np.exp(-abs(theta[0])))
        return self.low + (self.high - self.low) * (1.0 if theta[0] >= 0.0 else e) / (1.0 + e)

    def slope(self, x: Any) -> float:
        return float((x - self.low) * (self.high - x) / (self.high - self.low))

    def names(self, name: str, n: int) -> list[str]:
        return [self.label.format(name) or f"logit of {name} between {self.low:g} and {self.high:g}"]


class Steps(Transform):
    """The first of increasing numbers, then the logs of the distances between neighbours."""

    def takes(self, x: ArrayLike) -> bool:
        return True

    def forward(self, x: Any) -> np.ndarray:
        return np.concatenate([x[:1], np.log(np.diff(x))])

    def inverse(self, theta: np.ndarray) -> np.ndarray:
        return np.cumsum(np.concatenate([np.asarray(theta[:1]), np.exp(np.asarray(theta[1:]))]))

    def slope(self, x: ArrayLike) -> np.ndarray:
        """d b_j / d theta_i for j >= i; an entry of theta shifts all later numbers equally."""
        return np.concatenate([[1.0], np.diff(x)])

    def pull(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The gradient in theta from a gradient in x."""
        return np.asarray(np.cumsum(gradient[::-1])[::-1] * self.slope(x))

    def names(self, name: str, n: int) -> list[str]:
        return [f"first {name}", *(f"log step {k} of the {name}s" for k in range(1, n))]


@dataclass(frozen=True, eq=False)
class OfRows(Transform):
    """A parameter with a linear predictor of its own: theta = b, and x_n = exp(power D_n b) or sigmoid(D_n b).

    Attributes
    ----------
    design : array (N, k)
        D, with columns centred and divided by their standard deviations.
    back : array (k, k)
        Maps theta to coefficients of the original columns.
    owner, columns : the name of the parameter, and the names of the coefficients
    power : float
        2 for a variance whose sd is predicted.
    logistic : bool
        Whether x is a probability.
    level : bool
        Whether the first column is the level.
    """

    design: np.ndarray
    back: np.ndarray
    owner: str
    columns: tuple[str, ...]
    power: float = 1.0
    logistic: bool = False
    level: bool = False
    of_rows = True

    def takes(self, x: ArrayLike) -> bool:
        return True

    def coefficients(self, x: ArrayLike) -> list[tuple[str, str, float]]:
        each = self.back @ self.forward(x)
        return [(self.owner, column, float(b)) for column, b in zip(self.columns, each, strict=True)]

    @cached_property
    def _solve(self) -> np.ndarray:
        return np.linalg.pinv(self.design)

    def forward(self, x: Any) -> np.ndarray:
        linear = np.log(x) - np.log1p(-x) if self.logistic else np.log(x) / self.power
        return np.asarray(self._solve @ linear)

    def inverse(self, theta: np.ndarray) -> np.ndarray:
        return self.at(self.design, theta)

    def at(self, design: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """x at other rows."""
        linear = np.clip(design @ theta, -_LARGEST, _LARGEST)
        if not self.logistic:
            return np.asarray(np.exp(self.power * linear))
        e = np.exp(-np.abs(linear))
        return np.asarray(np.where(linear >= 0.0, 1.0, e) / (1.0 + e))

    def slope(self, x: ArrayLike) -> Any:
        raise NotImplementedError("a parameter of the rows has a slope in each of them: gather() sums them.")

    def gather(self, slopes: np.ndarray) -> np.ndarray:
        """The gradient in theta (k,) from slopes in log x or logit x."""
        return np.asarray((1.0 if self.logistic else self.power) * (slopes @ self.design))

    def take(self, index: Any) -> OfRows:
        """The transform for some of the rows."""
        return replace(self, design=self.design[index])

    def names(self, name: str, n: int) -> list[str]:
        return [f"{self.owner}: {column}" for column in self.columns]


LOG = LogAbove()
LOGIT = Between(0.0, 1.0, "logit {}")
CORRELATION = Between(-1.0, 1.0, "2 atanh {}")
STEPS = Steps()
