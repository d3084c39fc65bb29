"""Factor models: every row against a fit of its own, gradients against differences, closed forms, monotone learning."""

import tracemalloc

import numpy as np
import pytest
from factor_tables import factor_model, parameters_of
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import FactorAnalysis

import fenchel
from fenchel.factors.prediction import cells as cells_of
from fenchel.factors.row_engines import row_problems
from fenchel.factors.row_search import solve_rows, some_rows
from fenchel.factors.selection import integrated
from fenchel.factors.starts import Starts
from fenchel.factors.table_evidence import learn, rotated
from fenchel.likelihoods import BernoulliLogit, Gaussian, MultinomialLogit, Ordinal, Poisson
from fenchel.linalg import small
from fenchel.priors import Features
from fenchel.priors.batched import BatchedFeatures

KINDS = ["bernoulli", "poisson", "multinomial", "gaussian", "multinomial", "bernoulli"]
LEVELS = [2, 0, 3, 0, 4, 2]


def mixed_table(rows=7, seed=0, holes=0.2):
    rng = np.random.default_rng(seed)
    columns = []
    for kind, K in zip(KINDS, LEVELS, strict=True):
        if kind == "poisson":
            columns.append(rng.poisson(2.0, rows))
        elif kind == "gaussian":
            columns.append(rng.normal(size=rows) * 2 + 1)
        else:
            columns.append(rng.integers(0, max(K, 2), rows))
    values = np.stack(columns, axis=1).astype(float)
    values[rng.random(values.shape) < holes] = np.nan
    return values


def parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    variance = np.where(model.gaussian, 0.7, np.nan)
    shape = (model.n_predictors, model.n_components)
    return parameters_of(model, rng.normal(size=shape), 0.3 * rng.normal(size=shape[0]), variance)


