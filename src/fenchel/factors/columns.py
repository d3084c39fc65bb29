"""Reading a table: the likelihood of each column, its cells as numbers, and numbers as cells.

    bernoulli     two levels, 0 and 1                      log odds of the second
    multinomial   K levels, 0 to K - 1                     K - 1 log odds against the last, the reference
    poisson       counts 0, 1, 2, ...                      log rate
    gaussian      any real number                          mean
    ordinal       K ordered levels, 0 to K - 1             one latent between K - 1 cutpoints

Other likelihoods are given by their name in ``likelihoods`` or as objects. "auto" decides by the dtype, or by the
evidence if whole numbers have several possible meanings (``reading.py``). ``Column.why`` says why the likelihood was
chosen, and ``guessed`` whether another one was nearly as good. Row numbers, dates and digits as text are refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from .. import likelihoods
from ..checks import Refusal, choice, first_value, number, problem
from ..likelihoods import BernoulliLogit, MultinomialLogit, Ordinal
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from .reading import ColumnReading, RawColumn, Wanted, is_frame, listed, plain_array, readings, split, word


@dataclass(frozen=True)
class Column:
    """A column of a table and its likelihood.

    Attributes
    ----------
    name : the name in the table, or x0, x1, ...
    likelihood : Likelihood
        The likelihood of its cells, with starting parameters.
    levels : tuple
        The labels in the table, in order, if the likelihood has levels; the last is the reference of a multinomial.
        Empty for numbers.
    dtype : the dtype of a pandas column, else None
    why : str
        The reason for this likelihood.
    guessed : bool
        Whether another likelihood was nearly as good.
    """

    name: Any
    likelihood: Likelihood
    levels: tuple[Any, ...] = ()
    dtype: Any = field(default=None, compare=False, repr=False)
    why: str = field(default="", compare=False, repr=False)
    guessed: bool = field(default=False, compare=False, repr=False)

    @property
    def kind(self) -> str:
        """The name of its likelihood, or of its class."""
        return word_of(self.likelihood)

    @property
    def holes(self) -> bool:
        """Whether the dtype can represent missing cells."""
        return not isinstance(self.dtype, np.dtype) or self.dtype.kind in "fO"

    @property
    def n_levels(self) -> int:
        """The number of levels; 0 for numbers."""
        return len(self.levels)

    @property
    def level_names(self) -> list[str]:
        """``column=level`` for each level."""
        return [f"{self.name}={number(x) if isinstance(x, float) else x}" for x in self.levels]


class FactorTable:
    """A table as numbers, with the likelihoods of its columns.

    Attributes
    ----------
    columns : tuple of D Column
    values : array (R, D)
        float64: 0/1, indices of levels, counts or real numbers; NaN for missing cells.
    frame : bool
        Whether it was given as a pandas table.
    """

    def __init__(self, columns: tuple[Column, ...], values: np.ndarray, frame: bool) -> None:
        self.columns, self.values, self.frame = columns, values, frame

    @property
    def kinds(self) -> list[str]:
        """The kind of each column."""
        return [column.kind for column in self.columns]

    @property
    def likelihoods(self) -> list[Likelihood]:
        """The likelihood of each column."""
        return [column.likelihood for column in self.columns]

    def summary(self) -> Any:
        """How each column was read, as a pandas table: kind, number of levels, reason, and whether it is a guess."""
        rows = [(c.kind, c.n_levels, c.why, c.guessed) for c in self.columns]
        index = [c.name for c in self.columns]
        return pd.DataFrame(rows, index=index, columns=["kind", "n_levels", "why", "guessed"]).rename_axis("column")

    def warn_of_guesses(self, where: str, stacklevel: int = 3) -> None:
        """Warn once about all columns whose kind is a guess."""
        unsure = [c for c in self.columns if c.guessed]
        if unsure:
            named = "; ".join(f"{c.name!r} as {c.kind} ({c.why})" for c in unsure[:5])
            more = f"; and {len(unsure) - 5} more" if len(unsure) > 5 else ""
            warnings.warn(
                f"{where}: {len(unsure)} of {len(self.columns)} columns were read by a guess: {named}{more}. "
                f"Say what they are with likelihood={{{unsure[0].name!r}: ...}}.",
                UserWarning,
                stacklevel=stacklevel,
            )

    def __repr__(self) -> str:
        return f"FactorTable({self.values.shape[0]} rows, {', '.join(f'{c.name}: {c.kind}' for c in self.columns)})"

    def encode(self, X: ArrayLike, where: str = "encode") -> np.ndarray:
        """New rows with the same columns, as numbers (M, D).

        If this table had names, a pandas table is read by names, in any order; other columns are ignored.
        """
        cells = split(self._select(X, where), where)
        if len(cells) != len(self.columns):
            raise problem(where, f"X has {len(cells)} columns", f"{len(self.columns)} columns, as in fit")
        cells = [replace(part, name=column.name) for part, column in zip(cells, self.columns)]
        parts = [_encode(part, c.likelihood, c.levels, where) for part, c in zip(cells, self.columns)]
        values = _stack(parts, cells)
        _check(self.columns, values, where)
        return values

    def _select(self, X: Any, where: str) -> Any:
        if not (self.frame and is_frame(X)):
            return X
        names = [column.name for column in self.columns]
        lost = [name for name in names if name not in X.columns]
        if lost:
            raise problem(where, f"X has no column {lost[0]!r}", f"the columns of fit: {listed(names)}")
        return X[names]

    def decode(self, values: ArrayLike, index: Any = None) -> Any:
        """Numbers (M, D) as a table like the original: labels for levels; pandas or an array."""
        values = np.asarray(values, dtype=np.float64)
        parts = [labels(column, values[:, d]) for d, column in enumerate(self.columns)]
        if self.frame:
            out = pd.DataFrame(dict(enumerate(parts)), index=index)
            for d, column in enumerate(self.columns):
                if column.levels or _whole(values[:, d]):
                    whole = not np.isnan(values[:, d]).any()
                    out[d] = out[d].astype(column.dtype) if whole or column.holes else out[d]
            return out.set_axis([column.name for column in self.columns], axis=1)
        if any(part.dtype == object for part in parts):
            return np.column_stack([part.astype(object) for part in parts])
        return np.column_stack(parts)

    def fill(self, X: Any, values: np.ndarray, plain: Collection[int] = ()) -> Any:
        """X with its missing cells replaced by ``values`` (M, D), in the numbers of ``encode``; of the type of X.

        Columns in ``plain`` have values as in the table, not indices of levels. An integer column of pandas becomes
        float if a mean is inserted. An array of integers has no missing cells.
        """
        holes = np.isnan(self.encode(X, "fill"))
        if is_frame(X):
            return self._fill_frame(X, values, holes, plain)
        dense = np.array(plain_array(X))
        for d, column in enumerate(self.columns):
            rows = np.flatnonzero(holes[:, d])
            if rows.size:
                dense[rows, d] = values[rows, d] if d in plain else labels(column, values[rows, d])
        return type(X)(dense) if issparse(X) else dense

    def _fill_frame(self, X: Any, values: np.ndarray, holes: np.ndarray, plain: Collection[int]) -> Any:
        out = X.copy()
        for d, column in enumerate(self.columns):
            rows = np.flatnonzero(holes[:, d])
            if not rows.size:
                continue
            name = column.name if self.frame else X.columns[d]
            of_levels = bool(column.levels) and d not in plain
            part = X[name].copy() if of_levels else X[name].astype(real_dtype(X[name].dtype))
            part.iloc[rows] = labels(column, values[rows, d]) if of_levels else values[rows, d]
            out[name] = part
        return out


def labels(column: Column, codes: np.ndarray) -> np.ndarray:
    """Indices of levels as labels, with their own dtype if no cell is missing; numbers are unchanged."""
    if not column.levels:
        return codes
    gone = np.isnan(codes)
    names = pd.Series(list(column.levels)).to_numpy()  # bools, numbers or objects
    out = names[np.where(gone, 0, codes).astype(np.intp)]
    if gone.any():
        out = out.astype(np.float64 if names.dtype.kind in "iuf" else object)
        out[gone] = np.nan if out.dtype != object else None
    return out


def _whole(values: np.ndarray) -> bool:
    return bool((np.isnan(values) | (values == np.floor(values))).all())


def real_dtype(dtype: Any) -> Any:
    """The dtype itself, or the dtype of real numbers that represents missing values in the same way."""
    return "Float64" if dtype.kind in "iu" or dtype == "category" else dtype


def read(X: ArrayLike, likelihood: Any = "auto", where: str = "read", bound: str = "tilted") -> FactorTable:
    """Read a table.

    Parameters
    ----------
    X : pandas table, array (R, D) of numbers or objects, or scipy sparse
        Missing cells are NaN, None, NA or masked.
    likelihood : str or Likelihood, list of D of them, or dict by column
        "auto", "bernoulli", "poisson", "multinomial", "ordinal", "gaussian" or the name of another likelihood. Columns
        that a dict omits are "auto". Without column names the keys are indices, or x0, x1, ...
    bound : str
        The bound for likelihoods with a choice; a Likelihood has its own. With a multinomial "exact" means "tilted".

    Returns
    -------
    FactorTable

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.factors.columns import read
    >>> table = read(np.array([[0, 1.5], [1, np.nan], [np.nan, 2.0]]))
    >>> table.kinds, table.columns[0].levels
    (['bernoulli', 'gaussian'], (0.0, 1.0))
    >>> read([["yes", "red"], ["no", "blue"], ["no", "green"]]).columns[1].levels
    ('blue', 'green', 'red')
    """
    cells = split(X, where)
    column_readings = readings(cells, wanted(likelihood, [part.name for part in cells], where), where)
    named = [levels_of(part, reading, where) for part, reading in zip(cells, column_readings)]
    if bound == "exact" and any(word_of(kind) == "multinomial" for kind, _ in named):
        bound = "tilted"
    parts = [_encode(part, kind, levels, where) for part, (kind, levels) in zip(cells, named)]
    columns = tuple(
        Column(part.name, begun(kind, codes, len(levels), bound), levels, part.dtype, reading.why, reading.guessed)
        for part, codes, reading, (kind, levels) in zip(cells, parts, column_readings, named)
    )
    values = _stack(parts, cells)
    _check(columns, values, where)
    return FactorTable(columns, values, is_frame(X))


# -- cells as numbers ----------------------------------------------------------------------------------
def _stack(parts: list[np.ndarray], cells: list[RawColumn]) -> np.ndarray:
    values = np.full((cells[0].missing.size, len(cells)), np.nan)
    for d, (part, column) in enumerate(zip(parts, cells)):
        values[~column.missing, d] = part
    return values


def _encode(cells: RawColumn, kind: Kind, levels: tuple[Any, ...], where: str) -> np.ndarray:
    """The cells that are not missing, as float64."""
    seen, name = cells.seen, cells.name
    if levels:
        return codes_of(cells, levels, where)
    if seen.size == 0:
        return np.zeros(0)
    if not cells.is_number:
        raise problem(where, f"column {name!r} is not numbers", f"numbers, as a {word_of(kind)} column has")
    values = seen.astype(np.float64)
    if not np.isfinite(values).all():
        bad = ~np.isfinite(values)
        got = f"column {name!r}, row {np.flatnonzero(~cells.missing)[bad][0]}: {number(values[bad][0])}"
        raise problem(where, got, "finite numbers, or NaN for a missing cell; no infinity or a value too large for it")
    return values


def _check(columns: Sequence[Column], values: np.ndarray, where: str) -> None:
    """Check numbers as their likelihoods require: whole, positive, or between 0 and 1."""
    for column, y in zip(columns, values.T):
        bad = (y < 0) | ~(np.isnan(y) | (y == np.floor(y)))
        if column.likelihood.support == "count" and bad.any():
            got = f"column {column.name!r}{first_value(bad, y)} is not a count"
            raise problem(where, got, "0, 1, 2, ... or NaN for a missing cell", 'For real numbers use "gaussian".')
        if not column.levels:
            try:
                column.likelihood.prepare(y)
            except Refusal as refusal:
                raise Refusal(f"{where}: column {column.name!r}: {refusal}") from None


def codes_of(cells: RawColumn, levels: tuple[Any, ...], where: str) -> np.ndarray:
    """The index of each cell's level."""
    try:
        codes = pd.Index(levels, dtype=object).get_indexer(pd.Index(cells.seen, dtype=object))
    except TypeError:
        raise problem(where, f"column {cells.name!r} has cells that are not labels", "text or numbers") from None
    unknown = codes < 0
    if unknown.any():
        row = int(np.flatnonzero(~cells.missing)[unknown][0])
        got = f"column {cells.name!r}, row {row}: {word(cells.seen[unknown][0])} is an unknown level"
        raise problem(where, got, f"one of {listed(levels)}", "Use a missing cell for it, or fit on such rows.")
    return codes.astype(np.float64)


