"""Gaussian processes with the interface of scikit-learn's: kernels in, certificates out."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..checks import choice
from ..hyperparameters import Family, KernelCovariance
from ..kernels import diagonal, evaluate
from ..likelihoods.base import Likelihood
from .base import validate_data, weights_of
from .classification import Classification
from .counts import Counts


class GaussianProcess:
    """The kernel's side of an estimator."""

    kernel: Any
    kernel_: Any
    optimizer: str | None

    def _start_kernel(self) -> Any:
        """A kernel that is ours alone: the user's is never changed."""
        choice(type(self).__name__, "optimizer", self.optimizer, ("fmin_l_bfgs_b", None))
        if self.kernel is not None:
            return clone(self.kernel)
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel

        v = self._scale() ** 2
        return ConstantKernel(v, (1e-3 * v, 1e4 * v)) * RBF(1.0, (1e-2, 1e3))

    def _begin(self, X: np.ndarray) -> None:
        self.X_train_ = np.array(X) if self.copy_X_train else X  # type: ignore[attr-defined]
        warm = self.warm_start and hasattr(self, "kernel_")  # type: ignore[attr-defined]
        self._kernel_start = clone(self.kernel_) if warm else self._start_kernel()

    def _finish(self) -> None:
        n = self._kernel_start.n_dims
        self.kernel_ = self._kernel_start.clone_with_theta(self.theta_[:n])  # type: ignore[attr-defined]

    def _mean(self) -> float:
        return 0.0

    def _scale(self) -> float:
        """Of the latent function, where the kernel is ours to choose."""
        return 1.0

    def _family(self) -> Family:
        return KernelCovariance(self._kernel_start, self.X_train_, mean=self._mean())

    def _predictors(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        posterior = self.solution_.posterior  # type: ignore[attr-defined]
        cross = evaluate(self.kernel_, X, self.X_train_)
        h, rho = posterior.predict(cross=cross, variance=np.maximum(diagonal(self.kernel_, X), 0.0))
        return np.asarray(h), np.asarray(rho)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.non_deterministic = False
        return tags


class GaussianProcessClassifier(GaussianProcess, Classification):
    """Gaussian process classification: binary, or all classes jointly by one softmax.

    A replacement for ``sklearn.gaussian_process.GaussianProcessClassifier`` with one import changed. The approximation
    is the best Gaussian in Kullback and Leibler's sense rather than Laplace's, and every fit carries a proof of
    convergence.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, optional
        Default: ``1.0 * RBF(1.0)`` with both parameters learned (scikit-learn's own default learns nothing).
    optimizer : "fmin_l_bfgs_b" or None
        Learn the kernel's free hyperparameters by the evidence, or keep them.
    n_restarts_optimizer : int
        Further starts within the kernel's bounds.
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

    Attributes
    ----------
    kernel_ : the kernel with its learned hyperparameters
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
        bound: str = "best",
        warm_start: bool = False,
        copy_X_train: bool = True,
        tol: float = 1e-10,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.bound = bound
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.tol = tol
        self.random_state = random_state

    def _model(self) -> tuple[Likelihood, Family]:
        return self._class_likelihood(self.bound), self._family()

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
        self._begin(X)
        weights = weights_of(sample_weight, X)
        self._learn(encoded, weights, self.optimizer is not None, self.n_restarts_optimizer, self.random_state)
        self._finish()
        return self


class GaussianProcessPoissonRegressor(GaussianProcess, Counts):
    """Counts with a Gaussian process for the log rate: y ~ Poisson(exposure * exp(f(x))).

    Parameters
    ----------
    kernel, optimizer, n_restarts_optimizer, warm_start, copy_X_train, tol, random_state
        As in ``GaussianProcessClassifier``.
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
        mean: str | float = "rate",
        warm_start: bool = False,
        copy_X_train: bool = True,
        tol: float = 1e-10,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.mean = mean
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.tol = tol
        self.random_state = random_state

    def _mean(self) -> float:
        return self.mean_

    def _model(self) -> tuple[Likelihood, Family]:
        return self._poisson, self._family()

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
        self.mean_ = overall_log_rate(y, self._poisson.exposure, weights) if self.mean == "rate" else float(self.mean)
        self._begin(X)
        self._learn(y, weights, self.optimizer is not None, self.n_restarts_optimizer, self.random_state)
        self._finish()
        return self


def overall_log_rate(y: np.ndarray, exposure: Any, weights: Any) -> float:
    """log of counts per exposure over all rows; half a count when there are none."""
    w = np.ones(y.size) if weights is None else weights
    E = np.ones(y.size) if exposure is None else exposure
    return float(np.log(max(float(w @ y), 0.5) / max(float(w @ E), 1e-300)))
