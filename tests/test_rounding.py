"""What double precision can do and what it cannot: hard scales, judged in 50 digits or by plain Newton.

A certificate is only as good as the digits it was computed with. ``gap`` holds an estimate of what rounding did, a
search that the spacing of numbers stops goes on in other coordinates, and a precision that is singular to rounding is
refused whatever its scale.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

import fenchel
from fenchel import gmrf
from fenchel.likelihoods import BernoulliLogit, Binomial, Gaussian, LogisticNoise, NegativeBinomial, Poisson, StudentT
from fenchel.linalg.functions import stirling
from fenchel.priors import DenseCovariance, Features, SparsePrecision


def differences(n: int, order: int) -> sp.csc_array:
    D = sp.eye_array(n, format="csc")
    for _ in range(order):
        D = D[1:] - D[:-1]
    return sp.csc_array(D)


@mpmath.workdps(50)
def exact_evidence(y: np.ndarray, variance: float, covariance=None, precision=None) -> float:
    """log N(y; 0, S + variance I) in 50 digits."""
    n = y.size
    S = mpmath.matrix(covariance.tolist()) if precision is None else mpmath.matrix(precision.tolist()) ** -1
    C = S + mpmath.mpf(variance) * mpmath.eye(n)
    L, right = mpmath.cholesky(C), mpmath.matrix(y.tolist())
    half = mpmath.lu_solve(C, right)
    log_det = 2 * sum(mpmath.log(L[i, i]) for i in range(n))
    return float(-((right.T * half)[0] + log_det + n * mpmath.log(2 * mpmath.pi)) / 2)


# -- searches that the spacing of floating-point numbers used to stop --------------------------------------------------
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9, 1e11, 1e12, 1e13])
def test_counts_of_any_size_under_a_wide_prior(size):
    rng = np.random.default_rng(0)
    X = np.c_[np.ones(12), rng.normal(size=12)]
    y = rng.poisson(size * np.exp(0.3 * X[:, 1])).astype(float)
    sol = fenchel.infer(Poisson(), Features(X, variance=1e4), y)
    w = np.array([np.log(y.mean()), 0.0])  # Newton in the two weights, with rho from the covariance before
    V = np.linalg.inv(X.T @ (np.exp(X @ w)[:, None] * X) + np.eye(2) / 1e4)
    for _ in range(60):
        rate = np.exp(X @ w + np.einsum("ij,jk,ik->i", X, V, X) / 2)
        V = np.linalg.inv(X.T @ (rate[:, None] * X) + np.eye(2) / 1e4)
        w = w + V @ (X.T @ (y - rate) - w / 1e4)
    assert sol.converged, sol.status
    sds = np.sqrt(np.diag(V))
    np.testing.assert_allclose((sol.posterior.latent_mean - w) / sds, 0.0, atol=1e-5 + np.sqrt(2 * sol.gap))
    np.testing.assert_allclose(sol.posterior.latent_variance, np.diag(V), rtol=1e-5)
    np.testing.assert_allclose(sol.posterior.predict(design=X)[0], X @ sol.posterior.latent_mean, rtol=1e-13)


@pytest.mark.parametrize("variance", [1e-6, 1e-9, 1e-12])
def test_regression_with_hardly_any_noise(variance):
    x = np.linspace(0, 10, 30)[:, None]
    K, y = np.exp(-0.5 * (x - x.T) ** 2), np.sin(x[:, 0])
    sol = fenchel.infer(Gaussian(variance), DenseCovariance(K), y)
    exact = exact_evidence(y, variance, covariance=K)
    assert sol.optimal, sol.status
    assert abs(sol.elbo - exact) <= sol.gap
    np.testing.assert_allclose(sol.posterior.mean, y, atol=10 * np.sqrt(variance))
    if not sol.converged:
        assert "the optimum is reached, but rounding may have moved the elbo by" in sol.status


@pytest.mark.parametrize("column", [np.linspace(1960, 1990, 60), 335114.0 + 30603.0 * np.linspace(-2, 2, 60)])
@pytest.mark.parametrize("bound", ["log-sum", "exact"])
def test_negative_binomial_on_uncentred_columns(column, bound):
    rng = np.random.default_rng(1)
    y = rng.negative_binomial(3.0, 3.0 / (3.0 + np.exp(2.0 + np.linspace(-0.5, 0.5, 60)))).astype(float)
    sol = fenchel.infer(NegativeBinomial(3.0, bound=bound), Features(np.c_[np.ones(60), column], variance=100.0), y)
    assert sol.optimal, sol.status
    assert sol.gap < 1e-4


# -- rounding is part of the gap ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("order", "ridge"), [(1, 1e-10), (2, 1e-10), (2, 1e-8), (1, 1e-6)])
def test_a_nearly_intrinsic_precision_keeps_its_bounds(order, ridge):
    n, rng = 30, np.random.default_rng(3)
    D = differences(n, order)
    Q = sp.csc_array(D.T @ D + ridge * sp.eye_array(n))
    y = np.cumsum(rng.normal(size=n))
    exact = exact_evidence(y, 0.25, precision=Q.toarray())
    sol = fenchel.infer(Gaussian(0.25), SparsePrecision(Q), y)
    assert abs(sol.elbo - exact) <= sol.gap
    assert not sol.converged or abs(sol.elbo - exact) <= 1e-8 * abs(exact)
    assert sol.rounding < 1e-6 * abs(exact) * 1e-10 / ridge  # an estimate, not an alibi


def test_rounding_is_negligible_on_ordinary_problems():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    K = 4.0 * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1))
    sol = fenchel.infer(BernoulliLogit("log-sum"), DenseCovariance(K), (x[:, 0] > 0).astype(float))
    assert 0.0 < sol.rounding < 1e-12
    assert sol.elbo_upper == sol.elbo + sol.gap


def test_stirling_keeps_its_digits():
    x = np.r_[0.0, 0.5, 1.0, 17.0, 99.9, 100.1, 1e4, 1e9, 1e15]
    with mpmath.workdps(60):
        exact = [float(mpmath.loggamma(v + 1) - (v * mpmath.log(v) if v else 0) + v) for v in map(mpmath.mpf, x)]
    np.testing.assert_allclose(stirling(x), exact, rtol=1e-12, atol=1e-13)


# -- a singular precision is refused whatever its scale ----------------------------------------------------------------
@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.3333, 0.7, 1.0, 7.7, 1e3])
@pytest.mark.parametrize(("n", "order"), [(10, 1), (40, 2), (30_000, 2)])
def test_a_singular_precision_is_refused_at_every_scale(n, order, scale):
    D = differences(n, order)
    with pytest.raises(ValueError, match=r"precision is not positive definite.*sum-to-zero"):
        SparsePrecision(scale * (D.T @ D))


@pytest.mark.parametrize("scale", [1e-3, 0.3333, 0.7, 1.0])
@pytest.mark.parametrize("likelihood", [StudentT(4.0, 1.0), Poisson()], ids=["student-t", "poisson"])
def test_constraints_that_leave_a_slope_free_are_refused(scale, likelihood):
    D = differences(40, 2)
    with pytest.raises(ValueError, match=r"the constraints do not fix its null space.*its level and its slope"):
        fenchel.infer(likelihood, SparsePrecision(scale * (D.T @ D), constraints="sum-to-zero"), np.arange(40.0))


@pytest.mark.parametrize("scale", [1e-3, 0.3333, 1.0, 1e3])
def test_a_proper_precision_is_welcome_at_every_scale(scale):
    D = differences(40, 2)
    for ridge in (1e-10, 1e-6, 1.0):
        assert SparsePrecision(scale * (D.T @ D + ridge * sp.eye_array(40))).n_rows == 40
    walk = gmrf.rw2(200)
    Q = walk.build(np.array([np.log(scale)]))[0]
    assert SparsePrecision(Q, constraints=walk.constraints).n_rows == 200


# -- what is not there is not NaN --------------------------------------------------------------------------------------
def test_a_fit_that_failed_has_an_upper_bound():
    sol = fenchel.infer(Poisson(), Features(np.ones((3, 1)), variance=1e4), [3.0, 1e12, 0.0], max_iter=0)
    assert not sol.converged
    assert not np.isnan([sol.elbo, sol.elbo_upper, sol.gap]).any()
    assert sol.elbo_upper >= sol.elbo


@pytest.mark.parametrize("scale", [1.5e-10, 1.0, 1e8])
@pytest.mark.parametrize("bound", ["log-sum", "exact"])
def test_isolated_nodes_are_held_at_zero_exactly(scale, bound):
    """The constraint of a component of one node pins it; an observation there has eta = offset, whatever it says."""
    n = 6
    edges = np.zeros((n, n))
    edges[0, 1] = edges[1, 0] = edges[1, 2] = edges[2, 1] = 1.0
    Q = sp.csc_array(scale * (np.diag(edges.sum(axis=1)) - edges) + np.eye(n))
    Q.setdiag(scale * edges.sum(axis=1))  # the zeros of isolated nodes are stored
    W = np.vstack([np.eye(n), np.eye(n)[[4]]])
    y = np.array([1.0, 0.0, 3.0, 2.0, 900.0, 0.0, 5.0])
    prior = SparsePrecision(Q, design=sp.csr_array(W), constraints="sum-to-zero", offset=0.3)
    sol = fenchel.infer(NegativeBinomial(2.0, bound=bound), prior, y, weights=[1, 1, 1, 1, 1e3, 1, 1])
    assert sol.converged, sol.status
    np.testing.assert_array_equal(np.asarray(sol.posterior.latent_mean)[3:], 0.0)
    np.testing.assert_array_equal(np.asarray(sol.posterior.latent_variance)[3:], 0.0)
    np.testing.assert_array_equal(sol.posterior.variance[3:], 0.0)
    np.testing.assert_array_equal(sol.posterior.mean[3:], 0.3)
    np.testing.assert_array_equal(sol.posterior.sample(3, rng=0)[:, 3:], 0.3)
    assert np.all(sol.posterior.variance[:3] > 0.0)


@pytest.mark.parametrize(
    ("h", "rho"), [(-50.0, 100.0), (-200.0, 900.0), (-1043254.66, 2.56962922e10), (-7.7e9, 7.8e17)]
)
def test_the_probit_far_from_its_target_at_enormous_variances(h, rho):
    """All of E[psi] lies beyond nine standard deviations there."""
    from fenchel.likelihoods import BernoulliProbit

    likelihood = BernoulliProbit()
    rows = likelihood.prepare(np.array([0.0]))
    got = likelihood.objective.loss(np.array([[h]]), np.array([[rho]]), rows).value[0]
    with mpmath.workdps(40):
        mean, sd = mpmath.mpf(h), mpmath.sqrt(mpmath.mpf(rho))
        psi = lambda x: (
            -mpmath.log(mpmath.erfc(x / mpmath.sqrt(2)) / 2) if x < 1e3 else x * x / 2 + mpmath.log(x) + 0.9189385
        )
        g = lambda z: psi(mean + sd * z) * mpmath.exp(-z * z / 2) / mpmath.sqrt(2 * mpmath.pi)
        kink = -mean / sd
        cuts = sorted(
            {mpmath.mpf(-30), *(kink + d / sd for d in (-40, -8, 0, 8, 40, 400)), *(kink + d for d in (1, 3, 8, 20))}
        )
        exact = float(mpmath.quad(g, [c for c in cuts if c >= -30]))
    assert abs(got - exact) <= 1e-8 * abs(exact)


def test_a_weak_row_that_others_determine_keeps_its_variance():
    """lam S is moderate and rho a millionth of a millionth of S: 1 - lam rho has no digit left."""
    W = np.array([[1.0, 326626.0], [1.0, 349247.0]])
    weights = np.array([4.6e-17, 1.0])
    sol = fenchel.infer(Gaussian(1.0), DenseCovariance(37.2 * np.eye(2), design=W), [0.0, 1.0], weights=weights)
    with mpmath.workdps(40):
        S = mpmath.matrix(W.tolist()) * mpmath.mpf(37.2) * mpmath.matrix(W.tolist()).T
        V = (S**-1 + mpmath.diag([mpmath.mpf(w) for w in weights])) ** -1
        exact = [float(V[0, 0]), float(V[1, 1])]
    np.testing.assert_allclose(sol.posterior.variance, exact, rtol=3e-4)


def test_a_ridge_that_alone_holds_a_far_level_is_no_certificate():
    """u' Q u cancels to a millionth of its terms, and the elbo with it."""
    off, diagonal, y = -11855924.746128846, 23711849.493443284, 999997.3921660561
    Q = sp.csc_array(np.where(np.eye(3) > 0, diagonal, off))
    sol = fenchel.infer(Gaussian(3.75), SparsePrecision(Q), [y, np.nan, np.nan], tol=1e-8)
    with mpmath.workdps(50):
        S = (mpmath.matrix(Q.toarray().tolist()) ** -1)[0, 0] + mpmath.mpf(3.75)
        exact = float(-mpmath.log(2 * mpmath.pi * S) / 2 - mpmath.mpf(y) ** 2 / (2 * S))
    off = abs(sol.elbo - exact)
    assert off <= (1e-8 * abs(exact) if sol.converged else sol.rounding)


