"""The times of a single series: numbers or dates, increasing, as steps on a regular grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import optional, problem
from ..terms.levels import regular


def times_of(where: str, X: Any) -> np.ndarray:
    """Times (N,), numbers or datetime64, from a vector, a column or a frame of one column."""
    out = np.asarray(X)
    out = out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out
    if out.ndim != 1:
        raise problem(where, f"X has shape {out.shape}", "times (N,) or (N, 1)", "Several series are several fits.")
    if out.dtype.kind not in "biufM":
        pd = optional(where, "pandas")
        dates = [date.to_timestamp() if hasattr(date, "to_timestamp") else date for date in out]  # Periods too
        try:
            out = np.asarray(pd.to_datetime(dates, utc=True).tz_localize(None))
        except (TypeError, ValueError):
            raise problem(where, f"X[0] = {out[0]!r} is no time", "numbers or dates") from None
    bad = np.isnat(out) if out.dtype.kind == "M" else ~np.isfinite(out.astype(np.float64))
    if bad.any():
        raise problem(where, f"X[{int(np.argmax(bad))}] is missing", "a time in every row")
    return out


def increasing(where: str, times: np.ndarray) -> None:
    """Refuse times that stand still or go back."""
    late = np.flatnonzero(~(times[1:] > times[:-1]))
    if late.size:
        i = int(late[0]) + 1
        got = f"X[{i}] = {times[i]} does not come after X[{i - 1}] = {times[i - 1]}"
        raise problem(where, got, "increasing times", "Sort the rows; a missing return is a row with NaN.")


def steps_of(where: str, known: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The step of each time, 0 the first known one; beyond the known ones on a regular grid only."""
    if (times.dtype.kind == "M") != (known.dtype.kind == "M"):
        raise problem(where, f"X holds {times.dtype} and fit had {known.dtype}", "the same kind of time")
    place = np.clip(np.searchsorted(known, times), 0, known.size - 1)
    beyond = known[place] != times
    if not beyond.any():
        return place
    gaps = np.diff(known)
    step = ((times - known[0]) / gaps[0]).astype(np.float64)
    if not regular((gaps / gaps[0]).astype(np.float64)) or (np.abs(step - np.round(step)) > 1e-6).any():
        advice = "Use forecast(steps) for what comes after the last return."
        raise problem(where, f"X holds {times[beyond][0]}, which is no time of the fit", "times of the fit", advice)
    return np.round(step).astype(np.int64)
