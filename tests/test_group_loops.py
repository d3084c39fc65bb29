"""Compiled sums over the nodes of groups, beside numpy's, and the terms of likelihoods that they know."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_expit

import fenchel
from fenchel import likelihoods
from fenchel.corrections import group_quadrature
from fenchel.corrections.collapsed import collapse
from fenchel.likelihoods.base import Likelihood

ALL = [each for each in vars(likelihoods).values() if inspect.isclass(each) and issubclass(each, Likelihood)]
KINDS = [each for each in ALL if not inspect.isabstract(each) and each.n_predictors == 1]
ELEMENTARY = {
    *("BernoulliLogit", "Binomial", "NegativeBinomial", "Ordinal"),
    *("Poisson", "Exponential", "Weibull", "Gamma", "StochasticVolatility"),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_elementary_terms_are_the_density(kind):
    rng = np.random.default_rng(3)
    likelihood, y = kind.example(rng, 30)
    rows = likelihood.prepare(y)
    terms = likelihood.elementary_terms(rows)
    assert (terms is not None) == (kind.__name__ in ELEMENTARY)
    if terms is None:
        return
    eta = rng.normal(size=(30, 7))
    linear, rate, sign, up, high, down, low = (np.reshape(v, (-1, 1)) for v in terms)
    value = linear * eta + rate * np.exp(sign * eta) - up * log_expit(high - eta) - down * log_expit(eta - low)
    expected, slope, _ = likelihood.derivatives(eta, rows)
    apart = np.asarray(expected) - value
    np.testing.assert_allclose(apart, np.repeat(apart[:, :1], 7, axis=1), atol=1e-8, rtol=1e-8)
    found = linear + sign * rate * np.exp(sign * eta) + up * np.exp(log_expit(eta - high))
    found = found - down * np.exp(log_expit(low - eta))
    np.testing.assert_allclose(found, np.asarray(slope), atol=1e-8, rtol=1e-8)


RNG = np.random.default_rng(7)
N = 120
TABLE = pd.DataFrame({"g": np.repeat(np.arange(24), 5), "x": RNG.normal(size=N)})
ETA = RNG.normal(size=24)[TABLE["g"]] + 0.5 * TABLE["x"] * (1.0 + RNG.normal(size=24)[TABLE["g"]])
TABLE["label"] = (RNG.random(N) < 1.0 / (1.0 + np.exp(-ETA))).astype(int)
TABLE["count"] = RNG.poisson(np.exp(0.5 * ETA))
TABLE["level"] = np.digitize(ETA + RNG.logistic(size=N), [-1.0, 1.0])
TABLE["time"] = RNG.weibull(1.5, N) * np.exp(-0.3 * ETA)
TABLE["event"] = RNG.integers(0, 2, N)
TABLE["trials"] = RNG.integers(1, 6, N)
TABLE["success"] = RNG.binomial(TABLE["trials"], 0.4)
LARGE = pd.concat([TABLE] * 9).assign(half=np.arange(9 * N) % 2, x=lambda t: t["x"] + 0.1 * RNG.normal(size=9 * N))
FITS = {
    "labels": ("label ~ x + (1|g)", "bernoulli", {}),
    "labels, slopes": ("label ~ x + (1 + x|g)", "bernoulli", {}),
    "trials": ("success ~ x + (1|g)", "binomial", {"trials": "trials"}),
    "counts, slopes": ("count ~ x + (1 + x|g)", "poisson", {}),
    "negative binomial": ("count ~ x + (1|g)", "negative-binomial", {}),
    "levels, slopes": ("level ~ x + (1 + x|g)", "ordinal", {}),
    "durations": ("time ~ x + (1|g)", "weibull", {"event": "event"}),
    "more rows a group than factors of a product": ("label ~ x + (1|half)", "bernoulli", {}),
}


@pytest.mark.parametrize("name", FITS)
def test_compiled_sums_are_those_of_numpy(name, monkeypatch):
    formula, word, options = FITS[name]
    data = LARGE if "half" in formula else TABLE
    solution = fenchel.fit(formula, data, word, accuracy="fast", **options).solution
    found = collapse(solution)
    assert found is not None
    integrals, nodes, b = found._found.problem.integrals, found._found.placed.nodes, found._found.points
    compiled = integrals.moments(b, nodes, slopes=True, shares=True)
    own = found.likelihood_gradient()
    monkeypatch.setitem(vars(integrals.rows), "loop_terms", None)  # a cached property: the class is not asked again
    monkeypatch.setattr(group_quadrature, "tilt", None)
    numpy = integrals.moments(b, nodes, slopes=True, shares=True)
    for one, other in zip(compiled, numpy, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9, rtol=1e-9)
    np.testing.assert_allclose(own, found.likelihood_gradient(), atol=1e-4, rtol=1e-4)
