"""Rows of a partition for a linear model: columns standardised as ``linalg/standardized.py`` does, y as levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..likelihoods.base import Likelihood
from ..linalg.standardized import Standardized
from .evaluation import Chunk, chunk_rows
from .partitions import Block
from .survey import block_vector, matrix, target, weights_of


@dataclass(frozen=True)
class LinearReader:
    """Rows of a partition as a fit takes them: columns standardised, y as the likelihood has it.

    columns : (shift, what rounding took from it, unit), arrays (D,)
    constant : array (D,) of bool
        Columns of which nothing is left.
    ones : bool
        Whether there is an intercept.
    keys : what rows have besides: exposure, trials, event
    labels : array or None
        What y are called, sorted: it is then their places.
    """

    where: str
    names: tuple[str, ...]
    columns: tuple[np.ndarray, np.ndarray, np.ndarray]
    constant: np.ndarray
    ones: bool
    likelihood: Likelihood
    keys: tuple[str, ...]
    labels: np.ndarray | None = None

    def chunks(self, block: Block) -> Iterator[Chunk]:
        number, (shift, rest, unit) = block.number, self.columns
        X = matrix(self.where, block["X"], self.names, number, checked=True)
        y, w = self.levels(target(self.where, block["y"], number)), block.get("weight")
        w = weights_of(self.where, w, block.n, number)
        rows = {key: block_vector(self.where, key, block[key], block.n, number) for key in self.keys}
        step = chunk_rows(X.shape[1])
        for i in range(0, block.n, step):
            part = slice(i, min(block.n, i + step))
            design = Standardized(X[part], shift, unit, self.ones, rest)
            design.drop(self.constant)
            own = self.likelihood.with_rows(**{k: v[part] for k, v in rows.items()}) if rows else self.likelihood
            yield Chunk(design, own, y[part], None if w is None else w[part])

    def levels(self, y: np.ndarray) -> np.ndarray:
        """y as the likelihood takes it."""
        if self.labels is None:
            return np.asarray(y, dtype=np.float64)
        place = np.searchsorted(self.labels, y)
        return np.clip(place, 0, self.labels.size - 1).astype(np.float64)
