"""Relevance determination: held-out log loss beside ridge's, sparse truths, the prior and its width by brute force."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import dblquad
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ARDRegression
from sklearn.metrics import log_loss

from fenchel import infer
from fenchel.estimators import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression
from fenchel.hyperparameters import WeightVariances, learn, learn_relevance
from fenchel.hyperparameters.weights import Spread, width_evidence
from fenchel.likelihoods import Gaussian


def halves(X, y, n, seed):
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order[:n]], y[order[:n]], X[order[n:]], y[order[n:]]


def labels(n, d, relevant, size, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 600, d))
    w = np.zeros(d)
    w[:relevant] = size * rng.choice([-1, 1], relevant)
    y = (X @ w + rng.logistic(size=n + 600) > 0).astype(int)
    return X[:n], y[:n], X[n:], y[n:]


def losses(X, y, X_new, y_new):
    """Held-out log loss of ridge and of ARD, and the latter's fit."""
    ridge, ard = (BayesianLogisticRegression(prior).fit(X, y) for prior in ("ridge", "ard"))
    assert ard.converged_
    return log_loss(y_new, ridge.predict_proba(X_new)), log_loss(y_new, ard.predict_proba(X_new)), ard


# -- held-out rows -------------------------------------------------------------------------------------
@pytest.mark.parametrize("table", ["cancer", "digits"])
def test_few_rows_of_real_tables(table):
    if table == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
    else:
        X, y = load_digits(return_X_y=True)
        X, y = X[(y == 4) | (y == 9)], y[(y == 4) | (y == 9)] == 4
    pairs = [losses(*halves(X, y, 50, seed))[:2] for seed in range(4)]
    away = np.array([ard - ridge for ridge, ard in pairs])
    assert away.mean() < 0.01
    assert away.max() < 0.05


@pytest.mark.parametrize(("n", "d", "size"), [(100, 30, 0.4), (80, 200, 0.25)])
def test_where_all_features_matter_it_is_ridge(n, d, size):
    for seed in range(2):
        ridge, ard, model = losses(*labels(n, d, d, size, seed))
        assert ard < ridge + 0.02
        assert model.relevance_spread_ <= 0.5


@pytest.mark.parametrize(("n", "d", "relevant", "size"), [(200, 50, 3, 1.5), (100, 150, 4, 2.5)])
def test_where_few_matter_it_finds_them(n, d, relevant, size):
    for seed in range(2):
        ridge, ard, model = losses(*labels(n, d, relevant, size, seed))
        assert ard < ridge - 0.02
        assert model.relevance_spread_ >= 1.0
        assert set(np.argsort(-model.variance_)[:relevant]) == set(range(relevant))


def test_numbers_and_counts():
    rng = np.random.default_rng(3)
    X, X_new = rng.normal(size=(80, 60)), rng.normal(size=(2000, 60))
    w = np.r_[1.0, -0.7, 0.5, np.zeros(57)]
    y = X @ w + rng.normal(size=80)
    error = [
        np.mean((m.fit(X, y).predict(X_new) - X_new @ w) ** 2)
        for m in (BayesianLinearRegression("ard"), ARDRegression())
    ]
    assert error[0] < error[1]
    y, y_new = (rng.poisson(np.exp(0.5 + 0.5 * A @ w)) for A in (X, X_new))
    ridge, ard = (BayesianPoissonRegression(prior).fit(X, y) for prior in ("ridge", "ard"))
    assert ard.converged_
    assert ard.score(X_new, y_new) > ridge.score(X_new, y_new) + 0.05


def test_noise_survives_more_features_than_rows():
    """Free variances explain 80 rows by 150 features without any noise, which is 1."""
    rng = np.random.default_rng(1001)
    X = rng.normal(size=(1080, 150))
    y = X[:, :4].sum(axis=1) + rng.normal(size=1080)
    model = BayesianLinearRegression("ard").fit(X[:80], y[:80])
    assert model.converged_
    assert 0.5 < model.likelihood_.variance < 2.0
    assert np.exp(model.theta_[-1]) == pytest.approx(model.likelihood_.variance)
    assert np.mean((model.predict(X[80:]) - y[80:]) ** 2) < 1.5


