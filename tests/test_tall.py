"""Very many rows: passes over them against matrices written out, straight steps, what a preconditioner leaves out."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from conftest import CONVEX_CASES
from scipy.special import expit

import fenchel
from fenchel import gates
from fenchel.hyperparameters import WeightVariances, learn
from fenchel.likelihoods import BernoulliLogit, MultinomialLogit, Poisson
from fenchel.likelihoods.bounds import ConvexBound
from fenchel.linalg import machine
from fenchel.linalg.design import Design, Identity, Index, RowBlocks, Scaled
from fenchel.linalg.matrix_designs import as_design
from fenchel.linalg.standardized import Standardized
from fenchel.priors import DenseCovariance, Features, SparsePrecision
from fenchel.priors.weightspace import OwnFactor, Woodbury
from fenchel.problem import Problem
from fenchel.solvers import initial_point


@pytest.fixture(params=["one block", "blocks", "blocks on cores"])
def blocks(request, monkeypatch):
    """The same few rows as one block, as many, and on several threads."""
    if request.param != "one block":
        monkeypatch.setattr(machine, "_CACHE", 40)
        monkeypatch.setattr(machine, "_FEWEST", 3)
        monkeypatch.setattr(machine, "_ELEMENTWISE", 7)
    if request.param == "blocks on cores":
        monkeypatch.setattr(machine, "_SMALL", 0)
        monkeypatch.setattr(machine, "PARALLEL", 0)
        monkeypatch.setattr(machine, "cores", lambda: 3)


def designs():
    """Every kind of design, and the matrix it stands for."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(101, 9)) * (rng.random((101, 9)) < 0.6)
    X[:, -1] = 1.0
    index, scale = rng.integers(0, 9, 101), rng.random(9)
    yield "dense", as_design(X), X
    yield "columns first", as_design(np.asfortranarray(X)), X
    yield "ones", Standardized(X[:, :-1]), X
    yield "sparse", as_design(sp.csr_array(X)), X
    yield "identity", Identity(9), np.eye(9)
    yield "index", Index(index, 9), np.eye(9)[index]
    yield "scaled", Scaled(as_design(sp.csr_array(X)), scale), X * scale
    yield "scaled index", Scaled(Index(index, 9), scale), np.eye(9)[index] * scale
    parts = [as_design(X[:40]), as_design(sp.csr_array(X[40:90])), Standardized(X[90:, :-1])]
    yield "blocks of rows", RowBlocks(parts), X


