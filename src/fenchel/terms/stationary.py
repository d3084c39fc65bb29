"""Stationary series in time: autoregressions at equal steps, and Matern processes at times of any spacing.

    AR1, AR            autoregressions of order 1 and p
    MaternSeries       a Matern process of smoothness 1/2, 3/2 or 5/2
    OrnsteinUhlenbeck  the Matern process of smoothness 1/2, which is AR1 if gaps are equal

A Matern process in time is exactly Markov with nu = 1/2, 3/2 or 5/2 (``gmrf/times.py``).

Derivatives nearly determine a smooth process. Its precision matrix loses all digits where times are very close to each
other relative to the range. Therefore times closer than g share a knot, and a polynomial through values and derivatives
gives their effects. The range is kept within bounds that the knots can resolve and double precision can represent:

    nu       g / span     range / span         error of the polynomial, as a share of the variance
    1/2      1e-10        up to 20             nothing
    3/2      1 / 1150     1 / 72 to 2          at most 2e-3, at the shortest range
    5/2      1 / 150      1 / 25 to 1          at most 2e-3, at the shortest range

If all times are further apart than g, every time is a knot, and the covariance is exact at shorter ranges as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from .. import gmrf
from ..checks import choice, count, problem
from ..gmrf.series import Autoregression
from ..gmrf.times import Stationary, hermite
from ..hyperparameters.priors import Normal
from ..inputs.frames import DataColumn, DataTable
from ..inputs.levels import inferred, times_of
from .base import Hyperparameter, PartialCorrelation, Term, TermRows, correlation, effect_range, stationary_sd
from .forecast import Unseen, in_gaps, inner_covariance
from .grouped import LevelTerm
from .matern_terms import Matern
from .time import TimeTerm, thinned

_SMALLEST_TAU = {1: 1e-10, 2: 0.0015, 3: 0.03}  # tau of neighbours at the longest range, by p = nu + 1/2
_LONGEST_RANGE = {1: 20.0, 2: 2.0, 3: 1.0}  # range, in spans
_SHORTEST_RANGE = {1: 0.0, 2: 16.0, 3: 6.0}  # range, in gaps of knots where times share one


class AR(TimeTerm):
    """A stationary autoregression of order p at equal steps.

    Parameters
    ----------
    column : name of a column
    p : int
        Order.
    levels, name : as in ``LevelTerm``

    Examples
    --------
    >>> from fenchel.terms import AR, DataTable
    >>> term = AR("t", 2).read(DataTable("here", {"t": [1, 2, 3, 5]}), 1.0)
    >>> term.levels, [h.name for h in term.hyperparameters]
    ([1, 2, 3, 4, 5], ['sd', 'partial autocorrelation 1', 'partial autocorrelation 2'])
    """

    word, r_names = "ar", ("corARMA", "arma")

    def __init__(self, column: Hashable = None, p: int = 1, **options: Any) -> None:
        super().__init__(column, **options)
        self.p = count("AR", "p", p, 1)
        self.least = self.p + 1

    def settle(self, column: DataColumn, chosen: list[Hashable] | None) -> list[Hashable]:
        return inferred(self.name, column, True) if chosen is None else chosen

    def setup(self, scale: float) -> None:
        self.n_latents = len(self.levels)
        later = [
            correlation(f"partial autocorrelation {j}", 0.0, PartialCorrelation(2.0)) for j in range(2, self.p + 1)
        ]
        first = correlation("partial autocorrelation 1", 1.0, Normal(2.0, 1.5))
        self.hyperparameters = stationary_sd(scale), first, *later

    @property
    def series(self) -> Autoregression:
        """The precision as a function of theta."""
        return Autoregression(self.n_latents, self.p)

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.series(theta)

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        phi, v, _, _ = self.series.coefficients(theta)
        return phi[self.p], float(np.exp(2.0 * theta[0]) * v[self.p])

    def readable(self, theta: np.ndarray) -> list[tuple[str, float]]:
        phi = self.series.coefficients(theta)[0][self.p]
        return [("sd", float(np.exp(theta[0]))), *((f"phi {j + 1}", float(phi[j])) for j in range(self.p))]


class MaternSeries(TimeTerm):
    """A stationary Matern process in time, at times of any spacing.

    Parameters
    ----------
    column : name of a column of numbers or dates
    nu : 0.5, 1.5 or 2.5
        Smoothness: continuous, once differentiable or twice differentiable.
    levels, name : as in ``LevelTerm``

    Times between those of the fit and beyond them are predicted, with the variance that the process has there.

    Examples
    --------
    >>> from fenchel.terms import DataTable, MaternSeries
    >>> term = MaternSeries("t", nu=1.5).read(DataTable("here", {"t": [0.0, 1.0, 4.0]}), 1.0)
    >>> term.n_latents, [h.name for h in term.hyperparameters]
    (6, ['sd', 'range'])
    """

    word: ClassVar[str | None] = "matern"
    r_names = ("spde",)
    over = "columns"

    chain: Stationary

    @classmethod
    def serving(cls, columns: Sequence[DataColumn | None]) -> type[Term]:
        """``matern(x, y)`` is a field over points in the plane."""
        if len(columns) not in (1, 2):
            advice = "vecchia(x, y, z) has any number of columns."
            expected = "one, a time, or two, the coordinates of points"
            raise problem("matern", f"{len(columns)} columns", expected, advice)
        return cls if len(columns) == 1 else Matern

    def __init__(
        self,
        column: Hashable = None,
        *,
        nu: float = 1.5,
        levels: Iterable[Hashable] | None = None,
        name: Hashable = None,
    ) -> None:
        choice("matern", "nu", nu, (0.5, 1.5, 2.5))
        super().__init__(column, levels=levels, name=f"matern({column})" if name is None else name)
        self.nu, self.p = float(nu), int(nu + 0.5)

    def setup(self, scale: float) -> None:
        span, p = float(np.ptp(self.times)), self.p
        if span == 0.0:
            raise problem("matern", f"all times of {self.name!r} are one", "times apart")
        reach = np.sqrt(8.0 * self.nu)
        least = _LONGEST_RANGE[p] * span * _SMALLEST_TAU[p] / reach if p > 1 else 1e-10 * span
        knots = thinned(self.times, least)
        gap = float(np.diff(self.times).mean())
        self.chain = Stationary(knots, p, span / (knots.size - 1))
        self.n_latents = p * knots.size
        merged = knots.size < self.times.size
        shortest = max(gap / 20.0, 1e-6 * span, _SHORTEST_RANGE[p] * least * merged)
        bounds = float(np.log(shortest)), float(np.log(_LONGEST_RANGE[p] * span))
        start = float(np.clip(np.log(max(span / 5.0, 2.0 * gap)), *bounds))
        typical = max(gap, shortest), 0.05
        self.hyperparameters = stationary_sd(scale), effect_range("range", start, bounds, typical, 1)

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.chain(theta)

    def _at(self, codes: np.ndarray, weight: np.ndarray) -> TermRows:
        W = hermite(self.chain.times, self.times[codes], self.p, self.chain.step)
        return TermRows(W, codes=codes)

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
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

        return TermRows(design), in_gaps(self.chain.times, t, own, inside)

    def _structure(self, theta: np.ndarray, times: np.ndarray) -> Any:
        """The precision of the states at other times."""
        return Stationary(times, self.p, self.chain.step)(theta)[0]


class OrnsteinUhlenbeck(MaternSeries):
    """A stationary series with correlation exp(-2 gap / range), 0.14 at the range: a Matern process with nu = 1/2.

    Parameters
    ----------
    column : name of a column of numbers or dates
    levels, name : as in ``LevelTerm``
    """

    word = None

    def __init__(
        self, column: Hashable = None, *, levels: Iterable[Hashable] | None = None, name: Hashable = None
    ) -> None:
        super().__init__(column, nu=0.5, levels=levels, name=column if name is None else name)


class AR1(LevelTerm):
    """A stationary autoregression of first order, with marginal sd and correlation phi of neighbouring times.

    Arguments are ``column``, ``levels`` and ``name`` as in ``LevelTerm``.
    """

    word, partitioned, in_time = "ar1", True, True
    r_names = "corAR1", "ou"
    builder, least, at_any_times = staticmethod(gmrf.ar1), 2, OrnsteinUhlenbeck
    options, standard = ("phi", "variance"), True

    def starts(self, k: float) -> dict[str, Any]:
        return {"variance": 1.0 / k}

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        return stationary_sd(scale, float(np.exp(theta[0]))), correlation("phi", theta[1], Normal(2.0, 1.5))

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        phi = np.tanh(theta[1] / 2)
        return np.array([phi]), float(np.exp(2.0 * theta[0]) * (1.0 - phi * phi))
