"""What a newcomer asks of families with several parts: labels of several kinds, hurdles with a formula, durations."""

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.checks import Refusal


# -- labels of several kinds --------------------------------------------------------------------------
def labels(n=240, seed=0):
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=n), rng.integers(0, 6, n)
    eta = np.column_stack([np.zeros(n), 0.5 * x + 0.6 * (g > 2), -0.5 * x])
    p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    code = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    return pd.DataFrame({"x": x, "g": [f"g{k}" for k in g], "y": np.array(["a", "b", "c"])[code]})


def test_a_coefficient_of_classes_that_is_large_is_no_error():
    data = labels()
    data["x"] = data.x + 40.0 * (data.y == "b")  # separated, so that coefficients are large under the default prior
    fit = fenchel.fit("y ~ x", data, family="multinomial")
    assert fit.coefficients.shape[0] == 4
    assert fit.remarks == []
    small = {"y": list("abcabcabca") * 5, "x": np.arange(50.0)}
    assert fenchel.fit("y ~ x", small, family="multinomial").converged


def test_effects_of_classes_go_by_the_term_and_by_its_column():
    fit = fenchel.fit("y ~ x + (1|g)", labels(), family="multinomial")
    by_column = fit.effects["g"]
    pd.testing.assert_frame_equal(by_column, fit.effects["(1|g)"])
    assert by_column.loc["b", "mean"].idxmax() in ("g3", "g4", "g5")
    new = pd.DataFrame({"x": [0.0, 0.0], "g": ["g0", "g5"]})
    link = fit.predict(new, "link")["b"]
    assert by_column.loc[("b", "g5"), "mean"] - by_column.loc[("b", "g0"), "mean"] == pytest.approx(link[1] - link[0])
    with pytest.raises(KeyError, match="no term 'h'"):
        fit.effects["h"]
    assert "y ~ x + (1|g)\n" in fit.summary()
    assert "is not a" not in repr(fit)
    better = fit.corrected()
    drawn = better.sample(new, 4000, 0)
    np.testing.assert_allclose(better.predict(new), drawn.mean(axis=0), atol=0.02)
    wider = better.coefficients["sd"] / fit.coefficients["sd"]
    assert (wider > 0.98).all()  # the Gaussian has each class as if the others were known


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("contrast", ({"x": [0.0]}, {"x": [1.0]})),
        ("means", ()),
        ("comparisons", ("x",)),
        ("slopes", ("x",)),
        ("simulate", ()),
        ("exceedance", ({"x": [0.0]}, 0.5)),
        ("to_arviz", ()),
        ("plot", ()),
        ("plot_check", ()),
        ("report", ("page.html",)),
    ],
)
def test_what_classes_do_not_answer_names_itself_and_what_does(name, args):
    fit = fenchel.fit("y ~ x", labels(60), family="multinomial")
    with pytest.raises(Refusal, match=rf"^{name}: this is asked of one predictor.*expected (sample|co|pred|summ)"):
        getattr(fit, name)(*args)


# -- a hurdle with a formula for its zeros ------------------------------------------------------------
def hurdle_data(n=240, seed=1):
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=n), rng.integers(0, 8, n)
    u = 0.6 * rng.normal(size=8)
    above = np.maximum(1, rng.poisson(np.exp(0.8 + 0.4 * x + u[g])))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(0.5 - 0.9 * x)), 0, above)
    return pd.DataFrame({"x": x, "z": rng.normal(size=n), "g": [f"g{k}" for k in g], "y": y})


@pytest.fixture(scope="module")
def hurdle():
    return fenchel.fit("y ~ x + (1|g)", hurdle_data(), family="hurdle-poisson", zero="~ x")


