"""A likelihood and a bound of the user's own, from outside the package, against the library's own of the same model."""

import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.special import digamma, expit, gammaln
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import fenchel
from fenchel.estimators import BayesianLinearRegression, GaussianProcessRegressor
from fenchel.likelihoods import BernoulliLogit, DirectBound, Likelihood, Loss, Parameter
from fenchel.likelihoods.softplus_bounds import SoftplusBound
from fenchel.priors import DenseCovariance


class Amount(Likelihood):
    """Positive y of mean e^eta and shape k, by its density alone: fenchel.Gamma."""

    support = "positive"
    parameters = (Parameter("shape", "shape", bounds=(1e-4, 1e8)),)

    def __init__(self, shape=1.0):
        self.shape = shape

    def check(self, y):
        return {"y": np.where(np.isnan(y), 1.0, y)}

    def log_density(self, eta, rows):
        return -self.derivatives(eta, rows)[0]

    def derivatives(self, eta, rows):  # -log p and its slopes
        k, y = self.shape, rows["y"][:, None]
        bend = k * y * np.exp(-eta)
        return k * eta + bend - k * np.log(k) - (k - 1) * np.log(y) + gammaln(k), k - bend, bend

    def theta_slopes(self, eta, rows):  # by log k
        k, y = self.shape, rows["y"][:, None]
        each = eta + y * np.exp(-eta) - np.log(k) - 1 - np.log(y) + digamma(k)
        return (each * self.parameters[0].transform.slope(k))[None]

    def landmarks(self, rows):
        return [np.log(rows["y"])]


class Clumps(Likelihood):
    """Counts of mean e^eta and size r, by their density alone: fenchel.NegativeBinomial without a bound."""

    support = "count"
    parameters = (Parameter("size", "size"),)

    def __init__(self, size=1.0):
        self.size = size

    def check(self, y):
        return {"y": np.where(np.isnan(y), 0.0, y)}

    def log_density(self, eta, rows):
        return -self.derivatives(eta, rows)[0]

    def derivatives(self, eta, rows):
        r, y, t = self.size, rows["y"][:, None], eta - np.log(self.size)
        choices = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
        psi = y * np.logaddexp(0, -t) + r * np.logaddexp(0, t) - choices
        return psi, (y + r) * expit(t) - y, (y + r) * expit(t) * expit(-t)

    def theta_slopes(self, eta, rows):
        r, y, t = self.size, rows["y"][:, None], eta - np.log(self.size)
        return (y - (y + r) * expit(t) + r * (np.logaddexp(0, t) - digamma(y + r) + digamma(r)))[None]

    def landmarks(self, rows):
        return [np.log(rows["y"] + 0.5)]


class HalfTilted(SoftplusBound):
    """A curve between log-sum, lam = tau, and tilted, lam = tau (1 - tau): lam = tau (1 - tau/2)."""

    curved = True

    def curve(self, t, rest, spread):
        return t * (1 - t / 2), 1 - t, -np.ones_like(t)

    def maximiser(self, h, rho, s, rows):  # s = h + (1 - tau) rho/2, by bisection
        low, high = h, h + rho / 2
        for _ in range(60):
            s = (low + high) / 2
            above = s > h + expit(-s) * rho / 2
            low, high = np.where(above, low, s), np.where(above, s, high)
        return (low + high) / 2

    def curve_gap(self, tau_hat, tau):
        return (tau_hat - tau) ** 2 / 2


class WrittenOut(DirectBound):
    """The log-sum bound as a loss, without its dual: f = -y h + log(1 + e^s), s = h + rho/2."""

    def loss(self, h, rho, rows):
        h, s, y = h[:, 0], h[:, 0] + rho[:, 0] / 2, rows["y"]
        tau, bend = expit(s), expit(s) * expit(-s)
        return Loss(np.logaddexp(0, s) - y * h, tau - y, tau, bend, bend / 2, bend / 4)


