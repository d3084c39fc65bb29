"""The cellar, under numpy, array-api-strict and torch where it is installed; quadrature against closed forms."""

from functools import partial

import numpy as np
import pytest
import scipy.linalg
from scipy import special, stats

from fenchel.linalg import dense, device_blocks, functions
from fenchel.linalg.arrays import asarray, namespace, to_numpy
from fenchel.linalg.krylov import conjugate_gradients
from fenchel.linalg.logistic_normal import logistic_moments
from fenchel.linalg.quadrature import expect, log_expect


def libraries():
    import array_api_strict

    out = [pytest.param(np.asarray, id="numpy"), pytest.param(array_api_strict.asarray, id="array-api-strict")]
    try:
        import torch
    except ImportError:
        return out
    return [*out, pytest.param(lambda x: torch.asarray(np.array(x)), id="torch")]


each_library = pytest.mark.parametrize("to", libraries())


def spd(n=40, seed=0):
    root = np.random.default_rng(seed).normal(size=(n, n))
    return root @ root.T / n + np.eye(n)


def low(x):
    return np.tril(to_numpy(x))


@each_library
@pytest.mark.parametrize("n", [1, 2, 40, 300])
def test_factorisations(to, n):
    A = spd(n)
    L = dense.cholesky(to(A.copy()))
    np.testing.assert_allclose(low(L), np.linalg.cholesky(A), atol=1e-12)
    assert dense.log_det(L) == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-10)
    b = np.random.default_rng(1).normal(size=(n, 3))
    np.testing.assert_allclose(to_numpy(dense.solve_cholesky(L, to(b))), np.linalg.solve(A, b), atol=1e-10)
    np.testing.assert_allclose(
        to_numpy(dense.solve_cholesky(L, to(b[:, 0].copy()))), np.linalg.solve(A, b[:, 0]), atol=1e-10
    )
    Linv = dense.triangular_inverse(L)
    np.testing.assert_allclose(low(Linv), np.linalg.inv(np.linalg.cholesky(A)), atol=1e-10)
    T = low(Linv)
    np.testing.assert_allclose(to_numpy(dense.column_squares(Linv)), (T**2).sum(0), atol=1e-12)
    for transposed in (False, True):
        product = dense.multiply_lower(Linv, to(b), transposed)
        np.testing.assert_allclose(to_numpy(product), (T.T if transposed else T) @ b, atol=1e-12)
    inverse = dense.inverse_from(Linv)
    np.testing.assert_allclose(low(inverse), np.tril(np.linalg.inv(A)), atol=1e-10)
    np.testing.assert_allclose(to_numpy(dense.symmetrised(inverse)), np.linalg.inv(A), atol=1e-10)
    v = to(b[:, 0].copy())
    np.testing.assert_allclose(to_numpy(dense.multiply_symmetric(inverse, v)), np.linalg.solve(A, b[:, 0]), atol=1e-10)
    np.testing.assert_allclose(
        to_numpy(dense.multiply_squared(inverse, v)), np.linalg.inv(A) ** 2 @ b[:, 0], atol=1e-10
    )


@each_library
@pytest.mark.parametrize("n", [1, 5, 700])
def test_elementwise_kernels(to, n):
    rng = np.random.default_rng(2)
    S, B = spd(n), spd(n, 1)
    a, u, v = rng.normal(size=(3, n))
    out = dense.empty_square(n, to(S))
    np.testing.assert_allclose(
        low(dense.scaled_plus_identity(to(S), to(a), out)), np.tril(np.eye(n) + a[:, None] * S * a), atol=1e-12
    )
    ours = dense.hadamard_curvature(to(S), to(a), to(v), to(B), to(u), to(a), dense.empty_square(n, to(S)))
    np.testing.assert_allclose(low(ours), np.tril(a[:, None] * S * v + 0.5 * u[:, None] * B**2 * a), atol=1e-12)
    np.testing.assert_allclose(np.diag(to_numpy(dense.set_diagonal(to(S.copy()), to(a)))), a)
    np.testing.assert_allclose(low(dense.scale_symmetric(to(S.copy()), to(a))), np.tril(a[:, None] * S * a), atol=1e-12)
    np.testing.assert_allclose(
        low(dense.add_scaled(to(S.copy()), to(B), to(a))), np.tril(S + a[:, None] * B * a), atol=1e-12
    )
    np.testing.assert_allclose(low(dense.add_lower(to(S.copy()), to(B))), np.tril(S + B), atol=1e-12)
    np.testing.assert_allclose(to_numpy(dense.diagonal_matrix(to(a))), np.diag(a))
    assert dense.asymmetry(to(S)) < 1e-12
    skew = S.copy()
    skew[-1, 0] += 3.0
    assert dense.asymmetry(to(skew)) == pytest.approx(3.0 if n > 1 else 0.0, abs=1e-10)


