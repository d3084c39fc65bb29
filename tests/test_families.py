"""Families of counts and proportions against scipy.stats and sums, and formulas of a second predictor."""

import numpy as np
import pandas as pd
import pytest
from conftest import difference
from scipy import stats
from scipy.special import expit

import fenchel
from fenchel.likelihoods import (
    BetaBinomial,
    Hurdle,
    NegativeBinomial,
    NegativeBinomial1,
    Poisson,
    Truncated,
    ZeroInflated,
)
from fenchel.linalg.functions import rising
from fenchel.priors import DenseCovariance

ETA = np.array([-9.0, -2.0, 0.3, 1.7, 3.0])


def nbinom(mu, r):
    return stats.nbinom(r, r / (r + mu))


def truncated(of, y):
    return of.logpmf(y) - np.log1p(-of.pmf(0))


MU = 1.3 * np.exp(ETA)
CASES = [  # the likelihood, y, and log p(y | ETA) by scipy
    (NegativeBinomial1(0.7, 1.3), 0.0, lambda y: nbinom(MU, MU / 0.7).logpmf(y)),
    (NegativeBinomial1(0.7, 1.3), 9.0, lambda y: nbinom(MU, MU / 0.7).logpmf(y)),
    (NegativeBinomial1(1e-4, 1.3), 3.0, lambda y: nbinom(MU, MU / 1e-4).logpmf(y)),
    (Truncated(Poisson(1.3)), 1.0, lambda y: truncated(stats.poisson(MU), y)),
    (Truncated(Poisson(1.3)), 6.0, lambda y: truncated(stats.poisson(MU), y)),
    (Truncated(NegativeBinomial(0.4, 1.3)), 5.0, lambda y: truncated(nbinom(MU, 0.4), y)),
    (Truncated(NegativeBinomial(3.0, 1.3)), 1.0, lambda y: truncated(nbinom(MU, 3.0), y)),
    (Hurdle(Poisson(1.3), 0.3), 0.0, lambda y: np.log(0.3) + 0.0 * MU),
    (Hurdle(Poisson(1.3), 0.3), 2.0, lambda y: np.log(0.7) + truncated(stats.poisson(MU), y)),
    (Hurdle(NegativeBinomial(0.8, 1.3), 0.3), 0.0, lambda y: np.log(0.3) + 0.0 * MU),
    (Hurdle(NegativeBinomial(0.8, 1.3), 0.3), 4.0, lambda y: np.log(0.7) + truncated(nbinom(MU, 0.8), y)),
    (ZeroInflated(NegativeBinomial(0.8, 1.3), 0.3), 0.0, lambda y: np.log(0.3 + 0.7 * nbinom(MU, 0.8).pmf(0))),
    (ZeroInflated(NegativeBinomial(0.8, 1.3), 0.3), 4.0, lambda y: np.log(0.7) + nbinom(MU, 0.8).logpmf(y)),
    (Truncated(NegativeBinomial1(0.7, 1.3)), 4.0, lambda y: truncated(nbinom(MU, MU / 0.7), y)),
    (Hurdle(NegativeBinomial1(0.7, 1.3), 0.3), 4.0, lambda y: np.log(0.7) + truncated(nbinom(MU, MU / 0.7), y)),
    (ZeroInflated(NegativeBinomial1(0.7, 1.3), 0.3), 0.0, lambda y: np.log(0.3 + 0.7 * nbinom(MU, MU / 0.7).pmf(0))),
    (BetaBinomial(12, 3.0), 4.0, lambda y: stats.betabinom(12, 3 * expit(ETA), 3 * expit(-ETA)).logpmf(y)),
    (BetaBinomial(12, 3.0), 12.0, lambda y: stats.betabinom(12, 3 * expit(ETA), 3 * expit(-ETA)).logpmf(y)),
]


@pytest.mark.parametrize(("likelihood", "y", "witness"), CASES, ids=[f"{c[0]!r}-{c[1]:g}" for c in CASES])
def test_the_density_is_scipys(likelihood, y, witness):
    rows = likelihood.prepare(np.full(5, y))
    ours = likelihood.log_density(ETA[:, None], rows)[:, 0]
    np.testing.assert_allclose(ours, witness(y), rtol=1e-9, atol=2e-9)


