"""Pictures, pages and outlines of models."""

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.checks import Refusal
from fenchel.outlines import neighbours


def grid(n=4):
    """n x n squares, ids 0, 1, ... in rows, names in a property."""
    features = []
    for k in range(n * n):
        x, y = k % n, k // n
        ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
        shape = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "id": k, "properties": {"name": f"d{k}"}, "geometry": shape})
    return {"type": "FeatureCollection", "features": features}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    out = pd.DataFrame({"region": np.repeat(np.arange(16), 6), "year": np.tile(np.arange(2000, 2006), 16)})
    out["x"], out["name"] = rng.normal(size=96), [f"d{k}" for k in out.region]
    out["k"] = rng.poisson(np.exp(1 + 0.3 * out.x + 0.2 * (out.region % 4)))
    return out


@pytest.fixture(scope="module")
def fit(data):
    return fenchel.fit("k ~ x + bym2(region) + rw1(year)", data, "poisson", graphs={"region": grid()})


def test_neighbours_of_outlines():
    near = neighbours(grid())
    assert near[0] == [1, 4, 5]
    assert sorted(near[5]) == [0, 1, 2, 4, 6, 8, 9, 10]
    apart = {"type": "FeatureCollection", "features": [grid(9)["features"][k] for k in (0, 40, 80)]}
    with pytest.warns(UserWarning, match="3 of 3 regions touch no other"):
        assert neighbours(apart) == {0: [], 40: [], 80: []}
    twice = grid(2)
    twice["features"][1]["id"] = 0
    with pytest.raises(Refusal, match="the outlines name 0 twice"):
        neighbours(twice)


def test_outlines_are_a_graph(fit, data):
    by_hand = fenchel.fit("k ~ x + bym2(region) + rw1(year)", data, "poisson", graphs={"region": neighbours(grid())})
    assert fit.elbo == pytest.approx(by_hand.elbo, abs=1e-10)


def test_a_report_names_the_columns_of_the_data(tmp_path):
    """Not those that a Cox model makes; levels are levels where they are numbers, and names keep their case."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=80), "grade": np.arange(80) % 3, "g": np.arange(80) % 8})
    data["t"], data["seen"] = rng.exponential(size=80), 1
    pages = [
        fenchel.fit(formula, data, family, accuracy="fast").report(tmp_path / "page.html").read_text()
        for formula, family in (("cens(t, seen) ~ x", "cox"), ("t ~ C(grade) + (x|g)", "gaussian"))
    ]
    assert "t is explained by x, from 80 observed rows of 80." in pages[0]
    assert "event in interval" not in pages[0]
    assert "<td>grade</td><td>levels</td><td>3: 0, 1, 2</td>" in pages[1].replace("\n", "")
    assert "x: every level" in pages[1]


def test_pictures(fit, data):
    assert [t.get_text() for t in fit.plot().get_yticklabels()] == ["x"]
    assert fit.plot("rw1(year)").get_title() == "rw1(year)"
    assert len(fit.plot("region").get_yticklabels()) == 16
    assert fit.plot_map("region", grid()).get_title() == "region"
    assert fit.plot_map("region", grid(), column="sd") is not None
    many = fenchel.fit("k ~ (1|row)", data.assign(row=range(96)), "poisson")
    assert many.plot("row") is not None
    named = fenchel.fit("k ~ (1|name)", data, "poisson")
    assert len(named.plot("name").get_yticklabels()) == 16


def test_the_report_stands_alone(fit, tmp_path):
    page = fit.report(tmp_path / "made" / "report.html", {"region": grid()})
    text = page.read_text(encoding="utf-8")
    assert text.count("<img ") == text.count("data:image/png;base64,") == 8
    assert "converged: gap" in text
    assert "k ~ x + bym2(region) + rw1(year)" in text
    assert "http" not in text.replace("http-equiv", "")


def test_reports_of_every_kind_of_response(data, tmp_path):
    rng = np.random.default_rng(1)
    more = data.assign(
        y=data.x + rng.normal(size=96),
        yes=np.where(rng.random(96) < 0.4, "yes", "no"),
        level=pd.Categorical(rng.choice(["a", "b", "c"], 96), ordered=True),
    )
    more.loc[3, "x"] = np.nan
    for formula, family in (
        ("y ~ x", "gaussian"),
        ("yes ~ x", "bernoulli"),
        ("level ~ x", "ordinal"),
        ("y ~ 1", "gaussian"),
    ):
        page = fenchel.fit(formula, more, family).report(tmp_path / f"{family}.html")
        assert "Does the model make such data?" in page.read_text(encoding="utf-8")
    shares = fenchel.fit("k | trials(n) ~ x", more.assign(n=40 + np.arange(96) % 3), "binomial", accuracy="fast")
    assert "; trials 40 to 42, mean 41" in shares.report(tmp_path / "shares.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("labels", "left"),
    [(["no", "yes"], "log odds of y = yes"), ([1, 2], "log odds of y = 2"), ([False, True], "log odds of y = True")],
)
def test_the_formula_of_two_labels_is_of_the_log_odds_of_the_second(labels, left, tmp_path):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=40), "y": np.array(labels)[rng.integers(0, 2, 40)]})
    page = fenchel.fit("y ~ x", data, "bernoulli", accuracy="fast").report(tmp_path / "page.html").read_text()
    assert f"{left} =" in page
