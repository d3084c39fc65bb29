"""The grammar of a formula: text split into a response, a fixed part and special terms; nothing is evaluated here.

    formula   :=  response ~ piece + piece - piece ...
    response  :=  expression  |  expression "|" trials(n)  |  cbind(successes, failures)  |  cens(time, event)
                  |  interval(lower, upper)
    piece     :=  "(" slopes "|" group ")"  |  "(" slopes "||" group ")"  |  word "(" arguments ")"
                  |  offset(expression)  |  anything else, which belongs to the fixed part
    group     :=  column  |  a:b  |  a/b  |  gr(column, cov=A)  |  mm(a, b)
    argument  :=  column  |  a:b  |  number  |  "text"  |  True, False, None  |  [argument, ...]
                  |  word "(" arguments ")"

Every part remembers its place, so that a message can point at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ..checks import Refusal, problem
from ..terms import WORDS

ARGUMENTS = 'a column, a:b, a number, "text" or a list', "Make it a column of the data first, and name that."
_OPEN, _SHUT = "([{", ")]}"
_NAME = re.compile(r"[^\W\d][\w.]*|`[^`]+`")  # with dots, as R has them
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_CALL = re.compile(r"([^\W\d]\w*)\s*\(")
_OPTION = re.compile(r"([^\W\d]\w*)\s*=(?!=)\s*")
_PAIRS = {"cens": "event", "interval": "upper", "cbind": "failures"}  # left sides, and what their second argument is
_BESIDE = ("trials", "event", "exposure", "weights")  # what may stand behind | on the left side
_CONSTANTS = {"True": True, "False": False, "None": None}


# -- what a formula is made of -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Name:
    """A column, or a variable of the user's."""

    name: str
    at: int

    @property
    def columns(self) -> tuple[Name, ...]:
        return (self,)


@dataclass(frozen=True)
class Constant:
    """A number, a text, True, False or None, or a list of arguments."""

    value: object
    at: int
    columns: ClassVar[tuple[Name, ...]] = ()


@dataclass(frozen=True)
class Crossed:
    """a:b, one level for each combination."""

    names: tuple[Name, ...]
    at: int

    @property
    def columns(self) -> tuple[Name, ...]:
        return self.names


@dataclass(frozen=True)
class Call:
    """word(arguments, option=argument)."""

    word: str
    args: tuple[Argument, ...]
    options: Mapping[str, Argument]
    at: int
    text: str
    columns: ClassVar[tuple[Name, ...]] = ()


Argument = Name | Constant | Crossed | Call  # each says which columns it names: none of a constant or a call


@dataclass(frozen=True)
class Computed:
    """An expression of columns beside y, such as the n - y of cbind(y, n - y)."""

    text: str
    at: int


@dataclass(frozen=True)
class Grouping:
    """(slopes | group), of which ``slopes`` is a formula of its own; a/b is two of them."""

    slopes: str
    correlated: bool
    group: Argument
    at: int
    text: str
    written: str = field(default="", compare=False)  # in the formula, blanks aside


@dataclass(frozen=True)
class Parsed:
    """A formula taken apart.

    Attributes
    ----------
    formula : str
    response : Piece
    about : mapping of str to Argument or Computed
        What else the left side says: trials, event, failures.
    fixed : tuple of Piece
        With their signs: "+ x", "- 1".
    offsets : tuple of Piece
    terms : tuple of Call and Grouping
    """

    formula: str
    response: Piece
    about: Mapping[str, Argument | Computed] = field(default_factory=dict)
    fixed: tuple[Piece, ...] = ()
    offsets: tuple[Piece, ...] = ()
    terms: tuple[Call | Grouping, ...] = ()

    def refuse(self, about: str | int, got: str, expected: str, advice: str = "") -> Refusal:
        """The sentence, and under the formula a mark at what it is about: a text of the right side, or a place."""
        right = self.formula.index("~") + 2
        at = about if isinstance(about, int) else max(self.formula.find(about, right), self.formula.find(about))
        return refusal(self.formula, at if at >= 0 else min(right, len(self.formula)), got, expected, advice)


