"""What is proved of fits: bounds from groups and few latents, events, comparisons; against sums over all latents."""

import re
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import mpmath
import numpy as np
import pandas as pd
import pytest
from conftest import reads_repository
from scipy.interpolate import CubicSpline
from scipy.special import gammaln, logsumexp, polygamma, psi

import fenchel
from fenchel.checks import Refusal
from fenchel.corrections.collapsed import collapse
from fenchel.likelihoods import BernoulliLogit, Gamma, LaplaceNoise, Ordinal, Poisson, StochasticVolatility, StudentT
from fenchel.models.proved import _percent, extreme_average, proof_at_hand
from fenchel.models.tables import coefficient_rows, names_of
from fenchel.priors import Features
from fenchel.proofs.events import probability_bounds
from fenchel.proofs.integrands import GroupIntegrand
from fenchel.proofs.latent_integral import integrate_latents, lattice_points, lattice_sum
from fenchel.proofs.prove import integral_proof, prove

ROOT = Path(__file__).parent.parent


# -- events -------------------------------------------------------------------------------------------------
def entropy(a, b):
    a, b = mpmath.mpf(a), mpmath.mpf(b)
    first = a * mpmath.log(a / b) if a > 0 else 0
    return first + ((1 - a) * mpmath.log((1 - a) / (1 - b)) if a < 1 else 0)


def highest(a, kl):
    """The largest b with entropy(a, b) <= kl, in 60 digits."""
    low, high = mpmath.mpf(a), 1 - mpmath.mpf(10) ** -58
    if entropy(a, high) <= kl:
        return high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if entropy(a, middle) <= kl else (low, middle)
    return high


@pytest.mark.parametrize("a", [1e-12, 1e-5, 0.02, 0.5, 0.95, 1 - 1e-9])
def test_the_inverse_of_the_entropy_of_coins(a):
    with mpmath.workdps(60):
        for kl in (1e-14, 1e-8, 1e-3, 0.1, 2.0, 30.0):
            low, high = probability_bounds(a, kl)
            up, down = highest(a, kl), 1 - highest(1 - mpmath.mpf(a), kl)
            assert float(high) >= up - mpmath.mpf(2) ** -53
            assert float(low) <= down + mpmath.mpf(10) ** -57
            assert float(high) - up <= 1e-3 * (up - a) + 1e-14
            assert down - float(low) <= 1e-3 * (a - down) + 1e-14


def test_events_that_are_certain_under_q():
    low, high = probability_bounds(np.array([0.0, 1.0]), 0.1)
    np.testing.assert_allclose(low, [0.0, np.exp(-0.1)])
    np.testing.assert_allclose(high, [1.0 - np.exp(-0.1), 1.0])
    assert [float(v) for v in probability_bounds(0.3, np.inf)] == [0.0, 1.0]


# -- the sum over a lattice ---------------------------------------------------------------------------------
class LogGammas:
    """exp(a z - e^z), turned: integrals and expectations are known."""

    densities, error = 1.0, 0.0

    def __init__(self, shapes, seed=0):
        self.a = np.asarray(shapes)
        self.dimension = self.a.size
        self.turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((self.a.size, self.a.size)))[0]
        self.m, self.s = psi(self.a), np.sqrt(polygamma(1, self.a))

    def log_ratio(self, x):
        t = x @ self.turn
        z = self.m + self.s * t
        log_q = -0.5 * np.sum(t * t, axis=1) - 0.5 * self.a.size * np.log(2 * np.pi) - np.log(self.s).sum()
        return np.sum(self.a * z - np.exp(z), axis=1) - log_q

    @property
    def truth(self):
        return float(gammaln(self.a).sum())

    @property
    def kl(self):
        d = self.a.size
        elbo = np.sum(self.a * self.m - np.exp(self.m + self.s**2 / 2))
        return self.truth - (elbo + 0.5 * d * (1 + np.log(2 * np.pi)) + np.log(self.s).sum())


