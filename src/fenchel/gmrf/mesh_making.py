"""Construction of meshes from points and boundaries: equilateral triangles of one edge length near the points.

In a collar around the points the triangles are larger, so that the edge of the mesh is far from the data. Nodes are
nested lattices with edges h, 2h and 4h, and their Delaunay triangulation has no angle below 30 degrees. With a boundary
(a coastline) the mesh ends there instead. Borders of the boundary and of holes are split into steps of h, which become
edges of the mesh.

Points far from the bulk of the points (``Bulk``) have their own mesh, in which the field is independent.

A mesh is computed and stored in units of the rounded extent, relative to the middle of the points. The same points in
other units or with another origin therefore have exactly the same triangles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial import ConvexHull, Delaunay, QhullError, cKDTree

from ..checks import positive, problem, scalar
from ..files import stated
from ..outlines import opened
from .mesh import Mesh, SeparateMeshes, point_pairs
from .polygons import dissolved, distance, inside, rings_of, simplified

# -- The bulk of points, and points far from it: a coordinate of -9999, metres among kilometres, study sites far apart
# The search for the bulk starts with the smallest ball about a point that contains a given share of
# all points. Then it adds every point whose distance from the bounding box is at most the width of
# the box, until there is none. The other points are far: the gap to them is longer than any distance
# within the bulk. They are grouped into pieces: two points that are at most the bulk's width apart
# are in the same piece.
_FEWEST_POINTS = 5  # least number of points in a bulk
_SHARES = 0.5, 0.25, 0.125  # shares of points in the first ball: a majority, or one of several sites
_CENTRES, _SAMPLE = 128, 5000  # number of balls tried, and of points in a sample that counts their contents
_SORTED = 20_000  # up to this number of points the sample does not depend on their order
_SITES, _ALIKE = 8, 2.0  # most pieces (with the bulk) that may hold any share of the points, and ratio of widths
_STRAY, _PIECES = 0.1, 200  # largest share of points in more pieces than that, and most pieces
_CELLS = 4  # number of cells along the length of a link


@dataclass(frozen=True)
class Bulk:
    """The bulk: the region where most points lie.

    Attributes
    ----------
    far : bool array (N,)
        Points that are far from the bulk.
    piece : int array (N,)
        0 in the bulk, and 1, 2, ... in the pieces far from it. If there are too many pieces, 0 everywhere.
    low, high : arrays (d,)
        The bounding box of piece 0.
    """

    far: np.ndarray
    piece: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def extent(self) -> float:
        """The longest side of the bounding box."""
        return float((self.high - self.low).max())


def bulk_of(X: np.ndarray, link: float = 0.0) -> Bulk:
    """Find the bulk of points (N, d); points within distance ``link`` of one another are never separated.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.gmrf.mesh_making import bulk_of
    >>> bulk_of(np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [-9999.0]])).piece
    array([0, 0, 0, 0, 0, 0, 1])
    """
    whole = Bulk(np.zeros(len(X), dtype=bool), np.zeros(len(X), dtype=np.int64), X.min(axis=0), X.max(axis=0))
    sample = _every(np.unique(X if len(X) <= _SORTED else _every(X, _SORTED), axis=0), _SAMPLE)
    if len(sample) <= _FEWEST_POINTS:
        return whole
    distances = np.sqrt(sum((_every(sample, _CENTRES)[:, None, j] - sample[:, j]) ** 2 for j in range(X.shape[1])))
    for share in _SHARES:
        k = max(int(np.ceil(share * len(sample))), _FEWEST_POINTS) - 1
        radii = np.partition(distances, k, axis=1)[:, k]
        best = int(np.argmin(radii))
        core = sample[distances[best] <= radii[best]]
        if share < 0.5 and _grown(sample, core, link).all():
            continue
        far = ~_grown(X, core, link)
        if not far.any():
            continue
        low, high = X[~far].min(axis=0), X[~far].max(axis=0)
        piece = np.zeros(len(X), dtype=np.int64)
        piece[far] = 1 + linked(X[far], max(link, float((high - low).max())))
        sites = piece.max() < _SITES
        if share < 0.5 and not (sites and _alike(X, piece)):
            continue
        if sites or (far.mean() <= _STRAY and piece.max() < _PIECES):
            return Bulk(far, piece, low, high)
        return replace(whole, far=far)
    return whole


def linked(X: np.ndarray, link: float) -> np.ndarray:
    """The piece (N,) of each point: chains of points whose links are at most ``link`` long, or up to 1.5 times that."""
    cells, place = np.unique(np.floor((X - X.min(axis=0)) * (_CELLS / link)), axis=0, return_inverse=True)
    reach = _CELLS + np.sqrt(X.shape[1])  # distance in cells within which points may be linked
    pairs = cKDTree(cells).query_pairs(reach, output_type="ndarray")
    graph = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(len(cells), len(cells)))
    _, label = sp.csgraph.connected_components(graph, directed=False)
    return np.asarray(label[place.ravel()], dtype=np.int64)


def _alike(X: np.ndarray, piece: np.ndarray) -> bool:
    """Whether each piece has several points and is not much wider than the bulk."""
    widths = [float(np.ptp(X[piece == k], axis=0).max()) for k in range(piece.max() + 1)]
    return int(np.bincount(piece).min()) >= _FEWEST_POINTS and max(widths) <= _ALIKE * widths[0]


def gaps(X: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The distance (N,) of points from a box."""
    return np.asarray(np.sqrt(np.sum(np.maximum(np.maximum(low - X, X - high), 0.0) ** 2, axis=1)))


