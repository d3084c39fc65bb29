"""Kernels: values and contracted gradients against scikit-learn's own, which build the tensor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

from fenchel.kernels import contract, diagonal, evaluate

KERNELS = {
    "constant": ConstantKernel(2.0),
    "white": WhiteKernel(0.3),
    "rbf": RBF(1.3),
    "ard": RBF([0.7, 1.5, 3.0]),
    "fixed length": ConstantKernel(2.0) * RBF(1.0, "fixed"),
    "fixed constant": ConstantKernel(2.0, "fixed") * RBF(1.0),
    "matern 1/2": Matern(0.8, nu=0.5),
    "matern 3/2": Matern([0.8, 2.0, 1.0], nu=1.5),
    "matern 5/2": Matern(1.8, nu=2.5),
    "matern inf": Matern(1.8, nu=np.inf),
    "matern 0.9": Matern(1.8, nu=0.9),
    "rational": RationalQuadratic(1.2, 0.7),
    "periodic": ExpSineSquared(1.1, 2.3),
    "dot": DotProduct(0.8),
    "squared dot": DotProduct(0.8) ** 2,
    "constant first": 3.0 * RBF([1.0, 2.0, 0.5]),
    "constant last": RBF(1.0) * ConstantKernel(0.5),
    "two constants": ConstantKernel(2.0) * ConstantKernel(3.0) * RBF(1.0),
    "constant times a product": 2.0 * (RBF(1.0) * ExpSineSquared(1.0, 3.0)),
    "sum": 2.0 * RBF(1.0) + WhiteKernel(0.1) + ConstantKernel(0.5) * Matern(1.0, nu=1.5),
    "product": RBF(1.0) * ExpSineSquared(1.0, 3.0) * Matern(2.0, nu=2.5),
    "tree": (2.0 * RBF([1.0, 2.0, 0.5]) + DotProduct(1.0)) * RationalQuadratic(1.0, 2.0) + WhiteKernel(0.2),
    "foreign": PairwiseKernel(gamma=0.5, metric="rbf") + RBF(1.0),
}


@pytest.mark.parametrize("name", KERNELS)
def test_against_scikit_learn(name):
    rng = np.random.default_rng(0)
    kernel, X, Y = KERNELS[name], rng.normal(size=(14, 3)), rng.normal(size=(5, 3))
    X[3] = X[7]  # equal inputs
    K, tensor = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(evaluate(kernel, X), K, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(evaluate(kernel, X, Y), kernel(X, Y), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(diagonal(kernel, X), np.diag(K), rtol=1e-12)
    G = rng.normal(size=(14, 14))
    G = G + G.T
    before = G.copy()
    expected = np.einsum("ij,ijp->p", G, tensor)
    tolerance = 1e-4 if name in ("matern 0.9", "foreign") else 1e-10  # theirs are differences there
    np.testing.assert_allclose(contract(kernel, X, G), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(contract(kernel, X, G, K), expected, rtol=tolerance, atol=tolerance)
    assert contract(kernel, X, G).shape == kernel.theta.shape
    np.testing.assert_array_equal(G, before)


@given(st.integers(0, 10**6), st.floats(-6, 6), st.floats(-3, 3))
def test_scales(seed, log_shift, log_length):
    """Far from the origin and at any length: nothing cancels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(10, 2)) + np.exp(log_shift)
    kernel = RBF(np.exp(log_length + rng.normal(size=2)))
    G = rng.normal(size=(10, 10))
    G = G + G.T
    expected = np.einsum("ij,ijp->p", G, kernel(X, eval_gradient=True)[1])
    scale = np.einsum("ij,ijp->p", np.abs(G), np.abs(kernel(X, eval_gradient=True)[1]))
    np.testing.assert_allclose(contract(kernel, X, G), expected, atol=1e-9 * scale.max() + 1e-12)


def test_no_tensor_is_made():
    import tracemalloc

    n, d = 400, 20
    X = np.random.default_rng(0).normal(size=(n, d))
    kernel, G = 2.0 * RBF(np.full(d, 3.0)), np.eye(n)
    contract(kernel, X, G)  # modules are loaded
    tracemalloc.start()
    contract(kernel, X, G)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * n * n * 8


def test_what_is_not_a_kernel():
    with pytest.raises(ValueError, match=r"a str was given; expected a kernel of sklearn"):
        evaluate("rbf", np.zeros((2, 1)))
