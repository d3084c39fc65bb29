"""What a newcomer meets on the side of y: units of time, censoring, exposures forgotten, categories, constant targets."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
from sklearn.gaussian_process.kernels import RBF

import fenchel
from fenchel.estimators import (
    BayesianLinearRegression,
    BayesianPoissonRegression,
    GaussianProcessPoissonRegressor,
    GaussianProcessRegressor,
    GMRFRegressor,
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
@pytest.mark.parametrize(
    "make", [lambda a: BayesianLinearRegression(likelihood=a), lambda a: GMRFRegressor(likelihood=a)]
)
def test_the_weibull_intercept_is_in_the_users_unit_of_time(make, likelihood):
    X, t, event = durations()
    years, days = make(likelihood).fit(X, t, event=event), make(likelihood).fit(X, YEAR * t, event=event)
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


def test_the_weibull_rows_of_fixed_effects_are_the_intercept():
    X, t, event = durations()
    model = GMRFRegressor(likelihood="weibull").fit(X, t, event=event)
    assert model.fixed_effects_.loc["intercept", "mean"] == model.intercept_
    assert model.fixed_effects_.loc["intercept", "hr_median"] == pytest.approx(np.exp(model.intercept_))


def test_the_weibull_latent_of_a_process_is_in_the_users_unit_of_time():
    X, t, event = durations(120)
    years = GaussianProcessRegressor(likelihood="weibull").fit(X, t, event=event)
    days = GaussianProcessRegressor(likelihood="weibull").fit(X, YEAR * t, event=event)
    h, _ = years.latent_mean_and_variance(X)
    k = years.likelihood_.shape
    assert np.abs(h - (LEVEL + SLOPE * X["x"]) * k / SHAPE).mean() < 0.5
    np.testing.assert_allclose(days.latent_mean_and_variance(X)[0] - h, -k * np.log(YEAR), rtol=1e-6)
    assert days.mean_ - years.mean_ == pytest.approx(-k * np.log(YEAR), rel=1e-6)
    assert years.log_marginal_likelihood(years.theta_) == pytest.approx(years.elbo_, abs=1e-6)


@pytest.mark.parametrize("make", [lambda: BayesianLinearRegression, lambda: GMRFRegressor])
def test_weibull_without_an_intercept_has_eta_zero_at_zero(make):
    X, t, event = durations()
    given = {"fit_intercept": False} if make() is BayesianLinearRegression else {"intercept": False}
    model = make()(likelihood="weibull", **given).fit(X, YEAR * t, event=event)
    assert model.intercept_ == 0.0
    h, _ = model.latent_mean_and_variance(pd.DataFrame({"x": [0.0, 1.0]}))
    np.testing.assert_allclose(h, [0.0, model.coef_[0]], atol=1e-12)
    k = model.likelihood_.shape
    S = model.predict_survival(pd.DataFrame({"x": [0.0]}), 0.5)
    assert S[0] == pytest.approx(np.exp(-(0.5**k)), rel=1e-9)


# -- no events -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [BayesianLinearRegression, GaussianProcessRegressor, GMRFRegressor])
def test_durations_without_events_are_refused_or_announced(make):
    X, t, _ = durations(30)
    with pytest.raises(ValueError, match="every row is censored.*without events the shape is not known"):
        make(likelihood="weibull").fit(X, t, event=np.zeros(30))
    with pytest.warns(UserWarning, match="every row is censored.*bound the hazard from above alone"):
        make(likelihood="exponential").fit(X, t, event=np.zeros(30))
