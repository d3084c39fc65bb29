"""What eta is: X read into a family of priors, and eta at new rows.

Half of an estimator; its target (``inputs/observations.py``) is the other. A latent makes its family, says how its
hyperparameters are learned, and gives the mean and variance of eta at new rows, a block of them at a time where whole
ones would not fit.
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

# -- Estimators whose hyperparameters are integrated out: y at new rows as a mixture over theta ----
F = TypeVar("F", bound=Family)
_WEAK = 2.0  # sd of the log of a hyperparameter that has no prior, about where it starts


def with_prior(family: F, entries: Sequence[int] | None = None, centre: np.ndarray | None = None) -> F:
    """The family, each entry of theta, or some, N(start, 2^2) where it states no prior: a flat one has no integral.

    ``centre`` (n_theta,) is in the place of the start.
    """
    if family._log_prior is None:
        which = range(family.theta.size) if entries is None else entries
        about = family.theta if centre is None else centre
        family._log_prior = independent({i: Normal(float(about[i]), _WEAK) for i in which})
    return family


def integrated(
    target: Target, family: Family, found: Learned, weights: Any, own: bool, method: Any, n_jobs: Any
) -> Integrated:
    """The posterior over theta too, about what was learned."""
    word = "auto" if method is True else method
    options = {"weights": weights, "learn_likelihood": own, "mode": found, "method": word, "n_jobs": n_jobs}
    return integrate(target.likelihood, family, target.y, **options)


def mixed(posterior: Integrated, target: Target, latent: Latent, table: Any, rows: dict[str, Any]) -> Predictive:
    """y at the rows of a table."""
    etas = [
        part.at(latent.new_rows(theta, table)) for part, theta in zip(posterior.answers, posterior.thetas, strict=True)
    ]
    n = np.shape(etas[0].mean)[0]
    own = [target.likelihood_at(likelihood, n, rows) for likelihood in posterior.likelihoods]
    together = Mixture(posterior.weights, etas)
    return Predictive.mixture(posterior.weights, own, etas, together, target.values, target.labels)


def reported_moments(new: Predictive, shifts: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of eta as reported, which each theta has ``shifts`` above eta as fitted."""
    parts = [NormalMarginals(part.h + shift, part.rho) for part, shift in zip(new.parts, shifts, strict=True)]
    both = Mixture([part.weight for part in new.parts], parts)
    return both.mean, both.variance


# -- The contract ----------------------------------------------------------------------------------
Moments = tuple[np.ndarray, np.ndarray]


class Latent(ABC):
    """A family of priors for the rows of a fit, and what it says of others."""

    in_partitions = False  # whether the rows of the fit are elsewhere, and it cannot be stated without them
    reason: str = ""  # why the prior is approximated as it is, where "auto" decided
    roots: list[np.ndarray] | None = None  # T T' = Cov of the weights, where prediction needs no rows of the fit

    @abstractmethod
    def family(self) -> Family:
        """The prior of eta at the rows of the fit, with hyperparameters; a new one at every call."""

    @abstractmethod
    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """Where to predict; theta may go on with the likelihood's own parameters."""

    def rows(self) -> Any:
        """X of the fit, where the latent holds it: an array or a scipy sparse matrix; else None."""
        return None

    def learn(self, target: Target, family: Family, own: bool, **options: Any) -> Learned:
        """Learn the hyperparameters, and with ``own`` those of the likelihood."""
        return learn(target.likelihood, family, target.y, learn_likelihood=own, **options)

    def fitted(self, target: Target, family: Family, **options: Any) -> Learned:
        """The fit at the hyperparameters where the family stands."""
        return fitted_at(target, family, family.theta, **options)

    def after(self, family: Family) -> Family:
        """The family as it was learned: through other points, say."""
        return family

    def sentences(self) -> list[str]:
        """What a summary says of an approximation of the prior."""
        return []

    def blocks(self, table: Any) -> Iterable[Any]:
        """New rows, as many at a time as may be looked at together."""
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
        """Mean and variance of eta at new rows, (M,) or (M, C); with ``mean_only`` the variance is left 0.

        Where the predictors of a row are correlated, their covariance (M, C, C) in place of the variance.
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
    """The fit at a theta that is not searched for by its elbo."""
    evidence = Evidence(target.likelihood, family, target.y, own=False, **options)
    fit = evidence.fit(theta)
    where = (theta, fit, fit.elbo, np.zeros(0), fit.optimal, fit.ending, 1, fit.n_iter)
    return Learned(*where, likelihood=target.likelihood, prior=evidence.prior)
