"""Durations known up to an interval, Cox's model, labels of several kinds and Tweedie amounts, against other means."""

import numpy as np
import pandas as pd
import pytest
from conftest import difference
from scipy import integrate, optimize, stats

import fenchel
from fenchel.checks import Refusal
from fenchel.likelihoods import Exponential, Interval, Tweedie, Weibull
from fenchel.plots.predictive_checks import kaplan_meier
from fenchel.priors import DenseCovariance

LOWER = np.array([1.3, 0.7, 0.0, 1.1, 2.0])
UPPER = np.array([1.3, np.inf, 0.9, 2.5, 2.0001])


# -- intervals -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("k", "unit"), [(1.0, 1.0), (1.7, 1.0), (0.6, 3.0)])
def test_an_interval_is_a_difference_of_survivals(k, unit):
    likelihood, eta = Interval(Weibull(k).changed(unit=unit), UPPER), np.array([-1.5, 0.2, 0.8])
    ours = likelihood.log_density(np.tile(eta, (5, 1)), likelihood.prepare(LOWER))
    for i, e in enumerate(eta):
        T = stats.weibull_min(k, scale=unit * np.exp(-e / k))
        truth = [T.logpdf(1.3), T.logsf(0.7), T.logcdf(0.9), np.log(T.cdf(2.5) - T.cdf(1.1)), T.logpdf(2.00005)]
        np.testing.assert_allclose(ours[:4, i], truth[:4], rtol=1e-10)
        assert ours[4, i] == pytest.approx(truth[4] + np.log(1e-4), abs=1e-7)  # a short one is a density


def test_the_shape_of_intervals_has_its_slope():
    likelihood = Interval(Weibull(1.3).changed(unit=2.0), UPPER)
    rng = np.random.default_rng(0)
    h, rho = rng.normal(size=(5, 1)), rng.gamma(2.0, 0.5, (5, 1))

    def value(theta):
        other = likelihood.with_theta(theta)
        rows = other.prepare(LOWER)
        return -(rows["weight"] * other.objective.f(h, rho, rows)).sum()

    gradient = likelihood.theta_gradient(h, rho, likelihood.prepare(LOWER))
    np.testing.assert_allclose(gradient, difference(value, likelihood.theta), rtol=1e-6)


def test_without_intervals_they_are_censored_on_the_right():
    rng = np.random.default_rng(0)
    S = 0.5 * np.exp(-np.abs(np.subtract.outer(np.arange(8), np.arange(8))))
    t, event = rng.exponential(size=8), np.array([1.0, 0, 1, 1, 0, 1, 1, 0])
    upper = np.where(event == 1.0, t, np.inf)
    one = fenchel.infer(Interval(Weibull(1.4), upper), DenseCovariance(S), t, tol=1e-10)
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
    assert isinstance(constant.likelihood.base, Exponential)
    assert constant.converged


@pytest.mark.parametrize(
    ("lower", "upper", "sentence"),
    [
        ([1.0, 2.0], [0.5, 2.0], r"upper\[0\] = 0.5 is below y\[0\] = 1"),
        ([-1.0, 2.0], [0.5, 2.0], r"y\[0\] = -1 is a negative duration"),
        ([0.0, 2.0], [0.0, 2.0], r"y\[0\] = 0 while upper\[0\] = 0: an event at time 0"),
    ],
)
def test_a_wrong_interval_gets_a_sentence(lower, upper, sentence):
    with pytest.raises(fenchel.checks.Refusal, match=sentence):
        Interval(Weibull(1.0), upper).prepare(lower)
    data = pd.DataFrame({"a": lower, "b": upper})
    with pytest.raises(
        fenchel.checks.Refusal, match='upper was given with likelihood="poisson"; expected upper only with "exp'
    ):
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


def by_hand(time, event, at):
    """Kaplan and Meier's estimate at a time, and its ends by Greenwood on the scale of log(-log S), in plain loops."""
    share, variance = 1.0, 0.0
    for t in sorted(set(time[event == 1])):
        if t <= at:
            n, d = int((time >= t).sum()), int(((time == t) & (event == 1)).sum())
            share *= 1 - d / n
            variance += d / (n * (n - d))
    if share == 1.0:
        return 1.0, 1.0, 1.0
    move = 1.959963984540054 * np.sqrt(variance) / np.log(share)
    return share, share ** np.exp(-move), share ** np.exp(move)


def test_kaplan_meier_with_its_band():
    rng = np.random.default_rng(0)
    time, event = rng.integers(1, 15, 40).astype(float), rng.integers(0, 2, 40)
    event[time == time.max()] = 0
    steps, share, lower, upper = kaplan_meier(time, event == 1)
    assert np.allclose(np.array([by_hand(time, event, t) for t in steps]).T, [share, lower, upper], rtol=1e-12)
    often = rng.integers(0, 4, 40)
    weighted = kaplan_meier(time, event == 1, often.astype(float))
    repeated = kaplan_meier(np.repeat(time, often), np.repeat(event, often) == 1)
    place = np.isin(weighted[0], repeated[0])
    assert np.allclose([part[place] for part in weighted], repeated, rtol=1e-12)
    assert np.isnan(kaplan_meier(np.array([1.0, 2.0]), np.array([True, True]))[2][-1])