@pytest.mark.parametrize("shapes", [[0.7], [2.0], [1.0, 8.0], [1.5, 3.0, 20.0], [2.0, 4.0, 8.0, 50.0]])
@pytest.mark.parametrize("width", [1e-2, 1e-4])
def test_the_sum_over_a_lattice_holds_the_integral(shapes, width):
    integrand = LogGammas(shapes)
    found = integrate_latents(integrand, width, 3e6)
    assert found.lower <= integrand.truth <= found.upper
    assert found.width <= 3 * width
    assert integrand.kl - 5e-4 <= found.kl <= integrand.kl + 4 * width + 1e-5  # of q within a sphere: a little less


def test_a_coarse_lattice_states_a_larger_error():
    integrand = LogGammas([1.0, 2.0])
    for step in (3.0, 2.5, 2.0, 1.5, 1.0):
        for radius in (3.0, 4.0, 6.0):
            found = lattice_sum(integrand, step, radius)
            assert found.lower <= integrand.truth <= found.upper


@pytest.mark.parametrize("narrow", [3e2, 1e4, 1e6])
@pytest.mark.parametrize("mean", [0.01, 0.1, 0.33])
def test_a_lattice_that_is_too_coarse_says_so(narrow, mean):
    spike = SimpleNamespace(
        dimension=1, densities=1.0, error=0.0, log_ratio=lambda x: -0.5 * narrow * (x[:, 0] - mean) ** 2
    )
    found = lattice_sum(spike, 1.0, 5.0)
    assert found.lower <= -0.5 * np.log1p(narrow) - 0.5 * narrow / (narrow + 1.0) * mean**2 <= found.upper


def test_points_of_a_lattice():
    points = lattice_points(3, 0.5, 2.0, 0.5)
    every = np.array(list(product(0.5 * (np.arange(-6, 6) + 0.5), repeat=3)))
    kept = every[np.sum(every**2, axis=1) <= 4.0]
    assert sorted(map(tuple, points)) == sorted(map(tuple, kept))


# -- fits ---------------------------------------------------------------------------------------------------
def grouped_data(groups, rows, sd, seed, covariate=True):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(groups), rows)
    x = rng.standard_normal(g.size) if covariate else np.zeros(g.size)
    eta = 0.4 + 0.9 * x + sd * rng.standard_normal(groups)[g]
    y = (rng.random(g.size) < 1 / (1 + np.exp(-eta))).astype(int)
    return pd.DataFrame({"y": y, "x": x, "g": g})


class WholeIntegral:
    """Sums over even grids of every latent: u of each group given b, then b; axes of b turn with what is asked."""

    def __init__(self, fit, data):
        sol = fit.solution
        predictors = sol.posterior.predictors
        self.W, self.Q = np.asarray(predictors.W.toarray()), predictors.pattern.Q.toarray()
        self.offset, self.mu = np.asarray(predictors.offset)[:, 0], np.asarray(predictors.latent_mean())
        self.y = data.y.to_numpy()
        found = collapse(sol)
        self.own, self.rest = found._data.split.groups[:, 0], found._data.split.rest
        self.state = found._found.state
        self.log_evidence = float(logsumexp(self.log_joint(np.eye(self.rest.size))[1]))

    def log_joint(self, turn):
        """Places t along the first axis of a turned grid, and log p(y, b) cell by cell."""
        p, state, Q, rest = self.rest.size, self.state, self.Q, self.rest
        line = np.linspace(-9.0, 9.0, 61)
        t = np.stack(np.meshgrid(*[line] * p, indexing="ij"), axis=-1).reshape(-1, p)
        b = state.mean + t @ turn.T @ state.root.T
        off, P = b - self.mu[rest], Q[np.ix_(rest, rest)]
        out = -0.5 * np.sum((off @ P) * off, axis=1) + 0.5 * np.linalg.slogdet(P)[1] - 0.5 * p * np.log(2 * np.pi)
        out += p * np.log(line[1] - line[0]) + np.linalg.slogdet(state.root)[1]
        u = np.linspace(-9.0, 9.0, 121)
        for k in self.own:
            sd, rows = 1 / np.sqrt(Q[k, k]), np.flatnonzero(self.W[:, k] != 0)
            eta = (b @ self.W[np.ix_(rows, rest)].T + self.offset[rows])[:, :, None]
            eta = eta + (sd * u) * self.W[rows, k][:, None]
            log_p = -np.logaddexp(0.0, np.where(self.y[rows][:, None] == 1, -eta, eta)).sum(axis=1)
            out += logsumexp(log_p - 0.5 * u * u, axis=1) + np.log((u[1] - u[0]) / np.sqrt(2 * np.pi))
        return line, out

    def probability(self, row, offset, low, high):
        """Of a sum of the latents b in a range, by a spline through the sums over all other directions."""
        a = self.state.root.T @ row[self.rest]
        scale, centre = np.linalg.norm(a), self.state.mean @ row[self.rest] + offset
        turn = np.linalg.svd(a[None], full_matrices=True)[2].T
        turn[:, 0] *= np.sign(turn[:, 0] @ a)
        line, log_f = self.log_joint(turn)
        density = np.exp(log_f - self.log_evidence).reshape(line.size, -1).sum(axis=1) / (line[1] - line[0])
        ends = np.clip((np.array([low, high]) - centre) / scale, line[0], line[-1])
        return float(CubicSpline(line, density).integrate(*ends))


