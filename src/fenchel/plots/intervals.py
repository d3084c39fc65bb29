"""Estimates with their intervals: in order, by name, along a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem, vector
from ..linalg.arrays import ArrayLike, to_numpy
from .base import BLUE, GREY, MARKERS, ORANGE, PALETTE, new_figure, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_caterpillar(
    mean: Any,
    lower: Any,
    upper: Any,
    ax: Axes | None = None,
    *,
    label: str = "",
    reference: float | None = None,
    log: bool = True,
    title: str = "",
) -> Axes:
    """Estimates with intervals in increasing order; intervals that leave out ``reference`` are coloured.

    Parameters
    ----------
    mean, lower, upper : arrays (N,)
        Positive numbers on a log axis.
    label : of the vertical axis, with its unit
    reference : float, optional
        Default: 1 on a log axis, 0 on a linear one.
    log : bool
    title : str

    Returns
    -------
    matplotlib Axes
    """
    middle, low, high = (vector("plot_caterpillar", "mean, lower, upper", to_numpy(v)) for v in (mean, lower, upper))
    reference = float(log) if reference is None else reference
    ax = new_figure(5.0, 3.8).subplots() if ax is None else ax
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
    if log:
        ax.set_yscale("log")
        ticks = _ratio_ticks(float(low.min()), float(high.max()))
        ax.set_yticks(ticks, labels=[f"{t:g}" for t in ticks])
    ax.set_xlabel("rank")
    ax.set_ylabel(label)
    ax.set_title(title, fontsize="medium")
    ax.legend(frameon=False, markerscale=4, loc="upper left", fontsize=9)
    quiet(ax)
    return ax


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios of a log axis, powers of ten where it is wide."""
    near = (0.1, 0.2, 0.33, 0.5, 0.67, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
    if high / low < 300.0:
        return [t for t in near if low <= t <= high]
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    return [10.0**k for k in range(first, last + 1, -(-(last - first + 1) // 8))]


def plot_forest(
    names: Sequence[str],
    mean: Any,
    lower: Any,
    upper: Any,
    ax: Axes | None = None,
    *,
    labels: Sequence[str] = (),
    label: str = "",
    reference: float = 0.0,
    title: str = "",
) -> Axes:
    """Named estimates with intervals on a linear axis, the first at the top, with a line at ``reference``.

    Parameters
    ----------
    names : N names
    mean, lower, upper : arrays (N,), or (S, N) to compare S methods
    labels : S names of the methods, for the legend
    label : of the horizontal axis, with its unit
    reference : float

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from fenchel.plots import plot_forest
    >>> ax = plot_forest(["glucose", "age"], [0.9, 0.1], [0.6, -0.2], [1.2, 0.4], label="log odds a sd")
    >>> [t.get_text() for t in ax.get_yticklabels()]
    ['glucose', 'age']
    """
    middle, low, high = (np.atleast_2d(np.asarray(to_numpy(v), dtype=np.float64)) for v in (mean, lower, upper))
    if not middle.shape == low.shape == high.shape == (middle.shape[0], len(names)):
        raise problem(
            "plot_forest",
            f"{len(names)} names meet mean {middle.shape}, lower {low.shape}, upper {high.shape}",
            "one of each a name, or (S, N)",
        )
    if labels and len(labels) != middle.shape[0]:
        raise problem("plot_forest", f"{len(labels)} labels meet {middle.shape[0]} methods", "one label a method")
    S, place = middle.shape[0], np.arange(len(names), dtype=np.float64)
    ax = (
        new_figure(5.0, 1.2 + len(names) * ((0.22 if len(names) <= 10 else 0.1) + 0.13 * S)).subplots()
        if ax is None
        else ax
    )
    ax.axvline(reference, color=GREY, linewidth=0.8, zorder=0)
    for k in range(S):
        down = place + (k - (S - 1) / 2) * 0.7 / S
        colour = PALETTE[k % len(PALETTE)]
        ax.hlines(down, low[k], high[k], color=colour, linewidth=1.4)
        word = labels[k] if labels else None
        ax.plot(middle[k], down, linestyle="", marker=MARKERS[k % len(MARKERS)], color=colour, markersize=5, label=word)
    ax.set_yticks(place, labels=list(names))
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel(label)
    ax.set_title(title, fontsize="medium")
    if labels:
        below = -0.55 / ax.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
        ax.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.4, below), ncols=3)
    quiet(ax)
    return ax


def plot_path(
    t: ArrayLike,
    mean: Any,
    lower: Any,
    upper: Any,
    ax: Axes | None = None,
    *,
    points: Any = None,
    label: str = "posterior mean",
    band: str = "95 % interval",
    points_label: str = "data",
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
) -> Axes:
    """A path with its band over time; ``points`` are drawn behind it.

    Parameters
    ----------
    t : array (N,) of numbers or of dates (datetime64)
    mean, lower, upper : arrays (N,)
    points : array (N,), optional
    label, band, points_label : names in the legend
    xlabel, ylabel, title : str

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_path
    >>> t = np.arange("1981-10", "1982-02", dtype="datetime64[M]").astype("datetime64[D]")
    >>> ax = plot_path(t, np.ones(4), np.full(4, 0.5), np.full(4, 1.5), ylabel="volatility (percent a day)")
    """
    when = np.asarray(t)
    middle, low, high = (vector("plot_path", "mean, lower, upper", to_numpy(v)) for v in (mean, lower, upper))
    if not when.shape == middle.shape == low.shape == high.shape:
        raise problem(
            "plot_path", f"t {when.shape}, mean {middle.shape}, lower {low.shape}, upper {high.shape}", "equal lengths"
        )
    ax = new_figure(6.2, 3.4).subplots() if ax is None else ax
    if np.issubdtype(when.dtype, np.datetime64):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(minticks=3, maxticks=9)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    elif when.dtype.kind in "iu":
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    if points is not None:
        ax.plot(when, to_numpy(points), ".", color=GREY, markersize=2.5, alpha=0.6, label=points_label, zorder=1)
    ax.fill_between(when, low, high, color=BLUE, alpha=0.25, linewidth=0, label=band, zorder=2)
    ax.plot(when, middle, color=BLUE, linewidth=1.2, label=label, zorder=3)
    ax.margins(x=0.01)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.set_title(title, fontsize="medium")
    ax.legend(frameon=False, fontsize=9, loc="best")
    quiet(ax)
    return ax
