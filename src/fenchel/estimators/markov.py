"""Regression with areal and temporal effects: y ~ likelihood(eta), eta = intercept + X beta + u[region] + w[time] + ...

Each effect is a Gaussian Markov random field over the levels of one column of X; all of them and the fixed effects make
one sparse precision, and its hyperparameters are learned by the evidence.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ..checks import choice, numeric, problem
from ..distributed import is_dask
from ..hyperparameters import Family
from ..likelihoods import Gaussian
from ..linalg.arrays import ArrayLike
from ..priors.base import NewRows
from ..terms import Covariate, DataTable, Kind, SumOfTerms, Term
from ..terms.tables import keyed, plain
from .any_likelihood import Regression
from .base import weights_of
from .effect_tables import EffectTables
from .effects import read_effects
from .labels import known, read_labels
from .latent import Latent
from .observations import counted, read_observations, target_of, weight_seen
from .target import Target


class TermsLatent(Latent):
    """eta as a sum of terms of a table."""

    def __init__(self, terms: SumOfTerms) -> None:
        self.terms = terms

    def family(self) -> Family:
        return self.terms.family()

    def new_rows(self, theta: np.ndarray, table: DataTable) -> NewRows:
        return self.terms.new_rows(theta, table)


@dataclass(eq=False, repr=False)
class GMRFRegressor(EffectTables, Regression):
    """Regression with structured effects on regions, times and groups, and a certificate.

    Parameters
    ----------
    effects : dict or list of Term, optional
        Column of X -> the field over its values (None: fixed effects alone):
        ``"iid"``, ``"rw1"``, ``"rw2"``, ``"ar1"``, ``("seasonal", period)`` for groups and times;
        ``("icar" | "bym" | "bym2" | "leroux", graph)`` for regions, the graph a scipy sparse or dense adjacency matrix,
        a pandas frame of it (its index names the regions), {region: [neighbours]}, a list of edges as tuples of names
        (or of 0, 1, ..., which ``levels`` name), a networkx graph or libpysal weights;
        ``("generic", structure)``. A last entry holds starting values: ``("bym2", graph, {"precision": 4.0})``,
        ``("iid", {"precision": 4.0})``, and the constraints of a structure that is singular,
        ``("generic", structure, {"constraints": "sum-to-zero"})``, or rows (k, levels).
        A second-order walk brings its linear trend along, a seasonal effect its season, unless ``{"trend": False}``.
        Or a term of ``fenchel.terms``, or of one's own; or a list of terms, several of which may read one column:
        ``[RW2("year"), IID("region"), IID("region", by="age")]``, the last of them slopes.
    likelihood : str or Likelihood
        "poisson", "negative-binomial", "zero-inflated-poisson" (counts), "binomial", "bernoulli", "probit" (successes),
        "ordinal", "ordinal-probit" (levels), "beta" (proportions), "gamma" (amounts), "exponential", "weibull"
        (durations, which may be censored), "gaussian", "laplace", "logistic", "student-t" (noise about eta). Its own
        parameters are learned with the rest, but for the degrees of freedom of "student-t", which stay at 4
        (``fenchel.StudentT(learn_df=True)`` learns them). eta of "weibull" is that of the hazard shape t^(shape-1)
        exp(eta), t in the units of y.
    fixed : "rest", None or list of columns
        Covariates: by default every column that is nothing else (nor the geometry of a geopandas frame). Numbers, in
        any unit and from any origin, and booleans are taken as they are; categories and text are factors, each level
        but the first (of the categories in their order, of the words sorted) compared with it: ``smoker[yes]``. Dates
        and numbers written as text are refused.
    levels : dict, optional
        Column -> its levels in order. Needed for regions that the graph does not name (their default is 0, 1, ...), and
        to reach times or groups beyond the data. Default in time: every step from the first to the last,
        whole numbers by 1, dates by months or by their shortest gap.
    exposure, trials, event : column of X, optional
        Where ``fit``, ``predict`` and ``score`` find them when they are not given as arrays.
    intercept : bool
        Ordered levels have cutpoints in its place.
    fixed_variance : float
        Prior variance of what one standard deviation of a covariate does, and of the intercept at the mean of the
        covariates about the overall level of y (the link of its mean); means and standard deviations are those of the
        observed rows. For noise about eta it is in units of the variance of y. Without an intercept nothing is centred,
        and it is the root mean square of a covariate that counts.
    learn : bool
        Learn the hyperparameters by the evidence, or keep the starting values.
    evidence : "elbo" or "corrected"
        What learning maximises. "corrected" (see ``fenchel.hyperparameters.learn``) finds the variances of groups that
        quadrature finds, where the elbo's are too small: few binary or small-count rows a group. It takes longer.
    integrate : None, True, "grid" or "ccd"
        Integrate over the hyperparameters (``fenchel.integrate``): effects, coefficients and predictions
        are then mixtures over fits at many of them, and ``hyperparameters_`` has means, sds and intervals.
    priors : "pc", None or dict
        Priors of the hyperparameters. "pc": penalised complexity, exponential with P(sd > 1) = 0.01, for the typical
        standard deviation of an effect over its levels ("leroux": 1/sqrt(precision); noise about eta: sd of y for 1);
        logit phi and logit rho are N(0, 1.8^2), nearly uniform on (0, 1); 2 atanh phi of "ar1" is N(2, 1.5^2).
        None: flat. {effect: {"precision": (u, a), "phi": Normal(...)}}: P(sd > u) = a, any prior of
        ``fenchel.hyperparameters``, or None for flat; what is not named keeps its default.
    noise_variance : float, optional
        Where the variance of Gaussian noise starts; default: half that of y.
    bound : str
        "best": exact expectations where the likelihood has them; or one of its bounds by name, such as "tilted" or the
        paper's "log-sum" for "binomial" and "bernoulli".
    n_restarts : int
    tol : float
        Relative duality gap of every fit.
    random_state : int, RandomState or None
        Of the restarts.

    Attributes
    ----------
    effects_ : dict of pandas frames
        Of each effect, by level: mean, sd, lower, upper (95 %), n (observed rows), and for counts, proportions, amounts
        and durations the relative risk (odds, mean, hazard ratio): ``relative_risk`` its posterior median, ``rr_lower``
        and ``rr_upper`` its interval, ``p_above_1`` the probability that it is above 1.
    fixed_effects_ : pandas frame
        The same for the intercept, where every covariate is 0, and for the coefficients, per unit of each covariate.
    coef_, coef_std_, coef_cov_, coef_names_, intercept_, intercept_std_
    hyperparameters_ : pandas frame
        Precisions, shares, correlations, the typical sd of each effect they amount to; the likelihood's parameters.
    levels_ : dict of lists
    integrated_ : Integrated or None
    elbo_, gap_, n_iter_, solution_, theta_, converged_, n_features_in_, feature_names_in_

    Intervals and probabilities are those of the Gaussian approximation at the learned hyperparameters, unless these are
    integrated out.

    Examples
    --------
    >>> import pandas as pd
    >>> from fenchel.datasets import load_sids
    >>> from fenchel.estimators import GMRFRegressor
    >>> sids = load_sids()
    >>> X = pd.DataFrame({"county": sids.county})
    >>> model = GMRFRegressor({"county": ("bym2", sids.adjacency)}, levels={"county": sids.county})
    >>> model = model.fit(X, sids.deaths, exposure=sids.expected)
    >>> risk = model.effects_["county"].sort_values("relative_risk")
    >>> risk.index[-1], bool(risk["p_above_1"].iloc[-1] > 0.99)
    ('Northampton', True)
    """

    effects: Any = None
    likelihood: Any = "poisson"
    _: KW_ONLY
    fixed: Any = "rest"
    levels: Any = None
    exposure: Any = None
    trials: Any = None
    event: Any = None
    intercept: bool = True
    fixed_variance: float = 100.0
    learn: bool = True
    evidence: str = "elbo"
    integrate: Any = None
    priors: Any = "pc"
    noise_variance: float | None = None
    bound: str = "best"
    n_restarts: int = 0
    tol: float = 1e-10
    random_state: Any = None

    # -- fitting -----------------------------------------------------------------------------------
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        exposure: Any = None,
        trials: Any = None,
        sample_weight: Any = None,
        event: Any = None,
    ) -> GMRFRegressor:
        """Fit, and learn the hyperparameters.

        Parameters
        ----------
        X : pandas frame (N, D), dict of columns, or an array whose columns are named 0, 1, ...
        y : array (N,)
            NaN, or masked, where unobserved: such rows are predicted like any other. Levels may be an ordered
            categorical of pandas, and two labels any two words.
        exposure : array (N,), optional
            Of counts: expected counts, person-years: y ~ Poisson(exposure * exp(eta)). 0 means unobserved.
        trials : array (N,)
            "binomial": how many of whom y are the successes.
        sample_weight : array (N,), optional
            Multiplies each row's log-likelihood.
        event : array (N,), optional
            Of durations: 1 where the event happened at y, 0 where it had not by then.
        """
        name = type(self).__name__
        table = self._table(X, reset=True)
        y, words = read_labels(name, self.likelihood, y)
        y = target_of(name, len(table), y)
        weights = weights_of(sample_weight, table)
        rows = {"exposure": exposure, "trials": trials, "event": event}
        target = self._read(table, y, rows, weights, words)
        if target.classes is not None:
            self.classes_ = target.classes
        ordered = target.likelihood.ordered
        intercept = bool(self.intercept) and not ordered
        self._seen = seen = weight_seen(target.likelihood, target.y, weights)
        if not seen.any():
            raise problem(name, "y, its exposure, trials or weights leave no row", "at least one observed row")
        effects = read_effects(name, self.effects, self.levels)
        self._sum = SumOfTerms(
            [*effects, *self._fixed_terms(table, effects)],
            table,
            scale=target.scale,
            intercept=intercept,
            centred=bool(self.intercept) or ordered,
            fixed_variance=self.fixed_variance,
            offset=target.level if intercept else 0.0,
            weights=seen,
            priors=self.priors,
        )
        self._columns = self._sum.columns
        self.levels_ = {term.name: term.levels for term in self._sum.effects if term.levels is not None}
        for sentence in self._sum.complaints():
            warnings.warn(f"{name}: {sentence}.", UserWarning, stacklevel=2)
        self._learn(target, TermsLatent(self._sum), weights, self.learn, self.n_restarts, self.random_state)
        if ordered and self._sum.fixed_names:  # learned where the covariates are at their means, stated at x = 0
            self._shift = float(self._columns.centre @ self.coef_)
            own = self._fitted.theta
            self.likelihood_ = self._fitted.with_theta(np.r_[own[0] + self._shift, own[1:]])
        return self

    # -- reading X ---------------------------------------------------------------------------------
    def _table(self, X: Any, reset: bool = False) -> DataTable:
        """X with columns by name (a frame, a dict) or by number (an array, checked to have fit's number of them).

        Of a frame only the columns that the model uses are looked at, in any order.
        """
        if is_dask(X):
            advice = 'fenchel.Model("y ~ x + (1|g)", X) takes Dask dataframes.'
            raise problem(type(self).__name__, "X is a collection of Dask's", "a table in memory: X.compute()", advice)
        X = plain(type(self).__name__, X)
        if not (keyed(X) or hasattr(X, "columns")):
            X = check_array(X, dtype=None, ensure_all_finite=False, estimator=self, input_name="X")
        table = DataTable(type(self).__name__, X, fitting=reset)
        if keyed(X) and reset:
            self.feature_names_in_, self.n_features_in_ = np.array(table.names, dtype=object), len(table.names)
        elif not keyed(X) and (reset or not table.framed):
            validate_data(self, X, reset=reset, skip_check_array=True)
        return table

    def _fixed_terms(self, table: DataTable, effects: list[Term]) -> list[Term]:
        where, taken = type(self).__name__, [self.exposure, self.trials, self.event]
        names = [] if self.fixed is None else self.fixed
        if isinstance(names, str):
            choice(where, "fixed", names, ("rest", None), "Or list the columns: fixed=[...].")
            taken += [name for term in effects for name in term.claims]
            names = [n for n in table.names if n not in taken and table.column(n).declared is not Kind.OUTLINES]
        return [Covariate(name) for name in names]

    def _given(self, table: DataTable, what: str, value: Any, new: bool = False) -> np.ndarray | None:
        """Exposure, trials or event (N,): the argument, the column the constructor names, or None."""
        column = getattr(self, what)
        if value is None and column is None:
            return None
        if value is None and new and column not in table.names:
            got = f"X has no column {column!r}, where the constructor says to find {what}"
            advice = {"exposure": "exposure=1 gives a rate.", "trials": "trials=1 gives a probability."}.get(what, "")
            raise problem(type(self).__name__, got, f"that column, or {what}= as an argument", advice)
        out = numeric(type(self).__name__, what, table.column(column).data if value is None else value)
        if out.ndim > 1 or (out.ndim == 1 and out.shape[0] != len(table)):
            raise problem(type(self).__name__, f"{what} has shape {out.shape}", f"a number or ({len(table)},)")
        return np.broadcast_to(out, (len(table),))

    def _read(self, table: DataTable, y: np.ndarray, rows: dict[str, Any], weights: Any, words: Any) -> Target:
        """The likelihood of the training rows."""
        name, likelihood = type(self).__name__, self.likelihood
        rows = {what: self._given(table, what, value) for what, value in rows.items()}
        likelihood = counted(name, likelihood, y, "y", rows["trials"] is not None, "elbo_")
        if self.noise_variance is not None:
            if not (isinstance(likelihood, str) and likelihood == "gaussian"):
                given = f'likelihood="{likelihood}"' if isinstance(likelihood, str) else f"likelihood={likelihood!r}"
                advice = "" if isinstance(likelihood, str) else "A Likelihood brings its own parameters."
                got = f"noise_variance meets {given}"
                raise problem(name, got, 'noise_variance with "gaussian" alone', advice)
            likelihood = Gaussian(float(self.noise_variance))
        bound = self.bound if isinstance(likelihood, str) else "best"
        centred, learned = bool(self.intercept), bool(self.learn)
        return read_observations(name, likelihood, bound, y, rows, weights, centred, learned, words)

    # -- prediction --------------------------------------------------------------------------------
    def _found(self, table: DataTable, rows: dict[str, Any]) -> dict[str, Any]:
        return {what: self._given(table, what, value, new=True) for what, value in rows.items()}

    def predict(self, X: Any, exposure: ArrayLike | None = None, trials: ArrayLike | None = None) -> np.ndarray:
        """The mean of y (M,), the posterior's uncertainty integrated out: a count, a number of successes, a value.

        Without exposure it is a rate, without trials a probability. Regions and times without data are predicted too,
        and a group of an "iid" effect that fit has not seen: from the population, with mean 0 and the effect's
        variance. Of a frame only the columns that the model uses are needed, in any order.
        """
        return self._predictive(X, exposure=exposure, trials=trials).mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        own = known(self.likelihood)
        tags.target_tags.positive_only = own is not None and own.support in ("count", "positive")
        return tags
