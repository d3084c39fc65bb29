"""The base class of the estimators: learning, fitted attributes, convergence warnings, prediction and the score.

An estimator combines two objects. Its target (``inputs/observations.py``) turns y into a likelihood and predictions
back into the units of y. Its latent (``latent.py``) turns X into a family of priors and predicts eta at new rows.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, validation
from sklearn.utils.validation import check_is_fitted

from ..checks import callers_line, choice, count, numeric, problem, scalar, table, unmasked, vector
from ..distributed import is_dask
from ..files import SharedRows, StatedEstimator, Statement, Stored
from ..hyperparameters import Evidence, Family, Learned
from ..hyperparameters.integration import Integrated
from ..inputs.observations import Target
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike
from ..marginals import NormalMarginals
from ..predictive import Predictive
from ..solvers.solution import Solution
from .dask_rows import by_partition, score_partitions
from .latent import Latent, integrated, mixed, reported_moments, with_prior


class LatentGaussianEstimator(Stored, StatedEstimator, BaseEstimator):
    """Base class of the estimators of latent Gaussian models.

    Attributes
    ----------
    solution_ : Solution
        The fit: its posterior, trace, certificate and leave-one-out scores.
    elbo_ : float
        Lower bound on log p(y), in nats, at the learned hyperparameters; all constants are included.
    gap_ : float
        Proved bound on the difference between ``elbo_`` and the largest one that a Gaussian posterior reaches. It is
        infinite for a likelihood that is not log-concave: the fit is then a stationary point, without a proof.
    n_iter_ : int
        Number of Newton iterations, summed over all fits of the search for hyperparameters.
    theta_ : array (n_theta,)
        The learned hyperparameters, mostly logarithms; ``theta_names_`` names them.
    converged_ : bool
        Whether the last fit reached its tolerance and the search for hyperparameters ended at a maximum.
    at_bounds_ : dict of str to {"lower", "upper"}
        The hyperparameters that ended at a bound.
    likelihood_ : Likelihood
        The likelihood with its learned parameters.
    """

    solution_: Solution
    likelihood_: Likelihood
    theta_: np.ndarray
    integrated_: Integrated | None = None
    outputs_: list[Any] | None = None  # one fit for each column of y, if y has several
    _target: Target
    _latent: Latent
    _fitted: Likelihood  # the likelihood of solution_; likelihood_ is that of eta as reported
    _tensor_device: Any = None  # the device of the X of the last fit, if X was a torch tensor
    _levels: Any = None  # the levels of the categorical columns of X
    _trend_moments: Any = None  # cache of the moments of intercept_ and coef_
    _shift: float = 0.0  # eta as reported minus eta as fitted

    # Defaults of options that only some estimators have as parameters.
    evidence = "elbo"
    integrate: Any = None
    learn_likelihood = False
    mean: Any = None  # prior mean of eta; None: the level of the target with fit_intercept, else 0
    n_classes_ = 2
    n_jobs: Any = None
    optimizer: Any = ""
    progress = False
    tol = 1e-10

    takes_tensors = False  # whether X may be a torch tensor
    _accepted: Mapping[str, Any] = {"dtype": np.float64}  # options of scikit-learn's check of X in fit

    @abstractmethod
    def _fit(self, X: Any, target: Target, weights: Any) -> Self:
        """Read X into a latent, and fit it to the target."""

    def _fit_partitions(self, X: Any, y: Any, weight: Any, checkpoint: Any, **rows: Any) -> Self:
        """Fit a Dask collection, if the estimator can."""
        advice = "BayesianLogisticRegression, BayesianPoissonRegression and BayesianLinearRegression take Dask data."
        raise problem(type(self).__name__, "X is a Dask collection", "a table in memory: X.compute()", advice)

    def _columns(self) -> list[str]:
        """The names of the columns of X."""
        return list(getattr(self, "feature_names_in_", [f"x{d}" for d in range(self.n_features_in_)]))

    @property
    def _of_function(self) -> bool:
        """Whether predictions are of the latent function eta, without the noise of y."""
        return False

    @property
    def _centred(self) -> bool:
        """Whether the prior mean of eta is the level of the target."""
        return True

    def _on_host(self, X: Any, fitting: bool) -> Any:
        """X in the memory of the host, if it came on a device."""
        return X

    @abstractmethod
    def _table(self, X: Any) -> Any:
        """Check new rows and return them in the form that the latent takes."""

    def state_call(self, call: Statement) -> Statement:
        """The call of ``fit`` for a saved file, with X shared with the fit rather than stored twice."""
        rows = self._latent.rows()
        if rows is None or self._levels is not None:
            return call
        X = SharedRows(rows, getattr(self, "feature_names_in_", None))
        if "X" in call.options:
            return call._replace(options={**call.options, "X": X})
        first, _, *others = call.arguments
        return call._replace(arguments=(first, X, *others))

    # -- fitting -----------------------------------------------------------------------------------
    def _learn(
        self,
        target: Target,
        latent: Latent,
        weights: Any,
        learned: bool,
        n_restarts: int = 0,
        random_state: Any = None,
        own: bool = True,
    ) -> None:
        """Fit the target and set the fitted attributes.

        ``learned``: whether hyperparameters are learned; ``own``: whether the parameters of the likelihood are, too.
        """
        self._target, self._latent, self._weights = target, latent, weights
        choice(target.where, "evidence", self.evidence, ("elbo", "corrected"))
        n_restarts, family = count(target.where, "n_restarts_optimizer", n_restarts), latent.family()
        method = self.integrate or None
        choice(target.where, "integrate", method, (None, True, "auto", "grid", "ccd"))
        family = family if method is None else with_prior(family)
        options: dict[str, Any] = {"weights": weights, "tol": self._inner_tol()}
        options["progress"] = bool(self.progress)
        if learned:
            rng = generator(random_state) if n_restarts else None
            if self.evidence != "elbo":
                options["evidence"] = self.evidence
            options["n_jobs"] = self.n_jobs
            result = latent.learn(target, family, own, n_restarts=n_restarts, rng=rng, **options)
        else:
            result = latent.fitted(target, family, **options)
        family = latent.after(family)
        self._keep(result, family)
        self.integrated_ = None
        if result.theta.size == len(family.names):  # the parameters of the likelihood were not learned
            target, own = replace(target, likelihood=result.likelihood), False
        if learned and method is not None and latent.interrupt is None:
            self.integrated_ = integrated(target, family, result, weights, own, method, self.n_jobs)
            self.gap_, self.converged_ = self.integrated_.gap, self.integrated_.converged

    def _inner_tol(self) -> float:
        tol = scalar(type(self).__name__, "tol", self.tol)
        if tol < 0.0:
            raise problem(type(self).__name__, f"tol = {tol:g}", "a number >= 0")
        return tol

    def _keep(self, result: Learned, family: Family) -> None:
        self.solution_, self._fitted, self.theta_ = result.solution, result.likelihood, result.theta
        self.likelihood_, self._shift = result.likelihood.reported()
        own = result.likelihood.theta_names if result.theta.size > len(family.names) else []
        self.theta_names_ = [*family.names, *own]
        self.elbo_, self.gap_ = result.solution.elbo, result.solution.gap
        self.n_iter_, self.converged_ = max(1, result.n_newton), result.converged
        self._at_bounds = result.at_bounds
        if not result.converged:
            warnings.warn(
                f"{type(self).__name__} did not converge: {result.status}. The evidence and the posterior are those of "
                "the best point reached; gap_ bounds the distance of the fit there from its optimum.",
                ConvergenceWarning,
                stacklevel=callers_line(),
            )
        n = len(family.names)
        held = [i for i in result.held if i >= n or not family.is_answer(i, result.at_bounds[i])]
        if held:
            named = [f"{self.theta_names_[i]!r} at its {result.at_bounds[i]} bound" for i in held]
            each = ", ".join(named[:3]) + (f" and {len(named) - 3} more (see at_bounds_)" if len(named) > 3 else "")
            warnings.warn(
                f"{type(self).__name__} ended with {each}, and the evidence still rises beyond it: the value is set "
                f"by the bound, not by the data. {self._widening(held, len(family.names))}",
                ConvergenceWarning,
                stacklevel=callers_line(),
            )

    def _widening(self, held: list[int], n_family: int) -> str:
        """Advice about hyperparameters at a bound; the bounds of a likelihood's parameters come from the data."""
        if all(i >= n_family for i in held):
            return "The bound comes from the data: for example, noise below 1e-10 of the variance of y is not resolved."
        return "Widen the bounds of the prior, or read the result as a model in which that value is fixed."

    @property
    def at_bounds_(self) -> dict[str, str]:
        """The hyperparameters that ended at a bound, by name: "lower" or "upper"."""
        check_is_fitted(self, "theta_names_")
        return {self.theta_names_[i]: side for i, side in self._at_bounds.items()}

    # -- the evidence ------------------------------------------------------------------------------
    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The evidence lower bound at ``theta_``: ``elbo_`` under the name that scikit-learn uses."""
        return self.elbo_

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, np.ndarray]:
        """Evidence lower bound at theta, in nats, and optionally its gradient.

        Parameters
        ----------
        theta : array, optional
            Hyperparameters on the scale of ``theta_``: all of them, or those of the kernel (or other prior) alone; the
            parameters of the likelihood then keep their learned values. Default: ``theta_``.
        eval_gradient : bool, default False
            Also return the gradient with respect to theta.
        clone_kernel : bool, default True
            With False ``kernel_`` of a Gaussian process is set to theta, as in scikit-learn.

        Returns
        -------
        float, or (float, array (n_theta,)) with ``eval_gradient``
        """
        check_is_fitted(self)
        if theta is None:
            if eval_gradient:
                raise ValueError("Gradient can only be evaluated for theta!=None")
            return np.float64(self.elbo_)
        if self.solution_.in_partitions:
            got = "the rows of the fit are in Dask partitions, which the estimator does not keep"
            advice = "For another theta fit again with these hyperparameters held fixed."
            raise problem(type(self).__name__, got, "theta = None", advice)
        family = self._latent.family()
        theta = self._whole_theta(numeric(type(self).__name__, "theta", theta))
        evidence = Evidence(
            self._fitted, family, self._target.y, weights=self._weights, tol=1e-17, own=theta.size > family.theta.size
        )
        if theta.shape != evidence.start.shape:
            got = f"theta has shape {theta.shape}"
            raise problem(type(self).__name__, got, f"({family.theta.size},): {', '.join(family.names)}")
        if not clone_kernel:
            self._overwrite(theta[: family.theta.size])
        evidence.begin(self.solution_)
        if not eval_gradient:
            return np.float64(evidence.fit(theta).elbo)
        (value, gradient), (of_prior, slope) = evidence(theta), evidence.log_prior(theta)
        return np.float64(value - of_prior), gradient - slope

    def _whole_theta(self, theta: np.ndarray) -> np.ndarray:
        """The full theta, where a user may give a shorter one: one kernel for all classes."""
        return theta

    def _overwrite(self, theta: np.ndarray) -> None:
        """Set ``kernel_`` to theta, if the estimator has one."""

    # -- prediction --------------------------------------------------------------------------------
    @by_partition
    def latent_mean_and_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the latent eta at the rows of X.

        Returns
        -------
        mean, variance : arrays (M,), or (M, K) for K > 2 classes
        """
        new = self._predictive(X)
        if self.integrated_ is None or self._fitted.ordered:
            return np.asarray(new.eta.mean) + self._shift, np.asarray(new.eta.variance)
        return reported_moments(new, [each.reported()[1] for each in self.integrated_.likelihoods])

    def _predictive(self, X: Any, mean_only: bool = False, **rows: Any) -> Predictive:
        """Predictive distribution of y at new rows, with their exposure, trials or event.

        ``mean_only``: eta is taken to be its posterior mean, which saves the computation of variances.
        """
        check_is_fitted(self)
        table = self._table(X)
        if self.integrated_ is not None:
            return mixed(self.integrated_, self._target, self._latent, table, rows)
        moments = self._latent.moments(self.solution_.posterior, self.theta_, table, mean_only)
        return self._target.at(self._fitted, NormalMarginals.of(*moments), rows)

    def _quantiles(self, X: Any, quantiles: ArrayLike, **rows: Any) -> np.ndarray:
        return self._predictive(X, **rows).quantile(levels_of(type(self).__name__, quantiles))

    def _points(self) -> list[tuple[float, Solution, np.ndarray]]:
        """(weight, solution, theta) of each point of the posterior of theta; one point unless it is integrated out."""
        mixture = self.integrated_
        if mixture is None:
            return [(1.0, self.solution_, self.theta_)]
        return list(zip(mixture.weights, mixture.solutions, mixture.thetas, strict=True))

    def _joint_draws(self, X: Any, n_samples: int, random_state: Any, **rows: Any) -> np.ndarray:
        """Draws (M, n_samples) of y, each of all rows jointly; eta is Gaussian given theta."""
        check_is_fitted(self)
        table, rng, points = self._table(X), generator(random_state), self._points()
        draws = []
        size = count(type(self).__name__, "n_samples", n_samples, 1)
        sizes = rng.multinomial(size, [weight for weight, *_ in points])
        for size, (_, solution, theta) in zip(sizes, points, strict=True):
            if size:
                eta = self._latent.draws(solution.posterior, theta, table, int(size), rng)
                if not self._of_function:
                    likelihood = self._fitted if self.integrated_ is None else solution.likelihood
                    own = self._target.likelihood_at(likelihood, len(eta), rows)
                    eta = np.asarray(own.draw(eta, rng), dtype=np.float64)
                draws.append(eta)
        return self._target.decoded(rng.permutation(np.hstack(draws), axis=1))

    def _joint_covariance(self, X: Any) -> np.ndarray:
        """Cov[eta] (M, M) at new rows, including the uncertainty of theta if it is integrated out."""
        table = self._table(X)
        means, covariances = [], []
        for weight, solution, theta in self._points():
            means.append(self._latent.moments(solution.posterior, theta, table, mean_only=True)[0])
            covariances.append(weight * self._latent.joint_covariance(solution.posterior, theta, table))
        weights = np.array([weight for weight, *_ in self._points()])
        deviation = np.stack(means) - weights @ np.stack(means)
        return np.asarray(sum(covariances) + deviation.T @ (weights[:, None] * deviation))

    def _score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, **rows: Any) -> float:
        """Mean log predictive density of the rows that have a density."""
        if is_dask(X):
            check_is_fitted(self)
            return score_partitions(self, X, y, sample_weight, rows)
        name, new = type(self).__name__, self._predictive(X, **rows)
        density = self._target.log_density(new, y)
        weights = vector(name, "sample_weight", 1.0 if sample_weight is None else sample_weight, density.size)
        seen = ~np.isnan(density) & (weights != 0.0)
        if not seen.any():
            raise problem(name, "every y is NaN or has weight 0", "at least one observed row")
        return float(np.average(density[seen], weights=weights[seen]))


