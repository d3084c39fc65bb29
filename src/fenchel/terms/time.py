"""Random walks and seasonal effects: series in time without a fixed level (``stationary.py`` has stationary series).

    Wiener            a random walk at irregular times, equal to RW1 if gaps are equal
    IntegratedWiener  a smooth walk at irregular times with its trend as a fixed effect: a cubic smoothing spline
    RW1, RW2          random walks of first and second order at equal steps, with fewer latents
    Seasonal          effects whose sums over a period are small

``TimeTerm`` is the common base of series at irregular times. Every series predicts times beyond those of the fit; at
irregular times also between them. Each may be ``Replicated``. A walk of second order is orthogonal to a straight line,
and a seasonal effect to a season that repeats exactly. Both are added as fixed effects unless ``trend=False``, so a
trend or a season in the data is never lost.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from .. import gmrf
from ..checks import problem
from ..gmrf import MarkovField
from ..gmrf.precisions import ScaledStructure
from ..gmrf.times import Walk
from ..inputs.frames import DataColumn, DataTable
from ..inputs.levels import present, times_of
from ..priors.sparse import SparsePrecision
from .base import (
    TermRows,
    deviation,
    one_each,
)
from .forecast import Unseen, in_gaps, inner_covariance
from .grouped import LevelTerm, typical


class TimeTerm(LevelTerm):
    """A series at the times of a column, which may be irregular.

    Parameters
    ----------
    column : name of a column of numbers or dates
    levels : sequence, optional
        Times in addition to those of the data.
    name : hashable, optional
    """

    options, in_time, continuous, least = (), True, True, 2

    times: np.ndarray  # of the levels, in days for dates

    def __init__(
        self, column: Hashable = None, *, levels: Iterable[Hashable] | None = None, name: Hashable = None
    ) -> None:
        super().__init__(column, levels=levels, name=name)

    def settle(self, column: DataColumn, chosen: list[Hashable] | None) -> list[Hashable]:
        found = [value for value in dict.fromkeys(column.values) if present(value)] if chosen is None else chosen
        if not found:
            raise problem(column.where, f"the column {column.name!r} is empty", "at least two times")
        return [found[i] for i in np.argsort(times_of(column, found), kind="stable")]

    def read_sketch(self, table: DataTable, scale: float, measured: Any) -> Self:
        out = self.with_place(table)
        out.times = times_of(table.column(self.column), out.levels)
        out.setup(scale)
        return out

    def setup(self, scale: float) -> None:
        """Hyperparameters, latents and constraints, from ``times``."""
        raise NotImplementedError(f"{type(self).__name__} has no structure")

    def _at(self, codes: np.ndarray, weight: np.ndarray) -> TermRows:
        return TermRows(one_each(codes, self.n_latents, weight), codes=codes)


class Wiener(TimeTerm):
    """A random walk at irregular times, z(t + h) - z(t) ~ N(0, h s). Its effects sum to zero over the times of the fit.

    The sd is the typical sd of an effect at those times. Times between and beyond them are predicted, with the variance
    that a random walk has there.

    Examples
    --------
    >>> from fenchel.terms import DataTable, Wiener
    >>> term = Wiener("t").read(DataTable("here", {"t": [0.0, 1.0, 4.0]}), 1.0)
    >>> term.rows(DataTable("here", {"t": [2.0]}), new=True).design.toarray().round(4)
    array([[0.    , 0.6667, 0.3333]])
    """

    step: float  # the mean gap
    middle: float  # the mean time
    knots: np.ndarray  # the times that have latents, in steps from the middle
    structure: sp.csc_array  # with typical variance 1
    unit: float  # the typical variance of a walk in steps

    def setup(self, scale: float) -> None:
        self.step, self.middle = float(np.diff(self.times).mean()), float(self.times.mean())
        self.knots = thinned(self._steps(self.times), self.near(self.times.size))
        R, seen = self.chain(self.knots), self.weights(self.times)[0]
        self.constraints, self.n_latents = np.asarray(self.held(self._steps(self.times)) @ seen), seen.shape[1]
        prior = SparsePrecision(R, design=seen, constraints=self.constraints)
        self.unit = typical(np.asarray(prior.bind(prior.n_rows, 1, False).variance))
        self.structure = self.unit * R
        self.hyperparameters = (deviation("sd", scale),)

    def _steps(self, t: np.ndarray) -> np.ndarray:
        return np.asarray((t - self.middle) / self.step)

    def near(self, n: int) -> float:
        """In mean gaps: of times nearer than this one has a latent, and the others follow from its neighbours."""
        return 1e-4

    states: ClassVar[int] = 1  # of each time

    def chain(self, times: np.ndarray) -> sp.csc_array:
        """The structure over increasing times."""
        return Walk(self.states).structure(times)

    def held(self, steps: np.ndarray) -> np.ndarray:
        """What the effect at the times of the fit sums to zero with."""
        return np.ones((1, steps.size))

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return ScaledStructure(self.structure)(theta)

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        column = table.column(self.column)
        if not new:
            return self.at_times(self.times[self.codes(column)])
        return self.at_times(times_of(column, column.values))

    def shown(self) -> tuple[list[Hashable], TermRows]:
        return self.levels, self.at_times(self.times)

    def at_times(self, t: np.ndarray) -> TermRows:
        """Rows at any times, with what they vary beside the times of the fit."""
        W, left = self.weights(t)
        return TermRows(W, self.lines(t), None, np.sqrt(left / self.unit)[:, None])

    def weights(self, t: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """Of the latents at times t, and the variance that they leave."""
        return Walk(self.states).weights(self.knots, self._steps(t))

    def lines(self, t: np.ndarray) -> np.ndarray:
        """Fixed effects at times t."""
        return np.zeros((t.size, 0))

    def population(self, theta: np.ndarray) -> np.ndarray:
        return np.array([[np.exp(2.0 * theta[0])]])

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
        """Times of one gap, or beyond the last one, hang together."""
        column = table.column(self.column)
        rows, size = self.rows(table, new=True), np.exp(2.0 * theta[0])
        assert rows.unseen is not None

        def covariance(times: np.ndarray, before: Any, after: Any) -> np.ndarray:
            return np.asarray(size / self.unit * inner_covariance(self.chain, times, before, after, self.states))

        t = self._steps(times_of(column, column.values))
        return rows, in_gaps(self.knots, t, size * rows.unseen[:, 0] ** 2, covariance)


class IntegratedWiener(Wiener):
    """A smooth walk in continuous time: an integrated Wiener process, with its straight line as a fixed effect.

    Its posterior mean is the cubic smoothing spline. The latents are its value and its slope at every time, or at about
    2000 of the times if there are more.

    Parameters
    ----------
    trend : bool
        Whether the straight line, to which the walk is orthogonal, is added as a fixed effect.
    """

    least = 3

    def __init__(self, column: Hashable = None, *, trend: bool = True, **options: Any) -> None:
        super().__init__(column, **options)
        self.trend = bool(trend)

    def setup(self, scale: float) -> None:
        super().setup(scale)
        self.fixed_names = [f"{self.name} (slope)"] if self.trend else []

    def near(self, n: int) -> float:
        """The structure's condition number, 12 gap^-3 (n / pi)^4, is held near 1e12, and the knots to 2000.

        What is lost between two knots is a variance of 5 (gap / span)^3 of the typical one, 1e-8 and less.
        """
        return float(max(np.cbrt(1.2e-11 * (min(n, 1000) / np.pi) ** 4), n / 2000))

    states = 2  # value and slope

    def held(self, steps: np.ndarray) -> np.ndarray:
        return np.stack([np.ones(steps.size), steps - steps.mean()])

    def lines(self, t: np.ndarray) -> np.ndarray:
        return (t - self.middle)[:, None] if self.trend else super().lines(t)


# -- equal steps ----------------------------------------------------------------------------------
class RW1(LevelTerm):
    """A random walk of first order: u_{t+1} - u_t ~ N(0, c sd^2), with c such that sd is the typical sd of an effect.

    Arguments are ``column``, ``levels`` and ``name`` as in ``LevelTerm``.
    """

    word, partitioned, in_time = "rw1", True, True
    builder, least, at_any_times = staticmethod(gmrf.rw1), 2, Wiener

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        return np.ones(1), float(np.exp(2.0 * theta[0]))


class RW2(LevelTerm):
    """A random walk of second order: u_{t+2} - 2 u_{t+1} + u_t ~ N(0, c sd^2). Its straight line is a fixed effect.

    c is such that sd is the typical departure of the effect from its straight line.
    Arguments are ``column``, ``levels`` and ``name`` as in ``LevelTerm``. ``trend=False`` leaves out the line.
    """

    word, partitioned, in_time = "rw2", True, True
    builder, least, at_any_times = staticmethod(gmrf.rw2), 3, IntegratedWiener

    def __init__(self, column: Hashable = None, *, trend: bool = True, **options: Any) -> None:
        super().__init__(column, **options)
        self.trend = trend

    def free(self) -> tuple[list[str], np.ndarray]:
        return ([f"{self.name} (slope)"], np.asarray(self.made.constraints)[1:].T) if self.trend else super().free()

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        return np.array([2.0, -1.0]), float(np.exp(2.0 * theta[0]))

    def free_at(self, steps: np.ndarray) -> np.ndarray:
        return (steps - (len(self.levels) - 1) / 2)[:, None] if self.trend else super().free_at(steps)


class Seasonal(LevelTerm):
    """A seasonal effect whose sum over each period is N(0, c sd^2), with c such that sd is the typical sd of an effect.

    The season that repeats exactly is a fixed effect, about which sd is measured.
    ``period`` is the number of steps of a season, and ``trend=False`` leaves out the fixed effect. ``column``,
    ``levels`` and ``name`` are as in ``LevelTerm``.
    """

    word, partitioned, in_time = "seasonal", True, True

    def __init__(self, column: Hashable = None, period: int = 12, *, trend: bool = True, **options: Any) -> None:
        super().__init__(column, **options)
        if not (isinstance(period, (int, np.integer)) and period >= 2):
            raise problem("Seasonal", f"period = {period!r}", "a period >= 2")
        self.period, self.trend, self.least = period, trend, int(period) + 1

    def field(self, **start: Any) -> MarkovField:
        return gmrf.seasonal(len(self.levels), self.period, **start)

    def free(self) -> tuple[list[str], np.ndarray]:
        C = np.asarray(self.made.constraints)
        return ([f"{self.name} (season {i})" for i in range(C.shape[0])], C.T) if self.trend else super().free()

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        return -np.ones(self.period - 1), float(np.exp(2.0 * theta[0]))

    def free_at(self, steps: np.ndarray) -> np.ndarray:
        return self.freed[steps % self.period] if self.trend else super().free_at(steps)


def thinned(times: np.ndarray, gap: float) -> np.ndarray:
    """Those of increasing times that are at least ``gap`` after the last one kept, and the last."""
    kept = [times[0]]
    for t in times[1:]:
        if t - kept[-1] >= gap:
            kept.append(t)
    if kept[-1] != times[-1]:
        kept[-1] = times[-1]
    return np.array(kept)
