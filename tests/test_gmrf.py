"""Markov fields: precisions against their definitions, evidence against dense models, gradients against differences."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from conftest import difference
from hypothesis import given
from hypothesis import strategies as st

import fenchel
from fenchel import gmrf
from fenchel.likelihoods import BernoulliLogit, MultinomialLogit, Poisson, StochasticVolatility
from fenchel.priors import DenseCovariance
from fenchel.terms import ICAR, RW1, DataTable, Interaction

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6)]  # two components and the isolated nodes 7 and 8
N = 9
FIELDS = {
    "iid": lambda: gmrf.iid(N, 2.0),
    "rw1": lambda: gmrf.rw1(N, 1.5),
    "rw2": lambda: gmrf.rw2(N, 1.5),
    "seasonal": lambda: gmrf.seasonal(N, 4, 1.2),
    "ar1": lambda: gmrf.ar1(N, 0.7, 0.8),
    "icar": lambda: gmrf.icar(EDGES, 1.3, n=N),
    "bym": lambda: gmrf.bym(EDGES, 1.3, 4.0, n=N),
    "bym2": lambda: gmrf.bym2(EDGES, 2.0, 0.6, n=N),
    "leroux": lambda: gmrf.leroux(EDGES, 2.0, 0.7, n=N),
    "lattice": lambda: gmrf.lattice((3, 3), 1.4),
    "matern": lambda: gmrf.matern((3, 3), range=2.0, variance=0.7),
    "generic": lambda: gmrf.generic(sp.diags_array(np.arange(1.0, N + 1)), 0.5),
    "stack": lambda: gmrf.stack(
        [(gmrf.icar(EDGES, 1.3, n=N), np.arange(N)), (gmrf.ar1(4, 0.5), np.arange(N) % 4)],
        fixed=np.linspace(-1, 1, N)[:, None],
        fixed_variance=4.0,
    ),
}
every_field = pytest.mark.parametrize("name", FIELDS)


def covariance(field, theta=None):
    """W Sigma W' of a field, with Sigma conditioned on its constraints by dense linear algebra."""
    Q = field.build(field.theta if theta is None else theta)[0].toarray()
    if field.constraints is None:
        Sigma = np.linalg.inv(Q)
    else:
        import scipy.linalg

        B = scipy.linalg.null_space(np.atleast_2d(field.constraints))
        Sigma = B @ np.linalg.inv(B.T @ Q @ B) @ B.T
    W = np.eye(Q.shape[0]) if field.design is None else field.design.toarray()
    S = W @ Sigma @ W.T
    return (S + S.T) / 2


@every_field
def test_evidence_means_and_variances_equal_the_dense_models(name):
    field = FIELDS[name]()
    y = np.random.default_rng(0).poisson(2.0, N).astype(float)
    y[2] = np.nan
    sparse = fenchel.infer(Poisson(), field.at(), y, tol=1e-20)
    dense = fenchel.infer(Poisson(), DenseCovariance(covariance(field)), y, tol=1e-20)
    assert sparse.elbo == pytest.approx(dense.elbo, abs=1e-8)
    np.testing.assert_allclose(sparse.posterior.mean, dense.posterior.mean, atol=1e-7)
    np.testing.assert_allclose(sparse.posterior.variance, dense.posterior.variance, atol=1e-8)


@every_field
def test_gradients(name):
    field = FIELDS[name]()
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, N).astype(float)
    theta = field.theta + 0.1 * rng.normal(size=field.theta.size)
    for likelihood in (BernoulliLogit("tilted"), Poisson(), StochasticVolatility()):

        def evidence(t, likelihood=likelihood):
            return fenchel.infer(likelihood, field.at(t), y, tol=1e-17, max_iter=40)

        gradient = field.gradient(evidence(theta), theta)
        numeric = difference(lambda t: evidence(t).elbo, theta, step=1e-4)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)
    Q, slopes = field.build(theta)
    for i, slope in enumerate(slopes):
        e = np.eye(theta.size)[i] * 1e-6
        numeric = (field.build(theta + e)[0] - field.build(theta - e)[0]).toarray() / 2e-6
        np.testing.assert_allclose(slope.toarray(), numeric, atol=1e-6 * max(1, np.abs(Q.toarray()).max()))
    assert len(field.names) == theta.size == len(field.bounds)
    assert field.at(theta).pattern.symbolic is field.at(field.theta).pattern.symbolic


