"""What a model says of data and fits that a reader would misread: in one warning, and in the summary."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import fenchel
import fenchel.checks
from fenchel.hyperparameters import Normal


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "g": np.arange(60) % 6})
    return frame.assign(y=frame.x + rng.normal(size=60))


def _said(make):
    """The texts of the warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        make()
    return [str(one.message) for one in seen]


def test_numbers_as_text_are_announced(data):
    text = data.assign(x=data.x.round(1).astype(str))
    with pytest.warns(UserWarning, match=r"the column 'x' holds numbers as text, and is a factor with \d+ levels"):
        fenchel.Model("y ~ x", text)
    with pytest.warns(UserWarning, match="'g' holds numbers as text"):
        fenchel.Model("y ~ g", data.assign(g=[str(i) for i in range(60)]))
    # codes of a few levels, words, categories and groups are what they are
    for formula, column in (
        ("y ~ f", [str(i) for i in data.g]),
        ("y ~ f", [f"a{i}" for i in data.g]),
        ("y ~ f", pd.Categorical([f"{i / 2}" for i in data.g])),
        ("y ~ (1|f)", data.x.round(1).astype(str).tolist()),
    ):
        assert _said(lambda formula=formula, column=column: fenchel.Model(formula, data.assign(f=column))) == []


def test_a_factor_with_a_level_a_row_is_announced(data):
    names = data.assign(person=[f"p{i}" for i in range(60)])
    with pytest.warns(UserWarning, match=r"'person' has 60 levels in 60 rows, .* \(1\|person\) makes groups"):
        fenchel.Model("y ~ person", names)
    assert _said(lambda: fenchel.Model("y ~ (1|person)", pd.concat([names, names]))) == []


def test_a_family_that_was_not_given_is_questioned(data):
    rng = np.random.default_rng(1)
    for y, sentence in (
        (data.y > 0, 'holds booleans and the family is gaussian by default: family="bernoulli"?'),
        ((data.y > 0).astype(int), 'is 0 or 1 in every row and the family is gaussian by default: family="bernoulli"?'),
        (rng.poisson(1.5, 60), 'looks like counts .* family="poisson" or "negative-binomial"?'),
    ):
        with pytest.warns(UserWarning, match=sentence):
            fenchel.Model("y ~ x", data.assign(y=y))
        assert _said(lambda y=y: fenchel.Model("y ~ x", data.assign(y=y), "gaussian")) == []
    for y in (rng.integers(18, 90, 60), rng.integers(0, 101, 60), rng.integers(1, 6, 60), -rng.poisson(1.0, 60)):
        assert _said(lambda y=y: fenchel.Model("y ~ x", data.assign(y=y))) == []


@pytest.mark.parametrize("family", ["bernoulli", "ordinal", "binomial"])
def test_separated_rows_are_announced(data, family):
    y = {"bernoulli": data.x > 0, "ordinal": np.digitize(data.x, [-0.5, 0.5]), "binomial": 5 * (data.x > 0)}[family]
    formula = "y | trials(5) ~ x" if family == "binomial" else "y ~ x"
    with pytest.warns(UserWarning, match="little about the coefficient 'x' beyond its sign: rows are separated"):
        fit = fenchel.fit(formula, data.assign(y=y), family)
    assert any(text.startswith("The data say little about the coefficient 'x' beyond its sign") for text in fit.check())
    stated = {"x": Normal(0.0, 1.0)}  # which decides knowingly
    assert _said(lambda: fenchel.fit(formula, data.assign(y=y), family, priors=stated)) == []


def test_overlapping_rows_are_not(data):
    rng = np.random.default_rng(2)
    for n in (8, 20, 60):
        some = data.head(n).assign(y=np.arange(n) % 2)
        assert _said(lambda some=some: fenchel.fit("y ~ x", some, "bernoulli")) == []
    steep = data.assign(y=rng.random(60) < 1 / (1 + np.exp(-4.0 * data.x)))
    assert fenchel.fit("y ~ x", steep, "bernoulli").remarks == []


def test_a_level_without_counts_is_announced(data):
    rng = np.random.default_rng(3)
    some = data.assign(f=np.where(data.g == 0, "none", "some"))
    with pytest.warns(UserWarning, match=r"little about the coefficient 'f\[T.some\]'"):
        fenchel.fit("y ~ f", some.assign(y=np.where(data.g == 0, 0, rng.poisson(4.0, 60))), "poisson")


def test_a_saturated_model_warns_once(data):
    rng = np.random.default_rng(4)
    wide = pd.DataFrame({f"x{i}": rng.normal(size=8) for i in range(20)}).assign(y=rng.normal(size=8), a=1.0, b=2.0)
    formula = "y ~ a + b + " + " + ".join(f"x{i}" for i in range(20))
    [said] = _said(lambda: fenchel.Model(formula, wide))
    assert "the columns 'a', 'b' do not vary over the observed rows" in said
    assert "the columns 'x7', 'x8', 'x9' and 10 more are linear combinations of others and the level" in said
    [one] = _said(lambda: fenchel.Model("y ~ x1 + a", wide))
    assert one.startswith("Model: the column 'a' is 1 in every observed row")


