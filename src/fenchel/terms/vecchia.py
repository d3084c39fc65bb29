"""A Gaussian process over a few columns, by Vecchia's approximation (``gmrf/vecchia.py``).

    f(x) ~ GP(0, sd^2 c(r)),   r^2 = sum_j ((x_j - x'_j) / range_j)^2

One latent for each distinct point of the fit. Which points are neighbours is settled in the ranges where learning
starts, and once more at those it finds, where these are others by far.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from ..checks import choice, count, first, problem
from ..gmrf.vecchia import Vecchia
from ..hyperparameters.priors import PCDeviation
from ..inputs.frames import DataTable
from ..kernels import KERNELS
from .base import Rows, Term, deviation, effect_range, one_each
from .coordinates import spans_of
from .forecast import Unseen, UnseenPoints, numbered
from .points import pc_pair

_KNOTS = 10_000  # at most, unless told
_BEYOND = 0.1  # of the variance that knots leave on average, from which a remark says so
_SHORT, _LONG = 6.0, 4.0  # e-folds below and above its start that a range may go
_TOGETHER = 2500  # new points that are drawn together: a dense covariance of theirs is made
_MOVED = float(np.log(1.5))  # of a log range against the others: from here on neighbours are chosen anew


class VecchiaProcess(Term):
    """A Gaussian process over one column and more, by nearest neighbours.

    Parameters
    ----------
    *columns : names of columns of numbers
    kernel : "matern12", "matern32", "matern52" or "rbf"
    neighbours : int
        How many points each one is conditioned on; all of them is the process itself. 10 to 30 are usual; smooth
        kernels want more.
    isotropic : bool
        One range for all columns, which then are in one unit, as coordinates are. By default each has its own.
    prior_range : (r, a), or one such pair a column, optional
        P(range < r) = a of each range; default: a twentieth of the extent of the bulk of its columns, with
        0.05.
    prior_sd : (s, a), optional
        P(sd > s) = a; default: the scale of eta, with 0.01.
    knots : int, optional
        So many of the points, spread out, are those that others condition on; the others are independent given them.
        Default: at most 10,000. The time grows with the knots to the power
        of about 1.7, and with the points themselves.
    name : hashable, optional
    ard : bool, optional
        The contrary of ``isotropic``, under the name it had.

    New points are conditioned on the nearest of all points and on those of ever fewer that are spread out, which lie on
    all sides of a gap; beside knots on one point with its neighbours. Up to 2,500 new points are drawn together. Of
    more, each has an independent rest beside what the points of the fit say: a sampled map then looks rough where these
    are far apart, its means and intervals being the same.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, VecchiaProcess
    >>> rng = np.random.default_rng(0)
    >>> table = DataTable("here", {"x": rng.random(50), "z": 9 * rng.random(50)})
    >>> term = VecchiaProcess("x", "z", neighbours=5).read(table, 1.0)
    >>> term.n_latents, [h.name for h in term.hyperparameters]
    (50, ['sd', 'range x', 'range z'])
    """

    word = "vecchia"

    process: Vecchia
    extents: np.ndarray
    chosen: np.ndarray  # the ranges in which neighbours were chosen
    odd: Sequence[str] = ()  # what a user should know of its coordinates
    final: bool = False  # they have been chosen twice
    prior_sd: tuple[float, float] | None = None
    prior_range: list[tuple[float, float]] | None = None

    def __init__(
        self,
        *columns: Hashable,
        kernel: str = "matern32",
        neighbours: int = 20,
        isotropic: bool = False,
        prior_range: Sequence[float] | Sequence[Sequence[float]] | None = None,
        prior_sd: Sequence[float] | None = None,
        knots: int | None = None,
        name: Hashable = None,
        ard: bool | None = None,
    ) -> None:
        if not columns:
            raise problem("vecchia", "no column is named", "vecchia(x, z)")
        choice("vecchia", "kernel", kernel, tuple(KERNELS))
        self.inputs, self.kernel, self.m = columns, kernel, count("vecchia", "neighbours", neighbours, 1)
        if ard is not None and ard and isotropic:
            raise problem("vecchia", "ard=True and isotropic=True", "one of them", "isotropic=True: one range for all.")
        self.ard = not isotropic if ard is None else bool(ard)
        self.knots = None if knots is None else count("vecchia", "knots", knots, 2)
        self.prior_sd, self.prior_range = pc_pair("vecchia", "prior_sd", prior_sd), self._ranges_stated(prior_range)
        self.name = f"vecchia({', '.join(map(str, columns))})" if name is None else name

    def _ranges_stated(self, given: Any) -> list[tuple[float, float]] | None:
        """(r, a) of each range: one for all of them, or one a column."""
        n = len(self.inputs) if self.ard else 1
        if given is None:
            return None
        several = isinstance(given, list | tuple) and len(given) > 0 and all(np.ndim(one) == 1 for one in given)
        if several and len(given) != n:
            raise problem("vecchia", f"prior_range has {len(given)} pairs", f"(r, a), or {n}, one a range")
        pairs = [pc_pair("vecchia", "prior_range", one) for one in (given if several else [given] * n)]
        return [pair for pair in pairs if pair is not None]

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return self.inputs

    def points(self, table: DataTable) -> np.ndarray:
        """The inputs (N, d)."""
        return np.stack([table.column(name).numbers() for name in self.inputs], axis=1)

    def read(self, table: DataTable, scale: float) -> Self:
        out = copy.copy(self)
        every = self.points(table)
        X = np.unique(every, axis=0)
        out.extents = np.ptp(X, axis=0)
        if not out.extents.all():
            j = int(np.argmin(out.extents))
            raise problem(
                table.where, f"{self.inputs[j]!r} is {X[0, j]:.10g} in every row", "columns that vary", "Leave it out."
            )
        shared = not self.ard
        spans, out.odd = spans_of(self.inputs, every, shared, table.places)
        names = ["range"] if shared or len(self.inputs) == 1 else [f"range {column}" for column in self.inputs]
        start = np.log(0.3 * np.sqrt(len(self.inputs)) * spans)
        stated = [(span / 20.0, 0.05) for span in spans.tolist()] if self.prior_range is None else self.prior_range
        each = [
            effect_range(word, t, (t - _SHORT, t + _LONG), pair, 1)
            for word, t, pair in zip(names, start.tolist(), stated, strict=True)
        ]
        size = deviation("sd", scale)
        if self.prior_sd is not None:
            size = replace(size, prior=PCDeviation(*self.prior_sd))
        out.hyperparameters = size, *each
        out._choose(X, np.exp(start))
        return out

    def _choose(self, X: np.ndarray, ranges: np.ndarray) -> None:
        """Order and neighbours, in these ranges."""
        ranges = np.broadcast_to(ranges, (X.shape[1],))
        knots = _KNOTS if self.knots is None else self.knots
        self.process, _ = Vecchia.of(X, ranges, self.m, self.kernel, not self.ard, knots)
        self.n_latents, self.chosen = len(X), np.asarray(ranges)
        if self.process.knots < len(X):
            self.stated = (("knots", f"{self.process.knots} of {len(X)} points, which the others condition on"),)

    def settled(self, theta: np.ndarray, noise: bool = True) -> Self | None:
        """The same with neighbours chosen in the ranges of theta; None where they would be much the same."""
        moved = np.log(self.process.ranges(theta) / self.chosen)
        if self.final or np.ptp(moved) < _MOVED:  # neighbours depend on the ratios of the ranges alone
            return None
        out = copy.copy(self)
        out.final = True
        out._choose(self.process.X, self.process.ranges(theta))
        inside = [float(np.clip(t, *h.bounds)) for h, t in zip(self.hyperparameters, theta, strict=True)]
        out.hyperparameters = tuple(replace(h, start=t) for h, t in zip(self.hyperparameters, inside, strict=True))
        return out

    def remarks(self, others: Sequence[Term]) -> list[str]:
        return [f"{self.name}: {sentence}" for sentence in self.odd]

    def remarks_at(self, theta: np.ndarray) -> list[str]:
        share, knots = self.process.beyond_knots(theta), self.process.knots
        if share < _BEYOND:
            return []
        return [
            f"{self.name}: its {knots} knots leave {share:.0%} of the variance at the other points, which are taken as "
            f"independent given them: knots={min(4 * knots, self.n_latents)} leaves less"
        ]

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.process(theta)

    # -- rows --------------------------------------------------------------------------------------
    def _places(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The latent of each point, and whether it is that of the point itself."""
        near = cKDTree(self.process.X / self.extents).query(X / self.extents)[1]
        return near, np.asarray((self.process.X[near] == X).all(axis=1))

    def rows(self, table: DataTable, new: bool = False) -> Rows:
        near, known = self._places(self.points(table))
        if not known.all():
            got = f"row {first(~known)} is no point of the fit"
            raise problem(table.where, got, f"points of {self.name}", "New points depend on theta: new_rows.")
        return self._at(near)

    def _at(self, codes: np.ndarray) -> Rows:
        return Rows(one_each(codes, self.n_latents))

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[Rows, list[Unseen]]:
        X = self.points(table)
        near, known = self._places(X)
        weights, left = self.process.at(theta, X[~known])
        fresh, row = np.flatnonzero(~known), np.flatnonzero(known)
        other = weights.tocoo()
        at = np.r_[row, fresh[other.coords[0]]], np.r_[near[known], other.coords[1]]
        design = sp.csr_array((np.r_[np.ones(row.size), other.data], at), shape=(len(X), self.n_latents))
        rows, own = Rows(design), np.zeros((len(X), 1))
        if not fresh.size:
            return rows, []
        own[fresh, 0] = np.exp(theta[0]) * np.sqrt(left)
        of, one = numbered([tuple(x) for x in X.tolist()], ~known), np.ones(1)
        if int(of.max()) >= _TOGETHER:
            return rows, [Unseen(own, one, of)]
        together = partial(self._together, theta, X[fresh])
        return rows, [UnseenPoints(own, one, of, together=together)]

    def _together(self, theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The place of each new point among the distinct ones, and the covariance of what these have of their own."""
        points, which = np.unique(X, axis=0, return_inverse=True)
        return which.ravel(), np.exp(2.0 * theta[0]) * self.process.rests(theta, points)

    def shown(self) -> tuple[list[Hashable], Rows]:
        """At the distinct points of the fit, in the order of their columns."""
        X = self.process.X
        order = np.lexsort(X.T[::-1])
        labels: list[Hashable] = X[order, 0].tolist() if X.shape[1] == 1 else [tuple(x) for x in X[order].tolist()]
        return labels, self._at(order)