def _every(X: np.ndarray, n: int) -> np.ndarray:
    """At most n of the points, at equal steps of their index."""
    return np.asarray(X[np.linspace(0, len(X) - 1, min(n, len(X))).astype(np.int64)])


def _grown(X: np.ndarray, core: np.ndarray, link: float) -> np.ndarray:
    """The points (N,) of the bulk that grows from a core."""
    low, high, count = core.min(axis=0), core.max(axis=0), -1
    while True:
        inside = gaps(X, low, high) <= max(float((high - low).max()), link)
        if int(inside.sum()) == count:
            return inside
        count, low, high = int(inside.sum()), X[inside].min(axis=0), X[inside].max(axis=0)


# --------------------------------------------------------------------------------------------------
POINTS, RINGS = 2.0**20, 2.0**36  # points and rings are rounded to this fraction of the extent
_UNTIED = 1.0 + 2.0**-12 / 3.0  # largest number of rounds in which border edges that the triangulation lacks are split
_CLEAR = 0.62  # in edges: lattice nodes nearer to a border are removed
_TURNS = 12  # largest number of nodes of the finest lattice
_FEWEST, _FINEST = 32, 64  # default number of edges along the extent of the data, least and most
_MOST = 3_000_000  # most nodes of the finest lattice
_FURTHEST = 1e6  # in extents of the bulk: most distance of points from it, since coordinates further away lose digits
_WIDER = 4.0  # in extents of the bulk: meshes of far points that are wider than this are coarser
FAR_COLLAR = 0.45  # in extents of the bulk: collar of points far from it, of which there may be only one
LINK = 2.2  # in collars: points nearer than this share a mesh


def distinct(X: np.ndarray) -> np.ndarray:
    """Rounded points (N, 2) without duplicates."""
    whole = np.round(X * POINTS).astype(np.int64)
    codes = np.unique(whole[:, 0] * (1 << 31) + whole[:, 1] + (1 << 30))
    return np.stack([codes >> 31, (codes & ((1 << 31) - 1)) - (1 << 30)], axis=1) / POINTS


def hull(X: Any) -> np.ndarray:
    """The corners of the convex hull, counter-clockwise; for points on a line its two ends."""
    if len(X) > 2:
        try:
            return np.asarray(X[ConvexHull(X).vertices])
        except QhullError:
            pass
    far = X[np.argmax(np.sum((X - X[0]) ** 2, axis=1))]
    return np.stack([far, X[np.argmax(np.sum((X - far) ** 2, axis=1))]])


