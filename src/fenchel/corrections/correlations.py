"""How the sites of a fit, its latents and new rows are correlated under q: R = corr(W V W'), some rows at a time.

few features     H = X A^-1/2, R = H H' with rows of H at norm 1            nothing of N x N is kept
a dense prior    R from Vt itself
a table          one small block for each of its rows
a sparse prior   Vt by solves, for as many rows as ``DENSE``; above, ``local.py``
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..linalg import small
from ..linalg.arrays import to_numpy
from ..linalg.design import Design, Identity
from ..posterior import Posterior
from ..priors.base import NewRows
from ..priors.batched import BatchedFactor
from ..priors.prediction import new_rows
from ..priors.predictors import LatentPredictors
from ..priors.rowspace import RowsFactor
from ..priors.sparse import SparseFactor
from ..priors.weightspace import WeightsFactor
from .merging import Groups

_BLOCK = 1 << 22  # numbers of R held at a time

Block = tuple[np.ndarray, np.ndarray, np.ndarray]  # targets (T,), sites (n,), R (T, n)


class Correlations:
    """R between the sites (groups of the active rows) and anything else."""

    def __init__(self, posterior: Posterior, groups: Groups) -> None:
        self.posterior, self.groups, self.factor = posterior, groups, posterior._factor
        self.rho = to_numpy(posterior._active_marginals[1])[:, 0][groups.first]
        with np.errstate(divide="ignore"):
            self._scale = np.where(self.rho > 0.0, 1.0 / np.sqrt(self.rho), 0.0)

    def __getstate__(self) -> dict[str, Any]:
        """Without N x N numbers that are made again from the factor."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_full", "_root")}

    @property
    def in_blocks(self) -> bool:
        return isinstance(self.factor, BatchedFactor)

    # -- between sites -----------------------------------------------------------------------------
    @cached_property
    def _root(self) -> np.ndarray:
        """H (N, r) with Vt = H H', few features."""
        part = self.factor.parts[0]  # type: ignore[attr-defined]
        return np.asarray(to_numpy(part.X.times(part.U)))

    @cached_property
    def _full(self) -> np.ndarray:
        """Vt of the active rows with the sites (N, n)."""
        factor, first = self.factor, self.groups.first
        if isinstance(factor, SparseFactor):
            return np.asarray(factor.W @ factor.parts[0].solve(factor.W[first].T.toarray()))
        V = to_numpy(factor.covariance()[0])
        return V if first.size == V.shape[0] and (first == np.arange(first.size)).all() else V[:, first]

    def between(self) -> Iterator[Block]:
        """R between sites, in blocks of rows: (sites, sites, R); only sites in one block are correlated."""
        if self.in_blocks:
            yield from self._table()
            return
        n = self.groups.n
        everyone, step = np.arange(n), max(1, _BLOCK // n)
        for i in range(0, n, step):
            rows = np.arange(i, min(n, i + step))
            yield rows, everyone, self.of_sites(rows)

    def of_sites(self, which: np.ndarray) -> np.ndarray:
        """R of some sites with all (M, n)."""
        R = self._scaled(self._cov_of_rows(self.groups.first[which]), self._scale[which])
        R[np.arange(which.size), which] = 1.0
        return R

    def _cov_of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Vt of some active rows with the sites (M, n)."""
        if isinstance(self.factor, WeightsFactor):
            return self._root[rows] @ self._root[self.groups.first].T
        return self._full[rows]

    def _scaled(self, V: np.ndarray, scale: np.ndarray) -> np.ndarray:
        R = V * scale[:, None]
        R *= self._scale[None, :]
        return np.clip(R, -1.0, 1.0, out=R)

    def _cells(self) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Rows of a table: their number, sites, loadings (D, L) of these, V_r."""
        factor = self.factor
        assert isinstance(factor, BatchedFactor)
        own = factor.own
        cells = (np.arange(own.R * own.n_cells) if own.keep is None else own.keep)[self.groups.first]
        order = np.argsort(cells, kind="stable")
        row, column, V = cells[order] // own.n_cells, cells[order] % own.n_cells, small.unpack(factor.V)
        edges = np.searchsorted(row, np.arange(own.R + 1))
        for r, (i, j) in enumerate(pairwise(edges)):
            yield r, order[i:j], own.W[column[i:j]], V[r]

    def _table(self) -> Iterator[Block]:
        for _, sites, W, V in self._cells():
            scale = self._scale[sites]
            R = np.clip((W @ V @ W.T) * scale[:, None] * scale, -1.0, 1.0)
            np.fill_diagonal(R, 1.0)
            yield sites, sites, R

    # -- with anything else ------------------------------------------------------------------------
    def with_latents(self) -> Iterator[Block]:
        """R of the latents with the sites."""
        if self.in_blocks:
            for r, sites, W, V in self._cells():
                L = W.shape[1]
                scale = 1.0 / np.sqrt(np.diagonal(V))
                yield np.arange(r * L, (r + 1) * L), sites, scale[:, None] * (V @ W.T) * self._scale[sites]
            return
        variance = to_numpy(self.posterior.latent_variance)
        if not isinstance(self.posterior._all, LatentPredictors):
            yield from self._others(np.arange(variance.size), variance)
            return
        yield self._block(self.with_design(Identity(variance.size, self.factor.lam)), variance)

    def with_design(self, new: Design) -> np.ndarray:
        """Cov(W* z, W z) under q for new rows W* and the sites (M, n)."""
        factor, first = self.factor, self.groups.first
        if isinstance(factor, WeightsFactor):
            part, z = factor.parts[0], factor.predictors.latents[0]
            return np.asarray(to_numpy(z.whiten(new).times(part.U)) @ self._root[first].T)
        if isinstance(factor, SparseFactor):
            W, seen = new.csr(), factor.W[first]
            if W.shape[0] < seen.shape[0]:
                return np.asarray(seen @ factor.parts[0].solve(W.T.toarray())).T
            return np.asarray(W @ factor.parts[0].solve(seen.T.toarray()))
        assert isinstance(factor, RowsFactor)
        seen = factor.predictors.designs[0].take(first)
        return np.asarray(to_numpy(seen.beside(factor.design_covariance([new])[0])))

    def with_new(self, new: NewRows, variance: np.ndarray) -> Block:
        """R of eta at new rows with the sites; ``variance`` (M,) is that of the latent part of eta under q."""
        everyone = self.posterior._all
        if not isinstance(everyone, LatentPredictors):
            return self._block(self._other_rows(new), variance)
        (rows,), _ = everyone.new_rows(new)
        if new.design is not None:
            return self._block(self.with_design(rows), variance)
        W = self.factor.predictors.designs[0]  # type: ignore[attr-defined]
        seen = to_numpy(W.times(rows.T)).T  # Cov(eta*, W z) a priori, (M, N)
        lam = to_numpy(self.factor.lam)[:, 0]
        first = self.groups.first
        if isinstance(self.factor, WeightsFactor):
            explained = ((seen * lam) @ self._root) @ self._root[first].T
        else:
            explained = (seen * lam) @ self._full
        return self._block(seen[:, first] - explained, variance)

    def with_rest(self, rest: np.ndarray, variance: np.ndarray) -> Iterator[Block]:
        """R of observations without a site with the sites."""
        everyone = self.posterior._all
        if isinstance(everyone, LatentPredictors):
            yield self._block(self.with_design(everyone.designs[0].take(rest)), variance)
        else:
            yield from self._others(rest, variance)

    def _other_rows(self, new: NewRows) -> np.ndarray:
        """Cov(eta*, W z) under q where the latents are the predictors."""
        everyone, lam = self.posterior._all, to_numpy(self.posterior._lam)
        (rows,), _ = new_rows(new, everyone.n_observations, 1, 1, everyone.mt)
        V = to_numpy(self.posterior._joint_factor().covariance()[0])[:, self.posterior._active[self.groups.first]]
        if isinstance(rows, Design):
            return np.asarray(to_numpy(rows.times(V)))
        seen = to_numpy(rows)
        return np.asarray(seen[:, self.posterior._active[self.groups.first]] - (seen * lam[:, 0]) @ V)

    def _others(self, rows: np.ndarray, variance: np.ndarray) -> Iterator[Block]:
        """The same of a prior that knows its predictors alone."""
        if self.in_blocks:
            factor = self.factor
            assert isinstance(factor, BatchedFactor)
            row, column = np.divmod(rows, factor.own.n_cells)
            for r, sites, W, V in self._cells():
                own = np.flatnonzero(row == r)
                cov = factor.own.W[column[own]] @ V @ W.T
                yield own, sites, cov / np.sqrt(variance[own])[:, None] * self._scale[sites]
            return
        V = to_numpy(self.posterior._joint_factor().covariance()[0])
        sites = self.posterior._active[self.groups.first]
        yield self._block(V[np.ix_(rows, sites)], variance)

    def _block(self, cov: np.ndarray, variance: np.ndarray) -> Block:
        with np.errstate(divide="ignore"):
            scale = np.where(variance > 0.0, 1.0 / np.sqrt(variance), 0.0)
        return np.arange(cov.shape[0]), np.arange(self.groups.n), self._scaled(cov, scale)
