"""Dense borders: A^-1 C A^-1 by solves from either side, one matrix asked by several threads, one factor for two."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bordered import crossed, filled, on_pattern

import fenchel
from fenchel.likelihoods import Poisson
from fenchel.linalg import leaves
from fenchel.linalg.leaves import LeafAnalysis, find_leaves
from fenchel.linalg.machine import counting
from fenchel.linalg.two_sided import two_sided
from fenchel.priors import SparsePrecision, sparse


@pytest.fixture(autouse=True)
def no_dense_chains(monkeypatch):
    """Small matrices by the backends of large ones."""
    monkeypatch.setattr("fenchel.linalg.chain.ONE_BLOCK", 0)
    monkeypatch.setattr("fenchel.gates.CHAIN_ROWS", 0)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 10_000))
def test_two_sided_solves(n, seed):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(2, n, n))
    A, C = A @ A.T / n + np.eye(n), C + C.T
    L = np.linalg.cholesky(A)
    pivots = np.diag(L) ** 2
    anything = np.triu(rng.normal(size=(n, n)))  # what stands above, and on the diagonal of F, is not read
    F = np.asfortranarray(np.tril(L / np.diag(L), -1) + anything)
    given_F, out = F.copy(), np.asfortranarray(np.tril(C) + np.triu(anything, 1))
    two_sided(F, pivots, out)
    inverse = np.linalg.inv(A)
    exact = inverse @ C @ inverse
    np.testing.assert_allclose(np.tril(out), np.tril(exact), atol=1e-12 * max(1.0, np.abs(exact).max()))
    np.testing.assert_array_equal(F, given_F)


def test_parts_of_larger_matrices():
    rng = np.random.default_rng(0)
    n, C = 150, np.asfortranarray(rng.normal(size=(400, 400)))
    A = rng.normal(size=(n, n))
    A = A @ A.T / n + np.eye(n)
    L = np.linalg.cholesky(A)
    F = np.asfortranarray(np.zeros((300, 300)))
    F[7 : 7 + n, 20 : 20 + n] = L / np.diag(L)
    before, part = C.copy(), C[30 : 30 + n, 50 : 50 + n]
    low = np.tril(part)
    whole = low + np.tril(low, -1).T
    two_sided(F[7 : 7 + n, 20 : 20 + n], np.diag(L) ** 2, part)
    exact = np.linalg.solve(A, np.linalg.solve(A, whole).T)
    np.testing.assert_allclose(np.tril(part), np.tril(exact), atol=1e-12 * np.abs(exact).max())
    part[:] = before[30 : 30 + n, 50 : 50 + n]
    np.testing.assert_array_equal(C, before)  # nothing beside it was touched


def test_a_large_border_has_one_matrix_and_is_asked_by_several_threads(monkeypatch):
    monkeypatch.setattr(leaves, "_LARGE", 0)
    rng = np.random.default_rng(2)
    A = filled(crossed(rng, n=400), rng)
    symbolic, M, b = LeafAnalysis(A, find_leaves(A).number), A.toarray(), rng.normal(size=A.shape[0])
    x = np.linalg.solve(M, b)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            factor = symbolic.factor(A.data)
            asked = [pool.submit(factor.solve, b) if k % 2 else pool.submit(factor.inverse_data) for k in range(6)]
            for k, answer in enumerate(asked):
                exact = x if k % 2 else on_pattern(np.linalg.inv(M), A)
                np.testing.assert_allclose(answer.result(), exact, atol=1e-10)
    held = symbolic.laid_out(A.data)
    factor = symbolic.factor_of(held)
    assert np.shares_memory(factor.stored_inverse(), held)
    assert factor._x.size == symbolic.size


@pytest.mark.parametrize("n", [3, 200])
def test_a_matrix_that_is_its_own_change(n):
    """A^-1 A A^-1 = A^-1."""
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n))
    A = A @ A.T / n + np.eye(n)
    L, out = np.linalg.cholesky(A), np.asfortranarray(A.copy())
    two_sided(np.asfortranarray(L / np.diag(L)), np.diag(L) ** 2, out)
    np.testing.assert_allclose(np.tril(out), np.tril(np.linalg.inv(A)), atol=1e-12)


def test_newton_solves_by_the_factor_it_has_where_another_is_dear(monkeypatch):
    rng = np.random.default_rng(3)
    n, rows = 500, np.arange(500)
    W = [sp.csr_array((np.ones(n), (rows, rng.integers(0, m, n))), shape=(n, m)) for m in (40, 30)]
    W = sp.csr_array(sp.hstack([*W, np.ones((n, 1))], format="csr"))
    y, found = rng.poisson(2.0, n).astype(float), {}
    for name, steep in (("dear", 0.0), ("cheap", np.inf)):
        monkeypatch.setattr(sparse, "_STEEP", steep)
        prior = SparsePrecision(4.0 * sp.eye_array(71, format="csc"), design=W)
        assert isinstance(prior.pattern.symbolic, LeafAnalysis)
        with counting() as done:
            found[name] = fenchel.infer(Poisson(), prior, y, tol=1e-12), done.factorisations
    assert found["dear"][1] < found["cheap"][1]
    assert found["dear"][0].n_iter == found["cheap"][0].n_iter
    np.testing.assert_allclose(found["dear"][0].posterior.mean, found["cheap"][0].posterior.mean, atol=1e-8)
