"""Vecchia's approximation at points that fit has not seen, drawn together; its gradient where points almost meet."""

import warnings

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern

import fenchel
from fenchel.gmrf.vecchia import NUGGET, Vecchia
from fenchel.kernels import KERNELS
from fenchel.terms import DataTable, SumOfTerms, VecchiaProcess, processes

every_kernel = pytest.mark.parametrize("kernel", KERNELS)
SMOOTH = {"matern12": Matern(1.0, nu=0.5), "matern32": Matern(1.0, nu=1.5), "matern52": Matern(1.0, nu=2.5)}


@every_kernel
@pytest.mark.parametrize("knots", [None, 30])
def test_rests_are_those_of_the_dense_process(kernel, knots):
    rng = np.random.default_rng(4)
    X, new, theta = rng.random((60, 2)), 1.3 * rng.random((25, 2)), np.log([1.0, 0.4, 0.9])
    made, _ = Vecchia.of(X, np.exp(theta[1:]), 6, kernel, False, knots)
    K = SMOOTH.get(kernel, RBF(1.0))(2.0 * np.vstack([made.X, new]) / np.exp(theta[1:]))
    K[:60, :60] += NUGGET * np.eye(60)
    W, left = made.at(theta, new)
    A = np.hstack([-W.toarray(), np.eye(25)])  # f(new) - W f(X) as one linear map
    found = made.rests(theta, new)
    np.testing.assert_allclose(found, A @ K @ A.T, atol=1e-9)
    np.testing.assert_allclose(np.diag(found), left, atol=1e-6)


def test_new_points_are_drawn_together():
    rng = np.random.default_rng(5)
    X, theta = rng.random((80, 2)), np.log([1.5, 0.5])
    table = DataTable("here", {"x": X[:, 0], "z": X[:, 1]})
    term = VecchiaProcess("x", "z", neighbours=79, isotropic=True).read(table, 1.0)
    new = np.array([[1.5, 1.5], [1.5001, 1.5], [1.9, 1.5], [1.5, 1.5], X[3]])
    _, (rest,) = term.new_rows(theta, DataTable("here", {"x": new[:, 0], "z": new[:, 1]}))
    drawn = rest.draws(20_000, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn[0], drawn[3])
    assert not drawn[4].any()
    C = np.cov(drawn)
    np.testing.assert_allclose(np.diag(C), rest.variance, atol=0.1)
    points = np.vstack([X, new[:3]])
    K = 1.5**2 * (SMOOTH["matern32"](2.0 * points / 0.5) + np.diag(np.r_[np.full(80, NUGGET), np.zeros(3)]))
    exact = K[80:, 80:] - K[80:, :80] @ np.linalg.solve(K[:80, :80], K[:80, 80:])
    np.testing.assert_allclose(C[:3, :3], exact, atol=0.1)


def test_many_new_points_have_rests_of_their_own(monkeypatch):
    monkeypatch.setattr(processes, "_TOGETHER", 10)
    rng = np.random.default_rng(6)
    X, new, theta = rng.random((50, 2)), 2.0 * rng.random((20, 2)), np.log([1.5, 0.5])
    term = VecchiaProcess("x", "z", isotropic=True).read(DataTable("here", {"x": X[:, 0], "z": X[:, 1]}), 1.0)
    tables = [DataTable("here", {"x": P[:, 0], "z": P[:, 1]}) for P in (new, new[:10])]
    (many,), (few,) = (term.new_rows(theta, table)[1] for table in tables)
    assert type(many) is not type(few)
    np.testing.assert_allclose(many.variance[:10], few.variance)


def test_a_sampled_map_is_smooth():
    rng = np.random.default_rng(7)
    x = rng.uniform(0.0, 10.0, 120)
    data = pd.DataFrame({"x": x, "y": np.sin(x) + 0.1 * rng.normal(size=120)})
    fit = fenchel.fit("y ~ vecchia(x, kernel='matern52')", data)
    drawn = fit.sample(pd.DataFrame({"x": np.linspace(10.5, 14.0, 301)}), 50, kind="link")
    assert np.abs(np.diff(drawn, axis=1)).max() < 0.1 * np.ptp(drawn)


