"""The embedded data is what its README says."""

import re
from importlib.resources import files

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from fenchel import datasets
from fenchel.datasets import (
    load_germany,
    load_glass,
    load_house_votes,
    load_pima,
    load_stochvol,
    load_verbal_aggression,
    load_zoo,
)


def test_germany_counts():
    germany = load_germany()
    assert germany.Y.shape == germany.E.shape == germany.x.shape == germany.y.shape == (544,)
    assert germany.Y.sum() == 15466
    assert germany.E.sum() == pytest.approx(15466, abs=1e-6)
    assert (germany.Y.min(), germany.Y.max()) == (1, 501)
    assert germany.E.min() > 0
    assert len(germany.key) == len(set(germany.key)) == 544
    assert germany.state.count("Bavaria") == 96
    assert len(set(germany.state)) == 16


def test_germany_graph():
    A = load_germany().adjacency
    assert A.shape == (544, 544)
    assert A.nnz == 2 * 1416
    assert (A.data == 1.0).all()
    assert abs(A - A.T).nnz == 0
    assert A.diagonal().sum() == 0
    assert connected_components(A, directed=False)[0] == 1
    degree = A.sum(axis=1)
    assert (degree.min(), degree.max()) == (1, 11)


def test_germany_outlines_fit_their_points():
    germany = load_germany()
    assert len(germany.polygons) == 544
    for rings, x, y in zip(germany.polygons, germany.x, germany.y, strict=True):
        assert all(ring.ndim == 2 and ring.shape[1] == 2 and ring.dtype == np.float64 for ring in rings)
        corners = np.concatenate(rings)
        assert (corners.min(axis=0) <= (x, y)).all()
        assert (corners.max(axis=0) >= (x, y)).all()


def test_germany_neighbours_are_near():
    germany = load_germany()
    i, j = germany.adjacency.nonzero()
    apart = np.hypot(germany.x[i] - germany.x[j], germany.y[i] - germany.y[j])
    anywhere = np.hypot(germany.x[:, None] - germany.x, germany.y[:, None] - germany.y)
    assert np.median(apart) < 0.15 * np.median(anywhere)


def test_pima():
    pima = load_pima()
    assert pima.X.shape == (532, 7)
    assert pima.feature_names == ["npreg", "glu", "bp", "skin", "bmi", "ped", "age"]
    assert np.isfinite(pima.X).all()
    assert set(np.unique(pima.y)) == {0.0, 1.0}
    assert pima.y.sum() == 177
    assert (pima.train.sum(), pima.test.sum()) == (200, 332)


def test_glass():
    glass = load_glass()
    assert glass.X.shape == (214, len(glass.feature_names)) == (214, 9)
    assert np.isfinite(glass.X).all()
    assert np.bincount(glass.y.astype(int)).tolist() == [70, 76, 17, 13, 9, 29]
    assert len(glass.class_names) == 6
    assert (glass.X[38] == glass.X[39]).all()
    oxides = glass.X[:, 1:].sum(axis=1)
    assert ((oxides > 99) & (oxides < 101)).all()  # weight per cent


def test_stochvol():
    pound = load_stochvol()
    assert pound.returns.shape == pound.dates.shape == pound.rate.shape == (945,)
    assert (pound.returns == 0).sum() == 35
    assert str(pound.dates[0]) == "1981-10-02"
    assert (np.diff(pound.dates).astype(int) > 0).all()
    np.testing.assert_allclose(pound.returns[1:], 100 * np.diff(np.log(pound.rate)), atol=1e-6)


def test_house_votes():
    votes = load_house_votes()
    assert votes.X.shape == (435, len(votes.feature_names)) == (435, 16)
    assert np.isnan(votes.X).sum() == 392
    assert set(np.unique(votes.X[~np.isnan(votes.X)])) == {0.0, 1.0}
    assert ((votes.party == "democrat").sum(), (votes.party == "republican").sum()) == (267, 168)
    freeze = votes.X[:, votes.feature_names.index("physician fee freeze")]  # the vote that splits the parties
    assert np.nanmean(freeze[votes.party == "republican"]) > 0.95
    assert np.nanmean(freeze[votes.party == "democrat"]) < 0.1


def test_verbal_aggression():
    two, three = load_verbal_aggression(), load_verbal_aggression(categories=3)
    assert two.X.shape == three.X.shape == (316, 24)
    assert two.feature_names == three.feature_names
    assert set(np.unique(three.X)) == {0.0, 1.0, 2.0}
    np.testing.assert_array_equal(two.X, three.X > 0)
    assert ((two.gender == "female").sum(), (two.gender == "male").sum()) == (243, 73)
    with pytest.raises(ValueError, match="categories = 4 is not known; expected 2 or 3"):
        load_verbal_aggression(4)


def test_zoo():
    zoo = load_zoo()
    assert zoo.X.shape == (101, len(zoo.feature_names)) == (101, 16)
    legs = zoo.feature_names.index("legs")
    assert set(np.unique(zoo.X[:, legs])) == {0.0, 2.0, 4.0, 5.0, 6.0, 8.0}
    assert set(np.unique(np.delete(zoo.X, legs, axis=1))) == {0.0, 1.0}
    assert (zoo.type == "mammal").sum() == 41
    milk = zoo.X[:, zoo.feature_names.index("milk")]
    np.testing.assert_array_equal(milk == 1, zoo.type == "mammal")


@pytest.mark.parametrize("name", [name for name in datasets.__all__ if name.startswith("load_")])
def test_every_loader_says_where_its_data_is_from(name):
    data = getattr(datasets, name)()
    assert data.description
    assert data.attribution
    assert data.licence


def test_every_file_is_in_the_readme_with_its_licence():
    folder = files("fenchel.datasets").joinpath("data")
    rows = [line.split("|") for line in folder.joinpath("README.md").read_text(encoding="utf-8").splitlines()]
    origins = {row[1].strip(" `"): row[3] for row in rows if len(row) == 5 and row[1].startswith(" `")}
    assert set(origins) == {entry.name for entry in folder.iterdir() if entry.is_file()} - {"README.md"}
    for name, origin in origins.items():
        assert re.search("GPL|BSD|CC0|CC BY|Unlimited|as above", origin), name
