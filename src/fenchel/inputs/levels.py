"""The levels of a column: sorted labels, or every step of a regular time axis from the first to the last.

A level is any hashable value; 3 and 3.0 are the same level.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import isfinite
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem

if TYPE_CHECKING:
    from .frames import DataColumn

_SPARSEST = 100  # largest ratio of all steps to steps with data; above it, numbers are no regular time axis
_SECONDS = 86400.0  # seconds in a day, the unit of dates


# -- values ---------------------------------------------------------------------------------------
def present(value: Any) -> bool:
    """Whether a value is present: not None, NaN, NaT, pandas' NA or infinite."""
    if value is None or type(value).__name__ == "NAType":  # the truth value of pandas' NA == NA is undefined
        return False
    return bool(value == value) and value not in (np.inf, -np.inf)


def sort_of(value: Any) -> str | None:
    """The kind of a value: text, numbers, dates or periods; None for other types."""
    if isinstance(value, (str, bytes)):
        return "text"
    if isinstance(value, (Number, np.bool_)):
        return "numbers"
    return {"Period": "periods", "Timestamp": "dates", "datetime": "dates", "date": "dates"}.get(type(value).__name__)


def is_name(value: Any) -> bool:
    """Whether a value is text that does not parse as a number: "new", but not "10"."""
    try:
        return sort_of(value) == "text" and not isfinite(float(value))
    except ValueError:
        return True


def shown(levels: list[Any]) -> str:
    """The first few levels as text."""
    if len(levels) <= 4:
        return ", ".join(map(repr, levels))
    return f"{levels[0]!r}, {levels[1]!r}, ..., {levels[-1]!r}"


def listed(where: str, name: Hashable, levels: Iterable[Any]) -> list[Any]:
    """The levels that a user listed; refuses duplicates."""
    import pandas as pd

    out = pd.Series(levels).tolist() if hasattr(levels, "dtype") else list(levels)
    if len(set(out)) < len(out):
        twice = next(level for i, level in enumerate(out) if level in out[:i])
        raise problem(where, f"levels[{name!r}] names {twice!r} twice", "each level once")
    return out


def mismatch(name: Hashable, value: Any, levels: list[Any]) -> tuple[str, str] | None:
    """If ``value`` differs in kind from all levels: what the levels are, and how to convert it; else None."""
    kind, kinds_of_levels = sort_of(value), {sort_of(level) for level in levels}
    sort = next(iter(kinds_of_levels)) if len(kinds_of_levels) == 1 else None
    if kind is None or sort is None or kind == sort:
        return None
    cure = ""
    if sort == "text":
        cure = f"X[{name!r}]{'.astype(int)' if type(value) is float and value == int(value) else ''}.astype(str)"
    elif kind == "text" and sort == "numbers":
        cure = f"X[{name!r}].astype({'int' if all(level == int(level) for level in levels) else 'float'})"
    elif kind == "text":
        cure = f"pandas.to_datetime(X[{name!r}])"
        cure += f".dt.to_period({levels[0].freqstr!r})" if sort == "periods" else ""
    return sort, f"{cure} makes {sort} of it." if cure else ""


# -- levels and times -----------------------------------------------------------------------------
def inferred(name: Hashable, column: DataColumn, in_time: bool) -> list[Any]:
    """Levels from the values of a column: all steps from the first time to the last, or sorted labels.

    ``name`` is the name of the term; error messages suggest its argument ``levels``.
    """
    if column.categories is not None:
        return list(column.categories)
    values = [value for value in dict.fromkeys(column.values) if present(value)]
    if not values:
        raise problem(column.where, f"the column {column.name!r} is empty", "at least one level")
    if in_time:
        return _steps(column.where, name, values)
    try:
        return sorted(values)
    except TypeError:  # labels of several types
        return sorted(values, key=lambda value: (str(type(value)), str(value)))


def times_of(column: DataColumn, values: Iterable[Any]) -> np.ndarray:
    """Times as numbers: numbers unchanged, dates in days, pandas Periods by their ordinal."""
    import pandas as pd

    out = []
    for i, value in enumerate(values):
        if not present(value):
            raise problem(column.where, f"X[{i}, {column.name!r}] is missing", "a time in every row", "Drop the row.")
        sort = sort_of(value)
        if sort == "periods":
            out.append(float(value.ordinal))
        elif sort == "dates":
            out.append(pd.Timestamp(value).timestamp() / _SECONDS)
        elif sort == "numbers":
            out.append(float(value))
        else:
            got = f"the column {column.name!r} holds {value!r}, which is not a time"
            raise problem(column.where, got, "numbers or dates")
    return np.array(out)


