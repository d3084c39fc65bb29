"""The sparse Cholesky factorisation and its selected inverse against dense linear algebra and SuperLU."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import splu

from fenchel.linalg import SparseCholesky, SymbolicCholesky
from fenchel.linalg.dense import NotPositiveDefinite


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
    np.testing.assert_array_equal(Z.indices, sp.csc_array(A).indices)
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
    np.testing.assert_array_equal(factor.refactor_data(other.data).inverse_diagonal(), again.inverse_diagonal())
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
        (sp.csc_array([[0.0, 1.0], [1.0, 1.0]]), NotPositiveDefinite, "row 0 has no diagonal entry"),
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
