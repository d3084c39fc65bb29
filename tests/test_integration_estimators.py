"""Estimators with their hyperparameters integrated out, against the mixture written out and against draws."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, Matern

from fenchel import FormulaRegressor
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessRegressor


def test_a_classifier_averages_over_its_kernels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.where(rng.random(60) < expit(2 * np.sin(2 * X[:, 0])), "b", "a")
    Z = np.array([[0.5, 0.0], [-1.0, 2.0], [6.0, 6.0]])
    plain = GaussianProcessClassifier(1.0 * RBF(1.0)).fit(X, y)
    model = clone(plain).set_params(integrate=True).fit(X, y)
    found = model.integrated_
    assert plain.integrated_ is None
    assert model.converged_
    assert found.evidence == "corrected"
    p = np.zeros(3)
    for w, theta, solution in zip(found.weights, found.thetas, found.solutions, strict=True):
        there = solution.importance(8192).at(model._latent.new_rows(theta, Z))
        p += w * there.predictive(solution.likelihood).mean
    assert model.predict_proba(Z)[:, 1] == pytest.approx(p, abs=0.005)
    assert np.abs(model.predict_proba(Z) - plain.predict_proba(Z)).max() > 0.001
    assert model.predict_quantiles(Z, [0.1, 0.9]).shape == (3, 2)
    assert (model.predict(X) == y).mean() > 0.7
    assert (model.sample_y(Z, 4000) == "b").mean(axis=1) == pytest.approx(p, abs=0.03)
    assert model.score(X, y) < 0.0


def test_several_classes():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(45, 1))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=45), [-0.5, 0.5])
    model = GaussianProcessClassifier(1.0 * RBF(1.0), integrate="ccd").fit(X, y)
    p = model.predict_proba(X)
    assert p.sum(axis=1) == pytest.approx(np.ones(45))
    assert (model.predict(X) == y).mean() > 0.7


def test_a_regressor_and_its_noise():
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0, 6, 40))[:, None]
    y = np.sin(x[:, 0]) + 0.3 * rng.normal(size=40)
    model = GaussianProcessRegressor(1.0 * RBF(1.0), integrate=True).fit(x, y)
    mean, std = model.predict(x, return_std=True)
    draws = model.sample_y(x, 4000, random_state=0)
    assert np.abs(draws.mean(axis=1) - mean).max() < 0.05
    assert draws.std(axis=1) == pytest.approx(std, rel=0.1)
    q = model.predict_quantiles(x, [0.05, 0.95])
    assert np.abs(np.quantile(draws, 0.95, axis=1) - q[:, 1]).max() < 0.1
    assert model.integrated_.theta.sd.shape == (3,)


def test_groups_have_wider_intervals():
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(10), 3)
    X = pd.DataFrame({"g": g})
    y = rng.poisson(np.exp(0.5 + 0.5 * rng.normal(size=10)[g]))
    plain = FormulaRegressor("y ~ (1|g)", "poisson").fit(X, y).fit_
    model = FormulaRegressor("y ~ (1|g)", "poisson", integrate="auto").fit(X, y)
    fit = model.fit_
    assert {"mean", "sd", "lower", "upper"} <= set(fit.hyperparameters.columns)
    assert (fit.hyperparameters["lower"] < fit.hyperparameters["mean"]).all()
    assert list(fit.effects["g"].columns) == list(plain.effects["g"].columns)
    draws = fit.integrated.sample_latents(4000, 0)[:, :10]
    assert np.abs(fit.effects["g"]["mean"] - draws.mean(axis=0)).max() < 0.03
    assert fit.coefficients.loc["Intercept", "sd"] > 0.9 * plain.coefficients.loc["Intercept", "sd"]
    drawn = fit.sample(X[:3], 4000, 0, kind="outcome")
    assert model.predict(X[:3]) == pytest.approx(drawn.mean(axis=0), rel=0.06)
    with pytest.raises(ValueError, match="integrate = 'some' is not known"):
        FormulaRegressor("y ~ (1|g)", "poisson", integrate="some").fit(X, y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("approximation", [None, "neighbours"])
def test_the_prior_of_theta_stays_where_learning_begins_again(approximation):
    """With noise held at several levels, or with neighbours that are chosen again."""
    rng = np.random.default_rng(0)
    if approximation is None:
        X, kernel = np.linspace(0.0, 6.0, 40)[:, None], 30.0 * RBF(0.1)
        y = np.sin(2.0 * X[:, 0])
    else:
        X, kernel = rng.normal(size=(40, 2)), 1.0 * Matern([1.0, 1.0], nu=1.5)
        y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=40)
    model = GaussianProcessRegressor(kernel, approximation=approximation, n_neighbors=39, integrate=True).fit(X, y)
    slope, n = model.log_marginal_likelihood(model.theta_, eval_gradient=True)[1], kernel.n_dims
    np.testing.assert_allclose(slope[:n], (model.theta_[:n] - kernel.theta) / 4.0, atol=2e-3)


@pytest.mark.filterwarnings("ignore")
def test_quantiles_of_several_classes_are_over_theta():
    """By draws of the mixture: a point of the lattice, and then its eta."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 1))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=30), [-0.5, 0.5])
    model = GaussianProcessClassifier(integrate=True).fit(X, y)
    parts, levels = model._predictive(X[:2]).parts, [0.1, 0.5, 0.9]
    assert len(parts) > 3
    of = rng.choice(len(parts), size=40_000, p=[part.weight for part in parts])
    eta = np.stack([part.h + np.sqrt(part.rho) * rng.normal(size=part.h.shape) for part in (parts[k] for k in of)])
    p = np.exp(eta) / np.exp(eta).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(
        model.predict_quantiles(X[:2], levels), np.moveaxis(np.quantile(p, levels, axis=0), 0, -1), atol=0.03
    )
