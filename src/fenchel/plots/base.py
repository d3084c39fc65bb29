"""What the pictures share: a figure of its own, colours everyone can tell apart, quiet axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import optional, problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"  # told apart by colour-blind readers
# the palette of Okabe and Ito without its yellow, which is faint on white
PALETTE = (BLUE, ORANGE, "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = "os^Dv<>PX*h"
DASHES = ("-", "--", "-.", ":")
_WIDTHS = 2.2, 7.0  # of a map, in inches
_HEIGHTS = 0.8, 5.5


def new_figure(width: float, height: float) -> Figure:
    """A figure in inches, made without pyplot."""
    figure: Figure = optional("plots", "matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    return figure


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """The Axes given, or those of a new figure in inches."""
    return new_figure(width, height).subplots() if ax is None else ax


def panels(where: str, n: int, size: tuple[float, float], ax: Any = None) -> Sequence[Axes]:
    """n Axes: those given, or of a new figure with panels of ``size`` (inches), three of them side by side."""
    if ax is not None:
        given = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(given) != n:
            raise problem(where, f"{len(given)} Axes for {n} panels", f"ax=None, or {n} Axes")
        return given
    across = min(n, 3)
    down = -(-n // across)
    every = new_figure(size[0] * across, size[1] * down).subplots(down, across, squeeze=False).ravel()
    for spare in every[n:]:
        spare.set_visible(False)
    return list(every[:n])


class AxesArray(np.ndarray):
    """The Axes of several panels, an array that knows its ``figure`` as one Axes does."""

    @classmethod
    def of(cls, every: Sequence[Axes]) -> AxesArray:
        out = np.empty(len(every), dtype=object).view(cls)
        out[:] = every
        return out

    @property
    def figure(self) -> Figure:
        return self.flat[0].figure


def map_size(width: float, height: float, size: float) -> tuple[float, float]:
    """Inches of the Axes of a map of so much ground, about ``size`` squared of them, and neither thin nor huge."""
    ratio = height / width if width > 0.0 else np.inf
    across = float(np.clip(size / np.sqrt(ratio) if ratio > 0.0 else np.inf, *_WIDTHS))
    return across, float(np.clip(across * ratio, *_HEIGHTS))


def colour_bar(mappable: Any, ax: Axes, label: str, **options: Any) -> Any:
    """A colour bar as high as the Axes beside it, whatever the aspect of these."""
    bar = ax.figure.colorbar(mappable, cax=ax.inset_axes((1.03, 0.0, 0.05, 1.0)), **options)
    bar.set_label(label)
    return bar


def signed_ends(low: float, high: float) -> tuple[float, float] | None:
    """Ends of a colour scale with 0 in the middle, for values of both signs; None where they have one."""
    reach = max(-low, high)
    return (-reach, reach) if low < 0.0 < high else None


def quiet(ax: Axes) -> None:
    """A faint grid, no minor ticks, no box."""
    ax.grid(alpha=0.25)
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)


def finish_axes(ax: Axes, xlabel: str, ylabel: str, title: str = "", **legend: Any) -> Axes:
    """Labels, a title, a legend where something is named, and quiet axes."""
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.set_title(title, fontsize="medium")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**{"frameon": False, "fontsize": 9, **legend})
    quiet(ax)
    return ax


def short_name(name: Any) -> str:
    """A label of a tick or a row: a number with four digits, a date without its hour, a pair joined."""
    if isinstance(name, tuple):
        return ", ".join(map(short_name, name))
    if isinstance(name, (float, np.floating)):
        return f"{name:.4g}"
    return str(name).removesuffix(" 00:00:00")
