"""Smooths in formulas, as a newcomer writes them: what works, and the sentence where it does not."""

import numpy as np
import pandas as pd
import pytest

import fenchel

RNG = np.random.default_rng(3)
N = 150
DATA = pd.DataFrame(
    {
        "x": RNG.uniform(0.0, 10.0, N),
        "z": RNG.uniform(0.0, 1.0, N),
        "g": np.array(["a", "b", "c"])[RNG.integers(0, 3, N)],
        "year": RNG.integers(2000, 2007, N),
        "day": pd.date_range("2020-01-01", periods=N),
    }
)
DATA["y"] = np.sin(DATA.x) + DATA.z * DATA.x / 5 + (DATA.g == "b") + 0.3 * RNG.normal(size=N)


def test_a_smooth_of_few_years_and_its_effect_by_the_name_of_its_column():
    fit = fenchel.fit("y ~ s(year) + x", DATA)
    assert fit.effects["year"].equals(fit.effects["s(year)"])
    with pytest.warns(UserWarning, match=r"Model: s\(year,k=9\) has 7 different values: k is 7, not 9\."):
        fenchel.Model("y ~ s(year, k=9)", DATA)
    flat = fenchel.Model("y ~ s(year) + x", DATA, priors={"year": None})
    assert flat.priors.loc[("s(year)", "sd"), "prior"] == "flat in log sd"


def test_a_curve_for_each_level_of_a_factor():
    """mgcv's semantics: each level has its own curve and line, and its own level if the factor is a covariate."""
    with pytest.warns(UserWarning, match=r"s\(x,by=g\) is a curve for each level of 'g', all about one level: add g"):
        fenchel.Model("y ~ s(x, by=g)", DATA)
    fit = fenchel.fit("y ~ g + s(x, by=g, k=8)", DATA)
    assert [name for name in fit.coefficients.index if "slope" in name] == [
        f"s(x,by=g,k=8) (slope)[{level}]" for level in "abc"
    ]
    assert len(fit.hyperparameters.loc["s(x,by=g,k=8)"]) == 3
    assert fit.effects["s(x,by=g,k=8)"].index.get_level_values(0).unique().tolist() == ["a", "b", "c"]
    fenchel.Model("y ~ (1|g) + s(x, by=g)", DATA)  # groups have levels, too


def test_a_coefficient_that_varies():
    """y ~ s(x, by=z): z f(x), with the level of f in it, so that z stands for itself."""
    rng = np.random.default_rng(0)
    x, w = rng.uniform(0.0, 10.0, 400), rng.normal(size=400)
    data = pd.DataFrame({"x": x, "w": w, "y": w * (2.0 + np.sin(x)) + 0.1 * rng.normal(size=400)})
    fit = fenchel.fit("y ~ s(x, by=w)", data)
    at = np.linspace(0.5, 9.5, 20)
    one, none = (fit.predict(pd.DataFrame({"x": at, "w": w})) for w in (1.0, 0.0))
    np.testing.assert_allclose(one - none, 2.0 + np.sin(at), atol=0.1)
    assert none.std() < 1e-12


def test_surfaces():
    assert fenchel.fit("y ~ s(x, z)", DATA).converged
    fit = fenchel.fit("y ~ s(x) + s(z) + ti(x, z)", DATA)
    assert list(fit.effects) == ["s(x)", "s(z)", "ti(x,z)"]
    assert "ti(x,z) (x times z)" in fit.coefficients.index
    assert fit.hyperparameters.loc["ti(x,z)"].index.tolist() == ["sd along x", "sd along z"]


