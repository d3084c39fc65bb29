"""Priors of everything: named as printed, printed with their scale, changed by name, proper by default."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import difference, reads_repository
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, gammaln

import fenchel
from fenchel import PC, Normal, gates
from fenchel.checks import Refusal
from fenchel.gmrf.space import scaled_icar
from fenchel.hyperparameters.evidence import Evidence
from fenchel.hyperparameters.priors import HalfNormal
from fenchel.hyperparameters.shares import CovarianceShare, PCCorrelation, PrecisionShare, Spectrum
from fenchel.likelihoods import WORDS

DOCS = Path(__file__).parents[1] / "docs" / "formulas.md"
RNG = np.random.default_rng
N = 60


def table():
    rng = RNG(0)
    x, g = rng.normal(size=N), np.arange(N) % 6
    eta = 0.3 + 0.4 * x
    columns = {
        "x": x,
        "g": g,
        "real": eta + rng.normal(size=N),
        "count": rng.poisson(np.exp(eta)),
        "above": 1 + rng.poisson(np.exp(eta)),
        "hits": rng.binomial(5, expit(eta)),
        "yes": rng.integers(0, 2, N),
        "grade": np.arange(N) % 4,
        "amount": rng.gamma(2.0, np.exp(eta) / 2.0),
        "share": rng.beta(4.0, 4.0, N),
    }
    return pd.DataFrame(columns | {"cover": np.where(rng.random(N) < 0.3, 0.0, columns["amount"])})


DATA = table()
LEFT = {
    **dict.fromkeys(["gaussian", "student-t", "laplace", "logistic"], "real"),
    **dict.fromkeys(["bernoulli", "probit"], "yes"),
    **dict.fromkeys(["binomial", "beta-binomial"], "hits | trials(5)"),
    **dict.fromkeys(["ordinal", "ordinal-probit"], "grade"),
    **dict.fromkeys(["gamma", "exponential", "weibull"], "amount"),
    **dict.fromkeys([word for word in WORDS if word.startswith("truncated")], "above"),
    "beta": "share",
    "tweedie": "cover",
}


def model(family, right="x + (1|g)", **options):
    left = LEFT.get(family, "count")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fenchel.Model(f"{left} ~ {right}", DATA, family, **options)


def objective(made, fitted=True):
    """elbo + log p(theta) where learning starts, or log p(theta) alone."""
    family, likelihood = made.sum.family(), made.target.likelihood
    if not fitted:
        return family.log_prior(family.theta)[0] + likelihood.log_prior(likelihood.theta)[0]
    out = Evidence(likelihood, family, made.target.y, own=True, tol=1e-8)
    return out(np.concatenate([family.theta, likelihood.theta]))[0]


CASES = [
    *((family, {}) for family in WORDS),
    ("gaussian", {"dispersion": "~ x"}),
    ("negative-binomial", {"dispersion": "~ x"}),
    ("zero-inflated-negative-binomial", {"dispersion": "~ x", "zero": "~ x"}),
    (fenchel.StudentT(learn_df=True), {}),
]


@pytest.mark.parametrize(("family", "options"), CASES, ids=lambda case: str(case))
def test_every_row_of_the_table_is_changed_by_its_name(family, options):
    family_word = "student-t" if not isinstance(family, str) else family
    left = LEFT.get(family_word, "count")

    def make(**more):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return fenchel.Model(f"{left} ~ x + (1|g)", DATA, family, **options, **more)

    usual = make()
    before = usual.priors
    assert not (before["prior"] == "flat").any()
    assert np.isfinite(before[["lower", "upper"]]).all(axis=None)
    for name, parameter in before.index:
        changed = make(priors={name: {parameter: Normal(0.321, 0.123)}})
        after = changed.priors
        differs = after["prior"] != before["prior"]
        assert list(after.index[differs]) == [(name, parameter)]
        assert "N(0.321, 0.123^2)" in after.loc[(name, parameter), "prior"]
        fitted = parameter in ("at the mean of the columns", "coefficient")
        if not fitted:
            assert re.search(r"(log|logit|first cutpoint|x ~|\) at the mean)", after.loc[(name, parameter), "prior"])
        assert abs(objective(changed, fitted) - objective(usual, fitted)) > 1e-4
        flat = make(priors={name: {parameter: None}}).priors.loc[(name, parameter), "prior"]
        assert flat.startswith(("flat in ", "flat: N("))


def test_columns_of_a_dispersion_have_their_sd_by_the_weights_in_any_unit():
    """N(0, fixed_sd^2) of what one sd of a column does, where a row of weight 9 is the row nine times."""
    weight = np.where(DATA.x > 0.5, 9, 1)
    often = DATA.loc[DATA.index.repeat(weight)]
    wide = 10.0 / often.x.std(ddof=0)
    for unit in (1.0, 1e-14):
        for data, given in ((DATA.assign(w=weight), {"weights": "w"}), (often, {})):
            made = fenchel.Model("count ~ 1", data.assign(x=unit * data.x), "gaussian", dispersion="~ x", **given)
            upper = made.priors.loc[("dispersion", "x"), "upper"]
            assert upper == pytest.approx(1.96 * wide / unit, rel=1e-3)


def inflated():
    rng = RNG(0)
    x = rng.normal(size=300)
    rng.normal(size=300)
    z = np.where(rng.uniform(size=300) < expit(-1.0 - 6.0 * x), 0, rng.poisson(np.exp(1.0 + 0.3 * x)))
    return x, z


def inflated_below():
    """Where columns are at their mean there are next to no structural zeros: the level is far from its prior's."""
    rng = RNG(3)
    x = rng.gamma(1.0, 9.0, 600)
    return x, np.where(rng.uniform(size=600) < expit(-0.5 - 0.6 * x), 0, rng.poisson(np.exp(1.0 + 0.02 * x)))


