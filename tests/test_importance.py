"""Importance sampling from q against brute-force quadrature, conjugate models and long MCMC."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import LIKELIHOOD_CASES, reads_repository
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import genpareto, multivariate_normal, norm

import fenchel
import fenchel.corrections.importance as pareto
from fenchel.corrections import draws as drawing
from fenchel.corrections.importance import importance
from fenchel.likelihoods import (
    BernoulliLogit,
    Gaussian,
    MultinomialLogit,
    Poisson,
    StochasticVolatility,
)
from fenchel.marginals import Answers
from fenchel.priors import DenseCovariance, Features, SparsePrecision
from fenchel.priors.batched import BatchedFeatures

K3 = np.array([[1.5, 0.9, 0.3], [0.9, 1.2, 0.6], [0.3, 0.6, 2.0]])
MT3 = np.array([0.2, -0.3, 0.1])


class Grid:
    """p(eta | y) on an even grid around q, for few predictors: the trapezium is spectrally accurate there."""

    def __init__(self, sol, K, mt, points=65, reach=8.0, weights=1.0):
        d, lik = K.shape[0], sol.likelihood
        mean, V = sol.posterior.mean.ravel(), np.atleast_2d(joint_covariance(sol))
        axis = np.linspace(-reach, reach, points)
        x = np.stack(np.meshgrid(*[axis] * d, indexing="ij")).reshape(d, -1)
        root = np.linalg.cholesky(1.3 * V)  # wider than q: the posterior may be
        self.eta = mean[:, None] + root @ x
        rows = lik.prepare(sol.y)
        if lik.n_predictors > 1:
            log_p = lik.log_density(self.eta.reshape(len(sol.y), lik.n_predictors, -1), rows)
        else:
            log_p = lik.log_density(self.eta, rows)
        log_p = np.where(
            (rows["weight"] > 0)[:, None], np.broadcast_to(np.asarray(weights), (len(sol.y),))[:, None] * log_p, 0
        )
        log_p = log_p.sum(axis=0) + multivariate_normal(mt, K).logpdf(self.eta.T)
        volume = (axis[1] - axis[0]) ** d * np.prod(np.diag(root))
        top = log_p.max()
        self.p = np.exp(log_p - top)
        self.log_evidence = top + np.log(self.p.sum() * volume)
        self.p /= self.p.sum()

    def moments(self):
        mean = self.eta @ self.p
        centred = self.eta - mean[:, None]
        variance = centred**2 @ self.p
        return mean, variance, centred**3 @ self.p / variance**1.5


def joint_covariance(sol):
    V = sol.posterior.covariance()
    if V.ndim == 2:
        return V
    C, n, _ = V.shape
    out = np.zeros((n, C, n, C))
    for c in range(C):
        out[:, c, :, c] = V[c]
    return out.reshape(n * C, n * C)


def agree(found, truth, tolerance=2e-4):
    """Within what the draws' own standard error allows."""
    assert abs(found.log_evidence - truth) < 5.0 * found.log_evidence_se + tolerance


SCALAR = [case for case in LIKELIHOOD_CASES if case.values[0].n_predictors == 1]


@pytest.mark.parametrize(("likelihood", "y"), SCALAR)
def test_three_observations_of_every_likelihood(likelihood, y):
    likelihood = likelihood.take(np.arange(3))
    sol = fenchel.infer(likelihood, DenseCovariance(K3, mean=MT3), y[:3])
    found, truth = sol.importance(16384), Grid(sol, K3, MT3)
    loose = likelihood.bound not in ("exact", "none")  # and may leave q too narrow
    agree(found, truth.log_evidence, 0.3 if loose and not found.trusted else 1e-3)
    if not found.trusted:
        return
    mean, variance, skewness = truth.moments()
    rate = 1.0 / np.sqrt(found.effective_draws)
    np.testing.assert_allclose(found.mean, mean, atol=5 * rate * np.sqrt(variance).max())
    np.testing.assert_allclose(np.log(found.sd), np.log(variance) / 2, atol=5 * rate)
    np.testing.assert_allclose(found.skewness, skewness, atol=0.3)


