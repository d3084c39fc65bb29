"""plot_effect, and bands of smooths: the tables behind them, dense matrices and draws are the witnesses."""

import warnings

import numpy as np
import pandas as pd
import pytest

import fenchel

pytest.importorskip("matplotlib")
RNG = np.random.default_rng(4)
N = 200
DATA = pd.DataFrame({"x": 10 * RNG.random(N), "f": RNG.choice(["a", "b"], N), "age": RNG.normal(50, 9, N)})
DATA["g"] = RNG.integers(0, 8, N)
ETA = np.where(DATA["f"] == "a", np.sin(DATA["x"]), 0.1 * DATA["x"]) + 0.02 * (DATA["age"] - 50)
DATA["y"] = RNG.poisson(np.exp(ETA))
DATA["real"] = ETA + 0.3 * RNG.normal(size=N)


@pytest.fixture(scope="module")
def fit():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fenchel.fit("y ~ f + s(x, by=f) + age + (1|g)", DATA, "poisson", accuracy="fast")


def test_curves_are_the_means_and_the_data_lie_beneath(fit):
    ax = fit.plot_effect("x", by="f")
    lines = {line.get_label(): line.get_xydata() for line in ax.lines if line.get_label().startswith("f = ")}
    table = fit.means("x", by="f", at={"x": lines["f = a"][:, 0]})
    for level in "ab":
        np.testing.assert_allclose(lines[f"f = {level}"][:, 1], table[table["f"] == level]["estimate"], rtol=1e-9)
    drawn = np.concatenate([line.get_xydata() for line in ax.lines if not line.get_label().startswith("f = ")])
    np.testing.assert_allclose(np.sort(drawn[:, 1]), np.sort(DATA["y"]))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "mean of y")
    assert ax.get_title() == f"groups at 0, age = {DATA['age'].mean():.4g}"
    assert len(fit.plot_effect("x", by="f", data=False).lines) == 2


def test_levels_are_points_and_other_columns_are_held_where_asked(fit):
    ax = fit.plot_effect("f", at={"x": 3.0, "age": 40.0}, scale="link")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b"]
    assert ax.get_title() == "groups at 0, age = 40, x = 3"
    table = fit.means("f", at={"x": 3.0, "age": 40.0}, scale="link")
    np.testing.assert_allclose(ax.containers[0].lines[0].get_ydata(), table["estimate"])


def test_levels_that_are_numbers_are_points_and_of_trials_the_axis_is_a_share():
    data = DATA.assign(period=pd.Categorical(np.arange(len(DATA)) % 3 + 1), n=9, y=DATA["y"].clip(upper=9))
    ax = fenchel.fit("y | trials(n) ~ period", data, "binomial", accuracy="fast").plot_effect("period")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3"]
    assert (len(ax.containers), ax.get_ylabel()) == (1, "share of y")


def test_a_walk_over_years_is_drawn_at_its_years():
    data = DATA.assign(year=2000 + np.arange(len(DATA)) % 12)
    fit = fenchel.fit("real ~ rw1(year)", data, "gaussian", accuracy="fast")
    assert sorted(fit.plot_effect("year").lines[-1].get_xdata()) == list(range(2000, 2012))
    assert fit.means("year")["year"].tolist() == list(range(2000, 2012))  # not a mean of years, which has no effect
    with pytest.raises(ValueError, match="slopes: 'year' has levels"):
        fit.slopes("year")


def test_too_many_curves_and_unknown_columns_are_refused(fit):
    with pytest.raises(ValueError, match="plot_effect: 9 curves; expected at most 7"):
        fit.plot_effect("x", by="age", at={"age": range(40, 49)})
    with pytest.raises(ValueError, match="plot_effect: 'z' is no covariate of the model"):
        fit.plot_effect("z")


def test_derivatives_and_differences_of_smooths_are_those_of_a_design_written_out():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fenchel.fit("real ~ f + s(x, by=f)", DATA, "gaussian", accuracy="fast")
    at = np.linspace(1.0, 9.0, 7)
    slopes = fit.slopes("x", at={"x": at}, by="f", weights="equal", scale="link")
    h = 1e-3
    for level, part in slopes.groupby("f"):
        high, low = (pd.DataFrame({"x": at + step, "f": level}) for step in (h, -h))
        want = fit.contrast(high, low)
        np.testing.assert_allclose(part["estimate"], want["mean"] / (2 * h), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(part["std_error"], want["sd"] / (2 * h), rtol=1e-3)
    difference = fit.comparisons("f", by="x", at={"x": at}, scale="link")
    want = fit.contrast(pd.DataFrame({"x": at, "f": "b"}), pd.DataFrame({"x": at, "f": "a"}))
    np.testing.assert_allclose(difference["estimate"], want["mean"], rtol=1e-8)
    np.testing.assert_allclose(difference["std_error"], want["sd"], rtol=1e-6)
    together = fit.comparisons("f", by="x", at={"x": at}, scale="link", simultaneous=True)
    ratio = (together["conf_high"] - together["conf_low"]) / (difference["conf_high"] - difference["conf_low"])
    assert ratio.std() < 1e-6  # one factor for all places
    assert 1.1 < ratio.mean() < 1.6  # wider, and not as wide as seven intervals of Bonferroni


@pytest.mark.parametrize(
    ("bs", "advice"),
    [
        ("re", r"A level for each group is \(1\|g\), a slope of x \(0 \+ x\|g\)"),
        ("fs", r"A curve for each group is \(1\|g\) \+ s\(x, by=g, shared=True\)"),
        ("sz", r"g \+ s\(x, by=g\); fit.comparisons has their differences"),
    ],
)
def test_spellings_of_mgcv_are_answered_with_ours(bs, advice):
    with pytest.raises(ValueError, match=advice):
        fenchel.Model(f'y ~ s(x, f, bs="{bs}")', DATA, "poisson")
