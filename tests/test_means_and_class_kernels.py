"""Mean functions of Gaussian processes, and a kernel for each class.

Witnesses: conjugate regression written out, one dense prior of all classes together, differences of the evidence.
"""

from typing import ClassVar

import numpy as np
import pytest
from conftest import difference
from scipy.stats import multivariate_normal
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, Matern

import fenchel
from fenchel.estimators import GaussianProcessClassifier, GaussianProcessPoissonRegressor, GaussianProcessRegressor
from fenchel.hyperparameters import ClassKernels, Evidence, InducingCovariance, KernelCovariance
from fenchel.likelihoods import Gaussian, MultinomialLogit, Poisson
from fenchel.priors import DenseCovariance, InducingPoints, inducing

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)) * [1.0, 10.0] + [0.0, 5.0]
F = 3.0 + 2.0 * X[:, 0] - 0.3 * X[:, 1] + np.sin(3.0 * X[:, 0])
Y = F + 0.2 * RNG.normal(size=40)
FAR = np.array([[0.0, 100.0], [5.0, 5.0], [-3.0, -40.0]])
KERNEL = 1.5 * RBF([0.7, 9.0])
LABELS = np.digitize(Y, [1.0, 3.0])
KERNELS = [2.0 * RBF([1.0, 9.0]), Matern([2.0, 15.0], nu=1.5), 0.5 * RBF([0.7, 12.0])]
HELD = {"kernel": KERNEL, "likelihood": Gaussian(0.04), "optimizer": None}


def conjugate(rows, y, new, kernel, noise, variance=10.0, slope=10.0):
    """Mean and sd of the weights (b, w) and of the function at new rows, and the evidence, by the normal equations."""
    scale, centre, sd, mean = y.std(), rows.mean(axis=0), rows.std(axis=0), y.mean()
    H, H_new = (np.column_stack([np.ones(len(x)), (x - centre) / sd]) for x in (rows, new))
    prior = scale**2 * np.diag([variance, slope, slope])
    K, N = kernel(rows), np.eye(len(y)) * noise
    C = H @ prior @ H.T + K + N
    gain = prior @ H.T @ np.linalg.inv(C)
    weights, V = gain @ (y - mean), prior - gain @ H @ prior
    back = np.vstack([np.concatenate([[1.0], -centre / sd]), np.column_stack([np.zeros(2), np.diag(1.0 / sd)])])
    coefficients, spread = back @ weights, np.sqrt(np.diag(back @ V @ back.T))
    cross = H_new @ prior @ H.T + kernel(new, rows)
    function = mean + cross @ np.linalg.solve(C, y - mean)
    own = H_new @ prior @ H_new.T + kernel(new) - cross @ np.linalg.solve(C, cross.T)
    log_p = multivariate_normal.logpdf(y, np.full(len(y), mean), C)
    coefficients[0] += mean
    return coefficients, spread, function, own, log_p


# -- a linear mean ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("approximation", [None, "inducing"])
def test_a_linear_mean_is_conjugate_regression(approximation):
    model = GaussianProcessRegressor(mean="linear", approximation=approximation, n_inducing=40, **HELD).fit(X, Y)
    both, spread, function, own, log_p = conjugate(X, Y, FAR, KERNEL, 0.04)
    # the points see the function through noise of 1e-10 of its variance
    near = {"rtol": 1e-8} if approximation is None else {"rtol": 1e-5}
    np.testing.assert_allclose([model.intercept_, *model.coef_], both, **near)
    np.testing.assert_allclose([model.intercept_std_, *model.coef_std_], spread, **near)
    mean, variance = model.latent_mean_and_variance(FAR)
    np.testing.assert_allclose(mean, function, **near)
    np.testing.assert_allclose(variance, np.diag(own), **near)
    np.testing.assert_allclose(model.predict(FAR, return_cov=True)[1] - 0.04 * np.eye(3), own, **near)
    assert model.elbo_ == pytest.approx(log_p, abs=1e-8 if approximation is None else 1e-4)