def _steps(where: str, name: Hashable, values: list[Any]) -> list[Any]:
    """All steps from the first time to the last."""
    import pandas as pd

    advice = f"Say which times the effect steps through: levels={{{name!r}: ...}}."
    sorts = {sort_of(value) for value in values}
    if sorts == {"periods"}:
        return list(pd.period_range(min(values), max(values)))
    if sorts == {"dates"}:
        return _dates(where, name, pd.DatetimeIndex(sorted(values)))
    if sorts != {"numbers"}:
        odd = next((value for value in values if sort_of(value) in (None, "text")), None)
        got = f"the column {name!r} holds {odd!r}, which is not a time"
        if odd is None:
            got = f"the column {name!r} holds {' and '.join(sorted(map(str, sorts)))}"
        raise problem(where, got, "numbers or dates", advice)
    times = np.sort(np.array(values, dtype=np.float64))
    if (times == np.floor(times)).all() and np.ptp(times) < _SPARSEST * (100 + times.size):
        return list(range(int(times[0]), int(times[-1]) + 1))
    if regular(np.diff(times)):
        return times.tolist()
    raise problem(where, f"the times {name!r} are not equally spaced", "a regular grid", advice)


def _dates(where: str, name: Hashable, dates: Any) -> list[Any]:
    """All steps from the first date to the last, by whole months, or by the smallest gap if it divides all gaps."""
    import pandas as pd

    ends = len(set(dates.day)) > 1 and bool(dates.is_month_end.all())
    whole = ends or len(set(dates.day)) == 1  # months, quarters or years
    months = np.diff(np.asarray(12 * dates.year + dates.month, dtype=np.int64))
    gaps, filled = np.diff(dates.asi8), dates
    if regular(gaps.astype(np.float64)) or (whole and regular(months.astype(np.float64))):
        return list(dates)
    first_to_last = f"data[{name!r}].min(), data[{name!r}].max()"
    if whole and (months > 0).all():
        steps = range(0, int(months.sum()) + 1, int(np.gcd.reduce(months)))
        later = [dates[0] + (pd.offsets.MonthEnd(k) if ends else pd.DateOffset(months=k)) for k in steps[1:]]
        filled = pd.DatetimeIndex([dates[0], *later])
    elif (gaps % gaps.min() == 0).all() and gaps.sum() < _SPARSEST * (100 + dates.size) * gaps.min():
        step = (dates[1:] - dates[:-1]).min()
        filled = pd.date_range(dates[0], dates[-1], freq=step)
        if step == pd.Timedelta(days=1) and (dates.day_of_week < 5).all() and (filled.day_of_week >= 5).sum() > 1:
            got = f"the dates {name!r} have gaps, and none is a Saturday or Sunday"
            advice = f"levels={{{name!r}: pandas.bdate_range({first_to_last})}}, or date_range, says which."
            raise problem(where, got, "working days or all days", advice)
    if filled is dates or not dates.isin(filled).all():  # no common step, or different times of day
        advice = f"levels={{{name!r}: pandas.date_range({first_to_last}, freq=...)}} says the step, such as 'D' or 'h'."
        raise problem(where, f"the dates {name!r} are not equally spaced", "a regular calendar", advice)
    return list(filled)


def regular(gaps: np.ndarray) -> bool:
    """Whether all gaps are equal."""
    return gaps.size == 0 or bool(np.ptp(gaps) <= 1e-6 * gaps.max())


# -- times beyond the levels ----------------------------------------------------------------------
def step_of(levels: list[Any], value: Any) -> int | None:
    """The step of a time, counted from the first level, if the levels are equally spaced; None between steps."""
    sorts = {sort_of(each) for each in (*levels, value)}
    if len(levels) < 2 or len(sorts) > 1:
        return None
    if sorts == {"dates"}:
        return _date_step(levels, value)
    if sorts == {"periods"}:
        same = value.freq == levels[0].freq
        return _equal_steps([level.ordinal for level in levels], value.ordinal) if same else None
    return _equal_steps(levels, value) if sorts == {"numbers"} else None


def _equal_steps(levels: Iterable[Any], value: Any) -> int | None:
    times = np.asarray(levels, dtype=np.float64)
    gaps = np.diff(times)
    if not ((gaps > 0.0).all() and regular(gaps)):
        return None
    gap = (times[-1] - times[0]) / gaps.size
    step = (float(value) - times[0]) / gap
    return round(step) if abs(step - round(step)) <= 1e-6 * max(1.0, abs(step)) else None


def _date_step(levels: list[Any], value: Any) -> int | None:
    """The step of a date: by equal gaps, by whole months (same day or last day), or by working days."""
    import pandas as pd

    dates = pd.DatetimeIndex([*levels, value])
    since = dates.asi8 - dates.asi8[0]
    step = _equal_steps(since[:-1], since[-1])
    if step is not None:
        return step
    ends = bool(dates.is_month_end.all())
    if (ends or len(set(dates.day)) == 1) and len(set(dates.time)) == 1:
        months = np.asarray(12 * dates.year + dates.month)
        return _equal_steps(months[:-1], months[-1])
    days = dates.values.astype("datetime64[D]")
    if (dates.normalize() == dates).all() and (dates.day_of_week < 5).all():
        return _equal_steps(np.busday_count(days[0], days[:-1]), np.busday_count(days[0], days[-1]))
    return None