@pytest.fixture(scope="module")
def level():
    data = grouped_data(12, 4, 1.5, 3, covariate=False)
    fit = fenchel.fit("y ~ 1 + (1|g)", data, family="bernoulli", accuracy="fast")
    return fit, data, WholeIntegral(fit, data)


@pytest.fixture(scope="module")
def line():
    data = grouped_data(10, 4, 1.2, 5)
    fit = fenchel.fit("y ~ x + (1|g)", data, family="bernoulli", accuracy="fast")
    return fit, data, WholeIntegral(fit, data)


@pytest.mark.parametrize("effort", ["fast", "high"])
@pytest.mark.parametrize("name", ["level", "line"])
def test_groups_are_bounded_on_both_sides(request, name, effort):
    fit, _, truth = request.getfixturevalue(name)
    found = fit.evidence_bounds(effort)
    assert found.lower <= truth.log_evidence <= found.upper
    assert found.upper - found.lower <= 1e-3
    assert fit.elbo <= found.lower
    assert found.kl >= truth.log_evidence - fit.elbo
    assert "integrated out" in found.status


def test_level_alone_is_known_to_a_thousandth():
    data = grouped_data(200, 2, 3.0, 8, covariate=False)
    fit = fenchel.fit("y ~ 1 + (1|g)", data, family="bernoulli", accuracy="fast")
    found = fit.evidence_bounds()
    assert found.upper - found.lower <= 1e-3
    assert found.lower > fit.elbo + 1.0


def test_probabilities_of_coefficients(line):
    fit, _, truth = line
    rows = coefficient_rows(fit)
    for k, name in enumerate(names_of(fit.model)):
        row, offset = rows.design.toarray()[k], rows.offset[k]
        for low, high in ((0.0, None), (None, 0.5), (0.0, 1.0), (None, None)):
            found = fit.proved(name, low=low, high=high)
            ends = found.table.iloc[0]
            exact = truth.probability(row, offset, ends["low"], ends["high"])
            assert found.lower - 1e-6 <= exact <= found.upper + 1e-6
            assert found.lower <= found.estimate <= found.upper
            assert found.upper - found.lower <= 0.002
    assert "proved" in str(found)
    assert "at these hyperparameters" in str(found)


def test_probabilities_by_the_distance_of_q_alone(line):
    """Without integrals of events: wider, and true."""
    fit, _, truth = line
    rows = coefficient_rows(fit)
    proof = replace(prove(fit.solution), work=0.0)
    for low, high in ((0.0, np.inf), (-np.inf, 0.3), (-0.5, 1.5)):
        found = proof.event(fit.solution, rows, np.full(2, low), np.full(2, high))
        for k in range(2):
            exact = truth.probability(rows.design.toarray()[k], rows.offset[k], low, high)
            assert found.lower[k] <= exact <= found.upper[k]
            assert found.upper[k] - found.lower[k] < 0.3


