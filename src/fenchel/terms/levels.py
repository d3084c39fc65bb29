"""The levels of a column: labels in order, or every step of a regular time from the first to the last.

A level is any hashable value; 3 and 3.0 are the same one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from numbers import Number
from typing import Any

import numpy as np

from ..checks import optional, problem
from .tables import DataColumn, present, sort_of, values

_SPARSEST = 100  # steps without data to a step with data: beyond it the numbers count something finer than steps


def listed(where: str, name: Hashable, levels: Iterable[Any]) -> list[Any]:
    """The user's own levels, each once."""
    out = values(levels) if hasattr(levels, "dtype") else list(levels)
    if len(set(out)) < len(out):
        twice = next(level for i, level in enumerate(out) if level in out[:i])
        raise problem(where, f"levels[{name!r}] names {twice!r} twice", "each level once")
    return out


def mismatch(name: Hashable, value: Any, levels: list[Any]) -> tuple[str, str] | None:
    """What the levels are and how to turn ``value`` into one, where all of them are of another sort; None elsewhere."""
    mine, theirs = sort_of(value), {sort_of(level) for level in levels}
    sort = next(iter(theirs)) if len(theirs) == 1 else None
    if mine is None or sort is None or mine == sort:
        return None
    cure = ""
    if sort == "text":
        cure = f"X[{name!r}]{'.astype(int)' if isinstance(value, float) and value == int(value) else ''}.astype(str)"
    elif mine == "text" and sort == "numbers":
        whole = all(isinstance(level, Number) and level == int(level) for level in levels)  # type: ignore[call-overload]
        cure = f"X[{name!r}].astype({'int' if whole else 'float'})"
    elif mine == "text":
        cure = f"pandas.to_datetime(X[{name!r}])"
    return sort, f"{cure} makes {sort} of it." if cure else ""


def inferred(name: Hashable, column: DataColumn, in_time: bool) -> list[Any]:
    """The levels of a column: every step from the first time to the last, or the labels in order.

    ``name`` is that of the term, whose ``levels`` a message may ask for.
    """
    if column.categories is not None:
        return list(column.categories)
    where, found = column.where, [value for value in dict.fromkeys(column.values) if present(value)]
    if not found:
        raise problem(where, f"the column {column.name!r} is empty", "at least one level")
    if in_time:
        return _times(where, name, found)
    try:
        return sorted(found)
    except TypeError:  # labels of several kinds
        return sorted(found, key=lambda value: (str(type(value)), str(value)))


def _times(where: str, name: Hashable, found: list[Any]) -> list[Any]:
    advice = f"Say which times the effect steps through: levels={{{name!r}: ...}}."
    if all(isinstance(value, (bool, int, float)) for value in found):
        times = np.sort(np.array(found, dtype=np.float64))
        if (times == np.floor(times)).all() and np.ptp(times) < _SPARSEST * (100 + times.size):
            return list(range(int(times[0]), int(times[-1]) + 1))
        if regular(np.diff(times)):
            return times.tolist()
        raise problem(where, f"the times {name!r} are not equally spaced", "a regular grid", advice)
    if hasattr(found[0], "ordinal") and hasattr(found[0], "freq"):  # pandas Periods
        return list(optional(where, "pandas").period_range(min(found), max(found)))
    if hasattr(found[0], "timestamp"):
        return _dates(where, name, optional(where, "pandas").DatetimeIndex(sorted(found)))
    got = f"the column {name!r} holds {found[0]!r}, which has no place in time"
    raise problem(where, got, "numbers or dates", advice)


def _dates(where: str, name: Hashable, dates: Any) -> list[Any]:
    """Every step from the first date to the last: whole months, or the shortest gap where all are its multiples."""
    pd = optional(where, "pandas")
    ends = len(set(dates.day)) > 1 and bool(dates.is_month_end.all())
    whole = ends or len(set(dates.day)) == 1  # months, quarters, years
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
    if filled is dates or not dates.isin(filled).all():  # no step at all, or other times of day
        advice = f"levels={{{name!r}: pandas.date_range({first_to_last}, freq=...)}} says the step, such as 'D' or 'h'."
        raise problem(where, f"the dates {name!r} are not equally spaced", "a regular calendar", advice)
    return list(filled)


def regular(gaps: np.ndarray) -> bool:
    """Whether all gaps are the same."""
    return gaps.size == 0 or bool(np.ptp(gaps) <= 1e-6 * gaps.max())


# -- beyond them ----------------------------------------------------------------------------------------------
def step_of(levels: list[Any], value: Any) -> int | None:
    """Which step a time is, 0 the first level, where all levels are equal steps apart; None where it is on no step."""
    if len(levels) < 2 or sort_of(value) != sort_of(levels[0]):
        return None
    if all(isinstance(level, (bool, int, float)) for level in levels):
        return _equal_steps(np.array(levels, dtype=np.float64), float(value))
    if hasattr(levels[0], "ordinal") and hasattr(levels[0], "freq"):  # pandas Periods
        same = getattr(value, "freq", None) == levels[0].freq
        return (
            _equal_steps(np.array([p.ordinal for p in levels], dtype=np.float64), float(value.ordinal))
            if same
            else None
        )
    return _date_step(levels, value) if hasattr(levels[0], "timestamp") and hasattr(value, "timestamp") else None


def _equal_steps(times: np.ndarray, value: float) -> int | None:
    gaps = np.diff(times)
    if not ((gaps > 0.0).all() and regular(gaps)):
        return None
    gap = (times[-1] - times[0]) / gaps.size
    step = (value - times[0]) / gap
    return round(step) if abs(step - round(step)) <= 1e-6 * max(1.0, abs(step)) else None


def _date_step(levels: list[Any], value: Any) -> int | None:
    """By equal gaps, by whole months on the same day or the last one, or by working days."""
    pd = optional("predict", "pandas")
    dates = pd.DatetimeIndex([*levels, value])
    since = np.asarray(dates.asi8 - dates.asi8[0], dtype=np.float64)
    found = _equal_steps(since[:-1], float(since[-1]))
    if found is not None:
        return found
    ends = bool(dates.is_month_end.all())
    if (ends or len(set(dates.day)) == 1) and len(set(dates.time)) == 1:
        months = np.asarray(12 * dates.year + dates.month, dtype=np.float64)
        return _equal_steps(months[:-1], float(months[-1]))
    days = dates.values.astype("datetime64[D]")
    if (dates.normalize() == dates).all() and (dates.day_of_week < 5).all():
        return _equal_steps(
            np.busday_count(days[0], days[:-1]).astype(float), float(np.busday_count(days[0], days[-1]))
        )
    return None
