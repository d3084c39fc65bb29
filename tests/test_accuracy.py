"""The sampler behind the accuracy benchmark finds what is known in closed form, and its stored results are whole."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import bernoulli, multivariate_normal, norm, poisson

PLACE = Path(__file__).parent.parent / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(name, PLACE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up, and accuracy imports accuracy_reference
    spec.loader.exec_module(module)
    return module


reference = load("accuracy_reference")
accuracy = load("accuracy")
intercepts = load("random_intercepts")
STORED = json.loads(reference.STORE.read_text())
CASES = reference.cases()


def gaussian(variance):
    """psi of a normal likelihood, whose posterior and evidence are known."""

    def loss(y, f):
        psi = (y - f) ** 2 / (2 * variance) + 0.5 * np.log(2 * np.pi * variance)
        return psi, (f - y) / variance, 1 / variance + 0 * f

    return loss


def kernel(x, variance=2.0, length=1.0):
    return variance * np.exp(-0.5 * ((x[:, None] - x) / length) ** 2)


# a carrier far from the posterior (the prior itself), one with wrong sites, and the fitted one
@pytest.mark.parametrize("start", ["prior", "wrong", "fitted"])
def test_conjugate_posterior_and_evidence(start):
    rng = np.random.default_rng(5)
    x, v = np.linspace(0.0, 4.0, 12), 0.8
    y, K, loss = np.sin(2 * x) + rng.normal(size=12), kernel(x), gaussian(v)
    R = reference.square_root(K)
    if start == "fitted":
        q = reference.fitted(loss, y, R)
    else:
        some = 0.0 if start == "prior" else 0.5
        q = reference.Carrier(loss, y, R, some * rng.normal(size=12), np.full(12, some))
    kept = reference.sample(q, rng, chains=32, burn=200, steps=3000, thin=1)
    found = reference.moments(kept)
    gain = np.linalg.solve(K + v * np.eye(12), K).T
    mean, sd = gain @ y, np.sqrt(np.diag(K - gain @ K))
    assert found["ess"].min() > 2000
    assert found["rhat"].max() < 1.02
    assert np.abs((q.mean + found["mean"] - mean) / found["mean_se"]).max() < 4.5  # 12 coordinates, correlated
    assert np.abs((found["sd"] - sd) / found["sd_se"]).max() < 4.5
    evidence = multivariate_normal(np.zeros(12), K + v * np.eye(12)).logpdf(y)
    there, se = reference.anneal(q, rng, 1000, 60, 2)
    back, back_se = reference.anneal(q, rng, 1000, 60, 2, kept[:, ::93].reshape(-1, 12)[:1000])
    assert max(se, back_se) < 0.05
    assert abs(there - evidence) < 4.5 * se
    assert abs(back - evidence) < 4.5 * back_se


@pytest.mark.parametrize(("kind", "y"), [("bernoulli", [1, 0]), ("poisson", [3, 0]), ("volatility", [1.5, 0.0])])
def test_two_observations_against_a_grid(kind, y):
    y, K, rng = np.array(y, dtype=float), np.array([[4.0, 2.5], [2.5, 3.0]]), np.random.default_rng(8)
    loss = reference.LOSSES[kind]
    q = reference.fitted(loss, y, reference.square_root(K))
    axis = np.linspace(-16.0, 16.0, 801)  # the trapezium is spectrally accurate here
    f = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    with np.errstate(over="ignore"):
        density = np.exp(multivariate_normal(np.zeros(2), K).logpdf(f) - loss(y, f)[0].sum(axis=1))
    z = density.sum() * (axis[1] - axis[0]) ** 2
    mean = density @ f / density.sum()
    sd = np.sqrt(density @ (f - mean) ** 2 / density.sum())
    kept = reference.sample(q, rng, chains=32, burn=100, steps=2000, thin=1)
    found = reference.moments(kept)
    assert np.abs((q.mean + found["mean"] - mean) / found["mean_se"]).max() < 4.5
    assert np.abs((found["sd"] - sd) / found["sd_se"]).max() < 4.5
    for back in (None, kept[:, ::32].reshape(-1, 2)):
        log_z, se = reference.anneal(q, rng, 2000, 40, 1, back)
        assert se < 0.01
        assert abs(log_z - np.log(z)) < 4.5 * se


def test_losses_are_what_they_say():
    rng = np.random.default_rng(0)
    f = rng.normal(size=9)
    assert np.allclose(-reference.bernoulli(np.ones(9), f)[0], np.log(expit(f)))
    assert np.allclose(np.exp(-reference.poisson(np.arange(60.0)[:, None], f)[0]).sum(axis=0), 1.0)
    y = np.linspace(-80.0, 80.0, 40001)[:, None]
    assert np.allclose(np.exp(-reference.volatility(y, f)[0]).sum(axis=0) * (y[1] - y[0]), 1.0)
    for kind, target in (("bernoulli", 1.0), ("poisson", 3.0), ("volatility", 0.7)):
        loss, e = reference.LOSSES[kind], 1e-5
        _, slope, bend = loss(target, f)
        assert np.allclose((loss(target, f + e)[0] - loss(target, f - e)[0]) / (2 * e), slope, atol=1e-8)
        assert np.allclose((loss(target, f + e)[1] - loss(target, f - e)[1]) / (2 * e), bend, atol=1e-8)


@given(phi=st.floats(-0.5, 0.97), seed=st.integers(0, 2**32 - 1))
def test_effective_size_of_an_autoregression(phi, seed):
    """ESS = n (1 - phi)/(1 + phi) for an AR(1)."""
    from scipy.signal import lfilter

    noise = np.random.default_rng(seed).normal(size=(8, 10_000, 3))
    noise[:, 0] /= np.sqrt(1 - phi**2)  # stationary from the first step
    x = lfilter([1.0], [1.0, -phi], noise, axis=1)
    size, rhat = reference.effective_size(x)
    assert np.abs(np.log(size / (80_000 * (1 - phi) / (1 + phi)))).max() < 0.45
    assert rhat.max() < 1.05


def test_r_hat_sees_chains_apart_and_chains_that_drift():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 1000, 1))
    apart, drift = x + np.arange(4.0)[:, None, None], x + np.linspace(0.0, 3.0, 1000)[:, None]
    assert reference.effective_size(x)[1].max() < 1.01
    assert reference.effective_size(apart)[1].min() > 1.3
    assert reference.effective_size(drift)[1].min() > 1.1
    assert reference.effective_size(apart)[0].max() < 40


def test_the_store_has_every_case_and_setting():
    assert STORED["settings"] == reference.settings()
    assert list(STORED["cases"]) == [case.name for case in CASES]
    assert reference.STORE.stat().st_size < 1_000_000


def test_quantiles_and_their_standard_errors():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(32, 2000, 5)) * np.arange(1.0, 6.0)
    found, se = reference.quantiles(x)
    exact = norm.ppf(reference.LEVELS) * np.arange(1.0, 6.0)[:, None]
    assert np.abs((found - exact) / se).max() < 4.5
    density = norm.pdf(norm.ppf(reference.LEVELS)) / np.arange(1.0, 6.0)[:, None]
    known = np.sqrt(np.array(reference.LEVELS) * (1 - np.array(reference.LEVELS)) / 64_000) / density
    assert np.abs(np.log(se / known)).mean() < 0.3


def test_the_stored_quantiles_are_of_this_data_and_good_enough():
    stored = json.loads(reference.QUANTILES.read_text())
    assert set(stored["cases"]) == set(reference.SKEWED)
    for case in CASES:
        if case.name not in reference.SKEWED:
            continue
        found, truth = stored["cases"][case.name], STORED["cases"][case.name]
        assert found["checksum"] == case.checksum
        assert found["levels"] == list(reference.LEVELS)
        q, se, sd = (np.array(x) for x in (found["quantile"], found["quantile_se"], truth["sd"]))
        assert q.shape == se.shape == (case.y.size, 3)
        assert (np.diff(q, axis=1) > 0).all()
        assert (se / sd[:, None]).mean() < 0.01
        third = np.abs(q[:, 1] - np.array(truth["mean"])) / sd  # a median is within a sd of the mean
        assert third.max() < 1.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_stored_reference_is_of_this_data_and_good_enough(case):
    truth = STORED["cases"][case.name]
    assert truth["checksum"] == case.checksum
    assert truth["setting"] == case.setting
    assert truth["rows"] == case.y.size
    for key in ("mean", "sd", "mean_se", "sd_se"):
        assert np.isfinite(truth[key]).all()
        assert len(truth[key]) == case.y.size
    assert truth["min_ess"] >= 2000
    assert truth["max_rhat"] < 1.01
    assert truth["log_evidence_se"] < 0.05
    (there, se), (back, back_se) = truth["forward"], truth["reverse"]
    assert abs(there - back) < 4.5 * np.hypot(se, back_se)
    assert (np.array(truth["sd"]) < np.sqrt(np.diag(case.K))).all()  # log-concave likelihoods narrow the prior


def test_a_short_run_agrees_with_the_store():
    """Another seed, another carrier: Pima within the errors of the short run."""
    case = CASES[0]
    truth, rng = STORED["cases"][case.name], np.random.default_rng(77)
    q = reference.fitted(reference.LOSSES[case.kind], case.y, reference.square_root(case.K), weaken=0.7)
    found = reference.moments(reference.sample(q, rng, chains=32, burn=100, steps=1200, thin=4))
    assert np.abs((q.mean + found["mean"] - truth["mean"]) / found["mean_se"]).max() < 5
    assert np.abs((found["sd"] - truth["sd"]) / found["sd_se"]).max() < 5
    log_z, se = reference.anneal(q, rng, 500, 40, 1)
    assert abs(log_z - truth["log_evidence"]) < 4.5 * np.hypot(se, truth["log_evidence_se"])


@pytest.mark.parametrize(("kind", "n", "sd"), [("logistic", 1, 3.0), ("logistic", 30, 3.0), ("poisson", 4, 1.0)])
def test_the_quadrature_of_random_intercepts(kind, n, sd):
    """Group by group with scipy's adaptive rule, and the draws from the library's q beside it."""
    data = intercepts.Data.drawn(kind, n, sd, 0.0, 12, np.random.default_rng(1))
    law = bernoulli if kind == "logistic" else poisson
    total = 0.0
    for y in data.y:
        mode = minimize_scalar(lambda u, y=y: u * u / 2 - log_rows(law, y, data.level + sd * u)).x
        density = lambda u, y=y: norm.pdf(u) * np.exp(log_rows(law, y, data.level + sd * u))
        value, _ = quad(density, mode - 9, mode + 9, points=[mode], epsabs=0.0, epsrel=1e-10, limit=200)
        total += np.log(value)
    assert data.truth(sd) == pytest.approx(total, abs=1e-7)
    found = data.fit(sd).importance(2048)
    assert abs(found.log_evidence - total) < 5 * found.log_evidence_se + 1e-3
    assert data.fit(sd).elbo < total


def test_the_quadrature_at_an_unknown_level():
    """Two groups and their level, on a grid of all three."""
    data = intercepts.Data("logistic", np.array([[1.0, 0.0], [1.0, 1.0]]), -1.0, 2.0, 3.0)
    x = np.linspace(-9.0, 9.0, 121)
    b, u, v = np.meshgrid(x, x, x, indexing="ij", sparse=True)
    level, log_p = -1.0 + 3.0 * b, -(b**2 + u**2 + v**2) / 2 - 1.5 * np.log(2 * np.pi)
    for rows, effect in zip(data.y, (u, v), strict=True):
        eta = level + 2.0 * effect
        log_p = log_p + rows.sum() * eta - rows.size * np.logaddexp(0.0, eta)
    assert data.truth(2.0) == pytest.approx(np.log(np.exp(log_p).sum() * (x[1] - x[0]) ** 3), abs=1e-6)


def log_rows(law, y, eta):
    return law.logpmf(y, expit(eta) if law is bernoulli else np.exp(eta)).sum()


def test_the_verdict_is_computed_from_the_numbers():
    rows = np.ones(4)
    se = accuracy.Errors(0.01, 0.001 * rows, 0.001 * rows, 1.0)
    exact = accuracy.Errors(-0.3, 0.01 * rows, -0.02 * rows, 0.0)
    rival = accuracy.Errors(0.29, -0.2 * rows, -0.0199 * rows, 0.0)
    told = accuracy.verdict(exact, rival, se)
    # on one side of the truth its noise does not matter; on two sides it does
    assert told == {"evidence": "too close to tell", "means": "exact", "sds": "Laplace"}
    known = accuracy.Errors(-0.3, 0.01 * rows, -0.02 * rows, 0.0, 0.5 * rows)
    assert len(known.sizes()) == 4
    assert accuracy.missed(known, se)[0] == "evidence 0.3000, not 0.0300"
