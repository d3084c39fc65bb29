"""A triangulation of the plane, for fields over points; ``mesh_making.py`` constructs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import finite, numeric, problem
from ..files import Stated
from .polygons import nearest_segment

_SOME = 2**18  # number of points located at a time
_ON_EDGE = -1e-9  # barycentric coordinates above this count as 0 up to rounding
_SLIP = 10.0  # extents outside the mesh from which the cause is probably a unit, such as metres for kilometres


@dataclass(frozen=True)
class TriangleCells:
    """Triangles (T, 3, 2), indexed by the cells of a regular grid that their bounding boxes touch.

    Attributes
    ----------
    corners : array (T, 3, 2)
    low : array (2,)
        The lower corner of the grid.
    size : float
        The side of a cell.
    shape : int array (2,)
    start, member : int arrays
        The triangles of cell k are ``member[start[k]:start[k + 1]]``.
    """

    corners: np.ndarray
    low: np.ndarray
    size: float
    shape: np.ndarray
    start: np.ndarray
    member: np.ndarray

    @classmethod
    def of(cls, corners: np.ndarray, size: float) -> TriangleCells:
        """The index with cells of about the given size."""
        low, high = corners.min(axis=(0, 1)), corners.max(axis=(0, 1))
        size = float(max(size, (high - low).max() / 4000))
        shape = ((high - low) / size).astype(np.int64) + 1
        first = np.maximum(((corners.min(axis=1) - low) / size).astype(np.int64), 0)
        last = np.minimum(((corners.max(axis=1) - low) / size).astype(np.int64), shape - 1)
        wide = np.maximum(last - first + 1, 0)
        count = wide[:, 0] * wide[:, 1]
        member = np.repeat(np.arange(len(corners)), count)
        within = np.arange(member.size) - np.repeat(np.cumsum(count) - count, count)
        i, j = np.divmod(within, np.maximum(wide[member, 1], 1))
        cell = (first[member, 0] + i) * shape[1] + first[member, 1] + j
        start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=int(shape[0] * shape[1])))])
        return cls(corners, low, size, shape, start, member[np.argsort(cell, kind="stable")])

    def locate(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The triangle of each point, -1 outside of all, and its barycentric coordinates (N, 3).

        If several triangles in a point's cell contain it, the first is returned; if none does, the nearest of them.
        """
        index, weights = np.full(len(points), -1, dtype=np.int64), np.zeros((len(points), 3))
        at = np.floor((points - self.low) / self.size).astype(np.int64)
        inside = np.flatnonzero(((at >= 0) & (at < self.shape)).all(axis=1))
        cell = at[inside, 0] * self.shape[1] + at[inside, 1]
        count = self.start[cell + 1] - self.start[cell]
        inside, cell, count = inside[count > 0], cell[count > 0], count[count > 0]
        if not inside.size:
            return index, weights
        begin = np.cumsum(count) - count
        owner = np.repeat(np.arange(inside.size), count)
        t = self.member[np.arange(owner.size) + (self.start[cell] - begin)[owner]]
        A, B, C = self.corners[t, 0], self.corners[t, 1] - self.corners[t, 0], self.corners[t, 2] - self.corners[t, 0]
        P = points[inside[owner]] - A
        area = B[:, 0] * C[:, 1] - B[:, 1] * C[:, 0]
        v = (P[:, 0] * C[:, 1] - P[:, 1] * C[:, 0]) / area
        w = (B[:, 0] * P[:, 1] - B[:, 1] * P[:, 0]) / area
        least = np.minimum(np.minimum(np.minimum(v, w), 1.0 - v - w), 0.0)  # 0 in each triangle that contains the point
        best = np.maximum.reduceat(least, begin)
        pair = np.where(least == best[owner], np.arange(owner.size), owner.size)
        pair = np.minimum.reduceat(pair, begin)  # the first of the best triangles
        held = best > _ON_EDGE
        pair, inside = pair[held], inside[held]
        index[inside] = t[pair]
        weights[inside] = np.column_stack([1.0 - v[pair] - w[pair], v[pair], w[pair]])
        return index, weights


