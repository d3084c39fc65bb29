"""Inducing points: features, pivots, slopes in theta, and the bound on what they cost, against the exact process."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.gaussian_process import kernels as sk

import fenchel
from fenchel.cross_kernels import cross, cross_slopes, variance_slopes, variances
from fenchel.hyperparameters import (
    Evidence,
    InducingCovariance,
    KernelCovariance,
    inducing_learning,
    inducing_loss,
    learn,
    learn_inducing,
)
from fenchel.hyperparameters.inducing_loss import approximation_loss
from fenchel.hyperparameters.search import Search
from fenchel.likelihoods import BernoulliLogit, Binomial, Gaussian, MultinomialLogit, Poisson, Weibull
from fenchel.priors import DenseCovariance, InducingPoints, inducing
from fenchel.priors.pivots import choose_rows
from fenchel.scaled_kernels import ScaledRBF

KERNELS = [
    2.0 * sk.RBF([1.0, 2.0, 0.5]),
    sk.Matern(1.1, nu=0.5),
    sk.Matern([1.1, 0.4, 2.0], nu=1.5) + sk.WhiteKernel(0.3),
    sk.Matern(1.1, nu=2.5) * sk.RBF(2.0) * sk.ConstantKernel(3.0),
    sk.Matern(0.7, nu=1.1),
    sk.RationalQuadratic(1.3, 0.7),
    sk.ExpSineSquared(1.1, 2.3),
    0.5 * sk.DotProduct(0.7) ** 2,
    ScaledRBF(1.3, units=[1.0, 2.0, 3.0]),
    sk.ConstantKernel(2.0, "fixed") * sk.RBF(1.0) + sk.ConstantKernel(0.3),
]


def slope(function, x, step=1e-3):
    """Differences of fourth order."""

    def along(e):
        near, far = (function(x + n * e) - function(x - n * e) for n in (1, 2))
        return (8.0 * near - far) / (12.0 * step)

    return np.array([along(e) for e in step * np.eye(x.size)])


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels_between_rows_are_scikit_learns(kernel):
    rng = np.random.default_rng(0)
    X, Z, T = rng.normal(size=(7, 3)), rng.normal(size=(5, 3)), rng.normal(size=(7, 5))
    np.testing.assert_allclose(cross(kernel, X, Z), kernel(X, Z), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(variances(kernel, X), kernel.diag(X), rtol=1e-13)

    def at(theta):
        return kernel.clone_with_theta(theta)

    expected = slope(lambda theta: np.sum(T * at(theta)(X, Z)), kernel.theta, 1e-4)
    np.testing.assert_allclose(cross_slopes(kernel, X, Z, T), expected, rtol=1e-8, atol=1e-9)
    expected = slope(lambda theta: np.sum(T[:, 0] * at(theta).diag(X)), kernel.theta, 1e-4)
    np.testing.assert_allclose(variance_slopes(kernel, X, T[:, 0]), expected, rtol=1e-8, atol=1e-9)


def test_kernels_on_torch_are_those_on_numpy():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X, Z, T = rng.normal(size=(7, 3)), rng.normal(size=(5, 3)), rng.normal(size=(7, 5))
    for kernel in KERNELS:
        there = [torch.asarray(x) for x in (X, Z, T)]
        np.testing.assert_allclose(cross(kernel, *there[:2]).numpy(), cross(kernel, X, Z), rtol=1e-12)
        np.testing.assert_allclose(cross_slopes(kernel, *there), cross_slopes(kernel, X, Z, T), rtol=1e-9, atol=1e-12)


# -- pivots --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(4))
def test_pivots_are_those_of_the_greedy_rule(seed):
    rng = np.random.default_rng(seed)
    X, w, kernel = rng.normal(size=(900, 1 + seed)), rng.gamma(1.0, 1.0, 900), 1.3 * sk.RBF(0.4 + 0.2 * seed)
    K, G, c, picked = kernel(X), np.zeros((900, 0)), np.full(900, 1.3), []
    for _ in range(80):
        if c.max() <= 1e-9 * 1.3:
            break
        i = int(np.argmax(w * np.where(c > 1e-9 * 1.3, c, 0.0)))
        g = (K[:, i] - G @ G[i]) / np.sqrt(c[i])
        G, c = np.column_stack([G, g]), np.maximum(c - g * g, 0.0)
        c[i] = 0.0
        picked.append(i)
    ours = choose_rows(kernel, X, 80, w)
    same = min(len(picked), 40)  # beyond, rounding may decide between nearly equal scores
    np.testing.assert_array_equal(ours[:same], picked[:same])
    assert len(set(ours)) == len(ours)


def test_pivots_of_duplicates_and_of_few_rows():
    X = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 5, axis=0)
    chosen = choose_rows(sk.RBF(0.3), X, 100)
    assert len(chosen) == len(np.unique(X[chosen], axis=0)) == 30
    assert len(choose_rows(sk.RBF(1.0) + sk.WhiteKernel(0.1), np.zeros((9, 2)), 20)) == 1


# -- the fit -------------------------------------------------------------------------------------------
def problems(n=120, D=2, seed=0):
    """A likelihood with y, of every kind."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    f = 1.5 * np.sin(1.5 * X[:, 0]) + (X[:, -1] if D > 1 else 0.0)
    binary = (f + rng.logistic(size=n) > 0.0).astype(float)
    classes = np.argmax(np.column_stack([f, -f, 0.5 * f]) + rng.gumbel(size=(n, 3)), axis=1)
    return X, {
        "counts": (Poisson(), rng.poisson(np.exp(f)).astype(float)),
        "tilted": (BernoulliLogit("tilted"), binary),
        "exact": (BernoulliLogit("exact"), binary),
        "gaussian": (Gaussian(0.3), f + np.sqrt(0.3) * rng.normal(size=n)),
        "survival": (Weibull(1.5), np.exp(f) * rng.weibull(1.5, size=n)),
        "softmax": (MultinomialLogit(3, bound="tilted"), classes.astype(float)),
    }


