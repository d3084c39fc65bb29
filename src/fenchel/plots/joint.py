"""The joint distribution of two unknowns: regions of the highest density, and the points that it was computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import numeric, problem
from .base import BLUE, new_figure, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELLS = 160  # along each axis
_WIDTH = 0.22  # of the kernel, in sds
_TAIL = 0.002  # of each marginal, beyond which the grid ends
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
    inside: Sequence[float] = (0.5, 0.9),
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
) -> Axes:
    """The joint distribution of two unknowns: the smallest regions that hold given shares of it.

    Parameters
    ----------
    x, y : arrays (M,)
        Draws, or weighted points.
    weights : array (M,), optional
    points : array (K, 2), optional
        Where something was computed: dots, of an area by their ``shares`` (K,).
    inside : shares between 0 and 1
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
    levels = sorted({float(share) for share in inside}, reverse=True)
    if not levels or not 0.0 < levels[-1] <= levels[0] < 1.0:
        raise problem("plot_joint", f"inside = {inside!r}", "shares between 0 and 1, such as (0.5, 0.9)")
    w = w / w.sum()
    u, v, density = smoothed(a, b, w)
    ax = new_figure(4.8, 4.2).subplots() if ax is None else ax
    heights = region_levels(density, levels)
    for share, height in zip(levels, heights, strict=True):
        ax.contourf(u, v, density.T, [height, np.inf], colors=[BLUE], alpha=0.22)
        ax.plot([], [], color=BLUE, linewidth=7, alpha=0.22 * (1 + levels.index(share)), label=f"{100 * share:g} %")
    ax.contour(u, v, density.T, np.sort(heights), colors=[BLUE], linewidths=1.0)
    if points is not None:
        _dots(ax, np.asarray(points, dtype=np.float64), shares)
    _framed(ax, u, v, density, float(heights[0]))
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.set_title(title, fontsize="medium")
    ax.legend(frameon=False, fontsize=9)
    quiet(ax)
    return ax


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