@dataclass(frozen=True)
class Piece:
    """A stretch of the formula, stripped of blanks, with its place."""

    text: str
    at: int
    sign: str = "+"

    @property
    def end(self) -> int:
        """The place of its last character."""
        return self.at + len(self.text) - 1


def refusal(formula: str, at: int, got: str, expected: str, advice: str = "") -> Refusal:
    """A problem with a place in a formula."""
    return Refusal(f"{problem('Model', got, expected, advice)}\n    {formula}\n    {' ' * at}^")


def shown_in(refused: Refusal, inner: str, formula: str) -> Refusal:
    """The same under the formula that was written, where ``inner`` was made of it with the same right side."""
    text, result, mark = str(refused).partition(f"\n    {inner}\n    ")
    at = mark.find("^") - inner.index("~") + formula.index("~")
    return Refusal(f"{text}\n    {formula}\n    {' ' * at}^") if result and at >= 0 else refused


# -- splitting -----------------------------------------------------------------------------------------------
def _outside(formula: str, start: int, stop: int) -> Iterator[int]:
    """The places outside brackets, quotes and backticks; refuses what is not closed."""
    inside: list[tuple[str, int]] = []
    i = start
    while i < stop:
        c = formula[i]
        if c in "\"'`":
            end = formula.find(c, i + 1, stop)
            if end < 0:
                raise refusal(formula, i, f"{c} is not closed", "one more of it")
            i = end
        elif c in _OPEN:
            inside.append((c, i))
        elif c in _SHUT:
            if not inside or _OPEN.index(inside[-1][0]) != _SHUT.index(c):
                raise refusal(formula, i, f"{c!r} closes nothing", "brackets in pairs")
            inside.pop()
        elif not inside:
            yield i
        i += 1
    if inside:
        raise refusal(formula, inside[-1][1], f"{inside[-1][0]!r} is not closed", "brackets in pairs")


def _cut(formula: str, start: int, stop: int, marks: str) -> list[Piece]:
    """The stretches between marks, each with the mark before it as its sign."""
    out, begin, sign = [], start, "+"
    for i in _outside(formula, start, stop):
        if formula[i] in marks and not (marks == "+-" and _within_number(formula, start, i)):
            out.append(_piece(formula, begin, i, sign))
            begin, sign = i + 1, formula[i]
    return [*out, _piece(formula, begin, stop, sign)]


def _within_number(formula: str, start: int, i: int) -> bool:
    """Whether a sign belongs to a number such as 1e-3."""
    return bool(re.search(r"(?<![\w.])(\d+\.?\d*|\.\d+)[eE]$", formula[start:i]))


def _piece(formula: str, start: int, stop: int, sign: str = "+") -> Piece:
    text = formula[start:stop]
    return Piece(text.strip(), start + len(text) - len(text.lstrip()), sign)


# -- arguments -----------------------------------------------------------------------------------------------
def _argument(formula: str, piece: Piece) -> Argument:
    text, at = piece.text, piece.at
    if not text:
        raise refusal(formula, at, "an argument is missing", "a column, a number or a text")
    if text in _CONSTANTS:
        return Constant(_CONSTANTS[text], at)
    if text[0] in "\"'" and text.find(text[0], 1) == len(text) - 1:
        return Constant(text[1:-1], at)
    if _NUMBER.fullmatch(text):
        return Constant(float(text) if re.search(r"[.eE]", text) else int(text), at)
    if _NAME.fullmatch(text):
        return Name(text.strip("`"), at)
    if text[0] == "[" and text[-1] == "]":
        inner = [p for p in _cut(formula, at + 1, piece.end, ",") if p.text]
        return Constant([_argument(formula, p) for p in inner], at)
    if _called(formula, piece):
        return _call(formula, piece)
    parts = _cut(formula, at, piece.end + 1, ":")
    if len(parts) > 1 and all(_NAME.fullmatch(p.text) for p in parts):
        return Crossed(tuple(Name(p.text.strip("`"), p.at) for p in parts), at)
    raise refusal(formula, at, f"{text!r} is no argument of a term", *ARGUMENTS)


