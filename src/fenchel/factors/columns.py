"""Understanding a table: the likelihood of each column, its cells as numbers, and numbers as cells again.

    bernoulli     two levels, 0 and 1                      log odds of the second
    multinomial   K levels, 0 to K - 1                     K - 1 log odds against the last, the reference
    poisson       counts 0, 1, 2, ...                      log rate
    gaussian      any real number                          mean
    ordinal       K ordered levels, 0 to K - 1             one latent between K - 1 cutpoints

and whatever else has a word in ``likelihoods``, or is a likelihood itself (``kinds.py``). "auto" goes by the dtype, and
by the evidence of each reading where whole numbers may be several things (``reading.py``). ``Column.why`` says which it
was, and ``guessed`` where another was nearly as good. What is not data is refused: row numbers, dates, digits as text.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..checks import Refusal, first_value, number, problem
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from .kinds import Kind, begun, levels_of, wanted, word_of
from .reading import Cells, is_frame, listed, readings, split, unmasked, word

_WHERE = "read"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name : as in the table, or x0, x1, ...
    likelihood : Likelihood
        Of its cells, where learning begins.
    levels : tuple
        The labels as they stand in the table, in order, where the likelihood is one of levels; the last is the
        reference of a multinomial. Empty otherwise.
    dtype : of a pandas column, else None
    why : str
        What made it that likelihood.
    guessed : bool
        Whether another one would have been nearly as good.
    """

    name: Any
    likelihood: Likelihood
    levels: tuple[Any, ...] = ()
    dtype: Any = field(default=None, compare=False, repr=False)
    why: str = field(default="", compare=False, repr=False)
    guessed: bool = field(default=False, compare=False, repr=False)

    @property
    def kind(self) -> str:
        """The word for its likelihood, or the name of its class."""
        return word_of(self.likelihood)

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
    def likelihoods(self) -> list[Likelihood]:
        """Of the columns."""
        return [column.likelihood for column in self.columns]

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

    def encode(self, X: ArrayLike, where: str = "encode") -> np.ndarray:
        """New rows with the same columns as numbers (M, D).

        A pandas table is read by the names of its columns when this table had names, in any order, and may have more.
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

    def fill(self, X: Any, values: np.ndarray, plain: Collection[int] = ()) -> Any:
        """X with its missing cells taken from ``values`` (M, D), numbers as ``encode`` gives; the type is that of X.

        Columns in ``plain`` have values as they stand in the table, not places among their levels.

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
                    of_levels = bool(column.levels) and d not in plain
                    part = X[name] if of_levels else X[name].astype(real_dtype(X[name].dtype))
                    part = part.copy()
                    part.iloc[rows] = labels(column, values[rows, d]) if of_levels else values[rows, d]
                    out[name] = part
            return out
        dense = X.toarray() if hasattr(X, "tocsc") else np.array(X)
        if dense.dtype.kind in "US":
            dense = np.array(X, dtype=object)
        for d, column in enumerate(self.columns):
            rows = np.flatnonzero(holes[:, d])
            if rows.size:
                dense[rows, d] = values[rows, d] if d in plain else labels(column, values[rows, d])
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


def real_dtype(dtype: Any) -> Any:
    """The dtype itself, or that of real numbers with the same way to say missing."""
    kind = getattr(dtype, "kind", "O")
    return "Float64" if kind in "iu" or hasattr(dtype, "categories") else dtype


def read(X: ArrayLike, likelihood: Any = "auto", where: str = _WHERE, bound: str = "tilted") -> Table:
    """Understand a table.

    Parameters
    ----------
    X : pandas table, array (R, D) of numbers or objects, or scipy sparse
        NaN, None, NA and masked cells are missing.
    likelihood : str or Likelihood, list of D of them, or dict by column
        "auto", "bernoulli", "poisson", "multinomial", "ordinal", "gaussian" or another word for a likelihood; columns a
        dict leaves out are "auto". Without column names the keys are places, or x0, x1, ...
    bound : str
        Of likelihoods that have it; one that is given has its own. Beside a multinomial "exact" means "tilted".

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
    found = readings(cells, wanted(likelihood, [part.name for part in cells], where), where)
    named = [levels_of(part, reading, where) for part, reading in zip(cells, found)]
    if bound == "exact" and any(word_of(kind) == "multinomial" for kind, _ in named):
        bound = "tilted"
    parts = [_encode(part, kind, levels, where) for part, (kind, levels) in zip(cells, named)]
    columns = tuple(
        Column(part.name, begun(kind, codes, len(levels), bound), levels, part.dtype, reading.why, reading.guessed)
        for part, codes, reading, (kind, levels) in zip(cells, parts, found, named)
    )
    values = _stack(parts, cells)
    _check(columns, values, where)
    return Table(columns, values, is_frame(X))


# -- cells as numbers ----------------------------------------------------------------------------------
def _stack(parts: list[np.ndarray], cells: list[Cells]) -> np.ndarray:
    values = np.full((cells[0].missing.size, len(cells)), np.nan)
    for d, (part, column) in enumerate(zip(parts, cells)):
        values[~column.missing, d] = part
    return values


def _encode(cells: Cells, kind: Kind, levels: tuple[Any, ...], where: str) -> np.ndarray:
    """The cells that are not missing as float64."""
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
    """What the likelihoods of numbers ask of them: to be whole, positive, or between 0 and 1."""
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


def codes_of(cells: Cells, levels: tuple[Any, ...], where: str) -> np.ndarray:
    """The number of each cell's level."""
    names, seen = _as_array(levels), cells.seen
    if seen.size == 0:
        return np.zeros(0)
    if names.dtype != object and cells.is_number:
        order = np.argsort(names)
        place = np.minimum(np.searchsorted(names[order], seen), names.size - 1)
        codes = np.where(names[order][place] == seen, order[place], -1)
    else:
        distinct = {label: k for k, label in enumerate(levels)}
        try:
            codes = np.frompyfunc(distinct.get, 2, 1)(seen, -1).astype(np.int64)
        except TypeError:
            raise problem(where, f"column {cells.name!r} has cells that are not labels", "text or numbers") from None
    unknown = codes < 0
    if unknown.any():
        row = int(np.flatnonzero(~cells.missing)[unknown][0])
        got = f"column {cells.name!r}, row {row}: {word(seen[unknown][0])} is an unknown level"
        raise problem(where, got, f"one of {listed(levels)}", "Use a missing cell for it, or fit on such rows.")
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
