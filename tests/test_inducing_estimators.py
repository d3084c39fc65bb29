"""Estimators of Gaussian processes through inducing points, against the process itself."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

import fenchel
from fenchel import gates
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessPoissonRegressor, GaussianProcessRegressor
from fenchel.estimators.chosen_kernel import _scaling

RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 2))
F = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
NEW = RNG.normal(size=(20, 2))
KERNEL = 1.0 * RBF([1.0, 1.0], (1e-2, 1e2))
CASES = {
    "regressor": (GaussianProcessRegressor, F + 0.3 * RNG.normal(size=160), lambda m: m.predict(NEW, return_std=True)),
    "counts": (GaussianProcessPoissonRegressor, RNG.poisson(np.exp(F)), lambda m: m.predict(NEW)),
    "labels": (GaussianProcessClassifier, F + RNG.logistic(size=160) > 0.0, lambda m: m.predict_proba(NEW)),
    "classes": (
        GaussianProcessClassifier,
        np.argmax(np.column_stack([F, -F, 0.0 * F]) + RNG.gumbel(size=(160, 3)), axis=1),
        lambda m: m.predict_proba(NEW),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_predictions_are_those_of_the_process_itself(case):
    make, y, predicted = CASES[case]
    few = make(KERNEL, approximation="inducing", loss=0.01).fit(X, y)
    exact = make(KERNEL, approximation=None).fit(X, y)
    assert exact.approximation_ is None
    assert exact.approximation_loss_ == 0.0
    assert few.converged_
    assert 0.0 <= few.approximation_loss_ <= 0.01
    assert list(few.approximation_.columns) == ["n_inducing", "elbo", "bound", "standard_error", "seconds"]
    assert "inducing points cost at most" in few.summary()
    assert "approximation" not in exact.summary()
    assert few.elbo_ == pytest.approx(exact.elbo_, abs=0.05)
    np.testing.assert_allclose(predicted(few), predicted(exact), atol=0.02)


def test_many_rows_have_points_unasked(monkeypatch):
    monkeypatch.setattr(gates, "INDUCING_ROWS", 100)
    make, y, _ = CASES["counts"]
    assert make(KERNEL).fit(X, y).approximation_ is not None
    assert make(KERNEL).fit(X[:90], y[:90]).approximation_ is None
    assert make(KERNEL, approximation=None).fit(X, y).approximation_ is None


def test_points_numbers_and_words():
    make, y, _ = CASES["regressor"]
    held = make(KERNEL, approximation="inducing", n_inducing=12).fit(X, y)
    assert held.approximation_["n_inducing"].tolist() == [12]
    given = make(KERNEL, approximation="inducing", n_inducing=X[:9], optimizer=None, likelihood=fenchel.Gaussian(0.1))
    assert given.fit(X, y).approximation_["n_inducing"].tolist() == [9]
    np.testing.assert_array_equal(given.theta_, KERNEL.theta)
    with pytest.raises(ValueError, match="approximation"):
        make(KERNEL, approximation="neighbors").fit(X, y)
    assert clone(held).get_params()["n_inducing"] == 12


def test_joint_answers_of_new_rows():
    """Covariances and draws hold what the points do not explain: near the process itself even with few of them."""
    make, y, _ = CASES["regressor"]
    few = make(KERNEL, approximation="inducing", loss=1e-3).fit(X, y)
    exact = make(few.kernel_, approximation=None, optimizer=None, likelihood=few.likelihood_).fit(X, y)
    np.testing.assert_allclose(few.predict(NEW, return_cov=True)[1], exact.predict(NEW, return_cov=True)[1], atol=2e-3)
    draws = few.sample_y(NEW, 4000, random_state=0)
    np.testing.assert_allclose(np.cov(draws), exact.predict(NEW, return_cov=True)[1], atol=0.1)


def test_slopes_of_the_evidence_and_integration():
    make, y, _ = CASES["counts"]
    few = make(1.0 * RBF(1.0), approximation="inducing", n_inducing=25).fit(X, y)
    value, slope = few.log_marginal_likelihood(few.theta_, eval_gradient=True)
    assert value == pytest.approx(few.elbo_, abs=1e-6)
    ends = [few.log_marginal_likelihood(few.theta_ + e) for e in (1e-4 * np.eye(2)[0], -1e-4 * np.eye(2)[0])]
    assert slope[0] == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-5)
    both = make(1.0 * RBF(1.0), approximation="inducing", n_inducing=60, integrate=True).fit(X, y)
    exact = make(1.0 * RBF(1.0), approximation=None, integrate=True).fit(X, y)
    np.testing.assert_allclose(both.predict(NEW), exact.predict(NEW), rtol=0.05)


@pytest.mark.parametrize("case", ["regressor", "classes"])
def test_a_file_keeps_the_points(case, tmp_path):
    make, y, predicted = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = make(KERNEL, approximation="inducing", n_inducing=20).fit(X, y)
    few.save(tmp_path / "few.fenchel")
    again = fenchel.load(tmp_path / "few.fenchel")
    np.testing.assert_allclose(predicted(again), predicted(few), rtol=1e-6)
    assert again.approximation_loss_ == few.approximation_loss_
    assert again.approximation_.equals(few.approximation_)


def test_restarts_that_are_not_used_are_said():
    y = CASES["regressor"][1]
    model = GaussianProcessRegressor(KERNEL, approximation="inducing", n_inducing=12, n_restarts_optimizer=2)
    with pytest.warns(UserWarning, match="n_restarts_optimizer is not used with inducing points"):
        model.fit(X, y)


@pytest.mark.parametrize("integrate", [None, True])
def test_an_interrupt_leaves_a_model_that_predicts(integrate, monkeypatch):
    from fenchel.hyperparameters import inducing_learning

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(inducing_learning, "approximation_loss", interrupted)
    make, y, predicted = CASES["labels"]
    model = make(KERNEL, approximation="inducing", n_inducing=20, integrate=integrate)
    with pytest.raises(KeyboardInterrupt, match="the best fit so far is kept"):
        model.fit(X, y)
    assert model.integrated_ is None  # which would take several fits more
    assert np.isfinite(predicted(model)).all()
    assert model.approximation_loss_ == np.inf
    assert "interrupted" in model.summary()


def test_rows_that_agree_constant_columns_and_more_points_than_rows():
    """Each is fitted without a warning, and points that explain nothing are left out."""
    make, y, _ = CASES["counts"]
    twice, both = np.vstack([X, X]), np.concatenate([y, y])
    constant = np.column_stack([X, np.full(160, 3.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doubled = make(KERNEL, approximation="inducing", n_inducing=300).fit(twice, both)
        flat = make(1.0 * RBF(1.0), approximation="inducing", n_inducing=30).fit(constant, y)
    assert doubled.approximation_["n_inducing"].iloc[-1] <= 160
    assert doubled.approximation_loss_ < 1e-3
    held = make(doubled.kernel_, approximation=None, optimizer=None).fit(X, y, sample_weight=np.full(160, 2.0))
    assert doubled.elbo_ == pytest.approx(held.elbo_, abs=1e-3)
    plain = make(1.0 * RBF(1.0), approximation="inducing", n_inducing=30).fit(X, y)
    assert flat.elbo_ == pytest.approx(plain.elbo_, abs=1e-4)


def test_a_length_at_its_bound_is_said():
    make, y, _ = CASES["counts"]
    with pytest.warns(UserWarning, match="bound"):
        model = make(1.0 * RBF(0.1, (0.05, 0.2)), approximation="inducing", n_inducing=40).fit(X, y)
    assert model.at_bounds_ == {"k2__length_scale": "upper"}


# -- y in large units --------------------------------------------------------------------------------------
FREE = ConstantKernel(1.0, (1e-5, 1e12)) * RBF([1.0, 1.0], (1e-2, 1e2))
OTHERS = [
    {"approximation": "inducing", "n_inducing": 60},
    {"approximation": "neighbours"},
    {"approximation": None, "likelihood": "student-t"},
]


@pytest.mark.parametrize("options", OTHERS, ids=["points", "neighbours", "student-t"])
def test_a_start_far_below_the_variance_of_y_is_raised(options):
    y, scale = CASES["regressor"][1], 1e4
    small = GaussianProcessRegressor(FREE, **options).fit(X, y)
    large = GaussianProcessRegressor(FREE, **options).fit(X, scale * y)
    assert large.elbo_ + len(y) * np.log(scale) == pytest.approx(small.elbo_, abs=0.05)
    np.testing.assert_allclose(large.predict(NEW), scale * small.predict(NEW), rtol=0.01, atol=0.01 * scale)


def test_only_what_scales_the_kernel_is_raised():
    kernel = 2.0 * (RBF(3.0) + 0.5 * RBF(1.0)) + ConstantKernel(1.0, "fixed") * RBF(1.0) + DotProduct()
    np.testing.assert_array_equal(_scaling(kernel), [1, 0, 0, 0, 0, 0])


def test_a_kernel_that_cannot_reach_the_variance_of_y_is_said(tmp_path):
    y, says = 1e5 * CASES["regressor"][1], "less than a hundredth of the variance of y.*normalize_y=True"
    for kernel in (1.0 * RBF(1.0), RBF(1.0)):
        with pytest.warns(UserWarning, match=says):
            model = GaussianProcessRegressor(kernel, approximation="inducing", n_inducing=20).fit(X, y)
    model.save(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fenchel.load(tmp_path / "model")
        GaussianProcessRegressor(RBF(1.0), normalize_y=True, approximation="inducing", n_inducing=20).fit(X, y)
        GaussianProcessClassifier(RBF(1.0), approximation="inducing", n_inducing=20).fit(X, y > 0.0)
