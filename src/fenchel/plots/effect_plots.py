"""What a column does to a prediction: curves with bands over numbers, points with intervals over levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from .base import GREY, MARKERS, PALETTE, axes_for, finish_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_APART = 0.12  # between the points of two curves over one level


def plot_effect_curves(
    x: Sequence[Any],
    middle: Any,
    low: Any,
    high: Any,
    names: Sequence[str] = ("",),
    ax: Axes | None = None,
    *,
    points: tuple[Any, Any, Any] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
) -> Axes:
    """Predictions over a column, one curve for each name: bands over numbers, intervals over levels.

    Parameters
    ----------
    x : n numbers, or levels
    middle, low, high : arrays (curves, n)
    names : of the curves, up to seven
    points : (x, y, curve) of the data, optional
        Drawn beneath, in the colour of their curve; -1 for those of none.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_effect_curves
    >>> x = np.linspace(0.0, 1.0, 5)
    >>> ax = plot_effect_curves(x, [x], [x - 0.1], [x + 0.1], xlabel="dose")
    """
    middle, low, high = (np.atleast_2d(np.asarray(v, dtype=np.float64)) for v in (middle, low, high))
    if len(names) > len(PALETTE) or len(names) != len(middle):
        got = f"{len(names)} names of {len(middle)} curves"
        raise problem("plot_effect_curves", got, f"one for each, and at most {len(PALETTE)}")
    ax, numbers = axes_for(ax, 6.0, 3.8), np.asarray(x).dtype.kind in "iuf"
    place = np.asarray(x, dtype=np.float64) if numbers else np.arange(len(x), dtype=np.float64)
    if points is not None:
        at, y, which = (np.asarray(v) for v in points)
        for k in np.unique(which):
            colour = GREY if len(names) == 1 or k < 0 else PALETTE[int(k)]
            some = which == k
            ax.plot(at[some], y[some], ".", color=colour, markersize=5, alpha=0.4, zorder=1, markeredgewidth=0)
    for k, name in enumerate(names):
        colour = PALETTE[k]
        if numbers:
            ax.fill_between(place, low[k], high[k], color=colour, alpha=0.2, linewidth=0, zorder=2)
            ax.plot(place, middle[k], color=colour, label=name or None, zorder=3)
        else:
            here = place + _APART * (k - (len(names) - 1) / 2.0)
            error = np.stack([middle[k] - low[k], high[k] - middle[k]])
            ax.errorbar(here, middle[k], error, fmt=MARKERS[k], color=colour, label=name or None, capsize=2, zorder=3)
    if not numbers:
        ax.set_xticks(place, labels=[str(level) for level in x])
        ax.set_xlim(-0.5, len(x) - 0.5)
    return finish_axes(ax, xlabel, ylabel, title)