KERNEL = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(1.0, (1e-1, 1e1))
CASES = [(Amount(2.0), fenchel.Gamma(2.0)), (Clumps(3.0), fenchel.NegativeBinomial(3.0, bound="exact"))]


def drawn(known, n=60):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 2))
    eta = 1.0 + X @ np.array([0.8, -0.5])
    return X, known.draw(eta[:, None], rng)[:, 0]


def estimators(likelihood):
    return [
        BayesianLinearRegression("ridge", likelihood),
        GaussianProcessRegressor(KERNEL, likelihood),
    ]


@pytest.mark.parametrize(("own", "known"), CASES)
def test_a_likelihood_by_its_density_alone(own, known):
    X, y = drawn(known)
    y[7] = np.nan
    prior = DenseCovariance(2.0 * RBF(1.0)(X), mean=1.0)
    mine, theirs = (fenchel.infer(likelihood, prior, y, tol=1e-10) for likelihood in (own, known))
    assert mine.converged
    assert mine.elbo == pytest.approx(theirs.elbo, abs=1e-7)
    assert mine.loo().elpd == pytest.approx(theirs.loo().elpd, abs=1e-5)
    np.testing.assert_allclose(mine.likelihood_gradient(), theirs.likelihood_gradient(), atol=1e-5)
    h, rho = np.array([0.3, 1.5]), np.array([0.4, 0.01])
    for question in ("predictive_mean", "predictive_variance"):
        np.testing.assert_allclose(getattr(own, question)(h, rho), getattr(known, question)(h, rho), rtol=1e-6)
    for question in ("mean_at", "variance_at"):
        np.testing.assert_allclose(getattr(own, question)(h), getattr(known, question)(h), rtol=1e-7)
    np.testing.assert_allclose(own.cdf(2.0, h[:, None]), known.cdf(2.0, h[:, None]), atol=1e-9)
    q = np.array([0.05, 0.5, 0.9])
    np.testing.assert_allclose(own.predictive_quantile(q, h, rho), known.predictive_quantile(q, h, rho), rtol=1e-6)
    sample = own.predictive_draws(h, rho, 400, np.random.default_rng(0))
    np.testing.assert_allclose(sample.mean(axis=1), own.predictive_mean(h, rho), rtol=0.2)


@pytest.mark.parametrize(("own", "known"), CASES)
def test_its_level_is_found(own, known):
    _, y = drawn(known)
    assert own.level(y) == pytest.approx(known.level(y), abs=1e-6)
    assert own.level(y, np.arange(60.0)) == pytest.approx(known.level(y, np.arange(60.0)), abs=1e-6)


@pytest.mark.parametrize("case", CASES, ids=["amount", "clumps"])
@pytest.mark.parametrize("i", range(2))
def test_estimators_take_it(case, i):
    X, y = drawn(case[1])
    mine, theirs = (estimators(likelihood)[i].fit(X, y) for likelihood in case)
    assert mine.converged_
    assert mine.elbo_ == pytest.approx(theirs.elbo_, abs=1e-4)
    np.testing.assert_allclose(mine.likelihood_.theta, theirs.likelihood_.theta, atol=1e-2)
    assert mine.theta_names_ == theirs.theta_names_
    few = X[:3]
    np.testing.assert_allclose(mine.predict(few), theirs.predict(few), rtol=1e-2)
    quantiles = mine.predict_quantiles(few, [0.1, 0.9])
    assert (quantiles[:, 0] <= quantiles[:, 1]).all()
    assert mine.sample_y(few, 4).shape == (3, 4)
    assert mine.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-4)
    again = pickle.loads(pickle.dumps(mine))
    np.testing.assert_array_equal(again.predict(few), mine.predict(few))


