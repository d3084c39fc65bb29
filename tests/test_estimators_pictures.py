"""Pictures show what the estimator says: its probabilities, its quantiles as bands, the data as points."""

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
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fenchel.estimators import (
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    GaussianProcessClassifier,
    GaussianProcessPoissonRegressor,
    plot_coefficients,
    plot_decision_surface,
    plot_partial_effect,
)
from fenchel.plots import plot_decision, plot_reliability

KERNEL = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(1.0, (1e-1, 1e1))
MOONS = make_moons(40, noise=0.3, random_state=0)
IRIS = load_iris()


@pytest.fixture(scope="module")
def moons():
    return GaussianProcessClassifier(KERNEL, fit_intercept=False).fit(*MOONS)


@pytest.fixture(scope="module")
def iris():
    words = IRIS.target_names[IRIS.target[::4]]
    return GaussianProcessClassifier(KERNEL, optimizer=None).fit(IRIS.data[::4, 2:], words)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# -- functions of one input ----------------------------------------------------------------------------
def test_rates_with_their_quantiles_and_the_data(tmp_path):
    rng = np.random.default_rng(0)
    x, exposure = np.sort(rng.uniform(0, 6, 30))[:, None], rng.uniform(0.5, 3.0, 30)
    y = rng.poisson(exposure * np.exp(1 + np.sin(2 * x[:, 0])))
    model = GaussianProcessPoissonRegressor(KERNEL).fit(x, y, exposure)
    ax = plot_partial_effect(model, x, y, exposure=exposure, level=0.9, resolution=20)
    at, middle = ax.lines[-1].get_xydata().T
    expected = model.predict_rate(at[:, None], [0.05, 0.5, 0.95])
    np.testing.assert_allclose(middle, expected[:, 1])
    (dots,) = (c for c in ax.collections if isinstance(c, PathCollection))
    np.testing.assert_allclose(dots.get_offsets(), np.column_stack([x[:, 0], y / exposure]))
    assert np.corrcoef(dots.get_sizes(), exposure)[0, 1] > 0.99
    (band,) = (c for c in ax.collections if not isinstance(c, PathCollection))
    edge = band.get_paths()[0].vertices[:, 1]
    assert (edge.min(), edge.max()) == pytest.approx((expected[:, 0].min(), expected[:, 2].max()))
    assert legend(ax) == ["data", "90 % band", "posterior median"]
    ax.figure.savefig(tmp_path / "own.png")


def test_probabilities_of_two_classes_and_of_three(moons, iris):
    X, y = MOONS
    ax = plot_partial_effect(moons, X, y, feature=1, resolution=15)
    at, middle = ax.lines[-1].get_xydata().T
    rows = np.column_stack([np.full(15, np.median(X[:, 0])), at])
    np.testing.assert_allclose(middle, moons.predict_proba(rows)[:, 1])
    assert ax.get_ylabel() == "P(1)"
    X, y = IRIS.data[:, 2:], IRIS.target_names[IRIS.target]
    given = Figure().subplots()
    assert plot_partial_effect(iris, X, y, given, resolution=10) is given
    assert legend(given) == ["setosa", "versicolor", "virginica"]
    curves, dots = given.lines[::2], given.lines[1::2]
    np.testing.assert_allclose(sum(line.get_ydata() for line in curves), 1.0)
    assert sum(len(line.get_xdata()) for line in dots) == 150


def test_pipelines_and_frames_keep_their_own_inputs():
    X, y = pd.DataFrame(MOONS[0], columns=["left", "right"]), MOONS[1]
    pipe = make_pipeline(StandardScaler(), GaussianProcessClassifier(KERNEL, optimizer=None)).fit(X, y)
    ax = plot_partial_effect(pipe, X, y, feature="right", resolution=8)
    at, middle = ax.lines[-1].get_xydata().T
    rows = pd.DataFrame({"left": np.median(X["left"]), "right": at})
    np.testing.assert_allclose(middle, pipe.predict_proba(rows)[:, 1])
    assert ax.get_xlabel() == "right"
    surface = plot_decision_surface(pipe, X, y, features=["right", "left"], resolution=6)
    assert (surface.get_xlabel(), surface.get_ylabel()) == ("right", "left")


# -- decision surfaces ---------------------------------------------------------------------------------
def test_decision_surface_of_two_classes(moons, tmp_path):
    X, y = MOONS
    ax = plot_decision_surface(moons, X, y, resolution=12, class_names=["no", "yes"])
    assert legend(ax) == ["no", "yes"]
    assert "P(yes)" in [other.get_ylabel() for other in ax.figure.axes]
    for k, line in enumerate(ax.lines[:2]):
        np.testing.assert_allclose(line.get_xydata(), X[y == k])
    assert ax.lines[0].get_marker() != ax.lines[1].get_marker()
    ax.figure.savefig(tmp_path / "own.png")


