"""The rows of a table under bounds that have a dual: each solved by itself in a compiled loop (``linalg/table.py``),
or all at once by numpy where the table is small (``linalg/small_table.py``).

A potential is a coordinate s of the dual. A column has one a predictor, an ordinal one two on its one predictor: the
arrays of the compiled loop go by potentials, what leaves here goes by predictors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Ordinal, Poisson
from ..likelihoods.base import Likelihood
from ..likelihoods.cumulative import by_steps
from ..linalg import _cells, small, small_table
from ..linalg.arrays import ArrayLike
from .model import Solved

if TYPE_CHECKING:
    from .model import FactorModel, Parameters

# a cell's share of the tolerance: a hundredth of the nats it may cost, because a search over parameters compares
# values to a hundredth of the tolerance, and Newton squares what is left anyway
_A_CELL = 1e-3
_CODES: dict[tuple[type[Likelihood], str], int] = {
    (BernoulliLogit, "log-sum"): _cells.LOGISTIC,
    (BernoulliLogit, "tilted"): _cells.TILTED,
    (Poisson, "none"): _cells.COUNT,
    (Gaussian, "none"): _cells.REAL,
    (MultinomialLogit, "log-sum"): _cells.SOFTMAX,
    (Ordinal, "log-sum"): _cells.ORDERED,
    (Ordinal, "tilted"): _cells.ORDERED_TILTED,
}


def code(likelihood: Likelihood) -> int | None:
    """Which potential of the compiled loop a likelihood is, None if it is none."""
    if any(getattr(likelihood, key) is not None for key in likelihood.row_parameters):
        return None
    if isinstance(likelihood, MultinomialLogit) and likelihood.reference is None:
        return None
    return _CODES.get((type(likelihood), likelihood.bound))


class Layout:
    """Where the potentials of a model are.

    kind, levels (D,); first (D + 1,): where each column's potentials begin; owner (Q,): the predictor of each.
    """

    def __init__(self, model: FactorModel) -> None:
        self.kind = np.array([code(own) for own in model.likelihoods])
        self.levels = np.array([own.n_levels if own.support == "levels" else 0 for own in model.likelihoods])
        counts = np.where(model.ordered, 2, model.widths)
        self.first = np.concatenate([[0], np.cumsum(counts)])
        twice = np.repeat(model.ordered, model.widths)
        self.owner = np.repeat(np.arange(model.n_predictors), np.where(twice, 2, 1))
        self.begins = np.searchsorted(self.owner, np.arange(model.n_predictors))
        self.width = max(1, *self.levels) if model.ordered.any() else 1  # of the cutpoints

    def by_predictor(self, x: np.ndarray, axis: int = 0) -> np.ndarray:
        """Potentials that share a predictor added up."""
        return x if self.owner.size == self.begins.size else np.add.reduceat(x, self.begins, axis=axis)

    def arguments(self, p: Parameters) -> tuple[Any, ...]:
        """kind, first, levels, mt, variance, cuts, W as the compiled loop wants them."""
        cuts = np.zeros((self.kind.size, self.width))
        for row, own in zip(cuts, p.likelihoods, strict=True):
            if isinstance(own, Ordinal):
                row[: own.cutpoints.size] = own.cutpoints
        W = np.ascontiguousarray(p.loadings[self.owner])
        return self.kind, self.first, self.levels, p.offset[self.owner], p.variance, cuts, W


def solver_of(n_potentials: int, n_factors: int) -> Any:
    """numpy for a small table, the compiled loop for others."""
    if small_table.is_small(n_potentials, n_factors):
        return small_table.solve
    from ..linalg import table

    return table.solve


class Rows(Solved):
    """Every row solved by itself, to gaps that are small together."""

    elbo: np.ndarray = np.zeros(0)
    gap: np.ndarray = np.zeros(0)

    def __init__(
        self, model: FactorModel, values: np.ndarray, p: Parameters, start: ArrayLike | None, tol: float, max_iter: int
    ) -> None:
        self.p, own, arguments = p, model.layout, model.layout.arguments(p)
        R, L = values.shape[0], model.n_components
        values, solve = np.ascontiguousarray(values), solver_of(own.owner.size * R, L)
        self.s = np.zeros((R, own.owner.size)) if start is None else np.array(start)
        self.mean, self.V = np.empty((R, L)), np.empty((R, L * (L + 1) // 2))
        self.elbo, self.gap, alpha, lam = np.empty(R), np.empty(R), np.empty_like(self.s), np.empty_like(self.s)
        found = self.mean, self.V, alpha, lam, self.elbo, self.gap
        cold, pairs = start is None, small.pairs(arguments[-1])
        share = np.maximum(1.0 / max(1, R), _A_CELL * np.sum(~np.isnan(values), axis=1))
        self.n_iter = 0
        with np.errstate(all="ignore"):
            for _ in range(3):
                steps, *self.ends = solve(values, self.s, cold, *arguments, pairs, tol * share, max_iter, *found)
                self.n_iter, cold = self.n_iter + min(steps, max_iter), False
                self.total, self.off = float(self.elbo.sum()), float(self.gap.sum())
                most = tol * max(1.0, abs(self.total))
                if self.off <= most or not np.isfinite(self.gap).all() or steps >= max_iter:
                    break
                share = np.full(R, 0.5 * most / (tol * R))
        self.alpha, self.lam = own.by_predictor(alpha, 1), own.by_predictor(lam, 1)
        self.converged = bool(self.off <= most)

    def slopes(self) -> list[np.ndarray]:
        log_variance, ends = self.ends
        return [
            by_steps(ends[j, : own.n_levels + 1], own.cutpoints) if isinstance(own, Ordinal) else log_variance[[j]]
            for j, own in enumerate(self.p.likelihoods)
            if own.theta.size
        ]
