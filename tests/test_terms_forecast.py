"""Series beyond their times: as if the times to come had been levels without data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.inputs.levels import step_of
from fenchel.likelihoods import Gaussian
from fenchel.terms import (
    AR,
    AR1,
    ICAR,
    IID,
    RW1,
    RW2,
    Covariate,
    DataTable,
    IntegratedWiener,
    Interaction,
    OrnsteinUhlenbeck,
    Replicated,
    Seasonal,
    SumOfTerms,
    Wiener,
)
from fenchel.terms.forecast import beyond, extension

N, AHEAD = 20, 7
RNG = np.random.default_rng(0)


def _fitted(term, table, y, theta, *more):
    """The posterior of an intercept and a term, both with next to flat fixed effects; noise variance 0.3."""
    model = SumOfTerms([*more, term], DataTable("here", table), fixed_variance=1e7)
    prior = model.family().at(theta, offset=0.0)
    return model, fenchel.infer(Gaussian(0.3), prior, y, tol=1e-13).posterior


def _moments(model, posterior, theta, new):
    """Mean and covariance of eta at new rows, whatever they have beyond the latents included."""
    made = model.new_table(theta, DataTable("here", new), ahead=True)
    D, n = made.rows.design, len(next(iter(new.values())))
    mean = posterior.predict(design=D)[0]
    pairs = [(i, j) for i in range(n) for j in range(n)]
    C = np.zeros((n, n))
    for i, j in pairs:
        both = posterior.predict(design=(D[[i]] + D[[j]]))[1][0]
        C[i, j] = (both - posterior.predict(design=(D[[i]] - D[[j]]))[1][0]) / 4
    for _, part in made.unseen:
        shared = (part.of[:, None] == part.of[None, :]) & (part.of >= 0)[:, None]
        S = np.diag(part.covariance) if part.covariance.ndim == 1 else part.covariance
        C += np.where(shared, part.weights @ S @ part.weights.T, 0.0)
    np.testing.assert_allclose(
        np.diag(C), posterior.predict(design=D, extra_variance=made.rows.extra_variance)[1], rtol=1e-9
    )
    return mean, C


STEPS = {
    "rw1": (lambda **o: RW1("t", **o), [-0.5]),
    "rw2": (lambda **o: RW2("t", **o), [-1.0]),
    "rw2 without a slope": (lambda **o: RW2("t", trend=False, **o), [-1.0]),
    "ar1": (lambda **o: AR1("t", **o), [0.1, 1.5]),
    "ar 3": (lambda **o: AR("t", 3, **o), [0.1, 1.5, -0.4, 0.3]),
    "seasonal": (lambda **o: Seasonal("t", 4, **o), [-0.5]),
}


@pytest.mark.parametrize("name", [name for name in STEPS if name != "rw2 without a slope"])
@pytest.mark.parametrize("side", ["ahead", "back"])
def test_steps_beyond_are_levels_without_data(name, side):
    make, theta = STEPS[name]
    t, later = np.arange(N), (N + np.arange(AHEAD) if side == "ahead" else -1 - np.arange(AHEAD))
    y, table, theta = np.cumsum(RNG.normal(size=N)), {"t": t}, np.array(theta)
    new = {"t": np.r_[later, 3]}
    found = _moments(*_fitted(make(), table, y, theta), theta, new)
    levels = range(N + AHEAD) if side == "ahead" else range(-AHEAD, N)
    want = _moments(*_fitted(make(levels=levels), table, y, theta), theta, new)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[1], want[1], rtol=1e-5, atol=1e-5)
    grows = np.diff(np.diag(found[1])[: AHEAD if name != "seasonal" else 2])
    assert (grows > 0.0).all()


def test_a_walk_without_its_slope_goes_on_from_its_last_two_states():
    make, theta = STEPS["rw2 without a slope"]
    model, posterior = _fitted(make(), {"t": np.arange(N)}, np.cumsum(RNG.normal(size=N)), np.array(theta))
    mean, C = _moments(model, posterior, np.array(theta), {"t": [N - 2, N - 1, N, N + 1]})
    assert mean[2] == pytest.approx(2 * mean[1] - mean[0])
    assert mean[3] == pytest.approx(3 * mean[1] - 2 * mean[0])
    last = np.array([[-1.0, 2.0], [-2.0, 3.0]])
    k = np.exp(2 * theta[0])
    np.testing.assert_allclose(C[2:, 2:], last @ C[:2, :2] @ last.T + k * np.array([[1.0, 2.0], [2.0, 5.0]]), rtol=1e-6)


@pytest.mark.parametrize("kind", [OrnsteinUhlenbeck, Wiener, IntegratedWiener])
def test_times_between_and_beyond_hang_together(kind):
    t = np.sort(RNG.uniform(0.0, 10.0, 12))
    y, later = np.sin(t), np.array([t[-1] + 1.0, t[-1] + 2.5, t[3] + 0.2 * (t[4] - t[3]), t[3] + 0.7 * (t[4] - t[3])])
    new = {"t": np.r_[later, t[0] - 0.5, t[5]]}
    theta = np.array([0.3, 1.2])[: 2 if kind is OrnsteinUhlenbeck else 1]
    model, posterior = _fitted(kind("t"), {"t": t}, y, theta)
    mean, C = _moments(model, posterior, theta, new)
    other = theta.copy()
    everything = kind("t", levels=np.sort(np.unique(np.r_[t, new["t"]])))
    if kind is not OrnsteinUhlenbeck:  # its sd is the typical one over the levels
        long, short = (term.read(DataTable("here", {"t": t}), 1.0) for term in (everything, kind("t")))
        power = 1 if kind is Wiener else 3
        other[0] += np.log(long.unit / short.unit * (long.step / short.step) ** power) / 2
    want = _moments(*_fitted(everything, {"t": t}, y, other), other, new)
    np.testing.assert_allclose(mean, want[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(C, want[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["rw1", "ar1", "seasonal"])
def test_replicates_go_on_in_every_group_and_in_new_ones(kind):
    make, theta = STEPS[kind]
    theta = np.r_[np.log(0.7), theta[1:]]
    table = {"g": np.repeat(["a", "b", "c"], N), "t": np.tile(np.arange(N), 3)}
    y = np.where(table["g"] == "c", np.nan, np.cumsum(RNG.normal(size=3 * N)))
    new = {"g": ["a", "a", "b", "c", "c"], "t": [N, N + 3, N + 3, 2, N + 1]}
    seen, levels = {key: column[: 2 * N] for key, column in table.items()}, []
    if kind == "rw1":  # is held to sum to zero over its levels in every group, whose own level is another's
        table, y, levels, new = seen, y[: 2 * N], [Covariate("g")], {key: column[:3] for key, column in new.items()}
    short, posterior = _fitted(Replicated(make(), "g"), seen, y[: 2 * N], theta, *levels)
    found = _moments(short, posterior, theta, new)
    other = theta.copy()
    long = Replicated(make(levels=range(N + AHEAD)), "g")
    other[0] += np.log(long.read(DataTable("here", table), 1.0).second.spread / short.terms[-1].second.spread) / 2
    want = _moments(*_fitted(long, table, y, other, *levels), other, new)
    several = 5 if kind == "ar1" else 3  # what repeats exactly in a new group is not known
    np.testing.assert_allclose(found[0][:several], want[0][:several], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1][:several, :several], want[1][:several, :several], rtol=1e-4, atol=1e-5)
    assert np.diag(found[1])[1] > np.diag(found[1])[0]


def test_a_map_goes_on_in_time():
    ring = np.roll(np.eye(6), 1, axis=0) + np.roll(np.eye(6), -1, axis=0)
    table = {"r": np.repeat(np.arange(6), N), "t": np.tile(np.arange(N), 6)}
    y = RNG.normal(size=6 * N)
    for space in (IID("r"), ICAR("r", ring)):
        short, theta = Interaction(space, AR1("t")), np.array([0.1, 1.0])
        new = {"r": [0, 1, 1, 3], "t": [N, N, N + 2, 5]}
        found = _moments(*_fitted(short, table, y, theta), theta, new)
        want = _moments(*_fitted(Interaction(space, AR1("t", levels=range(N + 4))), table, y, theta), theta, new)
        np.testing.assert_allclose(found[0], want[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], want[1], rtol=1e-4, atol=1e-6)


def test_extensions_by_hand():
    A, psi = extension(np.array([2.0, -1.0]), 3)
    np.testing.assert_array_equal(A, [[2, -1], [3, -2], [4, -3]])
    np.testing.assert_array_equal(psi, [1, 2, 3])
    A, psi = extension(np.array([0.5]), 2)
    np.testing.assert_array_equal(A[:, 0], [0.5, 0.25])
    W, noise = beyond(np.array([1, 4, -1]), 3, np.array([1.0]), np.array([1.0, 2.0, 1.0]))
    np.testing.assert_array_equal(W.toarray(), [[0, 1, 0], [0, 0, 2], [1, 0, 0]])
    np.testing.assert_array_equal(noise, [[0, 0, 0], [2, 2, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("levels", "value", "step"),
    [
        ([1990, 1991, 1992], 1995, 5),
        ([0.5, 1.0, 1.5], 3.0, 5),
        ([0.5, 1.0, 1.5], 3.1, None),
        ([1, 2, 5], 8, None),
        (list(pd.date_range("2020-01-01", periods=4, freq="D")), pd.Timestamp("2020-01-08"), 7),
        (list(pd.date_range("2020-01-31", periods=4, freq="ME")), pd.Timestamp("2020-08-31"), 7),
        (list(pd.date_range("2020-01-15", periods=9, freq="D")[::4]), pd.Timestamp("2020-01-16"), None),
        ([pd.Timestamp(2020, m, 15) for m in (1, 2, 3)], pd.Timestamp(2019, 12, 15), -1),
        (list(pd.bdate_range("2020-01-06", periods=8)), pd.Timestamp("2020-01-17"), 9),
        (list(pd.period_range("2020-01", periods=3, freq="M")), pd.Period("2020-06", "M"), 5),
        (list(pd.period_range("2020-01", periods=3, freq="M")), pd.Period("2020-06-01", "D"), None),
        (["a", "b"], "c", None),
        ([1, 2, 3], "4", None),
    ],
)
def test_steps_of_numbers_dates_and_periods(levels, value, step):
    assert step_of(levels, value) == step