@pytest.mark.parametrize(("draw", "near"), [(inflated, 0.1), (inflated_below, 0.4)])
def test_an_inflation_slope_is_that_of_maximum_likelihood(draw, near):
    x, z = draw()
    data = pd.DataFrame({"x": x, "z": z})

    def loss(b):
        u = (x - x.mean()) / x.std()
        eta, logit = b[0] + b[1] * u, b[2] + b[3] * u
        count = z * eta - np.exp(eta) - gammaln(z + 1.0) - np.logaddexp(0.0, logit)
        return -np.where(z == 0, np.logaddexp(count, -np.logaddexp(0.0, -logit)), count).sum()

    best = minimize(loss, [1.0, 0.0, -1.0, 0.0], method="BFGS")
    hessian = difference(lambda b: difference(loss, b, 1e-4), best.x, 1e-4)
    asked = {"family": "zero-inflated-poisson", "zero": "~ x"}
    expected, se = best.x[3] / x.std(), np.sqrt(np.linalg.inv(hessian)[3, 3]) / x.std()
    for options, within in (({"fixed_sd": 1e3}, 0.03), ({}, near), ({"priors": {"zero": None}}, 0.03)):
        fit = fenchel.fit("z ~ x", data, **asked, **options)
        slope = fit.hyperparameters.loc[("zero (logit of a zero)", "x"), "value"]
        assert abs(slope - expected) < within * se
    tight = fenchel.fit("z ~ x", data, priors={"zero": {"x": Normal(0.0, 0.1)}}, **asked)
    assert abs(tight.hyperparameters.loc[("zero (logit of a zero)", "x"), "value"]) < 1.0


def test_a_formula_of_a_level_alone_is_the_model_without_it():
    one, other = model("negative-binomial"), model("negative-binomial", dispersion="~ 1")
    assert objective(one) == pytest.approx(objective(other), abs=1e-6)
    np.testing.assert_allclose(one.own_priors.bounds, other.own_priors.bounds)


def test_a_word_that_a_column_has_is_the_columns():
    data = DATA.assign(size=DATA.x)
    made = fenchel.Model("count ~ size", data, "negative-binomial", priors={"size": Normal(0.0, 2.0)})
    assert made.priors.loc[("size", "coefficient"), "prior"] == "N(0, 2^2)"
    own = fenchel.Model("count ~ size", data, "negative-binomial", priors={"NegativeBinomial size": None})
    assert own.priors.loc[("NegativeBinomial size", "size"), "prior"] == "flat in log size"


