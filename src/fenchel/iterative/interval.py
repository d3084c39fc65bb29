"""A number that is known up to an interval: what probes estimate, with what is certain beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ..checks import problem


@dataclass(frozen=True)
class Interval:
    """A number that is estimated, with the ends of an interval for it. It is no float, and refuses to be made one.

    Attributes
    ----------
    estimate : float
        Its middle, by the probes.
    lower, upper : float
        It lies between these with probability ``level``; what the solves left over is part of it.
    level : float
    certain : (float, float)
        It lies between these for certain; infinite where nothing is proved.
    name : str

    Examples
    --------
    >>> gap = Interval(0.2, 0.1, 0.4, 0.99, (0.0, 50.0), "gap")
    >>> gap
    gap in [0.1, 0.4] with probability 0.99, certainly in [0, 50]
    >>> float(gap)
    Traceback (most recent call last):
    ...
    fenchel.checks.Refusal: gap: it is an interval, known up to probes; expected gap.lower, gap.upper or gap.estimate.
    """

    estimate: float
    lower: float
    upper: float
    level: float
    certain: tuple[float, float] = (-np.inf, np.inf)
    name: str = "interval"

    def __float__(self) -> NoReturn:
        raise problem(
            self.name,
            "it is an interval, known up to probes",
            f"{self.name}.lower, {self.name}.upper or {self.name}.estimate",
        )

    @property
    def half_width(self) -> float:
        """Half of upper - lower."""
        return (self.upper - self.lower) / 2

    def __contains__(self, value: float) -> bool:
        """Whether a number lies between lower and upper."""
        return self.lower <= value <= self.upper

    def __format__(self, spec: str) -> str:
        """lower to upper, each by ``spec``."""
        return f"[{self.lower:{spec}}, {self.upper:{spec}}]"

    def __repr__(self) -> str:
        low, high = self.certain
        said = f"{self.name} in {self:.6g} with probability {self.level:g}"
        return f"{said}, certainly in [{low:.6g}, {high:.6g}]"
