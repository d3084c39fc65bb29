"""Probability integral transforms and the joint of two hyperparameters: against randomised ones, refits and normals."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm, poisson

import fenchel
from fenchel.checks import Refusal
from fenchel.hyperparameters.integration import integrate
from fenchel.likelihoods import BernoulliLogit, Gaussian, Interval, Poisson, Tweedie, Weibull
from fenchel.plots import plot_joint, plot_pit
from fenchel.plots.intervals import region_levels, smoothed
from fenchel.plots.predictive_checks import pit_band
from fenchel.row_scores import LeaveOneOut, pit_counts


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(2)
    g = np.repeat(np.arange(12), 3)
    y = rng.poisson(np.exp(0.5 + 0.4 * rng.normal(size=12)[g])).astype(float)
    y[5] = np.nan
    return pd.DataFrame({"y": y, "g": g, "x": rng.normal(size=36)})


@pytest.fixture(scope="module")
def fits(data):
    model = fenchel.Model("y ~ (1|g)", data, family="poisson")
    return model.fit(), model.fit(integrate="auto")


def test_stretches_are_the_average_of_randomised_ones():
    rng = np.random.default_rng(0)
    ends = np.sort(rng.random((2, 40)), axis=0)
    ends[0, :10] = ends[1, :10]
    u = ends[0] + rng.random((20_000, 40)) * (ends[1] - ends[0])
    drawn = np.array([np.histogram(u[:, k], 7, (0.0, 1.0))[0] for k in range(40)]) / len(u)
    assert np.abs(pit_counts(*ends, 7) - drawn).max() < 0.015
    assert pit_counts(*ends, 7).sum(axis=1) == pytest.approx(1.0)
    with pytest.raises(Refusal, match="an interval outside of 0 and 1"):
        pit_counts([0.5], [0.4], 5)


@pytest.mark.parametrize("mean", [0.7, 4.0, 1e6])
def test_the_band_holds_bars_of_right_predictions(mean):
    rng, held = np.random.default_rng(1), []
    for _ in range(300):
        y = rng.poisson(mean, 250)
        each = pit_counts(poisson(mean).cdf(y - 1), poisson(mean).cdf(y), 10)
        low, high = pit_band(each)
        height = 10 * each.mean(axis=0)
        held.append((height >= low - 1e-9) & (height <= high + 1e-9))
    assert 0.93 < np.mean(held) < 0.985


def test_ends_of_rows_by_quadrature():
    h, rho = np.array([0.3, -0.2, 0.5, 0.1]), np.array([0.4, 0.1, 0.2, 0.3])
    given = LeaveOneOut(np.zeros(4), h, rho)

    def mean_of(cdf, n):
        return quad(lambda e: cdf(e) * norm(h[n], np.sqrt(rho[n])).pdf(e), -8, 8)[0]

    def lasts(t):
        return lambda e: 1.0 - np.exp(-(t**1.3) * np.exp(e))

    below, upto = given.pit_stretches(Poisson(), np.array([0.0, 3.0, np.nan, 1.0]))
    assert below[0] == 0.0
    assert np.isnan([below[2], upto[2]]).all()
    assert upto[1] == pytest.approx(mean_of(lambda e: poisson(np.exp(e)).cdf(3), 1), abs=1e-8)
    assert below[1] == pytest.approx(mean_of(lambda e: poisson(np.exp(e)).cdf(2), 1), abs=1e-8)
    y = np.array([0.5, 1.0, 2.0, 0.7])
    below, upto = given.pit_stretches(Weibull(1.3, event=[1, 0, 1, 0]), y)
    assert upto[[1, 3]].tolist() == [1.0, 1.0]
    assert below[0] == upto[0] == pytest.approx(mean_of(lasts(0.5), 0), abs=1e-8)
    assert below[1] == pytest.approx(mean_of(lasts(1.0), 1), abs=1e-8)
    below, upto = given.pit_stretches(Interval(Weibull(1.3), upper=[0.5, 3.0, np.inf, 0.9]), y)
    assert below[0] == upto[0]
    assert upto[1] == pytest.approx(mean_of(lasts(3.0), 1), abs=1e-8)
    assert upto[2] == 1.0
    below, upto = given.pit_stretches(Tweedie(), np.array([0.0, 1.0, 2.0, 0.0]))
    assert below[[0, 3]].tolist() == [0.0, 0.0]
    assert (upto[[0, 3]] > 0.01).all()
    assert below[1] == upto[1]
    below, upto = given.pit_stretches(BernoulliLogit("log-sum"), np.array([0.0, 1.0, 0.0, 1.0]))
    assert upto[1] == pytest.approx(1.0)
    assert below[1] == pytest.approx(mean_of(lambda e: 1 / (1 + np.exp(e)), 1), abs=1e-8)


def test_an_integrated_fit_forgets_the_row(fits, data):
    found = fits[1].integrated
    below, upto = found.pit()
    family, y = fits[1].model.sum.family(), fits[1].model.target.y
    for n in (4, 20):
        others = y.copy()
        others[n] = np.nan
        again = integrate(Poisson(), family, others).predictive()
        assert upto[n] == pytest.approx(again.cdf(y)[n], abs=0.004)
        assert below[n] == pytest.approx(again.cdf(y - 1.0)[n], abs=0.004)


def test_noise_is_exact_against_the_joint_normal():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(25, 2))
    y = X @ [1.0, -0.5] + rng.normal(size=25)
    fit = fenchel.fit("y ~ 0 + a + b", {"y": y, "a": X[:, 0], "b": X[:, 1]}, fixed_sd=1000.0)
    ax = fit.plot_check("pit")
    P = (np.eye(25) - X @ np.linalg.solve(X.T @ X, X.T)) / float(fit.likelihood.variance)
    z = (P @ y) / np.sqrt(np.diag(P))  # (y_n - its mean) / its sd, each without itself
    want = np.histogram(norm.cdf(z), 10, (0.0, 1.0))[0] / 2.5
    assert [p.get_height() for p in ax.patches] == pytest.approx(want)


def test_a_picture_of_every_fit(fits, data):
    plain, mixed = fits
    for fit in (plain, plain.corrected(), mixed):
        ax = fit.plot_check("pit")
        heights = np.array([p.get_height() for p in ax.patches])
        assert heights.size == 10
        assert heights.mean() == pytest.approx(1.0)
    assert len(plot_pit(np.full(9, 0.5), bins=4).patches) == 4
    with pytest.raises(Refusal, match="plot_pit: upto \\(2,\\) and below \\(3,\\)"):
        plot_pit([0.1, 0.2], [0.1, 0.2, 0.3])
    gauss = Gaussian()
    with pytest.raises(Refusal, match="several predictors"):
        LeaveOneOut(np.zeros(2), np.zeros((2, 2)), np.ones((2, 2))).pit_stretches(gauss, np.zeros(2))


def test_shares_that_rounding_takes_past_one_are_a_picture_all_the_same():
    rng = np.random.default_rng(6)
    g = np.repeat(np.arange(20), 4)
    fit = fenchel.fit("y ~ (1|g)", {"y": rng.integers(0, 2, 80), "g": g}, family="bernoulli", integrate=True)
    below, upto = fit.integrated.pit()
    assert upto[fit.model.target.y == 1.0] == pytest.approx(1.0, abs=1e-12)
    assert upto.max() <= 1.0
    assert (below <= upto).all()
    assert len(fit.plot_check("pit").patches) == 10


# -- the joint of two hyperparameters ----------------------------------------------------------------------------
def test_regions_hold_what_they_say():
    rng = np.random.default_rng(0)
    C = np.array([[1.0, 0.6], [0.6, 2.0]])
    x, y = rng.multivariate_normal([10.0, -30.0], C, 60_000).T
    u, v, density = smoothed(x, y, np.full(x.size, 1 / x.size))
    cell = (u[1] - u[0]) * (v[1] - v[0])
    assert density.sum() * cell == pytest.approx(1.0)
    for share, level in zip((0.5, 0.9), region_levels(density, (0.5, 0.9)), strict=True):
        area = (density > level).sum() * cell  # of a normal: pi r^2 sqrt |C|, r^2 = -2 log(1 - share)
        want = -2.0 * np.log(1.0 - share) * np.pi * np.sqrt(np.linalg.det(C))
        assert area == pytest.approx(1.05 * want, rel=0.04)  # the kernel adds 0.22^2 to the variances
    size = np.exp(rng.normal(size=40_000) - 2.0)
    u = smoothed(size, x[:40_000], np.full(40_000, 1 / 40_000))[0]
    assert u.min() > 0.0


def test_two_hyperparameters_as_a_picture(data, fits):
    more = data.assign(h=np.tile(np.arange(6), 6))
    fit = fenchel.fit("y ~ (1|g) + (1|h)", more, family="poisson", integrate="auto")
    ax = fit.plot_joint(("(1|g)", "sd"), "sd of (1|h)")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("sd of (1|g)", "sd of (1|h)")
    dots = next(c for c in ax.collections if c.get_offsets().shape == (len(fit.integrated.weights), 2)).get_offsets()
    best = int(np.argmax(fit.integrated.weights))
    assert np.asarray(dots[best]) == pytest.approx(np.exp(fit.integrated.thetas[best]))
    for names, sentence in (
        (("sd of (1|g)", "(1|g)"), "twice"),
        (("sd", "(1|g)"), "'sd' is said of 2 hyperparameters; expected one of 'sd of \\(1\\|g\\)'"),
        (("rho", "(1|g)"), "there is no hyperparameter 'rho'"),
    ):
        with pytest.raises(Refusal, match=sentence):
            fit.plot_joint(*names)
    with pytest.raises(Refusal, match="are learned, at one value each; expected a fit that integrates over them"):
        fenchel.fit("y ~ (1|g)", data, family="poisson").plot_joint("a", "b")
    with pytest.raises(Refusal, match="a fit with 1 hyperparameter"):
        fits[1].plot_joint("sd", "sd")
    with pytest.raises(Refusal, match="plot_joint: x \\(2,\\)"):
        plot_joint([1.0, 2.0], [1.0, 2.0])
