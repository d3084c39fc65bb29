"""Fits with a factor that begin where one without ended: the same answers, in fewer evaluations."""

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel import gates
from fenchel.inference import solver_for
from fenchel.iterative.probed_evidence import BegunNear, near
from fenchel.models import engines
from fenchel.models.model import Model

FORMULA = "y ~ x + (1|g) + (1|h)"


def table(family, rows=3000, first=60, second=50, seed=0):
    rng = np.random.default_rng(seed)
    g, h, x = rng.integers(0, first, rows), rng.integers(0, second, rows), rng.normal(size=rows)
    eta = 0.2 + 0.4 * x + 0.6 * rng.normal(size=first)[g] + 0.8 * rng.normal(size=second)[h]
    y = {
        "gaussian": lambda: eta + rng.normal(size=rows),
        "poisson": lambda: rng.poisson(np.exp(np.clip(eta, -5, 5))),
        "bernoulli": lambda: rng.random(rows) < 1 / (1 + np.exp(-eta)),
    }[family]()
    return pd.DataFrame({"y": np.asarray(y, dtype=float), "x": x, "g": g, "h": h, "t": np.arange(rows) % 40})


@pytest.fixture
def dear(monkeypatch):
    """Every factorisation counts as a dear one."""
    monkeypatch.setattr(gates, "DEAR_FACTOR", 0.0)
    monkeypatch.setattr(engines, "_DEAR_ROW", 0.0)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
def test_the_answer_is_that_of_the_usual_start(family, dear, monkeypatch):
    data = table(family)
    data.loc[::7, "y"] = np.nan  # unobserved rows have no start of their own
    asked = []
    monkeypatch.setattr(engines, "near", lambda *args, **options: asked.append(near(*args, **options)) or asked[-1])
    begun = fenchel.fit(FORMULA, data, family, engine="direct")
    monkeypatch.setattr(gates, "DEAR_FACTOR", np.inf)
    usual = fenchel.fit(FORMULA, data, family, engine="direct")
    assert len(asked) == 1
    assert asked[0] is not None
    assert begun.converged
    assert begun.gap <= 1e-10 * max(1.0, abs(begun.elbo))  # a number, as ever
    assert begun.found.n_evaluations < usual.found.n_evaluations
    assert begun.found.n_factorisations < usual.found.n_factorisations
    assert begun.solution.method == usual.solution.method
    assert begun.found.objective == pytest.approx(usual.found.objective, abs=1e-6)
    np.testing.assert_allclose(begun.coefficients["mean"], usual.coefficients["mean"], atol=1e-5)
    sds = np.sqrt(np.diag(usual.theta_covariance))
    assert (np.abs(begun.theta - usual.theta) / sds).max() < 1e-3  # what a slope of gtol leaves
    assert (np.abs(asked[0].theta - usual.theta) / sds).max() < 0.2


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_the_first_fit_begins_next_to_its_end(family):
    model = Model(FORMULA, table(family), family)
    target, prior = model.target, model.sum.family()
    found = near(target.likelihood, prior, target.y)
    at = prior.at(found.theta)
    usual = fenchel.infer(target.likelihood, at, target.y, tol=1e-10)
    solver = BegunNear(solver_for(target.likelihood, "newton"), found)
    begun = fenchel.infer(target.likelihood, at, target.y, tol=1e-10, method=solver)
    assert begun.converged
    assert begun.n_iter < usual.n_iter
    assert begun.elbo == pytest.approx(usual.elbo, abs=1e-7)
    np.testing.assert_allclose(found.mean, usual.posterior.mean, atol=0.02)
    np.testing.assert_allclose(np.log(found.variance), np.log(usual.posterior.variance), atol=0.2)


def test_models_without_such_a_start_are_fitted_as_ever(dear, monkeypatch):
    asked = []
    monkeypatch.setattr(engines, "near", lambda *args, **options: asked.append(near(*args, **options)) or asked[-1])
    data = table("poisson", rows=600)
    assert fenchel.fit("y ~ x + rw1(t) + (1|g)", data, "poisson", engine="direct").converged
    assert asked == []  # a walk has constraints, and no place there
    data["g"] = np.random.default_rng(1).permutation(data["g"].to_numpy())  # an effect that is not there
    data["y"] = np.random.default_rng(2).poisson(1.0, len(data)).astype(float)
    fit = fenchel.fit(FORMULA, data, "poisson", engine="direct", priors=None)
    assert fit.converged
    assert len(asked) == 1


def test_few_levels_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(engines, "_cost", lambda *_: pytest.fail("nothing is to be counted"))
    assert fenchel.fit(FORMULA, table("gaussian", rows=500), "gaussian").converged


def test_a_start_that_fails_is_none(dear, monkeypatch):
    from fenchel.iterative import probed_evidence

    def broken(*_):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(probed_evidence, "approach", broken)
    model = Model(FORMULA, table("poisson", rows=400), "poisson")
    assert near(model.target.likelihood, model.sum.family(), model.target.y) is None
    assert model.fit(engine="direct").converged