# -- the cellar ------------------------------------------------------------------------------------
@given(st.integers(0, 10_000), st.integers(1, 7))
def test_small_matrices_against_numpy(seed, L):
    rng = np.random.default_rng(seed)
    X, V, b = rng.normal(size=(5, 9, L)), rng.normal(size=(5, L, L)), rng.normal(size=(5, L))
    G = np.einsum("rni,rnj->rij", X, X)
    V = V + np.swapaxes(V, 1, 2)
    i, j = np.tril_indices(L)
    assert small.size_of(i.size) == L
    np.testing.assert_allclose(small.unpack(G[:, i, j]), G)
    inverse, log_det, failed = small.inverses(G[:, i, j])
    assert failed == 0
    np.testing.assert_allclose(log_det, np.linalg.slogdet(np.eye(L) + G)[1], rtol=1e-10)
    np.testing.assert_allclose(small.unpack(inverse), np.linalg.inv(np.eye(L) + G), rtol=1e-7, atol=1e-12)
    factors = small.cholesky(np.moveaxis(np.eye(L) + G, 0, -1).copy())
    x = small.solve(factors, b.T.copy()).T
    np.testing.assert_allclose(x, np.linalg.solve(np.eye(L) + G, b[..., None])[..., 0], rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(small.multiply(V[:, i, j], b), np.einsum("rij,rj->ri", V, b), atol=1e-12)
    product = small.unpack(small.sandwich(V[:, i, j], G[:, i, j]))
    np.testing.assert_allclose(product, V @ G @ V, rtol=1e-9, atol=1e-9)
    W = rng.normal(size=(4, L))
    along = V[:, i, j] @ small.doubled(small.pairs(W)).T
    np.testing.assert_allclose(along, np.einsum("pi,rij,pj->rp", W, V, W), atol=1e-10)
    broken = np.full((1, i.size), -5.0)
    assert small.inverses(broken)[2] == 1


# -- the batch -------------------------------------------------------------------------------------
LIKELIHOODS = [
    BernoulliLogit("log-sum"),
    BernoulliLogit("tilted"),
    BernoulliLogit("exact"),
    Poisson(),
    Gaussian(0.5),
    Ordinal([-1.0, 1.0], "tilted"),
    MultinomialLogit(4, bound="log-sum"),
]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
@pytest.mark.parametrize("economical", [True, False])
def test_each_row_is_a_fit_of_its_own(likelihood, economical, monkeypatch):
    """With the cheap curvature and with the exact one, holes included."""
    if not economical:
        from fenchel.solvers import MirrorDirection

        plain = MirrorDirection.system
        monkeypatch.setattr(MirrorDirection, "system", lambda self, point, economical=False: plain(self, point))
    rng = np.random.default_rng(1)
    R, D, L, C = 6, 7, 3, likelihood.n_predictors
    W, b = rng.normal(size=(D * C, L)), 0.3 * rng.normal(size=D * C)
    y = rng.integers(0, 2, (R, D)).astype(float)
    y[0, 2] = np.nan
    y[3, :5] = np.nan
    y[5] = np.nan  # a row that says nothing
    batch = fenchel.infer(likelihood, BatchedFeatures(W, R, b), y.ravel(), tol=1e-13)
    assert batch.gap < 1e-8
    total = 0.0
    for r in range(R):
        alone = fenchel.infer(likelihood, Features(W, 1.0, offset=b if C == 1 else b.reshape(D, C)), y[r], tol=1e-13)
        total += alone.elbo
        both = ((getattr(fit.posterior, name) for fit in (batch, alone)) for name in ("mean", "variance"))
        for ours, theirs in both:
            np.testing.assert_allclose(ours.reshape(R, -1)[r], np.ravel(theirs), atol=5e-6)
        np.testing.assert_allclose(batch.posterior.latent_mean.reshape(R, L)[r], alone.posterior.latent_mean, atol=5e-6)
        np.testing.assert_allclose(
            batch.posterior.latent_variance.reshape(R, L)[r], alone.posterior.latent_variance, atol=5e-6
        )
        loo = alone.loo(rng=0).log_density
        np.testing.assert_allclose(batch.loo(rng=0).log_density.reshape(R, D)[r], loo, atol=2e-2 if C > 1 else 1e-5)
    assert batch.elbo == pytest.approx(total, abs=1e-9)
    draws = batch.posterior.sample(4000, rng=0).reshape(4000, -1)
    np.testing.assert_allclose(draws.var(axis=0), batch.posterior.variance.ravel(), rtol=0.25)


def test_what_a_batch_does_not_answer_is_said():
    sol = fenchel.infer(Poisson(), BatchedFeatures(np.ones((2, 1)), 3), np.arange(6.0))
    for ask in (sol.posterior.covariance, lambda: sol.posterior.predict(design=np.ones((1, 1)))):
        with pytest.raises(ValueError, match="batch of small models"):
            ask()
    with pytest.raises(ValueError, match="one row of features"):
        fenchel.infer(Poisson(), BatchedFeatures(np.ones((2, 1)), 3), np.arange(5.0))
    with pytest.raises(ValueError, match="loadings"):
        BatchedFeatures(np.ones(3), 2)


# -- the model -------------------------------------------------------------------------------------
@pytest.mark.parametrize("bound", ["tilted", "log-sum", "exact"])
@pytest.mark.parametrize("noise", ["column", "shared"])
def test_gradients_against_differences(bound, noise):
    model, values = factor_model(KINDS, LEVELS, 2, bound, noise), mixed_table()
    at = parameters(model)
    evidence = model.evidence(values, at, tol=1e-16)

    def value(W=at.loadings, b=at.offset, v=at.variance):
        return model.evidence(values, parameters_of(model, W, b, v), tol=1e-16).elbo

    rng = np.random.default_rng(0)
    for name, point, gradient in (("W", at.loadings, evidence.loadings), ("b", at.offset, evidence.offset)):
        e = rng.normal(size=point.shape)
        numeric = (value(**{name: point + 1e-4 * e}) - value(**{name: point - 1e-4 * e})) / 2e-4
        finer = (value(**{name: point + 5e-5 * e}) - value(**{name: point - 5e-5 * e})) / 1e-4
        assert np.sum(gradient * e) == pytest.approx((4 * finer - numeric) / 3, rel=1e-6, abs=1e-6)
    up, down = (value(v=at.variance * np.exp(s)) for s in (1e-4, -1e-4))
    assert evidence.own.sum() == pytest.approx((up - down) / 2e-4, rel=1e-6, abs=1e-6)


def test_rows_add_up_and_warm_starts_help(monkeypatch):
    from fenchel.factors import factor_model as module

    model, values = factor_model(KINDS, LEVELS, 2), mixed_table(rows=40)
    at = parameters(model)
    whole = model.rows(values, at, tol=1e-12)
    evidence = model.evidence(values, at, tol=1e-12)
    assert whole.converged
    assert whole.elbo.sum() == pytest.approx(evidence.elbo, rel=1e-10)
    assert whole.gap.sum() == pytest.approx(evidence.gap, rel=1e-6, abs=1e-14)
    again = model.rows(values, at, whole.start, tol=1e-8)
    assert again.n_iter == 0
    monkeypatch.setattr(module, "_CELLS", 50)  # many stretches of rows instead of one
    pieces = model.rows(values, at, tol=1e-12)
    np.testing.assert_allclose(pieces.mean, whole.mean, atol=1e-5)
    np.testing.assert_allclose(pieces.elbo, whole.elbo, atol=1e-8)
    exact = factor_model(KINDS[:2], LEVELS[:2], 2, "exact")
    fits = exact.rows(values[:, :2], parameters(exact), tol=1e-10)
    assert fits.converged
    assert (fits.gap >= 0).all()


def test_gaussian_columns_are_factor_analysis_and_probabilistic_pca():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 8)) + rng.normal(size=(300, 8)) * np.linspace(0.3, 1, 8) + 2
    theirs = FactorAnalysis(3, tol=1e-13, max_iter=100_000, svd_method="lapack").fit(X)
    ours = learn(factor_model(["gaussian"] * 8, [0] * 8, 3), X, strength=0.0, tol=1e-13, max_iter=3000)
    assert ours.elbo == pytest.approx(theirs.score(X) * 300, rel=1e-6)
    W = theirs.components_
    np.testing.assert_allclose(ours.parameters.loadings @ ours.parameters.loadings.T, W.T @ W, atol=2e-3)
    # Tipping and Bishop: W = U (Lam - v I)^1/2, v the mean of the discarded eigenvalues of the covariance
    roots, U = np.linalg.eigh(np.cov(X.T, bias=True))
    v = roots[:5].mean()
    closed = -150 * (8 * np.log(2 * np.pi) + np.log(roots[5:]).sum() + 5 * np.log(v) + 8)
    ours = learn(factor_model(["gaussian"] * 8, [0] * 8, 3, noise="shared"), X, strength=0.0, tol=1e-13, max_iter=3000)
    assert ours.elbo == pytest.approx(closed, rel=1e-6)
    assert ours.parameters.variance[0] == pytest.approx(v, rel=1e-4)
    np.testing.assert_allclose(
        ours.parameters.loadings @ ours.parameters.loadings.T, (U[:, 5:] * (roots[5:] - v)) @ U[:, 5:].T, atol=2e-3
    )


