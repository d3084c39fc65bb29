"""What comes out: against exact regression, refits, limits and brute-force integration; and the awkward data sets."""

import pickle

import numpy as np
import pytest
from conftest import LIKELIHOOD_CASES, priors_for
from scipy import integrate, stats

import fenchel
from fenchel.likelihoods import (
    BernoulliLogit,
    Binomial,
    Gaussian,
    MultinomialLogit,
    Ordinal,
    Poisson,
    StochasticVolatility,
)
from fenchel.priors import DenseCovariance, Features

TIGHT = 1e-18  # the error of a mean is the square root of the gap: run until rounding stops it
X = np.linspace(0.0, 4.0, 15)


def kernel(a, b, variance=1.5, length=0.8):
    return variance * np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / length**2)


def test_gaussian_is_exact_gp_regression():
    rng = np.random.default_rng(0)
    y, K, new = rng.normal(size=15), kernel(X, X), np.array([-1.0, 0.33, 5.0])
    noise = 0.1 + rng.random(15)
    for v in (0.3, noise):
        sol = fenchel.infer(Gaussian(v), DenseCovariance(K, mean=0.7), y)
        A = K + np.diag(np.broadcast_to(v, 15))
        evidence = stats.multivariate_normal.logpdf(y, np.full(15, 0.7), A)
        assert sol.elbo == pytest.approx(evidence, abs=1e-9)
        assert sol.n_iter <= 1
        np.testing.assert_allclose(sol.posterior.mean, 0.7 + K @ np.linalg.solve(A, y - 0.7), atol=1e-9)
        np.testing.assert_allclose(sol.posterior.covariance(), K - K @ np.linalg.solve(A, K), atol=1e-9)
        Ks = kernel(new, X)
        mean, variance = sol.posterior.predict(cross=Ks, variance=np.full(3, 1.5))
        np.testing.assert_allclose(mean, 0.7 + Ks @ np.linalg.solve(A, y - 0.7), atol=1e-9)
        np.testing.assert_allclose(variance, 1.5 - np.diag(Ks @ np.linalg.solve(A, Ks.T)), atol=1e-9)
        loo = sol.loo()
        precision = np.linalg.inv(A)
        loo_mean = y - precision @ (y - 0.7) / np.diag(precision)  # Rasmussen and Williams, eq. 5.12
        np.testing.assert_allclose(loo.mean, loo_mean, atol=1e-9)
        witness = stats.norm.logpdf(y, loo_mean, np.sqrt(1 / np.diag(precision)))
        np.testing.assert_allclose(loo.log_density, witness, atol=1e-8)


def test_bayesian_linear_regression():
    rng = np.random.default_rng(1)
    W, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    sol = fenchel.infer(Gaussian(0.5), Features(W, variance=[1.0, 2.0, 3.0], mean=[0.1, 0.2, 0.3]), y)
    P = np.diag([1.0, 0.5, 1 / 3]) + W.T @ W / 0.5
    mean = np.linalg.solve(P, np.diag([1.0, 0.5, 1 / 3]) @ [0.1, 0.2, 0.3] + W.T @ y / 0.5)
    np.testing.assert_allclose(sol.posterior.latent_mean, mean, atol=1e-9)
    np.testing.assert_allclose(sol.posterior.latent_variance, np.diag(np.linalg.inv(P)), atol=1e-9)
    S = W @ np.diag([1.0, 2.0, 3.0]) @ W.T + 0.5 * np.eye(40)
    assert sol.elbo == pytest.approx(stats.multivariate_normal.logpdf(y, W @ [0.1, 0.2, 0.3], S), abs=1e-9)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Poisson(), 3.0),
        (BernoulliLogit("tilted"), 1.0),
        (StochasticVolatility(), 0.8),
        (Ordinal([-1.0, 1.0], "tilted"), 1.0),
    ],
)
def test_one_observation_against_brute_force(likelihood, y):
    """N = 1: the elbo lies below log p(y), computed by integration, and not far; the mean is near the true one."""
    variance, mean = 0.8, 0.3
    sol = fenchel.infer(likelihood, DenseCovariance([[variance]], mean=mean), [y])
    rows = likelihood.prepare([y])

    def joint(eta):
        return np.exp(float(likelihood.log_density(np.array([[eta]]), rows)[0, 0])) * stats.norm.pdf(
            eta, mean, np.sqrt(variance)
        )

    evidence = integrate.quad(joint, -15, 15)[0]
    assert sol.elbo <= np.log(evidence) + 1e-12
    assert sol.elbo > np.log(evidence) - 0.05
    true_mean = integrate.quad(lambda e: e * joint(e), -15, 15)[0] / evidence
    assert sol.posterior.mean[0] == pytest.approx(true_mean, abs=0.05)