KINDS = tuple(problems()[1])


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_point_at_every_row_the_fit_is_the_exact_one(kind):
    X, every = problems(40)
    likelihood, y = every[kind]
    kernel = 1.5 * sk.Matern(1.2, nu=1.5)
    few = fenchel.infer(likelihood, InducingPoints(kernel, X, X, offset=0.1, level=2.0), y, tol=1e-11)
    exact = fenchel.infer(likelihood, DenseCovariance(kernel(X) + 2.0, offset=0.1), y, tol=1e-11)
    assert few.elbo == pytest.approx(exact.elbo, abs=1e-7)
    np.testing.assert_allclose(few.posterior.mean, exact.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(few.posterior.variance, exact.posterior.variance, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_points", [10, 45])
def test_slopes_in_theta_are_those_of_differences(kind, n_points):
    X, every = problems(60)
    likelihood, y = every[kind]
    kernel = 1.4 * sk.RBF([1.1, 0.7]) + 0.5 * sk.Matern(1.3, nu=1.5)
    family = InducingCovariance(kernel, X, X[:n_points], offset=0.1, level=3.0)

    def fit(theta):
        return fenchel.infer(likelihood, family.at(theta), y, tol=1e-13, max_iter=100)

    ours = family.gradient(fit(family.theta), family.theta)
    expected = slope(lambda theta: fit(theta).elbo, family.theta)
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=2e-6)


def test_slopes_under_a_softmax_without_a_bound():
    X, every = problems(40)
    y = every["softmax"][1]
    likelihood = MultinomialLogit(3, bound="exact")
    family = InducingCovariance(1.4 * sk.RBF(0.9), X, X[:8], level=3.0)

    def fit(theta):
        return fenchel.infer(likelihood, family.at(theta), y, tol=1e-12, max_iter=100)

    ours = family.gradient(fit(family.theta), family.theta)
    np.testing.assert_allclose(ours, slope(lambda theta: fit(theta).elbo, family.theta), rtol=1e-5, atol=1e-5)


def test_rows_that_are_made_again_give_the_same_fit(monkeypatch):
    X, every = problems(700)
    likelihood, y = every["counts"]
    y[5] = np.nan
    family = InducingCovariance(1.5 * sk.RBF(0.8), X, X[:40], level=2.0)
    kept = fenchel.infer(likelihood, family.at(family.theta), y)
    slopes = family.gradient(kept, family.theta)
    monkeypatch.setattr(inducing, "_KEPT_BYTES", 0.0)
    remade = InducingCovariance(1.5 * sk.RBF(0.8), X, X[:40], level=2.0)
    prior = remade.at(remade.theta)
    again = fenchel.infer(likelihood, prior, y)
    assert type(prior.design).__name__ == "RemadeRows"
    assert again.elbo == pytest.approx(kept.elbo, abs=1e-8)
    np.testing.assert_allclose(again.posterior.variance, kept.posterior.variance, rtol=1e-9)
    np.testing.assert_allclose(remade.gradient(again, remade.theta), slopes, rtol=1e-7)
    bounds = [approximation_loss(fit, family.at(family.theta)).bound for fit in (kept, again)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)


def test_predictions_are_those_of_the_exact_process_with_enough_points():
    X, every = problems(200, D=1)
    likelihood, y = every["counts"]
    kernel, new = 1.5 * sk.RBF(0.8), np.linspace(-4.0, 4.0, 30)[:, None]
    few = InducingCovariance(kernel, X, X[choose_rows(kernel, X, 40)], offset=0.2, level=2.0)
    exact = KernelCovariance(kernel, X, offset=0.2, level=2.0)
    etas = []
    for family in (few, exact):
        post = fenchel.infer(likelihood, family.at(family.theta), y, tol=1e-10).posterior
        etas.append(post.at(family.new_rows(family.theta, new)))
    np.testing.assert_allclose(etas[0].mean, etas[1].mean, atol=1e-4)
    np.testing.assert_allclose(etas[0].variance, etas[1].variance, atol=1e-4)


# -- the bound -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("D", [1, 2, 5])
def test_the_bound_is_never_below_the_loss_and_not_far_above(kind, D):
    X, every = problems(150, D)
    likelihood, y = every[kind]
    kernel = 2.0 * sk.RBF(0.4 * D**0.5) if D < 5 else 2.0 * sk.Matern(2.5, nu=1.5)
    exact = fenchel.infer(likelihood, DenseCovariance(kernel(X) + 3.0), y, tol=1e-11)
    weights = None
    for n_points in (6, 12, 25, 50, 100):
        prior = InducingPoints(kernel, X, X[choose_rows(kernel, X, n_points, weights)], level=3.0)
        few = fenchel.infer(likelihood, prior, y, tol=1e-11)
        weights = np.sum(few.lam + few.alpha**2, axis=1)
        loss, bound = exact.elbo - few.elbo, approximation_loss(few, prior).bound
        assert loss <= bound + exact.gap + 1e-9
        if 0.01 <= loss <= 10.0:
            assert bound <= 3.0 * loss


@pytest.mark.filterwarnings("ignore")  # fits that are cut off
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_holds_for_any_rows_and_for_fits_that_have_not_converged(kind, seed):
    """Weights, of which some are 0, offsets, white noise, duplicated rows, any points, variances from 1e-2 to 1e2."""
    rng = np.random.default_rng(seed)
    n = (1, 2, 9, 20, 30, 40)[seed]
    X, every = problems(n, 2, seed)
    likelihood, y = every[kind]
    X[n // 2 :: 3] = X[0]
    kernel = 10.0 ** rng.uniform(-2.0, 2.0) * sk.Matern(10.0 ** rng.uniform(-0.5, 0.5), nu=1.5) + sk.WhiteKernel(0.01)
    level, offset, weights = seed % 2 * 4.0, rng.normal(size=n), rng.uniform(0.2, 4.0, n) * (rng.random(n) < 0.8)
    weights[0] = 1.0
    points = X[: 1 + n // 3] if seed % 3 else rng.normal(size=(1 + n // 4, 2))
    exact = fenchel.infer(likelihood, DenseCovariance(kernel(X) + level, offset=offset), y, weights=weights, tol=1e-10)
    prior = InducingPoints(kernel, X, points, offset=offset, level=level)
    for run in ({"tol": 1e-10}, {"tol": 1e-2}, {"max_iter": 1}):
        few = fenchel.infer(likelihood, prior, y, weights=weights, **run)
        for enough in (0.0, np.inf):
            lost = exact.elbo - few.elbo
            assert lost <= approximation_loss(few, prior, enough=enough).bound + 1e-8 * max(1.0, abs(exact.elbo))


@pytest.mark.parametrize("kind", ["counts", "softmax"])
def test_the_estimate_from_sampled_rows_is_that_of_all_pairs(kind, monkeypatch):
    X, every = problems(300)
    likelihood, y = every[kind]
    kernel = 2.0 * sk.RBF(0.7) + sk.WhiteKernel(0.01)
    prior = InducingPoints(kernel, X, X[choose_rows(kernel, X, 30)], level=3.0)
    few = fenchel.infer(likelihood, prior, y)
    whole = approximation_loss(few, prior, enough=np.inf)
    assert approximation_loss(few, prior).bound < whole.bound
    monkeypatch.setattr(inducing_loss, "PAIRS", 1.0)
    drawn = [approximation_loss(few, prior, seed) for seed in range(12)]
    mean, error = np.mean([d.bound for d in drawn]), np.mean([d.standard_error for d in drawn])
    assert whole.standard_error == 0.0
    assert "estimate" in drawn[0].sentence
    assert "proved" in whole.sentence
    assert abs(mean - whole.bound) <= 4.0 * error / np.sqrt(12.0) + 1e-9
    assert 0.3 * error < np.std([d.bound for d in drawn]) < 3.0 * error


def test_the_bound_without_a_dual_by_dense_matrices(monkeypatch):
    """By tangents; the best value of their problem for the exact process, searched for, is below."""
    X, every = problems(60)
    likelihood, y = every["exact"]
    kernel = 2.0 * sk.RBF(0.7)
    prior = InducingPoints(kernel, X, X[choose_rows(kernel, X, 20)], level=3.0)
    few = fenchel.infer(likelihood, prior, y, tol=1e-12)
    plain, better = approximation_loss(few, prior, enough=np.inf), approximation_loss(few, prior)
    G, K, c = prior.design.toarray(), kernel(X) + 3.0, prior.extra_variance
    R, lam, alpha, rho = K - G @ G.T, few.lam[:, 0], few.alpha[:, 0], few.posterior.variance
    v = rho - c
    dense = 0.5 * alpha @ R @ alpha + 0.5 * lam @ (2.0 * c - v * np.log(rho / v))
    assert plain.bound == pytest.approx(dense, rel=1e-6)
    assert better.bound < plain.bound

    def value(x):  # of what is maximised over log lam, less that of the sparse fit: K in the place of Q
        return -0.5 * np.linalg.slogdet(np.eye(60) + K * np.exp(x))[1] - 0.5 * np.sum((lam**2 * rho) * np.exp(-x))

    highest = max(minimize(lambda x: -value(x), start).fun * -1.0 for start in (np.log(lam), np.log(lam) + 1.0))
    sparse = -0.5 * np.linalg.slogdet(np.eye(60) + G @ G.T * lam)[1] - 0.5 * lam @ (2.0 * rho - v)
    assert highest - sparse <= plain.spreads + 1e-8
    monkeypatch.setattr(inducing_loss, "PAIRS", 1.0)
    drawn = [approximation_loss(few, prior, seed) for seed in range(12)]
    mean, error = np.mean([d.bound for d in drawn]), np.mean([d.standard_error for d in drawn])
    assert abs(mean - dense) <= 4.0 * error / np.sqrt(12.0) + 1e-9


def test_log_determinants_are_below_those_of_dense_matrices():
    X, every = problems(70)
    kernel = 2.0 * sk.RBF(0.5)
    for kind in ("counts", "softmax"):
        likelihood, y = every[kind]
        prior = InducingPoints(kernel, X, X[choose_rows(kernel, X, 30)], level=3.0)
        few = fenchel.infer(likelihood, prior, y, tol=1e-12)
        Q, lam = prior.design.toarray() @ prior.design.toarray().T, few.lam
        each = [[np.linalg.slogdet(np.eye(70) + S * own)[1] for S in (kernel(X) + 3.0, Q)] for own in lam.T]
        exact = sum(a - b for a, b in each)
        plain, better = approximation_loss(few, prior, enough=np.inf), approximation_loss(few, prior)
        found = 2.0 * (plain.spreads - better.spreads)
        assert 0.5 * exact < found <= exact + 1e-9


def test_white_noise_counts_in_the_bound():
    """K - Q holds the noise of a row with itself: by dense matrices."""
    X, every = problems(80)
    likelihood, y = every["gaussian"]
    kernel = 2.0 * sk.RBF(0.9) + sk.WhiteKernel(0.05)
    prior = InducingPoints(kernel, X, X[:20])
    few = fenchel.infer(likelihood, prior, y, tol=1e-12)
    G = prior.design.toarray()
    R = kernel(X) - G @ G.T
    dense = 0.5 * (few.alpha[:, 0] @ R @ few.alpha[:, 0] + few.lam[:, 0] @ np.diag(R))
    assert approximation_loss(few, prior, enough=np.inf).bound == pytest.approx(dense + few.gap, rel=1e-8)


# -- learning ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["counts", "gaussian", "exact", "softmax"])
def test_learning_comes_as_near_to_the_exact_process_as_it_says(kind):
    X, every = problems(250)
    likelihood, y = every[kind]
    kernel = 1.0 * sk.RBF([1.0, 1.0], (1e-2, 1e2))
    few = learn_inducing(likelihood, InducingCovariance(kernel, X, X[:1], level=3.0), y, loss=0.05, most_points=250)
    theta = few.learned.theta
    exact = KernelCovariance(kernel, X, level=3.0).at(theta[:3])
    there = fenchel.infer(few.learned.likelihood, exact, y, tol=1e-10)
    assert 0.0 <= there.elbo - few.learned.solution.elbo + 1e-6 <= few.loss.bound + 1e-6
    if kind != "softmax":
        best = learn(likelihood, KernelCovariance(kernel, X, level=3.0), y)
        assert best.solution.elbo - there.elbo < 0.02
    assert few.loss.bound <= 0.05
    assert few.stages[-1]["bound"] == few.loss.bound
    assert few.learned.converged


@pytest.mark.parametrize("kind", ["counts", "gaussian", "exact", "softmax"])
@pytest.mark.parametrize("n_inducing", [30, "auto", "given"])
def test_many_rows_are_learned_from_by_a_sample_first(kind, n_inducing, monkeypatch):
    """To the same elbo as all rows from the start, but for what a step may gain, in a few evaluations of all rows."""
    X, every = problems(1200)
    likelihood, y = every[kind]
    kernel = 1.0 * sk.RBF([1.0, 1.0], (1e-2, 1e2))
    family = InducingCovariance(kernel, X, X[:1], level=3.0)
    points = X[:30] if n_inducing == "given" else n_inducing
    whole = learn_inducing(likelihood, family, y, n_inducing=points, loss=1.0)
    monkeypatch.setattr(inducing_learning, "SAMPLE_ROWS", 200)
    monkeypatch.setattr(inducing_learning, "SAMPLE_SHARE", 2)
    few = learn_inducing(likelihood, family, y, n_inducing=points, loss=1.0)
    assert few.learned.converged
    assert abs(few.learned.solution.elbo - whole.learned.solution.elbo) < 0.7
    assert few.learned.solution.n_observed == 1200


def test_weights_and_offsets_of_rows_come_with_a_sample(monkeypatch):
    X, every = problems(900)
    y, rng = every["counts"][1], np.random.default_rng(0)
    offset, weights = 0.3 * rng.normal(size=900), rng.integers(0, 3, 900).astype(float)
    family = InducingCovariance(1.0 * sk.RBF(1.0), X, X[:1], offset=offset, level=3.0)
    whole = learn_inducing(Poisson(np.full(900, 2.0)), family, y, n_inducing=60, weights=weights)
    monkeypatch.setattr(inducing_learning, "SAMPLE_ROWS", 300)
    monkeypatch.setattr(inducing_learning, "SAMPLE_SHARE", 2)
    few = learn_inducing(Poisson(np.full(900, 2.0)), family, y, n_inducing=60, weights=weights)
    assert few.learned.n_evaluations < whole.learned.n_evaluations
    assert abs(few.learned.solution.elbo - whole.learned.solution.elbo) < 0.5


def test_a_sample_of_few_weighted_rows_is_drawn_once(monkeypatch):
    X, every = problems(900)
    drawn, with_rows = [], InducingCovariance.with_rows
    monkeypatch.setattr(inducing_learning, "SAMPLE_ROWS", 300)
    monkeypatch.setattr(inducing_learning, "SAMPLE_SHARE", 2)
    monkeypatch.setattr(InducingCovariance, "with_rows", lambda family, i: drawn.append(i) or with_rows(family, i))
    family, weights = InducingCovariance(1.0 * sk.RBF(1.0), X, X[:1], level=3.0), (np.arange(900) < 200).astype(float)
    learn_inducing(Poisson(), family, every["counts"][1], n_inducing=30, weights=weights)
    assert [some.tolist() for some in drawn] == [list(range(200))]


def test_steps_that_take_long_limit_the_number_of_points():
    host, device = inducing_learning.MOST_WORK, inducing_learning.DEVICE_WORK
    sizes = inducing_learning._sizes
    assert sizes("auto", 40_000, 2_000, host) == [100, 200, 400, 800]
    assert sizes("auto", 40_000, 2_000, device) == [100, 200, 400, 800, 1600, 2000]
    assert sizes("auto", 150, 150, host) == [100, 150]
    assert sizes(3_000, 40_000, 2_000, host) == [3_000]  # asked for


def test_a_hopeless_bound_is_left_as_it_is():
    X, every = problems(150)
    for kind in ("counts", "exact"):
        likelihood, y = every[kind]
        prior = InducingPoints(1.5 * sk.RBF(0.8), X, X[:10], level=2.0)
        fit = fenchel.infer(likelihood, prior, y)
        sharp, plain = (approximation_loss(fit, prior, hopeless=most).bound for most in (np.inf, 0.0))
        assert sharp < 0.99 * plain < 2.0 * sharp
        assert approximation_loss(fit, prior, hopeless=plain).bound == sharp


def test_a_factor_is_made_again_where_a_site_has_changed():
    X, _ = problems(60)
    predictors = InducingPoints(1.5 * sk.RBF(0.8), X, X[:10], level=2.0).bind(60, 1, False)
    lam = np.ones((60, 1))
    first = predictors.at(lam)
    assert predictors.at(lam.copy()) is first
    lam[7] = 2.0
    own = InducingPoints(1.5 * sk.RBF(0.8), X, X[:10], level=2.0).bind(60, 1, False).at(lam)
    np.testing.assert_allclose(predictors.at(lam.copy()).variance, own.variance)
    assert abs(own.log_det - first.log_det) > 0.01


@pytest.mark.parametrize("when", [3, 14, 40])
def test_an_interrupt_leaves_the_best_fit_so_far(when, monkeypatch):
    X, every = problems(900)
    likelihood, y = every["counts"]
    monkeypatch.setattr(inducing_learning, "SAMPLE_ROWS", 200)
    monkeypatch.setattr(inducing_learning, "SAMPLE_SHARE", 2)
    family, heard = InducingCovariance(1.0 * sk.RBF([1.0, 1.0]), X, X[:1], level=3.0), []

    def callback(row):
        heard.append(row["elbo"])
        if len(heard) == when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stop:
        learn_inducing(likelihood, family, y, n_inducing=30, loss=1e-3, callback=callback)
    if when == 3:  # nothing has been fitted yet
        assert type(stop.value) is KeyboardInterrupt
        return
    few = stop.value.finished
    assert few.ending == "the fit was interrupted"
    assert few.learned.solution.n_observed == 900
    assert few.loss.bound == np.inf
    assert "interrupted" in few.loss.sentence


def test_points_that_are_given_stay_and_a_number_is_kept():
    X, every = problems(150)
    likelihood, y = every["counts"]
    family = InducingCovariance(1.0 * sk.RBF(1.0), X, X[:1], level=3.0)
    given = learn_inducing(likelihood, family, y, n_inducing=X[:17] + 0.1)
    np.testing.assert_array_equal(given.family.points, X[:17] + 0.1)
    assert len(learn_inducing(likelihood, family, y, n_inducing=23).family.points) == 23
    held = learn_inducing(likelihood, family, y, n_inducing=500, learn_theta=False)
    assert len(held.family.points) <= 150
    np.testing.assert_array_equal(held.learned.theta, family.theta)
    assert held.loss.bound < 1e-4
    rough = InducingCovariance(1.0 * sk.Matern(1.0, nu=0.5), X, X[:1], level=3.0)
    slow = learn_inducing(likelihood, rough, y, loss=1e-9, seconds=0.0)
    assert "too long" in slow.ending
    with pytest.raises(ValueError, match="n_inducing"):
        learn_inducing(likelihood, family, y, n_inducing="many")
    with pytest.raises(ValueError, match="n_inducing = 0"):
        learn_inducing(likelihood, family, y, n_inducing=0)


def test_constant_columns_and_duplicated_rows_are_learned_from():
    X, every = problems(150)
    likelihood, y = every["gaussian"]
    X = np.column_stack([np.repeat(X[:50], 3, axis=0), np.ones(150)])
    y = np.repeat(y[:50], 3) + 0.1 * np.random.default_rng(0).normal(size=150)
    family = InducingCovariance(1.0 * sk.RBF([1.0, 1.0, 1.0], (1e-2, 1e2)), X, X[:1], level=3.0)
    found = learn_inducing(likelihood, family, y, most_points=150)
    assert len(found.family.points) <= 50
    assert found.loss.bound < 0.15


def test_the_prior_refuses_what_is_none():
    X = np.zeros((5, 2))
    with pytest.raises(ValueError, match="points"):
        InducingPoints(sk.RBF(1.0), X, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="not positive semidefinite"):
        InducingPoints(-1.0 * sk.RBF(1.0), X, np.zeros((2, 2)))


@pytest.mark.parametrize("likelihood", [Gaussian(1.0), Binomial(2.0, bound="tilted")])
def test_rows_whose_means_say_nothing_have_a_loss(likelihood, monkeypatch):
    """y is where the prior is, so that alpha is 0 in every row, and what the points cost is in the variances."""
    X = np.linspace(-3.0, 3.0, 40)[:, None]
    y = np.zeros(40) if likelihood.name == "Gaussian" else np.ones(40)
    prior = InducingPoints(sk.RBF(0.5), X, X[::8])
    few = fenchel.infer(likelihood, prior, y)
    exact = fenchel.infer(likelihood, DenseCovariance(sk.RBF(0.5)(X)), y)
    assert 1.0 < exact.elbo - few.elbo <= approximation_loss(few, prior).bound
    monkeypatch.setattr(inducing_loss, "PAIRS", 1.0)  # nothing is drawn of sums that are 0
    assert exact.elbo - few.elbo <= approximation_loss(few, prior).bound


def test_a_kernel_that_is_fixed_has_nothing_to_learn(monkeypatch):
    X, every = problems(300)
    kernel = sk.ConstantKernel(2.0, "fixed") * sk.RBF(0.7, "fixed")
    family = InducingCovariance(kernel, X, X[:1], level=3.0)
    monkeypatch.setattr(inducing_learning, "SAMPLE_ROWS", 50)
    monkeypatch.setattr(inducing_learning, "SAMPLE_SHARE", 1)
    likelihood, y = every["counts"]
    few = learn_inducing(likelihood, family, y, n_inducing=20)
    prior = InducingPoints(kernel, X, few.family.points, level=3.0)
    assert few.learned.solution.elbo == pytest.approx(fenchel.infer(likelihood, prior, y).elbo, abs=1e-5)
    noisy, y = every["gaussian"]
    found = learn_inducing(noisy, family, y, n_inducing=20, loss=1e-3).learned
    assert abs(found.gradient).max() < 0.1  # of the noise alone
    assert found.gradient.size == 1
    with pytest.raises(ValueError, match="n_inducing = 0; expected an integer >= 1"):
        learn_inducing(noisy, family, y, n_inducing=0)


def test_few_rows_end_because_of_the_bound():
    """Points that nobody asked for, of fewer rows than the first number of them."""
    x = np.linspace(0.0, 6.0, 40)[:, None]
    y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(2.0 * x[:, 0])))
    assert "below loss" in learn_inducing(Poisson(), InducingCovariance(1.0 * sk.RBF(1.0), x, x[:1]), y).ending


def test_a_sample_says_how_well_all_rows_know_the_noise(monkeypatch):
    """Its rows count once, and what they say of the noise counts for all."""
    monkeypatch.setattr(inducing_learning, "SAMPLE_ROWS", 200)
    monkeypatch.setattr(inducing_learning, "SAMPLE_SHARE", 1)
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, (6000, 1))
    y = 1.5 * np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=6000)
    calls = []
    found = learn_inducing(
        Gaussian(0.5), InducingCovariance(1.0 * sk.RBF(1.0), x, x[:1]), y, n_inducing=20, callback=calls.append
    )
    assert found.learned.converged
    assert len([row for row in calls if row["elbo"] < -1000.0]) <= 10  # evaluations of all rows
    assert found.learned.theta[-1] == pytest.approx(np.log(0.09), abs=0.05)