# -- The likelihood of a column ----------------------------------------------------------------------
# Users name a likelihood or give an object. A name means a class, whose starting parameters are estimated from the
# cells (``begun``), or a likelihood with fixed parameters.
Kind = type[Likelihood] | Likelihood
_COMMON = ("bernoulli", "poisson", "multinomial", "ordinal", "gaussian")


def words() -> dict[str, Kind]:
    """The names of likelihoods for columns; those that need trials or have no mean are left out."""
    known: dict[str, Kind] = {
        word: own if own.called else type(own)
        for word, own in likelihoods.WORDS.items()
        if not (own.needs or own.of_variance)
    }
    known["multinomial"] = MultinomialLogit
    return {word: known[word] for word in (*_COMMON, *known)}


def wanted(likelihood: Any, names: list[Any], where: str) -> list[Wanted]:
    """A likelihood or its class for each column; None for "auto"."""
    match likelihood:
        case str() | Likelihood():
            return [_named(where, "likelihood", likelihood)] * len(names)
        case Mapping():
            words = _by_column(where, likelihood, names)
        case _:
            try:
                words = list(likelihood)
            except TypeError:
                got = f"likelihood = {likelihood!r}"
                raise problem(where, got, "a word, a list with one for each column, or a dict by column") from None
            if len(words) != len(names):
                raise problem(where, f"{len(words)} likelihoods were given for {len(names)} columns", "one for each")
    return [_named(where, f"likelihood of column {name!r}", word) for name, word in zip(names, words)]


