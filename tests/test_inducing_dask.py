"""Gaussian processes of rows in Dask collections, against the same rows in memory."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from fenchel.distributed import Checkpoint, InMemory, Interrupted, Sums, linear_rows
from fenchel.distributed import inducing_passes as passes
from fenchel.distributed.approximation import Approximation
from fenchel.distributed.theta_response import same_function
from fenchel.estimators import (
    GaussianProcessClassifier,
    GaussianProcessPoissonRegressor,
    GaussianProcessRegressor,
    dask_processes,
)
from fenchel.hyperparameters import InducingCovariance, approximation_loss
from fenchel.likelihoods import Gaussian

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

RNG = np.random.default_rng(0)
N = 700
X = RNG.normal(size=(N, 2))
F = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
EXPOSURE = RNG.uniform(0.5, 2.0, N)
KERNEL = ConstantKernel(1.0, (1e-2, 1e3)) * RBF([1.0, 1.0], (1e-1, 1e2))
CASES = {
    "labels": (GaussianProcessClassifier, np.where(F + RNG.logistic(size=N) > 0.0, "yes", "no"), {}),
    "counts": (GaussianProcessPoissonRegressor, RNG.poisson(EXPOSURE * np.exp(F)), {"exposure": EXPOSURE}),
    "classes": (
        GaussianProcessClassifier,
        np.argmax(np.column_stack([F, -F, 0.0 * F]) + RNG.gumbel(size=(N, 3)), axis=1),
        {},
    ),
    "regressor": (GaussianProcessRegressor, F + 0.3 * RNG.normal(size=N), {}),
}


@pytest.fixture(autouse=True)
def _in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def parts(*arrays, cut=150):
    return [da.from_array(x, chunks=(cut, *x.shape[1:])) for x in arrays]


def fitted(case, in_memory, **options):
    make, y, beside = CASES[case]
    if case == "regressor" and "optimizer" in options:
        options["likelihood"] = Gaussian(0.1)
    model = make(options.pop("kernel", KERNEL), approximation="inducing", **options)
    if in_memory:
        return model.fit(X, y, **beside)
    (there, target), rest = parts(X, y), {key: parts(x)[0] for key, x in beside.items()}
    return model.fit(there, target, **rest)


@pytest.mark.filterwarnings("ignore:.*did not converge")  # both go on until nothing improves
@pytest.mark.parametrize("case", CASES)
def test_with_theta_and_points_held_it_is_the_fit_in_memory(case):
    held = {"optimizer": None, "n_inducing": X[:25], "tol": 1e-16}
    ours, memory = fitted(case, False, **held), fitted(case, True, **held)
    assert ours.elbo_ == pytest.approx(memory.elbo_, abs=1e-8)
    (h, rho), (mean, variance) = ours.latent_mean_and_variance(X), memory.latent_mean_and_variance(X)
    np.testing.assert_allclose(h, mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(rho, variance, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_theta_is_learned_as_in_memory(case):
    ours = fitted(case, False, n_inducing=20, loss=0.1)
    assert ours.converged_
    assert ours.solution_.n_passes <= 15
    points = ours._latent.result.family.points
    memory = fitted(case, True, n_inducing=points, loss=0.1)
    assert ours.elbo_ == pytest.approx(memory.elbo_, abs=0.05)
    there = ours.predict(parts(X)[0])
    same = np.asarray(there) == ours.predict(X)
    assert same.all() if case in ("labels", "classes") else np.allclose(there, ours.predict(X), rtol=1e-10)
    assert ours.approximation_["n_inducing"].tolist() == [20]
    assert "passes over all rows" in ours.summary()
    assert "inducing points cost at most" in ours.summary()


def test_theta_of_many_rows_is_learned_from_a_sample_first(monkeypatch):
    """A sample of a sixth of the rows: theta moves with q, in few passes, to where a fit in memory ends."""
    monkeypatch.setattr(dask_processes, "_SAMPLE", 400)
    rng = np.random.default_rng(1)
    table = rng.normal(size=(2400, 2))
    y = rng.poisson(np.exp(np.sin(2.0 * table[:, 0]) + 0.5 * table[:, 1]))
    options = {"approximation": "inducing"}
    ours = GaussianProcessPoissonRegressor(KERNEL, n_inducing=25, **options).fit(*parts(table, y, cut=300))
    assert ours.converged_
    assert ours.solution_.n_passes <= 20
    points = ours._latent.result.family.points
    memory = GaussianProcessPoissonRegressor(KERNEL, n_inducing=points, **options).fit(table, y)
    assert ours.elbo_ == pytest.approx(memory.elbo_, abs=0.05)


@pytest.mark.parametrize("case", ["counts", "regressor"])
def test_theta_at_a_bound_is_reported_as_in_memory(case):
    narrow = ConstantKernel(1.0, (1e-2, 1e3)) * RBF([2.0, 2.0], (1.8, 2.2))
    options = {"kernel": narrow, "n_inducing": X[:15], "loss": 0.1}
    with pytest.warns(match="at its lower bound"):
        memory = fitted(case, True, **options)
    with pytest.warns(match="at its lower bound"):
        ours = fitted(case, False, **options)
    assert ours.at_bounds_ == memory.at_bounds_
    assert "k2__length_scale[0] is at its lower bound" in ours._latent.result.learned.status


def test_a_search_that_ends_early_says_what_it_leaves(monkeypatch):
    monkeypatch.setattr(passes, "THETA_PASSES", 2)
    start = KERNEL.clone_with_theta(np.log([100.0, 0.2, 0.2]))
    monkeypatch.setattr(dask_processes, "_learned", lambda *_: [X[:20], start.theta, np.zeros(0)])
    with pytest.warns(match="did not converge: not converged: nats that a further step promises"):
        ours = fitted("counts", False)
    assert not ours.converged_


def test_promises_that_are_not_kept_end_a_search(monkeypatch):
    n = [0]

    def promised(self):
        n[0] += 1
        assert n[0] < 500, "it goes on for ever"
        return 1.0

    monkeypatch.setattr(passes.QuadraticModel, "promised_rise", promised)
    with pytest.warns(match="did not converge"):
        assert not fitted("counts", False, n_inducing=20, loss=0.1).converged_


def test_a_partition_is_read_some_rows_at_a_time(monkeypatch):
    """One partition read in many stretches gives the fit and the sample of one stretch."""
    held = {"optimizer": None, "n_inducing": X[:25], "tol": 1e-13}
    whole = fitted("labels", False, **held)
    monkeypatch.setattr(linear_rows, "_READ", 60)
    few = fitted("labels", False, **held)
    assert few.elbo_ == pytest.approx(whole.elbo_, abs=1e-9)
    assert few.approximation_loss_ == pytest.approx(whole.approximation_loss_, rel=1e-9)


def test_rows_in_memory_know_their_places_in_every_piece():
    """The slopes of a sample's rows are read by place (``theta_response.py``)."""
    rows = InMemory("mine", {"y": np.arange(10.0), "weight": None}, pieces=4)
    first = rows.reduce(lambda block: Sums({block.start: block["y"][0]}))
    assert first == {0: 0.0, 3: 3.0, 6: 6.0, 9: 9.0}


