"""Few Gaussian rows in closed form: against scikit-learn's evidence, repeated rows and the search with fits."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor as Theirs
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from fenchel import BernoulliLogit, Gaussian, GaussianProcessRegressor
from fenchel.category_kernels import Exchangeable, OnColumns
from fenchel.hyperparameters import Evidence, KernelCovariance, learn
from fenchel.hyperparameters.gaussian_rows import GaussianRows, climb, gaussian_rows, highest, quick_climb, quick_start
from fenchel.hyperparameters.search import Search

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (40, 2))
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]]) + 0.2 * RNG.normal(size=(40, 2))
KERNEL = ConstantKernel(1.2) * RBF([0.9, 1.5]) + 0.3 * Matern(0.7, nu=1.5)


def rows_of(y, kernel=KERNEL, weights=None, own=True, residuals=None):
    family = KernelCovariance(kernel, X if weights is None else X[: len(y)])
    evidence = Evidence(Gaussian(0.1), family, y, weights=weights, own=own)
    return GaussianRows(evidence, family, residuals)


@pytest.mark.parametrize("outputs", [1, 2])
def test_value_and_gradient_are_scikit_learns(outputs):
    rows = rows_of(Y[:, 0], residuals=Y[:, :outputs])
    theta = np.r_[KERNEL.theta + 0.1, np.log(0.07)]
    theirs = Theirs(KERNEL + WhiteKernel(0.07), alpha=1e-14, optimizer=None).fit(X, Y[:, :outputs])
    value, slope = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    place = rows.at(theta)
    assert place.value == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(place.gradient, slope, rtol=1e-6, atol=1e-8)


def test_weights_are_repeated_rows():
    times = np.arange(20) % 3 + 1
    few = KernelCovariance(KERNEL, X[:20])
    weighted = GaussianRows(Evidence(Gaussian(0.1), few, Y[:20, 0], weights=times.astype(float)), few)
    many = KernelCovariance(KERNEL, np.repeat(X[:20], times, axis=0))
    repeated = GaussianRows(Evidence(Gaussian(0.1), many, np.repeat(Y[:20, 0], times)), many)
    theta = weighted.evidence.start
    one, other = weighted.at(theta), repeated.at(theta)
    assert one.value == pytest.approx(other.value, rel=1e-9)
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-6)


def test_the_curvature_is_near_that_of_differences_at_the_top():
    rows = rows_of(Y[:, 0], ConstantKernel(1.0) * RBF(1.0))
    top = climb(rows, rows.evidence.start, 1e-5)
    steps = 1e-4 * np.eye(top.theta.size)
    bent = np.array([(rows.at(top.theta - s).gradient - rows.at(top.theta + s).gradient) / 2e-4 for s in steps])
    sizes = np.linalg.eigvals(np.linalg.solve(bent, rows.curvature(top))).real
    assert 0.3 < sizes.min() <= sizes.max() < 3.0


def test_a_kernel_is_not_asked_for_beyond_its_bounds():
    """A share of 1 is the most there is: nothing in common between levels."""
    codes = np.column_stack([X[:, 0], np.arange(40) % 3])
    kernel = OnColumns(1.0 * RBF(0.8), [0]) * OnColumns(Exchangeable(1.0), [1])
    family = KernelCovariance(kernel, codes)
    rows = GaussianRows(Evidence(Gaussian(0.1), family, Y[:, 0]), family, Y)
    inside = np.array([0.0, 0.0, -1e-4, 0.0])
    at, near = (rows.curvature(rows.at(rows.evidence.start + step)) for step in (0.0, inside))
    np.testing.assert_allclose(at, near, rtol=0.01)
    assert GaussianProcessRegressor(kernel).fit(codes, Y).converged_


def test_it_ends_where_the_search_with_fits_ends():
    rows = rows_of(Y[:, 0], ConstantKernel(1.0) * RBF([1.0, 1.0]))
    found = Search(rows.evidence, 100, 1e-4, None).run(rows.evidence.start)
    quick = quick_climb(rows.evidence, rows.evidence.start, 1e-4)
    np.testing.assert_allclose(quick.theta, found.theta, atol=1e-3)
    assert quick.value == pytest.approx(found.objective, abs=1e-6)


def test_a_start_is_never_worse_than_the_search_without_it():
    D, y = load_diabetes(return_X_y=True)
    family = KernelCovariance(1.0 * RBF(1.0), D[:90], mean=y[:90].mean())
    evidence = Evidence(Gaussian(0.5 * y[:90].var()), family, y[:90])
    plain = Search(evidence, 100, 1e-3, None).run(evidence.start)
    newton = climb(gaussian_rows(evidence), evidence.start, 1e-3)
    assert newton.value < plain.objective - 5.0  # Newton's steps end at another peak, where all is noise
    assert highest(gaussian_rows(evidence), evidence.start, 1e-3).value > plain.objective - 1e-4
    begun = Search(evidence, 100, 1e-3, None).run(quick_start(evidence, evidence.start, 1e-3))
    assert begun.objective == pytest.approx(plain.objective, abs=1e-5)


def test_bounds_hold_and_rounding_is_told():
    kernel = ConstantKernel(1.0, (0.5, 2.0)) * RBF(0.1, (0.05, 0.2))
    end = climb(rows_of(Y[:, 0], kernel), np.r_[kernel.theta, 0.0], 1e-4)
    assert (end.theta[:2] >= kernel.bounds[:, 0]).all()
    assert (end.theta[:2] <= kernel.bounds[:, 1]).all()
    family = KernelCovariance(1.0 * RBF(1.0), X)
    assert quick_climb(Evidence(Gaussian(1e-9), family, Y[:, 0], own=False), family.theta, 1e-3) is None


@pytest.mark.parametrize("options", [{}, {"normalize_y": True}, {"mean": "linear", "normalize_y": True}])
def test_a_row_of_weight_0_is_as_good_as_dropped(options):
    table, y, w = np.r_[X, [[9.0, 9.0]]], np.r_[3.0 * Y[:, 0] + X[:, 1], 1e3], np.r_[np.ones(40), 0.0]
    one = GaussianProcessRegressor(**options).fit(table, y, sample_weight=w)
    other = GaussianProcessRegressor(**options).fit(X, y[:40])
    np.testing.assert_allclose(one.theta_, other.theta_, atol=1e-6)
    assert one.elbo_ == pytest.approx(other.elbo_, abs=1e-6)
    np.testing.assert_allclose(one.predict(table), other.predict(table), rtol=1e-5)
    assert one.n_iter_ == other.n_iter_
    assert one.solution_.posterior.mean.shape == (41,)


def test_rows_that_are_not_seen_are_left_out():
    family, seen = KernelCovariance(KERNEL, X, mean=0.2 * X[:, 0], level=3.0), np.arange(40) % 7 > 0
    few = KernelCovariance(KERNEL, X[seen], mean=0.2 * X[seen, 0], level=3.0)
    missing = gaussian_rows(Evidence(Gaussian(0.1), family, np.where(seen, Y[:, 0], np.nan)))
    weighted = gaussian_rows(Evidence(Gaussian(0.1), family, Y[:, 0], weights=1.0 * seen))
    dropped = gaussian_rows(Evidence(Gaussian(0.1), few, Y[seen, 0]))
    theta = np.r_[KERNEL.theta, -1.0]
    for rows in (missing, weighted):
        assert rows.at(theta).value == pytest.approx(dropped.at(theta).value, rel=1e-12)
        np.testing.assert_allclose(rows.at(theta).gradient, dropped.at(theta).gradient, rtol=1e-9)
    assert gaussian_rows(Evidence(Gaussian(0.1), family, np.full(40, np.nan), own=False)) is None


@pytest.mark.parametrize(("likelihood", "y"), [(Gaussian(0.1), Y[:, 0]), (BernoulliLogit(), Y[:, 0] > 0.0)])
def test_a_search_takes_no_more_steps_than_it_may(likelihood, y):
    family, theta = KernelCovariance(1.0 * RBF(1.0), X), np.r_[0.3, -0.2, likelihood.theta]
    held = learn(likelihood, family, y, theta=theta, max_iter=0)
    np.testing.assert_array_equal(held.theta, theta)
    short = learn(likelihood, family, y, theta=theta, max_iter=1)
    assert not short.converged
    assert held.objective < short.objective < learn(likelihood, family, y, theta=theta).objective


@pytest.mark.parametrize("seed", [21, 31, 37])
def test_several_outputs_end_without_a_slope_at_bounds_and_after_many_steps(seed):
    rng = np.random.default_rng(seed)
    n, d, outputs = rng.integers(15, 50), rng.integers(1, 4), rng.integers(1, 4)
    table = rng.normal(size=(n, d))
    columns = [np.sin((j + 1) * table[:, 0]) * rng.choice([0.3, 1, 5]) for j in range(outputs)]
    y = np.stack(columns, 1) + rng.choice([0.01, 0.3, 2.0]) * rng.normal(size=(n, outputs))
    family = KernelCovariance(ConstantKernel(1.0, (1e-4, 1e5)) * RBF(np.ones(d), (1e-2, 1e3)), table)
    evidence = Evidence(Gaussian(0.5), family, y[:, 0])
    with np.errstate(all="ignore"):
        end = highest(GaussianRows(evidence, family, y), evidence.start, 1e-4)
    assert evidence.largest_slope(end.theta, end.gradient) <= 1e-4