@pytest.mark.parametrize(
    "likelihood",
    [
        *(NegativeBinomial1(0.2), Truncated(NegativeBinomial(0.3)), BetaBinomial(20, 2.0)),
        *(Truncated(NegativeBinomial1(a)) for a in (0.02, 0.7, 5.0, 300.0)),
    ],
)
def test_psi_is_convex_between_its_inflections_and_concave_beyond(likelihood):
    y = np.arange(1.0, 21.0)
    rows, eta = likelihood.prepare(y), np.linspace(-25.0, 25.0, 4001)[None, :] * np.ones((20, 1))
    second = likelihood.derivatives(eta, rows)[2]
    inside = (eta > rows["left"][:, None] + 1e-6) & (eta < rows["right"][:, None] - 1e-6)
    assert (second[inside] > -1e-10).all()
    beyond = (eta < rows["left"][:, None] - 1e-6) | (eta > rows["right"][:, None] + 1e-6)
    assert beyond.any()
    assert (second[beyond] < 1e-10).all()


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (NegativeBinomial1(0.7, 1.3), [0.0, 3.0, 1.0, 20.0, 5.0]),
        (Truncated(NegativeBinomial(0.4)), [1.0, 3.0, 1.0, 20.0, 5.0]),
        (Truncated(NegativeBinomial(4.0)), [1.0, 3.0, 1.0, 20.0, 5.0]),
        (Hurdle(Poisson(), 0.3), [0.0, 3.0, 1.0, 20.0, 0.0]),
        (Hurdle(NegativeBinomial(0.7), 0.3), [0.0, 3.0, 1.0, 20.0, 0.0]),
        (BetaBinomial(20, 1.5), [0.0, 3.0, 1.0, 20.0, 5.0]),
        (ZeroInflated(NegativeBinomial(0.7), 0.3), [0.0, 3.0, 1.0, 20.0, 0.0]),
        (Truncated(NegativeBinomial1(0.7)), [1.0, 3.0, 1.0, 20.0, 5.0]),
        (Hurdle(NegativeBinomial1(0.7), 0.3), [0.0, 3.0, 1.0, 20.0, 0.0]),
        (ZeroInflated(NegativeBinomial1(0.7), 0.3), [0.0, 3.0, 1.0, 20.0, 0.0]),
    ],
)
def test_gradient_in_their_own_parameters(likelihood, y):
    rng = np.random.default_rng(0)
    h, rho, w = rng.normal(size=(5, 1)), rng.gamma(2.0, 1.0, (5, 1)), rng.random(5) + 0.5

    def value(theta):
        other = likelihood.with_theta(theta)
        rows = other.prepare(y, w)
        return -(rows["weight"] * other.objective.f(h, rho, rows)).sum()

    gradient = likelihood.theta_gradient(h, rho, likelihood.prepare(y, w))
    np.testing.assert_allclose(gradient, difference(value, likelihood.theta), rtol=1e-6, atol=1e-7)


def test_ratios_of_gamma_functions_against_many_digits():
    import mpmath

    with mpmath.workdps(50):
        for log_r in (-200.0, -3.0, 2.9, 3.1, 15.0, 60.0):
            for y in (0.0, 1.0, 7.0, 1e4):
                r = mpmath.e ** mpmath.mpf(log_r)
                first = r * (mpmath.digamma(r + y) - mpmath.digamma(r))
                second = first + r * r * (mpmath.polygamma(1, r + y) - mpmath.polygamma(1, r))
                truth = [float(v) for v in (mpmath.loggamma(r + y) - mpmath.loggamma(r), first, second)]
                ours = [float(v[0]) for v in rising(np.array([log_r]), np.array([y]))]
                np.testing.assert_allclose(ours, truth, rtol=1e-10, atol=1e-10)


def test_a_negative_binomial_without_dispersion_is_a_poisson():
    rng = np.random.default_rng(0)
    S, y = np.exp(-np.abs(np.subtract.outer(np.arange(9), np.arange(9)))), rng.poisson(3.0, 9).astype(float)
    sols = [fenchel.infer(x, DenseCovariance(S), y, tol=1e-10) for x in (NegativeBinomial1(1e-6), fenchel.Poisson())]
    assert sols[0].elbo == pytest.approx(sols[1].elbo, abs=1e-4)
    assert sols[0].certificate == "strong-concavity"
    assert sols[0].converged