def test_a_trend_goes_on_beyond_the_data_with_its_uncertainty():
    inside, rng = X[:, 0] < 0.5, np.random.default_rng(1)
    shares = []
    for _ in range(20):
        y = 2.0 * X[:, 0] - 0.3 * X[:, 1] + 0.3 * rng.normal(size=40)  # nothing beside the trend
        model = GaussianProcessRegressor(1.0 * RBF([1.0, 10.0]), mean="linear").fit(X[inside], y[inside])
        low, high = model.predict_quantiles(X[~inside], [0.05, 0.95]).T
        shares.append(np.mean((low <= y[~inside]) & (y[~inside] <= high)))
    assert 0.8 < np.mean(shares) < 0.97  # 90 % intervals


def test_means_that_are_the_same():
    constant = GaussianProcessRegressor(mean="constant", **HELD).fit(X, Y)
    assert constant.elbo_ == GaussianProcessRegressor(**HELD).fit(X, Y).elbo_
    zero = GaussianProcessRegressor(mean="zero", **HELD).fit(X, Y)
    assert zero.elbo_ == GaussianProcessRegressor(mean=0.0, fit_intercept=False, **HELD).fit(X, Y).elbo_
    assert zero.intercept_ == zero.intercept_std_ == 0.0
    odds = {"kernel": KERNEL, "optimizer": None}
    y = (Y > 3.0).astype(int)
    assert (
        GaussianProcessClassifier(mean="constant", **odds).fit(X, y).elbo_
        == GaussianProcessClassifier(**odds).fit(X, y).elbo_
    )
    assert GaussianProcessClassifier(mean="zero", **odds).fit(X, y).mean_ == 0.0


@pytest.mark.parametrize("normalize", [False, True])
def test_a_given_function_is_subtracted(normalize):
    sd, m = (Y.std(), Y.mean()) if normalize else (1.0, 0.0)

    def trend(rows):
        return (3.0 + 2.0 * rows[:, 0] - 0.3 * rows[:, 1] - m) / sd

    options = {"alpha": 0.04, "fit_intercept": False, "optimizer": None, "kernel": KERNEL, "normalize_y": normalize}
    model = GaussianProcessRegressor(mean=trend, **options).fit(X, Y)
    K, noise = sd**2 * KERNEL(X), sd**2 * 0.04 * np.eye(40)
    known = sd * trend(X) + m
    assert model.elbo_ == pytest.approx(multivariate_normal.logpdf(Y, known, K + noise), abs=1e-8)
    wanted = sd * trend(FAR) + m + sd**2 * KERNEL(FAR, X) @ np.linalg.solve(K + noise, Y - known)
    np.testing.assert_allclose(model.predict(FAR), wanted, rtol=1e-9)
    assert model.mean_ is trend
    through = GaussianProcessRegressor(mean=trend, approximation="inducing", n_inducing=40, **options).fit(X, Y)
    np.testing.assert_allclose(through.predict(FAR), wanted, rtol=1e-4)
    before = GaussianProcessRegressor(mean=trend, alpha=0.04, kernel=KERNEL).predict(FAR)
    np.testing.assert_allclose(before, trend(FAR))


def test_several_outputs_share_what_they_share():
    both = np.column_stack([Y, 100.0 - 10.0 * Y])
    held = {"kernel": KERNEL, "alpha": 0.04, "optimizer": None, "normalize_y": True, "mean": "linear"}
    model = GaussianProcessRegressor(**held).fit(X, both)
    alone = GaussianProcessRegressor(**held).fit(X, Y)
    np.testing.assert_allclose(model.coef_[0], alone.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.coef_[1], -10.0 * alone.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.intercept_[0], alone.intercept_, rtol=1e-6)


def test_slopes_of_labels_counts_levels_and_mixtures():
    rng = np.random.default_rng(2)
    counts = rng.poisson(np.exp(0.5 * X[:, 0] + 0.03 * X[:, 1]))
    model = GaussianProcessPoissonRegressor(0.1 * RBF([1.0, 9.0]), mean="linear").fit(X, counts)
    z = (model.coef_ - [0.5, 0.03]) / model.coef_std_
    assert np.abs(z).max() < 3.0
    assert model.coef_std_.max() < 0.5
    for y, rows in ((Y > 3.0, 1), (LABELS, 3)):
        labels = GaussianProcessClassifier(KERNEL, mean="linear", optimizer=None).fit(X, y)
        assert labels.coef_.shape == labels.coef_std_.shape == (rows, 2)
        assert labels.intercept_.shape == (rows,)
    levels = GaussianProcessRegressor(KERNEL, "ordinal", mean="linear").fit(X, LABELS)
    assert levels.coef_[0] > 2.0 * levels.coef_std_[0]
    mixture = GaussianProcessRegressor(KERNEL, mean="linear", integrate=True).fit(X[:20], Y[:20])
    at_mode = GaussianProcessRegressor(KERNEL, mean="linear").fit(X[:20], Y[:20])
    assert mixture.coef_std_[1] > 0.9 * at_mode.coef_std_[1]