def test_weights_of_observations_count():
    weights = np.array([2.0, 0.5, 0.0])
    sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K3, mean=MT3), [1, 0, 1], weights=weights)
    agree(sol.importance(), Grid(sol, K3, MT3, weights=weights).log_evidence)


def test_quantiles_and_densities_of_a_skewed_marginal():
    K, mt = 9.0 * K3[:2, :2], MT3[:2]
    sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K, mean=mt), [1, 1], tol=1e-12)
    found, truth = sol.importance(2**15), Grid(sol, K, mt, 401)
    agree(found, truth.log_evidence)
    np.testing.assert_allclose(found.skewness, truth.moments()[2], atol=0.1)
    for i in range(2):
        order = np.argsort(truth.eta[i])
        below = np.cumsum(truth.p[order])
        for q in (0.025, 0.3, 0.5, 0.975):
            exact = truth.eta[i][order][np.searchsorted(below, q)]
            sd = found.sd[i]
            assert abs(found.quantile(q)[i] - exact) < 0.03 * sd
            assert abs(found.cdf(exact)[i] - q) < 0.01
            near = norm.pdf(exact, truth.eta[i], 0.1 * sd) @ truth.p  # smoothed by little: the grid is finer
            assert found.density(exact)[i] == pytest.approx(near, rel=0.06)
    np.testing.assert_allclose(found.interval(0.95), found.quantile([0.025, 0.975]), rtol=1e-12)
    x = np.linspace(-15.0, 40.0, 200)
    near_one = np.trapezoid([found.density(v)[0] for v in x], x)
    assert near_one == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("reference", ["last", None])
def test_a_softmax(reference):
    likelihood = MultinomialLogit(3, reference=reference, bound="tilted")
    C = likelihood.n_predictors
    K = K3[: 4 // C, : 4 // C] if reference is None else K3[:2, :2]
    n = K.shape[0]
    y = np.array([0.0, 2.0])[:n]
    sol = fenchel.infer(likelihood, DenseCovariance(K), y)
    full = np.kron(K, np.eye(C))  # observation by observation
    truth = Grid(sol, full, np.zeros(n * C), 33 if n * C == 4 else 65)
    found = sol.importance(8192)
    agree(found, truth.log_evidence, 1e-3)
    mean, variance, _ = truth.moments()
    assert found.mean.shape == (n, C)
    np.testing.assert_allclose(found.mean.ravel(), mean, atol=0.03)
    np.testing.assert_allclose(found.sd.ravel(), np.sqrt(variance), rtol=0.03)
    assert found.quantile([0.1, 0.9]).shape == (n, C, 2)
    assert found.sample(7, 0).shape == (7, n, C)
    assert found.sample_latents(7, 0).shape == (7, *sol.posterior.latent_mean.shape)


def test_a_softmax_with_correlated_predictors():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 5))
    K = A @ A.T / 4
    sol = fenchel.infer(MultinomialLogit(3, bound="log-sum"), DenseCovariance(K), [0, 2])
    agree(sol.importance(8192), Grid(sol, K, np.zeros(4), 33).log_evidence, 1e-3)


@given(
    st.sampled_from(["poisson", "bernoulli", "volatility"]),
    st.integers(0, 6),
    st.floats(-3.0, 3.0),
    st.floats(0.05, 25.0),
    st.integers(0, 2**32 - 1),
)
def test_one_observation_however_skewed(kind, count, mean, variance, seed):
    """Against an even grid of the prior itself; the prior's tails are in it."""
    likelihood, y = {
        "poisson": (Poisson(), float(count)),
        "bernoulli": (BernoulliLogit("exact"), float(count > 2)),
        "volatility": (StochasticVolatility(), count / 2.0),
    }[kind]
    sol = fenchel.infer(likelihood, DenseCovariance([[variance]], mean=mean), [y])
    x = np.linspace(-12.0, 12.0, 6001)
    eta = mean + np.sqrt(variance) * x
    with np.errstate(over="ignore"):
        log_p = likelihood.log_density(eta[None], likelihood.prepare([y]))[0] + norm.logpdf(x)
    p = np.exp(log_p - log_p.max())
    found = sol.importance(4096, seed)
    agree(found, log_p.max() + np.log(p.sum() * (x[1] - x[0])), 2e-3)
    p /= p.sum()
    sd = np.sqrt(p @ (eta - p @ eta) ** 2)
    assert abs(found.mean[0] - p @ eta) < 0.05 * sd
    assert abs(np.log(found.sd[0] / sd)) < 0.08
    below = np.cumsum(p)
    for q in (0.05, 0.5, 0.95):
        assert abs(found.quantile(q)[0] - eta[np.searchsorted(below, q)]) < 0.15 * sd


