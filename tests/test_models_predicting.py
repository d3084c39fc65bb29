"""Predictions that users of lme4, mgcv and INLA ask for: without groups, beyond the data, of few columns, corrected."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import fenchel
from fenchel.checks import Refusal
from fenchel.models import predictions


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 240
    frame = pd.DataFrame({"x": rng.normal(5.0, 1.0, n), "g": np.arange(n) % 8, "h": np.arange(n) % 5})
    frame["f"] = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    frame["t"] = np.arange(n) // 12
    level, walk = rng.normal(size=8), np.cumsum(0.3 * rng.normal(size=20))
    return frame.assign(y=0.5 * frame.x + level[frame.g] + walk[frame.t] + 0.5 * rng.normal(size=n))


# -- without some terms -----------------------------------------------------------------------------------
def test_the_population_needs_no_groups(data):
    fit = fenchel.fit("y ~ x + (x|g) + (1|g:h) + s(t, k=5)", data)
    new = pd.DataFrame({"x": [4.0, 5.0], "t": [3, 4]})
    found = fit.predict(new, "link", without="groups", interval=0.95)
    own = fit.coefficients["mean"]
    at = fit.effects["s(t, k=5)"]["mean"]
    curve = np.interp(new.t, at.index, at)
    np.testing.assert_allclose(found["mean"], own["Intercept"] + own["x"] * new.x + curve, atol=4e-3)
    wide = fit.predict(new.assign(g=99, h=99), "link", interval=0.95)
    np.testing.assert_allclose(wide["mean"], found["mean"], atol=1e-9)
    assert ((wide.upper - wide.lower) > 1.5 * (found.upper - found.lower)).all()
    drawn = fit.sample(new, 4000, 0, kind="link", without=["(x|g)", "(1|g:h)"])
    np.testing.assert_allclose(drawn.std(axis=0), (found.upper - found.lower) / (2 * 1.96), rtol=0.06)


def test_a_prediction_is_what_is_left_and_the_effect(data):
    fit = fenchel.fit("y ~ x + rw2(t) + (1|g)", data)
    rows = data.drop_duplicates("t")
    rest = fit.predict(rows.drop(columns="t"), "link", without="t")
    np.testing.assert_allclose(
        fit.predict(rows, "link"), rest.to_numpy() + fit.effects["t"]["mean"].loc[rows.t].to_numpy(), atol=1e-8
    )
    every = fit.predict(rows[["x"]], "link", without=["rw2(t)", "g"])
    np.testing.assert_allclose(every, fit.coefficients["mean"][["Intercept", "x"]] @ [np.ones(20), rows.x], atol=1e-8)


@pytest.mark.parametrize("formula", ["y ~ x * f + offset(h) + s(t, k=5)", "y ~ 0 + f + s(t, k=5)", "y ~ s(t, k=5)"])
def test_without_the_fixed_part_the_effect_is_left(data, formula):
    fit = fenchel.fit(formula, data)
    at = fit.effects["s(t, k=5)"]
    found = fit.predict(pd.DataFrame({"t": at.index}), "link", without="fixed", interval=0.95)
    np.testing.assert_allclose(found[["mean", "lower", "upper"]], at[["mean", "lower", "upper"]], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["weibull", "ordinal"])  # whose levels are reported elsewhere than fitted
def test_without_the_fixed_part_nothing_is_added(data, family):
    y = np.exp(data["y"]) if family == "weibull" else pd.qcut(data["y"], 3, labels=False)
    fit = fenchel.fit("y ~ x + (1|g)", data.assign(y=y), family, accuracy="fast")
    new = pd.DataFrame({"g": np.arange(8)})
    np.testing.assert_allclose(fit.predict(new, "link", without="fixed"), fit.effects["g"]["mean"], atol=1e-6)
    drawn = fit.sample(new, 4000, 0, kind="link", without="fixed")
    np.testing.assert_allclose(drawn.mean(axis=0), fit.effects["g"]["mean"], atol=0.1)


def test_without_a_term_the_columns_of_the_dispersion_are_needed():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=60), "g": np.arange(60) % 6, "y": rng.normal(size=60)})
    fit = fenchel.fit("y ~ 1 + (1|g)", rows, "gaussian", dispersion="~ x", accuracy="fast")
    with pytest.raises(Refusal, match="no column 'x'"):
        fit.predict({"g": [0]}, "outcome", interval=0.9, without="groups")
    missing = fit.predict({"x": [0.0, np.nan]}, "outcome", interval=0.9, without="groups")
    assert missing.isna().all(axis=1).tolist() == [False, True]  # not a mean without an sd


def test_what_without_may_name(data):
    fit = fenchel.fit("y ~ x + (1|g)", data)
    with pytest.raises(
        Refusal, match=r"without names '\(1\|h\)'; expected \"groups\", \"fixed\" .*, or terms .* '\(1\|g\)'"
    ):
        fit.predict(data, without="(1|h)")
    with pytest.raises(Refusal, match="there is no column 'g'"):
        fit.predict(data[["x"]])
    plain = fenchel.fit("y ~ x", data)
    np.testing.assert_allclose(plain.predict(data, without="groups"), plain.predict(data))


# -- beyond the data --------------------------------------------------------------------------------------
@pytest.mark.parametrize("term", ["rw1(t)", "rw2(t)", "ar1(t)", "ar(t, 2)", "seasonal(t, 4)", "rw1(t, by=g)"])
def test_series_are_forecast(data, term):
    fit = fenchel.fit(f"y ~ {term}", data)
    new = pd.DataFrame({"t": [19, 20, 21, 22], "g": 0})
    found = fit.predict(new, "link", interval=0.95)
    width = (found.upper - found.lower).to_numpy()
    assert width[1] > width[0]
    assert width[3] > width[1] or term.startswith("seasonal")
    drawn = fit.sample(new, 20000, 0, kind="link")
    np.testing.assert_allclose(drawn.mean(axis=0), found["mean"], atol=4 * width.max() / 3.9 / 140)
    np.testing.assert_allclose(drawn.std(axis=0), width / (2 * 1.96), rtol=0.03)
    steps = np.diff(drawn, axis=1)[:, 1:]  # a path, not one draw for each time
    if term == "rw1(t)":
        k = fit.found.theta[0]
        np.testing.assert_allclose(steps.std(axis=0), np.exp(k), rtol=0.03)


def test_forecasts_are_those_of_levels_given_in_advance(data):
    new = pd.DataFrame({"t": [20, 23], "x": 5.0, "g": 1})
    formula = "y ~ x + ar1(t) + (1|g)"
    found = fenchel.fit(formula, data).predict(new, interval=0.9)
    known = fenchel.fit(formula, data, levels={"t": range(24)}).predict(new, interval=0.9)
    np.testing.assert_allclose(found, known, rtol=1e-6)


def test_dates_and_irregular_times_go_on(data):
    months = data.assign(m=pd.Timestamp("2020-01-31") + pd.offsets.MonthEnd(1) * data.t)
    fit = fenchel.fit("y ~ ar1(m)", months)
    later = pd.DataFrame({"m": pd.to_datetime(["2021-09-30", "2021-10-31"])})
    np.testing.assert_allclose(fit.predict(later), fenchel.fit("y ~ ar1(t)", data).predict({"t": [20, 21]}), rtol=1e-9)
    with pytest.raises(Refusal, match="is unknown to the effect"):
        fit.predict({"m": pd.to_datetime(["2021-10-05"])})
    odd = data.assign(u=np.sqrt(data.t + 1.0))
    uneven = fenchel.fit("y ~ ar1(u)", odd)
    found = uneven.predict({"u": [4.5, 5.0, 50.0]}, "link", interval=0.95)
    assert (np.diff(found.upper - found.lower) > 0).all()
    assert found["mean"].iloc[2] == pytest.approx(uneven.coefficients.loc["Intercept", "mean"], abs=0.01)


def test_what_does_not_go_on_says_so(data):
    ring = {i: [(i + 1) % 8] for i in range(8)}
    fit = fenchel.fit("y ~ icar(g) + rw1(t)", data, graphs={"g": ring})
    with pytest.raises(Refusal, match="= 8 is unknown to the effect; expected one of 8 levels"):
        fit.predict({"g": [8], "t": [20]})
    with pytest.raises(Refusal, match=r"= 99999 is 99999 steps away; expected at most 5000 beyond the levels"):
        fit.predict({"g": [7], "t": [99999]})
    assert np.isfinite(fit.predict({"g": [7], "t": [20]})).all()


# -- contrasts of a few columns ---------------------------------------------------------------------------
def test_columns_that_are_the_same_need_not_be_named(data):
    fit = fenchel.fit("y ~ x + f + rw1(t) + (1|g)", data)
    found = fit.contrast({"x": 6.0}, {"x": 5.0})
    own = fit.coefficients.loc["x"]
    np.testing.assert_allclose(found[["mean", "sd"]].iloc[0], own[["mean", "sd"]], rtol=1e-9)
    every = {"f": "b", "t": 3, "g": 5}
    np.testing.assert_allclose(fit.contrast({"x": 6.0, **every}, {"x": 5.0, **every}), found, rtol=1e-9)
    levels = fit.contrast({"f": ["b", "c"]}, {"f": "a"})
    np.testing.assert_allclose(levels["mean"], fit.coefficients.loc[["f[T.b]", "f[T.c]"], "mean"], rtol=1e-9)
    with pytest.raises(Refusal, match="there is no column 'f'"):
        fit.contrast({"x": 6.0}, {"f": "a"})


def test_beside_an_interaction_the_others_are_typical(data):
    fit = fenchel.fit("y ~ x*z + (1|g)", data.assign(z=data.t - 3.0))
    found = fit.contrast({"x": 6.0}, {"x": 5.0})["mean"].iloc[0]
    own = fit.coefficients["mean"]
    assert found == pytest.approx(own["x"] + own["x:z"] * (data.t - 3.0).mean(), rel=1e-9)


# -- beyond the Gaussian ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def few():
    rng = np.random.default_rng(4)
    x = rng.normal(3.0, 2.0, 30)
    return pd.DataFrame({"x": x, "y": rng.random(30) < 1 / (1 + np.exp(-(x - 3.0)))})


def _by_quadrature(fit, data):
    """The posterior of (intercept at the mean, effect of one sd) on a grid, under the model's own priors."""
    columns, priors = fit.model.sum.columns, fit.model.coefficient_priors
    level, (v, w) = fit.model.level, priors.variance
    c, gamma = np.meshgrid(np.linspace(-12, 12, 601), np.linspace(-12, 22, 801), indexing="ij")
    z = columns.standardise(data[["x"]].to_numpy())[:, 0]
    log_p = -((c - level) ** 2) / (2 * v) - gamma**2 / (2 * w)
    for zi, yi in zip(z, data.y, strict=True):
        log_p -= np.logaddexp(0.0, (1 - 2 * yi) * (c + gamma * zi))
    p = np.exp(log_p - log_p.max())
    return c, gamma, p / p.sum()


