"""Formulas taken apart, and sentences that point at the place."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenchel.checks import Refusal
from fenchel.models.grammar import Call, Constant, Crossed, Grouping, Name, parse


def texts(pieces):
    return [f"{piece.sign}{piece.text}" for piece in pieces]


def test_a_formula_is_fixed_part_special_terms_and_offsets():
    parsed = parse("y ~ x*z + C(f, contr.treatment('a + b')) + (x|g) + rw1(year) + offset(np.log(n + 1)) - 1 + 1e-3:x")
    assert texts(parsed.fixed) == ["+x*z", "+C(f, contr.treatment('a + b'))", "-1", "+1e-3:x"]
    assert [piece.text for piece in parsed.offsets] == ["np.log(n + 1)"]
    assert [term.text for term in parsed.terms] == ["(x|g)", "rw1(year)"]
    assert parsed.response.text == "y"
    assert parsed.formula[parsed.terms[1].at :].startswith("rw1(year)")


@pytest.mark.parametrize(
    ("formula", "fixed"),
    [("y ~ 1", ["+1"]), ("y ~ -1 + x", ["-1", "+x"]), ("y ~ 0 + x", ["+0", "+x"]), ("y ~ (1|g)", [])],
)
def test_intercepts(formula, fixed):
    assert texts(parse(formula).fixed) == fixed


def test_groups():
    first, second = parse("y ~ (1 + x | a/b)").terms
    assert first == Grouping("1 + x", True, Name("a", 13), 4, "(1+x|a)")
    assert second.text == "(1+x|a:b)"
    assert second.group == Crossed((Name("a", 13), Name("b", 15)), 13)
    (double,) = parse("y ~ (x||`my group`)").terms
    assert not double.correlated
    assert double.group.name == "my group"
    (known,) = parse("y ~ (1|gr(animal, cov=A))").terms
    assert known.group.word == "gr"
    assert known.group.options["cov"].name == "A"


def test_calls():
    (term,) = parse("y ~ s(x, bs='cr', k=10, by=f, knots=[0, 1.5])").terms
    assert isinstance(term, Call)
    assert term.text == "s(x,bs='cr',k=10,by=f,knots=[0,1.5])"
    assert {key: value.value for key, value in term.options.items() if key in ("bs", "k")} == {"bs": "cr", "k": 10}
    assert term.options["by"] == Name("f", 27)
    assert [each.value for each in term.options["knots"].value] == [0, 1.5]
    (crossed,) = parse("y ~ interact(icar(r), rw1(t))").terms
    assert [inner.word for inner in crossed.args] == ["icar", "rw1"]
    (dotted,) = parse("y ~ s(Solar.R)").terms  # a name of R's
    assert dotted.args == (Name("Solar.R", 6),)


def test_left_sides():
    assert parse("s | trials(n) ~ x").about["trials"] == Name("n", 11)
    assert isinstance(parse("s | trials(10) ~ x").about["trials"], Constant)
    durations = parse("cens(t, dead) ~ x")
    assert durations.response.text == "`t`"
    assert durations.about["event"] == Name("dead", 8)
    assert parse("cbind(s, f) ~ x").about["failures"].name == "f"
    assert parse("np.log(y + 1) ~ x").response.text == "np.log(y + 1)"


SENTENCES = {
    "y ~ x + (1|g": ("'(' is not closed; expected brackets in pairs", 8),
    "y ~ x)": ("')' closes nothing; expected brackets in pairs", 5),
    "y ~ s(x, bs='cr)": ("' is not closed", 12),
    "y + x": ("the formula has 0 ~; expected one", 4),
    "y ~ a ~ b": ("the formula has 2 ~; expected one", 6),
    "~ x": ("there is no response before ~", 0),
    "y ~ x +": ("a term is missing; expected a term on both sides of + and -", 6),
    "y ~ (|g)": ("one side of | is empty", 5),
    "y ~ (1|)": ("one side of | is empty", 7),
    "y ~ x:rw1(t)": ("rw1(...) stands inside 'x:rw1(t)'; expected a special term on its own", 6),
    "y ~ x|g": ("| inside 'x|g'; expected (slopes|group)", 5),
    "y ~ x - (1|g)": ("- (1|g); expected special terms and offsets added", 8),
    "y ~ s(x + 1)": ("'x + 1' is no argument of a term", 6),
    "y ~ s(k=3, x)": ("'x' comes behind an option", 11),
    "y ~ s(x,)": ("an argument is missing", 8),
    "y | foo(n) ~ x": ("'foo(n)' behind |", 4),
    "y ~ (1|f(x)/b)": ("'f(x)/b' nests what is no column", 7),
    "cens(t) ~ x": ("'cens(t)'; expected cens(time, event)", 0),
}


@pytest.mark.parametrize("formula", SENTENCES)
def test_a_message_points_at_the_place(formula):
    sentence, at = SENTENCES[formula]
    with pytest.raises(Refusal) as caught:
        parse(formula)
    first, shown, mark = str(caught.value).split("\n")
    assert first.startswith(f"Model: {sentence}")
    assert shown == f"    {formula}"
    assert mark == " " * (4 + at) + "^"


def test_a_formula_is_text():
    with pytest.raises(Refusal, match="formula is a int; expected a text"):
        parse(3)


def test_a_formula_may_have_several_lines():
    assert texts(parse("y ~ x +\n    z").fixed) == ["+x", "+z"]


@given(st.text(alphabet="xyg~+-|()[]'`\"1 .,:=*/s{}é", max_size=20))
def test_any_text_is_a_formula_or_a_sentence(text):
    for formula in (text, f"y ~ {text}"):
        with contextlib.suppress(Refusal):
            parse(formula)
