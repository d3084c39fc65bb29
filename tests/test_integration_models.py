"""Models with their hyperparameters integrated out, against a fine grid of theta written out, and their own draws."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, poisson

import fenchel


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(2)
    g = np.repeat(np.arange(12), 3)
    y = rng.poisson(np.exp(0.5 + 0.4 * rng.normal(size=12)[g]))
    return pd.DataFrame({"y": y, "g": g})


@pytest.fixture(scope="module")
def fits(data):
    model = fenchel.Model("y ~ (1|g)", data, family="poisson", priors={"(1|g)": fenchel.PC(sd=1.0, alpha=0.01)})
    return model.fit(), model.fit(integrate="auto")


@pytest.fixture(scope="module")
def truth(data):
    """p(sd, intercept | y) on a grid; given both, groups are apart: E and Var of each, by sums."""
    sds, level = np.exp(np.linspace(-7.0, 1.0, 60)), np.linspace(-0.9, 1.7, 66)
    nodes = np.linspace(-6.0, 6.0, 121)
    sums = data.groupby("g")["y"].sum().to_numpy()
    centre = np.log(data["y"].mean())
    log_p = np.empty((sds.size, level.size))
    moments = np.empty((2, 12, sds.size, level.size))
    for i, sd in enumerate(sds):
        b = sd * nodes
        like = poisson(3.0 * np.exp(level[:, None] + b)).pmf(sums[:, None, None]) * norm.pdf(nodes)
        total = like.sum(axis=2)
        log_p[i] = np.log(total).sum(axis=0) + norm(centre, 10.0).logpdf(level)
        log_p[i] += np.log(sd) - np.log(100.0) * sd  # an exponential sd, even steps of its log
        moments[:, :, i] = (like @ b) / total, (like @ b**2) / total
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    return {
        "p": p,
        "sd": sds,
        "p_sd": p.sum(axis=1),
        "level": level,
        "p_level": p.sum(axis=0),
        "b": (moments * p).sum(axis=(2, 3)),
    }


def test_hyperparameters_have_means_and_intervals(fits, truth):
    found = fits[1]
    assert found.integrated is not None
    assert found.converged
    row = found.hyperparameters.iloc[0]
    mean = truth["p_sd"] @ truth["sd"]
    sd = np.sqrt(truth["p_sd"] @ (truth["sd"] - mean) ** 2)
    below = np.cumsum(truth["p_sd"]) - 0.5 * truth["p_sd"]
    at = int(np.argmax(truth["p_sd"])) + np.arange(-1, 2)
    bend = np.polyfit(np.log(truth["sd"][at]), np.log(truth["p_sd"][at]), 2)
    assert row["value"] == pytest.approx(np.exp(-bend[1] / 2 / bend[0]), rel=0.02)
    assert row["mean"] == pytest.approx(mean, abs=0.03 * sd)
    assert row["sd"] == pytest.approx(sd, rel=0.04)
    for name, q in (("lower", 0.025), ("median", 0.5), ("upper", 0.975)):
        assert row[name] == pytest.approx(np.interp(q, below, truth["sd"]), abs=0.08 * sd)


def test_effects_and_coefficients_are_mixtures(fits, truth):
    plain, found = fits
    mean, square = truth["b"]
    sd = np.sqrt(square - mean**2)
    table = found.effects["g"]
    assert list(table.columns) == list(plain.effects["g"].columns)
    assert np.abs((table["mean"] - mean) / sd).max() < 0.03
    assert table["sd"].to_numpy() == pytest.approx(sd, rel=0.03)
    assert np.abs(np.log(plain.effects["g"]["sd"] / sd)).mean() > 3 * np.abs(np.log(table["sd"] / sd)).mean()
    level = truth["p_level"] @ truth["level"]
    wide = np.sqrt(truth["p_level"] @ (truth["level"] - level) ** 2)
    row = found.coefficients.iloc[0]
    below = np.cumsum(truth["p_level"]) - 0.5 * truth["p_level"]
    assert list(found.coefficients.columns) == list(plain.coefficients.columns)
    assert row["mean"] == pytest.approx(level, abs=0.03 * wide)
    assert row["sd"] == pytest.approx(wide, rel=0.03)
    assert row["lower"] == pytest.approx(np.interp(0.025, below, truth["level"]), abs=0.06 * wide)
    assert np.sqrt(found.covariance.iloc[0, 0]) == pytest.approx(wide, rel=0.03)


def test_predictions_agree_with_draws(fits):
    found = fits[1]
    new = pd.DataFrame({"g": [0, 3, 99]})  # the last is a group that fit has not seen
    draws = found.sample(new, 20_000, 0)
    told = found.predict(new, interval=0.9)
    sd = draws.std(axis=0)
    assert np.abs((draws.mean(axis=0) - told["mean"]) / sd).max() < 0.04
    assert np.abs((np.quantile(draws, 0.05, axis=0) - told["lower"]) / sd).max() < 0.05
    assert np.abs((np.quantile(draws, 0.95, axis=0) - told["upper"]) / sd).max() < 0.08
    counts = found.sample(new, 20_000, 1, kind="outcome")
    outcome = found.predict(new, "outcome", interval=0.9)
    for j in range(3):
        assert (counts[:, j] <= outcome["upper"].iloc[j]).mean() >= 0.94
        assert (counts[:, j] < outcome["upper"].iloc[j]).mean() <= 0.96
    link = found.predict(new, "link", interval=0.9)
    assert np.log(told["upper"].to_numpy()) == pytest.approx(link["upper"].to_numpy(), abs=0.02)
    apart = found.contrast(new[:1], new[1:2])
    eta = found.sample(new, 20_000, 2, kind="link")
    assert apart["mean"].iloc[0] == pytest.approx((eta[:, 0] - eta[:, 1]).mean(), abs=0.03)
    assert apart["upper"].iloc[0] == pytest.approx(np.quantile(eta[:, 0] - eta[:, 1], 0.975), abs=0.06)


def test_it_is_kept_and_says_what_it_is(fits, tmp_path):
    plain, found = fits
    assert "integrated over" in found.summary()
    assert "by the evidence about its mode" in plain.summary()
    assert f"{len(found.integrated.solutions)} fits weighted by the corrected evidence" in found.summary()
    assert found.loo().elpd == pytest.approx(plain.loo().elpd, abs=1.0)
    found.save(tmp_path / "fit")
    again = fenchel.load(tmp_path / "fit")
    assert again.predict().to_numpy() == pytest.approx(found.predict().to_numpy())
    with pytest.raises(ValueError, match="integrate = 'all' is not known"):
        found.model.fit(integrate="all")


def test_it_is_corrected_already(fits):
    assert fits[1].corrected() is fits[1]
    assert fits[1].integrated.evidence == "corrected"


def test_families_with_parameters_of_their_own():
    rng = np.random.default_rng(4)
    data = pd.DataFrame({"x": rng.normal(size=60), "g": np.repeat(np.arange(10), 6)})
    data["y"] = 1.0 + 0.5 * data["x"] + 0.5 * rng.normal(size=10)[data["g"]] + rng.normal(size=60) * 0.7
    found = fenchel.fit("y ~ x + (1|g)", data, integrate="grid")
    assert [name for _, name in found.hyperparameters.index][-1] == "sd"
    assert (found.hyperparameters["lower"] < found.hyperparameters["upper"]).all()
    told, draws = found.predict(interval=0.9), found.sample(None, 8000, 0)
    assert np.abs(draws.mean(axis=0) - told["mean"]).max() < 0.03
    assert np.abs(np.quantile(draws, 0.95, axis=0) - told["upper"]).max() < 0.05
    y = found.sample(None, 8000, 1, kind="outcome")
    outcome = found.predict(kind="outcome", interval=0.9)
    assert np.abs(np.quantile(y, 0.95, axis=0) - outcome["upper"]).max() < 0.1


def test_labels_have_probabilities():
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"g": np.repeat(np.arange(15), 4)})
    data["y"] = np.where(rng.random(60) < 1 / (1 + np.exp(-rng.normal(size=15)[data["g"]])), "yes", "no")
    found = fenchel.fit("y ~ (1|g)", data, family="bernoulli", integrate="auto")
    p = found.predict(kind="probability")
    assert list(p.columns) == ["no", "yes"]
    assert p.sum(axis=1).to_numpy() == pytest.approx(np.ones(60))
    assert found.predict().to_numpy() == pytest.approx(p["yes"].to_numpy(), abs=1e-6)
    assert found.sample(None, 4000, 0).mean(axis=0) == pytest.approx(p["yes"].to_numpy(), abs=0.02)


def test_the_value_of_a_hyperparameter_is_the_mode_of_what_was_integrated():
    rng = np.random.default_rng(4)
    groups = rng.normal(0.0, 2.0, 60)
    y = (rng.random((60, 4)) < 1 / (1 + np.exp(-groups[:, None]))).astype(int)
    data = pd.DataFrame({"g": np.repeat(np.arange(60), 4).astype(str), "y": y.ravel()})
    options = {"family": "bernoulli", "integrate": "auto", "priors": {"(1|g)": fenchel.PC(sd=5, alpha=0.05)}}
    fit = fenchel.fit("y ~ 0 + (1|g)", data, **options)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    sds, hits = np.linspace(0.8, 4.0, 321), y.sum(axis=1)
    eta = sds[:, None] * nodes
    log_p = hits[:, None, None] * eta - 4 * np.logaddexp(0.0, eta)  # groups, sds, nodes
    evidence = np.log(np.exp(log_p) @ (weights / weights.sum())).sum(axis=0)
    rate = -np.log(0.05) / 5
    mode = sds[np.argmax(evidence - rate * sds + np.log(sds))]  # of log sd: exponential sd, and d sd / d theta
    assert fit.hyperparameters["value"].iloc[0] == pytest.approx(mode, abs=0.03)
    assert abs(np.exp(fit.theta[0]) - mode) > 0.06  # the elbo's


def test_ends_of_effects_are_right_where_their_sd_may_vanish(fits, truth, data):
    """P(b <= each end) by sums, of the groups with the largest and the smallest count."""
    frame, nodes = fits[1].effects["g"], np.linspace(-6.0, 6.0, 241)
    sums = data.groupby("g")["y"].sum().to_numpy()
    for group in (int(np.argmax(sums)), int(np.argmin(sums))):
        for name, q in (("lower", 0.025), ("upper", 0.975)):
            below = 0.0
            for i, sd in enumerate(truth["sd"]):
                like = poisson(3.0 * np.exp(truth["level"][:, None] + sd * nodes)).pmf(sums[group]) * norm.pdf(nodes)
                total = np.cumsum(like, axis=1) - 0.5 * like
                end = frame[name].iloc[group] / sd
                share = np.array([np.interp(end, nodes, row) for row in total / like.sum(axis=1, keepdims=True)])
                below += truth["p"][i] @ share
            assert below == pytest.approx(q, abs=0.004)


def test_four_hyperparameters_with_a_long_tail_are_on_a_lattice():
    rng = np.random.default_rng(1)
    x, g = rng.normal(size=48), np.arange(48) % 8
    y = np.digitize(0.4 * x + 0.1 * rng.normal(size=8)[g] + rng.logistic(size=48), [-1.0, 0.2, 1.5])
    data = pd.DataFrame({"x": x, "g": g.astype(str), "y": pd.Categorical(y, ordered=True)})
    model = fenchel.Model("y ~ x + (1|g)", data, family="ordinal")
    fit = model.fit(integrate="auto")
    assert fit.integrated.method == "grid"
    with pytest.warns(UserWarning, match="a long tail, which a composite design does not follow"):
        coarse = model.fit(integrate="ccd")
    assert "long tail" in coarse.summary().splitlines()[0]
    assert coarse.integrated.status.startswith("(1|g): log sd: a long tail")


def test_a_family_that_is_not_log_concave_has_no_infinite_gap_in_words():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.arange(40) % 5, "y": rng.standard_t(4, 40)})
    fit = fenchel.fit("y ~ (1|g)", data, "student-t", integrate="auto")
    assert np.isinf(fit.integrated.gap)
    for text in (fit.integrated.status, fit.summary()):
        assert "inf" not in text.replace("inference", "")
        assert "a stationary point" in text


def test_rules_that_disagree_are_said_first_and_the_table_follows_the_points(data, monkeypatch):
    monkeypatch.setattr("fenchel.hyperparameters.integration.fitted_design.RULES_APART", -1.0)  # any two rules disagree
    with pytest.warns(UserWarning, match="two rules of integration are"):
        fit = fenchel.fit("y ~ (1|g)", data, family="poisson", integrate="auto")
    assert fit.summary().splitlines()[0].startswith("CHECK: two rules of integration are")
    assert fit.integrated.status.index("two rules") < fit.integrated.status.index("converged")
    mixed = fit.integrated
    density = mixed.theta.log_density
    at, w = density.draws
    u, points = density.coordinates.u(at), density.coordinates.u(np.asarray(mixed.thetas))
    nearest = np.abs(u - points.T).argmin(axis=1)
    np.testing.assert_allclose(np.bincount(nearest, w, len(mixed.weights)), mixed.weights, atol=0.01)
    assert fit.hyperparameters["mean"].iloc[0] == pytest.approx(w @ np.exp(at[:, 0]), rel=1e-3)
