"""Precisions as functions of theta: Q(theta) with its derivatives, plain objects that can be pickled.

ScaledStructure  Q = R / sd^2, theta = log sd
Combination      Q = sum_j c_j(theta) M_j
Remembered       any other, made once a theta: the prior and the gradient there ask for the same matrices
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

Precision = Callable[[np.ndarray], tuple[Any, list[Any]]]  # theta -> Q, [dQ/dtheta_1, ...], scipy sparse
Rates = Callable[[np.ndarray], tuple[Sequence[float], Sequence[Sequence[float]]]]  # theta -> c, [dc/dtheta_1, ...]


@dataclass(frozen=True)
class ScaledStructure:
    """A fixed structure over the square of one sd: Q = R / sd^2, theta = log sd."""

    structure: sp.csc_array

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        Q = np.exp(-2.0 * theta[0]) * self.structure
        return Q, [-2.0 * Q]


@dataclass(frozen=True)
class Combination:
    """Fixed matrices times rates that depend on theta."""

    matrices: tuple[Any, ...]
    rates: Rates

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        c, slopes = self.rates(theta)
        return self._sum(c), [self._sum(slope) for slope in slopes]

    def _sum(self, c: Sequence[float]) -> sp.csc_array:
        first, *rest = (k * M for k, M in zip(c, self.matrices, strict=True))
        return sp.csc_array(sum(rest, first))


class Remembered:
    """A precision that keeps what it made last."""

    def __init__(self, build: Precision) -> None:
        self.build: Precision = build.build if isinstance(build, Remembered) else build
        self.last: tuple[bytes, tuple[Any, list[Any]]] | None = None

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        theta = np.asarray(theta, dtype=np.float64)
        if self.last is None or self.last[0] != theta.tobytes():
            self.last = theta.tobytes(), self.build(theta)
        return self.last[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"build": self.build, "last": None}
