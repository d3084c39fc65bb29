"""Bayesian generalised linear models: eta = sum_d w_d (x_d - mean_d) / sd_d + b, w_d ~ N(0, v_{g(d)}).

    "ridge"   one v for all coefficients        "ard"   one v for each coefficient, learned with a common prior

Columns are centred and scaled internally, so that the fit does not depend on their units and the intercept b has its
prior at the mean of X; coefficients are reported for X as it is. Matrices are L x L, with L = features + 1, and X is
not copied: a Newton iteration is a few passes over X, so there may be millions of rows. The prior variance of the
intercept is not learned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, cast

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from .. import gates
from ..checks import choice, numeric, positive, problem
from ..hyperparameters import Family, Learned, WeightVariances, learn, learn_relevance
from ..hyperparameters.weights import laplace_theta
from ..inputs.fixed_columns import centres_and_units
from ..inputs.observations import Target
from ..likelihoods.base import Targets
from ..linalg.dense import semidefinite_root
from ..linalg.standardized import ColumnMoments, Contrasts, Standardized, column_moments
from ..marginals import NormalMarginals
from ..posterior import Posterior
from ..priors.base import NewRows
from ..solvers.initial_point import SHARE, is_enough, sample
from .base import LatentGaussianEstimator, validate_data
from .classification import Classification
from .counts import Counts
from .dask_rows import fit_partitioned
from .latent import Latent, Moments, fitted_at

_CHUNK = 1 << 20  # numbers of a temporary in prediction
_LAPLACE_COEFFICIENTS = 3000  # coefficients of all classes up to which the variance is learned by Laplace's evidence


class WeightsLatent(Latent):
    """eta = sum_d w_d (x_d - shift_d) / unit_d + b, with prior variances of the weights w in groups.

    Parameters
    ----------
    columns : (shift, rounding error of shift, unit), arrays (D,)
    constant : array (D,) of bool
        Columns that are constant, so that nothing remains after centring.
    X : array (N, D) or scipy sparse
    groups, variance, mean : arrays (L,)
        As in ``WeightVariances``; L is D, or D + 1 with an intercept.
    **options : of ``WeightVariances``
    """

    by_mode: bool = False  # whether the variance is learned by Laplace's evidence rather than the elbo

    def __init__(
        self, columns: Any, constant: Any, X: Any, groups: Any, variance: Any, mean: Any, **options: Any
    ) -> None:
        self.columns, self.groups, self.variance, self.mean, self.options = columns, groups, variance, mean, options
        self.constant, self.design, self.X = constant, self.standardized(X), X
        self.design.drop(constant)
        self.settled = self.design.shape[0] >= self.design.shape[1]  # whether the weights suffice for prediction
        self.spread: float | None = None  # standard deviation of the log variances, for prior="ard"
        self.roots: list[np.ndarray] | None = None  # T with T T' = Cov of the weights; None with more weights than rows

    def rows(self) -> Any:
        return self.X

    def standardized(self, X: Any) -> Standardized:
        shift, rest, unit = self.columns
        return Standardized(X, shift, unit, self.groups.size > unit.size, rest)

    def family(self, rows: Any = None) -> WeightVariances:
        design = self.design if rows is None else self.design.take(rows)
        return WeightVariances(design, self.groups, self.variance, self.mean, **self.options)

    def learn(self, target: Target, family: Family, own: bool, **options: Any) -> Learned:
        likelihood, y, n_groups = target.likelihood, target.y, int(self.groups.max()) + 1
        if self.by_mode:
            theta = laplace_theta(likelihood, family, Targets(likelihood, y, options["weights"]))
            kept = {key: options[key] for key in ("weights", "tol", "progress")}
            return fitted_at(target, family, theta, **kept)
        if n_groups and is_enough(self.design.shape[0], self.design.shape[1] * likelihood.n_predictors):
            likelihood, family = self._begin(target, own, options["weights"]), self.family()
        if n_groups < 2:
            return learn(likelihood, family, y, learn_likelihood=own, **options)
        result = learn_relevance(likelihood, cast(WeightVariances, family), y, learn_likelihood=own, **options)
        self.spread = result.width
        return result

    def _begin(self, target: Target, own: bool, weights: Any) -> Any:
        """Start from the variances that a sample of very many rows has: they are nearly those of all rows."""
        keep = sample(self.design.shape[0])
        each = SHARE * (np.ones(keep.size) if weights is None else weights[keep])
        if not (each > 0.0).any():
            return target.likelihood
        family, few = self.family(keep).shared(), target.likelihood.take(keep)
        result = learn(few, family, target.y[keep], weights=each, learn_likelihood=own, tol=1e-8)
        self.variance = family.variances_at(result.theta[: family.theta.size])
        return target.likelihood.with_theta(result.likelihood.theta) if own else target.likelihood

    def settle(self, posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
        """Store the moments that prediction needs without X; return mean and sd of the weights, arrays (L, C)."""
        L = self.design.shape[1]
        self.means = np.reshape(np.asarray(posterior.latent_mean), (L, -1))
        if self.settled:
            V = np.asarray(posterior.latent_covariance())
            blocks = [V] if V.ndim == 2 else list(V)  # one covariance of all classes, or one for each
            self.roots = [np.asarray(semidefinite_root(block)) for block in blocks]
        return self.means, np.sqrt(np.reshape(np.asarray(posterior.latent_variance), (L, -1)))

    def covariance(self, posterior: Posterior) -> np.ndarray:
        """Posterior covariance (C, D, D) of the coefficients for X as it is."""
        D, unit = self.columns[2].size, self.columns[2]
        L = self.design.shape[1]
        if self.roots is not None:
            halves = [half[:D] for T in self.roots for half in np.split(T, T.shape[0] // L)]
            V = np.stack([half @ half.T for half in halves])
        else:
            full = np.asarray(posterior.latent_covariance())
            each = [full[i : i + L, i : i + L] for i in range(0, full.shape[-1], L)] if full.ndim == 2 else list(full)
            V = np.stack(each)[:, :D, :D]
        return np.asarray(V / unit[:, None] / unit)

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        return NewRows(design=self.standardized(table).toarray())

    def blocks(self, table: Any) -> Iterable[Any]:
        step = max(1, _CHUNK // table.shape[1])
        return (table[i : i + step] for i in range(0, table.shape[0], step))

    def moments(self, posterior: Posterior, theta: np.ndarray, table: Any, mean_only: bool = False) -> Moments:
        if self.roots is None:
            return super().moments(posterior, theta, table, mean_only)
        design = self.standardized(table)
        h = np.stack([design.times(m) for m in self.means.T], axis=1)
        C = h.shape[1]
        if len(self.roots) < C and not mean_only:
            return h, Contrasts([design] * C, np.eye(C)).covariances(self.roots[0])
        rho = np.zeros_like(h) if mean_only else np.stack([design.row_squares(T) for T in self.roots], axis=1)
        return (h[:, 0], rho[:, 0]) if h.shape[1] == 1 else (h, rho)


@dataclass(eq=False, repr=False)
class LinearModel(LatentGaussianEstimator):
    """Base class of the linear models: their parameters, and the fit of a target."""

    prior: str = "ridge"
    _: KW_ONLY
    variance: Any = 1.0
    learn_variance: bool = True
    fit_intercept: bool = True
    intercept_variance: float = 100.0
    standardize: bool = True
    variance_bounds: tuple[float, float] = (1e-6, 1e6)
    tol: float = 1e-10

    _accepted = {"dtype": np.float64, "accept_sparse": "csr", "order": "C"}  # noqa: RUF012

    def _fit(self, X: Any, target: Target, weights: Any) -> Self:
        own = self.learn_likelihood and target.likelihood.theta.size > 0
        latent, mean = self._latent_of(column_moments(X, weights), X, target, own)
        latent.by_mode = self._by_mode(latent, target)
        self._learn(target, latent, weights, self.learn_variance or own, own=own)
        return self._reported(target, latent, mean)

    def _by_mode(self, latent: WeightsLatent, target: Target) -> bool:
        """Whether the variance is learned by Laplace's evidence rather than the elbo."""
        return False

    def _fit_partitions(self, X: Any, y: Any, weight: Any, checkpoint: Any, **rows: Any) -> Self:
        fit_partitioned(self, X, y, weight, checkpoint, **rows)
        return self

    def _take(self, result: Learned, target: Target, latent: WeightsLatent, mean: float) -> None:
        """Set the fitted attributes from the fit of a Dask collection."""
        self._target, self._latent, self._weights, self.integrated_ = target, latent, None, None
        latent.spread = getattr(result, "width", None)
        self._keep(result, latent.family())
        self._reported(target, latent, mean)

    def _reported(self, target: Target, latent: WeightsLatent, mean: float) -> Self:
        """Set the coefficients for X as it is, and the learned variance."""
        if latent.spread is not None:
            self.relevance_spread_ = latent.spread
        self.mean_, self.scale_ = mean + self._shift, target.scale
        D, unit = self.n_features_in_, self.feature_scale_
        mean_, std = latent.settle(self.solution_.posterior)
        self.coef_: np.ndarray = mean_[:D].T / unit
        self.coef_std_: np.ndarray = std[:D].T / unit
        self.intercept_: Any = np.zeros(mean_.shape[1])
        self.intercept_std_: Any = np.zeros(mean_.shape[1])
        if self.fit_intercept:  # the intercept is eta at x = 0
            zero = latent.moments(self.solution_.posterior, self.theta_, np.zeros((1, D)))
            eta = NormalMarginals.of(*zero)
            h, rho = (np.reshape(x, (1, -1))[0] for x in (eta.mean, eta.variance))
            self.intercept_, self.intercept_std_ = h + self._shift, np.sqrt(rho)
        if not is_classifier(self):
            self.coef_, self.coef_std_ = self.coef_[0], self.coef_std_[0]
            self.intercept_, self.intercept_std_ = float(self.intercept_[0]), float(self.intercept_std_[0])
        family = latent.family()
        v = family.variances_at(self.theta_[: family.n_groups])[:D] / target.scale**2
        self.variance_ = float(v[0]) if self.prior == "ridge" else v
        return self

    def _latent_of(self, moments: ColumnMoments, X: Any, target: Target, own: bool) -> tuple[WeightsLatent, float]:
        """The latent of the standardised columns of X and an intercept; and the prior mean of the intercept."""
        name, D, scale = type(self).__name__, X.shape[1], target.scale
        mean = target.level if self._centred else 0.0
        choice(name, "prior", self.prior, ("ridge", "ard"))
        v = positive(name, "variance", numeric(name, "variance", self.variance))
        if v.shape not in ((), (D,)):
            raise problem(name, f"variance has shape {v.shape}", f"a number, or ({D},): one for each feature")
        if self.prior == "ridge" and np.unique(v).size > 1:
            advice = 'Use prior="ard" for one variance for each feature.'
            raise problem(name, 'prior = "ridge" has one variance', "a number", advice)
        groups, start = np.zeros(D, dtype=int) if self.prior == "ridge" else np.arange(D), np.broadcast_to(v, (D,))
        shift, rest, unit, constant = centres_and_units(
            name, moments, self._columns(), bool(self.fit_intercept), bool(self.standardize)
        )
        self.feature_mean_, self.feature_scale_ = shift, unit
        if self.fit_intercept and not target.likelihood.ordered:
            positive(name, "intercept_variance", self.intercept_variance)
            groups, start = np.append(groups, -1), np.append(start, float(self.intercept_variance))
        bounds = self.variance_bounds
        if not (len(bounds) == 2 and 0.0 < bounds[0] <= bounds[1] < np.inf):
            raise problem(name, f"variance_bounds = {bounds!r}", "a pair 0 < lower <= upper of finite numbers")
        if not self.learn_variance and own:
            groups = np.full_like(groups, -1)
        about = np.append(np.zeros(D), mean)[: groups.size]
        words = ["log variance"] if self.prior == "ridge" else [f"log variance {name}" for name in self._columns()]
        options = {"bounds": (bounds[0] * scale**2, bounds[1] * scale**2), "names": words}
        return WeightsLatent((shift, rest, unit), constant, X, groups, start * scale**2, about, **options), mean

    def summary(self) -> str:
        """A page on the fit: how far it is from the best Gaussian, then the coefficients with their sds."""
        import pandas as pd

        check_is_fitted(self, "coef_")
        pairs = (self.coef_, self.intercept_), (self.coef_std_, self.intercept_std_)
        index: Any = [*self._columns(), *["Intercept"] * bool(self.fit_intercept)]
        every = (np.column_stack([np.atleast_2d(b), np.atleast_1d(constant)]) for b, constant in pairs)
        mean, sd = (each[:, : len(index)].ravel() for each in every)
        if mean.size > len(index):
            index = pd.MultiIndex.from_product([self.classes_, index])
        table = pd.DataFrame({"mean": mean, "sd": sd}, index)
        return (
            f"{self.solution_.summary()}\n\ncoefficients\n{table.to_string(max_rows=60, float_format='{:.4g}'.format)}"
        )

    @property
    def _centred(self) -> bool:
        return bool(self.fit_intercept) and not is_classifier(self)

    def _table(self, X: Any) -> Any:
        return validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")

    @property
    def coef_cov_(self) -> np.ndarray:
        """Posterior covariance of the coefficients: (D, D), or (K, D, D) for each of K classes."""
        check_is_fitted(self, "coef_")
        V = cast(WeightsLatent, self._latent).covariance(self.solution_.posterior)
        return V[0] if V.shape[0] == 1 else V

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = False
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class BayesianLogisticRegression(LinearModel, Classification):
    """Logistic regression with the posterior of its coefficients: binary, or of several classes jointly by a softmax.

    The prior variance of the coefficients (C of scikit-learn) is learned by the evidence, without cross-validation.
    There may be millions of rows with hundreds of features. Rows that do not fit in memory are given as a Dask array or
    dataframe, which is read about six times.

    Columns are centred and scaled internally: the fit does not depend on their units, and coefficients are reported for
    X as it is. No ``StandardScaler`` is needed. A constant column has coefficient 0 with its prior standard deviation.

    Parameters
    ----------
    prior : {"ridge", "ard"}, default "ridge"
        One prior variance for all coefficients, or one for each feature (automatic relevance determination). "ard" is
        for tables in which few of many features matter, also with fewer rows than features. The log variances are then
        normal about a common level, with a standard deviation that is learned: it is large if few features matter, so
        that the coefficients of the others shrink to zero, and small if all do. "ard" takes about ten times as long.
    variance : float or array (D,), default 1.0
        Prior variance of the coefficients of standardised columns, or its starting value: that of coefficient d is
        ``variance / feature_scale_[d] ** 2``. It is C of ``sklearn.linear_model`` after a ``StandardScaler``.
    learn_variance : bool, default True
        Learn the prior variance by the evidence, or keep it.
    fit_intercept : bool, default True
        Without an intercept nothing is centred, and eta is 0 at x = 0.
    intercept_variance : float, default 100.0
        Prior variance of eta at the mean of X, about 0; not learned.
    standardize : bool, default True
        Whether prior variances refer to standardised columns, or to X as it is.
    bound : {"best", "exact", "tilted", "log-sum"}, default "best"
        Treatment of the likelihood. "exact": exact expectations, no bound. "tilted": the tightest convex bound, with
        standard deviations of each class as if the other classes were known. "log-sum": the bound of the paper.
        "best" is "exact" for two classes, and for up to 15 if columns and intercept times classes are at most 300 and
        rows times classes at most 10,000 (some ten seconds); else "tilted", and the variance of "ridge" is then learned
        by Laplace's evidence, because the elbo of that bound would learn too small a one. For "ard", more than 3,000
        coefficients and Dask collections it is learned by the elbo all the same.
    variance_bounds : pair of float, default (1e-6, 1e6)
        Bounds of a learned variance.
    class_weight : None, "balanced" or dict of label to weight, default None
        As in ``GaussianProcessClassifier``.
    tol : float, default 1e-10
        Relative duality gap at which every fit ends. Coefficients are about sqrt(2 * gap_) posterior standard
        deviations from their optimum, and the evidence grows with the rows; hence the small default.

    Attributes
    ----------
    coef_, coef_std_ : arrays (1, D), or (K, D) for K > 2 classes
        Posterior means and standard deviations of the coefficients.
    intercept_, intercept_std_ : arrays (1,) or (K,)
        Posterior mean and standard deviation of eta at x = 0.
    coef_cov_ : array (D, D) or (K, D, D)
        Posterior covariance of the coefficients.
    variance_ : float or array (D,)
        The learned prior variance, in the units of ``variance``.
    relevance_spread_ : float
        With a learned prior="ard": standard deviation of the log variances, from 0.25 (all features alike) to 4.
    feature_mean_, feature_scale_ : arrays (D,)
        Weighted mean and standard deviation of each column; without an intercept 0 and the root mean square. A constant
        column has its absolute value in place of the standard deviation, a column of zeros 1.
    classes_, n_classes_, n_features_in_, feature_names_in_
        As in scikit-learn.
    elbo_, gap_, n_iter_, solution_, theta_, converged_
        See ``LatentGaussianEstimator``. ``solution_`` holds X itself, not a copy; fitted to a Dask collection it holds
        no rows.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from fenchel.estimators import BayesianLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BayesianLogisticRegression().fit(X, y)
    >>> model.converged_, model.coef_.shape, bool((model.predict(X) == y).mean() > 0.97)
    (True, (1, 30), True)
    """

    bound: str = "best"
    class_weight: Any = None

    def _is_joint(self, X: Any, n_classes: int) -> bool:
        coefficients = (X.shape[1] + bool(self.fit_intercept)) * n_classes
        few = coefficients <= gates.EXACT_SOFTMAX_WEIGHTS and X.shape[0] * n_classes <= gates.EXACT_SOFTMAX_ROWS
        return few and n_classes <= gates.EXACT_SOFTMAX_CLASSES

    def _by_mode(self, latent: WeightsLatent, target: Target) -> bool:
        likelihood = target.likelihood
        few = latent.design.shape[1] * likelihood.n_predictors <= _LAPLACE_COEFFICIENTS
        several = likelihood.n_predictors > 1 and likelihood.objective.convex
        return self.bound == "best" and self.prior == "ridge" and several and few


