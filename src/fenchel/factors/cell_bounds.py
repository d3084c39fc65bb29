"""The bounds of all cells of a table at once, from the convex bounds of their likelihoods.

A potential is one coordinate s of the dual. A column has one potential for each predictor, and an ordinal column has
two. Arrays are (Q, R) over potentials or (P, R) over predictors, where R is the number of rows of the table.
Columns with the same bound are evaluated together.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..likelihoods.base import Likelihood
from ..likelihoods.bounds import ConvexBound


def has_dual(likelihood: Likelihood) -> bool:
    """Whether rows with a likelihood have a dual here; a softmax with a predictor for each level has no reference."""
    bound = likelihood.objective
    return bound.convex and not likelihood.row_values and not bound.dual.domain.exactly


def grouped(values: Iterable[Hashable]) -> list[list[int]]:
    """The indices of equal values."""
    out: dict[Hashable, list[int]] = {}
    for j, value in enumerate(values):
        out.setdefault(value, []).append(j)
    return list(out.values())


def _shared_bound(likelihood: Likelihood) -> Hashable:
    """A key that is equal for likelihoods with the same bound apart from the parameters of their rows."""
    alike = likelihood.rows_hold_parameters or not likelihood.parameters
    return (type(likelihood), likelihood.bound, likelihood.n_levels) if alike else id(likelihood)


@dataclass
class CellSites:
    """All potentials at one s; a missing cell has value, alpha, lam and spread 0."""

    value: np.ndarray  # (R,)  sum of k - mt alpha - const
    alpha: np.ndarray  # (P, R)
    lam: np.ndarray  # (P, R)
    slope: np.ndarray  # (Q, R)  dlam/dtau
    bend: np.ndarray  # (Q, R)  d2lam/dtau2
    spread: np.ndarray  # (Q, R)
    slack: np.ndarray  # (S, R)  for each softmax column


@dataclass(frozen=True)
class SharedCells:
    """The cells of n columns with the same bound, ordered by column.

    potentials (n, p), predictors (n, c) : the indices of these for each column
    slack : the rows of ``CellSites.slack`` for softmax columns
    """

    bound: ConvexBound
    rows: dict[str, np.ndarray]
    potentials: np.ndarray
    predictors: np.ndarray
    slack: slice

    @property
    def weight(self) -> np.ndarray:
        """The weight of each cell (n R,)."""
        return np.asarray(self.rows["weight"])

    def read(self, x: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Rows ``places`` of x (., R) in the order of cells (n R, .)."""
        return x[places.T].reshape(places.shape[1], -1).T

    def write(self, out: np.ndarray, places: np.ndarray, x: Any) -> None:
        """The reverse of ``read``, into ``out`` (., R)."""
        n, p = places.shape
        out[places.T] = x.T.reshape(p, n, -1)

    def by_column(self, x: np.ndarray) -> np.ndarray:
        """Values of cells (n R,) as (n, R)."""
        return x.reshape(self.potentials.shape[0], -1)

    def gap(self, s: np.ndarray, h: np.ndarray, rho: np.ndarray) -> np.ndarray:
        """The gap of each cell (n R,), per unit of weight."""
        at, centre = self.read(s, self.potentials), self.read(h, self.predictors)
        return np.asarray(self.bound.gap(at, centre, self.read(rho, self.predictors), self.rows))

    def gap_bound(self, rho: np.ndarray, g: np.ndarray) -> np.ndarray | None:
        """An upper bound of the gap, if the likelihood's bound has a cheap one."""
        gaps: Any = self.bound.gap_bound(self.read(g, self.potentials), self.read(rho, self.predictors), self.rows)
        return gaps

    def take(self, some: np.ndarray) -> SharedCells:
        """The cells of selected rows of the table."""
        n = self.potentials.shape[0]
        few = {key: x.reshape(n, -1, *x.shape[1:])[:, some] for key, x in self.rows.items()}
        return replace(self, rows={key: np.asfortranarray(x.reshape(-1, *x.shape[2:])) for key, x in few.items()})


