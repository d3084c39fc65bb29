"""Two engines that fit q for each row of a table.

``DualRows`` solves the dual of all rows at once (``row_search.py``), for likelihoods with convex bounds.
``GeneralRows`` takes any likelihood with one predictor. It treats all rows as one problem of the library's general
solvers: a ``Mixed`` likelihood with one part for each column, and the prior of ``priors/batched.py``, which combines
the loadings W with weights for each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..inference import solver_for
from ..likelihoods import Gaussian, Mixed
from ..likelihoods.base import Likelihood
from ..linalg import small
from ..linalg.arrays import ArrayLike
from ..priors.batched import BatchedFeatures
from ..problem import Problem
from ..solvers.base import Stopping
from .cell_bounds import TableCells, grouped
from .factor_model import Solved
from .row_search import RowProblems

if TYPE_CHECKING:
    from .factor_model import FactorModel, Parameters


# -- Rows whose likelihoods have a dual -------------------------------------------------------------
# largest error of a cell's bound in nats, in units of tol: a search over parameters compares values to a hundredth of
# tol, and Newton's last step squares the error
CELL_SHARE = 1e-3


def row_problems(values: np.ndarray, p: Parameters) -> RowProblems:
    """The dual problems of the rows of a table (R, D)."""
    return RowProblems(TableCells(p.likelihoods, values, p.offset), p.loadings)


class DualRows(Solved):
    """Each row solved separately, to gaps whose sum is small."""

    elbo: np.ndarray = np.zeros(0)
    gap: np.ndarray = np.zeros(0)

    def __init__(
        self, model: FactorModel, values: np.ndarray, p: Parameters, start: ArrayLike | None, tol: float, max_iter: int
    ) -> None:
        self.p, self.values, R = p, values, values.shape[0]
        share = np.maximum(1.0 / max(1, R), CELL_SHARE * np.sum(~np.isnan(values), axis=1))
        self.n_iter = 0
        with np.errstate(all="ignore"):
            problems = row_problems(values, p)
            s = problems.begin() if start is None else np.asarray(start, dtype=np.float64).T
            for _ in range(3):
                s, at, steps = problems.search(s, tol * share, max_iter)
                self.n_iter += min(steps, max_iter)
                self.elbo, self.gap = at.dual - at.gap, at.gap
                self.total, self.off = float(self.elbo.sum()), float(self.gap.sum())
                most = tol * max(1.0, abs(self.total))
                if self.off <= most or not np.isfinite(self.gap).all() or steps >= max_iter:
                    break
                share = np.full(R, 0.5 * most / (tol * R))
        self.s, self.mean, self.V = s.T, -at.u.T, at.V[np.tril_indices(model.n_components)].T
        self.alpha, self.lam, self.moments = at.alpha.T, at.lam.T, (at.h.T, at.rho.T)
        self.converged = bool(self.off <= most)


# -- Rows of any likelihood --------------------------------------------------------------------------
def likelihood_of_cells(n: int, p: Parameters) -> Likelihood:
    """The likelihood of n rows, in the order of cells; Gaussian columns are one part with a variance for each cell."""
    noise = p.variance[~np.isnan(p.variance)]
    which, parts = np.zeros(len(p.likelihoods), dtype=int), list[Likelihood]()
    for i, columns in enumerate(grouped(Gaussian if type(own) is Gaussian else id(own) for own in p.likelihoods)):
        own = p.likelihoods[columns[0]]
        parts.append(Gaussian(np.tile(noise, n)) if type(own) is Gaussian else own)
        which[columns] = i
    return parts[0] if len(parts) == 1 else Mixed(parts, np.tile(which, n))


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
        self.moments = self.mean @ p.loadings.T + p.offset, self.point.factor.cells

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