def _quantiles(values, p, levels):
    order = np.argsort(values.ravel())
    return np.interp(levels, np.cumsum(p.ravel()[order]), values.ravel()[order])


def test_corrected_tables_and_predictions_are_those_of_quadrature(few):
    fit = fenchel.fit("y ~ x", few, "bernoulli")
    better = fit.corrected()
    c, gamma, p = _by_quadrature(fit, few)
    scale, centre = fit.model.sum.columns.scale[0], fit.model.sum.columns.centre[0]
    beta, level = gamma / scale, c - gamma * centre / scale
    for name, values in (("x", beta), ("Intercept", level)):
        want = np.r_[_quantiles(values, p, [0.025, 0.975]), (values * p).sum()]
        errors = [
            np.abs(one.coefficients.loc[name, ["lower", "upper", "mean"]].to_numpy() - want).max()
            for one in (fit, better)
        ]
        assert errors[1] < 0.35 * errors[0]
        assert errors[1] < 0.12 * fit.coefficients.loc[name, "sd"]
    new = pd.DataFrame({"x": [8.0]})
    eta = level + 8.0 * beta
    found = better.predict(new, "link", interval=0.9).iloc[0]
    np.testing.assert_allclose(
        found[["lower", "upper"]], _quantiles(eta, p, [0.05, 0.95]), atol=0.1 * np.sqrt((eta**2 * p).sum())
    )
    chance = 1 / (1 + np.exp(-eta))
    assert better.predict(new).iloc[0] == pytest.approx((chance * p).sum(), abs=0.005)
    assert better.predict(new, "probability").iloc[0, 1] == pytest.approx(better.predict(new).iloc[0])
    limits = better.predict(new, interval=0.9)[["lower", "upper"]].iloc[0]
    np.testing.assert_allclose(limits, 1 / (1 + np.exp(-found[["lower", "upper"]])), rtol=1e-9)
    assert better.coefficients.loc["x", "odds_ratio"] == pytest.approx(np.exp(_quantiles(beta, p, [0.5])[0]), rel=0.05)


