"""What a newcomer meets on the side of y: units of time, censoring, exposures forgotten, categories, constants."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st

import fenchel
from fenchel.estimators import (
    BayesianLinearRegression,
    BayesianPoissonRegression,
    GaussianProcessPoissonRegressor,
    GaussianProcessRegressor,
)

SHAPE, LEVEL, SLOPE, YEAR = 1.6, -4.0, 0.7, 365.25


def durations(n=400, seed=0):
    """Durations in years with hazard k t^(k-1) e^(LEVEL + SLOPE x), followed for ten years: X, t, event."""
    rng = np.random.default_rng(seed)
    x = rng.normal(2.0, 1.0, n)
    t = (rng.exponential(size=n) / np.exp(LEVEL + SLOPE * x)) ** (1.0 / SHAPE)
    return pd.DataFrame({"x": x}), np.minimum(t, 10.0), (t < 10.0).astype(float)


# -- Weibull in the user's unit of time ----------------------------------------------------------------
@pytest.mark.parametrize("likelihood", ["weibull", fenchel.Weibull(1.0)])
def test_the_weibull_intercept_is_in_the_users_unit_of_time(likelihood):
    X, t, event = durations()
    years, days = (
        BayesianLinearRegression(likelihood=likelihood).fit(X, unit * t, event=event) for unit in (1.0, YEAR)
    )
    k = years.likelihood_.shape
    assert type(years.likelihood_) is fenchel.Weibull
    assert abs(k - SHAPE) < 0.2
    assert abs(years.intercept_ - LEVEL) < 4 * years.intercept_std_
    assert days.likelihood_.shape == pytest.approx(k, rel=1e-6)
    assert days.intercept_ - years.intercept_ == pytest.approx(-k * np.log(YEAR), rel=1e-6)
    # what is reported makes the predictions: the hazard of Weibull's docstring at the reported eta
    h, rho = years.latent_mean_and_variance(X[:5])
    np.testing.assert_allclose(h, years.intercept_ + years.coef_[0] * X["x"][:5], rtol=1e-6)
    eta = h[:, None] + np.sqrt(rho)[:, None] * st.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    by_hand = np.exp(-(3.0**k) * np.exp(eta)).mean(axis=1)
    np.testing.assert_allclose(years.predict_survival(X[:5], 3.0), by_hand, rtol=1e-5)
    np.testing.assert_allclose(days.predict_survival(X[:5], 3.0 * YEAR), by_hand, rtol=1e-3)
    np.testing.assert_allclose(years.likelihood_.predictive_survival(3.0, h, rho), by_hand, rtol=1e-5)


def test_the_weibull_intercept_of_a_formula_is_in_the_users_unit_of_time():
    X, t, event = durations()
    years, days = (
        fenchel.fit("cens(t, event) ~ x", X.assign(t=unit * t, event=event), "weibull") for unit in (1.0, YEAR)
    )
    k, table = years.likelihood.shape, years.coefficients
    assert abs(k - SHAPE) < 0.2
    assert abs(table.loc["Intercept", "mean"] - LEVEL) < 4 * table.loc["Intercept", "sd"]
    assert days.likelihood.shape == pytest.approx(k, rel=1e-6)
    moved = days.coefficients.loc["Intercept", "mean"] - table.loc["Intercept", "mean"]
    assert moved == pytest.approx(-k * np.log(YEAR), rel=1e-2)  # the mean over k, too


def test_the_weibull_latent_of_a_process_is_in_the_users_unit_of_time():
    X, t, event = durations(120)
    years = GaussianProcessRegressor(likelihood="weibull").fit(X, t, event=event)
    days = GaussianProcessRegressor(likelihood="weibull").fit(X, YEAR * t, event=event)
    h, _ = years.latent_mean_and_variance(X)
    k = years.likelihood_.shape
    assert np.abs(h - (LEVEL + SLOPE * X["x"]) * k / SHAPE).mean() < 0.5
    np.testing.assert_allclose(days.latent_mean_and_variance(X)[0] - h, -k * np.log(YEAR), rtol=1e-4)
    assert days.mean_ - years.mean_ == pytest.approx(-k * np.log(YEAR), rel=1e-4)
    assert years.log_marginal_likelihood(years.theta_) == pytest.approx(years.elbo_, abs=1e-6)


def test_weibull_without_an_intercept_has_eta_zero_at_zero():
    X, t, event = durations()
    model = BayesianLinearRegression(likelihood="weibull", fit_intercept=False).fit(X, YEAR * t, event=event)
    assert model.intercept_ == 0.0
    h, _ = model.latent_mean_and_variance(pd.DataFrame({"x": [0.0, 1.0]}))
    np.testing.assert_allclose(h, [0.0, model.coef_[0]], atol=1e-12)
    k = model.likelihood_.shape
    S = model.predict_survival(pd.DataFrame({"x": [0.0]}), 0.5)
    assert S[0] == pytest.approx(np.exp(-(0.5**k)), rel=1e-9)


# -- no events -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [BayesianLinearRegression, GaussianProcessRegressor])
def test_durations_without_events_are_refused_or_announced(make):
    X, t, _ = durations(30)
    with pytest.raises(ValueError, match=r"every row is censored.*without events the shape is not known"):
        make(likelihood="weibull").fit(X, t, event=np.zeros(30))
    with pytest.warns(UserWarning, match=r"every row is censored.*bound the hazard from above alone"):
        make(likelihood="exponential").fit(X, t, event=np.zeros(30))


# -- what fit was given and score was not --------------------------------------------------------------
COUNTS = [
    BayesianPoissonRegression,
    GaussianProcessPoissonRegressor,
    lambda: BayesianLinearRegression(likelihood="poisson"),
    lambda: GaussianProcessRegressor(likelihood="negative-binomial"),
]


@pytest.mark.parametrize("make", COUNTS)
def test_a_score_without_the_exposure_of_fit_says_so(make):
    rng = np.random.default_rng(1)
    X, years = rng.normal(size=(40, 1)), rng.uniform(5.0, 50.0, 40)
    y = rng.poisson(years * np.exp(0.3 * X[:, 0]))
    model = make().fit(X, y, exposure=years)
    with pytest.warns(UserWarning, match="fit was given exposure, score was not: each y is scored at exposure 1"):
        wrong = model.score(X, y)
    assert model.score(X, y, exposure=years) > wrong + 1.0  # no warning: it would be an error here
    assert model.score(X, y, exposure=1.0) == wrong
    y = rng.poisson(np.exp(1.0 + 0.5 * X[:, 0]))
    make().fit(X, y).score(X, y)
    make().fit(X, y, exposure=np.ones(40)).score(X, y)


def test_a_score_without_the_events_of_fit_says_so():
    X, t, event = durations(60)
    model = BayesianLinearRegression(likelihood="weibull").fit(X, t, event=event)
    with pytest.warns(UserWarning, match="fit was given event, score was not: every duration is taken as observed"):
        model.score(X, t)
    model.score(X, t, event=event)


def test_events_and_exposures_of_a_formula_are_found_by_score():
    X, t, event = durations(60)
    frame = X.assign(died=event)
    by_column = fenchel.FormulaRegressor("t ~ x", "weibull", event="died").fit(frame, t)
    in_formula = fenchel.FormulaRegressor("cens(t, died) ~ x", "weibull").fit(frame, t)
    assert by_column.score(frame, t) == pytest.approx(in_formula.score(frame.assign(t=t)), rel=1e-9)
    late = frame.assign(died=1.0)
    assert by_column.score(late, t) != pytest.approx(by_column.score(frame, t), rel=1e-3)


# -- words and categories ------------------------------------------------------------------------------
LEVELS = ["poor", "fair", "good"]


def graded(n=150, seed=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.digitize(X[:, 0] + rng.logistic(size=n), [-1.0, 1.0])


@pytest.mark.parametrize("name", ["ordinal", "ordinal-probit"])
@pytest.mark.parametrize("make", [BayesianLinearRegression, GaussianProcessRegressor])
def test_an_ordered_categorical_is_taken_in_its_order(make, name):
    X, codes = graded(60)
    words = pd.Categorical(np.array(LEVELS)[codes], categories=[*LEVELS, "superb"], ordered=True)
    by_code, by_word = make(likelihood=name).fit(X, codes), make(likelihood=name).fit(X, pd.Series(words))
    assert by_word.classes_.tolist() == LEVELS
    np.testing.assert_array_equal(by_word.predict_proba(X), by_code.predict_proba(X))
    np.testing.assert_array_equal(by_word.predict(X), by_code.predict(X))
    middle = by_word.predict_quantiles(X, [0.5])[:, 0]
    assert middle.tolist() == np.array(LEVELS)[by_code.predict_quantiles(X, [0.5])[:, 0].astype(int)].tolist()
    assert by_word.score(X, words) == by_code.score(X, codes) == by_word.score(X, list(words))
    np.testing.assert_array_equal(by_word.predict_rate(X), by_code.predict_rate(X))
    with pytest.raises(ValueError, match=r"y\[0\] = 'superb' was not seen in fit; expected one of \['poor', 'fair'"):
        by_word.score(X[:1], ["superb"])


def test_categories_that_are_numbers_are_these_numbers():
    X, codes = graded(60)
    stars = np.array([1, 2, 4])[codes]
    plain = BayesianLinearRegression(likelihood="ordinal").fit(X, stars)
    ranked = BayesianLinearRegression(likelihood="ordinal").fit(X, pd.Categorical(stars, ordered=True))
    np.testing.assert_array_equal(ranked.predict(X), plain.predict(X))
    assert ranked.classes_.tolist() == [1, 2, 4]


@pytest.mark.parametrize("make", [BayesianLinearRegression, GaussianProcessRegressor])
def test_two_words_are_labels(make):
    X, codes = graded(60)
    yes = codes > 0
    plain = make(likelihood="bernoulli").fit(X, yes)
    text = np.where(yes, "yes", "no")
    for y in (text, text.tolist(), text.astype(object), pd.Series(text), pd.Series(text, dtype="category")):
        model = make(likelihood="bernoulli").fit(X, y)
        assert model.classes_.tolist() == ["no", "yes"]
        np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
        assert model.score(X, y) == plain.score(X, yes)
    assert set(np.unique(model.sample_y(X, 3))) == {"no", "yes"}


def test_a_missing_category_is_unobserved_where_nan_is_and_refused_elsewhere():
    X, codes = graded(60)
    words = pd.Series(np.array(LEVELS)[codes]).astype(pd.CategoricalDtype(LEVELS, ordered=True))
    words[[3, 7]] = np.nan
    with_nan = np.where(words.isna(), np.nan, codes)
    by_code, by_word = (fenchel.FormulaRegressor("y ~ x0 + x1", "ordinal").fit(X, y) for y in (with_nan, words))
    assert by_word.fit_.elbo == by_code.fit_.elbo
    assert by_word.score(X, words) == by_code.score(X, with_nan)
    np.testing.assert_array_equal(by_word.predict(X), by_code.predict(X))
    with pytest.raises(ValueError, match="Input y contains NaN"):
        BayesianLinearRegression(likelihood="ordinal").fit(X, words)
    text, hidden = np.where(codes > 0, "yes", "no"), np.arange(60) < 4
    model = fenchel.FormulaRegressor("y ~ x0 + x1", "bernoulli")
    by_number = model.fit(X, np.where(hidden, np.nan, codes > 0)).fit_.elbo
    for y in (
        pd.Series(text, dtype="string").mask(hidden),
        np.ma.masked_array(text, hidden),
        np.where(hidden, None, text),
    ):
        assert model.fit(X, y).fit_.elbo == by_number


def test_words_without_an_order_and_continuous_levels_are_refused_with_a_way_out():
    X, codes = graded(60)
    text = np.array(LEVELS)[codes]
    for y in (text, pd.Series(text, dtype="category")):
        with pytest.raises(ValueError, match=r"without an order.*pd.Categorical\(y, categories="):
            BayesianLinearRegression(likelihood="ordinal").fit(X, y)
    with pytest.raises(ValueError, match='likelihood="bernoulli" was given with 3 different values'):
        BayesianLinearRegression(likelihood="bernoulli").fit(X, text)
    with pytest.raises(ValueError, match="y holds text and likelihood = BernoulliLogit"):
        BayesianLinearRegression(likelihood=fenchel.BernoulliLogit("log-sum")).fit(X, text)
    for y in (X[:, 0], np.arange(60.0)):
        with pytest.raises(
            ValueError, match=r'"ordinal" was given with 60 different values of y in 60 rows; expected levels'
        ):
            BayesianLinearRegression(likelihood="ordinal").fit(X, y)


# -- targets without spread ----------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_constant_target_has_finite_standard_deviations():
    model = BayesianLinearRegression().fit([[1.0], [2.0], [3.0]], [1, 1, 1])
    # conjugate by hand at the learned variances: columns are standardised, the intercept is about the mean of y
    noise, sd = model.likelihood_.variance, np.std([1.0, 2.0, 3.0])
    expected = np.sqrt(1.0 / (3.0 / noise + 1.0 / model.variance_)) / sd
    np.testing.assert_allclose(model.coef_std_, [expected], rtol=1e-4)
    assert np.isfinite(model.intercept_std_)


@pytest.mark.filterwarnings("ignore:.*its coefficient keeps its prior")
@pytest.mark.parametrize("name", ["gaussian", "laplace", "logistic", "student-t"])
@pytest.mark.parametrize("make", [BayesianLinearRegression, GaussianProcessRegressor])
def test_one_row_has_an_interval_of_the_order_of_y_in_any_unit(make, name):
    widths = []
    for unit in (1e-6, 1.0, 3e6):
        low, middle, high = make(likelihood=name).fit([[1.0]], [unit]).predict_quantiles([[1.0]])[0]
        assert middle == pytest.approx(unit, rel=1e-6)
        widths.append((high - low) / unit)
    np.testing.assert_allclose(widths, widths[1], rtol=1e-2)  # searches end some thousandths of a nat apart
    assert widths[1] > 0.1


# -- degrees of freedom --------------------------------------------------------------------------------
def test_the_degrees_of_freedom_stay_unless_asked():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 1))
    y = X[:, 0] + rng.standard_t(2.0, 300)
    data = pd.DataFrame({"x": X[:, 0], "y": y})
    assert BayesianLinearRegression(likelihood="student-t").fit(X, y).likelihood_.df == 4.0
    assert fenchel.fit("y ~ x", data, "student-t").likelihood.df == 4.0
    learned = BayesianLinearRegression(likelihood=fenchel.StudentT(learn_df=True)).fit(X, y).likelihood_.df
    assert 1.3 < learned < 3.0
    assert 1.3 < fenchel.fit("y ~ x", data, fenchel.StudentT(learn_df=True)).likelihood.df < 3.0
    assert "StudentT(learn_df=True)" in GaussianProcessRegressor.__doc__
