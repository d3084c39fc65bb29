"""Durations known up to an interval, Cox's model, labels of several kinds and Tweedie amounts, against other means."""

import numpy as np
import pandas as pd
import pytest
from conftest import difference
from scipy import integrate, optimize, stats

import fenchel
from fenchel.likelihoods import IntervalExponential, IntervalWeibull, Tweedie, Weibull
from fenchel.priors import DenseCovariance

LOWER = np.array([1.3, 0.7, 0.0, 1.1, 2.0])
UPPER = np.array([1.3, np.inf, 0.9, 2.5, 2.0001])


# -- intervals -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("k", "unit"), [(1.0, 1.0), (1.7, 1.0), (0.6, 3.0)])
def test_an_interval_is_a_difference_of_survivals(k, unit):
    likelihood, eta = IntervalWeibull(k, UPPER, unit), np.array([-1.5, 0.2, 0.8])
    ours = likelihood.log_density(np.tile(eta, (5, 1)), likelihood.prepare(LOWER))
    for i, e in enumerate(eta):
        T = stats.weibull_min(k, scale=unit * np.exp(-e / k))
        truth = [T.logpdf(1.3), T.logsf(0.7), T.logcdf(0.9), np.log(T.cdf(2.5) - T.cdf(1.1)), T.logpdf(2.00005)]
        np.testing.assert_allclose(ours[:4, i], truth[:4], rtol=1e-10)
        assert ours[4, i] == pytest.approx(truth[4] + np.log(1e-4), abs=1e-7)  # a short one is a density


def test_the_shape_of_intervals_has_its_slope():
    likelihood = IntervalWeibull(1.3, UPPER, 2.0)
    rng = np.random.default_rng(0)
    h, rho = rng.normal(size=(5, 1)), rng.gamma(2.0, 0.5, (5, 1))

    def value(theta):
        other = likelihood.with_theta(theta)
        rows = other.prepare(LOWER)
        return -(rows["weight"] * other.objective.f(h, rho, rows)).sum()

    gradient = likelihood.theta_gradient(h, rho, likelihood.prepare(LOWER))
    np.testing.assert_allclose(gradient, difference(value, likelihood.theta), rtol=1e-6)
    each = likelihood.theta_slopes(np.zeros((5, 1)), likelihood.prepare(LOWER))[0, :, 0]
    point = likelihood.theta_gradient(np.zeros((5, 1)), np.full((5, 1), 1e-14), likelihood.prepare(LOWER))
    assert -each.sum() == pytest.approx(point[0], rel=1e-6)


def test_without_intervals_they_are_censored_on_the_right():
    rng = np.random.default_rng(0)
    S = 0.5 * np.exp(-np.abs(np.subtract.outer(np.arange(8), np.arange(8))))
    t, event = rng.exponential(size=8), np.array([1.0, 0, 1, 1, 0, 1, 1, 0])
    upper = np.where(event == 1.0, t, np.inf)
    one = fenchel.infer(IntervalWeibull(1.4, upper), DenseCovariance(S), t, tol=1e-10)
    other = fenchel.infer(Weibull(1.4, event), DenseCovariance(S), t, tol=1e-10)
    assert one.elbo == pytest.approx(other.elbo, abs=1e-8)
    assert one.certificate == "strong-concavity"
    assert np.isfinite(one.gap)


def test_a_model_of_intervals_finds_what_seen_times_say():
    rng = np.random.default_rng(2)
    n = 400
    g, x = rng.integers(0, 20, n), rng.normal(size=n)
    eta = -1 + 0.7 * x + 0.5 * rng.normal(size=20)[g]
    t = (rng.exponential(size=n) * np.exp(-eta)) ** (1 / 1.4)
    left = np.floor(t * 4) / 4
    lower, upper = np.where(t > 4.0, 4.0, left), np.where(t > 4.0, np.inf, left + 0.25)
    data = pd.DataFrame({"lower": lower, "upper": upper, "x": x, "g": g, "t": t})
    fit = fenchel.fit("interval(lower, upper) ~ x + (1|g)", data, "weibull")
    seen = fenchel.fit("t ~ x + (1|g)", data, "weibull")
    assert fit.converged
    for name in ("Intercept", "x"):
        gap = fit.coefficients.loc[name, "mean"] - seen.coefficients.loc[name, "mean"]
        assert abs(gap) < seen.coefficients.loc[name, "sd"]
    own = fit.hyperparameters.loc[("IntervalWeibull", "shape")]
    assert own["value"] == pytest.approx(seen.hyperparameters.loc[("Weibull", "shape"), "value"], rel=0.05)
    said = fit.predict(data.head(50), interval=0.9, kind="outcome")
    assert 0.75 < ((t[:50] > said["lower"]) & (t[:50] < said["upper"])).mean() <= 1.0
    constant = fenchel.fit("interval(lower, upper) ~ x", data, "exponential")
    assert isinstance(constant.likelihood, IntervalExponential)
    assert constant.converged


