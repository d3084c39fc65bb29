"""Very many sites: neighbours and drawn sites against all pairs; leave-one-out by corrected marginals."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from scipy.stats import poisson
from test_corrections import brute

import fenchel
from fenchel import gates
from fenchel.likelihoods import BernoulliLogit, Binomial, Gaussian, Poisson, StochasticVolatility
from fenchel.priors import DenseCovariance, Features, SparsePrecision


def chain(n, phi, variance):
    d = np.full(n, 1.0 + phi**2)
    d[[0, -1]] = 1.0
    off = np.full(n - 1, -phi)
    return sp.diags_array([off, d, off], offsets=[-1, 0, 1], format="csc") / (variance * (1.0 - phi**2))


def lattice(k):
    e = np.ones(k)
    D = sp.csc_array(sp.diags_array([-e[1:], 2.0 * e, -e[1:]], offsets=[-1, 0, 1]))
    return sp.csc_array(sp.kron(D, sp.eye_array(k)) + sp.kron(sp.eye_array(k), D) + 0.3 * sp.eye_array(k * k))


def both_ways(sol, monkeypatch):
    whole = sol.corrected()
    monkeypatch.setattr(gates, "NEIGHBOUR_PAIRS", 10)
    monkeypatch.setattr(gates, "AVERAGED_PAIRS", 10)
    return whole, sol.corrected()


def close(whole, few, means, sds, quantiles):
    assert np.mean(np.abs(few.mean - whole.mean) / whole.sd) <= means
    assert np.mean(np.abs(np.log(few.sd / whole.sd))) <= sds
    assert np.mean(np.abs(few.quantile(0.975) - whole.quantile(0.975)) / whole.sd) <= quantiles


@pytest.mark.parametrize("kind", ["volatility", "binary", "lattice", "effects"])
def test_neighbours(kind, monkeypatch):
    rng = np.random.default_rng(0)
    if kind == "volatility":
        y = rng.normal(size=600) * np.exp(0.5 * rng.normal(size=600))
        y[7] = np.nan
        sol = fenchel.infer(StochasticVolatility(), SparsePrecision(chain(600, 0.95, 1.0)), y)
    elif kind == "binary":
        y = (rng.random(600) < 0.5).astype(float)
        sol = fenchel.infer(BernoulliLogit("exact"), SparsePrecision(chain(600, 0.9, 4.0)), y)
    elif kind == "lattice":
        sol = fenchel.infer(Poisson(), SparsePrecision(lattice(22)), rng.poisson(1.0, 484).astype(float))
    else:  # two rows a node, an intercept and a covariate that touch every row
        n, nodes = 968, 484
        index = np.repeat(np.arange(nodes), 2)
        near = sp.csr_array((np.ones(n), (np.arange(n), index)))
        W = sp.hstack([near, np.ones((n, 1)), rng.normal(size=(n, 1))], format="csr")
        Q = sp.block_diag([lattice(22), 0.01 * sp.eye_array(2)], format="csc")
        sol = fenchel.infer(Poisson(), SparsePrecision(Q, design=W), rng.poisson(1.0, n).astype(float))
    whole, few = both_ways(sol, monkeypatch)
    assert few.method == "neighbours"
    assert few.own == pytest.approx(whole.own, abs=1e-7)
    assert abs(few.pairs - whole.pairs) <= 0.02 * abs(whole.pairs)
    assert abs(few.pairs - whole.pairs) <= 3.0 * few.log_evidence_se
    close(whole, few, 0.002, 0.004, 0.01)
    close(whole.latents(), few.latents(), 0.002, 0.006, 0.015)
    L = whole.latents().mean.size
    new = sp.csr_array(rng.normal(size=(3, L)) * (rng.random((3, L)) < 0.02))
    close(whole.at(design=new), few.at(design=new), 0.005, 0.01, 0.03)


def test_rows_that_all_meet_in_a_few_latents_share_their_solves(monkeypatch):
    """Groups and a short series, as pieces of durations have: every group is near every other."""
    rng = np.random.default_rng(3)
    groups, steps = 30, 8
    group, step = np.repeat(np.arange(groups), steps), np.tile(np.arange(steps), groups)
    rows, n = np.arange(groups * steps), groups * steps
    W = sp.csr_array((np.ones(2 * n), (np.r_[rows, rows], np.r_[group, groups + step])), shape=(n, groups + steps))
    Q = sp.block_diag([2.0 * sp.eye_array(groups), chain(steps, 0.9, 0.2)], format="csc")
    sol = fenchel.infer(Poisson(), SparsePrecision(Q, design=W), rng.poisson(0.5, n).astype(float))
    solved, kind = [], type(sol.posterior.factor.parts[0])
    solve = kind.solve
    monkeypatch.setattr(kind, "solve", lambda self, b: solved.append(b.shape) or solve(self, b))
    monkeypatch.setattr(gates, "COLLAPSED_WORK", 0.0)  # its groups are not integrated out
    whole, few = both_ways(sol, monkeypatch)
    assert few.method == "neighbours"
    assert abs(few.pairs - whole.pairs) <= 3.0 * few.log_evidence_se
    assert sum(shape[1] for shape in solved) >= n
    assert len(solved) <= 12  # of 240 right sides


def test_drawn_sites(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 12))
    y = (rng.random(600) < expit(X[:, 0] - 1.0)).astype(float)
    y[3] = np.nan
    sol = fenchel.infer(BernoulliLogit("exact"), Features(X, variance=4.0), y)
    whole, few = both_ways(sol, monkeypatch)
    assert few.method == "drawn sites"
    assert abs(few.pairs - whole.pairs) <= 4.0 * few.log_evidence_se
    assert few.log_evidence_se < 0.5 * few.pairs
    close(whole, few, 0.001, 0.002, 0.01)
    close(whole.latents(), few.latents(), 1e-3, 1e-3, 2e-3)  # every row counts
    new = rng.normal(size=(5, 12))
    close(whole.at(design=new), few.at(design=new), 1e-3, 1e-3, 2e-3)


def test_a_long_series():
    rng = np.random.default_rng(2)
    n = 20_000
    y = rng.normal(size=n) * np.exp(0.3 * rng.normal(size=n))
    found = fenchel.infer(StochasticVolatility(), SparsePrecision(chain(n, 0.97, 0.3)), y).corrected()
    assert found.method == "neighbours"
    assert found.trusted
    assert found.mean.shape == (n,)
    assert found.log_evidence > found.elbo


def by_importance(sol, draws, rng):
    """log p(y) and its standard error from draws of q, whose density is the prior's times the sites of the fit."""
    post, y = sol.posterior, sol.y
    seen = ~np.isnan(y)
    h, rho = post.mean[seen], post.variance[seen]
    alpha, lam = sol.alpha[seen, 0], sol.lam[seen, 0]
    likelihood = sol.likelihood.take(np.flatnonzero(seen))
    rows = likelihood.prepare(y[seen])
    f = rows["weight"] * likelihood.objective.f(h[:, None], rho[:, None], rows)
    base = sol.elbo + np.sum(f - 0.5 * lam * rho)
    eta = post.sample(draws, rng)[:, seen].T
    off = eta - h[:, None]
    each = likelihood.log_density(eta, rows) + alpha[:, None] * off + 0.5 * lam[:, None] * off**2
    w = each.sum(axis=0)
    p = np.exp(w - w.max())
    return base + w.max() + np.log(p.mean()), p.std() / p.mean() / np.sqrt(draws)


