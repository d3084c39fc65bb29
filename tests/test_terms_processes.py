"""Gaussian processes as terms: evidence against scikit-learn's, new points against dense conditioning by hand."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern

import fenchel
from fenchel.gmrf.series import NUGGET
from fenchel.kernels import KERNELS
from fenchel.terms import DataTable, GaussianProcess, SumOfTerms

RNG = np.random.default_rng(12)
N = 40
ROWS = {"x": RNG.uniform(0.0, 10.0, N), "z": RNG.uniform(-300.0, 300.0, N), "g": np.arange(N) % 4}
Y = np.sin(ROWS["x"]) + ROWS["z"] / 300 + 0.2 * RNG.normal(size=N)
NEW = {"x": np.array([1.0, 1.001, 5.0, 40.0, ROWS["x"][3]]), "z": np.array([0.0, 0.5, 100.0, 0.0, ROWS["z"][3]])}


def kernel_of(word, lengths):
    """scikit-learn's, of length scales; a range is two of them."""
    return RBF(lengths) if word == "rbf" else Matern(lengths, nu=KERNELS[word])


def stacked(rows, columns):
    return np.stack([rows[name] for name in columns], axis=1)


CASES = [(("x",), False, [2.5]), (("x", "z"), False, [2.5, 300.0]), (("x", "z"), True, [40.0])]


@pytest.mark.parametrize("word", KERNELS)
@pytest.mark.parametrize(("columns", "isotropic", "ranges"), CASES)
def test_the_evidence_is_scikit_learns_and_so_are_new_points(word, columns, isotropic, ranges):
    term = GaussianProcess(*columns, kernel=word, isotropic=isotropic)
    model = SumOfTerms([term], DataTable("here", ROWS), intercept=False)
    theta = np.log([0.8, *ranges])
    sol = fenchel.infer(fenchel.Gaussian(0.05), model.family().at(theta), Y, tol=1e-12)
    lengths = np.array(ranges) / 2 if len(ranges) > 1 else ranges[0] / 2
    kernel = 0.8**2 * kernel_of(word, lengths)
    peer = GaussianProcessRegressor(kernel, alpha=0.05 + NUGGET * 0.8**2, optimizer=None).fit(stacked(ROWS, columns), Y)
    assert sol.elbo == pytest.approx(peer.log_marginal_likelihood_value_, abs=1e-6)
    mean, variance = sol.posterior.predict(model.new_rows(theta, DataTable("here", NEW)))
    at = stacked(NEW, columns)
    want, sd = peer.predict(at, return_std=True)
    np.testing.assert_allclose(mean[:4], want[:4], atol=1e-7)
    np.testing.assert_allclose(np.sqrt(variance)[:4], sd[:4], rtol=1e-5)
    np.testing.assert_allclose(
        [mean[4], variance[4]], [want[4], sd[4] ** 2], atol=1e-4
    )  # a point of the fit, nugget in
    assert variance[3] == pytest.approx(0.64, rel=0.01 if isotropic is False else 1.0)  # far away nothing is known


@pytest.mark.parametrize("word", ["matern32", "rbf"])
def test_counts_at_repeated_points_against_a_dense_prior_of_all_points(word):
    """New points are unobserved ones of a dense covariance over old and new: its posterior is the witness."""
    rng = np.random.default_rng(0)
    x = np.r_[np.repeat(np.linspace(0.0, 5.0, 12), 3), 2.2]
    y, new = rng.poisson(np.exp(1 + np.sin(x))).astype(float), np.array([0.1, 2.21, 4.9, 5.5, 7.0])
    model = SumOfTerms([GaussianProcess("x", kernel=word)], DataTable("here", {"x": x}), intercept=False, offset=0.7)
    theta = np.log([1.1, 3.0])
    sol = fenchel.infer(fenchel.Poisson(), model.family().at(theta), y, tol=1e-13)
    every = np.r_[x, new][:, None]
    K = 1.1**2 * (kernel_of(word, 1.5)(every) + NUGGET * (every == every.T) * (np.arange(every.size) < x.size))
    witness = fenchel.infer(
        fenchel.Poisson(), fenchel.DenseCovariance(K, offset=0.7), np.r_[y, np.full(5, np.nan)], tol=1e-13
    )
    assert sol.elbo == pytest.approx(witness.elbo, abs=1e-7)
    mean, variance = sol.posterior.predict(model.new_rows(theta, DataTable("here", {"x": new})))
    np.testing.assert_allclose(mean, witness.posterior.mean[x.size :], atol=1e-6)
    np.testing.assert_allclose(variance, witness.posterior.variance[x.size :], rtol=1e-5)


