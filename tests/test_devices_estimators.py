"""Gaussian processes on torch's CPU device: the numbers of numpy, and no matrix of the rows leaves the device."""

import pickle

import numpy as np
import pytest
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
from fenchel import GaussianProcessClassifier, GaussianProcessPoissonRegressor, GaussianProcessRegressor
from fenchel.estimators import gaussian_process
from fenchel.hyperparameters import KernelCovariance, inducing_learning
from fenchel.kernels import contract, diagonal, evaluate
from fenchel.linalg import devices, machine
from fenchel.linalg.arrays import to_numpy
from fenchel.priors import pivots
from fenchel.priors.pivots import choose_rows

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)
N = 90
X, NEW = rng.normal(size=(N, 2)), rng.normal(size=(5, 2))
f = np.sin(2.0 * X[:, 0]) + X[:, 1]
MODELS = {
    "numbers": (GaussianProcessRegressor, f + 0.3 * rng.normal(size=N)),
    "counts": (GaussianProcessPoissonRegressor, rng.poisson(np.exp(f))),
    "labels": (GaussianProcessClassifier, (f + rng.logistic(size=N) > 0.0).astype(int)),
    "classes": (GaussianProcessClassifier, np.digitize(f, [-0.5, 0.7])),
    "survival": (
        lambda *given, **options: GaussianProcessRegressor(*given, likelihood="weibull", **options),
        np.exp(f) * rng.weibull(1.5, N),
    ),
}
MATERN = 1.0 * Matern([1.0, 1.5], nu=1.5)


@pytest.fixture
def far(monkeypatch):
    """A device whose tensors numpy cannot read, as a GPU's: only ``to_numpy`` fetches them, and nothing large."""

    def refuse(self, *args, **options):
        raise TypeError("numpy reads a tensor of the device")

    fetched, fetch = [], torch.Tensor.numpy

    def noted(self):
        fetched.append(tuple(self.shape))
        return fetch(self)

    monkeypatch.setattr(torch.Tensor, "__array__", refuse)
    monkeypatch.setattr(torch.Tensor, "numpy", noted)
    return fetched


@pytest.mark.parametrize("points", [None, 15])
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_on_the_device_is_that_of_numpy(name, points, far, monkeypatch):
    monkeypatch.setattr(pivots, "SHORTLIST", 20)  # rows whose covariance the host looks at
    kind, y = MODELS[name]
    options = {"approximation": None} if points is None else {"approximation": "inducing", "n_inducing": points}
    here = kind(MATERN, **options).fit(X, y)
    far.clear()
    there = kind(MATERN, device="cpu", **options).fit(X, y)
    large = [shape for shape in far if len(shape) == 2 and shape[0] >= N and shape[1] >= (points or N)]
    assert not large, "a matrix of the rows crossed the bus"
    # few rows of numbers or labels have a search of their own in numpy; with points, numbers end at slopes of .02 nats
    closed, rough = name in ("numbers", "labels") and points is None, name == "numbers" and points is not None
    assert there.elbo_ == pytest.approx(here.elbo_, rel=1e-8, abs=1e-3 if rough else None)
    np.testing.assert_allclose(there.theta_, here.theta_, atol=2e-2 if rough else 1e-3 if closed else 1e-5)
    assert here.log_marginal_likelihood(there.theta_) == pytest.approx(there.elbo_, rel=1e-8)  # the gap of a fit
    for ours, theirs in zip(here.latent_mean_and_variance(NEW), there.latent_mean_and_variance(NEW), strict=True):
        assert isinstance(theirs, np.ndarray)
        np.testing.assert_allclose(theirs, ours, atol=1e-3 if rough else 1e-4 if closed else 1e-5)
    if points is None:
        assert there.approximation_loss_ == 0.0
    else:
        assert there.approximation_loss_ == pytest.approx(here.approximation_loss_, rel=1e-2 if rough else 1e-5)


def test_every_answer_comes_back_in_numpy(far):
    kind, y = MODELS["numbers"]
    for options in ({"approximation": None}, {"approximation": "inducing", "n_inducing": 20}):
        here, there = (
            kind(MATERN, likelihood=fenchel.Gaussian(0.1), optimizer=None, device=device, **options).fit(X, y)
            for device in (None, "cpu")
        )
        np.testing.assert_allclose(
            there.predict(NEW, return_cov=True)[1], here.predict(NEW, return_cov=True)[1], atol=1e-8
        )
        np.testing.assert_allclose(there.sample_y(NEW, 3), here.sample_y(NEW, 3), atol=1e-6)
        assert there.score(NEW, y[:5]) == pytest.approx(here.score(NEW, y[:5]), abs=1e-8)
        theta = there.theta_[: there.kernel_.n_dims]
        value, slope = there.log_marginal_likelihood(theta, eval_gradient=True)
        ours, own = here.log_marginal_likelihood(theta, eval_gradient=True)
        assert value == pytest.approx(ours, abs=1e-8)
        np.testing.assert_allclose(slope, own, atol=1e-6)
        assert "approximation" not in there.summary() or options["approximation"]


def test_a_fitted_model_is_cloned_pickled_and_saved(tmp_path):
    kind, y = MODELS["counts"]
    model = kind(MATERN, optimizer=None, device="cpu").fit(X, y)
    assert clone(model).device == "cpu"
    expected = model.predict(NEW)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict(NEW), expected)
    model.save(tmp_path / "model.fenchel")
    np.testing.assert_allclose(fenchel.load(tmp_path / "model.fenchel").predict(NEW), expected, rtol=1e-10)


