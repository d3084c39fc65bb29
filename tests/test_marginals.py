"""What every posterior answers: quantiles, probabilities and densities, against scipy's normal distribution."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import fenchel
from fenchel.likelihoods import BernoulliLogit, MultinomialLogit, Poisson
from fenchel.marginals import Answers, Marginals, NormalMarginals
from fenchel.priors import DenseCovariance, Features

LEVELS = [0.001, 0.3, 0.5, 0.975]


def same_as_scipy(marginals, mean, variance):
    law = norm(mean, np.sqrt(variance))
    np.testing.assert_allclose(marginals.quantile(0.1), law.ppf(0.1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        marginals.quantile(LEVELS), np.stack([law.ppf(q) for q in LEVELS], axis=-1), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(marginals.interval(0.9), np.stack(law.interval(0.9), axis=-1), rtol=1e-12, atol=1e-12)
    for x in (0.3, mean + 0.7 * np.sqrt(variance)):
        np.testing.assert_allclose(marginals.cdf(x), law.cdf(x), rtol=1e-10, atol=1e-300)
        np.testing.assert_allclose(marginals.density(x), law.pdf(x), rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(marginals.sd, np.sqrt(variance))
    assert not np.asarray(marginals.skewness).any()
    assert isinstance(marginals, Marginals)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(1e-8, 1e8)), min_size=1, max_size=5))
def test_normal_marginals(pairs):
    mean, variance = np.array(pairs).T
    same_as_scipy(NormalMarginals(mean, variance), mean, variance)


def test_of_eta_of_the_latents_and_of_new_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    sol = fenchel.infer(Poisson(), Features(X, 2.0), rng.poisson(np.exp(X[:, 0])))
    post = pickle.loads(pickle.dumps(sol.posterior))
    assert isinstance(post, Answers)
    same_as_scipy(post, post.mean, post.variance)
    same_as_scipy(post.latents(), post.latent_mean, post.latent_variance)
    same_as_scipy(post.at(design=X[:3] + 1.0), *post.predict(design=X[:3] + 1.0))


def test_many_places_of_every_unknown():
    rng = np.random.default_rng(0)
    sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(np.eye(4) + 1.0), (rng.random(4) < 0.5).astype(float))
    places = np.linspace(-2.0, 2.0, 5)
    for marginals in (sol.posterior, sol.corrected(), sol.importance(512)):
        each = marginals.density(places[None, :])
        assert each.shape == (4, 5)
        np.testing.assert_allclose(each[:, 2], marginals.density(0.0))
        np.testing.assert_allclose(marginals.cdf(np.tile(places, (4, 1)))[:, 4], marginals.cdf(2.0))
        with pytest.raises(ValueError, match=r"x\[None, :\]"):
            marginals.cdf(places)


def test_of_several_predictors():
    sol = fenchel.infer(MultinomialLogit(3, bound="log-sum"), DenseCovariance(np.eye(4)), [0, 1, 2, 2])
    assert sol.posterior.quantile([0.25, 0.75]).shape == (4, 2, 2)
    same_as_scipy(sol.posterior, sol.posterior.mean, sol.posterior.variance)


def test_an_unknown_without_variance_is_a_step():
    known = NormalMarginals(np.array([1.0, 1.0]), np.array([0.0, 4.0]))
    np.testing.assert_array_equal(known.cdf(1.0), [1.0, 0.5])
    np.testing.assert_array_equal(known.cdf(0.0)[:1], [0.0])
    np.testing.assert_array_equal(known.quantile(0.9)[:1], [1.0])
    np.testing.assert_array_equal([known.density(1.0)[0], known.density(2.0)[0]], [np.inf, 0.0])


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, [0.5, 2.0], np.nan, [[0.5]]])
def test_levels_that_are_none(q):
    with pytest.raises(ValueError, match="probabilities strictly between 0 and 1"):
        NormalMarginals(np.zeros(2), np.ones(2)).quantile(q)