def test_unobserved_rows_are_predicted_and_cost_nothing():
    rng = np.random.default_rng(2)
    K = kernel(X, X)
    hole = np.array([1, 7, 14])
    seen = np.setdiff1d(np.arange(15), hole)
    for likelihood, y in (
        (Poisson(), rng.poisson(2.0, 15).astype(float)),
        (BernoulliLogit("tilted"), rng.integers(0, 2, 15).astype(float)),
        (MultinomialLogit(3, None, bound="log-sum"), rng.integers(0, 3, 15).astype(float)),
        (Ordinal([-1.0, 1.0], bound="log-sum"), rng.integers(0, 3, 15).astype(float)),
    ):
        y[hole] = np.nan
        full = fenchel.infer(likelihood, DenseCovariance(K), y, tol=TIGHT)
        only = fenchel.infer(likelihood, DenseCovariance(K[np.ix_(seen, seen)]), y[seen], tol=TIGHT)
        assert full.elbo == pytest.approx(only.elbo, abs=1e-10)
        np.testing.assert_allclose(full.posterior.mean[seen], only.posterior.mean, atol=1e-7)
        mean, variance = only.posterior.predict(cross=K[np.ix_(hole, seen)], variance=np.diag(K)[hole])
        np.testing.assert_allclose(full.posterior.mean[hole], mean, atol=1e-7)
        np.testing.assert_allclose(full.posterior.variance[hole], variance, atol=1e-7)
        assert np.isnan(full.loo().log_density[hole]).all()
        assert np.isfinite(full.loo().log_density[seen]).all()
        blocks = full.posterior.covariance()
        diagonal = np.diagonal(blocks, axis1=-2, axis2=-1)
        np.testing.assert_allclose(diagonal.T, full.posterior.variance, atol=1e-7)
        assert full.posterior.sample(3, rng=0).shape[:2] == (3, 15)
        assert full.n_observed == 12


def test_weight_space_with_holes():
    rng = np.random.default_rng(3)
    W, y = rng.normal(size=(20, 2)), rng.poisson(2.0, 20).astype(float)
    y[[0, 5]] = np.nan
    thin = fenchel.infer(Poisson(), Features(W), y, tol=TIGHT)
    wide = fenchel.infer(Poisson(), DenseCovariance(W @ W.T), y, tol=TIGHT)
    np.testing.assert_allclose(thin.posterior.mean, wide.posterior.mean, atol=1e-7)
    np.testing.assert_allclose(thin.posterior.variance, wide.posterior.variance, atol=1e-7)


