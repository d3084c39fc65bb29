"""The factor model of a table: z_r ~ N(0, I), eta_r = W z_r + b, with a likelihood for each column.

A multinomial column with K levels has K - 1 predictors (log-sum, since the tilted bound requires predictors that are
independent a priori, and those of a cell share z). Every other column has one. Ordered levels have offset 0, as their
cutpoints contain it. The evidence of a table is the sum over its rows, each a small problem, which the engines of
``row_engines.py`` solve. At the optimum, by the envelope theorem,

    dP/dW = -sum_r (alpha_r m_r' + Lam_r W V_r),   dP/db = -sum_r alpha_r,   for theta of a likelihood: -sum_r df/dtheta
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from ..checks import choice, problem
from ..likelihoods import Gaussian
from ..likelihoods.base import Likelihood
from ..linalg import small
from ..linalg.arrays import ArrayLike
from ..linalg.machine import on_every_core
from ..priors.batched import design_slope
from ..solvers.base import Ending
from .cell_bounds import has_dual

T = TypeVar("T")

_CELLS = 1 << 17  # predictors in a block of rows, whose arrays are then a few megabytes each


@dataclass(frozen=True)
class Parameters:
    """W (P, L), b (P,), and the likelihood of each column with its parameters."""

    loadings: np.ndarray
    offset: np.ndarray
    likelihoods: tuple[Likelihood, ...]

    @property
    def variance(self) -> np.ndarray:
        """The noise variance of Gaussian columns (D,), NaN for others."""
        return np.array([own.variance if type(own) is Gaussian else np.nan for own in self.likelihoods])

    def with_variance(self, variance: np.ndarray) -> Parameters:
        """The same parameters with other noise variances of Gaussian columns (D,)."""
        each = zip(self.likelihoods, variance.tolist(), strict=True)
        own = tuple(one.changed(variance=v) if type(one) is Gaussian else one for one, v in each)
        return replace(self, likelihoods=own)


class Solved(ABC):
    """q for each row of a block, from an engine.

    s : where a fit of the same rows with near parameters may begin
    mean (R, L), V (R, L (L + 1) / 2) : of z, with V packed
    alpha, lam (R, P) : for each predictor, 0 for missing cells
    moments : mean and variance of each predictor, each (R, P)
    total, off : their evidence bound, and an upper bound of its distance from that of the best Gaussian
    """

    s: np.ndarray
    mean: np.ndarray
    V: np.ndarray
    alpha: np.ndarray
    lam: np.ndarray
    moments: tuple[np.ndarray, np.ndarray]
    p: Parameters
    values: np.ndarray
    total: float
    off: float
    n_iter: int
    converged: bool

    @property
    @abstractmethod
    def elbo(self) -> np.ndarray:
        """The evidence bound of each row (R,)."""

    @property
    @abstractmethod
    def gap(self) -> np.ndarray:
        """An upper bound of its distance from that of the best Gaussian (R,)."""

    def slopes(self) -> list[np.ndarray]:
        """dP/dtheta for each column's likelihood; likelihoods with parameters have one predictor."""
        out, (h, rho), at = [], self.moments, 0
        for own, y in zip(self.p.likelihoods, self.values.T, strict=True):
            if own.theta.size:
                out.append(own.theta_gradient(h[:, [at]], rho[:, [at]], own.prepare(y)))
            at += own.n_predictors
        return out


@dataclass(frozen=True)
class RowFits:
    """q for each row of a table.

    mean (R, L), covariance (R, L, L) : of z
    h, rho (R, P) : mean and variance of each predictor, for missing cells as well
    elbo, gap (R,) : evidence bound of each row, and an upper bound of its distance from that of the best Gaussian
    start : where a fit of the same table with near parameters may begin
    """

    mean: np.ndarray
    covariance: np.ndarray
    h: np.ndarray
    rho: np.ndarray
    elbo: np.ndarray
    gap: np.ndarray
    n_iter: int
    converged: bool
    start: list[np.ndarray]


