"""The contract of a likelihood, on every one in the registry, against witnesses that share no code with it."""

import numpy as np
import pytest
from conftest import CONVEX_CASES, LIKELIHOOD_CASES, difference
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

import fenchel
from fenchel.likelihoods import (
    BernoulliLogit,
    Binomial,
    Gaussian,
    LaplaceNoise,
    Mixed,
    MultinomialLogit,
    Ordinal,
    Poisson,
    StochasticVolatility,
)
from fenchel.likelihoods.base import slice_rows
from fenchel.priors import DenseCovariance

cases = pytest.mark.parametrize(("likelihood", "y"), LIKELIHOOD_CASES)
convex_cases = pytest.mark.parametrize(("likelihood", "y"), CONVEX_CASES)
scalar_cases = pytest.mark.parametrize(
    ("likelihood", "y"), [case for case in LIKELIHOOD_CASES if case.values[0].n_predictors == 1]
)


GROWING = ("Interval", "Tweedie", "Poisson", "NegativeBinomial1")  # how names end or begin whose psi grows like e^eta


def at_random(likelihood, y, seed=0, scale=1.5):
    rng = np.random.default_rng(seed)
    rows = likelihood.prepare(y)
    n, C, P = len(y), likelihood.n_predictors, len(likelihood.objective.layout)
    return rows, scale * rng.normal(size=(n, P)), scale * rng.normal(size=(n, C)), rng.gamma(2.0, 1.0, (n, C))


def G(likelihood, s, h, rho, rows):
    """alpha h + lam rho/2 - k, from the site alone."""
    site = likelihood.objective.site(s, rows)
    return (site.alpha * h + site.lam * rho / 2).sum(axis=1) - site.k


def negative_log_density(likelihood, rows, n):
    """-log p(y_n | eta) as a function of one number."""
    row = slice_rows(rows, slice(n, n + 1))
    return lambda eta: -float(likelihood.log_density(np.array([[eta]]), row)[0, 0])


@convex_cases
def test_derivatives_of_the_site_are_those_of_its_curve(likelihood, y):
    rows, s, _, _ = at_random(likelihood, y)
    site = likelihood.objective.site(s, rows)
    for p in range(s.shape[1]):
        e = np.zeros(s.shape)
        e[:, p] = 1e-6
        up, down = likelihood.objective.site(s + e, rows), likelihood.objective.site(s - e, rows)
        d_tau = (up.tau - down.tau) / 2e-6
        J = site.spread * np.eye(s.shape[1])[p]
        if site.slack is not None:
            J = J - site.spread * site.spread[:, p : p + 1] / (site.slack + site.spread.sum(1))[:, None]
        np.testing.assert_allclose(d_tau, J, atol=1e-8, rtol=1e-6)
        np.testing.assert_allclose((up.k - down.k) / 2e-6, (s * d_tau).sum(1), atol=1e-7, rtol=1e-6)  # k' = s
        signs = np.broadcast_to(likelihood.objective.signs(rows), s.shape)
        for c in range(likelihood.n_predictors):
            own = [q for q, home in enumerate(likelihood.objective.layout) if home == c]
            d_alpha = (up.alpha - down.alpha)[:, c] / 2e-6
            d_lam = (up.lam - down.lam)[:, c] / 2e-6
            np.testing.assert_allclose(d_alpha, (signs * d_tau)[:, own].sum(1), atol=1e-7, rtol=1e-6)
            np.testing.assert_allclose(d_lam, (site.lam_slope * d_tau)[:, own].sum(1), atol=1e-7, rtol=1e-6)
        bend = (up.lam_slope - down.lam_slope) / 2e-6
        np.testing.assert_allclose(bend, site.lam_curvature * d_tau, atol=1e-7, rtol=1e-6)
    assert (site.lam >= 0).all()
    assert (site.lam_curvature <= 0).all()


@convex_cases
def test_coordinate_inverts_tau(likelihood, y):
    rows, s, _, _ = at_random(likelihood, y)
    site = likelihood.objective.site(s, rows)
    back = likelihood.objective.coordinate(site.tau, rows)
    np.testing.assert_allclose(likelihood.objective.site(back, rows).tau, site.tau, rtol=1e-10, atol=1e-14)