NO_TARGET = "no_validation"  # scikit-learn's word for a call without y


def validate_data(estimator: Any, X: Any, y: ArrayLike = NO_TARGET, **options: Any) -> Any:
    """scikit-learn's ``validate_data``, which refuses text, categories and dates where it would cast them silently.

    y may be labels of any kind, unless ``y_numeric``.
    """
    name = type(estimator).__name__
    if not (y is None or y is NO_TARGET):
        y = unmasked(name, "y", y)
        # scikit-learn itself refuses complex numbers, after its check of X
        if options.get("y_numeric") and getattr(y, "dtype", None) != np.complex128:
            y = numeric(name, "y", y)
    if type(estimator).takes_tensors:
        X = estimator._on_host(X, options.get("reset", True))
    try:
        X = table(name, X, levels=hasattr(estimator, "categorical_features"))
        return validation.validate_data(estimator, X, y, **options)
    except OverflowError:
        raise problem(name, "X holds a number that overflows double precision", "numbers below 1e308") from None


def weights_of(sample_weight: ArrayLike, X: Any) -> np.ndarray | None:
    """Check ``sample_weight`` and return it as an array (N,), or None if every weight is 1.

    A weight is the number of times that its row was seen. Weights that sum to 1 are shares, as scikit-learn's boosting
    passes them. Read as counts they would amount to a single row, so they are multiplied by the number of rows.
    """
    if sample_weight is None:
        return None
    from sklearn.utils.validation import _check_sample_weight

    sample_weight = numeric("fit", "sample_weight", sample_weight)
    out = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    n = int(np.count_nonzero(out))
    if n > 1 and abs(out.sum() - 1.0) <= 1e-6:
        warnings.warn(
            f"sample_weight sums to 1, and weights say how often a row was seen: they are multiplied by {n}, the "
            "number of rows of weight above 0.",
            UserWarning,
            stacklevel=callers_line(),
        )
        return n * out
    return out


def generator(random_state: Any) -> np.random.Generator:
    """numpy's generator from ``random_state`` of scikit-learn: an int, a RandomState or None."""
    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))


def levels_of(where: str, quantiles: ArrayLike) -> np.ndarray:
    """Check the probabilities of quantiles and return them as an array (Q,)."""
    q = np.atleast_1d(numeric(where, "quantiles", quantiles))
    if not ((q > 0.0) & (q < 1.0)).all():
        raise problem(where, f"quantiles = {q.tolist()}", "numbers between 0 and 1")
    return q