def test_returns_of_exactly_zero():
    """y = 0 in stochastic volatility is the limit of small y, minus the log density's own divergence: none in eta."""
    y = np.array([0.5, 0.0, -1.0, 0.0, 0.3])
    K = kernel(X[:5], X[:5])
    sol = fenchel.infer(StochasticVolatility(), DenseCovariance(K), y, tol=TIGHT)
    near = fenchel.infer(StochasticVolatility(), DenseCovariance(K), np.where(y == 0, 1e-7, y), tol=TIGHT)
    assert sol.elbo == pytest.approx(near.elbo, abs=1e-9)
    np.testing.assert_allclose(sol.posterior.mean, near.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(sol.posterior.variance, near.posterior.variance, atol=1e-6)
    np.testing.assert_allclose(sol.loo().log_density, near.loo().log_density, atol=1e-6)
    new = kernel(np.array([0.1, 9.0]), X[:5])
    a, b = (s.posterior.predict(cross=new, variance=np.full(2, 1.5)) for s in (sol, near))
    np.testing.assert_allclose(a, b, atol=1e-6)
    everything = fenchel.infer(StochasticVolatility(), DenseCovariance(K), np.zeros(5))
    assert everything.converged
    np.testing.assert_allclose(everything.posterior.mean, -0.5 * K.sum(1), atol=1e-12)  # N(0, K) tilted by exp(-eta/2)
    np.testing.assert_allclose(everything.posterior.covariance(), K, atol=1e-12)
    assert everything.elbo == pytest.approx(-2.5 * np.log(2 * np.pi) + K.sum() / 8)


def test_exposure_zero_and_all_zero_counts():
    K = kernel(X, X)
    y, E = np.zeros(15), np.ones(15)
    E[3] = 0.0
    nan = y.copy()
    nan[3] = np.nan
    a = fenchel.infer(Poisson(E), DenseCovariance(K), y)
    b = fenchel.infer(Poisson(np.ones(15)), DenseCovariance(K), nan)
    assert a.converged
    assert a.elbo == pytest.approx(b.elbo, abs=1e-12)
    np.testing.assert_allclose(a.posterior.mean, b.posterior.mean)


def test_nothing_observed_returns_the_prior():
    sol = fenchel.infer(BernoulliLogit("log-sum"), DenseCovariance(kernel(X, X), mean=0.4), np.full(15, np.nan))
    assert sol.converged
    assert sol.elbo == pytest.approx(0.0, abs=1e-14)
    assert sol.n_iter == 0
    np.testing.assert_allclose(sol.posterior.mean, 0.4)
    np.testing.assert_allclose(sol.posterior.variance, 1.5, rtol=1e-12)


@pytest.mark.parametrize("bound", ["log-sum", "tilted"])
def test_one_class_only_and_separable_classes(bound):
    K = kernel(X, X, variance=100.0)
    one = fenchel.infer(BernoulliLogit(bound), DenseCovariance(K), np.ones(15))
    assert one.converged
    assert (one.posterior.mean > 0).all()
    split = fenchel.infer(BernoulliLogit(bound), Features(np.column_stack([np.ones(15), X]), 100.0), X > 2)
    assert split.converged
    assert split.posterior.latent_mean[1] > 0
    soft = fenchel.infer(MultinomialLogit(3, None, bound), DenseCovariance(K), np.full(15, 2.0))
    assert soft.converged
    assert (soft.posterior.mean[:, 2] > soft.posterior.mean[:, 0]).all()


def test_two_classes_of_a_softmax_are_a_bernoulli():
    y = (np.sin(3 * X) > 0).astype(float)
    for bound in ("log-sum", "tilted"):
        binary = fenchel.infer(BernoulliLogit(bound), DenseCovariance(kernel(X, X)), 1 - y, tol=TIGHT)
        soft = fenchel.infer(MultinomialLogit(2, "last", bound), DenseCovariance(kernel(X, X)), y, tol=TIGHT)
        assert soft.elbo == pytest.approx(binary.elbo, abs=1e-9)
        np.testing.assert_allclose(soft.posterior.mean, binary.posterior.mean, atol=1e-7)


def test_leave_one_out_against_refits():
    rng = np.random.default_rng(4)
    y = rng.poisson(np.exp(np.sin(2 * X) + 1)).astype(float)
    K = kernel(X, X)
    sol = fenchel.infer(Poisson(), DenseCovariance(K), y)
    loo, refit = sol.loo(), np.empty(15)
    for n in range(15):
        held = y.copy()
        held[n] = np.nan
        other = fenchel.infer(Poisson(), DenseCovariance(K), held)
        refit[n] = Poisson().predictive_log_density(
            y[n : n + 1], other.posterior.mean[n : n + 1], other.posterior.variance[n : n + 1]
        )[0]
    np.testing.assert_allclose(loo.log_density, refit, atol=0.12)
    assert loo.elpd == pytest.approx(refit.sum(), abs=0.2)


@pytest.mark.parametrize(("likelihood", "y"), LIKELIHOOD_CASES)
def test_solutions_pickle_and_print(likelihood, y):
    for prior in priors_for(likelihood)[::2]:
        sol = fenchel.infer(likelihood, prior, y)
        back = pickle.loads(pickle.dumps(sol))
        assert back.elbo == sol.elbo
        np.testing.assert_array_equal(back.posterior.mean, sol.posterior.mean)
        np.testing.assert_array_equal(back.posterior.sample(2, rng=0), sol.posterior.sample(2, rng=0))
        lines = sol.summary().splitlines()
        assert "gap" in lines[1]
        assert f"{sol.elbo:.6f}" in sol.summary()
        assert "converged" in repr(sol)
        assert np.isfinite(sol.loo().log_density).all()


def test_trace_is_a_table():
    sol = fenchel.infer(Poisson(), DenseCovariance(kernel(X, X)), np.arange(15.0))
    frame = sol.trace.to_frame()
    assert list(frame.columns) == [
        "iteration",
        "seconds",
        "elbo",
        "elbo_upper",
        "gap",
        "step",
        "factorisations",
        "inverses",
        "products",
    ]
    assert len(frame) == sol.n_iter + 1
    assert frame["gap"].iloc[-1] + sol.rounding == sol.gap
    assert [row["iteration"] for row in sol.trace] == list(range(sol.n_iter + 1))


def test_pandas_goes_in():
    pandas = pytest.importorskip("pandas")
    y = np.arange(15)
    series = pandas.Series(y, index=list("abcdefghijklmno"))
    K = pandas.DataFrame(kernel(X, X))
    assert (
        fenchel.infer(Poisson(), DenseCovariance(K), series).elbo
        == fenchel.infer(Poisson(), DenseCovariance(kernel(X, X)), y).elbo
    )


def test_binomial_and_bernoulli_on_real_sizes():
    rng = np.random.default_rng(5)
    trials = rng.integers(0, 6, 15)
    y = rng.binomial(trials, 0.3)
    grouped = fenchel.infer(Binomial(trials, "tilted"), DenseCovariance(kernel(X, X)), y, tol=TIGHT)
    index = np.repeat(np.arange(15), trials)
    single = np.concatenate([np.r_[np.ones(k), np.zeros(n - k)] for k, n in zip(y, trials, strict=True)])
    long = fenchel.infer(
        BernoulliLogit("tilted"), DenseCovariance(kernel(X, X), design=np.eye(15)[index]), single, tol=TIGHT
    )
    from scipy.special import gammaln

    choose = (gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)).sum()
    assert grouped.elbo == pytest.approx(long.elbo + choose, abs=1e-8)
    np.testing.assert_allclose(
        grouped.posterior.mean[trials > 0], long.posterior.mean[np.unique(index, return_index=True)[1]], atol=1e-6
    )