def _by_column(where: str, likelihood: Mapping[Any, Any], names: list[Any]) -> list[Any]:
    """A name for each column, from a dict by names or indices."""
    given: dict[Any, Any] = {}
    for key, kind in likelihood.items():
        is_place = key not in names and key in range(-len(names), len(names))
        given[names[key] if is_place else key] = kind
    strange = [key for key in given if key not in names]
    if strange:
        raise problem(where, f"likelihood names a column {strange[0]!r}", f"some of {listed(names)}")
    return [given.get(name, "auto") for name in names]


def _named(where: str, what: str, word: Any) -> Wanted:
    if isinstance(word, Likelihood):
        rows = [key for key, value in word.row_values.items() if np.ndim(value)]
        if rows:
            raise problem(where, f"{what} has one {rows[0]} for each row", "one number for all rows")
        return word
    choice(where, what, word, ("auto", *words()), "Or give a Likelihood.")
    return words().get(word)


def levels_of(cells: RawColumn, reading: ColumnReading, where: str) -> tuple[Kind, tuple[Any, ...]]:
    """The likelihood of a column, or its class, with the levels in order (empty for numbers)."""
    name, seen, kind = cells.name, cells.seen, reading.kind
    if kind is not None and kind.support != "levels":
        if not cells.is_number:
            got, expected = f"column {name!r} is not numbers", f"numbers for {word_of(kind)!r}"
            raise problem(where, got, expected, 'Try "multinomial".')
        return kind, ()
    known = 2 if seen.dtype.kind == "b" else None if kind is None else _n_levels(kind)
    if kind is not None and known and cells.is_number and np.isin(seen, np.arange(known)).all():
        return kind, tuple(np.arange(known).astype(seen.dtype).tolist())  # some levels may not occur
    levels = cells.declared if cells.declared is not None else _levels(cells, where)
    if kind is None:  # text or categories: two or more levels
        kind = BernoulliLogit if len(levels) == 2 else Ordinal if cells.ordered else MultinomialLogit
        if cells.declared is None and len(levels) == seen.size > 10:
            advice = "Leave it out, or make it the index; or ask for it with likelihood."
            raise problem(where, f"column {name!r} has a different label in every row", "labels that repeat", advice)
    if len(levels) < 2:
        got = f"column {name!r} has one level only, {word(levels[0])}"
        raise problem(where, got, "at least two levels", "A constant says nothing about the factors: leave it out.")
    if _n_levels(kind) not in (None, len(levels)):
        got, wanted = f"column {name!r} has {len(levels)} levels", _n_levels(kind)
        expected = f'{"two" if wanted == 2 else wanted} for "{word_of(kind)}"'
        raise problem(where, got, expected, 'Try "multinomial", or "poisson" for counts.')
    if kind.ordered and not (cells.is_number or cells.declared is not None):
        advice = "Give the order: pandas.Categorical(x, categories=[...], ordered=True), or numbers."
        got = f"column {name!r} is text, whose order is not known"
        raise problem(where, got, f'an order for "{word_of(kind)}"', advice)
    return kind, tuple(levels)


