"""The rows of a table under bounds that have a dual: each solved by itself in a compiled loop (``linalg/table.py``).

A potential is a coordinate s of the dual. A column has one a predictor, an ordinal one two on its one predictor: the
arrays of the compiled loop go by potentials, what leaves here goes by predictors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..likelihoods.cumulative import by_steps
from ..linalg import _cells, small, table
from .model import Evidence, RowFits

if TYPE_CHECKING:
    from .model import FactorModel, Parameters

# a cell's share of the tolerance: a hundredth of the nats it may cost, because a search over parameters compares
# values to a hundredth of the tolerance, and Newton squares what is left anyway
_A_CELL = 1e-3


class Layout:
    """Where the potentials of a model are.

    kind, levels (D,); first (D + 1,): where each column's potentials begin; owner (Q,): the predictor of each.
    """

    def __init__(self, model: FactorModel) -> None:
        tilted = model.bound == "tilted"
        codes = {
            "bernoulli": _cells.TILTED if tilted else _cells.LOGISTIC,
            "poisson": _cells.COUNT,
            "gaussian": _cells.REAL,
            "multinomial": _cells.SOFTMAX,
            "ordinal": _cells.ORDERED_TILTED if tilted else _cells.ORDERED,
        }
        self.kind = np.array([codes[kind] for kind in model.kinds])
        self.levels = np.array(model.levels)
        counts = np.where(model.ordinal, 2, model.widths)
        self.first = np.concatenate([[0], np.cumsum(counts)])
        twice = np.repeat(model.ordinal, model.widths)
        self.owner = np.repeat(np.arange(model.n_predictors), np.where(twice, 2, 1))
        self.begins = np.searchsorted(self.owner, np.arange(model.n_predictors))

    def by_predictor(self, x: np.ndarray, axis: int = 0) -> np.ndarray:
        """Potentials that share a predictor added up."""
        return x if self.owner.size == self.begins.size else np.add.reduceat(x, self.begins, axis=axis)

    def arguments(self, model: FactorModel, p: Parameters) -> tuple[Any, ...]:
        """kind, first, levels, mt, variance, cuts, W as the compiled loop wants them."""
        cuts = np.zeros((model.n_columns, max(1, *self.levels) if model.ordinal.any() else 1))
        for j in np.flatnonzero(model.ordinal):
            own = p.cutpoints[model.cuts[j]]
            cuts[j, : own.size] = own
        W = np.ascontiguousarray(p.loadings[self.owner])
        variance = np.ascontiguousarray(p.variance, dtype=np.float64)
        return self.kind, self.first, self.levels, p.offset[self.owner], variance, cuts, W


def _solve(
    model: FactorModel, values: np.ndarray, p: Parameters, start: Any, tol: float, max_iter: int
) -> tuple[Any, ...]:
    """s, mean, packed V, elbo, gap, iterations, whether all gaps together are small; alpha, lam, slopes of columns."""
    own = model.layout
    arguments = own.arguments(model, p)
    R, L = values.shape[0], model.n_components
    values = np.ascontiguousarray(values)
    s = np.zeros((R, own.owner.size)) if start is None else np.array(start)
    mean, V, elbo, gap = np.empty((R, L)), np.empty((R, L * (L + 1) // 2)), np.empty(R), np.empty(R)
    alpha, lam, solve = np.empty_like(s), np.empty_like(s), cast(Any, table.solve)
    cold, pairs = start is None, small.pairs(arguments[-1])
    share = np.maximum(1.0 / max(1, R), _A_CELL * np.sum(~np.isnan(values), axis=1))
    n_iter = 0
    with np.errstate(all="ignore"):
        for _ in range(3):
            steps, *slopes = solve(
                values, s, cold, *arguments, pairs, tol * share, max_iter, mean, V, alpha, lam, elbo, gap
            )
            n_iter, cold = n_iter + min(steps, max_iter), False
            most = tol * max(1.0, abs(float(elbo.sum())))
            if float(gap.sum()) <= most or not np.isfinite(gap).all() or steps >= max_iter:
                break
            share = np.full(R, 0.5 * most / (tol * R))
    sites = own.by_predictor(alpha, 1), own.by_predictor(lam, 1)
    return s, mean, V, elbo, gap, n_iter, bool(gap.sum() <= most), *sites, slopes


def rows(model: FactorModel, values: np.ndarray, p: Parameters, start: Any, tol: float) -> RowFits:
    s, mean, V, elbo, gap, n_iter, converged, *_ = _solve(model, values, p, start, tol, 200)
    h = mean @ p.loadings.T + p.offset
    rho = V @ small.doubled(small.pairs(p.loadings)).T
    return RowFits(mean, small.unpack(V), h, rho, elbo, gap, n_iter, converged, [s])


def evidence(model: FactorModel, values: np.ndarray, p: Parameters, start: Any, tol: float, max_iter: int) -> Evidence:
    found = _solve(model, values, p, start, tol, max_iter)
    s, mean, V, elbo, gap, n_iter, converged, alpha, lam, (log_variance, ends) = found
    pooled = small.unpack(lam.T @ V)
    second = pooled + small.unpack(lam.T @ small.pairs(mean))
    W = -alpha.T @ mean - np.einsum("pij,pj->pi", pooled, p.loadings)
    offset = np.where(np.repeat(model.ordinal, model.widths), 0.0, -alpha.sum(axis=0))
    steps = [
        by_steps(ends[j, : model.levels[j] + 1], p.cutpoints[model.cuts[j]]) for j in np.flatnonzero(model.ordinal)
    ]
    cutpoints = np.concatenate([np.zeros(0), *steps])
    total, off = float(elbo.sum()), float(gap.sum())
    return Evidence(total, off, W, offset, log_variance, cutpoints, second, n_iter, converged, [s])


def sites(model: FactorModel, values: np.ndarray, p: Parameters, tol: float) -> tuple[np.ndarray, ...]:
    _, mean, V, _, _, _, _, alpha, lam, _ = _solve(model, values, p, None, tol, 200)
    return alpha, lam, mean, small.unpack(V)