def test_germany_and_a_series_against_importance_sampling():
    from fenchel.datasets import load_germany

    rng, germany = np.random.default_rng(4), load_germany()
    A = sp.csc_array(germany.adjacency).astype(float)
    n = A.shape[0]
    Q = sp.block_diag(
        [10.0 * (sp.diags_array(np.asarray(A.sum(axis=1)).ravel()) - A), 40.0 * sp.eye_array(n), [[0.01]]], format="csc"
    )
    W = sp.hstack([sp.eye_array(n), sp.eye_array(n), np.ones((n, 1))], format="csr")
    held = np.r_[np.ones(n), np.zeros(n + 1)][None, :]
    maps = fenchel.infer(Poisson(germany.E), SparsePrecision(Q, design=W, constraints=held), germany.Y)
    y = rng.normal(size=400) * np.exp(0.4 * rng.normal(size=400))
    series = fenchel.infer(StochasticVolatility(), SparsePrecision(chain(400, 0.95, 0.5)), y)
    for sol in (maps, series):
        value, error = by_importance(sol, 4000, rng)
        found = sol.corrected()
        assert found.trusted
        assert abs(found.log_evidence - value) <= 3.0 * error
        assert error < 0.3 * (found.log_evidence - sol.elbo)  # or it would say nothing


