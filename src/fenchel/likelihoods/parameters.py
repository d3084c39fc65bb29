"""A likelihood's own parameters: what each is called, the scale on which it is learned, where it may lie and starts.

    theta = forward(x),   x = inverse(theta)         x in the user's units, theta any real numbers
    Log           log x                              x > 0
    LogAbove(a)   log (x - a)                        x > a
    Logit         log x - log(1 - x)                 0 < x < 1
    Steps         b_1, log(b_2 - b_1), ...           increasing b_1, ..., b_K

A likelihood lists its ``parameters``; theta, its names, its bounds and a table in words follow from the list.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

_WITHIN = 10.0  # a parameter of which nothing is known stays within e^10 of where it stands


class Transform(ABC):
    """Between a parameter x, a number or a vector, and theta (k,), which is learned."""

    @abstractmethod
    def forward(self, x: Any) -> np.ndarray:
        """theta (k,)."""

    @abstractmethod
    def inverse(self, theta: np.ndarray) -> Any:
        """x: a float, or an array for a vector."""

    @abstractmethod
    def slope(self, x: Any) -> Any:
        """dx/dtheta at x, entry by entry of theta."""

    @abstractmethod
    def names(self, name: str, n: int) -> list[str]:
        """What the n entries of theta are, for a parameter of that name."""


@dataclass(frozen=True)
class LogAbove(Transform):
    """theta = log(x - least)."""

    least: float = 0.0

    def forward(self, x: Any) -> np.ndarray:
        return np.log(np.atleast_1d(np.asarray(x, dtype=np.float64) - self.least))

    def inverse(self, theta: np.ndarray) -> float:
        return self.least + float(np.exp(theta[0]))

    def slope(self, x: Any) -> float:
        return float(x) - self.least

    def names(self, name: str, n: int) -> list[str]:
        return [f"log ({name} - {self.least:g})" if self.least else f"log {name}"]


class Logit(Transform):
    """theta = log x - log(1 - x)."""

    def forward(self, x: Any) -> np.ndarray:
        return np.atleast_1d(np.log(x) - np.log1p(-x))

    def inverse(self, theta: np.ndarray) -> float:
        e = float(np.exp(-abs(theta[0])))
        return (1.0 if theta[0] >= 0.0 else e) / (1.0 + e)

    def slope(self, x: Any) -> float:
        return float(x * (1.0 - x))

    def names(self, name: str, n: int) -> list[str]:
        return [f"logit {name}"]


class Steps(Transform):
    """The first of increasing numbers, then the logs of the distances between neighbours."""

    def forward(self, x: Any) -> np.ndarray:
        return np.concatenate([x[:1], np.log(np.diff(x))])

    def inverse(self, theta: np.ndarray) -> np.ndarray:
        return np.cumsum(np.concatenate([np.asarray(theta[:1]), np.exp(np.asarray(theta[1:]))]))

    def slope(self, x: Any) -> np.ndarray:
        """Of every number after it: an entry of theta moves all of them alike."""
        return np.concatenate([[1.0], np.diff(x)])

    def pull(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The gradient in theta of what has this gradient in x."""
        return np.asarray(np.cumsum(gradient[::-1])[::-1] * self.slope(x))

    def names(self, name: str, n: int) -> list[str]:
        return [f"first {name}", *(f"log step {k} of the {name}s" for k in range(1, n))]


LOG, LOGIT, STEPS = LogAbove(), Logit(), Steps()


@dataclass(frozen=True)
class Parameter:
    """One parameter of a likelihood.

    Attributes
    ----------
    name : what it is called in words
    attribute : the constructor's argument, and the attribute that holds it
    transform : to the scale on which it is learned
    bounds : where it may lie when it is learned: two numbers in the user's units; or a function of the likelihood and
        y (N,), NaN where unobserved, that gives bounds of theta, (k, 2); None is within e^10 of where it stands
    prior : a density of theta, as in ``fenchel.hyperparameters.priors``; None is flat
    start : a function of the class, y and the weights (0 where unobserved) that gives where learning starts, in the
        user's units; None is the constructor's default
    """

    name: str
    attribute: str
    transform: Transform = LOG
    bounds: tuple[float, float] | Callable[[Any, np.ndarray], Any] | None = None
    prior: Callable[[float], tuple[float, float]] | None = None
    start: Callable[[Any, np.ndarray, np.ndarray], Any] | None = None

    def bounds_of(self, likelihood: Any, y: np.ndarray) -> np.ndarray:
        """Of theta (k, 2)."""
        if callable(self.bounds):
            return np.asarray(self.bounds(likelihood, y), dtype=np.float64).reshape(-1, 2)
        if self.bounds is None:
            theta = self.transform.forward(getattr(likelihood, self.attribute))
            return np.asarray(theta[:, None] + np.array([[-_WITHIN, _WITHIN]]))
        return np.array([[self.transform.forward(x)[0] for x in self.bounds]])


class Parametrised:
    """What follows from ``parameters``."""

    parameters: tuple[Parameter, ...] = ()

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def learned(self) -> tuple[Parameter, ...]:
        """The parameters that theta holds."""
        return self.parameters

    @property
    def theta(self) -> np.ndarray:
        """The likelihood's own parameters on an unconstrained scale; empty when it has none."""
        each = [p.transform.forward(getattr(self, p.attribute)) for p in self.learned]
        return np.concatenate([np.zeros(0), *each])

    @property
    def theta_names(self) -> list[str]:
        """What each entry of theta is."""
        n, names = self.theta.size, []
        for p in self.learned:
            names += p.transform.names(p.name, p.transform.forward(getattr(self, p.attribute)).size)
        return names if len(names) == n else [f"likelihood {i}" for i in range(n)]

    def changed(self, **attributes: Any) -> Self:
        """The same likelihood with other attributes."""
        out = copy.copy(self)
        out.__dict__.update(attributes)
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles make their own ``objective``."""
        return {key: value for key, value in self.__dict__.items() if key != "objective"}

    def with_theta(self, theta: np.ndarray) -> Self:
        """The same likelihood with other parameters."""
        values, i = {}, 0
        for p in self.learned:
            n = p.transform.forward(getattr(self, p.attribute)).size
            values[p.attribute] = p.transform.inverse(theta[i : i + n])
            i += n
        return self.changed(**values) if values else self

    def theta_bounds(self, y: np.ndarray) -> np.ndarray:
        """Where theta may lie when it is learned from y (N,), NaN where unobserved: (n_theta, 2)."""
        return np.concatenate([np.zeros((0, 2)), *(p.bounds_of(self, y) for p in self.learned)])

    def readable(self) -> list[tuple[str, str, float]]:
        """The parameters in words: (owner, parameter, value)."""
        out: list[tuple[str, str, float]] = []
        for p in self.parameters:
            value = getattr(self, p.attribute)
            if np.ndim(value):
                out += [(p.attribute, str(k), float(b)) for k, b in enumerate(value)]
            else:
                out.append((self.name, p.attribute, float(value)))
        return out
