"""Matrices that can be made again from less: kept while they are in memory, left out of files and pickles.

The covariance of a Gaussian process is N x N, and its inputs and its kernel are not: prediction needs neither matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from ..linalg.arrays import Array


class Made(ABC):
    """A matrix with what makes it."""

    @abstractmethod
    def make(self) -> Array:
        """The matrix, the same to the last bit each time."""

    @cached_property
    def array(self) -> Array:
        """The matrix, made when it is first asked for."""
        return self.make()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "array"}


class Submatrix(Made):
    """Some rows of a symmetric one, and the same columns."""

    def __init__(self, whole: Made, index: np.ndarray) -> None:
        self.whole, self.index = whole, index

    def make(self) -> Array:
        return self.whole.array[np.ix_(self.index, self.index)]


def array_of(x: Array | Made) -> Array:
    """The matrix itself."""
    return x.array if isinstance(x, Made) else x


def packed(T: np.ndarray) -> np.ndarray:
    """The lower triangle of T, row after row: N (N + 1) / 2 numbers."""
    return np.concatenate([T[i, : i + 1] for i in range(T.shape[0])]) if T.size else np.zeros(0)


def unpacked(t: np.ndarray, n: int) -> np.ndarray:
    """T (N, N) of its lower triangle."""
    if t.shape != (n * (n + 1) // 2,):
        raise ValueError(f"a triangle of {n} rows has {n * (n + 1) // 2} entries, not {t.shape}")
    out, at = np.zeros((n, n)), 0
    for i in range(n):
        out[i, : i + 1] = t[at : at + i + 1]
        at += i + 1
    return out
