"""Factors in their own layout, in stretches and with large borders packed, against matrices written out."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bordered import change_of, check, crossed, filled, on_pattern
from threadpoolctl import threadpool_limits

from fenchel.gmrf.vecchia import Vecchia
from fenchel.linalg import SymbolicCholesky, leaves
from fenchel.linalg.factorisation import symmetric_csc
from fenchel.linalg.leaves import LeafAnalysis, find_leaves
from fenchel.linalg.row_pairs import RowPairs


def design(rng, n, sizes, shared):
    """Rows that see a level of each grouping, some of none, and shared columns."""
    rows = np.arange(n)
    parts = [sp.csr_array((rng.normal(size=n), (rows, rng.integers(0, m, n))), shape=(n, m)) for m in sizes]
    W = sp.csr_array(sp.hstack([*parts, rng.normal(size=(n, shared))], format="csr"))
    return sp.csr_array(W * (rng.random((n, 1)) < 0.9))


def pattern_of(W):
    ones = sp.csr_array((np.ones(W.nnz), W.indices, W.indptr), shape=W.shape)
    return symmetric_csc(sp.csc_array(ones.T @ ones + sp.eye_array(W.shape[1])))


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 6), st.integers(0, 3), st.integers(0, 10_000))
def test_pairs_of_rows_in_the_layout_of_either_backend(n, first, second, shared, seed):
    rng = np.random.default_rng(seed)
    W = design(rng, n, (first, second), shared)
    A, v, weight = pattern_of(W), rng.normal(size=n), rng.gamma(2.0, 1.0, n)
    keep = np.flatnonzero(rng.random(n) < 0.6)
    Q = np.diag(rng.gamma(3.0, 1.0, A.shape[0]))
    for symbolic in (SymbolicCholesky(A), LeafAnalysis(A, find_leaves(A).number)):
        q = on_pattern(Q, A)
        for rows in (np.arange(n), keep):
            dense, pairs = W.toarray()[rows], RowPairs(W, symbolic).take(rows)
            V = np.linalg.inv(Q + dense.T @ (weight[rows, None] * dense))
            factor = symbolic.factor_of(pairs.add(weight[rows], symbolic.laid_out(q)))
            Vt = dense @ V @ dense.T
            np.testing.assert_allclose(pairs.forms(factor.stored_inverse()), np.diag(Vt), rtol=1e-9, atol=1e-11)
            E = pairs.add(v[rows], np.zeros(symbolic.nnz))
            np.testing.assert_allclose(
                pairs.forms(factor.stored_sandwich(E)),
                (Vt * Vt) @ v[rows],
                rtol=1e-8,
                atol=1e-9 * (1 + np.abs(Vt).max(initial=0.0) ** 2),
            )


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 10_000))
def test_packed_borders_and_leaves_in_stretches(slopes, packed, cut, seed):
    rng = np.random.default_rng(seed)
    A = filled(crossed(rng, slopes=slopes), rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaves, "_LARGE", 0 if packed else 10**6)
        patch.setattr(leaves, "_CUT_LEAVES", 1 if cut else 10**6)
        symbolic = LeafAnalysis(A, find_leaves(A).number)
        factor = symbolic.factor(A.data)
        check(factor, A, rng)
        b = rng.normal(size=(A.shape[0], 2))  # once more, now that the inverse has taken the factor's place
        np.testing.assert_allclose(factor.solve(b), np.linalg.solve(A.toarray(), b), atol=1e-10)
        root = factor.sample(np.eye(A.shape[0]))
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(A.toarray()), atol=1e-10)
        assert factor._x.size == (symbolic.size if packed else symbolic.nnz)


def test_stretches_give_the_same_bits_on_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    W = sp.csr_array(sp.hstack([sp.eye_array(3000), rng.normal(size=(3000, 3))], format="csr"))
    A = filled(pattern_of(W), rng)
    monkeypatch.setattr(leaves, "_CUT_LEAVES", 100)
    symbolic, found = LeafAnalysis(A, find_leaves(A).number), []
    assert symbolic.n_rest == 3
    E, b = change_of(A, rng)[0], rng.normal(size=A.shape[0])
    for threads in (1, 2, 3):
        with threadpool_limits(threads):
            factor = symbolic.factor(A.data)
            found.append([factor.log_det, factor.solve(b), factor.inverse_data(), factor.sandwich(E)])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_a_bad_pivot_in_a_later_stretch(monkeypatch):
    monkeypatch.setattr(leaves, "_CUT_LEAVES", 4)
    A = symmetric_csc(sp.eye_array(64, format="csc"))
    symbolic, data = LeafAnalysis(A, find_leaves(A).number), np.ones(64)
    data[50] = -1.0
    with pytest.raises(ArithmeticError, match="row 50"):
        symbolic.factor(data)


@pytest.mark.parametrize(("first", "second"), [(60, 60), (200, 60)])
def test_equal_and_unequal_crossed_groupings_leave_the_smaller_one(first, second):
    rng = np.random.default_rng(1)
    n = 4000
    rows = np.arange(n)
    parts = [sp.csr_array((np.ones(n), (rows, rng.integers(0, m, n))), shape=(n, m)) for m in (first, second)]
    A = pattern_of(sp.csr_array(sp.hstack([*parts, np.ones((n, 1))], format="csr")))
    leaves = find_leaves(A)
    assert leaves.n_border == second + 1
    assert leaves.fill_border(A)


def test_a_map_is_left_to_fronts():
    T = sp.diags_array([-np.ones(69), 2 * np.ones(70), -np.ones(69)], offsets=[-1, 0, 1])
    A = sp.kron(T, sp.eye_array(70)) + sp.kron(sp.eye_array(70), T) + sp.eye_array(4900)
    one = np.ones((4900, 1))
    A = symmetric_csc(sp.csc_array(sp.block_array([[A, one], [one.T, np.array([[1e4]])]])))
    assert not find_leaves(A).fill_border(A)


@pytest.mark.parametrize(("d", "m"), [(2, 10), (2, 20), (3, 10)])
def test_points_that_condition_on_knots_are_left_to_fronts(d, m):
    X = np.random.default_rng(3).random((6000, d))
    process, _ = Vecchia.of(X, np.ones(d), m, "matern32", True, 2000)
    n, W = len(X), sp.hstack([sp.eye_array(len(X)), np.ones((len(X), 1))], format="csr")  # and an intercept
    Q = sp.csc_array((np.ones(process.indices.size), process.indices, process.indptr), shape=(n, n))
    A = symmetric_csc(sp.block_diag([Q, sp.eye_array(1)], format="csc") + sp.csc_array(W.T @ W))
    leaves = find_leaves(A)
    assert leaves.n_border <= 2001
    assert not leaves.fill_border(A)
