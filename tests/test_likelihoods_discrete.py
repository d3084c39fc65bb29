"""Probit, ordered probit, negative binomial, zero-inflated and Beta targets, against witnesses that share no code."""

import mpmath
import numpy as np
import pytest
from conftest import difference
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, sparse, special, stats

import fenchel
from fenchel.likelihoods import (
    BernoulliProbit,
    Beta,
    Mixed,
    NegativeBinomial,
    OrdinalProbit,
    Poisson,
    Truncated,
    ZeroInflated,
)
from fenchel.likelihoods.base import slice_rows
from fenchel.likelihoods.beta import gamma_functions, inflections
from fenchel.likelihoods.probit import hazard, interval
from fenchel.linalg.functions import log_choose, log_rising
from fenchel.linalg.functions import rising as rising_parts
from fenchel.priors import DenseCovariance, Features, SparsePrecision

CASES = [
    (BernoulliProbit(), [0.0, 1.0, 1.0, 0.0, 1.0]),
    (OrdinalProbit([-1.0, 0.2, 1.5]), [0.0, 1.0, 2.0, 3.0, 1.0]),
    (NegativeBinomial(2.5, bound="log-sum"), [0.0, 3.0, 1.0, 20.0, 5.0]),
    (NegativeBinomial(2.5, 1.7, "tilted"), [0.0, 3.0, 1.0, 20.0, 5.0]),
    (NegativeBinomial(0.4, bound="exact"), [0.0, 3.0, 1.0, 20.0, 5.0]),
    (NegativeBinomial(60.0, bound="exact"), [0.0, 3.0, 1.0, 20.0, 5.0]),
    (ZeroInflated(Poisson(1.4), 0.3), [0.0, 2.0, 0.0, 7.0, 1.0]),
    (Beta(12.0), [0.1, 0.5, 0.93, 0.4, 0.02]),
    (Beta(0.7), [0.1, 0.5, 0.999, 0.4, 1e-5]),
]
cases = pytest.mark.parametrize(("likelihood", "y"), CASES, ids=[f"{x!r}" for x, _ in CASES])
learned = pytest.mark.parametrize(
    ("likelihood", "y"),
    [case for case in CASES if case[0].theta.size],
    ids=[f"{x!r}" for x, _ in CASES if x.theta.size],
)


def density(likelihood, y, eta):
    """log p(y | eta) from scipy.stats or from the definition."""
    if isinstance(likelihood, BernoulliProbit):
        return stats.bernoulli.logpmf(y, stats.norm.cdf(eta))
    if isinstance(likelihood, OrdinalProbit):
        edges = np.concatenate([[-np.inf], likelihood.cutpoints, [np.inf]])
        level = int(y)
        with np.errstate(divide="ignore"):  # the witness has no tails
            return np.log(stats.norm.cdf(edges[level + 1], eta) - stats.norm.cdf(edges[level], eta))
    if isinstance(likelihood, Beta):
        mu = special.expit(eta)
        return stats.beta.logpdf(y, mu * likelihood.precision, (1 - mu) * likelihood.precision)
    mean = (likelihood.exposure or 1.0) * np.exp(eta)
    if isinstance(likelihood, NegativeBinomial):
        return stats.nbinom.logpmf(y, likelihood.size, likelihood.size / (likelihood.size + mean))
    pi = likelihood.probability
    return np.where(y == 0, np.log(pi + (1 - pi) * np.exp(-mean)), np.log1p(-pi) + stats.poisson.logpmf(y, mean))


def normal_mean(g, h, rho, points=()):
    """E[g(eta)] by an adaptive rule."""
    sd = np.sqrt(rho)
    inside = [p for p in (h, *points) if abs(p - h) < 12 * sd]
    out = integrate.quad(
        lambda e: g(e) * stats.norm.pdf(e, h, sd),
        h - 12 * sd,
        h + 12 * sd,
        points=inside,
        limit=500,
        epsabs=1e-12,
        epsrel=1e-11,
    )
    return out[0]


