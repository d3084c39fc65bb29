"""Groups integrated out: evidence, coefficients, effects, draws and gradients against quadrature over everything."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

import fenchel
from fenchel import gates
from fenchel.corrections import collapsed_fit, group_quadrature
from fenchel.corrections.collapsed import Collapsed, collapse
from fenchel.corrections.group_nodes import Lattice
from fenchel.likelihoods import (
    BernoulliLogit,
    BernoulliProbit,
    Binomial,
    Exponential,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
    Weibull,
)
from fenchel.priors import SparsePrecision
from fenchel.priors.base import NewRows

RNG = np.random.default_rng(7)


class Model:
    """Random intercepts (and slopes) with p coefficients: the fit, and sums over grids of b and u."""

    def __init__(self, likelihood, y, X, A, group, P, coefficient_sd=1.5, offset=0.0, weights=None):
        self.n, self.p = X.shape
        self.d, self.G = A.shape[1], int(group.max()) + 1
        self.likelihood, self.y, self.X, self.A, self.group = likelihood, y, X, A, group
        self.P, self.sd, self.weights = P, coefficient_sd, weights
        self.offset = np.broadcast_to(offset, (self.n,))
        place = self.d * group[:, None] + np.arange(self.d)
        Z = sp.csr_array((A.ravel(), (np.repeat(np.arange(self.n), self.d), place.ravel())), (self.n, self.G * self.d))
        Q = sp.block_diag([*[sp.csc_array(P)] * self.G, sp.eye_array(self.p) / coefficient_sd**2], format="csc")
        self.W = sp.csr_array(sp.hstack([Z, sp.csr_array(X)]))
        self.prior = SparsePrecision(Q, design=self.W, offset=self.offset)

    def solution(self):
        return fenchel.infer(self.likelihood, self.prior, self.y, weights=self.weights, tol=1e-10)

    def u_grid(self):
        half = {1: 700, 2: 45}[self.d]
        line = np.linspace(-8.0, 8.0, 2 * half + 1)
        v = np.stack(np.meshgrid(*[line] * self.d, indexing="ij"), axis=-1).reshape(-1, self.d)
        root = np.linalg.cholesky(np.linalg.inv(self.P))
        log_w = -0.5 * np.sum(v * v, axis=1) + self.d * np.log((line[1] - line[0]) / np.sqrt(2.0 * np.pi))
        return v @ root.T, log_w

    def sums(self, centre, root, without=(), nodes=11):
        """log p(y), and the joint weights: of b (S,), and of u given b of each group (S, G, M)."""
        x, w = np.polynomial.hermite_e.hermegauss(nodes)
        t = np.stack(np.meshgrid(*[x] * self.p, indexing="ij"), axis=-1).reshape(-1, self.p)
        log_w = np.sum(np.stack(np.meshgrid(*[np.log(w)] * self.p, indexing="ij"), axis=-1), axis=-1).ravel()
        log_w = log_w + 0.5 * np.sum(t * t, axis=1) + np.linalg.slogdet(root)[1]
        b = centre + t @ root.T
        log_w = log_w - 0.5 * np.sum(b * b, axis=1) / self.sd**2 - self.p * np.log(self.sd * np.sqrt(2.0 * np.pi))
        u, log_u = self.u_grid()
        rows = self.likelihood.prepare(self.y, self.weights)
        own = np.asarray(self.likelihood.prepare(self.y)["weight"])
        times = np.asarray(rows["weight"]) / np.where(own > 0.0, own, 1.0)
        times[list(without)] = 0.0
        given = np.empty((b.shape[0], self.G, u.shape[0]))
        for s, one in enumerate(b):
            eta = (self.X @ one + self.offset)[:, None] + self.A @ u.T
            with np.errstate(all="ignore"):
                log_p = np.where(times[:, None] > 0, times[:, None] * self.likelihood.log_density(eta, rows), 0.0)
            total = np.zeros((self.G, u.shape[0]))
            np.add.at(total, self.group, log_p)
            given[s] = total + log_u
        log_b = log_w + logsumexp(given, axis=2).sum(axis=1)
        log_z = logsumexp(log_b)
        given = np.exp(given - logsumexp(given, axis=2, keepdims=True))
        return log_z, b, np.exp(log_b - log_z), u, given

    def truth(self, found, **options):
        state = found._found.state
        return self.sums(state.mean, 1.2 * state.root, **options)


def intercepts(G=24, size=4, p=2, sd=1.5, seed=0):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(G), size)
    X = np.column_stack([np.ones(group.size), *(rng.normal(size=group.size) for _ in range(p - 1))])
    eta = X @ np.array([0.4, -0.6, 0.3][:p]) + sd * rng.normal(size=G)[group]
    return rng, group, X, eta


def model_of(name, **options):
    rng, group, X, eta = intercepts(**options)
    n, A, P = group.size, np.ones((group.size, 1)), np.array([[1.0 / 1.5**2]])
    chance = 1.0 / (1.0 + np.exp(-eta))
    extra = {}
    if name in ("bernoulli", "weights", "offset", "unobserved"):
        likelihood, y = BernoulliLogit("exact"), (rng.random(n) < chance).astype(float)
    if name == "tilted":
        likelihood, y = BernoulliLogit("tilted"), (rng.random(n) < chance).astype(float)
    if name == "probit":
        likelihood, y = BernoulliProbit(), (eta + rng.normal(size=n) > 0).astype(float)
    if name == "binomial":
        trials = rng.integers(1, 6, n)
        likelihood, y = Binomial(trials), rng.binomial(trials, chance).astype(float)
    if name == "poisson":
        likelihood, y = Poisson(rng.uniform(0.5, 2.0, n)), rng.poisson(np.exp(0.4 * eta)).astype(float)
    if name == "negative binomial":
        likelihood, y = NegativeBinomial(2.0), rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(0.5 * eta))).astype(float)
    if name == "ordinal":
        likelihood = Ordinal([-1.0, 0.3, 1.5])
        y = np.digitize(eta + rng.logistic(size=n), [-1.0, 0.3, 1.5]).astype(float)
    if name == "weibull":
        likelihood = Weibull(1.4, event=rng.integers(0, 2, n))
        y = rng.weibull(1.4, n) * np.exp(-0.4 * eta) + 1e-3
    if name == "gamma":
        likelihood, y = Gamma(2.0), rng.gamma(2.0, np.exp(0.4 * eta) / 2.0) + 1e-3
    if name == "student":
        likelihood, y = StudentT(4.0, 0.7), eta + 0.7 * rng.standard_t(4.0, n)
    if name == "weights":
        extra["weights"] = rng.integers(1, 4, n).astype(float)
    if name == "offset":
        extra["offset"] = rng.normal(size=n)
    if name == "unobserved":
        y[[0, 5]] = np.nan
        y[8:12] = np.nan  # a group without rows
    return Model(likelihood, y, X, A, group, P, **extra)


KINDS = ["bernoulli", "tilted", "probit", "binomial", "poisson", "negative binomial", "ordinal", "weibull", "gamma"]
KINDS += ["student", "weights", "offset", "unobserved"]


def check(model, evidence, mean, sd):
    """The evidence in nats, means in sds and sds relatively: of coefficients and of groups."""
    found = collapse(model.solution())  # corrected() may prefer the expansion, where that has the smaller error
    assert found.trusted
    log_z, b, weight, u, given = model.truth(found)
    assert abs(found.log_evidence - log_z) < evidence, (found.log_evidence - log_z, found.log_evidence_se)
    latents, m = found.latents(), model.G * model.d
    centre = weight @ b
    spread = np.sqrt(weight @ (b - centre) ** 2)
    np.testing.assert_allclose((latents.mean[m:] - centre) / spread, 0.0, atol=mean)
    np.testing.assert_allclose(latents.sd[m:] / spread, 1.0, atol=sd)
    joint = np.einsum("s,sgm->gm", weight, given)
    for k in range(model.d):
        first = joint @ u[:, k]
        wide = np.sqrt(joint @ u[:, k] ** 2 - first**2)
        np.testing.assert_allclose((latents.mean[:m][k :: model.d] - first) / wide, 0.0, atol=mean)
        np.testing.assert_allclose(latents.sd[:m][k :: model.d] / wide, 1.0, atol=sd)
    return found, joint, u, log_z


@pytest.mark.parametrize("name", KINDS)
def test_against_quadrature_over_everything(name):
    model = model_of(name)
    found, joint, u, _ = check(model, 0.01, 0.02, 0.01)
    latents = found.latents()
    below = np.cumsum(joint, axis=1) - 0.5 * joint
    for level in (0.025, 0.5, 0.975):
        at = np.asarray(latents.quantile(level))[: model.G]
        reached = [np.interp(x, u[:, 0], row) for x, row in zip(at, below, strict=True)]
        np.testing.assert_allclose(reached, level, atol=0.005)
    third = [row @ (u[:, 0] - row @ u[:, 0]) ** 3 / (row @ (u[:, 0] - row @ u[:, 0]) ** 2) ** 1.5 for row in joint]
    np.testing.assert_allclose(
        np.asarray(latents.skewness)[: model.G], third, atol=0.07
    )  # b itself has no skewness under q


def test_lattices_of_groups_of_one_shape():
    """Every other point of a lattice may be right by its phase, in all groups of exponential times at once."""
    rng, group, X, eta = intercepts(G=10, size=5)
    for scale in (0.7, 1.0, 1.4):
        y = scale * rng.gamma(2.0, 0.5, group.size) * np.exp(eta)
        model = Model(Exponential(), y, X, np.ones((group.size, 1)), group, np.eye(1))
        found, _, _, _ = check(model, 0.005, 0.01, 0.01)
        integrals, lattice, b = found._found.problem.integrals, found._found.lattice, found._found.state.mean
        place, ends = (lattice.centre, lattice.mode, lattice.slope), (lattice.low, lattice.high)
        sums = {}
        for size in (129, 9, 13, 17):
            there, missed = integrals._trial(Lattice.spanning(place, lattice.root, ends, size), b)
            sums[size] = integrals.data.many @ there.log_g
            assert abs(sums[size] - sums[129]) <= missed + 1e-9


def test_separated_data_are_not_trusted():
    """q(b) is cut off on one side, where |T|^2 is small: its error is seen by the spread of log p - log q."""
    _, group, X, _ = intercepts(G=12)
    ones, A = np.ones(group.size), np.ones((group.size, 1))
    model = Model(BernoulliLogit("exact"), ones, X, A, group, np.array([[0.25]]), coefficient_sd=10.0)
    found = collapse(model.solution())
    assert found._found.converged
    log_z = model.truth(found, nodes=25)[0]
    assert 0.25 < log_z - found.log_evidence < 1.3 * found.log_evidence_se
    assert not found.trusted


def test_fifty_groups_of_four_with_one_coefficient():
    model = model_of("bernoulli", G=50, p=1, sd=2.0)
    found, *_, log_z = check(model, 1e-3, 2e-3, 2e-3)
    assert log_z - found.elbo > 0.2
    assert found.n_iter <= 10
    assert found.gap < 1e-5


def slopes(seed=3, G=12, size=5):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(G), size)
    t = rng.normal(size=group.size)
    X, A = np.column_stack([np.ones(group.size), t]), np.column_stack([np.ones(group.size), t])
    Sigma = np.array([[2.0, 0.5], [0.5, 1.0]])
    u = rng.multivariate_normal(np.zeros(2), Sigma, G)
    y = (rng.random(group.size) < 1.0 / (1.0 + np.exp(-0.3 - np.sum(A * u[group], axis=1)))).astype(float)
    return Model(BernoulliLogit("exact"), y, X, A, group, np.linalg.inv(Sigma))


@pytest.mark.parametrize("turned", [False, True], ids=["intercepts", "slopes"])
def test_intercepts_and_slopes(turned):
    model = slopes()
    if turned:
        model = Model(model.likelihood, model.y, model.X, model.A[:, ::-1], model.group, model.P[::-1, ::-1])
    found, joint, u, _ = check(model, 0.02, 0.02, 0.01)
    latents, n = found.latents(), round(u.shape[0] ** 0.5)
    line, mass = u[::n, 0], joint.reshape(model.G, n, n).sum(axis=2)
    below, edges = np.cumsum(mass, axis=1), line + 0.5 * (line[1] - line[0])
    for level in (0.05, 0.5, 0.95):
        at = np.asarray(latents.quantile(level))[: 2 * model.G : 2]
        reached = [np.interp(x, edges, row) for x, row in zip(at, below, strict=True)]
        np.testing.assert_allclose(reached, level, atol=0.008)


def test_two_terms_over_the_same_groups_are_pairs():
    model = slopes()
    model.P = np.diag([0.5, 1.0])
    G = model.G
    order = np.concatenate([2 * np.arange(G), 2 * np.arange(G) + 1, 2 * G + np.arange(2)])
    Q = sp.diags_array(np.r_[np.full(G, 0.5), np.full(G, 1.0), np.full(2, 1.0 / 1.5**2)], format="csc")
    fit = fenchel.infer(model.likelihood, SparsePrecision(Q, design=model.W[:, order]), model.y)
    found = fit.corrected()
    assert found._data.split.groups.shape == (G, 2)
    assert abs(found.log_evidence - model.truth(found)[0]) < 0.02


def test_left_out_rows_against_quadrature_without_them():
    model = model_of("bernoulli", G=16)
    found = model.solution().corrected()
    log_z = model.truth(found)[0]
    loo = found.loo()
    for row in (0, 7, 21, 40):
        without = model.truth(found, without=[row])[0]
        assert abs(float(loo.log_density[row]) - (log_z - without)) < 5e-3


def test_rows_of_old_groups_of_new_ones_and_of_two():
    model = model_of("poisson", G=16)
    found = model.solution().corrected()
    _, b, weight, u, given = model.truth(found)
    x, m = np.array([1.0, 0.7]), model.G
    row = np.zeros((3, m + 2))
    row[:, m:] = x
    row[0, 3] = 1.0
    row[1, [3, 4]] = [1.0, -1.0]
    there = found.at(design=sp.csr_array(row), offset=0.2, extra_variance=np.array([0.0, 0.0, 2.25]))
    mean_u, square_u = given @ u[:, 0], given @ u[:, 0] ** 2
    each = b @ x + 0.2
    wide = square_u - mean_u**2
    first = np.stack([each + mean_u[:, 3], each + mean_u[:, 3] - mean_u[:, 4], each])
    within = np.stack([wide[:, 3], wide[:, 3] + wide[:, 4], np.full(each.size, 2.25)])
    centre = first @ weight
    np.testing.assert_allclose(there.mean, centre, atol=3e-3)
    variance = within @ weight + (first - centre[:, None]) ** 2 @ weight
    np.testing.assert_allclose(there.variance, variance, rtol=0.01)
    eta = found.at(design=model.W)
    np.testing.assert_allclose(eta.mean, found.mean)
    np.testing.assert_allclose(eta.interval(), found.interval())


@pytest.mark.parametrize("model", [model_of("bernoulli"), slopes()], ids=["intercepts", "slopes"])
def test_draws_follow_the_marginals(model):
    found = model.solution().corrected()
    n = 2000
    z, latents = found.sample_latents(n, rng=1), found.latents()
    np.testing.assert_allclose((z.mean(axis=0) - latents.mean) / latents.sd, 0.0, atol=4.5 / np.sqrt(n))
    np.testing.assert_allclose(z.std(axis=0) / latents.sd, 1.0, atol=0.05)
    for level in (0.05, 0.5, 0.95):
        share = (z <= latents.quantile(level)).mean(axis=0)
        np.testing.assert_allclose(share, level, atol=4.5 * np.sqrt(level * (1.0 - level) / n))
    eta = found.sample(n, rng=1)
    np.testing.assert_allclose(eta, z @ model.W.T.toarray() + model.offset)
    assert not np.array_equal(found.sample_latents(2, rng=3), found.sample_latents(2, rng=4))


# -- gradients ---------------------------------------------------------------------------------------
N = 150
TABLE = pd.DataFrame({"g": np.repeat(np.arange(30), 5), "x": RNG.normal(size=N), "item": np.arange(N) % 5})
EFFECT = 1.5 * RNG.normal(size=30)[TABLE["g"]] + 0.5 * TABLE["x"] * (1.0 + RNG.normal(size=30)[TABLE["g"]])
TABLE["y"] = (RNG.random(N) < 1.0 / (1.0 + np.exp(-EFFECT))).astype(int)
TABLE["count"] = RNG.negative_binomial(3, 3.0 / (3.0 + np.exp(0.4 * EFFECT)))
TABLE["level"] = np.digitize(EFFECT + RNG.logistic(size=N), [-1.0, 1.0])
TABLE["time"] = RNG.weibull(1.5, N) * np.exp(-0.3 * EFFECT)
TABLE["event"] = RNG.integers(0, 2, N)
FITS = {
    "intercepts": ("y ~ x + (1|g)", "bernoulli", {}),
    "slopes": ("y ~ x + (1 + x|g)", "bernoulli", {}),
    "crossed": ("y ~ x + (1|g) + (1|item)", "bernoulli", {}),
    "counts": ("count ~ x + (1|g)", "negative-binomial", {}),
    "levels": ("level ~ x + (1|g)", "ordinal", {}),
    "durations": ("time ~ x + (1|g)", "weibull", {"event": "event"}),
}


@pytest.mark.parametrize("name", FITS)
def test_the_gradient_is_that_of_the_evidence(name, monkeypatch):
    monkeypatch.setattr(group_quadrature, "_ERROR", 1e-8)
    monkeypatch.setattr(group_quadrature, "_COARSE", {1: 1e-7, 2: 1e-7})
    monkeypatch.setattr(group_quadrature, "_COARSE_OF_OWN", {1: 1e-7, 2: 1e-7})
    monkeypatch.setattr(collapsed_fit, "_SETTLED", 1e-14)
    formula, word, options = FITS[name]
    fit = fenchel.fit(formula, TABLE, word, **options)
    family, theta = fit.model.sum.family(), fit.found.theta
    own = family.theta.size

    def at(where):
        likelihood = fit.found.likelihood.with_theta(where[own:]) if where.size > own else fit.found.likelihood
        return collapse(fenchel.infer(likelihood, family.at(where[:own]), fit.solution.y, tol=1e-11))

    here = at(theta)
    gradient = np.r_[family.gradient(here.as_solution(), theta[:own]), here.likelihood_gradient()]
    slope = []
    for unit in np.eye(theta.size):
        near, far = (at(theta + h * unit).log_evidence - at(theta - h * unit).log_evidence for h in (1e-3, 2e-3))
        slope.append((8.0 * near - far) / 12e-3)
    np.testing.assert_allclose(gradient, slope, atol=1e-5, rtol=1e-5)


# -- other models ------------------------------------------------------------------------------------
def test_crossed_terms_against_weighted_draws():
    fit = fenchel.fit(
        "y ~ x + (1|g) + (1|item)", TABLE, "bernoulli", priors={"(1|g)": (3.0, 0.05), "(1|item)": (1.0, 0.05)}
    )
    found, drawn = collapse(fit.solution), fit.solution.importance(2**15)
    assert found.n_groups == 30
    assert abs(found.log_evidence - drawn.log_evidence) < 0.01 + 4.0 * drawn.log_evidence_se
    apart = (found.latents().mean - drawn.latents().mean) / found.latents().sd
    np.testing.assert_allclose(apart, 0.0, atol=0.05)
    np.testing.assert_allclose(found.latents().sd / drawn.latents().sd, 1.0, atol=0.05)


def test_equal_groups_are_integrated_once():
    table = pd.DataFrame({"g": np.repeat(np.arange(40), 3), "x": np.tile([0.0, 0.0, 1.0], 40)})
    table["y"] = (np.arange(120) % 7 < 3).astype(int)
    fit = fenchel.fit("y ~ x + (1|g)", table, "bernoulli")
    found = fit.solution.corrected()
    assert found._data.many.sum() == 40
    assert found._data.many.size < 10
    assert found._data.kinds.times.max() == 2.0  # two equal rows
    alone = fenchel.fit("y ~ x + (1|g)", table.assign(x=table["x"] + 1e-9 * np.arange(120)), "bernoulli")
    other = fenchel.infer(alone.solution.likelihood, alone.model.sum.family().at(fit.found.theta), alone.solution.y)
    assert collapse(other)._data.many.max() == 1.0
    assert abs(collapse(other).log_evidence - found.log_evidence) < 1e-5


def test_what_has_no_groups_is_answered_as_before(monkeypatch):
    n = 30
    y = (RNG.random(n) < 0.5).astype(float)
    whole = SparsePrecision(sp.eye_array(n, format="csc") * 0.5, constraints="sum-to-zero")
    assert collapse(fenchel.infer(BernoulliLogit(), whole, y)) is None
    model = model_of("bernoulli")
    assert collapse(fenchel.infer(Gaussian(1.0), model.prior, model.y)) is None
    monkeypatch.setattr(gates, "COLLAPSED_WORK", 0.0)
    assert model.solution().corrected().method == "clusters"


def test_it_is_stored_and_travels(tmp_path):
    fit = fenchel.fit("y ~ x + (1|g)", TABLE, "bernoulli").corrected()
    assert isinstance(fit.answers, Collapsed)
    fit.save(tmp_path / "fit")
    again = fenchel.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(again.coefficients, fit.coefficients)
    copy = pickle.loads(pickle.dumps(fit.answers))
    assert copy.log_evidence == fit.answers.log_evidence
    np.testing.assert_allclose(copy.sd, fit.answers.sd)
    assert "30 groups" in repr(copy)
    assert "integrated out" in copy.status


def test_grids_at_rows_are_kept_until_others_are_asked_for():
    found = model_of("bernoulli").solution().corrected()
    design = sp.csr_array(found._posterior.predictors.W[:3])
    grid, _ = found.grid_at(NewRows(design=design))
    assert found.grid_at(NewRows(design=design.copy()))[0] is grid
    for other in (NewRows(design=design, offset=1.0), NewRows(design=2.0 * design), NewRows(design=design[:2])):
        assert found.grid_at(other)[0] is not grid
        np.testing.assert_allclose(found.grid_at(other)[0].centre, found.marginals_at(other).grid.centre, rtol=1e-12)


def test_coefficients_lean_as_their_posterior_does():
    """Few small counts: the intercept by a sum over a fine grid, each group by Gauss and Hermite's rule."""
    rng, sd, wide = np.random.default_rng(2), 0.6, 10.0
    g = np.repeat(np.arange(12), 3)
    y = rng.poisson(np.exp(-1.5 + sd * rng.normal(size=12)[g]))
    ones = np.ones((g.size, 1))
    found = collapse(Model(Poisson(), y, ones, ones, g, np.eye(1) / sd**2, wide).solution())
    level = np.linspace(-6.0, 1.5, 1201)
    x, w = np.polynomial.hermite_e.hermegauss(60)
    eta = level[:, None, None] + sd * x
    sums = np.bincount(g, weights=y)[None, :, None]
    log_g = logsumexp(sums * eta - 3.0 * np.exp(eta) + np.log(w), axis=2).sum(axis=1) - 0.5 * (level / wide) ** 2
    p = np.exp(log_g - log_g.max())
    p /= p.sum()
    mean = p @ level
    spread = np.sqrt(p @ (level - mean) ** 2)
    skewness = p @ (level - mean) ** 3 / spread**3
    latents = found.latents()
    assert skewness < -0.15
    assert latents.skewness[-1] == pytest.approx(skewness, abs=0.05)
    exact = np.interp([0.025, 0.975], np.cumsum(p) - 0.5 * p, level)
    off = np.abs(latents.quantile([0.025, 0.975])[-1] - exact).max()
    normal = latents.mean[-1] + latents.sd[-1] * np.array([-1.96, 1.96])
    assert off < 0.05 * spread
    assert off < 0.5 * np.abs(normal - exact).max()
