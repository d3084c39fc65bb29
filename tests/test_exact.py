"""The exact mode: its optimum against a brute-force one, its certificate against the true error, on every prior."""

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import CONVEX_CASES, EXACT_CASES, priors_for
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats
from test_solvers import with_offset

import fenchel
import fenchel.paper.rivals
from fenchel.likelihoods import BernoulliLogit, Binomial, Mixed, MultinomialLogit, Ordinal, Poisson
from fenchel.linalg.logistic_normal import logistic_moments
from fenchel.primal import PrimalPoint
from fenchel.priors import DenseCovariance, Features, SparsePrecision
from fenchel.priors.newton_systems import coupled_direction
from fenchel.problem import Problem
from fenchel.solvers import CoupledNewton

cases = pytest.mark.parametrize(("likelihood", "y"), EXACT_CASES)


def kernel(n, variance, seed=0, dimensions=2):
    X = np.random.default_rng(seed).normal(size=(n, dimensions))
    return variance * np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1)) + 1e-6 * variance * np.eye(n)


# -- the quadrature --------------------------------------------------------------------------------
def at_high_precision(h, rho):
    """The seven moments by mpmath, thirty digits, cut where the integrand bends."""
    sd = mpmath.sqrt(rho)
    cuts = [h + k * sd for k in range(-13, 14)] + [
        c for c in (-50, -20, -8, -3, 0, 3, 8, 20, 50) if abs(c - h) < 13 * sd
    ]

    def softplus(x):
        return mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x))

    def bend(x):
        return 1 / (2 + mpmath.exp(x) + mpmath.exp(-x))

    functions = [
        softplus,
        lambda x: softplus(-x),
        lambda x: 1 / (1 + mpmath.exp(-x)),
        lambda x: 1 / (1 + mpmath.exp(x)),
        bend,
        lambda x: bend(x) * (1 - 2 / (1 + mpmath.exp(-x))),
        lambda x: bend(x) * (1 - 6 * bend(x)),
    ]
    with mpmath.workdps(30):
        return [float(mpmath.quad(lambda x, f=f: f(x) * mpmath.npdf(x, h, sd), sorted(set(cuts)))) for f in functions]


@pytest.mark.parametrize("rho", [1e-10, 9e-4, 1.1e-3, 0.24, 0.26, 0.99, 1.01, 25.0, 900.0, 1e6])
@pytest.mark.parametrize("h", [0.0, -1.7, 12.0, -45.0])
def test_a_logistic_under_a_normal(h, rho):
    ours, exact = logistic_moments(np.array([h]), np.array([rho]))[:, 0], np.array(at_high_precision(h, rho))
    np.testing.assert_allclose(ours[:5], exact[:5], rtol=1e-7, atol=1e-300)  # far in the tails too
    np.testing.assert_allclose(ours[:5], exact[:5], atol=1e-11, rtol=1e-12)
    np.testing.assert_allclose(ours[5:], exact[5:], atol=2e-10)  # these only steer Newton


