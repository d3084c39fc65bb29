"""Displays show what the estimator says: stars where learning ended, its quantiles as bands, the data as points."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fenchel.datasets import load_stochvol
from fenchel.estimators import (
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    CoefficientsDisplay,
    DecisionSurfaceDisplay,
    EvidenceDisplay,
    GaussianProcessClassifier,
    GaussianProcessPoissonRegressor,
    LatentFunctionDisplay,
    StochasticVolatilityModel,
    TraceDisplay,
    VolatilityDisplay,
)

KERNEL = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(1.0, (1e-1, 1e1))
MOONS = make_moons(40, noise=0.3, random_state=0)
IRIS = load_iris()


@pytest.fixture(scope="module")
def moons():
    return GaussianProcessClassifier(KERNEL, fit_intercept=False).fit(*MOONS)


@pytest.fixture(scope="module")
def iris():
    return GaussianProcessClassifier(KERNEL, optimizer=None).fit(
        IRIS.data[::4, 2:], IRIS.target_names[IRIS.target[::4]]
    )


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    x, exposure = np.sort(rng.uniform(0, 6, 30))[:, None], rng.uniform(0.5, 3.0, 30)
    y = rng.poisson(exposure * np.exp(1 + np.sin(2 * x[:, 0])))
    return GaussianProcessPoissonRegressor(KERNEL).fit(x, y, exposure), x, y, exposure


def is_drawn(display, tmp_path):
    """Display's promise: ax_ and figure_ of one drawing, which can be saved, and another into given axes."""
    display.figure_.savefig(tmp_path / "own.png")
    first = np.atleast_1d(display.ax_)[0]
    assert first.get_figure(root=True) is display.figure_
    figure = Figure(layout="constrained")
    given = figure.subplots(2, 1) if np.ndim(display.ax_) else figure.subplots()
    assert display.plot(given) is display
    assert display.figure_ is figure
    figure.savefig(tmp_path / "given.png")
    return True


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# -- the evidence --------------------------------------------------------------------------------------
def test_evidence_stars_the_learned_point(moons, tmp_path):
    display = EvidenceDisplay.from_estimator(moons, resolution=5, span=3.0)
    (star,) = (tuple(line.get_xydata()[0]) for line in display.ax_.lines if line.get_marker() == "*")
    assert star == pytest.approx(tuple(np.exp(moons.theta_)))
    assert display.best == moons.elbo_
    assert display.values.max() <= moons.elbo_ + 1e-6
    np.testing.assert_allclose(display.values[2, 2], moons.elbo_, atol=1e-6)  # span stays inside the bounds here
    assert (display.ax_.get_xscale(), display.ax_.get_yscale()) == ("log", "log")
    assert is_drawn(display, tmp_path)


def test_evidence_is_the_estimators_own(moons):
    display = EvidenceDisplay.from_estimator(moons, parameters=["k2__length_scale", 0], resolution=3)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("length scale", "constant value")
    for i, variance in enumerate(display.y):
        for j, length in enumerate(display.x):
            expected = moons.log_marginal_likelihood(np.log([variance, length]))
            assert display.values[i, j] == pytest.approx(expected, abs=1e-5)


def test_evidence_is_a_slice_through_the_learned_point_within_bounds():
    X, y = MOONS
    kernel = ConstantKernel(2.0, (1.0, 4.0)) * RBF([1.0, 2.0]) + WhiteKernel(0.1)
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    display = EvidenceDisplay.from_estimator(model, parameters=(0, 2), resolution=3, span=10.0)
    np.testing.assert_allclose(display.x[[0, -1]], [1.0, 4.0])
    assert display.ax_.get_ylabel() == "length scale[1]"
    assert display.values[1, 1] == pytest.approx(model.elbo_, abs=1e-6)
    pipe = make_pipeline(StandardScaler(), GaussianProcessClassifier(KERNEL, optimizer=None)).fit(X, y)
    assert EvidenceDisplay.from_estimator(pipe, resolution=2).values.shape == (2, 2)
    two = GaussianProcessClassifier(RBF(1.0) + RBF(3.0), optimizer=None).fit(X, y)
    assert EvidenceDisplay.from_estimator(two, resolution=2).names == ("length scale (k1)", "length scale (k2)")


def test_evidence_of_numbers(tmp_path):
    x = np.linspace(-1, 1, 5)
    display = EvidenceDisplay(x, x, -(x[:, None] ** 2) - x**2, names=("a", "b"), log=(False, False)).plot()
    assert display.ax_.get_xscale() == "linear"
    assert is_drawn(display, tmp_path)


