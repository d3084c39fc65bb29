"""A design W (R, L): the linear predictors are eta = W z + offset, for latents z. W may have any form of storage.

    times      W u                 row_squares    rowsum((W U)^2)           take       selected rows
    adjoint    W' a                row_products   rowsum((W Q) o W)         toarray    W as an array, if it fits
    gram       W' diag(w) W        row_norms      rowsum(W^2 v)             csr        W as a sparse matrix

Priors use only these operations, so that W need not be an array. It may be an identity or select latents, without any
multiplication (``Identity``, ``Index``), have columns in other units (``Scaled``), or consist of parts (``RowBlocks``).
Matrices, dense or sparse, here or on a device, are in ``matrix_designs.py``, where ``as_design`` makes a design of
what a user gives; ``standardized.py`` centres and scales columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import scipy.sparse as sp

from .arrays import Array, asarray, namespace, to_numpy
from .dense import asarray_index, diagonal_matrix, diagonal_of

HOST = np.empty(0)  # an array on the host, in numpy


class Design(ABC):
    """R rows over L latents. A subclass for other storage implements the abstract methods; the others follow."""

    shape: tuple[int, ...]  # (R, L)
    like: Array = HOST  # an array in the library and on the device of the results
    picks: np.ndarray | None = None  # the latent of each row, if every row is one latent
    identity: bool = False  # whether the rows are the latents in order

    @abstractmethod
    def times(self, u: Array) -> Array:
        """W u for u (L,) or (L, M)."""

    @abstractmethod
    def adjoint(self, a: Array) -> Array:
        """W' a for a (R,) or (R, M)."""

    @abstractmethod
    def gram(self, weight: Array) -> Array:
        """W' diag(weight) W as a full L x L matrix. Weights may be negative."""

    @abstractmethod
    def row_squares(self, U: Array) -> Array:
        """rowsum((W U)^2) for U (L, M)."""

    @abstractmethod
    def row_products(self, Q: Array) -> Array:
        """rowsum((W Q) o W) for Q (L, L)."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> Design:
        """The design with selected rows, by their indices."""

    @abstractmethod
    def toarray(self) -> Array:
        """W as one array; not called for a design that does not fit."""

    def host_rows(self) -> Any:
        """W as a numpy array, or as a scipy matrix if sparse."""
        return np.asarray(to_numpy(self.toarray()))

    def row_variances(self, U: Array, Q: Callable[[], Array]) -> Array:
        """diag(W Q W') for Q = U U', from U or Q, whichever costs less and loses no digits."""
        return self.row_squares(U)

    def row_norms(self, v: Array) -> Array:
        """rowsum(W^2 v) for v (L,) >= 0: diag(W diag(v) W')."""
        return self.row_squares(diagonal_matrix(namespace(v).sqrt(v)))

    def beside(self, A: Array) -> Array:
        """A W' (M, R) for A (M, L)."""
        return self.times(A.T).T

    def pull_back(self, G: Array) -> Array:
        """W' G W (L, L) for a symmetric G (R, R)."""
        return self.adjoint(self.adjoint(G).T)

    def between(self, weight: Array, other: Design) -> Array:
        """W' diag(weight) Y for another design Y with the same rows."""
        return self.gram(weight) if other is self else self.adjoint(other.toarray() * weight[:, None])

    def multiplied_out(self) -> Design:
        """The same design for computations in the N x N space of rows, with scales of columns applied."""
        return self

    def csr(self) -> sp.csr_array:
        """W as a scipy sparse matrix."""
        return sp.csr_array(to_numpy(self.toarray()))

    def entries(self) -> Iterator[np.ndarray]:
        """The arrays that define the design, to check that they are finite."""
        yield from ()


class Identity(Design):
    """W = I: each row is one latent."""

    def __init__(self, n: int, like: Array = HOST) -> None:
        self.shape, self.like = (n, n), like

    identity = True

    @property
    def picks(self) -> np.ndarray:  # type: ignore[override]
        return np.arange(self.shape[0])

    def times(self, u: Array) -> Array:
        return u

    def adjoint(self, a: Array) -> Array:
        return a

    def pull_back(self, G: Array) -> Array:
        return G

    def gram(self, weight: Array) -> Array:
        return diagonal_matrix(weight)

    def row_squares(self, U: Array) -> Array:
        return namespace(U).sum(U * U, axis=1)

    def row_products(self, Q: Array) -> Array:
        return diagonal_of(Q)

    def row_norms(self, v: Array) -> Array:
        return v

    def take(self, rows: np.ndarray) -> Index:
        return Index(rows, self.shape[1], self.like)

    def toarray(self) -> Array:
        return asarray(np.eye(self.shape[1]), self.like)

    def csr(self) -> sp.csr_array:
        return sp.eye_array(self.shape[1], format="csr")


class Index(Design):
    """W = I[index]: row r is the latent ``index[r]`` of n."""

    def __init__(self, index: np.ndarray, n: int, like: Array = HOST) -> None:
        self.index, self.shape, self.like = np.asarray(index), (len(index), n), like

    @property
    def picks(self) -> np.ndarray:  # type: ignore[override]
        return self.index

    def times(self, u: Array) -> Array:
        return namespace(u).take(u, asarray_index(self.index, u), axis=0)

    def adjoint(self, a: Array) -> Array:
        host = to_numpy(a)
        if host.ndim == 1:
            return asarray(np.bincount(self.index, weights=host, minlength=self.shape[1]), a)
        return asarray(self.csr().T @ host, a)

    def gram(self, weight: Array) -> Array:
        return diagonal_matrix(self.adjoint(weight))

    def row_squares(self, U: Array) -> Array:
        return self.times(namespace(U).sum(U * U, axis=1))

    def row_products(self, Q: Array) -> Array:
        return self.times(diagonal_of(Q))

    def row_norms(self, v: Array) -> Array:
        return self.times(v)

    def take(self, rows: np.ndarray) -> Index:
        return Index(self.index[rows], self.shape[1], self.like)

    def toarray(self) -> Array:
        return asarray(self.csr().toarray(), self.like)

    def csr(self) -> sp.csr_array:
        R = self.shape[0]
        return sp.csr_array((np.ones(R), self.index, np.arange(R + 1)), shape=self.shape)


class Scaled(Design):
    """W diag(scale): other operands are scaled, so that W is not copied."""

    def __init__(self, base: Design, scale: Array) -> None:
        self.base, self.scale, self.shape, self.like = base, scale, base.shape, scale

    def rescaled(self, u: Array) -> Array:
        """diag(scale) u for u (L,) or (L, M)."""
        return self.scale * u if u.ndim == 1 else self.scale[:, None] * u

    def both_scaled(self, G: Array) -> Array:
        """diag(scale) G diag(scale)."""
        return self.scale[:, None] * G * self.scale[None, :]

    def times(self, u: Array) -> Array:
        return self.base.times(self.rescaled(u))

    def adjoint(self, a: Array) -> Array:
        return self.rescaled(self.base.adjoint(a))

    def gram(self, weight: Array) -> Array:
        return self.both_scaled(self.base.gram(weight))

    def row_squares(self, U: Array) -> Array:
        return self.base.row_squares(self.rescaled(U))

    def row_variances(self, U: Array, Q: Callable[[], Array]) -> Array:
        return self.base.row_variances(self.rescaled(U), lambda: self.both_scaled(Q()))

    def row_products(self, Q: Array) -> Array:
        return self.base.row_products(self.both_scaled(Q))

    def row_norms(self, v: Array) -> Array:
        return self.base.row_norms(self.scale**2 * v)

    def take(self, rows: np.ndarray) -> Scaled:
        return Scaled(self.base.take(rows), self.scale)

    def toarray(self) -> Array:
        return self.base.toarray() * self.scale[None, :]

    def between(self, weight: Array, other: Design) -> Array:
        if isinstance(other, Scaled):
            return self.rescaled(self.base.between(weight, other.base)) * other.scale[None, :]
        return super().between(weight, other)


class RowBlocks(Design):
    """Designs stacked by rows; parts may be on different devices."""

    def __init__(self, parts: Sequence[Design]) -> None:
        self.parts, self.like = list(parts), parts[0].like
        self.edges = np.cumsum([0, *(part.shape[0] for part in self.parts)])
        self.shape = (int(self.edges[-1]), self.parts[0].shape[1])

    def _joined(self, answers: list[Array]) -> Array:
        return namespace(answers[0]).concat(answers, axis=0)

    def _with(self, a: Array) -> Iterator[tuple[Design, Array]]:
        """Each part with its slice of a vector over rows."""
        for part, i, j in zip(self.parts, self.edges[:-1], self.edges[1:], strict=True):
            yield part, a[i:j]

    def times(self, u: Array) -> Array:
        return self._joined([part.times(u) for part in self.parts])

    def adjoint(self, a: Array) -> Array:
        return reduce(add, (part.adjoint(some) for part, some in self._with(a)))

    def gram(self, weight: Array) -> Array:
        return reduce(add, (part.gram(some) for part, some in self._with(weight)))

    def row_squares(self, U: Array) -> Array:
        return self._joined([part.row_squares(U) for part in self.parts])

    def row_products(self, Q: Array) -> Array:
        return self._joined([part.row_products(Q) for part in self.parts])

    def row_norms(self, v: Array) -> Array:
        return self._joined([part.row_norms(v) for part in self.parts])

    def take(self, rows: np.ndarray) -> RowBlocks:
        home = np.searchsorted(self.edges, rows, side="right") - 1
        runs = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(home)) + 1)  # slices of rows within one part
        return RowBlocks([self.parts[home[run[0]]].take(rows[run] - self.edges[home[run[0]]]) for run in runs])

    def toarray(self) -> Array:
        return self._joined([part.toarray() for part in self.parts])

    def csr(self) -> sp.csr_array:
        return sp.csr_array(sp.vstack([part.csr() for part in self.parts], format="csr"))

    def entries(self) -> Iterator[np.ndarray]:
        for part in self.parts:
            yield from part.entries()