def _precisely(made, kernel, theta):
    """Q by its definition, in as many digits as mpmath has."""
    n, lengths, nugget = len(made.X), [mp.exp(t) / 2 for t in theta[1:]], mp.mpf(NUGGET)
    points = [[mp.mpf(float(x)) / length for x, length in zip(point, lengths, strict=True)] for point in made.X]

    def c(a, b):
        r = mp.sqrt(sum((x - y) ** 2 for x, y in zip(points[a], points[b], strict=True)))
        s3, s5 = mp.sqrt(3) * r, mp.sqrt(5) * r
        forms = {"matern12": lambda: mp.exp(-r), "matern32": lambda: (1 + s3) * mp.exp(-s3)}
        forms |= {"matern52": lambda: (1 + s5 + s5 * s5 / 3) * mp.exp(-s5), "rbf": lambda: mp.exp(-r * r / 2)}
        return forms[kernel]() + (nugget if a == b else 0)

    Q = mp.zeros(n)
    for i in range(n):
        near = [int(k) for k in made.neighbours[i] if k >= 0]
        weights, left = [], 1 + nugget
        if near:
            K = mp.matrix([[c(a, b) for b in near] for a in near])
            k = mp.matrix([c(i, a) for a in near])
            weights = list(mp.lu_solve(K, k))
            left -= sum(w * x for w, x in zip(weights, k, strict=True))
        w = dict(zip([i, *near], [mp.mpf(1), *(-b for b in weights)], strict=True))
        for a in w:
            for b in w:
                Q[a, b] += w[a] * w[b] / left
    return Q * mp.exp(-2 * theta[0])


@every_kernel
@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-3, 1e-5])
def test_the_gradient_of_points_that_almost_meet_in_fifty_digits(kernel, size):
    """Differences of Q lose their digits there (they are off by 1e-2); the gradient does not."""
    theta = np.array([0.1, 0.0, 0.2])
    P = size * np.random.default_rng(8).random((6, 2))
    made, _ = Vecchia.of(P, np.exp(theta[1:]), 5, kernel, False)
    Q, slopes = made(theta)
    with mp.workdps(50):
        at = lambda j, h: _precisely(made, kernel, [mp.mpf(t) + (h if i == j else 0) for i, t in enumerate(theta)])
        h = mp.mpf(10) ** -15
        exact = [(at(j, h) - at(j, -h)) / (2 * h) for j in range(3)]
        value = at(0, 0)
    for found, wanted in zip([Q, *slopes], [value, *exact], strict=True):
        wanted = np.array(wanted.tolist(), dtype=float)
        np.testing.assert_allclose(found.toarray(), wanted, atol=1e-6 * np.abs(wanted).max())


def test_the_variance_of_new_points_is_that_of_the_dense_process():
    rng = np.random.default_rng(9)
    X = rng.random((40, 2))
    table = DataTable("here", {"x": X[:, 0], "z": X[:, 1]})
    model = SumOfTerms([VecchiaProcess("x", "z", neighbours=39)], table, intercept=False)
    theta = np.log([1.3, 0.5, 0.5])
    sol = fenchel.infer(fenchel.Gaussian(0.04), model.family().at(theta), np.sin(6 * X[:, 0]), tol=1e-12)
    new = rng.random((7, 2)) * 2.0
    _, rho = sol.posterior.predict(model.new_rows(theta, DataTable("here", {"x": new[:, 0], "z": new[:, 1]})))
    K = 1.3**2 * SMOOTH["matern32"](2.0 * np.vstack([X, new]) / 0.5)
    A = K[:40, :40] + (0.04 + 1.3**2 * NUGGET) * np.eye(40)
    exact = K[40:, 40:] - K[40:, :40] @ np.linalg.solve(A, K[:40, 40:])
    np.testing.assert_allclose(rho, np.diag(exact), atol=1e-5)


@pytest.mark.parametrize("word", ["vecchia", "gp"])
def test_a_column_along_which_nothing_varies_is_a_remark(word, monkeypatch):
    monkeypatch.setattr(processes.VecchiaProcess, "range_bounds", (6.0, 1.5))
    monkeypatch.setattr(processes.GaussianProcess, "range_bounds", (np.log(200.0), np.log(10.0)))
    rng = np.random.default_rng(3)
    P = rng.uniform(-10, 10, (120, 2))
    data = pd.DataFrame({"x": P[:, 0], "junk": P[:, 1], "z": np.sin(P[:, 0]) + 0.3 * rng.normal(size=120)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = fenchel.fit(f"z ~ {word}(x, junk)", data)
    assert fit.found.held == (2,)  # the evidence still rises beyond
    (said,) = fit.remarks
    assert "the range along 'junk' is at its upper bound" in said
    assert [w.category for w in caught] == [UserWarning]  # and no second warning of a bound that decides


def test_options_of_a_field_are_named():
    data = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.0], "z": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"matern\(\) has no option 'foo'; expected mesh, nu, edge, prior_range"):
        fenchel.Model("z ~ matern(x, y, foo=3)", data)
