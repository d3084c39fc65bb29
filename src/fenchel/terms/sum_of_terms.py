"""A sum of terms read against a table: eta = offset + intercept + X beta + W z, as one family of sparse priors.

The latents of each term form a block, in order. The fixed columns of all terms and covariates are centred and scaled
together (``inputs.fixed_columns``). ``gmrf.StackedField`` is the family of the whole prior.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp

from ..checks import choice, numeric, positive, problem
from ..gmrf import MarkovField, StackedField
from ..hyperparameters.priors import PC, ScalarPrior, independent
from ..inputs.fixed_columns import Columns
from ..inputs.frames import DataTable
from ..marginals import Answers
from ..priors.base import NewRows
from ..solvers.solution import Solution
from .base import FIXED_PART, Term, TermRows
from .forecast import Unseen

T = TypeVar("T")

_OWN_ROWS = 0.5  # groups to a row, from which their effects are noise of the rows


@dataclass(frozen=True)
class NewTable:
    """The rows of a new table: their design for the posterior, and their new levels.

    ``known`` holds, by the number of the term, its rows if these are the same at every theta.
    """

    rows: NewRows
    unseen: list[tuple[Term, Unseen]]
    known: dict[int, TermRows]


class SumOfTerms:
    """A sum of terms, with an intercept or without.

    Parameters
    ----------
    terms : sequence of Term
        Terms, covariates included. The coefficients of covariates come before the fixed effects of other terms.
    table : DataTable
        The rows of the fit.
    scale : float
        Scale of eta: 1 for logs and logits, the sd of y if y is eta plus noise.
    intercept : bool
    centred : bool, optional
        Whether fixed columns are centred; default: if there is an intercept.
    fixed_variance : float
        Prior variance of the intercept, and of the effect of one standard deviation of a fixed column.
    offset : float
        Known part of eta.
    weights : array (N,), optional
        Weights of the rows in means and standard deviations: 0 where unobserved.
    priors : "pc", None or dict
        "pc": the default priors of the terms; None: flat priors; or {term: {hyperparameter: prior}}.
    columns : Columns, optional
        Centres and scales of the fixed effects, if they are not those of the table.
    measured : dict, optional
        If the table is a sketch of rows that are out of memory: their sums, by term (``Term.read_sketch``).
    counts : dict, optional
        Number of rows of each level of an effect, if they are not those of the table.

    Attributes
    ----------
    terms : list of Term, as read
    columns : Columns
        Centres and scales of the fixed effects.
    """

    def __init__(
        self,
        terms: Sequence[Term],
        table: DataTable,
        *,
        scale: float = 1.0,
        intercept: bool = True,
        centred: bool | None = None,
        fixed_variance: float = 100.0,
        offset: float = 0.0,
        weights: np.ndarray | None = None,
        priors: Any = "pc",
        columns: Columns | None = None,
        measured: Mapping[Hashable, Any] | None = None,
        counts: dict[Hashable, np.ndarray] | None = None,
    ) -> None:
        self.where, self.intercept = table.where, intercept
        self.offset: float | np.ndarray = offset
        self._counts = counts
        if measured is None:
            read = [term.read(table, scale) for term in terms]
        else:
            read = [term.read_sketch(table, scale, measured.get(term.name)) for term in terms]
        self.training = [term.rows(table) for term in read]
        self.terms = _with_priors(self.where, read, priors)
        names = [term.name for term in self.effects]
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            raise problem(self.where, f"two effects are called {twice!r}", "a name each", "Give one of them: name=...")
        self.X = self._fixed(self.training, len(table))
        centred = intercept if centred is None else centred
        self.columns = columns or Columns.of(self.where, self.X, self.fixed_names, weights, centred)
        advice = "A flat prior is improper: use 100 or 1e4."
        positive(self.where, "fixed_variance", numeric(self.where, "fixed_variance", fixed_variance), advice)
        self.fixed_variance: float | np.ndarray = float(fixed_variance) * scale**2
        if not (self.effects or intercept or self.X.shape[1]):
            raise problem(self.where, "nothing is left to fit", "an effect, a covariate or an intercept")

    # -- parts -------------------------------------------------------------------------------------
    @property
    def effects(self) -> list[Term]:
        """The terms that have latents."""
        return [term for term in self.terms if term.n_latents]

    @property
    def fixed_names(self) -> list[str]:
        """Of the fixed effects, the intercept aside."""
        return [name for term in _covariates_first(self.terms, self.terms) for name in term.fixed_names]

    def thetas(self, theta: np.ndarray) -> list[tuple[Term, np.ndarray]]:
        """Each effect with its own part of theta; what comes behind is the likelihood's."""
        cuts = np.cumsum([len(term.hyperparameters) for term in self.effects]).astype(int)
        return list(zip(self.effects, np.split(theta, cuts)[:-1], strict=True)) if self.effects else []

    def counts(self, weights: np.ndarray) -> dict[Hashable, np.ndarray]:
        """How many rows of weight above 0 each level of an effect has."""
        if self._counts is not None:
            return self._counts
        return {
            term.name: np.bincount(rows.codes[weights > 0.0], minlength=len(term.levels or ()))
            for term, rows in zip(self.terms, self.training, strict=True)
            if term.n_latents and rows.codes is not None
        }

    def complaints(self) -> list[str]:
        """What the data cannot tell of the fixed effects, and what terms have to say, a sentence each."""
        single = [term.name for term in self.terms if term.single]
        return [
            *(f"the factor {name!r} has one level, so it has no coefficient" for name in single),
            *self.columns.complaints(),
            *(sentence for term in self.terms for sentence in term.remarks(self.terms)),
        ]

    # -- the family --------------------------------------------------------------------------------
    def family(self) -> StackedField:
        """The prior of eta at the rows of the fit, with hyperparameters."""
        parts, names = [], []
        for term, rows in zip(self.terms, self.training, strict=True):
            if not term.n_latents:
                continue
            typed = term.hyperparameters
            priors = {i: h.prior for i, h in enumerate(typed) if h.prior is not None}
            field = MarkovField(
                term.precision,
                [h.start for h in typed],
                [h.label for h in typed],
                [h.bounds for h in typed],
                constraints=term.constraints,
                log_prior=independent(priors) if priors else None,
                moving=term.moving,
            )
            parts.append((field, rows.design))
            names += [f"{term.name}: {h.label}" for h in typed]
        return StackedField(parts, self.X, self.columns, self.intercept, self.fixed_variance, names, self.offset)

    def settled(
        self,
        theta: np.ndarray,
        table: DataTable,
        noise: bool = True,
        evidence: float = 0.0,
        solution: Solution | None = None,
    ) -> Self | None:
        """The same with the choices that terms make at theta, whose family is to be learned anew; None without any.

        ``solution``: the fit there. ``noise``: the likelihood learns a variance of its own for rows; groups of few
        rows are one as well. A term
        that compares the ``evidence`` of its choices makes them while all others stay as they are.
        """
        noise = noise or any(len(term.levels or ()) > _OWN_ROWS * len(table) for term in self.effects if term.of_groups)
        first = next((term for term in self.effects if term.compares), None)
        made: dict[Hashable, Term] = {}
        for term, part in self.thetas(theta):
            if term.approximates and solution is not None:
                new = term.refined(part, solution) if first is None else None
            else:
                new = term.settled(part, noise, evidence) if first in (None, term) else None
            if new is not None:
                made[term.name] = new
        if not made:
            return None
        out = copy.copy(self)  # fits of this one go on answering
        out.terms, out.training = list(self.terms), list(self.training)
        for i, term in enumerate(self.terms):
            if term.name in made and term.n_latents:
                out.terms[i] = made[term.name]
                out.training[i] = out.terms[i].rows(table)
        return out

    # -- rows --------------------------------------------------------------------------------------
    def _fixed(self, rows: Sequence[TermRows], n: int) -> np.ndarray:
        return np.hstack([np.zeros((n, 0)), *(r.fixed for r in _covariates_first(self.terms, rows))])

    def new_rows(self, theta: np.ndarray, table: DataTable) -> NewRows:
        """The rows of any table: eta = design z + offset, levels that fit has not seen by their extra variance."""
        return self.new_table(theta, table).rows

    def new_table(
        self,
        theta: np.ndarray,
        table: DataTable,
        ahead: bool = False,
        without: Sequence[Hashable] = (),
        known: Mapping[int, TermRows] | None = None,
    ) -> NewTable:
        """The same, series beyond their times where ``ahead`` allows it; effects named in ``without`` are 0.

        Without ``FIXED_PART`` the intercept is 0 as well, and so are the means about which columns are taken.
        ``known``: that of the same table at another theta.
        """
        n, parts = len(table), {term.name: part for term, part in self.thetas(theta)}
        rows, unseen, extra = [], [], np.zeros(n)
        fixed = dict(known or {})
        for i, term in enumerate(self.terms):
            more: list[Unseen] = []
            if term.name in without:
                mine = _no_rows(term, n)
            elif i in fixed:
                mine = fixed[i]
            else:
                mine, more = term.new_rows(parts.get(term.name, np.zeros(0)), table, ahead)
            if not more:
                fixed[i] = mine
            rows.append(mine)
            unseen += [(term, each) for each in more]
            extra += sum((each.variance for each in more), np.zeros(n))
        X = self._fixed(rows, n)
        tail = self._uncentred(X) if FIXED_PART in without else self.columns.tail(X, self.intercept)
        new = NewRows(design=self._design(rows, tail), offset=self.offset, extra_variance=extra)
        return NewTable(new, unseen, fixed)

    def shown(self, name: Hashable) -> tuple[list[Hashable], sp.csr_array, np.ndarray | None] | None:
        """An effect where its table shows it, its trend as part of it: what the rows are called, a design, levels."""
        term = next(term for term in self.effects if term.name == name)
        where = term.shown()
        if where is None:
            return None
        labels, mine = where
        n, every = len(labels), self._alone(term, mine)
        return labels, self._design(every, self._uncentred(self._fixed(every, n))), mine.codes

    def _uncentred(self, X: np.ndarray) -> np.ndarray:
        """Fixed columns in their units, not about their means, and no intercept."""
        return np.hstack([np.zeros((X.shape[0], int(self.intercept))), X / self.columns.scale])

    def elsewhere(self, term: Term, theta: np.ndarray, points: np.ndarray) -> NewRows:
        """A term over columns of numbers at any points (N, columns), alone; ``theta`` is of all effects."""
        table = DataTable(self.where, dict(zip(term.columns, points.T, strict=True)))
        own = next(part for other, part in self.thetas(theta) if other is term)
        mine, more = term.new_rows(own, table, ahead=True)
        tail = np.zeros((len(points), int(self.intercept) + self.X.shape[1]))
        extra = sum((each.variance for each in more), np.zeros(len(points)))
        return NewRows(design=self._design(self._alone(term, mine), tail), extra_variance=extra)

    def _alone(self, term: Term, mine: TermRows) -> list[TermRows]:
        """Rows of every term, 0 but for those of one."""
        return [mine if other is term else _no_rows(other, mine.design.shape[0]) for other in self.terms]

    def _design(self, rows: Sequence[TermRows], tail: np.ndarray) -> sp.csr_array:
        blocks = [r.design for term, r in zip(self.terms, rows, strict=True) if term.n_latents]
        return sp.hstack([*blocks, sp.csr_array(tail)], format="csr")

    def fixed_effects(self, solution: Solution | Answers) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of (intercept, coefficients) on the scale of the columns as they came."""
        return self.columns.fixed_effects(solution, self.intercept)

    def fixed_rows(self) -> sp.csr_array:
        """(intercept, coefficients) on that scale as rows of a design over the latents (p, L)."""
        own = self.columns.to_user(self.intercept)
        before = sum(term.n_latents for term in self.terms)
        return sp.csr_array(np.hstack([np.zeros((len(own), before)), own]))


def _no_rows(term: Term, n: int) -> TermRows:
    """n rows at which a term is 0."""
    return TermRows(sp.csr_array((n, term.n_latents)), np.zeros((n, len(term.fixed_names))))


def _covariates_first(terms: Sequence[Term], each: Sequence[T]) -> list[T]:
    """What belongs to each term, in the order of the fixed effects: terms without latents first."""
    pairs = sorted(zip(terms, each, strict=True), key=lambda pair: pair[0].n_latents > 0)
    return [one for _, one in pairs]


def _with_priors(where: str, terms: list[Term], asked: Any) -> list[Term]:
    """The terms with the priors that a user asked for."""
    names = [term.name for term in terms if term.n_latents]
    if not isinstance(asked, Mapping):
        choice(where, "priors", asked, ("pc", None), "Or give a dict, {effect: priors}.")
        return terms if asked is not None else [term.with_priors([None] * len(term.hyperparameters)) for term in terms]
    unknown = [key for key in asked if key not in names]
    if unknown:
        raise problem(where, f"priors name {unknown[0]!r}", f"one of {names}")
    return [
        term.with_priors(_priors(where, term, asked[term.name])) if term.n_latents and term.name in asked else term
        for term in terms
    ]


def _priors(where: str, term: Term, asked: Any) -> list[ScalarPrior | None]:
    """The prior of each hyperparameter of a term: {name: prior}, one prior, or None for flat ones.

    One prior is of every hyperparameter that is called as the first, as sd[a] and sd[b] are; a ``PC`` of every one that
    is called as it says. A name may be the first words of several: "sd" of "sd intercept" and "sd x".
    """
    typed = term.hyperparameters
    if asked is None:
        return [None] * len(typed)
    if not typed:
        raise problem(where, f"priors name {str(term.name)!r}, whose size is fixed", "terms that have hyperparameters")
    if not isinstance(asked, Mapping):
        words = [h.scale.name.partition(" ")[0].partition("[")[0] for h in typed]
        word = asked.stated[0] if isinstance(asked, PC) and asked.stated[0] in words else words[0]
        asked = {h.scale.name: asked for h, own in zip(typed, words, strict=True) if own == word}
    known = {name: i for i, h in enumerate(typed) for name in (h.name, h.scale.name)}
    out = [h.prior for h in typed]
    for name, given in sorted(asked.items(), key=lambda item: item[0] in known):  # "sd" of all before "sd x"
        begins = (f"{name} ", f"{name}[")
        places = [known[name]] if name in known else [i for i, h in enumerate(typed) if h.scale.name.startswith(begins)]
        if not places:
            expected = ", ".join(h.scale.name for h in typed)
            raise problem(where, f"priors[{term.name!r}] names {name!r}", expected)
        for i in places:
            out[i] = typed[i].stated(where, term.name, typed[i].scale.name, given)
    return out