def test_a_corrected_fit_answers_as_any_other(few, data):
    fit = fenchel.fit("y ~ x + (1|g)", data.assign(y=data.y > data.y.mean()).head(80), "bernoulli")
    better = fit.corrected()
    assert "are corrected beyond the Gaussian" in better.summary()
    assert "are Gaussian" in fit.summary()
    assert "corrected" in repr(better)
    assert fit.answers is None
    own = better.effects["g"]
    assert (own.lower < own["mean"]).all()
    assert ((own.upper - own["mean"]) != (own["mean"] - own.lower)).all()
    drawn = better.sample(data.head(3), 20000, 0, kind="link")
    np.testing.assert_allclose(drawn.mean(axis=0), better.predict(data.head(3), "link"), atol=0.05)
    slope = better.contrast({"x": 6.0}, {"x": 5.0})
    np.testing.assert_allclose(
        slope[["mean", "sd", "lower", "upper"]],
        better.coefficients.loc[["x"], ["mean", "sd", "lower", "upper"]],
        rtol=1e-6,
    )
    np.testing.assert_allclose(np.sqrt(np.diag(better.covariance)), better.coefficients["sd"], rtol=1e-6)
    pd.testing.assert_frame_equal(better.hyperparameters, fit.hyperparameters)
    wide = better.predict({"x": [5.0], "g": [99]}, "link", interval=0.95).iloc[0]
    near = better.predict({"x": [5.0]}, "link", interval=0.95, without="g").iloc[0]
    assert wide.upper - wide.lower > near.upper - near.lower


