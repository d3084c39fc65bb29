"""One covariance repeated over groups: Q = I_n kron S^-1, S = D C D, D = diag(e^theta_1, ..., e^theta_d), C = L L'.

C is given by partial correlations z_ij = tanh(theta_ij / 2), j < i, row by row:

    L_ij = z_ij prod_{k<j} sqrt(1 - z_ik^2),    L_ii = prod_{k<i} sqrt(1 - z_ik^2)

so that any theta is a correlation matrix, and dL_im / dtheta_ij = -L_im z_ij / 2 for m > j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp


@dataclass(frozen=True)
class RepeatedCovariance:
    """The precision of n independent groups of d latents each.

    Attributes
    ----------
    n, d : int
    correlated : bool
        theta is d log sds, and then the d (d - 1) / 2 partial correlations by 2 atanh of them.
    """

    n: int
    d: int
    correlated: bool = True

    def factor(self, theta: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """L of the correlations, and its derivatives in their theta."""
        d, L, slopes = self.d, np.eye(self.d), []
        z = np.tanh(np.asarray(theta[d:]) / 2)
        at = 0
        for i in range(1, d) if self.correlated else ():
            mine = z[at : at + i]
            left = np.concatenate([[1.0], np.cumprod(np.sqrt(1.0 - mine**2))])
            L[i, :i], L[i, i] = mine * left[:i], left[i]
            for j in range(i):
                dL = np.zeros((d, d))
                dL[i, j] = left[j] * (1.0 - mine[j] ** 2) / 2
                dL[i, j + 1 : i + 1] = -L[i, j + 1 : i + 1] * mine[j] / 2
                slopes.append(dL)
            at += i
        return L, slopes

    def covariance(self, theta: np.ndarray) -> np.ndarray:
        """S (d, d)."""
        sd, (L, _) = np.exp(np.asarray(theta[: self.d])), self.factor(theta)
        return np.outer(sd, sd) * (L @ L.T)

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        d, sd, (L, slopes) = self.d, np.exp(np.asarray(theta[: self.d])), self.factor(theta)
        root = scipy.linalg.solve_triangular(L, np.eye(d), lower=True) / sd  # S^-1 = root' root
        P = root.T @ root
        out = []
        for i in range(d):  # S_ij moves with log sd_i, and S_ii twice: dP = -(P e_i e_i' + e_i e_i' P), by P S = I
            dP = np.zeros((d, d))
            dP[i] -= P[i]
            dP[:, i] -= P[:, i]
            out.append(dP)
        for dL in slopes:
            middle = root.T @ scipy.linalg.solve_triangular(L, dL, lower=True)  # D^-1 L^-T L^-1 dL
            half = middle @ (root * sd) / sd
            out.append(-(half + half.T))
        return self._repeated(P), [self._repeated(dP) for dP in out]

    def _repeated(self, P: np.ndarray) -> sp.csc_array:
        """I kron P, zeros of P kept: one pattern for every theta."""
        n, d = self.n, self.d
        if not self.correlated:
            return sp.csc_array((np.tile(np.diag(P), n), np.arange(n * d), np.arange(n * d + 1)), shape=(n * d, n * d))
        rows = (d * np.arange(n)[:, None, None] + np.arange(d) + np.zeros((d, 1), dtype=int)).ravel()
        return sp.csc_array((np.tile(P.T.ravel(), n), rows, d * np.arange(n * d + 1)), shape=(n * d, n * d))


@dataclass(frozen=True)
class DiagonalSum:
    """Q = diag(sum_j rates_j / sd_j^2), rates (J, n) known; theta_j = log sd_j."""

    rates: np.ndarray

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        parts = np.exp(-2.0 * np.asarray(theta))[:, None] * self.rates
        return self._diagonal(parts.sum(axis=0)), [self._diagonal(-2.0 * part) for part in parts]

    def _diagonal(self, values: np.ndarray) -> sp.csc_array:
        n = values.size
        return sp.csc_array((values, np.arange(n), np.arange(n + 1)), shape=(n, n))
