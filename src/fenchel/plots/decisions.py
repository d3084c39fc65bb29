"""Class probabilities over two inputs, and the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..linalg.arrays import ArrayLike
from .base import MARKERS, PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    ax = new_figure(5.4, 4.2).subplots() if ax is None else ax
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
