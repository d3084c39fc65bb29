"""Gaussian process estimators: scikit-learn's checks, the evidence, and what a user does in the first five minutes."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from conftest import difference
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fenchel
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessPoissonRegressor, GaussianProcessRegressor
from fenchel.likelihoods import BernoulliLogit, Gaussian, Poisson
from fenchel.priors import DenseCovariance

KERNEL = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(1.0, (1e-1, 1e1))


def binary(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (X[:, 0] + 0.4 * rng.normal(size=n) > 0).astype(int)


def counts(n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 6, n))[:, None]
    exposure = rng.uniform(0.5, 3.0, n)
    return x, rng.poisson(exposure * np.exp(1 + np.sin(2 * x[:, 0]))), exposure


@pytest.mark.parametrize("estimator", [GaussianProcessClassifier(), GaussianProcessPoissonRegressor()])
def test_scikit_learns_own_checks(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator, on_skip=None)


def test_the_fit_is_infers_fit():
    X, y = binary()
    kernel = 2.0 * RBF(1.5)
    model = GaussianProcessClassifier(kernel, optimizer=None, bound="log-sum", fit_intercept=False).fit(X, y)
    sol = fenchel.infer(BernoulliLogit("log-sum"), DenseCovariance(kernel(X)), y)
    assert model.elbo_ == pytest.approx(sol.elbo, abs=1e-8)
    new = np.random.default_rng(1).normal(size=(5, 2))
    h, rho = sol.posterior.predict(cross=kernel(new, X), variance=kernel.diag(new))
    np.testing.assert_allclose(
        model.predict_proba(new)[:, 1], BernoulliLogit("log-sum").predictive_mean(h, rho), atol=1e-6
    )
    np.testing.assert_allclose(model.latent_mean_and_variance(new)[0], h, atol=1e-6)
    p = model.predict_proba(new)[:, 1]
    np.testing.assert_allclose(model.decision_function(new), np.log(p / (1 - p)), atol=1e-9)
    assert model.kernel_.theta == pytest.approx(kernel.theta)


@pytest.mark.parametrize("bound", ["best", "tilted", "log-sum"])
def test_evidence_gradient(bound):
    kernel = 1.3 * RBF([0.8, 1.7]) + WhiteKernel(0.2)
    iris = load_iris()
    for X, y in (binary(), (iris.data[::5, :2], iris.target[::5])):
        model = GaussianProcessClassifier(kernel, optimizer=None, bound=bound).fit(X, y)
        theta = model.kernel_.theta + 0.1
        value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
        numeric = difference(lambda t, m=model: m.log_marginal_likelihood(t), theta, step=1e-4)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)
        assert value == pytest.approx(model.log_marginal_likelihood(theta), abs=1e-8)


def test_evidence_gradient_of_counts():
    x, y, exposure = counts()
    model = GaussianProcessPoissonRegressor(1.3 * RBF(0.8), optimizer=None).fit(x, y, exposure)
    theta = model.kernel_.theta + 0.1
    gradient = model.log_marginal_likelihood(theta, eval_gradient=True)[1]
    numeric = difference(model.log_marginal_likelihood, theta, step=1e-4)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


def test_learning_raises_the_evidence_and_keeps_the_users_kernel():
    X, y = binary()
    kernel = clone(KERNEL)
    model = GaussianProcessClassifier(kernel).fit(X, y)
    assert model.converged_
    assert model.gap_ <= 1e-10 * max(1, abs(model.elbo_))
    assert kernel == KERNEL
    fixed = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    assert model.elbo_ > fixed.elbo_
    assert model.log_marginal_likelihood() == model.log_marginal_likelihood_value_ == model.elbo_
    assert model.n_iter_ >= 1
    with pytest.raises(ValueError, match="Gradient can only be evaluated for theta!=None"):
        model.log_marginal_likelihood(eval_gradient=True)
    with pytest.raises(ValueError, match=r"theta has shape \(3,\); expected \(2,\): k1__constant_value"):
        model.log_marginal_likelihood(np.zeros(3))


def test_joint_classes_are_better_than_chance_and_sum_to_one():
    X, y = load_iris(return_X_y=True)
    model = GaussianProcessClassifier(KERNEL).fit(X[::2], y[::2])
    p = model.predict_proba(X[1::2])
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (model.predict(X[1::2]) == y[1::2]).mean() > 0.9
    assert model.score(X[1::2], y[1::2]) == pytest.approx(-log_loss(y[1::2], p))
    assert model.latent_mean_and_variance(X[:4])[0].shape == (4, 3)
    assert model.predict_quantiles(X[:4], [0.1, 0.9]).shape == (4, 3, 2)
    low, high = np.moveaxis(model.predict_quantiles(X[:20], [0.1, 0.9]), -1, 0)
    assert (low <= high).all()
    np.testing.assert_array_equal(np.argmax(model.decision_function(X), axis=1), np.argmax(model.predict_proba(X), 1))


def test_labels_of_any_kind_and_draws():
    X, y = binary()
    names = np.array(["sick", "well"])[y]
    model = GaussianProcessClassifier(KERNEL, optimizer=None).fit(X, names)
    assert set(model.predict(X)) == {"sick", "well"}
    draws = model.sample_y(X[:3], 4000, random_state=0)
    np.testing.assert_allclose((draws == "well").mean(axis=1), model.predict_proba(X[:3])[:, 1], atol=0.03)
    np.testing.assert_array_equal(draws, model.sample_y(X[:3], 4000, random_state=0))
    with pytest.raises(ValueError, match=r"label 'dead' was not seen in fit; expected one of \['sick', 'well'\]"):
        model.score(X[:1], ["dead"])
    quantiles = model.predict_quantiles(X[:5], [0.25, 0.5, 0.75])
    assert (np.diff(quantiles, axis=1) > 0).all()


def test_weights_mean_repetition():
    X, y = binary(20)
    twice = GaussianProcessClassifier(KERNEL, optimizer=None).fit(np.vstack([X, X[:5]]), np.r_[y, y[:5]])
    weight = np.r_[np.full(5, 2.0), np.ones(15)]
    weighted = GaussianProcessClassifier(KERNEL, optimizer=None).fit(X, y, sample_weight=weight)
    assert weighted.elbo_ == pytest.approx(twice.elbo_, abs=1e-7)
    np.testing.assert_allclose(weighted.predict_proba(X), twice.predict_proba(X), atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*the evidence still rises beyond:sklearn.exceptions.ConvergenceWarning")
def test_awkward_data():
    X, y = binary(30)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        GaussianProcessClassifier().fit(np.where(X > 0.5, np.nan, X), y)
    with pytest.raises(ValueError, match=r"y has one class only, 1; expected two or more classes"):
        GaussianProcessClassifier().fit(X, np.ones(30, dtype=int))
    flat = np.column_stack([X, np.full(30, 3.0)])
    assert GaussianProcessClassifier(KERNEL).fit(flat, y).predict(flat).shape == (30,)
    assert GaussianProcessClassifier(KERNEL).fit(X[:10], y[:10]).gap_ < 1e-8
    doubled = GaussianProcessClassifier(KERNEL).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
    assert doubled.converged_
    with pytest.raises(ValueError, match="optimizer = 'adam'"):
        GaussianProcessClassifier(optimizer="adam").fit(X, y)
    with pytest.raises(ValueError, match="at least one non-zero"):
        GaussianProcessClassifier().fit(X, y, sample_weight=np.zeros(30))
    with pytest.raises(NotFittedError):
        GaussianProcessClassifier().predict(X)


def test_separable_classes_are_learned_within_bounds():
    x = np.r_[np.linspace(-2, -1, 10), np.linspace(1, 2, 10)][:, None]
    model = GaussianProcessClassifier().fit(x, (x[:, 0] > 0).astype(int))
    assert np.isfinite(model.elbo_)
    assert (model.predict(x) == (x[:, 0] > 0)).all()


def test_one_warning_with_a_sentence():
    X, y = binary()
    with pytest.warns(
        ConvergenceWarning, match="GaussianProcessClassifier did not converge: .*gap_ bounds the distance"
    ) as seen:
        GaussianProcessClassifier(KERNEL, optimizer=None, tol=0.0).fit(X, y)
    assert len([w for w in seen if issubclass(w.category, ConvergenceWarning)]) == 1


def test_frames_pipelines_searches_and_pickles():
    X, y = binary(30)
    frame = pd.DataFrame(X, columns=["left", "right"])
    model = GaussianProcessClassifier(KERNEL).fit(frame, y)
    assert list(model.feature_names_in_) == ["left", "right"]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict_proba(frame), model.predict_proba(frame))
    assert clone(model).get_params()["bound"] == "best"
    pipe = make_pipeline(StandardScaler(), GaussianProcessClassifier(KERNEL, optimizer=None))
    search = GridSearchCV(pipe, {"gaussianprocessclassifier__bound": ["tilted", "log-sum"]}, cv=3).fit(X, y)
    assert search.best_score_ < 0
    assert cross_val_score(pipe, X, y, cv=3, scoring="accuracy").mean() > 0.6


@pytest.mark.filterwarnings("ignore:.*the evidence still rises beyond:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("bound", ["tilted", "best"])
def test_learning_many_lengths_makes_no_tensor(bound):
    import tracemalloc

    n, d = 400, 20
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)
    tracemalloc.start()
    GaussianProcessClassifier(1.0 * RBF(np.full(d, 4.0), (1e-1, 1e2)), bound=bound).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 8 * n * n  # twenty derivatives would be twenty more


@pytest.mark.filterwarnings("ignore:.*the evidence still rises beyond:sklearn.exceptions.ConvergenceWarning")
def test_warm_start_begins_at_the_last_kernel():
    X, y = binary(60)
    model = GaussianProcessClassifier(KERNEL, warm_start=True).fit(X[:50], y[:50])
    learned = model.kernel_.theta
    model.set_params(optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.kernel_.theta, learned)


def test_restarts_are_seeded():
    X, y = binary()
    fits = [GaussianProcessClassifier(KERNEL, n_restarts_optimizer=2, random_state=0).fit(X, y) for _ in range(2)]
    assert fits[0].elbo_ == fits[1].elbo_
    assert fits[0].elbo_ >= GaussianProcessClassifier(KERNEL).fit(X, y).elbo_ - 1e-8


def test_tighter_is_better_on_real_data():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = rows[:150], rows[150:300]
    best, tilted, paper = (
        GaussianProcessClassifier(1.0 * RBF(5.0), bound=bound).fit(X[train], y[train])
        for bound in ("best", "tilted", "log-sum")
    )
    assert best.likelihood_.bound == "exact"
    assert best.elbo_ > tilted.elbo_ > paper.elbo_
    assert min(best.score(X[test], y[test]), tilted.score(X[test], y[test])) > paper.score(X[test], y[test])


def test_the_best_bound_of_each_problem():
    X, y = load_iris(return_X_y=True)
    model = GaussianProcessClassifier(KERNEL, optimizer=None).fit(X[::5], y[::5])
    assert model.likelihood_.bound == "tilted"
    exact = GaussianProcessClassifier(KERNEL, optimizer=None, bound="exact").fit(X[::5], y[::5])
    assert exact.elbo_ > model.elbo_
    np.testing.assert_allclose(exact.predict_proba(X[::9]).sum(axis=1), 1.0)
    with pytest.raises(ValueError, match=r"bound = 'tight' is not known; expected 'best' or 'exact' or 'tilted'"):
        GaussianProcessClassifier(KERNEL, bound="tight").fit(X, y)


# -- counts --------------------------------------------------------------------------------------------
def test_counts_with_exposure():
    x, y, exposure = counts(60)
    model = GaussianProcessPoissonRegressor().fit(x, y, exposure)
    assert model.converged_
    rate = np.exp(1 + np.sin(2 * x[:, 0]))
    error = np.abs(np.log(model.predict(x) / rate))
    assert np.median(error) < 0.25
    np.testing.assert_allclose(model.predict(x, exposure), exposure * model.predict(x))
    bands = model.predict_rate(x, [0.025, 0.975])
    assert ((bands[:, 0] < rate) & (rate < bands[:, 1])).mean() > 0.8
    assert model.mean_ == pytest.approx(np.log(y.sum() / exposure.sum()))


def test_quantiles_and_draws_of_counts():
    x, y, exposure = counts(25)
    model = GaussianProcessPoissonRegressor(1.0 * RBF(1.0), optimizer=None).fit(x, y, exposure)
    levels = [0.05, 0.5, 0.95]
    q = model.predict_quantiles(x, levels, exposure)
    draws = model.sample_y(x, 40_000, random_state=1, exposure=exposure)
    for level, column in zip(levels, q.T, strict=True):  # P(y <= q) >= level, P(y < q) < level
        assert ((draws <= column[:, None]).mean(axis=1) >= level - 0.01).all()
        assert ((draws < column[:, None]).mean(axis=1) < level + 0.01).all()
    h, rho = model.latent_mean_and_variance(x)
    expected = Poisson(exposure).predictive_log_density(y, h, rho).mean()
    assert model.score(x, y, exposure=exposure) == pytest.approx(expected)


def test_quantiles_of_a_known_rate():
    model = GaussianProcessPoissonRegressor(
        ConstantKernel(1e-12, "fixed") * RBF(1.0, "fixed"), optimizer=None, mean=1.2, fit_intercept=False
    )
    model.fit(np.zeros((3, 1)), [1, 4, 2])
    q = model.predict_quantiles(np.zeros((1, 1)), [0.01, 0.3, 0.5, 0.999])
    np.testing.assert_array_equal(q[0], scipy.stats.poisson.ppf([0.01, 0.3, 0.5, 0.999], np.exp(1.2)))


def test_real_targets_are_taken_with_one_warning():
    x, y, _ = counts(20)
    with pytest.warns(UserWarning, match="y is not whole numbers everywhere") as seen:
        model = GaussianProcessPoissonRegressor(1.0 * RBF(1.0), optimizer=None).fit(x, y + 0.5)
    assert len(seen) == 1
    assert np.isfinite(model.predict(x)).all()
    with pytest.raises(ValueError, match=r"y\[0\] = -1 is negative; expected counts"):
        GaussianProcessPoissonRegressor().fit(x, np.r_[-1, y[1:]])


def test_all_counts_zero():
    x = np.linspace(0, 1, 12)[:, None]
    model = GaussianProcessPoissonRegressor().fit(x, np.zeros(12))
    assert (model.predict(x) < 0.5).all()


@pytest.mark.parametrize(("n", "d", "seed"), [(20, 2, 0), (40, 3, 1)])
def test_y_without_noise_converges_where_the_kernel_grows_large(n, d, seed):
    """The variance of the kernel is far above that of y, so that the least noise is lost in rounding."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 5, (n, d))
    y = np.sin(X[:, 0]) + np.cos(0.7 * X[:, 1]) if d == 2 else np.sin(X[:, 0]) * X[:, 1] + 0.1 * X[:, 2] ** 2
    kernel = ConstantKernel() * RBF(np.ones(d) if d == 3 else 1.0)
    fit = GaussianProcessRegressor(kernel).fit(X, y)  # a warning is an error here
    assert fit.converged_
    assert np.abs(fit.predict(X) - y).max() < 1e-4 * y.std()