@pytest.mark.parametrize("bound", ["tilted", "exact"])
def test_learning_never_falls_and_ends_where_the_slope_does(bound):
    values = mixed_table(rows=60, seed=3)
    found = learn(factor_model(KINDS, LEVELS, 2, bound), values, strength=1.0, tol=1e-10, n_init=2, rng=0)
    assert found.converged, found.status
    assert (np.diff(found.trace) >= -1e-9 * abs(found.objective)).all()
    assert len(found.restarts) == 2
    model = factor_model(KINDS, LEVELS, 2, bound)
    evidence = model.evidence(values, found.parameters, tol=1e-13)
    assert np.abs(evidence.loadings - found.parameters.loadings).max() < 0.02
    centre = Starts(model, values).principal().offset
    pull = np.where(np.repeat(model.gaussian, model.widths), 0.0, 0.01 * (found.parameters.offset - centre))
    assert np.abs(evidence.offset - pull).max() < 0.02


def test_rotation_changes_nothing_but_the_axes():
    model, values = factor_model(KINDS, LEVELS, 2), mixed_table(rows=20)
    at = parameters(model)
    turned = rotated(at)
    inner = turned.loadings.T @ turned.loadings
    assert inner[0, 0] >= inner[1, 1]
    assert abs(inner[0, 1]) < 1e-10
    assert (turned.loadings.max(axis=0) >= -turned.loadings.min(axis=0)).all()
    one, other = (model.evidence(values, p, tol=1e-12).elbo for p in (at, turned))
    assert one == pytest.approx(other, rel=1e-9)


