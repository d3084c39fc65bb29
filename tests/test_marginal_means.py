"""Marginal means, comparisons and slopes beside emmeans, and beside averages by hand."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.checks import Refusal
from fenchel.corrections import collapsed
from fenchel.corrections.collapsed import Collapsed
from fenchel.marginals import AnswersAtNewRows

KEPT = json.loads((Path(__file__).parent.parent / "benchmarks" / "marginal_means.json").read_text())
MODELS = {
    "warpbreaks": ("breaks ~ wool * tension", "gaussian", "tension", "wool"),
    "toothgrowth": ("len ~ supp * dose", "gaussian", "supp", None),
    "birthwt": ("low ~ race + smoke + age + lwt", "bernoulli", "race", None),
    "quine": ("Days ~ Eth * Sex * Age", "poisson", "Sex", "Eth"),
    "warpbreaks_counts": ("breaks ~ wool + tension", "poisson", "tension", None),
}
REPEATS = 10_000  # how often each row is seen: the mean of the posterior is then the maximum of the likelihood, as R's


def flat(formula, data, family, repeats):
    """Under flat priors."""
    data = data.assign(seen=float(repeats) * data.get("Freq", 1.0))
    names = fenchel.Model(formula, data, family, weights="seen").priors.index.get_level_values(0)
    priors = {name: None for name in names if name != "noise"}
    return fenchel.fit(formula, data, family, weights="seen", priors=priors, accuracy="fast")


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    """A model with R's answers, the columns of its cells, and how often its rows are seen."""
    formula, family, name, by = MODELS[request.param]
    kept, repeats = KEPT[request.param], 1 if family == "gaussian" else REPEATS
    fit = flat(formula, pd.DataFrame(kept["data"]), family, repeats)
    return fit, kept, [name, *([by] if by else [])], repeats


def agree(found, kept, names, repeats, estimate="estimate", error="SE", error_by=1e-3):
    """Rows in R's order, to three digits; standard errors of draws within 1 %."""
    want = pd.DataFrame(kept).set_index(names)
    found = found.set_index(names).loc[want.index]
    np.testing.assert_allclose(found["estimate"], want[estimate], rtol=5e-4)
    np.testing.assert_allclose(found["std_error"] * np.sqrt(repeats), want[error], rtol=error_by)


@pytest.mark.parametrize("weights", ["equal", "cells"])
def test_means_are_those_of_emmeans(case, weights):
    fit, kept, (name, *by), repeats = case
    found = fit.means(name, by=by, scale="link", weights=weights)
    agree(found, kept["means" if weights == "equal" else "cells"], [name, *by], repeats, "emmean")


def test_pairs_are_those_of_emmeans(case):
    fit, kept, (_, *by), repeats = case
    agree(fit.comparisons(case[2][0], by=by, scale="link"), kept["pairs"], ["contrast", *by], repeats)


def test_averages_over_rows_are_those_of_the_delta_method(case):
    fit, kept, (name, *_), repeats = case
    found = fit.means(name, weights="population").rename(columns={name: "level"})
    agree(found, kept["population"], ["level"], repeats, error="std_error", error_by=0.01)


def test_slopes_are_those_of_emtrends_and_of_the_delta_method(case):
    fit, kept, (name, *_), repeats = case
    if "slopes" not in kept:
        pytest.skip("no column of numbers")
    want = kept["slopes"]
    found = fit.slopes(want["along"], by=name, weights="equal", scale="link").rename(columns={name: "level"})
    agree(found, {key: want[key] for key in ("level", "estimate", "SE")}, ["level"], repeats)
    average = {"term": [want["along"]], "estimate": [want["average"]], "SE": [want["average_SE"]]}
    agree(fit.slopes(want["along"], scale="mean"), average, ["term"], repeats, error_by=0.01)


def test_the_mean_of_a_posterior_is_near_the_maximum():
    """Of rows seen once, by a fifth of a standard error of 189 binary rows."""
    fit = flat("low ~ race + smoke + age + lwt", pd.DataFrame(KEPT["birthwt"]["data"]), "bernoulli", 1)
    want = pd.DataFrame(KEPT["birthwt"]["means"])
    off = fit.means("race", scale="link")["estimate"].to_numpy() - want["emmean"].to_numpy()
    assert (np.abs(off) < 0.2 * want["SE"]).all()


def test_a_mean_that_is_eta_needs_no_draws():
    fit = fenchel.fit("len ~ supp * dose", pd.DataFrame(KEPT["toothgrowth"]["data"]), "gaussian", accuracy="fast")
    mean, link = (fit.means("supp", scale=scale) for scale in ("mean", "link"))
    pd.testing.assert_frame_equal(mean, link)
    assert (mean["mc_error"] == 0.0).all()


