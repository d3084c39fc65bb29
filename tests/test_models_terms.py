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


def test_levels_of_a_term_that_is_over_none_are_refused(data):
    with pytest.raises(Refusal, match=r"levels of 's\(x\)'; expected levels of a term over the levels of one column"):
        fenchel.Model("y ~ s(x)", data, levels={"s(x)": [1, 2]})
    with pytest.raises(Refusal, match=r"levels of 'interact\(iid\(g\),iid\(h\)\)'"):
        fenchel.Model("y ~ interact(iid(g), iid(h))", data, levels={"interact(iid(g),iid(h))": ["a"]})
    for key in ("ragion", "g:h"):  # no column, and a combination that no term is over
        with pytest.raises(Refusal, match=f"levels: there is no column {key!r}; expected columns or terms"):
            fenchel.Model("y ~ (1|g)", data, levels={key: ["a"]})


def test_levels_reach_the_terms_that_are_over_them_and_no_others(data):
    more = [*sorted(data.g.unique()), "another"]
    for key in ("g", "(x||g)"):
        model = fenchel.Model("y ~ (x||g)", data, levels={key: more})
        assert [term.levels for term in model.sum.effects] == [more, more]
    both = terms.Grouped(["g", "h"], name="pairs")
    model = fenchel.Model("y ~ 1", data, terms=[terms.IID("g", name="own"), both], levels={"own": more})
    assert model.sum.effects[0].levels == more
    model = fenchel.Model("y ~ (1|g)", data, terms=[both], levels={"g": more})  # g is not the column of its pairs
    assert model.sum.effects[0].levels == more
    assert all(len(level) == 2 for level in model.sum.effects[1].levels)


def test_options_of_a_known_covariance_are_read_or_refused(data):
    with pytest.raises(Refusal, match=r"gr\(g, cov=A, by=h\) has other options; expected gr\(group, cov=A\)"):
        fenchel.Model("y ~ (1|gr(g, cov=A, by=h))", data, env={"A": np.eye(20)})
    ids = data.assign(i=data.groupby("g").ngroup() + 1)
    with pytest.raises(Refusal, match="counted from 0 or from 1"):
        fenchel.Model("y ~ (0 + x|gr(i, cov=A))", ids, env={"A": np.eye(ids.i.max() + 1)})


def test_times_of_several_sorts_are_named():
    table = terms.DataTable("here", {"t": [pd.Timestamp("2020-01-01"), 3, 4]})
    with pytest.raises(Refusal, match="the column 't' holds dates and numbers; expected numbers or dates"):
        terms.RW1("t").read(table, 1.0)
    days = [pd.Timestamp(f"2020-01-{day:02d}").date() for day in (1, 2, 5)]
    np.testing.assert_allclose(np.diff(terms.Wiener("t").read(terms.DataTable("here", {"t": days}), 1.0).times), [1, 3])


def test_words_for_periods_are_told_how_to_become_periods():
    months = pd.period_range("2020-01", periods=4, freq="M")
    term = terms.RW1("t").read(terms.DataTable("here", {"t": months}), 1.0)
    with pytest.raises(Refusal, match=r"pandas.to_datetime\(X\['t'\]\).dt.to_period\('M'\) makes periods of it"):
        term.rows(terms.DataTable("here", {"t": ["2020-02"]}), new=True)


def test_numbers_of_several_types_are_numbers():
    from decimal import Decimal

    frame = pd.DataFrame({"x": pd.Series([Decimal("1.5"), 2, None, True], dtype=object)})
    assert terms.DataTable("here", frame).column("x").kind is terms.Kind.NUMBERS
    assert terms.DataTable("here", {"x": [1, "a"]}).column("x").kind is terms.Kind.MIXED