def test_remarks_of_a_hurdle_are_those_of_its_parts(hurdle):
    parts = hurdle.parts.items()
    assert hurdle.remarks == [f"{name}: {sentence}" for name, part in parts for sentence in part.remarks]
    with pytest.raises(ValueError, match=r'survival: a hurdle .* expected durations with family="weibull"'):
        hurdle.survival(hurdle.model.frame.head(1), [1.0])


def test_tables_of_a_hurdle_whose_parts_have_other_terms(hurdle):
    assert list(hurdle.hyperparameters.index) == [("count", "(1|g)", "sd")]
    swapped = fenchel.fit("y ~ x", hurdle_data(), family="hurdle-poisson", zero="~ x + (1|g)")
    assert list(swapped.hyperparameters.index) == [("zero", "(1|g)", "sd")]
    assert len(fenchel.fit("y ~ x", hurdle_data(), family="hurdle-poisson", zero="~ x").hyperparameters) == 0
    assert list(hurdle.effects) == ["(1|g)"]
    frame = hurdle.effects["g"]
    assert frame.loc["count"].shape[0] == 8
    np.testing.assert_array_equal(frame.loc["count", "mean"], hurdle.count.effects["g"]["mean"])
    with pytest.raises(KeyError, match="no term 'h'"):
        hurdle.effects["h"]
    assert {"count", "zero"} == set(hurdle.priors.index.get_level_values(0))


def test_a_hurdle_comes_back_from_a_file(hurdle, tmp_path):
    hurdle.save(tmp_path / "fit.model")
    back = fenchel.load(tmp_path / "fit.model")
    new = hurdle_data().head(4)
    np.testing.assert_array_equal(back.predict(new), hurdle.predict(new))
    pd.testing.assert_frame_equal(back.coefficients, hurdle.coefficients)
    assert back.elbo == hurdle.elbo


def test_priors_reach_both_parts_of_a_hurdle():
    Normal, data = fenchel.hyperparameters.Normal, hurdle_data()
    asked = {"family": "hurdle-poisson", "zero": "~ x + z + (1|g)"}
    tight = fenchel.Model("y ~ x", data, priors={"z": Normal(0.5, 1e-4), "g": fenchel.PC(0.1)}, **asked)
    fit = tight.fit()
    assert fit.coefficients.loc[("zero", "z"), "mean"] == pytest.approx(0.5, abs=1e-3)
    assert "P(sd > 0.1) = 0.01" in fit.priors.loc[("zero", "(1|g)", "sd"), "prior"]
    both = fenchel.fit("y ~ x", data, priors={"x": Normal(0.0, 1e-4)}, **asked).coefficients
    assert abs(both.loc[("zero", "x"), "mean"]) < 1e-3
    assert abs(both.loc[("count", "x"), "mean"]) < 1e-3
    small = fenchel.fit("y ~ x", data, fixed_sd=1e-3, **asked).coefficients
    assert abs(small.loc[("zero", "x"), "mean"]) < 1e-2
    with pytest.raises(Refusal, match=r"priors name 'w'; expected one of \['Intercept', 'x', 'z', '\(1\|g\)'\]"):
        fenchel.Model("y ~ x", data, priors={"w": Normal(0.0, 1.0)}, **asked)


def test_terms_left_out_of_a_hurdle(hurdle):
    new = hurdle_data().head(3)
    mean = hurdle.predict(new.drop(columns="g"), without="groups")
    pi = hurdle.zero.predict(new)
    np.testing.assert_allclose(mean, (1 - pi) * hurdle.count.predict(new, without="(1|g)"))
    np.testing.assert_allclose(hurdle.predict(new, without="g"), mean)
    draws = hurdle.sample(new, 3000, 0, without="groups")
    np.testing.assert_allclose(draws.mean(axis=0), mean, rtol=0.03)
    ends = hurdle.predict(new, "outcome", without="groups", interval=0.9)
    assert (ends["lower"] <= ends["upper"]).all()
    with pytest.raises(Refusal, match=r"without names 'h'; expected \"groups\", or terms of either part: '\(1\|g\)'"):
        hurdle.predict(new, without="h")