@pytest.mark.parametrize(
    ("lower", "upper", "sentence"),
    [
        ([1.0, 2.0], [0.5, 2.0], r"upper\[0\] = 0.5 is below y\[0\] = 1"),
        ([-1.0, 2.0], [0.5, 2.0], r"y\[0\] = -1 is a negative duration"),
        ([0.0, 2.0], [0.0, 2.0], r"y\[0\] = upper\[0\] = 0: it ended as it began"),
    ],
)
def test_a_wrong_interval_gets_a_sentence(lower, upper, sentence):
    with pytest.raises(fenchel.checks.Refusal, match=sentence):
        IntervalWeibull(1.0, upper).prepare(lower)
    data = pd.DataFrame({"a": lower, "b": upper})
    with pytest.raises(fenchel.checks.Refusal, match='upper meets likelihood="poisson"; expected upper with "exp'):
        fenchel.Model("interval(a, b) ~ 1", data.assign(a=[1.0, 2.0]), "poisson")


# -- Cox -----------------------------------------------------------------------------------------------
def durations(n=200, seed=3):
    rng = np.random.default_rng(seed)
    x, z, g = rng.normal(size=n), rng.normal(size=n), rng.integers(0, 10, n)
    t = np.ceil((rng.exponential(size=n) * np.exp(-0.7 * x + 0.4 * z)) ** (1 / 1.4) * 10) / 10
    c = np.ceil(rng.uniform(0.2, 3, n) * 10) / 10
    return pd.DataFrame({"time": np.minimum(t, c), "event": (t <= c).astype(int), "x": x, "z": z, "g": g})


def breslow(data):
    """The maximum of the partial likelihood with Breslow's ties, and standard errors."""
    X, t, event, b = data[["x", "z"]].to_numpy(), data.time.to_numpy(), data.event.to_numpy(), np.zeros(2)
    for _ in range(20):
        slope, bend = np.zeros(2), np.zeros((2, 2))
        for i in np.flatnonzero(event):
            risk = X[t >= t[i]]
            w = np.exp(risk @ b)
            w /= w.sum()
            slope += X[i] - w @ risk
            bend += (risk * w[:, None]).T @ risk - np.outer(w @ risk, w @ risk)
        b = b + np.linalg.solve(bend, slope)
    return b, np.sqrt(np.diag(np.linalg.inv(bend)))


def test_cox_with_a_free_baseline_is_the_partial_likelihood():
    data = durations()
    fit = fenchel.fit("cens(time, event) ~ x + z", data, "cox", baseline="free")
    b, se = breslow(data)
    found = fit.coefficients.loc[["x", "z"]]
    assert np.abs((found["mean"] - b) / se).max() < 0.03
    np.testing.assert_allclose(found["sd"], se, rtol=0.02)
    assert fit.solution.certificate == "duality"


def test_cox_with_a_walk_predicts_survival():
    data = durations(300)
    fit = fenchel.fit("cens(time, event) ~ x + z + (1|g)", data, "cox")
    b, se = breslow(data)
    assert np.abs((fit.coefficients.loc[["x", "z"], "mean"] - b) / se).max() < 0.5
    assert "cox, as counts of events in intervals" in fit.summary()
    new = pd.DataFrame({"x": [0.0, 1.0], "z": [0.0, 0.0], "g": [1, 99]})
    said = fit.survival(new, [0.0, 0.5, 1.0, 2.0], interval=0.9)
    truth = np.exp(-np.outer(np.exp([0.0, 0.7]), np.array([0.0, 0.5, 1.0, 2.0]) ** 1.4))
    np.testing.assert_allclose(said["mean"], truth, atol=0.13)
    assert (said["lower"].to_numpy() <= said["upper"].to_numpy()).all()
    assert (np.diff(said["mean"].to_numpy(), axis=1) < 0).all()
    with pytest.raises(fenchel.checks.Refusal, match="times beyond the data"):
        fit.survival(new, [100.0])