def test_all_coefficients_and_rows(line):
    fit, _, truth = line
    found = fit.proved()
    assert list(found.table.index) == ["Intercept", "x"]
    assert (found.lower <= 0.95).all()
    assert (found.upper >= 0.93).all()
    new = {"x": [0.0, 2.0]}
    above = fit.proved(new, low=0.5, without="groups")
    link = fit.proved(new, low=0.0, kind="link", without="groups")
    np.testing.assert_allclose(above.lower, link.lower, atol=1e-9)
    rows = fit.predict(new, kind="link", without="groups")
    exact = truth.probability(
        truth_row(fit, 2.0), float(rows.iloc[1] - truth_row(fit, 2.0) @ latents(fit)), 0.0, np.inf
    )
    assert above.table["lower"].iloc[1] - 1e-6 <= exact <= above.table["upper"].iloc[1] + 1e-6
    of_group = fit.proved(("g", 3), low=0.0)
    assert 0.0 <= of_group.lower <= of_group.estimate <= of_group.upper <= 1.0
    with pytest.raises(ValueError, match="no coefficient 'z'"):
        fit.proved("z")
    with pytest.raises(ValueError, match="rows without low or high"):
        fit.proved(new)


def latents(fit):
    return np.asarray(fit.solution.posterior.latent_mean)


def truth_row(fit, x):
    from fenchel.models.predictions import read_rows

    return read_rows(fit, {"x": [x]}, without="groups").new.design.toarray()[0]


def test_few_coefficients_without_groups():
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(40), rng.standard_normal(40)])
    y = (rng.random(40) < 1 / (1 + np.exp(-X @ [0.5, 1.5]))).astype(float)
    for bound in ("exact", "tilted", "log-sum"):
        sol = fenchel.infer(BernoulliLogit(bound), Features(X, variance=4.0), y)
        found = integral_proof(sol, 1e-4, 1e8).bounds
        grid = np.linspace(-12.0, 12.0, 401)
        b = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
        eta = b @ X.T
        log_p = -np.logaddexp(0.0, np.where(y == 1, -eta, eta)).sum(axis=1) - np.sum(b * b, axis=1) / 8.0
        truth = logsumexp(log_p) + 2 * np.log(grid[1] - grid[0]) - np.log(2 * np.pi * 4.0)
        assert found.lower <= truth <= found.upper
        assert found.upper - found.lower < 2e-4
        assert sol.elbo <= found.lower


def test_probabilities_of_coefficients_without_groups():
    rng = np.random.default_rng(6)
    data = pd.DataFrame({"x": rng.standard_normal(30)})
    data["y"] = (rng.random(30) < 1 / (1 + np.exp(-1.5 * data.x))).astype(int)
    fit = fenchel.fit("y ~ x", data, family="bernoulli", accuracy="fast")
    predictors = fit.solution.posterior.predictors
    W, Q = np.asarray(predictors.W.toarray()), np.asarray(predictors.pattern.Q.toarray())
    rows = coefficient_rows(fit)
    found = fit.proved("x", low=0.5)
    a = rows.design.toarray()[1]
    mean, lam = np.asarray(fit.solution.posterior.latent_mean), np.asarray(fit.solution.lam)
    grid = np.linspace(-9.0, 9.0, 901)
    root = np.linalg.cholesky(np.linalg.inv(Q + W.T @ (lam * W)))
    b = mean + np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2) @ root.T
    eta = b @ W.T + np.asarray(predictors.offset)[:, 0]
    log_p = -np.logaddexp(0.0, np.where(data.y.to_numpy() == 1, -eta, eta)).sum(axis=1)
    off = b - np.asarray(predictors.latent_mean())
    share = np.exp(log_p - 0.5 * np.sum((off @ Q) * off, axis=1) - log_p.max())
    value = b @ a + rows.offset[1]
    exact = share[value > 0.5].sum() / share.sum()
    assert found.lower - 2e-3 <= exact <= found.upper + 2e-3  # cells of .02 sd are cut
    assert found.upper - found.lower < 2e-3