def default_edge(X: np.ndarray | None) -> float:
    """The default edge length, in units of the extent."""
    if X is None or len(X) < 2:
        return 1.0 / _FEWEST
    if len(X) > 2 * _FINEST**2:  # average spacing below the shortest edge, wherever the points lie
        return 1.0 / _FINEST
    nearest = cKDTree(X).query(X, 2)[0][:, 1]
    return float(np.clip(nearest.mean(), 1.0 / _FINEST, 1.0 / _FEWEST))


def _lattice(domain: list[np.ndarray], h: float, wide: float) -> np.ndarray:
    """Nodes of nested lattices: edge h in the domain and one row around it, then 2h and 4h."""
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
    """Nodes, triangles, and which triangles are barriers."""
    plain = lambda name: [s for s in (simplified(ring, h) for ring in rings[name]) if len(s)]
    ends = plain("boundary") if rings["boundary"] and wide == 0.0 else []
    if rings["boundary"] and wide == 0.0 and not ends:
        raise problem("mesh", "the boundary has no part as large as a triangle", "a shorter edge")
    holes, walls = plain("holes"), plain("barriers")
    kept_rings = [*ends, *holes, *walls]
    nodes = _lattice(ends or domain, h, wide)
    if ends:
        nodes = nodes[inside(nodes, ends)]
    nodes, triangles = _constrained_triangulation(nodes, kept_rings, h)
    centres = nodes[triangles].mean(axis=1)
    keep = inside(centres, ends) if ends else np.ones(len(triangles), dtype=bool)
    if holes:
        keep &= ~inside(centres, holes)
    longest = np.sqrt(np.sum((nodes[triangles] - nodes[triangles[:, [1, 2, 0]]]) ** 2, axis=2)).max(axis=1)
    coarse = h if wide < 5 * h else 2 * h if wide < 15 * h else 4 * h
    keep &= longest < 1.8 * max(coarse, 1.2 * h)
    first, *others = np.swapaxes(nodes[triangles], 0, 1)
    (ax, ay), (bx, by) = (np.transpose(corner - first) for corner in others)
    twice = ax * by - ay * bx  # twice the area
    keep &= np.abs(twice) > 1e-3 * longest**2
    if not keep.any():
        raise problem("mesh", "no triangle is left between boundary and holes", "a shorter edge")
    triangles, centres = triangles[keep], centres[keep]
    used, place = np.unique(triangles, return_inverse=True)
    barrier = inside(centres, walls) if walls else np.zeros(len(triangles), dtype=bool)
    return nodes[used], place.reshape(triangles.shape), barrier


def _constrained_triangulation(free: np.ndarray, rings: list[np.ndarray], h: float) -> tuple[np.ndarray, np.ndarray]:
    """A Delaunay triangulation that contains the edges of rings; missing edges are split until it does."""
    if not rings:
        return free, Delaunay(free).simplices
    rounded = lambda path: np.asarray(np.round(path, 12))
    border = np.unique(rounded(np.vstack(rings)), axis=0)
    free = free[distance(free, rings) > _CLEAR * h]
    place = {tuple(point): k for k, point in enumerate(border.tolist())}
    paths = [np.array([place[tuple(point)] for point in rounded(ring).tolist()]) for ring in rings]
    pairs = np.vstack([np.stack([path, np.roll(path, -1)], axis=1) for path in paths])
    for turn in range(_TURNS + 1):
        nodes = np.vstack([border, free])
        triangles = Delaunay(nodes).simplices
        edges = np.sort(triangles[:, [[1, 2], [2, 0], [0, 1]]].reshape(-1, 2), axis=1)
        codes = edges[:, 0] * np.int64(len(nodes)) + edges[:, 1]
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
        Coordinates in the same unit on both axes, such as metres and not degrees. Points may repeat, or lie on a line.
    edge : float, optional
        Length of an edge near the points. A twelfth of the range of the field is fine enough; a quarter is enough for
        the field, but too coarse to tell it from noise. Default: the mean distance to the nearest point, between 1/64
        and 1/32 of the extent of the bulk. Points further from the bulk than its width have their own meshes.
    collar : float, optional
        Width of the margin around the points, or around ``boundary``. Default: 0.3 of the extent without a boundary, 0
        with one. Near an edge of the mesh the variance of a field is larger, up to twice, within about one range.
    boundary : polygons, optional
        Where the mesh ends; with a collar, where fine triangles end. An array of vertices (V, 2), a list of them,
        GeoJSON, or a geometry of geopandas or shapely. Of adjacent districts the common outline is used.
    holes : polygons, optional
        Polygons that are cut out, such as lakes.
    barriers : polygons, optional
        Polygons in the mesh that block the field (Bakka et al. 2019).

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
    polygons = {"boundary": opened(boundary), "holes": opened(holes), "barriers": opened(barriers)}
    return mesh_of(points, edge=edge, collar=collar, **polygons)


