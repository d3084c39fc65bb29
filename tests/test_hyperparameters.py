"""Families: evidence gradients against differences of refitted evidence, awkward rows included; learning; grids."""

import numpy as np
import pytest
from conftest import LIKELIHOOD_CASES, concrete, difference
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import fenchel
import fenchel.hyperparameters
from fenchel.hyperparameters import (
    ClassKernels,
    Evidence,
    Family,
    HalfNormal,
    KernelCovariance,
    Normal,
    PCDeviation,
    PCRange,
    WeightVariances,
    grid,
    independent,
    learn,
)
from fenchel.likelihoods import BernoulliLogit, Gaussian, Ordinal, Poisson, StochasticVolatility

FAMILIES = concrete(fenchel.hyperparameters, Family)


@pytest.mark.parametrize("cls", FAMILIES)
@pytest.mark.parametrize(("likelihood", "y"), LIKELIHOOD_CASES)
def test_evidence_gradient(cls, likelihood, y):
    family = cls.example(np.random.default_rng(0), len(y))
    if cls is ClassKernels:  # one for each predictor
        family = cls([family.parts[0].kernel] * likelihood.n_predictors, family.parts[0].X, level=0.5)
    y = y.copy()
    y[1] = np.nan
    if isinstance(likelihood, StochasticVolatility):
        y[[2, 5]] = 0.0

    def fit(theta):
        return fenchel.infer(likelihood, family.at(theta), y, tol=1e-18, max_iter=50)

    theta = family.theta
    found = fit(theta)
    gradient = family.gradient(found, theta)
    numeric = difference(lambda t: fit(t).elbo, theta, step=1e-4)
    rule = 10.0 * found.quadrature  # 0 but for a softmax, whose slopes are less exact than its values
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6 + rule)
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


# -- learning ------------------------------------------------------------------------------------------
def counts_on_a_line(seed=0, n=30):
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 6, n)[:, None]
    return x, rng.poisson(np.exp(1 + np.sin(2 * x[:, 0]))).astype(float)


def test_learning_finds_what_a_grid_finds():
    x, y = counts_on_a_line()
    family = KernelCovariance(1.0 * RBF(1.0), x, mean=1.0)
    found = learn(Poisson(), family, y)
    assert found.converged, found.status
    assert np.abs(found.gradient).max() < 1e-3
    around = grid(Poisson(), family, y, [found.theta[0] + np.linspace(-0.4, 0.4, 5), found.theta[1] + [-0.2, 0, 0.2]])
    assert found.objective >= around.elbo.max() - 1e-9
    np.testing.assert_allclose(around.theta, found.theta)
    assert found.solution.elbo == pytest.approx(found.objective)