@pytest.mark.parametrize("likelihood", [StudentT(scale=1.0, df=4.0), LaplaceNoise(1.0)])
def test_kinks_and_tails_that_are_not_log_concave_are_bounded_by_rows(likelihood):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(30), rng.standard_normal(30)])
    y = X @ [1.0, 2.0] + rng.standard_t(3, 30)
    sol = fenchel.infer(likelihood, Features(X, variance=4.0), y)
    assert integral_proof(sol, 1e-3, 1e9) is None
    assert prove(sol).bounds.lower >= sol.elbo - 1e-6


@pytest.mark.parametrize("seed", range(15))
def test_integrals_of_hard_problems_hold_the_truth(seed):
    """One to three latents of several families, some strongly skewed, under coarse and fine lattices."""
    rng = np.random.default_rng(seed)
    kinds = (BernoulliLogit("exact"), Poisson(), StochasticVolatility(), Gamma(2.0), Ordinal([-0.5, 1.0]))
    likelihood = kinds[seed % 5]
    y = rng.integers(0, 3, 5).astype(float) if seed % 5 == 4 else likelihood.example(rng, 5)[1]
    L = 1 + seed // 5
    W = float(rng.choice([0.3, 1.0, 3.0])) * rng.standard_normal((5, L))
    sol = fenchel.infer(likelihood, Features(W, variance=1.0), y)
    grid = np.linspace(-14.0, 14.0, 141)
    sd, centre = np.sqrt(sol.posterior.latent_variance), sol.posterior.latent_mean
    b = centre + sd * np.stack(np.meshgrid(*[grid] * L, indexing="ij"), axis=-1).reshape(-1, L)
    log_p = np.asarray(likelihood.log_density(W @ b.T, likelihood.prepare(y))).sum(axis=0)
    cell = L * np.log((grid[1] - grid[0]) / np.sqrt(2 * np.pi)) + np.log(sd).sum()
    truth = logsumexp(log_p - 0.5 * np.sum(b * b, axis=1)) + cell
    for width in (0.1, 1e-3):
        found = integral_proof(sol, width, 1e7).bounds
        assert found.lower - 1e-6 <= truth <= found.upper + 1e-6


def test_integrated_fits_have_wider_bounds():
    data = grouped_data(15, 4, 1.0, 9)
    fit = fenchel.fit("y ~ x + (1|g)", data, family="bernoulli", accuracy="high")
    assert fit.integrated is not None
    found = fit.proved("x", low=0.0)
    assert found.lower <= found.estimate <= found.upper
    assert re.search(r"given the \d+ values of the hyperparameters that the integration uses", str(found))
    over = fit.evidence_bounds(at="points")
    assert over.lower <= over.upper
    assert over.lower - 0.1 <= fit.log_evidence <= over.upper + 0.1
    with pytest.raises(ValueError, match="at='mode'"):
        fenchel.fit("y ~ x + (1|g)", data, family="bernoulli", accuracy="fast").evidence_bounds(at="points")


def test_the_extreme_average_is_that_of_all_corners():
    rng = np.random.default_rng(4)
    values = rng.random((5, 3))
    low = rng.random(5)
    weights = np.column_stack([low, low + rng.random(5)])
    corners = np.array(list(product(*weights)))
    every = corners @ values / corners.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(extreme_average(values, weights, least=True), every.min(axis=0))
    np.testing.assert_allclose(extreme_average(values, weights, least=False), every.max(axis=0))


