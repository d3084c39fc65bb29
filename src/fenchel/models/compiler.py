"""Special terms of a formula as terms of the house.

(1|g), iid(g)                 IID                    rw1(t), rw2(t), ar1(t)       RW1, RW2, AR1; at irregular times
(0 + x|g), (x||g)             IID by x                                             their forms in continuous time
(x|g), (f|g)                  Grouped                ar(t, p), seasonal(t, 12)    AR, Seasonal
(1|a/b), (1|a:b)              a made column          ... by=g                     Replicated: a series for each group
(1|gr(g, cov=A))              KnownCovariance        icar(r), bym2(r), leroux(r)  ICAR, BYM2, Leroux
mm(a, b)                      MultipleMembership     generic(g, R)                Generic
s(x), te(x, z), ti(x, z)      Smooth, Tensor         interact(icar(r), rw1(t))    Interaction
matern(x, y)                  Matern                 matern(t)                    MaternSeries
vecchia(x, z)                 VecchiaProcess

Graphs and other matrices are variables: those of ``graphs`` and ``env``, then the caller's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import terms
from ..checks import Refusal, instance, problem
from ..inputs.frames import unknown, used
from ..inputs.levels import inferred
from ..terms import IID, DataColumn, Kind, LevelTerm, Term
from .borders import graph_from
from .fixed import INTERCEPT, Expression
from .formula_errors import ELSEWHERE
from .grammar import ARGUMENTS, TERMS, Argument, Call, Constant, Crossed, Grouping, Name, Parsed

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound=Term)

_SERIES: dict[str, type[LevelTerm]] = {"rw1": terms.RW1, "rw2": terms.RW2, "ar1": terms.AR1, "iid": IID}
_TIME = ("rw1", "rw2", "ar1", "seasonal", "ar", "matern")  # words of series, of which by= makes one for each group
_IRREGULAR: dict[str, type[Term]] = {
    "rw1": terms.Wiener,
    "rw2": terms.IntegratedWiener,
    "ar1": terms.OrnsteinUhlenbeck,
}
_GRAPHS: dict[str, type[LevelTerm]] = {
    "icar": terms.ICAR,
    "bym": terms.BYM,
    "bym2": terms.BYM2,
    "leroux": terms.Leroux,
}
_AS_WRITTEN: dict[str, Callable[..., Term]] = {  # their arguments are those of the formula
    "s": terms.Smooth,
    "te": terms.Tensor,
    "ti": partial(terms.Tensor, main=False),
    "gp": terms.GaussianProcess,
    "mm": terms.MultipleMembership,
    "ar": terms.AR,
    "interact": terms.Interaction,
    "matern": terms.matern,
    "vecchia": terms.VecchiaProcess,
}
_GROUP = "(...|group)"
_MONOTONE = (  # why mo() is none of them, and what is
    "is not built: a monotone effect is a size b times shares s of a simplex, and the log-likelihood -(y - b s)^2 / 2 "
    "has curvature of both signs (at b = s = 0 it is [[0, y], [y, 0]]), so that no optimum is known to be the best; "
    "steps held above 0 have no Gaussian prior",
    "a term that is linear in Gaussian unknowns",
    "C({column}, contr.diff) has a coefficient for each step to the next level, rw1({column}) small steps of a size "
    "that is learned: look there whether they go one way.",
)


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

    def variable(self, name: str, at: int | None = None, what: str = "a column, or a variable") -> Any:
        """The user's variable of that name."""
        for place in (self.env, self.graphs, self.caller):
            if name in place:
                return place[name]
        got, expected, advice = unknown(self.frame, name)
        advice = advice or ELSEWHERE.get(name, "")
        raise self.refuse(
            name if at is None else at, got, expected, advice or f"It may be {what} given by env={{...}}."
        )

    def refuse(self, about: str | int, got: str, expected: str, advice: str = "") -> Refusal:
        """A message that points at a text in the formula, or at a place."""
        return self.parsed.refuse(about, got, expected, advice)

    def expression(self, text: str) -> Expression:
        """A text for formulaic."""
        return Expression(text, self.columns, self.variable, self.parsed.refuse, self.python)

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

    def __init__(self, scope: Scope, levels: Mapping[Hashable, Iterable[Hashable]]) -> None:
        self.scope, self.levels, self.out = scope, levels, Compiled()

    def run(self, more: Sequence[Term] = ()) -> Compiled:
        """All of them, and ``more`` that were given as they are."""
        for part in self.scope.parsed.terms:
            made = self.grouping(part) if isinstance(part, Grouping) else [self.term(part)]
            for term in made:
                if any(other.name == term.name for other in self.out.terms):
                    raise self.scope.refuse(part.at, f"{term.name} stands twice", "each term once")
                self.out.terms.append(self._with_levels(term))
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
        return self.out

    def _with_levels(self, term: T) -> T:
        for key in (term.name, getattr(term, "column", None)):
            if key is not None and key in self.levels:
                return term.with_levels(self.levels[key])
        if isinstance(term, terms.Interaction):
            term = copy.copy(term)
            term.first, term.second = self._with_levels(term.first), self._with_levels(term.second)
        return term

    # -- calls -------------------------------------------------------------------------------------
    def term(self, call: Call) -> Term:
        """The term of word(...)."""
        word, options = call.word, dict(call.options)
        if word in _TIME and "by" in options:
            return self._replicated(call, options.pop("by"), options)
        if word == "mo":
            got, expected, advice = _MONOTONE
            column = call.args[0].name if call.args and isinstance(call.args[0], Name) else "x"
            raise self.scope.refuse(call.at, f"{call.text} {got}", expected, advice.format(column=column))
        if word in _AS_WRITTEN:
            text = next((a for a in call.args if isinstance(a, Constant) and isinstance(a.value, str)), None)
            if text is not None:
                advice = "Options have a name: option=value."
                raise self.scope.refuse(text.at, f"{text.value!r} in quotes is no column", "columns first", advice)
            args = [self._value(argument) for argument in call.args]
            made = terms.Matern if word == "matern" and len(args) == 2 else _AS_WRITTEN[word]
            return self._made(call, made, *args, **{k: self._value(v) for k, v in options.items()})
        if not call.args:
            raise self.scope.refuse(call.at, f"{call.text} names no column", f"{word}(column)")
        column, given = self._group(call.args[0], word), list(call.args[1:])
        kind: Callable[..., Term]
        more: list[Any] = []
        if word in _GRAPHS:
            kind, more = _GRAPHS[word], [self._matrix(call, column, given, options, ("graph", "W"))]
        elif word == "generic":
            kind, more = terms.Generic, [self._matrix(call, column, given, options, ("structure", "R"))]
        elif word == "seasonal":
            kind = terms.Seasonal
            more = [self._value(given.pop(0) if given else options.pop("period", Constant(12, call.at)))]
        else:
            kind = self._irregular(word, column) or _SERIES[word]
        if given:
            raise self.scope.refuse(given[0].at, f"{call.text} has one argument too many", f"{word}({column})")
        return self._made(call, kind, column, *more, **{key: self._value(v) for key, v in options.items()})

    def _replicated(self, call: Call, by: Argument, options: Mapping[str, Argument]) -> Term:
        """A series for each group."""
        series = self.term(Call(call.word, call.args, options, call.at, call.text))
        if not isinstance(series, LevelTerm):
            raise self.scope.refuse(by.at, f"{call.text}: by= of a field over points", "by= of a series in time")
        return terms.Replicated(series, self._group(by, "by"), name=call.text)

    def _irregular(self, word: str, column: str) -> type[Term] | None:
        """The form in continuous time, where the times of a column are no regular steps and no levels say otherwise."""
        kind = _IRREGULAR.get(word)
        if kind is None or column in self.levels or column not in self.scope.frame:
            return None
        data = DataColumn("Model", column, self.scope.frame[column].dropna())
        if data.kind not in (Kind.NUMBERS, Kind.DATES):
            return None
        try:
            inferred(column, data, True)
        except Refusal:
            return kind
        return None

    def _made(self, call: Call, kind: Callable[..., Term], *args: Any, **options: Any) -> Term:
        known = signature(kind).parameters
        strange = [key for key in options if key not in known]
        if strange and not any(p.kind is Parameter.VAR_KEYWORD for p in known.values()):
            words = [
                key for key, p in known.items() if p.kind is Parameter.KEYWORD_ONLY and key not in ("name", "main")
            ]
            at = call.options[strange[0]].at if strange[0] in call.options else call.at
            raise self.scope.refuse(at, f"{call.word}() has no option {strange[0]!r}", ", ".join(words))
        try:
            return kind(*args, **options, name=call.text)
        except Refusal as error:
            said, _, expected = str(error).partition("; expected ")
            raise self.scope.refuse(call.at, f"{call.text}: {said}", expected.rstrip(".")) from None
        except TypeError as error:  # too few arguments, or too many
            said = str(error).partition("() ")[2] or str(error)
            raise self.scope.refuse(call.at, f"{call.text}: {said}", f"other arguments of {call.word}()") from None

    def _matrix(self, call: Call, column: str, given: list[Argument], options: dict[str, Any], words: Any) -> Any:
        """The graph or matrix of a term: its second argument, an option, or what ``graphs`` has for the column."""
        named = [options.pop(word) for word in words if word in options] + given[:1]
        del given[:1]
        if named:
            argument = named[0]
            if not isinstance(argument, Name):
                raise self.scope.refuse(argument.at, "a graph is no number", "the name of a variable")
            given_graph = self.scope.variable(argument.name, argument.at, f"the {words[0]} of {call.word}")
            return graph_from(given_graph, column)
        if column in self.scope.graphs:
            return graph_from(self.scope.graphs[column], column)
        advice = f"Model(..., graphs={{{column!r}: ...}}), or {call.word}({column}, W) with a variable W."
        raise self.scope.refuse(call.at, f"{call.text} has no {words[0]}", f"one for {column!r}", advice)

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, Constant):
            value = argument.value
            return [self._value(each) for each in value] if isinstance(value, list) else value
        if isinstance(argument, Name):
            if argument.name in self.scope.columns:
                self._reads(argument.name)
                return argument.name
            return self.scope.variable(argument.name, argument.at)
        if isinstance(argument, Call):
            if argument.word not in TERMS:
                raise self.scope.refuse(argument.at, f"{argument.text!r} is no argument of a term", *ARGUMENTS)
            return self.term(argument)
        return self._group(argument, "the option")

    # -- groups ------------------------------------------------------------------------------------
    def _reads(self, *names: Hashable) -> None:
        self.out.sources += names

    def _group(self, argument: Argument, word: str) -> str:
        """The column of a group; of a:b, one that is made."""
        if not isinstance(argument, Crossed):
            name = self.scope.column(argument, word)
            self._reads(name)
            return name
        names = tuple(self.scope.column(part, word) for part in argument.names)
        self._reads(*names)
        made = ":".join(names)
        self.out.derived[made] = Derived(made, names)
        return made

    def grouping(self, part: Grouping) -> list[Term]:
        """The terms of (slopes | group)."""
        group, covariance = part.group, None
        if isinstance(group, Call) and group.word == "gr" and group.args:
            covariance = group.options.get("cov") or (group.args[1] if len(group.args) > 1 else None)
            group = group.args[0]
        if isinstance(group, Call) and group.word == "mm":
            if part.slopes.strip() != "1":
                raise self.scope.refuse(part.at, f"{part.text} has slopes", "(1|mm(a, b)): levels of several groups")
            return [self.term(Call("mm", group.args, group.options, group.at, part.text))]
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
        return [self._several(part, column, intercept, slopes)]

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

    def _several(self, part: Grouping, column: str, intercept: bool, slopes: list[str]) -> Term:
        """Intercept and slopes together, or slopes of a factor's levels."""
        return terms.Grouped(column, slopes, intercept=intercept, correlated=part.correlated, name=part.text)

    def _known_covariance(self, part: Grouping, column: str, slopes: list[str | None], given: Argument) -> Term:
        """A group of known covariance, as the structure that is its inverse."""
        import scipy.sparse as sp

        if not isinstance(given, Name):
            raise self.scope.refuse(given.at, "cov is no variable", "gr(group, cov=A) with a matrix A")
        A = self.scope.variable(given.name, given.at, "a covariance matrix")
        if slopes == [None]:
            return terms.KnownCovariance(column, cov=A, name=part.text)
        labels = list(A.index) if hasattr(A, "index") and hasattr(A, "columns") else None
        dense = np.asarray(A.toarray() if hasattr(A, "toarray") else A, dtype=np.float64)
        if dense.ndim != 2 or dense.shape[0] != dense.shape[1] or not np.allclose(dense, dense.T):
            raise self.scope.refuse(given.at, f"{given.name} has shape {dense.shape}", "a symmetric matrix")
        try:
            np.linalg.cholesky(dense)
        except np.linalg.LinAlgError:
            raise self.scope.refuse(given.at, f"{given.name} is not positive definite", "a covariance") from None
        if len(slopes) > 1:
            raise self.scope.refuse(part.at, f"{part.text} has several slopes", "one, with a known covariance")
        inverse = np.linalg.inv(dense)
        inverse = (inverse + inverse.T) / 2
        inverse[np.abs(inverse) < 1e-12 * np.abs(inverse).max()] = 0.0
        return terms.Generic(column, sp.csc_array(inverse), by=slopes[0], levels=labels, name=part.text)
