"""Intervals of hyperparameters: where they end, and how often they hold the truth."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import reads_repository
from scipy.optimize import brentq

import fenchel
from fenchel.hyperparameters.evidence import Evidence

ROOT = Path(__file__).parents[1]


def few_groups(seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"g": np.repeat(np.arange(8), 6)})
    return data.assign(y=rng.poisson(np.exp(0.5 + 0.6 * rng.normal(size=8)[data.g])))


def test_an_interval_ends_where_the_evidence_has_fallen():
    """One sd, known to few groups: the ends of 95 % are where twice the fall is 1.96^2, on either side."""
    fit = fenchel.fit("y ~ 1 + (1|g)", few_groups(), "poisson", priors={"(1|g)": None})
    evidence = Evidence(fit.found.likelihood, fit.model.sum.family(), fit.model.target.y, tol=1e-13)

    def fallen(theta: float) -> float:
        return fit.elbo - evidence.fit(np.array([theta])).elbo - 1.96**2 / 2

    at = fit.theta[0]  # a log sd
    ends = [np.exp(brentq(fallen, *bracket)) for bracket in ((at - 5.5, at), (at, at + 2.5))]
    row = fit.hyperparameters.loc[("(1|g)", "sd")]
    lower, value, upper = np.log([row["lower"], row["value"], row["upper"]])
    half = 1.96 * np.sqrt(fit.theta_covariance[0, 0])  # of a normal about the mode, alike on both sides
    for end, found, normal in zip(np.log(ends), (lower, upper), (value - half, value + half), strict=True):
        assert found == pytest.approx(end, abs=0.05 * half)
        assert abs(found - end) < abs(normal - end) / 2


def test_an_sd_beside_its_bound_has_the_interval_that_is_left():
    """No effect of the groups: the sd ends next to 0 and is said to be none, and the noise keeps its interval."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(6), 10), "y": rng.normal(size=60)})
    data["y"] -= data.groupby("g").y.transform("mean")
    with pytest.warns(UserWarning, match="no variance is found"):
        fit = fenchel.fit("y ~ 1 + (1|g)", data, priors={"(1|g)": None})
    table = fit.hyperparameters
    assert table.loc[("(1|g)", "sd"), "value"] < 0.01
    noise = table.loc[("noise", "sd")]
    assert noise["lower"] < noise["value"] < noise["upper"]


@reads_repository
def test_random_slopes_are_covered():
    """A small part of ``benchmarks/slopes.py``."""
    path = ROOT / "benchmarks" / "slopes.py"
    spec = importlib.util.spec_from_file_location("slopes", path)
    slopes = importlib.util.module_from_spec(spec)
    sys.modules["slopes"] = slopes
    spec.loader.exec_module(slopes)
    found = slopes.coverage(16, "gaussian", seed=1)
    assert (found["no interval"] == 0.0).all()
    assert (found["covered"] >= 12 / 16).all()
    assert found["covered"].mean() > 0.88
    np.testing.assert_allclose(found["mean"], found["truth"], atol=0.2)
