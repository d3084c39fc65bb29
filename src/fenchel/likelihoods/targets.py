"""y and its weights, checked once: fits of the same targets at many hyperparameters share them."""

from __future__ import annotations

from typing import Any

from ..checks import numeric
from ..linalg.arrays import ArrayLike, to_numpy
from .base import LABELS, Likelihood, Rows


class Targets:
    """Targets (N,) that a likelihood has accepted, NaN where unobserved, and the rows it made of them."""

    def __init__(self, likelihood: Likelihood, y: Any, weights: ArrayLike | None = None) -> None:
        host = to_numpy(y) if hasattr(y, "__array_namespace__") or hasattr(y, "detach") else y
        self.y = numeric(likelihood.name, "y", host, LABELS, missing=True)
        self._weights, self._likelihood = weights, likelihood
        self._rows = likelihood.prepare(self.y, weights)

    def rows_of(self, likelihood: Likelihood) -> Rows:
        """The rows; made again for a likelihood whose own parameters have moved, since they may hold those."""
        return self._rows if likelihood is self._likelihood else likelihood.prepare(self.y, self._weights)