@convex_cases
def test_f_is_the_brute_force_maximum(likelihood, y):
    """The conjugate against a maximisation by a library that knows nothing of it."""
    rows, s, h, rho = at_random(likelihood, y)
    f = likelihood.objective.f(h, rho, rows) - likelihood.constant(rows)
    for n in range(4):
        one = slice_rows(rows, slice(n, n + 1))
        hn, rn = h[n : n + 1], rho[n : n + 1]
        best = optimize.minimize(
            lambda x, one=one, hn=hn, rn=rn: -G(likelihood, x[None, :], hn, rn, one)[0],
            s[n],
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20000, "maxfev": 20000},
        )
        assert f[n] == pytest.approx(-best.fun, abs=1e-7)


@convex_cases
def test_the_gap_is_what_is_missing(likelihood, y):
    rows, s, h, rho = at_random(likelihood, y)
    f = likelihood.objective.f(h, rho, rows)
    gap = likelihood.objective.gap(s, h, rho, rows)
    assert (gap >= 0).all()
    np.testing.assert_allclose(
        gap, f - likelihood.constant(rows) - G(likelihood, s, h, rho, rows), atol=1e-9, rtol=1e-9
    )
    at_best = likelihood.objective.maximiser(h, rho, s, rows)
    np.testing.assert_allclose(likelihood.objective.gap(at_best, h, rho, rows), 0.0, atol=1e-20)


@convex_cases
def test_a_cheap_bound_on_the_gap_is_above_it(likelihood, y):
    for seed, scale in enumerate((0.1, 1.5, 20.0)):
        rows, s, h, rho = at_random(likelihood, y, seed, scale)
        g = s - likelihood.objective.seen_from(h, rho, likelihood.objective.site(s, rows).lam_slope, rows)
        bound = likelihood.objective.gap_bound(g, rho, rows)
        if bound is not None:
            assert (bound >= likelihood.objective.gap(s, h, rho, rows) * (1 - 1e-9)).all()


@cases
def test_f_bounds_the_expected_loss(likelihood, y):
    rows, _, h, rho = at_random(likelihood, y)
    f = likelihood.objective.f(h, rho, rows)
    if likelihood.n_predictors > 1:
        draws = np.random.default_rng(1).normal(size=(40000, likelihood.n_predictors))
        for n in range(3):
            eta = (h[n] + np.sqrt(rho[n]) * draws).T[None]
            loss = -likelihood.log_density(eta, slice_rows(rows, slice(n, n + 1)))[0]
            assert f[n] >= loss.mean() - 4 * loss.std() / np.sqrt(loss.size)
        return
    for n in range(len(y)):
        psi = negative_log_density(likelihood, rows, n)
        sd = np.sqrt(rho[n, 0])
        scale = rows["trials"][n] if "trials" in rows else 1.0
        expected = integrate.quad(
            lambda e, psi=psi, n=n, sd=sd: psi(e) * stats.norm.pdf(e, h[n, 0], sd),
            h[n, 0] - 9 * sd,
            h[n, 0] + 9 * sd,
            limit=200,
        )[0]
        assert scale * f[n] >= expected - 1e-7
        if likelihood.bound in ("none", "exact") and not isinstance(likelihood, Mixed):
            assert scale * f[n] == pytest.approx(expected, rel=1e-6, abs=1e-6)


@scalar_cases
def test_the_loss_has_the_slopes_it_says(likelihood, y):
    """alpha, lam and the curvature against differences of f, which the tests above hold against quadrature."""
    rows, _, h, rho = at_random(likelihood, y)
    loss = likelihood.objective.loss(h, rho, rows)
    np.testing.assert_allclose(loss.value, likelihood.objective.f(h, rho, rows), rtol=1e-12, atol=1e-12)

    def slope(read, dh, drho, step=1e-5):
        up, down = (likelihood.objective.loss(h + e * dh, rho + e * drho, rows) for e in (step, -step))
        return (read(up) - read(down)) / (2 * step)

    close = {"rtol": 2e-6, "atol": 2e-7}
    np.testing.assert_allclose(loss.alpha, slope(lambda x: x.value, 1, 0), **close)
    np.testing.assert_allclose(loss.lam, 2 * slope(lambda x: x.value, 0, 1), **close)
    np.testing.assert_allclose(loss.hh, slope(lambda x: x.alpha, 1, 0), **close)
    np.testing.assert_allclose(loss.hr, slope(lambda x: x.alpha, 0, 1), **close)
    np.testing.assert_allclose(loss.hr, slope(lambda x: x.lam, 1, 0) / 2, **close)
    np.testing.assert_allclose(loss.rr, slope(lambda x: x.lam, 0, 1) / 2, **close)
    assert (loss.lam >= 0).all()