def test_an_interrupt_of_a_refit_keeps_the_fit_before():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, (60, 1))
    family = KernelCovariance(1.0 * sk.RBF(1.0), x)
    evidence = Evidence(Poisson(), family, rng.poisson(np.exp(np.sin(x[:, 0]))))
    search = Search(evidence, 100, 1e-3, None)
    search.negative(evidence.start)
    search.known.solution.gap = 1.0
    evidence.fit = lambda theta: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        search.certify()
    assert search.learned().objective == search.known.value


@pytest.mark.parametrize("rows", [10_000, 60])
def test_an_interrupt_at_new_points_keeps_the_family_of_the_fit(rows, monkeypatch):
    monkeypatch.setattr(inducing_learning, "SAMPLE_ROWS", rows)
    monkeypatch.setattr(inducing_learning, "SAMPLE_SHARE", 0)
    monkeypatch.setattr(inducing_learning, "LEAST_ROUGH", 5)
    x = np.linspace(0, 6, 300)[:, None]
    y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    chosen, choose = [], inducing_learning._Run.choose

    def interrupted(evidence, theta):
        if len(chosen) == 2:
            chosen.append(0)
            raise KeyboardInterrupt
        return original(evidence, theta)

    original = Evidence.__call__
    monkeypatch.setattr(Evidence, "__call__", interrupted)
    monkeypatch.setattr(inducing_learning._Run, "choose", lambda run, size: (choose(run, size), chosen.append(size)))
    with pytest.raises(inducing_learning.InterruptedLearning) as stop:
        learn_inducing(Poisson(), InducingCovariance(1.0 * sk.RBF(1.0), x, x[:1], level=10.0), y, n_inducing=40)
    few = stop.value.finished
    assert len(few.family.points) == 10
    assert few.learned.solution.posterior.latent_mean.shape[0] == 11