def test_trace(moons, tmp_path):
    display = TraceDisplay.from_estimator(moons)
    assert len(display.ax_) == 2
    assert f"{moons.elbo_:.4f}" in display.ax_[0].get_title()
    assert display.solution.elbo == pytest.approx(moons.elbo_, abs=1e-6)
    assert display.solution.n_iter > 2
    assert is_drawn(display, tmp_path)
    assert TraceDisplay.from_estimator(moons, restart=False).solution is moons.solution_


# -- functions of one input ----------------------------------------------------------------------------
def test_rates_with_their_quantiles_and_the_data(counts, tmp_path):
    model, x, y, exposure = counts
    display = LatentFunctionDisplay.from_estimator(model, x, y, exposure=exposure, level=0.9, resolution=20)
    expected = model.predict_rate(display.x[:, None], [0.05, 0.5, 0.95])
    np.testing.assert_allclose(np.stack([display.lower[0], display.middle[0], display.upper[0]], axis=1), expected)
    (dots,) = (c for c in display.ax_.collections if isinstance(c, PathCollection))
    np.testing.assert_allclose(dots.get_offsets(), np.column_stack([x[:, 0], y / exposure]))
    assert np.corrcoef(dots.get_sizes(), exposure)[0, 1] > 0.99
    assert legend(display.ax_) == ["data", "90 % band", "posterior median"]
    assert is_drawn(display, tmp_path)


def test_latent_function(counts, iris):
    model, x, y, _ = counts
    display = LatentFunctionDisplay.from_estimator(model, x, y, kind="latent", resolution=10)
    h, rho = model.latent_mean_and_variance(display.x[:, None])
    np.testing.assert_allclose(display.upper[0], h + ndtri(0.975) * np.sqrt(rho))
    assert display.points is None  # counts are not on the scale of logs
    assert LatentFunctionDisplay.from_estimator(iris, IRIS.data[:, 2:], kind="latent").middle.shape == (3, 200)


def test_probabilities_of_two_classes_and_of_three(moons, iris, tmp_path):
    X, y = MOONS
    display = LatentFunctionDisplay.from_estimator(moons, X, y, feature=1, resolution=15)
    rows = np.column_stack([np.full(15, np.median(X[:, 0])), display.x])
    np.testing.assert_allclose(display.middle[0], moons.predict_proba(rows)[:, 1])
    np.testing.assert_allclose(display.lower[0], moons.predict_quantiles(rows, [0.025])[:, 0])
    assert display.ax_.get_ylabel() == "P(1)"
    X, y = IRIS.data[:, 2:], IRIS.target_names[IRIS.target]
    display = LatentFunctionDisplay.from_estimator(iris, X, y, resolution=10)
    assert legend(display.ax_) == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(display.middle.sum(axis=0), 1.0)
    assert ((display.lower <= display.upper) & (display.lower >= 0)).all()
    assert sum(len(x) for x, _ in display.points) == 150
    assert is_drawn(display, tmp_path)


def test_pipelines_and_frames_keep_their_own_inputs():
    X, y = pd.DataFrame(MOONS[0], columns=["left", "right"]), MOONS[1]
    pipe = make_pipeline(StandardScaler(), GaussianProcessClassifier(KERNEL, optimizer=None)).fit(X, y)
    display = LatentFunctionDisplay.from_estimator(pipe, X, y, feature="right", resolution=8)
    rows = pd.DataFrame({"left": np.median(X["left"]), "right": display.x})
    np.testing.assert_allclose(display.middle[0], pipe.predict_proba(rows)[:, 1])
    assert display.ax_.get_xlabel() == "right"
    surface = DecisionSurfaceDisplay.from_estimator(pipe, X, y, features=["right", "left"], resolution=6)
    assert (surface.ax_.get_xlabel(), surface.ax_.get_ylabel()) == ("right", "left")
    rows = pd.DataFrame({"left": surface.y[4], "right": surface.x})
    np.testing.assert_allclose(surface.probabilities[4], pipe.predict_proba(rows))


# -- decision surfaces ---------------------------------------------------------------------------------
def test_decision_surface_of_two_classes(moons, tmp_path):
    X, y = MOONS
    display = DecisionSurfaceDisplay.from_estimator(moons, X, y, resolution=12, class_names=["no", "yes"])
    assert legend(display.ax_) == ["no", "yes"]
    assert "P(yes)" in [ax.get_ylabel() for ax in display.figure_.axes]
    for k, line in enumerate(display.ax_.lines[:2]):
        np.testing.assert_allclose(line.get_xydata(), X[y == k])
    assert display.ax_.lines[0].get_marker() != display.ax_.lines[1].get_marker()
    assert is_drawn(display, tmp_path)


