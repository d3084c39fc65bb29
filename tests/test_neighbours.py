"""Gaussian processes by nearest neighbours: Vecchia's approximation written out, and the process itself."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from conftest import difference
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

import fenchel
from fenchel import gates
from fenchel.cross_kernels import cross, cross_slopes, variance_slopes, variances
from fenchel.estimators import (
    GaussianProcessClassifier,
    GaussianProcessPoissonRegressor,
    GaussianProcessRegressor,
    inducing_latent,
)
from fenchel.estimators.gaussian_process import KernelLatent
from fenchel.estimators.latent import Latent
from fenchel.estimators.neighbours_latent import NeighboursLatent, by_neighbours
from fenchel.gmrf import MarkovField
from fenchel.gmrf.kernel_neighbours import NUGGET, NeighbourCovariance
from fenchel.gmrf.vecchia import Vecchia
from fenchel.hyperparameters import Evidence, KernelCovariance
from fenchel.kernels import column_lengths
from fenchel.likelihoods import Poisson
from fenchel.scaled_kernels import ScaledMatern

RNG = np.random.default_rng(3)
X = RNG.normal(size=(70, 2)) * [1.0, 3.0]
F = np.sin(2.0 * X[:, 0]) + 0.2 * X[:, 1]
COUNTS = RNG.poisson(np.exp(F))
NEW = RNG.normal(size=(12, 2)) * [1.0, 3.0]
KERNELS = {
    "matern": 1.3 * Matern([1.0, 2.5], nu=1.5),
    "rough": 0.8 * Matern(1.2, nu=0.5),
    "smooth": 0.7 * RBF([1.0, 3.0]),
    "scaled": 1.1 * ScaledMatern(0.9, nu=2.5, units=[1.0, 3.0]),
    "sum": 1.0 * Matern(1.5, nu=1.5) + 0.4 * RationalQuadratic(0.8, 2.0),
    "product": 0.1 * Matern([1.0, 4.0], nu=0.5) * DotProduct(0.5) ** 2,
    "noise": 1.2 * Matern(1.5, nu=1.5) + WhiteKernel(0.2),
    "unknown": 0.9 * Matern(1.4, nu=0.8),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
KERNEL = 1.0 * Matern([1.0, 1.0], (1e-2, 1e2), nu=1.5)
CASES = {
    "regressor": (GaussianProcessRegressor, F + 0.3 * RNG.normal(size=70), lambda m: m.predict(NEW, return_std=True)),
    "counts": (GaussianProcessPoissonRegressor, COUNTS, lambda m: m.predict(NEW)),
    "labels": (GaussianProcessClassifier, F + RNG.logistic(size=70) > 0.0, lambda m: m.predict_proba(NEW)),
    "classes": (
        GaussianProcessClassifier,
        np.argmax(np.column_stack([F, -F, 0.0 * F]) + RNG.gumbel(size=(70, 3)), axis=1),
        lambda m: m.predict_proba(NEW),
    ),
}


@pytest.mark.parametrize("kernel", [*KERNELS.values(), 2.0 * ExpSineSquared(1.0, 2.0)], ids=[*KERNELS, "periodic"])
def test_small_sets_side_by_side_are_each_by_itself(kernel):
    A, B, T = RNG.normal(size=(4, 3, 2)), RNG.normal(size=(4, 5, 2)), RNG.normal(size=(4, 3, 5))
    np.testing.assert_allclose(cross(kernel, A, B), [cross(kernel, a, b) for a, b in zip(A, B, strict=True)])
    np.testing.assert_allclose(variances(kernel, A), [variances(kernel, a) for a in A])
    each = [cross_slopes(kernel, *parts) for parts in zip(A, B, T, strict=True)]
    np.testing.assert_allclose(cross_slopes(kernel, A, B, T), np.sum(each, axis=0), atol=1e-9)
    t = RNG.normal(size=(4, 3))
    own = [variance_slopes(kernel, *parts) for parts in zip(A, t, strict=True)]
    np.testing.assert_allclose(variance_slopes(kernel, A, t), np.sum(own, axis=0), atol=1e-9)


@every_kernel
def test_the_precision_is_that_of_its_conditionals(kernel):
    """Each point given its neighbours by dense matrices of scikit-learn's kernel."""
    family = NeighbourCovariance(kernel, X, 6, level=4.0)
    Z, n = family.process.X, len(X)
    K, L, v = kernel(Z) + NUGGET * np.diag(kernel.diag(Z)), np.eye(n), np.empty(n)
    for i, row in enumerate(family.process.neighbours):
        near = row[row >= 0]
        assert len(near) == min(i, 6)
        b = np.linalg.solve(K[np.ix_(near, near)], K[near, i])
        L[i, near], v[i] = -b, K[i, i] - b @ K[near, i]
    Q = family.at(kernel.theta).precision.toarray()
    np.testing.assert_allclose(Q[:n, :n], L.T @ (L / v[:, None]), atol=1e-6 * np.abs(Q).max())
    np.testing.assert_array_equal(Q[n], np.append(np.zeros(n), 1.0))
    np.testing.assert_array_equal(family.at(kernel.theta).design.toarray()[:, n], np.full(n, 2.0))


