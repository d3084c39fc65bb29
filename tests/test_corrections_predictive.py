"""y under corrected marginals: against brute-force integrals over both latents, and against draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import nbinom, poisson

import fenchel
from fenchel.hyperparameters import WeightVariances
from fenchel.likelihoods import BernoulliLogit, Gamma, Gaussian, NegativeBinomial, Ordinal, Poisson
from fenchel.priors import DenseCovariance, Features

K = np.array([[2.0, 1.2], [1.2, 2.5]])


def brute(log_density, K=K, reach=12.0, n=801):
    """Two etas on a grid, and the weights of the posterior there."""
    side = np.linspace(-reach, reach, n)
    a, b = np.meshgrid(side, side, indexing="ij")
    P = np.linalg.inv(K)
    log_p = -0.5 * (P[0, 0] * a * a + 2 * P[0, 1] * a * b + P[1, 1] * b * b) + log_density(0, a) + log_density(1, b)
    w = np.exp(log_p - log_p.max())
    return side, (w / w.sum()).sum(axis=1), (w / w.sum()).sum(axis=0)


def test_counts_against_brute_force():
    y = np.array([0.0, 4.0])
    side, *weights = brute(lambda i, eta: y[i] * eta - np.exp(eta))
    found = fenchel.infer(Poisson(), DenseCovariance(K), y).corrected().predictive()
    mean = np.array([w @ np.exp(side) for w in weights])
    np.testing.assert_allclose(found.mean, mean, rtol=1e-4)
    second = np.array([w @ (np.exp(2 * side) + np.exp(side)) for w in weights])
    np.testing.assert_allclose(found.variance, second - mean**2, rtol=1e-4)
    below = np.array([w @ poisson.cdf(2, np.exp(side)) for w in weights])
    np.testing.assert_allclose(found.cdf(2.0), below, atol=1e-5)
    density = np.array([w @ poisson.pmf(3, np.exp(side)) for w in weights])
    np.testing.assert_allclose(found.log_density(np.array([3.0, 3.0])), np.log(density), atol=1e-4)
    for level in (0.1, 0.5, 0.975):
        k = found.quantile(level)
        assert (found.cdf(k) >= level).all()
        assert (np.where(k > 0, found.cdf(np.maximum(k - 1, 0)), 0.0) < level).all()
    assert found.quantile([0.1, 0.9]).shape == (2, 2)


def test_draws_say_the_same():
    y = np.array([0.0, 4.0])
    sol = fenchel.infer(NegativeBinomial(2.0, bound="log-sum"), DenseCovariance(K), y)
    one, two = sol.corrected().predictive(), sol.importance(8192).predictive()
    np.testing.assert_allclose(two.mean, one.mean, rtol=0.02)
    np.testing.assert_allclose(two.cdf(1.0), one.cdf(1.0), atol=0.01)
    side, first, _ = brute(lambda i, eta: nbinom.logpmf(y[i], 2.0, 2.0 / (2.0 + np.exp(eta))))
    np.testing.assert_allclose(one.mean[0], first @ np.exp(side), rtol=1e-3)


def test_labels_and_levels():
    y = np.array([1.0, 1.0])
    side, first, _ = brute(lambda i, eta: -np.logaddexp(0, -eta))
    found = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), y).corrected().predictive()
    np.testing.assert_allclose(found.mean[0], first @ (1 / (1 + np.exp(-side))), atol=1e-5)
    levels = (
        fenchel.infer(Ordinal([-1.0, 1.0], bound="log-sum"), DenseCovariance(K), np.array([2, 0]))
        .corrected()
        .predictive()
    )
    assert levels.probabilities.shape == (2, 3)
    np.testing.assert_allclose(levels.probabilities.sum(axis=1), 1.0)
    total = np.cumsum(levels.probabilities, axis=1)
    assert levels.quantile(0.8).tolist() == (total < 0.8).sum(axis=1).tolist()
    sig = lambda x: 1 / (1 + np.exp(-x))
    each = lambda eta: [sig(-1 - eta), sig(1 - eta) - sig(-1 - eta), 1 - sig(1 - eta)]
    side, first, _ = brute(lambda i, eta: np.log(np.maximum(each(eta)[2 - 2 * i], 1e-300)))
    np.testing.assert_allclose(levels.probabilities[0], [first @ p for p in each(side)], atol=1e-3)


@pytest.mark.parametrize("likelihood", [Gaussian(0.5), Gamma(2.0)], ids=repr)
def test_new_rows_and_real_quantiles(likelihood):
    y = np.array([0.5, 3.0])
    found = fenchel.infer(likelihood, DenseCovariance(K), y).corrected()
    there = found.at(cross=np.array([[1.0, 0.5]]), variance=np.array([2.0])).predictive(likelihood)
    x = there.quantile([0.025, 0.5, 0.975])
    for level, place in zip((0.025, 0.5, 0.975), x[0], strict=True):
        assert there.cdf(place)[0] == pytest.approx(level, abs=1e-6)
    assert x[0, 0] < there.mean[0] < x[0, 2]


def test_new_rows_of_a_family_and_their_extra_variance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    family, y = WeightVariances(X, variance=4.0), (rng.random(12) < 0.5).astype(float)
    found = fenchel.infer(BernoulliLogit("exact"), family.at(family.theta), y).corrected()
    there = found.at(family.new_rows(family.theta, X))
    np.testing.assert_allclose(there.mean, found.at(design=X).mean)
    more = found.at(design=X, extra_variance=2.0)
    np.testing.assert_allclose(
        more.variance, there.variance + 2.0, rtol=0.02
    )  # pairs alone: not the convolution itself
    np.testing.assert_allclose(more.mean, there.mean, atol=0.03)


def test_conjugate_predictions_are_the_gaussian_ones():
    y = np.array([0.5, 3.0])
    sol = fenchel.infer(Gaussian(0.5), DenseCovariance(K), y)
    found, h, rho = sol.corrected().predictive(), sol.posterior.mean, sol.posterior.variance
    np.testing.assert_allclose(found.mean, h, atol=1e-9)
    np.testing.assert_allclose(found.variance, rho + 0.5, rtol=1e-9)
    np.testing.assert_allclose(found.log_density(y), Gaussian(0.5).predictive_log_density(y, h, rho), atol=1e-9)


def test_marginals_that_pairs_do_not_carry_are_not_said_to_be_trusted():
    x = np.linspace(-1, 1, 40)
    bases = np.stack([np.cos(k * np.pi * (x + 1.0) / 2.0) for k in range(6)], axis=1)
    zeros = fenchel.infer(Poisson(), Features(bases, 10.0), np.zeros(40)).corrected()
    assert zeros.trusted  # the evidence is right to a quarter of a nat, the sds are not
    assert not zeros.marginals_trusted
    assert "importance()" in zeros.status
    counts = np.random.default_rng(0).poisson(np.exp(0.5 * x)).astype(float)
    plain = fenchel.infer(Poisson(), Features(np.c_[np.ones(40), x], 10.0), counts).corrected()
    assert plain.marginals_trusted
    assert "marginals" not in plain.status


def test_softmax_is_refused_with_a_sentence():
    from fenchel.likelihoods import MultinomialLogit

    found = fenchel.infer(MultinomialLogit(3, bound="log-sum"), DenseCovariance(K), np.array([0, 2])).corrected()
    with pytest.raises(ValueError, match="predictors an observation"):
        found.predictive()
