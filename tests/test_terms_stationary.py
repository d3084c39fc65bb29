"""Matern processes in time: against their kernels, densely, at irregular times and times next to one another."""

import numpy as np
import pandas as pd
import pytest
from conftest import difference
from scipy.stats import multivariate_normal

import fenchel
from fenchel.gmrf.times import Chain, Stationary, hermite
from fenchel.terms import DataTable, MaternSeries, OrnsteinUhlenbeck, Replicated, SumOfTerms

RNG = np.random.default_rng(5)
T = np.sort(RNG.uniform(0.0, 20.0, 40))
T = T[np.r_[True, np.diff(T) > 0.15]]
NUS = pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])


def kernel(s, t, reach, nu):
    d = np.sqrt(8 * nu) / reach * np.abs(np.subtract.outer(s, t))
    return (1.0 if nu == 0.5 else 1 + d if nu == 1.5 else 1 + d + d * d / 3) * np.exp(-d)


@NUS
@pytest.mark.parametrize("reach", [1.0, 6.0, 20.0])
def test_the_chain_has_the_kernel(nu, reach):
    p, theta = int(nu + 0.5), np.array([0.3, np.log(reach)])
    build = Stationary(T, p, 0.5)
    Q = build(theta)[0].toarray()
    S = np.linalg.inv(Q)
    rounding = 1e-12 + 20.0 * np.finfo(float).eps * np.max(np.diag(S) * np.diag(Q))  # of the inverse
    np.testing.assert_allclose(S[::p, ::p], np.exp(0.6) * kernel(T, T, reach, nu), atol=rounding)
    numeric = difference(lambda th: build(th)[0].toarray(), theta, step=1e-5)
    for slope, other in zip(build(theta)[1], np.moveaxis(np.asarray(numeric), -1, 0), strict=True):
        np.testing.assert_allclose(slope.toarray(), other, atol=1e-8 * np.abs(S).max() + 1e-8 * np.abs(other).max())
    new = np.array([-3.0, T[0], 0.5 * (T[4] + T[5]), T[7], T[7] + 1e-3, T[-1], 25.0])
    W, left = build.weights(theta, new)
    np.testing.assert_allclose((W @ S)[:, ::p], np.exp(0.6) * kernel(new, T, reach, nu), atol=10 * rounding)
    variance = np.sum((W @ S) * W.toarray(), axis=1) + np.exp(0.6) * left
    np.testing.assert_allclose(variance, np.exp(0.6), atol=10 * rounding)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_noise_of_a_step_keeps_its_digits(p):
    """The integral and the difference of covariances meet; short steps are those of an integrated walk."""
    chain, tau = Chain(p), np.array([1.99])
    A = chain.transition(tau)
    np.testing.assert_allclose(
        chain.noise(tau), chain.stationary - A @ chain.stationary @ np.swapaxes(A, 1, 2), rtol=1e-12, atol=1e-14
    )
    tiny = 1e-5
    lead = chain.noise(np.array([tiny]))[0, 0, 0] / tiny ** (2 * p - 1)
    assert lead == pytest.approx({1: 2.0, 2: 4.0 / 3.0, 3: 16.0 / 3.0 / 20.0}[p], rel=1e-4)


def test_polynomials_between_knots():
    knots = np.array([0.0, 1.0, 2.5])
    t = np.linspace(0.0, 2.5, 11)
    for p, degree in ((1, 1), (2, 3), (3, 5)):
        f = np.polynomial.Polynomial(np.arange(1.0, degree + 2))
        states = np.stack([(f.deriv(d) if d else f)(knots) * 0.7**d for d in range(p)], axis=1).ravel()
        np.testing.assert_allclose(hermite(knots, t, p, 0.7) @ states, f(t), rtol=1e-11)


@NUS
@pytest.mark.parametrize("n", [60, 500])
def test_the_evidence_is_that_of_the_kernel(n, nu):
    rng = np.random.default_rng(n)
    t = np.sort(rng.uniform(0.0, 1.0, n))  # with gaps of 1e-5 and less
    y = np.sin(8 * t) + 0.3 * rng.normal(size=n)
    model = SumOfTerms([MaternSeries("t", nu=nu)], DataTable("here", {"t": t}), intercept=False)
    family = model.family()
    for reach in (0.1, 0.3, 0.95):
        theta = np.log([0.8, reach])
        sol = fenchel.infer(fenchel.Gaussian(0.09), family.at(theta), y, tol=1e-10)
        K = 0.64 * kernel(t, t, reach, nu) + 0.09 * np.eye(n)
        assert sol.elbo == pytest.approx(multivariate_normal(np.zeros(n), K).logpdf(y), abs=2e-3)


