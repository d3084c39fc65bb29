"""The contract of a term: one summand of eta, with a sparse Gaussian prior and hyperparameters.

    eta = intercept + sum over terms of (design z + fixed columns beta),    z ~ N(0, Q(theta)^-1), A z = 0

A term is made without data: ``RW1("year")``. ``read`` applies it to a table and returns a copy that knows its levels
and has a design for any rows. Your own term is a subclass of ``Term``, or of ``LevelTerm`` for the levels of a column.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln

from ..checks import problem
from ..files import Stated
from ..gmrf.base import MovingRows
from ..hyperparameters.priors import PC, HalfNormal, Normal, PCDeviation, PCRange, ScalarPrior, Scale
from ..hyperparameters.shares import PCCorrelation
from ..inputs.frames import DataColumn, DataTable
from ..solvers.solution import Solution
from ..transforms import CORRELATION, LOG, LOGIT, Transform
from .forecast import Unseen, numbered

Sparse = Any  # scipy's sparse arrays, which have no types
Below = Callable[..., ScalarPrior]  # (u, a, base) -> the prior that says P(value < u) = a
FIXED_PART = "fixed part"  # the name of the term that has the columns of a formula
START_SD = 0.5  # where learning starts: the typical size of an effect, in units of the response's scale
LARGE_SD = 5.0  # of any effect, in the same units: its default prior is half-normal, P(sd > LARGE_SD) = LARGE_SD_SHARE
LARGE_STATIONARY_SD = 3.0  # the same where a range or a correlation is learned beside the sd
LARGE_SD_SHARE = 0.05
_SD_BOUND = 6.0  # log units either way: the bounds of a log sd about the scale of eta
_WIDEST = 12.0  # log units either way: the bounds of an entry that is given none


# -- hyperparameters -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Hyperparameter:
    """One entry of theta.

    Attributes
    ----------
    name : str
        Name of the value, as users see it: "sd", "phi".
    transform : Transform
        Transformation from the value to theta.
    start : float
        Starting value of theta.
    bounds : pair of float
        Bounds of theta.
    prior : ScalarPrior or None
        Prior density of theta; None is flat.
    size : callable or None
        For an sd: a function of (u, a) that gives the prior with P(sd of the effect > u) = a. None for other values.
    pc : callable or None
        For a range, a share or a correlation: a function of (u, a, base), the prior with P(value < u) = a (see ``PC``).
    """

    name: str
    transform: Transform
    start: float
    bounds: tuple[float, float] = (-_WIDEST, _WIDEST)
    prior: ScalarPrior | None = None
    size: Callable[[float, float], PCDeviation] | None = None
    pc: Below | None = None

    @property
    def label(self) -> str:
        """What theta is called."""
        return self.transform.names(self.name, 1)[0]

    @property
    def scale(self) -> Scale:
        """How it is shown."""
        shift = 0.0 if self.size is None else float(self.transform.forward(1.0)[0])
        return Scale(self.name, self.label, self.value, shift)

    def stated(self, where: str, owner: Hashable, name: str, given: Any) -> ScalarPrior | None:
        """The prior that a user states of it, as ``name``.

        A ``Normal`` is of the log or the logit of what was named; (u, a) is P(sd > u) = a, or P(value < u) = a.
        """
        word, base = "sd" if self.size is not None else self.name.split(" ")[0], 0
        if isinstance(given, PC) and given.stated[0] == word:
            given, base = (given.stated[1], given.alpha), given.base
        if given is None:
            return None
        if isinstance(given, ScalarPrior):
            return given.stated_on(self.scale)
        pair = isinstance(given, tuple) and len(given) == 2
        if pair and self.size is not None:
            return self.size(*given)
        if pair and self.pc is not None:
            _level(where, f"the prior of {str(owner)!r}, {name},", word, given)
            return self.pc(*given, base)
        sign = ">" if self.size is not None else "<" if self.pc is not None else ""
        pc = f"PC({word}=u, alpha=a) or (u, a) for P({word} {sign} u) = a, " if sign else ""
        got = f"the prior of {str(owner)!r}, {name}, is {given!r}"
        raise problem(where, got, f"{pc}Normal(mean, sd) of {self.scale.label}, or None for a flat one")

    def value(self, theta: float) -> float:
        """On the user's scale."""
        return float(self.transform.inverse(np.array([theta])))


def _level(where: str, what: str, word: str, given: tuple[Any, Any]) -> None:
    """Refuse a pair that is not a number and a probability."""
    most = np.inf if word == "range" else 1.0
    numbers = all(isinstance(x, Real) for x in given)
    if not (numbers and 0.0 < given[0] < most and 0.0 < given[1] < 1.0):
        limits = f"0 < {word}" if word == "range" else f"0 < {word} < 1"
        raise problem(where, f"{what} is {given!r}", f"({word}, a) for P({word} < u) = a, {limits} and 0 < a < 1")


