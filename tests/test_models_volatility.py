"""Stochastic volatility by a formula: against a field built by hand, parameters recovered, forecasts, paths."""

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats
from conftest import difference
from sklearn.model_selection import TimeSeriesSplit, cross_val_score

import fenchel
from fenchel import gmrf
from fenchel.datasets import load_stochvol
from fenchel.hyperparameters import Evidence
from fenchel.likelihoods import StochasticVolatility

POUND = load_stochvol()
FLAT = {"ar1(t)": None}


def volatility(y, **options):
    return fenchel.fit("y ~ ar1(t)", {"t": np.arange(len(y)), "y": y}, "stochastic-volatility", **options)


def series(n=2000, phi=0.97, sigma=0.2, mu=-1.0, seed=0):
    rng = np.random.default_rng(seed)
    x = np.empty(n)
    x[0] = sigma / np.sqrt(1 - phi**2) * rng.normal()
    for t in range(1, n):
        x[t] = phi * x[t - 1] + sigma * rng.normal()
    return np.exp((mu + x) / 2) * rng.normal(size=n), mu + x


def test_the_series_is_fitted_as_by_hand():
    y = POUND.returns[:200].copy()
    y[[5, 60]] = np.nan
    fit = volatility(y, fixed_sd=10**0.5, tol=1e-13)
    variance, phi = np.exp(2 * fit.theta[0]), np.tanh(fit.theta[1] / 2)
    field = gmrf.stack([(gmrf.ar1(200, phi, variance), np.arange(200))], fixed_variance=10.0)
    level = np.log(np.nanmean(y**2))
    sol = fenchel.infer(StochasticVolatility(), field.at(offset=level), y, tol=1e-13)
    assert fit.elbo == pytest.approx(sol.elbo, abs=1e-9)
    eta = fit.predict(None, "link", interval=0.95)
    np.testing.assert_allclose(eta["mean"], sol.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(eta["sd"] ** 2, sol.posterior.variance, atol=1e-6)
    mean = fit.coefficients.loc["Intercept", "mean"]
    assert mean == pytest.approx(level + sol.posterior.latent_mean[-1], abs=1e-6)


def test_evidence_gradient_of_the_series():
    data = {"t": np.arange(150), "y": POUND.returns[:150]}
    model = fenchel.Model("y ~ ar1(t)", data, "stochastic-volatility")
    evidence = Evidence(model.target.likelihood, model.sum.family(), model.target.y, tol=1e-17)
    theta = evidence.start + 0.2
    numeric = difference(lambda t: evidence(t)[0], theta, step=1e-3)
    finer = difference(lambda t: evidence(t)[0], theta, step=5e-4)
    np.testing.assert_allclose(evidence(theta)[1], (4 * finer - numeric) / 3, rtol=1e-6, atol=1e-6)


def test_the_pound():
    """A daily pound has a persistent volatility of about two thirds of a percent."""
    fit, scaled = volatility(POUND.returns, priors=FLAT), volatility(0.01 * POUND.returns, priors=FLAT)
    assert fit.converged
    sd, phi = fit.hyperparameters["value"]
    assert 0.96 < phi < 0.99
    assert 0.11 < sd * np.sqrt(1 - phi**2) < 0.2
    mu = fit.coefficients.loc["Intercept", "mean"]
    assert 0.6 < np.exp(mu / 2) < 0.75
    np.testing.assert_allclose(scaled.hyperparameters["value"], [sd, phi], rtol=1e-4)
    assert scaled.coefficients.loc["Intercept", "mean"] == pytest.approx(mu - 2 * np.log(100), abs=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_simulated_series_gives_its_parameters_back(seed):
    y, eta = series(seed=seed)
    fit = volatility(y, priors=FLAT)
    sd, phi = fit.hyperparameters["value"]
    assert abs(phi - 0.97) < 0.015
    assert abs(sd * np.sqrt(1 - phi**2) - 0.2) < 0.06
    mu = fit.coefficients.loc["Intercept"]
    assert abs(mu["mean"] + 1.0) < 4 * mu["sd"]
    path = fit.predict(None, "link", interval=0.95)
    assert ((path["lower"] < eta) & (eta < path["upper"])).mean() > 0.88
    assert np.corrcoef(np.exp(path["mean"] / 2), np.exp(eta / 2))[0, 1] > 0.8


def test_forecasts_quantiles_and_paths():
    fit = volatility(POUND.returns)
    ahead = {"t": np.arange(945, 975)}
    eta, y = (fit.predict(ahead, kind, interval=0.9) for kind in ("link", "outcome"))
    assert (np.diff(eta["sd"]) > 0).all()
    np.testing.assert_allclose(y["sd"], np.exp(eta["mean"] / 2 + eta["sd"] ** 2 / 4))
    np.testing.assert_allclose(y["lower"], -y["upper"])
    assert (y["mean"] == 0.0).all()
    far = fit.predict({"t": [5_000]}, "link", interval=0.9).iloc[0]
    mu = fit.coefficients.loc["Intercept"]
    assert far["mean"] == pytest.approx(mu["mean"], abs=1e-6)
    assert far["sd"] ** 2 == pytest.approx(np.exp(2 * fit.theta[0]) + mu["sd"] ** 2, rel=1e-6)
    paths = fit.sample(ahead, 60_000, 1, kind="outcome")
    np.testing.assert_allclose(paths.std(axis=0), y["sd"], rtol=0.03)
    np.testing.assert_allclose(np.quantile(paths, 0.05, axis=0), y["lower"], rtol=0.04)
    squares = np.corrcoef(np.log(paths[:, 0] ** 2), np.log(paths[:, 1] ** 2))[0, 1]
    assert squares > 0.01  # days of one path share their volatility


def test_quantiles_of_returns_with_a_known_variance():
    h = np.array([-3.0, 0.0, 2.0])
    for level in (0.001, 0.3, 0.5, 0.9):
        found = StochasticVolatility().predictive_quantile(level, h, np.full(3, 1e-14))[:, 0]
        np.testing.assert_allclose(found, scipy.stats.norm.ppf(level) * np.exp(h / 2), rtol=1e-5, atol=1e-12)
    wide = StochasticVolatility().predictive_quantile(0.9, np.zeros(1), np.array([4.0]))[0]
    inside = scipy.integrate.quad(
        lambda u: scipy.stats.norm.pdf(u / 2) / 2 * scipy.stats.norm.cdf(wide[0] * np.exp(-u / 2)), -20, 20
    )
    assert inside[0] == pytest.approx(0.9, abs=1e-7)


def test_later_data_are_scored_and_split_over_time():
    y, _ = series(600)
    time = pd.DataFrame({"t": np.arange(600)})
    model = fenchel.FormulaRegressor("y ~ ar1(t)", "stochastic-volatility").fit(time[:500], y[:500])
    ahead = model.score(time[500:], y[500:])
    assert ahead > scipy.stats.norm(0, y[:500].std()).logpdf(y[500:]).mean() - 0.5
    scores = cross_val_score(model, time, y, cv=TimeSeriesSplit(3, test_size=20))
    assert np.isfinite(scores).all()


@pytest.mark.filterwarnings("ignore:.*the evidence still rises beyond")
@pytest.mark.filterwarnings("ignore:.*the prior")
def test_series_that_say_little():
    rng = np.random.default_rng(0)
    for y in (rng.normal(size=50), np.ones(60), rng.standard_cauchy(100), np.r_[np.zeros(30), 1.0, np.zeros(30)]):
        fit = volatility(y)
        assert fit.converged
        assert np.isfinite(fit.predict({"t": [len(y) + 2]}, "outcome", interval=0.9)).all(axis=None)
