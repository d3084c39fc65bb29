"""Pictures of a fit: the two bounds closing, a map of districts, intervals, the evidence over a grid.

matplotlib is imported when a picture is drawn. Figures are made without pyplot: no window, no global state. Every
function draws into ``ax`` when given one, else into a figure of its own (``ax.figure``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import problem, vector
from .linalg.arrays import to_numpy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .solvers.solution import Solution

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"  # told apart by colour-blind readers
_RATIO_TICKS = ((0.5, 0.67, 0.8, 1, 1.25, 1.5, 2), (0.1, 0.2, 0.33, 0.5, 1, 2, 3, 5, 10), (0.01, 0.1, 1, 10, 100))


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('plots: matplotlib is not installed. Try: pip install "fenchel[plots]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def plot_trace(solution: Solution, ax: Sequence[Axes] | None = None) -> Figure:
    """Both bounds against the iteration, as distances from the final elbo, and below them the gap on a log axis.

    Parameters
    ----------
    solution : Solution
    ax : two Axes, optional

    Returns
    -------
    matplotlib Figure with the two panels
    """
    figure: Any = _figure(5.0, 5.6) if ax is None else ax[0].get_figure(root=True)
    top, bottom = figure.subplots(2, 1, sharex=True) if ax is None else ax
    from matplotlib.ticker import MaxNLocator

    trace = solution.trace
    steps, gap = trace["iteration"], trace["gap"]
    # a start can be a million nats away: linear within 1 nat of the end, logarithmic beyond
    for name, colour, marker, word in (
        ("elbo_upper", ORANGE, "v", "upper bound (dual)"),
        ("elbo", BLUE, "^", "lower bound (elbo)"),
    ):
        top.plot(steps, trace[name] - solution.elbo, color=colour, marker=marker, label=word)
    top.axhline(0.0, color=GREY, linewidth=0.8, zorder=0)
    top.set_yscale("symlog", linthresh=1.0)
    _thin_ticks(
        top, max(np.abs(trace["elbo"] - solution.elbo).max(), np.abs(trace["elbo_upper"] - solution.elbo).max())
    )
    top.set_ylabel("bound minus final elbo (nats)")
    top.set_title(f"Final elbo {solution.elbo:.4f}", fontsize="medium")
    top.legend(frameon=False)
    bottom.plot(steps[gap > 0], gap[gap > 0], color=BLUE, marker="o")
    bottom.set_yscale("log")
    target = solution.tol * max(1.0, abs(solution.elbo))
    if target > 0:
        bottom.axhline(target, color=GREY, linestyle="--", linewidth=0.8, label=f"asked: {target:.1e}")
        bottom.legend(frameon=False)
    bottom.set_ylabel("gap (nats)")
    bottom.set_xlabel("iteration")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    for panel in (top, bottom):
        _quiet(panel)
    return figure


def _thin_ticks(ax: Axes, largest: float) -> None:
    """At most three powers of ten on each side of zero."""
    power = int(np.ceil(np.log10(max(largest, 10.0))))
    stride = int(np.ceil(power / 3))
    powers = [10.0**k for k in range(power, 0, -stride)]
    ax.set_yticks([-p for p in powers] + [0.0] + powers[::-1])
    ax.set_ylim(-2 * powers[0], 2 * powers[0])


def _quiet(ax: Axes) -> None:
    ax.grid(alpha=0.25)
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)


def plot_map(
    polygons: Sequence[Sequence[Any]],
    values: Any,
    ax: Axes | None = None,
    *,
    label: str = "",
    title: str = "",
    cmap: str | None = None,
    ratio: bool = False,
    limits: tuple[float, float] | None = None,
) -> Axes:
    """A map coloured by one value a district, with a colour bar below it.

    Parameters
    ----------
    polygons : N lists of arrays (vertices, 2)
        The outlines of each district. They are drawn in decreasing area, so that enclaves stay visible.
    values : array (N,)
        NaN is drawn grey.
    ax : Axes, optional
    label, title : str
        Of the colour bar, and of the map.
    cmap : str, optional
        Default: viridis, or RdBu_r for ratios. Both can be read by colour-blind readers.
    ratio : bool
        The values are ratios such as relative risks: a log scale with 1 in the middle, where the colours part.
    limits : (low, high), optional
        Ends of the colour scale; the bar gets arrow ends when values lie outside.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_map
    >>> square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    >>> ax = plot_map([[square], [square + [1, 0]]], [0.8, 1.3], label="relative risk", ratio=True)
    >>> ax.figure.savefig("map.png")  # doctest: +SKIP
    """
    numbers = vector("plot_map", "values", to_numpy(values))
    if numbers.shape[0] != len(polygons):
        raise problem("plot_map", f"{len(polygons)} districts meet {numbers.shape[0]} values", "one value a district")
    finite = numbers[np.isfinite(numbers)]
    if finite.size == 0 or (ratio and (finite <= 0).any()):
        raise problem("plot_map", "the values cannot be coloured", "numbers, and numbers above 0 when ratio=True")
    ax = _figure(4.4, 6.1).subplots() if ax is None else ax
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LogNorm, Normalize

    if limits is None:
        reach = max(float(np.exp(np.abs(np.log(finite)).max())), 1.05) if ratio else 0.0
        limits = (1 / reach, reach) if ratio else (float(finite.min()), float(finite.max()))
    rings = [(np.asarray(ring, dtype=np.float64), value) for d, value in zip(polygons, numbers) for ring in d]
    rings.sort(key=lambda pair: -_area(pair[0]))
    colours = colormaps[cmap or ("RdBu_r" if ratio else "viridis")].with_extremes(bad="#bbbbbb")
    shapes = PolyCollection(
        [ring for ring, _ in rings],
        array=np.ma.masked_invalid([value for _, value in rings]),
        cmap=colours,
        norm=LogNorm(*limits) if ratio else Normalize(*limits),
        edgecolors="#555555",
        linewidths=0.15,
    )
    ax.add_collection(shapes)
    ax.margins(0.01)
    ax.autoscale_view()
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(title)
    ends = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    outside = (bool(finite.min() < limits[0]), bool(finite.max() > limits[1]))
    bar = ax.figure.colorbar(shapes, ax=ax, orientation="horizontal", shrink=0.8, pad=0.02, extend=ends[outside])
    bar.set_label(label)
    if ratio:
        wide = limits[1] / limits[0]
        ticks = [t for t in _RATIO_TICKS[(wide > 6) + (wide > 200)] if limits[0] <= t <= limits[1]]
        bar.set_ticks(ticks, labels=[f"{t:g}" for t in ticks])
        bar.ax.minorticks_off()
    return ax


def _area(ring: np.ndarray) -> float:
    """Of a closed outline, by the shoelace formula."""
    x, y = ring[:, 0], ring[:, 1]
    return 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))


def plot_caterpillar(
    mean: Any, lower: Any, upper: Any, ax: Axes | None = None, *, label: str = "", reference: float = 1.0
) -> Axes:
    """Estimates with intervals in increasing order; intervals that leave out ``reference`` are coloured. Log axis.

    ``mean``, ``lower``, ``upper``: arrays (N,) of positive numbers. Returns the Axes.
    """
    middle, low, high = (vector("plot_caterpillar", "mean, lower, upper", to_numpy(v)) for v in (mean, lower, upper))
    ax = _figure(5.0, 3.8).subplots() if ax is None else ax
    order = np.argsort(middle)
    middle, low, high, place = middle[order], low[order], high[order], np.arange(1, order.size + 1)
    for who, colour, word in (
        (high < reference, BLUE, f"below {reference:g}"),
        ((low <= reference) & (high >= reference), GREY, f"not told apart from {reference:g}"),
        (low > reference, ORANGE, f"above {reference:g}"),
    ):
        ax.vlines(place[who], low[who], high[who], color=colour, linewidth=0.7, alpha=0.6)
        ax.plot(place[who], middle[who], ".", color=colour, markersize=3, label=f"{word} ({int(who.sum())})")
    ax.axhline(reference, color="black", linewidth=0.8)
    ax.set_xlim(0, order.size + 1)
    ax.set_yscale("log")
    ticks = [t for t in (0.1, 0.2, 0.33, 0.5, 0.67, 1, 1.5, 2, 3, 5, 10) if low.min() <= t <= high.max()]
    ax.set_yticks(ticks, labels=[f"{t:g}" for t in ticks])
    ax.set_xlabel("rank")
    ax.set_ylabel(label)
    ax.legend(frameon=False, markerscale=4, loc="upper left")
    _quiet(ax)
    return ax


def plot_grid(
    rows: Any, columns: Any, values: Any, ax: Axes | None = None, *, row_label: str = "", column_label: str = ""
) -> Axes:
    """A value over a grid, written as its distance from the best one, which is framed.

    ``rows`` (R,), ``columns`` (C,), ``values`` (R, C). Returns the Axes.
    """
    loss = np.asarray(values, dtype=np.float64) - np.max(values)
    ax = _figure(5.0, 3.9).subplots() if ax is None else ax
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
