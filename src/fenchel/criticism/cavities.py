"""Cavities: q without the sites of several observations.

    V_I = Cov[eta_I],    C = (V_I^-1 - Lam_I)^-1 = V_I (1 - Lam_I V_I)^-1,    mean = h_I + C alpha_I

C is the covariance of eta_I given all the other sites, which serves as the prior of a small model of the rows I.

``correlated_rows`` makes groups from the posterior. In a smooth series or map a row is easy to predict from its
neighbours. Leaving out the rows with the highest correlations too is a harder test of the model (Liu and Rue 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ..checks import count, problem
from ..linalg.arrays import to_numpy
from ..posterior import Posterior

_EQUAL = 1e-6  # correlations that differ by less are one level
_MOST = 20_000  # most rows for ``correlated_rows``


@dataclass(frozen=True)
class Cavity:
    """The distribution of eta at some rows given the other sites: mean (m, C) and the covariance of each block."""

    mean: np.ndarray
    blocks: list[np.ndarray]


class Cavities:
    """The cavities of a posterior.

    Rows are indices into the active observations; ``place`` maps all observations to them (-1: not active).
    """

    def __init__(self, posterior: Posterior) -> None:
        self.active, self.correlated = posterior.active, posterior.joint
        self.n_predictors = posterior.predictors.n_predictors
        self.place = np.full(posterior.predictors.n_observations, -1)
        self.place[self.active] = np.arange(self.active.size)
        self.h, rho = (to_numpy(v) for v in posterior.active_moments)
        self.alpha, self.lam = (to_numpy(v)[self.active] for v in (posterior.alpha, posterior.lam))
        self.Lam = None if posterior.curvatures is None else to_numpy(posterior.curvatures)[self.active]
        self.extra = to_numpy(posterior.extra_variance)[self.active]
        self.sd = np.sqrt(np.maximum(rho - self.extra, 0.0))
        self.covariances = posterior.factor.row_covariances(np.arange(self.active.size))

    def _rows(self, at: np.ndarray) -> np.ndarray:
        """Rows of a block for some observations: C rows for each if their predictors are correlated."""
        n = self.n_predictors
        return (at[:, None] * n + np.arange(n)).ravel() if self.correlated else at

    def _by_block(self, values: np.ndarray) -> list[np.ndarray]:
        """Values of some observations (m, C) as a vector for each block."""
        return [values.ravel()] if self.correlated else list(values.T)

    def _by_observation(self, blocks: list[np.ndarray]) -> np.ndarray:
        """Values (m, C) from a vector for each block, the inverse of ``_by_block``."""
        return blocks[0].reshape(-1, self.n_predictors) if self.correlated else np.stack(blocks, axis=1)

    def columns(self, at: np.ndarray) -> list[np.ndarray]:
        """Columns of Vt for some rows, (N, m) for each block, or (N C, m C) with correlated predictors."""
        return self.covariances.columns(self._rows(at))

    def _curvatures(self, at: np.ndarray) -> list[np.ndarray]:
        """Lam of some rows for each block: diagonal unless the predictors of a row are dependent under q."""
        if self.Lam is not None:
            return [scipy.linalg.block_diag(*self.Lam[at])]
        return [np.diag(lam) for lam in self._by_block(self.lam[at])]

    def without(self, at: np.ndarray, columns: list[np.ndarray] | None = None) -> Cavity:
        """The cavity without the sites of some rows."""
        blocks = [V[self._rows(at)] for V in (self.columns(at) if columns is None else columns)]
        left, shift = [], []
        for V, a, Lam in zip(blocks, self._by_block(self.alpha[at]), self._curvatures(at), strict=True):
            C = np.linalg.solve(np.eye(V.shape[0]) - V @ Lam, V)  # (1 - V Lam)^-1 V
            left.append((C + C.T) / 2)
            shift.append(left[-1] @ a)
        return Cavity(self.h[at] + self._by_observation(shift), left)

    def moved(self, at: np.ndarray, columns: list[np.ndarray], cavity: Cavity) -> np.ndarray:
        """Changes (N,) of the means of all active rows, in their sds, without the sites ``at`` and with all others."""
        out, alphas = [], self._by_block(self.alpha[at])
        for V, C, a, Lam in zip(columns, cavity.blocks, alphas, self._curvatures(at), strict=True):
            out.append(V @ (a + Lam @ (C @ a)))  # V_oI (1 - Lam V_I)^-1 alpha_I
        shift = self._by_observation(out)
        return np.asarray((np.abs(shift) / np.where(self.sd > 0.0, self.sd, np.inf)).max(axis=1))

    def marginal(self, cavity: Cavity, at: np.ndarray) -> np.ndarray:
        """Variances (m, C), or covariances (m, C, C) of correlated predictors, with the extra variance."""
        m, n = at.size, self.n_predictors
        if not self.correlated:
            return np.asarray(np.stack([np.diagonal(C) for C in cavity.blocks], axis=1) + self.extra[at])
        whole = cavity.blocks[0].reshape(m, n, m, n)
        return np.stack([whole[i, :, i, :] for i in range(m)]) + np.eye(n) * self.extra[at][:, :, None]


def correlated_rows(posterior: Posterior, levels: int = 3) -> list[np.ndarray]:
    """Groups for ``leave_group_out``: for each row the rows with the largest correlations under the posterior.

    Parameters
    ----------
    posterior : Posterior
        The posterior of a fit with one predictor for each observation.
    levels : int, default 3
        How many of the largest values of |correlation| count. Rows with equal correlations (of one group or one
        year) are one level, and the row itself is the first.

    Returns
    -------
    list of int arrays (N)
        An unobserved row has a group of its own.
    """
    levels = count("correlated_rows", "levels", levels, 1)
    n, active = posterior.predictors.n_observations, posterior.active
    if posterior.predictors.n_predictors > 1:
        raise problem("correlated_rows", "several predictors an observation", "one", "Give the groups yourself.")
    if active.size > _MOST:
        raise problem("correlated_rows", f"{active.size} rows", f"at most {_MOST}", "Give the groups yourself.")
    cavities, out = Cavities(posterior), [np.array([i]) for i in range(n)]
    sd = cavities.sd[:, 0]
    scale = np.where(sd > 0.0, 1.0 / np.where(sd > 0.0, sd, 1.0), 0.0)
    for k in range(active.size):
        near = np.abs(cavities.columns(np.array([k]))[0][:, 0] * scale * scale[k])
        near[k] = 1.0
        largest = np.sort(near)[::-1]
        steps = np.flatnonzero(largest[:-1] - largest[1:] > _EQUAL)  # where one level ends
        cut = largest[steps[levels - 1]] if steps.size >= levels else 0.0
        out[active[k]] = active[np.flatnonzero(near >= cut - _EQUAL)] if cut > 0.0 else active
    return out
