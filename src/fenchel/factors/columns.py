"""Understanding a table: what each column is, its cells as numbers, and numbers as cells again.

    bernoulli     two levels, 0 and 1                      log odds of the second
    multinomial   K levels, 0 to K - 1                     K - 1 log odds against the last, the reference
    poisson       counts 0, 1, 2, ...                      log rate
    gaussian      any real number                          mean

    ordinal       K ordered levels, 0 to K - 1             one latent between K - 1 cutpoints

"auto" decides by the dtype where there is one that says it: bool is bernoulli, ordered categories are ordinal, other
categories and text bernoulli or multinomial. Numbers are a Gaussian unless they are all 0 or 1, or whole: of an integer
dtype, or with holes (which make pandas turn integers into floats). Whole numbers are counts, ordered levels or
categories by the evidence of each reading (``reading.py``); with many distinct values counts or a Gaussian, which they
also are where they are large, or some are negative and the cells too few to tell. ``Column.why`` says which it was, and
``guessed`` where another reading was nearly as good. What is not data is refused: row numbers, dates, digits as text.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..checks import choice, first_value, number, problem
from .cells import Cells, is_frame, split, unmasked, word
from .reading import Reading, readings

KINDS = ("bernoulli", "poisson", "multinomial", "ordinal", "gaussian")
_WHERE = "read"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : as in the table, or x0, x1, ...
    kind : {"bernoulli", "poisson", "multinomial", "ordinal", "gaussian"}
    levels : tuple
        The labels of a bernoulli, multinomial or ordinal column as they stand in the table, in order; the last is the
        reference of a multinomial. Empty otherwise.
    dtype : of a pandas column, else None
    why : str
        What made it that kind.
    guessed : bool
        Whether another kind would have been nearly as good.
    """

    name: Any
    kind: str
    levels: tuple[Any, ...] = ()
    dtype: Any = field(default=None, compare=False, repr=False)
    why: str = field(default="", compare=False, repr=False)
    guessed: bool = field(default=False, compare=False, repr=False)

    @property
    def holes(self) -> bool:
        """Whether the dtype has room for a missing cell."""
        return not isinstance(self.dtype, np.dtype) or self.dtype.kind in "fO"

    @property
    def n_levels(self) -> int:
        """How many levels; 0 for numbers."""
        return len(self.levels)

    @property
    def level_names(self) -> list[str]:
        """``column=level`` for each."""
        return [f"{self.name}={number(x) if isinstance(x, float) else x}" for x in self.levels]


