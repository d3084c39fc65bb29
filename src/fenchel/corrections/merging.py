"""Observations that look at the latents along one line: rows of W that are equal, or multiples of each other.

Their eta are one unknown, x = (eta - h) / sqrt(rho) up to its sign, and so they are one site: the sum of their log
densities as functions of that x. Whatever shares one latent is then exact, and splitting rows changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import to_numpy
from ..linalg.design import Design, Identity, Index
from ..priors.base import Predictors
from ..priors.batched import BatchedPredictors
from ..priors.predictors import LatentPredictors
from ..priors.rowspace import RowPredictors

_SAME = 1e-9  # of a unit vector, or below one of a correlation: rows as close as this are along one line


@dataclass(frozen=True)
class Groups:
    """Rows (N,) in groups: ``of`` the group of each, ``sign`` of its x against that of the group's first row."""

    of: np.ndarray
    sign: np.ndarray
    first: np.ndarray  # (n,) the first row of each group

    @classmethod
    def alone(cls, n: int) -> Groups:
        return cls(np.arange(n), np.ones(n), np.arange(n))

    @classmethod
    def labelled(cls, label: np.ndarray, sign: np.ndarray) -> Groups:
        """From any labels; signs are turned so that a group's first row has +1."""
        _, first, of = np.unique(label, return_index=True, return_inverse=True)
        return cls(of, sign * sign[first][of], first)

    @property
    def n(self) -> int:
        return int(self.first.size)

    def stretches(self, size: int) -> Iterator[tuple[slice, np.ndarray, Groups]]:
        """Some groups at a time: which, their rows, and the groups of these rows by themselves."""
        order = np.argsort(self.of, kind="stable")
        edges = np.searchsorted(self.of[order], np.arange(self.n + 1))
        for i in range(0, self.n, size):
            j = min(self.n, i + size)
            rows = order[edges[i] : edges[j]]
            yield slice(i, j), rows, Groups(self.of[rows] - i, self.sign[rows], edges[i:j] - edges[i])


def groups_of(predictors: Predictors) -> Groups:
    """The rows of bound predictors, merged where they are along one line a priori."""
    n = predictors.n_observations
    if isinstance(predictors, BatchedPredictors):
        cells = np.arange(predictors.R * predictors.n_cells) if predictors.keep is None else predictors.keep
        own = along_lines(sp.csr_array(predictors.W))  # of one row of the table
        column, row = cells % predictors.n_cells, cells // predictors.n_cells
        return Groups.labelled(row * predictors.n_cells + own.of[column], own.sign[column])
    if not isinstance(predictors, LatentPredictors):
        return Groups.alone(n)
    W = predictors.designs[0]
    if isinstance(W, Index):
        return _within(Groups.labelled(W.index, np.ones(n)), predictors)
    if isinstance(W, Identity):
        return _within(Groups.alone(n), predictors)
    return along_lines(_host_rows(W))


def _host_rows(W: Design) -> Any:
    """W where linear algebra of rows is quick: as it is stored."""
    X = getattr(W, "X", None)
    if sp.issparse(X):
        return sp.csr_array(X)
    return np.asarray(to_numpy(W.toarray()))


def along_lines(W: Any) -> Groups:
    """Rows of a matrix (N, L), dense or sparse, that are multiples of each other; rows of zeros stay alone."""
    n, L = W.shape
    rng = np.random.default_rng(0)
    probe = rng.standard_normal(L)
    square = np.asarray(W.multiply(W).sum(axis=1)).ravel() if sp.issparse(W) else np.einsum("ij,ij->i", W, W)
    norm = np.sqrt(square)
    alive = norm > 0.0
    seen = np.asarray(W @ probe).ravel() / np.where(alive, norm, 1.0)
    sign = np.where(seen < 0.0, -1.0, 1.0)
    scale = sign / np.where(alive, norm, 1.0)
    order = np.lexsort((np.arange(n), np.where(alive, np.abs(seen), -1.0 - np.arange(n))))
    a, b = order[:-1], order[1:]
    near = np.abs(np.abs(seen[a]) - np.abs(seen[b])) <= _SAME
    near &= alive[a] & alive[b]
    if near.any():
        i, j = a[near], b[near]
        apart = _scaled(W, i, scale) - _scaled(W, j, scale)
        square = apart.multiply(apart) if sp.issparse(apart) else apart * apart
        near[near] = np.sqrt(np.asarray(square.sum(axis=1)).ravel()) <= 10.0 * _SAME
    label = np.empty(n, dtype=np.int64)
    label[order] = np.concatenate([[0], np.cumsum(~near)])
    return Groups.labelled(label, sign)


def _scaled(W: Any, rows: np.ndarray, scale: np.ndarray) -> Any:
    if sp.issparse(W):
        return sp.csr_array(sp.diags_array(scale[rows]) @ W[rows])
    return W[rows] * scale[rows, None]


def _within(groups: Groups, predictors: LatentPredictors) -> Groups:
    """Latents that a dense prior covariance makes one: its correlation is 1 or -1."""
    if not isinstance(predictors, RowPredictors):
        return groups
    S = to_numpy(predictors.rows[0].S)
    sd = np.sqrt(np.diagonal(S))
    sd = np.where(sd > 0.0, sd, np.inf)  # no variance, no correlation
    probe = np.random.default_rng(0).standard_normal(sd.size)
    seen = (S @ (probe / sd)) / sd
    order = np.argsort(np.abs(seen), kind="stable")
    a, b = order[:-1], order[1:]
    both = S[a, b] / (sd[a] * sd[b])
    near = np.abs(both) >= 1.0 - _SAME
    label, turn = np.empty(sd.size, dtype=np.int64), np.empty(sd.size)
    label[order] = np.concatenate([[0], np.cumsum(~near)])
    turn[order] = np.concatenate([[1.0], np.cumprod(np.where(near, np.sign(both), 1.0))])
    return Groups.labelled(label, turn)