def test_y_without_noise_is_interpolated_without_a_warning():
    x = np.linspace(0.0, 10.0, 30)[:, None]
    y = np.sin(x[:, 0])
    model = GaussianProcessRegressor().fit(x, y)  # a warning is an error here
    assert model.converged_
    assert model.at_bounds_ == {}
    assert model.likelihood_.variance == pytest.approx(1e-8 * y.var())
    assert np.abs(model.predict(x) - y).max() < 1e-4


def joint_by_dense_algebra(model, x, y, new):
    """Mean and covariance of y at new rows, level and noise included."""
    kernel, level, noise = model.kernel_, model._latent.level, float(model.likelihood_.variance)
    K = kernel(x) + level + noise * np.eye(len(x))
    cross = kernel(new, x) + level
    mean = model.mean_ + cross @ np.linalg.solve(K, y - model.mean_)
    return mean, kernel(new) + level - cross @ np.linalg.solve(K, cross.T) + noise * np.eye(len(new))


def test_draws_and_covariances_of_several_rows_are_joint():
    x = np.linspace(0.0, 1.0, 20)[:, None]
    y = np.sin(6 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=20)
    new = np.array([[0.8], [0.81], [1.4]])
    model = GaussianProcessRegressor(1.0 * RBF(0.3)).fit(x, y)
    mean, covariance = joint_by_dense_algebra(model, x, y, new)
    found = model.predict(new, return_cov=True)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], covariance, rtol=1e-6)
    drawn = model.sample_y(new, 20_000, random_state=1)
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=4 * sd.max() / np.sqrt(20_000))
    np.testing.assert_allclose(np.cov(drawn) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.03)
    with pytest.raises(ValueError, match=r"n_samples = 0.*1"):
        model.sample_y(new, 0)
    with pytest.raises(ValueError, match="one of them"):
        model.predict(new, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="noise about eta"):
        GaussianProcessRegressor(1.0 * RBF(), "poisson", optimizer=None).fit(x, np.arange(20)).predict(
            new, return_cov=True
        )


