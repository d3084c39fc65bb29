"""Learning that ends in the right place: bounds, starts, slopes, levels and kernels that are none.

Witnesses: scikit-learn's exact Gaussian processes, matrices written out, brute-force quadrature over the level.
"""

import warnings

import numpy as np
import pytest
from conftest import difference
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.metrics import log_loss

import fenchel
from fenchel.estimators import (
    BayesianLinearRegression,
    GaussianProcessClassifier,
    GaussianProcessPoissonRegressor,
    GaussianProcessRegressor,
)
from fenchel.hyperparameters import Evidence, KernelCovariance, learn
from fenchel.kernels import contract, evaluate, is_covariance
from fenchel.likelihoods import (
    Beta,
    Gamma,
    Gaussian,
    LaplaceNoise,
    Mixed,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
    Weibull,
    ZeroInflated,
)
from fenchel.priors import DenseCovariance
from fenchel.scaled_kernels import ScaledRBF
from fenchel.solvers import Ending

pytestmark = pytest.mark.filterwarnings("ignore:.*nothing is learned")  # parameters are kept on purpose

WAVE = 2.0 * RBF(1.0)


def smooth(n=200, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 6, n)[:, None]
    return x, np.sin(2 * x[:, 0]) + noise * rng.normal(size=n)


def said(**_):
    """Fits at the edge of double precision may say so; here it is the parameters that count."""
    return warnings.catch_warnings(action="ignore", category=ConvergenceWarning)


# -- bounds ----------------------------------------------------------------------------------------------
def test_noise_far_below_the_variance_is_found():
    x, y = smooth(noise=1e-4)
    new = np.linspace(0.1, 5.9, 300)[:, None]
    truth = np.sin(2 * new[:, 0])
    theirs = Exact(20.0 * RBF(1.5) + WhiteKernel(1e-8, (1e-12, 1e1)), alpha=0.0)
    with said():
        theirs.fit(x, y)
        ours = GaussianProcessRegressor().fit(x, y)
    reference = np.sqrt(np.mean((theirs.predict(new) - truth) ** 2))
    assert np.sqrt(np.mean((ours.predict(new) - truth) ** 2)) < 1.2 * reference
    assert ours.likelihood_.variance**0.5 == pytest.approx(1e-4, rel=0.2)


def test_a_linear_models_noise_follows_the_data_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    for scale in (1e-6, 1.0, 1e6):
        y = scale * (X @ [1.0, -2.0, 0.5] + 1e-4 * rng.normal(size=200))
        residual = y - np.column_stack([X, np.ones(200)]) @ np.linalg.lstsq(np.column_stack([X, np.ones(200)]), y)[0]
        with said():
            found = BayesianLinearRegression().fit(X, y).likelihood_.variance
        assert found == pytest.approx(residual @ residual / 196, rel=0.02)


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("likelihood", [Gaussian(1.0), LaplaceNoise(1.0), StudentT(4.0, 1.0, learn_df=True)])
def test_noise_bounds_scale_with_the_data(likelihood, shift):
    y = np.random.default_rng(0).normal(size=50)
    y[3] = np.nan
    one = likelihood.theta_bounds(y)[-1]
    power = 2.0 if isinstance(likelihood, Gaussian) else 1.0
    many = likelihood.theta_bounds(1e4 * y + shift)[-1]
    assert many[0] == pytest.approx(one[0] + power * np.log(1e4))
    assert many[1] > one[1]
    assert one[0] < np.log(2e-5) * power  # far below what e^-10 of half the variance allowed
    far = likelihood.theta_bounds(y + 1e12)[-1][0]  # not below the rounding of y itself
    assert far >= power * np.log(np.finfo(float).eps * 1e12)