def test_awkward_tables():
    X, y = load_iris(return_X_y=True)  # several classes share a feature's variance
    wide = np.column_stack([X, np.ones(150), np.random.default_rng(0).normal(size=(150, 5))])  # one is constant
    model = BayesianLogisticRegression("ard").fit(wide, y)
    assert model.converged_
    assert model.variance_[[2, 3]].min() > model.variance_[5:].max()
    units = 10.0 ** np.array([3, -3, 2, 5, 0, -5, 1, 0, -1, 4])
    scaled = BayesianLogisticRegression("ard").fit(wide * units, y)
    np.testing.assert_allclose(scaled.predict_proba(wide * units), model.predict_proba(wide), atol=1e-5)
    thin = BayesianLogisticRegression("ard").fit(sp.csr_array(wide), y)
    np.testing.assert_allclose(thin.predict_proba(wide), model.predict_proba(wide), atol=1e-5)
    for prior in ("ridge", "ard"):  # one feature: the same model
        one = BayesianLogisticRegression(prior).fit(X[:, 2:3], y > 0)
        assert one.elbo_ == pytest.approx(BayesianLogisticRegression().fit(X[:, 2:3], y > 0).elbo_, abs=1e-6)
    with pytest.warns(ConvergenceWarning, match="'log noise variance' at its lower bound"):  # y is one of the features
        given = BayesianLinearRegression("ard", learn_variance=False).fit(wide, X[:, 0])
    np.testing.assert_allclose(given.variance_, 1.0)
    assert not hasattr(given, "relevance_spread_")


# -- the prior and its width ---------------------------------------------------------------------------
def test_spread_is_the_normal_about_the_mean():
    theta = np.array([-3.0, 0.5, 1.0, 4.0])
    value, slope = Spread(1.7)(theta)
    assert value == pytest.approx(norm.logpdf(theta, theta.mean(), 1.7).sum())
    steps = 1e-5 * np.eye(4)
    by_hand = [(Spread(1.7)(theta + e)[0] - Spread(1.7)(theta - e)[0]) / 2e-5 for e in steps]
    np.testing.assert_allclose(slope, by_hand, atol=1e-8)
    assert slope.sum() == pytest.approx(0.0, abs=1e-12)  # the level is free


def log_evidence(X, y, variance, noise, mean):
    return multivariate_normal.logpdf(y, X @ mean, X @ np.diag(variance) @ X.T + noise * np.eye(len(y)))


@pytest.mark.parametrize(("n", "d"), [(12, 3), (3, 6)])
def test_one_variance_moves_alone(n, d):
    """Against log N(y; X mean, X diag(v) X' + noise I), written out."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(n, d)), 2 * rng.normal(size=n)
    groups, v, mean = np.r_[np.arange(d - 1), -1], rng.uniform(0.2, 3.0, d), rng.normal(size=d)
    family = WeightVariances(X, groups, v, mean)
    sol = infer(Gaussian(0.7), family.at(family.theta), y, tol=1e-14)
    values = np.array([-9.0, -1.0, 0.3, 6.0])
    found = family.along(sol, family.theta, values)
    for g in range(d - 1):
        for j, value in enumerate(values):
            moved = np.where(groups == g, np.exp(value), v)
            truth = log_evidence(X, y, moved, 0.7, mean) - log_evidence(X, y, v, 0.7, mean)
            assert found[g, j] == pytest.approx(truth, abs=1e-6)


def test_evidence_of_a_width_is_the_integral():
    """Two orthogonal features of Gaussian rows: the integral over both log variances, by brute force."""
    X = np.linalg.qr(np.random.default_rng(2).normal(size=(9, 2)))[0] * 3
    y = X @ [1.5, 0.1] + 0.5 * np.random.default_rng(3).normal(size=9)
    family = WeightVariances(X, [0, 1], 1.0)
    for width in (0.5, 2.0):
        found = learn(Gaussian(0.3), family.with_log_prior(Spread(width)), y, learn_likelihood=False)
        level = found.theta.mean()

        def joint(s, t, width=width, level=level):
            density = norm.pdf([s, t], level, width).prod()
            return density * np.exp(log_evidence(X, y, np.exp([s, t]), 0.3, np.zeros(2)))

        span = (level - 7 * width, level + 7 * width)
        total = dblquad(joint, *span, *span, epsrel=1e-6)[0]
        assert width_evidence(family, found, width) == pytest.approx(np.log(total), abs=1e-3)


def test_a_narrow_width_is_ridge():
    X, y, *_ = labels(120, 8, 2, 1.0, 0)
    ridge = BayesianLogisticRegression().fit(X, y)
    family = WeightVariances(X, np.arange(8), np.linspace(0.5, 2.0, 8))
    shared = learn(ridge.likelihood_, family.shared(), y)
    narrow = learn_relevance(ridge.likelihood_, family, y, widths=(1e-3,))
    assert narrow.converged
    assert narrow.solution.elbo == pytest.approx(shared.solution.elbo, abs=1e-4)
    np.testing.assert_allclose(narrow.theta, shared.theta[0], atol=1e-3)
    every = learn_relevance(ridge.likelihood_, family, y)
    assert every.evidence[every.width] == max(every.evidence.values())
    assert every.n_newton > every.solution.n_iter