def test_new_points_vary_together():
    term = GaussianProcess("x", "z").read(DataTable("here", ROWS), 1.0)
    theta = np.log([0.8, 2.5, 300.0])
    rows, [unseen] = term.new_rows(theta, DataTable("here", {key: np.r_[v, v[:1]] for key, v in NEW.items()}))
    which, between = unseen.together()
    X, at = stacked(ROWS, ("x", "z")), stacked(NEW, ("x", "z"))[:4]
    R = kernel_of("matern32", np.array([1.25, 150.0]))
    C = 0.64 * (R(at) - R(at, X) @ np.linalg.solve(R(X) + NUGGET * np.eye(N), R(X, at)))
    order = which[[0, 1, 2, 3]]
    np.testing.assert_allclose(between[np.ix_(order, order)], C, atol=1e-8)
    assert which[4] == which[0]  # the last row is the first point again; the fifth row is a point of the fit
    np.testing.assert_allclose(unseen.variance[:4], np.diag(C), atol=1e-8)
    assert unseen.variance[4] == 0.0
    assert rows.design.toarray()[4].tolist() == np.eye(N)[term.places(stacked(NEW, ("x", "z")))[4]].tolist()


def test_close_points_of_a_smooth_kernel():
    """A hundred points within a hundredth of the range, where R is singular in doubles."""
    x = np.r_[np.linspace(0.0, 0.01, 100), 1.0]
    term = GaussianProcess("x", kernel="rbf").read(DataTable("here", {"x": x}), 1.0)
    theta = np.log([2.0, 1.0])
    Q = term.precision(theta)[0].toarray()
    K = 4.0 * (RBF(0.5)(x[:, None]) + NUGGET * np.eye(101))
    np.testing.assert_allclose(Q @ K, np.eye(101), atol=1e-7)
    y = 3.0 * x + 0.01 * np.random.default_rng(0).normal(size=101)
    with pytest.warns(UserWarning, match=r"row 100 \(x = 1\) lies 99 times as far away as the other 100 rows are wide"):
        assert fenchel.fit('y ~ gp(x, kernel="rbf")', {"x": x, "y": y}).converged


def test_units_and_origins_do_not_matter():
    found = []
    for factor, origin in ((1.0, 0.0), (1e3, 0.0), (1.0, 1e6)):
        data = {"x": factor * ROWS["x"] + origin, "z": ROWS["z"], "y": Y}
        fit = fenchel.fit("y ~ gp(x, z)", data)
        here = fit.predict({"x": factor * NEW["x"] + origin, "z": NEW["z"]})
        found.append([fit.elbo, *here, fit.hyperparameters.loc[("gp(x,z)", "range x"), "value"] / factor])
    np.testing.assert_allclose(found, [found[0]] * 3, atol=1e-5)


# -- in formulas -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def fit():
    data = pd.DataFrame({**ROWS, "y": Y + np.array([0.5, -0.5, 0.2, 0.0])[ROWS["g"]]})
    return fenchel.fit("y ~ gp(x) + z + (1|g)", data)