def test_covariance_refuses_what_cannot_fit(monkeypatch):
    import fenchel.posterior

    sol = fenchel.infer(Poisson(), DenseCovariance(kernel(X, X)), np.arange(15.0))
    monkeypatch.setattr(fenchel.posterior, "_physical_memory", lambda: 1000.0)
    with pytest.raises(ValueError, match=r"posterior\.covariance: the covariance of 15 x 1 predictors needs"):
        sol.posterior.covariance()


def test_leave_one_out_of_correlated_predictors_against_refits():
    """All rows. The cavity is an approximation: under the log-sum bound at variance 6 an end row is off by 0.6 nats."""
    rng = np.random.default_rng(0)
    K = kernel(X[:12], X[:12])
    Sigma = np.kron(K, 4 * np.array([[1.0, 0.95], [0.95, 1.0]]))
    y, likelihood = rng.integers(0, 3, 12).astype(float), MultinomialLogit(3, n_draws=40_000, bound="log-sum")
    loo = fenchel.infer(likelihood, DenseCovariance(Sigma), y).loo()
    assert loo.variance.shape == (12, 2, 2)
    errors = []
    for n in range(12):
        held = y.copy()
        held[n] = np.nan
        post = fenchel.infer(likelihood, DenseCovariance(Sigma), held).posterior
        V = post.covariance()[2 * n : 2 * n + 2, 2 * n : 2 * n + 2]
        np.testing.assert_allclose(loo.variance[n], V, rtol=0.25)
        density = likelihood.predictive_log_density(y[n : n + 1], post.mean[n : n + 1], V[None])
        errors.append(abs(float(loo.log_density[n] - density[0])))
    assert np.median(errors) < 0.1
    assert max(errors) < 0.7


def test_leave_one_out_skips_rows_of_weight_zero():
    w = np.ones(15)
    w[:5] = 0.0
    sol = fenchel.infer(Poisson(), DenseCovariance(kernel(X, X)), np.arange(15.0), weights=w)
    assert np.isnan(sol.loo().log_density[:5]).all()
    assert np.isfinite(sol.loo().elpd)


def test_all_zero_returns_under_a_wide_prior():
    sol = fenchel.infer(StochasticVolatility(), DenseCovariance(1e4 * np.eye(2)), [0.0, 0.0])
    assert sol.converged
    assert sol.elbo == pytest.approx(-np.log(2 * np.pi) + 2 * 1e4 / 8)
    np.testing.assert_allclose(sol.posterior.mean, -5e3)
    np.testing.assert_allclose(sol.alpha, 0.5)


def test_upper_is_about_gaussians_not_about_the_evidence():
    """elbo <= log p(y), and elbo_upper may lie below log p(y): the summary must not say otherwise."""
    sol = fenchel.infer(Poisson(), DenseCovariance([[4.0]]), [0.0])
    evidence = np.log(integrate.quad(lambda e: np.exp(-np.exp(e)) * stats.norm.pdf(e, 0, 2), -30, 30)[0])
    assert sol.elbo_upper < evidence
    assert "no Gaussian gives more" in sol.summary()