def test_predictions_of_a_hurdle_have_an_sd(hurdle):
    new = hurdle_data().head(5)
    new.loc[2, "x"] = np.nan
    for kind, rtol in (("mean", 0.02), ("outcome", 0.02)):
        table = hurdle.predict(new, kind, interval=0.9)
        assert list(table.columns) == list(hurdle.count.predict(new, kind, interval=0.9).columns)
        draws = hurdle.sample(new, 40_000, 0, kind=kind)
        np.testing.assert_allclose(table["sd"], draws.std(axis=0), rtol=rtol)
        np.testing.assert_allclose(table["mean"], draws.mean(axis=0), rtol=rtol)
        assert table.loc[2].isna().all()
    assert list(hurdle.predict(new, "zero", interval=0.9).columns) == ["mean", "sd", "lower", "upper"]


def test_rows_of_a_hurdle_add_over_its_parts():
    data = hurdle_data()
    gaps = [int(np.flatnonzero(data.y == 0)[0]), int(np.flatnonzero(data.y > 0)[0])]
    data.loc[gaps, "x"], data.loc[30, "y"] = np.nan, np.nan
    split = fenchel.fit("y ~ x", data, family="hurdle-poisson", zero="~ 1", fixed_sd=30.0)
    whole = fenchel.fit("y ~ x", data, family="hurdle-poisson", fixed_sd=30.0)  # one probability of a zero
    table = fenchel.compare({"split": split, "whole": whole})
    assert table["converged"].all()
    density = split.loo().log_density
    assert np.flatnonzero(np.isnan(density)).tolist() == [*sorted(gaps), 30]
    np.testing.assert_allclose(density, whole.loo().log_density, atol=0.03)
    assert split.waic().elpd == pytest.approx(split.loo().elpd, abs=0.2)
    other = fenchel.fit("y ~ x", data.assign(y=data.y + 1), family="poisson")
    with pytest.raises(Refusal, match="not of the same rows"):
        fenchel.compare({"split": split, "other": other})


@pytest.mark.parametrize("name", ["contrast", "comparisons", "k_fold", "plot_check", "to_arviz"])
def test_what_a_hurdle_does_not_answer_names_its_parts(hurdle, name):
    with pytest.raises(Refusal, match=rf"^{name}: a hurdle .* two models; expected fit\.count\.{name} .* fit\.zero\."):
        getattr(hurdle, name)(*{"contrast": (None, None), "comparisons": ("x",)}.get(name, ()))


# -- durations ----------------------------------------------------------------------------------------
def lives(n=110, seed=3):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=n), rng.normal(size=n)
    t, c = rng.exponential(size=n) * np.exp(-0.7 * x + 0.4 * z), rng.uniform(0.3, 4.0, n)
    return pd.DataFrame({"time": np.minimum(t, c), "event": (t <= c).astype(float), "x": x, "z": z, "id": np.arange(n)})


def partial_likelihood(data):
    """Its maximum by Newton's steps, and standard errors."""
    X, t, b = data[["x", "z"]].to_numpy(), data.time.to_numpy(), np.zeros(2)
    for _ in range(20):
        slope, bend = np.zeros(2), np.zeros((2, 2))
        for i in np.flatnonzero(data.event):
            risk = X[t >= t[i]]
            w = np.exp(risk @ b) / np.exp(risk @ b).sum()
            slope += X[i] - w @ risk
            bend += (risk * w[:, None]).T @ risk - np.outer(w @ risk, w @ risk)
        b = b + np.linalg.solve(bend, slope)
    return b, np.sqrt(np.diag(np.linalg.inv(bend)))


