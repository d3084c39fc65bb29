"""Where points lie: windings about polygons, the nearest segment, and the triangle that holds a point.

Points and segments up to some million pairs are met by numpy at once, and more of them by the compiled loops of
``_points.py``: a first map of a few hundred points should not wait for a compiler.
"""

from __future__ import annotations

import numpy as np

FEW_PAIRS = 2**22  # of points and segments: a sixteenth of a second by numpy
_SOME = 2**18  # points whose triangles are looked for at a time
_ON_EDGE = -1e-9  # a barycentric coordinate that is 0 up to rounding


def windings(points: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How often directed segments a -> b (E, 2), closed rings in all, wind about each point (N,)."""
    if len(points) * len(a) > FEW_PAIRS:
        from ._points import windings as compiled_windings

        return np.asarray(compiled_windings(points, a, b))
    x, y = points[:, :1], points[:, 1:]
    up, down = a[:, 1] <= y, b[:, 1] <= y
    side = (b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (x - a[:, 0]) * (b[:, 1] - a[:, 1])
    return np.sum(up & ~down & (side > 0.0), axis=1) - np.sum(~up & down & (side < 0.0), axis=1)


def nearest_segment(points: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each point the nearest segment, the share of it that lies before the nearest place, and the distance."""
    if len(points) * len(a) > FEW_PAIRS:
        from ._points import nearest_segment as compiled_nearest

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


def bins_of(corners: np.ndarray, low: np.ndarray, size: float, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Triangles (T, 3, 2) by the cells of a regular grid that their boxes touch: where each cell begins, and which."""
    first = np.maximum(((corners.min(axis=1) - low) / size).astype(np.int64), 0)
    last = np.minimum(((corners.max(axis=1) - low) / size).astype(np.int64), shape - 1)
    wide = np.maximum(last - first + 1, 0)
    count = wide[:, 0] * wide[:, 1]
    member = np.repeat(np.arange(len(corners)), count)
    within = np.arange(member.size) - np.repeat(np.cumsum(count) - count, count)
    i, j = np.divmod(within, np.maximum(wide[member, 1], 1))
    cell = (first[member, 0] + i) * shape[1] + first[member, 1] + j
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=int(shape[0] * shape[1])))])
    return start, member[np.argsort(cell, kind="stable")]


def located(
    points: np.ndarray,
    corners: np.ndarray,
    low: np.ndarray,
    size: float,
    shape: np.ndarray,
    start: np.ndarray,
    member: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The triangle of each point, -1 outside of all, and its barycentric coordinates there (N, 3)."""
    found, weights = np.full(len(points), -1, dtype=np.int64), np.zeros((len(points), 3))
    for begin in range(0, len(points), _SOME):
        some = slice(begin, begin + _SOME)
        found[some], weights[some] = _located(points[some], corners, low, size, shape, start, member)
    return found, weights


def _located(
    points: np.ndarray,
    corners: np.ndarray,
    low: np.ndarray,
    size: float,
    shape: np.ndarray,
    start: np.ndarray,
    member: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The same of some points: of the triangles in a point's cell the first that holds it, else the nearest to it."""
    found, weights = np.full(len(points), -1, dtype=np.int64), np.zeros((len(points), 3))
    at = np.floor((points - low) / size).astype(np.int64)
    inside = np.flatnonzero(((at >= 0) & (at < shape)).all(axis=1))
    cell = at[inside, 0] * shape[1] + at[inside, 1]
    count = start[cell + 1] - start[cell]
    inside, cell, count = inside[count > 0], cell[count > 0], count[count > 0]
    if not inside.size:
        return found, weights
    begin = np.cumsum(count) - count
    owner = np.repeat(np.arange(inside.size), count)
    t = member[np.arange(owner.size) + (start[cell] - begin)[owner]]
    A, B, C = corners[t, 0], corners[t, 1] - corners[t, 0], corners[t, 2] - corners[t, 0]
    P = points[inside[owner]] - A
    area = B[:, 0] * C[:, 1] - B[:, 1] * C[:, 0]
    v = (P[:, 0] * C[:, 1] - P[:, 1] * C[:, 0]) / area
    w = (B[:, 0] * P[:, 1] - B[:, 1] * P[:, 0]) / area
    least = np.minimum(np.minimum(np.minimum(v, w), 1.0 - v - w), 0.0)  # 0 in every triangle that holds the point
    best = np.maximum.reduceat(least, begin)
    pair = np.where(least == best[owner], np.arange(owner.size), owner.size)
    pair = np.minimum.reduceat(pair, begin)  # the first of the best
    held = best > _ON_EDGE
    pair, inside = pair[held], inside[held]
    found[inside] = t[pair]
    weights[inside] = np.column_stack([1.0 - v[pair] - w[pair], v[pair], w[pair]])
    return found, weights
