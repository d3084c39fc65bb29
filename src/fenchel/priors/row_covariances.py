"""Covariances of predictors under q with some rows of a fit, its sites.

    Cov(W z, W z) = Vt,    Cov(W* z, W z) = W* V W'                            new rows W* of the design
    Cov(eta*, W z) = c W' - (c W') Lam Vt                                      new rows by c = Cov(eta*, z) a priori

``Factor.row_covariances(sites)`` makes the kind that suits its factorisation. Nothing here is stored with the factor:
whoever needs covariances for long keeps the object.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..linalg.arrays import to_numpy
from ..linalg.design import Design


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
