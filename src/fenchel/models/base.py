"""Two contracts: ``Reduction``, the kinds of models, and ``Engine``, the ways in which a fit is computed.

A model without a likelihood of its own is reduced to models that have one, as in cvxpy:

    applies(spec)          whether a specification is of this kind: family="cox", "multinomial", a hurdle with zero=
    reduce(spec)           the specifications of the models that are fitted, the main one first
    invert(model, fits)    their fits combined into one

``Model`` keeps its reduction as ``model.reduction`` and the other models as ``model.others``. Everything that depends
on the kind of model (words, rows, predictions, draws) is a method of the reduction; the class ``Reduction`` itself is
for a model with one likelihood, which is fitted as it is.

An ``Engine`` has what depends on how a ``FittedModel`` was computed: the evidence about its mode, Monte Carlo errors,
and whether the rows are in memory. ``capabilities.py`` lists, by ``name``, what a kind of model or an engine lacks.
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
    """The specification of a model: the arguments of ``Model``, and the caller's variables (None: no caller)."""

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
    elsewhere: Sequence[str] = ()  # names in priors that belong to other parts of the model
    zeros_unobserved: bool = False  # whether the rows with y = 0 belong to another part

    @property
    def above_zero(self) -> str | None:
        """The family of the positive counts of a hurdle whose zeros have a formula; None for any other model."""
        own = WORDS.get(self.family) if self.zero is not None and isinstance(self.family, str) else None
        return None if own is None else own.above_zero

    @property
    def kind(self) -> str:
        """The name of its reduction: "cox", "multinomial", "hurdle", or "" for a model with one likelihood."""
        by_family = next((word for word in ("cox", "multinomial") if self.family == word), "")
        return "hurdle" if self.above_zero is not None else by_family

    def model(self) -> Model:
        """The model with this specification."""
        from .model import Model

        given = {each.name: self.__dict__[each.name] for each in fields(self)}
        variables, elsewhere = given.pop("variables"), given.pop("elsewhere")
        del given["zeros_unobserved"]
        given["env"] = {**(variables or {}), **self.env}
        return Model(**given, _elsewhere=elsewhere, _depth=None if variables is None else 1)


class Reduction:
    """A kind of model; this class is for a model with one likelihood, which is fitted as it is."""

    name = ""  # in the table of capabilities
    kinds: tuple[str, ...] = ("mean", "link", "outcome", "probability")  # kinds of ``predict``, the default first
    drawn: tuple[str, ...] = ("mean", "link", "outcome")  # kinds of ``sample``
    parts: tuple[str, ...] = ()  # names of the models that are fitted, if there are several
    looks_for_separation = True  # whether coefficients are tested for separation

    @classmethod
    def applies(cls, spec: ModelSpec) -> bool:
        """Whether a specification is of this kind."""
        return spec.kind == cls.name

    def reduce(self, spec: ModelSpec) -> list[ModelSpec]:
        """The specifications of the models that are fitted, the main one first."""
        return [spec]

    def target(self, target: Target, keep: np.ndarray, bound: str) -> Target:
        """The likelihood and y of the main model."""
        return target

    def invert(self, model: Model, fits: Sequence[FittedModel]) -> FittedModel:
        """The fit of the whole model from those of its parts."""
        return fits[0]

    # -- rows --------------------------------------------------------------------------------------
    def missing(self, model: Model, names: Sequence[Hashable]) -> dict[Hashable, np.ndarray] | None:
        """Masks of missing values by column, for the rows of the data if these are not the rows of the model."""
        return None

    def data_rows(self, model: Model) -> tuple[pd.DataFrame, np.ndarray]:
        """The rows of the user's data that are used, and how often each was seen (N,)."""
        weights = model.target.weights
        return model.frame, np.ones(len(model.frame)) if weights is None else weights

    def counted(self, model: Model) -> tuple[int, int]:
        """Number of rows of the user's data that are used, and of those among them that are observed."""
        return model.n_rows

    def outcome(self, model: Model) -> tuple[Hashable, np.ndarray]:
        """The name of what is explained, and its observed values."""
        return model.response.name, model.target.y[model.target.seen > 0.0]

    def covariates(self, model: Model) -> list[Hashable]:
        """The covariates that are columns of the user's data."""
        return model.covariates

    def labels(self, model: Model, by: Any) -> Any:
        """Group labels for the rows of the model, from those that the user gave for the rows of the data."""
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
        """Lines on the rows that are used and those that are left out."""
        n, seen = self.counted(model)
        why = "y 0 (the other part) or unobserved" if model.response.above else "y unobserved and predicted"
        rest, counted = f", {n - seen} of them with {why}" if seen < n else "", float(model.target.seen.sum())
        if model.target.weights is not None and abs(counted - seen) > 1e-6 * seen:
            rest += f", which weights= counts as {counted:.6g}"
        return [f"rows: {n} used{rest}", *dropped_in_words(model, "a covariate is missing")]

    def reported(self, likelihood: Likelihood) -> tuple[Likelihood, float]:
        """The likelihood on the scale of y, and the difference of eta there and eta as fitted."""
        return likelihood.reported()

    def predictors(self, model: Model) -> list[Any]:
        """Names of the predictors of a row, if there are several."""
        return []

    # -- results -----------------------------------------------------------------------------------
    def predict(self, fit: FittedModel, new: Any, kind: str, interval: float | None, options: Mapping[str, Any]) -> Any:
        """The result of ``FittedModel.predict``; ``options`` are new_groups, without, exposure and trials."""
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
        """The result of ``FittedModel.sample``."""
        return predictions.draws(fit, predictions.read_rows(fit, new, **options), size, rng, kind)

    def survival(self, fit: FittedModel, new: Any, times: Any, size: int, rng: Any, options: Mapping[str, Any]) -> Any:
        """Times (T,), draws (size, M, T) of P(T > t), and the index of the rows."""
        from .averages import survival_draws

        return survival_draws(fit, new, times, size, rng, options)

    def people(self, fit: FittedModel) -> People:
        """The people of a fit of durations: the rows as the user gave them."""
        from .durations import people_of

        return people_of(fit)

    def survival_times(self, fit: FittedModel) -> tuple[np.ndarray, bool]:
        """Times from 0 at which survival is drawn, and whether it falls in steps."""
        from .durations import times_of

        return times_of(fit), False

    def scores(self, fit: FittedModel, score: Any) -> Any:
        """A criterion over rows, ``score(fit)``; a model of several parts combines those of the parts."""
        return score(fit)


