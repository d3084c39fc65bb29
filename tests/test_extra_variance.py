"""Variance of eta that the latents do not explain: a latent of its own an observation, which q leaves at its prior."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import optimize

import fenchel
from fenchel.likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Poisson, StochasticVolatility
from fenchel.paper import rivals
from fenchel.priors import DenseCovariance, Features, SparsePrecision

N = 12
rng = np.random.default_rng(0)
W = rng.normal(size=(N, 2))
ROOT = rng.normal(size=(N, N)) / 3.0
Q = sp.csc_array(np.diag(2.0 + rng.random(N)) - np.eye(N, k=1) - np.eye(N, k=-1) + np.eye(N))
C = rng.gamma(2.0, 0.3, N)
KINDS = {
    "weights": lambda c: Features(W, [1.0, 2.0], mean=0.2, extra_variance=c),
    "rows": lambda c: DenseCovariance(ROOT @ ROOT.T + 0.2 * np.eye(N), mean=0.1, extra_variance=c),
    "sparse": lambda c: SparsePrecision(Q, offset=0.3, extra_variance=c),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def counts(hole=True):
    y = np.random.default_rng(1).poisson(2.0, N).astype(float)
    y[3] = np.nan if hole else y[3]
    return y


@pytest.mark.parametrize(
    ("likelihood", "psi"),
    [
        (BernoulliLogit("exact"), lambda y, x: np.logaddexp(0.0, x) - y * x),
        (Poisson(), lambda y, x: np.exp(x) - y * x),
        (Gaussian(0.5), lambda y, x: (y - x) ** 2 + 0.5 * np.log(np.pi)),
    ],
    ids=["exact", "Poisson", "Gaussian"],
)
def test_against_latents_of_their_own(likelihood, psi):
    """Every observation has a latent of variance c whose q is its prior; the others' q maximises the evidence."""
    y, n = np.array([0.0, 1.0, 1.0, 0.0, 1.0]), 5
    prior = Features(W[:n], [1.0, 2.0], extra_variance=C[:n])
    sol = fenchel.infer(likelihood, prior, y, tol=1e-13)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    both, Sigma = np.hstack([W[:n], np.eye(n)]), np.diag([1.0, 2.0])

    def unpacked(x):
        L = np.zeros((2, 2))
        L[np.tril_indices(2)] = x[2:]
        V = np.zeros((2 + n, 2 + n))
        V[:2, :2], V[2:, 2:] = L @ L.T, np.diag(C[:n])
        mean = np.concatenate([x[:2], np.zeros(n)])
        return mean, V, both @ mean, np.diag(both @ V @ both.T)

    def loss(x):
        mean, V, h, rho = unpacked(x)
        inside, m = V[:2, :2], mean[:2]
        kl = 0.5 * (np.trace(np.linalg.solve(Sigma, inside)) + m @ np.linalg.solve(Sigma, m) - 2.0)
        kl += 0.5 * (np.linalg.slogdet(Sigma)[1] - np.linalg.slogdet(inside)[1])
        eta = h[:, None] + np.sqrt(rho)[:, None] * nodes
        return kl + float(np.sum(psi(y[:, None], eta) @ weights) / weights.sum())

    found = optimize.minimize(loss, [0.0, 0.0, 1.0, 0.0, 1.0], method="BFGS", options={"gtol": 1e-9})
    _, V, h, rho = unpacked(found.x)
    assert sol.elbo == pytest.approx(-found.fun, abs=1e-7)
    np.testing.assert_allclose(sol.posterior.mean, h, atol=1e-4)
    np.testing.assert_allclose(sol.posterior.variance, rho, atol=1e-4)
    np.testing.assert_allclose(sol.posterior.latent_covariance(), V[:2, :2], atol=1e-4)