def test_degrees_of_freedom_at_their_lowest_are_no_noise_that_cannot_be_told():
    rng = np.random.default_rng(0)
    x, e = np.linspace(0.0, 3.0, 40)[:, None], rng.standard_cauchy(40)
    y = np.sin(2 * x[:, 0]) + 0.05 * np.sign(e) * np.abs(e) ** 1.6  # tails heavier than Cauchy's
    with pytest.warns(ConvergenceWarning, match="degrees of freedom"):
        model = GaussianProcessRegressor(1.0 * RBF(1.0), fenchel.StudentT(learn_df=True)).fit(x, y)
    assert model.at_bounds_ == {"log (degrees of freedom - 1)": "lower"}
    known = GaussianProcessRegressor(1.0 * RBF(1.0), fenchel.StudentT(1.001)).fit(x, y)
    assert model.elbo_ == pytest.approx(known.elbo_, abs=0.02)


def test_joint_draws_of_an_integrated_process_have_its_covariance():
    x = np.linspace(0.0, 1.0, 15)[:, None]
    y = np.sin(6 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=15)
    new = np.array([[0.5], [0.52], [1.3]])
    model = GaussianProcessRegressor(1.0 * RBF(0.3), integrate=True).fit(x, y)
    covariance = model.predict(new, return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), model.predict(new, return_std=True)[1], rtol=1e-6)
    sd = np.sqrt(np.diag(covariance))
    drawn = model.sample_y(new, 20_000, random_state=1)
    np.testing.assert_allclose(np.cov(drawn) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.1)


def test_nothing_learned_says_which_parameters_were_not_stated():
    x = np.linspace(0.0, 1.0, 20)[:, None]
    y = np.sin(6 * x[:, 0])
    with pytest.warns(UserWarning, match=r"does not state its own parameters: they are a guess\s+from y, variance = "):
        GaussianProcessRegressor(1.0 * RBF(), optimizer=None).fit(x, y)
    exact = GaussianProcessRegressor(1.0 * RBF(0.3), Gaussian(1e-4), optimizer=None).fit(x, y)  # without a warning
    assert np.abs(exact.predict(x) - y).max() < 0.05


def test_the_advice_for_many_rows_hands_on_the_noise_too():
    from fenchel.estimators import lengths

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lengths, "MANY", 30)
        with pytest.warns(UserWarning, match="its kernel_ and likelihood_ with optimizer=None"):
            GaussianProcessRegressor(1.0 * RBF()).fit(np.arange(40.0)[:, None], np.arange(40.0) % 7)
