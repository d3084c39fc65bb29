"""Factor models: rows and loadings in one picture (a biplot), the loadings by name, and how many factors to take.

In a biplot a row stands at its factors z and a predictor is the arrow of its loadings W_p, scaled by one common number:
the projection of a row on an arrow, times its length, is W_p z, what the row's predictor is above the offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..linalg.arrays import to_numpy
from .base import BLUE, GREY, MARKERS, ORANGE, PALETTE, axes_for, finish_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ABOVE: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0.0, 1.0),
    "borderpad": 0.1,
}  # a legend above the Axes


def plot_biplot(
    scores: Any,
    loadings: Any,
    ax: Axes | None = None,
    *,
    names: Sequence[str] = (),
    labels: Any = None,
    factors: tuple[int, int] = (0, 1),
    n_arrows: int | None = None,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
) -> Axes:
    """Rows as points, coloured by ``labels``, and the longest loadings as arrows.

    Parameters
    ----------
    scores : array (R, L)
    loadings : array (P, L)
    names : P str, optional
        Written at the arrows.
    labels : R labels, optional
        A colour and a marker for each that occurs, the most frequent first.
    factors : pair of int
        Which two of the L.
    n_arrows : int, optional
        So many of the longest; default: all, at most 20.
    xlabel, ylabel, title : str

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots import plot_biplot
    >>> z = np.random.default_rng(0).normal(size=(20, 2))
    >>> ax = plot_biplot(z, [[1.0, 0.0], [0.5, 2.0]], names=["tall", "heavy"], labels=["a", "b"] * 10)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['a', 'b']
    """
    z, W = (np.asarray(to_numpy(v), dtype=np.float64) for v in (scores, loadings))
    if z.ndim != 2 or W.ndim != 2 or z.shape[1] != W.shape[1]:
        raise problem("plot_biplot", f"scores {z.shape} meet loadings {W.shape}", "(R, L) and (P, L)")
    if names and len(names) != W.shape[0]:
        raise problem("plot_biplot", f"{len(names)} names meet {W.shape[0]} loadings", "one name a predictor")
    i, j = (int(k) for k in factors)
    if i == j or not all(0 <= k < z.shape[1] for k in (i, j)):
        raise problem("plot_biplot", f"factors = {factors}", f"two of 0, ..., {z.shape[1] - 1}")
    z, W = z[:, [i, j]], W[:, [i, j]]
    ax = axes_for(ax, 6.4, 5.2)
    _points(ax, z, labels)
    length = np.hypot(*W.T)
    shown = np.argsort(-length, kind="stable")[: min(20, W.shape[0]) if n_arrows is None else int(n_arrows)]
    shown = shown[length[shown] > 0.0]
    far = np.max(np.abs(z), initial=1e-300)
    scale = 1.15 * far / np.max(length[shown], initial=1e-300)
    for p in shown:
        tip = scale * W[p]
        look = {"arrowstyle": "-|>", "color": GREY, "linewidth": 1.0, "shrinkA": 0.0, "shrinkB": 0.0}
        ax.annotate("", tip, (0, 0), arrowprops=look, zorder=3)
    ax.axhline(0, color=GREY, linewidth=0.5, zorder=0)
    ax.axvline(0, color=GREY, linewidth=0.5, zorder=0)
    ends = scale * W[shown]
    reach = 1.08 * np.max(np.abs(np.concatenate([z, ends])), axis=0)
    ax.set_ylim(-reach[1], reach[1])
    ax.set_xlim(-reach[0], reach[0])
    if names:
        _write(ax, ends, [str(names[p]) for p in shown], reach[0])
    return finish_axes(ax, xlabel or f"factor {i + 1}", ylabel or f"factor {j + 1}", title, ncols=4, **_ABOVE)


def _points(ax: Axes, z: np.ndarray, labels: Any) -> None:
    look: dict[str, Any] = {"linestyle": "", "markersize": 4, "alpha": 0.55, "zorder": 1, "markeredgewidth": 0}
    if labels is None:
        ax.plot(z[:, 0], z[:, 1], marker="o", color=BLUE, **look)
        return
    groups = np.asarray(labels)
    if groups.shape != (z.shape[0],):
        raise problem("plot_biplot", f"labels {groups.shape} meet {z.shape[0]} rows", "one label a row")
    kinds, counts = np.unique(groups, return_counts=True)
    for k, kind in enumerate(kinds[np.argsort(-counts, kind="stable")]):
        own = groups == kind
        colour, marker = PALETTE[k % len(PALETTE)], MARKERS[k % len(MARKERS)]
        ax.plot(z[own, 0], z[own, 1], marker=marker, color=colour, label=str(kind), **look)


def _write(ax: Axes, ends: np.ndarray, names: list[str], reach: float) -> None:
    """Names in two columns beside the points, in the order of the arrows' tips, joined to them by faint lines."""
    low, high = ax.get_ylim()
    figure = ax.get_figure(root=True)
    wide = figure.get_figwidth() * ax.get_position().width  # type: ignore[union-attr]
    share = min(0.3, 0.07 * max(len(name) for name in names) / wide)  # of the width, for either column of names
    room = 2.0 * reach * share / (1.0 - 2.0 * share)
    ax.set_xlim(-reach - room, reach + room)
    for side in (1.0, -1.0):
        own = np.flatnonzero(np.where(ends[:, 0] >= 0, 1.0, -1.0) == side)
        own = own[np.argsort(ends[own, 1], kind="stable")]
        heights = _apart(ends[own, 1], min(0.05 * (high - low), 0.96 * (high - low) / max(own.size, 1)), low, high)
        for p, height in zip(own, heights):
            ax.plot([ends[p, 0], side * reach], [ends[p, 1], height], color=GREY, linewidth=0.4, alpha=0.7, zorder=2)
            place: dict[str, Any] = {"ha": "left" if side > 0 else "right", "va": "center", "fontsize": 8, "zorder": 4}
            ax.text(1.01 * side * reach, height, names[p], **place)


