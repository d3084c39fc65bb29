"""Bounds of the evidence on both sides: true for every likelihood, every prior and every Gaussian q.

The witness is a tensor of even grids over the latents, wide enough that the integrand is dead on every face.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import LIKELIHOODS
from scipy.special import gammaln

import fenchel
from fenchel.likelihoods import (
    BernoulliLogit,
    BernoulliProbit,
    BetaBinomial,
    Gaussian,
    MultinomialLogit,
    Poisson,
    StochasticVolatility,
    StudentT,
)
from fenchel.primal import PrimalPoint
from fenchel.priors import DenseCovariance, Features, SparsePrecision
from fenchel.priors.batched import BatchedFeatures
from fenchel.problem import Problem
from fenchel.proofs import EvidenceBounds, rounded_range
from fenchel.proofs.hermite_rule import NODES, hermite_sums
from fenchel.proofs.panel_integral import graded_edges, panel_integrals
from fenchel.proofs.prove import integral_proof
from fenchel.solvers.base import Outcome
from fenchel.solvers.solution import Solution

KINDS = [cls for cls in LIKELIHOODS if cls is not MultinomialLogit]
SIZES = {1: 4001, 2: 401, 3: 97}  # points in a direction of the finest grid of the witness


def log_evidence(likelihood, y, W, offset=0.0, weights=None):
    """log of the integral of N(z; 0, I) prod p(y | W z + offset), and how far every other point is from it."""
    L, rows = W.shape[1], likelihood.prepare(y, weights)
    own = likelihood.prepare(y)["weight"]
    times = np.where(rows["weight"] > 0, rows["weight"] / np.where(own > 0, own, 1.0), 0.0)
    few = {key: np.asarray(value) for key, value in rows.items()}

    def log_joint(axes):
        z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, L)
        out = -0.5 * np.sum(z * z, axis=1) - 0.5 * L * np.log(2 * np.pi)
        for start in range(0, len(z), 100_000):
            some = slice(start, start + 100_000)
            with np.errstate(all="ignore"):
                density = np.asarray(likelihood.log_density(W @ z[some].T + offset, few))
            density = np.where(times[:, None] > 0, times[:, None] * np.nan_to_num(density, nan=-np.inf), 0.0)
            out[some] += density.sum(axis=0)
        return out.reshape([len(axis) for axis in axes])

    box = np.array([[-12.0, 12.0]] * L)
    for _ in range(30):
        axes = [np.linspace(*side, {1: 201, 2: 61, 3: 25}[L]) for side in box]
        values = log_joint(axes)
        alive = values > values.max() - 42.0
        new = box.copy()
        for k in range(L):
            seen = np.flatnonzero(alive.any(axis=tuple(i for i in range(L) if i != k)))
            new[k] = axes[k][max(seen[0] - 1, 0)], axes[k][min(seen[-1] + 1, len(axes[k]) - 1)]
        done = np.all(np.diff(new, axis=1) > 0.6 * np.diff(box, axis=1))
        box = new
        if done:
            break
    axes = [np.linspace(*side, SIZES[L]) for side in box]
    values = log_joint(axes)
    top, step = values.max(), np.prod([axis[1] - axis[0] for axis in axes])
    f = np.exp(values - top)
    fine = top + np.log(f.sum() * step)
    coarse = top + np.log(f[(slice(None, None, 2),) * L].sum() * step * 2**L)
    return fine, abs(fine - coarse)


def random_problem(seed):
    """A likelihood, its targets, a design of 1 to 3 latents on a scale that may be hard, and a prior of any kind."""
    rng = np.random.default_rng(seed)
    L, n = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    likelihood, y = KINDS[seed % len(KINDS)].example(rng, n)
    L = min(L, 2) if likelihood.name == "LaplaceNoise" else L  # grids of three directions are coarse for its kinks
    scale = float(rng.choice([0.1, 0.5, 1.0, 3.0]))
    W = scale * rng.normal(size=(n, L))
    if rng.random() < 0.3:
        W[-1] = -0.5 * W[0]  # two rows along one line
    kind = ("dense", "features", "sparse")[int(rng.integers(3))]
    return likelihood, y, W, kind


def prior_of(kind, W):
    if kind == "features":
        return Features(W)
    if kind == "sparse":
        return SparsePrecision(sp.eye_array(W.shape[1], format="csc"), design=sp.csr_array(W))
    return DenseCovariance(W @ W.T)


@pytest.mark.parametrize("seed", range(100))
def test_the_truth_lies_between_the_bounds(seed):
    likelihood, y, W, kind = random_problem(seed)
    sol = fenchel.infer(likelihood, prior_of(kind, W), y, tol=1e-8)
    bounds = sol.evidence_bounds()
    truth, error = log_evidence(likelihood, y, W)
    assert error < 1e-3
    slack = 3 * error + 1e-9
    assert bounds.lower <= truth + slack
    assert truth <= bounds.upper + slack
    assert sol.elbo <= bounds.lower + 1e-8
    assert bounds.kl >= 0.0


def binary_problem(n=30, seed=3, L=3):
    rng = np.random.default_rng(seed)
    W = 2.0 * rng.normal(size=(n, L))
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-W @ rng.normal(size=L)))).astype(float)
    return W, y


def test_every_kind_of_prior_gives_the_same_bounds():
    W, y = binary_problem()
    found = [
        fenchel.infer(BernoulliLogit("exact"), prior_of(kind, W), y, tol=1e-12).evidence_bounds()
        for kind in ("dense", "features", "sparse")
    ]
    for other in found[1:]:
        assert other.lower == pytest.approx(found[0].lower, abs=1e-7)
        assert other.upper == pytest.approx(found[0].upper, abs=2e-3 * found[0].width)
    truth, _ = log_evidence(BernoulliLogit("exact"), y, W)
    assert all(b.lower <= truth <= b.upper for b in found)


def test_batches_of_small_models_have_bounds():
    rng = np.random.default_rng(0)
    W, y = rng.normal(size=(4, 2)), rng.poisson(2.0, size=12).astype(float)
    sol = fenchel.infer(Poisson(), BatchedFeatures(W, 3), y, tol=1e-10)
    truth = sum(log_evidence(Poisson(), rows, W)[0] for rows in y.reshape(3, 4))
    bounds = sol.evidence_bounds()
    assert bounds.lower <= truth <= bounds.upper
    assert bounds.width < 0.1


@pytest.mark.parametrize("kind", ["dense", "features", "sparse"])
def test_exponents_are_allowed(kind):
    """diag(p) >= R, by eigenvalues."""
    W, y = binary_problem()
    sol = fenchel.infer(BernoulliLogit("exact"), prior_of(kind, W), y)
    p = sol.evidence_bounds().exponents
    V = np.asarray(sol.posterior.covariance())
    sd = np.sqrt(np.diag(V))
    assert np.linalg.eigvalsh(np.diag(p) - V / np.outer(sd, sd)).min() > -1e-10
    assert (p > 1.0).all()


def tampered(kind, W, y, shift, stretch):
    """A fit whose q is not its own: the mean moved by so many sds, the sites scaled."""
    owner = Problem(BernoulliLogit("exact"), prior_of(kind, W), y)
    sol = fenchel.infer(owner.likelihood, owner.prior, y)
    alpha, lam = sol.alpha, sol.lam * stretch
    V = np.linalg.inv(np.eye(W.shape[1]) + W.T @ (lam * W))
    move = np.linalg.cholesky(V) @ np.full(W.shape[1], shift)
    beta = alpha - np.linalg.pinv(W.T) @ move[:, None]  # W' beta changes by -move: the mean moves by it
    point = PrimalPoint(owner, beta, lam, None)
    outcome = Outcome(point, sol._ran, 0, sol.trace)
    return Solution(owner, outcome, "newton", 1e-8)


@pytest.mark.parametrize("kind", ["dense", "features", "sparse"])
@pytest.mark.parametrize(("shift", "stretch"), [(1.0, 1.0), (-1.0, 1.0), (0.0, 0.5), (0.0, 2.0), (1.0, 3.0)])
def test_bounds_hold_for_every_q(kind, shift, stretch):
    W, y = binary_problem(n=12)
    sol = tampered(kind, W, y, shift, stretch)
    best = fenchel.infer(BernoulliLogit("exact"), prior_of(kind, W), y)
    truth, _ = log_evidence(BernoulliLogit("exact"), y, W)
    bounds = sol.evidence_bounds()
    assert sol.elbo < best.elbo - 1e-3
    assert bounds.lower <= truth <= bounds.upper
    assert bounds.lower == pytest.approx(sol.elbo, abs=1e-6)


@pytest.mark.parametrize("seed", range(0, 48, 3))
def test_more_effort_brings_bounds_closer_and_keeps_them_true(seed):
    likelihood, y, W, kind = random_problem(seed)
    sol = fenchel.infer(likelihood, prior_of(kind, W), y, tol=1e-8)
    fast, high = sol.evidence_bounds(), sol.evidence_bounds(effort="high")
    truth, error = log_evidence(likelihood, y, W)
    assert high.upper <= fast.upper
    assert high.lower == pytest.approx(fast.lower, abs=1e-12)
    assert truth <= high.upper + 3 * error + 1e-9


def test_rows_without_curvature_and_weights_count():
    rng = np.random.default_rng(1)
    W = rng.normal(size=(8, 2))
    y = np.array([0.4, 0.0, -1.2, np.nan, 0.0, 0.7, -0.1, 2.0])
    for weights in (None, np.array([1.0, 2.0, 0.5, 1.0, 0.0, 3.0, 1.0, 1.0])):
        truth, error = log_evidence(StochasticVolatility(), y, W, weights=weights)
        for kind in ("dense", "features", "sparse"):
            sol = fenchel.infer(StochasticVolatility(), prior_of(kind, W), y, weights=weights)
            for effort in ("fast", "high"):
                bounds = sol.evidence_bounds(effort)
                assert bounds.lower <= truth + error <= bounds.upper + 2 * error
                assert np.isinf(bounds.exponents[[1, 3, 4]]).all()


def test_a_gaussian_likelihood_has_its_evidence():
    rng = np.random.default_rng(2)
    W, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    bounds = fenchel.infer(Gaussian(0.3), prior_of("dense", W), y).evidence_bounds()
    C = W @ W.T + 0.3 * np.eye(6)
    truth = -0.5 * (y @ np.linalg.solve(C, y) + np.linalg.slogdet(2 * np.pi * C)[1])
    assert bounds.lower <= truth <= bounds.upper
    assert bounds.width < 1e-9


def test_one_row_is_known_to_rounding():
    """A single site has exponent 1: the bound is the evidence."""
    bounds = fenchel.infer(BernoulliLogit("exact"), DenseCovariance([[25.0]]), [1]).evidence_bounds()
    assert bounds.upper == pytest.approx(np.log(0.5), abs=1e-4)
    assert bounds.upper >= np.log(0.5)


def test_intrinsic_priors_have_bounds():
    """A walk held to sum to zero and an intercept, against the dense covariance that it is."""
    n, rng = 7, np.random.default_rng(4)
    D = np.diff(np.eye(n), axis=0)
    Q = sp.block_diag([sp.csc_array(D.T @ D), sp.eye_array(1)], format="csc")
    W = np.c_[np.eye(n), np.ones(n)]
    y = rng.poisson(3.0, n).astype(float)
    held = SparsePrecision(Q, design=sp.csr_array(W), constraints=np.r_[np.ones(n), 0.0][None, :])
    S = np.linalg.pinv(D.T @ D) + 1.0
    first, second = (
        fenchel.infer(Poisson(), prior, y, tol=1e-12).evidence_bounds() for prior in (held, DenseCovariance(S))
    )
    assert first.lower == pytest.approx(second.lower, abs=1e-8)
    assert first.upper == pytest.approx(second.upper, abs=3e-3 * second.width)


def test_bounds_say_what_they_are():
    W, y = binary_problem()
    bounds = fenchel.infer(BernoulliLogit("exact"), Features(W), y).evidence_bounds()
    assert isinstance(bounds, EvidenceBounds)
    assert "proved by a Cholesky" in bounds.status
    assert "hyperparameters" in bounds.status


def test_probabilities_are_at_most_one():
    """Overdispersed shares whose bounds by rows are far above: log p(y) is at most 0, and that of densities is not."""
    rng = np.random.default_rng(3)
    W, trials = np.c_[np.ones(12), rng.standard_normal((12, 2))], rng.integers(2, 30, 12)
    y = rng.binomial(trials, rng.beta(0.5, 2.0, 12)).astype(float)
    sol = fenchel.infer(BetaBinomial(trials, 3.0), Features(W, variance=100.0), y)
    bounds = sol.evidence_bounds()
    assert bounds.lower < bounds.upper == 0.0
    assert bounds.kl == pytest.approx(-bounds.lower)
    assert "the maximum for a probability" in bounds.status
    assert bounds.lower < sol.evidence_bounds("high").upper <= 0.0
    near = fenchel.infer(Gaussian(1e-3), Features(np.ones((4, 1))), 0.2 + 1e-4 * np.arange(4)).evidence_bounds()
    assert near.lower > 0.0


def test_panels_find_every_mode():
    """A normal density, and spikes of width 1e-8 about 0 and 10."""

    def log_f(which, x):
        spikes = np.logaddexp(*(-2.5 * np.log1p(((x - at) / 1e-8) ** 2 / 4.0) for at in (0.0, 10.0)))
        return np.where(which[:, None] == 0, -0.5 * x * x, spikes)

    edges = [graded_edges(np.zeros(1), np.ones(1), 20.0), graded_edges(np.array([0.0, 10.0]), np.full(2, 1e-8), 100.0)]
    value, error, _ = panel_integrals(log_f, edges)
    spike = np.log(2e-8 * 2.0 * np.sqrt(np.pi)) + gammaln(2.0) - gammaln(2.5)
    assert value == pytest.approx([0.5 * np.log(2.0 * np.pi), spike], abs=1e-10)  # 10 + 1e-8 has 9 digits of the 1e-8
    assert (error < 1e-10).all()


def test_gauss_and_hermite_rules_do_not_agree_by_chance():
    """Sides as steep as those of a wide probit, at many places: rules of 7 and 11 nodes alone agree at some of them."""
    at, steep = (each.ravel() for each in np.meshgrid(np.linspace(-4.0, 4.0, 801), [0.3, 3.0, 10.0, 30.0]))
    x = np.linspace(-14.0, 14.0, 28001)

    def side(t):
        return -0.05 * np.logaddexp(0.0, steep[:, None] * (at[:, None] - t)) / steep[:, None]

    found = hermite_sums(side(NODES[None]), np.ones(at.size))
    inside = found.accepted
    exact = np.log(np.exp(side(x[None])) @ np.exp(-0.5 * x * x) * (x[1] - x[0]) / np.sqrt(2.0 * np.pi))
    assert inside.any()
    assert (np.abs(found.value - exact) <= found.error + 1e-12)[inside].all()


def test_the_ends_of_a_range_are_told_apart():
    low, high = rounded_range(-108.53247, -108.53184)
    assert (low, high) == ("-108.53247", "-108.53184")
    assert rounded_range(-3.0, -1e-4)[1] == "0.00"


def test_what_has_no_bounds_is_refused():
    W, y = binary_problem()
    sol = fenchel.infer(BernoulliLogit("exact"), Features(W), y)
    with pytest.raises(ValueError, match="effort"):
        sol.evidence_bounds(effort="heroic")
    with pytest.raises(ValueError, match="extra variance"):
        fenchel.infer(Poisson(), Features(W, extra_variance=0.1), y).evidence_bounds()
    with pytest.raises(ValueError, match="7 predictors an observation"):
        fenchel.infer(MultinomialLogit(8), DenseCovariance(np.eye(4)), [0, 1, 2, 1]).evidence_bounds()


@pytest.mark.parametrize("bound", ["log-sum", "tilted", "exact"])
@pytest.mark.parametrize("reference", ["last", None])
def test_a_softmax_has_bounds(bound, reference):
    """Rows x_n z_c of one latent a class: a tensor of grids over the classes is the witness."""
    x, y = np.array([1.5, -0.7, 2.0, 0.4]), np.array([0, 2, 1, 0])
    likelihood = MultinomialLogit(3, reference=reference, bound=bound)
    bounds = fenchel.infer(likelihood, DenseCovariance(np.outer(x, x)), y).evidence_bounds()
    z = np.linspace(-10.0, 10.0, 81)
    C = likelihood.n_predictors
    grid = np.stack(np.meshgrid(*[z] * C, indexing="ij"), axis=-1).reshape(-1, C)
    eta = x[:, None, None] * (grid if C == 3 else np.c_[grid, np.zeros(len(grid))])
    log_p = np.take_along_axis(eta, y[:, None, None], axis=2)[:, :, 0] - np.logaddexp.reduce(eta, axis=2)
    log_f = log_p.sum(axis=0) - 0.5 * np.sum(grid**2, axis=1) - 0.5 * C * np.log(2 * np.pi)
    truth = np.logaddexp.reduce(log_f) + C * np.log(z[1] - z[0])
    assert bounds.lower <= truth <= bounds.upper
    assert bounds.upper < truth + 3.0


@pytest.mark.parametrize("classes", [4, 5])
def test_a_softmax_of_many_classes_has_bounds(classes):
    """Rows with a latent each: a row's evidence is known by symmetry, 1 / classes for each y."""
    y = np.arange(3)
    likelihood = MultinomialLogit(classes, reference=None)
    fit = fenchel.infer(likelihood, DenseCovariance(2.0 * np.eye(3)), y)
    fast, high = fit.evidence_bounds(), fit.evidence_bounds("high")
    truth = -3.0 * np.log(classes)
    assert fast.lower <= truth <= high.upper <= fast.upper
    assert high.upper < truth + 0.05


