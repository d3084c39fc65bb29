"""A triangulation of the plane for fields over points.

``mesh(points)`` has equilateral triangles of one edge length where the points are, and coarser ones in a collar around
them, so that the edge of the mesh is far from the data: lattices of edge h, 2h and 4h are nested in one another, and
their Delaunay triangulation has no angle below 30 degrees. With a boundary it ends there instead (a coastline), and
holes are cut out: their borders, in steps of h, are edges of the triangulation.

A mesh is made, and keeps its nodes, in units of the extent about the middle of the points, rounded: the same points in
other units and from another origin have the same triangles to the last bit.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import finite, numeric, positive, problem, scalar
from ._points import bins_of, located, nearest_segment
from .meshing import POINTS, RINGS, default_edge, distinct, hull, triangulated
from .polygons import dissolved, rings_of

_MOST = 3_000_000  # nodes of the finest lattice
_SLIP = 10.0  # extents outside: further is a slip, such as metres for kilometres


class Mesh:
    """A triangulation: nodes, triangles, and piecewise linear functions on them.

    Parameters
    ----------
    nodes : array (M, 2)
    triangles : int array (T, 3)
        Rows of ``nodes``, in either direction.
    barrier : bool array (T,), optional
        Triangles that a field does not pass: land for fish.
    slack : float
        How far outside a point may lie and still be taken for the nearest one inside.

    Attributes
    ----------
    edge : float
        The length of an edge where the points are; of a triangulation of one's own the median.
    corners : array (C, 2) or None
        Of the hull of the points that ``mesh`` made it for.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel import Mesh
    >>> square = Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
    >>> square.design([[0.5, 0.25]]).toarray()
    array([[0.5 , 0.25, 0.25, 0.  ]])
    """

    corners: np.ndarray | None = None

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
        """Nodes about a middle, in a unit: coordinates far from 0 have few digits for a triangle."""
        self._local, self._middle, self._unit = local, middle, unit

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_bins"}

    def verify(self) -> None:
        """Raise ValueError where this is no mesh: compiled loops rely on it."""
        whole = np.issubdtype(self.triangles.dtype, np.integer) and self.triangles.ndim == 2 and self.nodes.ndim == 2
        if not whole or self.nodes.shape[1] != 2 or not np.isfinite(self.nodes).all():
            raise ValueError("the nodes of a mesh are none")
        if self.triangles.shape[1] != 3 or self.triangles.min() < 0 or self.triangles.max() >= len(self.nodes):
            raise ValueError("the triangles of a mesh are none")

    def _signed_areas(self) -> np.ndarray:
        a, b, c = (self._local[self.triangles[:, k]] for k in range(3))
        return np.asarray(((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2)

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    @cached_property
    def areas(self) -> np.ndarray:
        """Of the triangles (T,)."""
        return self._signed_areas() * self._unit**2

    @property
    def sides(self) -> np.ndarray:
        """The edges of each triangle as vectors (T, 3, 2), each opposite to the corner of its number."""
        p = self._local[self.triangles]
        return np.asarray(p[:, [2, 0, 1]] - p[:, [1, 2, 0]]) * self._unit

    @cached_property
    def angles(self) -> np.ndarray:
        """At the corners of each triangle, in degrees (T, 3)."""
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
        """The longer side of the box around all nodes."""
        return float(np.ptp(self._local, axis=0).max()) * self._unit

    # -- points ------------------------------------------------------------------------------------
    @cached_property
    def _bins(self) -> tuple[Any, ...]:
        corners = self._local[self.triangles]
        low, high = self._local.min(axis=0), self._local.max(axis=0)
        size = float(max(np.sqrt(2.0 * self._signed_areas().mean()), (high - low).max() / 4000))
        shape = (((high - low) / size).astype(np.int64) + 1).astype(np.int64)
        return corners, low, size, shape, *bins_of(corners, low, size, shape)

    def where(self, points: Any) -> tuple[np.ndarray, np.ndarray]:
        """The triangle of each point (N,), -1 outside, and its barycentric coordinates there (N, 3)."""
        found, weights = located(self._local_of(points), *self._bins)
        return found, weights

    def _local_of(self, points: Any) -> np.ndarray:
        return np.ascontiguousarray((np.asarray(points, dtype=np.float64) - self._middle) / self._unit)

    def inside(self, points: Any) -> np.ndarray:
        """Whether each point lies in it, or outside by no more than ``slack`` (N,).

        Examples
        --------
        >>> import fenchel
        >>> fenchel.mesh(boundary=[[0, 0], [1, 0], [0, 1]], edge=0.1).inside([[0.2, 0.2], [0.8, 0.8]])
        array([ True, False])
        """
        return np.asarray(self._rows(_pairs("Mesh", points))[1] <= self._near)

    def design(self, points: Any, where: str = "Mesh") -> sp.csr_array:
        """Weights (N, M) of the nodes at any points: barycentric coordinates.

        Points outside by no more than ``slack`` have those of the nearest place inside; others are refused.
        """
        points = _pairs(where, points)
        out, gap = self._rows(points)
        self._refuse(where, points, gap, self._near)
        return out

    def continued(self, points: Any, where: str = "Mesh") -> tuple[sp.csr_array, np.ndarray]:
        """The same with rows of the nearest place inside for all points, and how far outside each is (N,).

        A mesh of points alone ends where it does for no reason, and a field goes on; one with a boundary or holes, or a
        triangulation of one's own, ends where the field does, and points outside are refused as in ``design``.
        """
        points = _pairs(where, points)
        out, gap = self._rows(points)
        self._refuse(where, points, gap, self._near if self.corners is None or self.slack else _SLIP * self.extent)
        return out, np.where(gap > self._near, gap, 0.0)

    @property
    def _near(self) -> float:
        return max(self.slack, 1e-9 * self.extent)

    def _rows(self, points: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        found, weights = self.where(points)
        nodes, lost, gap = self.triangles[found], np.flatnonzero(found < 0), np.zeros(len(points))
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
        """The edges (E, 2) of one triangle alone."""
        pairs = np.sort(self.triangles[:, [[1, 2], [2, 0], [0, 1]]].reshape(-1, 2), axis=1)
        unique, times = np.unique(pairs, axis=0, return_counts=True)
        return np.asarray(unique[times == 1])

    def __repr__(self) -> str:
        walls = f", {int(self.barrier.sum())} of them barriers" if self.barrier.any() else ""
        return f"Mesh({self.n_nodes} nodes, {len(self.triangles)} triangles{walls}, edge {self.edge:.4g})"


# -- making one --------------------------------------------------------------------------------------------
def mesh(
    points: Any = None,
    *,
    edge: float | None = None,
    collar: float | None = None,
    boundary: Any = None,
    holes: Any = None,
    barriers: Any = None,
) -> Mesh:
    """A triangulation for points in the plane.

    Parameters
    ----------
    points : array (N, 2), optional
        In units in which both axes are the same: metres, not degrees. They may repeat, or lie on a line.
    edge : float, optional
        Length of an edge where the points are; a twelfth of the range of a field is fine enough, a quarter for the
        field, and too coarse for the noise beside it. Default: the mean distance to the nearest point, at least 1/64
        and at most 1/32 of the extent.
    collar : float, optional
        Width of what is added around the points, or around ``boundary``. Default: 0.3 of the extent without a boundary,
        0 with one. Near an edge of the mesh a field varies more, up to twice as much: about a range away it does not.
    boundary : polygons, optional
        Where the mesh ends, or with a collar where it is fine: an array of vertices (V, 2), a list of them, GeoJSON, or
        the geometry of geopandas or shapely. Of adjacent districts the outline counts.
    holes : polygons, optional
        Cut out: a lake.
    barriers : polygons, optional
        Parts that a field does not pass, though they are in the mesh (Bakka et al. 2019).

    Returns
    -------
    Mesh

    Examples
    --------
    >>> import numpy as np
    >>> import fenchel
    >>> made = fenchel.mesh(np.random.default_rng(0).random((200, 2)), edge=0.1)
    >>> bool(made.angles.min() > 29.9)
    True
    """
    X = _points(points)
    rings = {
        name: [] if given is None else dissolved(rings_of("mesh", name, given))
        for name, given in (("boundary", boundary), ("holes", holes), ("barriers", barriers))
    }
    if X is None and not rings["boundary"]:
        raise problem("mesh", "there are neither points nor a boundary", "one of them")
    every = np.vstack([*([] if X is None else [X]), *rings["boundary"]])
    centre, size = (every.min(axis=0) + every.max(axis=0)) / 2, float(np.ptp(every, axis=0).max())
    if size == 0.0:
        if edge is None:
            advice = "With edge= a mesh is made around it."
            raise problem("mesh", f"all points are one, {tuple(every[0].tolist())}", "points apart", advice)
        size = 8.0 * float(edge)
    rounded = lambda path, steps: np.round((path - centre) / size * steps) / steps
    X = None if X is None else distinct(rounded(X, POINTS))
    rings = {name: [rounded(path, RINGS) for path in paths] for name, paths in rings.items()}
    domain = rings["boundary"] or [hull(X)]
    h = default_edge(X) if edge is None else scalar("mesh", "edge", edge, 0.0) / size
    wide = (0.0 if rings["boundary"] else 0.3) if collar is None else scalar("mesh", "collar", collar, -1e-300) / size
    h, wide = _figures(h), _figures(wide)
    if (1.0 + 2.0 * wide) ** 2 * 1.2 / h**2 > _MOST:
        raise problem("mesh", f"edge = {h * size:.4g} makes more than {_MOST} nodes", "a longer edge")
    local, triangles, barrier = triangulated(domain, rings, h, wide)
    slack = 0.75 * h * size if rings["boundary"] or rings["holes"] else 0.0
    out = Mesh(local * size + centre, triangles, barrier, slack)
    out._placed(local, centre, size)
    out.edge = h * size
    out.corners = None if rings["boundary"] else domain[0] * size + centre
    return out


def _points(points: Any) -> np.ndarray | None:
    if points is None:
        return None
    X = _pairs("mesh", points)
    if not len(X):
        raise problem("mesh", f"points has shape {X.shape}", "(points, 2)")
    if np.abs(X).max() > 0.0:
        positive("mesh", "the largest coordinate", np.abs(X).max())
    return X


def _pairs(where: str, points: Any) -> np.ndarray:
    X = finite(where, "points", numeric(where, "points", points))
    if X.ndim != 2 or X.shape[1] != 2:
        raise problem(where, f"points has shape {X.shape}", "(points, 2)")
    return X


def _figures(x: float) -> float:
    """To seven significant figures: a length that went through other units is the same again."""
    return float(f"{x:.7g}")
