"""The response of a model: y by its formula, and what each row has beside it, as a likelihood with its data.

    y, np.log(y)                     one number a row, or the labels of a column
    y | trials(n), cbind(s, n - s)   successes of trials
    cens(time, event)                durations, observed where event is 1
    interval(lower, upper)           durations that ended between them: lower = upper was seen, upper = inf not yet
    exposure, weights                of the rows: a column by name, a number or an array

y may be missing: such a row is predicted like any other. The likelihood's own parameter may have a formula:

    dispersion="~ x + f"     log sd_n (Gaussian, Student-t), log shape_n (gamma), log precision_n (beta, beta-binomial),
                             log size_n or log dispersion_n (negative binomials)   = D_n b
    zero="~ x"               logit pi_n of a zero-inflated family                  = D_n b

b are hyperparameters of the likelihood, learned by the evidence, with fixed effects alone: log p(y|eta, b) is not
concave in two sets of latents at once, so no certificate would hold for groups in b. Columns enter about their means
and in units of their sd; b is reported for the columns as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import first_value, holds, numeric, problem
from ..inputs.fixed_columns import Columns
from ..inputs.frames import column_of, unknown
from ..inputs.observations import (
    Target,
    check_labels,
    counted,
    known,
    read_labels,
    read_observations,
    target_of,
    without_trials,
)
from ..likelihoods import WORDS, Parameter
from ..likelihoods.base import Likelihood
from ..transforms import OfRows
from .compiler import Scope
from .grammar import Argument, Computed, Constant, Name, Parsed, parse
from .model_matrix import INTERCEPT, Expression

if TYPE_CHECKING:
    import pandas as pd

    from ..terms import Term

ROWS = ("exposure", "trials", "event", "upper", "failures", "weights")  # what a row may have beside its y

_FARTHEST = 40.0  # what one sd of a column does to a parameter of the likelihood, at most
OF_Y = ("event", "upper")  # what belongs to y itself, and new rows do not have


# -- formulas of the likelihood's own parameter ---------------------------------------------------
def read_second(word: str, text: str) -> Parsed:
    """The right side of ``dispersion=`` or ``zero=``, taken apart."""
    if not isinstance(text, str) or text.count("~") != 1 or text.split("~")[0].strip():
        raise problem("Model", f"{word} = {text!r}", f'a formula without a left side, such as {word}="~ x + f"')
    return parse(f"{word} ~ {text.split('~')[1].strip()}")


def _parameter_of(word: str, own: Likelihood) -> Parameter | None:
    """The parameter of which ``dispersion=`` or ``zero=`` is a formula."""
    return next((p for p in own.parameters if p.formula is not None and p.formula[0] == word), None)


class SecondPredictor:
    """A formula of a likelihood's own parameter.

    Parameters
    ----------
    word : "dispersion" or "zero"
    text : str
        "~ x + f", fixed effects alone.
    scope : Scope
        Of the model.
    family : str
    """

    def __init__(self, word: str, text: str, scope: Scope, family: object) -> None:
        self.word, self.parsed = word, read_second(word, text)
        parameter = _parameter_of(word, WORDS[family]) if family in tuple(WORDS) else None
        if parameter is None or parameter.formula is None:
            shown = f'family="{family}"' if family in tuple(WORDS) else f"the family {family!r}"
            known = [name for name, own in WORDS.items() if _parameter_of(word, own) is not None]
            raise problem("Model", f"{word}= meets {shown}", f"one of {', '.join(known)}")
        self.attribute, self.of, self.power = parameter.attribute, parameter.formula[1], parameter.power or 1.0
        if self.parsed.terms:
            term = self.parsed.terms[0]
            advice = (
                "Given two sets of latents the log-likelihood is not concave in both, so no certificate would hold. "
                "Use a fixed effect of the groups, or a family without a formula of its own here."
            )
            raise self.parsed.refuse(term.at, f"{term.text} in {word}=", "fixed effects alone", advice)
        if self.parsed.offsets:
            raise self.parsed.refuse(self.parsed.offsets[0].at, f"an offset in {word}=", "fixed effects alone")
        fixed = " ".join(f"{p.sign} {p.text}" for p in self.parsed.fixed).lstrip("+ ") or "1"
        self.expression = replace(scope, parsed=self.parsed).expression(fixed)

    def attached(self, likelihood: Likelihood, frame: pd.DataFrame, y: np.ndarray, seen: np.ndarray) -> Likelihood:
        """The likelihood whose parameter has this predictor, the same in every row where it starts."""
        X, names = self.expression.evaluate(frame), self.expression.columns
        own, level = [j for j, name in enumerate(names) if name != INTERCEPT], INTERCEPT in names
        scaled = Columns.of("Model", X[:, own], [names[j] for j in own], seen, level)
        if scaled.constant:
            got = f"{scaled.names[scaled.constant[0]]!r} is constant in {self.word}="
            raise problem("Model", got, "columns that vary")
        if scaled.dependent:
            raise problem("Model", f"the columns of {self.word}= are collinear", "columns that differ")
        self.own, self.level, self.columns = own, level, scaled
        D, back = self._design(X), scaled.to_user(level)
        columns = tuple([INTERCEPT] * level + [names[j] for j in own])
        transform = OfRows(D, back, f"{self.word} ({self.of})", columns, self.power, self.word == "zero", level)
        parameter = next(p for p in likelihood.parameters if p.attribute == self.attribute)
        start = np.full(len(frame), float(np.asarray(parameter.of(likelihood))))
        bounds = np.tile([-_FARTHEST, _FARTHEST], (D.shape[1], 1))
        if level:
            bounds[0] = parameter.bounds_of(likelihood, y, seen)[0] / self.power
        about, width = parameter.weak
        weak = None if about is None else about / self.power, width / self.power
        moved = replace(parameter, transform=transform, bounds=bounds, word=self.word, weak=weak)
        known = tuple((moved if p is parameter else p).known(likelihood, y, seen) for p in likelihood.parameters)
        return likelihood.changed(parameters=known, **{self.attribute: start})

    def _design(self, X: np.ndarray) -> np.ndarray:
        return self.columns.tail(X[:, self.own], self.level)

    def at(self, likelihood: Likelihood, frame: pd.DataFrame) -> Likelihood:
        """The likelihood at new rows, with its parameter there."""
        parameter = next(p for p in likelihood.parameters if p.attribute == self.attribute)
        transform: Any = parameter.transform
        theta = transform.forward(parameter.of(likelihood))
        D = self._design(self.expression.evaluate(frame))
        moved = replace(parameter, transform=replace(transform, design=D))
        parameters = tuple(moved if p is parameter else p for p in likelihood.parameters)
        return likelihood.changed(parameters=parameters, **{self.attribute: transform.at(D, theta)})


# -- y --------------------------------------------------------------------------------------------
class Response:
    """How y and what belongs to it are read off a frame.

    Parameters
    ----------
    scope : Scope
    family : str or Likelihood
    given : mapping
        exposure, trials, weights, event as the caller gave them: names of columns, numbers or arrays.
    seconds : sequence of SecondPredictor
        Of the likelihood's own parameters.
    above : bool
        Whether a zero is unobserved: another model has it.
    """

    found: Target
    planned: bool = False  # y is missing in every row: data that are not there yet

    def __init__(
        self,
        scope: Scope,
        family: str | Likelihood,
        given: Mapping[str, Any],
        seconds: Sequence[SecondPredictor] = (),
        above: bool = False,
    ) -> None:
        self.family, parsed, self.seconds, self.above = family, scope.parsed, seconds, above
        text = parsed.response.text
        bare = re.fullmatch(r"[^\W\d]\w*|`[^`]+`", text)
        self.name = text.strip("`")
        self.expression: Expression | None = None
        if bare and self.name not in scope.columns:
            raise scope.refuse(parsed.response.at, *unknown(scope.frame, self.name))
        if not bare:
            self.expression = scope.expression("0 + {" + text + "}")
        self.given: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        for key, argument in parsed.about.items():
            if key in self.given:
                raise scope.refuse(argument.at, f"{key} stands in the formula and in {key}=", "one of them")
            self.given[key] = _argument(scope, argument)
        own = known(family)
        assert own is not None
        if "trials" in own.needs and not {"trials", "failures"} & set(self.given):
            raise without_trials(str(family), self.name, scope.frame[self.name] if bare else ())
        for key, value in self.given.items():
            for name in _reads(value):
                if name not in scope.columns:
                    got, expected, advice = unknown(scope.frame, name)
                    raise problem("Model", f"{key}: {got}", expected, advice)

    @property
    def names(self) -> list[str]:
        """The columns that y is made of."""
        upper = self.given.get("upper")
        own = [self.name] if self.expression is None else self.expression.names
        return [*own, *_reads(upper)]

    @property
    def row_names(self) -> list[str]:
        """The columns that a row needs beside y."""
        return [name for key, value in self.given.items() if key != "upper" for name in _reads(value)]

    def rows(
        self, frame: pd.DataFrame, keep: np.ndarray | None = None, only: Sequence[str] = ROWS
    ) -> dict[str, np.ndarray]:
        """Exposure, trials, event and weights of the rows of a fit; ``keep`` are those of the data that are left."""
        out: dict[str, np.ndarray] = {}
        for key, value in self.given.items():
            if key not in only:
                continue
            if _reads(value):
                out[key] = _numbers("Model", key, value, frame)
                continue
            array, n = numeric("Model", key, value), len(frame) if keep is None else keep.size
            if array.ndim > 1 or (array.ndim == 1 and array.shape[0] != n):
                raise problem("Model", f"{key} has shape {array.shape}", f"a number, a column or ({n},)")
            array = np.broadcast_to(array, (n,))
            out[key] = array if keep is None else array[keep]
        return out

    def values(self, frame: pd.DataFrame) -> Any:
        """y of a frame, as it is."""
        if self.expression is None:
            return column_of("Model", frame, self.name)
        return _column("Model", "the response", self.expression, frame)

    def read(self, frame: pd.DataFrame, keep: np.ndarray, bound: str, centred: bool) -> Target:
        """The likelihood of the rows of a fit."""
        given = self.values(frame)
        self.planned = self.expression is None and bool(given.isna().all())
        y, words = read_labels("Model", self.family, as_labels(self._placeholder(frame) if self.planned else given))
        if words is None and holds(y) is not None:
            advice = 'Of two words or categories: family="bernoulli"; of an ordered categorical: family="ordinal".'
            if holds(y) == "time spans":
                advice = f'data["{self.name}"].dt.days is a number of days, .dt.total_seconds() of seconds.'
            raise problem("Model", f"the response {self.name!r} holds {holds(y)}", "numbers", advice)
        y, rows = target_of("Model", len(frame), y), self.rows(frame, keep)
        y = np.where(y == 0.0, np.nan, y) if self.above else y
        if np.isinf(y).any():
            row = int(np.flatnonzero(keep)[np.argmax(np.isinf(y))])
            raise problem("Model", f"the response {self.name!r} is infinite in row [{row}]", "finite numbers, or NaN")
        check_labels(self.family, self.name, y)
        weights = checked_weights(rows.pop("weights", None))
        if "failures" in rows:
            rows["trials"] = y + rows.pop("failures")
            rows["trials"] = np.where(np.isnan(y), 0.0, rows["trials"])
        family = counted("Model", self.family, y, self.name, "trials" in rows, "elbo")
        bound = bound if family == self.family and self.family in tuple(WORDS) else "best"
        self.found = read_observations("Model", family, bound, y, rows, weights, centred, True, words)
        likelihood, made = self.found.likelihood, replace(self.found, weights=weights)
        for second in self.seconds:
            likelihood = second.attached(likelihood, frame, made.y, made.seen)
        return replace(made, likelihood=likelihood, level=0.0 * made.level if self.planned else made.level)

    def _placeholder(self, frame: pd.DataFrame) -> np.ndarray:
        """Some y that the likelihood takes, of sd 1 where eta is on its scale: nothing is fitted to it."""
        own = known(self.family)
        assert own is not None
        if own.ordered:
            advice = "Give y as an ordered categorical that has all levels, in any order."
            raise problem("Model", "every y is NaN, and the levels are not known", "at least one observed row", advice)
        ends = {"real": (-1.0, 1.0), "positive": (0.5, 1.5), "unit": (0.3, 0.7)}.get(own.support, (0.0, 1.0))
        return np.resize(np.array(ends) + own.least, len(frame))

    def check_observed(self) -> None:
        """Refuse to fit data that are not there yet."""
        if self.planned:
            advice = "model.simulate(...) and model.prior_predictive() make some."
            raise problem("Model", "every y is NaN", "at least one observed row", advice)

    def read_again(self, frame: pd.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """y of new rows as the likelihood takes it, and what belongs to it: events, ends of intervals, trials."""
        y, rows = (
            self.found.places(as_labels(self.values(frame))),
            self.rows(frame, only=(*OF_Y, "failures")),
        )
        if "failures" in rows:
            rows["trials"] = y + rows.pop("failures")
        return y, rows

    def at(self, likelihood: Likelihood, frame: pd.DataFrame, given: Mapping[str, Any]) -> Likelihood:
        """The likelihood at new rows: by what is given, by the columns that fit read, or exposure 1 and one trial.

        Whether a duration has ended belongs to its y, and a new row has none but where it is given.
        """
        rows = {}
        for key in (key for key in likelihood.row_parameters if key not in OF_Y or key in given):
            asked, value = given.get(key), self.given.get(key)
            value = value if asked is None else asked
            lost = [name for name in _reads(value) if name not in frame.columns]
            if value in lost:
                advice = f"{key}=1 gives a {'probability' if key == 'trials' else 'rate'}."
                raise problem("predict", f"the new data have no column {value!r}", f"it, or {key}=...", advice)
            if _reads(value) and not lost:
                rows[key] = _numbers("predict", key, value, frame)
            elif not lost and value is not None and (asked is not None or np.ndim(value) == 0):
                rows[key] = numeric("predict", key, value)
        made: Likelihood = self.found.likelihood_at(likelihood, len(frame), rows)
        for second in self.seconds:
            made = second.at(made, frame)
        return made


def _reads(value: Any) -> list[str]:
    """The columns behind what a row has: one by its name, those of an expression, or none."""
    match value:
        case str():
            return [value]
        case Expression():
            return value.names
    return []


def events_of_words(name: Any) -> str:
    """How to make events of a column of words."""
    return f'With words, make a column of true and false: data["event"] = data["{name}"] == "dead".'


def _numbers(where: str, key: str, value: Any, frame: pd.DataFrame) -> np.ndarray:
    """A column, or an expression of columns, as numbers (N,)."""
    if value in _reads(value):
        advice = events_of_words(value) if key == "event" else ""
        return numeric(where, f"{key} (the column {value!r})", column_of(where, frame, value), advice)
    return _column(where, key, value, frame)


def _column(where: str, what: str, expression: Expression, frame: pd.DataFrame) -> np.ndarray:
    """An expression that is one number in each row (N,)."""
    out = expression.evaluate(frame)
    if out.shape[1] != 1:
        raise problem(where, f"{what} {expression.text[5:-1]} has {out.shape[1]} columns", "one")
    return out[:, 0]


def _argument(scope: Scope, argument: Argument | Computed) -> Any:
    match argument:
        case Computed():
            return scope.expression("0 + {" + argument.text + "}")
        case Name() if argument.name in scope.columns:
            return argument.name
        case Name():
            return scope.variable(argument.name, argument.at)
        case Constant(value=int() | float()):
            return argument.value
    raise scope.refuse(argument.at, "it is neither a column nor a number", "trials(n) with a column n")


def as_labels(y: Any) -> Any:
    """Booleans as 0 and 1."""
    return y.astype(float) if y.dtype.kind == "b" else y


def checked_weights(given: np.ndarray | None, whole: bool = True) -> np.ndarray | None:
    """Weights that are some; one at least is above 0 where the rows are the ``whole`` of a fit's."""
    if given is None:
        return None
    bad = ~(np.isfinite(given) & (given >= 0.0))
    if bad.any():
        raise problem("Model", f"weights{first_value(bad, given)} is not a weight", "finite numbers >= 0")
    if whole and not (given > 0.0).any():
        raise problem("Model", "every weight is 0", "at least one above 0")
    return given


def with_dual(target: Target, terms: Sequence[Term], bound: str) -> Target:
    """The target of a model in which terms approximate: with a dual where there is one, which bounds what they lose."""
    approximate = next((term for term in terms if term.approximates), None)
    if approximate is None:
        return target
    likelihood = target.likelihood
    if likelihood.n_predictors > 1:
        got = f"{approximate.name} is over many points, and a row has {likelihood.n_predictors} predictors"
        advice = "GaussianProcessClassifier has inducing points for several classes; s(x), te(x, z) serve any family."
        raise problem(target.where, got, "one predictor a row, or at most 1,000 different points", advice)
    dual = likelihood.with_dual() if bound == "best" and not likelihood.objective.convex else None
    return target if dual is None else replace(target, likelihood=dual)
