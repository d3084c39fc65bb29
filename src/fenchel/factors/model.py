"""The factor model of a table: z_r ~ N(0, I), eta_r = W z_r + b, every column with a likelihood of its own.

    column          predictors   likelihood
    bernoulli       1            BernoulliLogit(bound)
    poisson         1            Poisson
    multinomial, K  K - 1        MultinomialLogit(K, "last"), log-sum (the tilted bound wants predictors that are
                                 independent a priori, and those of a cell share z)
    gaussian        1            Gaussian(v_j)

The evidence of a table is the sum over its rows, each a small problem of its own; they are solved together, a stretch
of rows at a time, by the library's Newton method on ``BatchedFeatures``. At the optimum, by the envelope theorem,

    dP/dW = -sum_r (alpha_r m_r' + Lam_r W V_r),   dP/db = -sum_r alpha_r,
    dP/dlog v_j = sum_r [((y - h)^2 + rho) / (2 v_j) - 1/2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy.special import softmax

from ..checks import choice, problem
from ..inference import solver_for
from ..likelihoods import BernoulliLogit, Gaussian, Mixed, MultinomialLogit, Poisson
from ..likelihoods.base import Likelihood
from ..linalg import small
from ..linalg.rows import on_every_core
from ..priors.batched import BatchedFeatures
from ..problem import Problem
from ..solvers.base import Outcome, Stopping

T = TypeVar("T")

KINDS = ("bernoulli", "poisson", "multinomial", "gaussian")
_CELLS = 1 << 17  # predictors of one stretch of rows: its arrays are a few megabytes each


@dataclass(frozen=True)
class Parameters:
    """W (P, L), b (P,) and the noise variances (D,), NaN for columns that are not gaussian."""

    loadings: np.ndarray
    offset: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True)
class RowFits:
    """q of every row of a table.

    mean (R, L), covariance (R, L, L) : of z
    h, rho (R, P) : mean and variance of every predictor, cells without data included
    elbo, gap (R,) : each row's evidence bound, and how far it may be from the best Gaussian's
    start : where a fit of the same table under near parameters may begin
    """

    mean: np.ndarray
    covariance: np.ndarray
    h: np.ndarray
    rho: np.ndarray
    elbo: np.ndarray
    gap: np.ndarray
    n_iter: int
    converged: bool
    start: list[Any]


@dataclass(frozen=True)
class Evidence:
    """The evidence bound of a table with its gradient."""

    elbo: float
    gap: float
    loadings: np.ndarray  # (P, L)
    offset: np.ndarray  # (P,)
    log_variance: np.ndarray  # (D,), 0 for columns that are not gaussian
    second: np.ndarray  # (P, L, L)  sum_r lam_rp E[z z']: the curvature in each predictor's loadings, nearly
    n_iter: int
    converged: bool
    start: list[Any]


class FactorModel:
    """Columns and a number of factors; parameters and data are passed in.

    Parameters
    ----------
    kinds : sequence of {"bernoulli", "poisson", "multinomial", "gaussian"}
        One a column.
    n_levels : sequence of int
        K of each multinomial column; ignored for others.
    n_components : int
    bound : {"tilted", "log-sum", "exact"}
        For the bernoulli columns; beside a multinomial column "exact" means tilted.
    noise : {"column", "shared"}
        A noise variance for each gaussian column (factor analysis), or one for all (probabilistic PCA).

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.factors.model import FactorModel
    >>> model = FactorModel(["bernoulli", "multinomial"], [2, 3], n_components=1)
    >>> model.n_predictors, model.slices
    (3, [slice(0, 1, None), slice(1, 3, None)])
    """

    def __init__(
        self,
        kinds: Sequence[str],
        n_levels: Sequence[int],
        n_components: int,
        bound: str = "tilted",
        noise: str = "column",
    ) -> None:
        for kind in kinds:
            choice("FactorModel", "kinds", kind, KINDS)
        choice("FactorModel", "bound", bound, ("tilted", "log-sum", "exact"))
        choice("FactorModel", "noise", noise, ("column", "shared"))
        self.kinds, self.bound, self.noise = tuple(kinds), bound, noise
        self.widths = [int(K) - 1 if kind == "multinomial" else 1 for kind, K in zip(kinds, n_levels, strict=True)]
        ends = np.cumsum(self.widths)
        self.slices = [slice(int(e - w), int(e)) for e, w in zip(ends, self.widths, strict=True)]
        self.n_predictors, self.n_columns, self.n_components = int(ends[-1]), len(self.kinds), int(n_components)
        if not 1 <= self.n_components <= self.n_predictors:
            raise problem(
                "FactorModel",
                f"{n_components} factors for a table of {self.n_predictors} predictors",
                f"a number between 1 and {self.n_predictors}",
            )
        self.width = max(self.widths)  # predictors of a cell; narrower columns are padded with dead ones
        self.place = np.concatenate([j * self.width + np.arange(w) for j, w in enumerate(self.widths)])
        self.gaussian = np.array([kind == "gaussian" for kind in self.kinds])

    # -- one stretch of rows -----------------------------------------------------------------------
    def likelihood(self, n: int, parameters: Parameters) -> Likelihood:
        """Of n rows of the table, cell by cell."""
        single = "tilted" if self.bound == "exact" and self.width > 1 else self.bound
        keys: list[tuple[str, int]] = []
        which = np.empty(self.n_columns, dtype=int)
        for j, (kind, w) in enumerate(zip(self.kinds, self.widths, strict=True)):
            key = (kind, w)
            if key not in keys:
                keys.append(key)
            which[j] = keys.index(key)
        parts: list[Likelihood] = []
        for kind, w in keys:
            if kind == "bernoulli":
                parts.append(BernoulliLogit(single))
            elif kind == "poisson":
                parts.append(Poisson())
            elif kind == "multinomial":
                parts.append(MultinomialLogit(w + 1, "last", "log-sum"))
            else:
                parts.append(Gaussian(np.tile(parameters.variance[self.gaussian], n)))
        if len(parts) == 1:
            return parts[0]
        return Mixed(parts, np.tile(which, n))

    def padded(self, parameters: Parameters) -> tuple[np.ndarray, np.ndarray]:
        """Loadings and offset with dead predictors where a column has fewer than the widest."""
        W = np.zeros((self.n_columns * self.width, self.n_components))
        b = np.zeros(self.n_columns * self.width)
        W[self.place], b[self.place] = parameters.loadings, parameters.offset
        return W, b

    def stretches(self, values: np.ndarray) -> list[slice]:
        step = max(1, _CELLS // (self.n_columns * self.width))
        return [slice(i, min(i + step, values.shape[0])) for i in range(0, values.shape[0], step)]

    def _solve(self, values: np.ndarray, parameters: Parameters, start: Any, tol: float, max_iter: int) -> Outcome:
        W, b = self.padded(parameters)
        n = values.shape[0]
        likelihood = self.likelihood(n, parameters)
        task = Problem(likelihood, BatchedFeatures(W, n, b), values.reshape(-1))
        return solver_for(likelihood, "newton").solve(task, start, Stopping(tol, max_iter))

    # -- all rows ----------------------------------------------------------------------------------
    def _outcomes(
        self,
        values: np.ndarray,
        parameters: Parameters,
        start: list[Any] | None,
        options: tuple[float, int],
        keep: Callable[[slice, Outcome], T],
    ) -> list[T]:
        """What is kept of the fit of each stretch of rows, in order; every core takes its share of them."""
        parts = self.stretches(values)

        def share(first: int, last: int) -> list[T]:
            found = []
            for k in range(first, last):
                begin = None if start is None else start[k]
                found.append(keep(parts[k], self._solve(values[parts[k]], parameters, begin, *options)))
            return found

        width = _CELLS if len(parts) > 1 else 1
        return [one for some in on_every_core(len(parts), width, share) for one in some]

    def rows(
        self, values: np.ndarray, parameters: Parameters, start: list[Any] | None = None, tol: float = 1e-8
    ) -> RowFits:
        """Fit q of every row at given parameters."""

        def keep(_: slice, outcome: Outcome) -> tuple[list[np.ndarray], Any, int, bool]:
            return self._of_rows(outcome.point), outcome.point.s, outcome.n_iter, outcome.converged

        found = self._outcomes(values, parameters, start, (tol, 200), keep)
        arrays, starts, n_iter, converged = (list(x) for x in zip(*found, strict=True))
        mean, cov, h, rho, elbo, gap = (np.concatenate(x) for x in zip(*arrays, strict=True))
        return RowFits(mean, cov, h, rho, elbo, gap, max(n_iter), all(converged), starts)

    def _of_rows(self, point: Any) -> list[np.ndarray]:
        """Mean, covariance, h, rho, elbo and gap of each row of one stretch."""
        task, factor = point.problem, point.factor
        own = factor.own
        mean = -(own.scatter(point.alpha) @ own.W)
        h = mean @ own.W.T + own.prior.offset
        f = task.weight * task.likelihood.f(point.h, point.rho, task.rows)

        def by_row(x: np.ndarray) -> np.ndarray:
            cells = np.zeros(own.R * own.n_cells)
            cells[slice(None) if own.keep is None else own.keep] = x
            return cells.reshape(own.R, -1).sum(axis=1)

        with np.errstate(invalid="ignore"):
            loss = by_row(np.where(task.weight > 0.0, f, 0.0))
        kl = 0.5 * (factor.log_dets - by_row(np.sum(point.lam * factor.variance, axis=1)) + np.sum(mean**2, axis=1))
        if task.likelihood.convex:
            each = task.weight * task.gaps(point.s, point.h, point.rho)
            gap = by_row(np.where(task.weight > 0.0, each, 0.0))
        else:
            r, G = own.scatter(point.r) @ own.W, own.scatter(point.d) @ own.table
            i, j = np.tril_indices(self.n_components)
            inner = small.sandwich(G, factor.V, self.n_components)[:, i == j].sum(axis=1)
            gap = 0.5 * (np.sum(r * r, axis=1) + inner)
        return [mean, factor.latent_covariances(), h[:, self.place], factor.cells[:, self.place], -kl - loss, gap]

    def evidence(
        self,
        values: np.ndarray,
        parameters: Parameters,
        start: list[Any] | None = None,
        tol: float = 1e-8,
        max_iter: int = 200,
    ) -> Evidence:
        """The evidence bound of the whole table and its gradient."""

        def keep(rows: slice, outcome: Outcome) -> Evidence:
            point: Any = outcome.point
            factor, own = point.factor, point.factor.own
            alpha, lam = own.scatter(point.alpha), own.scatter(point.lam)[:, self.place]
            mean = -(alpha @ own.W)
            pooled = small.unpack(lam.T @ factor.V)
            second = pooled + small.unpack(lam.T @ small.pairs(mean))
            W = -alpha[:, self.place].T @ mean - np.einsum("pij,pj->pi", pooled, parameters.loadings)
            v = np.zeros(self.n_columns)
            if self.gaussian.any():
                v = self._noise_slope(values[rows], mean, factor, own, parameters)
            b = -alpha[:, self.place].sum(axis=0)
            return Evidence(point.elbo, point.gap, W, b, v, second, outcome.n_iter, outcome.converged, [point.s])

        found = self._outcomes(values, parameters, start, (tol, max_iter), keep)
        sums = {
            name: sum((getattr(one, name) for one in found[1:]), getattr(found[0], name))
            for name in ("elbo", "gap", "loadings", "offset", "log_variance", "second", "start")
        }
        return Evidence(n_iter=max(one.n_iter for one in found), converged=all(one.converged for one in found), **sums)

    def _noise_slope(
        self, values: np.ndarray, mean: np.ndarray, factor: Any, own: Any, parameters: Parameters
    ) -> np.ndarray:
        """dP/dlog v of each column."""
        columns = np.flatnonzero(self.gaussian)
        at = columns * self.width
        h = mean @ own.W[at].T + own.prior.offset[at]
        y = values[:, columns]
        inner = ((y - h) ** 2 + factor.cells[:, at]) / (2.0 * parameters.variance[columns]) - 0.5
        out = np.zeros(self.n_columns)
        out[columns] = np.where(np.isnan(y), 0.0, inner).sum(axis=0)
        return out

    # -- prediction --------------------------------------------------------------------------------
    def cells(self, mean: np.ndarray, covariance: np.ndarray | None, parameters: Parameters) -> list[Any]:
        """The predictive distribution of every cell when z ~ N(mean, covariance), column by column.

        mean (R, L), covariance (R, L, L) or None for a known z. A pair (mean (R,), sd (R,)) for a poisson or gaussian
        column, probabilities (R, K) for the others.
        """
        out: list[Any] = []
        for j, (kind, own) in enumerate(zip(self.kinds, self.slices, strict=True)):
            W, b = parameters.loadings[own], parameters.offset[own]
            h = mean @ W.T + b
            V = np.zeros((mean.shape[0], W.shape[0], W.shape[0]))
            if covariance is not None:
                V = np.einsum("ai,rij,bj->rab", W, covariance, W, optimize=True)
            if kind == "multinomial" and covariance is None:
                out.append(softmax(np.column_stack([h, np.zeros(h.shape[0])]), axis=1))
            elif kind == "multinomial":
                out.append(MultinomialLogit(W.shape[0] + 1).predictive_probabilities(h, V))
            elif kind == "bernoulli":
                out.append(BernoulliLogit().predictive_probabilities(h[:, 0], V[:, 0, 0]))
            else:
                likelihood = Poisson() if kind == "poisson" else Gaussian(float(parameters.variance[j]))
                arguments = (h[:, 0], V[:, 0, 0])
                sd = np.sqrt(likelihood.predictive_variance(*arguments))
                out.append((np.asarray(likelihood.predictive_mean(*arguments)), np.asarray(sd)))
        return out