def test_numbers_of_a_curve_are_at_their_mean():
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"x": rng.uniform(0.0, 10.0, 120), "f": rng.choice(["a", "b"], 120)})
    data["y"] = data.x + 0.3 * rng.normal(size=120)
    fit = fenchel.fit("y ~ f + s(x)", data, "gaussian", accuracy="fast")
    found = fit.means("f")["estimate"]
    np.testing.assert_allclose(found, fit.means("f", at={"x": data.x.mean()})["estimate"], rtol=1e-8)
    assert abs(found.mean() - data.x.mean()) < 0.3


def test_ordered_levels():
    kept = KEPT["housing"]
    data = pd.DataFrame(kept["data"])
    data["Sat"] = pd.Categorical(data.Sat, ["Low", "Medium", "High"], ordered=True)
    fit = flat("Sat ~ Infl + Type + Cont", data, "ordinal", REPEATS)
    agree(fit.comparisons("Type", scale="link"), kept["pairs"], ["contrast"], REPEATS)


# -- by hand -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def binary():
    rng = np.random.default_rng(0)
    n = 240
    data = pd.DataFrame({"f": rng.choice(list("abc"), n), "s": rng.choice(["m", "w"], n), "g": rng.integers(0, 15, n)})
    data["x"] = rng.normal(size=n)
    eta = 0.5 * data.x + 0.7 * (data.f == "b") + rng.normal(size=15)[data.g]
    data["y"] = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    return fenchel.fit("y ~ f * s + x + (1|g)", data, "bernoulli", accuracy="fast"), data


def test_an_average_of_predictions_is_that_of_joint_draws(binary):
    fit, data = binary
    found = fit.means("f", by="s", weights="population", groups="own").set_index(["f", "s"])
    for (f, s), row in found.iterrows():
        drawn = fit.sample(data[data.s == s].assign(f=f), 4000, 1).mean(axis=1)
        assert row["estimate"] == pytest.approx(drawn.mean(), abs=0.1 * drawn.std())
        assert row["std_error"] == pytest.approx(drawn.std(), rel=0.06)


def test_a_mean_over_the_population_of_groups(binary):
    """Of one more group the mean over draws of its effect; its interval leaves the spread of groups out."""
    fit, _ = binary
    row = {"f": ["a"], "s": ["m"], "x": [0.0], "g": [99]}
    found = fit.means("f", at={"f": "a", "s": "m", "x": 0.0}, groups="population").iloc[0]
    one = fit.sample(row, 20_000, 0)
    assert found["estimate"] == pytest.approx(one.mean(), abs=0.01)
    assert found["std_error"] < 0.7 * one.std()
    centre = fit.means("f", at={"f": "a", "s": "m", "x": 0.0}).iloc[0]
    assert abs(centre["estimate"] - 0.5) > abs(found["estimate"] - 0.5)


def test_ratios(binary):
    fit, _ = binary
    odds = fit.comparisons("f", kind="odds", scale="link", by="s", contrast="reference").set_index("s")
    plain = fit.comparisons("f", scale="link", by="s", contrast="reference").set_index("s")
    np.testing.assert_allclose(odds["estimate"], np.exp(plain["estimate"]), rtol=1e-6)
    np.testing.assert_allclose(odds[["conf_low", "conf_high"]], np.exp(plain[["conf_low", "conf_high"]]), rtol=1e-6)
    cell = {"x": 0.0, "s": "m"}
    mean = fit.comparisons("f", kind="odds", at=cell, contrast="reference")  # of one row the odds are those of eta
    link = fit.comparisons("f", kind="odds", scale="link", at=cell, contrast="reference")
    np.testing.assert_allclose(mean["estimate"], link["estimate"], rtol=0.05)
    risk = fit.comparisons("f", kind="ratio", at=cell, contrast="reference")
    values = fit.means("f", at=cell)["estimate"].to_numpy()
    np.testing.assert_allclose(risk["estimate"], values[1:] / values[0], rtol=0.05)


def test_contrasts_of_ones_own_and_of_neighbours(binary):
    fit, _ = binary
    values = fit.means("f", scale="link")["estimate"].to_numpy()
    own = fit.comparisons("f", scale="link", contrast={"bc - a": [-1.0, 0.5, 0.5]})
    assert own["estimate"].item() == pytest.approx(values[1:].mean() - values[0], abs=1e-10)
    next_ = fit.comparisons("f", scale="link", contrast="consecutive")
    np.testing.assert_allclose(next_["estimate"], np.diff(values), atol=1e-10)
    assert list(next_["contrast"]) == ["b - a", "c - b"]