def test_many_event_times_are_put_into_intervals():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    data = pd.DataFrame({"x": x, "time": rng.exponential(size=300) * np.exp(-0.7 * x), "event": 1})
    fit = fenchel.fit("cens(time, event) ~ x", data, "cox")
    assert len(fit.model.cox.edges) == 61
    assert abs(fit.coefficients.loc["x", "mean"] - 0.7) < 3 * fit.coefficients.loc["x", "sd"]
    with pytest.raises(fenchel.checks.Refusal, match=r'"cox" meets the response .time.; expected cens\(time, event\)'):
        fenchel.Model("time ~ x", data, "cox")
    with pytest.raises(fenchel.checks.Refusal, match="weights is an array"):
        fenchel.Model("cens(time, event) ~ x", data, "cox", weights=np.ones(300))


# -- labels of several kinds ---------------------------------------------------------------------------
def labelled(n=500, seed=0, sd=0.7):
    rng = np.random.default_rng(seed)
    x, g, U = rng.normal(size=n), rng.integers(0, 15, n), sd * rng.normal(size=(15, 2))
    eta = np.column_stack([np.zeros(n), 0.5 + 0.8 * x + U[g, 0], -0.3 - 0.5 * x + U[g, 1]])
    p = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    code = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    return pd.DataFrame({"x": x, "g": g, "y": np.array(["a", "b", "c"])[code]}), code


def test_classes_without_groups_are_a_softmax_regression():
    data, code = labelled(1500, sd=0.0)
    fit = fenchel.fit("y ~ x", data, "multinomial")
    X = np.column_stack([np.ones(len(data)), data.x])

    def loss(b):
        eta = np.column_stack([np.zeros(len(X)), X @ b.reshape(2, 2).T])
        return -(eta[np.arange(len(X)), code] - np.log(np.exp(eta).sum(axis=1))).sum()

    best = optimize.minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8})
    se = np.sqrt(np.diag(np.linalg.inv(difference(lambda b: difference(loss, b, 1e-4), best.x, 1e-4))))
    found = fit.coefficients
    assert np.abs((found["mean"].to_numpy() - best.x) / se).max() < 0.08
    assert (found["sd"] < 1.02 * se).all()  # each class as if the others were known
    assert (found["sd"] > 0.8 * se).all()
    assert list(found.index) == [("b", "Intercept"), ("b", "x"), ("c", "Intercept"), ("c", "x")]


def test_classes_with_groups():
    data, code = labelled()
    fit = fenchel.fit("y ~ x + (1|g)", data, "categorical")
    assert fit.converged
    assert fit.solution.certificate == "duality"
    assert "multinomial, against 'a'" in fit.summary()
    group = fit.hyperparameters.loc[("(1|g)", "sd")]
    assert group["lower"] < 0.7 < group["upper"]
    assert fit.effects["(1|g)"].shape[0] == 2 * 15
    p = fit.predict(data)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(p.mean(), np.bincount(code) / len(code), atol=0.02)
    assert (fit.predict(data, "class") == data.y).mean() > 0.5
    draws = fit.sample(data.head(4), 4000, 0)
    assert draws.shape == (4000, 4, 3)
    np.testing.assert_allclose(draws.mean(axis=0), p.head(4), atol=0.01)
    strange = fit.predict(pd.DataFrame({"x": [0.0], "g": [99]}))
    np.testing.assert_allclose(strange.sum(axis=1), 1.0)
    with pytest.raises(fenchel.checks.Refusal, match="this is asked of one predictor"):
        fit.contrast(data.head(1), data.tail(1))
    missing = data.copy()
    missing.loc[3, "y"] = None
    assert np.isnan(fenchel.Model("y ~ x", missing, "multinomial").target.y[3])


