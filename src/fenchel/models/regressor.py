"""A formula as an estimator of scikit-learn: for pipelines, cross-validation and searches over its options."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..checks import problem, refuse_device, vector
from ..distributed import is_dask
from ..estimators.base import validate_data, weights_of
from ..files import StatedEstimator, Stored, stated
from ..inputs.frames import column_names, read_frame
from ..inputs.observations import announce_missing, read_family
from . import predictions
from .fitted import FittedModel
from .grammar import parse
from .model import Model

if TYPE_CHECKING:
    import pandas as pd

_ONE_COLUMN = re.compile(r"[^\W\d]\w*|`[^`]+`")
_NAME, _COLUMN_OF_ARRAY = re.compile(r"[^\W\d]"), re.compile(r"\bx\d+\b")
_OF_FIT = ("n_restarts", "tol", "accuracy", "evidence", "integrate", "n_jobs", "engine")


@dataclass(eq=False, repr=False)
class FormulaRegressor(Stored, StatedEstimator, RegressorMixin, BaseEstimator):
    """A model by a formula, as an estimator of scikit-learn over data frames.

    Parameters
    ----------
    formula, family
        Of ``fenchel.Model``; every family of one predictor a row, so neither "multinomial" nor "cox".
    exposure, trials, event : name of a column of X, or a number, optional
        The formula may say them too: ``y | trials(n) ~ x``, ``cens(time, event) ~ x``.
    terms, graphs, env, levels, priors, fixed_sd, bound, dispersion, zero
        Of ``fenchel.Model``. Variables of the formula are those of ``graphs`` and ``env`` alone, never the caller's,
        and functions those of numpy and formulaic: one's own are a step of a pipeline (``FunctionTransformer``).
    n_restarts, tol, accuracy, evidence, integrate, n_jobs, engine
        Of ``fenchel.Model.fit``; ``accuracy`` is "fast" by default.
    random_state : int or numpy Generator
        Of the restarts: ``rng`` of ``fenchel.Model.fit``.

    Attributes
    ----------
    model_ : Model
    fit_ : FittedModel
        Coefficients, effects, hyperparameters, draws, pictures: all that ``fenchel.fit`` returns.
    converged_ : bool
    n_features_in_, feature_names_in_ : of X, the response aside

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.model_selection import cross_val_score
    >>> from fenchel import FormulaRegressor
    >>> from fenchel.datasets import load_sids
    >>> sids = load_sids()
    >>> X = pd.DataFrame({"county": sids.county, "births": sids.expected})
    >>> model = FormulaRegressor("deaths ~ (1|county)", "poisson", exposure="births")
    >>> cross_val_score(model, X, sids.deaths, cv=3).shape
    (3,)
    >>> model.fit(X, sids.deaths).fit_.effects["county"].columns[4]
    'relative_risk'
    """

    takes_tensors = False  # on a device of torch's

    formula: str
    family: Any = "gaussian"
    _: KW_ONLY
    exposure: Any = None
    trials: Any = None
    event: Any = None
    terms: Any = ()
    graphs: Any = None
    env: Any = None
    levels: Any = None
    priors: Any = None
    fixed_sd: float = 10.0
    bound: str = "best"
    dispersion: str | None = None
    zero: str | None = None
    n_restarts: int = 0
    tol: float | None = None
    random_state: Any = 0
    accuracy: str = "fast"
    evidence: str | None = None
    integrate: Any = None
    n_jobs: Any = None
    engine: str = "auto"

    @stated()
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, exposure: Any = None, trials: Any = None
    ) -> FormulaRegressor:
        """Fit the model of a data frame.

        Parameters
        ----------
        X : data frame, dict of columns, or array (N, D), whose columns are called x0, x1, ...
        y : array (N,), optional
            The response, under the name that the formula has for it; NaN where unobserved. Default: a column of X.
        sample_weight : array (N,), optional
            Multiplies the log-likelihood of each row.
        exposure, trials : array (N,), optional
            One number for each row, where they are no columns of X: what ``cross_validate(params=...)`` routes.
            ``predict`` and ``score`` take them too.
        """
        name = type(self).__name__
        if read_family(self.family) in ("multinomial", "cox"):
            advice = f"fenchel.fit(formula, data, {self.family!r}) fits it."
            raise problem(name, f"family = {self.family!r}", "one number predicted in each row", advice)
        frame = self._frame(X, y, reset=True)
        options = self.get_params(deep=False)
        for key, values in (("exposure", exposure), ("trials", trials)):
            if values is not None and options[key] is not None:
                raise problem(name, f"{key} = {options[key]!r} and fit(..., {key}=...)", "one of them")
            options[key] = options[key] if values is None else values
        how = {"rng": options.pop("random_state"), **{key: options.pop(key) for key in _OF_FIT}}
        weights = weights_of(sample_weight, frame)
        self.model_ = Model(data=frame, weights=weights, **options, _depth=None)  # a file may have brought the formula
        if self.model_.others:
            advice = "fenchel.fit fits both parts; without zero= a hurdle has one probability of a zero."
            raise problem(name, f"zero= of family = {self.family!r}", "a model of one part", advice)
        self.fit_: FittedModel = self.model_.fit(**how)
        self.converged_ = self.fit_.converged
        return self

    def predict(self, X: Any, return_std: bool = False, *, exposure: Any = None, trials: Any = None) -> Any:
        """E[y] (M,), the posterior's uncertainty integrated out; of labels the mean of their values.

        ``return_std`` also gives the standard deviation (M,) of the y that will be seen. Of a frame only the columns
        that the model reads are needed, exposures and trials among them: ``predict(X, exposure=1)`` is a rate. If
        ``fit`` was given an array of exposures, the default is 1, so that ``predict(X)`` is the rate.
        """
        check_is_fitted(self)
        frame, rows = self._frame(X), {"exposure": exposure, "trials": trials}
        mean = np.asarray(self.fit_.predict(frame, **rows), dtype=np.float64)
        if not return_std:
            return mean
        return mean, np.asarray(self.fit_.predict(frame, "outcome", interval=0.5, **rows)["sd"])

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, exposure: Any = None, trials: Any = None
    ) -> float:
        """How well y is predicted, larger is better: R^2 where eta is on the scale of y ("gaussian", "student-t",
        "laplace", "logistic"), as of scikit-learn's regressors; elsewhere the mean log predictive density.

        Rows in which y or a covariate is missing do not count. Exposures and trials that were given to ``fit`` are
        needed here too: without them each is 1, with a warning.
        """
        check_is_fitted(self)
        name, frame = type(self).__name__, self._frame(X, y)
        noise = self.fit_.likelihood.noise
        truth = vector(name, "y", self.model_.response.values(frame), len(frame), missing=True) if noise else None
        rows = {"exposure": exposure, "trials": trials}
        likelihood = self.fit_.likelihood
        given: Any = self.model_.response.given
        arrays = [key for key in rows if np.ndim(given.get(key))]  # a column is there in new rows too
        announce_missing(name, likelihood, {key: rows[key] if key in arrays else 1.0 for key in likelihood.row_values})
        values = self.predict(frame, **rows) if noise else predictions.log_density(self.fit_, frame, **rows)
        seen = ~np.isnan(values) if truth is None else ~np.isnan(values + truth)
        if not seen.any():
            raise problem(name, "no row has its y and every covariate", "at least one observed row")
        w = None if sample_weight is None else vector(name, "sample_weight", sample_weight, len(frame))[seen]
        if truth is not None:
            return float(r2_score(truth[seen], values[seen], sample_weight=w))
        return float(np.average(values[seen], weights=w))

    def _frame(self, X: Any, y: Any = None, reset: bool = False) -> pd.DataFrame:
        """X as a data frame, with y under its name."""
        name, response = type(self).__name__, parse(self.formula).response.text
        if is_dask(X):
            advice = "fenchel.Model(formula, X) takes Dask dataframes."
            raise problem(name, "X is a collection of Dask's", "a table in memory: X.compute()", advice)
        named = any(isinstance(column, str) for column in column_names(X))
        if not named:
            X = validate_data(self, X, reset=reset)
            if _NAME.search(self.formula.partition("~")[2]) and not _COLUMN_OF_ARRAY.search(self.formula):
                advice = 'A step of a pipeline keeps the names of columns by set_output(transform="pandas").'
                got = f"X is an array, whose columns are called x0, x1, ..., and the formula {self.formula!r} has none"
                raise problem(name, f"{got} of them", "a data frame", advice)
            X = {f"x{d}": column for d, column in enumerate(X.T)}
        frame, bare = read_frame(name, X, "X"), response.strip("`")
        if y is None and reset and bare not in frame.columns and _ONE_COLUMN.fullmatch(response):
            raise problem(name, "requires y to be passed, but the target y is None", f"y, or a column {bare!r} of X")
        if reset and named:
            columns = [column for column in frame.columns if y is not None or column != bare]
            self.n_features_in_ = len(columns)
            self.feature_names_in_ = np.array(columns, dtype=object)
        if y is None:
            return frame
        if not _ONE_COLUMN.fullmatch(response):
            got = f"y is given and the formula's response is {response!r}"
            raise problem(name, got, "a response that is one column, or y among the columns of X")
        if np.ma.isMaskedArray(y):  # what is masked is unobserved
            y = np.where(np.ma.getmaskarray(y), np.array(None, dtype=object), np.ma.getdata(y))
        refuse_device(name, "y", y)
        y = y.array if hasattr(y, "array") else column_or_1d(y, warn=True)  # by place, not by an index
        check_consistent_length(frame, y)
        return frame.assign(**{bare: y})
