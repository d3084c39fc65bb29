"""Compiled loops over points: windings about polygons, distances to segments, and the triangle a point lies in."""

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


@compiled
def bins_of(corners, low, size, shape):
    """Triangles (T, 3, 2) by the cells of a regular grid that their boxes touch: where each cell begins, and which."""
    n_cells = shape[0] * shape[1]
    start = np.zeros(n_cells + 1, dtype=np.int64)
    member = np.zeros(0, dtype=np.int64)
    for turn in range(2):  # count, then fill
        if turn == 1:
            start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(start[:-1])))
            member = np.zeros(start[-1], dtype=np.int64)
        fill = start[:-1].copy()
        for t in range(corners.shape[0]):
            lo0, lo1 = np.min(corners[t, :, 0]), np.min(corners[t, :, 1])
            hi0, hi1 = np.max(corners[t, :, 0]), np.max(corners[t, :, 1])
            i0, i1 = max(int((lo0 - low[0]) / size), 0), min(int((hi0 - low[0]) / size), shape[0] - 1)
            j0, j1 = max(int((lo1 - low[1]) / size), 0), min(int((hi1 - low[1]) / size), shape[1] - 1)
            for i in range(i0, i1 + 1):
                for j in range(j0, j1 + 1):
                    cell = i * shape[1] + j
                    if turn == 0:
                        start[cell] += 1
                    else:
                        member[fill[cell]] = t
                        fill[cell] += 1
    return start, member


@compiled
def located(points, corners, low, size, shape, start, member):
    """The triangle of each point, -1 outside of all, and its barycentric coordinates there (N, 3)."""
    n = points.shape[0]
    found, weights = np.full(n, -1, dtype=np.int64), np.zeros((n, 3))
    for p in range(n):
        x, y = points[p, 0], points[p, 1]
        i, j = int(np.floor((x - low[0]) / size)), int(np.floor((y - low[1]) / size))
        if i < 0 or j < 0 or i >= shape[0] or j >= shape[1]:
            continue
        best = -1e-9  # on an edge, up to rounding
        for k in range(start[i * shape[1] + j], start[i * shape[1] + j + 1]):
            t = member[k]
            ax, ay = corners[t, 0, 0], corners[t, 0, 1]
            bx, by = corners[t, 1, 0] - ax, corners[t, 1, 1] - ay
            cx, cy = corners[t, 2, 0] - ax, corners[t, 2, 1] - ay
            area = bx * cy - by * cx
            v = ((x - ax) * cy - (y - ay) * cx) / area
            w = (bx * (y - ay) - by * (x - ax)) / area
            least = min(min(v, w), 1.0 - v - w)
            if least > best:
                best, found[p] = least, t
                weights[p, 0], weights[p, 1], weights[p, 2] = 1.0 - v - w, v, w
                if least >= 0.0:
                    break
    return found, weights
