"""Leave-group-out, folds and information criteria: against refits, quadrature and closed forms."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fenchel
from fenchel.criticism import correlated_rows, folds_of, k_fold, leave_group_out, stacking_weights, waic
from fenchel.hyperparameters import KernelCovariance
from fenchel.likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Poisson, StudentT
from fenchel.priors import DenseCovariance, Features, SparsePrecision

N = 40


def problem_of(name):
    rng = np.random.default_rng(7)
    x = np.sort(rng.uniform(0, 8, N))
    K = 3.0 * np.exp(-0.5 * (x[:, None] - x[None]) ** 2)
    f = rng.multivariate_normal(np.zeros(N), K)
    Q = sp.diags_array([np.full(N, 2.2), -np.ones(N - 1), -np.ones(N - 1)], offsets=[0, 1, -1]).tocsc()
    binary = (rng.random(N) < 1 / (1 + np.exp(-f))).astype(float)
    return {
        "dense counts": (Poisson(), DenseCovariance(K), rng.poisson(np.exp(np.clip(f, -5, 3))).astype(float)),
        "sparse counts": (Poisson(), SparsePrecision(Q), rng.poisson(np.exp(f / 2)).astype(float)),
        "dense labels": (BernoulliLogit("exact"), DenseCovariance(K), binary),
        "features": (BernoulliLogit("exact"), Features(rng.normal(size=(N, 3)), 4.0), binary),
        "noise": (Gaussian(0.3), DenseCovariance(K), f + 0.5 * rng.normal(size=N)),
        "outliers": (StudentT(4.0, 0.3), DenseCovariance(K), f + 0.5 * rng.standard_t(3, size=N)),
        "classes": (MultinomialLogit(3, bound="log-sum"), DenseCovariance(K), rng.integers(0, 3, N).astype(float)),
    }[name]


NAMES = ["dense counts", "sparse counts", "dense labels", "features", "noise", "outliers", "classes"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 4])
def test_groups_agree_with_refits_of_all_rows(name, size):
    likelihood, prior, y = problem_of(name)
    y[5] = np.nan
    sol = fenchel.infer(likelihood, prior, y)
    groups = np.arange(N) // size
    found = leave_group_out(sol, groups, joint=True)
    refits = leave_group_out(sol, groups, prior=prior, refit="all", joint=True)
    assert refits.refitted.all()
    assert not refits.flagged.any()
    allowed = 0.01 if name != "outliers" else 0.03
    assert np.nanmean(np.abs(found.log_density - refits.log_density)) < allowed
    assert np.isnan(found.log_density[5])
    if name == "classes":
        assert np.isnan(found.joint).all()
    else:
        assert np.mean(np.abs(found.joint - refits.joint)) < allowed


def test_gaussian_groups_are_exact():
    likelihood, prior, y = problem_of("noise")
    sol = fenchel.infer(likelihood, prior, y)
    found = leave_group_out(sol, np.arange(N) // 5, joint=True, neighbours=0)
    K, noise = np.asarray(prior.covariance), 0.3
    for g, rows in enumerate(found.groups):
        rest = np.setdiff1d(np.arange(N), rows)
        gain = K[np.ix_(rows, rest)] @ np.linalg.inv(K[np.ix_(rest, rest)] + noise * np.eye(rest.size))
        mean = gain @ y[rest]
        cov = K[np.ix_(rows, rows)] - gain @ K[np.ix_(rest, rows)]
        exact = stats.multivariate_normal(mean, cov + noise * np.eye(rows.size)).logpdf(y[rows])
        np.testing.assert_allclose(found.joint[g], exact, atol=1e-7)
        np.testing.assert_allclose(found.mean[rows], mean, atol=1e-7)


def test_one_row_a_group_without_neighbours_is_leave_one_out():
    likelihood, prior, y = problem_of("dense counts")
    sol = fenchel.infer(likelihood, prior, y)
    alone = leave_group_out(sol, np.arange(N), neighbours=0)
    np.testing.assert_allclose(alone.log_density, sol.loo().log_density, atol=1e-8)
    lists = leave_group_out(sol, [[n] for n in range(N)], neighbours=0)
    np.testing.assert_allclose(lists.log_density, alone.log_density, atol=1e-12)


def test_all_rows_left_out_is_the_evidence():
    likelihood, prior, y = problem_of("dense counts")
    sol = fenchel.infer(likelihood, prior, y)
    found = leave_group_out(sol, np.zeros(N), joint=True)
    np.testing.assert_allclose(found.joint[0], sol.corrected().log_evidence, atol=1e-4)
    np.testing.assert_allclose(found.mean, 0.0, atol=1e-6)


def test_flagged_groups_are_fitted_again():
    likelihood, prior, y = problem_of("sparse counts")
    sol = fenchel.infer(likelihood, prior, y)
    groups = np.arange(N) // 4
    flagged = leave_group_out(sol, groups, neighbours=0)
    assert flagged.flagged.any()
    assert not flagged.refitted.any()
    mended = leave_group_out(sol, groups, neighbours=0, prior=prior)
    assert (mended.refitted == flagged.flagged).all()
    assert not mended.flagged.any()


def test_correlated_rows_are_neighbours():
    likelihood, prior, y = problem_of("sparse counts")
    sol = fenchel.infer(likelihood, prior, y)
    for n, rows in enumerate(correlated_rows(sol.posterior, 1)):
        assert rows.tolist() == [n]
    wider = correlated_rows(sol.posterior, 3)
    assert all(n in rows and np.abs(rows - n).max() <= 2 for n, rows in enumerate(wider))
    smooth = fenchel.infer(*problem_of("noise"))
    assert leave_group_out(smooth, correlated_rows(smooth.posterior, 5)).elpd < smooth.loo().elpd


@pytest.mark.parametrize(
    ("groups", "words"), [(np.zeros(3), "shape"), ([[0]] * 3, "lists of rows"), ([[99]] * N, "names row")]
)
def test_groups_that_do_not_fit_are_refused(groups, words):
    likelihood, prior, y = problem_of("noise")
    with pytest.raises(ValueError, match=words):
        leave_group_out(fenchel.infer(likelihood, prior, y), groups)


def test_folds_by_refits():
    likelihood, prior, y = problem_of("dense counts")
    found = k_fold(likelihood, prior, y, N, tol=1e-12)
    sol = fenchel.infer(likelihood, prior, y, tol=1e-12)
    each = leave_group_out(sol, np.arange(N), prior=prior, refit="all")
    np.testing.assert_allclose(found.log_density, each.log_density, atol=1e-5)
    assert found.converged.all()


def test_folds_learn_hyperparameters_anew():
    from sklearn.gaussian_process.kernels import RBF

    rng = np.random.default_rng(0)
    x = np.linspace(0, 4, 24)
    y = np.sin(2 * x) + 0.2 * rng.normal(size=24)
    found = k_fold(Gaussian(0.1), KernelCovariance(1.0 * RBF(1.0), x[:, None]), y, 4)
    assert found.converged.all()
    assert found.elpd > k_fold(Gaussian(0.1), DenseCovariance(np.eye(24)), y, 4).elpd


@given(st.integers(2, 6), st.integers(8, 40), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_folds_are_even_and_keep_groups_together(k, n, seed):
    rng = np.random.default_rng(seed)
    seen = rng.random(n) < 0.9
    seen[:k] = True
    fold = folds_of(seen, k, None, seed)
    assert np.ptp(np.bincount(fold[seen], minlength=k)) <= 1
    groups = np.arange(n) % (k + 1)
    together = folds_of(np.ones(n, bool), k, groups, seed)
    assert all(np.unique(together[groups == g]).size == 1 for g in range(k + 1))


def test_waic_of_one_normal_row():
    """y ~ N(eta, 1), eta ~ N(m, v) a posteriori: everything in closed form."""
    sol = fenchel.infer(Gaussian(1.0), DenseCovariance([[4.0]]), [1.5])
    m, v = 1.5 * 4 / 5, 4 / 5
    r = 1.5 - m
    found = waic(sol.likelihood, sol.posterior, sol.y)
    np.testing.assert_allclose(found.penalty, r**2 * v + v**2 / 2, rtol=1e-9)
    np.testing.assert_allclose(found.elpd, stats.norm(m, np.sqrt(1 + v)).logpdf(1.5) - found.n_parameters, rtol=1e-9)
    np.testing.assert_allclose(found.value, -2 * found.elpd)


def test_waic_takes_corrected_marginals_and_refuses_several_predictors():
    likelihood, prior, y = problem_of("dense counts")
    sol = fenchel.infer(likelihood, prior, y)
    plain, better = (waic(likelihood, m, sol.y) for m in (sol.posterior, sol.corrected()))
    assert 0.0 < abs(plain.elpd - better.elpd) < 0.5
    with pytest.raises(ValueError, match="several predictors"):
        waic(*(lambda t: (t[0], fenchel.infer(*t).posterior, t[2]))(problem_of("classes")))


@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_stacking_is_optimal_by_its_own_certificate(k, n, seed):
    scores = np.random.default_rng(seed).normal(0.0, 2.0, (n, k))
    w = stacking_weights(scores)
    assert abs(w.sum() - 1.0) < 1e-8
    assert (w >= 0.0).all()
    mixed = np.logaddexp.reduce(scores + np.log(np.maximum(w, 1e-300)), axis=1)
    gain = np.exp(scores - mixed[:, None]).mean(axis=0)
    assert gain.max() - 1.0 < 1e-5


def test_stacking_refuses_rows_without_a_density():
    with pytest.raises(ValueError, match="no density"):
        stacking_weights(np.full((2, 2), -np.inf))