def _closes(formula: str, at: int) -> int:
    """Where the bracket opened at a place is closed."""
    depth, i = 0, at
    while True:
        c = formula[i]
        if c in "\"'`":
            i = formula.find(c, i + 1)
        depth += (c in _OPEN) - (c in _SHUT)
        if depth == 0:
            return i
        i += 1


def _called(formula: str, piece: Piece) -> str | None:
    """The word of a piece that is one call, word(...); None of another."""
    result = _CALL.match(piece.text)
    return result[1] if result and _closes(formula, piece.at + result.end() - 1) == piece.end else None


def _call(formula: str, piece: Piece) -> Call:
    text, at = piece.text, piece.at
    open_at = text.index("(")
    args: list[Argument] = []
    options: dict[str, Argument] = {}
    inside = _cut(formula, at + open_at + 1, piece.end, ",")
    for p in inside if len(inside) > 1 or inside[0].text else ():
        named = _OPTION.match(p.text)
        if named:
            options[named[1]] = _argument(formula, Piece(p.text[named.end() :], p.at + named.end()))
        elif options:
            raise refusal(formula, p.at, f"{p.text!r} comes behind an option", "columns first, then option=value")
        else:
            args.append(_argument(formula, p))
    return Call(text[:open_at].strip(), tuple(args), options, at, text)


# -- pieces --------------------------------------------------------------------------------------------------
def _groupings(formula: str, piece: Piece, bar: int) -> list[Grouping]:
    """(slopes | group); a/b gives one for a and one for a:b."""
    double = formula[bar : bar + 2] == "||"
    slopes, group = _piece(formula, piece.at + 1, bar), _piece(formula, bar + 1 + double, piece.end)
    if not slopes.text or not group.text:
        at = (group if slopes.text else slopes).at
        raise refusal(formula, at, "one side of | is empty", "(1|group), (x|group) or (x||group)")
    nested = _cut(formula, group.at, group.end + 1, "/")
    groups: list[Argument] = [_argument(formula, p) for p in nested]
    if len(nested) > 1:
        names = [g for g in groups if isinstance(g, Name)]
        if len(names) < len(groups):
            raise refusal(formula, group.at, f"{group.text!r} nests what is no column", "a/b of columns")
        groups = [names[0], *(Crossed(tuple(names[: k + 1]), group.at) for k in range(1, len(names)))]
    bars, left = "||" if double else "|", _bare(slopes.text)
    return [
        Grouping(slopes.text, not double, g, piece.at, f"({left}{bars}{_shown(g)})", _bare(piece.text)) for g in groups
    ]


def _shown(group: Argument) -> str:
    match group:
        case Crossed():
            return ":".join(name.name for name in group.names)
        case Name():
            return group.name
        case Call():
            return _bare(group.text)
    return "?"


def _bare(text: str) -> str:
    """Without blanks outside quotes."""
    return "".join(
        p if i % 2 else re.sub(r"\s+", "", p) for i, p in enumerate(re.split(r"([\"'`][^\"'`]*[\"'`])", text))
    )


def _special(formula: str, piece: Piece) -> list[Call | Grouping] | None:
    """A special term, or None for a piece of the fixed part."""
    text, at = piece.text, piece.at
    if text.startswith("(") and _closes(formula, at) == piece.end:
        bar = next((i for i in _outside(formula, at + 1, piece.end) if formula[i] == "|"), None)
        if bar is not None:
            return list(_groupings(formula, piece, bar))
    if _called(formula, piece) in WORDS:
        return [replace(_call(formula, piece), text=_bare(text))]
    for inner in _CALL.finditer(text):
        if inner[1] in WORDS and (inner.start() == 0 or text[inner.start() - 1] not in ".\"'`"):
            got = f"{inner[1]}(...) stands inside {text!r}"
            advice = "by= varies a term with a column, interact(...) crosses two."
            raise refusal(formula, at + inner.start(), got, "a special term on its own, added by +", advice)
    bar = text.find("|")
    if bar >= 0 and not re.search(r"[\"'`{]", text[:bar]):
        raise refusal(formula, at + bar, f"| inside {text!r}", "(slopes|group) on its own, added by +")
    return None


