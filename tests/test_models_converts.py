"""What people coming from R write first: names, left sides, idioms, and what lme4 would have stopped at."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import fenchel
from fenchel.inputs.observations import families, read_family


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 120
    frame = pd.DataFrame({"x": rng.normal(size=n), "g": rng.integers(0, 10, n), "h": rng.integers(0, 3, n)})
    eta = 0.5 + 0.4 * frame.x + rng.normal(size=10)[frame.g]
    frame["y"], frame["count"] = eta + rng.normal(size=n), rng.poisson(np.exp(eta))
    frame["label"], frame["size"] = (eta > 0).astype(int), 5
    frame["incidence"] = rng.binomial(5, 1 / (1 + np.exp(-eta)))
    return frame


# -- families ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("nbinom2", "negative-binomial"),
        ("nbinom1", "negative-binomial-1"),
        ("Poisson", "poisson"),
        ("betabinomial", "beta-binomial"),
        ("t", "student-t"),
        ("Student_T", "student-t"),
        ("zero_inflated_negbinomial", "zero-inflated-negative-binomial"),
        ("cumulative", "ordinal"),
        ("categorical", "multinomial"),
        ("nbinomial", "negative-binomial"),
        ("zeroinflatedpoisson1", "zero-inflated-poisson"),
        ("zeroinflatednbinomial1", "zero-inflated-negative-binomial"),
        ("zeroinflatedpoisson0", "hurdle-poisson"),
        ("zeroinflatednbinomial0", "hurdle-negative-binomial"),
        ("weibullsurv", "weibull"),
        ("exponentialsurv", "exponential"),
        *[(word.replace("-", "_").upper(), word) for word in families()],
    ],
)
def test_a_family_goes_by_its_names_elsewhere(theirs, ours):
    assert read_family(theirs) == ours


def test_a_family_by_another_name_is_the_same_model(data):
    ours, theirs = (fenchel.fit("count ~ x", data, family=word) for word in ("negative-binomial", "nbinom2"))
    assert ours.elbo == theirs.elbo


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("lognormal", r"np\.log\(y\) on the left side"),
        (fenchel.Poisson, r"family is the class Poisson; expected a likelihood, Poisson\(\), or family=\"poisson\""),
        (3, "family is a int"),
        ("wishart", "'multinomial' or 'cox'"),
        ("poison", "Did you mean 'poisson'"),
    ],
)
def test_what_is_no_family_is_refused_with_the_one_to_take(data, family, message):
    with pytest.raises(ValueError, match=message):
        fenchel.fit("y ~ x", data, family=family)


def test_binomial_of_labels_says_bernoulli(data):
    with pytest.raises(ValueError, match='label is 0 or 1 in every row: family="bernoulli"'):
        fenchel.fit("label ~ x", data, family="binomial")
    with pytest.raises(ValueError, match=r"incidence \| trials\(n\)"):
        fenchel.fit("incidence ~ x", data, family="binomial")


def test_three_labels_are_multinomial(data):
    for y in (data.h, data.h.map({0: "a", 1: "b", 2: "c"})):
        with pytest.raises(ValueError, match="has 3 different labels") as said:
            fenchel.fit("kind ~ x", data.assign(kind=y), family="bernoulli")
        assert 'family="multinomial"' in str(said.value)
        assert "GaussianProcess" not in str(said.value)
    with pytest.raises(ValueError, match='expected family="multinomial"'):
        fenchel.fit("h ~ x", data, family=fenchel.MultinomialLogit(3, bound="log-sum"))


# -- the left side -------------------------------------------------------------------------------------------
def test_cbind_takes_expressions(data, tmp_path):
    holes = data.assign(incidence=data.incidence.astype(float).mask(data.index < 3))
    first = fenchel.fit("incidence | trials(size) ~ x", holes, family="binomial")
    for left in ("incidence, size - incidence", "size - failures, failures"):
        frame = holes.assign(failures=holes["size"] - holes.incidence)
        fit = fenchel.fit(f"cbind({left}) ~ x", frame, family="binomial")
        np.testing.assert_allclose(fit.coefficients["mean"], first.coefficients["mean"], rtol=1e-10)
        assert fit.elbo == pytest.approx(first.elbo, rel=1e-10)
        assert fit.model.dropped.n == 0
        np.testing.assert_allclose(fit.predict(holes.head(2), trials=1), first.predict(holes.head(2), trials=1))
    fit.save(tmp_path / "fit.npz")
    assert fenchel.load(tmp_path / "fit.npz").elbo == fit.elbo


def test_cens_takes_expressions(data):
    frame = data.assign(time=np.exp(data.y), status=1 + data.label)
    first = fenchel.fit("cens(time, label) ~ x", frame, family="weibull")
    fit = fenchel.fit("cens(time, status == 2) ~ x", frame, family="weibull")
    assert fit.elbo == pytest.approx(first.elbo, rel=1e-10)


@pytest.mark.parametrize("left", ["cbind(incidence)", "cbind(incidence, 3)", "cbind(incidence, f=size)"])
def test_pairs_that_are_none_are_refused(data, left):
    with pytest.raises(ValueError, match=r"expected cens\(time, event\)"):
        fenchel.fit(f"{left} ~ x", data, family="binomial")


# -- terms without their options, and other words of R-INLA --------------------------------------------------
def test_a_term_is_named_without_its_options(data):
    written = "matern(x, y, nu=1, edge=0.8)"
    own, short = ({name: {"range": fenchel.PC(range=2, alpha=0.05)}} for name in (written, "matern(x, y)"))
    models = [fenchel.Model(f"count ~ {written}", data, "poisson", priors=priors) for priors in (own, short)]
    pd.testing.assert_frame_equal(models[1].priors, models[0].priors)
    fit = models[1].fit(integrate="grid")
    pd.testing.assert_frame_equal(fit.effects["matern(x, y)"], fit.effects[written])
    np.testing.assert_array_equal(fit.predict(data, without="matern(x, y)"), fit.predict(data, without=written))
    label = fit.plot_joint("sd of matern(x, y)", ("matern(x,y)", "range")).get_ylabel()
    assert label == "range of matern(x,y,nu=1,edge=0.8)"


def test_a_name_that_two_terms_have_without_their_options_is_refused(data):
    formula, prior = "y ~ s(x, by=a) + s(x, by=b)", {"s(x)": fenchel.PC(1.0)}
    frame = data.assign(a=(data.g > 4).astype(float), b=data.size + data.h.astype(float))
    with pytest.raises(ValueError, match=r"priors name 's\(x\)'"):
        fenchel.Model(formula, frame, priors=prior)


def test_hyperparameters_are_named_by_their_first_words(data):
    def stated(**own):
        return fenchel.Model("y ~ x + (x|g)", data, priors={"(x|g)": own}).priors.loc["(x|g)", "prior"].tolist()

    assert stated(sd=fenchel.PC(1, 0.01), correlation=fenchel.Normal(0, 1.14)) == [
        "exponential, P(sd intercept (at the mean) > 1) = 0.01",
        "exponential, P(sd x > 1) = 0.01",
        "2 atanh correlation intercept, x ~ N(0, 1.14^2)",
    ]
    both = stated(**{"sd x": fenchel.PC(2, 0.01), "sd": fenchel.PC(1, 0.01)})  # the longer name in any order
    assert both[:2] == ["exponential, P(sd intercept (at the mean) > 1) = 0.01", "exponential, P(sd x > 2) = 0.01"]
    with pytest.raises(ValueError, match="names 'cor'; expected sd intercept"):
        stated(cor=fenchel.Normal(0, 1))


def test_the_summary_says_what_a_term_is_up_to_the_first_sign_outside_of_brackets(data):
    ring = {i: [(i - 1) % 10, (i + 1) % 10] for i in range(10)}
    frame = data.assign(t=np.arange(len(data)))
    formula = "count ~ seasonal(t, 4) + bym2(g)"
    said = fenchel.fit(formula, frame, "poisson", graphs={"g": ring}, accuracy="fast").summary().lower()
    assert "a seasonal effect whose sum over each period is n(0, c sd^2), 120 levels" in said
    assert "effects of regions with one sd (besag, york, mollie), 10 levels" in said


# -- terms as the formula writes them ------------------------------------------------------------------------
@pytest.mark.parametrize(("written", "each"), [("(1 | g/h)", ["(1|g)", "(1|g:h)"]), ("(x || g)", ["(1|g)", "(0+x|g)"])])
def test_names_as_written_are_all_their_terms(data, written, each):
    by_name = fenchel.Model(f"y ~ x + {written}", data, priors=dict.fromkeys(each))
    for key in (written, written.replace(" ", "")):
        model = fenchel.Model(f"y ~ x + {written}", data, priors={key: None})
        pd.testing.assert_frame_equal(model.priors, by_name.priors)
        assert (model.priors.loc[each, "prior"] == "flat in log sd").all()
    own = fenchel.Model(f"y ~ x + {written}", data, priors={each[1]: fenchel.models.PC(2.0), written: None})
    assert [text.startswith("flat") for text in own.priors.loc[each, "prior"]] == [True, False]
    fit = own.fit()
    np.testing.assert_allclose(fit.predict(without=written), fit.predict(without="groups"))
    with pytest.raises(KeyError, match="is 2 terms") as said:
        fit.effects[written]
    assert all(name in str(said.value) for name in each)


def test_a_column_of_two_terms_names_both(data):
    fit = fenchel.fit("y ~ x + (x||g)", data)
    for ask in (lambda: fit.effects["g"], lambda: fit.predict(without="g")):
        with pytest.raises((KeyError, ValueError), match=r"'g' is 2 terms; expected one of '\(1\|g\)', '\(0\+x\|g\)'"):
            ask()
    with pytest.raises(ValueError, match="'g' is 2 terms"):
        fenchel.Model("y ~ x + (x||g)", data, priors={"g": None})


# -- what lme4 stops at --------------------------------------------------------------------------------------
def _said(formula, data, family="gaussian", **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = fenchel.fit(formula, data, family=family, **options)
    return fit, [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("formula", "family", "sentence"),
    [
        (
            "y ~ x + (1|one)",
            "gaussian",
            r"\(1\|one\) has one group, 'a', so its effect cannot be separated",
        ),
        ("y ~ x + (1|row)", "gaussian", r"\(1\|row\) has a group for every row, so its variance can hardly"),
        ("count ~ x + (1|row)", "nbinom2", r"\(1\|row\) has a group for every row, so its variance can hardly"),
        (
            "label ~ x + (1|row)",
            "bernoulli",
            r"\(1\|row\) has a group for every row, and one label does not",
        ),
        ("y ~ x + (1|g) + (1|named)", "gaussian", r"\(1\|g\) and \(1\|named\) are the same groups under two names"),
        ("none ~ x", "poisson", "the response 'none' is 0 in every row: only the prior bounds its level"),
        ("every ~ x", "bernoulli", "the response 'every' is 1 in every row"),
        ("size | trials(size) ~ x", "binomial", "the response 'size' is all of its trials in every row"),
    ],
)
def test_one_warning_where_lme4_stops(data, formula, family, sentence):
    names = data.g.map(lambda g: f"group {9 - g}")
    frame = data.assign(one="a", row=np.arange(len(data)), named=names, none=0, every=1)
    _, said = _said(formula, frame, family)
    assert len(said) == 1
    assert re.search(sentence, said[0])


@pytest.mark.parametrize(
    ("formula", "family"),
    [("y ~ x + (1|g)", "gaussian"), ("count ~ x + (1|row)", "poisson"), ("y ~ (x||g) + (1|h)", "gaussian")],
)
def test_nothing_is_said_of_sound_groups(data, formula, family):
    assert _said(formula, data.assign(row=np.arange(len(data))), family)[1] == []


def test_known_variances_may_have_a_group_for_every_row(data):
    frame = data.assign(row=np.arange(len(data)))
    assert _said("y ~ x + (1|row)", frame, fenchel.Gaussian(np.full(len(data), 0.5)))[1] == []


def test_no_variance_is_said_once(data):
    frame = data.assign(y=data.y - data.groupby("g").y.transform("mean"))
    fit, said = _said("y ~ x + (1|g)", frame, priors={"(1|g)": None})
    assert len(said) == 1
    assert "(1|g): the sd is at its lower bound, no variance is found" in said[0]
    assert "(1|g): the sd is at its lower bound, no variance is found" in fit.summary()
    assert np.isnan(fit.hyperparameters.loc[("(1|g)", "sd"), "lower"])


def test_warnings_point_at_the_users_line(data):
    frame = data.assign(one="a", y=data.y - data.groupby("g").y.transform("mean"), positive=np.exp(data.y))
    asked = [
        lambda: fenchel.fit("y ~ x + (1|one)", frame, "gaussian"),
        lambda: fenchel.Model("y ~ x + (1|one)", frame, "gaussian"),
        lambda: fenchel.fit("y ~ x + (1|g)", frame, "gaussian", priors={"(1|g)": None}),
        lambda: fenchel.Model("y ~ x + (1|g)", frame, "gaussian", priors={"(1|g)": None}).fit(),
        lambda: fenchel.fit("positive ~ x", frame, "poisson"),
        lambda: fenchel.fit("count ~ x", frame, "hurdle-poisson", zero="~ x + (1|one)"),
    ]
    for ask in asked:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ask()
        assert [each.filename for each in caught] == [__file__]
        assert caught[0].lineno == ask.__code__.co_firstlineno


# -- predictions ---------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def fits(data):
    return {
        "gaussian": fenchel.fit("y ~ x + (1|g)", data),
        "bernoulli": fenchel.fit("label ~ x", data, "bernoulli"),
        "ordinal": fenchel.fit("h ~ x", data, "ordinal"),
        "binomial": fenchel.fit("incidence | trials(size) ~ x", data, "binomial"),
        "integrated": fenchel.fit("y ~ x + (1|g)", data, integrate="auto"),
    }


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("gaussian", {"new": {"x": [0.0]}}, "no column 'g', which says the group.* without=\"groups\""),
        ("gaussian", {"new": {"g": [0]}}, "there is no column 'x'"),
        ("binomial", {"kind": "probability"}, 'kind="mean" with trials=1 is the probability'),
        ("gaussian", {"interval": [0.5, 0.9]}, "one number such as 0.95, a call for each"),
        ("gaussian", {"interval": "95%"}, "'95%' is a text; expected a number such as 0.95"),
        ("bernoulli", {"kind": "probability", "interval": 0.9}, 'kind="mean" is the probability of 1, with its'),
        ("ordinal", {"kind": "probability", "interval": 0.9}, "an interval with kind"),
    ],
)
def test_predictions_say_what_to_ask_for(fits, name, asked, message):
    with pytest.raises(ValueError, match=message):
        fits[name].predict(**asked)


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "ordinal", "binomial", "integrated"])
def test_no_row_to_predict_is_an_empty_answer(fits, data, name):
    fit, nowhere = fits[name], data.head(3).assign(x=np.nan).set_axis(list("abc"))
    for asked in ({}, {"kind": "outcome", "interval": 0.9}, {"kind": "link", "interval": 0.9}):
        full = fit.predict(data.head(3), **asked)
        for rows in (nowhere, data.head(0)):
            found = fit.predict(rows, **asked)
            assert found.index.tolist() == rows.index.tolist()
            assert found.shape[1:] == full.shape[1:]
            assert np.isnan(found.to_numpy()).all()
    assert fit.sample(data.head(0), 5, 0).shape == (5, 0)
    assert np.isnan(fit.sample(nowhere, 5, 0, kind="outcome")).all()
    if name == "binomial":
        assert fit.predict(nowhere, trials=np.ones(3)).isna().all()


# -- words of R ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ factor(g)", r"no function factor\(\).* C\(g\) makes levels"),
        ("y ~ x + as.factor(g)", r"as\.factor\(\) is a function of R; expected C\(g\)"),
        ("y ~ (1|factor(g))", r"expected \(1\|column\)\. The values of a column are its levels"),
        ("y ~ I(x^2)", r"expected \*\* in its place: I\(x\*\*2\)"),
        ("y ~ I(g^2)", r"expected \*\* in its place: I\(g\*\*2\)"),  # whole numbers, of which ^ is an exclusive or
        ("y ~ Q('my col')", "expected backticks: `my col`"),
        ("y ~ poly(x, 2, raw=TRUE)", "It is True"),
        ("Surv(y, g) ~ x", r"It is cens\(time, event\)"),
        ("y ~ x + frailty(g)", r"\(1\|g\) is a normal frailty"),
        ('y ~ x + f(g, model="iid")', r'f\(g, model="iid"\) is \(1\|g\)'),
        ("y ~ x + strata(g)", r"C\(g\) gives each stratum a level of its own"),
        ("far ~ x", r"the response 'far' is infinite in row \[7\]"),
        ("y ~ span", "'span' holds time spans.*dt.days is a number of days"),
        ("span ~ x", "'span' holds time spans.*dt.days is a number of days"),
    ],
)
def test_words_of_r_are_answered(data, formula, message):
    far, span = data.y.where(data.index != 7, np.inf), pd.to_timedelta(data.g, unit="D")
    frame = data.assign(far=far, span=span, **{"my col": data.x})
    with pytest.raises(ValueError, match=message):
        fenchel.fit(formula, frame.assign(x=frame.x.mask(frame.index == 2)), "gaussian")


def test_powers_of_a_formula_stay(data):
    fit = fenchel.fit("y ~ (x + g)^2 + I(x**2)", data)
    assert list(fit.coefficients.index) == ["Intercept", "x", "g", "I(x ** 2)", "x:g"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"famly": "poisson"}, "there is no argument 'famly'.* Did you mean 'family'"),
        ({"n_restart": 2}, "Did you mean 'n_restarts'"),
        ({"REML": True}, "learned with the coefficients integrated out"),
        ({"ziformula": "~ x"}, 'It is zero="~ x"'),
        ({"method": "REML"}, "learned with the coefficients integrated out"),
        ({"E": "x"}, 'It is exposure="E"'),
        ({"Ntrials": "x"}, "Did you mean 'trials'"),
        ({"_depth": 1}, "there is no argument '_depth'"),
    ],
)
def test_arguments_nobody_takes_are_named(data, option, message):
    with pytest.raises(TypeError, match=message):
        fenchel.fit("y ~ x", data, **option)


def test_functions_that_formulas_elsewhere_call_without_np(tmp_path):
    d = pd.DataFrame({"y": [1.0, 2, 3, 2, 4, 5, 3, 2], "dist": [1.0, 4, 9, 16, 25, 36, 2, 3]})
    for name in ("sqrt", "log1p", "expm1", "sin", "cos"):
        found = fenchel.fit(f"y ~ {name}(dist / 9)", d)
        made = fenchel.fit("y ~ z", d.assign(z=getattr(np, name)(d["dist"] / 9)))
        np.testing.assert_allclose(found.coefficients["mean"], made.coefficients["mean"], rtol=1e-9)
        assert found.coefficients.index[1] == f"{name}(dist / 9)"
    found.save(tmp_path / "fit.model")
    np.testing.assert_array_equal(fenchel.load(tmp_path / "fit.model").predict(d), found.predict(d))
    mine = fenchel.fit("sqrt(y) ~ sqrt(dist)", d, env={"sqrt": lambda x: x**2})  # the user's own comes first
    made = fenchel.fit("y ~ z", d.assign(z=d["dist"] ** 2, y=d["y"] ** 2))
    np.testing.assert_allclose(mine.coefficients["mean"], made.coefficients["mean"], rtol=1e-9)


def test_labels_without_trials_are_pointed_to_bernoulli():
    data = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": list("nyny")})
    with pytest.raises(ValueError, match='y holds labels, not counts: family="bernoulli"'):
        fenchel.fit("y ~ x", data, family="binomial")
    with pytest.raises(ValueError, match='y holds labels, not counts: family="multinomial"'):
        fenchel.fit("y ~ x", data.assign(y=["a", "b", "c", None]), family="binomial")


def test_shares_are_told_to_be_counts():
    data = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "p": [0.25, 0.5, 0.0, 1.0], "n": 4})
    for family in ("binomial", "beta-binomial"):
        with pytest.raises(ValueError, match="multiply shares by their trials"):
            fenchel.fit("p ~ x", data, family=family, trials="n")


def test_a_summary_says_which_label_is_the_event_and_cutpoints_have_names():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.normal(size=90)})
    z = data.x + rng.logistic(size=90)
    data["ill"] = np.where(z > 0, "yes", "no")
    levels = ["low", "medium", "high"]
    data["grade"] = pd.Categorical(np.array(levels)[np.digitize(z, [-1, 1])], levels, ordered=True)
    assert "the probability that ill is 'yes' and not 'no'" in fenchel.fit("ill ~ x", data, "bernoulli").summary()
    found = fenchel.fit("grade ~ x", data, "ordinal").hyperparameters
    assert list(found.loc["cutpoints"].index) == ["low|medium", "medium|high"]
    whole = np.digitize(z, [-1, 1])
    for y, names in ((whole, ["0|1", "1|2"]), (whole / 2, ["0|0.5", "0.5|1"])):
        found = fenchel.fit("y ~ x", data.assign(y=y), "ordinal").hyperparameters
        assert list(found.loc["cutpoints"].index) == names


def test_models_are_compared_by_groups_left_out():
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"g": np.repeat(np.arange(12), 5), "x": rng.normal(size=60)})
    data["y"] = data.x + rng.normal(size=12)[data.g] + 0.3 * rng.normal(size=60)
    fits = {"x": fenchel.fit("y ~ x + (1|g)", data), "level": fenchel.fit("y ~ 1 + (1|g)", data)}
    left = {name: fit.leave_group_out("g") for name, fit in fits.items()}
    table = fenchel.compare(left)
    assert list(table.index) == ["x", "level"]
    assert list(table.columns) == ["elpd", "difference", "difference_se", "weight"]
    apart = left["level"].log_density - left["x"].log_density
    groups = pd.Series(apart).groupby(data.g).sum()
    assert table.loc["level", "difference"] == pytest.approx(groups.sum())
    assert table.loc["level", "difference_se"] == pytest.approx(np.sqrt(12) * groups.std())
    assert list(fenchel.compare({name: fit.k_fold(3) for name, fit in fits.items()}).index) == ["x", "level"]
    with pytest.raises(ValueError, match="one kind"):
        fenchel.compare({"x": fits["x"], "level": left["level"]})
    pairs = np.arange(len(left["level"].log_density)) // 2
    with pytest.raises(ValueError, match="leave out other groups"):
        fenchel.compare({"x": left["x"], "level": fits["level"].leave_group_out(pairs)})


def test_contrasts_and_simulations_of_other_rows_and_without_groups():
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"g": np.repeat(list("abcdef"), 8), "x": rng.normal(size=48)})
    data["y"] = rng.poisson(np.exp(0.5 * data.x + rng.normal(size=6).repeat(8)))
    fit = fenchel.fit("y ~ x + (x|g)", data, "poisson")
    apart = fit.contrast({"x": [1.0]}, {"x": [0.0]}, without="groups")
    assert apart["mean"].iloc[0] == pytest.approx(fit.coefficients.loc["x", "mean"], abs=1e-9)
    assert apart["sd"].iloc[0] == pytest.approx(fit.coefficients.loc["x", "sd"], rel=1e-6)
    new = pd.DataFrame({"x": [0.0, 1.0, 2.0], "g": ["a", "a", "new"]})
    drawn = fit.simulate(400, rng=0, data=new)
    assert drawn.shape == (400, 3)
    assert drawn.mean(axis=0)[:2] == pytest.approx(fit.predict(new).to_numpy()[:2], rel=0.2)


def test_precisions_are_weights_over_their_mean():
    rng = np.random.default_rng(2)
    g, x, w = np.arange(60) % 10, rng.normal(size=60), rng.uniform(0.5, 4.0, 60)
    y = 1.0 + x + rng.normal(size=10)[g] + rng.normal(size=60) / np.sqrt(w)
    data = pd.DataFrame({"y": y, "x": x, "g": g, "w": w, "relative": w / w.mean()})
    flat = {"priors": {"(1|g)": None, "noise": None}, "fixed_sd": 1e4, "accuracy": "fast"}
    fit = fenchel.fit("y ~ x + (1|g)", data, weights="relative", **flat)
    X, Z = np.column_stack([np.ones(60), x]), (g[:, None] == np.arange(10)).astype(float)

    def coefficients(sds):
        V = sds[0] ** 2 * Z @ Z.T + np.diag(sds[1] ** 2 / w)
        A = X.T @ np.linalg.solve(V, X)
        return V, A, np.linalg.solve(A, X.T @ np.linalg.solve(V, y))

    def restricted(log_sds):
        V, A, b = coefficients(np.exp(log_sds))
        r = y - X @ b
        return np.linalg.slogdet(V)[1] + np.linalg.slogdet(A)[1] + r @ np.linalg.solve(V, r)

    sds = np.exp(minimize(restricted, [0.0, 0.0], tol=1e-10).x)
    _, A, b = coefficients(sds)
    np.testing.assert_allclose(fit.hyperparameters["value"], [sds[0], sds[1] / np.sqrt(w.mean())], rtol=1e-3)
    np.testing.assert_allclose(fit.coefficients["mean"], b, rtol=1e-3)
    np.testing.assert_allclose(fit.coefficients["sd"], np.sqrt(np.diag(np.linalg.inv(A))), rtol=1e-3)
    assert "rows: 60 used\n" in fit.summary()
    counted = fenchel.fit("y ~ x + (1|g)", data, weights="w", **flat).summary()
    assert f"rows: 60 used, which weights= counts as {w.sum():.6g}\n" in counted
