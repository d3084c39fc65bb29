"""The fixed part of a formula, by formulaic: interactions, factors, C(), poly, bs, scale, log, sqrt, np.log, -1.

    X = model matrix of the text,    an "Intercept" among its columns is the model's own

``Expression`` is a text with what is needed to evaluate it again on new rows: the levels of factors, the means and
knots of transformations, the user's own functions. A level that fit has not seen is refused, never the reference.
What a factor is at the rows is computed by ``evaluating.py``; only a formula that was written in Python may call
functions beyond it.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from formulaic.errors import FactorEvaluationError
from formulaic.formula import SimpleFormula
from formulaic.materializers.pandas import PandasMaterializer
from formulaic.model_spec import ModelSpec
from formulaic.parser.types import Factor, Term
from formulaic.utils.variables import Variable
from interface_meta import override

from ..checks import Refusal, problem
from ..inputs.frames import DataColumn, Kind, is_categorical, is_date
from ..inputs.levels import shown
from .evaluating import MOST_COLUMNS, ExpressionValue, is_plain
from .expressions import ALLOWED, BARE, LONGEST, NotAllowed, Reading, read, without_backticks
from .formula_errors import another_kind, idiom, in_our_words, unknown_function, words_for_numbers

if TYPE_CHECKING:
    import pandas as pd


# -- formulaic's materializer with our evaluator in the place of Python's: what a factor of a formula is at the rows -
# formulaic takes a formula apart and codes its factors; the value of each factor comes from
# ``evaluating.py``. Of a formula that was written in Python, and of no other, an expression that is
# more than arithmetic is a call of the user's own functions, and formulaic evaluates it.
class Materializer(PandasMaterializer):
    """Columns of a formula at the rows of a frame.

    Parameters
    ----------
    data : DataFrame
    context : mapping
        Values that the formula names beside columns.
    python : bool
        Whether the formula was written in Python, whose functions it may call.
    """

    def __init__(self, data: Any, context: Mapping[str, Any], python: bool) -> None:
        super().__init__(data, context={**BARE, **context})
        self.python, self.own_context = python, context

    def matrix(self, spec: Any) -> Any:
        """The model matrix of a formula, or of what an earlier one left."""
        if type(spec) is not SimpleFormula:
            _check_spec(spec, self.python)
        return self.get_model_matrix(spec, na_action="ignore")

    @override
    def _evaluate_factor(self, factor: Factor, spec: ModelSpec, drop_rows: set[int]) -> Any:
        if not self.python:
            _check_factor(factor)
        return super()._evaluate_factor(factor, spec, drop_rows)

    @override
    def _lookup(self, name: str) -> tuple[Any, set[Variable]]:
        if name not in self.data_context and name not in self.own_context:
            raise NameError(f"`{name}` is not present in the dataset or evaluation context.")
        return super()._lookup(name)

    @override
    def _evaluate(self, expr: str, metadata: Any, spec: ModelSpec) -> tuple[Any, set[Variable]]:
        try:
            reading = read(expr)
            if any(callable(self.own_context.get(name)) for name in reading.called()):
                raise NotAllowed("it calls a function of the user's")
            value = ExpressionValue(self.data_context, self.own_context, spec.transform_state, spec, {expr: metadata})
            return value.of(reading), self._variables(reading)
        except NotAllowed:
            if not self.python:
                raise
            return super()._evaluate(expr, metadata, spec)

    def _variables(self, reading: Reading) -> set[Variable]:
        """What an expression reads, in formulaic's terms."""
        source = self.layered_context.get_layer_name_for_key
        out = {Variable(name, roles=["value"], source=source(name)) for name in reading.names()}
        out |= {Variable(name, roles=["value"], source="transforms") for name in reading.attributes()}
        return out | {Variable(name, roles=["callable"], source="transforms") for name in reading.called()}

    @override
    def _get_columns_for_term(self, factors: list[dict[str, Any]], spec: ModelSpec, scale: float = 1) -> Any:
        most = sum(len(row.columns) for row in spec.structure or ())
        if not self.python and most and math.prod(map(len, factors)) > most:
            raise FactorEvaluationError("a term has more columns than the formula had")
        return super()._get_columns_for_term(factors, spec, scale)


