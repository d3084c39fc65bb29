"""Leaves and a dense border, and A^-1 E A^-1 on the pattern by either backend, against matrices written out."""

import pickle
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import fenchel
from fenchel import gmrf
from fenchel.hyperparameters import learn
from fenchel.likelihoods import BernoulliLogit, Poisson
from fenchel.linalg import SparseCholesky, SymbolicCholesky, leaves
from fenchel.linalg.dense import NotPositiveDefinite
from fenchel.linalg.factorisation import analyse, symmetric_csc
from fenchel.linalg.leaves import LeafAnalysis, find_leaves
from fenchel.priors import DenseCovariance, SparsePrecision


@pytest.fixture(autouse=True)
def no_dense_chains(monkeypatch):
    """Small matrices by the backends of large ones."""
    monkeypatch.setattr("fenchel.linalg.chain.ONE_BLOCK", 0)
    monkeypatch.setattr("fenchel.gates.CHAIN_ROWS", 0)


def filled(pattern, rng):
    """A diagonally dominant symmetric matrix with random values on a pattern."""
    R = sp.csc_array(pattern)
    R.data = rng.normal(size=R.nnz)
    R = sp.csc_array(R + R.T)
    return symmetric_csc(R + sp.diags_array(np.abs(R).sum(axis=0) + rng.gamma(2.0, 1.0, R.shape[0])))


def groups(code, n_levels, columns):
    """Each column times the indicators of a grouping, level by level."""
    rows = np.arange(code.size)
    parts = [
        sp.csr_array((x, (rows, code * len(columns) + j)), shape=(code.size, n_levels * len(columns)))
        for j, x in enumerate(columns)
    ]
    return sum(parts[1:], parts[0])


def crossed(rng, n=80, slopes=1):
    """W'W of two crossed groupings, the larger with ``slopes`` columns a level, and two shared columns."""
    one = np.ones(n)
    W = sp.hstack(
        [
            groups(rng.integers(0, 15, n), 15, [one] + [rng.normal(size=n) for _ in range(slopes - 1)]),
            groups(rng.integers(0, 6, n), 6, [one]),
            np.column_stack([one, rng.normal(size=n)]),
        ],
        format="csr",
    )
    return W.T @ W + sp.eye_array(W.shape[1])


def lattice(k):
    T = sp.diags_array([-np.ones(k - 1), 2 * np.ones(k), -np.ones(k - 1)], offsets=[-1, 0, 1])
    return sp.kron(T, sp.eye_array(k)) + sp.kron(sp.eye_array(k), T) + 0.1 * sp.eye_array(k * k)


def on_pattern(M, A):
    return M[A.indices, np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))]


def change_of(A, rng):
    """Values of a random symmetric E on the pattern of A, and E."""
    E = sp.csc_array((rng.normal(size=A.nnz), A.indices, A.indptr), shape=A.shape)
    E = sp.csc_array(E + E.T)
    E.sort_indices()
    return E.data, E.toarray()


def check(factor, A, rng):
    M = A.toarray()
    inverse, n = np.linalg.inv(M), A.shape[0]
    close = {"atol": 1e-11 * max(1.0, np.abs(inverse).max())}
    assert factor.log_det == pytest.approx(np.linalg.slogdet(M)[1], abs=1e-10)
    b = rng.normal(size=(n, 3))
    np.testing.assert_allclose(factor.solve(b), inverse @ b, **close)
    np.testing.assert_allclose(factor.solve(b[:, 0]), inverse @ b[:, 0], **close)
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(inverse), **close)
    np.testing.assert_allclose(factor.inverse_data(), on_pattern(inverse, A), **close)
    root = factor.sample(np.eye(n))
    np.testing.assert_allclose(root @ root.T, inverse, **close)
    values, E = change_of(A, rng)
    exact = inverse @ E @ inverse
    np.testing.assert_allclose(factor.sandwich(values), on_pattern(exact, A), atol=1e-10 * np.abs(exact).max())
    assert 0.0 < factor.smallest_pivot <= 1.0 + 1e-15
    assert 0.0 < factor.log_det_rounding < 1e-12


@given(st.integers(1, 50), st.floats(0.0, 1.0), st.integers(0, 10_000))
def test_random_patterns_by_either_backend(n, density, seed):
    rng = np.random.default_rng(seed)
    A = filled(sp.random_array((n, n), density=density**3, rng=rng), rng)
    check(LeafAnalysis(A, find_leaves(A).number).factor(A.data), A, rng)
    check(SymbolicCholesky(A).factor(A.data), A, rng)


