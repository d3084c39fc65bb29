"""What a file keeps of a model: the arguments of ``Model``, with the columns and the variables that it uses."""

from __future__ import annotations

import re
from inspect import signature
from typing import TYPE_CHECKING

import numpy as np

from ..checks import problem
from ..files import Statement
from ..inputs.frames import Table, read_frame
from ..outlines import graph_from
from .compiler import Scope

if TYPE_CHECKING:
    import pandas as pd

    from .model import Model

ROW_NAMES = ("weights", "exposure", "trials", "event")  # arguments with one number a row, or the name of a column
_NO_TEXT = ("data", "graphs", "env", "levels")  # arguments that name no columns


def keep_arguments(model: Model, scope: Scope, data: Table) -> None:
    """Keep the arguments of a model as they are now: the user may change the table afterwards."""
    from .model import Model

    arguments, options, _ = model.__dict__["_arguments"]
    given = dict(signature(Model).bind(*arguments, **options).arguments)
    given.pop("_depth", None)
    text = " ".join(str(value) for name, value in given.items() if name not in _NO_TEXT)
    used = {*model.covariates, *model.response.names, *model.response.row_names}
    table = read_frame("Model", data)
    used |= {*re.findall(r"\w+", text), *re.findall(r"`([^`]+)`", text)}
    columns = [name in used or str(name) in used for name in table.columns]
    model.variables, model.expressions = dict(scope.used), scope.expressions
    for other in model.others:
        model.variables |= other.variables
    graphs = {name: graph_from(graph, name) for name, graph in scope.graphs.items()}
    kept = table.loc[:, columns].copy()
    if _is_same(kept, model.frame):
        model.frame = kept  # one table for both
    given |= {"data": kept, "env": model.variables, "graphs": graphs}
    given |= {name: np.array(given[name]) for name in ROW_NAMES if np.ndim(given.get(name, 0))}
    model.__dict__["_arguments"] = (), given, {}


def _is_same(kept: pd.DataFrame, used: pd.DataFrame) -> bool:
    """Whether two tables hold the same columns and rows: ``used`` is ``kept`` without rows that lack something."""
    rows = len(kept) == len(used) and kept.index.equals(used.index)
    return rows and {*kept.columns} == {*used.columns} and bool((kept.dtypes == used.dtypes[kept.columns]).all())


def model_statement(model: Model, whole: Statement) -> Statement:
    """The call that makes a model again; formulas that a file cannot keep are refused."""
    for each in (model, *model.others):
        for expression in each.expressions:
            expression.check_saved()
    if whole.options.pop("_elsewhere", None):
        raise problem("save", "this model is a part of another one", "the whole", "Save the fit that has both.")
    variables = {name: value for name, value in whole.options["env"].items() if name != "np"}
    return whole._replace(options={**whole.options, "env": variables})
