"""Simulation-based calibration, and what it found."""

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel import PC, Model
from fenchel.hyperparameters.integration import integrate
from fenchel.models.calibrating import Calibration


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=24), "g": np.repeat(np.arange(8), 3), "y": rng.poisson(2, 24)})
    return Model("y ~ x + (1|g)", data, "poisson", fixed_sd=1.0, priors={"(1|g)": PC(sd=1.0, alpha=0.05)})


def test_a_right_posterior_is_calibrated(model):
    found = fenchel.calibrate(model, 20, rng=1)
    assert found.calibrated, found.verdict
    assert found.u.shape[0] == 20
    assert {"(1|g): log sd", "Intercept", "x", "eta[0]", "(1|g)[0]"} <= set(found.u.columns)
    assert found.converged.all()
    assert found.plot().get_xlabel()


def test_what_is_not_uniform_is_named():
    rng = np.random.default_rng(0)
    u = pd.DataFrame({"right": rng.random(200), "wide": rng.beta(3, 3, 200), "low": rng.beta(1, 2, 200)})
    found = Calibration.of(u, np.arange(200) > 2)
    assert not found.calibrated
    assert found.p_values["right"] > 0.001
    assert "wide" in found.verdict
    assert "low" in found.verdict
    assert "right" not in found.verdict
    assert "3 of the fits did not converge" in found.verdict
    assert repr(found) == f"Calibration({found.verdict})"


def test_flat_priors_and_wild_data_are_refused(model):
    data = model.frame.assign(y=model.target.y)
    with pytest.raises(ValueError, match="flat prior"):
        fenchel.calibrate(Model("y ~ x + (1|g)", data, "poisson", priors={"(1|g)": None}))
    with pytest.raises(ValueError, match="beyond 1e12"):
        fenchel.calibrate(Model("y ~ x + (1|g)", data, "poisson", fixed_sd=300.0), 20)


def test_a_density_that_a_bound_cuts_off_has_no_cliff(model):
    """A variance that may vanish: the posterior of its log sd reaches the bound; its quantiles by sums."""
    rng, family, likelihood = np.random.default_rng(5), model.sum.family(), model.target.likelihood
    y = rng.poisson(np.exp(0.3), 24).astype(float)
    found = integrate(likelihood, family, y)
    at = np.linspace(*family.bounds[0], 100)
    log_p = []
    for t in at:
        fit = fenchel.infer(likelihood, family.at(np.array([t])), y)
        log_p.append(fit.corrected().log_evidence + family.log_prior(np.array([t]))[0])
    p = np.exp(np.array(log_p) - max(log_p))
    total = np.cumsum(p) / p.sum()
    exact = np.interp([0.25, 0.5, 0.75], total, at)
    spread = exact[2] - exact[0]
    np.testing.assert_allclose(found.theta.quantile([0.25, 0.5, 0.75])[0], exact, atol=0.08 * spread)
