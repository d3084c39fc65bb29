"""What the pictures share: a figure of its own, colours everyone can tell apart, quiet axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checks import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#777777"  # told apart by colour-blind readers
# the palette of Okabe and Ito without its yellow, which is faint on white
PALETTE = (BLUE, ORANGE, "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = "os^Dv<>PX*h"
DASHES = ("-", "--", "-.", ":")


def new_figure(width: float, height: float) -> Figure:
    """A figure in inches, made without pyplot."""
    figure: Figure = optional("plots", "matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    return figure


def quiet(ax: Axes) -> None:
    """A faint grid, no minor ticks, no box."""
    ax.grid(alpha=0.25)
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
