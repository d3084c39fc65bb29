"""Polygons in the plane as directed rings: outlines run counter-clockwise, holes clockwise.

A point is inside if the rings wind around it. A border that two polygons share runs in both directions and cancels, so
that a map of districts has the outline of the country.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import finite, numeric, problem
from ..outlines import districts, signed_area

FEW_PAIRS = 2**22  # products of points and segments up to which numpy is used (about 1/16 s); above it a compiled loop
_SAME = 1e-9  # relative to the width of a map: vertices nearer than this are merged


def rings_of(where: str, name: str, given: Any) -> list[np.ndarray]:
    """Directed rings (V, 2) from an array of vertices, a list of them, GeoJSON, geopandas or shapely."""
    if isinstance(given, np.ndarray) and given.ndim == 2:
        given = [given]
    if isinstance(given, (list, tuple)) and given and all(isinstance(one, (np.ndarray, list, tuple)) for one in given):
        flat = np.ndim(given[0]) == 1 if not isinstance(given[0], np.ndarray) else given[0].ndim == 1
        polygons = [[numeric(where, name, ring)] for ring in ([given] if flat else given)]
    else:
        polygons = [polygon for district in districts(given, where) for polygon in district]
    out = []
    for polygon in polygons:
        for i, ring in enumerate(polygon):
            if ring.ndim != 2 or ring.shape[1] != 2:
                raise problem(where, f"{name} has a ring of shape {ring.shape}", "(vertices, 2)")
            ring = finite(where, name, ring)
            ring = ring[(ring != np.roll(ring, 1, axis=0)).any(axis=1)]
            if len(ring) < 3 or signed_area(ring) == 0.0:
                raise problem(where, f"{name} has a ring without an area", "polygons of at least three vertices")
            out.append(ring if (signed_area(ring) > 0.0) == (i == 0) else ring[::-1])
    if not out:
        raise problem(where, f"{name} holds no polygon", "at least one")
    return out


def dissolved(rings: list[np.ndarray]) -> list[np.ndarray]:
    """The rings that remain after borders that run in both directions cancel."""
    if len(rings) == 1:
        return rings
    every = np.vstack(rings)
    unit = _SAME * float(np.ptp(every, axis=0).max())
    _, first, vertex = np.unique(
        np.round((every - every.min(axis=0)) / unit), axis=0, return_index=True, return_inverse=True
    )
    nodes, cuts = every[first], np.cumsum([len(ring) for ring in rings])[:-1]
    leaving: dict[int, dict[int, int]] = {}
    for ids in np.split(vertex.ravel(), cuts):
        for a, b in zip(ids.tolist(), np.roll(ids, -1).tolist(), strict=True):
            if a == b:
                continue
            if leaving.get(b, {}).get(a, 0):
                leaving[b][a] -= 1
                leaving[b] = {k: m for k, m in leaving[b].items() if m}
            else:
                leaving.setdefault(a, {})[b] = leaving.get(a, {}).get(b, 0) + 1
    out = []
    for begin in sorted(leaving):
        while leaving[begin]:
            at, path = begin, []
            while True:
                path.append(at)
                step = min(leaving[at])
                leaving[at][step] -= 1
                if not leaving[at][step]:
                    del leaving[at][step]
                at = step
                if at == begin or not leaving.get(at):
                    break
            if len(path) > 2:
                out.append(nodes[path])
    return out


def segments(rings: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Both ends (E, 2) of each edge."""
    ends = [np.roll(ring, -1, axis=0) for ring in rings]
    return np.vstack([np.zeros((0, 2)), *rings]), np.vstack([np.zeros((0, 2)), *ends])


def windings(points: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The winding number (N,) around each point of directed segments a -> b (E, 2) that form closed rings."""
    if len(points) * len(a) > FEW_PAIRS:
        from ._point_loops import windings as compiled_windings

        return np.asarray(compiled_windings(points, a, b))
    x, y = points[:, :1], points[:, 1:]
    up, down = a[:, 1] <= y, b[:, 1] <= y
    side = (b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (x - a[:, 0]) * (b[:, 1] - a[:, 1])
    return np.sum(up & ~down & (side > 0.0), axis=1) - np.sum(~up & down & (side < 0.0), axis=1)


def nearest_segment(points: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each point the nearest segment, the position of the nearest place along it (0 to 1), and the distance."""
    if len(points) * len(a) > FEW_PAIRS:
        from ._point_loops import nearest_segment as compiled_nearest

        index, share, distance = compiled_nearest(points, a, b)
        return index, share, distance
    d = b - a
    px, py = points[:, :1] - a[:, 0], points[:, 1:] - a[:, 1]
    length = d[:, 0] ** 2 + d[:, 1] ** 2
    along = (px * d[:, 0] + py * d[:, 1]) / np.where(length > 0.0, length, 1.0)
    t = np.where(length > 0.0, np.clip(along, 0.0, 1.0), 0.0)
    off = (px - t * d[:, 0]) ** 2 + (py - t * d[:, 1]) ** 2
    index = off.argmin(axis=1)
    row = np.arange(len(points))
    return index, t[row, index], np.sqrt(off[row, index])


def inside(points: np.ndarray, rings: list[np.ndarray]) -> np.ndarray:
    """Whether each point (N,) is inside."""
    return np.asarray(windings(points, *segments(rings)) > 0)


def distance(points: np.ndarray, rings: list[np.ndarray]) -> np.ndarray:
    """The distance (N,) from each point to the nearest border."""
    return np.asarray(nearest_segment(points, *segments(rings))[2])


def simplified(ring: np.ndarray, edge: float) -> np.ndarray:
    """Simplify a ring for edges of a given length; its vertices are then at most one edge apart.

    Vertices within a sixth of an edge of the line through their neighbours are removed (Douglas and Peucker), as are
    vertices within half an edge of the previous one. A ring smaller than a triangle with such edges becomes empty.
    """
    far = int(np.argmax(np.sum((ring - ring[0]) ** 2, axis=1)))
    keep, open_ = {0, far}, [(0, far), (far, len(ring))]
    closed = np.vstack([ring, ring[:1]])
    while open_:
        a, b = open_.pop()
        if b - a < 2:
            continue
        line, span = closed[b] - closed[a], closed[a + 1 : b] - closed[a]
        length = float(line @ line)
        t = np.clip(span @ line / length, 0.0, 1.0) if length else np.zeros(len(span))
        off = np.sqrt(np.sum((span - t[:, None] * line) ** 2, axis=1))
        i = int(np.argmax(off))
        if off[i] > edge / 6:
            keep.add(a + 1 + i)
            open_ += [(a, a + 1 + i), (a + 1 + i, b)]
    path = [ring[i] for i in sorted(keep)]
    apart = [path[0]]
    for point in path[1:]:
        if np.hypot(*(point - apart[-1])) >= edge / 2:
            apart.append(point)
    if len(apart) > 3 and np.hypot(*(apart[-1] - apart[0])) < edge / 2:
        apart.pop()
    corners = np.array(apart)
    if len(corners) < 3 or abs(signed_area(corners)) < 0.4 * edge**2:
        return np.zeros((0, 2))
    out = []
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        n = max(int(np.ceil(np.hypot(*(b - a)) / edge - 1e-9)), 1)
        out.append(a + np.arange(n)[:, None] / n * (b - a))
    return np.vstack(out)
