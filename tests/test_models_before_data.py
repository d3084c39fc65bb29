"""Before there are data: prior predictive draws, data sets of known parameters, power; and scikit-learn's routing."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fenchel
from fenchel.checks import Refusal
from fenchel.models import before_data
from fenchel.models.before_data import KnownParameters
from fenchel.models.prior_draws import draw_data


def plan(n=2000, groups=50, **columns):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"x": rng.normal(size=n), "arm": np.tile([0, 1], n // 2), "g": np.arange(n) % groups, "y": np.nan, **columns}
    )


def test_data_sets_of_known_parameters_have_their_moments():
    data = plan()
    model = fenchel.Model("y ~ x + arm + (x|g)", data, "gaussian")
    known = {"sd intercept": 0.8, "sd x": 0.5, "correlation intercept, x": 0.3}
    truth = {"Intercept": 3.0, "x": -1.0, "arm": 0.5}
    y = model.simulate(truth, {"(x|g)": known, "noise": {"sd": 0.7}}, size=200, rng=1)
    assert y.shape == (200, len(data))
    mean = 3.0 - data.x + 0.5 * data.arm
    S = np.array([[0.64, 0.3 * 0.4], [0.3 * 0.4, 0.25]])
    Z = np.column_stack([np.ones(len(data)), data.x])
    variance = np.einsum("ni,ij,nj->n", Z, S, Z) + 0.49
    score = (y - mean.to_numpy()) / np.sqrt(variance)
    assert abs(score.mean()) < 5 * np.sqrt(0.6 / (200 * 50))
    assert score.var() == pytest.approx(1.0, abs=0.05)
    pair = np.flatnonzero(data.g == 0)[:2]
    expected = Z[pair[0]] @ S @ Z[pair[1]]
    spread = np.cov((y - mean.to_numpy())[:, pair].T)[0, 1]
    assert abs(spread - expected) < 5 * np.sqrt(variance[pair].prod() / 200)


@pytest.mark.parametrize(("family", "own"), [("poisson", {}), ("bernoulli", {}), ("gamma", {"Gamma": 2.0})])
def test_families_are_simulated_without_y(family, own):
    model = fenchel.Model("y ~ arm", plan(4000), family)
    hyper = own and {next(iter(dict.fromkeys(model_names(model)))): next(iter(own.values()))}
    y = model.simulate({"Intercept": 0.2, "arm": 0.5}, hyper, rng=0)[0]
    mean = {"poisson": np.exp, "gamma": np.exp, "bernoulli": lambda eta: 1 / (1 + np.exp(-eta))}[family]
    for arm in (0, 1):
        own_rows = y[np.tile([0, 1], 2000) == arm]
        assert abs(own_rows.mean() - mean(0.2 + 0.5 * arm)) < 5 * own_rows.std() / np.sqrt(own_rows.size)


def model_names(model):
    """The owners of the hyperparameters, as messages name them."""
    with pytest.raises(Refusal) as refused:
        model.simulate(dict.fromkeys(["Intercept", "arm"], 0.0), {})
    return [str(refused.value).split("hyperparameters={'")[1].split("'")[0]]


def test_data_sets_share_one_prior_of_the_latents(monkeypatch):
    model = fenchel.Model("y ~ arm + (1|g)", plan(40, 8), "poisson")
    b, theta = {"Intercept": 1.0, "arm": 0.5}, {"(1|g)": 0.3}
    known = KnownParameters.of("simulate", model, b, theta)
    rng = np.random.default_rng(3)
    each = [draw_data("simulate", model, model.target.likelihood, known.theta, rng, known.fixed).y for _ in range(12)]
    built, whole = [], before_data.prior_at
    monkeypatch.setattr(before_data, "prior_at", lambda *given: built.append(given) or whole(*given))
    np.testing.assert_array_equal(model.simulate(b, theta, size=12, rng=3), each)
    fenchel.power(model, "arm", n=10, coefficients=b, hyperparameters=theta)
    assert len(built) == 2  # one for each call


def test_what_is_not_stated_is_asked_for():
    model = fenchel.Model("y ~ x + (1|g)", plan(), "gaussian")
    with pytest.raises(Refusal, match=r"coefficients: 'x' is unknown or missing"):
        model.simulate({"Intercept": 1.0})
    with pytest.raises(Refusal, match=r"sd of \(1\|g\) is not stated"):
        model.simulate({"Intercept": 1.0, "x": 0.0})
    with pytest.raises(Refusal, match="name 'site'"):
        model.simulate({"Intercept": 1.0, "x": 0.0}, {"(1|g)": 1.0, "noise": 1.0, "site": 1.0})
    with pytest.raises(Refusal, match="stated parameters make data beyond"):
        model.simulate({"Intercept": 1e13, "x": 0.0}, {"(1|g)": 1.0, "noise": 1.0})
    with pytest.raises(ValueError, match="every y is NaN"):
        model.fit()
    with pytest.raises(ValueError, match="levels are not known"):
        fenchel.Model("y ~ x", plan(), "ordinal")


def test_the_columns_of_a_pilot_are_taken_as_they_are():
    data = plan(200, 20, z=8.0 + np.arange(200) % 4)  # z lies far from 0: further rows of the sds at its mean
    model = fenchel.Model("y ~ z + (z|g)", data.assign(y=np.random.default_rng(1).normal(size=200)), "gaussian")
    pilot = model.fit(accuracy="fast")
    b, theta = pilot.coefficients["mean"], pilot.hyperparameters["value"]
    nested = {term: theta[term].to_dict() for term in theta.index.get_level_values(0).unique()}
    written = model.simulate(b.to_dict(), nested, size=2, rng=3)
    np.testing.assert_allclose(model.simulate(b, theta, size=2, rng=3), written, rtol=1e-6)
    found = fenchel.power(model, "z", n=10, coefficients=b, hyperparameters=theta)
    assert found.table.loc["z", "truth"] == b["z"]


@pytest.mark.parametrize("family", ["weibull", "ordinal"])
def test_parameters_of_a_pilot_make_data_like_its_own(family):
    """Durations are fitted in a unit of their own, cutpoints at the mean of x: both are stated as they are reported."""
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 1.0, 1000)
    durations, levels = 1000.0 * rng.weibull(1.5, x.size), np.digitize(x + rng.logistic(size=x.size), [1.5, 4.5])
    y = durations if family == "weibull" else levels
    fit = fenchel.fit("y ~ x", {"x": x, "y": y}, family, accuracy="fast")
    drawn = fit.model.simulate(fit.coefficients["mean"], fit.hyperparameters["value"], size=20)
    assert drawn.mean() == pytest.approx(y.mean(), rel=0.05)


def test_what_one_likelihood_does_not_draw_is_refused():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=60), "label": rng.choice(list("abc"), 60), "event": np.arange(60) % 2})
    data = data.assign(y=rng.poisson(1.0, 60), t=rng.exponential(size=60))
    with pytest.raises(Refusal, match="a model of multinomial; expected a model of one likelihood"):
        fenchel.Model("label ~ x", data, "multinomial").prior_predictive(2)
    with pytest.raises(Refusal, match="a model of hurdle"):  # its main part are the counts above 0
        fenchel.Model("y ~ x", data, "hurdle-poisson", zero="~ x", fixed_sd=1).prior_predictive(2)
    with pytest.raises(Refusal, match="an event of 1 in every row"):
        fenchel.power(
            fenchel.Model("cens(t, event) ~ x", data, "exponential"), coefficients={"Intercept": 0.0, "x": 0.5}
        )


def test_prior_predictive_draws_have_the_variance_of_the_priors():
    data = plan(40)
    model = fenchel.Model(
        "y ~ x",
        data,
        "gaussian",
        priors={
            "Intercept": fenchel.Normal(2.0, 0.5),
            "x": fenchel.Normal(1.0, 0.3),
            "noise": fenchel.Normal(0.0, 1e-3),
        },
    )
    y = model.prior_predictive(2000, rng=0)
    x = data.x.to_numpy()
    centred = x - x.mean()
    np.testing.assert_allclose(y.mean(axis=0), 2.0 + centred, atol=0.15)
    np.testing.assert_allclose(y.var(axis=0), 0.25 + 0.09 * centred**2 + 1.0, rtol=0.2)


def test_power_of_two_groups_is_that_of_the_normal_test():
    """Arms are balanced within sites, whose effects cancel: the z-test of known variance is near."""
    data = plan(200, groups=10)
    model = fenchel.Model("y ~ arm + (1|g)", data.assign(g=np.arange(200) // 20), "gaussian")
    found = fenchel.power(
        model, n=60, coefficients={"Intercept": 0.0, "arm": 0.35}, hyperparameters={"(1|g)": 0.5, "noise": 1.0}
    )
    shift = 0.35 / np.sqrt(2 / 100)
    expected = stats.norm.sf(1.96 - shift)
    row = found.table.loc["arm"]
    assert abs(row.power - expected) < 4 * row.mc_error
    assert row.coverage > 0.88
    assert row.sd == pytest.approx(np.sqrt(2 / 100), rel=0.25)
    p = (60 * row.power + 2) / 64
    assert row.mc_error == pytest.approx(np.sqrt(p * (1 - p) / 64))
    assert found.fits.shape == (60, 3)
    assert "by 60 data sets" in repr(found)
    with pytest.raises(ValueError, match="effect"):
        fenchel.power(model, "dose", 20, coefficients={"Intercept": 0.0, "arm": 0.35}, hyperparameters={})
    sure = fenchel.power(
        model, n=10, coefficients={"Intercept": 0.0, "arm": 3.0}, hyperparameters={"(1|g)": 0.5, "noise": 1.0}
    )
    assert sure.table.loc["arm", "power"] == 1.0
    assert sure.table.loc["arm", "mc_error"] > 0.05  # ten of ten are not certainty


def test_a_model_with_another_response(tmp_path):
    data = plan(60).assign(y=np.arange(60.0))
    model = fenchel.Model("y ~ x", data, "gaussian")
    other = model.with_response(np.ones(60))
    assert (other.target.y == 1.0).all()
    assert (model.target.y == np.arange(60.0)).all()
    with pytest.raises(Refusal, match=r"y of shape \(3,\)"):
        model.with_response(np.ones(3))
    with pytest.raises(Refusal, match="is computed"):
        fenchel.Model("np.log(y + 1) ~ x", data).with_response(np.ones(60))


def test_arviz_has_the_prior_too():
    pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    data = plan(60, groups=6).assign(y=rng.poisson(2.0, 60))
    fit = fenchel.fit("y ~ x + (1|g)", data, "poisson", fixed_sd=1, accuracy="fast")
    from fenchel.models.export import prior_datasets

    groups = prior_datasets(fit, 40, 0)
    assert set(groups) == {"prior", "prior_predictive"}
    assert groups["prior"]["x"].shape == (1, 40)
    assert groups["prior_predictive"]["y"].shape == (1, 40, 60)
    assert groups["prior"]["(1|g) sd"].std() > 0.1


def test_metadata_is_routed_through_a_pipeline():
    sklearn = pytest.importorskip("sklearn")
    from sklearn.model_selection import cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    if tuple(int(part) for part in sklearn.__version__.split(".")[:2]) < (1, 8):
        pytest.skip("the first Pipeline that routes sample_weight to score is that of scikit-learn 1.8")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=90), "g": np.arange(90) % 6})
    exposure, weight = rng.uniform(0.5, 20.0, 90), rng.integers(1, 4, 90).astype(float)
    y = rng.poisson(exposure * np.exp(0.5 + 0.3 * X.x))
    model = fenchel.FormulaRegressor("y ~ x + (1|g)", family="poisson", accuracy="fast")
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True, exposure=True).set_score_request(sample_weight=True, exposure=True)
        pipe = make_pipeline(FunctionTransformer(lambda frame: frame), model)
        rows = {"sample_weight": weight, "exposure": exposure}
        found = cross_validate(pipe, X, y, cv=3, params=rows, return_estimator=True)
    first, last = np.arange(30), np.arange(30, 90)
    alone = fenchel.FormulaRegressor("y ~ x + (1|g)", family="poisson", exposure="e", accuracy="fast")
    named = X.assign(e=exposure)
    alone.fit(named.iloc[last], y[last], sample_weight=weight[last])
    assert found["test_score"][0] == pytest.approx(alone.score(named[:30], y[:30], sample_weight=weight[:30]), rel=1e-6)
    np.testing.assert_allclose(found["estimator"][0].predict(X), alone.predict(named.assign(e=1.0)), rtol=1e-6)
    with pytest.raises(Refusal, match="one of them"):
        alone.fit(named.iloc[first], y[first], exposure=exposure[first])
