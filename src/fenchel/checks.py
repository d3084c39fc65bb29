"""Checks of user input, and the form of every error message: where, what, got, expected, try.

Poisson: y[17] = -2 is not a count; expected 0, 1, 2, ... or NaN for unobserved. For real-valued targets use Gaussian.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from numbers import Real
from typing import Any

import numpy as np


class Refusal(ValueError):
    """The error for input that cannot be used: raised before any work, with advice in its message."""


def problem(where: str, what: str, expected: str, advice: str = "") -> Refusal:
    """The error with the message ``where: what; expected ... . advice``, for the caller to raise."""
    return Refusal(f"{where}: {what}; expected {expected}.{' ' + advice if advice else ''}")


def optional(where: str, module: str) -> Any:
    """Import an optional dependency, or raise an error that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        extra = {"matplotlib": "plots", "torch": "gpu", "shapely": "maps"}.get(name, name)
        raise ImportError(f'{where}: {name} is not installed. Try: pip install "fenchel[{extra}]"') from error


def callers_line() -> int:
    """The ``stacklevel`` with which a warning points at the line of the user's code that called the library."""
    own, level = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == own:
        frame, level = frame.f_back, level + 1
    return level


def number(value: float) -> str:
    """A value in its shortest form: 2 rather than 2.0, 0.25 rather than 2.5e-01."""
    fits = abs(value) < 1e308 or not isinstance(value, int)
    return f"{float(value):.10g}" if fits else "a number that overflows double precision"


def first(bad: Any, start: int = 0) -> str:
    """The index of the first true entry as text: ``[17]`` or ``[3, 1]``; ``start`` is the number of the first row."""
    place = np.argwhere(np.asarray(bad))[0]
    place[:1] += start
    return "[" + ", ".join(str(int(i)) for i in place) + "]" if place.size else ""


def first_value(bad: Any, values: Any, start: int = 0) -> str:
    """The index and the value of the first entry where ``bad`` is true, as text: ``[17] = -2``."""
    place = tuple(np.argwhere(np.asarray(bad))[0])
    return f"{first(bad, start)} = {number(np.asarray(values)[place])}"


# -- arrays and tables of numbers ------------------------------------------------------------------------
_ADVICE = {
    "text": "Encode words with sklearn.preprocessing.OneHotEncoder, or OrdinalEncoder where they have an order; "
    "numbers written as text with .astype(float).",
    "categories": "Encode them with sklearn.preprocessing.OneHotEncoder, or OrdinalEncoder where they have an order.",
    "dates": "Use a number, such as the days since the first: (t - t.min()) / np.timedelta64(1, 'D').",
    "time spans": "Use a number of some unit, such as days: t / np.timedelta64(1, 'D').",
}
_LEVELS_ADVICE = 'For levels name it in categorical_features=, or give a data frame (set_output(transform="pandas")). '
_KINDS = {"U": "text", "S": "text", "T": "text", "M": "dates", "m": "time spans"}


def holds(column: Any) -> str | None:
    """The kind of data of a column that does not hold numbers, a key of ``_ADVICE``; None for numbers."""
    dtype = getattr(column, "dtype", None)
    if getattr(dtype, "categories", None) is not None or str(dtype).startswith(("category", "Categorical", "Enum")):
        return "categories"
    if str(dtype).startswith("period"):
        return "dates"
    if getattr(dtype, "kind", "") in "biufc" and isinstance(dtype, np.dtype):
        return None
    values = np.asarray(column)
    if values.dtype.kind != "O":
        return _KINDS.get(values.dtype.kind)
    for kinds, word in (
        ((str, bytes), "text"),
        ((np.datetime64, datetime.date, datetime.time), "dates"),
        ((np.timedelta64, datetime.timedelta), "time spans"),
    ):
        if any(isinstance(entry, kinds) for entry in values.ravel().tolist() if type(entry) is not float):
            return word
    return None


