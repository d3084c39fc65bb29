"""How a fit went: its two bounds closing, or several methods on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from .base import BLUE, DASHES, GREY, MARKERS, ORANGE, PALETTE, axes_for, finish_axes, new_figure, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..solvers.solution import Solution


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
    if not np.isfinite(solution.gap):
        got, advice = f"{solution.likelihood!r} leaves no upper bound", "Its elbo by iteration is solution.trace."
        raise problem("plot_trace", got, "a log-concave likelihood", advice)
    figure: Any = new_figure(5.0, 5.6) if ax is None else ax[0].get_figure(root=True)
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
        quiet(panel)
    return figure


def _thin_ticks(ax: Axes, largest: float) -> None:
    """At most three powers of ten on each side of zero."""
    power = int(np.ceil(np.log10(max(largest, 10.0))))
    stride = int(np.ceil(power / 3))
    powers = [10.0**k for k in range(power, 0, -stride)]
    ax.set_yticks([-p for p in powers] + [0.0] + powers[::-1])
    ax.set_ylim(-2 * powers[0], 2 * powers[0])


def plot_race(
    lines: Sequence[tuple[str, Any, Any, Any]],
    best: float | None = None,
    ax: Axes | None = None,
    *,
    markers: Sequence[int] | None = None,
    upper: Sequence[tuple[str, Any, Any, Any]] = (),
    targets: Sequence[float] = (0.1, 1e-3),
    title: str = "",
) -> Axes:
    """Methods on one clock: how far each is below the optimum, or the objective itself, against seconds on a log axis.

    Parameters
    ----------
    lines : (name, seconds, values, iterations) of each method
        Its trace. Every method has a colour, a dash and a marker of its own, in this order.
    best : float, optional
        The certified optimum. With it the vertical axis is ``best - values`` in nats on a log axis; without it, the
        values themselves.
    markers : iterations to mark, optional
        Default: every iteration of a method that has at most 12, else about 12 of them.
    upper : as ``lines``, optional
        Upper bounds by the same names; drawn thin, with hollow markers, as ``values - best``.
    targets : distances in nats, drawn as grey lines (with ``best`` only)
    title : str

    Distances below a tenth of the smallest target, or 1e-4, are drawn there.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from fenchel.plots import plot_race
    >>> ax = plot_race([("dual", [0.01, 0.02, 0.03], [-20.0, -11.0, -10.0], [0, 1, 2])], best=-10.0)
    >>> ax.get_ylabel()
    'nats below the optimum'
    """
    if not lines:
        raise problem("plot_race", "no lines", "at least one (name, seconds, values, iterations)")
    ax = axes_for(ax, 5.0, 3.4 + 0.24 * ((len(lines) + 1) // 2))
    floor = min(targets) / 10 if targets else 1e-4
    style = {}
    for k, (name, *_) in enumerate(lines):
        style[name] = (PALETTE[k % len(PALETTE)], DASHES[(k // len(PALETTE)) % len(DASHES)], MARKERS[k % len(MARKERS)])
    for sign, bounds in ((1.0, lines), (-1.0, upper)):
        for name, seconds, values, iterations in bounds:
            if name not in style:
                raise problem("plot_race", f"upper names {name!r}", f"one of {', '.join(style)}")
            y = np.asarray(values, dtype=np.float64)
            y = y if best is None else np.maximum(sign * (best - y), floor)
            _race_line(ax, (seconds, y, iterations), style[name], markers, name if sign > 0.0 else None)
    ax.set_xscale("log")
    if best is not None:
        ax.set_yscale("log")
        for distance in targets:
            ax.axhline(distance, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
            ax.annotate(
                f"{distance:g} nat",
                (1.0, distance),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 2),
                textcoords="offset points",
                ha="right",
                color=GREY,
                fontsize=9,
            )
    default = "objective (nats)" if best is None else "nats from the optimum" if upper else "nats below the optimum"
    look = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.16), "ncols": 2, "handlelength": 2.6}
    return finish_axes(ax, "seconds (log scale)", default, title, **look)


def _race_line(
    ax: Axes,
    trace: tuple[Any, Any, Any],
    style: tuple[str, str, str],
    markers: Sequence[int] | None,
    name: str | None,
) -> None:
    """One method's curve; an upper bound has no name and is drawn thin."""
    x, y, steps = (np.asarray(v, dtype=np.float64).ravel() for v in trace)
    if not x.size == y.size == steps.size:
        raise problem("plot_race", f"{x.size} seconds, {y.size} values, {steps.size} iterations", "as many of each")
    keep = np.isfinite(y) & (x > 0)
    x, y, steps = x[keep], y[keep], steps[keep]
    if markers is None:
        places = list(range(0, x.size, max(1, -(-x.size // 12))))
    else:
        places = [int(i) for i in np.flatnonzero(np.isin(steps, list(markers)))]
    colour, dash, marker = style
    ax.plot(
        x,
        y,
        color=colour,
        linestyle=dash,
        linewidth=1.5 if name else 0.8,
        marker=marker,
        markevery=places,
        markersize=5,
        markerfacecolor=colour if name else "white",
        label=name,
    )