@pytest.mark.parametrize(("design", "X"), [pytest.param(*pair, id=name) for name, *pair in designs()])
def test_passes(blocks, design, X):
    rng = np.random.default_rng(1)
    R, L = X.shape
    u, w, Q = rng.normal(size=L), rng.random(R), rng.normal(size=(L, L))
    rows_of = rng.permutation(R)[: R // 2]
    for D, Z, keep in ((design, X, np.arange(R)), (design.take(rows_of), X[rows_of], rows_of)):
        a, A, v = rng.normal(size=len(keep)), rng.normal(size=(len(keep), 3)), w[keep]
        assert D.shape == Z.shape
        np.testing.assert_allclose(D.toarray(), Z)
        np.testing.assert_allclose(D.csr().toarray(), Z)
        np.testing.assert_allclose(D.times(u), Z @ u)
        np.testing.assert_allclose(D.times(Q), Z @ Q)
        np.testing.assert_allclose(D.beside(Q), Q @ Z.T)
        np.testing.assert_allclose(D.adjoint(a), Z.T @ a)
        np.testing.assert_allclose(D.adjoint(A), Z.T @ A)
        G = np.outer(a, a) + np.eye(len(keep))
        np.testing.assert_allclose(D.pull_back(G), Z.T @ G @ Z, atol=1e-12)
        for weight in (v, v - 0.5, 0.0 * v):
            np.testing.assert_allclose(D.gram(weight), Z.T @ np.diag(weight) @ Z, atol=1e-12)
            for other, Y in ((D, Z), (as_design(2.0 * Z), 2.0 * Z), (Scaled(as_design(Z), u), Z * u)):
                np.testing.assert_allclose(D.between(weight, other), Z.T @ np.diag(weight) @ Y, atol=1e-12)
        for U in (Q, np.triu(Q), np.triu(Q)[:, :4], Q[:, :3]):
            np.testing.assert_allclose(D.row_squares(U), ((Z @ U) ** 2).sum(axis=1))
            np.testing.assert_allclose(D.row_variances(U, lambda U=U: U @ U.T), ((Z @ U) ** 2).sum(axis=1))
        np.testing.assert_allclose(D.row_products(Q), ((Z @ Q) * Z).sum(axis=1))
        np.testing.assert_allclose(D.row_norms(u**2), (Z**2) @ u**2)


class Streamed(Design):
    """Rows that are made when they are asked for and never kept: a user's own design."""

    def __init__(self, n, seeds):
        self.n, self.seeds, self.shape = n, seeds, (n * len(seeds), 3)

    def __iter__(self):
        return (np.random.default_rng(seed).normal(size=(self.n, 3)) for seed in self.seeds)

    def times(self, u):
        return np.concatenate([X @ u for X in self])

    def adjoint(self, a):
        return sum(X.T @ a[i * self.n : (i + 1) * self.n] for i, X in enumerate(self))

    def gram(self, weight):
        return sum(X.T @ (weight[i * self.n : (i + 1) * self.n, None] * X) for i, X in enumerate(self))

    def row_squares(self, U):
        return np.concatenate([((X @ U) ** 2).sum(axis=1) for X in self])

    def row_products(self, Q):
        return np.concatenate([((X @ Q) * X).sum(axis=1) for X in self])

    def take(self, rows):
        raise AssertionError("every row is observed")

    def toarray(self):
        raise AssertionError("it does not fit")


@pytest.mark.parametrize("likelihood", [Poisson(), BernoulliLogit("exact"), MultinomialLogit(2, None, "tilted")])
def test_rows_that_never_are_one_array(likelihood):
    """A fit, its certificate, its prediction and its gradient ask a design for products alone."""
    streamed = Streamed(50, [1, 2, 3, 4])
    W = np.concatenate(list(streamed))
    y = (np.random.default_rng(0).random(200) < 0.4).astype(float)
    sol, plain = (fenchel.infer(likelihood, Features(design, [1.0, 2.0, 3.0]), y) for design in (streamed, W))
    assert sol.elbo == pytest.approx(plain.elbo, abs=1e-10)
    for a, b in zip(sol.posterior.predict(design=streamed), plain.posterior.predict(design=W), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    for a, b in zip(sol.posterior.gradient_covariance(), plain.posterior.gradient_covariance(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("n", [40, 6])  # in the space of the latents, and of the rows
def test_any_design_serves_any_prior(n):
    """An index of latents that rows share, and rows in parts, against the matrices they stand for; with a hole."""
    rng = np.random.default_rng(2)
    index, X, root = rng.integers(0, 4, n), rng.normal(size=(n, 4)), rng.normal(size=(4, 4))
    y = rng.poisson(2.0, n).astype(float)
    y[1] = np.nan
    parts = RowBlocks([as_design(X[:2]), as_design(sp.csr_array(X[2:4])), as_design(X[4:])])
    for design, matrix in ((Index(index, 4), np.eye(4)[index]), (parts, X)):
        for prior in (
            lambda W: Features(W, [1.0, 2.0, 3.0, 4.0]),
            lambda W: DenseCovariance(root @ root.T + np.eye(4), design=W),
            lambda W: SparsePrecision(sp.eye_array(4) * 2.0, design=W),
        ):
            ours, theirs = (fenchel.infer(Poisson(), prior(W), y, tol=1e-13) for W in (design, matrix))
            assert ours.elbo == pytest.approx(theirs.elbo, abs=1e-10)
            for name in ("mean", "variance", "latent_mean", "latent_variance"):
                np.testing.assert_allclose(getattr(ours.posterior, name), getattr(theirs.posterior, name), atol=1e-9)
            for a, b in zip(ours.posterior.adjoint().mean, theirs.posterior.adjoint().mean, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-9)
            for a, b in zip(
                ours.posterior.predict(design=design), theirs.posterior.predict(design=matrix), strict=True
            ):
                np.testing.assert_allclose(a, b, atol=1e-9)


def test_elementwise_blocks(blocks):
    x = np.linspace(-800.0, 800.0, 60)

    def one(block):
        square = x[block] ** 2
        return square, None, np.exp(x[block]), square  # overflows: the caller's errstate holds on every core

    with np.errstate(over="ignore"):
        square, none, exp, again = machine.in_blocks(60, one)
        np.testing.assert_array_equal(exp, np.exp(x))
    assert none is None
    assert again is square
    np.testing.assert_array_equal(square, x**2)


@pytest.mark.parametrize("likelihood", [BernoulliLogit("tilted"), Poisson(), MultinomialLogit(3, None, "tilted")])
def test_a_fit_in_blocks_is_the_same_fit(blocks, likelihood):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    y = rng.integers(0, 2, 60).astype(float)
    y[5] = np.nan
    W = np.column_stack([X, np.ones(60)])
    plain = fenchel.infer(likelihood, Features(W, [1.0, 2.0, 3.0, 9.0]), y, tol=1e-12)
    ones = fenchel.infer(likelihood, Features(Standardized(X), [1.0, 2.0, 3.0, 9.0]), y, tol=1e-12)
    assert ones.elbo == pytest.approx(plain.elbo, abs=1e-9)
    np.testing.assert_allclose(ones.posterior.variance, plain.posterior.variance, rtol=1e-6)
    wide = fenchel.infer(likelihood, Features(Standardized(X[:6]), 1.0), y[:6])  # in the space of the rows
    assert wide.elbo == pytest.approx(fenchel.infer(likelihood, Features(W[:6], 1.0), y[:6]).elbo, abs=1e-9)


@pytest.mark.parametrize(("likelihood", "y"), CONVEX_CASES)
def test_straight_is_straight_in_tau(likelihood, y):
    """tau(straight(s, ds)) = tau(s) + J ds, and s + ds to first order; a long step is refused."""
    rng, row = np.random.default_rng(2), likelihood.prepare(y)
    s = likelihood.objective.start(row, 1.0) + 0.5 * rng.normal(size=(len(y), len(likelihood.objective.layout)))
    ds = rng.uniform(-0.3, 0.3, s.shape)
    there = likelihood.objective.straight(s, ds, row)
    if there is None:
        bound = likelihood.objective
        assert len(bound.layout) > 1 or type(bound).straight is ConvexBound.straight
        return
    site = likelihood.objective.site(s, row)
    move = site.spread * ds
    if site.slack is not None:
        move -= site.spread * (move.sum(axis=1) / (site.slack + site.spread.sum(axis=1)))[:, None]
    np.testing.assert_allclose(likelihood.objective.site(there, row).tau, site.tau + move, rtol=1e-12, atol=1e-14)
    small = likelihood.objective.straight(s, 1e-6 * ds, row)
    np.testing.assert_allclose(small - s, 1e-6 * ds, atol=1e-12)
    assert likelihood.objective.straight(s, ds - 5.0 * np.eye(*s.shape), row) is None


@pytest.mark.parametrize(
    "likelihood",
    [
        BernoulliLogit("tilted"),
        BernoulliLogit("log-sum"),
        Poisson(),
        MultinomialLogit(3, None, "tilted"),
        MultinomialLogit(3, "last", "log-sum"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_what_a_preconditioner_leaves_out(likelihood, spread):
    """|P^-1/2 (H - P) P^-1/2| <= left_out, H being Newton's matrix written out."""
    rng = np.random.default_rng(3)
    n, C = 40, likelihood.n_predictors
    W = rng.normal(size=(n, 3))
    problem = Problem(likelihood, Features(W, [0.5, 1.0, 2.0]), rng.integers(0, 2, n), weights=rng.uniform(0.5, 2, n))
    point = problem.at(spread * rng.normal(size=(n, C)))
    system = point.newton_system()
    S, Vt = W @ np.diag([0.5, 1.0, 2.0]) @ W.T, point.factor.covariance()
    M = scipy.linalg.block_diag(*[S] * C)
    slope = np.ravel(system.slope.T)
    M += 0.5 * slope[:, None] * scipy.linalg.block_diag(*Vt) ** 2 * slope[None, :]
    columns = np.ravel(np.arange(n * C).reshape(n, C).T)  # (N, C) flattened, in the order of the blocks

    for cls in (Woodbury,) if system.slack is not None else (OwnFactor, Woodbury):
        P = cls(point.factor, system)
        inverse = np.stack([np.ravel(P.solve(np.reshape(e, (n, C)))) for e in np.eye(n * C)], axis=1)
        inverse = inverse[np.ix_(columns, columns)]
        # on the range of J: H = J^-1 + M + extra there, and what P leaves out is a matrix without J
        left = 0.5 * slope[:, None] * scipy.linalg.block_diag(*Vt) ** 2 * slope[None, :]
        left -= np.diag(np.ravel((P.diagonal + 0.0 * system.g).T))
        values = scipy.linalg.eigvals(inverse @ left).real
        assert np.abs(values).max() <= P.left_out * (1 + 1e-9)


def test_a_sample_is_spread_out_and_stands_for_all(monkeypatch):
    keep = initial_point.sample(1000)
    assert keep.size == 1000 // initial_point.SHARE
    np.testing.assert_array_equal(keep // initial_point.SHARE, np.arange(keep.size))
    np.testing.assert_array_equal(keep, initial_point.sample(1000))
    monkeypatch.setattr(gates, "SAMPLED_START", 1000)
    rng = np.random.default_rng(4)
    W = rng.normal(size=(6000, 2))
    y = (W[:, 0] + rng.logistic(size=6000) > 0).astype(float)
    y[::7] = np.nan
    problem = Problem(BernoulliLogit("tilted"), Features(W), y)
    assert initial_point.is_tall(problem)
    few = initial_point.sampled(problem)
    assert few.weight.sum() == pytest.approx(problem.weight.sum(), rel=0.01)
    assert not initial_point.is_tall(few)
    np.testing.assert_array_equal(few.predictors.features[0].base.X, W[few.active])
    s = initial_point.start_of(problem, few, few.at(np.zeros((few.active.size, 1))).alpha)
    assert s.shape == problem.weight[:, None].shape


def test_latent_covariance():
    rng = np.random.default_rng(5)
    v = np.array([0.5, 1.0, 2.0])
    for n in (30, 4):  # in the space of the weights, and of the rows
        W, y = rng.normal(size=(n, 3)), rng.integers(0, 2, n)
        for likelihood in (BernoulliLogit("log-sum"), MultinomialLogit(3, None, bound="log-sum")):
            sol = fenchel.infer(likelihood, Features(W, v), y)
            lam = np.asarray(sol.lam)
            V = [np.linalg.inv(np.diag(1 / v) + W.T @ np.diag(lam[:, c]) @ W) for c in range(lam.shape[1])]
            np.testing.assert_allclose(sol.posterior.latent_covariance(), V[0] if len(V) == 1 else V, atol=1e-10)
    sol = fenchel.infer(Poisson(), SparsePrecision(sp.eye_array(4, format="csc")), [1.0, 0.0, 2.0, 1.0])
    with pytest.raises(ValueError, match=r"posterior\.latent_covariance: the covariance of sparse latents is a full"):
        sol.posterior.latent_covariance()


def test_predictions_of_narrow_posteriors():
    """What many rows leave: E[sigmoid] and E[softmax] at small variances, against a product rule of many nodes."""
    rng = np.random.default_rng(6)
    x, w = np.polynomial.hermite_e.hermegauss(40)
    w = w / w.sum()
    h, rho = np.linspace(-40.0, 40.0, 81), rng.uniform(0.0, 0.12, 81)
    tau = 1.0 / (1.0 + np.exp(-(h[:, None] + np.sqrt(rho)[:, None] * x)))
    np.testing.assert_allclose(BernoulliLogit("log-sum").predictive_mean(h, rho), tau @ w, rtol=1e-12)
    for reference in (None, "last"):
        likelihood = MultinomialLogit(3, reference, bound="log-sum")
        C = likelihood.n_predictors
        h, rho = 2.0 * rng.normal(size=(9, C)), rng.uniform(0.0, 0.01, (9, C))
        rho[4] = 0.5  # a wide row among them is drawn, and does not touch the others
        nodes = np.stack(np.meshgrid(*[x] * C, indexing="ij"), axis=-1).reshape(-1, C)
        weights = np.prod(np.stack(np.meshgrid(*[w] * C, indexing="ij"), axis=-1).reshape(-1, C), axis=1)
        eta = h[:, None, :] + np.sqrt(rho)[:, None, :] * nodes
        e = np.exp(np.concatenate([eta, np.zeros_like(eta[..., :1])][: 1 + (reference == "last")], axis=2))
        exact = np.einsum("nmk,m->nk", e / e.sum(axis=2, keepdims=True), weights)
        p = likelihood.predictive_probabilities(h, rho)
        narrow = np.arange(9) != 4
        np.testing.assert_allclose(p[narrow], exact[narrow], atol=1e-5)
        np.testing.assert_allclose(p[4], exact[4], atol=5e-3)
        np.testing.assert_allclose(likelihood.predictive_probabilities(h[:3], rho[:3]), p[:3], atol=1e-14)


def test_variances_of_few_entries_among_many_columns_make_no_dense_rows():
    """The peak is a few matrices of columns by columns, and no block of rows by columns."""
    import tracemalloc

    rng = np.random.default_rng(0)
    X = sp.csr_array((np.ones(12_000), rng.integers(0, 200, 12_000), 3 * np.arange(4001)), shape=(4000, 200))
    X.sum_duplicates()
    U, design = np.linalg.cholesky(np.cov(rng.normal(size=(200, 900)))), as_design(X)
    design.row_squares(U)  # compiled
    tracemalloc.start()
    found = design.row_squares(U)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.allclose(found, np.sum((X.toarray() @ U) ** 2, axis=1), rtol=1e-10)
    assert peak < 8 * U.nbytes < X.shape[0] * X.shape[1] * 8


def test_one_variance_of_many_weights_starts_by_moments():
    """Few Newton steps: the start is near the best variance, which the evidence on a grid says."""
    rng = np.random.default_rng(4)
    n, L, v = 4000, 30, 0.02
    X = rng.normal(size=(n, L))
    y = (rng.random(n) < expit(X @ (np.sqrt(v) * rng.normal(size=L)) - 0.5)).astype(float)
    groups = np.r_[np.zeros(L), -1]
    family = WeightVariances(np.column_stack([X, np.ones(n)]), groups, variance=np.r_[np.ones(L), 10.0])
    likelihood = BernoulliLogit("exact")
    found = learn(likelihood, family, y)
    grid = found.theta + np.array([-0.05, 0.0, 0.05])
    there = [fenchel.infer(likelihood, family.at(np.array([t])), y).elbo for t in grid]
    assert there[1] == max(there)
    share = y.mean()
    start = family.start_by_moments(y - share, np.full(n, share * (1.0 - share)))
    assert abs(start - found.theta) < np.log(2.0)
    assert found.n_newton <= 9  # from variance 1: 14 and more
    several = WeightVariances(X, np.arange(L) % 2)
    assert several.start_by_moments(y - share, np.ones(n)) is None