SENTENCES = {
    'y ~ s(g, bs="re")': r"bs = 're' is not known; .* A level for each group is \(1\|g\), a slope of x \(0 \+ x\|g\)",
    'y ~ s(x, g, bs="fs")': r"A curve for each group is \(1\|g\) \+ s\(x, by=g, shared=True\)",
    "y ~ s(g)": r"the column 'g' holds text; expected numbers. A level for each of them is \(1\|g\)",
    "y ~ s(day)": r"the column 'day' holds dates; expected numbers. rw1\(\) and rw2\(\) are smooth in time",
    "y ~ s(x, z, year)": r"3 columns with bs='cr'; expected one, or two with bs='tp'. te\(x, z\) is a surface",
    "y ~ te(x, z, year)": r"3 columns; expected two",
    'y ~ te(x, z, bs="tp")': r"A thin plate of two columns is s\(x, z\)",
    "y ~ s(x, sp=0.1)": r"s\(\) has no option 'sp'; expected bs, k, by, shared, period, isotropic",
    "y ~ ti(x, z, m=1)": r"ti\(\) has no option 'm'; expected bs, k, by, shared",
    'y ~ s(x, "ps")': r"'ps' in quotes is no column; expected columns first. Options have a name",
    "y ~ s(log(x))": r"'log\(x\)' is no argument of a term; .* Make it a column of the data first",
    "y ~ ns(x, 3)": r"no column 'ns' and no function .* cr\(x, df=5\) is formulaic's natural spline; s\(x\) is one",
    "y ~ t2(x, z)": r"there is no column 't2' and no function .* It is te\(...\) here",
    "y ~ bs(g, df=4)": r"'bs\(g, df=4\)' is computed of 'g', which holds no numbers",
    "y ~ bs(x, k=4)": r"'bs\(x, k=4\)' has an option 'k'; expected those of formulaic's bs\(\)",
}


@pytest.mark.parametrize("formula", SENTENCES)
def test_sentences(formula):
    with pytest.raises(ValueError, match=SENTENCES[formula]):
        fenchel.Model(formula, DATA)


def test_a_basis_of_formulaic_beyond_the_data():
    fit = fenchel.fit("y ~ bs(x, df=5)", DATA)
    sentence = (
        r"'bs\(x, df=5\)' is asked for beyond the .* that fit has seen; expected values within. s\(x\) goes on as"
    )
    with pytest.raises(ValueError, match=sentence):
        fit.predict(pd.DataFrame({"x": [12.0]}))
    smooth = fenchel.fit("y ~ s(x)", DATA).predict(pd.DataFrame({"x": [12.0, 13.0, 14.0]}))
    assert smooth[2] - smooth[1] == pytest.approx(smooth[1] - smooth[0])
    assert np.isfinite(fenchel.fit("y ~ poly(x, 2)", DATA).predict(pd.DataFrame({"x": [12.0]}))).all()


# -- monotone effects --------------------------------------------------------------------------------------
def test_monotone_effects_are_refused_with_what_to_use():
    order = ["none", "some", "much"]
    data = DATA.assign(o=pd.Categorical(np.array(order)[np.arange(N) % 3], order, ordered=True))
    with pytest.raises(
        ValueError, match=r"no function mo\(\); .* so it is not built. C\(x, contr.diff\) has .* rw1\(x\)"
    ):
        fenchel.Model("y ~ mo(o)", data)
    steps = fenchel.fit("y ~ C(o, contr.diff)", data).coefficients["mean"]
    levels = fenchel.fit("y ~ o", data).coefficients["mean"]
    np.testing.assert_allclose(steps.iloc[1:], [levels.iloc[1], levels.iloc[2] - levels.iloc[1]], atol=1e-3)
    assert fenchel.fit("y ~ rw1(o)", data).effects["o"].index.tolist() == order


def test_what_the_refusal_says_of_a_simplex():
    """The log density of (b, s), b N(0, 1) times a uniform share s, given y at the middle level, is not concave."""
    log_p = lambda b, s: -((1.5 - b * s) ** 2) / (2 * 0.1) - b**2 / 2
    step = 1e-4
    at = lambda i, j: log_p(0.1 + i * step, 0.1 + j * step)
    second = [(at(1, 0) - 2 * at(0, 0) + at(-1, 0)), (at(0, 1) - 2 * at(0, 0) + at(0, -1))]
    mixed = (at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)) / 4
    curvature = np.array([[second[0], mixed], [mixed, second[1]]]) / step**2
    assert np.linalg.eigvalsh(curvature)[1] > 1.0
