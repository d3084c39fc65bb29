"""Products of two fields: Q = A(theta_a) kron B(theta_b) / sd^2, and what holds them where a factor is intrinsic.

A kron B of intrinsic structures is held free of everything that is flat in one of them along the other: k_a constraints
for every latent of b, k_b for every one of a, of which k_a k_b follow from the others. So many are carried by a sparse
basis (``linalg/bases.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ..linalg.bases import constraint_rows
from .precisions import Precision


def row_products(A: sp.csr_array, B: sp.csr_array) -> sp.csr_array:
    """Row by row the Kronecker product of the rows of A (N, p) and B (N, q): (N, p q)."""
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
class Factor:
    """One factor of a product.

    Attributes
    ----------
    build : callable
        theta -> Q and its derivatives; the first entry of theta is its size, held at 0.
    n_theta : int
        Hyperparameters beside the size.
    n : int
    constraints : array (k, n) or None
    spread : float
        Typical variance at size 0.
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
        """Dense (n, n): of the latents, under the constraints."""
        Q = self(theta)[0].toarray()
        if self.constraints is None:
            return np.linalg.inv(Q)
        free = scipy.linalg.null_space(self.constraints)
        return np.asarray(free @ scipy.linalg.solve(free.T @ Q @ free, free.T, assume_a="pos"))


@dataclass(frozen=True)
class Product:
    """The precision of a product; theta = log sd, then what the factors have beside their size."""

    first: Factor
    second: Factor

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
        """Those of a factor for every latent of the other, without those that follow from others; None without any."""
        C, D = self.first.constraints, self.second.constraints
        rows = [] if D is None else [sp.kron(sp.eye_array(self.first.n), D)]
        if C is not None:
            every = sp.eye_array(self.second.n, format="csr")
            if D is not None:  # D x = 0 says what C does to as many latents of the second, where D is invertible
                told = scipy.linalg.qr(D, mode="r", pivoting=True)[1][: len(D)]
                every = every[np.setdiff1d(np.arange(self.second.n), told)]
            rows.append(sp.kron(C, every))
        return constraint_rows(sp.vstack(rows)) if rows else None