def _check_spec(spec: ModelSpec, python: bool) -> None:
    """Refuse what no formula left: types that formulaic would read in another way."""
    if type(spec) is not ModelSpec:
        raise FactorEvaluationError("the formula of the model is not one of formulaic's")
    states = (spec.transform_state, spec.encoder_state)
    if type(spec.formula) is not SimpleFormula or any(type(state) is not dict for state in states):
        raise FactorEvaluationError("the formula of the model is not one of formulaic's")
    most = MOST_COLUMNS + 2 * sum(len(row.columns) for row in spec.structure or ())
    for _, state in () if python else spec.encoder_state.values():
        levels = state.get("categories", []) if type(state) is dict else None
        if type(levels) is not list or len(levels) > most:
            raise FactorEvaluationError("the levels of a factor are not those of its columns")
    for term in spec.formula:
        if type(term) is not Term:
            raise FactorEvaluationError("a term of the formula is not one of formulaic's")


def _check_factor(factor: Factor) -> None:
    exact = type(factor) is Factor and type(factor.expr) is str and type(factor.eval_method) is Factor.EvalMethod
    if not exact or len(factor.expr) > LONGEST:
        raise NotAllowed("it is not a factor of a formula")


# --------------------------------------------------------------------------------------------------
Refuse = Callable[[str | int, str, str, str], Refusal]  # what it is about, got, expected, advice
INTERCEPT = "Intercept"  # formulaic's word


def written_in_python() -> None:
    """What a formula written in Python is marked by. A file can name no such function, so no file has the mark."""


