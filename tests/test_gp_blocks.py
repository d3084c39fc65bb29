"""Gaussian processes of few rows and of many: one thread below some size, new rows in blocks, no needless variance."""

from __future__ import annotations

import threading
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor as ScikitLearns
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import fenchel
from fenchel.estimators import (
    GaussianProcessClassifier,
    GaussianProcessPoissonRegressor,
    GaussianProcessRegressor,
    kernel_latent,
    lengths,
)
from fenchel.hyperparameters.integration import integrating
from fenchel.likelihoods import BernoulliLogit
from fenchel.linalg import dense, machine
from fenchel.models import predictions
from fenchel.priors import DenseCovariance
from fenchel.priors.rowblock import RowBlock, RowFactor
from fenchel.priors.rowspace import RowsFactor

pytestmark = pytest.mark.filterwarnings("ignore:.*nothing is learned")  # parameters are kept on purpose

KERNEL = ConstantKernel(2.0) * RBF(1.2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    eta = np.sin(2 * X[:, 0]) + X[:, 1]
    return X, eta, rng.normal(size=(53, 2))


def models(X, eta):
    rng = np.random.default_rng(1)
    fixed = {"optimizer": None}
    return {
        "binary": GaussianProcessClassifier(KERNEL, **fixed).fit(X, (eta > 0).astype(int)),
        "three": GaussianProcessClassifier(KERNEL, **fixed).fit(X, np.digitize(eta, [-0.5, 0.5])),
        "counts": GaussianProcessPoissonRegressor(KERNEL, **fixed).fit(X, rng.poisson(np.exp(eta))),
        "noise": GaussianProcessRegressor(KERNEL, "laplace", **fixed).fit(X, eta + 0.1 * rng.normal(size=40)),
        "levels": GaussianProcessRegressor(KERNEL, "ordinal", **fixed).fit(X, np.digitize(eta, [-0.5, 0.5])),
    }


# -- new rows in blocks --------------------------------------------------------------------------------
def answers(model, new):
    y = np.full(new.shape[0], 1.0)
    out = [*model.latent_mean_and_variance(new), model.predict(new), model.predict_quantiles(new, [0.1, 0.9])]
    out += [model.sample_y(new, 3, random_state=0), np.array(model.score(new, y.astype(int)))]
    if hasattr(model, "predict_proba"):
        out.append(model.predict_proba(new))
    if hasattr(model, "decision_function"):
        out.append(model.decision_function(new))
    return out


@pytest.mark.parametrize("rows", [1, 7, 52, 53])
def test_blocks_agree_with_one_piece(data, monkeypatch, rows):
    X, eta, new = data
    for name, model in models(X, eta).items():
        whole = answers(model, new)
        with monkeypatch.context() as patch:
            patch.setattr(kernel_latent, "_BLOCK", rows * 40)
            for one, other in zip(whole, answers(model, new), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)


def test_blocks_against_matrices_written_out(data, monkeypatch):
    X, eta, new = data
    monkeypatch.setattr(kernel_latent, "_BLOCK", 5 * 40)
    model = models(X, eta)["binary"]
    kernel, sol = model.kernel_, model.solution_
    mean, level = model.mean_, model._latent.level
    cross, prior, lam = kernel(new, X) + level, kernel.diag(new) + level, np.ravel(sol.lam)
    B = np.eye(40) + np.sqrt(lam)[:, None] * (kernel(X) + level) * np.sqrt(lam)
    taken = np.sqrt(lam)[:, None] * np.linalg.inv(B) * np.sqrt(lam)
    h, rho = model.latent_mean_and_variance(new)
    np.testing.assert_allclose(h, mean - cross @ np.ravel(sol.alpha), atol=1e-9)
    np.testing.assert_allclose(rho, prior - np.einsum("ij,jk,ik->i", cross, taken, cross), atol=1e-9)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_quantiles"])
def test_memory_of_prediction_is_bounded(data, method):
    X, eta, _ = data
    model = GaussianProcessClassifier(KERNEL, optimizer=None).fit(np.tile(X, (10, 1)), np.tile(eta > 0, 10).astype(int))
    new = np.random.default_rng(2).normal(size=(30_000, 2))
    getattr(model, method)(new[:10])
    tracemalloc.start()
    getattr(model, method)(new)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.7 * 8 * new.shape[0] * model.X_train_.shape[0]  # one covariance in one piece, and there were three


# -- no needless variance ------------------------------------------------------------------------------
@pytest.fixture
def variances(monkeypatch):
    """Counts how often the variance of new rows is computed."""
    calls, original = [], RowsFactor.reduction_blocks

    def counted(self, cross):
        calls.append(1)
        return original(self, cross)

    monkeypatch.setattr(RowsFactor, "reduction_blocks", counted)
    return calls


def test_labels_and_plain_means_need_no_variance(data, variances):
    X, eta, new = data
    fitted = models(X, eta)
    labels = fitted["binary"].predict(new)
    mean = fitted["noise"].predict(new)
    assert not variances
    np.testing.assert_array_equal(labels, fitted["binary"].predict_proba(new).argmax(axis=1))
    np.testing.assert_array_equal(mean, fitted["noise"].predict(new, return_std=True)[0])
    assert len(variances) == 2
    fitted["counts"].predict(new)  # E exp(eta) does need it
    assert len(variances) == 3


def test_mean_of_regression_is_scikit_learns(data, variances):
    X, eta, new = data
    y = eta - eta.mean() + 0.3 * np.random.default_rng(3).normal(size=40)
    theirs = ScikitLearns(KERNEL, alpha=0.09, optimizer=None).fit(X, y)
    prior = DenseCovariance(KERNEL(X))
    posterior = fenchel.infer(fenchel.likelihoods.Gaussian(0.09), prior, y, tol=0.0).posterior
    np.testing.assert_allclose(posterior.predict_mean(cross=KERNEL(new, X)), theirs.predict(new), atol=1e-8)
    assert not variances
    both = posterior.predict(cross=KERNEL(new, X), variance=KERNEL.diag(new))
    np.testing.assert_allclose(both, [theirs.predict(new), theirs.predict(new, return_std=True)[1] ** 2], atol=1e-8)


# -- many rows are announced ---------------------------------------------------------------------------
@pytest.mark.parametrize("optimizer", [None, "fmin_l_bfgs_b"])
def test_many_rows_are_announced(data, monkeypatch, optimizer):
    X, eta, _ = data
    model = GaussianProcessClassifier(KERNEL, optimizer=optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X, eta > 0)
    monkeypatch.setattr(lengths, "MANY", 40)
    says = "40 rows need about .* GiB .*roughly .* on this machine.*progress=True.*"
    says += 'Use approximation="auto" or "inducing".*' + ("sample of some 2,000 rows" if optimizer else "")
    with pytest.warns(UserWarning, match="^GaussianProcessClassifier: " + says):
        model.fit(X, eta > 0)
    monkeypatch.setattr(lengths, "physical_memory", lambda: 1000.0)
    with pytest.raises(ValueError, match=r"40 rows need about .* are there; expected a size that fits.*inducing"):
        model.fit(X, eta > 0)


@pytest.mark.parametrize(("classes", "learned"), [(2, False), (4, False), (2, True)])
def test_announced_memory_is_near_the_peak(classes, learned):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.8] if classes == 2 else [0.0, 0.8, 1.5])
    model = GaussianProcessClassifier(1.0 * RBF(2.0, (1.9, 2.1)), optimizer="fmin_l_bfgs_b" if learned else None)
    model.set_params(tol=1e-6)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bound that holds the length is what keeps this short
        model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.6 < lengths.memory(500, 1 if classes == 2 else classes, learned) / peak < 1.7


