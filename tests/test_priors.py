"""The contract of a prior: every answer of a factorisation against dense linear algebra written out in full."""

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import PRIORS
from hypothesis import given
from hypothesis import strategies as st

import fenchel
from fenchel import gates
from fenchel.likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Poisson
from fenchel.linalg.arrays import to_numpy
from fenchel.linalg.design import Identity
from fenchel.priors import DenseCovariance, Features, NewtonSystem, SparsePrecision
from fenchel.priors.batched import BatchedFeatures
from fenchel.priors.rowspace import RowPredictors
from fenchel.priors.weightspace import WeightPredictors

N = 9
TIGHT = 1e-18  # the error of a mean is the square root of the gap: run until rounding stops it


def cases():
    rng = np.random.default_rng(5)
    for cls in PRIORS:
        for C in (1, 3):
            for i, prior in enumerate(cls.example(rng, N, C)):
                for coupled in (False, True) if C > 1 else (False,):
                    yield pytest.param(
                        prior, C, coupled, id=f"{cls.__name__}-{i}-C{C}-{'coupled' if coupled else 'free'}"
                    )


every_prior = pytest.mark.parametrize(("prior", "C", "coupled"), list(cases()))


def full_S(bound):
    """S of all N*C predictors (observation by observation), by applying it to unit vectors."""
    n, C = bound.n_observations, bound.n_predictors
    unit = np.eye(n * C).reshape(n * C, n, C)
    return np.stack([bound.apply(e).ravel() for e in unit], axis=1)


@every_prior
def test_a_fit_is_freed_at_once(prior, C, coupled):
    """A cycle of references would keep the rows of every theta until the garbage collector runs."""
    likelihood = Poisson() if C == 1 else MultinomialLogit(3, reference=None, bound="exact")
    fit = fenchel.infer(likelihood, prior, np.arange(N) % 3)
    predictors = weakref.ref(fit.posterior.predictors)
    gc.disable()
    try:
        del fit
        assert predictors() is None
    finally:
        gc.enable()


def random_system(rng, n, C, coupled, layout=None):
    layout = tuple(range(C)) if layout is None else layout
    P = len(layout)
    return NewtonSystem(
        g=rng.normal(size=(n, P)),
        signs=rng.choice([-1.0, 1.0], (n, P)),
        slope=rng.uniform(-1, 1, (n, P)),
        extra=rng.gamma(1.0, 0.3, (n, P)),
        spread=rng.gamma(1.0, 0.5, (n, P)),
        slack=rng.gamma(1.0, 0.5, n) if coupled else None,
        layout=layout,
        accuracy=1e-13,
    )


def dense_newton(S, Vt, system):
    """dtau and ds from (J^-1 + M + extra) dtau = -g with every matrix written out."""
    n, P = system.g.shape
    C = S.shape[0] // n
    pick = np.zeros((n * P, n * C))
    for i in range(n):
        for p, c in enumerate(system.layout):
            pick[i * P + p, i * C + c] = 1.0
    a, slope = system.signs.ravel(), system.slope.ravel()
    M = a[:, None] * (pick @ S @ pick.T) * a + 0.5 * slope[:, None] * (pick @ Vt**2 @ pick.T) * slope
    J = np.diag(system.spread.ravel())
    if system.slack is not None:
        for i in range(n):
            block = slice(i * P, (i + 1) * P)
            d = system.spread[i]
            J[block, block] -= np.outer(d, d) / (system.slack[i] + d.sum())
    H = M + np.diag(system.extra.ravel())
    ds = -np.linalg.solve(np.eye(n * P) + H @ J, system.g.ravel())
    return ds.reshape(n, P), (J @ ds).reshape(n, P), M