def _n_levels(kind: Kind) -> int | None:
    """The number of levels if the likelihood fixes it; an ordered class may start with any number."""
    return None if isinstance(kind, type) and (kind.ordered or kind is MultinomialLogit) else kind.n_levels


def word_of(kind: Kind) -> str:
    cls = kind if isinstance(kind, type) else type(kind)
    own = None if isinstance(kind, type) else kind.word
    return own or next((word for word, known in words().items() if known is cls), cls.__name__)


def is_softmax(own: Likelihood) -> bool:
    """Whether the levels share a normalisation, with predictors for all levels but the last, even if there are two."""
    return own.objective.coupled


def begun(kind: Kind, seen: np.ndarray, n_levels: int, bound: str) -> Likelihood:
    """The likelihood with starting parameters from the cells that are not missing."""
    if kind is MultinomialLogit:
        return MultinomialLogit(n_levels, bound="log-sum")
    pattern = next((own for own in likelihoods.WORDS.values() if kind is own or kind is type(own)), None)
    if pattern is None:
        return kind  # type: ignore[return-value]  # a likelihood as it is
    bound = bound if bound in pattern.bounds else "best"
    return pattern.starting(seen, bound=bound) if pattern.parameters else _plain(pattern, bound)


@cache
def _plain(pattern: Likelihood, bound: str) -> Likelihood:
    """Columns whose likelihoods have no parameters share one object."""
    return pattern.starting(np.zeros(0), bound=bound)


def _levels(cells: RawColumn, where: str) -> tuple[Any, ...]:
    """Distinct labels, sorted if possible."""
    if cells.is_number:
        if not np.isfinite(cells.seen.astype(np.float64)).all():
            raise problem(where, f"column {cells.name!r} has an infinite cell", "finite numbers")
        return tuple(np.unique(cells.seen).tolist())
    try:
        distinct = list(set(cells.seen.tolist()))
    except TypeError:
        odd = next((type(cell).__name__ for cell in cells.seen if type(cell).__hash__ is None), "list")
        got = f"column {cells.name!r} has a {odd} in a cell"
        raise problem(where, got, "numbers or labels such as text") from None
    try:
        return tuple(sorted(distinct))
    except TypeError:
        return tuple(sorted(distinct, key=lambda level: (type(level).__name__, str(level))))
