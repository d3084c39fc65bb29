"""Vecchia's approximation: exact with all neighbours, nearer with more, and a model beside groups and covariates."""

import pickle

import numpy as np
import pandas as pd
import pytest
from conftest import difference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, Matern

import fenchel
from fenchel import terms
from fenchel.gmrf.vecchia import NUGGET, Vecchia, around, nearest, previous_neighbours, spread_order
from fenchel.kernels import KERNELS
from fenchel.models.pictures import process_on_grid
from fenchel.terms import DataTable, SumOfTerms, VecchiaProcess

RNG = np.random.default_rng(7)
X = RNG.random((70, 2)) * [1.0, 30.0]
THETA = np.log([1.3, 0.5, 20.0])
every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def covariance(kernel, theta, A, B=None):
    """By scikit-learn's kernels, whose length is half of a range; the nugget is of a point with itself."""
    lengths = np.exp(theta[1:]) / 2.0
    known = {"matern12": Matern(1.0, nu=0.5), "matern32": Matern(1.0, nu=1.5), "matern52": Matern(1.0, nu=2.5)}
    K = known.get(kernel, RBF(1.0))(A / lengths, None if B is None else B / lengths)
    return np.exp(2 * theta[0]) * (K + (NUGGET * np.eye(len(A)) if B is None else 0.0))


@every_kernel
def test_all_neighbours_are_the_process_itself(kernel):
    made, order = Vecchia.of(X, np.exp(THETA[1:]), 69, kernel, False)
    np.testing.assert_array_equal(made.X, X[order])
    Q, K = made(THETA)[0].toarray(), covariance(kernel, THETA, made.X)
    np.testing.assert_allclose(Q @ K, np.eye(70), atol=1e-6)
    assert np.linalg.slogdet(Q)[1] == pytest.approx(-np.linalg.slogdet(K)[1], abs=1e-5)


@every_kernel
@pytest.mark.parametrize("shared", [False, True])
def test_derivatives_in_the_hyperparameters(kernel, shared):
    made, _ = Vecchia.of(X, np.exp(THETA[1:]), 8, kernel, shared)
    theta = THETA[:2] + np.array([0.0, 2.0]) if shared else THETA
    Q, slopes = made(theta)
    numeric = difference(lambda t: made(t)[0].toarray(), theta, step=1e-5)
    for slope, other in zip(slopes, np.moveaxis(np.asarray(numeric), -1, 0), strict=True):
        rough = 1e-3 if kernel == "rbf" else 1e-6  # differences of entries near 1 / nugget
        np.testing.assert_allclose(slope.toarray(), other, atol=rough * np.abs(other).max())
    assert abs(Q - Q.T).max() <= 1e-12 * abs(Q).max()


@pytest.mark.parametrize("kernel", ["matern12", "matern32", "matern52"])
def test_more_neighbours_are_nearer(kernel):
    divergence = []
    for m in (2, 5, 10, 20, 40):
        made, _ = Vecchia.of(X, np.exp(THETA[1:]), m, kernel, False)
        Q, K = made(THETA)[0].toarray(), covariance(kernel, THETA, made.X)
        logs = np.linalg.slogdet(Q)[1] + np.linalg.slogdet(K)[1]
        divergence.append(0.5 * (np.trace(Q @ K) - 70 - logs))
    assert (np.diff(divergence) < 0).all()
    assert divergence[-1] < 0.02 * divergence[0]
    assert divergence[-1] > -1e-6