@scalar_cases
@given(st.integers(0, 10_000))
def test_f_is_convex_in_mean_and_standard_deviation(likelihood, y, seed):
    """What the strong-concavity certificate rests on: convex in (m, chol V), which (h, sd) are images of."""
    if not likelihood.objective.log_concave:
        return
    rows, _, h, rho = at_random(likelihood, y, seed, scale=3.0)
    _, _, h2, rho2 = at_random(likelihood, y, seed + 1, scale=3.0)
    middle = likelihood.objective.f((h + h2) / 2, ((rho**0.5 + rho2**0.5) / 2) ** 2, rows)
    ends = (likelihood.objective.f(h, rho, rows) + likelihood.objective.f(h2, rho2, rows)) / 2
    assert (middle <= ends + 1e-9 * (1 + np.abs(ends))).all()


@convex_cases
@given(st.integers(0, 10_000))
def test_f_is_convex(likelihood, y, seed):
    rows, _, h, rho = at_random(likelihood, y, seed, scale=3.0)
    _, _, h2, rho2 = at_random(likelihood, y, seed + 1, scale=3.0)
    middle = likelihood.objective.f((h + h2) / 2, (rho + rho2) / 2, rows)
    ends = (likelihood.objective.f(h, rho, rows) + likelihood.objective.f(h2, rho2, rows)) / 2
    assert (middle <= ends + 1e-9 * (1 + np.abs(ends))).all()


@convex_cases
def test_gap_keeps_its_digits_when_tiny(likelihood, y):
    """Near the optimum the gap is quadratic in the distance: no cancellation down to 1e-20."""
    rows, s, h, rho = at_random(likelihood, y)
    best = likelihood.objective.maximiser(h, rho, s, rows)
    direction = np.random.default_rng(3).normal(size=s.shape)
    coarse = likelihood.objective.gap(best + 1e-4 * direction, h, rho, rows)
    fine = likelihood.objective.gap(best + 1e-6 * direction, h, rho, rows)
    live = coarse > 0
    np.testing.assert_allclose(fine[live], 1e-4 * coarse[live], rtol=2e-3)


@pytest.mark.parametrize(("h", "rho"), [(0.3, 0.5), (-2.0, 9.0), (40.0, 3.0), (-300.0, 1e4), (5.0, 1e-8)])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_tables_of_the_paper(h, rho, y):
    """f as the paper's table prints it, computed here a second time."""
    H, R, one = np.array([[h]]), np.array([[rho]]), np.ones(1)
    log_sum = -y * h + np.logaddexp(0, h + rho / 2)
    assert BernoulliLogit("log-sum").objective.f(H, R, BernoulliLogit("log-sum").prepare(y * one))[0] == pytest.approx(
        log_sum, rel=1e-12
    )
    tilt = optimize.minimize_scalar(
        lambda a: a * a * rho / 2 + np.logaddexp(0, h + (1 - 2 * a) * rho / 2),
        bounds=(0, 1),
        method="bounded",
        options={"xatol": 1e-12},
    )
    tilted = BernoulliLogit("tilted").objective.f(H, R, BernoulliLogit("log-sum").prepare(y * one))[0]
    assert tilted == pytest.approx(-y * h + tilt.fun, rel=1e-9, abs=1e-9)
    assert tilted <= log_sum + 1e-12 * abs(log_sum)
    if abs(h) < 10:
        assert Poisson().objective.f(H, R, Poisson().prepare(y * one))[0] == pytest.approx(
            -y * h + np.exp(h + rho / 2), rel=1e-12
        )
        sv = h / 2 + y * y / 2 * np.exp(-h + rho / 2) + np.log(2 * np.pi) / 2
        assert StochasticVolatility().objective.f(H, R, StochasticVolatility().prepare(y * one))[0] == pytest.approx(
            sv, rel=1e-12
        )


