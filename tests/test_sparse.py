"""The sparse Cholesky factorisation and its selected inverse against dense linear algebra and SuperLU."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import splu

import fenchel
from fenchel.likelihoods import BernoulliLogit, MultinomialLogit, Poisson
from fenchel.linalg import SparseCholesky, SymbolicCholesky
from fenchel.linalg.dense import NotPositiveDefinite
from fenchel.linalg.supernodal import fill_reducing_order
from fenchel.priors import DenseCovariance, SparsePrecision


def lattice(k, nugget=0.1):
    T = sp.diags_array([-np.ones(k - 1), 2 * np.ones(k), -np.ones(k - 1)], offsets=[-1, 0, 1])
    eye = sp.eye_array(k)
    return (sp.kron(T, eye) + sp.kron(eye, T) + nugget * sp.eye_array(k * k)).tocsc()


def random_spd(n, density, seed):
    """A symmetric, diagonally dominant matrix with isolated nodes and several components among its draws."""
    rng = np.random.default_rng(seed)
    R = sp.random_array((n, n), density=density, rng=rng, data_sampler=lambda size: rng.normal(size=size))
    R = sp.csc_array(R + R.T)
    return sp.csc_array(R + sp.diags_array(np.abs(R).sum(axis=0) + rng.gamma(2.0, 1.0, n)))


@pytest.mark.parametrize("density", [0.0, 0.01, 0.05])
def test_the_order_is_that_of_a_whole_factorisation(density):
    """An incomplete one, which takes no time, is given the same columns in the same order."""
    A = random_spd(300, density, 3) if density else lattice(20)
    B = sp.csc_array(-abs(A))
    B.setdiag(np.diff(A.indptr) + abs(A).sum(axis=0))
    how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    assert np.array_equal(fill_reducing_order(A), np.argsort(splu(B, **how).perm_c))


def arrow(n, dense=3, seed=0):
    """A diagonal with a few dense rows: an intercept and covariates beside many groups."""
    rng = np.random.default_rng(seed)
    B = sp.csc_array(rng.normal(size=(n, dense)))
    corner = sp.csc_array(np.eye(dense) * n * 4)
    return sp.block_array([[sp.eye_array(n) * 5, B], [B.T, corner]], format="csc")


def check(A):
    M = A.toarray()
    inverse = np.linalg.inv(M)
    factor = SparseCholesky(A)
    scale = np.abs(inverse).max()
    assert factor.log_det == pytest.approx(np.linalg.slogdet(M)[1], rel=1e-10, abs=1e-10)
    b = np.random.default_rng(0).normal(size=(M.shape[0], 3))
    np.testing.assert_allclose(factor.solve(b), inverse @ b, atol=1e-10 * max(1, scale * 10))
    np.testing.assert_allclose(factor.solve(b[:, 0]), inverse @ b[:, 0], atol=1e-10 * max(1, scale * 10))
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(inverse), atol=1e-10 * scale)
    Z = factor.selected_inverse()
    np.testing.assert_allclose(Z.toarray()[M != 0], inverse[M != 0], atol=1e-10 * scale)
    np.testing.assert_array_equal(Z.indices, sp.csc_array(A).sorted_indices().indices)  # scipy 1.15 may not sort them
    L = factor.lower().toarray()
    order = factor.symbolic.order
    np.testing.assert_allclose(L @ L.T, M[np.ix_(order, order)], atol=1e-10 * np.abs(M).max())
    root = factor.sample(np.eye(M.shape[0]))
    np.testing.assert_allclose(root @ root.T, inverse, atol=1e-10 * scale)
    assert sorted(order) == list(range(M.shape[0]))
    return factor


@given(st.integers(1, 60), st.floats(0.0, 1.0), st.integers(0, 10_000))
def test_random_graphs(n, density, seed):
    check(random_spd(n, density**2, seed))


@pytest.mark.parametrize(
    "A",
    [
        lattice(2),
        lattice(13),
        lattice(30),
        arrow(200),
        sp.eye_array(7, format="csc"),
        sp.diags_array([-np.ones(499), 2.1 * np.ones(500), -np.ones(499)], offsets=[-1, 0, 1], format="csc"),
        sp.csc_array(random_spd(150, 1.0, 3)),
        sp.block_diag([lattice(5), sp.eye_array(3), lattice(4)], format="csc"),
    ],
    ids=["2x2", "13x13", "30x30", "arrow", "identity", "chain", "full", "components"],
)
def test_structures(A):
    check(A)


def test_ill_conditioned():
    A = lattice(25, nugget=1e-9)
    factor = SparseCholesky(A)
    exact = np.linalg.inv(A.toarray())
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(exact), rtol=1e-4)


def test_against_superlu_at_size():
    A = lattice(120)
    factor = SparseCholesky(A)
    lu = splu(A)
    assert factor.log_det == pytest.approx(np.log(np.abs(lu.U.diagonal())).sum(), rel=1e-12)
    b = np.random.default_rng(0).normal(size=A.shape[0])
    np.testing.assert_allclose(factor.solve(b), lu.solve(b), atol=1e-11)
    for i in (0, 7000, 14399):
        e = np.zeros(A.shape[0])
        e[i] = 1.0
        assert factor.inverse_diagonal()[i] == pytest.approx(lu.solve(e)[i], rel=1e-11)


def laplacian(n, edges):
    A = sp.coo_array((np.ones(len(edges)), np.array(edges).T), shape=(n, n))
    A = sp.csc_array(A + A.T)
    return sp.csc_array(sp.diags_array(np.asarray(A.sum(axis=1)).ravel()) - A)


@given(st.integers(2, 25), st.integers(0, 10_000))
def test_intrinsic_graphs_equal_their_pseudo_inverse(n, seed):
    """ICAR on random connected graphs, sum to zero: evidence, means and variances of the dense model."""
    rng = np.random.default_rng(seed)
    edges = [(int(rng.integers(0, j)), j) for j in range(1, n)]
    edges += [tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(n // 2)]
    Q = laplacian(n, list(set(edges))) * rng.gamma(2.0, 1.0)
    Sigma = np.linalg.pinv(Q.toarray())
    y = rng.poisson(2.0, n).astype(float)
    sparse = fenchel.infer(Poisson(), SparsePrecision(Q, constraints="sum-to-zero"), y, tol=1e-20)
    dense = fenchel.infer(Poisson(), DenseCovariance((Sigma + Sigma.T) / 2), y, tol=1e-20)
    assert sparse.elbo == pytest.approx(dense.elbo, abs=1e-8)
    np.testing.assert_allclose(sparse.posterior.mean, dense.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(sparse.posterior.variance, dense.posterior.variance, atol=1e-8)
    np.testing.assert_allclose(sparse.posterior.latent_variance, dense.posterior.variance, atol=1e-8)
    assert abs(sparse.posterior.latent_mean.sum()) < 1e-9
    draws = sparse.posterior.sample(4, rng=0)
    np.testing.assert_allclose(draws.sum(axis=1), 0.0, atol=1e-8)


def germany():
    data = fenchel.datasets.load_germany()
    A, n = data.adjacency, data.adjacency.shape[0]
    L = sp.csc_array(sp.diags_array(np.asarray(A.sum(axis=1)).ravel()) - A)
    return data, L, n


def test_germany_sparse_equals_dense():
    """Y with exposure E, intercept, ICAR and iid: evidence, means and variances to 1e-8; samples sum to zero."""
    data, L, n = germany()
    k_u, k_v = 16.0, 250.0
    Q = sp.block_diag([k_u * L, k_v * sp.eye_array(n), 0.1 * sp.eye_array(1)], format="csc")
    W = sp.hstack([sp.eye_array(n), sp.eye_array(n), np.ones((n, 1))], format="csr")
    C = np.r_[np.ones(n), np.zeros(n + 1)][None, :]
    K = np.linalg.pinv(L.toarray()) / k_u + np.eye(n) / k_v + 10.0
    y = data.Y.astype(float)
    y[[3, 100]] = np.nan
    prior = SparsePrecision(Q, design=W, constraints=C)
    sparse = fenchel.infer(Poisson(data.E), prior, y, tol=1e-12)
    dense = fenchel.infer(Poisson(data.E), DenseCovariance((K + K.T) / 2), y, tol=1e-12)
    assert sparse.n_iter <= 6
    assert sparse.elbo == pytest.approx(dense.elbo, abs=1e-8)
    np.testing.assert_allclose(sparse.posterior.mean, dense.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(sparse.posterior.variance, dense.posterior.variance, atol=1e-8)
    np.testing.assert_allclose(sparse.loo().log_density, dense.loo().log_density, atol=1e-7)
    assert abs(sparse.posterior.latent_mean[:n].sum()) < 1e-8


def test_components_and_softmax_under_constraints():
    rng = np.random.default_rng(1)
    Q = sp.block_diag([laplacian(4, [(0, 1), (1, 2), (2, 3)]), laplacian(3, [(0, 1), (1, 2), (0, 2)])], format="csc")
    Sigma = np.linalg.pinv(Q.toarray())
    prior = SparsePrecision(Q, constraints="sum-to-zero")
    for likelihood in (
        MultinomialLogit(3, bound="log-sum"),
        MultinomialLogit(3, None, "tilted"),
        BernoulliLogit("tilted"),
    ):
        y = rng.integers(0, 3 if likelihood.name != "BernoulliLogit" else 2, 7)
        sparse = fenchel.infer(likelihood, prior, y, tol=1e-20)
        dense = fenchel.infer(likelihood, DenseCovariance((Sigma + Sigma.T) / 2), y, tol=1e-20)
        assert sparse.elbo == pytest.approx(dense.elbo, abs=1e-9)
        np.testing.assert_allclose(sparse.posterior.variance, dense.posterior.variance, atol=1e-7)
        np.testing.assert_allclose(sparse.posterior.latent_mean[:4].sum(axis=0), 0.0, atol=1e-9)


def test_second_order_walk_needs_both_of_its_constraints():
    n = 12
    D = sp.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(n - 2, n))
    Q = sp.csc_array(D.T @ D)
    with pytest.raises(ValueError, match="the constraints do not fix its null space"):
        SparsePrecision(Q, constraints="sum-to-zero")
    with pytest.raises(ValueError, match=r"precision is not positive definite: .*constraints=\"sum-to-zero\""):
        SparsePrecision(Q)
    prior = SparsePrecision(Q, constraints=np.stack([np.ones(n), np.arange(n)]))
    y = np.arange(n) % 4
    dense = fenchel.infer(Poisson(), DenseCovariance(np.linalg.pinv(Q.toarray())), y, tol=1e-20)
    assert fenchel.infer(Poisson(), prior, y, tol=1e-20).elbo == pytest.approx(dense.elbo, abs=1e-7)
    with pytest.raises(ValueError, match="its rows independent of each other"):
        SparsePrecision(sp.eye_array(3), constraints=np.ones((2, 3)))


def test_constraints_on_a_proper_prior_are_conditioning():
    A = lattice(4)
    Sigma = np.linalg.inv(A.toarray())
    C = np.random.default_rng(0).normal(size=(2, 16))
    held = Sigma - Sigma @ C.T @ np.linalg.solve(C @ Sigma @ C.T, C @ Sigma)
    y = np.random.default_rng(1).poisson(2.0, 16)
    sparse = fenchel.infer(Poisson(), SparsePrecision(A, constraints=C), y, tol=1e-20)
    dense = fenchel.infer(Poisson(), DenseCovariance((held + held.T) / 2), y, tol=1e-20)
    assert sparse.elbo == pytest.approx(dense.elbo, abs=1e-9)
    np.testing.assert_allclose(sparse.posterior.covariance(), dense.posterior.covariance(), atol=1e-8)
    draws = sparse.posterior.sample(40_000, rng=0)
    np.testing.assert_allclose(np.cov(draws.T), dense.posterior.covariance(), atol=0.02)


def test_gradient_in_the_precision():
    """dP/dQ on the pattern against differences of refitted evidence."""
    A = lattice(4, nugget=1.0)
    y = np.random.default_rng(1).poisson(2.0, 16).astype(float)
    y[3] = np.nan

    def fit(scale, nugget):
        return fenchel.infer(Poisson(), SparsePrecision(scale * A + nugget * sp.eye_array(16)), y, tol=1e-18)

    sol = fit(1.0, 0.5)
    G = sol.posterior.gradient_precision()[0]
    for dQ, up, down in (
        (A, fit(1.0 + 1e-5, 0.5), fit(1.0 - 1e-5, 0.5)),
        (sp.eye_array(16, format="csc"), fit(1.0, 0.5 + 1e-5), fit(1.0, 0.5 - 1e-5)),
    ):
        assert float((G.multiply(dQ)).sum()) == pytest.approx((up.elbo - down.elbo) / 2e-5, rel=1e-6)


def test_dense_rows_go_last():
    factor = SparseCholesky(arrow(5000))
    assert set(factor.symbolic.order[-3:]) == {5000, 5001, 5002}
    assert factor.symbolic.nnz < 5000 * 12


def test_analysis_is_reused():
    A = lattice(20)
    factor = SparseCholesky(A)
    other = 3.0 * A
    again = factor.refactor(other)
    assert again.symbolic is factor.symbolic
    np.testing.assert_allclose(again.inverse_diagonal(), factor.inverse_diagonal() / 3, rtol=1e-12)
    np.testing.assert_array_equal(factor.symbolic.factor(other.data).inverse_diagonal(), again.inverse_diagonal())
    shared = SparseCholesky(other, symbolic=SymbolicCholesky(A))
    assert shared.log_det == again.log_det
    back = pickle.loads(pickle.dumps(factor))
    np.testing.assert_array_equal(back.solve(np.ones(400)), factor.solve(np.ones(400)))
    assert factor.symbolic.nnz < 400 * 40


def test_the_users_matrix_is_left_alone_in_any_format():
    A = lattice(6)
    for make in (sp.csc_array, sp.csr_array, sp.coo_array, sp.csc_matrix, sp.csr_matrix, sp.dok_array):
        B = make(A)
        before = B.toarray().copy()
        np.testing.assert_allclose(SparseCholesky(B).inverse_diagonal(), np.diag(np.linalg.inv(before)), rtol=1e-12)
        np.testing.assert_array_equal(B.toarray(), before)


@pytest.mark.parametrize(
    ("A", "error", "sentence"),
    [
        (np.eye(3), ValueError, "SparseCholesky: A is a ndarray; expected a scipy sparse matrix"),
        (sp.csc_array(np.ones((2, 3))), ValueError, r"A has shape \(2, 3\); expected a square matrix"),
        (sp.csc_array([[1.0, 2.0], [0.0, 1.0]]), ValueError, "A is not symmetric; expected both triangles"),
        (sp.csc_array([[1.0, np.nan], [np.nan, 1.0]]), ValueError, "entries that are not finite"),
        (sp.csc_array([[1.0, 2.0], [2.0, 1.0]]), NotPositiveDefinite, "pivot of row"),
        (sp.csc_array([[0.0, 1.0], [1.0, 1.0]]), NotPositiveDefinite, "the pivot of row . is not positive"),
    ],
)
def test_what_is_not_a_precision(A, error, sentence):
    with pytest.raises(error, match=sentence):
        SparseCholesky(A)


def test_another_pattern_is_refused():
    with pytest.raises(ValueError, match="another pattern than the"):
        SparseCholesky(lattice(5)).refactor(sp.eye_array(25, format="csc"))
    with pytest.raises(ValueError, match=r"b has shape \(3,\)"):
        SparseCholesky(lattice(5)).solve(np.ones(3))


def test_inverses_of_diagonal_blocks():
    """Of small ones and of one of hundreds of rows, as dense factors have; what lies above the diagonal is not read."""
    from fenchel.linalg._fronts import lower_inverse

    for w in (1, 2, 7, 300):
        L = np.tril(np.random.default_rng(w).normal(size=(w, w)) / w) + np.diag(1.0 + np.arange(w) / w)
        out = np.full((w, w), np.nan)
        lower_inverse(L + np.triu(np.full((w, w), 9.0), 1), out)
        np.testing.assert_allclose(out, np.linalg.inv(L), atol=1e-12)
        assert (np.triu(out, 1) == 0.0).all()
