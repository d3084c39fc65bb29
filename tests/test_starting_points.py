"""Where searches for hyperparameters begin: the peak of the evidence that a single start misses is found by default."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import reads_repository
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF

import fenchel
from fenchel.gmrf import ar1, iid, stack
from fenchel.hyperparameters import Evidence, KernelCovariance, learn
from fenchel.hyperparameters.starting_points import LEVELS, StartingGrid, starting_points
from fenchel.hyperparameters.working import working_rows
from fenchel.likelihoods import Gaussian, Poisson

ROOT = Path(__file__).parent.parent


def waves(seed: int = 0, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    z = rng.uniform(0.0, 10.0, n)
    return z, -0.5 + 2.0 * np.sin(2.0 * z), rng


def tight(formula: str, data: pd.DataFrame, family: str = "gaussian") -> fenchel.Model:
    """A model whose sds are held so far below the curve's that one search does not find it."""
    usual = fenchel.Model(formula, data, family)
    prior = fenchel.PC(sd=usual.target.scale, alpha=0.01)
    return fenchel.Model(formula, data, family, priors={str(term.name): prior for term in usual.sum.effects})


def single(model: fenchel.Model) -> float:
    """The objective that one search from where the model stands ends at."""
    family, likelihood = model.sum.family(), model.target.likelihood
    first = np.concatenate([family.theta, likelihood.theta])
    return learn(likelihood, family, model.target.y, theta=first).objective


def test_a_curve_is_no_line_with_much_noise() -> None:
    z, eta, rng = waves()
    data = pd.DataFrame({"y": eta + 0.5 * rng.normal(size=z.size), "z": z})
    fit = fenchel.Model("y ~ s(z, k=10)", data).fit()
    sd, noise = fit.hyperparameters["value"].iloc[0], fit.hyperparameters["value"].iloc[-1]
    assert fit.converged
    assert 8.0 < sd < 9.0
    assert 0.5 < noise < 0.57
    model = tight("y ~ s(z, k=10)", data)
    model = fenchel.Model(
        "y ~ s(z, k=10)", data, priors={"noise": None, "s(z, k=10)": model.sum.effects[0].hyperparameters[0].prior}
    )
    assert model.fit().found.objective > single(model) + 20.0  # a prior of the noise tells the two apart


@pytest.mark.parametrize(("family", "seed", "rise"), [("gamma", 1, 8.0), ("student-t", 0, 15.0), ("weibull", 2, 5.0)])
def test_other_families_find_the_curve(family: str, seed: int, rise: float) -> None:
    z, eta, rng = waves(seed)
    gammas, errors = rng.gamma(2.0, 0.5, z.size), rng.standard_t(4, z.size)
    y = eta + 0.5 * errors if family == "student-t" else np.exp(eta) * gammas
    model = tight("y ~ s(z, k=10)", pd.DataFrame({"y": y, "z": z}), family)
    assert model.fit().found.objective > single(model) + rise


def test_a_curve_beside_groups() -> None:
    z, eta, rng = waves(0)
    g = rng.integers(0, 6, z.size)
    y = eta + 0.7 * rng.normal(size=6)[g] + 0.5 * rng.normal(size=z.size)
    model = tight("y ~ s(z) + (1|g)", pd.DataFrame({"y": y, "z": z, "g": g.astype(str)}))
    assert model.fit().found.objective > single(model) + 20.0


@pytest.mark.filterwarnings("ignore:Model. the column")
@pytest.mark.parametrize("share", [0.0, 0.2, 0.8])
def test_a_curve_that_few_rows_have(share: float) -> None:
    """Most rows of by=0, and all of them: the same mode as from where the model stands, or a better one."""
    z, eta, rng = waves()
    on = (np.arange(z.size) < share * z.size).astype(float)
    data = pd.DataFrame({"y": on * eta + 0.5 * rng.normal(size=z.size), "z": z, "on": on, "g": np.arange(z.size) % 6})
    for formula in ("y ~ s(z, by=on)", "y ~ (0 + on|g)"):
        model = fenchel.Model(formula, data)
        assert model.fit().found.objective > single(model) - 1e-4


def test_the_start_saves_evaluations_where_one_start_is_enough() -> None:
    rng = np.random.default_rng(3)
    g = rng.integers(0, 8, 120)
    y = 3.0 * rng.normal(size=8)[g] + 0.1 * rng.normal(size=120)
    model = fenchel.Model("y ~ (1|g)", pd.DataFrame({"y": y, "g": g.astype(str)}))
    family, likelihood = model.sum.family(), model.target.likelihood
    first = np.concatenate([family.theta, likelihood.theta])
    old = learn(likelihood, family, model.target.y, theta=first)
    new = learn(likelihood, model.sum.family(), model.target.y)
    assert new.objective == pytest.approx(old.objective, abs=1e-5)
    assert new.n_evaluations <= old.n_evaluations
    np.testing.assert_allclose(new.theta, old.theta, atol=2e-3)