def dropped_in_words(model: Model, why: str) -> list[str]:
    """A line on the number of dropped rows, with the columns that were missing."""
    dropped = model.dropped
    if not dropped.n:
        return []
    each = ", ".join(f"{name!r} in {count}" for name, count in dropped.columns.items())
    rows = "1 row" if dropped.n == 1 else f"{dropped.n} rows"
    return [f"dropped: {rows} in which {why} ({each})"]


class Engine:
    """A way in which a fit is computed; this class is the direct one, by factorisations, with rows in memory."""

    name = ""  # in the table of capabilities
    averages_own = True  # whether results average over parameters of the likelihood that move eta
    keeps_rows = True  # whether the rows of the data are in memory

    def evidence(self, fit: FitTables) -> Any:
        """The evidence as a function of theta, warm-started at the fit."""
        return tables.evidence_of(fit)

    def theta_covariance(self, fit: FitTables) -> np.ndarray:
        """Covariance matrix of theta from the curvature of the evidence; 0 for an entry that ended at a bound."""
        return fit.theta_mode.covariance

    def hyperparameters(self, fit: FitTables) -> pd.DataFrame:
        """Table of the hyperparameters: values and 95 % intervals."""
        return tables.hyperparameters(fit)

    def sd_errors(self, fit: FitTables, design: Any) -> np.ndarray | None:
        """Monte Carlo standard errors of the sds of eta at rows of a design; None if they are exact."""
        return None

    def certificate(self, fit: FitTables) -> list[str]:
        """Lines on the certificate of the fit, and on why it did not converge if it did not."""
        from .summaries import certificate

        return certificate(fit)

    def doubts(self, fit: FitTables) -> list[str]:
        """Reasons for which the hyperparameters, or the average over them, are unreliable."""
        known = [fit.found.doubt] if fit.found.doubt and fit.integrated is None else []
        return [*known, *([] if fit.mixture is None else fit.mixture.doubts)]

    def remarks(self, fit: FitTables) -> list[Remark]:
        """Remarks on the data and on the fit."""
        from . import remarks

        return [*remarks.of_terms(fit.model), *remarks.of_fit(fit)]


DIRECT = Engine()


def missing_in(frame: pd.DataFrame, names: Sequence[Hashable]) -> dict[Hashable, np.ndarray]:
    """Masks of missing values of the columns of a frame."""
    own = [name for name in names if name in frame.columns]
    return missing("Model", used("Model", frame, own), own)


# -- A file stores the arguments of ``Model``, with the columns and variables that it uses ---------------------
ROW_NAMES = ("weights", "exposure", "trials", "event")  # arguments with a number for each row, or a column name
_NO_TEXT = ("data", "graphs", "env", "levels")  # arguments that do not name columns


def keep_arguments(model: Model, scope: Scope, data: Table) -> None:
    """Copy the arguments of a model, since the user may change the table afterwards."""
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
    """Whether two tables hold the same columns and rows; ``used`` is ``kept`` without its incomplete rows."""
    rows = len(kept) == len(used) and kept.index.equals(used.index)
    return rows and {*kept.columns} == {*used.columns} and bool((kept.dtypes == used.dtypes[kept.columns]).all())


def model_statement(model: Model, whole: Statement) -> Statement:
    """The call that rebuilds a model; formulas that a file cannot store are refused."""
    for each in (model, *model.others):
        for expression in each.expressions:
            expression.check_saved()
    if whole.options.pop("_elsewhere", None):
        raise problem("save", "this model is a part of another one", "the whole", "Save the fit that has both.")
    variables = {name: value for name, value in whole.options["env"].items() if name != "np"}
    return whole._replace(options={**whole.options, "env": variables})
