"""A prior of the user's own, written against the contract alone, works at once with everything."""

import inspect
import pickle

import numpy as np
import pytest

import fenchel
from fenchel.hyperparameters import learn
from fenchel.hyperparameters.base import Family
from fenchel.likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Ordinal, Poisson, StochasticVolatility
from fenchel.priors import DenseCovariance, Factor, Predictors, Prior


class AR1(Prior):
    """A stationary first-order autoregression at increasing times, by its own recursions: nothing N x N is formed."""

    n_rows = 0

    def __init__(self, times, phi=0.7, variance=1.0):
        self.times, self.phi, self.v, self.n_rows = np.asarray(times), phi, variance, len(times)

    def bind(self, n_observations, n_predictors, coupled):
        return Chain(self.times, self.phi, self.v, n_predictors)


class Chain(Predictors):
    default_mean, variance = 0.0, None

    def __init__(self, times, phi, v, n_predictors=1):
        self.times, self.phi, self.v, self.mt = times, phi, v, np.zeros((len(times), n_predictors))
        self.r, self.variance = (phi ** np.diff(times))[:, None], v + self.mt

    def apply(self, alpha):
        return self.v * (forth(alpha, -self.r) + back(alpha, -self.r) - alpha)

    def at(self, lam):
        return Filter(self, lam)

    def restrict(self, keep):
        return Chain(self.times[keep], self.phi, self.v, self.n_predictors)


class Filter(Factor):
    """Q + Lam = L D L', tridiagonal."""

    variance = None

    def __init__(self, chain, lam):
        self.predictors, self.lam, w = chain, lam, 1.0 / (1.0 - chain.r**2)
        self.D = lam + (np.vstack([w, np.ones((1, 1))]) + np.vstack([np.zeros((1, 1)), w * chain.r**2])) / chain.v
        self.lower = -chain.r * w / chain.v + 0.0 * lam[1:]
        for i in range(len(lam) - 1):
            self.D[i + 1], self.lower[i] = self.D[i + 1] - self.lower[i] ** 2 / self.D[i], self.lower[i] / self.D[i]
        self.log_det = float(np.log(self.D * chain.v).sum() - lam.shape[1] * np.log(w).sum())
        self.variance = back(1.0 / self.D, -(self.lower**2))

    def apply(self, v):
        return back(forth(v, self.lower) / self.D, self.lower)

    def sample(self, size, rng):
        noise = rng.standard_normal((size, *self.lam.shape)) / np.sqrt(self.D)
        return back(noise.swapaxes(0, 1), self.lower).swapaxes(0, 1)


def forth(x, lower):
    x = x.copy()
    for i in range(len(x) - 1):
        x[i + 1] -= lower[i] * x[i]
    return x


def back(x, lower):
    return forth(x[::-1], lower[::-1])[::-1]


class AR1Family(Family):
    names = ("logit phi", "log variance")
    bounds = np.array([[-5.0, 5.0], [-5.0, 5.0]])
    theta = np.array([0.5, 0.2])

    def __init__(self, times):
        self.lag = np.abs(np.subtract.outer(times, times))
        self.times = times

    def at(self, theta):
        return AR1(self.times, 1.0 / (1.0 + np.exp(-theta[0])), np.exp(theta[1]))

    def gradient(self, solution, theta):
        prior, G = self.at(theta), solution.posterior.adjoint().covariance[0]
        S = prior.v * prior.phi**self.lag
        return np.array([np.sum(G * S * self.lag) * (1.0 - prior.phi), np.sum(G * S)])

    @classmethod
    def example(cls, rng, n):
        return cls(np.arange(n))


N = 25
TIMES = np.cumsum(np.random.default_rng(0).integers(1, 3, N)).astype(float)
OURS = AR1(TIMES)
THEIRS = DenseCovariance(0.7 ** np.abs(np.subtract.outer(TIMES, TIMES)))


def targets(likelihood, hole=True):
    y = np.random.default_rng(1).integers(0, 2, N).astype(float)
    if isinstance(likelihood, Poisson | Ordinal):
        y += np.random.default_rng(2).integers(0, 2, N)
    if isinstance(likelihood, Gaussian | StochasticVolatility):
        y += np.random.default_rng(2).normal(size=N)
    y[7] = np.nan if hole else y[7]
    return y


def test_it_is_short():
    assert sum(len(inspect.getsource(part).splitlines()) for part in (AR1, Chain, Filter, forth, back)) < 60


