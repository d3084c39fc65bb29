"""What somebody who comes from lme4 or INLA tries first: graphs, group ids, maps, tables, dates with holes."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fenchel import gmrf
from fenchel.estimators import GMRFRegressor

TOWNS = ["Ruegen", "Stralsund", "Rostock", "Wismar"]
LINE = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)  # a path through the towns


def rows(names=TOWNS, times=3, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"town": np.repeat(names, times)})
    return X, rng.poisson(3.0, len(X)).astype(float)


def towns(graph, levels=None, **options):
    X, y = rows()
    levels = None if levels is None else {"town": levels}
    return GMRFRegressor({"town": ("icar", graph)}, levels=levels, learn=False, **options).fit(X, y)


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
        assert towns(holes.fillna(0)).elbo_ == pytest.approx(towns(frame).elbo_, abs=1e-12)


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
        assert towns({town: iter(others) for town, others in near.items()}).elbo_ == right.elbo_
    assert right.elbo_ == pytest.approx(towns(LINE, TOWNS).elbo_, abs=1e-10)
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
    with pytest.warns(UserWarning, match=r"graph of 'town' names 'Stralsumd' only beside others, and X\['town'\]"):
        model = towns(near)
    assert len(model.levels_["town"]) == 5
    with pytest.raises(ValueError, match=r"the graph names 'Stralsumd', which levels\['town'\] does not"):
        towns(near, TOWNS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        towns(near, [*TOWNS, "Stralsumd"])


def test_outlines_are_no_graph():
    ring = [[[0, 0], [1, 0], [1, 1], [0, 0]]]
    feature = {"type": "Feature", "id": "a", "geometry": {"type": "Polygon", "coordinates": ring}, "properties": {}}
    sentence = r"'town' holds outlines, not neighbours; expected \{region: \[its neighbours\]\}.*fenchel.neighbours"
    for outlines in ({"type": "FeatureCollection", "features": [feature]}, feature, feature["geometry"]):
        with pytest.raises(ValueError, match=sentence):
            towns(outlines)


def test_a_list_of_tuples_is_an_edge_list():
    path = np.diag(np.ones(2), 1) + np.diag(np.ones(2), -1)
    np.testing.assert_array_equal(gmrf.as_adjacency([(0, 1), (1, 2)], n=3).toarray(), path)
    np.testing.assert_array_equal(gmrf.as_adjacency([(0, 1), (1, 0)], n=2).toarray(), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(gmrf.as_adjacency([[0, 1], [1, 0]]).toarray(), [[0, 1], [1, 0]])  # rows of a matrix
    with pytest.raises(ValueError, match=r"graph is a list of 2 edges; expected how many nodes .* Pass n"):
        gmrf.as_adjacency([(0, 1), (1, 2)])
    with pytest.raises(ValueError, match=r"Edges of a graph are pairs of integers; networkx"):
        gmrf.as_adjacency([("a", "b"), ("b", "c")], n=3)
    with pytest.raises(ValueError, match=r"'town' is a list of 2 edges; expected its nodes as well"):
        towns([(0, 1), (1, 2)])
    right = towns(LINE, TOWNS).elbo_
    assert towns([(0, 1), (1, 2), (2, 3)], TOWNS).elbo_ == pytest.approx(right, abs=1e-10)
    named = list(itertools.pairwise(TOWNS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert towns(named).elbo_ == pytest.approx(right, abs=1e-10)
        island = towns(named[:2], TOWNS)
    alone = LINE.copy()
    alone[2, 3] = alone[3, 2] = 0.0
    assert island.elbo_ == pytest.approx(towns(alone, TOWNS).elbo_, abs=1e-10)
    with pytest.warns(UserWarning, match="names 'Wismra' only beside others"):
        towns([*named, ("Wismar", "Wismra")])
    X, y = rows([1, 2, 3, 4])  # numbers that are names: (1, 2) are the first two, not the second and third
    numbered = GMRFRegressor({"town": ("icar", [(1, 2), (2, 3)])}, levels={"town": [1, 2, 3, 4]}, learn=False)
    assert numbered.fit(X, y).elbo_ == pytest.approx(island.elbo_, abs=1e-10)
    numbered.set_params(effects={"town": ("icar", [(0, 1), (1, 2)])})
    with pytest.raises(ValueError, match=r"levels\['town'\] has 4 entries and the graph 5 nodes"):
        numbered.fit(X, y)


# -- groups ----------------------------------------------------------------------------------------------
def grouped(ids, **options):
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"g": np.repeat(np.array(ids, dtype=object), 4)})
    y = rng.normal(np.repeat(rng.normal(0, 2, len(ids)), 4), 0.5)
    return GMRFRegressor({"g": "iid"}, likelihood="gaussian", learn=False, **options).fit(X, y), X, y


@pytest.mark.parametrize(
    ("ids", "other", "sentence"),
    [
        ([10, 20, 30], "10", r"X\[0, 'g'\] = '10' is text and the levels are numbers; .* X\['g'\]\.astype\(int\)"),
        ([0.5, 1.5], "0.5", r"'0.5' is text and the levels are numbers; .* X\['g'\]\.astype\(float\)"),
        (["10", "20"], 10, r"X\[0, 'g'\] = 10 is numbers and the levels are text; .* X\['g'\]\.astype\(str\)"),
        (["10", "20"], 10.0, r"10.0 is numbers and the levels are text; .* X\['g'\]\.astype\(int\)\.astype\(str\)"),
        (list(pd.date_range("2020", periods=3)), "2020-01-01", r"the levels are dates; .* pandas\.to_datetime\(X\['g'"),
    ],
)
def test_groups_of_another_sort_are_not_new_groups(ids, other, sentence):
    model, X, y = grouped(ids)
    new = pd.DataFrame({"g": pd.Series([other], dtype=object)})
    for ask in (model.predict, lambda X: model.score(X, y[:1])):
        with pytest.raises(ValueError, match=sentence):
            ask(new)
    np.testing.assert_allclose(model.predict(X)[::4], [model.predict(X[X["g"] == i])[0] for i in ids])


def test_new_groups_of_the_right_sort_come_from_the_population():
    for ids, new in (([10, 20, 30], [40, 50.0]), (["a", "b"], ["c", "d"]), (["a", 1], ["c", 2])):
        model, _, _ = grouped(ids)
        made = model.predict(pd.DataFrame({"g": pd.Series(new, dtype=object)}))
        np.testing.assert_allclose(made, model.intercept_, atol=1e-10)
    towned = towns(LINE, TOWNS)
    with pytest.raises(ValueError, match=r"X\[0, 'town'\] = 3 is numbers and the levels are text; expected one of 4"):
        towned.predict(pd.DataFrame({"town": [3]}))


def test_n_counts_observed_rows():
    X = pd.DataFrame({"g": list("aaabbbccc")})
    y = np.array([1.0, 2, np.nan, 4, 0, 5, 2, 1, 3])
    exposure = np.array([1.0, 1, 1, 1, 0, 1, 1, 1, 1])
    weight = np.array([1.0, 1, 1, 1, 1, 1, 0, 0, 2])
    model = GMRFRegressor({"g": "iid"}, learn=False).fit(X, y, exposure=exposure, sample_weight=weight)
    assert model.effects_["g"]["n"].tolist() == [2, 2, 1]
    trials = np.array([5, 5, 5, 5, 0, 5, 5, 5, 5])
    y = np.where(trials == 0, 0, np.nan_to_num(y))
    model = GMRFRegressor({"g": "iid"}, "binomial", learn=False).fit(X, y, trials=trials)
    assert model.effects_["g"]["n"].tolist() == [3, 2, 3]


# -- sentences -------------------------------------------------------------------------------------------
def test_a_missing_group_is_told_what_can_be_done():
    model, X, y = grouped([1, 2])
    hole = X.assign(g=[np.nan, *X["g"][1:]])
    with pytest.raises(ValueError, match=r"is NaN or inf; .* Drop the row\. A group that fit has not seen is predict"):
        model.predict(hole)
    with pytest.raises(ValueError, match=r"is NaN or inf; .* Drop the row, or give what is missing a level of its own"):
        model.fit(hole, y)


@pytest.mark.parametrize("likelihood", ["poisson", "student-t", "negative-binomial", "gamma"])
def test_noise_variance_belongs_to_gaussian_noise(likelihood):
    X, y = rows()
    sentence = f'noise_variance meets likelihood="{likelihood}"; expected noise_variance with "gaussian" alone'
    with pytest.raises(ValueError, match=sentence):
        GMRFRegressor({"town": "iid"}, likelihood, noise_variance=2.0).fit(X, y + 1)
    kept = GMRFRegressor({"town": "iid"}, "gaussian", noise_variance=2.0, learn=False).fit(X, y)
    assert kept.likelihood_.variance == pytest.approx(2.0)


def test_noise_variance_beside_a_likelihood_of_the_users():
    from fenchel import Gaussian

    X, y = rows()
    with pytest.raises(ValueError, match=r"noise_variance meets .* A Likelihood brings its own parameters"):
        GMRFRegressor({"town": "iid"}, Gaussian(1.0), noise_variance=2.0).fit(X, y)


def test_columns_that_are_not_there():
    X, y = rows()
    X["E"] = np.linspace(1.0, 2.0, len(X))
    model = GMRFRegressor({"town": "iid"}, exposure="E", learn=False).fit(X, y)
    with pytest.raises(ValueError, match=r"X has no column 'E', where .* exposure; .* exposure=1 gives a rate"):
        model.predict(X[["town"]])
    rate = model.predict(X[["town"]], exposure=1)
    np.testing.assert_allclose(rate * X["E"], model.predict(X), rtol=1e-12)
    with pytest.raises(ValueError, match=r"X has no column 'town': it has 'E'; expected every column that the model u"):
        model.predict(X[["E"]])


# -- tables of many levels -------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["iid", "rw1", "rw2", "ar1", "seasonal", "icar", "bym", "bym2", "leroux"])
def test_effects_are_those_of_the_whole_inverse(kind):
    """Var[w'z] = w' A^-1 w with the dense inverse, under the constraints, at levels with data and without."""
    n, rng = 90, np.random.default_rng(3)
    level = rng.integers(0, n - 5, 150)  # some levels have no data
    ring = np.roll(np.eye(n), 1, axis=1)
    spec = {"seasonal": ("seasonal", 6)}.get(kind, kind)
    spec = (kind, ring + ring.T) if kind in ("icar", "bym", "bym2", "leroux") else spec
    X = pd.DataFrame({"t": level, "x": rng.normal(size=150)})
    y = rng.poisson(2.0, 150)
    model = GMRFRegressor({"t": spec}, levels={"t": range(n)}, learn=False).fit(X, y)
    table, posterior = model.effects_["t"], model.solution_.posterior
    solves = np.array([np.ravel(posterior.predict(design=row)[1])[0] for row in _rows_of(model)])
    dense = _dense_covariance(model)
    for i, row in enumerate(_rows_of(model)):
        w = row.toarray().ravel()
        assert table["sd"].iloc[i] ** 2 == pytest.approx(w @ dense @ w, rel=1e-7)
        assert table["sd"].iloc[i] ** 2 == pytest.approx(solves[i], rel=1e-8)  # one row at a time is solved for
    prediction = posterior.predict(design=sp.vstack(_rows_of(model)))
    np.testing.assert_allclose(prediction[0], table["mean"], atol=1e-10)


def _rows_of(model):
    _, rows = model._sum.effects[0].shown()
    own = rows.design
    trend = rows.fixed / model._columns.scale[1:]  # the covariate's comes first
    tail = np.hstack([np.zeros((own.shape[0], 2)), trend])
    both = sp.hstack([own, sp.csr_array(tail)], format="csr")
    return [both[[i]] for i in range(own.shape[0])]


def _dense_covariance(model):
    """(Q + W' Lam W)^-1 on the null space of the constraints, by an orthonormal basis of it."""
    prior = model._latent.family().at(model.theta_[: model._latent.family().theta.size])
    Q, W, lam = prior.precision.toarray(), prior.design.toarray(), np.ravel(model.solution_.posterior._lam)
    A = Q + W.T @ (lam[:, None] * W)
    if prior.constraint is None:
        return np.linalg.inv(A)
    C = prior.constraint.C
    basis = np.linalg.svd(C)[2][C.shape[0] :].T
    return basis @ np.linalg.solve(basis.T @ A @ basis, basis.T)


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
    model = GMRFRegressor({"t": "rw1"}, learn=False).fit(pd.DataFrame({"t": kept}), y)
    assert model.levels_["t"] == list(dates)
    numbers = pd.DataFrame({"t": np.delete(np.arange(len(dates)), hole)})
    steps = GMRFRegressor({"t": "rw1"}, learn=False).fit(numbers, y)
    assert model.elbo_ == pytest.approx(steps.elbo_, abs=1e-10)
    np.testing.assert_allclose(model.effects_["t"]["mean"], steps.effects_["t"]["mean"], atol=1e-10)
    assert (model.effects_["t"]["n"].to_numpy() == 0).sum() == len(hole)


def test_dates_without_a_step_are_told_of_one_that_works():
    y = np.arange(1.0, 16.0)
    working = pd.DataFrame({"t": pd.bdate_range("2020-01-01", periods=15)})
    model = GMRFRegressor({"t": "rw1"}, learn=False)
    with pytest.raises(ValueError, match=r"none is a Saturday or Sunday; .* levels=\{'t': pandas\.bdate_range\(X\['t'"):
        model.fit(working, y)
    named = {"t": pd.bdate_range(working["t"].min(), working["t"].max())}
    assert len(model.set_params(levels=named).fit(working, y).levels_["t"]) == 15
    odd = pd.DataFrame({"t": pd.to_datetime(["2020-01-01", "2020-01-03", "2020-01-06"])})
    model = GMRFRegressor({"t": "rw1"}, learn=False)
    with pytest.raises(ValueError, match=r"not equally spaced; .* pandas\.date_range\(X\['t'\]\.min\(\), .*, freq="):
        model.fit(odd, y[:3])
    named = {"t": pd.date_range(odd["t"].min(), odd["t"].max(), freq="D")}
    assert len(model.set_params(levels=named).fit(odd, y[:3]).levels_["t"]) == 6