# -- defaults -----------------------------------------------------------------------------------------------
def test_where_the_data_say_little_of_a_size_its_interval_is_finite_and_the_summary_says_so():
    for asked in ({}, {"priors": {"size": None}}):
        fit = model("negative-binomial", **asked).fit()
        value, lower, upper = fit.hyperparameters.loc[("NegativeBinomial", "size")]
        low, high = np.exp(fit.model.own_priors.bounds[0])
        assert low * (1 - 1e-9) <= lower < value < upper <= high * (1 + 1e-9)
        assert "hardly determine 'size'" in "".join(fit.summary().splitlines()[:5])
    assert fit.model.priors.loc[("size", "size"), "prior"] == "flat in log size"


IDENTIFIED = [
    ("gaussian", "noise", lambda rng, m: m + rng.normal(size=m.size)),
    ("student-t", "noise", lambda rng, m: m + rng.standard_t(4, m.size)),
    ("negative-binomial", "size", lambda rng, m: rng.poisson(np.exp(m) * rng.gamma(2.0, 0.5, m.size))),
    ("negative-binomial-1", "dispersion", lambda rng, m: rng.negative_binomial(np.exp(m) / 2, 1 / 3)),
    ("gamma", "shape", lambda rng, m: rng.gamma(3.0, np.exp(m) / 3)),
    ("weibull", "shape", lambda rng, m: rng.weibull(2.0, m.size) * np.exp(-m / 2)),
    ("beta", "precision", lambda rng, m: rng.beta(8 * expit(m), 8 * expit(-m))),
    ("ordinal", "cutpoints", lambda rng, m: np.digitize(m + rng.logistic(size=m.size), [-1.0, 0.5, 2.0])),
    (
        "zero-inflated-poisson",
        "probability",
        lambda rng, m: np.where(rng.random(m.size) < 0.2, 0, rng.poisson(np.exp(1 + m))),
    ),
]


@pytest.mark.parametrize(("family", "name", "draw"), IDENTIFIED, ids=[case[0] for case in IDENTIFIED])
def test_default_priors_move_what_the_data_tell_by_little(family, name, draw):
    rng = RNG(1)
    data = pd.DataFrame({"x": rng.normal(size=400)})
    data["y"] = draw(rng, 0.3 + 0.5 * data.x.to_numpy())
    usual, flat = (fenchel.fit("y ~ x", data, family, priors=priors) for priors in ({}, {name: None}))
    se = np.sqrt(np.diag(flat.theta_covariance))
    assert (np.abs(usual.theta - flat.theta) < 0.05 * se).all()
    assert not any("hardly determine" in line for line in usual.summary().splitlines())


def test_defaults_go_with_the_unit_of_y():
    one, other = model("gaussian"), fenchel.Model("y ~ x + (1|g)", DATA.assign(y=1000.0 * DATA.real), "gaussian")
    ratio = other.priors.loc[("noise", "sd"), ["lower", "upper"]] / one.priors.loc[("noise", "sd"), ["lower", "upper"]]
    np.testing.assert_allclose(ratio.astype(float), 1000.0)


# -- terms --------------------------------------------------------------------------------------------------
def ring(n, chords=()):
    edges = [(i, (i + 1) % n) for i in range(n)] + list(chords)
    A = sp.lil_array((n, n))
    for i, j in edges:
        A[i, j] = A[j, i] = 1.0
    return sp.csr_array(A)


def areas(term, **options):
    A, rng = ring(12, [(0, 5), (2, 9)]), RNG(2)
    data = pd.DataFrame({"r": np.tile(np.arange(12), 3), "y": rng.poisson(3.0, 36)})
    return fenchel.Model(f"y ~ {term}(r)", data, "poisson", graphs={"r": A}, **options)


