"""q(z) = N(m, V) of the weights, their prior, and the certificate of a fit: all that the coordinator holds.

    V^-1 = Sigma^-1 + K,   Sigma = R R',   A = I + R' K R = L L',   U = L^-T,   V = (R U)(R U)'
    KL[q || p] = 1/2 (log|A| + tr A^-1 - L + |u|^2),   u = R^-1 (m - mu)

At (m, V) the rows say what they would have: alpha and lam of every row, so W' alpha and K+ = W' Lam W. Under a bound
with a dual those alpha and lam are a point of it, whose value the rows reach. So all of the gap lies between q and the
prior, and needs no further pass:

    D - P = 1/2 |u + R' W' alpha|^2 + 1/2 sum_i (d_i - log(1 + d_i)),    d_i the eigenvalues of T' (K+ - K) T,  T = R U

Without a dual the residuals bound what is missing by strong concavity, as everywhere (``primal.py``):

    best P - P <= 1/2 |u + R' W' alpha|^2 + 1/2 |U' R' (K+ - K) R|^2
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from ..linalg.dense import NotPositiveDefinite
from ..priors.base import EPS
from .evaluation import At
from .sums import Sums

_SUMS, _LOG_DET = 4.0, 8.0  # root mean squares of rounding allowed for, as in ``rounding.py``


class WeightPrior(Protocol):
    """z ~ N(mu(theta), Sigma(theta)) of the L weights of each predictor; what hyperparameters it has are learned.

    theta : array
        Where they start.
    bounds : array (n_theta, 2)
    """

    @property
    def theta(self) -> np.ndarray: ...

    @property
    def bounds(self) -> np.ndarray: ...

    def at(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """mu (L,), and a root R of Sigma: (L,) of a diagonal one, or (L, L) with R R' = Sigma."""

    def gradient(self, theta: np.ndarray, second: np.ndarray, n_predictors: int) -> np.ndarray:
        """d(-KL)/d theta given E_q[(z - mu)(z - mu)'] (L, L), summed over so many predictors."""

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient."""


class Weights:
    """q(z): the mean (L, C) and what rows have added to the precision, K (C, L, L); at given hyperparameters.

    ``NotPositiveDefinite`` where the precision is none.
    """

    def __init__(
        self, prior: WeightPrior, theta: np.ndarray, own: np.ndarray, mean: np.ndarray, gram: np.ndarray
    ) -> None:
        self.prior, self.theta, self.own, self.mean, self.gram = prior, theta, own, mean, gram
        self.centre, self.root = prior.at(theta)
        self.U, self.log_det = _inverse_roots(self.left(gram))
        self.u = _unrooted(self.root, mean - self.centre[:, None])
        inner = float(np.sum(self.U * self.U)) - self.U.shape[0] * self.U.shape[1]
        self.kl = 0.5 * (self.log_det + inner + float(np.sum(self.u * self.u)))

    def left(self, gram: np.ndarray) -> np.ndarray:
        """R' K R of each block."""
        R = self.root
        return np.asarray(gram * np.outer(R, R) if R.ndim == 1 else R.T @ gram @ R)

    def rooted(self, u: np.ndarray) -> np.ndarray:
        """R u."""
        return self.root[:, None] * u if self.root.ndim == 1 else self.root @ u

    def adjoint(self, a: np.ndarray) -> np.ndarray:
        """R' a."""
        return self.root[:, None] * a if self.root.ndim == 1 else self.root.T @ a

    @property
    def roots(self) -> np.ndarray:
        """T (C, L, L) with T T' = V."""
        return np.stack([self.rooted(U) for U in self.U])

    @property
    def covariance(self) -> np.ndarray:
        """V (C, L, L)."""
        T = self.roots
        return np.asarray(T @ np.swapaxes(T, 1, 2))

    @property
    def second(self) -> np.ndarray:
        """E_q[(z - mu)(z - mu)'] (L, L), summed over the predictors."""
        away = self.mean - self.centre[:, None]
        return np.asarray(self.covariance.sum(axis=0) + away @ away.T)

    def at(self) -> At:
        """Where rows are to be evaluated."""
        return At(self.mean, self.roots, self.own)


class Evaluated:
    """q with what the rows said of it.

    Attributes
    ----------
    elbo, gap, dual : float
        As of every fit; the gap is infinite where a likelihood that is not log-concave leaves no proof.
    shortfall : float
        What a solver drives to 0.
    objective : float
        elbo + log p(theta), of the likelihood's own parameters too.
    """

    certificate: str
    measure = "relative gap"

    def __init__(self, q: Weights, said: Sums, convex: bool, log_concave: bool, log_prior: float) -> None:
        self.q, self.said = q, said
        self.elbo = -q.kl - said["value"]
        if not np.isfinite(self.elbo):
            self.elbo = -np.inf
        self.objective = self.elbo + log_prior
        self.certificate = "duality" if convex else "strong-concavity" if log_concave else "stationarity"
        if self.certificate == "stationarity":
            self.measure = "relative distance from stationarity"
        self.shortfall = self._shortfall(convex)
        self.gap = self.shortfall if log_concave or convex else np.inf
        self.dual = self.elbo + self.gap if np.isfinite(self.elbo) else np.inf
        self.log_evidence = self.elbo

    def _shortfall(self, convex: bool) -> float:
        if not np.isfinite(self.elbo):
            return np.inf
        q = self.q
        first = 0.5 * float(np.sum((q.u + q.adjoint(self.said["adjoint"])) ** 2))
        moved = q.left(self.said["gram"] - q.gram)
        if convex:
            d = np.concatenate([np.linalg.eigvalsh(U.T @ E @ U) for U, E in zip(q.U, moved, strict=True)])
            with np.errstate(invalid="ignore", divide="ignore"):
                second = float(np.sum(d - np.log1p(d)))
        else:
            second = sum(float(np.sum((U.T @ E) ** 2)) for U, E in zip(q.U, moved, strict=True))
        total = first + 0.5 * second
        return total if total == total else np.inf

    @property
    def rounding(self) -> float:
        """How far rounding may have moved the elbo, as in ``rounding.py``, sums in pairs taken for single ones."""
        if not np.isfinite(self.elbo):
            return np.inf
        q = self.q
        A = q.left(q.gram) + np.eye(q.U.shape[1])
        each = np.sum(q.U * q.U, axis=2) * np.diagonal(A, axis1=1, axis2=2)
        sums = EPS * (float(self.said["square"]) + self.elbo**2 + float(np.sum(q.u * q.u)) ** 2) ** 0.5
        return float(_SUMS * sums + _LOG_DET * EPS * np.sqrt(np.sum(each * each)))


def _inverse_roots(inner: np.ndarray) -> tuple[np.ndarray, float]:
    """U = L^-T of I + inner = L L' of each block, and the sum of their log determinants."""
    out, log_det, eye = [], 0.0, np.eye(inner.shape[1])
    for block in inner:
        try:
            L = cholesky(block + eye, lower=True)
        except (np.linalg.LinAlgError, ValueError):
            raise NotPositiveDefinite from None
        out.append(solve_triangular(L, eye, lower=True, trans="T"))
        log_det += 2.0 * float(np.sum(np.log(np.diag(L))))
    return np.stack(out), log_det


def _unrooted(root: np.ndarray, away: np.ndarray) -> np.ndarray:
    """R^-1 (m - mu)."""
    return away / root[:, None] if root.ndim == 1 else np.linalg.solve(root, away)