@pytest.mark.parametrize("bound", ["exact", "tilted"])
def test_leave_one_out_of_two(bound):
    S = 9.0 * np.array([[1.0, 0.7], [0.7, 1.0]])
    y = np.array([1.0, 0.0])
    likelihood = BernoulliLogit(bound)
    loo = fenchel.infer(likelihood, DenseCovariance(S, mean=0.4), y).corrected().loo()
    joint = brute(likelihood, y, S, 0.4, 0.03)[0]
    for n in range(2):
        alone = brute(likelihood, y[[1 - n]], S[:1, :1], 0.4, 0.005)[0]
        assert loo.log_density[n] == pytest.approx(joint - alone, abs=1e-3)
    assert loo.trusted.all()
    p = np.exp(loo.log_density)
    np.testing.assert_allclose(loo.pit, [1.0, p[1]], atol=1e-6)
    np.testing.assert_allclose(loo.pit_below, [1.0 - p[0], 0.0], atol=1e-6)


def test_leave_one_out_of_counts_and_noise():
    rng = np.random.default_rng(3)
    S = np.array([[1.0, 0.6], [0.6, 1.0]])
    y = np.array([0.0, 6.0])
    loo = fenchel.infer(Poisson(), DenseCovariance(S), y).corrected().loo()
    grid = np.linspace(-9.0, 9.0, 3601)
    log_p = poisson.logpmf(y[0], np.exp(grid)) - 0.5 * grid**2  # eta_1 given y_1, then eta_2 given eta_1
    p = np.exp(log_p) / np.exp(log_p).sum()
    t, w = np.polynomial.hermite_e.hermegauss(40)
    eta = 0.6 * grid[:, None] + 0.8 * t
    for value, q in ((loo.pit[1], poisson.cdf(6, np.exp(eta))), (loo.pit_below[1], poisson.cdf(5, np.exp(eta)))):
        assert value == pytest.approx(p @ (q @ (w / w.sum())), abs=1e-4)
    K = np.exp(-0.5 * np.subtract.outer(np.arange(12.0), np.arange(12.0)) ** 2 / 4.0) + 0.1 * np.eye(12)
    y = rng.normal(size=12)
    y[4] = np.nan
    sol = fenchel.infer(Gaussian(0.3), DenseCovariance(K), y)
    loo, plain = sol.corrected().loo(), sol.loo()
    np.testing.assert_allclose(loo.log_density, plain.log_density, atol=1e-6)
    np.testing.assert_allclose(loo.variance, plain.variance, rtol=1e-6)
    assert np.isnan(loo.pit[4])
    assert loo.elpd == pytest.approx(plain.elpd, abs=1e-5)


def test_leave_one_out_says_where_it_cannot_be_trusted():
    sol = fenchel.infer(Gaussian(1e-10), DenseCovariance(2.0 * np.eye(3) + 1.0), [1.0, 2.0, 3.0])
    loo = sol.corrected().loo()
    assert not loo.trusted.any()
    np.testing.assert_allclose(loo.log_density, sol.loo().log_density)
    assert np.isnan(loo.pit).all()


def test_weights_count_observations_and_trials_are_trials():
    K = 4.0 * np.exp(-0.5 * np.subtract.outer(np.arange(4.0), np.arange(4.0)) ** 2)
    y, trials, weights = np.array([3.0, 0.0, 5.0, 1.0]), np.array([5.0, 4.0, 5.0, 2.0]), np.array([1.0, 2.0, 1.0, 3.0])
    found = fenchel.infer(Binomial(trials, "tilted"), DenseCovariance(K), y, weights=weights).corrected()
    index = np.repeat(np.arange(4), weights.astype(int))
    said = fenchel.infer(Binomial(trials[index], "tilted"), DenseCovariance(K[np.ix_(index, index)]), y[index])
    assert found.log_evidence == pytest.approx(said.corrected().log_evidence, abs=1e-6)
    one = fenchel.infer(Binomial(trials[:1], "exact"), DenseCovariance(K[:1, :1]), y[:1]).corrected()
    assert one.log_evidence == pytest.approx(
        brute(Binomial(trials[:1], bound="log-sum"), y[:1], K[:1, :1], 0.0, 0.005)[0], abs=1e-6
    )
