"""Priors of independent parts: factors of each, scaled where only the size changed, against the whole and dense."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse as sp

import fenchel
from fenchel import gates
from fenchel.linalg.machine import counting
from fenchel.priors import sparsity


def table() -> tuple[pd.DataFrame, sp.csr_array]:
    line = sp.diags_array([np.ones(4), np.ones(4)], offsets=[-1, 1])
    graph = sp.csr_array(sp.kron(line, sp.eye_array(5)) + sp.kron(sp.eye_array(5), line))
    data = pd.DataFrame({"r": np.repeat(np.arange(25), 9), "t": np.tile(np.arange(9), 25)})
    data["y"] = np.random.default_rng(0).poisson(3.0, len(data))
    return data, graph


MODELS = {
    "space-time": "y ~ bym2(r) + rw1(t) + interact(icar(r), rw1(t))",
    "proper": "y ~ ar1(t) + (1 | r)",
    "one of each": "y ~ icar(r) + (1 | t)",
}


@pytest.mark.parametrize("large", [1, 30, 10**6])
@pytest.mark.parametrize("name", MODELS)
def test_parts_answer_as_the_whole_does(monkeypatch, name, large):
    data, graph = table()
    graphs = {"r": graph} if "icar" in MODELS[name] or "bym2" in MODELS[name] else None
    family = fenchel.Model(MODELS[name], data, "poisson", graphs=graphs).sum.family()
    rng = np.random.default_rng(1)
    thetas = [family.theta, family.theta + 0.7, family.theta + rng.normal(size=family.theta.size)]
    found = []
    for dear in (np.inf, 0.0):
        monkeypatch.setattr(gates, "PARTS_APART", dear)
        monkeypatch.setattr(gates, "PART_LATENTS", large)
        family._made = None
        found.append([family.at(theta).pattern for theta in thetas])
    for whole, parts in zip(*found, strict=True):
        v, b, s = np.random.default_rng(2).normal(size=whole.base.n), whole.base, parts.base
        assert s.log_det == pytest.approx(b.log_det, abs=1e-9)
        np.testing.assert_allclose(s.solve(v), b.solve(v), atol=1e-11 * np.abs(b.solve(v)).max())
        np.testing.assert_allclose(s.inverse_data(), b.inverse_data(), atol=1e-11 * np.abs(b.inverse_data()).max())
        np.testing.assert_allclose(s.inverse_diagonal(), b.inverse_diagonal(), rtol=1e-9, atol=1e-12)
        e = parts.rows.products @ np.random.default_rng(3).random(parts.rows.W.shape[0])
        np.testing.assert_allclose(s.sandwich(e), b.sandwich(e), atol=1e-10 * np.abs(b.sandwich(e)).max())
        assert s.log_det_rounding < 1e-9


def test_draws_have_the_covariance_under_the_constraints(monkeypatch):
    monkeypatch.setattr(gates, "PARTS_APART", 0.0)
    monkeypatch.setattr(gates, "PART_LATENTS", 30)
    data, graph = table()
    family = fenchel.Model(MODELS["space-time"], data, "poisson", graphs={"r": graph}).sum.family()
    family.at(family.theta)
    prior = family.at(family.theta + 0.4)
    base, Q, C = prior.pattern.base, prior.precision.toarray(), sp.csr_array(family.constraints).toarray()
    assert isinstance(base, sparsity.Separate)
    N = scipy.linalg.null_space(C)
    exact = N @ np.linalg.inv(N.T @ Q @ N) @ N.T
    np.testing.assert_allclose(base.solve(np.eye(len(Q))), exact, atol=1e-9 * np.abs(exact).max())
    root = base.sample(np.eye(len(Q)))
    np.testing.assert_allclose(root @ root.T, exact, atol=1e-9 * np.abs(exact).max())


def test_a_part_that_changes_its_size_is_factorised_once(monkeypatch):
    monkeypatch.setattr(gates, "PARTS_APART", 0.0)
    monkeypatch.setattr(gates, "PART_LATENTS", 30)
    data, graph = table()
    family = fenchel.Model(MODELS["space-time"], data, "poisson", graphs={"r": graph}).sum.family()
    first = family.at(family.theta)
    assert isinstance(first.pattern.base, sparsity.Separate)
    sizes = np.array([1.0, 0.0, 1.0, 1.0])  # all but the mixture of bym2
    with counting() as done:
        scaled = family.at(family.theta + 0.3 * sizes)
    assert done.factorisations <= 1  # of the small parts together, among them bym2's, whose blocks scale apart
    with counting() as done:
        family.at(family.theta + 1.0)
    assert done.factorisations <= 1
    copy = pickle.loads(pickle.dumps(scaled.pattern))
    assert all(part.known is None for part in copy.parts.parts)
    v = np.random.default_rng(4).normal(size=scaled.pattern.base.n)
    np.testing.assert_allclose(copy.base.solve(v), scaled.pattern.base.solve(v), rtol=1e-9, atol=1e-12)