@pytest.mark.parametrize("case", CASES, ids=["amount", "clumps"])
def test_formulas_take_it(case):
    own, known = case
    X, y = drawn(known)
    data = pd.DataFrame({"group": np.arange(60) % 6, "x": X[:, 0], "z": X[:, 1]})
    flat = {own.parameters[0].attribute: None}  # whose default prior is about where each starts
    mine, theirs = (fenchel.FormulaRegressor("y ~ x + z + (1|group)", one, priors=flat).fit(data, y) for one in case)
    assert mine.converged_
    assert mine.fit_.elbo == pytest.approx(theirs.fit_.elbo, abs=1e-4)
    np.testing.assert_allclose(mine.predict(data[:3]), theirs.predict(data[:3]), rtol=1e-2)
    assert mine.score(data, y) == pytest.approx(theirs.score(data, y), abs=1e-4)
    again = pickle.loads(pickle.dumps(mine))
    np.testing.assert_array_equal(again.predict(data[:3]), mine.predict(data[:3]))
    assert (own.name, own.parameters[0].attribute) in mine.fit_.hyperparameters.index


def test_a_bound_of_ones_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1))
    y = (rng.random(40) < expit(2 * X[:, 0])).astype(float)
    prior = DenseCovariance(9.0 * RBF(1.0)(X))
    loose, tight = (fenchel.infer(BernoulliLogit(word), prior, y) for word in ("log-sum", "tilted"))
    half = fenchel.infer(BernoulliLogit(HalfTilted), prior, y)
    assert half.certificate == "duality"
    assert half.converged
    assert loose.elbo < half.elbo < tight.elbo
    written = fenchel.infer(BernoulliLogit(WrittenOut), prior, y)
    assert written.certificate == "strong-concavity"
    assert written.converged
    assert written.elbo == pytest.approx(loose.elbo, abs=1e-5)


def test_it_goes_where_its_likelihood_goes():
    likelihood = BernoulliLogit(HalfTilted)
    assert repr(likelihood) == "BernoulliLogit(bound='HalfTilted')"
    again = pickle.loads(pickle.dumps(likelihood))
    assert isinstance(again.objective, HalfTilted)
    assert again.objective.likelihood is again
    assert HalfTilted.__name__ in likelihood.bounds
    assert HalfTilted.__name__ not in BernoulliLogit.bounds
    X = np.random.default_rng(1).normal(size=(30, 2))
    model = BayesianLinearRegression("ridge", likelihood).fit(X, X[:, 0] > 0)
    assert isinstance(pickle.loads(pickle.dumps(model)).likelihood_.objective, HalfTilted)
    assert model.predict_proba(X).shape == (30, 2)
    with pytest.raises(ValueError, match="BernoulliLogit: bound = 'half' is not known; expected 'best' or 'log-sum'"):
        BernoulliLogit("half")


class Nowhere(Likelihood):
    """Of a support nobody knows."""

    support = "circle"
    bounds: ClassVar = {"exact": WrittenOut}

    def check(self, y):
        return {"y": y}

    def log_density(self, eta, rows):
        return np.cos(eta - rows["y"][:, None])


def test_what_cannot_be_asked_says_so():
    with pytest.raises(ValueError, match="Nowhere: its distribution function is not known for support='circle'"):
        Nowhere().cdf(0.0, np.zeros((1, 1)))


def test_a_prior_of_the_likelihoods_own_parameter_counts():
    """With a prior of log variance about 0 that is far narrower than the data's say, learning ends at 0."""
    from dataclasses import replace

    from fenchel.hyperparameters import WeightVariances, learn
    from fenchel.hyperparameters.priors import Normal
    from fenchel.likelihoods import Gaussian

    class Believed(Gaussian):
        parameters = tuple(replace(p, prior=Normal(0.0, 1e-3)) for p in Gaussian.parameters)

    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = X[:, 0] + 3.0 * rng.normal(size=50)
    found, free = (learn(kind(2.0), WeightVariances(X), y) for kind in (Believed, Gaussian))
    assert found.converged
    assert abs(found.likelihood.theta[0]) < 1e-2 < abs(free.likelihood.theta[0])
    value, slope = Normal(0.0, 1e-3)(float(found.theta[-1]))
    assert found.objective == pytest.approx(found.solution.elbo + value)
    assert abs(found.gradient[-1]) < 1e-2 < abs(slope)
