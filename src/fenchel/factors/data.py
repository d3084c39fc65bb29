"""What learning asks of a table, wherever its rows are: in memory here, in partitions in ``partitions.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..likelihoods.base import Likelihood
from .moments import Moments

if TYPE_CHECKING:
    from .model import FactorModel, Parameters, TableFit
    from .starts import Score


class Summary(NamedTuple):
    """A column by itself: its cells, their mean and standard deviation and sum, how often each level was seen (K,).

    ``cells`` are the cells (R,), NaN for holes, where they are at hand: a likelihood of one's own may look at them.
    """

    n: int
    mean: float
    sd: float
    total: float
    counts: np.ndarray
    cells: np.ndarray


def summary(own: Likelihood, y: np.ndarray) -> Summary:
    """Of a column y (R,) in memory, NaN for holes, which may be all of it."""
    seen = y[~np.isnan(y)]
    mean, sd = (float(seen.mean()), float(seen.std())) if seen.size else (0.0, 1.0)
    counts = np.bincount(seen.astype(np.intp), minlength=own.n_levels) if own.support == "levels" else np.zeros(0)
    return Summary(seen.size, mean, sd, float(seen.sum()), counts, y)


class Data(ABC):
    """A table (R, D) of numbers, NaN for missing cells.

    n_rows : int
    complete : bool
        Whether no cell is missing.
    """

    n_rows: int
    complete: bool

    @abstractmethod
    def summaries(self, model: FactorModel) -> list[Summary]:
        """Of the columns."""

    @abstractmethod
    def products(self, scores: list[Score]) -> np.ndarray:
        """Z'Z (P, P) of the columns as standardised scores."""

    @abstractmethod
    def moments(self) -> Moments:
        """Mean and covariance of the rows of a complete table."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, in memory."""

    @abstractmethod
    def evidence(self, model: FactorModel, p: Parameters, warm: list[Any] | None, tol: float) -> TableFit:
        """The evidence of the table and its gradient; a fit may begin where one under near parameters ended."""


class InMemory(Data):
    """A table at hand."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.n_rows = values, values.shape[0]
        self.complete = not np.isnan(values).any()

    def summaries(self, model: FactorModel) -> list[Summary]:
        return [summary(own, self.values[:, j]) for j, own in enumerate(model.likelihoods)]

    def products(self, scores: list[Score]) -> np.ndarray:
        Z = np.hstack([score(self.values[:, j]) for j, score in enumerate(scores)])
        with np.errstate(over="ignore"):
            return np.asarray(Z.T @ Z)

    def moments(self) -> Moments:
        return Moments.of(self.values)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.values[rows]

    def evidence(self, model: FactorModel, p: Parameters, warm: list[Any] | None, tol: float) -> TableFit:
        if warm is None:  # a cold fit is as good as tol, its slopes as the root of that: go on from where it ended
            warm = model.evidence(self.values, p, None, tol).start
        return model.evidence(self.values, p, warm, tol)


def as_data(values: np.ndarray | Data) -> Data:
    """A table at hand, or one that is data already."""
    return values if isinstance(values, Data) else InMemory(values)
