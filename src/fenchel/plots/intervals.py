"""Estimates with their intervals, in order, by name or along a path, and regions of two unknowns together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import numeric, problem, vector
from ..linalg.arrays import ArrayLike, to_numpy
from .base import BLUE, GREY, MARKERS, ORANGE, PALETTE, axes_for, finish_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_caterpillar(
    mean: Any,
    lower: Any,
    upper: Any,
    ax: Axes | None = None,
    *,
    label: str = "",
    log: bool = True,
    title: str = "",
) -> Axes:
    """Estimates with intervals in increasing order; intervals that leave out 1, on a linear axis 0, are coloured.

    Parameters
    ----------
    mean, lower, upper : arrays (N,)
        Positive numbers on a log axis.
    label : of the vertical axis, with its unit
    log : bool
    title : str

    Returns
    -------
    matplotlib Axes
    """
    middle, low, high = (vector("plot_caterpillar", "mean, lower, upper", to_numpy(v)) for v in (mean, lower, upper))
    reference = float(log)
    ax = axes_for(ax, 5.0, 3.8)
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
    return finish_axes(ax, "rank", label, title, markerscale=4, loc="upper left")


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
    title: str = "",
) -> Axes:
    """Named estimates with intervals on a linear axis, the first at the top, with a line at 0.

    Parameters
    ----------
    names : N names
    mean, lower, upper : arrays (N,), or (S, N) to compare S methods
    labels : S names of the methods, for the legend
    label : of the horizontal axis, with its unit

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
    ax = axes_for(ax, 5.0, 1.2 + len(names) * ((0.22 if len(names) <= 10 else 0.1) + 0.13 * S))
    ax.axvline(0.0, color=GREY, linewidth=0.8, zorder=0)
    for k in range(S):
        down = place + (k - (S - 1) / 2) * 0.7 / S
        colour = PALETTE[k % len(PALETTE)]
        ax.hlines(down, low[k], high[k], color=colour, linewidth=1.4)
        word = labels[k] if labels else None
        ax.plot(middle[k], down, linestyle="", marker=MARKERS[k % len(MARKERS)], color=colour, markersize=5, label=word)
    ax.set_yticks(place, labels=list(names))
    ax.set_ylim(len(names) - 0.5, -0.5)
    below = -0.55 / ax.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
    return finish_axes(ax, label, "", title, loc="upper center", bbox_to_anchor=(0.4, below), ncols=3)


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
    ax = axes_for(ax, 6.2, 3.4)
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
    return finish_axes(ax, xlabel, ylabel, title)


_CELLS = 160  # along each axis
_WIDTH = 0.22  # of the kernel, in sds
_TAIL = 0.002  # of each marginal, beyond which the grid ends
_REGIONS = 0.9, 0.5  # shares of a joint distribution whose regions are drawn, the largest first
_EDGE = 4.0  # sds of the kernel that the grid has beyond that


def _range_of(x: np.ndarray) -> tuple[float, float]:
    """Where values of this kind end: sizes at 0, shares at 0 and 1, correlations at -1 and 1."""
    if (x > 0.0).all():
        return 0.0, 1.0 if (x < 1.0).all() else np.inf
    return (-1.0, 1.0) if (np.abs(x) < 1.0).all() else (-np.inf, np.inf)


