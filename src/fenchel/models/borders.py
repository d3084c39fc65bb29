"""Graphs as users bring them; of outlines, who borders whom.

Two regions are neighbours by ``"queen"`` where their outlines come within a tolerance of one another, a corner being
enough, and by ``"rook"`` where they do so along a border. The tolerance is a ten-thousandth of the width of a typical
region: outlines need not share vertices, and may be drawn some centimetres apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from ..checks import callers_line, choice, optional, problem, scalar
from ..outlines import District, districts, labels_of, opened

_TOLERANCE = 1e-4  # of the median over the regions of the root of their areas
_BORDER = 20.0  # tolerances: outlines that meet in a corner are near one another along less than this
_ALONE = 0.2  # share of regions without a neighbour that is odd


def holds_outlines(graph: Any) -> bool:
    """Whether something holds outlines of regions: GeoJSON, or a frame of geopandas."""
    geojson = isinstance(graph, Mapping) and graph.get("type") in ("FeatureCollection", "GeometryCollection")
    return geojson or hasattr(graph, "geometry")


def graph_from(given: Any, column: Hashable) -> Any:
    """A graph as terms take it: of outlines who borders whom, of a table of two columns its pairs, others as they are.

    Outlines whose frame has the ``column`` of the regions go by it, not by their index.
    """
    if holds_outlines(given):
        named = hasattr(given, "columns") and hasattr(given, "set_index") and column in list(given.columns)
        return neighbours(given.set_index(column) if named else given)
    if hasattr(given, "columns") and hasattr(given, "shape"):  # a frame, of pandas or of others
        names = list(given.columns)
        adjacency = hasattr(given, "index") and list(given.index) == names
        if len(names) == 2 and not adjacency:
            ends = (getattr(given[name], "to_list", given[name])() for name in names)
            return list(zip(*ends, strict=True))
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.shape[1] == 2 and given.dtype.kind in "UO":
        return [tuple(pair) for pair in given.tolist()]
    return given


def neighbours(
    outlines: Any, *, contiguity: str = "queen", tolerance: float | None = None
) -> dict[Hashable, list[Hashable]]:
    """Who borders whom: {region: its neighbours}, by the index of a frame or the ids of GeoJSON's features.

    Parameters
    ----------
    outlines : GeoDataFrame, GeoSeries, GeoJSON or a file of it
        A polygon, or several, for every region. shapely finds which of them meet.
    contiguity : "queen" or "rook"
        Whether a corner makes neighbours, or a border alone.
    tolerance : float, optional
        How far apart outlines may be drawn and still meet, in the units of the map. Default: a ten-thousandth of the
        width of a typical region (the median of the roots of their areas).

    Examples
    --------
    >>> import fenchel
    >>> def square(name, x, y):
    ...     ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
    ...     return {"type": "Feature", "id": name, "geometry": {"type": "Polygon", "coordinates": [ring]}}
    >>> squares = [square("ab"[x] + "cd"[y], x, y) for x in (0, 1) for y in (0, 1)]
    >>> four = {"type": "FeatureCollection", "features": squares}
    >>> fenchel.neighbours(four)["ac"], fenchel.neighbours(four, contiguity="rook")["ac"]
    (['ad', 'bc', 'bd'], ['ad', 'bc'])
    """
    choice("neighbours", "contiguity", contiguity, ("queen", "rook"))
    outlines = opened(outlines)
    shapes = districts(outlines, "neighbours")
    labels = labels_of(outlines) or list(range(len(shapes)))
    _refuse_unclear(labels, shapes)
    out: dict[Hashable, list[Hashable]] = {label: [] for label in labels}
    for i, j in _pairs(shapes, contiguity == "rook", tolerance).tolist():
        out[labels[i]].append(labels[j])
    alone = [label for label, near in out.items() if not near]
    if len(alone) > _ALONE * len(out):
        warnings.warn(
            f"neighbours: {len(alone)} of {len(out)} regions touch no other, {alone[0]!r} among them: outlines may not "
            "meet. fenchel.neighbours(outlines, tolerance=...) takes those that come so near as neighbours.",
            UserWarning,
            stacklevel=callers_line(),
        )
    return out


def _refuse_unclear(labels: list[Any], shapes: list[District]) -> None:
    """Regions that are named twice, or have no outline, and none at all."""
    if not shapes:
        raise problem("neighbours", "there are no outlines", "a polygon for every region")
    if len(set(labels)) < len(labels):
        twice = next(label for i, label in enumerate(labels) if label in labels[:i])
        advice = "frame.dissolve(...) joins parts."
        raise problem("neighbours", f"the outlines name {twice!r} twice", "each region once", advice)
    lost = [label for label, shape in zip(labels, shapes, strict=True) if not shape]
    if lost:
        more = f" and of {len(lost) - 1} more" if len(lost) > 1 else ""
        advice = "Leave it out, fenchel.neighbours(frame[frame.geometry.notna()]), and add it: graph[region] = [...]."
        raise problem(
            "neighbours", f"the outline of {lost[0]!r}{more} is missing", "a polygon for every region", advice
        )


def _pairs(shapes: list[District], rook: bool, tolerance: float | None) -> np.ndarray:
    """Pairs (P, 2) of regions that meet, in both directions, in order."""
    shapely = optional("neighbours", "shapely")
    made = [shapely.MultiPolygon([(rings[0], rings[1:]) for rings in shape]) for shape in shapes]
    if tolerance is None:
        tolerance = _TOLERANCE * float(np.median(np.sqrt([shape.area for shape in made])))
    else:
        tolerance = scalar("neighbours", "tolerance", tolerance, 0.0)
    i, j = shapely.STRtree(made).query(made, predicate="dwithin", distance=tolerance)
    i, j = i[i != j], j[i != j]
    if rook:
        lines = shapely.boundary(np.array(made, dtype=object))
        near = shapely.intersection(lines[i], shapely.buffer(lines[j], tolerance, cap_style="flat"))
        along = shapely.length(near) > _BORDER * tolerance
        pairs = {*zip(i[along].tolist(), j[along].tolist(), strict=True)}
        pairs |= {(b, a) for a, b in pairs}
        return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    order = np.lexsort((j, i))
    return np.stack([i[order], j[order]], axis=1)
