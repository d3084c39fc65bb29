"""Fields along an index: independent effects, random walks, autoregressions, seasons, and any structure matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from ..checks import count, numeric, problem, scalar
from ..kernel_profiles import PROFILES
from .base import SIZE, MarkovField, scaled
from .times import Walk


def rw1(n: int, precision: float = 1.0) -> MarkovField:
    """A first-order random walk, x_{t+1} - x_t ~ N(0, 1/k), constrained to sum to zero."""
    n = count("rw1", "n", n, 2)
    return scaled(Walk(1).structure(np.arange(float(n))), precision, constraints=np.ones((1, n)))


def rw2(n: int, precision: float = 1.0) -> MarkovField:
    """A second-order random walk, x_t - 2 x_{t+1} + x_{t+2} ~ N(0, 1/k), constrained to have no level and no slope.

    For a level and a trend add an intercept and a linear covariate to the model.
    """
    n = count("rw2", "n", n, 3)
    D = sp.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(n - 2, n))
    time = np.arange(n) - (n - 1) / 2
    return scaled(D.T @ D, precision, constraints=np.stack([np.ones(n), time]))


def seasonal(n: int, period: int, precision: float = 1.0) -> MarkovField:
    """Effects whose sums over ``period`` neighbours are N(0, 1/k), without any exactly periodic part."""
    m = count("seasonal", "n", period, 2)
    n = count("seasonal", "n", n, m + 1)
    D = sp.diags_array([1.0] * m, offsets=list(range(m)), shape=(n - m + 1, n))
    phase = np.arange(n) % m
    C = (phase[None, :] == np.arange(m - 1)[:, None]).astype(float) - (phase == m - 1)[None, :]
    return scaled(D.T @ D, precision, constraints=C)


def ar1(n: int, phi: float = 0.5, variance: float = 1.0) -> MarkovField:
    """A stationary autoregression with marginal sd e^theta_1 and phi = tanh(theta_2 / 2)."""
    n = count("ar1", "n", n, 2)
    phi, variance = scalar("ar1", "phi", phi), scalar("ar1", "variance", variance)
    if not -1.0 < phi < 1.0 or not variance > 0.0:
        raise problem("ar1", f"phi = {phi}, variance = {variance}", "-1 < phi < 1 and variance > 0")
    start = [0.5 * np.log(variance), 2 * np.arctanh(phi)]
    return MarkovField(Autoregression(n, 1), start, ["log sd", "2 atanh phi"], [SIZE, (-9.0, 9.0)])


def generic(structure: Any, precision: float = 1.0, constraints: Any = None) -> MarkovField:
    """Q = k R for any structure matrix R; constraints remove its null space if it has one."""
    if not hasattr(structure, "tocsr"):
        structure = numeric("generic", "structure", structure)
        if structure.ndim != 2:
            raise problem("generic", f"structure has shape {structure.shape}", "(n, n)")
    return scaled(structure, precision, constraints=constraints)


@dataclass(frozen=True)
class Autoregression:
    """An autoregression of order p at n equal steps; theta = (log sd, 2 atanh of the partial autocorrelations)."""

    n: int
    p: int

    def coefficients(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Coefficients of the predictors of order 0, ..., p, their error variances at sd 1, and derivatives in theta.

        Arrays (p+1, p), (p+1,), (p, p+1, p), (p, p+1), from the Durbin-Levinson recursion.
        """
        p, r = self.p, np.tanh(np.asarray(theta[1 : 1 + self.p]) / 2)
        phi, v = np.zeros((p + 1, p)), np.ones(p + 1)
        dphi, dv = np.zeros((p, p + 1, p)), np.zeros((p, p + 1))
        for m in range(1, p + 1):
            last, dr = r[m - 1], (1.0 - r[m - 1] ** 2) / 2
            phi[m, : m - 1] = phi[m - 1, : m - 1] - last * phi[m - 1, : m - 1][::-1]
            phi[m, m - 1] = last
            dphi[:, m, : m - 1] = dphi[:, m - 1, : m - 1] - last * dphi[:, m - 1, : m - 1][:, ::-1]
            dphi[m - 1, m, : m - 1] -= dr * phi[m - 1, : m - 1][::-1]
            dphi[m - 1, m, m - 1] = dr
            v[m] = v[m - 1] * (1.0 - last**2)
            dv[:, m] = dv[:, m - 1] * (1.0 - last**2)
            dv[m - 1, m] = -v[m] * last
        return phi, v, dphi, dv

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        phi, v, dphi, dv = self.coefficients(theta)
        k, order = np.exp(-2.0 * theta[0]), np.minimum(np.arange(self.n), self.p)
        lead = lambda one, coefficients: np.concatenate([np.full((self.n, 1), one), -coefficients[order]], axis=1)
        c, w = lead(1.0, phi), 1.0 / v[order]
        Q = k * self._banded(c, c, w)
        slopes = []
        for j in range(self.p):
            dc, dw = lead(0.0, dphi[j]), -dv[j][order] * w**2
            slopes.append(k * (self._banded(c, c, dw) + self._banded(c, dc, w) + self._banded(dc, c, w)))
        return self._matrix(Q), [self._matrix(-2.0 * Q), *(self._matrix(slope) for slope in slopes)]

    def _banded(self, c: np.ndarray, d: np.ndarray, w: np.ndarray) -> np.ndarray:
        """sum_t w_t c_t[t - i] d_t[t - i - b] at (i, i + b), b = 0, ..., p: (p+1, n); c_t[m] multiplies z_{t-m}."""
        out = np.zeros((self.p + 1, self.n))
        for b in range(self.p + 1):
            for m in range(b, self.p + 1):  # t = i + m
                t = np.arange(m, self.n)
                out[b, t - m] += w[t] * c[t, m] * d[t, m - b]
        return out

    @cached_property
    def _pattern(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The csc pattern of all bands: indptr, indices, and the index in ``band.ravel()`` of each entry."""
        i, j = np.indices((self.n, 2 * self.p + 1))
        j += i - self.p
        inside = (j >= 0) & (j < self.n)
        i, j = i[inside], j[inside]
        indptr = np.concatenate([[0], np.cumsum(inside.sum(axis=1))])
        return indptr, j, np.abs(i - j) * self.n + np.minimum(i, j)

    def _matrix(self, band: np.ndarray) -> sp.csc_array:
        """A symmetric matrix from its bands, with zeros stored."""
        indptr, rows, places = self._pattern
        return sp.csc_array((band.ravel()[places], rows, indptr), shape=(self.n, self.n))


# -- A Gaussian process at n points as a precision: K = sd^2 (R + nugget I),    Q = K^-1,    dQ = -Q dK Q ---
# r^2 = sum_j (x_j - x'_j)^2 / l_j^2,    l_j = range_j / 2,    theta = (log sd, log range_1, ...)
#     rbf: R = e^(-r^2/2);    matern12, matern32, matern52: the Matern functions of smoothness 1/2, 3/2, 5/2
#
# At its range the correlation of each kernel is between 0.13 and 0.14. The nugget, a millionth of the variance, is part
# of z: each of the n points has an independent effect with a thousandth of the sd. Without it a smooth R at many points
# is singular in doubles. All further results are exact, given the nugget.
#
# Given z the process at other points x* has mean W z and covariance C:
#
#     W = R* (R + nugget I)^-1,    C = sd^2 (R** - W R*'),    R* = R(x*, points), R** = R(x*, x*)
NUGGET = 1e-6  # relative to the variance


@dataclass(frozen=True)
class Process:
    """The precision of a Gaussian process at points (n, d), with a common range or one for each column."""

    points: np.ndarray
    nu: float
    shared: bool = True

    def _lengths(self, theta: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.exp(np.asarray(theta[1:])) / 2.0, (self.points.shape[1],))

    def correlation(self, theta: np.ndarray, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """The correlations R (N, M) without the nugget."""
        lengths = self._lengths(theta)
        return np.asarray(PROFILES[self.nu].value(cdist(X / lengths, Y / lengths, "sqeuclidean")))

    def kernel(self, theta: np.ndarray) -> Any:
        """The covariance as a kernel of scikit-learn, without the nugget."""
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

        lengths = np.exp(np.asarray(theta[1:])) / 2.0
        length = float(lengths[0]) if self.shared else lengths
        shape = RBF(length) if np.isinf(self.nu) else Matern(length, nu=self.nu)
        return ConstantKernel(float(np.exp(2.0 * theta[0]))) * shape

    def _inverse(self, theta: np.ndarray) -> np.ndarray:
        """The inverse (R + nugget I)^-1, exactly symmetric."""
        R = self.correlation(theta, self.points, self.points)
        R[np.diag_indices_from(R)] = 1.0 + NUGGET
        half = scipy.linalg.solve_triangular(scipy.linalg.cholesky(R, lower=True), np.eye(len(R)), lower=True)
        return np.asarray(half.T @ half)

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        P, k = self._inverse(theta), float(np.exp(-2.0 * theta[0]))
        each = [cdist(x[:, None], x[:, None], "sqeuclidean") for x in (self.points / self._lengths(theta)).T]
        w = np.asarray(PROFILES[self.nu].weight(np.sum(each, axis=0)))
        moved = [sum(each)] if self.shared else each
        slopes = [self._sparse(-2.0 * k * P)]
        for square in moved:
            dP = P @ (w * square) @ P
            slopes.append(self._sparse(-0.5 * k * (dP + dP.T)))
        return self._sparse(k * P), slopes

    def _sparse(self, A: np.ndarray) -> sp.csc_array:
        """A dense block with zeros stored, so that the pattern is the same for each theta."""
        n = len(A)
        return sp.csc_array((A.ravel(), np.tile(np.arange(n), n), n * np.arange(n + 1)), shape=(n, n))

    def weights(self, theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights W (N, n) of the values at the points for those at X, and the conditional variances (N,)."""
        cross = self.correlation(theta, X, self.points)
        W = cross @ self._inverse(theta)
        variance = 1.0 - np.sum(W * cross, axis=1)
        return W, np.exp(2.0 * theta[0]) * np.maximum(variance, 0.0)

    def left(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """The conditional covariance (N, N) of the values at X."""
        cross = self.correlation(theta, X, self.points)
        conditional = self.correlation(theta, X, X) - cross @ self._inverse(theta) @ cross.T
        return np.asarray(np.exp(2.0 * theta[0]) * (conditional + conditional.T) / 2.0)
