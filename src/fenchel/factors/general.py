"""The rows of a table by the library's general solvers, all together: likelihoods that ``dual.py`` does not know.

One predictor a column. Each column's cells are rows of its own part of a ``Mixed`` likelihood; the prior is ``W`` with
weights of its own for every row of the table (``priors/batched.py``).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..inference import solver_for
from ..likelihoods import Gaussian, Mixed
from ..likelihoods.base import Likelihood
from ..linalg import small
from ..priors.batched import BatchedFeatures
from ..problem import Problem
from ..solvers.base import Stopping
from .model import Solved

if TYPE_CHECKING:
    from .model import FactorModel, Parameters


def likelihood(n: int, p: Parameters) -> Likelihood:
    """Of n rows of the table, cell by cell; gaussian columns are one part, with a variance a cell."""
    noise = p.variance[~np.isnan(p.variance)]
    keys = [Gaussian if type(own) is Gaussian else id(own) for own in p.likelihoods]
    named = dict(zip(keys, p.likelihoods, strict=True))
    parts = [Gaussian(np.tile(noise, n)) if key is Gaussian else own for key, own in named.items()]
    return parts[0] if len(parts) == 1 else Mixed(parts, np.tile([list(named).index(key) for key in keys], n))


class Rows(Solved):
    """All rows as one problem."""

    def __init__(
        self, model: FactorModel, values: np.ndarray, p: Parameters, start: Any, tol: float, max_iter: int
    ) -> None:
        self.p, self.values, R = p, values, values.shape[0]
        own = likelihood(R, p)
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
