"""Starting points of learning: columns without factors, then principal components of the standardised table.

A column without factors has an offset estimated from its cells, with half a count or half a level added, and parameters
of its likelihood (a variance, cutpoints) estimated from the cells. Other likelihoods keep their parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ..checks import problem
from ..likelihoods import Gaussian, Poisson
from ..likelihoods.base import Likelihood
from ..likelihoods.ordinal import Cumulative
from .columns import Column, is_softmax

if TYPE_CHECKING:
    from .factor_model import FactorModel, Parameters, TableFit


# -- Gaussian columns in units of their own, so that one prior on the loadings suits every column ---
# y'_j = (y_j - m_j) / u_j:    W = u_j W',   b = m_j + u_j b',   v = u_j^2 v',
#                                  log p(y) = log p(y') - sum_j n_j log u_j,   n_j observed cells of column j
#
# where u_j is the column's standard deviation if each column has its own noise. If all share one noise, whose meaning
# must not depend on the column, u_j is the root mean square of these. Columns that are not Gaussian are unchanged.
@dataclass(frozen=True)
class Units:
    """Mean and unit of each column (D,): 0 and 1 for columns that are not Gaussian."""

    middle: np.ndarray
    unit: np.ndarray

    def apply(self, values: np.ndarray) -> np.ndarray:
        """The table in these units (R, D)."""
        return (values - self.middle) / self.unit

    def log_volume(self, values: np.ndarray) -> np.ndarray:
        """The change in each row's log density by the units (R,): the sum of log u_j over its observed cells."""
        return np.asarray(~np.isnan(values) @ np.log(self.unit))

    def restore(self, model: FactorModel, p: Parameters) -> Parameters:
        """Parameters in the units of the original table."""
        middle, unit = (np.repeat(x, model.widths) for x in (self.middle, self.unit))
        scaled = replace(p, loadings=unit[:, None] * p.loadings, offset=middle + unit * p.offset)
        return scaled.with_variance(self.unit**2 * p.variance)


def units(where: str, values: np.ndarray, columns: Sequence[Column], noise: str) -> Units:
    """Units of a table (R, D) without empty columns; a constant column that leaves no noise is refused."""
    is_gaussian, D = np.array([type(column.likelihood) is Gaussian for column in columns]), len(columns)
    middle, unit = np.zeros(D), np.ones(D)
    if not is_gaussian.any():
        return Units(middle, unit)
    y = values[:, is_gaussian]
    middle[is_gaussian], sd = np.nanmean(y, axis=0), np.nanstd(y, axis=0)
    constant = ~(sd > 1e-12 * np.nanmax(np.abs(y), axis=0))
    if constant.any() and (noise == "column" or constant.all()):
        name = columns[int(np.flatnonzero(is_gaussian)[constant][0])].name
        raise problem(
            where,
            f"the gaussian column {name!r} is constant",
            "numbers that differ: without noise the evidence has no maximum",
            "Leave the column out, or share the noise among the columns.",
        )
    unit[is_gaussian] = sd if noise == "column" else np.sqrt(np.mean(sd**2))
    return Units(middle, unit)