def test_the_working_evidence_of_gaussian_rows_is_exact() -> None:
    """Differences between places of the grid are those of the dense marginal likelihood at the best noise."""
    rng = np.random.default_rng(0)
    g, n = rng.integers(0, 6, 40), 40
    y = rng.normal(size=6)[g] + 0.3 * rng.normal(size=n)
    family = stack([(iid(6), g)], intercept=False)
    evidence = Evidence(Gaussian(0.7), family, y)
    predictors = family.at(family.theta).bind(n, 1, False)
    grid = StartingGrid(evidence, predictors, family.summands())
    places = [((0, level),) for level in range(LEVELS.size)]
    grid.evaluate(places)
    values = []
    for place in places:
        value, theta, log_phi = grid.known[place]
        same = (g[:, None] == g[None, :]).astype(float)
        K = np.exp(2.0 * theta[0]) * same + 0.7 * np.exp(log_phi) * np.eye(n)
        values.append((value - family.log_prior(theta)[0], multivariate_normal(np.zeros(n), K).logpdf(y)))
    got, wanted = np.array(values).T
    np.testing.assert_allclose(got - got[0], wanted - wanted[0], atol=1e-4)


def test_a_row_of_weight_five_starts_as_the_row_five_times() -> None:
    z, eta, rng = waves()
    g, y = rng.integers(0, 6, z.size), eta + 0.5 * rng.normal(size=z.size)
    often = np.repeat(np.arange(z.size), 5)
    weighted = Evidence(Gaussian(0.7), stack([(iid(6), g)]), y, weights=np.full(z.size, 5.0))
    repeated = Evidence(Gaussian(0.7), stack([(iid(6), g[often])]), y[often])
    for one, other in zip(starting_points(weighted, 50.0), starting_points(repeated, 50.0), strict=True):
        np.testing.assert_allclose(one.theta, other.theta, atol=1e-6)
        assert one.value == pytest.approx(other.value, rel=1e-9)


def test_working_rows_are_the_rows_of_gaussian_noise() -> None:
    y = np.array([1.0, -2.0, 30.0, np.nan])
    likelihood = Gaussian(0.25)
    rows = working_rows(likelihood, likelihood.prepare(y), np.zeros(4), 100.0)
    np.testing.assert_allclose(rows.y[:3], y[:3], rtol=1e-3)
    np.testing.assert_allclose(rows.lam, [4.0, 4.0, 4.0, 0.0], rtol=1e-5)


def test_working_rows_of_counts_have_the_posterior_of_a_row() -> None:
    """q of one row under its prior, by quadrature on a fine grid: the site gives back mean and variance."""
    y, mean, variance = np.array([0.0, 1.0, 3.0, 40.0]), np.full(4, 0.4), 4.0
    likelihood = Poisson()
    site = working_rows(likelihood, likelihood.prepare(y), mean, variance)
    precision = 1.0 / variance + site.lam
    q_mean = (mean / variance + site.lam * site.y) / precision
    eta = np.linspace(-15.0, 15.0, 40_001)
    for k in range(4):
        log_p = y[k] * eta - np.exp(eta) - (eta - mean[k]) ** 2 / (2.0 * variance)
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        at = p @ eta
        assert q_mean[k] == pytest.approx(at, abs=0.25)
        assert 1.0 / precision[k] == pytest.approx(p @ (eta - at) ** 2, rel=0.35)


def test_a_field_knows_the_direction_of_its_size() -> None:
    rng = np.random.default_rng(0)
    family = stack([(ar1(8), rng.integers(0, 8, 20)), (iid(4), rng.integers(0, 4, 20))])
    first, second = family.summands()
    assert (first.latents, second.latents) == (slice(0, 8), slice(8, 12))
    for part in (first, second):
        W = family.design.toarray()[:, part.latents]
        before, after = (
            W @ np.linalg.inv(family.build(family.theta + t * part.size)[0].toarray())[part.latents, part.latents] @ W.T
            for t in (0.0, 1.0)
        )
        np.testing.assert_allclose(after, np.exp(2.0) * before, rtol=1e-8)
    assert first.shapes == (1,)
    assert second.shapes == ()


def test_families_that_say_nothing_start_where_they_stand() -> None:
    x = np.linspace(0.0, 5.0, 20)
    assert not starting_points(Evidence(Poisson(), KernelCovariance(RBF(1.0), x[:, None]), np.round(3.0 + x)), 5.0)


def test_corrected_evidence_of_gaussian_noise_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    g = rng.integers(0, 8, 60)
    data = pd.DataFrame({"y": rng.normal(size=8)[g] + rng.normal(size=60), "g": g.astype(str)})
    fits = []
    fit_at = Evidence.fit
    monkeypatch.setattr(Evidence, "fit", lambda self, theta: fits.append(theta) or fit_at(self, theta))
    model = fenchel.Model("y ~ (1|g)", data)
    plain = model.fit()
    n_plain, _ = len(fits), fits.clear()
    corrected = model.fit(evidence="corrected")
    assert len(fits) == n_plain
    assert corrected.found.objective == plain.found.objective
    assert corrected.found.maximises == "corrected"


@reads_repository
@pytest.mark.parametrize(("number", "rise"), [(66, 8.0), (226, 0.5)])
def test_one_range_may_be_short_where_the_other_is_long(
    number: int, rise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    case = importlib.import_module("starts").case(number)
    alone = single(case.build())  # a fit settles the neighbours of its model
    assert case.build().fit().found.objective > alone + rise
