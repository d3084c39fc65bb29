"""Estimators of any likelihood: every name in every family, planted parameters, units, and quantiles by brute force."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scipy.stats as st
from conftest import difference
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor as ScikitLearns
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import fenchel
from fenchel.estimators import BayesianLinearRegression, GaussianProcessRegressor, linear
from fenchel.likelihoods import WORDS
from fenchel.marginals import NormalMarginals
from fenchel.predictive import Predictive
from fenchel.priors import DenseCovariance

pytestmark = pytest.mark.filterwarnings("ignore:.*nothing is learned")  # parameters are kept on purpose

KERNEL = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(1.0, (1e-1, 1e1))
NOISE = ["gaussian", "laplace", "logistic", "student-t"]
W = np.array([0.8, -0.5])
DRAWN = {
    "beta-binomial": fenchel.BetaBinomial(8, 6.0),
    "hurdle-negative-binomial": fenchel.Hurdle(fenchel.NegativeBinomial(2.0), 0.3),
    "hurdle-poisson": fenchel.Hurdle(fenchel.Poisson(), 0.3),
    "negative-binomial-1": fenchel.NegativeBinomial1(0.8),
    "truncated-negative-binomial": fenchel.Truncated(fenchel.NegativeBinomial(2.0)),
    "truncated-poisson": fenchel.Truncated(fenchel.Poisson()),
    "stochastic-volatility": fenchel.StochasticVolatility(),
    "tweedie": fenchel.Tweedie(0.8, 1.5),
    "zero-inflated-negative-binomial": fenchel.ZeroInflated(fenchel.NegativeBinomial(2.0), 0.3),
}


def drawn(name, eta, rng):
    """y of a named likelihood at eta, and the rows' parameters that go with it."""
    n = eta.size
    if name in NOISE:
        noise = {
            "gaussian": lambda: rng.normal(size=n),
            "laplace": lambda: rng.laplace(size=n),
            "logistic": lambda: rng.logistic(size=n),
            "student-t": lambda: rng.standard_t(4, size=n),
        }[name]()
        return 5.0 + eta + 0.4 * noise, {}
    if name in ("poisson", "negative-binomial", "zero-inflated-poisson"):
        exposure = rng.uniform(1, 4, n)
        mean = exposure * np.exp(eta + 0.5)
        if name == "negative-binomial":
            mean = mean * rng.gamma(3.0, 1 / 3, n)
        y = rng.poisson(mean)
        return np.where((name == "zero-inflated-poisson") & (rng.random(n) < 0.3), 0, y), {"exposure": exposure}
    if name in DRAWN:
        trials = {"trials": np.full(n, 8)} if name == "beta-binomial" else {}
        return DRAWN[name].draw(eta[:, None] + 0.5, rng)[:, 0], trials
    if name == "gamma":
        return np.exp(eta) * rng.gamma(4.0, 1 / 4, n), {}
    if name in ("exponential", "weibull"):
        k = 2.0 if name == "weibull" else 1.0
        time, censored = 50.0 * (rng.exponential(size=n) * np.exp(-eta)) ** (1 / k), rng.exponential(150.0, n)
        return np.minimum(time, censored), {"event": time <= censored}
    if name == "beta":
        return rng.beta(12 * expit(eta), 12 * expit(-eta)), {}
    if name == "binomial":
        trials = rng.integers(1, 9, n)
        return rng.binomial(trials, expit(eta)), {"trials": trials}
    if name in ("bernoulli", "probit"):
        noise = rng.normal(size=n) if name == "probit" else rng.logistic(size=n)
        return (eta + noise > 0).astype(int), {}
    noise = rng.normal(size=n) if name == "ordinal-probit" else rng.logistic(size=n)
    return np.digitize(2 * eta + noise, [-1.5, 0.0, 2.0]) + 1, {}  # levels 1 to 4


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng


def later(given):
    """What ``predict`` takes of what ``fit`` took."""
    return {key: value for key, value in given.items() if key != "event"}