# -- a Gaussian likelihood: the weights do not vary, and everything is exact ---------------------------------
def walk(n):
    off = -np.ones(n - 1)
    return sp.diags_array([off, np.r_[1.0, 2 * np.ones(n - 2), 1.0], off], offsets=[-1, 0, 1], format="csc")


def conjugate_priors():
    """Priors of every kind with the mean (N,) and covariance (N, N) of eta written out."""
    rng = np.random.default_rng(2)
    n = 7
    wide, few = rng.normal(size=(n, 11)), rng.normal(size=(40, 3))
    A = rng.normal(size=(n, n))
    dense = A @ A.T
    chain = sp.csc_array(walk(n) + 0.3 * sp.eye_array(n))
    both = sp.block_diag([walk(n), sp.eye_array(1) * 0.1], format="csc")
    W = sp.hstack([sp.eye_array(n), np.ones((n, 1))], format="csr")
    held = np.linalg.pinv(walk(n).toarray())
    singular = wide[:, :3] @ wide[:, :3].T
    yield "dense", DenseCovariance(dense, mean=0.3), np.full(n, 0.3), dense
    yield "singular", DenseCovariance(singular), np.zeros(n), singular
    yield "features", Features(few, variance=2.0, offset=0.1), np.full(40, 0.1), 2.0 * few @ few.T
    yield "wide", Features(wide, variance=0.5, mean=0.2), 0.2 * wide.sum(axis=1), 0.5 * wide @ wide.T
    yield "sparse", SparsePrecision(chain), np.zeros(n), np.linalg.inv(chain.toarray())
    yield (
        "intrinsic",
        SparsePrecision(both, design=W, constraints=np.r_[np.ones(n), 0.0][None]),
        np.zeros(n),
        held + 10.0,
    )


@pytest.mark.parametrize(("prior", "mt", "S"), [pytest.param(*rest, id=name) for name, *rest in conjugate_priors()])
def test_conjugate(prior, mt, S):
    n, v = mt.size, 0.4
    y = np.random.default_rng(3).normal(size=n)
    sol = fenchel.infer(Gaussian(v), prior, y)
    found = sol.importance(64)
    exact = multivariate_normal(mt, S + v * np.eye(n)).logpdf(y)
    assert found.log_evidence == pytest.approx(exact, abs=1e-7)
    assert found.log_evidence_se < 1e-7
    assert found.trusted
    assert found.effective_draws > 0.6 * found.n_draws  # three draws in ten are of a wider q
    gain = np.linalg.solve(S + v * np.eye(n), S).T
    np.testing.assert_allclose(found.mean, mt + gain @ (y - mt), atol=1e-7)
    np.testing.assert_allclose(found.variance, np.diag(S - gain @ S), atol=1e-7)
    np.testing.assert_allclose(found.quantile(0.3), norm.ppf(0.3, found.mean, found.sd), atol=0.05)
    np.testing.assert_allclose(found.cdf(0.0), norm.cdf(0.0, found.mean, found.sd), atol=1e-6)
    np.testing.assert_allclose(found.density(0.0), norm.pdf(0.0, found.mean, found.sd), rtol=1e-6)
    z, q = found.latents(), sol.posterior
    np.testing.assert_allclose(z.mean, q.latent_mean, atol=1e-7)
    np.testing.assert_allclose(z.variance, q.latent_variance, atol=1e-7)