@each_library
def test_definiteness(to):
    A = spd(30)
    assert dense.is_positive_semidefinite(to(A), dense.empty_square(30, to(A)))
    singular = np.ones((30, 30))
    assert dense.is_positive_semidefinite(to(singular), dense.empty_square(30, to(A)))
    assert not dense.is_positive_semidefinite(to(A - 1.2 * np.eye(30)), dense.empty_square(30, to(A)))
    assert dense.is_positive_semidefinite(to(np.zeros((30, 30))), dense.empty_square(30, to(A)))
    for matrix in (A, singular, np.zeros((4, 4))):
        R = to_numpy(dense.semidefinite_root(to(matrix)))
        np.testing.assert_allclose(R @ R.T, matrix, atol=1e-10)
    with pytest.raises(dense.NotPositiveDefinite):
        dense.cholesky(to(-np.eye(3)))


@each_library
def test_recursion_over_halves(to, monkeypatch):
    monkeypatch.setattr(device_blocks, "LEAF", 7)
    A = spd(61)
    Linv = dense.triangular_inverse(dense.cholesky(to(A.copy())))
    np.testing.assert_allclose(low(Linv), np.linalg.inv(np.linalg.cholesky(A)), atol=1e-12)
    np.testing.assert_allclose(to_numpy(dense.symmetrised(dense.inverse_from(Linv))), np.linalg.inv(A), atol=1e-12)


def test_numpy_runs_in_place():
    A = spd(50)
    L = dense.cholesky(A)
    assert np.shares_memory(L, A)
    Linv = dense.triangular_inverse(L)
    assert np.shares_memory(Linv, A)
    assert np.shares_memory(dense.inverse_from(Linv), A)


@each_library
def test_arrays_keep_their_library(to):
    x = to(np.array([1.0, 2.0]))
    assert type(asarray([1, 2, 3], x)) is type(x)
    assert namespace(x).float64 == asarray(np.float32([1.0]), x).dtype
    np.testing.assert_array_equal(to_numpy(asarray(x, x)), [1.0, 2.0])


@each_library
def test_stable_functions(to):
    x = np.array([-800.0, -40.0, -1.0, -1e-9, 0.0, 1e-9, 0.02, 1.0, 40.0, 600.0])
    np.testing.assert_allclose(to_numpy(functions.sigmoid(to(x))), special.expit(x), rtol=1e-14)
    np.testing.assert_allclose(to_numpy(functions.softplus(to(x))), np.logaddexp(0, x), rtol=1e-14)
    import mpmath

    exact = [float(mpmath.exp(v) - 1 - v) for v in map(mpmath.mpf, x)]
    with mpmath.workdps(40):
        exact = [float(mpmath.exp(mpmath.mpf(v)) - 1 - mpmath.mpf(v)) for v in x]
    np.testing.assert_allclose(to_numpy(functions.expm1_minus(to(x))), exact, rtol=1e-13)
    u = to_numpy(functions.wright_omega_log(to(x)))
    np.testing.assert_allclose(np.exp(u), special.wrightomega(x), rtol=1e-12)


