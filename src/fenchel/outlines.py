"""Outlines of regions, and the graph of which regions are neighbours.

Outlines are rings of points, GeoJSON, or objects with ``__geo_interface__`` such as those of geopandas and shapely. Two
regions are ``"queen"`` neighbours if their outlines come within a tolerance of each other, if only in a corner, and
``"rook"`` neighbours if they do so along a border. The default tolerance is a ten-thousandth of the width of a typical
region, since outlines need not share vertices and may be drawn slightly apart.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from .checks import callers_line, choice, optional, problem, scalar
from .files import is_loading
from .linalg.arrays import ArrayLike

District = list[list[np.ndarray]]  # the polygons of a district: each an outer ring and its holes
_TOLERANCE = 1e-4  # default tolerance, relative to the median of the square roots of the regions' areas
_BORDER = 20.0  # in tolerances: outlines that meet in a corner are close along less than this length
_ALONE = 0.2  # share of regions without a neighbour from which a warning is given


def opened(given: ArrayLike) -> Any:
    """Read GeoJSON if ``given`` is the path of a file; return anything else unchanged."""
    if isinstance(given, (str, os.PathLike)):
        if is_loading():
            raise problem("load", "the file names another file", "outlines in the file itself")
        with open(given, encoding="utf-8") as file:
            return json.load(file)
    return given


def labels_of(given: Any) -> list[Any] | None:
    """The labels of the districts: the index of a geopandas object, or the ids of GeoJSON features; None without."""
    index = getattr(given, "index", None)
    if index is not None and not callable(index):  # a list has a method of that name
        return list(index)
    ids = [feature.get("id") for feature in _features(given)]
    return ids if ids and None not in ids else None


def _is_frame(given: Any) -> bool:
    """Whether ``given`` is a table of pandas, such as a GeoDataFrame or a GeoSeries."""
    return hasattr(given, "geometry") or hasattr(given, "set_index")


def _features(given: Any) -> list[dict[str, Any]]:
    """The features of a GeoJSON collection; an empty list for anything else."""
    features = given.get("features") if isinstance(given, dict) else None
    return [feature for feature in features or [] if isinstance(feature, dict)]


def property_names(given: Any) -> list[Any]:
    """The names of the columns, or of the GeoJSON properties, of districts."""
    if _is_frame(given):
        return [name for name in getattr(given, "columns", ()) if name != "geometry"]  # a GeoSeries has none
    return [name for feature in _features(given)[:1] for name in feature.get("properties") or {}]


def named_by(given: Any, key: Any) -> Any:
    """The districts labelled by the column or property ``key``, if all of them have it."""
    if key is None:
        return given
    if _is_frame(given):
        return given.set_index(key) if key in property_names(given) else given
    features = _features(given)
    labels = [(feature.get("properties") or {}).get(key) for feature in features]
    if not labels or None in labels:
        return given
    return {**given, "features": [{**one, "id": label} for one, label in zip(features, labels, strict=True)]}


def districts(given: Any, where: str = "plot_map") -> list[District]:
    """Polygons of each district; errors begin with ``where``."""
    given = opened(given)
    shapes = getattr(given, "geometry", given)  # of a GeoDataFrame, the active one
    shapes = getattr(shapes, "__geo_interface__", shapes)
    match shapes:
        case {"type": "FeatureCollection"}:
            given = shapes.get("features") or []
        case {"type": _}:
            given = [shapes]
        case dict():
            raise _no_outlines(where, "a dict without a type")
        case _ if not hasattr(shapes, "__iter__"):
            raise _no_outlines(where, f"a {type(shapes).__name__}")
    return [_of_feature(where, i, shape) for i, shape in enumerate(given)]


def _no_outlines(where: str, got: str) -> Exception:
    expected = "GeoJSON, a GeoDataFrame, or a list of rings for each district"
    return problem(where, f"the outlines are {got}", expected)


def _of_feature(where: str, i: int, shape: Any) -> District:
    shape = getattr(shape, "__geo_interface__", shape)
    match shape:
        case None:
            return []
        case {"type": "Feature"}:
            return _of_geometry(where, i, shape.get("geometry"))
        case dict():
            return _of_geometry(where, i, shape)
    return [[_ring(where, i, ring)] for ring in shape]


def _of_geometry(where: str, i: int, geometry: Any) -> District:
    kind = None if geometry is None else geometry.get("type")
    if kind is None:  # a district without a shape
        return []
    if kind == "GeometryCollection":
        return [polygon for part in geometry["geometries"] for polygon in _of_geometry(where, i, part)]
    if kind not in ("Polygon", "MultiPolygon"):
        raise problem(where, f"the shape of district {i} is a {kind}", "a Polygon or MultiPolygon")
    polygons = [geometry["coordinates"]] if kind == "Polygon" else geometry["coordinates"]
    return [[_ring(where, i, ring) for ring in polygon] for polygon in polygons if len(polygon)]


def _ring(where: str, i: int, ring: Any) -> np.ndarray:
    points = np.asarray(ring, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] < 2 or len(points) < 3:
        raise problem(where, f"an outline of district {i} has shape {points.shape}", "(vertices, 2), three or more")
    if not np.isfinite(points[:, :2]).all():
        advice = "GeoJSON has no rows of NaN between the parts of a district: make each part a polygon."
        raise problem(where, f"an outline of district {i} has a vertex that is NaN or inf", "finite numbers", advice)
    return points[:, :2]  # without the height


def signed_area(ring: np.ndarray) -> float:
    """Area of a closed ring by the shoelace formula, positive if it runs counter-clockwise."""
    x, y = ring[:, 0] - ring[0, 0], ring[:, 1] - ring[0, 1]
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


# -- neighbours -----------------------------------------------------------------------------------
def holds_outlines(graph: Any) -> bool:
    """Whether the object holds outlines of regions: GeoJSON, or a frame of geopandas."""
    if isinstance(graph, Mapping):
        return graph.get("type") in ("FeatureCollection", "GeometryCollection")
    return hasattr(graph, "geometry")


def graph_from(given: Any, column: Hashable) -> Any:
    """Convert to a graph that terms accept: neighbours of outlines, pairs of a table of two columns, else unchanged.

    A frame of outlines that has ``column`` is labelled by it rather than by its index.
    """
    import narwhals as nw

    if holds_outlines(given):
        return neighbours(named_by(given, column) if _is_frame(given) else given)
    frame = nw.from_native(given, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame) and len(frame.columns) == 2 and _index(given) != frame.columns:
        return frame.rows()
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.shape[1] == 2 and given.dtype.kind in "UO":
        return [tuple(pair) for pair in given.tolist()]
    return given


def _index(frame: Any) -> list[Any] | None:
    """The index of a pandas frame, by which an adjacency matrix is told from a table of pairs."""
    return list(frame.index) if _is_frame(frame) else None


def neighbours(
    outlines: Any, *, contiguity: str = "queen", tolerance: float | None = None
) -> dict[Hashable, list[Hashable]]:
    """The neighbours of each region, from the outlines of the regions; needs shapely.

    Parameters
    ----------
    outlines : GeoDataFrame, GeoSeries, GeoJSON or path of a GeoJSON file
        One polygon or several for every region.
    contiguity : {"queen", "rook"}, default "queen"
        "queen": regions that meet in a corner are neighbours; "rook": only those that share a border.
    tolerance : float, optional
        Largest distance between outlines that meet, in the units of the map. Default: a ten-thousandth of the width of
        a typical region (the median of the square roots of the areas).

    Returns
    -------
    dict of label to list of labels
        Labels are the index of a frame, the ids of GeoJSON features, or 0, 1, ...

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
            "meet exactly. Use fenchel.neighbours(outlines, tolerance=...) with the distance between them.",
            UserWarning,
            stacklevel=callers_line(),
        )
    return out


def _refuse_unclear(labels: list[Any], shapes: list[District]) -> None:
    """Refuse an empty list of regions, a label that occurs twice, and a region without an outline."""
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
    """Sorted pairs (P, 2) of regions that meet, each pair in both directions."""
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