def by_definition(made, kernel, theta):
    """Q from the conditional of each point given its neighbours, by dense matrices."""
    n, ranges = len(made.X), np.append(theta[:1], np.broadcast_to(theta[1:], made.X.shape[1]))
    K, L, v = covariance(kernel, ranges, made.X), np.eye(n), np.empty(n)
    for i in range(n):
        near = made.neighbours[i][made.neighbours[i] >= 0]
        b = np.linalg.solve(K[np.ix_(near, near)], K[near, i])
        L[i, near], v[i] = -b, K[i, i] - b @ K[near, i]
    return L.T @ (L / v[:, None])


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(3, 40), st.integers(1, 12), st.integers(2, 40))
@settings(max_examples=40, deadline=None)
def test_the_precision_is_its_definition(seed, d, n, m, knots):
    rng = np.random.default_rng(seed)
    P = np.stack([rng.permutation(n) + 0.5 * rng.random(n) for _ in range(d)], axis=1) / n  # no two next to each other
    kernel, shared = ["matern12", "matern32"][seed % 2], bool(seed // 2 % 2)
    theta = np.append(rng.normal(), np.log(rng.uniform(0.3, 2.0, 1 if shared else d)))
    made, _ = Vecchia.of(P, np.exp(theta[1:]), m, kernel, shared, knots)
    Q, slopes = made(theta)
    np.testing.assert_allclose(Q.toarray(), by_definition(made, kernel, theta), atol=1e-6 * abs(Q).max())
    numeric = difference(lambda t: by_definition(made, kernel, t), theta, step=1e-5)
    for slope, other in zip(slopes, np.moveaxis(np.asarray(numeric), -1, 0), strict=True):
        np.testing.assert_allclose(slope.toarray(), other, atol=1e-5 * np.abs(other).max())
    assert (made.neighbours[min(knots, n) :] < knots).all()
    for i in range(min(knots, n), n):
        best = np.sort(cdist(made.X[[i]] / made.ranges(theta), made.X[:knots] / made.ranges(theta))[0])
        gap = np.sort(cdist(made.X[[i]], made.X[made.neighbours[i]])[0]) if shared or d == 1 else None
        if gap is not None:
            np.testing.assert_allclose(gap / made.ranges(theta)[0], best[: gap.size])


def test_across_a_gap_means_are_those_of_the_process():
    """Of which the nearest neighbours alone, all on one side, are twice as far away."""
    rng = np.random.default_rng(0)
    P, theta = rng.random((1500, 2)) * 10.0, np.log([1.0, 4.0])
    P = P[np.abs(P[:, 0] - 5.0) > 1.5]
    process, _ = Vecchia.of(P, np.full(2, 4.0), 15, "matern32", True)
    K = covariance("matern32", np.append(theta, theta[1]), process.X)
    new = np.column_stack([np.linspace(3.6, 6.4, 200), np.full(200, 5.0)])
    cross = covariance("matern32", np.append(theta, theta[1]), new, process.X)
    inner = K + 0.25 * np.eye(len(P))  # noisy observations
    sd = np.sqrt(1.0 - np.sum(np.linalg.solve(inner, cross.T).T * cross, axis=1))
    W, left = process.at(theta, new)
    near, plain = nearest(process.X, new, 15), np.zeros(cross.shape)
    for row, i, c in zip(plain, near, cross, strict=True):
        row[i] = np.linalg.solve(K[np.ix_(i, i)], c[i])

    def away(V):
        """Of means by weights V of the points' exact ones, in sds, over what may be observed."""
        D = V @ K - cross
        return np.sqrt(np.mean(np.sum(np.linalg.solve(inner, D.T).T * D, axis=1) / sd**2))

    assert away(W.toarray()) < 0.5 * away(plain)
    assert (left <= 1.0 - np.sum(plain * cross, axis=1) + NUGGET + 1e-12).all()
    both = around(process.X, new, 15)
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() >= 15 for row in both)
    assert all(set(a) <= set(b) for a, b in zip(near, both, strict=True))


def test_the_first_points_of_an_order_are_the_same_however_many_are_asked_for():
    Z = np.random.default_rng(5).random((900, 3))
    whole = spread_order(Z)
    for most in (1, 40, 333, 900):
        some = spread_order(Z, most)
        np.testing.assert_array_equal(some[:most], whole[:most])
        np.testing.assert_array_equal(np.sort(some), np.arange(900))