@dataclass(eq=False, repr=False)
class BayesianPoissonRegression(LinearModel, Counts):
    """Poisson regression, y ~ Poisson(exposure * exp(X w + b)), with the posterior of its coefficients.

    Parameters
    ----------
    prior, variance, learn_variance, fit_intercept, intercept_variance, standardize, variance_bounds, tol
        As in ``BayesianLogisticRegression``; the prior mean of eta at the mean of X is ``mean_``.

    Attributes
    ----------
    coef_, coef_std_ : arrays (D,)
        Posterior means and standard deviations of the coefficients.
    intercept_, intercept_std_ : float
        Posterior mean and standard deviation of eta at x = 0.
    coef_cov_ : array (D, D)
        Posterior covariance of the coefficients.
    mean_ : float
        Logarithm of the overall rate, sum(y) / sum(exposure); 0 without an intercept.
    variance_, feature_mean_, feature_scale_, n_features_in_, feature_names_in_
    elbo_, gap_, n_iter_, solution_, theta_, converged_
        As in ``BayesianLogisticRegression``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators import BayesianPoissonRegression
    >>> rng = np.random.default_rng(0)
    >>> X, years = rng.normal(size=(200, 3)), rng.uniform(1, 5, 200)
    >>> y = rng.poisson(years * np.exp(0.5 + X @ [0.3, 0.0, -0.2]))
    >>> model = BayesianPoissonRegression("ard").fit(X, y, exposure=years)
    >>> bool(np.abs(model.coef_ - [0.3, 0.0, -0.2]).max() < 0.15)
    True
    """