@every_kernel
def test_with_all_neighbours_it_is_the_process_itself(kernel):
    """Evidence, its gradient and predictions, with two rows that agree."""
    rows, y = np.vstack([X, X[:2]]), np.append(COUNTS, [1, 2])
    options = {"level": 5.0, "slopes": np.array([0.7, 0.0]), "centre": X.mean(axis=0), "offset": np.array([[0.3]])}
    families = NeighbourCovariance(kernel, rows, len(rows) - 1, **options), KernelCovariance(kernel, rows, **options)
    fits = []
    for family in families:
        evidence = Evidence(Poisson(), family, y, own=False, tol=1e-14)
        value, slope = evidence(kernel.theta)
        at = evidence.solution.posterior.at(family.new_rows(kernel.theta, np.vstack([NEW, X[:1]])))
        fits.append((value, slope, at.mean, at.variance))
    (few, few_slope, mean, variance), (exact, slope, exact_mean, exact_variance) = fits
    assert families[0].is_exact
    assert few == pytest.approx(exact, rel=1e-8)
    np.testing.assert_allclose(few_slope, slope, atol=1e-6 * np.abs(slope).max())
    np.testing.assert_allclose(mean, exact_mean, atol=1e-6)
    np.testing.assert_allclose(variance, exact_variance, atol=1e-6 * kernel.diag(rows).max())


@every_kernel
def test_slopes_against_differences(kernel):
    family = NeighbourCovariance(kernel, X, 7, level=5.0)
    evidence = Evidence(Poisson(), family, COUNTS, own=False, tol=1e-14)
    slope = evidence(kernel.theta)[1]
    numeric = difference(lambda t: evidence(t)[0], kernel.theta, step=1e-4)
    rough = 1e-5 if "RBF" in str(kernel) else 1e-6  # rounding of entries near 1 / nugget
    np.testing.assert_allclose(slope, numeric, atol=rough * np.abs(slope).max())


