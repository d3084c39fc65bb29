"""What users bring: frames of any kind, gaps, odd columns. A right answer or a sentence."""

import re

import narwhals as nw
import numpy as np
import pandas as pd
import pytest

import fenchel
from fenchel.checks import Refusal


@pytest.fixture
def data():
    rng = np.random.default_rng(2)
    n = 90
    out = pd.DataFrame({"x": rng.normal(size=n), "g": rng.integers(0, 9, n), "f": rng.choice(list("abc"), n)})
    out["y"] = 1.0 + 0.5 * out.x + (out.f == "b") + rng.normal(size=9)[out.g] + 0.3 * rng.normal(size=n)
    out["day"] = pd.date_range("2021-01-01", periods=n)
    out["flag"] = rng.random(n) < 0.5
    return out


# -- frames -----------------------------------------------------------------------------------------------
def test_frames_of_any_kind(data):
    plain = data[["x", "g", "f", "y", "flag"]]
    expected = fenchel.fit("y ~ x + f + flag + (1|g)", plain)
    kinds = {
        "dict": {name: plain[name].tolist() for name in plain},
        "dict of arrays": {name: plain[name].to_numpy() for name in plain},
        "records": plain.to_records(index=False),
        "list of rows": plain.to_dict("records"),
        "narwhals": nw.from_native(plain),
        "lazy": nw.from_native(plain).lazy(),
        "nullable": plain.convert_dtypes(),
        "categories": plain.astype({"f": "category", "g": "category"}),
        "objects": plain.astype(object),
        "shuffled index": plain.set_axis(np.random.default_rng(0).permutation(len(plain)), axis=0),
        "repeated index": plain.set_axis([7] * len(plain), axis=0),
    }
    for name, kind in kinds.items():
        fit = fenchel.fit("y ~ x + f + flag + (1|g)", kind)
        np.testing.assert_allclose(fit.predict(), expected.predict(), rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(fit.predict(kind), expected.predict(), rtol=1e-6, err_msg=name)


def test_a_row_of_a_frame_is_a_frame(data):
    fit = fenchel.fit("y ~ x + (1|g)", data)
    assert fit.predict(data.iloc[3]).iloc[0] == pytest.approx(fit.predict(data)[3])
    assert fit.predict({"x": 0.0, "g": 1}).shape == (1,)


def test_the_index_comes_back(data):
    named = data.set_index(pd.Index([f"row {i}" for i in range(len(data))]))
    fit = fenchel.fit("y ~ x", named)
    assert fit.predict().index.equals(named.index)
    assert fit.predict(named.tail(2), interval=0.5).index.tolist() == ["row 88", "row 89"]


def test_what_is_no_frame():
    with pytest.raises(Refusal, match="data is a ndarray; expected a data frame"):
        fenchel.Model("y ~ x", np.zeros((3, 2)))
    with pytest.raises(Refusal, match=r"the columns of data have \[2, 3\] rows"):
        fenchel.Model("y ~ x", {"x": [1, 2], "y": [1, 2, 3]})
    with pytest.raises(Refusal, match="the data have no rows"):
        fenchel.Model("y ~ x", {"x": [], "y": []})
    with pytest.raises(Refusal, match="the column 'x' twice"):
        fenchel.Model("y ~ x", pd.DataFrame([[1, 2, 3.0]], columns=["x", "x", "y"]))


# -- what is missing --------------------------------------------------------------------------------------
def test_rows_without_a_covariate_are_dropped_and_counted(data):
    gaps = data.copy()
    gaps.loc[[1, 2], "x"] = np.nan
    gaps.loc[[2, 5], "f"] = None
    gaps["g"] = gaps.g.astype("Int64")
    gaps.loc[8, "g"] = pd.NA
    fit = fenchel.fit("y ~ scale(x) + f + (1|g)", gaps)
    assert fit.model.dropped.n == 4
    assert fit.model.dropped.columns == {"x": 2, "f": 2, "g": 1}
    kept = fenchel.fit("y ~ scale(x) + f + (1|g)", data.drop([1, 2, 5, 8]))
    np.testing.assert_allclose(fit.coefficients, kept.coefficients, rtol=1e-8)
    out = fit.predict(gaps)
    assert out.index[out.isna()].tolist() == [1, 2, 5, 8]
    pd.testing.assert_series_equal(out, fit.predict())
    assert np.isnan(fit.sample(gaps, 3, 0)[:, 1]).all()
    with pytest.raises(Refusal, match="no row has all covariates: 'x' is missing in 90"):
        fenchel.Model("y ~ x", data.assign(x=np.nan))


def test_missing_y_is_predicted(data):
    gaps = data.assign(y=data.y.where(data.index > 9))
    fit = fenchel.fit("y ~ x + (1|g)", gaps)
    assert fit.model.dropped.n == 0
    assert len(fit.predict().dropna()) == len(data)
    without = fenchel.fit("y ~ x + (1|g)", data.drop(range(10)))
    np.testing.assert_allclose(fit.predict(), without.predict(data), rtol=1e-6)
    with pytest.raises(ValueError, match="every y is NaN"):
        fenchel.Model("y ~ x", data.assign(y=np.nan)).fit()


def test_infinite_and_undefined_numbers(data):
    with pytest.raises(Refusal, match=r"the column 'x' is infinite in row \[3\]"):
        fenchel.Model("y ~ x", data.assign(x=data.x.where(data.index != 3, np.inf)))
    with pytest.raises(Refusal, match=r"'np.log\(x\)' is nan in row"):
        fenchel.Model("y ~ np.log(x)", data)
    with pytest.raises(Refusal, match=r"'np.log\(x\)' is nan in row"):
        fenchel.Model("y ~ x*g + np.log(x)", data)
    with pytest.raises(Refusal, match=r"offset\(np.log\(x\)\) is not a finite number"):
        fenchel.Model("y ~ 1 + offset(np.log(x))", data)


# -- names ------------------------------------------------------------------------------------------------
UNKNOWN = {
    "y ~ xx + f": ("there is no column 'xx'", 4),
    "y ~ x + (1|gg)": ("there is no column 'gg'", 11),
    "y ~ x + rw1(time)": ("there is no column 'time'", 12),
    "why ~ x": ("there is no column 'why'", 0),
    "y ~ foo(x)": ("there is no column 'foo'", 4),
    "y ~ icar(g, W9)": ("there is no column 'W9'", 12),
    "y ~ icar(g)": ("icar(g) has no graph; expected one for 'g'", 4),
    "y ~ x + mo(f)": ("there is no column 'mo' and no function mo()", 8),
    "y ~ rw1(day, 3)": ("rw1(day,3) has one argument too many", 13),
    "y ~ rw1(day, foo=3)": ("rw1(day,foo=3): RW1: the option 'foo'", 4),
    "y ~ seasonal(day, 1)": ("seasonal(day,1): Seasonal: period = 1", 4),
    "y ~ x + (1|g) + (1|g)": ("(1|g) stands twice", 16),
    "y ~ x + day": ("the column 'day' holds dates; expected numbers or levels. A term in time takes them", 8),
    "y ~ x +* f": ("'x + * f' cannot be read: Operator `+*` is incorrectly used", 4),
    "y ~ (0|g)": ("(0|g) has no slope and no intercept", 4),
    "y ~ (1|gr(g, cov=3))": ("cov is no variable", 17),
}


@pytest.mark.parametrize("formula", UNKNOWN)
def test_sentences_point_at_the_place(data, formula):
    sentence, at = UNKNOWN[formula]
    with pytest.raises(Refusal) as caught:
        fenchel.Model(formula, data)
    first, shown, mark = str(caught.value).split("\n")
    assert first.startswith(f"Model: {sentence}")
    assert shown.strip() == formula
    assert len(mark) - 5 == at


def test_near_names_are_suggested(data):
    with pytest.raises(Refusal, match=re.escape("Did you mean 'flag'?")):
        fenchel.Model("y ~ flagg", data)


def test_names_outside_the_formula(data):
    for options, sentence in (
        ({"weights": "w"}, "weights: there is no column 'w'"),
        ({"weights": [1.0]}, r"weights has shape \(1,\)"),
        ({"weights": -data.x.abs()}, r"weights\[0\] = .* is not a weight"),
        ({"family": "norm"}, "family = 'norm' is not known"),
        ({"levels": {"nope": [1]}}, "levels: there is no column 'nope'"),
        ({"family": "binomial"}, 'family="binomial" without trials'),
    ):
        with pytest.raises(Refusal, match=sentence):
            fenchel.Model("y ~ x", data, **options)
    for share in ("h/n", "I(h/n)"):
        with pytest.raises(Refusal, match=r'Write "h \| trials\(n\) ~'):
            fenchel.Model(f"{share} ~ x", data.assign(h=1.0, n=3.0), family="binomial", weights="n")
    hits = np.arange(len(data)) % 4
    with pytest.raises(Refusal, match=r'has 4 different labels .* "binomial" where y counts successes'):
        fenchel.Model("cbind(h, 3 - h) ~ x", data.assign(h=hits), family="bernoulli")
    with pytest.raises(Refusal, match="the response 'f' holds text; expected numbers"):
        fenchel.Model("f ~ x", data)
    fit = fenchel.fit("y ~ x", data)
    with pytest.raises(Refusal, match="there is no column 'x'; expected one of 'g'"):
        fit.predict(data[["g"]])
    with pytest.raises(Refusal, match="kind = 'median' is not known"):
        fit.predict(data, "median")
    with pytest.raises(Refusal, match='kind = "probability" and y is no label'):
        fit.predict(data, "probability")


def test_quoted_names_and_every_other_column(data):
    odd = data.rename(columns={"x": "my x", "g": "the group"})
    fit = fenchel.fit("y ~ `my x` + (1|`the group`)", odd)
    assert fit.elbo == pytest.approx(fenchel.fit("y ~ x + (1|g)", data).elbo)
    every = fenchel.fit("y ~ . + (1|g)", data.drop(columns="day"))
    assert list(every.coefficients.index) == ["Intercept", "x", "f[T.b]", "f[T.c]", "flag"]


# -- levels -----------------------------------------------------------------------------------------------
def test_an_unseen_level_is_never_the_reference(data):
    fit = fenchel.fit("y ~ x + f", data)
    with pytest.raises(Refusal, match="row 1 has f = 'z', which fit has not seen; expected one of 'a', 'b', 'c'"):
        fit.predict(data.head(3).assign(f=["a", "z", "b"]))
    numbered = fenchel.fit("y ~ C(g)", data)
    with pytest.raises(Refusal, match="row 0 has g = 77, which fit has not seen"):
        numbered.predict(data.head(3).assign(g=77))


@pytest.mark.parametrize("right", ["x + p", "x * p", "x + C(p, contr.sum)", "p + s(x, by=p)"])
@pytest.mark.parametrize("levels", [[1, 2, 3], [False, True], [0.5, 1.5, 2.5]], ids=str)
def test_a_factor_of_numbers_is_a_factor_at_new_rows_of_numbers(data, right, levels):
    p = np.array(levels)[np.arange(len(data)) % len(levels)]
    fit = fenchel.fit(f"y ~ {right}", data.assign(p=pd.Categorical(p)))
    expected = fit.predict()[: len(levels)].tolist()  # rows of the fit itself
    for column in (p, p.astype(object), p.astype(float)):
        assert fit.predict(data.assign(p=column).head(len(levels))).tolist() == pytest.approx(expected)
    made = fit.means("p", at={"x": [0.3]})["estimate"].tolist()
    assert made == pytest.approx(fit.predict(pd.DataFrame({"p": pd.Categorical(levels), "x": 0.3})).tolist())


def test_empty_categories(data):
    wide = data.assign(f=pd.Categorical(data.f, ["c", "none", "b", "a"]), g=pd.Categorical(data.g, range(12)))
    fit = fenchel.fit("y ~ f + (1|g)", wide)
    assert list(fit.coefficients.index) == ["Intercept", "f[T.b]", "f[T.a]"]
    assert fit.effects["g"]["n"].iloc[-1] == 0  # a group without rows keeps its prior
    assert fit.effects["g"]["sd"].iloc[-1] == pytest.approx(fit.hyperparameters["value"].iloc[0], rel=1e-6)
    assert fit.predict(wide.head(2)).tolist() == pytest.approx(fit.predict()[:2].tolist())


def test_one_row_a_group(data):
    counts = data.assign(row=range(len(data)), k=np.random.default_rng(0).poisson(3 * np.exp(0.8 * data.y)))
    fit = fenchel.fit("k ~ x + (1|row)", counts, "poisson")  # extra variation of every row
    assert fit.converged
    assert fit.hyperparameters["value"].iloc[0] > 0.2


def test_collinear_and_constant_columns(data):
    twice = data.assign(x2=3 * data.x + 1, one=4.0)
    with pytest.warns(UserWarning, match="the column 'x2' is a linear combination of 'x' and the level"):
        fit = fenchel.fit("y ~ x + x2", twice)
    np.testing.assert_allclose(fit.predict(), fenchel.fit("y ~ x", data).predict(), atol=1e-3)
    with pytest.warns(UserWarning, match="the column 'one' is 4 in every observed row"):
        fenchel.fit("y ~ x + one", twice)


def test_columns_of_odd_things(data):
    for formula, values, sentence in (
        ("y ~ x", [1j] * 90, "the column 'x' holds complex numbers"),
        ("y ~ (1|x)", [[1]] * 90, "the column 'x' holds a list"),
        ("y ~ x", pd.to_timedelta(range(90), unit="D"), "the column 'x' holds time spans"),
    ):
        with pytest.raises(Refusal, match=sentence):
            fenchel.Model(formula, data.assign(x=values))
    with pytest.warns(UserWarning, match="the factor 'f' has one level, so it has no coefficient"):
        fenchel.Model("y ~ x + f", data.assign(f="a"))


def test_booleans_are_zero_and_one(data):
    one = fenchel.fit("y ~ flag", data)
    two = fenchel.fit("y ~ flag", data.assign(flag=data.flag.astype(int)))
    assert one.coefficients.loc["flag", "mean"] == pytest.approx(two.coefficients.loc["flag", "mean"])
    found = one.comparisons("flag")
    assert list(found["contrast"]) == ["True - False"]
    assert found["estimate"].iloc[0] == pytest.approx(one.coefficients.loc["flag", "mean"], abs=0.02)


def test_dates_step_in_time(data):
    fit = fenchel.fit("y ~ rw1(day)", data)
    assert fit.effects["day"].index.tolist() == list(data.day)
    with pytest.warns(UserWarning, match="a group for every row"):
        coarse = fenchel.fit("y ~ x + (1|day)", data)
    assert len(coarse.effects["day"]) == len(data)


def test_transformations_keep_their_state(data):
    for text in ("scale(x)", "poly(x, 2)", "bs(x, df=5)", "center(x):f", "C(f, contr.sum)", "np.exp(x)", "I(x**2)"):
        fit = fenchel.fit(f"y ~ {text}", data)
        np.testing.assert_allclose(fit.predict(data.tail(5)), fit.predict().tail(5), rtol=1e-9)


def test_a_graph_that_does_not_match(data):
    near = {i: [i + 1] for i in range(7)}  # 9 groups, 8 nodes
    with pytest.raises(Refusal, match="= 8 is unknown to the effect"):
        fenchel.Model("y ~ icar(g)", data, graphs={"g": near})
    with pytest.raises(Refusal, match="graph has shape"):
        fenchel.Model("y ~ icar(g)", data, graphs={"g": np.ones((2, 3))})


def test_no_pandas_at_the_front_door():
    import subprocess
    import sys

    code = "import sys, fenchel\n{}\nprint('pandas' in sys.modules, 'formulaic' in sys.modules)"
    for used, wanted in (("fenchel.infer", "False False"), ("fenchel.GaussianProcessClassifier", "True False")):
        run = subprocess.run([sys.executable, "-c", code.format(used)], capture_output=True, text=True, check=True)
        assert run.stdout.strip() == wanted
