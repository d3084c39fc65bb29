"""Meshes: areas, angles and borders against what polygons are; finite elements against integrals done by hand."""

import pickle

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.spatial import Delaunay

import fenchel
from fenchel.gmrf.mesh import Mesh
from fenchel.gmrf.mesh_making import bulk_of
from fenchel.gmrf.polygons import dissolved, inside, rings_of
from fenchel.gmrf.spde import finite_elements
from fenchel.outlines import signed_area

RNG = np.random.default_rng(0)
SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
ANGLE = np.array([[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]], dtype=float)  # an L
TURN = np.arange(10) * np.pi / 5
STAR = np.stack([np.cos(TURN), np.sin(TURN)], axis=1) * np.array([[0.4], [1.0]] * 5)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("origin", [0.0, 1e9])
def test_points_in_any_units(scale, origin):
    X = (RNG.random((300, 2)) + origin) * scale if origin == 0.0 else RNG.random((300, 2)) * scale + origin * scale
    made = fenchel.mesh(X)
    assert made.angles.min() > 29.9
    assert made.angles.max() < 120.1
    W = made.design(X)
    np.testing.assert_allclose(W.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(W @ made.nodes, X, atol=1e-6 * scale)  # linear functions are exact
    unit = fenchel.mesh((X - X.min(axis=0)) / np.ptp(X, axis=0).max())
    assert unit.n_nodes == made.n_nodes


@pytest.mark.parametrize("n", [3, 40, 700])
def test_other_units_and_origins_have_the_same_triangles_to_the_last_bit(n):
    X = np.random.default_rng(n).random((n, 2)) * [1.0, 0.7]
    for edge in (None, 1 / 37):
        one = fenchel.mesh(X, edge=edge)
        for unit, origin in ((1e3, 0.0), (1 / 3, 0.0), (0.3048, 1234.5), (1.0, 1e6), (1e3, 5e6)):
            other = fenchel.mesh(X * unit + [origin, 2 * origin], edge=None if edge is None else edge * unit)
            np.testing.assert_array_equal(other.triangles, one.triangles)
            np.testing.assert_allclose(other.areas, one.areas * unit**2, rtol=1e-9)
            np.testing.assert_allclose(
                other.nodes, one.nodes * unit + [origin, 2 * origin], rtol=1e-12, atol=1e-9 * unit
            )
            found, _ = other.where(X * unit + [origin, 2 * origin])
            np.testing.assert_array_equal(found, one.where(X)[0])


def test_the_same_points_give_the_same_mesh():
    X = RNG.random((100, 2))
    one, other = fenchel.mesh(X), fenchel.mesh(np.vstack([X[::-1], X[:10]]))  # in any order, and repeated
    np.testing.assert_array_equal(one.nodes, other.nodes)
    np.testing.assert_array_equal(one.triangles, other.triangles)


def test_edges_are_short_among_the_points_and_long_around_them():
    made = fenchel.mesh(SQUARE, edge=0.05, collar=0.8)
    length = np.sqrt(np.sum(made.sides**2, axis=2)).max(axis=1)
    centre = made.nodes[made.triangles].mean(axis=1)
    inner = ((centre > 0) & (centre < 1)).all(axis=1)
    np.testing.assert_allclose(length[inner], 0.05, rtol=1e-6)
    outer = (np.abs(centre - 0.5) > 1.0).any(axis=1)
    np.testing.assert_allclose(length[outer & (made.angles.min(axis=1) > 59)], 0.2, rtol=1e-6)
    assert made.nodes.max() > 1.7
    assert made.edge == pytest.approx(0.05)


@pytest.mark.parametrize(("ring", "area"), [(SQUARE, 1.0), (ANGLE, 3.0), (STAR, 2 * 5 * 0.4 * np.sin(np.pi / 5) / 2)])
def test_a_boundary_is_kept(ring, area):
    made = fenchel.mesh(boundary=ring, edge=0.08)
    assert made.areas.sum() == pytest.approx(area, rel=1e-9)
    assert made.angles.min() > 20.0
    corners = np.abs(made.nodes[:, None] - ring[None]).max(axis=2).min(axis=0)
    np.testing.assert_allclose(corners, 0.0, atol=1e-9)
    turned = fenchel.mesh(boundary=ring[::-1], edge=0.08)
    assert turned.areas.sum() == pytest.approx(area, rel=1e-9)


def test_holes_barriers_and_a_fine_boundary():
    hole = SQUARE * 0.4 + 0.3
    made = fenchel.mesh(boundary=SQUARE, holes=hole, edge=0.06)
    assert made.areas.sum() == pytest.approx(1.0 - 0.16, rel=1e-9)
    assert made.angles.min() > 20.0
    walled = fenchel.mesh(boundary=SQUARE, barriers=[hole], edge=0.06)
    assert walled.areas[walled.barrier].sum() == pytest.approx(0.16, rel=1e-9)
    assert walled.areas.sum() == pytest.approx(1.0, rel=1e-9)
    a = np.linspace(0, 2 * np.pi, 20001)[:-1]  # a coast with far more detail than edges
    coast = np.stack([np.cos(a), np.sin(a)], axis=1) * (1 + 0.01 * np.sin(300 * a))[:, None]
    shore = fenchel.mesh(boundary=coast, edge=0.1)
    assert shore.areas.sum() == pytest.approx(np.pi, rel=0.03)
    assert shore.angles.min() > 15.0
    assert shore.design(coast[::100] * 0.9999).shape[0] == 200  # within the slack of what was simplified


@pytest.mark.parametrize("seed", range(12))
def test_polygons_of_any_shape(seed):
    """Spikes and bays narrower than an edge: the area stays, and every triangle has one."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 60))
    a, r = np.sort(rng.uniform(0, 2 * np.pi, k)), rng.uniform(0.2, 1.0, k)
    ring = np.stack([np.cos(a) * r, np.sin(a) * r], axis=1) * 10.0 ** rng.uniform(-3, 3) + 100.0 * rng.normal(size=2)
    made = fenchel.mesh(boundary=ring, edge=np.ptp(ring, axis=0).max() / rng.integers(8, 60))
    assert made.areas.sum() == pytest.approx(abs(signed_area(ring)), rel=0.07)
    assert made.areas.min() > 0.0
    found, _ = made.where(made.nodes[made.triangles].mean(axis=1))
    np.testing.assert_array_equal(found, np.arange(len(made.triangles)))  # no two overlap


def test_districts_become_a_country():
    squares = [SQUARE, SQUARE + np.array([1, 0]), SQUARE + np.array([0, 1])]
    rings = dissolved(rings_of("here", "boundary", squares))
    assert len(rings) == 1
    points = RNG.uniform(-0.5, 2.5, (500, 2))
    any_of = np.zeros(500, dtype=bool)
    for low in ([0, 0], [1, 0], [0, 1]):
        any_of |= ((points > low) & (points < np.add(low, 1))).all(axis=1)
    np.testing.assert_array_equal(inside(points, rings), any_of)
    geojson = {"type": "Polygon", "coordinates": [[*ANGLE.tolist(), ANGLE[0].tolist()], (SQUARE * 0.4 + 0.2).tolist()]}
    made = fenchel.mesh(boundary=geojson, edge=0.1)
    assert made.areas.sum() == pytest.approx(3.0 - 0.16, rel=1e-9)
    germany = fenchel.datasets.load_germany()
    made = fenchel.mesh(boundary=[ring for district in germany.polygons for ring in district])
    centres = np.array([district[0].mean(axis=0) for district in germany.polygons])
    assert made.design(centres).shape == (544, made.n_nodes)


def test_odd_points():
    line = np.stack([np.linspace(0, 5, 40), 2 * np.linspace(0, 5, 40)], axis=1)
    assert fenchel.mesh(line).design(line).shape[0] == 40
    one = fenchel.mesh([[3.0, 4.0]], edge=1.0)
    np.testing.assert_allclose(one.design([[3.0, 4.0]]) @ one.nodes, [[3.0, 4.0]])
    with pytest.raises(ValueError, match=r"mesh: all points are one, \(3.0, 4.0\); expected points apart. With edge="):
        fenchel.mesh([[3.0, 4.0], [3.0, 4.0]])
    with pytest.raises(ValueError, match="neither points nor a boundary"):
        fenchel.mesh()
    with pytest.raises(ValueError, match=r"points has shape \(3,\); expected \(points, 2\)"):
        fenchel.mesh([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"points\[1, 0\] = nan is not finite"):
        fenchel.mesh([[0.0, 1.0], [np.nan, 1.0]])
    with pytest.raises(ValueError, match="makes more than 3000000 nodes; expected a longer edge"):
        fenchel.mesh(SQUARE, edge=1e-5)
    with pytest.raises(ValueError, match="a ring without an area"):
        fenchel.mesh(boundary=[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    with pytest.raises(ValueError, match="has no part as large as a triangle; expected a shorter edge"):
        fenchel.mesh(boundary=SQUARE, edge=5.0)


def test_points_outside_are_refused():
    made = fenchel.mesh(boundary=SQUARE, edge=0.1)
    assert made.design([[0.5, 1.05]]).shape == (1, made.n_nodes)  # within the slack: the nearest place inside
    near = made.design([[0.5, 1.05]])
    np.testing.assert_allclose(near @ made.nodes, [[0.5, 1.0]], atol=1e-12)
    sentence = r"Mesh: 2 of 3 points lie outside the mesh, \(9, 9\) by 11.31; expected points in its triangles"
    with pytest.raises(ValueError, match=sentence):
        made.design([[0.5, 0.5], [9.0, 9.0], [-3.0, 0.5]])


def test_points_are_found_as_by_scipy():
    X = RNG.random((400, 2))
    tri = Delaunay(RNG.random((60, 2)))
    made = Mesh(tri.points, tri.simplices)
    found, weights = made.where(X)
    theirs = tri.find_simplex(X)
    np.testing.assert_array_equal(found >= 0, theirs >= 0)
    np.testing.assert_array_equal(found[found >= 0], theirs[found >= 0])
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(again.where(X)[1], weights)


def test_finite_elements_are_integrals():
    tri = Delaunay(RNG.random((40, 2)))
    made = Mesh(tri.points, tri.simplices[:, ::-1])
    mass, G = finite_elements(made)
    assert mass.sum() == pytest.approx(made.areas.sum())
    np.testing.assert_allclose(G.sum(axis=0), 0.0, atol=1e-9)
    x, y = made.nodes.T
    assert x @ (G @ x) == pytest.approx(made.areas.sum())  # the integral of |grad x|^2
    assert y @ (G @ x) == pytest.approx(0.0, abs=1e-9)
    f = 3 * x - 2 * y + 1
    assert f @ (G @ f) == pytest.approx(13 * made.areas.sum())
    assert mass @ f == pytest.approx(sum(a * f[t].mean() for a, t in zip(made.areas, made.triangles, strict=True)))


def test_a_triangulation_of_ones_own():
    with pytest.raises(ValueError, match=r"triangles names nodes that there are not; expected integers 0, ..., 2"):
        Mesh([[0, 0], [1, 0], [0, 1]], [[0, 1, 3]])
    with pytest.raises(ValueError, match=r"the corners of triangles\[1\] lie on a line"):
        Mesh([[0, 0], [1, 0], [0, 1], [2, 0]], [[0, 1, 2], [0, 1, 3]])
    with pytest.raises(ValueError, match=r"nodes\[3\] is in no triangle"):
        Mesh([[0, 0], [1, 0], [0, 1], [2, 0]], [[0, 1, 2]])
    halves = Mesh(SQUARE, [[0, 1, 2], [0, 2, 3]], [False, True])
    assert repr(halves) == "Mesh(4 nodes, 2 triangles, 1 of them barriers, edge 1)"


def test_points_and_segments_by_numpy_are_those_of_the_compiled_loops(monkeypatch):
    from fenchel.gmrf import polygons

    rng = np.random.default_rng(0)
    ring = np.column_stack([np.cos(t := np.sort(rng.uniform(0, 6.28, 17))), np.sin(t)])
    points, a, b = rng.uniform(-1.5, 1.5, (60, 2)), ring, np.roll(ring, -1, axis=0)
    points[:5] = ring[:5]  # on a vertex
    few = polygons.windings(points, a, b), *polygons.nearest_segment(points, a, b)
    monkeypatch.setattr(polygons, "FEW_PAIRS", 0)
    many = polygons.windings(points, a, b), *polygons.nearest_segment(points, a, b)
    assert np.array_equal(few[0], many[0])
    assert np.array_equal(few[1], many[1])
    assert np.allclose(few[2:], many[2:], rtol=0.0, atol=1e-15)


def test_a_point_is_located_in_a_triangle_that_holds_it():
    mesh = fenchel.mesh(np.random.default_rng(0).random((40, 2)))
    corner, share = np.random.default_rng(1).integers(0, len(mesh.triangles), 300), np.random.default_rng(2)
    weights = share.dirichlet(np.ones(3), 300)
    points = np.einsum("nk,nkd->nd", weights, mesh.nodes[mesh.triangles[corner]])
    found, inside = mesh.where(points)
    assert np.array_equal(found, corner)
    assert np.allclose(inside, weights, atol=1e-9)
    assert (mesh.where(mesh.nodes)[0] >= 0).all()  # corners too
    beyond = mesh.nodes.max(axis=0) + np.array([[1.0, 1.0], [0.0, 50.0]])
    assert (mesh.where(beyond)[0] == -1).all()


def test_points_far_from_the_bulk_have_a_mesh_of_their_own():
    rng = np.random.default_rng(1)
    X = np.vstack([rng.random((120, 2)), [[-999.0, 0.3], [-999.1, 0.31], [40.0, 1e4]]])
    made, bulk = fenchel.mesh(X), fenchel.mesh(X[:120])
    assert [part.n_nodes for part in made.parts[:1]] == [bulk.n_nodes]
    assert len(made.parts) == 3
    assert made.edge == bulk.edge
    np.testing.assert_allclose(made.areas[: len(bulk.areas)], bulk.areas)
    corners = [signed_area(triangle) for triangle in made.nodes[made.triangles]]
    np.testing.assert_allclose(made.areas, corners, rtol=1e-6)
    W = made.design(X)
    np.testing.assert_allclose(W.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(W @ made.nodes, X, atol=1e-6)
    _, G = finite_elements(made)
    assert connected_components(G, directed=False)[0] == 3
    assert made.extent > 1e4
    assert not made.inside([[500.0, 500.0]]).any()
    again = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(again.where(X)[0], made.where(X)[0])


@pytest.mark.parametrize("n", [25, 400])
def test_usual_points_are_one_piece_in_any_units(n):
    rng = np.random.default_rng(n)
    for X in (
        rng.random((n, 2)),
        rng.normal(size=(n, 2)),
        np.repeat(rng.random((20, 2)), n // 5, axis=0) + 1e-6 * rng.normal(size=(20 * (n // 5), 2)),
        np.column_stack([np.arange(n), np.zeros(n)]),
    ):
        for unit in (1e-9, 1.0, 1e9):
            found = bulk_of(unit * X)
            assert not found.far.any()
            assert found.extent == pytest.approx(unit * np.ptp(X, axis=0).max())


def test_a_few_sites_far_apart_are_pieces():
    rng = np.random.default_rng(2)
    X = np.vstack([rng.random((40, 2)) + 100.0 * np.array(at) for at in ([0, 0], [1, 0], [0, 1])])
    found = bulk_of(X)
    np.testing.assert_array_equal(np.bincount(found.piece), [40, 40, 40])
    assert found.extent < 1.0
    one = bulk_of(X, link=200.0)  # where a field reaches that far
    assert not one.piece.any()
    with pytest.raises(ValueError, match=r"points\[120\] = \(1e\+30, 0\) lies .* times as far away as the other"):
        fenchel.mesh(np.vstack([X[:40], X[:40], X[:40], [[1e30, 0.0]]]))
