"""Frames, graphs and outlines of the libraries that people have, and columns in whatever unit."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import fenchel

FORMULA = "y ~ x + b + (1|g) + rw1(day)"
EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("a", "d"), ("b", "e"), ("c", "f")]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame({"x": rng.normal(size=n), "g": np.array(list("abcdef"))[np.arange(n) % 6]})
    frame = frame.assign(b=rng.random(n) < 0.5, day=pd.date_range("2020-01-01", periods=20).repeat(6))
    return frame.assign(y=frame.x + 0.5 * (frame.g == "c") + rng.normal(size=n))


@pytest.fixture(scope="module")
def fitted(data):
    return fenchel.fit(FORMULA, data)


def _same(fitted, data, table):
    """A table is fitted and predicted as pandas' own."""
    found = fenchel.fit(FORMULA, table)
    np.testing.assert_allclose(found.coefficients["mean"], fitted.coefficients["mean"], rtol=1e-4)  # two searches
    np.testing.assert_allclose(fitted.predict(table), fitted.predict(data), rtol=1e-9)


# -- frames -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["plain", "lazy", "categories", "enum", "dates", "decimals"])
def test_polars(fitted, data, kind):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({name: data[name].to_list() for name in data})
    made = {
        "plain": lambda: frame,
        "lazy": lambda: frame.lazy(),
        "categories": lambda: frame.with_columns(pl.col("g").cast(pl.Categorical)),
        "enum": lambda: frame.with_columns(pl.col("g").cast(pl.Enum(list("abcdef")))),
        "dates": lambda: frame.with_columns(pl.col("day").cast(pl.Date)),
        "decimals": lambda: frame.with_columns(pl.col("x").cast(pl.Decimal(30, 20))),
    }[kind]()
    _same(fitted, data, made)


def test_missing_values_of_polars(data):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({name: data[name].to_list() for name in data})
    gone = frame.with_columns(
        pl.when(pl.int_range(pl.len()) != 3).then("x"), pl.when(pl.int_range(pl.len()) != 5).then("y")
    )
    fit = fenchel.fit(FORMULA, gone)
    want = fenchel.fit(FORMULA, data.assign(x=data.x.where(data.index != 3), y=data.y.where(data.index != 5)))
    assert fit.model.dropped.n == 1
    np.testing.assert_allclose(fit.predict(), want.predict(), rtol=1e-6)


def test_arrow(fitted, data):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({name: pa.array(data[name].to_list()) for name in data})
    _same(fitted, data, table)
    _same(fitted, data, table.to_batches()[0])
    _same(fitted, data, table.set_column(1, "g", table["g"].dictionary_encode()))
    _same(fitted, data, table.to_pandas(types_mapper=pd.ArrowDtype))


def test_dates_and_decimals_as_python_has_them(fitted, data):
    days = [day.date() for day in data.day]
    assert isinstance(days[0], datetime.date)
    _same(fitted, data, data.assign(day=days, x=[Decimal(repr(float(v))) for v in data.x]))


# -- graphs -----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def mapped(data):
    near = {name: [b for a, b in EDGES if a == name] for name in "abcdef"}
    return fenchel.fit("y ~ x + icar(g)", data, graphs={"g": near})


def _same_map(mapped, data, graph):
    found = fenchel.fit("y ~ x + icar(g)", data, graphs={"g": graph})
    assert found.elbo == pytest.approx(mapped.elbo, abs=1e-6)
    np.testing.assert_allclose(found.effects["g"]["mean"].loc[list("abcdef")], mapped.effects["g"]["mean"], atol=1e-5)


@pytest.mark.parametrize("make", [list, np.array, lambda edges: pd.DataFrame(edges, columns=["from", "to"])])
def test_lists_of_edges(mapped, data, make):
    _same_map(mapped, data, make(EDGES))


def test_edges_in_polars(mapped, data):
    pl = pytest.importorskip("polars")
    _same_map(mapped, data, pl.DataFrame(EDGES, schema=["from", "to"], orient="row"))


def test_networkx(mapped, data):
    nx = pytest.importorskip("networkx")
    _same_map(mapped, data, nx.Graph(EDGES))
    _same_map(mapped, data, nx.DiGraph(EDGES))


def _squares():
    gpd, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    boxes = [shapely.box(2 * i, 0, 2 * i + 2, 1) for i in range(3)] + [
        shapely.box(2 * i, 1, 2 * i + 2, 2) for i in range(3)
    ]
    return gpd.GeoDataFrame({"g": list("abcdef"), "geometry": boxes})


def test_outlines_of_geopandas(data):
    frame = _squares()
    one = fenchel.fit("y ~ x + icar(g)", data, graphs={"g": frame})  # by its column
    for other in (frame.set_index("g"), frame.set_index("g").geometry):
        assert fenchel.fit("y ~ x + icar(g)", data, graphs={"g": other}).elbo == pytest.approx(one.elbo, abs=1e-9)
    pytest.importorskip("matplotlib").use("Agg")
    assert one.plot_map("g", frame.set_index("g")) is not None


