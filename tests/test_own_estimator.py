"""An estimator outside the package: any target composed with a latent of one's own, in a few lines."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone

from fenchel.estimators.base import validate_data
from fenchel.estimators.classification import Classification
from fenchel.estimators.counts import Counts
from fenchel.estimators.latent import Latent
from fenchel.hyperparameters import WeightVariances


class Waves(Latent):
    """eta = level + c + sum_k a_k sin(2 pi k x / period) + b_k cos(2 pi k x / period), one variance for all."""

    def __init__(self, x, period, level):
        self.period, self.level, self.design = period, level, self.waves(x, period)

    @staticmethod
    def waves(x, period):
        angle = 2 * np.pi * x * np.arange(1, 4) / period
        return np.column_stack([np.ones(len(x)), np.sin(angle), np.cos(angle)])

    def family(self):
        return WeightVariances(self.design, offset=self.level)

    def new_rows(self, theta, table):
        return self.family().new_rows(theta, self.waves(table, self.period))


class Wave:
    def _fit(self, X, target, weights):
        self._learn(target, Waves(X, self.period, target.level), weights, learned=True)
        return self

    def _table(self, X):
        return validate_data(self, X, reset=False)


@dataclass(eq=False, repr=False)
class WaveClassifier(Wave, Classification):
    period: float = 24.0
    bound: str = "best"


@dataclass(eq=False, repr=False)
class WaveCounts(Wave, Counts):
    period: float = 24.0


@pytest.fixture
def hours():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 240, 400)
    return x[:, None], 1.0 + np.sin(2 * np.pi * x / 24), rng


def test_classes(hours):
    X, eta, rng = hours
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-3 * (eta - 1))), "late", "early")
    model = WaveClassifier().fit(X, y)
    assert model.converged_
    assert model.theta_names_ == ["log variance 0"]
    np.testing.assert_allclose(model.predict_proba(X + 24.0), model.predict_proba(X), atol=1e-9)
    assert (model.predict(X) == y).mean() > 0.75
    assert model.predict_quantiles(X[:3], [0.1, 0.9]).shape == (3, 2)
    assert set(model.sample_y(X[:5], 20).ravel()) == {"late", "early"}
    p = model.predict_proba(X)[np.arange(400), (y == "late").astype(int)]
    assert model.score(X, y) == pytest.approx(np.log(p).mean())
    assert clone(model).get_params() == {"period": 24.0, "bound": "best"}


def test_counts_with_exposure(hours):
    X, eta, rng = hours
    E = rng.uniform(1, 5, 400)
    y = rng.poisson(E * np.exp(eta))
    model = pickle.loads(pickle.dumps(WaveCounts().fit(X, y, exposure=E)))
    np.testing.assert_allclose(model.predict(X), np.exp(eta), rtol=0.15)
    np.testing.assert_allclose(model.predict(X, exposure=E), E * model.predict(X))
    assert model.predict_rate(X[:2]).shape == (2, 3)
    assert model.score(X, y, exposure=E) > model.score(X, y + 3, exposure=E)
    h, _ = model.latent_mean_and_variance(X)
    np.testing.assert_allclose(h, model.solution_.posterior.mean, atol=1e-9)