@pytest.mark.parametrize(
    ("formula", "sentence"),
    [
        (
            "y ~ foo(x)",
            r"there is no column 'foo' and no function foo\(\); expected one that is defined. One of your own",
        ),
        (
            "y ~ tanh(x)",
            r"there is no column 'tanh' and no function tanh\(\); expected one that is defined. numpy's is np.tanh",
        ),
        ("y ~ np.foo(x)", r"'np.foo\(x\)' calls a function foo that is not there"),
        ("y ~ np.log(f)", r"'np.log\(f\)' is computed of 'f', which holds no numbers; expected a column of numbers"),
        ("y ~ scale(f)", "is computed of 'f', which holds no numbers"),
        ("y ~ bs(x, df=2)", r"'bs\(x, df=2\)' has a df that is too small; expected df above 3"),
        ("y ~ x + 2", "a number stands alone; expected columns, 0 or 1"),
        ("y ~ x + f:", "an operator has only one side"),
        ("y ~ x**f", r"\*\* stands before no whole number"),
        ("y ~ te(x)", r"te\(x\): Tensor: 1 columns; expected two. s\(x\) is a curve of one column"),
    ],
)
def test_what_formulaic_complains_of_is_said_in_our_words(data, formula, sentence):
    with pytest.raises(fenchel.checks.Refusal, match=sentence) as found:
        fenchel.Model(formula, data.assign(f=[f"a{i}" for i in data.g]))
    assert "`" not in str(found.value)
    assert "\n    y ~ " in str(found.value)


def test_new_rows_of_another_kind_are_refused_in_our_words(data):
    flagged = data.assign(flag=data.g < 3, u=np.linspace(0.0, 1.0, 60))
    fit = fenchel.fit("y ~ flag + x + bs(u, df=4)", flagged)
    for changed, sentence in (
        ({"flag": "yes"}, r"'flag' holds text \('yes'\) and held booleans .* new\[\"flag\"\] == 'yes' makes booleans"),
        ({"x": "3"}, r"'x' holds text \('3'\) and held numbers .* pandas.to_numeric\(new\[\"x\"\]\) makes numbers"),
        (
            {"u": 2.0},
            r"'bs\(u, df=4\)' is asked for beyond the 0 to 1 that fit has seen; .* extrapolation='extend'",
        ),
    ):
        with pytest.raises(fenchel.checks.Refusal, match=sentence):
            fit.predict(flagged.head(2).assign(**changed))
    extended = fenchel.fit('y ~ bs(u, df=4, extrapolation="extend")', flagged)
    assert np.isfinite(extended.predict({"u": [2.0]})).all()


def test_weights_that_leave_no_noise_beside_a_process():
    rng = np.random.default_rng(0)
    x = np.sort(rng.random(40)) * 10.0
    data = pd.DataFrame({"x": x, "y": np.sin(x) + 0.3 * rng.normal(size=40), "w": rng.integers(5, 40, 40)})
    with pytest.warns(UserWarning, match="at its lower bound"):
        repeated = fenchel.fit("y ~ gp(x)", data, weights="w")
    (said,) = repeated.remarks
    assert "the noise is at its lower bound: weights of up to 39 count a row as that many rows" in said
    assert fenchel.fit("y ~ gp(x)", data).remarks == []
    assert fenchel.fit("y ~ x", data, weights="w").remarks == []


def test_whole_numbers_without_a_family_are_asked_about_in_the_first_lines(data):
    counts = data.assign(y=np.random.default_rng(5).poisson(8.0, 60))
    fits = []
    assert _said(lambda: fits.append(fenchel.fit("y ~ x", counts))) == []  # they may be ages
    top, model = fits[0].summary().split("\n\n")[:2]
    assert "check: the response 'y' is whole numbers and the family is gaussian, as none was given" in top
    assert "  family: gaussian, as none was given" in model
    given = fenchel.fit("y ~ x", counts, "gaussian")
    assert "as none was given" not in given.summary()
    assert "family" not in given.check().to_frame()["name"].tolist()


def test_messages_of_a_cox_model_show_the_formula_that_was_written(data):
    durations = data.assign(t=np.exp(data.y), e=1)
    with pytest.raises(fenchel.checks.Refusal) as found:
        fenchel.Model("cens(t, e) ~ x + frailty(g)", durations, "cox")
    sentence, formula, mark = str(found.value).split("\n")
    assert sentence.endswith("(1|g) is a normal frailty.")
    assert formula[mark.index("^") :].startswith("frailty(g)")
    assert formula.strip() == "cens(t, e) ~ x + frailty(g)"


@pytest.mark.parametrize("family", ["cox", "weibull"])
def test_the_level_of_a_hazard_is_no_ratio(data, family):
    durations = data.assign(t=np.exp(data.y), e=1)
    table = fenchel.fit("cens(t, e) ~ x", durations, family).coefficients
    ratios = table[["hazard_ratio", "hr_lower", "hr_upper", "p_above_1"]]
    assert ratios.loc["Intercept"].isna().all()
    assert ratios.loc["x"].notna().all()


def test_labels_of_logistic_noise_are_questioned(data):
    labels = data.assign(y=(data.y > 0).astype(int))
    assert any(
        'Logistic regression is family="bernoulli"' in text
        for text in _said(lambda: fenchel.fit("y ~ x", labels, "logistic"))
    )
    assert not _said(lambda: fenchel.fit("y ~ x", data, "logistic"))
