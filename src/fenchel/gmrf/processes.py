"""A Gaussian process at n points as a precision: K = sd^2 (R + nugget I),    Q = K^-1,    dQ = -Q dK Q.

    r^2 = sum_j (x_j - x'_j)^2 / l_j^2,    l_j = range_j / 2,    theta = (log sd, log range_1, ...)
    rbf: R = e^(-r^2/2);    matern12, matern32, matern52: the Matern functions of smoothness 1/2, 3/2, 5/2

At its range a correlation has fallen to between 0.13 and 0.14 for every kernel. The nugget, a millionth of the
variance, is part of z: each of the n points has an independent effect of a thousandth of the sd beside the process. It
is there because a smooth R at many points is singular in doubles; given it, all that follows is exact.

Given z the process at other points x* has mean W z and covariance C:

    W = R* (R + nugget I)^-1,    C = sd^2 (R** - W R*'),    R* = R(x*, points), R** = R(x*, x*)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from ..kernels import MATERN

NUGGET = 1e-6  # of the variance


@dataclass(frozen=True)
class Process:
    """The precision of a Gaussian process at points (n, d), with one range or one for each column."""

    points: np.ndarray
    nu: float
    isotropic: bool = True

    def _lengths(self, theta: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.exp(np.asarray(theta[1:])) / 2.0, (self.points.shape[1],))

    def correlation(self, theta: np.ndarray, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """R (N, M), the nugget aside."""
        lengths = self._lengths(theta)
        return np.asarray(MATERN[self.nu][0](cdist(X / lengths, Y / lengths)))

    def _inverse(self, theta: np.ndarray) -> np.ndarray:
        """(R + nugget I)^-1, exactly symmetric."""
        R = self.correlation(theta, self.points, self.points)
        R[np.diag_indices_from(R)] = 1.0 + NUGGET
        half = scipy.linalg.solve_triangular(scipy.linalg.cholesky(R, lower=True), np.eye(len(R)), lower=True)
        return np.asarray(half.T @ half)

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        P, k = self._inverse(theta), float(np.exp(-2.0 * theta[0]))
        each = [cdist(x[:, None], x[:, None], "sqeuclidean") for x in (self.points / self._lengths(theta)).T]
        w = MATERN[self.nu][1](np.sqrt(sum(each)))
        moved = [sum(each)] if self.isotropic else each
        slopes = [self._sparse(-2.0 * k * P)]
        for square in moved:
            dP = P @ (w * square) @ P
            slopes.append(self._sparse(-0.5 * k * (dP + dP.T)))
        return self._sparse(k * P), slopes

    def _sparse(self, A: np.ndarray) -> sp.csc_array:
        """A dense block, zeros kept: one pattern for every theta."""
        n = len(A)
        return sp.csc_array((A.ravel(), np.tile(np.arange(n), n), n * np.arange(n + 1)), shape=(n, n))

    def weights(self, theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the values at the points for those at X: W (N, n), and the variance (N,) that they leave."""
        cross = self.correlation(theta, X, self.points)
        W = cross @ self._inverse(theta)
        left = 1.0 - np.sum(W * cross, axis=1)
        return W, np.exp(2.0 * theta[0]) * np.maximum(left, 0.0)

    def left(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """The covariance (N, N) that they leave."""
        cross = self.correlation(theta, X, self.points)
        rest = self.correlation(theta, X, X) - cross @ self._inverse(theta) @ cross.T
        return np.asarray(np.exp(2.0 * theta[0]) * (rest + rest.T) / 2.0)
