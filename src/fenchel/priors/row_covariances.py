"""Covariances of predictors under q with some rows of a fit, its sites.

    Cov(W z, W z) = Vt,    Cov(W* z, W z) = W* V W'                            new rows W* of the design
    Cov(eta*, W z) = c W' - (c W') Lam Vt                                      new rows by c = Cov(eta*, z) a priori

``Factor.row_covariances(sites)`` makes the kind that suits its factorisation. Nothing here is stored with the factor:
whoever needs covariances for long keeps the object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import to_numpy
from ..linalg.design import Design

# -- Observations that see the latents along one line: rows of W that are equal, or multiples of each other ---
# Their eta are one unknown, x = (eta - h) / sqrt(rho) up to its sign.
SAME_LINE = 1e-9  # distance of unit vectors, or of a correlation from 1, up to which rows are along one line


@dataclass(frozen=True)
class Lines:
    """Rows (N,) in groups: ``of`` the group of each, ``sign`` of its x against that of the group's first row."""

    of: np.ndarray
    sign: np.ndarray
    first: np.ndarray  # (n,) the first row of each group

    @classmethod
    def labelled(cls, label: np.ndarray, sign: np.ndarray | float = 1.0) -> Lines:
        """From any labels; signs are turned so that a group's first row has +1."""
        _, first, of = np.unique(label, return_index=True, return_inverse=True)
        sign = np.broadcast_to(sign, label.shape)
        return cls(of, sign * sign[first][of], first)

    @property
    def n(self) -> int:
        return int(self.first.size)

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows by their group, and where each group starts, the end included."""
        order = np.argsort(self.of, kind="stable")
        return order, np.searchsorted(self.of[order], np.arange(self.n + 1))

    def stretches(self, size: int) -> Iterator[tuple[slice, np.ndarray, Lines]]:
        """Some groups at a time: which, their rows, and the groups of these rows by themselves."""
        for i in range(0, self.n, size):
            some = np.arange(i, min(self.n, i + size))
            rows, start = self.rows_of(some)
            yield slice(i, i + some.size), rows, Lines(self.of[rows] - i, self.sign[rows], start)

    def rows_of(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of some groups, one group after the other, and where each starts among them."""
        order, edges = self._order
        size = edges[groups + 1] - edges[groups]
        start = np.cumsum(size) - size
        return order[np.repeat(edges[groups] - start, size) + np.arange(size.sum())], start


def lines_of_design(W: Design, same: float = SAME_LINE) -> Lines:
    """Rows of a design."""
    if W.picks is not None:
        return Lines.labelled(W.picks)
    return lines_of_rows(W.host_rows(), same)


def lines_of_rows(W: Any, same: float = SAME_LINE) -> Lines:
    """Rows of a matrix (N, L), dense or sparse, that are multiples of each other; rows of zeros stay alone."""
    n, L = W.shape
    probe = np.random.default_rng(0).standard_normal(L)
    norm = np.sqrt(_row_squares(W))
    alive = norm > 0.0
    seen = np.asarray(W @ probe).ravel() / np.where(alive, norm, 1.0)
    sign = np.where(seen < 0.0, -1.0, 1.0)
    scale = sign / np.where(alive, norm, 1.0)
    order = np.lexsort((np.arange(n), np.where(alive, np.abs(seen), -1.0 - np.arange(n))))
    a, b = order[:-1], order[1:]
    near = np.abs(np.abs(seen[a]) - np.abs(seen[b])) <= same
    near &= alive[a] & alive[b]
    if near.any():
        i, j = a[near], b[near]
        apart = _scaled(W, i, scale) - _scaled(W, j, scale)
        near[near] = np.sqrt(_row_squares(apart)) <= 10.0 * same
    label = np.empty(n, dtype=np.int64)
    label[order] = np.concatenate([[0], np.cumsum(~near)])
    return Lines.labelled(label, sign)


def lines_of_covariance(S: Any, same: float = SAME_LINE) -> Lines:
    """Unknowns that a covariance (N, N) makes one: their correlation is 1 or -1."""
    S = to_numpy(S)
    sd = np.sqrt(np.diagonal(S))
    sd = np.where(sd > 0.0, sd, np.inf)  # no variance, no correlation
    probe = np.random.default_rng(0).standard_normal(sd.size)
    seen = (S @ (probe / sd)) / sd
    order = np.argsort(np.abs(seen), kind="stable")
    a, b = order[:-1], order[1:]
    both = S[a, b] / (sd[a] * sd[b])
    near = np.abs(both) >= 1.0 - same
    label, turn = np.empty(sd.size, dtype=np.int64), np.empty(sd.size)
    label[order] = np.concatenate([[0], np.cumsum(~near)])
    turn[order] = np.concatenate([[1.0], np.cumprod(np.where(near, np.sign(both), 1.0))])
    return Lines.labelled(label, turn)