def test_rows_of_features_that_are_made_again(monkeypatch):
    trend = {"level": 2.0, "slopes": np.array([1.0, 0.0]), "centre": np.array([0.5, 3.0])}
    kept = InducingPoints(KERNEL, X, X[:7], **trend).design
    monkeypatch.setattr(inducing, "_KEPT_BYTES", 0.0)
    remade = InducingPoints(KERNEL, X, X[:7], **trend).design
    assert type(remade) is inducing.RemadeRows
    u, a = RNG.normal(size=(9, 2)), RNG.normal(size=(40, 2))
    W = kept.toarray()
    np.testing.assert_allclose(W[:, 7:], np.column_stack([np.full(40, 2.0**0.5), X[:, 0] - 0.5]))
    np.testing.assert_allclose(remade.times(u), W @ u)
    np.testing.assert_allclose(remade.adjoint(a), W.T @ a)
    U = RNG.normal(size=(9, 9))
    np.testing.assert_allclose(remade.row_squares(U), np.sum((W @ U) ** 2, axis=1))


@pytest.mark.parametrize("points", [None, 6])
def test_slopes_of_the_evidence_beside_a_trend(points):
    trend = {"level": 2.0, "slopes": np.array([1.0, 0.1]), "centre": np.array([0.5, 3.0])}
    family = (
        KernelCovariance(KERNEL, X, **trend) if points is None else InducingCovariance(KERNEL, X, X[:points], **trend)
    )
    y = np.random.default_rng(3).poisson(np.exp(0.3 * F))
    evidence = Evidence(Poisson(), family, y, tol=1e-13)
    theta = family.theta + 0.1
    slopes = evidence(theta)[1]
    np.testing.assert_allclose(slopes, difference(lambda at: evidence(at)[0], theta, 1e-4), rtol=1e-6, atol=1e-6)


class KeepsItsMatrices(RBF):
    """A user's kernel that gives the same array again."""

    kept: ClassVar[dict] = {}

    def __call__(self, X, Y=None, eval_gradient=False):
        if eval_gradient:
            return super().__call__(X, Y, eval_gradient)
        key = self.length_scale, X.tobytes(), None if Y is None else Y.tobytes()
        return self.kept.setdefault(key, super().__call__(X, Y))


@pytest.mark.parametrize("times", [lambda kernel: kernel, lambda kernel: ConstantKernel(3.0) * kernel])
@pytest.mark.parametrize("mean", ["link", "linear"])
def test_matrices_that_a_kernel_keeps_are_not_written_to(mean, times):
    own, plain = (
        GaussianProcessRegressor(times(kernel(2.0)), mean=mean, likelihood=Gaussian(0.04), optimizer=None).fit(X, Y)
        for kernel in (KeepsItsMatrices, RBF)
    )
    for _ in range(2):
        np.testing.assert_allclose(own.predict(FAR), plain.predict(FAR), rtol=1e-9)
        np.testing.assert_allclose(own.predict(FAR, return_cov=True)[1], plain.predict(FAR, return_cov=True)[1])


