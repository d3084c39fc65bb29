"""Newton's steps of theta: the average information against dense matrices, its top in a box, and whole searches."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import fenchel
from fenchel import gates, gmrf
from fenchel.hyperparameters import evidence, learn
from fenchel.hyperparameters.search import Step, TrustRegion, maximum_in_box
from fenchel.likelihoods import Gaussian


def lattice(rows: int, columns: int) -> sp.csr_array:
    line, other = (sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]) for n in (rows, columns))
    return sp.csr_array(sp.kron(line, sp.eye_array(columns)) + sp.kron(sp.eye_array(rows), other))


@pytest.mark.parametrize("field", [lambda: gmrf.ar1(30, phi=0.6, variance=0.7), lambda: gmrf.bym2(lattice(5, 6))])
def test_the_average_information_is_that_of_dense_matrices(field):
    rng = np.random.default_rng(0)
    family = gmrf.stack([(field(), rng.integers(0, 30, 80))])
    y, theta, noise = rng.normal(size=80), family.theta, 0.4
    solution = fenchel.infer(Gaussian(noise), family.at(theta), y, tol=1e-12)
    found, squares = solution.posterior.adjoint().precision_curvature(family.build(theta)[1])

    def covariance(at: np.ndarray) -> np.ndarray:
        prior = family.at(at)
        W = prior.design.csr().toarray()
        return W @ prior.factor.solve(W.T)

    step = 1e-5
    slopes = [(covariance(theta + e) - covariance(theta - e)) / (2 * step) for e in step * np.eye(theta.size)]
    P = np.linalg.inv(covariance(theta) + noise * np.eye(80))
    images = [dK @ P @ y for dK in slopes]
    expected = [[0.5 * a @ P @ b for b in images] for a in images]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(squares, [-0.5 * (P @ y) @ dK @ (P @ y) for dK in slopes], rtol=1e-5, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_top_within_a_box_is_the_best_of_it(n, seed, scale):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n + 2, n)) * 10.0 ** rng.uniform(-2, 2, n)
    H, g = A.T @ A, scale * rng.normal(size=n)
    low, high = -rng.random(n), rng.random(n)
    low[rng.random(n) < 0.2] = 0.0

    def fall(p: np.ndarray) -> float:
        return float(0.5 * p @ H @ p - g @ p)

    found = maximum_in_box(H, g, low, high)
    assert (found >= low - 1e-12).all()
    assert (found <= high + 1e-12).all()
    other = minimize(fall, np.zeros(n), jac=lambda p: H @ p - g, bounds=list(zip(low, high, strict=True)))
    assert fall(found) <= other.fun + 1e-9 * (1.0 + abs(other.fun))
    slope = g - H @ found
    assert np.abs(np.clip(found + slope, low, high) - found).max() <= 1e-6 * (1.0 + np.abs(g).max())


def test_steps_update_the_curvature():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(6, 3))
    truth, model, theta = A.T @ A + np.eye(3), TrustRegion(np.tile([-9.0, 9.0], (3, 1))), np.full(3, 1.5)
    wrong = np.diag(np.diag(truth)) * [0.7, 1.5, 0.8]
    for _ in range(12):
        there = model.propose(theta, -truth @ theta, wrong)
        rise = 0.5 * theta @ truth @ theta - 0.5 * there @ truth @ there
        model.update(Step(there - theta, truth @ (there - theta), wrong), float(rise))
        theta = there if rise > 0.0 else theta
    assert np.abs(theta).max() < 1e-6
    last = model.steps[-1]
    np.testing.assert_allclose(model.updated_curvature(wrong) @ last.step, last.gradient_fall, rtol=1e-6)
    assert (np.linalg.eigvalsh(model.updated_curvature(wrong)) > 0.0).all()


@pytest.mark.parametrize("times", [1.0, 300.0])
def test_a_curvature_that_is_far_too_large_costs_few_steps(times):
    truth, theta = np.diag([400.0, 10.0]), np.array([0.1, 0.3])
    model, wrong, taken = TrustRegion(np.tile([-9.0, 9.0], (2, 1))), truth * [1.0, times], 0
    while np.abs(truth @ theta).max() > 1e-3 and taken < 100:
        there = model.propose(theta, -truth @ theta, wrong)
        rise = 0.5 * theta @ truth @ theta - 0.5 * there @ truth @ there
        model.update(Step(there - theta, truth @ (there - theta), wrong), float(rise))
        theta, taken = there if rise > 0.0 else theta, taken + 1
    assert taken <= 8  # without more trust some 250 at 300 times, each a few hundredths of the way


def test_a_failed_step_shrinks_the_radius():
    model = TrustRegion(np.tile([-9.0, 9.0], (2, 1)))
    there = model.propose(np.zeros(2), np.array([1.0, 0.0]), 1e-3 * np.eye(2))
    assert there[0] == pytest.approx(2.0)
    model.update(Step(there, np.array([5.0, 0.0]), 1e-3 * np.eye(2)), -3.0)
    assert model.radius == pytest.approx(0.5)
    model.propose(np.zeros(2), np.array([1.0, 0.0]), 1e-3 * np.eye(2))
    assert model.remaining_rise > model.promised_rise  # a short radius is no sign of having arrived
    assert np.linalg.eigvalsh(model.updated_curvature(1e-3 * np.eye(2))).min() > 0.0


def crossed(family: str, seed: int = 0, sizes: tuple[float, float] = (0.8, 0.4)) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    n = 1500
    data = pd.DataFrame({"a": rng.integers(0, 60, n), "b": rng.integers(0, 25, n), "x": rng.normal(size=n)})
    eta = 0.2 + 0.4 * data.x + sizes[0] * rng.normal(size=60)[data.a] + sizes[1] * rng.normal(size=25)[data.b]
    data["y"] = {
        "gaussian": lambda: eta + 0.7 * rng.normal(size=n),
        "bernoulli": lambda: (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative_binomial": lambda: rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n)),
    }[family]()
    return data


@pytest.mark.parametrize("sizes", [(0.8, 0.4), (0.0, 0.4), (20.0, 0.3)])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "negative_binomial"])
def test_a_search_ends_where_one_by_slopes_alone_does(monkeypatch, family, sizes):
    if family != "gaussian" and sizes[0] > 1.0:
        sizes = (3.0, 0.3)
    data, found = crossed(family, sizes=sizes), []
    for many in (1, 10**9):
        monkeypatch.setattr(gates, "MANY_ROWS", many)
        found.append(fenchel.fit("y ~ x + (1 | a) + (1 | b)", data, family).found)
    newton, slopes = found
    assert newton.converged
    assert newton.objective >= slopes.objective - 1e-5
    assert newton.n_evaluations <= slopes.n_evaluations + 4


def test_a_random_walk_takes_a_handful_of_evaluations(monkeypatch):
    monkeypatch.setattr(gates, "MANY_ROWS", 1)
    rng = np.random.default_rng(3)
    walk = np.cumsum(0.2 * rng.normal(size=400))
    found = learn(fenchel.Poisson(), gmrf.stack([(gmrf.rw1(400), np.arange(400))]), rng.poisson(np.exp(1 + walk)))
    assert found.converged
    assert found.n_evaluations <= 8


def test_thresholds_that_move_together_take_fewer_evaluations(monkeypatch):
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"g": rng.integers(0, 100, 1200), "x": rng.normal(size=1200)})
    data["y"] = np.digitize(1.0 + 0.4 * data.x + rng.normal(size=100)[data.g] + rng.logistic(size=1200), [-2, 0, 1, 3])
    found = []
    for many in (1, 10**9):
        monkeypatch.setattr(gates, "MANY_ROWS", many)
        found.append(fenchel.fit("y ~ x + (1 | g)", data, "ordinal").found)
    assert found[0].converged
    assert found[0].objective >= found[1].objective - 1e-5
    assert found[0].n_evaluations <= found[1].n_evaluations


def test_several_stationary_points_are_left_to_short_steps():
    rng = np.random.default_rng(3)
    likelihood = fenchel.ZeroInflated(fenchel.Poisson())
    y = rng.poisson(2.0, 1200) * (rng.random(1200) > 0.3)
    objective = evidence.Evidence(likelihood, gmrf.stack([(gmrf.iid(30), rng.integers(0, 30, 1200))]), y)
    _, gradient = objective(objective.start)
    assert objective.curvature(objective.start, gradient) is None
