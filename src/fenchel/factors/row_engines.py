"""The two engines that fit q to every row of a table.

``DualRows`` solves the dual of each row, all rows at once (``row_search.py``); it knows the likelihoods
of ``_CODES``. ``GeneralRows`` takes any likelihood of one predictor: all rows are one problem of the
library's general solvers, with a ``Mixed`` likelihood of one part a column, and the prior of
``priors/batched.py``, that is the loadings W with weights of its own for every row.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..inference import solver_for
from ..likelihoods import BernoulliLogit, Gaussian, Mixed, MultinomialLogit, Ordinal, Poisson
from ..likelihoods.base import Likelihood
from ..likelihoods.ordinal import by_steps
from ..linalg import small
from ..linalg.arrays import ArrayLike
from ..priors.batched import BatchedFeatures
from ..problem import Problem
from ..solvers.base import Stopping
from . import cell_bounds
from .cell_bounds import TableCells
from .factor_model import Solved
from .row_search import RowPoints, RowProblems

if TYPE_CHECKING:
    from .factor_model import FactorModel, Parameters


# -- Rows whose likelihoods have a dual -------------------------------------------------------------
# nats that a cell's bound may miss, in units of tol: a search over parameters compares values to a
# hundredth of tol, and Newton's last step squares what is left
CELL_SHARE = 1e-3

_CODES: dict[tuple[type[Likelihood], str], int] = {
    (BernoulliLogit, "log-sum"): cell_bounds.LOGISTIC,
    (BernoulliLogit, "tilted"): cell_bounds.TILTED,
    (Poisson, "none"): cell_bounds.COUNT,
    (Gaussian, "none"): cell_bounds.REAL,
    (MultinomialLogit, "log-sum"): cell_bounds.SOFTMAX,
    (Ordinal, "log-sum"): cell_bounds.ORDERED,
    (Ordinal, "tilted"): cell_bounds.ORDERED_TILTED,
}


def code(likelihood: Likelihood) -> int | None:
    """Which kind of column of ``cell_bounds.py`` a likelihood makes; None where ``DualRows`` does not know it."""
    every_level = likelihood.support == "levels" and likelihood.n_predictors == likelihood.n_levels
    if likelihood.row_values or every_level:  # a softmax with a predictor for each level has no reference
        return None
    return _CODES.get((type(likelihood), likelihood.bound))


class Layout:
    """Where the potentials of a model are.

    kind, levels (D,); first (D + 1,): where each column's potentials begin; owner (Q,): the predictor of each.
    """

    def __init__(self, model: FactorModel) -> None:
        self.kind = np.array([code(own) for own in model.likelihoods])
        self.levels = np.array([own.n_levels if own.support == "levels" else 0 for own in model.likelihoods])
        self.first = np.concatenate([[0], np.cumsum(np.where(model.ordered, 2, model.widths))])
        self.ordered = np.flatnonzero(model.ordered)
        self.owner = np.repeat(np.arange(model.n_predictors), np.where(model.of_predictors(model.ordered), 2, 1))
        self.begins = np.searchsorted(self.owner, np.arange(model.n_predictors))
        self.n_cuts = max(1, *self.levels) if self.ordered.size else 1

    def by_predictor(self, x: np.ndarray) -> np.ndarray:
        """x (Q, R) by predictors (R, P): potentials that share one are added up."""
        return x.T if self.owner.size == self.begins.size else np.add.reduceat(x, self.begins, axis=0).T

    def problems(self, values: np.ndarray, p: Parameters) -> RowProblems:
        """The dual problems of the rows of a table (R, D)."""
        cuts = np.zeros((self.kind.size, self.n_cuts))
        for j in self.ordered:
            cutpoints = cast(Ordinal, p.likelihoods[j]).cutpoints
            cuts[j, : cutpoints.size] = cutpoints
        cells = TableCells(values, self.kind, self.first, self.levels, p.offset[self.owner], p.variance, cuts)
        return RowProblems(cells, np.ascontiguousarray(p.loadings[self.owner]))


class DualRows(Solved):
    """Every row solved by itself, to gaps that are small together."""

    elbo: np.ndarray = np.zeros(0)
    gap: np.ndarray = np.zeros(0)

    def __init__(
        self, model: FactorModel, values: np.ndarray, p: Parameters, start: ArrayLike | None, tol: float, max_iter: int
    ) -> None:
        self.p, self.layout, R = p, model.layout, values.shape[0]
        share = np.maximum(1.0 / max(1, R), CELL_SHARE * np.sum(~np.isnan(values), axis=1))
        self.n_iter = 0
        with np.errstate(all="ignore"):
            self.problems = self.layout.problems(values, p)
            s = self.problems.begin() if start is None else np.asarray(start, dtype=np.float64).T
            for _ in range(3):
                s, at, steps = self.problems.search(s, tol * share, max_iter)
                self.n_iter += min(steps, max_iter)
                self.elbo, self.gap = at.dual - at.gap, at.gap
                self.total, self.off = float(self.elbo.sum()), float(self.gap.sum())
                most = tol * max(1.0, abs(self.total))
                if self.off <= most or not np.isfinite(self.gap).all() or steps >= max_iter:
                    break
                share = np.full(R, 0.5 * most / (tol * R))
        self.s, self.mean, self.V = s.T, -at.u.T, at.V[np.tril_indices(model.n_components)].T
        self.alpha, self.lam = self.layout.by_predictor(at.alpha), self.layout.by_predictor(at.lam)
        self.converged, self.point = bool(self.off <= most), at

    def slopes(self) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            log_variance, ends = self._noise_slopes(self.point), self._cutpoint_slopes(self.point)
        out = []
        for j, own in enumerate(self.p.likelihoods):
            if own.ordered:
                out.append(by_steps(ends[j, : own.n_levels + 1], cast(Ordinal, own).cutpoints))
            elif own.theta.size:
                out.append(log_variance[[j]])
        return out

    def _noise_slopes(self, at: RowPoints) -> np.ndarray:
        """Of the evidence in the log variance of each gaussian column (D,)."""
        cells, out = self.problems.cells, np.zeros(self.layout.kind.size)
        left = ((cells.y - at.h) ** 2 + at.rho)[cells.real] / (2.0 * cells.v) - 0.5
        out[self.layout.kind == cell_bounds.REAL] = np.sum(left * cells.live[cells.real], axis=1)
        return out

    def _cutpoint_slopes(self, at: RowPoints) -> np.ndarray:
        """Of the evidence in the cutpoints of each ordered column, with both open ends (D, K + 1)."""
        cells, out = self.problems.cells, np.zeros((self.layout.kind.size, self.layout.n_cuts + 2))
        tau = at.tau * cells.live
        for i, (j, q, _) in enumerate(cells.ordered):
            seen, level = cells.seen[q], cells.y[q].astype(int)
            both = 1.0 / np.expm1(np.minimum(cells.between[i], 700.0)) * (cells.between[i] < np.inf)
            np.add.at(out[j], level[seen] + 1, (tau[q] + both)[seen])
            np.add.at(out[j], level[seen], -(tau[q + 1] + both)[seen])
        return out


# -- Rows of any likelihood --------------------------------------------------------------------------
def likelihood_of_cells(n: int, p: Parameters) -> Likelihood:
    """The likelihood of n rows, cell by cell; gaussian columns are one part, with a variance a cell."""
    noise = p.variance[~np.isnan(p.variance)]
    keys = [Gaussian if type(own) is Gaussian else id(own) for own in p.likelihoods]
    named = dict(zip(keys, p.likelihoods, strict=True))
    parts = [Gaussian(np.tile(noise, n)) if key is Gaussian else own for key, own in named.items()]
    return parts[0] if len(parts) == 1 else Mixed(parts, np.tile([list(named).index(key) for key in keys], n))


class GeneralRows(Solved):
    """All rows as one problem of the library's solvers."""

    def __init__(
        self, model: FactorModel, values: np.ndarray, p: Parameters, start: Any, tol: float, max_iter: int
    ) -> None:
        self.p, self.values, R = p, values, values.shape[0]
        own = likelihood_of_cells(R, p)
        self.task = Problem(own, BatchedFeatures(p.loadings, R, p.offset), values.reshape(-1))
        outcome = solver_for(own, "newton").solve(self.task, start, Stopping(tol, max_iter))
        self.point = cast(Any, outcome.point)
        self.s, self.total, self.off = self.point.s, self.point.elbo, self.point.gap
        self.n_iter, self.converged = outcome.n_iter, outcome.converged
        self.alpha = np.reshape(self.task.full_alpha(self.point.alpha), (R, -1))
        self.lam = np.reshape(self.task.full_lam(self.point.lam), (R, -1))
        self.mean, self.V = -(self.alpha @ p.loadings), self.point.factor.V

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """h and rho of every cell (R, D)."""
        return self.mean @ self.p.loadings.T + self.p.offset, self.point.factor.cells

    @property
    def elbo(self) -> np.ndarray:
        (h, rho), task, R = self.moments, self.task, self.values.shape[0]
        weight = task.all_rows["weight"]
        with np.errstate(all="ignore"):
            f = weight * task.bound.f(h.reshape(-1, 1), rho.reshape(-1, 1), task.all_rows)
        loss = np.where(weight > 0.0, f, 0.0).reshape(R, -1).sum(axis=1)
        inner = np.sum(self.mean**2, axis=1) - np.sum(self.lam * rho, axis=1)
        return -0.5 * (self.point.factor.log_dets + inner) - loss

    @property
    def gap(self) -> np.ndarray:
        task, point, own = self.task, self.point, self.point.factor.own
        if not np.isfinite(point.gap):  # not log-concave: another stationary point may be better
            return np.full(own.R, np.inf)
        if task.bound.convex:
            each = task.weight * task.gaps(point.s, point.h, point.rho)
            return own.scatter(np.where(task.weight > 0.0, each, 0.0)[:, None]).sum(axis=1)
        r, G = own.scatter(point.r) @ own.W, own.scatter(point.d) @ own.table
        i, j = np.tril_indices(own.W.shape[1])
        inner = small.sandwich(G, point.factor.V)[:, i == j].sum(axis=1)
        return 0.5 * (np.sum(r * r, axis=1) + inner)

    def slopes(self) -> list[np.ndarray]:
        h, rho = self.moments
        return [
            own.theta_gradient(h[:, [j]], rho[:, [j]], own.prepare(self.values[:, j]))
            for j, own in enumerate(self.p.likelihoods)
            if own.theta.size
        ]
