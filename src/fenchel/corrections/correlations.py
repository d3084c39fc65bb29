"""How the sites of a fit, its latents and new rows are correlated under q: R = corr(W V W'), some rows at a time.

A site is a group of observations along one line. Covariances come from ``Factor.row_covariances``; here they are
scaled to correlations, in blocks of targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..linalg.arrays import to_numpy
from ..linalg.design import Design, Identity
from ..posterior import Posterior
from ..priors.base import NewRows
from ..priors.lines import Lines
from ..priors.predictors import new_rows
from ..priors.row_covariances import RowCovariances

_BLOCK = 1 << 22  # numbers of R held at a time

Block = tuple[np.ndarray, np.ndarray, np.ndarray]  # targets (T,), sites (n,), R (T, n)


class Correlations:
    """R between the sites (groups of the active rows) and anything else."""

    def __init__(self, posterior: Posterior, groups: Lines) -> None:
        self.posterior, self.groups = posterior, groups
        self.rho = to_numpy(posterior.active_moments[1])[:, 0][groups.first]
        self.scale = _inverse_root(self.rho)
        self._found: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Without N x N numbers that are made again from the factor."""
        return {**self.__dict__, "_found": None}

    @property
    def covariances(self) -> Any:
        """Covariances with the sites: of the active rows, or where the latents are the predictors of all rows."""
        if self._found is None:
            post, first = self.posterior, self.groups.first
            self._found = (
                post.factor.row_covariances(first)
                if post.factor.own_latents
                else post.joint_factor().row_covariances(post.active[first])
            )
        return self._found

    @property
    def in_blocks(self) -> bool:
        """Whether sites are cells of a table, whose rows are independent."""
        return self.posterior.factor.covariances.of_table

    # -- between sites -----------------------------------------------------------------------------
    def between(self) -> Iterator[Block]:
        """R between sites, in blocks of rows: (sites, sites, R); only sites in one block are correlated."""
        if self.in_blocks:
            for row in self.covariances.rows():
                R = self._scaled(row.loadings @ row.V @ row.loadings.T, self.scale[row.sites], row.sites)
                np.fill_diagonal(R, 1.0)
                yield row.sites, row.sites, R
            return
        n = self.groups.n
        everyone, step = np.arange(n), max(1, _BLOCK // n)
        for i in range(0, n, step):
            rows = np.arange(i, min(n, i + step))
            yield rows, everyone, self.of_sites(rows)

    def of_sites(self, which: np.ndarray) -> np.ndarray:
        """R of some sites with all (M, n)."""
        found: RowCovariances = self.covariances
        R = self._scaled(found.of_rows(found.sites[which]), self.scale[which])
        R[np.arange(which.size), which] = 1.0
        return R

    # -- with anything else ------------------------------------------------------------------------
    def with_latents(self) -> Iterator[Block]:
        """R of the latents with the sites."""
        if self.in_blocks:
            for row in self.covariances.rows():
                L, sd = row.V.shape[0], _inverse_root(np.diagonal(row.V))
                targets = np.arange(row.number * L, (row.number + 1) * L)
                yield targets, row.sites, self._scaled(row.V @ row.loadings.T, sd, row.sites)
            return
        variance = to_numpy(self.posterior.latent_variance)
        if self.posterior.factor.own_latents:
            yield self.with_design(Identity(variance.size, self.posterior.factor.lam), variance)
        else:
            yield self._block(self.covariances.of_rows(np.arange(variance.size)), variance)

    def with_design(self, new: Design, variance: np.ndarray) -> Block:
        """R of new rows of the design with the sites; ``variance`` (M,) is theirs under q."""
        return self._block(self.covariances.of_design(new), variance)

    def with_new(self, new: NewRows, variance: np.ndarray) -> Block:
        """R of eta at new rows with the sites; ``variance`` (M,) is that of the latent part of eta under q."""
        n_latents = int(np.shape(self.posterior.latent_mean)[0])
        (rows,), _ = new_rows(new, n_latents, 1, 1, self.posterior.predictors.mt)
        if new.design is not None:
            return self.with_design(rows, variance)
        return self._block(self.covariances.of_cross(rows), variance)

    def with_rest(self, rest: np.ndarray, variance: np.ndarray) -> Iterator[Block]:
        """R of observations without a site with the sites."""
        predictors: Any = self.posterior.predictors
        if self.in_blocks:
            for own, row, cov in self.covariances.of_cells(rest):
                yield own, row.sites, self._scaled(cov, _inverse_root(variance[own]), row.sites)
        elif self.posterior.factor.own_latents:
            yield self.with_design(predictors.designs[0].take(rest), variance)
        else:
            yield self._block(self.covariances.of_rows(rest), variance)

    def _block(self, cov: np.ndarray, variance: np.ndarray) -> Block:
        R = self._scaled(cov, _inverse_root(variance))
        return np.arange(cov.shape[0]), np.arange(self.groups.n), R

    def _scaled(self, V: np.ndarray, scale: np.ndarray, sites: np.ndarray | slice = slice(None)) -> np.ndarray:
        R = V * scale[:, None]
        R *= self.scale[sites][None, :]
        return np.clip(R, -1.0, 1.0, out=R)


def _inverse_root(variance: np.ndarray) -> np.ndarray:
    """1 / sd, 0 where there is no variance."""
    with np.errstate(divide="ignore"):
        return np.where(variance > 0.0, 1.0 / np.sqrt(variance), 0.0)