@every_kind
def test_counts_with_extra_variance_are_counts_of_a_larger_exposure(kind):
    """E exp(eta) = exp(h + rho/2 + c/2): the same q as with the exposure e^{c/2}, everywhere and under a hole."""
    y = counts()
    sol = fenchel.infer(Poisson(), KINDS[kind](C), y, tol=1e-14)
    other = fenchel.infer(Poisson(exposure=np.exp(C / 2)), KINDS[kind](0.0), y, tol=1e-14)
    assert sol.converged
    assert sol.elbo == pytest.approx(other.elbo - np.nansum(y * C) / 2, abs=1e-9)
    ours, theirs = sol.posterior, other.posterior
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-7)
    np.testing.assert_allclose(ours.variance, theirs.variance + C, atol=1e-7)
    np.testing.assert_allclose(ours.latent_mean, theirs.latent_mean, atol=1e-7)
    np.testing.assert_allclose(ours.latent_variance, theirs.latent_variance, atol=1e-7)
    np.testing.assert_allclose(ours.covariance(), theirs.covariance() + np.diag(C), atol=1e-7)
    for a, b, more in zip(ours.cavity(), theirs.cavity(), (0.0, C), strict=True):
        np.testing.assert_allclose(a, b + np.reshape(more, (-1, 1)), atol=1e-6)
    design = np.random.default_rng(2).normal(size=(4, np.size(ours.latent_mean)))
    m, v = ours.predict(design=design, extra_variance=0.7)
    np.testing.assert_allclose(m, theirs.predict(design=design)[0], atol=1e-7)
    np.testing.assert_allclose(v, theirs.predict(design=design)[1] + 0.7, atol=1e-7)
    draws = pickle.loads(pickle.dumps(ours)).sample(40_000, rng=0)
    np.testing.assert_allclose(draws.var(axis=0), ours.variance, rtol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), ours.covariance(), atol=0.08)


@every_kind
@pytest.mark.parametrize(
    "likelihood",
    [Poisson(), BernoulliLogit("tilted"), BernoulliLogit("exact"), MultinomialLogit(3, bound="log-sum")],
    ids=repr,
)
def test_slope_of_the_evidence(kind, likelihood):
    """dP/dc = -lam/2 against differences; 0 at a hole."""
    y = (counts() > 1) * 1.0 + 0.0 * counts()

    def fit(c):
        return fenchel.infer(likelihood, KINDS[kind](c), y, tol=1e-16)

    sol, E = fit(C), np.random.default_rng(3).normal(size=N)
    G = sol.posterior.adjoint().extra
    assert G.shape == (N, likelihood.n_predictors)
    difference = (fit(C + 1e-5 * E).elbo - fit(C - 1e-5 * E).elbo) / 2e-5
    assert np.sum(G * E[:, None]) == pytest.approx(difference, rel=1e-5, abs=1e-7)
    np.testing.assert_array_equal(G[3], 0.0)


def test_rows_without_curvature_do_not_feel_it():
    """A return of exactly 0 is linear in eta: its expectation has no variance in it."""
    y = np.random.default_rng(4).normal(size=N)
    y[5] = 0.0
    fits = []
    for more in (0.0, 3.0):
        c = C.copy()
        c[5] += more
        fits.append(fenchel.infer(StochasticVolatility(), KINDS["rows"](c), y, tol=1e-13))
    assert fits[1].elbo == pytest.approx(fits[0].elbo, abs=1e-9)
    assert fits[1].posterior.variance[5] == pytest.approx(fits[0].posterior.variance[5] + 3.0, abs=1e-9)


def test_predictors_that_are_correlated_a_priori():
    """The cavity is a matrix there: c is on its diagonal, and is not in what the site takes away."""
    root = rng.normal(size=(2 * N, 2 * N)) / 4.0
    c, y = np.column_stack([C, C[::-1]]), np.random.default_rng(5).integers(0, 3, N)
    sol = fenchel.infer(
        MultinomialLogit(3, bound="log-sum"), DenseCovariance(root @ root.T, extra_variance=c), y, tol=1e-12
    )
    post, lam = sol.posterior, np.asarray(sol.lam)
    V = post.covariance().reshape(N, 2, N, 2)
    mean, variance = post.cavity()
    for n in range(N):
        latent = np.linalg.inv(np.linalg.inv(V[n, :, n, :] - np.diag(c[n])) - np.diag(lam[n]))
        np.testing.assert_allclose(variance[n], latent + np.diag(c[n]), atol=1e-8)
        np.testing.assert_allclose(mean[n], post.mean[n] + latent @ np.asarray(sol.alpha)[n], atol=1e-8)
    assert np.isfinite(sol.loo().log_density).all()


def test_it_is_checked():
    for bad, words in ((-1.0, "extra_variance reaches -1"), (np.ones(3), "extra_variance has shape"), (np.nan, "nan")):
        with pytest.raises(ValueError, match=words):
            fenchel.infer(Poisson(), KINDS["rows"](bad), counts())
    with pytest.raises(ValueError, match="the prior has an extra variance"):
        rivals.mean_field(Poisson(), KINDS["rows"](C), counts())