@pytest.mark.parametrize("likelihood", [Gaussian(1.0), LaplaceNoise(1.0), Gamma(2.0), Weibull(2.0)])
def test_bounds_of_noise_are_those_of_repeated_rows(likelihood):
    y, times = np.random.default_rng(0).gamma(2.0, size=30), np.arange(30) % 4
    weighted = likelihood.theta_bounds(np.append(y, np.nan), np.append(times, 1.0))
    np.testing.assert_allclose(weighted, likelihood.theta_bounds(np.repeat(y, times)), rtol=1e-12)
    assert np.abs(weighted - likelihood.theta_bounds(y)).max() > 0.01


def test_noise_at_its_floor_is_that_of_repeated_rows():
    x, times = np.linspace(0.0, 6.0, 12)[:, None], 1 + np.arange(12) // 4
    y, kernel = np.sin(x[:, 0]) * (1.0 + x[:, 0]), 1.0 * RBF(0.3, (0.2, 0.5))
    with warnings.catch_warnings(action="ignore"):
        one = GaussianProcessRegressor(kernel).fit(x, y, sample_weight=times)
        other = GaussianProcessRegressor(kernel).fit(np.repeat(x, times, axis=0), np.repeat(y, times))
    assert one.likelihood_.variance == pytest.approx(other.likelihood_.variance, rel=1e-9)
    assert one.elbo_ == pytest.approx(other.elbo_, abs=1e-5)


def test_one_outlier_does_not_lift_the_floor():
    y = np.random.default_rng(0).normal(size=50)
    assert LaplaceNoise(1.0).theta_bounds(np.append(y, 1e12))[0, 0] < np.log(2e-5)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Gaussian(3.0), [1.0, 1.0, 1.0]),
        (Gamma(2.0), [5.0, 5.0, np.nan]),
        (Weibull(2.0), [1e-3, 4.0, 4.0]),
        (NegativeBinomial(2.0, bound="log-sum"), [0.0, 3.0, 1e9]),
        (ZeroInflated(Poisson(), 0.3), [0.0, 0.0, 2.0]),
        (Beta(3.0), [0.2, 0.5, 0.9]),
        (Ordinal([-1.0, 0.0, 2.0], bound="log-sum"), [0.0, 1.0, 3.0]),
        (StudentT(4.0, 1.0), [0.0, 0.0, 0.0]),
        (Mixed([Gaussian(1.0), Gamma(1.0)], [0, 1, 1]), [-1.0, 2.0, 3.0]),
    ],
)
def test_every_likelihoods_range_holds_it_and_is_finite(likelihood, y):
    bounds = likelihood.theta_bounds(np.array(y))
    assert bounds.shape == (likelihood.theta.size, 2)
    assert np.isfinite(bounds).all()
    assert (bounds[:, 0] < likelihood.theta).all()
    assert (likelihood.theta < bounds[:, 1]).all()


def test_a_parameter_at_a_bound_is_said_to_be():
    x, y = smooth(60)
    kernel = ConstantKernel(1.0, (0.5, 2.0)) * RBF(0.3, (0.1, 0.4))
    with pytest.warns(ConvergenceWarning, match="'k2__length_scale' at its upper bound, and the evidence still rises"):
        model = GaussianProcessRegressor(kernel).fit(x, y)
    assert model.at_bounds_["k2__length_scale"] == "upper"
    assert model.converged_
    found = learn(Gaussian(0.01), KernelCovariance(kernel, x), y)
    assert "k2__length_scale is at its upper bound" in found.status
    index = found.at_bounds
    assert index[1] == "upper"
    assert 1 in found.held
    free = learn(Gaussian(0.01), KernelCovariance(WAVE, x), y)
    assert free.at_bounds == {}
    assert free.held == ()
    assert "bound;" not in free.status


