"""Compiled loops over points and segments: windings about polygons, distances; ``locating.py`` calls them."""

from __future__ import annotations

import numpy as np

from ..linalg.compiled import compiled


@compiled
def windings(points, a, b):
    """How often directed segments a -> b (E, 2), closed rings in all, wind about each point (N,)."""
    out = np.zeros(points.shape[0], dtype=np.int64)
    for n in range(points.shape[0]):
        x, y, total = points[n, 0], points[n, 1], 0
        for e in range(a.shape[0]):
            up = a[e, 1] <= y
            if up != (b[e, 1] <= y):
                side = (b[e, 0] - a[e, 0]) * (y - a[e, 1]) - (x - a[e, 0]) * (b[e, 1] - a[e, 1])
                if up and side > 0.0:
                    total += 1
                elif not up and side < 0.0:
                    total -= 1
        out[n] = total
    return out


@compiled
def nearest_segment(points, a, b):
    """Of each point the nearest segment, the share of it that lies before the nearest place, and the distance."""
    n = points.shape[0]
    index, share, distance = np.zeros(n, dtype=np.int64), np.zeros(n), np.full(n, np.inf)
    for i in range(n):
        best = np.inf
        for e in range(a.shape[0]):
            dx, dy = b[e, 0] - a[e, 0], b[e, 1] - a[e, 1]
            px, py = points[i, 0] - a[e, 0], points[i, 1] - a[e, 1]
            length = dx * dx + dy * dy
            t = 0.0 if length == 0.0 else min(max((px * dx + py * dy) / length, 0.0), 1.0)
            ex, ey = px - t * dx, py - t * dy
            d = ex * ex + ey * ey
            if d < best:
                best, index[i], share[i] = d, e, t
        distance[i] = np.sqrt(best)
    return index, share, distance
