"""What formulaic complains of, in our words: (what it says, what is wrong, what was expected, what to try)."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from ..checks import problem
from ..inputs.frames import DataColumn, Kind
from ..terms import named_in_r

if TYPE_CHECKING:
    import pandas as pd

_WORDS = [
    (
        r"extend beyond upper and/or lower bounds",
        "{text} is asked beyond the range of the data that made it",
        "rows within it",
        'extrapolation="extend" among its arguments continues it, and so does s(...).',
    ),
    (r"Invalid value for `df`.*greater than (\d+)", "{text} has a df that is too small", "df above {0}", ""),
    (r"Numeric literals other than", "a number stands alone", "columns, 0 or 1", "I(2 * x) multiplies a column."),
    (r"insuff\w+ arguments and/or is misplaced", "an operator has only one side", "a term on either side", ""),
    (r"argument of `\*\*` must be", "** stands before no whole number", "(a + b)**2", "I(x**z) is a power."),
    (r"before quote context was closed", "{text} has a sign that formulas do not have", "terms", "I(x % 2) computes."),
    (
        r"not among the provided levels|outside of the nominated levels",
        "{text} names levels that are not those of the data",
        "the levels of the column",
        "",
    ),
    (r"module '\w+' has no attribute '(\w+)'", "{text} calls a function {0} that is not there", "another", ""),
    (r"has no attribute '(\w+)'", "{text} asks for {0}, which is not there", "another", ""),
]


_ELSEWHERE = {  # words of R that formulaic does not know
    "ns": "cr(x, df=5) is formulaic's natural spline; s(x) is one whose smoothness is learned.",
    "rcs": "cr(x, df=5) is formulaic's natural spline; s(x) is one whose smoothness is learned.",
    "factor": "C(g) makes levels of a column.",
    "ordered": "C(g, contr.poly) is a factor with an order.",
    "relevel": 'C(g, contr.treatment("a")) takes the level a as the reference.',
    "strata": "C(g) gives each stratum a level of its own, (1|g) one that is learned; baselines are shared.",
    "f": 'R-INLA\'s f(g, model="iid") is (1|g); others go by their names: rw2(t), ar1(t), icar(r), bym2(r).',
    "frailty": "(1|g) is a normal frailty.",
    "cluster": "(1|g) has what the rows of a group share.",
    "Surv": 'It is cens(time, event), with family="cox" or "weibull".',
    "Error": "It is (1|g).",
    "mo": (
        "A monotone effect is a size times shares, whose likelihood may have several optima, so it is not built. "
        "C(x, contr.diff) has a coefficient for each step to the next level, rw1(x) small steps of a learned size."
    ),
    "TRUE": "It is True.",
    "FALSE": "It is False.",
}
_OPTIONS = {  # arguments of R's functions, and what they are here
    "REML": "Variances are learned with the coefficients integrated out, as REML does.",
    "nAGQ": 'evidence="corrected" finds the variances that quadrature finds.',
    "method": "Variances are learned with the coefficients integrated out, as REML does.",
    "E": 'It is exposure="E".',
    "subset": "Give those rows: data[data.x > 0].",
    "offset": "It stands in the formula: y ~ x + offset(z).",
    "random": "It stands in the formula: y ~ x + (1|group).",
    "correlation": "It stands in the formula: y ~ x + ar1(time).",
    "prior": "It is priors={...}.",
    "ziformula": 'It is zero="~ x".',
    "dispformula": 'It is dispersion="~ x".',
    "link": 'A family has its own: "bernoulli" the logit, "probit" the probit.',
}
_IDIOMS = [  # of R or of others, by how they look: what is wrong, expected, what to try
    (r"\bas\.(factor|ordered|character)\s*\(", "as.{0}() is a function of R", "C(g), levels of a column"),
    (r"\bas\.(numeric|integer)\s*\(", "as.{0}() is a function of R", 'pandas.to_numeric(data["x"]) beforehand'),
    (r"(?<![\w.])Q\(\s*['\"]([^'\"]+)['\"]\s*\)", "Q() stands around the column {0!r}", "backticks: `{0}`"),
]


def in_our_words(said: str, text: str) -> tuple[str, str, str] | None:
    """What is wrong with a text of the formula, what was expected, what to try; None of a complaint not known here."""
    for pattern, got, expected, advice in _WORDS:
        result = re.search(pattern, said, re.DOTALL)
        if result:
            return got.format(*result.groups(), text=repr(text)), expected.format(*result.groups(), text=text), advice
    return None


def idiom(text: str) -> tuple[str, str, str] | None:
    """Of what other languages of formulas write: what is wrong, what was expected, what to try; else None."""
    for pattern, got, expected in _IDIOMS:
        result = re.search(pattern, text)
        if result:
            return got.format(*result.groups()), expected.format(*result.groups()), ""
    return None


def advice_on(name: str) -> str:
    """What to write in place of a word of R; "" where it is none."""
    return _ELSEWHERE.get(name) or named_in_r(name) or ""


def unknown_option(name: str, known: list[str]) -> TypeError:
    """Of an argument that nobody takes."""
    near = get_close_matches(name.lower(), known, 1)
    advice = _OPTIONS.get(name) or (f"Did you mean {near[0]!r}?" if near else "")
    return TypeError(str(problem("fit", f"there is no argument {name!r}", ", ".join(known), advice)))


def words_for_numbers(frame: pd.DataFrame, names: list[str]) -> str | None:
    """The first of the columns that holds text or categories, where a function wants numbers."""
    for name in names:
        if DataColumn("Model", name, frame[name]).kind in (Kind.TEXT, Kind.CATEGORIES, Kind.MIXED):
            return name
    return None


def another_kind(name: str, fitted: Kind, column: DataColumn) -> tuple[str, str, str] | None:
    """Of new rows that hold text where fit had numbers, or numbers where it had booleans as text."""
    words = (Kind.TEXT, Kind.CATEGORIES, Kind.MIXED, Kind.DATES)
    if fitted not in (Kind.NUMBERS, Kind.BOOLEANS) or column.kind not in words:
        return None
    first = next((value for value in column.values if type(value) is str), column.values[0])
    cure = f'new["{name}"] == {first!r}' if fitted is Kind.BOOLEANS else f'pandas.to_numeric(new["{name}"])'
    got = f"{name!r} holds {column.kind.value} ({first!r}) and held {fitted.value} in the data of the fit"
    return got, fitted.value, f"{cure} makes {fitted.value} of it." if column.kind is Kind.TEXT else ""


def unknown_function(name: str, known: list[str]) -> tuple[str, str, str]:
    """Of a function that nobody has defined."""
    near = get_close_matches(name, known, 1)
    advice = advice_on(name)
    if not advice and callable(getattr(np, name, None)):
        advice = f"numpy's is np.{name}."
    elif not advice and near:
        advice = f"Did you mean {near[0]}?"
    advice = advice or "One of your own is found where you call from, or by env={...}."
    return f"there is no column {name!r} and no function {name}()", "one that is defined", advice