KERNELS = {
    "sum": 2.0 * RBF(1.0) + WhiteKernel(0.1) + ConstantKernel(0.5) * Matern(1.0, nu=0.5),
    "product": RBF([1.0, 2.0]) * ExpSineSquared(1.0, 3.0) * Matern(2.0, nu=2.5),
    "tree": (2.0 * RBF([1.0, 2.0]) + DotProduct(1.0)) * RationalQuadratic(1.0, 2.0) + 0.3 * WhiteKernel(0.2),
    "power": DotProduct(0.8) ** 2 + Matern(0.7, nu=0.9),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_one_table(name, monkeypatch):
    """Against scikit-learn's, in blocks of a few rows."""
    monkeypatch.setattr(machine, "_DEVICE_BLOCK", 5 * N)
    kernel, there = KERNELS[name], torch.asarray(X)
    K, tensor = kernel(X, eval_gradient=True)
    G = rng.normal(size=(N, N))
    G = G + G.T
    np.testing.assert_allclose(to_numpy(evaluate(kernel, there)), K, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(to_numpy(evaluate(kernel, there, torch.asarray(NEW))), kernel(X, NEW), atol=1e-12)
    np.testing.assert_allclose(to_numpy(diagonal(kernel, there)), np.diag(K), rtol=1e-12)
    expected = np.einsum("ij,ijp->p", G, tensor)
    tolerance = 1e-3 if name == "power" else 1e-9  # theirs are differences for nu = 0.9
    np.testing.assert_allclose(contract(kernel, there, torch.asarray(G)), expected, rtol=tolerance, atol=tolerance)


def test_distances_far_from_the_origin_are_differences():
    """|x|^2 - 2 x'z + |z|^2 would leave nothing of these distances."""
    far_away = torch.asarray(X + 1e6)
    np.testing.assert_allclose(to_numpy(evaluate(RBF(1e-3), far_away)), RBF(1e-3)(X + 1e6), atol=1e-12)
    close = np.array([[0.0], [1e-9]])
    assert float(evaluate(Matern(1.0, nu=0.5), torch.asarray(close))[0, 1]) == pytest.approx(1.0 - 1e-9, abs=1e-15)


def test_pivots_on_the_device_are_those_of_numpy():
    w = rng.gamma(1.0, 1.0, N)
    for size in (7, 40):
        np.testing.assert_array_equal(choose_rows(MATERN, torch.asarray(X), size, w), choose_rows(MATERN, X, size, w))


def test_a_family_of_tensors():
    family = KernelCovariance(MATERN, torch.asarray(X), level=2.0)
    assert to_numpy(family.at(family.theta).covariance)[0, 1] == pytest.approx(MATERN(X)[0, 1] + 2.0)


# -- what is not there ---------------------------------------------------------------------------------
def test_devices_that_are_not_there():
    kind, y = MODELS["numbers"]
    for word, sentence in (
        ("gpu", r'GaussianProcessRegressor: device = .gpu.; expected "cuda"'),
        ("mps", r"device = 'mps' has no float64"),
        ("cuda:99", r"device = 'cuda:99', and torch .* sees .* GPU"),
    ):
        with pytest.raises(ValueError, match=sentence):
            kind(device=word).fit(X, y)
    with pytest.raises(ValueError, match="Leave device=None to compute with numpy"):
        kind(device="cuda:99").fit(X, y)


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=r"device = 'cuda', and torch .* sees no GPU here; expected a device"):
        GaussianProcessRegressor(device="cuda").fit(X, MODELS["numbers"][1])


def test_torch_that_is_not_there(monkeypatch):
    def missing(where, module):
        raise ImportError(f"{where}: {module} is not installed")

    monkeypatch.setattr(devices, "optional", missing)
    with pytest.raises(ImportError, match="GaussianProcessRegressor: torch is not installed"):
        GaussianProcessRegressor(device="cuda").fit(X, MODELS["numbers"][1])


def test_memory_of_the_device_ends(monkeypatch):
    """A sentence with what to do, and the last fit is as it was."""
    kind, y = MODELS["numbers"]
    model = kind(MATERN, likelihood=fenchel.Gaussian(0.1), optimizer=None, device="cpu").fit(X, y)
    before = model.predict(NEW)

    def full(*args, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(KernelCovariance, "matrix", full)
        with pytest.raises(ValueError, match=r"of cpu are full; .* Use approximation=.inducing.") as caught:
            model.fit(X, y)
    assert isinstance(caught.value, ValueError)
    np.testing.assert_array_equal(model.predict(NEW), before)


def test_memory_that_ends_with_more_points_keeps_the_fit_before(monkeypatch):
    kind, y = MODELS["numbers"]
    monkeypatch.setattr(inducing_learning, "FIRST_POINTS", 5)
    real = inducing_learning.choose_rows

    def full(kernel, X, n, *others):
        if n > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(kernel, X, n, *others)

    monkeypatch.setattr(inducing_learning, "choose_rows", full)
    with pytest.warns(UserWarning, match="with 20 points, and the fit is that of 10, whose theta was learned to"):
        model = kind(MATERN, device="cpu", approximation="inducing", loss=1e-6).fit(X, y)
    assert len(model.approximation_) == 2
    assert np.isfinite(model.predict(NEW)).all()
    assert "memory ended" in model.summary()


def test_tensors_in_x(monkeypatch, far):
    """On the host they are numbers; a device that they are on is where the fit is computed."""
    kind, y = MODELS["counts"]
    plain = kind(MATERN, optimizer=None).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(gaussian_process, "device_of", lambda value: getattr(value, "device", None))
        model = kind(MATERN, optimizer=None).fit(torch.asarray(X), y)
        assert type(model.solution_.alpha) is torch.Tensor
        np.testing.assert_allclose(model.predict(torch.asarray(NEW)), plain.predict(NEW), rtol=1e-9)
    assert model.fit(X, y).solution_.alpha.dtype == np.float64