# -- slopes ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [0, 2, 3, 5, 6])
def test_converged_means_that_no_slope_is_left(seed):
    """Bounded constant kernels on unscaled targets: slow progress used to end the search, and was called converged."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 4)), int(rng.integers(20, 120))
    X = rng.uniform(-3, 3, (n, d))
    y = (np.sin(2 * X[:, 0]) + rng.normal() * 3 + 0.1 * rng.normal(size=n)) * 10.0 ** rng.uniform(1, 3)
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(np.ones(d), (1e-2, 1e2))
    if seed % 3 == 0:
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(1.0, (1e-2, 1e2)) + ConstantKernel(1.0, (1e-3, 1e5))
    found = learn(Gaussian(0.01), KernelCovariance(kernel, X), y, learn_likelihood=False)
    witness = Exact(kernel, alpha=0.01, optimizer=None).fit(X, y)
    value, slope = witness.log_marginal_likelihood(found.theta, eval_gradient=True)
    assert found.objective == pytest.approx(value, rel=1e-9)
    projected = np.clip(found.theta + slope, *kernel.bounds.T) - found.theta
    assert found.converged
    assert np.abs(projected).max() < 2e-3
    from_there = Exact(kernel.clone_with_theta(found.theta), alpha=0.01)
    with said():
        further = from_there.fit(X, y).log_marginal_likelihood_value_
    assert further < value + 1e-4


def test_a_hair_of_rounding_is_no_failure_of_learning(monkeypatch):
    """An inner fit that double precision stops at 1.6 times its tolerance moves no slope."""
    x, y = smooth(40)
    honest = Evidence.fit

    def rounded(self, theta):
        sol = honest(self, theta)
        sol.gap = max(sol.gap, 1.6 * self.tol * max(1.0, abs(sol.elbo)))
        sol.optimal = sol.converged = False
        sol.ending = Ending("stagnated", "relative gap", sol.gap, self.tol, "stagnated")
        return sol

    monkeypatch.setattr(Evidence, "fit", rounded)
    found = learn(Gaussian(0.1), KernelCovariance(WAVE, x), y)
    assert found.converged
    assert "stagnated" in found.status


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t", "negative-binomial"])
def test_the_evidence_is_that_of_the_learned_likelihood(likelihood):
    x, y = smooth(50)
    y = np.random.default_rng(0).poisson(np.exp(2 + y)) if likelihood == "negative-binomial" else y
    with said():
        model = GaussianProcessRegressor(WAVE, likelihood=likelihood).fit(x, y)
    assert model.log_marginal_likelihood(model.kernel_.theta) == pytest.approx(model.elbo_, abs=1e-6)
    assert model.log_marginal_likelihood(model.theta_) == pytest.approx(model.elbo_, abs=1e-6)
    if likelihood == "gaussian":
        v = 10.0 * np.var(y)
        noisy = model.kernel_ + ConstantKernel(v) + WhiteKernel(model.likelihood_.variance)
        witness = Exact(noisy, alpha=0.0, optimizer=None).fit(x, y - y.mean())
        assert model.elbo_ == pytest.approx(witness.log_marginal_likelihood_value_, abs=1e-6)


# -- starts ----------------------------------------------------------------------------------------------
def test_pixels_are_learned_from():
    X, y = load_digits(return_X_y=True)
    two = (y == 3) | (y == 5)
    pixels = np.kron(X[two].reshape(-1, 8, 8), np.ones((2, 2))).reshape(-1, 256)
    model = GaussianProcessClassifier().fit(pixels[:120], y[two][:120])
    assert log_loss(y[two][120:], model.predict_proba(pixels[120:])) < 0.12
    assert model.converged_


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6, "mixed"])
def test_thirty_inputs_of_any_scale(scale):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(300, 30)), rng.normal(size=30)
    y = 3 * np.tanh(X @ w / 5) + X[:, 0] + 0.3 * rng.normal(size=300)
    X = X * (10.0 ** rng.uniform(-6, 6, 30) if scale == "mixed" else scale)
    model = GaussianProcessRegressor().fit(X[:150], y[:150])
    assert 1 - np.var(model.predict(X[150:]) - y[150:]) / np.var(y[150:]) > 0.85


def test_a_fast_wave_is_not_taken_for_noise():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6e3, (200, 1))
    y = np.sin(0.02 * x[:, 0]) + 0.1 * rng.normal(size=200)
    model = GaussianProcessRegressor().fit(x, y)
    assert model.likelihood_.variance**0.5 == pytest.approx(0.1, rel=0.2)


def test_the_users_kernel_is_where_the_search_starts():
    x, y = smooth(30)
    model = GaussianProcessRegressor(3.0 * RBF(0.7), optimizer=None).fit(1e3 * x, y)
    np.testing.assert_allclose(model.kernel_.theta, np.log([3.0, 0.7]))


def test_constant_and_repeated_columns_have_a_start():
    x, y = smooth(30)
    flat = np.column_stack([x, np.full(30, 1e9), np.zeros(30)])
    plain = GaussianProcessRegressor().fit(x, y)
    assert GaussianProcessRegressor().fit(flat, y).elbo_ == pytest.approx(plain.elbo_, abs=1e-4)
    assert np.isfinite(GaussianProcessRegressor().fit(np.ones((5, 2)), y[:5]).elbo_)


def test_scaled_kernels_is_rbf_of_scaled_columns():
    rng = np.random.default_rng(0)
    X, units = rng.normal(size=(6, 3)), np.array([1e-3, 1.0, 50.0])
    kernel, plain = 2.0 * ScaledRBF(0.8, units=units), 2.0 * RBF(0.8)
    Z, G = X / units, rng.normal(size=(6, 6))
    G = G + G.T
    np.testing.assert_allclose(kernel(X), plain(Z))
    np.testing.assert_allclose(evaluate(kernel, X, X[:2]), plain(Z, Z[:2]))
    tensor = plain(Z, eval_gradient=True)[1]
    np.testing.assert_allclose(contract(kernel, X, G), np.einsum("ij,ijp->p", G, tensor), rtol=1e-9)
    again = kernel.clone_with_theta(kernel.theta + 0.1)
    np.testing.assert_array_equal(again.k2.units, units)


# -- the level -------------------------------------------------------------------------------------------
def test_the_level_is_a_constant_with_a_wide_prior():
    """Regression against the exact Gaussian process of kernel + constant, in values and in predictions."""
    x, y = smooth(40)
    y = y + 100.0
    model = GaussianProcessRegressor(WAVE, Gaussian(0.01), optimizer=None, intercept_variance=7.0).fit(x, y)
    v = 7.0 * np.var(y)
    theirs = Exact(WAVE + ConstantKernel(v, "fixed"), alpha=0.01, optimizer=None).fit(x, y - y.mean())
    assert model.elbo_ == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-7)
    new = np.linspace(-5, 12, 30)[:, None]
    mean, sd = theirs.predict(new, return_std=True)
    h, rho = model.latent_mean_and_variance(new)
    np.testing.assert_allclose(h, mean + y.mean(), atol=1e-6)
    np.testing.assert_allclose(rho, sd**2, atol=1e-6)


def test_the_level_of_two_classes_against_quadrature():
    """With a kernel of nothing else the evidence is an integral over the level alone."""
    X, y = np.arange(10.0)[:, None], np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
    kernel = ConstantKernel(1e-9, "fixed") * RBF(1.0, "fixed")
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    mean = np.log(2.5 / 8.5)
    assert model.mean_ == pytest.approx(mean)
    level = np.linspace(mean - 40, mean + 40, 20001)
    log_p = -0.5 * (level - mean) ** 2 / 10.0 - 0.5 * np.log(2 * np.pi * 10.0)
    log_p = log_p - 8 * np.logaddexp(0, level) - 2 * np.logaddexp(0, -level)
    evidence = logsumexp(log_p) + np.log(level[1] - level[0])
    assert evidence - 0.1 < model.elbo_ <= evidence + 1e-9  # the best Gaussian's bound
    weight = np.exp(log_p - logsumexp(log_p))
    assert model.predict_proba([[50.0]])[0, 1] == pytest.approx(weight @ (1 / (1 + np.exp(-level))), abs=0.01)
    without = GaussianProcessClassifier(kernel, optimizer=None, fit_intercept=False).fit(X, y)
    assert without.elbo_ == pytest.approx(-10 * np.log(2), abs=1e-6)
    np.testing.assert_allclose(without.predict_proba(X), 0.5, atol=1e-6)


@pytest.mark.parametrize("estimator", ["softmax", "counts"])
def test_the_level_is_a_covariance_of_ones(estimator):
    """The same fit from a prior written out as a matrix, and the same prediction."""
    rng = np.random.default_rng(0)
    new = rng.normal(size=(4, 2))
    if estimator == "softmax":
        X, y = (part[::5] for part in load_iris(return_X_y=True))
        X, new, K = X[:, :2], 5 + new, 3
        model = GaussianProcessClassifier(WAVE, optimizer=None).fit(X, y)
        likelihood = fenchel.MultinomialLogit(3, reference=None, bound="tilted")
        mean = np.log(np.bincount(y) + 0.5)
        mean = mean - mean.mean()
    else:
        X, K = rng.normal(size=(30, 2)), 1
        y = rng.poisson(50 * np.exp(X[:, 0]))
        model = GaussianProcessPoissonRegressor(WAVE, optimizer=None).fit(X, y)
        likelihood, mean = Poisson(), np.array([np.log(y.mean())])
    prior = DenseCovariance(WAVE(X) + 10.0, offset=np.broadcast_to(mean, (len(y), K)))
    sol = fenchel.infer(likelihood, prior, y.astype(float), tol=1e-10)
    assert model.elbo_ == pytest.approx(sol.elbo, rel=1e-9)
    h, rho = sol.posterior.predict(
        cross=WAVE(new, X) + 10.0, variance=np.full(4, 12.0), offset=np.broadcast_to(mean, (4, K))
    )
    np.testing.assert_allclose(model.latent_mean_and_variance(new)[0], h, atol=1e-6)
    np.testing.assert_allclose(model.latent_mean_and_variance(new)[1], rho, atol=1e-6)


def test_evidence_gradient_with_a_level():
    X, y = (part[::5] for part in load_iris(return_X_y=True))
    model = GaussianProcessClassifier(1.3 * RBF([0.8, 1.7, 1.0, 2.0]), optimizer=None, intercept_variance=100.0).fit(
        X, y
    )
    theta = model.kernel_.theta + 0.1
    gradient = model.log_marginal_likelihood(theta, eval_gradient=True)[1]
    numeric = difference(model.log_marginal_likelihood, theta, step=1e-4)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


def test_a_wide_level_costs_no_digits():
    x, y = smooth(60)
    K, r, ones = WAVE(x) + 0.01 * np.eye(60), y - y.mean(), np.ones(60)
    solved = np.linalg.solve(K, np.column_stack([r, ones]))
    for v in (1e1, 1e3, 1e5):  # the level taken out by Sherman and Morrison: no matrix holds v
        model = GaussianProcessRegressor(WAVE, Gaussian(0.01), optimizer=None, intercept_variance=v / np.var(y))
        with said():  # at 1e5 the rounding that is allowed for may exceed tol
            model.fit(x, y)
        inner = 1.0 + v * ones @ solved[:, 1]
        exact = multivariate_normal(np.zeros(60), K).logpdf(r) - 0.5 * np.log(inner)
        exact += 0.5 * v * (ones @ solved[:, 0]) ** 2 / inner
        assert model.elbo_ == pytest.approx(exact, abs=1e-6)


def test_a_rare_class_has_its_level_far_from_the_data():
    rng = np.random.default_rng(1)
    X = rng.uniform(-3, 3, size=(600, 2))
    eta = -4.0 + 5.0 * np.exp(-((X - 1.0) ** 2).sum(axis=1))
    y = (rng.random(600) < 1 / (1 + np.exp(-eta))).astype(int)
    with_level = GaussianProcessClassifier().fit(X[:200], y[:200])
    without = GaussianProcessClassifier(fit_intercept=False).fit(X[:200], y[:200])
    assert with_level.elbo_ > without.elbo_ + 1.0
    assert with_level.score(X[200:], y[200:]) > without.score(X[200:], y[200:])
    far = np.array([[50.0, 50.0]])
    assert with_level.predict_proba(far)[0, 1] < 0.2
    assert without.predict_proba(far)[0, 1] == pytest.approx(0.5, abs=0.02)


def test_ordered_levels_have_cutpoints_instead():
    x, y = smooth(40)
    model = GaussianProcessRegressor(WAVE, likelihood="ordinal", optimizer=None).fit(x, np.digitize(y, [-0.5, 0.5]))
    plain = GaussianProcessRegressor(WAVE, likelihood="ordinal", optimizer=None, fit_intercept=False)
    assert model.elbo_ == plain.fit(x, np.digitize(y, [-0.5, 0.5])).elbo_


# -- kernels that are none -------------------------------------------------------------------------------
def test_an_indefinite_kernel_is_refused_at_both_doors():
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)
    kernel = 1.0 * ExpSineSquared(3.0, 5.0)
    assert np.linalg.eigvalsh(kernel(X))[0] < -0.05
    with pytest.raises(ValueError, match=r"is not positive semidefinite: its smallest eigenvalue is -0\.1"):
        DenseCovariance(kernel(X))
    for options in ({"optimizer": None}, {}):
        with pytest.raises(ValueError, match=r"is not positive semidefinite: its smallest eigenvalue is -0\.1"):
            GaussianProcessClassifier(kernel, **options).fit(X, y)
    with pytest.raises(ValueError, match="not positive semidefinite"):
        GaussianProcessClassifier(PairwiseKernel(metric="sigmoid"), optimizer=None).fit(X, y)
    line = GaussianProcessClassifier(kernel, optimizer=None).fit(X[:, :1], y)  # on the line it is a covariance
    assert line.converged_


def test_an_indefinite_theta_is_a_wall_in_the_search():
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = (X[:, 0] > 0).astype(float)
    kernel = ExpSineSquared(1.0, 9.0, (1e-1, 1e3), (1.0, 1e3)) + WhiteKernel(1e-2, "fixed")
    bad = kernel.clone_with_theta(np.log([3.0, 5.0]))
    assert np.linalg.eigvalsh(kernel(X))[0] > 0.0 > np.linalg.eigvalsh(bad(X))[0]
    family = KernelCovariance(kernel, X)
    with pytest.raises(ValueError, match="not positive semidefinite"):
        family.at(bad.theta)
    found = learn(fenchel.BernoulliLogit("tilted"), family, y)
    assert found.objective > Evidence(fenchel.BernoulliLogit("tilted"), family, y).fit(family.theta).elbo
    assert np.linalg.eigvalsh(kernel.clone_with_theta(found.theta)(X))[0] > -1e-12


def test_what_is_known_of_kernels():
    known = [
        2.0 * RBF(1.0) + WhiteKernel(0.1),
        Matern(nu=0.7) * RationalQuadratic(),
        DotProduct() ** 2,
        ScaledRBF(1.0, units=[1.0, 2.0]),
    ]
    assert all(is_covariance(kernel, 2) for kernel in known)
    unknown = [
        ExpSineSquared(),
        RBF() + PairwiseKernel(),
        RBF() ** 0.5,
        ConstantKernel(-1.0, "fixed") * RBF(),
        WhiteKernel(-0.1, "fixed"),
    ]
    assert not any(is_covariance(kernel, 2) for kernel in unknown)

    class Mine(RBF):
        """A subclass may be anything."""

    assert not is_covariance(Mine(), 2)
    X = np.random.default_rng(0).normal(size=(20, 2))
    assert GaussianProcessClassifier(Mine(), optimizer=None).fit(X, X[:, 0] > 0).converged_


def test_a_compound_kernel_is_refused_in_a_sentence():
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="kernel is a list of 2; expected one kernel: there is one function"):
        GaussianProcessClassifier(CompoundKernel([RBF(), RBF()])).fit(X, X[:, 0] > 0)