def test_learning_is_exact_regression_where_that_is_known():
    """Gaussian noise: kernel and noise together, against scikit-learn's own evidence and optimum."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import WhiteKernel

    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, size=(40, 1))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=40)
    theirs = GaussianProcessRegressor(1.0 * RBF(1.0) + WhiteKernel(0.5), alpha=0.0).fit(x, y)
    ours = learn(Gaussian(0.5), KernelCovariance(1.0 * RBF(1.0), x), y)
    assert ours.objective == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-4)
    np.testing.assert_allclose(np.exp(ours.theta), np.exp(theirs.kernel_.theta), rtol=2e-2)
    assert ours.likelihood.variance == pytest.approx(theirs.kernel_.k2.noise_level, rel=2e-2)


def test_the_gradient_of_everything_learned():
    x, y = counts_on_a_line()
    log_prior = independent({0: PCDeviation(1.0, power=2.0), 1: PCRange(0.5, dimension=1)})
    for likelihood, target in ((Gaussian(0.7), y), (Ordinal([0.5, 1.5], bound="log-sum"), np.minimum(y, 2))):
        family = KernelCovariance(1.3 * RBF(0.8), x, log_prior=log_prior)
        evidence = Evidence(likelihood, family, target, tol=1e-17)
        theta = evidence.start + 0.1
        value, gradient = evidence(theta)
        numeric = difference(lambda t, e=evidence: e(t)[0], theta, step=1e-4)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)
        assert np.isfinite(value)


def test_restarts_never_hurt_and_are_seeded():
    x, y = counts_on_a_line(3, 15)
    family = KernelCovariance(ConstantKernel(1.0, (1e-2, 1e2)) * RBF(1.0, (0.1, 10)), x, mean=1.0)
    one = learn(Poisson(), family, y)
    more = learn(Poisson(), family, y, n_restarts=3, rng=0)
    again = learn(Poisson(), family, y, n_restarts=3, rng=0)
    assert more.objective >= one.objective - 1e-9
    assert len(more.restarts) == 4
    np.testing.assert_array_equal(more.theta, again.theta)


def test_learning_stays_within_bounds_and_stops_at_them():
    x, y = counts_on_a_line()
    family = KernelCovariance(ConstantKernel(1.0, (0.5, 2.0)) * RBF(1.0, (5.0, 6.0)), x, mean=1.0)
    found = learn(Poisson(), family, y)
    assert found.converged, found.status
    assert ((found.theta >= family.bounds[:, 0] - 1e-12) & (found.theta <= family.bounds[:, 1] + 1e-12)).all()


def test_one_variance_is_learned_in_few_fits(monkeypatch):
    """Newton's step is MacKay's: from a variance that is a thousand times too large, to the top of the evidence."""
    monkeypatch.setattr("fenchel.gates.MANY_ROWS", 1)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 30))
    y = X @ (0.3 * rng.normal(size=30)) + rng.normal(size=400)
    learned = learn(Gaussian(), WeightVariances(X, variance=100.0), y)
    assert learned.converged
    assert learned.n_evaluations <= 8

    def loss(theta):
        S = np.exp(theta[0]) * X @ X.T + np.exp(theta[1]) * np.eye(400)
        return 0.5 * np.linalg.slogdet(S)[1] + 0.5 * y @ np.linalg.solve(S, y)

    slope = [(loss(learned.theta + h) - loss(learned.theta - h)) / 2e-3 for h in 1e-3 * np.eye(2)]
    assert np.abs(slope).max() < 0.02
    many = WeightVariances(X, groups=np.arange(30))
    assert many.curvature(learned.solution, many.theta, np.zeros(30)) is None


def test_relevance_is_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = (rng.random(300) < 1 / (1 + np.exp(-2.5 * X[:, 0] - 1.5 * X[:, 1]))).astype(float)
    found = learn(BernoulliLogit("tilted"), WeightVariances(X, groups=[0, 1, 2, 3]), y)
    relevance = np.exp(found.theta)
    assert (relevance[:2] > 0.3).all()
    assert (relevance[2:] < 0.1).all()


@pytest.mark.parametrize(
    ("prior", "event", "probability"),
    [
        (PCDeviation(0.7, 0.05), lambda t: np.exp(t) > 0.7, 0.05),
        (HalfNormal(0.7, 0.05), lambda t: np.exp(t) > 0.7, 0.05),
        (PCDeviation(0.7, 0.05, power=2.0), lambda t: np.exp(t / 2) > 0.7, 0.05),
        (PCRange(0.4, 0.1, 2), lambda t: np.exp(t) < 0.4, 0.1),
        (PCRange(0.4, 0.1, 1), lambda t: np.exp(t) < 0.4, 0.1),
        (Normal(0.3, 2.0), lambda t: t < 0.3, 0.5),
    ],
)
def test_priors_are_densities_that_mean_what_they_say(prior, event, probability):
    t = np.linspace(-40, 40, 800_001)
    density = np.array([np.exp(prior(v)[0]) for v in t[::40]])
    t = t[::40]
    assert np.trapezoid(density, t) == pytest.approx(1.0, abs=2e-3)
    assert np.trapezoid(density * event(t), t) == pytest.approx(probability, abs=2e-3)
    for v in (-1.3, 0.2, 2.0):
        assert prior(v)[1] == pytest.approx((prior(v + 1e-6)[0] - prior(v - 1e-6)[0]) / 2e-6, rel=1e-6)


# -- grids ---------------------------------------------------------------------------------------------
def test_a_grid_in_parallel_and_with_drops_finds_the_same_best():
    x, y = counts_on_a_line()
    family = KernelCovariance(1.0 * RBF(1.0), x, mean=1.0)
    axes = [np.linspace(-3, 3, 6), np.linspace(-3, 2, 7)]
    whole = grid(Poisson(), family, y, axes)
    assert whole.certified <= 1e-8
    assert whole.elbo.shape == (6, 7)
    dropped = grid(Poisson(), family, y, axes, drop=0.0)
    assert dropped.dropped.any()
    np.testing.assert_allclose(dropped.theta, whole.theta)
    assert (dropped.elbo_upper[dropped.dropped] < whole.elbo.max()).all()
    assert (dropped.elbo_upper + 1e-6 >= whole.elbo)[dropped.dropped].all()
    assert dropped.n_iter.sum() < whole.n_iter.sum()
    side = grid(Poisson(), family, y, axes, n_jobs=2)
    np.testing.assert_allclose(side.elbo, whole.elbo, atol=1e-5)


def test_grids_and_learning_refuse():
    x, y = counts_on_a_line()
    family = KernelCovariance(1.0 * RBF(1.0), x)
    with pytest.raises(
        ValueError, match=r"axes of shapes \[\(3,\)\]; expected 2 vectors, one for each of k1__constant"
    ):
        grid(Poisson(), family, y, [[0.0, 1.0, 2.0]])
    with pytest.raises(ValueError, match=r"theta has shape \(3,\); expected 2 finite numbers"):
        learn(Poisson(), family, y, theta=np.zeros(3))
    with pytest.raises(ValueError, match=r"X has shape \(3,\)"):
        KernelCovariance(RBF(1.0), np.zeros(3))
    with pytest.raises(ValueError, match=r"groups has shape \(2,\); expected \(3,\)"):
        WeightVariances(np.ones((4, 3)), groups=[0, 1])
    with pytest.raises(ValueError, match="u = -1"):
        PCDeviation(-1)


@pytest.mark.parametrize("seed", range(6))
def test_learning_does_not_end_on_the_wrong_side_of_the_top(seed):
    """A variance of weights that a first long step takes to its lower bound, where the evidence is flat."""
    from fenchel.hyperparameters import WeightVariances

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 1))
    y = rng.poisson(np.exp(0.5 + 0.3 * x[:, 0])).astype(float)
    design = np.column_stack([x - x.mean(), np.ones(80)])
    family = WeightVariances(design, np.array([0, -1]), np.array([1.0, 100.0]), np.array([0.0, np.log(y.mean())]))
    found = learn(Poisson(), family, y)
    grid = np.linspace(*family.bounds[0], 41)
    best = max(fenchel.infer(Poisson(), family.at(np.array([t])), y).elbo for t in grid)
    assert found.objective >= best - 1e-6


# -- new rows ------------------------------------------------------------------------------------------
def test_new_rows_of_every_family_are_where_the_fit_is():
    """The rows of the fit, asked for as new ones, have the fit's own posterior: with a level, an offset, a variance."""
    from fenchel import gmrf

    rng = np.random.default_rng(4)
    n, x = 12, rng.normal(size=(12, 2))
    y = rng.poisson(2.0, n).astype(float)
    K = np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1))
    W = np.column_stack([x, np.ones(n)])
    node = np.arange(n) % 5
    asked = [
        (KernelCovariance(1.5 * RBF(0.8), x, mean=0.2, offset=[[0.3]], level=2.0), x),
        (WeightVariances(W, groups=[0, 0, -1], variance=[1.0, 1.0, 9.0], offset=0.4), W),
        (fenchel.hyperparameters.ScaledCovariance(K, variance=1.7, offset=0.1), (K, np.ones(n))),
        (gmrf.ar1(n), np.eye(n)),
        (gmrf.stack([(gmrf.iid(5), node)], fixed=x, offset=0.7), ([node], x)),
    ]
    for family, table in asked:
        theta = family.theta + 0.1
        sol = fenchel.infer(Poisson(), family.at(theta), y, tol=1e-14)
        mean, variance = sol.posterior.predict(family.new_rows(theta, table))
        np.testing.assert_allclose(mean, sol.posterior.mean, atol=1e-8, err_msg=type(family).__name__)
        np.testing.assert_allclose(variance, sol.posterior.variance, atol=1e-8, err_msg=type(family).__name__)
        assert sol.posterior.at(family.new_rows(theta, table)).mean.shape == (n,)


def test_new_rows_refuse_what_they_cannot_know():
    x = np.arange(4.0)[:, None]
    with pytest.raises(ValueError, match=r"KernelCovariance: the rows of the fit have an offset each, of shape \(4,\)"):
        KernelCovariance(1.0 * RBF(1.0), x, offset=np.zeros(4)).new_rows(np.zeros(2), x)
    with pytest.raises(ValueError, match=r"KernelCovariance: new rows have shape \(4, 2\); expected \(M, 1\)"):
        KernelCovariance(1.0 * RBF(1.0), x).new_rows(np.zeros(2), np.ones((4, 2)))