def test_words_of_a_duration():
    said = {0.01: "1 seconds", 45.0: "45 seconds", 400.0: "7 minutes", 2400.0: "40 minutes", 18000.0: "5 hours"}
    assert {seconds: lengths.in_words(seconds) for seconds in said} == said


@pytest.mark.parametrize("optimizer", [None, "fmin_l_bfgs_b"])
def test_progress_on_request(data, capsys, optimizer):
    X, eta, _ = data
    quiet = GaussianProcessClassifier(KERNEL, optimizer=optimizer).fit(X, eta > 0)
    assert capsys.readouterr().out == ""
    model = GaussianProcessClassifier(KERNEL, optimizer=optimizer, progress=True).fit(X, eta > 0)
    assert "elbo" in capsys.readouterr().out
    assert model.elbo_ == quiet.elbo_
    heard = []
    family = fenchel.hyperparameters.KernelCovariance(KERNEL, X)
    found = fenchel.hyperparameters.learn(
        BernoulliLogit("log-sum"), family, eta > 0, progress=True, callback=heard.append
    )
    assert len(heard) <= found.n_evaluations  # the caller's function hears evaluations, the line their iterations too


# -- few rows ------------------------------------------------------------------------------------------
def counts():
    return [library.get_num_threads() for library in machine.libraries().lib_controllers]


