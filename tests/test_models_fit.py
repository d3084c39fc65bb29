"""Models from formulas: the same fits as by hand, in any unit, and what they answer."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import fenchel
from fenchel import gmrf
from fenchel.checks import Refusal
from fenchel.datasets import load_sids
from fenchel.hyperparameters import Evidence, Normal
from fenchel.models import PC


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(4)
    n, groups = 240, 15
    data = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "z": rng.uniform(0, 5, n),
            "g": rng.integers(0, groups, n),
            "f": rng.choice(["low", "mid", "high"], n),
            "n": rng.integers(1, 9, n),
        }
    )
    u = 0.7 * rng.normal(size=groups)
    eta = 0.3 + 0.5 * data.x - 0.4 * (data.f == "mid") + u[data.g]
    data["y"] = eta + 0.6 * rng.normal(size=n)
    data["count"] = rng.poisson(data.n * np.exp(eta))
    data["hits"] = rng.binomial(data.n, expit(eta))
    data["yes"] = np.where(rng.random(n) < expit(eta), "yes", "no")
    return data


@pytest.fixture(scope="module")
def poisson(mixed):
    return fenchel.fit("count ~ x + f + (1|g)", mixed, "poisson", exposure="n")


def test_a_linear_mixed_model_is_the_dense_posterior(mixed):
    """N(0, K)-regression written out with numpy at the hyperparameters that were learned."""
    fit = fenchel.fit("y ~ x + z + (1|g)", mixed)
    tau, sigma = fit.hyperparameters["value"]
    y, X = mixed.y.to_numpy(), np.column_stack([mixed.x, mixed.z])
    sd = X.std(axis=0)
    Z = np.column_stack([np.ones(len(y)), (X - X.mean(axis=0)) / sd])
    G = np.eye(15)[mixed.g]
    D = np.hstack([G, Z])
    scale = fit.model.target.scale
    P = np.diag([tau**-2] * 15 + [1 / (100 * scale**2)] * 3) + D.T @ D / sigma**2
    V = np.linalg.inv(P)
    m = V @ (D.T @ (y - y.mean())) / sigma**2
    slopes = fit.coefficients.loc[["x", "z"]]
    np.testing.assert_allclose(slopes["mean"], m[-2:] / sd, rtol=1e-7)
    np.testing.assert_allclose(slopes["sd"], np.sqrt(np.diag(V)[-2:]) / sd, rtol=1e-7)
    at_zero = m[-3] + y.mean() - (X.mean(axis=0) / sd) @ m[-2:]
    np.testing.assert_allclose(fit.coefficients.loc["Intercept", "mean"], at_zero, rtol=1e-7)
    np.testing.assert_allclose(fit.effects["g"]["mean"], m[:15], rtol=1e-6, atol=1e-8)
    assert fit.converged
    assert fit.gap < 1e-7


def test_a_map_is_that_of_a_field_built_by_hand():
    sids = load_sids()
    data = pd.DataFrame({"county": sids.county, "deaths": sids.deaths, "expected": sids.expected})
    graph = sids.adjacency
    given = {"exposure": "expected", "levels": {"county": sids.county}}
    fit = fenchel.fit("deaths ~ bym2(county, graph)", data, "poisson", **given, tol=1e-13)
    field = gmrf.stack([(gmrf.bym2(graph), np.arange(len(data)))])
    level = np.log(data.deaths.sum() / data.expected.sum())
    sol = fenchel.infer(fenchel.Poisson(sids.expected), field.at(fit.theta, offset=level), sids.deaths, tol=1e-12)
    assert fit.elbo == pytest.approx(sol.elbo, abs=1e-8)
    np.testing.assert_allclose(fit.predict(None, "link"), sol.posterior.mean, atol=1e-6)
    by_name = fenchel.fit(
        "deaths ~ bym2(county)",
        data,
        "poisson",
        exposure="expected",
        graphs={"county": graph},
        levels={"bym2(county)": sids.county},
        tol=1e-13,
    )
    assert by_name.elbo == pytest.approx(fit.elbo, abs=1e-9)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1000.0), (1e6, 1.0), (-3.0, 1e-4), (1e6, 1e3)])
@pytest.mark.parametrize("formula", ["count ~ x + f + (1|g)", "count ~ x*f + (1|g)", "count ~ 0 + f + x"])
def test_units_and_origins_do_not_matter(mixed, formula, shift, scale):
    one = fenchel.fit(formula, mixed, "poisson", exposure="n")
    other = mixed.assign(x=shift + scale * mixed.x)
    two = fenchel.fit(formula, other, "poisson", exposure="n")
    np.testing.assert_allclose(two.predict(), one.predict(), rtol=1e-6)
    np.testing.assert_allclose(
        two.coefficients.loc["x", ["mean", "sd"]] * scale, one.coefficients.loc["x", ["mean", "sd"]], rtol=1e-6
    )
    if ":" not in "".join(two.coefficients.index):
        assert two.elbo == pytest.approx(one.elbo, abs=1e-6)


def test_a_year_has_the_right_slope():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"year": np.repeat(np.arange(1960, 1991), 5)})
    data["deaths"] = rng.poisson(np.exp(2.0 + 0.03 * (data.year - 1975)))
    fit = fenchel.fit("deaths ~ year", data, "poisson")
    assert abs(fit.coefficients.loc["year", "mean"] - 0.03) < 3 * fit.coefficients.loc["year", "sd"] < 0.02
    decades = fenchel.fit("deaths ~ decade", data.assign(decade=(data.year - 1960) / 10), "poisson")
    assert decades.coefficients.loc["decade", "mean"] / 10 == pytest.approx(
        fit.coefficients.loc["year", "mean"], rel=1e-6
    )


def test_factors_are_factors_whatever_their_labels_look_like(mixed):
    one = fenchel.fit("y ~ f", mixed)
    named = {"low": "3", "mid": "1", "high": "2"}
    two = fenchel.fit("y ~ f", mixed.assign(f=mixed.f.map(named)))
    three = fenchel.fit("y ~ C(f)", mixed.assign(f=mixed.f.map(named).astype(int)))
    np.testing.assert_allclose(one.predict(), two.predict(), rtol=1e-3)  # another reference, another prior
    np.testing.assert_allclose(two.predict(), three.predict(), rtol=1e-9)
    assert list(two.coefficients.index) == ["Intercept", "f[T.2]", "f[T.3]"]


# -- left sides -------------------------------------------------------------------------------------------
def test_ways_to_say_trials(mixed):
    fits = [
        fenchel.fit("hits | trials(n) ~ x", mixed, "binomial"),
        fenchel.fit("hits ~ x", mixed, "binomial", trials="n"),
        fenchel.fit("hits ~ x", mixed, "binomial", trials=mixed.n),
        fenchel.fit("cbind(hits, misses) ~ x", mixed.assign(misses=mixed.n - mixed.hits), "binomial"),
    ]
    for fit in fits[1:]:
        assert fit.elbo == pytest.approx(fits[0].elbo, abs=1e-9)
    rate = fits[1].predict(mixed.head(3), trials=1)
    np.testing.assert_allclose(fits[0].predict(mixed.head(3)), rate * mixed.n.head(3))


def test_an_offset_is_an_exposure(mixed):
    one = fenchel.fit("count ~ x + (1|g) + offset(np.log(n))", mixed, "poisson")
    two = fenchel.fit("count ~ x + (1|g)", mixed, "poisson", exposure="n")
    np.testing.assert_allclose(one.predict(mixed), two.predict(mixed), rtol=1e-5)
    np.testing.assert_allclose(one.coefficients["mean"], two.coefficients["mean"], atol=1e-4)
    far = fenchel.fit("count ~ x + (1|g) + offset(np.log(n) + 20)", mixed, "poisson")
    np.testing.assert_allclose(far.predict(mixed), one.predict(mixed), rtol=1e-7)
    assert far.coefficients.loc["Intercept", "mean"] == pytest.approx(one.coefficients.loc["Intercept", "mean"] - 20)


def test_words_and_booleans_and_levels(mixed):
    words = fenchel.fit("yes ~ x + (1|g)", mixed, "bernoulli")
    truth = fenchel.fit("yes ~ x + (1|g)", mixed.assign(yes=mixed.yes == "yes"), "bernoulli")
    assert words.elbo == pytest.approx(truth.elbo)
    table = words.predict(mixed.head(4), "probability")
    assert list(table.columns) == ["no", "yes"]
    np.testing.assert_allclose(table["yes"], words.predict(mixed.head(4)))
    cut = pd.cut(mixed.y, [-9, 0, 1, 9], labels=["little", "some", "much"])
    ordered = fenchel.fit("level ~ x", mixed.assign(level=cut), "ordinal")
    p = ordered.predict(mixed, "probability")
    assert list(p.columns) == ["little", "some", "much"]
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert ordered.coefficients.loc["x", "mean"] > 0.5
    far = fenchel.fit("level ~ x", mixed.assign(level=cut, x=mixed.x + 100), "ordinal")
    shift = far.hyperparameters["value"].to_numpy() - ordered.hyperparameters["value"].to_numpy()
    at_mode = ordered.model.sum.fixed_effects(ordered.solution)[0][0]
    np.testing.assert_allclose(shift, 100 * at_mode, rtol=1e-5)
    assert at_mode == pytest.approx(ordered.coefficients.loc["x", "mean"], rel=0.01)


def test_durations(mixed):
    rng = np.random.default_rng(1)
    t = rng.weibull(1.5, len(mixed)) * np.exp(-0.5 * mixed.x / 1.5)
    data = mixed.assign(t=np.minimum(t, 1.0), dead=t < 1.0)
    fit = fenchel.fit("cens(t, dead) ~ x", data, "weibull")
    assert abs(fit.coefficients.loc["x", "mean"] - 0.5) < 0.3
    assert fit.elbo == pytest.approx(fenchel.fit("t ~ x", data, "weibull", event="dead").elbo)


def test_transformed_responses(mixed):
    one = fenchel.fit("np.exp(y) ~ x", mixed)
    assert one.predict(mixed)[0] == pytest.approx(fenchel.fit("e ~ x", mixed.assign(e=np.exp(mixed.y))).predict()[0])


# -- answers ----------------------------------------------------------------------------------------------
def test_the_summary_says_what_a_reader_asks(mixed):
    data = mixed.copy()
    data.loc[[3, 4], "x"] = np.nan
    data.loc[7, "count"] = np.nan
    text = fenchel.fit("count ~ x + (1|g)", data, "poisson", exposure="n").summary()
    assert text.splitlines()[1].startswith("converged: gap")
    for line in (
        "count ~ x + (1|g)",
        "family: poisson",
        "(1|g): independent effects of groups, 15 levels",
        "rows: 238 used, 1 of them with y unobserved and predicted",
        "dropped: 2 rows in which a covariate is missing ('x' in 2)",
        "half-normal, P(sd > 5) = 0.05",
    ):
        assert line in text


def test_predictions_and_intervals(poisson, mixed):
    frame = poisson.predict(mixed, interval=0.9)
    assert (frame["lower"] < frame["mean"]).all()
    assert (frame["mean"] < frame["upper"]).all()
    link = poisson.predict(mixed, "link", interval=0.9)
    np.testing.assert_allclose(mixed.n * np.exp(link["lower"]), frame["lower"])
    outcome = poisson.predict(mixed, "outcome", interval=0.9)
    inside = (mixed["count"] >= outcome["lower"]) & (mixed["count"] <= outcome["upper"])
    assert 0.85 < inside.mean() < 1.0
    np.testing.assert_allclose(poisson.predict(), poisson.predict(mixed))
    shuffled = mixed.sample(frac=1.0, random_state=0)
    pd.testing.assert_series_equal(poisson.predict(shuffled).sort_index(), poisson.predict(mixed))


def test_draws_agree_with_moments(poisson, mixed):
    new = mixed.head(6)
    draws = poisson.sample(new, 20_000, 0, kind="link")
    table = poisson.predict(new, "link", interval=0.95)
    sd = (table["upper"] - table["lower"]) / (2 * 1.959964)
    assert (np.abs(draws.mean(axis=0) - table["mean"]) < 5 * sd / np.sqrt(20_000)).all()
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.03)
    means = poisson.sample(new, 20_000, 0)
    np.testing.assert_allclose(means.mean(axis=0), poisson.predict(new), rtol=0.02)
    assert poisson.simulate(3, 0).shape == (3, len(mixed))
    assert (poisson.simulate(3, 0) == np.floor(poisson.simulate(3, 0))).all()


def test_new_groups_are_of_the_population(poisson, mixed):
    new = mixed.head(3).assign(g=[99, 99, 100])
    known, table = poisson.predict(mixed.head(3), "link", interval=0.95), poisson.predict(new, "link", interval=0.95)
    assert ((table["upper"] - table["lower"]) > (known["upper"] - known["lower"])).all()
    draws = poisson.sample(new, 5000, 0, kind="link")
    correlation = np.corrcoef((draws - draws.mean(axis=0)).T)
    assert correlation[0, 1] > 0.9  # one group
    assert abs(correlation[0, 2]) < 0.3
    sd = (table["upper"] - table["lower"]) / (2 * 1.959964)
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.05)
    with pytest.raises(Refusal, match=r"row 0 has a group of \(1\|g\) that fit has not seen: 99"):
        poisson.predict(new, new_groups="error")


def test_contrasts(poisson, mixed):
    a, b = mixed.head(1).assign(x=1.0), mixed.head(1).assign(x=0.0)
    both = poisson.contrast(a, b)
    np.testing.assert_allclose(both[["mean", "sd"]], poisson.coefficients.loc[["x"], ["mean", "sd"]], rtol=1e-8)
    many = poisson.contrast(mixed.head(5), b, "mean")
    rate = poisson.predict(mixed.head(5), exposure=1) - float(poisson.predict(b, exposure=1).iloc[0])
    np.testing.assert_allclose(many["mean"], rate, atol=0.03)
    with pytest.raises(Refusal, match="5 rows meet 3"):
        poisson.contrast(mixed.head(5), mixed.head(3))


def test_slopes_and_comparisons(poisson, mixed):
    linear = fenchel.fit("y ~ x + f + (1|g)", mixed)
    np.testing.assert_allclose(linear.slopes("x")["estimate"], linear.coefficients.loc["x", "mean"], rtol=0.02)
    factor = linear.comparisons("f", contrast="reference")
    assert list(factor["contrast"]) == ["low - high", "mid - high"]
    np.testing.assert_allclose(factor["estimate"], linear.coefficients.loc[["f[T.low]", "f[T.mid]"], "mean"], atol=0.02)
    slope = poisson.slopes("x", groups="own").iloc[0]
    expected = (poisson.coefficients.loc["x", "mean"] * poisson.predict(mixed, exposure=1)).mean()
    assert slope["estimate"] == pytest.approx(expected, rel=0.05)
    with pytest.raises(Refusal, match="'z' is no covariate of the model"):
        poisson.slopes("z")
    with pytest.raises(Refusal, match="says which group a row has"):
        fenchel.fit("y ~ (1|f)", mixed).comparisons("f")


def test_hyperparameters_have_intervals(mixed):
    """The curvature of the evidence, by second differences of its value."""
    fit = fenchel.fit("y ~ x + (1|g)", mixed)
    model, t = fit.model, fit.theta
    evidence = Evidence(fit.found.likelihood, model.sum.family(), model.target.y, tol=1e-14)

    def value(theta):
        return evidence.fit(theta).elbo + evidence.log_prior(theta)[0]

    h = 0.05
    H = np.empty((2, 2))
    for i, a in enumerate(np.eye(2) * h):
        for j, b in enumerate(np.eye(2) * h):
            H[i, j] = -(value(t + a + b) - value(t + a - b) - value(t - a + b) + value(t - a - b)) / (4 * h * h)
    np.testing.assert_allclose(fit.theta_covariance, np.linalg.inv(H), rtol=0.03, atol=1e-4)
    table = fit.hyperparameters
    assert list(table.index) == [("(1|g)", "sd"), ("noise", "sd")]
    assert (table["lower"] < table["value"]).all()
    assert (table["value"] < table["upper"]).all()
    assert table.loc[("(1|g)", "sd"), "lower"] < 0.7 < table.loc[("(1|g)", "sd"), "upper"]


def test_priors_by_name(mixed):
    model = fenchel.Model(
        "y ~ x + f + (1|g)", mixed, priors={"x": Normal(2.0, 1e-3), "(1 | g)": PC(sd=0.1, alpha=0.05)}
    )
    assert model.priors.loc[("x", "coefficient"), "prior"] == "N(2, 0.001^2)"
    assert model.priors.loc[("(1|g)", "sd"), "prior"] == "exponential, P(sd > 0.1) = 0.05"
    fit = model.fit()
    assert fit.coefficients.loc["x", "mean"] == pytest.approx(2.0, abs=0.01)
    wide = fenchel.fit("y ~ x + f + (1|g)", mixed)
    assert fit.hyperparameters.loc[("(1|g)", "sd"), "value"] < wide.hyperparameters.loc[("(1|g)", "sd"), "value"]
    held = fenchel.fit("y ~ x", mixed, priors={"Intercept": Normal(5.0, 1e-4)})
    at_mean = held.coefficients.loc["Intercept", "mean"] + held.coefficients.loc["x", "mean"] * mixed.x.mean()
    assert at_mean == pytest.approx(5.0, abs=1e-3)
    np.testing.assert_allclose(fit.predict(mixed), fit.predict())
    with pytest.raises(Refusal, match=r"priors name 'nope'; expected one of \['Intercept', 'x'"):
        fenchel.Model("y ~ x", mixed, priors={"nope": Normal()})
    with pytest.raises(Refusal, match="the prior of the coefficient 'x' is 3"):
        fenchel.Model("y ~ x", mixed, priors={"x": 3})


def test_a_stated_prior_is_that_of_its_unit(mixed):
    """Normal(0, s) of a coefficient, whatever the unit of the column: conjugate by hand."""
    s, data = 0.2, mixed.assign(x=50.0 + 7.0 * mixed.x)
    fit = fenchel.fit("y ~ x", data, priors={"x": Normal(0.1, s)})
    noise = float(fit.hyperparameters["value"].iloc[0])
    centred, y = data.x - data.x.mean(), data.y - data.y.mean()
    precision = 1 / s**2 + (centred**2).sum() / noise**2
    mean = (0.1 / s**2 + (centred * y).sum() / noise**2) / precision
    np.testing.assert_allclose(fit.coefficients.loc["x", ["mean", "sd"]], [mean, precision**-0.5], rtol=1e-6)


def test_leave_one_out_saving_and_pickles(poisson, mixed, tmp_path):
    assert poisson.loo().elpd < 0.0
    poisson.save(tmp_path / "fit.model")
    again = fenchel.load(tmp_path / "fit.model")
    np.testing.assert_allclose(again.predict(mixed), poisson.predict(mixed), rtol=1e-12)
    assert pickle.loads(pickle.dumps(poisson)).summary() == poisson.summary()
    (tmp_path / "other").write_bytes(pickle.dumps(3))
    with pytest.raises(Refusal, match="other is a pickle, which can run any code"):
        fenchel.load(tmp_path / "other")
    local = fenchel.fit("y ~ square(x)", mixed, env={"square": lambda x: x**2})
    with pytest.raises(Refusal, match="cannot be saved"):
        local.save(tmp_path / "local")


def test_effects_by_text_and_by_column(mixed):
    fit = fenchel.fit("y ~ x + (1|g) + (0 + x|g) + (1|f)", mixed)
    assert list(fit.effects) == ["(1|g)", "(0+x|g)", "(1|f)"]
    assert len(fit.effects["(0 + x | g)"]) == 15
    assert fit.effects["f"].index.tolist() == ["high", "low", "mid"]
    with pytest.raises(KeyError, match="'g' is 2 terms"):
        fit.effects["g"]
    assert list(fit.effects["(1|g)"]["n"]) == mixed.g.value_counts().sort_index().tolist()


def test_nested_and_crossed_groups(mixed):
    nested = fenchel.fit("y ~ x + (1|g/f)", mixed)
    assert list(nested.effects) == ["(1|g)", "(1|g:f)"]
    both = mixed.assign(both=mixed.g.astype(str) + "/" + mixed.f)
    byhand = fenchel.fit("y ~ x + (1|g) + (1|both)", both)
    assert nested.elbo == pytest.approx(byhand.elbo, abs=1e-8)
    np.testing.assert_allclose(nested.predict(mixed), byhand.predict(both), rtol=1e-7)
    unseen = nested.predict(mixed.head(1).assign(f="other"), interval=0.9)
    assert np.isfinite(unseen.to_numpy()).all()


def test_uncorrelated_slopes(mixed):
    fit = fenchel.fit("y ~ x + (x||g)", mixed)
    byhand = fenchel.fit("y ~ x", mixed, terms=[fenchel.terms.IID("g"), fenchel.terms.IID("g", by="x")])
    assert fit.elbo == pytest.approx(byhand.elbo, abs=1e-7)


def test_a_known_covariance(mixed):
    """Of independent groups it is (1|g)."""
    A = pd.DataFrame(np.eye(15), index=range(15), columns=range(15))  # noqa: F841
    one, two = fenchel.fit("y ~ x + (1|gr(g, cov=A))", mixed), fenchel.fit("y ~ x + (1|g)", mixed)
    np.testing.assert_allclose(one.predict(), two.predict(), rtol=1e-3)
    with pytest.raises(Refusal, match="not positive definite"):
        fenchel.fit("y ~ (1|gr(g, cov=B))", mixed, env={"B": -np.eye(15)})


def test_variables_of_the_caller_and_of_env(mixed):
    def twice(v):
        return 2 * v

    one = fenchel.fit("y ~ twice(x)", mixed)
    two = fenchel.fit("y ~ other(x)", mixed, env={"other": twice})
    assert one.coefficients["mean"].tolist() == pytest.approx(two.coefficients["mean"].tolist())
    np.testing.assert_allclose(two.predict(mixed), two.predict())


def test_weights(mixed):
    counts = np.random.default_rng(0).integers(0, 3, len(mixed))
    one = fenchel.fit("y ~ x + (1|g)", mixed.assign(w=counts), weights="w")
    repeated = mixed.loc[mixed.index.repeat(counts)]  # its index repeats itself as well
    two = fenchel.fit("y ~ x + (1|g)", repeated)
    np.testing.assert_allclose(one.coefficients["mean"], two.coefficients["mean"], rtol=1e-3)
    assert len(two.predict(repeated)) == len(repeated)


def test_nothing_is_warned_of(mixed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fenchel.fit("y ~ x + f + (1|g) + offset(z)", mixed)
        fit.summary()
        fit.predict(mixed, interval=0.9)


def test_models_compared(mixed):
    fits = {f: fenchel.fit(f"y ~ {f}", mixed) for f in ("1", "x", "x + (1|g)")}
    table = fenchel.compare(fits)
    assert list(table.index) == ["x + (1|g)", "x", "1"]
    assert table.loc["x", "elbo"] == fits["x"].elbo
    assert table["elpd"].iloc[0] == pytest.approx(fits["x + (1|g)"].loo().elpd)
    assert table["difference"].iloc[0] == table["difference_se"].iloc[0] == 0.0
    assert (table["difference_se"].iloc[1:] > 0.0).all()
    with pytest.raises(Refusal, match="are not of the same rows of y"):
        fenchel.compare({"a": fits["1"], "b": fenchel.fit("z ~ 1", mixed)})
    with pytest.raises(Refusal, match="are not of the same rows of y"):
        fenchel.compare({"a": fits["1"], "b": fenchel.fit("y ~ 1", mixed.head(9))})


def test_terms_beside_a_formula(mixed):
    one = fenchel.fit("y ~ x", mixed, terms=[fenchel.terms.IID("g")])
    two = fenchel.fit("y ~ x + (1|g)", mixed)
    assert one.elbo == pytest.approx(two.elbo, abs=1e-10)
    np.testing.assert_allclose(one.effects["g"], two.effects["g"], rtol=1e-8)
    with pytest.raises(Refusal, match="there is no column 'gg'"):
        fenchel.Model("y ~ x", mixed, terms=[fenchel.terms.IID("gg")])
    with pytest.raises(Refusal, match="an entry of terms is a str; expected a Term"):
        fenchel.Model("y ~ x", mixed, terms=["g"])


def test_a_slope_is_not_what_one_more_unit_does(poisson):
    """Of counts exp(c + b x): a slope b E[y], one more unit (e^b - 1) E[y], averages over the rows."""
    asked = {"weights": "population", "groups": "own"}
    slope, unit = poisson.slopes("x", **asked).iloc[0], poisson.comparisons("x", **asked).iloc[0]
    b, mean = poisson.coefficients.loc["x", "mean"], poisson.predict(exposure=1.0).mean()
    assert slope["estimate"] == pytest.approx(b * mean, rel=0.1)
    assert unit["estimate"] == pytest.approx(np.expm1(b) * mean, rel=0.1)
    assert unit["estimate"] > 1.05 * slope["estimate"]
    assert unit["contrast"] == "+1"
    link = poisson.slopes("x", scale="link").iloc[0]
    np.testing.assert_allclose(
        link[["estimate", "std_error"]].astype(float), poisson.coefficients.loc["x", ["mean", "sd"]], rtol=1e-6
    )


def test_a_formula_without_a_fixed_column_is_fitted(mixed):
    fit = fenchel.fit("hits ~ 0 + (1|g)", mixed.assign(hits=mixed.hits > 0), "bernoulli")
    assert fit.converged
    assert len(fit.coefficients) == 0