def test_knots_are_near_the_process_and_new_points_beside_them_cost_no_solve():
    rng = np.random.default_rng(1)
    P, theta = rng.random((800, 2)), np.log([1.0, 0.6])
    truth = covariance("matern32", np.append(theta, theta[1]), P)
    y = np.linalg.cholesky(truth) @ rng.normal(size=800) + 0.3 * rng.normal(size=800)
    model = SumOfTerms(
        [VecchiaProcess("x", "z", neighbours=20, knots=200, isotropic=True)],
        DataTable("here", {"x": P[:, 0], "z": P[:, 1]}),
        intercept=False,
    )
    family = model.family()
    sol = fenchel.infer(fenchel.Gaussian(0.09), family.at(theta), y, tol=1e-10)
    exact = multivariate_normal(np.zeros(800), truth + 0.09 * np.eye(800)).logpdf(y)
    table = DataTable("here", {"x": P[:, 0], "z": P[:, 1]})
    off = []
    for knots in (60, 200, 800):
        term = VecchiaProcess("x", "z", neighbours=20, knots=knots, isotropic=True)
        prior = SumOfTerms([term], table, intercept=False).family().at(theta)
        off.append(abs(fenchel.infer(fenchel.Gaussian(0.09), prior, y, tol=1e-10).elbo - exact))
    assert off[1] < 0.3 * off[0]
    assert max(off[1:]) < 3.0  # of 800 points
    numeric = difference(lambda t: fenchel.infer(fenchel.Gaussian(0.09), family.at(t), y, tol=1e-12).elbo, theta, 1e-4)
    np.testing.assert_allclose(family.gradient(sol, theta), numeric, rtol=1e-4, atol=1e-4)
    new = rng.random((100, 2))
    rows = model.new_rows(theta, DataTable("here", {"x": new[:, 0], "z": new[:, 1]}))
    h, rho = sol.posterior.predict(rows)
    cross = covariance("matern32", np.append(theta, theta[1]), new, P)
    gain = np.linalg.solve(truth + 0.09 * np.eye(800), cross.T).T
    sd = np.sqrt(1.0 - np.sum(gain * cross, axis=1))
    assert np.sqrt(np.mean(((h - gain @ y) / sd) ** 2)) < 0.15
    assert np.sqrt(np.mean(np.log(np.sqrt(rho) / sd) ** 2)) < 0.1
    process, W = model.effects[0].process, rows.design.tocsr()
    held = {*zip(process.indices.tolist(), np.repeat(np.arange(800), np.diff(process.indptr)).tolist(), strict=True)}
    for row in range(100):
        near = W.indices[W.indptr[row] : W.indptr[row + 1]].tolist()
        assert {(a, b) for a in near for b in near} <= held


def test_the_order_is_spread_out_and_neighbours_are_the_nearest_before():
    Z = RNG.random((600, 3))
    order = spread_order(Z)
    assert sorted(order) == list(range(600))
    Z = Z[order]
    D = cdist(Z, Z)
    gap = np.array([D[i, :i].min() for i in range(1, 600)])  # from each point to those before it
    farthest = np.array([D[i:, :i].min(axis=1).max() for i in range(1, 600)])  # what maximin would choose
    assert (gap > 0.5 * farthest - 1e-12)[10:].mean() > 0.95
    near = previous_neighbours(Z, 7)
    for i in (1, 4, 8, 50, 333, 599):
        best = np.sort(D[i, :i])[:7]
        np.testing.assert_allclose(np.sort(D[i, near[i][near[i] >= 0]]), best)


