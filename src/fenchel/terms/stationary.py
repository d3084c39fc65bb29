"""A Matern process in time, at times of any spacing, with nu = 1/2, 3/2 or 5/2: exactly Markov (``gmrf/times.py``).

Smooth processes are next to determined by their derivatives, and their precision has no digits left where times are
very near to one another for the range. Times nearer than g share a knot, from which they follow by the polynomial
through values and derivatives, and the range is held between what the knots can show and what the digits can carry:

    nu       g / span     range / span         left out by the polynomial, as a share of the variance
    1/2      1e-10        up to 20             nothing
    3/2      1 / 1150     1 / 72 to 2          at most 2e-3, at the shortest range
    5/2      1 / 150      1 / 25 to 1          at most 2e-3, at the shortest range

Fewer times than that, apart by more than g, are knots all of them: their covariance is exact, at shorter ranges, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..checks import choice, problem
from ..gmrf.times import Stationary, hermite
from ..inputs.frames import DataColumn, DataTable
from ..inputs.levels import times_of
from .base import Rows, Term, deviation, effect_range
from .forecast import Unseen, in_gaps, inner_covariance
from .points import Matern
from .time import TimeTerm, _apart

_SMALLEST = {1: 1e-10, 2: 0.0015, 3: 0.03}  # tau of neighbours at the longest range, by p = nu + 1/2
_LONGEST = {1: 20.0, 2: 2.0, 3: 1.0}  # range, in spans
_SHORTEST = {1: 0.0, 2: 16.0, 3: 6.0}  # range, in gaps of knots where times share one


class MaternSeries(TimeTerm):
    """A stationary Matern process in time, at times of any spacing.

    Parameters
    ----------
    column : name of a column of numbers or dates
    nu : 0.5, 1.5 or 2.5
        Smoothness: a rough path, one with a slope, one with a curvature.
    levels, name : as in ``LevelTerm``

    Other times, between those of the fit and beyond them, are predicted with the variance that they have given those.

    Examples
    --------
    >>> from fenchel.terms import DataTable, MaternSeries
    >>> term = MaternSeries("t", nu=1.5).read(DataTable("here", {"t": [0.0, 1.0, 4.0]}), 1.0)
    >>> term.n_latents, [h.name for h in term.hyperparameters]
    (6, ['sd', 'range'])
    """

    word, over = "matern", "columns"

    chain: Stationary

    @classmethod
    def serving(cls, columns: Sequence[DataColumn | None]) -> type[Term]:
        """``matern(x, y)`` is a field over points in the plane."""
        if len(columns) not in (1, 2):
            advice = "vecchia(x, y, z) has any number of columns."
            expected = "one, a time, or two, the coordinates of points"
            raise problem("matern", f"{len(columns)} columns", expected, advice)
        return cls if len(columns) == 1 else Matern

    def __init__(self, column: Hashable = None, *, nu: float = 1.5, **options: Any) -> None:
        choice("matern", "nu", nu, (0.5, 1.5, 2.5))
        super().__init__(column, **options)
        self.nu, self.p = float(nu), int(nu + 0.5)
        self.name = self.name if options.get("name") is not None or column is None else f"matern({column})"

    def setup(self, scale: float) -> None:
        span, p = float(np.ptp(self.times)), self.p
        if span == 0.0:
            raise problem("matern", f"all times of {self.name!r} are one", "times apart")
        reach = np.sqrt(8.0 * self.nu)
        least = _LONGEST[p] * span * _SMALLEST[p] / reach if p > 1 else 1e-10 * span
        knots = _apart(self.times, least)
        gap = float(np.diff(self.times).mean())
        self.chain = Stationary(knots, p, span / (knots.size - 1))
        self.n_latents = p * knots.size
        merged = knots.size < self.times.size
        shortest = max(gap / 20.0, 1e-6 * span, _SHORTEST[p] * least * merged)
        bounds = float(np.log(shortest)), float(np.log(_LONGEST[p] * span))
        start = float(np.clip(np.log(max(span / 5.0, 2.0 * gap)), *bounds))
        typical = max(gap, shortest), 0.05
        self.hyperparameters = deviation("sd", scale), effect_range("range", start, bounds, typical, 1)

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.chain(theta)

    def _at(self, codes: np.ndarray, weight: np.ndarray) -> Rows:
        W = hermite(self.chain.times, self.times[codes], self.p, self.chain.step)
        return Rows(W, codes=codes)

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[Rows, list[Unseen]]:
        column = table.column(self.column)
        t = times_of(column, column.values)
        place = np.searchsorted(self.times, t).clip(max=self.times.size - 1)
        known = self.times[place] == t
        W, left = self.chain.weights(theta, t)
        seen = hermite(self.chain.times, np.where(known, t, self.times[0]), self.p, self.chain.step)
        keep = known.astype(float)[:, None]
        design = seen.multiply(keep).tocsr() + W.multiply(1.0 - keep).tocsr()
        own = np.exp(2.0 * theta[0]) * left * ~known

        def inside(times: np.ndarray, before: float | None, after: float | None) -> np.ndarray:
            return inner_covariance(partial(self._structure, theta), times, before, after, self.p)

        return Rows(design), in_gaps(self.chain.times, t, own, inside)

    def _structure(self, theta: np.ndarray, times: np.ndarray) -> Any:
        """The precision of the states at other times."""
        return Stationary(times, self.p, self.chain.step)(theta)[0]