def test_a_weight_that_nothing_bounds_may_be_all_of_it():
    weights = np.array([[0.1, np.inf], [1.0, 1.0]])
    assert extreme_average(np.array([[0.0], [0.9]]), weights, least=True)[0] == pytest.approx(0.0, abs=1e-12)
    assert extreme_average(np.array([[1.0], [0.1]]), weights, least=False)[0] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("sd", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("y", [[1], [1, 0, 1]])
@pytest.mark.filterwarnings("ignore:Model")
def test_ranges_under_a_density_with_a_steep_side(sd, y):
    """Against panels in mpmath; also of ranges beyond the nodes, which hold little and not nothing."""
    data = pd.DataFrame({"y": y, "x": 1.0})
    fit = fenchel.fit("y ~ 0 + x", data, family="bernoulli", accuracy="fast", fixed_sd=sd)
    marks = [*(-(10.0 ** np.arange(2, -4, -1.0)) * sd), 0.0, *(10.0 ** np.arange(-3, 3.0) * sd)]

    def density(b):
        sides = [1 + mpmath.exp(-b if one else b) for one in y]
        return mpmath.exp(-((b / sd) ** 2) / 2) / mpmath.fprod(sides)

    def integral(low, high):
        cuts = sorted({low, high, *(float(m) for m in marks if low < m < high)})
        return mpmath.quad(density, cuts)

    whole = integral(-100.0 * sd, 100.0 * sd)
    for low, high in ((0.3, 100.0), (-0.05, 0.2), (-7.7, -7.2), (9.0, 10.0)):
        found = fit.proved("x", low=low * sd, high=high * sd)
        truth = float(integral(low * sd, high * sd) / whole)
        assert found.lower <= truth * (1.0 + 1e-12)
        assert truth <= found.upper * (1.0 + 1e-12)
        assert found.upper - found.lower < 0.02


def test_student_t_regression_ends_and_says_that_nothing_is_proved():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.standard_normal(1500)})
    data["y"] = 1.0 + 2.0 * data["x"] + rng.standard_t(3, 1500)
    fit = fenchel.fit("y ~ x", data, family="student_t", accuracy="fast")
    start = time.process_time()
    found = fit.proved("x")
    assert time.process_time() - start < 30.0
    assert (found.lower, found.upper) == (0.0, 1.0)
    assert str(found).startswith("nothing is proved of the interval of x, ")
    assert "as the evidence has no upper bound; estimated 9" in str(found)


def test_events_that_cannot_be(line):
    fit, data, _ = line
    with pytest.raises(Refusal, match="low = 1 is above high"):
        fit.proved(None, low=1.0, high=0.5)
    row = pd.DataFrame(data).iloc[:1].assign(x=np.nan)
    with pytest.raises(Refusal, match="missing in every row"):
        fit.proved(row, low=0.5)


# -- what people see ----------------------------------------------------------------------------------------
def test_the_summary_says_it(line):
    fit, _, _ = line
    first = fit.summary().splitlines()[:5]
    said = next(text for text in first if text.startswith("log evidence between"))
    low, high = map(float, re.findall(r"-\d+\.\d+", said)[:2])
    found = fit.evidence_bounds()
    assert low <= found.upper
    assert high >= found.lower
    assert "proved at these hyperparameters" in said


def test_the_summary_has_no_upper_bound_that_says_nothing(line):
    fit = fenchel.fit("y ~ x + (1|g)", line[1], family="bernoulli", accuracy="fast")
    kept = proof_at_hand(fit)
    fit.proofs["high"] = replace(kept, bounds=replace(kept.bounds, upper=0.0))
    said = next(text for text in fit.summary().splitlines() if "proved" in text)
    assert said.startswith(f"log evidence at least {kept.bounds.lower:.1f}"[:-1])
    assert "between" not in said


def test_shares_have_the_digits_that_they_need():
    assert [_percent(1.0 - 2e-8, 1), _percent(1.1e-8, -1)] == ["99.999999 %", "0.000001 %"]
    outwards = [_percent(1.0 - 5e-9, -1), _percent(5e-9, 1), _percent(1.0 - 5e-9, 1), _percent(5e-9, -1)]
    assert outwards == ["99.999999 %", "0.000001 %", "100 %", "0 %"]
    assert [_percent(1.0, -1), _percent(0.0, 1)] == ["100 %", "0 %"]
    every = [_percent(1.0 - 10.0**e, way) for e in np.linspace(-10.0, -2.0, 400) for way in (-1, 0, 1)]
    assert {text for text in every if text.startswith("100")} == {"100 %"}


