"""gp() beyond 1,000 points, through inducing points: exact fits, dense matrices and the estimator are the witnesses."""

import gc
import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import Matern

import fenchel
from fenchel import GaussianProcessRegressor, gates, gmrf
from fenchel.gmrf.base import MarkovField
from fenchel.gmrf.inducing_rows import InducingRows
from fenchel.gmrf.series import Process
from fenchel.gmrf.stack import StackedField
from fenchel.inputs.fixed_columns import Columns
from fenchel.likelihoods import BernoulliProbit, LaplaceNoise, Poisson, StudentT, ZeroInflated
from fenchel.priors import SparsePrecision
from fenchel.terms import DataTable, GaussianProcess

RNG = np.random.default_rng(21)
N = 240
X = RNG.random((N, 2))
G = RNG.integers(0, 8, N)
X1 = RNG.normal(size=N)
ETA = 0.4 + 0.3 * X1 + np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * RNG.normal(size=8)[G]
COUNTS = RNG.poisson(np.exp(ETA))
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "g": G, "x1": X1, "y": COUNTS, "real": ETA + RNG.normal(size=N)})
TABLE["label"] = (RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
EXACT = "gp(a, b, kernel='matern32', isotropic=False)"


def through(m, **more):
    options = "".join(f", {name}={value}" for name, value in more.items())
    return f"gp(a, b, kernel='matern32', isotropic=False, n_inducing={m}{options})"


def fitted(process, y="y", family="poisson", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fenchel.fit(f"{y} ~ x1 + {process} + (1|g)", TABLE, family, accuracy="fast", **options)


def field(points):
    """The stack of a process through points, groups and a covariate."""
    process = Process(points, 1.5, shared=False)
    theta = np.array([0.1, np.log(0.8), np.log(0.6)])
    rows = InducingRows(X, process)
    part = MarkovField(process, theta, ["sd", "a", "b"], moving=rows)
    groups = sp.csr_array((np.ones(N), (np.arange(N), G)), shape=(N, 8))
    columns = Columns.of("here", X1[:, None], ["x1"], None, True)
    designs = [(part, rows.at(theta)[0]), (gmrf.iid(8, precision=4.0), groups)]
    return StackedField(designs, X1[:, None], columns, True, 100.0)


@pytest.mark.parametrize("m", [20, 90])  # fewer than dense columns are multiplied for, and more
def test_slopes_are_differences_of_the_elbo(m):
    family = field(X[:m])
    theta = family.theta + 0.1

    def elbo(at):
        return fenchel.infer(Poisson(), family.at(at), COUNTS, tol=1e-12).elbo

    found = family.gradient(fenchel.infer(Poisson(), family.at(theta), COUNTS, tol=1e-12), theta)
    steps = 1e-4 * np.eye(theta.size)
    np.testing.assert_allclose(found, [(elbo(theta + e) - elbo(theta - e)) / 2e-4 for e in steps], rtol=1e-5, atol=1e-5)


def test_wide_rows_answer_as_dense_matrices_written_out():
    rng = np.random.default_rng(0)
    n, wide = 50, gates.DENSE_COLUMNS + 3
    dense, sparse = rng.normal(size=(n, wide)), sp.random_array((n, 9), density=0.2, rng=rng, format="csr")
    W = sp.csr_array(sp.hstack([sparse, sp.csr_array(dense)], format="csr"))
    L = W.shape[1]
    prior = SparsePrecision(2.0 * sp.eye_array(L, format="csc"), design=W)
    y = rng.poisson(1.0, n)
    sol = fenchel.infer(Poisson(), prior, y, tol=1e-12)
    lam = np.ravel(sol.lam)
    V = np.linalg.inv(2.0 * np.eye(L) + W.toarray().T @ (lam[:, None] * W.toarray()))
    np.testing.assert_allclose(sol.posterior.variance, np.diag(W @ V @ W.T.toarray()), rtol=1e-9)
    at = rng.normal(size=(100, L))
    np.testing.assert_allclose(sol.posterior.at(design=sp.csr_array(at)).variance, np.diag(at @ V @ at.T), rtol=1e-9)
    other = fenchel.infer(Poisson(), prior.seen_through(sp.csr_array(0.5 * W), 0.1), y, tol=1e-12)
    whole = SparsePrecision(2.0 * sp.eye_array(L, format="csc"), design=sp.csr_array(0.5 * W), extra_variance=0.1)
    assert other.elbo == pytest.approx(fenchel.infer(Poisson(), whole, y, tol=1e-12).elbo, abs=1e-9)


def test_wide_rows_are_freed_with_their_prior():
    """Each theta has rows of its own: a cycle of references would keep them all until the garbage collector runs."""
    rng = np.random.default_rng(0)
    W = sp.csr_array(rng.normal(size=(30, gates.DENSE_COLUMNS + 3)))
    prior = SparsePrecision(2.0 * sp.eye_array(W.shape[1], format="csc"), design=W)
    fenchel.infer(Poisson(), prior, rng.poisson(1.0, 30))
    rows = weakref.ref(prior.pattern.rows)
    gc.disable()
    try:
        del prior
        assert rows() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("y", "family"), [("y", "poisson"), ("real", "gaussian"), ("label", "bernoulli")])
def test_as_many_points_as_rows_are_the_process_and_the_bound_is_never_below_the_loss(y, family):
    bound = {"bound": "tilted"} if family == "bernoulli" else {}
    exact = fitted(EXACT, y, family, **bound)
    whole = fitted(through(N), y, family)
    assert whole.elbo == pytest.approx(exact.elbo, abs=3e-3)  # a nugget apart
    np.testing.assert_allclose(whole.theta, exact.theta, atol=0.02)
    np.testing.assert_allclose(whole.predict(TABLE.head(9)), exact.predict(TABLE.head(9)), rtol=2e-3)
    family_of = exact.model.sum.family()
    for m in (12, 40):
        few = fitted(through(m), y, family)
        at = family_of.at(few.theta[: family_of.theta.size])
        lost = fenchel.infer(few.found.likelihood, at, few.model.target.y, tol=1e-11).elbo - few.elbo
        assert 0.0 <= lost <= few.approximation_loss
        assert few.approximation_loss <= 4.0 * lost
        assert f"{m} inducing points cost at most" in few.summary()


def test_many_points_are_seen_through_few_that_grow_until_they_cost_little():
    rng = np.random.default_rng(2)
    n = 1300
    data = pd.DataFrame({"a": rng.random(n), "b": rng.random(n)})
    truth = np.sin(6 * data["a"]) + data["b"]
    data["y"] = truth + 0.4 * rng.normal(size=n)
    fit = fenchel.fit("y ~ gp(a, b)", data, "gaussian", accuracy="fast")
    (term,) = (term for term in fit.model.sum.effects if term.approximates)
    sizes = [stage["n_inducing"] for stage in term.stages]
    assert sizes[0] == 100
    assert len(sizes) >= 2
    assert sizes == sorted(sizes)
    assert fit.approximation_loss == term.stages[-1]["bound"] <= term.allowed == 1.3
    assert fit.predict(data).sub(truth).std() < 0.1
    same = 1.0 * Matern([1.0, 1.0], nu=1.5)  # without a kernel the estimator chooses another
    model = GaussianProcessRegressor(same, approximation="inducing", n_inducing=term.n_latents)
    model.fit(data[["a", "b"]], data["y"])
    apart = np.abs(fit.predict(data) - model.predict(data[["a", "b"]]))
    assert apart.mean() < 0.012
    assert apart.max() < 0.06


def test_new_rows_have_the_variance_that_the_points_leave(tmp_path):
    fit = fitted(through(30))
    far = pd.DataFrame({"a": [0.5, 9.0], "b": [0.5, 9.0], "x1": 0.0, "g": 0})
    sd = fit.hyperparameters.loc[(through(30).replace(" ", ""), "sd"), "value"]
    told = fit.predict(far, kind="link", interval=0.95)["sd"]
    assert told[1] > 0.95 * sd > 2.0 * told[0]
    fit.save(tmp_path / "fit")
    again = fenchel.load(tmp_path / "fit")
    np.testing.assert_allclose(again.predict(far), fit.predict(far), rtol=1e-11)  # made again from its numbers
    assert again.approximation_loss == fit.approximation_loss
    assert np.isfinite(fit.loo().elpd)
    assert fit.sample(far, size=3).shape == (3, 2)
    assert len(fit.effects[through(30)]) == 30


def test_exact_processes_have_no_loss_and_other_fits_keep_theirs():
    assert fitted(EXACT).approximation_loss == 0.0
    whole = fitted(through(25), integrate="ccd", evidence="elbo")
    assert 0.0 < whole.approximation_loss < np.inf
    one = whole.components[3]
    assert one.approximation_loss != whole.approximation_loss  # at its own theta


@pytest.mark.parametrize(("y", "family"), [("y", "poisson"), ("label", "probit")])
def test_points_that_explain_every_row_end_whatever_the_bound(y, family):
    """Of a smooth function few points can be told apart: more are asked for, and none is found."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fenchel.fit(f"{y} ~ gp(a, kernel='rbf', n_inducing='auto', loss=1e-9)", TABLE, family, accuracy="fast")
    (term,) = (term for term in fit.model.sum.effects if term.approximates)
    assert fit.approximation_loss > term.allowed
    assert term.n_latents < 100
    assert len(term.stages) < 5


@pytest.mark.parametrize(
    ("y", "family", "kind"),
    [
        ("real", "student-t", StudentT),
        ("real", "laplace", LaplaceNoise),
        ("label", "probit", BernoulliProbit),
        ("y", "zero-inflated-poisson", ZeroInflated),
    ],
)
def test_a_family_without_a_dual_stays_the_family(y, family, kind):
    """No neighbour that has one takes its place, and nothing bounds what the points cost."""
    fit = fitted(through(12), y, family)
    assert type(fit.found.likelihood) is kind
    assert fit.approximation_loss == np.inf
    assert "12 inducing points; nothing bounds what they cost under this likelihood" in fit.summary()


def test_what_is_refused_says_why(monkeypatch):
    table = TABLE.assign(kind=RNG.choice(list("abc"), N))
    with pytest.raises(ValueError, match=r"gp\(a,b,n_inducing=20\) is over many points, and a row has 2 predictors"):
        fenchel.fit("kind ~ gp(a, b, n_inducing=20)", table, "multinomial")
    with pytest.raises(ValueError, match='seen through inducing points; expected engine="direct"'):
        fitted(through(20), engine="iterative")
    with pytest.raises(ValueError, match="n_inducing = 1"):
        GaussianProcess("a", n_inducing=1).read(DataTable("here", TABLE), 1.0)
    with pytest.raises(ValueError, match="loss = -1"):
        GaussianProcess("a", loss=-1.0).read(DataTable("here", TABLE), 1.0)
    fit = fitted(through(20))
    monkeypatch.setattr(gates, "DRAWN_SITES", 100)
    with pytest.raises(ValueError, match="corrected: the prior has an extra variance"):
        fit.corrected()
    with pytest.warns(UserWarning, match=r"20 inducing points cost at most .* more than loss = 0.24: n_inducing=40"):
        high = fenchel.fit(f"y ~ {through(20)}", TABLE, "poisson", accuracy="high")
    assert "a process through inducing points is corrected up to 100 rows" in high.accuracy