def test_high_effort_refits_a_softmax():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    K = 20.0 * np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1)) + 1e-8 * np.eye(12)
    fit = fenchel.infer(MultinomialLogit(3), DenseCovariance(K), rng.integers(0, 3, 12))
    fast, high = fit.evidence_bounds(), fit.evidence_bounds("high")
    assert fast.lower == high.lower
    assert high.upper < fast.upper - 0.01 * fast.width


def test_pairs_share_an_exponent_where_that_is_better():
    """Two rows that are all there is are one block, whose exponent is 1: the bound is the evidence."""
    W = np.array([[2.0, 0.0], [1.6, 1.2]])
    sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(W @ W.T), [1, 0])
    truth, _ = log_evidence(BernoulliLogit("exact"), np.array([1.0, 0.0]), W)
    fast, high = sol.evidence_bounds(), sol.evidence_bounds("high")
    assert truth <= high.upper <= truth + 3e-4 < fast.upper


@pytest.mark.parametrize("angle", np.linspace(0.0, np.pi, 19))
def test_a_steep_side_that_halves_of_a_lattice_miss_alike(angle):
    """Three signs of normal variables: the probability of an orthant, in closed form."""
    steep = 30.0 * np.array([np.cos(angle), np.sin(angle)])
    W, y = np.array([steep, [0.6, 0.9], [-0.9, 0.3]]), np.array([1.0, 1.0, 0.0])
    signed = np.where(y > 0, 1.0, -1.0)[:, None] * W
    C = signed @ signed.T + np.eye(3)
    R = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))
    truth = np.log(1 / 8 + np.arcsin(R[np.triu_indices(3, 1)]).sum() / (4 * np.pi))
    found = integral_proof(fenchel.infer(BernoulliProbit(), Features(W), y), 1e-3, 2e8)
    assert found.bounds.lower <= truth + 1e-9
    assert truth <= found.bounds.upper + 1e-9
    assert found.bounds.width < 0.1