def test_models_are_compared_by_proved_evidence(line):
    fit, data, _ = line
    other = fenchel.fit("y ~ 1 + (1|g)", data, family="bernoulli", accuracy="fast")
    table = fenchel.compare({"level": other, "x": fit}, by="evidence")
    best, second = (fit, other) if fit.evidence_bounds().lower > other.evidence_bounds().upper else (other, fit)
    assert table.index[0] == ("x" if best is fit else "level")
    assert table["proved"].all()
    gained = second.evidence_bounds().lower - best.evidence_bounds().upper
    assert table["log_bf_lower"].iloc[1] == pytest.approx(gained)
    assert table["estimate"].isna().all()
    assert "priors" in table.attrs["note"]
    same = fenchel.compare({"one": fit, "two": fit}, by="evidence")
    assert "note" not in same.attrs
    assert not same["proved"].any()
    with pytest.raises(ValueError, match="not of the same rows"):
        fenchel.compare({"x": fit, "less": fenchel.fit("y ~ x + (1|g)", data[4:], family="bernoulli")}, by="evidence")
    with pytest.raises(ValueError, match="by = 'bayes'"):
        fenchel.compare({"x": fit}, by="bayes")
    with pytest.raises(ValueError, match="predictions of rows"):
        fenchel.compare({"x": fit.loo()}, by="evidence")


def test_a_loose_bound_does_not_make_a_model_the_best(line):
    best = fenchel.fit("y ~ 1 + (1|g)", line[1], family="bernoulli", accuracy="fast")
    loose = line[0].corrected()
    kept = prove(loose.solution)
    assert kept.bounds.upper < best.evidence_bounds().lower
    loose.proofs["fast"] = replace(kept, bounds=replace(kept.bounds, upper=0.0))
    table = fenchel.compare({"loose": loose, "level": best}, by="evidence")
    assert list(table.index) == ["level", "loose"]
    assert not table["proved"].any()
    assert table.loc["loose", "estimate"] == loose.answers.log_evidence
    assert table.loc["loose", "log_bf_lower"] == kept.bounds.lower - table.loc["level", "upper"]


def test_wide_priors_take_evidence_from_models_with_more_coefficients():
    """Lindley's: a prior ten times as wide costs a coefficient that the data know log 10 nats."""
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(400), rng.standard_normal(400)]
    y = (rng.random(400) < 0.4).astype(float)
    narrow, wide = (
        fenchel.infer(BernoulliLogit("exact"), Features(X * [1.0, sd]), y).evidence_bounds() for sd in (5.0, 50.0)
    )
    assert wide.upper - narrow.lower == pytest.approx(-np.log(10.0), abs=0.02)


def test_an_estimate_that_bounds_exclude_is_not_trusted(line):
    fit, _, _ = line
    sol = fenchel.infer(fit.found.likelihood, fit.found.prior, fit.model.target.y)
    for found in (collapse(sol), sol.corrected()):
        assert found.trusted
    sol.proved_bounds = SimpleNamespace(lower=sol.elbo + 50.0, upper=sol.elbo + 51.0)
    for found in (collapse(sol), sol.corrected()):
        assert not found.trusted
        assert "proved to be between" in found.status


def test_nodes_of_groups_count_in_the_error(line):
    fit, _, _ = line
    found = collapse(fit.solution)
    assert 0.0 < GroupIntegrand(found).error < 1e-4
    proof = prove(fit.solution)
    assert proof.rest_kl < proof.bounds.kl
    assert proof.outside < 1e-5


@reads_repository
def test_the_page_on_proofs_runs(capsys):
    text = (ROOT / "docs" / "proofs.md").read_text()
    names = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(code, "docs/proofs.md", "exec"), names)
    out = capsys.readouterr().out
    assert "log evidence between" in out
    assert ", proved" in out
