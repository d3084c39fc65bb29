"""A Gaussian working model of the rows, in which the evidence of a theta costs one small Cholesky factor.

    y~_n ~ N(eta_n, phi / lam_n),    eta = mt + sum_j e^(t_j) W_j z_j + fixed effects,    t = 0 where learning starts

Each row is replaced by the Gaussian that its own likelihood amounts to under a wide prior of eta_n; for Gaussian noise
that is the row itself. With U an orthonormal basis of what the design does to the weighted rows, the covariance of a
summand is a small matrix M_j, and at the best phi, p fixed effects aside,

    log p(y~) = -1/2 (log|I + sum_j b_j M_j| + (N - p) (1 + log phi)),    phi = Q(b) / (N - p),    b_j = e^(2 t_j) / phi

Where the likelihood has no parameters of its own, phi is 1. What the model says is where a search begins, never a
result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from ..likelihoods.base import Likelihood, Rows
from ..linalg.arrays import to_numpy
from ..priors.predictors import LatentPredictors

_ROUNDS = 8  # of the rows' own fits
_STEP = 0.8  # share of each round that is taken: the whole one may overshoot
_LEAST = 1e-6  # precision of a working row, in units of its prior's: below it the row says nothing
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
_FIXED = 1.0  # prior variance of a combination of fixed effects, in units of the noise: above it the data decide it


@dataclass(frozen=True)
class WorkingRows:
    """Rows as Gaussian observations of eta: y~ (N,) with precisions lam (N,), and how often each was seen.

    Both are 0 where a row says nothing; lam is that of all of its copies together.
    """

    y: np.ndarray
    lam: np.ndarray
    weight: np.ndarray


def working_rows(likelihood: Likelihood, rows: Rows, mean: np.ndarray, variance: float) -> WorkingRows:
    """The Gaussian that each row amounts to under eta_n ~ N(mean_n, variance), by damped natural-gradient steps."""
    weight = to_numpy(rows["weight"])
    h, rho = _modes(likelihood, rows, mean, variance)
    first, second = np.zeros(mean.size), np.zeros(mean.size)  # natural parameters of a site about the prior mean
    with np.errstate(all="ignore"):
        for _ in range(_ROUNDS):
            places = h[:, None] + np.sqrt(rho)[:, None] * NODES
            _, slope, bend = likelihood.derivatives(places, rows)
            slope = weight * (to_numpy(slope) @ NODE_WEIGHTS)
            bend = weight * np.maximum(to_numpy(bend) @ NODE_WEIGHTS, 0.0)
            first = first + _STEP * (bend * (h - mean) - slope - first)
            second = second + _STEP * (bend - second)
            rho = 1.0 / (1.0 / variance + second)
            h = mean + rho * first
        known = np.isfinite(first) & np.isfinite(second) & (second * variance > _LEAST) & (weight > 0.0)
        y = np.where(known, mean + first / np.where(known, second, 1.0), mean)
    return WorkingRows(y, np.where(known, second, 0.0), np.where(known, weight, 0.0))


def _modes(likelihood: Likelihood, rows: Rows, mean: np.ndarray, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Where the rows' own fits begin: at the eta of each that makes its y likely, as far as the curvature there tells.

    A density that is not log-concave would say nothing, seen from far away.
    """
    marks = likelihood.landmarks(rows)
    at = np.clip(to_numpy(marks[0]), mean - 3.0 * variance**0.5, mean + 3.0 * variance**0.5) if marks else mean
    bend = to_numpy(likelihood.derivatives(at[:, None], rows)[2])[:, 0]
    h = np.where(np.isfinite(at), at, mean)
    return h, 1.0 / (1.0 / variance + np.where(np.isfinite(bend), np.maximum(bend, 0.0), 0.0))


class WorkingModel:
    """The working rows under the summands of a prior.

    Parameters
    ----------
    rows : WorkingRows
    predictors : LatentPredictors
        Of the same rows, with one predictor each, where learning starts.
    summands : list of slice
        The latents of each; those of none are fixed effects.
    noisy : bool
        Whether phi is free.
    """

    def __init__(self, rows: WorkingRows, predictors: LatentPredictors, summands: list[slice], noisy: bool) -> None:
        self.summands, self.noisy = summands, noisy
        root = np.sqrt(rows.lam)
        W = root[:, None] * to_numpy(predictors.designs[0].toarray())
        residual = root * (rows.y - to_numpy(predictors.mt)[:, 0])
        self.n = float(rows.weight.sum())
        self.rest = 0.0  # squares of what the design does not reach
        if W.shape[1] < W.shape[0]:
            U, W = qr(W, mode="economic", check_finite=False)
            inside = U.T @ residual
            self.rest = max(0.0, float(residual @ residual - inside @ inside))
            residual = inside
        self.W, self.residual = W, residual
        self.fixed = np.eye(residual.size) + self._fixed(predictors)
        p = int((np.linalg.eigvalsh(self.fixed) > 1.0 + _FIXED).sum())
        self.n_free = max(1.0, self.n - p)

    def covariance(self, predictors: LatentPredictors, j: int) -> np.ndarray:
        """M_j (r, r) under a prior of the same design."""
        part = self.summands[j]
        return np.asarray(self.W[:, part] @ self._times(predictors)[part])

    def _times(self, predictors: LatentPredictors) -> np.ndarray:
        """Sigma W' (L, r)."""
        return to_numpy(predictors.latents[0].covariance_times(self.W.T))

    def _fixed(self, predictors: LatentPredictors) -> np.ndarray:
        """That of the latents of no summand (r, r)."""
        other = np.ones(self.W.shape[1], dtype=bool)
        for part in self.summands:
            other[part] = False
        return np.asarray(self.W[:, other] @ self._times(predictors)[other])

    def signal(self, M: np.ndarray) -> float:
        """log of the sd that a summand gives a row, over that of its noise."""
        return 0.5 * float(np.log(max(float(np.trace(M)) / max(self.n, 1e-300), 1e-300)))

    def evaluate(self, M: list[list[np.ndarray]], log_ratio: np.ndarray) -> list[tuple[float, float]]:
        """log p(y~) up to a constant, and log phi, where each M_j has the factor e^(2 log_ratio_j): (G, J) of both."""
        total = np.stack([self.fixed] * len(M))
        for k, (each, ratio) in enumerate(zip(M, np.exp(2.0 * log_ratio), strict=True)):
            for M_j, b in zip(each, ratio, strict=True):
                total[k] += b * M_j
        L = np.linalg.cholesky(total)
        log_det = 2.0 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
        white = np.linalg.solve(L, np.broadcast_to(self.residual[:, None], (len(M), self.residual.size, 1)))
        squares = (white**2).sum(axis=(1, 2)) + self.rest
        if not self.noisy:
            return [(value, 0.0) for value in (-0.5 * (log_det + squares)).tolist()]
        log_phi = np.log(np.maximum(squares / self.n_free, _LEAST))
        values = -0.5 * (log_det + self.n_free * (1.0 + log_phi))
        return list(zip(values.tolist(), log_phi.tolist(), strict=True))
