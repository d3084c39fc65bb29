"""The dial of accuracy: what each of its steps gives, what it costs, and that the first line says it."""

import warnings

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel import gates
from fenchel.hyperparameters.integration import fitted_design
from fenchel.models import accuracy

RNG = np.random.default_rng(3)
GROUP = np.repeat(np.arange(15), 4)
ETA = 0.5 * RNG.normal(size=60) + RNG.normal(size=15)[GROUP]
DATA = pd.DataFrame({"x": RNG.normal(size=60), "g": GROUP, "t": np.tile(np.arange(4), 15)})
DATA["count"], DATA["b"] = RNG.poisson(np.exp(ETA)), (ETA + RNG.logistic(size=60) > 0).astype(int)
DATA["y"], DATA["level"] = ETA + RNG.normal(size=60), np.digitize(ETA + RNG.logistic(size=60), [-1.0, 1.0])
DATA["kind"] = np.array(list("abc"))[DATA["level"]]
DATA["time"], DATA["event"] = RNG.exponential(np.exp(-ETA)), (RNG.random(60) < 0.8).astype(int)
DATA["extra"] = np.where(RNG.random(60) < 0.3, 0, DATA["count"] + 1)


@pytest.fixture
def unasked(monkeypatch):
    """The dial as users have it, with as much time as any fit here needs."""
    monkeypatch.setattr(gates, "UNASKED_SECONDS", 1000.0)
    monkeypatch.setattr(gates, "AFFORDED_SECONDS", 1000.0)
    return monkeypatch


