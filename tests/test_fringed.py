"""Leaves before a sparse rest, against matrices written out and against the other backends."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bordered import check, filled, lattice

import fenchel
from fenchel.gmrf.vecchia import Vecchia
from fenchel.linalg import SymbolicCholesky
from fenchel.linalg.factorisation import analyse, symmetric_csc
from fenchel.linalg.leaves import LeafAnalysis, find_leaves
from fenchel.linalg.row_pairs import DesignRows, RowPairs


def fringe(rng, side, n, width, reach):
    """A lattice with n leaves of some width, each of which touches some of its nodes; and the leaf of each column."""
    size = side * side
    touched = sp.csr_array((rng.random((n, size)) < reach / size).astype(float))
    B = sp.kron(touched, np.ones((width, 1)), format="csr")
    D = sp.kron(sp.eye_array(n), np.ones((width, width)))
    A = filled(sp.block_array([[D, B], [B.T, lattice(side)]], format="csc"), rng)
    leaf = np.r_[np.repeat(np.arange(n), width), np.full(size, -1)]
    return A, leaf


def points(n=3000, knots=600, m=8):
    X = np.random.default_rng(3).random((n, 2))
    process, _ = Vecchia.of(X, np.ones(2), m, "matern32", True, knots)
    Q, _ = process(np.array([0.2, -1.0]))
    W = sp.hstack([sp.eye_array(n), np.ones((n, 1))], format="csr")
    return symmetric_csc(sp.block_diag([Q, sp.eye_array(1)], format="csc") + sp.csc_array(W.T @ W)), W


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 3), st.floats(0.0, 6.0), st.integers(0, 10_000))
def test_leaves_of_every_shape(side, n, width, reach, seed):
    rng = np.random.default_rng(seed)
    A, leaf = fringe(rng, side, n, width, reach)
    mixed = rng.permutation(leaf.size)
    B = sp.csc_array(A[mixed][:, mixed])
    B.sort_indices()
    for M, number in ((A, leaf), (B, leaf[mixed])):
        check(LeafAnalysis(M, number, by_fronts=True).factor(M.data), M, rng)


@pytest.mark.parametrize("threads", [1, 2])
def test_points_that_condition_on_knots(threads, monkeypatch):
    from threadpoolctl import threadpool_limits

    monkeypatch.setattr("fenchel.linalg.machine.PARALLEL", 1)
    A, W = points(900, 200)
    rng = np.random.default_rng(0)
    with threadpool_limits(threads):
        factor = LeafAnalysis(A, find_leaves(A).number, by_fronts=True).factor(A.data)
        other = SymbolicCholesky(A).factor(A.data)
        check(factor, A, rng)
        weights = rng.random(W.shape[0])
        pairs = RowPairs(W, factor.symbolic)
        x = pairs.add(weights, factor.symbolic.laid_out(A.data))
        exact = symmetric_csc(A + sp.csc_array(W.T @ sp.diags_array(weights) @ W))
        assert factor.symbolic.factor_of(x).log_det == pytest.approx(other.refactor(exact).log_det, abs=1e-9)
        rows = DesignRows(sp.csr_array(W), A.indptr, A.indices, by_pairs=False)
        np.testing.assert_allclose(pairs.forms(factor.stored_inverse()), other.row_variances(rows), rtol=1e-8)


def test_when_it_is_chosen():
    A, _ = points()
    chosen = analyse(A)
    assert type(chosen) is LeafAnalysis
    assert type(chosen.rest) is SymbolicCholesky
    assert chosen.n_rest <= 601
    assert type(analyse(symmetric_csc(sp.csc_array(lattice(60))))) is SymbolicCholesky
    again = pickle.loads(pickle.dumps(chosen))
    np.testing.assert_array_equal(again.everywhere, chosen.everywhere)
    np.testing.assert_allclose(again.factor(A.data).log_det, chosen.factor(A.data).log_det, rtol=1e-14)


def test_bad_pivots_on_either_side():
    A, leaf = fringe(np.random.default_rng(1), 4, 6, 1, 3.0)
    analysis = LeafAnalysis(A, leaf, by_fronts=True)
    for column, words in ((2, "row 2 "), (10, "behind the leaves")):
        data = A.data.copy()
        data[A.indptr[column] + np.flatnonzero(A.indices[A.indptr[column] : A.indptr[column + 1]] == column)] = -1.0
        with pytest.raises(ArithmeticError, match=words):
            analysis.factor(data)


def test_a_fit_is_the_same_by_either_backend_and_after_a_file(monkeypatch, tmp_path):
    rng = np.random.default_rng(5)
    X = rng.random((2500, 2)) * 4
    eta = np.sin(2 * X[:, 0]) + np.cos(X[:, 1])
    data = {"x": X[:, 0], "z": X[:, 1], "y": rng.poisson(np.exp(eta))}
    formula = "y ~ vecchia(x, z, isotropic=True, neighbours=6, knots=150)"
    fit = fenchel.fit(formula, data, "poisson")
    assert type(fit.found.prior.pattern.symbolic.rest) is SymbolicCholesky
    new = {"x": X[:40, 0] + 0.01, "z": X[:40, 1]}
    fit.save(tmp_path / "fit")
    again = fenchel.load(tmp_path / "fit")
    np.testing.assert_allclose(np.asarray(again.predict(new)), np.asarray(fit.predict(new)), rtol=1e-12)
    monkeypatch.setattr("fenchel.linalg.leaves.Leaves.precede_fronts", lambda self, A: False)
    other = fenchel.fit(formula, data, "poisson")
    assert other.elbo == pytest.approx(fit.elbo, abs=1e-7)
    np.testing.assert_allclose(other.theta, fit.theta, atol=1e-4)


def test_other_values_on_a_known_pattern_are_looked_through():
    A, _ = points(300, 60)
    prior = fenchel.SparsePrecision(A)
    again = prior.reweighted(2.0 * A)
    assert np.shares_memory(again.precision.indices, prior.precision.indices)
    np.testing.assert_array_equal(again.precision.data, 2.0 * A.data)
    assert again.factor.log_det == pytest.approx(prior.factor.log_det + A.shape[0] * np.log(2.0), rel=1e-12)
    for value, words in ((np.nan, "not finite"), (np.inf, "not finite"), (7.0, "not symmetric")):
        wrong = A.copy()
        wrong.data[A.indptr[10] + 1 + (A.indices[A.indptr[10] + 1] == 10)] = value
        with pytest.raises(ValueError, match=words):
            prior.reweighted(wrong)