# -- every name in every family ------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:.*the evidence still rises beyond:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("family", ["kernel", "ridge", "ard"])
def test_every_likelihood_in_every_family(name, family):
    X, rng = rows()
    y, given = drawn(name, X @ W, rng)
    model = GaussianProcessRegressor(KERNEL, name) if family == "kernel" else BayesianLinearRegression(family, name)
    model.fit(X, y, **given)
    assert model.converged_
    assert np.isfinite(model.elbo_)
    assert len(model.theta_names_) == model.theta_.size
    some, few = {k: v[:5] for k, v in later(given).items()}, X[:5]
    mean = model.predict(few, **some)
    q = model.predict_quantiles(few, [0.1, 0.5, 0.9], **some)
    y_drawn = model.sample_y(few, 20_000, random_state=0, **some)
    band = model.predict_rate(few)
    assert all(np.isfinite(part).all() for part in (mean, q, y_drawn, band, model.score(X, y, **given)))
    assert (np.diff(q, axis=1) >= 0).all()
    assert (np.diff(band, axis=1) >= 0).all()
    np.testing.assert_allclose(y_drawn.mean(axis=1), mean, atol=0.05 * y_drawn.std(axis=1).max())
    for level, column in zip((0.1, 0.5, 0.9), q.T, strict=True):  # P(y <= q) >= level, P(y < q) <= level
        assert ((y_drawn <= column[:, None]).mean(axis=1) >= level - 0.015).all()
        assert ((y_drawn < column[:, None]).mean(axis=1) <= level + 0.015).all()
    again, std = model.predict(few, return_std=True, **some)
    np.testing.assert_array_equal(again, mean)
    np.testing.assert_allclose(std, y_drawn.std(axis=1), rtol=0.3 if name == "student-t" else 0.1)
    assert model.score(X, y, **given) > model.score(X, y[::-1], **{k: v[::-1] for k, v in given.items()}) - 1e-9


@pytest.mark.parametrize("name", WORDS)
def test_the_evidence_gradient_of_every_likelihood(name):
    X, rng = rows(30, 1)
    y, given = drawn(name, X @ W, rng)
    model = GaussianProcessRegressor(1.3 * RBF(0.9), name, optimizer=None).fit(X, y, **given)
    own = model._target.likelihood.theta
    theta = np.concatenate([model.kernel_.theta, own]) + 0.1
    value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    slopes = difference(model.log_marginal_likelihood, theta, step=1e-4)
    np.testing.assert_allclose(gradient, slopes, rtol=2e-5, atol=2e-5)
    assert value == pytest.approx(model.log_marginal_likelihood(theta), abs=1e-7)


PLANTED = {  # name: what is learned, its true value, three standard errors with 1500 rows or more
    "gaussian": ("variance", 0.16, 0.02),
    "laplace": ("scale", 0.4, 0.035),
    "logistic": ("scale", 0.4, 0.03),
    "student-t": ("scale", 0.4, 0.03),
    "negative-binomial": ("size", 3.0, 0.5),
    "zero-inflated-poisson": ("probability", 0.3, 0.045),
    "gamma": ("shape", 4.0, 0.45),
    "weibull": ("shape", 2.0, 0.15),
    "beta": ("precision", 12.0, 1.4),
}


@pytest.mark.parametrize("name", [*PLANTED, "poisson", "exponential", "binomial", "bernoulli", "probit"])
def test_planted_coefficients_and_parameters_are_recovered(name):
    X, rng = rows(1500, 2)
    y, given = drawn(name, X @ W, rng)
    model = BayesianLinearRegression("ard", name).fit(X, y, **given)
    assert model.converged_
    assert (np.abs(model.coef_ - W) < 4 * model.coef_std_ + 0.01).all()
    assert model.coef_cov_.shape == (2, 2)
    if name in PLANTED:
        attribute, truth, error = PLANTED[name]
        assert getattr(model.likelihood_, attribute) == pytest.approx(truth, abs=error)


@pytest.mark.parametrize("name", ["ordinal", "ordinal-probit"])
def test_planted_cutpoints_are_recovered(name):
    X, rng = rows(1500, 3)
    y, _ = drawn(name, X @ W, rng)
    model = BayesianLinearRegression(likelihood=name).fit(X, y)
    assert model.intercept_ == pytest.approx(-X.mean(axis=0) @ model.coef_)  # eta is 0 at the mean of X
    np.testing.assert_allclose(model.coef_, 2 * W, atol=0.2)
    np.testing.assert_allclose(model.likelihood_.cutpoints, [-1.5, 0.0, 2.0], atol=0.25)
    np.testing.assert_array_equal(model.classes_, [1, 2, 3, 4])
    p = model.predict_proba(X[:7])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(model.predict(X[:7]), p @ [1, 2, 3, 4])
    assert set(np.unique(model.predict_quantiles(X, [0.5]))) <= {1.0, 2.0, 3.0, 4.0}
    observed = p[np.arange(7), y[:7] - 1]
    assert model.score(X[:7], y[:7]) == pytest.approx(np.log(observed).mean())


def test_degrees_of_freedom_are_learned_when_asked():
    X, rng = rows(3000, 4)
    y = 1.0 + X @ W + 0.4 * rng.standard_t(3, 3000)
    model = BayesianLinearRegression(likelihood=fenchel.StudentT(df=6.0, scale=0.5, learn_df=True)).fit(X, y)
    assert model.likelihood_.df == pytest.approx(3.0, abs=0.7)
    assert model.theta_names_[1:] == ["log (degrees of freedom - 1)", "log noise scale"]
    assert model.gap_ == np.inf  # not log-concave: a stationary point, and it says so
    assert model.converged_