def test_slopes_and_information_are_those_of_the_formulas_process():
    """``Vecchia`` has derivatives of every entry of Q; its theta is log sd and log ranges, twice the lengths."""
    kernel, ranges = 1.3 * Matern([1.0, 2.5], nu=1.5), np.array([2.0, 5.0])
    family = NeighbourCovariance(kernel, X, 8)
    theta = np.append(0.5 * np.log(1.3), np.log(ranges))
    process, order = Vecchia.of(np.unique(X, axis=0), ranges, 8, "matern32", False)
    np.testing.assert_array_equal(process.neighbours, family.process.neighbours)
    place = np.argsort(order)[np.unique(X, axis=0, return_inverse=True)[1].ravel()]
    field = MarkovField(process, theta, ["log sd", "x", "z"], design=np.eye(70)[place])
    both = []
    for one, at in ((family, kernel.theta), (field, theta)):
        evidence = Evidence(Poisson(), one, COUNTS, own=False, tol=1e-14)
        value, slope = evidence(at)
        both.append((value, slope, evidence.solution.posterior, one.curvature(evidence.solution, at, slope)))
    (value, slope, _, information), (other, formulas, _, theirs) = both
    scale = np.array([0.5, 1.0, 1.0])  # of d/dlog variance
    assert value == pytest.approx(other, abs=1e-7)
    np.testing.assert_allclose(slope, scale * formulas, rtol=1e-6)
    np.testing.assert_allclose(information[1:, 1:], theirs[1:, 1:], rtol=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_estimators_are_near_the_process_itself(case):
    make, y, predicted = CASES[case]
    held = {"optimizer": None, **({"likelihood": fenchel.Gaussian(0.1)} if case == "regressor" else {})}
    exact = make(KERNEL, approximation=None, **held).fit(X, y)
    for m in (69, 25):
        few = make(KERNEL, approximation="neighbours", n_neighbors=m, **held).fit(X, y)
        assert few.converged_
        if m == 69:
            assert few.approximation_loss_ == 0.0
            assert few.approximation_["n_neighbors"].tolist() == [69]
            assert "the process itself" in few.summary()
        else:
            assert few.approximation_loss_ == np.inf
            assert few.approximation_["n_neighbors"].tolist() == [25, 50]
            assert "with 50 neighbours the elbo is" in few.summary()
            assert "no bound is known" in few.summary()
        assert few.elbo_ == pytest.approx(exact.elbo_, rel=1e-8 if m == 69 else None, abs=None if m == 69 else 0.1)
        np.testing.assert_allclose(predicted(few), predicted(exact), atol=1e-5 if m == 69 else 0.05)


def test_learning_finds_neighbours_again_where_lengths_move():
    """One column does not matter: rows far apart along it are near in the end."""
    rng = np.random.default_rng(0)
    rows = rng.random((300, 2)) * 6.0
    y = rng.poisson(np.exp(1.0 + np.sin(2.0 * rows[:, 0])))
    model = GaussianProcessPoissonRegressor(KERNEL, approximation="neighbours", n_neighbors=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the length of the second is at its bound
        model.fit(rows, y)
        exact = GaussianProcessPoissonRegressor(KERNEL, approximation=None).fit(rows, y)
    near = model._latent.family_in_place.lengths
    assert near[1] / near[0] > 5.0
    assert model.elbo_ == pytest.approx(exact.elbo_, abs=0.5)
    np.testing.assert_allclose(model.predict(rows[:20]), exact.predict(rows[:20]), rtol=0.05)
    value, slope = model.log_marginal_likelihood(model.theta_, eval_gradient=True)
    assert value == pytest.approx(model.elbo_, abs=1e-6)
    assert np.abs(slope[:2]).max() < 1e-2


@pytest.mark.parametrize("knots", [None, 40])
def test_joint_answers_of_new_rows(knots, monkeypatch):
    """The covariance is that of the rows given the fit; draws have it."""
    from fenchel.gmrf import kernel_neighbours

    if knots:
        monkeypatch.setattr(kernel_neighbours, "KNOTS", (knots,) * 3)
    make, y, _ = CASES["regressor"]
    held = {"optimizer": None, "likelihood": fenchel.Gaussian(0.1)}
    few = make(KERNEL, approximation="neighbours", n_neighbors=30, **held).fit(X, y)
    exact = make(KERNEL, approximation=None, **held).fit(X, y)
    mean, covariance = few.predict(NEW, return_cov=True)
    rough = 0.3 if knots else 0.02
    np.testing.assert_allclose(mean, exact.predict(NEW), atol=rough)
    np.testing.assert_allclose(covariance, exact.predict(NEW, return_cov=True)[1], atol=rough)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), few.predict(NEW, return_std=True)[1], rtol=1e-6)
    np.testing.assert_allclose(np.cov(few.sample_y(NEW, 4000, random_state=0)), covariance, atol=0.15)
    assert ("rows are neighbours of others" in few.summary()) == bool(knots)


def test_joint_answers_under_a_kernel_with_white_noise():
    """The values of the rows have noise of their own, which new rows do not share."""
    make, y, _ = CASES["regressor"]
    held = {"optimizer": None, "likelihood": fenchel.Gaussian(0.1), "n_neighbors": len(X) - 1}
    few, exact = (make(KERNELS["noise"], approximation=word, **held).fit(X, y) for word in ("neighbours", None))
    covariance = exact.predict(NEW, return_cov=True)[1]
    np.testing.assert_allclose(few.predict(NEW, return_cov=True)[1], covariance, atol=1e-5)


def test_rows_that_agree_and_constant_columns():
    """Rows that agree share a value; a constant column changes nothing; one row alone is fitted."""
    make, y, _ = CASES["counts"]
    held = {"approximation": "neighbours", "optimizer": None}
    doubled = make(KERNEL, **held).fit(np.vstack([X, X]), np.concatenate([y, y]))
    weighted = make(KERNEL, **held).fit(X, y, sample_weight=np.full(70, 2.0))
    np.testing.assert_allclose(doubled.predict(NEW), weighted.predict(NEW), rtol=1e-5)
    flat = make(1.0 * RBF(1.0), **held).fit(np.column_stack([X, np.full(70, 3.0)]), y)
    plain = make(1.0 * RBF(1.0), **held).fit(X, y)
    assert flat.elbo_ == pytest.approx(plain.elbo_, abs=1e-6)
    same, white = np.repeat(X[:1], 5, axis=0), 1.0 * RBF(1.0) + WhiteKernel(0.2)
    for kernel, rows in ((1.0 * RBF(1.0), X[:1]), (1.0 * RBF(1.0), same), (white, same)):
        alone = make(kernel, **held).fit(rows, y[: len(rows)])
        exact = make(kernel, approximation=None, optimizer=None).fit(rows, y[: len(rows)])
        np.testing.assert_allclose(alone.predict(NEW), exact.predict(NEW), rtol=1e-5)