def test_simultaneous_intervals_hold_together(binary):
    """Their critical value is that of the maximum of correlated normal numbers."""
    fit, _ = binary
    alone, together = (fit.comparisons("f", scale="link", simultaneous=each) for each in (False, True))
    wider = (together.conf_high - together.conf_low) / (alone.conf_high - alone.conf_low)
    np.testing.assert_allclose(wider, wider.iloc[0], rtol=1e-6)
    assert 2.3 < 1.96 * wider.iloc[0] < 2.42  # Tukey's 3.31 / sqrt 2 = 2.34 where cells are balanced


@pytest.mark.parametrize("options", [{"kind": "odds"}, {"scale": "link", "kind": "odds"}])
def test_bands_draw_no_effects_of_groups_that_no_row_sees(binary, options, monkeypatch):
    _, data = binary
    fit = fenchel.fit("y ~ f + x + (1|g)", data, "bernoulli", evidence="corrected")
    assert fit.answers.method == "collapsed"
    sizes, whole = [], collapsed.drawn_effects
    monkeypatch.setattr(collapsed, "drawn_effects", lambda *given: sizes.append(len(given[2])) or whole(*given))
    found = fit.comparisons("f", simultaneous=True, **options)
    assert sum(sizes) == 0
    monkeypatch.setattr(Collapsed, "sample_some", AnswersAtNewRows.sample_some)
    expected = fit.comparisons("f", simultaneous=True, **options)
    assert sum(sizes) == 20_000
    for column in ("estimate", "conf_low", "conf_high"):  # b is drawn first, and is the same
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-9)


@pytest.mark.parametrize("options", [{}, {"evidence": "elbo"}, {"evidence": "corrected"}, {"integrate": "grid"}])
def test_draws_of_some_latents_are_those_of_all(binary, options):
    _, data = binary
    answers = fenchel.fit("y ~ x + (1|g)", data, "bernoulli", **options)
    some = np.array([0, 3, 15])
    for part in answers.components:
        every = np.asarray(part.posterior.sample_latents(50, 3))
        np.testing.assert_allclose(part.posterior.sample_some(some, 50, 3), every[:, some], rtol=1e-9, atol=1e-12)


def test_slopes_are_differences(binary):
    fit, _ = binary
    found = fit.slopes("x", at={"x": [-1.0, 1.0]}, weights="equal").set_index("x")
    for x, row in found.iterrows():
        ends = [fit.means(at={"x": x + h}).iloc[0]["estimate"] for h in (0.01, -0.01)]
        assert row["estimate"] == pytest.approx((ends[0] - ends[1]) / 0.02, rel=0.02)
    assert fit.slopes("x", scale="link")["mc_error"].item() == 0.0


# -- groups, cells and draws that are special ----------------------------------------------------------
@pytest.fixture(scope="module")
def counts():
    """Counts whose cell (q, w) is empty, with groups of years, which have a trend too, and of years in places."""
    rng = np.random.default_rng(0)
    n = 300
    data = pd.DataFrame({"year": rng.choice([1.0, 2.0, 3.0, 4.0, 5.0], n), "place": rng.integers(0, 12, n)})
    data["f"], data["s"] = rng.choice(list("pq"), n), rng.choice(["m", "w"], n)
    data = data[~((data.f == "q") & (data.s == "w"))].reset_index(drop=True)
    data["f"], data["s"] = data.f.astype("category"), data.s.astype("category")
    data["y"] = rng.poisson(np.exp(0.3 * data.year + 0.4 * rng.normal(size=12)[data.place]))
    return fenchel.fit("y ~ year + f + s + (1|place) + (1|year:place)", data, "poisson", accuracy="fast"), data


def test_a_column_of_groups_that_has_an_effect_of_its_own_keeps_its_values(counts):
    """E exp(eta) over the population is that of the centre times exp of half the variance of groups."""
    fit, _ = counts
    years = {"year": [1.0, 3.0]}
    centre, over = (fit.means("year", at=years, groups=groups)["estimate"] for groups in ("centre", "population"))
    variance = float(np.sum(np.exp(fit.theta) ** 2))
    np.testing.assert_allclose(over / centre, np.exp(variance / 2.0), rtol=1e-6)
    assert fit.means("year", at=years, groups="population", scale="link")["mc_error"].eq(0.0).all()


def test_an_empty_cell_leaves_the_others_alone(counts):
    fit, _ = counts
    for scale in "link", "mean":
        found = fit.means("f", by="s", weights="cells", scale=scale, simultaneous=True).set_index(["f", "s"])
        assert found.loc[("q", "w")].isna().all()
        assert found.drop(("q", "w")).notna().all(axis=None)
        apart = fit.comparisons("f", by="s", weights="cells", scale=scale, simultaneous=True).set_index("s")
        assert apart.loc["m"].notna().all()
        assert apart.loc["w", ["estimate", "conf_low", "p_above_0"]].isna().all()


