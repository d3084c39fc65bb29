"""The contract of a latent: the half of an estimator that models eta as a function of X.

The other half is the target (``inputs/observations.py``), which models y given eta. A latent makes the family of
priors for the rows of X, learns its hyperparameters, and predicts eta at new rows, in blocks if memory requires it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..hyperparameters import Evidence, Family, Learned, Normal, independent, learn
from ..hyperparameters.integration import Integrated, Mixture, integrate
from ..inputs.observations import Target
from ..linalg.arrays import Array, to_numpy
from ..marginals import NormalMarginals
from ..posterior import Posterior
from ..predictive import Predictive
from ..priors.base import NewRows

# -- Hyperparameters integrated out: predictions are mixtures over theta ----------------------------
F = TypeVar("F", bound=Family)
DEFAULT_PRIOR_SD = 2.0  # sd of the default prior of a log hyperparameter about its start


def with_prior(family: F, entries: Sequence[int] | None = None, centre: np.ndarray | None = None) -> F:
    """The family with the prior N(start, 2^2) on entries of theta, if it has no prior: a flat one has no integral.

    entries : the places in theta; default: all
    centre : array (n_theta,), in place of the start
    """
    if family._log_prior is None:
        which = range(family.theta.size) if entries is None else entries
        about = family.theta if centre is None else centre
        family._log_prior = independent({i: Normal(float(about[i]), DEFAULT_PRIOR_SD) for i in which})
    return family


def integrated(
    target: Target, family: Family, result: Learned, weights: Any, own: bool, method: Any, n_jobs: Any
) -> Integrated:
    """The posterior over theta and eta, integrated about the learned theta."""
    word = "auto" if method is True else method
    options = {"weights": weights, "learn_likelihood": own, "mode": result, "method": word, "n_jobs": n_jobs}
    return integrate(target.likelihood, family, target.y, **options)


def mixed(posterior: Integrated, target: Target, latent: Latent, table: Any, rows: dict[str, Any]) -> Predictive:
    """Predictive distribution of y at the rows of ``table``, a mixture over theta."""
    etas = [
        part.at(latent.new_rows(theta, table)) for part, theta in zip(posterior.answers, posterior.thetas, strict=True)
    ]
    n = np.shape(etas[0].mean)[0]
    own = [target.likelihood_at(likelihood, n, rows) for likelihood in posterior.likelihoods]
    together = Mixture(posterior.weights, etas)
    return Predictive.mixture(posterior.weights, own, etas, together, target.values, target.labels)


def reported_moments(new: Predictive, shifts: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of eta as reported: at each theta it is eta as fitted plus an entry of ``shifts``."""
    parts = [NormalMarginals(part.h + shift, part.rho) for part, shift in zip(new.parts, shifts, strict=True)]
    both = Mixture([part.weight for part in new.parts], parts)
    return both.mean, both.variance


# -- The contract ----------------------------------------------------------------------------------
Moments = tuple[np.ndarray, np.ndarray]


class Latent(ABC):
    """A family of priors of eta at the rows of a fit, and the prediction of eta at new rows."""

    in_partitions = False  # whether the rows of the fit are in Dask partitions, so that they cannot be saved
    reason: str = ""  # why approximation="auto" chose this approximation of the prior
    interrupt: KeyboardInterrupt | None = None  # the interrupt that ended the fit, whose best result is kept
    roots: list[np.ndarray] | None = None  # T with T T' = Cov of the weights, if these alone suffice for prediction

    @abstractmethod
    def family(self) -> Family:
        """A new family of priors of eta at the rows of the fit, with its hyperparameters."""

    @abstractmethod
    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """New rows as the posterior predicts them; theta may end with the parameters of the likelihood."""

    def rows(self) -> Any:
        """X of the fit, an array or a scipy sparse matrix, if the latent keeps it; else None."""
        return None

    def learn(self, target: Target, family: Family, own: bool, **options: Any) -> Learned:
        """Learn the hyperparameters, with ``own`` also the parameters of the likelihood."""
        return learn(target.likelihood, family, target.y, learn_likelihood=own, **options)

    def fitted(self, target: Target, family: Family, **options: Any) -> Learned:
        """Fit at the current hyperparameters of the family, without learning them."""
        return fitted_at(target, family, family.theta, **options)

    def after(self, family: Family) -> Family:
        """The family after learning, which may have changed it: for example its inducing points."""
        return family

    def sentences(self) -> list[str]:
        """Lines of ``summary`` about the approximation of the prior."""
        return []

    def blocks(self, table: Any) -> Iterable[Any]:
        """New rows in blocks whose temporaries fit in memory."""
        return [table]

    def joint_covariance(self, posterior: Posterior, theta: np.ndarray, table: Any) -> np.ndarray:
        """The joint covariance (M, M) of eta at new rows."""
        new = self.new_rows(theta, table)
        half = np.asarray(new.design @ np.asarray(posterior.latent_covariance()))
        own = np.broadcast_to(np.asarray(new.extra_variance, dtype=np.float64), half.shape[:1])
        return np.asarray(new.design @ half.T) + np.diag(own)

    def draws(
        self, posterior: Posterior, theta: np.ndarray, table: Any, size: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Joint draws (M, size) of eta at new rows."""
        new = self.new_rows(theta, table)
        eta = np.asarray(new.design @ np.asarray(posterior.sample_latents(size, rng)).T)
        m = eta.shape[0]
        own = np.broadcast_to(np.asarray(new.extra_variance, dtype=np.float64), m)
        offset = np.broadcast_to(np.asarray(new.offset, dtype=np.float64).reshape(-1), m)
        return eta + offset[:, None] + np.sqrt(own)[:, None] * rng.standard_normal(eta.shape)

    def moments(self, posterior: Posterior, theta: np.ndarray, table: Any, mean_only: bool = False) -> Moments:
        """Mean and variance of eta at new rows, arrays (M,) or (M, C).

        With ``mean_only`` the variance is not computed and is 0. If the C predictors of a row are correlated, their
        covariance (M, C, C) takes the place of the variance.
        """
        parts: list[tuple[Array, Array]] = []
        for rows in self.blocks(table):
            new = self.new_rows(theta, rows)
            if mean_only:
                h = posterior.predict_mean(new)
                parts.append((h, 0.0 * h))
            else:
                eta = posterior.at(new)
                parts.append((eta.mean, eta.spread))
        means, spreads = ([to_numpy(x) for x in each] for each in zip(*parts, strict=True))
        return (means[0], spreads[0]) if len(parts) == 1 else (np.concatenate(means), np.concatenate(spreads))


def fitted_at(target: Target, family: Family, theta: np.ndarray, **options: Any) -> Learned:
    """Fit at a given theta, without a search."""
    evidence = Evidence(target.likelihood, family, target.y, own=False, **options)
    fit = evidence.fit(theta)
    fields = (theta, fit, fit.elbo, np.zeros(0), fit.optimal, fit.ending, 1, fit.n_iter)
    return Learned(*fields, likelihood=target.likelihood, prior=evidence.prior)