@pytest.mark.parametrize("make", [lambda: Hurdle(Poisson(), 0.4), lambda: Hurdle(NegativeBinomial(2.0), 0.4)])
def test_a_hurdle_is_its_zeros_and_its_counts(make):
    """The evidence factorises: rows above 0 alone under the truncated family, and a coin for each row."""
    rng = np.random.default_rng(3)
    S = np.exp(-np.abs(np.subtract.outer(np.arange(10), np.arange(10))))
    hurdle = make()
    y = hurdle.draw(rng.normal(size=(10, 1)), rng)[:, 0]
    y[:2] = 0.0, 3.0
    whole = fenchel.infer(hurdle, DenseCovariance(S), y, tol=1e-10)
    part = Truncated(type(hurdle.base)(*([2.0] if hurdle.base.parameters else [])))
    above = fenchel.infer(part, DenseCovariance(S), np.where(y > 0, y, np.nan), tol=1e-10)
    coins = (y == 0).sum() * np.log(0.4) + (y > 0).sum() * np.log(0.6)
    assert whole.elbo == pytest.approx(above.elbo + coins, abs=1e-8)
    np.testing.assert_allclose(whole.posterior.mean, above.posterior.mean, atol=1e-7)


# -- in models -----------------------------------------------------------------------------------------
def grouped(seed=0, n=400, groups=20, sd=0.5):
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"x": rng.normal(size=n), "z": rng.normal(size=n), "g": rng.integers(0, groups, n)})
    return data, (0.8 + 0.4 * data.x + sd * rng.normal(size=groups)[data.g]).to_numpy(), rng


RECOVERED = [
    ("negative-binomial-1", NegativeBinomial1(1.5), ("NegativeBinomial1", "dispersion"), {}),
    ("truncated-poisson", Truncated(Poisson()), None, {}),
    ("truncated-negative-binomial", Truncated(NegativeBinomial(1.5)), ("TruncatedNegativeBinomial", "size"), {}),
    ("hurdle-poisson", Hurdle(Poisson(), 0.3), ("HurdlePoisson", "probability"), {}),
    ("hurdle-negative-binomial", Hurdle(NegativeBinomial(2.0), 0.3), ("HurdleNegativeBinomial", "size"), {}),
    (
        "zero-inflated-negative-binomial",
        ZeroInflated(NegativeBinomial(2.0), 0.3),
        ("ZeroInflatedNegativeBinomial", "probability"),
        {},
    ),
    ("beta-binomial", BetaBinomial(12, 5.0), ("BetaBinomial", "precision"), {"trials": 12}),
]


@pytest.mark.parametrize(("word", "truth", "own", "given"), RECOVERED, ids=[c[0] for c in RECOVERED])
def test_a_model_recovers_what_made_the_data(word, truth, own, given):
    data, eta, rng = grouped()
    data["y"] = truth.draw(eta[:, None], rng)[:, 0]
    fit = fenchel.fit("y ~ x + (1|g)", data, word, **given)
    assert fit.converged
    assert fit.solution.certificate == ("stationarity" if word.startswith("zero-inflated") else "strong-concavity")
    at = fit.coefficients.loc["x"]
    assert abs(at["mean"] - 0.4) < 3.0 * at["sd"]
    group = fit.hyperparameters.loc[("(1|g)", "sd")]
    assert group["lower"] < 0.5 < group["upper"] + 0.15
    if own is not None:
        found = fit.hyperparameters.loc[own]
        assert found["lower"] * 0.9 < getattr(truth, own[1]) < found["upper"] * 1.1
    some = data.head(100)
    said = fit.predict(some, interval=0.9, kind="outcome", trials=given.get("trials"))
    inside = (some.y >= said["lower"]) & (some.y <= said["upper"])
    assert 0.83 < inside.mean() <= 1.0
    assert fit.predict().mean() == pytest.approx(data.y.mean(), rel=0.1)
    assert np.isfinite(fit.loo().log_density).all()


