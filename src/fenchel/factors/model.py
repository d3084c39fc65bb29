"""The factor model of a table: z_r ~ N(0, I), eta_r = W z_r + b, every column with a likelihood of its own.

    column          predictors   likelihood
    bernoulli       1            BernoulliLogit(bound)
    poisson         1            Poisson
    multinomial, K  K - 1        MultinomialLogit(K, "last"), log-sum (the tilted bound wants predictors that are
                                 independent a priori, and those of a cell share z)
    ordinal, K      1            Ordinal(cutpoints, bound): the offset is 0, the K - 1 cutpoints hold the level
    gaussian        1            Gaussian(v_j)

The evidence of a table is the sum over its rows, each a small problem of its own: ``dual.py`` solves them one by one in
a compiled loop, ``exact.py`` together where there is no dual. At the optimum, by the envelope theorem,

    dP/dW = -sum_r (alpha_r m_r' + Lam_r W V_r),   dP/db = -sum_r alpha_r,
    dP/dlog v_j = sum_r [((y - h)^2 + rho) / (2 v_j) - 1/2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from scipy.special import softmax

from ..checks import choice, problem
from ..likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Ordinal, Poisson
from ..linalg.rows import on_every_core

T = TypeVar("T")

KINDS = ("bernoulli", "poisson", "multinomial", "ordinal", "gaussian")
_CELLS = 1 << 17  # predictors of one stretch of rows: its arrays are a few megabytes each


@dataclass(frozen=True)
class Parameters:
    """W (P, L), b (P,), the noise variances (D,), NaN for columns that are not gaussian, and all cutpoints in a row."""

    loadings: np.ndarray
    offset: np.ndarray
    variance: np.ndarray
    cutpoints: np.ndarray = field(default_factory=lambda: np.zeros(0))


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
    cutpoints: np.ndarray  # of each ordinal column: in its first cutpoint and the logs of the steps to the next ones
    second: np.ndarray  # (P, L, L)  sum_r lam_rp E[z z']: the curvature in each predictor's loadings, nearly
    n_iter: int
    converged: bool
    start: list[Any]

    def __add__(self, other: Evidence) -> Evidence:
        names = ("elbo", "gap", "loadings", "offset", "log_variance", "cutpoints", "second", "start")
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Evidence(n_iter=max(self.n_iter, other.n_iter), converged=self.converged and other.converged, **sums)


class FactorModel:
    """Columns and a number of factors; parameters and data are passed in.

    Parameters
    ----------
    kinds : sequence of {"bernoulli", "poisson", "multinomial", "ordinal", "gaussian"}
        One a column.
    n_levels : sequence of int
        K of each multinomial or ordinal column; ignored for others.
    n_components : int
    bound : {"tilted", "log-sum", "exact"}
        For the bernoulli and ordinal columns; beside a multinomial column "exact" means tilted.
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
        self.kinds, self.noise, self.levels = tuple(kinds), noise, [int(K) for K in n_levels]
        self.widths = [K - 1 if kind == "multinomial" else 1 for kind, K in zip(kinds, self.levels, strict=True)]
        self.bound = "tilted" if bound == "exact" and max(self.widths) > 1 else bound
        ends = np.cumsum(self.widths)
        self.slices = [slice(int(e - w), int(e)) for e, w in zip(ends, self.widths, strict=True)]
        self.n_predictors, self.n_columns, self.n_components = int(ends[-1]), len(self.kinds), int(n_components)
        if not 1 <= self.n_components <= self.n_predictors:
            raise problem(
                "FactorModel",
                f"{n_components} factors for a table of {self.n_predictors} predictors",
                f"a number between 1 and {self.n_predictors}",
            )
        self.gaussian = np.array([kind == "gaussian" for kind in self.kinds])
        self.ordinal = np.array([kind == "ordinal" for kind in self.kinds])
        steps = np.cumsum([0, *(K - 1 if own else 0 for K, own in zip(self.levels, self.ordinal, strict=True))])
        self.cuts = [slice(int(i), int(k)) for i, k in pairwise(steps)]  # empty for most

    # -- all rows ----------------------------------------------------------------------------------
    def stretches(self, values: np.ndarray) -> list[slice]:
        step = max(1, _CELLS // self.n_predictors)
        return [slice(i, min(i + step, values.shape[0])) for i in range(0, values.shape[0], step)]

    def by_stretch(self, values: np.ndarray, start: list[Any] | None, work: Callable[[slice, Any], T]) -> list[T]:
        """``work(rows, start)`` of each stretch of rows, in order; every core takes its share of them."""
        parts = self.stretches(values)

        def share(first: int, last: int) -> list[T]:
            return [work(parts[k], None if start is None else start[k]) for k in range(first, last)]

        width = _CELLS if len(parts) > 1 else 1
        return [one for some in on_every_core(len(parts), width, share) for one in some]

    @cached_property
    def layout(self) -> Any:
        """Where the potentials of the compiled loop are."""
        from .dual import Layout

        return Layout(self)

    @property
    def _engine(self) -> Any:
        """What solves the rows."""
        from . import dual, exact

        return exact if self.bound == "exact" else dual

    def rows(
        self, values: np.ndarray, parameters: Parameters, start: list[Any] | None = None, tol: float = 1e-8
    ) -> RowFits:
        """Fit q of every row at given parameters."""

        def work(rows: slice, begin: Any) -> RowFits:
            return self._engine.rows(self, values[rows], parameters, begin, tol)

        found = self.by_stretch(values, start, work)
        names = ("mean", "covariance", "h", "rho", "elbo", "gap")
        arrays = {name: np.concatenate([getattr(one, name) for one in found]) for name in names}
        n_iter, converged = max(one.n_iter for one in found), all(one.converged for one in found)
        start = [s for one in found for s in one.start]
        return RowFits(n_iter=n_iter, converged=converged, start=start, **arrays)

    def evidence(
        self,
        values: np.ndarray,
        parameters: Parameters,
        start: list[Any] | None = None,
        tol: float = 1e-8,
        max_iter: int = 200,
    ) -> Evidence:
        """The evidence bound of the whole table and its gradient."""

        def work(rows: slice, begin: Any) -> Evidence:
            return self._engine.evidence(self, values[rows], parameters, begin, tol, max_iter)

        return reduce(lambda one, other: one + other, self.by_stretch(values, start, work))

    def sites(self, values: np.ndarray, parameters: Parameters, tol: float) -> tuple[np.ndarray, ...]:
        """alpha and lam of every predictor (R, P), mean (R, L) and covariance (R, L, L) of z, of one stretch."""
        found: tuple[np.ndarray, ...] = self._engine.sites(self, values, parameters, tol)
        return found

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
            elif kind == "ordinal":
                levels = Ordinal(parameters.cutpoints[self.cuts[j]])
                out.append(levels.predictive_probabilities(h[:, 0], V[:, 0, 0]))
            elif kind == "bernoulli":
                out.append(BernoulliLogit().predictive_probabilities(h[:, 0], V[:, 0, 0]))
            else:
                likelihood = Poisson() if kind == "poisson" else Gaussian(float(parameters.variance[j]))
                arguments = (h[:, 0], V[:, 0, 0])
                sd = np.sqrt(likelihood.predictive_variance(*arguments))
                out.append((np.asarray(likelihood.predictive_mean(*arguments)), np.asarray(sd)))
        return out
