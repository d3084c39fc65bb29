"""Special terms by formula: the same fits as with the terms themselves, and what they answer."""

import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel import terms
from fenchel.checks import Refusal


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    n = 300
    out = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "z": rng.uniform(size=n),
            "g": rng.integers(0, 20, n),
            "h": rng.integers(0, 20, n),
            "f": rng.choice(list("abc"), n),
            "t": rng.integers(2000, 2020, n),
            "u": rng.uniform(0, 10, n).round(1),
            "r": rng.integers(0, 12, n),
        }
    )
    b = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.5], [0.5, 0.6]], 20)
    out["y"] = 1 + 0.5 * out.x + b[out.g, 0] + b[out.g, 1] * out.x + np.sin(6 * out.z) + 0.5 * rng.normal(size=n)
    return out


RING = np.roll(np.eye(12), 1, axis=0) + np.roll(np.eye(12), -1, axis=0)
FORMULAS = {
    "y ~ x + (x|g)": lambda: [terms.Grouped("g", ["x"])],
    "y ~ x + (f|g)": lambda: [terms.Grouped("g", ["f"])],
    "y ~ x + (0 + f|g)": lambda: [terms.Grouped("g", ["f"], intercept=False)],
    "y ~ x + (f||g)": lambda: [terms.Grouped("g", ["f"], correlated=False)],
    "y ~ x + (x|g:f)": lambda: [terms.Grouped(["g", "f"], ["x"])],
    "y ~ x + mm(g, h)": lambda: [terms.MultipleMembership("g", "h")],
    "y ~ x + (1|mm(g, h, weights=[z, u]))": lambda: [terms.MultipleMembership("g", "h", weights=["z", "u"])],
    "y ~ x + (1|gr(g, cov=A))": lambda: [terms.KnownCovariance("g", cov=0.5 + 0.5 * np.eye(20))],
    "y ~ x + s(z)": lambda: [terms.Smooth("z")],
    "y ~ x + s(z, bs='ps', k=12)": lambda: [terms.Smooth("z", bs="ps", k=12)],
    "y ~ x + s(z, by=f)": lambda: [terms.Smooth("z", by="f")],
    "y ~ te(x, z)": lambda: [terms.Tensor("x", "z")],
    "y ~ x + rw1(u)": lambda: [terms.Wiener("u")],
    "y ~ x + rw2(u)": lambda: [terms.IntegratedWiener("u")],
    "y ~ x + ar1(u)": lambda: [terms.OrnsteinUhlenbeck("u")],
    "y ~ x + rw1(t)": lambda: [terms.RW1("t")],
    "y ~ x + ar(t, 2)": lambda: [terms.AR("t", 2)],
    "y ~ x + rw1(t, by=f)": lambda: [terms.Replicated(terms.RW1("t"), "f")],
    "y ~ x + interact(icar(r), rw1(t))": lambda: [terms.Interaction(terms.ICAR("r", RING), terms.RW1("t"))],
    "y ~ x + interact(iid(r), iid(t))": lambda: [terms.Interaction(terms.IID("r"), terms.IID("t"))],
}


@pytest.mark.filterwarnings("ignore:.*all about one level")  # s(z, by=f) without f
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_is_its_terms(data, formula):
    env = {"A": 0.5 + 0.5 * np.eye(20)}
    model = fenchel.Model(formula, data, graphs={"r": RING}, env=env)
    alone = "y ~ x" if "x" in model.fixed.expression.names else "y ~ 1"
    fit, peer = model.fit(), fenchel.fit(alone, data, terms=FORMULAS[formula]())
    assert fit.converged
    assert fit.elbo == pytest.approx(peer.elbo, abs=1e-6)
    np.testing.assert_allclose(fit.predict(data), peer.predict(data), rtol=1e-5, atol=1e-6)
    (name,) = fit.effects
    table = fit.effects[name]
    assert (table["sd"] > 0).any()
    spread = fit.hyperparameters
    assert (spread["lower"] < spread["value"]).all()
    assert np.isfinite(fit.sample(data.head(4), 5, 0)).all()


def test_correlated_slopes_of_a_formula(data):
    fit = fenchel.fit("y ~ x + (x|g)", data)
    table = fit.hyperparameters.loc["(x|g)"]
    assert list(table.index) == ["sd intercept", "sd x", "correlation intercept, x"]
    assert (table["lower"].iloc[:2] < [1.0, 0.6**0.5]).all()
    assert (table["upper"].iloc[:2] > [1.0, 0.6**0.5]).all()
    far = fenchel.fit("y ~ x + (x|g)", data.assign(x=1e4 + 100 * data.x))
    np.testing.assert_allclose(far.predict(), fit.predict(), rtol=1e-5)
    effects = fit.effects["g"]
    assert effects.index.nlevels == 2
    assert effects.loc[(3, "x"), "n"] == (data.g == 3).sum()


def test_slopes_that_formulaic_makes(data):
    one = fenchel.fit("y ~ x + (np.exp(x)|g)", data)
    two = fenchel.fit("y ~ x + (e|g)", data.assign(e=np.exp(data.x)))
    assert one.elbo == pytest.approx(two.elbo, abs=1e-7)
    np.testing.assert_allclose(one.predict(data.head(9)), two.predict().head(9), rtol=1e-6)


def test_new_groups_and_times_between(data):
    fit = fenchel.fit("y ~ x + (x|g) + rw1(u)", data)
    new = data.head(2).assign(g=99, u=[3.333, 4.0])
    draws = fit.sample(new, 20_000, 0, kind="link")
    table = fit.predict(new, "link", interval=0.95)
    np.testing.assert_allclose(draws.std(axis=0), (table["upper"] - table["lower"]) / (2 * 1.959964), rtol=0.05)
    fit.predict(data.head(1).assign(u=3.333), new_groups="error")  # a time is no group
    with pytest.raises(Refusal, match=r"row 0 has a group of \(x\|g\) that fit has not seen: 99"):
        fit.predict(new, new_groups="error")
    members = fenchel.fit("y ~ mm(g, h)", data)
    with pytest.raises(Refusal, match="has not seen"):
        members.predict(data.head(1).assign(h=99), new_groups="error")
    assert np.isfinite(members.sample(data.head(1).assign(h=99), 3, 0)).all()


def test_sentences_of_terms_point_at_them(data):
    for formula, sentence in {
        "y ~ s(z, bs='zz')": "s(z,bs='zz'): Smooth: bs = 'zz' is not known",
        "y ~ s(z, k=1)": "s(z,k=1): Smooth: k = 1",
        "y ~ ar(t, 0)": "ar(t,0): AR: p = 0",
    }.items():
        with pytest.raises(Refusal) as caught:
            fenchel.Model(formula, data)
        assert str(caught.value).startswith(f"Model: {sentence}")
        assert str(caught.value).endswith("\n" + " " * 8 + "^")