@pytest.mark.parametrize("n", [1, 2, 100, 512, 513, 801])
def test_small_matrices_give_the_same_numbers(n):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n)) / np.sqrt(n)
    A = A @ A.T + np.eye(n)
    before, dirt = counts(), np.triu(np.full((n, n), np.nan), 1)  # what stands above the diagonal may be anything
    inverse = dense.inverse_from(dense.triangular_inverse(dense.cholesky(A.copy())))
    assert counts() == before
    np.testing.assert_allclose(np.tril(inverse), np.tril(np.linalg.inv(A)), atol=1e-11)
    b, T = rng.normal(size=n), np.tril(A)
    np.testing.assert_array_equal(dense.symmetrised(A + dirt), np.where(np.tri(n, dtype=bool), A, A.T))
    np.testing.assert_allclose(dense.column_squares(T + dirt), (T**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(dense.multiply_hadamard(A + dirt, A, b), (A * A) @ b, atol=1e-11)


def test_lauum_of_few_rows_runs_on_one_thread(monkeypatch):
    import scipy.linalg.lapack as lapack

    seen, original = [], lapack.dlauum

    def watched(*args, **rest):
        seen.append(max(counts()))
        return original(*args, **rest)

    monkeypatch.setattr(lapack, "dlauum", watched)
    from threadpoolctl import threadpool_limits

    with threadpool_limits(2, user_api="blas"):
        if max(counts()) < 2:
            pytest.skip("BLAS has one thread here")
        dense.inverse_from(np.eye(100))
        dense.inverse_from(np.eye(900))
        assert [*seen, max(counts())] == [1, 2, 2]


def test_a_small_fit_holds_one_thread_throughout_and_gives_it_back(data, monkeypatch):
    from threadpoolctl import threadpool_limits

    X, eta, _ = data
    seen, original = [], RowsFactor.__init__

    def watched(self, *args):
        seen.append(max(counts()))
        original(self, *args)

    monkeypatch.setattr(RowsFactor, "__init__", watched)
    with threadpool_limits(2, user_api="blas"):
        before = counts()
        GaussianProcessClassifier(KERNEL).fit(X, eta > 0)
        assert set(seen) == {1}
        assert counts() == before


def test_an_integrated_fit_and_its_predictions_hold_one_thread(monkeypatch):
    """Of some hundred latents: threads of BLAS would wait for each other ten times longer than they work."""
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(30), 4)
    data = pd.DataFrame({"y": rng.poisson(np.exp(0.7 * rng.normal(size=30))[g]), "g": g})
    seen = []
    for module, name in ((integrating, "_integrated"), (predictions, "predictive")):
        original = getattr(module, name)
        watched = lambda *args, original=original: (seen.append(max(counts())), original(*args))[1]
        monkeypatch.setattr(module, name, watched)
    with threadpool_limits(2, user_api="blas"):
        before = counts()
        fit = fenchel.fit("y ~ (1|g)", data, "poisson", accuracy="high")
        assert fit.integrated is not None
        fit.predict(kind="link", interval=0.95)
        assert len(seen) == 2
        assert set(seen) == {1}
        assert counts() == before


def test_one_thread_is_counted_over_threads_of_python():
    """A holds, B holds, A lets go, B lets go: each on its own would leave BLAS at one thread for good."""
    own = counts()
    machine._set([2] * len(own))
    try:
        inside, leave = threading.Event(), threading.Event()

        def first():
            with machine.one_thread():
                inside.set()
                leave.wait(60)

        holder = threading.Thread(target=first)
        holder.start()
        inside.wait(60)
        with machine.one_thread():
            leave.set()
            holder.join()
            assert max(counts()) == 1
        assert min(counts()) == 2
        with pytest.raises(ZeroDivisionError), machine.one_thread():
            raise ZeroDivisionError
        assert min(counts()) == 2
    finally:
        machine._set(own)


def test_memory_is_used_again_once_no_array_looks_at_it():
    assert not np.shares_memory(machine.empty(300, 300), machine.empty(300, 300))
    with machine.reused_memory():
        first = machine.empty(300, 300)
        place = first.ctypes.data
        corner = first[:2, :2].T  # a view of a view keeps it
        del first
        corner[:] = 1.0
        other = machine.empty(300, 299)
        other[:] = 2.0
        assert (corner == 1.0).all()
        assert other.ctypes.data != place
        del corner
        again = machine.empty(299, 300)
        assert again.ctypes.data == place
        assert not np.shares_memory(again, other)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(machine.empty(300, 300)))
        thread.start()
        thread.join()
        with machine.reused_memory():  # one within another has buffers of its own
            seen.append(machine.empty(300, 300))
        assert not any(np.shares_memory(a, b) for a in seen for b in (again, other))
        kept = machine.empty(300, 300)
    assert not np.shares_memory(kept, machine.empty(300, 300))