class Mesh(Stated):
    """A triangulation: nodes, triangles, and piecewise linear functions on them.

    Parameters
    ----------
    nodes : array (M, 2)
    triangles : int array (T, 3)
        Indices of three ``nodes`` for each triangle, in either orientation.
    barrier : bool array (T,), optional
        Triangles that block the field, such as land for fish.
    slack : float
        Distance outside of the mesh up to which a point is moved to the nearest place inside.

    Attributes
    ----------
    edge : float
        The length of an edge near the points; for a triangulation by the user the median.
    corners : array (C, 2) or None
        The corners of the hull of the points, for meshes made by ``mesh``.
    parts : tuple of Mesh
        The separate meshes of points that are far from the bulk; empty if there is one mesh.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.gmrf.mesh import Mesh
    >>> square = Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
    >>> square.design([[0.5, 0.25]]).toarray()
    array([[0.5 , 0.25, 0.25, 0.  ]])
    """

    corners: np.ndarray | None = None
    parts: tuple[Mesh, ...] = ()

    def __init__(self, nodes: Any, triangles: Any, barrier: Any = None, slack: float = 0.0) -> None:
        self.nodes = finite("Mesh", "nodes", numeric("Mesh", "nodes", nodes))
        t = numeric("Mesh", "triangles", triangles)
        if self.nodes.ndim != 2 or self.nodes.shape[1] != 2:
            raise problem("Mesh", f"nodes has shape {self.nodes.shape}", "(nodes, 2)")
        if t.ndim != 2 or t.shape[1] != 3 or not t.size:
            raise problem("Mesh", f"triangles has shape {t.shape}", "(triangles, 3)")
        if (t != np.floor(t)).any() or t.min() < 0 or t.max() >= len(self.nodes):
            raise problem("Mesh", "triangles names nodes that there are not", f"integers 0, ..., {len(self.nodes) - 1}")
        self.triangles = t.astype(np.int64)
        low, high = self.nodes.min(axis=0), self.nodes.max(axis=0)
        middle, unit = (low + high) / 2, float((high - low).max()) or 1.0
        self._placed((self.nodes - middle) / unit, middle, unit)
        area = self._signed_areas()
        if (np.abs(area) <= 1e-14 * np.abs(area).max()).any():
            flat = int(np.argmin(np.abs(area)))
            raise problem("Mesh", f"the corners of triangles[{flat}] lie on a line", "triangles with an area")
        self.triangles[area < 0] = self.triangles[area < 0][:, [0, 2, 1]]
        used = np.bincount(self.triangles.ravel(), minlength=len(self.nodes))
        if not used.all():
            raise problem("Mesh", f"nodes[{int(np.argmin(used))}] is in no triangle", "nodes of triangles")
        self.barrier = np.zeros(len(t), dtype=bool) if barrier is None else np.asarray(barrier, dtype=bool)
        if self.barrier.shape != (len(t),):
            raise problem("Mesh", f"barrier has shape {self.barrier.shape}", f"({len(t)},), one a triangle")
        self.slack = float(slack)

    def _placed(self, local: np.ndarray, middle: np.ndarray, unit: float) -> None:
        """Store nodes relative to ``middle`` in a unit; coordinates far from 0 lose digits within a triangle."""
        self._local, self._middle, self._unit = local, middle, unit

    def _signed_areas(self) -> np.ndarray:
        a, b, c = (self._local[self.triangles[:, k]] for k in range(3))
        return np.asarray(((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2)

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    @cached_property
    def areas(self) -> np.ndarray:
        """The areas (T,) of the triangles."""
        return self._signed_areas() * self._unit**2

    @property
    def sides(self) -> np.ndarray:
        """The edges of each triangle as vectors (T, 3, 2); edge k is opposite to corner k."""
        p = self._local[self.triangles]
        return np.asarray(p[:, [2, 0, 1]] - p[:, [1, 2, 0]]) * self._unit

    @cached_property
    def angles(self) -> np.ndarray:
        """The angles (T, 3) at the corners of each triangle, in degrees."""
        e = self.sides
        u, v = e[:, [2, 0, 1]], -e[:, [1, 2, 0]]
        cross = np.abs(u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0])
        return np.degrees(np.arctan2(cross, np.sum(u * v, axis=2)))

    @cached_property
    def edge(self) -> float:
        fine = self.areas <= np.median(self.areas) * 1.5
        return float(np.median(np.sqrt(np.sum(self.sides[fine] ** 2, axis=2))))

    @property
    def extent(self) -> float:
        """The longer side of the bounding box of all nodes."""
        return float(np.ptp(self._local, axis=0).max()) * self._unit

    # -- points ------------------------------------------------------------------------------------
    @cached_property
    def _cells(self) -> TriangleCells:
        return TriangleCells.of(self._local[self.triangles], float(np.sqrt(2.0 * self._signed_areas().mean())))

    def where(self, points: Any) -> tuple[np.ndarray, np.ndarray]:
        """The triangle of each point (N,), -1 outside, and its barycentric coordinates (N, 3)."""
        local = self._local_of(points)
        index, weights = np.full(len(local), -1, dtype=np.int64), np.zeros((len(local), 3))
        for begin in range(0, len(local), _SOME):
            some = slice(begin, begin + _SOME)
            index[some], weights[some] = self._cells.locate(local[some])
        return index, weights

    def _local_of(self, points: Any) -> np.ndarray:
        return np.ascontiguousarray((np.asarray(points, dtype=np.float64) - self._middle) / self._unit)

    def inside(self, points: Any) -> np.ndarray:
        """Whether each point (N,) lies in the mesh, or outside by at most ``slack``.

        Examples
        --------
        >>> import fenchel
        >>> fenchel.mesh(boundary=[[0, 0], [1, 0], [0, 1]], edge=0.1).inside([[0.2, 0.2], [0.8, 0.8]])
        array([ True, False])
        """
        return np.asarray(self._rows(point_pairs("Mesh", points))[1] <= self._near)

    def design(self, points: Any, where: str = "Mesh") -> sp.csr_array:
        """The design (N, M) of points: their barycentric coordinates as weights of the nodes.

        A point outside by at most ``slack`` has the row of the nearest place inside; points further away are refused.
        """
        points = point_pairs(where, points)
        out, gap = self._rows(points)
        self._refuse(where, points, gap, self._near)
        return out

    def continued(self, points: Any, where: str = "Mesh") -> tuple[sp.csr_array, np.ndarray]:
        """The design of all points, with the row of the nearest place inside, and their distances outside (N,).

        The edge of a mesh that was made from points alone is arbitrary, and the field goes on beyond it. A mesh with a
        boundary or holes, or a user's triangulation, ends where the field ends, and points outside are refused as in
        ``design``.
        """
        points = point_pairs(where, points)
        out, gap = self._rows(points)
        self._refuse(where, points, gap, self._near if self.corners is None or self.slack else _SLIP * self.extent)
        return out, np.where(gap > self._near, gap, 0.0)

    @property
    def _near(self) -> float:
        return max(self.slack, 1e-9 * self.extent)

    def _rows(self, points: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        index, weights = self.where(points)
        nodes, lost, gap = self.triangles[index], np.flatnonzero(index < 0), np.zeros(len(points))
        if lost.size:
            ends = self._border
            e, share, off = nearest_segment(self._local_of(points[lost]), *(self._local[end] for end in ends.T))
            gap[lost] = off * self._unit
            nodes[lost] = np.column_stack([ends[e], ends[e, :1]])
            weights[lost] = np.column_stack([1.0 - share, share, np.zeros(lost.size)])
        row = np.repeat(np.arange(len(points)), 3)
        out = sp.csr_array((weights.ravel(), (row, nodes.ravel())), shape=(len(points), self.n_nodes))
        out.sum_duplicates()
        return out, gap

    def _refuse(self, where: str, points: np.ndarray, gap: np.ndarray, most: float) -> None:
        far = gap > most
        if far.any():
            i = int(np.argmax(gap))
            at = f"({points[i, 0]:.6g}, {points[i, 1]:.6g})"
            n = f"{far.sum()} of {len(points)} points lie" if far.sum() > 1 else "a point lies"
            got = f"{n} outside the mesh, {at} by {gap.max():.4g}"
            advice = (
                "mesh.inside(points) says which are; a mesh over the points of the fit and the new ones together holds "
                "both: fenchel.mesh(...)."
            )
            raise problem(where, got, "points in its triangles", advice)

    @cached_property
    def _border(self) -> np.ndarray:
        """The boundary: edges (E, 2) that belong to only one triangle."""
        pairs = np.sort(self.triangles[:, [[1, 2], [2, 0], [0, 1]]].reshape(-1, 2), axis=1)
        unique, times = np.unique(pairs, axis=0, return_counts=True)
        return np.asarray(unique[times == 1])

    def __repr__(self) -> str:
        walls = f", {int(self.barrier.sum())} of them barriers" if self.barrier.any() else ""
        return f"Mesh({self.n_nodes} nodes, {len(self.triangles)} triangles{walls}, edge {self.edge:.4g})"


class SeparateMeshes(Mesh):
    """Meshes that are far apart, as one mesh; each stores its nodes in its own unit, so that no digits are lost."""

    def __init__(self, parts: Sequence[Mesh]) -> None:
        before = np.cumsum([0, *(part.n_nodes for part in parts)])
        self.nodes = np.vstack([part.nodes for part in parts])
        self.triangles = np.vstack([part.triangles + n for part, n in zip(parts, before, strict=False)])
        self.barrier = np.concatenate([part.barrier for part in parts])
        self.slack = parts[0].slack
        low, high = self.nodes.min(axis=0), self.nodes.max(axis=0)
        middle, unit = (low + high) / 2, float((high - low).max())
        self._placed((self.nodes - middle) / unit, middle, unit)
        self.edge, self.parts = parts[0].edge, tuple(parts)
        self.corners = np.vstack([part.corners for part in parts if part.corners is not None])

    @cached_property
    def areas(self) -> np.ndarray:
        """The areas (T,) of the triangles."""
        return np.concatenate([part.areas for part in self.parts])

    @property
    def sides(self) -> np.ndarray:
        """The edges of each triangle as vectors (T, 3, 2); edge k is opposite to corner k."""
        return np.concatenate([part.sides for part in self.parts])

    def where(self, points: Any) -> tuple[np.ndarray, np.ndarray]:
        """The triangle of each point (N,), -1 outside, and its barycentric coordinates (N, 3)."""
        index, weights, before = np.full(len(points), -1, dtype=np.int64), np.zeros((len(points), 3)), 0
        for part in self.parts:
            part_index, share = part.where(points)
            in_part = part_index >= 0
            index[in_part], weights[in_part] = part_index[in_part] + before, share[in_part]
            before += len(part.triangles)
        return index, weights


def point_pairs(where: str, points: Any) -> np.ndarray:
    X = finite(where, "points", numeric(where, "points", points))
    if X.ndim != 2 or X.shape[1] != 2:
        raise problem(where, f"points has shape {X.shape}", "(points, 2)")
    return X
