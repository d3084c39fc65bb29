"""Fits without a factor beside fits with one: means, variances, evidence, hyperparameters, and what intervals cover."""

import numpy as np
import pytest
import scipy.sparse as sp

import fenchel
from fenchel import gmrf
from fenchel.checks import Refusal
from fenchel.hyperparameters import learn as learn_directly
from fenchel.hyperparameters.evidence import Evidence
from fenchel.iterative import EstimatedInterval, learn
from fenchel.iterative import layout as layouts
from fenchel.likelihoods import BernoulliLogit, Binomial, Gaussian, Poisson, StudentT

N, LEVELS = 2400, (160, 120)


def crossed(seed=0):
    rng = np.random.default_rng(seed)
    a, b, x = rng.integers(0, LEVELS[0], N), rng.integers(0, LEVELS[1], N), rng.normal(size=N)
    eta = 0.2 + 0.4 * x + 0.6 * rng.normal(size=LEVELS[0])[a] + 0.8 * rng.normal(size=LEVELS[1])[b]
    family = gmrf.stack([(gmrf.iid(LEVELS[0], precision=2.0), a), (gmrf.iid(LEVELS[1], precision=1.5), b)], x[:, None])
    return family, eta, rng


def targets(word, eta, rng):
    p = 1.0 / (1.0 + np.exp(-eta))
    return {
        "gaussian": lambda: (Gaussian(1.5), eta + rng.normal(size=eta.size)),
        "poisson": lambda: (Poisson(), rng.poisson(np.exp(eta)).astype(float)),
        "bernoulli": lambda: (BernoulliLogit(bound="exact"), (rng.random(eta.size) < p).astype(float)),
        "log-sum": lambda: (BernoulliLogit(bound="log-sum"), (rng.random(eta.size) < p).astype(float)),
        "tilted": lambda: (BernoulliLogit(bound="tilted"), (rng.random(eta.size) < p).astype(float)),
        "binomial": lambda: (Binomial(5, bound="exact"), rng.binomial(5, p).astype(float)),
    }[word]()


WORDS = ["gaussian", "poisson", "bernoulli", "log-sum", "tilted", "binomial"]


@pytest.mark.parametrize("word", WORDS)
def test_a_fit_at_given_hyperparameters_is_the_direct_one(word):
    family, eta, rng = crossed()
    likelihood, y = targets(word, eta, rng)
    y[:40] = np.nan
    direct = fenchel.infer(likelihood, family.at(), y, tol=1e-9)
    found = learn(likelihood, family, y, learn_theta=False, n_probes=32)
    assert found.converged
    posterior = direct.posterior
    np.testing.assert_allclose(found.latent_mean, posterior.latent_mean, atol=0.02)
    assert np.abs(found.latent_mean - posterior.latent_mean).mean() < 2e-3
    estimated = found.latent_estimates
    off = np.abs(estimated.value - posterior.latent_variance)
    assert (off <= 6.0 * estimated.se + 2e-3 * posterior.latent_variance).mean() > 0.98
    assert np.median(np.abs(found.variance / posterior.variance - 1.0)) < 0.02
    # the interval of the elbo has the direct one in it, and the certain limits hold the best
    assert found.elbo.lower - 1e-6 <= direct.elbo <= found.elbo_upper.upper + 1e-6
    low, high = found.elbo_upper.certain
    assert low <= direct.elbo_upper + 1e-8 <= high + 2e-8
    assert found.gap.lower <= found.gap.estimate <= found.gap.upper
    assert found.gap.upper < 1e-4 * abs(direct.elbo)
    # what the fit really misses: its own elbo, computed with dense matrices
    missing = direct.elbo_upper - exact_elbo(found, likelihood, y)
    assert -1e-6 <= missing <= found.gap.upper + 1e-6


def exact_elbo(found, likelihood, y):
    """P of the q found, its precision inverted as a dense matrix."""
    task, system = found.task, found.state.system
    A = task.layout.A.toarray()[task.keep]
    Q = task.family.build(found.theta[: task.family.theta.size])[0].toarray()
    P = Q + (A.T * system.lam) @ A
    rho = np.einsum("nl,lk,nk->n", A, np.linalg.inv(P), A)
    m = found.latent_mean
    f = task.loss(likelihood, task.data(likelihood), task.offset + A @ m, rho).total
    dets = np.linalg.slogdet(P)[1] - np.linalg.slogdet(Q)[1]
    return -0.5 * (dets - system.lam @ rho + m @ Q @ m) - f


@pytest.mark.parametrize("word", ["gaussian", "poisson", "bernoulli"])
def test_hyperparameters_are_those_of_the_direct_engine(word):
    family, eta, rng = crossed(1)
    likelihood, y = targets(word, eta, rng)
    direct = learn_directly(likelihood, family, y)
    found = learn(likelihood, family, y, n_probes=32)
    assert found.converged
    error = np.sqrt(np.diag(found.theta_error))
    sd = np.sqrt(np.diag(found.theta_covariance))
    assert (np.abs(found.theta - direct.theta) <= 6.0 * error).all()
    assert (error < 0.1 * sd).all()
    H = np.zeros_like(found.theta_covariance)
    for i in range(H.shape[0]):  # the curvature by differences of the direct engine's exact slopes
        evidence = Evidence(likelihood, family, y, tol=1e-12)
        step = 0.02 * np.eye(H.shape[0])[i]
        H[i] = (evidence(direct.theta - step)[1] - evidence(direct.theta + step)[1]) / 0.04
    exact = np.linalg.inv((H + H.T) / 2)
    np.testing.assert_allclose(found.theta_covariance, exact, rtol=0.05, atol=0.05 * np.diag(exact).min())