def test_terms_by_the_names_that_tables_print():
    by_sd = areas("bym2", priors={"bym2(r)": {"sd": PC(sd=2.0, alpha=0.05)}})
    assert by_sd.priors.loc[("bym2(r)", "sd"), "prior"] == "exponential, P(sd > 2) = 0.05"
    normal = areas("bym2", priors={"bym2(r)": {"sd": Normal(-1.0, 0.5)}})
    assert normal.priors.loc[("bym2(r)", "sd"), "prior"] == "log sd ~ N(-1, 0.5^2)"
    np.testing.assert_allclose(
        normal.priors.loc[("bym2(r)", "sd"), ["lower", "upper"]].astype(float), np.exp([-1.98, -0.02]), rtol=1e-3
    )
    term = normal.sum.effects[0]
    assert term.hyperparameters[0].prior == Normal(-1.0, 0.5)  # of log sd
    alone = areas("bym2", priors={"bym2(r)": PC(phi=0.5, alpha=2 / 3)})  # goes to the one it names
    assert alone.priors.loc[("bym2(r)", "phi"), "prior"] == "PC, P(phi < 0.5) = 0.6667"
    assert alone.priors.loc[("bym2(r)", "sd"), "prior"] == "half-normal, P(sd > 5) = 0.05"
    each = pd.DataFrame({"x": np.linspace(0.0, 1.0, 40), "f": ["a", "b"] * 20, "y": np.arange(40.0)})
    wide = fenchel.Model("y ~ f + s(x, by=f)", each, priors={"s(x,by=f)": HalfNormal(2.0, 0.05)}).priors
    assert wide.loc["s(x,by=f)", "prior"].to_dict() == {
        f"sd[{level}]": f"half-normal, P(sd[{level}] > 2) = 0.05" for level in "ab"
    }
    slopes = fenchel.Model("y ~ (x|f)", each, priors={"(x|f)": PC(sd=2.0, alpha=0.05)}).priors.loc["(x|f)", "prior"]
    assert slopes.str.contains("> 2) = 0.05", regex=False).tolist() == [True, True, False]
    ranged = fenchel.Model("real ~ gp(x)", DATA, priors={"gp(x)": PC(range=0.5, alpha=0.1)}).priors
    assert ranged.loc[("gp(x)", "range"), "prior"] == "P(range < 0.5) = 0.1"


def test_refusals_say_what_is_expected():
    cases = [
        ({"bym2(r)": {"tau": None}}, r"priors\['bym2\(r\)'\] names 'tau'; expected sd, phi"),
        ({"bym2(r)": {"phi": PC(sd=1.0)}}, r"expected PC\(phi=u, alpha=a\) or \(u, a\) for P\(phi < u\) = a, Normal\("),
        (
            {"bym2(r)": {"sd": "wide"}},
            r"expected PC\(sd=u, alpha=a\) or \(u, a\) for P\(sd > u\) = a, Normal\(mean, sd\)",
        ),
        ({"size": Normal()}, r"priors name 'size'; expected one of \['Intercept', 'bym2\(r\)'\]"),
    ]
    for priors, sentence in cases:
        with pytest.raises(Refusal, match=sentence):
            areas("bym2", priors=priors)
    with pytest.raises(Refusal, match=r"the prior of 'size' is 3; expected Normal\(mean, sd\) of log size, or None"):
        model("negative-binomial", priors={"size": 3})
    with pytest.raises(Refusal, match=r"priors\['cutpoints'\] names 'last'; expected 'first', 'step 1', 'step 2'"):
        model("ordinal", priors={"cutpoints": {"last": None}})
    with pytest.raises(Refusal, match=r"expected \{name: prior\} with names of 'first', 'step 1', 'step 2'"):
        model("ordinal", priors={"cutpoints": Normal()})
    lives = pd.DataFrame({"t": np.arange(1.0, 13.0), "e": 1, "x": np.arange(12) % 5})
    for given in (Normal(), {"sd": Normal()}):
        with pytest.raises(Refusal, match="priors name 'baseline', whose size is fixed"):
            fenchel.Model("cens(t, e) ~ x", lives, "cox", baseline="free", priors={"baseline": given})
    with pytest.raises(Refusal, match="sd and phi are given"):
        PC(sd=1.0, phi=0.5)
    with pytest.raises(Refusal, match="alpha below"):
        PCCorrelation(0.5, 0.7, base=1)


def test_a_correlation_prints_as_uniform():
    printed = model("gaussian", "x + (x|g)").priors
    assert printed.loc[("(x|g)", "correlation intercept, x"), "prior"] == "uniform on (-1, 1)"
    np.testing.assert_allclose(
        printed.loc[("(x|g)", "correlation intercept, x"), ["lower", "upper"]].astype(float), [-0.95, 0.95], atol=1e-3
    )


