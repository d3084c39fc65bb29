"""Bounds of multinomial fits, of the evidence and of events, against a grid over their coefficients."""

import numpy as np
import pandas as pd
import pytest

import fenchel


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=14)
    data = pd.DataFrame({"y": rng.choice(["a", "b", "c"], 14), "x": x - x.mean()})
    return fenchel.fit("y ~ 0 + x", data, family="multinomial", accuracy="fast", fixed_sd=2.0), data


@pytest.fixture(scope="module")
def posterior(fitted):
    """Weights on a grid over both coefficients, whose prior sd is read off the fit without data."""
    fit, data = fitted
    prior = fit.solution.posterior.predictors
    sd = float(np.sqrt(np.asarray(prior.variance)[0, 0])) / abs(data["x"].iloc[0])
    b = np.linspace(-9.0, 9.0, 721)
    x, code = data["x"].to_numpy(), data["y"].map({"a": 0, "b": 1, "c": 2}).to_numpy()
    eta = [np.zeros((721, 721)), *np.meshgrid(b, b, indexing="ij")]
    log_f = -0.5 * (eta[1] ** 2 + eta[2] ** 2) / sd**2 - np.log(2.0 * np.pi * sd**2)
    for value, k in zip(x, code, strict=True):
        log_f += value * eta[k] - np.logaddexp(np.logaddexp(0.0, value * eta[1]), value * eta[2])
    top = log_f.max()
    f = np.exp(log_f - top)
    return b, f / f.sum(), top + np.log(f.sum() * (b[1] - b[0]) ** 2)


@pytest.mark.parametrize("effort", ["fast", "high"])
def test_the_evidence_lies_between_the_bounds(fitted, posterior, effort):
    bounds = fitted[0].evidence_bounds(effort)
    assert bounds.lower <= posterior[2] <= bounds.upper
    assert bounds.width < 0.3


def test_probabilities_of_coefficients_lie_between_their_bounds(fitted, posterior):
    b, share, _ = posterior
    found = fitted[0].proved("x", low=0.0)
    truth = [
        share[b > 0.0].sum() + 0.5 * share[b == 0.0].sum(),
        share[:, b > 0.0].sum() + 0.5 * share[:, b == 0.0].sum(),
    ]
    assert list(found.table.index) == [("b", "x"), ("c", "x")]
    assert (found.table["lower"] <= truth).all()
    assert (truth <= found.table["upper"]).all()
    assert "against 'a'" in str(found)


def test_rows_are_refused(fitted):
    with pytest.raises(ValueError, match="several classes"):
        fitted[0].proved({"x": [1.0]}, low=0.5)


def test_an_integrated_fit_has_estimates_of_each_class(fitted):
    """Bounds so wide apart that an estimate is made: P(b > 0) of each class, the share of draws above 0."""
    rng = np.random.default_rng(1)
    data = fitted[1].assign(g=rng.choice(list("uvw"), 14))
    fit = fenchel.fit("y ~ x + (1|g)", data, family="multinomial", integrate="grid", fixed_sd=2.0)
    table = fit.proved("x", low=0.0).table
    z = fit.coefficients.xs("x", level=1)
    assert list(table.index) == [("b", "x"), ("c", "x")]
    assert (table["lower"] <= table["estimate"]).all()
    assert (table["estimate"] <= table["upper"]).all()
    np.testing.assert_allclose(table["estimate"], z["p_above_0" if "p_above_0" in z else "p_above_1"], atol=1e-6)
    assert len(fit.proved(low=0.0).table) == 4