def test_a_free_baseline_of_many_event_times_is_the_partial_likelihood(tmp_path):
    data = lives()
    model = fenchel.Model("cens(time, event) ~ x + z", data, "cox", baseline="free")
    times = np.unique(data.time[data.event == 1])
    assert times.size > 60
    np.testing.assert_array_equal(model.reduction.edges[1:], times)
    fit, (b, se) = model.fit(), partial_likelihood(data)
    found = fit.coefficients.loc[["x", "z"]]
    assert np.abs((found["mean"] - b) / se).max() < 0.03
    np.testing.assert_allclose(found["sd"], se, rtol=0.05)
    hazard, at = fit.effects["baseline"], {"x": [0.0], "z": [0.0]}
    assert abs(hazard["mean"].sum()) < 1e-6
    assert "fixed: free" in fit.summary()
    share, (risk, _) = fit.survival(at, times[[9, 40]]), (np.exp(data[["x", "z"]].to_numpy() @ b), se)
    breslow = [sum(1 / risk[data.time >= t].sum() for t in times[: k + 1]) for k in (9, 40)]
    np.testing.assert_allclose(share.iloc[0], np.exp(-np.array(breslow)), atol=0.02)
    fit.save(tmp_path / "fit.model")
    np.testing.assert_array_equal(fenchel.load(tmp_path / "fit.model").survival(at, times[[9, 40]]), share)
    with pytest.raises(Refusal, match=r'baseline="free" with \d+ different event times; expected at most 500'):
        fenchel.Model("cens(time, event) ~ x", lives(900), "cox", baseline="free")


@pytest.fixture(scope="module")
def cox():
    data = lives(70)
    data.loc[[3, 4, 5], "x"], data.loc[6, "time"], data.loc[7, "event"] = np.nan, np.nan, np.nan
    return fenchel.fit("cens(time, event) ~ x + z", data, "cox")


def test_a_cox_model_counts_people(cox):
    assert cox.model.dropped.n == 5
    assert cox.model.dropped.columns == {"time": 1, "event": 1, "x": 3}
    page = cox.summary()
    assert "cens(time, event) ~ x + z\n" in page
    assert "rows: 65 used, as " in page
    assert "pieces of durations: leave-one-out and folds are by piece" in page
    assert "dropped: 5 rows in which a time, an event or a covariate is missing" in page


def test_a_cox_model_says_what_answers_instead_of_a_mean(cox):
    new = pd.DataFrame({"x": [0.0, 1.0], "z": [0.0, 0.0]})
    for ask in (lambda: cox.predict(new), cox.predict, lambda: cox.sample(new), cox.simulate):
        with pytest.raises(Refusal, match=r"expected fit\.survival\(new, times\) .* fit\.contrast\(first, second\)"):
            ask()
    ratio = cox.contrast(new.tail(1), new.head(1)).iloc[0]
    assert ratio["mean"] == pytest.approx(cox.coefficients.loc["x", "mean"])
    assert cox.survival(new, [0.5]).shape == (2, 1)


def test_people_are_left_out_of_a_cox_model_by_a_label_each(cox):
    one = cox.leave_group_out(np.arange(70))
    assert one.log_density.shape == (len(cox.model.data_index),)
    assert len(one.groups) <= 65
    same = cox.leave_group_out("id")
    np.testing.assert_allclose(same.elpd, one.elpd)


@pytest.mark.parametrize("family", ["weibull", "exponential"])
def test_a_new_row_needs_no_event(family):
    data = lives(80)
    fit = fenchel.fit("cens(time, event) ~ x + z", data, family)
    new = data[["x", "z"]].head(4)
    mean = fit.predict(new)
    for event in (0.0, 1.0, np.nan):
        np.testing.assert_array_equal(fit.predict(new.assign(event=event)), mean)
    np.testing.assert_allclose(mean, fit.predict().head(4), rtol=1e-12)
    draws = fit.sample(new, 4000, 0, kind="outcome")
    np.testing.assert_allclose(np.median(draws, axis=0), fit.predict(new, "outcome", interval=1e-6)["lower"], rtol=0.12)
