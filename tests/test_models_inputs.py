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
    np.testing.assert_allclose(found.coefficients["mean"], fitted.coefficients["mean"], rtol=1e-5)
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


def test_an_index_that_repeats_itself_and_counts_nothing(data, fitted):
    odd = data.set_index(pd.Index(["r"] * len(data)))
    found = fenchel.fit(FORMULA, odd)
    np.testing.assert_allclose(found.predict(), fitted.predict(), rtol=1e-9)
    assert list(found.predict().index) == ["r"] * len(data)
    assert list(fitted.predict(odd.head(2)).index) == ["r", "r"]