def test_regression_and_prediction_as_with_the_dense_process():
    y = np.sin(6 * X[:, 0]) + 0.1 * X[:, 1] + 0.2 * RNG.normal(size=70)
    table = DataTable("here", {"x": X[:, 0], "z": X[:, 1]})
    model = SumOfTerms([VecchiaProcess("x", "z", neighbours=69)], table, intercept=False)
    sol = fenchel.infer(fenchel.Gaussian(0.04), model.family().at(THETA), y, tol=1e-12)
    A = covariance("matern32", THETA, X) + 0.04 * np.eye(70)
    assert sol.elbo == pytest.approx(multivariate_normal(np.zeros(70), A).logpdf(y), abs=1e-5)
    new = np.vstack([RNG.random((9, 2)) * [1.2, 33.0], X[4]])
    h, rho = sol.posterior.predict(model.new_rows(THETA, DataTable("here", {"x": new[:, 0], "z": new[:, 1]})))
    cross = covariance("matern32", THETA, new, X)
    gain = np.linalg.solve(A, cross.T).T
    np.testing.assert_allclose(h, gain @ y, atol=1e-5)
    np.testing.assert_allclose(rho, np.exp(2 * THETA[0]) - np.sum(gain * cross, axis=1), atol=1e-5)
    few = SumOfTerms([VecchiaProcess("x", "z", neighbours=15)], table, intercept=False)
    near = fenchel.infer(fenchel.Gaussian(0.04), few.family().at(THETA), y, tol=1e-12)
    assert near.elbo == pytest.approx(sol.elbo, abs=0.5)


def test_the_evidence_gradient():
    table = DataTable("here", {"x": X[:, 0], "z": X[:, 1]})
    y = RNG.poisson(2.0, 70).astype(float)
    family = SumOfTerms([VecchiaProcess("x", "z", neighbours=10)], table).family()
    evidence = lambda t: fenchel.infer(fenchel.Poisson(), family.at(t), y, tol=1e-14)
    numeric = difference(lambda t: evidence(t).elbo, THETA, step=1e-4)
    np.testing.assert_allclose(family.gradient(evidence(THETA), THETA), numeric, rtol=1e-4, atol=1e-5)


def simulated(n, seed=0):
    """A process that moves along x ten times as fast as along z, a group and a covariate."""
    rng = np.random.default_rng(seed)
    P = rng.random((n, 2)) * [10.0, 100.0]
    f = np.linalg.cholesky(covariance("matern32", np.log([1.0, 4.0, 400.0]), P)) @ rng.normal(size=n)
    g, w = rng.integers(0, 10, n), rng.normal(size=n)
    y = 2.0 + f + 0.5 * w + 0.5 * rng.normal(size=10)[g] + 0.3 * rng.normal(size=n)
    return pd.DataFrame({"x": P[:, 0], "z": P[:, 1], "w": w, "g": g, "y": y}), f


def test_a_formula_with_a_group_and_a_covariate():
    data, f = simulated(300)
    fit = fenchel.Model("y ~ w + (1|g) + vecchia(x, z, neighbours=10)", data).fit()
    term = fit.model.sum.effects[1]
    assert term.final  # the ranges were 10 times apart from those at the start: neighbours were chosen anew
    assert term.chosen[1] / term.chosen[0] > 30.0
    assert fit.converged
    assert fit.coefficients.loc["w", "mean"] == pytest.approx(0.5, abs=0.1)
    found = fit.hyperparameters.loc["vecchia(x,z,neighbours=10)"]
    assert list(found.index) == ["sd", "range x", "range z"]
    assert found.loc["range x", "lower"] < 4.0 < found.loc["range x", "upper"]
    assert found.loc["range z", "value"] > 20 * found.loc["range x", "value"]
    effect = fit.effects["vecchia(x, z, neighbours=10)"]
    order = np.lexsort([data["z"], data["x"]])
    assert np.corrcoef(effect["mean"], f[order])[0, 1] > 0.95
    ax = fit.plot("vecchia(x, z, neighbours=10)")
    assert len(ax.figure.axes) == 2  # the mean and its sd, each with a bar of its own
    surface = process_on_grid(fit, term)
    two = surface.iloc[[7, 400]]
    at = pd.DataFrame(two.index.tolist(), columns=["x", "z"]).assign(w=0.3, g=2)
    np.testing.assert_allclose(np.diff(fit.predict(at, kind="link")), np.diff(two["mean"]), atol=1e-8)
    assert (surface["sd"] <= np.exp(fit.theta[1]) * 1.001).all()
    new = data.iloc[:5].assign(x=lambda d: d["x"] + 0.01)
    np.testing.assert_allclose(fit.predict(new), fit.predict(data.iloc[:5]), atol=0.1)
    assert fit.sample(new, 30).shape == (30, 5)
    again = pickle.loads(pickle.dumps(term))
    theta = fit.theta[1:4]
    np.testing.assert_array_equal(again.precision(theta)[0].data, term.precision(theta)[0].data)


