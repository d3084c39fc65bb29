"""A likelihood's own parameters that move eta: cutpoints, extra zeros, a Weibull's shape. Witness: sums over a grid."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, gammaln, logsumexp

import fenchel
from fenchel.models.export import datasets

RNG = np.random.default_rng(11)
N = 60
X = RNG.normal(3.0, 1.0, N)
SPREAD = (X - X.mean()) / X.std()
LEVELS = np.digitize(1.4 * SPREAD + RNG.logistic(size=N), [-1.5, 1.0])
ORDINAL = pd.DataFrame({"x": X, "y": pd.Categorical.from_codes(LEVELS, ["low", "some", "much"], ordered=True)})
COUNTS = RNG.poisson(np.exp(0.3 + 0.5 * SPREAD)) * (RNG.random(N) > 0.35)
ZEROS = pd.DataFrame({"x": X, "y": COUNTS})
TIMES = RNG.weibull(1.6, N) * np.exp(0.4 * SPREAD)


def moments(values, log_p):
    """Means, sds and 2.5 and 97.5 % points of unknowns (m, k) on a grid."""
    w = np.exp(log_p - logsumexp(log_p))
    mean = w @ values
    sd = np.sqrt(w @ (values - mean) ** 2)
    order = np.argsort(values, axis=0)
    x, below = np.take_along_axis(values, order, axis=0), np.cumsum(w[order], axis=0) - 0.5 * w[order]
    ends = np.array([np.interp([0.025, 0.975], below[:, j], x[:, j]) for j in range(x.shape[1])])
    return mean, sd, ends


def grid(*axes):
    return np.array(list(itertools.product(*axes)))


@pytest.fixture(scope="module")
def levels():
    """b, the cutpoints at x = 0 and P(lowest level | x = 4), by a grid over (c1, log(c2 - c1), gamma)."""
    at = grid(np.linspace(-3.6, 0.2, 25), np.linspace(0.1, 1.9, 25), np.linspace(0.1, 3.6, 29))
    c1, c2, gamma = at[:, 0], at[:, 0] + np.exp(at[:, 1]), at[:, 2]
    edges = np.stack([np.full_like(c1, -np.inf), c1, c2, np.full_like(c1, np.inf)])
    eta = gamma[:, None] * SPREAD
    upper, lower = (expit(edges[LEVELS + side].T - eta) for side in (1, 0))
    fit = fenchel.fit("y ~ x", ORDINAL, "ordinal")
    variance = fit.model.coefficient_priors.variance[0]
    log_p = np.log(upper - lower).sum(axis=1) - 0.5 * gamma**2 / variance
    b, centre = gamma / X.std(), X.mean()
    lowest = expit(c1 - b * (4.0 - centre))
    return fit, moments(np.column_stack([b, c1 + b * centre, c2 + b * centre, lowest]), log_p)


def test_sds_of_coefficients_are_over_the_cutpoints(levels):
    fit, (mean, sd, ends) = levels
    found = fit.coefficients.loc["x"]
    assert found["mean"] == pytest.approx(mean[0], abs=0.1 * sd[0])
    assert found["sd"] == pytest.approx(sd[0], rel=0.04)
    np.testing.assert_allclose(found[["lower", "upper"]], ends[0], atol=0.12 * sd[0])
    assert fit.covariance.loc["x", "x"] == pytest.approx(found["sd"] ** 2, rel=1e-6)
    held = fit.solution.posterior.at(design=fit.model.sum.fixed_rows()).sd[0]
    assert held < 0.93 * sd[0]


def test_every_answer_is_of_the_same_posterior(levels):
    fit, (mean, sd, _) = levels
    step = fit.contrast({"x": [4.0]}, {"x": [3.0]}).iloc[0]
    np.testing.assert_allclose(step[["mean", "sd"]], fit.coefficients.loc["x", ["mean", "sd"]], rtol=1e-6)
    new = pd.DataFrame({"x": [4.0]})
    assert fit.predict(new, "probability").iloc[0, 0] == pytest.approx(mean[3], abs=0.1 * sd[3])
    link = fit.predict(new, "link", interval=0.95).iloc[0]
    draws = fit.sample(new, 20_000, 0, kind="link")[:, 0]
    np.testing.assert_allclose(link[["lower", "upper"]], np.quantile(draws, [0.025, 0.975]), atol=0.05 * draws.std())
    assert "averaged over cutpoints" in fit.summary()
    assert fit.corrected().coefficients.loc["x", "sd"] == pytest.approx(sd[0], rel=0.04)


@pytest.mark.parametrize("integrate", [None, "auto"])
def test_cutpoints_at_zero_move_with_the_coefficients(levels, integrate):
    fit, (mean, sd, _) = levels
    fit = fit if integrate is None else fenchel.fit("y ~ x", ORDINAL, "ordinal", integrate="auto")
    if integrate is not None:
        table = fit.hyperparameters.loc["cutpoints"]
        np.testing.assert_allclose(table["mean"], mean[1:3], atol=0.1 * sd[1:3].min())
        np.testing.assert_allclose(table["sd"], sd[1:3], rtol=0.06)
    posterior = datasets(fit, 1000, 4, 0, predictive=False)["posterior"]
    first, b = (np.asarray(posterior[name]).ravel() for name in ("cutpoints low|some", "x"))
    assert first.std() == pytest.approx(sd[1], rel=0.08)
    lowest = expit(first - 4.0 * b)
    assert lowest.mean() == pytest.approx(mean[3], abs=0.1 * sd[3])
    assert lowest.std() == pytest.approx(sd[3], rel=0.12)


def test_sds_of_counts_are_over_the_extra_zeros():
    at = grid(np.linspace(-0.9, 1.5, 29), np.linspace(-0.4, 1.4, 25), np.linspace(-6.0, 2.0, 33))
    level, gamma, share = at[:, 0], at[:, 1], expit(at[:, 2])
    eta = level[:, None] + gamma[:, None] * SPREAD
    poisson = COUNTS * eta - np.exp(eta) - gammaln(COUNTS + 1.0)
    dense = np.where(COUNTS == 0, np.logaddexp(np.log(share)[:, None], np.log1p(-share)[:, None] + poisson), 0.0)
    dense = np.where(COUNTS == 0, dense, np.log1p(-share)[:, None] + poisson)
    fit = fenchel.fit("y ~ x", ZEROS, "zero-inflated-poisson")
    priors = fit.model.coefficient_priors
    off = level - fit.model.level
    log_p = dense.sum(axis=1) - 0.5 * off**2 / priors.variance[0] - 0.5 * gamma**2 / priors.variance[1]
    mean, sd, _ = moments(np.column_stack([gamma / X.std(), level + gamma * (3.0 - X.mean()) / X.std()]), log_p)
    found = fit.coefficients.loc["x"]
    assert found["sd"] == pytest.approx(sd[0], rel=0.05)
    assert found["mean"] == pytest.approx(mean[0], abs=0.1 * sd[0])
    drawn = fit.sample({"x": [3.0]}, 20_000, 0, kind="link")[:, 0]
    assert drawn.std() == pytest.approx(sd[1], rel=0.06)
    held = np.sqrt(np.diag(fit.model.sum.fixed_effects(fit.solution)[1]))
    assert (held < 0.95 * fit.coefficients["sd"]).any()


def test_sds_are_over_the_extra_zeros_of_some_rows_alone():
    which = np.arange(N) % 4 // 3  # every fourth row has no extra zeros
    parts = [fenchel.ZeroInflated(fenchel.Poisson()), fenchel.Poisson()]
    fit = fenchel.fit("y ~ x", ZEROS, fenchel.likelihoods.Mixed(parts, which))
    at = grid(np.linspace(-0.9, 1.5, 29), np.linspace(-0.4, 1.4, 25), np.linspace(-7.0, 3.0, 33))
    level, gamma, share = at[:, 0], at[:, 1], expit(at[:, 2])[:, None]
    eta = level[:, None] + gamma[:, None] * SPREAD
    poisson = COUNTS * eta - np.exp(eta) - gammaln(COUNTS + 1.0)
    extra = np.logaddexp(np.where(COUNTS == 0, np.log(share), -np.inf), np.log1p(-share) + poisson)
    log_p = np.where(which == 0, extra, poisson).sum(axis=1) - 0.5 * (at[:, 2] + 1.0) ** 2 / 9.0  # N(-1, 3^2)
    _, sd, _ = moments(np.column_stack([gamma / X.std(), level - gamma * X.mean() / X.std()]), log_p)
    np.testing.assert_allclose(fit.coefficients.loc[["x", "Intercept"], "sd"], sd, rtol=0.03)
    assert "averaged over probability" in fit.summary()


@pytest.mark.parametrize("integrate", [None, "auto"])
def test_the_intercept_of_durations_knows_the_shape_in_any_unit(integrate):
    fits = {
        u: fenchel.fit("t ~ x", pd.DataFrame({"t": u * TIMES, "x": X}), "weibull", integrate=integrate)
        for u in (1, 365)
    }
    years, days = fits[1], fits[365]
    np.testing.assert_allclose(days.coefficients.loc["x"], years.coefficients.loc["x"], rtol=2e-3)
    new = pd.DataFrame({"x": [2.0, 3.5]})
    np.testing.assert_allclose(days.predict(new), 365 * years.predict(new), rtol=1e-4)
    level, log_k, gamma = grid(np.linspace(-0.7, 1, 25), np.linspace(0.0, 0.9, 25), np.linspace(-1.4, 0.3, 25)).T
    k = np.exp(log_k)
    unit = TIMES.sum() / N
    eta = level[:, None] + gamma[:, None] * SPREAD
    logs = np.log(TIMES / unit)
    rows = log_k[:, None] + (k[:, None] - 1.0) * logs + eta - np.exp(k[:, None] * logs + eta)
    priors = years.model.coefficient_priors
    off = level - years.model.level
    log_p = rows.sum(axis=1) - 0.5 * off**2 / priors.variance[0] - 0.5 * gamma**2 / priors.variance[1]
    for u, fit in fits.items():
        intercept = level - gamma * X.mean() / X.std() - k * np.log(u * unit)
        link = level + gamma * (2.0 - X.mean()) / X.std() - k * np.log(u * unit)
        mean, sd, ends = moments(np.column_stack([intercept, gamma / X.std(), link]), log_p)
        found = fit.coefficients
        np.testing.assert_allclose(found["mean"], mean[:2], atol=0.1 * sd[:2].min())
        np.testing.assert_allclose(found["sd"], sd[:2], rtol=0.05)
        np.testing.assert_allclose(found.loc["Intercept", ["lower", "upper"]], ends[0], atol=0.12 * sd[0])
        np.testing.assert_allclose(
            fit.predict(new, "link", interval=0.95).iloc[0], [mean[2], sd[2], *ends[2]], atol=0.12 * sd[2]
        )
        assert fit.sample(new, 4000, 0, kind="link")[:, 0].std() == pytest.approx(sd[2], rel=0.06)
        draws = np.asarray(datasets(fit, 500, 4, 0, predictive=False)["posterior"]["Intercept"])
        assert draws.std() == pytest.approx(sd[0], rel=0.06)


def test_a_saved_fit_averages_again(tmp_path, levels):
    fit, _ = levels
    fit.save(tmp_path / "fit.fenchel")
    again = fenchel.load(tmp_path / "fit.fenchel")
    np.testing.assert_array_equal(again.coefficients, fit.coefficients)


def test_averages_whose_points_miss_a_tail_say_so_first():
    """Few extra zeros, and a logit of them with a wide prior: a composite design does not reach its tail."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    y = np.where(rng.random(300) < 0.3, 0, rng.negative_binomial(2, 2 / (2 + np.exp(0.5 + 0.5 * x))))
    data = pd.DataFrame({"x": x, "y": y})
    fit = fenchel.fit("y ~ x", data, "zero-inflated-negative-binomial", zero="~ x")
    assert re.match(r"CHECK: zero .*: x: a long tail, which a composite design does not follow", fit.summary())
    assert not fenchel.fit("y ~ x", ORDINAL, "ordinal").summary().startswith("CHECK")


def test_a_lattice_that_was_stopped_says_so_first(monkeypatch):
    monkeypatch.setattr("fenchel.hyperparameters.integration.fitted_design.MOST_POINTS", 6)
    g = np.arange(N) % 6
    data = pd.DataFrame({"g": g.astype(str), "y": RNG.negative_binomial(2, 0.5, N)})
    with pytest.warns(UserWarning, match=r"the lattice was stopped at \d+ points, and the places next to them may"):
        fit = fenchel.fit("y ~ (1|g)", data, "negative-binomial", integrate="grid")
    assert fit.summary().startswith("CHECK: the lattice was stopped at")