@given(st.integers(1, 4), st.integers(0, 10_000))
def test_crossed_groupings(slopes, seed):
    rng = np.random.default_rng(seed)
    A = filled(crossed(rng, slopes=slopes), rng)
    leaves = find_leaves(A)
    assert leaves.n_border <= 8 + 4 * slopes  # the larger grouping is eliminated, but for levels that no row has
    check(LeafAnalysis(A, leaves.number).factor(A.data), A, rng)


@pytest.mark.parametrize("k", [2, 13, 30])
def test_sandwich_over_fronts_of_every_shape(k):
    rng = np.random.default_rng(k)
    A = symmetric_csc(sp.csc_array(lattice(k)))
    check(SymbolicCholesky(A).factor(A.data), A, rng)


def test_which_backend_is_chosen():
    rng = np.random.default_rng(0)
    n = 4000
    W = sp.hstack(
        [groups(rng.integers(0, m, n), m, [np.ones(n)]) for m in (300, 100, 8)] + [np.ones((n, 1))], format="csr"
    )
    A = symmetric_csc(sp.csc_array(W.T @ W + sp.eye_array(W.shape[1])))
    chosen = analyse(A)
    assert isinstance(chosen, LeafAnalysis)
    assert chosen.n_rest == 109
    assert isinstance(analyse(symmetric_csc(sp.csc_array(lattice(40)))), SymbolicCholesky)
    chain = sp.diags_array([-np.ones(999), 2.1 * np.ones(1000), -np.ones(999)], offsets=[-1, 0, 1], format="csc")
    assert isinstance(analyse(symmetric_csc(chain)), SymbolicCholesky)
    own = sp.hstack([sp.eye_array(1000), rng.normal(size=(1000, 3))], format="csr")  # an effect for every row
    chosen = analyse(symmetric_csc(sp.csc_array(own.T @ own + sp.eye_array(1003))))
    assert isinstance(chosen, LeafAnalysis)
    assert chosen.n_rest == 3
    again = pickle.loads(pickle.dumps(chosen))
    assert again.same_pattern(sp.csc_array((np.ones(chosen.indices.size), chosen.indices, chosen.indptr)))


def test_a_bad_pivot_is_named_wherever_it_is():
    A = symmetric_csc(sp.csc_array(np.diag([1.0, 2.0, 3.0]) + np.eye(3, k=2) + np.eye(3, k=-2)))
    analysis = LeafAnalysis(A, find_leaves(A).number)
    for i in range(3):
        wrong = A.toarray()
        wrong[i, i] = -1.0
        with pytest.raises(NotPositiveDefinite, match="pivot"):
            analysis.factor(on_pattern(wrong, A))


def test_refused_right_sides():
    A = symmetric_csc(sp.eye_array(4, format="csc"))
    for factor in (analyse(A).factor(A.data), SparseCholesky(A)):
        with pytest.raises(ValueError, match="b has shape"):
            factor.solve(np.ones(5))


@given(st.integers(0, 10_000))
def test_sandwich_under_constraints(seed):
    """V E V of the conditioned Gaussian: a walk beside groups, one node pinned or none."""
    rng = np.random.default_rng(seed)
    n = 9
    walk = sp.diags_array([-np.ones(n - 1)], offsets=[1], shape=(n, n))
    Q = sp.csc_array(sp.diags_array(np.r_[1.0, np.full(n - 2, 2.0), 1.0]) + walk + walk.T)
    Q = symmetric_csc(sp.block_diag([Q, sp.eye_array(4)], format="csc"))
    C = np.zeros((2, n + 4))
    C[0, :n] = 1.0
    if seed % 2:
        C[1, n] = 1.0
    else:
        C[1, n:] = rng.normal(size=4)
    W = sp.csr_array(rng.normal(size=(30, n + 4)) * (rng.random((30, n + 4)) < 0.4))
    prior = SparsePrecision(Q, design=W, constraints=C)
    lam, v = rng.gamma(1.0, 1.0, 30), rng.normal(size=30)
    factor = prior.bind(30, 1, False).at(lam[:, None])
    basis = np.linalg.svd(C)[2][2:].T
    dense = W.toarray()
    V = basis @ np.linalg.inv(basis.T @ (Q.toarray() + dense.T * lam @ dense) @ basis) @ basis.T
    Vt = dense @ V @ dense.T
    np.testing.assert_allclose(factor.hadamard(v[:, None])[:, 0], Vt**2 @ v, atol=1e-9 * np.abs(Vt**2).max())