def test_ar1_is_stationary_and_walks_are_their_increments():
    S = covariance(gmrf.ar1(6, 0.7, 2.0))
    lag = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    np.testing.assert_allclose(S, 2.0 * 0.7**lag, atol=1e-10)
    x = np.random.default_rng(0).normal(size=8)
    Q = gmrf.rw1(8, 3.0).build(-0.5 * np.log([3.0]))[0]
    assert x @ Q @ x == pytest.approx(3.0 * (np.diff(x) ** 2).sum())
    Q = gmrf.rw2(8).build(np.zeros(1))[0]
    assert x @ Q @ x == pytest.approx((np.diff(x, 2) ** 2).sum())
    Q = gmrf.seasonal(8, 4).build(np.zeros(1))[0]
    assert x @ Q @ x == pytest.approx(sum(x[i : i + 4].sum() ** 2 for i in range(5)))
    Q = gmrf.icar(EDGES, n=9).build(np.zeros(1))[0]
    z = np.random.default_rng(1).normal(size=9)
    assert z @ Q @ z == pytest.approx(sum((z[a] - z[b]) ** 2 for a, b in EDGES) + z[7] ** 2 + z[8] ** 2)


def test_matern_has_its_variance_and_range_far_from_the_edges():
    """The five-point Laplacian overstates the variance by 4 % at ten steps to a range, and by less on finer grids."""
    errors = []
    for steps in (10, 20):
        side = 6 * steps + 1
        factor = gmrf.matern((side, side), range=float(steps), variance=1.7).at().factor
        middle = (side // 2) * side + side // 2
        errors.append(factor.inverse_diagonal()[middle] / 1.7 - 1)
        e = np.zeros(side * side)
        e[middle] = 1.0
        row = factor.solve(e)
        assert row[middle + steps] / row[middle] == pytest.approx(0.14, abs=0.03)  # correlation at the range, nu = 1
    assert 0 < errors[0] < 0.045
    assert 0 < errors[1] < 0.4 * errors[0]


def test_bym2_is_scaled():
    """The geometric mean of the structured part's variances is 1 in every component, whatever the graph."""
    field = gmrf.bym2(EDGES, 1.0, 0.999999, n=N)
    variance = np.diag(covariance(field))
    assert np.exp(np.log(variance[:4]).mean()) == pytest.approx(1.0, rel=1e-4)
    assert np.exp(np.log(variance[4:7]).mean()) == pytest.approx(1.0, rel=1e-4)


@given(st.integers(1, 12), st.integers(0, 1000))
def test_every_form_of_a_graph_is_the_same_graph(n, seed):
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((n, n)) < 0.3, 1)
    A = (A | A.T).astype(float)
    edges = np.argwhere(np.triu(A))
    forms = [A, sp.csr_array(A), sp.coo_array(A * 3.0)]
    if n != 2:
        forms += [np.vstack([edges, edges]) if len(edges) else np.zeros((0, 2))]
    for form in forms:
        np.testing.assert_array_equal(gmrf.as_adjacency(form, n=n).toarray(), A)

    class Libpysal:
        sparse = sp.csr_array(A)

    np.testing.assert_array_equal(gmrf.as_adjacency(Libpysal()).toarray(), A)


