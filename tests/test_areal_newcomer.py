"""What somebody who comes from lme4 or INLA tries first: graphs, group ids, maps, tables, dates with holes."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import fit_at_start

import fenchel
from fenchel import gmrf

TOWNS = ["Ruegen", "Stralsund", "Rostock", "Wismar"]
LINE = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)  # a path through the towns


def rows(names=TOWNS, times=3, seed=0):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"town": np.repeat(names, times)})
    return data.assign(y=rng.poisson(3.0, len(data)).astype(float))


def towns(graph, levels=None, data=None):
    levels = None if levels is None else {"town": levels}
    data = rows() if data is None else data
    return fenchel.fit("y ~ icar(town)", data, "poisson", graphs={"town": graph}, levels=levels)


# -- graphs ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.coo_array, pd.DataFrame, np.ndarray.tolist])
def test_nan_is_no_neighbour(form):
    A = LINE.copy()
    A[0, 2] = A[2, 0] = np.nan
    with pytest.raises(ValueError, match=r"graph\[0, 2\] is NaN; expected 0 or a weight .*\.fillna\(0\).*nan_to_num"):
        gmrf.as_adjacency(form(A))
    np.testing.assert_array_equal(gmrf.as_adjacency(form(LINE)).toarray(), LINE)


def test_nan_in_a_named_adjacency():
    frame = pd.DataFrame(LINE, index=TOWNS, columns=TOWNS)
    for holes in (frame.replace(0.0, np.nan), frame.astype("Int64").replace(0, pd.NA)):
        with pytest.raises(ValueError, match=r"is NaN; .*\.fillna\(0\)"):
            towns(holes)
        assert towns(holes.fillna(0)).elbo == pytest.approx(towns(frame).elbo, abs=1e-12)


def test_a_graph_of_the_users_is_left_as_it_is():
    A = sp.csr_array(LINE)
    A.data[0] = A.data[1] = 0.0  # a stored zero on either side of an edge
    before = A.data.copy(), A.indices.copy(), A.indptr.copy()
    gmrf.as_adjacency(A)
    for now, then in zip((A.data, A.indices, A.indptr), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_neighbours_are_lists_of_names():
    near = {"Ruegen": ["Stralsund"], "Stralsund": ["Rostock"], "Rostock": ["Wismar"], "Wismar": []}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = towns(near)
        assert towns({town: iter(others) for town, others in near.items()}).elbo == right.elbo
    assert right.elbo == pytest.approx(towns(LINE, TOWNS).elbo, abs=1e-10)
    with pytest.raises(ValueError, match=r"neighbours of 'Ruegen' are 'Stralsund'; expected a list .*\['Stralsund'\]"):
        towns({"Ruegen": "Stralsund"})
    with pytest.raises(ValueError, match=r"neighbours of 'Ruegen' are 7; expected a list of neighbours"):
        towns({"Ruegen": 7})
    with pytest.raises(ValueError, match=r"a neighbour of 'Ruegen' is nan; expected a region's name"):
        towns({"Ruegen": [np.nan]})
    with pytest.raises(ValueError, match=r"a neighbour of 'Ruegen' is \['a'\]; expected a region's name"):
        towns({"Ruegen": [["a"]]})


def test_a_misspelt_neighbour_is_named():
    near = {"Ruegen": ["Stralsumd"], "Stralsund": ["Rostock", "Ruegen"], "Rostock": ["Wismar"], "Wismar": []}
    with pytest.warns(UserWarning, match=r"'icar\(town\)' names 'Stralsumd' only beside others, and the data do not"):
        model = towns(near)
    assert len(model.effects["town"]) == 5
    with pytest.raises(ValueError, match=r"the graph names 'Stralsumd', which levels\['icar\(town\)'\] does not"):
        towns(near, TOWNS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        towns(near, [*TOWNS, "Stralsumd"])


def test_a_list_of_tuples_is_an_edge_list():
    path = np.diag(np.ones(2), 1) + np.diag(np.ones(2), -1)
    np.testing.assert_array_equal(gmrf.as_adjacency([(0, 1), (1, 2)], n=3).toarray(), path)
    np.testing.assert_array_equal(gmrf.as_adjacency([(0, 1), (1, 0)], n=2).toarray(), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(gmrf.as_adjacency([[0, 1], [1, 0]]).toarray(), [[0, 1], [1, 0]])  # rows of a matrix
    with pytest.raises(ValueError, match=r"graph is a list of 2 edges; expected how many nodes .* Pass n"):
        gmrf.as_adjacency([(0, 1), (1, 2)])
    with pytest.raises(ValueError, match=r"Edges of a graph are pairs of integers; networkx"):
        gmrf.as_adjacency([("a", "b"), ("b", "c")], n=3)
    with pytest.raises(ValueError, match=r"'icar\(town\)' is a list of 2 edges; expected its nodes as well"):
        towns([(0, 1), (1, 2)])
    right = towns(LINE, TOWNS).elbo
    assert towns([(0, 1), (1, 2), (2, 3)], TOWNS).elbo == pytest.approx(right, abs=1e-10)
    named = list(itertools.pairwise(TOWNS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert towns(named).elbo == pytest.approx(right, abs=1e-10)
        island = towns(named[:2], TOWNS)
    alone = LINE.copy()
    alone[2, 3] = alone[3, 2] = 0.0
    assert island.elbo == pytest.approx(towns(alone, TOWNS).elbo, abs=1e-10)
    with pytest.warns(UserWarning, match="names 'Wismra' only beside others"):
        towns([*named, ("Wismar", "Wismra")])
    data = rows([1, 2, 3, 4])  # numbers that are names: (1, 2) are the first two, not the second and third
    numbered = towns([(1, 2), (2, 3)], [1, 2, 3, 4], data)
    assert numbered.elbo == pytest.approx(island.elbo, abs=1e-10)
    with pytest.raises(ValueError, match=r"levels\['icar\(town\)'\] has 4 entries and the graph 5 nodes"):
        towns([(0, 1), (1, 2)], [1, 2, 3, 4], data)


# -- groups ----------------------------------------------------------------------------------------------
def grouped(ids):
    rng = np.random.default_rng(1)
    y = rng.normal(np.repeat(rng.normal(0, 2, len(ids)), 4), 0.5)
    data = pd.DataFrame({"g": np.repeat(np.array(ids, dtype=object), 4), "y": y})
    return fenchel.fit("y ~ (1|g)", data), data


@pytest.mark.parametrize(
    ("ids", "other", "sentence"),
    [
        ([10, 20, 30], "10", r"X\[0, 'g'\] = '10' is text and the levels are numbers; .* X\['g'\]\.astype\(int\)"),
        ([0.5, 1.5], "0.5", r"'0.5' is text and the levels are numbers; .* X\['g'\]\.astype\(float\)"),
        (["10", "20"], 10, r"X\[0, 'g'\] = 10(\.0)? is numbers and the levels are text; .* X\['g'\]\.astype\("),
        (["10", "20"], 10.5, r"10.5 is numbers and the levels are text; .* X\['g'\]\.astype\(str\)"),
        (list(pd.date_range("2020", periods=3)), "2020-01-01", r"the levels are dates; .* pandas\.to_datetime\(X\['g'"),
    ],
)
def test_groups_of_another_sort_are_not_new_groups(ids, other, sentence):
    fit, data = grouped(ids)
    with pytest.raises(ValueError, match=sentence):
        fit.predict(pd.DataFrame({"g": pd.Series([other], dtype=object)}))
    np.testing.assert_allclose(fit.predict(data)[::4], [fit.predict(data[data["g"] == i]).iloc[0] for i in ids])


def test_new_groups_of_the_right_sort_come_from_the_population():
    for ids, new in (([10, 20, 30], [40, 50.0]), (["a", "b"], ["c", "d"]), ([10, 20, 30], ["new", "a 10"])):
        fit, _ = grouped(ids)
        made = fit.predict(pd.DataFrame({"g": pd.Series(new, dtype=object)}))
        np.testing.assert_allclose(made, fit.coefficients.loc["Intercept", "mean"], atol=1e-10)
    with pytest.raises(ValueError, match=r"X\[1, 'g'\] = '20' is text and the levels are numbers"):
        grouped([10, 20, 30])[0].predict(pd.DataFrame({"g": ["new", "20"]}))  # the name lets no number in
    towned = towns(LINE, TOWNS)
    with pytest.raises(ValueError, match=r"X\[0, 'town'\] = 3 is numbers and the levels are text; expected one of 4"):
        towned.predict(pd.DataFrame({"town": [3]}))


def test_n_counts_observed_rows():
    y = np.array([1.0, 2, np.nan, 4, 0, 5, 2, 1, 3])
    data = pd.DataFrame({"g": list("aaabbbccc"), "y": y, "E": [1.0, 1, 1, 1, 0, 1, 1, 1, 1]})
    weights = np.array([1.0, 1, 1, 1, 1, 1, 0, 0, 2])
    fit = fenchel.fit("y ~ (1|g)", data, "poisson", exposure="E", weights=weights)
    assert fit.effects["g"]["n"].tolist() == [2, 2, 1]
    trials = np.array([5, 5, 5, 5, 0, 5, 5, 5, 5])
    data = data.assign(y=np.where(trials == 0, 0, np.nan_to_num(y)), n=trials)
    fit = fenchel.fit("y | trials(n) ~ (1|g)", data, "binomial")
    assert fit.effects["g"]["n"].tolist() == [3, 2, 3]


def test_columns_that_are_not_there():
    data = rows()
    data["E"] = np.linspace(1.0, 2.0, len(data))
    fit = fenchel.fit("y ~ (1|town)", data, "poisson", exposure="E")
    with pytest.raises(ValueError, match=r"the new data have no column 'E'; .* exposure=1 gives a rate"):
        fit.predict(data[["town"]])
    rate = fit.predict(data[["town"]], exposure=1)
    np.testing.assert_allclose(rate * data["E"], fit.predict(data), rtol=1e-12)
    with pytest.raises(ValueError, match=r"there is no column 'town'"):
        fit.predict(data[["E"]])


# -- maps ------------------------------------------------------------------------------------------------
SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]])
SQUARES = [np.add(SQUARE, [3 * i, 0]) for i in range(4)]


def colours(ax):
    """The value drawn at each square, from left to right."""
    shapes = ax.collections[0]
    left = [path.vertices[:, 0].min() for path in shapes.get_paths()]
    return np.asarray(shapes.get_array())[np.argsort(left)].tolist()


def geojson(ids):
    shape = [{"type": "Polygon", "coordinates": [square.tolist()]} for square in SQUARES]
    features = [{"type": "Feature", "geometry": s, "properties": {}} for s in shape]
    return {"type": "FeatureCollection", "features": [{**f, "id": i} for f, i in zip(features, ids, strict=True)]}


class Frame(pd.DataFrame):
    """As much of a GeoDataFrame as a map needs."""

    @property
    def geometry(self):
        return geojson(range(4))


def test_maps_go_by_labels(tmp_path):
    pytest.importorskip("matplotlib")
    import json

    from fenchel.plots import plot_map

    risk = pd.Series([4.0, 3.0, 2.0, 1.0], index=TOWNS[::-1])
    frame = Frame({"name": TOWNS})
    named = Frame({"name": TOWNS}, index=TOWNS)
    (tmp_path / "map.json").write_text(json.dumps(geojson(TOWNS)))
    for outlines in (named, geojson(TOWNS), tmp_path / "map.json"):
        assert colours(plot_map(outlines, risk)) == [1.0, 2.0, 3.0, 4.0]
        assert colours(plot_map(outlines, risk.to_numpy())) == [4.0, 3.0, 2.0, 1.0]
        assert colours(plot_map(outlines, risk.reset_index(drop=True))) == [4.0, 3.0, 2.0, 1.0]
    with pytest.raises(ValueError, match=r"'Wismar' is none of 0, 1, 2, \.\.\..*set_index\(.*values\.to_numpy\(\)"):
        plot_map(frame, risk)
    for other in (geojson(["01", "02", "03", "04"]), Frame({"name": TOWNS}, index=[7, 8, 9, 10])):
        with pytest.raises(ValueError, match=r"not those of the districts: 'Wismar' is none of .*values\.to_numpy\(\)"):
            plot_map(other, risk)
    twice = pd.Series(risk.to_numpy(), index=[*TOWNS[:3], TOWNS[0]])
    with pytest.raises(ValueError, match="do not have the same labels, each once"):
        plot_map(named, twice)
    assert colours(plot_map([[square] for square in SQUARES], risk)) == [4.0, 3.0, 2.0, 1.0]  # no labels to go by


# -- dates -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dates", "hole"),
    [
        (pd.date_range("2020-01-01", periods=12, freq="D"), [3, 7, 8]),
        (pd.date_range("2020-01-06", periods=12, freq="7D"), [5]),
        (pd.date_range("2020-01-01 00:30", periods=30, freq="h"), [2, 20]),
        (pd.date_range("2020-01-01", periods=14, freq="MS"), [1, 6]),
        (pd.date_range("2020-01-31", periods=14, freq=pd.offsets.MonthEnd()), [1, 6]),
        (pd.date_range("2020-01-01", periods=9, freq="QS"), [4]),
        (pd.date_range("2015-07-01", periods=9, freq=pd.DateOffset(years=1)), [2, 3]),
        (pd.date_range("2020-01-01", periods=14, freq="MS", tz="Europe/Berlin"), [1, 6]),
        (pd.date_range("2020-01-01", periods=12, freq="D", tz="UTC"), [4]),
    ],
)
def test_holes_in_dates_are_filled(dates, hole):
    kept = dates.delete(hole)
    y = np.random.default_rng(0).poisson(3.0, len(kept)).astype(float)
    fit = fit_at_start("y ~ rw1(t)", pd.DataFrame({"t": kept, "y": y}))
    assert list(fit.effects["t"].index) == list(dates)
    numbers = pd.DataFrame({"t": np.delete(np.arange(len(dates)), hole), "y": y})
    steps = fit_at_start("y ~ rw1(t)", numbers)
    assert fit.elbo == pytest.approx(steps.elbo, abs=1e-10)
    np.testing.assert_allclose(fit.effects["t"]["mean"], steps.effects["t"]["mean"], atol=1e-10)
    assert (fit.effects["t"]["n"].to_numpy() == 0).sum() == len(hole)


def test_dates_without_a_step_are_told_of_one_that_works():
    """A term of steps as an object; ``rw1(t)`` of a formula is a walk in continuous time then."""
    y = np.arange(1.0, 16.0)
    working = pd.DataFrame({"t": pd.bdate_range("2020-01-01", periods=15), "y": y})
    with pytest.raises(
        ValueError, match=r"none is a Saturday or Sunday; .* levels=\{'t': pandas\.bdate_range\(data\['t'"
    ):
        fenchel.fit("y ~ 1", working, terms=[fenchel.terms.RW1("t")])
    odd = pd.DataFrame({"t": pd.to_datetime(["2020-01-01", "2020-01-03", "2020-01-06"]), "y": y[:3]})
    with pytest.raises(ValueError, match=r"not equally spaced; .* pandas\.date_range\(data\['t'\]\.min\(\), .*, freq="):
        fenchel.fit("y ~ 1", odd, terms=[fenchel.terms.RW1("t")])
    with pytest.raises(ValueError, match="the times 't' are not equally spaced"):
        fenchel.fit("y ~ 1", {"t": [0.0, 0.4, 3.1], "y": y[:3]}, terms=[fenchel.terms.RW1("t")])


def test_outlines_are_no_graph_of_a_term():
    town = {"type": "FeatureCollection", "features": []}
    data = {"town": ["a", "b", "a"], "y": [1.0, 2.0, 3.0]}
    with pytest.raises(ValueError, match="holds outlines, not neighbours"):
        fenchel.fit("y ~ 1", data, terms=[fenchel.terms.BYM2("town", town)])


def test_dates_that_are_no_regular_steps_are_a_walk_in_continuous_time():
    """Working days, and three odd days; levels make regular steps of them."""
    rng = np.random.default_rng(0)
    for times, levels in (
        (pd.bdate_range("2020-01-01", periods=15), pd.bdate_range),
        (pd.to_datetime(["2020-01-01", "2020-01-03", "2020-01-06"]), pd.date_range),
    ):
        data = pd.DataFrame({"t": times, "y": rng.poisson(3.0, len(times))})
        fit = fenchel.fit("y ~ rw1(t)", data, "poisson")
        assert isinstance(fit.model.sum.effects[0], fenchel.terms.Wiener)
        named = {"t": levels(times.min(), times.max())}
        stepped = fenchel.fit("y ~ rw1(t)", data, "poisson", levels=named)
        assert len(stepped.effects["t"]) == len(named["t"])