def test_decision_surface_of_three_classes_is_paler_where_unsure(iris, tmp_path):
    X, y = IRIS.data[:, 2:], IRIS.target_names[IRIS.target]
    display = DecisionSurfaceDisplay.from_estimator(iris, X, y, resolution=12)
    assert legend(display.ax_) == ["setosa", "versicolor", "virginica"]
    (image,) = display.ax_.images
    strength = 1 - np.asarray(image.get_array()).min(axis=2)
    best = display.probabilities.argmax(axis=2)
    for k in range(3):  # within a class, ink and certainty have one order
        p, ink = display.probabilities.max(axis=2)[best == k], strength[best == k]
        assert (np.diff(ink[np.argsort(p)]) >= -1e-12).all()
    assert is_drawn(display, tmp_path)
    assert DecisionSurfaceDisplay.from_estimator(iris, X, resolution=4).points is None


def test_any_classifier_has_a_surface():
    X, y = IRIS.data[:, :2], IRIS.target
    display = DecisionSurfaceDisplay.from_estimator(LogisticRegression().fit(X, y), X, y, resolution=5)
    assert display.probabilities.shape == (5, 5, 3)


# -- coefficients and volatility -----------------------------------------------------------------------
class Fitted(BaseEstimator):
    """Whatever has the attributes."""

    def fit(self, X, y):
        return self


def fitted(**attributes):
    out = Fitted()
    vars(out).update(attributes)
    return out


def model(coef, std, **more):
    return fitted(coef_=np.array(coef), coef_std_=np.array(std), intercept_=0.3, **more)


def test_coefficients_with_their_intervals(tmp_path):
    one = model([0.5, -2.0], [0.1, 0.2], feature_names_in_=np.array(["age", "dose"], dtype=object))
    display = CoefficientsDisplay.from_estimator(one, sort=True)
    assert [tick.get_text() for tick in display.ax_.get_yticklabels()] == ["dose", "age"]
    (bars,) = (c for c in display.ax_.collections if isinstance(c, LineCollection))
    reach = ndtri(0.975) * np.array([0.2, 0.1])
    expected = np.array([[-2.0], [0.5]]) + np.outer(reach, [-1, 1])
    np.testing.assert_allclose([segment[:, 0] for segment in bars.get_segments()], expected)
    assert display.ax_.get_legend() is None
    assert is_drawn(display, tmp_path)


def test_coefficients_of_several_models_and_classes(tmp_path):
    both = {"ridge": model([0.5, -2.0], [0.1, 0.2]), "ard": model([[0.4, -2.1]], [[0.1, 0.2]])}
    display = CoefficientsDisplay.from_estimator(both, feature_names=["age", "dose"])
    assert legend(display.ax_) == ["ridge", "ard"]
    assert display.mean.tolist() == [[0.5, -2.0], [0.4, -2.1]]
    assert is_drawn(display, tmp_path)
    three = model(np.ones((3, 2)), np.ones((3, 2)), classes_=np.array(["a", "b", "c"]))
    display = CoefficientsDisplay.from_estimator(three)
    assert display.names == ["x0", "x1"]
    assert legend(display.ax_) == ["a", "b", "c"]


def test_coefficients_of_the_linear_estimators(tmp_path):
    X, y = pd.DataFrame(MOONS[0], columns=["left", "right"]), MOONS[1]
    linear = BayesianLogisticRegression().fit(X, y)
    pipe = make_pipeline(StandardScaler(), BayesianLogisticRegression("ard")).fit(X, y)
    display = CoefficientsDisplay.from_estimator({"ridge": linear, "scaled": pipe})
    assert display.names == ["left", "right"]
    np.testing.assert_array_equal(display.mean, np.vstack([linear.coef_, pipe[-1].coef_]))
    assert CoefficientsDisplay.from_estimator(pipe).names == ["left", "right"]
    assert is_drawn(display, tmp_path)
    evidence = EvidenceDisplay.from_estimator(BayesianLogisticRegression("ard").fit(X, y), resolution=3)
    assert evidence.names == ("variance left", "variance right")
    counted = BayesianPoissonRegression().fit(X, y)
    assert CoefficientsDisplay.from_estimator(counted).mean.shape == (1, 2)
    assert LatentFunctionDisplay.from_estimator(counted, X, y, resolution=5).middle.shape == (1, 5)
    three = BayesianLogisticRegression().fit(IRIS.data, IRIS.target)
    assert legend(CoefficientsDisplay.from_estimator(three).ax_) == ["0", "1", "2"]