def _apart(heights: np.ndarray, step: float, low: float, high: float) -> np.ndarray:
    """Sorted heights moved as little as need be to stand ``step`` apart, within the picture: isotonic regression."""
    from scipy.optimize import isotonic_regression

    if heights.size == 0:
        return heights
    ramp = step * np.arange(heights.size)
    base = isotonic_regression(heights - ramp).x
    margin = 0.02 * (high - low)
    return np.clip(base, low + margin, high - margin - ramp[-1]) + ramp


def plot_loadings(
    loadings: Any,
    names: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Every predictor's loadings by name, the largest of the first factor at the top: a colour a factor.

    Parameters
    ----------
    loadings : array (P, L)
    names : P str, optional
        Default: x0, x1, ...

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from fenchel.plots import plot_loadings
    >>> ax = plot_loadings([[0.2, 1.0], [1.5, -0.3]], ["small", "large"])
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['large', 'small']
    """
    W = np.asarray(to_numpy(loadings), dtype=np.float64)
    if W.ndim != 2:
        raise problem("plot_loadings", f"loadings has shape {W.shape}", "(P, L)")
    words = [str(name) for name in names] if len(names) else [f"x{p}" for p in range(W.shape[0])]
    if len(words) != W.shape[0]:
        raise problem("plot_loadings", f"{len(words)} names meet {W.shape[0]} predictors", "one name a predictor")
    order = np.argsort(-W[:, 0], kind="stable")
    P, L = W.shape
    ax = axes_for(ax, 5.6, 1.0 + P * (0.16 + 0.06 * L))
    ax.axvline(0, color=GREY, linewidth=0.8, zorder=0)
    for k in range(L):
        down = np.arange(P) + (k - (L - 1) / 2) * 0.6 / L
        colour = PALETTE[k % len(PALETTE)]
        ax.hlines(down, 0, W[order, k], color=colour, linewidth=1.0, alpha=0.6)
        marker = MARKERS[k % len(MARKERS)]
        name = f"factor {k + 1}" if L > 1 else None
        ax.plot(W[order, k], down, linestyle="", marker=marker, color=colour, markersize=4, label=name)
    ax.set_yticks(np.arange(P), labels=[words[p] for p in order])
    ax.set_ylim(P - 0.5, -0.5)
    return finish_axes(ax, "loading", "", ncols=3, **_ABOVE)


def plot_components(
    n_components: Any, evidence: Any, bits: Any = None, ax: Axes | None = None, *, baseline: Any = None
) -> Any:
    """Evidence and the cost of hidden cells against the number of factors, a star at the best of each.

    Parameters
    ----------
    n_components : array (M,)
    evidence : array (M,)
        In nats.
    bits : array (M,) or (M, repeats), optional
        Every repeat is a faint line, their mean a strong one.
    ax : one Axes, or a pair with ``bits``
    baseline : float or array, optional
        The cost without factors, a dashed line.

    Returns
    -------
    array of matplotlib Axes, one or two

    Examples
    --------
    >>> from fenchel.plots import plot_components
    >>> axes = plot_components([1, 2, 3], [-30.0, -25.0, -26.0], [0.7, 0.6, 0.61], baseline=0.9)
    >>> [ax.get_ylabel() for ax in axes]
    ['evidence (nats)', 'bits a hidden cell']
    """
    size, value = (np.asarray(to_numpy(v), dtype=np.float64) for v in (n_components, evidence))
    cost = None if bits is None else np.asarray(to_numpy(bits), dtype=np.float64).reshape(len(bits), -1)
    if value.shape != size.shape or (cost is not None and cost.shape[0] != size.size):
        got = f"{size.shape} numbers of factors, evidence {value.shape}, bits {None if cost is None else cost.shape}"
        raise problem("plot_components", got, "one value of each a number of factors")
    n = 1 if cost is None or cost.shape[1] == 0 else 2
    axes = np.atleast_1d(new_figure(4.2 * n, 3.2).subplots(1, n) if ax is None else np.asarray(ax, dtype=object))
    if axes.size != n:
        raise problem("plot_components", f"{axes.size} axes for {n} pictures", "one, or a pair with bits")
    _curve(axes[0], size, value, int(np.argmax(value)), BLUE, "evidence (nats)")
    if n == 2:
        assert cost is not None
        axes[1].plot(size, cost, color=ORANGE, linewidth=0.7, alpha=0.35)
        mean = cost.mean(axis=1)
        _curve(axes[1], size, mean, int(np.argmin(mean)), ORANGE, "bits a hidden cell")
        if baseline is not None:
            level = float(np.mean(baseline))
            axes[1].axhline(level, color=GREY, linestyle="--", linewidth=1.0, label="columns alone")
            axes[1].legend(frameon=False, fontsize=9, loc="best")
    return axes


def _curve(ax: Axes, size: np.ndarray, value: np.ndarray, best: int, colour: str, label: str) -> None:
    order = np.argsort(size)
    ax.plot(size[order], value[order], marker="o", markersize=4, color=colour, linewidth=1.4)
    ax.plot(size[best], value[best], marker="*", markersize=13, color=colour, linestyle="", zorder=4)
    ax.set_xticks(np.unique(size), labels=[f"{k:g}" for k in np.unique(size)])
    finish_axes(ax, "number of factors", label)
