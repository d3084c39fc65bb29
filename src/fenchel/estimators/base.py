"""What every estimator shares: learning, the certificate as attributes, one warning, the score.

An estimator composes a target, which reads y into a likelihood and predictions back into y
(``inputs/observations.py``), with a latent, which reads X into a family of priors and says what eta is at new rows
(``latent.py``).
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

from ..checks import choice, count, numeric, problem, scalar, table, unmasked, vector
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
    """The common part.

    Fitted attributes
    -----------------
    solution_ : Solution
        The fit, with its posterior, trace, certificate and leave-one-out.
    elbo_ : float
        A lower bound on log p(y) at the learned hyperparameters, all constants in.
    gap_ : float
        How far it can be from the best Gaussian's, proved; infinite where a likelihood that is not log-concave leaves
        no proof, and the fit is a stationary point.
    n_iter_ : int
        Newton iterations, of all fits that learning needed.
    theta_ : array
        The learned hyperparameters, on the scale of logs; ``theta_names_`` names them.
    converged_ : bool
    at_bounds_ : dict
        The hyperparameters that learning left at a bound, by name: "lower" or "upper".
    likelihood_ : Likelihood
    """

    solution_: Solution
    likelihood_: Likelihood
    theta_: np.ndarray
    integrated_: Integrated | None = None
    outputs_: list[Any] | None = None  # a fit for each column of y, where it has several
    _target: Target
    _latent: Latent
    _fitted: Likelihood  # that of solution_; likelihood_ is that of eta as reported
    _tensor_device: Any = None  # of the X of the last fit, where it was a tensor on one
    _levels: Any = None  # of the columns of X that have some
    _trend_moments: Any = None  # of the last fit, once they are asked for
    _shift: float = 0.0  # what eta as reported is above eta as fitted

    # options that only some estimators let users choose
    evidence = "elbo"
    integrate: Any = None
    learn_likelihood = False
    mean: Any = None  # of eta a priori; None: the level of the target with fit_intercept, else 0
    n_classes_ = 2
    n_jobs: Any = None
    optimizer: Any = ""
    progress = False
    tol = 1e-10

    takes_tensors = False  # on a device of torch's
    _accepted: Mapping[str, Any] = {"dtype": np.float64}  # X of a fit, as scikit-learn checks it

    @abstractmethod
    def _fit(self, X: Any, target: Target, weights: Any) -> Self:
        """Read X into a latent, and fit it to the target."""

    def _fit_partitions(self, X: Any, y: Any, weight: Any, checkpoint: Any, **rows: Any) -> Self:
        """Fit rows in partitions, where the estimator can."""
        advice = "BayesianLogisticRegression, BayesianPoissonRegression and BayesianLinearRegression take partitions."
        raise problem(type(self).__name__, "X is a collection of Dask's", "a table in memory: X.compute()", advice)

    def _columns(self) -> list[str]:
        """The names of the columns of X."""
        return list(getattr(self, "feature_names_in_", [f"x{d}" for d in range(self.n_features_in_)]))

    @property
    def _of_function(self) -> bool:
        """Whether predictions are of eta, without the noise of y."""
        return False

    @property
    def _centred(self) -> bool:
        """Whether the prior mean of eta is the level of the target."""
        return True

    def _on_host(self, X: Any, fitting: bool) -> Any:
        """X in the host's memory, which a fit may have got from a device."""
        return X

    @abstractmethod
    def _table(self, X: Any) -> Any:
        """New rows, checked, as the latent takes them."""

    def state_call(self, call: Statement) -> Statement:
        """The call of ``fit`` with X as the fit holds it: a copy of X would be as large as the fit."""
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
        """Fit (and learn, the likelihood's own parameters with the rest or not), and keep the results as attributes."""
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
            found = latent.learn(target, family, own, n_restarts=n_restarts, rng=rng, **options)
        else:
            found = latent.fitted(target, family, **options)
        family = latent.after(family)
        self._keep(found, family)
        self.integrated_ = None
        if found.theta.size == len(family.names):  # the likelihood's own parameters are known
            target, own = replace(target, likelihood=found.likelihood), False
        if learned and method is not None:
            self.integrated_ = integrated(target, family, found, weights, own, method, self.n_jobs)
            self.gap_, self.converged_ = self.integrated_.gap, self.integrated_.converged

    def _inner_tol(self) -> float:
        tol = scalar(type(self).__name__, "tol", self.tol)
        if tol < 0.0:
            raise problem(type(self).__name__, f"tol = {tol:g}", "a number >= 0")
        return tol

    def _keep(self, found: Learned, family: Family) -> None:
        self.solution_, self._fitted, self.theta_ = found.solution, found.likelihood, found.theta
        self.likelihood_, self._shift = found.likelihood.reported()
        own = found.likelihood.theta_names if found.theta.size > len(family.names) else []
        self.theta_names_ = [*family.names, *own]
        self.elbo_, self.gap_ = found.solution.elbo, found.solution.gap
        self.n_iter_, self.converged_ = max(1, found.n_newton), found.converged
        self._at_bounds = found.at_bounds
        if not found.converged:
            warnings.warn(
                f"{type(self).__name__} did not converge: {found.status}. The evidence and the posterior are those of "
                "the best point reached, and gap_ says how far the fit there is from its optimum.",
                ConvergenceWarning,
                stacklevel=3,
            )
        n = len(family.names)
        held = [i for i in found.held if i >= n or not family.is_answer(i, found.at_bounds[i])]
        if held:
            named = [f"{self.theta_names_[i]!r} at its {found.at_bounds[i]} bound" for i in held]
            each = ", ".join(named[:3]) + (f" and {len(named) - 3} more so (see at_bounds_)" if len(named) > 3 else "")
            warnings.warn(
                f"{type(self).__name__} ended with {each}, and the evidence still rises beyond: the bound decides, "
                f"not the data. {self._widening(held, len(family.names))}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _widening(self, held: list[int], n_family: int) -> str:
        """What to do about hyperparameters at a bound: those of the likelihood have theirs from the data."""
        if all(i >= n_family for i in held):
            return "It was read off the data (the noise of y cannot be told below 1e-10 of its variance, say)."
        return "Widen it where the prior was given bounds, or read the model as one with that value given."

    @property
    def at_bounds_(self) -> dict[str, str]:
        """The hyperparameters that learning left at a bound, by name: "lower" or "upper"."""
        check_is_fitted(self, "theta_names_")
        return {self.theta_names_[i]: side for i, side in self._at_bounds.items()}

    # -- the evidence ------------------------------------------------------------------------------
    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The evidence bound at ``theta_``: ``elbo_`` under the name scikit-learn has for it."""
        return self.elbo_

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, np.ndarray]:
        """The evidence bound at theta, and its gradient if asked for.

        Parameters
        ----------
        theta : array, optional
            The kernel's (or other prior's) alone, the likelihood's own parameters then being the learned ones; or all,
            as in ``theta_``. Default: the learned ones.
        eval_gradient : bool
        clone_kernel : bool
            False: ``kernel_`` of a Gaussian process is set to theta, as scikit-learn does.
        """
        check_is_fitted(self)
        if theta is None:
            if eval_gradient:
                raise ValueError("Gradient can only be evaluated for theta!=None")
            return np.float64(self.elbo_)
        if self.solution_.in_partitions:
            got = "the rows of the fit are in partitions, and not held here"
            advice = "Fit with the hyperparameters held for another theta."
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
        """theta of all that is learned, where a part may stand for it."""
        return theta

    def _overwrite(self, theta: np.ndarray) -> None:
        """Set the kernel that is shown to theta, where there is one."""

    # -- prediction --------------------------------------------------------------------------------
    @by_partition
    def latent_mean_and_variance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the latent eta at X: (M,), or (M, K) for several classes."""
        new = self._predictive(X)
        if self.integrated_ is None or self._fitted.ordered:
            return np.asarray(new.eta.mean) + self._shift, np.asarray(new.eta.variance)
        return reported_moments(new, [each.reported()[1] for each in self.integrated_.likelihoods])

    def _predictive(self, X: Any, mean_only: bool = False, **rows: Any) -> Predictive:
        """y at new rows, which may have exposure, trials or event; with ``mean_only`` eta is taken as its mean."""
        check_is_fitted(self)
        table = self._table(X)
        if self.integrated_ is not None:
            return mixed(self.integrated_, self._target, self._latent, table, rows)
        moments = self._latent.moments(self.solution_.posterior, self.theta_, table, mean_only)
        return self._target.at(self._fitted, NormalMarginals.of(*moments), rows)

    def _quantiles(self, X: Any, quantiles: ArrayLike, **rows: Any) -> np.ndarray:
        return self._predictive(X, **rows).quantile(levels_of(type(self).__name__, quantiles))

    def _points(self) -> list[tuple[float, Solution, np.ndarray]]:
        """The weight, the fit and theta of each point of the posterior of theta: one, where theta is learned."""
        mixed_over = self.integrated_
        if mixed_over is None:
            return [(1.0, self.solution_, self.theta_)]
        return list(zip(mixed_over.weights, mixed_over.solutions, mixed_over.thetas, strict=True))

    def _joint_draws(self, X: Any, n_samples: int, random_state: Any, **rows: Any) -> np.ndarray:
        """Draws of y (M, n_samples) with the rows of one draw together: eta is drawn jointly, Gaussian given theta."""
        check_is_fitted(self)
        table, rng, points = self._table(X), generator(random_state), self._points()
        drawn = []
        size = count(type(self).__name__, "n_samples", n_samples, 1)
        sizes = rng.multinomial(size, [weight for weight, *_ in points])
        for size, (_, solution, theta) in zip(sizes, points, strict=True):
            if size:
                eta = self._latent.draws(solution.posterior, theta, table, int(size), rng)
                if not self._of_function:
                    likelihood = self._fitted if self.integrated_ is None else solution.likelihood
                    own = self._target.likelihood_at(likelihood, len(eta), rows)
                    eta = np.asarray(own.draw(eta, rng), dtype=np.float64)
                drawn.append(eta)
        return self._target.decoded(rng.permutation(np.hstack(drawn), axis=1))

    def _joint_covariance(self, X: Any) -> np.ndarray:
        """Cov[eta] (M, M) at new rows, that of theta included where it is integrated out."""
        table = self._table(X)
        means, covariances = [], []
        for weight, solution, theta in self._points():
            means.append(self._latent.moments(solution.posterior, theta, table, mean_only=True)[0])
            covariances.append(weight * self._latent.joint_covariance(solution.posterior, theta, table))
        weights = np.array([weight for weight, *_ in self._points()])
        away = np.stack(means) - weights @ np.stack(means)
        return np.asarray(sum(covariances) + away.T @ (weights[:, None] * away))

    def _score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, **rows: Any) -> float:
        """The mean log predictive density of the rows that have one."""
        if is_dask(X):
            check_is_fitted(self)
            return score_partitions(self, X, y, sample_weight, rows)
        name, new = type(self).__name__, self._predictive(X, **rows)
        density = self._target.log_density(new, y)
        seen = ~np.isnan(density)
        if not seen.any():
            raise problem(name, "every y is NaN", "at least one observed row")
        weights = None if sample_weight is None else vector(name, "sample_weight", sample_weight, density.size)[seen]
        return float(np.average(density[seen], weights=weights))