def test_a_gaussian_response_is_exact_already(data):
    fit = fenchel.fit("y ~ x + (1|g)", data)
    better = fit.corrected()
    np.testing.assert_allclose(better.coefficients, fit.coefficients, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        better.predict(data.head(3), interval=0.9), fit.predict(data.head(3), interval=0.9), rtol=1e-3
    )


def test_fixed_effects_of_any_posterior():
    from fenchel import gmrf

    rng = np.random.default_rng(5)
    x = rng.normal(10.0, 2.0, 25)
    field = gmrf.stack([(gmrf.iid(5, precision=4.0), np.arange(25) % 5)], fixed=x[:, None])
    sol = fenchel.infer(fenchel.Poisson(), field.at(), rng.poisson(np.exp(0.1 * (x - 8.0))))
    plain, better = field.fixed_effects(sol), field.fixed_effects(sol.corrected())
    np.testing.assert_allclose(better[0], plain[0], atol=0.3 * np.sqrt(np.diag(plain[1])).max())
    np.testing.assert_allclose(field.fixed_effects(sol.posterior)[1], plain[1], rtol=1e-7)
    np.testing.assert_allclose(field.fixed_effects(sol.posterior)[0], plain[0], rtol=1e-9)
    assert (np.linalg.eigvalsh(better[1]) > 0.0).all()
    assert better[1][1, 1] != plain[1][1, 1]