def test_too_few_knots_are_said():
    data, _ = simulated(400)
    with pytest.warns(UserWarning, match=r"its 20 knots leave \d\d% of the variance .*: knots=80 leaves less"):
        fenchel.Model("y ~ vecchia(x, z, neighbours=10, knots=20)", data).fit()


def test_repeated_points_one_column_and_two_kinds_of_response():
    t = np.repeat(np.linspace(0.0, 10.0, 40), 3)
    y = np.random.default_rng(2).poisson(np.exp(np.sin(t) + 1.0))
    data = pd.DataFrame({"t": t, "y": y, "b": y > 3})
    fit = fenchel.Model("y ~ vecchia(t, kernel='matern52')", data, family="poisson").fit()
    assert fit.effects["vecchia(t,kernel='matern52')"].index.nlevels == 1
    assert fit.model.sum.effects[0].n_latents == 40
    np.testing.assert_allclose(np.log(fit.predict(data)), np.sin(t) + 1.0, atol=0.5)
    binary = fenchel.Model("b ~ vecchia(t, kernel='matern12', neighbours=3)", data, family="bernoulli").fit()
    assert binary.converged


def test_the_words_of_other_processes():
    table = DataTable("here", {"x": np.arange(30.0), "z": np.arange(30.0) ** 1.5})
    one = VecchiaProcess("x", "z", isotropic=True).read(table, 1.0)
    assert [h.name for h in one.hyperparameters] == ["sd", "range"]
    assert len(VecchiaProcess("x", "z").read(table, 1.0).hyperparameters) == 3


def test_priors_of_size_and_range():
    table = DataTable("here", {"x": np.arange(30.0), "z": np.arange(30.0) ** 1.5})
    one = VecchiaProcess("x", "z", isotropic=True, prior_range=(3, 0.1), prior_sd=(2, 0.05)).read(table, 1.0)
    two = VecchiaProcess("x", "z", prior_range=[(3, 0.1), (40, 0.2)]).read(table, 1.0)
    same = VecchiaProcess("x", "z", prior_range=(3, 0.1)).read(table, 1.0)
    below = lambda h, r: quad(lambda t: np.exp(h.prior(t)[0]), np.log(r) - 25.0, np.log(r), limit=200)[0]
    for h, r, a in ((one.hyperparameters[1], 3.0, 0.1), (two.hyperparameters[1], 3.0, 0.1)):
        assert below(h, r) == pytest.approx(a, abs=1e-6)
    assert below(two.hyperparameters[2], 40.0) == pytest.approx(0.2, abs=1e-6)
    assert below(same.hyperparameters[2], 3.0) == pytest.approx(0.1, abs=1e-6)
    assert below(one.hyperparameters[0], 2.0) == pytest.approx(0.95, abs=1e-6)
    for words in ({"prior_range": (3, 0.1, 2)}, {"prior_range": (-1, 0.1)}, {"prior_sd": (1, 2)}):
        with pytest.raises(ValueError, match=r"vecchia: prior_\w+ = .*; expected \(size, probability\)"):
            VecchiaProcess("x", "z", **words)
    with pytest.raises(ValueError, match="prior_range has 3 pairs; expected"):
        VecchiaProcess("x", "z", prior_range=[(1, 0.1), (2, 0.1), (3, 0.1)])


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"kernel = 'matern' is not known; expected .* Did you mean 'matern\d2'\?"):
        VecchiaProcess("x", kernel="matern")
    with pytest.raises(ValueError, match="neighbours = 0; expected an integer >= 1"):
        VecchiaProcess("x", neighbours=0)
    with pytest.raises(ValueError, match="knots = 1; expected an integer >= 2"):
        VecchiaProcess("x", knots=1)
    with pytest.raises(ValueError, match="no column is named"):
        VecchiaProcess()
    with pytest.raises(ValueError, match="'z' is 1 in every row; expected a column that varies"):
        VecchiaProcess("x", "z").read(DataTable("here", {"x": [1.0, 2.0], "z": [1.0, 1.0]}), 1.0)
    with pytest.raises(ValueError, match="holds text"):
        fenchel.Model("y ~ vecchia(a)", pd.DataFrame({"a": ["u", "v"], "y": [1.0, 2.0]}))