@each_library
def test_log_mean_exp_excess(to):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 50)
    for scale in (1e-9, 1e-3, 1.0, 50.0, 1e4):
        delta = scale * rng.normal(size=(50, 4))
        ours = to_numpy(functions.log_mean_exp_excess(to(p), to(delta)))
        import mpmath

        with mpmath.workdps(50):
            exact = []
            for row, d in zip(p, delta, strict=True):
                weights = [mpmath.mpf(float(x)) for x in row]
                total = sum(weights)
                moves = [mpmath.mpf(float(x)) for x in d]
                value = mpmath.log(sum(w / total * mpmath.exp(m) for w, m in zip(weights, moves, strict=True)))
                exact.append(float(value - sum(w / total * m for w, m in zip(weights, moves, strict=True))))
        np.testing.assert_allclose(ours, exact, rtol=1e-6)


def test_expectations_at_every_scale():
    """E[max(eta, 0)] in closed form; E[sigmoid'] against the convolution's own symmetric value; odd moments."""
    h = np.array([0.0, -3.0, 100.0, 0.5, -1e3, 2.0])
    rho = np.array([1.0, 1e-10, 1e4, 1e8, 1e6, 25.0])
    sd = np.sqrt(rho)
    kink = expect(lambda eta, rows: np.maximum(eta, 0.0), h, rho, [0.0 * h])
    np.testing.assert_allclose(kink, h * stats.norm.cdf(h / sd) + sd * stats.norm.pdf(h / sd), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(expect(lambda eta, rows: eta**2, h, rho), h**2 + rho, rtol=1e-12)
    wide = expect(
        lambda eta, rows: special.expit(eta) * special.expit(-eta), np.zeros(1), np.array([1e12]), [np.zeros(1)]
    )
    assert wide[0] == pytest.approx(1 / np.sqrt(2 * np.pi * 1e12), rel=1e-9)  # a unit mass at 0 seen from far


def test_log_expectation_of_a_gaussian_product():
    h, rho = np.array([0.0, 50.0, -1e4]), np.array([1.0, 4.0, 100.0])
    ours = log_expect(lambda eta, rows: stats.norm.logpdf(eta, 2.0, 0.5), h, rho, [np.full(3, 2.0)])
    np.testing.assert_allclose(ours, stats.norm.logpdf(2.0, h, np.sqrt(rho + 0.25)), rtol=1e-10)


def test_many_rows_are_taken_in_chunks():
    h = np.linspace(-3, 3, 20_000)
    whole = expect(lambda eta, rows: special.expit(eta + h[rows, None]), h, np.ones_like(h), [-h])
    some = expect(lambda eta, rows: special.expit(eta + h[-5:][rows, None]), h[-5:], np.ones(5), [-h[-5:]])
    np.testing.assert_allclose(whole[-5:], some, rtol=1e-13)


def test_conjugate_gradients_with_a_singular_preconditioner():
    rng = np.random.default_rng(3)
    P, F = spd(12), spd(12, 1) - np.eye(12)
    b = rng.normal(size=12)
    x, Fx, r, fell = conjugate_gradients(lambda v: np.linalg.solve(P, v), lambda v: F @ v, b, 1e-12, 100)
    np.testing.assert_allclose(x, np.linalg.solve(P + F, b), atol=1e-9)
    np.testing.assert_allclose(Fx, F @ x, atol=1e-10)
    np.testing.assert_allclose(r, b - (P + F) @ x, atol=1e-10)
    assert fell <= 1e-12
    flat = np.eye(12) - np.full((12, 12), 1 / 12)  # P^-1 kills the constant vector
    x, *_ = conjugate_gradients(lambda v: flat @ v, lambda v: F @ v, b, 1e-12, 100)
    basis = scipy.linalg.null_space(np.ones((1, 12)))
    exact = basis @ np.linalg.solve(basis.T @ (np.eye(12) + F) @ basis, basis.T @ b)
    np.testing.assert_allclose(x, exact, atol=1e-9)


def test_logistic_moments_of_many_rows():
    """The compiled sum over nodes that follow a narrow normal, against a rule ten times finer."""
    rng = np.random.default_rng(0)
    h = np.concatenate([rng.normal(size=900) * rng.choice([1.0, 6.0], 900), np.linspace(-700.0, 700.0, 300)])
    rho = rng.uniform(0.021, 1.0, h.size)
    found = logistic_moments(h, rho)
    z = np.linspace(-12.0, 12.0, 481)
    w = np.exp(-0.5 * z * z)
    x = h[:, None] + np.sqrt(rho)[:, None] * z
    tau, rest = special.expit(x), special.expit(-x)
    functions = [np.logaddexp(0.0, x), np.logaddexp(0.0, -x), tau, rest, tau * rest, tau * rest * (rest - tau)]
    for i, g in enumerate([*functions, tau * rest * (1.0 - 6.0 * tau * rest)]):
        exact = g @ (w / w.sum())
        assert np.abs(found[i] - exact).max() < 1e-11 * max(1.0, np.abs(exact).max())
    few = logistic_moments(h[:100], rho[:100])  # by arrays of nodes
    np.testing.assert_allclose(found[:, :100], few, rtol=1e-12, atol=1e-15)


def test_logistic_moments_of_very_many_rows_keep_their_tails():
    """The compiled series and sums against the numpy forms of few rows, relative to each number, to e^-300."""
    rng = np.random.default_rng(1)
    h = np.concatenate([3.0 * rng.normal(size=3000), np.linspace(-300.0, 300.0, 2000)])
    for low, high in ((1e-9, 1e-3), (1e-3, 0.02), (0.02, 1.0), (1e-9, 4.0)):
        rho = rng.uniform(low, high, h.size)
        found, few = (
            logistic_moments(h, rho),
            [logistic_moments(h[i : i + 200], rho[i : i + 200]) for i in range(0, h.size, 200)],
        )
        np.testing.assert_allclose(found[:5], np.concatenate(few, axis=1)[:5], rtol=1e-12)
        np.testing.assert_allclose(found[5:], np.concatenate(few, axis=1)[5:], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("to", [one for one in libraries() if one.id != "numpy"])
def test_devices_factorise_in_place_by_blocks(to, monkeypatch):
    """Halves, stripes and blocks of a device, small enough here that a few hundred rows make many of each."""
    monkeypatch.setattr(device_blocks, "LEAF", 32)
    monkeypatch.setattr(device_blocks, "_BLOCK", 1 << 12)
    edges = list(device_blocks.row_blocks(900))
    assert all((j - i) * j <= 1 << 12 for i, j in edges)
    assert [j for _, j in edges[:-1]] == [i for i, _ in edges[1:]]
    rng, n = np.random.default_rng(0), 131
    A = rng.normal(size=(n, n))
    A = A @ A.T + n * np.eye(n)
    b, inverse = rng.normal(size=n), np.linalg.inv(A)
    L = dense.cholesky(to(A.copy()))
    T = np.linalg.inv(np.linalg.cholesky(A))
    Linv = dense.triangular_inverse(L)
    assert Linv is L  # no second matrix
    close = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-14)
    close(np.tril(to_numpy(Linv)), T)
    close(to_numpy(dense.column_squares(Linv)), np.diag(inverse))
    close(to_numpy(dense.multiply_lower(Linv, to(b))), T @ b)
    close(to_numpy(dense.multiply_lower(Linv, to(b), transposed=True)), T.T @ b)
    B = dense.inverse_from(Linv)
    assert B is L
    close(np.tril(to_numpy(B)), np.tril(inverse))
    close(to_numpy(dense.multiply_symmetric(B, to(b))), inverse @ b)
    close(to_numpy(dense.multiply_squared(B, to(b))), inverse**2 @ b)
    close(to_numpy(dense.symmetrised(B)), inverse)
    above = np.where(np.tri(n) > 0.0, T, np.nan)  # where the convention allows anything
    close(to_numpy(dense.column_squares(to(above))), np.diag(inverse))
    assert (np.diag(to_numpy(dense.set_diagonal(to(1e20 * A), to(b)))) == b).all()  # whatever stood there
    newton = np.outer(b, b) * (A + 0.5 * inverse**2)
    out = dense.hadamard_curvature(to(A), to(b), to(b), B, to(b), to(b), B)
    assert out is L
    close(np.tril(to_numpy(out)), np.tril(newton))
    assert dense.asymmetry(to(A)) == 0.0
    A[70, 3] = np.nan
    assert np.isnan(dense.asymmetry(to(A)))