def fit(formula="count ~ x + (1|g)", family="poisson", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fenchel.fit(formula, DATA, family, **options)


def test_the_default_is_auto():
    assert fenchel.Model.fit.__wrapped__.__kwdefaults__["accuracy"] == "auto"
    assert fenchel.fit.__kwdefaults__["accuracy"] == "auto"
    assert fenchel.FormulaRegressor("y ~ x").accuracy == "fast"


# -- the three sentences ------------------------------------------------------------------------------------
def test_what_is_affordable_is_integrated_and_corrected(unasked):
    found, fast, asked = fit(), fit(accuracy="fast"), fit(integrate="auto")
    assert found.accuracy == "integrated over 1 hyperparameter, corrected"
    assert found.summary().splitlines()[0] == found.accuracy
    assert "integrated over 1 hyperparameter" in repr(found)
    np.testing.assert_allclose(found.coefficients, asked.coefficients)
    assert found.coefficients.loc["Intercept", "sd"] > 1.02 * fast.coefficients.loc["Intercept", "sd"]


def test_where_integration_is_dear_the_mode_is_corrected(unasked):
    unasked.setattr(accuracy, "_LATTICE", {0: 1, 1: 10**9})
    found, asked = fit("b ~ x + (1|g)", "bernoulli"), fit("b ~ x + (1|g)", "bernoulli", evidence="corrected")
    assert found.accuracy.startswith("corrected at the mode: 1 hyperparameter, integration would take about ")
    assert found.accuracy.endswith("ask with accuracy='high'")
    assert found.found.maximises == "corrected"
    np.testing.assert_allclose(found.theta, asked.theta, atol=1e-6)
    again = found.solution.corrected()
    rows = fenchel.models.tables.coefficient_rows(found)
    np.testing.assert_allclose(found.coefficients["sd"], again.at(rows).sd)
    assert found.corrected() is found
    assert fit("b ~ x", "bernoulli").accuracy == "corrected; no hyperparameters"  # nothing to integrate over


def test_an_integration_that_does_not_resolve_theta_is_not_used_unasked(unasked):
    unasked.setattr(fitted_design, "RULES_APART", -1.0)
    found, asked = fit(), fit(integrate="auto")
    assert found.accuracy.startswith("corrected at the mode: not integrated, as two rules of integration are ")
    assert found.summary().splitlines()[0] == found.accuracy
    assert found.integrated is None
    assert found.found.maximises == "corrected"
    assert asked.integrated is not None
    assert not asked.integrated.resolved


def test_where_everything_is_dear_it_is_the_plain_fit_with_its_price(unasked):
    unasked.setattr(gates, "AFFORDED_SECONDS", 0.0)
    unasked.setattr(gates, "AFFORDED_FITS", 0.0)
    found, fast = fit(), fit(accuracy="fast")
    assert found.accuracy.startswith("Gaussian at the mode: 1 hyperparameter, integration would take about ")
    np.testing.assert_array_equal(found.coefficients, fast.coefficients)
    assert fast.accuracy == "Gaussian at the mode: accuracy='fast'"
    assert fit(integrate=False).accuracy == "Gaussian at the mode: as asked"
    assert fit(accuracy="high").accuracy == "integrated over 1 hyperparameter, corrected"


def test_the_price_is_about_the_time_it_takes(unasked):
    import time

    unasked.setattr(gates, "AFFORDED_SECONDS", 0.0)
    unasked.setattr(gates, "AFFORDED_FITS", 0.0)
    fit(integrate="auto")  # compiled
    said = float(fit().accuracy.partition("about ")[2].partition(" s")[0])
    begun = time.process_time()
    fit(integrate="auto")
    assert 0.1 < said / (time.process_time() - begun) < 10.0


def test_the_price_of_nested_groups_grows_with_the_outer_ones():
    from fenchel.corrections.collapsed import collapse

    said = {}
    for outer in (4, 40):
        rng = np.random.default_rng(0)
        inner = np.repeat(np.arange(160), 2)
        data = pd.DataFrame({"a": inner * outer // 160, "b": inner, "y": rng.integers(0, 2, 320), "x": rng.random(320)})
        plain = fenchel.fit("y ~ x + (1|a/b)", data, "bernoulli", accuracy="fast")
        said[outer] = accuracy.prices(plain, collapse(plain.solution)).correction
    assert said[40] > 2.0 * said[4]  # measured: 90 to 160 ns for each row and point of the quadrature


# -- every kind of model ------------------------------------------------------------------------------------
KINDS = {
    "gaussian": ("y ~ x + (1|g)", "gaussian", {}, "integrated over 2 hyperparameters"),
    "ordinal": ("level ~ x + (1|g)", "ordinal", {}, "integrated over 3 hyperparameters, corrected"),
    "multinomial": ("kind ~ x + (1|g)", "multinomial", {}, "integrated over 1 hyperparameter, corrected"),
    "cox": ("cens(time, event) ~ x + (1|g)", "cox", {}, "integrated over 2 hyperparameters, corrected"),
    "weibull": ("cens(time, event) ~ x", "weibull", {}, "integrated over 1 hyperparameter, corrected"),
    "zero": ("extra ~ x", "zero-inflated-poisson", {"zero": "~ x"}, "integrated over 2 hyperparameters, corrected"),
    "dispersion": ("y ~ x", "gaussian", {"dispersion": "~ x"}, "integrated over 2 hyperparameters"),
    "hurdle": ("extra ~ x + (1|g)", "hurdle-poisson", {"zero": "~ x"}, "count: integrated over 1 hyperparameter"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_it(kind, unasked, tmp_path):
    formula, family, options, said = KINDS[kind]
    found, fast = fit(formula, family, **options), fit(formula, family, **options, accuracy="fast")
    assert found.accuracy.startswith(said)
    assert found.summary()
    ratio = found.coefficients["sd"] / fast.coefficients["sd"]
    assert np.isfinite(ratio).all()
    assert ratio.max() > 0.999  # extra zeros are averaged over in any case
    found.save(tmp_path / "fit.fenchel")
    unasked.setattr(gates, "AFFORDED_SECONDS", 0.0)  # a file does not decide again
    back = fenchel.load(tmp_path / "fit.fenchel")
    assert back.accuracy == found.accuracy
    np.testing.assert_allclose(back.coefficients, found.coefficients, rtol=1e-7, atol=1e-9)


def test_intervals_of_a_straight_line_are_students(unasked):
    from scipy.stats import t

    data = DATA.head(8)
    found = fenchel.fit("y ~ x", data, "gaussian", fixed_sd=1e3)
    X = np.c_[np.ones(8), data.x]
    _, rss, *_ = np.linalg.lstsq(X, data.y, rcond=None)
    se = np.sqrt(rss[0] / 6 * np.linalg.inv(X.T @ X)[1, 1])
    lower, upper = found.coefficients.loc["x", ["lower", "upper"]]
    width = 2 * se * t(6).ppf(0.975)
    assert abs((upper - lower) / width - 1) < 0.05
    plain = fenchel.fit("y ~ x", data, "gaussian", fixed_sd=1e3, accuracy="fast").coefficients.loc["x"]
    assert plain.upper - plain.lower < 0.85 * width


def test_classes_of_an_integrated_fit_are_mixtures(unasked):
    found = fit("kind ~ x + (1|g)", "multinomial")
    new = pd.DataFrame({"x": [0.0, 1.0], "g": [3, 99]})
    p, draws = found.predict(new).to_numpy(), found.sample(new, 20_000, 0)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(draws.mean(axis=0), p, atol=0.02)
    assert found.loo().elpd < 0.0


def test_engines_without_factors_say_so(unasked):
    found = fenchel.fit("count ~ x + (1|g) + (1|t)", DATA, "poisson", engine="iterative")
    assert found.accuracy == "Gaussian at the mode: by the iterative engine"


def test_the_estimator_and_the_command_take_the_dial(unasked):
    model = fenchel.FormulaRegressor("count ~ x + (1|g)", "poisson", accuracy="high")
    assert model.fit(DATA).fit_.accuracy == "integrated over 1 hyperparameter, corrected"
    with pytest.raises(ValueError, match=r"accuracy = 'best' is not known"):
        fit(accuracy="best")


def test_evidence_that_is_asked_for_is_that_of_an_integration():
    found = fit("b ~ x + (1|g)", "bernoulli", integrate="auto", evidence="elbo")
    assert found.integrated.evidence == "elbo"
    assert found.accuracy.startswith("integrated over 1 hyperparameter, each with a Gaussian")


def test_high_accuracy_without_integration_is_corrected_at_the_mode():
    found = fit("b ~ x + (1|g)", "bernoulli", accuracy="high", integrate=False)
    assert found.integrated is None
    assert found.accuracy == "corrected at the mode"
