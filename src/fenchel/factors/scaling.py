"""Gaussian columns in units of their own, so that one prior on the loadings suits every column.

    y'_j = (y_j - m_j) / u_j:    W = u_j W',   b = m_j + u_j b',   v = u_j^2 v',
                                 log p(y) = log p(y') - sum_j n_j log u_j,   n_j cells of the column that have data

with u_j the column's standard deviation where every column has a noise of its own, and the root mean square of them
where all share one, which the scale of each must not change. Columns that are not Gaussian stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..checks import problem
from ..likelihoods import Gaussian
from .columns import Column

if TYPE_CHECKING:
    from .model import FactorModel, Parameters


@dataclass(frozen=True)
class Units:
    """The middle and the unit of every column (D,): 0 and 1 where a column is not Gaussian."""

    middle: np.ndarray
    unit: np.ndarray

    def apply(self, values: np.ndarray) -> np.ndarray:
        """The table in these units (R, D)."""
        return (values - self.middle) / self.unit

    def log_volume(self, values: np.ndarray) -> np.ndarray:
        """What each row's log density gains by them (R,): sum of log u_j over its cells that are not missing."""
        return np.asarray(~np.isnan(values) @ np.log(self.unit))

    def restore(self, model: FactorModel, p: Parameters) -> Parameters:
        """Parameters of the table as it was given."""
        middle, unit = (np.repeat(x, model.widths) for x in (self.middle, self.unit))
        scaled = replace(p, loadings=unit[:, None] * p.loadings, offset=middle + unit * p.offset)
        return scaled.with_variance(self.unit**2 * p.variance)


def units(where: str, values: np.ndarray, columns: Sequence[Column], noise: str) -> Units:
    """Of a table (R, D) whose columns all have data; a constant column that would leave no noise is refused."""
    own, D = np.array([type(column.likelihood) is Gaussian for column in columns]), len(columns)
    middle, unit = np.zeros(D), np.ones(D)
    if not own.any():
        return Units(middle, unit)
    y = values[:, own]
    middle[own], sd = np.nanmean(y, axis=0), np.nanstd(y, axis=0)
    constant = ~(sd > 1e-12 * np.nanmax(np.abs(y), axis=0))
    if constant.any() and (noise == "column" or constant.all()):
        name = columns[int(np.flatnonzero(own)[constant][0])].name
        raise problem(
            where,
            f"the gaussian column {name!r} is constant",
            "numbers that differ: without noise the evidence has no maximum",
            "Leave the column out, or share the noise among the columns.",
        )
    unit[own] = sd if noise == "column" else np.sqrt(np.mean(sd**2))
    return Units(middle, unit)