def range_below(dimension: int, u: float, a: float, base: int = 0) -> ScalarPrior:
    """The prior of a range in so many dimensions."""
    return PCRange(u, a, dimension)


def share(name: str, start: float = 0.0, pc: Below | None = None) -> Hyperparameter:
    """A share between 0 and 1, nearly uniform; ``start`` is of its logit."""
    return Hyperparameter(name, LOGIT, start, prior=Normal(0.0, 1.8), pc=pc)


def correlation(name: str, start: float = 0.0, prior: ScalarPrior | None = None) -> Hyperparameter:
    """A correlation between -1 and 1; ``start`` is of 2 atanh of it."""
    return Hyperparameter(name, CORRELATION, start, (-9.0, 9.0), prior, pc=PCCorrelation)


def effect_range(
    name: str, start: float, bounds: tuple[float, float], shortest: tuple[float, float], dimension: int
) -> Hyperparameter:
    """A range, learned as its log; ``shortest`` is (r, a) of the prior P(range < r) = a in so many dimensions."""
    pc = partial(range_below, dimension)
    return Hyperparameter(name, LOG, start, bounds, pc(*shortest), pc=pc)


@dataclass(frozen=True)
class LogInUnits(Transform):
    """theta = log(x unit): an sd in the user's units, learned in those of a scaled column."""

    unit: float = 1.0

    def forward(self, x: Any) -> np.ndarray:
        return np.log(np.atleast_1d(np.asarray(x, dtype=np.float64) * self.unit))

    def inverse(self, theta: np.ndarray) -> float:
        return float(np.exp(theta[0])) / self.unit

    def slope(self, x: Any) -> float:
        return float(x)

    def names(self, name: str, n: int) -> list[str]:
        return [f"log {name}"]


@dataclass(frozen=True)
class PartialCorrelation(ScalarPrior):
    """p(z) ~ (1 - z^2)^(power - 1) on (-1, 1), for theta = 2 atanh z; power 1 is uniform in z."""

    power: float = 1.0

    def in_words(self, scale: Scale) -> str:
        if self.power == 1.0:
            return "uniform on (-1, 1)"
        return f"density (1 - r^2)^{self.power - 1.0:g} of r on (-1, 1)"

    def __call__(self, theta: float) -> tuple[float, float]:
        z = np.tanh(theta / 2)
        log_free = -2.0 * np.logaddexp(theta / 2, -theta / 2) + np.log(4.0)  # log(1 - z^2)
        b = self.power
        return float(b * (log_free - np.log(4.0)) - betaln(b, b)), float(-b * z)


def _pc(unit: float, u: float, a: float) -> PCDeviation:
    return PCDeviation(u * unit, a)


def deviation(name: str, scale: float, start: float | None = None, unit: float = 1.0) -> Hyperparameter:
    """An sd whose value times ``unit`` is an effect's typical sd; it starts at half of ``scale``.

    The prior is half-normal, P(sd unit > 5 scale) = 0.05. ``start`` is the sd in the user's units.
    """
    begin, centre = float(np.log(START_SD * scale if start is None else start * unit)), float(np.log(scale))
    bounds = min(centre - _SD_BOUND, begin), max(centre + _SD_BOUND, begin)
    prior = HalfNormal(LARGE_SD * scale, LARGE_SD_SHARE)
    return Hyperparameter(name, LogInUnits(unit), begin, bounds, prior, partial(_pc, unit))


def level_sd(name: str, scale: float, log_sd: float, spread: float = 1.0) -> Hyperparameter:
    """theta = log sd of a field that has typical variance ``spread`` at sd 1; shown is the typical sd of the effect.

    It starts at ``log_sd``; the prior is half-normal, P(typical sd > 5 scale) = 0.05.
    """
    unit = 1.0 / float(np.sqrt(spread))
    return deviation(name, scale * unit, float(np.exp(log_sd)) / unit, unit)


def stationary_sd(scale: float, start: float | None = None) -> Hyperparameter:
    """The sd of a process or field whose range is learned beside it; the prior is half-normal, P(sd > 3 scale) = 0.05.

    The data determine sd^2 / range^(2 nu), but hardly sd or range: over a trend both grow until a prior stops them.
    """
    return replace(deviation("sd", scale, start), prior=HalfNormal(LARGE_STATIONARY_SD * scale, LARGE_SD_SHARE))


def partial_correlation(name: str, power: float = 1.0) -> Hyperparameter:
    """A partial correlation, starting at 0."""
    return Hyperparameter(name, CORRELATION, 0.0, (-9.0, 9.0), PartialCorrelation(power))


