"""The outlines of districts, however they come: rings of points, GeoJSON, or what geopandas and shapely hold.

Everything that knows ``__geo_interface__`` (GeoSeries, GeoDataFrame, shapely's shapes) says it as GeoJSON, so that none
of these libraries is needed here.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from .checks import problem
from .linalg.arrays import ArrayLike

District = list[list[np.ndarray]]  # its polygons: each an outline and the holes in it


def opened(given: ArrayLike) -> Any:
    """The GeoJSON in a file; anything else as it is."""
    if isinstance(given, (str, os.PathLike)):
        with open(given, encoding="utf-8") as file:
            return json.load(file)
    return given


def labels_of(given: Any) -> list[Any] | None:
    """The labels of the districts: the index of a GeoSeries or GeoDataFrame, the ids of GeoJSON's features; or None."""
    index = getattr(given, "index", None)
    if index is not None and not callable(index):  # a list has a method of that name
        return list(index)
    features = given.get("features") if isinstance(given, dict) else None
    ids = [feature.get("id") if isinstance(feature, dict) else None for feature in features or []]
    return ids if ids and None not in ids else None


def property_names(given: Any) -> list[Any]:
    """What the columns or properties of districts are called."""
    if hasattr(given, "columns"):
        return [name for name in given.columns if name != "geometry"]
    features = given.get("features") if isinstance(given, dict) else None
    first = features[0] if features and isinstance(features[0], dict) else {}
    return list(first.get("properties") or {})


def named_by(given: Any, key: Any) -> Any:
    """The same districts, called by the column or property of that name where all of them have one."""
    if key is None:
        return given
    if hasattr(given, "set_index"):
        return given.set_index(key) if key in given.columns else given
    features = given.get("features") if isinstance(given, dict) else None
    found = [(feature.get("properties") or {}).get(key) for feature in features or [] if isinstance(feature, dict)]
    if not found or len(found) < len(features or []) or None in found:
        return given
    assert features is not None
    return {**given, "features": [{**one, "id": label} for one, label in zip(features, found, strict=True)]}


def districts(given: Any, where: str = "plot_map") -> list[District]:
    """One entry a district, for messages of ``where``."""
    given = opened(given)
    shapes = getattr(given, "geometry", given)  # of a GeoDataFrame, the active one
    shapes = getattr(shapes, "__geo_interface__", shapes)
    if (isinstance(shapes, dict) and "type" not in shapes) or not hasattr(shapes, "__iter__"):
        got = "a dict without a type" if isinstance(shapes, dict) else f"a {type(shapes).__name__}"
        raise problem(where, f"the outlines are {got}", "GeoJSON, a GeoDataFrame, or a list of rings for each district")
    if isinstance(shapes, dict):
        found = shapes.get("features") if shapes.get("type") == "FeatureCollection" else [shapes]
        return [_of_feature(where, i, feature) for i, feature in enumerate(found or [])]
    return [_of_feature(where, i, shape) for i, shape in enumerate(given)]


def _of_feature(where: str, i: int, shape: Any) -> District:
    shape = getattr(shape, "__geo_interface__", shape)
    if isinstance(shape, dict):
        return _of_geometry(where, i, shape.get("geometry") if shape.get("type") == "Feature" else shape)
    return [] if shape is None else [[_ring(where, i, ring)] for ring in shape]


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
        advice = "A row of NaN between the parts of a district is no GeoJSON: make each part a polygon."
        raise problem(where, f"an outline of district {i} has a vertex that is NaN or inf", "finite numbers", advice)
    return points[:, :2]  # a height is not drawn


def signed_area(ring: np.ndarray) -> float:
    """Of a closed outline, by the shoelace formula: positive if it runs counter-clockwise."""
    x, y = ring[:, 0] - ring[0, 0], ring[:, 1] - ring[0, 1]
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))
