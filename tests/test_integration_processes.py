"""Points fitted in processes of their own, and integrations interrupted among them: of a classifier and of a model."""

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import fenchel
from fenchel.hyperparameters import KernelCovariance, Normal, independent
from fenchel.hyperparameters.integration import Finished, integrate, points
from fenchel.likelihoods import BernoulliLogit


def classifier(n_jobs, checkpoint=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=30) > 0.0).astype(float)
    prior = independent({0: Normal(1.0, 1.0), 1: Normal(0.5, 0.7)})
    family = KernelCovariance(ConstantKernel(2.0) * RBF(1.0), X, log_prior=prior)
    return integrate(BernoulliLogit("exact"), family, y, n_jobs=n_jobs, checkpoint=checkpoint)


def model(n_jobs, checkpoint=None):
    rng = np.random.default_rng(1)
    g = np.repeat(np.arange(8), 4)
    data = pd.DataFrame({"y": rng.poisson(np.exp(0.5 + 0.5 * rng.normal(size=8)[g])), "g": g})
    fit = fenchel.fit("y ~ (1|g)", data, family="poisson", integrate="auto", n_jobs=n_jobs, checkpoint=checkpoint)
    return fit.integrated


@pytest.fixture(scope="module")
def alone():
    return {run: run(None) for run in (classifier, model)}


@pytest.mark.parametrize("run", [classifier, model])
def test_processes_fit_the_same_points(run, alone):
    one, two = alone[run], run(2)
    assert two.log_evidence == pytest.approx(one.log_evidence, abs=1e-9)
    assert two.thetas == pytest.approx(one.thetas, abs=1e-9)
    assert two.mean == pytest.approx(one.mean, abs=1e-8)
    assert two.n_fits == one.n_fits


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("run", [classifier, model])
def test_an_interrupted_one_goes_on(run, n_jobs, alone, tmp_path, monkeypatch):
    path, finish, done = tmp_path / "fits", points.Fitter._finish, []

    def until(self, point):
        if len(done) == 5:
            raise KeyboardInterrupt
        finish(self, point)
        done.append(point)

    with monkeypatch.context() as patched:
        patched.setattr(points.Fitter, "_finish", until)
        with pytest.raises(KeyboardInterrupt) as stopped:
            run(n_jobs, path)
    assert len(stopped.value.finished) == 5
    assert "5 fits are finished" in stopped.value.__notes__[0]
    kept = Finished(path)
    again = run(n_jobs, path)
    assert len(kept) == 0  # a file is read when it is opened
    assert again.n_fits == alone[run].n_fits - 5
    assert again.log_evidence == pytest.approx(alone[run].log_evidence, abs=1e-9)
    assert run(n_jobs, path).n_fits == 0
