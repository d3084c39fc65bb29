"""Few rows that are not Gaussian: the evidence beside certified fits, and where a search begins by it."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from fenchel.hyperparameters import Evidence, KernelCovariance, learn
from fenchel.hyperparameters.gaussian_rows import quick_start
from fenchel.hyperparameters.search import Search
from fenchel.hyperparameters.site_rows import site_rows
from fenchel.kernels import KeptDistances, contract, evaluate
from fenchel.likelihoods import BernoulliLogit, Poisson
from fenchel.linalg.logistic_normal import _by_panels, logistic_moments

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
ETA = 2.0 * np.sin(1.5 * X[:, 0]) + X[:, 1]
LABELS = (rng.random(40) < 1.0 / (1.0 + np.exp(-ETA))).astype(float)
COUNTS = rng.poisson(np.exp(0.5 * ETA)).astype(float)
KERNEL = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(1.0, (1e-2, 1e3))


def evidence_of(likelihood, y, kernel=KERNEL, **options):
    return Evidence(likelihood, KernelCovariance(kernel, X, mean=0.2, level=5.0), y, **options)


@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2.0, 40)])
@pytest.mark.parametrize(("likelihood", "y"), [(BernoulliLogit("exact"), LABELS), (BernoulliLogit("tilted"), LABELS)])
def test_value_and_slopes_are_those_of_certified_fits(likelihood, y, weights):
    evidence = evidence_of(likelihood, y, weights=weights)
    rows = site_rows(evidence)
    for theta in (np.zeros(2), np.array([2.0, 0.5])):
        rows.allowed = 1e-10
        place = rows.at(theta)
        value, gradient = evidence(theta)
        assert abs(place.value - value) < 1e-7
        assert np.allclose(place.gradient, gradient, atol=1e-3)


@pytest.mark.parametrize("bound", ["exact", "tilted", "log-sum"])
def test_a_search_ends_where_it_did_without_it(bound):
    evidence = evidence_of(BernoulliLogit(bound), LABELS)
    plain = Search(evidence, 100, 1e-3, None).run(evidence.start)
    found = learn(BernoulliLogit(bound), evidence.family, LABELS)
    assert found.converged
    assert found.solution.converged
    assert abs(found.objective - plain.objective) < 1e-5
    assert np.allclose(found.theta, plain.theta, atol=5e-3)
    # one certified fit, from the marginals that were found
    begun = evidence_of(BernoulliLogit(bound), LABELS)
    start = quick_start(begun, begun.start, 1e-3)
    before = begun.n_evaluations
    Search(begun, 100, 1e-3, None).run(start)
    assert begun.first_start is not None
    assert begun.n_evaluations - before <= 2
    assert np.abs(begun.solution.elbo - found.solution.elbo) < 1e-5


@pytest.mark.parametrize("bound", ["exact", "tilted"])
@pytest.mark.parametrize("repeated", [False, True])
def test_weights_and_repeated_rows_end_where_a_finer_search_does(bound, repeated):
    times = 1 + np.arange(40) % 3
    rows, weights = (np.repeat(np.arange(40), times), None) if repeated else (np.arange(40), times.astype(float))
    family, y = KernelCovariance(KERNEL, X[rows], level=5.0), LABELS[rows]
    found = learn(BernoulliLogit(bound), family, y, weights=weights)
    finer = Evidence(BernoulliLogit(bound), family, y, weights=weights)
    plain = Search(finer, 100, 1e-6, None).run(finer.start)
    assert found.converged
    assert np.allclose(found.theta, plain.theta, atol=1e-3)
    assert abs(found.objective - plain.objective) < 1e-8 * abs(plain.objective)


@pytest.mark.parametrize("bound", ["exact", "tilted"])
def test_rows_that_are_not_seen_are_left_out(bound):
    seen, likelihood = np.arange(40) % 5 > 0, BernoulliLogit(bound)
    family = KernelCovariance(KERNEL, X, mean=0.2 * X[:, 0], level=5.0)
    few = KernelCovariance(KERNEL, X[seen], mean=0.2 * X[seen, 0], level=5.0)
    dropped = learn(likelihood, few, LABELS[seen])
    for found in (
        learn(likelihood, family, LABELS, weights=1.0 * seen),
        learn(likelihood, family, np.where(seen, LABELS, np.nan)),
    ):
        np.testing.assert_allclose(found.theta, dropped.theta, atol=1e-7)
        assert (found.n_evaluations, found.n_newton) == (dropped.n_evaluations, dropped.n_newton)
        assert found.solution.posterior.mean.shape == (40,)


@pytest.mark.parametrize(("n", "start"), [(60, [-4.0, 0.0]), (120, [0.0, 1.7])])
def test_a_search_goes_on_beyond_the_limit_of_one_run(n, start):
    """The constant ends more than four e-folds away, and few evaluations are spent at the limit."""
    table, y = load_breast_cancer(return_X_y=True)
    Z = (table[:n] - table[:n].mean(axis=0)) / table[:n].std(axis=0)
    begun = Evidence(BernoulliLogit("tilted"), KernelCovariance(KERNEL, Z, level=5.0), y[:n].astype(float))
    end = quick_start(begun, np.array(start), 1e-3)
    assert end[0] - start[0] > 4.0
    assert begun.n_evaluations < 35
    assert np.abs(begun(end)[1]).max() < 1e-3


@pytest.mark.parametrize("kernel", [RBF(1.0, (0.9, 1.1)), ConstantKernel(0.8, (0.5, 0.9)) * RBF(3.0, "fixed")])
def test_hyperparameters_that_all_end_at_bounds(kernel):
    evidence = evidence_of(BernoulliLogit("exact"), LABELS, kernel)
    found = learn(BernoulliLogit("exact"), evidence.family, LABELS)
    plain = Search(evidence, 100, 1e-3, None).run(evidence.start)
    np.testing.assert_allclose(found.theta, plain.theta)
    assert found.held == plain.held == (0,)
    assert found.converged


def test_other_rows_are_left_to_the_search():
    assert site_rows(evidence_of(BernoulliLogit(), np.full(40, np.nan))) is None
    assert site_rows(evidence_of(Poisson(), COUNTS)) is None
    assert site_rows(evidence_of(BernoulliLogit("tilted"), LABELS, method="lbfgs")) is None


@pytest.mark.parametrize(
    "kernel",
    [KERNEL, RBF(0.7) * ConstantKernel(2.0), Matern(0.8, nu=1.5), 2.0 * Matern(0.8, nu=0.5), 3.0 * RBF(2.0, "fixed")],
)
def test_kept_distances_are_the_kernel(kernel):
    kept, K, G = KeptDistances.of(kernel, X), evaluate(kernel, X), np.cov(rng.normal(size=(40, 60)))
    assert np.allclose(kept.value(kernel.theta), K, rtol=1e-13)
    expected = np.einsum("ij,ijp->p", G, kernel(X, eval_gradient=True)[1])
    assert np.allclose(kept.slopes(kernel.theta, G, K), expected)
    assert np.allclose(contract(kernel, X, G), expected)


def test_other_kernels_keep_no_distances():
    for kernel in (RBF([1.0, 2.0]), KERNEL + RBF(2.0), RBF(1.0) * RBF(2.0), Matern(1.0, nu=2.0)):
        assert KeptDistances.of(kernel, X) is None


@pytest.mark.parametrize("rho", [(0.16, 0.9), (1.1, 30.0), (0.3, 5.0)])
def test_moments_of_few_rows(rho):
    h, v = rng.normal(scale=6.0, size=30), rng.uniform(*rho, size=30)
    assert np.allclose(logistic_moments(h, v), _by_panels(h, v), rtol=1e-9, atol=1e-12)