@stated()
def mesh_of(points: Any, *, edge: float | None, collar: float | None, boundary: Any, holes: Any, barriers: Any) -> Mesh:
    """The mesh of points and polygons, not file names; saved models store this call."""
    X = _points(points)
    if X is None or boundary is not None:
        return _one(X, edge, collar, boundary, holes, barriers)
    bulk = bulk_of(X, 0.0 if collar is None else LINK * collar)
    if not bulk.piece.any():
        return _one(X, edge, collar, None, holes, barriers)
    _refuse_furthest(X, bulk)
    return _separate([X[bulk.piece == k] for k in range(bulk.piece.max() + 1)], edge, collar, holes, barriers)


def remade(old: Mesh, edge: float, collar: float | None, link: float) -> Mesh:
    """A mesh of the same points without a boundary, with another edge and collar; parts within ``link`` are joined."""
    hulls = [part.corners for part in old.parts or (old,) if part.corners is not None]
    low, high = (np.array([end(hull, axis=0) for hull in hulls]) for end in (np.min, np.max))
    between = np.maximum(np.maximum(low[:, None] - high, low - high[:, None]), 0.0)
    _, label = sp.csgraph.connected_components(np.sqrt(np.sum(between**2, axis=2)) <= link, directed=False)
    joined = [np.vstack([hull for hull, own in zip(hulls, label, strict=True) if own == k]) for k in np.unique(label)]
    return _separate(joined, edge, collar) if len(joined) > 1 else _one(joined[0], edge, collar)


def _separate(groups: list[np.ndarray], edge: float | None, collar: float | None, *cut: Any) -> Mesh:
    """Meshes of points far apart: one for the bulk and one for each other group; wide groups have longer edges."""
    first = _one(groups[0], edge, collar, None, *cut)
    extent = float(np.ptp(groups[0], axis=0).max())
    wide = FAR_COLLAR * extent if collar is None else collar
    parts = [first]
    for group in groups[1:]:
        doubled = np.ceil(np.log2(max(float(np.ptp(group, axis=0).max()) / (_WIDER * extent), 1.0)))
        parts.append(_one(group, first.edge * 2.0**doubled, wide, None, *cut))
    return SeparateMeshes(parts)


def _refuse_furthest(X: np.ndarray, bulk: Bulk) -> None:
    """Refuse points so far away that their coordinates have too few digits for a mesh."""
    gap = gaps(X, bulk.low, bulk.high) / bulk.extent
    if gap.max() > _FURTHEST:
        i = int(np.argmax(gap))
        at = f"points[{i}] = ({X[i, 0]:.6g}, {X[i, 1]:.6g})"
        got = f"{at} lies {gap[i]:.1e} times as far away as the other points are wide"
        raise problem("mesh", got, "coordinates in one unit", "Leave out rows with a missing-value code.")


def _one(
    X: np.ndarray | None,
    edge: float | None = None,
    collar: float | None = None,
    boundary: Any = None,
    holes: Any = None,
    barriers: Any = None,
) -> Mesh:
    """One mesh, of points that lie together or of a boundary."""
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
    X = point_pairs("mesh", points)
    if not len(X):
        raise problem("mesh", f"points has shape {X.shape}", "(points, 2)")
    if np.abs(X).max() > 0.0:
        positive("mesh", "the largest coordinate", np.abs(X).max())
    return X


def _figures(x: float) -> float:
    """x rounded to seven significant figures, so that a change of units does not alter it."""
    return float(f"{x:.7g}")