def test_networkx_graphs():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph([("a", "b"), ("b", "c")])
    graph.add_node("alone")
    A = gmrf.as_adjacency(graph).toarray()
    assert A.sum() == 4
    assert A[3].sum() == 0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: gmrf.icar(np.eye(3)), "graph: node 0 is its own neighbour; expected no self-loops"),
        (lambda: gmrf.icar([[0, 0]], n=3), "graph: node 0 is its own neighbour"),
        (lambda: gmrf.icar([[1, 3]], n=3), r"graph: edge 0 names node 3; expected integers 0, \.\.\., 2"),
        (lambda: gmrf.icar(np.triu(np.ones((3, 3)), 1)), r"has no mirror image; expected a symmetric adjacency"),
        (lambda: gmrf.icar(np.ones((2, 3))), r"graph has shape \(2, 3\); expected \(n, n\)"),
        (lambda: gmrf.rw2(2), "rw2: n = 2; expected an integer >= 3"),
        (lambda: gmrf.ar1(5, 1.0), "ar1: phi = 1.0"),
        (lambda: gmrf.bym2(EDGES, phi=1.0, n=N), "bym2: phi = 1.0; expected 0 < phi < 1"),
        (lambda: gmrf.stack([(gmrf.iid(3), [0, 1, 3])]), r"stack: effects\[0\] names node 3"),
        (lambda: gmrf.stack([(gmrf.iid(3), [0, 1]), (gmrf.iid(2), [0])]), r"stack: the parts have \[1, 2\] rows"),
        (lambda: gmrf.stack([(gmrf.iid(3), [0])], fixed_variance=np.inf), "A flat prior is improper"),
    ],
)
def test_what_is_not_a_field(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("precision", [1e-2, 1e2])
def test_weak_data_under_a_smooth_prior(precision):
    """Binary outcomes and mostly zero counts on a second-order walk, where a diagonal curvature is not enough."""
    rng = np.random.default_rng(0)
    n = 500
    t = np.linspace(-0.5, 0.5, n)
    prior = gmrf.stack([(gmrf.rw2(n, precision), np.arange(n))], fixed=t).at()
    labels = (rng.random(n) < 1 / (1 + np.exp(-2 * np.sin(9 * t)))).astype(float)
    for likelihood, y in (
        (BernoulliLogit("tilted"), labels),
        (BernoulliLogit("log-sum"), labels),
        (Poisson(), rng.poisson(0.02, n)),
    ):
        sol = fenchel.infer(likelihood, prior, y)
        assert sol.converged, (likelihood, sol.status)


@pytest.mark.parametrize(("variance", "reach"), [(100.0, 10.0), (1.0, 10.0), (100.0, 3.0)])
def test_weak_data_on_a_grid(variance, reach):
    rng = np.random.default_rng(0)
    field = gmrf.stack([(gmrf.matern((25, 25), reach, variance), np.arange(625))])
    for likelihood, y in (
        (BernoulliLogit("tilted"), rng.integers(0, 2, 625)),
        (Poisson(), rng.poisson(0.05, 625)),
        (MultinomialLogit(3, None, "tilted"), rng.integers(0, 3, 625)),
    ):
        sol = fenchel.infer(likelihood, field.at(), y)
        assert sol.converged, (likelihood, sol.status)
        assert sol.n_iter <= 25


def _random_map(rng, n):
    """A graph of several components, with islands, and the covariance of an ICAR of sd 1 in each of them."""
    A, S = np.zeros((n, n)), np.zeros((n, n))
    for nodes in np.split(rng.permutation(n), np.sort(rng.choice(np.arange(1, n), rng.integers(1, 5), replace=False))):
        for i in range(1, nodes.size):
            for j in rng.choice(i, min(i, rng.integers(1, 3)), replace=False):
                A[nodes[i], nodes[j]] = A[nodes[j], nodes[i]] = 1.0
        own = A[np.ix_(nodes, nodes)]
        inverse = np.linalg.pinv(np.diag(own.sum(axis=1)) - own) if nodes.size > 1 else np.ones((1, 1))
        S[np.ix_(nodes, nodes)] = inverse / np.exp(np.log(np.diag(inverse)).mean())
    return A, S


@pytest.mark.parametrize("seed", range(20))
def test_components_of_an_icar_have_the_sd_of_the_term(seed):
    rng = np.random.default_rng(seed)
    A, S = _random_map(rng, 12)
    table = DataTable("here", {"r": np.repeat(np.arange(12), 3), "t": np.tile(np.arange(3), 12)})
    walk = np.linalg.pinv(np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]))
    walk /= np.exp(np.log(np.diag(walk)).mean())
    term = ICAR("r", A).read(table, 1.0)
    sd = 0.7 / np.sqrt(term.spread)  # of neighbours, at a typical sd of 0.7
    np.testing.assert_allclose(_held(term, np.log([sd])), 0.49 * S, atol=1e-8)
    both = Interaction(ICAR("r", A), RW1("t")).read(table, 1.0)
    np.testing.assert_allclose(_held(both, np.log([0.7])), 0.49 * np.kron(S, walk), atol=1e-8)


def _held(term, theta):
    """The covariance of a term's latents under its constraints."""
    Q = term.precision(theta)[0].toarray()
    if term.constraints is None:
        return np.linalg.inv(Q)
    C = term.constraints
    free = scipy.linalg.null_space(C.toarray() if hasattr(C, "toarray") else np.asarray(C))
    return free @ np.linalg.inv(free.T @ Q @ free) @ free.T
