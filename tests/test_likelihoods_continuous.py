"""Continuous targets and durations: densities, bounds, parameters, predictions and fits against outside witnesses."""

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import difference
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

import fenchel
from fenchel.hyperparameters import WeightVariances, learn
from fenchel.likelihoods import (
    Exponential,
    Gamma,
    Gaussian,
    LaplaceNoise,
    LogisticNoise,
    Mixed,
    Poisson,
    StochasticVolatility,
    StudentT,
    Weibull,
)
from fenchel.priors import DenseCovariance, Features, SparsePrecision

NOISES = [
    LaplaceNoise(0.4),
    LaplaceNoise(2.0, "super-gaussian"),
    *(LogisticNoise(scale, bound) for scale, bound in zip((0.3, 1.0, 2.5, 0.7), LogisticNoise.bounds, strict=True)),
    StudentT(4.0, 0.6),
    StudentT(1.5, 2.0, learn_df=True),
]
noises = pytest.mark.parametrize("likelihood", NOISES, ids=repr)
LEARNED = [Gamma(0.7), Gamma(40.0), Weibull(2.3, [1, 0, 1]), Weibull(0.4), *NOISES, StudentT(300.0, 0.5, learn_df=True)]


def law(likelihood, eta):
    """The distribution of y given eta, by scipy."""
    if isinstance(likelihood, Gamma):
        return stats.gamma(likelihood.shape, scale=np.exp(eta) / likelihood.shape)
    if isinstance(likelihood, Exponential | Weibull):
        return stats.weibull_min(likelihood.shape, scale=np.exp(-eta / likelihood.shape))
    if isinstance(likelihood, LaplaceNoise):
        return stats.laplace(eta, likelihood.scale)
    if isinstance(likelihood, LogisticNoise):
        return stats.logistic(eta, likelihood.scale)
    return stats.t(likelihood.df, eta, likelihood.scale)


def loss_of(likelihood, y, eta):
    """-log p(y|eta); scipy's Laplace underflows."""
    if isinstance(likelihood, LaplaceNoise):
        return np.abs(y - eta) / likelihood.scale + np.log(2 * likelihood.scale)
    return -law(likelihood, eta).logpdf(y)


def panels(g, cuts, window):
    """The integral of g over a window, by Gauss-Legendre between cuts."""
    edges = np.unique(np.clip([*cuts, *window], *window))
    x, w = np.polynomial.legendre.leggauss(60)
    width = np.diff(edges)[:, None]
    return float((g(edges[:-1, None] + width * (x + 1) / 2) * width * w / 2).sum())