# -- A complete table of real numbers: its evidence needs only the mean and the covariance S of its rows ---
# log p = -R/2 [D log 2 pi + log|C| + tr C^-1 (S + d d')],   C = W W' + diag(v),   d = mean - b
#
# With A = I + W' diag(v)^-1 W = V^-1 and E = V W' diag(v)^-1, E[z | y] = E (y - b) and sum_r E[z z'] =
# R (V + E (S + d d') E'), so that an evaluation costs O(D^2 L) instead of O(R D L). With one noise for all columns the
# maximum has a closed form (Tipping and Bishop 1999; here with the prior strength/2 |W|^2): with S = U diag(lam) U',
# lam descending, W = U_q diag(c - v)^1/2,
#
#     strength c^2 + R c = R lam            for each factor, kept if c > v
#     R sum_i (v - lam_i) = q strength v^2  over the D - q roots without a factor;    strength 0: their mean
#
# The maximum has the roots c and v that tend to these as strength -> 0.
class GaussianMoments:
    """Size R, mean (D,) and covariance (D, D) of a complete table of Gaussian columns."""

    def __init__(self, n_rows: int, mean: np.ndarray, covariance: np.ndarray) -> None:
        self.n_rows, self.mean, self.covariance = n_rows, mean, covariance

    @classmethod
    def of(cls, values: np.ndarray) -> GaussianMoments:
        """The moments of a table in memory."""
        mean = values.mean(axis=0)
        centred = values - mean
        return cls(values.shape[0], mean, centred.T @ centred / values.shape[0])

    def evidence(self, p: Parameters) -> TableFit:
        """The same as ``FactorModel.evidence`` of the table; it is exact, with gap 0."""
        from .factor_model import TableFit

        (D, L), R, v, W = p.loadings.shape, self.n_rows, p.variance, p.loadings
        away = self.mean - p.offset
        S = self.covariance + np.outer(away, away)
        scaled = W / v[:, None]
        root = np.linalg.cholesky(np.eye(L) + W.T @ scaled)
        V = np.linalg.inv(root.T) @ np.linalg.inv(root)
        E = V @ scaled.T
        cross = S @ E.T  # sum_r (y - b) E[z]' / R
        second = V + E @ cross
        left = np.diag(S) - 2.0 * np.sum(cross * W, axis=1) + np.sum((W @ second) * W, axis=1)  # E (y - eta)^2
        fit = np.sum(np.diag(S) / v) - np.sum(cross * scaled)  # tr C^-1 S
        log_det = 2.0 * np.sum(np.log(np.diag(root))) + np.sum(np.log(v))
        elbo = -0.5 * R * (D * np.log(2.0 * np.pi) + log_det + fit)
        slope = R * (cross - W @ second) / v[:, None]
        offset = R * (away - W @ (E @ away)) / v
        pooled = (R / v)[:, None, None] * second
        own = 0.5 * R * (left / v - 1.0)
        return TableFit(float(elbo), 0.0, slope, offset, own, pooled, 0, bool(np.isfinite(elbo)), [])

    def shared(self, model: FactorModel, strength: float, least: float) -> Parameters:
        """The maximum if all columns share one noise variance, which is at least ``least``."""
        from .factor_model import Parameters

        R, L = self.n_rows, model.n_components
        roots, U = np.linalg.eigh(self.covariance)
        roots, U = np.maximum(roots[::-1], 0.0), U[:, ::-1]
        c = 2.0 * roots / (1.0 + np.sqrt(1.0 + 4.0 * roots * strength / R))
        v = least
        for q in range(min(L, roots.size), -1, -1):  # a root that does not exceed the noise gives no factor
            rest = roots[q:]
            if rest.size:
                inner = max(0.0, rest.size**2 - 4.0 * q * strength * float(rest.sum()) / R)
                v = max(least, 2.0 * float(rest.sum()) / (rest.size + np.sqrt(inner)))
            if q == 0 or c[q - 1] > v:
                break
        length = np.zeros(L)
        length[:q] = np.sqrt(c[:q] - v)
        W = np.zeros((roots.size, L))
        W[:, : min(L, roots.size)] = U[:, :L]
        return Parameters(W * length, self.mean.copy(), model.likelihoods).with_variance(np.full(roots.size, v))


# -- Starts ----------------------------------------------------------------------------------------
class Summary(NamedTuple):
    """Statistics of a single column: cells, mean, standard deviation, sum, and the count of each level (K,).

    ``cells`` (R,) has NaN for missing cells; a user's likelihood may use them.
    """

    n: int
    mean: float
    sd: float
    total: float
    counts: np.ndarray
    cells: np.ndarray


def summary(own: Likelihood, y: np.ndarray) -> Summary:
    """Statistics of a column y (R,) with NaN for missing cells; all may be missing."""
    seen = y[~np.isnan(y)]
    mean, sd = (float(seen.mean()), float(seen.std())) if seen.size else (0.0, 1.0)
    counts = np.bincount(seen.astype(np.intp), minlength=own.n_levels) if own.support == "levels" else np.zeros(0)
    return Summary(seen.size, mean, sd, float(seen.sum()), counts, y)


class Score(NamedTuple):
    """Cells at unit variance, 0 if missing: a row of ``table`` (K, C) for each level, or standardised numbers."""

    table: np.ndarray | None
    centre: float = 0.0
    unit: float = 1.0

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """The scores (R, C) of y (R,) with NaN for missing cells."""
        seen, table = ~np.isnan(y), self.table
        out = np.zeros((y.size, 1 if table is None else table.shape[1]))
        if table is not None:
            out[seen] = table[y[seen].astype(np.intp)]
        else:
            out[seen, 0] = (y[seen] - self.centre) / self.unit
        return out


