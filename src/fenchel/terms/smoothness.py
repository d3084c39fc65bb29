"""The smoothness of a Matern field, chosen by the evidence of several fits.

    1  ->  1/2  ->  "two ranges"  ->  0        while the evidence rises
    1  ->  1/2  ->  3/2  ->  2                 if the evidence of 1/2 is smaller than that of 1

Each fit starts from the best one so far, on the same mesh. nu = 1 is kept unless another value gains two nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..gmrf.spde import TWO_RANGES
from ..hyperparameters.kernel_choice import NATS, Trials
from ..hyperparameters.priors import Normal
from ..transforms import LogAbove
from .base import Hyperparameter

Smoothness = float | str  # nu, or "two ranges"
LEAST_ROWS = 100  # from which on smoothness is chosen
_RATIO = 4.0  # of two ranges, where it starts
_RATIO_BOUNDS = float(np.log(0.05)), float(np.log(1e3))  # of log(ratio - 1)


@dataclass(frozen=True)
class SmoothnessTrials(Trials[Smoothness]):
    """The values of nu that were tried, with the evidence and the learned theta of each."""

    def next_one(self) -> Smoothness | None:
        known = self.evidence
        if 0.5 not in known:
            return 0.5
        if known[0.5] > known[1.0] + NATS:
            if TWO_RANGES not in known:
                return TWO_RANGES
            return 0.0 if known[TWO_RANGES] > known[0.5] and 0.0 not in known else None
        if 1.5 not in known:
            return 1.5
        return 2.0 if known[1.5] > known[1.0] and 2.0 not in known else None

    def price(self, candidate: Smoothness) -> float:
        """A second range has to gain twice as much as another nu than 1."""
        return {1.0: 0.0, TWO_RANGES: 2.0 * NATS}.get(candidate, NATS)

    def name(self, candidate: Smoothness) -> str:
        return TWO_RANGES if candidate == TWO_RANGES else f"nu = {candidate:g}"


def ratio_of_ranges() -> Hyperparameter:
    """The longer of two ranges over the shorter."""
    start = float(np.log(_RATIO - 1.0))
    return Hyperparameter("ratio", LogAbove(1.0), start, _RATIO_BOUNDS, Normal(start, 2.0))


def started(
    nu: Smoothness, typed: Sequence[Hyperparameter], theta: Sequence[float] | np.ndarray
) -> tuple[Hyperparameter, ...]:
    """The hyperparameters of a field, of sd and range, that start at theta, which may be that of another nu."""
    n, start = 3 if nu == TWO_RANGES else 2, list(theta)
    typed = [*typed, ratio_of_ranges()][:n]
    if len(start) < n:  # the shorter one is the range that was found
        start = [start[0], start[1] + np.log(_RATIO), np.log(_RATIO - 1.0)]
    inside = [float(np.clip(t, *h.bounds)) for h, t in zip(typed, start, strict=False)]
    return tuple(replace(h, start=t) for h, t in zip(typed, inside, strict=True))