def _row_squares(W: Any) -> np.ndarray:
    if sp.issparse(W):
        return np.asarray(W.multiply(W).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", W, W))


def _scaled(W: Any, rows: np.ndarray, scale: np.ndarray) -> Any:
    if sp.issparse(W):
        return sp.csr_array(sp.diags_array(scale[rows]) @ W[rows])
    return W[rows] * scale[rows, None]


# --------------------------------------------------------------------------------------------------
class RowCovariances:
    """Of any factor: Vt is written out once, and the latents are the predictors.

    Parameters
    ----------
    factor : Factor
    sites : int array (n,)
        Rows of the factor.
    """

    sparse = False  # whether the factor is sparse: neighbours in a graph, and solves
    low_rank = False  # whether few weights explain all rows

    def __init__(self, factor: Any, sites: np.ndarray) -> None:
        self.factor, self.sites = factor, sites

    @cached_property
    def _whole(self) -> list[np.ndarray]:
        return [to_numpy(V) for V in self.factor.covariance()]

    def columns(self, rows: np.ndarray) -> list[np.ndarray]:
        """Vt of all rows with some of them (R, m), of each block."""
        return [V[:, rows] for V in self._whole]

    @cached_property
    def _with_sites(self) -> np.ndarray:
        """Vt of all rows with the sites (R, n), of the first block."""
        return self.columns(self.sites)[0]

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Vt of some rows with the sites (M, n)."""
        return self._with_sites[rows]

    def of_design(self, new: Design) -> np.ndarray:
        """Of new rows of the design with the sites (M, n)."""
        return np.asarray(to_numpy(new.times(self._with_sites)))

    def of_cross(self, cross: Any) -> np.ndarray:
        """Of new rows with the sites (M, n), given their prior covariances with the latents (M, L)."""
        seen = self._seen(cross)
        lam = to_numpy(self.factor.lam)[:, 0]
        return np.asarray(seen[:, self.sites] - self._explained(seen * lam))

    def _seen(self, cross: Any) -> np.ndarray:
        """Cov(eta*, W z) a priori (M, R)."""
        return to_numpy(cross)

    def _explained(self, seen: np.ndarray) -> np.ndarray:
        return seen @ self._with_sites


class LatentCovariances(RowCovariances):
    """Of a factor that works with a dense covariance of the rows."""

    def of_design(self, new: Design) -> np.ndarray:
        seen = self.factor.predictors.designs[0].take(self.sites)
        return np.asarray(to_numpy(seen.beside(self.factor.design_covariance([new])[0])))

    def _seen(self, cross: Any) -> np.ndarray:
        return to_numpy(self.factor.predictors.designs[0].times(cross.T)).T


class WeightCovariances(LatentCovariances):
    """Of few weights: Vt = H H' with H = X A^-1/2 (R, L), and nothing of R x R is kept."""

    low_rank = True

    @cached_property
    def _roots(self) -> list[np.ndarray]:
        return [to_numpy(part.X.times(part.U)) for part in self.factor.parts]

    def columns(self, rows: np.ndarray) -> list[np.ndarray]:
        return [H @ H[rows].T for H in self._roots]

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        return self._roots[0][rows] @ self._roots[0][self.sites].T

    def of_design(self, new: Design) -> np.ndarray:
        half = self.factor.predictors.latents[0].whiten(new).times(self.factor.parts[0].U)
        return np.asarray(to_numpy(half) @ self._roots[0][self.sites].T)

    def _explained(self, seen: np.ndarray) -> np.ndarray:
        return (seen @ self._roots[0]) @ self._roots[0][self.sites].T

    def by_weights(self, of: np.ndarray) -> np.ndarray:
        """Cov(u, W z) of the weights with some sites (L, m)."""
        part = self.factor.parts[0]
        return np.asarray(to_numpy(part.U) @ to_numpy(part.X.take(self.sites[of]).times(part.U)).T)

    def from_weights(self, sites: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """X u (m, M) of some sites for u (L, M)."""
        return to_numpy(self.factor.parts[0].X.take(self.sites[sites]).times(weights))


class SparseCovariances(LatentCovariances):
    """Of a sparse precision: Vt by solves."""

    sparse = True

    def __init__(self, factor: Any, sites: np.ndarray) -> None:
        super().__init__(factor, sites)
        self.part, self.pattern = factor.parts[0], factor.pattern

    @property
    def design(self) -> Any:
        """W of the sites, sparse (n, L)."""
        return self.factor.W[self.sites]

    def columns(self, rows: np.ndarray) -> list[np.ndarray]:
        W = self.factor.W
        return [np.asarray(W @ part.solve(W[rows].T.toarray())) for part in self.factor.parts]

    def of_design(self, new: Design) -> np.ndarray:
        W, seen = new.csr(), self.design
        if W.shape[0] < seen.shape[0]:
            return np.asarray(seen @ self.part.solve(W.T.toarray())).T
        return np.asarray(W @ self.part.solve(seen.T.toarray()))