def test_an_extra_variance_is_integrated_out():
    c = np.array([0.5, 0.0, 1.0])
    sol = fenchel.infer(Poisson(), DenseCovariance(K3, mean=MT3, extra_variance=c), [4, 0, 2])
    whole = K3 + np.diag(c)
    found, truth = sol.importance(2**14), Grid(sol, whole, MT3)
    agree(found, truth.log_evidence, 1e-3)
    mean, variance, _ = truth.moments()
    np.testing.assert_allclose(found.mean, mean, atol=0.03)
    np.testing.assert_allclose(found.sd, np.sqrt(variance), rtol=0.03)
    np.testing.assert_allclose(found.sample(4000, 1).std(axis=0), np.sqrt(variance), rtol=0.1)
    np.testing.assert_allclose(found.quantile(0.5), found.sample(4000, 1).mean(axis=0), atol=0.15)


@pytest.mark.parametrize("prior", ["dense", "features", "sparse"])
def test_rows_without_curvature_and_rows_unobserved(prior):
    """A return of exactly 0 tells a line; NaN tells nothing."""
    y = np.array([0.0, 1.3, np.nan])
    made = {
        "dense": lambda: DenseCovariance(K3, mean=MT3),
        "features": lambda: Features(np.linalg.cholesky(K3), offset=MT3),
        "sparse": lambda: SparsePrecision(sp.csc_array(np.linalg.inv(K3)), mean=MT3),
    }[prior]()
    sol = fenchel.infer(StochasticVolatility(), made, y)
    found, truth = sol.importance(8192), Grid(sol, K3, MT3)
    agree(found, truth.log_evidence)
    mean, variance, _ = truth.moments()
    np.testing.assert_allclose(found.mean, mean, atol=0.02)
    np.testing.assert_allclose(found.sd, np.sqrt(variance), rtol=0.02)
    np.testing.assert_allclose(found.sample(20000, 0).mean(axis=0), mean, atol=0.06)
    np.testing.assert_allclose(
        np.cov(found.sample(20000, 0).T),
        (truth.eta - mean[:, None]) * truth.p @ (truth.eta - mean[:, None]).T,
        atol=0.1,
    )


def test_latents_and_new_rows_beyond_the_rows():
    """Two observations of four latents: z given eta is linear, so a grid of eta tells all of it."""
    rng = np.random.default_rng(4)
    W, new = rng.normal(size=(2, 4)), rng.normal(size=(3, 4))
    sol = fenchel.infer(BernoulliLogit("exact"), Features(W, 4.0), [1, 0])
    S = 4.0 * W @ W.T
    truth, found = Grid(sol, S, np.zeros(2), 201), sol.importance(8192)
    agree(found, truth.log_evidence)
    for rows, given_, marginals in (
        (np.eye(4), None, found.latents()),
        (new, {"design": new}, None),
        (new, {"cross": 4.0 * new, "variance": 4.0 * (new**2).sum(axis=1)}, None),
    ):
        answers = marginals if marginals is not None else found.at(**given_)
        gain = 4.0 * rows @ W.T @ np.linalg.inv(S)
        left = np.diag(4.0 * rows @ rows.T - gain @ S @ gain.T)
        eta = gain @ truth.eta
        mean = eta @ truth.p
        variance = (eta - mean[:, None]) ** 2 @ truth.p + left
        np.testing.assert_allclose(answers.mean, mean, atol=0.03)
        np.testing.assert_allclose(answers.variance, variance, rtol=0.03)
        below = np.array([norm.cdf(0.5, e, np.sqrt(v)) @ truth.p for e, v in zip(eta, left)])
        np.testing.assert_allclose(answers.cdf(0.5), below, atol=0.01)
        for i, level in enumerate(below):
            assert answers.quantile(float(level))[i] == pytest.approx(0.5, abs=0.1)
    z = found.sample_latents(20000, 1)
    np.testing.assert_allclose(z.mean(axis=0), found.latents().mean, atol=0.08)
    np.testing.assert_allclose(z.var(axis=0), found.latents().variance, rtol=0.05)
    np.testing.assert_allclose(found.sample(50, 3), found.sample_latents(50, 3) @ W.T, atol=1e-8)


