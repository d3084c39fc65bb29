"""Gaussian processes with the interface of scikit-learn's: kernels in, certificates out."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..checks import choice, positive, problem
from ..hyperparameters import Evidence, Family, KernelCovariance
from ..kernels import diagonal, evaluate
from ..likelihoods.base import Likelihood
from ..posterior import Posterior
from .base import validate_data, weights_of
from .classification import Classification
from .counts import Counts
from .large import announce
from .lengths import best_kernel, default_kernels, few_rows

_SEEN, _UNRELATED = 500, 1e-3  # rows looked at, and the correlation below which none of them is related to another
_ROUGH = 1e-3  # relative gap of the fits that choose where the default kernel starts
_BLOCK = 1 << 21  # entries of the covariance of new rows with the training rows made at once: 16 MiB


class GaussianProcess:
    """The kernel's side of an estimator: eta = mean + level + f(x), level ~ N(0, v), f ~ GP(0, kernel)."""

    kernel: Any
    kernel_: Any
    optimizer: str | None
    fit_intercept: bool
    intercept_variance: float

    def _begin(self, X: np.ndarray, y: np.ndarray, weights: Any) -> None:
        """A kernel that is ours alone: the user's is never changed."""
        choice(type(self).__name__, "optimizer", self.optimizer, ("fmin_l_bfgs_b", None))
        v = float(positive(type(self).__name__, "intercept_variance", np.float64(self.intercept_variance)))
        self._level = v * self._scale() ** 2 if self._has_intercept() else 0.0  # the constant's prior variance
        self.X_train_ = np.array(X) if self.copy_X_train else X  # type: ignore[attr-defined]
        if self.warm_start and hasattr(self, "kernel_"):  # type: ignore[attr-defined]
            self._kernel_start = clone(self.kernel_)
        elif self.kernel is not None:
            self._kernel_start = self._own_kernel(X)
        else:
            self._kernel_start = self._default_kernel(y, weights)
        n_theta = self._kernel_start.n_dims if self.optimizer is not None else 0
        announce(type(self).__name__, X.shape[0], max(2, getattr(self, "n_classes_", 2)), n_theta)

    def _own_kernel(self, X: np.ndarray) -> Any:
        """A copy of the user's kernel, which must understand the columns of X."""
        name, example = type(self).__name__, "a kernel of sklearn.gaussian_process.kernels, such as 1.0 * RBF(1.0)"
        if not hasattr(self.kernel, "clone_with_theta"):
            raise problem(name, f"kernel = {self.kernel!r}", example, "None starts from the distances in X.")
        out = clone(self.kernel)
        try:
            out(X[:1])
        except ValueError as error:
            got = f"kernel = {self.kernel!r} does not fit {X.shape[1]} columns ({error})"
            raise problem(name, got, "one length for all columns, or one for each") from None
        return out

    def _default_kernel(self, y: np.ndarray, weights: Any) -> Any:
        likelihood = self._likelihood()
        own = [getattr(likelihood, key) for key in likelihood.row_parameters]
        columns = [value for value in own if np.ndim(value) == 1]
        rows, w = few_rows(np.column_stack([self.X_train_, y, *columns]), weights)
        X, few = self.X_train_[rows], likelihood.take(rows)

        kernels = default_kernels(X, self._scale() ** 2)
        evidence = Evidence(few, self._family(kernels[0], X), y[rows], weights=w, tol=_ROUGH, own=False)

        def value(kernel: Any) -> float:
            evidence.family = self._family(kernel, X)
            evidence.begin(evidence.last)
            return evidence.fit(evidence.family.theta).elbo

        return best_kernel(kernels, value)

    def _finish(self) -> None:
        n = self._kernel_start.n_dims
        self.kernel_ = self._kernel_start.clone_with_theta(self.theta_[:n])  # type: ignore[attr-defined]
        self._warn_unrelated()

    def _warn_unrelated(self) -> None:
        """A length far below every distance makes the kernel matrix diagonal: nothing is learned from other rows."""
        X = self.X_train_[:: max(1, self.X_train_.shape[0] // _SEEN)]
        distinct = np.unique(X, axis=0)
        if distinct.shape[0] < 2:
            return
        K = evaluate(self.kernel_, distinct)
        own = np.sqrt(np.diagonal(K))
        related = np.abs(K) / np.maximum(np.outer(own, own), np.finfo(float).tiny)
        np.fill_diagonal(related, 0.0)
        if related.max() < _UNRELATED:
            warnings.warn(
                f"{type(self).__name__}: under {self.kernel_} no row is related to any other (correlations below "
                f"{_UNRELATED:g}), so that predictions elsewhere are the prior's. Where rows are far apart or columns "
                "of different units, scale X (StandardScaler), or leave kernel=None, which starts from its distances.",
                UserWarning,
                stacklevel=3,
            )

    @abstractmethod
    def _likelihood(self) -> Likelihood:
        """Of the training data."""

    def _mean(self) -> Any:
        """The prior mean of eta: a number, or one for each class (K,)."""
        return 0.0

    def _scale(self) -> float:
        """Of the latent function, where the kernel is ours to choose."""
        return 1.0

    def _has_intercept(self) -> bool:
        return bool(self.fit_intercept)

    def _model(self) -> tuple[Likelihood, Family]:
        return self._likelihood(), self._family(self._kernel_start, self.X_train_)

    def _family(self, kernel: Any, X: np.ndarray) -> Family:
        # the mean as an offset: classes share a matrix
        return KernelCovariance(kernel, X, offset=np.reshape(self._mean(), (1, -1)), level=self._level)

    def _predictors(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        def one(X: np.ndarray) -> tuple[Any, ...]:
            prior = np.maximum(diagonal(self.kernel_, X), 0.0) + self._level
            return self._posterior.predict(cross=self._cross(X), variance=prior, offset=self._mean_at(X))

        h, rho = self._in_blocks(X, one)
        return h, rho

    def _latent_mean(self, X: Any) -> np.ndarray:
        def one(X: np.ndarray) -> tuple[Any, ...]:
            return (self._posterior.predict_mean(cross=self._cross(X), offset=self._mean_at(X)),)

        return self._in_blocks(X, one)[0]

    def _cross(self, X: np.ndarray) -> np.ndarray:
        """Covariance of new rows with the training rows (M, N)."""
        out = evaluate(self.kernel_, X, self.X_train_)
        return out + self._level if self._level else out

    def _mean_at(self, X: np.ndarray) -> np.ndarray:
        """The prior mean of eta at X, (M, 1) or (M, K)."""
        return np.broadcast_to(self._mean(), (X.shape[0], np.size(self._mean())))

    @property
    def _posterior(self) -> Posterior:
        return self.solution_.posterior  # type: ignore[attr-defined]

    def _in_blocks(self, X: Any, one: Callable[[np.ndarray], tuple[Any, ...]]) -> list[np.ndarray]:
        """``one`` of blocks of new rows, so that no covariance with the training rows is ever whole."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        step = max(1, _BLOCK // self.X_train_.shape[0])
        parts = [one(X[i : i + step]) for i in range(0, X.shape[0], step)]
        return [np.concatenate(each) for each in zip(*parts, strict=True)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.non_deterministic = False
        return tags


class GaussianProcessClassifier(GaussianProcess, Classification):
    """Gaussian process classification: binary, or all classes jointly by one softmax.

    A replacement for ``sklearn.gaussian_process.GaussianProcessClassifier`` with one import changed. The approximation
    is the best Gaussian in Kullback and Leibler's sense rather than Laplace's, and every fit carries a proof of
    convergence.

    With more than two classes the evidence is a bound that loosens as the latent variance grows, so that the variance
    of a learned kernel tends to be smaller than the one that predicts best. Where that matters keep it,
    ``ConstantKernel(v, "fixed") * RBF(...)``, with v chosen by cross-validation.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, optional
        Default: a constant times an RBF, both parameters learned (scikit-learn's own default learns nothing). Its
        length starts at a share of the typical distance between rows, and where columns differ in scale each may be
        divided by its standard deviation (``ScaledRBF``): a few rows' evidence decides.
    optimizer : "fmin_l_bfgs_b" or None
        Learn the kernel's free hyperparameters by the evidence, or keep them.
    n_restarts_optimizer : int
        Further starts within the kernel's bounds.
    fit_intercept : bool
        Add a constant to the latent function, integrated out: a priori N(mean_, intercept_variance), one a class for
        several. Without it a kernel that falls to 0 far from the data predicts even odds there.
    intercept_variance : float
        Never learned; wide on the scale of log odds.
    bound : {"best", "exact", "tilted", "log-sum"}
        "best": exact expectations, no bound at all, for two classes; the tightest convex bound, "tilted", for more.
        "log-sum" is the paper's bound.
    warm_start : bool
        Start the next ``fit`` at the kernel of the last.
    copy_X_train : bool
    tol : float
        Relative duality gap of every fit.
    random_state : int, RandomState or None
        Of the restarts.
    progress : bool
        Draw a live line while fitting.

    Attributes
    ----------
    kernel_ : the kernel with its learned hyperparameters
    mean_ : float or array (K,)
        The prior mean: with an intercept the log odds of all rows, or the logs of the classes' shares; 0 without one.
    classes_, n_classes_, X_train_, n_features_in_, feature_names_in_
    elbo_, gap_, n_iter_, solution_, theta_, converged_ : see ``LatentGaussianEstimator``

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fenchel.estimators import GaussianProcessClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianProcessClassifier().fit(X[::3], y[::3])
    >>> model.converged_, bool((model.predict(X) == y).mean() > 0.9)
    (True, True)
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        optimizer: str | None = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        fit_intercept: bool = True,
        intercept_variance: float = 10.0,
        bound: str = "best",
        warm_start: bool = False,
        copy_X_train: bool = True,
        tol: float = 1e-10,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.fit_intercept = fit_intercept
        self.intercept_variance = intercept_variance
        self.bound = bound
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.tol = tol
        self.random_state = random_state
        self.progress = progress

    def _mean(self) -> Any:
        return self.mean_

    def _likelihood(self) -> Likelihood:
        return self._class_likelihood(self.bound)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GaussianProcessClassifier:
        """Fit, and learn the kernel.

        Parameters
        ----------
        X : array (N, D)
        y : labels (N,), of any kind
        sample_weight : array (N,), optional
            Multiplies each row's log-likelihood; 2 is the row seen twice, 0 leaves it out.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        encoded = self._encode(y)
        weights = weights_of(sample_weight, X)
        self.mean_ = self._levels(encoded, weights) if self._has_intercept() else 0.0
        self._begin(X, encoded, weights)
        self._learn(encoded, weights, self.optimizer is not None, self.n_restarts_optimizer, self.random_state)
        self._finish()
        return self


class GaussianProcessPoissonRegressor(GaussianProcess, Counts):
    """Counts with a Gaussian process for the log rate: y ~ Poisson(exposure * exp(f(x))).

    Parameters
    ----------
    kernel, optimizer, n_restarts_optimizer, fit_intercept, intercept_variance, warm_start, copy_X_train, tol
    random_state, progress
        As in ``GaussianProcessClassifier``; the intercept is of the log rate, about ``mean_``.
    mean : "rate" or float
        The prior mean of the log rate: that of the overall rate, or a number.

    Attributes
    ----------
    kernel_, mean_, X_train_, n_features_in_, feature_names_in_
    elbo_, gap_, n_iter_, solution_, theta_, converged_ : see ``LatentGaussianEstimator``

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators import GaussianProcessPoissonRegressor
    >>> x = np.linspace(0, 6, 40)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    >>> model = GaussianProcessPoissonRegressor().fit(x, y)
    >>> model.predict_quantiles(x[:1], [0.5]).shape
    (1, 1)
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        optimizer: str | None = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        fit_intercept: bool = True,
        intercept_variance: float = 10.0,
        mean: str | float = "rate",
        warm_start: bool = False,
        copy_X_train: bool = True,
        tol: float = 1e-10,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.fit_intercept = fit_intercept
        self.intercept_variance = intercept_variance
        self.mean = mean
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.tol = tol
        self.random_state = random_state
        self.progress = progress

    def _mean(self) -> float:
        return self.mean_

    def _likelihood(self) -> Likelihood:
        return self._poisson

    def fit(self, X: Any, y: Any, exposure: Any = None, sample_weight: Any = None) -> GaussianProcessPoissonRegressor:
        """Fit, and learn the kernel.

        Parameters
        ----------
        X : array (N, D)
        y : counts (N,)
            Real numbers >= 0 are taken, with a warning.
        exposure : array (N,), optional
            What each count is relative to: expected counts, person-years, area. Default: 1.
        sample_weight : array (N,), optional
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        self._poisson = self._counts(y, exposure)
        weights = weights_of(sample_weight, X)
        self.mean_ = self._poisson.level(y, weights) if self.mean == "rate" else float(self.mean)
        self._begin(X, y, weights)
        self._learn(y, weights, self.optimizer is not None, self.n_restarts_optimizer, self.random_state)
        self._finish()
        return self