def test_zeros_of_a_hurdle_with_a_formula_are_a_second_model():
    data, eta, rng = grouped(seed=1)
    pi = expit(-0.5 + 0.8 * data.z.to_numpy())
    data["y"] = np.where(rng.random(len(data)) < pi, 0.0, Truncated(Poisson()).draw(eta[:, None], rng)[:, 0])
    fit = fenchel.fit("y ~ x + (1|g)", data, "hurdle-poisson", zero="~ z + (1|g)")
    assert fit.converged
    assert "two fits" in fit.summary()
    assert fit.coefficients.loc[("zero", "z"), "mean"] == pytest.approx(0.8, abs=0.35)
    alone = fenchel.fit("y ~ x + (1|g)", data[data.y > 0], "truncated-poisson")
    np.testing.assert_allclose(fit.count.coefficients["mean"], alone.coefficients["mean"], atol=1e-5)
    new = data.head(5)
    none, mean = fit.predict(new, kind="zero"), fit.predict(new)
    np.testing.assert_allclose(mean, (1 - none) * fit.count.predict(new))
    draws = fit.sample(new, 4000, 0, kind="outcome")
    np.testing.assert_allclose((draws == 0).mean(axis=0), none, atol=0.04)
    np.testing.assert_allclose(draws.mean(axis=0), mean, rtol=0.1)
    ends = fit.predict(new, interval=0.8, kind="outcome")
    below = (draws <= ends["upper"].to_numpy()).mean(axis=0)
    assert (below > 0.87).all()


# -- a second predictor --------------------------------------------------------------------------------
def second():
    """Eight hundred rows in forty groups whose noise depends on x and f."""
    rng = np.random.default_rng(7)
    n = 800
    g, x, f = rng.integers(0, 40, n), rng.normal(2, 1.5, n), rng.integers(0, 3, n)
    u = 0.5 * rng.normal(size=40)
    d = pd.DataFrame({"x": x, "g": g, "f": np.array(list("abc"))[f]})
    eta, b = 0.5 + 0.3 * x + u[g], 0.2 + 0.25 * x - 0.4 * (f == 1)
    d["gauss"] = eta + np.exp(b - 0.8) * rng.normal(size=n)
    d["gam"] = np.exp(eta) * rng.gamma(np.exp(b + 0.5)) / np.exp(b + 0.5)
    mu, phi = 1 / (1 + np.exp(-(eta - 1))), np.exp(b + 1.2)
    d["be"] = np.clip(rng.beta(mu * phi, (1 - mu) * phi), 1e-4, 1 - 1e-4)
    d["bb"] = rng.binomial(15, rng.beta(mu * phi, (1 - mu) * phi))
    d["nb"] = rng.poisson(np.exp(eta) * rng.gamma(np.exp(b)) / np.exp(b))
    p = 1 / (1 + np.exp(-(-1.5 + 0.5 * x - 0.8 * (f == 2))))
    d["zip"] = np.where(rng.random(n) < p, 0, rng.poisson(np.exp(eta)))
    return d


# glmmTMB 1.1.5 under R 4.2: dispformula or ziformula ~ x + f of the data above, with standard errors (its Gaussian
# dispersion is the log of a variance: halved here), then the coefficient of x and the sd of the groups
GLMMTMB = {
    "gauss": ([-0.628369, 0.249168, -0.344562, -0.006794], [0.0574, 0.0187, 0.0630, 0.0637], 0.290475, 0.482733),
    "gam": ([0.791564, 0.227953, -0.452228, -0.067245], [0.1060, 0.0336, 0.1194, 0.1255], 0.287394, 0.473832),
    "be": ([1.398856, 0.208433, -0.322465, 0.029061], [0.1033, 0.0325, 0.1150, 0.1180], 0.280834, 0.474548),
    "bb": ([1.386409, 0.264941, -0.301810, 0.164615], [0.1558, 0.0534, 0.1805, 0.1931], 0.338069, 0.448999),
    "nb": ([0.242180, 0.261095, -0.263589, -0.236495], [0.2280, 0.0737, 0.2346, 0.2468], 0.296287, 0.446916),
    "zip": ([-1.952182, 0.592172, 0.349630, -0.843556], [0.2719, 0.0833, 0.2214, 0.2560], 0.328833, 0.472635),
}
FORMULAS = {
    "gauss": ("gaussian", {"dispersion": "~ x + f"}),
    "gam": ("gamma", {"dispersion": "~ x + f"}),
    "be": ("beta", {"dispersion": "~ x + f"}),
    "bb": ("beta-binomial", {"dispersion": "~ x + f", "trials": 15}),
    "nb": ("negative-binomial", {"dispersion": "~ x + f"}),
    "zip": ("zero-inflated-poisson", {"zero": "~ x + f"}),
}


