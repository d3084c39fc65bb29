"""Nodes and triangles of a mesh, in units of the extent: nested lattices and borders, triangulated by Delaunay."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import ConvexHull, Delaunay, QhullError, cKDTree

from ..checks import problem
from .polygons import distance, inside, simplified

POINTS, RINGS = 2.0**20, 2.0**36  # steps of an extent to which points and rings are rounded
_UNTIED = 1.0 + 2.0**-12 / 3.0  # of a limit: no node of a lattice lies on it up to rounding
_CLEAR = 0.62  # of an edge: lattice nodes nearer than this to a border go
_TURNS = 12  # of splitting edges of a border that the triangulation does not have
_FEWEST, _FINEST = 32, 64  # edges along the extent of the data, by default


def distinct(X: np.ndarray) -> np.ndarray:
    """Rounded points (N, 2), each once."""
    whole = np.round(X * POINTS).astype(np.int64)
    codes = np.unique(whole[:, 0] * (1 << 31) + whole[:, 1] + (1 << 30))
    return np.stack([codes >> 31, (codes & ((1 << 31) - 1)) - (1 << 30)], axis=1) / POINTS


def hull(X: Any) -> np.ndarray:
    """The corners of the convex hull, counter-clockwise; the ends of points on a line."""
    if len(X) > 2:
        try:
            return np.asarray(X[ConvexHull(X).vertices])
        except QhullError:
            pass
    far = X[np.argmax(np.sum((X - X[0]) ** 2, axis=1))]
    return np.stack([far, X[np.argmax(np.sum((X - far) ** 2, axis=1))]])


def default_edge(X: np.ndarray | None) -> float:
    """The default length, in units of the extent."""
    if X is None or len(X) < 2:
        return 1.0 / _FEWEST
    if len(X) > 2 * _FINEST**2:  # nearer to one another than the shortest, on average, wherever they lie
        return 1.0 / _FINEST
    nearest = cKDTree(X).query(X, 2)[0][:, 1]
    return float(np.clip(nearest.mean(), 1.0 / _FINEST, 1.0 / _FEWEST))


def _lattice(domain: list[np.ndarray], h: float, wide: float) -> np.ndarray:
    """Nodes of nested lattices: of edge h in the domain and a row about it, of 2h and 4h further out."""
    limits = [max(h, wide)] if wide < 5 * h else [h, wide] if wide < 15 * h else [h, 7 * h, wide]
    limits = [_UNTIED * limit for limit in limits]
    reach = max(limits) + h
    corners = np.vstack(domain)
    low, high, up = corners.min(axis=0) - reach, corners.max(axis=0) + reach, np.sqrt(3.0) / 2 * h
    top = 2 ** (len(limits) - 1)
    origin = (low + high) / 2
    rows = int(np.ceil((high - low)[1] / (2 * up) / top)) * top
    columns = int(np.ceil(((high - low)[0] / 2 + rows * h / 2) / h / top)) * top
    j, i = (a.ravel() for a in np.meshgrid(np.arange(-rows, rows + 1), np.arange(-columns, columns + 1), indexing="ij"))
    nodes = origin + np.stack([h * (i + j / 2), up * j], axis=1)
    box = ((nodes >= low) & (nodes <= high)).all(axis=1)
    i, j, nodes = i[box], j[box], nodes[box]
    level = sum(((i % 2**k == 0) & (j % 2**k == 0)).astype(int) for k in range(1, len(limits)))
    out = np.where(inside(nodes, domain), 0.0, distance(nodes, domain))
    return np.asarray(nodes[out <= np.array(limits)[level]])


def triangulated(
    domain: list[np.ndarray], rings: dict[str, list[np.ndarray]], h: float, wide: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, triangles, and which of these are barriers."""
    plain = lambda name: [s for s in (simplified(ring, h) for ring in rings[name]) if len(s)]
    ends = plain("boundary") if rings["boundary"] and wide == 0.0 else []
    if rings["boundary"] and wide == 0.0 and not ends:
        raise problem("mesh", "the boundary has no part as large as a triangle", "a shorter edge")
    holes, walls = plain("holes"), plain("barriers")
    held = [*ends, *holes, *walls]
    nodes = _lattice(ends or domain, h, wide)
    if ends:
        nodes = nodes[inside(nodes, ends)]
    nodes, triangles = _holding(nodes, held, h)
    centres = nodes[triangles].mean(axis=1)
    keep = inside(centres, ends) if ends else np.ones(len(triangles), dtype=bool)
    if holes:
        keep &= ~inside(centres, holes)
    longest = np.sqrt(np.sum((nodes[triangles] - nodes[triangles[:, [1, 2, 0]]]) ** 2, axis=2)).max(axis=1)
    coarse = h if wide < 5 * h else 2 * h if wide < 15 * h else 4 * h
    keep &= longest < 1.8 * max(coarse, 1.2 * h)
    p = nodes[triangles]
    twice = (p[:, 1] - p[:, 0])[:, 0] * (p[:, 2] - p[:, 0])[:, 1] - (p[:, 1] - p[:, 0])[:, 1] * (p[:, 2] - p[:, 0])[
        :, 0
    ]
    keep &= np.abs(twice) > 1e-3 * longest**2
    if not keep.any():
        raise problem("mesh", "no triangle is left between boundary and holes", "a shorter edge")
    triangles, centres = triangles[keep], centres[keep]
    used, place = np.unique(triangles, return_inverse=True)
    barrier = inside(centres, walls) if walls else np.zeros(len(triangles), dtype=bool)
    return nodes[used], place.reshape(triangles.shape), barrier


def _holding(free: np.ndarray, held: list[np.ndarray], h: float) -> tuple[np.ndarray, np.ndarray]:
    """The Delaunay triangulation of nodes that has the edges of rings: those it lacks are split."""
    if not held:
        return free, Delaunay(free).simplices
    rounded = lambda path: np.asarray(np.round(path, 12))
    border = np.unique(rounded(np.vstack(held)), axis=0)
    free = free[distance(free, held) > _CLEAR * h]
    place = {tuple(point): k for k, point in enumerate(border.tolist())}
    paths = [np.array([place[tuple(point)] for point in rounded(ring).tolist()]) for ring in held]
    pairs = np.vstack([np.stack([path, np.roll(path, -1)], axis=1) for path in paths])
    for turn in range(_TURNS + 1):
        nodes = np.vstack([border, free])
        triangles = Delaunay(nodes).simplices
        there = np.sort(triangles[:, [[1, 2], [2, 0], [0, 1]]].reshape(-1, 2), axis=1)
        codes = there[:, 0] * np.int64(len(nodes)) + there[:, 1]
        want = np.sort(pairs, axis=1)
        lacking = ~np.isin(want[:, 0] * np.int64(len(nodes)) + want[:, 1], codes)
        long = np.sum((border[pairs[:, 0]] - border[pairs[:, 1]]) ** 2, axis=1) > (h / 16) ** 2
        lacking &= long
        if turn == _TURNS or not lacking.any():
            break
        a, b = pairs[lacking].T
        new = len(border) + np.arange(a.size)
        border = np.vstack([border, (border[a] + border[b]) / 2])
        pairs = np.vstack([pairs[~lacking], np.stack([a, new], axis=1), np.stack([new, b], axis=1)])
    return nodes, triangles