SCALES = [  # what a printed scale says of the value x: t of "t ~ N(m, s^2)"
    (r"log \((.+) - 1\)", lambda x: np.log(x - 1.0)),
    (r"log (.+)", np.log),
    (r"logit of (.+) between 1 and 2", lambda x: np.log((x - 1.0) / (2.0 - x))),
    (r"logit (.+)", lambda x: np.log(x / (1.0 - x))),
    (r"2 atanh (.+)", lambda x: 2.0 * np.arctanh(x)),
]
TERMS = [
    *["(1|g)", "(x|g)", "(x + z|g)", "s(x)", "te(x, z)", "gp(x)", "matern(x)", "matern(x, z)", "vecchia(x, z)"],
    *["rw1(t)", "rw2(x)", "ar1(t)", "ar1(x)", "ar(t, 2)", "seasonal(t, 4)", "ar1(t, by=g)", "bym2(r)", "leroux(r)"],
    *["icar(r, by=x)", "interact(leroux(r), ar1(t))", "mm(g, r)"],
]


@pytest.mark.parametrize("term", TERMS)
def test_a_normal_is_on_the_scale_that_is_printed(term):
    """The middle 95 % of a stated normal, taken to the scale that the table names, are its mean and 1.96 of its sd."""
    data = DATA.assign(z=RNG(4).uniform(size=N), t=np.arange(N) % 10, r=np.arange(N) % 12)
    make = lambda **given: fenchel.Model(f"count ~ {term}", data, "poisson", graphs={"r": ring(12)}, **given)
    usual = make().priors
    for name, parameter in usual.index:
        if parameter in ("at the mean of the columns", "coefficient", "kernel", "nugget"):
            continue
        after = make(priors={name: {parameter: Normal(0.3, 0.1)}}).priors
        assert list(after.index[after["prior"] != usual["prior"]]) == [(name, parameter)]
        label = after.loc[(name, parameter), "prior"].removesuffix(" ~ N(0.3, 0.1^2)")
        transform = next(f for pattern, f in SCALES if re.fullmatch(pattern, label))
        ends = transform(after.loc[(name, parameter), ["lower", "upper"]].to_numpy(dtype=float))
        np.testing.assert_allclose(ends, [0.3 - 0.196, 0.3 + 0.196], atol=1e-3)


def test_correlations_of_three_columns_print_their_density():
    data = DATA.assign(z=RNG(4).uniform(size=N))
    printed = fenchel.Model("real ~ (x + z|g)", data).priors["prior"]
    for (_, parameter), text in printed.items():
        if "correlation" in parameter:
            plain = parameter.startswith("partial")
            assert text == ("uniform on (-1, 1)" if plain else "density (1 - r^2)^0.5 of r on (-1, 1)")


def test_a_coefficient_goes_by_its_name_beside_a_term_over_its_column():
    """log N(y; ...) of y ~ x + s(x) moves by the prior of x, and by nothing else."""
    for right in ("x + s(x)", "x + rw1(x)"):
        made = [model("gaussian", right, priors=given) for given in ({}, {"x": Normal(0.2, 0.1)})]
        differs = made[0].priors["prior"] != made[1].priors["prior"]
        assert list(made[0].priors.index[differs]) == [("x", "coefficient")]
        prior = [m.sum.family().at(m.sum.family().theta) for m in made]
        scale, unit = made[0].sum.columns.scale[0], made[0].sum.columns.standardise(made[0].sum.X)[:, 0]
        moved = np.diff([np.asarray(p.offset) + np.zeros(N) for p in prior], axis=0)[0]
        np.testing.assert_allclose(moved, 0.2 * scale * unit, atol=1e-12)
        assert made[1].sum.fixed_variance[1] == pytest.approx((0.1 * scale) ** 2)


# -- PC priors of shares and correlations ----------------------------------------------------------------------
def kl(S):
    """Of N(0, S) from N(0, I), by dense algebra."""
    return 0.5 * (np.trace(S) - len(S) - np.linalg.slogdet(S)[1])