# -- against what is known -----------------------------------------------------------------------------
def test_gaussian_noise_is_scikit_learns_regression():
    X, rng = rows(50)
    y = 3.0 + np.sin(X[:, 0]) + 0.3 * rng.normal(size=50)
    model = GaussianProcessRegressor(KERNEL, fit_intercept=False).fit(X, y)
    assert model.mean_ == pytest.approx(y.mean())
    v = model.likelihood_.variance
    same = ScikitLearns(model.kernel_ + WhiteKernel(v), alpha=0.0, optimizer=None).fit(X, y - y.mean())
    assert model.elbo_ == pytest.approx(same.log_marginal_likelihood_value_, abs=1e-8)
    new = rng.normal(size=(5, 2))
    mean, std = same.predict(new, return_std=True)
    ours, ours_std = model.predict(new, return_std=True)
    np.testing.assert_allclose(ours, mean + y.mean(), atol=1e-8)
    np.testing.assert_allclose(ours_std, std, atol=1e-8)
    np.testing.assert_allclose(model.predict_quantiles(new, [0.975])[:, 0], ours + st.norm.ppf(0.975) * ours_std)
    best = ScikitLearns(KERNEL + WhiteKernel(v), alpha=0.0).fit(X, y - y.mean())
    assert model.elbo_ >= best.log_marginal_likelihood_value_ - 1e-3


def test_a_linear_gaussian_model_is_a_multivariate_normal():
    X, rng = rows(40)
    y = 7.0 + X @ W + 0.5 * rng.normal(size=40)
    model = BayesianLinearRegression(intercept_variance=9.0, tol=1e-14).fit(X, y)
    s2, v = np.var(y), model.likelihood_.variance
    assert model.scale_ == pytest.approx(np.sqrt(s2))
    Z, sd = X - X.mean(axis=0), X.std(axis=0)
    C = s2 * (model.variance_ * (Z / sd) @ (Z / sd).T + 9.0) + v * np.eye(40)
    assert model.elbo_ == pytest.approx(st.multivariate_normal(np.full(40, y.mean()), C).logpdf(y), abs=1e-8)
    A, K = np.column_stack([Z, np.ones(40)]), np.eye(3)
    P = np.diag(1 / (s2 * np.append(model.variance_ / sd**2, 9.0)))
    V = np.linalg.inv(P + A.T @ A / v)
    K[2, :2] = -X.mean(axis=0)  # eta at x = 0
    V, m = K @ V @ K.T, K @ V @ (P @ [0, 0, y.mean()] + A.T @ y / v)
    np.testing.assert_allclose([*model.coef_, model.intercept_], m, atol=1e-8)
    np.testing.assert_allclose([*model.coef_std_, model.intercept_std_], np.sqrt(np.diag(V)), rtol=1e-7)


def test_an_instance_is_its_name():
    X, rng = rows(40)
    y, given = drawn("poisson", X @ W, rng)
    named = GaussianProcessRegressor(KERNEL, "poisson").fit(X, y, **given)
    made = GaussianProcessRegressor(KERNEL, fenchel.Poisson(given["exposure"])).fit(X, y)
    asked = GaussianProcessRegressor(KERNEL, fenchel.Poisson()).fit(X, y, **given)
    assert named.elbo_ == pytest.approx(made.elbo_, abs=1e-7) == pytest.approx(asked.elbo_, abs=1e-7)
    assert named.mean_ == made.mean_ == pytest.approx(np.log(y.sum() / given["exposure"].sum()))
    np.testing.assert_allclose(made.predict(X[:3], exposure=2.0), 2.0 * named.predict(X[:3]), rtol=1e-6)