@pytest.mark.parametrize("reference", ["last", None])
def test_softmax_table(reference):
    rng = np.random.default_rng(0)
    log_sum, tilted = (MultinomialLogit(4, reference, bound) for bound in ("log-sum", "tilted"))
    y = np.array([0.0, 1.0, 2.0, 3.0])
    rows, C = log_sum.prepare(y), log_sum.n_predictors
    h, rho = rng.normal(size=(4, C)) * 3, rng.gamma(2.0, 2.0, (4, C))
    full = np.column_stack([h + rho / 2, np.zeros(4)]) if reference else h + rho / 2
    centre = np.column_stack([h, np.zeros(4)]) if reference else h
    expected = np.log(np.exp(full).sum(1)) - centre[np.arange(4), y.astype(int)]
    np.testing.assert_allclose(log_sum.objective.f(h, rho, rows), expected, rtol=1e-12)
    spread = np.column_stack([rho, np.zeros(4)]) if reference else rho

    def tilt(a, n):
        inner = centre[n] + (1 - 2 * a) * spread[n] / 2
        return np.log(np.exp(inner).sum()) + (a * a * spread[n]).sum() / 2 - centre[n, int(y[n])]

    value = tilted.objective.f(h, rho, rows)
    for n in range(4):
        best = optimize.minimize(tilt, np.full(4, 0.25), args=(n,), method="BFGS", options={"gtol": 1e-9})
        assert value[n] == pytest.approx(best.fun, abs=1e-8)
    assert (value <= log_sum.objective.f(h, rho, rows)).all()


def test_ordinal_sums_to_one_and_is_the_difference_of_logistics():
    likelihood = Ordinal([-1.0, 0.5, 2.0], bound="log-sum")
    eta = np.linspace(-30, 30, 13)[None, :]
    p = np.stack([np.exp(likelihood.log_density(eta, likelihood.prepare([k]))[0]) for k in range(4)])
    np.testing.assert_allclose(p.sum(0), 1.0, atol=1e-12)
    cdf = 1 / (1 + np.exp(-(np.array([-1.0, 0.5, 2.0])[:, None] - eta)))
    np.testing.assert_allclose(p[1], cdf[1] - cdf[0], atol=1e-14)


@scalar_cases
@pytest.mark.parametrize(("h", "rho"), [(0.4, 0.7), (-1.5, 25.0), (3.0, 1e-6), (2.0, 900.0)])
def test_expectations_against_scipy(likelihood, y, h, rho):
    grows = likelihood.name.startswith(GROWING) or likelihood.name.endswith(GROWING)
    if rho > 30 and (likelihood.bound in ("none", "mixture") or grows):
        rho = 9.0  # exp(rho/2) overflows the witness, not us
    rows, sd = likelihood.prepare(y), np.sqrt(rho)
    H, R = np.full((len(y), 1), h), np.full((len(y), 1), rho)
    value = [v[:, 0] for v in likelihood.expectations(H, R, rows)]
    for n in range(0, len(y), 4):
        one = slice_rows(rows, slice(n, n + 1))
        for j in range(2 if isinstance(likelihood, LaplaceNoise) else 3):  # psi'' of |u| is a point mass
            witness = integrate.quad(
                lambda e, one=one, j=j: (
                    float(likelihood.derivatives(np.array([[e]]), one)[j][0, 0]) * stats.norm.pdf(e, h, sd)
                ),
                h - 14 * sd,
                h + 14 * sd,
                points=[x for x in (h, -8.0, 0.0, 8.0) if h - 14 * sd < x < h + 14 * sd],
                limit=400,
                epsabs=1e-12,
                epsrel=1e-11,
            )[0]
            assert value[j][n] == pytest.approx(witness, rel=1e-8, abs=1e-8)


