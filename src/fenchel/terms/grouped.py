"""Terms over the levels of a column: eta_i = w_i z[level of row i], where w is a column (a random slope) or 1.

``LevelTerm`` is their common base; ``IID`` has independent effects of groups.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from .. import gmrf
from ..checks import Refusal, problem
from ..gmrf import MarkovField
from ..inputs.frames import DataColumn, DataTable, Kind
from ..inputs.levels import inferred, is_name, listed, mismatch, present, shown, sort_of, step_of
from ..priors.sparse import SparsePrecision
from .base import START_SD, Hyperparameter, Term, TermRows, level_sd, one_each
from .forecast import FARTHEST, Unseen, beyond
from .matern_terms import far_times

_OF_R_INLA = {  # arguments of f(): what to write here
    "cyclic": 's(t, bs="cc", period=[0, 12]) is a curve whose two ends meet.',
    "group": "interact(icar(r), rw1(t)) is the product of two effects.",
    "replicate": "by= makes a series for each level of a column.",
    "graph": 'It is graphs={"r": ...} of the model, or icar(r, W) with a variable W.',
    "hyper": "It is priors={...} of the model.",
    "constr": "Intrinsic effects always sum to zero.",
    "order": "ar(t, p) is an autoregression of order p.",
}


class LevelTerm(Term):
    """Base class of terms with an effect for each level of a column.

    Parameters
    ----------
    column : name of a column
    by : name of a column of numbers, optional
        Multiplies the effect in each row: ``IID("g", by="x")`` is a random slope of x.
    levels : sequence, optional
        All levels in order. Give them if there are levels without data, or if their order matters.
    name : hashable, optional
        Default: the column, or ``"x | g"`` for a slope.
    **start : starting values of the hyperparameters by name, on their own scale: ``precision=4.0``

    A subclass gives the ``field`` over its levels (or its ``builder``), and ``typed`` if it has hyperparameters other
    than one sd.
    """

    over_levels = True
    over = "column"
    builder: ClassVar[Callable[..., MarkovField]]  # of the field, from the number of levels
    options: ClassVar[tuple[str, ...]] = ("precision",)  # what may be given a start
    least: int = 1  # levels
    standard: ClassVar[bool] = False  # the effect has typical variance 1 at precision 1

    at_any_times: ClassVar[type[Term] | None] = None  # the term of a formula where times are not equally spaced

    levels: list[Hashable]  # these, once it has been read
    place: dict[Hashable, int]  # of each level
    made: MarkovField  # at the starting values
    spread: float = 1.0  # typical variance of the effect at precision 1
    freed: np.ndarray  # the columns of ``free``
    odd: Sequence[str] = ()  # sentences about times that are far from the others

    def __init__(
        self,
        column: Hashable = None,
        *,
        by: Hashable = None,
        levels: Iterable[Hashable] | None = None,
        name: Hashable = None,
        **start: Any,
    ) -> None:
        for option in start:
            if option not in self.options:
                advice = _OF_R_INLA.get(option, "")
                raise problem(type(self).__name__, f"the option {option!r}", ", ".join(self.options), advice)
        self.column, self.by, self.chosen, self.start = column, by, levels, start
        self.name = name if name is not None or column is None else column if by is None else f"{by} | {column}"

    # -- what a subclass says ----------------------------------------------------------------------
    def field(self, **start: Any) -> MarkovField:
        """The field over ``levels``, at precision 1 or at other starting values."""
        return self.builder(len(self.levels), **start)

    def starts(self, k: float) -> dict[str, Any]:
        """The starting values at which the effect has typical precision k."""
        return {"precision": k * self.spread}

    def typed(self, scale: float, theta: np.ndarray) -> tuple[Hyperparameter, ...]:
        """The hyperparameters, starting at theta."""
        return (level_sd("sd", scale, theta[0], self.spread),)

    def typical_variance(self, column: DataColumn) -> float:
        """``spread``: that of the field at precision 1."""
        if self.standard:
            return 1.0
        unit = self.field()
        prior = SparsePrecision(unit.build(np.zeros(1))[0], constraints=unit.constraints)
        return typical(prior.factor.inverse_diagonal())

    def settle(self, column: DataColumn, chosen: list[Hashable] | None) -> list[Hashable]:
        """The levels, from those that the user chose or from the column."""
        return inferred(self.name, column, self.in_time) if chosen is None else chosen

    def free(self) -> tuple[list[str], np.ndarray]:
        """Fixed effects that give back what the field is held free of: names and columns (levels, r)."""
        return [], np.zeros((len(self.levels), 0))

    def recursion(self, theta: np.ndarray) -> tuple[np.ndarray, float] | None:
        """Of a series in equal steps: z_t = sum_j phi_j z_{t-j} + e_t, as phi and the variance of e; None of others."""
        return None

    def free_at(self, steps: np.ndarray) -> np.ndarray:
        """The columns of ``free`` (N, r) at steps before, among and beyond the levels."""
        return np.zeros((steps.size, 0))

    # -- the contract ------------------------------------------------------------------------------
    @classmethod
    def serving(cls, columns: Sequence[DataColumn | None]) -> type[Term]:
        return cls.at_any_times if cls.at_any_times is not None and _irregular(columns[0]) else cls

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (self.column,) if self.by is None else (self.column, self.by)

    @property
    def claims(self) -> tuple[Hashable, ...]:
        return (self.column,)

    def with_levels(self, levels: Iterable[Hashable]) -> Self:
        out = copy.copy(self)
        out.chosen = levels
        return out

    def survey_columns(self, table: DataTable) -> np.ndarray | None:
        """The squares of ``by``."""
        return None if self.by is None else table.column(self.by).numbers()[:, None] ** 2

    def read(self, table: DataTable, scale: float) -> Self:
        return self.read_sketch(table, scale, None)

    def read_sketch(self, table: DataTable, scale: float, measured: Any) -> Self:
        out = self.with_place(table)
        out.spread = out.typical_variance(table.column(self.column))
        if self.by is not None:
            x = table.column(self.by).numbers()
            square = table.mean(x**2) if measured is None else measured.mean[0]
            scale = scale / (float(np.sqrt(square)) or 1.0)  # so that a slope's prior means the same in every unit
        out.made = out.field(**{**out.starts(1.0 / (START_SD * scale) ** 2), **self.start})
        out.hyperparameters = out.typed(scale, out.made.theta)
        out.constraints, out.n_latents = out.made.constraints, out.made.n_latents
        out.fixed_names, out.freed = out.free()
        return out

    def with_place(self, table: DataTable) -> Self:
        """A copy that knows its levels, and the place of each."""
        out, column = copy.copy(self), self.column_of(table)
        chosen = None if self.chosen is None else listed(table.where, self.name, self.chosen)
        out.levels = out.settle(column, chosen)
        n = len(out.levels)
        if n < out.least:
            got = f"the effect {self.name!r} has {n} {'time' if self.in_time else 'level'}{'' if n == 1 else 's'}"
            advice = f"levels={{{self.name!r}: ...}} names more than the data have."
            raise problem(table.where, got, f"at least {out.least}", advice)
        out.place = {level: i for i, level in enumerate(out.levels)}
        out.odd = far_times(column, table.places) if self.in_time and chosen is None else []
        return out

    def column_of(self, table: DataTable) -> DataColumn:
        """The column whose values are its levels."""
        return table.column(self.column)

    @property
    def group_columns(self) -> tuple[Hashable, ...]:
        return (self.column,)

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.made.build(theta)

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        codes = self.codes(table.column(self.column), new)
        return self._at(codes, np.ones(codes.size) if self.by is None else table.column(self.by).numbers())

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
        known = self.recursion(theta) if ahead and self.in_time else None
        if known is None or all(value in self.place for value in table.column(self.column).values):
            return super().new_rows(theta, table, ahead)
        column = table.column(self.column)
        steps = np.array([self._step(column, i, value) for i, value in enumerate(column.values)])
        weight = np.ones(steps.size) if self.by is None else table.column(self.by).numbers()
        n, (phi, variance) = len(self.levels), known
        design, noise = beyond(steps, n, phi, weight)
        inside = (steps >= 0) & (steps < n)
        rows = TermRows(design, weight[:, None] * self.free_at(steps), np.where(inside, steps, -1))
        return rows, [Unseen(noise, np.full(noise.shape[1], variance), np.where(inside, -1, 0))]

    def _step(self, column: DataColumn, row: int, value: Hashable) -> int:
        """Which step of the series a time is, those before and after its levels included."""
        if value in self.place:
            return self.place[value]
        step = step_of(self.levels, value) if present(value) else None
        if step is None:
            raise self._unknown(column, row, value, True)
        if not -FARTHEST <= step < len(self.levels) + FARTHEST:
            got = f"X[{row}, {column.name!r}] = {value!r} is {abs(step)} steps away"
            raise problem(column.where, got, f"at most {FARTHEST} beyond the levels of {self.name!r}")
        return step

    def shown(self) -> tuple[list[Hashable], TermRows]:
        every = np.arange(len(self.levels))
        return self.levels, self._at(every, np.ones(every.size))

    def remarks(self, others: Sequence[Term]) -> list[str]:
        return [f"{self.name}: {sentence}" for sentence in self.odd]

    # -- rows --------------------------------------------------------------------------------------
    def _at(self, codes: np.ndarray, weight: np.ndarray) -> TermRows:
        """Rows at levels, over the field's own latents: (u, v) for the sum of a structured and an independent part."""
        known = codes >= 0
        design = one_each(codes, len(self.levels), weight)
        if self.made.design is not None:
            design = sp.csr_array(design @ self.made.design)
            design.sort_indices()
        unseen = np.where(known, 0.0, weight)[:, None] if self.grows else None
        return TermRows(design, (weight * known)[:, None] * self.freed[codes], codes, unseen)

    def codes(self, column: DataColumn, new: bool = False) -> np.ndarray:
        """The level of each row (N,); of new rows, -1 for a group that fit has not seen where groups are independent.

        A group of another sort than all that fit has seen, "10" for 10, is none of them and no new one: refused.
        Text that is no number, "new", cannot be meant for one of them.
        """
        at, different = column.data.factorize()
        values = different.tolist()
        places = np.array([self.place.get(value, -1) for value in values], dtype=np.int64)
        refused, sorts = np.zeros(places.size, dtype=bool), set()  # sorts of new groups: text, numbers, dates
        numbered = (places < 0).any() and all(sort_of(level) == "numbers" for level in self.levels)
        for k in np.flatnonzero(places < 0):
            sort, may_be_new = sort_of(values[k]), new and self.grows and present(values[k])
            if may_be_new and (sort in sorts or mismatch(column.name, values[k], self.levels) is None):
                sorts.add(sort)
            else:
                refused[k] = not (may_be_new and numbered and is_name(values[k]))
        bad = np.append(refused, True)[at]  # at is -1 where the value is missing
        if bad.any():
            i = int(np.argmax(bad))
            raise self._unknown(column, i, column.values[i], new)
        return np.asarray(places[at])

    def _unknown(self, column: DataColumn, row: int, value: Hashable, new: bool) -> ValueError:
        where, got = column.where, f"X[{row}, {column.name!r}] = {value!r}"
        if not present(value):
            advice = "Drop the row, or give what is missing a level of its own."
            if new:
                advice = "Drop the row."
                if self.grows:
                    advice += " A group that fit has not seen is predicted from the population, under any name."
            return problem(where, f"{got} is NaN or inf", "a level in every row", advice)
        known = f"one of {len(self.levels)} levels {shown(self.levels)}"
        other = mismatch(column.name, value, self.levels)
        unnamed = self.levels == list(range(len(self.levels)))
        if other is not None and unnamed and not self.grows and not self.in_time:
            advice = f"levels={{{column.name!r}: [...]}} names them in the order of the matrix."
            return problem(where, f"{got} is a name and the nodes have none", known, advice)
        if other is not None:
            return problem(where, f"{got} is {sort_of(value)} and the levels are {other[0]}", known, other[1])
        if self.in_time:
            advice = f"To reach other times give them all to fit: levels={{{self.name!r}: ...}}."
        elif unnamed:
            advice = f"Name the nodes in the graph's order, levels={{{self.name!r}: ...}}, or count them from 0."
        else:
            advice = f"A level without data is fine when fit knows it: levels={{{self.name!r}: ...}}."
        return problem(where, f"{got} is unknown to the effect", known, advice)


class IID(LevelTerm):
    """Independent effects of groups, N(0, sd^2): a random intercept, or with ``by`` a random slope.

    A new group is predicted as one more group of the population.
    """

    word, partitioned = "iid", True
    builder, standard, grows = staticmethod(gmrf.iid), True, True

    def population(self, theta: np.ndarray) -> np.ndarray:
        return np.array([[np.exp(2.0 * theta[0])]])


def _irregular(column: DataColumn | None) -> bool:
    """Whether a column holds numbers or dates that are no regular steps."""
    if column is None or column.kind not in (Kind.NUMBERS, Kind.DATES):
        return False
    try:
        inferred(column.name, column, True)
    except Refusal:
        return True
    return False


def typical(variance: np.ndarray) -> float:
    """The geometric mean of the variances of the levels that can move."""
    moving = variance > 1e-12 * variance.max()
    return float(np.exp(np.log(variance[moving]).mean()))
