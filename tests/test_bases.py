"""Sparse bases of what constraints leave free, against null spaces written out."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import fenchel
from fenchel import gmrf
from fenchel.linalg import constraint_bases as bases
from fenchel.linalg.constraint_bases import chain_basis, constraint_rows, split_local, tree_basis
from fenchel.priors import DenseCovariance, SparsePrecision


def same_space(B, C):
    """B has independent columns that span the null space of C."""
    free = scipy.linalg.null_space(C)
    assert B.shape == free.shape
    np.testing.assert_allclose(C @ B, 0.0, atol=1e-10)
    assert np.linalg.matrix_rank(B) == B.shape[1]


def season(n, period):
    return np.asarray(gmrf.seasonal(n, period).constraints)


CHAINS = {
    "sum": np.ones((1, 50)),
    "weighted sum": np.linspace(0.5, 2.0, 50)[None],
    "level and slope": np.asarray(gmrf.rw2(50).constraints),
    "level and slope, with a zero in the middle": np.asarray(gmrf.rw2(51).constraints),
    "a long sum": np.ones((1, 600)),
    "a long slope": np.asarray(gmrf.rw2(300).constraints),
    "season": season(60, 4),
    "values beside slopes": np.kron(np.asarray(gmrf.rw2(30).constraints), [[1.0, 0.0]]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_spanned_by_neighbours_and_well_conditioned(name):
    C = CHAINS[name] / np.linalg.norm(CHAINS[name], axis=1, keepdims=True)
    B = chain_basis(C)
    same_space(B, C)
    sizes = np.linalg.svd(B, compute_uv=False)
    assert sizes[0] <= bases._WORST * sizes[-1]
    touched = (B != 0.0).sum(axis=0)
    assert np.median(touched) <= C.shape[0] + 1
    assert (touched > C.shape[0] + 1).mean() < 0.2  # what joins the pieces of a long chain


def test_where_neighbours_will_not_do_a_basis_is_dense_or_none():
    rng = np.random.default_rng(0)
    C = rng.normal(size=(20, 30))
    same_space(chain_basis(C), C)
    assert chain_basis(rng.normal(size=(300, 500))) is None


@given(st.integers(0, 10_000))
def test_a_tree_is_spanned_by_its_edges(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    pairs = np.argwhere(np.triu(rng.random((n, n)) < rng.uniform(0.0, 0.3), 1))  # often in several parts
    c = rng.uniform(0.5, 2.0, n) * rng.choice([-1.0, 1.0], n)
    B = tree_basis(c, pairs)
    assert (np.diff(B.tocsc().indptr) == 2).all()
    same_space(B.toarray(), c[None])


def test_a_map_of_rare_shape_is_left_to_conditioning():
    """36 chains of 10 latents, their sums along the other way, and one sum over a map of 60."""
    C = sp.vstack(
        [
            sp.kron(sp.eye_array(36), sp.csr_array(np.ones((1, 10)))),
            sp.kron(sp.csr_array(np.ones((1, 36))), np.eye(9, 10)),
        ]
    )
    C = sp.block_diag([C, sp.csr_array(np.ones((1, 60)))], format="csr")
    line = sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(10, 10))
    ring = sp.csr_array(np.roll(np.eye(60), 1, axis=0) + np.roll(np.eye(60), -1, axis=0))
    basis, rest = split_local(C, sp.block_diag([sp.kron(sp.eye_array(36), line), ring]))
    assert rest.shape == (10, 420)
    assert basis.shape == (420, 384)
    assert basis.nnz == 60 + 2 * 36 * 9
    held = C.toarray()[:36]
    np.testing.assert_allclose(held @ basis.toarray(), 0.0, atol=1e-12)


def test_large_constraints_are_kept_sparse_and_answer_the_same():
    C = sp.csr_array(np.kron(np.eye(50), np.ones((1, 3))))
    assert isinstance(constraint_rows(C), np.ndarray)
    wide = sp.csr_array((1100, 1000))
    assert sp.issparse(constraint_rows(wide))
    many = gmrf.icar(sp.block_diag([sp.csr_array(np.ones((3, 3)) - np.eye(3))] * 700, format="csr"))
    assert sp.issparse(many.constraints)
    y = np.random.default_rng(0).poisson(2.0, 2100).astype(float)
    sol = fenchel.infer(fenchel.Poisson(), many.at(np.array([-0.5])), y)
    V = np.kron(np.eye(1), scipy.linalg.null_space(np.ones((1, 3))))
    alone = fenchel.infer(fenchel.Poisson(), DenseCovariance(V @ V.T / (3.0 * np.e)), y[:3], tol=1e-12)
    np.testing.assert_allclose(sol.posterior.mean[:3], alone.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(sol.posterior.variance[:3], alone.posterior.variance, atol=1e-6)


@pytest.mark.parametrize("kind", ["sparse", "array"])
def test_dependent_rows_are_refused(kind):
    C = np.vstack([np.kron(np.eye(40), np.ones((1, 3))), np.kron(np.ones((1, 40)), np.eye(3))])  # one too many
    form = sp.csr_array if kind == "sparse" else np.asarray
    Q = sp.eye_array(120, format="csc")
    with pytest.raises(
        ValueError, match=r"constraints of shape \(43, 120\); expected \(k, 120\), its rows independent"
    ):
        SparsePrecision(Q, constraints=form(C))
    assert SparsePrecision(Q, constraints=form(C[:-1])).constraint.basis.shape == (120, 80)
