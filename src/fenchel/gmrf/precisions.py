"""Precisions as functions of theta: Q(theta) and its derivatives, as plain objects that can be pickled.

    ScaledStructure      Q = R / sd^2, theta = log sd
    Combination          Q = sum_j c_j(theta) M_j, for matrices with one sparsity pattern
    SharedBlocks         Q = diag(Q_1(theta), Q_2(theta), ...), for fields with the same theta
    Remembered           any precision, with its last result stored: the prior and the gradient use the same matrices
    RepeatedCovariance   Q = I_n kron S^-1, one covariance for each of n groups
    DiagonalSum          Q = diag(sum_j rates_j / sd_j^2)
    Product              Q = A(theta_a) kron B(theta_b) / sd^2, for two fields

S = D C D with D = diag(e^theta_1, ..., e^theta_d) and C = L L'. C is given by partial correlations
z_ij = tanh(theta_ij / 2), j < i, row by row:

    L_ij = z_ij prod_{k<j} sqrt(1 - z_ik^2),    L_ii = prod_{k<i} sqrt(1 - z_ik^2)

so that every theta gives a correlation matrix, and dL_im / dtheta_ij = -L_im z_ij / 2 for m > j.

If the factors of a product are intrinsic, the product is constrained to exclude the null space of each factor: k_a
constraints for each latent of b and k_b for each latent of a, of which k_a k_b are redundant. These many constraints
are handled through a sparse basis (``linalg/constraint_bases.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ..linalg.constraint_bases import constraint_rows

Precision = Callable[[np.ndarray], tuple[Any, list[Any]]]  # theta -> Q, [dQ/dtheta_1, ...], scipy sparse
Rates = Callable[[np.ndarray], tuple[Any, Sequence[Any]]]  # theta -> c, [dc/dtheta_1, ...]


@dataclass(frozen=True)
class ScaledStructure:
    """A fixed structure divided by the square of one sd: Q = R / sd^2, theta = log sd."""

    structure: sp.csc_array

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        Q = np.exp(-2.0 * theta[0]) * self.structure
        return Q, [-2.0 * Q]


@dataclass(frozen=True)
class Combination:
    """A sum of fixed symmetric matrices with coefficients that depend on theta, on their common pattern."""

    matrices: tuple[Any, ...]
    rates: Rates

    @cached_property
    def _aligned(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """indices and indptr of the common csc pattern, and the entries (J, entries), exactly symmetric."""
        n, matrices = self.matrices[0].shape[0], [sp.csc_array((M + M.T) / 2) for M in self.matrices]
        first, *others = (sp.csc_array((np.ones(M.nnz), M.indices, M.indptr), shape=M.shape) for M in matrices)
        every = sp.csc_array(sum(others, first))
        every.sort_indices()
        keys = lambda M: np.repeat(np.arange(n), np.diff(M.indptr)) * np.int64(n) + M.indices
        data, all_keys = np.zeros((len(matrices), every.nnz)), keys(every)
        for row, M in zip(data, matrices, strict=True):
            row[np.searchsorted(all_keys, keys(M))] = M.data
        return every.indices, every.indptr, data

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        indices, indptr, data = self._aligned
        c, slopes = self.rates(theta)
        shape = self.matrices[0].shape
        matrices = [sp.csc_array((np.asarray(rate) @ data, indices, indptr), shape=shape) for rate in (c, *slopes)]
        return matrices[0], matrices[1:]


@dataclass(frozen=True)
class DiffusionRates:
    """Coefficients of a Matern field from its stochastic differential equation; theta = (log sd, log range).

    c_j = weights_j kappa^powers_j / sd^2,    kappa = sqrt(8 nu) / range
    """

    weights: np.ndarray
    powers: np.ndarray
    nu: float = 1.0

    def __call__(self, theta: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        kappa = np.sqrt(8.0 * self.nu) / np.exp(theta[1])
        c = self.weights * kappa**self.powers * np.exp(-2.0 * theta[0])
        return c, [-2.0 * c, -self.powers * c]


@dataclass(frozen=True)
class TwoRangeRates:
    """Coefficients of a field with two ranges; theta = (log sd, log range, log(ratio - 1)).

    c = t (kappa^4 ratio^2, kappa^2 (1 + ratio^2), 1),    t = log(ratio) / (2 pi kappa^2 (ratio^2 - 1) sd^2)
    """

    def __call__(self, theta: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        k, excess = 8.0 * np.exp(-2.0 * theta[1]), float(np.exp(theta[2]))
        ratio = 1.0 + excess
        log_ratio = float(np.log1p(excess))
        square = excess * (2.0 + excess)  # ratio^2 - 1
        t = log_ratio / (2.0 * np.pi * k * square * np.exp(2.0 * theta[0]))
        c = t * np.array([k * k * ratio**2, k * (1.0 + ratio**2), 1.0])
        in_range = t * np.array([-2.0 * k * k * ratio**2, 0.0, 2.0])
        slope = excess / (ratio * log_ratio) - 2.0 * excess * ratio / square  # d log t / d log(ratio - 1)
        in_ratio = c * slope + t * 2.0 * excess * ratio * np.array([k * k, k, 0.0])
        return c, [-2.0 * c, in_range, in_ratio]


@dataclass(frozen=True)
class FirstOrderRates:
    """Coefficients of the field with nu = 0, kappa^2 C + G; the mesh bounds its variance through ``cutoff``.

    c = t (kappa^2, 1),    t = log(1 + cutoff / kappa^2) / (4 pi sd^2),    theta = (log sd, log range)
    """

    cutoff: float

    def __call__(self, theta: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        k = 8.0 * float(np.exp(-2.0 * theta[1]))
        scale = np.exp(-2.0 * theta[0]) / (4.0 * np.pi)
        t = scale * float(np.log1p(self.cutoff / k))
        slope = scale * 2.0 * self.cutoff / (k + self.cutoff)
        c = t * np.array([k, 1.0])
        return c, [-2.0 * c, slope * np.array([k, 1.0]) - t * np.array([2.0 * k, 0.0])]


@dataclass(frozen=True)
class SharedBlocks:
    """Q = diag(Q_1(theta), Q_2(theta), ...): independent fields with the same theta."""

    parts: tuple[Precision, ...]

    @staticmethod
    def of(parts: Sequence[Precision]) -> Precision:
        """The blocks as one precision; a single precision is returned itself."""
        return parts[0] if len(parts) == 1 else SharedBlocks(tuple(parts))

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        precisions = [part(theta) for part in self.parts]
        joined = lambda blocks: sp.block_diag(blocks, format="csc")
        slopes = zip(*(slopes for _, slopes in precisions), strict=True)
        return joined([Q for Q, _ in precisions]), [joined(each) for each in slopes]


class Remembered:
    """A precision that stores its last result."""

    def __init__(self, build: Precision) -> None:
        self.build: Precision = build.build if isinstance(build, Remembered) else build
        self.last: tuple[bytes, tuple[Any, list[Any]]] | None = None

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        theta = np.asarray(theta, dtype=np.float64)
        if self.last is None or self.last[0] != theta.tobytes():
            self.last = theta.tobytes(), self.build(theta)
        return self.last[1]


@dataclass(frozen=True)
class RepeatedCovariance:
    """The precision of n independent groups of d latents each.

    Attributes
    ----------
    n, d : int
    correlated : bool
        Whether theta has d log sds and then 2 atanh of the d (d - 1) / 2 partial correlations, or only the log sds.
    """

    n: int
    d: int
    correlated: bool = True

    def factor(self, theta: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The Cholesky factor L of the correlations, and its derivatives in their theta."""
        d, L, slopes = self.d, np.eye(self.d), []
        z = np.tanh(np.asarray(theta[d:]) / 2)
        at = 0
        for i in range(1, d) if self.correlated else ():
            partial = z[at : at + i]
            remaining = np.concatenate([[1.0], np.cumprod(np.sqrt(1.0 - partial**2))])
            L[i, :i], L[i, i] = partial * remaining[:i], remaining[i]
            for j in range(i):
                dL = np.zeros((d, d))
                dL[i, j] = remaining[j] * (1.0 - partial[j] ** 2) / 2
                dL[i, j + 1 : i + 1] = -L[i, j + 1 : i + 1] * partial[j] / 2
                slopes.append(dL)
            at += i
        return L, slopes

    def covariance(self, theta: np.ndarray) -> np.ndarray:
        """The covariance S (d, d)."""
        sd, (L, _) = np.exp(np.asarray(theta[: self.d])), self.factor(theta)
        return np.outer(sd, sd) * (L @ L.T)

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        d, sd, (L, slopes) = self.d, np.exp(np.asarray(theta[: self.d])), self.factor(theta)
        root = scipy.linalg.solve_triangular(L, np.eye(d), lower=True) / sd  # S^-1 = root' root
        P = root.T @ root
        out = []
        for i in range(d):  # dP = -(P e_i e_i' + e_i e_i' P) in log sd_i, from P S = I
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
        """I kron P with zeros of P stored, so that the pattern is the same for each theta."""
        n, d = self.n, self.d
        if not self.correlated:
            return sp.csc_array((np.tile(np.diag(P), n), np.arange(n * d), np.arange(n * d + 1)), shape=(n * d, n * d))
        rows = (d * np.arange(n)[:, None, None] + np.arange(d) + np.zeros((d, 1), dtype=int)).ravel()
        return sp.csc_array((np.tile(P.T.ravel(), n), rows, d * np.arange(n * d + 1)), shape=(n * d, n * d))


