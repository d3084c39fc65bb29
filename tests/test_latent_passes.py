"""Passes of sparse latents: products on the lower triangle of a pattern against dense matrices."""

import numpy as np
import pytest
import scipy.sparse as sp

from fenchel.models.latent_passes import PatternDesign, Triangle
from fenchel.models.reading import _beside

L, P = 12, 2  # latents and fixed effects, which every row has


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    A = sp.random_array((40, L), density=0.3, rng=rng, format="csr")
    A = _beside([A, sp.csr_array(rng.normal(size=(40, P)))])
    ones = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
    pattern = sp.csc_array(ones.T @ ones + sp.eye_array(L + P))
    pattern.sort_indices()
    return A, pattern, np.repeat(np.arange(L + P), np.diff(pattern.indptr))


def test_products_are_those_of_dense_matrices(rows):
    A, pattern, owners = rows
    rng, B, triangle = np.random.default_rng(4), A.toarray(), Triangle(pattern.indptr, pattern.indices)
    design, w = PatternDesign(A, triangle.indptr, triangle.indices), rng.normal(size=40)
    at = pattern.indices, owners
    np.testing.assert_allclose(design.gram(w)[triangle.both], ((B.T * w) @ B)[at], atol=1e-13)
    root = rng.normal(size=(L + P, L + P))
    V = root @ root.T
    np.testing.assert_allclose(design.row_squares(V[at][triangle.lower]), ((B @ V) * B).sum(axis=1), atol=1e-11)
    some = np.array([3, 1, 17])
    few = (B[some].T * w[:3]) @ B[some]
    np.testing.assert_allclose(design.take(some).gram(w[:3])[triangle.both], few[at], atol=1e-13)


def test_a_pair_that_the_pattern_lacks_is_noticed(rows):
    A = rows[0]
    diagonal = np.arange(L + P + 1), np.arange(L + P)
    with pytest.raises(IndexError, match="not in the pattern"):
        PatternDesign(A, *diagonal)


@pytest.mark.parametrize("density", [0.3, 1.0])
def test_blocks_side_by_side(density):
    rng = np.random.default_rng(5)
    one = sp.random_array((9, 4), density=density, rng=rng, format="csr")
    codes = sp.csr_array((np.ones(9), (np.arange(9), rng.integers(0, 5, 9))), shape=(9, 5))
    found = _beside([codes, one, sp.csr_array(rng.normal(size=(9, 0)))])
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), np.hstack([codes.toarray(), one.toarray()]))
