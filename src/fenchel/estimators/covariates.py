"""Covariates of a structured regression: columns of a frame read as numbers or as factors, never as something else.

    numbers, booleans (0 and 1)                      one column
    pandas categories, text                          a factor: one column a level but the first, the reference
    dates, times, numbers written as text, mixtures  refused by name, with what to do

The levels of a factor are those that fit saw: a categorical's in its own order, text sorted. A level that fit has not
seen is an error, never silently the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

from ..checks import finite, problem
from .levels import present, shown, values

_MOST = 100  # levels of a factor: beyond it they are groups, which want an effect


@dataclass(frozen=True)
class Covariate:
    """One column of X: a number, or a factor with its levels in order."""

    where: str
    name: Any
    levels: tuple[Any, ...] | None = None

    @property
    def names(self) -> list[str]:
        """Of its columns: ``age``, or ``smoker[yes]`` for each level but the reference."""
        return [str(self.name)] if self.levels is None else [f"{self.name}[{level}]" for level in self.levels[1:]]

    @property
    def single(self) -> bool:
        """A factor of one level, which is its reference."""
        return self.levels is not None and len(self.levels) < 2

    def columns(self, column: Any) -> np.ndarray:
        """(N, 1), or 0 and 1 (N, levels - 1)."""
        if self.levels is None:
            if is_factor(self.where, self.name, column):
                raise problem(self.where, f"the covariate {self.name!r} holds text", "numbers, as in fit")
            return _numbers(self.where, self.name, column)[:, None]
        out, place = np.zeros((len(column), len(self.levels))), {level: i for i, level in enumerate(self.levels)}
        for i, value in enumerate(values(column)):
            if value not in place:
                got = f"X[{i}, {self.name!r}] = {value!r}"
                what = f"{got} was not seen in fit" if present(value) else f"{got} is missing"
                raise problem(self.where, what, f"one of {shown(list(self.levels))}")
            out[i, place[value]] = 1.0
        return out[:, 1:]


def read(where: str, name: Any, column: Any) -> Covariate:
    """What a column is, by what fit sees of it."""
    if not is_factor(where, name, column):
        return Covariate(where, name)
    categories = getattr(getattr(column, "dtype", None), "categories", None)
    found = set(values(column))
    for i, value in enumerate(values(column)):
        if not present(value):
            raise problem(where, f"X[{i}, {name!r}] is missing", "a level in every row", _MISSING)
    levels = tuple(sorted(found) if categories is None else (c for c in categories if c in found))
    if len(levels) > _MOST:
        got, advice = f"the covariate {name!r} has {len(levels)} levels", f'Make it an effect, {{{name!r}: "iid"}}.'
        raise problem(where, got, f"at most {_MOST}", advice)
    return Covariate(where, name, levels)


_MISSING = "Fill in missing covariates first: NaN and inf have no place in X."


def is_factor(where: str, name: Any, column: Any) -> bool:
    """Whether a column is a factor; refuses what is neither a factor nor numbers."""
    dtype = getattr(column, "dtype", None)
    if getattr(dtype, "categories", None) is not None:
        return True
    kind = getattr(dtype, "kind", "O")
    word = str(dtype)
    if kind in "Mm" or word.lower().startswith(("period", "date", "duration", "time")):
        raise _no_number(where, name, f"holds {word}")
    if kind in "biuf" and not word.startswith("string"):
        return False
    kinds = {type(value) for value in values(column) if present(value)}
    if all(issubclass(k, (Number, np.bool_)) and not issubclass(k, complex) for k in kinds):
        return False
    if not all(issubclass(k, str) for k in kinds):
        if any(hasattr(k, "isoformat") or hasattr(k, "to_timestamp") or hasattr(k, "total_seconds") for k in kinds):
            raise _no_number(where, name, "holds dates")
        advice = f'Make it an effect, {{{name!r}: "iid"}}, encode it, or name the covariates in fixed=[...].'
        raise problem(where, f"the covariate {name!r} is not numbers", "a number in every row, or text", advice)
    if all(_reads_as_number(value) for value in values(column) if present(value)):
        got = f"the covariate {name!r} holds numbers written as text"
        advice = f'X[{name!r}].astype(float) makes numbers of them, .astype("category") a factor.'
        raise problem(where, got, "numbers or levels", advice)
    return True


def _no_number(where: str, name: Any, what: str) -> ValueError:
    advice = (
        f'Make it an effect in time, {{{name!r}: "rw1"}}, or a number: (X[{name!r}] - X[{name!r}].min()).dt.days for '
        "days, .dt.year for years, .dt.total_seconds() for durations."
    )
    return problem(where, f"the covariate {name!r} {what}", "numbers or levels", advice)


def _reads_as_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _numbers(where: str, name: Any, column: Any) -> np.ndarray:
    if str(getattr(column, "dtype", "")) == "boolean" or hasattr(column, "isna"):  # pandas' nullable columns too
        out = column.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        out = np.asarray(column, dtype=np.float64)
    return finite(where, f"X[{name!r}]", out, _MISSING)