@pytest.mark.parametrize(
    "likelihood",
    [
        Poisson(),
        BernoulliLogit("tilted"),
        BernoulliLogit("exact"),
        Gaussian(0.4),
        StochasticVolatility(),
        Ordinal([-0.3, 0.8], bound="log-sum"),
        Ordinal([-0.3, 0.8], "exact"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("method", ["newton", "lbfgs"])
def test_the_same_fit_as_the_dense_one(likelihood, method):
    if method == "lbfgs" and not likelihood.objective.convex:
        pytest.skip("it needs a dual")
    y = targets(likelihood)
    ours, theirs = (fenchel.infer(likelihood, p, y, method=method, tol=1e-10, max_iter=2000) for p in (OURS, THEIRS))
    assert ours.converged, ours.status
    assert ours.elbo == pytest.approx(theirs.elbo, abs=1e-7)
    for name in ("mean", "variance", "latent_mean", "latent_variance"):
        np.testing.assert_allclose(getattr(ours.posterior, name), getattr(theirs.posterior, name), atol=1e-4)
    np.testing.assert_allclose(ours.posterior.covariance(), theirs.posterior.covariance(), atol=1e-4)
    np.testing.assert_allclose(ours.loo().log_density, theirs.loo().log_density, atol=1e-4)
    draws = ours.posterior.sample(20_000, rng=0)
    np.testing.assert_allclose(np.cov(draws.T), ours.posterior.covariance(), atol=0.05)
    assert ours.posterior.sample_latents(3, rng=0).shape == (3, N)


def test_newton_is_as_quick_as_the_dense_one():
    for likelihood in (Poisson(), BernoulliLogit("tilted"), BernoulliLogit("exact")):
        y = targets(likelihood)
        ours, theirs = (fenchel.infer(likelihood, p, y) for p in (OURS, THEIRS))
        assert ours.n_iter <= theirs.n_iter + 1


def test_predictions_at_new_times():
    """By the covariance with the latents, and by rows over them; a pickled fit predicts the same."""
    y, new = targets(Poisson()), np.linspace(0.0, TIMES[-1] + 3.0, 9)
    fits = [fenchel.infer(Poisson(), p, y, tol=1e-12) for p in (OURS, THEIRS)]
    at = {"cross": 0.7 ** np.abs(np.subtract.outer(new, TIMES)), "variance": np.ones(9), "offset": 0.1}
    rows = {"design": np.random.default_rng(3).normal(size=(4, N))}
    for where in (at, rows):
        (m, v), theirs = (fit.posterior.predict(**where) for fit in fits)
        np.testing.assert_allclose(m, theirs[0], atol=1e-6)
        np.testing.assert_allclose(v, theirs[1], atol=1e-6)
        again = pickle.loads(pickle.dumps(fits[0])).posterior.predict(**where)
        np.testing.assert_array_equal(again, (m, v))
    mean = fits[0].posterior.predict_mean(cross=at["cross"], offset=0.1)
    np.testing.assert_allclose(mean, fits[0].posterior.predict(**at)[0])


@pytest.mark.parametrize("likelihood", [Poisson(), BernoulliLogit("exact")], ids=repr)
def test_learning(likelihood):
    family, y = AR1Family(TIMES), targets(likelihood)
    theta = family.theta + 0.3

    def elbo(theta):
        return fenchel.infer(likelihood, family.at(theta), y, tol=1e-14).elbo

    slope = family.gradient(fenchel.infer(likelihood, family.at(theta), y, tol=1e-14), theta)
    steps = 1e-5 * np.eye(2)
    np.testing.assert_allclose(slope, [(elbo(theta + e) - elbo(theta - e)) / 2e-5 for e in steps], atol=1e-6)
    found = learn(likelihood, family, y)
    assert found.solution.elbo >= elbo(family.theta) - 1e-8
    inside = (found.theta > family.bounds[:, 0]) & (found.theta < family.bounds[:, 1])
    at_best = family.gradient(found.solution, found.theta)
    np.testing.assert_allclose(at_best[inside], 0.0, atol=1e-3)


def test_what_it_cannot_do_is_said():
    y = targets(None)
    with pytest.raises(ValueError, match="share a normalisation"):
        fenchel.infer(MultinomialLogit(3, bound="log-sum"), OURS, y)
    posterior = fenchel.infer(Poisson(), OURS, y).posterior
    for ask, words in (
        (posterior.latent_covariance, "latent_covariance"),
        (lambda: posterior.adjoint().precision, "not a SparsePrecision"),
        (lambda: posterior.adjoint().design, "has no design of its own"),
        (lambda: posterior.predict(cross=np.ones((2, 3)), variance=1.0), "cross has shape"),
    ):
        with pytest.raises(ValueError, match=words):
            ask()
