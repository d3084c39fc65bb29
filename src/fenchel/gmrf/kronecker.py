"""Products of two fields: Q = A(theta_a) kron B(theta_b) / sd^2, and what holds them where a factor is intrinsic.

A kron B of intrinsic structures is held free of everything that is flat in one of them along the other: k_a constraints
for every latent of b, k_b for every one of a. So many are slow by conditioning. A fixed structure R with constraints C
is replaced by a basis of what they leave free,

    z = E w,   w ~ N(0, I),   E E' = the covariance of N(0, R^-1) given C z = 0

which needs no constraint, is dense over one factor only, and makes a kron I of the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .precisions import Precision

_FEW = 32  # constraints that conditioning carries without being felt
_WIDE = 1500  # latents beyond which a dense basis of a factor is not made


def free_basis(R: Any, C: np.ndarray) -> np.ndarray:
    """E (n, n - k) of a structure R and its constraints C (k, n)."""
    free = scipy.linalg.null_space(C)
    L = scipy.linalg.cholesky(free.T @ (R @ free), lower=True)
    return np.asarray(scipy.linalg.solve_triangular(L, free.T, lower=True).T)


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
    basis : array (n, r) or None
        Takes the place of structure and constraints where it is given.
    """

    build: Precision
    n_theta: int
    n: int
    constraints: np.ndarray | None
    spread: float
    basis: np.ndarray | None = None

    def eliminated(self) -> Factor:
        """The same with a basis of what the constraints leave free."""
        assert self.constraints is not None
        E = free_basis(self.build(np.zeros(1))[0], self.constraints)
        return Factor(self.build, self.n_theta, self.n, None, self.spread, E)

    @property
    def width(self) -> int:
        """Latents."""
        return self.n if self.basis is None else self.basis.shape[1]

    def __call__(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        if self.basis is not None:
            return sp.eye_array(self.width, format="csc"), []
        Q, slopes = self.build(np.concatenate([[0.0], theta]))
        return Q, slopes[1:]

    def covariance(self, theta: np.ndarray) -> np.ndarray:
        """Dense (width, width): of the latents, under the constraints."""
        Q = self(theta)[0].toarray()
        if self.constraints is None:
            return np.linalg.inv(Q)
        E = free_basis(Q, self.constraints)
        return E @ E.T

    def seen_by(self, design: Any) -> sp.csr_array:
        """Rows over the n latents of the field as rows over these."""
        return sp.csr_array(design) if self.basis is None else sp.csr_array(design @ self.basis)


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

    def constraints(self) -> np.ndarray | None:
        """Those of a factor for every latent of the other."""
        one, other = self.first, self.second
        if one.constraints is not None:
            return np.kron(one.constraints, np.eye(other.width))
        return None if other.constraints is None else np.kron(np.eye(one.width), other.constraints)


def product(first: Factor, second: Factor) -> Product:
    """A product with few constraints: of two intrinsic factors the smaller one is eliminated, of one where it pays."""
    pair = [first, second]
    held = [i for i, factor in enumerate(pair) if factor.constraints is not None]
    if len(held) == 2:
        i = int(second.n <= first.n)
        pair[i] = pair[i].eliminated()
    elif held:
        i = held[0]
        C = pair[i].constraints
        assert C is not None
        if C.shape[0] * pair[1 - i].n > _FEW and pair[i].n <= _WIDE:
            pair[i] = pair[i].eliminated()
    return Product(*pair)