@dataclass
class TableFit:
    """The evidence bound of a table with its gradient, as a search over parameters uses it."""

    elbo: float
    gap: float
    loadings: np.ndarray  # (P, L)
    offset: np.ndarray  # (P,)
    own: np.ndarray  # of the likelihoods' parameters, in the order of columns
    second: np.ndarray  # (P, L, L)  sum_r lam_rp E[z z']: approximate curvature in the loadings of each predictor
    n_iter: int
    optimal: bool
    start: list[np.ndarray]
    tol: float = 0.0
    rounding: float = 0.0
    ending: Ending = field(init=False)

    def __add__(self, other: TableFit) -> TableFit:
        names = ("elbo", "gap", "loadings", "offset", "own", "second", "start")
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        n_iter, optimal = max(self.n_iter, other.n_iter), self.optimal and other.optimal
        return TableFit(**sums, n_iter=n_iter, optimal=optimal, tol=self.tol)

    def __post_init__(self) -> None:
        code, size = "converged" if self.optimal else "gap", self.gap / max(1.0, abs(self.elbo))
        self.ending = Ending(code, "relative gap", size, self.tol, "some rows' fits did not reach their gap")

    def judged_by(self, tol: float) -> TableFit:
        return self


class FactorModel:
    """Columns and a number of factors, without parameters and data.

    Parameters
    ----------
    likelihoods : sequence of Likelihood
        One for each column.
    n_components : int
    noise : {"column", "shared"}
        A noise variance for each Gaussian column (factor analysis), or one for all (probabilistic PCA).

    Examples
    --------
    >>> from fenchel.factors.factor_model import FactorModel
    >>> from fenchel.likelihoods import BernoulliLogit, MultinomialLogit
    >>> model = FactorModel([BernoulliLogit(), MultinomialLogit(3)], n_components=1)
    >>> model.n_predictors, model.slices
    (3, [slice(0, 1, None), slice(1, 3, None)])
    """

    def __init__(self, likelihoods: Sequence[Likelihood], n_components: int, noise: str = "column") -> None:
        choice("FactorModel", "noise", noise, ("column", "shared"))
        self.likelihoods, self.noise = tuple(likelihoods), noise
        self.widths = [own.n_predictors for own in self.likelihoods]
        ends = np.cumsum(self.widths)
        self.slices = [slice(int(e - w), int(e)) for e, w in zip(ends, self.widths, strict=True)]
        self.n_predictors, self.n_columns, self.n_components = int(ends[-1]), len(self.widths), int(n_components)
        if not 1 <= self.n_components <= self.n_predictors:
            raise problem(
                "FactorModel",
                f"{n_components} factors for a table of {self.n_predictors} predictors",
                f"a number between 1 and {self.n_predictors}",
            )
        self.gaussian = np.array(
            [type(own) is Gaussian for own in self.likelihoods]
        )  # a single column of its kind has its own units
        self.ordered = np.array([own.ordered for own in self.likelihoods])
        ends = np.cumsum([0, *(own.theta.size for own in self.likelihoods)])
        self.own = [slice(int(i), int(k)) for i, k in pairwise(ends)]  # slices of the likelihoods' parameters
        odd = next((own for own in self.likelihoods if not has_dual(own)), None)
        self.has_dual = odd is None
        if odd is not None and any(own.objective.coupled for own in self.likelihoods):
            raise problem(
                "FactorModel",
                f"{odd!r} cannot be used in a table with a column of categories",
                "bernoulli, poisson, ordinal, multinomial and gaussian columns beside one of several predictors",
                "Leave the categories out, or make them a column of 0 and 1 for each level.",
            )

    def of_predictors(self, x: ArrayLike) -> np.ndarray:
        """From values of columns (D,) to values of their predictors (P,)."""
        return np.repeat(x, self.widths)

    def check(self, p: Parameters) -> None:
        """Refuse parameters of another model, since the fits rely on their shapes."""
        shapes = np.shape(p.loadings), np.shape(p.offset)
        kinds = [(type(own), own.n_predictors, own.theta.size) for own in p.likelihoods]
        own_kinds = [(type(own), own.n_predictors, own.theta.size) for own in self.likelihoods]
        if shapes != ((self.n_predictors, self.n_components), (self.n_predictors,)) or kinds != own_kinds:
            got = f"loadings of shape {shapes[0]}, offsets of shape {shapes[1]} and {len(kinds)} likelihoods"
            raise problem("FactorModel", got, f"those of {self.n_columns} columns and {self.n_components} factors")

    # -- all rows ----------------------------------------------------------------------------------
    def stretches(self, values: np.ndarray) -> list[slice]:
        step = max(1, _CELLS // self.n_predictors)
        return [slice(i, min(i + step, values.shape[0])) for i in range(0, values.shape[0], step)]

    def by_stretch(self, values: np.ndarray, start: list[Any] | None, work: Callable[[slice, Any], T]) -> list[T]:
        """``work(rows, start)`` for each block of rows, in order, on all cores."""
        parts = self.stretches(values)

        def share(first: int, last: int) -> list[T]:
            return [work(parts[k], None if start is None else start[k]) for k in range(first, last)]

        width = _CELLS if len(parts) > 1 else 1
        return [one for some in on_every_core(len(parts), width, share) for one in some]

    def solve(
        self, values: np.ndarray, p: Parameters, start: ArrayLike | None, tol: float, max_iter: int = 200
    ) -> Solved:
        """q for each row of one block."""
        from .row_engines import DualRows, GeneralRows

        expected = (self.n_predictors, self.n_components)
        if p.loadings.shape != expected or p.offset.shape != expected[:1] or values.shape[1] != self.n_columns:
            got = f"a table of {values.shape[1]} columns was given with loadings of shape {p.loadings.shape}"
            raise problem("FactorModel", got, f"{self.n_columns} columns and {expected}")
        engine = DualRows if self.has_dual else GeneralRows
        return engine(self, values, p, start, tol, max_iter)

    def rows(self, values: np.ndarray, p: Parameters, start: list[Any] | None = None, tol: float = 1e-8) -> RowFits:
        """Fit q for each row at given parameters."""
        back = small.doubled(small.pairs(p.loadings)).T

        def work(rows: slice, begin: Any) -> RowFits:
            fits = self.solve(values[rows], p, begin, tol)
            h, rho, ended = fits.mean @ p.loadings.T + p.offset, fits.V @ back, (fits.n_iter, fits.converged)
            return RowFits(fits.mean, small.unpack(fits.V), h, rho, fits.elbo, fits.gap, *ended, [fits.s])

        fits = self.by_stretch(values, start, work)
        names = ("mean", "covariance", "h", "rho", "elbo", "gap")
        arrays = {name: np.concatenate([getattr(one, name) for one in fits]) for name in names}
        n_iter, converged = max(one.n_iter for one in fits), all(one.converged for one in fits)
        return RowFits(n_iter=n_iter, converged=converged, start=[s for one in fits for s in one.start], **arrays)

    def evidence(
        self, values: np.ndarray, p: Parameters, start: list[Any] | None = None, tol: float = 1e-8, max_iter: int = 200
    ) -> TableFit:
        """The evidence bound of the whole table, and its gradient."""

        def work(rows: slice, begin: Any) -> TableFit:
            fits = self.solve(values[rows], p, begin, tol, max_iter)
            pooled = small.unpack(fits.lam.T @ fits.V)
            second = pooled + small.unpack(fits.lam.T @ small.pairs(fits.mean))
            W = design_slope(fits.alpha, fits.mean, pooled, p.loadings)
            b = np.where(self.of_predictors(self.ordered), 0.0, -fits.alpha.sum(axis=0))
            own, ended = np.concatenate([np.zeros(0), *fits.slopes()]), (fits.n_iter, fits.converged)
            return TableFit(fits.total, fits.off, W, b, own, second, *ended, [fits.s], tol)

        return reduce(lambda one, other: one + other, self.by_stretch(values, start, work))
