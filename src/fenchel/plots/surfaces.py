"""A value over a grid: written cell by cell, in colours, as contours, a surface with its sd, or class probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..linalg.arrays import ArrayLike
from .base import MARKERS, ORANGE, PALETTE, axes_for, colour_bar, map_size, new_figure, short_name, signed_ends

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
    ax = axes_for(ax, 5.0, 3.9)
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
    ax.set(xlabel=column_label, ylabel=row_label)
    return ax


def plot_heat(
    rows: Any,
    columns: Any,
    values: ArrayLike,
    ax: Axes | None = None,
    *,
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
    ax = axes_for(ax, 6.2, min(7.0, 1.6 + 0.2 * max(len(rows), 8)))
    reach = float(np.nanmax(np.abs(v))) or 1.0
    image = ax.imshow(v, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
    for names, put, most in ((columns, ax.set_xticks, 12), (rows, ax.set_yticks, 25)):
        at = range(0, len(names), -(-len(names) // most))
        put(list(at), labels=[short_name(names[i]) for i in at])
    longest = max(len(short_name(name)) for name in columns)
    ax.tick_params("x", rotation=45 if longest * min(len(columns), 12) > 40 else 0)
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
    ax = axes_for(ax, 5.0, 3.9)
    levels = _rounded_quantiles(v, star) if levels is None else np.asarray(levels, dtype=np.float64)
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
    ax.set(xlabel=xlabel, ylabel=ylabel)
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


def _rounded_quantiles(values: np.ndarray, star: object) -> np.ndarray:
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


_MOST = 2000  # points that are drawn
_LEVELS = 8
_NUMBERS = 4  # of a colour bar, at least
_BETWEEN = 0.2  # inches from one number of a colour bar to the next
_SURFACE_SIZE = 3.1  # inches of a map about as wide as high


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
    across, high = map_size(float(spans[0]), float(spans[1]), _SURFACE_SIZE)
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
    ax = axes_for(ax, 5.0, 3.9)
    ends = signed_ends(float(values.min()), float(values.max()))
    scale = {"cmap": "viridis"} if ends is None else {"cmap": "RdBu_r", "vmin": ends[0], "vmax": ends[1]}
    dots = ax.scatter(at[:, 0], at[:, 1], c=values, s=9, linewidths=0, **scale)
    colour_bar(dots, ax, label)
    ax.set(xlabel=names[0], ylabel=names[1])
    ax.set_title(title, fontsize="medium")
    return ax


def _rounded(levels: np.ndarray) -> np.ndarray:
    """To two digits of a step, the ends outwards."""
    unit = 10.0 ** np.floor(np.log10(levels[1] - levels[0]) - 1.0)
    inner = np.round(levels[1:-1] / unit)
    digits = max(0, -int(np.floor(np.log10(unit))))
    return np.round(np.r_[np.floor(levels[0] / unit), inner, np.ceil(levels[-1] / unit)] * unit, digits)


def plot_decision(
    x: ArrayLike,
    y: ArrayLike,
    probabilities: ArrayLike,
    classes: Sequence[Any],
    ax: Axes | None = None,
    *,
    points: tuple[Any, Any, Any] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
) -> Axes:
    """Probabilities (R, C, K) on a grid x (C,), y (R,); ``points`` are x, y and the place of each row's class.

    Of two classes the probability of the second; of more the colour of the most probable one, paler where it is less
    certain, with lines where it changes.
    """
    across, up, p = (np.asarray(v, dtype=np.float64) for v in (x, y, probabilities))
    if p.shape != (up.size, across.size, len(classes)) or len(classes) < 2:
        expected = f"{(up.size, across.size, len(classes))}: rows, columns, two or more classes"
        raise problem("plot_decision", f"probabilities have shape {p.shape}", expected)
    ax = axes_for(ax, 5.4, 4.2)
    words = [str(c) for c in classes]
    (_draw_two if len(words) == 2 else _draw_many)(ax, across, up, p, words)
    a, b, place = (np.zeros(0),) * 3 if points is None else points
    for k, word in enumerate(words):  # without points, the legend still names the colours
        style: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.6, "markersize": 5.5}
        style |= {"color": PALETTE[k % len(PALETTE)], "linestyle": "", "marker": MARKERS[k % len(MARKERS)]}
        ax.plot(a[place == k], b[place == k], label=word, **style)
    ax.set(xlabel=xlabel, ylabel=ylabel, xlim=across[[0, -1]], ylim=up[[0, -1]])
    ax.set_title(title, fontsize="medium")
    columns = 2 if max(map(len, words)) > 16 else 3
    ax.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=columns)
    return ax


def _draw_two(ax: Axes, x: np.ndarray, y: np.ndarray, p: np.ndarray, words: list[str]) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patheffects import withStroke

    colours = LinearSegmentedColormap.from_list("two classes", [PALETTE[0], "white", PALETTE[1]])
    filled = ax.contourf(x, y, p[:, :, 1], levels=np.linspace(0, 1, 11), cmap=colours, alpha=0.75)
    lines = ax.contour(x, y, p[:, :, 1], levels=[0.1, 0.5, 0.9], colors="black", linewidths=[0.6, 1.3, 0.6])
    for number in ax.clabel(lines, fontsize=9, fmt="%g", zorder=4):  # above the points, and told apart from them
        number.set_path_effects([withStroke(linewidth=2, foreground="white")])
    ax.figure.colorbar(filled, ax=ax, ticks=np.linspace(0, 1, 6)).set_label(f"P({words[1]})")


def _draw_many(ax: Axes, x: np.ndarray, y: np.ndarray, p: np.ndarray, words: list[str]) -> None:
    from matplotlib.colors import to_rgb

    K = len(words)
    ink = np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(K)])
    certain = np.clip((p.max(axis=2) - 1 / K) / (1 - 1 / K), 0.0, 1.0)
    dx, dy = (x[1] - x[0]) / 2, (y[1] - y[0]) / 2
    edges = (x[0] - dx, x[-1] + dx, y[0] - dy, y[-1] + dy)
    image = 1 - 0.75 * certain[:, :, None] * (1 - ink[p.argmax(axis=2)])
    ax.imshow(image, origin="lower", extent=edges, aspect="auto", interpolation="bilinear")
    for k in range(K):  # where class k overtakes the best of the others
        lead = p[:, :, k] - np.delete(p, k, axis=2).max(axis=2)
        if lead.min() < 0.0 < lead.max():
            ax.contour(x, y, lead, levels=[0.0], colors="black", linewidths=0.8)