class TableCells:
    """The cells of a table.

    likelihoods : D likelihoods, each with a convex bound
    values : (R, D), NaN for missing cells
    mean : (P,) prior means of the predictors

    Attributes:
    owner : (Q,) the predictor of each potential
    sign, reach : (Q, 1) for each potential
    softmax : the groups of columns whose potentials have a common normalisation
    """

    def __init__(self, likelihoods: Sequence[Likelihood], values: np.ndarray, mean: np.ndarray) -> None:
        bounds = [own.objective.dual for own in likelihoods]
        predictors = _places([own.n_predictors for own in likelihoods])
        potentials = _places([len(bound.layout) for bound in bounds])
        self.owner = np.concatenate([at[list(bound.layout)] for at, bound in zip(predictors, bounds, strict=True)])
        self.mean, self.shape = mean[:, None], (self.owner.size, values.shape[0])
        self.sign, self.reach = np.empty((self.shape[0], 1)), np.empty((self.shape[0], 1))
        self.groups, self.n_slack = list[SharedCells](), 0
        for columns in grouped(map(_shared_bound, likelihoods)):
            same = [[columns[k] for k in some] for some in grouped(id(likelihoods[j]) for j in columns)]
            columns = [j for some in same for j in some]
            each = [likelihoods[some[0]].prepare(values[:, some].T.ravel()) for some in same]
            rows = {key: np.asfortranarray(np.concatenate([one[key] for one in each])) for key in each[0]}
            at, of = (np.stack([every[j] for j in columns]) for every in (potentials, predictors))
            bound, first = bounds[columns[0]], self.n_slack
            self.n_slack += len(columns) if bound.coupled else 0
            group = SharedCells(bound, rows, at, of, slice(first, self.n_slack))
            self.groups.append(group)
            self.sign[group.potentials] = bound.signs(rows)[0][:, None]
            self.reach[group.potentials] = bound.reach(rows)

    @property
    def softmax(self) -> list[SharedCells]:
        return [group for group in self.groups if group.bound.coupled]

    def of_potentials(self, x: np.ndarray) -> np.ndarray:
        """From values of predictors (P, ...) to values of their potentials (Q, ...)."""
        return x if self.owner.size == x.shape[0] else x[self.owner]

    def take(self, rows: np.ndarray) -> TableCells:
        """The cells of selected rows of the table."""
        out = copy.copy(self)
        out.shape = self.shape[0], rows.size
        out.groups = [group.take(rows) for group in self.groups]
        return out

    def sites(self, s: np.ndarray) -> CellSites:
        """The sites of all potentials at s (Q, R)."""
        R, P = s.shape[1], self.mean.size
        out = CellSites(*map(np.zeros, [R, (P, R), (P, R), s.shape, s.shape, s.shape, (self.n_slack, R)]))
        for group in self.groups:
            site = group.bound.site(group.read(s, group.potentials), group.rows)
            w = group.weight[:, None]
            group.write(out.alpha, group.predictors, w * site.alpha)
            group.write(out.lam, group.predictors, w * site.lam)
            group.write(out.slope, group.potentials, site.lam_slope)
            group.write(out.spread, group.potentials, w * site.spread)
            if group.bound.curved:
                group.write(out.bend, group.potentials, site.lam_curvature / np.where(w > 0.0, w, 1.0))
            if site.slack is not None:
                out.slack[group.slack] = group.by_column(group.weight * site.slack)
            conjugate = group.weight * (site.k - group.bound.likelihood.constant(group.rows))
            out.value += group.by_column(conjugate).sum(axis=0)
        out.value -= np.sum(self.mean * out.alpha, axis=0)
        return out

    def gap(self, s: np.ndarray, h: np.ndarray, rho: np.ndarray, g: np.ndarray, exact: bool) -> np.ndarray:
        """The gap of each row (R,) for predictors with mean h and variance rho (P, R), or a cheap bound of it.

        g (Q, R) is the derivative of the dual in tau.
        """
        out = np.zeros(self.shape[1])
        for group in self.groups:
            each = None if exact else group.gap_bound(rho, g)
            each = group.gap(s, h, rho) if each is None else each
            out += group.by_column(np.where(group.weight > 0.0, group.weight * each, 0.0)).sum(axis=0)
        return out

    def bounded(self, site: CellSites, ds: np.ndarray) -> np.ndarray:
        """ds limited to the reach of each potential; in a softmax, relative to the mean of all classes."""
        out = np.clip(ds, -self.reach, self.reach)
        for group in self.softmax:
            at = group.potentials
            mean = np.sum(site.spread[at] * ds[at], axis=1, keepdims=True)
            reach = self.reach[at]
            out[at] = np.clip(ds[at] - mean, -reach, reach) - np.clip(-mean, -reach, reach)
        return out

    def start(self, c: float) -> np.ndarray:
        """s between alpha = 0 (c = 0, where such an s exists) and the prior's mean (c = 1)."""
        out = np.empty(self.shape)
        for group in self.groups:
            group.write(out, group.potentials, group.bound.start(group.rows, c))
        return out + c * (self.sign * self.of_potentials(self.mean) - out)


def _places(sizes: Sequence[int]) -> list[np.ndarray]:
    """0, 1, ... in parts of these sizes."""
    return [np.arange(i, k) for i, k in pairwise(np.cumsum([0, *sizes]).tolist())]