def test_the_prior_of_phi_is_exponential_in_the_distance():
    """Density of logit phi by the dense KL divergence and a numerical derivative; P(phi < 1/2) = 2/3."""
    made = areas("bym2", priors={"bym2(r)": {"phi": PC(phi=0.5, alpha=2 / 3)}})
    prior = made.sum.effects[0].hyperparameters[1].prior
    G = np.linalg.pinv(scaled_icar(ring(12, [(0, 5), (2, 9)]))[0].toarray())
    assert np.exp(np.log(np.diag(G)).mean()) == pytest.approx(1.0)
    d = lambda phi: np.sqrt(2.0 * kl((1.0 - phi) * np.eye(12) + phi * G))
    rate = np.log(3.0) / d(0.5)
    for theta in (-4.0, -1.0, 0.3, 2.0, 5.0):
        step = 1e-5
        slope = (d(expit(theta + step)) - d(expit(theta - step))) / (2 * step)
        assert prior(theta)[0] == pytest.approx(np.log(rate * slope) - rate * d(expit(theta)), abs=1e-6)
        numeric = (prior(theta + step)[0] - prior(theta - step)[0]) / (2 * step)
        assert prior(theta)[1] == pytest.approx(numeric, abs=1e-6)
    assert quad(lambda t: np.exp(prior(t)[0]), -40.0, 0.0)[0] == pytest.approx(2 / 3, abs=1e-8)


def test_the_prior_of_rho_of_leroux():
    made = areas("leroux", priors={"leroux(r)": {"rho": PC(rho=0.7, alpha=0.6)}})
    prior = made.sum.effects[0].hyperparameters[1].prior
    A = ring(12, [(0, 5), (2, 9)]).toarray()
    L = np.diag(A.sum(axis=1)) - A
    d = lambda rho: np.sqrt(2.0 * kl(np.linalg.inv((1.0 - rho) * np.eye(12) + rho * L)))
    rate = -np.log(0.4) / d(0.7)
    for theta in (-3.0, 0.0, 1.5, 4.0):
        step = 1e-5
        slope = (d(expit(theta + step)) - d(expit(theta - step))) / (2 * step)
        assert prior(theta)[0] == pytest.approx(np.log(rate * slope) - rate * d(expit(theta)), abs=1e-5)
    assert quad(lambda t: np.exp(prior(t)[0]), -40.0, np.log(0.7 / 0.3))[0] == pytest.approx(0.6, abs=1e-8)


@pytest.mark.parametrize(("base", "alpha"), [(0, 0.8), (1, 0.3)])
def test_the_prior_of_phi_of_an_autoregression(base, alpha):
    data = pd.DataFrame({"t": np.arange(12), "y": RNG(0).normal(size=12)})
    made = fenchel.Model("y ~ ar1(t)", data, priors={"ar1(t)": {"phi": PC(phi=0.7, alpha=alpha, base=base)}})
    prior = made.sum.effects[0].hyperparameters[1].prior
    at = 2.0 * np.arctanh(0.7)
    density = lambda t: np.exp(prior(t)[0])
    halves = [quad(density, *ends, limit=400)[0] for ends in ((-60.0, -at), (-at, 0.0), (0.0, at), (at, 90.0))]
    assert sum(halves) == pytest.approx(1.0, abs=1e-4)
    assert sum(halves[1:3] if base == 0 else halves[:3]) == pytest.approx(alpha, abs=1e-6)
    for theta in (-2.0, 0.4, 3.0):
        rho, step = np.tanh(theta / 2), 1e-6
        if base == 0:  # 2 KL of one step from no correlation
            d = lambda r: np.sqrt(-np.log(1.0 - r * r))
            rate = -np.log(1.0 - alpha) / d(0.7)
            slope = abs(d(rho + step) - d(rho - step)) / (2 * step)
            expected = np.log(rate / 2 * slope) - rate * d(rho) + np.log((1 - rho * rho) / 2)
            assert prior(theta)[0] == pytest.approx(expected, abs=1e-6)
        numeric = (prior(theta + step)[0] - prior(theta - step)[0]) / (2 * step)
        assert prior(theta)[1] == pytest.approx(numeric, abs=1e-6)


def test_large_graphs_by_a_quadrature(monkeypatch):
    R = scaled_icar(ring(400, [(i, i + 7) for i in range(0, 390, 3)]))[0]
    exact = Spectrum.of(R, 1)
    monkeypatch.setattr(gates, "EVERY_EIGENVALUE", 10)
    rough = Spectrum.of(R, 1)
    assert rough.weights.sum() == pytest.approx(399.0)
    for phi in (0.1, 0.5, 0.95):
        one, two = (CovarianceShare(each.inverse().with_zeros(1))(phi, 1.0 - phi) for each in (exact, rough))
        np.testing.assert_allclose(two, one, rtol=0.01)
        one, two = (PrecisionShare(each.with_zeros(1))(phi, 1.0 - phi) for each in (exact, rough))
        np.testing.assert_allclose(two, one, rtol=0.03)


