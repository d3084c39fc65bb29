"""Special terms of a formula as objects of ``fenchel.terms``.

    word(columns, option=value)     the class of that word (``terms.WORDS``)
    word(t, by=g) of a series       ``Replicated``: a series for each group
    (1|g), (0 + x|g), (x||g)        ``IID``, with ``by`` for a slope
    (x|g), (f|g)                    ``Grouped``: correlated intercepts and slopes
    (1|a/b), (1|a:b)                groups of a column that is made
    (1|gr(g, cov=A)), (1|mm(a, b))  ``KnownCovariance``, ``MultipleMembership``

Graphs and other matrices are variables: those of ``graphs`` and ``env``, then the caller's.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import terms
from ..checks import Refusal, instance, problem
from ..inputs.frames import DataColumn, Kind, unknown, used
from ..outlines import graph_from
from ..terms import IID, WORDS, LevelTerm, Term
from .formula_errors import advice_on
from .grammar import ARGUMENTS, Argument, Call, Constant, Crossed, Grouping, Name, Parsed
from .model_matrix import INTERCEPT, Expression

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound=Term)

_GROUP = "(...|group)"


@dataclass
class Scope:
    """Where names that are no columns are looked up, in this order."""

    parsed: Parsed
    columns: list[Hashable]
    graphs: Mapping[str, Any]
    env: Mapping[str, Any]
    caller: Mapping[str, Any]
    frame: pd.DataFrame
    python: bool = True  # the formula was written in Python, and may call functions of the caller's
    used: dict[str, Any] = field(default_factory=dict)  # variables that were looked up
    expressions: list[Expression] = field(default_factory=list)  # that were read

    def variable(self, name: str, at: int | None = None, what: str = "a column, or a variable") -> Any:
        """The user's variable of that name."""
        for place in (self.env, self.graphs, self.caller):
            if name in place:
                self.used[name] = place[name]
                return place[name]
        got, expected, near = unknown(self.frame, name)
        advice = near or advice_on(name) or f"It may be {what} given by env={{...}}."
        raise self.refuse(name if at is None else at, got, expected, advice)

    def refuse(self, about: str | int, got: str, expected: str, advice: str = "") -> Refusal:
        """A message that points at a text in the formula, or at a place."""
        return self.parsed.refuse(about, got, expected, advice)

    def expression(self, text: str) -> Expression:
        """A text for formulaic."""
        self.expressions.append(Expression(text, self.columns, self.variable, self.parsed.refuse, self.python))
        return self.expressions[-1]

    def column(self, argument: Argument, word: str) -> str:
        """The column that an argument names."""
        if not isinstance(argument, Name):
            factor = isinstance(argument, Call) and argument.word in ("factor", "C")
            wanted = "(1|column)" if word == _GROUP else f"{word}(column)"
            advice = "The values of a column are its levels as they stand." if factor else ""
            raise self.refuse(argument.at, f"{word} stands over no column", wanted, advice)
        if argument.name not in self.columns:
            raise self.refuse(argument.at, *unknown(self.frame, argument.name))
        return argument.name


@dataclass
class Derived:
    """A column made of others: combinations of groups, or a column of an expression."""

    name: str
    sources: tuple[str, ...]
    expression: Expression | None = None
    place: int = 0

    def of(self, frame: pd.DataFrame) -> Any:
        """Its values at the rows of a frame."""
        if self.expression is not None:
            return self.expression.evaluate(frame)[:, self.place]
        out = np.empty(len(frame), dtype=object)
        out[:] = list(zip(*(frame[name].tolist() for name in self.sources), strict=True))
        return out