NO_TARGET = "no_validation"  # scikit-learn's word for a call without y


def validate_data(estimator: Any, X: Any, y: ArrayLike = NO_TARGET, **options: Any) -> Any:
    """scikit-learn's ``validate_data`` for X and y of numbers, which would cast text, categories and dates silently.

    y may be labels of any kind, unless ``y_numeric``.
    """
    name = type(estimator).__name__
    if not (y is None or y is NO_TARGET):
        y = unmasked(name, "y", y)
        if options.get("y_numeric") and getattr(y, "dtype", None) != np.complex128:  # scikit-learn's to refuse, after X
            y = numeric(name, "y", y)
    if type(estimator).takes_tensors:
        X = estimator._on_host(X, options.get("reset", True))
    try:
        return validation.validate_data(estimator, table(name, X), y, **options)
    except OverflowError:
        raise problem(name, "X holds a number beyond doubles", "numbers below 1e308") from None


def weights_of(sample_weight: ArrayLike, X: Any) -> np.ndarray | None:
    """The user's weights, checked: (N,), or None for 1 everywhere.

    A weight says how often its row was seen. Weights that sum to 1 are shares, as scikit-learn's boosting gives them:
    taken as counts they would say that one row was seen, so they are multiplied by the number of rows.
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
            "number of rows with a weight.",
            UserWarning,
            stacklevel=3,
        )
        return n * out
    return out


def generator(random_state: Any) -> np.random.Generator:
    """numpy's generator from scikit-learn's seed, RandomState or None."""
    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))


def levels_of(where: str, quantiles: ArrayLike) -> np.ndarray:
    """The probabilities of quantiles (Q,), each between 0 and 1."""
    q = np.atleast_1d(numeric(where, "quantiles", quantiles))
    if not ((q > 0.0) & (q < 1.0)).all():
        raise problem(where, f"quantiles = {q.tolist()}", "numbers between 0 and 1")
    return q