@pytest.mark.parametrize("likelihood", [BernoulliLogit("exact"), Poisson()])
def test_crossed_fit_equals_the_dense_one(likelihood):
    rng = np.random.default_rng(3)
    n = 300
    W = sp.hstack([groups(rng.integers(0, m, n), m, [np.ones(n)]) for m in (40, 12)] + [np.ones((n, 1))], format="csr")
    q = np.r_[np.full(40, 2.0), np.full(12, 0.5), 0.1]
    y = (rng.random(n) < 0.4).astype(float)
    prior = SparsePrecision(sp.diags_array(q, format="csc"), design=W)
    assert isinstance(prior.pattern.symbolic, LeafAnalysis)
    dense = DenseCovariance(np.diag(1 / q), design=W.toarray())
    one, other = (fenchel.infer(likelihood, p, y, tol=1e-12) for p in (prior, dense))
    assert one.elbo == pytest.approx(other.elbo, abs=1e-9)
    np.testing.assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(one.posterior.variance, other.posterior.variance, atol=1e-6)


def test_a_gaussian_fit_factorises_once():
    """Its start, Newton's step and where that ends ask for one matrix; another lam asks for another."""
    rng = np.random.default_rng(5)
    n = 200
    W = sp.hstack([groups(rng.integers(0, m, n), m, [np.ones(n)]) for m in (30, 7)], format="csr")
    prior = SparsePrecision(sp.eye_array(37, format="csc"), design=W)
    made, count = prior.pattern.symbolic.factor_of, []
    prior.pattern.symbolic.factor_of = lambda x: count.append(1) or made(x)
    y = rng.normal(size=n)
    sol = fenchel.infer(fenchel.Gaussian(0.5), prior, y)
    assert len(count) == 1
    assert fenchel.infer(fenchel.Gaussian(0.7), prior, y).elbo != sol.elbo
    dense = fenchel.infer(fenchel.Gaussian(0.5), DenseCovariance(np.eye(37), design=W.toarray()), y)
    assert sol.elbo == pytest.approx(dense.elbo, abs=1e-9)


def test_variances_of_crossed_effects_by_a_dense_likelihood():
    """Learned sds and noise of a Gaussian model against the marginal likelihood written out and maximised by scipy."""
    rng = np.random.default_rng(6)
    n, levels = 400, (25, 12)
    codes = [rng.integers(0, m, n) for m in levels]
    y = 0.8 * rng.normal(size=25)[codes[0]] + 0.5 * rng.normal(size=12)[codes[1]] + 0.6 * rng.normal(size=n)
    family = gmrf.stack([(gmrf.iid(m), code) for m, code in zip(levels, codes, strict=True)], fixed_variance=4.0)
    found = learn(fenchel.Gaussian(1.0), family, y, gtol=1e-5)
    blocks = [(a[:, None] == a[None, :]).astype(float) for a in codes]

    def negative(theta):
        S = sum(np.exp(2 * t) * K for t, K in zip(theta[:2], blocks, strict=True)) + 4.0 + np.exp(theta[2]) * np.eye(n)
        return -multivariate_normal(np.zeros(n), S).logpdf(y)

    best = minimize(negative, found.theta + 0.1, method="BFGS", options={"gtol": 1e-4})
    assert found.converged
    np.testing.assert_allclose(found.theta, best.x, atol=2e-4)
    assert found.solution.elbo == pytest.approx(-best.fun, abs=1e-6)


def test_a_factor_is_not_inverted_while_it_is_solved_with(monkeypatch):
    """A large dense rest shares its memory with its inverse, which another thread may ask for at any time."""
    from fenchel.linalg import _leaf_passes

    monkeypatch.setattr(leaves, "_LARGE", 0)
    rng = np.random.default_rng(0)
    A = symmetric_csc(crossed(rng))
    factor = LeafAnalysis(A, find_leaves(A).number).factor(A.data)
    b, backward = rng.normal(size=A.shape[0]), _leaf_passes.backward
    other = threading.Thread(target=factor.stored_inverse)

    def interrupted(*arguments):
        other.start()
        other.join(0.2)
        return backward(*arguments)

    monkeypatch.setattr(_leaf_passes, "backward", interrupted)
    found = factor.solve(b)
    other.join()
    np.testing.assert_allclose(A @ found, b, atol=1e-10)
    monkeypatch.undo()
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(np.linalg.inv(A.toarray())), rtol=1e-9)