@dataclass(frozen=True)
class DiagonalSum:
    """Q = diag(sum_j rates_j / sd_j^2) with known rates (J, n); theta_j = log sd_j."""

    rates: np.ndarray

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        parts = np.exp(-2.0 * np.asarray(theta))[:, None] * self.rates
        return self._diagonal(parts.sum(axis=0)), [self._diagonal(-2.0 * part) for part in parts]

    def _diagonal(self, values: np.ndarray) -> sp.csc_array:
        n = values.size
        return sp.csc_array((values, np.arange(n), np.arange(n + 1)), shape=(n, n))


def row_products(A: sp.csr_array, B: sp.csr_array) -> sp.csr_array:
    """The Kronecker product of row n of A (N, p) and row n of B (N, q), for each n: (N, p q)."""
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    each = np.diff(B.indptr)[row]
    first = np.repeat(np.arange(A.nnz), each)
    within = np.arange(first.size) - np.repeat(np.cumsum(each) - each, each)
    second = B.indptr[row[first]] + within
    place = A.indices[first].astype(np.int64) * B.shape[1] + B.indices[second]
    out = sp.csr_array(
        (A.data[first] * B.data[second], (row[first], place)), shape=(A.shape[0], A.shape[1] * B.shape[1])
    )
    out.sort_indices()
    return out