def test_decision_surface_of_three_classes_is_paler_where_unsure(iris, tmp_path):
    X, y = IRIS.data[:, 2:], IRIS.target_names[IRIS.target]
    ax = plot_decision_surface(iris, X, y, resolution=12)
    assert legend(ax) == ["setosa", "versicolor", "virginica"]
    (image,) = ax.images
    strength = 1 - np.asarray(image.get_array()).min(axis=2)
    rows = np.column_stack(
        [g.ravel() for g in np.meshgrid(*(np.linspace(*lim, 12) for lim in (ax.get_xlim(), ax.get_ylim())))]
    )
    p = iris.predict_proba(rows).reshape(12, 12, 3)
    for k in range(3):  # within a class, ink and certainty have one order
        mine = p.argmax(axis=2) == k
        assert (np.diff(strength[mine][np.argsort(p.max(axis=2)[mine])]) >= -1e-12).all()
    ax.figure.savefig(tmp_path / "own.png")


def test_any_classifier_has_a_surface_and_a_reliability():
    X, y = IRIS.data[:, :2], IRIS.target
    model = LogisticRegression().fit(X, y)
    assert len(plot_decision_surface(model, X, y, resolution=5).images) == 1
    assert plot_reliability(y == 2, model.predict_proba(X)[:, 2]).lines


# -- coefficients --------------------------------------------------------------------------------------
class Fitted(BaseEstimator):
    """Whatever has the attributes."""

    def fit(self, X, y):
        return self


def model(coef, std, **more):
    out = Fitted()
    vars(out).update(coef_=np.array(coef), coef_std_=np.array(std), intercept_=0.3, **more)
    return out


def ticks(ax):
    return [tick.get_text() for tick in ax.get_yticklabels()]


def test_coefficients_with_their_intervals():
    one = model([0.5, -2.0], [0.1, 0.2], feature_names_in_=np.array(["age", "dose"], dtype=object))
    ax = plot_coefficients(one, sort=True)
    assert ticks(ax) == ["dose", "age"]
    (bars,) = (c for c in ax.collections if isinstance(c, LineCollection))
    reach = ndtri(0.975) * np.array([0.2, 0.1])
    expected = np.array([[-2.0], [0.5]]) + np.outer(reach, [-1, 1])
    np.testing.assert_allclose([segment[:, 0] for segment in bars.get_segments()], expected)
    assert ax.get_legend() is None


def test_coefficients_of_several_models_and_classes():
    both = {"ridge": model([0.5, -2.0], [0.1, 0.2]), "ard": model([[0.4, -2.1]], [[0.1, 0.2]])}
    assert legend(plot_coefficients(both, names=["age", "dose"])) == ["ridge", "ard"]
    three = plot_coefficients(model(np.ones((3, 2)), np.ones((3, 2)), classes_=np.array(["a", "b", "c"])))
    assert ticks(three) == ["x0", "x1"]
    assert legend(three) == ["a", "b", "c"]


def test_coefficients_of_the_linear_estimators():
    X, y = pd.DataFrame(MOONS[0], columns=["left", "right"]), MOONS[1]
    linear = BayesianLogisticRegression().fit(X, y)
    pipe = make_pipeline(StandardScaler(), BayesianLogisticRegression("ard")).fit(X, y)
    ax = plot_coefficients({"ridge": linear, "scaled": pipe})
    assert ticks(ax) == ["left", "right"]
    drawn = np.array([line.get_xdata() for line in ax.lines if line.get_linestyle() == "None"])
    np.testing.assert_array_equal(drawn, np.vstack([linear.coef_, pipe[-1].coef_]))
    assert ticks(plot_coefficients(pipe)) == ["left", "right"]
    counted = BayesianPoissonRegression().fit(X, y)
    assert ticks(plot_coefficients(counted)) == ["left", "right"]
    assert plot_partial_effect(counted, X, y, resolution=5).get_xlabel() == "left"


# -- sentences -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: plot_partial_effect(m, MOONS[0], feature=2), "feature 2; expected one of ['x0', "),
        (lambda m: plot_partial_effect(m, MOONS[0][:, 0]), "Use x[:, None] for one input."),
        (lambda m: plot_partial_effect(m, MOONS[0], level=1.0), "expected numbers between 0 and 1"),
        (lambda m: plot_decision_surface(m, MOONS[0], features=[0]), "over two of its features"),
        (lambda m: plot_decision_surface(m, *MOONS[:1], MOONS[1] + 5), "labels among [0, 1]"),
        (lambda m: plot_decision([0, 1], [0, 1], np.ones((2, 2, 3)), "ab"), "shape (2, 2, 3); expected (2, 2"),
        (lambda m: plot_coefficients(model([1.0], [1.0]), names="ab"), "2 names meet 1 coefficients"),
        (lambda m: plot_coefficients(model([1.0], [1.0]), level=2.0), "level = 2.0; expected a probability"),
        (
            lambda m: plot_coefficients({"a": model([1.0], [1.0]), "b": model([1, 2], [1, 2])}),
            "models of [1, 2] coefficients; expected the same features in all",
        ),
    ],
)
def test_sentences(moons, call, sentence):
    with pytest.raises(ValueError, match=r".") as error:
        call(moons)
    assert sentence in str(error.value)


def test_unfitted_estimators_are_refused():
    for call in (plot_partial_effect, plot_decision_surface):
        with pytest.raises(NotFittedError):
            call(GaussianProcessClassifier(), *MOONS)
    with pytest.raises(NotFittedError):
        plot_coefficients(BayesianLogisticRegression())


def test_matplotlib_is_imported_when_a_picture_is_drawn():
    code = "import sys, fenchel.estimators; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"
