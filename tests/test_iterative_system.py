"""Conjugate gradients, Lanczos quadratures and the system without a factor, against dense matrices."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fenchel import gmrf
from fenchel.checks import Refusal
from fenchel.gmrf import MarkovField
from fenchel.gmrf.precisions import RepeatedCovariance
from fenchel.iterative import certificate
from fenchel.iterative import layout as layouts
from fenchel.iterative.certificate import log_det_limits
from fenchel.iterative.layout import LatentLayout, RowSet
from fenchel.iterative.system import System
from fenchel.linalg.krylov import log_det_bounds, solve_columns, tridiagonals


def spd(rng, n, spread):
    U = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return (U * np.exp(rng.uniform(-spread, spread, n))) @ U.T


# -- Krylov ---------------------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 40), spread=st.floats(0.0, 3.0))
def test_conjugate_gradients_solve_and_quadratures_bracket(seed, n, spread):
    rng = np.random.default_rng(seed)
    C, M = spd(rng, n, spread), spd(rng, n, 1.0)
    L = np.linalg.cholesky(M)
    z = rng.normal(size=(n, 3))
    found = solve_columns(lambda x: C @ x, lambda r: np.linalg.solve(M, r), L @ z, 1e-13, 4 * n)
    np.testing.assert_allclose(C @ found.x, L @ z, atol=1e-8 * np.abs(L @ z).max())
    K = np.linalg.solve(L, np.linalg.solve(L, C).T)
    t, U = np.linalg.eigh((K + K.T) / 2)
    exact = ((U.T @ z) ** 2 * np.log(t)[:, None]).sum(axis=0)
    few = solve_columns(lambda x: C @ x, lambda r: np.linalg.solve(M, r), L @ z, 0.0, max(1, n // 4))
    slack = 1e-9 * (1.0 + np.abs(exact))
    for T, value, probe in zip(tridiagonals(few), exact, z.T, strict=True):
        assert T.size == pytest.approx(probe @ probe)
        assert T.radau(np.log, 0.99 * t.min()) - slack.max() <= value <= T.gauss(np.log) + slack.max()
    np.testing.assert_allclose([T.gauss(np.log) for T in tridiagonals(found)], exact, rtol=1e-5, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 30), spread=st.floats(0.0, 3.0), shy=st.floats(0.1, 1.0))
def test_log_determinants_lie_within_their_moments_bounds(seed, n, spread, shy):
    C = spd(np.random.default_rng(seed), n, spread)
    scale = np.sqrt(np.diag(C))
    K = C / np.outer(scale, scale)
    low, high = log_det_bounds(n, float((K**2).sum()) * (2.0 - shy), shy * float(np.linalg.eigvalsh(K).min()))
    assert low - 1e-9 * n <= np.linalg.slogdet(K)[1] <= high + 1e-9 * n


def test_a_start_is_gone_on_from():
    rng = np.random.default_rng(0)
    C = spd(rng, 20, 2.0)
    b = rng.normal(size=(20, 2))
    first = solve_columns(lambda x: C @ x, lambda r: r, b, 1e-3, 100)
    on = solve_columns(lambda x: C @ x, lambda r: r, b, 1e-10, 100, first.x)
    np.testing.assert_allclose(on.x, np.linalg.solve(C, b), rtol=1e-6)
    assert on.iterations <= solve_columns(lambda x: C @ x, lambda r: r, b, 1e-10, 100).iterations


# -- the system -----------------------------------------------------------------------------------------------
def slopes(n, d, theta=None):
    made = RepeatedCovariance(n, d)
    theta = np.zeros(d + d * (d - 1) // 2) if theta is None else np.asarray(theta)
    return MarkovField(made, theta, [f"t{i}" for i in range(theta.size)])


def slopes_design(index, x, n):
    N = index.size
    columns = np.stack([2 * index, 2 * index + 1], axis=1).ravel()
    data = np.stack([np.ones(N), x], axis=1).ravel()
    return sp.csr_array((data, columns, np.arange(0, 2 * N + 1, 2)), shape=(N, 2 * n))


def families(rng, N=60):
    """Crossed intercepts; slopes eliminated and in the middle; three terms; several groups a row; no large term."""
    a, b, c = rng.integers(0, 14, N), rng.integers(0, 11, N), rng.integers(0, 9, N)
    x, X = rng.normal(size=N), rng.normal(size=(N, 2))
    ab, wa, wb = rng.normal(size=3), slopes_design(a, x, 14), slopes_design(b, x, 11)
    members = sp.csr_array(
        (
            np.full(2 * N, 0.5),
            np.stack([b, (b + 1 + rng.integers(0, 9, N)) % 11], axis=1).ravel(),
            2 * np.arange(N + 1),
        ),
        shape=(N, 11),
    )
    members.sum_duplicates()
    tiny = rng.integers(0, 3, N)
    return {
        "crossed": gmrf.stack([(gmrf.iid(14), a), (gmrf.iid(11, precision=3.0), b)], X),
        "slopes first": gmrf.stack([(slopes(14, 2, ab), wa), (gmrf.iid(11), b)], X),
        "slopes in the middle": gmrf.stack([(gmrf.iid(30), rng.integers(0, 30, N)), (slopes(11, 2, ab), wb)], X),
        "three": gmrf.stack([(gmrf.iid(14), a), (gmrf.iid(11), b), (slopes(9, 2, ab), slopes_design(c, x, 9))], X),
        "members": gmrf.stack([(gmrf.iid(14), a), (gmrf.iid(11), members)], X),
        "members alone": gmrf.stack([(gmrf.iid(11), members)], X),
        "small beside": gmrf.stack([(gmrf.iid(14), a), (gmrf.iid(3), tiny), (gmrf.iid(11), b)], X),
        "one": gmrf.stack([(gmrf.iid(14), a)], X),
        "fixed alone": gmrf.stack([], X),
    }


NAMES = list(families(np.random.default_rng(0)))


@pytest.fixture(autouse=True)
def few_are_large(monkeypatch):
    monkeypatch.setattr(layouts, "SMALL", 5)


def system(name, seed=0):
    rng = np.random.default_rng(seed)
    family = families(rng)[name]
    layout = LatentLayout(family, [str(i) for i in range(len(family.parts))])
    rows, lam = RowSet(layout, layout.A), rng.gamma(1.0, size=layout.A.shape[0])
    lam[:3] = 0.0
    Q, _ = layout.prior(family.theta)
    made = System(rows, Q, lam)
    A = layout.A.toarray()[:, layout.order]
    prior = family.build(family.theta)[0].toarray()[np.ix_(layout.order, layout.order)]
    return made, A, prior, prior + (A.T * lam) @ A


@pytest.mark.parametrize("name", NAMES)
def test_products_and_solves_are_those_of_dense_matrices(name):
    made, A, Q, P = system(name)
    x = np.random.default_rng(1).normal(size=(P.shape[0], 3))
    np.testing.assert_allclose(made.times(x), P @ x, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(made.prior_times(x), Q @ x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(made.prior_solve(x), np.linalg.solve(Q, x), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(made.rows.times(x), A @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(made.solve(x, 1e-13)[0], np.linalg.solve(P, x), rtol=1e-7, atol=1e-9)
    assert made.log_det_prior == pytest.approx(np.linalg.slogdet(Q)[1], rel=1e-12)


def blocked(made, P):
    """P~: the middle's Schur complement by its blocks, the border's as it is; and the complement with its blocks."""
    n1, nm = made.n1, made.nm
    one, two = slice(0, n1), slice(n1, n1 + nm)
    C = P[two, two] - P[two, one] @ np.linalg.solve(P[one, one], P[one, two])
    M, at = np.zeros_like(C), 0
    for part in made.rows.layout.middle:
        for _ in range(part.blocks):
            M[at : at + part.d, at : at + part.d] = C[at : at + part.d, at : at + part.d]
            at += part.d
    V = np.linalg.inv(P)
    lift = np.vstack([-np.linalg.solve(P[one, one], P[one, two]), np.eye(nm), np.zeros((made.p, nm))])
    return np.linalg.inv(V + lift @ (np.linalg.inv(M) - np.linalg.inv(C)) @ lift.T), C, M


@pytest.mark.parametrize("name", NAMES)
def test_the_blocked_gaussian_is_exact(name):
    made, A, _, P = system(name)
    tilde, C, M = blocked(made, P)
    x = np.random.default_rng(1).normal(size=(C.shape[0], 2))
    np.testing.assert_allclose(made.schur(x), C @ x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made.precondition(x), np.linalg.solve(M, x), rtol=1e-9, atol=1e-9)
    assert made.log_det_blocked == pytest.approx(np.linalg.slogdet(tilde)[1], rel=1e-10)
    V = np.linalg.inv(tilde)
    np.testing.assert_allclose(made.blocked_variance, np.einsum("nl,lk,nk->n", A, V, A), rtol=1e-7)
    assert np.trace(P @ V) == pytest.approx(P.shape[0])  # what its elbo rests on
    at = 0
    for blocks in made.latent_blocks:
        for block in blocks[None] if blocks.ndim == 2 else blocks:
            d = block.shape[0]
            np.testing.assert_allclose(block, V[at : at + d, at : at + d], rtol=1e-7, atol=1e-10)
            at += d


@pytest.mark.parametrize("name", NAMES)
def test_log_determinants_lie_within_their_limits(name, monkeypatch):
    made, _, _, P = system(name)
    low, high = log_det_limits(made)
    assert low <= np.linalg.slogdet(P)[1] + 1e-9
    assert high >= np.linalg.slogdet(P)[1] - 1e-9
    monkeypatch.setattr(certificate, "_LONGEST", 0.0)
    coarse, _ = log_det_limits(made)
    assert coarse <= np.linalg.slogdet(P)[1] + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_probes_average_to_the_truth(name):
    """All sign vectors would average to it exactly; many come within their standard error."""
    made, A, _, P = system(name)
    z = np.random.default_rng(2).choice([-1.0, 1.0], size=(made.nm, 4000))
    found = made.probe(z, 1e-10)
    exact = np.linalg.slogdet(P)[1] - made.log_det_blocked
    assert abs(found.mean(found.log_ratio) - exact) <= 5.0 * found.se(found.log_ratio) + 1e-8
    assert (found.low <= found.log_ratio + 1e-8).all()
    rho = made.row_variance(found)
    truth = np.einsum("nl,lk,nk->n", A, np.linalg.inv(P), A)
    assert np.abs(rho / truth - 1.0).max() < 0.1


def test_terms_that_cannot_be_worked_on_are_named():
    rng = np.random.default_rng(0)
    index = rng.integers(0, 50, 200)
    with pytest.raises(Refusal, match=r"the term walk is not supported: it has constraints"):
        LatentLayout(gmrf.stack([(gmrf.rw1(50), index)]), ["walk"])
    with pytest.raises(Refusal, match=r"the term chain is not supported: its precision has no blocks"):
        LatentLayout(gmrf.stack([(gmrf.ar1(50), index)]), ["chain"])