def test_a_learned_strength_is_mackays_fixed_point_and_noise_gets_no_factors():
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 2, (200, 8)).astype(float)
    signal = (rng.random((200, 8)) < 1 / (1 + np.exp(-2.0 * rng.normal(size=(200, 1))))).astype(float)
    fits = {
        name: [learn(factor_model(["bernoulli"] * 8, [2] * 8, L), table) for L in (1, 2)]
        for name, table in (("noise", noise), ("signal", signal))
    }
    assert fits["noise"][0].strength > 10 * fits["signal"][0].strength
    evidence = [integrated(factor_model(["bernoulli"] * 8, [2] * 8, L), signal, fits["signal"][L - 1]) for L in (1, 2)]
    assert evidence[0] > evidence[1]  # one factor made the table


def test_cells_predict_by_quadrature_and_by_draws():
    model = factor_model(KINDS, LEVELS, 2)
    at, rng = parameters(model), np.random.default_rng(0)
    mean, root = np.array([[0.3, -0.5]]), rng.normal(size=(2, 2))
    cells = cells_of(model, mean, (root @ root.T)[None], at, np.ones((1, 6), dtype=bool))
    z = mean + rng.normal(size=(200_000, 2)) @ root.T
    eta = z @ at.loadings.T + at.offset
    p = 1 / (1 + np.exp(-eta[:, 0]))
    assert cells[0][0, 1] == pytest.approx(p.mean(), abs=5e-3)
    rate = np.exp(eta[:, 1])
    assert cells[1][0][0] == pytest.approx(rate.mean(), rel=0.1)
    soft = np.exp(np.column_stack([eta[:, 2:4], np.zeros(len(eta))]))
    np.testing.assert_allclose(cells[2][0], (soft / soft.sum(1, keepdims=True)).mean(0), atol=1e-2)
    assert cells[3][0][0] == pytest.approx(eta[:, 4].mean(), abs=0.02)
    assert cells[3][1][0] == pytest.approx(np.sqrt(eta[:, 4].var() + 0.7), rel=0.02)
    for cell in cells_of(model, mean, np.zeros((1, 2, 2)), at, np.ones((1, 6), dtype=bool)):
        assert np.isfinite(cell[0]).all()


def test_starts_are_finite_on_awkward_tables():
    values = mixed_table(rows=5)
    values[:, 1] = np.nan  # a column without data
    values[:, 3] = 2.0  # a constant one
    values[:, 0] = 1.0  # one level only
    values[:, 2] = 0.0
    model = factor_model(KINDS, LEVELS, 2)
    starts = Starts(model, values)
    for start in (starts.principal(), starts.at_random(np.random.default_rng(0))):
        assert np.isfinite(start.loadings).all()
        assert np.isfinite(start.offset).all()
        assert np.isfinite(model.evidence(values, start).elbo)