def test_a_kernel_that_is_fixed_has_nothing_to_learn():
    fixed = {"kernel": ConstantKernel(1.0, "fixed") * RBF([1.0, 1.0], "fixed"), "n_inducing": X[:25]}
    held = {**fixed, "kernel": KERNEL, "optimizer": None}
    assert fitted("counts", False, **fixed).elbo_ == pytest.approx(fitted("counts", False, **held).elbo_, abs=1e-4)
    ours, memory = (fitted("regressor", in_memory, **fixed) for in_memory in (False, True))
    assert ours.elbo_ == pytest.approx(memory.elbo_, abs=1e-2)  # of the noise alone


@pytest.mark.parametrize("before", [10.0 * F, np.column_stack([F, -F])])
def test_a_fit_before_leaves_nothing(before):
    options = {"n_inducing": 10, "optimizer": None, "likelihood": Gaussian(0.1)}
    model = GaussianProcessRegressor(KERNEL, normalize_y=True, **options).fit(X, before)
    model.set_params(normalize_y=False).fit(*parts(X, F))
    fresh = GaussianProcessRegressor(KERNEL, **options).fit(*parts(X, F))
    assert model.kernel_ == fresh.kernel_
    np.testing.assert_allclose(model.predict(X[:3]), fresh.predict(X[:3]))