@dataclass(frozen=True)
class ProductFactor:
    """One factor of a product.

    Attributes
    ----------
    build : callable
        theta -> Q and its derivatives; the first entry of theta is the log sd, fixed at 0.
    n_theta : int
        Number of hyperparameters besides the log sd.
    n : int
    constraints : array (k, n) or None
    spread : float
        Typical variance at log sd 0.
    """

    build: Precision
    n_theta: int
    n: int
    constraints: np.ndarray | None
    spread: float

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        Q, slopes = self.build(np.concatenate([[0.0], theta]))
        return Q, slopes[1:]

    def covariance(self, theta: np.ndarray) -> np.ndarray:
        """The dense covariance (n, n) of the latents under the constraints."""
        Q = self(theta)[0].toarray()
        if self.constraints is None:
            return np.linalg.inv(Q)
        free = scipy.linalg.null_space(self.constraints)
        return np.asarray(free @ scipy.linalg.solve(free.T @ Q @ free, free.T, assume_a="pos"))


@dataclass(frozen=True)
class Product:
    """The precision of a product; theta = log sd, then the other hyperparameters of both factors."""

    first: ProductFactor
    second: ProductFactor

    @property
    def spread(self) -> float:
        return self.first.spread * self.second.spread

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        k, cut = self.spread * np.exp(-2.0 * theta[0]), 1 + self.first.n_theta
        (A, dA), (B, dB) = self.first(theta[1:cut]), self.second(theta[cut:])
        Q = k * sp.kron(A, B, format="csc")
        slopes = [*(k * sp.kron(d, B, format="csc") for d in dA), *(k * sp.kron(A, d, format="csc") for d in dB)]
        return Q, [-2.0 * Q, *slopes]

    def constraints(self) -> Any:
        """The constraints of each factor for every latent of the other, without redundant ones; None without any."""
        C, D = self.first.constraints, self.second.constraints
        rows = [] if D is None else [sp.kron(sp.eye_array(self.first.n), D)]
        if C is not None:
            every = sp.eye_array(self.second.n, format="csr")
            if D is not None:  # D x = 0 implies the constraint C for as many latents of the second, if D is invertible
                implied = scipy.linalg.qr(D, mode="r", pivoting=True)[1][: len(D)]
                every = every[np.setdiff1d(np.arange(self.second.n), implied)]
            rows.append(sp.kron(C, every))
        return constraint_rows(sp.vstack(rows)) if rows else None