def smoothed(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of each (C,), and the density (C, C) of weighted points at them, the first along the first axis.

    By a normal kernel of 0.22 sds that is reflected where the range of values ends.
    """
    from scipy.ndimage import gaussian_filter

    edges, widths = [], []
    for values in (x, y):
        order = np.argsort(values)
        low, high = np.interp([_TAIL, 1.0 - _TAIL], np.cumsum(weights[order]), values[order])
        sd = float(np.sqrt(weights @ (values - weights @ values) ** 2))
        widths.append(_WIDTH * sd)
        (first, last), room = _range_of(values), _EDGE * widths[-1]
        edges.append(np.linspace(max(low - room, first), min(high + room, last), _CELLS + 1))
    steps = [edge[1] - edge[0] for edge in edges]
    cells = np.histogram2d(x, y, bins=edges, weights=weights)[0]
    mass = gaussian_filter(cells, [w / step for w, step in zip(widths, steps, strict=True)], mode="reflect")
    u, v = ((edge[:-1] + edge[1:]) / 2 for edge in edges)
    return u, v, mass / (mass.sum() * steps[0] * steps[1])


def region_levels(density: np.ndarray, inside: Sequence[float]) -> np.ndarray:
    """The density above which each share of the distribution lies, over an even grid."""
    falling = np.sort(density.ravel())[::-1]
    held = np.cumsum(falling) / falling.sum()
    return np.asarray(np.interp(inside, held, falling))


def plot_joint(
    x: Any,
    y: Any,
    weights: Any = None,
    ax: Axes | None = None,
    *,
    points: Any = None,
    shares: Any = None,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
) -> Axes:
    """The joint distribution of two unknowns: the smallest regions that hold 50 and 90 % of it.

    Parameters
    ----------
    x, y : arrays (M,)
        Draws, or weighted points.
    weights : array (M,), optional
    points : array (K, 2), optional
        Where something was computed: dots, of an area by their ``shares`` (K,).
    xlabel, ylabel, title : str

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_joint
    >>> sds = np.exp(np.random.default_rng(0).normal(size=(2, 4000)))
    >>> ax = plot_joint(*sds, xlabel="sd of schools", ylabel="sd of pupils")
    """
    a, b = (numeric("plot_joint", name, value) for name, value in (("x", x), ("y", y)))
    w = np.ones(a.shape) if weights is None else numeric("plot_joint", "weights", weights)
    if not a.shape == b.shape == w.shape or a.ndim != 1 or a.size < 3 or not w.sum() > 0.0 or (w < 0.0).any():
        got = f"x {a.shape}, y {b.shape} and weights {w.shape}"
        raise problem("plot_joint", got, "as many of each, (M,), at least 3, and weights of 0 or more")
    u, v, density = smoothed(a, b, w / w.sum())
    ax = axes_for(ax, 4.8, 4.2)
    heights = region_levels(density, _REGIONS)
    for k, (share, height) in enumerate(zip(_REGIONS, heights, strict=True)):
        ax.contourf(u, v, density.T, [height, np.inf], colors=[BLUE], alpha=0.22)
        ax.plot([], [], color=BLUE, linewidth=7, alpha=0.22 * (1 + k), label=f"{100 * share:g} %")
    ax.contour(u, v, density.T, np.sort(heights), colors=[BLUE], linewidths=1.0)
    if points is not None:
        _dots(ax, np.asarray(points, dtype=np.float64), shares)
    _framed(ax, u, v, density, float(heights[0]))
    return finish_axes(ax, xlabel, ylabel, title)


def _dots(ax: Axes, points: np.ndarray, shares: Any) -> None:
    if points.ndim != 2 or points.shape[1] != 2:
        raise problem("plot_joint", f"points of shape {points.shape}", "(K, 2)")
    share = np.ones(len(points)) if shares is None else np.asarray(shares, dtype=np.float64)
    area = 3.0 + 60.0 * share / share.max()
    ax.scatter(points[:, 0], points[:, 1], s=area, color="black", alpha=0.6, linewidths=0, label="fits", zorder=3)


def _framed(ax: Axes, u: np.ndarray, v: np.ndarray, density: np.ndarray, height: float) -> None:
    """Axes about the largest region, with a quarter of it on either side, or to where the range ends."""
    for values, part, put in ((u, density.max(axis=1), ax.set_xlim), (v, density.max(axis=0), ax.set_ylim)):
        held, (first, last) = values[part >= height], _range_of(values)
        low, high = float(held.min()), float(held.max())
        room = 0.25 * (high - low)
        put(max(low - room, first), min(high + room, last))