# -- a kernel for each class --------------------------------------------------------------------------------
@pytest.mark.parametrize("bound", ["log-sum", "exact"])
def test_blocks_of_classes_are_one_dense_prior(bound):
    """Against the prior of all rows and classes together (N K, N K), observation by observation."""
    K = np.stack([kernel(X) + 0.5 for kernel in KERNELS])
    whole = np.einsum("kij,kl->ikjl", K, np.eye(3)).reshape(120, 120)
    likelihood = MultinomialLogit(3, reference=None, bound=bound)
    family = ClassKernels(KERNELS, X, level=0.5)
    apart = fenchel.infer(likelihood, family.at(family.theta), LABELS, tol=1e-12)
    dense = fenchel.infer(likelihood, DenseCovariance(whole), LABELS, tol=1e-12)
    assert apart.elbo == pytest.approx(dense.elbo, abs=1e-8)
    np.testing.assert_allclose(apart.posterior.mean, dense.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(apart.posterior.variance, dense.posterior.variance, atol=1e-6)
    new = family.new_rows(family.theta, FAR)
    far = np.stack([kernel(FAR, X) + 0.5 for kernel in KERNELS])
    np.testing.assert_allclose(new.cross, far)
    mean, variance = apart.posterior.predict(new)
    V = np.asarray(dense.posterior.covariance()).reshape(40, 3, 40, 3)
    for k in range(3):
        by_rows = np.linalg.solve(K[k], far[k].T).T  # E[eta* | eta] = k* K^-1 eta
        np.testing.assert_allclose(mean[:, k], by_rows @ dense.posterior.mean[:, k], atol=1e-5)
        left = np.diag(KERNELS[k](FAR) + 0.5 - by_rows @ far[k].T)
        seen = np.einsum("mi,ij,mj->m", by_rows, V[:, k, :, k], by_rows)
        own = variance[:, k] if np.ndim(variance) == 2 else variance[:, k, k]
        np.testing.assert_allclose(own, left + seen, atol=1e-5)


def test_tilted_classes_written_out():
    """h = -K alpha, rho = diag (K^-1 + Lam)^-1 in every block, at the optimum of one softmax."""
    family = ClassKernels(KERNELS, X, level=0.5)
    fit = fenchel.infer(MultinomialLogit(3, reference=None, bound="tilted"), family.at(family.theta), LABELS, tol=1e-12)
    for k, kernel in enumerate(KERNELS):
        K, lam, alpha = kernel(X) + 0.5, fit.lam[:, k], fit.alpha[:, k]
        np.testing.assert_allclose(fit.posterior.mean[:, k], -K @ alpha, atol=1e-8)
        rho = np.diag(K - K @ np.linalg.solve(K + np.diag(1.0 / lam), K))
        np.testing.assert_allclose(fit.posterior.variance[:, k], rho, atol=1e-8)


@pytest.mark.parametrize("bound", ["tilted", "exact"])
def test_slopes_of_each_kernel(bound):
    family = ClassKernels(KERNELS, X, level=5.0, slopes=[1.0, 0.1], offset=np.array([[0.1, 0.0, -0.1]]))
    evidence = Evidence(MultinomialLogit(3, reference=None, bound=bound), family, LABELS, tol=1e-13)
    theta = family.theta + 0.1
    slopes = evidence(theta)[1]
    np.testing.assert_allclose(slopes, difference(lambda at: evidence(at)[0], theta, 1e-3), rtol=2e-6, atol=2e-6)


def test_kernels_of_classes_as_scikit_learn_has_them():
    model = GaussianProcessClassifier(KERNELS).fit(X, LABELS)
    assert type(model.kernel_) is CompoundKernel
    assert len(model.kernel_.kernels) == 3
    np.testing.assert_array_equal(model.kernel_.theta, model.theta_)
    assert KERNELS[0].theta[0] == np.log(2.0)  # the user's are not changed
    shared = GaussianProcessClassifier(KERNEL).fit(X, LABELS)
    copies = GaussianProcessClassifier(KERNEL, kernel_per_class=True, random_state=0).fit(X, LABELS)
    assert copies.elbo_ > shared.elbo_
    kept = GaussianProcessClassifier(model.kernel_, optimizer=None).fit(X, LABELS)
    assert kept.elbo_ == pytest.approx(model.elbo_, abs=1e-6)
    value, slopes = model.log_marginal_likelihood(model.theta_, eval_gradient=True)
    assert value == pytest.approx(model.elbo_, abs=1e-6)
    assert np.abs(slopes).max() < 0.01 or model.at_bounds_
    same = copies.log_marginal_likelihood(shared.theta_)
    assert same == pytest.approx(shared.elbo_, abs=1e-6)
    two = GaussianProcessClassifier(KERNEL, kernel_per_class=True).fit(X, LABELS > 0)
    assert two.kernel_ == GaussianProcessClassifier(KERNEL).fit(X, LABELS > 0).kernel_
    with pytest.raises(ValueError, match="of other classes"):
        copies.set_params(warm_start=True).fit(X, LABELS > 0)
    assert model.predict_proba(FAR).sum(axis=1) == pytest.approx(1.0)


def test_a_kernel_that_is_not_given_is_chosen_once_and_learned_for_each_class():
    model = GaussianProcessClassifier(kernel_per_class=True).fit(X[:30], LABELS[:30])
    assert len(model.kernel_.kernels) == 3
    assert len({tuple(one.theta) for one in model.kernel_.kernels}) == 3


def test_models_with_means_and_kernels_of_classes_on_disk(tmp_path):
    models = {
        "linear": GaussianProcessRegressor(mean="linear", **HELD).fit(X, Y),
        "classes": GaussianProcessClassifier(KERNELS, mean="linear").fit(X, LABELS),
        "points": GaussianProcessRegressor(mean="linear", approximation="inducing", n_inducing=9, **HELD).fit(X, Y),
    }
    for name, model in models.items():
        model.save(tmp_path / name)
        again = fenchel.load(tmp_path / name)
        np.testing.assert_allclose(again.predict(FAR), model.predict(FAR))
        np.testing.assert_allclose(again.coef_, model.coef_)


def test_a_kernel_for_each_class_of_many_rows_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(GaussianProcessClassifier, "_process", lambda *_: pytest.fail("a kernel is chosen"))
    monkeypatch.setattr(fenchel.gates, "INDUCING_ROWS", 30)
    for model in (GaussianProcessClassifier(kernel_per_class=True), GaussianProcessClassifier(KERNELS)):
        with pytest.raises(ValueError, match="a kernel for each class and 40 rows through inducing points"):
            model.fit(np.arange(40.0)[:, None], LABELS)


@pytest.mark.parametrize(
    ("model", "y", "said"),
    [
        (GaussianProcessClassifier(KERNELS[:2]), LABELS, "kernel is a list of 2; expected one kernel, or 3"),
        (GaussianProcessClassifier(KERNELS[:2]), LABELS > 0, "there is one function, and two classes share it"),
        (GaussianProcessClassifier(CompoundKernel(0)), LABELS, "kernel cannot be a CompoundKernel"),
        (GaussianProcessRegressor(KERNELS), Y, "kernel is a list of 3"),
        (GaussianProcessClassifier(KERNELS, approximation="inducing"), LABELS, "a kernel for each class and 40 rows"),
        (GaussianProcessRegressor(mean="quadratic"), Y, "mean = 'quadratic' is not known"),
        (GaussianProcessRegressor(mean="rate"), Y, "mean = 'rate' is not known"),
        (GaussianProcessRegressor(mean=np.nan), Y, "GaussianProcessRegressor: mean = nan; expected a finite number"),
        (GaussianProcessRegressor(mean="constant", fit_intercept=False), Y, 'mean="zero", or fit_intercept=True'),
        (GaussianProcessRegressor(mean=np.zeros(40)), Y, "which has no values for new rows"),
        (GaussianProcessRegressor(mean=lambda rows: rows), Y, "mean(X) has shape (40, 2) for 40 rows; expected (40,)"),
        (GaussianProcessRegressor(mean=lambda rows: rows), np.column_stack([Y, Y]), "mean(X) has shape (40, 2)"),
        (GaussianProcessClassifier(mean=lambda rows: rows), LABELS, "expected (40,), or (40, 3): a column for each"),
        (GaussianProcessRegressor(mean=lambda rows: rows[:3, 0]), Y, "mean(X) has shape (3,) for 40 rows"),
        (GaussianProcessRegressor(mean=lambda rows: rows[:, 0] * np.nan), Y, "mean(X)[0] = nan is not finite"),
        (GaussianProcessRegressor(mean="linear", slope_variance=0.0), Y, "slope_variance"),
    ],
)
def test_what_is_refused(model, y, said):
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        model.fit(X, y)
    assert said in str(raised.value)


def test_coefficients_of_a_linear_mean_alone():
    model = GaussianProcessRegressor(**HELD)
    with pytest.raises(NotFittedError):
        _ = model.coef_
    with pytest.raises(AttributeError, match='coef_ is that of mean="linear"'):
        _ = model.fit(X, Y).coef_
    with pytest.raises(NotFittedError, match="units of the columns"):
        GaussianProcessRegressor(mean="linear").predict(X)