@every_prior
def test_one_factorisation_answers_everything(prior, C, coupled):
    rng = np.random.default_rng(0)
    bound = prior.bind(N, C, coupled)
    S = full_S(bound)
    np.testing.assert_allclose(S, S.T, atol=TIGHT)
    np.testing.assert_allclose(np.diag(S).reshape(N, C), bound.variance, rtol=1e-10)
    lam = rng.gamma(1.0, 1.0, (N, C))
    lam[2] = 0.0
    lam[3] = 1e-9
    factor = bound.at(lam)
    root = np.sqrt(lam.ravel())
    B = np.eye(N * C) + root[:, None] * S * root
    Vt = S - S @ (root[:, None] * np.linalg.inv(B) * root) @ S
    assert factor.log_det == pytest.approx(np.linalg.slogdet(B)[1], rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(factor.variance.ravel(), np.diag(Vt), rtol=1e-9)
    np.testing.assert_allclose(factor.cavity, 1 - lam * factor.variance, rtol=1e-9)
    v = rng.normal(size=(N, C))
    np.testing.assert_allclose(factor.apply(v).ravel(), Vt @ v.ravel(), rtol=1e-8, atol=1e-10)
    joint = len(bound.blocks.groups) == 1
    covariance = factor.covariance()
    for b, block in enumerate(covariance):
        rows = np.arange(N * C) if joint else np.arange(N) * C + b
        np.testing.assert_allclose(block, Vt[np.ix_(rows, rows)], atol=1e-9)
    r, d = rng.normal(size=(2, N, C))
    certificate = 0.5 * r.ravel() @ S @ r.ravel() + 0.5 * d.ravel() @ (Vt * S) @ d.ravel()
    if isinstance(prior, SparsePrecision):  # the cheap form, an upper bound
        assert factor.certificate(r, d) >= certificate * (1 - 1e-10)
    else:
        assert factor.certificate(r, d) == pytest.approx(certificate, rel=1e-8)


@every_prior
def test_newton_direction(prior, C, coupled):
    rng = np.random.default_rng(1)
    bound = prior.bind(N, C, coupled)
    S = full_S(bound)
    lam = rng.gamma(1.0, 1.0, (N, C)) + 0.01
    root = np.sqrt(lam.ravel())
    Vt = S - S @ (root[:, None] * np.linalg.inv(np.eye(N * C) + root[:, None] * S * root) * root) @ S
    layouts = [None] if C > 1 else [None, (0, 0)]
    for layout in layouts:
        system = random_system(rng, N, C, coupled, layout)
        ds, dtau, M = dense_newton(S, Vt, system)
        factor = bound.at(lam)
        v = rng.normal(size=system.g.shape)
        moved = system.curvature(factor, v) + system.bend(factor, v)
        np.testing.assert_allclose(moved.ravel(), M @ v.ravel(), rtol=1e-8, atol=1e-9)
        ours = factor.direction(system)
        np.testing.assert_allclose(ours[1], dtau, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(ours[0], ds, rtol=1e-6, atol=1e-8)
        # the factor comes back after a direction has used its memory up
        np.testing.assert_allclose(factor.apply(lam).ravel(), Vt @ lam.ravel(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("reference", ["last", None])
def test_both_ways_to_solve_a_softmax_agree(reference, monkeypatch):
    """The direct solve (six factorisation steps a class) against the one that reuses B^-1, on a real problem."""
    import fenchel.priors.rowspace as row_newton
    from fenchel.problem import Problem

    rng = np.random.default_rng(0)
    likelihood = MultinomialLogit(4, reference, bound="log-sum")
    problem = Problem(likelihood, DenseCovariance.example(rng, 15, 1)[0], rng.integers(0, 4, 15))
    s, answers = rng.normal(size=(15, likelihood.n_predictors)), []
    for limit in (0.0, np.inf):
        monkeypatch.setattr(row_newton, "_MODERATE", limit)
        point = problem.at(s)
        ds, dtau = point.factor.direction(point.newton_system(accuracy=1e-13))
        answers.append((ds - (0 if reference else ds.mean(1, keepdims=True)), dtau))
    np.testing.assert_allclose(answers[0][1], answers[1][1], atol=1e-9)
    np.testing.assert_allclose(answers[0][0], answers[1][0], atol=1e-8)


@given(st.integers(0, 10_000), st.floats(-8, 8))
def test_rho_is_right_however_small_lam_is(seed, log_scale):
    rng = np.random.default_rng(seed)
    n = 7
    root = rng.normal(size=(n, n))
    S = root @ root.T * 10.0**log_scale
    lam = 10.0 ** rng.uniform(-14, 3, (n, 1))
    ours = DenseCovariance(S).bind(n, 1, False).at(lam).variance[:, 0]
    import mpmath

    with mpmath.workdps(60):
        A = mpmath.matrix(S.tolist()) ** -1 + mpmath.diag([mpmath.mpf(float(x)) for x in lam[:, 0]])
        V = A**-1
        exact = np.array([float(V[i, i]) for i in range(n)])
    np.testing.assert_allclose(ours, exact, rtol=1e-7 * max(1.0, np.linalg.cond(S) * 1e-9))


def test_spaces_agree_and_the_smaller_is_chosen():
    rng = np.random.default_rng(0)
    W = rng.normal(size=(30, 4))
    assert isinstance(Features(W).bind(30, 1, False), WeightPredictors)
    assert isinstance(Features(W.T).bind(4, 1, False), RowPredictors)
    assert isinstance(DenseCovariance(np.eye(4), design=W).bind(30, 1, False), WeightPredictors)
    assert isinstance(Features(W).bind(30, 5, True), RowPredictors)  # (C L) x (C L) would be the larger
    assert isinstance(Features(rng.normal(size=(60, 4))).bind(60, 5, True), WeightPredictors)
    y = rng.integers(0, 2, 30)
    thin = fenchel.infer(BernoulliLogit("tilted"), Features(W, variance=3.0), y, tol=TIGHT)
    wide = fenchel.infer(BernoulliLogit("tilted"), DenseCovariance(3.0 * W @ W.T), y, tol=TIGHT)
    assert thin.elbo == pytest.approx(wide.elbo, abs=1e-9)
    np.testing.assert_allclose(thin.posterior.mean, wide.posterior.mean, atol=1e-7)
    np.testing.assert_allclose(thin.posterior.variance, wide.posterior.variance, atol=1e-7)


@pytest.mark.parametrize("C", [1, 3])
def test_few_rows_of_a_smooth_covariance_stand_for_all(C):
    n, m, rng = 60, 20, np.random.default_rng(3)
    x = np.linspace(0.0, 1.0, n)
    K = np.exp(-2.0 * (x[:, None] - x[None]) ** 2)
    K = K if C == 1 else np.stack([(c + 1.0) * K for c in range(C)])
    whole = DenseCovariance(K, offset=0.3, extra_variance=0.2).bind(n, C, False)
    few = whole.through_rows(m)
    assert few.n_weights == C * m
    alpha = rng.normal(size=(n, C))
    np.testing.assert_allclose(few.apply(alpha), whole.apply(alpha), atol=1e-4)
    np.testing.assert_allclose(few.variance + few.extra_variance, whole.variance + 0.2, rtol=1e-10)
    np.testing.assert_allclose(few.mt, whole.mt)
    assert DenseCovariance(np.eye(n)).bind(n, 1, False).through_rows(m) is None  # they say nothing of the others
    assert DenseCovariance(np.ones((n, n))).bind(n, 1, False).through_rows(m).variance == pytest.approx(1.0, abs=1e-6)
    assert Features(np.ones((n, 2))).bind(n, 1, False).through_rows(m) is None


@pytest.mark.parametrize(
    "likelihood", [BernoulliLogit("tilted"), BernoulliLogit("exact"), MultinomialLogit(3, bound="tilted")]
)
def test_a_fit_through_few_rows_leaves_fewer_steps(likelihood, monkeypatch):
    n, rng = 200, np.random.default_rng(4)
    x = np.linspace(0.0, 1.0, n)
    prior = DenseCovariance(30.0 * np.exp(-10.0 * (x[:, None] - x[None]) ** 2))
    y = (np.digitize(x, [0.3, 0.6]) + (rng.random(n) < 0.1)) % (2 if likelihood.n_predictors == 1 else 3)
    fits = []
    for gate in (n, n + 1):
        monkeypatch.setattr(gates, "NYSTROM_START", gate)
        fits.append(fenchel.infer(likelihood, prior, y, tol=1e-9))
    begun, cold = fits
    assert begun.converged
    assert cold.converged
    assert begun.n_iter < cold.n_iter
    assert begun.elbo == pytest.approx(cold.elbo, rel=1e-8)
    np.testing.assert_allclose(begun.posterior.mean, cold.posterior.mean, atol=1e-3)


def test_a_fit_through_few_rows_is_no_start_where_counts_tell_what_it_leaves_out(monkeypatch):
    """White noise of variance 10: such a start took twice the steps."""
    n, rng = 200, np.random.default_rng(4)
    x = np.linspace(0.0, 1.0, n)
    prior = DenseCovariance(100.0 * np.exp(-50.0 * (x[:, None] - x[None]) ** 2) + 10.0 * np.eye(n))
    y = rng.poisson(np.exp(1.0 + np.sin(6.0 * x)))
    fits = []
    for gate in (n, n + 1):
        monkeypatch.setattr(gates, "NYSTROM_START", gate)
        fits.append(fenchel.infer(Poisson(), prior, y))
    assert prior.bind(n, 1, False).through_rows(n // 8) is not None
    assert fits[0].n_iter == fits[1].n_iter
    assert fits[0].converged


def test_softmax_spaces_agree():
    rng = np.random.default_rng(1)
    W, y = rng.normal(size=(60, 2)), rng.integers(0, 4, 60)
    for reference in ("last", None):
        for bound in ("log-sum", "tilted"):
            likelihood = MultinomialLogit(4, reference, bound)
            thin = fenchel.infer(likelihood, Features(W, variance=2.0), y, tol=TIGHT)
            wide = fenchel.infer(likelihood, DenseCovariance(2.0 * W @ W.T), y, tol=TIGHT)
            assert thin.gap < 1e-12
            assert wide.gap < 1e-12
            assert thin.elbo == pytest.approx(wide.elbo, abs=1e-8)
            np.testing.assert_allclose(thin.posterior.variance, wide.posterior.variance, atol=1e-6)


def test_correlated_predictors_reduce_to_independent_ones():
    """A block covariance with no correlation gives the same fit as independent predictors."""
    rng = np.random.default_rng(2)
    n, C = 10, 2
    K = DenseCovariance.example(rng, n, 1)[0].covariance
    y, likelihood = rng.integers(0, 3, n), MultinomialLogit(3, bound="log-sum")
    one = fenchel.infer(likelihood, DenseCovariance(K), y, tol=TIGHT)
    many = fenchel.infer(likelihood, DenseCovariance(np.kron(K, np.eye(C))), y, tol=TIGHT)
    own = fenchel.infer(likelihood, DenseCovariance(np.stack([K, K])), y, tol=TIGHT)
    for other in (many, own):
        assert other.elbo == pytest.approx(one.elbo, abs=1e-9)
        np.testing.assert_allclose(other.posterior.mean, one.posterior.mean, atol=1e-7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("likelihood", [Poisson(), MultinomialLogit(3, bound="log-sum")])
def test_gradient_of_the_evidence_in_the_covariance(likelihood, sparse):
    """dP/dSigma by the envelope formula against differences of refitted evidence."""
    import scipy.sparse as sp

    rng = np.random.default_rng(3)
    n, L = 14, 3
    W = rng.normal(size=(n, L))
    y = rng.poisson(2.0, n) if isinstance(likelihood, Poisson) else rng.integers(0, 3, n)
    root = rng.normal(size=(L, L))
    Sigma = root @ root.T + np.eye(L)
    design = sp.csr_array(W) if sparse else W

    def evidence(Sigma):
        return fenchel.infer(likelihood, DenseCovariance(Sigma, design=design), y, tol=TIGHT, max_iter=50)

    sol = evidence(Sigma)
    E = rng.normal(size=(L, L))
    E = E + E.T
    difference = (evidence(Sigma + 1e-5 * E).elbo - evidence(Sigma - 1e-5 * E).elbo) / 2e-5
    G = sum(sol.posterior.gradient_covariance())
    assert np.sum(G * E) == pytest.approx(difference, rel=1e-6, abs=1e-7)
    wide = fenchel.infer(likelihood, DenseCovariance(W @ Sigma @ W.T), y, tol=TIGHT, max_iter=50)
    G_rows = sum(wide.posterior.gradient_covariance())
    np.testing.assert_allclose(W.T @ G_rows @ W, G, atol=1e-6)


def designed(kind, W, rng_root):
    """A prior of each kind with the rows W."""
    import scipy.sparse as sp

    L = W.shape[1]
    Sigma = rng_root @ rng_root.T + np.eye(L)
    return {
        "features": lambda: Features(W, variance=np.arange(1.0, L + 1.0), mean=0.2),
        "features, correlated": lambda: Features(W, variance=Sigma),
        "dense": lambda: DenseCovariance(Sigma, mean=0.3, design=W),
        "sparse rows": lambda: Features(sp.csr_array(W), variance=2.0),
        "precision": lambda: SparsePrecision(sp.csc_array(np.linalg.inv(Sigma)), mean=0.3, design=sp.csr_array(W)),
        "batch": lambda: BatchedFeatures(W, 5, offset=0.1),
    }[kind]()


@pytest.mark.parametrize("C", [1, 2])
@pytest.mark.parametrize("n", [14, 4])  # in the space of the weights, and of the rows
@pytest.mark.parametrize("kind", ["features", "features, correlated", "dense", "sparse rows", "precision", "batch"])
def test_gradient_of_the_evidence_in_the_design(kind, n, C):
    """dP/dW = -alpha m' - Lam W V against differences of refitted evidence, with a hole."""
    if kind == "batch" and C > 1:
        pytest.skip("the loadings of a table have their own layout")
    rng = np.random.default_rng(4)
    likelihood = Poisson() if C == 1 else MultinomialLogit(C + 1, bound="log-sum")
    W, root = rng.normal(size=(n, 3)) * (rng.random((n, 3)) < 0.8), rng.normal(size=(3, 3))
    y = rng.integers(0, 3, 5 * n if kind == "batch" else n).astype(float)
    y[2] = np.nan

    def fit(W):
        return fenchel.infer(likelihood, designed(kind, W, root), y, tol=TIGHT, max_iter=50)

    E = rng.normal(size=W.shape) * (W != 0.0)
    G = sum(G.toarray() if hasattr(G, "toarray") else G for G in fit(W).posterior.adjoint().design)
    difference = (fit(W + 1e-5 * E).elbo - fit(W - 1e-5 * E).elbo) / 2e-5
    assert np.sum(G * E) == pytest.approx(difference, rel=1e-5, abs=1e-6)


@every_prior
def test_prediction_of_new_rows(prior, C, coupled):
    """Predicting the rows of the fit returns their marginals; new rows agree with dense conditioning."""
    rng = np.random.default_rng(4)
    likelihood = Poisson() if C == 1 else MultinomialLogit(4, bound="log-sum")
    y = rng.poisson(2.0, N) if C == 1 else rng.integers(0, 4, N)
    sol = fenchel.infer(likelihood, prior, y, tol=TIGHT)
    post = sol.posterior
    design = prior.design
    if isinstance(design, Identity):
        cov = np.linalg.inv(prior.precision.toarray()) if isinstance(prior, SparsePrecision) else prior.covariance
        L = cov.shape[-1]
        m, v = post.predict(design=np.eye(L), offset=prior.offset)
        cross_m, cross_v = post.predict(
            cross=cov,
            variance=np.diagonal(cov, axis1=-2, axis2=-1).T.reshape(N, -1)
            if cov.ndim == 3 or L == N
            else np.diag(cov).reshape(N, C),
            offset=prior.offset,
        )
        np.testing.assert_allclose(cross_m, m, atol=1e-9)
        np.testing.assert_allclose(cross_v, v, atol=1e-9)
    else:
        m, v = post.predict(design=design, offset=prior.offset, extra_variance=prior.extra_variance)
    np.testing.assert_allclose(m, post.mean, atol=1e-8)
    np.testing.assert_allclose(v, post.variance, atol=1e-8)
    assert post.latent_mean.shape == post.latent_variance.shape


def test_samples_have_the_posteriors_moments():
    rng = np.random.default_rng(6)
    for prior in (*DenseCovariance.example(rng, N, 1), *Features.example(rng, N, 1)):
        sol = fenchel.infer(Poisson(), prior, rng.poisson(2.0, N))
        draws = sol.posterior.sample(40_000, rng=1)
        assert draws.shape == (40_000, N)
        np.testing.assert_allclose(draws.mean(0), sol.posterior.mean, atol=0.04)
        np.testing.assert_allclose(np.cov(draws.T), sol.posterior.covariance(), atol=0.06)
        np.testing.assert_array_equal(draws, sol.posterior.sample(40_000, rng=1))


def test_nothing_of_the_users_is_overwritten():
    rng = np.random.default_rng(7)
    K = DenseCovariance.example(rng, N, 1)[0].covariance.copy()
    before, y = K.copy(), rng.poisson(2.0, N).astype(float)
    y_before = y.copy()
    sol = fenchel.infer(Poisson(), DenseCovariance(K), y)
    sol.posterior.covariance()
    sol.posterior.sample(3, rng=0)
    sol.loo()
    np.testing.assert_array_equal(K, before)
    np.testing.assert_array_equal(y, y_before)
    fortran = fenchel.infer(Poisson(), DenseCovariance(np.asfortranarray(K)), y)
    strided = fenchel.infer(Poisson(), DenseCovariance(np.kron(K, np.ones((2, 2)))[::2, ::2]), y)
    assert fortran.elbo == strided.elbo == sol.elbo


def test_singular_covariance_is_welcome_without_jitter():
    """Thousands of equal rows occur in real data: rank one, and the answer of the one-weight model."""
    y = np.array([1.0, 0.0, 2.0, 4.0, 1.0])
    flat = fenchel.infer(Poisson(), DenseCovariance(np.full((5, 5), 2.0)), y, tol=TIGHT)
    weight = fenchel.infer(Poisson(), Features(np.ones((5, 1)), variance=2.0), y, tol=TIGHT)
    assert flat.elbo == pytest.approx(weight.elbo, abs=1e-10)
    assert to_numpy(flat.posterior.variance)[0] == pytest.approx(weight.posterior.latent_variance[0], rel=1e-9)
    assert flat.posterior.sample(2, rng=0).shape == (2, 5)
    zero = fenchel.infer(Poisson(), DenseCovariance(np.zeros((5, 5))), y)
    assert zero.converged
    np.testing.assert_array_equal(zero.posterior.variance, 0.0)


@pytest.mark.parametrize("variance", [1.0, 1e2, 1e4, 1e6])
def test_vague_weights_lose_no_digits(variance):
    """Many rows, few weights, a wide prior: fit, predictions and holes agree with the marginals of the fit."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(400), rng.normal(size=(400, 3))])
    eta = X @ [1.0, 0.3, -0.5, 0.2]
    for likelihood, y in (
        (Gaussian(0.01), eta + 0.1 * rng.normal(size=400)),
        (Poisson(), rng.poisson(np.exp(eta)).astype(float)),
        (BernoulliLogit("tilted"), (rng.random(400) < 1 / (1 + np.exp(-eta))).astype(float)),
        (MultinomialLogit(3, bound="log-sum"), rng.integers(0, 3, 400).astype(float)),
    ):
        sol = fenchel.infer(likelihood, Features(X, variance=variance), y)
        assert sol.converged, (likelihood, sol.status)
        assert sol.n_iter <= 15
        mean, predicted = sol.posterior.predict(design=X[:50])
        np.testing.assert_allclose(predicted, sol.posterior.variance[:50], rtol=1e-8)
        np.testing.assert_allclose(mean, sol.posterior.mean[:50], rtol=1e-6, atol=1e-7)
        Sigma = np.full(4, variance)
        by_cross = sol.posterior.predict(cross=X[:5] * Sigma, variance=(X[:5] ** 2) @ Sigma)
        np.testing.assert_allclose(by_cross[0], mean[:5], rtol=1e-6, atol=1e-6)
        holes = y.copy()
        holes[:20] = np.nan
        part = fenchel.infer(likelihood, Features(X, variance=variance), holes)
        np.testing.assert_allclose(part.posterior.variance[:20], part.posterior.predict(design=X[:20])[1], rtol=1e-8)
        same = fenchel.infer(likelihood, Features(X[20:], variance=variance), y[20:])
        np.testing.assert_allclose(part.posterior.variance[20:], same.posterior.variance, rtol=1e-5)


def test_float32_kernels_are_taken_with_their_rounding():
    x = np.linspace(0, 1, 60, dtype=np.float32)
    K = np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)
    assert K.dtype == np.float32
    sol = fenchel.infer(Poisson(), DenseCovariance(K), np.ones(60))
    assert sol.converged
    assert sol.posterior.mean.dtype == np.float64


@pytest.mark.parametrize("where", ["precision", "design", "constraints"])
def test_indices_beyond_a_matrix_are_refused_before_any_loop_reads_them(where):
    Q = sp.csc_array(2.0 * sp.eye_array(30))
    given = {"precision": Q, "design": sp.eye_array(30, format="csr"), "constraints": sp.csr_array(np.ones((1, 30)))}
    broken = given[where].copy()
    broken.indices[7] = 10**7
    with pytest.raises(ValueError, match="indices beyond its shape"):
        SparsePrecision(**{**given, where: broken})


def test_other_values_stay_on_the_pattern_that_was_analysed():
    Q = sp.csc_array(2.0 * sp.eye_array(5))
    W = sp.csr_array(np.eye(5) + np.eye(5)[[1, 0, 0, 0, 0]] * (np.arange(5) < 2)[:, None])
    prior = SparsePrecision(Q, design=W)
    inside = Q.toarray()
    inside[0, 1] = inside[1, 0] = 0.5  # a pair of latents that one row sees
    other = prior.reweighted(sp.csc_array(inside)).pattern
    W = W.toarray()
    expected = np.linalg.slogdet(inside + W.T @ W)[1]
    assert other.factor(np.ones(5)).log_det == pytest.approx(expected, rel=1e-12)
    inside[3, 4] = inside[4, 3] = 0.5
    with pytest.raises(ValueError, match=r"precision\[4, 3\] is an entry that the pattern analysed does not have"):
        prior.reweighted(sp.csc_array(inside))