def test_the_fit_is_infers_fit():
    X, rng = rows(25)
    y, given = drawn("weibull", X @ W, rng)
    kernel = 1.2 * RBF(1.1)
    likelihood = fenchel.Weibull(1.3, given["event"])
    model = GaussianProcessRegressor(kernel, likelihood, optimizer=None, mean=-1.0, tol=1e-14, fit_intercept=False).fit(
        X, y
    )
    sol = fenchel.infer(likelihood, DenseCovariance(kernel(X), -1.0), y, tol=1e-14)
    assert model.elbo_ == pytest.approx(sol.elbo, abs=1e-8)
    h, rho = model.latent_mean_and_variance(X)
    np.testing.assert_allclose(h, sol.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(
        model.predict_survival(X, [20.0, 60.0]), likelihood.predictive_survival([20.0, 60.0], h, rho), atol=1e-7
    )
    np.testing.assert_allclose(model.predict(X), likelihood.predictive_mean(h, rho), rtol=1e-7)
    with pytest.raises(ValueError, match=r"Weibull: y\[0\] = -3 is a negative duration"):
        model.likelihood_.check(np.full(len(y), -3.0))
    half = model.predict_quantiles(X[:1], [0.5])[0, 0]
    assert model.predict_survival(X[:1], half) == pytest.approx(0.5)


# -- units ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [GaussianProcessRegressor, BayesianLinearRegression])
@pytest.mark.parametrize("name", NOISE)
def test_the_units_of_y_do_not_matter(make, name):
    X, rng = rows(60, 5)
    y, _ = drawn(name, X @ W, rng)
    one, other = make(likelihood=name).fit(X, y), make(likelihood=name).fit(X, 1e6 * y - 3e6)
    mean, std = one.predict(X, return_std=True)
    far_mean, far_std = other.predict(X, return_std=True)
    np.testing.assert_allclose((far_mean + 3e6) / 1e6, mean, atol=1e-3)
    np.testing.assert_allclose(far_std / 1e6, std, rtol=1e-3)
    assert other.elbo_ + 60 * np.log(1e6) == pytest.approx(one.elbo_, abs=1e-3)


@pytest.mark.parametrize("make", [GaussianProcessRegressor, BayesianLinearRegression])
def test_the_units_of_time_do_not_matter(make):
    X, rng = rows(80, 6)
    y, given = drawn("weibull", X @ W, rng)
    hours, years = make(likelihood="weibull").fit(X, y, **given), make(likelihood="weibull").fit(X, y / 8766, **given)
    assert hours.likelihood_.shape == pytest.approx(years.likelihood_.shape, rel=1e-3)
    np.testing.assert_allclose(hours.predict(X) / 8766, years.predict(X), rtol=1e-3)
    assert hours.elbo_ + given["event"].sum() * np.log(8766) == pytest.approx(years.elbo_, abs=1e-3)


def test_weights_mean_repetition():
    X, rng = rows(30)
    y, given = drawn("negative-binomial", X @ W, rng)
    weight, keep = np.r_[np.full(5, 2.0), np.zeros(5), np.ones(20)], np.r_[:5, :5, 10:30]
    weighted = BayesianLinearRegression(likelihood="negative-binomial").fit(X, y, weight, **given)
    twice = BayesianLinearRegression(likelihood="negative-binomial").fit(
        X[keep], y[keep], exposure=given["exposure"][keep]
    )
    assert weighted.elbo_ == pytest.approx(twice.elbo_, abs=1e-5)
    np.testing.assert_allclose(weighted.coef_, twice.coef_, atol=1e-4)


@pytest.mark.parametrize("name", ["negative-binomial", "weibull", "ordinal"])
def test_a_sample_of_many_rows_only_starts_the_search(name, monkeypatch):
    X, rng = rows(50_000, 7)
    y, given = drawn(name, X @ W, rng)
    tall = BayesianLinearRegression(likelihood=name).fit(X, y, **given)
    monkeypatch.setattr(linear, "is_enough", lambda n, n_weights: False)
    plain = BayesianLinearRegression(likelihood=name).fit(X, y, **given)
    assert tall.converged_
    assert tall.elbo_ == pytest.approx(plain.elbo_, abs=0.01)  # searches end some thousandths of a nat apart
    np.testing.assert_allclose(tall.theta_[1:], plain.theta_[1:], atol=2e-3)
    assert tall.theta_[0] == pytest.approx(plain.theta_[0], abs=0.2)  # two coefficients say little about their variance


# -- the predictive distribution -----------------------------------------------------------------------
LIKELIHOODS = {
    "poisson": (fenchel.Poisson(3.0), lambda eta: st.poisson(3.0 * np.exp(eta))),
    "many": (fenchel.Poisson(1e4), lambda eta: st.poisson(1e4 * np.exp(eta))),
    "negative binomial": (
        fenchel.NegativeBinomial(2.5, 3.0, bound="log-sum"),
        lambda eta: st.nbinom(2.5, 2.5 / (2.5 + 3.0 * np.exp(eta))),
    ),
    "binomial": (fenchel.Binomial(20.0, bound="log-sum"), lambda eta: st.binom(20, expit(eta))),
    "gamma": (fenchel.Gamma(2.5), lambda eta: st.gamma(2.5, scale=np.exp(eta) / 2.5)),
    "nearly certain": (fenchel.Gamma(1e5), lambda eta: st.gamma(1e5, scale=np.exp(eta) / 1e5)),
    "waiting": (fenchel.Gamma(0.2), lambda eta: st.gamma(0.2, scale=np.exp(eta) / 0.2)),
    "beta": (fenchel.Beta(7.0), lambda eta: st.beta(7.0 * expit(eta), 7.0 * expit(-eta))),
    "sharp": (fenchel.Beta(1e5), lambda eta: st.beta(1e5 * expit(eta), 1e5 * expit(-eta))),
    "laplace": (fenchel.LaplaceNoise(0.7), lambda eta: st.laplace(eta, 0.7)),
    "fine": (fenchel.LaplaceNoise(1e-2), lambda eta: st.laplace(eta, 1e-2)),
    "logistic": (fenchel.likelihoods.LogisticNoise(0.7), lambda eta: st.logistic(eta, 0.7)),
    "student": (fenchel.StudentT(3.0, 0.7), lambda eta: st.t(3.0, eta, 0.7)),
    "wild": (fenchel.StudentT(1.5, 1e-2), lambda eta: st.t(1.5, eta, 1e-2)),
    "weibull": (fenchel.Weibull(1.7), lambda eta: st.weibull_min(1.7, scale=np.exp(-eta / 1.7))),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize(("h", "rho"), [(0.3, 0.4), (-0.5, 1e-14), (0.2, 9.0)])
def test_quantiles_by_brute_force(name, h, rho):
    """The distribution function of the mixture, by the trapezium on a fine grid over scipy's distributions."""
    likelihood, given = LIKELIHOODS[name]
    z = np.linspace(-9, 9, 400_001)
    t, weight = h + np.sqrt(rho) * z, st.norm.pdf(z) * (z[1] - z[0])

    def cdf(x):
        return float(weight @ given(t).cdf(x))

    levels = np.array([0.01, 0.5, 0.9])
    found = likelihood.predictive_quantile(levels, np.array([h]), np.array([rho]))[0]
    for level, x in zip(levels, found, strict=True):
        if isinstance(likelihood, (fenchel.Poisson, fenchel.NegativeBinomial, fenchel.Binomial)):
            assert cdf(x) >= level - 2e-7
            assert cdf(x - 1) <= level + 2e-7
        else:
            assert cdf(x) == pytest.approx(level, abs=2e-7)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_draws_follow_the_distribution(name):
    likelihood, given = LIKELIHOODS[name]
    rng = np.random.default_rng(0)
    sample = likelihood.predictive_draws(np.full(1, 0.3), np.full(1, 1e-14), 4000, rng)[0]
    exact = given(0.3)
    for level in (0.2, 0.5, 0.8):
        x = exact.ppf(level)
        assert (sample <= x).mean() == pytest.approx(exact.cdf(x), abs=0.03)


def test_zero_inflated_quantiles_and_draws():
    likelihood = fenchel.ZeroInflated(fenchel.Poisson(5.0), 0.4)
    h, rho = np.zeros(1), np.full(1, 1e-14)
    found = likelihood.predictive_quantile(np.array([0.3, 0.405, 0.7, 0.99]), h, rho)[0]
    cdf = 0.4 + 0.6 * st.poisson(5.0).cdf(np.arange(60))
    np.testing.assert_array_equal(found, np.searchsorted(cdf, [0.3, 0.405, 0.7, 0.99]))
    sample = likelihood.predictive_draws(h, rho, 20_000, np.random.default_rng(0))
    assert (sample == 0).mean() == pytest.approx(cdf[0], abs=0.015)


def test_bands_of_a_mean_that_falls():
    """The mean of a duration falls in its log hazard: the band is turned round."""
    likelihood, h, rho = fenchel.Weibull(2.0), np.array([0.1, 1.0]), np.array([0.5, 2.0])
    band = Predictive(likelihood, NormalMarginals(h, rho)).mean_quantile([0.1, 0.9])
    for i in range(2):
        low = brentq(lambda m, i=i: _share(likelihood, m, h[i], rho[i]) - 0.1, 1e-6, 1e3)
        assert band[i, 0] == pytest.approx(low, rel=1e-6)
    assert (band[:, 0] < band[:, 1]).all()


def _share(likelihood, m, h, rho):
    """P(E[y | eta] <= m): eta above the place where the mean is m."""
    eta = brentq(lambda t: float(likelihood.predictive_mean(np.array([t]), np.zeros(1))[0]) - m, -60, 60, xtol=1e-13)
    return st.norm.sf(eta, h, np.sqrt(rho))


# -- a user's first five minutes -----------------------------------------------------------------------
@pytest.mark.parametrize("estimator", [GaussianProcessRegressor(), BayesianLinearRegression()])
def test_scikit_learns_own_checks(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator, on_skip=None)


def test_weights_mean_repetition_where_there_is_noise():
    """What scikit-learn checks, on data with noise."""
    X, rng = rows(40)
    y, weight = X @ W + 0.5 * rng.normal(size=40), rng.integers(0, 4, 40)
    weighted = BayesianLinearRegression().fit(X, y, sample_weight=weight)
    repeated = BayesianLinearRegression().fit(X.repeat(weight, axis=0), y.repeat(weight))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7, atol=1e-9)


def test_survival_with_censoring():
    X, rng = rows(300, 8)
    y, given = drawn("weibull", X @ W, rng)
    model = BayesianLinearRegression(likelihood="weibull").fit(
        pd.DataFrame(X, columns=["a", "b"]), pd.Series(y), **given
    )
    S = model.predict_survival(pd.DataFrame(X[:4], columns=["a", "b"]), [0.0, 10.0, 50.0, 500.0])
    assert S.shape == (4, 4)
    assert (S[:, 0] == 1.0).all()
    assert (np.diff(S, axis=1) < 0).all()
    frame = pd.DataFrame(X, columns=["a", "b"])
    censored = model.score(frame[:1], y[:1], event=[0])
    assert censored == pytest.approx(np.log(model.predict_survival(frame[:1], y[0])[0]), abs=1e-6)
    naive = BayesianLinearRegression(likelihood="weibull").fit(frame, y)  # every end taken for an event
    assert np.mean(naive.predict(frame)) < np.mean(model.predict(frame))
    with pytest.raises(AttributeError, match="has no attribute 'predict_proba'") as refused:
        model.predict_proba(X)
    assert "predict_proba() needs labels, and likelihood='weibull' has none" in str(refused.value.__cause__)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(GaussianProcessRegressor(), "predict_survival")


def test_labels_of_any_two_numbers():
    X, rng = rows(60)
    y, _ = drawn("probit", X @ W, rng)
    zero_one, other = (BayesianLinearRegression(likelihood="probit").fit(X, v) for v in (y, np.where(y == 1, 7.0, 3.0)))
    np.testing.assert_allclose(zero_one.predict_proba(X), other.predict_proba(X))
    np.testing.assert_allclose(other.predict(X), 3.0 + 4.0 * zero_one.predict(X))
    std = other.predict(X, return_std=True)[1]
    np.testing.assert_allclose(std, 4.0 * np.sqrt(zero_one.predict(X) * (1 - zero_one.predict(X))), atol=1e-7)
    assert set(np.unique(other.sample_y(X, 50))) == {3.0, 7.0}
    assert set(np.unique(other.predict_quantiles(X, [0.5]))) == {3.0, 7.0}
    assert ((other.predict_rate(X, [0.5]) > 3) & (other.predict_rate(X, [0.5]) < 7)).all()
    with pytest.raises(ValueError, match=r"y\[0\] = 1 was not seen in fit; expected one of \[3\.0, 7\.0\]"):
        other.score(X[:1], [1.0])
    only = BayesianLinearRegression(likelihood="bernoulli").fit(X, np.ones(60))
    assert (only.predict(X) > 0.9).all()


@pytest.mark.filterwarnings("ignore:.*the evidence still rises beyond:sklearn.exceptions.ConvergenceWarning")
def test_frames_sparse_rows_pipelines_and_pickles():
    X, rng = rows(60)
    y, _ = drawn("gamma", X @ W, rng)
    frame = pd.DataFrame(X, columns=["left", "right"])
    for model in (GaussianProcessRegressor(KERNEL, "gamma"), BayesianLinearRegression("ard", "gamma")):
        fitted = model.fit(frame, y)
        assert list(fitted.feature_names_in_) == ["left", "right"]
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_allclose(again.predict(frame), fitted.predict(frame))
        assert clone(fitted).get_params()["likelihood"] == "gamma"
        assert np.isfinite(cross_val_score(model, X, y, cv=3)).all()
    thin = BayesianLinearRegression("ard", "gamma").fit(sp.csr_array(X), y)
    np.testing.assert_allclose(thin.predict(sp.csr_array(X)), fitted.predict(frame), rtol=1e-5)
    assert fitted.theta_names_ == ["log variance left", "log variance right", "log shape"]


def test_what_is_kept_and_what_is_learned():
    X, rng = rows(50)
    y = X @ W + 0.3 * rng.normal(size=50)
    kept = BayesianLinearRegression(
        likelihood=fenchel.Gaussian(0.5), variance=0.7, learn_variance=False, learn_likelihood=False
    ).fit(X, y)
    assert kept.likelihood_.variance == 0.5
    assert kept.variance_ == pytest.approx(0.7)
    noise = BayesianLinearRegression(variance=0.7, learn_variance=False).fit(X, y)
    assert noise.variance_ == pytest.approx(0.7)
    assert noise.theta_names_ == ["log noise variance"]
    assert noise.likelihood_.variance == pytest.approx(0.09, abs=0.06)
    prior = BayesianLinearRegression(likelihood=fenchel.Gaussian(0.5), learn_likelihood=False).fit(X, y)
    assert prior.likelihood_.variance == 0.5
    assert prior.theta_names_ == ["log variance"]
    assert kept.elbo_ <= prior.elbo_
    same = GaussianProcessRegressor(1.0 * RBF(1.0), optimizer=None, mean=2.0).fit(X, y)
    assert same.mean_ == 2.0
    with pytest.raises(ValueError, match=r"mean = 'level' is not known; expected 'link' or 'zero'"):
        GaussianProcessRegressor(mean="level").fit(X, y)
    assert same.kernel_.theta == pytest.approx(np.zeros(2))
    bare = BayesianLinearRegression(fit_intercept=False).fit(X, y)
    assert bare.intercept_ == bare.mean_ == 0.0


def test_bounds_by_name():
    X, rng = rows(50)
    y, given = drawn("binomial", X @ W, rng)
    best, tilted, paper = (
        GaussianProcessRegressor(1.0 * RBF(1.0), "binomial", bound=bound, optimizer=None).fit(X, y, **given)
        for bound in ("best", "tilted", "log-sum")
    )
    assert best.likelihood_.bound == "exact"
    assert best.elbo_ > tilted.elbo_ > paper.elbo_


@pytest.mark.parametrize(
    ("options", "given", "sentence"),
    [
        (
            {"likelihood": "normal"},
            {},
            r"likelihood = 'normal' is not known; .* Or give a Likelihood, such as fenchel\.",
        ),
        ({"likelihood": 3}, {}, r"likelihood is a int; expected one of 'gaussian', .*, or a Likelihood"),
        (
            {"likelihood": fenchel.MultinomialLogit(3, bound="log-sum")},
            {},
            r"has 2 predictors a row; .* GaussianProcessClassifier",
        ),
        ({"likelihood": fenchel.Poisson(), "bound": "tilted"}, {}, r"bound = 'tilted' is not known; .* brings its own"),
        ({"likelihood": "poisson", "bound": "exact"}, {}, r"bound = 'exact' is not known; expected 'best'"),
        (
            {"likelihood": "binomial"},
            {},
            r"trials is missing; expected the trials of each row\. Call fit\(X, y, trials",
        ),
        (
            {"likelihood": "gamma"},
            {"exposure": 2.0},
            r'exposure was given with likelihood="gamma"; expected exposure only with "poisson"',
        ),
        ({"likelihood": "weibull"}, {"event": [1, 0]}, r"event has shape \(2,\); expected a number or shape \(30,\)"),
        ({"likelihood": fenchel.Gamma()}, {"event": 1.0}, r"Gamma: 'event' is not a value that its rows have"),
        ({"likelihood": "poisson"}, {"y": -1.0}, r"Poisson: y\[0\] = -1 is not a count"),
        (
            {"likelihood": "probit"},
            {"y": 2.0},
            r'likelihood="probit" was given with 3 different values of y; expected two\. For or',
        ),
        (
            {"likelihood": "ordinal"},
            {"y": None},
            r'likelihood="ordinal" was given with 1 different values of y; .* two or more',
        ),
        ({"likelihood": "beta"}, {"y": 1.5}, r"Beta: y"),
    ],
)
@pytest.mark.parametrize("make", [GaussianProcessRegressor, BayesianLinearRegression])
def test_errors_in_the_voice_of_the_house(make, options, given, sentence):
    X, rng = rows(30)
    y = rng.integers(0, 2, 30).astype(float)
    given = dict(given)
    if "y" in given:
        value = given.pop("y")
        y = np.ones(30) if value is None else np.r_[value, y[1:]]
    with pytest.raises(ValueError, match=sentence):
        make(**options).fit(X, y, **given)


def test_pictures_of_any_likelihood():
    from fenchel.estimators import plot_coefficients, plot_partial_effect
    from fenchel.plots import plot_trace

    X, rng = rows(40)
    x = X[:, :1]
    for name in ("student-t", "weibull", "ordinal"):
        y, given = drawn(name, x @ W[:1], rng)
        model = GaussianProcessRegressor(KERNEL, name).fit(x, y, **given)
        ax = plot_partial_effect(model, x, y, resolution=9)
        at, middle = ax.lines[-1].get_xydata().T
        np.testing.assert_allclose(middle, model.predict_rate(at[:, None])[:, 1])
        assert ax.get_ylabel() == "mean"
        if name == "student-t":
            with pytest.raises(ValueError, match=r"StudentT\(.* leaves no upper bound; expected a log-concave"):
                plot_trace(model.solution_)
        else:
            assert len(plot_trace(model.solution_).axes) == 2
        line = BayesianLinearRegression(likelihood=name).fit(x, y, **given)
        assert len(plot_coefficients(line).get_yticklabels()) == 1


@pytest.mark.filterwarnings("ignore:.*(the evidence still rises beyond|as wide as its prior|overdispersed)")
@pytest.mark.parametrize("name", WORDS)
def test_every_likelihood_in_a_formula(name):
    X, rng = rows()
    y, given = drawn(name, X @ W, rng)
    frame = pd.DataFrame({"group": np.arange(60) % 6, "x": X[:, 0], "z": X[:, 1], **given})
    model = fenchel.FormulaRegressor("y ~ x + z + (1|group)", name, **{key: key for key in given}).fit(frame, y)
    fit, few = model.fit_, frame[:5]
    assert model.converged_
    mean, std = model.predict(few, return_std=True)
    draws = fit.sample(few, 20_000, 0, kind="outcome")
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.05 * draws.std(axis=0).max())
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.3 if name == "student-t" else 0.1)
    assert np.isfinite(fit.effects["group"].to_numpy()).all()
    assert np.isfinite(fit.hyperparameters["value"]).all()
    assert model.score(frame, y) > model.score(frame.assign(**{k: v[::-1] for k, v in given.items()}), y[::-1]) - 1e-9


