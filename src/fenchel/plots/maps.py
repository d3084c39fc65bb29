"""A map of districts coloured by one value each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem, vector
from ..linalg.arrays import ArrayLike, to_numpy
from ..outlines import districts, labels_of, opened, signed_area
from .base import map_size, new_figure, signed_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RATIO_TICKS = (
    (0.91, 0.94, 0.97, 1, 1.03, 1.06, 1.1),
    (0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.4),
    (0.5, 0.67, 0.8, 1, 1.25, 1.5, 2),
    (0.1, 0.2, 0.33, 0.5, 1, 2, 3, 5, 10),
    (0.01, 0.1, 1, 10, 100),
)
_TICKS_UP_TO = 1.25, 2.25, 6.0, 200.0  # the largest of a scale over its least, for all but the last of these
_SIZE = 4.9  # inches of a map about as wide as high


def plot_map(
    polygons: Any,
    values: ArrayLike,
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
    polygons : N lists of arrays (vertices, 2), GeoSeries, GeoDataFrame, or GeoJSON (a dict or the path of a file)
        The outlines of each district. They are drawn in decreasing area, so that enclaves stay visible.
    values : array (N,)
        One a district, in their order. A pandas Series goes by its labels where the districts have some (the index of
        a GeoSeries or GeoDataFrame, the ids of GeoJSON's features), and by position where it has none of its own: its
        index is pandas' default. NaN is drawn grey.
    ax : Axes, optional
    label, title : str
        Of the colour bar, and of the map.
    cmap : str, optional
        Default: viridis, or RdBu_r for ratios and for values of both signs, 0 in the middle. Both can be read by
        colour-blind readers.
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
    polygons = opened(polygons)
    shapes_of = districts(polygons)
    numbers = vector("plot_map", "values", to_numpy(_in_order(polygons, values)))
    if numbers.shape[0] != len(shapes_of):
        raise problem("plot_map", f"{len(shapes_of)} districts meet {numbers.shape[0]} values", "one value a district")
    finite = numbers[np.isfinite(numbers)]
    if finite.size == 0 or (ratio and (finite <= 0).any()):
        raise problem("plot_map", "the values cannot be coloured", "numbers, and numbers above 0 when ratio=True")
    if ax is None:
        across, high = map_size(*extent_of(shapes_of), _SIZE)
        ax = new_figure(across + 0.2, high + 1.0).subplots()
    from matplotlib import colormaps
    from matplotlib.collections import PathCollection
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.path import Path

    if limits is None:
        reach = max(float(np.exp(np.abs(np.log(finite)).max())), 1.05) if ratio else 0.0
        limits = (1 / reach, reach) if ratio else (float(finite.min()), float(finite.max()))
        limits = limits if ratio or cmap is not None else signed_ends(*limits) or limits
    pieces = [(polygon, value) for d, value in zip(shapes_of, numbers, strict=True) for polygon in d]
    pieces.sort(key=lambda pair: -abs(signed_area(pair[0][0])))
    cmap = cmap or ("RdBu_r" if ratio or limits[0] == -limits[1] else "viridis")
    colours = colormaps[cmap].with_extremes(bad="#bbbbbb")
    shapes = PathCollection(
        [Path.make_compound_path(*(Path(ring) for ring in _turned(polygon))) for polygon, _ in pieces],
        array=np.ma.masked_invalid([value for _, value in pieces]),
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
        ticks = [t for t in _RATIO_TICKS[int(np.searchsorted(_TICKS_UP_TO, wide))] if limits[0] <= t <= limits[1]]
        bar.set_ticks(ticks, labels=[f"{t:g}" for t in ticks])
        bar.ax.minorticks_off()
    return ax


def extent_of(shapes: Sequence[Sequence[Sequence[np.ndarray]]]) -> tuple[float, float]:
    """How wide and high districts, each of polygons of rings (vertices, 2), are together."""
    every = np.concatenate([np.asarray(ring) for district in shapes for polygon in district for ring in polygon])
    wide, high = np.ptp(every, axis=0)
    return float(wide), float(high)


def _turned(polygon: list[np.ndarray]) -> list[np.ndarray]:
    """Closed rings, the outline counter-clockwise and its holes clockwise: that is what leaves a hole unpainted."""
    closed = [ring if (ring[0] == ring[-1]).all() else np.vstack([ring, ring[:1]]) for ring in polygon]
    return [ring if (signed_area(ring) > 0) == (i == 0) else ring[::-1] for i, ring in enumerate(closed)]


def _in_order(polygons: Any, values: Any) -> Any:
    """Values with the districts' own labels in another order, sorted into theirs."""
    labels, index = labels_of(polygons), getattr(values, "index", None)
    if labels is None or index is None or callable(index):
        return values
    own = list(index)
    if labels == own:
        return values
    if len(set(own)) == len(own) and len(set(labels)) == len(labels) and set(labels) == set(own):
        return values.reindex(labels)
    if own == list(range(len(own))) and not set(labels) & set(own):  # pandas' default: no labels of its own
        return values
    stranger = next((label for label in own if label not in labels), own[0] if own else None)
    got = f"the labels of the values are not those of the districts: {stranger!r} is none of {_few(labels)}"
    if stranger in labels:
        got = "the values and the districts do not have the same labels, each once"
    advice = "values.to_numpy() takes them in their order."
    if hasattr(polygons, "set_index"):
        advice = f"polygons.set_index(the column of their names) gives the districts names; {advice}"
    raise problem("plot_map", got, "the same labels, or none", advice)


def _few(labels: list[Any]) -> str:
    return ", ".join(repr(label) for label in labels[:3]) + (", ..." if len(labels) > 3 else "")
