"""Regression with any likelihood: y ~ p(y | eta), where eta is a Gaussian process or linear in X.

    eta = mean + f(x), f ~ GP(0, kernel)              eta = X w + b, w_d ~ N(0, v / sd(x_d)^2)

``likelihood`` is a name or a Likelihood. Its parameters (a noise variance, a shape, cutpoints) are learned by the
evidence, together with the hyperparameters of the prior. The prior mean of eta is the link of the mean of y. If eta is
on the scale of y (Gaussian, Laplace, logistic and Student-t noise), the default kernel and the prior variances of the
weights are in units of the variance of y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state

from ..checks import count, numeric, problem
from ..inputs.observations import known
from ..likelihoods import Gaussian
from ..linalg.arrays import ArrayLike
from .any_likelihood import AnyLikelihood
from .base import generator
from .dask_rows import by_partition
from .gaussian_process import GaussianProcessEstimator
from .linear import LinearModel
from .outputs import check_targets, fit_outputs, known_noise, prior_draws, prior_prediction, together, units_of


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianProcessRegressor(AnyLikelihood, GaussianProcessEstimator):
    """Gaussian process regression with any likelihood.

    It is close to ``sklearn.gaussian_process.GaussianProcessRegressor`` with three differences: the noise variance is
    learned, ``return_std`` includes the noise, and y may be counts, amounts, durations, proportions or ordered levels.

    y may have several columns (N, J): outputs with the same kernel and noise variance, independent given these. Results
    then have one more axis, as in scikit-learn: means (M, J), covariances (M, M, J), draws (M, J, n_samples).

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, default None
        Covariance function of eta. None: chosen by the evidence, as in ``GaussianProcessClassifier``.
    likelihood : str or Likelihood, default "gaussian"
        Noise about eta: "gaussian", "laplace", "logistic", "student-t". Counts: "poisson", "negative-binomial",
        "zero-inflated-poisson". Amounts: "gamma". Durations, which may be censored: "exponential", "weibull".
        Proportions: "beta". Successes: "binomial", "bernoulli", "probit". Ordered levels: "ordinal", "ordinal-probit".
        Its parameters are learned, except for the 4 degrees of freedom of "student-t", which
        ``fenchel.StudentT(learn_df=True)`` learns too.
    mean : "link", "zero", "constant", "linear", float or callable, default "link"
        Prior mean of eta. "link" (and "constant"): the link of the mean of y; of the median for heavy-tailed noise; 0
        for ordered levels, which have cutpoints. "zero", "linear", a number and a function of X: as in
        ``GaussianProcessClassifier``, with slopes in units of the standard deviation of y if eta is on its scale. The
        hazard of "weibull" is shape * t^(shape - 1) * exp(eta), with t in the units of y.
    bound : str, default "best"
        "best": exact expectations if the likelihood has them; or the name of one of its bounds.
    optimizer : "fmin_l_bfgs_b", None or callable, default "fmin_l_bfgs_b"
        Learn the kernel and the parameters of the likelihood by the evidence, or keep them (None).
    learn_likelihood : bool, default True
        Whether the parameters of the likelihood are learned.
    fit_intercept : bool, default True
        Add a constant with prior N(mean_, intercept_variance) to the latent function; it is integrated out. Ordered
        levels have cutpoints instead.
    intercept_variance : float, default 10.0
        Prior variance of the constant, in units of the variance of y if eta is on its scale; not learned.
    alpha : float or array (N,), optional
        Known noise variances of the training rows, as in scikit-learn. The noise is then not learned, and ``predict``,
        ``sample_y`` and ``predict_quantiles`` are for the function without noise. In squared units of y, or of
        (y - mean) / sd with ``normalize_y``. Default: the noise variance is learned, and predictions include it.
    normalize_y : bool, default False
        Whether the kernel, ``alpha`` and a ``mean`` that is a number or a function are in units of (y - mean) / sd.
        Slopes of mean="linear" remain in units of y. The default kernel follows the scale of y in any case.
    n_targets : int, optional
        Number of columns of y, needed only for ``predict`` and ``sample_y`` before ``fit``.
    n_restarts_optimizer, warm_start, copy_X_train, tol, random_state, progress, integrate, n_jobs
    approximation, n_inducing, loss, n_neighbors, device, slope_variance, categorical_features
        As in ``GaussianProcessClassifier``.

    Attributes
    ----------
    kernel_ : kernel
        The kernel with its learned hyperparameters.
    likelihood_ : Likelihood
        The likelihood with its learned parameters.
    mean_ : float or callable
        Prior mean of eta.
    coef_, coef_std_ : arrays (D,)
        Posterior means and standard deviations of the slopes of mean="linear".
    intercept_, intercept_std_ : float
        Posterior mean and standard deviation of the prior mean at x = 0.
    classes_ : array
        The labels or levels in order, for "bernoulli", "probit" and ordinal likelihoods.
    kernel_choice_, approximation_, approximation_loss_, X_train_, n_features_in_, feature_names_in_
        As in ``GaussianProcessClassifier``.
    elbo_, gap_, n_iter_, solution_, theta_, theta_names_, converged_
        See ``LatentGaussianEstimator``.
    outputs_ : list of GaussianProcessRegressor or None
        The fit of each column of y, if it has several; ``elbo_`` and ``gap_`` are then sums.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators import GaussianProcessRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(2 * x[:, 0]) + 0.1 * rng.standard_t(2, 60)
    >>> model = GaussianProcessRegressor(likelihood="laplace").fit(x, y)
    >>> mean, sd = model.predict(x, return_std=True)
    >>> bool(np.abs(mean - np.sin(2 * x[:, 0])).mean() < 0.1), model.converged_
    (True, True)
    """

    mean: Any = "link"
    alpha: Any = None
    normalize_y: bool = False
    n_targets: int | None = None
    _handed_on: ClassVar[str] = "kernel_ and likelihood_"
    _several_outputs = True

    @property
    def _of_function(self) -> bool:
        return self.alpha is not None

    @property
    def _learns_likelihood(self) -> bool:
        return bool(self.learn_likelihood) and self.alpha is None

    def _likelihood_of(self, y: np.ndarray) -> Any:
        if self.alpha is None:
            return self.likelihood
        return Gaussian(self._units.sd**2 * known_noise(type(self).__name__, self.alpha, self.likelihood, y.shape[0]))

    def _fit_rows(self, X: Any, y: np.ndarray, weights: Any, rows: dict[str, Any], words: Any) -> Self:
        name, own = type(self).__name__, known(self.likelihood)
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        check_targets(name, self.n_targets, 1 if y.ndim == 1 else y.shape[1])
        if self.normalize_y and (own is None or not own.noise):
            got = f"normalize_y=True with likelihood = {self.likelihood!r}"
            raise problem(name, got, 'noise about eta, such as likelihood="gaussian"')
        if y.ndim == 2:
            if any(value is not None for value in rows.values()):
                raise problem(name, "exposure, trials or event of several outputs", "none of them")
            fit_outputs(self, X, y, weights)
            return self
        self.outputs_, self._units = None, units_of(self.normalize_y, y, weights)
        return super()._fit_rows(X, y, weights, rows, words)

    @by_partition
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> Any:
        """Predictive mean of y, with the uncertainty of eta integrated out; before ``fit`` the mean of the prior.

        Parameters
        ----------
        X : array (M, D)
        return_std : bool, default False
            Also return the standard deviation: of y, noise included, or of the function if ``alpha`` is given.
        return_cov : bool, default False
            Also return the covariance (M, M) of the same, if y is eta plus noise.
        exposure, trials : float or array (M,), default 1

        Returns
        -------
        mean : array (M,), or (mean, sd), or (mean, covariance); of J outputs with a last axis of size J
        """
        if return_std and return_cov:
            got = "At most one of return_std or return_cov can be requested, and both are"
            raise problem(type(self).__name__, got, "one of them")
        if "theta_" not in vars(self):
            return prior_prediction(self, self._table(X), return_std, return_cov)
        if self.outputs_ is not None:
            given = {"exposure": exposure, "trials": trials}
            return together([one.predict(X, return_std, return_cov, **given) for one in self.outputs_])
        if self.alpha is None:
            return super().predict(X, return_std, return_cov, exposure=exposure, trials=trials)
        if return_cov:
            return self.latent_mean_and_variance(X)[0], self._joint_covariance(X)
        mean, variance = self.latent_mean_and_variance(X)
        return (mean, np.sqrt(variance)) if return_std else mean

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> np.ndarray:
        """Draw y (M, n_samples), or (M, J, n_samples) of J outputs; each column is a joint draw of all rows.

        With ``alpha`` the function is drawn, without noise; before ``fit`` it is drawn from the prior.
        """
        size = count(type(self).__name__, "n_samples", n_samples, 1)
        if "theta_" not in vars(self):
            return prior_draws(self, self._table(X), size, generator(random_state))
        if self.outputs_ is not None:
            rng = check_random_state(random_state)
            seeds = [random_state if place == 0 else rng for place in range(len(self.outputs_))]
            drawn = [
                one.sample_y(X, size, seed, exposure, trials) for one, seed in zip(self.outputs_, seeds, strict=True)
            ]
            return np.asarray(together(drawn, axis=1))
        return super().sample_y(X, size, random_state, exposure, trials)

    def predict_quantiles(
        self,
        X: Any,
        quantiles: ArrayLike = (0.025, 0.5, 0.975),
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> np.ndarray:
        """Predictive quantiles (M, Q) of y, or of the function if ``alpha`` is given; (M, J, Q) of J outputs."""
        if self.outputs_ is not None:
            parts = [one.predict_quantiles(X, quantiles, exposure, trials) for one in self.outputs_]
            return np.asarray(together(parts, axis=1))
        if self._of_function:
            return self.predict_rate(X, quantiles)
        return super().predict_quantiles(X, quantiles, exposure, trials)

    def latent_mean_and_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent eta at X: arrays (M,), or (M, J) of J outputs."""
        if self.outputs_ is None:
            return super().latent_mean_and_variance(X)
        both: tuple[np.ndarray, np.ndarray] = together([one.latent_mean_and_variance(X) for one in self.outputs_])
        return both

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, np.ndarray]:
        """Evidence lower bound at theta, and optionally its gradient; the sum over several outputs.

        See ``GaussianProcessClassifier.log_marginal_likelihood``.
        """
        if self.outputs_ is None or theta is None:
            return super().log_marginal_likelihood(theta, eval_gradient, clone_kernel)
        theta = numeric(type(self).__name__, "theta", theta)
        if not clone_kernel:
            self._overwrite(theta[: self.kernel_.n_dims])
        parts: list[Any] = []
        for one in self.outputs_:
            own = theta[self.kernel_.n_dims :] + 2.0 * np.log(one._units.sd)
            at = np.concatenate([theta[: self.kernel_.n_dims], own])
            parts.append(one.log_marginal_likelihood(at, eval_gradient))
        if not eval_gradient:
            return float(sum(parts))
        return float(sum(value for value, _ in parts)), np.sum([slope for _, slope in parts], axis=0)

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        event: ArrayLike | None = None,
    ) -> float:
        """Mean log predictive density of y, in nats (larger is better); of several outputs the sum over them."""
        if self.outputs_ is not None:
            Y = numeric(type(self).__name__, "y", y)
            if Y.ndim != 2 or Y.shape[1] != len(self.outputs_):
                raise problem(type(self).__name__, f"y has shape {Y.shape}", f"(M, {len(self.outputs_)})")
            return sum(one.score(X, Y[:, j], sample_weight) for j, one in enumerate(self.outputs_))
        if np.ndim(self.alpha) == 1:
            got = "alpha gives the noise variance of each training row, so that of other rows is unknown"
            advice = "predict and latent_mean_and_variance need no noise variance."
            raise problem(type(self).__name__, got, "a number for alpha, or None, which learns one", advice)
        return super().score(X, y, sample_weight, exposure, trials, event)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.requires_fit = True, False
        return tags


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(AnyLikelihood, LinearModel):
    """Generalised linear model with any likelihood, and the posterior of its coefficients.

    Columns are centred and scaled internally: the fit does not depend on their units, and coefficients are reported for
    X as it is. No ``StandardScaler`` is needed. A constant column has coefficient 0 with its prior standard deviation.

    Parameters
    ----------
    prior : {"ridge", "ard"}, default "ridge"
        One prior variance for all coefficients, or one for each feature (automatic relevance determination), for tables
        in which few of many features matter; see ``BayesianLogisticRegression``. With "ard" the parameters of the
        likelihood are those learned under "ridge".
    likelihood : str or Likelihood, default "gaussian"
        As in ``GaussianProcessRegressor``; the degrees of freedom of "student-t" are not learned.
    bound : str, default "best"
        "best": exact expectations if the likelihood has them; or the name of one of its bounds.
    variance : float or array (D,), default 1.0
        Prior variance of the coefficients of standardised columns, in units of ``scale_ ** 2``, or its starting value:
        that of coefficient d is ``variance * (scale_ / feature_scale_[d]) ** 2``.
    learn_variance, learn_likelihood : bool, default True
        Learn the prior variance, or the parameters of the likelihood, by the evidence; or keep them.
    fit_intercept : bool, default True
        Without an intercept nothing is centred, and eta is 0 at x = 0. Ordered levels have cutpoints in place of an
        intercept; eta is then 0 at the mean of X.
    intercept_variance : float, default 100.0
        Prior variance of eta at the mean of X, about ``mean_``, in units of ``scale_ ** 2``; not learned.
    standardize : bool, default True
        Whether prior variances refer to standardised columns, or to X as it is.
    variance_bounds : pair of float, default (1e-6, 1e6)
        Bounds of a learned variance, in the same units.
    tol : float, default 1e-10
        Relative gap at which every fit ends.

    Attributes
    ----------
    coef_, coef_std_ : arrays (D,)
        Posterior means and standard deviations of the coefficients.
    intercept_, intercept_std_ : float
        Posterior mean and standard deviation of eta at x = 0. The hazard of "weibull" is shape * t^(shape - 1) *
        exp(eta), with t in the units of y.
    coef_cov_ : array (D, D)
        Posterior covariance of the coefficients.
    variance_ : float or array (D,)
        The learned prior variance, in units of ``scale_ ** 2``.
    relevance_spread_ : float
        With a learned prior="ard": standard deviation of the log variances.
    scale_ : float
        Standard deviation of y if eta is on its scale, else 1. For a constant y it is the size of y (1 if that is 0):
        such data say nothing about the noise, and intervals are then of the order of y itself.
    mean_ : float
        Prior mean of eta at the mean of X: the link of the mean of y; 0 without an intercept.
    feature_mean_, feature_scale_ : arrays (D,)
        As in ``BayesianLogisticRegression``.
    likelihood_, classes_, n_features_in_, feature_names_in_
        As in ``GaussianProcessRegressor``.
    elbo_, gap_, n_iter_, solution_, theta_, theta_names_, converged_
        See ``LatentGaussianEstimator``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators import BayesianLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> time = rng.weibull(1.5, 300) * np.exp(-(X @ [0.6, 0.0]) / 1.5)
    >>> model = BayesianLinearRegression(likelihood="weibull").fit(X, np.minimum(time, 1.0), event=time < 1.0)
    >>> bool(abs(model.coef_[0] - 0.6) < 0.2), bool(abs(model.likelihood_.shape - 1.5) < 0.2)
    (True, True)
    >>> model.predict_survival(X[:2], [0.5, 1.0]).shape
    (2, 2)
    """