@scalar_cases
def test_derivatives_of_the_density(likelihood, y):
    rows, eta = likelihood.prepare(y), np.linspace(-2, 2, 5)[None, :] * np.ones((len(y), 1))
    psi, first, second = likelihood.derivatives(eta, rows)
    scale = rows["trials"][:, None] if "trials" in rows else 1.0
    np.testing.assert_allclose(scale * psi, -likelihood.log_density(eta, rows), rtol=1e-12, atol=1e-12)
    up, down = likelihood.derivatives(eta + 1e-6, rows), likelihood.derivatives(eta - 1e-6, rows)
    np.testing.assert_allclose(first, (up[0] - down[0]) / 2e-6, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(second, (up[1] - down[1]) / 2e-6, rtol=1e-6, atol=1e-7)


@scalar_cases
@pytest.mark.parametrize(("h", "rho"), [(0.3, 0.6), (-3.0, 16.0), (1.0, 1e-9), (-12.0, 2.0)])
def test_predictive_density_against_scipy(likelihood, y, h, rho):
    rows, sd = likelihood.prepare(y), np.sqrt(rho)
    value = likelihood.predictive_log_density(y, np.full(len(y), h), np.full(len(y), rho))
    for n in range(0, len(y), 3):
        psi = negative_log_density(likelihood, rows, n)
        grid = np.linspace(h - 12 * sd, h + 12 * sd, 4001)
        if isinstance(likelihood, LaplaceNoise):  # Simpson's rule wants the kink at an end of its panels
            step = (grid[1] - grid[0]) * 2
            grid = grid + (y[n] - grid[0]) % step
        if rho < 1e-6:
            assert value[n] == pytest.approx(-psi(h), abs=1e-6)
            continue
        row = slice_rows(rows, slice(n, n + 1))
        log_joint = np.asarray(likelihood.log_density(grid[None, :], row))[0] + stats.norm.logpdf(grid, h, sd)
        if np.argmax(log_joint) > 3900:  # the mass lies beyond the witness's window
            continue
        top = log_joint.max()
        witness = top + np.log(integrate.simpson(np.exp(log_joint - top), x=grid))
        assert value[n] == pytest.approx(witness, abs=1e-6)


def test_predictive_density_far_in_the_tail():
    """log E[sigmoid] of N(-1000, 1): exp(-1000 + 1/2), no underflow."""
    value = BernoulliLogit("log-sum").predictive_log_density([1.0], np.array([-1000.0]), np.array([1.0]))
    assert value[0] == pytest.approx(-999.5, abs=1e-9)


@pytest.mark.parametrize("rho", [1e-12, 0.5, 30.0, 1e4])
def test_predictive_moments(rho):
    """Means and variances from their own densities: sums over counts, quadrature over reals, frequencies of draws."""
    h, r = np.array([0.4]), np.array([rho])
    p = BernoulliLogit("log-sum").predictive_probabilities(h, r)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    eta = stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000) * np.sqrt(rho) + 0.4
    sigmoid = 1 / (1 + np.exp(-eta))
    assert BernoulliLogit("log-sum").predictive_mean(h, r)[0] == pytest.approx(sigmoid.mean(), abs=2e-5)
    binomial = Binomial(7, bound="log-sum")
    assert binomial.predictive_mean(h, r)[0] == pytest.approx(7 * sigmoid.mean(), abs=2e-4)
    total = 7 * (sigmoid * (1 - sigmoid)).mean() + 49 * sigmoid.var()
    assert binomial.predictive_variance(h, r)[0] == pytest.approx(total, abs=1e-3)
    ordinal = Ordinal([-1.0, 1.0], bound="log-sum")
    q = ordinal.predictive_probabilities(h, r)[0]
    assert q.sum() == pytest.approx(1.0)
    assert ordinal.predictive_mean(h, r)[0] == pytest.approx(q @ [0, 1, 2])
    assert np.exp(ordinal.predictive_log_density([1.0], h, r))[0] == pytest.approx(q[1], rel=1e-8)
    if rho < 1:
        counts = np.arange(400)
        poisson = Poisson(2.0)
        mass = np.exp(Poisson(2.0).predictive_log_density(counts, np.full(400, 0.4), np.full(400, rho)))
        assert mass.sum() == pytest.approx(1.0, abs=1e-6)
        mean = poisson.predictive_mean(h, r)[0]
        assert mean == pytest.approx(counts @ mass, rel=1e-5)
        assert poisson.predictive_variance(h, r)[0] == pytest.approx((counts - mean) ** 2 @ mass, rel=1e-4)


