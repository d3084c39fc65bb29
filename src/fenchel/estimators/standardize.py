"""Where the columns of a table lie and how far they reach: what a linear model centres and scales them by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..checks import problem
from ..linalg.moments import Moments

_REACH = {True: (1e-152, 1e152), False: (1e-60, 1e60)}  # squares of a coefficient, or of a column, stay in range


def centres_and_units(
    where: str, moments: Moments, names: Sequence[str], centre: bool, scale: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The shift (D,) of each column, what rounding took from it, its unit, and whether nothing is left of it.

    The shift is the weighted mean, the unit the standard deviation about it; without centring 0 and the root mean
    square. A constant column has no standard deviation: its own size stands in, and 1 for zeros. Without scaling every
    unit is 1.
    """
    mean, sd, rest, constant = moments
    size = np.where(constant, np.abs(mean), sd) if centre else np.hypot(mean, sd)
    size = np.where(size > 0.0, size, 1.0)
    low, high = _REACH[scale]
    bad = ~((size >= low) & (size <= high))
    if bad.any():
        d = int(np.argmax(bad))
        word = "standard deviation" if centre and not constant[d] else "size"
        advice = "Give it in another unit" + ("." if scale else ", or leave standardize=True.")
        raise problem(where, f"column {names[d]!r} of X has {word} {size[d]:.3g}", f"{low:g} to {high:g}", advice)
    unit = size if scale else np.ones_like(size)
    if centre:
        return mean, rest, unit, constant
    return np.zeros_like(mean), np.zeros_like(mean), unit, np.zeros_like(constant)
