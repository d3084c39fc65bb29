"""A value over a grid: written cell by cell, in colours, or as contours with a star at the optimum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..linalg.arrays import ArrayLike
from .base import ORANGE, colour_bar, new_figure, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text


def plot_grid(
    rows: Any, columns: Any, values: ArrayLike, ax: Axes | None = None, *, row_label: str = "", column_label: str = ""
) -> Axes:
    """A value over a grid, written as its distance from the best one, which is framed.

    ``rows`` (R,), ``columns`` (C,), ``values`` (R, C). Returns the Axes.
    """
    loss = np.asarray(values, dtype=np.float64) - np.max(values)
    ax = new_figure(5.0, 3.9).subplots() if ax is None else ax
    floor = min(-1.0, float(np.median(loss)))
    ax.imshow(loss, cmap="cividis", vmin=floor, vmax=0.0, aspect="auto", origin="lower")
    for (i, j), value in np.ndenumerate(loss):
        ink = "black" if value > 0.55 * floor else "white"
        ax.text(
            j, i, f"{value:.1f}" if value > -99.95 else f"{value:.0f}", ha="center", va="center", color=ink, fontsize=9
        )
    i, j = np.unravel_index(int(np.argmax(loss)), loss.shape)
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((float(j) - 0.5, float(i) - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=2))
    ax.set_xticks(range(loss.shape[1]), labels=[f"{c:g}" for c in columns])
    ax.set_yticks(range(loss.shape[0]), labels=[f"{r:g}" for r in rows])
    ax.set_xlabel(column_label)
    ax.set_ylabel(row_label)
    return ax


def plot_heat(
    rows: Any,
    columns: Any,
    values: ArrayLike,
    ax: Axes | None = None,
    *,
    row_label: str = "",
    column_label: str = "",
    label: str = "",
    title: str = "",
) -> Axes:
    """A value over a grid in colours that part at 0, the first row at the top.

    ``rows`` (R,), ``columns`` (C,), ``values`` (R, C); as many names of rows and columns as can be read are written.
    Returns the Axes.
    """
    v = np.asarray(values, dtype=np.float64)
    if v.shape != (len(rows), len(columns)) or not v.size:
        raise problem("plot_heat", f"values {v.shape} on {len(rows)} rows and {len(columns)} columns", "one a cell")
    ax = new_figure(6.2, min(7.0, 1.6 + 0.2 * max(len(rows), 8))).subplots() if ax is None else ax
    reach = float(np.nanmax(np.abs(v))) or 1.0
    image = ax.imshow(v, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
    for names, put, most in ((columns, ax.set_xticks, 12), (rows, ax.set_yticks, 25)):
        at = range(0, len(names), -(-len(names) // most))
        put(list(at), labels=[short_name(names[i]) for i in at])
    longest = max(len(short_name(name)) for name in columns)
    ax.tick_params("x", rotation=45 if longest * min(len(columns), 12) > 40 else 0)
    ax.set_xlabel(column_label)
    ax.set_ylabel(row_label)
    ax.set_title(title, fontsize="medium")
    ax.figure.colorbar(image, ax=ax).set_label(label)
    return ax


def plot_contours(
    x: ArrayLike,
    y: ArrayLike,
    values: ArrayLike | None,
    ax: Axes | None = None,
    *,
    star: bool | str | tuple[float, float] = "min",
    star_label: str = "",
    mark: tuple[float, float, str] | None = None,
    levels: ArrayLike | None = None,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    label: str = "",
    log_x: bool = False,
    log_y: bool = False,
    points: bool = True,
    cmap: str | None = None,
) -> Axes:
    """Filled contours with numbers on their lines, a star at the optimum and, if asked, one more marked point.

    Parameters
    ----------
    x, y : arrays (C,), (R,)
        The grid along the horizontal and the vertical axis.
    values : array (R, C)
        Not a number where there is none.
    star : "min" (the same as True), "max", (x, y), or False
        Where the star stands.
    star_label : str
        Names the star in the legend.
    mark : (x, y, label), optional
        A second point, for example the setting somebody else found.
    levels : array, optional
        Contour levels. Default: rounded quantiles of the values, so that a steep surface still shows its floor.
    xlabel, ylabel, title, label : str
        ``label`` is that of the colour bar.
    log_x, log_y : bool
    points : bool
        Dots where values were computed.
    cmap : str, optional
        Default viridis, reversed when the star is a minimum, so that the better side is always light.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_contours
    >>> x, y = np.linspace(-2, 2, 9), np.linspace(-1, 1, 5)
    >>> ax = plot_contours(x, y, x[None, :] ** 2 + y[:, None] ** 2, label="loss (nats)", star="min")
    """
    x, y, v = (np.asarray(a, dtype=np.float64) for a in (x, y, values))
    if v.shape != (y.size, x.size) or min(v.shape) < 2:
        raise problem("plot_contours", f"values {v.shape} on {y.size} rows and {x.size} columns", "(len(y), len(x))")
    if not np.isfinite(v).any():
        raise problem("plot_contours", "no value is finite", "at least one number")
    if isinstance(star, str) and star not in ("min", "max"):
        raise problem("plot_contours", f"star = {star!r}", '"min", "max", (x, y) or False')
    ax = new_figure(5.0, 3.9).subplots() if ax is None else ax
    levels = _levels(v, star) if levels is None else np.asarray(levels, dtype=np.float64)
    # scales first: the gaps for the numbers on the lines are cut in screen coordinates
    ax.set_xscale("log" if log_x else "linear")
    ax.set_yscale("log" if log_y else "linear")
    numbers = _bands(ax, x, y, v, levels, cmap or ("viridis" if star == "max" else "viridis_r"), label)
    if points:
        ax.plot(*(a.ravel() for a in np.meshgrid(x, y)), ".", color="black", markersize=1.5, alpha=0.6)
    where = _star_place(x, y, v, star)
    style: dict[str, Any] = {
        "linestyle": "",
        "markeredgecolor": "white",
        "markeredgewidth": 0.8,
        "zorder": 5,
        "clip_on": False,
    }
    if where is not None:
        ax.plot(*where, marker="*", markersize=15, color=ORANGE, label=star_label or None, **style)
    if mark is not None:
        ax.plot(mark[0], mark[1], marker="D", markersize=7, color="black", label=mark[2], **style)
    if star_label or mark is not None:
        ax.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.set_title(title, fontsize="medium")
    for number in numbers:  # one that the frame would cut is left out
        place = ax.transAxes.inverted().transform(ax.transData.transform(number.get_position()))
        number.set_visible(bool(place.min() > 0.05 and place.max() < 0.95))
    return ax


def _bands(
    ax: Axes, x: np.ndarray, y: np.ndarray, v: np.ndarray, levels: np.ndarray, cmap: str, label: str
) -> list[Text]:
    """Filled contours, lines and a colour bar; the numbers on the lines."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm

    colours, masked = colormaps[cmap], np.ma.masked_invalid(v)
    norm = BoundaryNorm(levels, colours.N, extend="neither")
    filled = ax.contourf(x, y, masked, levels=levels, norm=norm, cmap=colours)
    # ink that stands out against the bands on both sides of a line
    ink = ["white" if np.dot(colours(norm(level))[:3], (0.3, 0.59, 0.11)) < 0.45 else "black" for level in levels[1:-1]]
    lines = ax.contour(x, y, masked, levels=levels[1:-1], colors=ink, linewidths=0.5, linestyles="solid")
    numbers = ax.clabel(lines, fontsize=8, inline_spacing=3, fmt=lambda level: f"{level:g}") if ink else []
    bar = colour_bar(filled, ax, label, spacing="uniform", ticks=levels)
    bar.ax.minorticks_off()
    return list(numbers)


def _levels(values: np.ndarray, star: object) -> np.ndarray:
    """Rounded levels with about a tenth of the values between two of them, one more near the optimum; all inside."""
    finite = np.sort(values[np.isfinite(values)])
    if finite[-1] <= finite[0]:
        return np.array([finite[0] - 0.5, finite[0] + 0.5])
    share = np.array([0.04, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    inner = np.quantile(finite, 1.0 - share if star == "max" else share)
    # three digits of the part where most of the values lie
    digits = max(0, 2 - int(np.floor(np.log10(max(np.ptp(inner), 1e-6 * np.ptp(finite))))))
    unit = 10.0**-digits
    ends = [np.floor(finite[0] / unit) * unit, np.ceil(finite[-1] / unit) * unit]
    return np.unique(np.round([*ends, *inner], digits))


def _star_place(
    x: np.ndarray, y: np.ndarray, v: np.ndarray, star: bool | str | tuple[float, float]
) -> tuple[float, float] | None:
    if star is False:
        return None
    if isinstance(star, tuple):
        return star
    i, j = np.unravel_index(int(np.nanargmax(v) if star == "max" else np.nanargmin(v)), v.shape)
    return float(x[j]), float(y[i])
