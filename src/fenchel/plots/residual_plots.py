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
_PLACES = 1_000  # rows of a variogram
_NEAR = 0.5  # of the largest distance, up to which pairs are looked at
_SHUFFLES = 39  # the smallest and the largest of so many bound the middle 95 %
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


def plot_variogram(places: Any, residuals: Any, ax: Axes | None = None, *, xlabel: str = "distance") -> Axes:
    """Half the mean squared difference of residuals (N,) of two rows against the distance of their places (N, d).

    The band holds the middle 95 % where residuals do not depend on the place: 39 times they change places. Below it at
    short distances, neighbours are alike. Of more than 1,000 rows, so many at even steps are drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_variogram
    >>> plot_variogram(np.arange(60.0)[:, None], np.sin(np.arange(60.0) / 9), xlabel="days apart").get_xlabel()
    'days apart'
    """
    at, z = numeric("plot_variogram", "places", places), numeric("plot_variogram", "residuals", residuals, missing=True)
    if at.ndim != 2 or z.shape != at.shape[:1]:
        raise problem(
            "plot_variogram", f"places {at.shape} and residuals {z.shape}", "places (N, d) and as many residuals"
        )
    there = np.flatnonzero(np.isfinite(z))
    if there.size < _BINS:
        raise problem("plot_variogram", f"{there.size} residuals", f"{_BINS} or more")
    there = there[np.linspace(0, there.size - 1, min(there.size, _PLACES)).astype(int)]
    at, z = at[there], z[there]
    first, second = np.triu_indices(z.size, 1)
    apart = np.sqrt(((at[first] - at[second]) ** 2).sum(axis=1))
    near = apart <= _NEAR * apart.max()
    first, second, apart = first[near], second[near], apart[near]
    bins = np.minimum((apart / max(apart.max(), 1e-300) * _BINS).astype(int), _BINS - 1)
    n = np.bincount(bins, minlength=_BINS)
    full, pairs = n > 0, np.maximum(n, 1)

    def variogram(of: np.ndarray) -> np.ndarray:
        return np.asarray((np.bincount(bins, (of[first] - of[second]) ** 2, _BINS) / (2.0 * pairs))[full])

    rng = np.random.default_rng(0)
    shuffled = np.stack([variogram(rng.permutation(z)) for _ in range(_SHUFFLES)])
    middle = (np.bincount(bins, apart, _BINS) / pairs)[full]
    ax = axes_for(ax, 4.2, 3.6)
    ax.fill_between(
        middle,
        shuffled.min(axis=0),
        shuffled.max(axis=0),
        color=GREY,
        alpha=0.25,
        linewidth=0,
        label="without dependence",
    )
    ax.plot(middle, variogram(z), "o-", color=BLUE, markersize=4, linewidth=1.0)
    ax.set_ylim(bottom=0.0)
    return finish_axes(ax, xlabel, "semivariance of residuals", loc="lower right")


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