@pytest.mark.parametrize("y", FORMULAS)
def test_a_second_predictor_is_glmmtmbs(y):
    family, given = FORMULAS[y]
    fit = fenchel.fit(f"{y} ~ x + (1|g)", second(), family, priors={"(1|g)": None}, **given)
    theirs, se, slope, sd = GLMMTMB[y]
    mine = fit.hyperparameters.drop("(1|g)", level="term")
    assert np.abs((mine["value"].to_numpy() - theirs) / se).max() < 0.05
    assert abs(fit.coefficients.loc["x", "mean"] - slope) < 0.06 * fit.coefficients.loc["x", "sd"]
    assert fit.hyperparameters.loc[("(1|g)", "sd"), "value"] == pytest.approx(sd, rel=0.02)
    width = (mine["upper"] - mine["lower"]).to_numpy() / (2 * 1.96 * np.array(se))
    np.testing.assert_allclose(width, 1.0, atol=0.1)


def test_what_a_second_predictor_says_of_new_rows():
    data = second()
    fit = fenchel.fit("gauss ~ x + (1|g)", data, dispersion="~ x + f")
    assert "dispersion ~ x + f" in fit.summary()
    new = pd.DataFrame({"x": [0.0, 4.0, 4.0], "f": ["a", "a", "b"], "g": [1, 1, 1]})
    ends = fit.predict(new, kind="outcome", interval=0.6827)
    b = fit.hyperparameters.loc["dispersion (log sd)", "value"].to_numpy()
    noise = np.exp(np.array([[1, 0, 0, 0], [1, 4, 0, 0], [1, 4, 1, 0]]) @ b)
    rho = fit.predict(new, kind="link", interval=0.6827)
    sd = np.hypot(noise, (rho["upper"] - rho["lower"]) / 2)
    np.testing.assert_allclose((ends["upper"] - ends["lower"]) / 2, sd, rtol=1e-3)
    back = fit.predict(data.head(7), kind="outcome", interval=0.5)
    pd.testing.assert_frame_equal(back, fit.predict(kind="outcome", interval=0.5).head(7), rtol=1e-9)
    metres = fenchel.fit("gauss ~ x + (1|g)", data.assign(x=1e3 * data.x + 1e6), dispersion="~ x + f")
    other = metres.hyperparameters.loc[("dispersion (log sd)", "x"), "value"]
    assert 1e3 * other == pytest.approx(b[1], rel=1e-4)
    data.loc[3, "f"] = None
    assert fenchel.Model("gauss ~ x", data, dispersion="~ f").dropped.n == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"dispersion": "~ x + (1|g)"}, r"\(1\|g\) in dispersion=; expected fixed effects alone. Given two sets"),
        ({"dispersion": "x"}, "dispersion = 'x'; expected a formula without a left side"),
        ({"dispersion": "~ x", "family": "poisson"}, 'dispersion= meets family="poisson"; expected one of gaussian'),
        ({"zero": "~ x", "family": "poisson"}, 'zero= meets family="poisson"; expected one of zero-inflated'),
        ({"dispersion": "~ nothing"}, "there is no column 'nothing'"),
        ({"family": "truncated-poisson"}, r"TruncatedPoisson: y\[0\] = 0 is not above 0; expected counts 1, 2"),
        ({"family": "beta-binomial"}, 'family="beta-binomial" without trials'),
    ],
)
def test_a_wrong_family_gets_a_sentence(given, sentence):
    data = pd.DataFrame({"y": [0.0, 1.0, 2.0, 3.0], "x": [1.0, 2.0, 4.0, 3.0], "g": [0, 0, 1, 1]})
    with pytest.raises(fenchel.checks.Refusal, match=sentence):
        fenchel.Model("y ~ x", data, **given)