def test_data_with_outlines(fitted, data):
    gpd, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    placed = gpd.GeoDataFrame(data, geometry=[shapely.Point(i, i) for i in range(len(data))])
    assert fenchel.fit(FORMULA, placed).elbo == pytest.approx(fitted.elbo, abs=1e-9)
    every = fenchel.fit("y ~ .", placed.drop(columns="day"))
    assert not any("geometry" in name for name in every.coefficients.index)


def test_libpysal(data):
    libpysal = pytest.importorskip("libpysal")
    frame = _squares().set_index("g")
    queen = fenchel.fit("y ~ x + icar(g)", data, graphs={"g": frame}).elbo
    W = libpysal.weights.Queen.from_dataframe(frame, use_index=True)
    G = libpysal.graph.Graph.build_contiguity(frame, rook=False)
    for graph in (W, G, G.transform("r")):
        assert fenchel.fit("y ~ x + icar(g)", data, graphs={"g": graph}).elbo == pytest.approx(queen, abs=1e-6)


# -- units ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1000.0), (0.0, 1e-3), (1e6, 1.0), (-5.0, 1.0)])
@pytest.mark.parametrize("formula", ["y ~ x + (x|g)", "y ~ x*b + (1|g)", "y ~ s(x, k=6)"])
def test_units_and_origins_do_not_matter(data, formula, shift, scale):
    one = fenchel.fit(formula, data)
    two = fenchel.fit(formula, data.assign(x=shift + scale * data.x))
    np.testing.assert_allclose(two.predict(), one.predict(), atol=1e-6)
    assert two.elbo == pytest.approx(one.elbo, abs=1e-5)


def test_the_origin_does_not_matter_beside_a_level_with_one_row():
    """x:f[c] is then a multiple of f[c]: the prior covariance of eta is that of columns about their means."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=12), "f": ["a", "b"] * 5 + ["b", "c"], "y": rng.normal(size=12)})
    with pytest.warns(UserWarning, match="linear combination of 'f\\[T.c\\]'"):
        models = [fenchel.Model("y ~ x*f", data.assign(x=data.x + shift), "gaussian") for shift in (0.0, 7.0)]
    x, b, c = data.x - data.x.mean(), data.f == "b", data.f == "c"
    Z = np.stack([x, b, c, x * b, x * c], axis=1).astype(float)
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    for model in models:
        S = model.sum.fixed_variance[0] * (1.0 + Z @ Z.T)
        tail = model.sum.columns.tail(model.sum.X, True)
        np.testing.assert_allclose(tail * model.sum.fixed_variance @ tail.T, S, rtol=1e-9)


def test_an_index_that_repeats_itself_and_counts_nothing(data, fitted):
    odd = data.set_index(pd.Index(["r"] * len(data)))
    found = fenchel.fit(FORMULA, odd)
    np.testing.assert_allclose(found.predict(), fitted.predict(), rtol=1e-9)
    assert list(found.predict().index) == ["r"] * len(data)
    assert list(fitted.predict(odd.head(2)).index) == ["r", "r"]


@pytest.mark.parametrize(
    "formula",
    ["x * f", "x + I(x**2)", "s(z)", "te(x, z)", "s(x) + s(z) + ti(x, z)", "(x|g)", "(x||g)", "(1|g) + iid(h, by=x)"],
)
def test_a_row_of_weight_three_is_the_row_three_times(formula):
    rng = np.random.default_rng(3)
    n = 40
    data = pd.DataFrame({"x": rng.normal(5.0, 1.0, n), "z": rng.uniform(0.0, 9.0, n), "f": rng.choice(["a", "b"], n)})
    data["g"], data["h"] = rng.choice(list("abcd"), n), rng.choice(list("uvw"), n)
    data["y"] = rng.poisson(np.exp(0.2 * data.x + np.sin(data.z)))
    data["w"] = rng.integers(1, 4, n)
    model = fenchel.Model(f"y ~ {formula}", data, "poisson", weights="w")
    repeated = data.loc[np.repeat(data.index, data.w)].reset_index(drop=True)
    other = fenchel.Model(f"y ~ {formula}", repeated, "poisson")
    theta = np.zeros(model.sum.family().theta.size) + 0.3  # the same model, so the same evidence at any theta
    one, two = (
        fenchel.infer(m.target.likelihood, m.sum.family().at(theta), m.target.y, weights=m.target.weights)
        for m in (model, other)
    )
    assert one.elbo == pytest.approx(two.elbo, abs=1e-6)
    table, again = model.sum.new_rows(theta, model.table(data)), other.sum.new_rows(theta, other.table(data))
    np.testing.assert_allclose(
        one.posterior.predict_mean(design=table.design), two.posterior.predict_mean(design=again.design), atol=1e-6
    )


@pytest.mark.skipif(int(pd.__version__.partition(".")[0]) < 3, reason="pandas 2 takes no rows of such columns")
def test_numbers_in_the_byte_order_of_another_machine(data):
    data = data.assign(k=np.arange(len(data)) % 3)[["x", "k", "y"]]
    other = pd.DataFrame({name: data[name].to_numpy().astype(data[name].dtype.newbyteorder(">")) for name in data})
    fits = fenchel.fit("y ~ x + C(k) + (1|k)", data), fenchel.fit("y ~ x + C(k) + (1|k)", other)
    assert np.array_equal(fits[0].predict(data), fits[1].predict(other))
    assert np.array_equal(fits[0].predict(other), fits[1].predict(data))
