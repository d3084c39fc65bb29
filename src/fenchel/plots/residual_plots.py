"""Residuals that are standard normal under the model: their quantiles, and what they follow, from plain arrays.

A residual of the k-th smallest of n is Phi^-1 of a Beta(k, n + 1 - k) under the model: bands of quantiles are of these.
Averages over n residuals are within 2 / sqrt(n) of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta

from ..checks import numeric, problem
from .base import BLUE, GREY, ORANGE, axes_for, colour_bar, finish_axes, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABEL = "quantile residual"
_BINS = 12  # of a column, whose average residuals are drawn
_LEVELS = 40  # levels that are drawn one by one
_WIDE = 50  # characters of their names that fit side by side
_ABOVE: dict[str, Any] = {
    "loc": "lower right",
    "bbox_to_anchor": (1.0, 0.97),
    "borderpad": 0.0,
}  # of a legend: off the points


def _finite(where: str, *columns: Any) -> list[np.ndarray]:
    """Columns of one length without the rows in which a number is missing."""
    each = [numeric(where, "values", column, missing=True) for column in columns]
    if len({column.shape for column in each}) > 1 or each[0].ndim != 1:
        raise problem(where, f"shapes {[column.shape for column in each]}", "columns of one length, (N,)")
    there = np.isfinite(np.stack(each)).all(axis=0)
    if not there.any():
        raise problem(where, "no residual is a number", "at least one")
    return [column[there] for column in each]


def plot_quantiles(residuals: Any, ax: Axes | None = None, *, level: float = 0.95) -> Axes:
    """Residuals (N,) in order against those that a normal would have, with a band for each of them.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_quantiles
    >>> plot_quantiles(np.random.default_rng(0).normal(size=50)).get_xlabel()
    'normal quantile'
    """
    [z] = _finite("plot_quantiles", residuals)
    ax, n = axes_for(ax, 4.2, 3.6), z.size
    k = np.arange(1, n + 1)
    expected = ndtri((k - 0.5) / n)
    low, high = (ndtri(beta.ppf(q, k, n + 1 - k)) for q in (0.5 - level / 2, 0.5 + level / 2))
    ax.fill_between(expected, low, high, color=GREY, alpha=0.25, linewidth=0, label=f"{100 * level:g} % for each")
    ax.plot(expected, expected, color=GREY, linewidth=0.8)
    ax.plot(expected, np.sort(z), ".", color=BLUE, markersize=4)
    return finish_axes(ax, "normal quantile", _LABEL, **_ABOVE)


def plot_against(x: Any, residuals: Any, ax: Axes | None = None, *, xlabel: str = "", line: bool = False) -> Axes:
    """Residuals against a column of numbers, with averages over stretches or few values of it, and 95 % intervals.

    ``line`` joins the residuals in the order of x, as of a series.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_against
    >>> x = np.arange(40.0)
    >>> plot_against(x, np.sin(x), xlabel="year").get_xlabel()
    'year'
    """
    at, z = _finite("plot_against", x, residuals)
    ax = axes_for(ax, 4.2, 3.6)
    order = np.argsort(at, kind="stable")
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    size = 5 if z.size < 500 else 2
    ax.plot(at[order], z[order], "." if not line else ".-", color=BLUE, markersize=size, alpha=0.5, linewidth=0.6)
    values, each = np.unique(at, return_inverse=True)
    parts = np.array_split(order, min(_BINS, max(1, z.size // 10)))
    if values.size <= _BINS:
        parts = [np.flatnonzero(each == k) for k in range(values.size)]
    if len(parts) > 2:
        middle = [float(at[part].mean()) for part in parts]
        mean = [float(z[part].mean()) for part in parts]
        half = [1.96 / np.sqrt(part.size) for part in parts]
        ax.errorbar(middle, mean, yerr=half, fmt="o", color=ORANGE, markersize=4, linewidth=1.2, label="average, 95 %")
    return finish_axes(ax, xlabel, _LABEL, **_ABOVE)


def plot_by_level(levels: Sequence[Any], residuals: Any, ax: Axes | None = None, *, xlabel: str = "") -> Axes:
    """The average residual of each level of a column (N,) with its 95 % interval; of many levels in order of size.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_by_level
    >>> ax = plot_by_level(["a", "b"] * 10, np.zeros(20), xlabel="arm")
    >>> [tick.get_text() for tick in ax.get_xticklabels()]
    ['a', 'b']
    """
    z = numeric("plot_by_level", "residuals", residuals, missing=True)
    values = np.asarray(levels)
    values = values if values.dtype.kind in "iufb" else np.asarray([short_name(level) for level in levels])
    names, codes = np.unique(values, return_inverse=True)
    if z.shape != codes.shape:
        raise problem("plot_by_level", f"{codes.size} levels and residuals {z.shape}", "as many of both, (N,)")
    there = np.isfinite(z)
    n = np.maximum(np.bincount(codes[there], minlength=names.size), 1e-300)
    mean = np.bincount(codes[there], z[there], minlength=names.size) / n
    many = names.size > _LEVELS
    order = np.argsort(mean, kind="stable") if many else np.arange(names.size)
    order = order[n[order] >= 1.0]
    ax = axes_for(ax, 4.2, 3.6)
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    place = np.arange(order.size)
    if not many:
        where = np.empty(names.size, dtype=int)
        where[order] = place
        aside = 0.4 * (0.618 * np.arange(there.sum()) % 1.0) - 0.2  # no draws: residuals may come of the same seed
        ax.plot(where[codes[there]] + aside, z[there], ".", color=BLUE, markersize=3, alpha=0.4)
    half = 1.96 / np.sqrt(n[order])
    ax.errorbar(
        place, mean[order], yerr=half, fmt="o", color=ORANGE, markersize=4, linewidth=1.2, label="average, 95 %"
    )
    if many:
        ax.set_xticks([])
        xlabel = f"{xlabel}: {order.size} levels, by their average"
    else:
        labels = [short_name(name) for name in names[order]]
        ax.set_xticks(place, labels=labels, rotation=0 if len(" ".join(labels)) < _WIDE else 90, fontsize=9)
    return finish_axes(ax, xlabel, _LABEL, **_ABOVE)


def plot_residual_map(
    x: Any, y: Any, residuals: Any, ax: Axes | None = None, *, xlabel: str = "", ylabel: str = ""
) -> Axes:
    """Residuals at their places in the plane, by colour: patches of one colour are what a field has left.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_residual_map
    >>> place = np.arange(9.0)
    >>> plot_residual_map(place % 3, place // 3, place - 4, xlabel="east", ylabel="north").get_ylabel()
    'north'
    """
    east, north, z = _finite("plot_residual_map", x, y, residuals)
    ax = axes_for(ax, 4.6, 3.6)
    dots = ax.scatter(east, north, c=z, cmap="RdBu_r", vmin=-3.0, vmax=3.0, s=12, linewidths=0.2, edgecolors=GREY)
    colour_bar(dots, ax, _LABEL)
    return finish_axes(ax, xlabel, ylabel)


def plot_shares(
    names: Sequence[str], share: Any, low: Any, high: Any, ax: Axes | None = None, *, xlabel: str = "share of variance"
) -> Axes:
    """Shares between 0 and 1 as bars with intervals, the first on top.

    Examples
    --------
    >>> from fenchel.plots import plot_shares
    >>> plot_shares(["fixed", "residual"], [0.3, 0.7], [0.2, 0.6], [0.4, 0.8]).get_xlabel()
    'share of variance'
    """
    at, low, high = (numeric("plot_shares", "shares", each) for each in (share, low, high))
    ax = axes_for(ax, 5.0, 0.7 + 0.4 * len(names))
    place = np.arange(len(names))[::-1]
    ax.barh(place, at, height=0.6, color=BLUE, alpha=0.6)
    ax.hlines(place, low, high, color="black", linewidth=1.4)
    ax.set_yticks(place, labels=list(names))
    ax.set_xlim(0.0, 1.0)
    return finish_axes(ax, xlabel, "")
