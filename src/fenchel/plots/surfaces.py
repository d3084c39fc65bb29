"""A field over the plane: contours of its mean, of its sd beside them, and the points of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..linalg.arrays import ArrayLike
from .base import colour_bar, map_size, new_figure, signed_ends
from .grids import plot_contours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 2000  # points that are drawn
_LEVELS = 8
_NUMBERS = 4  # of a colour bar, at least
_BETWEEN = 0.2  # inches from one number of a colour bar to the next
_SIZE = 3.1  # inches of a map about as wide as high


def plot_surface(
    frame: Any,
    points: Sequence[ArrayLike] | None = None,
    ax: Axes | None = None,
    *,
    column: str = "mean",
    names: Sequence[str] = ("", ""),
    title: str = "",
) -> Axes:
    """Contours of a column of a frame whose index holds the (x, y) of a regular grid, some of them left out.

    At scattered (x, y) the values are dots in colours. Without ``ax`` the sd is drawn beside the mean. ``points``
    (two arrays) are dots; of very many, some. Values of both signs have colours that part at 0.
    Returns the Axes, of the first picture where there are two.
    """
    at = np.array(list(frame.index), dtype=np.float64)
    spans = np.ptp(at, axis=0)
    across, high = map_size(float(spans[0]), float(spans[1]), _SIZE)
    if ax is None and column == "mean" and "sd" in frame:
        rows, columns = (2, 1) if across > 2.0 * high else (1, 2)  # wide maps below one another
        figure = new_figure(columns * (across + 1.6), rows * (high + 1.1))
        first, second = figure.subplots(rows, columns).ravel()
        plot_surface(frame, points, second, column="sd", names=names, title=f"sd of {title}")
        return plot_surface(frame, points, first, column=column, names=names, title=title)
    (x, i), (y, j) = (np.unique(at[:, k], return_inverse=True) for k in (0, 1))
    if x.size < 2 or y.size < 2:
        raise problem("plot_surface", f"a grid of {x.size} by {y.size} points", "at least two of each")
    if x.size * y.size > 4 * len(at):  # scattered
        return _scattered(at, frame[column].to_numpy(), ax, column, names, title)
    values = np.full((y.size, x.size), np.nan)
    values[j, i] = frame[column].to_numpy()
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    ends = signed_ends(least, most) if column != "sd" else None
    least, most = (least, most) if ends is None else ends
    levels = _rounded(np.linspace(least, most if most > least else least + 1.0, _LEVELS))
    ax = plot_contours(
        x,
        y,
        values,
        ax,
        star=False,
        points=False,
        levels=levels,
        xlabel=names[0],
        ylabel=names[1],
        title=title,
        label=column,
        cmap="viridis" if ends is None else "RdBu_r",
    )
    numbers = int(np.clip(high / _BETWEEN, _NUMBERS, _LEVELS))
    ax.child_axes[-1].set_yticks(levels[np.linspace(0, _LEVELS - 1, numbers).round().astype(int)])
    if points is not None:
        a, b = (np.asarray(p)[:: max(1, len(np.asarray(p)) // _MOST)] for p in points)
        ax.plot(a, b, ".", color="black", markersize=2, alpha=0.5)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), aspect="equal")  # points far from the others stay outside
    return ax


def _scattered(
    at: np.ndarray, values: np.ndarray, ax: Axes | None, label: str, names: Sequence[str], title: str
) -> Axes:
    ax = new_figure(5.0, 3.9).subplots() if ax is None else ax
    ends = signed_ends(float(values.min()), float(values.max()))
    scale = {"cmap": "viridis"} if ends is None else {"cmap": "RdBu_r", "vmin": ends[0], "vmax": ends[1]}
    dots = ax.scatter(at[:, 0], at[:, 1], c=values, s=9, linewidths=0, **scale)
    colour_bar(dots, ax, label)
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    ax.set_title(title, fontsize="medium")
    return ax


def _rounded(levels: np.ndarray) -> np.ndarray:
    """To two digits of a step, the ends outwards."""
    unit = 10.0 ** np.floor(np.log10(levels[1] - levels[0]) - 1.0)
    inner = np.round(levels[1:-1] / unit)
    digits = max(0, -int(np.floor(np.log10(unit))))
    return np.round(np.r_[np.floor(levels[0] / unit), inner, np.ceil(levels[-1] / unit)] * unit, digits)