@NUS
def test_learning_and_times_of_any_kind(nu):
    rng = np.random.default_rng(1)
    t = np.sort(rng.uniform(0.0, 50.0, 150))
    f = np.linalg.cholesky(kernel(t, t, 8.0, nu) + 1e-9 * np.eye(150)) @ rng.normal(size=150)
    data = pd.DataFrame({"day": t, "y": rng.poisson(np.exp(1.0 + f))})
    fit = fenchel.Model(f"y ~ matern(day, nu={nu})", data, family="poisson").fit()
    found = fit.hyperparameters.loc[f"matern(day,nu={nu})"]
    assert found.loc["range", "lower"] < 8.0 < found.loc["range", "upper"]
    assert found.loc["sd", "lower"] < 1.0 < found.loc["sd", "upper"]
    new = pd.DataFrame({"day": [t[3], 0.5 * (t[3] + t[4]), 50.0 + 1.0, 500.0]})
    link = fit.predict(new, kind="link", interval=0.95)
    width = (link["upper"] - link["lower"]).to_numpy()
    assert width[0] < width[2] < width[3]
    theta = np.exp(fit.theta)
    level = 2 * 1.959964 * np.sqrt(theta[0] ** 2 + fit.coefficients.loc["Intercept", "sd"] ** 2)
    assert width[3] == pytest.approx(level, rel=1e-3)  # far away nothing is known
    assert fit.sample(new, 20).shape == (20, 4)
    assert fit.predict(new, new_groups="error").shape == (4,)
    dates = data.assign(day=pd.Timestamp("2020-01-01") + pd.to_timedelta(t, unit="D"))
    assert fenchel.Model(f"y ~ matern(day, nu={nu})", dates, family="poisson").fit().elbo == pytest.approx(
        fit.elbo, abs=1e-4
    )


def test_one_half_is_the_ornstein_uhlenbeck_process():
    table = DataTable("here", {"t": T})
    one, other = MaternSeries("t", nu=0.5).read(table, 1.0), OrnsteinUhlenbeck("t").read(table, 1.0)
    theta = np.array([0.2, 1.1])
    (Q, slopes), (R, others) = one.precision(theta), other.precision(theta)
    for a, b in zip([Q, *slopes], [R, *others], strict=True):
        np.testing.assert_allclose(a.toarray(), b.toarray(), atol=1e-9)


def test_a_process_for_each_group():
    t = np.tile(np.arange(12.0), 3)
    table = DataTable("here", {"t": t, "g": np.repeat(list("abc"), 12)})
    model = SumOfTerms([Replicated(MaternSeries("t"), "g")], table, intercept=False)
    theta, y = np.log([0.7, 5.0]), np.random.default_rng(0).normal(size=36)
    sol = fenchel.infer(fenchel.Gaussian(0.2), model.family().at(theta), y, tol=1e-12)
    K = np.kron(np.eye(3), 0.49 * kernel(t[:12], t[:12], 5.0, 1.5)) + 0.2 * np.eye(36)
    assert sol.elbo == pytest.approx(multivariate_normal(np.zeros(36), K).logpdf(y), abs=1e-6)
    data = pd.DataFrame({"t": t, "g": np.repeat(list("abc"), 12), "y": y})
    assert fenchel.Model("y ~ matern(t, nu=1.5, by=g)", data).sum.effects[0].n_latents == 72
    with pytest.raises(ValueError, match=r"by= of a field over points; expected by= of a series in time"):
        fenchel.Model("y ~ matern(t, y, by=g)", data)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"nu = 1 is not known; expected 0.5 or 1.5 or 2.5"):
        MaternSeries("t", nu=1)
    with pytest.raises(ValueError, match="3 columns; expected one, a time, or two"):
        MaternSeries.serving([None, None, None])
    with pytest.raises(ValueError, match="has 1 time; expected at least 2"):
        MaternSeries("t").read(DataTable("here", {"t": [1.0, 1.0]}), 1.0)


def test_times_that_differ_by_rounding_share_a_latent():
    table = DataTable("here", {"t": [0.0, 1e-12, 1.0]})
    term = OrnsteinUhlenbeck("t").read(table, 1.0)
    assert (term.levels, term.n_latents) == ([0.0, 1e-12, 1.0], 2)
    np.testing.assert_allclose(term.rows(table).design.toarray(), [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], atol=1e-11)