@pytest.mark.parametrize("family", ["cox", "exponential"])
def test_pictures_of_durations_show_survival(family, tmp_path):
    data = durations(90, 3).assign(sex=np.tile(["f", "m"], 45))
    fit = fenchel.fit("cens(time, event) ~ x + sex", data, family)
    for by, kind, groups in ((None, "groups", 3), ("sex", None, 2), ("x", None, 3)):
        ax = fit.plot_check(kind, by=by)
        names = [line.get_label() for line in ax.lines[0 : 2 * groups : 2]]
        assert len(names) == groups
        risk = fit.coefficients.loc["x", "mean"] * data.x + fit.coefficients.loc["sex[T.m]", "mean"] * (data.sex == "m")
        rows = data[data.sex == "f"] if by == "sex" else data.iloc[np.argsort(risk if by is None else data.x)[:30]]
        assert names[0] == {None: "lower risk (30)", "sex": "sex = f (45)"}.get(by, names[0])
        steps, share = ax.lines[0].get_data()
        own = [by_hand(rows.time.to_numpy(), rows.event.to_numpy(), t)[0] for t in steps]
        assert np.allclose(share, own, atol=1e-12)
        at, model = ax.lines[1].get_data()
        assert np.allclose(model, fit.survival(rows, at, size=200).mean(axis=0), atol=1e-6)
    assert fit.plot_check("groups", by="risk").lines[0].get_label() == "lower risk (30)"
    new = {"x": [-1.0, 1.0], "sex": ["f", "m"]}
    ax = fit.plot_survival(new, [0.1, 0.5], size=300)
    table = fit.survival(new, [0.1, 0.5], interval=0.95, size=300)
    assert [line.get_label() for line in ax.lines] == ["x = -1, sex = f", "x = 1, sex = m"]
    assert np.allclose([line.get_ydata() for line in ax.lines], table["mean"])
    ends = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert ends.min() == pytest.approx(table["lower"].loc[0].min())
    assert ends.max() == pytest.approx(table["upper"].loc[0].max())
    assert fit.plot_survival(pd.DataFrame(new, index=["Ann", "Bob"])).lines[1].get_label() == "Bob"
    assert "Kaplan and Meier" in fit.report(tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(Refusal, match="90 curves; expected 1 to 7"):
        fit.plot_survival(data)
    with pytest.raises(Refusal, match="by: there is no column 'age'"):
        fit.plot_check(by="age")


@pytest.mark.parametrize("family", ["cox", "weibull"])
def test_events_that_are_coded_otherwise_are_told_how(family):
    data = durations(40).assign(status=lambda d: d["event"] + 1)
    data["state"] = np.where(data["event"] == 1, "dead", "alive")
    with pytest.raises(Refusal, match="Where 1 is censored and 2 an event, as R may code it"):
        fenchel.fit("cens(time, status) ~ x", data, family)
    with pytest.raises(Refusal, match=r"make a column of true and false: data\[\"event\"\] = data\[\"state\"\]"):
        fenchel.fit("cens(time, state) ~ x", data, family)


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
    centre = fit.survival(new[["x", "z"]], [0.5, 1.0], without="groups")  # no column g is needed
    np.testing.assert_allclose(centre, truth[:, 1:3], atol=0.1)
    eta = fit.contrast(new.iloc[[1]].assign(g=1), new.iloc[[0]])["mean"].iloc[0]  # hazards stay proportional
    np.testing.assert_allclose(np.log(centre.loc[1]) / np.log(centre.loc[0]), np.exp(eta), rtol=0.05)
    assert fit.plot_survival(new[["x", "z"]], without="groups") is not None


def test_ratios_of_a_cox_model_are_hazard_ratios(tmp_path):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=60), "t": rng.exponential(size=60), "died": rng.random(60) < 0.7})
    fit = fenchel.fit("cens(t, died) ~ x", data, family="cox")
    assert {"hazard_ratio", "hr_lower", "hr_upper"} <= set(fit.coefficients.columns)
    fit.save(tmp_path / "fit")
    assert "hazard_ratio" in fenchel.load(tmp_path / "fit").coefficients.columns


