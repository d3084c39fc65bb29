"""Checkpoints: a fit killed at any moment goes on to the same answer, and a file of another fit is refused."""

import errno
import os

import numpy as np
import pytest

import fenchel.estimators.dask_rows as door
from fenchel.distributed import Interrupted, Partitions
from fenchel.estimators import BayesianLinearRegression, BayesianLogisticRegression, BayesianPoissonRegression

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N, D = 300, 3


@pytest.fixture(autouse=True)
def _in_turn(monkeypatch):
    monkeypatch.setattr(door, "_FEWEST", 32)
    monkeypatch.setattr(door, "_LARGEST", 32)
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, D))
    eta = X @ [1.0, -0.5, 0.0]
    noisy = eta + rng.normal(size=N)
    return X, noisy, (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(int), rng.poisson(np.exp(0.5 * eta))


class Killed(Exception):
    """Stands for the end of the process."""


def killed_after(monkeypatch, passes):
    """All passes but the first few raise."""
    reduce, left = Partitions.reduce, [passes]

    def counted(self, work, *given):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return reduce(self, work, *given)

    monkeypatch.setattr(Partitions, "reduce", counted)


MODELS = {
    "fixed": (BayesianLogisticRegression(learn_variance=False), 2),
    "learned": (BayesianLogisticRegression(), 2),
    "own": (BayesianLinearRegression(), 1),
    "relevance": (BayesianPoissonRegression("ard"), 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_killed_at_any_moment(data, tmp_path, monkeypatch, name):
    model, y = MODELS[name]
    X, y = da.from_array(data[0], chunks=(90, D)), data[y]

    def again():
        return type(model)(**model.get_params())

    whole = again().fit(X, y)
    passes = whole.solution_.n_passes
    moments = range(1, passes) if passes < 12 else (2, passes // 2, passes - 1)
    for k in moments:
        path = tmp_path / f"{k}.part"
        with monkeypatch.context() as patch:
            killed_after(patch, k)
            with pytest.raises(Killed):
                again().fit(X, y, checkpoint=path)
        assert path.exists() == (k > 1)  # the first pass looks at the rows, the second is the first iterate
        found = again().fit(X, y, checkpoint=path)
        np.testing.assert_allclose(found.coef_, whole.coef_, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.coef_std_, whole.coef_std_, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.theta_, whole.theta_, rtol=0, atol=1e-10)
        assert abs(found.elbo_ - whole.elbo_) < 1e-10
        assert found.solution_.n_passes <= passes - k + 4  # two looks, a step that was not taken, the best width


def test_killed_twice_and_finished_fits_are_found_again(data, tmp_path, monkeypatch):
    X, y, path = da.from_array(data[0], chunks=(90, D)), data[2], tmp_path / "fit"
    for _ in range(3):
        with monkeypatch.context() as patch:
            killed_after(patch, 3)
            with pytest.raises(Killed):
                BayesianLogisticRegression(tol=1e-14).fit(X, y, checkpoint=path)
    found = BayesianLogisticRegression(tol=1e-14).fit(X, y, checkpoint=path)
    again = BayesianLogisticRegression(tol=1e-14).fit(X, y, checkpoint=path)
    assert again.solution_.n_passes == 2
    np.testing.assert_allclose(again.coef_, found.coef_, atol=1e-12)
    other_cut = BayesianLogisticRegression(tol=1e-14).fit(X.rechunk((70, D)), y, checkpoint=path)
    np.testing.assert_allclose(other_cut.coef_, found.coef_, atol=1e-12)


def test_checkpoints_of_other_fits_are_refused(data, tmp_path):
    X, y, path = da.from_array(data[0], chunks=(90, D)), data[2], tmp_path / "fit"
    BayesianLogisticRegression().fit(X, y, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"is of another fit: variance differ; expected .* Give another path"):
        BayesianLogisticRegression(variance=2.0).fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match=r"is of another fit: the data differ \(X, y or the weights\)"):
        BayesianLogisticRegression().fit(2.0 * X + 1.0, y, checkpoint=path)
    with pytest.raises(ValueError, match=r"is of another fit: the data differ \(its rows gave another elbo\)"):
        BayesianLogisticRegression().fit(X, y[::-1], checkpoint=path)
    with pytest.raises(ValueError, match="is of another fit: estimator"):
        BayesianPoissonRegression().fit(X, y, checkpoint=path)
    assert path.read_bytes() == before
    for content in (before[: len(before) // 2], b"", b"PK nothing", np.random.default_rng(0).bytes(400)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read"):
            BayesianLogisticRegression().fit(X, y, checkpoint=path)


def test_a_full_disk_is_a_sentence_and_the_old_file_stays(data, tmp_path, monkeypatch):
    X, y, path = da.from_array(data[0], chunks=(90, D)), data[2], tmp_path / "fit"
    with monkeypatch.context() as patch:
        killed_after(patch, 3)
        with pytest.raises(Killed):
            BayesianLogisticRegression().fit(X, y, checkpoint=path)
    before = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            Interrupted, match=r"cannot be written \(the disk is full\).*What was written before is whole"
        ):
            BayesianLogisticRegression().fit(X, y, checkpoint=path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]  # nothing half written is left
    assert BayesianLogisticRegression().fit(X, y, checkpoint=path).converged_
