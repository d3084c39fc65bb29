"""The contract of a term, for the terms of groups, memberships, smooths, times and interactions."""

import pickle

import numpy as np
import pytest
from conftest import difference

from fenchel import terms
from fenchel.terms import DataTable, SumOfTerms

N = 90
RNG = np.random.default_rng(8)
ROWS = {
    "g": np.repeat(np.arange(6), 15),
    "h": (np.repeat(np.arange(6), 15) + 1 + np.arange(N) % 2) % 6,
    "t": np.tile(2000 + np.arange(15), 6),
    "x": np.linspace(-3.0, 5.0, N),
    "z": RNG.uniform(0.0, 1.0, N),
    "f": np.array(["low", "high"])[np.arange(N) % 2],
}
TABLE = DataTable("here", ROWS)
RING = np.roll(np.eye(6), 1, axis=0) + np.roll(np.eye(6), -1, axis=0)
KIN = 0.5 ** np.abs(np.arange(6)[:, None] - np.arange(6)) * 4.0
MORE = {
    "Grouped": lambda: terms.Grouped("g", ["x", "f"]),
    "MultipleMembership": lambda: terms.MultipleMembership("g", "h"),
    "KnownCovariance": lambda: terms.KnownCovariance("g", KIN),
    "Smooth": lambda: terms.Smooth("x", k=8, by="f"),
    "Tensor": lambda: terms.Tensor("x", "z", k=(5, 4)),
    "TensorInteraction": lambda: terms.TensorInteraction("x", "z", k=(5, 4)),
    "GaussianProcess": lambda: terms.GaussianProcess("x", "z"),
    "Wiener": lambda: terms.Wiener("t"),
    "Matern": lambda: terms.Matern("x", "z", edge=1.0),
    "IntegratedWiener": lambda: terms.IntegratedWiener("t"),
    "OrnsteinUhlenbeck": lambda: terms.OrnsteinUhlenbeck("t"),
    "MaternSeries": lambda: terms.MaternSeries("t", nu=2.5),
    "VecchiaProcess": lambda: terms.VecchiaProcess("x", "z", neighbours=6),
    "AR": lambda: terms.AR("t", 3),
    "Interaction": lambda: terms.Interaction(terms.Leroux("g", RING), terms.RW1("t")),
    "Replicated": lambda: terms.Replicated(terms.RW2("t"), "g"),
}
every_term = pytest.mark.parametrize("name", MORE)


def start_of(term):
    return np.array([h.start for h in term.hyperparameters])


@every_term
def test_designs_of_old_rows_and_new(name):
    term = MORE[name]().read(TABLE, 1.0)
    rows = term.rows(TABLE)
    assert rows.design.shape == (N, term.n_latents)
    assert rows.fixed.shape == (N, len(term.fixed_names))
    some = DataTable("here", {key: column[5:9] for key, column in ROWS.items()})
    np.testing.assert_allclose(term.rows(some, new=True).design.toarray(), rows.design.toarray()[5:9], atol=1e-14)
    np.testing.assert_allclose(term.rows(some, new=True).fixed, rows.fixed[5:9], atol=1e-14)
    assert set(term.claims) <= set(term.columns) <= set(ROWS)


@every_term
def test_precisions_and_their_derivatives(name):
    term = MORE[name]().read(TABLE, 1.0)
    theta = start_of(term) + 0.1
    Q, slopes = term.precision(theta)
    assert Q.shape == (term.n_latents, term.n_latents)
    numeric = difference(lambda t: term.precision(t)[0].toarray(), theta, step=1e-5)
    for slope, other in zip(slopes, np.moveaxis(np.asarray(numeric), -1, 0), strict=True):
        np.testing.assert_allclose(slope.toarray(), other, atol=1e-6 * np.abs(Q.toarray()).max())
    first, here = (sorted(zip(*(q.tocoo()).coords, strict=True)) for q in (term.precision(start_of(term))[0], Q))
    assert first == here


@every_term
@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_hyperparameters_are_typed(name, scale):
    term = MORE[name]().read(TABLE, scale)
    for h in term.hyperparameters:
        assert h.bounds[0] < h.start < h.bounds[1]
        assert h.transform.forward(h.value(h.start)) == pytest.approx(h.start)
        assert np.isfinite(h.prior(h.start)).all()
    words = term.readable(start_of(term))
    assert all(isinstance(word, str) and np.isfinite(value) for word, value in words)
    variance = np.diag(term.rows(TABLE).design @ _covariance(term) @ term.rows(TABLE).design.T)
    assert 0.15 * scale < np.sqrt(variance.mean()) < 2.0 * scale  # half of the scale for each part of it, about


def _covariance(term):
    """Sigma under the constraints, by dense algebra."""
    Q = term.precision(start_of(term))[0].toarray()
    if term.constraints is None:
        return np.linalg.inv(Q)
    C = np.asarray(term.constraints)
    free = np.linalg.svd(C)[2][np.linalg.matrix_rank(C) :].T
    return free @ np.linalg.inv(free.T @ Q @ free) @ free.T


@every_term
def test_a_term_pickles_and_joins_a_sum(name):
    term = MORE[name]().read(TABLE, 1.0)
    again = pickle.loads(pickle.dumps(term))
    np.testing.assert_array_equal(again.rows(TABLE).design.toarray(), term.rows(TABLE).design.toarray())
    assert (again.precision(start_of(term))[0] != term.precision(start_of(term))[0]).nnz == 0
    assert [h.prior for h in again.hyperparameters] == [h.prior for h in term.hyperparameters]
    model = SumOfTerms([MORE[name]()], TABLE)
    family = model.family()
    assert family.at().n_rows == N
    new = model.new_rows(family.theta, TABLE)
    np.testing.assert_allclose(new.design.toarray(), family.design.toarray(), atol=1e-14)
    np.testing.assert_array_equal(new.extra_variance, 0.0)
    labels, design, codes = model.shown(model.effects[0].name)
    assert len(labels) == design.shape[0]
    assert codes is None or codes.size == len(labels)