class Begin(NamedTuple):
    """The start of a column without factors: its scores, offset (C,), scale of eta, likelihood."""

    score: Score
    offset: np.ndarray
    scale: float
    likelihood: Likelihood


def begin(own: Likelihood, column: Summary) -> Begin:
    """The start of a single column, of which all cells may be missing."""
    if own.support == "levels":
        return _levels(own, column)
    n, mean, sd = column.n, column.mean, column.sd
    if isinstance(own, Poisson) and own.exposure is None:
        mean = (column.total + 0.5) / (n + 1.0)
        return Begin(Score(None, mean, max(sd, mean**0.5)), np.array([np.log(mean)]), min(1.0, mean**-0.5), own)
    sd = sd if sd > 0.0 else 1.0
    score = Score(None, mean, sd)
    if type(own) is Gaussian:
        return Begin(score, np.array([mean]), sd, own.changed(variance=sd * sd))
    y = column.cells
    return Begin(score, np.array([own.level(y) if n else 0.0]), own.scale_of(y) if n else 1.0, own)


def _levels(own: Likelihood, column: Summary) -> Begin:
    seen, n, K = column.counts.astype(np.float64), column.n, own.n_levels
    counts = seen + 0.5
    share = counts / counts.sum()
    if own.ordered:
        own = cast(Cumulative, own)
        below = np.cumsum(counts)[:-1] / counts.sum()
        middle = (np.concatenate([[0.0], below]) + np.concatenate([below, [1.0]])) / 2
        spread = float(np.sqrt(seen @ (middle - seen @ middle / n) ** 2 / n)) if n else 1.0
        score = Score(((middle - 0.5) / max(spread, 1e-3))[:, None])
        return Begin(score, np.zeros(1), 2.0, own.changed(cutpoints=own.link(below)))
    if not is_softmax(own):
        score = Score(((np.arange(K) - share[1]) / np.sqrt(share[1] * (1.0 - share[1])))[:, None])
        return Begin(score, np.array([own.level(np.arange(float(K)), seen)]), 2.0, own)
    share = share[:-1]
    score = Score((np.eye(K)[:, :-1] - share) / np.sqrt(share * (1.0 - share)))
    return Begin(score, np.log(share / (1.0 - share.sum())), 2.0, own)


class Starts:
    """Starting points of a search on a table (R, D)."""

    def __init__(self, model: FactorModel, values: np.ndarray) -> None:
        from .factor_model import Parameters

        self.model, self.values = model, values
        self.columns = [summary(own, y) for own, y in zip(model.likelihoods, values.T, strict=True)]
        columns = [begin(own, said) for own, said in zip(model.likelihoods, self.columns, strict=True)]
        self.scores = [one.score for one in columns]
        self.scale = np.repeat([one.scale for one in columns], model.widths)
        offset = np.concatenate([one.offset for one in columns])
        self.alone = Parameters(
            np.zeros((model.n_predictors, model.n_components)), offset, tuple(one.likelihood for one in columns)
        )

    def principal(self) -> Parameters:
        """Loadings from the principal components, and the remaining variance as noise."""
        model = self.model
        with np.errstate(over="ignore"):
            Z = np.hstack([score(y) for score, y in zip(self.scores, self.values.T, strict=True)])
            C = Z.T @ Z / max(1, self.values.shape[0])
        roots, vectors = np.linalg.eigh(C)
        order = np.argsort(roots)[::-1][: model.n_components]
        length = np.sqrt(np.maximum(roots[order] - np.median(roots), 0.05))
        W = self.scale[:, None] * vectors[:, order] * length
        left = 1.0 - np.sum((W / self.scale[:, None]) ** 2, axis=1)
        noise = self.alone.variance * np.maximum([float(left[own.start]) for own in model.slices], 0.1)
        return self._with(W, noise)

    def at_random(self, rng: np.random.Generator) -> Parameters:
        W = 0.5 * self.scale[:, None] * rng.standard_normal(self.alone.loadings.shape)
        return self._with(W, self.alone.variance)

    def _with(self, W: np.ndarray, noise: np.ndarray) -> Parameters:
        if self.model.noise == "shared" and self.model.gaussian.any():
            noise = np.full(noise.size, np.mean(noise[self.model.gaussian]))
        return replace(self.alone, loadings=W).with_variance(noise)
