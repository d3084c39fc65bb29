"""Priors on hyperparameters: log p(theta) and its slope, one entry of theta at a time.

    PCPrecision  a standard deviation is exponential, P(sd > u) = a; theta = log precision, sd = e^{-theta/2}
    PCVariance   the same for theta = log variance, sd = e^{theta/2}
    PCRange      P(range < r) = a in d dimensions; theta = log range            (Fuglstad et al. 2019)
    Normal       theta itself is normal

Penalised-complexity priors (Simpson et al. 2017) draw towards the simpler model: no effect, or a very smooth one.
Densities are of theta, on the scale on which it is learned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..checks import problem, scalar

LogPrior = Callable[[np.ndarray], tuple[float, np.ndarray]]


class ScalarPrior(ABC):
    """A density of one number."""

    @abstractmethod
    def __call__(self, theta: float) -> tuple[float, float]:
        """log p(theta) and its derivative."""


def _level(where: str, u: float, probability: float) -> None:
    scalar(where, "u", u, 0.0)
    scalar(where, "probability", probability, 0.0, 1.0)


@dataclass(frozen=True)
class PCPrecision(ScalarPrior):
    """P(sd > u) = probability, for theta = log precision.

    Examples
    --------
    >>> from fenchel.hyperparameters.priors import PCPrecision
    >>> value, slope = PCPrecision(u=1.0, probability=0.01)(0.0)
    >>> round(value, 6)
    -3.771138
    """

    u: float
    probability: float = 0.01

    def __post_init__(self) -> None:
        _level("PCPrecision", self.u, self.probability)

    def __call__(self, theta: float) -> tuple[float, float]:
        rate = -np.log(self.probability) / self.u
        sd = np.exp(-theta / 2)
        return float(np.log(rate / 2) - theta / 2 - rate * sd), float(rate * sd / 2 - 0.5)


@dataclass(frozen=True)
class PCVariance(ScalarPrior):
    """P(sd > u) = probability, for theta = log variance."""

    u: float
    probability: float = 0.01

    def __post_init__(self) -> None:
        _level("PCVariance", self.u, self.probability)

    def __call__(self, theta: float) -> tuple[float, float]:
        value, slope = PCPrecision(self.u, self.probability)(-theta)
        return value, -slope


@dataclass(frozen=True)
class PCRange(ScalarPrior):
    """P(range < r) = probability in ``dimension`` dimensions, for theta = log range."""

    r: float
    probability: float = 0.05
    dimension: int = 2

    def __post_init__(self) -> None:
        _level("PCRange", self.r, self.probability)

    def __call__(self, theta: float) -> tuple[float, float]:
        half = self.dimension / 2
        rate = -np.log(self.probability) * self.r**half
        pull = rate * np.exp(-half * theta)
        return float(np.log(half * rate) - half * theta - pull), float(half * (pull - 1.0))


@dataclass(frozen=True)
class Normal(ScalarPrior):
    """theta ~ N(mean, sd^2)."""

    mean: float = 0.0
    sd: float = 1.0

    def __call__(self, theta: float) -> tuple[float, float]:
        z = (theta - self.mean) / self.sd
        return float(-0.5 * z * z - np.log(self.sd) - 0.5 * np.log(2 * np.pi)), float(-z / self.sd)


@dataclass(frozen=True)
class Independent:
    """log p(theta) of independent entries: {index: prior}; the other entries are flat.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters.priors import Independent, Normal
    >>> Independent({1: Normal(0.0, 1.0)})(np.array([5.0, 2.0]))[1]
    array([ 0., -2.])
    """

    priors: Mapping[int, ScalarPrior]

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        total, slope = 0.0, np.zeros(len(theta))
        for index, prior in self.priors.items():
            if not -len(theta) <= index < len(theta):
                raise problem("Independent", f"entry {index} of theta has a prior", f"an index below {len(theta)}")
            value, slope[index] = prior(float(theta[index]))
            total += value
        return total, slope


independent = Independent  # the name it had as a function