def _response(formula: str, stop: int) -> tuple[Piece, dict[str, Argument | Computed]]:
    """The left side: an expression, and what is said of it."""
    left = _piece(formula, 0, stop)
    if not left.text:
        raise refusal(formula, 0, "there is no response before ~", "y ~ ...")
    first, *about = _cut(formula, left.at, left.end + 1, "|")
    out: dict[str, Argument | Computed] = {}
    for p in about:
        match _argument(formula, p):
            case Call(word=word, args=[value], options=options) if word in _BESIDE and not options:
                out[word] = value
            case _:
                wanted = "y | trials(n), event(e), exposure(e) or weights(w)"
                raise refusal(formula, p.at, f"{p.text!r} behind |", wanted)
    call = _called(formula, first)
    if call in _PAIRS:
        pair = _cut(formula, formula.index("(", first.at) + 1, first.end, ",")
        if len(pair) != 2 or any(not p.text or _NUMBER.fullmatch(p.text) or _OPTION.match(p.text) for p in pair):
            wanted = "cens(time, event), interval(lower, upper) or cbind(successes, failures)"
            raise refusal(formula, first.at, f"{first.text!r}", wanted)
        own, other = pair
        plain = _NAME.fullmatch(other.text)
        out[_PAIRS[call]] = Name(other.text.strip("`"), other.at) if plain else Computed(other.text, other.at)
        return Piece(f"`{own.text.strip('`')}`", own.at) if _NAME.fullmatch(own.text) else own, out
    return first, out


def parse(formula: str) -> Parsed:
    """Take a formula apart.

    Examples
    --------
    >>> from fenchel.models.grammar import parse
    >>> parsed = parse("y ~ x * z + (x|g) + rw1(year)")
    >>> [piece.text for piece in parsed.fixed], [term.text for term in parsed.terms]
    (['x * z'], ['(x|g)', 'rw1(year)'])
    """
    if not isinstance(formula, str):
        raise problem("Model", f"formula is a {type(formula).__name__}", 'a text such as "y ~ x + (1|group)"')
    formula = " ".join(formula.split("\n")).rstrip()
    tildes = [i for i in _outside(formula, 0, len(formula)) if formula[i] == "~"]
    if len(tildes) != 1:
        at = tildes[1] if tildes else max(len(formula) - 1, 0)
        raise refusal(formula, at, f"the formula has {len(tildes)} ~", "one, as in y ~ x + (1|group)")
    response, about = _response(formula, tildes[0])
    pieces = _cut(formula, tildes[0] + 1, len(formula), "+-")
    if not pieces[0].text and len(pieces) > 1:
        pieces = pieces[1:]  # y ~ -1 + x
    fixed, offsets, terms = [], [], []
    for piece in pieces:
        if not piece.text:
            raise refusal(formula, max(piece.at - 1, 0), "a term is missing", "a term on both sides of + and -")
        result = _special(formula, piece)
        offset = _called(formula, piece) == "offset"
        if (result or offset) and piece.sign == "-":
            raise refusal(formula, piece.at, f"- {piece.text}", "special terms and offsets added, not taken away")
        if result is not None:
            terms += result
        elif offset:
            offsets.append(_piece(formula, formula.index("(", piece.at) + 1, piece.end))
        else:
            fixed.append(piece)
    return Parsed(formula, response, about, tuple(fixed), tuple(offsets), tuple(terms))
