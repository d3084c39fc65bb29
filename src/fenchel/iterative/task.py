"""One problem of the iterative engine: a likelihood, a sum of terms and targets, with the rows that count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..checks import problem
from ..gmrf.stack import StackedField
from ..likelihoods.base import Likelihood, Rows, slice_rows
from ..likelihoods.targets import Targets
from ..linalg.arrays import ArrayLike
from ..linalg.rows import in_blocks
from .layout import Layout
from .rows import RowSet


@dataclass(frozen=True)
class Sites:
    """f(h, rho) and its slopes alpha = df/dh, lam = 2 df/drho, weighted; all (n,)."""

    value: np.ndarray
    alpha: np.ndarray
    lam: np.ndarray

    @property
    def total(self) -> float:
        """The sum of f."""
        return float(self.value.sum())


class Task:
    """Likelihood, prior and y; rows of weight 0 are left out and predicted afterwards.

    Attributes
    ----------
    layout : Layout
    rows : RowSet
        Of the rows that count.
    offset : array (n,)
        The known part of eta there.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        family: StackedField,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        where = "iterative engine"
        if likelihood.n_predictors != 1:
            got = f"{likelihood.name} has {likelihood.n_predictors} predictors an observation"
            raise problem(where, got, "a likelihood with one", 'Use engine="direct".')
        if not likelihood.objective.log_concave:
            raise problem(where, f"{likelihood.name} is not log-concave", "one that is", 'Use engine="direct".')
        self.likelihood, self.family = likelihood, family
        self.targets = Targets(likelihood, y, weights)
        given = self.targets.rows_of(likelihood)
        weight = np.asarray(given["weight"])
        self.keep = np.flatnonzero(weight > 0.0)
        if not self.keep.size:
            raise problem(where, "no row is observed", "one whose y is there, with a weight above 0")
        called = [f"{i}" for i in range(len(family.parts))] if names is None else list(names)
        self.layout = Layout(family, called)
        all_rows = self.keep.size == weight.size
        A = self.layout.A if all_rows else sp.csr_array(self.layout.A[self.keep])
        self.rows = RowSet(self.layout, A)
        self.offset = np.broadcast_to(np.asarray(family.offset, dtype=np.float64), weight.shape)[self.keep]

    @property
    def n_observed(self) -> int:
        return int(self.keep.size)

    def data(self, likelihood: Likelihood) -> Rows:
        """The likelihood's data of the rows that count."""
        return {key: value[self.keep] for key, value in self.targets.rows_of(likelihood).items()}

    def loss(self, likelihood: Likelihood, data: Rows, h: np.ndarray, rho: np.ndarray) -> Sites:
        """f with its slopes, weighted (n,)."""
        bound, w = likelihood.objective, data["weight"]

        def one(block: slice) -> tuple[np.ndarray, ...]:
            loss = bound.loss(h[block, None], rho[block, None], slice_rows(data, block))
            return tuple(np.asarray(w[block] * part) for part in (loss.value, loss.alpha, loss.lam))

        return Sites(*in_blocks(h.size, one))

    @property
    def bounds(self) -> np.ndarray:
        """Of the family's theta and of the likelihood's own."""
        own = self.likelihood.theta
        if not own.size:
            return self.family.bounds.reshape(-1, 2)
        seen = np.full(self.targets.y.shape, np.nan)
        seen[self.keep] = self.targets.y[self.keep]
        read = self.likelihood.theta_bounds(seen)
        mine = np.stack([np.minimum(read[:, 0], own), np.maximum(read[:, 1], own)], axis=1)
        return np.concatenate([self.family.bounds.reshape(-1, 2), mine])