@pytest.mark.parametrize(
    ("how", "family"),
    [("plain", "poisson"), ("plain", "gaussian"), ("corrected", "bernoulli"), ("integrated", "bernoulli")],
)
def test_sds_and_exceedances_are_those_of_draws_of_each_marginal(how, family):
    """By 400 equally likely quantiles of each marginal of eta, and by the density of y."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=40), "g": np.arange(40) % 5})
    eta = 0.3 + 0.5 * data.x + 0.4 * rng.normal(size=5)[data.g]
    data["y"] = {
        "poisson": rng.poisson(np.exp(eta)),
        "bernoulli": rng.random(40) < 1 / (1 + np.exp(-eta)),
        "gaussian": eta + 0.3 * rng.normal(size=40),
    }[family]
    fit = fenchel.fit("y ~ x + (1|g)", data, family=family, integrate="auto" if how == "integrated" else None)
    fit = fit.corrected() if how == "corrected" else fit
    new = pd.DataFrame({"x": [-1.0, 0.0, 2.0], "g": [0, 3, 1]})
    link, mean = (fit.predict(new, kind=kind, interval=0.9) for kind in ("link", "mean"))
    assert list(mean.columns) == ["mean", "sd", "lower", "upper"]
    y = predictions.predictive(fit, predictions.read_rows(fit, new), "link")
    even = (np.arange(400) + 0.5) / 400
    drawn = y.limits("link", even)
    np.testing.assert_allclose(link["sd"], drawn.std(axis=1), rtol=0.01)
    to_mean = {"poisson": np.exp, "bernoulli": lambda e: 1 / (1 + np.exp(-e)), "gaussian": lambda e: e}[family]
    np.testing.assert_allclose(mean["sd"], to_mean(drawn).std(axis=1), rtol=0.02)
    for c in (0.2, 0.6, 1.1):
        np.testing.assert_allclose(fit.exceedance(new, c), (to_mean(drawn) > c).mean(axis=1), atol=4e-3)
        np.testing.assert_allclose(fit.exceedance(new, c, "link"), (drawn > c).mean(axis=1), atol=4e-3)
    if family == "poisson":
        y = np.arange(200)[:, None, None]
        p = scipy.stats.poisson.pmf(y, to_mean(drawn)).mean(axis=2)
        np.testing.assert_allclose(fit.exceedance(new, 2, "outcome"), p[3:].sum(axis=0), atol=4e-3)
        outcome = fit.predict(new, kind="outcome", interval=0.9)["sd"]
        variance = (p * y[:, :, 0] ** 2).sum(axis=0) - (p * y[:, :, 0]).sum(axis=0) ** 2
        np.testing.assert_allclose(outcome, np.sqrt(variance), rtol=0.02)


@pytest.mark.parametrize("how", ["plain", "corrected", "integrated"])
@pytest.mark.parametrize("family", ["gaussian", "student-t"])
def test_sds_do_not_depend_on_the_level_of_y(how, family):
    """y in the order of 1e7 with noise of 0.01: sds are those of y less 1e7."""
    rng = np.random.default_rng(0)
    x, found = rng.normal(size=30), []
    y = np.round(2.0**20 * 0.01 * (x + rng.normal(size=30))) / 2.0**20  # as exact beside 1e7 as beside 0
    for level in (0.0, 1e7):
        data = pd.DataFrame({"x": x, "y": y + level})
        fit = fenchel.fit("y ~ x", data, family=family, integrate="auto" if how == "integrated" else None)
        fit = fit.corrected() if how == "corrected" else fit
        new = pd.DataFrame({"x": [-1.0, 0.0, 2.0]})
        found.append([fit.predict(new, kind, interval=0.9)["sd"] for kind in ("link", "mean", "outcome")])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3)


def test_what_an_exceedance_is_not_asked_of(data):
    fit = fenchel.fit("y ~ x", data)
    with pytest.raises(TypeError, match="kidn"):
        fit.exceedance(data.head(2), 1.0, kidn="link")
    lives = pd.DataFrame({"t": [1.0, 2.0, 3.0, 4.0, 5.0], "e": 1.0, "x": [0.3, -1.0, 2.0, 0.5, 0.1]})
    cox = fenchel.fit("cens(t, e) ~ x", lives, family="cox")
    with pytest.raises(Refusal, match="exceedance: a Cox model"):
        cox.exceedance(None, 1.0)


def test_slopes_pass_over_rows_with_holes(data, monkeypatch):
    fit = fenchel.fit("y ~ x * f", data)
    plain = fit.slopes("x", data=data)
    holes = pd.concat([data.assign(x=np.nan), data], ignore_index=True)
    monkeypatch.setattr(fenchel.models.marginal_means, "BLOCK", 20_000 * 50)  # blocks of 50 rows
    np.testing.assert_allclose(fit.slopes("x", data=holes)["estimate"], plain["estimate"], rtol=1e-6)
    with pytest.raises(Refusal, match="no row has all covariates"):
        fit.slopes("x", data=data.assign(x=np.nan))


@pytest.mark.parametrize("step", [np.nan, "one", [1.0, 2.0]])
def test_a_step_is_one_number(data, step):
    fit = fenchel.fit("y ~ x", data)
    with pytest.raises(Refusal, match=r"comparisons: step.*number"):
        fit.comparisons("x", step=step)