@pytest.mark.parametrize("scale", [1e-4, 1e-8, 1e-10])
@pytest.mark.parametrize("sd", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("y", [[0.3], [0.3, -0.5], [0.1, 0.2, 0.3, 0.4]])
def test_noise_far_narrower_than_the_prior(scale, sd, y):
    """Student's t of any scale: Gauss and Legendre's rule on panels about each target, in units of the scale."""
    y, nu = sd * np.array(y), 4.0
    far = 2.0 ** np.arange(-3, 62)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    log_mass = []
    for k, centre in enumerate(y):  # each target's half-way cell, in u = (eta - y) / scale
        others = np.delete(y, k)
        ends = np.unique(np.clip(np.r_[-far, 0.0, far], -12.0 * sd / scale, 12.0 * sd / scale))
        half = np.diff(ends)[:, None] / 2
        u = (ends[:-1, None] + half + half * nodes).ravel()
        nearest = np.all([np.abs(u) <= np.abs(u + (centre - o) / scale) for o in others], axis=0)
        log_f = -0.5 * ((centre + scale * u) / sd) ** 2 - np.log(sd * np.sqrt(2.0 * np.pi)) + np.log(scale)
        for o in y:
            t = u + (centre - o) / scale
            log_f += gammaln(2.5) - gammaln(2.0) - 0.5 * np.log(nu * np.pi) - np.log(scale) - 2.5 * np.log1p(t * t / nu)
        log_mass.append(np.where(nearest, log_f + np.log((half * weights).ravel()), -np.inf))
    truth = float(np.logaddexp.reduce(np.concatenate(log_mass)))
    bounds = fenchel.infer(StudentT(nu, scale), Features(np.full((len(y), 1), sd)), y).evidence_bounds()
    assert bounds.lower <= truth + 1e-6  # of cells that are cut between two targets
    assert truth <= bounds.upper + 1e-6


@pytest.mark.parametrize(("sd", "scale", "far"), [(1e3, 1e-3, -3e3), (100.0, 1e-5, -300.0), (10.0, 1e-4, -30.0)])
def test_narrow_modes_far_from_q_are_found(sd, scale, far):
    """Two rows that contradict each other under Student's t: panels that end at both."""
    y = np.array([0.3, far])
    likelihood = StudentT(4.0, scale)
    ends = np.concatenate([y[:, None] + scale * np.r_[-(2.0 ** np.arange(-3, 36)), 0.0, 2.0 ** np.arange(-3, 36)]])
    ends = np.unique(np.clip(ends, -12.0 * sd, 12.0 * sd))
    nodes, weights = np.polynomial.legendre.leggauss(30)
    half = np.diff(ends)[:, None] / 2
    eta = (ends[:-1, None] + half + half * nodes).ravel()
    rows = likelihood.prepare(y)
    log_p = np.asarray(likelihood.log_density(np.tile(eta, (2, 1)), rows)).sum(axis=0)
    log_p += -0.5 * (eta / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi)) + np.log((half * weights).ravel())
    truth = log_p.max() + np.log(np.exp(log_p - log_p.max()).sum())
    bounds = fenchel.infer(likelihood, Features(np.full((2, 1), sd)), y).evidence_bounds()
    assert bounds.lower <= truth <= bounds.upper
    assert bounds.upper < truth + 3.0


def test_rows_that_see_no_latent():
    bounds = fenchel.infer(Poisson(), Features(np.zeros((3, 2))), [1, 2, 0]).evidence_bounds()
    assert bounds.lower <= -3.0 - np.log(2.0) <= bounds.upper
    assert bounds.width < 1e-12
