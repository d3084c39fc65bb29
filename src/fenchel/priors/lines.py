"""Observations that see the latents along one line: rows of W that are equal, or multiples of each other.

Their eta are one unknown, x = (eta - h) / sqrt(rho) up to its sign.
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


def lines_of_design(W: Design) -> Lines:
    """Rows of a design."""
    if W.picks is not None:
        return Lines.labelled(W.picks)
    return lines_of_rows(W.host_rows())


def lines_of_rows(W: Any) -> Lines:
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
    near = np.abs(np.abs(seen[a]) - np.abs(seen[b])) <= SAME_LINE
    near &= alive[a] & alive[b]
    if near.any():
        i, j = a[near], b[near]
        apart = _scaled(W, i, scale) - _scaled(W, j, scale)
        near[near] = np.sqrt(_row_squares(apart)) <= 10.0 * SAME_LINE
    label = np.empty(n, dtype=np.int64)
    label[order] = np.concatenate([[0], np.cumsum(~near)])
    return Lines.labelled(label, sign)


def lines_of_covariance(S: Any) -> Lines:
    """Unknowns that a covariance (N, N) makes one: their correlation is 1 or -1."""
    S = to_numpy(S)
    sd = np.sqrt(np.diagonal(S))
    sd = np.where(sd > 0.0, sd, np.inf)  # no variance, no correlation
    probe = np.random.default_rng(0).standard_normal(sd.size)
    seen = (S @ (probe / sd)) / sd
    order = np.argsort(np.abs(seen), kind="stable")
    a, b = order[:-1], order[1:]
    both = S[a, b] / (sd[a] * sd[b])
    near = np.abs(both) >= 1.0 - SAME_LINE
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