@dataclass
class Compiled:
    """The terms of a formula, the columns they read of the data, and those made for them."""

    terms: list[Term] = field(default_factory=list)
    sources: list[Hashable] = field(default_factory=list)
    derived: dict[str, Derived] = field(default_factory=dict)
    written: dict[str, list[Hashable]] = field(default_factory=dict)  # a grouping of the formula -> its terms

    def stands_for(self, key: Any) -> list[Any]:
        """The names of the terms that a text of the formula is, such as (1|a/b) or (x||g); the key itself of others."""
        return self.written.get("".join(str(key).split()), [key])

    def extended(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with the columns made for the terms, those whose own columns are there."""
        here = [made for made in self.derived.values() if all(source in frame.columns for source in made.sources)]
        return frame.assign(**{made.name: made.of(frame) for made in here}) if here else frame

    def sources_of(self, name: Hashable) -> tuple[Hashable, ...]:
        """The columns of the data that a term's column is made of: itself, or others."""
        return self.derived[str(name)].sources if name in self.derived else (name,)


class Compiler:
    """Makes the terms of a parsed formula.

    Parameters
    ----------
    scope : Scope
    levels : mapping of column or term to its levels, in order
    """

    def __init__(self, scope: Scope, levels: Mapping[Any, Iterable[Hashable]]) -> None:
        self.scope, self.levels, self.out = scope, levels, Compiled()
        self.applied: set[Hashable] = set()  # keys of ``levels`` that a term has taken

    def run(self, more: Sequence[Term] = ()) -> Compiled:
        """All of them, and ``more`` that were given as they are."""
        for part in self.scope.parsed.terms:
            made = self.grouping(part) if isinstance(part, Grouping) else [self.term(part)]
            for term in made:
                if any(other.name == term.name for other in self.out.terms):
                    raise self.scope.refuse(part.at, f"{term.name} stands twice", "each term once")
                self.out.terms.append(self._with_levels(term, part.text))
                if isinstance(part, Grouping):
                    self.out.written.setdefault(part.written, []).append(term.name)
        for term in more:
            instance("Model", "an entry of terms", term, Term, 'fenchel.terms.IID("group")')
            for name in term.columns:
                if name not in self.scope.columns:
                    got, expected, advice = unknown(self.scope.frame, name)
                    raise problem("Model", f"{term!r}: {got}", expected, advice)
                self._reads(name)
            self.out.terms.append(self._with_levels(term))
        for key in self.levels:
            if key not in self.scope.columns and key not in self.applied:
                got = f"levels: {unknown(self.scope.frame, key)[0]}"
                raise problem("Model", got, "columns or terms of the formula")
        return self.out

    def _with_levels(self, term: T, written: str = "") -> T:
        """The term with the levels that the user chose under its name, its text in the formula or its column.

        Each factor of a product has its own.
        """
        for key in (term.name, written, term.column):
            if key is not None and key in self.levels:
                self.applied.add(key)
                return term.with_levels(self.levels[key])
        if isinstance(term, terms.Interaction):
            term = copy.copy(term)
            term.first, term.second = self._with_levels(term.first), self._with_levels(term.second)
        return term

    # -- calls -------------------------------------------------------------------------------------
    def term(self, call: Call) -> Term:
        """The term of word(...)."""
        kind, options = WORDS[call.word], dict(call.options)
        if kind.in_time and "by" in options:
            return self._replicated(call, options.pop("by"), options)
        if kind.over == "column":
            args = self._over_column(call, kind, options)
        else:
            args = [self._value(self._unquoted(argument)) for argument in call.args]
        try:
            kind = kind.serving([self._data(name) for name in args])
        except Refusal as error:
            raise self._refused(call, error) from None
        return self._made(call, kind, args, {key: self._value(value) for key, value in options.items()})

    def _over_column(self, call: Call, kind: type[Term], options: dict[str, Argument]) -> list[Any]:
        """The column of levels, the matrix where there is one, and what else stands in the brackets."""
        if not call.args:
            raise self.scope.refuse(call.at, f"{call.text} names no column", f"{call.word}(column)")
        column, given = self._group(call.args[0], call.word), list(call.args[1:])
        matrix = [self._matrix(call, column, given, options, kind.needs)] if kind.needs else []
        most = sum(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in signature(kind).parameters.values())
        if 1 + len(matrix) + len(given) > most:
            got = f"{call.text} has one argument too many"
            raise self.scope.refuse(given[0].at, got, f"{call.word}({column})")
        return [column, *matrix, *(self._value(argument) for argument in given)]

    def _unquoted(self, argument: Argument) -> Argument:
        match argument:
            case Constant(value=str() as text):
                advice = "Options have a name: option=value."
                raise self.scope.refuse(argument.at, f"{text!r} in quotes is no column", "columns first", advice)
        return argument

    def _data(self, name: Any) -> DataColumn | None:
        """What is in a column, for a term that depends on it; None where its levels are chosen."""
        if not isinstance(name, str) or name in self.levels or name not in self.scope.frame:
            return None
        return DataColumn("Model", name, self.scope.frame[name].dropna())

    def _replicated(self, call: Call, by: Argument, options: Mapping[str, Argument]) -> Term:
        """A series for each group."""
        series = self.term(Call(call.word, call.args, options, call.at, call.text))
        if not isinstance(series, LevelTerm):
            raise self.scope.refuse(by.at, f"{call.text}: by= of a field over points", "by= of a series in time")
        return terms.Replicated(series, self._group(by, "by"), name=call.text)

    def _made(self, call: Call, kind: type[Term], args: Sequence[Any], options: Mapping[str, Any]) -> Term:
        known = signature(kind).parameters
        strange = [key for key in options if key not in known]
        if strange and not any(p.kind is Parameter.VAR_KEYWORD for p in known.values()):
            words = [key for key, p in known.items() if p.kind is Parameter.KEYWORD_ONLY and key != "name"]
            at = call.options[strange[0]].at if strange[0] in call.options else call.at
            raise self.scope.refuse(at, f"{call.word}() has no option {strange[0]!r}", ", ".join(words))
        try:
            return kind(*args, **options, name=call.text)
        except Refusal as error:
            raise self._refused(call, error) from None
        except TypeError as error:  # too few arguments, or too many
            said = str(error).partition("() ")[2] or str(error)
            raise self.scope.refuse(call.at, f"{call.text}: {said}", f"other arguments of {call.word}()") from None

    def _refused(self, call: Call, error: Refusal) -> Refusal:
        """What a term refuses, with its place in the formula."""
        got, _, expected = str(error).partition("; expected ")
        return self.scope.refuse(call.at, f"{call.text}: {got}", expected.rstrip("."))

    def _matrix(
        self, call: Call, column: str, given: list[Argument], options: dict[str, Any], words: Sequence[str]
    ) -> Any:
        """The graph or matrix of a term: its second argument, an option, or what ``graphs`` has for the column."""
        named = [options.pop(word) for word in words if word in options] + given[:1]
        del given[:1]
        if named:
            argument = named[0]
            if not isinstance(argument, Name):
                raise self.scope.refuse(argument.at, "a graph is no number", "the name of a variable")
            given_graph = self.scope.variable(argument.name, argument.at, f"the {words[0]} of {call.word}")
            self.scope.used[argument.name] = graph_from(given_graph, column)
            return self.scope.used[argument.name]
        if column in self.scope.graphs:
            return graph_from(self.scope.graphs[column], column)
        advice = f"Model(..., graphs={{{column!r}: ...}}), or {call.word}({column}, W) with a variable W."
        raise self.scope.refuse(call.at, f"{call.text} has no {words[0]}", f"one for {column!r}", advice)

    def _value(self, argument: Argument) -> Any:
        """What an argument is: a number or a text, the name of a column, a variable, or a term."""
        match argument:
            case Constant(value=list() as parts):
                return [self._value(part) for part in parts]
            case Constant():
                return argument.value
            case Name() if argument.name in self.scope.columns:
                self._reads(argument.name)
                return argument.name
            case Name():
                return self.scope.variable(argument.name, argument.at)
            case Call() if argument.word in WORDS:
                return self.term(argument)
            case Call():
                raise self.scope.refuse(argument.at, f"{argument.text!r} is no argument of a term", *ARGUMENTS)
        return self._group(argument, "the option")

    # -- groups ------------------------------------------------------------------------------------
    def _reads(self, *names: Hashable) -> None:
        self.out.sources += names

    def _group(self, argument: Argument, word: str) -> str:
        """The column of a group; of a:b, one that is made."""
        match argument:
            case Crossed():
                names = tuple(self.scope.column(part, word) for part in argument.names)
            case _:
                names = (self.scope.column(argument, word),)
        self._reads(*names)
        made = ":".join(names)
        if len(names) > 1:
            self.out.derived[made] = Derived(made, names)
        return made

    def grouping(self, part: Grouping) -> list[Term]:
        """The terms of (slopes | group)."""
        group, covariance = part.group, None
        match group:
            case Call(word="gr", args=[inner, *more]):
                named = [*more, *group.options.values()]
                if len(named) > 1 or set(group.options) - {"cov"}:
                    raise self.scope.refuse(group.at, f"{group.text} has other options", "gr(group, cov=A)")
                covariance, group = (named[0] if named else None), inner
            case Call(word="mm") if part.slopes.strip() == "1":
                return [self.term(Call("mm", group.args, group.options, group.at, part.text))]
            case Call(word="mm"):
                raise self.scope.refuse(part.at, f"{part.text} has slopes", "(1|mm(a, b)): levels of several groups")
        column = self._group(group, _GROUP)
        intercept, slopes = self._slopes(part)
        each: list[str | None] = [*([None] if intercept else []), *slopes]
        if covariance is not None:
            return [self._known_covariance(part, column, each, covariance)]
        plain = all(self._is_number(name) for name in slopes)
        if len(each) == 1 and plain:
            return [IID(column, by=each[0], name=part.text)]
        if plain and not part.correlated:
            return [IID(column, by=by, name=f"({'1' if by is None else f'0+{by}'}|{column})") for by in each]
        together = terms.Grouped(column, slopes, intercept=intercept, correlated=part.correlated, name=part.text)
        return [together]

    def _is_number(self, name: str) -> bool:
        """Whether a slope is a number, and not a factor whose levels have a slope each."""
        if name in self.out.derived:
            return True
        return DataColumn("Model", name, self.scope.frame[name]).kind in (Kind.NUMBERS, Kind.BOOLEANS)

    def _slopes(self, part: Grouping) -> tuple[bool, list[str]]:
        """Whether there is an intercept, and the columns of the slopes: of the data, or made by formulaic."""
        words = [word.strip() for word in part.slopes.split("+")]
        if all(word in ("0", "1") or word.strip("`") in self.scope.columns for word in words):
            intercept, names = "0" not in words, [word.strip("`") for word in words if word not in ("0", "1")]
            self._reads(*names)
        else:
            expression = self.scope.expression(part.slopes)
            self._reads(*expression.names)
            frame = used("Model", self.scope.frame, expression.names).dropna().reset_index(drop=True)
            expression.evaluate(frame)
            intercept, names = INTERCEPT in expression.columns, [n for n in expression.columns if n != INTERCEPT]
            for j, name in enumerate(expression.columns):
                if name != INTERCEPT and name not in self.scope.columns:
                    self.out.derived[name] = Derived(name, tuple(expression.names), expression, j)
        if not (intercept or names):
            raise self.scope.refuse(part.at, f"{part.text} has no slope and no intercept", "(1|group) or (x|group)")
        return intercept, names

    def _known_covariance(self, part: Grouping, column: str, slopes: list[str | None], given: Argument) -> Term:
        """A group of known covariance: its levels, or one slope."""
        if not isinstance(given, Name):
            raise self.scope.refuse(given.at, "cov is no variable", "gr(group, cov=A) with a matrix A")
        if len(slopes) > 1:
            raise self.scope.refuse(part.at, f"{part.text} has several slopes", "one, with a known covariance")
        A = self.scope.variable(given.name, given.at, "a covariance matrix")
        return terms.KnownCovariance(column, cov=A, by=slopes[0], name=part.text)