def series(n=40, seed=0):
    """A smooth truth with a kernel matrix, a design and a chain beside it: the three kinds of priors."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 4, n)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-6 * np.eye(n)
    ends = np.r_[1.1, 2.1 * np.ones(n - 2), 1.1]
    Q = sp.diags([ends, -np.ones(n - 1), -np.ones(n - 1)], [0, 1, -1]).tocsc()
    return (
        rng,
        np.sin(2 * x),
        (
            lambda v: DenseCovariance(v * K),
            lambda v: Features(np.c_[x, x**2, x**0], v),
            lambda v: SparsePrecision(Q / v),
        ),
    )


# -- densities -------------------------------------------------------------------------------------
@pytest.mark.parametrize("likelihood", [Gamma(0.3), Gamma(12.0), Exponential(), Weibull(0.6), Weibull(5.0), *NOISES])
@given(eta=st.floats(-4, 4), q=st.floats(1e-6, 1 - 1e-6))
def test_densities_are_scipys(likelihood, eta, q):
    y = law(likelihood, eta).ppf(q)
    rows = likelihood.prepare([y])
    assert likelihood.log_density(np.array([[eta]]), rows)[0, 0] == pytest.approx(
        law(likelihood, eta).logpdf(y), abs=1e-7
    )
    if isinstance(likelihood, Exponential | Weibull):
        censored = likelihood.with_rows(event=[0])
        value = censored.log_density(np.array([[eta]]), censored.prepare([y]))[0, 0]
        assert value == pytest.approx(law(likelihood, eta).logsf(y), rel=1e-9, abs=1e-12)


# -- bounds ----------------------------------------------------------------------------------------
@given(a=st.floats(-60, 60), log_v=st.floats(-12, 9), log_b=st.floats(-3, 3))
@example(a=0.0, log_v=-12.0, log_b=0.0)
@example(a=0.0, log_v=4.0, log_b=3.0)
def test_a_folded_normal_is_the_expected_laplace_loss(a, log_v, log_b):
    """E|u| and its slopes by mpmath, at variances from 1e-12 to 1e9."""
    b, rho = 10.0**log_b, 10.0 ** (log_v + 2 * log_b)
    y, h = 0.0, a * b
    likelihood = LaplaceNoise(b)
    loss = likelihood.objective.loss(np.array([[h]]), np.array([[rho]]), likelihood.prepare([y]))
    with mpmath.workdps(40):

        def value(m, r):
            sd = mpmath.sqrt(r)
            z = m / sd
            folded = m * (1 - 2 * mpmath.ncdf(-z)) + 2 * sd * mpmath.npdf(z)
            return folded / b + mpmath.log(2 * mpmath.mpf(b))

        point = mpmath.mpf(h), mpmath.mpf(rho)
        for name, orders, factor in (
            ("value", (0, 0), 1),
            ("alpha", (1, 0), 1),
            ("lam", (0, 1), 2),
            ("hh", (2, 0), 1),
            ("hr", (1, 1), 1),
            ("rr", (0, 2), 1),
        ):
            step = mpmath.mpf(min(rho, rho**0.5)) / 10**8
            witness = value(*point) if orders == (0, 0) else mpmath.diff(value, point, orders, h=step)
            size = float(mpmath.sqrt(point[1])) ** -(orders[0] + 2 * orders[1] - 1) / b  # its largest size over h
            assert getattr(loss, name)[0] == pytest.approx(float(factor * witness), rel=1e-9, abs=1e-7 * size), name


def test_a_variance_of_zero_is_no_trouble():
    """At the kink and away from it: finite numbers, and the loss of a point."""
    for bound in LaplaceNoise.bounds:
        likelihood = LaplaceNoise(0.5, bound)
        rows = likelihood.prepare([0.0, 1.0])
        loss = likelihood.objective.loss(np.zeros((2, 1)), np.zeros((2, 1)), rows)
        for name in ("value", "alpha", "lam", "hh", "hr", "rr"):
            assert np.isfinite(getattr(loss, name)).all(), name
        np.testing.assert_allclose(loss.value, [0.0, 2.0], atol=1e-12)
        np.testing.assert_allclose(loss.alpha, [0.0, -2.0], atol=1e-12)


@noises
@given(h=st.floats(-30, 30), sd=st.floats(0.01, 30), y=st.floats(-5, 5))
def test_bounds_lie_above_the_expected_loss(likelihood, h, sd, y):
    rows, H, R = likelihood.prepare([y]), np.array([[h]]), np.array([[sd**2]])
    window = h - 12 * sd, h + 12 * sd
    cuts = [y + sign * likelihood.scale * k for k in (0, 1, 4, 16, 64, 256) for sign in (-1, 1)]
    cuts += [h + k * sd for k in range(-12, 13, 3)]
    expected = panels(lambda e: loss_of(likelihood, y, e) * stats.norm.pdf(e, h, sd), cuts, window)
    f = likelihood.objective.f(H, R, rows)[0]
    assert f >= expected - 1e-8 * (1 + abs(expected))
    assert likelihood.exact_loss(H, R, rows).value[0] == pytest.approx(expected, rel=1e-8, abs=1e-8)
    if likelihood.bound == "exact":
        assert f == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(
    "likelihood", [LaplaceNoise(0.8, "super-gaussian"), LogisticNoise(0.5, "super-gaussian"), StudentT(3.0, 1.5)]
)
def test_the_quadratic_bound_is_the_best_tangent(likelihood):
    """f = min over xi of E[psi(y + xi) + (d psi/d square)(xi) ((eta - y)^2 - xi^2)]: brute force over xi."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        h, rho, y = rng.normal() * 3, rng.gamma(1.0, 2.0), rng.normal()
        rows = likelihood.prepare([y])

        def tangent(log_xi, y=y, h=h, rho=rho):
            xi, e = np.exp(log_xi), 1e-5
            psi = lambda t: -law(likelihood, y + t).logpdf(y)
            slope = (psi(xi * (1 + e)) - psi(xi * (1 - e))) / (4 * e * xi * xi)
            return psi(xi) + slope * ((h - y) ** 2 + rho - xi * xi)

        best = optimize.minimize_scalar(tangent, bracket=(-1.0, 1.0), options={"xtol": 1e-10})
        assert likelihood.objective.f(np.array([[h]]), np.array([[rho]]), rows)[0] == pytest.approx(best.fun, abs=1e-7)


