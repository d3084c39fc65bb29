"""What a user of maps, processes and integrated fits tripped over."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import fenchel
from fenchel.gmrf.space import as_adjacency


def rectangles(corners):
    """GeoJSON of rectangles (x, y, width, height), with the ids 0, 1, ..."""
    features = []
    for i, (x, y, w, h) in enumerate(corners):
        ring = [[x, y], [x + w, y], [x + w, y + h], [x, y + h], [x, y]]
        features.append({"type": "Feature", "id": i, "geometry": {"type": "Polygon", "coordinates": [ring]}})
    return {"type": "FeatureCollection", "features": features}


def n_pairs(graph):
    return sum(map(len, graph.values())) // 2


def squares(names, key=None):
    features = []
    for i, name in enumerate(names):
        ring = [[i, 0], [i + 1, 0], [i + 1, 1], [i, 1], [i, 0]]
        properties = {} if key is None else {key: name, "other": i}
        features.append(
            {"type": "Feature", "properties": properties, "geometry": {"type": "Polygon", "coordinates": [ring]}}
        )
    return {"type": "FeatureCollection", "features": features}


@pytest.fixture(scope="module")
def chain():
    names = [f"R{i}" for i in range(8)]
    graph = {a: [b for j, b in enumerate(names) if abs(i - j) == 1] for i, a in enumerate(names)}
    data = pd.DataFrame({"name": names * 3, "y": np.random.default_rng(0).poisson(4, 24)})
    return fenchel.fit("y ~ icar(name)", data, family="poisson", graphs={"name": graph}), names


def test_regions_go_by_any_property_that_names_them(chain):
    fit, names = chain
    shuffled = names[::-1]
    drawn = fit.plot_map("name", squares(shuffled, "NUTS")).collections[0].get_array()
    assert np.allclose(drawn, fit.effects["name"]["relative_risk"].loc[shuffled])


def test_outlines_that_name_no_region_are_refused(chain):
    fit, names = chain
    with pytest.raises(ValueError, match="holds the regions"):
        fit.plot_map("name", squares(names))


def test_outlines_that_are_none_are_refused():
    for ring, sentence in (
        ([[0, 0], [1, 1]], r"neighbours: an outline of district 1 has shape \(2, 2\); .*three or more"),
        ([[0, 0], [1, 0], [1, 1], [np.nan, np.nan], [3, 3], [4, 3], [4, 4]], "district 1 has a vertex that is NaN"),
    ):
        made = squares("ab")
        made["features"][1]["geometry"]["coordinates"] = [ring]
        with pytest.raises(ValueError, match=sentence):
            fenchel.neighbours(made)
    for given, sentence in (
        ({"type": "FeatureCollection", "features": []}, "there are no outlines"),
        ({"a": [[0, 0], [1, 0], [1, 1]]}, "the outlines are a dict without a type; expected GeoJSON"),
        (3, "the outlines are a int; expected GeoJSON"),
    ):
        with pytest.raises(ValueError, match=sentence):
            fenchel.neighbours(given)


def test_integrated_fits_have_a_page_and_a_file(tmp_path):
    data = pd.DataFrame({"g": np.arange(40) % 5, "y": np.random.default_rng(1).poisson(3, 40)})
    fit = fenchel.fit("y ~ (1|g)", data, family="poisson", integrate=True)
    assert "integrated out" in fit.report(tmp_path / "page.html").read_text()
    fit.save(tmp_path / "model")
    again = fenchel.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(data), fit.predict(data), rtol=1e-12)
    np.testing.assert_array_equal(again.hyperparameters, fit.hyperparameters)


def test_processes_are_drawn_as_curves_and_surfaces():
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"a": rng.uniform(size=25), "b": rng.uniform(size=25)})
    data["y"] = np.sin(4 * data.a) + 0.2 * rng.normal(size=25)
    assert len(fenchel.fit("y ~ gp(a)", data).plot("gp(a)").lines[0].get_xdata()) == 25
    drawn = fenchel.fit("y ~ gp(a, b, isotropic=True)", data).plot("gp(a,b,isotropic=True)")
    first = np.ravel(np.asarray(drawn, dtype=object))[0]
    assert first.collections


def test_a_dict_names_its_regions_by_whole_numbers():
    graph = {i: [j for j in (i - 1, i + 1) if 0 <= j < 12] for i in range(12)}
    data = pd.DataFrame({"id": range(1, 12), "y": 5})
    fit = fenchel.fit("y ~ icar(id)", data, family="poisson", graphs={"id": graph})
    assert list(fit.effects["id"].index) == list(range(12))


def test_bricks_have_the_neighbours_above_and_below_them():
    bricks = [(2 * i + j % 2, j, 2, 1) for j in range(8) for i in range(8)]
    for contiguity in ("queen", "rook"):
        assert n_pairs(fenchel.neighbours(rectangles(bricks), contiguity=contiguity)) == 8 * 7 + 7 * 15
    rng = np.random.default_rng(0)
    moved = [(x + dx, y + dy, w, h) for (x, y, w, h), (dx, dy) in zip(bricks, 3e-5 * rng.normal(size=(64, 2)))]
    for contiguity in ("queen", "rook"):
        assert n_pairs(fenchel.neighbours(rectangles(moved), contiguity=contiguity)) == 8 * 7 + 7 * 15
    assert n_pairs(fenchel.neighbours(rectangles(moved), contiguity="rook", tolerance=1e-3)) == 8 * 7 + 7 * 15


def test_queens_and_rooks_on_a_board():
    board = [(i, j, 1, 1) for i in range(5) for j in range(5)]
    graphs = [fenchel.neighbours(rectangles(board), contiguity=word) for word in ("rook", "queen")]
    for graph, order in zip(graphs, (1.0, np.inf), strict=True):
        apart = [(a, b) for a in range(25) for b in range(25) if a != b]
        near = {(a, b) for a, b in apart if np.linalg.norm(np.subtract(divmod(a, 5), divmod(b, 5)), order) == 1}
        assert {(a, b) for a, others in graph.items() for b in others} == near
    with pytest.raises(ValueError, match=r"contiguity = 'bishop' is not known; expected 'queen' or 'rook'"):
        fenchel.neighbours(rectangles(board), contiguity="bishop")


def test_a_region_without_an_outline_is_refused():
    geopandas = pytest.importorskip("geopandas")
    from shapely.geometry import box

    frame = geopandas.GeoDataFrame(geometry=[box(0, 0, 1, 1), None, box(1, 0, 2, 1)], index=["a", "b", "c"])
    with pytest.raises(ValueError, match="the outline of 'b' is missing; expected a polygon for every region"):
        fenchel.neighbours(frame)
    assert fenchel.neighbours(frame[frame.geometry.notna()]) == {"a": ["c"], "c": ["a"]}


def test_matrices_that_are_no_adjacency_are_refused():
    rng = np.random.default_rng(0)
    X = rng.random((8, 2))
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    with pytest.raises(ValueError, match=r"100% of all pairs of nodes have a weight, .*expected weights of neighbours"):
        as_adjacency(D)
    near = (D > 0) & (D < 0.5)
    for weights in (near, D * near, near / np.maximum(near.sum(axis=1, keepdims=True), 1)):  # row-standardised
        np.testing.assert_array_equal(as_adjacency(np.asarray(weights, dtype=float)).toarray(), near)
    assert as_adjacency(1.0 - np.eye(8)).nnz == 56  # a complete graph is one, if said so
    assert as_adjacency(sp.csr_array(~np.eye(8, dtype=bool))).nnz == 56
    with pytest.raises(ValueError, match=r"graph\[0, 1\] = -0.5; expected 0, or a positive number"):
        as_adjacency(np.array([[0.0, -0.5], [-0.5, 0.0]]))


def test_a_summary_counts_pairs_islands_and_components():
    graph = {"a": ["b"], "b": ["a", "c"], "c": ["b"], "d": ["e"], "e": ["d"], "f": []}
    data = pd.DataFrame({"r": list("abcdef") * 2, "t": [0, 1] * 6, "y": np.arange(12) % 5})
    counts = "3 pairs of neighbours, 1 island, 3 components"
    for formula in ("y ~ bym2(r)", "y ~ interact(leroux(r), iid(t))"):
        assert counts in fenchel.fit(formula, data, family="poisson", graphs={"r": graph}).summary()


def test_names_of_a_matrix_without_names():
    data = pd.DataFrame({"r": ["r00", "r01", "r02"] * 3, "y": range(9)})
    A = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    with pytest.raises(ValueError, match=r"= 'r00' is a name and the nodes have none; .*levels=\{'r': \[...\]\} "):
        fenchel.Model("y ~ icar(r)", data, graphs={"r": A})
    fenchel.Model("y ~ icar(r)", data, graphs={"r": A}, levels={"r": ["r00", "r01", "r02"]})


def test_lines_of_regions_that_a_product_with_rw2_does_not_have():
    """On data of one slope a region: coverage of eta by 95 % intervals, and the remark that says why."""
    rng = np.random.default_rng(3)
    n, T = 12, 8
    graph = {i: [j for j in (i - 1, i + 1) if 0 <= j < n] for i in range(n)}
    c = np.arange(T) - (T - 1) / 2
    eta = 2.0 + 0.15 * rng.normal(size=n)[:, None] * c
    data = pd.DataFrame({"r": np.repeat(np.arange(n), T), "t": np.tile(np.arange(T), n), "c": np.tile(c, n)})
    data["y"] = rng.poisson(np.exp(eta)).ravel()
    covered = {}
    options = {"family": "poisson", "graphs": {"r": graph}}
    formula = "y ~ bym2(r) + rw2(t) + interact(icar(r), rw2(t))"
    with pytest.warns(UserWarning, match=r"free of straight lines in 't', so that all levels of 'r' have one slope"):
        covered["without"] = fenchel.fit(formula, data, **options)
    for slopes in ("icar(r, by=c)", "(0+c|r)"):
        covered[slopes] = fenchel.fit(f"{formula} + {slopes}", data, **options)
        assert not covered[slopes].remarks
    for key, fit in covered.items():
        lines = fit.predict(data, kind="link", interval=0.95)
        covered[key] = np.mean((lines["lower"] <= eta.ravel()) & (eta.ravel() <= lines["upper"]))
    assert covered["without"] < 0.75
    assert min(covered["icar(r, by=c)"], covered["(0+c|r)"]) > 0.9
