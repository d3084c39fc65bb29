"""Bayesian generalised linear models: eta = sum_d w_d (x_d - mean_d) / sd_d + b, w_d ~ N(0, v_{g(d)}).

    "ridge"   one v for all coefficients        "ard"   one v for each, as far apart as the evidence warrants

Columns are centred and scaled inside, so that a fit does not depend on their units and the prior of the intercept b is
one at the middle of the data; coefficients are reported for X as it is. The work is done with L x L matrices, L =
features + 1, so that rows may be millions: a Newton iteration is a few passes over X, of which no copy is made. The
variance of the intercept is not learned.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..checks import choice, numeric, positive, problem
from ..hyperparameters import Family, Learned, WeightVariances, learn, learn_relevance
from ..likelihoods import Poisson
from ..likelihoods.base import Likelihood
from ..linalg.dense import semidefinite_root
from ..linalg.standardized import Standardized
from ..solvers.row_sample import SHARE, is_enough, sample
from .base import validate_data, weights_of
from .classification import Classification
from .counts import Counts
from .standardize import centres_and_units

_CHUNK = 1 << 20  # numbers of a temporary in prediction


class LinearModel:
    """The weights' side of an estimator."""

    prior: str
    variance: Any
    learn_variance: bool
    fit_intercept: bool
    intercept_variance: float
    standardize: bool
    feature_mean_: np.ndarray
    feature_scale_: np.ndarray
    variance_bounds: tuple[float, float]

    def _begin(self, X: Any, weights: np.ndarray | None) -> None:
        """Keep the design: the columns of X about their means, in units of their standard deviations, and ones."""
        name = type(self).__name__
        choice(name, "prior", self.prior, ("ridge", "ard"))
        D = X.shape[1]
        v = positive(name, "variance", numeric(name, "variance", self.variance))
        if v.shape not in ((), (D,)):
            raise problem(name, f"variance has shape {v.shape}", f"a number, or ({D},): one a feature")
        if self.prior == "ridge" and np.unique(v).size > 1:
            raise problem(name, 'prior = "ridge" has one variance', "a number", 'Use prior="ard" for one a feature.')
        self._groups = np.zeros(D, dtype=int) if self.prior == "ridge" else np.arange(D)
        self._start = np.broadcast_to(v, (D,)) * self._scale() ** 2
        names, centre = self._columns(), bool(self.fit_intercept)
        self.feature_mean_, self._rest, self.feature_scale_, constant = centres_and_units(
            name, X, weights, names, centre, bool(self.standardize)
        )
        self._design = self._standardized(X)
        self._design.drop(constant)
        if self._has_intercept():
            positive(name, "intercept_variance", self.intercept_variance)
            self._groups = np.append(self._groups, -1)
            self._start = np.append(self._start, float(self.intercept_variance) * self._scale() ** 2)

    def _columns(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", [f"x{d}" for d in range(self.n_features_in_)]))  # type: ignore[attr-defined]

    def _standardized(self, X: Any) -> Standardized:
        return Standardized(X, self.feature_mean_, self.feature_scale_, self._has_intercept(), self._rest)

    def _has_intercept(self) -> bool:
        return bool(self.fit_intercept)

    def _mean(self) -> float:
        """The prior mean of the intercept at the mean of X."""
        return 0.0

    def _scale(self) -> float:
        """Of eta: prior standard deviations are in units of it."""
        return 1.0

    def _family_of(self, design: Any) -> WeightVariances:
        bounds = self.variance_bounds
        if not (len(bounds) == 2 and 0.0 < bounds[0] <= bounds[1] < np.inf):
            raise problem(
                type(self).__name__, f"variance_bounds = {bounds!r}", "a pair 0 < lower <= upper of finite numbers"
            )
        mean, v = np.zeros(self._groups.size), self._scale() ** 2
        mean[self.n_features_in_ :] = self._mean()  # type: ignore[attr-defined]
        return WeightVariances(design, self._groups, self._start, mean, bounds=(bounds[0] * v, bounds[1] * v))

    @abstractmethod
    def _likelihood(self, rows: Any = slice(None)) -> Likelihood:
        """Of the training data, or of some rows of it."""

    def _model(self) -> tuple[Likelihood, Family]:
        return self._likelihood(), self._family_of(self._design)

    def _begin_learning(self, y: np.ndarray, weights: Any) -> None:
        """With very many rows a sample of them says nearly what the variances will be: start there."""
        n, L = self._design.shape
        if not (self.learn_variance and is_enough(n, L * self._likelihood().n_predictors)):
            return
        keep = sample(n)
        each = SHARE * (np.ones(keep.size) if weights is None else weights[keep])
        if (each > 0.0).any():
            family = self._family_of(self._design.take(keep))
            family = family.shared() if family.n_groups else family
            own = self._learns_likelihood()
            found = learn(self._likelihood(keep), family, y[keep], weights=each, learn_likelihood=own, tol=1e-8)
            self._start = family.variances_at(found.theta[: family.theta.size])
            if own:
                self._begin_at(found.likelihood.theta)

    def _search(self, likelihood: Likelihood, family: Any, y: np.ndarray, **options: Any) -> Learned:
        if self.prior == "ridge" or family.n_groups < 2:
            return learn(likelihood, family, y, **options)
        found = learn_relevance(likelihood, family, y, **options)
        self.relevance_spread_ = found.width
        return found

    def _learns_likelihood(self) -> bool:
        return False

    def _begin_at(self, theta: np.ndarray) -> None:
        """Start the likelihood's own parameters there."""

    def _finish(self) -> None:
        """Coefficients and what prediction needs; X and the fit are not asked again."""
        posterior, D, L = self.solution_.posterior, self.n_features_in_, self._design.shape[1]  # type: ignore[attr-defined]
        mean = np.reshape(np.asarray(posterior.latent_mean), (L, -1))
        std = np.sqrt(np.reshape(np.asarray(posterior.latent_variance), (L, -1)))
        self._weights_mean, unit = mean, self.feature_scale_
        self.coef_, self.coef_std_ = mean[:D].T / unit, std[:D].T / unit
        self._roots: list[np.ndarray] | None = None  # T T' = Cov of the weights; with more weights than rows too large
        if self._design.shape[0] >= L:
            V = np.reshape(np.asarray(posterior.latent_covariance()), (-1, L, L))
            self._roots = [np.asarray(semidefinite_root(block)) for block in V]
        self.intercept_: Any = np.zeros(mean.shape[1])
        self.intercept_std_: Any = np.zeros(mean.shape[1])
        if self.fit_intercept:  # eta at x = 0
            h, rho = (np.reshape(x, (1, -1))[0] for x in self._eta(np.zeros((1, D))))
            self.intercept_, self.intercept_std_ = h + self._shift, np.sqrt(rho)  # type: ignore[attr-defined]
        family, theta = self._family_of(self._design), self.theta_  # type: ignore[attr-defined]
        v = family.variances_at(theta[: family.n_groups])[:D] / self._scale() ** 2
        self.variance_ = float(v[0]) if self.prior == "ridge" else v
        words = ["log variance"] if self.prior == "ridge" else [f"log variance {name}" for name in self._columns()]
        self.theta_names_[: family.n_groups] = words[: family.n_groups]  # type: ignore[attr-defined]

    @property
    def coef_cov_(self) -> np.ndarray:
        """Posterior covariance of the coefficients: (D, D), or (K, D, D) for the K classes, independent under q."""
        check_is_fitted(self, "coef_")
        D, unit = self.coef_.shape[-1], self.feature_scale_
        if self._roots is not None:
            V = np.stack([T[:D] @ T[:D].T for T in self._roots])
        else:
            full = np.asarray(self.solution_.posterior.latent_covariance())  # type: ignore[attr-defined]
            V = np.reshape(full, (-1, *full.shape[-2:]))[:, :D, :D]
        V = V / unit[:, None] / unit
        return V[0] if V.shape[0] == 1 else V

    def _predictors(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        return self._eta(validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr"))

    def _eta(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of eta: (M,), or (M, K)."""
        if self._roots is None:
            step = max(1, _CHUNK // X.shape[1])
            chunks = [self._standardized(X[i : i + step]).toarray() for i in range(0, X.shape[0], step)]
            parts = [self.solution_.posterior.predict(design=chunk) for chunk in chunks]  # type: ignore[attr-defined]
            h, rho = (np.concatenate([np.asarray(x) for x in column]) for column in zip(*parts, strict=True))
            return h, rho
        design = self._standardized(X)
        h = np.stack([design.times(m) for m in self._weights_mean.T], axis=1)
        rho = np.stack([design.row_squares(T) for T in self._roots], axis=1)
        return (h[:, 0], rho[:, 0]) if h.shape[1] == 1 else (h, rho)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.non_deterministic = False
        return tags


class BayesianLogisticRegression(LinearModel, Classification):
    """Logistic regression with the posterior of its coefficients: binary, or all classes jointly by one softmax.

    The prior variance, scikit-learn's C, is learned from the data by the evidence; nothing is cross-validated. Millions
    of rows with hundreds of features are fine.

    With more than two classes the evidence is a bound that loosens as the variance grows, so that the learned variance
    tends to be smaller than the one that predicts best. Where that matters give ``variance=...,
    learn_variance=False``, chosen by ``GridSearchCV`` say.

    Columns are centred and scaled inside: the fit does not depend on their units, no ``StandardScaler`` is needed, and
    coefficients are for X as it is. A constant column has a coefficient of 0 with the standard deviation of its prior.

    Parameters
    ----------
    prior : {"ridge", "ard"}
        One variance for all coefficients, or one for each feature (automatic relevance determination). "ard" is for
        tables in which few of many features may matter, rows fewer than features included: log variances are normal
        about a common level, and the width of that normal is learned too. Where few features matter it is wide and the
        others go to zero; where all do it is narrow, and the fit is ridge's. It costs about ten times ridge.
    variance : float or array (D,)
        Prior variance of the coefficients of standardised columns, or where learning starts: that of coefficient d is
        ``variance / feature_scale_[d] ** 2``. It is C of ``sklearn.linear_model`` after a ``StandardScaler``.
    learn_variance : bool
        Maximise the evidence over it, or keep it.
    fit_intercept : bool
        Without one nothing is centred: eta is 0 at x = 0.
    intercept_variance : float
        Prior variance, about 0, of eta at the mean of X; never learned.
    standardize : bool
        Whether variances are those of standardised columns, or those of coefficients on the scale of X.
    bound : {"best", "exact", "tilted", "log-sum"}
        "best": exact expectations, no bound at all, for two classes; the tightest convex bound, "tilted", for more.
        "log-sum" is the paper's bound.
    variance_bounds : pair of float
        Where a learned variance may lie.
    tol : float
        Relative duality gap of every fit. It is small because the evidence it is relative to grows with the rows, while
        the coefficients are about sqrt(2 * gap_) posterior standard deviations from their optimum.

    Attributes
    ----------
    coef_, coef_std_ : arrays (1, D), or (K, D) for K > 2 classes
        Posterior mean and standard deviation.
    intercept_, intercept_std_ : arrays (1,) or (K,)
        Of eta at x = 0.
    coef_cov_ : array (D, D) or (K, D, D)
    variance_ : float or array (D,)
        As learned, in the sense of ``variance``.
    relevance_spread_ : float
        prior="ard", learned: the standard deviation of the log variances, from 0.25 (all features alike) to 4.
    feature_mean_, feature_scale_ : arrays (D,)
        Weighted mean and standard deviation of each column, 0 and the root mean square without an intercept. The size
        of a constant column stands in for its standard deviation, 1 for that of zeros.
    classes_, n_classes_, n_features_in_, feature_names_in_
    elbo_, gap_, n_iter_, solution_, theta_, converged_ : see ``LatentGaussianEstimator``
        ``solution_`` holds X itself, not a copy.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from fenchel.estimators import BayesianLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BayesianLogisticRegression().fit(X, y)
    >>> model.converged_, model.coef_.shape, bool((model.predict(X) == y).mean() > 0.97)
    (True, (1, 30), True)
    """

    def __init__(
        self,
        prior: str = "ridge",
        *,
        variance: Any = 1.0,
        learn_variance: bool = True,
        fit_intercept: bool = True,
        intercept_variance: float = 100.0,
        standardize: bool = True,
        bound: str = "best",
        variance_bounds: tuple[float, float] = (1e-6, 1e6),
        tol: float = 1e-10,
    ) -> None:
        self.prior = prior
        self.variance = variance
        self.learn_variance = learn_variance
        self.fit_intercept = fit_intercept
        self.intercept_variance = intercept_variance
        self.standardize = standardize
        self.bound = bound
        self.variance_bounds = variance_bounds
        self.tol = tol

    def _likelihood(self, rows: Any = slice(None)) -> Likelihood:
        return self._class_likelihood(self.bound)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianLogisticRegression:
        """Fit, and learn the variance.

        Parameters
        ----------
        X : array (N, D) or scipy sparse
        y : labels (N,), of any kind
        sample_weight : array (N,), optional
            Multiplies each row's log-likelihood; 2 is the row seen twice, 0 leaves it out.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", order="C")
        encoded = self._encode(y)
        weights = weights_of(sample_weight, X)
        self._begin(X, weights)
        self._begin_learning(encoded, weights)
        self._learn(encoded, weights, self.learn_variance)
        self._finish()
        return self


class BayesianPoissonRegression(LinearModel, Counts):
    """Counts with a linear log rate, y ~ Poisson(exposure * exp(X w + b)), and the posterior of its coefficients.

    Parameters
    ----------
    prior, variance, learn_variance, fit_intercept, intercept_variance, standardize, variance_bounds, tol
        As in ``BayesianLogisticRegression``; the prior of eta at the mean of X is about ``mean_``.

    Attributes
    ----------
    coef_, coef_std_ : arrays (D,)
        Posterior mean and standard deviation.
    intercept_, intercept_std_ : float
    coef_cov_ : array (D, D)
    mean_ : float
        The logarithm of the overall rate, sum y / sum exposure; 0 without an intercept.
    variance_, feature_mean_, feature_scale_, n_features_in_, feature_names_in_
    elbo_, gap_, n_iter_, solution_, theta_, converged_ : as in ``BayesianLogisticRegression``

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

    def __init__(
        self,
        prior: str = "ridge",
        *,
        variance: Any = 1.0,
        learn_variance: bool = True,
        fit_intercept: bool = True,
        intercept_variance: float = 100.0,
        standardize: bool = True,
        variance_bounds: tuple[float, float] = (1e-6, 1e6),
        tol: float = 1e-10,
    ) -> None:
        self.prior = prior
        self.variance = variance
        self.learn_variance = learn_variance
        self.fit_intercept = fit_intercept
        self.intercept_variance = intercept_variance
        self.standardize = standardize
        self.variance_bounds = variance_bounds
        self.tol = tol

    def _mean(self) -> float:
        return self.mean_

    def _likelihood(self, rows: Any = slice(None)) -> Likelihood:
        E = self._poisson.exposure
        return Poisson(None if E is None else E[rows], self._poisson.integer)

    def fit(self, X: Any, y: Any, exposure: Any = None, sample_weight: Any = None) -> BayesianPoissonRegression:
        """Fit, and learn the variance.

        Parameters
        ----------
        X : array (N, D) or scipy sparse
        y : counts (N,)
            Real numbers >= 0 are taken, with a warning.
        exposure : array (N,), optional
            What each count is relative to: expected counts, person-years, area. Default: 1.
        sample_weight : array (N,), optional
        """
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", order="C", y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        self._poisson = self._counts(y, exposure)
        weights = weights_of(sample_weight, X)
        self.mean_ = self._poisson.level(y, weights) if self.fit_intercept else 0.0
        self._begin(X, weights)
        self._begin_learning(y, weights)
        self._learn(y, weights, self.learn_variance)
        self._finish()
        self.coef_, self.coef_std_ = self.coef_[0], self.coef_std_[0]
        self.intercept_, self.intercept_std_ = float(self.intercept_[0]), float(self.intercept_std_[0])
        return self