def test_a_process_beside_a_group_and_a_line(fit):
    assert fit.converged
    assert fit.effects["x"].equals(fit.effects["gp(x)"])
    assert fit.hyperparameters.loc["gp(x)"].index.tolist() == ["sd", "range"]
    priors = fit.model.priors.loc["gp(x)", "prior"]
    assert priors["nugget"] == "1e-06 of the variance, fixed"
    assert priors["kernel"] == "matern32"
    assert priors["range"] == f"P(range < {np.ptp(ROWS['x']) / 20:.4g}) = 0.05"
    assert "nugget" in fit.summary()
    here = pd.DataFrame({"x": [5.0], "z": [0.0], "g": [1]})
    again = pickle.loads(pickle.dumps(fit))
    assert again.predict(here).tolist() == fit.predict(here).tolist()
    flat = fenchel.Model("y ~ gp(x)", fit.model.frame, priors={"gp(x)": {"range": None, "sd": fenchel.PC(2.0, 0.05)}})
    assert flat.priors.loc["gp(x)", "prior"].tolist()[:2] == ["exponential, P(sd > 2) = 0.05", "flat in log range"]


def test_draws_at_new_points_have_their_joint_moments(fit):
    new = pd.DataFrame({"x": [5.0, 5.05, 30.0, 5.0], "z": 0.0, "g": 1})
    draws = fit.sample(new, 4000, 0, kind="link")
    h = fit.predict(new, kind="link", interval=0.6826894921)
    np.testing.assert_allclose(draws.mean(axis=0), h["mean"], atol=0.05)
    np.testing.assert_allclose(draws.std(axis=0), (h["upper"] - h["lower"]) / 2, rtol=0.05)
    correlation = np.corrcoef(draws.T)
    assert correlation[0, 1] > 0.95
    assert correlation[0, 3] == pytest.approx(1.0)
    assert fit.predict(new.head(1), new_groups="error").notna().all()  # a point is no group


def test_the_average_slope_is_the_processes(fit):
    """By hand: the mean and variance of the average of (f(x + h) - f(x - h)) / 2h, all points together."""
    model, theta = fit.model, fit.theta
    frame, step = model.frame, 1e-3 * np.std(ROWS["x"])
    both = [model.sum.new_rows(theta, model.table(frame.assign(x=frame["x"] + s * step))) for s in (1.0, -1.0)]
    design = (both[0].design - both[1].design).mean(axis=0) / (2 * step)
    x = ROWS["x"]
    term = model.sum.effects[0]
    C = term.process.left(theta[:2], np.r_[x + step, x - step][:, None])
    a = np.r_[np.ones(N), -np.ones(N)] / (2 * step * N)
    latents = fit.solution.posterior.sample_latents(20000, np.random.default_rng(0))
    want = np.asarray(latents @ np.asarray(design).ravel())
    found = fit.slopes("x")
    assert found["estimate"].item() == pytest.approx(want.mean(), abs=0.1 * found["std_error"].item())
    assert found["std_error"].item() == pytest.approx(np.sqrt(want.var() + a @ C @ a), rel=0.05)


SENTENCES = {
    "y ~ gp()": r"no column is named; expected gp\(x\), or gp\(x, z\)",
    "y ~ gp(g)": r"the column 'g' holds text; expected numbers. A level for each of them is \(1\|g\)",
    "y ~ gp(c)": r"'c' is 1 in every row; expected a column that varies",
    'y ~ gp(x, kernel="matern")': r"kernel = 'matern' is not known; expected 'matern12' .* or 'rbf'|Did you mean",
    "y ~ gp(x, length=3)": r"gp\(\) has no option 'length'; expected kernel, isotropic",
}


@pytest.mark.parametrize("formula", SENTENCES)
def test_sentences(formula):
    rng = np.random.default_rng(0)
    data = {"x": rng.random(1200), "w": rng.random(1200), "g": ["a", "b"] * 600, "c": 1.0, "y": rng.random(1200)}
    with pytest.raises(ValueError, match=SENTENCES[formula]):
        fenchel.Model(formula, pd.DataFrame(data))
