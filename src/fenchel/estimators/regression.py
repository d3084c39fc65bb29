"""Regression with any likelihood: y ~ p(y | eta), eta a Gaussian process or X w + b.

    eta = mean + f(x), f ~ GP(0, kernel)              eta = X w + b, w_d ~ N(0, v / sd(x_d)^2)

``likelihood`` is a name or a Likelihood; its own parameters (a noise variance, a shape, cutpoints) are learned by the
evidence together with the prior's. The mean is the link of the overall mean of y, so that the prior speaks about
departures from it. Where eta is on the scale of y (Gaussian, Laplace, logistic and Student's noise), the default kernel
and the variances of the weights are in units of the variance of y.
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
    """Gaussian process regression with any likelihood, and a certificate.

    Near to ``sklearn.gaussian_process.GaussianProcessRegressor``, but the noise variance is learned, ``return_std`` is
    of the y that will be seen, and y may be counts, amounts, durations, proportions or ordered levels.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, optional
        Of the latent function, on the scale of eta. Default: as in ``GaussianProcessClassifier``.
    likelihood : str or Likelihood
        "gaussian", "laplace", "logistic", "student-t" (noise about eta), "poisson", "negative-binomial",
        "zero-inflated-poisson" (counts), "gamma" (amounts), "exponential", "weibull" (durations, which may be
        censored), "beta" (proportions), "binomial", "bernoulli", "probit" (successes), "ordinal", "ordinal-probit"
        (levels; the cutpoints start at the link of the cumulative frequencies). Its own parameters are learned, but for
        the degrees of freedom of "student-t", which stay at 4: ``fenchel.StudentT(learn_df=True)`` learns them too.
    mean : "link", "zero", "constant", "linear", float or callable
        The prior mean of eta: the link of the overall mean of y (0 for ordered levels, whose cutpoints carry it; the
        median for heavy-tailed noise), or a number. Of "weibull" it is that of the hazard shape t^(shape-1) exp(eta),
        t in the units of y, as are all that is reported of eta. "constant" is "link" with
        ``fit_intercept``. "zero", "linear" and a function of X are as in ``GaussianProcessClassifier``, slopes in units
        of the standard deviation of y where eta is on its scale.
    bound : str
        "best": exact expectations where the likelihood has them; or one of the likelihood's bounds by name.
    optimizer : "fmin_l_bfgs_b" or None
        Learn the kernel and the likelihood's own parameters by the evidence, or keep them.
    learn_likelihood : bool
        Whether the likelihood's own parameters are learned too.
    fit_intercept : bool
        Add a constant to the latent function, integrated out: a priori N(mean_, intercept_variance). Ordered levels
        have cutpoints in its place.
    intercept_variance : float
        In units of the variance of y where eta is on its scale; never learned.
    alpha : float or array (N,), optional
        Known noise variances of the training rows, as in scikit-learn: the noise is not learned, and ``predict``,
        ``sample_y`` and ``predict_quantiles`` are of the function. In units of y, or of (y - mean) / sd with
        ``normalize_y``. Default: the noise is learned, and predictions are of the y that will be seen.
    normalize_y : bool
        Whether the kernel, ``alpha`` and a ``mean`` that is a number or a function are in units of (y - mean) / sd.
        Slopes of mean="linear" are those of y. A kernel that is not given is in units of y by itself.
    n_targets : int, optional
        How many columns y has; before ``fit`` it says of how many outputs ``predict`` and ``sample_y`` are.
    n_restarts_optimizer, warm_start, copy_X_train, tol, random_state, progress, integrate, n_jobs
    approximation, n_inducing, loss, n_neighbors, device, slope_variance, categorical_features
        As in ``GaussianProcessClassifier``.

    y may have several columns (N, J): outputs with one kernel and one noise, independent given these. Answers then have
    a further axis, as in scikit-learn: means (M, J), covariances (M, M, J), draws (M, J, n_samples).

    Attributes
    ----------
    kernel_ : the kernel with its learned hyperparameters
    kernel_choice_ : DataFrame or None
        As in ``GaussianProcessClassifier``.
    likelihood_ : the likelihood with its learned parameters
    mean_ : float, or the function that was given
    coef_, coef_std_ : arrays (D,), of mean="linear"
    intercept_, intercept_std_ : float
    classes_ : the labels in order, of "bernoulli", "probit" and the ordinal ones
    approximation_, approximation_loss_
    X_train_, n_features_in_, feature_names_in_
    elbo_, gap_, n_iter_, solution_, theta_, theta_names_, converged_ : see ``LatentGaussianEstimator``
    outputs_ : list of GaussianProcessRegressor, or None
        The fit of each column of y, where it has several, with its ``solution_``; ``elbo_`` and ``gap_`` are sums.

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
        """The mean of y (M,), the posterior's uncertainty integrated out; before ``fit``, of the prior.

        Parameters
        ----------
        X : array (M, D)
        return_std : bool
            Also the standard deviation (M,) of the y that will be seen, noise included; of the function with ``alpha``.
        return_cov : bool
            Also the joint covariance (M, M) of the same, where y is eta and noise.
        exposure, trials : float or array (M,), optional
            Default: 1.
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
        """Joint draws (M, n_samples), each column one draw of all rows; (M, J, n_samples) of J outputs.

        Of the y that will be seen; of the function with ``alpha``, and before ``fit``, where they are drawn a priori.
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
        """Quantiles (M, Q) of the y that will be seen, of the function with ``alpha``; (M, J, Q) of J outputs."""
        if self.outputs_ is not None:
            parts = [one.predict_quantiles(X, quantiles, exposure, trials) for one in self.outputs_]
            return np.asarray(together(parts, axis=1))
        if self._of_function:
            return self.predict_rate(X, quantiles)
        return super().predict_quantiles(X, quantiles, exposure, trials)

    def latent_mean_and_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the latent eta at X: (M,), or (M, J) of J outputs."""
        if self.outputs_ is None:
            return super().latent_mean_and_variance(X)
        both: tuple[np.ndarray, np.ndarray] = together([one.latent_mean_and_variance(X) for one in self.outputs_])
        return both

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, np.ndarray]:
        """The evidence bound at theta, and its gradient if asked for; of several outputs their sum.

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
        """The mean log predictive density of y (larger is better); of several outputs, that of all of a row's."""
        if self.outputs_ is not None:
            Y = numeric(type(self).__name__, "y", y)
            if Y.ndim != 2 or Y.shape[1] != len(self.outputs_):
                raise problem(type(self).__name__, f"y has shape {Y.shape}", f"(M, {len(self.outputs_)})")
            return sum(one.score(X, Y[:, j], sample_weight) for j, one in enumerate(self.outputs_))
        if np.ndim(self.alpha) == 1:
            got = "alpha is a noise variance of each training row, and that of other rows is not known"
            advice = "predict and latent_mean_and_variance are of the function."
            raise problem(type(self).__name__, got, "a number for alpha, or None, which learns one", advice)
        return super().score(X, y, sample_weight, exposure, trials, event)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.requires_fit = True, False
        return tags


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(AnyLikelihood, LinearModel):
    """A generalised linear model with any likelihood and the posterior of its coefficients.

    Columns are centred and scaled inside: the fit does not depend on their units, no ``StandardScaler`` is needed, and
    coefficients are for X as it is. A constant column has a coefficient of 0 with the standard deviation of its prior.

    Parameters
    ----------
    prior : {"ridge", "ard"}
        One variance for all coefficients, or one for each feature, for when few of many may matter (automatic relevance
        determination; see ``BayesianLogisticRegression``). The likelihood's own parameters are then those of "ridge".
    likelihood : str or Likelihood
        As in ``GaussianProcessRegressor``; the degrees of freedom of "student-t" are not learned.
    bound : str
        "best": exact expectations where the likelihood has them; or one of the likelihood's bounds by name.
    variance : float or array (D,)
        Prior variance of the coefficients of standardised columns, or where learning starts, in units of
        ``scale_ ** 2``: that of coefficient d is ``variance * (scale_ / feature_scale_[d]) ** 2``.
    learn_variance, learn_likelihood : bool
        Maximise the evidence over the variance, over the likelihood's own parameters, or keep them.
    fit_intercept : bool
        Without one nothing is centred: eta is 0 at x = 0. Ordered levels have cutpoints in its place, those of eta = 0
        at the mean of X.
    intercept_variance : float
        Prior variance, about ``mean_``, of eta at the mean of X, in units of ``scale_ ** 2``; never learned.
    standardize : bool
        Whether variances are those of standardised columns, or those of coefficients on the scale of X.
    variance_bounds : pair of float
        Where a learned variance may lie, in the same units.
    tol : float
        Relative gap of every fit.

    Attributes
    ----------
    coef_, coef_std_ : arrays (D,)
        Posterior mean and standard deviation.
    intercept_, intercept_std_ : float
        Of eta at x = 0; of "weibull" eta is that of the hazard shape t^(shape-1) exp(eta), t in the units of y.
    coef_cov_ : array (D, D)
    variance_ : float or array (D,)
        As learned, in units of ``scale_ ** 2``.
    relevance_spread_ : float
        prior="ard", learned: the standard deviation of the log variances.
    scale_ : float
        The standard deviation of y where eta is on its scale, 1 elsewhere. A constant y (one row, say) has its size in
        its place, 1 if it is 0: such data say nothing of the noise, and intervals are then of the order of y itself.
    mean_ : float
        The prior mean of eta at the mean of X: the link of the overall mean of y; 0 without an intercept.
    feature_mean_, feature_scale_ : arrays (D,)
        As in ``BayesianLogisticRegression``.
    likelihood_, classes_, n_features_in_, feature_names_in_
    elbo_, gap_, n_iter_, solution_, theta_, theta_names_, converged_ : see ``LatentGaussianEstimator``

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