def test_softmax_probabilities_are_seeded_and_right():
    likelihood = MultinomialLogit(3, None, bound="log-sum")
    h, rho = np.array([[0.5, -1.0, 0.0]]), np.array([[2.0, 0.5, 1.0]])
    a, b = (likelihood.predictive_probabilities(h, rho, rng=seed) for seed in (1, 1))
    np.testing.assert_array_equal(a, b)
    eta = h + np.sqrt(rho) * np.random.default_rng(9).normal(size=(400_000, 3))
    e = np.exp(eta)
    np.testing.assert_allclose(a[0], (e / e.sum(1, keepdims=True)).mean(0), atol=0.01)
    assert a.sum() == pytest.approx(1.0)
    two = MultinomialLogit(2, bound="log-sum")
    binary = BernoulliLogit("log-sum").predictive_probabilities(np.array([0.7]), np.array([2.0]))[0]
    np.testing.assert_allclose(
        two.predictive_probabilities(np.array([[-0.7]]), np.array([[2.0]]))[0], binary, atol=0.01
    )


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Gaussian(0.7), [0.3, -1.0, 2.0]),
        (Ordinal([-1.0, 0.2, 1.5], bound="log-sum"), [0, 1, 2, 3, 1]),
        (Ordinal([-1.0, 0.2], "tilted"), [0, 1, 2]),
        (Ordinal([-1.0, 0.2], "exact"), [0, 1, 2]),
    ],
)
def test_gradient_in_the_likelihoods_own_parameters(likelihood, y):
    rng = np.random.default_rng(0)
    h, rho = rng.normal(size=(len(y), 1)), rng.gamma(2.0, 1.0, (len(y), 1))
    weights = rng.random(len(y)) + 0.5

    def value(theta):
        other = likelihood.with_theta(theta)
        rows = other.prepare(y, weights)
        return -(rows["weight"] * other.objective.f(h, rho, rows)).sum()

    gradient = likelihood.theta_gradient(h, rho, likelihood.prepare(y, weights))
    np.testing.assert_allclose(gradient, difference(value, likelihood.theta), rtol=1e-6, atol=1e-7)
    mixed = Mixed([likelihood, Poisson()], which=[0] * len(y) + [1])
    rows = mixed.prepare(np.append(y, 4.0), np.append(weights, 1.0))
    tall = np.vstack([h, [[0.1]]]), np.vstack([rho, [[1.0]]])
    np.testing.assert_allclose(mixed.theta_gradient(*tall, rows), gradient, rtol=1e-12)


def test_binomial_is_a_sum_of_bernoullis():
    h, rho = np.array([[0.3]]), np.array([[1.2]])
    for bound in Binomial.bounds:
        binomial = Binomial(5, bound)
        rows = binomial.prepare([2.0])
        value = rows["weight"] * binomial.objective.f(h, rho, rows)
        bernoulli = BernoulliLogit(bound)
        zero, one = (bernoulli.objective.f(h, rho, bernoulli.prepare([k]))[0] for k in (0.0, 1.0))
        assert value[0] == pytest.approx(2 * one + 3 * zero - np.log(10), rel=1e-12)


def test_mixed_rows_are_their_parts():
    parts = [Poisson(2.0), BernoulliLogit("tilted"), StochasticVolatility(), MultinomialLogit(3, bound="log-sum")]
    which = np.array([0, 1, 2, 3, 1])
    mixed = Mixed(parts, which)
    y = np.array([3.0, 1.0, 0.0, 2.0, 0.0])
    rows = mixed.prepare(y)
    rng = np.random.default_rng(0)
    h, rho = rng.normal(size=(5, 2)), rng.gamma(2.0, 1.0, (5, 2))
    f = mixed.objective.f(h, rho, rows)
    for n in range(5):
        part = parts[which[n]]
        C = part.n_predictors
        own = part.objective.f(h[n : n + 1, :C], rho[n : n + 1, :C], part.prepare(y[n : n + 1]))
        assert f[n] == pytest.approx(own[0], rel=1e-12)
    np.testing.assert_array_equal(mixed.objective.is_flat(rows), [False, False, True, False, False])