def test_noise_held_at_several_levels(monkeypatch):
    """Where a search with the noise does not converge: lengths move from level to level, and rows keep their order."""
    plain = Latent.learn

    def learn(self, target, family, own, **options):
        found = plain(self, target, family, own, **options)
        return replace(found, converged=found.converged and not own)

    monkeypatch.setattr(Latent, "learn", learn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the length of the second column is at its bound
        few = GaussianProcessRegressor(KERNEL, approximation="neighbours", n_neighbors=69).fit(X, F)
    assert few.converged_
    np.testing.assert_allclose(few.predict(X), F, atol=1e-3)


def test_a_value_that_is_known_to_be_0():
    """DotProduct(0) at the origin has no variance."""
    rows, y = np.vstack([X, [[0.0, 0.0]]]), np.append(COUNTS, 1)
    kernel, held = DotProduct(0.0, "fixed"), {"optimizer": None}
    few = GaussianProcessPoissonRegressor(kernel, approximation="neighbours", n_neighbors=20, **held).fit(rows, y)
    exact = GaussianProcessPoissonRegressor(kernel, approximation=None, **held).fit(rows, y)
    np.testing.assert_allclose(few.predict(NEW), exact.predict(NEW), rtol=1e-4)


def test_a_file_keeps_it_and_theta_is_integrated_out(tmp_path):
    make, y, predicted = CASES["counts"]
    few = make(1.0 * Matern(1.0, nu=1.5), approximation="neighbours", n_neighbors=15, integrate=True).fit(X, y)
    exact = make(1.0 * Matern(1.0, nu=1.5), approximation=None, integrate=True).fit(X, y)
    np.testing.assert_allclose(predicted(few), predicted(exact), rtol=0.05)
    few.save(tmp_path / "few.fenchel")
    again = fenchel.load(tmp_path / "few.fenchel")
    np.testing.assert_allclose(predicted(again), predicted(few), rtol=1e-6)
    assert again.approximation_.equals(few.approximation_)
    assert clone(few).get_params()["n_neighbors"] == 15
    assert GaussianProcessRegressor().get_params()["n_neighbors"] == 20


def test_refusals():
    y = CASES["regressor"][1]
    make = lambda **options: GaussianProcessRegressor(KERNEL, approximation="neighbours", **options)
    with pytest.raises(ValueError, match="n_neighbors"):
        make(n_neighbors=0).fit(X, y)
    with pytest.raises(ValueError, match="a function as optimizer and an approximation"):
        make(optimizer=lambda *args: None).fit(X, y)
    with pytest.raises(ValueError, match="several outputs of 70 rows with integrate= or an approximation"):
        make().fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=r"NeighbourCovariance: n_neighbors = 0"):
        NeighbourCovariance(KERNEL, X, 0)
    wrong = GaussianProcessPoissonRegressor(ExpSineSquared(1.0, 1.5), approximation="neighbours", optimizer=None)
    with pytest.raises(ValueError, match=r"neighbours: .* leaves a variance of -.* expected a covariance"):
        wrong.fit(X, COUNTS)


def test_devices_are_refused():
    latent = KernelLatent(KERNEL, X, 0.0, 1.0, device="cuda:0")
    with pytest.raises(ValueError, match='approximation="neighbours" with device cuda:0; expected device=None'):
        by_neighbours("here", latent, 20)


def test_partitions_are_refused():
    dask = pytest.importorskip("dask.array")
    rows, y = dask.from_array(X, chunks=(35, 2)), dask.from_array(CASES["regressor"][1], chunks=35)
    with pytest.raises(ValueError, match=r"approximation = 'neighbours'.*inducing points"):
        GaussianProcessRegressor(KERNEL, approximation="neighbours").fit(rows, y)


