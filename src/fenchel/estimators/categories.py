"""Columns of X whose values are levels: which they are, and levels as numbers.

    "from_dtype"   categories and text of a data frame, which have no numbers; booleans are 0 and 1
    names, numbers or a mask of columns, as in scikit-learn's ``HistGradientBoostingClassifier``
    None           none

A level is the place 0, 1, ... that it has among those of ``fit``, sorted. Levels that ``fit`` has not seen go on from
there, each with a number of its own, so that two new rows of one new level share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import choice, problem
from ..inputs.frames import DataTable, Kind, column_names
from ..inputs.levels import present, sort_of

_LEVELS = (Kind.CATEGORIES, Kind.TEXT)
_ADVICE = "Or names, numbers or a mask of columns."


@dataclass(frozen=True)
class Categories:
    """The columns of levels.

    Attributes
    ----------
    where : str
        Who asks.
    places : tuple of int
        Which columns they are.
    levels : tuple of list
        Of each, sorted; the place of a level is its number.
    names : list
        Of all columns of a data frame.
    """

    where: str
    places: tuple[int, ...]
    levels: tuple[list[Any], ...]
    names: list[Any]

    def encoded(self, X: Any) -> Any:
        """X with the number of each level in its place: a data frame of a data frame, an array of an array."""
        table = _table_of(self.where, X)
        if len(table.names) <= max(self.places):
            return X  # the check of X refuses it
        frame = table.source.copy(deep=False)
        for place, levels in zip(self._places_in(table), self.levels, strict=True):
            codes = {level: float(i) for i, level in enumerate(levels)}
            values, known = _values(table, place), {sort_of(level) for level in levels}
            odd = [value for value in values if value not in codes and sort_of(value) not in known]
            if odd:  # 1 is no new level beside "0" and "1", but another reading of the column
                got = f"X[{table.names[place]!r}] holds {odd[0]!r}, and its levels in fit were {levels[:3]!r}, ..."
                raise problem(self.where, got, "levels of the same kind")
            frame.isetitem(place, np.array([codes.setdefault(value, float(len(codes))) for value in values]))
        if column_names(X):
            return frame
        return frame.to_numpy(dtype=object if np.asarray(X).dtype == object else np.float64)

    def _places_in(self, table: DataTable) -> list[int]:
        """Where the columns are in a table, whose order scikit-learn refuses where it is another."""
        names = [self.names[place] if self.names else None for place in self.places]
        return [
            table.names.index(name) if type(name) is str and name in table.names else place
            for name, place in zip(names, self.places, strict=True)
        ]

    def put_first(self, X: Any) -> Any:
        """X with the first level of each column in every row."""
        frame = _table_of(self.where, X).source.astype(object)
        for place, levels in zip(self.places, self.levels, strict=True):
            frame.isetitem(place, np.array([levels[0]] * len(frame), dtype=object))
        return frame if column_names(X) else frame.to_numpy()


def _table_of(where: str, X: Any) -> DataTable:
    return DataTable(where, X if column_names(X) else np.asarray(X))


def _values(table: DataTable, place: int) -> list[Any]:
    """The levels of all rows."""
    column = table.source.iloc[:, place]
    values = column.tolist()
    missing = [i for i, value in enumerate(values) if not present(value)]
    if missing:
        got = f"X[{table.names[place]!r}] has no level in row {missing[0]}"
        raise problem(table.where, got, "a level in every row", "Give rows without one a level, such as 'missing'.")
    return values


def read_categories(where: str, given: Any, X: Any) -> Categories | None:
    """The columns of X that ``categorical_features`` names, with their levels; None where there are none."""
    if given is None:
        return None
    if np.ndim(given) == 0:
        choice(where, "categorical_features", given, ("from_dtype",), _ADVICE)
        if not column_names(X):
            return None
    table = _table_of(where, X)
    places = _places(where, given, table)
    if not places:
        return None
    levels = tuple(sorted(set(_values(table, place)), key=_order) for place in places)
    return Categories(where, places, levels, column_names(X))


def _order(level: Any) -> tuple[str, Any]:
    return ("", level) if sort_of(level) == "numbers" else (type(level).__name__, str(level))


def _places(where: str, given: Any, table: DataTable) -> tuple[int, ...]:
    names, D = table.names, len(table.names)
    if np.ndim(given) == 0:
        return tuple(d for d in range(D) if names.count(names[d]) == 1 and table.column(names[d]).kind in _LEVELS)
    entries = np.asarray(given)
    wanted = f"'from_dtype', names of columns, numbers from 0 to {D - 1}, or a mask of {D}"
    if entries.ndim != 1:
        raise problem(where, f"categorical_features = {given!r}", wanted)
    if entries.dtype.kind == "b":
        if entries.size != D:
            raise problem(where, f"categorical_features is a mask of {entries.size} for {D} columns", wanted)
        return tuple(np.flatnonzero(entries).tolist())
    if entries.dtype.kind in "iu":
        wrong = entries[(entries < 0) | (entries >= D)]
        if wrong.size:
            raise problem(where, f"categorical_features has {wrong[0]}, and X {D} columns", wanted)
        return tuple(sorted(set(entries.tolist())))
    unknown = [name for name in entries.tolist() if name not in names]
    if unknown:
        raise problem(where, f"categorical_features has {unknown[0]!r}, which no column is called", wanted)
    return tuple(sorted({names.index(name) for name in entries.tolist()}))
