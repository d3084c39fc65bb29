"""The doorbell: every error message of the library, in one voice.

A message has five beats: where, what, got, expected, try.

    Poisson: y[17] = -2 is not a count; expected 0, 1, 2, ... or NaN for unobserved. For real-valued
    targets use Gaussian.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np


class Refusal(ValueError):
    """What the user gave cannot be used: raised before any work, with a sentence that says what to do."""


def problem(where: str, what: str, expected: str, advice: str = "") -> Refusal:
    """The sentence every check raises with: ``where: what; expected .... advice``."""
    return Refusal(f"{where}: {what}; expected {expected}.{' ' + advice if advice else ''}")


def optional(where: str, module: str) -> Any:
    """A library that not everybody has, or the sentence that says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        extra = {"matplotlib": "plots", "torch": "gpu"}.get(name, name)
        raise ImportError(f'{where}: {name} is not installed. Try: pip install "fenchel[{extra}]"') from error


def number(value: float) -> str:
    """A value as a person would write it: 2 rather than 2.0, 0.25 rather than 2.5e-01."""
    return f"{float(value):.10g}"


def first(bad: Any) -> str:
    """Where the first offending entry stands, as an index: ``[17]`` or ``[3, 1]``."""
    place = np.argwhere(np.asarray(bad))[0]
    return "[" + ", ".join(str(int(i)) for i in place) + "]" if place.size else ""


def first_value(bad: Any, values: Any) -> str:
    """The first offending entry with its place: ``[17] = -2``."""
    place = tuple(np.argwhere(np.asarray(bad))[0])
    return f"{first(bad)} = {number(np.asarray(values)[place])}"


def numeric(where: str, name: str, value: Any, advice: str = "") -> np.ndarray:
    """``value`` as a float64 numpy array, or the sentence that says why it is not numbers."""
    if hasattr(value, "tocsr"):
        raise problem(where, f"{name} is a scipy sparse matrix", "a dense array", "Use .toarray().")
    try:
        if str(getattr(value, "dtype", "")) == "boolean":  # pandas: NA has no float of its own
            value = value.astype("Float64")
        out = np.asarray(value)
        if out.dtype.kind in "cSU":  # complex numbers and text would be converted, silently or not
            raise TypeError
        return np.asarray(out, dtype=np.float64)
    except (TypeError, ValueError):
        raise problem(where, f"{name} is not an array of real numbers", "numbers in a regular shape", advice) from None


def finite(where: str, name: str, value: np.ndarray, advice: str = "") -> np.ndarray:
    """``value`` itself when every entry is finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(value)):  # one pass and no memory; an overflow is looked at closely
            return value
    bad = ~np.isfinite(value)
    if bad.any():
        raise problem(where, f"{name}{first_value(bad, value)} is not finite", "finite numbers", advice)
    return value


def vector(where: str, name: str, value: Any, length: int | None = None, advice: str = "") -> np.ndarray:
    """A scalar spread over ``length`` rows, or a vector that has that many."""
    out = numeric(where, name, value)
    if out.ndim == 0 and length is not None:
        out = np.full(length, float(out))
    if out.ndim != 1 or (length is not None and out.shape[0] != length):
        wanted = "one dimension" if length is None else f"a number or shape ({length},)"
        raise problem(where, f"{name} has shape {out.shape}", wanted, advice)
    return out


def counts(where: str, name: str, value: np.ndarray, advice: str = "") -> None:
    """Every entry that is not NaN is 0, 1, 2, ..."""
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
    """Every entry that is not NaN is one of 0, ..., n_classes - 1."""
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
    """Every entry is finite and above zero."""
    bad = ~(np.isfinite(value) & (value > 0))
    if np.any(bad):
        got = f"{name} = {number(value)}" if np.ndim(value) == 0 else f"{name}{first_value(bad, value)}"
        raise problem(where, f"{got} is not a positive number", "values above 0", advice)
    return value


def choice(where: str, name: str, value: object, allowed: tuple[object, ...], advice: str = "") -> None:
    """``value`` is one of the allowed words."""
    if value not in allowed:
        words = " or ".join(repr(a) for a in allowed)
        raise problem(where, f"{name} = {value!r} is not known", words, advice)