@cases
def test_densities_are_scipys(likelihood, y):
    eta = np.linspace(-2.5, 2.5, 11)
    ours = likelihood.log_density(np.tile(eta, (len(y), 1)), likelihood.prepare(y))
    for n, target in enumerate(y):
        np.testing.assert_allclose(ours[n], density(likelihood, target, eta), rtol=1e-10, atol=1e-11)


@cases
@pytest.mark.parametrize(("h", "rho"), [(0.3, 0.2), (-1.2, 0.9), (0.8, 2.5), (-2.0, 9.0)])
def test_loss_bounds_the_expectation_and_its_slopes_are_its_own(likelihood, y, h, rho):
    rows, H, R = likelihood.prepare(y), np.full((len(y), 1), h), np.full((len(y), 1), rho)
    scale = rows.get("trials", 1.0)
    loss = likelihood.objective.loss(H, R, rows)
    for n, target in enumerate(y):
        one = slice_rows(rows, slice(n, n + 1))
        expected = normal_mean(
            lambda e, one=one: -float(likelihood.log_density(np.array([[e]]), one)[0, 0]), h, rho, (-3.0, 0.0, 3.0)
        )
        value = (scale * loss.value)[n]
        if likelihood.bound == "exact":
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9), target
        else:
            assert value >= expected - 1e-9
    step = 1e-5
    sides = [likelihood.objective.loss(H + i * step, R + j * step, rows) for i, j in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    slope_h = (sides[0].value - sides[1].value) / (2 * step)
    slope_rho = (sides[2].value - sides[3].value) / (2 * step)
    np.testing.assert_allclose(loss.alpha, slope_h, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(loss.lam, 2 * slope_rho, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(loss.hh, (sides[0].alpha - sides[1].alpha) / (2 * step), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss.hr, (sides[2].alpha - sides[3].alpha) / (2 * step), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(2 * loss.rr, (sides[2].lam - sides[3].lam) / (2 * step), rtol=1e-5, atol=1e-6)
    assert (loss.lam >= 0).all()


@cases
@pytest.mark.parametrize(("h", "rho"), [(0.4, 0.3), (-1.0, 2.0)])
def test_predictions_are_integrals_of_the_density(likelihood, y, h, rho):
    if isinstance(likelihood, Beta):
        for target in y:
            witness = normal_mean(lambda e, t=target: np.exp(density(likelihood, t, e)), h, rho)
            assert np.exp(likelihood.predictive_log_density([target], [h], [rho]))[0] == pytest.approx(
                witness, rel=1e-7
            )
        mu, phi = special.expit, likelihood.precision
        mean = normal_mean(mu, h, rho)
        square = normal_mean(lambda e: stats.beta.moment(2, mu(e) * phi, mu(-e) * phi), h, rho)
        assert likelihood.predictive_mean([h], [rho])[0] == pytest.approx(mean, rel=1e-9)
        assert likelihood.predictive_variance([h], [rho])[0] == pytest.approx(square - mean**2, rel=1e-7)
        return
    levels = {BernoulliProbit: 2, OrdinalProbit: 4}.get(type(likelihood), 3000)
    targets, one = np.arange(float(levels)), np.ones(levels)
    ours = np.exp(likelihood.predictive_log_density(targets, h * one, rho * one))
    for k in (0, 1, min(levels - 1, 9)):
        witness = normal_mean(lambda e, k=k: np.exp(density(likelihood, targets[k], e)), h, rho)
        assert ours[k] == pytest.approx(witness, rel=1e-7, abs=1e-12)
    if levels < 5:
        np.testing.assert_allclose(likelihood.predictive_probabilities([h], [rho])[0], ours, rtol=1e-12)
    heavy = rho > 1.0 and levels > 5  # counts beyond the last level
    assert ours.sum() == pytest.approx(1.0, abs=1e-3 if heavy else 1e-8)
    mean = likelihood.predictive_mean([h], [rho])[0]
    assert mean == pytest.approx(ours @ targets, rel=2e-2 if heavy else 1e-6)
    if not heavy:
        spread = ours @ (targets - mean) ** 2
        assert likelihood.predictive_variance([h], [rho])[0] == pytest.approx(spread, rel=1e-4)


@learned
def test_gradient_in_its_own_parameters(likelihood, y):
    rng = np.random.default_rng(0)
    h, rho = rng.normal(size=(len(y), 1)), rng.gamma(2.0, 1.0, (len(y), 1))
    weights = rng.random(len(y)) + 0.5

    def value(theta):
        other = likelihood.with_theta(theta)
        rows = other.prepare(y, weights)
        return -(rows["weight"] * other.objective.f(h, rho, rows)).sum()

    gradient = likelihood.theta_gradient(h, rho, likelihood.prepare(y, weights))
    np.testing.assert_allclose(gradient, difference(value, likelihood.theta, 1e-5), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(likelihood.with_theta(likelihood.theta).theta, likelihood.theta, rtol=1e-12)


@learned
def test_gradient_of_the_fitted_evidence(likelihood, y):
    x = np.linspace(0.0, 2.0, len(y))
    prior = DenseCovariance(2.0 * np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-6 * np.eye(len(y)))
    sol = fenchel.infer(likelihood, prior, y, tol=1e-13)

    def elbo(theta):
        return fenchel.infer(likelihood.with_theta(theta), prior, y, tol=1e-13).elbo

    np.testing.assert_allclose(
        sol.likelihood_gradient(), difference(elbo, likelihood.theta, 1e-4), rtol=1e-5, atol=1e-6
    )


@cases
@pytest.mark.parametrize("variance", [1e-2, 1.0, 100.0, 1e4])
def test_fits_converge_under_every_prior(likelihood, y, variance):
    rng = np.random.default_rng(1)
    n = 15
    y = np.tile(y, 3)
    x = np.linspace(0.0, 4.0, n)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-6 * np.eye(n)
    walk = sparse.diags([-1.0, 2.05, -1.0], [-1, 0, 1], shape=(n, n), format="csc")
    holes, lone = y.copy(), np.full(n, np.nan)
    holes[::4], lone[3] = np.nan, y[3]
    weights = rng.random(n) * 2
    weights[2] = 0.0
    for prior in (
        DenseCovariance(variance * K),
        Features(rng.normal(size=(n, 3)), variance),
        SparsePrecision(walk / variance),
    ):
        for target, w in ((y, None), (holes, weights), (lone, None)):
            sol = fenchel.infer(likelihood, prior, target, tol=1e-8, weights=w)
            assert sol.converged, sol.status
            assert sol.certificate == (
                "duality"
                if likelihood.objective.convex
                else "strong-concavity"
                if likelihood.objective.log_concave
                else "stationarity"
            )
            assert np.isfinite(
                sol.loo().log_density[~np.isnan(target) & (weights > 0.0 if w is not None else np.ones(n, dtype=bool))]
            ).all()


@cases
@pytest.mark.parametrize("variance", [0.5, 40.0])
def test_one_row_is_the_best_normal_found_by_hand(likelihood, y, variance):
    """-KL - f maximised over mean and variance by a library, f by the likelihood's own loss, checked above."""
    for target in y[1:4]:
        sol = fenchel.infer(likelihood, DenseCovariance([[variance]], mean=0.3), [target], tol=1e-10)
        rows = likelihood.prepare([target])

        def negative(x, rows=rows):
            m, v = x[0], np.exp(x[1])
            kl = 0.5 * (v / variance + (m - 0.3) ** 2 / variance - 1.0 - np.log(v / variance))
            value = likelihood.objective.loss(np.array([[m]]), np.array([[v]]), rows).value
            return kl + float((rows["weight"] * value)[0])

        # where another optimum may exist, the one that was found must at least be one
        at = (
            [0.0, -1.0]
            if likelihood.objective.log_concave
            else [sol.posterior.mean[0], np.log(sol.posterior.variance[0])]
        )
        options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
        best = optimize.minimize(negative, at, method="Nelder-Mead", options=options)
        assert sol.elbo == pytest.approx(-best.fun, abs=1e-7)
        grid = 0.3 + np.sqrt(variance) * np.linspace(-12.0, 12.0, 100_001)
        joint = density(likelihood, target, grid) + stats.norm.logpdf(grid, 0.3, np.sqrt(variance))
        evidence = special.logsumexp(joint[np.isfinite(joint)]) + np.log(grid[1] - grid[0])
        assert sol.elbo <= evidence + 1e-9


# -- probit ----------------------------------------------------------------------------------------
@given(st.floats(-36.0, 1e5))
def test_hazard_to_rounding(t):
    with mpmath.workdps(50):
        witness = mpmath.npdf(t) / (mpmath.erfc(mpmath.mpf(t) / mpmath.sqrt(2)) / 2)
        H, excess = hazard(np.array([t]))
        assert abs(H[0] / witness - 1) < 1e-12
        assert abs(excess[0] / (witness - t) - 1) < 1e-12


@given(st.floats(-3.0, 4.0), st.floats(-7.0, 1.7), st.booleans(), st.booleans(), st.booleans())
def test_interval_to_rounding(log_edge, log_width, negative, mirrored, open_end):
    """Phi(b) - Phi(a) from its middle to ten thousand standard deviations, from hairs to half-lines."""
    a = (-1.0 if negative else 1.0) * 10.0**log_edge
    b = np.inf if open_end else a + 10.0**log_width
    a, b = (-b, -a) if mirrored else (a, b)
    ours = [float(x[0]) for x in interval(np.array([a]), np.array([b]))]
    with mpmath.workdps(150):
        tail = lambda x: mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
        bell = lambda x: mpmath.exp(-(mpmath.mpf(x) ** 2) / 2) / mpmath.sqrt(2 * mpmath.pi) if np.isfinite(x) else 0
        times = lambda x, p: mpmath.mpf(x) * p if np.isfinite(x) else 0
        P = tail(a) - tail(b) if a > 0 else tail(-b) - tail(-a)
        lower, upper = bell(a) / P, bell(b) / P
        second = times(b, upper) - times(a, lower) + (upper - lower) ** 2
        for value, witness in zip(ours, (-mpmath.log(P), upper - lower, second, lower, upper), strict=True):
            assert abs(value - witness) <= 1e-11 * abs(witness) + 1e-100


@pytest.mark.parametrize("h", [-50.0, -1.0, 0.7, 5.0])
@pytest.mark.parametrize("rho", [1e-8, 0.2, 3.9, 17.0, 1e4])
def test_probit_expectations_against_mpmath(h, rho):
    loss = BernoulliProbit().objective.loss(np.array([[h]]), np.array([[rho]]), BernoulliProbit().prepare([1.0]))
    with mpmath.workdps(25):
        sd = mpmath.sqrt(rho)
        cdf = lambda e: mpmath.erfc(-e / mpmath.sqrt(2)) / 2
        slope = lambda e: -mpmath.npdf(e) / cdf(e)
        bend = lambda e: slope(e) * (slope(e) - e)
        cuts = [h + k * sd for k in (-16, -8, -4, -1, 0, 1, 4, 8, 16)]
        cuts = sorted({*cuts, *(mpmath.mpf(c) for c in (-8, -3, 0, 3, 8) if abs(c - h) < 16 * sd)})
        for ours, g in ((loss.value, lambda e: -mpmath.log(cdf(e))), (loss.alpha, slope), (loss.lam, bend)):
            witness = mpmath.quad(lambda e, g=g: g(e) * mpmath.npdf((e - h) / sd) / sd, cuts)
            assert ours[0] == pytest.approx(float(witness), rel=1e-10)


def test_two_ordered_levels_are_a_probit():
    rng = np.random.default_rng(0)
    y, h, rho = rng.integers(0, 2, 40).astype(float), 3 * rng.normal(size=(40, 1)), rng.gamma(1.0, 4.0, (40, 1))
    a, b = (x.objective.loss(h, rho, x.prepare(y)) for x in (BernoulliProbit(), OrdinalProbit([0.0])))
    for name in ("value", "alpha", "lam", "hr"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-12)
    p, q = (x.predictive_probabilities(h, rho) for x in (BernoulliProbit(), OrdinalProbit([0.0])))
    np.testing.assert_allclose(p, q, rtol=1e-12)


def test_ordered_levels_sum_to_one_and_their_tails_are_kept():
    likelihood = OrdinalProbit([-1.0, -0.999, 2.0])
    h, rho = np.linspace(-40.0, 40.0, 9), np.full(9, 0.5)
    np.testing.assert_allclose(likelihood.predictive_probabilities(h, rho).sum(axis=1), 1.0, rtol=1e-12)
    far = likelihood.predictive_log_density([0.0], [40.0], [0.5])[0]
    assert far == pytest.approx(stats.norm.logcdf(-41.0 / np.sqrt(1.5)), rel=1e-12)


# -- negative binomial -----------------------------------------------------------------------------
@given(st.floats(-2.0, 12.0), st.integers(0, 3000))
def test_ratios_of_gamma_functions(log_size, y):
    r = 10.0**log_size
    with mpmath.workdps(50):
        R = mpmath.mpf(r)
        rising = mpmath.loggamma(R + y) - mpmath.loggamma(R) - y * mpmath.log(R)
        slope = R * (mpmath.digamma(R + y) - mpmath.digamma(R))
    assert log_rising(r, np.array([float(y)]))[0] == pytest.approx(float(rising), rel=1e-11, abs=1e-11)
    assert rising_parts(np.log([r]), np.array([float(y)]))[1][0] == pytest.approx(float(slope), rel=1e-11, abs=1e-11)


@given(st.floats(-5.0, 9.0), st.floats(-0.5, 9.0))
def test_binomial_coefficients_to_rounding_of_their_own_size(log_size, log_count):
    r, y = 10.0**log_size, np.floor(10.0**log_count)
    with mpmath.workdps(50):
        R, Y = mpmath.mpf(r), mpmath.mpf(y)
        want = float(mpmath.loggamma(R + Y) - mpmath.loggamma(R) - mpmath.loggamma(Y + 1))
    assert log_choose(np.array([r]), np.array([y]))[0] == pytest.approx(want, rel=3e-14, abs=3e-14)


def test_counts_of_a_thousand_million_keep_the_digits_of_their_density():
    y, size = 691729596.0, 1.576926716914533
    with mpmath.workdps(50):
        Y, R, mu = mpmath.mpf(y), mpmath.mpf(size), mpmath.exp(17)
        whole = mpmath.loggamma(Y + R) - mpmath.loggamma(R) - mpmath.loggamma(Y + 1)
        want = whole + R * mpmath.log(R / (R + mu)) + Y * mpmath.log(mu / (R + mu))
    rows = [Truncated(NegativeBinomial(size)), ZeroInflated(NegativeBinomial(size), 1e-12)]
    for likelihood in rows:
        got = likelihood.log_density(np.array([[17.0]]), likelihood.prepare([y]))[0, 0]
        assert got == pytest.approx(float(want), abs=1e-8)


@pytest.mark.parametrize("bound", NegativeBinomial.bounds)
def test_a_large_size_is_a_poisson(bound):
    rng = np.random.default_rng(0)
    y, exposure = rng.poisson(4.0, 30).astype(float), rng.gamma(2.0, 1.0, 30) + 0.1
    h, rho = rng.normal(size=(30, 1)), rng.gamma(2.0, 0.3, (30, 1))
    likelihood = NegativeBinomial(1e9, exposure, bound)
    rows = likelihood.prepare(y)
    poisson = Poisson(exposure)
    np.testing.assert_allclose(
        rows["weight"] * likelihood.objective.f(h, rho, rows),
        poisson.objective.f(h, rho, poisson.prepare(y)),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        likelihood.predictive_log_density(y, h, rho), poisson.predictive_log_density(y, h, rho), rtol=1e-6
    )


@given(st.floats(-4.0, 4.0), st.floats(-3.0, 3.0), st.integers(0, 500), st.floats(-2.0, 3.0))
def test_bounds_of_the_negative_binomial_are_ordered(h, log_rho, y, log_size):
    H, R = np.array([[h]]), np.array([[10.0**log_rho]])
    value = {}
    for bound in NegativeBinomial.bounds:
        likelihood = NegativeBinomial(10.0**log_size, 0.7, bound)
        value[bound] = likelihood.objective.f(H, R, likelihood.prepare([y]))[0]
    slack = 1e-10 * (1.0 + abs(value["exact"]))
    assert value["exact"] <= value["tilted"] + slack
    assert value["tilted"] <= value["log-sum"] + slack


def test_an_exposure_is_an_offset_and_zero_is_unobserved():
    rng = np.random.default_rng(0)
    exposure, y = np.array([0.5, 0.0, 3.0, 1.0]), np.array([1.0, 0.0, 9.0, np.nan])
    K = np.cov(rng.normal(size=(4, 9)))
    for make in (lambda e: NegativeBinomial(1.3, e, "exact"), lambda e: ZeroInflated(Poisson(e), 0.2)):
        a = fenchel.infer(make(exposure), DenseCovariance(K), y, tol=1e-10)
        moved = np.where(np.isnan(y) | (exposure == 0), np.nan, y)
        shift = np.log(np.where(exposure > 0, exposure, 1.0))
        b = fenchel.infer(make(None), DenseCovariance(K, offset=shift), moved, tol=1e-10)
        assert a.elbo == pytest.approx(b.elbo, abs=1e-9)
        assert a.n_observed == 2
        assert make(None).with_rows(exposure=exposure).prepare(y)["weight"][1] == 0.0


def test_the_size_can_be_learned():
    rng = np.random.default_rng(0)
    n, size = 400, 3.0
    x = np.linspace(0.0, 20.0, n)
    prior = DenseCovariance(np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-6 * np.eye(n), mean=2.0)
    mean = np.exp(2.0 + np.sin(x))
    y = rng.negative_binomial(size, size / (size + mean)).astype(float)

    def negative(theta):
        sol = fenchel.infer(NegativeBinomial(bound="exact").with_theta(theta), prior, y)
        return -sol.elbo, -sol.likelihood_gradient()

    best = optimize.minimize(negative, [0.0], jac=True, method="L-BFGS-B")
    assert 2.0 < np.exp(best.x[0]) < 4.5


# -- zero-inflated ---------------------------------------------------------------------------------
@given(st.floats(-6.0, 6.0), st.floats(-3.0, 1.0), st.floats(1e-9, 1.0 - 1e-9))
def test_bound_of_a_zero_holds_and_adds_no_variance(h, log_rho, pi):
    likelihood, rho = ZeroInflated(Poisson(), pi), 10.0**log_rho
    loss = likelihood.objective.loss(np.array([[h]]), np.array([[rho]]), likelihood.prepare([0.0]))
    expected = normal_mean(lambda e: -np.logaddexp(np.log(pi), np.log1p(-pi) - np.exp(e)), h, rho, (-2.0, 0.0, 2.0))
    assert loss.value[0] >= expected - 1e-9
    assert loss.lam[0] >= 0.0
    assert loss.value[0] <= -np.log(pi) * (1 + 1e-12) + 1e-15  # log of a pi next to 1 is rounded
    exact = likelihood.expectations(np.array([[h]]), np.array([[rho]]), likelihood.prepare([0.0]))[0]
    assert exact[0, 0] == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_zero_inflation_vanishes_into_a_poisson_and_says_what_it_proves():
    rng = np.random.default_rng(0)
    y, K = rng.poisson(2.0, 12).astype(float), np.cov(rng.normal(size=(12, 30)))
    a = fenchel.infer(ZeroInflated(Poisson(), 1e-12), DenseCovariance(K), y, tol=1e-10)
    b = fenchel.infer(Poisson(), DenseCovariance(K), y, tol=1e-10)
    assert a.elbo == pytest.approx(b.elbo, abs=1e-7)
    assert a.gap == np.inf
    assert "another stationary point may be better" in a.status
    # wild marginals never overflow into a NaN
    wild = ZeroInflated(Poisson(), 0.4)
    loss = wild.objective.loss(np.array([[800.0], [-800.0]]), np.array([[1e4], [1e4]]), wild.prepare([0.0, 0.0]))
    assert np.isfinite([loss.value, loss.alpha, loss.lam, loss.hh]).all()


# -- Beta ------------------------------------------------------------------------------------------
@given(st.floats(0.0, 7.0))
def test_gamma_functions_are_scipys(log_z):
    z = np.array([10.0**log_z])
    for ours, theirs in zip(
        gamma_functions(z), (special.gammaln(z), special.digamma(z), special.polygamma(1, z)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=2e-13, atol=1e-14)


@given(st.floats(-1.5, 5.0), st.floats(-13.0, 13.0))
def test_psi_bends_up_between_its_inflections_and_down_beyond(log_precision, logit):
    """What the tangents rest on: one inflection a side, and a convex function above psi."""
    phi, y = 10.0**log_precision, special.expit(logit)
    likelihood = Beta(phi)
    rows = likelihood.prepare([y])
    eta = np.linspace(-28.0, 28.0, 4001)[None, :]
    second = likelihood.derivatives(eta, rows)[2]
    inside = (eta > rows["left"][0]) & (eta < rows["right"][0])
    noise = 1e-12 * (1.0 + phi)
    assert (second[inside] >= -noise).all()
    assert (second[~inside] <= noise).all()
    at, beyond = likelihood._within(eta, rows)
    psi, slope, _ = likelihood.derivatives(at, rows)
    above = psi + slope * beyond
    assert (above >= likelihood.derivatives(eta, rows)[0] - 1e-10 * (1 + phi) * (1 + abs(logit))).all()
    assert (np.diff(above, 2) >= -1e-10 * (1 + phi) * (1 + abs(logit))).all()


def test_inflections_are_roots():
    L = np.linspace(-20.0, 20.0, 41)
    for phi in (0.3, 2.0, 50.0, 1e4):
        eta = inflections(L, phi)
        found = np.isfinite(eta)
        assert (np.diff(eta[found]) > 0).all()
        x, z = phi * special.expit(eta[found]), phi * special.expit(-eta[found])
        lean = -np.tanh(eta[found] / 2)
        A = x * z / phi * (special.polygamma(1, x) + special.polygamma(1, z)) + lean * (special.psi(x) - special.psi(z))
        np.testing.assert_allclose(A / (1 + np.abs(L[found])), lean * L[found] / (1 + np.abs(L[found])), atol=1e-6)
        lowest = 2 / phi + special.psi(1.0) - special.psi(1.0 + phi)
        np.testing.assert_array_equal(found, lowest < L)


@pytest.mark.parametrize("phi", [0.4, 8.0, 3000.0])
@pytest.mark.parametrize("y", [1e-4, 0.3, 0.97])
@pytest.mark.parametrize(("h", "rho"), [(0.5, 0.6), (-4.0, 0.05), (2.0, 30.0), (1.0, 2e4)])
def test_tangent_bound_against_quadrature_of_its_definition(phi, y, h, rho):
    likelihood = Beta(phi)
    rows = likelihood.prepare([y])
    left, right = float(rows["left"][0]), float(rows["right"][0])

    def psi(e):
        mu, rest = special.expit(e), special.expit(-e)
        log_gammas = [
            special.gammaln(1 + phi * p) - np.log(phi) - special.log_expit(x) for p, x in ((mu, e), (rest, -e))
        ]
        return sum(log_gammas) - special.gammaln(phi) - (mu * phi - 1) * np.log(y) - (rest * phi - 1) * np.log1p(-y)

    def above(e):
        at = min(max(e, left), right)
        return psi(at) if at == e else psi(at) + (psi(at + 1e-5) - psi(at - 1e-5)) / 2e-5 * (e - at)

    points = [p for p in (left, right, -30.0, -9.0, 0.0, 9.0, 30.0) if np.isfinite(p)]
    value = likelihood.objective.loss(np.array([[h]]), np.array([[rho]]), rows).value[0]
    assert value == pytest.approx(normal_mean(above, h, rho, points), rel=1e-8, abs=1e-8)


def test_starts_of_a_beta_agree_within_their_certificates():
    """Not log-concave as a density, yet the fitted problem has one optimum: outliers included."""
    rng = np.random.default_rng(0)
    n = 25
    x = np.linspace(0.0, 5.0, n)
    prior = DenseCovariance(9.0 * np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-6 * np.eye(n))
    y = special.expit(2 * np.sin(2 * x) + 0.2 * rng.normal(size=n))
    y[::6] = 1.0 - y[::6]
    first = fenchel.infer(Beta(30.0), prior, y, tol=1e-10)
    for seed in range(3):
        start = np.stack([np.random.default_rng(seed).normal(size=n), np.full(n, -1.0)], axis=1)
        other = fenchel.infer(Beta(30.0), prior, y, tol=1e-10, start=start)
        assert abs(other.elbo - first.elbo) <= first.gap + other.gap + 1e-12 * abs(first.elbo)
    loose = fenchel.infer(Beta(30.0), prior, y, max_iter=2, tol=0.0)
    assert loose.elbo <= first.elbo + 1e-9 <= loose.elbo_upper + 2e-9


# -- together --------------------------------------------------------------------------------------
def test_they_mix():
    parts = [BernoulliProbit(), NegativeBinomial(2.0, bound="exact"), Beta(5.0), ZeroInflated(Poisson(), 0.2)]
    y = np.array([1.0, 4.0, 0.3, 0.0, 0.0, 2.0])
    mixed = Mixed(parts, which=[0, 1, 2, 3, 0, 3])
    rows, h, rho = mixed.prepare(y), np.linspace(-1, 1, 6)[:, None], np.full((6, 1), 0.7)
    f = rows["weight"] * mixed.objective.f(h, rho, rows)
    for n, which in enumerate([0, 1, 2, 3, 0, 3]):
        own = parts[which].prepare(y[n : n + 1])
        alone = own["weight"] * parts[which].objective.f(h[n : n + 1], rho[n : n + 1], own)
        assert f[n] == pytest.approx(alone[0], rel=1e-11)
    K = np.eye(6) + 0.3
    sol = fenchel.infer(mixed, DenseCovariance(K), y)
    assert sol.converged
    assert sol.likelihood_gradient().shape == (3,)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: BernoulliProbit("tilted"),
            r"BernoulliProbit: bound = 'tilted' is not known; expected 'best' or 'exact'",
        ),
        (lambda: BernoulliProbit().prepare([2.0]), r"y\[0\] = 2 is an unknown label; expected 0 or 1"),
        (lambda: OrdinalProbit([1.0, 0.0]), r"OrdinalProbit: cutpoints \[1.0, 0.0\] do not increase"),
        (lambda: OrdinalProbit([0.0, 1.0]).prepare([0, 3]), r"y\[1\] = 3 is an unknown label; expected 0, ..., 2"),
        (lambda: NegativeBinomial(0.0, bound="log-sum"), r"NegativeBinomial: size = 0 is not a positive number"),
        (
            lambda: NegativeBinomial([1.0, 2.0], bound="log-sum"),
            r"size has shape \(2,\); expected one number for all rows",
        ),
        (lambda: NegativeBinomial(bound="log-sum").prepare([0.5]), r"NegativeBinomial: y\[0\] = 0.5 is not a count"),
        (
            lambda: NegativeBinomial(exposure=[0.0], bound="log-sum").prepare([2.0]),
            r"exposure\[0\] = 0 while y\[0\] = 2 is a count",
        ),
        (lambda: NegativeBinomial(exposure=-1.0, bound="log-sum").prepare([2.0]), r"exposure\[0\] = -1 is not usable"),
        (lambda: ZeroInflated(Poisson(), 1.0), r"probability = 1 is not usable; expected one number in \(0, 1\)"),
        (lambda: ZeroInflated(Poisson(), 0.1).prepare([-1.0]), r"ZeroInflatedPoisson: y\[0\] = -1 is not a count"),
        (lambda: Beta().prepare([0.5, 1.0]), r"Beta: y\[1\] = 1 is exactly 0 or 1.* Move them inside"),
        (lambda: Beta().prepare([0.5, 7.0]), r"Beta: y\[1\] = 7 is not a proportion"),
        (lambda: Beta(-2.0), r"Beta: precision = -2 is not a positive number"),
        (lambda: Beta(bound="exact"), r"Beta: bound = 'exact' is not known; expected 'best' or 'tangent'"),
    ],
)
def test_errors_say_what_to_do(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