# -- hurdles, files, documents ------------------------------------------------------------------------------
def test_each_part_of_a_hurdle_by_its_name():
    asked = {"family": "hurdle-negative-binomial", "zero": "~ x"}
    data = pd.DataFrame({"x": DATA.x, "y": DATA["count"]})
    priors = {"zero": {"x": Normal(0.0, 1e-3)}, "count": {"x": Normal(1.0, 1e-3)}, "size": Normal(1.0, 0.1)}
    fit = fenchel.fit("y ~ x", data, priors=priors, **asked)
    assert fit.coefficients.loc[("zero", "x"), "mean"] == pytest.approx(0.0, abs=0.01)
    assert fit.coefficients.loc[("count", "x"), "mean"] == pytest.approx(1.0, abs=0.01)
    assert fit.priors.loc[("count", "size", "size"), "prior"] == "log size ~ N(1, 0.1^2)"


def test_a_part_of_a_hurdle_is_flat_or_stated_by_name():
    asked = {"family": "hurdle-poisson", "zero": "~ x"}
    data = pd.DataFrame({"x": DATA.x, "y": DATA["count"]})
    usual = fenchel.Model("y ~ x", data, **asked).fit().priors
    pd.testing.assert_frame_equal(fenchel.Model("y ~ x", data, **asked).priors, usual)
    for part, other in (("count", "zero"), ("zero", "count")):
        flat = fenchel.fit("y ~ x", data, priors={part: None}, **asked).priors
        assert flat.loc[(part, "x", "coefficient"), "upper"] > 99.0 * usual.loc[(part, "x", "coefficient"), "upper"]
        pd.testing.assert_frame_equal(flat.loc[other], usual.loc[other])
        with pytest.raises(ValueError, match=rf"priors\['{part}'\] is Normal.* of the model of {part}s, or None"):
            fenchel.Model("y ~ x", data, priors={part: Normal(0.0, 1.0)}, **asked)


def test_stated_priors_are_kept_in_a_file(tmp_path):
    fit = model("negative-binomial", priors={"size": Normal(0.0, 1.0), "(1|g)": {"sd": Normal(0.0, 1.0)}}).fit()
    fit.save(tmp_path / "fit.fenchel")
    again = fenchel.load(tmp_path / "fit.fenchel")
    pd.testing.assert_frame_equal(again.priors, fit.priors)
    phi = areas("bym2", priors={"bym2(r)": PC(phi=0.5, alpha=2 / 3)}).fit()
    phi.save(tmp_path / "map.fenchel")
    pd.testing.assert_frame_equal(fenchel.load(tmp_path / "map.fenchel").priors, phi.priors)
    line = fenchel.fit("real ~ gp(x)", DATA, priors={"gp(x)": PC(range=0.5, alpha=0.1)})
    line.save(tmp_path / "line.fenchel")
    pd.testing.assert_frame_equal(fenchel.load(tmp_path / "line.fenchel").priors, line.priors)


def test_parts_of_several_likelihoods():
    from fenchel.likelihoods import Gaussian, Mixed

    family = Mixed([Gaussian(1.0), Gaussian(2.0)], which=(DATA.index % 2).to_numpy())
    made = fenchel.Model("real ~ x", DATA, family, priors={"noise of part 1": Normal(0.0, 0.5)})
    assert made.priors.loc[("noise of part 1", "sd"), "prior"] == "log sd ~ N(0, 0.5^2)"
    theta = made.target.likelihood.theta
    value, slope = made.target.likelihood.log_prior(theta + 0.1)
    assert slope == pytest.approx([-0.1 / 36.0, -(np.log(2.0) + 0.1)])
    assert np.isfinite(value)