def test_offsets_of_what_was_never_seen_stay_finite():
    values = mixed_table(rows=60, seed=3)
    values[:, 1] = 0.0  # no count at all
    values[:, 4] = np.where(values[:, 4] == 3.0, 0.0, values[:, 4])  # a level that does not occur
    found = learn(factor_model(KINDS, LEVELS, 2), values, n_init=1)
    assert found.converged, found.status
    assert np.abs(found.parameters.offset).max() < 30.0


def test_refusals():
    with pytest.raises(ValueError, match="between 1 and 2"):
        factor_model(["bernoulli", "poisson"], [2, 0], 3)
    with pytest.raises(ValueError, match="strength"):
        learn(factor_model(["bernoulli"], [2], 1), np.ones((3, 1)), strength="strong")


# -- the search of all rows ------------------------------------------------------------------------
def _ordinal_too(L, rows):
    """A model with ordered levels beside the others, its parameters and a table."""
    model = factor_model([*KINDS, "ordinal"], [*LEVELS, 4], L)
    rng = np.random.default_rng(2)
    shape = (model.n_predictors, L)
    offset = 0.3 * rng.normal(size=shape[0])
    offset[-1] = 0.0
    variance = np.where(model.gaussian, 0.7, np.nan)
    p = parameters_of(model, rng.normal(size=shape), offset, variance, [-1.0, 0.0, 1.5])
    return model, p, np.column_stack([mixed_table(rows), rng.integers(0, 4, rows)])


def test_a_row_does_not_depend_on_the_rows_beside_it():
    model, p, values = _ordinal_too(2, 40)
    values[3] = np.nan  # ends at once
    values[5, 1] = 400.0  # takes many steps
    together = model.rows(values, p)
    alone = [model.rows(values[[r]], p) for r in range(len(values))]
    assert together.converged
    assert len({one.n_iter for one in alone}) > 2  # so that rows leave the arrays at different times
    for r, one in enumerate(alone):
        assert together.elbo[r] == pytest.approx(one.elbo[0], abs=1e-7)
        np.testing.assert_allclose(together.mean[r], one.mean[0], atol=1e-4)
        np.testing.assert_allclose(together.covariance[r], one.covariance[0], atol=1e-4)


@pytest.mark.parametrize("L", [2, 5])
def test_newtons_whole_system_is_the_same_for_one_row_and_for_many(L):
    """Its largest part is computed in one of two ways, by the number of rows."""
    _, p, values = _ordinal_too(L, 60)
    with np.errstate(all="ignore"):
        problems = row_problems(values, p)
        s = problems.begin()
        at = problems.at(s)
        ds, promised = problems.newton(at, True)
        for r in (0, 7, 59):
            row = np.array([r])
            alone, own = problems.take(row).newton(some_rows(at, row), True)
            np.testing.assert_allclose(alone[:, 0], ds[:, r], rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(own[0], promised[r], rtol=1e-8, atol=1e-12)


def test_a_singular_system_ends_its_own_row_alone():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 30, 7))
    H, r = np.einsum("ikr,jkr->ijr", X, X), rng.normal(size=(30, 7))
    expected = np.linalg.solve(H.transpose(2, 0, 1), r.T[:, :, None])[:, :, 0].T
    H[..., 4] = 0.0
    x = solve_rows(H, r)
    assert np.isnan(x[:, 4]).all()
    others = np.arange(7) != 4
    np.testing.assert_allclose(x[:, others], expected[:, others], rtol=1e-10)


def test_many_factors_need_no_array_larger_than_their_matrices():
    """Rows of 30 predictors and 24 factors: the matrices of all rows together are some 5 MB."""
    model = factor_model(["bernoulli"] * 26 + ["multinomial"], [2] * 26 + [5], 24)
    p = parameters(model)
    values = np.random.default_rng(0).integers(0, 2, size=(1000, 27)).astype(float)
    tracemalloc.start()
    fit = model.evidence(values, p)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fit.optimal
    assert peak < 80e6
