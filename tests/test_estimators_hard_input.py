"""Input that is hard for Gaussian processes: the right answer, or a sentence."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from fenchel import GaussianProcessClassifier, GaussianProcessPoissonRegressor, GaussianProcessRegressor
from fenchel.estimators.chosen_kernel import warn_unrelated

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
F = np.sin(X[:, 0])
REAL, LABELS = F + 0.1 * RNG.normal(size=60), (F > 0).astype(int)
KERNEL = ConstantKernel() * RBF()


def test_rows_that_are_repeated():
    noisy = np.tile(F, 3) + 0.1 * RNG.normal(size=180)
    model = GaussianProcessRegressor().fit(np.tile(X, (3, 1)), noisy)
    assert model.converged_
    assert np.abs(model.predict(X) - F).mean() < 0.05
    even = GaussianProcessClassifier(KERNEL).fit(np.tile(X, (2, 1)), np.r_[LABELS, 1 - LABELS])
    np.testing.assert_allclose(even.predict_proba(X), 0.5, atol=1e-3)


def test_columns_that_do_not_move():
    wide, plain = (GaussianProcessRegressor(KERNEL).fit(Z, REAL) for Z in (np.c_[X, np.full(60, 7.0)], X))
    np.testing.assert_allclose(wide.predict(np.c_[X, np.full(60, 7.0)]), plain.predict(X), rtol=1e-6)
    assert GaussianProcessRegressor().fit(np.c_[X, np.full(60, 7.0)], REAL).converged_
    still = GaussianProcessRegressor().fit(np.ones((60, 2)), REAL)
    assert still.predict(np.ones((1, 2)))[0] == pytest.approx(REAL.mean(), abs=0.02)
    even = GaussianProcessClassifier().fit(np.ones((60, 2)), LABELS)
    assert even.predict_proba(np.ones((1, 2)))[0, 1] == pytest.approx(LABELS.mean(), abs=0.02)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("normalize", [False, True])
def test_a_y_that_does_not_move(normalize):
    for level in (0.0, 3.0):
        mean, sd = (
            GaussianProcessRegressor(normalize_y=normalize).fit(X, np.full(60, level)).predict(X, return_std=True)
        )
        np.testing.assert_allclose(mean, level, atol=1e-6)
        assert (sd < 0.01).all()


def test_very_few_rows():
    mean, sd = GaussianProcessRegressor().fit(X[:1], REAL[:1]).predict(X[:2], return_std=True)
    np.testing.assert_allclose(mean, REAL[0], rtol=1e-6)
    assert np.isfinite(sd).all()
    with pytest.raises(ValueError, match="y has one class only, 1; expected two or more classes"):
        GaussianProcessClassifier().fit(X[:1], LABELS[:1])
    with pytest.raises(ValueError, match="y has one class only, 0; expected two or more classes"):
        GaussianProcessClassifier().fit(X, np.zeros(60, dtype=int))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        GaussianProcessRegressor().fit(X[:0], REAL[:0])


@pytest.mark.parametrize("scale", [1e-8, 1e8, 1e-140, 1e140])
def test_units_of_columns_do_not_matter(scale):
    first = GaussianProcessRegressor().fit(X, REAL).predict(X)
    np.testing.assert_allclose(GaussianProcessRegressor().fit(scale * X, REAL).predict(scale * X), first, rtol=1e-4)
    assert (GaussianProcessClassifier().fit(scale * X, LABELS).predict(scale * X) == LABELS).mean() > 0.95


def test_units_of_y():
    first = GaussianProcessRegressor().fit(X, REAL).predict(X)
    for scale in (1e-8, 1e8):
        np.testing.assert_allclose(GaussianProcessRegressor().fit(X, scale * REAL).predict(X) / scale, first, rtol=1e-4)
    with pytest.raises(ValueError, match=r"cannot be squared in doubles; expected 1e-150 to 1e150\. Measure"):
        GaussianProcessRegressor().fit(X, 1e150 * REAL)


@pytest.mark.parametrize("make", [GaussianProcessRegressor, GaussianProcessClassifier])
def test_numbers_that_are_missing(make):
    y = REAL if make is GaussianProcessRegressor else LABELS
    hole = X.copy()
    hole[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        make(KERNEL).fit(hole, y)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        make(KERNEL, optimizer=None, **({"alpha": 0.1} if y is REAL else {})).fit(X, y).predict(hole)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        make(KERNEL).fit(X, np.where(np.arange(60) == 4, np.nan, REAL))


@pytest.mark.parametrize("make", [GaussianProcessRegressor, GaussianProcessClassifier])
def test_lengths_at_their_bounds(make):
    y = REAL if make is GaussianProcessRegressor else LABELS
    with pytest.warns(ConvergenceWarning, match="'k2__length_scale' at its upper bound, and the evidence still rises"):
        model = make(ConstantKernel(1.0, (1e-3, 1e3)) * RBF(0.1, (0.05, 0.2))).fit(X, y)
    assert model.at_bounds_ == {"k2__length_scale": "upper"}
    assert model.kernel_.k2.length_scale == pytest.approx(0.2)


@pytest.mark.parametrize("make", [GaussianProcessRegressor, GaussianProcessClassifier])
def test_more_inducing_points_than_rows(make):
    y = REAL if make is GaussianProcessRegressor else LABELS
    model = make(KERNEL, approximation="inducing", n_inducing=500).fit(X, y)
    assert model.approximation_loss_ < 1e-4
    assert model.elbo_ == pytest.approx(make(KERNEL).fit(X, y).elbo_, abs=1e-3)


def test_what_is_no_kernel():
    for kernel in ("rbf", RBF):
        with pytest.raises(ValueError, match=r"expected a kernel of sklearn\.gaussian_process\.kernels"):
            GaussianProcessRegressor(kernel).fit(X, REAL)
    with pytest.raises(NotFittedError):
        GaussianProcessClassifier().predict(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_noise_far_below_what_rows_say():
    """Repeated rows that disagree, with next to no noise: a warning that says so, and an answer between them."""
    model = GaussianProcessRegressor(KERNEL, alpha=1e-8).fit(np.tile(X, (2, 1)), np.r_[F, F + 1.0])
    np.testing.assert_allclose(model.predict(X), F + 0.5, atol=0.05)


def _full(*arguments, **options):
    raise MemoryError("out of memory")


@pytest.mark.parametrize(
    ("approximation", "place"), [(None, "latent.learn"), ("inducing", "inducing_latent.learn_inducing")]
)
def test_a_fit_that_fails_leaves_the_last_one(monkeypatch, approximation, place):
    model = GaussianProcessRegressor(KERNEL, approximation=approximation).fit(X, REAL)
    before, attributes = model.predict(X[:3]), sorted(vars(model))
    with monkeypatch.context() as patch:
        patch.setattr(f"fenchel.estimators.{place}", _full)
        with pytest.raises(MemoryError):
            model.fit(X[:30, :1], REAL[:30])
    np.testing.assert_array_equal(model.predict(X[:3]), before)
    assert sorted(vars(model)) == attributes
    assert model.n_features_in_ == 2
    fresh = GaussianProcessRegressor(KERNEL, approximation=approximation)
    with monkeypatch.context() as patch:
        patch.setattr(f"fenchel.estimators.{place}", _full)
        with pytest.raises(MemoryError):
            fresh.fit(X, REAL)
    assert not hasattr(fresh, "n_features_in_")


def test_as_many_points_as_rows_and_more():
    exact = GaussianProcessRegressor(KERNEL, approximation=None).fit(X, REAL)
    for points in (500, np.repeat(X, 2, axis=0)):
        model = GaussianProcessRegressor(KERNEL, approximation="inducing", n_inducing=points).fit(X, REAL)
        assert model.elbo_ == pytest.approx(exact.elbo_, abs=0.01)
        assert model.approximation_loss_ < 0.01
    few = GaussianProcessRegressor(approximation="inducing", n_inducing=60).fit(np.repeat(X[:6], 10, axis=0), REAL)
    assert few.approximation_["n_inducing"].max() <= 6


def test_an_interrupted_search_leaves_the_last_fit(monkeypatch):
    """The interrupt carries what its tasks have finished, which is no fit."""

    def interrupted(*arguments):
        raise KeyboardInterrupt

    model = GaussianProcessRegressor(KERNEL).fit(X, REAL)
    before = model.predict(X[:3])
    monkeypatch.setattr("fenchel.hyperparameters.learning._searched", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X + 1.0, -REAL)
    np.testing.assert_array_equal(model.predict(X[:3]), before)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_inducing": X[:5, :1]}, r"n_inducing has shape \(5, 1\); expected points \(M, 2\)"),
        ({"n_inducing": X[:5, 0]}, r"n_inducing has shape \(5,\)"),
        ({"n_inducing": X[:0]}, r"n_inducing has shape \(0, 2\)"),
        ({"n_inducing": np.nan * X[:5]}, r"n_inducing\[0, 0\] = nan is not finite"),
        ({"n_inducing": "many"}, "n_inducing = 'many' is not known; expected 'auto'"),
        ({"n_inducing": 0}, "n_inducing = 0; expected an integer >= 1"),
        ({"loss": -1.0}, "loss = -1.0; expected a finite number above 0"),
    ],
)
def test_points_that_are_none(given, said):
    with pytest.raises(ValueError, match=f"GaussianProcessRegressor: {said}"):
        GaussianProcessRegressor(approximation="inducing", **given).fit(X, REAL)


def test_rows_that_share_nothing_are_said_for_a_chosen_kernel_too():
    with pytest.warns(UserWarning, match="The evidence found nothing in y"):
        warn_unrelated("model", RBF(1e-3), X, given=False)


@pytest.mark.parametrize("make", [GaussianProcessRegressor, GaussianProcessClassifier])
def test_rows_of_weight_0_are_not_scored(make):
    held = {"alpha": 0.1} if make is GaussianProcessRegressor else {}
    y = REAL if held else LABELS
    model = make(KERNEL, optimizer=None, **held).fit(X, y)
    some = np.arange(60) < 20
    assert model.score(X, y, sample_weight=2.0 * some) == pytest.approx(model.score(X[:20], y[:20]))
    with pytest.raises(ValueError, match="every y is NaN or has weight 0"):
        model.score(X, y, sample_weight=np.zeros(60))


def test_labels_of_several_kinds_and_numbers_of_draws():
    mixed = np.array([1 if one else "b" for one in LABELS], dtype=object)
    with pytest.raises(ValueError, match="Unknown label type"):
        GaussianProcessClassifier(KERNEL).fit(X, mixed)
    model = GaussianProcessClassifier(KERNEL, optimizer=None).fit(X, LABELS)
    for size in (2.7, 0, "two"):
        with pytest.raises(ValueError, match=f"GaussianProcessClassifier: n_samples = {size!r}; expected an integer"):
            model.sample_y(X, size)


def test_arrays_that_are_changed_after_a_fit():
    """As with scikit-learn, a fit has copies: the evidence at another theta is that of the rows that were fitted."""
    y, exposure, weights = np.arange(60.0) % 4, np.linspace(1.0, 2.0, 60), np.linspace(0.5, 1.5, 60)
    model = GaussianProcessPoissonRegressor(KERNEL, optimizer=None).fit(X, y, exposure, weights)
    before = model.log_marginal_likelihood(model.theta_ + 0.1)
    for changed in (y, exposure, weights):
        changed *= 2.0
    assert model.log_marginal_likelihood(model.theta_ + 0.1) == before
