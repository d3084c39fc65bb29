"""Graphs as users bring them; of outlines, who borders whom: regions that share a point of their borders.

Points are the same when they agree to 1e-9 of the map's width. Outlines of different detail do not meet in points: a
graph made by libpysal, with a buffer, is better there, and a warning says so when many regions have no neighbour.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from ..checks import problem
from ..outlines import districts, labels_of, opened

_SAME = 1e-9  # of the width of the map
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


def neighbours(outlines: Any) -> dict[Hashable, list[Hashable]]:
    """{region: its neighbours}, by the index of a frame or the ids of GeoJSON's features.

    Examples
    --------
    >>> from fenchel.models.borders import neighbours
    >>> def square(x):
    ...     ring = [[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]
    ...     return {"type": "Feature", "id": "abc"[x], "geometry": {"type": "Polygon", "coordinates": [ring]}}
    >>> neighbours({"type": "FeatureCollection", "features": [square(0), square(1), square(2)]})
    {'a': ['b'], 'b': ['a', 'c'], 'c': ['b']}
    """
    outlines = opened(outlines)
    shapes = districts(outlines)
    labels = labels_of(outlines) or list(range(len(shapes)))
    if len(set(labels)) < len(labels):
        twice = next(label for i, label in enumerate(labels) if label in labels[:i])
        raise problem(
            "Model", f"the outlines name {twice!r} twice", "each region once", "frame.dissolve(...) joins parts."
        )
    points = [
        np.vstack([ring for polygon in shape for ring in polygon]) if shape else np.zeros((0, 2)) for shape in shapes
    ]
    every = np.vstack(points)
    unit = _SAME * float(np.ptp(every, axis=0).max()) or 1.0
    at: dict[tuple[int, int], set[int]] = {}
    for i, mine in enumerate(points):
        for x, y in np.round((mine - every.min(axis=0)) / unit).astype(np.int64):
            at.setdefault((int(x), int(y)), set()).add(i)
    pairs = {pair for regions in at.values() if len(regions) > 1 for pair in combinations(sorted(regions), 2)}
    out: dict[Hashable, list[Hashable]] = {label: [] for label in labels}
    for i, j in sorted(pairs):
        out[labels[i]].append(labels[j])
        out[labels[j]].append(labels[i])
    alone = [label for label, near in out.items() if not near]
    if len(alone) > _ALONE * len(out):
        warnings.warn(
            f"Model: {len(alone)} of {len(out)} regions share no point with another, {alone[0]!r} among them: outlines "
            "may not meet. libpysal.graph.Graph.build_fuzzy_contiguity makes a graph of such ones.",
            UserWarning,
            stacklevel=2,
        )
    return out