def test_one_model_in_every_space():
    """A linear model as features, as a dense covariance and as a sparse precision."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 3))
    y = rng.poisson(np.exp(X[:, 0]))
    priors = [
        Features(X, 2.0),
        DenseCovariance(2.0 * X @ X.T),
        SparsePrecision(0.5 * sp.eye_array(3, format="csc"), design=sp.csr_array(X)),
    ]
    found = [fenchel.infer(Poisson(), prior, y, tol=1e-11).importance(8192) for prior in priors]
    for other in found[1:]:
        error = np.hypot(found[0].log_evidence_se, other.log_evidence_se)
        assert abs(found[0].log_evidence - other.log_evidence) < 5 * error + 1e-6
        np.testing.assert_allclose(found[0].sd, other.sd, rtol=0.01)
    new = rng.normal(size=(4, 3))
    at = [found[0].at(design=new, offset=0.2), found[2].at(design=new, offset=0.2)]
    at.append(found[2].at(cross=2.0 * new, variance=2.0 * (new**2).sum(axis=1), mean=0.2))
    at.append(found[0].at(cross=2.0 * new, variance=2.0 * (new**2).sum(axis=1), mean=0.2))
    at.append(found[1].at(cross=2.0 * new @ X.T, variance=2.0 * (new**2).sum(axis=1), mean=0.2))
    for other in at[1:]:
        np.testing.assert_allclose(at[0].mean, other.mean, atol=0.01)
        np.testing.assert_allclose(at[0].interval(0.9), other.interval(0.9), atol=0.05)


def test_draws_keep_to_the_constraints():
    n = 6
    sol = fenchel.infer(Poisson(), SparsePrecision(walk(n), constraints="sum-to-zero"), [3, 1, 0, 2, 5, 4])
    found = sol.importance(256)
    np.testing.assert_allclose(found.sample_latents(9, 0).sum(axis=1), 0.0, atol=1e-10)
    assert found.latents().mean.sum() == pytest.approx(0.0, abs=1e-9)


def test_a_prior_that_only_draws_eta():
    """Tables: every row has weights of its own, which is a block-diagonal covariance."""
    W, copies = np.array([[1.0, 0.2], [-0.4, 0.8], [0.3, 0.9]]), 3
    y = np.random.default_rng(1).poisson(1.0, 9)
    batched = fenchel.infer(Poisson(), BatchedFeatures(W, copies), y, tol=1e-11).importance(2**13)
    dense = fenchel.infer(Poisson(), DenseCovariance(np.kron(np.eye(copies), W @ W.T)), y, tol=1e-11).importance(2**13)
    error = np.hypot(batched.log_evidence_se, dense.log_evidence_se)
    assert abs(batched.log_evidence - dense.log_evidence) < 5 * error
    np.testing.assert_allclose(batched.sd, dense.sd, rtol=0.03)
    assert batched.sample(4, 0).shape == (4, 9)
    with pytest.raises(ValueError, match="has latents that draws of eta do not tell"):
        batched.latents()
    with pytest.raises(ValueError, match="a batch of small models has no such answer of its own"):
        batched.at(design=np.ones((1, 9)))


# -- long MCMC ---------------------------------------------------------------------------------------------
@reads_repository
def test_against_long_chains():
    """The coal disasters: accuracy_reference.py made the truth."""
    from fenchel.datasets import load_coal

    place = Path(__file__).parent.parent / "benchmarks"
    truth = json.loads((place / "accuracy_reference.json").read_text())["cases"]["Coal disasters"]
    stored = json.loads((place / "accuracy_quantiles.json").read_text())["cases"]["Coal disasters"]
    assert stored["checksum"] == truth["checksum"]
    coal = load_coal()
    K = 0.8 * np.exp(-0.5 * np.subtract.outer(coal.year, coal.year) ** 2 / 400.0) + 10.0
    sol = fenchel.infer(Poisson(), DenseCovariance(K), coal.count)
    found = sol.importance()
    assert abs(found.log_evidence - truth["log_evidence"]) < 4 * np.hypot(
        found.log_evidence_se, truth["log_evidence_se"]
    )
    sd, quantiles = np.array(truth["sd"]), np.array(stored["quantile"])
    assert np.abs(np.log(found.sd / sd)).mean() < 0.005
    ours, normal = (
        np.mean(np.abs(answers.quantile(stored["levels"]) - quantiles) / sd[:, None])
        for answers in (found, sol.posterior)
    )
    assert ours < 0.02 < 0.04 < normal


# -- the tail of the weights -------------------------------------------------------------------------------
@pytest.mark.parametrize("k", [-0.3, 0.2, 0.6, 1.0])
def test_the_fit_finds_the_shape_and_the_scale(k):
    x = np.sort(genpareto(k, scale=2.5).rvs(20000, random_state=0))
    shape, scale = pareto.pareto_fit(x)
    assert shape == pytest.approx(k, abs=0.03)
    assert scale == pytest.approx(2.5, rel=0.05)
    levels = np.array([0.1, 0.9])
    np.testing.assert_allclose(pareto.pareto_quantile(levels, k, 2.5), genpareto(k, scale=2.5).ppf(levels))


def test_quantiles_at_shape_zero():
    np.testing.assert_allclose(pareto.pareto_quantile(np.array([0.5]), 0.0, 2.0), [2.0 * np.log(2.0)])


@given(st.lists(st.floats(-30.0, 30.0), min_size=32, max_size=200), st.floats(-500.0, 500.0))
def test_smoothing_knows_no_units_and_no_order(values, shift):
    x = np.array(values)
    smooth, k = pareto.smoothed(x)
    moved, k_moved = pareto.smoothed(x[::-1] + shift)
    assert smooth.max() <= x.max()
    assert np.isfinite(smooth).all()
    assert (np.sort(moved) - shift) == pytest.approx(np.sort(smooth), abs=1e-6)
    assert k_moved == pytest.approx(k, abs=1e-6)


def test_too_few_weights_are_not_smoothed():
    x = np.arange(10.0)
    assert pareto.smoothed(x) == (pytest.approx(x), np.inf)


def test_a_poor_q_says_so():
    rng = np.random.default_rng(0)
    x = np.sort(rng.normal(size=40))
    K = 400.0 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    sol = fenchel.infer(BernoulliLogit("log-sum"), DenseCovariance(K + 1e-6 * np.eye(40)), (x > 0) * 1)
    found = sol.importance(512)
    assert not found.trusted
    assert found.k_hat > 0.7
    assert found.status.startswith("not reliable: k-hat is ")
    assert "NOT RELIABLE" in repr(found)
    assert sol.importance(512).log_evidence == found.log_evidence


# -- the object --------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def fit():
    return fenchel.infer(Poisson(), DenseCovariance(K3, mean=MT3), [4, 0, 2])


def test_what_it_answers(fit):
    found = fit.importance(100, rng=3)
    assert isinstance(found, Answers)
    assert found.n_draws == 128
    assert found.status.startswith("reliable: k-hat is ")
    assert "log_evidence" in repr(found)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.quantile([0.1, 0.5]), found.quantile([0.1, 0.5]))
    assert importance(fit, 100, np.random.default_rng(3)).log_evidence == found.log_evidence
    assert fit.importance(100, rng=4).log_evidence != found.log_evidence
    assert fit.importance(1).n_draws == 32


@pytest.mark.parametrize("tall", [True, False])
def test_arrays_of_another_library_give_the_same_draws(tall):
    import array_api_strict

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2) if tall else (4, 7))
    y, new = rng.poisson(1.0, X.shape[0]), rng.normal(size=(3, X.shape[1]))
    here, there = (
        fenchel.infer(Poisson(), Features(to(X)), y, tol=1e-12).importance(64)
        for to in (np.asarray, array_api_strict.asarray)
    )
    assert there.log_evidence == pytest.approx(here.log_evidence, abs=1e-10)
    np.testing.assert_allclose(there.quantile(0.2), here.quantile(0.2), atol=1e-8)
    np.testing.assert_allclose(there.latents().sd, here.latents().sd, atol=1e-8)
    np.testing.assert_allclose(there.at(design=new).sd, here.at(design=new).sd, atol=1e-8)
    np.testing.assert_allclose(there.sample_latents(3, 0), here.sample_latents(3, 0), atol=1e-8)


def test_the_standard_error_is_one(fit):
    truth = Grid(fit, K3, MT3).log_evidence
    each = [fit.importance(256, rng=seed) for seed in range(40)]
    z = np.array([(f.log_evidence - truth) / f.log_evidence_se for f in each])
    assert 0.6 < np.sqrt(np.mean(z**2)) < 1.6


def test_memory_is_bounded_and_the_answers_are_the_same(fit, monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 4))
    sol = fenchel.infer(Poisson(), Features(X, 0.1), np.random.default_rng(1).poisson(1.0, 300))
    whole = sol.importance(512)
    monkeypatch.setattr(drawing, "_HELD", 8 * 4 * 16)
    monkeypatch.setattr(drawing, "_CHUNK", 4000)
    parts = sol.importance(512)
    assert parts._draws.quasi
    assert not parts._draws.keeps
    assert parts._draws.step == 13
    monkeypatch.setattr(drawing, "_HELD", 8 * 512 * 50)
    assert parts.log_evidence == pytest.approx(whole.log_evidence, abs=1e-10)
    for name in ("mean", "sd", "skewness"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-10)
    np.testing.assert_allclose(parts.quantile([0.1, 0.5]), whole.quantile([0.1, 0.5]), atol=1e-10)
    np.testing.assert_allclose(parts.cdf(0.1), whole.cdf(0.1), atol=1e-10)
    np.testing.assert_allclose(parts.sample(5, 0), whole.sample(5, 0), atol=1e-10)
    monkeypatch.setattr(drawing, "_SOBOL_DIMENSIONS", 3)  # too many coordinates for Sobol's points: independent pairs
    pairs = sol.importance(512)
    assert not pairs._draws.quasi
    assert abs(pairs.log_evidence - whole.log_evidence) < 5 * np.hypot(pairs.log_evidence_se, whole.log_evidence_se)


def test_an_unknown_without_variance(fit):
    known = fit.importance(64).at(design=np.zeros((1, 3)), offset=2.0)
    assert (known.mean[0], known.sd[0], known.skewness[0], known.quantile(0.9)[0]) == (2.0, 0.0, 0.0, 2.0)
    assert (known.cdf(1.9)[0], known.cdf(2.0)[0]) == (0.0, 1.0)
    assert (known.density(1.9)[0], known.density(2.0)[0]) == (0.0, np.inf)


@pytest.mark.parametrize("draws", [0, -3, 2.5, "many", None])
def test_draws_that_are_none(fit, draws):
    with pytest.raises(ValueError, match=r"importance: draws = .*; expected an integer >= 1"):
        fit.importance(draws)


@pytest.mark.parametrize("rng", [-1, "seed", 0.5])
def test_a_generator_that_is_none(fit, rng):
    with pytest.raises(ValueError, match=r"importance: rng = .*; expected a numpy Generator or a seed >= 0"):
        fit.importance(64, rng)


def test_other_refusals(fit):
    found = fit.importance(64)
    with pytest.raises(ValueError, match=r"x has shape \(2,\); expected a number, shape \(3,\)"):
        found.cdf([0.0, 1.0])
    with pytest.raises(ValueError, match="probabilities strictly between 0 and 1"):
        found.quantile(1.0)
    with pytest.raises(ValueError, match=r"importance\.sample: size = -1"):
        found.sample(-1)
    from fenchel.paper.rivals import mean_field

    rival = mean_field(Poisson(), DenseCovariance(K3), [1, 2, 0])
    with pytest.raises(ValueError, match="is a Gaussian of another form"):
        rival.importance(64)
