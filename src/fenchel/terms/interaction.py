"""Interactions of two terms, with a latent for each pair of their latents, and copies of a series for each group.

    type I     Interaction(IID(r), IID(t))          independent effects
    type II    Interaction(IID(r), RW1(t))          each region has its own random walk
    type III   Interaction(ICAR(r), IID(t))         each time has its own map
    type IV    Interaction(ICAR(r), RW1(t))         the walks of neighbours are alike

(Knorr-Held 2000.) Constraints remove from the interaction the directions in which an intrinsic term is flat
(``gmrf/precisions.py``): the main effects, which are separate terms, and with RW2 the straight line of each region. A
remark says the latter. ``Replicated`` has independent copies of a series, one for each level of a group.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ..checks import instance, problem
from ..gmrf.precisions import Product, ProductFactor, row_products
from ..inputs.frames import DataTable
from ..priors.latent_priors import checked_constraints
from .base import Term, TermRows, deviation
from .forecast import Unseen, numbered
from .graph_terms import BYM, BYM2
from .grouped import IID, LevelTerm
from .slopes import Grouped

MOST_LATENTS = 10_000_000  # effects of a product: a sparse factor of more does not fit in memory


class Interaction(Term):
    """An interaction of two terms over levels: an effect for each combination of their levels.

    Parameters
    ----------
    first, second : LevelTerm
        ``IID``, ``ICAR``, ``Leroux``, ``Generic``, ``KnownCovariance``, ``RW1``, ``RW2``, ``AR1``, ``Seasonal`` or a
        term in continuous time. The interaction has one sd, and the other hyperparameters (phi, rho) of both terms.
    name : hashable, optional

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import ICAR, RW1, DataTable, Interaction
    >>> ring = np.roll(np.eye(5), 1, axis=0) + np.roll(np.eye(5), -1, axis=0)
    >>> table = DataTable("here", {"r": np.repeat(np.arange(5), 4), "t": np.tile(np.arange(4), 5)})
    >>> term = Interaction(ICAR("r", ring), RW1("t")).read(table, 1.0)
    >>> term.name, term.n_latents, len(term.constraints)
    ('r x t', 20, 8)
    """

    word = "interact"

    made: Product

    def __init__(self, first: LevelTerm, second: LevelTerm, *, name: Hashable = None) -> None:
        for word, term in (("first", first), ("second", second)):
            instance("Interaction", word, term, LevelTerm, 'IID("region")')
        self.first, self.second = first, second
        self.name = f"{first.name} x {second.name}" if name is None else name

    @property
    def region_column(self) -> Hashable:
        return self.first.column

    @property
    def along(self) -> Hashable:
        return self.second.column

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (*self.first.columns, *(c for c in self.second.columns if c not in self.first.columns))

    over_levels = True

    @property
    def claims(self) -> tuple[Hashable, ...]:
        return (*self.first.claims, *(c for c in self.second.claims if c not in self.first.claims))

    def read(self, table: DataTable, scale: float) -> Self:
        out = copy.copy(self)
        out.first, out.second = self.first.read(table, 1.0), self.second.read(table, 1.0)
        first, second = (_factor(table.where, self.name, term) for term in (out.first, out.second))
        if first.n * second.n > MOST_LATENTS:
            got = f"{self.name} has {first.n} times {second.n} effects"
            raise problem(table.where, got, f"at most {MOST_LATENTS:.0e}: an effect for every pair of levels")
        out.made = Product(first, second)
        out.constraints = out.made.constraints()
        out.n_latents = out.made.first.n * out.made.second.n
        rest = (*out.first.hyperparameters[1:], *out.second.hyperparameters[1:])
        out.hyperparameters = (deviation("sd", scale), *rest)
        return out

    def remarks(self, others: Sequence[Term]) -> list[str]:
        """Of straight lines that a factor is held free of and no other term has, for each level of the other factor."""
        pairs = (self.first, self.second), (self.second, self.first)
        lines = [
            f"{self.name}: it is held free of straight lines in {walk.column!r}, so that all levels of {by.column!r} "
            f"have one slope. With c = {walk.column} - its mean, icar({by.column}, by=c) or (0+c|{by.column}) adds a "
            "slope for each"
            for walk, by in pairs
            if walk.fixed_names and not any(_has_slopes(term, by.column) for term in others if term is not self)
        ]
        return [*lines, *self._far()]

    def _far(self) -> list[str]:
        """Of times far from the others."""
        return [f"{self.name}: {sentence}" for term in (self.first, self.second) for sentence in term.odd]

    def details(self) -> str:
        return ", ".join(text for text in (self.first.details(), self.second.details()) if text)

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.made(theta)

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        return self._at(*(term.rows(table, new and not term.grows) for term in (self.first, self.second)))

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
        """A factor in time goes on beyond its times, each latent of the other one by itself.

        A level of independent ones that fit has not seen has latents of the other factor of its own: a map for a new
        time, a walk for a new region.
        """
        own = np.split(theta[1:], [self.made.first.n_theta])
        a, b = (
            term.new_rows(np.r_[0.0, rest], table, ahead)
            for term, rest in zip((self.first, self.second), own, strict=True)
        )
        unseen, size = [], np.exp(2.0 * theta[0]) / self.made.spread
        for mine, theirs, other, rest in ((a, b, self.made.second, own[1]), (b, a, self.made.first, own[0])):
            for part in mine[1]:
                each, C = part.weights @ part.root(), size * other.covariance(rest)
                W = theirs[0].design.toarray()
                unseen += [Unseen(W * column[:, None], C, part.of, part.groups) for column in each.T if column.any()]
        return self._at(a[0], b[0]), [*unseen, *self._beyond_both(table, a[1], b[1], size)]

    def _beyond_both(self, table: DataTable, ours: list[Unseen], theirs: list[Unseen], size: float) -> list[Unseen]:
        """Rows whose level neither factor knows: a cell of its own where both are of independent levels."""
        out = []
        for one in ours:
            for other in theirs:
                both = (one.of >= 0) & (other.of >= 0)
                if both.any() and not (one.groups and other.groups):
                    raise problem(table.where, f"{self.name!r} is asked beyond both of its factors", "beyond one")
                if both.any():
                    cells = list(zip(one.of.tolist(), other.of.tolist(), strict=True))
                    weights = np.sqrt(size * one.variance * other.variance)[:, None]
                    out.append(Unseen(weights, np.ones(1), numbered(cells, both), True))
        return out

    def _at(self, a: TermRows, b: TermRows) -> TermRows:
        """The product of the rows of both factors."""
        return TermRows(row_products(sp.csr_array(a.design), sp.csr_array(b.design)))

    def shown(self) -> tuple[list[Hashable], TermRows]:
        (ours, a), (theirs, b) = self.first.shown(), self.second.shown()
        i, j = np.divmod(np.arange(len(ours) * len(theirs)), len(theirs))
        codes = None if a.codes is None else a.codes[i]
        rows = self._at(TermRows(a.design[i], codes=codes), TermRows(b.design[j], b.fixed[j]))
        return [(one, other) for one in ours for other in theirs], rows


def _has_slopes(term: Term, column: Hashable) -> bool:
    """Whether a term has coefficients of another column for each level of one."""
    own = isinstance(term, LevelTerm | Replicated) and column in term.group_columns
    return own and len(term.columns) > len(term.group_columns)


def _factor(where: str, name: Hashable, term: LevelTerm) -> ProductFactor:
    """A term as a factor of a product."""
    typed = term.hyperparameters
    several = isinstance(term, (BYM, BYM2)) or (isinstance(term, Grouped) and len(term.coefficients) > 1)
    if several or term.by is not None:
        got = f"{name!r} has the factor {term!r}, which is more than one effect a level"
        raise problem(
            where, got, "one effect a level", "Use ICAR or Leroux for maps, Grouped without slopes for groups."
        )
    C = term.constraints
    if C is not None:
        C = checked_constraints(term.precision(np.zeros(len(typed)))[0], C).toarray()
        if len(typed) > 1:
            raise problem(where, f"{name!r} has the factor {term!r}, held by constraints", "one hyperparameter in it")
    return ProductFactor(term.precision, len(typed) - 1, term.n_latents, C, term.spread)


class Replicated(Interaction):
    """Independent copies of a series, one for each level of a group, with the same hyperparameters.

    Parameters
    ----------
    term : LevelTerm
        ``RW1("t")``, ``AR1("t")``, ... Each copy has its own fixed effects (a slope). An intrinsic series sums to
        zero in each copy, so add a term of the group for its level.
    group : name of a column
    name : hashable, optional

    A new group is predicted by a new series of the population.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import RW2, DataTable, Replicated
    >>> table = DataTable("here", {"g": np.repeat(["a", "b"], 9), "t": np.tile(np.arange(9), 2)})
    >>> term = Replicated(RW2("t"), "g").read(table, 1.0)
    >>> term.name, term.fixed_names
    ('t by g', ['t (slope)[a]', 't (slope)[b]'])
    """

    def __init__(self, term: LevelTerm, group: Hashable, *, name: Hashable = None) -> None:
        several = isinstance(group, (list, tuple))
        super().__init__(Grouped(group) if several else IID(group), term)
        self.group = self.first.column
        self.name = f"{term.name} by {self.group}" if name is None else name

    @property
    def group_columns(self) -> tuple[Hashable, ...]:
        return self.first.group_columns

    def remarks(self, others: Sequence[Term]) -> list[str]:
        return self._far()  # every copy has its own slope

    def read(self, table: DataTable, scale: float) -> Self:
        out = super().read(table, scale)
        free, levels = out.second.fixed_names, out.first.shown()[0]
        out.fixed_names = [f"{word}[{level}]" for level in levels for word in free]
        return out

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        return self._at(self.first.rows(table, new), self.second.rows(table, new and not self.second.grows))

    def _at(self, a: TermRows, b: TermRows) -> TermRows:
        """With the fixed effects of each copy: 0 outside of the one that a row belongs to."""
        (n, r), copies = b.fixed.shape, len(self.first.levels)
        fixed = np.zeros((n, copies if r else 0, r))
        if r and a.codes is not None:
            known = np.flatnonzero(a.codes >= 0)
            fixed[known, a.codes[known]] = b.fixed[known]
        return TermRows(super()._at(a, b).design, fixed.reshape(n, -1))

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
        """Groups that fit has not seen have a series of their own; every series goes on beyond its times."""
        a, size = self.first.rows(table, True), np.exp(2.0 * theta[0]) / self.second.spread
        more: list[Unseen] = []
        if self.second.grows:
            b = self.second.rows(table)
        else:
            b, more = self.second.new_rows(np.r_[0.0, theta[1:]], table, ahead)
        groups = list(zip(*(table.column(name).values for name in self.group_columns), strict=True))
        unseen = [
            Unseen(part.weights, size * part.covariance, numbered(list(zip(groups, part.of)), part.of >= 0))
            for part in more
        ]
        if a.codes is not None and (a.codes < 0).any():
            new = (a.codes < 0).astype(float)
            series = sp.csr_array(new[:, None] * b.design).toarray()
            inner = size * self.made.second.covariance(theta[1:])
            unseen.append(Unseen(series, inner, numbered(groups, a.codes < 0), True))
        return self._at(a, b), unseen
