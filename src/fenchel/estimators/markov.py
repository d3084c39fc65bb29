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
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ..checks import choice, finite, first_value, numeric, positive, problem
from ..hyperparameters import Family
from ..likelihoods import BernoulliLogit, Binomial, Gaussian, Poisson
from ..likelihoods.base import Likelihood
from .base import LatentGaussianEstimator
from .classification import _levels
from .effects import Effect, joined, read
from .gaussian_process import _weights
from .predictive import draws, mean_quantiles
from .predictive import quantiles as quantiles_of
from .tables import EffectTables


class GMRFRegressor(RegressorMixin, EffectTables, LatentGaussianEstimator):
    """Regression with structured effects on regions, times and groups, and a certificate.

    Parameters
    ----------
    effects : dict
        Column of X -> the field over its values:
        ``"iid"``, ``"rw1"``, ``"rw2"``, ``"ar1"``, ``("seasonal", period)`` for groups and times;
        ``("icar" | "bym" | "bym2" | "leroux", graph)`` for regions, the graph a scipy sparse or dense adjacency matrix,
        a pandas frame of it (its index names the regions), {region: neighbours}, a networkx graph or libpysal weights;
        ``("generic", structure)``. A third entry holds starting values: ``("bym2", graph, {"precision": 4.0})``.
        A second-order walk brings its linear trend along, a seasonal effect its season, unless ``{"trend": False}``.
    likelihood : {"poisson", "binomial", "bernoulli", "gaussian"}
    fixed : "rest", None or list of columns
        Covariates: by default every column that is nothing else.
    levels : dict, optional
        Column -> its levels in order. Needed for regions that the graph does not name (their default is 0, 1, ...), and
        to reach times or groups beyond the data. Default in time: every step from the first to the last.
    exposure, trials : column of X, optional
        Where ``fit``, ``predict`` and ``score`` find them when they are not given as arrays.
    intercept : bool
    fixed_variance : float
        Prior variance of the intercept and of each coefficient, on the scale of the data as they come. For Gaussian
        noise it is in units of the variance of y, and the intercept's prior is about the mean of y.
    learn : bool
        Learn the hyperparameters by the evidence, or keep the starting values.
    priors : "pc", None or dict
        Priors of the hyperparameters. "pc": penalised complexity, exponential with P(sd > 1) = 0.01, for the typical
        standard deviation of an effect over its levels ("leroux": 1/sqrt(precision); Gaussian noise: sd of y for 1);
        logit phi and logit rho are N(0, 1.8^2), nearly uniform on (0, 1); 2 atanh phi of "ar1" is N(2, 1.5^2).
        None: flat. {effect: {"precision": (u, a), "phi": Normal(...)}}: P(sd > u) = a, any prior of
        ``fenchel.hyperparameters``, or None for flat; what is not named keeps its default.
    noise_variance : float, optional
        Where the variance of Gaussian noise starts; default: half that of y.
    bound : {"tilted", "log-sum"}
        For "binomial" and "bernoulli".
    n_restarts : int
    tol : float
        Relative duality gap of every fit.
    random_state : int, RandomState or None
        Of the restarts.

    Attributes
    ----------
    effects_ : dict of pandas frames
        Of each effect, by level: mean, sd, lower, upper (95 %), n (observations), and for counts and proportions the
        relative risk (odds ratio) with its interval and the probability that it is above 1.
    fixed_effects_ : pandas frame, the same for the intercept and the coefficients
    coef_, coef_std_, coef_names_, intercept_
    hyperparameters_ : pandas frame
        Precisions, shares, correlations, and the typical sd of each effect they amount to.
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
        likelihood: str = "poisson",
        *,
        fixed: Any = "rest",
        levels: Any = None,
        exposure: Any = None,
        trials: Any = None,
        intercept: bool = True,
        fixed_variance: float = 100.0,
        learn: bool = True,
        priors: Any = "pc",
        noise_variance: float | None = None,
        bound: str = "tilted",
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
    def fit(self, X: Any, y: Any, exposure: Any = None, trials: Any = None, sample_weight: Any = None) -> GMRFRegressor:
        """Fit, and learn the hyperparameters.

        Parameters
        ----------
        X : pandas frame (N, D), or an array whose columns are named 0, 1, ...
        y : array (N,)
            NaN where unobserved: such rows are predicted like any other.
        exposure : array (N,), optional
            "poisson": expected counts, person-years: y ~ Poisson(exposure * exp(eta)). 0 means unobserved.
        trials : array (N,)
            "binomial": how many of whom y are the successes.
        sample_weight : array (N,), optional
            Multiplies each row's log-likelihood.
        """
        name = type(self).__name__
        choice(name, "likelihood", self.likelihood, ("poisson", "binomial", "bernoulli", "gaussian"))
        X = self._frame(X, reset=True)
        y = _target(name, X, y)
        seen = y[~np.isnan(y)]
        gaussian = self.likelihood == "gaussian"
        self._scale = (float(np.std(seen)) or 1.0) if gaussian else 1.0
        self._offset = float(np.mean(seen)) if gaussian and self.intercept else 0.0
        self._effects = self._read(X)
        self._covariates = self._fixed_columns(X)
        self._codes, self._columns = self._rows(X)
        self._likelihood = self._data(X, y, exposure, trials)
        self._counts = [np.bincount(c[~np.isnan(y)], minlength=len(e.levels)) for e, c in self._parts()]
        self._learn(y, _weights(sample_weight, X), self.learn, self.n_restarts, self.random_state)
        if self.theta_.size > sum(len(e.build().names) for e in self._effects):
            self.theta_names_[-1] = "log noise variance"
        return self

    def _model(self) -> tuple[Likelihood, Family]:
        variance = numeric(type(self).__name__, "fixed_variance", self.fixed_variance)
        positive(type(self).__name__, "fixed_variance", variance, "A flat prior is improper: use 100 or 1e4.")
        model = {
            "intercept": bool(self.intercept),
            "fixed_variance": float(self.fixed_variance) * self._scale**2,
            "offset": self._offset,
            "priors": self._checked_priors(),
        }
        fixed = self._columns if self._columns.shape[1] else None
        return self._likelihood, joined(self._effects, self._codes, fixed, model)

    def _checked_priors(self) -> Any:
        if isinstance(self.priors, Mapping):
            unknown = [key for key in self.priors if key not in self.effects]
            if unknown:
                raise problem(type(self).__name__, f"priors name {unknown[0]!r}", f"one of {list(self.effects)}")
        else:
            choice(type(self).__name__, "priors", self.priors, ("pc", None), "Or give a dict, {effect: priors}.")
        return self.priors

    def _parts(self) -> list[tuple[Effect, np.ndarray]]:
        return list(zip(self._effects, self._codes, strict=True))

    # -- reading X ---------------------------------------------------------------------------------
    def _frame(self, X: Any, reset: bool) -> Any:
        """X with columns by name (a frame) or by number (an array); scikit-learn checks names and numbers of them."""
        if getattr(getattr(X, "dtype", None), "names", None):  # a structured array
            import pandas as pd

            X = pd.DataFrame.from_records(X)
        if not hasattr(X, "columns"):
            X = check_array(X, dtype=None, ensure_all_finite=False, estimator=self, input_name="X")
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _column(self, X: Any, name: Any) -> Any:
        known = list(X.columns) if hasattr(X, "columns") else list(range(X.shape[1]))
        if name not in known:
            names = ", ".join(repr(k) for k in known[:8]) + (", ..." if len(known) > 8 else "")
            advice = "" if hasattr(X, "columns") else "The columns of an array are numbers; a pandas frame has names."
            raise problem(type(self).__name__, f"X has no column {name!r}", f"one of {names}", advice)
        return X[name] if hasattr(X, "columns") else X[:, name]

    def _read(self, X: Any) -> list[Effect]:
        where = type(self).__name__
        if not isinstance(self.effects, Mapping) or not self.effects:
            example = 'a dict such as {"district": ("bym2", adjacency), "year": "rw2"}'
            advice = "With covariates alone use BayesianPoissonRegression or BayesianLogisticRegression."
            raise problem(where, f"effects = {self.effects!r}", example, advice)
        levels = {} if self.levels is None else self.levels
        if not isinstance(levels, Mapping) or any(key not in self.effects for key in levels):
            got = f"levels of {list(levels) if isinstance(levels, Mapping) else type(levels).__name__}"
            raise problem(where, got, f"a dict whose keys are among {list(self.effects)}")
        items = self.effects.items()
        out = [read(where, n, spec, self._column(X, n), levels.get(n), self._scale) for n, spec in items]
        self.levels_ = {effect.name: effect.levels for effect in out}
        return out

    def _fixed_columns(self, X: Any) -> list[Any]:
        taken = [*self.effects, *(c for c in (self.exposure, self.trials) if c is not None)]
        if self.fixed is None:
            return []
        if isinstance(self.fixed, str):
            choice(type(self).__name__, "fixed", self.fixed, ("rest", None), "Or list the columns: fixed=[...].")
            known = list(X.columns) if hasattr(X, "columns") else list(range(X.shape[1]))
            return [name for name in known if name not in taken]
        return list(self.fixed)

    def _rows(self, X: Any) -> tuple[list[np.ndarray], np.ndarray]:
        """The node of each row in each effect, and the columns of the fixed effects (N, p)."""
        codes = [effect.codes(self._column(X, effect.name)) for effect in self._effects]
        columns = [self._numbers(X, name) for name in self._covariates]
        for effect, code in zip(self._effects, codes, strict=True):
            columns += list(effect.free()[1][code].T)
        return codes, np.stack(columns, axis=1) if columns else np.zeros((X.shape[0], 0))

    def _numbers(self, X: Any, name: Any) -> np.ndarray:
        where, column = type(self).__name__, self._column(X, name)
        advice = f'Make it an effect, {{{name!r}: "iid"}}, encode it, or name the covariates in fixed=[...].'
        try:
            values = np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError):
            raise problem(where, f"the covariate {name!r} is not numbers", "a number in every row", advice) from None
        return finite(where, f"X[{name!r}]", values, "Fill in missing covariates first.")

    def _given(self, X: Any, what: str, value: Any) -> np.ndarray | None:
        """Exposure or trials (N,): the argument, the column the constructor names, or None."""
        column = getattr(self, what)
        if value is None and column is None:
            return None
        values = self._column(X, column) if value is None else value
        out = numeric(type(self).__name__, what, values)
        if out.ndim > 1 or (out.ndim == 1 and out.shape[0] != X.shape[0]):
            raise problem(type(self).__name__, f"{what} has shape {out.shape}", f"a number or ({X.shape[0]},)")
        return np.broadcast_to(out, (X.shape[0],))

    def _data(self, X: Any, y: np.ndarray, exposure: Any, trials: Any) -> Likelihood:
        """The likelihood of the training rows."""
        name = type(self).__name__
        exposure, trials = self._given(X, "exposure", exposure), self._given(X, "trials", trials)
        for what, value, owner in (("exposure", exposure, "poisson"), ("trials", trials, "binomial")):
            if value is not None and self.likelihood != owner:
                raise problem(name, f'{what} meets likelihood="{self.likelihood}"', f'{what} with "{owner}" alone')
        if self.likelihood == "poisson":
            real = ~np.isnan(y) & (y != np.floor(y))
            if real.any():
                warnings.warn(
                    f"{name}: y{first_value(real, y)} is not a whole number; y is taken as a quasi-Poisson target, and "
                    "elbo_ is then no log probability of the data.",
                    UserWarning,
                    stacklevel=3,
                )
            return Poisson(exposure, integer=not real.any())
        if self.likelihood == "binomial":
            if trials is None:
                raise problem(name, "trials is missing", "the trials of each row", "Call fit(X, y, trials=n).")
            return Binomial(trials, self.bound)
        if self.likelihood == "bernoulli":
            return BernoulliLogit(self.bound)
        return Gaussian(self._scale**2 / 2 if self.noise_variance is None else float(self.noise_variance))

    # -- prediction --------------------------------------------------------------------------------
    def _predictors(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        codes, columns = self._rows(self._frame(X, reset=False))
        blocks = [effect.design(code) for effect, code in zip(self._effects, codes, strict=True)]
        ones = np.ones((columns.shape[0], int(self.intercept)))
        design = sp.hstack([*blocks, sp.csr_array(np.hstack([ones, columns]))], format="csr")
        return self.solution_.posterior.predict(design=design, offset=self._offset)

    def _at(self, X: Any, exposure: Any, trials: Any) -> Likelihood:
        """The likelihood of new rows."""
        if self.likelihood == "poisson":
            return Poisson(self._given(X, "exposure", exposure), integer=False)
        if self.likelihood == "binomial":
            n = self._given(X, "trials", trials)
            return Binomial(1.0 if n is None else n, self.bound)
        return self.likelihood_

    def _moments(self, X: Any, exposure: Any, trials: Any) -> tuple[Likelihood, np.ndarray, np.ndarray]:
        h, rho = self._predictors(X)
        return self._at(self._frame(X, reset=False), exposure, trials), h, rho

    def predict(self, X: Any, exposure: Any = None, trials: Any = None) -> np.ndarray:
        """The mean of y (M,), the posterior's uncertainty integrated out: a count, a number of successes, a value.

        Without exposure it is a rate, without trials a probability. Regions and times without data are predicted too.
        """
        likelihood, h, rho = self._moments(X, exposure, trials)
        return np.asarray(likelihood.predictive_mean(h, rho))

    def predict_rate(self, X: Any, quantiles: Any = (0.025, 0.5, 0.975)) -> np.ndarray:
        """Posterior quantiles (M, Q) of the rate per unit of exposure, of the probability, or of a Gaussian's mean."""
        check_is_fitted(self)
        return mean_quantiles(self.likelihood_, *self._predictors(X), _levels(type(self).__name__, quantiles))

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.025, 0.5, 0.975), exposure: Any = None, trials: Any = None
    ) -> np.ndarray:
        """Quantiles of the y that will be seen: (M, Q)."""
        likelihood, h, rho = self._moments(X, exposure, trials)
        return quantiles_of(likelihood, h, rho, _levels(type(self).__name__, quantiles))

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, exposure: Any = None, trials: Any = None
    ) -> np.ndarray:
        """Draws from the posterior predictive distribution of each row: (M, n_samples)."""
        likelihood, h, rho = self._moments(X, exposure, trials)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        return draws(likelihood, h, rho, int(n_samples), rng)

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, trials: Any = None) -> float:
        """The mean log predictive density of the observed y (larger is better); rows with y = NaN do not count."""
        likelihood, h, rho = self._moments(X, exposure, trials)
        y = _target(type(self).__name__, X, y)
        density = np.asarray(likelihood.predictive_log_density(y, h, rho))
        seen = ~np.isnan(density)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)[seen]
        return float(np.average(density[seen], weights=weights))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.regressor_tags.poor_score = True  # the score is a log density, not R^2
        return tags


def _target(where: str, X: Any, y: Any) -> np.ndarray:
    """y (N,), NaN where unobserved."""
    if y is None:
        raise ValueError(f"{where}: requires y to be passed, but the target y is None.")
    if hasattr(y, "iloc") and y.ndim == 1 and y.dtype.kind not in "OSU":
        y = y.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas' nullable columns too
    out = numeric(where, "y", column_or_1d(y, warn=True))
    check_consistent_length(X, out)
    if np.isnan(out).all():
        raise problem(where, "every y is NaN", "at least one observed row")
    return out
