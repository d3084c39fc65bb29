"""formulaic's materializer with our evaluator in the place of Python's: what a factor of a formula is at the rows.

formulaic takes a formula apart and codes its factors; the value of each factor comes from ``evaluating.py``. Of a
formula that was written in Python, and of no other, an expression that is more than arithmetic is a call of the user's
own functions, and formulaic evaluates it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from formulaic.errors import FactorEvaluationError
from formulaic.formula import SimpleFormula
from formulaic.materializers.pandas import PandasMaterializer
from formulaic.model_spec import ModelSpec
from formulaic.parser.types import Factor, Term
from formulaic.utils.variables import Variable
from interface_meta import override

from .evaluating import MOST_COLUMNS, Evaluation
from .expressions import BARE, LONGEST, NotAllowed, Reading, read


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
            value = Evaluation(self.data_context, self.own_context, spec.transform_state, spec, {expr: metadata})
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