def test_structured_effects_of_any_likelihood():
    X, rng = rows(240, 9)
    group = np.arange(240) % 12
    effect = np.linspace(-0.8, 0.8, 12)
    y, given = drawn("weibull", effect[group], rng)
    frame = pd.DataFrame({"ward": group, "died": given["event"], "t": y})
    fit = fenchel.fit("cens(t, died) ~ (1|ward)", frame, "weibull")
    table = fit.effects["ward"]
    assert np.corrcoef(table["mean"], effect)[0, 1] > 0.85
    np.testing.assert_allclose(table["hazard_ratio"], np.exp(table["mean"]), rtol=1e-2)
    assert {"hr_lower", "hr_upper", "p_above_1"} <= set(table.columns)
    assert fit.hyperparameters.loc[("Weibull", "shape"), "value"] == pytest.approx(2.0, abs=0.3)
    assert fit.survival(frame[:3], [10.0, 50.0]).shape == (3, 2)
    levels, _ = drawn("ordinal", effect[group] + X @ W, rng)
    frame = pd.DataFrame({"ward": group, "x": X[:, 0], "z": X[:, 1], "level": levels})
    fit = fenchel.fit("level ~ x + z + (1|ward)", frame, "ordinal")
    assert list(fit.coefficients.index) == ["x", "z"]
    assert fit.predict(frame, "probability").shape == (240, 4)
    assert len(fit.hyperparameters.loc["cutpoints"]) == 3
    assert "odds_ratio" in fit.coefficients
    frame = frame.assign(y=1e3 + X @ W + rng.standard_t(4, 240))
    noisy = fenchel.fit("y ~ x + z + (1|ward)", frame, fenchel.StudentT(4.0, 0.3)).coefficients
    np.testing.assert_allclose(noisy["mean"], [1e3, *W], atol=0.4)
    assert "p_above_0" in noisy


def test_labels_of_another_likelihood_are_forgotten():
    x, y = np.linspace(0.0, 1.0, 20)[:, None], np.arange(20) // 5 % 2
    for model in (BayesianLinearRegression(likelihood="bernoulli"), GaussianProcessRegressor(likelihood="bernoulli")):
        assert model.fit(x, y).classes_.tolist() == [0, 1]
        assert not hasattr(model.set_params(likelihood="gaussian").fit(x, 1.0 * y), "classes_")
    model.set_params(likelihood="bernoulli").fit(x, y)
    assert not hasattr(model.set_params(likelihood="gaussian").fit(x, np.column_stack([y, 1.0 - y])), "classes_")


@pytest.mark.parametrize(("likelihood", "y"), [("poisson", -1.0), ("negative-binomial", 0.5), ("gamma", 0.0)])
def test_messages_say_what_estimators_take(likelihood, y):
    for model in (BayesianLinearRegression(likelihood=likelihood), GaussianProcessRegressor(likelihood=likelihood)):
        with pytest.raises(ValueError, match="expected") as refusal:
            model.fit(np.arange(3.0)[:, None], [1.0, 2.0, y])
        assert "NaN" not in str(refusal.value)