@reads_repository
def test_the_documents_table_of_defaults_is_what_is_printed():
    """| `name` | parameter | what is printed | families |: numbers of the data are dots there."""
    rows = re.findall(r"^\| `([\w ]+)` \| ([\w ]+) \| `([^`]+)` \| ([^|]+) \|$", DOCS.read_text(), flags=re.MULTILINE)
    seen = set()
    for name, parameter, text, families in rows:
        for family in families.split(", "):
            learned = fenchel.StudentT(learn_df=True)
            made = fenchel.Model("real ~ x", DATA, learned) if family == "StudentT(learn_df=True)" else model(family)
            printed = made.priors.loc[(name, parameter), "prior"]
            pattern = re.escape(text).replace(re.escape("..."), r"-?[\d.e+-]+")
            assert re.fullmatch(pattern, printed), (family, name, printed)
            seen |= {(family, name)}
    for family in WORDS:
        own = {(family, name) for name in model(family).own_priors.names}
        assert own <= seen, own - seen


# -- the default prior of an sd -------------------------------------------------------------------
def test_the_default_prior_of_an_sd_is_in_units_of_eta():
    """Five sds of y for noise about eta, 5 on a scale of logs; of a slope for what one sd of its column does."""
    spread = float(fenchel.Model("real ~ 1", DATA).target.scale)
    for left, family, unit in (("real", "gaussian", spread), ("count", "poisson", 1.0)):
        table = fenchel.Model(f"{left} ~ x + (x|g)", DATA, family).priors
        for parameter, by in (("sd intercept (at the mean)", 1.0), ("sd x", float(np.std(DATA.x)))):
            words = table.loc[("(x|g)", parameter), "prior"]
            limit = re.fullmatch(r"half-normal, P\(.* > ([\d.e+-]+)\) = 0.05", words)
            assert float(limit[1]) == pytest.approx(5.0 * unit / by, rel=1e-3)


def test_the_default_prior_does_not_decide():
    """Beside a flat prior of the sd it moves the posterior mode by less than 3 % with 10 groups or more."""
    s = np.exp(np.linspace(-3.0, 3.0, 4001))
    default = np.array([HalfNormal(5.0, 0.05)(float(t))[0] for t in np.log(s)]) - np.log(s)  # density of the sd itself
    old = -np.log(100.0) * s
    for groups, limit in ((10, 0.03), (20, 0.015), (200, 0.002)):
        for true in (0.3, 1.0):
            variance = s**2 + 0.2**2  # group means with standard errors 0.2
            log_p = -0.5 * (groups - 1) * (np.log(variance) + (true**2 + 0.2**2) / variance)
            flat, ours, before = (s[np.argmax(log_p + part)] for part in (0.0, default, old))
            assert abs(ours / flat - 1.0) < limit
            assert before <= ours
    few = -0.5 * 2 * (np.log(s**2) + 1.0 / s**2) + default  # three groups that differ with sd 1
    density = np.exp(few - few.max()) * s
    total = np.cumsum(density) / density.sum()
    assert 3.0 < s[np.searchsorted(total, 0.975)] < 5.0


def test_the_straight_line_of_a_curve_keeps_its_prior_mean_wherever_the_curve_is_shown():
    """N(5, 0.01^2) beside the wide default where data say 5: one curve, in tables, predictions, proofs and draws."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=60)})
    data["y"] = 5.0 * data.x + rng.normal(size=60)
    wide = fenchel.fit("y ~ s(x)", data, "gaussian", accuracy="fast")
    stated = fenchel.fit("y ~ s(x)", data, "gaussian", accuracy="fast", priors={"s(x) (slope)": Normal(5.0, 0.01)})
    curves = [fit.effects["s(x)"]["mean"] for fit in (wide, stated)]
    np.testing.assert_allclose(*curves, atol=0.6)
    by_itself = stated.predict(data, "link", without="fixed")
    np.testing.assert_allclose(stated.predict(data, "link") - by_itself, stated.params["Intercept"], atol=1e-8)
    place = curves[1].index[-1]
    event = stated.proved(("s(x)", place))
    end = stated.effects["s(x)"].iloc[-1]
    np.testing.assert_allclose(event.table[["low", "high"]].to_numpy()[0], end[["lower", "upper"]].tolist())
    drawn = np.asarray(stated.to_arviz(200, predictive=False).posterior["s(x)"]).reshape(-1, len(curves[1]))
    np.testing.assert_allclose(drawn.mean(axis=0), curves[1], atol=0.2)