_CLOUD = np.random.default_rng(3).random((40, 2))
GEOMETRIES = {
    "three points": np.array([[0.0, 0.0], [1.0, 0.2], [0.3, 0.9]]),
    "on a line": np.stack([np.linspace(0, 5, 30), 2 * np.linspace(0, 5, 30) + 1], axis=1),
    "repeated": np.vstack([_CLOUD, _CLOUD, _CLOUD[:5]]),
    "one far away": np.vstack([_CLOUD, [[30.0, 30.0]]]),
    "next to one another": np.vstack([_CLOUD, _CLOUD + 1e-3]),
    "metres of a map": _CLOUD * 5000.0 + [452_000.0, 5_411_000.0],
}


@pytest.mark.parametrize("points", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize("kind", [terms.Matern, terms.VecchiaProcess])
def test_the_gradient_of_the_evidence_wherever_points_lie(kind, points):
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, len(points)).astype(float)
    family = SumOfTerms([kind("x", "z")], DataTable("here", {"x": points[:, 0], "z": points[:, 1]})).family()
    theta = family.theta + 0.3 * rng.normal(size=family.theta.size)
    evidence = lambda t: fenchel.infer(fenchel.Poisson(), family.at(t), y, tol=1e-13)
    numeric = difference(lambda t: evidence(t).elbo, theta, step=1e-4)
    np.testing.assert_allclose(family.gradient(evidence(theta), theta), numeric, rtol=1e-4, atol=1e-5)
    where = DataTable("here", {"x": points[:, 0] + 1e-3 * np.ptp(points[:, 0]), "z": points[:, 1]})
    h, rho = evidence(theta).posterior.predict(family_rows(kind, points, theta, where))
    assert np.isfinite(h).all()
    assert (rho > 0.0).all()


def family_rows(kind, points, theta, where):
    return SumOfTerms([kind("x", "z")], DataTable("here", {"x": points[:, 0], "z": points[:, 1]})).new_rows(
        theta, where
    )


@pytest.mark.parametrize("kind", [terms.Matern, terms.VecchiaProcess, terms.MaternSeries])
@pytest.mark.parametrize(("unit", "origin"), [(1e3, 0.0), (1e-9, 0.0), (1.0, 1e6)])
def test_units_and_origins_do_not_matter(kind, unit, origin):
    rng = np.random.default_rng(4)
    P, y = rng.random((60, 2)), rng.poisson(2.0, 60).astype(float)
    found = []
    for scale, shift in ((1.0, 0.0), (unit, origin)):
        table = DataTable("here", {"x": P[:, 0] * scale + shift, "z": P[:, 1] * scale + shift})
        term = kind("x") if kind is terms.MaternSeries else kind("x", "z")
        family = SumOfTerms([term], table).family()
        sol = fenchel.infer(fenchel.Poisson(), family.at(), y, tol=1e-11)
        found.append((sol.elbo, family.theta, family.log_prior(family.theta)[0]))
    (one, theta, prior), (other, moved, again) = found
    assert other == pytest.approx(one, abs=1e-4)
    np.testing.assert_allclose(moved[1:], theta[1:] + np.log(unit), atol=1e-6)
    assert again == pytest.approx(prior, abs=1e-5)