def test_intervals_cover_over_seeds():
    """64 seeds: the elbo's interval, the slope's error and the latents' variances hold as often as they say."""
    family, eta, rng = crossed(2)
    likelihood, y = targets("gaussian", eta, rng)
    direct = fenchel.infer(likelihood, family.at(), y)
    inside, errors, latents = [], [], []
    for seed in range(64):
        found = learn(likelihood, family, y, learn_theta=False, n_probes=16, random_state=seed, level=0.9)
        inside.append(found.elbo.lower <= direct.elbo <= found.elbo.upper)
        estimated = found.latent_estimates
        unsolved = estimated.se > 0.0
        off = (estimated.value - direct.posterior.latent_variance)[unsolved] / estimated.se[unsolved]
        latents.append(np.mean(np.abs(off) < 2.0))
        errors.append((found.elbo.estimate - direct.elbo) / found.elbo.half_width)
        assert found.elbo_upper.certain[0] <= direct.elbo <= found.elbo_upper.certain[1]
    assert 0.75 <= np.mean(inside) <= 1.0
    assert np.mean(latents) > 0.88
    assert abs(np.mean(errors)) < 0.4  # unbiased


@pytest.mark.parametrize("word", ["poisson", "bernoulli", "tilted"])
def test_what_is_missing_is_never_above_the_gap(word):
    family, eta, rng = crossed(6)
    likelihood, y = targets(word, eta, rng)
    best = fenchel.infer(likelihood, family.at(), y, tol=1e-11).elbo_upper
    for seed in range(8):
        found = learn(likelihood, family, y, learn_theta=False, n_probes=8, random_state=seed)
        own = exact_elbo(found, likelihood, y)
        assert 0.0 == found.gap.lower <= best - own + 1e-7 <= found.gap.upper + 2e-7
        assert found.elbo.lower <= own <= found.elbo_upper.upper


def test_one_seed_gives_one_answer():
    family, eta, rng = crossed(3)
    likelihood, y = targets("poisson", eta, rng)
    first, again, other = (learn(likelihood, family, y, n_probes=8, random_state=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.theta, again.theta)
    assert first.gap == again.gap
    assert (first.theta != other.theta).any()
    assert np.abs(first.theta - other.theta).max() < 0.02


def test_where_nothing_is_left_to_probes_everything_is_exact():
    rng = np.random.default_rng(4)
    a, x = rng.integers(0, 300, 1500), rng.normal(size=1500)
    family = gmrf.stack([(gmrf.iid(300), a)], x[:, None])
    y = rng.poisson(np.exp(0.3 * x + 0.5 * rng.normal(size=300)[a])).astype(float)
    found, direct = learn(Poisson(), family, y), learn_directly(Poisson(), family, y)
    np.testing.assert_allclose(found.theta, direct.theta, atol=2e-3)
    np.testing.assert_allclose(found.latent_variance, direct.solution.posterior.latent_variance, rtol=1e-3)
    assert found.elbo.estimate == pytest.approx(direct.solution.elbo, abs=1e-3)
    assert found.elbo_upper.certain[1] - found.elbo_upper.certain[0] < 1e-3


def test_new_rows_and_draws(monkeypatch):
    family, eta, rng = crossed(5)
    likelihood, y = targets("poisson", eta, rng)
    direct = fenchel.infer(likelihood, family.at(), y)
    found = learn(likelihood, family, y, learn_theta=False, n_probes=64)
    design = sp.random_array((300, family.n_latents), density=0.02, rng=rng, format="csr")
    few, exact = found.at(design=design[:60], offset=1.0), direct.posterior.at(design=design, offset=1.0)
    np.testing.assert_allclose(few.mean, exact.mean[:60], atol=0.02)
    np.testing.assert_allclose(few.variance, exact.variance[:60], rtol=0.02)
    many = found.estimates(design)
    assert (np.abs(many.value - exact.variance) <= 6.0 * many.se + 0.02 * exact.variance).mean() > 0.98
    draws = found.sample_latents(4000, 0)
    np.testing.assert_allclose(draws.var(axis=0), direct.posterior.latent_variance, rtol=0.15)
    np.testing.assert_allclose(draws.mean(axis=0), direct.posterior.latent_mean, atol=0.06)


def test_what_cannot_be_fitted_is_refused():
    family, _, _ = crossed()
    y = np.zeros(N)
    with pytest.raises(Refusal, match=r"iterative engine: StudentT is not log-concave"):
        learn(StudentT(), family, y)
    with pytest.raises(Refusal, match=r"iterative engine: family is a MarkovField; expected a StackedField such as"):
        learn(Poisson(), gmrf.iid(N), y)
    with pytest.raises(Refusal, match=r"n_probes = 10; expected a multiple of 4"):
        learn(Poisson(), family, y, n_probes=10)
    with pytest.raises(Refusal, match=r"no row is observed"):
        learn(Poisson(), family, np.full(N, np.nan))
    with pytest.raises(Refusal, match=r"theta has shape \(3,\); expected 2 finite numbers"):
        learn(Poisson(), family, y, theta=[0.0, 0.0, 0.0])


def test_an_interval_is_no_number():
    gap = EstimatedInterval(0.2, 0.1, 0.4, 0.99, (0.0, 5.0), "gap")
    for use in (float, lambda g: g + 1.0, lambda g: g < 1.0, np.float64):
        with pytest.raises((Refusal, TypeError)):
            use(gap)
    assert f"{gap:.1f}" == "[0.1, 0.4]"
    assert 0.3 in gap
    assert 0.5 not in gap
    assert layouts.SMALL == 100