def test_answers_are_those_of_many_more_intervals(monkeypatch):
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=200), np.arange(200) % 40
    rate = np.exp(0.6 * x + 0.7 * rng.normal(size=40)[g])
    time, censored = rng.weibull(1.4, 200) / rate, rng.uniform(0.2, 4.0, 200)
    data = pd.DataFrame({"x": x, "g": g, "time": np.minimum(time, censored), "event": (time <= censored).astype(int)})
    few = fenchel.fit("cens(time, event) ~ x + (1|g)", data, "cox")
    monkeypatch.setattr("fenchel.models.cox._MOST", 60)
    many = fenchel.fit("cens(time, event) ~ x + (1|g)", data, "cox")
    assert few.model.reduction.rows.size < 0.4 * many.model.reduction.rows.size
    shift = (few.coefficients["mean"] - many.coefficients["mean"]) / many.coefficients["sd"]
    assert abs(shift["x"]) < 0.05
    assert np.allclose(few.coefficients["sd"]["x"], many.coefficients["sd"]["x"], rtol=0.02)
    at = np.quantile(data["time"], [0.1, 0.5, 0.8])
    alike = [fit.survival(data[:3], at, size=500, rng=0).to_numpy() for fit in (few, many)]
    assert np.abs(alike[0] - alike[1]).max() < 0.02


def test_many_event_times_are_put_into_intervals():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    data = pd.DataFrame({"x": x, "time": rng.exponential(size=300) * np.exp(-0.7 * x), "event": 1})
    fit = fenchel.fit("cens(time, event) ~ x", data, "cox")
    assert len(fit.model.reduction.edges) == 17
    assert abs(fit.coefficients.loc["x", "mean"] - 0.7) < 3 * fit.coefficients.loc["x", "sd"]
    with pytest.raises(fenchel.checks.Refusal, match=r'"cox" meets the response .time.; expected cens\(time, event\)'):
        fenchel.Model("time ~ x", data, "cox")
    with pytest.raises(fenchel.checks.Refusal, match=r"an event that is computed.*Make it a column"):
        fenchel.Model("cens(time, event - 1) ~ x", data, "cox")
    with pytest.raises(fenchel.checks.Refusal, match="Where 1 is censored and 2 an event, as R may code it"):
        fenchel.Model("cens(time, event) ~ x", data.assign(event=1 + (data.x > 0)), "cox")
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


def test_durations_of_weight_three_are_three_durations():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=40), "t": rng.exponential(size=40), "w": rng.integers(0, 4, 40)})
    data["e"] = (rng.random(40) < 0.8).astype(float)
    one = fenchel.fit("cens(t, e) ~ x", data, family="cox", weights="w")
    many = fenchel.fit("cens(t, e) ~ x", data.loc[data.index.repeat(data.w)].reset_index(drop=True), family="cox")
    np.testing.assert_allclose(one.model.reduction.edges, many.model.reduction.edges, rtol=1e-12)
    assert one.elbo == pytest.approx(many.elbo, abs=2e-3)
    np.testing.assert_allclose(one.coefficients, many.coefficients, rtol=2e-3, atol=1e-6)


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
    assert fit.solution.certificate == "strong-concavity"
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
    with pytest.raises(fenchel.checks.Refusal, match="kind = 'link' is not known; expected 'mean'"):
        fit.sample(data.head(1), 3, kind="link")
    with pytest.raises(fenchel.checks.Refusal, match=r"waic: this is asked of one predictor.*expected loo\(\)"):
        fit.waic()
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


@pytest.mark.parametrize("integrate", [None, "grid"])
def test_survival_of_weibull_fits(integrate):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=150), "g": rng.integers(0, 8, 150)})
    t = 100 * (rng.exponential(size=150) * np.exp(-0.7 * data.x)) ** (1 / 1.5)
    data["t"], data["event"] = np.minimum(t, 150.0), (t <= 150.0).astype(int)
    fit = fenchel.fit("cens(t, event) ~ x + (1|g)", data, "weibull", integrate=integrate)
    new, times = pd.DataFrame({"x": [-1.0, 0.0, 1.0], "g": [0, 1, 99]}), [0.0, 50.0, 120.0]
    found = fit.survival(new, times, interval=0.9, size=4000)
    assert found["mean"].shape == (3, 3)
    assert (found["mean"][0.0] == 1.0).all()
    drawn = fit.sample(new, 40_000, 1, kind="outcome")  # the share of simulated durations that last longer
    np.testing.assert_allclose(found["mean"][50.0], (drawn > 50.0).mean(axis=0), atol=0.02)
    np.testing.assert_allclose(found["mean"][120.0], (drawn > 120.0).mean(axis=0), atol=0.02)
    assert (found["lower"].to_numpy() <= found["mean"].to_numpy() + 1e-12).all()
    centre = fit.survival(new[["x"]], times, size=4000, without="groups")
    drawn = fit.sample(new[["x"]], 40_000, 1, kind="outcome", without="groups")
    np.testing.assert_allclose(centre[50.0], (drawn > 50.0).mean(axis=0), atol=0.02)
    with pytest.raises(ValueError, match='family="weibull", "exponential" or "cox"'):
        fenchel.fit("x ~ 1", data).survival(new, times)