def test_a_covariance_of_low_rank_beyond_double_precision_says_so():
    S = [
        [3.3224125128729424e10, -1.5400198983849524e11, -2.0411050642608694e11],
        [-1.5400198983849524e11, 7.1383709224318909e11, 9.4610238839305054e11],
        [-2.0411050642608694e11, 9.4610238839305054e11, 1.2539411849701001e12],
    ]
    y, weights = [-0.17993563339579166, -0.28943482440233886, -0.767062439760401], [1.0, 0.25, 1.0]
    likelihood = LogisticNoise(0.0018061560873031126)
    sol = fenchel.infer(likelihood, DenseCovariance(np.array(S)), y, weights=weights, tol=1e-4)
    assert not sol.converged
    assert "limit of double precision" in sol.status


@pytest.mark.parametrize(("h", "rho"), [(-0.02, 0.007), (0.3, 0.05), (0.2, 0.2)])
def test_expectations_of_a_narrow_beta_keep_thirteen_digits(h, rho):
    from fenchel.likelihoods import Beta

    y, precision = 0.4948572099453788, 580.58
    likelihood = Beta(precision)
    rows = likelihood.prepare(np.array([y]))
    got = likelihood.objective.loss(np.array([[h]]), np.array([[rho]]), rows).value[0]
    left, right = -1.5571994212168683, 1.5328618101587437
    with mpmath.workdps(30):
        phi, L = mpmath.mpf(precision), mpmath.mpf(y)

        def psi(eta):
            x = phi / (1 + mpmath.exp(-eta))
            own = mpmath.loggamma(x) + mpmath.loggamma(phi - x) - mpmath.loggamma(phi)
            return own - (x - 1) * mpmath.log(L) - (phi - x - 1) * mpmath.log(1 - L)

        def bound(eta):
            if left <= eta <= right:
                return psi(eta)
            edge = left if eta < left else right
            return psi(edge) + mpmath.diff(psi, edge) * (eta - edge)

        density = lambda eta: bound(eta) * mpmath.exp(-((eta - h) ** 2) / (2 * rho)) / mpmath.sqrt(2 * mpmath.pi * rho)
        cuts = sorted({h + k * rho**0.5 for k in (-14, -7, -3, 0, 3, 7, 14)} | {left, right})
        exact = float(mpmath.quad(density, cuts))
    assert abs(got - exact) <= 3e-12