def test_slopes_in_theta_are_those_of_differences():
    """Of the best elbo at theta, over two partitions of labels."""
    held = {"optimizer": None, "n_inducing": X[:15], "tol": 1e-13}

    def elbo(theta):
        return fitted("labels", False, kernel=KERNEL.clone_with_theta(theta), **held).elbo_

    seen = {}
    plain = passes.InducingPasses.finished

    def finished(self, task, outcome, stopping):
        seen["slopes"] = passes.with_slopes(task, outcome.point.q)[1]
        return plain(self, task, outcome, stopping)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes.InducingPasses, "finished", finished)
        fitted("labels", False, **held)
    expected = [(elbo(KERNEL.theta + e) - elbo(KERNEL.theta - e)) / 2e-3 for e in 1e-3 * np.eye(3)]
    np.testing.assert_allclose(seen["slopes"], expected, rtol=1e-5, atol=1e-4)


def test_slopes_along_the_path_of_q_are_those_of_differences_away_from_the_best_q(monkeypatch):
    """theta moves where q is not yet at its best (``InducingPasses.settled``): lengths turn the features, too."""
    seen, plain, search = {}, passes.theta_response, passes.InducingPasses.best_theta

    def kept(at, sample, point):
        seen.update(at=at, q=point.q, found=plain(at, sample, point))
        return seen["found"]

    monkeypatch.setattr(passes, "theta_response", kept)
    outer = lambda self, state: search(seen.setdefault("all", self), state)
    monkeypatch.setattr(passes.InducingPasses, "best_theta", outer)
    fitted("counts", False, n_inducing=X[:15], loss=0.1)
    everything, at, best, found = seen.values()
    rng = np.random.default_rng(0)
    turned = rng.normal(size=best.gram[0].shape)
    gram = best.gram * (1.0 + 2e-3 * (turned + turned.T))
    q = Approximation(best.prior, best.theta, best.own, best.mean + 2e-3 * rng.normal(size=best.mean.shape), gram)
    point, slope = passes.with_slopes(at(q.theta), q)
    expected = []
    for step in 1e-4 * np.eye(3):
        sides = [found.moved(q, q.theta + sign * step) for sign in (1.0, -1.0)]
        up, down = (at(side.theta).evaluated([side])[0].objective for side in sides)
        expected.append((up - down) / 2e-4)
    np.testing.assert_allclose(everything.slopes(point, slope, found), expected, rtol=0.0, atol=0.02)


def test_the_response_to_theta_is_near_that_of_differences(monkeypatch):
    """The curvature of the best elbo, and where the best q goes, by a sample that is all rows."""
    seen, plain = {}, passes.theta_response

    def kept(at, sample, point):
        seen.update(at=at, q=point.q, found=plain(at, sample, point))
        return seen["found"]

    monkeypatch.setattr(passes, "theta_response", kept)
    fitted("counts", False, n_inducing=X[:15], loss=0.1)
    at, q, found = seen.values()

    held = {"optimizer": None, "n_inducing": X[:15], "tol": 1e-13}

    def elbo(theta):
        return fitted("counts", False, kernel=KERNEL.clone_with_theta(theta), **held).elbo_

    for i, step in enumerate(0.05 * np.eye(3)):
        bend = (2.0 * elbo(q.theta) - elbo(q.theta + step) - elbo(q.theta - step)) / 0.05**2
        assert found.curvature[i, i] == pytest.approx(bend, rel=0.3)
        there = q.theta + step
        near, same = at(there).evaluated([found.moved(q, there), same_function(q, there)])
        assert elbo(there) - near.elbo < 0.3 * (elbo(there) - same.elbo)


def test_the_cost_of_points_is_that_of_all_pairs():
    """Within its standard error; white noise of the kernel is counted exactly."""
    kernel = 2.0 * RBF(0.7) + WhiteKernel(0.05)
    held = {"optimizer": None, "n_inducing": X[:30], "kernel": kernel}
    for case in ("labels", "counts"):
        ours, memory = fitted(case, False, **held), fitted(case, True, **held)
        latent = memory._latent
        family = InducingCovariance(kernel, X, X[:30], offset=np.reshape(latent.mean, (1, -1)), level=latent.level)
        plain = approximation_loss(memory.solution_, family.at(family.theta), enough=np.inf)
        loss, error = ours._latent.result.loss, ours.approximation_["standard_error"].iloc[0]
        assert 0.0 < error < 0.3 * plain.bound
        assert abs(ours.approximation_loss_ - plain.bound) < 4.0 * error
        assert loss.spreads == pytest.approx(plain.spreads, rel=1e-5)  # no estimate