def table(where: str, value: Any, name: str = "X", levels: bool = False) -> Any:
    """Check a table of numbers; refuse a column that holds text, categories, dates or masked cells.

    ``levels``: whether the caller would take text and categories, if it were told of them by ``categorical_features``.
    """
    if value is None or hasattr(value, "tocsr"):
        return value
    refuse_device(where, name, value)
    cells: Iterator[tuple[str, Any]]
    value = unmasked(where, name, value)
    if hasattr(value, "columns") and hasattr(value, "__getitem__"):
        frame = value.items() if hasattr(value, "items") else ((column, value[column]) for column in value.columns)
        cells = ((f"{name}[{column!r}]", entries) for column, entries in frame)
    else:
        try:
            array = value if hasattr(value, "dtype") else np.asarray(value)
        except ValueError:  # a ragged list, which scikit-learn refuses
            return value
        if str(array.dtype) == "object" and array.ndim == 2:
            cells = ((f"{name}[:, {j}]", array[:, j]) for j in range(array.shape[1]))
        else:
            cells = iter([(name, array)])
    for place, entries in cells:
        word = holds(entries)
        if word is not None:
            told = _LEVELS_ADVICE if levels and word in ("text", "categories") else ""
            raise problem(
                where,
                f"{place} holds {word}",
                "numbers",
                told + (f"Or e{_ADVICE[word][1:]}" if told else _ADVICE[word]),
            )
    return value


def refuse_device(where: str, name: str, value: Any) -> None:
    """Refuse a tensor that numpy cannot read: on a device other than the CPU, or with a gradient."""
    device = str(getattr(value, "device", "cpu"))
    if getattr(value, "requires_grad", False) is True:
        raise problem(where, f"{name} is a tensor that requires a gradient", "plain numbers", f"Use {name}.detach().")
    if device.split(":")[0] != "cpu" and hasattr(value, "cpu"):
        raise problem(where, f"{name} is on the device {device!r}", "an array in memory", f"Use {name}.cpu().")


def as_pandas(where: str, value: Any) -> Any:
    """Convert a data frame of another library to pandas; return anything else unchanged."""
    if not (hasattr(value, "to_pandas") and hasattr(value, "columns")):
        return value
    optional(where, "pandas")
    try:
        return value.to_pandas()
    except ImportError as error:
        got = f"X is a {type(value).__module__.split('.')[0]} frame, which cannot become a pandas one here ({error})"
        raise problem(where, got, "pyarrow installed, or a pandas frame") from None


def unmasked(where: str, name: str, value: Any, missing: bool = False) -> Any:
    """Convert a masked array to a plain one: masked entries are NaN if ``missing`` is allowed, else refused."""
    if not isinstance(value, np.ma.MaskedArray):
        return value
    mask = np.ma.getmaskarray(value)
    if not mask.any():
        return value.data
    if not missing:
        advice = "Fill in or leave out masked entries first."
        raise problem(where, f"{name}{first(mask)} is masked", "a value in every entry", advice)
    return np.where(mask, np.nan, numeric(where, name, value.data))