# -- the optimum -----------------------------------------------------------------------------------
def brute_force(likelihood, S, mt, y):
    """The best ELBO over all Gaussians by a quasi-Newton method over (m, chol V), with the likelihood's own f."""
    n, rows, L = len(y), likelihood.prepare(y), np.linalg.cholesky(S)
    lower = np.tril_indices(n)

    def value(x):
        m, C = x[:n], np.zeros((n, n))
        C[lower] = x[n:]
        d = np.diag(C)
        if (d <= 0).any():
            return 1e10
        eta, root = mt + L @ m, L @ C  # eta = mt + L u, u ~ N(0, I)
        kl = 0.5 * (m @ m + (C**2).sum() - n) - np.log(d).sum()
        f = likelihood.objective.f(eta[:, None], (root**2).sum(1)[:, None], rows)
        return kl + rows["weight"] @ f

    start = np.concatenate([np.zeros(n), np.eye(n)[lower]])
    found = optimize.minimize(value, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    found = optimize.minimize(value, found.x, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    return -found.fun


def first_rows(likelihood, n):
    """The likelihood of the first n rows."""
    own = {name: getattr(likelihood, name) for name in likelihood.row_parameters}
    return likelihood.with_rows(**{k: v if np.ndim(v) == 0 else np.asarray(v)[:n] for k, v in own.items()})


@cases
def test_no_gaussian_does_better(likelihood, y):
    if isinstance(likelihood, Mixed):
        return  # its parts have their own tests
    S, y, mt = kernel(4, 3.0), y[:4], np.array([0.3, -0.5, 0.0, 0.2])
    likelihood = first_rows(likelihood, 4)
    sol = fenchel.infer(likelihood, DenseCovariance(S, offset=mt), y, tol=1e-12)
    assert sol.elbo == pytest.approx(brute_force(likelihood, S, mt, y), abs=2e-6)


@cases
def test_a_planted_optimum_is_recovered_on_every_prior(likelihood, y):
    """Choose h; let lam settle at lam+(h, rho(lam)); then mt = S alpha+ + h makes that q stationary."""
    rows = likelihood.prepare(y)
    w = rows["weight"][:, None]
    for i, prior in enumerate(priors_for(likelihood)):
        h = np.random.default_rng(i).normal(size=(len(y), 1))
        bound, lam = prior.bind(len(y), 1, False), 0.5 + 0.0 * h
        for _ in range(300):
            rho = bound.at(w * lam).variance + bound.extra_variance
            lam = 0.5 * lam + 0.5 * likelihood.objective.loss(h, rho, rows).lam[:, None]
        loss = likelihood.objective.loss(h, rho, rows)
        np.testing.assert_allclose(lam[:, 0], loss.lam, rtol=1e-9, atol=1e-12)
        planted = with_offset(prior, bound.apply(w * loss.alpha[:, None]) + h)
        sol = fenchel.infer(likelihood, planted, y, tol=1e-13, max_iter=80)
        assert sol.certificate == ("strong-concavity" if likelihood.objective.log_concave else "stationarity")
        if likelihood.objective.log_concave:
            assert sol.gap < 1e-10 * max(1.0, abs(sol.elbo)), sol.status
            np.testing.assert_allclose(sol.posterior.mean, h[:, 0], atol=2e-5)
            np.testing.assert_allclose(sol.posterior.variance, rho[:, 0], atol=2e-5)
        else:  # some stationary point, perhaps another
            assert sol.converged or "stagnated" in sol.status


@cases
def test_the_certificate_is_never_below_the_true_error(likelihood, y):
    """At every iterate, against an optimum found to rounding."""
    if not likelihood.objective.log_concave:
        return
    for prior in priors_for(likelihood):
        best = fenchel.infer(likelihood, prior, y, tol=1e-13)
        sol = fenchel.infer(likelihood, prior, y, tol=1e-8, start=np.zeros((len(y), 2)))
        assert sol.converged, sol.status
        assert sol.gap <= 1e-8 * max(1.0, abs(sol.elbo))
        slack = 1e-11 * max(1.0, abs(best.elbo))
        assert (sol.trace["elbo"] + sol.trace["gap"] >= best.elbo - slack).all()
        assert sol.elbo_upper == sol.elbo + sol.gap


@given(st.integers(0, 10_000), st.floats(-2, 4))
def test_the_certificate_at_random_points(seed, log_variance):
    """Any (beta, lam), not only those a solver visits; the cheap form is never below the exact one."""
    rng = np.random.default_rng(seed)
    n, S = 8, kernel(8, 10.0**log_variance, seed)
    y = rng.integers(0, 2, n).astype(float)
    problem = Problem(BernoulliLogit("exact"), DenseCovariance(S), y)
    best = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(S), y, tol=1e-12).elbo
    beta, lam = rng.normal(size=(n, 1)) * 0.3, rng.gamma(1.0, 0.2, (n, 1)) + 1e-12
    exact, cheap = (PrimalPoint(problem, beta, lam, enough) for enough in (0.0, np.inf))
    assert exact.elbo + exact.gap >= best - 1e-9 * abs(best)
    assert cheap.gap >= exact.gap * (1 - 1e-9)
    B = np.linalg.inv(np.linalg.inv(S) + np.diag(lam[:, 0]))
    r, d = exact.r[:, 0], exact.d[:, 0]
    whole = 0.5 * r @ S @ r + 0.5 * d @ (B * S) @ d
    assert exact.gap == pytest.approx(min(whole, cheap.gap), rel=1e-5)


@pytest.mark.parametrize(("likelihood", "y"), [case for case in CONVEX_CASES if case.values[0].n_predictors == 1])
def test_the_same_solver_finds_the_duals_optimum(likelihood, y):
    """A bound that has a dual can do without it: two algorithms, two certificates, one optimum."""
    for prior in priors_for(likelihood):
        dual = fenchel.infer(likelihood, prior, y, tol=1e-12)
        primal = fenchel.infer(likelihood, prior, y, method=CoupledNewton(), tol=1e-10)
        assert primal.converged, primal.status
        assert primal.elbo == pytest.approx(dual.elbo, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(primal.posterior.mean, dual.posterior.mean, atol=3e-4, rtol=1e-4)


def test_newtons_direction_solves_its_system():
    """dbeta, dlam against a dense solve of the linearised fixed point beta = alpha+, lam = lam+."""
    n, S = 7, kernel(7, 4.0)
    y = np.array([0.0, 1, 1, 0, 1, 0, 1])
    problem = Problem(BernoulliLogit("exact"), DenseCovariance(S), y)
    rng = np.random.default_rng(2)
    point = PrimalPoint(problem, rng.normal(size=(n, 1)) * 0.1, rng.gamma(2.0, 0.05, (n, 1)), 0.0)
    step = coupled_direction(point.factor, point.system(1e-14, economical=False))

    def residual(x):
        other = PrimalPoint(problem, x[:n, None], x[n:, None], 0.0)
        return np.concatenate([other.r[:, 0], other.d[:, 0]])

    x = np.concatenate([point.alpha[:, 0], point.lam[:, 0]])
    J = np.stack([(residual(x + e) - residual(x - e)) / 2e-6 for e in 1e-6 * np.eye(2 * n)], axis=1)
    ours = np.concatenate([step.dbeta[:, 0], step.dlam[:, 0]])
    np.testing.assert_allclose(J @ ours, -residual(x), atol=1e-6)


# -- how far and how fast --------------------------------------------------------------------------
@given(st.integers(0, 10_000), st.floats(-4, 7), st.sampled_from(["exact", "jaakkola"]))
def test_any_scale_converges(seed, log_variance, bound):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 20).astype(float)
    prior = DenseCovariance(kernel(20, 10.0**log_variance, seed), offset=rng.normal())
    sol = fenchel.infer(BernoulliLogit(bound), prior, y, tol=1e-8)
    assert sol.converged, sol.status
    assert sol.n_iter <= 60


@given(st.integers(0, 10_000), st.floats(-3, 3))
def test_any_start_converges(seed, log_scale):
    rng = np.random.default_rng(seed)
    y, off = rng.integers(0, 2, 12).astype(float), -np.ones(11)
    chain = sp.diags_array([off, 2.02 + np.zeros(12), off], offsets=[-1, 0, 1], format="csc") / 100.0
    start = 10.0**log_scale * rng.normal(size=(12, 2))
    for prior in (DenseCovariance(kernel(12, 20.0, seed)), SparsePrecision(chain)):
        best = fenchel.infer(BernoulliLogit("exact"), prior, y, tol=1e-10)
        sol = fenchel.infer(BernoulliLogit("exact"), prior, y, tol=1e-10, start=start)
        assert sol.converged, sol.status
        assert sol.elbo == pytest.approx(best.elbo, rel=1e-8)


def test_moderate_variances_need_few_factorisations(monkeypatch):
    """At most 12 on real data at signal variances up to 9 (the benchmark has the times)."""
    from sklearn.datasets import load_breast_cancer

    from fenchel.linalg import dense

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    square = ((X[:, None] - X[None]) ** 2).sum(-1)
    count, plain = [], dense.cholesky
    monkeypatch.setattr(dense, "cholesky", lambda A: count.append(0) or plain(A))
    for variance in (1.0, 9.0):
        prior = DenseCovariance(variance * np.exp(-square / 50) + 1e-6 * np.eye(len(y)))
        count.clear()
        sol = fenchel.infer(BernoulliLogit("exact"), prior, y.astype(float), tol=1e-6)
        assert sol.converged
        assert len(count) <= 12


def test_warm_starts_of_every_kind():
    rng = np.random.default_rng(0)
    y, K = rng.integers(0, 2, 40).astype(float), kernel(40, 9.0)
    exact = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), y, tol=1e-10)
    again = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), y, tol=1e-8, start=exact)
    assert again.n_iter <= 1
    tilted = fenchel.infer(BernoulliLogit("tilted"), DenseCovariance(K), y, tol=1e-6)
    for one, other in ((tilted, "exact"), (exact, "tilted")):
        sol = fenchel.infer(BernoulliLogit(other), DenseCovariance(K), y, start=one)
        assert sol.converged
    near = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(1.1 * K), y, start=exact)
    assert near.converged
    assert near.n_iter <= 4


