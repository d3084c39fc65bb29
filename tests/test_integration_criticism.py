"""Groups, folds and contrasts of integrated fits follow the mixture: against integrations of their own, and draws."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import nbinom

import fenchel
from fenchel.checks import Refusal
from fenchel.criticism import k_fold, leave_group_out, leave_group_out_over
from fenchel.criticism.group_prediction import LeftOutGroups, groups_about
from fenchel.hyperparameters.integration.integrated import MATCHED_DRAWS
from fenchel.hyperparameters.integration.mixture import without
from fenchel.models.tables import described_theta
from fenchel.solvers.solution import Solution


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    g, x = np.repeat(np.arange(10), 8), rng.normal(size=80)
    eta = 0.5 + 0.5 * x + 0.6 * rng.normal(size=10)[g]
    return pd.DataFrame({"y": rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(eta))), "x": x, "g": g})


@pytest.fixture(scope="module")
def fit(data):
    priors = {"(1|g)": fenchel.PC(sd=1, alpha=0.01)}  # exp of a new group has no variance under a wide one
    return fenchel.fit("y ~ x + (1|g)", data, family="negative-binomial", integrate="auto", priors=priors)


@pytest.fixture(scope="module")
def some(data):
    """Folds: two groups each alone, and all the others together."""
    return data["g"].map({1: 0, 2: 1}).fillna(2).to_numpy()


@pytest.fixture(scope="module")
def folds(fit, some):
    return fit.k_fold(some)


@pytest.fixture(scope="module")
def left_out(fit):
    return fit.leave_group_out("g", neighbours=80, refit="none")


def test_groups_agree_with_integrations_without_them(fit, folds, left_out):
    out = left_out
    plain = leave_group_out(fit.solution, fit.model.frame["g"].to_numpy(), prior=fit.found.prior)
    sure = np.concatenate([out.groups[g] for g in (1, 2)])
    assert not out.flagged[[1, 2]].any()
    off = np.abs(out.log_density - folds.log_density)[sure].mean()
    assert off < 0.005
    assert off < 0.3 * np.abs(plain.log_density - folds.log_density)[sure].mean()
    assert np.abs(np.log(out.variance / folds.variance))[sure].mean() < 0.04
    assert folds.converged.all()


def test_flags_are_integrated_again(fit, some, folds, left_out, monkeypatch):
    out = leave_group_out_over(fit.integrated, some, neighbours=80, refit="none")
    monkeypatch.setattr("fenchel.criticism.group_mixtures._AWAY", -1.0)
    done = leave_group_out_over(fit.integrated, some)
    assert not out.refitted.any()
    assert done.refitted.all()
    assert not done.flagged.any()
    assert done.log_density == pytest.approx(folds.log_density, abs=5e-3)
    assert done.joint[:2] == pytest.approx(left_out.joint[[1, 2]], abs=0.05)  # differences of the evidence
    assert out.joint[:2] == pytest.approx(left_out.joint[[1, 2]], abs=1e-6)


def test_groups_that_move_the_others_are_fitted_again_at_the_same_theta(fit, folds, left_out, monkeypatch):
    monkeypatch.setattr("fenchel.criticism.group_prediction._STILL", 0.0)
    monkeypatch.setattr("fenchel.criticism.group_mixtures.integrate", None)  # no search for theta
    done = fit.leave_group_out(fit.model.frame["g"].isin([1, 2]) * fit.model.frame["g"], neighbours=0, refit="flagged")
    sure = np.concatenate([left_out.groups[g] for g in (1, 2)])
    assert done.refitted[[1, 2]].all()
    assert np.abs(done.log_density - folds.log_density)[sure].mean() < 0.005
    assert done.joint[1:] == pytest.approx(left_out.joint[[1, 2]], abs=2e-3)


def test_few_points_of_theta_have_a_corrected_evidence_of_each_group(fit, monkeypatch):
    asked, correct = [], Solution.corrected
    monkeypatch.setattr(Solution, "corrected", lambda self: asked.append(self) or correct(self))
    found = fit.leave_group_out("g", neighbours=8, refit="none")
    assert 0 < len(asked) <= 2 * 5 * 10  # with and without each group, at the middle and the ends of two parameters
    read = LeftOutGroups(fit.solution, fit.model.frame["g"])
    read.members, read.targets, read.labels = read.members[:2], read.targets[:2], read.labels[:2]
    every = [groups_about(one, read, "corrected", 8, None).joint for one in fit.integrated.solutions]
    assert found.joint[:2] == pytest.approx(without(fit.integrated.weights, np.stack(every))[1], abs=0.01)


def test_the_evidence_of_a_block_is_that_of_its_fit(fit):
    one, groups = fit.solution, LeftOutGroups(fit.solution, fit.model.frame["g"])
    plain, corrected = (groups_about(one, groups, evidence, 12, None) for evidence in ("elbo", "corrected"))
    assert plain.joint == pytest.approx(corrected.joint - corrected.joint_gain, abs=1e-6)
    assert (plain.joint_gain == 0.0).all()


def test_folds_of_a_mixture_need_hyperparameters(fit):
    with pytest.raises(Refusal, match="integrated= with a prior without hyperparameters"):
        k_fold(fit.likelihood, fit.found.prior, fit.model.target.y, 2, integrated="auto")


def test_contrasts_and_slopes_are_those_of_joint_draws(fit, data):
    new = pd.DataFrame({"x": [1.0, -1.0], "g": [3, 99]})  # the second group is new: its variance is theta's
    draws = fit.sample(new, 20_000, 0)
    apart = fit.contrast(new[:1], new[1:], "mean").iloc[0]
    off = draws[:, 0] - draws[:, 1]
    assert apart["mean"] == pytest.approx(off.mean(), abs=0.08 * off.std())
    assert apart["sd"] == pytest.approx(off.std(), rel=0.12)
    wide = fit.contrast(new[:1], new[1:]).iloc[0]  # of eta
    link = fit.sample(new, 20_000, 1, kind="link")
    eta = link[:, 0] - link[:, 1]
    assert wide["sd"] == pytest.approx(eta.std(), rel=0.06)
    seen = fit.contrast({"x": 1.0, "g": 3}, {"x": 0.0, "g": 5}).iloc[0]
    both = fit.sample(pd.DataFrame({"x": [1.0, 0.0], "g": [3, 5]}), 20_000, 2, kind="link")
    assert seen["mean"] == pytest.approx((both[:, 0] - both[:, 1]).mean(), abs=0.02)
    effect = fit.slopes("x", groups="own").iloc[0]
    ends = [fit.sample(data.assign(x=data["x"] + step), 4000, 3).mean(axis=1) for step in (0.001, -0.001)]
    slope = (ends[0] - ends[1]) / 0.002
    assert effect["estimate"] == pytest.approx(slope.mean(), abs=0.06 * slope.std())
    assert effect["std_error"] == pytest.approx(slope.std(), rel=0.08)


@pytest.fixture(scope="module")
def drawn(fit):
    """Draws of eta (S, N) and log p(y | eta, size) by scipy, each with the size of its point."""
    rng, mixed, y = np.random.default_rng(0), fit.integrated, fit.model.target.y
    eta, logs = [], []
    for part, likelihood, n in zip(mixed.answers, mixed.likelihoods, (20_000 * mixed.weights).astype(int), strict=True):
        if n:
            eta.append(part.sample(n, rng))
            size = float(np.asarray(likelihood.size))
            logs.append(nbinom.logpmf(y, size, size / (size + np.exp(eta[-1]))))
    return np.concatenate(eta), np.concatenate(logs)


def test_information_criteria_are_over_the_likelihoods_own_parameters(fit, drawn):
    _, logs = drawn
    variance, found = logs.var(axis=0), fit.waic()
    assert found.n_parameters == pytest.approx(variance.sum(), rel=0.03)
    assert found.log_density == pytest.approx(logsumexp(logs, axis=0) - np.log(len(logs)) - variance, abs=0.02)
    assert found.elpd == pytest.approx(fit.loo().elpd, abs=0.5)


def test_an_export_has_draws_of_theta_and_latents_together(fit):
    pytest.importorskip("arviz")
    groups, mixed = fit.to_arviz(5000, chains=4), fit.integrated
    logs = np.asarray(groups["log_likelihood"]["y"]).reshape(20_000, -1)
    assert logsumexp(logs, axis=0) - np.log(len(logs)) == pytest.approx(
        mixed.predictive().log_density(fit.model.target.y), abs=0.02
    )
    posterior = groups["posterior"]
    u, sd = (np.asarray(posterior[k]).reshape(20_000, -1) for k in ("(1|g)", "(1|g) sd"))
    row = fit.hyperparameters.loc[("(1|g)", "sd")]
    assert sd.mean() == pytest.approx(row["mean"], abs=0.05 * row["sd"])
    assert sd.std() == pytest.approx(row["sd"], rel=0.05)
    # E[log sd sum u^2] from the moments of each point
    at = fit.model.sum.shown("(1|g)")[1]
    square = np.array([((p := part.at(design=at)).mean ** 2 + p.variance).sum() for part in mixed.answers])
    log_sd = np.log([{t: v for t, _, v in described_theta(fit, theta)}["(1|g)"] for theta in mixed.thetas])
    w = mixed.weights
    want = w @ (log_sd * square) - (w @ log_sd) * (w @ square)
    assert np.cov(np.log(sd[:, 0]), (u**2).sum(axis=1))[0, 1] == pytest.approx(want, rel=0.2)


def test_points_keep_their_weights(fit):
    """Shares are matched on the first draws of theta: their error is that of so many draws, four times at most."""
    _, parts = fit.integrated.sample_with_theta(20_000, np.random.default_rng(0))
    w = fit.integrated.weights
    error = np.sqrt(w * (1.0 - w) * (1.0 / MATCHED_DRAWS + 1.0 / 20_000))
    np.testing.assert_array_less(np.abs(np.array([some.size for some in parts]) / 20_000 - w), 4.0 * error + 1e-3)


def test_a_row_left_out_is_the_difference_of_two_evidences():
    rng = np.random.default_rng(5)
    g, x = np.repeat(np.arange(40), 8), np.tile(np.linspace(-1.0, 1.0, 8), 40)
    u, v = 0.6 * rng.standard_normal(40), 0.5 * rng.standard_normal(40)
    y = rng.poisson(np.exp(0.5 + 0.8 * x + 0.5 * (g % 2) + u[g] + v[g] * x))
    data = pd.DataFrame({"y": y.astype(float), "x": x, "t": g % 2, "g": g})

    def fitted(rows):
        return fenchel.fit("y ~ x + t + (x|g)", rows, "poisson", accuracy="high")

    whole = fitted(data)
    found, mean = whole.loo(), np.asarray(whole.posterior.mean)
    far = np.abs(found.mean - mean) / np.sqrt(np.asarray(whole.posterior.variance))
    assert far.max() < 4.0
    low = np.flatnonzero(y <= 1)  # e^eta has a long way up, which only the others and the prior bound
    for row in low[np.argsort(-np.asarray(whole.posterior.variance)[low])[:2]]:
        less = fitted(data.assign(y=data.y.where(data.index != row)))
        expected = whole.integrated.log_evidence - less.integrated.log_evidence
        assert found.log_density[row] == pytest.approx(expected, abs=0.02)


def test_durations_left_out_stay_near_the_others():
    rng = np.random.default_rng(6)
    g = np.repeat(np.arange(60), 4)
    y = rng.exponential(size=g.size) ** (1 / 1.5) * np.exp(-0.8 * rng.standard_normal(60)[g] / 1.5)
    data = pd.DataFrame({"y": np.minimum(y, 3.0), "event": (y < 3.0).astype(int), "g": g})
    whole = fenchel.fit("cens(y, event) ~ 1 + (1|g)", data, "weibull", accuracy="high")
    found, plain = whole.loo(), whole.solution.loo()
    assert abs(found.elpd - plain.elpd) < 5.0
    assert np.abs(found.mean - np.asarray(plain.mean)).max() < 1.0
