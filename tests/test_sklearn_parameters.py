"""scikit-learn's parameters of Gaussian processes: the same answers as scikit-learn's own where both have them."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor as Theirs
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

import fenchel
from fenchel import (
    BayesianLogisticRegression,
    GaussianProcessClassifier,
    GaussianProcessPoissonRegressor,
    GaussianProcessRegressor,
)

KERNEL = ConstantKernel(1.3) * RBF([0.8, 1.4])
ZERO_MEAN = {"mean": 0.0, "fit_intercept": False}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    Y = np.column_stack([f + 0.2 * rng.normal(size=40), 2 * f + 0.4 * rng.normal(size=40)])
    return X, Y, rng.uniform(-2, 2, (7, 2))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_alpha_and_normalize_y_are_scikit_learns(data, normalize, vector, learned):
    X, Y, new = data
    alpha = np.linspace(0.05, 0.4, 40) if vector else 0.1
    optimizer = "fmin_l_bfgs_b" if learned else None
    given = {"alpha": alpha, "normalize_y": normalize, "optimizer": optimizer}
    y = Y[:, 1] + (50.0 if normalize else 0.0)
    ours = GaussianProcessRegressor(KERNEL, **given, **ZERO_MEAN).fit(X, y)
    theirs = Theirs(KERNEL, **given).fit(X, y)
    close = {"rtol": 2e-3 if learned else 1e-8}
    np.testing.assert_allclose(ours.kernel_.theta, theirs.kernel_.theta, rtol=5e-3, atol=5e-3)
    for kind in ({}, {"return_std": True}, {"return_cov": True}):
        pairs = (one.predict(new, **kind) if kind else [one.predict(new)] for one in (ours, theirs))
        for a, b in zip(*pairs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3 * np.abs(b).max() if learned else 1e-9, **close)
    sd = y.std() if normalize else 1.0  # ours is of y, theirs of normalised y
    evidence = ours.log_marginal_likelihood(theirs.kernel_.theta) + 40 * np.log(sd)
    assert evidence == pytest.approx(theirs.log_marginal_likelihood(theirs.kernel_.theta), abs=1e-6)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("alpha", [0.1, None])
def test_several_outputs(data, normalize, alpha):
    X, Y, new = data
    model = GaussianProcessRegressor(KERNEL, alpha=alpha, normalize_y=normalize, **ZERO_MEAN).fit(X, Y)
    assert model.converged_
    assert len(model.outputs_) == 2
    assert model.gap_ < 1e-6
    mean, cov = model.predict(new, return_cov=True)
    assert mean.shape == (7, 2)
    assert cov.shape == (7, 7, 2)
    assert model.sample_y(new, 5).shape == (7, 2, 5)
    assert model.predict_quantiles(new).shape == (7, 2, 3)
    theta = model.theta_
    value, slope = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(model.elbo_, abs=1e-6)
    inside = (theta > -11) & (theta < 11)
    assert np.abs(slope[inside]).max() < 5e-3
    if alpha is not None:
        theirs = Theirs(KERNEL, alpha=alpha, normalize_y=normalize).fit(X, Y)
        np.testing.assert_allclose(model.kernel_.theta, theirs.kernel_.theta, atol=5e-3)
        np.testing.assert_allclose(mean, theirs.predict(new), rtol=2e-3, atol=2e-3)
    else:
        assert model.score(X, Y) > model.score(X, Y + 3.0)


def test_outputs_with_a_kernel_that_is_chosen(data):
    X, Y, new = data
    X, Y = np.tile(X, (2, 1)) + 0.01 * np.arange(80)[:, None], np.tile(Y, (2, 1))
    model = GaussianProcessRegressor(normalize_y=True).fit(X, Y)
    assert model.kernel_choice_ is not None
    assert model.predict(new).shape == (7, 2)


@pytest.mark.parametrize("alpha", [None, np.linspace(0.05, 0.2, 40)])
def test_outputs_of_rows_without_weight(data, alpha):
    X, Y, new = data
    weight = np.where(np.arange(len(X)) < 8, 0.0, 1.5)
    noise = None if alpha is None else np.resize(alpha, len(X))
    model = GaussianProcessRegressor(KERNEL, alpha=noise, mean="zero").fit(X, Y, weight)
    fewer = GaussianProcessRegressor(KERNEL, alpha=None if noise is None else noise[8:], mean="zero")
    fewer.fit(X[8:], Y[8:], weight[8:])
    assert model.elbo_ == pytest.approx(fewer.elbo_)
    np.testing.assert_allclose(model.predict(new), fewer.predict(new), rtol=1e-4)


def test_prior_before_a_fit(data):
    _, _, new = data
    mean, cov = GaussianProcessRegressor(KERNEL).predict(new, return_cov=True)
    np.testing.assert_allclose(cov, KERNEL(new))
    assert (mean == 0).all()
    assert mean.flags.writeable
    drawn = GaussianProcessRegressor(KERNEL, n_targets=2).sample_y(new, 4000, random_state=1)
    assert drawn.shape == (7, 2, 4000)
    np.testing.assert_allclose(np.cov(drawn[:, 1]), KERNEL(new), atol=0.15)
    with pytest.raises(ValueError, match="not fitted"):
        GaussianProcessRegressor(KERNEL, "poisson").predict(new)


def test_class_weight_is_a_weight_of_rows(data):
    X, Y, _ = data
    y = np.where(Y[:, 0] > 0.8, "b", "a")
    share = (y == "b").mean()
    weights = np.where(y == "b", 0.5 / share, 0.5 / (1 - share))
    for make in (lambda **o: GaussianProcessClassifier(KERNEL, **o), BayesianLogisticRegression):
        balanced = make(class_weight="balanced").fit(X, y)
        by_rows = make().fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(balanced.predict_proba(X), by_rows.predict_proba(X), rtol=1e-6)
        twice = make(class_weight={"b": 2.0}).fit(X, y)
        assert (twice.predict_proba(X)[:, 1] >= make().fit(X, y).predict_proba(X)[:, 1] - 0.05).all()
    with pytest.raises(ValueError, match=r"class_weight names the label 'c', which y does not have; expected labels"):
        GaussianProcessClassifier(class_weight={"c": 1.0}).fit(X, y)
    with pytest.raises(ValueError, match=r"class_weight = 'fair' is not known; expected None or 'balanced'"):
        GaussianProcessClassifier(class_weight="fair").fit(X, y)


def test_restarts_side_by_side(data):
    X, Y, _ = data
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(1.0, (1e-1, 1e1))
    models = [
        GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0, n_jobs=n).fit(X, Y[:, 0])
        for n in (1, 2)
    ]
    assert models[0].elbo_ == pytest.approx(models[1].elbo_, abs=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("several", [False, True])
def test_a_function_as_optimizer_looks_beyond_double_precision(data, several):
    """There the objective is infinite, as in scikit-learn."""
    X, Y, _ = data
    seen = []

    def optimizer(obj_func, initial_theta, bounds):
        seen.append(obj_func(bounds[:, 1])[0])
        return initial_theta, obj_func(initial_theta)[0]

    kernel = ConstantKernel() * RBF()
    model = GaussianProcessRegressor(kernel, optimizer=optimizer, alpha=1e-12)
    assert model.fit(X, Y if several else Y[:, 0]).kernel_ == kernel
    assert seen == [np.inf]
    wide = ConstantKernel(1.0, (1e-3, np.inf)) * RBF()
    with pytest.raises(ValueError, match="n_restarts_optimizer = 1 requires that all bounds are finite"):
        model.set_params(kernel=wide, n_restarts_optimizer=1).fit(X, Y if several else Y[:, 0])


def test_a_function_as_optimizer(data):
    X, Y, _ = data
    calls = []

    def optimizer(obj_func, initial_theta, bounds):
        value, slope = obj_func(initial_theta)
        calls.append((len(initial_theta), bounds.shape))
        return initial_theta - 1e-3 * slope, value

    model = GaussianProcessRegressor(KERNEL, optimizer=optimizer).fit(X, Y[:, 0])
    assert calls == [(4, (4, 2))]  # the noise is learned too
    assert model.log_marginal_likelihood(model.theta_) > model.log_marginal_likelihood(
        np.r_[KERNEL.theta, model.theta_[-1]]
    )
    assert GaussianProcessRegressor(KERNEL, optimizer=optimizer, alpha=0.1).fit(X, Y).outputs_


def test_several_outputs_after_one(data):
    """Nothing is left of the fit of one output, and the summary is of each."""
    X, Y, _ = data
    held = {"kernel": KERNEL, "alpha": 0.1, "optimizer": None}
    model = GaussianProcessRegressor(**held, integrate=None).fit(X, Y[:, 0])
    before, several = model.summary(), model.fit(X, Y).summary().splitlines()
    assert several[0] == "output 0"
    assert several.index("output 1") == len(before.splitlines()) + 2
    assert set(vars(model)) == set(vars(GaussianProcessRegressor(**held).fit(X, Y)))


def test_log_marginal_likelihood_overwrites_only_when_asked(data):
    X, Y, _ = data
    model = GaussianProcessRegressor(KERNEL).fit(X, Y[:, 0])
    before = model.kernel_.theta
    model.log_marginal_likelihood(before + 0.1)
    np.testing.assert_array_equal(model.kernel_.theta, before)
    model.log_marginal_likelihood(before + 0.1, clone_kernel=False)
    np.testing.assert_allclose(model.kernel_.theta, before + 0.1)


@pytest.mark.parametrize("options", [{"alpha": 0.1}, {"normalize_y": True}, {"alpha": np.full(40, 0.2)}])
@pytest.mark.parametrize("outputs", [1, 2])
def test_clones_pickles_and_files(data, tmp_path, options, outputs):
    X, Y, new = data
    y = Y if outputs == 2 else Y[:, 0]
    model = GaussianProcessRegressor(KERNEL, n_targets=outputs, **options).fit(X, y)
    assert clone(model).get_params().keys() == model.get_params().keys()
    model.save(tmp_path / "model.fenchel")
    for other in (pickle.loads(pickle.dumps(model)), fenchel.load(tmp_path / "model.fenchel")):
        for a, b in zip(other.predict(new, return_std=True), model.predict(new, return_std=True), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)
        assert other.kernel_ == model.kernel_


def test_counts_have_a_standard_deviation(data):
    X, _, new = data
    y = np.random.default_rng(1).poisson(np.exp(1 + X[:, 0]))
    mean, sd = GaussianProcessPoissonRegressor(Matern(1.0)).fit(X, y).predict(new, return_std=True)
    assert (sd**2 > mean).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"alpha": 0.0}, "alpha holds 0; expected variances above 0"),
        ({"alpha": -1.0}, "alpha holds -1; expected variances above 0"),
        ({"alpha": np.ones(3)}, r"alpha has shape \(3,\); expected a number, or an array of 40"),
        ({"alpha": 0.1, "likelihood": "poisson"}, r"alpha = 0.1 with likelihood = 'poisson'; expected likelihood"),
        (
            {"normalize_y": True, "likelihood": "poisson"},
            r"normalize_y=True with likelihood = 'poisson'",
        ),
        ({"n_targets": 2}, "The number of targets seen in `y` is different"),
        ({"optimizer": "adam"}, "optimizer = 'adam' is not known; expected 'fmin_l_bfgs_b' or None"),
        ({"n_jobs": "two"}, "n_jobs"),
    ],
)
def test_refusals(data, options, sentence):
    X, Y, _ = data
    with pytest.raises(ValueError, match=sentence):
        GaussianProcessRegressor(KERNEL, **options).fit(X, np.round(np.abs(Y[:, 0])))


def test_refusals_of_several_outputs(data):
    X, Y, new = data
    for options in ({"likelihood": "student-t"}, {"integrate": True}, {"approximation": "inducing"}):
        with pytest.raises(ValueError, match=r"several outputs.*MultiOutputRegressor"):
            GaussianProcessRegressor(KERNEL, **options).fit(X, Y)
    model = GaussianProcessRegressor(KERNEL, alpha=np.full(40, 0.1)).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match=r"that of other rows is unknown; expected a number for alpha"):
        model.score(new, new[:, 0])


def test_outputs_that_are_tiny_beside_the_kernel_are_refused_in_words():
    x = np.linspace(0.0, 5.0, 50)[:, None]
    noise = 0.1 * np.random.default_rng(0).normal(size=(50, 2))
    tiny = 1e-8 * (np.column_stack([np.sin(x[:, 0]), np.cos(x[:, 0])]) + noise)
    with pytest.raises(ValueError, match="scale of y"):
        GaussianProcessRegressor(1.0 * RBF(1.0)).fit(x, tiny)
    assert GaussianProcessRegressor(1.0 * RBF(1.0), normalize_y=True).fit(x, tiny).outputs_ is not None


def test_a_warning_of_unrelated_rows_is_given_once_for_all_outputs(data):
    X, Y, _ = data
    fixed = RBF(1e-3, "fixed")
    with pytest.warns(UserWarning, match="no row is related to any other") as seen:
        GaussianProcessRegressor(ConstantKernel(1.0) * fixed).fit(X, Y)
    assert sum("no row is related" in str(one.message) for one in seen) == 1


def test_default_outputs_of_many_rows_are_told_of_the_approximation():
    X = np.zeros((2001, 1))
    with pytest.raises(ValueError, match=r'approximation="auto" is one above 2000 rows.*approximation=None'):
        GaussianProcessRegressor().fit(X, np.zeros((2001, 2)))


def test_weights_that_leave_no_noise_are_said(data):
    X, Y, _ = data
    weights = np.where(np.arange(40) < 20, 30.0, 1.0)
    with pytest.warns(UserWarning, match="almost no noise is left, since a sample_weight above 1"):
        GaussianProcessRegressor(KERNEL).fit(X, Y[:, 0], sample_weight=weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GaussianProcessRegressor(KERNEL).fit(X, Y[:, 0], sample_weight=weights / weights.mean())


def test_a_column_of_words_in_an_array_is_told_of_levels(data):
    X, Y, _ = data
    words = np.column_stack([X.astype(object), np.where(X[:, 0] > 0, "a", "b")])
    with pytest.raises(ValueError, match=r"X\[:, 2\] holds text.*categorical_features=.*Or encode words"):
        GaussianProcessRegressor().fit(words, Y[:, 0])
