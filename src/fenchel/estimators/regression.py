"""Regression with any likelihood: y ~ p(y | eta), eta a Gaussian process or X w + b.

    eta = mean + f(x), f ~ GP(0, kernel)              eta = X w + b, w_d ~ N(0, v / sd(x_d)^2)

``likelihood`` is a name or a Likelihood; its own parameters (a noise variance, a shape, cutpoints) are learned by the
evidence together with the prior's. The mean is the link of the overall mean of y, so that the prior speaks about
departures from it. Where eta is on the scale of y (Gaussian, Laplace, logistic and Student's noise), the default kernel
and the variances of the weights are in units of the variance of y.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..checks import numeric, problem
from ..distributed.row_sums import ValueCounts
from ..files import stated
from ..inputs.observations import Target, read_labels, read_observations
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from .base import validate_data, weights_of
from .counts import Regression
from .dask_rows import by_partition, in_partitions, partitions_target
from .gaussian_process import GaussianProcessEstimator
from .linear import LinearModel


@dataclass(eq=False, repr=False)
class _Generic(Regression):
    """A likelihood by name or as it is, its rows' parameters as keywords."""

    likelihood: Any = "gaussian"
    _: KW_ONLY
    bound: str = "best"
    learn_likelihood: bool = True

    @stated("checkpoint")
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        event: ArrayLike | None = None,
        checkpoint: Any = None,
    ) -> Self:
        """Fit, and learn the kernel or the variance of the coefficients, and the likelihood's own parameters.

        Parameters
        ----------
        X : array (N, D); scipy sparse too for a linear model, and a Dask array or dataframe
        y : array (N,)
            Numbers of the likelihood's kind; levels and labels may be any numbers, taken in their order. Levels may be
            an ordered categorical of pandas, and two labels any two words: ``classes_`` are then the categories (of
            levels, those that rows have), and ``predict`` is the mean of their places 0, 1, ...
        sample_weight : array (N,), optional
            Multiplies each row's log-likelihood; 2 is the row seen twice, 0 leaves it out.
        exposure : array (N,), optional
            "poisson", "negative-binomial", "zero-inflated-poisson": what each count is relative to. Default: 1.
        trials : array (N,)
            "binomial": how many of whom y are the successes.
        event : array (N,), optional
            "exponential", "weibull": 1 where the event happened at y, 0 where it had not by then. Default: 1.
        checkpoint : path, optional
            Of a fit to a Dask collection: a file in which the iterate is kept, and from which the same call goes on.
        """
        name, rows = type(self).__name__, {"exposure": exposure, "trials": trials, "event": event}
        if in_partitions(name, X, checkpoint):
            return self._fit_partitions(X, y, sample_weight, checkpoint, **rows)
        y, words = read_labels(name, self.likelihood, y)
        X, y = validate_data(self, X, y, **self._accepted, y_numeric=True)
        weights, y = weights_of(sample_weight, X), numeric(name, "y", y)
        learned = self.learn_likelihood and self.optimizer is not None
        target = read_observations(name, self.likelihood, self.bound, y, rows, weights, self._centred, learned, words)
        if target.labels is not None:
            self.classes_ = target.labels
        if not learned and isinstance(self.likelihood, str):
            warn_unstated(name, self.likelihood, target.likelihood)
        return self._fit(X, target, weights)

    def _read_partitions(self, values: ValueCounts) -> tuple[Target, np.ndarray | None]:
        """The target of rows in partitions, from the different values of y."""
        name = type(self).__name__
        target, words = partitions_target(
            name, self.likelihood, self.bound, values, self._centred, self.learn_likelihood
        )
        if target.labels is not None:
            self.classes_ = target.labels
        return target, target.values if words is None else words

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
        """The mean of y (M,), the posterior's uncertainty integrated out; of labels, the mean of their values.

        Parameters
        ----------
        X : array (M, D)
        return_std : bool
            Also the standard deviation (M,) of the y that will be seen, noise included.
        return_cov : bool
            Also the joint covariance (M, M) of the y that will be seen, where y is eta and noise.
        exposure, trials : float or array (M,), optional
            Default: 1.
        """
        check_is_fitted(self)
        wide = return_std or return_cov
        new = self._predictive(X, not wide and self.likelihood_.noise, exposure=exposure, trials=trials)
        if not return_cov:
            return (new.mean, np.sqrt(new.variance)) if return_std else new.mean
        name = type(self).__name__
        if return_std:
            raise problem(name, "return_std and return_cov", "one of them")
        if not self.likelihood_.noise:
            got = f"return_cov and likelihood={self.likelihood!r}"
            raise problem(name, got, "noise about eta, such as likelihood='gaussian'", "sample_y draws rows jointly.")
        covariance = self._joint_covariance(X)
        np.fill_diagonal(covariance, new.variance)
        return new.mean, covariance


def warn_unstated(where: str, word: str, likelihood: Likelihood) -> None:
    """Parameters of a likelihood given by name that are not learned, either: they stay where learning would start."""
    kept = ", ".join(f"{name} = {value:.3g}" for _, name, value in likelihood.readable())
    if kept:
        warnings.warn(
            f"{where}: nothing is learned, and likelihood={word!r} does not state its own parameters: they are a guess "
            f"from y, {kept}. Give a likelihood with its values, such as likelihood=fenchel.{likelihood.name}(...), or "
            "the likelihood_ of another fit.",
            UserWarning,
            stacklevel=3,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class GaussianProcessRegressor(_Generic, GaussianProcessEstimator):
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
    mean : "link" or float
        The prior mean of eta: the link of the overall mean of y (0 for ordered levels, whose cutpoints carry it; the
        median for heavy-tailed noise), or a number. Of "weibull" it is that of the hazard shape t^(shape-1) exp(eta),
        t in the units of y, as are all that is reported of eta.
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
    n_restarts_optimizer, warm_start, copy_X_train, tol, random_state, progress, integrate
    approximation, n_inducing, loss, device
        As in ``GaussianProcessClassifier``.

    Attributes
    ----------
    kernel_ : the kernel with its learned hyperparameters
    kernel_choice_ : DataFrame or None
        As in ``GaussianProcessClassifier``.
    likelihood_ : the likelihood with its learned parameters
    mean_ : float
    classes_ : the labels in order, of "bernoulli", "probit" and the ordinal ones
    approximation_, approximation_loss_
    X_train_, n_features_in_, feature_names_in_
    elbo_, gap_, n_iter_, solution_, theta_, theta_names_, converged_ : see ``LatentGaussianEstimator``

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

    mean: str | float = "link"
    _handed_on: ClassVar[str] = "kernel_ and likelihood_"


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(_Generic, LinearModel):
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