def test_lengths_in_which_rows_are_near():
    np.testing.assert_array_equal(column_lengths(2.0 * RBF([1.0, 5.0]) + Matern(3.0), X), [1.0, 3.0])
    np.testing.assert_array_equal(column_lengths(ScaledMatern(0.5, units=[1.0, 4.0]), X), [0.5, 2.0])
    np.testing.assert_allclose(column_lengths(ConstantKernel() * DotProduct(), X), X.std(axis=0))
    np.testing.assert_array_equal(column_lengths(DotProduct(), np.ones((3, 1))), [1.0])


@pytest.fixture(scope="module")
def short():
    """Counts of a process whose length is far below what few points can follow."""
    rng = np.random.default_rng(1)
    rows = np.sort(rng.random((400, 1)) * 100.0, axis=0)
    K = Matern(1.0, nu=1.5)(rows) + 1e-8 * np.eye(400)
    return rows, rng.poisson(np.exp(np.linalg.cholesky(K) @ rng.normal(size=400)))


def test_auto_takes_neighbours_where_points_cost_far_too_much(short, monkeypatch):
    rows, y = short
    monkeypatch.setattr(gates, "INDUCING_ROWS", 100)
    monkeypatch.setattr(gates, "NEIGHBOUR_POINTS", 30)
    kernel = 1.0 * Matern(1.0, nu=1.5)
    auto = GaussianProcessPoissonRegressor(kernel).fit(rows, y)
    asked = GaussianProcessPoissonRegressor(kernel, approximation="neighbours").fit(rows, y)
    exact = GaussianProcessPoissonRegressor(kernel, approximation=None).fit(rows, y)
    assert (
        auto.summary().splitlines()[0].startswith("Approximated by nearest neighbours, since 30 inducing points cost")
    )
    assert auto.elbo_ == pytest.approx(asked.elbo_, abs=1e-8)
    assert auto.elbo_ == pytest.approx(exact.elbo_, abs=0.01)
    six = GaussianProcessPoissonRegressor(kernel).fit(np.repeat(rows, 6, axis=1), y)  # too many columns
    assert "inducing points, since 400 rows are more than 100" in six.summary().splitlines()[0]
    given = GaussianProcessPoissonRegressor(kernel, n_inducing=30).fit(rows, y)
    assert given.approximation_.columns[0] == "n_inducing"


def test_auto_keeps_points_where_neighbours_do_worse(short, monkeypatch):
    rows, y = short
    monkeypatch.setattr(gates, "INDUCING_ROWS", 100)
    monkeypatch.setattr(gates, "NEIGHBOUR_POINTS", 30)
    monkeypatch.setattr(NeighboursLatent, "moved", 1e9)
    model = GaussianProcessPoissonRegressor(1.0 * Matern(1.0, nu=1.5), optimizer=None).fit(rows, y)
    assert model.approximation_["n_inducing"].iloc[-1] == 400
    assert "40 neighbours moved the elbo by 1e+09 nats" in model.summary().splitlines()[0]


def test_points_go_on_from_the_trial(monkeypatch):
    """No number of points is learned from twice, and the end is that of learning from nothing."""
    rng = np.random.default_rng(1)
    rows = rng.random((500, 2))
    y = np.sin(9.0 * rows[:, 0]) * np.cos(9.0 * rows[:, 1]) + 0.2 * rng.normal(size=500)
    monkeypatch.setattr(gates, "INDUCING_ROWS", 300)
    monkeypatch.setattr(gates, "NEIGHBOUR_POINTS", 100)
    monkeypatch.setattr(inducing_latent, "FAR_ABOVE", np.inf)
    runs, learn_inducing = [], inducing_latent.learn_inducing
    monkeypatch.setattr(
        inducing_latent, "learn_inducing", lambda *a, **k: runs.append(learn_inducing(*a, **k)) or runs[-1]
    )
    options = {"kernel": 1.0 * Matern(0.3, nu=1.5), "loss": 0.05}
    auto = GaussianProcessRegressor(**options).fit(rows, y)
    trial, rest = runs
    plain = GaussianProcessRegressor(approximation="inducing", **options).fit(rows, y)
    assert trial.loss.bound > 0.05
    assert rest.stages[: len(trial.stages)] == trial.stages
    assert [stage["n_inducing"] for stage in rest.stages] == sorted({stage["n_inducing"] for stage in rest.stages})
    assert auto.elbo_ > plain.elbo_ - 5e-4
    # steps of the trial count, and are not taken again
    assert auto.n_iter_ < trial.learned.n_newton + 0.8 * plain.n_iter_
    assert auto.n_iter_ > trial.learned.n_newton