# -- terms -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TermRows:
    """The design of a term at the rows of a table.

    Attributes
    ----------
    design : scipy sparse (N, n_latents)
    fixed : array (N, r)
        Columns of the fixed effects that the term adds, neither centred nor scaled.
    codes : int array (N,), optional
        Level of each row, -1 for a level that is not in the data of the fit.
    unseen : array (N, d), optional
        For rows with a new level: weights of the d latents that such a level has, with the covariance
        ``Term.population``. 0 for other rows.
    """

    design: Sparse
    fixed: np.ndarray = None  # type: ignore[assignment]  # made without columns where there are none
    codes: np.ndarray | None = None
    unseen: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.fixed is None:
            object.__setattr__(self, "fixed", np.zeros((self.design.shape[0], 0)))


def one_each(codes: np.ndarray, n: int, weight: np.ndarray | None = None) -> Sparse:
    """A design (N, n) with one entry a row, in the column ``codes``; a row of code -1 is empty."""
    known = codes >= 0
    values = np.ones(codes.size) if weight is None else weight
    at = np.flatnonzero(known), codes[known]
    return sp.csr_array((values[known], at), shape=(codes.size, n))


class Term(Stated, ABC):
    """One summand of eta.

    Attributes
    ----------
    name : hashable
        Its name in tables and in ``priors=``.
    levels : list or None
        The levels in order, for a term over levels that has been read.
    hyperparameters : sequence of Hyperparameter
    fixed_names : sequence of str
        Names of the fixed effects that it adds: a trend, a season, the columns of a covariate.
    constraints : array or scipy sparse (k, n_latents), "sum-to-zero" or None
        The matrix A with A z = 0. "sum-to-zero" as in ``SparsePrecision``: each connected part of the precision sums
        to zero; if every latent is a part of its own, all of them together sum to zero.
    n_latents : int
    stated : sequence of (word, text)
        Parts of its prior that are fixed and not learned, as tables of priors show them.
    """

    # how a formula writes it (``terms.WORDS``)
    word: ClassVar[str | None] = None  # rw1 of rw1(year); None: a formula has no word for it
    over: ClassVar[str] = "columns"  # what stands in its brackets: "columns", or "column" of levels with options
    needs: ClassVar[tuple[str, ...]] = ()  # options that hold its matrix, which is a variable: ("graph", "W")
    in_time: ClassVar[bool] = False  # a series, of which by=g makes one for each level of g
    partitioned: ClassVar[bool] = False  # the levels of its column are all that it learns of the rows
    grows: ClassVar[bool] = False  # a level that fit has not seen is one more of the population
    r_names: ClassVar[tuple[str, ...]] = ()  # functions of R's packages that are the same term

    name: Hashable = None
    levels: list[Hashable] | None = None
    hyperparameters: Sequence[Hyperparameter] = ()
    fixed_names: Sequence[str] = ()
    constraints: np.ndarray | Sparse | str | None = None
    n_latents: int = 0
    stated: Sequence[tuple[str, str]] = ()
    column: Hashable = None  # whose levels the effects are of
    inputs: tuple[Hashable, ...] = ()  # columns of numbers that a smooth, a process or a field is over
    coefficients: Sequence[str] | None = None  # of random intercepts and slopes
    group: Any = None  # columns whose levels have effects, or curves, of their own
    by: Hashable = None  # a column that multiplies the effect
    one_a_point: ClassVar[bool] = False  # whether it has one latent for each distinct point of its inputs
    approximates: ClassVar[bool] = False  # whether it bounds what it loses at a fit, and may lose less (``refined``)
    moving: MovingRows | None = None  # its rows, where they depend on theta
    compares: bool = False  # whether it chooses by the evidence of several fits (``settled``)
    on_mesh: ClassVar[bool] = False  # whether it is a field of the plane on a mesh
    over_levels: ClassVar[bool] = False  # whether its columns hold levels, and not places on a line or in a plane
    continuous: ClassVar[bool] = False  # whether a term over levels is known between them, too
    over_regions: ClassVar[bool] = False  # whether the levels are rows of a matrix: nodes of a graph
    outside: Mapping[str, tuple[float, float]] = MappingProxyType({})  # slopes whose 0 is outside of the data

    @property
    def single(self) -> bool:
        """Whether the data have one level, and so no coefficient."""
        return False

    @property
    def label(self) -> Hashable:
        """The name of the index of its table: the column of its levels, or its own name."""
        return self.name if self.column is None else self.column

    @property
    def region_column(self) -> Hashable:
        """The column of regions, or of groups, that its effects are of; of a product that of the first factor."""
        return self.column

    @property
    def along(self) -> Hashable:
        """The column that curves of groups run along."""
        return None

    @property
    @abstractmethod
    def columns(self) -> tuple[Hashable, ...]:
        """The names of the columns that it reads."""

    @property
    def claims(self) -> tuple[Hashable, ...]:
        """Those of them that are nothing else in a model: a slope leaves its x to be a covariate, too."""
        return self.columns

    @classmethod
    def serving(cls, columns: Sequence[DataColumn | None]) -> type[Term]:
        """The class that serves the columns of a formula: ``rw1`` at irregular times is ``Wiener``.

        None stands for a column whose levels the user has chosen.
        """
        return cls

    @abstractmethod
    def read(self, table: DataTable, scale: float) -> Self:
        """A copy that knows its levels and hyperparameters, from the rows of a fit.

        ``scale`` is that of eta: 1 on the scale of logs and logits, the sd of y for noise about eta.
        """

    def read_sketch(self, table: DataTable, scale: float, measured: Any) -> Self:
        """The same from a sketch of rows that are out of memory: some of them, which have every level.

        ``measured`` are the moments of ``survey_columns`` over all rows (``distributed.row_sums.TableMoments``).
        """
        return self.read(table, scale)

    def survey_columns(self, table: DataTable) -> np.ndarray | None:
        """Columns (N, k) whose moments over all rows ``read_sketch`` needs; None where the levels are enough."""
        return None

    def about(self, means: Mapping[Hashable, float]) -> Self:
        """As read from a sketch, about the means of the columns over all rows."""
        return self

    @abstractmethod
    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        """Its design and fixed columns at the rows of a table; ``new`` where fit has not seen them."""

    def precision(self, theta: np.ndarray) -> tuple[Sparse, list[Sparse]]:
        """Q (n_latents, n_latents) and its derivatives, scipy sparse of one pattern for every theta."""
        raise NotImplementedError(f"{type(self).__name__} has latents and no precision")

    def settled(self, theta: np.ndarray, noise: bool = True, evidence: float = 0.0) -> Self | None:
        """The same term, starting at theta, with choices that it makes there (which points are neighbours).

        ``noise``: rows have a variance of their own that is learned beside it; ``evidence``: of the model there. None,
        the default, where it makes none, or they would be much the same.
        """
        return None

    def refined(self, theta: np.ndarray, solution: Solution) -> Self | None:
        """Of a term that ``approximates``: the same with choices that suit the fit at theta; None at the end."""

    def cost_at(self, theta: np.ndarray, solution: Solution) -> Any:
        """Of such a term: the bound on what it costs at a fit, an ``ApproximationLoss``."""

    def population(self, theta: np.ndarray) -> np.ndarray:
        """Covariance (d, d) of the latents of a level that fit has not seen."""
        return np.zeros((0, 0))

    @property
    def group_columns(self) -> tuple[Hashable, ...]:
        """The columns that say which group a row has."""
        return tuple(self.columns)

    @property
    def of_groups(self) -> bool:
        """Whether it is an effect of groups, of which another one may come."""
        return self.grows

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
        """Rows that fit has not seen, and what they have beyond its latents: groups of the population.

        With ``ahead`` a series that knows how it goes on does, beyond its times; without, such a time is refused.
        Rows with nothing beyond the latents are the same at every theta, and are read once for all of them.
        """
        rows = self.rows(table, new=True)
        if rows.unseen is None:
            return rows, []
        strange = np.asarray(rows.unseen.any(axis=1) if rows.codes is None else rows.codes < 0)
        if not strange.any():
            return rows, []
        keys = list(zip(*(table.column(name).values for name in self.group_columns), strict=True))
        return rows, [Unseen(rows.unseen, self.population(theta), numbered(keys, strange), self.grows)]

    def shown(self) -> tuple[list[Hashable], TermRows] | None:
        """Where a table of the effect shows it: what the rows are called, and the rows; None: not at all."""
        return None

    def details(self) -> str:
        """What a summary says of it beside its levels: the size of a graph."""
        return ""

    def remarks(self, others: Sequence[Term]) -> list[str]:
        """What a user should hear of it beside the other terms of a model, a sentence each without its stop."""
        return []

    def remarks_at(self, theta: np.ndarray) -> list[str]:
        """What a user should hear of it where it was learned, a sentence each without its stop."""
        return []

    def readable(self, theta: np.ndarray) -> list[tuple[str, float]]:
        """theta as tables show it."""
        return [(h.scale.name, h.scale.value(float(t))) for h, t in zip(self.hyperparameters, theta, strict=True)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def with_levels(self, levels: Iterable[Hashable]) -> Self:
        """The same term over levels that the user chose; refused by a term that is not over the levels of a column."""
        raise problem("Model", f"levels of {str(self.name)!r}", "levels of a term over the levels of one column")

    def with_priors(self, priors: Sequence[ScalarPrior | None]) -> Self:
        """The same term with other priors of its hyperparameters."""
        out = copy.copy(self)
        pairs = zip(self.hyperparameters, priors, strict=True)
        out.hyperparameters = tuple(replace(h, prior=prior) for h, prior in pairs)
        return out