@pytest.mark.parametrize("state", ["L", "L^-1", "B^-1", "Vt", "nothing"])
def test_inverse_of_a_factor_in_every_state(state):
    rng = np.random.default_rng(0)
    S = rng.normal(size=(30, 30))
    S, lam = S @ S.T, np.r_[0.0, 1e-9, rng.random(28)]
    part = RowFactor(RowBlock(S), lam)
    {
        "L": lambda: None,
        "L^-1": part.L_inverse,
        "B^-1": part.B_inverse,
        "Vt": part.products,
        "nothing": part.drop,
    }[state]()
    B = np.eye(30) + np.sqrt(lam)[:, None] * S * np.sqrt(lam)
    for _ in range(2):  # and the factor is as it was
        np.testing.assert_allclose(np.tril(part.copy_of_B_inverse()), np.tril(np.linalg.inv(B)), atol=1e-12)
    if state != "nothing":
        assert part.holds == ("L^-1" if state == "L" else state)


@pytest.mark.parametrize("variance", [10.0, 1000.0])
@pytest.mark.parametrize("length", [1.2, 3.0])
def test_a_start_from_another_covariance_is_worth_having(variance, length):
    """Sites found under S, used under 1.2 S and 2 S: their mean is taken along, so that two to four steps suffice."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y, K = (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(float), variance * RBF(length)(X)
    sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance(K), y, tol=1e-10)
    for factor, most in ((1.0, 0), (1.2, 2), (2.0, 4)):
        prior = DenseCovariance(factor * K)
        cold = fenchel.infer(BernoulliLogit("exact"), prior, y, tol=1e-6)
        warm = fenchel.infer(BernoulliLogit("exact"), prior, y, tol=1e-6, start=sol)
        assert warm.converged
        assert warm.n_iter <= most
        np.testing.assert_allclose(warm.elbo, cold.elbo, rtol=2e-6)