# -- what it is worth ------------------------------------------------------------------------------
@pytest.mark.parametrize("variance", [0.1, 4.0, 100.0])
def test_the_order_of_the_bounds_and_the_truth(variance):
    """One observation: log p(y) by quadrature, above the exact ELBO, above every bound's."""
    offset = 0.7
    for y in (0.0, 1.0):

        def joint(z, y=y):
            eta = z + offset
            return np.exp(y * eta - np.logaddexp(0, eta)) * stats.norm.pdf(z, scale=variance**0.5)

        reach = 12 * variance**0.5
        truth = np.log(integrate.quad(joint, -reach, reach, epsabs=1e-13, points=[0.0, -offset], limit=500)[0])
        elbo = {
            bound: fenchel.infer(BernoulliLogit(bound), DenseCovariance([[variance]], offset=offset), [y]).elbo
            for bound in BernoulliLogit.bounds
        }
        assert truth >= elbo["exact"] - 1e-7
        for bound in ("tilted", "jaakkola", "bohning", "log-sum"):
            assert elbo["exact"] >= elbo[bound] - 1e-7
        assert elbo["tilted"] >= elbo["log-sum"] - 1e-7
        assert elbo["jaakkola"] >= elbo["bohning"] - 1e-7


def test_jaakkola_with_xi_optimised_is_the_fixed_point_of_the_local_method():
    """Seeger and Nickisch: alternate a Gaussian fit at fixed xi with xi^2 = h^2 + rho. It ends where ours does."""
    n, S = 15, kernel(15, 25.0)
    y = np.random.default_rng(3).integers(0, 2, n).astype(float)
    sol = fenchel.infer(BernoulliLogit("jaakkola"), DenseCovariance(S), y, tol=1e-13)
    xi = np.ones(n)
    for _ in range(3000):
        lam = np.tanh(xi / 2) / (2 * xi)
        V = np.linalg.inv(np.linalg.inv(S) + np.diag(lam))
        m = V @ (y - 0.5)
        xi = np.sqrt(m**2 + np.diag(V))
    np.testing.assert_allclose(sol.posterior.mean, m, atol=1e-5)
    np.testing.assert_allclose(sol.posterior.variance, np.diag(V), atol=1e-5)