@pytest.mark.parametrize("n", [2, 12])
def test_latent_variances_of_two_nearly_equal_rows(n):
    """Years that nobody centred, a wide prior: fewer rows than weights (S, N x N) and more (A, L x L)."""
    rng = np.random.default_rng(0)
    W = np.column_stack([np.ones(n), rng.normal(size=n), 1960.0 + np.arange(n)])
    v, noise = 6323070.8, 0.0328
    sol = fenchel.infer(Gaussian(noise), Features(W, v), 1990.0 + rng.normal(size=n), tol=1e-8)
    with mpmath.workdps(40):
        X = mpmath.matrix(W.tolist())
        V = (mpmath.eye(3) / mpmath.mpf(v) + X.T * X / mpmath.mpf(noise)) ** -1
        exact = [float(V[i, i]) for i in range(3)]
    np.testing.assert_allclose(sol.posterior.latent_variance, exact, rtol=1e-6)


def test_a_root_of_low_rank_is_known_to_be_rounded():
    """The least eigenvalue of Sigma is rounding, and a hundred million trials through a steep design see it."""
    K = np.array([[5.680383508445218, -0.5273565591394764], [-0.5273565591394764, 0.04895883175034928]])
    W = np.array(
        [
            [882.2997469585979, -313.57293398808577],
            [-322.2736148312082, 882.0214310101918],
            [93.39778984109113, -1341.9381228405964],
        ]
    )
    y, trials, weights = (
        np.array([80292.0, 736.0, 503149.0]),
        np.array([193809.0, 2415.0, 673318.0]),
        [1000.0, 1.0, 3.0],
    )
    offset = np.array([-0.359836539272282, -1.6845948960650565, 1.4868818949416958])
    prior = DenseCovariance(K, design=W, offset=offset)
    sol = fenchel.infer(Binomial(trials, "exact"), prior, y, weights=weights, tol=1e-8)
    assert not sol.converged or abs(sol.elbo + 35799.690444) < 1e-3
    assert sol.rounding > 0.05


@pytest.mark.parametrize("missing", [0, 3])
def test_latents_that_are_predictors_have_their_variances(missing):
    """Sigma_ii less what the data took of it has no digit left of what remains; the marginals have."""
    x = np.linspace(0.0, 9.0, 10)
    K = 1e11 * (np.exp(-0.5 * (x[:, None] - x[None]) ** 2) + 1e-3 * np.eye(10))
    y = np.where(np.arange(10) < 10 - missing, np.sin(x), np.nan)
    sol = fenchel.infer(Gaussian(1e-2), DenseCovariance(K), y, tol=1e-6)
    np.testing.assert_array_equal(sol.posterior.latent_variance, sol.posterior.variance)
    np.testing.assert_allclose(sol.posterior.latent_variance[: 10 - missing], 1e-2, rtol=1e-6)
