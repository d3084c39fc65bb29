"""The contract of a family: its evidence gradient against differences of refitted evidence, awkward rows included."""

import numpy as np
import pytest
from conftest import LIKELIHOOD_CASES, concrete, difference

import fenchel
import fenchel.hyperparameters
from fenchel.hyperparameters import Family
from fenchel.likelihoods import StochasticVolatility

FAMILIES = concrete(fenchel.hyperparameters, Family)


@pytest.mark.parametrize("cls", FAMILIES)
@pytest.mark.parametrize(("likelihood", "y"), LIKELIHOOD_CASES)
def test_evidence_gradient(cls, likelihood, y):
    family = cls.example(np.random.default_rng(0), len(y))
    y = y.copy()
    y[1] = np.nan
    if isinstance(likelihood, StochasticVolatility):
        y[[2, 5]] = 0.0

    def fit(theta):
        return fenchel.infer(likelihood, family.at(theta), y, tol=1e-18, max_iter=50)

    theta = family.theta
    gradient = family.gradient(fit(theta), theta)
    numeric = difference(lambda t: fit(t).elbo, theta, step=1e-4)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)
    assert family.bounds.shape == (theta.size, 2)
    assert len(family.names) == theta.size
    value, slope = family.log_prior(theta)
    assert np.isfinite(value)
    assert slope.shape == theta.shape


def test_gradient_in_the_mean():
    K = np.exp(-0.5 * np.subtract.outer(np.arange(8), np.arange(8)) ** 2)
    y = np.array([1.0, 0, 2, 3, 1, 0, np.nan, 4])

    def fit(mean):
        return fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(K, mean=mean), y, tol=1e-18, max_iter=50)

    mean = 0.1 * np.arange(8.0)
    numeric = difference(lambda m: fit(m).elbo, mean, step=1e-4)
    np.testing.assert_allclose(fit(mean).posterior.gradient_mean()[0], numeric, atol=1e-6)