def test_every_prior_tells_the_same_story():
    """One model as covariance, as features and as a precision."""
    rng = np.random.default_rng(5)
    W, v = rng.normal(size=(30, 4)), np.array([1.0, 4.0, 9.0, 0.5])
    y = rng.integers(0, 2, 30).astype(float)
    priors = [
        Features(W, v),
        DenseCovariance(np.diag(v), design=W),
        DenseCovariance(W @ np.diag(v) @ W.T),
        SparsePrecision(sp.diags_array(1 / v, format="csc"), design=sp.csr_array(W)),
    ]
    fits = [fenchel.infer(BernoulliLogit("exact"), prior, y, tol=1e-10) for prior in priors]
    for sol in fits:
        assert sol.converged, sol.status
        assert sol.elbo == pytest.approx(fits[0].elbo, rel=1e-8)
        np.testing.assert_allclose(sol.posterior.variance, fits[0].posterior.variance, rtol=1e-4)


def test_holes_weights_and_trials():
    K = kernel(6, 4.0)
    y = np.array([1.0, np.nan, 0.0, 1.0, np.nan, 0.0])
    seen = ~np.isnan(y)
    sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), y)
    alone = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K[np.ix_(seen, seen)]), y[seen])
    assert sol.elbo == pytest.approx(alone.elbo, rel=1e-10)
    assert np.isfinite(sol.posterior.mean).all()
    assert np.isfinite(sol.s).all()
    twice = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), y, weights=np.full(6, 2.0), tol=1e-12)
    trials = fenchel.infer(Binomial(np.full(6, 2.0), "exact"), DenseCovariance(K), 2 * y, tol=1e-12)
    assert trials.elbo == pytest.approx(twice.elbo, rel=1e-10)
    mixed = Mixed([BernoulliLogit("exact"), Poisson()], which=[0, 0, 0, 0, 0, 1])
    sol = fenchel.infer(mixed, DenseCovariance(K), np.array([1.0, 0, 0, 1, np.nan, 3]))
    assert sol.converged
    empty = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), np.full(6, np.nan))
    assert empty.elbo == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(empty.posterior.variance, np.diag(K))


def test_what_has_no_dual_says_so():
    prior, y = DenseCovariance(np.eye(3)), [0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="minimises the dual"):
        fenchel.infer(BernoulliLogit("exact"), prior, y, method="lbfgs")
    with pytest.raises(ValueError, match="minimises the dual"):
        fenchel.paper.rivals.opper_archambeau(BernoulliLogit("exact"), prior, y)
    with pytest.raises(ValueError, match="no convex dual"):
        BernoulliLogit("exact").objective.dual.site(np.zeros((3, 1)), BernoulliLogit("log-sum").prepare(y))
    with pytest.raises(ValueError, match="mean and log variance"):
        fenchel.infer(BernoulliLogit("exact"), prior, y, start=np.zeros(3))
    with pytest.raises(ValueError, match="bounds with a dual wherever"):
        Mixed([BernoulliLogit("exact"), MultinomialLogit(3, bound="log-sum")], which=[0, 1])
    with pytest.raises(ValueError, match="bounds with a dual wherever"):
        Mixed([BernoulliLogit("tilted"), MultinomialLogit(3, bound="exact")], which=[0, 1])
    assert "strong-concavity" in fenchel.infer(Ordinal([0.0], "exact"), prior, y).summary()
