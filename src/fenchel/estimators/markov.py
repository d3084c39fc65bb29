"""Regression with areal and temporal effects: y ~ likelihood(eta), eta = intercept + X beta + u[region] + w[time] + ...

Each effect is a Gaussian Markov random field over the levels of one column of X; all of them and the fixed effects make
one sparse precision, and its hyperparameters are learned by the evidence.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from ..checks import choice, first_value, numeric, positive, problem
from ..gmrf.columns import Columns
from ..hyperparameters import Family
from ..likelihoods import Gaussian, Poisson
from ..likelihoods.base import Likelihood
from .any_likelihood import Regression
from .base import weights_of
from .covariates import Covariate
from .covariates import read as read_covariate
from .effects import Effect, joined, read
from .frames import as_frame, column_of, is_geometry, names_of, target_of, weight_seen
from .labels import read_labels
from .observations import Observations, at_rows, known, read_observations
from .tables import EffectTables


class GMRFRegressor(EffectTables, Regression):
    """Regression with structured effects on regions, times and groups, and a certificate.

    Parameters
    ----------
    effects : dict, optional
        Column of X -> the field over its values (None: fixed effects alone):
        ``"iid"``, ``"rw1"``, ``"rw2"``, ``"ar1"``, ``("seasonal", period)`` for groups and times;
        ``("icar" | "bym" | "bym2" | "leroux", graph)`` for regions, the graph a scipy sparse or dense adjacency matrix,
        a pandas frame of it (its index names the regions), {region: [neighbours]}, a list of edges as tuples of names
        (or of 0, 1, ..., which ``levels`` name), a networkx graph or libpysal weights;
        ``("generic", structure)``. A last entry holds starting values: ``("bym2", graph, {"precision": 4.0})``,
        ``("iid", {"precision": 4.0})``, and the constraints of a structure that is singular,
        ``("generic", structure, {"constraints": "sum-to-zero"})``, or rows (k, levels).
        A second-order walk brings its linear trend along, a seasonal effect its season, unless ``{"trend": False}``.
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
        and durations the relative risk (odds, mean, hazard ratio): ``relative_risk`` its posterior mean, ``rr_median``
        its median, ``rr_lower`` and ``rr_upper`` its interval, ``p_above_1`` the probability that it is above 1.
    fixed_effects_ : pandas frame
        The same for the intercept, where every covariate is 0, and for the coefficients, per unit of each covariate.
    coef_, coef_std_, coef_cov_, coef_names_, intercept_, intercept_std_
    hyperparameters_ : pandas frame
        Precisions, shares, correlations, the typical sd of each effect they amount to; the likelihood's parameters.
    levels_ : dict of lists
    elbo_, gap_, n_iter_, solution_, theta_, converged_, n_features_in_, feature_names_in_

    Intervals and probabilities are those of the Gaussian approximation at the learned hyperparameters.

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

    def __init__(
        self,
        effects: Any = None,
        likelihood: Any = "poisson",
        *,
        fixed: Any = "rest",
        levels: Any = None,
        exposure: Any = None,
        trials: Any = None,
        event: Any = None,
        intercept: bool = True,
        fixed_variance: float = 100.0,
        learn: bool = True,
        priors: Any = "pc",
        noise_variance: float | None = None,
        bound: str = "best",
        n_restarts: int = 0,
        tol: float = 1e-10,
        random_state: Any = None,
    ) -> None:
        self.effects = effects
        self.likelihood = likelihood
        self.fixed = fixed
        self.levels = levels
        self.exposure = exposure
        self.trials = trials
        self.event = event
        self.intercept = intercept
        self.fixed_variance = fixed_variance
        self.learn = learn
        self.priors = priors
        self.noise_variance = noise_variance
        self.bound = bound
        self.n_restarts = n_restarts
        self.tol = tol
        self.random_state = random_state

    # -- fitting -----------------------------------------------------------------------------------
    def fit(
        self,
        X: Any,
        y: Any,
        exposure: Any = None,
        trials: Any = None,
        sample_weight: Any = None,
        event: Any = None,
    ) -> GMRFRegressor:
        """Fit, and learn the hyperparameters.

        Parameters
        ----------
        X : pandas frame (N, D), or an array whose columns are named 0, 1, ...
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
        X = self._frame(X, reset=True)
        y, words = read_labels(name, self.likelihood, y)
        y = target_of(name, X, y)
        weights = weights_of(sample_weight, X)
        response = self._read_observations(X, y, {"exposure": exposure, "trials": trials, "event": event}, weights)
        y, ordered = self._responds(response, words), response.likelihood.ordered
        self._scale, self._intercept = response.scale, bool(self.intercept) and not ordered
        self._offset = response.level if self._intercept else 0.0
        self._effects = self._read(X)
        self._covariates = self._fixed_columns(X)
        self._codes, self._fixed = self._rows(X)
        seen = weight_seen(response.likelihood, y, weights)
        if not seen.any():
            raise problem(name, "y, its exposure, trials or weights leave no row", "at least one observed row")
        self._columns = Columns.of(name, self._fixed, self.coef_names_, seen, bool(self.intercept) or ordered)
        single = [
            f"the factor {c.name!r} has one level, so it has no coefficient" for c in self._covariates if c.single
        ]
        for sentence in [*single, *self._columns.complaints()]:
            warnings.warn(f"{name}: {sentence}.", UserWarning, stacklevel=2)
        self._counts = [np.bincount(c[seen > 0.0], minlength=len(e.levels)) for e, c in self._parts()]
        self._learn(y, weights, self.learn, self.n_restarts, self.random_state)
        if ordered and self._fixed.shape[1]:  # learned where the covariates are at their means, stated at x = 0
            self._shift = float(self._columns.centre @ self.coef_)
            own = self._fitted.theta
            self.likelihood_ = self._fitted.with_theta(np.r_[own[0] + self._shift, own[1:]])
        return self

    def _model(self) -> tuple[Likelihood, Family]:
        variance = numeric(type(self).__name__, "fixed_variance", self.fixed_variance)
        positive(type(self).__name__, "fixed_variance", variance, "A flat prior is improper: use 100 or 1e4.")
        model = {
            "intercept": self._intercept,
            "fixed_variance": float(self.fixed_variance) * self._scale**2,
            "columns": self._columns,
            "offset": self._offset,
            "priors": self._checked_priors(),
        }
        if not (self._effects or self._intercept or self._fixed.shape[1]):
            raise problem(type(self).__name__, "nothing is left to fit", "an effect, a covariate or an intercept")
        return self._observations.likelihood, joined(self._effects, self._codes, self._fixed, model)

    def _checked_priors(self) -> Any:
        if isinstance(self.priors, Mapping):
            unknown = [key for key in self.priors if key not in self.levels_]
            if unknown:
                raise problem(type(self).__name__, f"priors name {unknown[0]!r}", f"one of {list(self.levels_)}")
        else:
            choice(type(self).__name__, "priors", self.priors, ("pc", None), "Or give a dict, {effect: priors}.")
        return self.priors

    def _parts(self) -> list[tuple[Effect, np.ndarray]]:
        return list(zip(self._effects, self._codes, strict=True))

    # -- reading X ---------------------------------------------------------------------------------
    def _frame(self, X: Any, reset: bool) -> Any:
        """X with columns by name (a frame) or by number (an array), which is checked to have fit's number of them.

        Of a frame only the columns that the model uses are looked at, in any order.
        """
        X = as_frame(type(self).__name__, X, reset)
        if not hasattr(X, "columns"):
            X = check_array(X, dtype=None, ensure_all_finite=False, estimator=self, input_name="X")
        if reset or not hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _column(self, X: Any, name: Any) -> Any:
        return column_of(type(self).__name__, X, name)

    def _read(self, X: Any) -> list[Effect]:
        where, effects = type(self).__name__, {} if self.effects is None else self.effects
        if not isinstance(effects, Mapping):
            example = 'a dict such as {"district": ("bym2", adjacency), "year": "rw2"}'
            raise problem(where, f"effects = {effects!r}", example, "None leaves fixed effects alone.")
        levels = {} if self.levels is None else self.levels
        if not isinstance(levels, Mapping) or any(key not in effects for key in levels):
            got = f"levels of {list(levels) if isinstance(levels, Mapping) else type(levels).__name__}"
            raise problem(where, got, f"a dict whose keys are among {list(effects)}")
        items = effects.items()
        out = [read(where, n, spec, self._column(X, n), levels.get(n), self._scale) for n, spec in items]
        self.levels_ = {effect.name: effect.levels for effect in out}
        return out

    def _fixed_columns(self, X: Any) -> list[Covariate]:
        where, taken = type(self).__name__, [*self.levels_, self.exposure, self.trials, self.event]
        names = [] if self.fixed is None else self.fixed
        if isinstance(names, str):
            choice(where, "fixed", names, ("rest", None), "Or list the columns: fixed=[...].")
            names = [n for n in names_of(X) if n not in taken and not is_geometry(X, n)]
        return [read_covariate(where, name, self._column(X, name)) for name in names]

    def _rows(self, X: Any, new: bool = False) -> tuple[list[np.ndarray], np.ndarray]:
        """The node of each row in each effect, and the columns of the fixed effects (N, p) as they come."""
        codes = [effect.codes(self._column(X, effect.name), new) for effect in self._effects]
        columns = [covariate.columns(self._column(X, covariate.name)) for covariate in self._covariates]
        columns += [effect.free()[1][code] for effect, code in zip(self._effects, codes, strict=True)]
        return codes, np.hstack([np.zeros((X.shape[0], 0)), *columns])

    def _given(self, X: Any, what: str, value: Any, new: bool = False) -> np.ndarray | None:
        """Exposure, trials or event (N,): the argument, the column the constructor names, or None."""
        column = getattr(self, what)
        if value is None and column is None:
            return None
        if value is None and new and column not in names_of(X):
            got = f"X has no column {column!r}, where the constructor says to find {what}"
            advice = {"exposure": "exposure=1 gives a rate.", "trials": "trials=1 gives a probability."}.get(what, "")
            raise problem(type(self).__name__, got, f"that column, or {what}= as an argument", advice)
        values = self._column(X, column) if value is None else value
        out = numeric(type(self).__name__, what, values)
        if out.ndim > 1 or (out.ndim == 1 and out.shape[0] != X.shape[0]):
            raise problem(type(self).__name__, f"{what} has shape {out.shape}", f"a number or ({X.shape[0]},)")
        return np.broadcast_to(out, (X.shape[0],))

    def _read_observations(self, X: Any, y: np.ndarray, rows: dict[str, Any], weights: Any) -> Observations:
        """The likelihood of the training rows."""
        name, likelihood = type(self).__name__, self.likelihood
        rows = {what: self._given(X, what, value) for what, value in rows.items()}
        real = ~np.isnan(y) & (y != np.floor(y))
        if likelihood == "poisson" and real.any() and rows["trials"] is None:
            warnings.warn(
                f"{name}: y{first_value(real, y)} is not a whole number; y is taken as a quasi-Poisson target, and "
                "elbo_ is then no log probability of the data.",
                UserWarning,
                stacklevel=3,
            )
            likelihood = Poisson(integer=False)
        if self.noise_variance is not None:
            if not (isinstance(likelihood, str) and likelihood == "gaussian"):
                given = f'likelihood="{likelihood}"' if isinstance(likelihood, str) else f"likelihood={likelihood!r}"
                advice = "" if isinstance(likelihood, str) else "A Likelihood brings its own parameters."
                got = f"noise_variance meets {given}"
                raise problem(name, got, 'noise_variance with "gaussian" alone', advice)
            likelihood = Gaussian(float(self.noise_variance))
        bound = self.bound if isinstance(likelihood, str) else "best"
        return read_observations(name, likelihood, bound, y, rows, weights, bool(self.intercept), bool(self.learn))

    # -- prediction --------------------------------------------------------------------------------
    def _predictors(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        codes, columns = self._rows(self._frame(X, reset=False), new=True)
        blocks = [effect.design(code) for effect, code in zip(self._effects, codes, strict=True)]
        ones = np.ones((columns.shape[0], int(self._intercept)))
        tail = np.hstack([ones, self._columns.standardise(columns)])
        design = sp.hstack([*blocks, sp.csr_array(tail)], format="csr")
        h, rho = self.solution_.posterior.predict(design=design, offset=self._offset)
        for (effect, theta), code in zip(self._thetas(), codes, strict=True):
            rho = rho + effect.unseen(code, theta)
        return h, rho

    def _moments(self, X: Any, **rows: Any) -> tuple[Likelihood, np.ndarray, np.ndarray]:
        h, rho = self._predictors(X)
        frame = self._frame(X, reset=False)
        found = {what: self._given(frame, what, value, new=True) for what, value in rows.items()}
        new = at_rows(type(self).__name__, self._fitted, h.shape[0], found)
        return Poisson(new.exposure, integer=False) if isinstance(new, Poisson) else new, h, rho

    def predict(self, X: Any, exposure: Any = None, trials: Any = None) -> np.ndarray:
        """The mean of y (M,), the posterior's uncertainty integrated out: a count, a number of successes, a value.

        Without exposure it is a rate, without trials a probability. Regions and times without data are predicted too,
        and a group of an "iid" effect that fit has not seen: from the population, with mean 0 and the effect's
        variance. Of a frame only the columns that the model uses are needed, in any order.
        """
        return np.asarray(self._mean_of(self._moments(X, exposure=exposure, trials=trials), with_std=False))

    def _scored(self, y: Any, n: int) -> np.ndarray:
        return target_of(type(self).__name__, np.empty(n), y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        own = known(self.likelihood)
        tags.target_tags.positive_only = own is not None and own.support in ("count", "positive")
        return tags