def test_weights_scale_everything_and_zero_is_unobserved():
    likelihood = Poisson()
    rows = likelihood.prepare([1.0, np.nan, 3.0], weights=[2.0, 5.0, 0.0])
    np.testing.assert_array_equal(rows["weight"], [2.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("y", "h", "rho"), [(1000.0, -50.0, 1.0), (3.0, 5.0, 0.02), (0.0, 30.0, 400.0), (7.0, 0.0, 1e4)]
)
def test_predictive_density_where_prior_and_likelihood_hardly_meet(y, h, rho):
    import mpmath

    with mpmath.workdps(40):

        def log_joint(e):
            e = mpmath.mpf(e)
            return (
                y * e
                - mpmath.exp(e)
                - mpmath.loggamma(y + 1)
                - (e - h) ** 2 / (2 * rho)
                - mpmath.log(2 * mpmath.pi * rho) / 2
            )

        peak = max(np.linspace(-200, 60, 5201), key=lambda e: float(log_joint(float(e))))
        sd = float(min(np.sqrt(rho), 8.0))
        cuts = [peak + k * sd for k in (-300 / sd, -60, -20, -8, -3, -1, 0, 1, 3, 8, 20)]
        total = mpmath.quad(lambda e: mpmath.exp(log_joint(e) - log_joint(peak)), cuts)
        witness = float(mpmath.log(total) + log_joint(peak))
    ours = Poisson().predictive_log_density([y], np.array([h]), np.array([rho]))[0]
    assert ours == pytest.approx(witness, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("rho", [1.0, 500.0, 1e4])
def test_predictive_density_of_a_zero_return(rho):
    """E[exp(-eta/2)] has a closed form, far outside the posterior when rho is large."""
    ours = StochasticVolatility().predictive_log_density([0.0], np.array([0.3]), np.array([rho]))[0]
    assert ours == pytest.approx(-0.5 * np.log(2 * np.pi) - 0.15 + rho / 8, rel=1e-10)


def test_predictive_variances_are_never_negative():
    h, rho = np.array([40.0, -40.0, 0.0]), np.ones(3)
    assert (BernoulliLogit("log-sum").predictive_variance(h, rho) > 0).all()
    assert (Binomial(10, bound="log-sum").predictive_variance(h, rho) > 0).all()


@pytest.mark.parametrize(
    "likelihood",
    [
        Poisson(),
        Gaussian(1.0),
        StochasticVolatility(),
        BernoulliLogit("log-sum"),
        Binomial(3, bound="log-sum"),
        Ordinal([0.0], bound="log-sum"),
    ],
)
def test_predictions_take_lists_and_columns(likelihood):
    flat, column, listed = (
        likelihood.predictive_variance(h, r)
        for h, r in ((np.zeros(3), np.ones(3)), (np.zeros((3, 1)), np.ones((3, 1))), ([0.0] * 3, [1.0] * 3))
    )
    assert flat.shape == column.shape == listed.shape == (3,)
    np.testing.assert_array_equal(flat, column)
    assert likelihood.predictive_log_density([0.0] * 3, np.zeros((3, 1)), np.ones((3, 1))).shape == (3,)


def test_mixed_may_name_one_part_twice_and_refuses_vector_means():
    part = Poisson()
    twice = Mixed([part, part], which=[0, 1, 0])
    rows = twice.prepare([1.0, 2.0, 3.0])
    h, rho = np.array([[0.1], [0.5], [0.9]]), np.ones((3, 1))
    alone = part.expectations(h, rho, part.prepare([1.0, 2.0, 3.0]))
    for ours, theirs in zip(twice.expectations(h, rho, rows), alone, strict=True):
        np.testing.assert_allclose(ours, theirs)
    mixed = Mixed([Poisson(), MultinomialLogit(3, bound="log-sum")], which=[0, 1])
    with pytest.raises(ValueError, match="is a vector of probabilities"):
        mixed.predictive_mean(np.zeros((2, 2)), np.ones((2, 2)))


@pytest.mark.parametrize("offset", [0.0, 1e4, 2_460_000.0, 1e9])
def test_gaussian_evidence_of_targets_far_from_zero(offset):
    """Julian days, years, counters: nothing of the size of y^2 may enter the sum."""
    x = np.linspace(0, 6, 60)
    K = np.exp(-0.5 * (x[:, None] - x[None]) ** 2)
    y = np.sin(x) + 0.1 * np.random.default_rng(0).normal(size=60)
    truth = stats.multivariate_normal(np.zeros(60), K + 0.01 * np.eye(60)).logpdf(y)
    sol = fenchel.infer(Gaussian(0.01), DenseCovariance(K, mean=offset), y + offset)
    assert sol.elbo == pytest.approx(truth, abs=1e-8 * max(1.0, offset) ** 0.5)


def test_missing_booleans_of_pandas_are_unobserved():
    pandas = pytest.importorskip("pandas")
    y = pandas.Series([pandas.NA, True, False], dtype="boolean")
    np.testing.assert_array_equal(BernoulliLogit("log-sum").prepare(y)["weight"], [0.0, 1.0, 1.0])
