"""What a fitted model reports: cutpoints at x = 0, sds of intercepts at the mean, flat priors, labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit

import fenchel


@pytest.fixture(scope="module")
def ordered():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(30.0, 2.0, 400), "z": rng.normal(size=400)})
    eta = 0.8 * (frame.x - 30.0) - 0.5 * frame.z + rng.logistic(size=400)
    return frame.assign(y=np.digitize(eta, [-1.5, 0.0, 1.0]))


def _cumulative_logit(data):
    """Maximum likelihood of (cutpoints at x = 0, slopes), and draws of its curvature."""
    X, y = data[["x", "z"]].to_numpy(), data.y.to_numpy()

    def loss(par):
        cut, eta = np.r_[-np.inf, np.sort(par[:3]), np.inf], X @ par[3:]
        return -np.log(expit(cut[y + 1] - eta) - expit(cut[y] - eta)).sum()

    start = np.r_[24.0 + np.array([-1.5, 0.0, 1.0]), 0.8, -0.5]
    best = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 20000, "xatol": 1e-8, "fatol": 1e-10}).x
    slope = lambda par: approx_fprime(par, loss, 1e-6)
    H = np.array([(slope(best + 1e-3 * e) - slope(best - 1e-3 * e)) / 2e-3 for e in np.eye(5)])
    return best, np.random.default_rng(0).multivariate_normal(best, np.linalg.inv((H + H.T) / 2), 20000)


def test_cutpoints_at_zero_have_the_spread_of_the_slopes_in_them(ordered):
    fit = fenchel.fit("y ~ x + z", ordered, family="ordinal")
    best, draws = _cumulative_logit(ordered)
    found = fit.hyperparameters.filter(like="cutpoint", axis=0)
    assert len(found) == 3
    np.testing.assert_allclose(found["value"], best[:3], rtol=0.02)
    lower, upper = np.quantile(draws[:, :3], [0.025, 0.975], axis=0)
    assert (upper - lower > 4.0).all()  # at the mean of the columns they are known to 0.5
    np.testing.assert_allclose(found["upper"] - found["lower"], upper - lower, rtol=0.06)
    np.testing.assert_allclose(found["lower"], lower, atol=0.15 * (upper - lower).max())


def test_a_flat_prior_of_a_coefficient_is_least_squares():
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"x": rng.normal(0.0, 1e-3, 30), "w": rng.normal(size=30)})
    data["y"] = 1e6 * data.x + data.w + 500.0 * rng.normal(size=30)
    model = fenchel.Model("y ~ x + w", data, priors={"x": None, "w": None, "Intercept": None})
    assert model.priors.loc[("x", "coefficient"), "prior"].startswith("flat: N(0, ")
    assert model.priors.loc[("Intercept", "at the mean of the columns"), "prior"].startswith("flat: N(")
    b = np.linalg.lstsq(np.column_stack([np.ones(30), data.x, data.w]), data.y, rcond=None)[0]
    np.testing.assert_allclose(model.fit().coefficients["mean"], b, rtol=2e-6)
    usual = fenchel.Model("y ~ x + w", data)
    assert not usual.priors["prior"].str.startswith("flat:").any()


def test_what_is_no_prior_says_that_none_is_flat():
    data = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 3.0]}
    with pytest.raises(ValueError, match=r"is 'wide'; expected .*Normal\(mean, sd\), .* or None for a flat one"):
        fenchel.Model("y ~ x", data, priors={"x": "wide"})


@pytest.mark.parametrize(
    ("family", "labels", "column"),
    [
        ("bernoulli", ["no", "yes"], np.array(["no", "yes"])),
        ("bernoulli", [False, True], np.array([False, True])),
        ("bernoulli", [1, 2], np.array([1, 2])),
        ("ordinal", [0.5, 1.5], np.array([0.5, 1.5])),
        ("ordinal", ["lo", "mid", "hi"], ["lo", "mid", "hi"]),
    ],
)
def test_labels_come_back_as_they_came(family, labels, column):
    rng = np.random.default_rng(6)
    at = rng.integers(0, len(labels), 50)
    words = isinstance(column, list)
    y = pd.Categorical(np.array(column)[at], categories=column, ordered=True) if words else column[at]
    data = pd.DataFrame({"x": rng.normal(size=50), "y": y})
    fit = fenchel.fit("y ~ x", data, family)
    shown = fit.predict(kind="probability").columns.tolist()
    assert shown == labels
    assert [type(label) for label in shown] == [type(label) for label in labels]
    made = fit.simulate(200, 0)
    assert set(made.ravel().tolist()) == set(labels)
    share = [np.mean(made == label, axis=0) for label in labels]
    np.testing.assert_allclose(np.transpose(share), fit.predict(kind="probability"), atol=0.2)
    missing = fenchel.fit("y ~ x", data.assign(x=data.x.where(data.index > 0)), family).simulate(2, 0)
    assert (missing[:, 0] == None).all()  # noqa: E711
    assert (missing[:, 1:] != None).all()  # noqa: E711


def test_a_slope_is_that_of_the_rows_own_groups():
    rng = np.random.default_rng(7)
    of = np.repeat(np.arange(12), np.where(np.arange(12) < 2, 60, 6))  # two groups have most of the rows
    slopes = 1.0 + rng.normal(size=12) + 2.0 * (np.arange(12) < 2)
    data = pd.DataFrame({"g": of, "x": rng.normal(size=of.size)})
    data["y"] = slopes[of] * data.x + 0.2 * rng.normal(size=of.size)
    fit = fenchel.fit("y ~ x + (x|g)", data)
    own = fit.effects["(x|g)"].xs("x", level=1)["mean"].to_numpy() + fit.coefficients.loc["x", "mean"]
    assert fit.slopes("x", groups="own")["estimate"].iloc[0] == pytest.approx(own[of].mean(), abs=0.02)
    first = data[data.g == 3]
    assert fit.slopes("x", data=first, groups="own")["estimate"].iloc[0] == pytest.approx(own[3], abs=0.05)


@pytest.fixture(scope="module")
def schools():
    rng = np.random.default_rng(8)
    of, year = np.repeat(np.arange(30), 12), np.tile(np.arange(1990, 2002), 30)
    level, slope = rng.normal(size=30), 0.1 * rng.normal(size=30)
    y = level[of] + slope[of] * (year - 1995.5) + 0.3 * rng.normal(size=360)
    return pd.DataFrame({"school": of, "year": year, "y": y})


def test_sds_of_intercepts_far_from_the_data_stand_beside_those_at_the_mean(schools):
    fit = fenchel.fit("y ~ year + (year|school)", schools)
    found = fit.hyperparameters.loc["(year|school)"]
    assert found.loc["sd intercept", "value"] > 50.0  # at year 0
    assert found.loc["correlation intercept, year", "value"] < -0.99
    centred = fenchel.fit("y ~ t + (t|school)", schools.assign(t=schools.year - schools.year.mean()))
    own = centred.hyperparameters.loc["(t|school)"]
    here = found.loc[["sd intercept at the mean of year", "correlation intercept at the mean of year, year"]]
    np.testing.assert_allclose(here, own.loc[["sd intercept", "correlation intercept, t"]], atol=2e-3)
    assert abs(here["value"].iloc[0] - 1.0) < 0.3
    assert "'sd intercept' is where year is 0, and the data have 1990 to 2001: read those at its mean" in fit.summary()
    assert len(own) == 3
    assert "is where t is 0" not in centred.summary()


def test_a_corrected_fit_says_what_it_is_averaged_over(ordered):
    last = fenchel.fit("y ~ x", ordered.head(80), family="ordinal").corrected().summary().splitlines()[-1]
    assert "corrected beyond the Gaussian" in last
    assert "averaged over cutpoints" in last