class Table:
    """A table that was understood.

    Attributes
    ----------
    columns : tuple of D Column
    values : array (R, D)
        float64: 0/1, level numbers, counts or numbers; NaN where missing.
    frame : bool
        Whether it came as a pandas table.
    """

    def __init__(self, columns: tuple[Column, ...], values: np.ndarray, frame: bool) -> None:
        self.columns, self.values, self.frame = columns, values, frame

    @property
    def kinds(self) -> list[str]:
        """Of the columns."""
        return [column.kind for column in self.columns]

    @property
    def n_levels(self) -> list[int]:
        """Of the columns; 0 for numbers."""
        return [column.n_levels for column in self.columns]

    def summary(self) -> Any:
        """How each column was read, as a pandas table: kind, the number of levels, why, and whether it is a guess."""
        from pandas import DataFrame

        rows = [(c.kind, c.n_levels, c.why, c.guessed) for c in self.columns]
        index = [c.name for c in self.columns]
        return DataFrame(rows, index=index, columns=["kind", "n_levels", "why", "guessed"]).rename_axis("column")

    def warn_of_guesses(self, where: str, stacklevel: int = 3) -> None:
        """One warning for all columns whose kind is a guess."""
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
        return f"Table({self.values.shape[0]} rows, {', '.join(f'{c.name}: {c.kind}' for c in self.columns)})"

    def encode(self, X: Any, where: str = "encode") -> np.ndarray:
        """New rows with the same columns as numbers (M, D).

        A pandas table is read by the names of its columns when this table had names, in any order, and may have more.
        """
        cells = split(self._select(X, where), where)
        if len(cells) != len(self.columns):
            raise problem(where, f"X has {len(cells)} columns", f"{len(self.columns)} columns, as in fit")
        return _stack([_encode(part, column, where) for part, column in zip(cells, self.columns)], cells)

    def _select(self, X: Any, where: str) -> Any:
        if not (self.frame and is_frame(X)):
            return X
        names = [column.name for column in self.columns]
        lost = [name for name in names if name not in X.columns]
        if lost:
            raise problem(where, f"X has no column {lost[0]!r}", f"the columns of fit: {_listed(names)}")
        return X[names]

    def decode(self, values: Any, index: Any = None) -> Any:
        """Numbers (M, D) as a table of the kind that was read: labels for levels; pandas or an array."""
        values = np.asarray(values, dtype=np.float64)
        parts = [labels(column, values[:, d]) for d, column in enumerate(self.columns)]
        if self.frame:
            from pandas import DataFrame

            out = DataFrame(dict(enumerate(parts)), index=index)
            for d, column in enumerate(self.columns):
                if column.levels or _whole(values[:, d]):
                    whole = not np.isnan(values[:, d]).any()
                    out[d] = out[d].astype(column.dtype) if whole or column.holes else out[d]
            return out.set_axis([column.name for column in self.columns], axis=1)
        if any(part.dtype == object for part in parts):
            return np.column_stack([part.astype(object) for part in parts])
        return np.column_stack(parts)

    def fill(self, X: Any, values: np.ndarray) -> Any:
        """X with its missing cells taken from ``values`` (M, D), numbers as ``encode`` gives; the type is that of X.

        An integer column of pandas becomes float where a mean goes in, and a whole array of integers has no holes.
        """
        holes = np.isnan(self.encode(X, "fill"))
        X = unmasked(X)
        if is_frame(X):
            out = X.copy()
            for d, column in enumerate(self.columns):
                rows = np.flatnonzero(holes[:, d])
                if rows.size:
                    name = column.name if self.frame else X.columns[d]
                    part = X[name] if column.levels else X[name].astype(_real(X[name].dtype))
                    part = part.copy()
                    part.iloc[rows] = labels(column, values[rows, d])
                    out[name] = part
            return out
        dense = X.toarray() if hasattr(X, "tocsc") else np.array(X)
        if dense.dtype.kind in "US":
            dense = np.array(X, dtype=object)
        for d, column in enumerate(self.columns):
            rows = np.flatnonzero(holes[:, d])
            if rows.size:
                dense[rows, d] = labels(column, values[rows, d])
        return type(X)(dense) if hasattr(X, "tocsc") else dense


def labels(column: Column, codes: np.ndarray) -> np.ndarray:
    """Level numbers as labels, of their own type where no cell is missing; numbers as they are."""
    if not column.levels:
        return codes
    gone = np.isnan(codes)
    names = _as_array(column.levels)
    out = names[np.where(gone, 0, codes).astype(np.intp)]
    if gone.any():
        out = out.astype(np.float64 if names.dtype.kind in "iuf" else object)
        out[gone] = np.nan if out.dtype != object else None
    return out


def _whole(values: np.ndarray) -> bool:
    return bool((np.isnan(values) | (values == np.floor(values))).all())


def _real(dtype: Any) -> Any:
    """The dtype itself, or that of real numbers with the same way to say missing."""
    kind = getattr(dtype, "kind", "O")
    return dtype if kind not in "iu" else "Float64"


