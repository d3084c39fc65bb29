"""Corrections between theta: a quadratic through few of them, and marginals in units of their Gaussian."""

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.corrections import correct
from fenchel.corrections.interpolated import Interpolated
from fenchel.hyperparameters import learn
from fenchel.hyperparameters.correction_model import BEYOND, CorrectionModel
from fenchel.hyperparameters.evidence import Evidence
from fenchel.hyperparameters.integration import integrate, points
from fenchel.hyperparameters.mode import Coordinates


@pytest.fixture(scope="module")
def crossed():
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 15, 240), rng.integers(0, 12, 240)
    eta = 0.3 + 0.8 * rng.standard_normal(15)[a] + 0.6 * rng.standard_normal(12)[b]
    frame = pd.DataFrame({"y": rng.poisson(np.exp(eta)), "a": a, "b": b})
    model = fenchel.Model("y ~ (1|a) + (1|b)", frame, family="poisson")
    return model.target.likelihood, model.sum.family, model.target.y


def test_a_diagonal_quadratic_is_found_and_goes_on_straight():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3))
    at = Coordinates.straight(rng.standard_normal(3), [0, 1, 2], root)
    u = np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])

    def gain(u: np.ndarray) -> np.ndarray:
        return 1.0 + u @ [0.3, -0.2, 0.1] + 0.5 * u**2 @ [0.05, -0.1, 0.2]

    model = CorrectionModel(at, at.theta(u), gain(u))
    inside = rng.uniform(-1.4, 1.4, (20, 3))
    assert model(at.theta(inside)) == pytest.approx(gain(inside), abs=1e-6)
    theta, h = at.theta(inside[0]), 1e-5
    ends = [(model((theta + h * e)[None]) - model((theta - h * e)[None]))[0] / (2 * h) for e in np.eye(3)]
    assert model.slope(theta) == pytest.approx(ends, abs=1e-4)
    line = model(at.theta(np.array([[BEYOND + k, 0.0, 0.0] for k in range(3)])))
    assert line[2] - line[1] == pytest.approx(line[1] - line[0], abs=1e-6)
    assert model.shares(theta) @ gain(u) == pytest.approx(gain(inside[:1])[0], abs=1e-6)
    more = model.with_point(at.theta(np.array([0.8, 0.8, 0.8])), 3.0)
    assert more(at.theta(np.array([[0.8, 0.8, 0.8]])))[0] == pytest.approx(3.0, abs=0.01)


def test_marginals_between_theta_are_those_of_the_correction_there(crossed):
    likelihood, family, y = crossed
    evidence = Evidence(likelihood, family(), y)
    at = Coordinates.straight(np.array([-0.3, -0.5]), [0, 1], 0.3 * np.eye(2))
    u = np.concatenate([np.zeros((1, 2)), np.eye(2), -np.eye(2)])
    given = [correct(evidence.fit(theta)) for theta in at.theta(u)]
    model = CorrectionModel(at, at.theta(u), np.array([each.log_evidence - each.elbo for each in given]))
    theta = at.theta(np.array([0.7, -0.6]))
    fit = evidence.fit(theta)
    near = int(np.argmin(model.away(theta[None])[0]))
    found = Interpolated(fit, given, model.shares(theta), near, float(model(theta[None])[0]))
    exact = correct(fit)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=0.005)
    for mine, true in ((found, exact), (found.latents(), exact.latents())):
        sd = np.asarray(true.sd)
        assert np.abs(np.asarray(mine.mean) - np.asarray(true.mean)).max() < 0.003 * sd.max()
        assert np.asarray(mine.sd) == pytest.approx(sd, rel=0.003)
        ends = np.abs(np.asarray(mine.interval()) - np.asarray(true.interval()))
        assert (ends / sd[:, None]).max() < 0.02
    mine, true = found.loo(), exact.loo()
    off = np.abs(mine.log_density - true.log_density)
    assert off.mean() < 0.001
    assert off.max() < 0.03  # of a row that holds its effects nearly alone
    both = mine.trusted & true.trusted
    assert both.mean() > 0.95
    assert np.abs(mine.pit - true.pit)[both].max() < 0.01
    draws = np.asarray(found.sample_latents(4000, 0))
    assert draws.std(axis=0) == pytest.approx(np.asarray(exact.latents().sd), rel=0.1)
    rows = fit.posterior.predictors.designs[0].take(np.arange(5))
    assert np.asarray(found.at(design=rows.csr()).sd) == pytest.approx(np.asarray(exact.sd)[:5], rel=0.003)


def test_few_corrections_serve_all_points(crossed, monkeypatch):
    likelihood, family, y = crossed
    asked = []
    monkeypatch.setattr(points, "correct", lambda fit, *how: asked.append(fit) or correct(fit, *how))
    found = integrate(likelihood, family(), y)
    few, n = len(asked), len(found.solutions)
    assert found.evidence == "corrected"
    assert few <= 2 * 2 + 1 + 6 < n
    monkeypatch.setattr("fenchel.hyperparameters.integration.integrating.MISSED", -1.0)
    monkeypatch.setattr("fenchel.hyperparameters.integration.integrating.LIGHT_SHARE", 1e-6)
    every = integrate(likelihood, family(), y)
    assert len(asked) - few > n
    assert found.log_evidence == pytest.approx(every.log_evidence, abs=found.log_evidence_error)
    off = np.abs(found.theta.quantile([0.025, 0.5, 0.975]) - every.theta.quantile([0.025, 0.5, 0.975]))
    assert (off / every.theta.sd[:, None]).max() < 0.03
    assert found.mean == pytest.approx(every.mean, abs=0.005 * float(every.sd.max()))
    assert found.sd == pytest.approx(every.sd, rel=0.005)


def test_gaussian_noise_needs_no_correction(crossed):
    _, _, y = crossed
    frame = pd.DataFrame({"y": np.log(y + 1.0), "g": np.arange(y.size) % 12})
    fit = fenchel.Model("y ~ (1|g)", frame).fit(accuracy="fast")
    found = fit.solution.corrected()
    assert found.log_evidence == fit.solution.elbo
    assert found.log_evidence_se == 0.0
    assert found.trusted
    assert found.latents().mean == pytest.approx(fit.solution.posterior.latent_mean, abs=1e-12)
    assert found.quantile(0.9) == pytest.approx(fit.solution.posterior.quantile(0.9), abs=1e-5)


def test_the_mode_of_what_was_integrated_is_that_of_the_corrected_evidence(crossed):
    likelihood, family, y = crossed
    best = learn(likelihood, family(), y, evidence="corrected")
    found = integrate(likelihood, family(), y)
    assert np.abs((found.theta.peak - best.theta) / found.theta.sd).max() < 0.03