def numeric(where: str, name: str, value: Any, advice: str = "", missing: bool = False) -> np.ndarray:
    """Convert to a float64 numpy array, or raise an error that says why that is impossible.

    Missing entries of pandas become NaN; masked entries become NaN if ``missing`` is allowed, else they are refused.
    """
    if hasattr(value, "tocsr"):
        raise problem(where, f"{name} is a scipy sparse matrix", "a dense array", "Use .toarray().")
    refuse_device(where, name, value)
    value = unmasked(where, name, value, missing)
    if hasattr(value, "columns"):
        table(where, value, name)
    word = None
    try:
        out = np.asarray(value)
        if out.dtype.kind not in "biuf":
            word = holds(value if hasattr(value, "dtype") else out)
            if word is not None or out.dtype.kind == "c":  # numpy might convert these silently
                raise TypeError
        if out.dtype.kind == "O" and hasattr(value, "to_numpy"):  # pandas' NA cannot be cast to float
            return np.asarray(value.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(out, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        what = f"{name} is not an array of real numbers"
        if word in ("dates", "time spans"):
            what, advice = f"{what} but holds {word}", _ADVICE[word]
        elif word is not None and not advice:
            advice = "For labels use a classifier." if name == "y" else _ADVICE[word]
        raise problem(where, what, "numbers in a regular shape", advice) from None


def finite(where: str, name: str, value: np.ndarray, advice: str = "", start: int = 0) -> np.ndarray:
    """Return ``value`` if every entry is finite, else raise an error; ``start`` is the number of its first row."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(value)):  # one pass without temporaries; a sum that overflows is checked below
            return value
    bad = ~np.isfinite(value)
    if bad.any():
        raise problem(where, f"{name}{first_value(bad, value, start)} is not finite", "finite numbers", advice)
    return value


def vector(
    where: str, name: str, value: Any, length: int | None = None, advice: str = "", missing: bool = False
) -> np.ndarray:
    """Convert to a float64 vector of ``length`` entries; a scalar is repeated."""
    out = numeric(where, name, value, missing=missing)
    if out.ndim == 0 and length is not None:
        out = np.full(length, float(out))
    if out.ndim != 1 or (length is not None and out.shape[0] != length):
        wanted = "one dimension" if length is None else f"a number or shape ({length},)"
        raise problem(where, f"{name} has shape {out.shape}", wanted, advice)
    return out


def counts(where: str, name: str, value: np.ndarray, advice: str = "") -> None:
    """Check that every entry that is not NaN is 0, 1, 2, ..."""
    with np.errstate(invalid="ignore"):
        bad = ~np.isnan(value) & ~((value >= 0) & (value == np.floor(value)) & np.isfinite(value))
    if bad.any():
        raise problem(
            where,
            f"{name}{first_value(bad, value)} is not a count",
            "0, 1, 2, ... or NaN for unobserved",
            advice,
        )


def labels(where: str, name: str, value: np.ndarray, n_classes: int) -> None:
    """Check that every entry that is not NaN is one of 0, ..., n_classes - 1."""
    with np.errstate(invalid="ignore"):
        bad = ~np.isnan(value) & ~((value >= 0) & (value < n_classes) & (value == np.floor(value)))
    if bad.any():
        known = "0 or 1" if n_classes == 2 else f"0, ..., {n_classes - 1}"
        raise problem(
            where,
            f"{name}{first_value(bad, value)} is an unknown label",
            f"{known}, or NaN for unobserved",
            "Encode labels as integers first, for example with sklearn.preprocessing.LabelEncoder.",
        )


def positive(where: str, name: str, value: Any, advice: str = "") -> Any:
    """Convert to float64 and check that every entry and its square are finite and above zero."""
    value = numeric(where, name, value)
    bad = ~(np.isfinite(value) & (value > 0))
    if np.any(bad):
        got = f"{name} = {number(value)}" if np.ndim(value) == 0 else f"{name}{first_value(bad, value)}"
        raise problem(where, f"{got} is not a positive number", "values above 0", advice)
    far = (value < 1e-150) | (value > 1e150)
    if np.any(far):
        got = f"{name} = {number(value)}" if np.ndim(value) == 0 else f"{name}{first_value(far, value)}"
        raise problem(where, f"{got} cannot be squared in doubles", "1e-150 to 1e150", "Measure in other units.")
    return value


def scalar(where: str, name: str, value: Any, low: float = -np.inf, high: float = np.inf, advice: str = "") -> float:
    """Check one finite number with low < value < high, and return it."""
    out = numeric(where, name, value, advice or "Give one number.")
    if out.size != 1 or not (np.isfinite(out).all() and low < out.item() < high):
        got = f"{name} = {out.item()!r}" if out.size == 1 else f"{name} has shape {out.shape}"
        if np.isfinite(low) and np.isfinite(high):
            raise problem(where, got, f"{number(low)} < {name} < {number(high)}", advice)
        raise problem(where, got, "a finite number" + (f" above {number(low)}" if np.isfinite(low) else ""), advice)
    return float(out.item())


def count(where: str, name: str, value: Any, least: int = 0, most: int = 2**53) -> int:
    """Check a whole number with least <= value <= most, and return it."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not (real and least <= value <= most and value == int(value)):
        up_to = f", at most {most}" if most < 2**53 else ""
        raise problem(where, f"{name} = {_short(value)}", f"an integer >= {least}{up_to}")
    return int(value)


def choice(where: str, name: str, value: object, allowed: tuple[object, ...], advice: str = "") -> None:
    """Check that ``value`` is one of the allowed values; an error suggests the nearest word."""
    if not isinstance(value, str | int | float | None) or value not in allowed:
        words = " or ".join(repr(a) for a in allowed)
        near = get_close_matches(value, [a for a in allowed if isinstance(a, str)], 1) if isinstance(value, str) else []
        meant = " ".join([*(f"Did you mean {a!r}?" for a in near), *([advice] if advice else [])])
        raise problem(where, f"{name} = {_short(value)} is not known", words, meant)


def instance(where: str, name: str, value: object, kind: type, such_as: str) -> None:
    """Check that ``value`` is an instance of ``kind``, and not the class itself."""
    if not isinstance(value, kind):
        got = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise problem(where, f"{name} is {got}", f"a {kind.__name__} such as {such_as}")


def _short(value: object) -> str:
    """The value as text, or the name of its type if that is long."""
    text = "" if isinstance(value, int) and abs(value) > 1e20 else repr(value)
    return text if 0 < len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"