class Expression:
    """A text that formulaic takes apart and codes.

    Parameters
    ----------
    text : str
    scope : callable
        name -> the user's variable of that name, or KeyError.
    columns : collection of str
        Of the data; they come before variables.
    refuse : callable
        Makes a message that points at a text in the formula.
    python : bool
        Whether the text was written in Python, and may call the functions of its scope.

    Attributes
    ----------
    names : list of str
        The columns that it reads.
    """

    mark: Callable[[], None] | None = None  # of a formula written in Python

    def __init__(
        self, text: str, columns: Any, scope: Callable[[str], Any], refuse: Refuse, python: bool = True
    ) -> None:
        from formulaic import Formula
        from formulaic.errors import FormulaicError
        from formulaic.transforms import TRANSFORMS

        self.text, self.refuse = text, refuse
        if python:
            self.mark = written_in_python
        foreign = idiom(text)
        if foreign is not None:
            raise refuse(text, *foreign)
        try:
            self.formula = Formula(text)
            wanted = _names(self.formula, columns)
        except (FormulaicError, AttributeError, SyntaxError) as error:
            said = in_our_words(_plain(error), text)
            raise refuse(text, *said or (f"{text!r} cannot be read: {_plain(error)}", "a formula", "")) from None
        if not python:
            self._check_allowed()
        self.names = [name for name in wanted if name in columns]
        self.context: dict[str, Any] = {}
        called = _called(self.formula)
        for power in _with_carets(self.formula):
            got = f"{power!r} has a ^, which inside brackets is no power"
            raise refuse("^", got, f"** in its place: {power.replace('^', '**').replace(' ** ', '**')}", "")
        for name in wanted:
            if name not in columns:
                try:
                    result = scope(name)
                    if name not in called or result is not BARE.get(name):
                        self.context[name] = result
                except Refusal:
                    if name not in called:
                        raise
                    if name in BARE:
                        continue
                    raise refuse(name, *unknown_function(name, [*TRANSFORMS, "s", "te", "rw1", "ar1"])) from None
        self.spec: Any = None
        self.kinds: dict[str, Kind] = {}  # of its columns, as fit saw them

    def evaluate(self, frame: pd.DataFrame) -> np.ndarray:
        """Its columns (N, p) at the rows of a frame; the first call fixes levels, means and knots."""
        from formulaic.errors import DataMismatchWarning, FormulaicError

        if type(self.formula) is not SimpleFormula:
            raise self.refuse(self.text, f"{self.text!r} has several sides", "one", "")
        new = self.spec is not None
        if new:
            self._check_kinds(frame)
            self._check_levels(frame)
        else:
            self.kinds = {name: DataColumn("Model", name, frame[name]).kind for name in self.names}
        frame = _without_empty_levels(frame, self.names, self.factors if new else {}, self.kinds)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DataMismatchWarning)
                with np.errstate(all="ignore"):
                    python = self.mark is written_in_python
                    made = Materializer(frame, self.context, python).matrix(self.spec if new else self.formula)
            out = np.asarray(made, dtype=np.float64)
        except (FormulaicError, DataMismatchWarning, TypeError, ValueError, AttributeError, KeyError) as error:
            raise self._explain(error, frame) from None
        self.spec = made.model_spec
        return out.reshape(len(frame), -1)

    def check_saved(self) -> None:
        """Refuse what a file cannot keep: functions of the user's own, and what only Python computes."""
        advice = "Make a column of it in the data, or keep the model with pickle."
        for text in _computed(self.formula):
            try:
                read(text)
            except NotAllowed as error:
                got = f"the formula's {text[:60]!r} cannot be saved: {error}"
                raise problem("save", got, ALLOWED, advice) from None
        odd = [name for name, value in self.context.items() if name != "np" and not is_plain(value)]
        if odd:
            got = f"the formula's {self.text[:60]!r} cannot be saved: it uses {odd[0]!r}, which is no number"
            raise problem("save", got, ALLOWED, advice)

    def _check_allowed(self) -> None:
        """Refuse what would run more than arithmetic, before anything runs."""
        for text in _computed(self.formula):
            try:
                read(text)
            except NotAllowed as error:
                advice = "A formula in Python, fenchel.fit(...), may call functions of your own."
                raise self.refuse(
                    text, f"{text!r} is no formula for a command line: {error}", ALLOWED, advice
                ) from None

    @property
    def columns(self) -> list[str]:
        """What the columns are called, once it has been evaluated."""
        return [str(name) for name in self.spec.column_names]

    @property
    def factors(self) -> dict[str, list[Hashable]]:
        """The levels of each column that is a factor as it stands, or in C()."""
        out: dict[str, list[Hashable]] = {}
        for factor, state in self.spec.factor_contrasts.items():
            reads = [str(v) for v in self.spec.factor_variables[factor] if str(v) in self.names]
            if len(reads) == 1 and (str(factor) == reads[0] or str(factor).startswith("C(")):
                out[reads[0]] = list(state.levels)
        return out

    def multiplied(self) -> list[str]:
        """The numbers that stand as they are and are multiplied with others, or have no intercept beside them."""
        terms = [[f for f in term.factors if f.eval_method.value != "literal"] for term in self.formula]
        inside = set(_names(self.formula, self.names, lookups=False))
        bare = {str(f) for factors in terms for f in factors if f.eval_method.value == "lookup"} - inside
        alone = INTERCEPT in self.columns and all(len(factors) < 2 for factors in terms)
        held = {str(name) for factor in self.spec.factor_contrasts for name in self.spec.factor_variables[factor]}
        return [] if alone else [name for name in self.names if name in bare - held]

    def _check_kinds(self, frame: pd.DataFrame) -> None:
        for name, kind in self.kinds.items():
            said = another_kind(name, kind, DataColumn("predict", name, frame[name]))
            if said is not None:
                raise self.refuse(name, *said)

    def _check_levels(self, frame: pd.DataFrame) -> None:
        for name, levels in self.factors.items():
            known = set(levels)
            if all(value in known or value != value for value in frame[name].unique().tolist()):
                continue
            for i, value in enumerate(frame[name].tolist()):
                if value not in known and value == value:
                    got = f"row {i} has {name} = {value!r}, which fit has not seen"
                    raise self.refuse(name, got, f"one of {shown(levels)}", "")

    def _explain(self, error: Exception, frame: pd.DataFrame) -> Refusal:
        """formulaic's complaint in our words."""
        from formulaic.errors import FormulaicError

        dates = [name for name in self.names if is_date(frame[name])]
        if dates and frame[dates[0]].dtype.kind == "m":
            name, advice = dates[0], f'data["{dates[0]}"].dt.days is a number of days, .dt.total_seconds() of seconds.'
            return self.refuse(name, f"the column {name!r} holds time spans", "numbers or levels", advice)
        if dates:
            name = dates[0]
            advice = (
                f'A term in time takes them, such as rw1({name}); or make a number of them: data["{name}"].dt.year, or '
                f"days since the first, as a column."
            )
            return self.refuse(name, f"the column {name!r} holds dates", "numbers or levels", advice)
        about = re.search(r"factor `([^`]+)`", str(error))
        text, said = about[1] if about else self.text, str(error)
        held = {} if self.spec is None else self.spec.transform_state.get(text, {})
        if "beyond upper and/or lower bounds" in said and "lower_bound" in held:
            seen = f"{held['lower_bound']:.6g} to {held['upper_bound']:.6g}"
            got = f"{text!r} is asked for beyond the {seen} that fit has seen"
            advice = "s(x) goes on as a line; bs(x, ..., extrapolation='extend') as its last polynomial."
            return self.refuse(text, got, "values within", advice)
        option = re.search(r"unexpected keyword argument '(\w+)'", said)
        if option and text.startswith(("bs(", "cr(", "cc(", "cs(", "poly(")):
            got, word = f"{text!r} has an option {option[1]!r}", text.partition("(")[0]
            advice = "s(x, k=10) is a spline whose smoothness is learned."
            return self.refuse(text, got, f"those of formulaic's {word}(), such as df or degree", advice)
        ours = in_our_words(_plain(error), text)
        if ours is not None:
            return self.refuse(text, *ours)
        inside = [str(v) for v in re.findall(r"\w+", text) if str(v) in self.names]
        computed = about is not None and isinstance(error, (TypeError, ValueError, FormulaicError))
        words = words_for_numbers(frame, inside) if computed else None
        if words is not None:
            return self.refuse(
                text, f"{text!r} is computed of {words!r}, which holds no numbers", "a column of numbers", ""
            )
        return self.refuse(text, f"{text!r} cannot be evaluated: {_plain(error)}", "numbers or levels in every row", "")


