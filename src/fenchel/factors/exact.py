"""The rows of a table without a bound: one predictor a column, all rows together by the library's exact mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..inference import solver_for
from ..likelihoods import BernoulliLogit, Gaussian, Mixed, Ordinal, Poisson
from ..likelihoods.base import Likelihood
from ..linalg import small
from ..priors.batched import BatchedFeatures
from ..problem import Problem
from ..solvers.base import Outcome, Stopping
from .model import Evidence, RowFits

if TYPE_CHECKING:
    from .model import FactorModel, Parameters


def likelihood(model: FactorModel, n: int, p: Parameters) -> Likelihood:
    """Of n rows of the table, cell by cell."""
    keys: list[Any] = []
    for j, kind in enumerate(model.kinds):
        key = (kind, j if kind == "ordinal" else None)
        if key not in keys:
            keys.append(key)
    which = [keys.index((kind, j if kind == "ordinal" else None)) for j, kind in enumerate(model.kinds)]
    make: dict[str, Any] = {
        "bernoulli": lambda j: BernoulliLogit("exact"),
        "poisson": lambda j: Poisson(),
        "gaussian": lambda j: Gaussian(np.tile(p.variance[model.gaussian], n)),
        "ordinal": lambda j: Ordinal(p.cutpoints[model.cuts[j]], "exact"),
    }
    parts = [make[kind](j) for kind, j in keys]
    return parts[0] if len(parts) == 1 else Mixed(parts, np.tile(which, n))


def _solve(model: FactorModel, values: np.ndarray, p: Parameters, start: Any, tol: float, max_iter: int) -> Outcome:
    n = values.shape[0]
    own = likelihood(model, n, p)
    task = Problem(own, BatchedFeatures(p.loadings, n, p.offset), values.reshape(-1))
    return solver_for(own, "newton").solve(task, start, Stopping(tol, max_iter))


def rows(model: FactorModel, values: np.ndarray, p: Parameters, start: Any, tol: float) -> RowFits:
    outcome = _solve(model, values, p, start, tol, 200)
    point: Any = outcome.point
    task, factor = point.problem, point.factor
    own = factor.own
    mean = -(own.scatter(point.alpha) @ own.W)
    h = mean @ own.W.T + own.prior.offset
    f = task.weight * task.bound.f(point.h, point.rho, task.rows)

    def by_row(x: np.ndarray) -> np.ndarray:
        cells = np.zeros(own.R * own.n_cells)
        cells[slice(None) if own.keep is None else own.keep] = x
        return cells.reshape(own.R, -1).sum(axis=1)

    with np.errstate(invalid="ignore"):
        loss = by_row(np.where(task.weight > 0.0, f, 0.0))
    kl = 0.5 * (factor.log_dets - by_row(np.sum(point.lam * factor.variance, axis=1)) + np.sum(mean**2, axis=1))
    if task.bound.convex:  # a table of counts and real numbers: their bounds are exact
        each = task.weight * task.gaps(point.s, point.h, point.rho)
        gap = by_row(np.where(task.weight > 0.0, each, 0.0))
    else:
        r, G = own.scatter(point.r) @ own.W, own.scatter(point.d) @ own.table
        i, j = np.tril_indices(model.n_components)
        inner = small.sandwich(G, factor.V, model.n_components)[:, i == j].sum(axis=1)
        gap = 0.5 * (np.sum(r * r, axis=1) + inner)
    covariance = factor.latent_covariances()
    return RowFits(mean, covariance, h, factor.cells, -kl - loss, gap, outcome.n_iter, outcome.converged, [point.s])


def evidence(model: FactorModel, values: np.ndarray, p: Parameters, start: Any, tol: float, max_iter: int) -> Evidence:
    outcome = _solve(model, values, p, start, tol, max_iter)
    point: Any = outcome.point
    factor, own = point.factor, point.factor.own
    alpha, lam = own.scatter(point.alpha), own.scatter(point.lam)
    mean = -(alpha @ own.W)
    pooled = small.unpack(lam.T @ factor.V)
    second = pooled + small.unpack(lam.T @ small.pairs(mean))
    W = -alpha.T @ mean - np.einsum("pij,pj->pi", pooled, p.loadings)
    h, rho = mean @ own.W.T + own.prior.offset, factor.cells
    v, y = np.zeros(model.n_columns), values[:, model.gaussian]
    inner = ((y - h[:, model.gaussian]) ** 2 + rho[:, model.gaussian]) / (2.0 * p.variance[model.gaussian]) - 0.5
    v[model.gaussian] = np.where(np.isnan(y), 0.0, inner).sum(axis=0)
    steps = [np.zeros(0)]
    for j in np.flatnonzero(model.ordinal):
        part = Ordinal(p.cutpoints[model.cuts[j]], "exact")
        steps.append(part.theta_gradient(h[:, [j]], rho[:, [j]], part.prepare(values[:, j])))
    b = np.where(model.ordinal, 0.0, -alpha.sum(axis=0))
    found = (point.elbo, point.gap, W, b, v, np.concatenate(steps), second)
    return Evidence(*found, outcome.n_iter, outcome.converged, [point.s])


def sites(model: FactorModel, values: np.ndarray, p: Parameters, tol: float) -> tuple[np.ndarray, ...]:
    point: Any = _solve(model, values, p, None, tol, 200).point
    own = point.factor.own
    alpha, lam = own.scatter(point.alpha), own.scatter(point.lam)
    return alpha, lam, -(alpha @ own.W), point.factor.latent_covariances()
