"""Bad input gets a sentence: where, what, got, expected, try. The tests match the sentence."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import RBF

import fenchel
from fenchel.estimators import BayesianPoissonRegression, GaussianProcessPoissonRegressor
from fenchel.likelihoods import (
    BernoulliLogit,
    Binomial,
    Gaussian,
    Mixed,
    MultinomialLogit,
    Ordinal,
    Poisson,
    StochasticVolatility,
)
from fenchel.priors import DenseCovariance, Features

EYE = DenseCovariance(np.eye(3))


@pytest.mark.parametrize(
    ("likelihood", "y", "sentence"),
    [
        (
            Poisson(),
            [1, -2, 0],
            r"Poisson: y\[1\] = -2 is not a count; expected 0, 1, 2, \.\.\. or NaN for unobserved\. For real-valued targets use Gaussian\.",
        ),
        (Poisson(), [1, 0.5, 0], r"Poisson: y\[1\] = 0\.5 is not a count"),
        (Poisson(), [1, np.inf, 0], r"Poisson: y\[1\] = inf is not finite"),
        (
            Poisson(),
            ["a", "b", "c"],
            r"Poisson: y is not an array of real numbers; expected numbers in a regular shape\. Encode labels",
        ),
        (
            Poisson([1.0, 0.0, 1.0]),
            [1, 2, 0],
            r"Poisson: exposure\[1\] = 0 while y\[1\] = 2 is a count above 0; .* leave the row out",
        ),
        (Poisson([1.0, -1.0, 1.0]), [1, 2, 0], r"Poisson: exposure\[1\] = -1 is not usable"),
        (Poisson([1.0, 1.0]), [1, 2, 0], r"Poisson: exposure has shape \(2,\); expected a number or shape \(3,\)"),
        (BernoulliLogit("log-sum"), [0, 1, 2], r"BernoulliLogit: y\[2\] = 2 is an unknown label; expected 0 or 1"),
        (BernoulliLogit("log-sum"), [-1, 1, 1], r"BernoulliLogit: y\[0\] = -1 is an unknown label"),
        (
            MultinomialLogit(3, bound="log-sum"),
            [0, 1, 3],
            r"MultinomialLogit: y\[2\] = 3 is an unknown label; expected 0, \.\.\., 2",
        ),
        (Ordinal([0.0], bound="log-sum"), [0, 1, 2], r"Ordinal: y\[2\] = 2 is an unknown label"),
        (Binomial(2, bound="log-sum"), [0, 1, 3], r"Binomial: y\[2\] = 3 exceeds its 2 trials"),
        (Binomial(2.5, bound="log-sum"), [0, 1, 2], r"Binomial: trials\[0\] = 2\.5 is not a count"),
        (Gaussian(1.0), [0.0, np.inf, 1.0], r"Gaussian: y\[1\] = inf is not finite"),
        (StochasticVolatility(), [0.0, -np.inf, 1.0], r"StochasticVolatility: y\[1\] = -inf is not finite"),
        (Poisson(), [1, 2], r"DenseCovariance: the prior has 3 rows and y has 2 observations; expected 2 rows"),
        (Poisson(), [], r"Poisson: y has shape \(0,\); expected one value an observation"),
        (Poisson(), np.ones((3, 1)), r"Poisson: y has shape \(3, 1\).*Use y\.ravel\(\)"),
        (
            MultinomialLogit(4, bound="log-sum"),
            [0, 1],
            r"the prior has 3 rows and y has 2 observations; expected 2 rows, one per observation, or 6",
        ),
    ],
)
def test_targets(likelihood, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        fenchel.infer(likelihood, EYE, y)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: DenseCovariance(-np.eye(2)),
            r"DenseCovariance: covariance is not positive semidefinite: its smallest eigenvalue is -1; expected a covariance matrix",
        ),
        (lambda: DenseCovariance([[1.0, 2.0], [2.0, 1.0]]), r"smallest eigenvalue is -1"),
        (
            lambda: DenseCovariance([[1.0, 0.5], [0.1, 1.0]]),
            r"DenseCovariance: covariance is not symmetric: .* up to 0\.4",
        ),
        (lambda: DenseCovariance([[1.0, np.nan], [np.nan, 1.0]]), r"DenseCovariance: covariance\[0, 1\] is not finite"),
        (
            lambda: DenseCovariance(np.ones((2, 3))),
            r"DenseCovariance: covariance has shape \(2, 3\); expected a square matrix",
        ),
        (lambda: DenseCovariance(np.stack([np.eye(2), -np.eye(2)])), r"covariance\[1\] is not positive semidefinite"),
        (
            lambda: DenseCovariance([["a", "b"], ["c", "d"]]),
            r"DenseCovariance: covariance is not an array of real numbers",
        ),
        (lambda: DenseCovariance(sp.eye(3)), r"DenseCovariance: covariance is a scipy sparse matrix; .*toarray"),
        (lambda: DenseCovariance(np.eye(2) * 1j), r"covariance is not an array of real numbers"),
        (lambda: Binomial(None, bound="log-sum").prepare([1.0]), r"Binomial: trials.* is not finite"),
        (lambda: DenseCovariance(np.zeros((0, 0))), r"covariance has shape \(0, 0\)"),
        (
            lambda: DenseCovariance(np.eye(2), mean=np.ones(3)),
            r"DenseCovariance: mean has shape \(3,\); expected a number, \(2,\)",
        ),
        (
            lambda: DenseCovariance(np.eye(2), design=np.ones((4, 3))),
            r"DenseCovariance: design has shape \(4, 3\); expected \(N, 2\): one column per latent",
        ),
        (lambda: DenseCovariance(np.eye(2), design=[[1.0, np.inf]]), r"design\[0, 1\] = inf is not finite"),
        (lambda: Features(np.ones(3)), r"Features: design has shape \(3,\)"),
        (lambda: Features(np.ones((3, 2)), variance=-1.0), r"Features: variance of shape .*A flat prior is improper"),
        (lambda: Features(np.ones((3, 2)), variance=np.inf), r"A flat prior is improper: use a large finite variance"),
        (lambda: Features(np.ones((3, 2)), variance=[1.0, 2.0, 3.0]), r"Features: variance of shape \(3,\)"),
        (
            lambda: Features(np.ones((3, 2)), variance=np.eye(3)),
            r"Features: variance has shape \(3, 3\); expected \(2, 2\)",
        ),
        (lambda: Features(np.ones((3, 2)), mean=np.nan), r"Features: mean.* is not finite"),
        (lambda: Gaussian(0.0), r"Gaussian: variance = 0 is not a positive number"),
        (lambda: Gaussian([1.0, -1.0]), r"Gaussian: variance\[1\] = -1 is not a positive number"),
        (lambda: Ordinal([1.0, 0.0], bound="log-sum"), r"Ordinal: cutpoints \[1\.0, 0\.0\] do not increase"),
        (lambda: MultinomialLogit(1, bound="log-sum"), r"MultinomialLogit: n_classes = 1; expected an integer >= 2"),
        (
            lambda: MultinomialLogit(3, reference="first", bound="log-sum"),
            r"reference = 'first' is not known; expected 'last' or None",
        ),
        (
            lambda: BernoulliLogit("probit"),
            r"BernoulliLogit: bound = 'probit' is not known; expected 'best' or 'log-sum'",
        ),
        (lambda: Mixed([], []), r"Mixed: parts is empty"),
        (lambda: Mixed([Poisson()], [0, 1]), r"Mixed: which\[1\] = 1 is not the number of a part"),
        (
            lambda: Mixed([Ordinal([0.0], bound="log-sum"), MultinomialLogit(3, bound="log-sum")], [0, 1]),
            r"Mixed: .* cannot be mixed with",
        ),
    ],
)
def test_construction(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: fenchel.infer(Poisson, EYE, [1, 2, 3]),
            r"infer: likelihood is the class Poisson; expected a Likelihood such as Poisson\(\)",
        ),
        (lambda: fenchel.infer(Poisson(), np.eye(3), [1, 2, 3]), r"infer: prior is a ndarray; expected a Prior"),
        (
            lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3], method="em"),
            r"infer: method = 'em' is not known; expected 'newton' or 'lbfgs'",
        ),
        (lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3], tol=-1.0), r"expected a number tol >= 0"),
        (lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3], tol=np.nan), r"expected a number tol >= 0"),
        (
            lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3], start=[0.0, 1.0]),
            r"infer: start has shape \(2, 1\); expected \(3, 1\)",
        ),
        (
            lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3], start=[0.0, np.nan, 1.0]),
            r"infer: start\[1, 0\] is not finite",
        ),
        (
            lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3], weights=[1.0, -1.0, 1.0]),
            r"Poisson: weights\[1\] = -1 is not a weight",
        ),
        (lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3], weights=[1.0]), r"weights of shape \(1,\) do not fit"),
        (
            lambda: fenchel.infer(Poisson(), DenseCovariance(np.eye(3), offset=np.ones(2)), [1, 2, 3]),
            r"offset has shape",
        ),
        (
            lambda: fenchel.infer(MultinomialLogit(3, bound="log-sum"), DenseCovariance(np.ones((3, 2, 2))), [0, 1]),
            r"got 3 covariances; expected 2",
        ),
        (
            lambda: fenchel.infer(MultinomialLogit(3, bound="tilted"), DenseCovariance(np.eye(4)), [0, 1]),
            r"MultinomialLogit: bound=\"tilted\" does not hold for predictors that are correlated in the prior; .*log-sum",
        ),
        (
            lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3]).posterior.predict(),
            r"posterior\.predict: got both or neither",
        ),
        (
            lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3]).posterior.predict(design=np.ones((2, 4))),
            r"design has shape \(2, 4\); expected 3 columns",
        ),
        (
            lambda: fenchel.infer(Poisson(), EYE, [1, 2, 3]).posterior.predict(cross=np.ones((2, 3))),
            r"variance is missing",
        ),
        (
            lambda: fenchel.infer(Poisson(), DenseCovariance(np.eye(3), mean=np.ones(3)), [1, 2, 3]).posterior.predict(
                cross=np.zeros((2, 3)), variance=1.0
            ),
            r"mean is missing",
        ),
        (
            lambda: Poisson().predictive_probabilities(np.zeros(2), np.ones(2)),
            r"asks for classes, and y is not a label",
        ),
        (
            lambda: BernoulliLogit("log-sum").predictive_log_density([1.0], np.zeros(2), np.ones(2)),
            r"y has 1 rows and eta has 2",
        ),
        (lambda: Mixed([Poisson()], [0, 0]).prepare([1.0]), r"Mixed: which has 2 rows and y has 1"),
    ],
)
def test_calls(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


class OnDevice:
    """An array as a library of accelerators hands it over."""

    device, requires_grad, shape = "cuda:0", False, (3, 1)

    def cpu(self):
        return np.zeros(self.shape)

    def __array__(self, *args, **options):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


def test_tensors_on_a_device_are_refused_by_name():
    from fenchel.estimators import BayesianLinearRegression

    with pytest.raises(ValueError, match=r"X is on the device 'cuda:0'; expected an array in memory. Use X.cpu\(\)."):
        BayesianLinearRegression().fit(OnDevice(), [0.0, 1.0, 2.0])
    tensor = OnDevice()
    tensor.requires_grad = True
    with pytest.raises(ValueError, match=r"Use y.detach\(\)."):
        BayesianLinearRegression().fit(np.zeros((3, 1)), tensor)


DEVICE_CALLS = [
    (lambda t: fenchel.BayesianLogisticRegression().fit(np.eye(3), t), "y"),
    (lambda t: fenchel.GaussianProcessClassifier().fit(np.eye(3), t), "y"),
    (lambda t: fenchel.GaussianProcessRegressor().fit(np.eye(3), [0, 1, 0], sample_weight=t), "sample_weight"),
    (lambda t: fenchel.FormulaRegressor("y ~ x0").fit(np.eye(3), t), "y"),
    (lambda t: fenchel.ProbabilisticPCA().fit(t), "X"),
    (lambda t: fenchel.Model("y ~ x", {"x": t, "y": [0, 1, 0]}), "data['x']"),
    (lambda t: fenchel.infer(Poisson(), DenseCovariance(np.eye(3)), t), "y"),
]


@pytest.mark.parametrize(("call", "name"), DEVICE_CALLS)
def test_every_call_refuses_a_tensor_on_a_device(call, name):
    with pytest.raises(ValueError, match=rf"{re.escape(name)} is on the device 'cuda:0'; expected an array in memory"):
        call(OnDevice())


def test_a_compound_kernel_of_any_kind_is_refused():
    from sklearn.gaussian_process.kernels import CompoundKernel

    from fenchel.estimators import GaussianProcessClassifier

    with pytest.raises(ValueError, match="cannot be a CompoundKernel"):
        GaussianProcessClassifier(CompoundKernel(0)).fit(np.arange(4.0)[:, None], [0, 1, 0, 1])


def test_warnings_are_of_the_line_that_called():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = rng.poisson(np.exp(X[:, 0])).astype(float)
    kernel = 1.0 * RBF([2.0, 2.0], (1.9, 2.1))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        GaussianProcessPoissonRegressor(kernel).fit(X, y)
        GaussianProcessPoissonRegressor(kernel, approximation="inducing", n_inducing=10).fit(X, y)
        BayesianPoissonRegression().fit(X, y + 0.5)
    assert len(said) >= 3
    assert {warning.filename for warning in said} == {__file__}