def _computed(formula: Any) -> list[str]:
    """The factors of a formula that are computed."""
    return [str(f) for term in formula for f in term.factors if f.eval_method.value == "python"]


def _parsed(text: str) -> tuple[list[ast.AST], dict[str, str]]:
    """The nodes of an expression, and the names in backticks that stand behind some of its identifiers."""
    plain, quoted = without_backticks(text)
    return list(ast.walk(ast.parse(plain.strip(), mode="eval"))), quoted


def _names(formula: Any, columns: Any, lookups: bool = True) -> list[str]:
    """Every name that a formula reads, formulaic's own functions aside; or those inside expressions alone."""
    from formulaic.transforms import TRANSFORMS

    out: list[str] = []
    for factor in (factor for term in formula for factor in term.factors):
        if factor.eval_method.value == "lookup":
            out += [str(factor)] if lookups else []
        elif factor.eval_method.value == "python":
            nodes, quoted = _parsed(str(factor))
            own = {n.arg for n in nodes if isinstance(n, ast.arg)}
            own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            read = [quoted.get(n.id, n.id) for n in nodes if isinstance(n, ast.Name) and n.id not in own]
            out += [n for n in read if n in columns or not (n in TRANSFORMS or hasattr(builtins, n))]
    return list(dict.fromkeys(out))


def _called(formula: Any) -> set[str]:
    """The names that a formula calls as functions."""
    calls = [node.func for text in _computed(formula) for node in _parsed(text)[0] if isinstance(node, ast.Call)]
    return {func.id for func in calls if isinstance(func, ast.Name)}


def _with_carets(formula: Any) -> list[str]:
    """The factors of a formula that compute with ^, which R takes for a power."""
    return [text for text in _computed(formula) if any(isinstance(node, ast.BitXor) for node in _parsed(text)[0])]


def _plain(error: Exception) -> str:
    """What formulaic said, without its colours, in one line."""
    text = re.sub(r"\x1b\[[0-9;]*m|[\u29da\u29db]", "", str(error))
    inner = re.search(r"\[\w+: (.*)\]\s*$", text, re.DOTALL)
    return (inner[1] if inner else text.split("\n")[0]).strip().rstrip(".")


def _without_empty_levels(
    frame: pd.DataFrame, names: list[str], levels: dict[str, list[Hashable]], kinds: dict[str, Kind]
) -> pd.DataFrame:
    """Categories that no row has are no levels of a factor; those of new rows are the fit's, numbers or not."""
    factors = [n for n in names if n in levels and kinds[n] is Kind.CATEGORIES]
    full = [n for n in names if (is_categorical(frame[n]) or n in factors) and not is_date(frame[n])]
    held = {n: frame[n].astype("category").cat for n in full}
    made = {n: c.set_categories(levels[n]) if n in levels else c.remove_unused_categories() for n, c in held.items()}
    return frame.assign(**made) if full else frame