def test_outcomes_of_all_rows_are_drawn_independently(monkeypatch):
    """Whatever the size of a block of draws."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=50)
    fit = fenchel.fit("y ~ x", {"x": x, "y": x + rng.normal(size=50)}, "gaussian", accuracy="fast")
    whole = fit.means(weights="population", scale="outcome")["std_error"].item()
    monkeypatch.setattr("fenchel.models.marginal_means.BLOCK", 20_000)
    assert fit.means(weights="population", scale="outcome")["std_error"].item() == pytest.approx(whole, rel=0.03)
    assert whole < 0.3  # sqrt(2 / 50) sds of the noise


def test_rows_without_a_group_count_where_groups_do_not(binary):
    fit, data = binary
    some = data.assign(g=data.g.where(data.x > 0.0))
    for groups in "centre", "population":
        found, want = (fit.means("f", weights="population", data=rows, groups=groups) for rows in (some, data))
        np.testing.assert_allclose(found["estimate"], want["estimate"], rtol=1e-9)
    assert len(fit.means("f", weights="population", data=some, groups="own")) == 3


@pytest.fixture(scope="module")
def repeated():
    """A model of rows that were seen several times, and the same of these rows written out."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=120), "n": rng.choice(list("abc"), 120), "g": np.arange(120) % 8})
    data["often"] = np.where(data.n == "c", 5, 1)
    data["y"] = rng.poisson(np.exp(0.5 + 0.3 * data.x + (data.n == "c")))
    written = data.loc[data.index.repeat(data.often)]
    options = {"family": "poisson", "accuracy": "fast"}
    formula = "y ~ x * n + (1|g)"
    return [fenchel.fit(formula, data, weights="often", **options), fenchel.fit(formula, written, **options)]


@pytest.mark.parametrize("weights", ["equal", "cells", "population"])
def test_a_row_counts_as_often_as_its_weight_says(repeated, weights):
    """The column n is a column like any other."""
    for answer in lambda fit: fit.means("x", at={"x": [0.0, 1.0]}, weights=weights), lambda fit: fit.slopes("x"):
        found, want = (answer(fit).select_dtypes("number") for fit in repeated)
        np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-6)


def test_shares_of_variance_count_a_row_as_often_as_its_weight_says(repeated):
    found, want = (fit.variance_shares(size=100)["variance"] for fit in repeated)
    np.testing.assert_allclose(found, want, rtol=0.02)


def test_people_of_a_cox_model_count_once():
    """Not once for each piece of a duration: those who live long have more."""
    rng = np.random.default_rng(0)
    f = np.repeat(["a", "b"], [150, 50])
    t = rng.exponential(np.where(f == "a", 0.2, 5.0))
    fit = fenchel.fit("cens(t, e) ~ f", {"t": t, "e": np.ones(200), "f": f}, "cox", accuracy="fast")
    low, high = fit.means("f")["estimate"]
    for weights in "cells", "population":
        assert fit.means(weights=weights)["estimate"].item() == pytest.approx(0.75 * low + 0.25 * high)
    assert (fit.nobs, fit.plot_effect("f").get_ylabel()) == (200, "eta of t")


def test_a_value_named_twice_is_one(binary):
    assert len(binary[0].means("f", at={"f": ["a", "a"]})) == 1


def test_refusals_of_counts(counts):
    fit, data = counts
    with pytest.raises(Refusal, match="no probability"):
        fit.comparisons("f", kind="odds")
    with pytest.raises(Refusal, match="0 or below"):
        fit.comparisons("f", kind="ratio", scale="outcome")
    with pytest.raises(Refusal, match="no column 's'"):
        fit.means("f", by="s", weights="population", data=data.drop(columns="s"))
    with pytest.raises(Refusal, match="slopes of outcomes"):
        fit.slopes("year", scale="outcome")


REFUSED = {
    "is no covariate": lambda fit: fit.means("nothing"),
    "'nothing' is no covariate": lambda fit: fit.means("nothing", at={"nothing": [1, 2]}),
    "which group a row has": lambda fit: fit.means("g"),
    "weights": lambda fit: fit.means("f", weights="some"),
    "groups = 'own'": lambda fit: fit.means("f", groups="own"),
    "has levels": lambda fit: fit.slopes("f"),
    "one value of 'f'": lambda fit: fit.comparisons("f", at={"f": ["a"]}),
    "relative_risk|odds_ratio": lambda fit: fit.comparisons("f", kind="ratio", scale="link"),
    "at names 'h'": lambda fit: fit.means("f", at={"h": 1}),
    "contrast 'two'": lambda fit: fit.comparisons("f", contrast={"two": [1.0, -1.0]}),
    "interval": lambda fit: fit.means("f", interval=2.0),
    "which fit has not seen": lambda fit: fit.means("f", at={"f": ["z"]}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_refusals(binary, words):
    with pytest.raises(Refusal, match=words):
        REFUSED[words](binary[0])