def test_volatility(tmp_path):
    days = np.arange("2020-01-01", "2020-01-06", dtype="datetime64[D]")
    path = (np.ones(5), np.full(5, 0.5), np.full(5, 1.5))
    series = fitted(volatility_=path)
    display = VolatilityDisplay.from_estimator(series, t=days, returns=[-1, 0, 2, 1, 0], ylabel="percent a day")
    np.testing.assert_array_equal(display.ax_.lines[0].get_ydata(), [1, 0, 2, 1, 0])
    assert legend(display.ax_) == ["absolute return", "95 % interval", "volatility"]
    assert display.ax_.get_ylabel() == "percent a day"
    assert is_drawn(display, tmp_path)


def test_volatility_goes_on_as_a_forecast(tmp_path):
    pound = load_stochvol()
    series = StochasticVolatilityModel(learn=False).fit(pound.dates[:60], pound.returns[:60])
    display = VolatilityDisplay.from_estimator(series, forecast=10)
    np.testing.assert_allclose(display.mean[60:], series.forecast(10)["volatility"])
    np.testing.assert_allclose(display.mean[:60], series.volatility_.mean)
    assert (display.t[:60] == pound.dates[:60]).all()
    assert (display.t[60:] > pound.dates[59]).all()
    weeks = (display.t[-1] - display.t[59]) / np.timedelta64(1, "W")
    assert weeks == pytest.approx(2.0, abs=0.3)  # ten trading days
    assert legend(display.ax_)[-1] == "forecast"
    assert is_drawn(display, tmp_path)


# -- sentences -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: EvidenceDisplay.from_estimator(m, parameters=(0, 0)), "expected two of ['k1__constant_value', "),
        (lambda m: EvidenceDisplay.from_estimator(m, parameters=("k1", 0)), "parameter 'k1'; expected one of ['k1__"),
        (lambda m: EvidenceDisplay.from_estimator(m, span=1.0), "a factor above 1"),
        (lambda m: LatentFunctionDisplay.from_estimator(m, MOONS[0], kind="mean"), "kind = 'mean' is not known"),
        (lambda m: LatentFunctionDisplay.from_estimator(m, MOONS[0], feature=2), "feature 2; expected one of ['x0', "),
        (lambda m: LatentFunctionDisplay.from_estimator(m, MOONS[0][:, 0]), "Use x[:, None] for one input."),
        (lambda m: LatentFunctionDisplay.from_estimator(m, MOONS[0], level=1.0), "level = 1.0; expected a probability"),
        (lambda m: DecisionSurfaceDisplay.from_estimator(m, MOONS[0], features=[0]), "over two of its features"),
        (lambda m: DecisionSurfaceDisplay.from_estimator(m, *MOONS[:1], MOONS[1] + 5), "labels among [0, 1]"),
        (lambda m: DecisionSurfaceDisplay([0, 1], [0, 1], np.ones((2, 2, 3)), "ab"), "shape (2, 2, 3); expected (2, 2"),
        (lambda m: CoefficientsDisplay.from_estimator(model([1.0], [1.0]), feature_names="ab"), "2 feature names meet"),
        (
            lambda m: CoefficientsDisplay.from_estimator({"a": model([1.0], [1.0]), "b": model([1, 2], [1, 2])}),
            "models of [1, 2] coefficients; expected the same features in all",
        ),
    ],
)
def test_sentences(moons, call, sentence):
    with pytest.raises(ValueError, match="Display: ") as error:
        call(moons)
    assert sentence in str(error.value)


@pytest.mark.parametrize("kind", [EvidenceDisplay, TraceDisplay, CoefficientsDisplay, VolatilityDisplay])
def test_unfitted_estimators_are_refused(kind):
    with pytest.raises(NotFittedError):
        kind.from_estimator(GaussianProcessClassifier())
    for over_inputs in (LatentFunctionDisplay, DecisionSurfaceDisplay):
        with pytest.raises(NotFittedError):
            over_inputs.from_estimator(GaussianProcessClassifier(), *MOONS)


def test_matplotlib_is_imported_when_a_picture_is_drawn():
    code = "import sys, fenchel.estimators; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"
