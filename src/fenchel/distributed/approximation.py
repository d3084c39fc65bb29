"""q(z) = N(m, V), V^-1 = P + K, and its certificate: all that the process of a fit holds.

    KL[q || p] = 1/2 (log|P + K| - log|P| - tr K V + (m - mu)' P (m - mu))

At (m, V) a pass brings W' alpha and K+ = W' Lam W, the sums over rows of what alpha and lam are there. Under a bound
with a dual those alpha and lam are a point of it, whose value the rows reach. So all of the gap lies between q and the
prior, and needs no further pass:

    D - P = 1/2 r' P^-1 r + 1/2 (tr V E - log|P + K+| + log|P + K|),     r = P (m - mu) + W' alpha,   E = K+ - K

Without a dual the residuals bound what is missing by strong concavity (``primal.py``):

    best P - P <= 1/2 r' P^-1 r + 1/2 tr E V E P^-1
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..priors.base import EPS
from .evaluation import At
from .partitions import Sums
from .precision import PartitionedPrior, Precision

_SUMS, _LOG_DET = 4.0, 8.0  # root mean squares of rounding allowed for, as in ``rounding.py``


class Step(NamedTuple):
    """A change of q: of the mean, of what rows add to the precision, and of the hyperparameters. Also a place of q."""

    mean: np.ndarray
    gram: np.ndarray
    theta: np.ndarray
    own: np.ndarray

    def plus(self, other: Step, t: float = 1.0) -> Step:
        """The sum of this and t times the other."""
        return Step(*(a + t * b for a, b in zip(self, other, strict=True)))


class Approximation:
    """q(z): the mean (L, C) and what rows have added to the precision, at given hyperparameters.

    Raises NotPositiveDefinite where P + K is no precision.
    """

    def __init__(
        self,
        prior: PartitionedPrior,
        theta: np.ndarray,
        own: np.ndarray,
        mean: np.ndarray,
        gram: np.ndarray,
        precision: Precision | None = None,
    ) -> None:
        self.prior, self.theta, self.own, self.mean, self.gram = prior, theta, own, mean, gram
        self.precision: Precision = prior.at(theta) if precision is None else precision
        self.factor: Any = self.precision.plus(gram)
        self.norm = self.precision.norm(mean)
        self.kl = 0.5 * (self.factor.log_det - self.factor.trace + self.norm)

    @property
    def place(self) -> Step:
        """Its parameters."""
        return Step(self.mean, self.gram, self.theta, self.own)

    def at(self) -> At:
        """Where rows are to be evaluated."""
        return At(self.mean, self.factor.spread, self.own)

    def scaled(self, step: Step) -> np.ndarray:
        """A step in units of q's own spread, one vector."""
        size = np.sqrt(self.mean.shape[0] / 2.0)
        return np.concatenate([self.factor.scaled(step.mean, step.gram), size * step.theta, size * step.own])


class Iterate:
    """q with the sums of a pass over the rows.

    Attributes
    ----------
    elbo, gap, dual : float
        As of every fit; the gap is infinite where a likelihood that is not log-concave leaves no proof.
    shortfall : float
        What a solver drives to 0.
    objective : float
        elbo + log p(theta), of the likelihood's own parameters too.
    """

    def __init__(self, q: Approximation, sums: Sums, bound: Any, log_prior: float) -> None:
        self.q, self.sums, convex = q, sums, bound.convex
        self.elbo = -q.kl - sums["value"]
        self.elbo = self.elbo if np.isfinite(self.elbo) else -np.inf
        self.objective, self.log_evidence = self.elbo + log_prior, self.elbo
        proved = convex or bound.log_concave
        self.certificate = "duality" if convex else "strong-concavity" if proved else "stationarity"
        self.measure = "relative gap" if proved else "relative distance from stationarity"
        self.shortfall = self._shortfall(convex)
        self.gap = self.shortfall if proved else np.inf
        self.dual = self.elbo + self.gap if np.isfinite(self.elbo) else np.inf

    def _shortfall(self, convex: bool) -> float:
        if not np.isfinite(self.elbo):
            return np.inf
        q, sums = self.q, self.sums
        total = q.precision.residual(q.mean, sums["adjoint"]) + q.factor.divergence(sums["gram"] - q.gram, convex)
        return 0.5 * total if total == total else np.inf

    @property
    def rounding(self) -> float:
        """How far rounding may have moved the elbo, as in ``rounding.py``, sums in pairs taken for single ones."""
        if not np.isfinite(self.elbo):
            return np.inf
        sums = EPS * (float(self.sums["square"]) + self.elbo**2 + self.q.norm**2) ** 0.5
        return float(_SUMS * sums + _LOG_DET * self.q.factor.log_det_rounding)
