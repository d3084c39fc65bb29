"""Rows that hang together: clusters, few directions, and their errors, against brute force."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import IN_REPOSITORY
from scipy.interpolate import CubicSpline

import fenchel
import fenchel.corrections.corrected as module
from fenchel import gates
from fenchel.corrections.clusters import clusters_of, labels_of
from fenchel.corrections.collapsed import collapse
from fenchel.likelihoods import BernoulliLogit, BernoulliProbit
from fenchel.priors import DenseCovariance, Features, SparsePrecision

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def brute():
    if not IN_REPOSITORY:
        pytest.skip("reads files of the repository beside tests/")
    spec = importlib.util.spec_from_file_location("correction_errors", ROOT / "benchmarks" / "correction_errors.py")
    sys.modules[spec.name] = out = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(out)
    return out


def toenails(groups, sd=4.0, seed=3):
    """Binary rows at seven months; a treatment changes nothing here."""
    rng = np.random.default_rng(seed)
    month = np.tile([0.0, 1.0, 2.0, 3.0, 6.0, 9.0, 12.0], groups)
    group = np.repeat(np.arange(groups), 7)
    eta = -1.6 - 0.4 * month + sd * rng.normal(size=groups)[group]
    y = (rng.random(group.size) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    return y, np.column_stack([np.ones(group.size), month / 4.0]), group


def grouped_fit(y, X, group, sd):
    W = np.column_stack([X, np.eye(group.max() + 1)[group]])
    variance = np.r_[sd[:2], np.full(group.max() + 1, sd[2])] ** 2
    return fenchel.infer(BernoulliLogit("exact"), DenseCovariance(np.diag(variance), design=W), y)


def test_groups_with_a_covariate_are_quadrature(brute):
    y, X, group = toenails(60)
    sd = np.array([3.0, 3.0, 4.0])
    truth = brute.grouped_truth(BernoulliLogit("exact"), y, X, group, sd)
    sol = grouped_fit(y, X, group, sd)
    found = sol.corrected()
    assert truth.log_evidence - sol.elbo > 1.5
    assert abs(found.log_evidence - truth.log_evidence) < 0.03
    assert abs(found.log_evidence - truth.log_evidence) <= 3.0 * found.log_evidence_se + 1e-3
    assert found.log_evidence_se < 0.1
    assert found.trusted
    latents = found.latents()
    np.testing.assert_allclose(np.asarray(latents.mean)[:2], truth.mean, atol=0.05 * truth.sd.min())
    np.testing.assert_allclose(np.asarray(latents.sd)[:2], truth.sd, rtol=0.03)
    assert np.all(np.sqrt(np.asarray(sol.posterior.latent_variance)[:2]) < 0.97 * truth.sd)  # the Gaussian's are not


def test_the_sd_of_groups_is_where_quadrature_is_level(brute):
    y, X, group = toenails(30)
    data = pd.DataFrame({"y": y, "month": X[:, 1], "g": group.astype(str)})
    fit = fenchel.fit(
        "y ~ month + (1|g)", data, "bernoulli", evidence="corrected", priors={"(1|g)": None}, fixed_sd=3.0
    )
    assert fit.found.maximises == "corrected"
    assert fit.found.doubt == ""
    sd = float(fit.hyperparameters["value"].iloc[0])
    spread = np.std(X[:, 1])

    def at(size):
        centred = np.column_stack([X[:, 0], (X[:, 1] - X[:, 1].mean()) / spread])
        return brute.grouped_truth(BernoulliLogit("exact"), y, centred, group, np.array([3.0, 3.0, size])).log_evidence

    low, middle, high = at(0.8 * sd), at(sd), at(1.25 * sd)
    step = np.log(1.25)
    top = step * 0.5 * (high - low) / (2.0 * middle - low - high)
    assert abs(top) < 0.03  # of the log sd, whose own sd is some 0.2


# models in which pairs alone were off by up to a quarter of a nat, or by a quarter of an sd
TWO_LATENTS = [(294, "bernoulli"), (326, "ones"), (346, "student-t"), (416, "student-t"), (432, "probit"), (440, "nb")]


@pytest.mark.parametrize(("seed", "kind"), TWO_LATENTS)
def test_models_of_two_latents_are_integrated_as_they_stand(brute, seed, kind):
    rng = np.random.default_rng([31, seed])
    n = int(rng.choice([4, 6, 10, 25]))
    W = np.c_[np.ones(n), rng.normal(size=(n, 1))]
    if rng.random() < 0.4:
        W = np.ones((n, 2))
        rng.integers(0, 1, n)
    sd = 10.0 ** rng.uniform(-1.0, 1.5, 2)
    eta = np.clip(W @ (rng.normal(size=2) * sd), -8.0, 8.0)
    likelihood, y = brute.observed(kind, eta, rng)
    truth = brute.small_truth(likelihood, y, W, sd)
    found = fenchel.infer(likelihood, DenseCovariance(np.diag(sd**2), design=W), y).corrected()
    assert truth.apart < 1e-4
    assert abs(found.log_evidence - truth.log_evidence) <= 3.0 * found.log_evidence_se + 2e-4
    assert found.trusted
    assert found.marginals_trusted
    np.testing.assert_allclose(np.asarray(found.sd), truth.sd[:n], rtol=2e-3)
    np.testing.assert_allclose(np.asarray(found.latents().mean), truth.mean[n:], atol=2e-3 * truth.sd.max())


@pytest.mark.parametrize("i", [1, 2, 4, 5, 8, 13])
def test_errors_of_small_models_are_as_stated(brute, i):
    one = brute.judged_small(brute.SMALL[i % 14], np.random.default_rng([5, i]))
    if one is not None:
        assert abs(one.error) <= 3.0 * one.stated + 1e-3
        assert one.sd_error <= 0.1 or not one.marginals


@pytest.mark.parametrize("kind", ["bernoulli", "poisson", "binomial", "student-t"])
def test_errors_of_groups_are_as_stated(brute, kind):
    one = brute.judged_grouped(kind, np.random.default_rng([7, 1]))
    assert one is not None
    assert abs(one.error) <= 3.0 * one.stated + 1e-3
    assert one.sd_error <= 0.1 or not one.marginals


@pytest.mark.parametrize(("i", "kind", "method"), [(0, "bernoulli", "clusters"), (4, "gamma", "collapsed")])
def test_in_a_small_table_the_smaller_error_decides(brute, i, kind, method):
    rng = np.random.default_rng([77, i])
    groups, size = int(rng.choice([5, 8, 12, 20])), int(rng.choice([3, 4, 6]))
    group = np.repeat(np.arange(groups), size)
    X = np.column_stack([np.ones(group.size), rng.normal(size=group.size)])
    sd = np.array([3.0, 3.0, 10 ** rng.uniform(-0.5, 0.5)])
    eta = X @ rng.normal(size=2) + sd[2] * rng.normal(size=groups)[group]
    likelihood, y = brute.observed(kind, eta, rng)
    truth = brute.grouped_truth(likelihood, y, X, group, sd).log_evidence
    Q = sp.diags_array(1.0 / np.r_[sd[:2], np.full(groups, sd[2])] ** 2).tocsc()
    prior = SparsePrecision(Q, design=sp.csr_array(np.concatenate([X, np.eye(groups)[group]], axis=1)))
    solution = fenchel.infer(likelihood, prior, y)
    found = solution.corrected()
    assert found.method == method
    other = collapse(solution) if method == "clusters" else module.Corrected(solution, lines_of(solution))
    assert abs(found.log_evidence - truth) < 0.5 * abs(other.log_evidence - truth)


def lines_of(solution):
    return solution.posterior.factor.predictors.lines()


def test_pairs_alone_serve_where_triples_count_for_nothing(monkeypatch):
    y, X, group = toenails(60, sd=1.0, seed=1)
    solution = grouped_fit(y, X, group, np.array([1.0, 1.0, 0.8]))
    alone = module.Corrected(solution, lines_of(solution))
    monkeypatch.setattr(module, "_PAIRS_SUFFICE", 0.0)
    whole = module.Corrected(solution, lines_of(solution))
    assert alone._clusters is None
    assert alone.log_evidence_se < 0.01
    assert abs(alone.log_evidence - whole.log_evidence) <= 2.0 * alone.log_evidence_se + 1e-4


def test_clusters_are_found_from_correlations():
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(12), rng.integers(1, 6, 12)))
    a = rng.uniform(0.75, 0.95, group.size) * rng.choice([-1.0, 1.0], group.size)
    R = np.where(group[:, None] == group, np.outer(a, a), 0.05 * np.outer(a, a))
    np.fill_diagonal(R, 1.0)
    clusters = clusters_of(R)
    label = labels_of(clusters, group.size)
    assert all((label[group == g] == label[group == g][0]).all() for g in range(12))
    assert np.unique(label).size == 12
    for some in clusters:
        for rows, loading in zip(some.site, some.loading, strict=True):
            R_cc = R[np.ix_(rows, rows)]
            shared = loading @ loading.T
            off = ~np.eye(rows.size, dtype=bool)
            np.testing.assert_allclose(shared[off], R_cc[off], atol=2e-3)


def test_a_chain_is_no_cluster():
    at = np.arange(200.0)
    for some in clusters_of(np.exp(-np.abs(at[:, None] - at) / 20.0)):
        assert some.site.shape[1] <= 64


def test_few_directions_of_many_latents():
    """Two columns repeated over six latents: still two directions."""
    rng = np.random.default_rng(1)
    W = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 6))
    y = rng.integers(0, 2, 12).astype(float)
    found = fenchel.infer(BernoulliProbit(), Features(W, 4.0), y).corrected()
    draws = fenchel.infer(BernoulliProbit(), Features(W, 4.0), y).importance(1 << 15)
    assert found.log_evidence_se < 1e-4
    assert abs(found.log_evidence - draws.log_evidence) <= 4.0 * draws.log_evidence_se + 1e-3


def test_four_directions_are_a_sum_over_a_lattice():
    """Three groups of five labels about a level and a slope: the same sum in plain numpy, on another lattice."""
    rng = np.random.default_rng(0)
    W = np.column_stack([np.ones(15), rng.normal(size=15), np.repeat(np.eye(3)[:, 1:], 5, axis=0)])
    y = rng.integers(0, 2, 15).astype(float)
    found = fenchel.infer(BernoulliLogit("exact"), Features(W, 4.0), y).corrected()
    line = np.linspace(-5.5, 5.5, 27)  # in prior sds
    w = np.stack([axis.ravel() for axis in np.meshgrid(*[line] * 4, indexing="ij")])
    log_p = np.full(w.shape[1], -2.0 * np.log(2.0 * np.pi)) - 0.5 * (w**2).sum(axis=0)
    for row, label in zip(W, y, strict=True):
        log_p -= np.logaddexp(0.0, (1.0 - 2.0 * label) * 2.0 * (row @ w))
    p = np.exp(log_p)
    assert found.log_evidence_se < 3e-3
    assert abs(found.log_evidence - np.log(p.sum() * (line[1] - line[0]) ** 4)) < 1e-5
    eta = W @ (2.0 * (w @ p)) / p.sum()
    np.testing.assert_allclose(found.mean, eta, atol=1e-3)


def test_a_doubt_is_said_first(monkeypatch):
    y, X, group = toenails(12, seed=1)
    data = pd.DataFrame({"y": y, "month": X[:, 1], "g": group.astype(str)})
    monkeypatch.setattr(module, "_LARGE", 0.0)
    monkeypatch.setattr(module, "_SHARE", 0.0)
    monkeypatch.setattr(gates, "DRAWN_SITES", 0)  # no draws in its place
    monkeypatch.setattr(gates, "COLLAPSED_WORK", 0.0)  # nor groups integrated out
    with pytest.warns(UserWarning, match="the corrected evidence may be off by"):
        fit = fenchel.fit("y ~ month + (1|g)", data, "bernoulli", evidence="corrected")
    assert fit.found.maximises == "corrected"  # nearer than the elbo all the same
    assert "may be off by" in fit.summary().splitlines()[0]
    with pytest.warns(UserWarning, match="the corrected evidence may be off by"):
        fit = fenchel.fit("y ~ month + (1|g)", data, "bernoulli", integrate="auto")
    assert fit.integrated.evidence == "corrected"
    assert "may be off by" in fit.summary().splitlines()[0]
    assert fit.integrated.status.startswith("the corrected evidence may be off")


def test_an_evidence_that_is_no_nearer_is_not_used(monkeypatch):
    y, X, group = toenails(12, seed=1)
    data = pd.DataFrame({"y": y, "month": X[:, 1], "g": group.astype(str)})
    monkeypatch.setattr(module.Corrected, "_holds", "a test says so")
    monkeypatch.setattr(gates, "DRAWN_SITES", 0)
    monkeypatch.setattr(gates, "COLLAPSED_WORK", 0.0)
    with pytest.warns(UserWarning, match="sds of terms come from the elbo and may be too small"):
        fit = fenchel.fit("y ~ month + (1|g)", data, "bernoulli", evidence="corrected")
    assert fit.found.maximises == "elbo"
    with pytest.warns(UserWarning, match="sds of terms come from the elbo and may be too small"):
        fit = fenchel.fit("y ~ month + (1|g)", data, "bernoulli", integrate="auto")
    assert fit.integrated.evidence == "elbo"
    assert "sds of terms come from the elbo" in fit.summary().splitlines()[0]


def test_integration_reaches_as_far_as_what_it_integrates():
    """The elbo's mode is more than an sd from that of the corrected evidence; the widths are the latter's."""
    y, X, group = toenails(60, seed=2)
    data = pd.DataFrame({"y": y, "month": X[:, 1], "g": group.astype(str)})
    prior = fenchel.PC(sd=5, alpha=0.05)
    fit = fenchel.fit("y ~ month + (1|g)", data, "bernoulli", integrate="auto", priors={"(1|g)": prior}, fixed_sd=3.0)
    centred = np.column_stack([X[:, 0], (X[:, 1] - X[:, 1].mean()) / np.std(X[:, 1])])
    size = np.exp(np.linspace(np.log(1.8), np.log(9.0), 13))
    log_p = [grouped_fit(y, centred, group, np.array([3.0, 3.0, s])).corrected().log_evidence for s in size]
    fine = np.linspace(np.log(1.8), np.log(9.0), 1000)
    density = CubicSpline(np.log(size), log_p)(fine) + fine + np.log(0.05) / 5.0 * np.exp(fine)
    p = np.exp(density - density.max())
    p /= p.sum()
    row = fit.hyperparameters.iloc[0]
    mean = p @ np.exp(fine)
    assert row["mean"] == pytest.approx(mean, rel=0.01)
    assert row["sd"] == pytest.approx(np.sqrt(p @ np.exp(2 * fine) - mean**2), rel=0.05)
    spread = np.sqrt(p @ fine**2 - (p @ fine) ** 2)
    assert abs(np.log(row["value"]) - fine[np.argmax(density)]) < 0.1 * spread
