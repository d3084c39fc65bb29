"""Many small constraints, one latent of each eliminated, against the covariance on their null space written out."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import fenchel
from fenchel.likelihoods import MultinomialLogit, Poisson
from fenchel.linalg.constrained import BasisAnalysis, BasisCholesky
from fenchel.linalg.constraint_bases import split_local
from fenchel.linalg.factorisation import symmetric_csc
from fenchel.priors import DenseCovariance, SparsePrecision


def islands(rng, k, most=5):
    """The Laplacian of k islands of 1 to ``most`` nodes, in any order, and the island of each node."""
    sizes = rng.integers(1, most + 1, k)
    island = rng.permutation(np.repeat(np.arange(k), sizes))
    n = island.size
    A = np.zeros((n, n))
    for c in range(k):
        nodes = np.flatnonzero(island == c)
        for a, b in itertools.pairwise(nodes):
            A[a, b] = A[b, a] = 1.0
    return np.diag(A.sum(axis=1)) - A, island


def covariance(Q, C):
    free = scipy.linalg.null_space(C)
    return free @ np.linalg.inv(free.T @ Q @ free) @ free.T


@given(st.integers(0, 10_000))
def test_answers_are_those_of_the_null_space(seed):
    rng = np.random.default_rng(seed)
    Q, island = islands(rng, 40)
    n = island.size
    cover = sp.csr_array(rng.normal(size=(6, n)) * (rng.random((6, n)) < 0.3))  # rows that join the islands
    A = symmetric_csc(sp.csc_array(Q + sp.eye_array(n) * rng.random() + cover.T @ cover))
    C = (island[None, :] == np.arange(40)[:, None]) * rng.uniform(0.5, 2.0, (40, n))
    basis, rest = split_local(C)
    assert rest.shape == (0, n)
    np.testing.assert_allclose(C @ basis.toarray(), 0.0, atol=1e-12)
    factor = BasisAnalysis(A, basis).factor(A.data)
    assert isinstance(factor, BasisCholesky)
    V = covariance(A.toarray(), C)
    close = {"atol": 1e-9 * max(1.0, np.abs(V).max())}
    b = rng.normal(size=(n, 2))
    columns = np.repeat(np.arange(n), np.diff(A.indptr))
    np.testing.assert_allclose(factor.solve(b), V @ b, **close)
    np.testing.assert_allclose(factor.solve(b[:, 0]), V @ b[:, 0], **close)
    np.testing.assert_allclose(factor.inverse_data(), V[A.indices, columns], **close)
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(V), **close)
    root = factor.sample(np.eye(n))
    np.testing.assert_allclose(root @ root.T, V, **close)
    E = sp.csc_array((rng.normal(size=A.nnz), A.indices, A.indptr), shape=A.shape)
    E = sp.csc_array(E + E.T)
    E.sort_indices()
    exact = V @ E.toarray() @ V
    np.testing.assert_allclose(factor.sandwich(E.data), exact[A.indices, columns], atol=1e-9 * np.abs(V).max() ** 2 * n)
    # differences of the log-determinant are those of any basis of the null space
    free, other = scipy.linalg.null_space(C), A.toarray() + np.diag(rng.random(n))
    there = BasisAnalysis(A, basis).factor(other[A.indices, columns])
    wanted = np.linalg.slogdet(free.T @ other @ free)[1] - np.linalg.slogdet(free.T @ A.toarray() @ free)[1]
    assert there.log_det - factor.log_det == pytest.approx(wanted, abs=1e-8)


def test_few_or_shared_constraints_are_conditioned_on():
    rng = np.random.default_rng(0)
    C = np.kron(np.eye(40), np.ones((1, 3)))
    assert split_local(C[:20])[0] is None
    basis, rest = split_local(np.vstack([C, np.r_[np.ones(3), np.zeros(117)]]))  # shares the first island
    assert rest.shape == (2, 120)
    assert basis.shape == (120, 120 - 39)
    wide = np.vstack([np.hstack([C, np.zeros((40, 100))]), np.r_[np.zeros(120), rng.random(100)]])
    basis, rest = split_local(wide)
    assert rest.shape == (1, 220)
    assert basis.shape == (220, 180)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("kind", ["poisson", "softmax"])
def test_a_map_of_many_islands_equals_the_dense_model(kind, joined):
    """Evidence, means and variances; ``joined`` has a constraint over all islands beside their own, and a level."""
    rng = np.random.default_rng(4)
    Q, island = islands(rng, 40, most=4)
    n = island.size
    Q = np.block([[2.0 * Q, np.zeros((n, 1))], [np.zeros((1, n)), 0.5 * np.eye(1)]])
    C = np.hstack([(island[None, :] == np.arange(40)[:, None]).astype(float), np.zeros((40, 1))])
    if joined:
        C = np.vstack([C, np.r_[rng.random(n), 0.0]])
    W = np.hstack([np.eye(n), np.ones((n, 1))])
    prior = SparsePrecision(sp.csc_array(Q), design=sp.csr_array(W), constraints=C)
    symbolic = prior.pattern.symbolic
    assert isinstance(symbolic.inner if joined else symbolic, BasisAnalysis)
    if kind == "poisson":
        likelihood, y = Poisson(), rng.poisson(2.0, n).astype(float)
    else:
        likelihood, y = MultinomialLogit(3, bound="log-sum"), rng.integers(0, 3, n).astype(float)
    dense = DenseCovariance(covariance(Q, C), design=W)
    one, other = (fenchel.infer(likelihood, p, y, tol=1e-11) for p in (prior, dense))
    assert one.converged
    assert one.elbo == pytest.approx(other.elbo, abs=1e-7)
    np.testing.assert_allclose(one.posterior.mean, other.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(one.posterior.variance, other.posterior.variance, atol=1e-5)
    np.testing.assert_allclose(C @ one.posterior.latent_mean, 0.0, atol=1e-9)
    again = prior.reweighted(sp.csc_array(3.0 * Q))
    slower = DenseCovariance(covariance(3.0 * Q, C), design=W)
    assert fenchel.infer(likelihood, again, y).elbo == pytest.approx(
        fenchel.infer(likelihood, slower, y).elbo, abs=1e-5
    )


def test_constraints_that_leave_a_flat_direction_are_refused():
    Q, island = islands(np.random.default_rng(1), 50, most=3)
    C = (island[None, :] == np.arange(50)[:, None]).astype(float)
    SparsePrecision(sp.csc_array(Q), constraints=C)
    with pytest.raises(ValueError, match="do not fix its null space"):
        SparsePrecision(sp.csc_array(Q), constraints=C[1:])