def read(X: Any, likelihood: Any = "auto", where: str = _WHERE) -> Table:
    """Understand a table.

    Parameters
    ----------
    X : pandas table, array (R, D) of numbers or objects, or scipy sparse
        NaN, None, NA and masked cells are missing.
    likelihood : str, list of D str, or dict by column
        "auto", "bernoulli", "poisson", "multinomial", "ordinal" or "gaussian"; columns a dict leaves out are "auto".
        Without column names the keys are places, or x0, x1, ...

    Returns
    -------
    Table

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
    wanted = _wanted(likelihood, [part.name for part in cells], where)
    found = readings(cells, wanted, where)
    columns = tuple(_understand(part, reading, where) for part, reading in zip(cells, found))
    values = _stack([_encode(part, column, where) for part, column in zip(cells, columns)], cells)
    return Table(columns, values, is_frame(X))


# -- what a column is ----------------------------------------------------------------------------------
def _wanted(likelihood: Any, names: list[Any], where: str) -> list[str]:
    """A word for each column."""
    allowed = ("auto", *KINDS)
    if isinstance(likelihood, str):
        choice(where, "likelihood", likelihood, allowed)
        return [likelihood] * len(names)
    if isinstance(likelihood, Mapping):
        given: dict[Any, Any] = {}
        for key, word in likelihood.items():
            place = isinstance(key, (int, np.integer)) and key not in names and -len(names) <= key < len(names)
            given[names[key] if place else key] = word
        strange = [key for key in given if key not in names]
        if strange:
            raise problem(where, f"likelihood names a column {strange[0]!r}", f"some of {_listed(names)}")
        words = [given.get(name, "auto") for name in names]
    else:
        try:
            words = list(likelihood)
        except TypeError:
            got = f"likelihood = {likelihood!r}"
            raise problem(where, got, "a word, a list with one for each column, or a dict by column") from None
        if len(words) != len(names):
            raise problem(where, f"{len(words)} likelihoods meet {len(names)} columns", "one for each column")
    for name, word in zip(names, words):
        choice(where, f"likelihood of column {name!r}", word, allowed)
    return words


def _understand(cells: Cells, reading: Reading, where: str) -> Column:
    """A column of a kind, with its levels in order."""
    name, seen, kind = cells.name, cells.seen, reading.kind
    given = {"dtype": cells.dtype, "why": reading.why, "guessed": reading.guessed}
    if kind in ("poisson", "gaussian"):
        if not cells.is_number:
            raise problem(where, f"column {name!r} is not numbers", f"numbers for {kind!r}", 'Try "multinomial".')
        return Column(name, kind, (), **given)
    zero_one = cells.is_number and bool(np.isin(seen, (0, 1)).all())
    if zero_one and (kind == "bernoulli" or seen.dtype.kind == "b"):
        # both levels are known though one may not have been seen
        return Column(name, kind, tuple(np.array([0, 1]).astype(seen.dtype).tolist()), **given)
    levels = cells.declared if cells.declared is not None else _levels(cells, where)
    if kind == "auto-levels":  # text or categories: two levels or more
        kind = "bernoulli" if len(levels) == 2 else "ordinal" if cells.ordered else "multinomial"
        if cells.declared is None and len(levels) == seen.size > 10:
            advice = "Leave it out, or make it the index; or ask for it with likelihood."
            raise problem(where, f"column {name!r} has a level of its own in every row", "levels that repeat", advice)
    if len(levels) < 2:
        got = f"column {name!r} has one level only, {word(levels[0])}"
        raise problem(where, got, "at least two levels", "A constant says nothing about the factors: leave it out.")
    if kind == "bernoulli" and len(levels) != 2:
        got = f"column {name!r} has {len(levels)} levels"
        raise problem(where, got, 'two for "bernoulli"', 'Try "multinomial", or "poisson" for counts.')
    if kind == "ordinal" and not (cells.is_number or cells.declared is not None):
        advice = "Give the order: pandas.Categorical(x, categories=[...], ordered=True), or numbers."
        raise problem(where, f"column {name!r} is text, whose order is not known", 'an order for "ordinal"', advice)
    return Column(name, kind, tuple(levels), **given)


def _levels(cells: Cells, where: str) -> tuple[Any, ...]:
    """Distinct labels, sorted where they can be."""
    if cells.is_number:
        if not np.isfinite(cells.seen.astype(np.float64)).all():
            raise problem(where, f"column {cells.name!r} has an infinite cell", "finite numbers")
        return tuple(np.unique(cells.seen).tolist())
    try:
        found = list(set(cells.seen.tolist()))
    except TypeError:
        odd = next(cell for cell in cells.seen if not hasattr(cell, "__hash__") or cell.__hash__ is None)
        got = f"column {cells.name!r} has a {type(odd).__name__} in a cell"
        raise problem(where, got, "numbers or labels such as text") from None
    try:
        return tuple(sorted(found))
    except TypeError:
        return tuple(sorted(found, key=lambda level: (type(level).__name__, str(level))))


# -- cells as numbers ----------------------------------------------------------------------------------
def _stack(parts: list[np.ndarray], cells: list[Cells]) -> np.ndarray:
    values = np.full((cells[0].missing.size, len(cells)), np.nan)
    for d, (part, column) in enumerate(zip(parts, cells)):
        values[~column.missing, d] = part
    return values


def _encode(cells: Cells, column: Column, where: str) -> np.ndarray:
    """The cells that are not missing as float64."""
    seen, name = cells.seen, column.name
    if column.levels:
        return _codes(cells, column, where)
    if seen.size == 0:
        return np.zeros(0)
    if not cells.is_number:
        raise problem(where, f"column {name!r} is not numbers", f"numbers, as a {column.kind} column has")
    values = seen.astype(np.float64)
    rows = np.flatnonzero(~cells.missing)
    if not np.isfinite(values).all():
        bad = ~np.isfinite(values)
        got = f"column {name!r}, row {rows[bad][0]}: {number(values[bad][0])}"
        raise problem(where, got, "finite numbers, or NaN for a missing cell; no infinity or a value too large for it")
    if column.kind == "poisson":
        bad = (values < 0) | (values != np.floor(values))
        if bad.any():
            got = f"column {name!r}{first_value(cells.spread(bad), cells.spread(values))} is not a count"
            raise problem(where, got, "0, 1, 2, ... or NaN for a missing cell", 'For real numbers use "gaussian".')
    return values


def _codes(cells: Cells, column: Column, where: str) -> np.ndarray:
    """The number of each cell's level."""
    names, seen = _as_array(column.levels), cells.seen
    if seen.size == 0:
        return np.zeros(0)
    if names.dtype != object and cells.is_number:
        order = np.argsort(names)
        place = np.minimum(np.searchsorted(names[order], seen), names.size - 1)
        codes = np.where(names[order][place] == seen, order[place], -1)
    else:
        distinct = {label: k for k, label in enumerate(column.levels)}
        try:
            codes = np.frompyfunc(distinct.get, 2, 1)(seen, -1).astype(np.int64)
        except TypeError:
            raise problem(where, f"column {column.name!r} has cells that are not labels", "text or numbers") from None
    unknown = codes < 0
    if unknown.any():
        row = int(np.flatnonzero(~cells.missing)[unknown][0])
        got = f"column {column.name!r}, row {row}: {word(seen[unknown][0])} is an unknown level"
        raise problem(where, got, f"one of {_listed(column.levels)}", "Use a missing cell for it, or fit on such rows.")
    return codes.astype(np.float64)


def _as_array(levels: tuple[Any, ...]) -> np.ndarray:
    """Labels as an array: of bools, of numbers, or of objects."""
    if all(isinstance(level, bool) for level in levels) or all(
        isinstance(level, (int, float)) and not isinstance(level, bool) for level in levels
    ):
        return np.array(levels)
    out = np.empty(len(levels), dtype=object)
    out[:] = levels
    return out


def _listed(names: Any) -> str:
    """The first few of many."""
    words = [repr(name) for name in names]
    return ", ".join(words[:8]) + (f", ... ({len(words)} in all)" if len(words) > 8 else "")
