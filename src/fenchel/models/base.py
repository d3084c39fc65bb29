"""Contracts of this package: how a statement becomes models, and how a fit was computed.

A model that has no likelihood of its own is reduced to models that have one, as in cvxpy:

    applies(spec)          whether a statement is of this kind: family="cox", "multinomial", a hurdle with zero=
    reduce(spec)           the statements of the models that are fitted, the main one first
    invert(model, fits)    their fits as the one fit of the statement

``Model`` keeps its ``Reduction`` as ``model.reduction`` and the models beside the main one as ``model.others``. What
depends on the kind (words, rows, predictions, draws) is asked of ``model.reduction``; ``Reduction`` itself is the model
of one likelihood, which needs no reducing.

An ``Engine`` says how a ``FittedModel`` was computed where that changes an answer: the evidence about its mode, errors
that are left, whether rows are in memory. What a kind of model or an engine does not answer is listed in
``capabilities.py`` under its ``name``.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..files import Statement
from ..inputs.frames import Table, missing, read_frame, used
from ..likelihoods import WORDS
from ..likelihoods.base import Likelihood
from ..outlines import graph_from
from ..terms import Term
from . import predictions, tables
from .compiler import Scope
from .response import Target

if TYPE_CHECKING:
    import pandas as pd

    from .durations import People
    from .fit_tables import FitTables
    from .fitted import FittedModel
    from .model import Model
    from .remarks import Remark


@dataclass(frozen=True)
class ModelSpec:
    """The arguments of ``Model``, and the variables of the caller that the formula may use (None: nobody's)."""

    formula: str
    data: Any
    family: Any
    weights: Any
    exposure: Any
    trials: Any
    event: Any
    terms: Sequence[Term]
    graphs: Mapping[str, Any]
    env: Mapping[str, Any]
    levels: Mapping[Any, Iterable[Hashable]]
    priors: Mapping[str, Any]
    fixed_sd: float
    bound: str
    dispersion: str | None
    zero: str | None
    baseline: str
    variables: Mapping[str, Any] | None
    elsewhere: Sequence[str] = ()  # names that priors may use beside this model's own
    zeros_unobserved: bool = False  # another model has the rows whose y is 0

    @property
    def above_zero(self) -> str | None:
        """The family of the counts above 0, where the zeros are a model of their own; None anywhere else."""
        own = WORDS.get(self.family) if self.zero is not None and isinstance(self.family, str) else None
        return None if own is None else own.above_zero

    @property
    def kind(self) -> str:
        """The name of the reduction that it is for: "cox", "multinomial", "hurdle", or "" for one model."""
        by_family = next((word for word in ("cox", "multinomial") if self.family == word), "")
        return "hurdle" if self.above_zero is not None else by_family

    def model(self) -> Model:
        """Make the model of this statement."""
        from .model import Model

        given = {each.name: self.__dict__[each.name] for each in fields(self)}
        variables, elsewhere = given.pop("variables"), given.pop("elsewhere")
        del given["zeros_unobserved"]
        given["env"] = {**(variables or {}), **self.env}
        return Model(**given, _elsewhere=elsewhere, _depth=None if variables is None else 1)


class Reduction:
    """A model of one likelihood: the statement is the model that is fitted."""

    name = ""  # in the table of capabilities
    kinds: tuple[str, ...] = ("mean", "link", "outcome", "probability")  # of ``predict``, the default first
    drawn: tuple[str, ...] = ("mean", "link", "outcome")  # of ``sample``
    parts: tuple[str, ...] = ()  # names of the models that are fitted, where they are several
    looks_for_separation = True

    @classmethod
    def applies(cls, spec: ModelSpec) -> bool:
        """Whether a statement is of this kind."""
        return spec.kind == cls.name

    def reduce(self, spec: ModelSpec) -> list[ModelSpec]:
        """The statements of the models that are fitted, the main one first."""
        return [spec]

    def target(self, target: Target, keep: np.ndarray, bound: str) -> Target:
        """The likelihood and y of the main model."""
        return target

    def invert(self, model: Model, fits: Sequence[FittedModel]) -> FittedModel:
        """The fit of the statement from those of its models."""
        return fits[0]

    # -- rows --------------------------------------------------------------------------------------
    def missing(self, model: Model, names: Sequence[Hashable]) -> dict[Hashable, np.ndarray] | None:
        """Where a value of a row of the data is missing, if rows of the data are not those of the model."""
        return None

    def source(self, model: Model, name: Hashable) -> pd.DataFrame:
        """The frame that holds a covariate as the user gave it, a row of it once."""
        return model.frame

    def labels(self, model: Model, by: Any) -> Any:
        """Groups of rows as a user names them, for the rows of the model."""
        return by

    def check_columns(self, where: str, frame: pd.DataFrame) -> None:
        """Refuse new rows that cannot be predicted."""

    def own_terms(self, terms: Sequence[Term]) -> list[Term]:
        """The terms that the user stated."""
        return list(terms)

    def observed(self, fit: FittedModel) -> np.ndarray:
        """y of the rows of the fit, NaN where it is missing."""
        return np.where(fit.model.target.seen > 0.0, fit.model.target.y, np.nan)

    # -- words -------------------------------------------------------------------------------------
    def family_in_words(self, model: Model) -> str:
        """The family, and which label is predicted."""
        target = model.target
        family = target.likelihood.word or repr(target.likelihood)
        family += "" if model.family_given else ", as none was given"
        if target.words is None or target.labels is None or len(target.labels) != 2:
            return family
        first, second = target.labels
        return f"{family}, the probability that {model.response.name} is '{second}' and not '{first}'"

    def rows_in_words(self, model: Model) -> list[str]:
        """The rows that are used, and those that are left out."""
        n, seen = model.n_rows
        why = "y 0 (the other part) or unobserved" if model.response.above else "y unobserved and predicted"
        rest = f", {n - seen} of them with {why}" if seen < n else ""
        return [f"rows: {n} used{rest}", *dropped_in_words(model, "a covariate is missing")]

    def reported(self, likelihood: Likelihood) -> tuple[Likelihood, float]:
        """The likelihood on the scale of y, and what eta is there above eta as fitted."""
        return likelihood.reported()

    def predictors(self, model: Model) -> list[Any]:
        """What the predictors of a row are called, where there are several."""
        return []

    # -- answers -----------------------------------------------------------------------------------
    def predict(self, fit: FittedModel, new: Any, kind: str, interval: float | None, options: Mapping[str, Any]) -> Any:
        """What ``FittedModel.predict`` returns; ``options`` are new_groups, without, exposure and trials."""
        rows = predictions.read_rows(fit, new, **options)
        return predictions.predict(fit, rows, kind, interval)

    def sample(
        self,
        fit: FittedModel,
        new: Any,
        size: int,
        rng: np.random.Generator,
        kind: str,
        options: Mapping[str, Any],
    ) -> np.ndarray:
        """What ``FittedModel.sample`` returns."""
        return predictions.draws(fit, predictions.read_rows(fit, new, **options), size, rng, kind)

    def survival(self, fit: FittedModel, new: Any, times: Any, size: int, rng: Any, new_groups: str) -> Any:
        """Times (T,), draws (size, M, T) of P(T > t), and the index of the rows."""
        from .averages import survival_draws

        return survival_draws(fit, new, times, size, rng, new_groups)

    def people(self, fit: FittedModel) -> People:
        """The rows of a fit of durations, as the user gave them."""
        from .durations import people_of

        return people_of(fit)

    def survival_times(self, fit: FittedModel) -> tuple[np.ndarray, bool]:
        """Times from 0 at which survival is drawn, and whether it falls in steps."""
        from .durations import times_of

        return times_of(fit), False

    def scores(self, fit: FittedModel, score: Any) -> Any:
        """A criterion over rows: ``score(fit)``, or that of the parts put together."""
        return score(fit)


def dropped_in_words(model: Model, why: str) -> list[str]:
    """How many rows were left out, and because of which columns."""
    dropped = model.dropped
    if not dropped.n:
        return []
    each = ", ".join(f"{name!r} in {count}" for name, count in dropped.columns.items())
    rows = "1 row" if dropped.n == 1 else f"{dropped.n} rows"
    return [f"dropped: {rows} in which {why} ({each})"]


class Engine:
    """How a fit was computed: by factors of the precision, with its rows in memory."""

    name = ""  # in the table of capabilities
    averages_own = True  # whether answers average over the likelihood's own parameters, where these move eta
    keeps_rows = True  # whether the rows of the data are in memory

    def evidence(self, fit: FitTables) -> Any:
        """The evidence as a function of theta, starting where the fit stands."""
        return tables.evidence_of(fit)

    def theta_covariance(self, fit: FitTables) -> np.ndarray:
        """Of theta, by the curvature of the evidence; 0 for an entry that ended at a bound."""
        return fit.theta_mode.covariance

    def hyperparameters(self, fit: FitTables) -> pd.DataFrame:
        """Values and 95 % intervals."""
        return tables.hyperparameters(fit)

    def sd_errors(self, fit: FitTables, design: Any) -> np.ndarray | None:
        """What is left unknown of the sds of rows of a design; None where they are exact."""
        return None

    def certificate(self, fit: FitTables) -> list[str]:
        """What is proved of the fit, and why it is not where it is not."""
        from .summaries import certificate

        return certificate(fit)

    def doubts(self, fit: FitTables) -> list[str]:
        """Why the hyperparameters, or an average over them, are not to be believed."""
        known = [fit.found.doubt] if fit.found.doubt and fit.integrated is None else []
        return [*known, *([] if fit.mixture is None else fit.mixture.doubts)]

    def remarks(self, fit: FitTables) -> list[Remark]:
        """What a reader should know of the data and of the fit, a sentence each."""
        from . import remarks

        return [*remarks.of_terms(fit.model), *remarks.of_fit(fit)]


DIRECT = Engine()


def missing_in(frame: pd.DataFrame, names: Sequence[Hashable]) -> dict[Hashable, np.ndarray]:
    """Where columns of a frame are missing."""
    own = [name for name in names if name in frame.columns]
    return missing("Model", used("Model", frame, own), own)


# -- What a file keeps of a model: the arguments of ``Model``, with the columns and variables it uses ----------
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