@pytest.mark.parametrize("scale", [0.05, 1.0, 7.0])
def test_bounds_of_logistic_noise_are_ordered(scale):
    rng = np.random.default_rng(1)
    h, rho = scale * 3 * rng.normal(size=(50, 1)), scale**2 * rng.gamma(1.0, 3.0, (50, 1))
    f = {}
    for bound in LogisticNoise.bounds:
        likelihood = LogisticNoise(scale, bound)
        f[bound] = likelihood.objective.f(h, rho, likelihood.prepare(rng.normal(size=50) * 0.0))
    assert (f["exact"] <= f["tilted"] + 1e-12).all()
    assert (f["exact"] <= f["super-gaussian"] + 1e-12).all()
    assert (f["tilted"] <= f["log-sum"] + 1e-12).all()


# -- parameters ------------------------------------------------------------------------------------
@pytest.mark.parametrize("likelihood", LEARNED, ids=repr)
def test_gradients_in_their_own_parameters(likelihood):
    rng = np.random.default_rng(0)
    h, rho = rng.normal(size=(3, 1)), rng.gamma(2.0, 1.0, (3, 1))
    y, weights = np.array([0.3, 1.7, 2.2]), rng.random(3) + 0.5

    def value(theta):
        other = likelihood.with_theta(theta)
        rows = other.prepare(y, weights)
        return -(rows["weight"] * other.objective.f(h, rho, rows)).sum()

    gradient = likelihood.theta_gradient(h, rho, likelihood.prepare(y, weights))
    assert likelihood.with_theta(likelihood.theta).theta == pytest.approx(likelihood.theta)
    np.testing.assert_allclose(gradient, difference(value, likelihood.theta), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("likelihood", [x for x in LEARNED if getattr(x, "event", None) is None], ids=repr)
def test_the_evidence_gradient_of_a_fit(likelihood):
    """d elbo/d theta against refits, in which the posterior moves too."""
    rng, truth, (dense, *_) = series(15)
    y = np.exp(truth) if isinstance(likelihood, Gamma | Weibull) else truth + 0.5 * rng.standard_t(4, 15)

    def elbo(theta):
        return fenchel.infer(likelihood.with_theta(theta), dense(1.0), y, tol=1e-13).elbo

    sol = fenchel.infer(likelihood, dense(1.0), y, tol=1e-13)
    np.testing.assert_allclose(
        sol.likelihood_gradient(), difference(elbo, likelihood.theta, 1e-4), rtol=2e-5, atol=2e-5
    )


@given(st.floats(0.01, 1e7))
def test_the_ratio_of_gammas(x):
    from fenchel.linalg.functions import rising

    value, first, _ = rising(np.log(x), 0.5)
    with mpmath.workdps(40):
        ratio = mpmath.loggamma(mpmath.mpf(x) + 0.5) - mpmath.loggamma(x)
        slope = mpmath.digamma(mpmath.mpf(x) + 0.5) - mpmath.digamma(x)
    assert float(value) == pytest.approx(float(ratio), rel=1e-13, abs=2e-14)
    assert float(first) / x == pytest.approx(float(slope), rel=1e-12)


# -- prediction ------------------------------------------------------------------------------------
def log_predictive(likelihood, y, h, rho):
    """log int p(y|eta) N(eta; h, rho) by mpmath, cut finely around both centres."""
    with mpmath.workdps(30):
        sd, b = mpmath.sqrt(rho), mpmath.mpf(likelihood.scale)

        def density(eta):
            u = (mpmath.mpf(y) - eta) / b
            if isinstance(likelihood, LaplaceNoise):
                p = mpmath.exp(-abs(u)) / 2
            elif isinstance(likelihood, LogisticNoise):
                p = 1 / (4 * mpmath.cosh(u / 2) ** 2)
            else:
                nu = mpmath.mpf(likelihood.df)
                p = mpmath.gamma((nu + 1) / 2) / mpmath.gamma(nu / 2) / mpmath.sqrt(nu * mpmath.pi)
                p *= (1 + u * u / nu) ** (-(nu + 1) / 2)
            return p / b * mpmath.npdf(eta, h, sd)

        steps = [mpmath.mpf(k) for k in (0, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)]
        lo, hi = min(h - 60 * sd, y - 60 * b), max(h + 60 * sd, y + 60 * b)
        centres = [(h, sd), (y, b), (h + sd * sd / b, sd), (h - sd * sd / b, sd)]  # exponential tails move the peak
        cuts = sorted({lo, hi, *(c + sign * k * w for c, w in centres for k in steps for sign in (-1, 1))})
        cuts = [c for c in cuts if lo <= c <= hi]
        return float(mpmath.log(mpmath.quad(density, cuts)))


@pytest.mark.parametrize(
    "likelihood",
    [LaplaceNoise(0.7), LogisticNoise(0.7), StudentT(1.2, 0.7), StudentT(4.0, 0.7), StudentT(90.0, 0.7)],
    ids=repr,
)
@pytest.mark.parametrize(
    ("y", "h", "rho"),
    [
        (0.3, 0.1, 0.5),
        (0.3, 0.3, 1e-8),
        (-40.0, 1.0, 2.0),
        (25.0, 0.0, 9.0),
        (30.0, 2.0, 1e4),
        (6.0, 0.0, 0.9),
        (1e5, 0.0, 1.0),
    ],
)
def test_predictive_densities_in_the_centre_and_far_out(likelihood, y, h, rho):
    ours = likelihood.predictive_log_density([y], np.array([h]), np.array([rho]))[0]
    assert ours == pytest.approx(log_predictive(likelihood, y, h, rho), rel=1e-10, abs=1e-9)


@given(nu=st.floats(0.2, 3000), d=st.floats(-1e4, 1e4), log_v=st.floats(-8, 8))
def test_student_and_normal_convolved(nu, d, log_v):
    """Against a quadrature in log w with its own variable, cut where either mode may be."""
    v = 10.0**log_v
    ours = StudentT(nu).predictive_log_density([d], np.zeros(1), np.array([v]))[0]

    def log_term(t):
        w = np.exp(t)
        return stats.gamma.logpdf(w, nu / 2, scale=2 / nu) + t + stats.norm.logpdf(d, 0.0, np.sqrt(v + 1 / w))

    grid = np.linspace(-120 / min(nu, 1.0) ** 0.5 - 40, 12, 400_001)
    with np.errstate(all="ignore"):
        term = np.nan_to_num(log_term(grid), nan=-np.inf, neginf=-np.inf)
    top = term.max()
    assert ours == pytest.approx(top + np.log(np.trapezoid(np.exp(term - top), grid)), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(
    "likelihood",
    [Gamma(3.0), Exponential(), Weibull(0.8), Weibull(3.0), LaplaceNoise(0.5), LogisticNoise(0.5), StudentT(7.0, 0.5)],
    ids=repr,
)
@pytest.mark.parametrize(("h", "rho"), [(0.3, 0.2), (-1.0, 1e-10)])
def test_predictive_moments(likelihood, h, rho):
    """By the law of total mean and variance over a fine grid of eta, with scipy's own moments."""
    eta = h + np.sqrt(rho) * stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    mean, variance = law(likelihood, eta).stats("mv")
    H, R = np.array([h]), np.array([rho])
    assert likelihood.predictive_mean(H, R)[0] == pytest.approx(mean.mean(), rel=2e-3)
    assert likelihood.predictive_variance(H, R)[0] == pytest.approx(variance.mean() + mean.var(), rel=1e-2)


@pytest.mark.parametrize("rho", [0.0, 1e-40, 1e-25, 1e-12])
def test_predictions_of_a_point(rho):
    r, h = np.full(3, rho), np.array([0.4, -7.0, 3000.0])
    for likelihood in NOISES:
        witness = -loss_of(likelihood, 0.4, h)
        ours = likelihood.predictive_log_density([0.4] * 3, h, r)
        np.testing.assert_allclose(ours, witness, rtol=1e-8, atol=1e-5)
    weibull, h = Weibull(2.0), np.array([0.4, -7.0, 3.0])
    np.testing.assert_allclose(weibull.predictive_survival(1.2, h, r), np.exp(-(1.2**2) * np.exp(h)), rtol=1e-9)
    np.testing.assert_allclose(weibull.predictive_quantile(0.3, h, r), law(weibull, h).ppf(0.3), rtol=1e-9)


def test_moments_that_do_not_exist():
    h, rho = np.zeros(1), np.ones(1)
    assert np.isinf(StudentT(1.5).predictive_variance(h, rho)[0])
    assert np.isnan(StudentT(0.9).predictive_variance(h, rho)[0])
    assert np.isnan(StudentT(0.9).predictive_mean(h, rho)[0])
    assert np.isinf(Weibull(0.01).predictive_mean(h, 1e4 * rho)[0])
    assert np.isinf(Gamma().predictive_variance(h, 1e4 * rho)[0])


@given(k=st.floats(0.2, 8), h=st.floats(-6, 6), log_rho=st.floats(-6, 4), q=st.floats(1e-4, 1 - 1e-4))
def test_survival_and_its_quantiles(k, h, log_rho, q):
    rho = 10.0**log_rho
    likelihood, H, R = Weibull(k), np.array([h]), np.array([rho])
    t = likelihood.predictive_quantile(q, H, R)[0]
    if not 1e-300 < t < 1e300:
        return
    sd, m = np.sqrt(rho), h + k * np.log(t)
    cuts = [-30.0, -8.0, -3.0, -1.0, 0.0, 1.0, 2.0, 4.0, *(m + k * sd for k in range(-12, 13, 3))]
    with np.errstate(over="ignore"):
        survival = panels(lambda x: np.exp(-np.exp(x)) * stats.norm.pdf(x, m, sd), cuts, (m - 12 * sd, m + 12 * sd))
    assert survival == pytest.approx(1 - q, abs=1e-8)
    assert likelihood.predictive_survival(t, H, R)[0] == pytest.approx(1 - q, abs=1e-9)


def test_survival_curves():
    """Shapes, ends, the density as minus the slope, and the mean as the area under the curve."""
    likelihood, h, rho = Weibull(1.7), np.array([0.2, -1.0]), np.array([0.3, 0.1])
    t = np.linspace(0, 40, 8001)
    S = likelihood.predictive_survival(t, h, rho)
    assert S.shape == (2, 8001)
    assert (S[:, 0] == 1.0).all()
    assert (np.diff(S, axis=1) <= 1e-14).all()
    np.testing.assert_allclose(integrate.simpson(S, x=t), likelihood.predictive_mean(h, rho), rtol=1e-5)
    density = np.exp(likelihood.predictive_log_density([1.0, 1.0], h, rho))
    slope = (likelihood.predictive_survival(1 - 1e-5, h, rho) - likelihood.predictive_survival(1 + 1e-5, h, rho)) / 2e-5
    np.testing.assert_allclose(slope, density, rtol=1e-7)
    both = likelihood.predictive_quantile([0.25, 0.5], h, rho)
    np.testing.assert_array_equal(both[:, 1], likelihood.predictive_quantile(0.5, h, rho))
    assert likelihood.predictive_survival(1.0, h, 0.0 * rho) == pytest.approx(np.exp(-np.exp(h)), rel=1e-12)
    censored = likelihood.with_rows(event=[0, 0]).predictive_log_density([1.0, 1.0], h, rho)
    np.testing.assert_allclose(np.exp(censored), likelihood.predictive_survival(1.0, h, rho), rtol=1e-10)


# -- fits ------------------------------------------------------------------------------------------
def test_kinship_of_exact_likelihoods():
    """One model by several names: durations are counts of events, squared returns are Gamma of shape 1/2."""
    rng, truth, (dense, *_) = series()
    prior, k = dense(2.0), 1.8
    event = (rng.random(40) < 0.6).astype(float)
    t = rng.exponential(np.exp(-truth)) ** (1 / k)
    durations = fenchel.infer(Weibull(k, event), prior, t)
    counts = fenchel.infer(Poisson(t**k), prior, event)
    shift = (event * (np.log(k) + (k - 1) * np.log(t)) - event * k * np.log(t)).sum()
    assert durations.elbo == pytest.approx(counts.elbo + shift, rel=1e-8)
    np.testing.assert_allclose(durations.posterior.mean, counts.posterior.mean, atol=1e-4)
    one = fenchel.infer(Exponential(event), prior, t)
    assert one.elbo == pytest.approx(fenchel.infer(Weibull(1.0, event), prior, t).elbo, rel=1e-12)
    mirrored = fenchel.infer(Gamma(1.0), prior, t)  # mean e^eta is hazard e^-eta
    assert mirrored.elbo == pytest.approx(fenchel.infer(Exponential(), prior, t).elbo, rel=1e-8)
    returns = rng.normal(size=40) * np.exp(truth / 2)
    volatility = fenchel.infer(StochasticVolatility(), prior, returns)
    squares = fenchel.infer(Gamma(0.5), prior, returns**2)
    assert squares.elbo == pytest.approx(volatility.elbo - np.log(np.abs(returns)).sum(), rel=1e-8)


def targets(likelihood, rng, truth):
    if isinstance(likelihood, Gamma):
        return rng.gamma(likelihood.shape, np.exp(truth) / likelihood.shape)
    if isinstance(likelihood, Exponential | Weibull):
        return rng.exponential(np.exp(-truth)) ** (1 / likelihood.shape)
    y = truth + likelihood.scale * rng.standard_t(3, truth.size)
    y[[5, 9]] += likelihood.scale * np.array([100.0, -1000.0])
    return y


@pytest.mark.parametrize("likelihood", [Gamma(0.4), Gamma(20.0), Exponential(), Weibull(3.0), *NOISES], ids=repr)
@pytest.mark.parametrize("variance", [1e-2, 1.0, 1e2, 1e4])
def test_fits_on_every_prior_with_gross_outliers(likelihood, variance):
    rng, truth, priors = series()
    y = targets(likelihood, rng, truth)
    for prior in priors:
        sol = fenchel.infer(likelihood, prior(variance), y, tol=1e-8)
        assert sol.converged, sol.status
        if likelihood.objective.log_concave:
            assert sol.gap <= 1e-8 * max(1.0, abs(sol.elbo))
        else:
            assert sol.certificate == "stationarity"
            assert np.isinf(sol.gap)


@pytest.mark.parametrize("likelihood", [Gamma(2.0), Weibull(1.5), *NOISES], ids=repr)
def test_single_rows_holes_and_weights(likelihood):
    one = fenchel.infer(likelihood, DenseCovariance([[3.0]]), [1.3])
    assert one.converged
    rng, _, (dense, *_) = series(12)
    y = np.full(12, np.nan)
    y[4] = 1.3
    sparse = fenchel.infer(likelihood, dense(3.0 / (1 + 1e-6)), y)
    assert sparse.elbo == pytest.approx(one.elbo, rel=1e-6)
    assert sparse.posterior.mean[4] == pytest.approx(one.posterior.mean[0], abs=1e-4)
    y = targets(likelihood, rng, np.sin(np.arange(12.0)))
    weights = np.r_[2.0, np.ones(9), 0.0, 1.0]
    K = dense(1.0).covariance
    keep = np.r_[0, np.arange(10), 11]
    a = fenchel.infer(likelihood, dense(1.0), y, weights=weights, tol=1e-10)
    b = fenchel.infer(likelihood, DenseCovariance(K[np.ix_(keep, keep)]), y[keep], tol=1e-10)
    assert a.elbo == pytest.approx(b.elbo, rel=1e-7)


@pytest.mark.parametrize(
    "likelihood", [LaplaceNoise(0.5), LogisticNoise(0.5), StudentT(4.0, 0.5), Weibull(2.0, [1, 0])], ids=repr
)
def test_the_best_gaussian_by_brute_force(likelihood):
    """The ELBO over all means and covariances of two latents, by a library that knows nothing of sites."""
    K, y = np.array([[2.0, 1.2], [1.2, 1.5]]), np.array([0.4, 1.6])
    sol = fenchel.infer(likelihood, DenseCovariance(K), y, tol=1e-12)
    rows = likelihood.prepare(y)

    def negative(x):
        m, L = x[:2], np.array([[np.exp(x[2]), 0.0], [x[3], np.exp(x[4])]])
        V = L @ L.T
        kl = 0.5 * (np.trace(np.linalg.solve(K, V)) - 2 + m @ np.linalg.solve(K, m))
        kl += 0.5 * (np.linalg.slogdet(K)[1] - np.linalg.slogdet(V)[1])
        return kl + likelihood.objective.f(m[:, None], np.diag(V)[:, None], rows).sum()

    best = optimize.minimize(negative, np.zeros(5), method="BFGS", options={"gtol": 1e-8})
    assert sol.elbo == pytest.approx(-best.fun, abs=1e-7)
    assert sol.gap >= -best.fun - sol.elbo - 1e-9


def test_a_student_step_never_lowers_the_bound():
    """The natural-gradient step t = 1 minimises a majoriser: reweighted least squares, written out here."""
    rng, truth, (dense, *_) = series()
    likelihood, K = StudentT(2.0, 0.2), dense(4.0).covariance
    y = targets(likelihood, rng, truth)
    rows, lam, last = likelihood.prepare(y), np.full(40, 1.0), -np.inf
    for _ in range(60):
        A = np.linalg.inv(K + np.diag(1 / lam))
        h, V = K @ A @ y, K - K @ A @ K
        kl = 0.5 * (np.trace(np.linalg.solve(K, V)) - 40 + h @ np.linalg.solve(K, h))
        kl += 0.5 * (np.linalg.slogdet(K)[1] - np.linalg.slogdet(V)[1])
        loss = likelihood.objective.loss(h[:, None], np.diag(V)[:, None], rows)
        elbo = -kl - loss.value.sum()
        assert elbo >= last - 1e-4  # rounding of the explicit inverses
        lam, last = loss.lam, elbo
    assert fenchel.infer(likelihood, dense(4.0), y).elbo >= last - 1e-3


def test_student_tends_to_gaussian_and_gives_up_outliers():
    rng, truth, (dense, *_) = series()
    y = truth + 0.3 * rng.normal(size=40)
    normal = fenchel.infer(Gaussian(0.09), dense(1.0), y)
    student = fenchel.infer(StudentT(1e7, 0.3), dense(1.0), y, tol=1e-10)
    assert student.elbo == pytest.approx(normal.elbo, abs=1e-4)
    robust = fenchel.infer(StudentT(3.0, 0.3), dense(1.0), y).posterior.mean
    y[20] += 1e4
    np.testing.assert_allclose(fenchel.infer(StudentT(3.0, 0.3), dense(1.0), y).posterior.mean, robust, atol=0.15)


@pytest.mark.parametrize(
    ("truth", "start"),
    [
        (Gamma(6.0), Gamma(1.0)),
        (Weibull(2.5), Weibull(1.0)),
        (LaplaceNoise(0.3), LaplaceNoise(2.0)),
        (LogisticNoise(0.3), LogisticNoise(2.0)),
        (LogisticNoise(0.3, "tilted"), LogisticNoise(2.0, "tilted")),
        (StudentT(4.0, 0.3, learn_df=True), StudentT(20.0, 1.0, learn_df=True)),
    ],
    ids=repr,
)
def test_planted_parameters_are_learned(truth, start):
    """Within four standard errors by the curvature of the log-likelihood at the truth, eta known."""
    rng = np.random.default_rng(4)
    X = np.c_[np.ones(500), rng.normal(size=(500, 2))]
    eta = X @ np.array([0.5, 1.0, -0.7])
    y = law(truth, eta).rvs(random_state=rng)
    found = learn(start, WeightVariances(X), y)
    assert found.solution.converged, found.status

    def loss(theta):
        other = truth.with_theta(theta)
        return -other.log_density(eta[:, None], other.prepare(y)).sum()

    slope = lambda theta: difference(loss, theta, 1e-4)
    error = np.sqrt(np.diag(np.linalg.inv(difference(slope, truth.theta, 1e-3))))
    assert (np.abs(found.likelihood.theta - truth.theta) < 4 * error).all()


def test_mixed_rows():
    _, truth, (dense, *_) = series(20)
    parts = [LaplaceNoise(0.5), Gamma(2.0), StudentT(4.0), Weibull(2.0, event=[1, 0, 1, 1, 0])]
    which = np.repeat(np.arange(4), 5)
    y = np.abs(truth) + 0.1
    sol = fenchel.infer(Mixed(parts, which), dense(1.0), y)
    assert sol.converged
    rows = Mixed(parts, which).prepare(y)
    h, rho = truth[:, None], 0.3 + 0.0 * truth[:, None]
    f = Mixed(parts, which).objective.f(h, rho, rows)
    for i, part in enumerate(parts):
        mine = which == i
        np.testing.assert_allclose(f[mine], part.objective.f(h[mine], rho[mine], part.prepare(y[mine])), rtol=1e-12)


# -- the doorbell ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "y", "sentence"),
    [
        (
            lambda: Gamma(),
            [1, 0, 2],
            r"Gamma: y\[1\] = 0 is not above 0; expected positive numbers, or NaN for unobserved\. For counts",
        ),
        (lambda: Gamma(), [1, 2, -3], r"Gamma: y\[2\] = -3 is not above 0"),
        (lambda: Gamma(-1.0), [1], r"Gamma: shape = -1 is not a positive number; expected values above 0\."),
        (lambda: Gamma([1.0, 2.0]), [1, 2], r"Gamma: shape has shape \(2,\)"),
        (lambda: Weibull(0.0), [1], r"Weibull: shape = 0 is not a positive number"),
        (
            lambda: Exponential(),
            [1, -2],
            r"Exponential: y\[1\] = -2 is a negative duration; expected times of 0 or more, or NaN",
        ),
        (
            lambda: Weibull(2.0, [1, 1]),
            [0, 1],
            r"Weibull: y\[0\] = 0 while event\[0\] = 1: an event at time 0; expected an event",
        ),
        (
            lambda: Weibull(2.0, [1, 2]),
            [1, 1],
            r"Weibull: event\[1\] = 2 is neither 0 nor 1; expected 1 where the event happened",
        ),
        (
            lambda: Weibull(2.0, [1, 0, 1]),
            [1, 1],
            r"Weibull: event has shape \(3,\); expected a number or shape \(2,\)",
        ),
        (
            lambda: Weibull(200.0),
            [1, 90],
            r"Weibull: y\[1\] = 90 to the power 200 leaves double precision; .* Divide the durations",
        ),
        (lambda: LaplaceNoise(0.0), [1], r"LaplaceNoise: scale = 0 is not a positive number"),
        (
            lambda: LogisticNoise(1.0, "bohning"),
            [1],
            r"LogisticNoise: bound = 'bohning' is not known; expected 'best' or 'exact'",
        ),
        (lambda: StudentT(-2.0), [1], r"StudentT: df = -2 is not a positive number"),
        (
            lambda: StudentT(0.5, learn_df=True),
            [1],
            r"StudentT: df = 0\.5 with learn_df=True; expected df above 1\. Learn the scale",
        ),
    ],
)
def test_refusals(make, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        make().prepare(y)


def test_refusals_of_predictions():
    h = np.zeros(1)
    with pytest.raises(ValueError, match=r"Exponential: t\[1\] = -1 is not a time; expected one time or a vector"):
        Exponential().predictive_survival([1.0, -1.0], h, h)
    with pytest.raises(ValueError, match=r"Exponential: q = 1 is no probability; expected one number"):
        Exponential().predictive_quantile(1.0, h, h)


def test_a_duration_of_zero_still_waiting_is_unobserved():
    likelihood = Weibull(2.0, event=[0, 1, 0])
    np.testing.assert_array_equal(likelihood.prepare([0.0, 1.0, 2.0])["weight"], [0.0, 1.0, 1.0])
    prior = DenseCovariance(np.eye(3) + 0.3)
    a = fenchel.infer(likelihood, prior, [0.0, 1.0, 2.0])
    b = fenchel.infer(likelihood, prior, [np.nan, 1.0, 2.0])
    assert a.elbo == b.elbo
    assert Weibull(2.0, [np.nan, 1, 0]).prepare([np.nan, 1.0, 2.0])["weight"][0] == 0.0