def test_points_in_every_row_leave_the_white_noise_alone():
    kernel, rows, y = 2.0 * RBF(3.0) + WhiteKernel(0.05), X[:150], CASES["counts"][1][:150]
    options = {"approximation": "inducing", "optimizer": None, "n_inducing": rows}
    ours = GaussianProcessPoissonRegressor(kernel, **options).fit(*parts(rows, y, cut=50))
    alpha = GaussianProcessPoissonRegressor(kernel, **options).fit(rows, y).solution_.alpha
    assert ours._latent.result.loss.means == pytest.approx(0.5 * 0.05 * np.sum(alpha**2), rel=1e-5)


def test_a_checkpoint_goes_on_with_the_same_points(tmp_path, monkeypatch):
    make, y, _ = CASES["labels"]
    rows, whole = parts(X, y), fitted("labels", False, n_inducing=20, loss=0.1)
    saved, n = Checkpoint.save, [0]

    def save(self, state):
        saved(self, state)
        n[0] += 1
        if n[0] == 2:
            raise Interrupted("gone")

    monkeypatch.setattr(Checkpoint, "save", save)
    model = make(KERNEL, approximation="inducing", n_inducing=20, loss=0.1)
    with pytest.raises(Interrupted):
        model.fit(*rows, checkpoint=tmp_path / "kept")
    again = make(KERNEL, approximation="inducing", n_inducing=20, loss=0.1).fit(*rows, checkpoint=tmp_path / "kept")
    assert again.elbo_ == pytest.approx(whole.elbo_, abs=0.05)
    np.testing.assert_array_equal(again._latent.result.family.points, whole._latent.result.family.points)
    other = make(KERNEL, approximation="inducing", n_inducing=21, loss=0.1)
    with pytest.raises(ValueError, match="n_inducing differ"):
        other.fit(*rows, checkpoint=tmp_path / "kept")


def test_what_partitions_cannot_do_is_refused(tmp_path):
    make, y, _ = CASES["labels"]
    rows = parts(X, y)
    with pytest.raises(ValueError, match="approximation"):
        make(KERNEL, approximation=None).fit(*rows)
    with pytest.raises(ValueError, match="integrate"):
        make(KERNEL, integrate=True).fit(*rows)
    model = fitted("labels", False, optimizer=None, n_inducing=X[:10])
    with pytest.raises(ValueError, match="partitions"):
        model.log_marginal_likelihood(model.theta_)
    with pytest.raises(ValueError, match="normalize_y"):
        GaussianProcessRegressor(KERNEL, normalize_y=True).fit(parts(X)[0], parts(F)[0])
    for alpha in (0.0, np.ones(N)):
        with pytest.raises(ValueError, match="alpha is given, with rows in partitions; expected alpha=None"):
            GaussianProcessRegressor(KERNEL, alpha=alpha).fit(parts(X)[0], parts(F)[0])
    for given in ({"kernel_per_class": True}, {"kernel": [KERNEL, KERNEL]}):
        with pytest.raises(ValueError, match="a kernel for each class, with rows in partitions"):
            GaussianProcessClassifier(**{"kernel": KERNEL, **given}).fit(*rows)
    with pytest.raises(ValueError, match="categorical_features are given, with rows in partitions"):
        make(KERNEL, categorical_features=[1]).fit(*rows)
    with pytest.raises(ValueError, match="saved"):
        model.save(tmp_path / "model")


def test_a_kernel_is_chosen_and_frames_are_read():
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=CASES["labels"][1], w=1.0)
    table = dd.from_pandas(frame, npartitions=3)
    model = GaussianProcessClassifier(n_inducing=15).fit(table[["a", "b"]], table["y"], sample_weight=table["w"])
    assert model.kernel_choice_ is not None
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert np.asarray(model.predict_proba(table[["a", "b"]])).shape == (N, 2)


def test_a_search_that_ran_out_of_passes_says_so(monkeypatch):
    monkeypatch.setattr(passes, "THETA_PASSES", 1)
    with pytest.warns(ConvergenceWarning, match="did not converge: .* nats that a further step promises"):
        model = fitted("counts", False, n_inducing=20, loss=0.1)
    assert not model.converged_
