"""Learning by the corrected evidence, against quadrature over groups that do not share a latent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, gammaln

import fenchel
from fenchel.corrections import correct
from fenchel.hyperparameters import WeightVariances, learn
from fenchel.hyperparameters.evidence import CorrectedEvidence
from fenchel.likelihoods import BernoulliLogit, Poisson


def grouped(n: int, sd: float, groups: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, their group and binary answers with one intercept a group."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(groups), n)
    y = (rng.random(of.size) < expit(sd * rng.standard_normal(groups)[of])).astype(float)
    return np.eye(groups)[of], of, y


def log_variance_by_quadrature(log_density, n_nodes: int = 200) -> tuple[float, float]:
    """The log variance that maximises the exact evidence, and the evidence there; log_density(eta (M,)) -> (G, M)."""
    x, w = np.polynomial.hermite_e.hermegauss(n_nodes)
    w = w / w.sum()
    found = minimize_scalar(
        lambda t: -np.log(np.exp(log_density(np.exp(t / 2) * x)) @ w).sum(), bounds=(-6, 6), method="bounded"
    )
    return float(found.x), -float(found.fun)


@pytest.mark.parametrize(("n", "sd", "groups"), [(2, 2.0, 150), (4, 4.0, 80), (8, 2.0, 60)])
def test_variance_of_intercepts_is_that_of_quadrature(n, sd, groups):
    W, of, y = grouped(n, sd, groups)
    k = np.bincount(of, weights=y)[:, None]
    best, value = log_variance_by_quadrature(lambda eta: -k * np.logaddexp(0, -eta) - (n - k) * np.logaddexp(0, eta))
    plain = learn(BernoulliLogit("exact"), WeightVariances(W), y)
    found = learn(BernoulliLogit("exact"), WeightVariances(W), y, evidence="corrected")
    assert found.converged
    assert found.maximises == "corrected"
    assert abs(np.exp((found.theta[0] - best) / 2) - 1.0) < 0.01  # the sd, to one per cent
    assert abs(found.objective - value) < 0.003 * groups
    assert abs(plain.theta[0] - best) > 2 * abs(found.theta[0] - best)
    assert plain.maximises == "elbo"


def test_one_effect_for_each_small_count():
    rng = np.random.default_rng(1)
    y = rng.poisson(0.3 * np.exp(1.2 * rng.standard_normal(200))).astype(float)
    likelihood = Poisson(np.full(200, 0.3))
    best, value = log_variance_by_quadrature(
        lambda eta: y[:, None] * (eta + np.log(0.3)) - 0.3 * np.exp(eta) - gammaln(y + 1)[:, None]
    )
    found = learn(likelihood, WeightVariances(np.eye(200)), y, evidence="corrected")
    assert abs(np.exp((found.theta[0] - best) / 2) - 1.0) < 0.01
    assert abs(found.objective - value) < 0.003 * 200


def corrected_evidence(evidence: CorrectedEvidence, theta: np.ndarray) -> float:
    """Without a model of it."""
    return correct(evidence.fit(theta)).log_evidence + evidence.log_prior(theta)[0]


def test_its_gradient_is_the_slope_of_its_value():
    W, _, y = grouped(3, 2.0, 30)
    evidence = CorrectedEvidence(BernoulliLogit("exact"), WeightVariances(W), y, tol=1e-12)
    theta, h = np.array([1.0]), 1e-2
    assert not evidence.about(theta, correct(evidence.fit(theta)))
    value, slope = evidence(theta)
    ends = [corrected_evidence(evidence, theta + sign * h) for sign in (-1.0, 1.0)]
    assert value == pytest.approx(corrected_evidence(evidence, theta), abs=1e-8)
    assert slope[0] == pytest.approx((ends[1] - ends[0]) / (2 * h), abs=0.01)


def test_groups_that_are_integrated_out_have_exact_slopes():
    _, of, y = grouped(4, 2.0, 40)
    model = fenchel.Model("y ~ (1|g)", {"y": y, "g": of}, family="bernoulli")
    evidence = CorrectedEvidence(model.target.likelihood, model.sum.family(), model.target.y, tol=1e-12)
    theta, h = np.array([0.6]), 1e-3
    assert evidence.about(theta, correct(evidence.fit(theta)))
    value, slope = evidence(theta)
    ends = [corrected_evidence(evidence, theta + sign * h) for sign in (-1.0, 1.0)]
    assert value == pytest.approx(corrected_evidence(evidence, theta), abs=1e-8)
    assert slope[0] == pytest.approx((ends[1] - ends[0]) / (2 * h), abs=2e-3)


def test_at_a_bound_the_model_has_one_side():
    W, _, y = grouped(3, 2.0, 30)
    family = WeightVariances(W)
    evidence = CorrectedEvidence(BernoulliLogit("exact"), family, y)
    low = family.bounds[0, 0]
    evidence.about(np.array([low]), correct(evidence.fit(np.array([low]))))
    value, slope = evidence(np.array([low]))
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


def test_evidence_is_named():
    W, _, y = grouped(2, 1.0, 5)
    with pytest.raises(ValueError, match="laplace"):
        fenchel.fit("y ~ (1|g)", {"g": [0, 1] * 4, "y": [0, 1, 1, 0] * 2}, "bernoulli", evidence="laplace")
    with pytest.raises(ValueError, match="laplace"):
        learn(BernoulliLogit("log-sum"), WeightVariances(W), y, evidence="laplace")


def test_models_and_maps_learn_by_it_when_asked():
    import pandas as pd

    _, of, y = grouped(2, 3.0, 60)
    data = pd.DataFrame({"g": of, "y": y})
    plain, better = (fenchel.fit("y ~ (1|g)", data, family="bernoulli", evidence=e) for e in ("elbo", "corrected"))
    sds = [fit.hyperparameters["value"].iloc[0] for fit in (plain, better)]
    assert sds[1] > 1.02 * sds[0]
    model = fenchel.FormulaRegressor("y ~ (1|g)", "bernoulli", evidence="corrected").fit(data[["g"]], y)
    assert model.fit_.hyperparameters["value"].iloc[0] == pytest.approx(sds[1], rel=1e-6)