# -- Tweedie -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("phi", "p", "mu"), [(0.7, 1.3, 2.0), (2.0, 1.7, 0.5), (1.0, 1.05, 3.0), (0.05, 1.5, 10.0)])
def test_tweedie_is_a_poisson_number_of_gamma_jumps(phi, p, mu):
    likelihood, y = Tweedie(phi, p), np.array([0.0, 0.1, 1.0, 3.0, 12.0])
    rate, shape, scale = mu ** (2 - p) / (phi * (2 - p)), (2 - p) / (p - 1), phi * (p - 1) * mu ** (p - 1)
    j = np.arange(1, 2000)
    jumps = stats.poisson.pmf(j, rate)
    truth = [np.log(jumps @ stats.gamma.pdf(v, j * shape, scale=scale)) if v else -rate for v in y]
    at = np.full((5, 1), np.log(mu))
    np.testing.assert_allclose(likelihood.log_density(at, likelihood.prepare(y))[:, 0], truth, rtol=1e-10)
    below = np.exp(-rate) + np.array([jumps @ stats.gamma.cdf(v, j * shape, scale=scale) for v in y])
    if p == 1.5:  # the sum of very many jumps
        far = np.array([0.9e8, 1.1e8]) ** (1 / (2 - p)) * (phi * (2 - p)) ** (1 / (2 - p))
        rows = likelihood.prepare(far)
        for key in ("log_a", "jumps", "slope"):
            assert rows[key][1] / rows[key][0] == pytest.approx(1.1 / 0.9, rel=0.02)
        near = likelihood.log_density(np.log(far)[:, None], rows)[:, 0]
        np.testing.assert_allclose(near, -0.5 * np.log(2 * np.pi * phi * far**p), atol=1e-6)
    np.testing.assert_allclose(likelihood.cdf(y[:, None], at)[:, 0], below, rtol=1e-10, atol=1e-15)
    assert likelihood.variance_at(np.array([np.log(mu)]))[0] == pytest.approx(phi * mu**p)


def test_tweedie_learns_its_power():
    likelihood, y = Tweedie.example(np.random.default_rng(1), 6)
    rng = np.random.default_rng(0)
    h, rho = rng.normal(size=(6, 1)), rng.gamma(2.0, 0.5, (6, 1))

    def value(theta):
        other = likelihood.with_theta(theta)
        rows = other.prepare(y)
        return -(rows["weight"] * other.objective.f(h, rho, rows)).sum()

    gradient = likelihood.theta_gradient(h, rho, likelihood.prepare(y))
    np.testing.assert_allclose(gradient, difference(value, likelihood.theta), rtol=1e-6)
    n = 300
    data = pd.DataFrame({"x": rng.normal(size=n), "g": rng.integers(0, 15, n)})
    eta = 0.5 + 0.4 * data.x + 0.5 * rng.normal(size=15)[data.g]
    data["y"] = Tweedie(1.2, 1.6).draw(eta.to_numpy()[:, None], rng)[:, 0]
    fit = fenchel.fit("y ~ x + (1|g)", data, "tweedie")
    assert fit.converged
    assert fit.solution.certificate == "strong-concavity"
    own = fit.hyperparameters.loc["Tweedie"]
    assert (own["lower"] * 0.95 < [1.2, 1.6]).all()
    assert (own["upper"] * 1.05 > [1.2, 1.6]).all()
    assert abs(fit.coefficients.loc["x", "mean"] - 0.4) < 3 * fit.coefficients.loc["x", "sd"]
    said = fit.predict(data.head(12), "outcome", interval=0.8)
    assert (said["lower"] >= 0.0).all()
    assert (said["lower"] == 0.0).any()


def test_a_density_with_mass_at_zero_is_integrated_with_it():
    likelihood = Tweedie(1.0, 1.5)
    p0 = np.exp(likelihood.log_density(np.zeros((1, 1)), likelihood.prepare([0.0])))[0, 0]

    def density(v):
        return np.exp(likelihood.log_density(np.zeros((1, 1)), likelihood.prepare([v])))[0, 0]

    rest = integrate.quad(density, 0.0, 3.0, limit=200)[0]
    assert likelihood.cdf(3.0, np.zeros((1, 1)))[0, 0] == pytest.approx(p0 + rest, rel=1e-7)
